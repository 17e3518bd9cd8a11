// Error bounds: wide enough for honest f32 code in another order, narrow enough to catch a wrong element, and silent
// where a jump hides the answer.
#include "eval/bounds.hpp"

#include "support/graph_text.hpp"

namespace cleave::oracle {
namespace {

using namespace cleave::testing;

std::vector<Bounded> bounded(const std::string& body, const std::vector<Tensor>& inputs) {
  auto r = evaluate_with_bounds(graph_of(body), inputs);
  if (!r.ok()) ADD_FAILURE() << render(r.errors(), nullptr);
  return std::move(r).value();
}

// Attention by blocks of keys with a running maximum, all in float, exponents in base 2, division at the end.
Tensor online_attention(const Tensor& q, const Tensor& k, const Tensor& v, int64_t n, int64_t d, int64_t block) {
  Tensor out = zeros(DType::f32, {n, d});
  const float scale = 1.44269504f / std::sqrt(static_cast<float>(d));
  for (int64_t i = 0; i < n; ++i) {
    std::vector<float> sums(static_cast<size_t>(d), 0.0f);
    float top = -std::numeric_limits<float>::infinity(), total = 0;
    for (int64_t first = 0; first < n; first += block) {
      std::vector<float> s;
      float high = top;
      for (int64_t j = first; j < std::min(n, first + block); ++j) {
        float x = 0;
        for (int64_t c = d; c-- > 0;)
          x += static_cast<float>(q.reals[static_cast<size_t>(i * d + c)]) *
               static_cast<float>(k.reals[static_cast<size_t>(j * d + c)]);
        s.push_back(x * scale);
        high = std::max(high, s.back());
      }
      const float shrink = std::exp2(top - high);
      total *= shrink;
      for (float& x : sums) x *= shrink;
      for (size_t j = 0; j < s.size(); ++j) {
        const float p = std::exp2(s[j] - high);
        total += p;
        for (int64_t c = 0; c < d; ++c)
          sums[static_cast<size_t>(c)] +=
              p * static_cast<float>(v.reals[static_cast<size_t>((first + static_cast<int64_t>(j)) * d + c)]);
      }
      top = high;
    }
    for (int64_t c = 0; c < d; ++c)
      out.reals[static_cast<size_t>(i * d + c)] = static_cast<double>(sums[static_cast<size_t>(c)] * (1 / total));
  }
  return out;
}

TEST(Bounds, AcceptOnlineAttentionInFloatAndRejectAPercent) {
  const int64_t n = 96, d = 16;
  for (const double magnitude : {1e-2, 1.0, 6.0}) {
    const Tensor q = normal(DType::f32, {n, d}, 1, magnitude), k = normal(DType::f32, {n, d}, 2, magnitude),
                 v = normal(DType::f32, {n, d}, 3);
    const auto expected =
        bounded("  input Q: f32[96, 16]\n  input K: f32[96, 16]\n  input V: f32[96, 16]\n  output O = sdpa(Q, K, V)",
                {q, k, v});
    for (const int64_t block : {1, 16, 96}) {
      const Difference d1 = compare(online_attention(q, k, v, n, d, block), expected[0]);
      EXPECT_TRUE(d1.ok()) << d1.text;
    }
    Tensor wrong = expected[0].value;
    for (double& x : wrong.reals) x *= 1.01;
    int64_t typical = 0;
    for (double b : expected[0].bound) typical += b < 1e-3;
    EXPECT_GT(typical, n * d * 9 / 10) << "bounds of attention are far too wide at magnitude " << magnitude;
    EXPECT_GT(compare(wrong, expected[0]).mismatches, n * d * 9 / 10);
  }
}

TEST(Bounds, AcceptSumsInAnyOrder) {
  const int64_t n = 5000;
  const Tensor x = normal(DType::f32, {n}, 9, 100);
  const auto expected = bounded(
      "  input X: f32[5000]\n  output S = sum(X)\n  output M = mean(X)\n  output P = contract(\"i, i ->\", X, X)\n  A, "
      "V = moments(X)\n  output V",
      {x});
  float forward = 0, squares = 0;
  float lanes[8] = {};
  for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
    const auto v = static_cast<float>(x.reals[i]);
    forward += v;
    squares += v * v;
    lanes[i % 8] += v;
  }
  float tree = 0;
  for (float l : lanes) tree += l;
  // Welford, one element at a time.
  float mean = 0, m2 = 0;
  for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
    const auto v = static_cast<float>(x.reals[i]);
    const float delta = v - mean;
    mean += delta / static_cast<float>(i + 1);
    m2 += delta * (v - mean);
  }
  for (const float s : {forward, tree}) EXPECT_LE(std::fabs(s - expected[0].value.reals[0]), expected[0].bound[0]);
  EXPECT_LE(std::fabs(forward / n - expected[1].value.reals[0]), expected[1].bound[0]);
  EXPECT_LE(std::fabs(mean - expected[1].value.reals[0]), expected[1].bound[0]);
  EXPECT_LE(std::fabs(squares - expected[2].value.reals[0]), expected[2].bound[0]);
  EXPECT_LE(std::fabs(m2 / n - expected[3].value.reals[0]), expected[3].bound[0]);
  EXPECT_LT(expected[2].bound[0], 1e-3 * expected[2].value.reals[0]);
}

