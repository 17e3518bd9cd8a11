// Normal forms of integer expressions, guards, and intervals under guards.
#include <algorithm>
#include <numeric>

#include "base/check.hpp"
#include "leir/analysis.hpp"

namespace cleave::leir {

using sym::Interval;
using sym::kHuge;

namespace {

constexpr size_t kMaxTerms = 64;
constexpr uint8_t kMaxDepth = 12;
constexpr int kMaxGuards = 64;

Interval times(Interval a, int64_t c) {
  auto mul = [&](int64_t v) -> int64_t {
    if (v <= -kHuge || v >= kHuge) return (v < 0) != (c < 0) ? -kHuge : kHuge;
    const __int128 r = static_cast<__int128>(v) * c;
    return r <= -kHuge ? -kHuge : r >= kHuge ? kHuge : static_cast<int64_t>(r);
  };
  if (c == 0) return {0, 0};
  const int64_t x = mul(a.lo), y = mul(a.hi);
  return {std::min(x, y), std::max(x, y)};
}
int64_t plus(int64_t a, int64_t b) {
  if (a <= -kHuge || b <= -kHuge) return -kHuge;
  if (a >= kHuge || b >= kHuge) return kHuge;
  const int64_t r = a + b;
  return r <= -kHuge ? -kHuge : r >= kHuge ? kHuge : r;
}
int64_t floor_div(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return q - ((a % b != 0) && ((a < 0) != (b < 0)));
}

using Known = std::map<sym::Expr, Interval>;

Interval bound(const sym::Pool& pool, sym::Expr atom, const Known& known) {
  const auto it = known.find(atom);
  return it == known.end() ? pool.bounds(atom) : it->second;
}

Interval bound(const sym::Pool& pool, const std::vector<sym::Pool::Term>& terms, const Known& known, size_t without) {
  Interval sum{0, 0};
  for (size_t i = 0; i < terms.size(); ++i) {
    if (i == without) continue;
    const auto& t = terms[i];
    Interval v{1, 1};
    if (t.atoms.size() == 1) {
      v = bound(pool, t.atoms[0], known);
    } else if (t.atoms.size() > 1) {
      // A product: the pool knows how, from the ranges of the symbols.
      v = {1, 1};
      for (sym::Expr a : t.atoms) {
        const Interval b = bound(pool, a, known);
        if (b.lo < 0 || v.lo < 0) {
          v = {-kHuge, kHuge};
          break;
        }
        v = {times({v.lo, v.lo}, b.lo).lo, b.hi >= kHuge || v.hi >= kHuge ? kHuge : times({v.hi, v.hi}, b.hi).hi};
      }
    }
    v = times(v, t.coefficient);
    sum = {plus(sum.lo, v.lo), plus(sum.hi, v.hi)};
  }
  return sum;
}

}  // namespace

Interval range_under(sym::Pool& pool, sym::Expr form, std::span<const sym::Expr> constraints) {
  if (constraints.empty()) return pool.bounds(form);
  Known known;
  // Each constraint bounds each of its atoms by what the others can be.
  for (int round = 0; round < 3; ++round) {
    bool changed = false;
    for (sym::Expr g : constraints) {
      const auto terms = pool.terms(g);
      for (size_t i = 0; i < terms.size(); ++i) {
        if (terms[i].atoms.size() != 1) continue;
        const sym::Expr x = terms[i].atoms[0];
        const int64_t c = terms[i].coefficient;
        const Interval rest = bound(pool, terms, known, i);
        if (rest.hi >= kHuge) continue;
        Interval now = bound(pool, x, known);
        const Interval was = now;
        if (c > 0)
          now.lo = std::max(now.lo, -floor_div(rest.hi, c));  // c x >= -rest.hi
        else
          now.hi = std::min(now.hi, floor_div(rest.hi, -c));
        if (now.lo != was.lo || now.hi != was.hi) {
          known[x] = now;
          changed = true;
        }
      }
    }
    if (!changed) break;
  }
  const auto terms = pool.terms(form);
  Interval out = bound(pool, terms, known, terms.size());
  // form = (form - k g) + k g with g >= 0, and the other way for the upper end.
  for (sym::Expr g : constraints) {
    std::set<int64_t> lower, upper;
    for (const auto& t : pool.terms(g)) {
      if (t.atoms.empty()) continue;
      for (const auto& f : terms) {
        if (f.atoms != t.atoms || f.coefficient % t.coefficient != 0) continue;
        const int64_t k = f.coefficient / t.coefficient;
        if (k > 0) lower.insert(k);
        if (k < 0) upper.insert(-k);
      }
    }
    for (int64_t k : lower) {
      const auto rest = pool.terms(pool.sub(form, pool.mul(g, k)));
      out.lo = std::max(out.lo, bound(pool, rest, known, rest.size()).lo);
    }
    for (int64_t k : upper) {
      const auto rest = pool.terms(pool.add(form, pool.mul(g, k)));
      out.hi = std::min(out.hi, bound(pool, rest, known, rest.size()).hi);
    }
  }
  return out;
}

namespace {

// Every node of an expression, those of subscripts inside too, until `visit` says true.
template <class Visit>
bool any_node(const Program& p, std::span<const ExprId> roots, Visit&& visit) {
  std::vector<ExprId> work(roots.begin(), roots.end());
  while (!work.empty()) {
    const ExprId id = work.back();
    work.pop_back();
    if (visit(id)) return true;
    for (ExprId o : p.syntax().operands_of(id)) work.push_back(o);
  }
  return false;
}

}  // namespace

bool names_index(const Program& p, ExprId root, uint32_t loop) {
  return any_node(p, {&root, 1},
                  [&](ExprId id) { return p.syntax().exprs[id].op == Op::index && p.meaning(id) == loop; });
}

bool extent_depends(const Program& p, uint32_t loop, uint32_t on) {
  return !p.extent(loop) && names_index(p, p.syntax().loops[loop].extent, on);
}

void rename_opaque(const Program& p, std::span<const ExprId> roots, const std::set<uint32_t>& loops,
                   std::unordered_map<sym::Expr, sym::Expr>& other) {
  sym::Pool& pool = p.pool();
  const auto varies = [&](ExprId id) {
    const Op op = p.syntax().exprs[id].op;
    if (op == Op::index) return loops.contains(p.meaning(id));
    if (op != Op::tensor) return false;
    const Variable& v = p.variables()[p.meaning(id)];
    return !v.known() || v.role == Role::output;
  };
  any_node(p, roots, [&](ExprId id) {
    const auto form = p.form(id);
    if (form && pool.kind(*form) == sym::Kind::symbol && pool.symbol_name(*form)[0] == 'o' && !other.contains(*form) &&
        any_node(p, {&id, 1}, varies))
      other[*form] = pool.fresh("o", pool.symbol_range(*form));
    return false;
  });
}

std::optional<NoFirstValue> no_first_value(const Program& p, const EquationInfo& q) {
  sym::Pool& pool = p.pool();
  const std::set<uint32_t> reductions(q.reductions.begin(), q.reductions.end());
  std::unordered_map<sym::Expr, sym::Expr> start;  // where all reduction indices are 0
  for (uint32_t r : q.reductions) start[p.symbol(r)] = pool.constant(0);
  const Access& write = p.accesses()[q.first_access];
  for (uint32_t l : q.loops) {
    const auto r =
        std::find_if(q.reductions.begin(), q.reductions.end(), [&](uint32_t x) { return extent_depends(p, l, x); });
    // Loops that are reduced over run at least once.
    if (r == q.reductions.end() || reductions.contains(l)) continue;
    auto then = start;
    rename_opaque(p, {&p.syntax().loops[l].extent, 1}, reductions, then);
    const sym::Expr left = pool.sub(pool.substitute(p.extent_form(l), then), pool.add(p.symbol(l), 1));
    if (range_under(pool, left, write.constraints).lo >= 0) continue;
    return NoFirstValue{
        *r, fmt::format("`{}` may run further in other iterations", p.syntax().text(p.syntax().loops[l].index))};
  }
  // The place that is written may be another one by then.
  for (const EquationInfo& w : p.equations())
    for (uint32_t r : q.reductions) {
      if (std::find(w.loops.begin(), w.loops.end(), r) == w.loops.end()) continue;
      if (any_node(p, p.syntax().operands_of(write.expr),
                   [&](ExprId id) { return p.syntax().exprs[id].op == Op::tensor && p.meaning(id) == w.target; }))
        return NoFirstValue{r, fmt::format("`{}`, which says where, is written in between", p.name(w.target))};
    }
  return std::nullopt;
}

Analysis::Analysis(Program& program, Diagnostics& messages) : p_(program), messages_(messages) {
  p_.pool_ = std::make_shared<sym::Pool>();
  p_.forms_.assign(s().exprs.size(), std::nullopt);
  depth_.assign(s().exprs.size(), 0);
  extents();
}

void Analysis::message(Diagnostic d) {
  failed_ = failed_ || info(d.code).severity == Severity::error;
  if (messages_.size() < kMaxMessages) messages_.push_back(std::move(d));
}

bool Analysis::same(ExprId a, ExprId b) { return form(a) == form(b); }

sym::Expr Analysis::form(ExprId root) {
  std::vector<std::pair<ExprId, bool>> work = {{root, false}};
  while (!work.empty()) {
    const auto [id, ready] = work.back();
    work.pop_back();
    if (p_.forms_[id]) continue;
    if (ready) {
      p_.forms_[id] = make_form(id);
      // Numbers of forms saturate: what reaches the end says nothing of the number that a run computes.
      for (const auto& t : pool().terms(*p_.forms_[id]))
        if (t.coefficient >= kHuge || t.coefficient <= -kHuge) {
          p_.forms_[id] = pool().fresh("o", {});
          break;
        }
      continue;
    }
    work.push_back({id, true});
    if (s().exprs[id].op != Op::tensor)
      for (ExprId o : s().operands_of(id)) work.push_back({o, false});
  }
  return *p_.forms_[root];
}

sym::Expr Analysis::make_form(ExprId id) {
  const Expr& e = s().exprs[id];
  auto opaque = [&](Interval range = {}) { return pool().fresh("o", range); };
  const auto operands = s().operands_of(id);
  uint8_t depth = 0;
  if (e.op != Op::tensor)
    for (ExprId o : operands) depth = std::max(depth, depth_[o]);
  const bool nests = e.op == Op::floordiv || e.op == Op::mod || e.op == Op::call;
  depth_[id] = static_cast<uint8_t>(std::min<int>(255, depth + (nests ? 1 : 0)));
  if (depth_[id] > kMaxDepth) return opaque();
  auto f = [&](size_t i) { return *p_.forms_[operands[i]]; };
  size_t terms = 1, product = 1;
  if (e.op != Op::tensor)
    for (size_t i = 0; i < operands.size(); ++i) {
      const size_t n = pool().terms(f(i)).size();
      terms += n;
      product *= std::max<size_t>(1, n);
    }
  if (terms > kMaxTerms || (e.op == Op::mul && product > kMaxTerms)) return opaque();
  switch (e.op) {
    case Op::integer: return pool().constant(std::min(e.integer, kHuge));
    case Op::index: return p_.loop_symbol_[p_.meaning_[id]];
    case Op::negate: return pool().mul(f(0), -1);
    case Op::add: return pool().add(f(0), f(1));
    case Op::sub: return pool().sub(f(0), f(1));
    case Op::mul: {
      // Powers of indices serve no one and grow.
      for (size_t i = 0; i < 2; ++i)
        for (const auto& t : pool().terms(f(i)))
          if (t.atoms.size() > 2) return opaque();
      return pool().mul(f(0), f(1));
    }
    case Op::floordiv:
    case Op::mod:
      if (pool().bounds(f(1)).lo <= 0) return opaque();
      return e.op == Op::mod ? pool().mod(f(0), f(1)) : pool().floordiv(f(0), f(1));
    case Op::call:
      if (e.function == Function::max) return pool().max(f(0), f(1));
      if (e.function == Function::min) return pool().min(f(0), f(1));
      if (e.function == Function::clamp) return pool().min(pool().max(f(0), f(1)), f(2));
      if (e.function == Function::relu) return pool().max(f(0), pool().constant(0));
      if (e.function == Function::sign) return opaque({-1, 1});
      if (e.function == Function::abs) {
        const Interval x = pool().bounds(f(0));
        if (x.lo <= -kHuge || x.hi >= kHuge) return opaque();
        return opaque({std::max<int64_t>({0, x.lo, -x.hi}), std::max(-x.lo, x.hi)});
      }
      if (e.function == Function::if_then_else) return opaque(either(operands));
      return opaque();
    case Op::compare:
    case Op::logical_and:
    case Op::logical_or: return opaque({0, 1});
    case Op::tensor: {
      const Variable& v = p_.variables_[p_.meaning_[id]];
      Interval range;
      if (!is_real(v.type)) {
        const bool wide = byte_size(v.type) == 8;
        range = {wide ? -kHuge : lowest_integer(v.type), wide ? kHuge : highest_integer(v.type)};
        if (v.values) range = {v.values->first, v.values->second};
      }
      // A known scalar that is never written has one value throughout.
      if (v.known() && v.role != Role::output && v.shape.empty() && !is_real(v.type))
        return pool().symbol("$" + s().text(v.name), range);
      return opaque(range);
    }
    default: return opaque();
  }
}

// What an if_then_else may be: each branch under its condition.
Interval Analysis::either(std::span<const ExprId> operands) {
  std::optional<Interval> out;
  for (size_t i = 1; i < 3; ++i) {
    std::vector<sym::Expr> under;
    constraints_of(operands[0], i == 2, under);
    const Interval branch = range_under(pool(), *p_.forms_[operands[i]], under);
    if (branch.lo > branch.hi) continue;  // it is never taken
    out = out ? Interval{std::min(out->lo, branch.lo), std::max(out->hi, branch.hi)} : branch;
  }
  return out.value_or(Interval{});
}

void Analysis::extents() {
  p_.loop_symbol_.assign(s().loops.size(), {});
  p_.loop_extent_.assign(s().loops.size(), std::nullopt);
  for (uint32_t l = 0; l < s().loops.size(); ++l) {
    p_.loop_symbol_[l] = pool().symbol(fmt::format("i{}", l));
  }
  for (uint32_t l = 0; l < s().loops.size(); ++l) {
    const sym::Expr e = form(s().loops[l].extent);
    p_.loop_extent_[l] = e;
    const int64_t hi = pool().bounds(e).hi;
    pool().set_range(p_.loop_symbol_[l], {0, hi >= kHuge ? kHuge : std::max<int64_t>(hi - 1, 0)});
  }
}

// D17: a branch is reached under its condition, the right side of & and | under the left.
void Analysis::guards(const EquationInfo& q) {
  std::vector<std::pair<ExprId, uint32_t>> work = {{s().items[q.item].value, kNone}};
  auto guard = [&](uint32_t outer, ExprId condition, bool negated) {
    guards_.push_back({outer, condition, negated});
    return static_cast<uint32_t>(guards_.size() - 1);
  };
  while (!work.empty()) {
    const auto [id, g] = work.back();
    work.pop_back();
    const Expr& e = s().exprs[id];
    const auto o = s().operands_of(id);
    if (e.op == Op::tensor && g != kNone) guard_of_[id] = g;
    if (e.op == Op::call && e.function == Function::if_then_else) {
      work.push_back({o[0], g});
      work.push_back({o[1], guard(g, o[0], false)});
      work.push_back({o[2], guard(g, o[0], true)});
    } else if (e.op == Op::logical_and || e.op == Op::logical_or) {
      work.push_back({o[0], g});
      work.push_back({o[1], guard(g, o[0], e.op == Op::logical_or)});
    } else {
      for (ExprId x : o) work.push_back({x, g});
    }
  }
}

void Analysis::constraints_of(ExprId condition, bool negated, std::vector<sym::Expr>& out) {
  std::vector<ExprId> work = {condition};
  while (!work.empty() && out.size() < kMaxGuards) {
    const ExprId id = work.back();
    work.pop_back();
    const Expr& e = s().exprs[id];
    const auto o = s().operands_of(id);
    if (e.op == (negated ? Op::logical_or : Op::logical_and)) {
      work.push_back(o[0]);
      work.push_back(o[1]);
      continue;
    }
    if (e.op != Op::compare || (negated && e.count > 2)) continue;
    const auto by = s().comparisons_of(id);
    for (size_t i = 0; i < by.size(); ++i) {
      bool integers = true;
      for (ExprId x : {o[i], o[i + 1]}) {
        const Op op = s().exprs[x].op;
        integers = integers && op != Op::real && op != Op::infinity && op != Op::div && op != Op::power;
      }
      if (!integers) continue;
      const sym::Expr a = form(o[i]), b = form(o[i + 1]);
      Comparison c = by[i];
      if (negated) {
        constexpr Comparison kNot[] = {Comparison::ge, Comparison::gt, Comparison::le,
                                       Comparison::lt, Comparison::ne, Comparison::eq};
        c = kNot[static_cast<size_t>(c)];
      }
      switch (c) {
        case Comparison::lt: out.push_back(pool().add(pool().sub(b, a), -1)); break;
        case Comparison::le: out.push_back(pool().sub(b, a)); break;
        case Comparison::gt: out.push_back(pool().add(pool().sub(a, b), -1)); break;
        case Comparison::ge: out.push_back(pool().sub(a, b)); break;
        case Comparison::eq:
          out.push_back(pool().sub(b, a));
          out.push_back(pool().sub(a, b));
          break;
        case Comparison::ne: {
          const sym::Expr difference = pool().sub(a, b);
          const Interval r = pool().bounds(difference);
          if (r.lo >= 0) out.push_back(pool().add(difference, -1));
          if (r.hi <= 0) out.push_back(pool().add(pool().mul(difference, -1), -1));
          break;
        }
      }
    }
  }
}

// The index is below the extent, and below each side of a minimum in it.
void Analysis::below(sym::Expr extent, sym::Expr index, std::vector<sym::Expr>& out) {
  std::vector<sym::Expr> work = {extent};
  for (size_t i = 0; i < work.size() && i < 16 && out.size() < kMaxGuards; ++i) {
    out.push_back(pool().add(pool().sub(work[i], index), -1));
    for (const auto& t : pool().terms(work[i])) {
      if (t.atoms.size() != 1 || t.coefficient != 1 || pool().kind(t.atoms[0]) != sym::Kind::min) continue;
      const sym::Expr rest = pool().sub(work[i], t.atoms[0]);
      const auto [x, y] = pool().operands(t.atoms[0]);
      work.push_back(pool().add(rest, x));
      work.push_back(pool().add(rest, y));
      break;
    }
  }
}

std::vector<sym::Expr> Analysis::constraints(const Access& a) {
  std::vector<sym::Expr> out;
  int depth = 0;
  const auto guard = guard_of_.find(a.expr);
  for (uint32_t g = guard == guard_of_.end() ? kNone : guard->second; g != kNone && depth < kMaxGuards;
       g = guards_[g].outer, ++depth)
    constraints_of(guards_[g].condition, guards_[g].negated, out);
  // Inside a loop whose extent is no number, the index is below it.
  for (uint32_t l : p_.equations_[p_.equation_of_[a.item]].loops)
    if (p_.loop_extent_[l] && !pool().as_constant(*p_.loop_extent_[l]))
      below(*p_.loop_extent_[l], p_.loop_symbol_[l], out);
  return out;
}

namespace {

// Is `inner` (with factor 1) an index inside a tile of `outer` (with factor `step`), so that both run over 0..n? The
// extent of the inner one is min(step, n - step*outer) then.
std::optional<int64_t> tiled(sym::Pool& pool, sym::Expr extent, sym::Expr outer, int64_t step, int64_t tiles) {
  if (pool.kind(extent) != sym::Kind::min) return std::nullopt;
  auto [a, b] = pool.operands(extent);
  if (pool.is(b, step)) std::swap(a, b);
  if (!pool.is(a, step)) return std::nullopt;
  const auto n = pool.as_constant(pool.add(b, pool.mul(outer, step)));
  return n && *n > (tiles - 1) * step && *n <= tiles * step ? n : std::nullopt;
}

}  // namespace

std::optional<Box> box_of(const Program& p, const EquationInfo& q, const std::set<uint32_t>& free) {
  sym::Pool& pool = p.pool();
  std::map<uint32_t, sym::Expr> extents;  // of the free symbols
  for (uint32_t l : q.loops)
    if (free.contains(p.symbol(l).index)) extents.emplace(p.symbol(l).index, p.extent_form(l));
  Box box;
  std::set<uint32_t> used;
  for (sym::Expr sub : p.accesses()[q.first_access].subscripts) {
    struct Moving {
      sym::Expr symbol;
      int64_t factor;
    };
    std::vector<Moving> moving;
    Box::Side side{pool.constant(0), 0, 0, std::nullopt};
    for (const auto& t : pool.terms(sub)) {
      bool mentions = false;
      for (sym::Expr a : t.atoms)
        for (sym::Expr x : pool.symbols_of(a)) mentions = mentions || free.contains(x.index);
      if (!mentions) {
        sym::Expr term = pool.constant(t.coefficient);
        for (sym::Expr a : t.atoms) term = pool.mul(term, a);
        side.fixed = pool.add(side.fixed, term);
        continue;
      }
      if (t.atoms.size() != 1 || !extents.contains(t.atoms[0].index) || !used.insert(t.atoms[0].index).second)
        return std::nullopt;
      moving.push_back({t.atoms[0], t.coefficient});
    }
    // The one loop whose extent is no number: over the rest of a tile, or up to a form of loops that stand still.
    std::vector<std::pair<int64_t, int64_t>> dense;  // |factor|, extent - 1
    const auto open = std::find_if(moving.begin(), moving.end(), [&](const Moving& m) {
      return m.factor == 1 && !pool.as_constant(extents.at(m.symbol.index));
    });
    if (open != moving.end()) {
      const sym::Expr extent = extents.at(open->symbol.index);
      moving.erase(open);
      bool whole = false;
      for (auto outer = moving.begin(); outer != moving.end() && !whole; ++outer) {
        const auto tiles = pool.as_constant(extents.at(outer->symbol.index));
        const auto n = tiles ? tiled(pool, extent, outer->symbol, outer->factor, *tiles) : std::nullopt;
        if (!n) continue;
        whole = true;
        dense.push_back({1, *n - 1});
        side.hi += *n - 1;
        moving.erase(outer);
        break;
      }
      if (!whole) {
        for (sym::Expr x : pool.symbols_of(extent))
          if (free.contains(x.index)) return std::nullopt;
        if (!moving.empty()) return std::nullopt;
        side.end = extent;
      }
    }
    for (const auto& [symbol, c] : moving) {
      const auto n = pool.as_constant(extents.at(symbol.index));
      if (!n || *n < 1) return std::nullopt;
      dense.push_back({c < 0 ? -c : c, *n - 1});
      (c < 0 ? side.lo : side.hi) += c * (*n - 1);
    }
    std::sort(dense.begin(), dense.end());
    int64_t reach = 0;
    for (const auto& [c, n] : dense) {
      if (n == 0) continue;
      if (c > reach + 1) return std::nullopt;  // a hole
      reach += c * n;
    }
    box.sides.push_back(std::move(side));
  }
  // Loops that no subscript mentions have to run at least once.
  for (const auto& [symbol, extent] : extents)
    if (!used.contains(symbol) && pool.bounds(extent).lo < 1) return std::nullopt;
  return box;
}

Proof covers(const std::vector<int64_t>& shape, const std::vector<std::vector<std::pair<int64_t, int64_t>>>& boxes) {
  using Piece = std::vector<std::pair<int64_t, int64_t>>;
  Piece whole;
  for (int64_t n : shape) {
    if (n == 0) return Proof::yes;
    whole.push_back({0, n - 1});
  }
  std::vector<Piece> left = {whole};
  for (const Piece& b : boxes) {
    std::vector<Piece> next;
    for (const Piece& p : left) {
      bool apart = false;
      for (size_t d = 0; d < p.size(); ++d) apart = apart || b[d].second < p[d].first || b[d].first > p[d].second;
      if (apart) {
        next.push_back(p);
        continue;
      }
      Piece rest = p;
      for (size_t d = 0; d < p.size(); ++d) {
        if (rest[d].first < b[d].first) {
          Piece below = rest;
          below[d].second = b[d].first - 1;
          next.push_back(below);
          rest[d].first = b[d].first;
        }
        if (rest[d].second > b[d].second) {
          Piece above = rest;
          above[d].first = b[d].second + 1;
          next.push_back(above);
          rest[d].second = b[d].second;
        }
      }
    }
    left = std::move(next);
    if (left.size() > 10000) return Proof::unknown;
  }
  return left.empty() ? Proof::yes : Proof::no;
}

}  // namespace cleave::leir
