// LLVM's target machine and code generator. Internal to the room.
#pragma once

#include <llvm/ADT/SmallVector.h>
#include <llvm/Target/TargetMachine.h>

#include <memory>

#include "jit/jit.hpp"

namespace llvm {
class Module;
}

namespace cleave::jit {

Result<std::unique_ptr<llvm::TargetMachine>> target_machine(const Target& target);
Result<llvm::SmallVector<char, 0>> generate(llvm::Module& module, llvm::TargetMachine& machine,
                                            llvm::CodeGenFileType kind);

}  // namespace cleave::jit
