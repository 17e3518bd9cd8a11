// Running bounds of rounding errors: how far a run in storage precision may be from exact arithmetic, one operation at
// a time. `value` is the exact result (computed in f64), `values` the exact operands, `errors` their bounds, `unit` the
// unit roundoff of the operation.
#pragma once

#include <span>

#include "leir/typed.hpp"

namespace cleave::leir {

double operation_error(const Node& node, double unit, double value, std::span<const double> values,
                       std::span<const double> errors);
// With the rounding of the store added.
double stored_error(Type type, double value, double error);

}  // namespace cleave::leir
