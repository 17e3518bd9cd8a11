// The interpreter of itGraphs: what loops, reductions, scaled groups and library kernels mean, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.hpp"
#include "eval/itgraph_eval.hpp"

namespace cleave::oracle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kInf = HUGE_VAL;

itgraph::Program parsed(const std::string& text) {
  const SourceText source{"test.itgraph", text};
  auto p = itgraph::parse(source);
  EXPECT_TRUE(p.ok()) << (p.ok() ? "" : render(p.errors(), &source));
  return std::move(p).value();
}

std::vector<Tensor> outputs(const std::string& text, const ItGraphArguments& a, const EvalOptions& options = {}) {
  auto r = run(parsed(text), a, options);
  EXPECT_TRUE(r.ok()) << (r.ok() ? "" : render(r.errors(), nullptr));
  return std::move(r).value();
}
std::string refusal(const std::string& text, const ItGraphArguments& a, const EvalOptions& options = {}) {
  const auto r = run(parsed(text), a, options);
  return r.ok() ? "" : render(r.errors(), nullptr);
}

Tensor numbers(std::vector<int64_t> extents, std::vector<double> values) {
  return tensor(DType::f32, std::move(extents), std::move(values));
}
Tensor whole(std::vector<int64_t> extents, std::vector<double> values) {
  return tensor(DType::i64, std::move(extents), std::move(values));
}
Tensor random(std::vector<int64_t> extents, uint64_t seed) {
  Rng rng(seed);
  Tensor t = zeros(DType::f32, std::move(extents));
  for (double& v : t.reals) v = rng.normal();
  return t;
}

TEST(ItgraphEval, ReductionsDoNotDependOnTheTiling) {
  const Tensor x = random({5, 7}, 1);
  std::vector<double> expected(5);
  for (size_t i = 0; i < 35; ++i) expected[i / 7] += x.reals[i];
  for (const char* loops :
       {"reduce () {", "reduce (j: 1) {", "reduce (j: 3) {", "reduce (j: 7) {", "reduce (j: 100) {",
        "map (i: 2) { reduce (j: 4) { reduce (j: 2) {", "reduce (j: 4) { map (i: 3) { reduce (j: 1) {",
        "reduce (j: 4, i: 2) {", "reduce (j: 3) { map (k: 2) {"}) {
    const std::string text = loops;
    std::string close;
    for (char c : text)
      if (c == '{') close += "}";
    const auto out = outputs(
        "itgraph t { index i: 5, j: 7, k: 6 input X: f32[5, 7] argument 0 output Y: f32[5] argument 0\n"
        "kernel a parallel () {" +
            text + " Y[i] = sum (j) X[i, j]" + close + "} }",
        {{x}, {}, {}});
    for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(out[0].reals[i], expected[i], 1e-12) << loops;
  }
}

TEST(ItgraphEval, EachReductionStartsFromItsIdentity) {
  const auto out =
      outputs(R"(itgraph t { index i: 2, j: 3
    input X: i32[2, 3] argument 0  input B: bool[2, 3] argument 1
    output a: i32[2] argument 0  output b: i32[2] argument 1  output c: i32[2] argument 2  output d: i32[2] argument 3
    output e: bool[2] argument 4  output f: bool[2] argument 5  output g: i32[2] argument 6
    kernel k parallel (i: 1) { reduce (j: 2) {
      a[i], g[i] = sum (j) X[i, j]; neg(X[i, j])
      b[i] = prod (j) X[i, j]
      c[i] = amax (j) X[i, j]
      d[i] = amin (j) X[i, j]
      e[i] = all (j) B[i, j]
      f[i] = any (j) B[i, j]
    } } })",
              {{tensor(DType::i32, {2, 3}, {-1, -2, -3, 4, 5, 6}), tensor(DType::boolean, {2, 3}, {0, 0, 0, 1, 1, 1})},
               {},
               {}});
  EXPECT_THAT(out[0].ints, ElementsAre(-6, 15));
  EXPECT_THAT(out[1].ints, ElementsAre(-6, 120));
  EXPECT_THAT(out[2].ints, ElementsAre(-1, 6));
  EXPECT_THAT(out[3].ints, ElementsAre(-3, 4));
  EXPECT_THAT(out[4].ints, ElementsAre(0, 1));
  EXPECT_THAT(out[5].ints, ElementsAre(0, 1));
  EXPECT_THAT(out[6].ints, ElementsAre(6, -15));
}

