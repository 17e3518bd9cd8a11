// Infinities, empty rows and large shifts: what stable forms make of them, in every graph that is found.
#include "algebra/search.hpp"
#include "algebra/stabilise.hpp"
#include "support.hpp"

namespace cleave::algebra {
namespace {

using graph::Graph;
using test::parsed;

constexpr double kInf = std::numeric_limits<double>::infinity();

std::string same(const std::vector<oracle::Tensor>& got, const std::vector<oracle::Tensor>& want, double tolerance) {
  for (size_t o = 0; o < want.size(); ++o)
    for (int64_t i = 0; i < want[o].elements(); ++i) {
      const double w = want[o].at(i), g = got[o].at(i);
      if (std::isnan(w) ? std::isnan(g) : std::isinf(w) ? g == w : std::abs(g - w) <= tolerance * (1 + std::abs(w)))
        continue;
      return fmt::format("output {} element {}: {} instead of {}", o, i, g, w);
    }
  return "";
}

const std::vector<std::string>& log_sum_graphs() {
  static const std::vector<std::string> bodies{
      "  output L = logsumexp(X, axes=[1])",
      "  output L = logsumexp(X, axes=[1], keepdims=true)",
      "  output P = log_softmax(X, axis=1)",
      "  output P = softmax(X, axis=1)",
      "  output D = sub(X, logsumexp(X, axes=[1], keepdims=true))",
      "  output P = log_softmax(X, axis=1)\n  output L = logsumexp(X, axes=[1])",
      "  output L = logsumexp(X, axes=[1])\n  output D = sub(X, logsumexp(X, axes=[1], keepdims=true))",
      "  output P = log_softmax(X, axis=1)\n  output L = logsumexp(add(X, amax(X, axes=[1], keepdims=true)), axes=[1])",
      "  output P = log_softmax(add(X, amax(X, axes=[1], keepdims=true)), axis=1)\n  output L = logsumexp(X, axes=[1])",
      "  output L = logsumexp(add(X, Y), axes=[1])",
      "  output L = logsumexp(where(lt(Y, 0.0), X, -inf), axes=[1])",
      "  output L = log(sum(exp(X), axes=[1]))",
      "  output L = mul(logsumexp(mul(X, 2.0), axes=[1]), 0.5)",
      "  output L = logsumexp(sub(X, logsumexp(X, axes=[1], keepdims=true)), axes=[1])",
      "  output M = amax(where(isinf(X), 0.0, exp(X)), axes=[1])"};
  return bodies;
}

TEST(Infinity, LogSumsOfRowsWithInfinitiesAreWhatTheInputGraphSays) {
  for (const std::string& body : log_sum_graphs()) {
    const Graph g = parsed("graph g {\n  input X: f32[6, 5]\n  input Y: f32[6, 5]\n" + body + "\n}");
    auto inputs = test::draw(g, 3);
    oracle::Tensor& x = inputs.at("X");
    for (int64_t k = 0; k < 5; ++k) x.set(k, k == 2 ? kInf : x.at(k));   // +inf among finite numbers
    for (int64_t k = 5; k < 10; ++k) x.set(k, k % 2 ? -kInf : x.at(k));  // some -inf
    for (int64_t k = 10; k < 15; ++k) x.set(k, -kInf);                   // nothing but -inf
    // Both at once, where nothing is added to a row: exp(x + m) = exp(x) exp(m) says inf - inf in another place.
    if (body.find("add(X") == std::string::npos) x.set(15, kInf), x.set(16, -kInf);
    x.set(20, kInf), x.set(21, std::nan(""));  // a NaN as well
    const auto want = test::run(g, inputs);
    const auto r = search(g);
    ASSERT_TRUE(r.ok());
    for (size_t k = 0; k < r->graphs.size(); ++k)
      EXPECT_EQ(same(test::run(r->graphs[k].graph, inputs), want, 1e-9), "")
          << "graph " << k << print(r->graphs[k].graph);
  }
}

TEST(Infinity, LargeShiftsCostNoDigits) {
  for (const std::string& body : log_sum_graphs()) {
    // Overflow in the graph itself, and the rounding of an lse that it stores.
    if (body.find(" exp(X)") != std::string::npos || body.find("(exp(X)") != std::string::npos) continue;
    if (body.find("sub(X, logsumexp") != std::string::npos) continue;
    const Graph g = parsed("graph g {\n  input X: f32[4, 33]\n  input Y: f32[4, 33]\n" + body + "\n}");
    auto inputs = test::draw(g, 5);
    for (auto& [name, t] : inputs)
      for (int64_t i = 0; i < t.elements(); ++i) t.set(i, std::round(8 * t.at(i)) / 8 + (name == "X" ? 30000 : 0));
    const auto want = test::run(g, inputs);
    oracle::EvalOptions stored;
    stored.round_to_storage = true;
    const auto r = search(g);
    ASSERT_TRUE(r.ok());
    for (size_t k = 0; k < r->graphs.size(); ++k) {
      const auto got = oracle::evaluate(r->graphs[k].graph, inputs, stored);
      ASSERT_TRUE(got.ok());
      EXPECT_EQ(same(*got, want, 1e-6), "") << "graph " << k << print(r->graphs[k].graph);
    }
  }
}

TEST(Infinity, ReductionsOverNothingAreWhatTheInputGraphSays) {
  for (const char* body :
       {"  output L = logsumexp(sub(Y, softmax(X, axis=0)), axes=[1])", "  output M = amax(exp(X), axes=[1])",
        "  output M = amin(mul(Y, exp(X)), axes=[1])", "  output M = amax(softmax(X, axis=0), axes=[1])",
        "  output M = amin(softmax(X, axis=1), axes=[1])", "  output L = logsumexp(softmax(X, axis=0), axes=[1])",
        "  output L = logsumexp(log_softmax(X, axis=1), axes=[1])", "  output S = sum(exp(X), axes=[1])",
        "  output S = prod(exp(X), axes=[1])", "  output L = log(sum(mul(exp(X), exp(Y)), axes=[1]))",
        "  output L = div(sum(exp(X), axes=[1]), sum(exp(Y), axes=[1]))",
        "  output M = exp(amax(sub(X, amax(X, axes=[0], keepdims=true)), axes=[1]))"})
    for (const char* extent : {"0", "N"}) {
      const Graph g = parsed(fmt::format(
          "graph g {{\n  dim N in 0..64\n  input X: f32[17, {0}]\n  input Y: f32[17, {0}]\n{1}\n}}", extent, body));
      for (int64_t n : {0, 1, 5}) {
        if (n > 0 && *extent == '0') continue;
        const Graph a = test::bound(g, {{"N", n}}), b = test::bound(stabilise(g), {{"N", n}});
        const auto inputs = test::draw(a, 2);
        EXPECT_EQ(same(test::run(b, inputs), test::run(a, inputs), 1e-9), "") << body << " " << n << print(b);
        const auto r = search(a);
        ASSERT_TRUE(r.ok());
        for (const Found& f : r->graphs)
          EXPECT_EQ(same(test::run(f.graph, inputs), test::run(a, inputs), 1e-9), "") << body << print(f.graph);
      }
    }
}

TEST(Infinity, WhatASelectionLeavesOutIsNotRead) {
  const Graph g = parsed(R"(graph g {
  input X: f32[4, 5]
  input V: f32[4, 5]
  input C: bool[4, 5]
  output S = sum(where(C, mul(exp(X), V), 0.0), axes=[1])
  output P = where(C, softmax(X, axis=1), 0.0)
})");
  auto inputs = test::draw(g, 7);
  for (int64_t i = 0; i < 20; ++i) {
    inputs.at("C").set(i, i % 3 != 0);
    if (i % 3 == 0) inputs.at("V").set(i, i % 2 ? kInf : std::nan(""));
  }
  inputs.at("X").set(6, std::nan(""));
  const auto want = test::run(g, inputs);
  EXPECT_EQ(same(test::run(stabilise(g), inputs), want, 1e-9), "");
  const auto r = search(g);
  ASSERT_TRUE(r.ok());
  for (const Found& f : r->graphs) EXPECT_EQ(same(test::run(f.graph, inputs), want, 1e-9), "") << print(f.graph);
}

}  // namespace
}  // namespace cleave::algebra
