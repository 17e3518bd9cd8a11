// Convolution and pooling: sliding windows, then a contraction or a reduction over them.
#include <algorithm>
#include <cmath>
#include <limits>

#include "frontend/onnx_maker.hpp"

namespace cleave::onnx_import {

using graph::IndexNames;
using graph::Op;
using graph::Shape;
using graph::ValueId;
using Ints = std::vector<int64_t>;

namespace {

constexpr int64_t kMaxKernel = 1 << 20;

// The windows of a node over the axes behind batch and channel.
struct Windows {
  Ints axes, sizes, strides, dilations, low, high;
  bool ceil = false;
  size_t rank() const { return axes.size(); }
};

// Reads kernel_shape, strides, dilations, pads and auto_pad. `kernel`: the extents where the attribute is missing.
Windows read_windows(Maker& m, size_t rank, const Shape& shape, std::optional<Ints> kernel) {
  NodeContext& c = m.context();
  Windows w;
  if (rank < 1 || shape.size() != rank + 2) {
    m.fail(fmt::format("its operand has {} axes, at least 3 are needed", shape.size()));
    return w;
  }
  const auto list = [&](const char* name, int64_t otherwise) {
    const Ints given = c.attribute_ints(name).value_or(Ints(rank, otherwise));
    if (given.size() != rank) m.fail(fmt::format("`{}` has {} entries for {} axes", name, given.size(), rank));
    for (const int64_t v : given)
      if (v < 1 || v > kMaxKernel) m.fail(fmt::format("`{}` has the entry {}", name, v));
    return m.ok() ? given : Ints(rank, 1);
  };
  w.axes = count_from(2, static_cast<int64_t>(rank) + 2);
  const auto given = c.attribute_ints("kernel_shape");
  if (!given && !kernel) m.fail("`kernel_shape` is missing");
  w.sizes = given || !kernel ? list("kernel_shape", 1) : *kernel;
  if (kernel && m.ok() && w.sizes != *kernel) m.fail("`kernel_shape` is not the shape of its weights");
  w.strides = list("strides", 1);
  w.dilations = list("dilations", 1);
  w.ceil = c.attribute_int("ceil_mode", 0) != 0;
  w.low.assign(rank, 0);
  w.high.assign(rank, 0);
  const std::string mode = c.attribute_text("auto_pad", "NOTSET");
  if (mode == "NOTSET") {
    const Ints pads = c.attribute_ints("pads").value_or(Ints(2 * rank, 0));
    if (pads.size() != 2 * rank) {
      m.fail(fmt::format("`pads` has {} entries for {} axes", pads.size(), rank));
      return w;
    }
    for (const int64_t p : pads)
      if (p < 0 || p > kMaxKernel) m.fail(fmt::format("`pads` has the entry {}", p));
    if (!m.ok()) return w;
    w.low.assign(pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(rank));
    w.high.assign(pads.begin() + static_cast<std::ptrdiff_t>(rank), pads.end());
  } else if (mode == "SAME_UPPER" || mode == "SAME_LOWER") {
    for (size_t i = 0; i < rank && m.ok(); ++i) {
      // ceil(n / stride) positions; with a stride of 1 the padding does not depend on n.
      const int64_t reach = w.dilations[i] * (w.sizes[i] - 1) + 1;
      int64_t total = reach - 1;
      if (w.strides[i] != 1) {
        const int64_t n = m.constant(shape[i + 2], "an axis that is padded to keep its extent");
        total = std::max<int64_t>(0, ((n + w.strides[i] - 1) / w.strides[i] - 1) * w.strides[i] + reach - n);
      }
      w.low[i] = mode == "SAME_UPPER" ? total / 2 : total - total / 2;
      w.high[i] = total - w.low[i];
    }
  } else if (mode != "VALID") {
    m.fail(fmt::format("the padding `{}` is not known", shown(mode)));
  }
  return w;
}

ValueId window(Maker& m, ValueId x, const Windows& w, double value) {
  return m.make(Op::window, {x},
                {{"axes", w.axes},
                 {"sizes", w.sizes},
                 {"strides", w.strides},
                 {"dilations", w.dilations},
                 {"low", w.low},
                 {"high", w.high},
                 {"ceil", w.ceil},
                 {"value", value}});
}

IndexNames numbered(const char* stem, size_t count) {
  IndexNames out;
  for (size_t i = 0; i < count; ++i) out.push_back(fmt::format("{}{}", stem, i));
  return out;
}
IndexNames join(std::initializer_list<IndexNames> lists) {
  IndexNames out;
  for (const IndexNames& l : lists) out.insert(out.end(), l.begin(), l.end());
  return out;
}

// [n, g c', p.., k..] with [g m', c', k..] -> [n, g m', p..]
ValueId convolve(Maker& m, ValueId windows, ValueId weights, int64_t groups, size_t rank) {
  NodeContext& c = m.context();
  const Shape from = m.shape(windows), w = m.shape(weights);
  if (!m.ok()) return {};
  const sym::Expr g = m.extent(groups);
  const IndexNames p = numbered("p", rank), k = numbered("k", rank);
  if (groups == 1)
    return m.contract(windows, join({{"n", "c"}, p, k}), weights, join({{"m", "c"}, k}), join({{"n", "m"}, p}));
  Shape apart{from[0], g, w[1]}, filters{g, c.syms().floordiv(w[0], g)};
  apart.insert(apart.end(), from.begin() + 2, from.end());
  filters.insert(filters.end(), w.begin() + 1, w.end());
  const ValueId y = m.contract(m.reshape(windows, apart), join({{"n", "g", "c"}, p, k}), m.reshape(weights, filters),
                               join({{"g", "m", "c"}, k}), join({{"n", "g", "m"}, p}));
  if (!m.ok()) return {};
  Shape shape = m.shape(y);
  shape[1] = w[0];
  shape.erase(shape.begin() + 2);
  return m.reshape(y, shape);
}

ValueId add_bias(Maker& m, ValueId y, size_t operand, size_t rank) {
  if (!m.context().has(operand)) return y;
  return m.add(y, m.unsqueeze(m.in(operand), count_from(1, static_cast<int64_t>(rank) + 1)));
}

// Checks of the weights [m, c / groups, k..]; their spatial extents.
Ints kernel_of(Maker& m, const Shape& x, const Shape& w, int64_t groups, size_t in_axis) {
  NodeContext& c = m.context();
  if (!m.ok() || x.size() < 3 || w.size() != x.size()) {
    m.fail(fmt::format("operands of {} and {} axes cannot be convolved", x.size(), w.size()));
    return {};
  }
  const sym::Expr own = in_axis == 1 ? c.syms().mul(w[1], groups) : w[0];
  if (groups < 1 || c.syms().equal(own, x[1]) != sym::Proof::yes || c.syms().divides(groups, w[0]) != sym::Proof::yes)
    m.fail(fmt::format("{} channels, {} groups and weights {} do not fit", shown(c.syms().print(x[1])), groups,
                       print_shape(c.syms(), w)));
  Ints sizes;
  for (size_t i = 2; i < w.size(); ++i) {
    sizes.push_back(m.constant(w[i], "the kernel's extent"));
    if (m.ok() && (sizes.back() < 1 || sizes.back() > kMaxKernel)) m.fail("its kernel has an empty axis");
  }
  const auto given = c.attribute_ints("kernel_shape");
  if (given && *given != sizes) m.fail("`kernel_shape` is not the shape of its weights");
  return sizes;
}

Result<Values> convolution(Maker& m, ValueId x, ValueId w, size_t bias) {
  NodeContext& c = m.context();
  const int64_t groups = c.attribute_int("group", 1);
  const Ints kernel = kernel_of(m, m.shape(x), m.shape(w), groups, 1);
  if (!m.ok()) return m.done({});
  const size_t rank = kernel.size();
  const Windows windows = read_windows(m, rank, m.shape(x), kernel);
  const ValueId y = convolve(m, window(m, x, windows, 0), w, groups, rank);
  return m.done({add_bias(m, y, bias, rank)});
}

}  // namespace

Result<Values> import_conv(NodeContext& c) {
  Maker m(c);
  const ValueId x = m.in(0), w = m.in(1);
  return convolution(m, x, w, 2);
}

// The transposed convolution is one over an operand with zeros between its elements, by the flipped weights.
Result<Values> import_conv_transpose(NodeContext& c) {
  Maker m(c);
  ValueId x = m.in(0), w = m.in(1);
  const int64_t groups = c.attribute_int("group", 1);
  const Ints kernel = kernel_of(m, m.shape(x), m.shape(w), groups, 0);
  if (!m.ok()) return m.done({});
  const size_t rank = kernel.size();
  const Shape shape = m.shape(x), weights = m.shape(w);
  const std::string mode = c.attribute_text("auto_pad", "NOTSET");
  const auto list = [&](const char* name, int64_t otherwise, size_t entries) {
    Ints given = c.attribute_ints(name).value_or(Ints(entries, otherwise));
    if (given.size() != entries) {
      m.fail(fmt::format("`{}` has {} entries, {} are needed", name, given.size(), entries));
      given.assign(entries, otherwise);
    }
    for (int64_t& v : given)
      if (v < otherwise || v > kMaxKernel) m.fail(fmt::format("`{}` has the entry {}", name, v));
    return given;
  };
  const Ints strides = list("strides", 1, rank), dilations = list("dilations", 1, rank);
  const Ints extra = list("output_padding", 0, rank);
  Ints pads = mode == "NOTSET" ? list("pads", 0, 2 * rank) : Ints(2 * rank, 0);
  const auto wanted = c.attribute_ints("output_shape");
  if (wanted && wanted->size() != rank) m.fail("`output_shape` has another number of axes");
  if (mode != "NOTSET" && mode != "VALID" && mode != "SAME_UPPER" && mode != "SAME_LOWER")
    m.fail(fmt::format("the padding `{}` is not known", shown(mode)));
  if (!m.ok()) return m.done({});
  if (wanted || mode.starts_with("SAME")) {
    for (size_t i = 0; i < rank && m.ok(); ++i) {
      const int64_t n = m.constant(shape[i + 2], "an axis whose result has a given extent");
      const int64_t out = wanted ? (*wanted)[i] : n * strides[i];
      const int64_t total = strides[i] * (n - 1) + extra[i] + (kernel[i] - 1) * dilations[i] + 1 - out;
      const int64_t half = total / 2, rest = total - half;
      pads[i] = mode == "SAME_UPPER" ? half : rest;
      pads[i + rank] = total - pads[i];
      if (wanted && mode == "NOTSET") {
        pads[i] = half;
        pads[i + rank] = rest;
      }
    }
  }
  // Zeros between the elements: [.., n] -> [.., n, 1] -> [.., n, s] -> [.., n s]. The last s - 1 go where zeros are
  // added around them: an extent in between would be negative where n is 0.
  for (size_t i = 0; i < rank && m.ok(); ++i) {
    if (strides[i] == 1) continue;
    const int64_t axis = static_cast<int64_t>(i) + 2;
    Shape flat = m.shape(x);
    ValueId apart = m.unsqueeze(x, {axis + 1});
    Ints low(flat.size() + 1, 0), high(flat.size() + 1, 0);
    high[i + 3] = strides[i] - 1;
    apart = m.pad(apart, low, high);
    flat[i + 2] = c.syms().mul(flat[i + 2], strides[i]);
    x = m.reshape(apart, flat);
  }
  Ints low(rank + 2, 0), high(rank + 2, 0);
  for (size_t i = 0; i < rank; ++i) {
    const int64_t reach = dilations[i] * (kernel[i] - 1);
    low[i + 2] = reach - pads[i];
    high[i + 2] = reach - pads[i + rank] + extra[i] - (strides[i] - 1);
  }
  x = m.pad(x, low, high);
  // [c, m / g, k..] -> [m, c / g, k..], flipped.
  w = m.flip(w, count_from(2, static_cast<int64_t>(rank) + 2));
  Ints perm = count_from(0, static_cast<int64_t>(rank) + 3);
  std::swap(perm[1], perm[2]);
  const sym::Expr g = m.extent(groups), per = c.syms().floordiv(weights[0], g);
  Shape apart{g, per}, joined{c.syms().mul(weights[1], groups), per};
  apart.insert(apart.end(), weights.begin() + 1, weights.end());
  joined.insert(joined.end(), weights.begin() + 2, weights.end());
  w = m.reshape(m.transpose(m.reshape(w, apart), perm), joined);
  Windows windows;
  windows.axes = count_from(2, static_cast<int64_t>(rank) + 2);
  windows.sizes = kernel;
  windows.strides.assign(rank, 1);
  windows.dilations = dilations;
  windows.low.assign(rank, 0);
  windows.high.assign(rank, 0);
  const ValueId y = convolve(m, window(m, x, windows, 0), w, groups, rank);
  return m.done({add_bias(m, y, 2, rank)});
}

namespace {

// How many elements of each window count: of the operand, or of the padded operand.
ValueId window_counts(Maker& m, const Windows& w, const Shape& shape, DType dtype, bool with_padding) {
  ValueId counts = m.number(1, dtype);
  for (size_t i = 0; i < w.rank() && m.ok(); ++i) {
    Windows one{{0}, {w.sizes[i]}, {w.strides[i]}, {w.dilations[i]}, {w.low[i]}, {w.high[i]}, w.ceil};
    ValueId ones = m.broadcast(m.number(1, dtype), {shape[i + 2]});
    if (with_padding) {
      // Padding counts, what the rounding up adds behind it does not.
      const auto& syms = m.context().syms();
      (void)syms;
      const ValueId padded = m.pad(ones, one.low, one.high, 1);
      Windows inside = one;
      inside.low = inside.high = {0};
      if (one.ceil) {
        // Rounding up looks at the padded extent minus the high padding; positions come from the unpadded form.
        const ValueId positions = window(m, ones, one, 0);
        if (!m.ok()) return counts;
        const int64_t p = m.constant(m.shape(positions)[0], "the number of windows");
        const int64_t n = m.constant(m.shape(padded)[0], "a padded axis");
        std::vector<double> table;
        for (int64_t at = 0; at < p; ++at) {
          int64_t count = 0;
          for (int64_t k = 0; k < one.sizes[0]; ++k) count += at * one.strides[0] + k * one.dilations[0] < n;
          table.push_back(static_cast<double>(count));
        }
        ones = m.table("counts", dtype, {p}, table);
      } else {
        ones = m.sum(window(m, padded, inside, 0), {1});
      }
    } else {
      ones = m.sum(window(m, ones, one, 0), {1});
    }
    const ValueId apart = m.unsqueeze(ones, count_from(1, static_cast<int64_t>(w.rank() - i)));
    counts = i == 0 ? apart : m.mul(counts, apart);
  }
  return counts;
}

Ints window_axes(const Windows& w) {
  const int64_t rank = static_cast<int64_t>(w.rank());
  return count_from(rank + 2, 2 * rank + 2);
}

double least(DType dtype) {
  if (is_real(dtype)) return -std::numeric_limits<double>::infinity();
  return std::max(static_cast<double>(least_integer(dtype)), -0x1p62);
}

}  // namespace

Result<Values> import_average_pool(NodeContext& c) {
  Maker m(c);
  const ValueId x = m.in(0);
  if (!m.ok()) return m.done({});
  const Shape shape = m.shape(x);
  const Windows w = read_windows(m, shape.size() < 3 ? 0 : shape.size() - 2, shape, std::nullopt);
  if (!m.ok()) return m.done({});
  const ValueId total = m.sum(window(m, x, w, 0), window_axes(w));
  const bool padding = c.attribute_int("count_include_pad", 0) != 0;
  return m.done({m.div(total, window_counts(m, w, shape, m.dtype(x), padding))});
}

Result<Values> import_lp_pool(NodeContext& c) {
  Maker m(c);
  const ValueId x = m.in(0);
  if (!m.ok()) return m.done({});
  const Shape shape = m.shape(x);
  const Windows w = read_windows(m, shape.size() < 3 ? 0 : shape.size() - 2, shape, std::nullopt);
  const double p = static_cast<double>(c.attribute_int("p", 2));
  if (p < 1) m.fail("`p` has to be positive");
  const ValueId powers = m.pow(m.fn(Fn::abs, {x}), p);
  return m.done({m.pow(m.sum(window(m, powers, w, 0), window_axes(w)), 1 / p)});
}

// The second result: where each maximum lies, counted over the whole operand.
Result<Values> import_max_pool(NodeContext& c) {
  Maker m(c);
  const ValueId x = m.in(0);
  if (!m.ok()) return m.done({});
  const Shape shape = m.shape(x);
  const Windows w = read_windows(m, shape.size() < 3 ? 0 : shape.size() - 2, shape, std::nullopt);
  if (!m.ok()) return m.done({});
  const ValueId windows = window(m, x, w, least(m.dtype(x)));
  const ValueId y = m.reduce(Op::amax, windows, window_axes(w));
  if (!c.wants(1)) return m.done({y});
  const int64_t rank = static_cast<int64_t>(w.rank());
  int64_t size = 1;
  for (const int64_t s : w.sizes) size *= s;
  if (!m.ok()) return m.done({});
  Shape flat(m.shape(windows).begin(), m.shape(windows).begin() + 2 + rank);
  flat.push_back(m.extent(size));
  const ValueId which = m.make(Op::argmax, {m.reshape(windows, flat)}, {{"axis", rank + 2}, {"keepdims", false}});
  // The flat position in a window -> positions of the axes -> the flat position in the operand.
  const Shape out = m.shape(which);
  if (!m.ok()) return m.done({});
  const bool by_columns = c.attribute_int("storage_order", 0) != 0;
  ValueId rest = which, position = m.number(0, DType::i64);
  std::vector<ValueId> places(w.rank());
  for (size_t i = w.rank(); i-- > 0;) {
    const ValueId k = m.fn(Fn::mod, {rest, m.number(static_cast<double>(w.sizes[i]), DType::i64)});
    rest = m.fn(Fn::floordiv, {rest, m.number(static_cast<double>(w.sizes[i]), DType::i64)});
    const ValueId start = m.add(m.mul(m.iota(out, static_cast<int64_t>(i) + 2, DType::i64), double(w.strides[i])),
                                static_cast<double>(-w.low[i]));
    places[i] = m.add(start, m.mul(k, static_cast<double>(w.dilations[i])));
  }
  const auto advance = [&](size_t i) {
    position = m.add(m.mul(position, m.extent_value(shape[i + 2], DType::i64)), places[i]);
  };
  for (size_t i = 0; i < w.rank(); ++i) advance(by_columns ? w.rank() - 1 - i : i);
  const sym::Expr image = c.syms().product(std::span(shape).subspan(2));
  const ValueId channel =
      m.add(m.mul(m.iota(out, 0, DType::i64), m.extent_value(shape[1], DType::i64)), m.iota(out, 1, DType::i64));
  return m.done({y, m.add(m.mul(channel, m.extent_value(image, DType::i64)), position)});
}

// GlobalAveragePool, GlobalMaxPool, GlobalLpPool: over all axes behind the channels, which stay with extent 1.
Result<Values> import_global_pool(NodeContext& c) {
  Maker m(c);
  const ValueId x = m.in(0);
  const size_t rank = m.rank(x);
  if (m.ok() && rank < 3) m.fail("its operand has no axes behind the channels");
  const Ints axes = count_from(2, static_cast<int64_t>(rank));
  const std::string& name = c.node().op_type();
  if (name == "GlobalMaxPool") return m.done({m.reduce(Op::amax, x, axes, true)});
  if (name == "GlobalAveragePool") return m.done({m.reduce(Op::mean, x, axes, true)});
  const double p = static_cast<double>(c.attribute_int("p", 2));
  return m.done({m.pow(m.sum(m.pow(m.fn(Fn::abs, {x}), p), axes, true), 1 / p)});
}

// x / (bias + alpha / size * sum of squares over the neighbouring channels)^beta
Result<Values> import_lrn(NodeContext& c) {
  Maker m(c);
  const ValueId x = m.in(0);
  const int64_t size = c.attribute_int("size", 0);
  if (size < 1 || size > kMaxKernel) m.fail("`size` has to be positive");
  if (m.ok() && m.rank(x) < 2) m.fail("its operand has no channel axis");
  const double alpha = c.attribute_real("alpha", static_cast<double>(1e-4f)), beta = c.attribute_real("beta", 0.75);
  Windows w{{1}, {size}, {1}, {1}, {(size - 1) / 2}, {size / 2}, false};
  const ValueId near = window(m, m.fn(Fn::square, {x}), w, 0);
  const ValueId total = m.sum(near, {static_cast<int64_t>(m.rank(x))});
  const ValueId base = m.add(m.mul(total, alpha / static_cast<double>(size)), c.attribute_real("bias", 1));
  return m.done({m.div(x, m.pow(base, beta))});
}

// Integer products: (x - x_zero) convolved or multiplied with (w - w_zero), exact in i32.
namespace {

// x - zero in i32; `axis`: where the zero points of a list lie.
ValueId centred(Maker& m, size_t operand, size_t zero, int64_t axis) {
  ValueId x = m.cast(m.in(operand), DType::i32);
  if (!m.context().has(zero)) return x;
  ValueId z = m.cast(m.in(zero), DType::i32);
  if (m.ok() && m.rank(z) == 1) {
    const int64_t rank = static_cast<int64_t>(m.rank(x)), at = axis < 0 ? axis + rank : axis;
    z = m.context().syms().is(m.shape(z)[0], 1) ? m.squeeze(z, {0}) : m.unsqueeze(z, count_from(1, rank - at));
  }
  return m.sub(x, z);
}

}  // namespace

Result<Values> import_conv_integer(NodeContext& c) {
  Maker m(c);
  const ValueId x = centred(m, 0, 2, 0), w = centred(m, 1, 3, 0);
  return convolution(m, x, w, 1000);
}

Result<Values> import_matmul_integer(NodeContext& c) {
  Maker m(c);
  const ValueId a = centred(m, 0, 2, -2), b = centred(m, 1, 3, -1);
  if (!m.ok()) return m.done({});
  OnnxValue left = c.wrap(a), right = c.wrap(b);
  NodeContext product(c.builder(), c.node(), c.opset(), {&left, &right});
  return import_matmul(product);
}

}  // namespace cleave::onnx_import
