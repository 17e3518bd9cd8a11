// The graph interpreter against formulas written out by hand.
#include "eval/graph_eval.hpp"

#include <gmock/gmock.h>

#include "support/graph_text.hpp"

namespace cleave::oracle {
namespace {

using namespace cleave::testing;
using ::testing::HasSubstr;

std::vector<double> numbers(int64_t n, double from = 0) {
  std::vector<double> v;
  for (int64_t i = 0; i < n; ++i) v.push_back(from + static_cast<double>(i));
  return v;
}

TEST(GraphEval, ContractsOverAnyIndices) {
  const Tensor a = normal(DType::f64, {2, 3, 4}, 1), b = normal(DType::f64, {4, 5, 2}, 2);
  const auto out = run(R"(
    input A: f64[2, 3, 4]
    input B: f64[4, 5, 2]
    output batched = contract("b i k, k j b -> j b i", A, B)
    output outer = contract("b i k, l j c -> b i c j", A, B)
    output trace = contract("b i k, k j b -> j", A, B))",
                       {a, b});
  auto x = [&](size_t p, size_t i, size_t k) { return a.reals[(p * 3 + i) * 4 + k]; };
  auto y = [&](size_t k, size_t j, size_t p) { return b.reals[(k * 5 + j) * 2 + p]; };
  Tensor batched = zeros(DType::f64, {5, 2, 3}), outer = zeros(DType::f64, {2, 3, 2, 5}),
         trace = zeros(DType::f64, {5});
  for (size_t p = 0; p < 2; ++p)
    for (size_t i = 0; i < 3; ++i)
      for (size_t j = 0; j < 5; ++j)
        for (size_t k = 0; k < 4; ++k) {
          batched.reals[(j * 2 + p) * 3 + i] += x(p, i, k) * y(k, j, p);
          trace.reals[j] += x(p, i, k) * y(k, j, p);
          for (size_t c = 0; c < 2; ++c)
            for (size_t l = 0; l < 4; ++l) outer.reals[((p * 3 + i) * 2 + c) * 5 + j] += x(p, i, k) * y(l, j, c);
        }
  EXPECT_TENSOR_NEAR(out[0], batched, 1e-12, 1e-12);
  EXPECT_TENSOR_NEAR(out[1], outer, 1e-12, 1e-12);
  EXPECT_TENSOR_NEAR(out[2], trace, 1e-12, 1e-12);
}

TEST(GraphEval, ContractsDiagonalsBroadcastAxesAndIntegers) {
  const auto out = run(R"(
    input A: f64[3, 3]
    input B: f64[1, 2]
    input I: i32[2, 2]
    output diagonal = contract("i i, k j -> i j", A, B)
    output stretched = contract("i j, i k -> j k", A, B)
    output wraps = contract("i j, j k -> i k", I, I))",
                       {real({3, 3}, numbers(9), DType::f64), real({1, 2}, {10, 100}, DType::f64),
                        integers({2, 2}, {65536, 1, 65536, 2}, DType::i32)});
  EXPECT_TENSOR_EQ(out[0], real({3, 2}, {0, 0, 40, 400, 80, 800}, DType::f64));
  EXPECT_TENSOR_EQ(out[1], real({3, 2}, {90, 900, 120, 1200, 150, 1500}, DType::f64));
  EXPECT_TENSOR_EQ(out[2], integers({2, 2}, {65536, 65538, 131072, 65540}, DType::i32));
}

TEST(GraphEval, LargeProductsAreRight) {
  const Tensor a = normal(DType::f32, {37, 70}, 1), b = normal(DType::f32, {70, 523}, 2);
  const auto out =
      run("  input A: f32[37, 70]\n  input B: f32[70, 523]\n  output C = contract(\"i k, k j -> i j\", A, B)\n  output "
          "D = contract(\"i k, k j -> j i\", A, B)",
          {a, b});
  for (size_t i = 0; i < 37; ++i)
    for (size_t j = 0; j < 523; ++j) {
      double s = 0;
      for (size_t k = 0; k < 70; ++k) s += a.reals[i * 70 + k] * b.reals[k * 523 + j];
      ASSERT_EQ(out[0].reals[i * 523 + j], s);
      ASSERT_EQ(out[1].reals[j * 37 + i], s);
    }
}

