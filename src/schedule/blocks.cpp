#include "schedule/blocks.hpp"

#include "schedule/masks.hpp"

#include <algorithm>
#include <bit>
#include <functional>

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
// Most elements of a value in the task's memory, whatever the extents are: where they are open, steps are longer than
// what is usual. Of contractions, whose steps are not.
constexpr int64_t kRoomElements = 1 << 17;
constexpr int64_t kProductRoom = 1 << 20;
// An open extent is thought to be up to so many times its typical value where that must not be slow.
constexpr int64_t kBeyondTypical = 16;

bool contains(const std::vector<Expr>& list, Expr s) { return std::find(list.begin(), list.end(), s) != list.end(); }
void add_unique(std::vector<Expr>& to, Expr s) {
  if (!contains(to, s)) to.push_back(s);
}

bool mentions(const sym::Pool& syms, const tile::Load& l, Expr s) {
  return std::any_of(l.at.begin(), l.at.end(), [&](const tile::Index& i) { return syms.mentions(i.affine, s); });
}

// a * b, but at most `most`: extents end at 2^62. Neither is below 1 but for an extent of 0.
int64_t capped(int64_t a, int64_t b, int64_t most) {
  if (b <= 0 || a <= 0) return 0;
  return b > most / a ? most : a * b;
}

// The largest power of two for one index where `others` elements of other indices share the room; at least 1.
int64_t share_of(int64_t room, int64_t others) {
  const int64_t left = std::max<int64_t>(1, room / std::max<int64_t>(others, 1));
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(left)));
}

}  // namespace

