// The algebraic phase: every useful graph that computes what the input graph computes, with symbolic extents.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/graph.hpp"

namespace cleave::algebra {

struct SearchOptions {
  uint64_t seed = 1;
  size_t max_values = 5000;   // of one region; beyond, the search stops and says so
  size_t keep = 32;           // graphs returned
  int draws = 2;              // exact evaluations of every operator
  bool rounding_free = true;  // see index_form.hpp
  std::string split;          // an index (its name, or its extent's): graphs whose reductions over it stop half way
  bool merge = true;          // also contractions side by side (side_by_side.hpp)
  bool screen = true;         // drop graphs that are much less accurate than the input (screen.hpp)
  bool record_path = false;   // keep the complete graph after each swap, for certificates
  std::function<bool()> stop = [] { return false; };  // when true, what has been found is all: not saturated
};

// Where a graph leaves the input graph: a value and its old and new producer.
struct Derived {
  std::string rule;
  std::string value, before, after;  // normal form, and producers over normal forms ("" before: a new value)
  std::string graph;                 // with record_path: the whole graph after this swap, not yet stabilised
};

struct Found {
  graph::Graph graph;  // in the stabilised dialect
  std::string summary;
  std::vector<Derived> derivation;
  double cost = 0;      // of the cheapest scenario in which it was found; for ordering only
  bool split = false;   // reductions over the split index stop half way
  bool copies = false;  // it puts values together that are not constant
};

struct SearchResult {
  std::vector<Found> graphs;  // [0] is the input graph, stabilised
  size_t values = 0, producers = 0, applications = 0, refused = 0;
  size_t screened_out = 0;            // found, but too inaccurate
  std::vector<std::string> screened;  // their summaries with the reason
  size_t regions = 0;
  // Reduced extents that may be 0. Graphs other than [0] are for calls in which none of these is 0.
  std::vector<std::string> nonempty;
  bool saturated = true;
  double seconds = 0;
};

// `graph` has no composites (graph::expand). The returned graphs have its leaves and outputs. With options.split the
// extent that is split is a product of two dimensions in all of them (docs/algebra.md); error: no_such_index.
Result<SearchResult> search(const graph::Graph& graph, const SearchOptions& options = {});

// The names of the indices whose reductions may stop half way.
std::vector<std::string> splittable_indices(const graph::Graph& graph);

// The text of a graph with its stored constants as inputs.
std::string open_text(const graph::Graph& graph);

// A line about a graph: its operators with counts.
std::string summarise(const graph::Graph& graph);

}  // namespace cleave::algebra
