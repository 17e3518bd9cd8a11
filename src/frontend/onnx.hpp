// ONNX models -> tensor graphs.
//
// Reads the model with protobuf alone. Nodes that no output needs are dropped, the rest is sorted (a cycle is an
// error), and each operator is translated by its row of a table (onnx_table.cpp). Integers that describe shapes (Shape,
// Gather, Concat, ... feeding Reshape or Slice) are computed while importing, symbolically where extents are symbolic,
// so that no shape arithmetic remains in the graph. Symbolic dimensions (dim_param) become named dims.
//
// A file may be hostile: sizes, counts and ranks are checked before anything is allocated for them, external data stays
// within the model's folder, and every fault is a diagnostic. All unsupported operators are reported by one error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/diagnostic.hpp"
#include "graph/graph.hpp"

namespace cleave {

// The content of an input that is known at import: dense, row-major.
struct OnnxKnown {
  DType dtype = DType::i64;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};

struct OnnxOptions {
  // Values for symbolic dimensions, by name; the others stay symbolic.
  std::map<std::string, int64_t> dims;
  // Lowest and highest extents of symbolic dimensions that stay symbolic.
  std::map<std::string, std::pair<int64_t, int64_t>> ranges;
  // Inputs that stay inputs, but whose integers (and single numbers) may be computed with where an operator needs them
  // at import: the extents of a Reshape, the axes of a reduction. The graph is then right for these contents only.
  std::map<std::string, OnnxKnown> known;
  // Compute with known inputs everywhere, as if they were constants: for shapes that are computed from them.
  bool fold_known = false;
  int64_t max_file_bytes = (int64_t{1} << 31) - 1;  // protobuf's own limit
  int64_t max_constant_bytes = int64_t{1} << 36;    // all initialisers together, with external data
  size_t max_items = 4'000'000;                     // protobuf messages and strings
};

Result<graph::Graph> import_onnx(const std::string& path, const OnnxOptions& options = {});

// `name` is what errors call the model; `folder` holds its external data (empty: external data is an error).
Result<graph::Graph> import_onnx(std::span<const std::byte> model, const std::string& name, const std::string& folder,
                                 const OnnxOptions& options = {});

// The names of a model's inputs in order (without initialisers).
Result<std::vector<std::string>> onnx_inputs(const std::string& path);

// A file with one TensorProto.
Result<OnnxKnown> read_onnx_tensor(const std::string& path);

// The operators that can be imported, "Name" or "domain::Name", sorted.
std::vector<std::string> onnx_operators();

}  // namespace cleave
