// Loops that masks bound: three parts over one body, with the comparisons decided in the middle one.
#include <functional>
#include <numeric>

#include "base/match.hpp"
#include "schedule/placer.hpp"

namespace cleave::schedule {

namespace {

void computes_in(const itgraph::Block& b, std::vector<const Compute*>& out) {
  for (const itgraph::Item& i : b.items)
    match(
        i.what, [&](const Compute& c) { out.push_back(&c); },
        [&](const itgraph::Block& inner) { computes_in(inner, out); });
}

}  // namespace

bool Placer::masked_loop(const itgraph::Block& b, const itgraph::TensorMap& map, std::vector<Statement>& body) {
  if (b.kind != itgraph::Kind::reduce || b.loops.size() != 1) return false;
  const Expr index = b.loops[0].index;
  const int64_t step = b.loops[0].step;
  std::vector<const Compute*> inside;
  computes_in(b, inside);
  std::map<ItValue, const Compute*> maps;
  bool stored = false;  // a value that outlives the loop has all its elements
  for (const Compute* c : inside)
    if (c->how == Compute::How::map)
      for (const itgraph::Target& t : c->results) {
        maps[t.value] = c;
        stored = stored || (visible_.count(t.value) && std::find(t.axes.begin(), t.axes.end(), index) != t.axes.end());
      }
  const MadeBy made_by = [&](ItValue v) {
    auto it = maps.find(v);
    return it == maps.end() ? nullptr : it->second;
  };
  int64_t quantum = step;
  for (int64_t q : {64, 32, 16})
    if (step > q && step % q == 0) {
      quantum = q;
      break;
    }
  const std::function<Range(Expr)> range = [&](Expr s) -> Range {
    if (!it_.extents.count(s)) return {s, s};
    const Expr first = map.of(s).offset;
    return {first, syms_.add(syms_.add(first, map.size(s)), -1)};
  };
  std::optional<LoopBounds> bounds;
  Assumptions all;
  for (const Compute* c : inside) {
    if (std::find(c->reduced.begin(), c->reduced.end(), index) == c->reduced.end()) continue;
    Assumptions needed = needed_for(syms_, *c, index, made_by, lengths_);
    std::erase_if(needed, [&](const auto& x) { return !knows_lengths(x.first.value, map); });
    if (needed.empty() && inside.size() == 1) return false;
    const LoopBounds own = bounds_of(syms_, needed, index, it_.extents.at(index), quantum, range);
    bounds = bounds ? hull(syms_, *bounds, own) : own;
    for (const auto& [atom, truth] : needed) {
      auto [it, added] = all.emplace(atom, truth);
      if (!added && it->second != truth) return false;  // what one needs another one excludes
    }
  }
  if (!bounds || all.empty()) return false;
  if (stored) {
    bounds->lo = syms_.constant(0);
    bounds->hi = it_.extents.at(index);
    bounds->everywhere.clear();
  }

  // Relative to the interval around, if another loop over the index has one.
  const itgraph::Interval around = map.of(index);
  const bool inner = around.tile > 0;
  const Expr limit = inner ? map.size(index) : it_.extents.at(index);
  const Expr last = inner ? syms_.add(around.offset, limit) : limit;
  struct Part {
    Expr begin, end;
    bool full;
  };
  const Expr after = bounds->full_hi == bounds->hi ? bounds->hi : syms_.max(bounds->full_lo, bounds->full_hi);
  const Expr before = bounds->full_lo == bounds->lo ? bounds->lo : syms_.min(bounds->full_lo, bounds->hi);
  std::vector<Part> parts = {{bounds->lo, before, false},
                             {bounds->full_lo, syms_.min(bounds->full_hi, bounds->hi), true},
                             {after, bounds->hi, false}};
  // Few unmasked tiles are not worth a body of their own.
  const auto full = sampled(syms_, syms_.sub(bounds->full_hi, bounds->full_lo));
  const auto visited = sampled(syms_, syms_.sub(bounds->hi, bounds->lo));
  const auto total = [](const std::vector<int64_t>& v) {
    int64_t sum = 0;
    for (int64_t x : v) sum += std::max<int64_t>(x, 0);
    return sum;
  };
  if (4 * total(full) < total(visited)) parts = {{bounds->lo, bounds->hi, false}};
  std::erase_if(parts, [&](const Part& p) { return syms_.at_most(p.end, p.begin) == sym::Proof::yes; });

  std::set<Expr> read;
  for (const Part& p : parts)
    for (Expr bound : {p.begin, p.end})
      for (Expr s : syms_.symbols_of(bound))
        if (lengths_.element(s) && bound_lengths_.insert(s).second) read.insert(s);
  std::vector<Statement> all_parts;
  const Assumptions outer = known_;
  for (const Part& p : parts) {
    known_.insert(bounds->everywhere.begin(), bounds->everywhere.end());
    if (p.full) known_.insert(all.begin(), all.end());
    const int64_t n = inner ? around.tile : most(index);
    const Expr counter = syms_.fresh(syms_.symbol_name(index), {0, std::max<int64_t>(n - 1, 0)});
    const int64_t aligned = std::gcd(quantum, inner ? around.aligned : quantum);
    syms_.set_multiple(counter, std::gcd(aligned, step));
    const Expr begin = inner ? syms_.max(syms_.sub(p.begin, around.offset), syms_.constant(0)) : p.begin;
    const Expr end = inner ? syms_.min(syms_.sub(p.end, around.offset), limit) : p.end;
    itgraph::TensorMap deeper = map;
    deeper.enter(index, counter, step, std::gcd(aligned, step), inner ? syms_.min(p.end, last) : p.end);
    tile::For loop{counter, begin, end, step, false, {}};
    items(b, deeper, loop.body);
    all_parts.push_back({std::move(loop)});
    known_ = outer;
  }
  for (Expr s : read) bound_lengths_.erase(s);
  for (Statement& s : with_lengths(std::move(all_parts), read, map)) body.push_back(std::move(s));
  return true;
}

bool Placer::knows_lengths(Expr e, const itgraph::TensorMap& map) const {
  for (Expr s : syms_.symbols_of(e))
    if (const Lengths::Element* x = lengths_.element(s))
      for (Expr at : x->at)
        for (Expr index : syms_.symbols_of(at))
          if (it_.extents.count(index) && map.most(index) != 1) return false;
  return true;
}

std::vector<Statement> Placer::with_lengths(std::vector<Statement> body, const std::set<Expr>& lengths,
                                            const itgraph::TensorMap& map) {
  for (Expr s : lengths) {
    const Lengths::Element& x = *lengths_.element(s);
    std::unordered_map<Expr, Expr> by;
    for (Expr at : x.at)
      for (Expr index : syms_.symbols_of(at))
        if (it_.extents.count(index)) by[index] = map.of(index).offset;
    const sym::Interval range = syms_.symbol_range(s);
    tile::Let let{s,
                  memory(x.value),
                  substituted(syms_, x.at, by),
                  syms_.constant(range.lo),
                  syms_.constant(range.hi),
                  std::move(body)};
    body.clear();
    body.push_back({std::move(let)});
  }
  return body;
}

}  // namespace cleave::schedule
