// Writing a translation as one would write the formula: each helper adds an operator and returns its value; after the
// first fault the rest does nothing, and done() returns that fault.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/onnx_handlers.hpp"
#include "graph/spec.hpp"

namespace cleave::onnx_import {

class Maker {
 public:
  using ValueId = graph::ValueId;
  using Ints = std::vector<int64_t>;

  explicit Maker(NodeContext& context) : c_(context), none_(4 * graph::kMaxRank, context.syms().constant(1)) {}

  ValueId in(size_t i);  // operand i
  ValueId make(graph::Op op, std::vector<ValueId> operands, graph::Attributes attributes = {});
  std::vector<ValueId> make_all(graph::Op op, size_t results, std::vector<ValueId> operands,
                                graph::Attributes attributes = {});
  ValueId fn(Fn fn, std::vector<ValueId> operands) { return make(graph::op_of(fn), std::move(operands)); }
  ValueId number(double value, DType dtype) { return c_.builder().literal(value, dtype); }
  ValueId like(double value, ValueId x) { return ok() ? number(value, dtype(x)) : ValueId(); }

  ValueId add(ValueId a, ValueId b) { return fn(Fn::add, {a, b}); }
  ValueId add(ValueId a, double b) { return fn(Fn::add, {a, like(b, a)}); }
  ValueId sub(ValueId a, ValueId b) { return fn(Fn::sub, {a, b}); }
  ValueId mul(ValueId a, ValueId b) { return fn(Fn::mul, {a, b}); }
  ValueId mul(ValueId a, double b) { return fn(Fn::mul, {a, like(b, a)}); }
  ValueId div(ValueId a, ValueId b) { return fn(Fn::div, {a, b}); }
  ValueId where(ValueId c, ValueId a, ValueId b) { return fn(Fn::where, {c, a, b}); }
  ValueId pow(ValueId a, double e);  // with the functions of common exponents

  ValueId cast(ValueId v, DType dtype);
  ValueId reshape(ValueId v, graph::Shape shape);
  ValueId broadcast(ValueId v, graph::Shape shape);
  ValueId transpose(ValueId v, Ints perm);
  ValueId unsqueeze(ValueId v, Ints axes);
  ValueId squeeze(ValueId v, Ints axes);
  ValueId concat(std::vector<ValueId> parts, int64_t axis);
  ValueId gather(ValueId data, ValueId indices, int64_t axis);
  ValueId slice(ValueId v, int64_t axis, sym::Expr start, sym::Expr stop, int64_t step = 1);
  ValueId slice(ValueId v, int64_t axis, int64_t start, int64_t stop) {
    return slice(v, axis, extent(start), extent(stop));
  }
  ValueId flip(ValueId v, Ints axes);
  ValueId pad(ValueId v, Ints low, Ints high, double value = 0);
  ValueId reduce(graph::Op op, ValueId v, Ints axes, bool keep = false);
  ValueId sum(ValueId v, Ints axes, bool keep = false) { return reduce(graph::Op::sum, v, std::move(axes), keep); }
  ValueId iota(graph::Shape shape, int64_t axis, DType dtype);
  ValueId contract(ValueId a, const graph::IndexNames& left, ValueId b, const graph::IndexNames& right,
                   const graph::IndexNames& result);
  // A constant of the graph with these elements, rounded to the dtype.
  ValueId table(std::string_view name, DType dtype, const Ints& extents, const std::vector<double>& elements);
  ValueId extent_value(sym::Expr e, DType dtype);  // as a number at run time

  const graph::Shape& shape(ValueId v);  // after a fault one that any axis may be asked of
  size_t rank(ValueId v) { return shape(v).size(); }
  DType dtype(ValueId v);
  sym::Expr extent(int64_t n) { return c_.syms().constant(n); }
  // Extents that have to be numbers.
  int64_t constant(sym::Expr e, std::string_view what);
  Ints constants(ValueId v, std::string_view what);

  // Fails unless the extents of two operands are one; broadcasting would stretch a 1.
  void same(sym::Expr a, sym::Expr b, std::string_view what);
  bool ok() const { return !bad_; }
  void fail(std::string_view why);
  void take(Diagnostics errors);
  // The handlers' ints() and so on, with their faults kept here.
  template <class T>
  T of(Result<T> r) {
    if (r.ok()) return std::move(r).value();
    take(r.errors());
    return T{};
  }
  Result<Values> done(std::vector<ValueId> results);
  NodeContext& context() { return c_; }

 private:
  NodeContext& c_;
  std::optional<Diagnostics> bad_;
  graph::Shape none_;
};

// {first, first + 1, ..., last - 1}
std::vector<int64_t> count_from(int64_t first, int64_t last);

}  // namespace cleave::onnx_import
