#include "algebra/stabilise.hpp"

#include <cmath>
#include <limits>

namespace cleave::algebra {

using graph::Op;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A sum of terms with numbers as coefficients; none is zero.
using Linear = std::map<TermId, double>;

void add_to(Linear& sum, const Linear& other, double factor = 1) {
  for (const auto& [term, c] : other) {
    const double value = (sum[term] += c * factor);
    if (value == 0) sum.erase(term);
  }
}

// num / den * exp(e). Where `plain` is valid, nothing has been rescaled yet and it is the ordinary spelling.
struct Pair {
  TermId num;
  TermId den;          // none: 1
  bool quot0 = false;  // num / den is 0 where den is 0
  Linear e;
  TermId plain;
  Indices unless_empty;  // the value is 0 where one of these indices has no elements (num / den would be 0 / 0)

  bool scaled() const { return !e.empty() || den.valid() || !plain.valid(); }
};

class Stabiliser {
 public:
  Stabiliser(Form& form, Care care) : form_(form), care_(care) {}

  TermId run(TermId id) { return value(pair(id)); }

 private:
  DType dtype(TermId t) const { return form_.at(t).dtype; }
  TermId lit(double v, TermId like) { return form_.literal(v, dtype(like)); }
  bool one(TermId t) const { return form_.is_literal(t, 1); }
  TermId mul(TermId a, TermId b) {
    if (one(a)) return b;
    if (one(b)) return a;
    return form_.map(Op::mul, {a, b});
  }
  TermId div(TermId a, TermId b) { return one(b) ? a : form_.map(Op::div, {a, b}); }
  TermId exp(TermId x) { return form_.map(Op::exp, {x}); }

  // The sum as a term; null for an empty one.
  TermId term(const Linear& sum, TermId like) {
    TermId out;
    for (int sign : {1, -1})
      for (const auto& [t, c] : sum) {
        if ((c > 0) != (sign > 0)) continue;
        const TermId part = std::abs(c) == 1 ? t : form_.map(Op::mul, {t, lit(std::abs(c), t)});
        if (!out.valid())
          out = sign > 0 ? part : form_.map(Op::neg, {part});
        else
          out = form_.map(sign > 0 ? Op::add : Op::sub, {out, part});
      }
    return out.valid() ? out : lit(0, like);
  }

  TermId fold(const Pair& p) {
    if (!p.den.valid()) return p.num;
    return p.quot0 ? form_.map(Op::quot0, {p.num, p.den}) : guarded(p, div(p.num, p.den));
  }

  TermId guarded(const Pair& p, TermId value) {
    for (IndexId i : p.unless_empty) value = form_.map(Op::where, {not_empty(i), value, lit(0, value)});
    return value;
  }
  TermId not_empty(IndexId i) {
    return form_.map(Op::gt, {form_.extent_of(form_.extent(i), DType::i64), form_.literal(0, DType::i64)});
  }

  bool may_be_empty(IndexId i) const {
    const sym::Expr e = form_.extent(i);
    if (const auto c = form_.syms().as_constant(e)) return *c == 0;
    return form_.syms().bounds(e).lo <= 0;
  }

  // (x - y) + y = x, for the differences that exponents are.
  Linear simplified(Linear e) {
    for (bool again = true; again;) {
      again = false;
      for (const auto& [t, c] : e) {
        const Term& n = form_.at(t);
        if (n.kind != Kind::map || n.op != Op::sub) continue;
        const auto other = e.find(n.args[1]);
        if (other == e.end() || other->second != c) continue;
        const double k = c;
        const TermId difference = t;
        const std::vector<TermId> args = n.args;
        add_to(e, {{difference, -k}});
        add_to(e, {{args[0], k}});
        add_to(e, {{args[1], -k}});
        again = true;
        break;
      }
    }
    return e;
  }

