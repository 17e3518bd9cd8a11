// Fuzzer bytes choose a graph over the whole operator table and its inputs. The graph must be valid, read back equal
// from its text, and its evaluation with every value rounded must keep the error bounds.
#include <cstdio>
#include <cstdlib>

#include "eval/bounds.hpp"
#include "support/random_graph.hpp"

using namespace cleave;

namespace {

void require(bool holds, const char* what, const graph::Graph& g) {
  if (holds) return;
  std::fprintf(stderr, "%s\n%s", what, graph::print(g).c_str());
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  testing::Choices choices{std::span(data, size)};
  const graph::Graph g = testing::random_graph(choices, {.max_elements = 512});
  require(graph::verify(g).empty(), "the graph is invalid", g);

  const SourceText text{"fuzz.graph", graph::print(g, {.inline_elements = 1 << 16})};
  const auto again = graph::parse(text);
  require(again.ok() && graph::equal(g, *again), "the graph does not read back equal", g);

  const auto magnitude = static_cast<testing::Magnitude>(choices.below(4));
  const auto inputs = testing::tensors_of(testing::random_inputs(g, choices.below(1 << 16), magnitude, std::nullopt));
  const auto bounds = oracle::evaluate_with_bounds(g, inputs);
  const auto rounded = oracle::evaluate(g, inputs, {.round_to_storage = true});
  require(bounds.ok() && rounded.ok(), "the graph cannot be evaluated", g);
  for (size_t i = 0; i < rounded->size(); ++i) {
    const auto difference = oracle::compare((*rounded)[i], (*bounds)[i]);
    require(difference.ok(), difference.text.c_str(), g);
  }
  return 0;
}
