// Makes failing graphs small.
#include <map>

#include "support/random_graph.hpp"

namespace cleave::testing {

using graph::Builder;
using graph::Category;
using graph::Graph;
using graph::Op;
using graph::ValueId;

namespace {

// Copies what the outputs need, reading `instead[v]` where that is set.
Graph copy_part(const Graph& g, const std::vector<graph::Output>& outputs, const std::map<uint32_t, ValueId>& instead) {
  auto resolve = [&](ValueId v) {
    for (auto it = instead.find(v.index); it != instead.end(); it = instead.find(v.index)) v = it->second;
    return v;
  };
  std::vector<bool> needed(g.node_count());
  for (const auto& o : outputs) needed[g.value(resolve(o.value)).node.index] = true;
  for (size_t i = g.node_count(); i-- > 0;)
    if (needed[i])
      for (ValueId v : g.node(graph::NodeId(static_cast<uint32_t>(i))).operands)
        needed[g.value(resolve(v)).node.index] = true;
  Builder b(g.name(), g.shared_syms());
  std::vector<ValueId> map(g.value_count());
  for (graph::NodeId id : g.node_ids()) {
    if (!needed[id.index]) continue;
    const graph::Node& n = g.node(id);
    std::vector<ValueId> operands, results;
    for (ValueId v : n.operands) operands.push_back(map[resolve(v).index]);
    const auto& a = n.attributes;
    if (n.op == Op::input)
      results = {b.input(a.get<std::string>("name"), a.get<DType>("dtype"), a.get<std::vector<sym::Expr>>("shape"))};
    else if (n.op == Op::scalar)
      results = {b.scalar(a.get<std::string>("name"), a.get<DType>("dtype"))};
    else if (n.op == Op::constant)
      results = {b.constant(a.get<std::string>("name"), a.get<DType>("dtype"), a.get<std::vector<sym::Expr>>("shape"),
                            a.get<graph::ConstantData>("data"))};
    else
      results = b.make_all(n.op, operands, a);
    for (size_t i = 0; i < results.size(); ++i) map[n.results[i].index] = results[i];
  }
  for (const auto& o : outputs) b.output(o.name, map[resolve(o.value).index]);
  return b.take();
}

}  // namespace

Graph extract(const Graph& graph, const std::vector<graph::Output>& outputs) { return copy_part(graph, outputs, {}); }

Graph shrink(Graph g, const std::function<bool(const Graph&)>& fails) {
  auto try_it = [&](const std::vector<graph::Output>& outputs, const std::map<uint32_t, ValueId>& instead) {
    Graph smaller = copy_part(g, outputs, instead);
    if (!fails(smaller)) return false;
    g = std::move(smaller);
    return true;
  };
  for (bool changed = true; changed;) {
    changed = false;
    if (g.outputs().size() > 1)
      for (const auto& o : g.outputs())
        if (try_it({o}, {})) {
          changed = true;
          break;
        }
    if (changed) continue;
    // An earlier value as the only output.
    for (size_t v = 0; v < g.value_count() && !changed; ++v) {
      const ValueId id(static_cast<uint32_t>(v));
      if (g.outputs().size() == 1 && g.outputs()[0].value == id) continue;
      if (info(g.producer(id).op).category != Category::leaf) changed = try_it({{"y0", id}}, {});
    }
    for (graph::NodeId id : g.node_ids()) {
      if (changed) break;
      const graph::Node& n = g.node(id);
      if (n.results.size() != 1) continue;
      for (ValueId v : n.operands)
        if (!changed && g.type(v) == g.type(n.results[0])) changed = try_it(g.outputs(), {{n.results[0].index, v}});
    }
  }
  return g;
}

}  // namespace cleave::testing
