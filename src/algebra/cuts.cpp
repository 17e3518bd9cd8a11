#include "algebra/cuts.hpp"

#include <algorithm>
#include <set>

#include "algebra/normal.hpp"
#include "algebra/values.hpp"

namespace cleave::algebra {

using graph::Category;
using graph::NodeId;
using graph::ValueId;

namespace {

bool passes_on(Category c) { return c == Category::view || c == Category::cast; }

// How many contractions read each value, through views and casts.
std::vector<int> contractions_of(const graph::Graph& g) {
  std::vector<int> out(g.value_count());
  const auto ids = g.node_ids();
  for (auto it = ids.rbegin(); it != ids.rend(); ++it) {
    const graph::Node& n = g.node(*it);
    const Category c = graph::info(n.op).category;
    int own = c == Category::contract ? 1 : 0;
    if (passes_on(c))
      for (ValueId r : n.results) own += out[r.index];
    for (ValueId v : n.operands) out[v.index] += own;
  }
  return out;
}

}  // namespace

std::vector<ValueId> inner_cuts(const Program& program, const Step& step) {
  const graph::Graph& g = *program.graph;
  std::set<ValueId> ends;  // where regions end
  for (const Step& s : program.steps)
    for (const Root& r : s.roots) ends.insert(r.value);
  for (const Step& s : program.steps)
    if (s.barrier.valid())
      for (ValueId v : g.node(s.barrier).results) ends.insert(v);
  std::set<NodeId> inside;
  std::vector<ValueId> todo;
  for (const Root& r : step.roots) todo.push_back(r.value);
  while (!todo.empty()) {
    const NodeId id = g.value(todo.back()).node;
    todo.pop_back();
    if (graph::info(g.node(id).op).category == Category::leaf || !inside.insert(id).second) continue;
    for (ValueId v : g.node(id).operands)
      if (!ends.count(v)) todo.push_back(v);
  }
  const std::vector<int> contractions = contractions_of(g);
  std::vector<bool> reduced(g.value_count());
  std::vector<ValueId> out;
  for (NodeId id : inside) {  // operands first
    const graph::Node& n = g.node(id);
    const Category c = graph::info(n.op).category;
    const bool behind = c == Category::reduce ||
                        std::any_of(n.operands.begin(), n.operands.end(), [&](ValueId v) { return reduced[v.index]; });
    for (ValueId r : n.results) {
      reduced[r.index] = behind;
      if (behind && c == Category::elementwise && contractions[r.index] > 1 && !ends.count(r)) out.push_back(r);
    }
  }
  return out;
}

bool richer_than(const Program& program, const Step& step, size_t limit) {
  try {
    Normaliser normal(*program.form);
    Values values(normal, limit);
    for (const Root& r : step.roots) values.add(r.term);
    values.saturate();
    return !values.saturated();
  } catch (const TooLarge&) {
    return true;
  }
}

}  // namespace cleave::algebra
