// Measures the ceilings of the machine this process runs on, on one thread.
#pragma once

#include <cstdint>

#include "machine/machine.hpp"

namespace cleave::runtime {

// f32 multiply-adds on the widest vectors (or on those of `isa`), two operations each, in GFLOP/s of thread CPU time.
// Takes about 2 ms / `shortness`.
double measure_peak_gflops(int shortness = 1);
double measure_peak_gflops(Isa isa, int shortness = 1);
// Read bandwidth over a working set of so many bytes, GB/s of thread CPU time, huge pages where the system gives them.
double measure_read_gbytes(int64_t bytes);
// Fills in the measured fields but exp_cycles (jit/calibrate.hpp); takes about a second.
Machine measured(Machine machine);

}  // namespace cleave::runtime
