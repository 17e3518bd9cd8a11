// A reduction in parts gives the same bits on any number of threads, whatever is in the workspace before, and whatever
// else is in the batch.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/thread_pool.hpp"
#include "eval/bounds.hpp"
#include "jit/build.hpp"
#include "schedule/schedule.hpp"
#include "support/random_graph.hpp"

namespace cleave {
namespace {

std::string decode(int64_t batch) {
  return fmt::format(R"(
graph decode {{
  input Q: f32[{0}, 16, 64]
  input K: f32[{0}, 1000, 64]
  input V: f32[{0}, 1000, 32]
  S = contract("b h d, b l d -> b h l", Q, K)
  T = mul(S, 0.125)
  m, u, v = scaled_reduce("b h l -> b h | -> b h | b l e -> b h e", T, V)
  output O = div(v, unsqueeze(u, axes=[2]))
  output lse = add(m, log(u))
}})",
                     batch);
}

struct Compiled {
  jit::Built built;
  graph::Graph graph;
};

Compiled compiled(int64_t batch, int64_t part) {
  const SourceText source{"decode.graph", decode(batch)};
  graph::Graph g = graph::expand(graph::parse(source).value());
  schedule::Options options;
  options.machine = host_machine();
  options.part = part;
  options.keep = 8;
  const auto all = schedule::candidates(g, options).value();
  for (const auto& c : all)
    if (c.summary.find(fmt::format("parts of {}", part)) != std::string::npos)
      return {jit::build(c.program).value(), std::move(g)};
  ADD_FAILURE() << "no candidate has parts of " << part;
  return {jit::build(all[0].program).value(), std::move(g)};
}

using Floats = std::vector<float>;

// O and lse, one after the other.
Floats run(const jit::Built& built, const Floats& q, const Floats& k, const Floats& v, int64_t batch,
           Executor& executor) {
  Floats o(static_cast<size_t>(batch * 16 * 32), NAN), lse(static_cast<size_t>(batch * 16), NAN);
  auto view = [](const Floats& x, std::vector<int64_t> shape) {
    return jit::TensorView{const_cast<float*>(x.data()), DType::f32, std::move(shape), {}};
  };
  const jit::TensorView inputs[] = {view(q, {batch, 16, 64}), view(k, {batch, 1000, 64}), view(v, {batch, 1000, 32})};
  const jit::TensorView outputs[] = {view(o, {batch, 16, 32}), view(lse, {batch, 16})};
  runtime::Buffer workspace(built.workspace_bytes());
  std::memset(workspace.data(), 0xff, static_cast<size_t>(built.workspace_bytes()));  // NaN
  jit::RunOptions options;
  options.executor = &executor;
  options.workspace = workspace.data();
  const auto constants = built.bind_constants({}).value();
  const Diagnostics bad = built.run(inputs, {}, outputs, constants, options);
  EXPECT_TRUE(bad.empty()) << render(bad, nullptr);
  o.insert(o.end(), lse.begin(), lse.end());
  return o;
}

Floats random(int64_t n, int seed) {
  Floats out(static_cast<size_t>(n));
  testing::Choices choices(static_cast<uint64_t>(seed));
  uint64_t x = static_cast<uint64_t>(seed) * 2654435761u + 1;
  for (float& f : out) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    f = static_cast<float>(static_cast<int64_t>(x >> 33) % 2000 - 1000) / 500.0F;
  }
  return out;
}

bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(Split, BitsDependNeitherOnThreadsNorOnTheBatch) {
  const Floats q = random(3 * 16 * 64, 1), k = random(int64_t{3} * 1000 * 64, 2), v = random(int64_t{3} * 1000 * 32, 3);
  SerialExecutor serial;
  Floats whole;
  for (const int64_t part : {1000, 500, 334, 143, 125, 64}) {
    const Compiled three = compiled(3, part), one = compiled(1, part);
    const Floats expected = run(three.built, q, k, v, 3, serial);
    for (const int threads : {2, 3, 7}) {
      ThreadPool pool(threads);
      for (int repeat = 0; repeat < 3; ++repeat)
        EXPECT_TRUE(same_bits(run(three.built, q, k, v, 3, pool), expected)) << part << " on " << threads;
    }
    // The first request alone.
    const Floats alone = run(one.built, q, k, v, 1, serial);
    EXPECT_EQ(std::memcmp(alone.data(), expected.data(), 16 * 32 * sizeof(float)), 0) << part;
    EXPECT_EQ(std::memcmp(alone.data() + 16 * 32, expected.data() + 3 * 16 * 32, 16 * sizeof(float)), 0) << part;
    // Other lengths are equal within rounding, the log of the sum within 1e-6 of its size.
    if (whole.empty()) whole = expected;
    for (size_t i = 0; i < whole.size(); ++i)
      EXPECT_NEAR(expected[i], whole[i], i < 3 * 16 * 32 ? 2e-5 : 1e-6 * std::abs(whole[i]) + 1e-6) << part << " " << i;
  }
}

}  // namespace
}  // namespace cleave
