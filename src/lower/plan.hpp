// Where the buffers of a tile program lie: shapes, strides and offsets, constant or functions of the program's dims.
#pragma once

#include <set>
#include <vector>

#include "lower/lower.hpp"

namespace cleave::lower {

using sym::Expr;
using tile::BufferId;

struct Layout {
  std::vector<Expr> shape;
  // In elements. Of a panel buffer: of all axes but the last; the last is (j / panel) * panel_stride + j % panel.
  std::vector<Expr> strides;
  int64_t panel = 0;
  Expr panel_stride;
  bool pairs =
      false;  // of rows: k lies at k / 2 * 2 panel + k % 2, and j at (j / panel) * panel_stride + 2 (j % panel)
  Expr bytes;
  BufferId root;  // itself, or what it is an alias of
  Expr offset;    // bytes from the start of the workspace or of the packed memory
};

struct Plan {
  std::shared_ptr<sym::Pool> syms;  // a copy of the program's, with more expressions
  std::vector<Layout> layouts;      // by buffer
  Expr workspace_bytes;
  Expr separate_bytes;  // what the workspace would be if no two buffers shared memory
  Expr packed_bytes;
  std::vector<Argument> inputs, constants, outputs;
  int scalars = 0;

  const Layout& layout(BufferId id) const { return layouts[id.index]; }
};

// Fails for sizes beyond the limits, packed memory that dims decide, and arguments without a position.
Result<Plan> plan_memory(const tile::Program& program);

// The buffers that a kernel reads or writes, aliases resolved.
std::set<BufferId> used_roots(const tile::Kernel& kernel, const Plan& plan);

// Outputs that are only stored to, element by element, in a program whose arguments do not fit the caches: past these,
// so that no line is read before it is overwritten.
std::set<BufferId> outputs_past_caches(const tile::Program& program, const Plan& plan, const Machine& machine);

// Offsets of the scratch buffers that a kernel uses (by root buffer) and their bytes in all.
struct Scratch {
  std::vector<Expr> offsets;  // not valid: not used
  Expr bytes;
};
Scratch plan_scratch(const tile::Program& program, const tile::Kernel& kernel, const Plan& plan);

}  // namespace cleave::lower
