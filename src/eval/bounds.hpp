// Float64 evaluation with a running error bound for each element.
//
// The bound holds for any implementation of the same arithmetic that computes f32, f16 and bf16 graphs in f32 (f64
// graphs in f64) with functions good to a few ulp, sums in any order and tree, may keep or store 16-bit intermediates,
// may flush denormals, and may scale exponents by log2 e first. So a test says |got - value| <= bound element by
// element.
//
// An infinite bound means "unknown": the element hangs on a discontinuous function (floor, a comparison, argmax, a cast
// to an integer, the edge of overflow) whose operand is not known on which side it lies. A bound of 0 means exactly
// this value; infinities and NaN have 0 or an infinite bound.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "eval/graph_eval.hpp"

namespace cleave::oracle {

struct Bounded {
  Tensor value;
  std::vector<double> bound;
};

struct BoundOptions {
  // Sums of n terms: by default the worst case, n roundings that all go one way. With `likely`, 8 sqrt(n) of them: what
  // independent roundings keep (with odds of 1e13 to 1), and narrow enough to see a wrong element in long contractions.
  bool likely = false;
  int64_t max_elements = int64_t{1} << 30;
  double max_steps = 0x1p41;
};

Result<std::vector<Bounded>> evaluate_with_bounds(const graph::Graph& graph, std::span<const Tensor> inputs,
                                                  const BoundOptions& options = {});

// compare() against the bounds.
Difference compare(const Tensor& got, const Bounded& expected);

}  // namespace cleave::oracle
