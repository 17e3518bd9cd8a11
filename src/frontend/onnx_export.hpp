// Graphs -> ONNX models (opset 20), for other compilers. Composites and the stabilised dialect are written as primitive
// operators; contractions as Einsum.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "graph/graph.hpp"

namespace cleave {

struct OnnxExport {
  std::vector<std::byte> model;  // empty where it cannot be written
  std::string why_not;           // then: the operator or extent that ONNX, or this exporter, has no word for
};

OnnxExport export_onnx(const graph::Graph& graph);

}  // namespace cleave
