// Runs a graph of primitives node by node over values of any kind V (tensors, tensors with bounds), freeing each when
// its last reader is done. Inside the room.
#pragma once

#include <optional>
#include <unordered_map>

#include "eval/graph_eval.hpp"
#include "eval/graph_kernels.hpp"

namespace cleave::oracle {

// Everything that is wrong with the request, before anything is allocated.
Diagnostics check_request(const graph::Graph& graph, std::span<const Tensor> inputs, const EvalOptions& options);

// leaf(tensor) and node(site, operands) make values; keep(value id, value) sees each one. `graph` must be primitive.
template <class V, class Leaf, class Node, class Keep>
std::vector<V> drive(const graph::Graph& graph, std::span<const Tensor> inputs, Leaf leaf, Node node, Keep keep) {
  std::vector<std::optional<V>> values(graph.value_count());
  std::vector<int> uses = graph.use_counts();
  std::unordered_map<uint32_t, size_t> given;
  const auto leaves = given_leaves(graph);
  for (size_t i = 0; i < leaves.size(); ++i) given[leaves[i].index] = i;
  for (graph::NodeId id : graph.node_ids()) {
    const graph::Node& n = graph.node(id);
    std::vector<V> results;
    if (auto it = given.find(n.results[0].index); it != given.end()) {
      results.push_back(leaf(inputs[it->second]));
    } else {
      std::vector<const V*> operands;
      for (graph::ValueId v : n.operands) operands.push_back(&*values[v.index]);
      results = node(Site(graph, n), operands);
    }
    for (size_t i = 0; i < results.size(); ++i) {
      keep(n.results[i], results[i]);
      if (uses[n.results[i].index] > 0) values[n.results[i].index] = std::move(results[i]);
    }
    for (graph::ValueId v : n.operands)
      if (--uses[v.index] == 0) values[v.index].reset();
  }
  std::vector<V> out;
  for (const graph::Output& o : graph.outputs()) out.push_back(*values[o.value.index]);
  return out;
}

}  // namespace cleave::oracle