TEST(GraphEval, ReductionsAndTheirIdentities) {
  const auto out = run(R"(
    input X: f32[2, 3]
    input B: bool[2, 2]
    input I: i32[3]
    output mean = mean(X, axes=[1])
    output prod = prod(X, axes=[0], keepdims=true)
    output min = amin(X)
    mu, var = moments(X, axes=[1])
    output mu
    output var
    output any = any(B, axes=[1])
    output all = all(B, axes=[1])
    output top = amax(I))",
                       {real({2, 3}, {1, 2, 6, 4, 4, 4}), integers({2, 2}, {0, 1, 1, 1}, DType::boolean),
                        integers({3}, {-5, -9, -7}, DType::i32)});
  EXPECT_TENSOR_EQ(out[0], real({2}, {3, 4}));
  EXPECT_TENSOR_EQ(out[1], real({1, 3}, {4, 8, 24}));
  EXPECT_TENSOR_EQ(out[2], real({}, {1}));
  EXPECT_TENSOR_EQ(out[3], real({2}, {3, 4}));
  EXPECT_TENSOR_NEAR(out[4], real({2}, {14.0 / 3, 0}), 1e-15, 0);
  EXPECT_TENSOR_EQ(out[5], integers({2}, {1, 1}, DType::boolean));
  EXPECT_TENSOR_EQ(out[6], integers({2}, {0, 1}, DType::boolean));
  EXPECT_TENSOR_EQ(out[7], integers({}, {-5}, DType::i32));
}

TEST(GraphEval, ViewsMoveElements) {
  const auto out = run(R"(
    input X: i64[2, 3]
    output t = transpose(X, perm=[1, 0])
    output b = broadcast(X, shape=[2, 2, 3])
    output s = slice(X, axes=[1, 0], starts=[2, 0], stops=[-1, 1], steps=[-2, 1])
    output p = pad(X, low=[1, -1], high=[0, 2], value=7)
    output c = concat(X, X, axis=1)
    l, r = split(X, axis=-1, sizes=[1, 2])
    output l
    output r
    output f = flip(X, axes=[0, 1])
    output w = window(X, axes=[1], sizes=[2], strides=[2], low=[1], high=[1], value=9)
    output d = window(X, axes=[1], sizes=[2], dilations=[2])
    output e = window(X, axes=[1], sizes=[2], strides=[2], ceil=true, value=9))",
                       {integers({2, 3}, numbers(6))});
  EXPECT_TENSOR_EQ(out[0], integers({3, 2}, {0, 3, 1, 4, 2, 5}));
  EXPECT_TENSOR_EQ(out[1], integers({2, 2, 3}, {0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5}));
  EXPECT_TENSOR_EQ(out[2], integers({1, 2}, {2, 0}));
  EXPECT_TENSOR_EQ(out[3], integers({3, 4}, {7, 7, 7, 7, 1, 2, 7, 7, 4, 5, 7, 7}));
  EXPECT_TENSOR_EQ(out[4], integers({2, 6}, {0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5}));
  EXPECT_TENSOR_EQ(out[5], integers({2, 1}, {0, 3}));
  EXPECT_TENSOR_EQ(out[6], integers({2, 2}, {1, 2, 4, 5}));
  EXPECT_TENSOR_EQ(out[7], integers({2, 3}, {5, 4, 3, 2, 1, 0}));
  EXPECT_TENSOR_EQ(out[8], integers({2, 2, 2}, {9, 0, 1, 2, 9, 3, 4, 5}));
  EXPECT_TENSOR_EQ(out[9], integers({2, 1, 2}, {0, 2, 3, 5}));
  EXPECT_TENSOR_EQ(out[10], integers({2, 2, 2}, {0, 1, 2, 9, 3, 4, 5, 9}));
}

TEST(GraphEval, GatherWrapsNegativeIndicesAndClampsTheRest) {
  const auto out = run("  input X: f32[2, 3]\n  input I: i32[2, 2]\n  output Y = gather(X, I, axis=1)",
                       {real({2, 3}, numbers(6)), integers({2, 2}, {0, -1, 99, -99}, DType::i32)});
  EXPECT_TENSOR_EQ(out[0], real({2, 2, 2}, {0, 2, 2, 0, 3, 5, 5, 3}));
  const auto none = run("  input X: f32[0]\n  input I: i64[2]\n  output Y = gather(X, I, axis=0)",
                        {zeros(DType::f32, {0}), integers({2}, {0, 5})});
  EXPECT_TENSOR_EQ(none[0], real({2}, {0, 0}));
}

TEST(GraphEval, ScansRunEitherWayWithOrWithoutTheirOwnElement) {
  const auto out = run(R"(
    input X: f32[3]
    output a = cumsum(X, axis=0)
    output b = cumsum(X, axis=0, exclusive=true)
    output c = cumsum(X, axis=0, reverse=true)
    output d = cumprod(X, axis=0, exclusive=true, reverse=true)
    output e = cummax(neg(X), axis=0, exclusive=true))",
                       {real({3}, {2, 3, 5})});
  EXPECT_TENSOR_EQ(out[0], real({3}, {2, 5, 10}));
  EXPECT_TENSOR_EQ(out[1], real({3}, {0, 2, 5}));
  EXPECT_TENSOR_EQ(out[2], real({3}, {10, 8, 5}));
  EXPECT_TENSOR_EQ(out[3], real({3}, {15, 5, 1}));
  EXPECT_TENSOR_EQ(out[4], real({3}, {-kInf, -2, -2}));
}

