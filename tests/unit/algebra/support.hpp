// Graph texts, data and judges that the algebra's tests share.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "base/rng.hpp"
#include "eval/graph_eval.hpp"
#include "graph/graph.hpp"

namespace cleave::algebra::test {

inline graph::Graph parsed(const std::string& text) {
  const SourceText source{"test.graph", text};
  auto g = graph::parse(source);
  EXPECT_TRUE(g.ok()) << (g.ok() ? "" : render(g.errors(), &source));
  return graph::expand(std::move(g).value());
}

inline std::map<std::string, oracle::Tensor> draw(const graph::Graph& g, uint64_t seed, double scale = 1) {
  std::map<std::string, oracle::Tensor> out;
  Rng rng(seed);
  for (graph::ValueId v : oracle::given_leaves(g)) {
    oracle::Tensor t = oracle::zeros(g.type(v).dtype, g.extents(v));
    for (int64_t i = 0; i < t.elements(); ++i)
      t.set(i, t.real() ? scale * rng.normal() : static_cast<double>(rng.between(0, 3)));
    out.emplace(g.value(v).name, std::move(t));
  }
  return out;
}

inline graph::Graph bound(const graph::Graph& g, const std::map<std::string, int64_t>& dims) {
  auto b = graph::bind(g, dims);
  EXPECT_TRUE(b.ok()) << (b.ok() ? "" : render(b.errors(), nullptr));
  return std::move(b).value();
}

inline std::vector<oracle::Tensor> run(const graph::Graph& g, const std::map<std::string, oracle::Tensor>& inputs) {
  auto r = oracle::evaluate(g, inputs);
  EXPECT_TRUE(r.ok()) << (r.ok() ? "" : render(r.errors(), nullptr)) << print(g);
  return r.ok() ? std::move(r).value() : std::vector<oracle::Tensor>{};
}

// Both graphs give the same outputs in float64 on random data at these extents.
inline void expect_same(const graph::Graph& a, const graph::Graph& b, const std::map<std::string, int64_t>& dims,
                        double scale = 1, double relative = 1e-9) {
  const graph::Graph x = bound(a, dims), y = bound(b, dims);
  ASSERT_EQ(x.outputs().size(), y.outputs().size());
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    const auto inputs = draw(x, seed, scale);
    const auto want = run(x, inputs), got = run(y, inputs);
    ASSERT_EQ(want.size(), got.size());
    for (size_t i = 0; i < want.size(); ++i) {
      const auto d = oracle::compare(got[i], want[i], relative, relative);
      EXPECT_TRUE(d.ok()) << d.text << "\n" << print(a) << print(b);
    }
  }
}

inline size_t count(const graph::Graph& g, graph::Op op) {
  size_t n = 0;
  for (graph::NodeId id : g.node_ids()) n += g.node(id).op == op;
  return n;
}

inline std::string text(const graph::Graph& g) { return print(g); }

}  // namespace cleave::algebra::test
