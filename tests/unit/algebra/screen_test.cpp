// Graphs that are equal in exact arithmetic, but not on data in which something large cancels: none that loses its
// digits there is offered.
#include <functional>

#include "algebra/search.hpp"
#include "unit/algebra/support.hpp"

namespace cleave::algebra {
namespace {

using graph::Graph;
using namespace test;

struct Hard {
  const char* name;
  const char* text;
  std::function<double(const std::string& input, Rng& rng)> data;
};

double around(double mean, double unit, Rng& rng) { return mean + unit * static_cast<double>(rng.between(-3, 3)); }

const Hard kHard[] = {
    {"a mask that large numbers are multiplied by", R"(graph g {
  input q: f32[2, 9, 8]
  input k: f32[2, 11, 8]
  input v: f32[2, 11, 5]
  input m: f32[1, 9, 11]
  s = add(mul(contract("b s d, b l d -> b s l", q, k), 0.25), mul(sub(1.0, m), -1e9))
  output O = contract("b s l, b l d -> b s d", softmax(s, axis=-1), v)
})",
     [](const std::string& input, Rng& rng) {
       return input == "m" ? static_cast<double>(rng.between(0, 3) > 0) : rng.normal();
     }},
    {"the same subtracted, with the lowest number", R"(graph g {
  input q: f32[2, 9, 8]
  input k: f32[2, 11, 8]
  input m: f32[1, 9, 11]
  s = sub(contract("b s d, b l d -> b s l", q, k), mul(sub(1.0, m), 3.4028234663852886e38))
  output P = softmax(s, axis=-1)
})",
     [](const std::string& input, Rng& rng) {
       return input == "m" ? static_cast<double>(rng.between(0, 3) > 0) : rng.normal();
     }},
    {"squared distances of points far out", R"(graph g {
  input x: f32[20, 3]
  input y: f32[30, 3]
  d = sub(unsqueeze(x, axes=[1]), unsqueeze(y, axes=[0]))
  output D = sum(square(d), axes=[2])
})",
     [](const std::string&, Rng& rng) { return 1000 + rng.normal(); }},
    {"scores less a large number", R"(graph g {
  input x: f32[24, 40]
  input y: f32[40, 16]
  output D = contract("m k, k n -> m n", softmax(mul(sub(x, 1700000000.0), 0.01), axis=1), y)
})",
     [](const std::string& input, Rng& rng) { return input == "x" ? around(1.7e9, 128, rng) : rng.normal(); }},
    {"products of what is left of large numbers", R"(graph g {
  input x: f32[24, 40]
  input y: f32[24, 40]
  input c: f32[24, 1]
  t = sub(x, c)
  output A = sum(mul(t, y), axes=[1])
  output B = contract("m k, n k -> m n", t, y)
})",
     [](const std::string& input, Rng& rng) { return input == "y" ? rng.normal() : around(65536, 0.125, rng); }},
    {"a norm of a product of factors far from 0", R"(graph g {
  input A: f32[5, 64]
  input B: f32[5, 64]
  output O = layer_norm(mul(A, B), axes=[1])
})",
     [](const std::string&, Rng& rng) { return 3000 + rng.normal(); }},
    {"two norms of a product", R"(graph g {
  input A: f32[5, 6, 4]
  input B: f32[4, 6]
  input C: f32[6, 4]
  t = mul(unsqueeze(transpose(B, perm=[1, 0]), axes=[0]), A)
  output P = layer_norm(div(unsqueeze(amax(C, axes=[0]), axes=[0, 1]), t), axes=[2])
  output Q = layer_norm(t, axes=[2])
})",
     [](const std::string&, Rng& rng) { return 3000 + rng.normal(); }},
    {"a norm as factor of a product of numbers far from 0", R"(graph g {
  input A: f32[6, 8]
  input C: f32[6, 5]
  output O = contract("i j, i k -> j k", exp(layer_norm(A, axes=[1])), mul(C, C))
})",
     [](const std::string&, Rng& rng) { return 3000 + rng.normal(); }},
    {"a norm that negative numbers alone are given", R"(graph g {
  input x: f32[16, 64]
  output O = where(lt(x, 0.0), layer_norm(x, axes=[1]), 1.0)
})",
     [](const std::string&, Rng& rng) { return rng.normal() - 3000; }},
    {"the square of a sum of numbers with opposite signs", R"(graph g {
  input A: f32[6]
  input B: f32[4, 6]
  t = add(unsqueeze(A, axes=[0]), B)
  output O = contract("k j, k j -> j k", t, t)
})",
     [](const std::string& input, Rng& rng) { return (input == "A" ? 3000 : -3000) + rng.normal(); }},
};

