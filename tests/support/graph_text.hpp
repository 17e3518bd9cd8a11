// Graphs and values for tests, from text.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/rng.hpp"
#include "eval/graph_eval.hpp"

namespace cleave::testing {

constexpr double kInf = std::numeric_limits<double>::infinity();
inline const double kNan = std::numeric_limits<double>::quiet_NaN();

// The body of a graph, without the frame.
inline graph::Graph graph_of(const std::string& body) {
  const SourceText source{"test.graph", "graph g {\n" + body + "\n}"};
  auto g = graph::parse(source);
  if (!g.ok()) ADD_FAILURE() << render(g.errors(), &source);
  return std::move(g).value();
}

inline std::vector<oracle::Tensor> run(const graph::Graph& g, const std::vector<oracle::Tensor>& inputs,
                                       bool round = false) {
  auto r = oracle::evaluate(g, inputs, {.round_to_storage = round});
  if (!r.ok()) ADD_FAILURE() << render(r.errors(), nullptr);
  return std::move(r).value();
}
inline std::vector<oracle::Tensor> run(const std::string& body, const std::vector<oracle::Tensor>& inputs,
                                       bool round = false) {
  return run(graph_of(body), inputs, round);
}

inline oracle::Tensor normal(DType dtype, std::vector<int64_t> extents, uint64_t seed, double scale = 1) {
  oracle::Tensor t = oracle::zeros(dtype, std::move(extents));
  Rng rng(seed);
  for (double& v : t.reals) v = round_to(dtype, scale * rng.normal());
  for (int64_t& v : t.ints) v = wrap_to(dtype, rng.between(-9, 9));
  return t;
}

inline oracle::Tensor real(std::vector<int64_t> extents, std::vector<double> values, DType dtype = DType::f32) {
  return oracle::tensor(dtype, std::move(extents), std::move(values));
}
inline oracle::Tensor integers(std::vector<int64_t> extents, std::vector<double> values, DType dtype = DType::i64) {
  return oracle::tensor(dtype, std::move(extents), std::move(values));
}

}  // namespace cleave::testing

// Fails with the worst element's line when the tensors differ by more.
#define EXPECT_TENSOR_NEAR(got, expected, relative, absolute)                              \
  do {                                                                                     \
    const auto difference_ = ::cleave::oracle::compare(got, expected, relative, absolute); \
    if (!difference_.ok()) ADD_FAILURE() << difference_.text;                              \
  } while (false)
#define EXPECT_TENSOR_EQ(got, expected) EXPECT_TENSOR_NEAR(got, expected, 0, 0)
