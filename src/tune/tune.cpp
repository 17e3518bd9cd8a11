#include "tune/tune.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "base/codes.hpp"
#include "tune/placement.hpp"

namespace cleave::tune {

const char* name(Stop stop) {
  switch (stop) {
    case Stop::exhausted: return "exhausted";
    case Stop::budget: return "budget";
    case Stop::no_gain: return "no_gain";
    case Stop::interrupted: return "interrupted";
    case Stop::deterministic: return "deterministic";
    case Stop::remembered: return "remembered";
  }
  return "";
}

const char* name(Trial::State state) {
  switch (state) {
    case Trial::State::waiting: return "waiting";
    case Trial::State::refused: return "refused";
    case Trial::State::wrong: return "wrong";
    case Trial::State::slow: return "slow";
    case Trial::State::timed: return "timed";
    case Trial::State::same: return "same";
  }
  return "";
}

namespace {

constexpr double kHopeless = 3;

std::string text_of(const Diagnostics& diagnostics) { return diagnostics.front().message(); }

class Tuner {
 public:
  Tuner(const Problem& problem, const Compile& compile, const Options& options)
      : problem_(problem),
        compile_(compile),
        options_(options),
        start_(runtime::wall_seconds()),
        unfused_results_(problem.graph) {
    if (options.threads > 1)
      executor_ = std::make_unique<ThreadPool>(options.threads);
    else
      executor_ = std::make_unique<SerialExecutor>();
  }

  Result<Outcome> run(const schedule::Candidate& unfused, std::vector<Proposal>& proposals) {
    if (auto bad = prepare(unfused)) return *bad;
    for (const Proposal& p : proposals) {
      Trial t;
      t.graph = p.graph;
      t.summary = p.candidate.summary;
      t.predicted_seconds = p.candidate.seconds;
      out_.trials.push_back(std::move(t));
    }
    if (options_.deterministic)
      choose_by_model(unfused, proposals);
    else if (!options_.remembered || !recall(unfused, proposals))
      search(unfused, proposals);
    return std::move(out_);
  }

 private:
  struct Runner {
    size_t trial;
    std::shared_ptr<Runnable> runnable;
    double ratio;
  };

  double elapsed() const { return runtime::wall_seconds() - start_; }
  bool late(double reserve) const { return elapsed() + reserve > options_.budget.seconds; }

  Call call(Results& results) const {
    Call c;
    for (const Array& a : problem_.inputs) c.inputs.push_back(a.data.data());
    c.scalars = problem_.scalars;
    c.outputs = results.addresses();
    return c;
  }

  // `program`: says which, and may find a fault of ours on the way.
  Result<std::shared_ptr<Runnable>> compiled(const std::function<const tile::Program&()>& program, Trial& trial) {
    const double begin = runtime::wall_seconds();
    Result<std::shared_ptr<Runnable>> r = [&]() -> Result<std::shared_ptr<Runnable>> {
      try {
        return compile_(program());
      } catch (const InternalError& e) {
        // A fault of ours in one candidate leaves the others.
        return diagnose(Code::codegen_failed, std::string("internal fault: ") + e.what());
      }
    }();
    trial.codegen_seconds = runtime::wall_seconds() - begin;
    out_.codegen_seconds += trial.codegen_seconds;
    return r;
  }