TEST(Bounds, LikelyBoundsOfLongContractionsSeeAPercent) {
  const Tensor a = normal(DType::f32, {4, 4096}, 1), b = normal(DType::f32, {4096, 8}, 2);
  const auto g =
      graph_of("  input A: f32[4, 4096]\n  input B: f32[4096, 8]\n  output C = contract(\"i k, k j -> i j\", A, B)");
  const auto worst = evaluate_with_bounds(g, std::vector{a, b}),
             likely = evaluate_with_bounds(g, std::vector{a, b}, {.likely = true});
  Tensor got = zeros(DType::f32, {4, 8}), wrong = (*likely)[0].value;
  for (size_t i = 0; i < 4; ++i)
    for (size_t j = 0; j < 8; ++j) {
      float s = 0;
      for (size_t k = 0; k < 4096; ++k)
        s += static_cast<float>(a.reals[i * 4096 + k]) * static_cast<float>(b.reals[k * 8 + j]);
      got.reals[i * 8 + j] = static_cast<double>(s);
    }
  for (double& v : wrong.reals) v *= 1.01;
  EXPECT_TRUE(compare(got, (*worst)[0]).ok());
  EXPECT_TRUE(compare(got, (*likely)[0]).ok());
  EXPECT_LT((*likely)[0].bound[0] * 7, (*worst)[0].bound[0]);
  EXPECT_GT(compare(wrong, (*likely)[0]).mismatches, 24);
}

// What a one-pass variance loses is outside the bound: it must be found wrong.
TEST(Bounds, RejectAVarianceByTheDifferenceOfSquares) {
  const Tensor x = real({4}, {80000, 80001, 80002, 80003});
  const auto expected =
      bounded("  input X: f32[4]\n  M, V = moments(X)\n  output V\n  output Y = layer_norm(X, axes=[0])", {x});
  float s = 0, s2 = 0;
  for (double v : x.reals) {
    s += static_cast<float>(v);
    s2 += static_cast<float>(v) * static_cast<float>(v);
  }
  const float bad = s2 / 4 - (s / 4) * (s / 4);
  EXPECT_GT(std::fabs(bad - 1.25), expected[0].bound[0]);
  for (double b : expected[1].bound) EXPECT_LT(b, 0.1);
}

TEST(Bounds, ExactThingsStayExact) {
  const auto out = bounded(R"(
    input X: f32[3]
    i = iota(shape=[3], axis=0, dtype=f32)
    output A = add(X, 1.0)
    output B = where(lt(i, 2.0), X, -inf)
    output C = floor(div(i, 2.0))
    output D = floordiv(i, 3.0)
    output E = argmax(mul(X, 2.0), axis=0)
    output F = max(neg(X), 0.0)
    output G = cast(mul(i, 3.0), dtype=i32))",
                           {real({3}, {0.5, 0.25, 8})});
  for (const Bounded& b : out)
    for (double e : b.bound) EXPECT_EQ(e, 0);
}

TEST(Bounds, DoublesAreRoundedToo) {
  const auto out = bounded(R"(
    input X: f64[3]
    input Y: f64[3]
    output A = sub(X, add(Y, 1.0))
    output B = mul(X, Y)
    output C = add(floor(X), 1.0))",
                           {{DType::f64, {3}, {3000.1, 0.1, 7.3}, {}}, {DType::f64, {3}, {2999.7, 0.3, 1e-3}, {}}});
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_GE(out[0].bound[i], 0x1p-53 * std::fabs(out[0].value.at(static_cast<int64_t>(i)))) << i;
    EXPECT_GT(out[1].bound[i], 0) << i;
    EXPECT_EQ(out[2].bound[i], 0) << i;
  }
}

TEST(Bounds, JumpsWithinReachAreUnknown) {
  // x / 3 * 3 - x is 0 or a few ulp either way.
  const auto out = bounded(R"(
    input X: f32[2]
    t = sub(mul(div(X, 3.0), 3.0), X)
    output A = floor(t)
    output B = gt(t, 0.0)
    output C = where(eq(t, 0.0), 1.0, 2.0)
    D = cast(add(t, 5.0), dtype=i32)
    output D
    output E = argmax(t, axis=0)
    V, I = topk(t, k=2, axis=0)
    output I
    output F = gather(X, D, axis=0)
    output G = floor(add(t, 0.5))
    output H = logical_and(gt(t, 0.0), gt(X, 100.0))
    output J = div(1.0, t)
    output K = any(gt(concat(t, X, axis=0), 0.0)))",
                           {real({2}, {5, 7})});
  for (size_t i = 0; i < 7; ++i)
    for (double e : out[i].bound) EXPECT_EQ(e, kInf) << i;
  for (double e : out[7].bound) EXPECT_EQ(e, 0);  // 0.5 is far from a jump
  for (double e : out[8].bound) EXPECT_EQ(e, 0);  // false and anything
  for (double e : out[9].bound) EXPECT_EQ(e, kInf);
  EXPECT_EQ(out[10].bound[0], 0);  // one certain element settles it
}

