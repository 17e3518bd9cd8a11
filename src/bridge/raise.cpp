#include "bridge/raise.hpp"

#include <algorithm>
#include <limits>
#include <set>

#include "base/codes.hpp"
#include "bridge/expression.hpp"

namespace cleave::bridge {

using leir::Access;
using leir::Accumulation;
using leir::EquationInfo;
using leir::kNone;

namespace {

constexpr int64_t kMaxExtent = int64_t{1} << 31;
constexpr size_t kMaxLoops = 12;  // axes of a value, with room for those of windows

// A variable as it is after the equations so far.
struct State {
  ValueId value;  // of a box inside the variable
  std::vector<int64_t> from, shape;
  bool written = false;
  std::optional<double> splat;  // every element has this value
};

struct Reduction {
  Op reduce, combine, scan;
  double identity;
};
constexpr double kInfinity = std::numeric_limits<double>::infinity();
const Reduction& reduction(Accumulation a) {
  static const Reduction kTable[] = {
      {Op::sum, Op::add, Op::cumsum, 0},
      {Op::prod, Op::mul, Op::cumprod, 1},
      {Op::amax, Op::max, Op::cummax, -kInfinity},
      {Op::amin, Op::min, Op::cummax, kInfinity},
  };
  return kTable[static_cast<size_t>(a) - 1];
}

class Raiser {
 public:
  using Constants = std::map<std::string, graph::ConstantData>;
  Raiser(const leir::Program& p, std::string_view name, const Constants& constants)
      : p_(p), constants_(constants), b_(std::string(name)) {}

  Result<graph::Graph> run() {
    for (uint32_t v = 0; v < p_.variables().size(); ++v)
      if (Diagnostics bad = declare(v); !bad.empty()) return bad;
    if (Diagnostics bad = order(); !bad.empty()) return bad;
    for (uint32_t e = 0; e < p_.equations().size(); ++e)
      if (Diagnostics bad = equation(e); !bad.empty()) {
        // What the graph refuses is said of the equation.
        for (Diagnostic& d : bad)
          if (!d.range || d.code != Code::leir_unsupported)
            d = refusal(p_, p_.equations()[e].item, fmt::format("has no graph: {}", d.message()));
        return bad;
      }
    for (uint32_t v = 0; v < p_.variables().size(); ++v) {
      if (p_.variables()[v].role != leir::Role::output) continue;
      TRY_ASSIGN(const ValueId value, whole(v));
      b_.output(p_.name(v), value);
    }
    return b_.finish();
  }

 private:
  Diagnostics declare(uint32_t v) {
    const leir::Variable& var = p_.variables()[v];
    const auto dtype = leir::as_dtype(var.type);
    if (!dtype)
      return {diagnose_at(var.range, Code::leir_unsupported, "graph",
                          fmt::format("`{}` is {}, which graphs have not", p_.name(v), leir::name(var.type)))};
    State s;
    std::vector<uint32_t> copies;
    std::optional<Carried> carried;
    if (!var.known()) copies = loops_with_copies(v, carried);
    if (var.known() && var.role != leir::Role::output) {
      const auto constant = constants_.find(p_.name(v));
      s.value = constant == constants_.end() ? b_.input(p_.name(v), *dtype, b_.shape(var.shape))
                                             : b_.constant(p_.name(v), *dtype, b_.shape(var.shape), constant->second);
      s.from.assign(var.shape.size(), 0);
      s.shape = var.shape;
      s.written = true;
    }
    states_.push_back(std::move(s));
    copies_.push_back(std::move(copies));
    carried_.push_back(carried);
    return {};
  }

  // A read of what the iteration before left in a variable.
  struct Carried {
    leir::ExprId read;
    uint32_t loop;
  };