// Every graph that is found is about as near to float64 as the input graph on this data.
void expect_accurate(const Graph& g, const std::map<std::string, oracle::Tensor>& inputs, double times_own = 4) {
  const auto found = search(g);
  ASSERT_TRUE(found.ok()) << render(found.errors(), nullptr);
  const auto want = run(g, inputs);
  const auto stored = oracle::evaluate(g, inputs, {.round_to_storage = true});
  ASSERT_TRUE(stored.ok());
  for (const Found& f : found->graphs) {
    const auto got = oracle::evaluate(f.graph, inputs, {.round_to_storage = true});
    ASSERT_TRUE(got.ok()) << render(got.errors(), nullptr);
    for (size_t o = 0; o < want.size(); ++o) {
      double largest = 0, off = 0, own = 0;
      for (int64_t i = 0; i < want[o].elements(); ++i) {
        largest = std::max(largest, std::abs(want[o].at(i)));
        off = std::max(off, std::abs(got.value()[o].at(i) - want[o].at(i)));
        own = std::max(own, std::abs(stored.value()[o].at(i) - want[o].at(i)));
      }
      EXPECT_LE(off, times_own * own + 1e-5 * largest) << print(f.graph);
    }
  }
}

TEST(Screen, NothingLosesTheDigitsThatCancellationLeaves) {
  for (const Hard& hard : kHard) {
    SCOPED_TRACE(hard.name);
    const Graph g = parsed(hard.text);
    std::map<std::string, oracle::Tensor> inputs = draw(g, 1);
    Rng rng(5);
    for (auto& [name, t] : inputs)
      for (int64_t i = 0; i < t.elements(); ++i) t.set(i, hard.data(name, rng));
    expect_accurate(g, inputs);
  }
}

// A residual of a good fit, of rows that are alike: its square is not expanded.
TEST(Screen, ASmallDifferenceToAProductIsNotExpanded) {
  for (const bool rows : {false, true})
    for (const char* output : {"sum(square(sub(Z, B)), axes=[1])", "sqrt(mean(square(add(B, neg(Z))), axes=[1]))",
                               "softmax(neg(square(sub(mul(Z, 0.5), mul(B, 0.5)))), axis=1)"}) {
      SCOPED_TRACE(output);
      const Graph g =
          parsed(fmt::format("graph g {{\n  input X: f32[12, 16]\n  input W: f32[16, 24]\n  input B: "
                             "f32[{}24]\n  Z = contract(\"s k, k n -> s n\", X, W)\n  output Y = {}\n}}",
                             rows ? "12, " : "", output));
      auto inputs = draw(g, 3);
      auto &x = inputs.at("X"), &w = inputs.at("W"), &b = inputs.at("B");
      for (int64_t i = 0; i < x.elements(); ++i) x.set(i, 1000 * std::sin(1 + i % 16) + 0.01 * x.at(i));
      for (int64_t i = 0; i < b.elements(); ++i) {
        double z = 0;
        for (int64_t k = 0; k < 16; ++k) z += x.at((rows ? i / 24 : 0) * 16 + k) * w.at(k * 24 + i % 24);
        b.set(i, z + b.at(i));
      }
      expect_accurate(g, inputs);
    }
}

