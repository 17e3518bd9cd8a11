// Fourier transforms as products with tables of cosines and sines, and the windows that go with them.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "frontend/onnx_maker.hpp"
#include "frontend/onnx_tensor.hpp"

namespace cleave::onnx_import {

using graph::IndexNames;
using graph::Op;
using graph::Shape;
using graph::ValueId;
using Ints = std::vector<int64_t>;

namespace {

constexpr int64_t kMaxLength = 8192;

// x [.., n, 1 or 2] along `axis` -> [.., bins, 2]: sums over n of x exp(-+ 2 pi i k n / length).
ValueId transform(Maker& m, ValueId x, int64_t axis, int64_t length, bool inverse, bool onesided) {
  if (!m.ok()) return {};
  const int64_t rank = static_cast<int64_t>(m.rank(x));
  const auto& syms = m.context().syms();
  const bool complex = syms.is(m.shape(x).back(), 2);
  if (!complex && !syms.is(m.shape(x).back(), 1)) m.fail("its last axis holds neither one nor two numbers");
  if (onesided && complex != inverse)
    m.fail(inverse ? "the inverse of half a spectrum needs complex numbers"
                   : "half a spectrum is that of real numbers");
  int64_t n = m.constant(m.shape(x)[static_cast<size_t>(axis)], "the axis of the transform");
  if (m.ok() && (length < 1 || length > kMaxLength))
    m.fail(fmt::format("a transform of {} elements is not supported, the most are {}", length, kMaxLength));
  if (!m.ok()) return {};
  const bool halved = inverse && onesided;  // n bins stand for all of them: the others are their conjugates
  const int64_t used = std::min(n, halved ? length / 2 + 1 : length);
  if (used < n) x = m.slice(x, axis, 0, used);
  n = used;
  const int64_t bins = onesided && !inverse ? length / 2 + 1 : length;
  const double sign = inverse ? 1 : -1, scale = inverse ? 1 / static_cast<double>(length) : 1;
  const DType dtype = m.dtype(x);
  // The weight of element j, part p in bin k, part q.
  const int64_t parts = complex ? 2 : 1, results = halved ? 1 : 2;
  std::vector<double> table;
  for (int64_t j = 0; j < n; ++j)
    for (int64_t p = 0; p < parts; ++p)
      for (int64_t k = 0; k < bins; ++k)
        for (int64_t q = 0; q < results; ++q) {
          const double angle =
              sign * 2 * std::numbers::pi * static_cast<double>((j * k) % length) / static_cast<double>(length);
          double w = p == q ? std::cos(angle) : p == 1 ? -std::sin(angle) : std::sin(angle);
          if (halved && j != 0 && 2 * j != length) w *= 2;
          table.push_back(w * scale);
        }
  IndexNames names, result;
  for (int64_t i = 0; i + 1 < rank; ++i) {
    names.push_back(i == axis ? "j" : fmt::format("a{}", i));
    result.push_back(i == axis ? "k" : fmt::format("a{}", i));
  }
  names.push_back("p");
  result.push_back("q");
  return m.contract(x, names, m.table("waves", dtype, {n, parts, bins, results}, table), {"j", "p", "k", "q"}, result);
}

}  // namespace

Result<Values> import_dft(NodeContext& c) {
  Maker m(c);
  const ValueId x = m.in(0);
  if (!m.ok()) return m.done({});
  int64_t axis = 0;
  if (c.opset() < 20) {
    axis = c.attribute_int("axis", 1);
  } else if (c.has(2)) {
    const Ints given = m.of(c.ints(2, "axis"));
    axis = m.ok() && given.size() == 1 ? given[0] : 0;
  } else {
    axis = -2;
  }
  axis = m.of(c.axis(axis, m.rank(x)));
  if (m.ok() && axis + 1 == static_cast<int64_t>(m.rank(x))) m.fail("the last axis cannot be transformed");
  if (!m.ok()) return m.done({});
  const bool inverse = c.attribute_int("inverse", 0) != 0, onesided = c.attribute_int("onesided", 0) != 0;
  int64_t length = 0;
  if (c.has(1)) {
    const Ints given = m.of(c.ints(1, "length"));
    if (m.ok() && given.size() != 1) m.fail("its length is no scalar");
    length = m.ok() ? given[0] : 1;
  } else {
    length = m.constant(m.shape(x)[static_cast<size_t>(axis)], "the axis of the transform");
    if (inverse && onesided) length = 2 * (length - 1);
  }
  return m.done({transform(m, x, axis, length, inverse, onesided)});
}

// Frames of the signal [b, n, 1 or 2], each times the window and transformed: [b, frames, bins, 2].
Result<Values> import_stft(NodeContext& c) {
  Maker m(c);
  ValueId x = m.in(0);
  const Ints step = m.of(c.ints(1, "step"));
  if (!m.ok()) return m.done({});
  Shape shape = m.shape(x);
  if (shape.size() == 2) {
    x = m.unsqueeze(x, {2});
    shape = m.shape(x);
  }
  if (shape.size() != 3 || step.size() != 1 || step[0] < 1 || step[0] > kMaxLength) m.fail("its operands do not fit");
  int64_t length = 0;
  if (c.has(3)) {
    const Ints given = m.of(c.ints(3, "frame length"));
    length = m.ok() && given.size() == 1 ? given[0] : 0;
  } else if (c.has(2)) {
    length = c.in(2).shape.size() == 1 ? m.constant(c.in(2).shape[0], "the window's length") : 0;
  }
  if (m.ok() && (length < 1 || length > kMaxLength))
    m.fail(fmt::format("frames of {} elements are not supported", length));
  if (!m.ok()) return m.done({});
  // [b, n, p] -> [b, frames, p, length] -> [b, frames, length, p]
  ValueId frames = m.make(Op::window, {x}, {{"axes", Ints{1}}, {"sizes", Ints{length}}, {"strides", step}});
  frames = m.transpose(frames, {0, 1, 3, 2});
  if (c.has(2)) frames = m.mul(frames, m.unsqueeze(m.in(2), {1}));
  return m.done({transform(m, frames, 2, length, false, c.attribute_int("onesided", 1) != 0)});
}

// Hann, Hamming and Blackman windows of a length that is known: sums of cosines.
Result<Values> import_signal_window(NodeContext& c) {
  Maker m(c);
  const Ints size = m.of(c.ints(0, "size"));
  if (!m.ok()) return m.done({});
  if (size.size() != 1 || size[0] < 0 || size[0] > (1 << 24)) return c.error("its size is no length");
  const int64_t type = c.attribute_int("output_datatype", 1);
  const auto dtype = dtype_of(static_cast<int>(std::clamp<int64_t>(type, -1, 1000)));
  if (!dtype) return c.error("its element type is not supported");
  const std::string& name = c.node().op_type();
  const double a0 = name == "HannWindow" ? 0.5 : name == "HammingWindow" ? 25.0 / 46.0 : 0.42;
  const double a1 = name == "BlackmanWindow" ? 0.5 : 1 - a0, a2 = name == "BlackmanWindow" ? 0.08 : 0;
  const double length = static_cast<double>(c.attribute_int("periodic", 1) != 0 ? size[0] : size[0] - 1);
  std::vector<double> table;
  for (int64_t i = 0; i < size[0]; ++i) {
    const double turn = length == 0 ? 0 : 2 * std::numbers::pi * static_cast<double>(i) / length;
    table.push_back(a0 - a1 * std::cos(turn) + a2 * std::cos(2 * turn));
  }
  return m.done({m.table("window", *dtype, {size[0]}, table)});
}

}  // namespace cleave::onnx_import
