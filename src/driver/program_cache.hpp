// Schedules that were chosen without measuring, kept on disk: a program that is asked for again is neither searched nor
// scheduled, and its code is loaded.
//
// The key is the hash of everything that the choice depends on: the bound graph, its typical extents, threads, the
// machine with its measured figures, the passes that are left out, and the compiler's build. Stored constants of more
// elements than a graph's text has take no part: neither search nor schedule looks at them.
#pragma once

#include <optional>
#include <string>

#include "driver/object_cache.hpp"
#include "driver/pipeline.hpp"

namespace cleave::driver {

struct ChosenProgram {
  tile::Program program;
  std::vector<uint8_t> object;           // of `program`; empty: it is compiled
  std::optional<tile::Program> unfused;  // of a graph with open dimensions: for some calls (Dispatch)
};

class ProgramCache {
 public:
  explicit ProgramCache(const std::string& cache_dir);

  // Of a compilation whose dimensions are bound and whose machine is known; empty: nothing is kept.
  std::string key(const Compilation& compilation) const;
  std::optional<ChosenProgram> find(const std::string& key, const Machine& machine) const;
  void keep(const std::string& key, const ChosenProgram& chosen, const Machine& machine) const;

 private:
  FileCache files_;
  ObjectCache objects_;
};

}  // namespace cleave::driver
