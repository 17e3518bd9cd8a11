// The graph language: what is printed reads back as the same graph, and errors say where they are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/graph.hpp"

namespace cleave::graph {
namespace {

using ::testing::HasSubstr;

Graph parsed(const std::string& text) {
  const SourceText source{"test.graph", text};
  auto g = parse(source);
  EXPECT_TRUE(g.ok()) << (g.ok() ? "" : render(g.errors(), &source));
  return std::move(g).value();
}

std::string errors_of(const std::string& text) {
  const SourceText source{"test.graph", text};
  const auto g = parse(source);
  return g.ok() ? "" : render(g.errors(), &source);
}

TEST(GraphText, PrintedGraphsReadBackEqual) {
  const Graph g = parsed(R"(
graph attention {
  dim S in 0..4096
  input Q: f32[16, S, 64]
  input K: f32[16, S, 64]
  const W: bf16[2, 2] = [1, -0.5, inf, nan]
  const V: f16[3] = normal(seed=7, scale=0.5)
  scalar c: f32
  T = mul(contract("b s d, b l d -> b s l", Q, K), c)
  A, B = split(T, axis=0, sizes=[4, 12])
  M = where(lt(iota(shape=[S, S], axis=0, dtype=i64), iota(shape=[S, S], axis=1, dtype=i64)), -inf, A)
  P = softmax(M, axis=-1, empty="zero")
  output P
  output "b/0" = slice(B, axes=[1], starts=[S - 1], stops=[-1], steps=[-1])
})");
  const std::string text = print(g);
  const Graph again = parsed(text);
  EXPECT_EQ(print(again), text);
  EXPECT_TRUE(equal(g, again));
  EXPECT_TRUE(verify(g).empty());
  EXPECT_EQ(g.outputs().size(), 2u);
}

TEST(GraphText, EqualNodesAreOneNode) {
  const Graph g = parsed("graph g {\n  input X: f32[3]\n  A = exp(X)\n  B = exp(X)\n  output A\n  output B\n}");
  EXPECT_EQ(g.outputs()[0].value, g.outputs()[1].value);
}

TEST(GraphText, LiteralsTakeTheDtypeOfTheOtherOperand) {
  const Graph g = parsed(
      "graph g {\n  input X: f16[3]\n  input I: i32[3]\n  output A = mul(X, 0.5)\n  output B = add(I, 1)\n  output C = "
      "mul(I, 0.5)\n}");
  EXPECT_EQ(g.type(g.outputs()[0].value).dtype, DType::f16);
  EXPECT_EQ(g.type(g.outputs()[1].value).dtype, DType::i32);
  EXPECT_EQ(g.type(g.outputs()[2].value).dtype, DType::f32);
}

TEST(GraphText, AllErrorsAreReportedWithTheirPlaces) {
  const std::string e = errors_of(
      "graph g {\n  input X: f32[2, 3]\n  A = foo(X)\n  B = add(A, X)\n  C = softmax(X, axis=5)\n  D = contract(\"a b, "
      "c -> a\", X)\n  output Z\n}");
  EXPECT_THAT(e, HasSubstr("test.graph:3:7: error[CLV2001]: the operator `foo` is not known"));
  EXPECT_THAT(e, HasSubstr("test.graph:5:7: error[CLV2007]"));
  EXPECT_THAT(e, HasSubstr("test.graph:6:7: error[CLV2004]"));
  EXPECT_THAT(e, HasSubstr("test.graph:7:10: error[CLV2002]: `Z` is not defined here"));
  EXPECT_THAT(e, ::testing::Not(HasSubstr("`A` is not defined")));
}

TEST(GraphText, HostileTextsAreRefusedWithoutHarm) {
  EXPECT_THAT(errors_of("graph g {\n  input X: f32[1099511627776, 1099511627776]\n  output X\n}"),
              HasSubstr("CLV2012"));
  EXPECT_THAT(errors_of("graph g {\n  input X: f32[99999999999999999999]\n  output X\n}"), HasSubstr("CLV1004"));
  EXPECT_THAT(errors_of("graph g {\n  output X = " + std::string(100000, '(') + "\n}"), HasSubstr("error"));
  std::string deep = "X";
  for (int i = 0; i < 5000; ++i) deep = "exp(" + deep;
  EXPECT_THAT(errors_of("graph g {\n  input X: f32\n  output Y = " + deep + "\n}"), HasSubstr("CLV1005"));
  EXPECT_THAT(errors_of(""), HasSubstr("CLV1001"));
  EXPECT_THAT(errors_of("graph g {"), HasSubstr("error"));
  EXPECT_THAT(errors_of("graph g {\n}"), HasSubstr("CLV2011"));
}

TEST(GraphText, BindingGivesConstantShapes) {
  const Graph g =
      parsed("graph g {\n  dim S in 1..10\n  input X: f32[S, 4]\n  output Y = reshape(X, shape=[2 * S, 2])\n}");
  const auto b = bind(g, {{"S", 5}});
  ASSERT_TRUE(b.ok());
  EXPECT_EQ(b->extents(b->outputs()[0].value), (std::vector<int64_t>{10, 2}));
  EXPECT_FALSE(bind(g, {{"S", 11}}).ok());
  EXPECT_FALSE(bind(g, {{"T", 1}}).ok());
}

}  // namespace
}  // namespace cleave::graph
