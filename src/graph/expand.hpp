// Replacing operators by simpler ones, in forms that survive infinities, empty rows and large means.
#pragma once

#include "graph/graph.hpp"

namespace cleave::graph {

// expand(graph), declared in graph.hpp, replaces the composites. This one replaces the stabilised dialect as well
// (scaled_reduce, unscale), so that only primitives are left: the form which the interpreters evaluate.
Graph expand_to_primitives(const Graph& graph);

// As expand(graph), but ragged and paged views stay, as the algebra cannot look into them, and so does a ragged_pack
// when nothing but outputs reads its result, reshaped or as it is: a schedule stores the rows where they belong,
// instead of gathering them afterwards.
Graph expand_for_search(const Graph& graph);
// Replaces these views, which a schedule reads by gathers.
Graph expand_views(const Graph& graph);
// Whether the graph multiplies matrices, and nothing but matrices of this type.
bool products_in(const Graph& graph, DType dtype);
// Whether a node is such a ragged_pack.
std::vector<bool> stored_packs(const Graph& graph);  // by node

}  // namespace cleave::graph
