// Graph -> index form.
//
// A graph is cut into regions: connected parts made of operators that the algebra understands. What it does not
// understand (gathers, windows, scans, selections, reshapes without a common factorisation, ...) is a barrier: it stays
// a graph node, and regions end at its operands and begin at its results. Large graphs are also cut at narrow places.
#pragma once

#include <optional>
#include <set>
#include <span>

#include "algebra/form.hpp"

namespace cleave::algebra {

struct ReadOptions {
  size_t max_region_nodes = 48;  // a region with more is cut where the fewest values cross
  bool rounding_free = true;     // in graphs with f16 or bf16 inputs, explicit roundings between reals may move
  int split = -1;                // an axis class (Splittable) to read as a pair: which part, and where in the part
  std::set<graph::ValueId> cuts = {};  // regions end at these values too
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

// The two labels that a split index has become. Its axes have the extent parts * part, which takes the place of the
// extent in the whole graph (docs/algebra.md).
struct Split {
  std::string name;
  uint32_t parts, part;
  sym::Expr replaced;  // the dimension that no shape has any more; none if the extent was a number
};

struct Program {
  const graph::Graph* graph;
  std::shared_ptr<Form> form;  // shared by all regions
  std::vector<Step> steps;     // operands before users
  std::optional<Split> split;
  std::map<uint32_t, graph::Shape> shapes;  // of values, where a split changed them
  std::vector<int> label_class;             // the axis class of each label
  std::map<int, std::string> kept;          // axis classes that a barrier sees, and its operator

  const graph::Shape& shape(graph::ValueId v) const {
    const auto it = shapes.find(v.index);
    return it == shapes.end() ? graph->type(v).shape : it->second;
  }
};

Program read(const graph::Graph& graph, const ReadOptions& options = {});

// An index that is reduced somewhere, and whether its reductions may stop half way: every operator of the algebra that
// removes an index is associative, so an index can be split unless a barrier sees it.
struct Splittable {
  std::string name;     // of the label
  std::string extent;   // as the graph says it
  int axis_class = -1;  // for ReadOptions::split
  std::string why_not;  // empty: it can be split
};
std::vector<Splittable> splittable(const Program& program);

// Builds a graph with the leaves and outputs of program.graph, its regions computing `roots[step]` (empty: their own).
graph::Graph emit(const Program& program, const std::vector<std::vector<Root>>& roots = {});

}  // namespace cleave::algebra
