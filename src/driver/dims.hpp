// Values of named dimensions, from the shapes of the data that is given.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "graph/graph.hpp"

namespace cleave::driver {

// The dimension that `extent` is linear in, and its value where the extent is `value`: for 2 * N + 1 and 7, N is 3.
// None when the extent is of another form, or no value >= 0 gives it.
std::optional<std::pair<std::string, int64_t>> solve(const sym::Pool& syms, sym::Expr extent, int64_t value);

}  // namespace cleave::driver
