// The part of a graph that some elements of an output need.
//
// A box of an output is followed backwards to a box of every value and of every leaf; what comes out is a smaller graph
// that computes exactly that box. So a few rows of a large result cost a few rows of work. Axes along which an operator
// mixes elements (reductions, scans, reshapes that do not merge or split axes evenly, ...) are kept whole; so is what
// is gathered along, unless the positions are known.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "graph/graph.hpp"

namespace cleave::tune {

// Per axis the half-open interval [lo, hi).
struct Box {
  std::vector<int64_t> lo, hi;
  bool operator==(const Box&) const = default;
};

struct Restricted {
  graph::Graph graph;              // one output; constants have become inputs; all leaves are inputs or scalars
  std::vector<graph::ValueId> of;  // for each leaf of `graph` in order: the leaf of the original graph
  std::vector<Box> boxes;          // and the part of it that is read
};

// The least and the largest element of a part of an integer value, where the data says what that is.
using Positions = std::function<std::optional<std::pair<int64_t, int64_t>>(graph::ValueId, const Box&)>;

// `graph` consists of primitives and has constant shapes.
Restricted restrict_to(const graph::Graph& graph, size_t output, const Box& box, const Positions& positions = {});
Restricted restrict_value(const graph::Graph& graph, graph::ValueId value, const Box& box,
                          const Positions& positions = {});

// Multiplications and element visits that evaluating the graph takes, roughly.
double evaluation_steps(const graph::Graph& graph);

}  // namespace cleave::tune
