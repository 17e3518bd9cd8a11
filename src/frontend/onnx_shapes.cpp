// Operators that make shapes, or pick and join elements. On integers known at import they compute; otherwise they
// become views.
#include <algorithm>
#include <cmath>

#include "frontend/onnx_handlers.hpp"
#include "frontend/onnx_tensor.hpp"

namespace cleave::onnx_import {

using graph::Op;
using graph::Shape;
using graph::ValueId;

Result<Values> import_shape(NodeContext& c) {
  const Shape& shape = c.in(0).shape;
  const int64_t rank = static_cast<int64_t>(shape.size());
  const auto clamp = [&](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + rank : i, 0, rank); };
  const int64_t start = clamp(std::max<int64_t>(c.attribute_int("start", 0), -rank));
  const int64_t stop = std::max(start, clamp(std::max<int64_t>(c.attribute_int("end", rank), -rank)));
  std::vector<sym::Expr> elements(shape.begin() + start, shape.begin() + stop);
  const int64_t count = static_cast<int64_t>(elements.size());
  return c.one(c.integers(DType::i64, std::move(elements), {c.syms().constant(count)}));
}

Result<Values> import_size(NodeContext& c) {
  return c.one(c.integers(DType::i64, {c.syms().product(c.in(0).shape)}, {}));
}

Result<Values> import_constant_of_shape(NodeContext& c) {
  TRY_ASSIGN(const Shape shape, c.extents(0, "extents"));
  if (shape.size() > graph::kMaxRank)
    return c.error(fmt::format("{} axes are more than {}", shape.size(), graph::kMaxRank));
  for (const sym::Expr e : shape) {
    if (c.syms().bounds(e).lo < 0)
      return c.error(fmt::format("the extent {} may be negative", shown(c.syms().print(e))));
  }
  double value = 0;
  DType dtype = DType::f32;
  if (const auto* a = c.attribute("value"); a && a->has_t()) {
    OnnxOptions limits;
    limits.max_constant_bytes = 64;
    TRY_ASSIGN(const LoadedTensor tensor, TensorLoader("", limits).load(a->t()));
    dtype = tensor.dtype;
    if (static_cast<int64_t>(tensor.bytes->size()) != byte_size(dtype)) return c.error("its value is not one element");
    value = is_real(dtype) ? load_real(dtype, tensor.bytes->data())
                           : static_cast<double>(load_integer(dtype, tensor.bytes->data()));
  }
  return c.one(c.splat(value, dtype, shape));
}

namespace {

// start + delta * i with constant operands.
Result<Values> real_range(NodeContext& c, DType dtype) {
  TRY_ASSIGN(const double start, c.number(0, "start"));
  TRY_ASSIGN(const double limit, c.number(1, "limit"));
  TRY_ASSIGN(const double step, c.number(2, "delta"));
  const double count = std::ceil((limit - start) / step);
  if (!(std::abs(count) < 0x1p31) || step == 0) return c.error("its bounds give no number of elements");
  const sym::Expr extent = c.syms().constant(std::max<int64_t>(static_cast<int64_t>(count), 0));
  TRY_ASSIGN(ValueId x, c.add(Op::iota, {}, {{"shape", Shape{extent}}, {"axis", int64_t{0}}, {"dtype", DType::i64}}));
  TRY_ASSIGN(x, c.cast(x, dtype));
  TRY_ASSIGN(x, c.add(graph::op_of(Fn::mul), {x, c.builder().literal(step, dtype)}));
  return c.one(c.add(graph::op_of(Fn::add), {x, c.builder().literal(start, dtype)}));
}

}  // namespace

