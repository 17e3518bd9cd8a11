// Fault kinds that compilers of this sort have shown, at the level of the graph's meaning: what the interpreter says is
// what every compiled form is held to.
#include "support/graph_text.hpp"

namespace cleave::oracle {
namespace {

using namespace cleave::testing;

TEST(FaultKinds, BR01FullyMaskedRowsAreZeroWithMinusInfinityAsLogSumExp) {
  const auto out = run(R"(
    input Q: f32[34, 8]
    input K: f32[1, 8]
    input V: f32[1, 8]
    O, lse = sdpa(Q, K, V, causal="end", lse=true, empty="zero")
    output O
    output lse)",
                       {normal(DType::f32, {34, 8}, 1), normal(DType::f32, {1, 8}, 2), normal(DType::f32, {1, 8}, 3)});
  const Tensor q = normal(DType::f32, {34, 8}, 1), k = normal(DType::f32, {1, 8}, 2), v = normal(DType::f32, {1, 8}, 3);
  double score = 0;
  for (size_t d = 0; d < 8; ++d) score += q.reals[33 * 8 + d] * k.reals[d] / std::sqrt(8.0);
  for (size_t i = 0; i < 34; ++i) {
    for (size_t d = 0; d < 8; ++d) EXPECT_EQ(out[0].reals[i * 8 + d], i < 33 ? 0.0 : v.reals[d]);
    if (i < 33)
      EXPECT_EQ(out[1].reals[i], -kInf);
    else
      EXPECT_NEAR(out[1].reals[i], score, 1e-7);  // the scale is an f32 literal
  }
}

TEST(FaultKinds, BR01UnderTheNanPolicyMaskedRowsAreNanAndTheirLseIsStillMinusInfinity) {
  const auto out = run("  input S: f32[2, 3]\n  output P = softmax(S, axis=-1)\n  output L = logsumexp(S, axes=[1])",
                       {real({2, 3}, {-kInf, -kInf, -kInf, 0, 0, -kInf})});
  EXPECT_TENSOR_NEAR(out[0], real({2, 3}, {kNan, kNan, kNan, 0.5, 0.5, 0}), 1e-15, 0);
  EXPECT_TENSOR_NEAR(out[1], real({2}, {-kInf, std::log(2.0)}), 1e-15, 0);
}

// A band of the last ten keys: the first key tiles of late rows are wholly masked while the rows are not.
TEST(FaultKinds, BR09BandedMasksOverLongSequencesAreFinite) {
  const int64_t n = 600;
  const Tensor q = normal(DType::f32, {n, 4}, 1), k = normal(DType::f32, {n, 4}, 2), v = normal(DType::f32, {n, 4}, 3);
  const auto out = run(R"(
    input Q: f32[600, 4]
    input K: f32[600, 4]
    input V: f32[600, 4]
    i = iota(shape=[600, 1], axis=0, dtype=i64)
    j = iota(shape=[1, 600], axis=1, dtype=i64)
    band = logical_and(le(j, i), gt(j, sub(i, 10)))
    output O = sdpa(Q, K, V, band))",
                       {q, k, v});
  for (int64_t row : {int64_t{0}, int64_t{5}, int64_t{64}, int64_t{599}}) {
    double sum = 0, first = 0;
    for (int64_t c = std::max<int64_t>(0, row - 9); c <= row; ++c) {
      double s = 0;
      for (int64_t d = 0; d < 4; ++d)
        s += q.reals[static_cast<size_t>(row * 4 + d)] * k.reals[static_cast<size_t>(c * 4 + d)] / 2;
      sum += std::exp(s);
      first += std::exp(s) * v.reals[static_cast<size_t>(c * 4)];
    }
    EXPECT_NEAR(out[0].reals[static_cast<size_t>(row * 4)], first / sum, 1e-12);
  }
  for (double x : out[0].reals) EXPECT_TRUE(std::isfinite(x));
}

TEST(FaultKinds, BR11RowsOfTheMostNegativeFiniteNumberAreNeverNan) {
  for (const bool round : {false, true}) {
    const auto out = run("  input S: f32[1, 3]\n  input M: f32[1, 3]\n  output P = softmax(add(S, M), axis=-1)",
                         {real({1, 3}, {1, 2, 3}), real({1, 3}, {-3.4e38, -3.4e38, -3.4e38})}, round);
    double sum = 0;
    for (double p : out[0].reals) {
      EXPECT_TRUE(std::isfinite(p));
      sum += p;
    }
    EXPECT_NEAR(sum, 1, 1e-6);
  }
}

