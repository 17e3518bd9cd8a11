// Parts and what merges them in one launch (scheduling.md section 6): the task that ends last at a tile does the rest.
#pragma once

#include <optional>
#include <span>

#include "schedule/plan.hpp"
#include "schedule/schedule.hpp"

namespace cleave::schedule {

struct Join {
  size_t parts, rest;      // positions of the groups; `parts` has no kernel of its own then
  itgraph::Kernel kernel;  // in the place of the kernel of `rest`
};

// The kernel of the group whose tasks are parts (a loop over `plan.part`), and around that loop the other parallel
// loops and the group that reads the parts, tile by tile. nullopt: several groups read the parts, or read others than
// those of their own tile. `kernels`: of the groups, each alone.
std::optional<Join> join(const Plan& plan, std::span<const Group> groups, std::span<const itgraph::Kernel> kernels,
                         const Tiling& tiling, const std::set<itgraph::ValueId>& visible);

}  // namespace cleave::schedule
