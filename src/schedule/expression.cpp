#include "schedule/expression.hpp"

#include <algorithm>
#include <cstring>
#include <functional>

#include "base/match.hpp"

namespace cleave::schedule {

using graph::Category;
using graph::Op;
using sym::Expr;

bool is_inline(const graph::Node& node) {
  switch (info(node.op).category) {
    case Category::leaf: return node.op == Op::literal || node.op == Op::iota || node.op == Op::extent;
    case Category::elementwise:
    case Category::cast:
    case Category::view:
    case Category::gather: return true;
    case Category::dialect: return node.op == Op::unscale;
    case Category::contract:
    case Category::reduce:
    case Category::scan:
    case Category::select:
    case Category::composite: return false;
  }
  return false;
}

namespace {
bool same(const tile::Node& a, const tile::Node& b) {
  if (a.dtype != b.dtype || a.what.index() != b.what.index()) return false;
  return match(
      a.what,
      [&](const tile::Load& l) {
        const auto& m = std::get<tile::Load>(b.what);
        if (l.buffer != m.buffer || l.guard != m.guard || l.at.size() != m.at.size()) return false;
        for (size_t i = 0; i < l.at.size(); ++i)
          if (l.at[i].affine != m.at[i].affine || l.at[i].dynamic != m.at[i].dynamic) return false;
        return true;
      },
      [&](const tile::Literal& l) {
        return std::memcmp(&l.value, &std::get<tile::Literal>(b.what).value, sizeof l.value) == 0;
      },
      [&](const tile::IndexValue& v) { return v.value == std::get<tile::IndexValue>(b.what).value; },
      [&](const tile::Apply& x) {
        return x.fn == std::get<tile::Apply>(b.what).fn && x.operands == std::get<tile::Apply>(b.what).operands;
      },
      [&](const tile::Cast& c) { return c.operand == std::get<tile::Cast>(b.what).operand; });
}
}  // namespace

NodeId ExpressionBuilder::add(tile::Node node) {
  for (uint32_t i = 0; i < nodes_.size(); ++i)
    if (same(nodes_[i], node)) return NodeId(i);
  nodes_.push_back(std::move(node));
  return NodeId(static_cast<uint32_t>(nodes_.size() - 1));
}

NodeId ExpressionBuilder::literal(double value, DType dtype) {
  if (is_real(dtype)) return add({compute_type(dtype), tile::Literal{round_to(dtype, value)}});
  const int64_t whole = dtype == DType::boolean ? value != 0 : wrap_to(dtype, real_to_integer(DType::i64, value));
  return add({dtype, tile::Literal{static_cast<double>(whole)}});
}

NodeId ExpressionBuilder::apply(Fn fn, std::vector<NodeId> operands) {
  const DType d = compute_type(nodes_[operands[fn == Fn::where ? 1 : 0].index].dtype);
  return add({result_dtype(fn, d), tile::Apply{fn, std::move(operands)}});
}

NodeId ExpressionBuilder::cast(NodeId operand, DType dtype) {
  if (nodes_[operand.index].dtype == dtype) return operand;
  return add({dtype, tile::Cast{operand}});
}

NodeId ExpressionBuilder::load(itgraph::ValueId value, const std::vector<Index>& index, NodeId guard, DType dtype) {
  return add({compute_type(dtype), tile::Load{value, index, guard}});
}

NodeId ExpressionBuilder::as_node(const Index& index) {
  sym::Pool& s = graph_.syms();
  if (!index.dynamic.valid()) return add({DType::i64, tile::IndexValue{index.affine}});
  if (s.is(index.affine, 0)) return index.dynamic;
  return apply(Fn::add, {add({DType::i64, tile::IndexValue{index.affine}}), index.dynamic});
}

Index ExpressionBuilder::plus(const Index& a, Expr b) { return {graph_.syms().add(a.affine, b), a.dynamic}; }

Index ExpressionBuilder::times(const Index& a, int64_t c) {
  Index out{graph_.syms().mul(a.affine, c), a.dynamic};
  if (out.dynamic.valid() && c != 1)
    out.dynamic = apply(Fn::mul, {out.dynamic, literal(static_cast<double>(c), DType::i64)});
  return out;
}

NodeId ExpressionBuilder::both(NodeId a, NodeId b) {
  if (!a.valid()) return b;
  if (!b.valid()) return a;
  return apply(Fn::logical_and, {a, b});
}

NodeId ExpressionBuilder::inside(const Index& index, Expr lo, Expr hi) {
  sym::Pool& s = graph_.syms();
  NodeId test;
  const bool fixed = !index.dynamic.valid();
  if (!fixed || s.at_most(lo, index.affine) != sym::Proof::yes)
    test = apply(Fn::ge, {as_node(index), add({DType::i64, tile::IndexValue{lo}})});
  if (!fixed || s.less(index.affine, hi) != sym::Proof::yes)
    test = both(test, apply(Fn::lt, {as_node(index), add({DType::i64, tile::IndexValue{hi}})}));
  return test;
}

std::vector<Index> ExpressionBuilder::reshaped(const std::vector<Index>& index, const graph::Shape& from,
                                               const graph::Shape& to) {
  sym::Pool& s = graph_.syms();
  // Axes are taken together only as far as they must be: the first ones of both shapes that have equally many elements.
  // With numbers alone the arithmetic below comes to the same.
  const auto symbolic = [&](const graph::Shape& shape) {
    return std::any_of(shape.begin(), shape.end(), [&](Expr e) { return !s.as_constant(e); });
  };
  if ((symbolic(from) || symbolic(to)) && !from.empty() && !to.empty()) {
    size_t i = 1, j = 1;
    Expr before = from[0], after = to[0];
    while (before != after && (i < from.size() || j < to.size())) {
      // The side that is known to be shorter grows; the one with axes left if that is not known.
      const bool grow_from = j == to.size() || (i < from.size() && s.at_most(before, after) == sym::Proof::yes);
      if (grow_from)
        before = s.mul(before, from[i++]);
      else
        after = s.mul(after, to[j++]);
    }
    const bool split = before == after && i < from.size() && j < to.size();
    if (split || (i == 1 && j == 1 && before == after)) {
      using Ints = std::ptrdiff_t;
      const graph::Shape f1(from.begin(), from.begin() + static_cast<Ints>(i)),
          f2(from.begin() + static_cast<Ints>(i), from.end());
      const graph::Shape t1(to.begin(), to.begin() + static_cast<Ints>(j)),
          t2(to.begin() + static_cast<Ints>(j), to.end());
      const std::vector<Index> x1(index.begin(), index.begin() + static_cast<Ints>(i)),
          x2(index.begin() + static_cast<Ints>(i), index.end());
      std::vector<Index> out = i == 1 && j == 1 ? x1 : reshaped(x1, f1, t1);
      const std::vector<Index> rest = reshaped(x2, f2, t2);
      out.insert(out.end(), rest.begin(), rest.end());
      return out;
    }
  }
  // The position in row-major order, then the coordinates of that position.
  bool dynamic = false;
  for (const Index& i : index) dynamic = dynamic || i.dynamic.valid();
  std::vector<Index> out(to.size());
  if (!dynamic) {
    Expr position = s.constant(0);
    for (size_t i = 0; i < from.size(); ++i) position = s.add(s.mul(position, from[i]), index[i].affine);
    for (size_t i = to.size(); i-- > 0;) {
      out[i] = {i == 0 ? position : s.mod(position, to[i]), {}};
      position = s.floordiv(position, to[i]);
    }
    return out;
  }
  NodeId position = literal(0, DType::i64);
  auto extent = [&](Expr e) { return add({DType::i64, tile::IndexValue{e}}); };
  for (size_t i = 0; i < from.size(); ++i)
    position = apply(Fn::add, {apply(Fn::mul, {position, extent(from[i])}), as_node(index[i])});
  for (size_t i = to.size(); i-- > 0;) {
    out[i] = {s.constant(0), i == 0 ? position : apply(Fn::mod, {position, extent(to[i])})};
    position = apply(Fn::floordiv, {position, extent(to[i])});
  }
  return out;
}

NodeId ExpressionBuilder::at(graph::ValueId value, const std::vector<Index>& index, NodeId guard) {
  if (const auto memory = memory_(value)) return load(*memory, index, guard, graph_.type(value).dtype);
  const graph::Node& n = graph_.producer(value);
  CHECK(is_inline(n), "`{}` is not in memory", info(n.op).name);
  const DType dtype = graph_.type(value).dtype;
  sym::Pool& s = graph_.syms();
  // Operands broadcast: aligned at the end, an extent 1 is read at 0.
  auto operand = [&](graph::ValueId v) {
    const graph::Shape& shape = graph_.type(v).shape;
    std::vector<Index> i(index.end() - static_cast<std::ptrdiff_t>(shape.size()), index.end());
    for (size_t a = 0; a < shape.size(); ++a)
      if (s.is(shape[a], 1)) i[a] = {s.constant(0), {}};
    return at(v, i, guard);
  };
  switch (info(n.op).category) {
    case Category::leaf:
      if (n.op == Op::literal) return literal(n.attributes.get<double>("value"), dtype);
      if (n.op == Op::extent)
        return cast(add({DType::i64, tile::IndexValue{n.attributes.get<std::vector<Expr>>("of")[0]}}),
                    compute_type(dtype));
      {
        const int64_t axis = n.attributes.get<int64_t>("axis");
        const size_t a = static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(index.size()) : axis);
        return cast(as_node(index[a]), dtype);
      }
    case Category::elementwise: {
      std::vector<NodeId> x;
      for (graph::ValueId v : n.operands) x.push_back(operand(v));
      return apply(scalar_fn(n.op), std::move(x));
    }
    case Category::cast: return cast(operand(n.operands[0]), dtype);
    case Category::dialect: {
      // u * exp(m) in two halves, so that exp does not overflow before a small u brings the product back.
      const NodeId u = operand(n.operands[0]), m = operand(n.operands[1]);
      const NodeId half = apply(Fn::exp, {apply(Fn::mul, {m, literal(0.5, dtype)})});
      return apply(Fn::mul, {apply(Fn::mul, {u, half}), half});
    }
    case Category::view: return view(n, graph_.value(value).result, index, guard);
    case Category::gather: {
      const graph::Shape& data = graph_.type(n.operands[0]).shape;
      const size_t indices_rank = graph_.type(n.operands[1]).shape.size();
      const int64_t axis = n.attributes.get<int64_t>("axis");
      const size_t a = static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(data.size()) : axis);
      const auto first = index.begin() + static_cast<std::ptrdiff_t>(a);
      const auto rest = first + static_cast<std::ptrdiff_t>(indices_rank);
      if (s.is(data[a], 0)) return literal(0, dtype);  // nothing to gather from
      // An axis that may be empty at run time gives 0 then.
      NodeId some;
      if (s.bounds(data[a]).lo < 1) {
        some = apply(Fn::gt, {add({DType::i64, tile::IndexValue{data[a]}}), literal(0, DType::i64)});
        guard = both(guard, some);
      }
      NodeId j = cast(at(n.operands[1], {first, rest}, guard), DType::i64);
      const NodeId extent = add({DType::i64, tile::IndexValue{data[a]}}), zero = literal(0, DType::i64);
      j = apply(Fn::where, {apply(Fn::lt, {j, zero}), apply(Fn::add, {j, extent}), j});
      j = apply(Fn::clamp, {j, zero, add({DType::i64, tile::IndexValue{s.sub(data[a], s.constant(1))}})});
      std::vector<Index> source(index.begin(), first);
      source.push_back({s.constant(0), j});
      source.insert(source.end(), rest, index.end());
      const NodeId element = at(n.operands[0], source, guard);
      if (!some.valid()) return element;
      return apply(Fn::where, {some, element, literal(0, dtype)});
    }
    default: CHECK(false, "`{}` is not inline", info(n.op).name);
  }
}

