// LEIR -> tensor graph.
//
// Equations become operators over whole tensors, in the order of the text: maps, reductions, contractions, windows,
// gathers, running sums. A body with several items is taken apart when no dependence runs backwards. What an iteration
// computes from another one, or writes with gaps or at computed places, is refused.
#pragma once

#include <map>

#include "graph/graph.hpp"
#include "leir/program.hpp"

namespace cleave::bridge {

// The graph has an input for each known variable that is no output, in order, and the outputs; those in `constants` are
// constants of the graph. Reads whose bounds a run
// would check are taken to be inside. Errors name the equation and the reason.
Result<graph::Graph> raise(const leir::Program& program, std::string_view name = "leir",
                           const std::map<std::string, graph::ConstantData>& constants = {});

}  // namespace cleave::bridge
