#include <algorithm>

#include "frontend/onnx_handlers.hpp"

namespace cleave::onnx_import {

using graph::Op;
using graph::Shape;
using graph::ValueId;

namespace {

// A value with the same elements in the same order and another shape, in whatever form it is known.
Result<Values> reshaped(NodeContext& c, OnnxValue& x, Shape shape) {
  if (shape.size() > graph::kMaxRank)
    return c.error(fmt::format("the result would have {} axes, more than {}", shape.size(), graph::kMaxRank));
  const bool constant = constant_elements(c.syms(), shape).has_value();
  if (x.integers && constant && !x.id) {
    if (constant_elements(c.syms(), shape) != static_cast<int64_t>(x.integers->size())) {
      return c.error(fmt::format("{} elements cannot become {}", x.integers->size(), print_shape(c.syms(), shape)));
    }
    return c.one(c.integers(x.dtype, *x.integers, std::move(shape)));
  }
  if (x.splat && c.syms().equal(c.syms().product(x.shape), c.syms().product(shape)) == sym::Proof::yes) {
    return c.one(c.splat(*x.splat, x.dtype, std::move(shape)));
  }
  TRY_ASSIGN(const ValueId id, c.materialise(x));
  return c.one(c.reshape(id, std::move(shape)));
}

// Extents as one coefficient and a list of factors.
struct Factors {
  sym::Expr coefficient;
  Shape atoms;
};
Factors factors_of(sym::Pool& syms, const Shape& extents) {
  Factors f{syms.constant(1), {}};
  for (const sym::Expr e : extents) {
    const auto terms = syms.terms(e);
    if (terms.size() != 1) {
      f.atoms.push_back(e);
      continue;
    }
    f.coefficient = syms.mul(f.coefficient, terms[0].coefficient);
    f.atoms.insert(f.atoms.end(), terms[0].atoms.begin(), terms[0].atoms.end());
  }
  return f;
}

// The missing extent: what is left of the elements, after equal factors cancel. (A cancelled factor may be 0 at run
// time; then no element exists whatever the missing extent is.)
sym::Expr remaining(sym::Pool& syms, const Shape& all, const Shape& taken) {
  Factors above = factors_of(syms, all), below = factors_of(syms, taken);
  Shape left;
  for (const sym::Expr e : below.atoms) {
    const auto it = std::find(above.atoms.begin(), above.atoms.end(), e);
    if (it == above.atoms.end()) {
      left.push_back(e);
    } else {
      above.atoms.erase(it);
    }
  }
  above.atoms.push_back(above.coefficient);
  left.push_back(below.coefficient);
  return syms.floordiv(syms.product(above.atoms), syms.product(left));
}

}  // namespace

// 0 copies an extent (unless `allowzero`), -1 is what is left.
Result<Values> import_reshape(NodeContext& c) {
  sym::Pool& syms = c.syms();
  OnnxValue& x = c.in(0);
  TRY_ASSIGN(Shape shape, c.extents(1, "extents"));
  const bool copy_zeros = c.attribute_int("allowzero", 0) == 0;
  std::optional<size_t> open;
  Shape taken;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (syms.is(shape[i], 0) && copy_zeros) {
      if (i >= x.shape.size())
        return c.error(fmt::format("extent {} is copied from an operand of rank {}", i, x.shape.size()));
      shape[i] = x.shape[i];
    }
    if (syms.is(shape[i], -1)) {
      if (open) return c.error("two extents are -1");
      open = i;
      continue;
    }
    if (const auto n = syms.as_constant(shape[i]); n && *n < 0)
      return c.error(fmt::format("the extent {} is negative", *n));
    taken.push_back(shape[i]);
  }
  if (open) {
    if (std::any_of(taken.begin(), taken.end(), [&](sym::Expr e) { return syms.is(e, 0); })) {
      return c.error("-1 beside an extent of 0 has no value");
    }
    shape[*open] = remaining(syms, x.shape, taken);
  }
  return reshaped(c, x, std::move(shape));
}

Result<Values> import_flatten(NodeContext& c) {
  OnnxValue& x = c.in(0);
  const int64_t rank = static_cast<int64_t>(x.shape.size());
  int64_t axis = c.attribute_int("axis", 1);
  if (axis < -rank || axis > rank) return c.error(fmt::format("the axis {} is outside a rank of {}", axis, rank));
  if (axis < 0) axis += rank;
  const auto all = std::span<const sym::Expr>(x.shape);
  return reshaped(c, x,
                  {c.syms().product(all.first(static_cast<size_t>(axis))),
                   c.syms().product(all.subspan(static_cast<size_t>(axis)))});
}

namespace {

// The axes of Squeeze and Unsqueeze: an operand since opset 13, an attribute before.
Result<std::optional<std::vector<int64_t>>> moving_axes(NodeContext& c) {
  if (c.has(1)) {
    TRY_ASSIGN(auto axes, c.ints(1, "axes"));
    return std::optional(std::move(axes));
  }
  return c.attribute_ints("axes");
}

}  // namespace

Result<Values> import_squeeze(NodeContext& c) {
  OnnxValue& x = c.in(0);
  TRY_ASSIGN(const auto given, moving_axes(c));
  std::vector<int64_t> axes;
  if (given) {
    TRY_ASSIGN(axes, c.axes(*given, x.shape.size()));
  } else {
    for (size_t i = 0; i < x.shape.size(); ++i) {
      if (c.syms().is(x.shape[i], 1)) axes.push_back(static_cast<int64_t>(i));
    }
  }
  Shape shape;
  for (size_t i = 0; i < x.shape.size(); ++i) {
    if (!std::binary_search(axes.begin(), axes.end(), static_cast<int64_t>(i))) {
      shape.push_back(x.shape[i]);
    } else if (!c.syms().is(x.shape[i], 1)) {
      return c.error(fmt::format("axis {} has the extent {}, not 1", i, shown(c.syms().print(x.shape[i]))));
    }
  }
  if (!x.id) return reshaped(c, x, std::move(shape));
  if (axes.empty()) return Values{x};
  return c.one(c.add(Op::squeeze, {*x.id}, {{"axes", axes}}));
}

