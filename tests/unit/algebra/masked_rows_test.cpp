// A row that a mask leaves out as a whole stays out, although its softmax would be 0 / 0.
#include <gtest/gtest.h>

#include <limits>

#include "algebra/search.hpp"
#include "support.hpp"

namespace cleave::algebra {
namespace {

TEST(MaskedRows, StayOutOfEveryEqualGraph) {
  const SourceText text{"masked", R"(graph masked {
  input S: f32[2, 2, 3]
  input M: f32[2, 3]
  input V: f32[2, 3, 4]
  T = add(S, M)
  P = softmax(T, axis=-1)
  R = amax(M, axes=[1], keepdims=true)
  N = eq(R, -inf)
  Z = where(N, 0.0, P)
  output Y = contract(Z, V, spec="h s l, h l d -> h s d")
})"};
  const auto g = graph::parse(text);
  ASSERT_TRUE(g.ok()) << render(g.errors(), &text);
  const auto found = search(graph::expand(*g), {});
  ASSERT_TRUE(found.ok());
  ASSERT_FALSE(found->graphs.empty());
  const auto counted = [](std::vector<int64_t> extents) {
    std::vector<double> values(static_cast<size_t>(oracle::product(extents)));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i * 5 % 7) / 2 - 1;
    return oracle::tensor(DType::f32, std::move(extents), std::move(values));
  };
  constexpr double kOut = -std::numeric_limits<double>::infinity();
  const std::map<std::string, oracle::Tensor> inputs{
      {"S", counted({2, 2, 3})},
      {"M", oracle::tensor(DType::f32, {2, 3}, {kOut, kOut, kOut, 0, kOut, 0})},
      {"V", counted({2, 3, 4})}};
  const auto want = oracle::evaluate(*g, inputs);
  ASSERT_TRUE(want.ok());
  for (int h = 0; h < 2; ++h)
    for (int d = 0; d < 4; ++d) EXPECT_EQ((*want)[0].reals[static_cast<size_t>(8 * h + d)], 0);
  for (const Found& f : found->graphs) {
    const auto got = oracle::evaluate(f.graph, inputs);
    ASSERT_TRUE(got.ok());
    for (size_t i = 0; i < 16; ++i)
      EXPECT_NEAR((*got)[0].reals[i], (*want)[0].reals[i], 1e-6) << f.summary << graph::print(f.graph);
  }
}

// A mask that is added may hold whole rows of -inf: nothing says so but the data.
TEST(MaskedRows, OfDataAreZeroOrNanAsTheInputGraphSays) {
  for (const char* empty : {"zero", "nan"})
    for (const char* extra : {"", "  output L = lse\n"}) {
      const SourceText text{"rows", fmt::format(R"(graph rows {{
  input Q: f32[4, 3]
  input K: f32[6, 3]
  input V: f32[6, 2]
  input M: f32[4, 6]
  O, lse = sdpa(Q, K, V, M, lse=true, empty="{}")
  output O
{}}})",
                                                empty, extra)};
      auto g = graph::parse(text);
      ASSERT_TRUE(g.ok()) << render(g.errors(), &text);
      const graph::Graph input = graph::expand(*g);
      std::map<std::string, oracle::Tensor> inputs = test::draw(input, 3);
      for (int64_t i = 0; i < 24; ++i)  // rows 1 and 3 wholly, some of the others
        if (i / 6 % 2 == 1 || i % 5 == 0) inputs.at("M").set(i, -std::numeric_limits<double>::infinity());
      const auto want = test::run(input, inputs);
      EXPECT_EQ(std::isnan(want[0].at(2)), std::string(empty) == "nan");
      size_t graphs = 0;
      const auto judge = [&](const graph::Graph& f) {
        const auto got = test::run(f, inputs);
        for (size_t o = 0; o < want.size(); ++o) {
          const auto d = oracle::compare(got[o], want[o], 1e-9, 1e-9);
          EXPECT_TRUE(d.ok()) << empty << d.text << print(f);
        }
        ++graphs;
      };
      const auto whole = search(input), split = search(input, {.split = "l"});
      ASSERT_TRUE(whole.ok() && split.ok());
      for (const Found& f : whole->graphs) judge(f.graph);
      for (const Found& f : split->graphs) judge(test::bound(f.graph, {{"l_parts", 3}, {"l_part", 2}}));
      EXPECT_GE(graphs, 4u);
    }
}

// One key alone: its exponential cancels with itself, but not where it is exp(-inf), and the row 0.
TEST(MaskedRows, OfOneKeyAreZero) {
  for (const char* output : {"log1p(O)", "mul(add(O, 1.0), 2.0)", "exp(O)", "O"})
    for (const char* keys : {"1", "2"}) {
      const graph::Graph g = test::parsed(fmt::format(R"(graph g {{
  input q: f32[2, 7, 3]
  input k: f32[2, {0}, 3]
  input v: f32[2, {0}, 4]
  O = sdpa(q, k, v, causal="end", empty="zero")
  output Y = {1}
}})",
                                                      keys, output));
      const auto inputs = test::draw(g, 3, 0.1);
      const auto want = test::run(g, inputs);
      const auto found = search(g);
      ASSERT_TRUE(found.ok());
      for (const Found& f : found->graphs) {
        const auto d = oracle::compare(test::run(f.graph, inputs)[0], want[0], 1e-9, 1e-9);
        EXPECT_TRUE(d.ok()) << output << d.text << print(f.graph);
      }
    }
}

}  // namespace
}  // namespace cleave::algebra
