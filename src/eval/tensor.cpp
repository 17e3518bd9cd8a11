#include "eval/tensor.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "base/check.hpp"
#include "base/number.hpp"
#include "eval/strided.hpp"

namespace cleave::oracle {

int64_t product(std::span<const int64_t> extents) {
  int64_t n = 1;
  for (int64_t e : extents) n *= e;
  return n;
}

std::vector<int64_t> dense_strides(std::span<const int64_t> extents) {
  std::vector<int64_t> strides(extents.size());
  int64_t s = 1;
  for (size_t i = extents.size(); i-- > 0; s *= extents[i]) strides[i] = s;
  return strides;
}

Tensor zeros(DType dtype, std::vector<int64_t> extents) {
  Tensor t{dtype, std::move(extents), {}, {}};
  const auto n = static_cast<size_t>(product(t.extents));
  if (t.real())
    t.reals.assign(n, 0.0);
  else
    t.ints.assign(n, 0);
  return t;
}

Tensor tensor(DType dtype, std::vector<int64_t> extents, std::vector<double> values) {
  CHECK(product(extents) == static_cast<int64_t>(values.size()), "{} values", values.size());
  Tensor t{dtype, std::move(extents), {}, {}};
  if (t.real())
    t.reals = std::move(values);
  else
    for (double v : values) t.ints.push_back(static_cast<int64_t>(v));
  return t;
}

Tensor scalar_tensor(DType dtype, double value) { return tensor(dtype, {}, {value}); }

Tensor from_memory(DType dtype, std::span<const int64_t> extents, std::span<const int64_t> strides, const void* first) {
  Tensor t = zeros(dtype, {extents.begin(), extents.end()});
  const auto* base = static_cast<const std::byte*>(first);
  const int64_t width = byte_size(dtype);
  int64_t next = 0;
  for_each_run<1>(extents, {strides}, [&](std::array<int64_t, 1> at, std::array<int64_t, 1> step, int64_t count) {
    for (int64_t i = 0; i < count; ++i, ++next) {
      const std::byte* p = base + (at[0] + i * step[0]) * width;
      if (t.real())
        t.reals[static_cast<size_t>(next)] = load_real(dtype, p);
      else
        t.ints[static_cast<size_t>(next)] = load_integer(dtype, p);
    }
  });
  return t;
}

Tensor from_dense(DType dtype, std::span<const int64_t> extents, const void* bytes) {
  return from_memory(dtype, extents, dense_strides(extents), bytes);
}

void to_memory(const Tensor& t, std::span<const int64_t> strides, void* first) {
  auto* base = static_cast<std::byte*>(first);
  const int64_t width = byte_size(t.dtype);
  int64_t next = 0;
  for_each_run<1>(t.extents, {strides}, [&](std::array<int64_t, 1> at, std::array<int64_t, 1> step, int64_t count) {
    for (int64_t i = 0; i < count; ++i, ++next) {
      std::byte* p = base + (at[0] + i * step[0]) * width;
      if (t.real())
        store_real(t.dtype, p, t.reals[static_cast<size_t>(next)]);
      else
        store_integer(t.dtype, p, t.ints[static_cast<size_t>(next)]);
    }
  });
}

std::vector<std::byte> to_dense(const Tensor& t) {
  std::vector<std::byte> out(static_cast<size_t>(t.elements() * byte_size(t.dtype)));
  to_memory(t, dense_strides(t.extents), out.data());
  return out;
}

void round_to_storage(Tensor& t) {
  if (t.dtype == DType::f64 || t.dtype == DType::i64) return;
  for (double& v : t.reals) v = round_to(t.dtype, v);
  for (int64_t& v : t.ints) v = wrap_to(t.dtype, v);
}

namespace {

template <class Allowed>
Difference compare_with(const Tensor& got, const Tensor& expected, Allowed allowed) {
  Difference d;
  if (got.dtype != expected.dtype || got.extents != expected.extents || got.elements() != expected.elements()) {
    d.same_kind = false;
    d.text = fmt::format("{}[{}] where {}[{}] was expected", name(got.dtype), fmt::join(got.extents, ", "),
                         name(expected.dtype), fmt::join(expected.extents, ", "));
    return d;
  }
  double worst = -1;
  for (int64_t i = 0; i < got.elements(); ++i) {
    double g = got.at(i), e = expected.at(i);
    const double limit = allowed(i, e);
    double error = 0;
    if (!got.real()) {
      error = got.ints[static_cast<size_t>(i)] == expected.ints[static_cast<size_t>(i)]
                  ? 0
                  : std::numeric_limits<double>::infinity();
    } else if (std::isnan(g) || std::isnan(e)) {
      error = std::isnan(g) && std::isnan(e) ? 0 : std::numeric_limits<double>::infinity();
    } else if (std::isinf(g) || std::isinf(e)) {
      error = g == e ? 0 : std::numeric_limits<double>::infinity();
    } else {
      error = std::fabs(g - e);
      d.max_abs = std::max(d.max_abs, error);
      if (e != 0) d.max_rel = std::max(d.max_rel, error / std::fabs(e));
    }
    if (error <= limit) continue;
    ++d.mismatches;
    const double excess = limit > 0 ? error / limit : std::numeric_limits<double>::infinity();
    if (d.worst >= 0 && excess <= worst) continue;
    worst = excess;
    d.worst = i;
    std::string position;
    int64_t rest = i;
    for (int64_t s : dense_strides(got.extents)) {
      position += fmt::format("{}{}", position.empty() ? "" : ", ", rest / s);
      rest %= s;
    }
    d.text = fmt::format("element [{}] is {}, expected {} within {}", position, shown(g), shown(e), shown(limit));
  }
  if (d.mismatches > 1) d.text += fmt::format(" (and {} more elements)", d.mismatches - 1);
  return d;
}

}  // namespace

Difference compare(const Tensor& got, const Tensor& expected, double relative, double absolute) {
  return compare_with(got, expected,
                      [&](int64_t, double e) { return std::isfinite(e) ? absolute + relative * std::fabs(e) : 0; });
}

Difference compare(const Tensor& got, const Tensor& expected, std::span<const double> allowed) {
  CHECK(static_cast<int64_t>(allowed.size()) == expected.elements(), "{} bounds", allowed.size());
  return compare_with(got, expected, [&](int64_t i, double) { return allowed[static_cast<size_t>(i)]; });
}

}  // namespace cleave::oracle
