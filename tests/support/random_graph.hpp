// Random valid graphs over the whole operator table, inputs for them in every layout, and a shrinker for failures.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "eval/tensor.hpp"
#include "graph/graph.hpp"
#include "support/choices.hpp"

namespace cleave::testing {

struct RandomGraphOptions {
  int max_operators = 10;
  int64_t max_elements = 4096;  // of one value; larger results are dropped
  bool sixteen_bit = true;
  bool dialect = true;                 // scaled_reduce, unscale
  std::optional<graph::Op> must_have;  // try this operator first
};

graph::Graph random_graph(Choices& choices, const RandomGraphOptions& options = {});

enum class Magnitude { tiny, unit, large, special };  // 1e-3, 1, 100, and 1 with -inf, NaN, -0.0 among it
enum class Layout { dense, transposed, sliced, negative, repeated };

// A tensor in a larger buffer, with guard elements around it.
struct StridedInput {
  DType dtype = DType::f32;
  std::vector<int64_t> extents;
  std::vector<int64_t> strides;  // in elements
  int64_t offset = 0;            // of element (0, ..., 0), in elements
  std::vector<std::byte> buffer;

  const void* first() const { return buffer.data() + offset * byte_size(dtype); }
  oracle::Tensor tensor() const { return oracle::from_memory(dtype, extents, strides, first()); }
};

StridedInput random_input(Choices& choices, DType dtype, std::vector<int64_t> extents, Magnitude magnitude,
                          Layout layout);

// Inputs for given_leaves() in order. Each depends on the seed and its own name only, so that a shrunk graph keeps the
// values of those that are left. Without a layout each gets a random one.
std::vector<StridedInput> random_inputs(const graph::Graph& graph, uint64_t seed, Magnitude magnitude,
                                        std::optional<Layout> layout = Layout::dense);
std::vector<oracle::Tensor> tensors_of(const std::vector<StridedInput>& inputs);

// The part of a graph that these outputs need; unused leaves are dropped.
graph::Graph extract(const graph::Graph& graph, const std::vector<graph::Output>& outputs);
// A small graph that still fails: outputs are dropped, cut short to earlier values, and nodes are replaced by operands
// of their own type, while `fails` holds.
graph::Graph shrink(graph::Graph graph, const std::function<bool(const graph::Graph&)>& fails);

}  // namespace cleave::testing
