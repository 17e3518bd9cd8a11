#include "algebra/fingerprint.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace cleave::algebra {

using graph::Op;

namespace {
constexpr uint8_t kFinite = 0, kLow = 1, kHigh = 2;
uint8_t flag(const Print& p, size_t i) { return p.flags.empty() ? kFinite : p.flags[i]; }
}  // namespace

Draw::Draw(Normaliser& normal, const Tower& tower, uint64_t seed, std::vector<int64_t> label_extents)
    : normal_(normal), tower_(tower), seed_(mix(seed, 0x64726177)), extents_(std::move(label_extents)) {}

size_t Draw::size_of(const Indices& free) const {
  size_t n = 1;
  for (IndexId i : free) n *= static_cast<size_t>(extents_[normal_.form().at(i).label]);
  return n;
}

Print Draw::make(Indices free, bool all_levels) {
  Print p;
  const size_t n = size_of(free);
  work_ += n;
  if (n > (size_t{1} << 22) || work_ > (size_t{1} << 27)) throw TooLarge{};
  p.free = std::move(free);
  p.levels.resize(static_cast<size_t>(tower_.height()));
  if (all_levels)
    for (auto& l : p.levels) l.resize(n);
  return p;
}

std::vector<size_t> Draw::offsets(const Indices& free, const Indices& operand) const {
  std::vector<size_t> stride(free.size(), 0), extent(free.size());
  size_t run = 1;
  for (size_t k = operand.size(); k-- > 0;) {
    const size_t at = static_cast<size_t>(std::lower_bound(free.begin(), free.end(), operand[k]) - free.begin());
    CHECK(at < free.size() && free[at] == operand[k], "an operand's index is not in the result");
    stride[at] = run;
    run *= static_cast<size_t>(extents_[normal_.form().at(operand[k]).label]);
  }
  for (size_t k = 0; k < free.size(); ++k) extent[k] = static_cast<size_t>(extents_[normal_.form().at(free[k]).label]);
  std::vector<size_t> out(size_of(free));
  std::vector<size_t> at(free.size(), 0);
  size_t offset = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = offset;
    for (size_t k = free.size(); k-- > 0;) {
      offset += stride[k];
      if (++at[k] < extent[k]) break;
      offset -= stride[k] * extent[k];
      at[k] = 0;
    }
  }
  return out;
}

uint64_t Draw::extent_residue(int l, sym::Expr e) {
  sym::Pool& syms = normal_.form().syms();
  const uint64_t p = tower_.prime(l);
  // Whole extents are symbols, numbers included; sums and products of symbols are computed.
  if (syms.kind(e) != sym::Kind::polynomial)
    return 1 + mix(mix(seed_, 0x657874), mix(e.index, static_cast<uint64_t>(l))) % (p - 1);
  uint64_t sum = 0;
  for (const auto& term : syms.terms(e)) {
    uint64_t product = tower_.from(l, term.coefficient);
    for (sym::Expr a : term.atoms) product = tower_.mul(l, product, extent_residue(l, a));
    sum = tower_.add(l, sum, product);
  }
  return sum;
}

uint64_t Draw::weight(int l, IndexId i, int64_t coordinate) {
  const uint32_t label = normal_.form().at(i).label;
  auto random = [&](int64_t c) {
    return mix(mix(seed_, 0x776569 + label), mix(static_cast<uint64_t>(c), static_cast<uint64_t>(l))) % tower_.prime(l);
  };
  if (coordinate + 1 < extents_[label]) return random(coordinate);
  uint64_t rest = extent_residue(l, normal_.form().label(label).extent);
  for (int64_t c = 0; c + 1 < extents_[label]; ++c) rest = tower_.sub(l, rest, random(c));
  return rest;
}

Print Draw::symbol(sym::Expr e) {
  Print p = make({}, true);
  for (int l = 0; l <= top(); ++l) p.levels[static_cast<size_t>(l)][0] = extent_residue(l, e);
  return p;
}

