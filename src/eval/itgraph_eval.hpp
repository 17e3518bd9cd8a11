// The meaning of itGraphs: runs one tile by tile, slowly and obviously, one element at a time.
//
// Every value is a whole array that starts as NaN with a stamp for each element, so that a read of an element that was
// not computed in the current iteration of the loops around it is an error, whatever the array holds.
#pragma once

#include <vector>

#include "base/diagnostic.hpp"
#include "eval/graph_eval.hpp"
#include "itgraph/itgraph.hpp"

namespace cleave::oracle {

// In the order of the values' `argument`.
struct ItGraphArguments {
  std::vector<Tensor> inputs, constants;
  std::vector<double> scalars;
  std::vector<int64_t> extents = {};  // of the program's dims
};

// The outputs in the order of their `argument`. Reals keep the digits of a double, except where the program rounds
// (casts, literals); with options.round_to_storage every result is rounded to its compute type, and values to their
// dtype when they are read. Errors: a program that breaks the laws, arguments that do not fit, an element that is read
// (or an output's element that is left) without having been computed, indices out of range, too many elements or steps.
Result<std::vector<Tensor>> run(const itgraph::Program& program, const ItGraphArguments& arguments,
                                const EvalOptions& options = {});

}  // namespace cleave::oracle
