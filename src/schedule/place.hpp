// itGraph -> tile program: places and layouts of values, products as register-blocked statements, packed operands.
#pragma once

#include <set>

#include "itgraph/itgraph.hpp"
#include "machine/machine.hpp"
#include "tile/tile.hpp"

namespace cleave::schedule {

// What may be left out, to see what it brings.
struct PlaceOptions {
  bool pack = true;    // operands of products that are not read row by row are packed by kernels of their own
  bool panels = true;  // .. into panels as register tiles read them, else row-major
  // The weights of softmax rows may be rounded to bf16 before they weigh values of bf16, as those of the program are
  // that was asked for; where there is a matrix unit they are.
  bool round_weights = false;
};

// Inner values that a kernel other than their own reads lie in the workspace, the others in the task's scratch.
// Operands of products that are not row-major in the columns are packed into panels by kernels of their own; those of
// constants run once. Errors: an unbound extent, a block that no tile statement expresses.
// `ends`, if given: for each kernel of the itGraph how many the tile program has up to and with it.
Result<tile::Program> place(const itgraph::Program& program, const Machine& machine, const PlaceOptions& options = {},
                            std::vector<size_t>* ends = nullptr);

// Values that are read outside the kernel that makes them, and outputs.
std::set<itgraph::ValueId> visible_values(const itgraph::Program& program);

}  // namespace cleave::schedule
