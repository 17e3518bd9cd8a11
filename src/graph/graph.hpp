// The tensor graph: an acyclic program over whole tensors with symbolic extents.
//
// A Graph is immutable; a Builder makes it and checks every node as it is added (types are inferred by
// graph/infer.cpp). Equal nodes are one node (hash-consing), so common subexpressions are shared from the start. Nodes
// are stored in a topological order: operands always precede their users.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/diagnostic.hpp"
#include "base/id.hpp"
#include "graph/op.hpp"

namespace cleave::graph {

using ValueId = Id<struct ValueTag>;
using NodeId = Id<struct NodeTag>;
using Shape = std::vector<sym::Expr>;

// Limits that keep hostile inputs harmless.
constexpr int kMaxRank = 16;
constexpr int64_t kMaxElements = int64_t{1} << 40;
constexpr size_t kMaxNodes = 1'000'000;

struct Type {
  DType dtype;
  Shape shape;
  bool operator==(const Type&) const = default;
};

struct Node {
  Op op;
  std::vector<ValueId> operands;
  Attributes attributes;
  std::vector<ValueId> results;
};

struct Value {
  NodeId node;
  int result;  // which result of the node
  Type type;
  std::string name;  // for people; may be empty
};

struct Output {
  std::string name;
  ValueId value;
};

class Graph {
 public:
  const std::string& name() const { return name_; }
  sym::Pool& syms() const { return *syms_; }
  const std::shared_ptr<sym::Pool>& shared_syms() const { return syms_; }
  size_t node_count() const { return nodes_.size(); }
  size_t value_count() const { return values_.size(); }
  const Node& node(NodeId id) const { return nodes_[id]; }
  const Value& value(ValueId id) const { return values_[id]; }
  const Node& producer(ValueId id) const { return nodes_[values_[id].node]; }
  const Type& type(ValueId id) const { return values_[id].type; }
  // Inputs, constants and run-time scalars, in order of declaration.
  const std::vector<ValueId>& leaves() const { return leaves_; }
  std::vector<ValueId> leaves(Op op) const;
  const std::vector<Output>& outputs() const { return outputs_; }
  // Declared dimensions, in order; ranges are in the pool.
  const std::vector<sym::Expr>& dims() const { return dims_; }
  // The same graph over a copy of its symbols, so that their ranges can be narrowed for it alone.
  Graph detached() const;
  std::vector<NodeId> node_ids() const;
  // The constant extents of a value whose dims are all bound; CHECKs otherwise.
  std::vector<int64_t> extents(ValueId id) const;
  bool has_constant_shapes() const;
  // How many operand slots and outputs read each value.
  std::vector<int> use_counts() const;

 private:
  friend class Builder;
  std::string name_;
  std::shared_ptr<sym::Pool> syms_ = std::make_shared<sym::Pool>();
  Store<Node, NodeTag> nodes_;
  Store<Value, ValueTag> values_;
  std::vector<ValueId> leaves_;
  std::vector<Output> outputs_;
  std::vector<sym::Expr> dims_;
};

// The types of a node's results, or everything that is wrong with it.
Result<std::vector<Type>> infer(sym::Pool& syms, Op op, std::span<const Type> operands, const Attributes& attributes);

class Builder {
 public:
  explicit Builder(std::string name = "graph", std::shared_ptr<sym::Pool> syms = nullptr);

  sym::Pool& syms() { return *graph_.syms_; }
  sym::Expr dim(std::string_view name, int64_t lo = 0, int64_t hi = int64_t{1} << 31);
  Shape shape(std::initializer_list<int64_t> extents);
  Shape shape(std::span<const int64_t> extents);

  ValueId input(std::string_view name, DType dtype, Shape shape);
  ValueId constant(std::string_view name, DType dtype, Shape shape, ConstantData data);
  ValueId scalar(std::string_view name, DType dtype);
  ValueId literal(double value, DType dtype);

  // Adds a node. Elementwise operators promote their operands to a common dtype (literals are weak: they take the
  // dtype of the others) by inserting casts. An error leaves the graph as it was.
  Result<std::vector<ValueId>> add(Op op, std::vector<ValueId> operands, Attributes attributes = {});
  // The same for operators known to be right: an error is an internal error. `make` needs a single result.
  std::vector<ValueId> make_all(Op op, std::vector<ValueId> operands, Attributes attributes = {});
  ValueId make(Op op, std::vector<ValueId> operands, Attributes attributes = {});

  void set_name(ValueId value, std::string_view name);  // keeps an earlier name
  void output(std::string_view name, ValueId value);

  const Type& type(ValueId id) const { return graph_.type(id); }
  const Graph& graph() const { return graph_; }  // as built so far

  // Hands the graph over, dropping nodes that no output needs (leaves stay); values are renumbered.
  Result<Graph> finish();
  Graph take();  // finish() of a graph known to have an output

 private:
  Result<std::vector<ValueId>> insert(Op op, std::vector<ValueId> operands, Attributes attributes);
  ValueId leaf(Op op, Attributes attributes);
  static size_t hash(Op op, std::span<const ValueId> operands, const Attributes& attributes);

  Graph graph_;
  std::unordered_multimap<size_t, NodeId> known_;
  size_t weight_ = 0;  // nodes, counted as expand() may leave them
};

// Copies a graph node by node into a new one. `replace(builder, node id, mapped operands)` returns the new results, or
// nullopt to copy the node as it is. Leaves keep their order and outputs their names.
using Replace = std::function<std::optional<std::vector<ValueId>>(Builder&, NodeId, std::span<const ValueId>)>;
Graph rewrite(const Graph& graph, const Replace& replace);

// Gives named dimensions their values; the result has the same graph with those symbols replaced.
// Errors: unknown names, values outside a range, shapes that do not work out.
Result<Graph> bind(const Graph& graph, const std::map<std::string, int64_t>& dims);

// All violations of the graph's laws (an empty list: none). A graph made by a Builder has none.
Diagnostics verify(const Graph& graph);

// Text form, docs/graph.md. parse(print(g)) gives an equal graph. Constants with at most `inline_elements` elements are
// printed with their values; others as file("path").
struct PrintOptions {
  int64_t inline_elements = 64;
};
std::string print(const Graph& graph, const PrintOptions& options = {});

// Reads the bytes of file("path") constants: dense row-major in the declared dtype.
using LoadConstant = std::function<Result<std::shared_ptr<const std::vector<std::byte>>>(
    const std::string& path, DType dtype, std::span<const int64_t> extents)>;
Result<Graph> parse(const SourceText& source, const LoadConstant& load = nullptr);

// Structural equality: same leaves, nodes, attributes, outputs in order; symbols are compared by name.
bool equal(const Graph& a, const Graph& b);

// Replaces composites (softmax, norms, sdpa, ragged, paged, ...) by primitive operators, in their safe forms
// (graph/expand.cpp).
Graph expand(const Graph& graph);

// Dense values of a constant with constant extents.
std::vector<std::byte> materialise(const ConstantData& data, DType dtype, int64_t elements);

// Small helpers shared by passes.
std::vector<int64_t> normalise_axes(std::span<const int64_t> axes, size_t rank);  // sorted, non-negative
std::vector<int64_t> reduced_axes(const Node& node, size_t rank);  // the axes attribute, all axes if absent
std::string print(const sym::Pool& syms, const Type& type);

}  // namespace cleave::graph