  // Loops around all mentions of an intermediate that it lives within, though no subscript says so. One of them may
  // hand the variable on to its next iteration, if it is written once in each.
  std::vector<uint32_t> loops_with_copies(uint32_t v, std::optional<Carried>& carried) const {
    std::optional<std::vector<uint32_t>> common;
    std::set<uint32_t> mentioned;
    for (const Access& a : p_.accesses()) {
      if (a.variable != v) continue;
      const auto& loops = p_.equations()[p_.equation_of(a.item)].loops;
      if (!common) common = loops;
      std::erase_if(*common, [&](uint32_t l) { return std::find(loops.begin(), loops.end(), l) == loops.end(); });
      for (uint32_t l : loops)
        for (sym::Expr s : a.subscripts)
          if (p_.pool().mentions(s, p_.symbol(l))) mentioned.insert(l);
    }
    std::vector<uint32_t> out;
    for (uint32_t l : common.value_or(std::vector<uint32_t>{})) {
      if (mentioned.contains(l) || p_.extent(l).value_or(2) == 1) continue;
      if (!leir::private_to(p_, v, l)) {
        const auto read = carried ? std::nullopt : read_of_iteration_before(v, l);
        if (!read) continue;
        carried = Carried{*read, l};
      }
      out.push_back(l);
    }
    return out;
  }
  // The one read of a variable that is not written before it in the same iteration: in the one equation that writes it.
  std::optional<leir::ExprId> read_of_iteration_before(uint32_t v, uint32_t loop) const {
    std::vector<const EquationInfo*> writers;
    for (const EquationInfo& q : p_.equations())
      if (q.target == v) writers.push_back(&q);
    if (writers.size() != 1 || writers[0]->accumulation != Accumulation::none) return std::nullopt;
    std::optional<leir::ExprId> out;
    for (const Access& a : p_.accesses()) {
      if (a.variable != v || a.write || leir::written_before(p_, a, writers, loop)) continue;
      if (out || a.item != writers[0]->item) return std::nullopt;
      out = a.expr;
    }
    return out;
  }

  // The items of a body become nests of their own, one after the other: refused when a later item of an earlier
  // iteration meets an earlier item of a later one.
  Diagnostics order() const {
    const auto& all = p_.equations();
    for (uint32_t i = 0; i < all.size(); ++i)
      for (uint32_t j = i + 1; j < all.size() && p_.top_of(all[j].item) == p_.top_of(all[i].item); ++j)
        for (const leir::Dependence& d : leir::dependences(p_, all[i].item, all[j].item)) {
          const auto& copies = copies_[p_.accesses()[d.from].variable];
          for (size_t l = 0; l < d.loops.size(); ++l) {
            if (std::find(copies.begin(), copies.end(), d.loops[l]) != copies.end()) continue;
            if (p_.extent(d.loops[l]) == 1 || d.distance[l] == 0) continue;
            if (d.distance[l] && *d.distance[l] > 0) break;
            return {refusal(p_, all[j].item,
                            fmt::format("and `{}` above it depend on each other across iterations of `{}`",
                                        print(p_.syntax(), p_.accesses()[d.from].expr),
                                        p_.syntax().text(p_.syntax().loops[d.loops[l]].index)))};
          }
        }
    return {};
  }

  std::vector<int64_t> full_shape(uint32_t v) const {
    std::vector<int64_t> out;
    for (uint32_t l : copies_[v]) out.push_back(most(l));
    const auto& own = p_.variables()[v].shape;
    out.insert(out.end(), own.begin(), own.end());
    return out;
  }
  int64_t most(uint32_t loop) const { return std::max<int64_t>(p_.pool().bounds(p_.extent_form(loop)).hi, 1); }

  Result<ValueId> node(Op op, std::vector<ValueId> operands, graph::Attributes attributes) {
    TRY_ASSIGN(const auto results, b_.add(op, std::move(operands), std::move(attributes)));
    return results.at(0);
  }

