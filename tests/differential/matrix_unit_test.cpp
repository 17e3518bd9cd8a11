// Graphs of bf16 on a machine with a matrix unit: schedules that use it are within the bounds of the graph, on the unit
// where there is one and as loops. All that can go wrong at edges: rows, columns and depths that fill no tile, odd
// depths, masks, operands that are made in the kernel, weights that a constant kernel makes.
#include <gmock/gmock.h>

#include "algebra/search.hpp"
#include "judge.hpp"

namespace cleave::testing {
namespace {

struct Case {
  const char* name;
  const char* text;
  bool unit;  // some candidate uses it
};

constexpr Case kCases[] = {
    {"linear",
     R"(graph linear {
  input X: bf16[37, 77]
  const W: bf16[50, 77] = normal(seed=1, scale=0.1)
  output Y = contract("s k, n k -> s n", X, W)
})",
     false},  // an odd depth in memory
    {"linear of an even depth",
     R"(graph linear {
  input X: bf16[37, 78]
  const W: bf16[50, 78] = normal(seed=1, scale=0.1)
  const b: bf16[50] = normal(seed=2, scale=0.1)
  output Y = relu(add(contract("s k, n k -> s n", X, W), b))
})",
     true},
    {"gate and up",
     R"(graph swiglu {
  input X: bf16[6, 64]
  const G: bf16[64, 96] = normal(seed=1, scale=0.1)
  const U: bf16[64, 96] = normal(seed=2, scale=0.1)
  output Y = mul(silu(contract("s k, k n -> s n", X, G)), contract("s k, k n -> s n", X, U))
})",
     true},
    {"a norm before a product",
     R"(graph norm {
  input X: bf16[40, 64]
  const g: bf16[64] = uniform(seed=3, low=0.5, scale=1)
  const W: bf16[64, 70] = normal(seed=1, scale=0.1)
  output Y = contract("s k, k n -> s n", rms_norm(X, g, axes=[1], eps=0.00001), W)
})",
     true},
    {"two products",
     R"(graph chain {
  input X: bf16[45, 34]
  const A: bf16[34, 66] = normal(seed=1, scale=0.1)
  const B: bf16[66, 20] = normal(seed=2, scale=0.1)
  output Y = contract("s m, m n -> s n", contract("s k, k m -> s m", X, A), B)
})",
     true},
    {"attention",
     R"(graph attention {
  input Q: bf16[3, 50, 24]
  input K: bf16[3, 77, 24]
  input V: bf16[3, 77, 40]
  S = mul(contract("b s d, b l d -> b s l", Q, K), 0.25)
  output O = contract("b s l, b l e -> b s e", softmax(S, axis=-1), V)
})",
     true},
    {"causal attention",
     R"(graph causal {
  input Q: bf16[2, 90, 32]
  input K: bf16[2, 90, 32]
  input V: bf16[2, 90, 32]
  S = mul(contract("b s d, b l d -> b s l", Q, K), 0.25)
  i = iota(shape=[90, 90], axis=0, dtype=i64)
  j = iota(shape=[90, 90], axis=1, dtype=i64)
  M = where(le(j, i), S, -inf)
  output O = contract("b s l, b l e -> b s e", softmax(M, axis=-1), V)
})",
     true},
    {"grouped heads",
     R"(graph gqa {
  input Q: bf16[2, 3, 40, 32]
  input K: bf16[2, 60, 32]
  input V: bf16[2, 60, 32]
  S = mul(contract("g r s d, g l d -> g r s l", Q, K), 0.25)
  output O = contract("g r s l, g l e -> g r s e", softmax(S, axis=-1), V)
})",
     true},
    {"products of f32 values that were bf16",
     R"(graph exact {
  input Q: bf16[50, 24]
  input K: bf16[77, 24]
  input V: bf16[77, 40]
  S = contract("s d, l d -> s l", cast(Q, dtype=f32), cast(K, dtype=f32))
  output O = contract("s l, l e -> s e", softmax(S, axis=-1), cast(V, dtype=f32))
})",
     true},
};

