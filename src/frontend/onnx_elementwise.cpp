#include <cmath>
#include <limits>

#include "frontend/onnx_handlers.hpp"
#include "frontend/onnx_tensor.hpp"

namespace cleave::onnx_import {

using graph::ValueId;

Result<Values> import_identity(NodeContext& c) { return Values{c.in(0)}; }

// At inference dropout changes nothing; its mask is all true.
Result<Values> import_dropout(NodeContext& c) {
  if (c.has(2)) {
    TRY_ASSIGN(const double training, c.number(2, "training mode"));
    double ratio = c.attribute_real("ratio", 0.5);
    if (c.has(1)) {
      TRY_ASSIGN(ratio, c.number(1, "ratio"));
    }
    if (training != 0 && ratio != 0) return c.error("training mode is not supported");
  }
  Values out{c.in(0)};
  if (c.results() > 1) out.push_back(c.splat(1, DType::boolean, c.in(0).shape));
  return out;
}

namespace {

Result<Values> cast_to(NodeContext& c, DType dtype) {
  OnnxValue& x = c.in(0);
  if (x.dtype == dtype) return Values{x};
  if (x.splat) {
    const double v = *x.splat;
    double y = v;
    if (class_of(dtype) == DTypeClass::boolean) {
      y = v != 0;
    } else if (is_real(dtype)) {
      y = round_to(dtype, v);
    } else {
      y = static_cast<double>(is_real(x.dtype) ? real_to_integer(dtype, v) : wrap_to(dtype, static_cast<int64_t>(v)));
    }
    return Values{c.splat(y, dtype, x.shape)};
  }
  if (x.integers && is_integer(dtype)) {
    std::vector<sym::Expr> wrapped;
    for (const sym::Expr e : *x.integers) {
      const auto constant = c.syms().as_constant(e);
      wrapped.push_back(constant ? c.syms().constant(wrap_to(dtype, *constant)) : e);
    }
    return Values{c.integers(dtype, std::move(wrapped), x.shape)};
  }
  TRY_ASSIGN(const ValueId id, c.id(0));
  return c.one(c.cast(id, dtype));
}

Result<ValueId> multiply(NodeContext& c, ValueId x, double factor) {
  return c.add(graph::op_of(Fn::mul), {x, c.builder().literal(factor, c.builder().type(x).dtype)});
}

}  // namespace

Result<Values> import_cast(NodeContext& c) {
  const int64_t to = c.attribute_int("to", 0);
  const auto dtype = dtype_of(static_cast<int>(std::clamp<int64_t>(to, -1, 1000)));
  if (!dtype)
    return c.error(fmt::format("the element type {} is not supported",
                               type_name(static_cast<int>(std::clamp<int64_t>(to, -1, 1000)))));
  return cast_to(c, *dtype);
}

Result<Values> import_cast_like(NodeContext& c) { return cast_to(c, c.in(1).dtype); }

// Bounds are operands since opset 11 and attributes before; either may be absent.
Result<Values> import_clip(NodeContext& c) {
  TRY_ASSIGN(ValueId x, c.id(0));
  const DType dtype = c.in(0).dtype;
  for (const bool low : {true, false}) {
    const size_t operand = low ? 1 : 2;
    const char* attribute = low ? "min" : "max";
    OnnxValue bound;
    if (c.has(operand)) {
      bound = c.in(operand);
    } else if (c.opset() < 11 && c.attribute(attribute)) {
      bound = c.splat(c.attribute_real(attribute, 0), dtype, {});
    } else {
      continue;
    }
    OnnxValue value = c.wrap(x);
    OnnxValue* operands[] = {&value, &bound};
    TRY_ASSIGN(const OnnxValue clipped, c.elementwise(low ? Fn::max : Fn::min, operands));
    x = *clipped.id;
  }
  return c.one(x);
}

Result<Values> import_elu(NodeContext& c) {
  TRY_ASSIGN(const ValueId x, c.id(0));
  return c.one(c.add(graph::op_of(Fn::elu), {x, c.builder().literal(c.attribute_real("alpha", 1), c.in(0).dtype)}));
}

Result<Values> import_leaky_relu(NodeContext& c) {
  TRY_ASSIGN(const ValueId x, c.id(0));
  const double alpha = c.attribute_real("alpha", static_cast<double>(0.01f));
  return c.one(c.add(graph::op_of(Fn::leaky_relu), {x, c.builder().literal(alpha, c.in(0).dtype)}));
}

Result<Values> import_fold(NodeContext& c) {
  const std::string& type = c.node().op_type();
  const Fn fn = type == "Min" ? Fn::min : type == "Max" ? Fn::max : Fn::add;
  OnnxValue result = c.in(0);
  for (size_t i = 1; i < c.size(); ++i) {
    if (!c.has(i)) return c.error(fmt::format("operand {} is missing", i));
    OnnxValue* operands[] = {&result, &c.in(i)};
    TRY_ASSIGN(OnnxValue next, c.elementwise(fn, operands));
    result = std::move(next);
  }
  if (type != "Mean") return Values{result};
  TRY_ASSIGN(const ValueId sum, c.materialise(result));
  return c.one(multiply(c, sum, 1.0 / static_cast<double>(c.size())));
}

Result<Values> import_gelu(NodeContext& c) {
  TRY_ASSIGN(const ValueId x, c.id(0));
  const std::string approximate = c.attribute_text("approximate", "none");
  if (approximate != "none" && approximate != "tanh")
    return c.error(fmt::format("the approximation `{}` is not known", shown(approximate)));
  return c.one(c.add(graph::op_of(approximate == "tanh" ? Fn::gelu_tanh : Fn::gelu_erf), {x}));
}

// max(0, min(1, alpha x + beta)); alpha and beta are not those of PyTorch's function.
Result<Values> import_hard_sigmoid(NodeContext& c) {
  TRY_ASSIGN(const ValueId x, c.id(0));
  const DType dtype = c.in(0).dtype;
  TRY_ASSIGN(const ValueId scaled, multiply(c, x, c.attribute_real("alpha", static_cast<double>(0.2f))));
  TRY_ASSIGN(const ValueId moved,
             c.add(graph::op_of(Fn::add), {scaled, c.builder().literal(c.attribute_real("beta", 0.5), dtype)}));
  return c.one(c.add(graph::op_of(Fn::clamp), {moved, c.builder().literal(0, dtype), c.builder().literal(1, dtype)}));
}

Result<Values> import_is_inf(NodeContext& c) {
  TRY_ASSIGN(const ValueId x, c.id(0));
  const bool positive = c.attribute_int("detect_positive", 1), negative = c.attribute_int("detect_negative", 1);
  if (positive && negative) return c.one(c.add(graph::op_of(Fn::isinf), {x}));
  if (!positive && !negative) return Values{c.splat(0, DType::boolean, c.in(0).shape)};
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return c.one(c.add(graph::op_of(Fn::eq), {x, c.builder().literal(positive ? kInfinity : -kInfinity, c.in(0).dtype)}));
}

// fmod = 0 rounds towards minus infinity; fmod = 1 is C's fmod, x - trunc(x / y) y.
Result<Values> import_mod(NodeContext& c) {
  OnnxValue* operands[] = {&c.in(0), &c.in(1)};
  const bool integer = is_integer(c.in(0).dtype);
  if (c.attribute_int("fmod", 0) == 0) {
    TRY_ASSIGN(OnnxValue value, c.elementwise(Fn::mod, operands));
    return c.one(std::move(value));
  }
  if (!integer) return import_real_mod(c);
  TRY_ASSIGN(OnnxValue quotient, c.elementwise(Fn::div, operands));
  OnnxValue* product_of[] = {&quotient, &c.in(1)};
  TRY_ASSIGN(OnnxValue product, c.elementwise(Fn::mul, product_of));
  OnnxValue* difference_of[] = {&c.in(0), &product};
  TRY_ASSIGN(OnnxValue value, c.elementwise(Fn::sub, difference_of));
  return c.one(std::move(value));
}

// The exponent may have another type; the result has the base's. Common exponents have functions of their own.
Result<Values> import_pow(NodeContext& c) {
  OnnxValue& base = c.in(0);
  OnnxValue& exponent = c.in(1);
  const bool scalar =
      exponent.splat && constant_elements(c.syms(), exponent.shape) == 1 && exponent.shape.size() <= base.shape.size();
  if (scalar && is_real(base.dtype)) {
    const double e = *exponent.splat;
    TRY_ASSIGN(const ValueId x, c.id(0));
    if (e == 1) return Values{base};
    if (e == 2) return c.one(c.add(graph::op_of(Fn::square), {x}));
    if (e == 0.5) return c.one(c.add(graph::op_of(Fn::sqrt), {x}));
    if (e == -0.5) return c.one(c.add(graph::op_of(Fn::rsqrt), {x}));
    if (e == -1) return c.one(c.add(graph::op_of(Fn::reciprocal), {x}));
    if (e == 3) {
      TRY_ASSIGN(const ValueId squared, c.add(graph::op_of(Fn::square), {x}));
      return c.one(c.add(graph::op_of(Fn::mul), {squared, x}));
    }
    return c.one(c.add(graph::op_of(Fn::pow), {x, c.builder().literal(e, base.dtype)}));
  }
  OnnxValue* operands[] = {&base, &exponent};
  TRY_ASSIGN(const OnnxValue value, c.elementwise(Fn::pow, operands));
  OnnxValue result = value;
  TRY_ASSIGN(const ValueId id, c.materialise(result));
  return c.one(c.cast(id, base.dtype));
}

Result<Values> import_prelu(NodeContext& c) {
  OnnxValue* operands[] = {&c.in(0), &c.in(1)};
  TRY_ASSIGN(OnnxValue scaled, c.elementwise(Fn::mul, operands));
  TRY_ASSIGN(const ValueId x, c.id(0));
  TRY_ASSIGN(const ValueId below, c.materialise(scaled));
  TRY_ASSIGN(const ValueId negative, c.add(graph::op_of(Fn::lt), {x, c.builder().literal(0, c.in(0).dtype)}));
  return c.one(c.add(graph::op_of(Fn::where), {negative, below, x}));
}

Result<Values> import_softsign(NodeContext& c) {
  TRY_ASSIGN(const ValueId x, c.id(0));
  TRY_ASSIGN(const ValueId size, c.add(graph::op_of(Fn::abs), {x}));
  TRY_ASSIGN(const ValueId below, c.add(graph::op_of(Fn::add), {size, c.builder().literal(1, c.in(0).dtype)}));
  return c.one(c.add(graph::op_of(Fn::div), {x, below}));
}

// gamma (max(x, 0) + alpha (exp(min(x, 0)) - 1)): our selu has the default constants.
Result<Values> import_selu(NodeContext& c) {
  TRY_ASSIGN(const ValueId x, c.id(0));
  constexpr float kAlpha = 1.67326319217681884765625f, kGamma = 1.05070102214813232421875f;
  const double alpha = c.attribute_real("alpha", kAlpha), gamma = c.attribute_real("gamma", kGamma);
  if (alpha == static_cast<double>(kAlpha) && gamma == static_cast<double>(kGamma)) {
    return c.one(c.add(graph::op_of(Fn::selu), {x}));
  }
  TRY_ASSIGN(const ValueId elu, c.add(graph::op_of(Fn::elu), {x, c.builder().literal(alpha, c.in(0).dtype)}));
  return c.one(multiply(c, elu, gamma));
}

// x sigmoid(alpha x)
Result<Values> import_swish(NodeContext& c) {
  TRY_ASSIGN(const ValueId x, c.id(0));
  const double alpha = c.attribute_real("alpha", 1);
  if (alpha == 1) return c.one(c.add(graph::op_of(Fn::silu), {x}));
  TRY_ASSIGN(const ValueId scaled, multiply(c, x, alpha));
  TRY_ASSIGN(const ValueId gate, c.add(graph::op_of(Fn::sigmoid), {scaled}));
  return c.one(c.add(graph::op_of(Fn::mul), {x, gate}));
}

}  // namespace cleave::onnx_import