// start, start + delta, ...: integers, or reals with constant bounds.
Result<Values> import_range(NodeContext& c) {
  sym::Pool& syms = c.syms();
  const DType dtype = c.in(0).dtype;
  if (is_real(dtype)) return real_range(c, dtype);
  if (!is_integer(dtype)) return c.error("a range of bool has no meaning");
  TRY_ASSIGN(const auto start, c.extents(0, "start"));
  TRY_ASSIGN(const auto limit, c.extents(1, "limit"));
  TRY_ASSIGN(const auto step, c.ints(2, "delta"));
  if (start.size() != 1 || limit.size() != 1 || step.size() != 1)
    return c.error("start, limit and delta must be scalars");
  constexpr int64_t kMost = int64_t{1} << 31;
  if (step[0] == 0 || step[0] > kMost || step[0] < -kMost) return c.error(fmt::format("{} is no step", step[0]));
  const sym::Expr span = step[0] > 0 ? syms.sub(limit[0], start[0]) : syms.sub(start[0], limit[0]);
  const sym::Expr count = syms.max(syms.ceildiv(span, syms.constant(std::abs(step[0]))), syms.constant(0));
  const auto constant = syms.as_constant(count);
  if (constant && *constant <= kMaxKnownIntegers) {
    std::vector<sym::Expr> elements;
    for (int64_t i = 0; i < *constant; ++i) elements.push_back(syms.add(start[0], i * step[0]));
    return c.one(c.integers(dtype, std::move(elements), {count}));
  }
  TRY_ASSIGN(ValueId x, c.add(Op::iota, {}, {{"shape", Shape{count}}, {"axis", int64_t{0}}, {"dtype", dtype}}));
  if (step[0] != 1) {
    TRY_ASSIGN(x, c.add(graph::op_of(Fn::mul), {x, c.builder().literal(static_cast<double>(step[0]), dtype)}));
  }
  if (!syms.is(start[0], 0)) {
    TRY_ASSIGN(const ValueId first, c.add(Op::extent, {}, {{"of", Shape{start[0]}}, {"dtype", dtype}}));
    TRY_ASSIGN(x, c.add(graph::op_of(Fn::add), {x, first}));
  }
  return c.one(x);
}

// Keeps the elements on one side of a diagonal: a comparison of positions, which later passes can see through.
Result<Values> import_trilu(NodeContext& c) {
  OnnxValue& x = c.in(0);
  const size_t rank = x.shape.size();
  if (rank < 2) return c.error("its operand has fewer than two axes");
  int64_t k = 0;
  if (c.has(1)) {
    TRY_ASSIGN(const auto diagonal, c.ints(1, "diagonal"));
    if (diagonal.size() != 1) return c.error("its diagonal is no scalar");
    k = std::clamp<int64_t>(diagonal[0], -graph::kMaxElements, graph::kMaxElements);
  }
  const bool upper = c.attribute_int("upper", 1) != 0;
  const Shape matrix(x.shape.end() - 2, x.shape.end());
  const auto positions = [&](int64_t axis) {
    return c.add(Op::iota, {}, {{"shape", matrix}, {"axis", axis}, {"dtype", DType::i64}});
  };
  TRY_ASSIGN(ValueId row, positions(0));
  TRY_ASSIGN(const ValueId column, positions(1));
  if (k != 0) {
    TRY_ASSIGN(row, c.add(graph::op_of(Fn::add), {row, c.builder().literal(static_cast<double>(k), DType::i64)}));
  }
  TRY_ASSIGN(const ValueId keep, c.add(graph::op_of(upper ? Fn::ge : Fn::le), {column, row}));
  const ValueId zero = c.builder().literal(0, x.dtype);
  if (x.splat && rank == 2) {
    return c.one(c.add(graph::op_of(Fn::where), {keep, c.builder().literal(*x.splat, x.dtype), zero}));
  }
  TRY_ASSIGN(const ValueId id, c.id(0));
  return c.one(c.add(graph::op_of(Fn::where), {keep, id, zero}));
}

