// Many reals at a time: what dtype.hpp has for one.
#pragma once

#include <span>

#include "types/dtype.hpp"

namespace cleave {

// Rounds each to a real type.
void round_reals(DType dtype, std::span<double> values);
// Dense arrays of a real type: to double, and from double with one rounding.
void load_reals(DType dtype, const void* from, std::span<double> to);
void store_reals(DType dtype, std::span<const double> from, void* to);

}  // namespace cleave
