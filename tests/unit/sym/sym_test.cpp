// Symbolic integers: canonical forms, bounds, text round trip, and agreement of simplification with evaluation.
#include <gtest/gtest.h>

#include "base/rng.hpp"
#include "sym/sym.hpp"
#include "sym/text.hpp"

namespace cleave::sym {
namespace {

TEST(Sym, EqualFormsHaveEqualIds) {
  Pool p;
  const Expr a = p.symbol("a", {0, 100}), b = p.symbol("b", {0, 100});
  EXPECT_EQ(p.mul(p.add(a, b), p.add(a, b)), p.add(p.add(p.mul(a, a), p.mul(b, b)), p.mul(p.mul(a, b), 2)));
  EXPECT_EQ(p.sub(p.add(a, b), b), a);
  EXPECT_EQ(p.floordiv(p.add(p.mul(a, 8), 3), p.constant(8)), a);
  EXPECT_EQ(p.mod(p.add(p.mul(a, 8), 3), p.constant(8)), p.constant(3));
  EXPECT_EQ(p.floordiv(p.mul(a, b), b), p.floordiv(p.mul(a, b), b));
}

TEST(Sym, QuestionsAnswerUnknownWhenTheyDoNotKnow) {
  Pool p;
  const Expr a = p.symbol("a", {0, 10}), b = p.symbol("b", {5, 20});
  EXPECT_EQ(p.less(a, p.constant(11)), Proof::yes);
  EXPECT_EQ(p.less(a, b), Proof::unknown);
  EXPECT_EQ(p.less(b, p.constant(5)), Proof::no);
}

TEST(Sym, RandomExpressionsSimplifyToTheirValuesAndPrintReadably) {
  Rng rng(1);
  for (int round = 0; round < 2000; ++round) {
    Pool p;
    std::vector<Expr> pool = {p.symbol("i", {0, 12}), p.symbol("j", {-5, 7}), p.symbol("n", {1, 9}), p.constant(3),
                              p.constant(-2)};
    std::unordered_map<Expr, int64_t> at;
    for (int k = 0; k < 3; ++k) at[pool[k]] = rng.between(p.symbol_range(pool[k]).lo, p.symbol_range(pool[k]).hi);
    std::vector<int64_t> expected = {at[pool[0]], at[pool[1]], at[pool[2]], 3, -2};
    for (int step = 0; step < 8; ++step) {
      const size_t x = rng.below(pool.size()), y = rng.below(pool.size());
      const int64_t a = expected[x], b = expected[y];
      auto fd = [](int64_t u, int64_t v) { return v == 0 ? 0 : u / v - ((u % v != 0) && ((u < 0) != (v < 0))); };
      switch (rng.below(7)) {
        case 0:
          pool.push_back(p.add(pool[x], pool[y]));
          expected.push_back(a + b);
          break;
        case 1:
          pool.push_back(p.sub(pool[x], pool[y]));
          expected.push_back(a - b);
          break;
        case 2:
          if (std::abs(a) > 10000 || std::abs(b) > 10000) continue;
          pool.push_back(p.mul(pool[x], pool[y]));
          expected.push_back(a * b);
          break;
        case 3:
          pool.push_back(p.floordiv(pool[x], pool[y]));
          expected.push_back(fd(a, b));
          break;
        case 4:
          pool.push_back(p.mod(pool[x], pool[y]));
          expected.push_back(b == 0 ? 0 : a - fd(a, b) * b);
          break;
        case 5:
          pool.push_back(p.min(pool[x], pool[y]));
          expected.push_back(std::min(a, b));
          break;
        default:
          pool.push_back(p.max(pool[x], pool[y]));
          expected.push_back(std::max(a, b));
          break;
      }
      const Expr e = pool.back();
      ASSERT_EQ(p.evaluate(e, at), expected.back()) << p.print(e) << " seed round " << round;
      const Interval r = p.bounds(e);
      ASSERT_LE(r.lo, expected.back()) << p.print(e);
      ASSERT_GE(r.hi, expected.back()) << p.print(e);
      const SourceText source{"t", p.print(e)};
      TokenCursor cursor(tokenize(source).value());
      const auto again = parse_expr(cursor, p, [&](const std::string& n) { return p.find_symbol(n); });
      ASSERT_TRUE(again && cursor.at_end()) << p.print(e);
      ASSERT_EQ(p.evaluate(*again, at), expected.back()) << p.print(e);
    }
  }
}

}  // namespace
}  // namespace cleave::sym
