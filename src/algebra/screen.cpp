#include "algebra/screen.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <ranges>
#include <set>
#include <utility>

#include "algebra/field.hpp"
#include "algebra/normal.hpp"
#include "base/number.hpp"
#include "base/rng.hpp"

namespace cleave::algebra {

using graph::Op;

namespace {
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLargest = 0x1p126;  // beyond, f32 may overflow
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
}  // namespace

int64_t Lattice::largest() const { return extents_.empty() ? 1 : *std::max_element(extents_.begin(), extents_.end()); }

size_t Lattice::size_of(const Indices& free) const {
  size_t n = 1;
  for (IndexId i : free) n *= static_cast<size_t>(extent(i));
  if (n > (size_t{1} << 22)) throw TooLarge{};
  return n;
}

const std::vector<uint32_t>& Lattice::offsets(const Indices& free, const Indices& operand) {
  const auto [it, fresh] = known_.try_emplace({free, operand});
  std::vector<uint32_t>& out = it->second;
  if (!fresh) return out;
  std::vector<uint32_t> stride(free.size(), 0);
  uint32_t run = 1;
  for (size_t k = operand.size(); k-- > 0;) {
    stride[static_cast<size_t>(std::lower_bound(free.begin(), free.end(), operand[k]) - free.begin())] = run;
    run *= static_cast<uint32_t>(extent(operand[k]));
  }
  out.resize(size_of(free));
  std::vector<uint32_t> at(free.size(), 0);
  uint32_t offset = 0;
  for (uint32_t& o : out) {
    o = offset;
    for (size_t k = free.size(); k-- > 0;) {
      offset += stride[k];
      if (++at[k] < static_cast<uint32_t>(extent(free[k]))) break;
      offset -= stride[k] * at[k];
      at[k] = 0;
    }
  }
  return out;
}

const FloatArray& FloatDraw::of(TermId id) {
  if (auto it = known_.find(id); it != known_.end()) return it->second;
  FloatArray a = make(id);
  return known_.emplace(id, std::move(a)).first->second;
}

FloatArray FloatDraw::leaf(const Term& t) {
  FloatArray out{t.free, std::vector<double>(size_of(t.free))};
  std::vector<const std::vector<uint32_t>*> at;
  for (const Indices& axis : t.axes)
    for (IndexId i : axis) at.push_back(&offsets(t.free, {i}));
  std::vector<int64_t> coordinates(at.size());
  for (size_t i = 0; i < out.values.size(); ++i) {
    for (size_t k = 0; k < at.size(); ++k) coordinates[k] = (*at[k])[i];
    double v = leaf_(t.source, coordinates);
    if (!is_real(t.dtype)) v = t.dtype == DType::boolean ? v > 0 : std::floor(std::abs(v) * 3);
    out.values[i] = round_to(DType::f32, v);
  }
  return out;
}

FloatArray FloatDraw::make(TermId id) {
  const Term t = form_.at(id);
  FloatArray out;
  out.free = t.free;
  switch (t.kind) {
    case Kind::leaf: return same_ ? same_->of(id) : leaf(t);
    case Kind::literal: out.values = {is_real(t.dtype) ? rounded(t.value) : t.value}; return out;
    case Kind::extent: {
      // A label's extent, or a number made of such; what is none counts 7.
      const auto of = [&](sym::Expr e) -> std::optional<int64_t> {
        for (uint32_t l = 0; l < form_.label_count(); ++l)
          if (form_.label(l).extent == e) return lattice_.of_label(l);
        return std::nullopt;
      };
      const auto whole = of(t.extent);
      const double v = static_cast<double>(
          whole ? *whole : form_.syms().evaluate(t.extent, [&](sym::Expr s) { return of(s).value_or(7); }).value_or(7));
      out.values = {v};
      return out;
    }
    case Kind::iota:
      for (int64_t i = 0; i < lattice_.extent(t.free[0]); ++i) out.values.push_back(static_cast<double>(i));
      return out;
    case Kind::map: return map(t);
    case Kind::reduce: return reduce(t);
    case Kind::contract: {
      const FloatArray &a = of(t.args[0]), &b = of(t.args[1]);
      const Indices all = unite(unite(a.free, b.free), t.bound);
      const auto &x = offsets(all, a.free), &y = offsets(all, b.free), &to = offsets(all, t.free);
      out.values.assign(size_of(t.free), 0);
      for (size_t i = 0; i < to.size(); ++i)
        out.values[to[i]] = rounded(out.values[to[i]] + a.values[x[i]] * b.values[y[i]]);
      return out;
    }
    case Kind::scaled_sum: return scaled_sum(t);
  }
  CHECK(false, "kind {}", static_cast<int>(t.kind));
}

FloatArray FloatDraw::map(const Term& t) {
  FloatArray out;
  out.free = t.free;
  std::vector<const FloatArray*> x;
  std::vector<const std::vector<uint32_t>*> at;
  bool reals = false;
  for (TermId a : t.args) {
    x.push_back(&of(a));
    at.push_back(&offsets(t.free, x.back()->free));
    reals = reals || is_real(form_.at(a).dtype);
  }
  out.values.resize(size_of(t.free));
  std::vector<double> args(x.size());
  std::vector<int64_t> integers(x.size());
  for (size_t i = 0; i < out.values.size(); ++i) {
    for (size_t k = 0; k < x.size(); ++k) args[k] = x[k]->values[(*at[k])[i]];
    double v;
    if (!reals) {
      for (size_t k = 0; k < x.size(); ++k) integers[k] = static_cast<int64_t>(args[k]);
      const int64_t n = t.op == Op::cast ? integers[0] : eval(graph::scalar_fn(t.op), integers);
      v = static_cast<double>(wrap_to(t.op == Op::cast ? t.to : t.dtype, n));
    } else if (t.op == Op::unscale)
      v = args[0] * std::exp(args[1]);
    else if (t.op != Op::cast)
      v = eval(graph::scalar_fn(t.op), args);
    else if (is_real(t.to))
      v = round_to(t.to == DType::f64 && f32_ ? DType::f32 : t.to, args[0]);
    else
      v = static_cast<double>(real_to_integer(t.to, args[0]));
    out.values[i] = is_real(t.dtype) ? rounded(v) : v;
  }
  return out;
}

FloatArray FloatDraw::reduce(const Term& t) {
  FloatArray out;
  const FloatArray& a = of(t.args[0]);
  out.free = t.free;
  const Indices all = unite(a.free, t.bound);
  const auto &from = offsets(all, a.free), &to = offsets(all, t.free);
  const size_t n = size_of(t.free);
  auto fold = [&](double start, auto&& step) {
    std::vector<double> r(n, start);
    for (size_t i = 0; i < to.size(); ++i) r[to[i]] = step(r[to[i]], a.values[from[i]], to[i]);
    return r;
  };
  auto extreme = [](double sign) {
    return [sign](double r, double v, size_t) {
      return std::isnan(r) || std::isnan(v) ? kNan : sign * v > sign * r ? v : r;
    };
  };
  switch (t.op) {
    case Op::sum: out.values = fold(0, [&](double r, double v, size_t) { return rounded(r + v); }); return out;
    case Op::prod: out.values = fold(1, [&](double r, double v, size_t) { return rounded(r * v); }); return out;
    case Op::amax: out.values = fold(-kInfinity, extreme(1)); return out;
    case Op::amin: out.values = fold(kInfinity, extreme(-1)); return out;
    case Op::any: out.values = fold(0, [](double r, double v, size_t) { return r != 0 || v != 0; }); return out;
    case Op::all: out.values = fold(1, [](double r, double v, size_t) { return r != 0 && v != 0; }); return out;
    case Op::moments: {
      const double count = static_cast<double>(size_of(t.bound));
      std::vector<double> mean = fold(0, [&](double r, double v, size_t) { return rounded(r + v); });
      for (double& m : mean) m = rounded(m / count);
      out.values = mean;
      if (t.source == 0) return out;
      out.values = fold(
          0, [&](double r, double v, size_t k) { return rounded(r + rounded(v - mean[k]) * rounded(v - mean[k])); });
      for (double& m : out.values) m = rounded(m / count);
      return out;
    }
    default: CHECK(false, "the reduction {}", info(t.op).name);
  }
}

FloatArray FloatDraw::scaled_sum(const Term& t) {
  static const FloatArray one{{}, {1}};
  const FloatArray &s = of(t.args[0]), &f = t.args.size() > 1 ? of(t.args[1]) : one;
  FloatArray out;
  out.free = t.free;
  const Indices all = unite(unite(s.free, f.free), t.bound), kept = without(s.free, t.bound);
  std::vector<double> top(size_of(kept), -kInfinity);
  const auto& to_top = offsets(s.free, kept);
  for (size_t i = 0; i < s.values.size(); ++i) {
    double& m = top[to_top[i]];
    m = std::isnan(m) || std::isnan(s.values[i]) ? kNan : std::max(m, s.values[i]);
  }
  const auto &x = offsets(all, s.free), &y = offsets(all, f.free), &m = offsets(all, kept), &to = offsets(all, t.free);
  out.values.assign(size_of(t.free), 0);
  for (size_t i = 0; i < to.size(); ++i) {
    const double score = s.values[x[i]];
    const double e = score == -kInfinity ? 0 : rounded(std::exp(rounded(score - top[m[i]])));
    out.values[to[i]] = rounded(out.values[to[i]] + e * f.values[y[i]]);
  }
  return out;
}

namespace {

double normal_at(uint64_t seed, uint32_t source, std::span<const int64_t> coordinates) {
  uint64_t h = mix(seed, source);
  for (int64_t c : coordinates) h = mix(h, static_cast<uint64_t>(c));
  return Rng(h).normal();
}

// What the data of a screen is made for.
struct Contents {
  std::set<uint32_t> leaves, reduced;        // real leaves, labels that something reduces
  std::set<double> literals;                 // magnitudes of large ones
  std::set<sym::Expr> extents;               // that are numbers in the program, as in a mean
  std::set<std::set<uint32_t>> differences;  // leaves that sums and differences bring together
  bool masked = false, empty_rows = false;   // the latter: rows that are left out wholly may be 0
  bool bits = false;                         // inputs of zeros and ones
  // Labels of the coordinates of leaves, and sums of a leaf and something computed, which it may cancel.
  std::map<uint32_t, std::vector<std::set<uint32_t>>> labels;
  struct Beside {
    TermId sum, leaf;
  };
  std::vector<Beside> beside;
  std::set<TermId> seen;

