#include "algebra/normal.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "algebra/field.hpp"
#include "base/number.hpp"

namespace cleave::algebra {

using graph::Category;
using graph::Op;

namespace {

constexpr size_t kMaxTerms = 24;         // of one normal form
constexpr int64_t kMaxNumber = 1 << 20;  // of a coefficient's parts

Rational rational(__int128 n, __int128 d) {
  if (d < 0) n = -n, d = -d;
  __int128 a = n < 0 ? -n : n, b = d;
  while (b) std::swap(a %= b, b);
  if (a > 1) n /= a, d /= a;
  if (n > (int64_t{1} << 40) || n < -(int64_t{1} << 40) || d > (int64_t{1} << 40)) throw TooLarge{};
  return {static_cast<int64_t>(n), static_cast<int64_t>(d)};
}

}  // namespace

Rational add(Rational a, Rational b) {
  return rational(static_cast<__int128>(a.n) * b.d + static_cast<__int128>(b.n) * a.d,
                  static_cast<__int128>(a.d) * b.d);
}
Rational mul(Rational a, Rational b) {
  return rational(static_cast<__int128>(a.n) * b.n, static_cast<__int128>(a.d) * b.d);
}

AtomId Normaliser::intern(Atom a) {
  std::vector<uint64_t> key{static_cast<uint64_t>(a.kind),
                            static_cast<uint64_t>(a.op),
                            static_cast<uint64_t>(a.dtype),
                            static_cast<uint64_t>(a.to),
                            a.source,
                            a.extent.index,
                            a.args.size()};
  for (PolyId p : a.args) key.push_back(p.index);
  for (DType d : a.arg_types) key.push_back(static_cast<uint64_t>(d));
  for (IndexId i : a.bound) key.push_back(i.index);
  key.push_back(~uint64_t{0});
  for (const Indices& axis : a.axes) {
    for (IndexId i : axis) key.push_back(i.index);
    key.push_back(~uint64_t{0});
  }
  if (a.kind == AtomKind::iota) key.push_back(a.free[0].index);
  uint64_t bits;
  std::memcpy(&bits, &a.value, sizeof bits);
  key.push_back(bits);
  auto [it, fresh] = known_atoms_.emplace(std::move(key), AtomId{});
  if (fresh) it->second = atoms_.add(std::move(a));
  return it->second;
}

PolyId Normaliser::intern(Poly poly) {
  std::sort(poly.begin(), poly.end(), [](const Monomial& a, const Monomial& b) { return a.factors < b.factors; });
  Poly merged;
  for (Monomial& m : poly) {
    if (!merged.empty() && merged.back().factors == m.factors)
      merged.back().coefficient = cleave::algebra::add(merged.back().coefficient, m.coefficient);
    else
      merged.push_back(std::move(m));
    if (merged.back().coefficient.n == 0) merged.pop_back();
  }
  if (merged.size() > kMaxTerms) throw TooLarge{};
  std::vector<int64_t> key;
  for (const Monomial& m : merged) {
    key.insert(key.end(), {m.coefficient.n, m.coefficient.d, static_cast<int64_t>(m.factors.size())});
    for (const Factor& f : m.factors) key.insert(key.end(), {static_cast<int64_t>(f.atom.index), f.power.n, f.power.d});
  }
  auto [it, fresh] = known_polys_.emplace(std::move(key), PolyId{});
  if (fresh) {
    Indices free;
    for (const Monomial& m : merged) free = unite(free, free_of(m));
    it->second = polys_.add(std::move(merged));
    poly_free_.push_back(std::move(free));
  }
  return it->second;
}

Indices Normaliser::free_of(const Monomial& m) const {
  Indices free;
  for (const Factor& f : m.factors) free = unite(free, atoms_[f.atom].free);
  return free;
}

PolyId Normaliser::number(Rational r) { return intern(r.n == 0 ? Poly{} : Poly{{r, {}}}); }

PolyId Normaliser::atom(Atom a, Rational power) {
  for (PolyId p : a.args) a.free = unite(a.free, free(p));
  a.free = without(a.free, a.bound);
  if (a.kind != AtomKind::sum && a.kind != AtomKind::reduce) {
    for (PolyId p : a.args)
      for (const Monomial& m : polys_[p])
        for (const Factor& f : m.factors) a.height = std::max(a.height, atoms_[f.atom].height);
  }
  return single({{1, 1}, {{intern(std::move(a)), power}}});
}

Monomial Normaliser::times(const Monomial& a, const Monomial& b) const {
  Monomial out{cleave::algebra::mul(a.coefficient, b.coefficient), {}};
  size_t i = 0, j = 0;
  while (i < a.factors.size() || j < b.factors.size()) {
    if (j == b.factors.size() || (i < a.factors.size() && a.factors[i].atom < b.factors[j].atom)) {
      out.factors.push_back(a.factors[i++]);
    } else if (i == a.factors.size() || b.factors[j].atom < a.factors[i].atom) {
      out.factors.push_back(b.factors[j++]);
    } else {
      Factor f{a.factors[i].atom, cleave::algebra::add(a.factors[i].power, b.factors[j].power)};
      if (atoms_[f.atom].predicate) f.power = {1, 1};
      if (f.power.n != 0) out.factors.push_back(f);
      ++i, ++j;
    }
  }
  return out;
}

Monomial Normaliser::power(const Monomial& a, Rational q) const {
  Monomial out = a;
  for (Factor& f : out.factors)
    if (!atoms_[f.atom].predicate) f.power = cleave::algebra::mul(f.power, q);
  if (!a.coefficient.is(1)) {
    CHECK(q.is(-1), "a power of a coefficient");
    out.coefficient = rational(a.coefficient.d, a.coefficient.n);
  }
  return out;
}

PolyId Normaliser::add(PolyId a, PolyId b, int64_t factor) {
  Poly out = polys_[a];
  for (Monomial m : polys_[b]) {
    m.coefficient = cleave::algebra::mul(m.coefficient, {factor, 1});
    out.push_back(std::move(m));
  }
  return intern(std::move(out));
}

// Products of sums are multiplied out; a sum under a positive integer power as well.
PolyId Normaliser::mul(PolyId a, PolyId b) {
  const Poly x = polys_[a], y = polys_[b];
  if (x.size() * y.size() > 64) throw TooLarge{};
  Poly out;
  PolyId extra = number({0, 1});
  for (const Monomial& m : x)
    for (const Monomial& n : y) {
      Monomial product = times(m, n);
      const auto whole = std::find_if(product.factors.begin(), product.factors.end(), [&](const Factor& f) {
        return atoms_[f.atom].kind == AtomKind::poly && f.power.integer() && f.power.n > 0;
      });
      if (whole == product.factors.end()) {
        out.push_back(std::move(product));
        continue;
      }
      const Factor f = *whole;
      product.factors.erase(whole);
      PolyId p = single(std::move(product));
      for (int64_t k = 0; k < f.power.n; ++k) p = mul(p, atoms_[f.atom].args[0]);
      extra = add(extra, p);
    }
  return add(intern(std::move(out)), extra);
}

Monomial Normaliser::common(const Poly& p) const {
  Monomial out = p.empty() ? Monomial{} : p[0];
  out.coefficient = {1, 1};
  for (const Monomial& m : p) {
    std::vector<Factor> kept;
    for (const Factor& f : out.factors)
      for (const Factor& g : m.factors) {
        if (f.atom != g.atom) continue;
        // The smaller of two positive powers or the larger of two negative ones; else nothing.
        const bool less = static_cast<__int128>(f.power.n) * g.power.d < static_cast<__int128>(g.power.n) * f.power.d;
        if ((f.power.n > 0) != (g.power.n > 0)) continue;
        kept.push_back({f.atom, less == (f.power.n > 0) ? f.power : g.power});
      }
    out.factors = std::move(kept);
  }
  return out;
}

bool Normaliser::positive(PolyId p) const {
  if (polys_[p].empty()) return false;
  for (const Monomial& m : polys_[p]) {
    if (m.coefficient.n < 0) return false;
    for (const Factor& f : m.factors) {
      const Atom& a = atoms_[f.atom];
      const bool even = f.power.integer() && f.power.n % 2 == 0;
      if (!a.positive && !even && f.power.integer()) return false;
    }
  }
  return true;
}

PolyId Normaliser::pow(PolyId id, Rational q) {
  const Poly p = polys_[id];
  if (q.is(1)) return id;
  if (q.n == 0) return number({1, 1});
  if (p.empty()) throw TooLarge{};
  if (q.integer() && q.n > 0) {
    if (q.n > 8) throw TooLarge{};
    PolyId out = id;
    for (int64_t k = 1; k < q.n; ++k) out = mul(out, id);
    return out;
  }
  // Factors that may leave: all under an integer power, those known to be positive under any.
  Monomial shared = common(p), outside;
  std::erase_if(shared.factors, [&](const Factor& f) {
    const Atom& a = atoms_[f.atom];
    if (a.predicate) return true;
    return !q.integer() && !a.positive && f.power.integer();
  });
  for (const Factor& f : shared.factors) outside.factors.push_back({f.atom, cleave::algebra::mul(f.power, q)});
  std::sort(outside.factors.begin(), outside.factors.end());
  Poly rest;
  const Monomial inverse = power(shared, {-1, 1});
  for (const Monomial& m : p) rest.push_back(times(m, inverse));
  if (q.integer()) {
    const Rational lead = rest[0].coefficient;
    for (Monomial& m : rest) m.coefficient = cleave::algebra::mul(m.coefficient, rational(lead.d, lead.n));
    for (int64_t k = 0; k < -q.n; ++k)
      outside.coefficient = cleave::algebra::mul(outside.coefficient, rational(lead.d, lead.n));
  }
  const PolyId inner = intern(std::move(rest));
  const PolyId factor = single(outside);
  if (polys_[inner].size() == 1 && polys_[inner][0].coefficient.is(1)) {
    if (polys_[inner][0].factors.empty()) return factor;
    // One atom to the power 1 whose sign is not known, under a root.
    if (polys_[inner][0].factors.size() == 1 && polys_[inner][0].factors[0].power.is(1) &&
        !atoms_[polys_[inner][0].factors[0].atom].predicate)
      return mul(factor, single({{1, 1}, {{polys_[inner][0].factors[0].atom, q}}}));
  }
  Atom a;
  a.kind = AtomKind::poly;
  a.args = {inner};
  a.positive = positive(inner);
  return mul(factor, atom(std::move(a), q));
}

// What cannot be 0 leaves as an ordinary reciprocal; the rest is a function of its own, so that it cancels with
// nothing. A sum of exponentials is 0 where all of them are exp(-inf), as in a row that is wholly -inf.
PolyId Normaliser::inverse0(PolyId id) {
  const Poly p = polys_[id];
  if (p.empty()) return id;
  Monomial leaves = common(p);
  std::erase_if(leaves.factors, [&](const Factor& f) {
    const Atom& a = atoms_[f.atom];
    return !a.positive || a.kind == AtomKind::sum || a.kind == AtomKind::poly;
  });
  leaves.coefficient = p[0].coefficient;
  const PolyId inverse = single(power(leaves, {-1, 1}));
  const PolyId rest = mul(id, inverse);
  if (rest == number({1, 1})) return inverse;
  return mul(inverse, function(Op::quot0, DType::f32, DType::f32, {number({1, 1}), rest}, {DType::f32, DType::f32}));
}

bool Normaliser::never_zero(PolyId id) {
  const Poly p = polys_[inverse0(id)];
  return p.size() == 1 &&
         std::none_of(p[0].factors.begin(), p[0].factors.end(), [&](const Factor& f) { return is_inverse0(f); });
}

PolyId Normaliser::sign(PolyId id, DType dtype) { return function(Op::sign, dtype, dtype, {id}, {dtype}); }

PolyId Normaliser::exp(PolyId id) {
  const Poly p = polys_[id];
  PolyId out = number({1, 1});
  for (const Monomial& m : p) {
    // exp(where(c, x, -inf)) = c exp(x)
    if (m.coefficient.is(1) && m.factors.size() == 1 && m.factors[0].power.is(1) &&
        atoms_[m.factors[0].atom].kind == AtomKind::mask) {
      const Atom a = atoms_[m.factors[0].atom];
      out = mul(out, mul(a.args[0], exp(a.args[1])));
      continue;
    }
    Atom a;
    a.kind = AtomKind::exp;
    a.op = Op::exp;
    a.positive = true;
    Monomial unit = m;
    unit.coefficient = {1, 1};
    a.args = {single(std::move(unit))};
    out = mul(out, atom(std::move(a), m.coefficient));
  }
  return out;
}

PolyId Normaliser::common_exponent(const Poly& p) {
  PolyId out = number({0, 1});
  for (const Factor& f : common(p).factors) {
    const Atom a = atoms_[f.atom];
    if (a.kind == AtomKind::exp) out = add(out, mul(number(f.power), a.args[0]));
  }
  return out;
}

PolyId Normaliser::log(PolyId id) {
  const PolyId exponent = common_exponent(polys_[id]);
  const PolyId rest = mul(id, exp(mul(number({-1, 1}), exponent)));
  if (rest == number({1, 1})) return exponent;
  return add(exponent, function(Op::log, DType::f32, DType::f32, {rest}, {DType::f32}));
}

PolyId Normaliser::function(Op op, DType dtype, DType to, std::vector<PolyId> args, std::vector<DType> types) {
  Atom a;
  a.kind = AtomKind::function;
  a.op = op;
  a.dtype = dtype;
  a.to = to;
  a.args = std::move(args);
  a.arg_types = std::move(types);
  a.predicate = dtype == DType::boolean || (op == Op::cast && a.arg_types[0] == DType::boolean);
  a.positive = op == Op::sigmoid;
  return atom(std::move(a));
}

PolyId Normaliser::mask(PolyId condition, PolyId value, DType dtype) {
  Atom a;
  a.kind = AtomKind::mask;
  a.op = Op::where;
  a.dtype = dtype;
  a.args = {condition, value};
  a.arg_types = {DType::boolean, dtype};
  return atom(std::move(a));
}

// What an index is to a sum of products, whatever the indices are called: which leaves' which axes have it, and how
// many functions do.
uint64_t Normaliser::role(const Poly& p, IndexId i) const {
  uint64_t sum = 0;
  for (const Monomial& m : p)
    for (const Factor& f : m.factors) {
      const Atom& a = atoms_[f.atom];
      if (!has(a.free, i)) continue;
      uint64_t h = mix(mix(static_cast<uint64_t>(a.kind), static_cast<uint64_t>(a.op)),
                       mix(static_cast<uint64_t>(f.power.n), static_cast<uint64_t>(f.power.d)));
      if (a.kind == AtomKind::leaf) {
        h = mix(h, a.source);
        for (size_t axis = 0; axis < a.axes.size(); ++axis)
          for (size_t k = 0; k < a.axes[axis].size(); ++k)
            if (a.axes[axis][k] == i) h = mix(h, mix(axis, k));
      }
      sum += h;
    }
  return sum;
}

// The canonical spelling of an atom that binds: its bound indices are numbered in the way that gives the least form.
AtomId Normaliser::canonical(Atom a, const std::vector<IndexId>& bound) {
  int height = 0;
  for (const Monomial& m : polys_[a.args[0]])
    for (const Factor& f : m.factors) height = std::max(height, atoms_[f.atom].height);
  a.height = height + 1;
  // Indices that the factors tell apart have their place; only the others are tried in every order.
  const PolyId body = a.args[0];
  std::map<std::pair<uint32_t, uint64_t>, std::vector<IndexId>> alike;
  for (IndexId i : bound) alike[{form_.at(i).label, role(polys_[body], i)}].push_back(i);
  size_t orders = 1;
  for (auto& [role, list] : alike) {
    std::sort(list.begin(), list.end());
    for (size_t k = 2; k <= list.size(); ++k) orders *= k;
  }
  if (orders > 24 || bound.size() > 12) throw TooLarge{};
  std::optional<PolyId> best;
  Indices names;
  std::function<void(decltype(alike.begin()), uint32_t, std::map<IndexId, IndexId>&)> visit =
      [&](auto it, uint32_t next, std::map<IndexId, IndexId>& by) {
        if (it == alike.end()) {
          const PolyId p = rename(body, by);
          if (best && !(p < *best)) return;
          best = p;
          names.clear();
          for (const auto& [from, to] : by) names.push_back(to);
          return;
        }
        const uint32_t label = it->first.first;
        std::vector<IndexId> order = it->second;
        do {
          for (size_t k = 0; k < order.size(); ++k)
            by[order[k]] =
                form_.index(label, kBound + static_cast<uint32_t>(a.height) * 16 + next + static_cast<uint32_t>(k));
          const auto after = std::next(it);
          const bool more = after != alike.end() && after->first.first == label;
          visit(after, more ? next + static_cast<uint32_t>(order.size()) : 0, by);
        } while (std::next_permutation(order.begin(), order.end()));
      };
  std::map<IndexId, IndexId> by;
  visit(alike.begin(), 0, by);
  a.args[0] = *best;
  a.bound = sorted(names);
  a.free = without(free(*best), a.bound);
  return intern(std::move(a));
}

PolyId Normaliser::sum(const Indices& bound, PolyId id) {
  const Poly p = polys_[id];
  PolyId out = number({0, 1});
  for (const Monomial& m : p) out = add(out, sum_of(bound, m));
  return out;
}

PolyId Normaliser::sum_of(const Indices& outer, const Monomial& m) {
  Monomial outside{m.coefficient, {}};
  std::vector<Factor> inside;
  Indices bound = outer;
  std::map<uint32_t, uint32_t> fresh;
  std::vector<Factor> queue = m.factors;
  bool first_level = true;
  // Sums inside become part of this one, their indices renamed apart.
  while (!queue.empty()) {
    const Factor f = queue.back();
    queue.pop_back();
    const Atom a = atoms_[f.atom];
    if (disjoint(a.free, bound)) {
      outside = times(outside, {{1, 1}, {f}});
    } else if (a.kind == AtomKind::sum && f.power.integer() && f.power.n > 0 && f.power.n <= 4) {
      for (int64_t k = 0; k < f.power.n; ++k) {
        std::map<IndexId, IndexId> by;
        for (IndexId i : a.bound) {
          const uint32_t label = form_.at(i).label;
          by[i] = form_.index(label, kBound / 2 + fresh[label]++);
          bound = unite(bound, {by[i]});
        }
        for (const Factor& g : polys_[rename(a.args[0], by)][0].factors) queue.push_back(g);
      }
    } else {
      inside.push_back(f);
    }
    first_level = false;
  }
  (void)first_level;
  // What does not carry an index counts it.
  Indices carried;
  for (const Factor& f : inside) carried = unite(carried, atoms_[f.atom].free);
  PolyId out = single(outside);
  for (IndexId i : without(bound, carried)) {
    Atom e;
    e.kind = AtomKind::extent;
    e.extent = form_.extent(i);
    e.positive = true;
    out = mul(out, atom(std::move(e)));
  }
  // Factors that hang together by bound indices are one sum.
  std::vector<int> part(inside.size());
  std::iota(part.begin(), part.end(), 0);
  for (size_t i = 0; i < inside.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (part[i] != part[j] &&
          !disjoint(cleave::algebra::common(atoms_[inside[i].atom].free, bound), atoms_[inside[j].atom].free)) {
        const int from = part[i], to = part[j];
        for (int& x : part)
          if (x == from) x = to;
      }
  for (size_t i = 0; i < inside.size(); ++i) {
    if (std::find(part.begin(), part.begin() + static_cast<long>(i), part[i]) != part.begin() + static_cast<long>(i))
      continue;
    Monomial body;
    for (size_t j = i; j < inside.size(); ++j)
      if (part[j] == part[i]) body = times(body, {{1, 1}, {inside[j]}});
    const Indices mine = cleave::algebra::common(free_of(body), bound);
    Atom a;
    a.kind = AtomKind::sum;
    a.op = Op::sum;
    a.args = {single(body)};
    a.positive = positive(a.args[0]);
    out = mul(out, single({{1, 1}, {{canonical(std::move(a), mine), {1, 1}}}}));
  }
  return out;
}

PolyId Normaliser::renamed(const Monomial& m, const std::map<IndexId, IndexId>& by) {
  Monomial out{m.coefficient, {}};
  for (const Factor& f : m.factors) out = times(out, {{1, 1}, {{rename(f.atom, by), f.power}}});
  return single(std::move(out));
}

PolyId Normaliser::rename(PolyId p, const std::map<IndexId, IndexId>& by) {
  bool touched = false;
  for (const auto& [from, to] : by) touched = touched || (from != to && has(free(p), from));
  if (!touched) return p;
  const Poly copy = polys_[p];
  PolyId out = number({0, 1});
  for (const Monomial& m : copy) out = add(out, renamed(m, by));
  return out;
}

PolyId Normaliser::reduce(Atom like, const Indices& outer) {
  // Indices that the argument lacks do not matter to extrema.
  Indices bound = cleave::algebra::common(outer, free(like.args[0]));
  if (bound != outer && like.op == Op::prod) throw TooLarge{};
  if (bound.empty()) return like.args[0];
  // An extremum of extrema is one over all their indices.
  std::map<uint32_t, uint32_t> fresh;
  while (like.op != Op::prod) {
    const Poly p = polys_[like.args[0]];
    if (p.size() != 1 || !p[0].coefficient.is(1) || p[0].factors.size() != 1 || !p[0].factors[0].power.is(1)) break;
    const Atom inner = atoms_[p[0].factors[0].atom];
    if (inner.kind != AtomKind::reduce || inner.op != like.op) break;
    std::map<IndexId, IndexId> by;
    for (IndexId i : inner.bound) {
      const uint32_t label = form_.at(i).label;
      by[i] = form_.index(label, kBound / 2 + fresh[label]++);
      bound = unite(bound, {by[i]});
    }
    like.args[0] = rename(inner.args[0], by);
  }
  like.free.clear();
  like.bound.clear();
  return single({{1, 1}, {{canonical(std::move(like), bound), {1, 1}}}});
}

AtomId Normaliser::rename(AtomId id, const std::map<IndexId, IndexId>& by) {
  Atom a = atoms_[id];
  bool touched = false;
  for (const auto& [from, to] : by) touched = touched || (from != to && has(a.free, from));
  if (!touched) return id;
  auto to = [&](IndexId i) {
    auto it = by.find(i);
    return it == by.end() ? i : it->second;
  };
  for (Indices& axis : a.axes)
    for (IndexId& i : axis) i = to(i);
  for (IndexId& i : a.free) i = to(i);
  a.free = sorted(a.free);
  if (a.kind == AtomKind::sum || a.kind == AtomKind::reduce) {
    std::map<IndexId, IndexId> inner = by;
    for (IndexId i : a.bound) inner.erase(i);
    const std::vector<IndexId> bound = a.bound;
    a.args[0] = rename(a.args[0], inner);
    a.bound.clear();
    return canonical(std::move(a), bound);
  }
  for (PolyId& p : a.args) p = rename(p, by);
  return intern(std::move(a));
}

PolyId Normaliser::of(TermId id) {
  if (auto it = of_.find(id); it != of_.end()) return it->second;
  const Term t = form_.at(id);
  PolyId out;
  Atom a;
  a.dtype = t.dtype;
  switch (t.kind) {
    case Kind::leaf:
      a.source = t.source;
      a.axes = t.axes;
      a.free = t.free;
      a.predicate = t.dtype == DType::boolean;
      out = atom(std::move(a));
      break;
    case Kind::literal: {
      const double scaled = t.value * kMaxNumber;
      if (std::abs(t.value) <= kMaxNumber && scaled == std::floor(scaled) && std::abs(scaled) < 0x1p40) {
        out = number(rational(static_cast<int64_t>(scaled), kMaxNumber));
        break;
      }
      a.kind = AtomKind::number;
      a.value = t.value;
      a.dtype = DType::f64;
      a.positive = t.value > 0;
      out = atom(std::move(a));
      break;
    }
    case Kind::extent:
      a.kind = AtomKind::extent;
      a.extent = t.extent;
      a.dtype = DType::f32;
      a.positive = true;
      out = atom(std::move(a));
      break;
    case Kind::iota:
      a.kind = AtomKind::iota;
      a.free = t.free;
      out = atom(std::move(a));
      break;
    case Kind::map: out = map(t); break;
    case Kind::contract: out = sum(t.bound, mul(of(t.args[0]), of(t.args[1]))); break;
    case Kind::reduce: {
      const PolyId x = of(t.args[0]);
      if (t.op == Op::sum) {
        out = sum(t.bound, x);
        break;
      }
      if (t.op == Op::moments) {
        PolyId count = number({1, 1});
        for (IndexId i : t.bound) count = mul(count, of(form_.extent_of(form_.extent(i), t.dtype)));
        const PolyId inverse = pow(count, {-1, 1}), mean = mul(sum(t.bound, x), inverse);
        const PolyId difference = add(x, mean, -1);
        out = t.source == 0 ? mean : mul(sum(t.bound, mul(difference, difference)), inverse);
        break;
      }
      a.kind = AtomKind::reduce;
      a.op = t.op;
      a.args = {x};
      a.arg_types = {t.dtype};
      a.predicate = t.dtype == DType::boolean;
      out = reduce(std::move(a), t.bound);
      break;
    }
    case Kind::scaled_sum: throw TooLarge{};
  }
  return of_[id] = out;
}

PolyId Normaliser::map(const Term& t) {
  std::vector<PolyId> x;
  std::vector<DType> types;
  for (TermId a : t.args) {
    x.push_back(of(a));
    types.push_back(form_.at(a).dtype);
  }
  const bool real = is_real(types.back());
  switch (t.op) {
    case Op::add: return add(x[0], x[1]);
    case Op::sub: return add(x[0], x[1], -1);
    case Op::neg: return mul(number({-1, 1}), x[0]);
    case Op::mul:
      if (types[0] == DType::boolean) break;
      return mul(x[0], x[1]);
    case Op::square: return mul(x[0], x[0]);
    case Op::div:
      if (!real) break;
      // x * sigmoid for x / (1 + exp(-z)) is the stabiliser's business.
      return mul(x[0], pow(x[1], {-1, 1}));
    case Op::quot0: return mul(x[0], inverse0(x[1]));
    case Op::reciprocal: return pow(x[0], {-1, 1});
    case Op::sqrt: return pow(x[0], {1, 2});
    case Op::rsqrt: return pow(x[0], {-1, 2});
    case Op::exp: return exp(x[0]);
    case Op::log: return log(x[0]);
    case Op::logical_and: return mul(x[0], x[1]);  // predicates are 0 or 1
    case Op::where:
      if (form_.is_literal(t.args[2], -std::numeric_limits<double>::infinity())) return mask(x[0], x[1], t.dtype);
      break;
    case Op::cast:
      if (types[0] == DType::boolean && is_real(t.dtype)) return x[0];
      break;
    default: break;
  }
  if (t.op == Op::where && form_.is_literal(t.args[2], 0) && real) return mul(x[0], x[1]);
  Op op = t.op;
  if (op == Op::gt || op == Op::ge) {
    std::swap(x[0], x[1]);
    op = op == Op::gt ? Op::lt : Op::le;
  }
  if (info(op).category == Category::elementwise && info(graph::scalar_fn(op)).has(kCommutative))
    std::sort(x.begin(), x.end());
  return function(op, t.dtype, op == Op::cast ? t.to : t.dtype, std::move(x), std::move(types));
}

std::string Normaliser::print(AtomId id) const {
  const Atom& a = atoms_[id];
  auto list = [&](const Indices& is) {
    std::string out;
    for (IndexId i : is) out += (out.empty() ? "" : " ") + form_.print(i);
    return out;
  };
  std::string args;
  for (PolyId p : a.args) args += (args.empty() ? "" : ", ") + print(p);
  switch (a.kind) {
    case AtomKind::leaf: {
      std::string axes;
      for (const Indices& axis : a.axes) axes += (axes.empty() ? "" : ",") + (axis.empty() ? "1" : list(axis));
      return axes.empty() ? form_.source_name(a.source) : fmt::format("{}[{}]", form_.source_name(a.source), axes);
    }
    case AtomKind::number: return fmt::format("{}", shown(a.value));
    case AtomKind::extent: return fmt::format("|{}|", form_.syms().print(a.extent));
    case AtomKind::iota: return list(a.free);
    case AtomKind::function:
    case AtomKind::exp: return fmt::format("{}({})", info(a.op).name, args);
    case AtomKind::poly: return fmt::format("({})", args);
    case AtomKind::sum:
    case AtomKind::reduce: return fmt::format("{}{{{}}}({})", info(a.op).name, list(a.bound), args);
    case AtomKind::mask: return fmt::format("mask({})", args);
  }
  CHECK(false, "atom kind {}", static_cast<int>(a.kind));
}

std::string Normaliser::print(const Monomial& m) const {
  std::string out;
  if (!m.coefficient.is(1) || m.factors.empty())
    out = m.coefficient.d == 1 ? fmt::format("{}", m.coefficient.n)
                               : fmt::format("{}/{}", m.coefficient.n, m.coefficient.d);
  for (const Factor& f : m.factors) {
    if (!out.empty()) out += " ";
    out += print(f.atom);
    if (!f.power.is(1))
      out += f.power.d == 1 ? fmt::format("^{}", f.power.n) : fmt::format("^({}/{})", f.power.n, f.power.d);
  }
  return out;
}

std::string Normaliser::print(PolyId p) const {
  if (polys_[p].empty()) return "0";
  std::string out;
  for (const Monomial& m : polys_[p]) out += (out.empty() ? "" : " + ") + print(m);
  return out;
}

}  // namespace cleave::algebra