TEST(FaultKinds, BR13NarrowLogSoftmaxIsExact) {
  const auto wide = run("  input X: f32[4, 3]\n  output Y = log_softmax(X, axis=1)", {normal(DType::f32, {4, 3}, 5)});
  for (size_t r = 0; r < 4; ++r) {
    double sum = 0;
    for (size_t c = 0; c < 3; ++c) sum += std::exp(wide[0].reals[r * 3 + c]);
    EXPECT_NEAR(sum, 1, 1e-12);
  }
  const auto one = run("  input X: f32[4, 1]\n  output Y = log_softmax(X, axis=1)", {normal(DType::f32, {4, 1}, 5)});
  for (double v : one[0].reals) EXPECT_EQ(v, 0);
}

TEST(FaultKinds, BR14ReductionsOverNothing) {
  const auto out = run(R"(
    input A: f32[4, 0]
    input B: f32[0, 4]
    output C = contract("i k, k j -> i j", A, B)
    output S = sum(A, axes=[1])
    output M = amax(A, axes=[1])
    output N = mean(A, axes=[1])
    output P = prod(A, axes=[1])
    output X = logsumexp(A, axes=[1])
    output Y = softmax(A, axis=1))",
                       {zeros(DType::f32, {4, 0}), zeros(DType::f32, {0, 4})});
  EXPECT_TENSOR_EQ(out[0], zeros(DType::f32, {4, 4}));
  EXPECT_TENSOR_EQ(out[1], zeros(DType::f32, {4}));
  EXPECT_TENSOR_EQ(out[2], real({4}, {-kInf, -kInf, -kInf, -kInf}));
  EXPECT_TENSOR_EQ(out[3], real({4}, {kNan, kNan, kNan, kNan}));
  EXPECT_TENSOR_EQ(out[4], real({4}, {1, 1, 1, 1}));
  EXPECT_TENSOR_EQ(out[5], real({4}, {-kInf, -kInf, -kInf, -kInf}));
  EXPECT_TENSOR_EQ(out[6], zeros(DType::f32, {4, 0}));
}

TEST(FaultKinds, BR16AnEmptyAxisThatIsNotReduced) {
  const auto out = run("  input X: f32[3, 4, 0, 5]\n  output Y = sum(X, axes=[1])", {zeros(DType::f32, {3, 4, 0, 5})});
  EXPECT_EQ(out[0].extents, (std::vector<int64_t>{3, 0, 5}));
}

TEST(FaultKinds, BR18ReductionsOfAScalar) {
  for (const char* axes : {"[]", "[0]", "[-1]"}) {
    const auto out =
        run(fmt::format("  input X: f32\n  output Y = sum(X, axes={0})\n  output Z = amax(X, axes={0}, keepdims=true)",
                        axes),
            {scalar_tensor(DType::f32, 2.5)});
    EXPECT_TENSOR_EQ(out[0], scalar_tensor(DType::f32, 2.5));
    EXPECT_TENSOR_EQ(out[1], scalar_tensor(DType::f32, 2.5));
  }
}

TEST(FaultKinds, BR31ArgminOfATransposeIsTheLogicalIndex) {
  const auto out = run(R"(
    input X: f32[3, 5]
    t = add(transpose(X, perm=[1, 0]), 0.5)
    output A = argmin(t, axis=1)
    output F = argmin(reshape(t, shape=[15]), axis=0))",
                       {real({3, 5}, {9, 1, 9, 9, 0, 9, 0, 1, 9, 9, 0, 9, 9, 1, 9})});
  EXPECT_TENSOR_EQ(out[0], integers({5}, {2, 1, 1, 2, 0}));
  EXPECT_TENSOR_EQ(out[1], integers({}, {2}));  // the first of three zeros in the order of the transpose
}

TEST(FaultKinds, BR39DivisionAndRemainderOfNegativeIndicesRoundDown) {
  const auto out = run(R"(
    i = sub(iota(shape=[8], axis=0, dtype=i64), 3)
    output D = floordiv(i, 4)
    output M = mod(i, 4)
    output R = floordiv(cast(i, dtype=f32), 4.0)
    output S = mod(cast(i, dtype=f32), 4.0))",
                       {});
  EXPECT_TENSOR_EQ(out[0], integers({8}, {-1, -1, -1, 0, 0, 0, 0, 1}));
  EXPECT_TENSOR_EQ(out[1], integers({8}, {1, 2, 3, 0, 1, 2, 3, 0}));
  EXPECT_TENSOR_EQ(out[2], real({8}, {-1, -1, -1, 0, 0, 0, 0, 1}));
  EXPECT_TENSOR_EQ(out[3], real({8}, {1, 2, 3, 0, 1, 2, 3, 0}));
}