  // What an output or a function without algebra takes.
  TermId value(const Pair& p) {
    if (p.plain.valid()) return p.plain;
    const Linear e = simplified(p.e);
    if (e.empty()) return fold(p);
    const TermId m = term(e, p.num);
    if (one(p.num)) {
      if (!p.den.valid()) return exp(m);
      return p.quot0 ? form_.map(Op::quot0, {exp(m), p.den}) : guarded(p, form_.map(Op::div, {exp(m), p.den}));
    }
    const TermId u = form_.map(Op::unscale, {fold(p), m});
    if (!p.quot0) return u;
    return form_.map(Op::where, {form_.map(Op::eq, {p.den, lit(0, p.den)}), lit(0, u), u});
  }

  // Whether the term comes from a row, as the maximum that a softmax subtracts does.
  bool reduces(TermId t) {
    if (auto it = reduces_.find(t); it != reduces_.end()) return it->second;
    const Term& n = form_.at(t);
    bool any = n.kind == Kind::reduce || n.kind == Kind::scaled_sum;
    for (TermId a : n.args) any = any || reduces(a);
    return reduces_[t] = any;
  }

  // Splits an exponent over indices of `bound` into a part that carries them and what its rows were shifted by.
  // Other parts free of them stay: in s + (1 - mask) * -1e9 without the -1e9, s would lose all digits.
  TermId split(TermId t, const Indices& bound, Linear& rest, double c) {
    if (!disjoint(form_.free(t), bound)) return split_inside(t, bound, rest, c);
    add_to(rest, {{t, c}});
    return {};
  }
  TermId split_inside(TermId t, const Indices& bound, Linear& rest, double c) {
    if (disjoint(form_.free(t), bound)) {
      if (!reduces(t)) return t;
      add_to(rest, {{t, c}});
      return {};
    }
    const Term& n = form_.at(t);
    if (n.kind != Kind::map) return t;
    switch (n.op) {
      case Op::add:
      case Op::sub: {
        Linear free;
        const double sign = n.op == Op::add ? 1 : -1;
        const TermId a = split_inside(n.args[0], bound, free, c), b = split_inside(n.args[1], bound, free, c * sign);
        if (free.empty()) return t;
        add_to(rest, free);
        if (!b.valid()) return a;
        if (!a.valid()) return sign > 0 ? b : form_.map(Op::neg, {b});
        return form_.map(n.op, {a, b});
      }
      case Op::neg: {
        Linear free;
        const TermId a = split_inside(n.args[0], bound, free, -c);
        if (free.empty()) return t;
        add_to(rest, free);
        return form_.map(Op::neg, {a});
      }
      case Op::mul:
      case Op::div: {
        const bool first = n.op == Op::div || disjoint(form_.free(n.args[1]), bound);
        const TermId x = n.args[first ? 0 : 1], s = n.args[first ? 1 : 0];
        if (!disjoint(form_.free(s), bound)) return t;
        Linear free;
        const TermId a = split_inside(x, bound, free, 1);
        if (free.empty()) return t;
        for (const auto& [f, k] : free) add_to(rest, {{form_.map(n.op, {f, s}), k * c}});
        return form_.map(n.op, {a, s});
      }
      case Op::where: {
        // where(c, x + y, -inf) = where(c, x, -inf) + y; a whole row that is left out must not add an infinite y.
        if (!form_.is_literal(n.args[2], -kInfinity)) return t;
        Linear free;
        const TermId a = split_inside(n.args[1], bound, free, c);
        if (free.empty() || !a.valid()) return t;
        const bool row = disjoint(form_.free(n.args[0]), bound);
        for (const auto& [f, k] : free) add_to(rest, {{row ? form_.map(Op::where, {n.args[0], f, lit(0, f)}) : f, k}});
        return form_.map(Op::where, {n.args[0], a, n.args[2]});
      }
      default: return t;
    }
  }

  // exp(x - m), 0 where x is -inf even if m is too.
  TermId relative(TermId x, TermId m) {
    const TermId plain = exp(form_.map(Op::sub, {x, m}));
    if (form_.at(x).kind == Kind::literal && std::isfinite(form_.at(x).value)) return plain;
    return form_.map(Op::where, {form_.map(Op::eq, {x, lit(-kInfinity, x)}), lit(0, x), plain});
  }

  Pair untouched(TermId t) { return {t, {}, false, {}, t}; }

