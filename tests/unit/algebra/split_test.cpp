// Reductions that stop half way: a split index, in graphs.
#include "algebra/search.hpp"
#include "subgraphs.hpp"

namespace cleave::algebra {
namespace {

using graph::Graph;
using graph::Op;
using test::parsed;

// The input graph at extents parts * part, against a split graph at parts and part.
void expect_split_same(const Graph& input, const Graph& split, int64_t parts, int64_t part) {
  std::map<std::string, int64_t> dims, split_dims;
  for (sym::Expr d : input.dims()) dims[input.syms().symbol_name(d)] = parts * part;
  int64_t n = 3;
  for (sym::Expr d : split.dims()) {
    const std::string name = split.syms().symbol_name(d);
    if (dims.contains(name))
      dims[name] = split_dims[name] = std::exchange(n, n + 2);
    else
      split_dims[name] = name.ends_with("_parts") ? parts : part;
  }
  const Graph a = test::bound(input, dims), b = test::bound(split, split_dims);
  for (double scale : {1.0, 3.0}) {
    const auto inputs = test::draw(a, 11, scale);
    const auto want = test::run(a, inputs), got = test::run(b, inputs);
    for (size_t i = 0; i < want.size(); ++i) {
      const auto d = oracle::compare(got[i], want[i], 1e-8, 1e-8);
      EXPECT_TRUE(d.ok()) << d.text << print(split);
    }
  }
}

TEST(Split, EveryReducedIndexOfEverySubgraphIsInferredAndSplit) {
  size_t without = 0;  // indices for which screening left no split graph
  for (const SuiteRow& row : test::subgraphs()) {
    const Graph g = graph::expand(row.graph);
    const auto names = splittable_indices(g);
    EXPECT_FALSE(names.empty()) << row.name;
    for (const std::string& name : names) {
      const auto r = search(g, {.split = name});
      ASSERT_TRUE(r.ok()) << render(r.errors(), nullptr);
      fmt::print("{:18} {:3} values {:5} applications {:6} graphs {:3} saturated {} {:.3f} s\n", row.name, name,
                 r->values, r->applications, r->graphs.size(), r->saturated, r->seconds);
      EXPECT_TRUE(r->saturated) << row.name << " " << name;
      EXPECT_LE(r->values, 5000u);
      EXPECT_LE(r->applications, 200000u);
      without += r->graphs.size() < 2;
      for (size_t k = 0; k < r->graphs.size(); ++k) {
        EXPECT_EQ(r->graphs[k].split, k > 0);
        EXPECT_TRUE(verify(r->graphs[k].graph).empty());
        for (auto [parts, part] : {std::pair{3, 2}, {1, 5}, {4, 1}})
          expect_split_same(g, r->graphs[k].graph, parts, part);
        if (testing::Test::HasFailure()) FAIL() << row.name << " " << name << print(r->graphs[k].graph);
      }
    }
  }
  EXPECT_EQ(without, 0u);
}

class SplitAttention : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Policies, SplitAttention,
                         ::testing::Values("", ", empty=\"zero\"", ", causal=\"end\", empty=\"zero\""));

TEST_P(SplitAttention, BecomesPartsWithMaximaThatAreMerged) {
  const Graph g = parsed(fmt::format(R"(graph g {{
  dim S in 1..64
  dim L in 1..4096
  input Q: f32[4, S, 8]
  input K: f32[4, L, 8]
  input V: f32[4, L, 8]
  O, lse = sdpa(Q, K, V, lse=true{})
  output O
  output lse
}})",
                                     GetParam()));
  const auto r = search(g, {.split = "L"});
  ASSERT_TRUE(r.ok()) << render(r.errors(), nullptr);
  size_t decoding = 0;
  for (const Found& f : r->graphs) expect_split_same(g, f.graph, 3, 2);
  for (const Found& f : r->graphs) {
    if (!f.split) continue;
    // One reduction below the maximum of each part, one over the parts whose scores are these maxima.
    size_t inside = 0, merging = 0;
    for (graph::NodeId id : f.graph.node_ids()) {
      const auto& n = f.graph.node(id);
      if (n.op != Op::scaled_reduce) continue;
      const bool merges = f.graph.producer(n.operands[0]).op == Op::scaled_reduce;
      (merges ? merging : inside) += 1;
    }
    decoding += inside == 1 && merging == 1;
  }
  EXPECT_GE(decoding, 1u) << print(r->graphs.back().graph);
}

// Cheaper forms of the variance are refused as they lose digits; the given one with its sums in two steps is not.
TEST(Split, ALayerNormStopsHalfWayAsItIs) {
  const Graph g = graph::expand(parsed(R"(graph g {
  dim S in 1..64
  dim K in 1..4096
  input X: f32[S, K]
  input W: f32[K, 7]
  output Y = contract("s k, k n -> s n", layer_norm(X, axes=[1]), W)
})"));
  const auto r = search(g, {.split = "K"});
  ASSERT_TRUE(r.ok());
  ASSERT_GE(r->graphs.size(), 2u);
  for (const Found& f : r->graphs) expect_split_same(g, f.graph, 3, 5);
}

TEST(Split, AnExtentThatIsANumberIsAProductToo) {
  const Graph g = parsed(
      "graph g {\n  input X: f32[5, 12]\n  input W: f32[12, 7]\n  output Y = contract(\"s k, k n -> s n\", X, W)\n}");
  const auto r = search(g, {.split = "k"});
  ASSERT_TRUE(r.ok());
  ASSERT_GE(r->graphs.size(), 2u);
  EXPECT_THAT(print(r->graphs[1].graph), ::testing::HasSubstr("input X: f32[5, k_parts*k_part]"));
  expect_split_same(g, r->graphs[1].graph, 4, 3);
}

