// Laws of all graphs, on random ones.
#include "support/random_graph.hpp"

#include <set>

#include "eval/bounds.hpp"
#include "support/graph_text.hpp"

namespace cleave::oracle {
namespace {

using namespace cleave::testing;
using graph::Graph;

constexpr uint64_t kGraphs = 1000;

Graph graph_number(uint64_t seed) {
  Choices choices(seed);
  // Every operator leads some graphs, so that the table is covered whatever the weights.
  const auto ops = graph::all_ops();
  RandomGraphOptions options;
  options.must_have = ops[seed % ops.size()].op;
  return random_graph(choices, options);
}

TEST(RandomGraph, GraphsAreValidAndReadBackEqual) {
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < kGraphs; ++seed) {
    const Graph g = graph_number(seed);
    EXPECT_TRUE(graph::verify(g).empty()) << seed << "\n" << graph::print(g);
    for (graph::NodeId id : g.node_ids()) seen.insert(info(g.node(id).op).name);
    const SourceText text{"random.graph", graph::print(g, {.inline_elements = 1 << 20})};
    auto again = graph::parse(text);
    ASSERT_TRUE(again.ok()) << seed << "\n" << text.text << render(again.errors(), &text);
    EXPECT_TRUE(graph::equal(g, *again)) << seed << "\n" << text.text;
  }
  for (const auto& op : graph::all_ops()) EXPECT_TRUE(seen.count(op.name)) << "no graph has `" << op.name << "`";
}

// What an implementation that rounds every value to its storage type computes lies within the bounds.
std::string outside_bounds(const Graph& g, uint64_t seed, Magnitude magnitude) {
  const auto inputs = tensors_of(random_inputs(g, seed, magnitude, std::nullopt));
  const auto bounds = evaluate_with_bounds(g, inputs);
  const auto rounded = evaluate(g, inputs, {.round_to_storage = true});
  if (!bounds.ok() || !rounded.ok())
    return "not evaluated: " + render((bounds.ok() ? rounded.errors() : bounds.errors()), nullptr);
  for (size_t i = 0; i < rounded->size(); ++i) {
    const Difference d = compare((*rounded)[i], (*bounds)[i]);
    if (!d.ok()) return fmt::format("{}: {}", g.outputs()[i].name, d.text);
  }
  return "";
}

TEST(RandomGraph, RoundedEvaluationKeepsTheBounds) {
  for (uint64_t seed = 0; seed < kGraphs; ++seed) {
    const Graph g = graph_number(seed);
    for (const Magnitude m : {Magnitude::tiny, Magnitude::unit, Magnitude::large, Magnitude::special}) {
      const std::string why = outside_bounds(g, seed, m);
      if (why.empty()) continue;
      const Graph small = shrink(g, [&](const Graph& s) { return !outside_bounds(s, seed, m).empty(); });
      ADD_FAILURE() << "seed " << seed << ", magnitude " << static_cast<int>(m) << ": " << why
                    << "\nshrunk: " << outside_bounds(small, seed, m) << "\n"
                    << graph::print(small);
      return;
    }
  }
}

// Bounds that know nothing hold trivially: most must say something.
TEST(RandomGraph, BoundsAreMostlyKnown) {
  int64_t known = 0, all = 0;
  for (uint64_t seed = 0; seed < kGraphs; ++seed) {
    const Graph g = graph_number(seed);
    const auto bounds = evaluate_with_bounds(g, tensors_of(random_inputs(g, seed, Magnitude::unit)));
    ASSERT_TRUE(bounds.ok());
    for (const Bounded& b : *bounds)
      for (size_t i = 0; i < b.bound.size(); ++i) {
        const double v = b.value.at(static_cast<int64_t>(i));
        ++all;
        if (b.bound[i] == 0 || b.bound[i] <= 0.05 * std::max(1.0, std::fabs(v))) ++known;
      }
  }
  EXPECT_GT(static_cast<double>(known), 0.9 * static_cast<double>(all)) << known << " of " << all;
}

TEST(RandomGraph, LayoutsGiveTheSameElementsAsTheirTensors) {
  Choices c(7);
  for (const Layout layout : {Layout::dense, Layout::transposed, Layout::sliced, Layout::negative, Layout::repeated}) {
    const StridedInput in = random_input(c, DType::f32, {3, 1, 5}, Magnitude::unit, layout);
    const Tensor t = in.tensor();
    const auto* floats = reinterpret_cast<const float*>(in.buffer.data());
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t k = 0; k < 5; ++k) {
        const int64_t at = in.offset + i * in.strides[0] + k * in.strides[2];
        ASSERT_GE(at, 0);
        ASSERT_LT(at * 4, static_cast<int64_t>(in.buffer.size()));
        EXPECT_EQ(t.reals[static_cast<size_t>(i * 5 + k)], static_cast<double>(floats[at]));
      }
  }
}

TEST(RandomGraph, BytesDriveTheGeneratorToo) {
  Rng rng(1);
  for (int length : {0, 1, 10, 300}) {
    std::vector<uint8_t> bytes;
    for (int i = 0; i < length; ++i) bytes.push_back(static_cast<uint8_t>(rng.below(256)));
    Choices c{std::span<const uint8_t>(bytes)};
    const Graph g = random_graph(c);
    EXPECT_TRUE(graph::verify(g).empty());
    EXPECT_TRUE(c.used_up() || length > 0);
  }
}

TEST(RandomGraph, ShrinkingKeepsTheFault) {
  auto has_exp = [](const Graph& g) {
    for (graph::NodeId id : g.node_ids())
      if (g.node(id).op == graph::Op::exp) return true;
    return false;
  };
  const Graph g = graph_of(
      "  input X: f32[3]\n  input Z: f32[3]\n  A = exp(neg(abs(X)))\n  output B = mul(sin(A), Z)\n  output C = add(Z, "
      "1.0)");
  const Graph small = shrink(g, has_exp);
  EXPECT_TRUE(has_exp(small));
  EXPECT_EQ(small.node_count(), 2u) << graph::print(small);
}

}  // namespace
}  // namespace cleave::oracle