LightTasks light_tasks(const Plan& plan, const Group& group, const std::vector<Expr>& common) {
  struct Work {
    std::vector<Expr> axes;
    bool reduces;
    double work;
    int64_t elements;  // of one task
  };
  const auto later = [&](Expr s) {  // a length that is less usual
    return capped(kBeyondTypical, std::max<int64_t>(extent_of(plan, s), 1), most_of(plan, s));
  };
  std::vector<Work> units;
  double total = 0;
  for (size_t u : group.units) {
    const auto reduced = reduced_of(plan, group, u);
    Work w{axes_of(plan, group, u), !reduced.empty(), plan.units[u].work, 1};
    const auto take = [&](Expr s) {
      w.elements = capped(w.elements, std::max<int64_t>(extent_of(plan, s), 1), kTaskElements);
    };
    for (Expr s : w.axes)
      if (!contains(common, s)) take(s);
    for (Expr s : reduced) take(s);
    total += w.work;
    units.push_back(std::move(w));
  }
  LightTasks out;
  // What the steps make of a tile: where extents are open, more than the elements of a usual task.
  int64_t room = 1;
  for (size_t u : group.units) {
    int64_t own = 1;
    for (const auto& list : {axes_of(plan, group, u), reduced_of(plan, group, u)})
      for (Expr s : list)
        if (!contains(common, s)) own = capped(own, std::max<int64_t>(later(s), 1), kRoomElements);
    room = std::max(room, own);
  }
  // Enough elements a task, last indices first.
  for (size_t i = common.size(); i-- > 0;) {
    const Expr s = common[i];
    const int64_t n = most_of(plan, s), typical = std::max<int64_t>(1, extent_of(plan, s));
    int64_t most = 1;
    for (const Work& w : units) most = std::max(most, w.elements);
    int64_t step = std::max<int64_t>(1, std::min(n, kTaskElements / most));
    // An index that is short as a rule leaves the ones before it their part of the room.
    const int64_t usual = std::min(step, typical);
    int64_t before = 1;
    for (size_t j = 0; j < i; ++j)
      before = capped(before, std::max<int64_t>(1, extent_of(plan, common[j])), kTaskElements / (most * usual));
    step = std::min(step, std::max(usual, share_of(kRoomElements / room, before)));
    if (step < n) {
      double again = 0;
      for (const Work& w : units)
        if (w.reduces && !contains(w.axes, s)) again += w.work * static_cast<double>((later(s) - 1) / step);
      if (again > kMostRecomputed * total && later(s) <= kWholeElements) {
        step = n;
        out.whole.push_back(s);
      } else {
        out.loops.insert(out.loops.begin(), {s, step});
      }
    }
    room = capped(room, step, kRoomElements);
    for (Work& w : units)
      if (contains(w.axes, s)) w.elements = capped(w.elements, std::min(step, typical), kTaskElements);
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

constexpr int64_t kLongTile = 4096;  // of an index of a group without products
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
    // Open extents in tiles, unless something would have to be computed twice: it is then as long as the call says.
    const auto chosen = loops_;
    if (loop_open()) {
      store_along_ = true;
      if (auto tiled = nested(); tiled && !repeats(*tiled)) return kernel(std::move(*tiled));
      store_along_ = false;
      loops_ = chosen;
    }
    auto body = nested();
    if (!body) return std::nullopt;
    return kernel(std::move(*body));
  }

 private:
  struct Member {
    size_t unit;
    std::vector<Expr> axes, reduced;
    std::vector<size_t> operands;  // positions in units_
    bool visible = false;          // one of its results leaves the kernel
    bool all_visible = true;       // all of them do
  };

  std::optional<Block> nested() const {
    Block body{Kind::parallel, parallel_, {}};
    std::vector<size_t> pending(units_.size());
    for (size_t i = 0; i < pending.size(); ++i) pending[i] = i;
    std::vector<bool> done(units_.size());
    if (!emit(body, pending, {}, done, {})) return std::nullopt;
    return body;
  }
  itgraph::Kernel kernel(Block body) const { return {plan_.units[group_.units.back()].name, std::move(body)}; }

  // Whether a value is computed in more than one place.
  static bool repeats(const Block& block) {
    std::set<itgraph::ValueId> made;
    const std::function<bool(const Block&)> visit = [&](const Block& b) {
      return std::any_of(b.items.begin(), b.items.end(), [&](const Item& i) {
        if (const auto* c = std::get_if<Compute>(&i.what)) return !made.insert(c->results[0].value).second;
        return visit(std::get<Block>(i.what));
      });
    };
    return visit(block);
  }

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
    std::vector<Loop> tiles;
    double room = 1;
    // Several indices of rows share what a task makes of the columns: the longest first, and where it is short as a
    // rule the others as well; or the other way round.
    int64_t left = tiling_.rows;
    std::map<Expr, int64_t> share;
    const auto take = [&](Expr s) {
      share[s] = std::min(left, longest(s));
      left /= std::clamp<int64_t>(extent(s), 1, left);
    };
    if (rows.valid() && !tiling_.heads) take(rows);
    for (Expr s : common)
      if (s != rows && contains(roles.rows, s)) take(s);
    if (rows.valid() && tiling_.heads) take(rows);
    for (Expr s : common) {
      int64_t step = share.count(s) ? share.at(s) : 1;
      if (s == columns || (s != rows && contains(any_columns, s))) {
        // Cutting columns repeats the work of units that lack them.
        const bool repeated = std::any_of(units_.begin(), units_.end(), [&](const Member& m) {
          return plan_.units[m.unit].heavy && !contains(m.axes, s);
        });
        step = std::min(repeated ? std::max(tiling_.columns, kWholeColumns) : tiling_.columns, longest(s));
      }
      if (plan_.part.valid() && s == rename(plan_.part)) step = 1;
      tiles.push_back({s, step});
      room *= static_cast<double>(step);
    }
    // Several indices of columns: what is longer than usual yields first.
    for (const bool usual : {true, false})
      for (Loop& l : tiles)
        while (l.index != rows && l.index != columns && room > kProductRoom && l.step > (usual ? extent(l.index) : 1)) {
          l.step = std::max<int64_t>(1, l.step / 2);
          room /= 2;
        }
    for (const Loop& l : tiles)
      if (l.step < longest(l.index)) parallel_.push_back(l);
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
          for (Expr a : v.axes) n = capped(n, std::max<int64_t>(task_extent(a), 1), kWholeElements * 64);
          carried += n;
        }
        const int64_t n = longest(s);
        if (carried > 0) {
          const int64_t step = heavy ? tiling_.reduce : kLongTile;
          // A mask cuts a loop short, so there should be one.
          if (heavy && n > 1 && masked(s))
            loops_[s] = std::min(step, n);
          else if (heavy ? n > 2 * step : carried > kWholeElements)
            if (n > step) loops_[s] = step;
        } else if (heavy && n > kWholeDepth && !streams(s)) {
          loops_[s] = tiling_.depth;
        }
      }
    // Several indices with loops: what one value has of all of them together.
    for (const Member& m : units_) {
      if (m.all_visible) continue;
      for (Expr s : m.axes) {
        double room = 1;
        for (Expr a : m.axes) room *= static_cast<double>(std::max<int64_t>(tile(a), 1));
        auto loop = loops_.find(s);
        while (loop != loops_.end() && loop->second > 1 && room > kProductRoom) {
          loop->second /= 2;
          room /= 2;
        }
      }
    }
  }

  // The step of the index's tiles, or its length when that is known and short; 0: as much as a call says.
  int64_t tile(Expr s) const {
    for (const Loop& l : parallel_)
      if (l.index == s) return l.step;
    if (auto it = loops_.find(s); it != loops_.end()) return it->second;
    const auto n = syms().as_constant(plan_.it.extents.at(s));
    return n && *n <= kWholeElements ? *n : 0;
  }

  // Loops for what values in the task's memory carry of open indices, last ones first. False: there is nothing to add.
  bool loop_open() {
    bool added = false;
    for (const Member& m : units_) {
      if (plan_.units[m.unit].heavy) return false;
      if (m.all_visible) continue;
      int64_t room = 1, most = 1;
      for (Expr s : m.axes) {
        const int64_t own = tile(s);
        room = capped(room, std::max<int64_t>(own, 1), kRoomElements);
        most = capped(most, own > 0 ? own : longest(s), kProductRoom + 1);
      }
      if (most <= kProductRoom) continue;
      for (size_t i = m.axes.size(); i-- > 0;) {
        const Expr s = m.axes[i];
        if (tile(s) > 0 || longest(s) <= 1) continue;
        int64_t before = 1;
        for (size_t j = 0; j < i; ++j)
          if (tile(m.axes[j]) == 0)
            before = capped(before, std::max<int64_t>(1, extent(m.axes[j])), kRoomElements / 64);
        loops_[s] = std::min(share_of(kRoomElements / room, before), kLongTile);
        room = capped(room, loops_[s], kRoomElements);
        added = true;
      }
    }
    return added;
  }

  // Whether a product of few rows reduces over the index: its weights are best read panel by panel, each to its end.
  bool streams(Expr s) const {
    return std::any_of(units_.begin(), units_.end(), [&](const Member& m) {
      if (!plan_.units[m.unit].heavy || !contains(m.reduced, s)) return false;
      int64_t rows = 1;
      for (Expr r : product_roles(plan_, group_, m.unit).rows) rows = capped(rows, longest(r), 2 * kFewRows);
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

  // What is stored outside the kernel tile by tile of an index, and needs nothing that a loop over it does not make.
  void add_stored(Expr over, const std::vector<size_t>& together, const std::vector<size_t>& pending,
                  const std::vector<bool>& done, std::vector<size_t>& body) const {
    const auto in = [](const std::vector<size_t>& list, size_t m) {
      return std::find(list.begin(), list.end(), m) != list.end();
    };
    std::vector<size_t> stored;
    for (size_t m : pending) {
      if (!units_[m].all_visible || !contains(units_[m].axes, over) || in(body, m)) continue;
      const auto inner = needed(m, done);
      if (std::all_of(inner.begin(), inner.end(), [&](size_t i) { return in(body, i) && !in(together, i); }))
        stored.push_back(m);
    }
    body.insert(body.end(), stored.begin(), stored.end());
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
        if (store_along_) add_stored(*over, together, pending, done, body);
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
  bool store_along_ = false;  // a loop of a reduction stores what it can on the way
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
