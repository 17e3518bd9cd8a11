// The meaning of tile programs: runs one on host memory, slowly and obviously, one element at a time.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/diagnostic.hpp"
#include "tile/tile.hpp"

namespace cleave::oracle {

// Memory of the arguments: dense row-major, one span a tensor. Inputs, constants and outputs are indexed by the
// `argument` of their buffers. Scratch and workspace start as NaN (integers: all ones), so that a read of what was
// never written shows.
struct TileArguments {
  std::vector<std::span<const std::byte>> inputs, constants;
  std::vector<double> scalars;
  std::vector<std::span<std::byte>> outputs;
  std::vector<int64_t> extents = {};  // of the program's dims
};

struct TileOptions {
  // Every real result rounded to its compute type (f32 for f32, f16 and bf16), as machine code does; else float64.
  bool round = true;
  int64_t max_bytes = int64_t{1} << 34;  // of workspace, packed and scratch buffers together
  double max_steps = 0x1p42;             // expression nodes, multiplications and loop iterations
};

// Runs all kernels, `once` kernels first, and returns what is wrong: a program that breaks the laws or has unbound
// extents, arguments that are missing or have the wrong size, an access that leaves its buffer, too much memory or
// work.
Diagnostics try_run(const tile::Program& program, const TileArguments& arguments, const TileOptions& options = {});

// The same for programs of our own making: anything wrong is an internal error.
void run(const tile::Program& program, const TileArguments& arguments, const TileOptions& options = {});

}  // namespace cleave::oracle