  // The reference, and the unfused schedule, compiled and judged by it.
  std::optional<Diagnostics> prepare(const schedule::Candidate& unfused) {
    double begin = runtime::wall_seconds();
    ReferenceOptions ro = options_.reference;
    ro.seed = options_.seed;
    auto reference = make_reference(problem_, ro);
    if (!reference) return reference.errors();
    reference_ = std::move(*reference);
    out_.complete_reference = reference_.complete;
    out_.verify_seconds += runtime::wall_seconds() - begin;

    out_.unfused.summary = unfused.summary;
    out_.unfused.predicted_seconds = unfused.seconds;
    auto r = compiled([&]() -> const tile::Program& { return unfused.program; }, out_.unfused);
    if (!r) return r.errors();
    unfused_ = *r;
    begin = runtime::wall_seconds();
    if (Diagnostics bad = unfused_->run(call(unfused_results_), *executor_); !bad.empty()) return bad;
    Verdict v = judge(reference_, unfused_results_, nullptr, options_.tolerance);
    if (v.ok && !unfused_results_.guards_intact()) {
      v.ok = false;
      v.text = "it wrote outside its outputs";
    }
    if (!v.ok) return Diagnostics{diagnose(Code::wrong_result, "unfused", v.text)};
    unfused_run_ = one_run(*unfused_, unfused_results_);
    out_.unfused.seconds = unfused_run_;
    out_.unfused.verdict = v;
    out_.unfused.state = Trial::State::timed;
    out_.verdict = std::move(v);
    out_.verify_seconds += runtime::wall_seconds() - begin;
    return std::nullopt;
  }

  double now() const { return options_.threads > 1 ? runtime::wall_seconds() : runtime::thread_cpu_seconds(); }
  double one_run(Runnable& r, Results& results) {
    const double begin = now();
    CHECK(r.run(call(results), *executor_).empty(), "a second run failed");
    return now() - begin;
  }

  // Compiles and verifies; null when the candidate is out, with the reason in the trial.
  std::shared_ptr<Runnable> verified(schedule::Candidate& candidate, Trial& trial) {
    auto r = compiled(
        [&]() -> const tile::Program& {
          schedule::finish(candidate);
          return candidate.program;
        },
        trial);
    if (!r) {
      trial.state = Trial::State::refused;
      trial.why = text_of(r.errors());
      return nullptr;
    }
    const double begin = runtime::wall_seconds();
    if (results_)
      results_->poison();
    else
      results_.emplace(problem_.graph);
    const double run_begin = now();
    const Diagnostics bad = (*r)->run(call(*results_), *executor_);
    trial.seconds = now() - run_begin;
    if (!bad.empty()) {
      trial.state = Trial::State::refused;
      trial.why = text_of(bad);
      return nullptr;
    }
    Verdict v = judge(reference_, *results_, &*out_.unfused.verdict, options_.tolerance);
    if (v.ok && !reference_.complete) {
      v.text = disagreement(reference_, *results_, unfused_results_, options_.tolerance);
      v.ok = v.text.empty();
    }
    if (v.ok && !results_->guards_intact()) {
      v.ok = false;
      v.text = "it wrote outside its outputs";
    }
    out_.verify_seconds += runtime::wall_seconds() - begin;
    trial.verdict = v;
    if (v.ok) return *r;
    trial.state = Trial::State::wrong;
    trial.why = v.text;
    return nullptr;
  }

  runtime::Comparison compare(Runnable& a, const Call& call_a, Runnable& b, const Call& call_b, int pairs) {
    const double begin = runtime::wall_seconds();
    runtime::CompareOptions o;
    o.pairs = pairs;
    o.wall = options_.threads > 1;
    const runtime::Comparison c =
        runtime::compare([&] { CHECK(a.run(call_a, *executor_).empty(), "a timed run failed"); },
                         [&] { CHECK(b.run(call_b, *executor_).empty(), "a timed run failed"); }, o);
    const double wall = runtime::wall_seconds() - begin;
    out_.measure_seconds += wall;
    pair_wall_ = wall / pairs;
    return c;
  }
  runtime::Comparison compare(Runnable& candidate, int pairs) {
    return compare(candidate, call(*results_), *unfused_, call(unfused_results_), pairs);
  }

