// Operators that pick elements by position, or put them there.
//
// A pick is a gather from the operand as one row, at positions that are computed. A scatter is written from the side of
// the result: each element asks which updates are meant for it, so its cost is the number of results times the number
// of updates along the scattered axes.
#include <algorithm>
#include <cmath>
#include <limits>

#include "frontend/onnx_maker.hpp"
#include "frontend/onnx_tensor.hpp"

namespace cleave::onnx_import {

using graph::Op;
using graph::Shape;
using graph::ValueId;
using Ints = std::vector<int64_t>;

namespace {

constexpr DType kPosition = DType::i64;

// Indices in i64, with those below zero counted from the end.
ValueId positions(Maker& m, ValueId indices, sym::Expr extent) {
  if (m.ok() && !is_integer(m.dtype(indices))) m.fail("its indices are no integers");
  const ValueId i = m.cast(indices, kPosition);
  const ValueId moved = m.add(i, m.extent_value(extent, kPosition));
  return m.where(m.fn(Fn::lt, {i, m.number(0, kPosition)}), moved, i);
}

ValueId flat(Maker& m, ValueId v) {
  if (!m.ok()) return {};
  return m.reshape(v, {m.context().syms().product(m.shape(v))});
}

// The distance in elements from one position of each axis to the next.
Shape strides_of(Maker& m, const Shape& shape) {
  Shape out(shape.size(), m.extent(1));
  for (size_t i = shape.size(); i-- > 1;) out[i - 1] = m.context().syms().mul(out[i], shape[i]);
  return out;
}

ValueId times(Maker& m, ValueId v, sym::Expr e) {
  if (m.context().syms().is(e, 1)) return v;
  return m.mul(v, m.extent_value(e, kPosition));
}

}  // namespace

// out[i, j] = data[indices[i, j], j] for axis 0
Result<Values> import_gather_elements(NodeContext& c) {
  Maker m(c);
  const ValueId data = m.in(0), indices = m.in(1);
  if (!m.ok()) return m.done({});
  const Shape from = m.shape(data), to = m.shape(indices);
  const int64_t axis = m.of(c.axis(c.attribute_int("axis", 0), from.size()));
  if (m.ok() && from.size() != to.size()) m.fail("data and indices differ in rank");
  if (!m.ok()) return m.done({});
  const Shape strides = strides_of(m, from);
  ValueId at = times(m, positions(m, indices, from[static_cast<size_t>(axis)]), strides[static_cast<size_t>(axis)]);
  for (size_t i = 0; i < from.size(); ++i)
    if (static_cast<int64_t>(i) != axis)
      at = m.add(at, times(m, m.iota(to, static_cast<int64_t>(i), kPosition), strides[i]));
  return m.done({m.gather(flat(m, data), at, 0)});
}

namespace {

// The last axis of `indices` [.., q] as one position in the first q extents of `over`.
ValueId joint_position(Maker& m, ValueId indices, const Shape& over, int64_t q) {
  const int64_t last = static_cast<int64_t>(m.rank(indices)) - 1;
  const Shape strides = strides_of(m, Shape(over.begin(), over.begin() + q));
  ValueId at;
  for (int64_t i = 0; i < q && m.ok(); ++i) {
    const ValueId one = m.squeeze(m.slice(indices, last, i, i + 1), {last});
    const ValueId part = times(m, positions(m, one, over[static_cast<size_t>(i)]), strides[static_cast<size_t>(i)]);
    at = i == 0 ? part : m.add(at, part);
  }
  return at;
}

}  // namespace

// out[b.., i.., rest..] = data[b.., indices[b.., i.., :].., rest..]
Result<Values> import_gather_nd(NodeContext& c) {
  Maker m(c);
  const ValueId data = m.in(0), indices = m.in(1);
  if (!m.ok()) return m.done({});
  const Shape from = m.shape(data), to = m.shape(indices);
  const int64_t batch = c.attribute_int("batch_dims", 0);
  if (to.empty() || from.empty()) m.fail("its operands need an axis");
  const int64_t q = m.ok() ? m.constant(to.back(), "the length of an index") : 0;
  if (m.ok() &&
      (batch < 0 || batch >= static_cast<int64_t>(to.size()) || q < 1 || batch + q > static_cast<int64_t>(from.size())))
    m.fail(fmt::format("indices of {} numbers with {} batch axes do not fit a rank of {}", q, batch, from.size()));
  if (!m.ok()) return m.done({});
  const Shape picked(from.begin() + batch, from.end());
  ValueId at = joint_position(m, indices, picked, q);
  // Batches lie one after the other.
  Shape rows(from.begin(), from.begin() + batch + q), rest(from.begin() + batch + q, from.end());
  const Shape strides = strides_of(m, rows);
  for (int64_t i = 0; i < batch && m.ok(); ++i)
    at = m.add(at, times(m, m.iota(m.shape(at), i, kPosition), strides[static_cast<size_t>(i)]));
  Shape table{c.syms().product(rows)};
  table.insert(table.end(), rest.begin(), rest.end());
  return m.done({m.gather(m.reshape(data, table), at, 0)});
}

namespace {

struct Combine {
  bool known = true;
  std::optional<Op> reduce;  // none: the update itself
  double neutral = 0;
  Fn fn = Fn::add;
};

Combine combine_of(Maker& m, DType dtype) {
  const std::string how = m.context().attribute_text("reduction", "none");
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double most = is_real(dtype) ? kInfinity : std::min(static_cast<double>(greatest_integer(dtype)), 0x1p62);
  const double least = is_real(dtype) ? -kInfinity : std::max(static_cast<double>(least_integer(dtype)), -0x1p62);
  if (how == "none") return {};
  if (how == "add") return {true, Op::sum, 0, Fn::add};
  if (how == "mul") return {true, Op::prod, 1, Fn::mul};
  if (how == "max") return {true, Op::amax, least, Fn::max};
  if (how == "min") return {true, Op::amin, most, Fn::min};
  m.fail(fmt::format("the reduction `{}` is not known", shown(how)));
  return {};
}

// For each result the updates that are meant for it lie along `axis`; `hit` says which. Two updates of one element have
// no order: without a reduction ONNX leaves that open.
ValueId scattered(Maker& m, ValueId data, ValueId hit, ValueId updates, int64_t axis) {
  if (!m.ok()) return {};
  const DType dtype = m.dtype(data);
  const Combine how = combine_of(m, dtype);
  if (how.reduce) {
    const ValueId mine = m.where(hit, updates, m.number(how.neutral, dtype));
    const ValueId all = m.reduce(*how.reduce, mine, {axis});
    // Where nothing is meant for an element it keeps its bits, also a NaN or an infinity.
    return m.where(m.reduce(Op::any, hit, {axis}), m.fn(how.fn, {data, all}), data);
  }
  if (dtype == DType::boolean) {
    const ValueId mine = m.fn(Fn::logical_and, {hit, updates});
    return m.where(m.reduce(Op::any, hit, {axis}), m.reduce(Op::any, mine, {axis}), data);
  }
  const ValueId one = m.sum(m.where(hit, updates, m.number(0, dtype)), {axis});
  return m.where(m.reduce(Op::any, hit, {axis}), one, data);
}

}  // namespace

// data with data[indices[i, j], j] = updates[i, j] for axis 0
Result<Values> import_scatter_elements(NodeContext& c) {
  Maker m(c);
  const ValueId data = m.in(0), indices = m.in(1), updates = m.in(2);
  if (!m.ok()) return m.done({});
  const Shape full = m.shape(data), part = m.shape(indices);
  const int64_t axis = m.of(c.axis(c.attribute_int("axis", 0), full.size()));
  if (m.ok() && (full.size() != part.size() || m.shape(updates) != part))
    m.fail("data, indices and updates do not fit");
  if (!m.ok()) return m.done({});
  const size_t a = static_cast<size_t>(axis);
  // hit [.., updates along axis, results along axis, ..] in the window of the other axes that the indices cover.
  const ValueId at = m.unsqueeze(positions(m, indices, full[a]), {axis + 1});
  Shape grid = part;
  grid.insert(grid.begin() + axis + 1, full[a]);
  const ValueId hit = m.fn(Fn::eq, {at, m.iota(grid, axis + 1, kPosition)});
  ValueId inner = data;
  for (size_t i = 0; i < full.size(); ++i)
    if (i != a && full[i] != part[i]) inner = m.slice(inner, static_cast<int64_t>(i), m.extent(0), part[i]);
  ValueId result = scattered(m, inner, hit, m.unsqueeze(updates, {axis + 1}), axis);
  // What lies outside of that window comes back axis by axis, from the last that was cut.
  for (size_t i = full.size(); i-- > 0;) {
    if (i == a || full[i] == part[i]) continue;
    ValueId rest = m.slice(data, static_cast<int64_t>(i), part[i], full[i]);
    for (size_t j = 0; j < i; ++j)
      if (j != a && full[j] != part[j]) rest = m.slice(rest, static_cast<int64_t>(j), m.extent(0), part[j]);
    result = m.concat({result, rest}, static_cast<int64_t>(i));
  }
  return m.done({result});
}

// data with data[indices[i.., :].., rest..] = updates[i.., rest..]
Result<Values> import_scatter_nd(NodeContext& c) {
  Maker m(c);
  const ValueId data = m.in(0), indices = m.in(1), updates = m.in(2);
  if (!m.ok()) return m.done({});
  const Shape full = m.shape(data), index = m.shape(indices);
  const int64_t q = index.empty() ? 0 : m.constant(index.back(), "the length of an index");
  if (m.ok() && (q < 1 || q > static_cast<int64_t>(full.size())))
    m.fail(fmt::format("indices of {} numbers do not fit a rank of {}", q, full.size()));
  if (!m.ok()) return m.done({});
  const sym::Expr rows = c.syms().product(std::span(full).first(static_cast<size_t>(q)));
  const sym::Expr rest = c.syms().product(std::span(full).subspan(static_cast<size_t>(q)));
  const sym::Expr count = c.syms().product(std::span(index).first(index.size() - 1));
  const ValueId at = m.reshape(joint_position(m, indices, full, q), {count, m.extent(1), m.extent(1)});
  const ValueId hit = m.fn(Fn::eq, {at, m.iota({count, rows, m.extent(1)}, 1, kPosition)});
  const ValueId result =
      scattered(m, m.reshape(data, {rows, rest}), hit, m.reshape(updates, {count, m.extent(1), rest}), 0);
  return m.done({m.reshape(result, full)});
}

// A cache [batch, .., max, width] with updates at positions write[batch] and behind, along one axis.
Result<Values> import_tensor_scatter(NodeContext& c) {
  Maker m(c);
  const ValueId cache = m.in(0), update = m.in(1);
  if (!m.ok()) return m.done({});
  const Shape full = m.shape(cache), part = m.shape(update);
  const int64_t rank = static_cast<int64_t>(full.size());
  const int64_t axis = m.of(c.axis(c.attribute_int("axis", -2), full.size()));
  const std::string mode = c.attribute_text("mode", "linear");
  if (mode != "linear" && mode != "circular") m.fail(fmt::format("the mode `{}` is not known", shown(mode)));
  if (m.ok() && (axis == 0 || full.size() != part.size())) m.fail("cache and update do not fit");
  if (!m.ok()) return m.done({});
  const size_t a = static_cast<size_t>(axis);
  for (size_t i = 0; i < full.size(); ++i)
    if (i != a) m.same(full[i], part[i], "an axis of cache and update");
  if (c.syms().at_most(part[a], full[a]) == sym::Proof::no) m.fail("the update is longer than the cache");
  if (m.ok() && c.has(2) && m.rank(m.in(2)) != 1) m.fail("its indices are no list");
  if (c.has(2)) m.same(m.shape(m.in(2))[0], full[0], "the batch axis");
  if (!m.ok()) return m.done({});
  // Position p of the cache takes element p - start of the update.
  ValueId start = c.has(2) ? m.cast(m.in(2), kPosition) : m.broadcast(m.number(0, kPosition), {full[0]});
  start = m.unsqueeze(start, count_from(1, rank));
  ValueId from = m.sub(m.iota(full, axis, kPosition), start);
  if (mode == "circular") from = m.fn(Fn::mod, {from, m.extent_value(full[a], kPosition)});
  const ValueId inside = m.fn(Fn::logical_and, {m.fn(Fn::ge, {from, m.number(0, kPosition)}),
                                                m.fn(Fn::lt, {from, m.extent_value(part[a], kPosition)})});
  const Shape strides = strides_of(m, part);
  const ValueId safe = m.where(inside, from, m.number(0, kPosition));
  ValueId at = times(m, safe, strides[a]);
  for (int64_t i = 0; i < rank; ++i)
    if (i != axis) at = m.add(at, times(m, m.iota(full, i, kPosition), strides[static_cast<size_t>(i)]));
  return m.done({m.where(inside, m.gather(flat(m, update), at, 0), cache)});
}

Result<Values> import_one_hot(NodeContext& c) {
  Maker m(c);
  const ValueId indices = m.in(0), values = m.in(2);
  const auto depth = [&]() -> int64_t {
    if (c.has(1)) {
      const OnnxValue& d = c.in(1).known ? *c.in(1).known : c.in(1);
      if (!d.integers && d.splat) return static_cast<int64_t>(*d.splat);
    }
    const Ints list = m.of(c.ints(1, "depth"));
    if (m.ok() && list.size() != 1) m.fail("its depth is no scalar");
    return m.ok() ? list[0] : 1;
  }();
  if (!m.ok()) return m.done({});
  if (depth < 1 || depth > (int64_t{1} << 31)) m.fail(fmt::format("the depth {} is no extent", depth));
  const int64_t axis = m.of(c.axis(c.attribute_int("axis", -1), m.rank(indices) + 1));
  if (!m.ok()) return m.done({});
  // Indices may be reals; they count from the end below zero, and lie outside beyond that.
  const ValueId at = positions(m, m.cast(indices, kPosition), m.extent(depth));
  Shape grid = m.shape(at);
  grid.insert(grid.begin() + axis, m.extent(depth));
  const ValueId hot = m.fn(Fn::eq, {m.unsqueeze(at, {axis}), m.iota(grid, axis, kPosition)});
  const ValueId off = m.squeeze(m.slice(values, 0, 0, 1), {0}), on = m.squeeze(m.slice(values, 0, 1, 2), {0});
  return m.done({m.where(hot, on, off)});
}

// Ones on a diagonal of zeros, with the operand's extents.
Result<Values> import_eye_like(NodeContext& c) {
  Maker m(c);
  const Shape shape = c.in(0).shape;
  if (shape.size() != 2) return c.error("its operand is no matrix");
  DType dtype = c.in(0).dtype;
  if (c.attribute("dtype")) {
    const int64_t type = c.attribute_int("dtype", 1);
    const auto known = dtype_of(static_cast<int>(std::clamp<int64_t>(type, -1, 1000)));
    if (!known) return c.error("its element type is not supported");
    dtype = *known;
  }
  const ValueId row = m.add(m.iota(shape, 0, kPosition), static_cast<double>(c.attribute_int("k", 0)));
  const ValueId on = m.fn(Fn::eq, {m.iota(shape, 1, kPosition), row});
  return m.done({m.cast(on, dtype)});
}

// The rows where a condition that is known holds.
Result<Values> import_compress(NodeContext& c) {
  Maker m(c);
  ValueId x = m.in(0);
  const Ints keep = m.of(c.ints(1, "condition"));
  if (!m.ok()) return m.done({});
  int64_t axis = 0;
  if (c.attribute("axis")) {
    axis = m.of(c.axis(c.attribute_int("axis", 0), m.rank(x)));
  } else {
    x = flat(m, x);
  }
  if (!m.ok()) return m.done({});
  const int64_t n = m.constant(m.shape(x)[static_cast<size_t>(axis)], "the axis that is compressed");
  if (static_cast<int64_t>(keep.size()) > n) m.fail("its condition is longer than the axis");
  std::vector<double> rows;
  for (size_t i = 0; i < keep.size(); ++i)
    if (keep[i]) rows.push_back(static_cast<double>(i));
  const ValueId which = m.table("rows", kPosition, {static_cast<int64_t>(rows.size())}, rows);
  return m.done({m.gather(x, which, axis)});
}

// The first `lengths[batch]` steps of each sequence in reverse.
Result<Values> import_reverse_sequence(NodeContext& c) {
  Maker m(c);
  const ValueId x = m.in(0);
  if (!m.ok()) return m.done({});
  const Shape shape = m.shape(x);
  const int64_t rank = static_cast<int64_t>(shape.size());
  const int64_t batch = m.of(c.axis(c.attribute_int("batch_axis", 1), shape.size()));
  const int64_t time = m.of(c.axis(c.attribute_int("time_axis", 0), shape.size()));
  if (m.ok() && batch == time) m.fail("batch and time are one axis");
  if (!m.ok()) return m.done({});
  ValueId length = m.cast(m.in(1), kPosition);
  if (m.ok() && m.rank(length) != 1) m.fail("its lengths are no list");
  m.same(m.shape(length)[0], shape[static_cast<size_t>(batch)], "the batch axis");
  length = m.unsqueeze(length, count_from(1, rank - batch));
  const ValueId t = m.iota(shape, time, kPosition);
  const ValueId turned = m.sub(m.add(length, -1), t);
  const Shape strides = strides_of(m, shape);
  ValueId at = times(m, m.where(m.fn(Fn::lt, {t, length}), turned, t), strides[static_cast<size_t>(time)]);
  for (int64_t i = 0; i < rank; ++i)
    if (i != time) at = m.add(at, times(m, m.iota(shape, i, kPosition), strides[static_cast<size_t>(i)]));
  return m.done({m.gather(flat(m, x), at, 0)});
}

// [n, c, h, w] -> [n, c / b^2, h b, w b]: blocks of channels become blocks of pixels.
Result<Values> import_depth_to_space(NodeContext& c) {
  Maker m(c);
  const ValueId x = m.in(0);
  const int64_t b = c.attribute_int("blocksize", 0);
  if (m.ok() && m.rank(x) != 4) m.fail("its operand needs four axes");
  if (b < 1 || b > (1 << 15)) m.fail("`blocksize` has to be positive");
  if (!m.ok()) return m.done({});
  const Shape s = m.shape(x);
  if (c.syms().divides(b * b, s[1]) != sym::Proof::yes) return c.error("its channels are no multiple of the block");
  const sym::Expr deep = c.syms().floordiv(s[1], m.extent(b * b)), block = m.extent(b);
  const std::string mode = c.attribute_text("mode", "DCR");
  if (mode != "DCR" && mode != "CRD") m.fail(fmt::format("the mode `{}` is not known", shown(mode)));
  const bool first = mode == "DCR";  // the block's axes come before the channels
  const ValueId apart = first ? m.reshape(x, {s[0], block, block, deep, s[2], s[3]})
                              : m.reshape(x, {s[0], deep, block, block, s[2], s[3]});
  const ValueId turned = m.transpose(apart, first ? Ints{0, 3, 4, 1, 5, 2} : Ints{0, 1, 4, 2, 5, 3});
  return m.done({m.reshape(turned, {s[0], deep, c.syms().mul(s[2], b), c.syms().mul(s[3], b)})});
}

Result<Values> import_space_to_depth(NodeContext& c) {
  Maker m(c);
  const ValueId x = m.in(0);
  const int64_t b = c.attribute_int("blocksize", 0);
  if (m.ok() && m.rank(x) != 4) m.fail("its operand needs four axes");
  if (b < 1 || b > (1 << 15)) m.fail("`blocksize` has to be positive");
  if (!m.ok()) return m.done({});
  const Shape s = m.shape(x);
  for (const size_t i : {2, 3})
    if (c.syms().divides(b, s[i]) != sym::Proof::yes) return c.error("its extents are no multiples of the block");
  const sym::Expr block = m.extent(b);
  const sym::Expr h = c.syms().floordiv(s[2], block), w = c.syms().floordiv(s[3], block);
  const ValueId turned = m.transpose(m.reshape(x, {s[0], s[1], h, block, w, block}), {0, 3, 5, 1, 2, 4});
  return m.done({m.reshape(turned, {s[0], c.syms().mul(s[1], b * b), h, w})});
}

// One at the first extremum of an axis, zero elsewhere. Before opset 13 all axes from `axis` on are one.
Result<Values> import_hardmax(NodeContext& c) {
  Maker m(c);
  ValueId x = m.in(0);
  if (!m.ok()) return m.done({});
  const Shape shape = m.shape(x);
  const bool coerced = c.opset() < 13;
  const int64_t axis = m.of(c.axis(c.attribute_int("axis", coerced ? 1 : -1), shape.size()));
  if (!m.ok()) return m.done({});
  if (coerced) {
    Shape rows(shape.begin(), shape.begin() + axis);
    rows.push_back(c.syms().product(std::span(shape).subspan(static_cast<size_t>(axis))));
    x = m.reshape(x, rows);
  }
  const ValueId best = m.make(Op::argmax, {x}, {{"axis", axis}, {"keepdims", true}});
  const ValueId on = m.fn(Fn::eq, {m.iota(m.shape(x), axis, kPosition), best});
  return m.done({m.reshape(m.cast(on, m.dtype(x)), shape)});
}

}  // namespace cleave::onnx_import
