// Elementwise functions that the graph has as formulas, and what belongs to them.
#include <cmath>
#include <limits>
#include <numbers>

#include "frontend/onnx_maker.hpp"
#include "frontend/onnx_tensor.hpp"

namespace cleave::onnx_import {

using graph::Op;
using graph::Shape;
using graph::ValueId;
using Ints = std::vector<int64_t>;

// sinh and cosh from e = exp(x) - 1, which keeps the digits near 0; |x| where exp would overflow before the result.
Result<Values> import_hyperbolic(NodeContext& c) {
  Maker m(c);
  const ValueId x = m.in(0);
  const std::string& name = c.node().op_type();
  // sinh |x| = (e + e / (e + 1)) / 2 and cosh x = (exp(|x|) + exp(-|x|)) / 2, with exp(|x|) = exp(|x| / 2)^2 halved in
  // between.
  const ValueId size = m.fn(Fn::abs, {x});
  const ValueId root = m.fn(Fn::exp, {m.mul(size, 0.5)});
  const ValueId half = m.mul(m.mul(root, 0.5), root);
  const ValueId rest = m.mul(m.fn(Fn::exp, {m.fn(Fn::neg, {size})}), 0.5);
  if (name == "Cosh") return m.done({m.add(half, rest)});
  const ValueId e = m.fn(Fn::expm1, {size});
  const ValueId small = m.mul(m.add(e, m.div(e, m.add(e, 1))), 0.5);
  const ValueId wide = m.sub(half, rest);
  const ValueId magnitude = m.where(m.fn(Fn::lt, {size, m.like(1, size)}), small, wide);
  return m.done({m.where(m.fn(Fn::lt, {x, m.like(0, x)}), m.fn(Fn::neg, {magnitude}), magnitude)});
}

// asinh |x| = log1p(|x| + x^2 / (1 + sqrt(x^2 + 1))), acosh x = log1p(t + sqrt(2 t + t^2)) with t = x - 1,
// atanh x = (log1p(x) - log1p(-x)) / 2
Result<Values> import_inverse_hyperbolic(NodeContext& c) {
  Maker m(c);
  const ValueId x = m.in(0);
  const std::string& name = c.node().op_type();
  if (name == "Atanh") return m.done({m.mul(m.sub(m.fn(Fn::log1p, {x}), m.fn(Fn::log1p, {m.fn(Fn::neg, {x})})), 0.5)});
  constexpr double kLarge = 0x1p40;  // beyond it log(2 |x|) is exact, and the squares might overflow
  const ValueId size = m.fn(Fn::abs, {x});
  const ValueId large = m.fn(Fn::gt, {size, m.like(kLarge, x)});
  const ValueId far = m.add(m.fn(Fn::log, {size}), std::numbers::ln2);
  if (name == "Acosh") {
    const ValueId t = m.add(x, -1);
    const ValueId near = m.fn(Fn::log1p, {m.add(t, m.fn(Fn::sqrt, {m.mul(t, m.add(t, 2))}))});
    return m.done({m.where(m.fn(Fn::gt, {x, m.like(kLarge, x)}), far, near)});
  }
  const ValueId square = m.fn(Fn::square, {x});
  const ValueId near = m.fn(Fn::log1p, {m.add(size, m.div(square, m.add(m.fn(Fn::sqrt, {m.add(square, 1)}), 1)))});
  const ValueId magnitude = m.where(large, far, near);
  return m.done({m.where(m.fn(Fn::lt, {x, m.like(0, x)}), m.fn(Fn::neg, {magnitude}), magnitude)});
}

namespace {

// atan by two reductions of the argument and the odd series up to y^13: |y| < tan(pi / 16) after it, error below 2^-30.
// atan x = 2 atan(x / (1 + sqrt(1 + x^2))); beyond 1 it is pi / 2 - atan(1 / x).
ValueId arc_tangent(Maker& m, ValueId x) {
  const DType dtype = m.dtype(x);
  const ValueId size = m.fn(Fn::abs, {x}), one = m.number(1, dtype);
  const ValueId far = m.fn(Fn::gt, {size, one});
  ValueId y = m.where(far, m.div(one, size), size);
  const int halvings = dtype == DType::f64 ? 4 : 2;
  for (int i = 0; i < halvings; ++i) y = m.div(y, m.add(m.fn(Fn::sqrt, {m.add(m.fn(Fn::square, {y}), 1)}), 1));
  const ValueId square = m.fn(Fn::square, {y});
  ValueId series = m.number(1.0 / 13, dtype);
  for (int n = 11; n >= 1; n -= 2) {
    const double term = ((n / 2) % 2 ? -1.0 : 1.0) / n;
    series = m.add(m.mul(series, square), term);
  }
  ValueId angle = m.mul(m.mul(series, y), static_cast<double>(1 << halvings));
  angle = m.where(far, m.sub(m.number(std::numbers::pi / 2, dtype), angle), angle);
  return m.where(m.fn(Fn::lt, {x, m.number(0, dtype)}), m.fn(Fn::neg, {angle}), angle);
}

}  // namespace

// asin x = atan(x / sqrt((1 - x)(1 + x))), acos x = 2 atan(sqrt((1 - x) / (1 + x))): both keep their digits at the
// ends.
Result<Values> import_arc(NodeContext& c) {
  Maker m(c);
  const ValueId x = m.in(0);
  const std::string& name = c.node().op_type();
  if (name == "Atan") return m.done({arc_tangent(m, x)});
  const ValueId below = m.add(m.fn(Fn::neg, {x}), 1), above = m.add(x, 1);
  if (name == "Acos") return m.done({m.mul(arc_tangent(m, m.fn(Fn::sqrt, {m.div(below, above)})), 2)});
  return m.done({arc_tangent(m, m.div(x, m.fn(Fn::sqrt, {m.mul(below, above)})))});
}

// max(0, x) + min(0, alpha (exp(x / alpha) - 1))
Result<Values> import_celu(NodeContext& c) {
  Maker m(c);
  const ValueId x = m.in(0);
  const double alpha = c.attribute_real("alpha", 1);
  if (alpha == 0) m.fail("`alpha` is 0");
  const ValueId low = m.mul(m.fn(Fn::expm1, {m.mul(m.fn(Fn::min, {x, m.like(0, x)}), 1 / alpha)}), alpha);
  return m.done({m.add(m.fn(Fn::relu, {x}), low)});
}

Result<Values> import_thresholded_relu(NodeContext& c) {
  Maker m(c);
  const ValueId x = m.in(0);
  return m.done({m.where(m.fn(Fn::gt, {x, m.like(c.attribute_real("alpha", 1), x)}), x, m.like(0, x))});
}

// x + bias below -lambd, x - bias above lambd, 0 between
Result<Values> import_shrink(NodeContext& c) {
  Maker m(c);
  const ValueId x = m.in(0);
  if (!m.ok()) return m.done({});
  const double lambda = c.attribute_real("lambd", 0.5), bias = c.attribute_real("bias", 0);
  const DType dtype = m.dtype(x);
  if (!is_real(dtype)) return c.error("integers are not supported");
  const ValueId high = m.where(m.fn(Fn::gt, {x, m.number(lambda, dtype)}), m.add(x, -bias), m.number(0, dtype));
  return m.done({m.where(m.fn(Fn::lt, {x, m.number(-lambda, dtype)}), m.add(x, bias), high)});
}

// a sigmoid(alpha a) b
Result<Values> import_swiglu(NodeContext& c) {
  Maker m(c);
  const ValueId a = m.in(0), b = m.in(1);
  if (m.ok() && m.shape(a) != m.shape(b)) m.fail("its operands differ in shape");
  const double alpha = c.attribute_real("alpha", 1);
  const ValueId gated = alpha == 1 ? m.fn(Fn::silu, {a}) : m.mul(a, m.fn(Fn::sigmoid, {m.mul(a, alpha)}));
  return m.done({m.mul(gated, b)});
}

// Shifts of integers without a sign.
Result<Values> import_bit_shift(NodeContext& c) {
  Maker m(c);
  const ValueId x = m.in(0), by = m.in(1);
  const std::string way = c.attribute_text("direction", "");
  if (way != "LEFT" && way != "RIGHT") m.fail(fmt::format("the direction `{}` is not known", shown(way)));
  if (!m.ok()) return m.done({});
  const DType dtype = m.dtype(x);
  if (!is_unsigned(dtype)) return c.error("only UINT8, UINT16 and UINT32 are supported");
  // Through i64: x 2^k wraps, x // 2^k is exact; a shift by the width or more leaves nothing.
  const double width = 8.0 * static_cast<double>(byte_size(dtype));
  const ValueId wide = m.cast(x, DType::i64), k = m.fn(Fn::min, {m.cast(by, DType::i64), m.number(width, DType::i64)});
  const ValueId power = m.fn(Fn::pow, {m.number(2, DType::i64), k});
  return m.done({m.cast(m.fn(way == "LEFT" ? Fn::mul : Fn::floordiv, {wide, power}), dtype)});
}

namespace {

// The bits of two integers one by one: and, or, xor from sums of powers of two. Widths up to 32 bits.
ValueId bits(Maker& m, ValueId a, ValueId b, const std::string& name, int64_t width) {
  ValueId total;
  for (int64_t i = 0; i < width && m.ok(); ++i) {
    const auto bit = [&](ValueId v) {
      const ValueId shifted = m.fn(Fn::floordiv, {v, m.number(std::ldexp(1, static_cast<int>(i)), DType::i64)});
      return m.fn(Fn::mod, {shifted, m.number(2, DType::i64)});
    };
    const ValueId x = bit(a), y = bit(b);
    ValueId z;
    if (name == "BitwiseAnd") z = m.fn(Fn::min, {x, y});
    if (name == "BitwiseOr") z = m.fn(Fn::max, {x, y});
    if (name == "BitwiseXor") z = m.fn(Fn::abs, {m.sub(x, y)});
    const ValueId part = m.mul(z, std::ldexp(1, static_cast<int>(i)));
    total = i == 0 ? part : m.add(total, part);
  }
  return total;
}

}  // namespace

Result<Values> import_bitwise(NodeContext& c) {
  Maker m(c);
  const ValueId a = m.in(0);
  if (!m.ok()) return m.done({});
  const DType dtype = m.dtype(a);
  if (!is_integer(dtype) || dtype == DType::i64) return c.error("only integers of up to 32 bits are supported");
  const std::string& name = c.node().op_type();
  if (name == "BitwiseNot")  // -1 - x, which wraps where there is no sign
    return m.done({m.cast(m.sub(m.number(-1, DType::i64), m.cast(a, DType::i64)), dtype)});
  const ValueId x = m.cast(a, DType::i64), y = m.cast(m.in(1), DType::i64);
  return m.done({m.cast(bits(m, x, y, name, byte_size(dtype) * 8), dtype)});
}

// x - y trunc(x / y), the remainder with the sign of x; exact while the quotient is.
Result<Values> import_real_mod(NodeContext& c) {
  Maker m(c);
  const ValueId x = m.in(0), y = m.in(1);
  if (!m.ok()) return m.done({});
  const DType own = m.dtype(x);
  // In f64 the quotient of f32 numbers, and its product with y, are exact enough to be rounded once.
  const ValueId a = m.cast(x, DType::f64), b = m.cast(y, DType::f64);
  const ValueId quotient = m.div(a, b);
  const ValueId whole = m.where(m.fn(Fn::lt, {quotient, m.number(0, DType::f64)}), m.fn(Fn::ceil, {quotient}),
                                m.fn(Fn::floor, {quotient}));
  return m.done({m.cast(m.sub(a, m.mul(whole, b)), own)});
}

// ---- quantisation ---------------------------------------------------------------------------------------------------

namespace {

// A scale or zero point [n] lies along `axis` of x, one [..] of x's rank is blocked along `axis`, a scalar is for all.
ValueId spread(Maker& m, ValueId v, ValueId x, int64_t axis, int64_t block) {
  if (!m.ok()) return {};
  const int64_t rank = static_cast<int64_t>(m.rank(x)), own = static_cast<int64_t>(m.rank(v));
  if (own == 0) return v;
  if (own == 1 && m.context().syms().is(m.shape(v)[0], 1)) return m.squeeze(v, {0});
  if (own == 1 && block == 0) return m.unsqueeze(v, count_from(1, rank - axis));
  if (own != rank || block < 1) {
    m.fail("its scale does not fit its operand");
    return {};
  }
  Shape wide = m.shape(v), shape = wide;
  const size_t a = static_cast<size_t>(axis);
  wide.insert(wide.begin() + axis + 1, m.extent(block));
  shape[a] = m.context().syms().mul(shape[a], block);
  ValueId all = m.reshape(m.broadcast(m.unsqueeze(v, {axis + 1}), wide), shape);
  if (m.ok() && m.shape(x)[a] != shape[a]) all = m.slice(all, axis, m.extent(0), m.shape(x)[a]);
  return all;
}

// round(x / scale) + zero, saturated.
ValueId quantised(Maker& m, ValueId x, ValueId scale, std::optional<ValueId> zero, DType to) {
  const double low = static_cast<double>(least_integer(to)), high = static_cast<double>(greatest_integer(to));
  ValueId y = m.fn(Fn::round, {m.div(x, scale)});
  if (zero) y = m.add(y, m.cast(*zero, m.dtype(y)));
  return m.cast(m.fn(Fn::clamp, {y, m.like(low, y), m.like(high, y)}), to);
}

}  // namespace

Result<Values> import_quantize(NodeContext& c) {
  Maker m(c);
  const ValueId x = m.in(0);
  if (c.attribute_int("precision", 0) != 0) return c.error("`precision` is not supported");
  DType to = DType::u8;
  if (c.has(2)) {
    to = c.in(2).dtype;
  } else if (const int64_t type = c.attribute_int("output_dtype", 0); type != 0) {
    const auto known = dtype_of(static_cast<int>(std::clamp<int64_t>(type, -1, 1000)));
    if (!known) return c.error(fmt::format("the element type {} is not supported", type_name(static_cast<int>(type))));
    to = *known;
  }
  if (!is_integer(to)) return c.error("only integers are supported");
  if (!m.ok()) return m.done({});
  const int64_t axis =
      m.rank(x) == 0 ? 0 : m.of(c.axis(std::min<int64_t>(c.attribute_int("axis", 1), m.rank(x) - 1), m.rank(x)));
  const int64_t block = c.attribute_int("block_size", 0);
  const ValueId wide = m.cast(x, is_real(m.dtype(x)) ? compute_type(m.dtype(x)) : DType::f32);
  const ValueId scale = spread(m, m.cast(m.in(1), m.dtype(wide)), x, axis, block);
  std::optional<ValueId> zero;
  if (c.has(2)) zero = spread(m, m.in(2), x, axis, block);
  return m.done({quantised(m, wide, scale, zero, to)});
}

Result<Values> import_dequantize(NodeContext& c) {
  Maker m(c);
  const ValueId x = m.in(0);
  if (!m.ok()) return m.done({});
  DType to = c.in(1).dtype;
  if (const int64_t type = c.attribute_int("output_dtype", 0); type != 0) {
    const auto known = dtype_of(static_cast<int>(std::clamp<int64_t>(type, -1, 1000)));
    if (!known) return c.error(fmt::format("the element type {} is not supported", type_name(static_cast<int>(type))));
    to = *known;
  }
  const int64_t axis =
      m.rank(x) == 0 ? 0 : m.of(c.axis(std::min<int64_t>(c.attribute_int("axis", 1), m.rank(x) - 1), m.rank(x)));
  const int64_t block = c.attribute_int("block_size", 0);
  ValueId y = m.cast(x, DType::i32);
  if (c.has(2)) y = m.sub(y, m.cast(spread(m, m.in(2), x, axis, block), DType::i32));
  const DType compute = compute_type(to);
  return m.done({m.cast(m.mul(m.cast(y, compute), spread(m, m.cast(m.in(1), compute), x, axis, block)), to)});
}

// Scale and zero point from the range of the operand, which always holds 0.
Result<Values> import_dynamic_quantize(NodeContext& c) {
  Maker m(c);
  const ValueId x = m.in(0);
  if (!m.ok()) return m.done({});
  const Ints all = count_from(0, static_cast<int64_t>(m.rank(x)));
  const DType dtype = m.dtype(x);
  const ValueId high = m.fn(Fn::max, {m.reduce(Op::amax, x, all), m.number(0, dtype)});
  const ValueId low = m.fn(Fn::min, {m.reduce(Op::amin, x, all), m.number(0, dtype)});
  const ValueId scale = m.div(m.sub(high, low), m.number(255, dtype));
  const ValueId start = m.fn(Fn::round, {m.div(m.fn(Fn::neg, {low}), scale)});
  const ValueId zero = m.cast(m.fn(Fn::clamp, {start, m.number(0, dtype), m.number(255, dtype)}), DType::u8);
  return m.done({quantised(m, x, scale, zero, DType::u8), scale, zero});
}

// ((a - a_zero) a_scale) ((b - b_zero) b_scale), quantised again: the product in integers, one scale behind it.
Result<Values> import_qlinear_matmul(NodeContext& c) {
  Maker m(c);
  const auto centred = [&](size_t i, int64_t axis_from_end) {
    const ValueId x = m.cast(m.in(i), DType::i32);
    ValueId zero = m.cast(m.in(i + 2), DType::i32);
    if (m.ok() && m.rank(zero) == 1 && !c.syms().is(m.shape(zero)[0], 1) && axis_from_end == 2)
      zero = m.unsqueeze(zero, {1});
    return m.sub(x, m.ok() && m.rank(zero) == 1 && c.syms().is(m.shape(zero)[0], 1) ? m.squeeze(zero, {0}) : zero);
  };
  const ValueId a = centred(0, 2), b = centred(3, 1);
  if (!m.ok()) return m.done({});
  OnnxValue left = c.wrap(a), right = c.wrap(b);
  NodeContext product(c.builder(), c.node(), c.opset(), {&left, &right});
  const Values y = m.of(import_matmul(product));
  if (!m.ok()) return m.done({});
  const auto scalar = [&](size_t i) {
    const ValueId v = m.cast(m.in(i), DType::f32);
    return m.ok() && m.rank(v) == 1 && c.syms().is(m.shape(v)[0], 1) ? m.squeeze(v, {0}) : v;
  };
  ValueId scale = scalar(1);
  if (m.ok() && m.rank(scale) == 1) scale = m.unsqueeze(scale, {1});
  const ValueId real = m.mul(m.cast(*y[0].id, DType::f32), m.mul(scale, scalar(4)));
  return m.done({quantised(m, real, scalar(6), scalar(7), c.in(7).dtype)});
}

}  // namespace cleave::onnx_import
