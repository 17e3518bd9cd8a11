// Emits LLVM IR for a vector module. Internal to the room.
#pragma once

#include <memory>
#include <string>

#include "jit/jit.hpp"

namespace llvm {
class LLVMContext;
class Module;
}  // namespace llvm

namespace cleave::jit {

// The module must have been verified. Kernel `f` becomes the symbol kernel_symbol(f).
std::unique_ptr<llvm::Module> emit_llvm(const vec::Module& module, const Target& target, llvm::LLVMContext& context);
std::string kernel_symbol(std::string_view name);

// Scalar functions without an instruction sequence call helper_symbol(fn): a C function of as many doubles as `fn` has
// operands, or, for integers, of int64.
std::string helper_symbol(Fn fn, bool integer);
void* helper_address(Fn fn, bool integer);

}  // namespace cleave::jit
