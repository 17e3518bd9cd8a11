// Expressions: lists of tile::Node in which operands precede their users. Nests of tile programs and Computes of
// itGraphs are made of them; what both need to know about a list is here.
#pragma once

#include <functional>
#include <span>

#include "tile/tile.hpp"

namespace cleave::tile {

// Calls `visit` with every node that `node` uses: dynamic indices, guards, operands.
void for_each_operand(const Node& node, const std::function<void(NodeId)>& visit);

// Which nodes the roots need; true for these and for what they use.
std::vector<bool> reachable(std::span<const Node> nodes, std::span<const NodeId> roots);

// The laws of an expression: operands precede their users, functions have their arity and operands of one fitting
// dtype, loads have an index for each axis, every dtype is what it follows from. `tensor` gives what a load may read:
// nullptr for a BufferId that does not exist. Each violation is passed to `bad`.
struct TensorType {
  std::string_view name;
  DType dtype;
  size_t rank;
};
void check_expression(std::span<const Node> nodes, const std::function<std::optional<TensorType>(BufferId)>& tensor,
                      const std::function<void(std::string)>& bad);

}  // namespace cleave::tile
