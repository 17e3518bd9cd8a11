// The measured ceilings of one core with C names, so that bench/run can take them beside its samples.
#include "runtime/calibrate.hpp"

extern "C" double bench_peak_gflops() { return cleave::runtime::measure_peak_gflops(4); }
extern "C" double bench_read_gbytes(int64_t bytes) { return cleave::runtime::measure_read_gbytes(bytes); }
