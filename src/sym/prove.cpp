#include "sym/prove.hpp"

#include <functional>
#include <optional>

#include "sym/interval.hpp"

namespace cleave::sym {

namespace {

using Term = Pool::Term;
using Terms = std::vector<Term>;

class Prover {
 public:
  explicit Prover(const Pool& pool) : pool_(pool) {}

  // scale * x >= sum: whether x, an integer, is at least 0.
  bool natural(const Terms& sum, int64_t scale) {
    if (bounds(sum).lo > -scale || above_least(sum) > -scale) return true;
    if (--budget_ < 0) return false;
    const std::vector<Expr> atoms = compound(sum);
    return std::any_of(atoms.begin(), atoms.end(), [&](Expr atom) { return without(sum, scale, atom); });
  }

 private:
  // A sum that is growing; invalid where numbers become too large to be exact.
  struct Sum {
    Terms terms = {};
    bool exact = true;
  };

  // Without proofs, which the bounds of the pool make use of.
  Interval bounds(Expr e) const {
    switch (pool_.kind(e)) {
      case Kind::constant: return {*pool_.as_constant(e), *pool_.as_constant(e)};
      case Kind::symbol: return pool_.symbol_range(e);
      case Kind::polynomial: return bounds(pool_.terms(e));
      default: break;
    }
    const auto [a, b] = pool_.operands(e);
    return combined(pool_.kind(e), bounds(a), bounds(b));
  }
  Interval bounds(const Terms& sum) const {
    Interval all{0, 0};
    for (const Term& t : sum) all = add(all, mul({t.coefficient, t.coefficient}, factors(t)));
    return all;
  }
  Interval factors(const Term& t) const {
    Interval own{1, 1};
    for (const Expr atom : t.atoms) own = mul(own, bounds(atom));
    return own;
  }
  bool never_negative(const Term& t) const { return factors(t).lo >= 0; }

  // A lower bound by what each factor has above its own least: (m - 1)(n - 1), written out, is not negative from 1 on.
  int64_t above_least(const Terms& sum) const {
    constexpr size_t kMostParts = 64;
    if (std::none_of(sum.begin(), sum.end(), [](const Term& t) { return t.atoms.size() > 1; })) return -kHuge;
    Sum out;
    for (const Term& t : sum) {
      Terms parts{{t.coefficient, {}}};
      for (const Expr atom : t.atoms) {
        const int64_t least = bounds(atom).lo;
        if (unbounded(least) || parts.size() > kMostParts) return -kHuge;
        for (size_t i = parts.size(); i-- > 0;) {
          if (least != 0) parts.push_back({times(parts[i].coefficient, least), parts[i].atoms});
          parts[i].atoms.push_back(atom);
        }
      }
      for (const Term& part : parts) append(out, 1, part);
    }
    const auto terms = collected(std::move(out));
    if (!terms) return -kHuge;
    Interval all{0, 0};
    for (const Term& t : *terms) {
      Interval own{t.coefficient, t.coefficient};
      for (const Expr atom : t.atoms) {
        const auto [least, most] = bounds(atom);
        own = mul(own, {0, unbounded(most) ? most : most - least});
      }
      all = add(all, own);
    }
    return all.lo;
  }

  // What can be replaced, that which may contain others first.
  std::vector<Expr> compound(const Terms& sum) const {
    std::vector<Expr> out;
    for (const Term& t : sum)
      for (const Expr atom : t.atoms)
        if (pool_.kind(atom) != Kind::symbol) out.push_back(atom);
    std::sort(out.begin(), out.end(), [](Expr a, Expr b) { return b < a; });
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
  }

  static void append(Sum& to, int64_t factor, const Term& t) {
    const int64_t c = times(factor, t.coefficient);
    to.exact = to.exact && !unbounded(c);
    to.terms.push_back({c, t.atoms});
  }
  // to += factor * t * e
  void append(Sum& to, int64_t factor, const Term& t, Expr e) const {
    for (const Term& own : pool_.terms(e)) {
      Term product{times(t.coefficient, own.coefficient), t.atoms};
      to.exact = to.exact && !unbounded(product.coefficient);
      product.atoms.append(own.atoms.begin(), own.atoms.end());
      std::sort(product.atoms.begin(), product.atoms.end());
      append(to, factor, product);
    }
  }
  static std::optional<Terms> collected(Sum sum) {
    std::sort(sum.terms.begin(), sum.terms.end(), [](const Term& a, const Term& b) { return a.atoms < b.atoms; });
    Terms out;
    for (Term& t : sum.terms) {
      if (!out.empty() && out.back().atoms == t.atoms)
        out.back().coefficient = plus(out.back().coefficient, t.coefficient);
      else
        out.push_back(std::move(t));
      sum.exact = sum.exact && !unbounded(out.back().coefficient);
    }
    std::erase_if(out, [](const Term& t) { return t.coefficient == 0; });
    if (!sum.exact) return std::nullopt;
    return out;
  }

