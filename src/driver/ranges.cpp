// Dimensions with a range: is the chosen program never slower than the unfused schedule, at both ends as well?
#include <algorithm>
#include <cmath>

#include "base/codes.hpp"
#include "driver/compile.hpp"
#include "driver/pipeline.hpp"
#include "runtime/timing.hpp"

namespace cleave::driver {

bool Dispatch::unfused(const DimValues& values) const {
  const auto all = [&](const std::optional<DimValues>& limit, bool below) {
    if (!limit) return false;
    for (const auto& [name, value] : values) {
      const auto it = limit->find(name);
      if (it != limit->end() && (below ? value > it->second : value < it->second)) return false;
    }
    return true;
  };
  // The algebra's graphs are equal on what has elements; a mean of nothing, for one, is as the graph was given.
  for (const auto& [name, value] : values)
    if (value == 0) return true;
  return all(up_to, true) || all(from, false);
}

namespace {

constexpr double kTooMuch = 4;

class Ranges {
 public:
  Ranges(Compilation& c, CompiledProgram& chosen, CompiledProgram& unfused)
      : c_(c), chosen_(chosen), unfused_(unfused) {
    if (c.options.threads > 1)
      executor_ = std::make_unique<ThreadPool>(c.options.threads);
    else
      executor_ = std::make_unique<SerialExecutor>();
  }

  // Both programs at these values: verified, then timed in pairs.
  Result<RangeEnd> measured(const DimValues& values) {
    RangeEnd out;
    out.values = values;
    if (size_at(*c_.bound, values) > kTooMuch) {
      out.why = "tensors of that size take too long to be timed";
      return out;
    }
    TRY_ASSIGN(const graph::Graph at, graph::bind(*c_.bound, values));
    auto data = tune::random_data(at, c_.options.seed);
    if (!data && data.errors()[0].code == Code::data_too_large) {
      out.why = data.errors()[0].message();
      return out;
    }
    if (!data) return data.errors();
    const tune::Problem problem{graph::expand(at), std::move(data->inputs), std::move(data->scalars),
                                std::move(data->constants)};
    tune::ReferenceOptions ro;
    ro.seed = c_.options.seed;
    // Up to a quarter of the budget; in part where that is too little (55 ns a step where values are in memory).
    ro.max_steps = std::clamp(c_.options.budget.seconds * 4e6, 4e7, 4e8);
    TRY_ASSIGN(const tune::Reference reference, tune::make_reference(problem, ro));
    tune::Results results(problem.graph);
    tune::Call call;
    for (const tune::Array& a : problem.inputs) call.inputs.push_back(a.data.data());
    call.scalars = problem.scalars;
    call.outputs = results.addresses();
    std::optional<tune::Verdict> first;
    std::vector<double> once;  // seconds of each
    for (auto [program, name] : {std::pair{&unfused_, "unfused"}, std::pair{&chosen_, "chosen"}}) {
      if (Diagnostics bad = program->set_extents(values); !bad.empty()) {
        if (bad[0].code != Code::data_too_large) return bad;
        out.why = bad[0].message();
        return out;
      }
      results.poison();
      const double begin = runtime::wall_seconds();
      if (Diagnostics bad = program->run(call, *executor_); !bad.empty()) return bad;
      once.push_back(runtime::wall_seconds() - begin);
      tune::Verdict v = tune::judge(reference, results, first ? &*first : nullptr, c_.options.tolerance);
      if (v.ok && !results.guards_intact()) {
        v.ok = false;
        v.text = "it wrote outside its outputs";
      }
      if (!v.ok) return diagnose(Code::wrong_result, name, v.text);
      first = std::move(v);
    }
    if (c_.options.deterministic) {
      out.why = "--deterministic";
      return out;
    }
    runtime::CompareOptions o;
    // Few where one takes long and the other a fraction of that.
    o.pairs = std::max(once[0], once[1]) > std::max(0.05, 4 * std::min(once[0], once[1])) ? 3 : 9;
    o.wall = c_.options.threads > 1;
    const runtime::Comparison r = runtime::compare([&] { (void)chosen_.run(call, *executor_); },
                                                   [&] { (void)unfused_.run(call, *executor_); }, o);
    out.seconds = r.seconds_a;
    out.unfused_seconds = r.seconds_b;
    out.speedup = r.ratio;
    out.interval = r.interval;
    return out;
  }

