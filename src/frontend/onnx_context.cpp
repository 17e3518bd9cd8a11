#include "frontend/onnx_context.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

#include "base/codes.hpp"

namespace cleave::onnx_import {

using graph::Op;
using graph::ValueId;

std::string NodeContext::node_name() const {
  if (!node_.name().empty()) return shown(node_.name());
  return node_.output_size() ? "-> " + shown(node_.output(0)) : "unnamed";
}

Diagnostic NodeContext::error(std::string_view why) const {
  return diagnose(Code::onnx_node, node_name(), shown(node_.op_type()), why);
}

Result<ValueId> NodeContext::id(size_t i) {
  if (!has(i)) return error(fmt::format("operand {} is missing", i));
  return materialise(in(i));
}

Result<std::vector<sym::Expr>> NodeContext::extents(size_t i, std::string_view what) {
  if (!has(i)) return error(fmt::format("its {} are missing", what));
  const OnnxValue& v = in(i).known ? *in(i).known : in(i);
  if (!v.integers)
    return error(fmt::format("its {} are computed at run time; only those known at import are supported", what));
  return *v.integers;
}

Result<std::vector<int64_t>> NodeContext::ints(size_t i, std::string_view what) {
  TRY_ASSIGN(const auto known, extents(i, what));
  const auto constants = constant_extents(syms(), known);
  if (!constants) return error(fmt::format("its {} depend on a symbolic dimension", what));
  return *constants;
}

Result<double> NodeContext::number(size_t i, std::string_view what) {
  if (!has(i)) return error(fmt::format("its {} is missing", what));
  const OnnxValue& v = in(i).known ? *in(i).known : in(i);
  if (v.splat && constant_elements(syms(), v.shape) == 1) return *v.splat;
  if (v.integers && v.integers->size() == 1) {
    if (const auto c = syms().as_constant((*v.integers)[0])) return static_cast<double>(*c);
  }
  return error(fmt::format("its {} is no scalar constant", what));
}

const onnx::AttributeProto* NodeContext::attribute(std::string_view name) const {
  for (const auto& a : node_.attribute()) {
    if (a.name() == name) return &a;
  }
  return nullptr;
}
int64_t NodeContext::attribute_int(std::string_view name, int64_t otherwise) const {
  const auto* a = attribute(name);
  return a && a->has_i() ? a->i() : otherwise;
}
double NodeContext::attribute_real(std::string_view name, double otherwise) const {
  const auto* a = attribute(name);
  return a && a->has_f() ? static_cast<double>(a->f()) : otherwise;
}
std::string NodeContext::attribute_text(std::string_view name, std::string_view otherwise) const {
  const auto* a = attribute(name);
  return a && a->has_s() ? a->s() : std::string(otherwise);
}
std::optional<std::vector<int64_t>> NodeContext::attribute_ints(std::string_view name) const {
  const auto* a = attribute(name);
  if (!a || (a->ints_size() == 0 && a->type() != onnx::AttributeProto::INTS)) return std::nullopt;
  return std::vector<int64_t>(a->ints().begin(), a->ints().end());
}

Result<int64_t> NodeContext::axis(int64_t axis, size_t rank) const {
  const int64_t r = static_cast<int64_t>(rank);
  if (axis < -r || axis >= r) return error(fmt::format("the axis {} is outside a rank of {}", axis, r));
  return axis < 0 ? axis + r : axis;
}

Result<std::vector<int64_t>> NodeContext::axes(std::span<const int64_t> axes, size_t rank) const {
  std::vector<int64_t> out;
  for (const int64_t a : axes) {
    TRY_ASSIGN(const int64_t normal, axis(a, rank));
    out.push_back(normal);
  }
  std::sort(out.begin(), out.end());
  if (std::adjacent_find(out.begin(), out.end()) != out.end()) return error("an axis is named twice");
  return out;
}

OnnxValue NodeContext::wrap(ValueId id) const {
  const graph::Type& type = builder_.type(id);
  OnnxValue value;
  value.dtype = type.dtype;
  value.shape = type.shape;
  value.id = id;
  return value;
}

Result<std::vector<ValueId>> NodeContext::add_all(Op op, std::vector<ValueId> operands, graph::Attributes attributes) {
  auto r = builder_.add(op, std::move(operands), std::move(attributes));
  if (r.ok()) return r;
  Diagnostics out;
  for (const Diagnostic& d : r.errors()) out.push_back(error(d.message()));
  return out;
}

Result<ValueId> NodeContext::add(Op op, std::vector<ValueId> operands, graph::Attributes attributes) {
  TRY_ASSIGN(const auto results, add_all(op, std::move(operands), std::move(attributes)));
  return results.at(0);
}

Result<std::vector<OnnxValue>> NodeContext::one(Result<ValueId> id) {
  if (!id.ok()) return id.errors();
  return std::vector<OnnxValue>{wrap(*id)};
}

OnnxValue NodeContext::integers(DType dtype, std::vector<sym::Expr> elements, graph::Shape shape) {
  OnnxValue value;
  value.dtype = dtype;
  value.shape = std::move(shape);
  value.integers = std::move(elements);
  return value;
}

OnnxValue NodeContext::splat(double number, DType dtype, graph::Shape shape) {
  OnnxValue value;
  value.dtype = dtype;
  value.splat = number;
  value.shape = std::move(shape);
  const auto count = constant_elements(syms(), value.shape);
  if (!is_real(dtype) && count && *count <= kMaxKnownIntegers) {
    value.integers.emplace(static_cast<size_t>(*count), syms().constant(static_cast<int64_t>(number)));
  }
  return value;
}

Result<ValueId> NodeContext::materialise(OnnxValue& value) {
  if (value.id) return *value.id;
  if (value.splat) {
    const ValueId literal = builder_.literal(*value.splat, value.dtype);
    if (value.shape.empty()) {
      value.id = literal;
    } else {
      TRY_ASSIGN(value.id, add(Op::broadcast, {literal}, {{"shape", value.shape}}));
    }
  } else if (value.bytes) {
    graph::ConstantData data;
    data.kind = graph::ConstantData::Kind::bytes;
    data.bytes = value.bytes;
    value.id = builder_.constant(value.name, value.dtype, value.shape, std::move(data));
  } else if (value.integers) {
    TRY_ASSIGN(value.id, materialise_integers(value));
  } else {
    return error("an operand has no value");
  }
  return *value.id;
}

// first + step * i over the elements of `value`.
Result<ValueId> NodeContext::progression(int64_t first, int64_t step, const OnnxValue& value) {
  const auto number = [&](int64_t v) { return builder_.literal(static_cast<double>(v), value.dtype); };
  if (step == 0) return add(Op::broadcast, {number(first)}, {{"shape", value.shape}});
  const sym::Expr count = syms().constant(static_cast<int64_t>(value.integers->size()));
  TRY_ASSIGN(ValueId x,
             add(Op::iota, {}, {{"shape", graph::Shape{count}}, {"axis", int64_t{0}}, {"dtype", value.dtype}}));
  if (step != 1) {
    TRY_ASSIGN(x, add(graph::op_of(Fn::mul), {x, number(step)}));
  }
  if (first != 0) {
    TRY_ASSIGN(x, add(graph::op_of(Fn::add), {x, number(first)}));
  }
  return reshape(x, value.shape);
}

Result<ValueId> NodeContext::materialise_integers(const OnnxValue& value) {
  const auto& elements = *value.integers;
  if (const auto constants = constant_extents(syms(), elements)) {
    // Equal steps are computed where they are used instead of being read; later passes can see through them.
    const size_t n = constants->size();
    bool even = n > 1 && is_integer(value.dtype);
    const int64_t first = n ? (*constants)[0] : 0;
    int64_t step = 0;
    even = even && !__builtin_sub_overflow((*constants)[1], first, &step);
    for (size_t i = 0; even && i < n; ++i) {
      int64_t here = 0;
      even = !__builtin_mul_overflow(step, static_cast<int64_t>(i), &here) &&
             !__builtin_add_overflow(here, first, &here) && here == (*constants)[i] &&
             std::abs(here) < (int64_t{1} << 31);
    }
    if (even) return progression(first, step, value);
    const auto bytes_each = static_cast<size_t>(byte_size(value.dtype));
    auto bytes = std::make_shared<std::vector<std::byte>>(constants->size() * bytes_each);
    for (size_t i = 0; i < constants->size(); ++i) {
      store_integer(value.dtype, bytes->data() + i * bytes_each, wrap_to(value.dtype, (*constants)[i]));
    }
    graph::ConstantData data;
    data.kind = graph::ConstantData::Kind::bytes;
    data.bytes = std::move(bytes);
    return builder_.constant(fmt::format("integers_{}", builder_.graph().leaves().size()), value.dtype, value.shape,
                             std::move(data));
  }
  std::vector<ValueId> parts;
  for (const sym::Expr e : elements) {
    TRY_ASSIGN(const ValueId part, add(Op::extent, {}, {{"of", std::vector<sym::Expr>{e}}, {"dtype", value.dtype}}));
    TRY_ASSIGN(const ValueId row, add(Op::unsqueeze, {part}, {{"axes", std::vector<int64_t>{0}}}));
    parts.push_back(row);
  }
  TRY_ASSIGN(const ValueId all, add(Op::concat, std::move(parts), {{"axis", int64_t{0}}}));
  return reshape(all, value.shape);
}

Result<ValueId> NodeContext::elementwise(Fn fn, std::vector<ValueId> operands) {
  if (const auto simple = simplify_choice(builder_, fn, operands)) return *simple;
  return add(graph::op_of(fn), std::move(operands));
}

Result<OnnxValue> NodeContext::elementwise(Fn fn, std::span<OnnxValue* const> operands) {
  std::vector<graph::Shape> shapes, strong;
  for (const OnnxValue* v : operands) {
    shapes.push_back(v->shape);
    if (!v->splat) strong.push_back(v->shape);
  }
  const auto shape = broadcast_shapes(syms(), shapes);
  if (!shape) {
    std::string list;
    for (const auto& s : shapes) list += (list.empty() ? "" : " and ") + print_shape(syms(), s);
    return error(fmt::format("the shapes {} do not broadcast", list));
  }
  if (auto folded = fold_integers(syms(), fn, operands, *shape)) {
    return integers(result_dtype(fn, operands.back()->dtype), std::move(*folded), *shape);
  }
  // A uniform constant is a bare literal, unless the result's shape needs it.
  const auto without = broadcast_shapes(syms(), strong);
  const bool bare = without && *without == *shape && !strong.empty();
  std::vector<ValueId> ids;
  for (OnnxValue* v : operands) {
    if (v->splat && bare) {
      ids.push_back(builder_.literal(*v->splat, v->dtype));
    } else {
      TRY_ASSIGN(const ValueId id, materialise(*v));
      ids.push_back(id);
    }
  }
  TRY_ASSIGN(const ValueId result, elementwise(fn, std::move(ids)));
  return wrap(result);
}

Result<ValueId> NodeContext::cast(ValueId value, DType dtype) {
  if (builder_.type(value).dtype == dtype) return value;
  return add(Op::cast, {value}, {{"dtype", dtype}});
}

// Where only extents of 1 come and go the result is a squeeze and an unsqueeze, which keep the other axes visible.
Result<ValueId> NodeContext::reshape(ValueId value, graph::Shape shape) {
  const graph::Shape from = builder_.type(value).shape;
  if (from == shape) return value;
  const auto ones = [&](const graph::Shape& s) {
    std::vector<int64_t> axes;
    for (size_t i = 0; i < s.size(); ++i) {
      if (syms().is(s[i], 1)) axes.push_back(static_cast<int64_t>(i));
    }
    return axes;
  };
  const auto others = [&](const graph::Shape& s) {
    graph::Shape kept;
    std::copy_if(s.begin(), s.end(), std::back_inserter(kept), [&](sym::Expr e) { return !syms().is(e, 1); });
    return kept;
  };
  if (const auto simple = simplify_reshape(builder_, value, shape)) return *simple;
  if (others(from) != others(shape)) return add(Op::reshape, {value}, {{"shape", std::move(shape)}});
  if (const auto gone = ones(from); !gone.empty()) {
    TRY_ASSIGN(value, add(Op::squeeze, {value}, {{"axes", gone}}));
  }
  if (const auto fresh = ones(shape); !fresh.empty()) return add(Op::unsqueeze, {value}, {{"axes", fresh}});
  return value;
}

std::optional<std::vector<sym::Expr>> fold_integers(sym::Pool& syms, Fn fn, std::span<OnnxValue* const> operands,
                                                    const graph::Shape& shape) {
  const auto count = constant_elements(syms, shape);
  const auto extents = constant_extents(syms, shape);
  if (!count || *count > kMaxKnownIntegers) return std::nullopt;
  for (const OnnxValue* v : operands) {
    if (!v->integers || is_real(v->dtype)) return std::nullopt;
  }
  // Where the operands' element of each result element lies: broadcast axes have stride 0.
  const auto element = [&](const OnnxValue& v, int64_t flat) {
    int64_t source = 0, stride = 1;
    for (size_t i = 0; i < shape.size(); ++i) {
      const size_t axis = shape.size() - 1 - i;
      const int64_t index = flat % (*extents)[axis];
      flat /= (*extents)[axis];
      if (i >= v.shape.size()) continue;
      const int64_t own = *syms.as_constant(v.shape[v.shape.size() - 1 - i]);
      if (own != 1) source += index * stride;
      stride *= own;
    }
    return (*v.integers)[static_cast<size_t>(source)];
  };
  const auto truth = [&](sym::Proof p) -> std::optional<sym::Expr> {
    if (p == sym::Proof::unknown) return std::nullopt;
    return syms.constant(p == sym::Proof::yes);
  };
  std::vector<sym::Expr> out;
  for (int64_t i = 0; i < *count; ++i) {
    std::vector<sym::Expr> x;
    std::vector<int64_t> constants;
    for (const OnnxValue* v : operands) {
      x.push_back(element(*v, i));
      if (const auto c = syms.as_constant(x.back())) constants.push_back(*c);
    }
    std::optional<sym::Expr> y;
    if (constants.size() == x.size()) {
      const FnRule rule = info(fn).rule;
      if (rule == FnRule::real || rule == FnRule::real_test || fn == Fn::pow) return std::nullopt;
      // Beyond 2^31 the exact result may not be what wrapping arithmetic gives: leave it to run time.
      for (const int64_t c : constants) {
        if (c > (int64_t{1} << 31) && fn != Fn::min && fn != Fn::where) return std::nullopt;
        if (c < -(int64_t{1} << 31) && fn != Fn::max && fn != Fn::where) return std::nullopt;
      }
      y = syms.constant(
          wrap_to(result_dtype(fn, operands.back()->dtype), eval(fn, std::span<const int64_t>(constants))));
    } else {
      switch (fn) {
        case Fn::add: y = syms.add(x[0], x[1]); break;
        case Fn::sub: y = syms.sub(x[0], x[1]); break;
        case Fn::mul: y = syms.mul(x[0], x[1]); break;
        case Fn::neg: y = syms.mul(x[0], -1); break;
        case Fn::min: y = syms.min(x[0], x[1]); break;
        case Fn::max: y = syms.max(x[0], x[1]); break;
        case Fn::div:  // truncates; for non-negative operands that is the floor
          if (syms.bounds(x[0]).lo >= 0 && syms.bounds(x[1]).lo > 0) y = syms.floordiv(x[0], x[1]);
          break;
        case Fn::floordiv:
        case Fn::mod:
          if (syms.bounds(x[1]).lo > 0) y = fn == Fn::mod ? syms.mod(x[0], x[1]) : syms.floordiv(x[0], x[1]);
          break;
        case Fn::eq: y = truth(syms.equal(x[0], x[1])); break;
        case Fn::lt: y = truth(syms.less(x[0], x[1])); break;
        case Fn::le: y = truth(syms.at_most(x[0], x[1])); break;
        case Fn::gt: y = truth(syms.less(x[1], x[0])); break;
        case Fn::ge: y = truth(syms.at_most(x[1], x[0])); break;
        case Fn::where:
          if (const auto c = syms.as_constant(x[0])) y = *c ? x[1] : x[2];
          break;
        default: break;
      }
    }
    if (!y) return std::nullopt;
    out.push_back(*y);
  }
  return out;
}

}  // namespace cleave::onnx_import
