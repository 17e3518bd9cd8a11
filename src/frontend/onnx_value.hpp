// What the import knows about one value of an ONNX graph, and the helpers that shapes need.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.hpp"
#include "graph/graph.hpp"

namespace cleave::onnx_import {

// Integer contents are tracked up to this many elements.
constexpr int64_t kMaxKnownIntegers = 1024;

// A value may be known in several forms; it enters the graph (`id`) only when an operator of the graph needs it.
struct OnnxValue {
  DType dtype = DType::f32;
  graph::Shape shape;
  std::optional<graph::ValueId> id;
  std::optional<std::vector<sym::Expr>> integers;       // contents, row-major; bool as 0 and 1
  std::optional<double> splat;                          // every element has this value
  std::shared_ptr<const std::vector<std::byte>> bytes;  // contents of an initialiser
  std::string name;                                     // of the initialiser
  // Of an input whose content is known (OnnxOptions::known): what an operator may use that needs numbers at import.
  std::shared_ptr<const OnnxValue> known;
};

// Text from a model, made safe to show: cut to a readable length, control characters replaced.
std::string shown(std::string_view text);

// The extents as numbers, or nullopt if one is symbolic.
std::optional<std::vector<int64_t>> constant_extents(const sym::Pool& syms, std::span<const sym::Expr> shape);

// The number of elements if all extents are constant and it is at most kMaxElements.
std::optional<int64_t> constant_elements(const sym::Pool& syms, std::span<const sym::Expr> shape);

// NumPy's rule; nullopt if two extents differ, or are not known to be equal.
std::optional<graph::Shape> broadcast_shapes(const sym::Pool& syms, std::span<const graph::Shape> shapes);

// "[batch, 12, 64]"
std::string print_shape(const sym::Pool& syms, std::span<const sym::Expr> shape);

}  // namespace cleave::onnx_import
