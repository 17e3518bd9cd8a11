#include "schedule/masks.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/match.hpp"

namespace cleave::schedule {

using itgraph::Compute;
using tile::NodeId;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// The node as an expression of indices, when it is an exact integer one.
std::optional<Expr> index_value(sym::Pool& syms, std::span<const tile::Node> nodes, NodeId id, Lengths& lengths) {
  const tile::Node& n = nodes[id.index];
  // Integers that a real dtype holds exactly are as good as integers.
  const int64_t exact = n.dtype == DType::f64   ? int64_t{1} << 53
                        : n.dtype == DType::f32 ? int64_t{1} << 24
                        : n.dtype == DType::i64 ? sym::kHuge - 1
                        : is_integer(n.dtype)   ? greatest_integer(n.dtype)
                                                : 0;
  if (exact == 0) return std::nullopt;
  auto out = [&]() -> std::optional<Expr> {
    if (const auto* v = std::get_if<tile::IndexValue>(&n.what)) return v->value;
    if (const auto* l = std::get_if<tile::Load>(&n.what)) return lengths.symbol(syms, *l, n.dtype);
    if (const auto* l = std::get_if<tile::Literal>(&n.what)) {
      if (l->value != std::floor(l->value) || std::abs(l->value) > 1e15) return std::nullopt;
      return syms.constant(static_cast<int64_t>(l->value));
    }
    if (const auto* c = std::get_if<tile::Cast>(&n.what)) return index_value(syms, nodes, c->operand, lengths);
    const auto* a = std::get_if<tile::Apply>(&n.what);
    if (!a) return std::nullopt;
    std::vector<Expr> x;
    for (NodeId o : a->operands) {
      const auto e = index_value(syms, nodes, o, lengths);
      if (!e) return std::nullopt;
      x.push_back(*e);
    }
    switch (a->fn) {
      case Fn::add: return syms.add(x[0], x[1]);
      case Fn::sub: return syms.sub(x[0], x[1]);
      case Fn::mul: return syms.mul(x[0], x[1]);
      case Fn::neg: return syms.mul(x[0], -1);
      case Fn::min: return syms.min(x[0], x[1]);
      case Fn::max: return syms.max(x[0], x[1]);
      case Fn::floordiv: {
        const auto d = syms.as_constant(x[1]);
        return d && *d > 0 && is_integer(n.dtype) ? std::optional(syms.floordiv(x[0], x[1])) : std::nullopt;
      }
      default: return std::nullopt;
    }
  }();
  if (!out) return std::nullopt;
  const sym::Interval range = syms.bounds(*out);
  if (range.lo < -exact || range.hi > exact) return std::nullopt;
  return out;
}

// A comparison node as an atom and the truth that the atom has when the node is true.
std::optional<std::pair<Atom, bool>> atom_of(sym::Pool& syms, std::span<const tile::Node> nodes, NodeId id,
                                             Lengths& lengths) {
  const auto* a = std::get_if<tile::Apply>(&nodes[id.index].what);
  if (!a || a->operands.size() != 2) return std::nullopt;
  switch (a->fn) {
    case Fn::le:
    case Fn::lt:
    case Fn::ge:
    case Fn::gt:
    case Fn::eq:
    case Fn::ne: break;
    default: return std::nullopt;
  }
  const auto x = index_value(syms, nodes, a->operands[0], lengths),
             y = index_value(syms, nodes, a->operands[1], lengths);
  if (!x || !y) return std::nullopt;
  if (a->fn == Fn::eq || a->fn == Fn::ne) {
    const Expr d = syms.sub(*x, *y), back = syms.sub(*y, *x);
    return std::pair{Atom{std::min(d, back), true}, a->fn == Fn::eq};
  }
  const bool greater = a->fn == Fn::ge || a->fn == Fn::gt;
  Expr d = greater ? syms.sub(*x, *y) : syms.sub(*y, *x);
  if (a->fn == Fn::lt || a->fn == Fn::gt) d = syms.add(d, -1);
  // d >= 0 is the contrary of -d - 1 >= 0; the one with the lower id stands for both.
  const Expr contrary = syms.add(syms.mul(d, -1), -1);
  if (contrary < d) return std::pair{Atom{contrary, false}, false};
  return std::pair{Atom{d, false}, true};
}

// Constants that follow from assumptions. Bools are 0 and 1.
class Folder {
 public:
  Folder(sym::Pool& syms, const Assumptions& known, const MadeBy& made_by, Lengths& lengths)
      : syms_(syms), known_(known), made_by_(made_by), lengths_(lengths) {}