Result<Values> import_concat(NodeContext& c) {
  const size_t rank = c.rank(0);
  if (!c.attribute("axis")) return c.error("`axis` is missing");
  TRY_ASSIGN(const int64_t axis, c.axis(c.attribute_int("axis", 0), rank));
  bool known = rank == 1;
  std::vector<sym::Expr> elements;
  for (size_t i = 0; i < c.size(); ++i) {
    if (!c.has(i)) return c.error(fmt::format("operand {} is missing", i));
    known = known && c.in(i).integers && c.rank(i) == 1;
    if (known) elements.insert(elements.end(), c.in(i).integers->begin(), c.in(i).integers->end());
    known = known && elements.size() <= kMaxKnownIntegers;
  }
  if (known) {
    const sym::Expr count = c.syms().constant(static_cast<int64_t>(elements.size()));
    return c.one(c.integers(c.in(0).dtype, std::move(elements), {count}));
  }
  std::vector<ValueId> operands;
  for (size_t i = 0; i < c.size(); ++i) {
    TRY_ASSIGN(const ValueId id, c.id(i));
    operands.push_back(id);
  }
  return c.one(c.add(Op::concat, std::move(operands), {{"axis", axis}}));
}

// Constant indices of one element are a slice; negative indices count from the end.
Result<Values> import_gather(NodeContext& c) {
  OnnxValue& x = c.in(0);
  OnnxValue& indices = c.in(1);
  TRY_ASSIGN(const int64_t axis, c.axis(c.attribute_int("axis", 0), c.rank(0)));
  const sym::Expr extent = x.shape[static_cast<size_t>(axis)];
  if (!is_integer(indices.dtype)) return c.error("its indices are no integers");

  const auto constants = indices.integers ? constant_extents(c.syms(), *indices.integers) : std::nullopt;
  const auto n = c.syms().as_constant(extent);
  if (constants && n) {
    for (const int64_t i : *constants) {
      if (i < -*n || i >= *n) return c.error(fmt::format("the index {} is outside an extent of {}", i, *n));
    }
    if (x.integers && c.rank(0) == 1) {
      std::vector<sym::Expr> picked;
      for (const int64_t i : *constants) picked.push_back((*x.integers)[static_cast<size_t>(i < 0 ? i + *n : i)]);
      return c.one(c.integers(x.dtype, std::move(picked), indices.shape));
    }
  }
  TRY_ASSIGN(const ValueId id, c.id(0));
  if (constants && constants->size() == 1 &&
      (n || (*constants)[0] < 0 || c.syms().bounds(extent).lo > (*constants)[0])) {
    const int64_t i = (*constants)[0];
    const sym::Expr start = i < 0 ? c.syms().add(extent, i) : c.syms().constant(i);
    TRY_ASSIGN(const ValueId row, c.add(Op::slice, {id},
                                        {{"axes", std::vector<int64_t>{axis}},
                                         {"starts", Shape{start}},
                                         {"stops", Shape{c.syms().add(start, 1)}}}));
    Shape shape(x.shape.begin(), x.shape.begin() + axis);
    shape.insert(shape.end(), indices.shape.begin(), indices.shape.end());
    shape.insert(shape.end(), x.shape.begin() + axis + 1, x.shape.end());
    if (shape.size() > graph::kMaxRank) return c.error("the result has too many axes");
    return c.one(c.reshape(row, std::move(shape)));
  }
  TRY_ASSIGN(ValueId positions, c.id(1));
  const bool never_negative =
      constants && std::all_of(constants->begin(), constants->end(), [](int64_t i) { return i >= 0; });
  if (!never_negative) {
    const DType dtype = indices.dtype;
    TRY_ASSIGN(const ValueId count, c.add(Op::extent, {}, {{"of", Shape{extent}}, {"dtype", dtype}}));
    TRY_ASSIGN(const ValueId moved, c.add(graph::op_of(Fn::add), {positions, count}));
    TRY_ASSIGN(const ValueId negative, c.add(graph::op_of(Fn::lt), {positions, c.builder().literal(0, dtype)}));
    TRY_ASSIGN(positions, c.add(graph::op_of(Fn::where), {negative, moved, positions}));
  }
  return c.one(c.add(Op::gather, {id, positions}, {{"axis", axis}}));
}

