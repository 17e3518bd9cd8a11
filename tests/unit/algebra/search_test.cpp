// What the search finds, and that all of it is right.
#include "algebra/search.hpp"

#include "subgraphs.hpp"

namespace cleave::algebra {
namespace {

using graph::Graph;
using graph::Op;
using test::count;
using test::expect_same;
using test::parsed;

// Small odd extents for every dim of a graph.
std::map<std::string, int64_t> odd(const Graph& g, int64_t shift = 0) {
  std::map<std::string, int64_t> out;
  int64_t n = 3 + shift;
  for (sym::Expr d : g.dims()) out[g.syms().symbol_name(d)] = std::exchange(n, n + (n % 3 ? 2 : 1));
  return out;
}

TEST(Search, EverySubgraphSaturatesWithinTheGateAndAllItsGraphsAreRight) {
  for (const auto& s : test::subgraphs()) {
    const auto r = search(s.graph);
    ASSERT_TRUE(r.ok()) << render(r.errors(), nullptr);
    fmt::print(
        "{:18} values {:5} producers {:6} applications {:6} refused {:4} graphs {:3} screened {:3} saturated {} {:.3f} "
        "s\n",
        s.name, r->values, r->producers, r->applications, r->refused, r->graphs.size(), r->screened_out, r->saturated,
        r->seconds);
    EXPECT_TRUE(r->saturated) << s.name;
    EXPECT_LE(r->values, 5000u) << s.name;
    EXPECT_LE(r->applications, 200000u) << s.name;
    EXPECT_GE(r->graphs.size(), 1u);
    for (const Found& f : r->graphs) {
      EXPECT_TRUE(verify(f.graph).empty());
      expect_same(s.graph, f.graph, odd(s.graph), 1, 1e-7);
      if (testing::Test::HasFailure()) {
        FAIL() << s.name << " " << f.summary;
      }
    }
  }
}

// Layers of a model with residual streams, all widths alike, and one causal mask for all of them.
Graph model(int layers, const std::string& norm = "rms_norm") {
  std::string text = "graph model {\n  dim S in 1..64\n  input X0: f32[S, 8]\n";
  for (int l = 0; l < layers; ++l)
    for (int w = 0; w < 7; ++w)
      text += fmt::format("  const W{}_{}: f32[8, 8] = normal(seed={}, mean=0.0, scale=0.3)\n", w, l, 7 * l + w);
  for (int l = 0; l < layers; ++l) {
    text += fmt::format("  N{0} = {1}(X{0}, axes=[1], eps=1e-6)\n", l, norm);
    for (int w = 0; w < 3; ++w)
      text += fmt::format(
          "  h{1}_{0} = transpose(reshape(contract(\"s c, c n -> s n\", N{0}, W{1}_{0}), shape=[S, 2, "
          "4]), perm=[1, 0, 2])\n",
          l, w);
    text += fmt::format(
        "  A{0} = reshape(transpose(sdpa(h0_{0}, h1_{0}, h2_{0}, causal=\"end\"), perm=[1, 0, 2]), shape=[S, 8])\n"
        "  Y{0} = add(X{0}, contract(\"s c, c n -> s n\", A{0}, W3_{0}))\n"
        "  M{0} = {2}(Y{0}, axes=[1], eps=1e-6)\n"
        "  F{0} = mul(silu(contract(\"s c, c n -> s n\", M{0}, W4_{0})), contract(\"s c, c n -> s n\", M{0}, W5_{0}))\n"
        "  X{1} = add(Y{0}, contract(\"s c, c n -> s n\", F{0}, W6_{0}))\n",
        l, l + 1, norm);
  }
  return parsed(text + fmt::format("  output X{}\n}}", layers));
}

TEST(Search, AModelIsSearchedLayerByLayer) {
  const auto two = search(model(2)), five = search(model(5));
  ASSERT_TRUE(two.ok() && five.ok());
  EXPECT_TRUE(five->saturated);
  EXPECT_EQ(two->regions, 4u);
  EXPECT_EQ(five->regions, 10u);
  EXPECT_EQ(2 * five->values, 5 * two->values);
  EXPECT_EQ(2 * five->applications, 5 * two->applications);
  EXPECT_GT(five->graphs.size(), 4u);
  // Everything is merged in every layer at once: queries, keys and values; gate and up.
  size_t merged = 0;
  for (const Found& f : five->graphs) merged += count(f.graph, Op::concat) == 10 && !f.copies;
  EXPECT_GE(merged, 1u);
  for (size_t k = 0; k < two->graphs.size(); k += 7) expect_same(model(2), two->graphs[k].graph, {{"S", 5}}, 1, 1e-7);
}

// Both sides of the scores are sums then: as one region, a layer has more equal forms than the table holds.
TEST(Search, LayersBehindLayerNormsAreCutAtThem) {
  const auto two = search(model(2, "layer_norm")), four = search(model(4, "layer_norm"));
  ASSERT_TRUE(two.ok() && four.ok());
  EXPECT_TRUE(four->saturated);
  EXPECT_EQ(2 * two->values, four->values);
  EXPECT_LT(two->values, 1200u);
  EXPECT_GT(four->graphs.size(), 4u);
  size_t merged = 0, online = 0;
  for (const Found& f : four->graphs) {
    merged += count(f.graph, Op::concat) == 8 && !f.copies;
    online += count(f.graph, Op::scaled_reduce) >= 4;
  }
  EXPECT_GE(merged, 1u);
  EXPECT_GE(online, 1u);
  for (size_t k = 0; k < two->graphs.size(); k += 7)
    expect_same(model(2, "layer_norm"), two->graphs[k].graph, {{"S", 5}}, 1, 1e-7);
}

TEST(Search, ANumberOfAnIntegerTypeIsAnInteger) {
  for (const char* dtype : {"bool", "i32", "u8"}) {
    const Graph g = parsed(std::string("graph g {\n  input X: f32[5]\n  output Y = mul(X, cast(literal(dtype=") +
                           dtype + ", value=-1.75), dtype=f32))\n}");
    const auto r = search(g);
    ASSERT_TRUE(r.ok());
    for (const Found& f : r->graphs) expect_same(g, f.graph, {});
  }
}

// Counts and positions wrap in narrow types, and are conditions in bool.
TEST(Search, CountsInNarrowTypesAreWhatTheirTypesMakeOfThem) {
  for (const char* dtype : {"bool", "u8", "i8", "i16", "i64"})
    for (const char* extent : {"300", "K"})
      for (const char* value : {"extent(dtype={}, of=[{}])", "iota(shape=[{1}], axis=0, dtype={0})"}) {
        if (std::string(dtype) == "bool" && value[0] == 'i') continue;  // positions are no conditions
        const Graph g =
            parsed(fmt::format("graph g {{\n  dim K in 1..100000\n  input X: f32[{1}]\n  C = cast({0}, dtype=f32)\n"
                               "  output Y = add(mul(X, C), C)\n  output Z = sum(mul(C, 0.5))\n}}",
                               fmt::format(fmt::runtime(value), dtype, extent), extent));
        const auto r = search(g);
        ASSERT_TRUE(r.ok());
        for (const Found& f : r->graphs) expect_same(g, f.graph, {{"K", 300}});
      }
}

TEST(Search, WhatAMaskLeavesOutNeverComesBack) {
  const auto g = parsed(R"(graph g {
  input X: f32[6, 9]
  input V: f32[9, 4]
  input M: bool[6, 9]
  output O = contract("r k, k n -> r n", rms_norm(where(M, X, 0.0), axes=[1]), V)
})");
  const auto r = search(g);
  ASSERT_TRUE(r.ok());
  EXPECT_GT(r->graphs.size(), 1u);
  auto inputs = test::draw(g, 1);
  oracle::Tensor &x = inputs.at("X"), &m = inputs.at("M");
  for (int64_t i = 0; i < m.elements(); ++i) m.set(i, i % 4 != 0);
  const auto want = test::run(g, inputs);
  for (double poison : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    for (int64_t i = 0; i < x.elements(); i += 4) x.set(i, poison);
    for (const Found& f : r->graphs) {
      const auto d = oracle::compare(test::run(f.graph, inputs)[0], want[0], 1e-9, 1e-9);
      EXPECT_TRUE(d.ok()) << f.summary << " " << d.text;
    }
  }
}

}  // namespace
}  // namespace cleave::algebra
