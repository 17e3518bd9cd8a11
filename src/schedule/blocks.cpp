#include "schedule/blocks.hpp"

#include "schedule/masks.hpp"

#include <algorithm>

namespace cleave::schedule {

using itgraph::Block;
using itgraph::Compute;
using itgraph::Item;
using itgraph::Kind;
using itgraph::Loop;
using sym::Expr;

namespace {

// Elements of tiles that one task of a light kernel handles at least, and most elements that it keeps whole.
constexpr int64_t kTaskElements = 8192;
constexpr int64_t kWholeElements = 1 << 17;

bool contains(const std::vector<Expr>& list, Expr s) { return std::find(list.begin(), list.end(), s) != list.end(); }
void add_unique(std::vector<Expr>& to, Expr s) {
  if (!contains(to, s)) to.push_back(s);
}

bool mentions(const sym::Pool& syms, const tile::Load& l, Expr s) {
  return std::any_of(l.at.begin(), l.at.end(), [&](const tile::Index& i) { return syms.mentions(i.affine, s); });
}

}  // namespace

LightTasks light_tasks(const Plan& plan, const Group& group, const std::vector<Expr>& common) {
  struct Work {
    std::vector<Expr> axes;
    bool reduces;
    double work;
    int64_t elements;  // of one task
  };
  std::vector<Work> units;
  double total = 0;
  for (size_t u : group.units) {
    const auto reduced = reduced_of(plan, group, u);
    Work w{axes_of(plan, group, u), !reduced.empty(), plan.units[u].work, 1};
    const auto take = [&](Expr s) {
      w.elements = std::min(w.elements * std::max<int64_t>(extent_of(plan, s), 1), kTaskElements);
    };
    for (Expr s : w.axes)
      if (!contains(common, s)) take(s);
    for (Expr s : reduced) take(s);
    total += w.work;
    units.push_back(std::move(w));
  }
  LightTasks out;
  // Enough elements a task, last indices first.
  for (size_t i = common.size(); i-- > 0;) {
    const Expr s = common[i];
    const int64_t n = most_of(plan, s), typical = std::max<int64_t>(1, extent_of(plan, s));
    int64_t most = 1;
    for (const Work& w : units) most = std::max(most, w.elements);
    int64_t step = std::min(n, kTaskElements / most);
    if (step < n) {
      double again = 0;
      for (const Work& w : units)
        if (w.reduces && !contains(w.axes, s)) again += w.work * static_cast<double>((typical - 1) / step);
      if (again > kMostRecomputed * total && n <= kWholeElements) {
        step = n;
        out.whole.push_back(s);
      } else {
        out.loops.insert(out.loops.begin(), {s, step});
      }
    }
    for (Work& w : units)
      if (contains(w.axes, s)) w.elements = std::min(w.elements * std::min(step, typical), kTaskElements);
  }
  return out;
}

Roles roles_of(const sym::Pool& syms, const std::vector<Expr>& axes, const tile::Load& a, const tile::Load& b) {
  Roles r;
  for (Expr s : axes) {
    const bool in_a = mentions(syms, a, s), in_b = mentions(syms, b, s);
    (in_a && in_b ? r.batch : in_a ? r.rows : r.columns).push_back(s);
  }
  return r;
}

// A contraction's roles, or those of the products with the weights of a scaled group.
Roles product_roles(const Plan& plan, const Group& group, size_t unit) {
  const sym::Pool& syms = *plan.it.syms;
  const Compute& c = plan.units[unit].compute();
  auto rename = [&](Expr s) {
    auto it = group.rename.find(s);
    return it == group.rename.end() ? s : it->second;
  };
  Roles r;
  if (c.how == Compute::How::scaled) {
    // Rows are the indices of the maximum; columns what a factor adds; an index that a factor carries too is a batch.
    for (Expr s : c.results[0].axes) {
      bool shared = false;
      for (size_t i = 1; i < c.results.size(); ++i)
        if (const auto* l = std::get_if<tile::Load>(&c.nodes[c.results[i].node.index].what))
          shared = shared || mentions(syms, *l, s);
      (shared ? r.batch : r.rows).push_back(s);
    }
    for (const itgraph::Target& t : c.results)
      for (Expr s : t.axes)
        if (!contains(c.results[0].axes, s)) add_unique(r.columns, s);
  } else if (const auto product = product_of(c, c.results[0].node)) {
    r = roles_of(syms, c.results[0].axes, *product->a, *product->b);
    // The last index of the result is the columns', whichever operand has it.
    if (!c.results[0].axes.empty() && contains(r.rows, c.results[0].axes.back())) std::swap(r.rows, r.columns);
  }
  for (auto* list : {&r.rows, &r.columns, &r.batch})
    for (Expr& s : *list) s = rename(s);
  return r;
}

namespace {

constexpr int64_t kWholeColumns = 256;
constexpr int64_t kWholeDepth = 512;
// Products of so few rows wait for their weights rather than for the multiply-adds.
constexpr int64_t kFewRows = 16;

class KernelBuilder {
 public:
  KernelBuilder(const Plan& plan, const Group& group, const Tiling& tiling, const std::set<itgraph::ValueId>& visible)
      : plan_(plan), group_(group), tiling_(tiling), visible_(visible) {
    for (size_t u : group.units) {
      units_.push_back({u, axes_of(plan, group, u), reduced_of(plan, group, u), {}, false, true});
      position_[u] = units_.size() - 1;
      for (itgraph::ValueId r : plan.units[u].results) see(units_.back(), visible.count(r) > 0);
    }
    for (Member& m : units_)
      for (size_t o : plan.units[m.unit].operands)
        if (auto it = position_.find(o); it != position_.end()) m.operands.push_back(it->second);
  }

