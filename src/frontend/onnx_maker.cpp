#include "frontend/onnx_maker.hpp"

#include <cmath>

namespace cleave::onnx_import {

using graph::Op;
using graph::Shape;
using graph::ValueId;
using Ints = std::vector<int64_t>;

void Maker::take(Diagnostics errors) {
  if (!bad_) bad_ = std::move(errors);
}
void Maker::same(sym::Expr a, sym::Expr b, std::string_view what) {
  if (!ok() || c_.syms().equal(a, b) == sym::Proof::yes) return;
  fail(fmt::format("{} has the extents {} and {}", what, shown(c_.syms().print(a)), shown(c_.syms().print(b))));
}

void Maker::fail(std::string_view why) { take({c_.error(why)}); }

ValueId Maker::in(size_t i) { return of(c_.id(i)); }

ValueId Maker::make(Op op, std::vector<ValueId> operands, graph::Attributes attributes) {
  const auto all = make_all(op, 1, std::move(operands), std::move(attributes));
  return all[0];
}

std::vector<ValueId> Maker::make_all(Op op, size_t results, std::vector<ValueId> operands,
                                     graph::Attributes attributes) {
  std::vector<ValueId> none(results);
  if (!ok()) return none;
  auto all = of(c_.add_all(op, std::move(operands), std::move(attributes)));
  return ok() ? all : none;
}

ValueId Maker::pow(ValueId a, double e) {
  if (e == 1) return a;
  if (e == 2) return fn(Fn::square, {a});
  if (e == 0.5) return fn(Fn::sqrt, {a});
  if (e == -0.5) return fn(Fn::rsqrt, {a});
  return fn(Fn::pow, {a, like(e, a)});
}

ValueId Maker::cast(ValueId v, DType dtype) { return ok() ? of(c_.cast(v, dtype)) : v; }
ValueId Maker::reshape(ValueId v, Shape shape) { return ok() ? of(c_.reshape(v, std::move(shape))) : v; }
ValueId Maker::broadcast(ValueId v, Shape to) {
  if (!ok() || shape(v) == to) return v;
  return make(Op::broadcast, {v}, {{"shape", std::move(to)}});
}
ValueId Maker::transpose(ValueId v, Ints perm) { return make(Op::transpose, {v}, {{"perm", std::move(perm)}}); }
ValueId Maker::unsqueeze(ValueId v, Ints axes) {
  return axes.empty() ? v : make(Op::unsqueeze, {v}, {{"axes", std::move(axes)}});
}
ValueId Maker::squeeze(ValueId v, Ints axes) {
  return axes.empty() ? v : make(Op::squeeze, {v}, {{"axes", std::move(axes)}});
}
ValueId Maker::concat(std::vector<ValueId> parts, int64_t axis) {
  return parts.size() == 1 ? parts[0] : make(Op::concat, std::move(parts), {{"axis", axis}});
}
ValueId Maker::gather(ValueId data, ValueId indices, int64_t axis) {
  return make(Op::gather, {data, indices}, {{"axis", axis}});
}
ValueId Maker::slice(ValueId v, int64_t axis, sym::Expr start, sym::Expr stop, int64_t step) {
  return make(Op::slice, {v},
              {{"axes", Ints{axis}}, {"starts", Shape{start}}, {"stops", Shape{stop}}, {"steps", Ints{step}}});
}
ValueId Maker::flip(ValueId v, Ints axes) {
  return axes.empty() ? v : make(Op::flip, {v}, {{"axes", std::move(axes)}});
}
ValueId Maker::pad(ValueId v, Ints low, Ints high, double value) {
  const auto zero = [](int64_t n) { return n == 0; };
  if (std::all_of(low.begin(), low.end(), zero) && std::all_of(high.begin(), high.end(), zero)) return v;
  return make(Op::pad, {v}, {{"low", std::move(low)}, {"high", std::move(high)}, {"value", value}});
}
ValueId Maker::reduce(Op op, ValueId v, Ints axes, bool keep) {
  return axes.empty() ? v : make(op, {v}, {{"axes", std::move(axes)}, {"keepdims", keep}});
}
ValueId Maker::iota(Shape shape, int64_t axis, DType dtype) {
  return make(Op::iota, {}, {{"shape", std::move(shape)}, {"axis", axis}, {"dtype", dtype}});
}
ValueId Maker::contract(ValueId a, const graph::IndexNames& left, ValueId b, const graph::IndexNames& right,
                        const graph::IndexNames& result) {
  return make(Op::contract, {a, b}, {{"spec", graph::print(graph::ContractSpec{{left, right}, result})}});
}

ValueId Maker::table(std::string_view name, DType dtype, const Ints& extents, const std::vector<double>& elements) {
  const size_t width = static_cast<size_t>(byte_size(dtype));
  auto bytes = std::make_shared<std::vector<std::byte>>(elements.size() * width);
  for (size_t i = 0; i < elements.size(); ++i) {
    std::byte* at = bytes->data() + i * width;
    if (is_real(dtype)) {
      store_real(dtype, at, round_to(dtype, elements[i]));
    } else {
      store_integer(dtype, at, wrap_to(dtype, static_cast<int64_t>(elements[i])));
    }
  }
  graph::ConstantData data;
  data.kind = graph::ConstantData::Kind::bytes;
  data.bytes = std::move(bytes);
  const std::string unique = fmt::format("{}_{}", name, c_.builder().graph().leaves().size());
  return c_.builder().constant(unique, dtype, c_.builder().shape(extents), std::move(data));
}

ValueId Maker::extent_value(sym::Expr e, DType dtype) {
  if (const auto n = c_.syms().as_constant(e)) return number(static_cast<double>(*n), dtype);
  return make(Op::extent, {}, {{"of", Shape{e}}, {"dtype", dtype}});
}

const Shape& Maker::shape(ValueId v) { return ok() ? c_.builder().type(v).shape : none_; }
DType Maker::dtype(ValueId v) { return ok() ? c_.builder().type(v).dtype : DType::f32; }

int64_t Maker::constant(sym::Expr e, std::string_view what) {
  if (!ok()) return 0;
  const sym::Interval range = c_.syms().bounds(e);  // of a dimension that is given: one number
  if (range.lo != range.hi) fail(fmt::format("{} has to be a number, it is {}", what, shown(c_.syms().print(e))));
  return range.lo;
}
Ints Maker::constants(ValueId v, std::string_view what) {
  Ints out;
  for (const sym::Expr e : shape(v)) out.push_back(constant(e, what));
  return out;
}

Result<Values> Maker::done(std::vector<ValueId> results) {
  if (bad_) return *bad_;
  Values out;
  for (const ValueId v : results) out.push_back(c_.wrap(v));
  return out;
}

Ints count_from(int64_t first, int64_t last) {
  Ints out;
  for (int64_t i = first; i < last; ++i) out.push_back(i);
  return out;
}

}  // namespace cleave::onnx_import
