// The interpreter of LEIR: the meaning of a program, point by point, in written order. Slow and obvious; every other
// way to run a program is judged by it. It checks every subscript and every divisor, whatever the analysis has proved.
#pragma once

#include <map>

#include "leir/typed.hpp"

namespace cleave::leir {

// A dense array in row-major order: reals as double, all else as int64 (u64 as the same bits).
struct Array {
  Type type = Type::f32;
  std::vector<int64_t> shape;
  std::vector<double> reals;
  std::vector<int64_t> integers;
  // How far each real is from what exact arithmetic gives, at most; empty when it is not asked for.
  std::vector<double> errors;

  bool real() const { return is_real(type); }
  int64_t elements() const;
};
Array make_array(Type type, std::vector<int64_t> shape);  // reals NaN, integers a pattern that is easy to see
double element(const Array& array, int64_t i);            // any element as a double
// Any element as text: integers in full, reals with so many digits (0: as many as tell it from its neighbours).
std::string element_text(const Array& array, int64_t i, int digits = 0);

struct InterpretOptions {
  Precision precision = Precision::storage;  // f64: nothing is rounded but to f64
  // Keep running bounds of the rounding errors that a run in storage precision makes (with precision f64).
  bool error_bounds = false;
  int64_t max_steps = int64_t{1} << 40;
  int64_t max_bytes = int64_t{8} << 30;
};

// The outputs by name. `inputs` has every known variable that is no output, with its declared shape; integers are
// wrapped and reals rounded to the declared type first.
Result<std::map<std::string, Array>> interpret(const Program& program, const std::map<std::string, Array>& inputs,
                                               const InterpretOptions& options = {});

}  // namespace cleave::leir
