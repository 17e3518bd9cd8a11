#include "frontend/onnx_value.hpp"

#include <algorithm>

namespace cleave::onnx_import {

std::string shown(std::string_view text) {
  constexpr size_t kLongest = 80;
  std::string out(text.substr(0, kLongest));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '`') c = '?';
  }
  if (text.size() > kLongest) out += "...";
  return out;
}

std::optional<std::vector<int64_t>> constant_extents(const sym::Pool& syms, std::span<const sym::Expr> shape) {
  std::vector<int64_t> extents;
  for (const sym::Expr e : shape) {
    const auto c = syms.as_constant(e);
    if (!c) return std::nullopt;
    extents.push_back(*c);
  }
  return extents;
}

std::optional<int64_t> constant_elements(const sym::Pool& syms, std::span<const sym::Expr> shape) {
  const auto extents = constant_extents(syms, shape);
  if (!extents) return std::nullopt;
  if (std::find(extents->begin(), extents->end(), 0) != extents->end()) return 0;
  int64_t count = 1;
  for (const int64_t extent : *extents) {
    if (extent < 0 || extent > graph::kMaxElements / count) return std::nullopt;
    count *= extent;
  }
  return count;
}

std::optional<graph::Shape> broadcast_shapes(const sym::Pool& syms, std::span<const graph::Shape> shapes) {
  size_t rank = 0;
  for (const auto& s : shapes) rank = std::max(rank, s.size());
  graph::Shape result(rank);
  for (const auto& s : shapes) {
    for (size_t i = 0; i < s.size(); ++i) {
      sym::Expr& r = result[rank - s.size() + i];
      if (!r.valid() || syms.is(r, 1)) {
        r = s[i];
      } else if (!syms.is(s[i], 1) && syms.equal(r, s[i]) != sym::Proof::yes) {
        return std::nullopt;
      }
    }
  }
  return result;
}

std::string print_shape(const sym::Pool& syms, std::span<const sym::Expr> shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i ? ", " : "") + shown(syms.print(shape[i]));
  return out + "]";
}

}  // namespace cleave::onnx_import