  const Pair& pair(TermId id) {
    if (auto it = known_.find(id); it != known_.end()) return it->second;
    Pair p = make(id);
    return known_.insert_or_assign(id, std::move(p)).first->second;
  }

  Pair make(TermId id) {
    const Term& t = form_.at(id);
    std::vector<Pair> args;
    bool any = false, plain = true;
    for (TermId a : t.args) {
      args.push_back(pair(a));
      any = any || args.back().scaled();
      plain = plain && args.back().plain.valid();
    }
    TermId spelled;
    if (plain) {
      std::vector<TermId> list;
      for (const Pair& a : args) list.push_back(a.plain);
      spelled = form_.with_args(id, std::move(list));
    }
    const bool exponential = t.kind == Kind::map && (t.op == Op::exp || t.op == Op::exp2);
    if (!any && !exponential) {
      if (t.kind == Kind::map && t.op == Op::sub)
        if (const TermId x = less_log_sum(args[0], args[1]); x.valid()) return untouched(x);
      return untouched(spelled);
    }
    switch (t.kind) {
      case Kind::leaf:
      case Kind::literal:
      case Kind::extent:
      case Kind::iota: return untouched(id);
      case Kind::map: {
        Pair p = map(id, t, args);
        if (!p.plain.valid()) p.plain = spelled;
        return p;
      }
      case Kind::contract: return sum(id, t.bound, args[0], args[1], spelled);
      case Kind::reduce: return reduce(id, t, args[0], spelled);
      case Kind::scaled_sum: return generic(id, args);
    }
    CHECK(false, "kind {}", static_cast<int>(t.kind));
  }

  Pair generic(TermId id, const std::vector<Pair>& args) {
    std::vector<TermId> list;
    for (const Pair& a : args) list.push_back(value(a));
    return untouched(form_.with_args(id, std::move(list)));
  }

  // 1 + exp(z): returns z.
  TermId one_plus_exp(TermId t) {
    const Term& n = form_.at(t);
    if (n.kind != Kind::map || n.op != Op::add) return {};
    for (int side : {0, 1}) {
      const Term& e = form_.at(n.args[static_cast<size_t>(side)]);
      if (one(n.args[static_cast<size_t>(1 - side)]) && e.kind == Kind::map && e.op == Op::exp) return e.args[0];
    }
    return {};
  }

  // Signs go into the coefficient, so that x and -x cancel: as terms they would leave x - x, NaN for infinities.
  Linear exponent(TermId x, double coefficient) {
    while (form_.at(x).kind == Kind::map && form_.at(x).op == Op::neg) {
      x = form_.at(x).args[0];
      coefficient = -coefficient;
    }
    return {{x, coefficient}};
  }

  Pair map(TermId id, const Term& t, const std::vector<Pair>& args) {
    switch (t.op) {
      case Op::exp: return {lit(1, id), {}, false, exponent(value(args[0]), 1), {}};
      case Op::exp2: return {lit(1, id), {}, false, exponent(value(args[0]), std::log(2.0)), {}};
      case Op::mul: return product(args[0], args[1]);
      case Op::square: return product(args[0], args[0]);
      case Op::div:
      case Op::quot0:
        if (const TermId z = one_plus_exp(t.args[1]); z.valid() && t.op == Op::div)
          return product(args[0], logistic(z));
        return quotient(args[0], args[1], t.op == Op::quot0);
      case Op::reciprocal:
        if (const TermId z = one_plus_exp(t.args[0]); z.valid()) return logistic(z);
        return quotient(untouched(lit(1, id)), args[0], false);
      case Op::add: return plus(args[0], args[1], Op::add);
      case Op::sub:
        if (const TermId x = less_log_sum(args[0], args[1]); x.valid()) return untouched(x);
        return plus(args[0], args[1], Op::sub);
      case Op::neg:
        return {form_.map(Op::neg, {args[0].num}), args[0].den, args[0].quot0, args[0].e, {}, args[0].unless_empty};
      case Op::abs:
      case Op::relu: return {form_.map(t.op, {fold(args[0])}), {}, false, args[0].e, {}};
      case Op::sqrt:
      case Op::rsqrt: {
        Pair p{form_.map(t.op, {fold(args[0])}), {}, false, {}, {}};
        add_to(p.e, args[0].e, t.op == Op::sqrt ? 0.5 : -0.5);
        return p;
      }
      case Op::pow: {
        const Term& exponent = form_.at(t.args[1]);
        if (exponent.kind != Kind::literal || !std::isfinite(exponent.value)) return generic(id, args);
        Pair p{form_.map(Op::pow, {fold(args[0]), t.args[1]}), {}, false, {}, {}};
        add_to(p.e, args[0].e, exponent.value);
        return p;
      }
      case Op::log:
      case Op::log2: return logarithm(t.op, args[0]);
      case Op::log1p: return logarithm(Op::log, plus(untouched(lit(1, id)), args[0], Op::add));
      case Op::where: return select(args[0], args[1], args[2]);
      case Op::max:
      case Op::min: return extreme(t.op, args[0], args[1]);
      default: return generic(id, args);
    }
  }

