// Replacing operators by simpler ones, in forms that survive infinities, empty rows and large means.
#pragma once

#include "graph/graph.hpp"

namespace cleave::graph {

// expand(graph), declared in graph.hpp, replaces the composites. This one replaces the stabilised dialect as well
// (scaled_reduce, unscale), so that only primitives are left: the form which the interpreters evaluate.
Graph expand_to_primitives(const Graph& graph);

}  // namespace cleave::graph
