// Where the buffers of a tile program lie: constant shapes, strides and offsets, checked before any code is made.
#pragma once

#include <set>
#include <vector>

#include "lower/lower.hpp"

namespace cleave::lower {

using tile::BufferId;

struct Layout {
  std::vector<int64_t> shape;
  // In elements. Of a panel buffer: of all axes but the last; the last is (j / panel) * panel_stride + j % panel.
  std::vector<int64_t> strides;
  int64_t panel = 0;
  int64_t panel_stride = 0;
  int64_t bytes = 0;
  BufferId root;       // itself, or what it is an alias of
  int64_t offset = 0;  // bytes from the start of the workspace or of the packed memory
};

struct Plan {
  std::vector<Layout> layouts;  // by buffer
  int64_t workspace_bytes = 0;
  int64_t packed_bytes = 0;
  std::vector<Argument> inputs, constants, outputs;
  int scalars = 0;

  const Layout& layout(BufferId id) const { return layouts[id.index]; }
};

// Fails for symbolic extents, sizes beyond the limits, and arguments without a position.
Result<Plan> plan_memory(const tile::Program& program);

// The buffers that a kernel reads or writes, aliases resolved.
std::set<BufferId> used_roots(const tile::Kernel& kernel, const Plan& plan);

// Offsets of the scratch buffers that a kernel uses (by root buffer; -1: not used) and their bytes in all.
struct Scratch {
  std::vector<int64_t> offsets;
  int64_t bytes = 0;
};
Scratch plan_scratch(const tile::Program& program, const tile::Kernel& kernel, const Plan& plan);

}  // namespace cleave::lower