  // The comparison that decides: of short programs in several places.
  runtime::Comparison compare_finally(Runnable& candidate, const schedule::Candidate& schedule,
                                      const schedule::Candidate& unfused, int pairs) {
    std::vector<runtime::Comparison> places{compare(candidate, pairs)};
    for (int place = 1;
         place < kPlaces && places[0].interval.low > 1 && places[0].seconds_a < kPlacedBelow && !options_.interrupted();
         ++place) {
      const double begin = runtime::wall_seconds();
      const auto a = recompiled(schedule.program), b = recompiled(unfused.program);
      const Placement data_a(problem_, options_.seed + 2 * static_cast<uint64_t>(place)),
          data_b(problem_, options_.seed + 2 * static_cast<uint64_t>(place) + 1);
      out_.codegen_seconds += runtime::wall_seconds() - begin;
      places.push_back(compare(*a, data_a.call(), *b, data_b.call(), pairs));
    }
    return together(std::move(places));
  }
  std::shared_ptr<Runnable> recompiled(const tile::Program& program) {
    auto r = compile_(program);
    CHECK(r, "a program that was compiled does not compile again: {}", text_of(r.errors()));
    return *r;
  }

  // Wall seconds that the final pairs of n candidates take, by the pairs so far: on a busy machine far more than CPU
  // time.
  double final_cost(size_t n) const {
    return static_cast<double>(n) * options_.final_pairs * pair_wall_ * (best_run_ < kPlacedBelow ? kPlaces : 1);
  }

  void report(size_t tried, size_t all, bool new_best) {
    Progress p;
    p.tried = tried;
    p.proposals = all;
    p.best_speedup = finalists_.empty() ? 1 : std::max(1.0, finalists_[0].ratio);
    p.seconds = elapsed();
    p.budget_seconds = options_.budget.seconds;
    p.new_best = new_best;
    options_.progress(p);
  }

  // True when it became the best.
  bool try_one(Proposal& proposal, size_t index, const std::string& unfused_text) {
    Trial& trial = out_.trials[index];
    if (tile::print(proposal.candidate.program) == unfused_text) {
      trial.state = Trial::State::same;
      trial.why = "this is the unfused schedule";
      return false;
    }
    const std::shared_ptr<Runnable> r = verified(proposal.candidate, trial);
    if (!r) return false;
    trial.seconds = std::min(trial.seconds, one_run(*r, *results_));
    const double best = finalists_.empty() ? unfused_run_ : std::min(unfused_run_, best_run_);
    if (trial.seconds > 1e-3 && trial.seconds > 1.5 * best) {
      trial.state = Trial::State::slow;
      trial.why = fmt::format("one run took {:.1f}x the best one's time", trial.seconds / best);
      return false;
    }
    trial.comparison = compare(*r, options_.pairs);
    trial.seconds = trial.comparison->seconds_a;
    trial.state = Trial::State::timed;
    const bool new_best =
        trial.comparison->ratio > 1 && (finalists_.empty() || trial.comparison->ratio > finalists_[0].ratio);
    finalists_.push_back({index, r, trial.comparison->ratio});
    std::stable_sort(finalists_.begin(), finalists_.end(),
                     [](const Runner& a, const Runner& b) { return a.ratio > b.ratio; });
    if (finalists_.size() > 2) finalists_.pop_back();
    best_run_ = out_.trials[finalists_[0].trial].seconds;
    return new_best;
  }

  void search(const schedule::Candidate& unfused, std::vector<Proposal>& proposals) {
    const std::string unfused_text = tile::print(unfused.program);
    out_.stop = Stop::exhausted;
    size_t tried = 0;
    int dry_rounds = 0;
    for (size_t begin = 0; begin < proposals.size() && out_.stop == Stop::exhausted; begin += options_.round) {
      bool gain = false;
      for (size_t i = begin; i < std::min(proposals.size(), begin + options_.round); ++i) {
        // What the reference takes may be all of a short budget: the best by the model is tried all the same.
        const bool owed = tried == 0 && options_.budget.seconds > 0;
        if (options_.interrupted())
          out_.stop = Stop::interrupted;
        else if (static_cast<int64_t>(tried) >= options_.budget.candidates || (late(0) && !owed))
          out_.stop = Stop::budget;
        else if (late(final_cost(finalists_.size())) && !owed) {
          out_.stop = Stop::budget;
          out_.notes.push_back(
              fmt::format("the last {:.2g} s of the budget were kept for comparing the best with the unfused schedule",
                          options_.budget.seconds - elapsed()));
        }
        // The model is right within a factor of two; what it puts at three times the best is not worth a run.
        else if (proposals[i].candidate.seconds > kHopeless * std::min(unfused.seconds, proposals[0].candidate.seconds))
          out_.stop = Stop::no_gain;
        if (out_.stop != Stop::exhausted) break;
        const bool best = try_one(proposals[i], i, unfused_text);
        gain |= best;
        report(++tried, proposals.size(), best);
      }
      dry_rounds = gain ? 0 : dry_rounds + 1;
      if (dry_rounds == 2 && out_.stop == Stop::exhausted && begin + options_.round < proposals.size())
        out_.stop = Stop::no_gain;
    }
    if (options_.interrupted()) out_.stop = Stop::interrupted;
    finish(unfused, proposals);
  }