  Pair logistic(TermId z) {
    const TermId x = value(pair(z));
    const Term& n = form_.at(x);
    const TermId y = n.kind == Kind::map && n.op == Op::neg ? n.args[0] : form_.map(Op::neg, {x});
    return untouched(form_.map(Op::sigmoid, {y}));
  }

  // x - (m + log u) as (x - m) - log u: beside a large m the sum would lose the digits of log u.
  TermId less_log_sum(const Pair& x, const Pair& lse) {
    if (x.scaled() || lse.scaled() || lse.den.valid()) return {};
    TermId shift, log;
    if (!parts_of_log_sum(lse.num, shift, log)) return {};
    return form_.map(Op::sub, {form_.map(Op::sub, {fold(x), shift}), log});
  }

  // t = shift + log, as `logarithm` makes it, or with something added to that.
  bool parts_of_log_sum(TermId t, TermId& shift, TermId& log) {
    if (const auto it = log_sums_.find(t); it != log_sums_.end()) {
      shift = it->second.first;
      log = it->second.second;
      if (const auto plain = unguarded_.find(log); plain != unguarded_.end() && care_ != Care::most)
        log = plain->second;
      return true;
    }
    const Term& n = form_.at(t);
    if (n.kind != Kind::map || n.op != Op::add) return false;
    for (size_t side : {0, 1})
      if (parts_of_log_sum(n.args[side], shift, log)) {
        shift = form_.map(Op::add, {shift, n.args[1 - side]});
        return true;
      }
    return false;
  }

  // A factor that is 0 where a predicate is false: the predicate, and what the factor is where it is true.
  bool is_mask(TermId t, TermId& condition, TermId& rest) {
    const Term& n = form_.at(t);
    if (n.kind != Kind::map) return false;
    if (n.op == Op::cast && dtype(n.args[0]) == DType::boolean) {
      condition = n.args[0];
      rest = lit(1, t);
      return true;
    }
    if (n.op == Op::where && form_.is_literal(n.args[2], 0)) {
      condition = n.args[0];
      rest = form_.is_literal(n.args[1], 1) ? n.args[1] : t;
      return true;
    }
    return false;
  }

  Pair masked(const Pair& p, TermId condition) {
    Pair out = p;
    const TermId x = term(p.e, p.num);
    out.e = {{form_.map(Op::where, {condition, x, lit(-kInfinity, x)}), 1}};
    out.plain = {};
    // A row that is left out as a whole may be one whose denominator is 0: it must not become 0 / 0.
    if (p.den.valid() && without(form_.at(condition).free, form_.at(p.den).free).empty())
      out.den = form_.map(Op::where, {condition, p.den, lit(1, p.den)});
    return out;
  }

  // where(condition, p, 0): what is left out is not read, not even as a factor of 0.
  Pair left_out(const Pair& p, TermId condition) {
    Pair out = masked(p, condition);
    if (care_ != Care::most) return out;
    if (!one(p.num)) out.num = form_.map(Op::where, {condition, p.num, lit(0, p.num)});
    if (p.den.valid()) out.den = form_.map(Op::where, {condition, p.den, lit(1, p.den)});
    return out;
  }