  // Leaves that the term is a sum or difference of, numbers as factors aside.
  const std::set<uint32_t>& summands(const Form& form, TermId id) {
    if (const auto it = summands_.find(id); it != summands_.end()) return it->second;
    const Term& t = form.at(id);
    std::set<uint32_t> out;
    const auto take = [&](TermId a) { out.merge(std::set<uint32_t>(summands(form, a))); };
    const auto number = [&](TermId a) {
      const Kind kind = form.at(a).kind;
      return kind == Kind::literal || kind == Kind::extent;
    };
    if (t.kind == Kind::leaf && is_real(t.dtype)) out.insert(t.source);
    if (t.kind == Kind::map && (t.op == Op::add || t.op == Op::sub || t.op == Op::neg))
      for (TermId a : t.args) take(a);
    if (t.kind == Kind::map && (t.op == Op::mul || t.op == Op::div))
      for (size_t k : {0, 1})
        if (number(t.args[1 - k])) take(t.args[k]);
    if (t.kind == Kind::reduce) take(t.args[0]);
    return summands_[id] = std::move(out);
  }
  std::map<TermId, std::set<uint32_t>> summands_;

  // What a number is multiplied by, or the sign changed of.
  static TermId scaled(const Form& form, TermId id) {
    const Term& t = form.at(id);
    if (t.kind != Kind::map) return id;
    if (t.op == Op::neg) return scaled(form, t.args[0]);
    if (t.op != Op::mul && t.op != Op::div) return id;
    for (size_t k : {1, 0})
      if (form.at(t.args[k]).kind == Kind::literal && (k == 1 || t.op == Op::mul)) return scaled(form, t.args[1 - k]);
    return id;
  }

