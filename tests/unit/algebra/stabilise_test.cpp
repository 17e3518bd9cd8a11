// Online softmax is derived: exponentials become pairs, sums over them scaled reductions.
#include "algebra/stabilise.hpp"

#include "support.hpp"

namespace cleave::algebra {
namespace {

using graph::Op;
using test::bound;
using test::count;
using test::expect_same;
using test::parsed;
using ::testing::HasSubstr;

const std::map<std::string, int64_t> kDims = {{"B", 2}, {"S", 5}, {"L", 7}};

constexpr const char* kMaxFree = R"(
graph attention {
  dim B in 0..64
  dim S in 0..4096
  dim L in 0..4096
  input Q: f32[B, S, 3]
  input K: f32[B, L, 3]
  input V: f32[B, L, 4]
  T = mul(contract("b s d, b l d -> b s l", Q, K), 0.5)
  E = exp(T)
  R = sum(E, axes=[2], keepdims=true)
  output O = contract("b s l, b l d -> b s d", div(E, R), V)
})";

constexpr const char* kSafe = R"(
graph attention {
  dim B in 0..64
  dim S in 0..4096
  dim L in 0..4096
  input Q: f32[B, S, 3]
  input K: f32[B, L, 3]
  input V: f32[B, L, 4]
  T = mul(contract("b s d, b l d -> b s l", Q, K), 0.5)
  M = where(le(iota(shape=[S, L], axis=1, dtype=i64), iota(shape=[S, L], axis=0, dtype=i64)), T, -inf)
  X = amax(M, axes=[2], keepdims=true)
  E = exp(sub(M, X))
  R = sum(E, axes=[2], keepdims=true)
  output O = contract("b s l, b l d -> b s d", div(E, R), V)
  output lse = add(log(R), X)
})";

TEST(Stabilise, MaxFreeAttentionBecomesOneScaledReduceWithTheDivisionAfter) {
  const auto g = parsed(kMaxFree);
  const auto s = stabilise(g);
  EXPECT_EQ(count(s, Op::scaled_reduce), 1u) << print(s);
  EXPECT_EQ(count(s, Op::exp), 0u);
  EXPECT_EQ(count(s, Op::div), 1u);
  EXPECT_EQ(count(s, Op::transpose), 0u);
  EXPECT_THAT(print(s), HasSubstr("spec=\"b s l -> b s | b l d -> b s d | -> b s\""));
  expect_same(g, s, kDims);
}

TEST(Stabilise, SafeAttentionSharesOneScaledReduceBetweenOutputAndLogSumExp) {
  const auto g = parsed(kSafe);
  const auto s = stabilise(g);
  EXPECT_EQ(count(s, Op::scaled_reduce), 1u) << print(s);
  EXPECT_EQ(count(s, Op::exp), 0u);
  EXPECT_EQ(count(s, Op::amax), 0u);
  expect_same(g, s, kDims);
}

TEST(Stabilise, LargeLogitsAreFiniteAndRight) {
  const auto free = stabilise(parsed(kMaxFree)), safe = parsed(R"(
graph attention {
  dim B in 0..64
  dim S in 0..4096
  dim L in 0..4096
  input Q: f32[B, S, 3]
  input K: f32[B, L, 3]
  input V: f32[B, L, 4]
  P = softmax(mul(contract("b s d, b l d -> b s l", Q, K), 0.5), axis=2)
  output O = contract("b s l, b l d -> b s d", P, V)
})");
  expect_same(safe, free, kDims, 100, 1e-9);
}

TEST(Stabilise, GraphsWithoutExponentialsStayAsTheyAre) {
  const auto g = parsed("graph g {\n  input X: f32[3, 4]\n  output Y = mul(X, sum(X, axes=[1], keepdims=true))\n}");
  EXPECT_EQ(print(stabilise(g)), print(g));
}

TEST(Stabilise, ALoneExponentialStaysAnExponential) {
  const auto g = parsed(
      "graph g {\n  input A: f32[3, 4]\n  input B: f32[4, 5]\n  output Y = exp(contract(\"m k, k n -> m n\", A, "
      "B))\n}");
  const auto s = stabilise(g);
  EXPECT_EQ(count(s, Op::exp), 1u);
  EXPECT_EQ(count(s, Op::unscale), 0u);
  expect_same(g, s, {});
}

