// The scheduling phase: a stabilised graph with constant shapes -> runnable tile programs, ranked by predicted time.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.hpp"
#include "itgraph/itgraph.hpp"
#include "machine/machine.hpp"
#include "tile/tile.hpp"

namespace cleave::schedule {

struct Options {
  Machine machine;
  int threads = 1;
  size_t keep = 8;   // candidates returned
  int64_t tile = 0;  // not 0: try this size for every index and the default ones (small tiles bring out edges)
};

struct KernelEstimate {
  std::string name;
  double flops = 0;    // useful arithmetic, two per multiply-add
  double bytes = 0;    // compulsory memory traffic
  double seconds = 0;  // predicted
};

struct Candidate {
  std::string summary;  // how it is cut and tiled, in one line
  itgraph::Program it;
  tile::Program program;
  std::vector<KernelEstimate> kernels;
  double seconds = 0;  // predicted, once-kernels excluded
};

// One good kernel per contraction and one per maximal elementwise-plus-reduction chain: the yardstick of every result.
// The graph must be expanded (no composites) and have constant shapes; errors are diagnostics 5xxx.
// Inputs, constants and outputs of the program are numbered like graph.leaves(Op::input), leaves(Op::constant),
// leaves(Op::scalar) and outputs().
Result<Candidate> unfused(const graph::Graph& graph, const Options& options);

// Fused schedules (and the unfused one), best predicted first; at least one.
Result<std::vector<Candidate>> candidates(const graph::Graph& graph, const Options& options);

}  // namespace cleave::schedule