Print Draw::constant(Rational r) {
  Print p = make({}, true);
  for (int l = 0; l <= top(); ++l) p.levels[static_cast<size_t>(l)][0] = tower_.from(l, r.n, r.d);
  return p;
}

Print Draw::literal(double v) {
  Print p = make({}, true);
  if (std::isinf(v))
    p.flags = {v < 0 ? kLow : kHigh};
  else if (std::isnan(v))
    p.bad = true;
  else
    for (int l = 0; l <= top(); ++l) p.levels[static_cast<size_t>(l)][0] = tower_.from(l, v);
  return p;
}

Print Draw::hashed(uint64_t key, const std::vector<const Print*>& args) {
  Indices free;
  for (const Print* a : args) free = unite(free, a->free);
  Print p = make(free, true);
  std::vector<std::vector<size_t>> at;
  for (const Print* a : args) {
    at.push_back(offsets(p.free, a->free));
    p.bad = p.bad || a->bad;
  }
  const size_t n = size_of(p.free);
  for (size_t i = 0; i < n; ++i) {
    uint64_t h = mix(seed_ ^ 0x66756e, key);
    for (size_t k = 0; k < args.size(); ++k) {
      const uint8_t f = flag(*args[k], at[k][i]);
      h = mix(h, f ? ~uint64_t{f} : args[k]->levels.back()[at[k][i]]);
    }
    for (int l = 0; l <= top(); ++l)
      p.levels[static_cast<size_t>(l)][i] = mix(h, static_cast<uint64_t>(l)) % tower_.prime(l);
  }
  return p;
}

Print Draw::product(const Print& a, const Print& b, bool positive_a, bool positive_b) {
  Print p = make(unite(a.free, b.free), false);
  p.bad = a.bad || b.bad;
  const auto x = offsets(p.free, a.free), y = offsets(p.free, b.free);
  for (int l = 0; l <= top(); ++l) {
    const auto k = static_cast<size_t>(l);
    if (a.levels[k].empty() || b.levels[k].empty()) continue;
    auto& out = p.levels[k];
    out.resize(x.size());
    for (size_t i = 0; i < x.size(); ++i) out[i] = tower_.mul(l, a.levels[k][x[i]], b.levels[k][y[i]]);
  }
  if (!a.flags.empty() || !b.flags.empty()) {
    p.flags.resize(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const uint8_t f = flag(a, x[i]), g = flag(b, y[i]);
      if (f && g)
        p.bad = true;
      else if (f)
        positive_b ? void(p.flags[i] = f) : void(p.bad = true);
      else if (g)
        positive_a ? void(p.flags[i] = g) : void(p.bad = true);
    }
  }
  return p;
}

Print Draw::sum(const Print& a, const Print& b, bool minus) {
  Print p = make(unite(a.free, b.free), false);
  p.bad = a.bad || b.bad;
  const auto x = offsets(p.free, a.free), y = offsets(p.free, b.free);
  for (int l = 0; l <= top(); ++l) {
    const auto k = static_cast<size_t>(l);
    if (a.levels[k].empty() || b.levels[k].empty()) continue;
    auto& out = p.levels[k];
    out.resize(x.size());
    for (size_t i = 0; i < x.size(); ++i)
      out[i] = minus ? tower_.sub(l, a.levels[k][x[i]], b.levels[k][y[i]])
                     : tower_.add(l, a.levels[k][x[i]], b.levels[k][y[i]]);
  }
  if (!a.flags.empty() || !b.flags.empty()) {
    p.flags.resize(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const uint8_t f = flag(a, x[i]);
      uint8_t g = flag(b, y[i]);
      if (minus && g) g = g == kLow ? kHigh : kLow;
      if (f && g && f != g) p.bad = true;
      p.flags[i] = f ? f : g;
    }
  }
  return p;
}

