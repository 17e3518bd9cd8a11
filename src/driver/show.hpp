// Any stage of a program as text. Every text is valid input again.
#pragma once

#include <string>

#include "driver/options.hpp"
#include "driver/pipeline.hpp"

namespace cleave::driver {

struct ShowRequest {
  Options options;
  std::string path;
  std::string stage;  // one of show_stages(); empty: the stage of the file itself
  int candidate = 0;  // of graphs: which candidate, best predicted first
  int graph = -1;     // stabilised: which of the equal graphs; -1: that of the candidate, or the input graph's own
  bool unfused = false;
  std::string output;  // a file for the text; constants of graphs are written beside it. Empty: nothing is written
};
// The text; when it was written to a file, what was written.
Result<std::string> show(const ShowRequest& request, SourceText& source);

// What `show` printed as a JSON object (cleave.show/1); an empty stage is the file's own.
std::string show_json(const std::string& stage, const std::string& text);

// The stages of a tile program: tile, leir.
Result<std::string> tile_text(const tile::Program& program, const std::string& stage);

// The stages in order, and one line on each.
std::vector<std::pair<std::string, std::string>> show_stages();
// The operator table of the graph language.
std::string operators_text();

}  // namespace cleave::driver
