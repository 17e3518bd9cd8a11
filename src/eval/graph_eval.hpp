// Interpreter of the tensor graph: the meaning of every operator, and the judge of everything that is compiled.
//
// Two ways to round: by default every value keeps the digits of a double, except where the graph itself rounds (an
// explicit cast, a literal, a constant); with round_to_storage each value is rounded to its dtype, as an unfused
// implementation that stores every intermediate would. Integers always wrap. docs/graph.md says what the operators
// mean; composites are evaluated by their expansion (graph/expand.cpp).
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/diagnostic.hpp"
#include "eval/tensor.hpp"
#include "graph/graph.hpp"

namespace cleave::oracle {

struct EvalOptions {
  bool round_to_storage = false;
  // false: casts between reals keep the number, and one that is written in f32 or f64 is what is written, as if these
  // types were the reals.
  bool round_casts = true;
  int64_t max_elements = int64_t{1} << 31;  // of all values together
  double max_steps = 0x1p42;                // multiplications and element visits; more is an error, not a hang
};

// What has to be given: inputs and run-time scalars, in the order of the graph's leaves.
std::vector<graph::ValueId> given_leaves(const graph::Graph& graph);

// The outputs in order. All dimensions must be bound (graph::bind). Errors: inputs that are missing or of another
// dtype or shape, unbound dimensions, more elements or steps than allowed.
Result<std::vector<Tensor>> evaluate(const graph::Graph& graph, std::span<const Tensor> inputs,
                                     const EvalOptions& options = {});
Result<std::vector<Tensor>> evaluate(const graph::Graph& graph, const std::map<std::string, Tensor>& inputs,
                                     const EvalOptions& options = {});

// Every value of the graph by name (those that have one), for finding the first that differs.
Result<std::map<std::string, Tensor>> evaluate_named_values(const graph::Graph& graph, std::span<const Tensor> inputs,
                                                            const EvalOptions& options = {});

// Inputs by name in the order of given_leaves().
Result<std::vector<Tensor>> in_leaf_order(const graph::Graph& graph, const std::map<std::string, Tensor>& inputs);

}  // namespace cleave::oracle
