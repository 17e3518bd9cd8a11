// What the tests of the code generator share: a kernel call over plain vectors, and the instruction sets to try.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <vector>

#include "arm64.hpp"
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

// These, and arm64 where it can be emulated.
inline std::vector<jit::Target> all_targets_and_arm64() {
  std::vector<jit::Target> out = all_targets();
  if (auto t = jit::cross_target(Isa::neon); t && !t->runs_here() && can_run_arm64()) out.push_back(*t);
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

template <class T>
std::span<std::byte> bytes_of(T& list) {
  return std::as_writable_bytes(std::span(list));
}

// The same on any of all_targets_and_arm64().
inline void run_compiled(const vec::Module& module, const jit::Options& options,
                         const std::vector<std::span<std::byte>>& tensors, const std::vector<int64_t>& extents = {},
                         int64_t task = 0) {
  if (!options.target.runs_here()) {
    Arm64Call call{tensors, extents, {}, {}, 0, 0};
    for (size_t i = 0; i < module.functions.size(); ++i) call.launches.push_back({static_cast<int64_t>(i), task, 1});
    run_arm64(module, options, call);
    return;
  }
  std::vector<CleaveTensor> list;
  for (const auto& t : tensors) list.push_back({t.data(), nullptr});
  run_compiled(module, options, CleaveCall{list.data(), extents.data(), nullptr, nullptr}, task);
}

}  // namespace cleave::testing