  // A variable as one value; elements that nothing wrote are 0 and never read.
  Result<ValueId> whole(uint32_t v) {
    State& s = states_[v];
    const std::vector<int64_t> shape = full_shape(v);
    if (!s.written) {
      TRY_ASSIGN(s.value, node(Op::broadcast, {b_.literal(0, *leir::as_dtype(p_.variables()[v].type))},
                               {{"shape", b_.shape(shape)}}));
      s.from.assign(shape.size(), 0);
      s.shape = shape;
      s.written = true;
    }
    if (s.shape == shape) return s.value;
    TRY_ASSIGN(s.value, padded(s.value, s.from, s.shape, shape));
    s.from.assign(shape.size(), 0);
    s.shape = shape;
    s.splat = std::nullopt;
    return s.value;
  }
  Result<ValueId> padded(ValueId value, const std::vector<int64_t>& from, const std::vector<int64_t>& part,
                         const std::vector<int64_t>& shape) {
    std::vector<int64_t> high;
    for (size_t k = 0; k < shape.size(); ++k) high.push_back(shape[k] - from[k] - part[k]);
    return node(Op::pad, {value}, {{"low", from}, {"high", high}});
  }

  // What stands beyond the variable is of tiles that are cut short: it is not written.
  Diagnostics cut(uint32_t v, Lifter::Box& box) {
    const std::vector<int64_t> shape = full_shape(v);
    for (size_t k = 0; k < shape.size(); ++k) {
      const int64_t inside = shape[k] - box.from[k];
      if (box.shape[k] <= inside) continue;
      const int64_t from[] = {0}, to[] = {inside};
      auto part = node(Op::slice, {box.value},
                       {{"axes", std::vector<int64_t>{static_cast<int64_t>(k)}},
                        {"starts", b_.shape(from)},
                        {"stops", b_.shape(to)}});
      if (!part) return part.errors();
      box.value = *part;
      box.shape[k] = inside;
    }
    return {};
  }

  Diagnostics update(uint32_t v, const Lifter::Box& box, std::optional<double> splat) {
    State& s = states_[v];
    const std::vector<int64_t> shape = full_shape(v);
    auto replace = [&](ValueId value, std::vector<int64_t> from, std::vector<int64_t> part) {
      s = {value, std::move(from), std::move(part), true, std::nullopt};
    };
    std::vector<size_t> differ;
    bool covers = true;
    for (size_t k = 0; k < shape.size(); ++k) {
      if (!s.written) break;
      if (s.from[k] != box.from[k] || s.shape[k] != box.shape[k]) differ.push_back(k);
      covers = covers && box.from[k] <= s.from[k] && box.from[k] + box.shape[k] >= s.from[k] + s.shape[k];
    }
    if (!s.written || covers) {
      replace(box.value, box.from, box.shape);
      s.splat = splat;
    } else if (differ.size() == 1 && box.from[differ[0]] == s.from[differ[0]] + s.shape[differ[0]]) {
      return joined(s, {s.value, box.value}, differ[0], s.from, s.shape[differ[0]] + box.shape[differ[0]]);
    } else if (differ.size() == 1 && s.from[differ[0]] == box.from[differ[0]] + box.shape[differ[0]]) {
      return joined(s, {box.value, s.value}, differ[0], box.from, s.shape[differ[0]] + box.shape[differ[0]]);
    } else {
      // The new part over the old value, by a mask.
      auto old = whole(v);
      if (!old) return old.errors();
      auto part = padded(box.value, box.from, box.shape, shape);
      if (!part) return part.errors();
      auto mask = inside(box, shape);
      if (!mask) return mask.errors();
      auto both = node(Op::where, {*mask, *part, *old}, {});
      if (!both) return both.errors();
      replace(*both, std::vector<int64_t>(shape.size(), 0), shape);
    }
    return {};
  }
  Diagnostics joined(State& s, std::vector<ValueId> parts, size_t axis, std::vector<int64_t> from, int64_t extent) {
    auto value = node(Op::concat, std::move(parts), {{"axis", static_cast<int64_t>(axis)}});
    if (!value) return value.errors();
    s.value = *value;
    s.from = std::move(from);
    s.shape[axis] = extent;
    s.splat = std::nullopt;
    return {};
  }
  Result<ValueId> inside(const Lifter::Box& box, const std::vector<int64_t>& shape) {
    std::optional<ValueId> all;
    for (size_t k = 0; k < shape.size(); ++k) {
      std::vector<int64_t> line(shape.size() - k, 1);
      line[0] = shape[k];
      for (const auto& [bound, op] : {std::pair(box.from[k], Op::ge), {box.from[k] + box.shape[k], Op::lt}}) {
        if (op == Op::ge ? bound <= 0 : bound >= shape[k]) continue;
        TRY_ASSIGN(const ValueId at,
                   node(Op::iota, {}, {{"shape", b_.shape(line)}, {"axis", int64_t{0}}, {"dtype", DType::i64}}));
        TRY_ASSIGN(ValueId test, node(op, {at, b_.literal(static_cast<double>(bound), DType::i64)}, {}));
        if (all) {
          TRY_ASSIGN(test, node(Op::logical_and, {*all, test}, {}));
        }
        all = test;
      }
    }
    CHECK(all, "a box that covers its variable");
    return *all;
  }