// What no program of bf16 rounds: a factor that the search moves from the result onto an operand, sums of operands.
constexpr Case kExact[] = {
    {"a factor behind a product",
     R"(graph factor {
  input A: bf16[48, 18]
  input B: bf16[33, 18]
  output C = relu(mul(contract("m k, n k -> m n", A, B), 0.37))
})",
     true},
    {"a sum of products",
     R"(graph sum {
  input A: bf16[48, 34]
  input D: bf16[48, 34]
  input B: bf16[34, 33]
  output C = add(contract("m k, k n -> m n", A, B), contract("m k, k n -> m n", D, B))
})",
     true},
    {"attention without a softmax",
     R"(graph linear {
  input Q: bf16[77, 64]
  input K: bf16[35, 64]
  input V: bf16[35, 64]
  S = relu(mul(contract("s d, l d -> s l", Q, K), 0.37))
  output O = contract("s l, l e -> s e", S, V)
})",
     true},
    {"scaled attention of heads with 48 elements",
     R"(graph heads {
  input Q: bf16[2, 70, 48]
  input K: bf16[2, 60, 48]
  input V: bf16[2, 60, 48]
  output O = sdpa(Q, K, V, scale=0.37)
})",
     true},
};

bool uses_unit(const graph::Graph& original, const Machine& machine) {
  schedule::Options options;
  options.machine = machine;
  options.round_weights = graph::products_in(original, DType::bf16);
  const auto all = schedule::candidates(graph::expand(original), options).value();
  return std::any_of(all.begin(), all.end(), [](const auto& c) {
    return std::any_of(c.program.buffers.begin(), c.program.buffers.end(),
                       [](const tile::Buffer& b) { return b.pairs; });
  });
}

TEST(MatrixUnitGraphs, AreWithinTheirBounds) {
  Machine machine = host_machine();
  machine.matrix_products = 512;
  std::vector<jit::Target> targets = {jit::host_target()};
  if (host_has_matrix_unit())
    if (auto plain = jit::target_for(Isa::avx2)) targets.push_back(*plain);
  for (const Case& c : kCases) {
    const SourceText source{c.name, c.text};
    const auto g = graph::parse(source);
    ASSERT_TRUE(g.ok()) << render(g.errors(), &source);
    EXPECT_EQ(uses_unit(*g, machine), c.unit) << c.name;
    for (const jit::Target& target : targets)
      for (uint64_t seed = 0; seed < 3; ++seed)
        EXPECT_EQ(judged(*g, seed, machine, target), "") << c.name << ", seed " << seed << "\n" << target.cpu;
  }
}

TEST(MatrixUnitGraphs, EveryCandidateIsWithinTheBounds) {
  Machine machine = host_machine();
  machine.matrix_products = 512;
  for (const Case& c : kExact) {
    const SourceText source{c.name, c.text};
    const auto g = graph::parse(source);
    ASSERT_TRUE(g.ok()) << render(g.errors(), &source);
    EXPECT_EQ(uses_unit(*g, machine), c.unit) << c.name;
    const auto found = algebra::search(graph::expand(*g), {});
    ASSERT_TRUE(found.ok());
    for (const auto& equal : found->graphs)
      for (uint64_t seed = 0; seed < 2; ++seed)
        EXPECT_EQ(judged(*g, seed, machine, jit::host_target(), &equal.graph), "") << c.name << ", seed " << seed;
  }
}

// Weights of an attention that was asked for in f32 keep their digits, whatever its inputs are.
TEST(MatrixUnitGraphs, NothingIsRoundedThatWasNotAskedFor) {
  Machine machine = host_machine();
  machine.matrix_products = 512;
  const auto stored = [&](const Case& c) {
    const graph::Graph g = graph::parse({c.name, c.text}).value();
    schedule::Options options;
    options.machine = machine;
    options.round_weights = graph::products_in(g, DType::bf16);
    size_t narrow = 0;
    for (const auto& candidate : schedule::candidates(graph::expand(g), options).value())
      for (const tile::Buffer& b : candidate.program.buffers)
        narrow += b.dtype == DType::bf16 && (b.place == tile::Place::scratch || b.place == tile::Place::workspace) &&
                  !b.pairs;
    return narrow;
  };
  for (const Case& c : kCases) {
    if (c.name == std::string("attention")) EXPECT_GT(stored(c), 0u);
    if (c.name == std::string("products of f32 values that were bf16")) EXPECT_EQ(stored(c), 0u);
  }
}

}  // namespace
}  // namespace cleave::testing