  std::optional<double> value(const Compute& c, NodeId id, int depth = 0) {
    const tile::Node& n = c.nodes[id.index];
    if (const auto* l = std::get_if<tile::Literal>(&n.what)) return l->value;
    if (const auto* x = std::get_if<tile::Cast>(&n.what)) {
      const auto v = value(c, x->operand, depth);
      // What is worth following: masks and infinities, which every dtype of reals has.
      if (v && (is_real(n.dtype) || n.dtype == DType::boolean) && (*v == 0 || std::isinf(*v) || *v == 1)) return v;
      return std::nullopt;
    }
    if (const auto* l = std::get_if<tile::Load>(&n.what)) {
      if (l->guard.valid() && value(c, l->guard, depth) == 0.0) return 0.0;
      const Compute* maker = made_by_ && depth < 8 ? made_by_(l->buffer) : nullptr;
      if (!maker || maker->how != Compute::How::map || l->guard.valid()) return std::nullopt;
      const itgraph::Target& t = maker->results[0];
      if (t.value != l->buffer) return std::nullopt;
      for (size_t i = 0; i < l->at.size(); ++i)
        // An axis of one element is read at 0.
        if (l->at[i].dynamic.valid() ||
            (l->at[i].affine != t.axes[i] && !(syms_.is(l->at[i].affine, 0) && syms_.symbol_range(t.axes[i]).hi == 0)))
          return std::nullopt;
      return value(*maker, t.node, depth + 1);
    }
    const auto* a = std::get_if<tile::Apply>(&n.what);
    if (!a) return std::nullopt;
    if (const auto atom = atom_of(syms_, c.nodes, id, lengths_)) {
      auto it = known_.find(atom->first);
      if (it == known_.end()) return std::nullopt;
      return it->second == atom->second ? 1.0 : 0.0;
    }
    auto at = [&](size_t i) { return value(c, a->operands[i], depth); };
    switch (a->fn) {
      case Fn::where: {
        const auto condition = at(0);
        if (condition) return at(*condition != 0 ? 1 : 2);
        const auto x = at(1), y = at(2);
        return x && y && *x == *y && std::signbit(*x) == std::signbit(*y) ? x : std::nullopt;
      }
      case Fn::logical_and: {
        const auto x = at(0), y = at(1);
        if ((x && *x == 0) || (y && *y == 0)) return 0.0;
        return x && y ? std::optional(1.0) : std::nullopt;
      }
      case Fn::logical_or: {
        const auto x = at(0), y = at(1);
        if ((x && *x != 0) || (y && *y != 0)) return 1.0;
        return x && y ? std::optional(0.0) : std::nullopt;
      }
      case Fn::logical_not: {
        const auto x = at(0);
        return x ? std::optional(*x == 0 ? 1.0 : 0.0) : std::nullopt;
      }
      case Fn::add:
      case Fn::sub: {
        const auto x = at(0), y = at(1);
        const double sign = a->fn == Fn::sub ? -1 : 1;
        if (x && y) return is_real(n.dtype) ? std::optional(*x + sign * *y) : std::nullopt;
        if (x && *x == -kInf) return x;
        if (y && sign * *y == -kInf) return -kInf;
        return std::nullopt;
      }
      case Fn::mul: {
        const auto x = at(0), y = at(1);
        if (x && y && is_real(n.dtype) && !std::isnan(*x * *y)) return *x * *y;
        return std::nullopt;
      }
      case Fn::exp:
      case Fn::exp2: {
        const auto x = at(0);
        return x && *x == -kInf ? std::optional(0.0) : std::nullopt;
      }
      default: return std::nullopt;
    }
  }

