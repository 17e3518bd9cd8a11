// `cleave leir`: LEIR programs from files, run, judged and printed.
#pragma once

#include <map>

#include "base/diagnostic.hpp"
#include "leir/program.hpp"
#include "leir_eval/interpret.hpp"

namespace cleave::driver {

struct LeirRequest {
  std::string input;  // a .leir file, a folder with prog.leir, or -
  std::string known;  // a JSON file of known variables, for texts without a header
  bool strict = false, paper = false;
  std::map<std::string, int64_t> dims;
  std::vector<std::string> inputs;  // .npz, or .npy files in the order of the header
  std::string outputs;              // .npz to write
  std::string errors;               // .npz of error bounds to write
  bool f64 = false;                 // compute in f64 whatever the storage
  bool check = false;               // compare with outputs.npz, or with the interpreter
  std::string via = "interpreter";
  int threads = 1;  // of machine code
  uint64_t seed = 1;
  int64_t max_steps = int64_t{1} << 40;  // compiled: of the estimate, before it runs
  double rtol = 0, atol = 0;
};

// The text as it was read, and everything to say about it.
struct LeirText {
  SourceText source;
  leir::Syntax syntax;
  Diagnostics messages;
};
// Reads and parses; errors of the text are in `messages`, so that they are shown with their places.
Result<LeirText> read_leir(const LeirRequest& request);

// D15: |got - want| within the running error bound, which must itself be under 5 % of the output's scale. Why not.
std::optional<std::string> leir_differs(const leir::Array& got, const leir::Array& want, std::span<const double> bound,
                                        double rtol, double atol);

struct LeirRun {
  std::map<std::string, leir::Array> outputs;
  std::vector<std::string> order;  // of the outputs, as in the header
  std::string verdict;             // when it was compared
  double seconds = 0;
};
// The inputs of a program by name: from files, or seeded random data.
Result<std::map<std::string, leir::Array>> leir_inputs(const LeirRequest& request, const leir::Program& program);
Result<LeirRun> run_leir(const LeirRequest& request, const leir::Program& program);

}  // namespace cleave::driver
