// Symbolic integers: canonical forms, bounds, text round trip, and agreement of simplification with evaluation.
#include <gtest/gtest.h>

#include <functional>

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

// Cuts of an axis and what they leave.
TEST(Sym, PartsOfAnExtentAddUpToIt) {
  Pool p;
  const Expr n = p.symbol("n", {0, 1 << 30}), k = p.symbol("k", {2, 64}), zero = p.constant(0);
  const auto part = [&](Expr from, Expr to) { return p.max(zero, p.sub(p.min(to, n), p.min(from, n))); };
  for (const Expr cut :
       {p.floordiv(n, p.constant(2)), p.floordiv(n, p.constant(3)), p.ceildiv(n, p.constant(4)), p.floordiv(n, k),
        p.floordiv(p.mul(n, 2), p.constant(3)), p.min(n, p.constant(7)), p.mod(n, p.constant(5)), p.mod(n, k),
        p.mul(p.floordiv(n, k), k), p.mul(p.floordiv(n, p.constant(16)), 16), p.min(k, n), p.max(zero, p.sub(n, k))}) {
    EXPECT_EQ(p.min(n, cut), cut) << p.print(p.min(n, cut));
    EXPECT_EQ(part(zero, cut), cut) << p.print(part(zero, cut));
    EXPECT_EQ(part(cut, n), p.sub(n, cut)) << p.print(part(cut, n));
    EXPECT_EQ(p.add(part(cut, n), part(zero, cut)), n);
    EXPECT_GE(p.bounds(part(cut, n)).lo, 0);
    EXPECT_GE(p.bounds(p.floordiv(p.add(part(cut, n), 1), p.constant(2))).lo, 0);
  }
  // Three chunks, of which the last ones may be short or empty.
  const Expr c = p.ceildiv(n, p.constant(3));
  EXPECT_EQ(p.add(p.add(part(zero, c), part(c, p.mul(c, 2))), part(p.mul(c, 2), n)), n);
  // What may be negative stays.
  EXPECT_EQ(p.kind(p.max(zero, p.sub(n, k))), Kind::max);
  EXPECT_EQ(p.kind(p.max(zero, p.add(p.floordiv(n, p.constant(2)), -1))), Kind::max);
  EXPECT_EQ(p.less(p.floordiv(n, k), p.add(n, 1)), Proof::yes);
  EXPECT_EQ(p.at_most(p.add(n, 1), p.floordiv(n, k)), Proof::no);
}

// Random expressions beside the functions that they stand for, for all values of their symbols.
TEST(Sym, SimplifiedFormsAndProofsHoldForAllValues) {
  struct Both {
    Expr e;
    std::function<int64_t(int64_t, int64_t, int64_t)> raw;
  };
  const auto fd = [](int64_t u, int64_t v) { return v == 0 ? 0 : u / v - ((u % v != 0) && ((u < 0) != (v < 0))); };
  Rng rng(7);
  int proofs = 0;
  for (int round = 0; round < 1500; ++round) {
    Pool p;
    const Interval i{0, rng.between(3, 9)}, j{rng.between(-3, 0), rng.between(1, 4)},
        n{rng.between(1, 3), rng.between(4, 9)};
    std::vector<Both> all = {{p.symbol("i", i), [](auto x, auto, auto) { return x; }},
                             {p.symbol("j", j), [](auto, auto y, auto) { return y; }},
                             {p.symbol("n", n), [](auto, auto, auto z) { return z; }}};
    for (int64_t c : {0, 1, 2, 3, -1}) all.push_back({p.constant(c), [c](auto, auto, auto) { return c; }});
    const auto compare = [&](auto check) {
      for (int64_t x = i.lo; x <= i.hi; ++x)
        for (int64_t y = j.lo; y <= j.hi; ++y)
          for (int64_t z = n.lo; z <= n.hi; ++z)
            if (!check(x, y, z)) return false;
      return true;
    };
    const auto value = [&](Expr e, int64_t x, int64_t y, int64_t z) {
      return p.evaluate(e, {{all[0].e, x}, {all[1].e, y}, {all[2].e, z}});
    };
    for (int step = 0; step < 6; ++step) {
      const Both a = all[rng.below(all.size())], b = all[rng.below(all.size())];
      const auto made = [&](Expr e, auto f) {
        all.push_back({e, [f, u = a.raw, v = b.raw](auto x, auto y, auto z) { return f(u(x, y, z), v(x, y, z)); }});
      };
      switch (rng.below(8)) {
        case 0: made(p.add(a.e, b.e), [](auto u, auto v) { return u + v; }); break;
        case 1: made(p.sub(a.e, b.e), [](auto u, auto v) { return u - v; }); break;
        case 2: made(p.mul(a.e, b.e), [](auto u, auto v) { return u * v; }); break;
        case 3:
        case 4: made(p.floordiv(a.e, b.e), fd); break;
        case 5: made(p.mod(a.e, b.e), [fd](auto u, auto v) { return v == 0 ? 0 : u - fd(u, v) * v; }); break;
        case 6: made(p.min(a.e, b.e), [](auto u, auto v) { return std::min(u, v); }); break;
        case 7: made(p.max(a.e, b.e), [](auto u, auto v) { return std::max(u, v); }); break;
      }
      const Both& last = all.back();
      ASSERT_TRUE(compare([&](int64_t x, int64_t y, int64_t z) { return value(last.e, x, y, z) == last.raw(x, y, z); }))
          << p.print(last.e) << " of " << p.print(a.e) << " and " << p.print(b.e);
    }
    for (const Both& a : all) {
      const Interval range = p.bounds(a.e);
      ASSERT_TRUE(compare([&](int64_t x, int64_t y, int64_t z) {
        const int64_t v = a.raw(x, y, z);
        return range.lo <= v && v <= range.hi;
      })) << p.print(a.e);
    }
    for (int k = 0; k < 4; ++k) {
      const Both &a = all[rng.below(all.size())], &b = all[rng.below(all.size())];
      const Proof known = p.at_most(a.e, b.e);
      if (known == Proof::unknown) continue;
      ++proofs;
      ASSERT_TRUE(compare([&](int64_t x, int64_t y, int64_t z) {
        return (a.raw(x, y, z) <= b.raw(x, y, z)) == (known == Proof::yes);
      })) << p.print(a.e)
          << " <= " << p.print(b.e);
    }
  }
  EXPECT_GT(proofs, 1000);
}

TEST(Sym, ProductsOfWhatIsLeftOfExtentsAreNatural) {
  Pool p;
  const Expr m = p.symbol("m", {1, kHuge}), n = p.symbol("n", {2, 100}), o = p.symbol("o", {0, 100});
  EXPECT_EQ(p.bounds(p.mul(p.add(m, -1), p.add(n, -1))).lo, 0);
  EXPECT_EQ(p.bounds(p.mul(p.mul(p.add(m, -1), p.add(n, -2)), o)).lo, 0);
  EXPECT_EQ(p.bounds(p.mul(p.add(n, -2), p.add(n, -2))).lo, 0);
  EXPECT_LT(p.bounds(p.mul(p.add(m, -1), p.add(o, -1))).lo, 0);
  EXPECT_LT(p.bounds(p.mul(p.add(m, -2), p.add(n, -1))).lo, 0);
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
