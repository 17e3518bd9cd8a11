// Inter- and intra-block scheduling: a group of units -> nested blocks (scheduling.md sections 3 and 4).
#pragma once

#include "schedule/plan.hpp"
#include "schedule/schedule.hpp"

namespace cleave::schedule {

// nullopt when the group cannot be ordered into loops. `parallel`: the loops of its tasks; not given, they are chosen.
std::optional<itgraph::Kernel> build_kernel(const Plan& plan, const Group& group, const Tiling& tiling,
                                            const std::set<itgraph::ValueId>& visible,
                                            const std::vector<itgraph::Loop>* parallel = nullptr);

// Roles of indices in a product: rows are carried by one operand, columns by the other, batch by both.
struct Roles {
  std::vector<sym::Expr> rows, columns, batch;
};
Roles roles_of(const sym::Pool& syms, const std::vector<sym::Expr>& axes, const tile::Load& a, const tile::Load& b);

Roles product_roles(const Plan& plan, const Group& group, size_t unit);

// The tasks of a group without products: of `common`, the indices that all its visible results carry, those that are
// cut, with their steps; and those that are left whole, because each piece would compute the same reductions again (the
// columns of a normalisation, whose rows are summed in each task).
struct LightTasks {
  std::vector<itgraph::Loop> loops;
  std::vector<sym::Expr> whole;
};
LightTasks light_tasks(const Plan& plan, const Group& group, const std::vector<sym::Expr>& common);

// The share of a group's work that may be done again in exchange for fewer kernels.
constexpr double kMostRecomputed = 0.1;

}  // namespace cleave::schedule
