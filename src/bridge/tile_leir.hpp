// Tile programs as LEIR.
#pragma once

#include <map>

#include "leir/program.hpp"
#include "tile/tile.hpp"

namespace cleave::bridge {

struct TileAsLeir {
  std::string comments;  // `#` lines: what the variables are, and layouts, which LEIR has not
  leir::Syntax syntax;
  std::map<std::string, std::string> names;  // of inputs, constants, scalars and outputs: buffer -> variable
};

// The program that computes what the interpreter of tile programs does, bit by bit (but for the sign of a zero that max
// or min choose, where LEIR orders -0 below +0). Buffers are variables in logical coordinates, whatever their layout;
// products are accumulated by `fma` in ascending order; tasks are loops of kind P where the checker proves them
// independent, else of kind L. Errors, by name: open dimensions, integer division, and what the checker of LEIR cannot
// prove.
Result<TileAsLeir> to_leir(const tile::Program& program);

}  // namespace cleave::bridge