  Diagnostics equation(uint32_t e) {
    const EquationInfo& q = p_.equations()[e];
    std::vector<int64_t> extents;
    double points = 1;
    for (uint32_t l : q.loops) {
      const int64_t n = p_.pool().bounds(p_.extent_form(l)).hi;
      if (n > kMaxExtent)
        return {refusal(p_, q.item,
                        fmt::format("is under the loop `{}`, whose extent has no bound",
                                    p_.syntax().text(p_.syntax().loops[l].index)))};
      extents.push_back(std::max<int64_t>(n, 1));
      points *= static_cast<double>(extents.back());
    }
    if (std::count_if(extents.begin(), extents.end(), [](int64_t n) { return n > 1; }) > int{kMaxLoops})
      return {refusal(p_, q.item, fmt::format("is under more than {} loops", kMaxLoops))};
    if (points > static_cast<double>(graph::kMaxElements))
      return {refusal(p_, q.item, fmt::format("has {:.0f} points, more than graphs may have", points))};
    auto code = leir::type_equation(p_, e);
    if (!code) return code.errors();
    Lifter lifter(b_, std::move(extents));
    const Surroundings around{p_, q.loops, [this](uint32_t v) { return whole(v); },
                              [this](uint32_t v) -> const std::vector<uint32_t>& { return copies_[v]; },
                              [this](const Access& a) -> std::optional<uint32_t> {
                                const auto& c = carried_[a.variable];
                                return c && c->read == a.expr ? std::optional(c->loop) : std::nullopt;
                              }};
    Expression expression(around, lifter, code->code);
    return Equation{*this, q, *code, lifter, around, expression}.run();
  }

  struct Equation {
    Raiser& r;
    const EquationInfo& q;
    const leir::TypedEquation& code;
    Lifter& lifter;
    const Surroundings& around;
    Expression& expression;

    std::vector<Linear> at = {};       // of the target, copies first
    std::vector<bool> in_target = {};  // loops

    Diagnostics refuse(const std::string& why) const { return {refusal(r.p_, q.item, why)}; }
    std::string loop_name(size_t k) const { return r.p_.syntax().text(r.p_.syntax().loops[q.loops[k]].index); }
    const leir::Node& node(leir::NodeId n) const { return code.code.nodes[n]; }

    Diagnostics run() {
      const auto places = expression.places(r.p_.accesses()[q.first_access]);
      in_target.assign(q.loops.size(), false);
      for (const auto& f : places) {
        if (!f) return refuse("writes at a computed place");
        at.push_back(*f);
        for (const auto& [loop, factor] : f->terms) in_target[loop] = true;
      }
      auto value = lifted();
      if (!value) return value.errors();
      const auto storage = *leir::as_dtype(r.p_.variables()[q.target].type);
      auto stored = lifter.cast(*value, storage);
      if (!stored) return stored.errors();
      auto box = lifter.place(*stored, at);
      if (!box) return box.errors();
      if (!*box) return refuse("writes with gaps between the elements, or along a diagonal");
      if (Diagnostics bad = r.cut(q.target, **box); !bad.empty()) return bad;
      std::optional<double> splat;
      const leir::Node& root = node(code.code.root);
      if (root.act == leir::Act::real) splat = root.real;
      if (root.act == leir::Act::integer) splat = static_cast<double>(root.integer);
      return r.update(q.target, **box, splat);
    }

