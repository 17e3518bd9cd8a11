// What a user can ask of the pipeline.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/diagnostic.hpp"
#include "tune/tune.hpp"

namespace cleave::driver {

// `S=128`, or `L=1..8192@4096`: a range with the extent to compile for. Without one it is the high end, or what
// bind_dims finds below it.
struct DimOption {
  int64_t lo = 0, hi = 0, representative = 0;
  bool given = true;  // the representative
  bool is_range() const { return lo != hi; }
};
// Adds one `--dim` to the list.
Diagnostics parse_dim(const std::string& text, std::map<std::string, DimOption>& dims);
// `60s`, `2m`, `500ms` (seconds), `500c` (candidates), `none`.
Result<tune::Budget> parse_budget(const std::string& text);

struct Options {
  std::map<std::string, DimOption> dims;
  std::string target = "cpu";
  std::string machine_file;  // a description to use instead of measuring the host
  std::string cache_dir;     // empty: nothing is kept
  std::string database;      // the tuning database; empty: none
  int threads = 1;
  int jobs = 1;
  uint64_t seed = 1;
  tune::Budget budget;
  bool deterministic = false;
  size_t top = 8;     // candidates kept of each graph, and in a round of trials
  std::string split;  // an index to split (names of the algebra)
  tune::Tolerance tolerance;
  std::vector<std::string> disabled;  // passes to leave out
  std::vector<std::string> without;   // of tiling, split, packing, layout: left out of schedules, to see what it brings
  std::string stop_after;
  std::string dump_after;  // a pass, or "all"
  std::string dump_dir = "cleave-dump";
  std::string output;   // artefact folder; empty: none
  std::string command;  // how the user called, for manifests
  std::function<bool()> interrupted = [] { return false; };
  std::function<void(const tune::Progress&)> progress = [](const tune::Progress&) {};
  std::function<void(const std::string&)> log = [](const std::string&) {};  // one line on what goes on
};

// What --without takes.
inline constexpr const char* kAblations[] = {"algebra", "tiling", "split", "packing", "layout"};

const char* version();

}  // namespace cleave::driver
