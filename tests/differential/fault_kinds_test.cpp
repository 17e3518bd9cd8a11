// Faults that compilers of this kind have had, as the smallest graph that shows each: every one is compiled (fused and
// unfused) and judged by the evaluator at four magnitudes, special values among them, and in random layouts.
#include <gtest/gtest.h>

#include "differential/judge.hpp"

namespace cleave {
namespace {

struct Kind {
  const char* name;
  const char* text;
  // NaN under a mask may reach a row or not, as tiles fall (docs/graph.md): only finite inputs are tried.
  bool finite = false;
};

const Kind kKinds[] = {
    {"causal rows without keys", R"(graph g {
  input Q: f32[1, 1, 34, 8]
  input K: f32[1, 1, 1, 8]
  input V: f32[1, 1, 1, 8]
  O, lse = sdpa(Q, K, V, causal="end", empty="zero", lse=true)
  output O
  output lse
})"},
    {"a window mask whose first key tiles are all masked", R"(graph g {
  input Q: f32[600, 4]
  input K: f32[600, 4]
  input V: f32[600, 4]
  s = iota(shape=[600, 600], axis=0, dtype=i64)
  l = iota(shape=[600, 600], axis=1, dtype=i64)
  inside = logical_and(le(l, s), gt(l, sub(s, 10)))
  S = where(inside, contract("s d, l d -> s l", Q, K), -inf)
  m, u, v = scaled_reduce("s l -> s | -> s | l e -> s e", S, V)
  output O = div(v, unsqueeze(u, axes=[1]))
})",
     true},
    {"a row masked with the most negative finite number", R"(graph g {
  input S: f32[4, 3]
  output P = softmax(add(S, -340000000000000000000000000000000000000.0), axis=1)
})"},
    {"log-softmax narrower than a vector", R"(graph g {
  input X: f32[4, 3]
  input Y: f32[4, 1]
  output A = log_softmax(X, axis=1)
  output B = log_softmax(Y, axis=1)
})"},
    {"products and sums over nothing", R"(graph g {
  input A: f32[4, 0]
  input B: f32[0, 4]
  output C = contract("m k, k n -> m n", A, B)
  output S = sum(A, axes=[1])
  output M = amax(A, axes=[1])
  output N = mean(A, axes=[1])
})"},
    {"an empty axis beside the reduced one", "graph g {\n  input X: f32[3, 4, 0, 5]\n  output S = sum(X, axes=[1])\n}"},
    {"the sum of a scalar",
     "graph g {\n  input X: f32\n  output S = sum(X, axes=[0])\n  output T = sum(X, axes=[-1])\n}"},
    {"rows that are no multiple of a tile", R"(graph g {
  input A: f32[17, 13]
  input B: f32[13, 9]
  output C = contract("m k, k n -> m n", A, B)
})"},
    {"odd reduction widths", R"(graph g {
  input A: f32[3, 96]
  input B: f32[3, 100]
  input C: f32[3, 127]
  output X = rms_norm(A, axes=[1])
  output Y = rms_norm(B, axes=[1])
  output Z = rms_norm(C, axes=[1])
})"},
    {"all elements are written",
     "graph g {\n  input A: f32[1000]\n  input B: f32[1000]\n  D = mul(add(A, B), 2.0)\n  output D\n  output E = "
     "add(D, A)\n}"},
    {"argmin of a transposed tensor", R"(graph g {
  input X: f32[3, 5]
  output I = argmin(add(transpose(X, perm=[1, 0]), 0.5), axis=0)
})"},
    {"floor division and modulo of negative numbers", R"(graph g {
  i = sub(iota(shape=[8], axis=0, dtype=i64), 3)
  output Q = floordiv(i, 4)
  output R = mod(i, 4)
})"},
    {"functions that do not cancel", R"(graph g {
  input X: f32[7]
  output A = log(exp(X))
  output B = sqrt(square(X))
  output C = add(X, mul(X, 0.0))
})"},
    {"maxima and positions of NaN", R"(graph g {
  input X: f32[5, 33]
  output M = amax(X, axes=[1])
  output I = argmax(X, axis=1)
})"},
    {"a narrow sum keeps wide partial sums", R"(graph g {
  input A: f16[16, 2048]
  input B: f16[2048, 16]
  output C = contract("m k, k n -> m n", A, B)
})"},
    {"a pair of casts rounds",
     "graph g {\n  input X: f32[50]\n  y = cast(cast(X, dtype=f16), dtype=f32)\n  output Y = y\n  output S = sum(y, "
     "axes=[0])\n}"},
    {"a large mean with a small spread", R"(graph g {
  const X: f32[2, 4] = [80000, 80001, 80002, 80003, 10000, 10000.001, 10000.002, 9999.999]
  output Y = layer_norm(X, axes=[1])
})"},
    {"scales that broadcast", R"(graph g {
  input X: f32[4, 8]
  input a: f32[1]
  input b: f32[8]
  input c: f32[4, 8]
  input d: f32
  output A = rms_norm(X, a, axes=[1])
  output B = rms_norm(X, b, axes=[1])
  output C = rms_norm(X, c, axes=[1])
  output D = rms_norm(X, d, axes=[1])
})"},
    {"outputs keep their order", R"(graph g {
  input X: f32[4, 4]
  input A: f32[4, 4]
  input B: f32[4, 4]
  output second = contract("m k, k n -> m n", X, B)
  output first = contract("m k, k n -> m n", X, A)
})"},
    {"one row is no broadcast", R"(graph g {
  input X: f32[1, 6]
  input W: f32[6, 16]
  output Y = contract("m k, k n -> m n", rms_norm(X, axes=[1]), W)
})"},
    {"a group of one head, and of all heads", R"(graph g {
  input Q: f32[1, 4, 3, 8]
  input K: f32[1, 4, 5, 8]
  input k: f32[1, 1, 5, 8]
  output A = sdpa(Q, K, K)
  output B = sdpa(Q, k, k)
})"},
    {"a function after a product", R"(graph g {
  input A: f32[5, 7]
  input B: f32[7, 3]
  output C = exp(contract("m k, k n -> m n", A, B))
})"},
    {"nested gates",
     "graph g {\n  input X: f32[33]\n  output A = silu(silu(X))\n  output B = silu(exp(X))\n  output C = "
     "softmax(softmax(X, axis=0), axis=0)\n}"},
    {"operands of one shape", R"(graph g {
  input A: f32[6, 6]
  input B: f32[6, 6]
  input C: f32[6, 6]
  output X = add(A, C)
  output Y = add(B, B)
  output Z = contract("m k, k n -> m n", A, C)
  output W = contract("m k, k n -> m n", B, B)
})"},
    {"one tensor as both operands of a product", R"(graph g {
  input X: f32[9, 5]
  output G = contract("s d, t d -> s t", X, X)
})"},
    {"a page longer than the sequences", R"(graph g {
  input cache: f32[8, 3]
  const indptr: i32[3] = [0, 1, 2]
  const pages: i32[2] = [1, 0]
  const lengths: i32[2] = [1, 1]
  output Y = paged(cache, indptr, pages, lengths, page=4, max=[4])
})"},
};

