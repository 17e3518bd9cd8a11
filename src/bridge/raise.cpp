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
    if (!var.known()) copies = loops_with_copies(v);
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
    return {};
  }

  // Loops around all mentions of an intermediate that it lives within, though no subscript says so.
  std::vector<uint32_t> loops_with_copies(uint32_t v) const {
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
    for (uint32_t l : common.value_or(std::vector<uint32_t>{}))
      if (!mentioned.contains(l) && p_.extent(l).value_or(2) != 1 && leir::private_to(p_, v, l)) out.push_back(l);
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
                              [this](uint32_t v) -> const std::vector<uint32_t>& { return copies_[v]; }};
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
      std::optional<double> splat;
      const leir::Node& root = node(code.code.root);
      if (root.act == leir::Act::real) splat = root.real;
      if (root.act == leir::Act::integer) splat = static_cast<double>(root.integer);
      return r.update(q.target, **box, splat);
    }

    Result<Lifted> lifted() {
      const auto recurrence = self_reads();
      if (recurrence.again) {
        if (q.accumulation != Accumulation::none) return refuse(*recurrence.again);
        TRY_ASSIGN(const auto scan, scanned());
        if (scan) return *scan;
        return refuse(*recurrence.again);
      }
      TRY_ASSIGN(const auto mask, region());
      TRY_ASSIGN(Lifted x, expression.lift(code.code.root));
      if (q.accumulation != Accumulation::none) return accumulated(std::move(x), mask);
      for (uint32_t k = 0; k < q.loops.size(); ++k) {
        if (in_target[k]) continue;
        if (mask && std::find(mask->axes.begin(), mask->axes.end(), k) != mask->axes.end())
          return refuse(fmt::format("is written again in each iteration of `{}`, whose extent varies", loop_name(k)));
        TRY_ASSIGN(x, lifter.last(x, k));
      }
      if (mask) {
        if (!r.states_[q.target].written) return refuse("writes a part that is no box");
        TRY_ASSIGN(const Lifted old, before());
        TRY_ASSIGN(x, lifter.cast(x, lifter.dtype(old)));
        TRY_ASSIGN(x, lifter.apply(Op::where, {*mask, x, old}));
      }
      return x;
    }

    Result<Lifted> accumulated(Lifted x, const std::optional<Lifted>& mask) {
      const Reduction& kind = reduction(q.accumulation);
      const leir::Type type = r.p_.variables()[q.target].type;
      const leir::Node& root = node(code.code.root);
      if (!leir::is_real(type) && (leir::is_real(root.cls) || type == leir::Type::boolean))
        return refuse(fmt::format("rounds to {} at every step", leir::name(type)));
      std::vector<uint32_t> over;
      for (uint32_t k = 0; k < q.loops.size(); ++k) {
        if (in_target[k]) continue;
        const bool reduced = std::find(q.reductions.begin(), q.reductions.end(), q.loops[k]) != q.reductions.end();
        if (reduced)
          over.push_back(k);
        else if (lifter.extents()[k] > 1 && !q.initialises && (kind.reduce == Op::sum || kind.reduce == Op::prod))
          return refuse(fmt::format("is repeated by `{}`, which it does not use", loop_name(k)));
      }
      if (mask) {
        double identity = kind.identity;
        if (!leir::is_real(type) && std::isinf(identity))
          return refuse("is an integer extremum over a loop whose extent varies");
        TRY_ASSIGN(x, lifter.apply(Op::where, {*mask, x, lifter.literal(identity, lifter.dtype(x))}));
      }
      TRY_ASSIGN(x, lifter.reduce(kind.reduce, x, over));
      const State& old = r.states_[q.target];
      if (q.initialises || !old.written || old.splat == kind.identity) return x;
      TRY_ASSIGN(Lifted start, before());
      TRY_ASSIGN(start, lifter.cast(start, lifter.dtype(x)));
      return lifter.apply(kind.combine, {start, x});
    }

    // What the target's elements were before.
    Result<Lifted> before() {
      TRY_ASSIGN(const ValueId tensor, r.whole(q.target));
      return lifter.element(tensor, at, 0);
    }

    // Where loops of varying extent run; nothing when all extents are numbers.
    Result<std::optional<Lifted>> region() {
      std::optional<Lifted> all;
      for (uint32_t k = 0; k < q.loops.size(); ++k) {
        if (r.p_.extent(q.loops[k])) continue;
        TRY_ASSIGN(const leir::Typed extent, leir::type_extent(r.p_, q.loops[k]));
        Expression bound(around, lifter, extent);
        TRY_ASSIGN(const Lifted n, bound.lift(extent.root));
        TRY_ASSIGN(const Lifted i, lifter.index(k));
        TRY_ASSIGN(Lifted test, lifter.apply(Op::lt, {i, n}));
        if (all) {
          TRY_ASSIGN(test, lifter.apply(Op::logical_and, {*all, test}));
        }
        all = std::move(test);
      }
      return all;
    }

    struct SelfReads {
      std::optional<std::string> again;  // an element that an earlier iteration wrote
    };
    SelfReads self_reads() const {
      const auto& copies = r.copies_[q.target];
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

    // `T_a = if_then_else(a<1,identity,T_{a-1}) + x`: a running sum, product or maximum.
    Result<std::optional<Lifted>> scanned() {
      const std::optional<Lifted> none;
      const leir::Node& root = node(code.code.root);
      std::optional<Accumulation> kind;
      if (root.act == leir::Act::add) kind = Accumulation::sum;
      if (root.act == leir::Act::mul) kind = Accumulation::product;
      if (root.act == leir::Act::call && root.function == leir::Function::max) kind = Accumulation::maximum;
      if (root.act == leir::Act::call && root.function == leir::Function::min) kind = Accumulation::minimum;
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
    // The loop whose previous iteration wrote what the node reads, with the identity in the first one.
    std::optional<uint32_t> previous_element(leir::NodeId id, double identity) const {
      const leir::Node& n = node(id);
      if (n.act != leir::Act::select) return std::nullopt;
      const auto o = code.code.operands_of(id);
      const auto tests = expression.constraints(o[0]);
      if (!tests || tests->size() != 1 || (*tests)[0].terms.size() != 1) return std::nullopt;
      const auto [loop, factor] = *(*tests)[0].terms.begin();
      // `-a >= 0`: the first iteration; `a - 1 >= 0`: all others.
      const bool first = factor == -1 && (*tests)[0].constant == 0, others = factor == 1 && (*tests)[0].constant == -1;
      if (!first && !others) return std::nullopt;
      const leir::Node &start = node(o[first ? 1 : 2]), &read = node(o[first ? 2 : 1]);
      const bool literal = (start.act == leir::Act::real && start.real == identity) ||
                           (start.act == leir::Act::integer && static_cast<double>(start.integer) == identity);
      if (!literal || read.act != leir::Act::load || read.variable != q.target || read.meaning == kNone)
        return std::nullopt;
      const auto places = expression.places(r.p_.accesses()[read.meaning]);
      for (size_t d = 0; d < at.size(); ++d) {
        Linear before = at[d];
        if (const auto t = before.terms.find(loop); t != before.terms.end()) before.constant -= t->second;
        if (places[d] != before) return std::nullopt;
      }
      return loop;
    }
  };

  const leir::Program& p_;
  const Constants& constants_;
  graph::Builder b_;
  std::vector<State> states_;
  std::vector<std::vector<uint32_t>> copies_;
};

}  // namespace

Result<graph::Graph> raise(const leir::Program& program, std::string_view name,
                           const std::map<std::string, graph::ConstantData>& constants) {
  Raiser raiser(program, name, constants);
  return raiser.run();
}

}  // namespace cleave::bridge
