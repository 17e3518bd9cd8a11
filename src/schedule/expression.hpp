// Expressions of graph values at index tuples: the elementwise operators, views and gathers between materialised values
// become one expression over loads (tile/tile.hpp's nodes, with itgraph values in the place of buffers).
#pragma once

#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "graph/graph.hpp"
#include "itgraph/itgraph.hpp"

namespace cleave::schedule {

using tile::Index;
using tile::NodeId;

// Operators that an expression can contain; the others are materialised.
bool is_inline(const graph::Node& node);

class ExpressionBuilder {
 public:
  // `memory` gives the itgraph value of a materialised graph value (or leaf), nullopt when it is to be inlined.
  using Memory = std::function<std::optional<itgraph::ValueId>(graph::ValueId)>;
  ExpressionBuilder(const graph::Graph& graph, Memory memory) : graph_(graph), memory_(std::move(memory)) {}

  // The value at an index tuple (one entry an axis). Loads inside are guarded by `guard` when it is valid.
  NodeId at(graph::ValueId value, const std::vector<Index>& index, NodeId guard = {});
  // The producer of a materialised value, as if it were inlined once.
  NodeId body(graph::ValueId value, const std::vector<Index>& index);
  NodeId literal(double value, DType dtype);
  NodeId apply(Fn fn, std::vector<NodeId> operands);
  NodeId cast(NodeId operand, DType dtype);
  std::vector<tile::Node> take() { return std::move(nodes_); }
  const std::vector<tile::Node>& nodes() const { return nodes_; }

 private:
  NodeId add(tile::Node node);
  NodeId load(itgraph::ValueId value, const std::vector<Index>& index, NodeId guard, DType dtype);
  NodeId view(const graph::Node& node, int result, const std::vector<Index>& index, NodeId guard);
  NodeId as_node(const Index& index);
  Index plus(const Index& a, sym::Expr b);
  Index times(const Index& a, int64_t c);
  // lo <= index < hi as a bool node; an invalid id when it is always true.
  NodeId inside(const Index& index, sym::Expr lo, sym::Expr hi);
  NodeId both(NodeId a, NodeId b);
  std::vector<Index> reshaped(const std::vector<Index>& index, const graph::Shape& from, const graph::Shape& to);

  const graph::Graph& graph_;
  Memory memory_;
  std::vector<tile::Node> nodes_;
};

}  // namespace cleave::schedule