  std::optional<itgraph::Kernel> build(const std::vector<Loop>* parallel) {
    if (parallel) {
      const std::vector<Expr> common = common_indices();
      for (const Loop& l : *parallel)
        if (!contains(common, l.index)) return std::nullopt;
      parallel_ = *parallel;
    } else {
      choose_parallel();
    }
    choose_loops();
    Block body{Kind::parallel, parallel_, {}};
    std::vector<size_t> pending(units_.size());
    for (size_t i = 0; i < pending.size(); ++i) pending[i] = i;
    std::vector<bool> done(units_.size());
    if (!emit(body, pending, {}, done, {})) return std::nullopt;
    return itgraph::Kernel{plan_.units[group_.units.back()].name, std::move(body)};
  }

 private:
  struct Member {
    size_t unit;
    std::vector<Expr> axes, reduced;
    std::vector<size_t> operands;  // positions in units_
    bool visible = false;          // one of its results leaves the kernel
    bool all_visible = true;       // all of them do
  };

  static void see(Member& m, bool visible) {
    m.visible = m.visible || visible;
    m.all_visible = m.all_visible && visible;
  }
  const sym::Pool& syms() const { return *plan_.it.syms; }
  int64_t extent(Expr s) const { return extent_of(plan_, s); }
  int64_t longest(Expr s) const { return most_of(plan_, s); }

  // Indices of all visible results that nothing reduces.
  std::vector<Expr> common_indices() const {
    std::vector<Expr> reduced;
    for (const Member& m : units_)
      for (Expr s : m.reduced) add_unique(reduced, s);
    std::optional<std::vector<Expr>> common;
    for (const Member& m : units_) {
      if (!m.visible) continue;
      for (const itgraph::Target& t : plan_.units[m.unit].compute().results) {
        if (!visible_.count(t.value)) continue;
        std::vector<Expr> own;
        for (Expr s : t.axes) own.push_back(rename(s));
        if (!common) {
          common.emplace();
          for (Expr s : own)
            if (longest(s) > 1 && !contains(reduced, s)) common->push_back(s);
        }
        std::erase_if(*common, [&](Expr s) { return !contains(own, s); });
      }
    }
    return common.value_or(std::vector<Expr>{});
  }

  // The steps of the tasks.
  void choose_parallel() {
    const std::vector<Expr> common = common_indices();
    if (common.empty()) return;
    // The largest product decides which index is rows and which is columns.
    Roles roles;
    std::vector<Expr> any_columns;
    double most = -1;
    for (const Member& m : units_) {
      const Unit& u = plan_.units[m.unit];
      if (!u.heavy) continue;
      const Roles own = product_roles(plan_, group_, m.unit);
      for (Expr s : own.columns) add_unique(any_columns, s);
      if (u.work <= most) continue;
      most = u.work;
      roles = own;
    }
    if (most < 0) {
      parallel_ = light_tasks(plan_, group_, common).loops;
      return;
    }
    const auto widest = [&](const std::vector<Expr>& list) {
      Expr best;
      for (Expr s : list)
        if (contains(common, s) && (!best.valid() || extent(s) >= extent(best))) best = s;
      return best;
    };
    const Expr rows = widest(roles.rows), columns = widest(roles.columns);
    for (Expr s : common) {
      int64_t step = 1;
      if (s == rows) step = std::min(tiling_.rows, longest(s));
      if (s == columns || (s != rows && contains(any_columns, s))) {
        // Cutting columns repeats the work of units that lack them.
        const bool repeated = std::any_of(units_.begin(), units_.end(), [&](const Member& m) {
          return plan_.units[m.unit].heavy && !contains(m.axes, s);
        });
        step = std::min(repeated ? std::max(tiling_.columns, kWholeColumns) : tiling_.columns, longest(s));
      }
      if (plan_.part.valid() && s == rename(plan_.part)) step = 1;
      if (step < longest(s)) parallel_.push_back({s, step});
    }
  }

