// Evaluation of tile::Node expressions, one point at a time: what the interpreters of tile programs and itGraphs share.
#pragma once

#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "tile/tile.hpp"

namespace cleave::oracle {

// An element: `real` for real dtypes, `integer` for the others.
struct Scalar {
  double real = 0;
  int64_t integer = 0;
};

// Accumulation with add, mul, max, min, logical_and or logical_or in a compute type.
Scalar identity(Fn fn, DType dtype);
Scalar combine(Fn fn, DType dtype, Scalar a, Scalar b, bool round);

class ExpressionEvaluator {
 public:
  using LoadElement = std::function<Scalar(tile::BufferId, std::span<const int64_t>)>;
  // With `round` each real result is rounded to its compute type. Literals and casts are rounded always.
  ExpressionEvaluator(const sym::Pool& syms, LoadElement load, bool round)
      : syms_(syms), load_(std::move(load)), round_(round) {}

  // The values of all nodes, or of those that `live` marks, where the indices have these values.
  void run(std::span<const tile::Node> nodes, const std::vector<bool>& live,
           const std::unordered_map<sym::Expr, int64_t>& indices, std::vector<Scalar>& x);

 private:
  Scalar evaluate(std::span<const tile::Node> nodes, const tile::Node& node,
                  const std::unordered_map<sym::Expr, int64_t>& indices, const std::vector<Scalar>& x);

  const sym::Pool& syms_;
  LoadElement load_;
  bool round_;
  std::vector<int64_t> at_;
};

}  // namespace cleave::oracle
