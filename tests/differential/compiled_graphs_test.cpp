// Any graph over the whole operator table runs through the code generator and equals the evaluator: random graphs,
// inputs in every layout, outputs pre-filled with NaN and guarded.
#include <gtest/gtest.h>

#include "differential/judge.hpp"

namespace cleave {
namespace {

// On the instruction set, or on what this processor has instead.
void run_range(uint64_t first, uint64_t last, Isa isa) {
  auto target = jit::target_for(isa);
  if (!target) target = jit::target_for(isa = host_machine().isa);
  const Machine machine = with_isa(host_machine(), isa);
  for (uint64_t seed = first; seed <= last; ++seed) {
    testing::Choices choices(seed);
    testing::RandomGraphOptions options;
    options.max_elements = 512;
    options.max_operators = 6;
    const graph::Graph g = testing::random_graph(choices, options);
    const std::string wrong = testing::judged(g, seed, machine, *target);
    if (wrong.empty()) continue;
    const auto small = testing::shrink(
        graph::expand(g), [&](const graph::Graph& h) { return !testing::judged(h, seed, machine, *target).empty(); });
    FAIL() << "seed " << seed << "\n" << testing::judged(small, seed, machine, *target);
  }
}

// Two thousand graphs in all, on each instruction set that this processor has.
TEST(CompiledGraphs, EqualTheEvaluatorOnAvx512) { run_range(1, 1000, Isa::avx512); }
TEST(CompiledGraphs, EqualTheEvaluatorOnAvx2) { run_range(1001, 2000, Isa::avx2); }

}  // namespace
}  // namespace cleave