TEST(ItgraphEval, AnEmptyReductionGivesTheIdentity) {
  const auto out = outputs(R"(itgraph t { index i: 2, j: 0
    input X: f32[2, 0] argument 0
    output s: f32[2] argument 0  output m: f32[2] argument 1  output u: f32[2] argument 2
    kernel k parallel (i: 1) { reduce (j: 2) { s[i] = sum (j) X[i, j]  m[i], u[i] = scaled (j) X[i, j]; 1.0:f32 } } })",
                           {{numbers({2, 0}, {})}, {}, {}});
  EXPECT_THAT(out[0].reals, ElementsAre(0, 0));
  EXPECT_THAT(out[1].reals, ElementsAre(-kInf, -kInf));
  EXPECT_THAT(out[2].reals, ElementsAre(0, 0));
}

constexpr const char* kScaled = R"(itgraph t { index i: 3, j: 5, e: 2
  input X: f32[3, 5] argument 0  input V: f32[5, 2] argument 1
  output m: f32[3] argument 0  output u: f32[3] argument 1  output v: f32[3, 2] argument 2
  kernel k parallel (i: 2) { LOOPS m[i], u[i], v[i, e] = scaled (j) X[i, j]; 1.0:f32; V[j, e] } } } })";

TEST(ItgraphEval, ScaledGroupsKeepLargeScoresFiniteAndMaskedRowsEmpty) {
  const Tensor x =
      numbers({3, 5}, {-500, 900, 800, -kInf, 899, -kInf, -kInf, -kInf, -kInf, -kInf, -kInf, -kInf, 1, 2, -3});
  const Tensor v = numbers({5, 2}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  // The loop over e belongs to one of three results only.
  for (const char* loops : {"reduce (j: 1) { map () {", "reduce (j: 2) { map (e: 1) {", "map (e: 1) { reduce (j: 3) {",
                            "map () { reduce (j: 5) {"}) {
    std::string text = kScaled;
    text.replace(text.find("LOOPS"), 5, loops);
    const auto out = outputs(text, {{x, v}, {}, {}});
    EXPECT_THAT(out[0].reals, ElementsAre(900, -kInf, 2)) << loops;
    const double a = std::exp(-1), b = std::exp(-100), c = std::exp(-5);
    const double u[] = {1 + a + b, 0, 1 + a + c};
    const double w[] = {3 + 9 * a + 5 * b, 4 + 10 * a + 6 * b, 0, 0, 7 + 5 * a + 9 * c, 8 + 6 * a + 10 * c};
    for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(out[1].reals[i], u[i], 1e-12) << loops;
    for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(out[2].reals[i], w[i], 1e-11) << loops;
  }
}

TEST(ItgraphEval, ANanScoreReachesTheWholeGroup) {
  std::string text = kScaled;
  text.replace(text.find("LOOPS"), 5, "map () { reduce (j: 2) {");
  Tensor x = random({3, 5}, 3);
  x.reals[6] = std::nan("");
  const auto out = outputs(text, {{x, random({5, 2}, 4)}, {}, {}});
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(std::isnan(out[0].reals[i]), i == 1);
    EXPECT_EQ(std::isnan(out[1].reals[i]), i == 1);
    EXPECT_EQ(std::isnan(out[2].reals[2 * i]), i == 1);
  }
}

