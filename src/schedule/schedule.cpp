#include "schedule/schedule.hpp"

#include <algorithm>
#include <list>
#include <set>

#include "cost/estimate.hpp"
#include "graph/expand.hpp"
#include "schedule/blocks.hpp"
#include "schedule/masks.hpp"
#include "schedule/place.hpp"
#include "schedule/plan.hpp"

namespace cleave::schedule {

namespace {

// Results that a kernel other than their own reads, and outputs.
std::set<itgraph::ValueId> visible(const Plan& plan, const std::vector<Group>& groups) {
  std::vector<size_t> group_of(plan.units.size());
  for (size_t g = 0; g < groups.size(); ++g)
    for (size_t u : groups[g].units) group_of[u] = g;
  std::set<itgraph::ValueId> out;
  std::map<itgraph::ValueId, size_t> maker;
  for (size_t u = 0; u < plan.units.size(); ++u)
    for (itgraph::ValueId r : plan.units[u].results) {
      maker[r] = u;
      if (plan.it.value(r).alias_of.valid()) maker[plan.it.value(r).alias_of] = u;
      if (plan.it.value(r).role == itgraph::Role::output || plan.units[u].is_library()) out.insert(r);
    }
  auto reads = [&](itgraph::ValueId v, size_t reader) {
    const itgraph::ValueId base = plan.it.value(v).alias_of;
    auto it = maker.find(base.valid() ? base : v);
    if (it != maker.end() && group_of[it->second] != group_of[reader]) out.insert(it->first);
  };
  for (size_t u = 0; u < plan.units.size(); ++u) {
    if (plan.units[u].is_library()) {
      reads(std::get<itgraph::Library>(plan.units[u].what).source, u);
      continue;
    }
    for (const tile::Node& n : plan.units[u].compute().nodes)
      if (const auto* l = std::get_if<tile::Load>(&n.what)) reads(l->buffer, u);
  }
  return out;
}

Result<itgraph::Program> nested(const Plan& plan, const std::vector<Group>& groups,
                                const std::set<itgraph::ValueId>& seen, const Tiling& tiling) {
  itgraph::Program it = plan.it;
  for (const Group& g : groups) {
    auto kernel = build_kernel(plan, g, tiling, seen);
    if (!kernel) return diagnose(Code::not_schedulable, plan.units[g.units.back()].name, "its loops cannot be ordered");
    it.kernels.push_back(std::move(*kernel));
  }
  return it;
}

Result<Candidate> placed(itgraph::Program it, const Tiling& tiling, const Options& options, std::string_view cut) {
  Candidate c;
  c.it = std::move(it);
  if (Diagnostics bad = itgraph::verify(c.it); !bad.empty())
    CHECK(false, "{}\n{}", render(bad, nullptr), itgraph::print(c.it));
  TRY_ASSIGN(c.program, place(c.it, options.machine));
  if (Diagnostics bad = tile::verify(c.program); !bad.empty())
    CHECK(false, "{}\n{}", render(bad, nullptr), tile::print(c.program));
  for (const cost::KernelEstimate& e : cost::estimate(c.program, options.machine, options.threads)) {
    if (e.once) continue;
    c.kernels.push_back({e.name, e.flops, e.memory_bytes, e.seconds});
    c.seconds += e.seconds;
  }
  c.summary = fmt::format("{}: {} kernels, rows {}, columns {}, reduce {}, depth {}", cut, c.kernels.size(),
                          tiling.rows, tiling.columns, tiling.reduce, tiling.depth);
  return c;
}

// The same program over symbols of its own: those of the search are shared by all candidates, and are many.
void detach(Candidate& c) {
  const SourceText text{c.program.name, tile::print(c.program)};
  c.program = tile::parse(text).value();
}

// What masks leave of the reductions of a cut: the most elements that any row needs of a masked index. nullopt: nothing
// is masked.
std::optional<int64_t> masked_length(const Plan& plan, const std::vector<Group>& groups) {
  sym::Pool& syms = *plan.it.syms;
  std::optional<int64_t> out;
  Lengths lengths([&](itgraph::ValueId v) { return plan.it.value(v).role == itgraph::Role::input; });
  const std::function<Range(Expr)> one_row = [](Expr s) { return Range{s, s}; };
  for (const Group& g : groups) {
    std::map<itgraph::ValueId, const itgraph::Compute*> maps;
    std::list<itgraph::Compute> computes;
    for (size_t u : g.units) {
      if (plan.units[u].is_library()) continue;
      computes.push_back(renamed(plan, g, u));
      if (computes.back().how == itgraph::Compute::How::map) maps[computes.back().results[0].value] = &computes.back();
    }
    const MadeBy made_by = [&](itgraph::ValueId v) {
      auto it = maps.find(v);
      return it == maps.end() ? nullptr : it->second;
    };
    for (const itgraph::Compute& c : computes)
      for (Expr s : c.reduced) {
        const Assumptions needed = needed_for(syms, c, s, made_by, lengths);
        if (needed.empty()) continue;
        const LoopBounds b = bounds_of(syms, needed, s, plan.it.extents.at(s), 1, one_row);
        for (int64_t n : sampled(syms, syms.sub(b.hi, b.lo))) out = std::max(out.value_or(0), n);
      }
  }
  return out;
}

// Sizes worth trying.
std::vector<Tiling> tilings(const Options& options, std::optional<int64_t> masked) {
  // The default sizes are those that grouping was checked with.
  if (options.tile > 0) return {{options.tile, options.tile, options.tile, options.tile}, Tiling{}};
  std::vector<Tiling> out;
  // Tiles along the edge of a mask are computed in vain in part, the more the higher they are.
  const std::vector<int64_t> heights = masked ? std::vector<int64_t>{64, 32, 16} : std::vector<int64_t>{64, 128, 32};
  for (int64_t rows : heights)
    for (int64_t columns : {256, 128, 64})
      for (int64_t reduce : {128, 256, 64})
        for (int64_t depth : {256, 512}) out.push_back({rows, columns, reduce, depth});
  // So for narrow windows tiles down to 16 x 16.
  constexpr int64_t kNarrow = 256;
  if (masked && *masked <= kNarrow)
    for (int64_t rows : {64, 32, 16})
      for (int64_t reduce : {32, 16}) out.push_back({rows, 256, reduce, 256});
  return out;
}

// The best predicted tiling of one cut, and the next ones; programs that come out the same are kept once.
Result<std::vector<Candidate>> ranked(const Plan& plan, const std::vector<Group>& groups, const Options& options,
                                      std::string_view cut) {
  std::vector<Candidate> out;
  std::set<std::string> known;
  Diagnostics errors;
  const auto seen = visible(plan, groups);
  for (const Tiling& t : tilings(options, masked_length(plan, groups))) {
    auto it = nested(plan, groups, seen, t);
    if (!it) {
      errors = it.errors();
      continue;
    }
    if (!known.insert(itgraph::print(*it)).second) continue;
    auto c = placed(std::move(*it), t, options, cut);
    if (c)
      out.push_back(std::move(*c));
    else
      errors = c.errors();
  }
  if (out.empty()) return errors;
  std::stable_sort(out.begin(), out.end(),
                   [](const Candidate& a, const Candidate& b) { return a.seconds < b.seconds; });
  return out;
}

}  // namespace

Result<Candidate> unfused(const graph::Graph& graph, const Options& options) {
  TRY_ASSIGN(const Plan plan, make_plan(simplify_reductions(graph::expand_views(graph))));
  TRY_ASSIGN(auto all, ranked(plan, group_units(plan, false), options, "unfused"));
  detach(all.front());
  return std::move(all.front());
}

Result<std::vector<Candidate>> candidates(const graph::Graph& graph, const Options& options) {
  TRY_ASSIGN(const Plan plan, make_plan(simplify_reductions(graph::expand_views(graph))));
  TRY_ASSIGN(auto fused, ranked(plan, group_units(plan, true), options, "fused"));
  TRY_ASSIGN(auto apart, ranked(plan, group_units(plan, false), options, "unfused"));
  std::vector<Candidate> out;
  const size_t keep = std::max<size_t>(options.keep, 2);
  // Predictions are not that far off: what is several times slower than the best is not worth measuring.
  constexpr double kHopeless = 4;
  const double best = std::min(fused.front().seconds, apart.front().seconds);
  for (size_t i = 0; i < fused.size() && i + 1 < keep; ++i)
    if (fused[i].seconds < kHopeless * best) out.push_back(std::move(fused[i]));
  for (Candidate& c : apart)
    if (out.size() < keep && (out.empty() || c.seconds < kHopeless * best)) out.push_back(std::move(c));
  std::stable_sort(out.begin(), out.end(),
                   [](const Candidate& a, const Candidate& b) { return a.seconds < b.seconds; });
  for (Candidate& c : out) detach(c);
  return out;
}

}  // namespace cleave::schedule
