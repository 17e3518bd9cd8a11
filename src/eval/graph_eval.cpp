#include "eval/graph_eval.hpp"

#include "base/codes.hpp"
#include "eval/graph_driver.hpp"
#include "graph/expand.hpp"

namespace cleave::oracle {

using graph::Graph;
using graph::Op;

std::vector<graph::ValueId> given_leaves(const Graph& graph) {
  std::vector<graph::ValueId> out;
  for (graph::ValueId v : graph.leaves())
    if (graph.producer(v).op != Op::constant) out.push_back(v);
  return out;
}

Diagnostics check_request(const Graph& graph, std::span<const Tensor> inputs, const EvalOptions& options) {
  Diagnostics out;
  for (size_t i = 0; i < graph.value_count(); ++i)
    for (sym::Expr e : graph.type(graph::ValueId(static_cast<uint32_t>(i))).shape) {
      if (graph.syms().as_constant(e)) continue;
      const std::string name = graph.syms().print(graph.syms().symbols_of(e).at(0));
      out.push_back(diagnose(Code::unbound_dim, name, name));
      return out;
    }
  for (graph::NodeId id : graph.node_ids())
    for (const auto& [key, value] : graph.node(id).attributes.items())
      if (const auto* extents = std::get_if<std::vector<sym::Expr>>(&value))
        for (sym::Expr e : *extents)
          if (!graph.syms().as_constant(e)) {
            const std::string name = graph.syms().print(graph.syms().symbols_of(e).at(0));
            out.push_back(diagnose(Code::unbound_dim, name, name));
            return out;
          }
  const auto leaves = given_leaves(graph);
  if (leaves.size() != inputs.size()) {
    out.push_back(diagnose(Code::wrong_arity, graph.name(), leaves.size(), inputs.size()));
    return out;
  }
  for (size_t i = 0; i < leaves.size(); ++i) {
    const Tensor& t = inputs[i];
    const std::string& name = graph.value(leaves[i]).name;
    if (t.dtype != graph.type(leaves[i]).dtype)
      out.push_back(diagnose(
          Code::bad_dtype, name,
          fmt::format("is {}, {} was given", cleave::name(graph.type(leaves[i]).dtype), cleave::name(t.dtype))));
    if (t.extents != graph.extents(leaves[i]))
      out.push_back(diagnose(Code::bad_shape, name,
                             fmt::format("is [{}], [{}] was given", fmt::join(graph.extents(leaves[i]), ", "),
                                         fmt::join(t.extents, ", "))));
    else if (t.elements() != product(t.extents))
      out.push_back(diagnose(Code::bad_shape, name,
                             fmt::format("has {} elements, {} were given", product(t.extents), t.elements())));
  }
  // Extents are at most kMaxElements each, so their products are first formed as doubles.
  double elements = 0, steps = 0;
  for (size_t i = 0; i < graph.value_count() && out.empty(); ++i) {
    double n = 1;
    for (int64_t e : graph.extents(graph::ValueId(static_cast<uint32_t>(i)))) n *= static_cast<double>(e);
    elements += n;
  }
  if (elements > static_cast<double>(options.max_elements)) {
    out.push_back(diagnose(Code::extent_too_large, graph.name(), static_cast<int64_t>(std::min(elements, 0x1p62)),
                           options.max_elements));
    return out;
  }
  for (graph::NodeId id : graph.node_ids()) {
    if (!out.empty()) return out;
    steps += work_of(Site(graph, graph.node(id)));
  }
  if (steps > options.max_steps)
    out.push_back(diagnose(Code::graph_too_large, options.max_steps, "steps of evaluation"));
  return out;
}

namespace {

template <class Keep>
Result<std::vector<Tensor>> run(const Graph& original, std::span<const Tensor> inputs, const EvalOptions& options,
                                Keep keep) {
  const Graph graph = graph::expand_to_primitives(original);
  if (auto bad = check_request(graph, inputs, options); !bad.empty()) return bad;
  const bool round = options.round_to_storage;
  auto leaf = [&](const Tensor& t) {
    Tensor copy = t;
    if (round) round_to_storage(copy);
    return copy;
  };
  auto node = [&](const Site& site, std::span<const Tensor* const> in) {
    if (!options.round_casts && site.node.op == graph::Op::cast && in[0]->real() && is_real(site.dtype())) {
      Tensor same = *in[0];
      same.dtype = site.dtype();
      return std::vector<Tensor>{std::move(same)};
    }
    std::vector<Tensor> results = apply_primitive(site, in);
    if (!options.round_casts && site.node.op == graph::Op::literal && byte_size(site.dtype()) >= 4 &&
        is_real(site.dtype()))
      results[0].reals[0] = site.node.attributes.get<double>("value");
    if (round)
      for (Tensor& t : results) round_to_storage(t);
    return results;
  };
  return drive<Tensor>(graph, inputs, leaf, node, [&](graph::ValueId v, const Tensor& t) { keep(graph, v, t); });
}

}  // namespace

Result<std::vector<Tensor>> evaluate(const Graph& graph, std::span<const Tensor> inputs, const EvalOptions& options) {
  return run(graph, inputs, options, [](const Graph&, graph::ValueId, const Tensor&) {});
}

Result<std::vector<Tensor>> in_leaf_order(const Graph& graph, const std::map<std::string, Tensor>& inputs) {
  std::vector<Tensor> ordered;
  Diagnostics missing;
  for (graph::ValueId v : given_leaves(graph)) {
    auto it = inputs.find(graph.value(v).name);
    if (it == inputs.end())
      missing.push_back(diagnose(Code::undefined_name, graph.value(v).name));
    else
      ordered.push_back(it->second);
  }
  if (!missing.empty()) return missing;
  return ordered;
}

Result<std::vector<Tensor>> evaluate(const Graph& graph, const std::map<std::string, Tensor>& inputs,
                                     const EvalOptions& options) {
  TRY_ASSIGN(const std::vector<Tensor> ordered, in_leaf_order(graph, inputs));
  return evaluate(graph, ordered, options);
}

Result<std::map<std::string, Tensor>> evaluate_named_values(const Graph& graph, std::span<const Tensor> inputs,
                                                            const EvalOptions& options) {
  std::map<std::string, Tensor> named;
  auto keep = [&](const Graph& g, graph::ValueId v, const Tensor& t) {
    if (!g.value(v).name.empty()) named.emplace(g.value(v).name, t);
  };
  TRY_ASSIGN([[maybe_unused]] const auto outputs, run(graph, inputs, options, keep));
  return named;
}

}  // namespace cleave::oracle
