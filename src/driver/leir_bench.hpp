// Times of LEIR programs: as they are written, compiled in this process and through C; and raised and optimised.
#pragma once

#include "driver/leir.hpp"
#include "driver/leir_native.hpp"
#include "driver/options.hpp"
#include "runtime/timing.hpp"

namespace cleave::driver {

struct WrittenBench {
  std::vector<NativeLeir> natives;  // jit, C at -O3
  std::vector<NativeCall> calls;    // of those, on the same buffers
  runtime::Comparison comparison;   // of jit (a) with C (b)
};
// Interleaved pairs of both ways, with the same checks; one thread. Errors: an input leads out of bounds.
Result<WrittenBench> bench_written(const leir::Program& program, const std::map<std::string, leir::Array>& inputs,
                                   bool strict, int pairs);

struct RaisedBench {
  double jit_seconds = 0, c_seconds = 0;  // the program as it is written: compiled here, and its C text at -O3
  runtime::Comparison comparison;         // of the optimised program (a) with the faster of those (b)
  std::string schedule;                   // of the optimised program
  double optimise_seconds = 0;
  double bytes = 0;        // of the known variables: what has to be read and written at least
  double dram_gbytes = 0;  // what this machine was measured to read
  double error = 0;        // largest difference of the two outputs, relative to the largest magnitude
};

// The program is raised (constants and parameters are constants of the graph, as weights are, so what is made of them
// only is made at load), optimised (each candidate verified against float64) and timed on one thread against the
// program as it is written, on the same inputs, in `pairs` interleaved pairs. Errors: it does not raise, or the outputs
// differ by more than rounding may explain.
Result<RaisedBench> bench_raised(const LeirRequest& request, const leir::Program& program, const Options& options,
                                 int pairs);

}  // namespace cleave::driver
