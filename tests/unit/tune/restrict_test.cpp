#include "tune/restrict.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "eval/graph_eval.hpp"
#include "graph/expand.hpp"
#include "support/random_graph.hpp"
#include "tune/reference.hpp"

namespace cleave::tune {
namespace {

using graph::Graph;
using graph::ValueId;

tune::Array array_of(const oracle::Tensor& t) {
  Array a = make_array("x", t.dtype, t.extents);
  oracle::to_memory(t, oracle::dense_strides(t.extents), a.data.data());
  return a;
}

// Every element of the box as the whole graph computes it.
void expect_box(const Graph& g, const std::vector<oracle::Tensor>& inputs, size_t output, const Box& box) {
  const auto whole = oracle::evaluate(g, inputs);
  ASSERT_TRUE(whole.ok()) << render(whole.errors(), nullptr);
  const Restricted r = restrict_to(g, output, box);
  const auto leaves = oracle::given_leaves(g);
  std::vector<oracle::Tensor> arguments;
  for (size_t i = 0; i < r.of.size(); ++i) {
    const graph::Node& n = g.producer(r.of[i]);
    if (n.op == graph::Op::constant) {
      Array a = make_array("c", g.type(r.of[i]).dtype, g.extents(r.of[i]));
      const auto bytes = graph::materialise(n.attributes.get<graph::ConstantData>("data"), a.dtype, a.elements());
      std::copy(bytes.begin(), bytes.end(), a.data.as<std::byte>());
      arguments.push_back(crop(a, r.boxes[i]));
      continue;
    }
    const auto index = static_cast<size_t>(std::find(leaves.begin(), leaves.end(), r.of[i]) - leaves.begin());
    const oracle::Tensor& t = inputs[index];
    arguments.push_back(n.op == graph::Op::scalar ? t : crop(array_of(t), r.boxes[i]));
  }
  const auto part = oracle::evaluate(r.graph, arguments);
  ASSERT_TRUE(part.ok()) << render(part.errors(), nullptr) << graph::print(r.graph);
  const oracle::Tensor& w = (*whole)[output];
  // The whole result is not rounded to its storage type, so elements are compared as they are.
  const std::vector<int64_t> strides = oracle::dense_strides(w.extents);
  const oracle::Tensor& p = (*part)[0];
  std::vector<int64_t> at = box.lo;
  for (int64_t i = 0; i < p.elements(); ++i) {
    int64_t rest = i, offset = 0;
    for (size_t a = box.lo.size(); a-- > 0;) {
      const int64_t e = box.hi[a] - box.lo[a];
      offset += (box.lo[a] + rest % e) * strides[a];
      rest /= e;
    }
    const double expected = w.at(offset), got = p.at(i);
    if (expected == got || (std::isnan(expected) && std::isnan(got))) continue;
    ASSERT_NEAR(got, expected, 1e-9 * std::max(1.0, std::fabs(expected))) << "element " << i << "\n"
                                                                          << graph::print(g) << graph::print(r.graph);
  }
}

Box random_box(testing::Choices& c, const std::vector<int64_t>& extents) {
  Box b;
  for (int64_t e : extents) {
    const int64_t lo = e > 0 ? c.between(0, e - 1) : 0;
    b.lo.push_back(lo);
    b.hi.push_back(e > 0 ? c.between(lo + 1, e) : 0);
  }
  return b;
}

TEST(Restrict, ComputesAnyBoxOfAnyGraph) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    testing::Choices c(seed);
    const Graph g = graph::expand_to_primitives(testing::random_graph(c, {.max_elements = 512}));
    const auto inputs = testing::tensors_of(testing::random_inputs(g, seed, testing::Magnitude::unit));
    for (size_t o = 0; o < g.outputs().size(); ++o) {
      SCOPED_TRACE(seed);
      expect_box(g, inputs, o, random_box(c, g.extents(g.outputs()[o].value)));
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(Restrict, NeedsOneHeadForOneRowOfAttention) {
  const SourceText text{"a", R"(graph a {
    input Q: f32[4, 32, 8]
    input K: f32[4, 16, 8]
    P = softmax(contract("b s d, b l d -> b s l", Q, K), axis=-1)
    output O = contract("b s l, b l d -> b s d", P, K)
  })"};
  const Graph g = graph::expand_to_primitives(graph::parse(text).value());
  const Restricted r = restrict_to(g, 0, {{2, 30, 0}, {3, 31, 8}});
  ASSERT_EQ(r.boxes.size(), 2u);
  EXPECT_EQ(r.boxes[0], (Box{{2, 30, 0}, {3, 31, 8}}));
  EXPECT_EQ(r.boxes[1], (Box{{2, 0, 0}, {3, 16, 8}}));
  EXPECT_LT(evaluation_steps(r.graph) * 80, evaluation_steps(g));
}

}  // namespace
}  // namespace cleave::tune
