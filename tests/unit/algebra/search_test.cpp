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

}  // namespace
}  // namespace cleave::algebra