namespace {

// A bound of ONNX's Slice as a position in [low, high]: negative ones count from the end, then it is clamped.
sym::Expr clamp_bound(sym::Pool& syms, sym::Expr bound, sym::Expr extent) {
  const auto c = syms.as_constant(bound);
  if (c && *c >= 0 && *c >= syms.bounds(extent).hi) return extent;
  if (c && *c < 0) {
    // Saturated constants (INT64_MIN) stay far below zero.
    bound = syms.add(extent, std::max<int64_t>(*c, -(int64_t{1} << 40)));
  } else if (!c && syms.bounds(bound).lo < 0) {
    return sym::Expr{};
  }
  return syms.max(syms.min(bound, extent), syms.constant(0));
}

}  // namespace

Result<Values> import_slice(NodeContext& c) {
  sym::Pool& syms = c.syms();
  OnnxValue& x = c.in(0);
  std::vector<sym::Expr> starts, stops;
  std::vector<int64_t> axes, steps;
  if (c.opset() < 10) {
    const auto from = c.attribute_ints("starts"), to = c.attribute_ints("ends");
    if (!from || !to) return c.error("`starts` or `ends` is missing");
    for (const int64_t v : *from) starts.push_back(syms.constant(v));
    for (const int64_t v : *to) stops.push_back(syms.constant(v));
    axes = c.attribute_ints("axes").value_or(std::vector<int64_t>{});
  } else {
    TRY_ASSIGN(starts, c.extents(1, "starts"));
    TRY_ASSIGN(stops, c.extents(2, "ends"));
    if (c.has(3)) {
      TRY_ASSIGN(axes, c.ints(3, "axes"));
    }
    if (c.has(4)) {
      TRY_ASSIGN(steps, c.ints(4, "steps"));
    }
  }
  if (axes.empty() && !c.has(3)) {
    for (size_t i = 0; i < starts.size(); ++i) axes.push_back(static_cast<int64_t>(i));
  }
  if (steps.empty()) steps.assign(starts.size(), 1);
  if (starts.size() != stops.size() || axes.size() != starts.size() || steps.size() != starts.size()) {
    return c.error("starts, ends, axes and steps differ in length");
  }
  TRY_ASSIGN([[maybe_unused]] const auto distinct, c.axes(axes, x.shape.size()));

  std::vector<int64_t> flipped;
  for (size_t i = 0; i < axes.size(); ++i) {
    TRY_ASSIGN(axes[i], c.axis(axes[i], x.shape.size()));
    const sym::Expr extent = x.shape[static_cast<size_t>(axes[i])];
    if (steps[i] == 0 || steps[i] == INT64_MIN) return c.error(fmt::format("{} is no step", steps[i]));
    if (steps[i] < 0) {
      // x[start:stop:-s] is flip(x)[n-1-start : n-1-stop : s]; only constant extents and bounds are needed in practice.
      const auto n = syms.as_constant(extent), from = syms.as_constant(starts[i]), to = syms.as_constant(stops[i]);
      if (!n || !from || !to) return c.error("a negative step over a symbolic axis is not supported");
      const auto place = [&](int64_t v) { return std::clamp<int64_t>(v < 0 ? v + *n : v, -1, *n - 1); };
      const int64_t stop = *to < -*n ? -1 : place(*to), start = *from < -*n ? -1 : place(*from);
      starts[i] = syms.constant(std::clamp<int64_t>(*n - 1 - start, 0, *n));
      stops[i] = syms.constant(std::clamp<int64_t>(*n - 1 - stop, 0, *n));
      steps[i] = -steps[i];
      flipped.push_back(axes[i]);
    } else {
      starts[i] = clamp_bound(syms, starts[i], extent);
      stops[i] = clamp_bound(syms, stops[i], extent);
      if (!starts[i].valid() || !stops[i].valid()) return c.error("a symbolic bound may be negative");
    }
    if (syms.less(stops[i], starts[i]) == sym::Proof::yes) stops[i] = starts[i];
  }

  if (x.integers && x.shape.size() == 1 && axes.size() == 1) {
    const auto from = syms.as_constant(starts[0]), to = syms.as_constant(stops[0]);
    if (from && to) {
      std::vector<sym::Expr> all = *x.integers, picked;
      if (!flipped.empty()) std::reverse(all.begin(), all.end());
      for (int64_t i = *from; i < *to; i += std::min<int64_t>(steps[0], *to))
        picked.push_back(all[static_cast<size_t>(i)]);
      const sym::Expr count = syms.constant(static_cast<int64_t>(picked.size()));
      return c.one(c.integers(x.dtype, std::move(picked), {count}));
    }
  }
  TRY_ASSIGN(ValueId id, c.id(0));
  if (!flipped.empty()) {
    TRY_ASSIGN(id, c.add(Op::flip, {id}, {{"axes", flipped}}));
  }
  if (axes.empty()) return c.one(id);
  return c.one(c.add(Op::slice, {id}, {{"axes", axes}, {"starts", starts}, {"stops", stops}, {"steps", steps}}));
}

