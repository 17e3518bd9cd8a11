// Shapes, bounds, initialisation, coverage and scopes.
#include "leir/analysis.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "base/codes.hpp"
#include "leir/typed.hpp"

namespace cleave::leir {

using sym::Interval;
using sym::kHuge;

namespace {
constexpr int64_t kMaxElements = int64_t{1} << 40;

std::string reaches(size_t d, int64_t x, const Variable& v) {
  return x < 0 ? fmt::format("subscript {} reaches {}", d + 1, x)
               : fmt::format("subscript {} reaches {}, the extent is {}", d + 1, x, v.shape[d]);
}
}  // namespace

void Analysis::run() {
  for (const EquationInfo& q : p_.equations_) {
    for (uint32_t a = q.first_access; a < q.first_access + q.accesses; ++a)
      for (ExprId o : s().operands_of(p_.accesses_[a].expr)) p_.accesses_[a].subscripts.push_back(form(o));
    guards(q);
    for (uint32_t a = q.first_access; a < q.first_access + q.accesses; ++a)
      p_.accesses_[a].constraints = constraints(p_.accesses_[a]);
  }
  std::set<uint32_t> written;
  for (EquationInfo& q : p_.equations_) {
    q.initialises = q.accumulation != Accumulation::none && !written.contains(q.target);
    written.insert(q.target);
  }
  shapes();
  if (!failed()) bounds();
  if (!failed()) idle_loops();
  if (!failed()) initialisation();
  if (!failed()) coverage();
  if (!failed()) kinds();
  if (!failed()) scopes();
  // D13, D14: every operation has a type.
  for (uint32_t l = 0; l < s().loops.size(); ++l)
    if (const auto t = type_extent(p_, l); !t.ok()) return message(t.errors()[0]);
  for (uint32_t q = 0; q < p_.equations_.size(); ++q)
    if (const auto t = type_equation(p_, q); !t.ok()) message(t.errors()[0]);
}

// 2.3: the box over all writes.
void Analysis::shapes() {
  for (const EquationInfo& q : p_.equations_) {
    for (uint32_t l : q.loops) {
      const Interval e = pool().bounds(*p_.loop_extent_[l]);
      const std::string& index = s().text(s().loops[l].index);
      if (const auto n = p_.extent(l); n && *n < 1)
        return message(diagnose_at(s().loops[l].range, Code::leir_extent, index,
                                   fmt::format("it is {}, so the loop never runs; extents are at least 1", *n)));
      if (e.hi >= kHuge)
        return message(diagnose_at(s().loops[l].range, Code::leir_extent, index, "it has no upper bound"));
      if (q.initialises && e.lo < 1)
        for (uint32_t r : q.reductions)
          if (r == l)
            return message(diagnose_at(s().loops[l].range, Code::leir_extent, index,
                                       fmt::format("it may be {}, and `{}` has no first value then: write it by an "
                                                   "equation",
                                                   e.lo, p_.name(q.target))));
    }
    Access& w = p_.accesses_[q.first_access];
    Variable& v = p_.variables_[q.target];
    if (!v.known() && v.shape.empty()) v.shape.assign(w.subscripts.size(), 0);
    const std::vector<sym::Expr>& under = w.constraints;
    for (size_t d = 0; d < w.subscripts.size(); ++d) {
      const Interval r = range_under(pool(), w.subscripts[d], under);
      const SourceRange at = s().exprs[w.expr].range;
      const std::string text = print(s(), w.expr);
      bool data = false;
      for (sym::Expr x : pool().symbols_of(w.subscripts[d])) data = data || pool().symbol_name(x)[0] == 'o';
      if (data) {
        // D12: a scatter.
        if (!v.known())
          return message(diagnose_at(at, Code::leir_bounds, text,
                                     "only known variables are written at subscripts that depend on data, or that are "
                                     "more than sums, products, //, %, min, max and clamp of indices"));
        if (r.lo < 0 || r.hi >= v.shape[d]) w.bounds = Proof::unknown;
        continue;
      }
      if (!v.known() && r.hi >= kHuge)
        return message(diagnose_at(at, Code::leir_bounds, text, fmt::format("subscript {} has no upper bound", d + 1)));
      if (r.lo < 0 || (v.known() && r.hi >= v.shape[d])) {
        if (const auto x = outside(q, w.subscripts[d], v.known() ? v.shape[d] : kHuge)) {
          Diagnostic beyond = diagnose_at(at, Code::leir_bounds, text, reaches(d, *x, v));
          // Conditions are of values: nothing keeps an equation from writing.
          if (*x >= 0 && !pool().as_constant(w.subscripts[d]))
            beyond.hint = "a loop over a tile that is cut short has the extent min(size,extent-tile*size)";
          return message(std::move(beyond));
        }
        w.bounds = Proof::unknown;
      }
      if (!v.known()) v.shape[d] = std::max<int64_t>({v.shape[d], r.hi + 1, 1});
    }
  }
  for (const Variable& v : p_.variables_) {
    double n = 1;
    for (int64_t e : v.shape) n *= static_cast<double>(e);
    if (n > static_cast<double>(kMaxElements))
      return message(
          diagnose_at(v.range, Code::leir_variable, s().text(v.name), fmt::format("it would have {:.3g} elements", n)));
  }
}

// A value of the subscript that is none of 0..extent-1, in an iteration that certainly is: at the ends of the loops.
std::optional<int64_t> Analysis::outside(const EquationInfo& q, sym::Expr subscript, int64_t extent) {
  constexpr size_t kMostLoops = 10;  // whose ends are combined in every way
  std::optional<int64_t> least, most;
  const size_t n = std::min(q.loops.size(), kMostLoops);
  for (size_t ends = 0; ends < size_t{1} << n; ++ends) {
    std::unordered_map<sym::Expr, int64_t> at;
    const auto value = [&](sym::Expr x) {
      const auto it = at.find(x);
      return it == at.end() ? std::nullopt : std::optional(it->second);
    };
    bool runs = true;
    for (size_t k = 0; k < q.loops.size() && runs; ++k) {
      const sym::Expr extent_form = *p_.loop_extent_[q.loops[k]];
      const int64_t times = pool().evaluate(extent_form, value).value_or(pool().bounds(extent_form).lo);  // at least
      runs = times > 0;
      if (runs) at[p_.loop_symbol_[q.loops[k]]] = ends >> std::min(k, n - 1) & 1 ? times - 1 : 0;
    }
    const auto x = runs ? pool().evaluate(subscript, value) : std::nullopt;
    if (!x) continue;
    least = std::min(least.value_or(*x), *x);
    most = std::max(most.value_or(*x), *x);
  }
  if (least && *least < 0) return least;
  return most && *most >= extent ? most : std::nullopt;
}

const Shadow& Analysis::shadow() {
  if (!shadow_) shadow_ = run_shadow(p_);
  return *shadow_;
}

// What is not proved of writes by their forms: followed, or left to the run.
void Analysis::bounds_of_writes() {
  for (const EquationInfo& q : p_.equations_) {
    Access& w = p_.accesses_[q.first_access];
    if (w.bounds == Proof::yes) continue;
    const SourceRange at = s().exprs[w.expr].range;
    const std::string text = print(s(), w.expr);
    if (const auto& beyond = shadow().outside; beyond && beyond->first == q.first_access)
      return message(diagnose_at(at, Code::leir_bounds, text,
                                 fmt::format("it reaches {}, the extents are ({})", beyond->second,
                                             fmt::join(p_.variables_[q.target].shape, ","))));
    if (shadow().done)
      w.bounds = Proof::yes;
    else
      message(diagnose_at(at, Code::leir_unchecked, text, "it is not proved to stay inside"));
  }
}

// 2.2: subscripts stay inside; unknown is checked when the program runs.
void Analysis::bounds() {
  bounds_of_writes();
  for (Access& a : p_.accesses_) {
    if (a.write) continue;
    const Variable& v = p_.variables_[a.variable];
    const SourceRange at = s().exprs[a.expr].range;
    if (v.shape.size() != a.subscripts.size()) {
      // Never written, and no input.
      message(diagnose_at(at, Code::leir_read_before_write, print(s(), a.expr), "is never written"));
      continue;
    }
    if (a.self) {  // the element that is written
      a.bounds = p_.accesses_[p_.equations_[p_.equation_of_[a.item]].first_access].bounds;
      continue;
    }
    const std::vector<sym::Expr>& under = a.constraints;
    for (size_t d = 0; d < a.subscripts.size(); ++d) {
      const Interval r = range_under(pool(), a.subscripts[d], under);
      if (r.lo >= 0 && r.hi < v.shape[d]) continue;
      // Without a guard the ends of an affine form are reached, when every loop runs.
      bool exact = !guard_of_.contains(a.expr);
      for (const auto& t : pool().terms(a.subscripts[d]))
        exact = exact && t.atoms.size() <= 1 &&
                (t.atoms.empty() ||
                 (pool().kind(t.atoms[0]) == sym::Kind::symbol && pool().symbol_name(t.atoms[0])[0] == 'i'));
      for (uint32_t l : p_.equations_[p_.equation_of_[a.item]].loops)
        exact = exact && pool().as_constant(*p_.loop_extent_[l]).has_value();
      const std::string text = print(s(), a.expr);
      if (exact) {
        message(diagnose_at(at, Code::leir_bounds, text, reaches(d, r.lo < 0 ? r.lo : r.hi, v)));
        break;
      }
      a.bounds = Proof::unknown;
      message(diagnose_at(at, Code::leir_unchecked, text,
                          fmt::format("subscript {} is not proved to stay inside 0..{}", d + 1, v.shape[d] - 1)));
      break;
    }
  }
}

// D10, D11.
void Analysis::idle_loops() {
  for (const EquationInfo& q : p_.equations_) {
    // With a first value of its own it is computed as often as it is written.
    if (q.accumulation == Accumulation::none || !q.initialises) continue;
    const SourceRange at = s().items[q.item].range;
    std::set<uint32_t> used(q.reductions.begin(), q.reductions.end());
    for (sym::Expr f : p_.accesses_[q.first_access].subscripts)
      for (sym::Expr x : pool().symbols_of(f)) {
        for (uint32_t l : q.loops)
          if (p_.loop_symbol_[l] == x) used.insert(l);
      }
    std::optional<uint32_t> inside;  // a loop that is reduced over
    for (uint32_t l : q.loops) {
      const bool reduction = std::find(q.reductions.begin(), q.reductions.end(), l) != q.reductions.end();
      if (!used.contains(l) && inside) {
        const std::string& index = s().text(s().loops[l].index);
        Diagnostic d = diagnose_at(at, Code::leir_idle, index, p_.name(q.target),
                                   fmt::format("its index is in no subscript and no value, and it stands inside `{}`, "
                                               "which is reduced over: every term would be accumulated several times",
                                               s().text(s().loops[*inside].index)));
        d.hint = fmt::format(
            "use `{}` (an element of a tile of n is `tile*n+{}`), leave the loop out, or put it outside "
            "of the reduction",
            index, index);
        return message(std::move(d));
      }
      if (reduction && !inside) inside = l;
    }
    // The body that the equation stands in: the innermost nest around it.
    const uint32_t body = q.loops.empty() ? kNone : p_.loop_item_[q.loops.back()];
    for (uint32_t r : q.reductions)
      if (p_.loop_item_[r] != body) {
        message(diagnose_at(at, Code::leir_outer_reduction, p_.name(q.target), s().text(s().loops[r].index)));
        break;
      }
  }
}

// 2.2 rule 3: what is read was written before. Three ways of knowing, in the order of their cost.
void Analysis::initialisation() {
  std::map<uint32_t, std::vector<const EquationInfo*>> writers;
  for (const EquationInfo& q : p_.equations_) writers[q.target].push_back(&q);
  // Earlier nests cover all of it.
  std::map<std::pair<uint32_t, uint32_t>, bool> whole_known;
  auto whole = [&](uint32_t variable, uint32_t nest) {
    const auto key = std::make_pair(variable, nest);
    if (const auto it = whole_known.find(key); it != whole_known.end()) return it->second;
    std::vector<std::vector<std::pair<int64_t, int64_t>>> boxes;
    for (const EquationInfo* w : writers[variable]) {
      if (p_.top_of(w->item) >= nest || boxes.size() >= 256) continue;
      if (auto box = written_box(p_, *w)) boxes.push_back(std::move(*box));
    }
    return whole_known[key] = !boxes.empty() && covers(p_.variables_[variable].shape, boxes) == Proof::yes;
  };
  for (const EquationInfo& q : p_.equations_)
    for (uint32_t a = q.first_access; a < q.first_access + q.accesses; ++a) {
      const Access& r = p_.accesses_[a];
      const Variable& v = p_.variables_[r.variable];
      if (r.write || (v.known() && v.role != Role::output)) continue;
      std::optional<NoFirstValue> open;
      if (r.self && q.initialises && !(open = no_first_value(p_, q))) continue;
      bool proved = whole(r.variable, p_.top_of(r.item));
      proved = proved || written_before(p_, r, writers[r.variable]);
      std::string how = "is not proved to be written before it is read";
      if (open)
        how = fmt::format("is not proved to have a first value: it is set where `{}` is 0, and {}",
                          s().text(s().loops[open->reduction].index), open->reason);
      if (!proved) {
        if (shadow().done) {
          const auto it = shadow().unwritten.find(a);
          proved = it == shadow().unwritten.end();
          if (!proved && !open) how = fmt::format("is read at {} before it is written", it->second);
          if (!proved && open)
            how = fmt::format("has no first value at {}: it is set where `{}` is 0, and {}", it->second,
                              s().text(s().loops[open->reduction].index), open->reason);
        }
      }
      if (proved) continue;
      const SourceRange at = s().exprs[r.expr].range;
      Diagnostic d = diagnose_at(at, Code::leir_read_before_write, print(s(), r.expr), how);
      if (open) {
        d.hint = "write its first value by an equation before";
      } else if (r.self) {
        d = diagnose_at(at, Code::leir_accumulator, p_.name(r.variable),
                        "here, although an equation before this one writes the variable, so no first value is set");
      } else if (r.variable == q.target) {
        d.hint = "a guarded sum is written T+if_then_else(p,x,0); a recurrence guards its first read";
      }
      message(std::move(d));
    }
}

// Every element of every output is written.
void Analysis::coverage() {
  for (uint32_t v = 0; v < p_.variables_.size(); ++v) {
    const Variable& var = p_.variables_[v];
    if (var.role != Role::output) continue;
    std::vector<std::vector<std::pair<int64_t, int64_t>>> boxes;
    for (const EquationInfo& w : p_.equations_) {
      if (w.target != v || boxes.size() >= 256) continue;
      if (auto box = written_box(p_, w)) boxes.push_back(std::move(*box));
    }
    if (!boxes.empty() && covers(var.shape, boxes) == Proof::yes) continue;
    std::string why = "is not proved to be written in full";
    if (shadow().done) {
      const auto it = shadow().holes.find(v);
      if (it == shadow().holes.end()) continue;
      why = fmt::format("has elements that are never written, such as {}", it->second);
    }
    message(diagnose_at(var.range, Code::leir_coverage, p_.name(v), why));
  }
}

void Analysis::kinds() {
  for (uint32_t l = 0; l < s().loops.size(); ++l) {
    const Loop& loop = s().loops[l];
    if (loop.kind == Kind::serial || loop.kind == Kind::unroll) continue;
    const Answer a = independent(p_, l);
    if (a.proof == Proof::yes) continue;
    message(diagnose_at(loop.range, Code::leir_dependence, s().text(loop.index), std::string(1, letter(loop.kind)),
                        a.reason));
  }
  // 2.6: one loop an axis on a path, extents within the limits of a device.
  for (const EquationInfo& q : p_.equations_) {
    std::map<std::string, uint32_t> axes;
    int64_t threads = 1;
    for (uint32_t l : q.loops) {
      if (s().loops[l].kind != Kind::bind) continue;
      const std::string& index = s().text(s().loops[l].index);
      const std::string axis = index.substr(0, 2);
      if (!axes.try_emplace(axis, l).second)
        return message(diagnose_at(s().loops[l].range, Code::leir_extent, index,
                                   fmt::format("a loop around it is bound to {} already", axis)));
      const int64_t n = pool().bounds(*p_.loop_extent_[l]).hi;
      const int64_t most = axis == "bx" ? 2147483647 : axis[0] == 'b' ? 65535 : axis == "tz" ? 64 : 1024;
      if (n > most)
        return message(diagnose_at(s().loops[l].range, Code::leir_extent, index,
                                   fmt::format("{} is more than the {} of {}", n, most, axis)));
      if (axis[0] == 't') threads *= n;
    }
    if (threads > 1024)
      return message(diagnose_at(s().items[q.item].range, Code::leir_extent, p_.name(q.target),
                                 fmt::format("{} threads in a block are more than 1024", threads)));
  }
}

void Analysis::scopes() {
  for (const Placement& place : placements(p_))
    if (!place.honoured) {
      Variable& v = p_.variables_[place.variable];
      v.demoted = true;
      message(diagnose_at(v.range, Code::leir_demoted, s().text(v.name), place.reason));
    }
}

}  // namespace cleave::leir
