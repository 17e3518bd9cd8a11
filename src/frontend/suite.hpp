// Suites: many graphs in one JSON file, in the format of tests/data/subgraphs.json (docs/suite.md).
//
// A row is a graph over named indices: inputs with their indices, nodes in order (einsum, reductions, scales, masks,
// elementwise operators), outputs. Each index has an extent, a dimension of the graph; `points` are bindings of these.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.hpp"

namespace cleave {

struct SuitePoint {
  std::string group;  // "cpu/decode", "cpu_irregular", ..
  std::map<std::string, int64_t> dims;
};

struct SuiteRow {
  std::string name;
  graph::Graph graph;                          // f32, with symbolic extents and no composites
  std::vector<std::string> constants;          // inputs that are the same in every call
  std::map<std::string, std::string> indices;  // of the file: the dimension that each has
  std::vector<SuitePoint> points;
};

// The rows of `subgraphs`, then those of `alternates`. Errors: suite_malformed, naming the row and what is wrong with
// it.
Result<std::vector<SuiteRow>> read_suite(std::string_view text);

}  // namespace cleave