 private:
  sym::Pool& syms_;
  const Assumptions& known_;
  const MadeBy& made_by_;
  Lengths& lengths_;
};

bool contributes_nothing(sym::Pool& syms, const Compute& c, const Assumptions& known, const MadeBy& made_by,
                         Lengths& lengths) {
  Folder fold(syms, known, made_by, lengths);
  const auto v = fold.value(c, c.results[0].node);
  if (!v) return false;
  if (c.how == Compute::How::scaled) return *v == -kInf;
  switch (c.fn) {
    case Fn::add: return *v == 0;
    case Fn::mul:
    case Fn::logical_and: return *v == 1;
    case Fn::logical_or: return *v == 0;
    case Fn::max: return *v == -kInf;
    case Fn::min: return *v == kInf;
    default: return false;
  }
}

void collect_atoms(sym::Pool& syms, const Compute& c, const MadeBy& made_by, int depth, std::map<Atom, bool>& out,
                   Lengths& lengths) {
  for (uint32_t i = 0; i < c.nodes.size(); ++i) {
    if (const auto a = atom_of(syms, c.nodes, NodeId(i), lengths)) out.emplace(a->first, true);
    const auto* l = std::get_if<tile::Load>(&c.nodes[i].what);
    const Compute* maker = l && made_by && depth < 8 ? made_by(l->buffer) : nullptr;
    if (maker && maker->how == Compute::How::map) collect_atoms(syms, *maker, made_by, depth + 1, out, lengths);
  }
}

}  // namespace

std::optional<Expr> Lengths::symbol(sym::Pool& syms, const tile::Load& load, DType dtype) {
  if (!is_integer(dtype) || load.guard.valid() || !in_memory_ || !in_memory_(load.buffer)) return std::nullopt;
  Element e{load.buffer, {}};
  for (const tile::Index& i : load.at) {
    if (i.dynamic.valid()) return std::nullopt;
    e.at.push_back(i.affine);
  }
  auto [it, added] = symbols_.try_emplace(e);
  if (added) {
    constexpr int64_t kMost = int64_t{1} << 40;
    const int64_t most = std::min(greatest_integer(dtype), kMost);
    it->second = syms.fresh("length", {is_unsigned(dtype) ? 0 : -most, most});
    elements_.emplace(it->second, std::move(e));
  }
  return it->second;
}

const Lengths::Element* Lengths::element(Expr symbol) const {
  auto it = elements_.find(symbol);
  return it == elements_.end() ? nullptr : &it->second;
}

Assumptions needed_for(sym::Pool& syms, const Compute& c, Expr index, const MadeBy& made_by, Lengths& lengths) {
  Assumptions out;
  if (c.how == Compute::How::map) return out;
  std::map<Atom, bool> atoms;
  collect_atoms(syms, c, made_by, 0, atoms, lengths);
  for (const auto& [atom, unused] : atoms) {
    if (!syms.mentions(atom.value, index)) continue;
    for (bool truth : {false, true})
      if (contributes_nothing(syms, c, {{atom, truth}}, made_by, lengths)) out[atom] = !truth;
  }
  return out;
}

Compute assume(sym::Pool& syms, const Compute& compute, const Assumptions& known, Lengths& lengths) {
  if (known.empty()) return compute;
  Compute out = compute;
  const MadeBy nothing;
  Folder fold(syms, known, nothing, lengths);
  std::vector<NodeId> to(out.nodes.size());
  auto constant = [&](NodeId id) { return fold.value(compute, id); };
  for (uint32_t i = 0; i < out.nodes.size(); ++i) {
    to[i] = NodeId(i);
    tile::Node& n = out.nodes[i];
    auto* a = std::get_if<tile::Apply>(&n.what);
    if (!a) {
      match(
          n.what,
          [&](tile::Load& l) {
            for (tile::Index& x : l.at)
              if (x.dynamic.valid()) x.dynamic = to[x.dynamic.index];
            if (!l.guard.valid()) return;
            const auto g = constant(l.guard);
            l.guard = g && *g != 0 ? NodeId{} : to[l.guard.index];
          },
          [](tile::Literal&) {}, [](tile::IndexValue&) {}, [](tile::Apply&) {},
          [&](tile::Cast& c) { c.operand = to[c.operand.index]; });
      continue;
    }
    const std::vector<NodeId> operands = a->operands;
    for (NodeId& o : a->operands) o = to[o.index];
    if (a->fn == Fn::where) {
      if (const auto condition = constant(operands[0])) {
        to[i] = to[operands[*condition != 0 ? 1 : 2].index];
        continue;
      }
    }
    if (a->fn == Fn::logical_and || a->fn == Fn::logical_or) {
      const bool neutral = a->fn == Fn::logical_and;
      const auto x = constant(operands[0]), y = constant(operands[1]);
      if (x && (*x != 0) == neutral)
        to[i] = to[operands[1].index];
      else if (y && (*y != 0) == neutral)
        to[i] = to[operands[0].index];
      if (to[i] != NodeId(i)) continue;
    }
    // x + 0 of a mask that is added: the same but for the sign of a zero, which no exponential or maximum sees.
    if (a->fn == Fn::add && is_real(n.dtype))
      for (size_t k = 0; k < 2; ++k) {
        const auto* added = std::get_if<tile::Apply>(&compute.nodes[operands[k].index].what);
        if (added && added->fn == Fn::where && constant(operands[k]) == 0.0) to[i] = to[operands[1 - k].index];
      }
    if (to[i] != NodeId(i)) continue;
    if (n.dtype == DType::boolean)
      if (const auto v = constant(NodeId(i))) n.what = tile::Literal{*v};
  }
  for (itgraph::Target& t : out.results) t.node = to[t.node.index];
  return out;
}

