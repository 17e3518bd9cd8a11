// Where a region is cut that is too rich to be searched as one.
//
// The equal forms of a product of normalised rows (a layer norm before the projections of an attention: both sides of
// the scores are sums) are more than a table holds. Such a region is cut at values that are stored anyway: what a
// reduction lies behind and several contractions read, as the result of a norm.
#pragma once

#include <vector>

#include "algebra/index_form.hpp"

namespace cleave::algebra {

// Values inside the region of `step`, its results excluded, in topological order.
std::vector<graph::ValueId> inner_cuts(const Program& program, const Step& step);

// Whether the table of a region's values grows beyond `limit`.
bool richer_than(const Program& program, const Step& step, size_t limit);

}  // namespace cleave::algebra
