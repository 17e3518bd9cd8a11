#include "jit/calibrate.hpp"

#include "base/rng.hpp"
#include "runtime/buffer.hpp"
#include "runtime/calibrate.hpp"
#include "runtime/timing.hpp"
#include "vec/builder.hpp"

namespace cleave::jit {

Result<double> measure_cycles(Fn fn, const Target& target, double gigahertz, double low, double high) {
  constexpr int64_t kElements = 2048;
  constexpr int kUnroll = 4;  // independent vectors, as in the kernels
  const int lanes = target.vector_bytes / 4;
  vec::Module module;
  module.functions.emplace_back("map");
  vec::Builder b(module.functions.back());
  const vec::Value from = b.tensor_data(0), to = b.tensor_data(1);
  b.for_each(b.i64(0), b.i64(kElements), b.i64(kUnroll * lanes), [&](vec::Value i) {
    std::vector<vec::Value> results;
    for (int u = 0; u < kUnroll; ++u) {
      const vec::Value x = b.load(b.ptr_add(b.element(from, i, DType::f32), 4 * u * lanes), DType::f32, lanes);
      results.push_back(b.apply(fn, std::vector<vec::Value>(static_cast<size_t>(info(fn).arity), x)));
    }
    for (int u = 0; u < kUnroll; ++u)
      b.store(results[static_cast<size_t>(u)], b.ptr_add(b.element(to, i, DType::f32), 4 * u * lanes), DType::f32);
  });
  Options options;
  options.target = target;
  TRY_ASSIGN(CompiledModule compiled, compile(module, options));
  TRY_ASSIGN(CleaveKernel kernel, compiled.function("map"));
  runtime::Buffer in(kElements * 4), out(kElements * 4);
  Rng rng(7);
  for (int64_t i = 0; i < kElements; ++i) in.as<float>()[i] = static_cast<float>(low + (high - low) * rng.uniform());
  const CleaveTensor tensors[] = {{in.data(), nullptr}, {out.data(), nullptr}};
  const CleaveCall call{tensors, nullptr, nullptr, nullptr};
  return runtime::time_best([&] { kernel(&call, 0, nullptr); }, 1e-3, 5) * gigahertz * 1e9 / kElements;
}

Result<Machine> measured_host() {
  Machine m = runtime::measured(host_machine());
  TRY_ASSIGN(m.exp_cycles, measure_cycles(Fn::exp, host_target(), m.gigahertz, -20, 0));
  return m;
}

}  // namespace cleave::jit
