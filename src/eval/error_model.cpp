#include "eval/error_model.hpp"

#include <algorithm>

namespace cleave::oracle {

Precision::Precision(DType d, bool sums_like_noise) : dtype(d), likely(sums_like_noise) {
  const DType compute = compute_type(d);
  unit = compute == DType::f64 ? 0x1p-52 : unit_roundoff(DType::f32);
  storage_unit = d == compute ? 0 : unit_roundoff(d);
  storage_least = d == DType::f16 ? 0x1p-25 : d == DType::bf16 ? 0x1p-134 : 0;
  tiny = compute == DType::f64 ? 0x1p-1022 : 0x1p-126;
  largest = largest_finite(d);
  compute_largest = largest_finite(compute);
}

double Precision::settle(double value, double spread, double roundings, double extra, bool exact) const {
  if (!(spread < kUnknown)) return kUnknown;
  if (!std::isfinite(value)) return spread == 0 ? 0 : kUnknown;
  const double magnitude = std::fabs(value);
  double e = 0, computed = 0;
  // The reference has rounded to float64 already: of its own type only a short result shows that nothing was lost.
  const DType shows = unit < 0x1p-50 ? DType::f32 : dtype;
  if (!(exact && spread == 0 && value == round_to(shows, value))) {
    e = computed = spread + roundings * unit * (magnitude + spread) + extra;
    if (storage_unit > 0 && (magnitude > 0 || e > 0)) e += storage_unit * (magnitude + e) + storage_least;
  }
  if (magnitude > 0 && magnitude - e < tiny) e += tiny;
  if (magnitude + e <= largest) return e;
  // At the edge of overflow, what one correct rounding makes of the ends decides: a finite mask (-3.4e38 + score) stays
  // what it is.
  if (roundings > 1) return kUnknown;
  const double reach = storage_unit > 0 ? computed : spread;
  return std::max(apart(round_to(dtype, value - reach), value), apart(round_to(dtype, value + reach), value));
}

double Precision::accumulated(double roundings) const {
  if (likely) roundings = std::min(roundings, 8 * std::sqrt(roundings));
  const double nu = roundings * unit;
  return nu < 0.5 ? nu / (1 - nu) : 2 * nu;
}

double SumBound::settle(double value, const Precision& p) const {
  if (std::isnan(value) && !unknown && magnitudes <= p.compute_largest) return 0;
  if (unknown || magnitudes > p.compute_largest) return kUnknown;
  if (!std::isfinite(value)) return 0;  // infinite terms are exact, and finite ones cannot outweigh them
  return p.settle(value, errors + p.accumulated(std::max(0.0, terms - 1)) * magnitudes, terms > 2 ? 1 : 0,
                  terms > 1 && magnitudes > 0 ? p.unit * std::fabs(value) : 0, terms <= 1 || magnitudes == 0);
}

void ProductBound::add(double x, double e) {
  factors += 1;
  if (e == kUnknown || (e > 0 && !std::isfinite(x))) unknown = true;
  if (!std::isfinite(x)) {
    // An infinity times something whose sign is not known, before or after, is judged in settle().
    high = magnitude = kUnknown;
    return;
  }
  const double a = std::fabs(x);
  high *= a + e;
  magnitude *= a;
  largest *= std::max(1.0, a + e);
  if (a > e)
    smallest *= std::min(1.0, a - e);
  else if (e > 0)
    smallest = 0;
}

double ProductBound::settle(double value, const Precision& p) const {
  if (unknown) return kUnknown;
  if (factors == 0) return 0;
  if (!std::isfinite(high)) {
    // Holds an infinity or a NaN: exact unless a factor could vanish or change its sign, or partial products underflow.
    if (smallest < p.tiny || largest > p.compute_largest) return kUnknown;
    return std::isfinite(value) ? kUnknown : 0;
  }
  if (largest > p.compute_largest) return kUnknown;
  double spread = std::max(0.0, high - magnitude) + factors * 0x1p-52 * high;
  if (factors == 1) spread = std::max(0.0, high - magnitude);
  if (factors > 1) spread += p.accumulated(factors - 1) * high;
  if (smallest < p.tiny && high > 0) spread += p.tiny * largest;
  return p.settle(value, high == 0 ? 0 : spread, 0, 0, factors == 1 || high == 0);
}

namespace {

// Relative roundings (in units) of one function, and the absolute part (in units) beside them.
struct FnError {
  double relative;
  double absolute;
  bool exact;  // a representable result of exact operands is computed exactly
};

FnError error_of(Fn fn, std::span<const double> x, double value) {
  const double a = std::isfinite(x[0]) ? std::fabs(x[0]) : 0;
  const double v = std::isfinite(value) ? std::fabs(value) : 0;
  switch (fn) {
    case Fn::add:
    case Fn::sub: return {1, a + (std::isfinite(x[1]) ? std::fabs(x[1]) : 0), true};
    case Fn::mul:
    case Fn::square: return {2, 0, true};
    case Fn::div:
    case Fn::quot0:
    case Fn::reciprocal: {
      const double d = fn == Fn::reciprocal ? x[0] : x[1];
      int exponent = 0;
      return {3, 0, std::fabs(std::frexp(d, &exponent)) == 0.5};
    }
    case Fn::max:
    case Fn::min:
    case Fn::clamp:
    case Fn::neg:
    case Fn::abs:
    case Fn::relu:
    case Fn::sign:
    case Fn::floor:
    case Fn::ceil:
    case Fn::round:
    case Fn::floordiv:
    case Fn::where: return {0, 0, true};
    case Fn::mod: return {2, 2 * std::fabs(x[1]), false};
    case Fn::pow:
      return {8 + (x[0] != 0 && std::isfinite(x[1] * std::log(a)) ? 4 * std::fabs(x[1] * std::log(a)) : 0), 0, false};
    // The argument may be scaled (by log2 e) before the function proper: one rounding of it.
    case Fn::exp:
    case Fn::exp2: return {6, 2 * a * v, false};
    case Fn::expm1: return {8, 2 * a * (v + 1) * (a > 0.1 ? 1 : 0), false};
    case Fn::log:
    case Fn::log2:
    case Fn::log1p: return {8, 0, false};
    case Fn::sqrt: return {2, 0, false};
    case Fn::rsqrt: return {4, 0, false};
    case Fn::sin:
    case Fn::cos: return {5, 4 + 2 * a, false};
    case Fn::tan: return {16, 2 * a * (1 + v * v), false};
    case Fn::tanh:
    case Fn::erf: return {16, 0, false};
    case Fn::sigmoid:
    case Fn::silu:
    case Fn::softplus: return {16, 2 * a * v, false};
    case Fn::mish:
    case Fn::gelu_erf:
    case Fn::gelu_tanh: return {16, 4 * a, false};
    case Fn::elu: return {8, value < 0 || x[1] < 0 ? 4 * std::fabs(x[1]) : 0, false};
    case Fn::selu: return {8, value < 0 ? 8.0 : 0, false};
    case Fn::hardsigmoid: return {4, 2, false};
    case Fn::hardswish: return {4, 4 * a, false};
    case Fn::leaky_relu: return {1, 0, true};
    case Fn::isnan:
    case Fn::isinf:
    case Fn::eq:
    case Fn::ne:
    case Fn::lt:
    case Fn::le:
    case Fn::gt:
    case Fn::ge:
    case Fn::logical_and:
    case Fn::logical_or:
    case Fn::logical_xor:
    case Fn::logical_not: return {0, 0, true};
  }
  CHECK(false, "scalar function {}", static_cast<int>(fn));
}

// The largest distance of fn from `value` at the corners of the box x +- e. With `kink`, the first operand's 0 is a
// corner too.
double corner_spread(Fn fn, std::span<const double> x, std::span<const double> e, double value, bool kink = false) {
  double corners[3][3];
  int count[3] = {1, 1, 1};
  bool any = false;
  for (size_t k = 0; k < x.size(); ++k) {
    corners[k][0] = x[k];
    if (e[k] == 0) continue;
    any = true;
    corners[k][0] = x[k] - e[k];
    corners[k][1] = x[k] + e[k];
    count[k] = 2;
    if (kink && k == 0 && std::fabs(x[k]) < e[k]) corners[k][count[k]++] = 0;
  }
  if (!any) return 0;
  double spread = 0;
  double at[3];
  for (int i = 0; i < count[0]; ++i)
    for (int j = 0; j < count[1]; ++j)
      for (int k = 0; k < count[2]; ++k) {
        at[0] = corners[0][i];
        if (x.size() > 1) at[1] = corners[1][j];
        if (x.size() > 2) at[2] = corners[2][k];
        spread = std::max(spread, apart(eval(fn, std::span<const double>(at, x.size())), value));
      }
  return spread;
}

// a < b holds for all, for none, or is unknown.
double order_bound(double a, double ea, double b, double eb) {
  if (ea == 0 && eb == 0) return 0;
  if (std::isnan(a) || std::isnan(b)) return 0;
  return a + ea < b - eb || a - ea > b + eb ? 0 : kUnknown;
}

bool straddles_zero(double x, double e) { return e > 0 && std::fabs(x) <= e; }

}  // namespace

double bound_of(Fn fn, std::span<const double> x, std::span<const double> e, double value, const Precision& p) {
  for (size_t k = 0; k < x.size(); ++k)
    if (e[k] == kUnknown) return kUnknown;
  const FnError error = error_of(fn, x, value);
  auto settle = [&](double spread) {
    if (!std::isfinite(value)) return p.settle(value, spread, 0, 0, true);
    return p.settle(value, spread, error.relative, error.absolute * p.unit, error.exact);
  };
  switch (fn) {
    case Fn::eq:
    case Fn::ne:
    case Fn::lt:
    case Fn::le:
    case Fn::gt:
    case Fn::ge: return order_bound(x[0], e[0], x[1], e[1]);
    case Fn::isnan:
    case Fn::isinf: return 0;  // an element whose overflow is in doubt is unknown already
    case Fn::abs: return settle(std::isfinite(value) ? e[0] : 0);
    case Fn::div:
    case Fn::quot0: return straddles_zero(x[1], e[1]) ? kUnknown : settle(corner_spread(fn, x, e, value));
    case Fn::reciprocal: return straddles_zero(x[0], e[0]) ? kUnknown : settle(corner_spread(fn, x, e, value));
    case Fn::rsqrt: return e[0] > 0 && x[0] <= e[0] ? kUnknown : settle(corner_spread(fn, x, e, value));
    case Fn::sin:
    case Fn::cos: return settle(std::min(e[0], 2.0));
    case Fn::tan: {
      constexpr double kPi = 3.14159265358979323846;
      // Without a pole in reach, which is also as near as argument reduction can tell.
      const double reach = e[0] + 4 * p.unit * (1 + std::fabs(x[0]));
      if (std::isfinite(x[0]) && std::floor((x[0] - reach) / kPi + 0.5) != std::floor((x[0] + reach) / kPi + 0.5))
        return kUnknown;
      return settle(corner_spread(fn, x, e, value));
    }
    case Fn::silu:
    case Fn::gelu_erf:
    case Fn::gelu_tanh:
    case Fn::mish:
      return settle(1.2 * e[0] + (std::isfinite(x[0]) ? std::fabs(x[0]) * p.tiny : 0));  // the gate may be flushed
    case Fn::hardswish: return settle(1.5 * e[0]);
    case Fn::elu:
    case Fn::leaky_relu: return settle(corner_spread(fn, x, e, value, true));
    case Fn::sign: return straddles_zero(x[0], e[0]) ? kUnknown : settle(0);
    case Fn::floor:
    case Fn::ceil:
    case Fn::round: return corner_spread(fn, x, e, value) > 0 ? kUnknown : settle(0);
    case Fn::pow: {
      if (e[0] == 0 && e[1] == 0) return settle(0);
      if (x[0] > e[0]) return settle(corner_spread(fn, x, e, value));
      // A base that may be 0 or negative: only with an exact whole exponent.
      if (e[1] > 0 || x[1] != std::nearbyint(x[1])) return kUnknown;
      if (straddles_zero(x[0], e[0]) && x[1] < 0) return kUnknown;
      return settle(corner_spread(fn, x, e, value, true));
    }
    case Fn::floordiv:
    case Fn::mod: {
      const double q = x[0] / x[1];
      if (e[0] == 0 && e[1] == 0 && (!std::isfinite(q) || std::fmod(x[0], x[1]) == 0))
        return std::isfinite(value) ? settle(0) : 0;
      if (!std::isfinite(q) || straddles_zero(x[1], e[1])) return kUnknown;
      double low = q, high = q;
      for (const double a : {x[0] - e[0], x[0] + e[0]})
        for (const double b : {x[1] - e[1], x[1] + e[1]}) {
          low = std::min(low, a / b);
          high = std::max(high, a / b);
        }
      low -= 4 * p.unit * std::fabs(low);
      high += 4 * p.unit * std::fabs(high);
      if (std::floor(low) != std::floor(high)) return kUnknown;
      if (fn == Fn::floordiv) return settle(0);
      return settle(e[0] + std::fabs(std::floor(q)) * (e[1] + 2 * p.unit * std::fabs(x[1])));
    }
    default: return settle(corner_spread(fn, x, e, value));
  }
}

double bound_of(Fn fn, std::span<const int64_t> x, std::span<const double> e) {
  if (std::all_of(e.begin(), e.end(), [](double v) { return v == 0; })) return 0;
  // One known operand may settle a conjunction or a disjunction.
  if (fn == Fn::logical_and)
    for (size_t k = 0; k < 2; ++k)
      if (e[k] == 0 && !x[k]) return 0;
  if (fn == Fn::logical_or)
    for (size_t k = 0; k < 2; ++k)
      if (e[k] == 0 && x[k]) return 0;
  if (fn == Fn::where && e[0] == 0) return x[0] ? e[1] : e[2];
  return kUnknown;
}

}  // namespace cleave::oracle