TEST(Stabilise, ProbabilitiesAsAnOutputUseTheFinalMaximum) {
  const auto g =
      parsed("graph g {\n  input S: f32[3, 4]\n  E = exp(S)\n  output P = div(E, sum(E, axes=[1], keepdims=true))\n}");
  const auto s = stabilise(g);
  EXPECT_EQ(count(s, Op::scaled_reduce), 1u) << print(s);
  EXPECT_EQ(count(s, Op::exp), 1u);
  expect_same(g, s, {});
  const auto big = parsed("graph g {\n  input S: f32[3, 4]\n  output P = softmax(S, axis=1)\n}");
  expect_same(big, s, {}, 1e4);
}

TEST(Stabilise, RowAndColumnSumsOfOneExponentialAreTwoUses) {
  const auto g = parsed(R"(graph g {
  input S: f32[5, 7]
  E = exp(S)
  output P = div(E, sum(E, axes=[1], keepdims=true))
  output C = div(E, sum(E, axes=[0], keepdims=true))
})");
  const auto s = stabilise(g);
  EXPECT_EQ(count(s, Op::scaled_reduce), 2u) << print(s);
  const auto safe =
      parsed("graph g {\n  input S: f32[5, 7]\n  output P = softmax(S, axis=1)\n  output C = softmax(S, axis=0)\n}");
  expect_same(safe, s, {}, 1e4);
}

TEST(Stabilise, AZeroOneMaskAfterTheExponentialMasksTheScore) {
  const std::string mask = "le(iota(shape=[5, 7], axis=1, dtype=i64), iota(shape=[5, 7], axis=0, dtype=i64))";
  const auto g = parsed("graph g {\n  input S: f32[5, 7]\n  E = mul(exp(S), cast(" + mask +
                        ", dtype=f32))\n  output P = div(E, sum(E, axes=[1], keepdims=true))\n}");
  const auto s = stabilise(g);
  const auto safe =
      parsed("graph g {\n  input S: f32[5, 7]\n  output P = softmax(where(" + mask + ", S, -inf), axis=1)\n}");
  expect_same(g, s, {});
  expect_same(safe, s, {}, 1e4);
}

TEST(Stabilise, RowsWithoutElementsFollowTheEmptyPolicy) {
  for (const char* policy : {"nan", "zero"}) {
    const auto g = parsed(std::string(R"(graph g {
  input S: f32[4, 3]
  input V: f32[3, 2]
  M = where(lt(iota(shape=[4, 3], axis=1, dtype=i64), iota(shape=[4, 3], axis=0, dtype=i64)), S, -inf)
  P = softmax(M, axis=1, empty=")") +
                          policy + R"(")
  output O = contract("s l, l d -> s d", P, V)
  output P
})");
    const auto s = stabilise(g);
    EXPECT_EQ(count(s, Op::scaled_reduce), 1u) << print(s);
    expect_same(g, s, {});
  }
}

TEST(Stabilise, AttentionCompositesWithLogSumExpAndGroupedHeads) {
  for (const char* policy : {"nan", "zero"}) {
    const auto g = parsed(std::string(R"(graph g {
  dim S in 1..100
  dim L in 1..100
  input Q: f32[2, 6, S, 4]
  input K: f32[2, 2, L, 4]
  input V: f32[2, 2, L, 3]
  O, lse = sdpa(Q, K, V, causal="end", lse=true, empty=")") +
                          policy + R"(")
  output O
  output lse
})");
    const auto s = stabilise(g);
    EXPECT_EQ(count(s, Op::scaled_reduce), 1u) << print(s);
    expect_same(g, s, {{"S", 5}, {"L", 7}});
    expect_same(g, s, {{"S", 7}, {"L", 5}});  // rows without keys
    expect_same(g, s, {{"S", 5}, {"L", 7}}, 100);
  }
}

