// Predicted time of tile programs on a machine (scheduling.md section 9): arithmetic and memory terms counted over the
// statements, with the machine's measured ceilings. Meant for ranking, in microseconds per program.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "machine/machine.hpp"
#include "tile/tile.hpp"

namespace cleave::cost {

struct KernelEstimate {
  std::string name;
  bool once = false;
  double flops = 0;  // two per multiply-add, one per other element operation
  double work = 0;   // the same, but what the matrix unit does counted as what the vector units could do in its time
  double compute_cycles = 0;
  double memory_bytes = 0;          // each buffer that the kernel touches counted once, scratch apart
  std::array<double, 3> from = {};  // bytes that come from L2, from L3, from memory
  int64_t tasks = 1;
  double seconds = 0;  // on `threads` threads
};

std::vector<KernelEstimate> estimate(const tile::Program& program, const Machine& machine, int threads);

}  // namespace cleave::cost