    Result<Lifted> lifted() {
      if (const auto product = multiply_add()) {
        TRY_ASSIGN(const auto mask, region());
        TRY_ASSIGN(const Lifted x, expression.lift(product->first));
        TRY_ASSIGN(const Lifted y, expression.lift(product->second));
        TRY_ASSIGN(Lifted all, lifter.apply(Op::mul, {x, y}));
        return accumulated(Accumulation::sum, std::move(all), mask);
      }
      const auto recurrence = self_reads();
      if (recurrence.again) {
        if (q.accumulation != Accumulation::none) return refuse(*recurrence.again);
        TRY_ASSIGN(const auto scan, scanned());
        if (scan) return *scan;
        TRY_ASSIGN(const auto reduced, restarted());
        if (reduced) return *reduced;
        return refuse(*recurrence.again);
      }
      TRY_ASSIGN(const auto mask, region());
      TRY_ASSIGN(Lifted x, expression.lift(code.code.root));
      if (q.accumulation != Accumulation::none) return accumulated(q.accumulation, std::move(x), mask);
      for (uint32_t k = 0; k < q.loops.size(); ++k) {
        if (in_target[k]) continue;
        if (mask && std::find(mask->axes.begin(), mask->axes.end(), k) != mask->axes.end())
          return refuse(fmt::format("is written again in each iteration of `{}`, whose extent varies", loop_name(k)));
        TRY_ASSIGN(x, lifter.last(x, k));
      }
      // Elements that nothing writes are never read.
      if (mask && r.states_[q.target].written) {
        TRY_ASSIGN(const Lifted old, before());
        TRY_ASSIGN(x, lifter.cast(x, lifter.dtype(old)));
        TRY_ASSIGN(x, lifter.apply(Op::where, {*mask, x, old}));
      }
      return x;
    }

    // `T = fma(x, y, T)`: a sum whose first value an equation before it wrote. The factors.
    std::optional<std::pair<leir::NodeId, leir::NodeId>> multiply_add() const {
      const leir::Node& root = node(code.code.root);
      if (root.act != leir::Act::call || root.function != leir::Function::fma) return std::nullopt;
      const auto o = code.code.operands_of(code.code.root);
      const leir::Node& old = node(o[2]);
      if (old.act != leir::Act::load || old.variable != q.target || old.meaning == kNone || reads_target(o[0]) ||
          reads_target(o[1]))
        return std::nullopt;
      const auto places = expression.places(r.p_.accesses()[old.meaning]);
      for (size_t d = 0; d < at.size(); ++d)
        if (places[d] != at[d]) return std::nullopt;
      return std::pair(o[0], o[1]);
    }

    Result<Lifted> accumulated(Accumulation accumulation, Lifted x, const std::optional<Lifted>& mask) {
      const Reduction& kind = reduction(accumulation);
      const leir::Type type = r.p_.variables()[q.target].type;
      const leir::Node& root = node(code.code.root);
      if (!leir::is_real(type) && (leir::is_real(root.cls) || type == leir::Type::boolean))
        return refuse(fmt::format("rounds to {} at every step", leir::name(type)));
      std::vector<uint32_t> over;
      for (uint32_t k = 0; k < q.loops.size(); ++k) {
        if (in_target[k]) continue;
        // What it reads may have a copy for each iteration, though no subscript says so.
        const bool reduced = std::find(q.reductions.begin(), q.reductions.end(), q.loops[k]) != q.reductions.end() ||
                             (!q.initialises && std::find(x.axes.begin(), x.axes.end(), k) != x.axes.end());
        if (reduced)
          over.push_back(k);
        else if (lifter.extents()[k] > 1 && !q.initialises && (kind.reduce == Op::sum || kind.reduce == Op::prod))
          return refuse(fmt::format("is repeated by `{}`, which it does not use", loop_name(k)));
      }
      if (mask) {
        double identity = kind.identity;
        if (!leir::is_real(type) && std::isinf(identity))
          return refuse("is an integer extremum over a loop whose extent varies");
        TRY_ASSIGN(x, masked(x, *mask, identity, kind.reduce == Op::sum));
      }
      TRY_ASSIGN(x, lifter.reduce(kind.reduce, x, over));
      const State& old = r.states_[q.target];
      if (q.initialises || !old.written || old.splat == kind.identity) return x;
      TRY_ASSIGN(Lifted start, before());
      TRY_ASSIGN(start, lifter.cast(start, lifter.dtype(x)));
      return lifter.apply(kind.combine, {start, x});
    }

