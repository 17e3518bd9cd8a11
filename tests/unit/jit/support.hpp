// What the tests of the code generator share: a kernel call over plain vectors, and the instruction sets to try.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "jit/jit.hpp"
#include "vec/builder.hpp"

namespace cleave::testing {

// Every instruction set that this processor can run code for.
inline std::vector<jit::Target> all_targets() {
  std::vector<jit::Target> out = {jit::host_target()};
  for (const Isa isa : {Isa::avx2, Isa::generic})
    if (isa != out[0].isa)
      if (auto t = jit::target_for(isa)) out.push_back(*t);
  return out;
}

// Compiles the function and runs it once on these tensors.
inline void run_compiled(const vec::Module& module, const jit::Options& options, const CleaveCall& call,
                         int64_t task = 0, void* scratch = nullptr) {
  auto compiled = jit::compile(module, options);
  ASSERT_TRUE(compiled.ok()) << render(compiled.errors(), nullptr);
  for (const vec::Function& f : module.functions) {
    auto kernel = compiled->function(f.name);
    ASSERT_TRUE(kernel.ok());
    (*kernel)(&call, task, scratch);
  }
}

}  // namespace cleave::testing