Print Draw::power(const Print& a, Rational q) {
  Print p = make(a.free, false);
  p.bad = a.bad;
  int64_t halvings = 0;
  for (int64_t d = q.d; d > 1; d /= 2, ++halvings)
    if (d % 2) return hashed(mix(0x706f77, mix(static_cast<uint64_t>(q.n), static_cast<uint64_t>(q.d))), {&a});
  if (!a.flags.empty())
    for (uint8_t f : a.flags) p.bad = p.bad || f;
  for (int l = 0; l <= top(); ++l) {
    const auto k = static_cast<size_t>(l);
    if (a.levels[k].empty()) continue;
    p.levels[k] = a.levels[k];
    for (uint64_t& v : p.levels[k]) {
      if (v == 0 && q.n < 0 && l == top()) unlucky_ = true;
      for (int64_t h = 0; h < halvings; ++h) v = tower_.root(l, v);
      v = tower_.pow(l, v, static_cast<uint64_t>(std::abs(q.n)));
      if (q.n < 0) v = tower_.inverse(l, v);
    }
  }
  return p;
}

Print Draw::inverse(const Print& a) {
  Print p = a;
  p.sets.clear();
  p.bad = p.bad || std::any_of(a.flags.begin(), a.flags.end(), [](uint8_t f) { return f != kFinite; });
  for (int l = 0; l <= top(); ++l)
    for (uint64_t& v : p.levels[static_cast<size_t>(l)]) v = tower_.inverse(l, v);
  return p;
}

Print Draw::exponential(const Print& a) {
  Print p = make(a.free, false);
  p.bad = a.bad;
  const size_t n = size_of(a.free);
  bool known = false;
  for (int l = 1; l <= top(); ++l) {
    const auto k = static_cast<size_t>(l);
    if (a.levels[k - 1].empty()) {
      if (!known) continue;
      break;
    }
    known = true;
    p.levels[k].resize(n);
    for (size_t i = 0; i < n; ++i) p.levels[k][i] = tower_.exp(l, a.levels[k - 1][i]);
  }
  if (p.levels.back().empty()) {
    Print h = hashed(0x657870, {&a});
    p.levels.back() = h.levels.back();
  }
  for (size_t i = 0; i < n; ++i) {
    if (flag(a, i) == kHigh) p.bad = true;
    if (flag(a, i) == kLow)
      for (auto& l : p.levels)
        if (!l.empty()) l[i] = 0;
  }
  return p;
}

// The maximum over `bound` (or elementwise, of several operands), as a hash of the distinct operands.
Print Draw::extremum(const std::vector<const Print*>& args, const Indices& bound, bool minimum) {
  Indices all;
  for (const Print* a : args) all = unite(all, a->free);
  const Indices free = without(all, bound);
  Print p = make(free, true);
  const size_t n = size_of(free), total = size_of(all);
  const auto to = offsets(all, free);
  std::vector<std::vector<std::pair<uint64_t, std::pair<const Print*, size_t>>>> seen(n);
  p.sets.resize(n);
  p.minimum = minimum;
  const uint8_t ignored = minimum ? kHigh : kLow;
  std::vector<bool> other(n);
  for (const Print* a : args) {
    p.bad = p.bad || a->bad;
    const auto from = offsets(all, a->free);
    for (size_t i = 0; i < total; ++i) {
      const size_t k = from[i];
      if (flag(*a, k) == ignored) continue;
      if (flag(*a, k)) {
        other[to[i]] = true;
        continue;
      }
      if (!a->sets.empty() && a->minimum == minimum && !a->sets[k].empty())
        for (uint64_t v : a->sets[k]) seen[to[i]].push_back({v, {a, k}});
      else
        seen[to[i]].push_back({a->levels.back()[k], {a, k}});
    }
  }
  for (size_t i = 0; i < n; ++i) {
    auto& list = seen[i];
    std::sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    list.erase(std::unique(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.first == b.first; }),
               list.end());
    if (other[i]) p.bad = true;
    if (list.empty()) {
      if (p.flags.empty()) p.flags.resize(n);
      p.flags[i] = ignored;
      continue;
    }
    uint64_t h = mix(seed_ ^ 0x6d6178, minimum);
    for (const auto& [v, where] : list) {
      h = mix(h, v);
      p.sets[i].push_back(v);
    }
    const auto& [source, k] = list[0].second;
    for (int l = 0; l <= top(); ++l) {
      auto& level = p.levels[static_cast<size_t>(l)];
      if (level.empty()) continue;
      if (list.size() > 1)
        level[i] = mix(h, static_cast<uint64_t>(l)) % tower_.prime(l);
      else if (source->levels[static_cast<size_t>(l)].empty())
        level.clear();
      else
        level[i] = source->levels[static_cast<size_t>(l)][k];
    }
  }
  return p;
}

