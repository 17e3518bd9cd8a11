// LEIR -> machine code: loops as they are written, each equation from its typed form.
//
// Strict code computes bitwise what the interpreter of LEIR does. Otherwise sums may be reassociated and multiply-adds
// contracted. Subscripts whose bounds are not proved are checked where they are evaluated.
#pragma once

#include "base/thread_pool.hpp"
#include "jit/jit.hpp"
#include "leir/typed.hpp"

namespace cleave::jit {

// The error bound of an operation, given the roundoff, its value, its operands and their errors.
using LeirErrorOf = double (*)(const leir::Node*, double unit, double value, int64_t operands, const double* x,
                               const double* e);

struct LeirOptions {
  bool strict = true;
  Target target = host_target();
  // Compute in f64 whatever the storage, and keep running bounds of the errors that storage precision makes: buffers of
  // reals have doubles then, and behind the buffers of all variables come those of their bounds (null for inputs).
  LeirErrorOf bounds = nullptr;
  // Code that several threads can run (see run): nests get the range of their outermost loop when they are called.
  bool divide = false;
  // Less time to compile, for programs that run once: a short pipeline.
  bool quick = false;
};

class LeirCode {
 public:
  // `v` has a dense buffer for each variable of the program, in order. 0, or 1 + the access that left its variable (its
  // negative for a divisor of 0, which counts for the target); `at` (64 numbers) has the values of the loops around it
  // then.
  int run(void* const* v, int64_t* at) const;
  // The same, bit for bit: nests whose outermost loop is of kind P or B are divided among the workers, unless something
  // is reduced over it or private to its iterations.
  int run(void* const* v, int64_t* at, Executor& executor) const;

 private:
  friend Result<LeirCode> compile_leir(const leir::Program&, const LeirOptions&);
  using Nest = int (*)(void* const*, int64_t* at, int64_t begin, int64_t end);
  struct Part {
    Nest run;
    int64_t extent;  // of the loop that is divided; 0: none is
  };
  CompiledModule module_;
  std::vector<Part> nests_;
  std::shared_ptr<const void> alive_;  // what the code points to
};

Result<LeirCode> compile_leir(const leir::Program& program, const LeirOptions& options = {});

}  // namespace cleave::jit
