// Judges of schedules: tile programs are run by the interpreter and compared with the bounded evaluator.
#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include "eval/bounds.hpp"
#include "eval/tile_eval.hpp"
#include "schedule/schedule.hpp"
#include "support/random_graph.hpp"

namespace cleave::schedule::test {

using oracle::Tensor;

inline graph::Graph parsed(const std::string& text) {
  const SourceText source{"test.graph", text};
  auto g = graph::parse(source);
  EXPECT_TRUE(g.ok()) << (g.ok() ? "" : render(g.errors(), &source));
  return graph::expand(*g);
}

inline Options test_options() {
  Options o;
  o.machine.vector_bytes = 64;
  o.machine.vector_registers = 32;
  return o;
}

// The outputs of a tile program, from dense inputs in the order of the graph's given leaves.
inline std::vector<Tensor> interpret(const graph::Graph& g, const tile::Program& p, const std::vector<Tensor>& given) {
  std::vector<std::vector<std::byte>> memory;
  memory.reserve(g.leaves().size() + g.outputs().size());
  oracle::TileArguments arguments;
  const auto leaves = oracle::given_leaves(g);
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (g.producer(leaves[i]).op == graph::Op::scalar) {
      arguments.scalars.push_back(given[i].at(0));
      continue;
    }
    memory.push_back(oracle::to_dense(given[i]));
    arguments.inputs.push_back(memory.back());
  }
  for (graph::ValueId v : g.leaves(graph::Op::constant)) {
    const auto& n = g.producer(v);
    memory.push_back(graph::materialise(n.attributes.get<graph::ConstantData>("data"), g.type(v).dtype,
                                        oracle::product(g.extents(v))));
    arguments.constants.push_back(memory.back());
  }
  for (const auto& o : g.outputs()) {
    Tensor t = oracle::zeros(g.type(o.value).dtype, g.extents(o.value));
    for (double& x : t.reals) x = std::nan("");
    for (int64_t& x : t.ints) x = 77;
    memory.push_back(oracle::to_dense(t));
    arguments.outputs.push_back(memory.back());
  }
  oracle::run(p, arguments);
  std::vector<Tensor> out;
  for (size_t i = 0; i < g.outputs().size(); ++i) {
    const auto v = g.outputs()[i].value;
    out.push_back(oracle::from_dense(g.type(v).dtype, g.extents(v), arguments.outputs[i].data()));
  }
  return out;
}

// Empty when every output of every candidate is within its bound.
inline std::string judged(const graph::Graph& g, uint64_t seed, testing::Magnitude magnitude, const Options& options) {
  const auto given = testing::tensors_of(testing::random_inputs(g, seed, magnitude));
  const auto expected = oracle::evaluate_with_bounds(g, given);
  if (!expected) return "";  // over the evaluator's limits
  auto all = candidates(g, options);
  if (!all) return render(all.errors(), nullptr);
  for (const Candidate& c : *all) {
    const auto got = interpret(g, c.program, given);
    for (size_t i = 0; i < got.size(); ++i)
      if (const auto d = oracle::compare(got[i], (*expected)[i]); !d.ok())
        return c.summary + " output " + std::to_string(i) + ": " + d.text + "\n" + graph::print(g) +
               itgraph::print(c.it) + tile::print(c.program);
  }
  return "";
}

// The same with a few candidates, and for odd seeds with tiny tiles: loops and tails everywhere.
inline std::string judged(const graph::Graph& g, uint64_t seed, testing::Magnitude magnitude, size_t keep = 4) {
  Options options = test_options();
  options.keep = keep;
  if (seed % 2 == 1) options.tile = 1 + static_cast<int64_t>(seed / 2 % 5);
  return judged(g, seed, magnitude, options);
}

}  // namespace cleave::schedule::test
