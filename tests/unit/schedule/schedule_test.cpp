// Schedules compute what their graphs mean: tile programs are run by the interpreter and judged by the bounded
// evaluator.
#include <gtest/gtest.h>

#include "schedule/plan.hpp"
#include "schedule/schedule.hpp"
#include "support.hpp"

namespace cleave::schedule {
namespace {

using namespace test;

TEST(Schedule, RandomGraphsKeepTheirMeaning) {
  for (uint64_t seed = 1; seed <= 3000; ++seed) {
    testing::Choices choices(seed);
    testing::RandomGraphOptions options;
    options.max_elements = 512;
    const graph::Graph g = graph::expand(testing::random_graph(choices, options));
    const std::string wrong = judged(g, seed, static_cast<testing::Magnitude>(seed % 4), 3);
    if (!wrong.empty()) {
      const auto small = testing::shrink(g, [&](const graph::Graph& h) {
        return !judged(h, seed, static_cast<testing::Magnitude>(seed % 4), 3).empty();
      });
      FAIL() << "seed " << seed << "\n" << judged(small, seed, static_cast<testing::Magnitude>(seed % 4), 3);
    }
  }
}

const char* kAttention = R"(
graph attention {
  input Q: f32[2, 70, 8]
  input K: f32[2, 300, 8]
  input V: f32[2, 300, 16]
  S = contract("b s d, b l d -> b s l", Q, K)
  T = mul(S, 0.35)
  m, u, v = scaled_reduce("b s l -> b s | -> b s | b l e -> b s e", T, V)
  output O = div(v, unsqueeze(u, axes=[2]))
  output lse = add(m, log(u))
})";

TEST(Schedule, AttentionIsOneKernelWithPackedKeys) {
  const graph::Graph g = parsed(kAttention);
  const auto all = candidates(g, test_options());
  ASSERT_TRUE(all.ok()) << render(all.errors(), nullptr);
  EXPECT_EQ(all->front().program.kernels.size(), 2u) << tile::print(all->front().program);
  EXPECT_EQ(judged(g, 1, testing::Magnitude::unit), "");
  EXPECT_EQ(judged(g, 2, testing::Magnitude::special), "");
}

TEST(Schedule, MaskedSafeSoftmaxAttention) {
  EXPECT_EQ(judged(parsed(R"(
graph causal {
  input Q: f32[2, 2, 33, 8]
  input K: f32[2, 2, 65, 8]
  input V: f32[2, 2, 65, 8]
  output O = sdpa(Q, K, V, causal="end", empty="zero")
})"),
                   1, testing::Magnitude::unit),
            "");
}

TEST(Schedule, NormAndLinearShareOneLoop) {
  const graph::Graph g = parsed(R"(
graph rms {
  input X: f32[5, 1100]
  const W: f32[1100, 320] = normal(seed=1, scale=0.05)
  q = sum(square(X), axes=[1], keepdims=true)
  r = rsqrt(add(mul(q, 0.00090909), 0.000001))
  output Y = mul(contract("m k, k n -> m n", X, W), r)
})");
  const auto all = candidates(g, test_options());
  ASSERT_TRUE(all.ok()) << render(all.errors(), nullptr);
  size_t fewest = 100;
  for (const auto& c : *all) fewest = std::min(fewest, c.kernels.size());
  EXPECT_EQ(fewest, 1u) << tile::print(all->front().program);
  EXPECT_EQ(judged(g, 1, testing::Magnitude::unit), "");
}

TEST(Schedule, GatedProductsShareOneLoop) {
  const graph::Graph g = parsed(R"(
graph swiglu {
  input X: f32[3, 600]
  const G: f32[600, 96] = normal(seed=1, scale=0.05)
  const U: f32[600, 96] = normal(seed=2, scale=0.05)
  output Y = mul(silu(contract("m k, k n -> m n", X, G)), contract("m k, k n -> m n", X, U))
})");
  const auto all = candidates(g, test_options());
  ASSERT_TRUE(all.ok()) << render(all.errors(), nullptr);
  size_t fewest = 100;
  for (const auto& c : *all) fewest = std::min(fewest, c.kernels.size());
  EXPECT_EQ(fewest, 1u) << tile::print(all->front().program);
  EXPECT_EQ(judged(g, 1, testing::Magnitude::unit), "");
}

// A task has whole rows of what it normalises: a piece of a row would need the sums of all of it.
TEST(Schedule, NormalisationsReduceEachRowOnce) {
  Options o;
  o.machine = host_machine();
  for (const char* shape : {"32, 128", "7, 200", "1, 1000", "3, 5, 300", "128, 768", "300, 3"})
    for (const char* op :
         {"layer_norm(x, axes=[-1], eps=0.00001)", "rms_norm(x, axes=[-1], eps=0.00001)", "softmax(x, axis=-1)",
          "log_softmax(x, axis=-1)", "sub(x, mean(x, axes=[-1], keepdims=true))",
          "div(x, sqrt(sum(square(sub(x, amax(x, axes=[-1], keepdims=true))), axes=[-1], keepdims=true)))"}) {
      SCOPED_TRACE(fmt::format("{} of [{}]", op, shape));
      const auto of = [&](std::string_view body) {
        const graph::Graph g = graph::expand(
            graph::parse({"g", fmt::format("graph g {{\n  input x: f32[{}]\n  output y = {}\n}}\n", shape, body)})
                .value());
        return unfused(g, o).value();
      };
      const Candidate c = of(op);
      ASSERT_EQ(c.kernels.size(), 1u) << tile::print(c.program);
      double flops = 0;
      for (const KernelEstimate& k : c.kernels) flops += k.flops;
      double elements = 1;
      const tile::Program& p = c.program;
      for (sym::Expr e : p.buffer(p.buffers_in(tile::Place::input).at(0)).shape)
        elements *= static_cast<double>(p.syms->typical(e));
      // An exponential or a logarithm counts as some twenty operations; no row is reduced twice.
      EXPECT_LE(flops, 64 * elements) << tile::print(p);
    }
}

TEST(Schedule, UnfusedHasAKernelForEachContractionAndChain) {
  const auto c = unfused(parsed(R"(
graph attention {
  input Q: f32[2, 70, 8]
  input K: f32[2, 300, 8]
  input V: f32[2, 300, 16]
  P = softmax(contract("b s d, b l d -> b s l", Q, K), axis=-1)
  output O = contract("b s l, b l e -> b s e", P, V)
})"),
                         test_options());
  ASSERT_TRUE(c.ok());
  size_t kernels = 0;
  for (const auto& k : c->program.kernels) kernels += k.name.find("pack") == std::string::npos;
  EXPECT_EQ(kernels, 3u) << tile::print(c->program);
}

}  // namespace
}  // namespace cleave::schedule
