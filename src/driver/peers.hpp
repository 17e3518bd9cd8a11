// `cleave bench OUT --against PEERS`: an artefact against other compilers and runtimes, by bench/run in Python.
#pragma once

#include <string>
#include <vector>

#include "base/diagnostic.hpp"

namespace cleave::driver {

struct PeerRequest {
  std::string folder;  // of an artefact
  std::vector<std::string> peers;
  int threads = 1;
  bool json = false;
};

// Runs bench/run with `python3` of the PATH; it prints the result itself. Returns its exit status. An error when the
// folder is no artefact, or the script or the interpreter is missing.
Result<int> bench_against(const PeerRequest& request);

}  // namespace cleave::driver
