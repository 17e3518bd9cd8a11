#include "tile/expression.hpp"

#include "base/match.hpp"

namespace cleave::tile {

void for_each_operand(const Node& node, const std::function<void(NodeId)>& visit) {
  match(
      node.what,
      [&](const Load& l) {
        for (const Index& i : l.at)
          if (i.dynamic.valid()) visit(i.dynamic);
        if (l.guard.valid()) visit(l.guard);
      },
      [](const Literal&) {}, [](const IndexValue&) {},
      [&](const Apply& a) {
        for (NodeId o : a.operands) visit(o);
      },
      [&](const Cast& c) { visit(c.operand); });
}

std::vector<bool> reachable(std::span<const Node> nodes, std::span<const NodeId> roots) {
  std::vector<bool> live(nodes.size());
  for (NodeId r : roots) live[r.index] = true;
  for (size_t i = nodes.size(); i-- > 0;)
    if (live[i]) for_each_operand(nodes[i], [&](NodeId o) { live[o.index] = true; });
  return live;
}

namespace {

// Whether a function of this rule takes operands of this dtype.
bool takes(FnRule rule, DType d) {
  switch (rule) {
    case FnRule::arith:
    case FnRule::compare:
    case FnRule::select: return true;
    case FnRule::real:
    case FnRule::real_test: return is_real(d);
    case FnRule::logic: return d == DType::boolean;
  }
  return false;
}

}  // namespace

void check_expression(std::span<const Node> nodes, const std::function<std::optional<TensorType>(BufferId)>& tensor,
                      const std::function<void(std::string)>& bad) {
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    const Node& n = nodes[i];
    bool ordered = true;
    for_each_operand(n, [&](NodeId id) { ordered = ordered && id.index < i; });
    if (!ordered) {
      bad("an expression uses a later one");
      continue;
    }
    auto of = [&](NodeId id) { return compute_type(nodes[id.index].dtype); };
    if (!std::holds_alternative<Cast>(n.what) && n.dtype != compute_type(n.dtype))
      bad(fmt::format("nothing but a cast gives {}", name(n.dtype)));
    match(
        n.what,
        [&](const Load& l) {
          const auto t = tensor(l.buffer);
          if (!t) return;
          if (l.at.size() != t->rank) bad(fmt::format("`{}` has {} axes, {} indices", t->name, t->rank, l.at.size()));
          for (const Index& x : l.at)
            if (x.dynamic.valid() && nodes[x.dynamic.index].dtype != DType::i64)
              bad(fmt::format("an index of `{}` is no i64", t->name));
          if (l.guard.valid() && nodes[l.guard.index].dtype != DType::boolean) bad("a guard is no bool");
          if (n.dtype != compute_type(t->dtype)) bad(fmt::format("a load of `{}` has the wrong dtype", t->name));
        },
        [](const Literal&) {},
        [&](const IndexValue&) {
          if (n.dtype != DType::i64) bad("an index value is no i64");
        },
        [&](const Apply& a) {
          const FnInfo& f = info(a.fn);
          if (static_cast<int>(a.operands.size()) != f.arity)
            return bad(fmt::format("`{}` has the wrong arity", f.name));
          std::optional<DType> common;
          for (size_t k = 0; k < a.operands.size(); ++k) {
            const DType d = of(a.operands[k]);
            if (a.fn == Fn::where && k == 0) {
              if (d != DType::boolean) bad("`where` needs a bool condition");
              continue;
            }
            if (common && *common != d) return bad(fmt::format("`{}` mixes {} and {}", f.name, name(*common), name(d)));
            common = d;
          }
          if (!common) return;
          if (!takes(f.rule, *common)) return bad(fmt::format("`{}` takes no {}", f.name, name(*common)));
          if (n.dtype != result_dtype(a.fn, *common)) bad(fmt::format("`{}` has the wrong dtype", f.name));
        },
        [](const Cast&) {});
  }
}

}  // namespace cleave::tile
