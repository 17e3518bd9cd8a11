#include "bridge/expression.hpp"

#include <algorithm>

#include "base/codes.hpp"

namespace cleave::bridge {

using leir::Act;
using leir::kNone;
using leir::NodeId;

namespace {

// Factors and numbers of linear forms: with extents of 2^31 their sums stay below 2^62.
constexpr int64_t kMost = int64_t{1} << 30;

std::optional<Linear> sum(const Linear& a, const Linear& b, int64_t sign) {
  Linear out = a;
  if (__builtin_add_overflow(a.constant, sign * b.constant, &out.constant)) return std::nullopt;
  for (const auto& [loop, factor] : b.terms)
    if ((out.terms[loop] += sign * factor) == 0) out.terms.erase(loop);
  return out;
}
Linear scaled(const Linear& a, int64_t factor) {
  Linear out{a.constant * factor, {}};
  if (factor != 0)
    for (const auto& [loop, f] : a.terms) out.terms[loop] = f * factor;
  return out;
}

// The form of an integer node from those of its operands; numbers stay small.
std::optional<Linear> form_of(const leir::Node& n, std::span<const std::optional<Linear>> of) {
  auto small = [](const Linear& f) {
    return std::abs(f.constant) < kMost &&
           std::all_of(f.terms.begin(), f.terms.end(), [](const auto& t) { return std::abs(t.second) < kMost; });
  };
  if (n.cls != leir::Class::integer) return std::nullopt;
  for (const auto& f : of)
    if (!f) return std::nullopt;
  std::optional<Linear> out;
  switch (n.act) {
    case Act::integer:
      if (n.integer > -kMost && n.integer < kMost) out = Linear{n.integer, {}};
      break;
    case Act::add: out = sum(*of[0], *of[1], 1); break;
    case Act::sub: out = sum(*of[0], *of[1], -1); break;
    case Act::negate: out = scaled(*of[0], -1); break;
    case Act::mul:
      for (int i : {0, 1})
        if (of[static_cast<size_t>(i)]->terms.empty() && std::abs(of[static_cast<size_t>(i)]->constant) < (1 << 20) &&
            small(*of[static_cast<size_t>(1 - i)]))
          out = scaled(*of[static_cast<size_t>(1 - i)], of[static_cast<size_t>(i)]->constant);
      break;
    default: break;
  }
  return out && small(*out) ? out : std::nullopt;
}

std::optional<Op> operator_of(Act act) {
  switch (act) {
    case Act::add: return Op::add;
    case Act::sub: return Op::sub;
    case Act::mul: return Op::mul;
    case Act::div: return Op::div;
    case Act::floordiv: return Op::floordiv;
    case Act::mod: return Op::mod;
    case Act::negate: return Op::neg;
    case Act::raise: return Op::pow;
    case Act::logical_and: return Op::logical_and;
    case Act::logical_or: return Op::logical_or;
    case Act::select: return Op::where;
    default: return std::nullopt;
  }
}

constexpr Op kComparisons[] = {Op::lt, Op::le, Op::gt, Op::ge, Op::eq, Op::ne};

}  // namespace

std::optional<DType> dtype_of(leir::Class cls) {
  switch (cls) {
    case leir::Class::boolean: return DType::boolean;
    case leir::Class::integer: return DType::i64;
    case leir::Class::unsigned_integer: return std::nullopt;
    case leir::Class::f32: return DType::f32;
    case leir::Class::f64: return DType::f64;
  }
  return std::nullopt;
}

Diagnostic refusal(const leir::Program& p, uint32_t item, const std::string& why) {
  const leir::Item& at = p.syntax().items[item];
  std::string text = leir::print_item(p.syntax(), item);
  while (!text.empty() && (text.back() == '\n' || text.back() == ';')) text.pop_back();
  if (text.size() > 120) text = text.substr(0, 117) + "...";
  return diagnose_at(at.range, Code::leir_unsupported, "graph", fmt::format("`{}` {}", text, why));
}

Expression::Expression(const Surroundings& around, Lifter& lifter, const leir::Typed& code)
    : around_(around), lifter_(lifter), code_(code), lifted_(code.nodes.size()) {
  for (uint32_t k = 0; k < around.loops.size(); ++k) position_of_symbol_[around.program.symbol(around.loops[k])] = k;
  std::vector<std::optional<Linear>> of;
  for (NodeId n = 0; n < code.nodes.size(); ++n) {
    of.clear();
    for (NodeId o : code.operands_of(n)) of.push_back(forms_[o]);
    const leir::Node& node = code.nodes[n];
    if (node.act == Act::index) {
      const auto k = position(node.meaning);
      forms_.push_back(k ? std::optional(Linear{0, {{*k, 1}}}) : std::nullopt);
    } else {
      forms_.push_back(form_of(node, of));
    }
  }
}

std::optional<uint32_t> Expression::position(uint32_t loop) const {
  const auto it = std::find(around_.loops.begin(), around_.loops.end(), loop);
  return it == around_.loops.end() ? std::nullopt : std::optional(static_cast<uint32_t>(it - around_.loops.begin()));
}

std::optional<Linear> Expression::linear(sym::Expr form) const {
  Linear out;
  for (const auto& t : around_.program.pool().terms(form)) {
    if (std::abs(t.coefficient) > kMost) return std::nullopt;
    if (t.atoms.empty()) {
      out.constant = t.coefficient;
      continue;
    }
    const auto it = t.atoms.size() == 1 ? position_of_symbol_.find(t.atoms[0]) : position_of_symbol_.end();
    if (it == position_of_symbol_.end()) return std::nullopt;
    out.terms[it->second] = t.coefficient;
  }
  return out;
}

std::optional<std::vector<Linear>> Expression::constraints(NodeId condition) const {
  std::vector<Linear> out;
  std::vector<NodeId> work = {condition};
  while (!work.empty()) {
    const NodeId id = work.back();
    work.pop_back();
    const leir::Node& n = code_.nodes[id];
    const auto o = code_.operands_of(id);
    // `a < b < c` is a product of two tests as integers.
    const bool conjunction = n.act == Act::logical_and || (n.act == Act::mul && n.cls == leir::Class::integer) ||
                             (n.act == Act::convert && !leir::is_real(code_.nodes[o[0]].cls));
    if (conjunction) {
      work.insert(work.end(), o.begin(), o.end());
      continue;
    }
    if (n.act != Act::compare || !forms_[o[0]] || !forms_[o[1]]) return std::nullopt;
    std::optional<Linear> form;
    if (n.comparison == leir::Comparison::eq || n.comparison == leir::Comparison::ne) {
      form = sum(*forms_[o[0]], *forms_[o[1]], -1);
      if (!form) return std::nullopt;
      // Equal at one end of the range is a comparison; elsewhere it is two, and unequal is none.
      const auto [least, most] = reach(*form);
      if (n.comparison == leir::Comparison::eq) {
        if (most > 0) out.push_back(scaled(*form, -1));
        if (least < 0) out.push_back(*form);
        if (most <= 0 && least >= 0) out.push_back(Linear{0, {}});
      } else if (least >= 0) {
        --form->constant;
        out.push_back(*form);
      } else if (most <= 0) {
        *form = scaled(*form, -1);
        --form->constant;
        out.push_back(*form);
      } else {
        return std::nullopt;
      }
      continue;
    }
    switch (n.comparison) {
      case leir::Comparison::lt:
      case leir::Comparison::le: form = sum(*forms_[o[1]], *forms_[o[0]], -1); break;
      case leir::Comparison::gt:
      case leir::Comparison::ge: form = sum(*forms_[o[0]], *forms_[o[1]], -1); break;
      default: return std::nullopt;
    }
    if (!form) return std::nullopt;
    if (n.comparison == leir::Comparison::lt || n.comparison == leir::Comparison::gt) --form->constant;
    out.push_back(*form);
  }
  return out;
}

std::pair<int64_t, int64_t> Expression::reach(const Linear& form) const {
  int64_t least = form.constant, most = form.constant;
  for (const auto& [loop, factor] : form.terms) (factor < 0 ? least : most) += factor * (lifter_.extents()[loop] - 1);
  return {least, most};
}

const leir::Access* Expression::access(const leir::Node& load) const {
  return load.meaning == kNone ? nullptr : &around_.program.accesses()[load.meaning];
}

std::vector<std::optional<Linear>> Expression::places(const leir::Access& a) const {
  std::vector<std::optional<Linear>> out;
  for (uint32_t loop : around_.copies(a.variable)) {
    const auto k = position(loop);
    const int64_t before = around_.carried(a) == loop ? -1 : 0;
    out.push_back(k ? std::optional(Linear{before, {{*k, 1}}}) : std::nullopt);
  }
  for (sym::Expr form : a.subscripts) out.push_back(linear(form));
  return out;
}

bool Expression::is_gather(NodeId n) const {
  const leir::Access* a = access(code_.nodes[n]);
  if (!a) return true;
  const auto at = places(*a);
  return std::any_of(at.begin(), at.end(), [](const auto& f) { return !f; });
}

std::optional<Expression::Guard> Expression::guard(NodeId select) const {
  const auto o = code_.operands_of(select);
  const auto tests = constraints(o[0]);
  const leir::Node& other = code_.nodes[o[2]];
  if (!tests || (other.act != Act::real && other.act != Act::integer)) return std::nullopt;
  const double value = other.act == Act::real ? other.real : static_cast<double>(other.integer);
  // Loads of the branch, through products where the other value is 0.
  std::vector<NodeId> work = {o[1]};
  std::optional<Guard> found;
  while (!work.empty()) {
    const NodeId id = work.back();
    work.pop_back();
    const leir::Node& n = code_.nodes[id];
    const auto args = code_.operands_of(id);
    if (n.act == Act::mul && value == 0 && leir::is_real(n.cls)) {
      work.insert(work.end(), args.begin(), args.end());
      continue;
    }
    if (n.act == Act::convert && leir::is_real(n.cls) && leir::is_real(code_.nodes[args[0]].cls)) {
      work.push_back(args[0]);
      continue;
    }
    if (n.act != Act::load || is_gather(id)) continue;
    const leir::Access& a = *access(n);
    const leir::Variable& v = around_.program.variables()[a.variable];
    std::vector<Linear> inside;
    for (size_t d = 0; d < a.subscripts.size(); ++d) {
      const Linear at = *linear(a.subscripts[d]);
      inside.push_back(at);
      inside.push_back(*sum(Linear{v.shape[d] - 1, {}}, at, -1));
    }
    auto certain = [&](const Linear& f) { return reach(f).first >= 0; };
    const bool same = std::all_of(tests->begin(), tests->end(), [&](const Linear& t) {
      return certain(t) || std::find(inside.begin(), inside.end(), t) != inside.end();
    });
    // What the tests leave open would lie outside without them.
    const bool whole = std::all_of(inside.begin(), inside.end(), [&](const Linear& f) {
      return certain(f) || std::find(tests->begin(), tests->end(), f) != tests->end();
    });
    if (same && whole && !found) found = Guard{id, value};
  }
  return found;
}

Result<Lifted> Expression::lift(NodeId root) {
  // What is needed, from the root down; then values from the leaves up.
  std::vector<bool> needed(code_.nodes.size(), false);
  needed[root] = true;
  for (NodeId n = static_cast<NodeId>(code_.nodes.size()); n-- > 0;) {
    if (!needed[n] || lifted_[n]) continue;
    const auto o = code_.operands_of(n);
    const Act act = code_.nodes[n].act;
    if (act == Act::load && !is_gather(n)) continue;
    if (act == Act::select) {
      if (const auto g = guard(n)) {
        guards_[n] = *g;
        outside_[g->load] = g->outside;
        needed[o[1]] = true;
        continue;
      }
    }
    for (NodeId operand : o) needed[operand] = true;
  }
  for (NodeId n = 0; n <= root; ++n) {
    if (!needed[n] || lifted_[n]) continue;
    TRY_ASSIGN(lifted_[n], node(n));
  }
  return *lifted_[root];
}

Result<Lifted> Expression::power(Lifted base, int64_t exponent) {
  const DType type = lifter_.dtype(base);
  std::optional<Lifted> result;
  Lifted square = base;
  for (auto e = static_cast<uint64_t>(exponent < 0 ? -exponent : exponent); e; e >>= 1) {
    if (e & 1) {
      if (result) {
        TRY_ASSIGN(result, lifter_.apply(Op::mul, {*result, square}));
      } else {
        result = square;
      }
    }
    if (e > 1) {
      TRY_ASSIGN(square, lifter_.apply(Op::square, {square}));
    }
  }
  if (!result) return lifter_.literal(1, type);
  return exponent < 0 ? lifter_.apply(Op::div, {lifter_.literal(1, type), *result}) : *result;
}

Result<Lifted> Expression::node(NodeId id) {
  const leir::Node& n = code_.nodes[id];
  const auto o = code_.operands_of(id);
  const auto type = dtype_of(n.cls);
  if (!type) return diagnose(Code::leir_type, "u64 has no place in a graph");
  std::vector<Lifted> x;
  if (!guards_.contains(id) && n.act != Act::load)
    for (NodeId operand : o) x.push_back(*lifted_[operand]);
  // An accumulation that begins: nothing is combined with its term.
  if (!x.empty() && n.act != Act::convert) {
    const bool first = x[0].identity, second = x.size() > 1 && x[1].identity;
    if (first || second) {
      const Lifted other = x.size() > 1 ? x[first ? 1 : 0] : x[0];
      if (n.act == Act::sub && first) return lifter_.apply(Op::neg, {other});
      if (n.act == Act::div && first) return lifter_.apply(Op::div, {lifter_.literal(1, *type), other});
      return other;
    }
  }
  switch (n.act) {
    case Act::integer:
      // Literals of graphs are doubles.
      if (constexpr int64_t kExact = int64_t{1} << 53; n.integer > kExact || n.integer < -kExact)
        return diagnose(Code::leir_type, "an integer literal beyond 2^53");
      return lifter_.literal(static_cast<double>(n.integer), *type);
    case Act::real: return lifter_.literal(n.real, *type);
    case Act::index: {
      const auto k = position(n.meaning);
      CHECK(k, "a loop that is not around the equation");
      return lifter_.index(*k);
    }
    case Act::load: return load(id);
    case Act::convert: {
      if (x[0].identity) return x[0];
      return lifter_.cast(x[0], *type);
    }
    case Act::power: return power(x[0], n.integer);
    case Act::call: {
      if (n.function == leir::Function::fma) {
        TRY_ASSIGN(const Lifted product, lifter_.apply(Op::mul, {x[0], x[1]}));
        return lifter_.apply(Op::add, {product, x[2]});
      }
      const auto op = graph::op_from_name(leir::info(n.function).name);
      CHECK(op, "{} is no operator", leir::info(n.function).name);
      return lifter_.apply(*op, std::move(x));
    }
    case Act::compare: return lifter_.apply(kComparisons[static_cast<size_t>(n.comparison)], std::move(x));
    case Act::select:
      if (guards_.contains(id)) return *lifted_[o[1]];
      return lifter_.apply(Op::where, std::move(x));
    default: return lifter_.apply(*operator_of(n.act), std::move(x));
  }
}

Result<Lifted> Expression::load(NodeId id) {
  const leir::Node& n = code_.nodes[id];
  const leir::Access* a = access(n);
  const DType type = *dtype_of(n.cls);
  if (a && a->self) {
    Lifted nothing = lifter_.literal(0, type);
    nothing.identity = true;
    return nothing;
  }
  if (!a) return diagnose(Code::leir_type, "an extent depends on data");
  TRY_ASSIGN(const ValueId tensor, around_.value(a->variable));
  std::vector<std::optional<Linear>> at = places(*a);
  Lifted out;
  if (!is_gather(id)) {
    std::vector<Linear> all;
    for (const auto& f : at) all.push_back(*f);
    TRY_ASSIGN(out, lifter_.element(tensor, std::move(all), outside_.contains(id) ? outside_.at(id) : 0));
    return lifter_.cast(out, type);
  }
  // The quotients and remainders of a view cancel along the memory.
  sym::Pool& pool = around_.program.pool();
  const std::vector<int64_t> shape = lifter_.shape_of(tensor);
  sym::Expr flat = pool.constant(0);
  int64_t stride = 1;
  const size_t copies = shape.size() - a->subscripts.size();
  for (size_t d = a->subscripts.size(); d-- > 0; stride *= shape[copies + d])
    flat = pool.add(flat, pool.mul(a->subscripts[d], stride));
  for (bool again = true; again;) {
    again = false;
    for (const auto& t : pool.terms(flat)) {
      if (t.atoms.size() != 1 || pool.kind(t.atoms[0]) != sym::Kind::mod) continue;
      const auto [x, m] = pool.operands(t.atoms[0]);
      const sym::Expr whole = pool.sub(x, pool.mul(pool.floordiv(x, m), m));
      if (whole == t.atoms[0]) continue;
      flat = pool.add(pool.sub(flat, pool.mul(t.atoms[0], t.coefficient)), pool.mul(whole, t.coefficient));
      again = true;
      break;
    }
  }
  if (const auto form = linear(flat); form && a->bounds == sym::Proof::yes && copies == 0) {
    const int64_t all[] = {stride};
    TRY_ASSIGN(const ValueId line, lifter_.make(Op::reshape, {tensor}, {{"shape", lifter_.symbols(all)}}));
    TRY_ASSIGN(out, lifter_.element(line, {*form}, 0));
    return lifter_.cast(out, type);
  }
  std::vector<Lifted> places;
  for (size_t k = 0; k < at.size(); ++k) {
    if (at[k]) {
      TRY_ASSIGN(Lifted place, lifter_.linear(*at[k]));
      places.push_back(std::move(place));
    } else {
      places.push_back(*lifted_[code_.operands_of(id)[k - copies]]);
    }
  }
  TRY_ASSIGN(out, lifter_.gather(tensor, places, at));
  return lifter_.cast(out, type);
}

}  // namespace cleave::bridge
