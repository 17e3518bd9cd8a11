#include "eval/expression_eval.hpp"

#include <limits>

#include "base/match.hpp"

namespace cleave::oracle {

using namespace tile;

namespace {

double identity_real(Fn fn) {
  switch (fn) {
    case Fn::add: return 0;
    case Fn::mul: return 1;
    case Fn::max: return -std::numeric_limits<double>::infinity();
    case Fn::min: return std::numeric_limits<double>::infinity();
    default: CHECK(false, "{}", info(fn).name);
  }
}

int64_t identity_integer(Fn fn, DType d) {
  switch (fn) {
    case Fn::add: return 0;
    case Fn::mul: return 1;
    case Fn::max: return least_integer(d);
    case Fn::min: return greatest_integer(d);
    case Fn::logical_and: return 1;
    case Fn::logical_or: return 0;
    default: CHECK(false, "{}", info(fn).name);
  }
}

}  // namespace

Scalar identity(Fn fn, DType dtype) {
  return is_real(dtype) ? Scalar{identity_real(fn), 0} : Scalar{0, identity_integer(fn, dtype)};
}

Scalar combine(Fn fn, DType dtype, Scalar a, Scalar b, bool round) {
  if (is_real(dtype)) {
    const double v[] = {a.real, b.real};
    const double y = eval(fn, std::span<const double>(v));
    return {round ? round_to(dtype, y) : y, 0};
  }
  const int64_t v[] = {a.integer, b.integer};
  return {0, wrap_to(dtype, eval(fn, std::span<const int64_t>(v)))};
}

void ExpressionEvaluator::run(std::span<const Node> nodes, const std::vector<bool>& live,
                              const std::unordered_map<Expr, int64_t>& indices, std::vector<Scalar>& x) {
  x.resize(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i)
    if (live.empty() || live[i]) x[i] = evaluate(nodes, nodes[i], indices, x);
}

Scalar ExpressionEvaluator::evaluate(std::span<const Node> nodes, const Node& node,
                                     const std::unordered_map<Expr, int64_t>& indices, const std::vector<Scalar>& x) {
  return match(
      node.what,
      [&](const Load& l) -> Scalar {
        if (l.guard.valid() && !x[l.guard.index].integer) return {};
        at_.clear();
        for (const Index& i : l.at) {
          // Unsigned addition: a wild dynamic index wraps and is then out of range.
          const auto affine = static_cast<uint64_t>(syms_.evaluate(i.affine, indices));
          at_.push_back(
              static_cast<int64_t>(affine + static_cast<uint64_t>(i.dynamic.valid() ? x[i.dynamic.index].integer : 0)));
        }
        return load_(l.buffer, at_);
      },
      [&](const Literal& l) -> Scalar {
        if (is_real(node.dtype)) return {round_to(node.dtype, l.value), 0};
        return {0, real_to_integer(node.dtype, l.value)};
      },
      [&](const IndexValue& v) -> Scalar { return {0, syms_.evaluate(v.value, indices)}; },
      [&](const Apply& a) -> Scalar {
        const bool select = a.fn == Fn::where;
        const DType operand = nodes[a.operands[select ? 1 : 0].index].dtype;
        Scalar r;
        if (is_real(operand)) {
          double v[3] = {};
          for (size_t k = 0; k < a.operands.size(); ++k) {
            const Scalar s = x[a.operands[k].index];
            v[k] = select && k == 0 ? static_cast<double>(s.integer) : s.real;
          }
          const double y = eval(a.fn, std::span<const double>(v, a.operands.size()));
          if (is_real(node.dtype))
            r.real = round_ ? round_to(compute_type(node.dtype), y) : y;
          else
            r.integer = y != 0;
        } else {
          int64_t v[3] = {};
          for (size_t k = 0; k < a.operands.size(); ++k) v[k] = x[a.operands[k].index].integer;
          r.integer = wrap_to(node.dtype, eval(a.fn, std::span<const int64_t>(v, a.operands.size())));
        }
        return r;
      },
      [&](const Cast& c) -> Scalar {
        const DType from = nodes[c.operand.index].dtype;
        const Scalar v = x[c.operand.index];
        if (is_real(node.dtype))
          return {round_to(node.dtype, is_real(from) ? v.real : static_cast<double>(v.integer)), 0};
        return {0, is_real(from) ? real_to_integer(node.dtype, v.real) : wrap_to(node.dtype, v.integer)};
      });
}

}  // namespace cleave::oracle
