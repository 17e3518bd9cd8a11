#include "schedule/schedule.hpp"

#include <algorithm>
#include <limits>
#include <list>
#include <set>

#include "base/codes.hpp"
#include "cost/estimate.hpp"
#include "graph/expand.hpp"
#include "schedule/blocks.hpp"
#include "schedule/join.hpp"
#include "schedule/masks.hpp"
#include "schedule/place.hpp"
#include "schedule/plan.hpp"
#include "schedule/split.hpp"

namespace cleave::schedule {

void finish(Candidate& c) {
  if (c.finished) return;
  if (Diagnostics bad = itgraph::verify(c.it); !bad.empty())
    CHECK(false, "{}\n{}", render(bad, nullptr), itgraph::print(c.it));
  const SourceText text{c.program.name, tile::print(c.program)};
  auto own = tile::parse(text);  // verified
  CHECK(own.ok(), "{}\n{}", render(own.errors(), &text), text.text);
  c.program = std::move(*own);
  c.finished = true;
}

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

// Kernels that are tiled alike, or one by one; `joined`: parts are merged in the launch that computes them.
Result<itgraph::Program> nested(const Plan& plan, const std::vector<Group>& groups,
                                const std::set<itgraph::ValueId>& seen, std::span<const Tiling> tilings,
                                bool joined = false) {
  itgraph::Program it = plan.it;
  for (size_t g = 0; g < groups.size(); ++g) {
    auto kernel = build_kernel(plan, groups[g], tilings[std::min(g, tilings.size() - 1)], seen);
    if (!kernel)
      return diagnose(Code::not_schedulable, plan.units[groups[g].units.back()].name, "its loops cannot be ordered");
    it.kernels.push_back(std::move(*kernel));
  }
  if (!joined) return it;
  auto one = join(plan, groups, it.kernels, tilings[0], seen);
  if (!one) return diagnose(Code::not_schedulable, plan.it.name, "its parts are not merged by the tasks of one tile");
  it.kernels[one->rest] = std::move(one->kernel);
  it.kernels.erase(it.kernels.begin() + static_cast<std::ptrdiff_t>(one->parts));
  return it;
}

Result<Candidate> placed(itgraph::Program it, const Tiling& tiling, const Options& options, std::string_view cut) {
  Candidate c;
  c.it = std::move(it);
  std::vector<size_t> ends;
  TRY_ASSIGN(c.program, place(c.it, options.machine, {options.pack, options.panels, options.round_weights}, &ends));
  const auto estimates = cost::estimate(c.program, options.machine, options.threads);
  for (size_t i = 0, k = 0; i < estimates.size(); ++i) {
    while (ends[k] <= i) ++k;
    c.parts.resize(k + 1);
    const cost::KernelEstimate& e = estimates[i];
    if (e.once) continue;
    c.kernels.push_back({e.name, e.flops, e.memory_bytes, e.seconds, e.work});
    c.parts[k] += e.seconds;
    c.seconds += e.seconds;
  }
  c.tiling = tiling;
  c.summary =
      fmt::format("{}: {} kernels, rows {}{}, columns {}, reduce {}, depth {}", cut, c.kernels.size(), tiling.rows,
                  tiling.heads ? " of all heads" : "", tiling.columns, tiling.reduce, tiling.depth);
  return c;
}

// The loops of all kernels in order: of one cut they decide everything else.
void loops_of(const itgraph::Block& block, std::vector<std::pair<Expr, int64_t>>& out) {
  for (const itgraph::Loop& l : block.loops) out.emplace_back(l.index, l.step);
  out.emplace_back(Expr(), static_cast<int64_t>(block.kind));
  for (const itgraph::Item& i : block.items)
    if (const auto* inner = std::get_if<itgraph::Block>(&i.what)) loops_of(*inner, out);
}
std::vector<std::pair<Expr, int64_t>> loops_of(const itgraph::Program& it) {
  std::vector<std::pair<Expr, int64_t>> out;
  for (const itgraph::Kernel& k : it.kernels)
    if (const auto* block = std::get_if<itgraph::Block>(&k.what)) loops_of(*block, out);
  return out;
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

// Whether a place in memory is read from memory itself.
bool gathers(const Plan& plan) {
  return std::any_of(plan.units.begin(), plan.units.end(), [](const Unit& u) {
    return !u.is_library() && std::any_of(u.compute().nodes.begin(), u.compute().nodes.end(), [](const tile::Node& n) {
      const auto* l = std::get_if<tile::Load>(&n.what);
      return l && std::any_of(l->at.begin(), l->at.end(), [](const tile::Index& i) { return i.dynamic.valid(); });
    });
  });
}

// Sizes worth trying.
std::vector<Tiling> tilings(const Options& options, std::optional<int64_t> masked, bool gathers) {
  // The default sizes are those that grouping was checked with.
  if (options.tile > 0) return {{options.tile, options.tile, options.tile, options.tile, false}, Tiling{}};
  std::vector<Tiling> out;
  // Tiles along the edge of a mask are computed in vain in part, the more the higher they are.
  const std::vector<int64_t> heights = masked ? std::vector<int64_t>{64, 32, 16} : std::vector<int64_t>{64, 128, 32};
  for (int64_t rows : heights)
    for (int64_t columns : {256, 128, 64})
      for (int64_t reduce : {128, 256, 64})
        for (int64_t depth : {256, 512}) out.push_back({rows, columns, reduce, depth, false});
  // So for narrow windows tiles down to 16 x 16.
  constexpr int64_t kNarrow = 256;
  if (masked && *masked <= kNarrow)
    for (int64_t rows : {64, 32, 16})
      for (int64_t reduce : {32, 16}) out.push_back({rows, 256, reduce, 256, false});
  // What is gathered is best gathered once for all heads that read it.
  if (gathers)
    for (int64_t rows : {64, 128})
      for (int64_t reduce : {128, 256, 64}) out.push_back({rows, 256, reduce, 256, true});
  return out;
}

// The best predicted tiling of one cut, and the next ones; programs that come out the same are kept once.
Result<std::vector<Candidate>> ranked(const Plan& plan, const std::vector<Group>& groups, const Options& options,
                                      std::string_view cut, std::span<const Tiling> only = {}, bool joined = false) {
  std::vector<Candidate> out;
  std::set<std::vector<std::pair<Expr, int64_t>>> known;
  Diagnostics errors;
  const auto seen = visible(plan, groups);
  const std::vector<Tiling> all = only.empty() ? tilings(options, masked_length(plan, groups), gathers(plan))
                                               : std::vector<Tiling>(only.begin(), only.end());
  out.reserve(all.size() + 1);
  for (const Tiling& t : all) {
    auto it = nested(plan, groups, seen, std::span(&t, 1), joined);
    if (!it) {
      errors = it.errors();
      continue;
    }
    if (!known.insert(loops_of(*it)).second) continue;
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

// A cut, and how each of its kernels is tiled.
struct Cut {
  std::vector<Group> groups;
  std::vector<Tiling> tilings;
  std::vector<double> seconds;  // predicted for each
};

// Each kernel with the tiling that is best for it.
Cut best_tiled(const std::vector<Group>& groups, std::span<const Candidate> ranking) {
  Cut out{groups, {}, {}};
  for (size_t g = 0; g < groups.size(); ++g) {
    const auto best = std::min_element(ranking.begin(), ranking.end(),
                                       [&](const Candidate& a, const Candidate& b) { return a.parts[g] < b.parts[g]; });
    out.tilings.push_back(best->tiling);
    out.seconds.push_back(best->parts[g]);
  }
  return out;
}

// Each fused kernel, or the kernels that it stands for where these take less: the least sum of predicted times. Every
// unit is in one kernel of either cut.
Cut least_sum(const Cut& fused, const Cut& apart) {
  Cut out;
  const auto take = [&](const Cut& from, size_t g) {
    out.groups.push_back(from.groups[g]);
    out.tilings.push_back(from.tilings[g]);
    out.seconds.push_back(from.seconds[g]);
  };
  for (size_t f = 0; f < fused.groups.size(); ++f) {
    const std::vector<size_t>& units = fused.groups[f].units;
    const auto inside = [&](size_t u) { return std::find(units.begin(), units.end(), u) != units.end(); };
    std::vector<size_t> pieces;
    size_t covered = 0;
    double sum = 0;
    for (size_t a = 0; a < apart.groups.size(); ++a) {
      const std::vector<size_t>& own = apart.groups[a].units;
      if (!std::all_of(own.begin(), own.end(), inside)) continue;
      pieces.push_back(a);
      covered += own.size();
      sum += apart.seconds[a];
    }
    if (covered == units.size() && sum < fused.seconds[f])
      for (size_t a : pieces) take(apart, a);
    else
      take(fused, f);
  }
  return out;
}

std::optional<Candidate> composed(const Plan& plan, const Cut& cut, const Options& options, std::string_view name) {
  auto it = nested(plan, cut.groups, visible(plan, cut.groups), cut.tilings);
  if (!it) return std::nullopt;
  const size_t heaviest =
      static_cast<size_t>(std::max_element(cut.seconds.begin(), cut.seconds.end()) - cut.seconds.begin());
  auto c = placed(std::move(*it), cut.tilings[heaviest], options, name);
  if (!c) return std::nullopt;
  c->summary += ", kernels tiled one by one";
  return std::move(*c);
}

// Puts a candidate in its place when it is predicted to be better than all others.
void add_if_best(std::vector<Candidate>& ranking, std::optional<Candidate> c) {
  constexpr double kWorthIt = 0.995;
  if (c && (ranking.empty() || c->seconds < kWorthIt * ranking[0].seconds))
    ranking.insert(ranking.begin(), std::move(*c));
}

// A name for people: what a symbol was called before it was made unique.
std::string stem(const sym::Pool& syms, Expr s) {
  const std::string& name = syms.symbol_name(s);
  return name.substr(0, name.rfind('_'));
}

// How many parallel tasks the kernel of a group has with these tiles.
int64_t tasks_of(const Plan& plan, const Group& group, const Tiling& tiling, const std::set<itgraph::ValueId>& seen) {
  const auto kernel = build_kernel(plan, group, tiling, seen);
  const auto* b = kernel ? std::get_if<itgraph::Block>(&kernel->what) : nullptr;
  int64_t tasks = 1;
  if (b)
    for (const itgraph::Loop& l : b->loops) tasks *= (extent_of(plan, l.index) + l.step - 1) / l.step;
  return tasks;
}

// The heaviest kernel of a fused cut with its longest reduction in parts. Lengths follow from the machine alone, so
// that what is computed does not depend on the number of threads.
std::vector<Candidate> in_parts(const Plan& plan, const std::vector<Group>& groups, std::span<const Tiling> tiles,
                                const Options& options) {
  std::vector<Candidate> out;
  const auto seen = visible(plan, groups);
  constexpr int64_t kLongEnough = 512;
  const Group* heaviest = nullptr;
  double most = 0;
  for (const Group& g : groups) {
    double work = 0;
    for (size_t u : g.units) work += plan.units[u].work;
    if (work > most) most = work, heaviest = &g;
  }
  if (!heaviest) return out;
  Expr index;
  for (Expr s : splittable(plan, *heaviest))
    if (!index.valid() ||
        (options.part == 0 && extent_of(plan, index) < kLongEnough && extent_of(plan, s) > extent_of(plan, index)))
      index = s;
  if (!index.valid()) return out;
  const int64_t n = extent_of(plan, index), cores = std::max(options.machine.cores, 1);
  constexpr int64_t kTile = 64, kLeast = 128;  // four tiles of 32, the smallest that is usual
  std::vector<int64_t> lengths;
  if (options.part > 0) {
    lengths = {options.part};
  } else {
    const int64_t tasks = tasks_of(plan, *heaviest, tiles[0], seen);
    if (!options.split || cores < 2 || tasks >= 4 * cores) return out;
    for (int64_t share : {1, 2, 4}) {
      const int64_t parts = std::max<int64_t>(2, share * cores / tasks);
      const int64_t length = std::max(kLeast, (n + parts * kTile - 1) / (parts * kTile) * kTile);
      if (length < n && std::find(lengths.begin(), lengths.end(), length) == lengths.end()) lengths.push_back(length);
    }
  }
  for (int64_t length : lengths) {
    const auto parts = split(plan, *heaviest, index, length);
    if (!parts) continue;
    const int64_t count = (n + length - 1) / length;
    const std::vector<Group> regrouped = group_units(*parts, true);
    const std::string what = fmt::format("fused, {} in {} parts of {}", stem(*plan.it.syms, index), count, length);
    // Merged by the task that ends last at a tile, or by a launch of its own.
    for (const bool joined : {true, false}) {
      if (joined && !options.join) continue;
      auto ranking = ranked(*parts, regrouped, options, joined ? what : what + " merged apart", tiles, joined);
      if (!ranking) continue;
      for (Candidate& c : *ranking) out.push_back(std::move(c));
    }
  }
  return out;
}

}  // namespace

namespace {

graph::Graph simplified(const graph::Graph& graph) {
  return hoist_reciprocals(simplify_reductions(graph::expand_views(graph)));
}

}  // namespace

Result<std::vector<Refusal>> refused_fusions(const graph::Graph& graph) {
  TRY_ASSIGN(const Plan plan, make_plan(simplified(graph)));
  return refusals(plan);
}

Result<Candidate> unfused(const graph::Graph& graph, const Options& options) {
  TRY_ASSIGN(const Plan plan, make_plan(simplified(graph)));
  const std::vector<Group> groups = group_units(plan, false);
  TRY_ASSIGN(auto all, ranked(plan, groups, options, "unfused"));
  if (groups.size() > 1) add_if_best(all, composed(plan, best_tiled(groups, all), options, "unfused"));
  finish(all.front());
  return std::move(all.front());
}

Result<std::vector<Candidate>> candidates(const graph::Graph& graph, const Options& options) {
  TRY_ASSIGN(const Plan plan, make_plan(simplified(graph)));
  const std::vector<Group> single = group_units(plan, false);
  TRY_ASSIGN(auto apart, ranked(plan, single, options, "unfused"));
  const Cut apart_cut = best_tiled(single, apart);
  if (single.size() > 1) add_if_best(apart, composed(plan, apart_cut, options, "unfused"));
  std::vector<Candidate> fused;
  if (options.fuse) {
    const std::vector<Group> groups = group_units(plan, true);
    TRY_ASSIGN(fused, ranked(plan, groups, options, "fused"));
    // Parts are tiled like the best of what is whole.
    constexpr size_t kTilings = 4;
    std::vector<Tiling> tiles;
    for (size_t i = 0; i < std::min(fused.size(), kTilings); ++i) tiles.push_back(fused[i].tiling);
    std::vector<Candidate> parts = in_parts(plan, groups, tiles, options);
    if (const Cut cut = best_tiled(groups, fused); groups.size() > 1) {
      const Cut mixed = least_sum(cut, apart_cut);
      add_if_best(fused, composed(plan, cut, options, "fused"));
      if (mixed.groups.size() != groups.size()) add_if_best(fused, composed(plan, mixed, options, "fused in part"));
    }
    // Asked for, they come first.
    auto faster = [&](const Candidate& a, const Candidate& b) { return a.seconds < b.seconds; };
    std::stable_sort(parts.begin(), parts.end(), faster);
    const size_t whole = fused.size();
    for (Candidate& c : parts) fused.push_back(std::move(c));
    if (options.part > 0)
      std::rotate(fused.begin(), fused.begin() + static_cast<std::ptrdiff_t>(whole), fused.end());
    else
      std::stable_sort(fused.begin(), fused.end(), faster);
  }
  std::vector<Candidate> out;
  const size_t keep = options.every ? fused.size() + apart.size() + 1 : std::max<size_t>(options.keep, 2);
  // Predictions are not that far off: what is several times slower than the best is not worth measuring.
  const double hopeless = options.every ? std::numeric_limits<double>::infinity() : 4;
  double best = apart.front().seconds;
  for (const Candidate& c : fused) best = std::min(best, c.seconds);
  for (size_t i = 0; i < fused.size() && i + 1 < keep; ++i)
    if (fused[i].seconds < hopeless * best || options.part > 0) out.push_back(std::move(fused[i]));
  for (Candidate& c : apart)
    if (out.size() < keep && (out.empty() || c.seconds < hopeless * best)) out.push_back(std::move(c));
  std::stable_sort(out.begin(), out.end(),
                   [](const Candidate& a, const Candidate& b) { return a.seconds < b.seconds; });
  if (options.finish)
    for (Candidate& c : out) finish(c);
  return out;
}

}  // namespace cleave::schedule
