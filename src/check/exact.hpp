// Exact evaluation of graphs, for the certificate checker: modulo a tower of three primes, each dividing the next minus
// one, so that exp takes a residue modulo one to the next and exp(a + b) = exp(a) exp(b) holds. It sees what float64
// hides: a constant that is off by 1e-12 makes different residues.
//
// Sums are the graphs' own, over real coordinates; functions without algebra are random functions of their operand;
// maxima are random functions of the set of their operands. Where two graphs come apart only through such functions,
// roots or logarithms, the test has no say, and float64 decides alone.
#pragma once

#include <cstdint>

#include "graph/graph.hpp"

namespace cleave::check {

enum class Exact : uint8_t { equal, different, no_say };

// Compares the outputs of two graphs with bound dimensions and the same leaves, on leaves drawn by `seed`.
Exact compare_exactly(const graph::Graph& a, const graph::Graph& b, uint64_t seed, int64_t max_elements);

}  // namespace cleave::check
