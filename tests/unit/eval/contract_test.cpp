// Contractions with random indices against a loop over all of them.
#include <algorithm>

#include "eval/graph_kernels.hpp"
#include "support/choices.hpp"
#include "support/graph_text.hpp"

namespace cleave::oracle {
namespace {

using namespace cleave::testing;

struct Case {
  graph::ContractSpec spec;
  std::map<std::string, int64_t> extents;
  Extents shapes[3];
};

Case random_case(Choices& c) {
  Case out;
  const std::vector<int64_t> extents = {3, 1, 2, 4, 5, 0};
  for (const char* n : {"a", "b", "c", "d", "e"}) out.extents[n] = c.chance(3) ? 0 : extents[c.below(5)];
  graph::IndexNames used;
  for (int side = 0; side < 2; ++side) {
    graph::IndexNames names;
    for (const auto& [n, e] : out.extents)
      if (c.chance(50)) names.push_back(n);
    if (!names.empty() && c.chance(15)) names.push_back(c.pick(names));  // a diagonal
    for (size_t i = names.size(); i > 1; --i) std::swap(names[i - 1], names[c.below(i)]);
    for (const auto& n : names) {
      out.shapes[side].push_back(c.chance(15) ? 1 : out.extents[n]);
      used.push_back(n);
    }
    out.spec.operands.push_back(names);
  }
  // An index that is 1 wherever it occurs is 1.
  for (auto& [n, e] : out.extents) {
    int64_t seen = 1;
    for (int side = 0; side < 2; ++side)
      for (size_t i = 0; i < out.spec.operands[static_cast<size_t>(side)].size(); ++i)
        if (out.spec.operands[static_cast<size_t>(side)][i] == n && out.shapes[side][i] != 1)
          seen = out.shapes[side][i];
    e = seen;
  }
  std::sort(used.begin(), used.end());
  used.erase(std::unique(used.begin(), used.end()), used.end());
  for (const auto& n : used)
    if (c.chance(55)) out.spec.result.push_back(n);
  for (size_t i = out.spec.result.size(); i > 1; --i) std::swap(out.spec.result[i - 1], out.spec.result[c.below(i)]);
  for (const auto& n : out.spec.result) out.shapes[2].push_back(out.extents[n]);
  return out;
}

template <class T>
std::vector<T> by_all_indices(const Case& c, const std::vector<T>& a, const std::vector<T>& b) {
  std::vector<T> out(static_cast<size_t>(product(c.shapes[2])), T{0});
  std::vector<std::string> names;
  Extents extents;
  for (const auto& [n, e] : c.extents) {
    names.push_back(n);
    extents.push_back(e);
  }
  if (product(extents) == 0) return out;
  std::map<std::string, int64_t> at;
  // Indices that neither operand names have extent 1 here.
  for (int64_t flat = 0; flat < product(extents); ++flat) {
    int64_t rest = flat;
    for (size_t i = names.size(); i-- > 0; rest /= extents[i]) at[names[i]] = rest % extents[i];
    auto place = [&](const graph::IndexNames& indices, const Extents& shape) {
      int64_t offset = 0;
      for (size_t i = 0; i < indices.size(); ++i) offset = offset * shape[i] + (shape[i] == 1 ? 0 : at[indices[i]]);
      return static_cast<size_t>(offset);
    };
    out[place(c.spec.result, c.shapes[2])] +=
        a[place(c.spec.operands[0], c.shapes[0])] * b[place(c.spec.operands[1], c.shapes[1])];
  }
  return out;
}

TEST(Contract, AgreesWithALoopOverAllIndices) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    Choices choices(seed);
    const Case c = random_case(choices);
    const ContractPlan plan(c.spec, c.shapes[0], c.shapes[1], c.shapes[2]);
    const Tensor a = normal(DType::i64, c.shapes[0], seed), b = normal(DType::i64, c.shapes[1], seed + 1);
    ASSERT_EQ(plan.run(std::span<const int64_t>(a.ints), std::span<const int64_t>(b.ints)),
              by_all_indices(c, a.ints, b.ints))
        << seed << ": " << print(c.spec);
    // Small whole numbers: the order of a real sum does not matter.
    const std::vector<double> x(a.ints.begin(), a.ints.end()), y(b.ints.begin(), b.ints.end());
    ASSERT_EQ(plan.run(std::span<const double>(x), std::span<const double>(y)), by_all_indices(c, x, y))
        << seed << ": " << print(c.spec);
  }
}

}  // namespace
}  // namespace cleave::oracle
