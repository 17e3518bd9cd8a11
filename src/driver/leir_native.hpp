// Compiled ways to run LEIR programs: through LLVM in this process, or through a C compiler.
#pragma once

#include <functional>
#include <map>

#include "leir_eval/interpret.hpp"

namespace cleave::driver {

// A compiled program; a call takes buffers in the order of the program's variables.
struct NativeLeir {
  std::function<int(void* const*, int64_t*)> run;
  double compile_seconds = 0;
};
// `via` is "jit" or "c". C needs clang-19, clang, gcc or cc.
Result<NativeLeir> compile_leir(const leir::Program& program, const std::string& via, bool strict);

// Runs it once on inputs by name; a check that fails becomes a diagnostic with the values of the loops.
Result<std::map<std::string, leir::Array>> run_native(const leir::Program& program, const NativeLeir& native,
                                                      const std::map<std::string, leir::Array>& inputs);

// A call of it on buffers of its own: what it returns is what `run` does; `output` reads a variable's buffer.
struct NativeCall {
  std::function<int()> run;
  std::function<leir::Array(uint32_t variable)> output;
};
Result<NativeCall> call_native(const leir::Program& program, const NativeLeir& native,
                               const std::map<std::string, leir::Array>& inputs);

// Median seconds of a run, of at least `runs` runs and 0.1 s, on the same buffers.
Result<double> time_native(const leir::Program& program, const NativeLeir& native,
                           const std::map<std::string, leir::Array>& inputs, int runs);

}  // namespace cleave::driver
