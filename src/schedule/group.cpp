// Gathering units into kernels.
//
// Units go together when one loop nest can compute them: every value made inside is read at exactly its own indices
// (unify), no path leaves the group and comes back, and the work done again for indices that a unit lacks stays small.
#include <algorithm>
#include <functional>

#include "schedule/blocks.hpp"
#include "schedule/plan.hpp"

namespace cleave::schedule {

using itgraph::Compute;
using sym::Expr;

namespace {

// Columns of a product computed at once by one task at least; an index of at most kWhole stays whole in every task.
constexpr int64_t kWhole = 256;
constexpr int64_t kRows = 64;
// Groups below this much work may lose parallel indices when they are merged.
constexpr double kSmallWork = 1 << 15;

class Symbols {
 public:
  Expr find(Expr s) {
    auto it = up_.find(s);
    if (it == up_.end() || it->second == s) return s;
    return it->second = find(it->second);
  }
  void unite(Expr a, Expr b) {
    a = find(a);
    b = find(b);
    if (a == b) return;
    if (b < a) std::swap(a, b);
    up_[b] = a;
    up_.emplace(a, a);
  }
  std::unordered_map<Expr, Expr> all() {
    std::unordered_map<Expr, Expr> out;
    for (auto& [s, up] : up_) out[s] = find(s);
    return out;
  }

 private:
  std::unordered_map<Expr, Expr> up_;
};

Expr renamed(const Group& g, Expr s) {
  auto it = g.rename.find(s);
  return it == g.rename.end() ? s : it->second;
}

void add_unique(std::vector<Expr>& to, Expr s) {
  if (std::find(to.begin(), to.end(), s) == to.end()) to.push_back(s);
}

}  // namespace

std::vector<Expr> axes_of(const Plan& plan, const Group& group, size_t unit) {
  std::vector<Expr> out;
  for (const itgraph::Target& t : plan.units[unit].compute().results)
    for (Expr s : t.axes) add_unique(out, renamed(group, s));
  return out;
}

itgraph::Compute renamed(const Plan& plan, const Group& group, size_t unit) {
  Compute c = plan.units[unit].compute();
  sym::Pool& pool = *plan.it.syms;
  for (Expr& s : c.reduced) s = renamed(group, s);
  for (itgraph::Target& t : c.results)
    for (Expr& s : t.axes) s = renamed(group, s);
  for (tile::Node& n : c.nodes) {
    if (auto* l = std::get_if<tile::Load>(&n.what))
      for (tile::Index& i : l->at) i.affine = pool.substitute(i.affine, group.rename);
    if (auto* v = std::get_if<tile::IndexValue>(&n.what)) v->value = pool.substitute(v->value, group.rename);
  }
  return c;
}

std::vector<Expr> reduced_of(const Plan& plan, const Group& group, size_t unit) {
  std::vector<Expr> out;
  for (Expr s : plan.units[unit].compute().reduced) add_unique(out, renamed(group, s));
  return out;
}

std::optional<Group> unify(const Plan& plan, std::vector<size_t> units) {
  std::sort(units.begin(), units.end());
  Group group{units, {}};
  const sym::Pool& syms = *plan.it.syms;
  for (size_t u : units)
    if (plan.units[u].is_library()) {
      if (units.size() == 1) return group;
      return std::nullopt;
    }
  std::map<itgraph::ValueId, const itgraph::Target*> made;
  for (size_t u : units)
    for (const itgraph::Target& t : plan.units[u].compute().results) made[t.value] = &t;
  Symbols symbols;
  for (size_t u : units)
    for (const tile::Node& n : plan.units[u].compute().nodes) {
      const auto* l = std::get_if<tile::Load>(&n.what);
      if (!l) continue;
      const itgraph::ValueId base = plan.it.value(l->buffer).alias_of;
      if (base.valid() && made.count(base)) return std::nullopt;  // read under another shape
      auto it = made.find(l->buffer);
      if (it == made.end()) continue;
      for (size_t a = 0; a < l->at.size(); ++a) {
        const Expr own = it->second->axes[a], read = l->at[a].affine;
        if (l->at[a].dynamic.valid() || l->guard.valid()) return std::nullopt;
        if (syms.is(plan.it.extents.at(own), 1) && syms.is(read, 0)) continue;
        if (syms.kind(read) != sym::Kind::symbol || !plan.it.extents.count(read)) return std::nullopt;
        if (plan.it.extents.at(read) != plan.it.extents.at(own)) return std::nullopt;
        symbols.unite(own, read);
      }
    }
  group.rename = symbols.all();
  // An index stands for one axis: none of a unit's symbols may have become one.
  for (size_t u : units) {
    const Compute& c = plan.units[u].compute();
    std::vector<Expr> reduced;
    for (Expr s : c.reduced) {
      const Expr r = renamed(group, s);
      if (std::find(reduced.begin(), reduced.end(), r) != reduced.end()) return std::nullopt;
      reduced.push_back(r);
    }
    for (const itgraph::Target& t : c.results) {
      std::vector<Expr> seen = reduced;
      for (Expr s : t.axes) {
        const Expr r = renamed(group, s);
        if (std::find(seen.begin(), seen.end(), r) != seen.end()) return std::nullopt;
        seen.push_back(r);
      }
    }
  }
  return group;
}

namespace {

class Grouper {
 public:
  Grouper(const Plan& plan, bool fuse) : plan_(plan), fuse_(fuse) {
    for (size_t i = 0; i < plan.units.size(); ++i) {
      groups_.push_back(*unify(plan, {i}));
      group_of_.push_back(i);
    }
  }

