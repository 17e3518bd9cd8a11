#include "types/scalar.hpp"

#include <array>
#include <cmath>
#include <limits>

#include "base/check.hpp"

namespace cleave {

namespace {

constexpr FnInfo kFns[] = {
#define SCALAR(name, arity, rule, laws) {Fn::name, #name, arity, FnRule::rule, static_cast<uint8_t>(laws)},
#include "types/scalar.def"
#undef SCALAR
};

constexpr double kSqrt2 = 1.4142135623730950488;
constexpr double kSqrt2OverPi = 0.79788456080286535588;
constexpr double kSeluAlpha = 1.6732632423543772848170429916717;
constexpr double kSeluScale = 1.0507009873554804934193349852946;

double nan_max(double a, double b) { return std::isnan(a) || std::isnan(b) ? std::nan("") : (a > b ? a : b); }
double nan_min(double a, double b) { return std::isnan(a) || std::isnan(b) ? std::nan("") : (a < b ? a : b); }
double sigmoid(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }
double softplus(double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }
double gate(double x, double g) { return g == 0 && std::isinf(x) ? (x > 0 ? x : -0.0) : x * g; }
double hardsigmoid(double x) { return nan_min(nan_max(x / 6 + 0.5, 0), 1); }

// Unsigned arithmetic: integers wrap, they do not overflow.
int64_t wrap(uint64_t v) { return static_cast<int64_t>(v); }
uint64_t bits(int64_t v) { return static_cast<uint64_t>(v); }

int64_t floordiv(int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return wrap(-bits(a));
  const int64_t q = a / b;
  return q - ((a % b != 0) && ((a < 0) != (b < 0)));
}
int64_t mod(int64_t a, int64_t b) { return b == 0 ? 0 : wrap(bits(a) - bits(floordiv(a, b)) * bits(b)); }

int64_t power(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  uint64_t result = 1, b = bits(base);
  for (uint64_t e = bits(exponent); e; e >>= 1, b *= b)
    if (e & 1) result *= b;
  return wrap(result);
}

}  // namespace

const FnInfo& info(Fn fn) { return kFns[static_cast<size_t>(fn)]; }
std::span<const FnInfo> all_fns() { return kFns; }

std::optional<Fn> fn_from_name(std::string_view text) {
  for (const FnInfo& f : kFns)
    if (text == f.name) return f.fn;
  return std::nullopt;
}

double eval(Fn fn, std::span<const double> x) {
  switch (fn) {
    case Fn::add: return x[0] + x[1];
    case Fn::sub: return x[0] - x[1];
    case Fn::mul: return x[0] * x[1];
    case Fn::div: return x[0] / x[1];
    case Fn::floordiv: return std::floor(x[0] / x[1]);
    case Fn::mod: {
      const double r = std::fmod(x[0], x[1]);
      return r != 0 && ((r < 0) != (x[1] < 0)) ? r + x[1] : r;
    }
    case Fn::quot0: return x[1] == 0 ? 0 : x[0] / x[1];
    case Fn::pow: return std::pow(x[0], x[1]);
    case Fn::max: return nan_max(x[0], x[1]);
    case Fn::min: return nan_min(x[0], x[1]);
    case Fn::clamp: return nan_min(nan_max(x[0], x[1]), x[2]);
    case Fn::neg: return -x[0];
    case Fn::abs: return std::fabs(x[0]);
    case Fn::sign: return std::isnan(x[0]) ? x[0] : (x[0] > 0) - (x[0] < 0);
    case Fn::square: return x[0] * x[0];
    case Fn::relu: return nan_max(x[0], 0);
    case Fn::exp: return std::exp(x[0]);
    case Fn::exp2: return std::exp2(x[0]);
    case Fn::expm1: return std::expm1(x[0]);
    case Fn::log: return std::log(x[0]);
    case Fn::log2: return std::log2(x[0]);
    case Fn::log1p: return std::log1p(x[0]);
    case Fn::sqrt: return std::sqrt(x[0]);
    case Fn::rsqrt: return 1 / std::sqrt(x[0]);
    case Fn::reciprocal: return 1 / x[0];
    case Fn::floor: return std::floor(x[0]);
    case Fn::ceil: return std::ceil(x[0]);
    case Fn::round: return std::nearbyint(x[0]);
    case Fn::sin: return std::sin(x[0]);
    case Fn::cos: return std::cos(x[0]);
    case Fn::tan: return std::tan(x[0]);
    case Fn::tanh: return std::tanh(x[0]);
    case Fn::erf: return std::erf(x[0]);
    case Fn::sigmoid: return sigmoid(x[0]);
    case Fn::silu: return gate(x[0], sigmoid(x[0]));
    case Fn::gelu_erf: return gate(x[0], 0.5 * std::erfc(-x[0] / kSqrt2));
    case Fn::gelu_tanh: return gate(x[0], sigmoid(2 * kSqrt2OverPi * (x[0] + 0.044715 * x[0] * x[0] * x[0])));
    case Fn::softplus: return softplus(x[0]);
    case Fn::mish: return gate(x[0], std::tanh(softplus(x[0])));
    case Fn::elu: return x[0] > 0 || std::isnan(x[0]) ? x[0] : x[1] * std::expm1(x[0]);
    case Fn::selu: return kSeluScale * (x[0] > 0 || std::isnan(x[0]) ? x[0] : kSeluAlpha * std::expm1(x[0]));
    case Fn::hardsigmoid: return hardsigmoid(x[0]);
    case Fn::hardswish: return gate(x[0], hardsigmoid(x[0]));
    case Fn::leaky_relu: return x[0] >= 0 || std::isnan(x[0]) ? x[0] : x[0] * x[1];
    case Fn::isnan: return std::isnan(x[0]);
    case Fn::isinf: return std::isinf(x[0]);
    case Fn::eq: return x[0] == x[1];
    case Fn::ne: return x[0] != x[1];
    case Fn::lt: return x[0] < x[1];
    case Fn::le: return x[0] <= x[1];
    case Fn::gt: return x[0] > x[1];
    case Fn::ge: return x[0] >= x[1];
    case Fn::logical_and: return x[0] != 0 && x[1] != 0;
    case Fn::logical_or: return x[0] != 0 || x[1] != 0;
    case Fn::logical_xor: return (x[0] != 0) != (x[1] != 0);
    case Fn::logical_not: return x[0] == 0;
    case Fn::where: return x[0] != 0 ? x[1] : x[2];
  }
  CHECK(false, "scalar function {}", static_cast<int>(fn));
}

int64_t eval(Fn fn, std::span<const int64_t> x) {
  switch (fn) {
    case Fn::add: return wrap(bits(x[0]) + bits(x[1]));
    case Fn::sub: return wrap(bits(x[0]) - bits(x[1]));
    case Fn::mul: return wrap(bits(x[0]) * bits(x[1]));
    case Fn::div: return x[1] == 0 ? 0 : x[1] == -1 ? wrap(-bits(x[0])) : x[0] / x[1];
    case Fn::floordiv: return floordiv(x[0], x[1]);
    case Fn::mod: return mod(x[0], x[1]);
    case Fn::pow: return power(x[0], x[1]);
    case Fn::max: return x[0] > x[1] ? x[0] : x[1];
    case Fn::min: return x[0] < x[1] ? x[0] : x[1];
    case Fn::clamp: {
      const int64_t lo = x[0] > x[1] ? x[0] : x[1];
      return lo < x[2] ? lo : x[2];
    }
    case Fn::neg: return wrap(-bits(x[0]));
    case Fn::abs: return x[0] < 0 ? wrap(-bits(x[0])) : x[0];
    case Fn::sign: return (x[0] > 0) - (x[0] < 0);
    case Fn::square: return wrap(bits(x[0]) * bits(x[0]));
    case Fn::relu: return x[0] > 0 ? x[0] : 0;
    case Fn::eq: return x[0] == x[1];
    case Fn::ne: return x[0] != x[1];
    case Fn::lt: return x[0] < x[1];
    case Fn::le: return x[0] <= x[1];
    case Fn::gt: return x[0] > x[1];
    case Fn::ge: return x[0] >= x[1];
    case Fn::logical_and: return x[0] && x[1];
    case Fn::logical_or: return x[0] || x[1];
    case Fn::logical_xor: return !x[0] != !x[1];
    case Fn::logical_not: return !x[0];
    case Fn::where: return x[0] ? x[1] : x[2];
    default: break;
  }
  CHECK(false, "`{}` has no integer form", info(fn).name);
}

DType result_dtype(Fn fn, DType operand) {
  switch (info(fn).rule) {
    case FnRule::arith:
    case FnRule::real:
    case FnRule::select: return operand;
    case FnRule::real_test:
    case FnRule::compare:
    case FnRule::logic: return DType::boolean;
  }
  return operand;
}

}  // namespace cleave
