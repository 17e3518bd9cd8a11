// The artefact folder: what `optimize -o` writes and `run`, `bench` and `show` read.
//
//   manifest.json            what this is: hashes, target, dims, versions, command, arguments
//   graph/input.graph        the graph as given, dimensions bound; best.graph: the equal graph that was chosen
//   graph/constants/*.npy    constants that are not recipes
//   schedule.itg             the schedule; kernels/NAME.tile: its tile program; kernels/NAME.o: its object code
//   baseline/unfused.tile    the unfused schedule, for `cleave bench`
//   candidates.jsonl path.json trace.json repro.sh, certificate.json when the algebra gave one
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "driver/pipeline.hpp"

namespace cleave::driver {

struct Artefact {
  std::string name;
  std::string folder;
  graph::Graph input, best;
  tile::Program program;
  std::optional<tile::Program> unfused;
  std::vector<uint8_t> object;  // empty when it was made by another compiler or for another target
  std::string object_note;      // why it is empty
  Machine machine;
  int threads = 1;    // that it was tuned for
  Dispatch dispatch;  // of calls whose dimensions are open
};

// Positions of diagnostics are in `source`, which becomes the file that they are about.
Result<Artefact> load_artefact(const std::string& folder, SourceText* source = nullptr);

// The parts of a manifest that loading needs (manifest_json.cpp).
struct Manifest {
  std::string name, code_key, program, object, object_hash, program_hash, graph_hash, machine;
  int threads = 1;
  Dispatch dispatch;
};
Result<Manifest> parse_manifest(const std::string& folder, const std::string& text);

}  // namespace cleave::driver