  void visit(const Form& form, TermId id) {
    if (!seen.insert(id).second) return;
    const Term& t = form.at(id);
    if (t.kind == Kind::leaf) {
      if (is_real(t.dtype)) leaves.insert(t.source);
      bits = bits || t.dtype == DType::boolean;
      auto& at = labels[t.source];
      size_t k = 0;
      for (const Indices& axis : t.axes)
        for (IndexId i : axis) {
          if (at.size() <= k) at.emplace_back();
          at[k++].insert(form.at(i).label);
        }
    }
    if (t.kind == Kind::map && (t.op == Op::add || t.op == Op::sub))
      for (size_t k : {0, 1}) {
        const TermId leaf = scaled(form, t.args[k]), other = scaled(form, t.args[1 - k]);
        const Kind kind = form.at(other).kind;
        if (form.at(leaf).kind == Kind::leaf && is_real(form.at(leaf).dtype) && kind != Kind::leaf &&
            kind != Kind::literal && kind != Kind::extent)
          beside.push_back({id, leaf});
      }
    if (t.kind == Kind::literal && is_real(t.dtype) && std::abs(t.value) >= 16 && std::abs(t.value) < 0x1p60)
      literals.insert(std::abs(t.value));
    for (IndexId i : t.bound) reduced.insert(form.at(i).label);
    if (t.kind == Kind::extent) extents.insert(t.extent);
    if (t.kind == Kind::map && (t.op == Op::add || t.op == Op::sub))
      if (const auto& together = summands(form, id); together.size() > 1) differences.insert(together);
    masked = masked || (t.kind == Kind::map && t.op == Op::where) || t.dtype == DType::boolean;
    empty_rows = empty_rows || (t.kind == Kind::map && t.op == Op::quot0);
    for (TermId a : t.args) visit(form, a);
  }
};

// Leaves that are scores of exponentials, or results, as they come in: nothing that multiplies or sums them stands
// between.
struct Direct {
  const Form& form;
  std::set<std::pair<TermId, bool>> seen;
  std::set<uint32_t> found, others;

