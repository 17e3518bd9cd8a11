#include "sym/sym.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/check.hpp"
#include "sym/interval.hpp"
#include "sym/prove.hpp"

namespace cleave::sym {

namespace {

int64_t floor_mod(int64_t a, int64_t b) { return b == 0 ? 0 : a - floor_div(a, b) * b; }

uint64_t mixed(uint64_t h, uint64_t v) {
  h = (h ^ v) * 0x9e3779b97f4a7c15ULL;
  return h ^ (h >> 29);
}
}  // namespace

Expr Pool::intern(Kind kind, int64_t value, Terms terms, Expr a, Expr b) {
  uint64_t hash = mixed(static_cast<uint64_t>(kind), static_cast<uint64_t>(value));
  for (const Term& t : terms) {
    hash = mixed(hash, static_cast<uint64_t>(t.coefficient));
    for (const Expr x : t.atoms) hash = mixed(hash, x.index);
  }
  hash = mixed(hash, (static_cast<uint64_t>(a.index) << 32) | b.index);
  if (!known_.empty()) {
    const size_t mask = known_.size() - 1;
    for (size_t i = hash & mask; known_[i].valid(); i = (i + 1) & mask) {
      if (hashes_[known_[i].index] != hash) continue;
      const Node& n = nodes_[known_[i].index];
      if (n.kind == kind && n.value == value && n.a == a && n.b == b && n.terms == terms) return known_[i];
    }
  }
  const Expr id(static_cast<uint32_t>(nodes_.size()));
  nodes_.push_back({.kind = kind, .value = value, .terms = std::move(terms), .a = a, .b = b});
  hashes_.push_back(hash);
  enter(id, hash);
  return id;
}

void Pool::enter(Expr e, uint64_t hash) {
  if (2 * (entered_ + 1) > known_.size()) {  // at most half full
    std::vector<Expr> before(std::max<size_t>(64, 2 * known_.size()));
    before.swap(known_);
    entered_ = 0;
    for (const Expr x : before)
      if (x.valid()) enter(x, hashes_[x.index]);
  }
  const size_t mask = known_.size() - 1;
  size_t i = hash & mask;
  while (known_[i].valid()) i = (i + 1) & mask;
  known_[i] = e;
  ++entered_;
}

Expr Pool::constant(int64_t value) { return intern(Kind::constant, value, {}, {}, {}); }

Expr Pool::symbol(std::string_view name, Interval range) {
  auto it = by_name_.find(std::string(name));
  if (it != by_name_.end()) {
    Node& n = nodes_[it->second.index];
    if (unbounded(n.range.lo) && unbounded(n.range.hi)) n.range = range;
    return it->second;
  }
  const Expr id(static_cast<uint32_t>(nodes_.size()));
  nodes_.push_back({.kind = Kind::symbol, .name = std::string(name), .range = range});
  hashes_.push_back(0);
  by_name_.emplace(std::string(name), id);
  return id;
}

Expr Pool::fresh(std::string_view stem, Interval range) {
  std::string name(stem);
  int& next = next_fresh_[name];
  while (by_name_.count(name)) name = fmt::format("{}_{}", stem, ++next);
  return symbol(name, range);
}

void Pool::set_range(Expr symbol, Interval range) {
  CHECK(kind(symbol) == Kind::symbol);
  nodes_[symbol.index].range = range;
}

void Pool::set_multiple(Expr symbol, int64_t multiple) {
  CHECK(kind(symbol) == Kind::symbol && multiple >= 1);
  nodes_[symbol.index].multiple = multiple;
}

int64_t Pool::multiple_of(const Term& term) const {
  auto of = [&](Expr e) {  // divides all values of e; 0 for e = 0
    int64_t d = 0;
    for (const Term& t : terms(e)) d = std::gcd(d, multiple_of(t));
    return d;
  };
  int64_t m = term.coefficient;
  for (Expr a : term.atoms) {
    if (kind(a) == Kind::symbol) m = times(m, nodes_[a.index].multiple);
    if (kind(a) == Kind::min || kind(a) == Kind::max)
      m = times(m, std::gcd(of(nodes_[a.index].a), of(nodes_[a.index].b)));
  }
  return m;
}

std::optional<Expr> Pool::find_symbol(std::string_view name) const {
  auto it = by_name_.find(std::string(name));
  if (it == by_name_.end()) return std::nullopt;
  return it->second;
}

std::optional<int64_t> Pool::as_constant(Expr e) const {
  if (kind(e) != Kind::constant) return std::nullopt;
  return nodes_[e.index].value;
}

std::span<const Pool::Term> Pool::view(Expr e, Term& one) const {
  const Node& n = nodes_[e.index];
  if (n.kind == Kind::polynomial) return n.terms;
  if (n.kind != Kind::constant)
    one = {1, {e}};
  else if (n.value != 0)
    one = {n.value, {}};
  else
    return {};
  return {&one, 1};
}

std::vector<Pool::Term> Pool::terms(Expr e) const {
  Term one;
  const auto v = view(e, one);
  return {v.begin(), v.end()};
}

Pool::Terms Pool::sum(std::span<const Term> a, std::span<const Term> b, int64_t factor) const {
  Terms out;
  out.reserve(a.size() + b.size());
  auto x = a.begin();
  auto y = b.begin();
  while (x != a.end() || y != b.end()) {
    const auto order = x == a.end()   ? std::strong_ordering::greater
                       : y == b.end() ? std::strong_ordering::less
                                      : x->atoms <=> y->atoms;
    if (order < 0) {
      out.push_back(*x++);
    } else if (order > 0) {
      out.push_back(*y++);
      out.back().coefficient = times(out.back().coefficient, factor);
    } else {
      const int64_t c = plus(x->coefficient, times(y->coefficient, factor));
      if (c != 0) out.push_back({c, x->atoms});
      ++x;
      ++y;
    }
  }
  return out;
}

Expr Pool::from_sorted(Terms terms) {
  if (terms.empty()) return constant(0);
  if (terms.size() == 1 && terms[0].atoms.empty()) return constant(terms[0].coefficient);
  if (terms.size() == 1 && terms[0].atoms.size() == 1 && terms[0].coefficient == 1) return terms[0].atoms[0];
  return intern(Kind::polynomial, 0, std::move(terms), {}, {});
}

Expr Pool::from_terms(Terms terms) {
  std::sort(terms.begin(), terms.end(), [](const Term& a, const Term& b) { return a.atoms < b.atoms; });
  Terms kept;
  for (Term& t : terms) {
    if (!kept.empty() && kept.back().atoms == t.atoms)
      kept.back().coefficient = plus(kept.back().coefficient, t.coefficient);
    else
      kept.push_back(std::move(t));
  }
  std::erase_if(kept, [](const Term& t) { return t.coefficient == 0; });
  return from_sorted(std::move(kept));
}

Expr Pool::add(Expr a, Expr b) {
  Term one, other;
  return from_sorted(sum(view(a, one), view(b, other), 1));
}

Expr Pool::sub(Expr a, Expr b) {
  Term one, other;
  return from_sorted(sum(view(a, one), view(b, other), -1));
}

Expr Pool::mul(Expr a, Expr b) {
  Term one, other;
  const auto x = view(a, one), y = view(b, other);
  Terms out;
  out.reserve(x.size() * y.size());
  for (const Term& s : x)
    for (const Term& t : y) {
      Term product{times(s.coefficient, t.coefficient), s.atoms};
      product.atoms.append(t.atoms.begin(), t.atoms.end());
      std::sort(product.atoms.begin(), product.atoms.end());
      out.push_back(std::move(product));
    }
  return from_terms(std::move(out));
}

Expr Pool::product(std::span<const Expr> factors) {
  Expr p = constant(1);
  for (Expr f : factors) p = mul(p, f);
  return p;
}

Expr Pool::floordiv(Expr a, Expr b) {
  const auto ca = as_constant(a), cb = as_constant(b);
  if (ca && cb) return constant(floor_div(*ca, *cb));
  if (ca && *ca == 0) return a;
  if (a == b && bounds(b).lo > 0) return constant(1);
  if (cb && *cb > 0) {
    if (*cb == 1) return a;
    // Multiples of the divisor come out: floor((c*k + r) / c) = k + floor(r / c).
    std::vector<Term> whole, rest;
    for (Term& t : terms(a)) {
      const int64_t q = floor_div(t.coefficient, *cb), r = floor_mod(t.coefficient, *cb);
      if (q != 0) whole.push_back({q, t.atoms});
      if (r != 0) rest.push_back({r, t.atoms});
    }
    const Expr r = from_terms(rest);
    const Expr w = from_terms(whole);
    const Interval range = bounds(r);
    if (range.lo >= 0 && range.hi < *cb) return w;
    if (!whole.empty()) return add(w, floordiv(r, b));
    // So do terms that are multiples for another reason: floor((s + r) / c) = floor(s / c) + floor(r / c) when c
    // divides s.
    std::vector<Term> divisible, others;
    for (Term& t : terms(a)) (multiple_of(t) % *cb == 0 ? divisible : others).push_back(t);
    if (!divisible.empty() && !others.empty())
      return add(floordiv(from_terms(divisible), b), floordiv(from_terms(others), b));
    // floor(floor(x / c1) / c2) = floor(x / (c1*c2)).
    if (kind(a) == Kind::floordiv) {
      const auto [x, y] = operands(a);
      if (auto cy = as_constant(y); cy && *cy > 0) return floordiv(x, constant(times(*cy, *cb)));
    }
    // A common factor of all coefficients and the divisor cancels.
    int64_t g = *cb;
    for (const Term& t : terms(a)) g = std::gcd(g, t.coefficient);
    if (g > 1) {
      auto t = terms(a);
      for (Term& x : t) x.coefficient /= g;
      return floordiv(from_terms(std::move(t)), constant(*cb / g));
    }
  }
  if (!cb) {
    // Exact division of every term by a product of atoms (b a single positive term).
    const auto tb = terms(b);
    if (tb.size() == 1 && bounds(b).lo > 0) {
      std::vector<Term> whole;
      bool exact = true;
      for (Term t : terms(a)) {
        exact = exact && t.coefficient % tb[0].coefficient == 0;
        for (Expr atom : tb[0].atoms) {
          auto it = std::find(t.atoms.begin(), t.atoms.end(), atom);
          if (it == t.atoms.end())
            exact = false;
          else
            t.atoms.erase(it);
        }
        t.coefficient /= tb[0].coefficient;
        whole.push_back(std::move(t));
      }
      if (exact) return from_terms(std::move(whole));
    }
    const Interval ra = bounds(a), rb = bounds(b);
    if (ra.lo >= 0 && rb.lo > 0 && at_most(add(a, 1), b) == Proof::yes) return constant(0);
  }
  return atom(Kind::floordiv, a, b);
}

Expr Pool::mod(Expr a, Expr b) {
  const auto ca = as_constant(a), cb = as_constant(b);
  if (ca && cb) return constant(floor_mod(*ca, *cb));
  if (cb && *cb > 0) {
    std::vector<Term> rest;
    for (Term& t : terms(a)) {
      const int64_t r = floor_mod(t.coefficient, *cb);
      if (r != 0 && multiple_of(t) % *cb != 0) rest.push_back({r, t.atoms});
    }
    const Expr r = from_terms(rest);
    const Interval range = bounds(r);
    if (range.lo >= 0 && range.hi < *cb) return r;
    if (as_constant(r)) return constant(floor_mod(*as_constant(r), *cb));
    return atom(Kind::mod, r, b);
  }
  const Expr q = floordiv(a, b);
  if (kind(q) != Kind::floordiv && bounds(b).lo > 0) return sub(a, mul(q, b));
  return atom(Kind::mod, a, b);
}

Expr Pool::ceildiv(Expr a, Expr b) { return floordiv(add(a, sub(b, constant(1))), b); }

Expr Pool::min(Expr a, Expr b) {
  if (a == b) return a;
  if (at_most(a, b) == Proof::yes) return a;
  if (at_most(b, a) == Proof::yes) return b;
  if (b < a) std::swap(a, b);
  return atom(Kind::min, a, b);
}

Expr Pool::max(Expr a, Expr b) {
  if (a == b) return a;
  if (at_most(a, b) == Proof::yes) return b;
  if (at_most(b, a) == Proof::yes) return a;
  if (b < a) std::swap(a, b);
  return atom(Kind::max, a, b);
}

std::vector<Expr> Pool::symbols_of(Expr e) const {
  std::vector<Expr> found, seen, todo = {e};
  while (!todo.empty()) {
    const Expr x = todo.back();
    todo.pop_back();
    const Node& n = nodes_[x.index];
    if (n.kind == Kind::symbol) {
      found.push_back(x);
    } else if (n.kind == Kind::polynomial) {
      for (const Term& t : n.terms) todo.insert(todo.end(), t.atoms.begin(), t.atoms.end());
    } else if (n.kind != Kind::constant) {
      if (std::find(seen.begin(), seen.end(), x) != seen.end()) continue;
      seen.push_back(x);
      todo.insert(todo.end(), {n.a, n.b});
    }
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

bool Pool::mentions(Expr e, Expr symbol) const {
  if (e == symbol) return true;
  const Node& n = nodes_[e.index];
  // What a node is made of was there before it.
  if (n.kind == Kind::constant || n.kind == Kind::symbol || e < symbol) return false;
  if (n.kind != Kind::polynomial) return mentions(n.a, symbol) || mentions(n.b, symbol);
  return std::any_of(n.terms.begin(), n.terms.end(), [&](const Term& t) {
    return std::any_of(t.atoms.begin(), t.atoms.end(), [&](Expr x) { return mentions(x, symbol); });
  });
}

Interval Pool::bounds(Expr e) const {
  const Node& n = nodes_[e.index];
  switch (n.kind) {
    case Kind::constant: return {n.value, n.value};
    case Kind::symbol: return n.range;
    case Kind::polynomial: {
      Interval sum{0, 0};
      bool compound = false;
      for (const Term& t : n.terms) {
        Interval p{t.coefficient, t.coefficient};
        for (Expr atom : t.atoms) {
          p = cleave::sym::mul(p, bounds(atom));
          compound = compound || kind(atom) != Kind::symbol || t.atoms.size() > 1;
        }
        sum = cleave::sym::add(sum, p);
      }
      // What is left of an extent is not negative.
      if (compound && sum.lo < 0 && sum.hi >= 0 && proves_natural(*this, n.terms)) sum.lo = 0;
      return sum;
    }
    default: return combined(n.kind, bounds(n.a), bounds(n.b));
  }
}

Proof Pool::at_most(Expr a, Expr b) const {
  if (a == b) return Proof::yes;
  // Bounds of b - a without touching the pool: the terms of both with signs.
  Term one, other;
  Terms difference = sum(view(b, one), view(a, other), -1);
  Interval range{0, 0};
  bool compound = false;
  for (const Term& t : difference) {
    Interval p{t.coefficient, t.coefficient};
    for (Expr atom : t.atoms) {
      p = cleave::sym::mul(p, bounds(atom));
      compound = compound || kind(atom) != Kind::symbol;
    }
    range = cleave::sym::add(range, p);
  }
  if (range.lo >= 0) return Proof::yes;
  if (range.hi < 0) return Proof::no;
  if (!compound) return Proof::unknown;
  if (proves_natural(*this, difference)) return Proof::yes;
  // b < a: a - b - 1 >= 0.
  Term minus{1, {}};
  for (Term& t : difference) t.coefficient = -t.coefficient;
  if (proves_natural(*this, sum(difference, {&minus, 1}, -1))) return Proof::no;
  return Proof::unknown;
}

Proof Pool::less(Expr a, Expr b) const {
  switch (at_most(b, a)) {
    case Proof::yes: return Proof::no;
    case Proof::no: return Proof::yes;
    case Proof::unknown: return Proof::unknown;
  }
  return Proof::unknown;
}

Proof Pool::equal(Expr a, Expr b) const {
  if (a == b) return Proof::yes;
  if (less(a, b) == Proof::yes || less(b, a) == Proof::yes) return Proof::no;
  return Proof::unknown;
}

Proof Pool::divides(int64_t divisor, Expr e) const {
  bool all = true;
  for (const Term& t : terms(e)) all = all && multiple_of(t) % divisor == 0;
  if (all) return Proof::yes;
  if (auto c = as_constant(e)) return *c % divisor == 0 ? Proof::yes : Proof::no;
  return Proof::unknown;
}

std::optional<Expr> Pool::stride(Expr e, Expr symbol) {
  if (!mentions(e, symbol)) return constant(0);
  const Expr d = sub(substitute(e, {{symbol, add(symbol, 1)}}), e);
  if (mentions(d, symbol)) return std::nullopt;
  return d;
}

Expr Pool::substitute(Expr e, const std::unordered_map<Expr, Expr>& by) {
  if (auto it = by.find(e); it != by.end()) return it->second;
  const Node n = nodes_[e.index];
  switch (n.kind) {
    case Kind::constant:
    case Kind::symbol: return e;
    case Kind::polynomial: {
      Expr sum = constant(0);
      for (const Term& t : n.terms) {
        Expr p = constant(t.coefficient);
        for (Expr atom : t.atoms) p = mul(p, substitute(atom, by));
        sum = add(sum, p);
      }
      return sum;
    }
    case Kind::floordiv: return floordiv(substitute(n.a, by), substitute(n.b, by));
    case Kind::mod: return mod(substitute(n.a, by), substitute(n.b, by));
    case Kind::min: return min(substitute(n.a, by), substitute(n.b, by));
    case Kind::max: return max(substitute(n.a, by), substitute(n.b, by));
  }
  return e;
}

std::optional<int64_t> Pool::evaluate(Expr e, const std::function<std::optional<int64_t>(Expr)>& value) const {
  const Node& n = nodes_[e.index];
  switch (n.kind) {
    case Kind::constant: return n.value;
    case Kind::symbol: return value(e);
    case Kind::polynomial: {
      int64_t sum = 0;
      for (const Term& t : n.terms) {
        int64_t p = t.coefficient;
        for (Expr atom : t.atoms) {
          const auto v = evaluate(atom, value);
          if (!v) return std::nullopt;
          p = times(p, *v);
        }
        sum = plus(sum, p);
      }
      return sum;
    }
    default: break;
  }
  const auto a = evaluate(n.a, value), b = evaluate(n.b, value);
  if (!a || !b) return std::nullopt;
  switch (n.kind) {
    case Kind::floordiv: return floor_div(*a, *b);
    case Kind::mod: return floor_mod(*a, *b);
    case Kind::min: return std::min(*a, *b);
    case Kind::max: return std::max(*a, *b);
    default: return std::nullopt;
  }
}

int64_t Pool::evaluate(Expr e, const std::unordered_map<Expr, int64_t>& values) const {
  const auto v = evaluate(e, [&](Expr s) -> std::optional<int64_t> {
    auto it = values.find(s);
    if (it == values.end()) return std::nullopt;
    return it->second;
  });
  CHECK(v, "a symbol of `{}` has no value", print(e));
  return *v;
}

void Pool::set_typical(Expr symbol, int64_t value) { nodes_[symbol.index].typical = value; }

int64_t Pool::typical(Expr e) const {
  return *evaluate(e, [&](Expr s) -> std::optional<int64_t> {
    const Node& n = nodes_[s.index];
    if (n.typical) return n.typical;
    if (n.range.hi < kHuge) return n.range.hi;
    return n.range.lo > -kHuge ? n.range.lo : 0;
  });
}

std::string Pool::print(Expr e) const { return print(e, 0); }

// Levels: 0 sum, 1 product, 2 atom.
std::string Pool::print(Expr e, int level) const {
  const Node& n = nodes_[e.index];
  switch (n.kind) {
    case Kind::constant: return level > 1 && n.value < 0 ? fmt::format("({})", n.value) : fmt::format("{}", n.value);
    case Kind::symbol: return n.name;
    case Kind::polynomial: {
      // Terms with symbols first, the constant last.
      std::vector<Term> order;
      for (const bool with_atoms : {true, false})
        for (const Term& t : n.terms)
          if (t.atoms.empty() != with_atoms) order.push_back(t);
      std::string out;
      for (const Term& t : order) {
        const bool first = out.empty();
        int64_t c = t.coefficient;
        if (!first)
          out += c < 0 ? " - " : " + ";
        else if (c < 0)
          out += "-";
        c = c < 0 ? -c : c;
        std::string product;
        if (c != 1 || t.atoms.empty()) product = fmt::format("{}", c);
        for (Expr atom : t.atoms) product += (product.empty() ? "" : "*") + print(atom, 2);
        out += product;
      }
      const bool parenthesise = level > 1 || (level == 1 && order.size() > 1);
      return parenthesise ? "(" + out + ")" : out;
    }
    case Kind::floordiv: {
      const std::string s = fmt::format("{}//{}", print(n.a, 2), print(n.b, 2));
      return level > 1 ? "(" + s + ")" : s;
    }
    case Kind::mod: {
      const std::string s = fmt::format("{}%{}", print(n.a, 2), print(n.b, 2));
      return level > 1 ? "(" + s + ")" : s;
    }
    case Kind::min: return fmt::format("min({}, {})", print(n.a), print(n.b));
    case Kind::max: return fmt::format("max({}, {})", print(n.a), print(n.b));
  }
  return {};
}

Expr copied(Expr e, const Pool& from, Pool& to) {
  switch (from.kind(e)) {
    case Kind::constant: return to.constant(*from.as_constant(e));
    case Kind::symbol: {
      const auto s = to.find_symbol(from.symbol_name(e));
      CHECK(s, "`{}` is not in the other pool", from.symbol_name(e));
      return *s;
    }
    case Kind::polynomial: {
      Expr sum = to.constant(0);
      for (const Pool::Term& t : from.terms(e)) {
        Expr p = to.constant(t.coefficient);
        for (const Expr atom : t.atoms) p = to.mul(p, copied(atom, from, to));
        sum = to.add(sum, p);
      }
      return sum;
    }
    default: break;
  }
  const auto [x, y] = from.operands(e);
  const Expr a = copied(x, from, to), b = copied(y, from, to);
  switch (from.kind(e)) {
    case Kind::floordiv: return to.floordiv(a, b);
    case Kind::mod: return to.mod(a, b);
    case Kind::min: return to.min(a, b);
    default: return to.max(a, b);
  }
}

}  // namespace cleave::sym