  // The full protocol for the last two; the better one stays if it beats the unfused schedule.
  void finish(const schedule::Candidate& unfused, std::vector<Proposal>& proposals) {
    keep_unfused(unfused);
    size_t winner = finalists_.size();
    for (size_t i = 0; i < finalists_.size(); ++i) {
      Trial& trial = out_.trials[finalists_[i].trial];
      // An end by the user is soon: the five pairs that were measured have to do.
      if (!options_.interrupted()) {
        const double left = (options_.budget.seconds - elapsed()) / static_cast<double>(finalists_.size() - i);
        const double share = std::clamp(left / std::max(1e-9, final_cost(1)), 0.0, 1.0);
        const int pairs = std::max(options_.pairs, static_cast<int>(share * options_.final_pairs));
        trial.comparison =
            compare_finally(*finalists_[i].runnable, proposals[finalists_[i].trial].candidate, unfused, pairs);
        trial.seconds = trial.comparison->seconds_a;
      }
      finalists_[i].ratio = trial.comparison->ratio;
      if (winner == finalists_.size() || finalists_[i].ratio > finalists_[winner].ratio) winner = i;
    }
    if (winner == finalists_.size()) {
      out_.notes.push_back(fmt::format("{}; the unfused schedule is used",
                                       proposals.empty() ? "there was no candidate" : "no candidate could be timed"));
    } else {
      const Runner& best = finalists_[winner];
      const runtime::Comparison& c = *out_.trials[best.trial].comparison;
      out_.unfused_seconds = c.seconds_b;
      if (c.disturbed)
        out_.notes.push_back(
            "other programs ran beside the measurement, so its intervals are those of single pairs (measure again on a "
            "quiet machine, or with --threads 1)");
      out_.peak_gflops = c.peak_gflops;
      if (c.interval.low > 1) {
        out_.chosen = static_cast<int>(best.trial);
        out_.runnable = best.runnable;
        out_.candidate = proposals[best.trial].candidate;
        out_.verdict = *out_.trials[best.trial].verdict;
        out_.seconds = c.seconds_a;
        out_.speedup = c.ratio;
        out_.speedup_interval = c.interval;
      } else {
        out_.seconds = c.seconds_b;
        out_.notes.push_back(
            fmt::format("the best candidate was not faster than the unfused schedule ({:.3f}x, 95 % interval {:.3f} to "
                        "{:.3f}); the unfused schedule is used",
                        c.ratio, c.interval.low, c.interval.high));
      }
    }
    if (out_.seconds == 0) out_.seconds = out_.unfused_seconds = unfused_run_;
    out_.kernel_seconds = out_.runnable->kernel_seconds(call(unfused_results_));
  }

  void keep_unfused(const schedule::Candidate& unfused) {
    out_.chosen = -1;
    out_.runnable = unfused_;
    out_.candidate = unfused;
    out_.verdict = *out_.unfused.verdict;
  }