  // The sum times `factor`, with what `of` makes of each term that has the atom: given the sum so far and the term's
  // other factors.
  using Replace = std::function<void(Sum&, const Term&)>;
  bool replaced(const Terms& sum, int64_t scale, Expr atom, int64_t factor, const Replace& of) {
    if (unbounded(times(scale, factor))) return false;
    Sum out;
    for (const Term& t : sum) {
      const auto at = std::find(t.atoms.begin(), t.atoms.end(), atom);
      if (at == t.atoms.end()) {
        append(out, factor, t);
        continue;
      }
      Term rest = t;
      rest.atoms.erase(std::find(rest.atoms.begin(), rest.atoms.end(), atom));
      of(out, rest);
    }
    const auto terms = collected(std::move(out));
    return terms && natural(*terms, scale * factor);
  }

  // Whether the sum is enough with something simpler in the place of the atom.
  bool without(const Terms& sum, int64_t scale, Expr atom) {
    bool rising = true, falling = true, ordered = true;  // as the atom grows
    for (const Term& t : sum) {
      Term rest = t;
      const auto at = std::find(rest.atoms.begin(), rest.atoms.end(), atom);
      if (at == rest.atoms.end()) continue;
      rest.atoms.erase(at);
      ordered = ordered && never_negative(rest);
      (t.coefficient > 0 ? falling : rising) = false;
    }
    const auto [a, b] = pool_.operands(atom);
    switch (pool_.kind(atom)) {
      case Kind::min:
      case Kind::max: {
        const auto with = [&](Expr e) {
          return replaced(sum, scale, atom, 1, [&](Sum& out, const Term& rest) { append(out, 1, rest, e); });
        };
        // It is one of them; where more is better a maximum is at least either.
        const bool either = ordered && (pool_.kind(atom) == Kind::min ? falling : rising);
        return either ? with(a) || with(b) : with(a) && with(b);
      }
      case Kind::floordiv: return ordered && without_quotient(sum, scale, atom, a, b);
      case Kind::mod: {
        if (!ordered || bounds(b).lo < 1) return false;
        const auto at_most = [&](Expr most, int64_t more) {
          return replaced(sum, scale, atom, 1, [&](Sum& out, const Term& rest) {
            if (rest.coefficient > 0) return;
            append(out, 1, rest, most);
            if (more != 0) append(out, more, rest);
          });
        };
        return at_most(b, -1) || (!rising && bounds(a).lo >= 0 && at_most(a, 0));
      }
      default: return false;
    }
  }

  // a // b
  bool without_quotient(const Terms& sum, int64_t scale, Expr atom, Expr a, Expr b) {
    const int64_t least = bounds(b).lo;
    if (least < 1) return false;
    if (pool_.as_constant(b))
      return replaced(sum, scale, atom, least, [&](Sum& out, const Term& rest) {
        append(out, 1, rest, a);
        if (rest.coefficient > 0) append(out, 1 - least, rest);
      });
    if (bounds(a).lo < 0) return false;
    // (a // b) b is from a - b + 1 to a; a // b alone from 0 to a over the least b.
    return replaced(sum, scale, atom, least, [&](Sum& out, const Term& rest) {
      Term others = rest;
      if (const auto at = std::find(others.atoms.begin(), others.atoms.end(), b); at != others.atoms.end()) {
        others.atoms.erase(at);
        if (!never_negative(others)) return append(out, rest.coefficient < 0 ? 1 : 0, rest, a);
        append(out, least, others, a);
        if (rest.coefficient < 0) return;
        append(out, -least, others, b);
        append(out, least, others);
      } else if (rest.coefficient < 0) {
        append(out, 1, rest, a);
      }
    });
  }

  const Pool& pool_;
  int budget_ = 48;
};

}  // namespace

bool proves_natural(const Pool& pool, std::vector<Pool::Term> sum) { return Prover(pool).natural(sum, 1); }

}  // namespace cleave::sym