    // The identity where the loops do not run. Of a product that is summed, both factors: it stays a product.
    Result<Lifted> masked(const Lifted& x, const Lifted& mask, double identity, bool summed) {
      const auto within = [&](const Lifted& of) {
        return std::includes(of.axes.begin(), of.axes.end(), mask.axes.begin(), mask.axes.end());
      };
      const auto chosen = [&](const Lifted& of) {
        return lifter.apply(Op::where, {mask, of, lifter.literal(identity, lifter.dtype(of))});
      };
      if (!summed || !x.factors || !within(x.factors->first) || !within(x.factors->second)) return chosen(x);
      TRY_ASSIGN(Lifted a, chosen(x.factors->first));
      TRY_ASSIGN(Lifted b, chosen(x.factors->second));
      return lifter.apply(Op::mul, {std::move(a), std::move(b)});
    }

    // What the target's elements were before.
    Result<Lifted> before() {
      TRY_ASSIGN(const ValueId tensor, r.whole(q.target));
      return lifter.element(tensor, at, 0);
    }

    // Where loops of varying extent run; nothing when all extents are numbers, or tiles cut short at the end of an axis
    // that is written: what stands beyond it is left out.
    Result<std::optional<Lifted>> region() {
      std::optional<Lifted> all;
      const auto also = [&](Lifted test) -> Result<std::optional<Lifted>> {
        if (!all) return std::optional(std::move(test));
        TRY_ASSIGN(Lifted both, lifter.apply(Op::logical_and, {*all, test}));
        return std::optional(std::move(both));
      };
      for (uint32_t k = 0; k < q.loops.size(); ++k) {
        if (r.p_.extent(q.loops[k])) continue;
        if (const auto tests = below_extent(k)) {
          for (const Linear& form : *tests) {
            TRY_ASSIGN(const Lifted x, lifter.linear(form));
            TRY_ASSIGN(Lifted test, lifter.apply(Op::ge, {x, lifter.literal(0, DType::i64)}));
            TRY_ASSIGN(all, also(std::move(test)));
          }
          continue;
        }
        TRY_ASSIGN(const leir::Typed extent, leir::type_extent(r.p_, q.loops[k]));
        Expression bound(around, lifter, extent);
        TRY_ASSIGN(const Lifted n, bound.lift(extent.root));
        TRY_ASSIGN(const Lifted i, lifter.index(k));
        TRY_ASSIGN(Lifted test, lifter.apply(Op::lt, {i, n}));
        TRY_ASSIGN(all, also(std::move(test)));
      }
      return all;
    }
    // What has to be at least 0 for the index to be below its extent, a minimum of linear forms: without what holds
    // everywhere, and what keeps the target inside its variable.
    std::optional<std::vector<Linear>> below_extent(uint32_t k) const {
      const sym::Pool& pool = r.p_.pool();
      std::vector<sym::Expr> sides = {r.p_.extent_form(q.loops[k])};
      std::vector<Linear> out;
      const std::vector<int64_t> shape = r.full_shape(q.target);
      for (size_t i = 0; i < sides.size(); ++i) {
        if (pool.kind(sides[i]) == sym::Kind::min) {
          if (sides.size() > 16) return std::nullopt;
          const auto [x, y] = pool.operands(sides[i]);
          sides.push_back(x);
          sides.push_back(y);
          continue;
        }
        auto form = expression.linear(sides[i]);
        if (!form) return std::nullopt;
        --form->constant;
        if (--form->terms[k] == 0) form->terms.erase(k);
        bool known = expression.reach(*form).first >= 0;
        for (size_t d = 0; d < shape.size(); ++d) {
          Linear inside{shape[d] - 1 - at[d].constant, {}};
          for (const auto& [loop, factor] : at[d].terms) inside.terms[loop] = -factor;
          known = known || inside == *form;
        }
        if (!known) out.push_back(std::move(*form));
      }
      return out;
    }

