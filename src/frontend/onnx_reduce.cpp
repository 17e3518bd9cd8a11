// Reductions, scans, and the normalisations that are composites of the graph.
#include <algorithm>

#include "frontend/onnx_maker.hpp"

namespace cleave::onnx_import {

using graph::Op;
using graph::Shape;
using graph::ValueId;

namespace {

struct ReduceRow {
  const char* name;
  Op op;
  std::optional<Fn> before, after;
};
const ReduceRow kReductions[] = {
    {"ReduceSum", Op::sum, {}, {}},
    {"ReduceMean", Op::mean, {}, {}},
    {"ReduceProd", Op::prod, {}, {}},
    {"ReduceMax", Op::amax, {}, {}},
    {"ReduceMin", Op::amin, {}, {}},
    {"ReduceL1", Op::sum, Fn::abs, {}},
    {"ReduceL2", Op::sum, Fn::square, Fn::sqrt},
    {"ReduceSumSquare", Op::sum, Fn::square, {}},
    {"ReduceLogSum", Op::sum, {}, Fn::log},
    {"ReduceLogSumExp", Op::logsumexp, {}, {}},
};

}  // namespace

// Axes: an operand since opset 18 (ReduceSum: 13), an attribute before. None means all, unless asked for none.
Result<Values> import_reduce(NodeContext& c) {
  const ReduceRow* row = std::find_if(std::begin(kReductions), std::end(kReductions),
                                      [&](const ReduceRow& r) { return c.node().op_type() == r.name; });
  CHECK(row != std::end(kReductions));
  OnnxValue& x = c.in(0);
  std::vector<int64_t> axes;
  if (c.has(1)) {
    TRY_ASSIGN(axes, c.ints(1, "axes"));
  } else {
    axes = c.attribute_ints("axes").value_or(std::vector<int64_t>{});
  }
  TRY_ASSIGN(axes, c.axes(axes, x.shape.size()));
  const bool none = axes.empty() && c.attribute_int("noop_with_empty_axes", 0) != 0;
  if (axes.empty()) {
    for (size_t i = 0; i < x.shape.size(); ++i) axes.push_back(static_cast<int64_t>(i));
  }
  const bool keep = c.attribute_int("keepdims", 1) != 0;
  if (x.integers && row->op == Op::prod && x.shape.size() == 1 && !none) {
    Shape shape;
    if (keep) shape.push_back(c.syms().constant(1));
    return c.one(c.integers(x.dtype, {c.syms().product(*x.integers)}, shape));
  }
  TRY_ASSIGN(ValueId id, c.id(0));
  if (row->before) {
    TRY_ASSIGN(id, c.add(graph::op_of(*row->before), {id}));
  }
  if (!none && !axes.empty()) {
    TRY_ASSIGN(id, c.add(row->op, {id}, {{"axes", axes}, {"keepdims", keep}}));
  }
  if (row->after) {
    TRY_ASSIGN(id, c.add(graph::op_of(*row->after), {id}));
  }
  return c.one(id);
}

// Before opset 13 all axes from `axis` on (default 1) are one; since then only `axis` (default -1) is reduced.
Result<Values> import_softmax(NodeContext& c) {
  const Op op = c.node().op_type() == "Softmax" ? Op::softmax : Op::log_softmax;
  const size_t rank = c.rank(0);
  const bool coerced = c.opset() < 13;
  TRY_ASSIGN(const int64_t axis, c.axis(c.attribute_int("axis", coerced ? 1 : -1), rank));
  TRY_ASSIGN(const ValueId id, c.id(0));
  if (!coerced || axis + 1 == static_cast<int64_t>(rank)) return c.one(c.add(op, {id}, {{"axis", axis}}));
  const Shape shape = c.in(0).shape;
  Shape flat(shape.begin(), shape.begin() + axis);
  flat.push_back(c.syms().product(std::span<const sym::Expr>(shape).subspan(static_cast<size_t>(axis))));
  TRY_ASSIGN(const ValueId rows, c.reshape(id, flat));
  TRY_ASSIGN(const ValueId result, c.add(op, {rows}, {{"axis", axis}}));
  return c.one(c.reshape(result, shape));
}

Result<Values> import_arg_extremum(NodeContext& c) {
  TRY_ASSIGN(const int64_t axis, c.axis(c.attribute_int("axis", 0), c.rank(0)));
  TRY_ASSIGN(const ValueId id, c.id(0));
  const Op op = c.node().op_type() == "ArgMax" ? Op::argmax : Op::argmin;
  if (c.attribute_int("select_last_index", 0) != 0) {
    // The first from the other end.
    Maker m(c);
    const ValueId turned =
        m.make(op, {m.flip(id, {axis})}, {{"axis", axis}, {"keepdims", c.attribute_int("keepdims", 1) != 0}});
    const ValueId last = m.add(m.extent_value(c.in(0).shape[static_cast<size_t>(axis)], DType::i64), -1);
    return m.done({m.sub(last, turned)});
  }
  return c.one(c.add(op, {id}, {{"axis", axis}, {"keepdims", c.attribute_int("keepdims", 1) != 0}}));
}

Result<Values> import_cumsum(NodeContext& c) {
  TRY_ASSIGN(const auto axes, c.ints(1, "axis"));
  if (axes.size() != 1) return c.error("its axis is no scalar");
  TRY_ASSIGN(const int64_t axis, c.axis(axes[0], c.rank(0)));
  TRY_ASSIGN(const ValueId id, c.id(0));
  return c.one(c.add(c.node().op_type() == "CumSum" ? Op::cumsum : Op::cumprod, {id},
                     {{"axis", axis},
                      {"exclusive", c.attribute_int("exclusive", 0) != 0},
                      {"reverse", c.attribute_int("reverse", 0) != 0}}));
}

Result<Values> import_top_k(NodeContext& c) {
  TRY_ASSIGN(const int64_t axis, c.axis(c.attribute_int("axis", -1), c.rank(0)));
  int64_t k = c.attribute_int("k", 0);
  if (c.opset() >= 10) {
    TRY_ASSIGN(const auto given, c.ints(1, "k"));
    if (given.size() != 1) return c.error("its k is no scalar");
    k = given[0];
  }
  TRY_ASSIGN(const ValueId id, c.id(0));
  TRY_ASSIGN(const auto both,
             c.add_all(Op::topk, {id}, {{"k", k}, {"axis", axis}, {"largest", c.attribute_int("largest", 1) != 0}}));
  return Values{c.wrap(both[0]), c.wrap(both[1])};
}

namespace {

std::vector<int64_t> axes_from(int64_t first, size_t rank) {
  std::vector<int64_t> axes;
  for (size_t i = static_cast<size_t>(first); i < rank; ++i) axes.push_back(static_cast<int64_t>(i));
  return axes;
}

// A norm with its optional scale and bias; operands have the input's dtype.
Result<ValueId> norm(NodeContext& c, Op op, graph::Attributes attributes) {
  std::vector<ValueId> operands;
  for (size_t i = 0; i < std::min<size_t>(c.size(), 3); ++i) {
    if (!c.has(i)) continue;
    TRY_ASSIGN(const ValueId id, c.id(i));
    TRY_ASSIGN(const ValueId same, c.cast(id, c.in(0).dtype));
    operands.push_back(same);
  }
  return c.add(op, std::move(operands), std::move(attributes));
}

}  // namespace

// Results: the normalised value, and on request the mean and the inverse deviation.
Result<Values> import_layer_norm(NodeContext& c) {
  const size_t rank = c.rank(0);
  TRY_ASSIGN(const int64_t first, c.axis(c.attribute_int("axis", -1), rank));
  const double eps = c.attribute_real("epsilon", static_cast<double>(1e-5f));
  const auto axes = axes_from(first, rank);
  TRY_ASSIGN(const ValueId y, norm(c, Op::layer_norm, {{"axes", axes}, {"eps", eps}}));
  Values out{c.wrap(y)};
  if (c.results() == 1) return out;
  TRY_ASSIGN(ValueId x, c.id(0));
  TRY_ASSIGN(x, c.cast(x, compute_type(c.in(0).dtype)));
  const DType dtype = c.builder().type(x).dtype;
  TRY_ASSIGN(const ValueId mean, c.add(Op::mean, {x}, {{"axes", axes}, {"keepdims", true}}));
  TRY_ASSIGN(const ValueId centred, c.add(graph::op_of(Fn::sub), {x, mean}));
  TRY_ASSIGN(const ValueId squared, c.add(graph::op_of(Fn::square), {centred}));
  TRY_ASSIGN(const ValueId variance, c.add(Op::mean, {squared}, {{"axes", axes}, {"keepdims", true}}));
  TRY_ASSIGN(const ValueId safe, c.add(graph::op_of(Fn::add), {variance, c.builder().literal(eps, dtype)}));
  TRY_ASSIGN(const ValueId inverse, c.add(graph::op_of(Fn::rsqrt), {safe}));
  out.push_back(c.wrap(mean));
  if (c.results() > 2) out.push_back(c.wrap(inverse));
  return out;
}

Result<Values> import_rms_norm(NodeContext& c) {
  const size_t rank = c.rank(0);
  if (c.results() > 1) return c.error("only its first result is supported");
  TRY_ASSIGN(const int64_t first, c.axis(c.attribute_int("axis", -1), rank));
  const double eps = c.attribute_real("epsilon", static_cast<double>(1e-5f));
  return c.one(norm(c, Op::rms_norm, {{"axes", axes_from(first, rank)}, {"eps", eps}}));
}

// Scale and bias have one entry a channel since opset 21, one a group before.
Result<Values> import_group_norm(NodeContext& c) {
  const int64_t groups = c.attribute_int("num_groups", 0);
  const double eps = c.attribute_real("epsilon", static_cast<double>(1e-5f));
  if (c.opset() >= 21) return c.one(norm(c, Op::group_norm, {{"groups", groups}, {"eps", eps}}));
  if (c.rank(0) < 2) return c.error("its operand has no channel axis");
  const sym::Expr channels = c.in(0).shape[1];
  if (groups < 1 || c.syms().divides(groups, channels) != sym::Proof::yes)
    return c.error(fmt::format("{} groups do not divide the channels", groups));
  std::vector<ValueId> operands;
  for (size_t i = 0; i < 3; ++i) {
    TRY_ASSIGN(ValueId id, c.id(i));
    if (i > 0) {
      const sym::Expr per_group = c.syms().floordiv(channels, c.syms().constant(groups));
      TRY_ASSIGN(id, c.reshape(id, {c.syms().constant(groups), c.syms().constant(1)}));
      TRY_ASSIGN(id, c.add(Op::broadcast, {id}, {{"shape", Shape{c.syms().constant(groups), per_group}}}));
      TRY_ASSIGN(id, c.reshape(id, {channels}));
    }
    operands.push_back(id);
  }
  return c.one(c.add(Op::group_norm, std::move(operands), {{"groups", groups}, {"eps", eps}}));
}

// Inference: (x - mean) / sqrt(variance + eps) * scale + bias, all per channel.
Result<Values> import_batch_norm(NodeContext& c) {
  if (c.attribute_int("training_mode", 0) != 0) return import_batch_norm_training(c);
  const size_t rank = c.rank(0);
  if (rank < 2) return c.error("its operand has no channel axis");
  Shape channel(rank - 1, c.syms().constant(1));
  channel[0] = c.in(0).shape[1];
  std::vector<ValueId> p;
  for (size_t i = 0; i < 5; ++i) {
    TRY_ASSIGN(ValueId id, c.id(i));
    if (i > 0) {
      TRY_ASSIGN(id, c.reshape(id, channel));
    }
    p.push_back(id);
  }
  const double eps = c.attribute_real("epsilon", static_cast<double>(1e-5f));
  const DType dtype = c.builder().type(p[4]).dtype;
  TRY_ASSIGN(const ValueId centred, c.add(graph::op_of(Fn::sub), {p[0], p[3]}));
  TRY_ASSIGN(const ValueId safe, c.add(graph::op_of(Fn::add), {p[4], c.builder().literal(eps, dtype)}));
  TRY_ASSIGN(const ValueId inverse, c.add(graph::op_of(Fn::rsqrt), {safe}));
  TRY_ASSIGN(const ValueId factor, c.add(graph::op_of(Fn::mul), {inverse, p[1]}));
  TRY_ASSIGN(const ValueId scaled, c.add(graph::op_of(Fn::mul), {centred, factor}));
  return c.one(c.add(graph::op_of(Fn::add), {scaled, p[2]}));
}

}  // namespace cleave::onnx_import