namespace {

// The least and the greatest value over a box of indices, as expressions; exact when each index occurs once.
class Extremes {
 public:
  Extremes(sym::Pool& syms, const std::function<Range(Expr)>& range) : syms_(syms), range_(range) {}

  std::optional<Expr> of(Expr e, bool greatest) {
    Expr sum = syms_.constant(0);
    for (const sym::Pool::Term& t : syms_.terms(e)) {
      if (t.atoms.empty()) {
        sum = syms_.add(sum, t.coefficient);
        continue;
      }
      if (t.atoms.size() > 1) return std::nullopt;
      const auto a = atom(t.atoms[0], greatest == (t.coefficient > 0));
      if (!a) return std::nullopt;
      sum = syms_.add(sum, syms_.mul(*a, t.coefficient));
    }
    return sum;
  }

 private:
  std::optional<Expr> atom(Expr a, bool greatest) {
    const auto [x, y] = syms_.operands(a);
    switch (syms_.kind(a)) {
      case sym::Kind::symbol: {
        const Range r = range_(a);
        return greatest ? r.last : r.first;
      }
      case sym::Kind::floordiv: {
        const auto d = syms_.as_constant(y);
        const auto v = d && *d > 0 ? of(x, greatest) : std::nullopt;
        return v ? std::optional(syms_.floordiv(*v, y)) : std::nullopt;
      }
      case sym::Kind::mod: {
        const auto d = syms_.as_constant(y);
        if (!d || *d <= 0) return std::nullopt;
        return syms_.constant(greatest ? *d - 1 : 0);
      }
      case sym::Kind::min:
      case sym::Kind::max: {
        const auto v = of(x, greatest), w = of(y, greatest);
        if (!v || !w) return std::nullopt;
        return syms_.kind(a) == sym::Kind::min ? syms_.min(*v, *w) : syms_.max(*v, *w);
      }
      case sym::Kind::constant:
      case sym::Kind::polynomial: return of(a, greatest);
    }
    return std::nullopt;
  }