  // Of neighbours that stay apart, with names of values.
  std::vector<Refusal> refusals() const {
    std::vector<Refusal> out;
    std::set<std::pair<size_t, size_t>> known;
    for (size_t u = 0; u < plan_.units.size(); ++u)
      for (size_t o : plan_.units[u].operands) {
        if (group_of_[o] == group_of_[u] || !known.insert({o, u}).second) continue;
        Group merged;
        auto why = refusal(group_of_[o], group_of_[u], merged);
        if (!why) continue;
        Refusal r{plan_.units[o].name, plan_.units[u].name, std::move(*why), {}};
        for (size_t g : {group_of_[o], group_of_[u]})
          for (size_t v : groups_[g].units) r.values.push_back(plan_.units[v].name);
        out.push_back(std::move(r));
      }
    return out;
  }

  std::vector<Group> run() {
    // Consumers pull in the groups they read, until nothing changes.
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t u = 0; u < plan_.units.size(); ++u)
        for (size_t o : plan_.units[u].operands)
          if (group_of_[o] != group_of_[u] && merge(group_of_[o], group_of_[u])) changed = true;
    }
    return ordered();
  }

 private:
  bool heavy(const Group& g) const {
    return std::any_of(g.units.begin(), g.units.end(), [&](size_t u) { return plan_.units[u].heavy; });
  }

  // A path from one group to the other through a third one would become a cycle. Operands precede their users, so
  // everything between the two is found by walking back from the consumer.
  bool passes_outside(size_t producer, size_t consumer) const {
    std::vector<size_t> todo;
    std::vector<bool> seen(groups_.size());
    auto visit = [&](size_t group, bool direct) {
      for (size_t u : groups_[group].units)
        for (size_t o : plan_.units[u].operands) {
          const size_t g = group_of_[o];
          if (g == group || g == consumer || (direct && g == producer)) continue;
          if (g == producer) return true;
          if (!seen[g]) {
            seen[g] = true;
            todo.push_back(g);
          }
        }
      return false;
    };
    if (visit(consumer, true)) return true;
    while (!todo.empty()) {
      const size_t g = todo.back();
      todo.pop_back();
      if (visit(g, false)) return true;
    }
    return false;
  }