Result<Values> import_unsqueeze(NodeContext& c) {
  OnnxValue& x = c.in(0);
  TRY_ASSIGN(const auto given, moving_axes(c));
  if (!given) return c.error("its axes are missing");
  if (given->size() > graph::kMaxRank) return c.error("it has too many axes");
  const size_t rank = x.shape.size() + given->size();
  TRY_ASSIGN(const auto axes, c.axes(*given, rank));
  Shape shape;
  for (size_t i = 0, next = 0; i < rank; ++i) {
    const bool fresh = std::binary_search(axes.begin(), axes.end(), static_cast<int64_t>(i));
    shape.push_back(fresh ? c.syms().constant(1) : x.shape[next++]);
  }
  if (!x.id) return reshaped(c, x, std::move(shape));
  if (axes.empty()) return Values{x};
  return c.one(c.add(Op::unsqueeze, {*x.id}, {{"axes", axes}}));
}

// Both ways: an extent of 1 in the wanted shape keeps the operand's.
Result<Values> import_expand(NodeContext& c) {
  OnnxValue& x = c.in(0);
  TRY_ASSIGN(const Shape wanted, c.extents(1, "extents"));
  if (wanted.size() > graph::kMaxRank)
    return c.error(fmt::format("{} axes are more than {}", wanted.size(), graph::kMaxRank));
  for (const sym::Expr e : wanted) {
    if (c.syms().bounds(e).lo < 0)
      return c.error(fmt::format("the extent {} may be negative", shown(c.syms().print(e))));
  }
  const Shape shapes[] = {x.shape, wanted};
  const auto shape = broadcast_shapes(c.syms(), shapes);
  if (!shape)
    return c.error(
        fmt::format("{} cannot be expanded to {}", print_shape(c.syms(), x.shape), print_shape(c.syms(), wanted)));
  if (*shape == x.shape) return Values{x};
  if (x.splat) return c.one(c.splat(*x.splat, x.dtype, *shape));
  if (x.integers && !x.id) {
    // The sum with zeros of the wanted shape.
    OnnxValue zeros = c.splat(0, x.dtype, *shape);
    OnnxValue* operands[] = {&x, &zeros};
    if (auto folded = fold_integers(c.syms(), Fn::add, operands, *shape); folded && x.dtype != DType::boolean) {
      return c.one(c.integers(x.dtype, std::move(*folded), *shape));
    }
  }
  TRY_ASSIGN(const ValueId id, c.id(0));
  return c.one(c.add(Op::broadcast, {id}, {{"shape", *shape}}));
}

Result<Values> import_transpose(NodeContext& c) {
  const size_t rank = c.rank(0);
  std::vector<int64_t> perm;
  for (size_t i = 0; i < rank; ++i) perm.push_back(static_cast<int64_t>(rank - 1 - i));
  if (const auto given = c.attribute_ints("perm")) perm = *given;
  std::vector<int64_t> sorted = perm;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < std::max(rank, perm.size()); ++i)
    if (perm.size() != rank || sorted[i] != static_cast<int64_t>(i))
      return c.error(fmt::format("`perm` [{}] is no order of {} axes", fmt::join(perm, ", "), rank));
  OnnxValue& x = c.in(0);
  if (rank < 2) return Values{x};
  if (x.splat) {
    Shape shape;
    for (const int64_t p : perm) shape.push_back(x.shape[static_cast<size_t>(p)]);
    return c.one(c.splat(*x.splat, x.dtype, std::move(shape)));
  }
  TRY_ASSIGN(const ValueId id, c.id(0));
  return c.one(c.add(Op::transpose, {id}, {{"perm", perm}}));
}

// [n, m] tiled by [r, s] is [1, n, 1, m] broadcast to [r, n, s, m] and folded to [r n, s m].
Result<Values> import_tile(NodeContext& c) {
  sym::Pool& syms = c.syms();
  OnnxValue& x = c.in(0);
  TRY_ASSIGN(const Shape repeats, c.extents(1, "repeats"));
  const size_t rank = x.shape.size();
  if (repeats.size() != rank) return c.error(fmt::format("{} repeats for {} axes", repeats.size(), rank));
  Shape apart, wide, folded;
  for (size_t i = 0; i < rank; ++i) {
    if (syms.bounds(repeats[i]).lo < 0) return c.error("a repeat may be negative");
    if (!syms.is(repeats[i], 1)) {
      apart.push_back(syms.constant(1));
      wide.push_back(repeats[i]);
    }
    apart.push_back(x.shape[i]);
    wide.push_back(x.shape[i]);
    folded.push_back(syms.mul(repeats[i], x.shape[i]));
  }
  if (wide.size() > graph::kMaxRank) return c.error("too many axes are repeated");
  TRY_ASSIGN(const ValueId id, c.id(0));
  TRY_ASSIGN(const ValueId spread, c.reshape(id, apart));
  if (apart == wide) return c.one(spread);
  TRY_ASSIGN(const ValueId all, c.add(Op::broadcast, {spread}, {{"shape", wide}}));
  return c.one(c.reshape(all, folded));
}

}  // namespace cleave::onnx_import