  Expr rename(Expr s) const {
    auto it = group_.rename.find(s);
    return it == group_.rename.end() ? s : it->second;
  }

  int64_t task_extent(Expr s) const {
    for (const Loop& l : parallel_)
      if (l.index == s) return std::min(l.step, extent(s));
    return extent(s);
  }

  // Reduced indices that get a loop, with its step; the others are whole.
  void choose_loops() {
    const bool heavy =
        std::any_of(units_.begin(), units_.end(), [&](const Member& m) { return plan_.units[m.unit].heavy; });
    for (const Member& m : units_)
      for (Expr s : m.reduced) {
        if (loops_.count(s)) continue;
        int64_t carried = 0;  // elements of inner values that carry the index
        for (const Member& v : units_) {
          if (!contains(v.axes, s)) continue;
          int64_t n = 1;
          for (Expr a : v.axes) n = std::min(n * std::max<int64_t>(task_extent(a), 1), kWholeElements * 64);
          carried += n;
        }
        const int64_t n = longest(s);
        if (carried > 0) {
          const int64_t step = heavy ? tiling_.reduce : 4096;
          // A mask cuts a loop short, so there should be one.
          if (heavy && n > 1 && masked(s))
            loops_[s] = std::min(step, n);
          else if (heavy ? n > 2 * step : carried > kWholeElements)
            if (n > step) loops_[s] = step;
        } else if (heavy && n > kWholeDepth && !streams(s)) {
          loops_[s] = tiling_.depth;
        }
      }
  }

  // Whether a product of few rows reduces over the index: its weights are best read panel by panel, each to its end.
  bool streams(Expr s) const {
    return std::any_of(units_.begin(), units_.end(), [&](const Member& m) {
      if (!plan_.units[m.unit].heavy || !contains(m.reduced, s)) return false;
      int64_t rows = 1;
      for (Expr r : product_roles(plan_, group_, m.unit).rows) rows = std::min(rows * longest(r), 2 * kFewRows);
      return rows <= kFewRows;
    });
  }

  // Whether a mask makes elements of a reduction over the index the identity.
  bool masked(Expr s) const {
    std::vector<Compute> computes;
    for (size_t m = 0; m < units_.size(); ++m) computes.push_back(instance(m));
    const MadeBy made_by = [&](itgraph::ValueId v) -> const Compute* {
      for (const Compute& c : computes)
        if (c.how == Compute::How::map && c.results[0].value == v) return &c;
      return nullptr;
    };
    Lengths lengths([&](itgraph::ValueId v) { return plan_.it.value(v).role == itgraph::Role::input; });
    return std::any_of(computes.begin(), computes.end(), [&](const Compute& c) {
      return contains(c.reduced, s) && !needed_for(*plan_.it.syms, c, s, made_by, lengths).empty();
    });
  }

  bool waits_for_loop(const std::vector<Expr>& symbols, const std::set<Expr>& open) const {
    return std::any_of(symbols.begin(), symbols.end(), [&](Expr s) { return loops_.count(s) && !open.count(s); });
  }

  // What must be computed for a unit and is not done yet, itself excluded, in order.
  std::vector<size_t> needed(size_t of, const std::vector<bool>& done) const {
    std::vector<bool> marked(units_.size());
    std::vector<size_t> todo = {of}, out;
    while (!todo.empty()) {
      const size_t m = todo.back();
      todo.pop_back();
      for (size_t o : units_[m].operands)
        if (!done[o] && !marked[o]) {
          marked[o] = true;
          todo.push_back(o);
        }
    }
    for (size_t i = 0; i < units_.size(); ++i)
      if (marked[i]) out.push_back(i);
    return out;
  }

  Compute instance(size_t m) const { return renamed(plan_, group_, units_[m].unit); }

