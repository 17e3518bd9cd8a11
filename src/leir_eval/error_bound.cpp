#include "leir_eval/error_bound.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace cleave::leir {

namespace {
constexpr double kInf = std::numeric_limits<double>::infinity();

// How steep a function of one operand is, at most.
double slope(Function f) {
  switch (f) {
    case Function::erf: return 1.1284;
    case Function::sigmoid: return 0.25;
    case Function::silu: return 1.1;
    case Function::gelu_erf:
    case Function::gelu_tanh: return 1.13;
    case Function::mish: return 1.09;
    case Function::hardsigmoid: return 1.0 / 6;
    case Function::hardswish: return 1.5;
    case Function::selu: return 1.7581;
    case Function::abs:
    case Function::relu:
    case Function::tanh:
    case Function::softplus:
    case Function::sin:
    case Function::cos: return 1;
    default: return kInf;
  }
}
}  // namespace

double operation_error(const Node& n, double unit, double value, std::span<const double> x, std::span<const double> e) {
  double worst = 0;
  for (double v : e) {
    if (!(v < kInf)) return kInf;  // NaN too: 0 times infinity
    worst = std::max(worst, v);
  }
  if (!std::isfinite(value)) return worst == 0 ? 0 : (std::isnan(value) ? kInf : worst);
  const double a = std::fabs(value);
  switch (n.act) {
    case Act::add:
    case Act::sub: {
      const double in = e[0] + e[1];
      return in + unit * (a + in);
    }
    case Act::mul: {
      const double in = std::fabs(x[0]) * e[1] + std::fabs(x[1]) * e[0] + e[0] * e[1];
      return in + unit * (a + in) + (unit > 0x1p-50 ? 0x1p-149 : 0);
    }
    case Act::div: {
      const double least = std::fabs(x[1]) - e[1];
      if (e[1] > 0 && least <= 0) return kInf;
      const double in = (e[0] + a * e[1]) / (e[1] > 0 ? least : std::fabs(x[1]));
      return in + unit * (a + in) + (unit > 0x1p-50 ? 0x1p-149 : 0);
    }
    case Act::negate: return worst;
    case Act::power: {
      // |n| |x|^(n-1) e, with x moved to its far end; one rounding for each product.
      const double far = std::fabs(x[0]) + (n.integer < 0 ? -e[0] : e[0]);
      if (far <= 0) return kInf;
      const auto k = static_cast<double>(n.integer);
      const double in = std::fabs(k) * std::pow(far, k - 1) * e[0];
      return in + 14 * unit * (a + in);
    }
    case Act::raise: {
      if (e[0] == 0 && e[1] == 0) return 4 * unit * a;
      const double low = x[0] - e[0];
      if (low <= 0) return kInf;
      const double in = a * std::expm1(std::fabs(x[1]) * e[0] / low + std::fabs(std::log(x[0])) * e[1]);
      return in + 4 * unit * (a + in);
    }
    case Act::call:
      switch (n.function) {
        // Between the extremum of all that is off downwards and that of all that is off upwards.
        case Function::max:
          return std::max(
              {x[0] - value + e[0], x[1] - value + e[1], std::min(value - x[0] + e[0], value - x[1] + e[1])});
        case Function::min:
          return std::max(
              {value - x[0] + e[0], value - x[1] + e[1], std::min(x[0] - value + e[0], x[1] - value + e[1])});
        case Function::clamp: return worst;
        case Function::fma: {
          const double in = std::fabs(x[0]) * e[1] + std::fabs(x[1]) * e[0] + e[0] * e[1] + e[2];
          return in + 2 * unit * (a + in) + (unit > 0x1p-50 ? 0x1p-149 : 0);
        }
        case Function::exp:
        case Function::exp2: {
          const double in = a * std::expm1(e[0]);
          return in + 4 * unit * (a + in);
        }
        case Function::expm1: {
          const double in = (a + 1) * std::expm1(e[0]);
          return in + 4 * unit * (a + in);
        }
        case Function::log:
        case Function::log2: {
          const double low = x[0] - e[0];
          if (e[0] > 0 && low <= 0) return kInf;
          const double in = e[0] > 0 ? 1.5 * e[0] / low : 0;
          return in + 4 * unit * (a + in);
        }
        case Function::log1p: {
          const double low = 1 + x[0] - e[0];
          if (low <= 0) return kInf;
          const double in = e[0] / low;
          return in + 4 * unit * (a + in);
        }
        case Function::sqrt: {
          const double in = e[0] == 0 ? 0 : a > 0 ? std::min(e[0] / a, std::sqrt(e[0])) : std::sqrt(e[0]);
          return in + 2 * unit * (a + in);
        }
        case Function::rsqrt:
        case Function::reciprocal: {
          const double low = std::fabs(x[0]) - e[0];
          if (low <= 0) return kInf;
          const double in = a * e[0] / low;
          return in + 4 * unit * (a + in);
        }
        case Function::square: {
          const double in = 2 * std::fabs(x[0]) * e[0] + e[0] * e[0];
          return in + unit * (a + in);
        }
        case Function::elu: {
          const double in = std::max(1.0, std::fabs(x[1])) * e[0];
          return in + 4 * unit * (a + in);
        }
        case Function::leaky_relu: {
          const double in = std::max(1.0, std::fabs(x[1])) * e[0];
          return in + unit * (a + in);
        }
        default: {
          const double in = e[0] == 0 ? 0 : slope(n.function) * e[0];
          return in + 6 * unit * (a + in);
        }
      }
    default: return worst;
  }
}

double stored_error(Type type, double value, double error) {
  if (!std::isfinite(value)) return error;
  if (!(error < kInf)) return kInf;
  const double unit = type == Type::f64 ? 0x1p-53 : type == Type::f32 ? 0x1p-24 : type == Type::f16 ? 0x1p-11 : 0x1p-8;
  const double least = type == Type::f64 ? 0 : type == Type::f16 ? 0x1p-25 : 0x1p-150;
  const double most = type == Type::f16 ? 65504 : std::numeric_limits<double>::infinity();
  if (std::fabs(value) + error > most) return kInf;
  return error + unit * (std::fabs(value) + error) + least;
}

}  // namespace cleave::leir
