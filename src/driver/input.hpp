// What a file holds: a graph, an ONNX model, a LEIR program (raised to a graph), an itGraph, a tile program, vector IR,
// or an artefact folder.
#pragma once

#include <optional>
#include <string>

#include "base/diagnostic.hpp"
#include "driver/options.hpp"
#include "frontend/onnx.hpp"
#include "graph/graph.hpp"
#include "itgraph/itgraph.hpp"
#include "tile/tile.hpp"
#include "vec/vec.hpp"

namespace cleave::driver {

enum class Format { graph, onnx, leir, itgraph, tile, vec, artefact };
const char* name(Format format);

struct Input {
  Format format = Format::graph;
  std::string path;                   // as given; "-" is standard input
  SourceText source;                  // of texts
  std::optional<graph::Graph> graph;  // graph, onnx, leir
  std::optional<itgraph::Program> it;
  std::optional<tile::Program> tile;
  std::optional<vec::Module> vec;
  std::string name() const;  // "attention" of examples/attention.graph; the program's own name for standard input
};

// What the import of an ONNX model is told of the dimensions that were given.
OnnxOptions onnx_options(const Options& options);

// All of standard input, up to the size that texts may have.
Result<std::string> read_stdin();
// `source` receives the text, also when it is wrong (errors point into it).
Result<Input> read_input(const std::string& path, SourceText& source, const OnnxOptions& onnx = {});

// Reads file("...") constants of a graph text, relative to `folder` and staying inside it.
graph::LoadConstant constant_loader(const std::string& folder);

}  // namespace cleave::driver
