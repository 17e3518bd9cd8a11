// The arithmetic of error bounds: what one rounding, one function, one sum may add. Inside the room.
#pragma once

#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "eval/bounds.hpp"

namespace cleave::oracle {

constexpr double kUnknown = std::numeric_limits<double>::infinity();

// The number format of a real value: computed in f32 or f64, then perhaps stored in 16 bits.
struct Precision {
  DType dtype;
  double unit;           // of computing: 2^-24, or twice 2^-53 (the reference rounds as well)
  double storage_unit;   // of storing; 0 where that is no further rounding
  double storage_least;  // half the smallest denormal of a 16-bit storage type
  double tiny;           // the smallest normal number of the computing type: below it results may be 0
  double largest;        // of the storage type
  double compute_largest;
  bool likely;  // sums grow with sqrt(n), not n
  explicit Precision(DType dtype, bool likely = false);

  // n roundings one after the other, relative: n u / (1 - n u), doubled where that makes no sense any more.
  double accumulated(double roundings) const;

  // The bound of a result: `spread` comes from its operands, `roundings` are relative (in units), `extra` is absolute.
  // With `exact`, a result that needs no rounding and has exact operands is exact.
  double settle(double value, double spread, double roundings, double extra, bool exact) const;
};

// |a - b| where equal infinities and two NaN are 0 apart and everything else non-finite is unknown.
inline double apart(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  const double d = std::fabs(a - b);
  return std::isfinite(d) ? d : kUnknown;
}

// The bound of fn(x...) = value, where x[k] is off by at most e[k], for real operands; the result may be bool.
double bound_of(Fn fn, std::span<const double> x, std::span<const double> e, double value, const Precision& precision);
// The same for integers and bools: 0 or unknown.
double bound_of(Fn fn, std::span<const int64_t> x, std::span<const double> e);

// Collects the terms of one sum.
struct SumBound {
  double errors = 0;      // of the terms
  double magnitudes = 0;  // |term| + error, over finite terms
  double terms = 0;
  bool unknown = false;

  void add(double x, double e) {
    terms += 1;
    if (e == kUnknown)
      unknown = true;
    else
      errors += e;
    if (std::isfinite(x)) magnitudes += std::fabs(x) + e;
  }
  double settle(double value, const Precision& precision) const;
};

// Collects the factors of one product.
struct ProductBound {
  double high = 1, magnitude = 1;    // products of |x| + e and of |x|
  double largest = 1, smallest = 1;  // what a partial product can reach
  double factors = 0;
  bool unknown = false;

  void add(double x, double e);
  double settle(double value, const Precision& precision) const;
};

}  // namespace cleave::oracle