  // Where between values at which the unfused schedule is faster and others it stops being so: in a few steps, halving
  // the ratio of the values.
  Result<DimValues> crossing(DimValues slow, DimValues fast) {
    for (int step = 0; step < 4; ++step) {
      DimValues middle;
      bool between = false;
      for (const auto& [name, value] : fast) {
        const double a = static_cast<double>(slow.at(name)), b = static_cast<double>(value);
        middle[name] = std::llround(std::sqrt(std::max(a, 1.0) * std::max(b, 1.0)));
        between = between || (middle[name] != value && middle[name] != slow.at(name));
      }
      if (!between || c_.options.interrupted()) break;
      TRY_ASSIGN(const RangeEnd m, measured(middle));
      (m.why.empty() && m.speedup < 1 ? slow : fast) = middle;
    }
    return slow;
  }

 private:
  Compilation& c_;
  CompiledProgram &chosen_, &unfused_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace

namespace {

DimValues end_of(const Compilation& c, bool low) {
  DimValues end;
  for (const DimBinding& d : c.dims)
    // No elements at all are left to the unfused schedule anyway.
    if (d.option.is_range()) end[d.name] = low ? std::max<int64_t>(d.option.lo, 1) : d.option.hi;
  return end;
}

std::string text_of(const DimValues& values) {
  std::string text;
  for (const auto& [name, value] : values) text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, value);
  return text;
}

bool slower(const RangeEnd& at) { return at.why.empty() && at.speedup < 1; }

// What came nearest to the unfused schedule at the representative values: -1 where nothing was timed.
int runner_up(const tune::Outcome& o) {
  int best = -1;
  for (size_t i = 0; i < o.trials.size(); ++i)
    if (const auto& r = o.trials[i].comparison;
        r && (best < 0 || r->ratio > o.trials[static_cast<size_t>(best)].comparison->ratio))
      best = static_cast<int>(i);
  return best;
}

// A program for the high end of the ranges alone: calls up to where it is slower run the unfused schedule.
Diagnostics serve_high_end(Compilation& c, const std::shared_ptr<CompiledProgram>& unfused) {
  tune::Outcome& o = *c.outcome;
  const DimValues high = end_of(c, false);
  const int index = o.elsewhere ? o.chosen : runner_up(o);
  if (index < 0 || high == c.typical || c.options.interrupted()) return {};
  const schedule::Candidate& candidate = c.proposals.at(static_cast<size_t>(index)).candidate;
  auto program = compile(candidate.program, c.problem->constants, c.machine);
  if (!program) return program.errors();
  Ranges ranges(c, **program, *unfused);
  auto at = ranges.measured(high);
  if (!at) return at.errors();
  c.ends.push_back(*at);
  const bool faster = at->why.empty() && at->interval.low > 1;
  if (!faster && !o.elsewhere) return {};
  if (slower(*at)) {  // not any more what the tuning database says
    o.chosen = -1;
    o.elsewhere = false;
    o.candidate = *c.unfused;
    o.verdict = *o.unfused.verdict;
    o.runnable = unfused;
    return unfused->set_extents(c.typical);
  }
  auto limit = ranges.crossing(c.typical, high);
  if (!limit) return limit.errors();
  c.dispatch.up_to = *limit;
  c.notes.push_back(
      fmt::format("at larger extents it is faster: calls up to {} run the unfused schedule, others the candidate",
                  text_of(*limit)));
  o.chosen = index;
  o.elsewhere = true;
  o.candidate = candidate;
  o.verdict = *o.trials[static_cast<size_t>(index)].verdict;
  o.seconds = o.unfused_seconds;
  o.speedup = 1;
  o.speedup_interval = {1, 1};
  o.kernel_seconds.clear();
  if (Diagnostics bad = (*program)->set_extents(c.typical); !bad.empty()) return bad;
  o.runnable = std::move(*program);
  return {};
}

}  // namespace

Diagnostics measure_ranges(Compilation& c) {
  if (c.typical.empty()) return {};
  auto unfused = compile(c.unfused->program, c.problem->constants, c.machine);
  if (!unfused) return unfused.errors();
  if (c.outcome->chosen < 0 || c.outcome->elsewhere) return serve_high_end(c, *unfused);
  auto* chosen = dynamic_cast<CompiledProgram*>(c.outcome->runnable.get());
  if (!chosen) return {};
  Ranges ranges(c, *chosen, **unfused);
  for (const bool low : {true, false}) {
    const DimValues end = end_of(c, low);
    if (end == c.typical) continue;
    auto at = ranges.measured(end);
    if (!at) return at.errors();
    c.ends.push_back(*at);
    if (!slower(*at)) continue;
    auto limit = ranges.crossing(end, c.typical);
    if (!limit) return limit.errors();
    (low ? c.dispatch.up_to : c.dispatch.from) = *limit;
    c.notes.push_back(fmt::format("calls {} {} run the unfused schedule, which is faster there", low ? "up to" : "from",
                                  text_of(*limit)));
  }
  return chosen->set_extents(c.typical);
}

}  // namespace cleave::driver
