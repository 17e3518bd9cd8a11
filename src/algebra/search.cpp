#include "algebra/search.hpp"

#include <algorithm>
#include <chrono>

#include "algebra/extract.hpp"
#include "algebra/index_form.hpp"
#include "algebra/stabilise.hpp"

namespace cleave::algebra {

using graph::Graph;
using graph::Op;

namespace {

struct Alternative {
  std::vector<Root> roots;  // stabilised
  std::vector<Derived> derivation;
  double cost = 0;
};

// The derivation: where the choice differs from the input graph's own producers.
std::vector<Derived> derivation_of(const Values& values, const Choice& choice) {
  std::vector<Derived> out;
  for (const auto& [c, k] : choice.picks) {
    const auto& producers = values.classes()[c].producers;
    if (producers[k].given) continue;
    const auto given = std::find_if(producers.begin(), producers.end(), [](const Producer& p) { return p.given; });
    out.push_back({producers[k].rule, values.print(c), given == producers.end() ? "" : values.print(c, *given), values.print(c, producers[k])});
  }
  return out;
}

std::vector<Alternative> search_region(const Program& program, const Step& step, const SearchOptions& options, SearchResult& result) {
  Form& form = *program.form;
  std::vector<Alternative> out;
  Alternative own;
  for (const Root& r : step.roots) own.roots.push_back({r.value, stabilise(form, r.term), r.axes});
  out.push_back(std::move(own));
  try {
    Normaliser normal(form);
    Values values(normal, options.max_values);
    std::vector<ClassId> roots;
    for (const Root& r : step.roots) roots.push_back(values.add(r.term));
    values.saturate();
    values.test(options.seed, options.draws);
    result.values += values.classes().size();
    result.applications += values.applications();
    result.refused += values.refused();
    for (const ValueClass& v : values.classes()) result.producers += v.producers.size();
    result.saturated = result.saturated && values.saturated();
    if (values.disputed()) return out;
    auto constant = [&](uint32_t source) { return program.graph->producer(graph::ValueId(source)).op == Op::constant; };
    Extractor extractor(values, normal, constant, {std::max<size_t>(options.keep, 1), values.classes().size() > 800 ? 6u : 12u});
    for (const Choice& choice : extractor.run(roots)) {
      Alternative a;
      a.cost = choice.cost;
      for (size_t i = 0; i < roots.size(); ++i)
        a.roots.push_back({step.roots[i].value, stabilise(form, extractor.build(choice, roots[i], form)), step.roots[i].axes});
      const bool known = std::any_of(out.begin(), out.end(), [&](const Alternative& b) {
        return std::equal(a.roots.begin(), a.roots.end(), b.roots.begin(), [](const Root& x, const Root& y) { return x.term == y.term; });
      });
      if (known) continue;
      a.derivation = derivation_of(values, choice);
      out.push_back(std::move(a));
    }
  } catch (const TooLarge&) {
    result.saturated = false;  // numbers or sums beyond all measure: the region stays as it is
  }
  return out;
}

}  // namespace

std::string summarise(const Graph& graph) {
  std::map<std::string, int> counts;
  for (graph::NodeId id : graph.node_ids()) {
    const auto& n = graph.node(id);
    if (info(n.op).category == graph::Category::leaf || info(n.op).category == graph::Category::view) continue;
    ++counts[info(n.op).name];
  }
  std::string out;
  for (const auto& [name, n] : counts) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", n, name);
  return out.empty() ? "nothing to compute" : out;
}

Result<SearchResult> search(const Graph& graph, const SearchOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  if (Diagnostics bad = verify(graph); !bad.empty()) return bad;
  SearchResult result;
  const Program program = read(graph, {48, options.rounding_free});
  std::vector<std::vector<Alternative>> by_step;
  size_t most = 1;
  for (const Step& step : program.steps) {
    if (step.barrier.valid()) by_step.emplace_back();
    else {
      ++result.regions;
      by_step.push_back(search_region(program, step, options, result));
    }
    most = std::max(most, by_step.back().size());
  }
  std::set<std::string> seen;
  for (size_t k = 0; k < most && result.graphs.size() < std::max<size_t>(options.keep, 1); ++k) {
    std::vector<std::vector<Root>> roots;
    Found found{graph, "", {}, 0};
    for (const auto& list : by_step) {
      roots.emplace_back();
      if (list.empty()) continue;
      // The k-th of every region; regions with fewer keep their best.
      const Alternative& a = k < list.size() ? list[k] : list[std::min<size_t>(1, list.size() - 1)];
      roots.back() = a.roots;
      found.derivation.insert(found.derivation.end(), a.derivation.begin(), a.derivation.end());
      found.cost += a.cost;
    }
    found.graph = emit(program, roots);
    if (!seen.insert(print(found.graph)).second) continue;
    found.summary = summarise(found.graph);
    result.graphs.push_back(std::move(found));
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace cleave::algebra