TEST(Stabilise, AProjectionOfAllHeadsStaysAContraction) {
  const auto g = parsed(R"(graph g {
  dim S in 1..100
  dim L in 1..100
  input Q: f32[3, S, 4]
  input K: f32[3, L, 4]
  input V: f32[3, L, 5]
  input W: f32[3, 5, 6]
  P = softmax(contract("h s d, h l d -> h s l", Q, K), axis=2)
  output Y = contract("h s e, h e n -> s n", contract("h s l, h l e -> h s e", P, V), W)
})");
  const auto s = stabilise(g);
  EXPECT_EQ(count(s, Op::contract), 2u) << print(s);
  EXPECT_EQ(count(s, Op::sum), 0u);
  EXPECT_EQ(count(s, Op::scaled_reduce), 1u);
  expect_same(g, s, {{"S", 5}, {"L", 7}});
}

TEST(Stabilise, SumsAndQuotientsOfExponentialsAgree) {
  const auto g = parsed(R"(graph g {
  input X: f32[5, 7]
  input Y: f32[5, 7]
  A = exp(X)
  B = exp(Y)
  output onePlus = log(add(1, sum(A, axes=[1])))
  output quotient = div(sum(A, axes=[1]), sum(B, axes=[1]))
  output product = div(sum(mul(A, B), axes=[0]), mul(sum(A, axes=[0]), sum(B, axes=[0])))
  output both = log(sum(add(A, B), axes=[1]))
  output top = log(sum(max(A, B), axes=[1]))
  output pick = log(sum(where(lt(X, Y), A, B), axes=[1]))
  output gate = div(Y, add(1, exp(neg(X))))
  output entropy = sum(mul(div(A, sum(A, axes=[1], keepdims=true)), X), axes=[1])
  output nested = log(sum(sum(A, axes=[1]), axes=[0]))
  output root = div(sqrt(sum(A, axes=[1])), rsqrt(sum(B, axes=[1])))
  output largest = div(amax(A, axes=[1]), sum(A, axes=[1]))
})");
  const auto s = stabilise(g);
  expect_same(g, s, {});
  // Where the pairs keep logarithms and quotients finite although every exponential overflows.
  const auto inputs = test::draw(g, 3, 1000);
  const auto out = test::run(s, inputs);
  for (size_t i : {0u, 3u, 4u, 5u, 6u, 7u, 8u, 10u})
    for (int64_t k = 0; k < out[i].elements(); ++k) EXPECT_TRUE(std::isfinite(out[i].at(k))) << g.outputs()[i].name;
}

TEST(Stabilise, AnExtremumOfExponentialsKeepsTheNanOfEitherSide) {
  const auto g = parsed(R"(graph g {
  input X: f32[6, 5]
  input Y: f32[6, 5]
  output softmaxFirst = max(softmax(X, axis=0), X)
  output softmaxLast = min(X, softmax(X, axis=0))
  output product = max(mul(Y, exp(X)), mul(X, exp(Y)))
})");
  const auto s = stabilise(g);
  expect_same(g, s, {});
  for (const char* poisoned : {"X", "Y"})
    for (double poison : {std::nan(""), std::numeric_limits<double>::infinity()}) {
      auto inputs = test::draw(g, 4);
      inputs.at(poisoned).reals[7] = poison;
      const auto want = test::run(g, inputs), got = test::run(s, inputs);
      for (size_t i = 0; i < want.size(); ++i)
        for (int64_t k = 0; k < want[i].elements(); ++k)
          if (std::isnan(want[i].at(k)))
            EXPECT_TRUE(std::isnan(got[i].at(k)))
                << g.outputs()[i].name << " " << poisoned << " " << poison << " " << k;
    }
}

TEST(Stabilise, LogSoftmaxOfLargeLogitsKeepsItsDigits) {
  const auto g = parsed("graph g {\n input X: f32[3, 8]\n output Y = log_softmax(X, axis=1)\n}");
  const auto s = stabilise(g);
  auto inputs = test::draw(g, 5);
  oracle::Tensor& x = inputs.at("X");
  for (int64_t i = 0; i < x.elements(); ++i) x.set(i, std::round(8 * x.at(i)) / 8 + 30000);
  const auto want = test::run(g, inputs);
  oracle::EvalOptions stored;
  stored.round_to_storage = true;
  const auto got = oracle::evaluate(s, inputs, stored);
  ASSERT_TRUE(got.ok());
  const auto d = oracle::compare((*got)[0], want[0], 1e-6, 1e-6);
  EXPECT_TRUE(d.ok()) << d.text << test::text(s);
}

}  // namespace
}  // namespace cleave::algebra