  Pair product(const Pair& a, const Pair& b) {
    for (const auto& [m, x] : {std::pair(&a, &b), std::pair(&b, &a)}) {
      TermId condition, rest;
      if (m->scaled() || x->e.empty() || !is_mask(m->num, condition, rest)) continue;
      Pair out = masked(*x, condition);
      out.num = mul(rest, out.num);
      return out;
    }
    Pair out;
    const bool apart = a.den.valid() && b.den.valid() && a.quot0 != b.quot0;
    out.num = mul(apart && a.quot0 ? fold(a) : a.num, apart && b.quot0 ? fold(b) : b.num);
    if (a.den.valid() && !(apart && a.quot0)) out.den = a.den;
    if (b.den.valid() && !(apart && b.quot0)) out.den = out.den.valid() ? mul(out.den, b.den) : b.den;
    out.quot0 = !apart && (a.quot0 || b.quot0);
    out.unless_empty = unite(a.unless_empty, b.unless_empty);
    out.e = a.e;
    add_to(out.e, b.e);
    return out;
  }

  Pair quotient(const Pair& a, const Pair& b, bool quot0) {
    // A numerator's own 0-policy, or a denominator that is a quotient itself, stays a value.
    const bool keep = (!a.quot0 || quot0) && a.unless_empty.empty();
    Pair out;
    out.num = keep ? a.num : fold(a);
    out.den = fold(b);
    if (b.den.valid() && !b.quot0 && !quot0 && b.unless_empty.empty()) {
      out.num = mul(out.num, b.den);
      out.den = b.num;
    }
    if (keep && a.den.valid()) out.den = mul(a.den, out.den);
    // exp(-inf) is 0, which a sum of exponentials knows by itself.
    if (quot0 && !b.e.empty() && !sums_exponentials(b.num)) {
      const TermId e = term(b.e, b.num);
      const TermId none = form_.map(Op::eq, {e, lit(-kInfinity, e)});
      out.den = form_.map(Op::where, {none, lit(0, out.den), out.den});
    }
    out.quot0 = quot0;
    out.e = a.e;
    add_to(out.e, b.e, -1);
    return out;
  }

  Pair plus(const Pair& a, const Pair& b, Op op) {
    if (form_.is_literal(b.num, 0) && !b.scaled()) return a;
    if (a.e == b.e) {
      if (a.den == b.den && a.quot0 == b.quot0 && a.unless_empty == b.unless_empty)
        return {form_.map(op, {a.num, b.num}), a.den, a.quot0, a.e, {}, a.unless_empty};
      return {form_.map(op, {fold(a), fold(b)}), {}, false, a.e, {}};
    }
    Linear shared, ea, eb;
    for (const auto& [t, c] : a.e)
      if (auto it = b.e.find(t); it != b.e.end() && it->second == c) shared.emplace(t, c);
    ea = a.e, eb = b.e;
    add_to(ea, shared, -1);
    add_to(eb, shared, -1);
    const TermId x = term(ea, a.num), y = term(eb, b.num), m = form_.map(Op::max, {x, y});
    Pair out;
    out.num = form_.map(op, {mul(fold(a), relative(x, m)), mul(fold(b), relative(y, m))});
    out.e = shared;
    add_to(out.e, {{m, 1}});
    return out;
  }

  // A sum of exponentials, or of such sums of parts: never negative.
  bool sums_exponentials(TermId t) const {
    const Term& n = form_.at(t);
    return n.kind == Kind::scaled_sum && (n.args.size() == 1 || sums_exponentials(n.args[1]));
  }

  // log u of a sum of exponentials u whose maximum m is in the exponents: u is NaN where m is +inf, where m itself is
  // the logarithm. Without m (log_softmax, whose maximum has cancelled) it stays NaN, as in the source.
  TermId log_of_sum(Op op, TermId u, const Linear& e) {
    const TermId log = form_.map(op, {u});
    const Term& n = form_.at(u);
    if (care_ == Care::least || !sums_exponentials(u)) return log;
    const TermId m = form_.reduce(Op::amax, n.bound, n.args[0]);
    if (!e.contains(m)) return log;
    const TermId guarded = form_.map(Op::where, {form_.map(Op::eq, {m, lit(kInfinity, m)}), lit(0, m), log});
    unguarded_.emplace(guarded, log);
    return guarded;
  }