    struct SelfReads {
      std::optional<std::string> again;  // an element that an earlier iteration wrote
    };
    SelfReads self_reads() const {
      const auto& copies = r.copies_[q.target];
      if (const auto& c = r.carried_[q.target])
        return {fmt::format("reads `{}`, which an earlier iteration of `{}` has written", print(r.p_.syntax(), c->read),
                            r.p_.syntax().text(r.p_.syntax().loops[c->loop].index))};
      for (const leir::Dependence& d : leir::dependences(r.p_, q.item, q.item)) {
        const Access &from = r.p_.accesses()[d.from], &to = r.p_.accesses()[d.to];
        if (!from.write || to.write || to.self) continue;
        for (size_t l = 0; l < d.loops.size(); ++l) {
          if (std::find(copies.begin(), copies.end(), d.loops[l]) != copies.end()) continue;
          if (r.p_.extent(d.loops[l]) == 1 || d.distance[l] == 0) continue;
          if (d.distance[l] && *d.distance[l] < 0) break;  // it is read before it is written
          return {fmt::format("reads `{}`, which an earlier iteration of `{}` may have written",
                              print(r.p_.syntax(), to.expr), loop_name(l))};
        }
      }
      return {};
    }

    std::optional<Accumulation> kind_of_root() const {
      const leir::Node& root = node(code.code.root);
      if (root.act == leir::Act::add) return Accumulation::sum;
      if (root.act == leir::Act::mul) return Accumulation::product;
      if (root.act == leir::Act::call && root.function == leir::Function::max) return Accumulation::maximum;
      if (root.act == leir::Act::call && root.function == leir::Function::min) return Accumulation::minimum;
      return std::nullopt;
    }

    // `T = if_then_else(a==0,identity,T) + x`: an accumulation that says itself where it begins.
    Result<std::optional<Lifted>> restarted() {
      const std::optional<Lifted> none;
      const std::optional<Accumulation> kind = kind_of_root();
      if (!kind) return none;
      const auto o = code.code.operands_of(code.code.root);
      for (size_t side : {0u, 1u}) {
        const leir::NodeId term = o[1 - side];
        if (reads_target(term) || !begins_at_first(o[side], reduction(*kind).identity)) continue;
        TRY_ASSIGN(const auto mask, region());
        if (mask) return none;
        TRY_ASSIGN(const Lifted x, expression.lift(term));
        std::vector<uint32_t> over;
        for (uint32_t k = 0; k < q.loops.size(); ++k)
          if (!in_target[k]) over.push_back(k);
        TRY_ASSIGN(Lifted sum, lifter.reduce(reduction(*kind).reduce, x, over));
        return std::optional(std::move(sum));
      }
      return none;
    }
    // The target where it is written, but the identity in the first iteration of all loops that are no axes of it.
    bool begins_at_first(leir::NodeId id, double identity) const {
      const auto guarded = guarded_read(id, identity);
      if (!guarded) return false;
      std::set<uint32_t> open;
      for (uint32_t k = 0; k < q.loops.size(); ++k)
        if (!in_target[k] && lifter.extents()[k] > 1) open.insert(k);
      for (const Linear& test : guarded->first) {
        if (test.constant != 0) return false;
        for (const auto& [loop, factor] : test.terms)
          if (lifter.extents()[loop] > 1 && (factor >= 0 || open.erase(loop) == 0)) return false;
      }
      return open.empty() && guarded->places == at_places();
    }
    std::vector<std::optional<Linear>> at_places() const { return {at.begin(), at.end()}; }

