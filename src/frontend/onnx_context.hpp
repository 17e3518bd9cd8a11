// One node of an ONNX model while it is translated: its operands, its attributes, and the graph under construction.
//
// A handler reads operands and attributes, adds operators to the graph and returns one OnnxValue a result. Whatever a
// model can get wrong comes back as a Diagnostic that names the node.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.hpp"
#include "frontend/onnx_value.hpp"
#include "graph/graph.hpp"
#include "onnx/onnx.pb.h"

namespace cleave::onnx_import {

class NodeContext {
 public:
  // `operands` has one entry an input of the node, null where an optional input is left out.
  NodeContext(graph::Builder& builder, const onnx::NodeProto& node, int64_t opset, std::vector<OnnxValue*> operands)
      : builder_(builder), node_(node), opset_(opset), operands_(std::move(operands)) {}

  const onnx::NodeProto& node() const { return node_; }
  graph::Builder& builder() { return builder_; }
  sym::Pool& syms() { return builder_.syms(); }
  int64_t opset() const { return opset_; }
  std::string node_name() const;
  Diagnostic error(std::string_view why) const;

  // Operands.
  size_t size() const { return operands_.size(); }
  bool has(size_t i) const { return i < operands_.size() && operands_[i]; }
  OnnxValue& in(size_t i) { return *operands_[i]; }  // must be there
  size_t rank(size_t i) { return in(i).shape.size(); }
  Result<graph::ValueId> id(size_t i);                                      // the operand as a value of the graph
  Result<std::vector<sym::Expr>> extents(size_t i, std::string_view what);  // integers known at import
  Result<std::vector<int64_t>> ints(size_t i, std::string_view what);       // the same, constant
  Result<double> number(size_t i, std::string_view what);                   // a scalar constant
  size_t results() const { return static_cast<size_t>(node_.output_size()); }
  bool wants(size_t result) const { return result < results() && !node_.output(static_cast<int>(result)).empty(); }

  // Attributes; an attribute of another type counts as absent.
  const onnx::AttributeProto* attribute(std::string_view name) const;
  int64_t attribute_int(std::string_view name, int64_t otherwise) const;
  double attribute_real(std::string_view name, double otherwise) const;
  std::string attribute_text(std::string_view name, std::string_view otherwise) const;
  std::optional<std::vector<int64_t>> attribute_ints(std::string_view name) const;
  // An axis in [-rank, rank) as one in [0, rank).
  Result<int64_t> axis(int64_t axis, size_t rank) const;
  Result<std::vector<int64_t>> axes(std::span<const int64_t> axes, size_t rank) const;  // sorted, distinct

  // Results.
  OnnxValue wrap(graph::ValueId id) const;
  Result<graph::ValueId> add(graph::Op op, std::vector<graph::ValueId> operands, graph::Attributes attributes = {});
  Result<std::vector<graph::ValueId>> add_all(graph::Op op, std::vector<graph::ValueId> operands,
                                              graph::Attributes attributes = {});
  Result<std::vector<OnnxValue>> one(Result<graph::ValueId> id);
  Result<std::vector<OnnxValue>> one(OnnxValue value) { return std::vector<OnnxValue>{std::move(value)}; }
  OnnxValue integers(DType dtype, std::vector<sym::Expr> elements, graph::Shape shape);
  OnnxValue splat(double value, DType dtype, graph::Shape shape);

  // The value in the graph; constants become leaves here, when they are first needed.
  Result<graph::ValueId> materialise(OnnxValue& value);
  // An elementwise function of operands; folds known integers, keeps uniform constants as literals.
  Result<OnnxValue> elementwise(Fn fn, std::span<OnnxValue* const> operands);
  Result<graph::ValueId> elementwise(Fn fn, std::vector<graph::ValueId> operands);
  Result<graph::ValueId> cast(graph::ValueId value, DType dtype);
  Result<graph::ValueId> reshape(graph::ValueId value, graph::Shape shape);

 private:
  Result<graph::ValueId> materialise_integers(const OnnxValue& value);
  Result<graph::ValueId> progression(int64_t first, int64_t step, const OnnxValue& value);

  graph::Builder& builder_;
  const onnx::NodeProto& node_;
  int64_t opset_;
  std::vector<OnnxValue*> operands_;
};

constexpr int64_t kOldestOpset = 7;  // broadcasting as it is today

using Handler = Result<std::vector<OnnxValue>> (*)(NodeContext&);

// One operator of ONNX: `fn` is set for those that are one scalar function.
struct OperatorRow {
  const char* domain;
  const char* name;
  size_t min_inputs;
  size_t max_inputs;
  std::string_view types;  // a letter an operand (onnx_signature.cpp), the last for all behind it: equal letters are
                           // equal types; empty: the translation looks itself
  Handler handler;
  std::string_view attributes = "";  // the names that the translation knows; any other is refused, not ignored
  std::optional<Fn> fn = std::nullopt;

  bool has_attribute(std::string_view attribute) const;
  int64_t since() const;  // the oldest opset whose meaning of the operator this is
};
const OperatorRow* find_operator(std::string_view domain, std::string_view name);
std::span<const OperatorRow> operator_rows();
// What ONNX forbids, or nullopt: operands of mixed or wrong types, attributes of another kind.
std::optional<Diagnostic> check_types(NodeContext& context, std::string_view signature);
std::optional<Diagnostic> check_attributes(const NodeContext& context);
bool type_fits(char letter, DType dtype);                              // of a signature
onnx::AttributeProto::AttributeType attribute_type(std::string_view);  // by name; UNDEFINED: it depends on the operator

// Integers known at import, folded elementwise; nullopt where the result is not known.
std::optional<std::vector<sym::Expr>> fold_integers(sym::Pool& syms, Fn fn, std::span<OnnxValue* const> operands,
                                                    const graph::Shape& shape);
// where, eq and cast of a choice between two literals, simplified to the choice (masks of exporters); nullopt: no
// change.
std::optional<graph::ValueId> simplify_reshape(graph::Builder& builder, graph::ValueId value,
                                               const graph::Shape& shape);
std::optional<graph::ValueId> simplify_choice(graph::Builder& builder, Fn fn, std::span<const graph::ValueId> operands);

}  // namespace cleave::onnx_import
