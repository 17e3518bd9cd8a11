// Compiles a graph's schedules and judges them by the bounded evaluator: inputs in every layout, outputs pre-filled
// with NaN and guarded.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "eval/bounds.hpp"
#include "graph/expand.hpp"
#include "jit/build.hpp"
#include "schedule/schedule.hpp"
#include "support/random_graph.hpp"

namespace cleave::testing {

using oracle::Tensor;

constexpr int64_t kGuard = 64;  // bytes on either side of an output

struct Output {
  DType dtype;
  std::vector<int64_t> extents;
  std::vector<std::byte> memory;

  Output(DType d, std::vector<int64_t> e) : dtype(d), extents(std::move(e)) {
    const int64_t bytes = oracle::product(extents) * byte_size(d);
    memory.assign(static_cast<size_t>(bytes + 2 * kGuard), std::byte{0xa5});
    if (is_real(d))
      for (int64_t i = 0; i < bytes; i += byte_size(d)) store_real(d, data() + i, std::nan(""));
  }
  std::byte* data() { return memory.data() + kGuard; }
  bool guards_intact() const {
    for (size_t i = 0; i < static_cast<size_t>(kGuard); ++i)
      if (memory[i] != std::byte{0xa5} || memory[memory.size() - 1 - i] != std::byte{0xa5}) return false;
    return true;
  }
};

// Empty when the compiled graph's outputs are within their bounds.
// `equal`: the schedules are those of this graph, which computes the same.
inline std::string judged(const graph::Graph& original, uint64_t seed, const Machine& machine,
                          const jit::Target& target, const graph::Graph* equal = nullptr) {
  const graph::Graph g = graph::expand(original);
  const auto magnitude = static_cast<Magnitude>(seed % 4);
  const auto inputs = random_inputs(g, seed, magnitude, std::nullopt);
  const auto expected = oracle::evaluate_with_bounds(g, tensors_of(inputs));
  if (!expected) return "";  // over the evaluator's limits
  schedule::Options options;
  options.machine = machine;
  options.keep = 2;
  options.round_weights = graph::products_in(original, DType::bf16);
  if (seed % 2 == 1) options.tile = 1 + static_cast<int64_t>(seed / 2 % 5);  // loops and tails everywhere
  auto all = schedule::candidates(equal ? *equal : g, options);
  if (!all) return render(all.errors(), nullptr);
  for (const auto& c : *all) {
    jit::BuildOptions build_options;
    build_options.code.target = target;
    auto built = jit::build(c.program, build_options);
    if (!built) return render(built.errors(), nullptr) + tile::print(c.program);
    std::vector<jit::TensorView> views, constant_views, output_views;
    std::vector<double> scalars;
    const auto leaves = oracle::given_leaves(g);
    for (size_t i = 0; i < leaves.size(); ++i) {
      const auto& in = inputs[i];
      if (g.producer(leaves[i]).op == graph::Op::scalar)
        scalars.push_back(in.tensor().at(0));
      else
        views.push_back({const_cast<void*>(in.first()), in.dtype, in.extents, in.strides});
    }
    std::vector<std::vector<std::byte>> constants;
    for (graph::ValueId v : g.leaves(graph::Op::constant)) {
      const auto& data = g.producer(v).attributes.get<graph::ConstantData>("data");
      constants.push_back(graph::materialise(data, g.type(v).dtype, oracle::product(g.extents(v))));
      constant_views.push_back({constants.back().data(), g.type(v).dtype, g.extents(v), {}});
    }
    std::vector<Output> outputs;
    for (const auto& o : g.outputs()) outputs.emplace_back(g.type(o.value).dtype, g.extents(o.value));
    for (Output& o : outputs) output_views.push_back({o.data(), o.dtype, o.extents, {}});
    auto bound = built->bind_constants(constant_views);
    if (!bound) return render(bound.errors(), nullptr);
    jit::RunOptions run;
    run.machine.flush_denormals = false;
    if (const Diagnostics bad = built->run(views, scalars, output_views, *bound, run); !bad.empty())
      return render(bad, nullptr);
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Tensor got = oracle::from_dense(outputs[i].dtype, outputs[i].extents, outputs[i].data());
      const auto d = oracle::compare(got, (*expected)[i]);
      if (!d.ok())
        return c.summary + ", output " + std::to_string(i) + ": " + d.text + "\n" + graph::print(g) +
               tile::print(c.program);
      if (!outputs[i].guards_intact())
        return "output " + std::to_string(i) + " was written beyond its end\n" + tile::print(c.program);
    }
  }
  return "";
}

}  // namespace cleave::testing
