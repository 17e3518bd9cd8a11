// Contractions side by side: sums of labels, on whole graphs.
//
//   shared operand    X A, X B                 ->  X [A B], taken apart again        (gate and up; Q, K and V)
//   sum of products   X W + T B                ->  [X T] [W; B]                      (LoRA)
//
// Concatenating weights that are constant costs nothing at run time; anything else is charged its copy.
#pragma once

#include <vector>

#include "algebra/search.hpp"

namespace cleave::algebra {

struct SideBySide {
  graph::Graph graph;
  std::vector<Derived> steps;  // with their graphs if these are recorded
  double copied = 0;           // elements that are concatenated at run time, at extents of 256
};

// Ways to put contractions of `graph` side by side: all that cost nothing at once, all at once, and the first few
// alone.
std::vector<SideBySide> side_by_side(const graph::Graph& graph, bool record = false);

}  // namespace cleave::algebra
