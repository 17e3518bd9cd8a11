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

std::string replaced(std::string text, std::string_view word, std::string_view by) {
  const auto letter = [&](size_t i) { return i < text.size() && std::isalnum(static_cast<unsigned char>(text[i])); };
  for (size_t i = 0; (i = text.find(word, i)) != std::string::npos; i += by.size())
    if (!letter(i + word.size()) && (i == 0 || !letter(i - 1))) text.replace(i, word.size(), by);
  return text;
}

// Random graphs with their integers made narrow.
TEST(CompiledGraphs, EqualTheEvaluatorOnNarrowIntegers) {
  const auto target = jit::target_for(host_machine().isa);
  constexpr const char* kNarrow[] = {"i8", "i16", "u16", "u32", "u8"};
  size_t judged = 0;
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    testing::Choices choices(seed);
    testing::RandomGraphOptions options;
    options.max_elements = 512;
    options.max_operators = 6;
    const std::string before = graph::print(testing::random_graph(choices, options));
    const std::string after = replaced(replaced(before, "u8", kNarrow[seed % 4]), "i32", kNarrow[seed / 4 % 5]);
    if (after == before) continue;
    const SourceText source{"narrow.graph", after};
    const auto g = graph::parse(source);
    if (!g.ok()) continue;  // a literal that the type does not hold, contents that are not printed
    const std::string wrong = testing::judged(*g, seed, host_machine(), *target);
    ASSERT_TRUE(wrong.empty()) << "seed " << seed << "\n" << after << "\n" << wrong;
    ++judged;
  }
  EXPECT_GT(judged, 80u);
}

}  // namespace
}  // namespace cleave