// Terms of a product that cancel in pairs: the square of the product is not taken as a product of products.
TEST(Screen, TheSquareOfAProductStaysASquare) {
  const Graph g = parsed(R"(graph g {
  input X: f32[6, 16]
  input W: f32[16, 24]
  Z = contract("s k, k n -> s n", X, W)
  output Y = rms_norm(Z, axes=[1], eps=1e-6)
})");
  auto inputs = draw(g, 3);
  auto &x = inputs.at("X"), &w = inputs.at("W");
  for (int64_t i = 0; i < x.elements(); ++i) x.set(i, (i % 2 ? -1000 : 1000) + x.at(i));
  for (int64_t k = 1; k < 16; k += 2)
    for (int64_t n = 0; n < 24; ++n) w.set(k * 24 + n, w.at((k - 1) * 24 + n) + 1e-3 * w.at(k * 24 + n));
  expect_accurate(g, inputs, 64);
  const auto found = search(g);
  EXPECT_GE(found->graphs.size(), 10u);
}

// Which of two products is formed first is free.
TEST(Screen, ProductsAreAssociatedAnew) {
  const Graph g = parsed(R"(graph g {
  input A: f32[6, 16]
  input B: f32[16, 24]
  input C: f32[24, 5]
  output Y = contract("m n, n p -> m p", contract("m k, k n -> m n", A, B), C)
})");
  EXPECT_EQ(search(g)->graphs.size(), 2u);
}

// The variance of a mask that holds everywhere is 0, and not what rounding leaves of the mean less its square.
TEST(Screen, TheVarianceOfAConstantMaskIsZero) {
  const Graph g = parsed(R"(graph g {
  input M: bool[7, 2]
  a, b = moments(cast(M, dtype=f64), axes=[0])
  output mean = a
  output variance = b
})");
  auto inputs = draw(g, 1);
  for (int64_t i = 0; i < 14; ++i) inputs.at("M").set(i, 1);
  const auto found = search(g);
  for (const Found& f : found->graphs) EXPECT_EQ(run(f.graph, inputs)[1].at(0), 0) << print(f.graph);
}

// A mask as a number: what it multiplies by 0 is not left out, where it may be NaN.
TEST(Screen, AMaskThatMultipliesIsNoSelection) {
  const Graph g = parsed(R"(graph g {
  input X: f32[4, 6]
  input M: bool[4, 6]
  m = cast(M, dtype=f32)
  output Y = div(sum(mul(X, m), axes=[1]), sum(m, axes=[1]))
})");
  auto inputs = draw(g, 1);
  for (int64_t i = 0; i < 24; ++i) inputs.at("M").set(i, i % 5 != 2);
  inputs.at("X").set(2, std::numeric_limits<double>::quiet_NaN());
  const auto found = search(g);
  EXPECT_GE(found->graphs.size(), 2u);
  for (const Found& f : found->graphs) EXPECT_TRUE(std::isnan(run(f.graph, inputs)[0].at(0))) << print(f.graph);
}

// D is summed over, is an axis of the result, and is a number in the means: it has one extent in all of them, and in
// parts.
TEST(Screen, WhatIsCountedIsWhatIsSummed) {
  const Graph g = parsed(R"(graph g {
  dim S in 1..64
  dim L in 1..64
  dim D in 1..64
  input Q: f32[S, D]
  input K: f32[L, D]
  input V: f32[L, D]
  q = mul(Q, rsqrt(add(mean(square(Q), axes=[1], keepdims=true), 1e-6)))
  k = mul(K, rsqrt(add(mean(square(K), axes=[1], keepdims=true), 1e-6)))
  T = mul(contract("s d, l d -> s l", q, k), rsqrt(extent(dtype=f32, of=[D])))
  output O = contract("s l, l d -> s d", softmax(T, axis=1), V)
})");
  const auto whole = search(g), parts = search(g, {.split = "D"});
  ASSERT_TRUE(whole.ok() && parts.ok());
  EXPECT_EQ(whole->screened_out, 0u);
  EXPECT_GE(whole->graphs.size(), 10u);
  EXPECT_GE(parts->graphs.size(), 5u);
}