TEST(FaultKinds, BR42ZeroTimesNanIsNan) {
  const auto out = run("  input X: f32[2]\n  input Z: f32[3]\n  output Y = add(X, mul(0.0, mean(Z)))",
                       {real({2}, {1, 2}), real({3}, {1, kNan, 2})});
  EXPECT_TENSOR_EQ(out[0], real({2}, {kNan, kNan}));
}

TEST(FaultKinds, BR44SignsOfZero) {
  const auto out = run(R"(
    input X: f32[1]
    output A = add(X, 0.0)
    output B = div(1.0, mul(X, 1.0))
    output C = neg(X)
    output D = elu(X, 1.0)
    output E = sqrt(X)
    output F = silu(X)
    output G = max(X, 0.0)
    output H = mul(X, -1.0))",
                       {real({1}, {-0.0})});
  auto negative = [&](size_t i) { return std::signbit(out[i].reals[0]); };
  EXPECT_FALSE(negative(0));  // -0 + 0 = +0
  EXPECT_EQ(out[1].reals[0], -kInf);
  EXPECT_FALSE(negative(2));
  EXPECT_TRUE(negative(3));
  EXPECT_TRUE(negative(4));
  EXPECT_TRUE(negative(5));
  EXPECT_FALSE(negative(6));
  EXPECT_FALSE(negative(7));
}

TEST(FaultKinds, BR46TheFirstNanIsTheExtremum) {
  for (int64_t width = 1; width <= 33; ++width)
    for (const int64_t at : {int64_t{0}, width / 2, width - 1}) {
      std::vector<double> values(static_cast<size_t>(width), 4.6);
      values[static_cast<size_t>(at)] = kNan;
      values.back() = kNan;
      const auto out = run(fmt::format("  input X: f32[{}]\n  output M = amax(X)\n  output A = argmax(X, axis=0)\n  "
                                       "output I = argmin(X, axis=0)\n  V, K = topk(X, k=1, axis=0)\n  output K",
                                       width),
                           {real({width}, values)});
      EXPECT_TRUE(std::isnan(out[0].reals[0]));
      EXPECT_EQ(out[1].ints[0], at);
      EXPECT_EQ(out[2].ints[0], at);
      EXPECT_EQ(out[3].ints[0], at);
    }
}

TEST(FaultKinds, BR51LayerNormOfALargeMeanAndASmallSpread) {
  const auto big = run("  input X: f32[4]\n  output Y = layer_norm(X, axes=[0], eps=0)",
                       {real({4}, {80000, 80001, 80002, 80003})}, true);
  EXPECT_TENSOR_NEAR(big[0], real({4}, {-1.3416407865, -0.4472135955, 0.4472135955, 1.3416407865}), 0, 1e-3);
  std::vector<double> row;
  for (int i = 0; i < 16; ++i) row.push_back(static_cast<double>(static_cast<float>(1e4 + 1e-3 * i)));
  const auto exact =
      run("  input X: f64[16]\n  output Y = layer_norm(X, axes=[0], eps=0)", {real({16}, row, DType::f64)});
  auto rounded = run("  input X: f32[16]\n  output Y = layer_norm(X, axes=[0], eps=0)", {real({16}, row)}, true);
  rounded[0].dtype = DType::f64;
  // The mean is rounded to f32 (half a unit is 5e-4, a tenth of the spread), so the values may shift but stay finite.
  EXPECT_TENSOR_NEAR(rounded[0], exact[0], 0, 0.2);
}

TEST(FaultKinds, BR54ScalesThatBroadcast) {
  const Tensor x = normal(DType::f32, {4, 8}, 3);
  const auto plain = run("  input X: f32[4, 8]\n  output Y = layer_norm(X, axes=[1])", {x});
  for (const auto& [type, extents] : std::vector<std::pair<const char*, std::vector<int64_t>>>{
           {"f32[1]", {1}}, {"f32[8]", {8}}, {"f32[4, 8]", {4, 8}}, {"f32", {}}}) {
    const Tensor gamma = normal(DType::f32, extents, 7);
    const auto out = run(
        fmt::format("  input X: f32[4, 8]\n  input G: {}\n  output Y = layer_norm(X, G, axes=[1])", type), {x, gamma});
    Tensor expected = plain[0];
    for (size_t i = 0; i < 32; ++i)
      expected.reals[i] *= gamma.reals[extents.size() == 2 ? i : extents == std::vector<int64_t>{8} ? i % 8 : 0];
    EXPECT_TENSOR_NEAR(out[0], expected, 1e-14, 0);
  }
}

}  // namespace
}  // namespace cleave::oracle