  sym::Pool& syms_;
  const std::function<Range(Expr)>& range_;
};

// `value` >= 0 solved for the index: index >= bound (lower) or index < bound, for the whole box or for some point.
struct Solved {
  bool lower;
  Expr some, all;  // the bound that holds where some point of the box does, where all do
};

std::optional<Solved> solve(sym::Pool& syms, Expr value, Expr index, const std::function<Range(Expr)>& range) {
  Expr rest = syms.constant(0), inner;
  int64_t coefficient = 0;
  for (const sym::Pool::Term& t : syms.terms(value)) {
    const bool mentions =
        std::any_of(t.atoms.begin(), t.atoms.end(), [&](Expr a) { return a == index || syms.mentions(a, index); });
    if (!mentions) {
      Expr product = syms.constant(t.coefficient);
      for (Expr a : t.atoms) product = syms.mul(product, a);
      rest = syms.add(rest, product);
      continue;
    }
    if (t.atoms.size() != 1 || inner.valid()) return std::nullopt;
    inner = t.atoms[0];
    coefficient = t.coefficient;
  }
  if (!inner.valid()) return std::nullopt;
  // inner = index, or floor((index + shift) / divisor)
  Expr shift = syms.constant(0), divisor = syms.constant(1);
  if (inner != index) {
    if (syms.kind(inner) != sym::Kind::floordiv) return std::nullopt;
    const auto [x, d] = syms.operands(inner);
    const auto stride = syms.stride(x, index);
    const auto constant = syms.as_constant(d);
    if (!constant || *constant <= 0 || !stride || !syms.is(*stride, 1)) return std::nullopt;
    shift = syms.sub(x, index);
    if (!syms.as_constant(shift)) return std::nullopt;
    divisor = d;
  }
  Extremes extremes(syms, range);
  const auto most = extremes.of(rest, true), least = extremes.of(rest, false);
  if (!most || !least) return std::nullopt;
  const Expr size = syms.constant(std::abs(coefficient));
  auto bound = [&](Expr r) {
    // coefficient > 0: inner >= -r / c; else inner <= r / |c|.
    const Expr t = coefficient > 0 ? syms.ceildiv(syms.mul(r, -1), size) : syms.add(syms.floordiv(r, size), 1);
    return syms.sub(syms.mul(t, divisor), shift);
  };
  return Solved{coefficient > 0, bound(*most), bound(*least)};
}

}  // namespace

LoopBounds bounds_of(sym::Pool& syms, const Assumptions& needed, Expr index, Expr extent, int64_t quantum,
                     const std::function<Range(Expr)>& range) {
  const Expr zero = syms.constant(0), q = syms.constant(quantum);
  auto down = [&](Expr e) { return syms.mul(syms.floordiv(e, q), q); };
  auto up = [&](Expr e) { return syms.mul(syms.ceildiv(e, q), q); };
  LoopBounds b{zero, zero, extent, extent};
  auto full_until = [&](Expr end) { b.full_hi = syms.min(b.full_hi == extent ? down(extent) : b.full_hi, end); };
  // True when the bounds leave nothing to compare.
  auto add = [&](Expr value) {
    const auto s = solve(syms, value, index, range);
    if (!s) {
      full_until(zero);  // nothing is known to hold
      return false;
    }
    if (s->lower) {
      b.lo = syms.max(b.lo, down(s->some));
      b.full_lo = syms.max(b.full_lo, up(s->all));
      return false;
    }
    b.hi = syms.min(b.hi, s->some);
    if (s->some == s->all) return true;
    full_until(down(s->all));
    return false;
  };
  for (const auto& [atom, truth] : needed) {
    const Expr contrary = syms.add(syms.mul(atom.value, -1), -1);
    if (!atom.equal) {
      if (add(truth ? atom.value : contrary)) b.everywhere.emplace(atom, truth);
    } else if (truth) {
      add(atom.value);
      add(syms.mul(atom.value, -1));
    } else {
      full_until(zero);  // a hole in the middle bounds nothing
    }
  }
  if (b.full_hi == extent) b.full_hi = b.hi;
  return b;
}

LoopBounds hull(sym::Pool& syms, const LoopBounds& a, const LoopBounds& b) {
  LoopBounds out{syms.min(a.lo, b.lo), syms.max(a.full_lo, b.full_lo), syms.min(a.full_hi, b.full_hi),
                 syms.max(a.hi, b.hi)};
  // What one of them is sure of holds all over the hull if the hull goes no further.
  if (out.hi == a.hi) out.everywhere.insert(a.everywhere.begin(), a.everywhere.end());
  if (out.hi == b.hi) out.everywhere.insert(b.everywhere.begin(), b.everywhere.end());
  return out;
}

std::vector<int64_t> sampled(const sym::Pool& syms, Expr expression) {
  constexpr int kPoints = 9;
  std::vector<int64_t> out;
  const std::vector<Expr> symbols = syms.symbols_of(expression);
  for (int k = 0; k < kPoints; ++k) {
    std::unordered_map<Expr, int64_t> at;
    for (Expr s : symbols) {
      const sym::Interval r = syms.symbol_range(s);
      const int64_t span = std::min(r.hi, r.lo + (int64_t{1} << 40)) - r.lo, m = syms.symbol_multiple(s);
      at[s] = (r.lo + span * k / (kPoints - 1)) / m * m;
    }
    out.push_back(syms.evaluate(expression, at));
  }
  return out;
}

}  // namespace cleave::schedule
