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

// What a reshape merges or splits stays a box, and what is gathered is as much as the positions say.
TEST(Restrict, FollowsReshapesAndPositions) {
  const SourceText text{"a", R"(graph a {
    input X: f32[5, 6, 4, 8]
    input at: i32[9]
    M = reshape(X, shape=[30, 32])
    G = gather(M, at, axis=0)
    output Y = reshape(G, shape=[9, 2, 16])
  })"};
  const Graph g = graph::expand_to_primitives(graph::parse(text).value());
  const Positions positions = [](ValueId, const Box& box) {
    EXPECT_EQ(box, (Box{{3}, {5}}));
    return std::optional(std::pair<int64_t, int64_t>{13, 16});  // of the third of five
  };
  const Restricted r = restrict_to(g, 0, {{3, 1, 0}, {5, 2, 16}}, positions);
  ASSERT_EQ(r.boxes.size(), 2u);
  EXPECT_EQ(r.boxes[0], (Box{{2, 1, 2, 0}, {3, 5, 4, 8}}));
  EXPECT_EQ(r.boxes[1], (Box{{3}, {5}}));
  // Without positions all rows are needed.
  EXPECT_EQ(restrict_to(g, 0, {{3, 1, 0}, {5, 2, 16}}).boxes[0], (Box{{0, 0, 2, 0}, {5, 6, 4, 8}}));
}

// One row of a batch of requests costs one request, and comes out as in the whole.
TEST(Restrict, OneRowOfABatchNeedsItsRequest) {
  const SourceText text{"a", R"(graph a {
    dim S in 0..64
    input q: f32[24, 4, 8]
    input k: f32[40, 4, 8]
    input rows: i32[6]
    input keys: i32[6]
    Q = ragged(q, rows, max=[12])
    K = ragged(k, keys, max=[16])
    P = softmax(contract("b s h d, b l h d -> b h s l", Q, K), axis=-1)
    O = contract("b h s l, b l h d -> b s h d", P, K)
    output Y = ragged_pack(O, rows, rows=[24])
  })"};
  const Graph bound = *graph::bind(graph::parse(text).value(), {{"S", 1}});
  auto data = random_data(bound, 3);
  ASSERT_TRUE(data.ok()) << render(data.errors(), nullptr);
  const Problem problem{graph::expand(bound), std::move(data->inputs), std::move(data->scalars),
                        std::move(data->constants)};
  const auto whole = make_reference(problem, {}),
             part = make_reference(problem, {.complete_steps = 1, .max_steps = 2e5});
  ASSERT_TRUE(whole.ok() && part.ok());
  EXPECT_TRUE(whole->complete);
  EXPECT_FALSE(part->complete);
  EXPECT_GT(part->pieces.size(), 3u);  // 2e5 steps pay for several rows
  const oracle::Tensor& all = whole->pieces[0].expected.value;
  for (const Piece& p : part->pieces) {
    const std::vector<int64_t> strides = oracle::dense_strides(all.extents);
    const oracle::Tensor& t = p.expected.value;
    int64_t i = 0;
    for (int64_t a = p.box.lo[0]; a < p.box.hi[0]; ++a)
      for (int64_t b = p.box.lo[1]; b < p.box.hi[1]; ++b)
        for (int64_t c = p.box.lo[2]; c < p.box.hi[2]; ++c, ++i)
          EXPECT_NEAR(t.at(i), all.at(a * strides[0] + b * strides[1] + c), 1e-12);
  }
}

}  // namespace
}  // namespace cleave::tune
