// Resampling: Resize as a few taps of constant weights along each axis, GridSample as taps at computed positions; crops
// and padding.
#include <algorithm>
#include <cmath>

#include "frontend/onnx_maker.hpp"

namespace cleave::onnx_import {

using graph::IndexNames;
using graph::Op;
using graph::Shape;
using graph::ValueId;
using Ints = std::vector<int64_t>;

namespace {

// One axis of a Resize.
struct Resample {
  int64_t from = 0, to = 0;
  double scale = 1;
  double roi_start = 0, roi_end = 1;
};

struct ResizeMode {
  std::string kind, coordinates, nearest;
  double cubic = -0.75, outside = 0;
  bool exclude = false, antialias = false;
};

double source_position(const Resample& r, const ResizeMode& mode, int64_t at) {
  const double n = static_cast<double>(r.from), x = static_cast<double>(at), length = r.scale * n;
  if (mode.coordinates == "align_corners") return length == 1 ? 0 : x * (n - 1) / (length - 1);
  if (mode.coordinates == "asymmetric") return x / r.scale;
  if (mode.coordinates == "tf_crop_and_resize") {
    const double span = r.roi_end - r.roi_start;
    return r.roi_start * (n - 1) + (length == 1 ? span * (n - 1) / 2 : x * span * (n - 1) / (length - 1));
  }
  if (mode.coordinates == "pytorch_half_pixel" && length == 1) return -0.5;
  const double half = (x + 0.5) / r.scale - 0.5;
  if (mode.coordinates != "half_pixel_symmetric") return half;
  return n / 2 * (1 - static_cast<double>(r.to) / length) + half;
}

double cubic_weight(double distance, double a) {
  const double x = std::abs(distance);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

// The weights of the neighbours first .. first + size - 1, counted from the element left of the position; `ratio` is
// how far right of that the position lies, in (0, 1].
std::vector<double> tap_weights(const ResizeMode& mode, double ratio, double scale, int64_t& first) {
  std::vector<double> out;
  if (mode.kind == "nearest") {
    first = 0;
    const bool whole = ratio == 1;
    bool right = whole || mode.nearest == "ceil";
    if (!whole && mode.nearest == "round_prefer_floor") right = ratio > 0.5;
    if (!whole && mode.nearest == "round_prefer_ceil") right = ratio >= 0.5;
    return {right ? 0.0 : 1.0, right ? 1.0 : 0.0};
  }
  const bool linear = mode.kind == "linear";
  const double reach = linear ? 1 : 2, shrink = mode.antialias ? std::min(scale, 1.0) : 1;
  first = static_cast<int64_t>(std::floor(-reach / shrink)) + 1;
  double total = 0;
  for (int64_t i = first; i < 2 - first; ++i) {
    const double distance = shrink * (static_cast<double>(i) - ratio);
    out.push_back(linear ? std::max(0.0, 1 - std::abs(distance)) : cubic_weight(distance, mode.cubic));
    total += out.back();
  }
  if (mode.antialias)
    for (double& w : out) w /= total;
  return out;
}

// [.., from, ..] -> [.., to, ..]: taps are gathered and weighed.
ValueId resample(Maker& m, ValueId x, int64_t axis, const Resample& r, const ResizeMode& mode) {
  if (!m.ok()) return {};
  std::vector<double> places, weights;
  std::vector<double> inside;
  int64_t taps = 0;
  for (int64_t at = 0; at < r.to; ++at) {
    const double p = source_position(r, mode, at), left = std::floor(p);
    const bool whole = p == left;
    const double base = whole ? left - 1 : left;
    int64_t first = 0;
    std::vector<double> w = tap_weights(mode, whole ? 1 : p - left, r.scale, first);
    taps = static_cast<int64_t>(w.size());
    double total = 0;
    for (size_t i = 0; i < w.size(); ++i) {
      const double place = base + static_cast<double>(first) + static_cast<double>(i);
      if (mode.exclude && (place < 0 || place >= static_cast<double>(r.from))) w[i] = 0;
      total += w[i];
      places.push_back(std::clamp(place, 0.0, static_cast<double>(r.from - 1)));
    }
    for (const double v : w) weights.push_back(mode.exclude ? v / total : v);
    inside.push_back(p >= 0 && p <= static_cast<double>(r.from - 1));
  }
  if (taps > 4096 || static_cast<int64_t>(places.size()) > (int64_t{1} << 26)) {
    m.fail("its tables would be too large");
    return {};
  }
  const int64_t rank = static_cast<int64_t>(m.rank(x));
  ValueId y;
  if (mode.kind == "nearest") {
    std::vector<double> picked;
    for (size_t i = 0; i < static_cast<size_t>(r.to); ++i) picked.push_back(places[2 * i + (weights[2 * i] == 0)]);
    y = m.gather(x, m.table("taps", DType::i64, {r.to}, picked), axis);
  } else {
    const DType dtype = m.dtype(x);
    const ValueId all = m.gather(x, m.table("taps", DType::i64, {r.to, taps}, places), axis);
    IndexNames names, result;
    for (int64_t i = 0; i <= rank; ++i) {
      names.push_back(fmt::format("a{}", i));
      if (i != axis + 1) result.push_back(names.back());
    }
    const auto at = names.begin() + axis;
    y = m.contract(all, names, m.table("weights", dtype, {r.to, taps}, weights), {*at, *(at + 1)}, result);
  }
  if (mode.coordinates != "tf_crop_and_resize" || std::find(inside.begin(), inside.end(), 0) == inside.end()) return y;
  const ValueId keep = m.unsqueeze(m.table("inside", DType::boolean, {r.to}, inside), count_from(1, rank - axis));
  return m.where(keep, y, m.like(mode.outside, y));
}

std::vector<double> known_reals(Maker& m, size_t operand, std::string_view what) {
  NodeContext& c = m.context();
  if (!c.has(operand)) return {};
  const OnnxValue& v = c.in(operand).known ? *c.in(operand).known : c.in(operand);
  const auto count = constant_elements(c.syms(), v.shape);
  std::vector<double> out;
  if (v.bytes && is_real(v.dtype)) {
    const size_t width = static_cast<size_t>(byte_size(v.dtype));
    for (size_t i = 0; i + width <= v.bytes->size(); i += width) out.push_back(load_real(v.dtype, v.bytes->data() + i));
  } else if (v.splat && count && *count <= graph::kMaxRank * 2) {
    out.assign(static_cast<size_t>(*count), *v.splat);
  } else if (count != 0) {
    m.fail(fmt::format("its {} are computed at run time; only those known at import are supported", what));
  }
  return out;
}

constexpr int64_t kMaxExtent = int64_t{1} << 24;

}  // namespace

// Upsample is its predecessor: scales, the positions of "asymmetric" and the nearest element below.
Result<Values> import_resize(NodeContext& c) {
  Maker m(c);
  ValueId x = m.in(0);
  if (!m.ok()) return m.done({});
  const bool upsample = c.node().op_type() == "Upsample";
  const size_t scales_at = upsample || c.opset() < 11 ? 1 : 2;
  ResizeMode mode;
  mode.kind = c.attribute_text("mode", "nearest");
  if (mode.kind == "bilinear" && upsample) mode.kind = "linear";
  mode.coordinates = scales_at == 1 ? "asymmetric" : c.attribute_text("coordinate_transformation_mode", "half_pixel");
  mode.nearest = scales_at == 1 ? "floor" : c.attribute_text("nearest_mode", "round_prefer_floor");
  mode.cubic = c.attribute_real("cubic_coeff_a", -0.75);
  mode.outside = c.attribute_real("extrapolation_value", 0);
  mode.exclude = c.attribute_int("exclude_outside", 0) != 0;
  mode.antialias = c.attribute_int("antialias", 0) != 0;
  const auto one_of = [&](const std::string& value, const char* name, std::initializer_list<const char*> known) {
    if (std::none_of(known.begin(), known.end(), [&](const char* k) { return value == k; }))
      m.fail(fmt::format("`{}` is `{}`, which is not known", name, shown(value)));
  };
  one_of(mode.kind, "mode", {"nearest", "linear", "cubic"});
  one_of(mode.coordinates, "coordinate_transformation_mode",
         {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
          "tf_crop_and_resize"});
  one_of(mode.nearest, "nearest_mode", {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"});
  const size_t rank = m.rank(x);
  Ints axes = count_from(0, static_cast<int64_t>(rank));
  if (const auto given = c.attribute_ints("axes")) {
    axes.clear();
    for (const int64_t a : *given) axes.push_back(m.of(c.axis(a, rank)));
  }
  std::vector<double> scales, roi;
  if (const auto* a = c.attribute("scales"); a && scales_at == 1 && !c.has(1)) {
    for (const float f : a->floats()) scales.push_back(static_cast<double>(f));
  } else {
    scales = known_reals(m, scales_at, "scales");
  }
  if (mode.coordinates == "tf_crop_and_resize") {
    roi = known_reals(m, 1, "regions");
    if (m.ok() && roi.size() != 2 * axes.size()) m.fail("its region does not fit its axes");
  }
  graph::Shape sizes;
  if (scales_at == 2 && c.has(3)) sizes = m.of(c.extents(3, "sizes"));
  if (m.ok() && (scales.empty() == sizes.empty() || scales.size() + sizes.size() != axes.size()))
    m.fail(fmt::format("{} scales and {} sizes are given for {} axes", scales.size(), sizes.size(), axes.size()));
  const std::string policy = c.attribute_text("keep_aspect_ratio_policy", "stretch");
  one_of(policy, "keep_aspect_ratio_policy", {"stretch", "not_larger", "not_smaller"});
  if (!m.ok()) return m.done({});
  // An axis that keeps its extent, whatever that is; others have extents that are numbers.
  const auto kept = [&](size_t i) {
    const bool whole = roi.empty() || (roi[i] == 0 && roi[i + axes.size()] == 1);
    if (!sizes.empty()) return whole && policy == "stretch" && sizes[i] == m.shape(x)[static_cast<size_t>(axes[i])];
    return whole && scales[i] == 1;
  };
  std::vector<Resample> resamples(axes.size());
  double common = 0;
  for (size_t i = 0; i < axes.size(); ++i) {
    Resample& r = resamples[i];
    if (kept(i)) continue;
    r.from = m.constant(m.shape(x)[static_cast<size_t>(axes[i])], "an axis that is resampled");
    if (m.ok() && r.from < 1) m.fail("an empty axis cannot be resampled");
    if (sizes.empty() || !m.ok()) continue;
    r.to = m.constant(sizes[i], "a size that is not the axis's own");
    r.scale = static_cast<double>(r.to) / static_cast<double>(r.from);
    common = i == 0 ? r.scale : policy == "not_larger" ? std::min(common, r.scale) : std::max(common, r.scale);
  }
  for (size_t i = 0; i < axes.size() && m.ok(); ++i) {
    Resample& r = resamples[i];
    if (kept(i)) continue;
    if (!scales.empty()) {
      r.scale = scales[i];
      const double length = std::floor(r.scale * static_cast<double>(r.from));
      r.to = length >= 0 && length <= static_cast<double>(kMaxExtent) ? static_cast<int64_t>(length) : -1;
    } else if (policy != "stretch") {
      r.scale = common;
      const double length = std::floor(common * static_cast<double>(r.from) + 0.5);
      r.to = length <= static_cast<double>(kMaxExtent) ? static_cast<int64_t>(length) : -1;
    }
    if (!roi.empty()) {
      r.roi_start = roi[i];
      r.roi_end = roi[i + axes.size()];
    }
    if (!(r.scale > 0) || r.to < 0 || r.to > kMaxExtent) {
      m.fail(fmt::format("a scale of {} gives no extent", r.scale));
      break;
    }
    if (r.from == r.to && r.scale == 1 && roi.empty()) continue;
    if (mode.kind != "nearest" && !is_real(m.dtype(x))) m.fail("integers can only be resized to the nearest element");
    x = resample(m, x, axes[i], r, mode);
  }
  return m.done({x});
}

namespace {

// A coordinate mirrored at `low` and `high` until it lies between them.
ValueId reflect(Maker& m, ValueId x, double low, double high) {
  const DType dtype = m.dtype(x);
  if (high <= low) return m.broadcast(m.number(low, dtype), m.shape(x));
  const double range = high - low;
  // The distance from `low`, folded with the period of two ranges.
  const ValueId d = m.fn(Fn::abs, {m.add(x, -low)});
  const ValueId turns = m.fn(Fn::floor, {m.mul(d, 1 / (2 * range))});
  const ValueId rest = m.sub(d, m.mul(turns, 2 * range));
  const ValueId folded = m.fn(Fn::min, {rest, m.sub(m.number(2 * range, dtype), rest)});
  return m.add(folded, low);
}

}  // namespace

// Samples of [n, c, d..] at positions [n, o.., r]: the last axis holds coordinates from the last axis of the image on.
Result<Values> import_grid_sample(NodeContext& c) {
  Maker m(c);
  const ValueId x = m.in(0);
  ValueId grid = m.in(1);
  if (!m.ok()) return m.done({});
  const Shape image = m.shape(x), out = m.shape(grid);
  std::string mode = c.attribute_text("mode", "linear");
  if (mode == "bilinear") mode = "linear";
  if (mode == "bicubic") mode = "cubic";
  const std::string padding = c.attribute_text("padding_mode", "zeros");
  const bool corners = c.attribute_int("align_corners", 0) != 0;
  if (mode != "linear" && mode != "cubic" && mode != "nearest") m.fail(fmt::format("`mode` is `{}`", shown(mode)));
  if (padding != "zeros" && padding != "border" && padding != "reflection")
    m.fail(fmt::format("`padding_mode` is `{}`", shown(padding)));
  const int64_t rank = static_cast<int64_t>(image.size()) - 2;
  if (m.ok() && (rank < 1 || rank > 3 || out.size() != image.size() || !c.syms().is(out.back(), rank)))
    m.fail("image and grid do not fit");
  if (!m.ok()) return m.done({});
  m.same(image[0], out[0], "the batch axis");
  const DType compute = compute_type(m.dtype(grid));
  grid = m.cast(grid, compute);
  const int64_t count = mode == "nearest" ? 1 : mode == "linear" ? 2 : 4;

  // For each axis its taps: position, weight, and whether it lies inside.
  struct Tap {
    ValueId place, weight, inside;
  };
  std::vector<std::vector<Tap>> taps(static_cast<size_t>(rank));
  for (int64_t a = 0; a < rank && m.ok(); ++a) {
    const int64_t n = m.constant(image[static_cast<size_t>(a) + 2], "an axis of the image");
    const double length = static_cast<double>(n);
    const double low = corners ? 0 : -0.5, high = corners ? length - 1 : length - 0.5;
    ValueId p = m.squeeze(m.slice(grid, rank + 1, rank - 1 - a, rank - a), {rank + 1});
    p = corners ? m.mul(m.add(p, 1), (length - 1) / 2) : m.mul(m.add(m.mul(m.add(p, 1), length), -1), 0.5);
    if (mode == "nearest") p = m.fn(Fn::round, {p});
    if (padding == "border") p = m.fn(Fn::clamp, {p, m.number(0, compute), m.number(length - 1, compute)});
    if (padding == "reflection") p = reflect(m, p, low, high);
    const ValueId base = mode == "nearest" ? p : m.fn(Fn::floor, {p});
    const ValueId t = m.sub(p, base);
    for (int64_t k = 0; k < count && m.ok(); ++k) {
      Tap tap;
      const double offset = static_cast<double>(mode == "cubic" ? k - 1 : k);
      ValueId place = m.add(base, offset);
      if (mode == "linear") {
        tap.weight = k == 0 ? m.add(m.fn(Fn::neg, {t}), 1) : t;
      } else if (mode == "cubic") {
        constexpr double kA = -0.75;
        const ValueId d = m.fn(Fn::abs, {m.add(t, -offset)});
        if (k == 1 || k == 2) {
          tap.weight = m.add(m.mul(m.mul(m.add(m.mul(d, kA + 2), -(kA + 3)), d), d), 1);
        } else {
          tap.weight = m.add(m.mul(m.add(m.mul(m.add(m.mul(d, kA), -5 * kA), d), 8 * kA), d), -4 * kA);
        }
      }
      if (padding == "zeros") {
        tap.inside = m.fn(Fn::logical_and, {m.fn(Fn::ge, {place, m.number(0, compute)}),
                                            m.fn(Fn::le, {place, m.number(length - 1, compute)})});
      } else if (padding == "reflection") {
        place = reflect(m, place, low, high);
      }
      place = m.fn(Fn::clamp, {place, m.number(0, compute), m.number(length - 1, compute)});
      tap.place = m.cast(place, DType::i64);
      taps[static_cast<size_t>(a)].push_back(tap);
    }
  }
  if (!m.ok()) return m.done({});
  // Each combination of taps is one gather from the image as one row; channels are an axis of the positions.
  Shape positions{image[0], image[1]};
  positions.insert(positions.end(), out.begin() + 1, out.end() - 1);
  const sym::Expr pixels = c.syms().product(std::span(image).subspan(2));
  ValueId start = m.add(m.mul(m.iota(positions, 0, DType::i64), m.extent_value(image[1], DType::i64)),
                        m.iota(positions, 1, DType::i64));
  start = m.mul(start, m.extent_value(pixels, DType::i64));
  const ValueId row = m.reshape(x, {c.syms().product(image)});
  int64_t combinations = 1;
  for (int64_t a = 0; a < rank; ++a) combinations *= count;
  ValueId y;
  for (int64_t i = 0; i < combinations && m.ok(); ++i) {
    std::optional<ValueId> at, weight, inside;
    int64_t rest = i;
    for (int64_t a = 0; a < rank; ++a) {
      const Tap& tap = taps[static_cast<size_t>(a)][static_cast<size_t>(rest % count)];
      rest /= count;
      at = at ? m.add(m.mul(*at, m.extent_value(image[static_cast<size_t>(a) + 2], DType::i64)), tap.place) : tap.place;
      if (mode != "nearest") weight = weight ? m.mul(*weight, tap.weight) : tap.weight;
      if (padding == "zeros") inside = inside ? m.fn(Fn::logical_and, {*inside, tap.inside}) : tap.inside;
    }
    ValueId value = m.gather(row, m.add(start, m.unsqueeze(*at, {1})), 0);
    if (inside) value = m.where(m.unsqueeze(*inside, {1}), value, m.like(0, value));
    if (weight) value = m.mul(value, m.cast(m.unsqueeze(*weight, {1}), m.dtype(value)));
    y = i == 0 ? value : m.add(y, value);
  }
  return m.done({y});
}

// theta [n, r, r + 1] applied to the positions of an image of `size`.
Result<Values> import_affine_grid(NodeContext& c) {
  Maker m(c);
  const ValueId theta = m.in(0);
  const Ints size = m.of(c.ints(1, "size"));
  const bool corners = c.attribute_int("align_corners", 0) != 0;
  const size_t rank = size.size() < 2 ? 0 : size.size() - 2;
  if (m.ok() && rank != 2 && rank != 3) m.fail("only two and three spatial axes are known");
  if (!m.ok()) return m.done({});
  const Ints extents(size.begin() + 2, size.end());
  double pixels = 1;
  for (const int64_t e : extents) {
    if (e < 1 || e > kMaxExtent) m.fail(fmt::format("the extent {} cannot be sampled", e));
    pixels *= static_cast<double>(e);
  }
  if (pixels > 0x1p26) m.fail("its grid would be too large");
  if (!m.ok()) return m.done({});
  // [pixels, r + 1]: coordinates from the last axis on, and 1.
  std::vector<double> table;
  for (int64_t flat = 0; flat < static_cast<int64_t>(pixels); ++flat) {
    int64_t rest = flat;
    for (size_t a = rank; a-- > 0;) {
      const double n = static_cast<double>(extents[a]), at = static_cast<double>(rest % extents[a]);
      rest /= extents[a];
      table.push_back(corners ? (n == 1 ? -1 : -1 + 2 * at / (n - 1)) : (2 * at + 1) / n - 1);
    }
    table.push_back(1);
  }
  const int64_t width = static_cast<int64_t>(rank) + 1;
  const ValueId grid = m.table("grid", m.dtype(theta), {static_cast<int64_t>(pixels), width}, table);
  const ValueId y = m.contract(grid, {"p", "k"}, theta, {"n", "r", "k"}, {"n", "p", "r"});
  if (!m.ok()) return m.done({});
  Shape shape{m.shape(theta)[0]};
  for (const int64_t e : extents) shape.push_back(m.extent(e));
  shape.push_back(m.extent(width - 1));
  return m.done({m.reshape(y, shape)});
}

// Cuts off or pads around the middle.
Result<Values> import_center_crop_pad(NodeContext& c) {
  Maker m(c);
  ValueId x = m.in(0);
  const Ints target = m.of(c.ints(1, "shape"));
  if (!m.ok()) return m.done({});
  const size_t rank = m.rank(x);
  Ints axes = count_from(0, static_cast<int64_t>(rank));
  if (const auto given = c.attribute_ints("axes")) {
    axes.clear();
    for (const int64_t a : *given) axes.push_back(m.of(c.axis(a, rank)));
  }
  if (m.ok() && axes.size() != target.size()) m.fail(fmt::format("{} extents for {} axes", target.size(), axes.size()));
  if (!m.ok()) return m.done({});
  Ints low(rank, 0), high(rank, 0);
  for (size_t i = 0; i < axes.size(); ++i) {
    const size_t a = static_cast<size_t>(axes[i]);
    const int64_t n = m.constant(m.shape(x)[a], "an axis that is cropped or padded");
    if (target[i] < 0 || target[i] > graph::kMaxElements) m.fail(fmt::format("{} is no extent", target[i]));
    if (!m.ok()) break;
    const int64_t change = target[i] - n;
    low[a] = change >= 0 ? change / 2 : -((-change) / 2);
    high[a] = change - low[a];
  }
  return m.done({m.pad(x, low, high)});
}

// The reverse of windows: what overlaps is added. Each axis is a contraction with a table of which tap meets where.
Result<Values> import_col2im(NodeContext& c) {
  Maker m(c);
  ValueId x = m.in(0);
  const Ints image = m.of(c.ints(1, "image's extents")), block = m.of(c.ints(2, "block's extents"));
  if (!m.ok()) return m.done({});
  const size_t rank = image.size();
  const Ints strides = c.attribute_ints("strides").value_or(Ints(rank, 1));
  const Ints dilations = c.attribute_ints("dilations").value_or(Ints(rank, 1));
  const Ints pads = c.attribute_ints("pads").value_or(Ints(2 * rank, 0));
  if (rank < 1 || rank > 4 || block.size() != rank || strides.size() != rank || dilations.size() != rank ||
      pads.size() != 2 * rank || m.rank(x) != 3)
    m.fail("its shapes and attributes do not fit");
  Ints places;
  int64_t taps = 1, positions = 1;
  for (size_t i = 0; i < rank && m.ok(); ++i) {
    if (image[i] < 1 || image[i] > kMaxExtent || block[i] < 1 || block[i] > 4096 || strides[i] < 1 ||
        strides[i] > kMaxExtent || dilations[i] < 1 || dilations[i] > kMaxExtent || pads[i] < 0 ||
        pads[i] > kMaxExtent || pads[i + rank] < 0 || pads[i + rank] > kMaxExtent) {
      m.fail("an extent is out of range");
      break;
    }
    const int64_t room = image[i] + pads[i] + pads[i + rank] - dilations[i] * (block[i] - 1) - 1;
    places.push_back(room < 0 ? 0 : room / strides[i] + 1);
    taps *= block[i];
    positions *= places[i];
    if (taps > kMaxExtent || positions > graph::kMaxElements / (1 << 20)) m.fail("an extent is out of range");
  }
  if (!m.ok()) return m.done({});
  const Shape s = m.shape(x);
  if (c.syms().divides(taps, s[1]) != sym::Proof::yes || !c.syms().is(s[2], positions))
    return c.error(fmt::format("its operand {} does not hold {} windows of {} elements", print_shape(c.syms(), s),
                               positions, taps));
  Shape apart{s[0], c.syms().floordiv(s[1], m.extent(taps))};
  for (const int64_t k : block) apart.push_back(m.extent(k));
  for (const int64_t p : places) apart.push_back(m.extent(p));
  x = m.reshape(x, apart);
  for (size_t i = 0; i < rank && m.ok(); ++i) {
    if (block[i] * places[i] > (int64_t{1} << 26) / image[i]) return c.error("its tables would be too large");
    std::vector<double> table(static_cast<size_t>(block[i] * places[i] * image[i]), 0);
    for (int64_t k = 0; k < block[i]; ++k)
      for (int64_t p = 0; p < places[i]; ++p) {
        const int64_t at = p * strides[i] + k * dilations[i] - pads[i];
        if (at >= 0 && at < image[i]) table[static_cast<size_t>((k * places[i] + p) * image[i] + at)] = 1;
      }
    // [n, c, k_i.., p_i.., done..] -> [n, c, k.., p.., done.., at]
    const size_t left = rank - i;
    IndexNames names{"n", "c"}, result{"n", "c"};
    for (size_t k = 0; k < left; ++k) names.push_back(fmt::format("k{}", k));
    for (size_t k = 0; k < left; ++k) names.push_back(fmt::format("p{}", k));
    for (size_t k = 0; k < i; ++k) names.push_back(fmt::format("d{}", k));
    for (const std::string& n : names)
      if (n != "n" && n != "c" && n != "k0" && n != "p0") result.push_back(n);
    result.push_back("at");
    x = m.contract(x, names, m.table("meets", m.dtype(x), {block[i], places[i], image[i]}, table), {"k0", "p0", "at"},
                   result);
  }
  return m.done({x});
}

// ---- padding --------------------------------------------------------------------------------------------------------

namespace {

// Where element `at` of the padded axis comes from.
int64_t pad_source(const std::string& mode, int64_t at, int64_t n) {
  if (mode == "edge") return std::clamp<int64_t>(at, 0, n - 1);
  if (mode == "wrap") return ((at % n) + n) % n;
  if (n == 1) return 0;
  const int64_t period = 2 * (n - 1), folded = ((at % period) + period) % period;
  return std::min(folded, period - folded);
}

// The same for each place of an open axis of n elements, `low` of the places before them.
ValueId pad_sources(Maker& m, const std::string& mode, sym::Expr n, int64_t low, int64_t high) {
  const ValueId at = m.add(m.iota({m.context().syms().add(n, low + high)}, 0, DType::i64), static_cast<double>(-low));
  const ValueId size = m.extent_value(n, DType::i64), last = m.add(size, -1);
  if (mode == "edge") return m.fn(Fn::min, {m.fn(Fn::max, {at, m.like(0, at)}), last});
  if (mode == "wrap") return m.fn(Fn::mod, {at, size});
  const ValueId period = m.fn(Fn::max, {m.mul(last, 2), m.like(1, last)}), folded = m.fn(Fn::mod, {at, period});
  return m.fn(Fn::min, {folded, m.sub(period, folded)});
}

}  // namespace

// Before opset 11 pads and value are attributes; negative pads cut off.
Result<Values> import_pad(NodeContext& c) {
  Maker m(c);
  ValueId x = m.in(0);
  if (!m.ok()) return m.done({});
  const size_t rank = m.rank(x);
  const std::string mode = c.attribute_text("mode", "constant");
  if (mode != "constant" && mode != "reflect" && mode != "edge" && mode != "wrap")
    m.fail(fmt::format("the mode `{}` is not known", shown(mode)));
  Ints pads;
  double value = 0;
  std::optional<ValueId> filler;
  if (c.opset() < 11) {
    pads = c.attribute_ints("pads").value_or(Ints{});
    value = c.attribute_real("value", 0);
  } else {
    pads = m.of(c.ints(1, "pads"));
    if (c.has(2) && mode == "constant") {
      const auto known = c.number(2, "value");
      if (known.ok()) {
        value = *known;
      } else {  // computed at run time: the padding is a mask
        filler = m.in(2);
        if (m.ok() && m.rank(*filler) == 1) filler = m.squeeze(*filler, {0});
      }
    }
  }
  Ints axes;
  if (c.has(3)) {
    axes = m.of(c.ints(3, "axes"));
  } else {
    axes = count_from(0, static_cast<int64_t>(rank));
  }
  m.of(c.axes(axes, rank));
  if (m.ok() && pads.size() != 2 * axes.size()) m.fail(fmt::format("{} pads for {} axes", pads.size(), axes.size()));
  Ints low(rank, 0), high(rank, 0);
  for (size_t i = 0; i < axes.size() && m.ok(); ++i) {
    const size_t axis = static_cast<size_t>(m.of(c.axis(axes[i], rank)));
    low[axis] = pads[i];
    high[axis] = pads[i + axes.size()];
    for (const int64_t p : {low[axis], high[axis]})
      if (p > (int64_t{1} << 40) || p < -(int64_t{1} << 40)) m.fail(fmt::format("{} is no padding", p));
  }
  if (!m.ok()) return m.done({});
  if (mode == "constant") {
    const ValueId y = m.pad(x, low, high, value);
    if (!filler) return m.done({y});
    const ValueId inside = m.pad(m.broadcast(m.number(1, DType::boolean), m.shape(x)), low, high, 0);
    return m.done({m.where(inside, y, m.cast(*filler, m.dtype(y)))});
  }
  if (mode == "wrap") {  // what negative pads leave goes round
    Ints cut_low(rank, 0), cut_high(rank, 0);
    for (size_t a = 0; a < rank; ++a) {
      if (low[a] < 0) std::swap(low[a], cut_low[a]);
      if (high[a] < 0) std::swap(high[a], cut_high[a]);
    }
    const Ints none(rank, 0);
    if (cut_low != none || cut_high != none) x = m.pad(x, cut_low, cut_high);
  }
  for (size_t a = 0; a < rank && m.ok(); ++a) {
    if (low[a] == 0 && high[a] == 0) continue;
    if (!c.syms().as_constant(m.shape(x)[a])) {
      const sym::Expr n = m.shape(x)[a];
      x = m.gather(x, pad_sources(m, mode, n, low[a], high[a]), static_cast<int64_t>(a));
      continue;
    }
    const int64_t n = m.constant(m.shape(x)[a], "an axis that is padded with its own elements");
    const int64_t length = low[a] + n + high[a];
    if (m.ok() && (n < 1 || length < 0 || length > kMaxExtent))
      m.fail(fmt::format("an axis of {} cannot be padded to {}", n, length));
    if (!m.ok()) break;
    std::vector<double> from;
    for (int64_t at = 0; at < length; ++at) from.push_back(static_cast<double>(pad_source(mode, at - low[a], n)));
    x = m.gather(x, m.table("pad", DType::i64, {length}, from), static_cast<int64_t>(a));
  }
  return m.done({x});
}

}  // namespace cleave::onnx_import
