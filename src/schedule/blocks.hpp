// Inter- and intra-block scheduling: a group of units -> nested blocks (scheduling.md sections 3 and 4).
#pragma once

#include "schedule/plan.hpp"

namespace cleave::schedule {

// Tile sizes to try; a size that does not apply to a group is ignored.
struct Tiling {
  int64_t rows = 64;      // of a product's result, per task
  int64_t columns = 256;  // of a product's result, per task
  int64_t reduce = 128;   // step of a loop over an index that values inside the kernel carry
  int64_t depth = 256;    // step of a loop over an index that only tensors in memory carry
  bool operator==(const Tiling&) const = default;
};

// nullopt when the group cannot be ordered into loops.
std::optional<itgraph::Kernel> build_kernel(const Plan& plan, const Group& group, const Tiling& tiling,
                                            const std::set<itgraph::ValueId>& visible);

// Roles of indices in a product: rows are carried by one operand, columns by the other, batch by both.
struct Roles {
  std::vector<sym::Expr> rows, columns, batch;
};
Roles roles_of(const sym::Pool& syms, const std::vector<sym::Expr>& axes, const tile::Load& a, const tile::Load& b);

Roles product_roles(const Plan& plan, const Group& group, size_t unit);

}  // namespace cleave::schedule
