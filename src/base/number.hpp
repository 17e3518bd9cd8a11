// Numbers as messages show them.
#pragma once

#include <cmath>
#include <limits>

namespace cleave {

// NaN without its sign: what one comes out with differs from processor to processor and means nothing.
inline double shown(double value) { return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value; }

}  // namespace cleave