  // Fills a block with the pending units. `open`: indices whose loops enclose it.
  // `goals`: what the block is for, beside what leaves the kernel.
  bool emit(Block& block, std::vector<size_t> pending, const std::vector<size_t>& goals, std::vector<bool>& done,
            const std::set<Expr>& open) const {
    auto finish = [&](size_t m) {
      done[m] = true;
      std::erase(pending, m);
    };
    while (true) {
      // What only units that are done have read is not needed any more.
      for (size_t i = pending.size(); i-- > 0;) {
        const size_t m = pending[i];
        const bool read = std::any_of(pending.begin(), pending.end(), [&](size_t o) {
          return std::find(units_[o].operands.begin(), units_[o].operands.end(), m) != units_[o].operands.end();
        });
        const bool wanted = units_[m].visible || std::find(goals.begin(), goals.end(), m) != goals.end();
        if (!read && !wanted) std::erase(pending, m);
      }
      if (pending.empty()) return true;
      bool moved = false;
      for (size_t m : std::vector<size_t>(pending)) {
        const Member& u = units_[m];
        const bool ready = std::all_of(u.operands.begin(), u.operands.end(), [&](size_t o) { return done[o]; });
        if (!ready || waits_for_loop(u.axes, open) || waits_for_loop(u.reduced, open)) continue;
        block.items.push_back({instance(m)});
        finish(m);
        moved = true;
      }
      if (moved) continue;
      // The first reduction that a loop can now compute, and every other one that can share the loop.
      std::optional<Expr> over;
      std::vector<size_t> together;
      for (size_t m : pending) {
        const Member& u = units_[m];
        if (waits_for_loop(u.axes, open)) continue;
        for (Expr s : u.reduced) {
          if (!loops_.count(s) || open.count(s) || (over && *over != s)) continue;
          const auto inner = needed(m, done);
          const bool independent =
              std::none_of(inner.begin(), inner.end(), [&](size_t i) { return contains(units_[i].reduced, s); });
          if (!independent) continue;
          over = s;
          together.push_back(m);
          break;
        }
      }
      Block inner{Kind::reduce, {}, {}};
      std::vector<size_t> body;
      if (over) {
        inner.loops = {{*over, loops_.at(*over)}};
        for (size_t m : together) {
          for (size_t i : needed(m, done)) body.push_back(i);
          body.push_back(m);
        }
      } else {
        // Results that carry an index with a loop: pass over it once more.
        for (size_t m : pending)
          for (Expr s : units_[m].axes)
            if (!over && loops_.count(s) && !open.count(s)) over = s;
        if (!over) return false;
        inner.kind = Kind::map;
        inner.loops = {{*over, loops_.at(*over)}};
        for (size_t m : pending) {
          if (!contains(units_[m].axes, *over) || !units_[m].visible) continue;
          const auto deep = needed(m, done);
          const bool repeats =
              std::any_of(deep.begin(), deep.end(), [&](size_t i) { return contains(units_[i].reduced, *over); });
          if (repeats) continue;
          for (size_t i : deep) body.push_back(i);
          body.push_back(m);
          together.push_back(m);
        }
        if (together.empty()) return false;
      }
      std::sort(body.begin(), body.end());
      body.erase(std::unique(body.begin(), body.end()), body.end());
      // A value that does not carry the index would be the same in each iteration and must come before the loop.
      for (size_t i : body)
        if (!contains(units_[i].axes, *over) && !contains(units_[i].reduced, *over)) return false;
      std::set<Expr> deeper = open;
      deeper.insert(*over);
      std::vector<bool> inside = done;
      if (!emit(inner, body, together, inside, deeper)) return false;
      const bool pass = inner.kind == Kind::map;
      block.items.push_back({std::move(inner)});
      for (size_t m : together) finish(m);
      // What a pass left in scratch is gone after it: nobody outside may still wait for it.
      if (pass)
        for (size_t m : together)
          for (size_t p : pending)
            if (!units_[m].all_visible &&
                std::find(units_[p].operands.begin(), units_[p].operands.end(), m) != units_[p].operands.end())
              return false;
      // What is stored outside the kernel and carries the index was stored by the loop, tile by tile.
      for (size_t i : body)
        if (!done[i] && units_[i].all_visible && std::find(pending.begin(), pending.end(), i) != pending.end())
          finish(i);
    }
  }

  const Plan& plan_;
  const Group& group_;
  const Tiling& tiling_;
  const std::set<itgraph::ValueId>& visible_;
  std::vector<Member> units_;
  std::map<size_t, size_t> position_;
  std::vector<Loop> parallel_;
  std::map<Expr, int64_t> loops_;
};

}  // namespace

std::optional<itgraph::Kernel> build_kernel(const Plan& plan, const Group& group, const Tiling& tiling,
                                            const std::set<itgraph::ValueId>& visible,
                                            const std::vector<Loop>* parallel) {
  if (group.units.size() == 1 && plan.units[group.units[0]].is_library())
    return itgraph::Kernel{plan.units[group.units[0]].name,
                           std::get<itgraph::Library>(plan.units[group.units[0]].what)};
  return KernelBuilder(plan, group, tiling, visible).build(parallel);
}

}  // namespace cleave::schedule