  // Indices that every visible result carries and that are not reduced anywhere in the group.
  std::vector<Expr> common(const Group& g) const {
    std::optional<std::vector<Expr>> out;
    std::vector<Expr> reduced;
    for (size_t u : g.units)
      for (Expr s : reduced_of(plan_, g, u)) add_unique(reduced, s);
    for (size_t u : g.units) {
      if (!leaves_group(g, u)) continue;
      for (const itgraph::Target& t : plan_.units[u].compute().results) {
        std::vector<Expr> own;
        for (Expr s : t.axes)
          if (most_of(plan_, s) > 1 && std::find(reduced.begin(), reduced.end(), renamed(g, s)) == reduced.end())
            own.push_back(renamed(g, s));
        if (!out) out = own;
        std::erase_if(*out, [&](Expr s) { return std::find(own.begin(), own.end(), s) == own.end(); });
      }
    }
    return out.value_or(std::vector<Expr>{});
  }

  bool leaves_group(const Group& g, size_t unit) const {
    if (plan_.units[unit].visible) return true;
    for (size_t u = 0; u < plan_.units.size(); ++u) {
      if (std::find(g.units.begin(), g.units.end(), u) != g.units.end()) continue;
      const auto& ops = plan_.units[u].operands;
      if (std::find(ops.begin(), ops.end(), unit) != ops.end()) return true;
    }
    return false;
  }

  double work(const Group& g) const {
    double w = 0;
    for (size_t u : g.units) w += plan_.units[u].work;
    return w;
  }
  // Tasks that could run at once.
  double parallelism(const Group& g) const {
    const std::vector<Expr> cut = common(g);
    const std::vector<Expr> whole = heavy(g) ? std::vector<Expr>{} : light_tasks(plan_, g, cut).whole;
    double p = 1;
    for (Expr s : cut)
      if (std::find(whole.begin(), whole.end(), s) == whole.end()) p *= static_cast<double>(extent_of(plan_, s));
    return p;
  }

  // Work done again because a unit lacks an index that tasks are cut along. Columns of a product are kept whole or cut
  // in wide pieces, other indices in tiles of some rows.
  double recomputed(const Group& g) const {
    const auto cut = common(g);
    const bool products = heavy(g);
    std::map<Expr, int64_t> pieces;  // of a group without products
    if (!products)
      for (const itgraph::Loop& l : light_tasks(plan_, g, cut).loops)
        pieces[l.index] = (std::max<int64_t>(1, extent_of(plan_, l.index)) + l.step - 1) / l.step;
    std::vector<Expr> columns;
    for (size_t u : g.units)
      if (plan_.units[u].heavy)
        for (Expr s : product_roles(plan_, g, u).columns) add_unique(columns, s);
    double extra = 0;
    for (size_t u : g.units) {
      const auto own = axes_of(plan_, g, u);
      double factor = 1;
      for (Expr s : cut) {
        if (std::find(own.begin(), own.end(), s) != own.end()) continue;
        if (!products) {
          const auto it = pieces.find(s);
          factor *= it == pieces.end() ? 1.0 : static_cast<double>(it->second);
          continue;
        }
        const int64_t n = extent_of(plan_, s);
        const int64_t tile = std::find(columns.begin(), columns.end(), s) != columns.end() ? kWhole : kRows;
        factor *= static_cast<double>((n + tile - 1) / tile);
      }
      extra += plan_.units[u].work * (factor - 1);
    }
    return extra;
  }

  // Work done again because a unit is needed in several loops. nullopt: no loops can be found for the group.
  std::optional<double> repeated(const Group& g) const {
    std::set<itgraph::ValueId> visible;
    for (size_t u : g.units)
      if (leaves_group(g, u)) visible.insert(plan_.units[u].results.begin(), plan_.units[u].results.end());
    const auto kernel = build_kernel(plan_, g, Tiling{}, visible);
    if (!kernel) return std::nullopt;
    std::map<itgraph::ValueId, int> times;
    std::function<void(const itgraph::Block&)> count = [&](const itgraph::Block& b) {
      for (const itgraph::Item& i : b.items) {
        if (const auto* c = std::get_if<Compute>(&i.what))
          ++times[c->results[0].value];
        else
          count(std::get<itgraph::Block>(i.what));
      }
    };
    if (const auto* b = std::get_if<itgraph::Block>(&kernel->what)) count(*b);
    double extra = 0;
    for (size_t u : g.units) extra += plan_.units[u].work * std::max(0, times[plan_.units[u].results[0]] - 1);
    return extra;
  }

