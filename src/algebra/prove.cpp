// The value graph's producers applied to exact random data: what does not reproduce its class is refused, and classes
// that are equal are joined.
#include <algorithm>
#include <numeric>

#include "algebra/values.hpp"

namespace cleave::algebra {

using graph::Op;

int Values::exp_depth(PolyId p) {
  if (auto it = depth_.find(p); it != depth_.end()) return it->second;
  int depth = 0;
  const Poly poly = normal_.at(p);
  for (const Monomial& m : poly)
    for (const Factor& f : m.factors) {
      const Atom a = normal_.at(f.atom);
      int inner = 0;
      for (PolyId q : a.args) inner = std::max(inner, exp_depth(q));
      depth = std::max(depth, inner + (a.kind == AtomKind::exp));
    }
  return depth_[p] = depth;
}

bool Values::has_predicate(PolyId p) {
  if (auto it = has_predicate_.find(p); it != has_predicate_.end()) return it->second;
  bool yes = false;
  const Poly poly = normal_.at(p);
  for (const Monomial& m : poly)
    for (const Factor& f : m.factors) {
      const Atom a = normal_.at(f.atom);
      yes = yes || a.predicate || a.dtype == DType::boolean || a.kind == AtomKind::mask || a.op == Op::where;
      for (PolyId q : a.args) yes = yes || has_predicate(q);
    }
  return has_predicate_[p] = yes;
}

void Values::test(uint64_t seed, int draws) {
  int depth = 0;
  for (const ValueClass& v : classes_) depth = std::max(depth, exp_depth(v.poly));
  // A label that is never reduced and has one index only is evaluated at one coordinate.
  std::vector<uint32_t> copies(form_.label_count(), 0);
  for (const ValueClass& v : classes_)
    for (IndexId i : normal_.free(v.poly))
      copies[form_.at(i).label] = std::max(copies[form_.at(i).label], form_.at(i).copy + 1);
  std::vector<std::vector<bool>> ok(classes_.size());
  std::vector<bool> opaque(classes_.size());
  for (size_t c = 0; c < classes_.size(); ++c) ok[c].assign(classes_[c].producers.size(), true);
  joined_.resize(classes_.size());
  std::iota(joined_.begin(), joined_.end(), 0u);
  std::vector<uint64_t> keys(classes_.size(), 0x636c61);
  // Values under roots should have roots; after many attempts without that, sqrt(x)^2 = x may go unproved.
  std::set<AtomId> rooted;
  for (const ValueClass& v : classes_)
    for (const Monomial& m : normal_.at(v.poly))
      for (const Factor& f : m.factors)
        if (!f.power.integer()) rooted.insert(f.atom);
  const Tower tower(std::min(6, depth + 1), seed);
  int done = 0, rejected = 0;
  for (int attempt = 0; rejected < 300 && done < draws; ++attempt) {
    std::vector<int64_t> extents;
    for (uint32_t l = 0; l < form_.label_count(); ++l)
      extents.push_back(
          !reduced_labels_.contains(l) && copies[l] <= 1 ? 1 : 3 + 2 * ((l + static_cast<uint32_t>(attempt)) % 2));
    Draw draw(normal_, tower, mix(seed, 0x1000 + static_cast<uint64_t>(attempt)), std::move(extents));
    if (rejected < 200 && !std::all_of(rooted.begin(), rooted.end(), [&](AtomId a) { return draw.has_root(a); })) {
      ++rejected;
      continue;
    }
    for (size_t c = 0; c < classes_.size(); ++c) draw.of(classes_[c].poly);
    if (draw.unlucky()) {  // a division by zero, as of a row that is masked wholly
      ++rejected;
      continue;
    }
    ++done;
    for (size_t c = 0; c < classes_.size(); ++c) {
      const Print& want = draw.of(classes_[c].poly);
      opaque[c] = opaque[c] || want.bad;
      keys[c] = mix(keys[c], draw.key(want));
      for (size_t k = 0; k < classes_[c].producers.size(); ++k) {
        const Producer& p = classes_[c].producers[k];
        if (p.term.valid() || p.is_view() || !ok[c][k]) continue;
        ++applications_;
        std::vector<PolyId> args;
        std::vector<DType> types;
        for (ClassId a : p.args) {
          args.push_back(classes_[a].poly);
          types.push_back(classes_[a].dtype);
        }
        Print got;
        switch (p.kind) {
          case Kind::map: got = draw.map(p.op, classes_[c].dtype, p.to, args, types); break;
          case Kind::reduce: got = draw.reduce(p.op, p.bound, args[0], p.result); break;
          case Kind::contract: got = draw.contract(p.bound, args[0], args[1]); break;
          default: CHECK(false, "a producer of kind {}", static_cast<int>(p.kind));
        }
        ok[c][k] = Draw::same(got, want);
      }
    }
  }
  for (size_t c = 0; c < classes_.size(); ++c) {
    std::vector<Producer> kept;
    for (size_t k = 0; k < ok[c].size(); ++k) {
      Producer& p = classes_[c].producers[k];
      // What cannot be evaluated exactly, or never could be drawn, stays as it was given.
      const bool sure = p.is_view() || (ok[c][k] && (done == draws || p.term.valid()) && !opaque[c]);
      disputed_ = disputed_ || (p.given && !ok[c][k] && !opaque[c]);
      if (sure || p.given)
        kept.push_back(std::move(p));
      else
        ++refused_;
    }
    classes_[c].producers = std::move(kept);
  }
  std::map<std::tuple<uint64_t, Indices, DType>, ClassId> seen;
  for (size_t c = 0; c < classes_.size(); ++c) {
    // A condition is one bit an element: equality on a few elements would say little, so there the normal form decides.
    if (opaque[c] || done < draws || classes_[c].dtype == DType::boolean || has_predicate(classes_[c].poly)) continue;
    auto [it, fresh] =
        seen.emplace(std::tuple(keys[c], normal_.free(classes_[c].poly), classes_[c].dtype), static_cast<ClassId>(c));
    if (fresh) continue;
    joined_[c] = it->second;
    auto& into = classes_[it->second].producers;
    for (Producer& p : classes_[c].producers)
      if (std::find(into.begin(), into.end(), p) == into.end()) into.push_back(p);
    classes_[it->second].given = classes_[it->second].given || classes_[c].given;
  }
  join_licensed();
}

// The other class's producers come to the first one under the rule's name.
void Values::join_licensed() {
  for (const auto& [a, b] : licensed_) {
    const ClassId to = find(a), from = find(b);
    if (to == from) continue;
    for (ClassId& j : joined_)
      if (j == from) j = to;
    ValueClass &x = classes_[to], &y = classes_[from];
    for (Producer p : y.producers) {
      if (std::find(x.producers.begin(), x.producers.end(), p) != x.producers.end()) continue;
      p.rule = "scale invariance";
      x.producers.push_back(std::move(p));
    }
    x.given = x.given || y.given;
  }
}

}  // namespace cleave::algebra
