// Certificates: the steps from an input graph to a found one, each with its whole graph, as JSON that src/check reads.
#pragma once

#include <string>
#include <vector>

#include "algebra/search.hpp"

namespace cleave::algebra {

// The certificate of graph number `which` of the search's result. The search is run again (same seed, same graphs).
Result<std::string> certificate(const graph::Graph& graph, size_t which, SearchOptions options = {});
// Of every graph that the search finds, in its order.
Result<std::vector<std::string>> certificates(const graph::Graph& graph, SearchOptions options = {});

}  // namespace cleave::algebra