  // What an earlier run found: verified, and measured again if that was elsewhere. False: it does not hold here.
  bool recall(const schedule::Candidate& unfused, std::vector<Proposal>& proposals) {
    const Remembered& r = *options_.remembered;
    keep_unfused(unfused);
    if (r.proposal < 0) {
      if (!r.current) return false;
      out_.seconds = out_.unfused_seconds = r.unfused_seconds;
    } else {
      const auto at = static_cast<size_t>(r.proposal);
      Trial& trial = out_.trials[at];
      const std::shared_ptr<Runnable> runnable = verified(proposals[at].candidate, trial);
      if (!runnable) {
        out_.notes.push_back("what the tuning database holds is not right here: " + trial.why);
        return false;
      }
      out_.seconds = r.seconds;
      out_.unfused_seconds = r.unfused_seconds;
      out_.speedup = r.speedup;
      out_.speedup_interval = r.interval;
      out_.elsewhere = r.speedup <= 1;
      if (!r.current) {
        trial.comparison = compare_finally(*runnable, proposals[at].candidate, unfused, options_.final_pairs);
        trial.state = Trial::State::timed;
        if (trial.comparison->interval.low <= 1) {
          trial.state = Trial::State::waiting;
          trial.comparison.reset();
          out_.speedup = 1;
          out_.speedup_interval = {1, 1};
          return false;
        }
        out_.seconds = trial.comparison->seconds_a;
        out_.unfused_seconds = trial.comparison->seconds_b;
        out_.speedup = trial.comparison->ratio;
        out_.speedup_interval = trial.comparison->interval;
        out_.peak_gflops = trial.comparison->peak_gflops;
      }
      trial.seconds = out_.seconds;
      out_.chosen = r.proposal;
      out_.runnable = runnable;
      out_.candidate = proposals[at].candidate;
      out_.verdict = *trial.verdict;
    }
    out_.stop = Stop::remembered;
    out_.kernel_seconds = out_.runnable->kernel_seconds(call(unfused_results_));
    return true;
  }

  void choose_by_model(const schedule::Candidate& unfused, std::vector<Proposal>& proposals) {
    out_.stop = Stop::deterministic;
    keep_unfused(unfused);
    out_.notes.push_back(
        "chosen by the cost model alone: that it is not slower than the unfused schedule is predicted, not measured");
    for (size_t i = 0; i < proposals.size(); ++i) {
      if (proposals[i].candidate.seconds >= unfused.seconds) continue;
      const std::shared_ptr<Runnable> r = verified(proposals[i].candidate, out_.trials[i]);
      out_.trials[i].seconds = 0;
      if (!r) continue;
      out_.chosen = static_cast<int>(i);
      out_.runnable = r;
      out_.candidate = proposals[i].candidate;
      out_.verdict = *out_.trials[i].verdict;
      return;
    }
  }

  const Problem& problem_;
  const Compile& compile_;
  const Options& options_;
  const double start_;
  std::unique_ptr<Executor> executor_;
  Results unfused_results_;
  std::optional<Results> results_;  // of candidates; made for the first one
  Reference reference_;
  std::shared_ptr<Runnable> unfused_;
  double unfused_run_ = 0, best_run_ = 0;
  double pair_wall_ = 0;  // wall seconds of a pair in the last comparison
  std::vector<Runner> finalists_;
  Outcome out_;
};

}  // namespace

void best_of_each_kind_first(std::vector<Proposal>& sorted) {
  constexpr double kNear = 1.5;
  std::vector<Proposal> first, others;
  std::set<std::string> kinds;
  for (Proposal& p : sorted) {
    const bool near = first.empty() || p.candidate.seconds <= kNear * first[0].candidate.seconds;
    const bool leads = near && kinds.insert(p.candidate.summary.substr(0, p.candidate.summary.find(':'))).second;
    (leads ? first : others).push_back(std::move(p));
  }
  std::move(others.begin(), others.end(), std::back_inserter(first));
  sorted = std::move(first);
}

Result<Outcome> tune(const Problem& problem, const schedule::Candidate& unfused, std::vector<Proposal>& proposals,
                     const Compile& compile, const Options& options) {
  return Tuner(problem, compile, options).run(unfused, proposals);
}

}  // namespace cleave::tune
