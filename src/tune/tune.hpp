// The tuning loop: which of many scheduled candidates is the fastest that is right.
//
// Candidates come in the order of predicted time. Rounds of a few are compiled, verified (tune/reference.hpp; nothing
// is timed before it is verified) and compared with the unfused schedule of the input graph in five interleaved pairs.
// The search ends when the budget does, when two rounds bring nothing, or when it is interrupted; then the best two
// meet the unfused schedule in 21 pairs, short ones in three places of memory (placement.hpp). A candidate is used only
// if it is faster with 95 % confidence, in each place; else the unfused schedule stays. So any end, early or late,
// leaves a verified program that is never slower.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/timing.hpp"
#include "schedule/schedule.hpp"
#include "tune/problem.hpp"
#include "tune/reference.hpp"

namespace cleave::tune {

struct Budget {
  double seconds = std::numeric_limits<double>::infinity();
  int64_t candidates = std::numeric_limits<int64_t>::max();
};

struct Proposal {
  int graph = 0;  // which of the equal graphs
  schedule::Candidate candidate;
};

// Where the model is wrong about a kind of schedule ("fused", "unfused": what its summary begins with), a short budget
// has to find that out: of proposals that are sorted by predicted time, the best of each kind that may come near (1.5
// times the best's) is moved before the others.
void best_of_each_kind_first(std::vector<Proposal>& sorted);

enum class Stop { exhausted, budget, no_gain, interrupted, deterministic, remembered };
const char* name(Stop stop);

struct Trial {
  enum class State { waiting, refused, wrong, slow, timed, same } state = State::waiting;
  int graph = 0;
  std::string summary;
  double predicted_seconds = 0;
  double codegen_seconds = 0;
  std::optional<Verdict> verdict;
  double seconds = 0;                             // of one run, or the median of the pairs
  std::optional<runtime::Comparison> comparison;  // with the unfused schedule; ratio above 1: this one is faster
  std::string why;                                // refused, wrong: what happened; slow: how slow
};
const char* name(Trial::State state);

struct Progress {
  size_t tried = 0, proposals = 0;
  double best_speedup = 1;
  double seconds = 0, budget_seconds = 0;
  bool new_best = false;
};

// What an earlier run found for this problem.
struct Remembered {
  int proposal = -1;    // -1: the unfused schedule won
  bool current = true;  // in this environment; else it is measured again before it is used
  double seconds = 0, unfused_seconds = 0, speedup = 1;  // 1: it was chosen for other extents
  runtime::Interval interval{1, 1};
};

struct Options {
  int threads = 1;
  uint64_t seed = 1;
  Budget budget;
  bool deterministic = false;  // the model's choice, verified but not timed
  std::optional<Remembered> remembered;
  size_t round = 8;
  int pairs = 5, final_pairs = 21;
  Tolerance tolerance;
  ReferenceOptions reference;
  std::function<bool()> interrupted = [] { return false; };
  std::function<void(const Progress&)> progress = [](const Progress&) {};
};

struct Outcome {
  Stop stop = Stop::exhausted;
  int chosen = -1;                     // index of a trial; -1: the unfused schedule
  bool elsewhere = false;              // .. chosen for other extents than these, where the unfused schedule is used
  std::shared_ptr<Runnable> runnable;  // of what is chosen
  schedule::Candidate candidate;
  Trial unfused;
  std::vector<Trial> trials;  // in the order of the proposals
  Verdict verdict;            // of what is chosen
  bool complete_reference = false;
  double seconds = 0, unfused_seconds = 0;  // of one run; 0: not timed
  double speedup = 1;
  runtime::Interval speedup_interval{1, 1};
  double peak_gflops = 0;              // measured beside the final pairs
  std::vector<double> kernel_seconds;  // of the chosen program's kernels that run at each call; empty: not measured
  double codegen_seconds = 0, measure_seconds = 0, verify_seconds = 0;
  std::vector<std::string> notes;
};

// Errors: the unfused schedule does not compile, or computes something wrong.
// Candidates are finished (schedule::finish) before they are tried.
Result<Outcome> tune(const Problem& problem, const schedule::Candidate& unfused, std::vector<Proposal>& proposals,
                     const Compile& compile, const Options& options);

}  // namespace cleave::tune