TEST(GraphEval, SelectionsTakeTheFirstOfEqualElements) {
  const auto out = run(R"(
    input X: f32[5]
    V, I = topk(X, k=4, axis=0)
    output V
    output I
    W, J = topk(X, k=5, axis=0, largest=false)
    output W
    output J
    output A = argmax(where(isnan(X), 0.0, X), axis=0, keepdims=true))",
                       {real({5}, {3, 7, kNan, 3, 7})});
  EXPECT_TENSOR_EQ(out[0], real({4}, {kNan, 7, 7, 3}));
  EXPECT_TENSOR_EQ(out[1], integers({4}, {2, 1, 4, 0}));
  EXPECT_TENSOR_EQ(out[2], real({5}, {3, 3, 7, 7, kNan}));
  EXPECT_TENSOR_EQ(out[3], integers({5}, {0, 3, 1, 4, 2}));
  EXPECT_TENSOR_EQ(out[4], integers({1}, {1}));
}

TEST(GraphEval, TheStabilisedDialectIsSoftmaxInTwoParts) {
  const Tensor s = normal(DType::f32, {2, 3, 5}, 1, 3), v = normal(DType::f32, {2, 5, 4}, 2);
  Tensor masked = s;
  for (size_t l = 0; l < 5; ++l) masked.reals[l] = -kInf;  // row [0, 0]
  const auto out = run(R"(
    input S: f32[2, 3, 5]
    input V: f32[2, 5, 4]
    m, u, r = scaled_reduce(S, V, "b s l -> b s | b l d -> b s d | -> b s")
    output O = quot0(u, unsqueeze(r, axes=[-1]))
    output P = contract("b s l, b l d -> b s d", softmax(S, axis=-1, empty="zero"), V)
    output T = unscale(r, m)
    output R = sum(exp(S), axes=[2])
    output m)",
                       {masked, v});
  EXPECT_TENSOR_NEAR(out[0], out[1], 1e-13, 1e-14);
  EXPECT_TENSOR_NEAR(out[2], out[3], 1e-13, 0);
  EXPECT_EQ(out[4].reals[0], -kInf);
  EXPECT_EQ(out[0].reals[0], 0);
}

TEST(GraphEval, RoundingFollowsTheStorageTypeOnDemand) {
  const std::string text =
      "  input X: f16[1]\n  output Y = sub(add(X, 2048.0), 2048.0)\n  output Z = cast(cast(X, dtype=f32), dtype=f16)";
  EXPECT_EQ(run(text, {real({1}, {0.5}, DType::f16)})[0].reals[0], 0.5);
  EXPECT_EQ(run(text, {real({1}, {0.5}, DType::f16)}, true)[0].reals[0], 0);
  // A cast that is written rounds in either mode.
  EXPECT_NE(
      run("  input X: f32[1]\n  output Y = cast(cast(X, dtype=f16), dtype=f32)", {real({1}, {1.0 / 3})})[0].reals[0],
      1.0 / 3);
}

TEST(GraphEval, WhatCannotBeEvaluatedIsRefused) {
  auto error = [](const std::string& body, const std::vector<Tensor>& inputs, const EvalOptions& options = {}) {
    const auto r = evaluate(graph_of(body), inputs, options);
    return r.ok() ? std::string() : render(r.errors(), nullptr);
  };
  const std::string text = "  dim N\n  input X: f32[N]\n  output Y = exp(X)";
  EXPECT_THAT(error(text, {zeros(DType::f32, {3})}), HasSubstr("`N` has no value"));
  EXPECT_THAT(error("  input X: f32[3]\n  output Y = exp(X)", {}), HasSubstr("takes 1 operands, 0 were given"));
  EXPECT_THAT(error("  input X: f32[3]\n  output Y = exp(X)", {zeros(DType::f32, {4})}),
              HasSubstr("is [3], [4] was given"));
  EXPECT_THAT(error("  input X: f32[3]\n  output Y = exp(X)", {zeros(DType::f64, {3})}),
              HasSubstr("is f32, f64 was given"));
  EXPECT_THAT(error("  input X: f32[1]\n  output Y = broadcast(X, shape=[1099511627776])", {zeros(DType::f32, {1})}),
              HasSubstr("more than the limit"));
  EXPECT_THAT(error("  input X: f32[9, 9]\n  output Y = contract(\"i k, k j -> i j\", X, X)",
                    {zeros(DType::f32, {9, 9})}, {.max_steps = 700}),
              HasSubstr("steps of evaluation"));
  EXPECT_FALSE(evaluate(graph_of("  input X: f32[3]\n  output Y = exp(X)"), std::map<std::string, Tensor>{}).ok());
  const auto far =
      run("  input X: f32[3]\n  output Y = window(X, axes=[0], sizes=[2], strides=[2147483648], "
          "dilations=[2147483648], low=[2147483648], high=[2147483648])",
          {zeros(DType::f32, {3})});
  EXPECT_EQ(far[0].elements(), 4);
}

}  // namespace
}  // namespace cleave::oracle