  Pair logarithm(Op op, const Pair& a) {
    const double scale = op == Op::log ? 1 : 1 / std::log(2.0);
    // A sum of exponentials is positive, so the logarithm of a quotient by it may be taken apart.
    const bool apart = a.den.valid() && !a.quot0 && a.unless_empty.empty() && sums_exponentials(a.den);
    Linear logs, exponents;
    add_to(exponents, a.e, scale);
    if (apart) {
      if (!one(a.num)) add_to(logs, {{log_of_sum(op, a.num, a.e), 1}});
      add_to(logs, {{log_of_sum(op, a.den, a.e), -1}});
    } else if (!one(fold(a))) {
      add_to(logs, {{log_of_sum(op, fold(a), a.e), 1}});
    }
    // Large exponents meet first: what is left of them beside the logarithms is small, or is the result's magnitude.
    if (logs.empty()) return untouched(term(exponents, a.num));
    const TermId log = term(logs, a.num);
    if (exponents.empty()) return untouched(log);
    TermId out = form_.map(Op::add, {term(exponents, a.num), log});
    log_sums_.emplace(out, std::pair(form_.at(out).args[0], log));
    // Over nothing the exponents may be infinite both ways; the logarithm of 0 is -inf.
    if (!a.den.valid() && form_.at(a.num).kind == Kind::scaled_sum && exponents.size() > 1)
      for (IndexId i : form_.at(a.num).bound)
        if (may_be_empty(i)) out = form_.map(Op::where, {not_empty(i), out, lit(-kInfinity, out)});
    return untouched(out);
  }

  Pair select(const Pair& c, const Pair& a, const Pair& b) {
    const TermId condition = value(c);
    if (!b.scaled() && form_.is_literal(b.num, 0) && !a.e.empty()) return left_out(a, condition);
    if (!a.scaled() && form_.is_literal(a.num, 0) && !b.e.empty())
      return left_out(b, form_.map(Op::logical_not, {condition}));
    Pair out;
    out.num = form_.map(Op::where, {condition, fold(a), fold(b)});
    if (a.e == b.e)
      out.e = a.e;
    else
      out.e = {{form_.map(Op::where, {condition, term(a.e, a.num), term(b.e, b.num)}), 1}};
    return out;
  }

  // max and min compare at a common exponent and return the pair that is chosen.
  Pair extreme(Op op, const Pair& a, const Pair& b) {
    const TermId u = fold(a), v = fold(b);
    if (a.e == b.e) return {form_.map(op, {u, v}), {}, false, a.e, {}};
    const TermId x = term(a.e, u), y = term(b.e, v), m = form_.map(Op::max, {x, y});
    // A NaN of the first is chosen by itself, one of the second because no comparison with it holds.
    const TermId first = form_.map(
        Op::logical_or, {form_.map(op == Op::max ? Op::ge : Op::le, {mul(u, relative(x, m)), mul(v, relative(y, m))}),
                         form_.map(Op::isnan, {form_.map(Op::add, {u, x})})});
    Pair out;
    out.num = u == v ? u : form_.map(Op::where, {first, u, v});
    out.e = {{form_.map(Op::where, {first, x, y}), 1}};
    return out;
  }

