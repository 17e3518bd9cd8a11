#include "schedule/join.hpp"

#include <algorithm>

#include "schedule/blocks.hpp"

namespace cleave::schedule {

using itgraph::Block;
using itgraph::Kind;
using itgraph::Loop;
using sym::Expr;

namespace {

Expr renamed(const Group& g, Expr s) {
  const auto it = g.rename.find(s);
  return it == g.rename.end() ? s : it->second;
}

const itgraph::Target* target_of(const Plan& plan, const Group& g, itgraph::ValueId v) {
  for (size_t u : g.units)
    if (!plan.units[u].is_library())
      for (const itgraph::Target& t : plan.units[u].compute().results)
        if (t.value == v) return &t;
  return nullptr;
}

// The group that reads what another makes, if it is one.
std::optional<size_t> only_reader(const Plan& plan, std::span<const Group> groups, size_t of) {
  std::optional<size_t> out;
  const std::vector<size_t>& made = groups[of].units;
  for (size_t g = 0; g < groups.size(); ++g) {
    if (g == of) continue;
    for (size_t u : groups[g].units)
      for (size_t o : plan.units[u].operands) {
        if (std::find(made.begin(), made.end(), o) == made.end()) continue;
        if (out && *out != g) return std::nullopt;
        out = g;
      }
  }
  return out;
}

// The reader's indices that stand for the loops of the parts: every element that it reads is then one of its own tile.
std::optional<std::map<Expr, Expr>> same_tile(const Plan& plan, const Group& parts, const Group& reader,
                                              std::span<const Loop> loops) {
  std::map<Expr, Expr> out;
  for (size_t u : reader.units) {
    if (plan.units[u].is_library()) return std::nullopt;
    for (const tile::Node& n : plan.units[u].compute().nodes) {
      const auto* l = std::get_if<tile::Load>(&n.what);
      if (!l) continue;
      if (const auto base = plan.it.value(l->buffer).alias_of; base.valid() && target_of(plan, parts, base))
        return std::nullopt;
      const itgraph::Target* t = target_of(plan, parts, l->buffer);
      if (!t) continue;
      for (size_t a = 0; a < l->at.size(); ++a) {
        const Expr made = renamed(parts, t->axes[a]);
        if (std::none_of(loops.begin(), loops.end(), [&](const Loop& x) { return x.index == made; })) continue;
        if (l->at[a].dynamic.valid() || plan.it.syms->kind(l->at[a].affine) != sym::Kind::symbol) return std::nullopt;
        const Expr read = renamed(reader, l->at[a].affine);
        if (out.emplace(read, made).first->second != made) return std::nullopt;
      }
    }
  }
  std::set<Expr> distinct;
  for (const auto& [read, made] : out) distinct.insert(made);
  if (distinct.size() != out.size() || out.size() != loops.size()) return std::nullopt;
  return out;
}

}  // namespace

std::optional<Join> join(const Plan& plan, std::span<const Group> groups, std::span<const itgraph::Kernel> kernels,
                         const Tiling& tiling, const std::set<itgraph::ValueId>& visible) {
  for (size_t g = 0; g < groups.size(); ++g) {
    const auto* block = std::get_if<Block>(&kernels[g].what);
    if (!block) continue;
    const Expr own = renamed(groups[g], plan.part);
    std::vector<Loop> outer = block->loops;
    const auto loop = std::find_if(outer.begin(), outer.end(), [&](const Loop& l) { return l.index == own; });
    if (loop == outer.end()) continue;
    const Loop parts = *loop;
    outer.erase(loop);
    const auto reader = only_reader(plan, groups, g);
    if (!reader || *reader < g) return std::nullopt;
    const auto tiles = same_tile(plan, groups[g], groups[*reader], outer);
    if (!tiles) return std::nullopt;
    Group rest = groups[*reader];
    for (auto& [from, to] : rest.rename)
      if (const auto it = tiles->find(to); it != tiles->end()) to = it->second;
    for (const auto& [from, to] : *tiles) rest.rename.emplace(from, to);
    auto kernel = build_kernel(plan, rest, tiling, visible, &outer);
    if (!kernel) return std::nullopt;
    auto& joined = std::get<Block>(kernel->what);
    joined.items.insert(joined.items.begin(), {Block{Kind::parallel, {parts}, block->items}});
    return Join{g, *reader, std::move(*kernel)};
  }
  return std::nullopt;
}

}  // namespace cleave::schedule
