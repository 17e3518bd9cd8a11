// The scheduling phase: a stabilised graph with constant shapes -> runnable tile programs, ranked by predicted time.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.hpp"
#include "itgraph/itgraph.hpp"
#include "machine/machine.hpp"
#include "tile/tile.hpp"

namespace cleave::schedule {

// Tile sizes; a size that does not apply to a group is ignored.
struct Tiling {
  int64_t rows = 64;      // of a product's result, per task
  int64_t columns = 256;  // of a product's result, per task
  int64_t reduce = 128;   // step of a loop over an index that values inside the kernel carry
  int64_t depth = 256;    // step of a loop over an index that only tensors in memory carry
  bool heads = false;     // rows are first of short indices that share the columns (query heads of one key head)
  bool operator==(const Tiling&) const = default;
};

struct Options {
  Machine machine;
  int threads = 1;
  size_t keep = 8;     // candidates returned
  int64_t tile = 0;    // not 0: try this size for every index and the default ones (small tiles bring out edges)
  int64_t part = 0;    // not 0: split every reduction that can be, in parts of this length, beside the usual candidates
  bool every = false;  // all legal candidates, however slow they are predicted to be
  // What may be left out, to see what it brings.
  bool fuse = true;            // contractions in one kernel with what they read or feed
  bool split = true;           // reductions in parts that run in parallel
  bool join = true;            // .. merged in the launch that computes them
  bool pack = true;            // operands of products packed by kernels of their own
  bool panels = true;          // .. into the panels that register tiles read
  bool round_weights = false;  // of softmax rows, to bf16 before a product (graph::products_in)
  bool finish = true;          // false: who takes a candidate calls finish(), as few of them are compiled
};

struct KernelEstimate {
  std::string name;
  double flops = 0;    // useful arithmetic, two per multiply-add
  double bytes = 0;    // compulsory memory traffic
  double seconds = 0;  // predicted
  double work = 0;     // of the flops as the peak of the vector units counts them (cost/estimate.hpp)
};

struct Candidate {
  std::string summary;  // how it is cut and tiled, in one line
  itgraph::Program it;
  tile::Program program;
  std::vector<KernelEstimate> kernels;
  double seconds = 0;  // predicted, once-kernels excluded
  Tiling tiling;
  std::vector<double> parts;  // predicted for each kernel of the itGraph, what packs its operands included
  bool finished = false;
};

// The itGraph holds to the laws (a fault of ours ends here), and the program has symbols of its own: those of the
// search are shared by all candidates, and are many. Nothing where it is finished.
void finish(Candidate& candidate);

// One good kernel per contraction and one per maximal elementwise-plus-reduction chain: the yardstick of every result.
// The graph must be expanded (no composites) and have constant shapes; errors are diagnostics 5xxx.
// Inputs, constants and outputs of the program are numbered like graph.leaves(Op::input), leaves(Op::constant),
// leaves(Op::scalar) and outputs().
Result<Candidate> unfused(const graph::Graph& graph, const Options& options);

// Fused schedules (and the unfused one), best predicted first; at least one.
Result<std::vector<Candidate>> candidates(const graph::Graph& graph, const Options& options);

// A value that is not computed in one kernel with one that it reads, by the names of both, and why.
struct Refusal {
  std::string producer, consumer, why;
  std::vector<std::string> values;  // of the two kernels
};
Result<std::vector<Refusal>> refused_fusions(const graph::Graph& graph);

}  // namespace cleave::schedule