Print Draw::select(const Print& c, const Print& a, const Print& b) {
  Print p = make(unite(c.free, unite(a.free, b.free)), false);
  p.bad = c.bad || a.bad || b.bad;
  const auto w = offsets(p.free, c.free), x = offsets(p.free, a.free), y = offsets(p.free, b.free);
  for (size_t k = 0; k < p.levels.size(); ++k) {
    if (a.levels[k].empty() || b.levels[k].empty()) continue;
    p.levels[k].resize(w.size());
    for (size_t i = 0; i < w.size(); ++i)
      p.levels[k][i] = c.levels.back()[w[i]] ? a.levels[k][x[i]] : b.levels[k][y[i]];
  }
  if (!a.flags.empty() || !b.flags.empty()) {
    p.flags.resize(w.size());
    for (size_t i = 0; i < w.size(); ++i) p.flags[i] = c.levels.back()[w[i]] ? flag(a, x[i]) : flag(b, y[i]);
  }
  return p;
}

Print Draw::total(const Print& a, const Indices& bound) {
  const Indices all = unite(a.free, bound), free = without(all, bound);
  Print p = make(free, false);
  p.bad = a.bad;
  for (uint8_t f : a.flags) p.bad = p.bad || f;
  const auto to = offsets(all, free), from = offsets(all, a.free);
  work_ += to.size();
  for (int l = 0; l <= top(); ++l) {
    const auto k = static_cast<size_t>(l);
    if (a.levels[k].empty()) continue;
    // The weight of every combination of bound coordinates.
    std::vector<uint64_t> weights(size_of(bound), 1);
    for (IndexId i : bound) {
      const auto at = offsets(bound, {i});
      std::vector<uint64_t> w;
      for (int64_t c = 0; c < extents_[normal_.form().at(i).label]; ++c) w.push_back(weight(l, i, c));
      for (size_t j = 0; j < weights.size(); ++j) weights[j] = tower_.mul(l, weights[j], w[at[j]]);
    }
    const auto w = offsets(all, bound);
    p.levels[k].assign(size_of(free), 0);
    for (size_t i = 0; i < to.size(); ++i)
      p.levels[k][to[i]] = tower_.add(l, p.levels[k][to[i]], tower_.mul(l, weights[w[i]], a.levels[k][from[i]]));
  }
  return p;
}