TEST(ItgraphEval, RoundsToComputeAndStorageTypesWhenAsked) {
  const std::string text = R"(itgraph t { index i: 1, j: 3
    input X: f16[3] argument 0  inner h: f16[3]  output y: f32[1] argument 0  output z: f16[3] argument 1
    kernel k parallel () { h[j] = add(cast(X[j], f32), 0.0001:f32)  z[j] = h[j]  y[i] = sum (j) mul(h[j], 16777217.0:f32) } })";
  const Tensor x = tensor(DType::f16, {3}, {1, 1, 1});
  const auto exact = outputs(text, {{x}, {}, {}});
  EXPECT_NEAR(exact[1].reals[0], 1.0001, 1e-7);
  EvalOptions rounded;
  rounded.round_to_storage = true;
  const auto stored = outputs(text, {{x}, {}, {}}, rounded);
  EXPECT_EQ(stored[1].reals[0], 1.0);             // 1.0001 is no f16
  EXPECT_EQ(stored[0].reals[0], 3 * 16777216.0);  // literals are f32 in both
  EXPECT_EQ(round_to(DType::f32, stored[0].reals[0]), stored[0].reals[0]);
}

TEST(ItgraphEval, ScansAndSelectionsGoAlongOneAxis) {
  const auto out = outputs(R"(itgraph t {
    input X: f32[2, 4] argument 0
    output a: f32[2, 4] argument 0  output b: f32[2, 4] argument 1  output c: f32[2, 4] argument 2
    output p: i64[2] argument 3  output q: i32[2, 1] argument 4
    output top: f32[2, 2] argument 5  output at: i64[2, 2] argument 6
    output low: f32[2, 2] argument 7  output low_at: i64[2, 2] argument 8
    kernel k1 library cumsum X -> a axis 1
    kernel k2 library cumsum X -> b axis 1 exclusive reverse
    kernel k3 library cummax X -> c axis 0
    kernel k4 library argmax X -> p axis 1
    kernel k5 library argmin X -> q axis 1
    kernel k6 library topk X -> top, at axis 1
    kernel k7 library topk X -> low, low_at axis 1 smallest })",
                           {{numbers({2, 4}, {3, 1, 3, 1, 5, std::nan(""), 7, std::nan("")})}, {}, {}});
  auto row = [](const Tensor& t) { return std::vector<double>(t.reals.begin(), t.reals.begin() + 4); };
  EXPECT_THAT(row(out[0]), ElementsAre(3, 4, 7, 8));
  EXPECT_THAT(row(out[1]), ElementsAre(5, 4, 1, 0));
  EXPECT_EQ(out[2].reals[4], 5);
  EXPECT_TRUE(std::isnan(out[2].reals[5]));
  EXPECT_THAT(out[3].ints, ElementsAre(0, 1));  // the first of equal ones; a NaN wins
  EXPECT_THAT(out[4].ints, ElementsAre(1, 1));
  EXPECT_THAT(out[6].ints, ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(out[8].ints, ElementsAre(1, 3, 0, 2));
}

TEST(ItgraphEval, GathersAndGuardsReadOnlyWhatTheyMay) {
  const std::string text = R"(itgraph t { index i: 4
    input X: f32[3] argument 0  input at: i64[4] argument 1  output y: f32[4] argument 0
    kernel k parallel (i: 3) { y[i] = X[@at[i]] if (GUARD) } })";
  auto with = [&](const char* guard) {
    std::string t = text;
    return t.replace(t.find("GUARD"), 5, guard);
  };
  const ItGraphArguments a{{numbers({3}, {10, 20, 30}), whole({4}, {2, 3, 0, -1})}, {}, {}};
  EXPECT_THAT(outputs(with("logical_and(ge(at[i], 0:i64), lt(at[i], 3:i64))"), a)[0].reals, ElementsAre(30, 0, 10, 0));
  EXPECT_THAT(refusal(with("ge(at[i], 0:i64)"), a), HasSubstr("`X`: index 3 of axis 0 leaves 0..3"));
  const ItGraphArguments far{{numbers({3}, {10, 20, 30}), whole({4}, {2, 9e18, 0, -9e18})}, {}, {}};
  EXPECT_THAT(refusal(with("ge(at[i], 0:i64)"), far), HasSubstr("of axis 0 leaves 0..3"));
}