// Long enough that every schedule loops over tiles of keys: a row meets tiles that are masked altogether before its
// own.
TEST(FaultKinds, EachIsRightFusedAndUnfused) {
  const Machine machine = host_machine();
  const jit::Target target = jit::host_target();
  for (const Kind& k : kKinds) {
    const SourceText source{k.name, k.text};
    const auto g = graph::parse(source);
    ASSERT_TRUE(g.ok()) << render(g.errors(), &source);
    for (uint64_t seed = 0; seed < 8; ++seed) {
      if (k.finite && static_cast<testing::Magnitude>(seed % 4) == testing::Magnitude::special) continue;
      const std::string wrong = testing::judged(*g, seed, machine, target);
      EXPECT_EQ(wrong, "") << k.name << ", seed " << seed;
      if (!wrong.empty()) break;
    }
  }
}

// A compiled program is a function of its graph alone: what was compiled before it does not matter.
TEST(FaultKinds, CompilingInAnotherOrderGivesTheSameCode) {
  auto code = [](const Kind& k) {
    const SourceText source{k.name, k.text};
    schedule::Options options;
    options.machine = host_machine();
    const auto all = schedule::candidates(graph::expand(graph::parse(source).value()), options);
    return jit::build(all.value().front().program).value().vec_text();
  };
  const std::string first = code(kKinds[1]);
  code(kKinds[7]);
  EXPECT_EQ(code(kKinds[1]), first);
}

}  // namespace
}  // namespace cleave