// A comparison is a random bit of the difference of its sides: a < b is bit(a - b), a >= b is its complement.
// Infinities are what they are: -inf < finite < inf.
Print Draw::compare(Op op, const Print& a, const Print& b) {
  const bool swapped = op == Op::gt || op == Op::le, negated = op == Op::ge || op == Op::le || op == Op::ne;
  const bool equality = op == Op::eq || op == Op::ne;
  const Print &left = swapped ? b : a, &right = swapped ? a : b;
  const Print d = sum(left, right, true);
  Print p = make(d.free, true);
  p.bad = a.bad || b.bad;
  const auto x = offsets(p.free, left.free), y = offsets(p.free, right.free);
  const auto rank = [](uint8_t f) { return f == kLow ? -1 : f == kHigh ? 1 : 0; };
  for (size_t i = 0; i < d.levels.back().size(); ++i) {
    const uint64_t v = d.levels.back()[i];
    if (const int l = rank(flag(left, x[i])), r = rank(flag(right, y[i])); l != 0 || r != 0) {
      for (auto& level : p.levels) level[i] = (equality ? l == r : l < r) != negated;
      continue;
    }
    // Equality is symmetric; 0 is not less than 0.
    const uint64_t symmetric = equality ? std::min(v, tower_.sub(top(), 0, v)) : v;
    bool bit = equality ? v == 0 : v != 0 && (mix(mix(seed_, equality ? 0x6571 : 0x6c74), symmetric) & 7) < 4;
    if (!equality && v != 0) {
      // Exactly one of d < 0 and -d < 0 holds for d != 0.
      const uint64_t least = std::min(v, tower_.sub(top(), 0, v));
      bit = ((mix(mix(seed_, 0x6c74), least) & 7) < 4) == (v == least);
    }
    for (auto& l : p.levels) l[i] = bit != negated;
  }
  return p;
}

Print Draw::logic(Op op, std::span<const PolyId> args) {
  std::vector<Print> x;
  Indices free;
  for (PolyId a : args) {
    x.push_back(of(a));
    free = unite(free, x.back().free);
  }
  Print p = make(free, true);
  std::vector<std::vector<size_t>> at;
  for (const Print& a : x) {
    at.push_back(offsets(p.free, a.free));
    p.bad = p.bad || a.bad;
  }
  for (size_t i = 0; i < size_of(p.free); ++i) {
    const bool a = x[0].levels.back()[at[0][i]], b = x.size() > 1 && x[1].levels.back()[at[1][i]];
    const bool r = op == Op::logical_and ? a && b : op == Op::logical_or ? a || b : op == Op::logical_xor ? a != b : !a;
    for (auto& l : p.levels) l[i] = r;
  }
  return p;
}

const Print& Draw::of(AtomId id) {
  if (auto it = atoms_.find(id); it != atoms_.end()) return it->second;
  const Atom a = normal_.at(id);
  Print p;
  switch (a.kind) {
    case AtomKind::leaf: {
      // The coordinates of the tensor's axes, in the order of the axes, say which element it is.
      p = make(a.free, true);
      std::vector<std::vector<size_t>> at;
      for (const Indices& axis : a.axes)
        for (IndexId i : axis) at.push_back(offsets(p.free, {i}));
      const bool boolean = a.dtype == DType::boolean;
      for (size_t i = 0; i < size_of(p.free); ++i) {
        uint64_t h = mix(mix(seed_, 0x6c656166), a.source);
        for (const auto& axis : at) h = mix(h, axis[i]);
        for (int l = 0; l <= top(); ++l)
          p.levels[static_cast<size_t>(l)][i] =
              boolean ? (h >> 7) & 1 : mix(h, static_cast<uint64_t>(l)) % tower_.prime(l);
      }
      break;
    }
    case AtomKind::number: p = literal(a.value); break;
    case AtomKind::extent: p = symbol(a.extent); break;
    case AtomKind::iota: {
      p = make(a.free, true);
      const uint32_t label = normal_.form().at(a.free[0]).label;
      for (size_t i = 0; i < size_of(p.free); ++i)
        for (int l = 0; l <= top(); ++l)
          p.levels[static_cast<size_t>(l)][i] =
              mix(mix(seed_, 0x696f7461 + label), mix(i, static_cast<uint64_t>(l))) % tower_.prime(l);
      break;
    }
    case AtomKind::function: p = map(a.op, a.dtype, a.to, a.args, a.arg_types); break;
    case AtomKind::exp: p = exponential(of(a.args[0])); break;
    case AtomKind::poly: p = of(a.args[0]); break;
    case AtomKind::sum: p = total(of(a.args[0]), a.bound); break;
    case AtomKind::reduce: p = reduce(a.op, a.bound, a.args[0], 0); break;
    case AtomKind::mask: {
      const Print low = literal(-std::numeric_limits<double>::infinity());
      p = select(of(a.args[0]), of(a.args[1]), low);
      break;
    }
  }
  return atoms_.emplace(id, std::move(p)).first->second;
}

