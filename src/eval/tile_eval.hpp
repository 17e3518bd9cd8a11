// The meaning of tile programs: runs one on host memory, slowly and obviously, one element at a time.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "tile/tile.hpp"

namespace cleave::oracle {

// Memory of the arguments: dense row-major, one span a tensor. Inputs, constants and outputs are indexed by the
// `argument` of their buffers. Scratch and workspace start as NaN (integers: all ones), so that a read of what was never
// written shows.
struct TileArguments {
  std::vector<std::span<const std::byte>> inputs, constants;
  std::vector<double> scalars;
  std::vector<std::span<std::byte>> outputs;
};

struct TileOptions {
  // Every real result rounded to its compute type (f32 for f32, f16 and bf16), as machine code does; else float64.
  bool round = true;
};

// Runs all kernels, `once` kernels first. CHECKs that no access leaves its buffer.
void run(const tile::Program& program, const TileArguments& arguments, const TileOptions& options = {});

}  // namespace cleave::oracle
