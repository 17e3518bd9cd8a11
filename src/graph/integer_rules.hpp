// What the integers of a call must be for its requests to be what they say: begins of rows, numbers of pages, lengths.
//
// Programs stay inside their tensors whatever these inputs hold; results then follow from integers that were moved into
// range. Whoever calls a program can have them checked first.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "graph/graph.hpp"

namespace cleave::graph {

struct IntegerRule {
  enum class What : uint8_t {
    begins,   // [b + 1]: from 0 on, not descending, `limit` at most, and at most `most` from one to the next
    numbers,  // [n]: 0 .. limit - 1 where a request refers to them: from the first of `begins` to the last
    lengths,  // [b]: 0 .. limit
  };
  What what;
  size_t input;  // position among the inputs
  int64_t limit, most = 0;
  int begins = -1;  // numbers: the input that says which ones are read; -1: all are
};

// Those of the inputs that `ragged`, `paged` and `ragged_pack` take directly or cast. Shapes must be constant.
std::vector<IntegerRule> integer_rules(const Graph& graph);

// Reads element i of an input.
using IntegerAt = std::function<int64_t(size_t input, int64_t i)>;
// wrong_input for the first element of each rule that breaks it. `counts`: elements of each input.
Diagnostics check_integers(const Graph& graph, std::span<const IntegerRule> rules, std::span<const int64_t> counts,
                           const IntegerAt& at);

}  // namespace cleave::graph
