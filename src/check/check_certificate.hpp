// The certificate checker. It shares nothing with the search but the meaning of the operators: every step's graph is
// evaluated against the one before it, on data and extents of the checker's own.
#pragma once

#include <string>
#include <string_view>

#include "graph/graph.hpp"

namespace cleave::check {

struct CheckOptions {
  uint64_t seed = 0x636865636bULL;
  int draws = 3;                   // per step, each with other extents
  int64_t max_elements = 1 << 24;  // of all values of a graph
};

struct CheckReport {
  size_t steps = 0;  // of the derivation; the result is judged after them
  size_t evaluations = 0;
  graph::Graph input, result;
};

// The report of an accepted certificate; errors: certificate_unreadable, or certificate_refused with the step.
Result<CheckReport> check_certificate(std::string_view source, const CheckOptions& options = {});

// Why two graphs do not compute the same; empty where every draw agrees. Both need the same leaves and outputs.
std::string difference(const graph::Graph& a, const graph::Graph& b, const CheckOptions& options,
                       size_t* evaluations = nullptr);

}  // namespace cleave::check
