// Split (scheduling.md section 6): a reduction in parts of one length, so that parts run in parallel.
//
// The index l of the reduction becomes (part, l within the part). Parts are reduced on their own, and a second
// reduction over the parts merges them in the order of their number: a scaled group (m, u) is merged as a scaled group
// of its parts, max m_p and sum of exp(m_p - m) u_p. What is bound is the length of a part, so the bits depend neither
// on the number of threads nor on what else is computed.
#pragma once

#include <optional>

#include "schedule/plan.hpp"

namespace cleave::schedule {

// Indices of the group that its reductions may be split along: every reduction over it is independent of the others,
// and what they reduce can be computed part by part. What the last units of the group reduce comes first.
std::vector<sym::Expr> splittable(const Plan& plan, const Group& group);

// The plan with the reductions over `index` in parts of `length`. Nullopt: not one of splittable().
std::optional<Plan> split(const Plan& plan, const Group& group, sym::Expr index, int64_t length);

}  // namespace cleave::schedule
