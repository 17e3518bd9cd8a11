// The itGraphs of schedules mean what their graphs mean, before any tile program is made of them; and they print and
// parse back.
#include <gtest/gtest.h>

#include "eval/bounds.hpp"
#include "eval/itgraph_eval.hpp"
#include "schedule/schedule.hpp"
#include "support/random_graph.hpp"

namespace cleave::schedule {
namespace {

using oracle::Tensor;

oracle::ItGraphArguments arguments_of(const graph::Graph& g, const std::vector<Tensor>& given) {
  oracle::ItGraphArguments a;
  const auto leaves = oracle::given_leaves(g);
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (g.producer(leaves[i]).op == graph::Op::scalar)
      a.scalars.push_back(given[i].at(0));
    else
      a.inputs.push_back(given[i]);
  }
  for (graph::ValueId v : g.leaves(graph::Op::constant)) {
    const DType d = g.type(v).dtype;
    const auto extents = g.extents(v);
    const auto bytes =
        graph::materialise(g.producer(v).attributes.get<graph::ConstantData>("data"), d, oracle::product(extents));
    a.constants.push_back(oracle::from_dense(d, extents, bytes.data()));
  }
  return a;
}

// Empty when every candidate's itGraph is within the bounds of the graph, and its text reads back.
std::string judged(const graph::Graph& g, uint64_t seed, testing::Magnitude magnitude) {
  const auto given = testing::tensors_of(testing::random_inputs(g, seed, magnitude));
  const auto expected = oracle::evaluate_with_bounds(g, given);
  if (!expected) return "";  // over the evaluator's limits
  Options options;
  options.machine.vector_bytes = 64;
  options.machine.vector_registers = 32;
  options.keep = 3;
  const auto all = candidates(g, options);
  if (!all) return render(all.errors(), nullptr);
  for (const Candidate& c : *all) {
    const std::string text = itgraph::print(c.it);
    const SourceText source{"printed", text};
    const auto again = itgraph::parse(source);
    if (!again) return render(again.errors(), &source) + text;
    if (itgraph::print(*again) != text) return "reads back as\n" + itgraph::print(*again) + "from\n" + text;
    oracle::EvalOptions rounded;
    rounded.round_to_storage = true;
    const auto got = oracle::run(c.it, arguments_of(g, given), rounded);
    if (!got) return render(got.errors(), nullptr) + graph::print(g) + text;
    for (size_t i = 0; i < got->size(); ++i)
      if (const auto d = oracle::compare((*got)[i], (*expected)[i]); !d.ok())
        return "output " + std::to_string(i) + ": " + d.text + "\n" + graph::print(g) + text;
  }
  return "";
}

TEST(Schedule, ItGraphsOfRandomGraphsKeepTheirMeaning) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    testing::Choices choices(seed);
    testing::RandomGraphOptions options;
    options.max_elements = 512;
    const graph::Graph g = graph::expand(testing::random_graph(choices, options));
    const auto magnitude = static_cast<testing::Magnitude>(seed % 4);
    if (judged(g, seed, magnitude).empty()) continue;
    const auto small = testing::shrink(g, [&](const graph::Graph& h) { return !judged(h, seed, magnitude).empty(); });
    ADD_FAILURE() << "seed " << seed << "\n" << judged(small, seed, magnitude);
  }
}

}  // namespace
}  // namespace cleave::schedule
