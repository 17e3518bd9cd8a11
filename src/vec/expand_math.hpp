// Replaces transcendental functions on f32 by polynomials in primitive operations.
//
// Range reduction, a minimax polynomial (tools/fit) and reconstruction in the exponent field; special values by a few
// compares. The same sequence serves vectors of any width and scalars, so tails give the same bits as full vectors.
// f64, pow and tan stay as they are: the code generator calls the C library for each lane.
#pragma once

#include "vec/vec.hpp"

namespace cleave::vec {

Module expand_math(const Module& module);

// Error against the exact value y = fn(x): at most ulp * (unit in the last place of y) + absolute * |x|; results below
// 2^-126 may be 0. The absolute part is for functions with a factor that vanishes far out (gelu).
struct ErrorBound {
  double ulp = 0;
  double absolute = 0;
};
ErrorBound max_error(Fn fn, DType dtype);
inline double max_ulp(Fn fn, DType dtype) { return max_error(fn, dtype).ulp; }

}  // namespace cleave::vec
