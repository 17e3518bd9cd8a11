// Register tiles of matrix products: which one suits a shape, and how long it takes (cpu.md 2.3). The code generator
// chooses by it and the cost model counts by it.
#pragma once

#include "machine/machine.hpp"

namespace cleave {

// rows x vectors sums in registers.
struct RegisterTile {
  int rows = 1, vectors = 1;
};

// Cycles of a tile over k steps: multiply-adds, loads and latency, and what starting and ending it costs.
double tile_cycles(const Machine& machine, RegisterTile tile, double k);

// Whether the sums, a row of B and an element of A fit; `masks`: and a mask a vector, where masks take registers.
bool tile_fits(const Machine& machine, RegisterTile tile, bool masks);

struct ProductShape {
  int64_t rows, columns;
  double depth;
  int lanes;
  int64_t panel = 0;   // columns of a panel of B; 0: B is row-major
  bool tails = false;  // the last columns do not fill a vector
};
// The cheapest tile for a product.
RegisterTile choose_tile(const Machine& machine, const ProductShape& shape);

// The cheapest tile of one height or another for the `vectors` columns that are left.
RegisterTile choose_tail(const Machine& machine, int64_t rows, int vectors);

}  // namespace cleave