NodeId ExpressionBuilder::body(graph::ValueId value, const std::vector<Index>& index) {
  const Memory outer = memory_;
  memory_ = [&](graph::ValueId v) { return v == value ? std::nullopt : outer(v); };
  const NodeId id = at(value, index);
  memory_ = outer;
  return id;
}

NodeId ExpressionBuilder::view(const graph::Node& n, int result, const std::vector<Index>& index, NodeId guard) {
  sym::Pool& s = graph_.syms();
  const graph::ValueId x = n.operands[0];
  const graph::Shape& shape = graph_.type(x).shape;
  const size_t rank = shape.size();
  const DType dtype = graph_.type(x).dtype;
  const Index zero{s.constant(0), {}};
  auto axis_of = [&](int64_t a) { return static_cast<size_t>(a < 0 ? a + static_cast<int64_t>(rank) : a); };
  switch (n.op) {
    case Op::reshape: return at(x, reshaped(index, n.attributes.get<std::vector<Expr>>("shape"), shape), guard);
    case Op::transpose: {
      const auto& perm = n.attributes.get<std::vector<int64_t>>("perm");
      std::vector<Index> i(rank);
      for (size_t a = 0; a < rank; ++a) i[static_cast<size_t>(perm[a])] = index[a];
      return at(x, i, guard);
    }
    case Op::broadcast: {
      std::vector<Index> i(index.end() - static_cast<std::ptrdiff_t>(rank), index.end());
      for (size_t a = 0; a < rank; ++a)
        if (s.is(shape[a], 1)) i[a] = zero;
      return at(x, i, guard);
    }
    case Op::squeeze: {
      const auto axes = graph::normalise_axes(n.attributes.get<std::vector<int64_t>>("axes"), rank);
      std::vector<Index> i;
      size_t next = 0;
      for (size_t a = 0; a < rank; ++a)
        i.push_back(std::binary_search(axes.begin(), axes.end(), static_cast<int64_t>(a)) ? zero : index[next++]);
      return at(x, i, guard);
    }
    case Op::unsqueeze: {
      const auto axes = graph::normalise_axes(n.attributes.get<std::vector<int64_t>>("axes"), index.size());
      std::vector<Index> i;
      for (size_t a = 0; a < index.size(); ++a)
        if (!std::binary_search(axes.begin(), axes.end(), static_cast<int64_t>(a))) i.push_back(index[a]);
      return at(x, i, guard);
    }
    case Op::slice: {
      const auto& axes = n.attributes.get<std::vector<int64_t>>("axes");
      const auto& starts = n.attributes.get<std::vector<Expr>>("starts");
      const auto steps = n.attributes.get_or("steps", std::vector<int64_t>(axes.size(), 1));
      std::vector<Index> i = index;
      for (size_t k = 0; k < axes.size(); ++k) {
        Index& e = i[axis_of(axes[k])];
        e = plus(times(e, steps[k]), starts[k]);
      }
      return at(x, i, guard);
    }
    case Op::flip: {
      std::vector<Index> i = index;
      for (int64_t a : n.attributes.get<std::vector<int64_t>>("axes")) {
        Index& e = i[axis_of(a)];
        e = plus(times(e, -1), s.sub(shape[axis_of(a)], s.constant(1)));
      }
      return at(x, i, guard);
    }
    case Op::pad: {
      const auto& low = n.attributes.get<std::vector<int64_t>>("low");
      std::vector<Index> i = index;
      NodeId test;
      for (size_t a = 0; a < rank; ++a) {
        i[a] = plus(i[a], s.constant(-low[a]));
        test = both(test, inside(i[a], s.constant(0), shape[a]));
      }
      const NodeId inner = at(x, i, both(guard, test));
      if (!test.valid()) return inner;
      return apply(Fn::where, {test, inner, literal(n.attributes.get_or("value", 0.0), dtype)});
    }
    case Op::concat: {
      const size_t a = axis_of(n.attributes.get<int64_t>("axis"));
      std::vector<std::pair<graph::ValueId, Expr>> parts;  // and where they begin
      Expr at_end = s.constant(0);
      for (graph::ValueId v : n.operands) {
        const Expr extent = graph_.type(v).shape[a];
        if (!s.is(extent, 0)) parts.emplace_back(v, at_end);
        at_end = s.add(at_end, extent);
      }
      if (parts.empty()) return literal(0, dtype);
      // Halves, so that many operands nest no deeper than their logarithm.
      const std::function<NodeId(size_t, size_t)> among = [&](size_t lo, size_t hi) {
        if (hi - lo == 1) {
          const auto& [v, begin] = parts[lo];
          std::vector<Index> i = index;
          i[a] = plus(i[a], s.mul(begin, -1));
          return at(v, i, both(guard, inside(i[a], s.constant(0), graph_.type(v).shape[a])));
        }
        const size_t mid = lo + (hi - lo) / 2;
        const NodeId test = inside(index[a], s.constant(0), parts[mid].second);
        const NodeId first = among(lo, mid);
        return test.valid() ? apply(Fn::where, {test, first, among(mid, hi)}) : first;
      };
      return among(0, parts.size());
    }
    case Op::split: {
      const size_t a = axis_of(n.attributes.get<int64_t>("axis"));
      const auto& sizes = n.attributes.get<std::vector<Expr>>("sizes");
      Expr begin = s.constant(0);
      for (int r = 0; r < result; ++r) begin = s.add(begin, sizes[static_cast<size_t>(r)]);
      std::vector<Index> i = index;
      i[a] = plus(i[a], begin);
      return at(x, i, guard);
    }
    case Op::window: {
      const auto& axes = n.attributes.get<std::vector<int64_t>>("axes");
      const std::vector<int64_t> ones(axes.size(), 1), zeros(axes.size(), 0);
      const auto strides = n.attributes.get_or("strides", ones), dilations = n.attributes.get_or("dilations", ones);
      const auto low = n.attributes.get_or("low", zeros);
      std::vector<Index> i(index.begin(), index.begin() + static_cast<std::ptrdiff_t>(rank));
      NodeId test;
      for (size_t k = 0; k < axes.size(); ++k) {
        const size_t a = axis_of(axes[k]);
        const Index position = times(i[a], strides[k]), offset = times(index[rank + k], dilations[k]);
        Index sum{s.add(position.affine, offset.affine), position.dynamic};
        if (offset.dynamic.valid())
          sum.dynamic = sum.dynamic.valid() ? apply(Fn::add, {sum.dynamic, offset.dynamic}) : offset.dynamic;
        i[a] = plus(sum, s.constant(-low[k]));
        test = both(test, inside(i[a], s.constant(0), shape[a]));
      }
      const NodeId inner = at(x, i, both(guard, test));
      if (!test.valid()) return inner;
      return apply(Fn::where, {test, inner, literal(n.attributes.get_or("value", 0.0), dtype)});
    }
    default: CHECK(false, "`{}` is no view", info(n.op).name);
  }
}

}  // namespace cleave::schedule
