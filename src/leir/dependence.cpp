// Dependences between mentions, independence of loops, and where variables may live.
#include <algorithm>
#include <numeric>

#include "leir/analysis.hpp"

namespace cleave::leir {

using sym::Interval;
using sym::kHuge;

namespace {

Interval index_range(const Program& p, uint32_t loop) {
  const Interval e = p.pool().bounds(p.extent_form(loop));
  return {0, e.hi >= kHuge ? kHuge : std::max<int64_t>(e.hi - 1, 0)};
}

int64_t floor_div(int64_t a, int64_t b) { return a / b - ((a % b != 0) && ((a < 0) != (b < 0))); }

// Is the form never 0? What its terms that g divides leave over has to meet a multiple of g, for each coefficient g and
// for the divisor of all (`a*100+c*10+d` differs from itself in another iteration of any of its loops).
bool never_zero(sym::Pool& pool, sym::Expr form) {
  const Interval all = pool.bounds(form);
  if (all.lo > 0 || all.hi < 0) return true;
  const std::vector<sym::Pool::Term> terms = pool.terms(form);
  std::set<int64_t> candidates;
  int64_t common = 0;
  for (const sym::Pool::Term& t : terms) {
    if (t.atoms.empty()) continue;
    candidates.insert(std::abs(t.coefficient));
    common = std::gcd(common, t.coefficient);
  }
  candidates.insert(common);
  for (const int64_t g : candidates) {
    if (g < 2) continue;
    sym::Expr rest = pool.constant(0);
    for (const sym::Pool::Term& t : terms)
      if (t.atoms.empty() || t.coefficient % g != 0)
        rest = pool.add(rest, pool.mul(pool.product(t.atoms), t.coefficient));
    const Interval r = pool.bounds(rest);
    if (r.lo <= -kHuge || r.hi >= kHuge) continue;
    const int64_t multiple = r.hi - ((r.hi % g) + g) % g;  // the largest one below
    if (multiple < r.lo) return true;
  }
  return false;
}

// Does the index stand in a subscript?
bool occurs(const Program& p, const Access& a, uint32_t loop) {
  for (ExprId o : p.syntax().operands_of(a.expr))
    if (names_index(p, o, loop)) return true;
  return false;
}

// Two mentions in two iterations of `loop`, those of `y` later (sign 1) or earlier (-1), with the loops outside
// standing still: can they touch one element? Never "yes": the test is one-sided.
Proof meet(const Program& p, const Access& x, const Access& y, uint32_t loop, int sign) {
  sym::Pool& pool = p.pool();
  const Interval n = pool.bounds(p.extent_form(loop));
  if (n.hi <= 1) return Proof::no;
  std::unordered_map<sym::Expr, sym::Expr> other;
  const sym::Expr step = pool.fresh("d", sign > 0 ? Interval{1, n.hi - 1} : Interval{-(n.hi - 1), -1});
  other[p.symbol(loop)] = pool.add(p.symbol(loop), step);
  std::set<uint32_t> moved = {loop};
  bool inside = false;
  for (uint32_t l : p.equations()[p.equation_of(y.item)].loops) {
    if (inside) other[p.symbol(l)] = pool.fresh("w", index_range(p, l)), moved.insert(l);
    inside = inside || l == loop;
  }
  rename_opaque(p, p.syntax().operands_of(y.expr), moved, other);
  for (size_t d = 0; d < x.subscripts.size(); ++d) {
    const sym::Expr difference = pool.sub(x.subscripts[d], pool.substitute(y.subscripts[d], other));
    if (never_zero(pool, difference)) return Proof::no;
  }
  return Proof::unknown;
}

bool below(const EquationInfo& q, uint32_t loop) {
  return std::find(q.loops.begin(), q.loops.end(), loop) != q.loops.end();
}

// Does a loop of the equation run more or less often where the index of `loop` is another?
bool extents_depend(const Program& p, const EquationInfo& q, uint32_t loop) {
  return std::any_of(q.loops.begin(), q.loops.end(), [&](uint32_t l) { return extent_depends(p, l, loop); });
}

}  // namespace

std::optional<std::string> not_private(const Program& p, uint32_t variable, uint32_t loop) {
  const std::string& index = p.syntax().text(p.syntax().loops[loop].index);
  std::vector<const EquationInfo*> writers;
  for (const EquationInfo& w : p.equations())
    if (w.target == variable && below(w, loop)) writers.push_back(&w);
  for (const Access& r : p.accesses()) {
    const EquationInfo& q = p.equations()[p.equation_of(r.item)];
    if (r.variable != variable) continue;
    if (!below(q, loop)) return fmt::format("`{}` is outside `{}`", print(p.syntax(), r.expr), index);
    if (r.write) continue;
    // An accumulator starts in the iteration when its first value is set there: over loops inside this one.
    if (r.self && q.initialises && std::find(q.reductions.begin(), q.reductions.end(), loop) == q.reductions.end())
      continue;
    if (!written_before(p, r, writers, loop))
      return fmt::format("`{}` is not proved to be written in the iteration of `{}` that reads it",
                         print(p.syntax(), r.expr), index);
  }
  return std::nullopt;
}

Answer independent(const Program& p, uint32_t loop, const std::set<uint32_t>* copied) {
  const Interval n = p.pool().bounds(p.extent_form(loop));
  if (n.hi <= 1) return {};
  std::map<uint32_t, std::vector<const Access*>> by_variable;
  std::set<uint32_t> written;
  size_t equations = 0;
  const EquationInfo* only = nullptr;
  for (const EquationInfo& q : p.equations()) {
    if (!below(q, loop)) continue;
    ++equations;
    only = &q;
    for (uint32_t a = q.first_access; a < q.first_access + q.accesses; ++a)
      by_variable[p.accesses()[a].variable].push_back(&p.accesses()[a]);
    written.insert(q.target);
  }
  for (uint32_t v : written) {
    const auto& list = by_variable[v];
    // A recognised reduction: nothing else touches the target inside the loop, and the index is not in its subscripts.
    const EquationInfo& q = p.equations()[p.equation_of(list[0]->item)];
    bool reduction = q.accumulation != Accumulation::none;
    for (const Access* a : list)
      reduction = reduction && a->item == q.item && (a->write || a->self) && !occurs(p, *a, loop);
    const bool used = std::find(q.reductions.begin(), q.reductions.end(), loop) != q.reductions.end();
    if (reduction && used) continue;
    // D11: a loop that its only equation does not use, neither in its values nor in how often it is computed, is
    // dropped.
    const bool idle = equations == 1 && !extents_depend(p, q, loop);
    if (idle && only->item == q.item && (q.accumulation == Accumulation::none || q.initialises)) {
      bool mentions = used;
      for (const Access* a : by_variable[v]) mentions = mentions || occurs(p, *a, loop);
      bool self = false;
      for (const Access* a : list) self = self || (!a->write && !a->self);
      if (!mentions && !self) continue;
    }
    const bool own = copied ? copied->contains(v) : p.variables()[v].scope != Scope::global;
    const auto shared = own ? not_private(p, v, loop) : std::nullopt;
    if (own && !shared) continue;
    if (list.size() > 1000) return {Proof::unknown, "there are too many mentions of one variable in it"};
    for (const Access* w : list) {
      if (!w->write) continue;
      for (const Access* a : list)
        for (int sign : {1, -1}) {
          if (meet(p, *w, *a, loop, sign) == Proof::no) continue;
          std::string why =
              fmt::format("an iteration writes `{}`, which another {} as `{}`", print(p.syntax(), w->expr),
                          a->write ? "writes" : "reads", print(p.syntax(), a->expr));
          // What would make it private, or what keeps it from being that.
          if (shared)
            why += "; each would have its own, but " + *shared;
          else if (!copied && !p.variables()[v].known() && private_to(p, v, loop))
            why += fmt::format("; with the scope l each has its own `{}`", p.name(v));
          return {Proof::unknown, why};
        }
    }
  }
  return {};
}

std::vector<Dependence> dependences(const Program& p, uint32_t item_a, uint32_t item_b) {
  std::vector<Dependence> out;
  const EquationInfo& qa = p.equations()[p.equation_of(item_a)];
  const EquationInfo& qb = p.equations()[p.equation_of(item_b)];
  sym::Pool& pool = p.pool();
  for (uint32_t i = qa.first_access; i < qa.first_access + qa.accesses; ++i)
    for (uint32_t j = qb.first_access; j < qb.first_access + qb.accesses; ++j) {
      const Access &x = p.accesses()[i], &y = p.accesses()[j];
      if (x.variable != y.variable || (!x.write && !y.write) || (item_a == item_b && j < i)) continue;
      if (item_a == item_b && i == j) continue;
      Dependence d{i, j, common_loops(qa, qb), {}};
      std::unordered_map<sym::Expr, sym::Expr> other;
      std::map<sym::Expr, size_t> steps;
      for (size_t l = 0; l < qb.loops.size(); ++l) {
        const uint32_t loop = qb.loops[l];
        const Interval n = index_range(p, loop);
        if (l < d.loops.size()) {
          const sym::Expr step = pool.fresh("d", {-n.hi, n.hi});
          steps[step] = l;
          other[p.symbol(loop)] = pool.add(p.symbol(loop), step);
        } else {
          other[p.symbol(loop)] = pool.fresh("w", n);
        }
      }
      rename_opaque(p, p.syntax().operands_of(y.expr), {qb.loops.begin(), qb.loops.end()}, other);
      d.distance.assign(d.loops.size(), std::nullopt);
      bool never = false;
      for (size_t k = 0; k < x.subscripts.size() && !never; ++k) {
        sym::Expr difference = pool.sub(x.subscripts[k], pool.substitute(y.subscripts[k], other));
        never = never_zero(pool, difference);
        // What stands beside a step leaves it one value, or none: `64*d + w` with w below 64 is 0 where d is. What is
        // known of one step says more of the others.
        for (bool again = true; again && !never;) {
          again = false;
          for (const auto& t : pool.terms(difference)) {
            if (t.atoms.size() != 1 || !steps.contains(t.atoms[0])) continue;
            const Interval left = pool.bounds(pool.sub(difference, pool.mul(t.atoms[0], t.coefficient)));
            if (left.lo <= -kHuge || left.hi >= kHuge) continue;
            const int64_t c = std::abs(t.coefficient);
            const Interval of = t.coefficient > 0 ? Interval{-left.hi, -left.lo} : left;
            const int64_t lo = -floor_div(-of.lo, c), hi = floor_div(of.hi, c);
            never = lo > hi;
            if (lo != hi) continue;
            auto& known = d.distance[steps[t.atoms[0]]];
            never = known && *known != lo;
            known = lo;
            difference = pool.substitute(difference, {{t.atoms[0], pool.constant(lo)}});
            again = true;
            break;
          }
        }
      }
      if (!never) out.push_back(std::move(d));
    }
  return out;
}

namespace {
// Axes where every mention has the same subscript, made of indices of the owner only.
std::vector<bool> fixed_axes(const Program& p, uint32_t variable) {
  const Variable& v = p.variables()[variable];
  std::vector<bool> fixed(v.shape.size(), true);
  std::vector<std::optional<sym::Expr>> seen(v.shape.size());
  for (const Access& a : p.accesses()) {
    if (a.variable != variable) continue;
    for (size_t d = 0; d < fixed.size(); ++d) {
      fixed[d] = fixed[d] && (!seen[d] || *seen[d] == a.subscripts[d]);
      seen[d] = a.subscripts[d];
      std::set<sym::Expr> owner;
      for (uint32_t l : p.equations()[p.equation_of(a.item)].loops) {
        const Loop& loop = p.syntax().loops[l];
        if (loop.kind == Kind::bind && (v.scope == Scope::local || p.syntax().text(loop.index)[0] == 'b'))
          owner.insert(p.symbol(l));
      }
      for (sym::Expr s : p.pool().symbols_of(a.subscripts[d])) fixed[d] = fixed[d] && owner.contains(s);
    }
  }
  return fixed;
}
// Does each iteration of the loop have elements of its own, as the loop's index is the subscript of a fixed axis?
bool apart(const Program& p, uint32_t variable, const std::vector<bool>& fixed, uint32_t loop) {
  for (const Access& a : p.accesses()) {
    if (a.variable != variable) continue;
    for (size_t d = 0; d < fixed.size(); ++d)
      if (fixed[d] && a.subscripts[d] == p.symbol(loop)) return true;
    return false;  // a fixed axis has the same subscript everywhere
  }
  return false;
}
}  // namespace

std::vector<Placement> placements(const Program& p) {
  constexpr int64_t kSharedBytes = 48 * 1024, kLocalBytes = 4 * 1024;
  std::vector<Placement> out;
  for (uint32_t v = 0; v < p.variables().size(); ++v) {
    const Variable& var = p.variables()[v];
    if (var.scope == Scope::global) continue;
    Placement place{v, true, "", fixed_axes(p, v)};
    auto refuse = [&](std::string why) {
      if (place.honoured) place.reason = std::move(why);
      place.honoured = false;
    };
    std::set<uint32_t> nests, loops;
    for (const Access& a : p.accesses()) {
      if (a.variable != v) continue;
      nests.insert(p.top_of(a.item));
      for (uint32_t l : p.equations()[p.equation_of(a.item)].loops) loops.insert(l);
    }
    if (nests.size() > 1) refuse("it is used in more than one top-level nest, that is in more than one kernel");
    int64_t bytes = byte_size(var.type);
    for (size_t d = 0; d < var.shape.size(); ++d) bytes *= place.fixed[d] ? 1 : var.shape[d];
    const int64_t most = var.scope == Scope::shared ? kSharedBytes : kLocalBytes;
    if (bytes > most) refuse(fmt::format("its {} bytes are more than {}", bytes, most));
    for (uint32_t l : loops) {
      const Loop& loop = p.syntax().loops[l];
      if (loop.kind != Kind::bind) continue;
      const bool block = p.syntax().text(loop.index)[0] == 'b';
      if (var.scope == Scope::shared && !block) continue;
      if (!apart(p, v, place.fixed, l) && !private_to(p, v, l))
        refuse(fmt::format("iterations of the bound loop `{}` share it", p.syntax().text(loop.index)));
    }
    out.push_back(std::move(place));
  }
  return out;
}

std::string canonical_key(const Program& p) {
  Syntax s = p.syntax();
  // New names in the order of appearance; known variables keep theirs.
  std::map<NameId, NameId> index, variable;
  auto fresh = [&](std::string_view stem, size_t n) { return s.intern(fmt::format("{}{}", stem, n)); };
  std::set<NameId> known;
  for (const HeaderEntry& h : s.header) known.insert(h.name);
  for (Loop& l : s.loops) {
    // Names of bound loops say what they are bound to.
    const std::string name = s.text(l.index);
    const auto [it, added] = index.try_emplace(l.index, kNone);
    if (added) it->second = fresh(is_bound(name) ? name.substr(0, 2) + "#" : "#", index.size());
    l.index = it->second;
  }
  for (uint32_t i = 0; i < s.items.size(); ++i) {
    std::vector<ExprId> work;
    if (s.items[i].nest()) {
      for (uint32_t l = s.items[i].first_loop; l < s.items[i].first_loop + s.items[i].loops; ++l)
        work.push_back(s.loops[l].extent);
    } else {
      work = {s.items[i].value, s.items[i].target};
    }
    while (!work.empty()) {
      const ExprId id = work.back();
      work.pop_back();
      Expr& e = s.exprs[id];
      if (e.op == Op::index) {
        if (const auto it = index.find(e.name); it != index.end()) e.name = it->second;
      } else if (e.op == Op::tensor && !known.contains(e.name)) {
        const auto [it, added] = variable.try_emplace(e.name, kNone);
        if (added) it->second = fresh("%", variable.size());
        e.name = it->second;
      }
      const auto o = s.operands_of(id);
      for (size_t k = o.size(); k-- > 0;) work.push_back(o[k]);
    }
  }
  return print(s);
}

}  // namespace cleave::leir