  void visit(TermId id, bool open) {
    if (!seen.emplace(id, open).second) return;
    const Term& t = form.at(id);
    if (t.kind == Kind::leaf) (open ? found : others).insert(t.source);
    bool below = open;
    if (t.kind == Kind::map) {
      switch (t.op) {
        case Op::exp: below = true; break;
        case Op::add:
        case Op::sub:
        case Op::neg:
        case Op::max:
        case Op::min:
        case Op::where:
        case Op::isinf:
        case Op::eq:
        case Op::log: break;
        case Op::mul:
        case Op::div:
          below = below && std::any_of(t.args.begin(), t.args.end(), [&](TermId a) {
                    return form.at(a).kind == Kind::literal || form.at(a).kind == Kind::extent;
                  });
          break;
        default: below = false;
      }
    } else if (t.kind != Kind::reduce || (t.op != Op::amax && t.op != Op::amin)) {
      below = false;
    }
    for (TermId a : t.args) visit(a, below);
  }
};

}  // namespace

namespace {

// A leaf that nearly cancels what the sum brings it together with, as a residual of a good fit does: other leaves are
// large, and alike along what the leaf does not know. Nothing where the leaf is no plain summand.
std::optional<FloatDraw::Leaf> cancelling(Form& form, Lattice& lattice, const Contents& contents,
                                          const Contents::Beside& b, uint64_t seed) {
  const Term sum = form.at(b.sum), leaf = form.at(b.leaf);
  std::set<uint32_t> unknown;
  for (IndexId i : without(sum.free, leaf.free)) unknown.insert(form.at(i).label);
  const auto others = [seed, unknown, labels = contents.labels](uint32_t s, std::span<const int64_t> c) {
    std::vector<int64_t> known(c.begin(), c.end());
    const auto& at = labels.at(s);
    bool large = unknown.empty();
    for (size_t k = 0; k < known.size(); ++k)
      if (std::ranges::any_of(at[k], [&](uint32_t l) { return unknown.contains(l); })) known[k] = 0, large = true;
    return (large ? 256 * normal_at(seed + 10, s, known) : 0) + normal_at(seed + 11, s, c);
  };
  const auto with = [&](double x) {
    FloatDraw draw(
        form, lattice, [&](uint32_t s, std::span<const int64_t> c) { return s == leaf.source ? x : others(s, c); },
        false);
    return draw.of(b.sum).values;
  };
  const std::vector<double> zero = with(0), one = with(1);
  std::vector<const std::vector<uint32_t>*> at;
  for (const Indices& axis : leaf.axes)
    for (IndexId i : axis) at.push_back(&lattice.offsets(sum.free, {i}));
  std::map<std::vector<int64_t>, std::pair<double, int>> sums;
  const double factor = one[0] - zero[0];
  for (size_t i = 0; i < zero.size(); ++i) {
    if (!std::isfinite(zero[i]) || factor == 0 || !(std::abs(one[i] - zero[i] - factor) <= 1e-6 * std::abs(factor)))
      return std::nullopt;
    std::vector<int64_t> c;
    for (const auto* a : at) c.push_back((*a)[i]);
    auto& [total, count] = sums[c];
    total -= zero[i] / factor;
    ++count;
  }
  return [seed, others, sums, source = leaf.source](uint32_t s, std::span<const int64_t> c) {
    if (s != source) return others(s, c);
    const auto it = sums.find(std::vector<int64_t>(c.begin(), c.end()));
    return (it == sums.end() ? 0 : it->second.first / it->second.second) + normal_at(seed + 11, s, c);
  };
}

// Means of leaves that sums and differences bring together: those that cancel in a difference, and those in a sum.
std::map<uint32_t, double> alike(const std::set<uint32_t>& leaves) {
  std::map<uint32_t, double> out;
  for (uint32_t s : leaves) out[s] = 32768;
  return out;
}
std::map<uint32_t, double> alternating(const std::set<uint32_t>& leaves) {
  std::map<uint32_t, double> out;
  for (double mean = 32768; uint32_t s : leaves) out[s] = std::exchange(mean, -mean);
  return out;
}

}  // namespace

Screen::Screen(Form& form, const std::vector<TermId>& given, std::vector<TermId> reference, uint64_t seed)
    : form_(form), reference_(std::move(reference)) {
  Contents contents;
  for (TermId r : given) contents.visit(form_, r);
  for (TermId r : reference_) contents.visit(form_, r);
  const std::set<uint32_t>&leaves = contents.leaves, &reduced = contents.reduced;
  const bool masked = contents.masked;
  // Long where something is summed, as far as the largest term stays small.
  std::vector<int64_t> extents;
  size_t long_labels = reduced.size();
  int others = 0;
  for (uint32_t l = 0; l < form_.label_count(); ++l)
    extents.push_back(!reduced.contains(l) ? (++others <= 2 ? 2 : 1)
                      : long_labels <= 1   ? 61
                      : long_labels <= 2   ? 23
                      : long_labels <= 4   ? 7
                      : long_labels <= 8   ? 3
                                           : 2);
  // Labels whose extent the program counts by have one extent: that of those it reduces, or the product of its parts.
  std::map<sym::Expr, int64_t> counted;
  for (uint32_t l : reduced) counted.emplace(form_.label(l).extent, extents[l]);
  for (uint32_t l = 0; l < form_.label_count(); ++l) {
    const sym::Expr e = form_.label(l).extent;
    if (!contents.extents.contains(e)) continue;
    const auto product = form_.syms().evaluate(e, [&](sym::Expr s) -> int64_t {
      const auto it = counted.find(s);
      return it == counted.end() ? extents[l] : it->second;
    });
    const auto it = counted.find(e);
    extents[l] = it != counted.end() ? it->second : product.value_or(extents[l]);
  }
  lattice_.emplace(form_, std::move(extents));
  Direct direct{form_, {}, {}, {}};
  for (TermId r : given) direct.visit(r, true);
  cases_.push_back({"ordinary data", [seed](uint32_t s, auto c) { return normal_at(seed, s, c); }, Case::ordinary});
  cases_.push_back(
      {"large data", [seed](uint32_t s, auto c) { return 12 * normal_at(seed + 1, s, c); }, Case::ordinary});
  cases_.push_back(
      {"small data", [seed](uint32_t s, auto c) { return 1e-3 * normal_at(seed + 2, s, c); }, Case::ordinary});
  cases_.push_back({"one-hot rows",
                    [seed](uint32_t s, auto c) {
                      int64_t sum = 0;
                      for (int64_t x : c) sum += x;
                      return sum % 5 == static_cast<int64_t>(s % 5) ? 30.0 : 1e-2 * normal_at(seed + 3, s, c);
                    },
                    Case::ordinary});
  // What a mask leaves out altogether: a mean of nothing is NaN, and stays so when its denominator moves under the
  // mask.
  if (masked) cases_.push_back({"nothing but zeros", [](uint32_t, auto) { return 0.0; }, Case::poison});
  // Masks that leave nothing out.
  if (contents.bits)
    cases_.push_back({"positive data and masks that hold everywhere",
                      [seed](uint32_t s, auto c) { return 0.1 + std::abs(normal_at(seed + 14, s, c)); }, Case::ordinary,
                      true});
  // What differences cancel: large numbers that several inputs share, or an input and a number of the program.
  constexpr size_t kDifferences = 6, kNumbers = 3;
  const auto near = [seed](double mean, uint32_t s, auto c) {
    return std::round(8 * normal_at(seed + 5, s, c)) / 8 + mean;  // coarse enough that adding such numbers is exact
  };
  const bool several = leaves.size() > 1;
  size_t shared = 0;
  for (const std::set<uint32_t>& together : contents.differences) {
    if (++shared > kDifferences) break;
    for (const std::map<uint32_t, double>& means : {alike(together), alternating(together)})
      cases_.push_back({fmt::format("means of {} in the inputs {}", fmt::join(means | std::views::values, ", "),
                                    fmt::join(means | std::views::keys, ", ")),
                        [near, means](uint32_t s, auto c) {
                          const auto it = means.find(s);
                          return near(it == means.end() ? 0 : it->second, s, c);
                        },
                        Case::ordinary, true});
  }
  size_t cancelled = 0;
  for (const Contents::Beside& b : contents.beside) {
    if (cancelled == kDifferences) break;
    if (auto leaf = cancelling(form_, *lattice_, contents, b, seed)) {
      ++cancelled;
      cases_.push_back({fmt::format("input {} near what it is subtracted from", form_.at(b.leaf).source),
                        std::move(*leaf), Case::ordinary, true});
    }
  }
  // Sums of products that cancel in pairs: one input alternates, the others change little from one to the next. The
  // order of sums matters there, so that only another degree of cancellation is refused, as of the square of a sum.
  constexpr double kOtherOrder = 64;
  if (several)
    for (uint32_t leaf : leaves) {
      std::vector<int64_t> ends;  // of coordinates that have a partner
      for (const auto& at : contents.labels.at(leaf)) {
        int64_t n = 1;
        for (uint32_t l : at) n = std::max(n, lattice_->of_label(l));
        ends.push_back(n / 2 * 2);
      }
      cases_.push_back({fmt::format("signs that alternate in input {}", leaf),
                        [seed, leaf, ends](uint32_t s, auto c) {
                          std::vector<int64_t> pair;
                          int64_t sum = 0;
                          bool alone = false;
                          for (size_t k = 0; k < c.size(); ++k) {
                            pair.push_back(c[k] / 2);
                            sum += c[k];
                            alone = alone || (s == leaf && c[k] >= ends[k] && ends[k] > 0);
                          }
                          const double x = normal_at(seed + 12, s, c);
                          if (s != leaf) return normal_at(seed + 13, s, pair) + 0x1p-12 * x;
                          return alone ? 0.0 : (sum % 2 ? -5000 : 5000) + x;
                        },
                        Case::ordinary, true, false, kOtherOrder});
    }
  // Of both signs: what a selection takes may hang on it. (A single input has its own +3000 and infinities below.)
  for (double mean : {3000.0, -3000.0})
    if (several || mean < 0)
      cases_.push_back({fmt::format("a mean of {} in all inputs", mean),
                        [seed, mean](uint32_t s, auto c) { return normal_at(seed + 4, s, c) + mean; }, Case::ordinary,
                        true});
  for (double infinity : {kInfinity, -kInfinity})
    if (several)
      cases_.push_back({fmt::format("{} in all inputs", infinity),
                        [seed, infinity](uint32_t s, auto c) {
                          const bool here = std::all_of(c.begin(), c.end(), [](int64_t x) { return x == 0; });
                          return here ? infinity : normal_at(seed, s, c);
                        },
                        Case::infinite});
  for (uint32_t leaf : leaves) {
    size_t numbers = 0;
    for (double number : contents.literals) {
      if (++numbers > kNumbers) break;
      for (double mean : {number, -number})
        cases_.push_back({fmt::format("a mean of {} in input {}", mean, leaf),
                          [seed, leaf, mean](uint32_t s, auto c) {
                            if (s != leaf) return normal_at(seed + 7, s, c);
                            const double unit = std::max(0.125, std::ldexp(1.0, std::ilogb(mean) - 23));
                            return mean + unit * std::round(2 * normal_at(seed + 7, s, c));
                          },
                          Case::ordinary, true});
    }
    // A mask as exporters write it, that large numbers are multiplied by.
    cases_.push_back({fmt::format("zeros and ones in input {}", leaf),
                      [seed, leaf](uint32_t s, auto c) {
                        const double x = normal_at(seed + 8, s, c);
                        return s != leaf ? x : x > -0.5 ? 1.0 : 0.0;
                      },
                      Case::ordinary, true});
    cases_.push_back({fmt::format("a mean of 3000 in input {}", leaf),
                      [seed, leaf](uint32_t s, auto c) { return normal_at(seed + 4, s, c) + (s == leaf ? 3000 : 0); },
                      Case::ordinary, true});
    cases_.push_back(
        {fmt::format("a mean of 32768 in input {}", leaf),
         [seed, near, leaf](uint32_t s, auto c) { return s == leaf ? near(32768, s, c) : normal_at(seed + 5, s, c); },
         Case::ordinary, true});
    // 0 times infinity, and 0 over 0.
    cases_.push_back({fmt::format("zeros in input {}", leaf),
                      [seed, leaf](uint32_t s, auto c) {
                        const double x = normal_at(seed + 9, s, c);
                        return s == leaf && std::abs(x) < 0.5 ? 0.0 : x;
                      },
                      Case::poison});
    cases_.push_back({fmt::format("nothing but zeros in input {}", leaf),
                      [seed, leaf](uint32_t s, auto c) { return s == leaf ? 0.0 : normal_at(seed + 9, s, c); },
                      Case::poison});
    // At several places where there are masks: what one leaves out must not come back as a factor (0 times NaN).
    for (int64_t place = 0; place < (masked ? 4 : 1); ++place)
      for (double poison : {kNan, kInfinity, -kInfinity})
        cases_.push_back({fmt::format("{} in input {}",
                                      std::isnan(poison) ? "a NaN"
                                      : poison > 0       ? "an infinity"
                                                         : "a negative infinity",
                                      leaf),
                          [seed, leaf, place, poison](uint32_t s, auto c) {
                            const bool here =
                                std::all_of(c.begin(), c.end(), [&](int64_t x) { return x == 0 || x == place; }) &&
                                (c.empty() || c.back() == place);
                            return s == leaf && here ? poison : normal_at(seed, s, c);
                          },
                          std::isnan(poison) ? Case::poison : Case::infinite, false,
                          direct.found.contains(leaf) && !direct.others.contains(leaf)});
  }
  for (const Case& c : cases_) {
    FloatDraw exact(form_, *lattice_, c.leaf, false);
    FloatDraw& rounded = rounded_.emplace_back(form_, *lattice_, c.leaf, true, &exact);
    FloatDraw moved(
        form_, *lattice_,
        [&](uint32_t s, std::span<const int64_t> at) {
          const double v = c.leaf(s, at);
          return normal_at(seed + 6, s, at) < 0 ? v * (1 - 0x1p-23) : v * (1 + 0x1p-23);
        },
        false);
    Expected e;
    for (size_t k = 0; k < reference_.size(); ++k) {
      const auto& want = exact.of(c.kind == Case::ordinary ? reference_[k] : given[k]).values;
      const auto& got = rounded.of(reference_[k]).values;
      const auto shaken =
          c.kind == Case::ordinary && !c.shifted ? moved.of(reference_[k]).values : std::vector<double>{};
      double worst = 0, largest = 0;
      for (size_t i = 0; i < want.size(); ++i) {
        if (!std::isfinite(want[i]) || std::abs(want[i]) > kLargest) continue;
        if (std::isfinite(got[i])) worst = std::max(worst, std::abs(want[i] - got[i]));
        if (!shaken.empty()) worst = std::max(worst, std::abs(want[i] - shaken[i]));
        largest = std::max(largest, std::abs(want[i]));
      }
      // A few times what the input graph's own form is off by, or what one rounding of its data costs where its sums
      // cancel, or what rounding a sum of this length may cost.
      const double terms = static_cast<double>(lattice_->largest());
      // A value that a mask leaves out of a row of zeros need not be multiplied by 0. Of an infinity nothing better is
      // asked than of the stable form, which is offered in any case.
      std::vector<bool> exempt(want.size());
      if (c.kind == Case::poison && contents.empty_rows) {
        const auto& stable = exact.of(reference_[k]).values;
        for (size_t i = 0; i < want.size(); ++i) exempt[i] = std::isnan(want[i]) && !std::isnan(stable[i]);
      }
      if (c.kind == Case::infinite)
        for (size_t i = 0; i < want.size(); ++i)
          exempt[i] = std::isfinite(want[i]) ? !std::isfinite(got[i])
                                             : !(std::isnan(want[i]) ? std::isnan(got[i]) : got[i] == want[i]);
      e.exempt.push_back(std::move(exempt));
      e.exact.push_back(want);
      e.allowed.push_back(
          std::vector<double>(want.size(), std::max(c.slack * worst, std::sqrt(terms) * 0x1p-22 * largest)));
    }
    rounded.stand_alone();
    expected_.push_back(std::move(e));
  }
}

Screen::Verdict Screen::judge(const std::vector<TermId>& candidate) {
  Verdict verdict;
  for (size_t k = 0; k < cases_.size(); ++k) {
    const Case& c = cases_[k];
    for (size_t r = 0; r < candidate.size(); ++r) {
      const auto& got = rounded_[k].of(candidate[r]).values;
      const auto& want = expected_[k].exact[r];
      for (size_t i = 0; i < want.size(); ++i) {
        const bool nan = std::isnan(want[i]);
        if (c.kind == Case::poison) {
          if (nan != std::isnan(got[i]) && !expected_[k].exempt[r][i])
            return {
                fmt::format("{}: it {}", c.name,
                            nan ? "does not reach an output that it should" : "reaches an output that it should not"),
                0};
          continue;
        }
        const bool strict = c.strict && !expected_[k].exempt[r][i];
        if (c.kind == Case::infinite && !std::isfinite(want[i])) {
          if (nan ? std::isnan(got[i]) : got[i] == want[i]) continue;
          ++verdict.infinities;
          // Infinities that meet in a sum of products: NaN, or the infinity that factors all of it.
          if (strict && !(nan && std::isinf(got[i])))
            return {fmt::format("{}: {} instead of {}", c.name, shown(got[i]), shown(want[i])), verdict.infinities};
        }
        if (!std::isfinite(want[i]) || std::abs(want[i]) > kLargest) continue;
        const double off = std::abs(got[i] - want[i]);
        if (c.kind == Case::infinite && !strict && !std::isfinite(got[i])) {
          ++verdict.infinities;
          continue;
        }
        if (!(off <= expected_[k].allowed[r][i]))
          return {fmt::format("{}: off by {:.2g} where {:.2g} is allowed", c.name, shown(off),
                              shown(expected_[k].allowed[r][i])),
                  0};
      }
    }
  }
  return verdict;
}

}  // namespace cleave::algebra
