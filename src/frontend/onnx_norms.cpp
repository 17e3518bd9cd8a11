// Normalisations that the graph has no composite for, and losses.
#include <algorithm>
#include <cmath>

#include "frontend/onnx_maker.hpp"

namespace cleave::onnx_import {

using graph::Op;
using graph::Shape;
using graph::ValueId;
using Ints = std::vector<int64_t>;

// (x - mean) / sqrt(variance + eps) * scale + bias over the spatial axes of each channel: a group norm of one channel a
// group.
Result<Values> import_instance_norm(NodeContext& c) {
  Maker m(c);
  const ValueId x = m.in(0), scale = m.in(1), bias = m.in(2);
  if (m.ok() && m.rank(x) < 3) m.fail("its operand has no axes behind the channels");
  if (!m.ok()) return m.done({});
  const auto channels = c.syms().as_constant(m.shape(x)[1]);
  const double eps = c.attribute_real("epsilon", static_cast<double>(1e-5f));
  if (channels && *channels > 0)
    return m.done({m.make(Op::group_norm, {x, scale, bias}, {{"groups", *channels}, {"eps", eps}})});
  const int64_t rank = static_cast<int64_t>(m.rank(x));
  const auto both = m.make_all(Op::moments, 2, {x}, {{"axes", count_from(2, rank)}, {"keepdims", true}});
  const ValueId y = m.mul(m.sub(x, both[0]), m.fn(Fn::rsqrt, {m.add(both[1], eps)}));
  const Ints behind = count_from(1, rank - 1);
  return m.done({m.add(m.mul(y, m.unsqueeze(scale, behind)), m.unsqueeze(bias, behind))});
}

// (x - mean) / (deviation + 1e-9), as ONNX's own definition has it.
Result<Values> import_mean_variance_norm(NodeContext& c) {
  Maker m(c);
  const ValueId x = m.in(0);
  if (!m.ok()) return m.done({});
  const Ints axes = m.of(c.axes(c.attribute_ints("axes").value_or(Ints{0, 2, 3}), m.rank(x)));
  const auto both = m.make_all(Op::moments, 2, {x}, {{"axes", axes}, {"keepdims", true}});
  return m.done({m.div(m.sub(x, both[0]), m.add(m.fn(Fn::sqrt, {both[1]}), 1e-9))});
}

// x / norm along an axis, and 0 where the norm is 0.
Result<Values> import_lp_norm(NodeContext& c) {
  Maker m(c);
  const ValueId x = m.in(0);
  if (!m.ok()) return m.done({});
  const int64_t axis = m.of(c.axis(c.attribute_int("axis", -1), m.rank(x))), p = c.attribute_int("p", 2);
  if (p != 1 && p != 2) m.fail(fmt::format("`p` is {}, 1 and 2 are known", p));
  const ValueId powers = m.fn(p == 1 ? Fn::abs : Fn::square, {x});
  const ValueId total = m.sum(powers, {axis}, true);
  return m.done({m.fn(Fn::quot0, {x, p == 1 ? total : m.fn(Fn::sqrt, {total})})});
}

// In training the statistics are those of the batch; the running ones are mixed and returned.
Result<Values> import_batch_norm_training(NodeContext& c) {
  Maker m(c);
  const ValueId x = m.in(0);
  if (m.ok() && m.rank(x) < 2) m.fail("its operand has no channel axis");
  if (!m.ok()) return m.done({});
  for (size_t i = 1; i < 5; ++i) {
    const ValueId each = m.in(i);
    if (m.ok() && m.rank(each) != 1) m.fail(fmt::format("operand {} is no list of channels", i));
    m.same(m.shape(each)[0], m.shape(x)[1], "the channel axis");
  }
  if (!m.ok()) return m.done({});
  const int64_t rank = static_cast<int64_t>(m.rank(x));
  Ints others = count_from(2, rank), behind = count_from(1, rank - 1);
  others.insert(others.begin(), 0);
  const auto both = m.make_all(Op::moments, 2, {x}, {{"axes", others}, {"keepdims", false}});
  const double eps = c.attribute_real("epsilon", static_cast<double>(1e-5f));
  const double momentum = c.attribute_real("momentum", static_cast<double>(0.9f));
  const auto wide = [&](ValueId v) { return m.unsqueeze(v, behind); };
  const ValueId centred = m.sub(x, wide(both[0]));
  const ValueId unit = m.mul(centred, m.fn(Fn::rsqrt, {m.add(wide(both[1]), eps)}));
  const ValueId y = m.add(m.mul(unit, wide(m.in(1))), wide(m.in(2)));
  const auto mixed = [&](size_t running, ValueId now) {
    return m.add(m.mul(m.in(running), momentum), m.mul(now, 1 - momentum));
  };
  return m.done({y, mixed(3, both[0]), mixed(4, both[1])});
}

namespace {

// -weight[t] x[n, t, d..] for targets t[n, d..], reduced.
ValueId likelihood_loss(Maker& m, ValueId x, ValueId target, std::optional<ValueId> weights) {
  NodeContext& c = m.context();
  if (m.ok() && (m.rank(x) < 2 || m.rank(target) + 1 != m.rank(x))) m.fail("scores and targets do not fit");
  for (size_t i = 0; m.ok() && i < m.rank(target); ++i)
    m.same(m.shape(x)[i == 0 ? 0 : i + 1], m.shape(target)[i], "an axis of scores and targets");
  if (m.ok() && weights && m.rank(*weights) != 1) m.fail("its weights are no list of classes");
  if (weights) m.same(m.shape(x)[1], m.shape(*weights)[0], "the axis of classes");
  if (!m.ok()) return {};
  const DType dtype = m.dtype(x);
  const Shape shape = m.shape(x);
  const ValueId t = m.unsqueeze(m.cast(target, DType::i64), {1});
  ValueId hit = m.fn(Fn::eq, {t, m.iota(shape, 1, DType::i64)});
  const bool ignores = c.attribute("ignore_index") != nullptr;
  if (ignores) {
    const ValueId ignored = m.number(static_cast<double>(c.attribute_int("ignore_index", 0)), DType::i64);
    hit = m.fn(Fn::logical_and, {hit, m.fn(Fn::ne, {t, ignored})});
  }
  std::optional<ValueId> weight;
  if (weights) weight = m.unsqueeze(*weights, count_from(1, static_cast<int64_t>(shape.size()) - 1));
  ValueId loss = m.fn(Fn::neg, {x});
  if (weight) loss = m.mul(loss, *weight);
  const ValueId zero = m.number(0, dtype);
  loss = m.sum(m.where(hit, loss, zero), {1});
  const std::string how = c.attribute_text("reduction", "mean");
  if (how == "none") return loss;
  const Ints all = count_from(0, static_cast<int64_t>(shape.size()) - 1);
  if (how == "sum") return m.sum(loss, all);
  if (how != "mean") m.fail(fmt::format("the reduction `{}` is not known", shown(how)));
  if (!weight && !ignores) return m.reduce(Op::mean, loss, all);
  const ValueId share = m.where(hit, weight ? *weight : m.number(1, dtype), zero);
  return m.div(m.sum(loss, all), m.sum(share, count_from(0, static_cast<int64_t>(shape.size()))));
}

}  // namespace

Result<Values> import_likelihood_loss(NodeContext& c) {
  Maker m(c);
  const std::optional<ValueId> weights = c.has(2) ? std::optional(m.in(2)) : std::nullopt;
  return m.done({likelihood_loss(m, m.in(0), m.in(1), weights)});
}

// The loss of log_softmax; its second result are those logarithms.
Result<Values> import_softmax_loss(NodeContext& c) {
  Maker m(c);
  const ValueId logs = m.make(Op::log_softmax, {m.in(0)}, {{"axis", int64_t{1}}});
  const std::optional<ValueId> weights = c.has(2) ? std::optional(m.in(2)) : std::nullopt;
  return m.done({likelihood_loss(m, logs, m.in(1), weights), logs});
}

}  // namespace cleave::onnx_import
