// What is exported reads back as a graph that computes the same.
#include "frontend/onnx_export.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.hpp"
#include "eval/graph_eval.hpp"
#include "frontend/onnx.hpp"

namespace cleave {
namespace {

graph::Graph parsed(const std::string& text) {
  const SourceText source{"e.graph", text};
  auto g = graph::parse(source);
  EXPECT_TRUE(g.ok()) << (g.ok() ? "" : render(g.errors(), &source));
  return std::move(*g);
}

std::vector<oracle::Tensor> run(const graph::Graph& g, uint64_t seed) {
  std::map<std::string, oracle::Tensor> inputs;
  Rng rng(seed);
  for (graph::ValueId v : oracle::given_leaves(g)) {
    oracle::Tensor t = oracle::zeros(g.type(v).dtype, g.extents(v));
    for (int64_t i = 0; i < t.elements(); ++i) t.set(i, t.real() ? rng.normal() : static_cast<double>(rng.below(2)));
    inputs.emplace(g.value(v).name, std::move(t));
  }
  auto r = oracle::evaluate(g, inputs);
  EXPECT_TRUE(r.ok()) << (r.ok() ? "" : render(r.errors(), nullptr)) << print(g);
  return r.ok() ? std::move(*r) : std::vector<oracle::Tensor>{};
}

void expect_round_trip(const graph::Graph& g, const std::map<std::string, int64_t>& dims) {
  const OnnxExport e = export_onnx(g);
  ASSERT_EQ(e.why_not, "") << print(g);
  auto back = import_onnx(e.model, "exported", "", {.dims = dims});
  ASSERT_TRUE(back.ok()) << render(back.errors(), nullptr) << print(g);
  auto bound = graph::bind(g, dims);
  ASSERT_TRUE(bound.ok());
  const auto want = run(*bound, 3), got = run(*back, 3);
  ASSERT_EQ(want.size(), got.size());
  for (size_t i = 0; i < want.size(); ++i) {
    const auto d = oracle::compare(got[i], want[i], 1e-6, 1e-6);
    EXPECT_TRUE(d.ok()) << d.text << print(g) << print(*back);
  }
}

TEST(OnnxExport, WhatIsWrittenReadsBackAndComputesTheSame) {
  const char* const kBodies[] = {
      "  output Y = softmax(add(contract(\"b i k, k n -> b i n\", X, W), c), axis=2)",
      "  m, u = scaled_reduce(\"b i k -> b i | -> b i\", X)\n  output Y = unscale(u, m)",
      "  output Y = mul(X, extent(of=[K], dtype=f32))",
      "  output Y = sum(where(lt(iota(shape=[2, I, K], axis=1, dtype=i64), 2), X, -1.5), axes=[-1], keepdims=true)",
      "  G, H = split(contract(\"b i k, k n -> b i n\", X, concat(W, W, axis=1)), axis=2, sizes=[4, 4])\n  output Y = "
      "mul(silu(G), H)",
      "  a, b = moments(X, axes=[2])\n  output Y = add(a, b)",
      "  output Y = transpose(reshape(X, shape=[2, I * K]), perm=[1, 0])",
      "  output Y = unsqueeze(slice(X, axes=[2], starts=[1], stops=[K]), axes=[1])",
      "  output Y = quot0(X, relu(X))\n  output Z = rsqrt(add(square(X), 1.0))\n  output T = gelu_tanh(clamp(X, -1.0, "
      "1.0))",
      "  output Y = contract(\"b i k, z i k -> b i\", X, amax(X, axes=[0], keepdims=true))",
      "  output Y = any(lt(X, 0.5), axes=[1])\n  output Z = cast(all(ne(X, 0.5), axes=[0]), dtype=f32)",
      "  output Y = broadcast(mean(X, axes=[0, 1, 2]), shape=[I, K])",
      "  output Y = argmax(X, axis=1)\n  output Z = argmin(X, axis=-1, keepdims=true)",
      "  v, p = topk(X, k=3, axis=1, largest=false)\n  output v\n  output p",
      "  output Y = cumsum(X, axis=1)\n  output Z = cumsum(X, axis=-1, exclusive=true, reverse=true)",
      "  output Y = pad(X, low=[0, 1, 2], high=[1, 0, 3], value=0.5)\n  output Z = pad(X, low=[0, 1, -1], high=[0, 0, "
      "0])",
      "  output Y = flip(X, axes=[1, 2])",
      "  output Y = mod(cast(mul(X, 9.0), dtype=i64), cast(mul(transpose(X, perm=[0, 1, 2]), 2.0), dtype=i64))"};
  for (const char* body : kBodies) {
    const auto g = parsed(std::string("graph e {\n  dim I in 1..64\n  dim K in 1..64\n  input X: f32[2, I, K]\n  input "
                                      "W: f32[K, 4]\n  const c: f32[4] = "
                                      "normal(seed=3, mean=0.0, scale=1.0)\n") +
                          body + "\n}");
    expect_round_trip(g, {{"I", 3}, {"K", 5}});
  }
}

TEST(OnnxExport, WhatCannotBeWrittenIsNamed) {
  const auto cumulated = parsed("graph e {\n  input X: f32[3]\n  output Y = cummax(X, axis=0)\n}");
  EXPECT_THAT(export_onnx(cumulated).why_not, ::testing::HasSubstr("`cummax`"));
  const auto real = parsed("graph e {\n  input X: f32[3]\n  output Y = mod(X, 2.0)\n}");
  EXPECT_THAT(export_onnx(real).why_not, ::testing::HasSubstr("`mod`"));
  const auto open =
      parsed("graph e {\n  dim I\n  dim J\n  input X: f32[I * J]\n  output Y = reshape(X, shape=[I, J])\n}");
  EXPECT_THAT(export_onnx(open).why_not, ::testing::HasSubstr("the dimension `I`"));
}

}  // namespace
}  // namespace cleave
