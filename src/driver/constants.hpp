// Constants of graphs in files beside their text.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/graph.hpp"

namespace cleave::driver {

// The graph with its stored constants named FOLDER/N.npy, by their order. `write` receives the files that its text
// will refer to; without it the files are those of a graph with the same leaves that was written before.
using WriteFile = std::function<void(const std::string& path, const std::vector<std::byte>& bytes)>;
graph::Graph with_constant_files(const graph::Graph& graph, const WriteFile& write = nullptr,
                                 const std::string& folder = "constants");

// The text of a graph that will be written to `path`, NAME.graph: the files it refers to are written beside that, to
// NAME.constants. What was read from such files is in memory: they may be replaced.
Result<std::string> text_with_files(const graph::Graph& graph, const std::string& path);

}  // namespace cleave::driver
