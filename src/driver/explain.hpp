// `cleave explain`: how a graph follows from the input graph, in sentences, and why others were refused.
#pragma once

#include <string>
#include <vector>

#include "algebra/search.hpp"
#include "driver/options.hpp"

namespace cleave::driver {

struct ExplainRequest {
  Options options;
  std::string path;     // a graph, a model, or an artefact folder (then its certificate has the steps)
  int graph = -1;       // which equal graph; -1: the first that is not the input graph
  int step = 0;         // only this step, from 1; 0: all
  std::string why_not;  // a value of the input graph: the ways to compute it, and what was refused
};

struct Explanation {
  std::string name;
  std::string what;                        // which graph, of how many
  std::vector<algebra::Derived> steps;     // to explain
  size_t first = 1, count = 0;             // number of steps[0], and of all steps
  std::string last;                        // what stabilising did
  std::vector<std::string> ways, refused;  // with why_not
};

// Errors: the input's, no_such_graph, no_such_step, no_such_value.
Result<Explanation> explain(const ExplainRequest& request, SourceText& source);

std::string explain_text(const Explanation& e);
std::string explain_json(const Explanation& e);  // schema cleave.explain/1

}  // namespace cleave::driver
