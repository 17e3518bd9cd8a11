// Graph -> index form.
//
// A graph is cut into regions: connected parts made of operators that the algebra understands. What it does not
// understand (gathers, windows, scans, selections, reshapes without a common factorisation, ...) is a barrier: it stays
// a graph node, and regions end at its operands and begin at its results. Large graphs are also cut at narrow places.
#pragma once

#include <span>

#include "algebra/form.hpp"

namespace cleave::algebra {

struct ReadOptions {
  size_t max_region_nodes = 48;  // a region with more is cut where the fewest values cross
  bool rounding_free = true;     // in graphs with f16 or bf16 inputs, explicit roundings between reals may move
};

struct Root {
  graph::ValueId value;  // what the region has to compute
  TermId term;
  Axes axes;
};

// A barrier node, or a region with its roots.
struct Step {
  graph::NodeId barrier;
  std::vector<Root> roots;  // empty for a barrier
};

struct Program {
  const graph::Graph* graph;
  std::shared_ptr<Form> form;  // shared by all regions
  std::vector<Step> steps;     // operands before users
};

Program read(const graph::Graph& graph, const ReadOptions& options = {});

// Builds a graph with the leaves and outputs of program.graph, its regions computing `roots[step]` (empty: their own).
graph::Graph emit(const Program& program, const std::vector<std::vector<Root>>& roots = {});

}  // namespace cleave::algebra