// Sizes from an operand (opset 13), an attribute (before), or equal parts of which the last may be smaller.
Result<Values> import_split(NodeContext& c) {
  sym::Pool& syms = c.syms();
  OnnxValue& x = c.in(0);
  TRY_ASSIGN(const int64_t axis, c.axis(c.attribute_int("axis", 0), x.shape.size()));
  const sym::Expr extent = x.shape[static_cast<size_t>(axis)];
  std::vector<sym::Expr> sizes;
  if (c.has(1)) {
    TRY_ASSIGN(sizes, c.extents(1, "sizes"));
  } else if (const auto attribute = c.attribute_ints("split")) {
    for (const int64_t s : *attribute) sizes.push_back(syms.constant(s));
  } else {
    const int64_t parts = static_cast<int64_t>(c.results());
    const int64_t wanted = c.attribute_int("num_outputs", parts);
    if (wanted != parts) return c.error(fmt::format("it has {} results and `num_outputs` {}", parts, wanted));
    if (const auto n = syms.as_constant(extent)) {
      // Only `num_outputs`, since opset 18, allows a smaller last part.
      if (*n % parts != 0 && !c.attribute("num_outputs"))
        return c.error(fmt::format("an axis of {} has no {} equal parts", *n, parts));
      const int64_t chunk = (*n + parts - 1) / parts;
      for (int64_t i = 0, left = *n; i < parts; ++i) {
        sizes.push_back(syms.constant(std::min(chunk, left)));
        left -= std::min(chunk, left);
      }
    } else if (syms.divides(parts, extent) == sym::Proof::yes) {
      sizes.assign(static_cast<size_t>(parts), syms.floordiv(extent, syms.constant(parts)));
    } else {
      return c.error("equal parts of a symbolic axis are not supported");
    }
  }
  if (sizes.size() != c.results())
    return c.error(fmt::format("it has {} results and {} sizes", c.results(), sizes.size()));
  if (x.integers && x.shape.size() == 1 && constant_extents(syms, sizes)) {
    Values out;
    size_t position = 0;
    for (const sym::Expr s : sizes) {
      const int64_t n = *syms.as_constant(s);
      if (n < 0 || static_cast<size_t>(n) > x.integers->size() - position) return c.error("its sizes exceed the axis");
      const auto first = x.integers->begin() + static_cast<std::ptrdiff_t>(position);
      out.push_back(c.integers(x.dtype, {first, first + n}, {s}));
      position += static_cast<size_t>(n);
    }
    return out;
  }
  TRY_ASSIGN(const ValueId id, c.id(0));
  TRY_ASSIGN(const auto parts, c.add_all(Op::split, {id}, {{"axis", axis}, {"sizes", sizes}}));
  Values out;
  for (const ValueId part : parts) out.push_back(c.wrap(part));
  return out;
}

}  // namespace cleave::onnx_import
