// Schedules compute what their graphs mean: tile programs are run by the interpreter and judged by the bounded
// evaluator.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "eval/bounds.hpp"
#include "eval/tile_eval.hpp"
#include "schedule/plan.hpp"
#include "schedule/schedule.hpp"
#include "support/random_graph.hpp"

namespace cleave::schedule {
namespace {

using oracle::Bounded;
using oracle::Tensor;
using ::testing::HasSubstr;

graph::Graph parsed(const std::string& text) {
  const SourceText source{"test.graph", text};
  auto g = graph::parse(source);
  EXPECT_TRUE(g.ok()) << (g.ok() ? "" : render(g.errors(), &source));
  return graph::expand(*g);
}

Options test_options() {
  Options o;
  o.machine.vector_bytes = 64;
  o.machine.vector_registers = 32;
  return o;
}

// The outputs of a tile program, from dense inputs in the order of the graph's given leaves.
std::vector<Tensor> interpret(const graph::Graph& g, const tile::Program& p, const std::vector<Tensor>& given) {
  std::vector<std::vector<std::byte>> memory;
  memory.reserve(g.leaves().size() + g.outputs().size());
  oracle::TileArguments arguments;
  const auto leaves = oracle::given_leaves(g);
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (g.producer(leaves[i]).op == graph::Op::scalar) {
      arguments.scalars.push_back(given[i].at(0));
      continue;
    }
    memory.push_back(oracle::to_dense(given[i]));
    arguments.inputs.push_back(memory.back());
  }
  for (graph::ValueId v : g.leaves(graph::Op::constant)) {
    const auto& n = g.producer(v);
    memory.push_back(graph::materialise(n.attributes.get<graph::ConstantData>("data"), g.type(v).dtype,
                                        oracle::product(g.extents(v))));
    arguments.constants.push_back(memory.back());
  }
  for (const auto& o : g.outputs()) {
    Tensor t = oracle::zeros(g.type(o.value).dtype, g.extents(o.value));
    for (double& x : t.reals) x = std::nan("");
    for (int64_t& x : t.ints) x = 77;
    memory.push_back(oracle::to_dense(t));
    arguments.outputs.push_back(memory.back());
  }
  oracle::run(p, arguments);
  std::vector<Tensor> out;
  for (size_t i = 0; i < g.outputs().size(); ++i) {
    const auto v = g.outputs()[i].value;
    out.push_back(oracle::from_dense(g.type(v).dtype, g.extents(v), arguments.outputs[i].data()));
  }
  return out;
}

// Empty when every output of every candidate is within its bound.
std::string judged(const graph::Graph& g, uint64_t seed, testing::Magnitude magnitude, size_t keep = 4) {
  const auto given = testing::tensors_of(testing::random_inputs(g, seed, magnitude));
  const auto expected = oracle::evaluate_with_bounds(g, given);
  if (!expected) return "";  // over the evaluator's limits
  Options options = test_options();
  options.keep = keep;
  if (seed % 2 == 1) options.tile = 1 + static_cast<int64_t>(seed / 2 % 5);  // loops and tails everywhere
  auto all = candidates(g, options);
  if (!all) return render(all.errors(), nullptr);
  for (const Candidate& c : *all) {
    const auto got = interpret(g, c.program, given);
    for (size_t i = 0; i < got.size(); ++i)
      if (const auto d = oracle::compare(got[i], (*expected)[i]); !d.ok())
        return c.summary + " output " + std::to_string(i) + ": " + d.text + "\n" + graph::print(g) +
               itgraph::print(c.it) + tile::print(c.program);
  }
  return "";
}

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