  bool merge(size_t producer, size_t consumer) {
    if (groups_[producer].units.empty() || groups_[consumer].units.empty()) return false;
    Group merged;
    if (refusal(producer, consumer, merged)) return false;
    for (size_t u : groups_[consumer].units) group_of_[u] = producer;
    groups_[producer] = std::move(merged);
    groups_[consumer] = Group{};
    return true;
  }

  // Why two groups stay apart; nothing: `merged` is both as one.
  std::optional<std::string> refusal(size_t producer, size_t consumer, Group& merged) const {
    const Group &a = groups_[producer], &b = groups_[consumer];
    if (!fuse_ && (heavy(a) || heavy(b))) return "a contraction has a kernel of its own";
    for (size_t u : b.units)
      if (plan_.units[u].apart)
        for (size_t o : plan_.units[u].operands)
          if (group_of_[o] == producer) return "it merges parts that run in parallel";
    if (plan_.units[a.units[0]].constant != plan_.units[b.units[0]].constant)
      return "one is computed from constants alone, once";
    std::vector<size_t> units = a.units;
    units.insert(units.end(), b.units.begin(), b.units.end());
    auto unified = unify(plan_, units);
    if (!unified) return "an element of one is needed at other indices than its own by the other";
    if (passes_outside(producer, consumer)) return "something between them is computed by another kernel";
    merged = std::move(*unified);
    const double total = work(merged);
    if (total > kSmallWork) {
      // What ran in parallel must still do so, unless enough does.
      constexpr double kEnough = 64;
      const double least = std::min({parallelism(a), parallelism(b), kEnough}), left = parallelism(merged);
      if (left < least) return fmt::format("only {} elements could be computed in parallel, not {}", left, least);
    }
    if (!fits(merged)) return "what one task keeps would be too large";
    const auto again = repeated(merged);
    if (!again) return "no order of loops computes both";
    const double repeats = recomputed(merged) + (heavy(merged) ? *again : 0);
    if (repeats > kMostRecomputed * total)
      return fmt::format("{:.0f} % of the work would be done again", 100 * repeats / total);
    return std::nullopt;
  }

  // A value made inside by a contraction must be small in the indices that tasks do not cut: what is neither common nor
  // reduced by its readers stays whole in scratch.
  bool fits(const Group& g) const {
    constexpr double kMostScratch = 1 << 18;  // elements a task may hold of indices that are nowhere cut
    const auto cut = common(g);
    std::vector<Expr> reduced;
    for (size_t u : g.units)
      for (Expr s : reduced_of(plan_, g, u)) add_unique(reduced, s);
    for (size_t u : g.units) {
      if (!heavy(g) && plan_.units[u].compute().how == Compute::How::map) continue;
      double whole = 1;
      for (Expr s : axes_of(plan_, g, u))
        if (std::find(cut.begin(), cut.end(), s) == cut.end() &&
            std::find(reduced.begin(), reduced.end(), s) == reduced.end())
          whole *= static_cast<double>(extent_of(plan_, s));
      if (whole > kMostScratch) return g.units.size() == 1;
    }
    return true;
  }

  // Groups in an order in which what is read comes first.
  std::vector<Group> ordered() const {
    std::vector<Group> out;
    std::vector<bool> done(groups_.size());
    std::function<void(size_t)> visit = [&](size_t g) {
      if (done[g]) return;
      done[g] = true;
      for (size_t u : groups_[g].units)
        for (size_t o : plan_.units[u].operands)
          if (group_of_[o] != g) visit(group_of_[o]);
      out.push_back(groups_[g]);
    };
    for (size_t u = 0; u < plan_.units.size(); ++u) visit(group_of_[u]);
    return out;
  }

  const Plan& plan_;
  bool fuse_;
  std::vector<Group> groups_;
  std::vector<size_t> group_of_;
};

}  // namespace

std::vector<Group> group_units(const Plan& plan, bool fuse) { return Grouper(plan, fuse).run(); }

std::vector<Refusal> refusals(const Plan& plan) {
  Grouper grouper(plan, true);
  (void)grouper.run();
  return grouper.refusals();
}

}  // namespace cleave::schedule
