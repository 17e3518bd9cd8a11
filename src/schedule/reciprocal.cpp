// Divisions by a value of a row or a column, as one reciprocal a row and one multiplication an element.
//
// x * (1 / r) rounds twice where x / r rounds once; the bounds of division (eval/error_model) have room for both. It is
// the same for r of 0, infinity and NaN, and wherever 1 / r is a normal number. What is known to be one: a square root,
// which is 0 or lies in the middle half of the exponents, alone or beside something positive of that size, and the sum
// of a softmax, which is at least 1.
#include <algorithm>
#include <cmath>

#include "graph/spec.hpp"
#include "schedule/plan.hpp"

namespace cleave::schedule {

using graph::Op;
using graph::ValueId;

namespace {

bool is_view(Op op) {
  switch (op) {
    case Op::reshape:
    case Op::squeeze:
    case Op::unsqueeze:
    case Op::transpose:
    case Op::broadcast: return true;
    default: return false;
  }
}

// A positive number whose reciprocal is far from the ends of the exponents.
bool is_moderate(const graph::Node& n) {
  if (n.op != Op::literal) return false;
  const auto v = n.attributes.get<double>("value");
  return v >= 0x1p-60 && v <= 0x1p60;
}

ValueId below_views(const graph::Graph& g, ValueId v) {
  while (is_view(g.producer(v).op)) v = g.producer(v).operands[0];
  return v;
}

// Is it a sum of exp(x - max) over the axes of the maximum of x? The largest element adds 1.
bool is_softmax_sum(const graph::Graph& g, const graph::Node& sum) {
  const graph::Node& e = g.producer(sum.operands[0]);
  if (e.op != Op::exp) return false;
  const graph::Node& difference = g.producer(e.operands[0]);
  if (difference.op != Op::sub) return false;
  const graph::Node& top = g.producer(below_views(g, difference.operands[1]));
  const size_t rank = g.type(difference.operands[0]).shape.size();
  return top.op == Op::amax && top.operands[0] == difference.operands[0] &&
         graph::reduced_axes(top, rank) == graph::reduced_axes(sum, rank);
}

// 0, NaN, infinity, or a positive number whose reciprocal is normal.
bool is_safe(const graph::Graph& g, ValueId v, int depth = 0) {
  const graph::Node& n = g.producer(v);
  if (depth > 8) return false;
  const auto operand = [&](size_t i) { return is_safe(g, n.operands[i], depth + 1); };
  const auto moderate = [&](size_t i) { return is_moderate(g.producer(n.operands[i])); };
  if (is_view(n.op)) return operand(0);
  switch (n.op) {
    case Op::sqrt: return true;
    case Op::sum: return is_softmax_sum(g, n);
    case Op::add:
    case Op::max: return (operand(0) && (moderate(1) || operand(1))) || (moderate(0) && operand(1));
    default: return false;
  }
}

}  // namespace

graph::Graph hoist_reciprocals(const graph::Graph& g) {
  const auto elements = [](graph::Builder& b, ValueId v) {
    return b.syms().typical(b.syms().product(b.type(v).shape));
  };
  return graph::rewrite(
      g, [&](graph::Builder& b, graph::NodeId id, std::span<const ValueId> x) -> std::optional<std::vector<ValueId>> {
        const graph::Node& n = g.node(id);
        if (n.op != Op::div) return std::nullopt;
        const graph::Type type = g.type(n.results[0]);
        if (type.dtype != DType::f32 && type.dtype != DType::f64) return std::nullopt;
        // Below the views of the divisor, each of which is made again behind the reciprocal.
        std::vector<graph::Node> views;
        ValueId root = x[1];
        for (; is_view(b.graph().producer(root).op); root = b.graph().producer(root).operands[0])
          views.push_back(b.graph().producer(root));
        if (b.type(root).dtype != type.dtype || !is_safe(b.graph(), root)) return std::nullopt;
        const int64_t all = b.syms().typical(b.syms().product(type.shape));
        if (elements(b, root) >= all) return std::nullopt;
        ValueId r = b.make(Op::reciprocal, {root});
        for (size_t i = views.size(); i-- > 0;) {
          std::vector<ValueId> operands = views[i].operands;
          operands[0] = r;
          r = b.make(views[i].op, std::move(operands), views[i].attributes);
        }
        return {{b.make(Op::mul, {x[0], r})}};
      });
}

}  // namespace cleave::schedule
