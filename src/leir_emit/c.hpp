// LEIR as C: a full way to run programs, and a text to read.
//
// One function, `int NAME(void *const *v, int64_t *at)`: v has a dense buffer for each variable in the order of the
// program's (known ones first); 0 is success. Otherwise the return value is 1 + the access whose subscript left its
// variable (its negative for a divisor of 0, which counts for the equation's target), and `at` has the values of the
// loops around it.
//
// Strict mode computes exactly what the interpreter does, operation by operation: functions in double, rounded once; no
// contraction (compile with -ffp-contract=off -fwrapv). Otherwise float functions are used, and sums may be
// reassociated.
#pragma once

#include "leir/typed.hpp"

namespace cleave::leir {

struct COptions {
  bool strict = true;
  bool prelude = true;  // with the includes and helpers
  std::string name = "leir_run";
};

// Refused: loops nested deeper than 64, or branches deeper than compilers take.
Result<std::string> emit_c(const Program& program, const COptions& options = {});

// CUDA C++: one kernel a top-level nest, one thread a point of its bound loops, and `extern "C" void leir_run(v,
// error)` that launches them in order on device buffers. Variables of scope s are shared memory, with barriers where
// threads of a block use what others wrote; what is summed over threads is added by one after the other, so the bits
// are those of the other ways to run. Without nvcc the same text is C++ that runs each thread in turn. Refused where
// blocks would have to wait for each other.
Result<std::string> emit_cuda(const Program& program);

// The flags that the text is to be compiled with; of CUDA text as C++, by a compiler of C.
std::string c_flags(bool strict);
std::string cuda_flags();

}  // namespace cleave::leir
