// Copies into buffers whose rows lie in pairs: the only way in which those are written.
#pragma once

#include <optional>

#include "tile/tile.hpp"

namespace cleave::tile {

// A nest that copies columns [first, first + count) of one panel from elsewhere, over the whole depth.
struct PairCopy {
  const Load* load = nullptr;
  Axis depth, columns;
};
std::optional<PairCopy> pair_copy(const Program& program, const Nest& nest);

}  // namespace cleave::tile
