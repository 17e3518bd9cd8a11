// The primitive operators on dense arrays, in plain loops. Inside the room: graph_eval and bounds are made of these.
//
// Operators that only move elements are templates over the element, because a bound moves with its value.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "eval/strided.hpp"
#include "eval/tensor.hpp"
#include "graph/graph.hpp"
#include "graph/spec.hpp"

namespace cleave::oracle {

using Extents = std::vector<int64_t>;

// A node with its shapes as numbers.
struct Site {
  const graph::Graph& graph;
  const graph::Node& node;
  std::vector<Extents> in;
  std::vector<Extents> out;

  Site(const graph::Graph& graph, const graph::Node& node);
  DType dtype(size_t result = 0) const { return graph.type(node.results[result]).dtype; }
  int64_t axis() const;                                 // the attribute `axis`, non-negative
  std::vector<bool> reduced() const;                    // the axes that a reduction removes
  Extents constants(std::string_view attribute) const;  // an attribute of extents, as numbers
  Extents list(std::string_view attribute, int64_t otherwise, size_t count) const;  // an optional attribute of ints
};

// Element (o, k, i) of an array seen along one axis lies at (o * n + k) * inner + i.
struct Lanes {
  int64_t outer = 1, n = 1, inner = 1;
  Lanes(const Extents& extents, int64_t axis) {
    for (size_t a = 0; a < extents.size(); ++a) {
      const int64_t e = extents[a];
      if (static_cast<int64_t>(a) < axis)
        outer *= e;
      else if (static_cast<int64_t>(a) == axis)
        n = e;
      else
        inner *= e;
    }
  }
  int64_t at(int64_t o, int64_t k, int64_t i) const { return (o * n + k) * inner + i; }
};

// Calls step(out, in) for every input element in row-major order.
template <class Step>
void for_each_reduced(const Extents& extents, const std::vector<bool>& reduced, Step step) {
  Extents out_strides(extents.size(), 0);
  int64_t s = 1;
  for (size_t i = extents.size(); i-- > 0;)
    if (!reduced[i]) {
      out_strides[i] = s;
      s *= extents[i];
    }
  const Extents in_strides = dense_strides(extents);
  for_each_run<2>(extents, {out_strides, in_strides}, [&](auto at, auto by, int64_t count) {
    for (int64_t k = 0; k < count; ++k)
      step(static_cast<size_t>(at[0] + k * by[0]), static_cast<size_t>(at[1] + k * by[1]));
  });
}

// A contraction prepared for its extents: indices of both operands become batches, those of one operand rows or
// columns; what only one operand has and the result lacks is summed first.
class ContractPlan {
 public:
  ContractPlan(const graph::ContractSpec& spec, const Extents& a, const Extents& b, const Extents& out);
  std::vector<double> run(std::span<const double> a, std::span<const double> b) const;
  std::vector<int64_t> run(std::span<const int64_t> a, std::span<const int64_t> b) const;  // wraps at 64 bits
  double multiplications() const;
  double terms() const;  // how many products one result sums

 private:
  struct Index {
    int64_t extent;
    int64_t a, b, out;  // strides; 0 where the operand lacks the index
  };
  template <class T>
  std::vector<T> run_as(std::span<const T> a, std::span<const T> b) const;

