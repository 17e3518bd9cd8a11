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