const Print& Draw::of(PolyId id) {
  if (auto it = polys_.find(id); it != polys_.end()) return it->second;
  const Poly poly = normal_.at(id);
  Print out;
  bool first = true;
  for (const Monomial& m : poly) {
    Print p = constant(m.coefficient);
    bool positive = m.coefficient.n > 0;
    for (const Factor& f : m.factors) {
      const bool positive_factor = normal_.at(f.atom).positive || !f.power.integer();
      p = f.power.is(1) && m.factors.size() == 1 && m.coefficient.is(1)
              ? of(f.atom)
              : product(p, f.power.is(1) ? of(f.atom) : power(of(f.atom), f.power), positive, positive_factor);
      positive = positive && positive_factor;
    }
    out = first ? std::move(p) : sum(out, p, false);
    first = false;
  }
  if (first) out = constant({0, 1});
  return polys_.emplace(id, std::move(out)).first->second;
}

Print Draw::map(Op op, DType dtype, DType to, std::span<const PolyId> args, std::span<const DType> types) {
  std::vector<const Print*> x;
  for (PolyId a : args) x.push_back(&of(a));
  switch (op) {
    case Op::add: return sum(*x[0], *x[1], false);
    case Op::sub: return sum(*x[0], *x[1], true);
    case Op::neg: return sum(constant({0, 1}), *x[0], true);
    case Op::mul:
      if (types[0] == DType::boolean) return logic(Op::logical_and, args);
      return product(*x[0], *x[1], normal_.positive(args[0]), normal_.positive(args[1]));
    case Op::square: return product(*x[0], *x[0], false, false);
    case Op::div:
      if (!is_real(dtype)) break;
      return product(*x[0], power(*x[1], {-1, 1}), normal_.positive(args[0]), normal_.positive(args[1]));
    case Op::quot0: {
      if (normal_.never_zero(args[1]))
        return product(*x[0], power(*x[1], {-1, 1}), normal_.positive(args[0]), normal_.positive(args[1]));
      // Times a random number, so that it is no ordinary quotient: nothing may cancel what can be 0.
      Print scale = make({}, true);
      for (int l = 0; l <= top(); ++l)
        scale.levels[static_cast<size_t>(l)][0] =
            1 + mix(mix(seed_, 0x71756f), static_cast<uint64_t>(l)) % (tower_.prime(l) - 1);
      return product(*x[0], product(scale, inverse(*x[1]), false, false), normal_.positive(args[0]), false);
    }
    case Op::reciprocal: return power(*x[0], {-1, 1});
    case Op::sqrt: return power(*x[0], {1, 2});
    case Op::rsqrt: return power(*x[0], {-1, 2});
    case Op::exp: return exponential(*x[0]);
    case Op::log: {
      // log x = (exponents that all terms share) + hash(x / their exponential).
      const PolyId exponent = normal_.common_exponent(normal_.at(args[0]));
      const PolyId rest = normal_.mul(args[0], normal_.exp(normal_.mul(normal_.number({-1, 1}), exponent)));
      if (rest == normal_.number({1, 1})) return of(exponent);
      const Print h = hashed(0x6c6f67, {&of(rest)});
      return normal_.is_zero(exponent) ? h : sum(of(exponent), h, false);
    }
    case Op::max: return extremum(x, {}, false);
    case Op::min: return extremum(x, {}, true);
    case Op::where: return select(*x[0], *x[1], *x[2]);
    case Op::lt:
    case Op::le:
    case Op::gt:
    case Op::ge:
    case Op::eq:
    case Op::ne:
      if (types[0] == DType::boolean) break;
      return compare(op, *x[0], *x[1]);
    case Op::logical_and:
    case Op::logical_or:
    case Op::logical_xor:
    case Op::logical_not: return logic(op, args);
    case Op::cast:
      if (types[0] == DType::boolean && dtype != DType::boolean) return *x[0];
      if (is_integer(types[0]) && is_real(dtype) && to == dtype) return *x[0];
      break;
    default: break;
  }
  // Everything else, narrowing casts included, is a function of its operands.
  Print p = hashed(mix(static_cast<uint64_t>(op) + 0x1000, op == Op::cast ? static_cast<uint64_t>(to) + 1 : 0), x);
  if (dtype == DType::boolean)
    for (auto& l : p.levels)
      for (size_t i = 0; i < l.size(); ++i) l[i] = p.levels[0][i] & 1;
  return p;
}

