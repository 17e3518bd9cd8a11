// Patterns that exporters write where one operator would say the same: recognised while the graph is built, so that the
// phases after the import see masks and transposes as what they are.
#include <algorithm>

#include "frontend/onnx_context.hpp"

namespace cleave::onnx_import {

using graph::Op;
using graph::Shape;
using graph::ValueId;

namespace {

// where(condition, literal, literal)
struct Choice {
  ValueId condition;
  double yes, no;
};
std::optional<Choice> as_choice(const graph::Graph& g, ValueId v) {
  const graph::Node& n = g.producer(v);
  if (n.op != graph::op_of(Fn::where)) return std::nullopt;
  const graph::Node &a = g.producer(n.operands[1]), &b = g.producer(n.operands[2]);
  if (a.op != Op::literal || b.op != Op::literal) return std::nullopt;
  return Choice{n.operands[0], a.attributes.get<double>("value"), b.attributes.get<double>("value")};
}

}  // namespace

std::optional<ValueId> simplify_choice(graph::Builder& builder, Fn fn, std::span<const ValueId> operands) {
  const graph::Graph& g = builder.graph();
  if (fn == Fn::eq || fn == Fn::ne) {
    for (size_t i = 0; i < 2; ++i) {
      const auto choice = as_choice(g, operands[i]);
      const graph::Node& other = g.producer(operands[1 - i]);
      if (!choice || other.op != Op::literal) continue;
      const double x = other.attributes.get<double>("value");
      const bool yes = (choice->yes == x) == (fn == Fn::eq), no = (choice->no == x) == (fn == Fn::eq);
      if (yes && !no) return choice->condition;
      if (!yes && no) return builder.make(graph::op_of(Fn::logical_not), {choice->condition});
    }
  }
  if (fn == Fn::logical_not) {
    const graph::Node& n = g.producer(operands[0]);
    if (n.op == graph::op_of(Fn::logical_not)) return n.operands[0];
  }
  if (fn == Fn::where) {
    const graph::Node& n = g.producer(operands[0]);
    if (n.op == graph::op_of(Fn::logical_not))
      return builder.make(graph::op_of(Fn::where), {n.operands[0], operands[2], operands[1]});
  }
  return std::nullopt;
}

// Reshape(Transpose(Reshape(x))) with leading axes merged before and split after the transposition of the others, as
// PyTorch's exporter writes the transposed keys of attention: one transposition of x.
std::optional<ValueId> simplify_reshape(graph::Builder& builder, ValueId value, const Shape& shape) {
  const graph::Graph& g = builder.graph();
  const graph::Node& turned = g.producer(value);
  if (turned.op != Op::transpose) return std::nullopt;
  const graph::Node& merged = g.producer(turned.operands[0]);
  if (merged.op != Op::reshape) return std::nullopt;
  const ValueId source = merged.operands[0];
  const Shape& full = g.type(source).shape;
  const Shape& flat = g.type(turned.operands[0]).shape;
  const auto perm = turned.attributes.get<std::vector<int64_t>>("perm");
  if (flat.empty() || full.size() <= flat.size() || perm[0] != 0 || shape.size() != full.size()) return std::nullopt;
  const size_t lead = full.size() - (flat.size() - 1);
  if (!std::equal(flat.begin() + 1, flat.end(), full.begin() + static_cast<std::ptrdiff_t>(lead))) return std::nullopt;
  std::vector<int64_t> whole;
  for (size_t i = 0; i < lead; ++i) whole.push_back(static_cast<int64_t>(i));
  for (size_t i = 1; i < perm.size(); ++i) whole.push_back(perm[i] - 1 + static_cast<int64_t>(lead));
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] != full[static_cast<size_t>(whole[i])]) return std::nullopt;
  }
  return builder.make(Op::transpose, {source}, {{"perm", whole}});
}

}  // namespace cleave::onnx_import
