// Random graphs over the whole table: whatever the search returns, split or not, computes what the input computes, in
// float64 and in the exact arithmetic of the certificate checker.
#include "support/random_graph.hpp"

#include <cstdlib>

#include "algebra/index_form.hpp"
#include "algebra/search.hpp"
#include "algebra/stabilise.hpp"
#include "check/exact.hpp"
#include "eval/bounds.hpp"
#include "support.hpp"

namespace cleave::algebra {
namespace {

using namespace cleave::testing;
using graph::Graph;

// Double results agree where the input graph's are finite: to double rounding, as far as the input's f32 bound says
// that the result is no accident of cancellation.
std::string disagreement(const Graph& input, const Graph& found, const std::vector<oracle::Tensor>& inputs) {
  const auto want = oracle::evaluate_with_bounds(input, inputs);
  std::map<std::string, oracle::Tensor> by_name;
  const auto leaves = oracle::given_leaves(input);
  for (size_t i = 0; i < leaves.size(); ++i) by_name.emplace(input.value(leaves[i]).name, inputs[i]);
  const auto got = oracle::evaluate(found, by_name);
  if (!want.ok()) return "";
  if (!got.ok()) return render(got.errors(), nullptr);
  for (size_t o = 0; o < want->size(); ++o) {
    const auto &w = (*want)[o].value, &g = (*got)[o];
    if (w.extents != g.extents || w.dtype != g.dtype) return "another type of output " + input.outputs()[o].name;
    for (int64_t i = 0; i < w.elements(); ++i) {
      const double bound = (*want)[o].bound[static_cast<size_t>(i)];
      if (!std::isfinite(w.at(i)) || !std::isfinite(bound)) continue;
      const double off = std::abs(w.at(i) - g.at(i));
      if (!(off <= 1e-9 * std::abs(w.at(i)) + 4 * bound + 1e-300))
        return fmt::format("output {} element {}: {} instead of {} (bound {})", input.outputs()[o].name, i, g.at(i),
                           w.at(i), bound);
    }
  }
  return "";
}

struct Counts {
  size_t found = 0, split = 0, exactly = 0;
};

std::string fault_of(const Graph& input, const Graph& found, const std::vector<oracle::Tensor>& inputs, uint64_t seed,
                     Counts& counts) {
  if (const std::string why = disagreement(input, found, inputs); !why.empty()) return why;
  const check::Exact e = check::compare_exactly(input, found, seed, 1 << 16);
  counts.exactly += e == check::Exact::equal;
  return e == check::Exact::different ? "exact arithmetic gives another result" : "";
}

// Graphs with one reduced index in parts: two, or as many as there are elements.
std::string fault_in_parts(const Graph& x, const std::vector<oracle::Tensor>& inputs, uint64_t seed, Counts& counts) {
  std::vector<Splittable> indices = splittable(read(x, {48, false, -1}));
  std::erase_if(indices, [](const Splittable& s) { return !s.why_not.empty(); });
  if (indices.empty()) return "";
  const Splittable& index = indices[seed % indices.size()];
  const auto r = search(x, {.keep = 4, .rounding_free = false, .split = index.name});
  if (!r.ok()) return render(r.errors(), nullptr);
  const int64_t extent = std::stoll(index.extent), parts = extent % 2 == 0 ? 2 : extent;
  if (extent == 0) return "";
  for (const Found& f : r->graphs) {
    std::map<std::string, int64_t> dims;
    for (sym::Expr d : f.graph.dims()) {
      const std::string name = f.graph.syms().symbol_name(d);
      dims[name] = name.find("_parts") != std::string::npos ? parts : extent / parts;
    }
    const Graph whole = test::bound(f.graph, dims);
    if (oracle::given_leaves(whole).size() != inputs.size()) continue;  // a constant became an input
    ++counts.split;
    if (const std::string why = fault_of(x, whole, inputs, seed, counts); !why.empty())
      return fmt::format("{} split: {}\n{}", index.name, why, print(f.graph));
  }
  return "";
}

std::string fault(const Graph& g, uint64_t seed, Counts& counts) {
  const auto inputs = tensors_of(random_inputs(g, seed, seed % 3 == 0 ? Magnitude::tiny : Magnitude::unit));
  const Graph x = graph::expand(g);
  const auto r = search(x, {.keep = 6, .rounding_free = false});
  if (!r.ok()) return render(r.errors(), nullptr);
  if (r->graphs.empty()) return "no graphs";
  for (size_t k = 0; k < r->graphs.size(); ++k) {
    ++counts.found;
    if (const std::string why = fault_of(x, r->graphs[k].graph, inputs, seed, counts); !why.empty())
      return fmt::format("graph {}: {}\n{}", k, why, print(r->graphs[k].graph));
  }
  return seed % 2 == 0 ? fault_in_parts(x, inputs, seed, counts) : "";
}

TEST(RandomSearch, EveryGraphThatIsFoundComputesTheInputGraph) {
  const auto number = [](const char* name, uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text ? std::strtoull(text, nullptr, 10) : otherwise;
  };
  const uint64_t graphs = number("CLEAVE_GRAPHS", 500), begin = number("CLEAVE_SEED", 0);  // 10000 graphs for a night
  size_t faults = 0;
  Counts counts, ignored;
  const auto ops = graph::all_ops();
  for (uint64_t seed = begin; seed < begin + graphs && faults < 5; ++seed) {
    Choices choices(seed);
    RandomGraphOptions options;
    options.sixteen_bit = seed % 4 == 0;
    options.dialect = false;
    options.max_operators = 4 + static_cast<int>(seed % 12);
    options.max_elements = 512;
    options.must_have = ops[seed % ops.size()].op;
    const Graph g = random_graph(choices, options);
    std::string why;
    try {
      why = fault(g, seed, counts);
    } catch (const InternalError& e) {
      why = e.what();
    }
    if (why.empty()) continue;
    ++faults;
    const Graph small = shrink(g, [&](const Graph& s) {
      try {
        return !fault(s, seed, ignored).empty();
      } catch (const InternalError&) {
        return true;
      }
    });
    try {
      why = fault(small, seed, ignored);
    } catch (const InternalError& e) {
      why = e.what();
    }
    ADD_FAILURE() << "seed " << seed << "\n" << print(small) << print(graph::expand(small)) << why;
  }
  fmt::print("{} graphs found, {} of them equal in exact arithmetic too; {} with an index split\n", counts.found,
             counts.exactly, counts.split);
  EXPECT_GT(counts.found, graphs / 2);
  EXPECT_GT(counts.split, graphs / 20);
  EXPECT_GT(counts.exactly, graphs / 10);
}

}  // namespace
}  // namespace cleave::algebra