  // Sum over `bound` of a * b, where an invalid `b.num` stands for no second factor.
  Pair sum(TermId id, const Indices& bound, Pair a, Pair b, TermId spelled) {
    const bool two = b.num.valid();
    // A denominator that is summed over stays with its own operand, so that a contraction remains one.
    for (Pair* x : {&a, &b}) {
      if (!x->den.valid() || disjoint(form_.free(x->den), bound)) continue;
      x->num = fold(*x);
      x->den = {};
      x->quot0 = false;
      x->unless_empty.clear();
    }
    Pair p = two ? product(a, b) : a;
    if (p.den.valid() && !disjoint(form_.free(p.den), bound)) {
      p.num = fold(p);
      p.den = {};
      p.quot0 = false;
      p.unless_empty.clear();
    }
    Linear carried, rest;
    for (const auto& [t, c] : p.e) {
      const TermId part = split(t, bound, rest, c);
      if (part.valid()) add_to(carried, {{part, c}});
    }
    Pair out;
    out.den = p.den;
    out.quot0 = p.quot0;
    out.unless_empty = p.unless_empty;
    if (out.den.valid() && !out.quot0)
      for (IndexId i : bound)
        if (may_be_empty(i)) out.unless_empty = unite(out.unless_empty, {i});
    out.e = rest;
    if (carried.empty()) {
      const bool contraction = two && p.num == form_.map(Op::mul, {a.num, b.num});
      out.num = contraction ? form_.contract(bound, a.num, b.num) : form_.reduce(Op::sum, bound, p.num);
      out.plain = spelled;
      return out;
    }
    const TermId scores = term(carried, id);
    const Indices inner = common(bound, form_.free(scores)), outer = without(bound, inner);
    TermId factor = p.num;
    if (!outer.empty()) {
      const Indices present = common(outer, form_.free(factor));
      factor = form_.reduce(Op::sum, present, factor);
      for (IndexId i : without(outer, present)) factor = mul(factor, form_.extent_of(form_.extent(i), dtype(factor)));
    }
    if (disjoint(form_.free(factor), inner))
      out.num = mul(factor, form_.scaled_sum(inner, scores));
    else
      out.num = form_.scaled_sum(inner, scores, factor);
    add_to(out.e, {{form_.reduce(Op::amax, inner, scores), 1}});
    return out;
  }

  Pair reduce(TermId id, const Term& t, const Pair& a, TermId spelled) {
    switch (t.op) {
      case Op::sum: return sum(id, t.bound, a, {}, spelled);
      case Op::prod:
        return {form_.reduce(Op::prod, t.bound, fold(a)),
                {},
                false,
                {{form_.reduce(Op::sum, t.bound, term(a.e, a.num)), 1}},
                spelled};
      case Op::amax:
      case Op::amin: {
        Linear carried, rest;
        for (const auto& [e, c] : a.e) {
          const TermId part = split(e, t.bound, rest, c);
          if (part.valid()) add_to(carried, {{part, c}});
        }
        Pair out{{}, {}, false, rest, spelled};
        if (carried.empty()) {
          out.num = form_.reduce(t.op, t.bound, fold(a));
          return out;
        }
        const TermId x = term(carried, id);
        const bool ones = one(fold(a));
        TermId m = form_.reduce(ones ? t.op : Op::amax, t.bound, x);
        out.num = ones ? lit(1, id) : form_.reduce(t.op, t.bound, mul(fold(a), relative(x, m)));
        // Over nothing it is the extremum's own infinity, at exponent 0.
        for (IndexId i : t.bound) {
          if (!may_be_empty(i)) continue;
          const TermId some = not_empty(i);
          out.num = form_.map(Op::where, {some, out.num, lit(t.op == Op::amax ? -kInfinity : kInfinity, out.num)});
          m = form_.map(Op::where, {some, m, lit(0, m)});
        }
        add_to(out.e, {{m, 1}});
        return out;
      }
      default: return generic(id, {a});
    }
  }

  Form& form_;
  Care care_;
  std::map<TermId, Pair> known_;
  std::map<TermId, bool> reduces_;
  std::map<TermId, std::pair<TermId, TermId>> log_sums_;  // results of logarithms: the exponents, and the rest
  std::map<TermId, TermId> unguarded_;                    // a logarithm that is 0 where m is +inf: the one that is not
};

}  // namespace

TermId stabilise(Form& form, TermId term, Care care) { return Stabiliser(form, care).run(term); }

graph::Graph stabilise(const graph::Graph& graph) {
  const Program program = read(graph);
  std::vector<std::vector<Root>> roots;
  bool changed = false;
  for (const Step& step : program.steps) {
    roots.emplace_back();
    Stabiliser stabiliser(*program.form, Care::most);
    for (const Root& r : step.roots) {
      roots.back().push_back({r.value, stabiliser.run(r.term), r.axes});
      changed = changed || roots.back().back().term != r.term;
    }
  }
  return changed ? emit(program, roots) : graph;
}

}  // namespace cleave::algebra