// A mean of what a mask selects, of nothing: 0 / 0 stays NaN wherever the division goes.
TEST(Screen, AMeanOfNothingStaysNaN) {
  const auto g = graph::parse({"g", R"(graph g {
  input a: f32[2, 5]
  input b: i64[2]
  m = ne(b, -100)
  at = add(mul(iota(axis=0, dtype=i64, shape=[2, 1]), 5), reshape(where(m, b, 0), shape=[2, 1]))
  x = reshape(gather(reshape(log_softmax(a, axis=1), shape=[10]), at, axis=0), shape=[2])
  n = cast(sum(cast(m, dtype=i64), keepdims=false), dtype=f32)
  output y = div(sum(where(m, neg(x), 0.0), keepdims=false), n)
})"});
  ASSERT_TRUE(g.ok());
  const auto found = search(graph::expand(*g));
  ASSERT_TRUE(found.ok());
  for (const auto& f : found->graphs) {
    std::map<std::string, oracle::Tensor> zeros;
    for (graph::ValueId v : oracle::given_leaves(f.graph))
      zeros.emplace(f.graph.value(v).name, oracle::zeros(f.graph.type(v).dtype, f.graph.extents(v)));
    for (int64_t i = 0; i < 2; ++i) zeros.at("b").set(i, -100);
    const auto out = oracle::evaluate(f.graph, zeros);
    ASSERT_TRUE(out.ok());
    for (const oracle::Tensor& t : *out)
      for (int64_t i = 0; i < t.elements(); ++i) EXPECT_TRUE(std::isnan(t.at(i))) << graph::print(f.graph);
  }
}

// 0 times an infinity, and 0 over 0: NaN as written, and NaN in each graph that is found.
TEST(Screen, AZeroThatMakesANanKeepsIt) {
  for (const char* output :
       {"mul(rsqrt(B), mul(A, B))", "mul(A, div(expm1(B), B))", "div(mul(A, B), B)", "mul(A, mul(B, reciprocal(B)))"}) {
    const Graph g = parsed(fmt::format("graph g {{\n input A: f32[4]\n input B: f32[4]\n output O = {}\n}}", output));
    const auto found = search(g);
    ASSERT_TRUE(found.ok());
    auto inputs = draw(g, 1);
    for (int64_t i = 0; i < 4; ++i) inputs.at("B").set(i, i % 2 ? 1.5 : 0);
    const auto want = run(g, inputs);
    for (const Found& f : found->graphs) {
      const auto got = run(f.graph, inputs);
      for (int64_t i = 0; i < 4; ++i)
        EXPECT_EQ(std::isnan(got[0].at(i)), std::isnan(want[0].at(i))) << output << " element " << i << print(f.graph);
    }
  }
}

// An infinity that meets one of another input: inf >= inf holds, and nothing compares with NaN.
TEST(Screen, InfinitiesOfTwoInputsAreCompared) {
  const Graph g = parsed(R"(graph g {
  input x: f32[2]
  input y: f32[2, 4]
  output o = ge(x, logsumexp(y, axes=[1]))
})");
  const auto found = search(g);
  ASSERT_TRUE(found.ok());
  auto inputs = draw(g, 1);
  inputs.at("x").set(0, std::numeric_limits<double>::infinity());
  inputs.at("y").set(2, std::numeric_limits<double>::infinity());
  for (const Found& f : found->graphs) EXPECT_EQ(run(f.graph, inputs)[0].at(0), 1) << print(f.graph);
}

TEST(Screen, AttentionWithAnAdditiveMaskStillDividesLast) {
  const auto found = search(parsed(kHard[0].text));
  ASSERT_TRUE(found.ok());
  EXPECT_THAT(print(found->graphs.at(0).graph), ::testing::HasSubstr("scaled_reduce"));
}

}  // namespace
}  // namespace cleave::algebra
