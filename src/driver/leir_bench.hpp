// How much faster a LEIR program is when it is raised and optimised.
#pragma once

#include "driver/leir.hpp"
#include "driver/options.hpp"
#include "runtime/timing.hpp"

namespace cleave::driver {

struct RaisedBench {
  double jit_seconds = 0, c_seconds = 0;  // the program as it is written: compiled here, and its C text at -O3
  runtime::Comparison comparison;         // of the optimised program (a) with the faster of those (b)
  std::string schedule;                   // of the optimised program
  double optimise_seconds = 0;
  double error = 0;  // largest difference of the two outputs, relative to the largest magnitude
};

// The program is raised, optimised (each candidate verified against float64) and timed on one thread against the
// program as it is written, on the same inputs, in `pairs` interleaved pairs. Errors: it does not raise, or the outputs
// differ by more than rounding may explain.
Result<RaisedBench> bench_raised(const LeirRequest& request, const leir::Program& program, const Options& options,
                                 int pairs);

}  // namespace cleave::driver
