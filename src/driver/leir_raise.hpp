// LEIR programs as graphs, and the judgement that both compute the same.
#pragma once

#include "driver/leir.hpp"
#include "graph/graph.hpp"

namespace cleave::driver {

// Reads, checks and raises a program; `messages` gets all that is to say about the text.
Result<graph::Graph> raise_text(const SourceText& source, std::string_view name, Diagnostics& messages);

// A program whose text is right but which has no graph, as `errors` of raise_text say: for what runs or prints it as it
// is written.
std::optional<leir::Program> written_program(const SourceText& source, const Diagnostics& errors);

// The outputs of a graph (of the evaluator, in float64) against those of the interpreter on the request's inputs:
// within the interpreter's error bounds. The verdict, or the output that differs.
Result<std::string> check_raised(const LeirRequest& request, const leir::Program& program, const graph::Graph& graph);

}  // namespace cleave::driver
