// The pipeline: what happens between a file and an artefact, as one table of passes.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "algebra/search.hpp"
#include "driver/dims.hpp"
#include "driver/input.hpp"
#include "driver/options.hpp"
#include "schedule/schedule.hpp"
#include "tune/tune.hpp"

namespace cleave::driver {

// One of the equal graphs. [0] is the input graph, stabilised.
struct Equal {
  graph::Graph graph;
  std::string summary;
  std::vector<algebra::Derived> derivation;
  std::string split;
  double cost = 0;
  bool copies = false;  // it concatenates at run time what is not constant: not worth a schedule
};

struct PassTime {
  std::string name;
  double seconds = 0;
};

struct DimBinding {
  std::string name;
  DimOption option;
};

// Dimensions with a range: the chosen program against the unfused schedule at one end of the ranges (ranges.cpp).
struct RangeEnd {
  DimValues values;
  double seconds = 0, unfused_seconds = 0, speedup = 1;
  runtime::Interval interval{1, 1};
  std::string why;  // it was not measured
};

// Which calls go to the unfused schedule: those with no dimension above `up_to`, or none below `from`.
struct Dispatch {
  std::optional<DimValues> up_to, from;
  bool unfused(const DimValues& values) const;
};

// Everything that is known of one compilation; each pass fills in its part.
struct Compilation {
  Options options;
  std::string path;
  SourceText source;
  Input input;                        // import
  std::optional<graph::Graph> bound;  // bind; dimensions with a range stay open
  std::vector<DimBinding> dims;
  DimValues typical;                     // of the dimensions that stay open: what speed is chosen for
  std::optional<graph::Graph> expanded;  // expand
  std::vector<Equal> equal;              // search
  std::vector<Equal> split;              // search: graphs whose reductions over an index stop half way (--split)
  algebra::SearchResult search;          // its numbers; its graphs have moved to `equal`
  Machine machine;                       // schedule
  bool machine_measured = false;
  std::optional<schedule::Candidate> unfused;
  std::vector<tune::Proposal> proposals;   // best predicted first
  bool unscheduled = false;                // graphs were left when the time for scheduling was over
  std::unique_ptr<tune::Problem> problem;  // tune
  std::optional<tune::Outcome> outcome;
  std::vector<RangeEnd> ends;  // tune
  Dispatch dispatch;
  bool search_skipped = false;
  bool certificate = false;        // package: one was written
  std::vector<std::string> files;  // package: what was written, relative to the artefact folder
  std::vector<PassTime> times;
  std::vector<std::string> notes;  // for the report
  double started = 0;              // runtime::wall_seconds()

  double seconds(std::string_view pass) const;
};

// The graphs by number: the equal ones, then those with a split index.
const Equal& equal_graph(const Compilation& compilation, size_t number);

using DumpFile = std::pair<std::string, std::string>;  // name, content

struct Pass {
  const char* name;
  const char* doc;
  const char* in;  // stages, as `cleave show --stage` names them where it can show them
  const char* out;
  bool optional;  // --disable leaves it out
  Diagnostics (*run)(Compilation&);
  std::vector<DumpFile> (*dump)(const Compilation&);
};

std::span<const Pass> pipeline();
const Pass* find_pass(std::string_view name);

// Runs the passes from `first` (empty: all) up to and including `last` (empty: all), with timing and dumps. On failure
// the last diagnostic is a note with the pass and where the dump before it lies (when there is one).
Diagnostics run_passes(Compilation& compilation, std::string_view last = "", std::string_view first = "");

// The passes up to the search. Dimensions stay open where none is given: the algebra does not look at extents.
Diagnostics run_search(Compilation& compilation);

// The pass functions (passes.cpp, package.cpp).
Diagnostics import_input(Compilation&);
Diagnostics bind_dims(Compilation&);
Diagnostics expand_composites(Compilation&);
Diagnostics search_graphs(Compilation&);
Diagnostics schedule_graphs(Compilation&);
Diagnostics tune_candidates(Compilation&);
Diagnostics package_result(Compilation&);
// Measures the chosen program at the ends of the ranges and sends calls to the unfused schedule where that is faster.
Diagnostics measure_ranges(Compilation&);
// What would keep package_result from writing to this folder: asked before the work is done.
Diagnostics check_output(const std::string& output);

// The machine that candidates are made for: a file, a measurement kept in the cache folder, or a new measurement.
Result<Machine> machine_for(const Options& options, std::string* where = nullptr);

// The schedule of what was chosen, or before tuning of what the model prefers: the proposal `index` (-1: the unfused
// one).
const schedule::Candidate& chosen_candidate(const Compilation& compilation, int index = 0);

}  // namespace cleave::driver
