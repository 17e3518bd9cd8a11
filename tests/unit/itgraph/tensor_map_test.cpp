// Tensor maps: where an index stands inside nested loops, judged by walking the loops.
#include <gtest/gtest.h>

#include "itgraph/itgraph.hpp"

namespace cleave::itgraph {
namespace {

struct Fixture {
  Program p{"t", std::make_shared<sym::Pool>(), {}, {}, {}};
  Expr index(const std::string& name, int64_t extent) {
    const Expr e = p.syms->symbol(name, {0, std::max<int64_t>(extent - 1, 0)});
    p.extents[e] = p.syms->constant(extent);
    return e;
  }
};

TEST(TensorMap, AnIndexWithoutLoopsIsWhole) {
  Fixture f;
  const Expr i = f.index("i", 7);
  const TensorMap map(f.p);
  EXPECT_EQ(map.of(i).tile, 0);
  EXPECT_TRUE(f.p.syms->is(map.of(i).offset, 0));
  EXPECT_TRUE(f.p.syms->is(map.size(i), 7));
  EXPECT_EQ(map.most(i), 7);
}

TEST(TensorMap, LoopsOverOtherIndicesDoNotMatter) {
  Fixture f;
  const Expr i = f.index("i", 7), j = f.index("j", 9);
  TensorMap map(f.p);
  map.enter(j, f.p.syms->symbol("cj"), 2);
  EXPECT_EQ(map.of(i).tile, 0);
  EXPECT_EQ(map.most(i), 7);
  EXPECT_EQ(map.most(j), 2);
}

TEST(TensorMap, ATileThatDividesTheExtentIsAlwaysFull) {
  Fixture f;
  const Expr i = f.index("i", 12), c = f.p.syms->symbol("c", {0, 8});
  TensorMap map(f.p);
  map.enter(i, c, 4);
  EXPECT_EQ(map.of(i).offset, c);
  EXPECT_TRUE(f.p.syms->is(map.size(i), 4));
}

TEST(TensorMap, AStepBeyondTheExtentIsTheWholeIndex) {
  Fixture f;
  const Expr i = f.index("i", 5), c = f.p.syms->symbol("c", {0, 0});
  TensorMap map(f.p);
  map.enter(i, c, 8);
  EXPECT_EQ(map.most(i), 5);
  EXPECT_EQ(f.p.syms->evaluate(map.size(i), {{c, 0}}), 5);
}

// Nested tiles of every size cover each element once, each in an interval of the size that the map says.
TEST(TensorMap, NestedTilesComposeByAdditionAndCoverTheIndexOnce) {
  for (int64_t extent : {0, 1, 5, 12, 13, 17})
    for (int64_t outer : {2, 4, 8, 16})
      for (int64_t inner : {1, 2}) {
        Fixture f;
        const Expr i = f.index("i", extent), a = f.p.syms->symbol("a"), b = f.p.syms->symbol("b");
        TensorMap one(f.p);
        one.enter(i, a, outer);
        TensorMap two = one;
        two.enter(i, b, inner);
        EXPECT_EQ(two.of(i).offset, f.p.syms->add(a, b));
        EXPECT_EQ(two.of(i).tile, inner);
        EXPECT_EQ(one.of(i).tile, outer) << "a copy does not change the map it came from";
        std::vector<int> seen(static_cast<size_t>(extent));
        for (int64_t va = 0; va < extent; va += outer) {
          const int64_t size = f.p.syms->evaluate(one.size(i), {{a, va}});
          ASSERT_EQ(size, std::min(outer, extent - va));
          ASSERT_LE(size, one.most(i));
          for (int64_t vb = 0; vb < size; vb += inner) {
            const std::unordered_map<Expr, int64_t> at = {{a, va}, {b, vb}};
            const int64_t first = f.p.syms->evaluate(two.of(i).offset, at), count = f.p.syms->evaluate(two.size(i), at);
            ASSERT_LE(count, two.most(i));
            ASSERT_GE(count, 1);
            for (int64_t e = first; e < first + count; ++e) ++seen.at(static_cast<size_t>(e));
          }
        }
        for (int n : seen) EXPECT_EQ(n, 1) << extent << " " << outer << " " << inner;
      }
}

}  // namespace
}  // namespace cleave::itgraph