    // `T_a = if_then_else(a<1,identity,T_{a-1}) + x`: a running sum, product or maximum.
    Result<std::optional<Lifted>> scanned() {
      const std::optional<Lifted> none;
      const std::optional<Accumulation> kind = kind_of_root();
      const auto o = code.code.operands_of(code.code.root);
      if (!kind) return none;
      for (int side : {0, 1}) {
        const leir::NodeId previous = o[static_cast<size_t>(side)], term = o[static_cast<size_t>(1 - side)];
        const auto loop = previous_element(previous, reduction(*kind).identity);
        if (!loop || reads_target(term)) continue;
        TRY_ASSIGN(const auto mask, region());
        if (mask) return none;
        TRY_ASSIGN(Lifted x, expression.lift(term));
        for (uint32_t k : x.axes)
          if (!in_target[k]) return none;
        // A running minimum is the negated running maximum of the negated values.
        const bool least = *kind == Accumulation::minimum;
        if (least) {
          TRY_ASSIGN(x, lifter.apply(Op::neg, {x}));
        }
        TRY_ASSIGN(x, lifter.scan(reduction(*kind).scan, x, *loop));
        if (least) {
          TRY_ASSIGN(x, lifter.apply(Op::neg, {x}));
        }
        return std::optional(std::move(x));
      }
      return none;
    }
    bool reads_target(leir::NodeId root) const {
      std::vector<leir::NodeId> work = {root};
      while (!work.empty()) {
        const leir::NodeId n = work.back();
        work.pop_back();
        if (node(n).act == leir::Act::load && node(n).variable == q.target) return true;
        const auto o = code.code.operands_of(n);
        work.insert(work.end(), o.begin(), o.end());
      }
      return false;
    }
    // `if_then_else(first, identity, T_..)` or the other way round: when it is the identity, and which place is read.
    struct GuardedRead {
      std::vector<Linear> first;  // at least 0 exactly where the identity stands
      std::vector<std::optional<Linear>> places;
    };
    std::optional<GuardedRead> guarded_read(leir::NodeId id, double identity) const {
      const leir::Node& n = node(id);
      if (n.act != leir::Act::select) return std::nullopt;
      const auto o = code.code.operands_of(id);
      auto tests = expression.constraints(o[0]);
      if (!tests || tests->empty()) return std::nullopt;
      const auto matches = [&](leir::NodeId start, leir::NodeId old) {
        const leir::Node &s = node(start), &read = node(old);
        const bool literal = (s.act == leir::Act::real && s.real == identity) ||
                             (s.act == leir::Act::integer && static_cast<double>(s.integer) == identity);
        return literal && read.act == leir::Act::load && read.variable == q.target && read.meaning != kNone;
      };
      const auto read = [&](leir::NodeId old) { return expression.places(r.p_.accesses()[node(old).meaning]); };
      if (matches(o[1], o[2])) return GuardedRead{std::move(*tests), read(o[2])};
      if (tests->size() != 1 || !matches(o[2], o[1])) return std::nullopt;
      // Of integers: not `x >= 0` is `-x - 1 >= 0`.
      Linear first{-(*tests)[0].constant - 1, {}};
      for (const auto& [loop, factor] : (*tests)[0].terms) first.terms[loop] = -factor;
      return GuardedRead{{first}, read(o[1])};
    }
    // The loop whose previous iteration wrote what the node reads, with the identity in the first one.
    std::optional<uint32_t> previous_element(leir::NodeId id, double identity) const {
      const auto guarded = guarded_read(id, identity);
      if (!guarded || guarded->first.size() != 1 || guarded->first[0].terms.size() != 1) return std::nullopt;
      const auto [loop, factor] = *guarded->first[0].terms.begin();
      if (factor != -1 || guarded->first[0].constant != 0) return std::nullopt;
      for (size_t d = 0; d < at.size(); ++d) {
        Linear before = at[d];
        if (const auto t = before.terms.find(loop); t != before.terms.end()) before.constant -= t->second;
        if (guarded->places[d] != before) return std::nullopt;
      }
      if (!in_target[loop]) return std::nullopt;
      return loop;
    }
  };

  const leir::Program& p_;
  const Constants& constants_;
  graph::Builder b_;
  std::vector<State> states_;
  std::vector<std::vector<uint32_t>> copies_;
  std::vector<std::optional<Carried>> carried_;
};

}  // namespace

Result<graph::Graph> raise(const leir::Program& program, std::string_view name,
                           const std::map<std::string, graph::ConstantData>& constants) {
  Raiser raiser(program, name, constants);
  return raiser.run();
}

}  // namespace cleave::bridge
