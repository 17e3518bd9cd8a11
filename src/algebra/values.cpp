#include "algebra/values.hpp"

#include <algorithm>
#include <functional>
#include <limits>

namespace cleave::algebra {

using graph::Op;

namespace {
constexpr size_t kMaxParts = 10;  // of a product that is split in every way
constexpr size_t kMaxWays = 8;    // to open the sums of several terms together

bool is_whole(Rational power) { return power.integer() && power.n > 0; }
}  // namespace

ClassId Values::class_of(PolyId poly, DType dtype) {
  auto [it, fresh] = by_poly_.emplace(std::pair(poly, dtype), static_cast<ClassId>(classes_.size()));
  if (fresh) classes_.push_back({poly, dtype, {}, false});
  return it->second;
}

void Values::propose(ClassId c, Producer p) {
  for (ClassId a : p.args)
    if (a == c) return;
  if (p.kind == Kind::map && !p.is_view() &&
      (info(scalar_fn(p.op == Op::cast || p.op == Op::unscale ? Op::add : p.op)).has(kCommutative)) && p.op != Op::cast)
    std::sort(p.args.begin(), p.args.end(), [&](ClassId a, ClassId b) {  // alike in all views of a value
      return std::pair(plain(classes_[a].poly), a) < std::pair(plain(classes_[b].poly), b);
    });
  auto& list = classes_[c].producers;
  for (Producer& q : list)
    if (q == p) {
      q.given = q.given || p.given;
      return;
    }
  list.push_back(std::move(p));
  ++producers_;
}

PolyId Values::plain(PolyId p, std::map<IndexId, IndexId>* by) {
  const auto it = plain_.find(p);
  if (it != plain_.end() && !by) return it->second;
  std::map<IndexId, IndexId> to;
  std::map<uint32_t, uint32_t> used;
  Indices free = normal_.free(p);
  std::ranges::sort(free, {}, [&](IndexId i) { return form_.at(i).copy; });
  for (IndexId i : free) {
    const uint32_t label = form_.at(i).label;
    if (const IndexId first = form_.index(label, used[label]++); first != i) to[i] = first;
  }
  const PolyId out = it != plain_.end() ? it->second : (plain_[p] = normal_.rename(p, to));
  if (by) *by = std::move(to);
  return out;
}

// A value is computed once and read under several indices (X X^T reads X twice). Leaves are read as they are.
bool Values::view(ClassId c, bool given) {
  const Poly poly = normal_.at(classes_[c].poly);
  if (poly.size() == 1 && poly[0].coefficient.is(1) && poly[0].factors.size() == 1 && poly[0].factors[0].power.is(1))
    if (const AtomKind kind = normal_.at(poly[0].factors[0].atom).kind;
        kind == AtomKind::leaf || kind == AtomKind::iota)
      return false;
  std::map<IndexId, IndexId> by;
  const PolyId first = plain(classes_[c].poly, &by);
  if (first == classes_[c].poly) return false;
  Producer p;
  p.args = {class_of(first, classes_[c].dtype)};
  for (const auto& [from, to] : by) p.renamed.emplace(to, from);
  p.rule = "view";
  p.given = given;
  propose(c, std::move(p));
  return true;
}

void Values::map(ClassId c, Op op, std::vector<ClassId> args, const char* rule) {
  Producer p;
  p.op = op;
  p.args = std::move(args);
  p.rule = rule;
  propose(c, std::move(p));
}

ClassId Values::add(TermId id) {
  if (auto it = by_term_.find(id); it != by_term_.end()) return it->second;
  const Term t = form_.at(id);
  if (const PolyId poly = normal_.of(id); normal_.free(poly) == t.free) {
    std::map<IndexId, IndexId> by;
    const PolyId first = plain(poly, &by);
    if (!by.empty() && !t.args.empty())
      if (const TermId other = form_.rename(id, by); normal_.of(other) == first) {
        add(other);
        const ClassId c = class_of(poly, t.dtype);
        if (view(c, true)) {
          classes_[c].given = true;
          by_term_.emplace(id, c);
          return c;
        }
      }
  }
  Producer p;
  p.kind = t.kind;
  p.op = t.op;
  p.to = t.op == Op::cast ? t.to : DType::f32;
  p.bound = t.bound;
  p.result = t.kind == Kind::reduce ? t.source : 0;
  p.given = true;
  for (IndexId i : t.bound) reduced_labels_.insert(form_.at(i).label);
  for (TermId a : t.args) p.args.push_back(add(a));
  if (t.args.empty()) p.term = id;
  const ClassId c = class_of(normal_.of(id), t.dtype);
  classes_[c].given = true;
  propose(c, p);
  if (split_) stop_half_way(c, t, p);
  by_term_.emplace(id, c);
  return c;
}

// A sum of the input graph over a split index: the same over the elements of each part, then over the parts. Normal
// forms would only do so after multiplying out, which loses the pivot of a variance.
void Values::stop_half_way(ClassId c, const Term& t, const Producer& p) {
  if (t.kind == Kind::reduce && t.op == Op::moments) {  // the same by two sums, the second around the mean
    TermId count = form_.literal(1, t.dtype);
    for (IndexId i : t.bound) count = form_.map(Op::mul, {count, form_.extent_of(form_.extent(i), t.dtype)});
    const auto average = [&](TermId x) { return form_.map(Op::div, {form_.reduce(Op::sum, t.bound, x), count}); };
    const TermId x = t.args[0], mean = average(x);
    add(t.source == 0 ? mean : average(form_.map(Op::square, {form_.map(Op::sub, {x, mean})})));
    return;
  }
  Indices last, first;
  for (IndexId i : t.bound) (form_.at(i).label == split_->first ? last : first).push_back(i);
  const bool part =
      std::any_of(first.begin(), first.end(), [&](IndexId i) { return form_.at(i).label == split_->second; });
  const bool sum = t.kind == Kind::contract || (t.kind == Kind::reduce && t.op == Op::sum);
  if (last.empty() || !part || !sum) return;
  PolyId body = normal_.of(t.args[0]);
  if (t.kind == Kind::contract) body = normal_.mul(body, normal_.of(t.args[1]));
  const ClassId inner = class_of(normal_.sum(first, body), t.dtype);
  Producer q = p;
  q.bound = first;
  q.given = false;
  q.rule = kTwoSteps;
  propose(inner, q);
  Producer r;
  r.kind = Kind::reduce;
  r.op = Op::sum;
  r.bound = last;
  r.args = {inner};
  r.rule = kTwoSteps;
  propose(c, r);
}

void Values::saturate() {
  for (; next_ < classes_.size(); ++next_) {
    if (classes_.size() > max_values_ || producers_ > 10 * max_values_) return;
    take_apart(static_cast<ClassId>(next_));
  }
  saturated_ = true;
}

void Values::take_apart(ClassId c) {
  if (view(c, false)) return;
  const Poly p = normal_.at(classes_[c].poly);
  if (p.empty()) {
    Producer zero;
    zero.kind = Kind::literal;
    zero.term = form_.literal(0, classes_[c].dtype);
    propose(c, zero);
  } else if (p.size() == 1) {
    product(c, p[0]);
  } else {
    terms(c, p);
  }
}

std::vector<Monomial> Values::parts_of(const Monomial& m, bool squares_twice) const {
  std::vector<Monomial> parts;
  if (!m.coefficient.is(1)) parts.push_back({m.coefficient, {}});
  for (const Factor& f : m.factors) {
    const int64_t times = squares_twice && f.power.integer() && f.power.n > 1 && f.power.n <= 3 ? f.power.n : 1;
    for (int64_t k = 0; k < times; ++k) parts.push_back({{1, 1}, {{f.atom, times > 1 ? Rational{1, 1} : f.power}}});
  }
  return parts;
}

bool Values::narrow(const Monomial& m) const {
  const Indices all = normal_.free_of(m);
  if (all.empty()) return true;
  for (const Factor& f : m.factors)
    if (normal_.at(f.atom).free == all) return true;
  return false;
}

bool Values::is_negative(const Monomial& m) const {
  if (!m.coefficient.is(1) || m.factors.empty()) return false;
  return std::all_of(m.factors.begin(), m.factors.end(), [&](const Factor& f) {
    return f.power.integer() && f.power.n < 0 && normal_.at(f.atom).kind != AtomKind::exp;
  });
}

PolyId Values::one_atom(AtomId a) const {
  return normal_.at(a).kind == AtomKind::poly ? normal_.at(a).args[0] : normal_.single({{1, 1}, {{a, {1, 1}}}});
}

void Values::product(ClassId c, const Monomial& m) {
  const DType dtype = classes_[c].dtype;
  if (m.factors.empty()) {
    if (!is_real(dtype) && m.coefficient.d != 1) return;
    // 1/3 is no double: it stays the division that it was in the source.
    if ((m.coefficient.d & (m.coefficient.d - 1)) != 0) {
      map(c, Op::div,
          {class_of(normal_.number({m.coefficient.n, 1}), dtype),
           class_of(normal_.number({m.coefficient.d, 1}), dtype)},
          "number");
      return;
    }
    Producer p;
    p.kind = Kind::literal;
    p.term = form_.literal(static_cast<double>(m.coefficient.n) / static_cast<double>(m.coefficient.d), dtype);
    p.rule = "number";
    propose(c, p);
    return;
  }
  if (classes_[c].given) scale_invariance(c, m);
  if (m.coefficient.n < 0) {
    Monomial positive = m;
    positive.coefficient.n = -positive.coefficient.n;
    map(c, Op::neg, {class_of(positive, dtype)}, "negation");
    return;
  }
  std::vector<Monomial> parts = parts_of(m, false);
  if (parts.size() == 1) {
    const Factor& f = m.factors[0];
    if (normal_.at(f.atom).kind == AtomKind::sum && is_whole(f.power) && f.power.n > 1) open_sum(c, m, 0);
    atomic(c, f);
    return;
  }
  auto unite_parts = [&](uint32_t mask) {
    Monomial out;
    for (size_t k = 0; k < parts.size(); ++k)
      if (mask >> k & 1) out = normal_.times(out, parts[k]);
    return out;
  };
  const bool boolean = dtype == DType::boolean;
  // Predicates: where(c, rest, 0), or a mask in the exponent.
  uint32_t predicates = 0, exps = 0;
  for (size_t k = 0; k < parts.size() && k < 31; ++k)
    if (!parts[k].factors.empty()) {
      const Atom& a = normal_.at(parts[k].factors[0].atom);
      if (a.predicate) predicates |= 1u << k;
      if (a.kind == AtomKind::exp) exps |= 1u << k;
    }
  if (parts.size() > 20) return;
  const uint32_t all = (1u << parts.size()) - 1;
  PolyId exponent = normal_.number({0, 1});
  for (size_t k = 0; k < parts.size(); ++k)
    if (exps >> k & 1)
      exponent = normal_.add(exponent, normal_.mul(normal_.number(parts[k].factors[0].power),
                                                   normal_.at(parts[k].factors[0].atom).args[0]));
  if (predicates && !boolean) {
    if (predicates == all) return;
    const ClassId condition = class_of(unite_parts(predicates), DType::boolean);
    const ClassId rest = class_of(unite_parts(all & ~predicates), dtype);
    const ClassId zero = class_of(normal_.number({0, 1}), dtype);
    map(c, Op::where, {condition, rest, zero}, "predicate as a factor");
    if ((predicates | exps) == all)
      map(c, Op::exp, {class_of(normal_.mask(normal_.single(unite_parts(predicates)), exponent, dtype), dtype)},
          "mask in the exponent");
  }
  if (exps == all) map(c, Op::exp, {class_of(exponent, dtype)}, "exp(a) exp(b) = exp(a + b)");
  if (is_negative(m)) {
    map(c, Op::reciprocal, {class_of(normal_.power(m, {-1, 1}), dtype)}, "reciprocal");
    return;
  }
  // Products in every way; denominators are gathered.
  for (uint32_t mask = 1; mask < all; mask += 2) {
    const uint32_t other = all & ~mask;
    const bool single = (mask & (mask - 1)) == 0 || (other & (other - 1)) == 0;
    if (parts.size() > kMaxParts && !single) continue;
    if (!boolean && predicates) break;
    Monomial a = unite_parts(mask), b = unite_parts(other);
    if (!narrow(a) || !narrow(b)) continue;
    if (boolean) {
      map(c, Op::logical_and, {class_of(a, dtype), class_of(b, dtype)}, "conjunction");
      continue;
    }
    if (is_negative(a)) std::swap(a, b);
    if (is_negative(b)) {
      // Unless what is divided first has fewer elements.
      const bool more =
          normal_.free_of(a) == normal_.free_of(m) &&
          std::any_of(a.factors.begin(), a.factors.end(), [&](const Factor& f) { return is_negative({{1, 1}, {f}}); });
      if (!more) map(c, Op::div, {class_of(a, dtype), class_of(normal_.power(b, {-1, 1}), dtype)}, "reciprocal");
      continue;
    }
    if (is_inverse0(a)) std::swap(a, b);
    if (is_inverse0(b)) {
      const PolyId divisor = normal_.at(b.factors[0].atom).args[1];
      map(c, Op::quot0, {class_of(a, dtype), class_of(divisor, dtype)}, "reciprocal");
      continue;
    }
    map(c, Op::mul, {class_of(a, dtype), class_of(b, dtype)}, "product");
  }
  if (!predicates && m.coefficient.is(1) && std::all_of(m.factors.begin(), m.factors.end(), [](const Factor& f) {
        return f.power.integer() && f.power.n % 2 == 0;
      })) {
    Monomial half = m;
    for (Factor& f : half.factors) f.power.n /= 2;
    map(c, Op::square, {class_of(half, dtype)}, "square");
  }
  for (size_t k = 0; k < m.factors.size(); ++k)
    if (normal_.at(m.factors[k].atom).kind == AtomKind::sum && is_whole(m.factors[k].power)) open_sum(c, m, k);
}

// c x / sqrt(c^2 S + e) = sign(c) x / sqrt(S + e / c^2), as of an RMS norm whose input is scaled: residues have no
// signs. A factor moves under the root where that takes it out of a term there.
void Values::scale_invariance(ClassId c, const Monomial& m) {
  const DType dtype = classes_[c].dtype;
  auto license = [&](const Monomial& rest, PolyId inside, Rational q, PolyId sign) {
    const PolyId other = normal_.mul(normal_.mul(normal_.single(rest), sign), normal_.pow(inside, q));
    licensed_.emplace_back(c, class_of(other, dtype));
  };
  const PolyId one = normal_.number({1, 1});
  for (size_t k = 0; k < m.factors.size(); ++k) {
    const Factor root = m.factors[k];
    if (root.power.integer() || normal_.at(root.atom).kind != AtomKind::poly) continue;
    const PolyId inside = normal_.at(root.atom).args[0];
    const Rational turned{root.power.n < 0 ? -root.power.d : root.power.d, std::abs(root.power.n)};  // 1 / power
    Monomial others = m;
    others.factors.erase(others.factors.begin() + static_cast<long>(k));
    for (size_t i = 0; i < others.factors.size(); ++i) {
      const Factor f = others.factors[i];
      const Atom& a = normal_.at(f.atom);
      if (a.predicate || a.kind == AtomKind::extent) continue;
      const Factor scale{f.atom, algebra::mul(f.power, turned)};
      const Poly terms = normal_.at(inside);
      const Rational cancels = algebra::mul(scale.power, {-1, 1});
      if (std::none_of(terms.begin(), terms.end(), [&](const Monomial& t) {
            return std::find(t.factors.begin(), t.factors.end(), Factor{f.atom, cancels}) != t.factors.end();
          }))
        continue;
      Monomial rest = others;
      rest.factors.erase(rest.factors.begin() + static_cast<long>(i));
      const bool signless = a.positive || !f.power.integer() || f.power.n % 2 == 0;
      license(rest, normal_.mul(inside, normal_.single({{1, 1}, {scale}})), root.power,
              signless ? one : normal_.sign(normal_.single({{1, 1}, {{f.atom, {1, 1}}}}), dtype));
    }
    // A number, where its square is a coefficient under a square root.
    const Rational n{std::abs(m.coefficient.n), m.coefficient.d};
    if (n.is(1) || std::max(n.n, n.d) > 1 << 12 || std::abs(turned.n) != 2 || turned.d != 1) continue;
    const Rational square = turned.n < 0 ? Rational{n.n * n.n, n.d * n.d} : Rational{n.d * n.d, n.n * n.n};
    const Poly terms = normal_.at(inside);
    if (std::none_of(terms.begin(), terms.end(),
                     [&](const Monomial& t) { return t.coefficient == square && !t.factors.empty(); }))
      continue;
    Monomial rest = others;
    rest.coefficient = {m.coefficient.n < 0 ? -1 : 1, 1};
    license(rest, normal_.mul(inside, normal_.number({square.d, square.n})), root.power, one);
  }
}

void Values::atomic(ClassId c, const Factor& f) {
  const Atom a = normal_.at(f.atom);
  const DType dtype = classes_[c].dtype;
  const Rational q = f.power;
  if (a.kind == AtomKind::exp) {
    map(c, Op::exp, {class_of(normal_.mul(normal_.number(q), a.args[0]), dtype)}, "exponential");
    return;
  }
  if (!q.is(1)) {
    const PolyId x = one_atom(f.atom);
    auto raised = [&](Rational r) {
      return r.is(1) ? class_of(x, dtype) : class_of(Monomial{{1, 1}, {{f.atom, r}}}, dtype);
    };
    if (q == Rational{1, 2})
      map(c, Op::sqrt, {raised({1, 1})}, "power");
    else if (q == Rational{-1, 2})
      map(c, Op::rsqrt, {raised({1, 1})}, "power");
    else if (q.n < 0)
      map(c, Op::reciprocal, {raised({-q.n, q.d})}, "power");
    else if (q.integer() && q.n % 2 == 0)
      map(c, Op::square, {raised({q.n / 2, 1})}, "power");
    else if (q.integer())
      map(c, Op::mul, {raised({q.n - 1, 1}), raised({1, 1})}, "power");
    return;
  }
  Producer p;
  if (a.dtype == DType::boolean && dtype != DType::boolean) {
    p.op = Op::cast;
    p.to = dtype;
    p.args = {class_of(classes_[c].poly, DType::boolean)};
    p.rule = "predicate as a number";
    propose(c, p);
    return;
  }
  switch (a.kind) {
    case AtomKind::leaf:
      p.kind = Kind::leaf;
      p.term = form_.leaf(a.source, a.dtype, a.axes);
      if (a.dtype == dtype) propose(c, p);
      return;
    case AtomKind::number:
      p.kind = Kind::literal;
      p.term = form_.literal(a.value, dtype);
      propose(c, p);
      return;
    case AtomKind::extent:
      p.kind = Kind::extent;
      p.term = form_.extent_of(a.extent, dtype);
      propose(c, p);
      return;
    case AtomKind::iota:
      p.kind = Kind::iota;
      p.term = form_.iota(a.free[0], a.dtype);
      if (a.dtype == dtype) propose(c, p);
      return;
    case AtomKind::function: {
      p.op = a.op;
      p.to = a.op == Op::cast ? a.to : DType::f32;
      for (size_t k = 0; k < a.args.size(); ++k) p.args.push_back(class_of(a.args[k], a.arg_types[k]));
      p.rule = "function";
      if (a.op == Op::quot0)  // it has no type of its own
        map(c, a.op, {class_of(a.args[0], dtype), class_of(a.args[1], dtype)}, "function");
      else if (a.dtype == dtype || a.op == Op::log)
        propose(c, p);
      return;
    }
    case AtomKind::sum: open_sum(c, normal_.at(classes_[c].poly)[0], 0); return;
    case AtomKind::reduce: {
      std::map<IndexId, IndexId> by;
      p.kind = Kind::reduce;
      p.op = a.op;
      p.bound = fresh(a.bound, a.free, by);
      p.args = {class_of(normal_.rename(a.args[0], by), dtype)};
      p.rule = "reduction";
      propose(c, p);
      if (a.op == Op::prod || p.bound.size() > 4) return;  // a product's fingerprint is one of all its factors
      for (uint32_t mask = 1; mask + 1 < 1u << p.bound.size(); ++mask) {
        Indices last, first;
        for (size_t k = 0; k < p.bound.size(); ++k) (mask >> k & 1 ? last : first).push_back(p.bound[k]);
        Atom inner = a;
        inner.args[0] = normal_.rename(a.args[0], by);
        Producer q = p;
        q.bound = last;
        q.args = {class_of(normal_.reduce(inner, first), dtype)};
        q.rule = kTwoSteps;
        propose(c, q);
      }
      return;
    }
    case AtomKind::mask:
      map(c, Op::where,
          {class_of(a.args[0], DType::boolean), class_of(a.args[1], dtype),
           class_of(normal_.of(form_.literal(-std::numeric_limits<double>::infinity(), dtype)), dtype)},
          "mask");
      return;
    case AtomKind::exp:
    case AtomKind::poly: return;
  }
}

// Real indices for bound ones: the first copies of their labels that are not taken.
Indices Values::fresh(const Indices& bound, Indices taken, std::map<IndexId, IndexId>& by) {
  Indices out;
  for (IndexId i : bound)
    for (uint32_t copy = 0;; ++copy) {
      const IndexId j = form_.index(form_.at(i).label, copy);
      if (has(taken, j)) continue;
      by[i] = j;
      out.push_back(j);
      taken = unite(taken, {j});
      break;
    }
  return sorted(out);
}

// A sum times factors: the factors move inside, a subset of the indices is summed last.
void Values::open_sum(ClassId c, const Monomial& m, size_t which) {
  const Atom a = normal_.at(m.factors[which].atom);
  const Monomial inner = normal_.at(a.args[0])[0];
  Monomial outside = m;
  if (--outside.factors[which].power.n == 0) outside.factors.erase(outside.factors.begin() + static_cast<long>(which));
  for (const Factor& f : outside.factors) {
    const Indices& free = normal_.at(f.atom).free;
    if (std::none_of(inner.factors.begin(), inner.factors.end(),
                     [&](const Factor& g) { return subset(free, normal_.at(g.atom).free); }))
      return;
  }
  const Indices taken = normal_.free(classes_[c].poly);
  if (a.bound.size() > 4) return;
  for (uint32_t mask = 1; mask < 1u << a.bound.size(); ++mask) {
    Indices opened, kept;
    for (size_t k = 0; k < a.bound.size(); ++k) (mask >> k & 1 ? opened : kept).push_back(a.bound[k]);
    std::map<IndexId, IndexId> by;
    const Indices bound = fresh(opened, taken, by);
    const PolyId rest = normal_.sum(kept, normal_.rename(a.args[0], by));
    if (normal_.at(rest).size() != 1) continue;
    split_body(c, normal_.times(normal_.at(rest)[0], outside), bound);
  }
}

void Values::split_body(ClassId c, const Monomial& body, const Indices& bound) {
  const DType dtype = classes_[c].dtype;
  if (narrow(body)) {
    Producer p;
    p.kind = Kind::reduce;
    p.op = Op::sum;
    p.bound = bound;
    p.args = {class_of(body, dtype)};
    p.rule = "factors into a sum";
    propose(c, p);
  }
  const std::vector<Monomial> parts = parts_of(body, true);
  if (parts.size() < 2 || parts.size() > 20) return;
  const uint32_t all = (1u << parts.size()) - 1;
  for (uint32_t mask = 1; mask < all; mask += 2) {
    const uint32_t other = all & ~mask;
    const bool single = (mask & (mask - 1)) == 0 || (other & (other - 1)) == 0;
    if (parts.size() > kMaxParts && !single) continue;
    Monomial a, b;
    for (size_t k = 0; k < parts.size(); ++k) {
      Monomial& side = mask >> k & 1 ? a : b;
      side = normal_.times(side, parts[k]);
    }
    if (!narrow(a) || !narrow(b)) continue;
    const Indices fa = normal_.free_of(a), fb = normal_.free_of(b);
    if (disjoint(fa, bound) || disjoint(fb, bound)) continue;
    Producer p;
    p.kind = Kind::contract;
    p.op = Op::contract;
    p.bound = bound;
    p.args = {class_of(a, dtype), class_of(b, dtype)};
    if (std::pair(plain(classes_[p.args[1]].poly), p.args[1]) < std::pair(plain(classes_[p.args[0]].poly), p.args[0]))
      std::swap(p.args[0], p.args[1]);
    p.rule = "contraction of factors";
    propose(c, p);
  }
}

bool Values::together(const Poly& p) const {
  return std::all_of(p.begin(), p.end(), [&](const Monomial& m) {
    return std::any_of(m.factors.begin(), m.factors.end(),
                       [&](const Factor& f) { return normal_.at(f.atom).kind == AtomKind::sum && is_whole(f.power); });
  });
}

// Parts of a sum that are worth a value of their own.
bool Values::factorable(const Poly& p, DType dtype) const {
  if (p.size() == 1) return true;
  if (!normal_.common(p).factors.empty()) return true;
  if (together(p)) return true;
  const PolyId id = normal_.intern(p);
  auto it = by_poly_.find({id, dtype});
  return it != by_poly_.end() && classes_[it->second].given;
}

void Values::terms(ClassId c, const Poly& p) {
  const DType dtype = classes_[c].dtype;
  if (dtype == DType::boolean || p.size() > 16) return;
  const uint32_t all = (1u << p.size()) - 1;
  for (uint32_t mask = 1; mask < all; mask += 2) {
    const uint32_t other = all & ~mask;
    if (p.size() > 7 && (mask & (mask - 1)) != 0 && (other & (other - 1)) != 0) continue;
    Poly a, b;
    for (size_t k = 0; k < p.size(); ++k) (mask >> k & 1 ? a : b).push_back(p[k]);
    if (p.size() > 2 && (!factorable(a, dtype) || !factorable(b, dtype))) continue;
    auto negative = [](const Poly& q) {
      return std::all_of(q.begin(), q.end(), [](const Monomial& m) { return m.coefficient.n < 0; });
    };
    if (negative(a) && negative(b)) continue;
    if (negative(a)) std::swap(a, b);
    const bool minus = negative(b);
    if (minus)
      for (Monomial& m : b) m.coefficient.n = -m.coefficient.n;
    map(c, minus ? Op::sub : Op::add, {class_of(normal_.intern(a), dtype), class_of(normal_.intern(b), dtype)},
        "sum of parts");
  }
  auto negative = std::all_of(p.begin(), p.end(), [](const Monomial& m) { return m.coefficient.n < 0; });
  if (negative) map(c, Op::neg, {class_of(normal_.mul(normal_.number({-1, 1}), classes_[c].poly), dtype)}, "negation");
  // Common factors.
  const Monomial shared = normal_.common(p);
  std::vector<Monomial> cofactors;
  auto plain = [&](const Factor& f) { return !normal_.at(f.atom).predicate; };
  if (!shared.factors.empty() && std::all_of(shared.factors.begin(), shared.factors.end(), plain))
    cofactors.push_back(shared);
  if (shared.factors.size() > 1)
    for (const Factor& f : shared.factors)
      if (plain(f)) cofactors.push_back({{1, 1}, {f}});
  for (const Monomial& g : cofactors) {
    const PolyId rest = normal_.mul(classes_[c].poly, normal_.single(normal_.power(g, {-1, 1})));
    if (is_negative(g))
      map(c, Op::div, {class_of(rest, dtype), class_of(normal_.power(g, {-1, 1}), dtype)}, "common factor");
    else
      map(c, Op::mul, {class_of(g, dtype), class_of(rest, dtype)}, "common factor");
  }
  if (together(p)) open_together(c, p);
}

// What stands inside of a monomial when one of its sums is opened over `bound`, for every sum and every assignment of
// its indices to those of the same labels.
std::vector<PolyId> Values::opened(const Monomial& m, const Indices& bound) {
  std::vector<PolyId> out;
  for (size_t k = 0; k < m.factors.size(); ++k) {
    const Atom s = normal_.at(m.factors[k].atom);
    if (s.kind != AtomKind::sum || !is_whole(m.factors[k].power)) continue;
    Monomial rest = m;  // of a square one stays
    if (--rest.factors[k].power.n == 0) rest.factors.erase(rest.factors.begin() + static_cast<long>(k));
    std::map<IndexId, IndexId> by;
    std::function<void(size_t)> assign = [&](size_t n) {
      if (out.size() >= kMaxWays) return;
      if (n == bound.size()) {
        Indices kept = s.bound;
        for (const auto& [from, to] : by) kept = without(kept, {from});
        const PolyId inside = normal_.sum(kept, normal_.rename(s.args[0], by));
        out.push_back(normal_.mul(normal_.single(rest), inside));
        return;
      }
      for (IndexId i : s.bound) {
        if (by.contains(i) || form_.at(i).label != form_.at(bound[n]).label) continue;
        by[i] = bound[n];
        assign(n + 1);
        by.erase(i);
      }
    };
    assign(0);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// Sums over indices of the same labels in every term become one sum, whose terms may share a factor.
void Values::open_together(ClassId c, const Poly& p) {
  const Indices taken = normal_.free(classes_[c].poly);
  for (const Factor& f : p[0].factors) {
    const Atom a = normal_.at(f.atom);
    if (a.kind != AtomKind::sum || !is_whole(f.power) || a.bound.size() > 4) continue;
    for (uint32_t mask = 1; mask < 1u << a.bound.size(); ++mask) {
      Indices chosen;
      for (size_t k = 0; k < a.bound.size(); ++k)
        if (mask >> k & 1) chosen.push_back(a.bound[k]);
      std::map<IndexId, IndexId> by;
      const Indices bound = fresh(chosen, taken, by);
      std::vector<PolyId> bodies{normal_.number({0, 1})};
      for (const Monomial& m : p) {
        std::vector<PolyId> next;
        for (PolyId inside : opened(m, bound))
          for (PolyId body : bodies)
            if (next.size() < kMaxWays) next.push_back(normal_.add(body, inside));
        bodies = std::move(next);
      }
      std::sort(bodies.begin(), bodies.end());
      bodies.erase(std::unique(bodies.begin(), bodies.end()), bodies.end());
      for (PolyId body : bodies) sum_together(c, body, bound);
    }
  }
}

// The class as one sum of `body`, which has several terms.
void Values::sum_together(ClassId c, PolyId body, const Indices& bound) {
  const DType dtype = classes_[c].dtype;
  const Poly terms = normal_.at(body);
  if (terms.size() < 2) return;
  const Indices all = normal_.free(body);
  Producer p;
  p.bound = bound;
  if (std::any_of(terms.begin(), terms.end(),
                  [&](const Monomial& m) { return narrow(m) && normal_.free_of(m) == all; })) {
    p.kind = Kind::reduce;
    p.op = Op::sum;
    p.args = {class_of(body, dtype)};
    p.rule = "one sum for several";
    propose(c, p);
  }
  const Monomial shared = normal_.common(terms);
  std::vector<Monomial> cofactors;
  if (!shared.factors.empty()) cofactors.push_back(shared);
  for (const Factor& f : shared.factors) {
    if (shared.factors.size() > 1) cofactors.push_back({{1, 1}, {f}});
    if (is_whole(f.power) && f.power.n > 1) cofactors.push_back({{1, 1}, {{f.atom, {1, 1}}}});
  }
  for (const Monomial& g : cofactors) {
    if (disjoint(normal_.free_of(g), bound) || !narrow(g)) continue;
    if (std::any_of(g.factors.begin(), g.factors.end(), [&](const Factor& f) { return normal_.at(f.atom).predicate; }))
      continue;
    const PolyId rest = normal_.mul(body, normal_.single(normal_.power(g, {-1, 1})));
    if (disjoint(normal_.free(rest), bound)) continue;
    p.kind = Kind::contract;
    p.op = Op::contract;
    p.args = {class_of(g, dtype), class_of(rest, dtype)};
    p.rule = "contractions that share an operand";
    propose(c, p);
  }
}

std::string Values::print(ClassId, const Producer& p) const {
  if (p.term.valid()) return form_.print(p.term);
  if (p.is_view()) return print(p.args[0]);
  std::string args;
  for (ClassId a : p.args) args += (args.empty() ? "" : "; ") + print(a);
  std::string bound;
  for (IndexId i : p.bound) bound += (bound.empty() ? "" : " ") + form_.print(i);
  return fmt::format("{}{}({})", info(p.op).name, bound.empty() ? "" : "{" + bound + "}", args);
}

}  // namespace cleave::algebra