// Both axes are called x: what one split is called and ranges over does not stay for the next.
// The sum of exponentials of parts is one too: where it is NaN, below an infinite maximum, its logarithm is left out.
TEST(Split, ALogarithmOfASumIsSplitAndKeepsAnInfinity) {
  for (const char* output : {"logsumexp(X, axes=[1])", "sigmoid(sub(logsumexp(X, axes=[1]), 1.0))"}) {
    const Graph g = parsed(fmt::format("graph g {{\n dim K in 1..64\n input X: f32[3, K]\n output L = {}\n}}", output));
    const Graph whole = test::bound(g, {{"K", 12}});
    const auto found = search(g, {.split = "K"});
    ASSERT_TRUE(found.ok());
    size_t split = 0;
    for (const Found& f : found->graphs) {
      if (!f.split) continue;
      ++split;
      std::map<std::string, int64_t> extents;
      for (sym::Expr d : f.graph.dims()) {
        const std::string name = f.graph.syms().symbol_name(d);
        extents[name] = name.ends_with("_parts") ? 3 : 4;
      }
      const Graph bound = test::bound(f.graph, extents);
      auto inputs = test::draw(bound, 3, 1);
      inputs.at("X").set(5, std::numeric_limits<double>::infinity());
      for (int64_t i = 12; i < 24; ++i) inputs.at("X").set(i, -std::numeric_limits<double>::infinity());
      const auto want = test::run(whole, inputs), got = test::run(bound, inputs);
      const auto d = oracle::compare(got[0], want[0], 1e-9, 0);
      EXPECT_TRUE(d.ok()) << output << d.text << print(f.graph);
    }
    EXPECT_GE(split, 1u) << output;
  }
}

TEST(Split, SplitsOfOneGraphKnowNothingOfEachOther) {
  const Graph g = parsed(
      "graph g {\n  input A: f32[2]\n  input B: f32[6]\n  output X = sum(exp(A), axes=[0])\n"
      "  output Y = sum(exp(B), axes=[0])\n}");
  auto texts = [](const SearchResult& r) {
    std::string out;
    for (const Found& f : r.graphs) out += print(f.graph);
    return out;
  };
  const auto names = splittable_indices(g);
  ASSERT_EQ(names.size(), 2u);
  const auto first = search(g, {.split = names[0]}), second = search(g, {.split = names[1]}),
             again = search(g, {.split = names[0]});
  ASSERT_TRUE(first.ok() && second.ok() && again.ok());
  EXPECT_EQ(texts(*first), texts(*again));
  EXPECT_THAT(texts(*first), ::testing::HasSubstr("_part in 1..2\n"));
  EXPECT_THAT(texts(*second), ::testing::HasSubstr("_part in 1..6\n"));
}

// An axis of 24 is read as 4 by 6 and as 3 by 8, which have no common refinement: the second stays a view of 24.
TEST(Split, APartOfAnAxisThatAViewNeedsWholeIsRefusedWithTheReason) {
  const Graph g = parsed(
      "graph g {\n  input X: f32[24]\n  input W: f32[5]\n  A = reshape(X, shape=[4, 6])\n"
      "  output Y = sum(exp(A), axes=[0])\n  output Z = reshape(X, shape=[3, 8])\n"
      "  output V = sum(exp(W), axes=[0])\n}");
  const auto refused = search(g, {.split = "4"});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(render(refused.errors(), nullptr),
              ::testing::HasSubstr("a `reshape`, which is not taken apart, has an axis of its extent"));
  const auto names = splittable_indices(g);
  ASSERT_EQ(names.size(), 1u);
  const auto r = search(g, {.split = names[0]});
  ASSERT_TRUE(r.ok());
}

TEST(Split, AnIndexThatNothingReducesOrABarrierSeesIsRefusedWithTheReason) {
  const Graph g = parsed(
      "graph g {\n  dim S in 1..64\n  dim K in 1..64\n  input X: f32[S, K]\n  C = cumsum(X, axis=1)\n  output Y = "
      "sum(exp(C), axes=[1])\n}");
  for (const auto& [name, why] : {std::pair("S", "error[CLV4105]: no index `S` can be split: no index is reduced"),
                                  {"K", "a `cumsum`, which is not taken apart, has an axis of its extent"}}) {
    const auto r = search(g, {.split = name});
    ASSERT_FALSE(r.ok());
    EXPECT_THAT(render(r.errors(), nullptr), ::testing::HasSubstr(why));
  }
  const Graph h = parsed("graph h {\n  dim K in 1..64\n  input X: f32[3, K]\n  output Y = sum(X, axes=[1])\n}");
  const Graph none = parsed("graph none {\n  input X: f32[3, 0]\n  output Y = sum(X, axes=[1])\n}");
  EXPECT_TRUE(splittable_indices(none).empty());
  EXPECT_THAT(render(search(none, {.split = "0"}).errors(), nullptr), ::testing::HasSubstr("it has no elements"));
  EXPECT_THAT(render(search(h, {.split = "Z"}).errors(), nullptr),
              ::testing::HasSubstr("the indices that are reduced are `k`"));
}

}  // namespace
}  // namespace cleave::algebra
