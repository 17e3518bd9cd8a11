// LEIR, the loop-equation language, for C++: programs are read, checked, run, printed in other languages and raised to
// graphs. Faults of a text come as cleave::Error with a caret in the message.
//
//   cleave::LeirProgram p = cleave::LeirProgram::parse(text);
//   auto outputs = p.run({{"A", a}, {"D", d}});
//   cleave::Optimized best = cleave::optimize(p.raise());
#pragma once

#include <cleave/cleave.hpp>

namespace cleave {

struct LeirOptions {
  std::string name = "leir";            // in messages
  bool strict = false;                  // the chain form is an error
  bool paper = false;                   // only what the paper's dialect has
  std::map<std::string, int64_t> dims;  // values of known integer scalars
};

struct LeirVariable {
  std::string name, role, type;  // role: in, const, param, out or intermediate; type: "f32", "i16", ..
  std::vector<int64_t> shape;
};

// Median seconds of a run, and seconds to compile.
struct LeirTimes {
  double jit = 0, c = 0;
  double jit_compile = 0, c_compile = 0;
};

// Of draws of random data: `bitwise` says whether storage precision agreed bit for bit, `reason` which element did not.
struct LeirVerdict {
  std::string verdict;  // equal, different or inconclusive
  bool bitwise = false;
  std::string reason;
  double milliseconds = 0;
};

// A program, read but not yet checked; what needs it checked checks it once. A handle: copies share one program, which
// several threads may use.
class CLEAVE_API LeirProgram {
 public:
  static LeirProgram parse(const std::string& text, const LeirOptions& options = {});

  std::string text(bool compact = false) const;  // the canonical form; compact: without header, blanks and newlines
  void check() const;                            // throws what is wrong
  std::string messages() const;                  // warnings and notes of the text and of the check, as far as it went
  std::string key() const;                       // equal for programs that differ in names only
  std::vector<LeirVariable> variables() const;

  // The outputs, from every known variable that is none. `via`: interpreter, jit (native code with the interpreter's
  // own arithmetic) or c (through a C compiler). Outputs of types that ElementType has not are i64.
  std::map<std::string, Tensor> run(const std::map<std::string, View>& inputs, const std::string& via = "jit") const;
  // In another language: c, cuda, or tir (TVM script; `target` cpu or cuda). `fast`: C that may reassociate sums.
  std::string lower(const std::string& to, const std::string& target = "cpu", bool fast = false) const;
  Graph raise(const std::string& name = "leir") const;
  // Compiled in this process, and as C at -O3, on seeded random data.
  LeirTimes bench(int pairs = 21, uint64_t seed = 1) const;
  // Does the candidate compute what this program does? Without a header it has that of this program.
  LeirVerdict verify(const LeirProgram& candidate, int draws = 3, uint64_t seed = 1) const;

  struct Impl;
  explicit LeirProgram(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace cleave
