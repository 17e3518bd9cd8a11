// How LLVM makes object code of a LEIR program's functions.
#pragma once

#include <vector>

#include "jit/leir.hpp"

namespace llvm {
class Module;
}

namespace cleave::jit {

// Object code through LLVM's -O3 pipeline, or through a few passes for what runs a few times. Of that, programs that
// take longer to compile than to run get no instruction selection over whole blocks either: per instruction it costs
// as much as about 500 evaluations gain (measured on the tests of `leir verify`).
Result<std::vector<uint8_t>> leir_object(llvm::Module& module, const LeirOptions& options, double evaluations);

}  // namespace cleave::jit