  std::vector<Index> batch_, rows_, columns_, summed_;
  int64_t elements_ = 1;
  bool empty_sum_ = false;
  double terms_ = 1;
};

Tensor apply_elementwise(Fn fn, std::span<const Tensor* const> in, DType dtype, const Extents& extents);
Tensor apply_cast(const Tensor& x, DType to);
std::vector<Tensor> apply_reduce(const Site& site, const Tensor& x);
Tensor apply_scan(const Site& site, const Tensor& x);
std::vector<Tensor> apply_select(const Site& site, const Tensor& x);
Tensor apply_leaf(const Site& site);  // literal, extent, iota, const

// The order of topk over one lane: positions 0..n-1, NaN counted as the largest, ties by position.
void order_lane(const Tensor& x, const Lanes& lanes, int64_t o, int64_t i, bool largest,
                std::vector<int64_t>& positions);

// All results of a primitive operator. Reals are not rounded, except where the operator itself rounds (cast, leaves).
std::vector<Tensor> apply_primitive(const Site& site, std::span<const Tensor* const> in);
// How many elementary steps apply_primitive() takes, about.
double work_of(const Site& site);

// The position that an index means on an axis of n > 0 elements: negative ones count from the end, the rest is clamped.
inline int64_t gather_position(int64_t index, int64_t n) {
  if (index < 0) index += n;
  return std::clamp<int64_t>(index, 0, n - 1);
}

// Operators that move elements. `fill` is what padding reads (the attribute `value` for values).
template <class T>
std::vector<T> copy_strided(const std::vector<T>& from, int64_t first, std::span<const int64_t> strides,
                            const Extents& extents) {
  std::vector<T> out(static_cast<size_t>(product(extents)));
  size_t next = 0;
  for_each_run<1>(extents, {strides}, [&](auto at, auto by, int64_t count) {
    for (int64_t k = 0; k < count; ++k) out[next++] = from[static_cast<size_t>(first + at[0] + k * by[0])];
  });
  return out;
}

// Writes `from` (dense, `extents`) into a part of `to`.
template <class T>
void paste(std::vector<T>& to, int64_t first, std::span<const int64_t> strides, const std::vector<T>& from,
           const Extents& extents) {
  size_t next = 0;
  for_each_run<1>(extents, {strides}, [&](auto at, auto by, int64_t count) {
    for (int64_t k = 0; k < count; ++k) to[static_cast<size_t>(first + at[0] + k * by[0])] = from[next++];
  });
}

// low and high may be negative: then elements are cut off.
template <class T>
std::vector<T> pad_array(const std::vector<T>& x, const Extents& extents, const Extents& low, const Extents& high,
                         T fill) {
  Extents whole, part, take_from;
  int64_t first_from = 0, first_to = 0;
  for (size_t i = 0; i < extents.size(); ++i) whole.push_back(extents[i] + low[i] + high[i]);
  const Extents from = dense_strides(extents), to = dense_strides(whole);
  for (size_t i = 0; i < extents.size(); ++i) {
    const int64_t begin = std::max<int64_t>(0, -low[i]), end = std::min(extents[i], extents[i] + high[i]);
    part.push_back(std::max<int64_t>(0, end - begin));
    first_from += begin * from[i];
    first_to += std::max<int64_t>(0, low[i]) * to[i];
  }
  std::vector<T> out(static_cast<size_t>(product(whole)), fill);
  if (product(part) > 0) paste(out, first_to, to, copy_strided(x, first_from, from, part), part);
  return out;
}

// Element [.., p, .., k] of a window is element p * stride + k * dilation - low of its axis, or the fill.
template <class T>
std::vector<T> apply_window(const Site& site, const std::vector<T>& x, T fill) {
  const Extents &from = site.in[0], &to = site.out[0], strides = dense_strides(from);
  const auto& axes = site.node.attributes.get<std::vector<int64_t>>("axes");
  const size_t rank = from.size(), n = axes.size();
  const Extents step = site.list("strides", 1, n), dilation = site.list("dilations", 1, n),
                low = site.list("low", 0, n);
  std::vector<int> window_of(rank, -1);
  for (size_t i = 0; i < n; ++i)
    window_of[static_cast<size_t>(axes[i] < 0 ? axes[i] + static_cast<int64_t>(rank) : axes[i])] = static_cast<int>(i);
  std::vector<T> out(static_cast<size_t>(product(to)), fill);
  Extents index(to.size(), 0);
  for (T& element : out) {
    int64_t offset = 0;
    bool inside = true;
    for (size_t a = 0; a < rank && inside; ++a) {
      int64_t at = index[a];
      if (const int w = window_of[a]; w >= 0) {
        const auto i = static_cast<size_t>(w);
        at = at * step[i] + index[rank + i] * dilation[i] - low[i];
        inside = at >= 0 && at < from[a];
      }
      offset += at * strides[a];
    }
    if (inside) element = x[static_cast<size_t>(offset)];
    for (size_t a = to.size(); a-- > 0;) {
      if (++index[a] < to[a]) break;
      index[a] = 0;
    }
  }
  return out;
}

template <class T>
std::vector<std::vector<T>> apply_view(const Site& site, std::span<const std::vector<T>* const> in, T fill) {
  using graph::Op;
  const std::vector<T>& x = *in[0];
  const Extents &from = site.in[0], &to = site.out[0];
  const size_t rank = from.size();
  Extents strides = dense_strides(from);
  const auto& attributes = site.node.attributes;
  auto position = [&](int64_t a, size_t r) { return static_cast<size_t>(a < 0 ? a + static_cast<int64_t>(r) : a); };
  switch (site.node.op) {
    case Op::reshape:
    case Op::squeeze:
    case Op::unsqueeze: return {x};
    case Op::transpose: {
      Extents s;
      for (int64_t p : attributes.get<std::vector<int64_t>>("perm")) s.push_back(strides[static_cast<size_t>(p)]);
      return {copy_strided(x, 0, s, to)};
    }
    case Op::broadcast: return {copy_strided(x, 0, broadcast_strides(from, to), to)};
    case Op::slice: {
      const auto& axes = attributes.get<std::vector<int64_t>>("axes");
      const Extents starts = site.constants("starts"), steps = site.list("steps", 1, axes.size());
      int64_t first = 0;
      for (size_t i = 0; i < axes.size(); ++i) {
        const size_t a = position(axes[i], rank);
        first += starts[i] * strides[a];
        if (to[a] > 1) strides[a] *= steps[i];
      }
      if (product(to) == 0) return {{}};
      return {copy_strided(x, first, strides, to)};
    }
    case Op::flip: {
      int64_t first = 0;
      for (int64_t axis : attributes.get<std::vector<int64_t>>("axes")) {
        const size_t a = position(axis, rank);
        first += (from[a] - 1) * strides[a];
        strides[a] = -strides[a];
      }
      return {copy_strided(x, first, strides, to)};
    }
    case Op::pad: {
      return {pad_array(x, from, attributes.get<std::vector<int64_t>>("low"),
                        attributes.get<std::vector<int64_t>>("high"), fill)};
    }
    case Op::concat: {
      const auto axis = static_cast<size_t>(site.axis());
      const Extents whole = dense_strides(to);
      std::vector<T> out(static_cast<size_t>(product(to)));
      int64_t first = 0;
      for (size_t i = 0; i < in.size(); ++i) {
        paste(out, first, whole, *in[i], site.in[i]);
        first += site.in[i][axis] * whole[axis];
      }
      return {std::move(out)};
    }
    case Op::split: {
      const auto axis = static_cast<size_t>(site.axis());
      std::vector<std::vector<T>> out;
      int64_t first = 0;
      for (const Extents& part : site.out) {
        out.push_back(copy_strided(x, first, strides, part));
        first += part[axis] * strides[axis];
      }
      return out;
    }
    case Op::window: return {apply_window(site, x, fill)};
    default: CHECK(false, "{}", info(site.node.op).name);
  }
}

template <class T>
std::vector<T> apply_gather(const Site& site, const std::vector<T>& x, const std::vector<int64_t>& indices) {
  const Lanes lanes(site.in[0], site.axis());
  std::vector<T> out(static_cast<size_t>(product(site.out[0])));
  if (lanes.n == 0) return out;  // nothing to read: 0
  size_t next = 0;
  for (int64_t o = 0; o < lanes.outer; ++o)
    for (int64_t index : indices) {
      const int64_t k = gather_position(index, lanes.n);
      for (int64_t i = 0; i < lanes.inner; ++i) out[next++] = x[static_cast<size_t>(lanes.at(o, k, i))];
    }
  return out;
}

}  // namespace cleave::oracle
