// Schedules compute what their graphs mean: tile programs are run by the interpreter and judged by the bounded
// evaluator.
#include <gtest/gtest.h>

#include <functional>

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

// How often a function is called in the nests of a program, over all axes with more than one iteration.
int calls(const tile::Program& p, Fn fn, size_t axes) {
  int count = 0;
  std::function<void(const std::vector<tile::Statement>&)> walk = [&](const std::vector<tile::Statement>& body) {
    for (const tile::Statement& s : body) {
      if (const auto* f = std::get_if<tile::For>(&s.what)) walk(f->body);
      const auto* n = std::get_if<tile::Nest>(&s.what);
      if (!n || n->axes.size() < axes) continue;
      for (const tile::Node& node : n->nodes)
        if (const auto* a = std::get_if<tile::Apply>(&node.what)) count += a->fn == fn;
    }
  };
  for (const tile::Kernel& k : p.kernels) walk(k.body);
  return count;
}

TEST(Schedule, RowsAreDividedByOneReciprocal) {
  struct Case {
    const char* body;
    bool hoisted;
  };
  const Case cases[] = {
      {"R = sqrt(add(mean(square(X), axes=[1], keepdims=true), 0.00001))\n output Y = div(X, R)", true},
      {"R = add(sqrt(sum(square(X), axes=[1], keepdims=true)), 0.000001)\n output Y = div(X, R)", true},
      {"R = max(sqrt(sum(square(X), axes=[1])), 0.001)\n output Y = div(X, broadcast(unsqueeze(R, axes=[1]), shape=[9, "
       "70]))",
       true},
      {"R = sqrt(sum(square(X), axes=[0]))\n output Y = div(X, R)", true},
      {"E = exp(sub(X, amax(X, axes=[1], keepdims=true)))\n output Y = div(E, sum(E, axes=[1], keepdims=true))", true},
      // 1 / r may overflow or be no normal number.
      {"output Y = div(X, sum(abs(X), axes=[1], keepdims=true))", false},
      {"output Y = div(X, sum(exp(X), axes=[1], keepdims=true))", false},
      {"E = exp(sub(X, amax(X, axes=[0], keepdims=true)))\n output Y = div(E, sum(E, axes=[1], keepdims=true))", false},
      {"output Y = div(X, sub(sqrt(sum(square(X), axes=[1], keepdims=true)), 1.0))", false},
      {"H = cast(X, dtype=f16)\n output Y = div(H, sqrt(sum(square(H), axes=[1], keepdims=true)))", false},
      // Nothing to gain.
      {"output Y = div(X, sqrt(abs(X)))", false},
  };
  for (const Case& c : cases) {
    const graph::Graph g = parsed(std::string("graph g {\n input X: f32[9, 70]\n ") + c.body + "\n}\n");
    const auto all = candidates(g, test_options());
    ASSERT_TRUE(all.ok()) << c.body << render(all.errors(), nullptr);
    for (const Candidate& s : *all) {
      EXPECT_EQ(calls(s.program, Fn::div, 2) == 0, c.hoisted) << c.body << tile::print(s.program);
      EXPECT_EQ(calls(s.program, Fn::reciprocal, 0) > 0, c.hoisted) << c.body << tile::print(s.program);
      // Once a row: where nests are over rows and columns there is none.
      EXPECT_EQ(calls(s.program, Fn::reciprocal, 2), 0) << c.body << tile::print(s.program);
    }
    // Rows of zeros, of huge and of tiny numbers, infinities and NaN.
    for (const auto magnitude : {testing::Magnitude::unit, testing::Magnitude::special})
      EXPECT_EQ(judged(g, 3, magnitude, 3), "") << c.body;
  }
  // To the ends of the exponents: as divided, but for one unit more.
  for (const double scale : {0x1p-149, 0x1p-126, 0x1p-75, 0x1p-40, 1.0, 0x1p60, 0x1p64, 0x1p126}) {
    const graph::Graph g =
        parsed("graph g {\n input X: f32[3, 70]\n input V: f32[3, 1]\n output Y = div(X, sqrt(V))\n}\n");
    const auto all = candidates(g, test_options());
    ASSERT_TRUE(all.ok());
    std::vector<Tensor> given = {oracle::zeros(DType::f32, {3, 70}), oracle::zeros(DType::f32, {3, 1})};
    Rng rng(7);
    for (double& x : given[0].reals) x = round_to(DType::f32, rng.normal() * 0x1p20);
    for (double& x : given[1].reals) x = round_to(DType::f32, (1 + rng.uniform()) * scale);
    const auto expected = oracle::evaluate_with_bounds(g, given);
    ASSERT_TRUE(expected.ok());
    const auto got = interpret(g, all->front().program, given);
    const auto d = oracle::compare(got[0], (*expected)[0]);
    EXPECT_TRUE(d.ok()) << scale << d.text;
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
