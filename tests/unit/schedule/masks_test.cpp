// Masks bound loops: what is executed is counted on the tile programs, and the results stay those of the graph.
#include <gtest/gtest.h>

#include "base/match.hpp"
#include "support.hpp"

namespace cleave::schedule {
namespace {

using namespace test;

// Score elements that a program computes: those of products that sum over the head's width, which is `depth` long and
// no other product's depth is.
struct Executed {
  const tile::Program& p;
  int64_t depth;
  std::unordered_map<sym::Expr, int64_t> at = {};
  int64_t scores = 0;                                         // elements of products
  int64_t compared = 0;                                       // points of nests that compare index values
  std::map<std::string, std::vector<int64_t>> integers = {};  // of inputs that statements read

  int64_t value(sym::Expr e) const { return p.syms->evaluate(e, at); }
  void statements(const std::vector<tile::Statement>& body) {
    for (const tile::Statement& s : body)
      match(
          s.what,
          [&](const tile::For& f) {
            const int64_t hi = value(f.hi);
            for (int64_t i = value(f.lo); i < hi; i += f.step) {
              at[f.symbol] = i;
              statements(f.body);
            }
          },
          [&](const tile::Nest& n) {
            bool compares = false;
            for (const tile::Node& x : n.nodes) compares = compares || std::holds_alternative<tile::IndexValue>(x.what);
            int64_t points = 1;
            for (const tile::Axis& a : n.axes) points *= std::max<int64_t>(0, value(a.extent));
            if (compares) compared += points;
          },
          [&](const tile::Matmul& m) {
            if (value(m.k) == depth) scores += std::max<int64_t>(0, value(m.m)) * std::max<int64_t>(0, value(m.n));
          },
          [&](const tile::Let& l) {
            const int64_t held = integers.at(p.buffer(l.buffer).name).at(static_cast<size_t>(value(l.at[0])));
            at[l.symbol] = std::max(value(l.lo), std::min(value(l.hi), held));
            statements(l.body);
          });
  }
};

Executed executed(const tile::Program& p, int64_t depth) {
  Executed e{p, depth};
  for (const tile::Kernel& k : p.kernels) e.statements(k.body);
  return e;
}

// Attention of one head in the stabilised form with a mask over s and l.
std::string attention(int64_t s, int64_t l, const std::string& mask) {
  return fmt::format(R"(
graph masked {{
  input Q: f32[2, {0}, 8]
  input K: f32[2, {1}, 8]
  input V: f32[2, {1}, 16]
  i = iota(shape=[{0}, 1], axis=0, dtype=i64)
  j = iota(shape=[1, {1}], axis=1, dtype=i64)
  S = mul(contract("b s d, b l d -> b s l", Q, K), 0.35)
  {2}
  m, u, v = scaled_reduce("b s l -> b s | -> b s | b l e -> b s e", T, V)
  output O = quot0(v, unsqueeze(u, axes=[2]))
  output lse = add(m, log(u))
}})",
                     s, l, mask);
}

const char* kCausal = "T = where(le(j, i), S, -inf)";

std::vector<Candidate> fused(const std::string& text, const Options& options) {
  auto all = candidates(parsed(text), options);
  EXPECT_TRUE(all.ok()) << (all.ok() ? "" : render(all.errors(), nullptr));
  std::vector<Candidate> out;
  for (Candidate& c : *all)
    if (c.summary.starts_with("fused")) out.push_back(std::move(c));
  EXPECT_FALSE(out.empty());
  return out;
}

TEST(Masks, CausalAttentionExecutesHardlyMoreThanItUses) {
  Options options = test_options();
  options.keep = 200;
  const int64_t useful = 2 * (int64_t{1024} * 1025 / 2);
  const auto all = fused(attention(1024, 1024, kCausal), options);
  const Executed best = executed(all.front().program, 8);
  EXPECT_GE(best.scores, useful);
  EXPECT_LE(static_cast<double>(best.scores), 1.1 * static_cast<double>(useful)) << tile::print(all.front().program);
  for (const Candidate& c : all) {
    const Executed e = executed(c.program, 8);
    EXPECT_GE(e.scores, useful);
    // A tile has 64 rows at most; the comparison runs twice, for the maximum and for the weights, near the diagonal.
    EXPECT_LE(e.scores, useful + 2 * 1024 * 64) << c.summary;
    EXPECT_LE(e.compared, 2 * 2 * 1024 * 2 * 64) << c.summary << tile::print(c.program);
    EXPECT_GT(e.compared, 0);
  }
}

TEST(Masks, MasksOfAllKindsBoundTheirLoops) {
  struct Case {
    const char* name;
    std::string mask;
    std::function<bool(int64_t, int64_t)> keeps;
  };
  const int64_t s = 512, l = 768;
  const Case cases[] = {
      {"causal from the start", kCausal, [](int64_t i, int64_t j) { return j <= i; }},
      {"causal to the end", "T = where(le(j, add(i, 256)), S, -inf)",
       [](int64_t i, int64_t j) { return j <= i + 256; }},
      {"window", "T = where(logical_and(le(j, i), gt(j, sub(i, 100))), S, -inf)",
       [](int64_t i, int64_t j) { return j <= i && j > i - 100; }},
      {"window, masked out", "T = where(logical_or(gt(j, i), le(j, sub(i, 100))), -inf, S)",
       [](int64_t i, int64_t j) { return j <= i && j > i - 100; }},
      {"block diagonal", "T = where(eq(floordiv(i, 64), floordiv(j, 64)), S, -inf)",
       [](int64_t i, int64_t j) { return i / 64 == j / 64; }},
      {"padding", "T = where(lt(j, 300), S, -inf)", [](int64_t, int64_t j) { return j < 300; }},
      {"added", "T = add(S, where(le(j, i), 0.0, -inf))", [](int64_t i, int64_t j) { return j <= i; }},
      {"causal within blocks", "T = where(logical_and(ge(i, j), eq(floordiv(i, 128), floordiv(j, 128))), S, -inf)",
       [](int64_t i, int64_t j) { return j <= i && i / 128 == j / 128; }},
  };
  for (const Case& c : cases) {
    int64_t useful = 0;
    for (int64_t i = 0; i < s; ++i)
      for (int64_t j = 0; j < l; ++j) useful += c.keeps(i, j);
    const Options options = test_options();
    for (const Candidate& a : fused(attention(s, l, c.mask), options)) {
      const int64_t got = executed(a.program, 8).scores;
      EXPECT_GE(got, 2 * useful) << c.name;
      EXPECT_LE(got, 2 * (useful + s * (64 + 256))) << c.name << " " << a.summary << tile::print(a.program);
      EXPECT_LT(got, 2 * s * l) << c.name << " " << a.summary;
    }
  }
}

TEST(Masks, ResultsAreThoseOfTheGraph) {
  const char* masks[] = {
      kCausal,
      "T = where(le(j, add(i, 30)), S, -inf)",
      "T = where(le(add(j, 50), i), S, -inf)",  // rows without keys
      "T = where(logical_and(le(j, i), gt(j, sub(i, 10))), S, -inf)",
      "T = where(logical_or(gt(j, i), le(j, sub(i, 10))), -inf, S)",
      "T = where(eq(floordiv(i, 16), floordiv(j, 16)), S, -inf)",
      "T = where(ne(floordiv(i, 16), floordiv(j, 16)), S, -inf)",
      "T = where(lt(j, 41), S, -inf)",
      "T = where(lt(cast(j, dtype=f32), 41.0), S, -inf)",
      "T = where(lt(floordiv(add(j, 3), 5), floordiv(i, 7)), S, -inf)",
      "T = where(le(mul(j, 3), i), S, -inf)",
      "T = where(le(j, mul(i, 2)), S, -inf)",
      "T = where(logical_or(le(j, i), lt(j, 5)), S, -inf)",  // neither alone bounds
      "T = where(le(mod(j, 7), i), S, -inf)",
      "T = where(le(j, min(i, 60)), S, -inf)",
      "T = where(le(j, i), S, -1.0e9)",  // a finite fill is data
      "T = add(S, where(le(j, i), 0.0, -inf))",
      "T = max(where(le(j, i), S, -inf), -3.0)",  // the mask does not reach the score
  };
  uint64_t seed = 0;
  for (const char* mask : masks)
    for (const auto& [s, l] : {std::pair<int64_t, int64_t>{70, 91}, {1, 67}, {33, 1}, {5, 0}}) {
      const graph::Graph g = parsed(attention(s, l, mask));
      EXPECT_EQ(judged(g, seed++, testing::Magnitude::unit, 2), "") << mask << " " << s << " " << l;
    }
}

TEST(Masks, LargerTilesAndTheirPartsKeepTheMeaning) {
  for (const char* mask : {kCausal, "T = where(logical_and(le(j, i), gt(j, sub(i, 90))), S, -inf)",
                           "T = where(le(j, add(i, 37)), S, -inf)"})
    for (int64_t tile : {16, 48}) {
      Options options = test_options();
      options.tile = tile;
      options.keep = 2;
      EXPECT_EQ(judged(parsed(attention(100, 170, mask)), 2, testing::Magnitude::unit, options), "") << mask << tile;
    }
}

TEST(Masks, FiniteFillsAreOrdinaryData) {
  const Options options = test_options();
  for (const Candidate& c : fused(attention(256, 512, "T = where(le(j, i), S, -1.0e9)"), options))
    EXPECT_EQ(executed(c.program, 8).scores, 2 * 256 * 512) << c.summary;
}

TEST(Masks, NarrowWindowsHaveSmallTilesAmongTheCandidates) {
  Options options = test_options();
  options.keep = 1000;
  const std::string window = "T = where(logical_and(le(j, i), gt(j, sub(i, 128))), S, -inf)";
  bool small = false;
  for (const Candidate& c : fused(attention(512, 512, window), options))
    small = small || c.summary.find("rows 16, columns 256, reduce 16,") != std::string::npos;
  EXPECT_TRUE(small);
}

TEST(Masks, AnUnmaskedPartEvaluatesNoComparison) {
  const auto all = fused(attention(1024, 1024, kCausal), test_options());
  // Two loops over the keys, and comparisons in the second one only.
  const std::string text = tile::print(all.front().program);
  const size_t first = text.find("for l_"), second = text.find("for l_", first + 1);
  ASSERT_NE(second, std::string::npos) << text;
  EXPECT_EQ(text.find("index(", first) < second, false) << text;
  EXPECT_NE(text.find("index(", second), std::string::npos) << text;
}

// Requests of different lengths in one padded batch: keys beyond a request's length are not visited, whatever the
// longest.
TEST(Masks, LengthsInMemoryBoundLoops) {
  const graph::Graph g = parsed(R"(
graph lengths {
  dim L in 0..4096
  input Q: f32[3, 16, 8]
  input K: f32[3, L, 8]
  input V: f32[3, L, 16]
  input len: i32[3]
  j = iota(shape=[1, 1, L], axis=2, dtype=i64)
  S = contract("b s d, b l d -> b s l", Q, K)
  T = where(lt(j, reshape(cast(len, dtype=i64), shape=[3, 1, 1])), S, -inf)
  m, u, v = scaled_reduce("b s l -> b s | -> b s | b l e -> b s e", T, V)
  output O = quot0(v, unsqueeze(u, axes=[2]))
})");
  g.syms().set_typical(g.dims()[0], 2048);
  auto all = candidates(g, test_options());
  ASSERT_TRUE(all.ok()) << render(all.errors(), nullptr);
  const Candidate& c = all->front();
  Executed e{c.program, 8};
  e.integers["len"] = {5, 1000, 0};
  e.at[c.program.dims[0]] = 4096;
  for (const tile::Kernel& k : c.program.kernels) e.statements(k.body);
  EXPECT_GE(e.scores, 16 * 1005);
  EXPECT_LE(e.scores, 16 * (1005 + 2 * 64)) << tile::print(c.program);
}

}  // namespace
}  // namespace cleave::schedule