TEST(ItgraphEval, AliasesAreTheSameElements) {
  const auto out = outputs(R"(itgraph t { index i: 2, j: 3, f: 6
    input X: f32[2, 3] argument 0  inner flat: f32[6] alias X  inner w: f32[6]  inner w2: f32[3, 2] alias w
    output y: f32[3, 2] argument 0
    kernel a parallel (f: 4) { w[f] = mul(flat[f], 2.0:f32) }
    kernel b parallel () { map (j: 2) { y[j, i] = w2[j, i] } } })",
                           {{numbers({2, 3}, {1, 2, 3, 4, 5, 6})}, {}, {}});
  EXPECT_THAT(out[0].reals, ElementsAre(2, 4, 6, 8, 10, 12));
}

// One program, a read moved to where the value does not exist.
TEST(ItgraphEval, RefusesReadsOfWhatAnotherTileComputed) {
  const ItGraphArguments a{{numbers({4}, {1, 2, 3, 4})}, {}, {}};
  const std::string before =
      "itgraph t { index i: 4, j: 4 input X: f32[4] argument 0 inner t: f32[4] inner n: i64[4] output y: f32[4] "
      "argument 0 ";
  const std::string reads = "y[i] = t[3 - i] ";
  // Whole before it is read, in another kernel or in an earlier loop: fine.
  EXPECT_EQ(refusal(before + "kernel a parallel (i: 2) { t[i] = X[i] } kernel b parallel (i: 2) { " + reads + "} }", a),
            "");
  EXPECT_EQ(refusal(before + "kernel a parallel () { map (i: 2) { t[i] = X[i] } map (i: 2) { " + reads + "} } }", a),
            "");
  // Another task's tile, an earlier iteration's tile, a later one's.
  EXPECT_THAT(refusal(before + "kernel a parallel (i: 2) { t[i] = X[i] " + reads + "} }", a),
              HasSubstr("but never computed"));
  EXPECT_THAT(refusal(before + "kernel a parallel (i: 2) { t[i] = X[i] y[i] = t[0] } }", a),
              HasSubstr("outside the iteration that computed it"));
  EXPECT_THAT(refusal(before + "kernel a parallel () { map (i: 2) { t[i] = X[i] y[i] = t[0] } } }", a),
              HasSubstr("outside the iteration that computed it"));
  EXPECT_EQ(refusal(before + "kernel a parallel () { map (i: 2) { t[j] = X[j] y[i] = t[0] } } }", a), "");
  // Integers have no NaN.
  EXPECT_THAT(refusal(before + "kernel a parallel (i: 2) { n[i] = index(i) y[i] = cast(n[3 - i], f32) } }", a),
              HasSubstr("`n`: its element 3 is read but never computed"));
}

TEST(ItgraphEval, RefusesArgumentsThatDoNotFit) {
  const std::string text =
      "itgraph t { index i: 2 input X: f32[2] argument 0 output y: f32[2] argument 0 kernel k parallel () { y[i] = "
      "X[i] } }";
  EXPECT_THAT(refusal(text, {}), HasSubstr("`X` is not given"));
  EXPECT_THAT(refusal(text, {{numbers({3}, {1, 2, 3})}, {}, {}}), HasSubstr("`X` should be f32[2]"));
  EXPECT_THAT(refusal(text, {{whole({2}, {1, 2})}, {}, {}}), HasSubstr("`X` should be f32[2]"));
}

TEST(ItgraphEval, EndsWhenThereIsTooMuchToDo) {
  const std::string big =
      "itgraph t { index i: 1000000000, j: 1000000000 output y: f32[1000000000, 1000000000] argument 0 kernel k "
      "parallel () { y[i, j] = 0.0:f32 } }";
  EXPECT_THAT(refusal(big, {}), HasSubstr("more than the limit"));
  EvalOptions few;
  few.max_steps = 1000;
  const std::string loops =
      "itgraph t { index i: 1000000000 output y: f32[] argument 0 kernel k parallel (i: 1) { } kernel l parallel () { "
      "y[] = 0.0:f32 } }";
  EXPECT_THAT(refusal(loops, {}, few), HasSubstr("steps of evaluation"));
}

}  // namespace
}  // namespace cleave::oracle