Print Draw::reduce(Op op, const Indices& bound, PolyId arg, uint32_t result) {
  const Print& x = of(arg);
  switch (op) {
    case Op::sum: return total(x, bound);
    case Op::amax: return extremum({&x}, bound, false);
    case Op::amin: return extremum({&x}, bound, true);
    case Op::moments: {
      Print count = constant({1, 1});
      for (IndexId i : bound) count = product(count, symbol(normal_.form().extent(i)), true, true);
      const Print inverse = power(count, {-1, 1});
      Print mean = product(total(x, bound), inverse, false, true);
      if (result == 0) return mean;
      const Print d = sum(x, mean, true);
      return product(total(product(d, d, false, false), bound), inverse, false, true);
    }
    default: {
      // prod, any, all: the multiset over the reduced coordinates is what matters; hash it in a fixed order.
      const Indices free = without(x.free, bound);
      Print p = make(free, true);
      const auto to = offsets(x.free, free);
      std::vector<std::vector<uint64_t>> seen(size_of(free));
      for (size_t i = 0; i < to.size(); ++i) seen[to[i]].push_back(x.levels.back()[i]);
      for (size_t i = 0; i < seen.size(); ++i) {
        std::sort(seen[i].begin(), seen[i].end());
        uint64_t h = mix(seed_, static_cast<uint64_t>(op));
        for (uint64_t v : seen[i]) h = mix(h, v);
        for (int l = 0; l <= top(); ++l) {
          uint64_t v = mix(h, static_cast<uint64_t>(l)) % tower_.prime(l);
          if (op == Op::any) v = seen[i].back() != 0;
          if (op == Op::all) v = seen[i].front() != 0;
          p.levels[static_cast<size_t>(l)][i] = v;
        }
      }
      p.bad = x.bad;
      return p;
    }
  }
}

Print Draw::contract(const Indices& bound, PolyId a, PolyId b) {
  return total(product(of(a), of(b), normal_.positive(a), normal_.positive(b)), bound);
}

bool Draw::same(const Print& a, const Print& b) {
  if (a.bad || b.bad || a.free != b.free) return false;
  for (size_t i = 0; i < a.levels.back().size(); ++i) {
    if (flag(a, i) != flag(b, i)) return false;
    if (flag(a, i)) continue;
    for (size_t l = 0; l < a.levels.size(); ++l)
      if (!a.levels[l].empty() && !b.levels[l].empty() && a.levels[l][i] != b.levels[l][i]) return false;
  }
  return true;
}

bool Draw::has_root(AtomId a) {
  const Print& p = of(a);
  for (int l = 0; l <= top(); ++l)
    for (uint64_t v : p.levels[static_cast<size_t>(l)]) {
      const uint64_t r = tower_.root(l, v);
      if (tower_.mul(l, r, r) != v) return false;
    }
  return true;
}

uint64_t Draw::key(const Print& p) const {
  uint64_t h = 0x6b6579;
  for (IndexId i : p.free) h = mix(h, i.index);
  for (size_t i = 0; i < p.levels.back().size(); ++i)
    h = mix(h, flag(p, i) ? ~uint64_t{flag(p, i)} : p.levels.back()[i]);
  return h;
}

}  // namespace cleave::algebra