TEST(Bounds, FloorOfAnInexactQuotientIsUnknownOnlyNearWholeNumbers) {
  const auto out = bounded("  input A: f32[3]\n  input B: f32[3]\n  output D = floordiv(A, B)\n  output M = mod(A, B)",
                           {real({3}, {1, 6, 7}), real({3}, {static_cast<double>(0.1f), 3, 2})});
  EXPECT_EQ(out[0].bound[0], kInf);  // 1 / f32(0.1) is a hair under 10
  EXPECT_EQ(out[0].bound[1], 0);
  EXPECT_EQ(out[0].bound[2], 0);
  EXPECT_EQ(out[1].bound[0], kInf);
}

TEST(Bounds, InfinitiesAndNanAreKnownUnlessTheirCauseIsNot) {
  const auto out = bounded(R"(
    input X: f32[3]
    input Y: f32[3]
    output A = exp(X)
    output B = contract("i, i ->", X, Y)
    output C = amax(X)
    output D = mul(exp(mul(Y, 100.0)), 0.5)
    output E = contract("i, j -> i j", X, sub(div(Y, 3.0), div(Y, 3.0))))",
                           {real({3}, {-kInf, 0, kNan}), real({3}, {1, 2, 3})});
  EXPECT_EQ(out[0].bound[0], 0);
  EXPECT_EQ(out[0].value.reals[0], 0);
  EXPECT_EQ(out[0].bound[2], 0);
  EXPECT_EQ(out[1].bound[0], 0);
  EXPECT_TRUE(std::isnan(out[1].value.reals[0]));
  EXPECT_EQ(out[2].bound[0], 0);
  for (double e : out[3].bound) EXPECT_EQ(e, kInf);  // e^100 is beyond f32
  EXPECT_EQ(out[4].bound[0], kInf);                  // -inf times something near 0
  EXPECT_EQ(out[4].bound[6], 0);                     // NaN times anything
}

TEST(Bounds, SixteenBitResultsMayBeStoredOrKept) {
  const Tensor x = normal(DType::f16, {16}, 3);
  const auto out = bounded(
      "  input X: f16[16]\n  output Y = mul(mul(X, X), X)\n  output Z = cast(cast(mul(X, 1.1), dtype=f16), dtype=f32)",
      {x});
  for (size_t i = 0; i < 16; ++i) {
    const double v = x.reals[i], kept = round_to(DType::f16, v * v * v),
                 stored = round_to(DType::f16, round_to(DType::f16, v * v) * v);
    EXPECT_LE(std::fabs(kept - out[0].value.reals[i]), out[0].bound[i]);
    EXPECT_LE(std::fabs(stored - out[0].value.reals[i]), out[0].bound[i]);
    EXPECT_LT(out[0].bound[i], 4e-3 * std::fabs(out[0].value.reals[i]) + 1e-6);
  }
}

TEST(Bounds, SixteenBitNormsMayBeRoundedAfterTheContractionThatReadsThem) {
  const int64_t m = 4, k = 64, n = 8;
  const Tensor x = normal(DType::bf16, {m, k}, 5), w = normal(DType::bf16, {k, n}, 6);
  const auto out = bounded(
      "  input X: bf16[4, 64]\n  input W: bf16[64, 8]\n"
      "  output O = contract(\"r k, k n -> r n\", rms_norm(X, axes=[1]), W)",
      {x, w});
  for (int64_t r = 0; r < m; ++r)
    for (int64_t c = 0; c < n; ++c) {
      double squares = 0, sum = 0;
      for (int64_t i = 0; i < k; ++i) {
        const double v = x.at(r * k + i);
        squares += v * v;
        sum += v * w.at(i * n + c);
      }
      const double last = round_to(DType::bf16, sum / std::sqrt(squares / static_cast<double>(k) + 1e-5));
      const auto at = static_cast<size_t>(r * n + c);
      EXPECT_LE(std::fabs(last - out[0].value.reals[at]), out[0].bound[at]);
      EXPECT_LT(out[0].bound[at], 0.5);
    }
}

TEST(Bounds, WrittenRoundingsOfFloatProgramsAreSeen) {
  const auto out =
      bounded("  input X: f32[1]\n  output Y = mul(cast(cast(X, dtype=bf16), dtype=f32), 3.0)", {real({1}, {1.001})});
  EXPECT_EQ(out[0].value.reals[0], 3.0);
  EXPECT_LT(out[0].bound[0], 1e-5);
}

TEST(Bounds, FlushedDenormalsAreAllowed) {
  const auto out =
      bounded("  input X: f32[2]\n  output Y = mul(X, 1e-38)\n  output Z = add(X, 0.0)", {real({2}, {0.001, 1e-40})});
  EXPECT_GE(out[0].bound[0], 1e-41);
  EXPECT_GE(out[1].bound[1], 1e-40 * 0.999);
}

}  // namespace
}  // namespace cleave::oracle
