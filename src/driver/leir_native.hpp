// Compiled ways to run LEIR programs: through LLVM in this process, or through a C compiler.
#pragma once

#include <functional>
#include <map>
#include <span>

#include "leir_eval/interpret.hpp"
#include "runtime/buffer.hpp"

namespace cleave::driver {

// A compiled program; a call takes buffers in the order of the program's variables.
struct NativeLeir {
  std::function<int(void* const*, int64_t*)> run;
  double compile_seconds = 0;
  bool says_where = true;  // a failing run leaves the values of the loops
};
// `via` is "jit", "c", or "cuda": the CUDA text as C++, thread after thread, slow. The last two need clang-19, clang,
// gcc or cc, and run on one thread.
Result<NativeLeir> compile_leir(const leir::Program& program, const std::string& via, bool strict, int threads = 1);

// Runs it once on inputs by name; a check that fails becomes a diagnostic with the values of the loops.
Result<std::map<std::string, leir::Array>> run_native(const leir::Program& program, const NativeLeir& native,
                                                      const std::map<std::string, leir::Array>& inputs);

// Calls of compiled forms of one program on the same buffers: what `run` returns is what the compiled code does;
// `output` reads a variable's buffer.
struct NativeCall {
  std::function<int()> run;
  std::function<leir::Array(uint32_t variable)> output;
};
Result<std::vector<NativeCall>> call_native(const leir::Program& program, std::span<const NativeLeir> natives,
                                            const std::map<std::string, leir::Array>& inputs);

// The memory of a run: a dense buffer for each variable. With `bounds` (jit::LeirOptions::bounds) reals are doubles,
// and the buffers of their error bounds follow.
struct LeirBuffers {
  std::vector<runtime::Buffer> bytes;
  std::vector<void*> pointers;
  bool bounds = false;
};
// Filled with zeros. `shared` lends its inputs, which have to be of a program with the same known variables and of the
// same form.
Result<LeirBuffers> leir_buffers(const leir::Program& program, bool bounds = false,
                                 const LeirBuffers* shared = nullptr);
Diagnostics fill_inputs(const leir::Program& program, const std::map<std::string, leir::Array>& inputs,
                        LeirBuffers& buffers);
// What elements of a variable have in memory.
leir::Type stored_type(const leir::Variable& variable, bool bounds);
// What a run that returned `code` found, with the values of the loops in `at`, if any.
Diagnostic leir_failure(const leir::Program& program, int code, const int64_t* at);

}  // namespace cleave::driver
