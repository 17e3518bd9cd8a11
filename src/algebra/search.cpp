#include "algebra/search.hpp"
#include "algebra/cuts.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>
#include <optional>
#include <set>

#include "algebra/extract.hpp"
#include "algebra/index_form.hpp"
#include "algebra/screen.hpp"
#include "algebra/side_by_side.hpp"
#include "algebra/stabilise.hpp"
#include "base/codes.hpp"

namespace cleave::algebra {

using graph::Graph;
using graph::Op;

namespace {

struct Swap {
  Derived text;
  std::vector<TermId> roots;  // the region after it, not stabilised
};

struct Alternative {
  std::vector<Root> roots;  // stabilised
  std::vector<Swap> path;
  double cost = 0;
};

// The swaps that lead from the input graph's producers to a choice, operands before users; each leaves a whole region.
// Empty where the order cannot be found: then the choice is one step.
std::vector<Swap> path_of(const Values& values, const Choice& choice, const std::vector<ClassId>& roots, Form& form,
                          bool record) {
  const auto& classes = values.classes();
  auto given = [&](ClassId c) {
    const auto& list = classes[c].producers;
    return static_cast<uint32_t>(std::find_if(list.begin(), list.end(), [](const Producer& p) { return p.given; }) -
                                 list.begin());
  };
  std::set<ClassId> of_input;
  std::function<void(ClassId)> reach = [&](ClassId c) {
    c = values.find(c);
    if (!of_input.insert(c).second || given(c) == classes[c].producers.size()) return;
    for (ClassId a : classes[c].producers[given(c)].args) reach(a);
  };
  for (ClassId r : roots) reach(r);
  std::vector<ClassId> order;
  std::set<ClassId> seen;
  std::function<void(ClassId)> visit = [&](ClassId c) {
    c = values.find(c);
    if (!seen.insert(c).second) return;
    for (ClassId a : classes[c].producers[Extractor::pick_of(choice, c)].args) visit(a);
    order.push_back(c);
  };
  for (ClassId r : roots) visit(r);
  std::vector<Swap> path;
  std::set<ClassId> swapped;
  for (ClassId c : order) {
    const uint32_t k = Extractor::pick_of(choice, c);
    if (!of_input.contains(c) || given(c) == k || given(c) == classes[c].producers.size()) continue;
    swapped.insert(c);
    const Producer& after = classes[c].producers[k];
    Swap swap{
        {after.rule, values.print(c), values.print(c, classes[c].producers[given(c)]), values.print(c, after), ""}, {}};
    if (record) {
      swap.roots = Extractor::build(values, roots, form, [&](ClassId x) {
        return swapped.contains(x) || !of_input.contains(x) ? Extractor::pick_of(choice, x) : given(x);
      });
      if (std::any_of(swap.roots.begin(), swap.roots.end(), [](TermId t) { return !t.valid(); })) swap.roots.clear();
    }
    path.push_back(std::move(swap));
  }
  return path;
}

void reduced_labels(const Form& form, TermId id, std::set<uint32_t>& out, std::set<TermId>& seen) {
  if (!seen.insert(id).second) return;
  for (IndexId i : form.at(id).bound) out.insert(form.at(i).label);
  for (TermId a : form.at(id).args) reduced_labels(form, a, out, seen);
}

// Values of a region from which on it is cut further, if it can be.
constexpr size_t kRich = 600;

std::vector<Alternative> search_region(const Program& program, const Step& step, const SearchOptions& options,
                                       SearchResult& result) {
  Form& form = *program.form;
  std::vector<Alternative> out;
  Alternative own;
  for (const Root& r : step.roots) own.roots.push_back({r.value, stabilise(form, r.term), r.axes});
  out.push_back(std::move(own));
  if (options.stop()) {
    result.saturated = false;
    return out;
  }
  // Equations under sums hold for sums of something.
  std::set<uint32_t> labels;
  std::set<TermId> seen;
  for (const Root& r : step.roots) reduced_labels(form, r.term, labels, seen);
  for (uint32_t l : labels) {
    const sym::Expr e = form.label(l).extent;
    const auto constant = form.syms().as_constant(e);
    if (constant == 0) return out;
    const std::string text = form.syms().print(e);
    if (!constant && form.syms().bounds(e).lo <= 0 &&
        std::find(result.nonempty.begin(), result.nonempty.end(), text) == result.nonempty.end())
      result.nonempty.push_back(text);
  }
  const bool split = program.split && (labels.contains(program.split->parts) || labels.contains(program.split->part));
  try {
    Normaliser normal(form);
    const auto pair = split ? std::optional(std::pair(program.split->parts, program.split->part)) : std::nullopt;
    Values values(normal, options.max_values, pair);
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
    Extractor extractor(values, normal, constant,
                        {std::max<size_t>(options.keep, 1),
                         values.classes().size() > 800   ? 5u
                         : values.classes().size() > 200 ? 8u
                                                         : 12u,
                         pair});
    std::optional<Screen> screen;
    std::vector<Choice> choices = extractor.run(roots);
    for (Choice& c : extractor.diverse(roots, choices, options.keep, options.stop)) choices.push_back(std::move(c));
    std::erase_if(choices, [](const Choice& c) { return c.cost >= kWholeReduction; });
    // What is cheaper may lose digits, as every form of a variance but the given one; this one stays.
    if (pair)
      if (auto given = extractor.given_in_parts(roots)) choices.push_back(std::move(*given));
    for (const Choice& choice : choices) {
      if (options.stop()) {
        result.saturated = false;
        break;
      }
      Alternative a;
      a.cost = choice.cost;
      const auto terms =
          Extractor::build(values, roots, form, [&](ClassId c) { return Extractor::pick_of(choice, c); });
      for (TermId t : terms) CHECK(t.valid(), "a choice needs itself");
      auto stable = [&](Care care) {
        std::vector<TermId> list;
        for (TermId t : terms) list.push_back(stabilise(form, t, care));
        return list;
      };
      std::vector<TermId> candidate = stable(Care::most);
      if (options.screen) {
        if (!screen) {
          std::vector<TermId> given, reference;
          for (const Root& r : step.roots) given.push_back(r.term);
          for (const Root& r : out[0].roots) reference.push_back(r.term);
          screen.emplace(form, given, reference, options.seed);
        }
        // The cheapest stable form among those that treat infinities most as the input graph does.
        std::optional<Screen::Verdict> best;
        std::vector<TermId> before;
        for (Care care : {Care::least, Care::logarithms, Care::most}) {
          std::vector<TermId> next = stable(care);
          if (next == before) continue;
          before = next;
          Screen::Verdict v = screen->judge(next);
          if (best && !(best->why.empty() ? v.why.empty() && v.infinities < best->infinities : v.why.empty())) continue;
          best = std::move(v);
          candidate = std::move(next);
          if (best->why.empty() && best->infinities == 0) break;
        }
        if (!best->why.empty()) {
          ++result.screened_out;
          std::string what;
          for (TermId t : candidate) what += (what.empty() ? "" : "; ") + form.print(t);
          result.screened.push_back(fmt::format("{} ({})", what, best->why));
          continue;
        }
      }
      const bool known = std::any_of(out.begin(), out.end(), [&](const Alternative& b) {
        return std::equal(candidate.begin(), candidate.end(), b.roots.begin(),
                          [](TermId x, const Root& y) { return x == y.term; });
      });
      if (known) continue;
      for (size_t i = 0; i < roots.size(); ++i)
        a.roots.push_back({step.roots[i].value, candidate[i], step.roots[i].axes});
      a.path = path_of(values, choice, roots, form, options.record_path);
      out.push_back(std::move(a));
    }
  } catch (const TooLarge&) {
    result.saturated = false;  // numbers or sums beyond all measure: the region stays as it is
  }
  return out;
}

Result<int> class_to_split(const Program& program, const std::string& name) {
  std::string names, why;
  for (const Splittable& s : splittable(program)) {
    if (s.name == name || s.extent == name) {
      if (s.why_not.empty()) return s.axis_class;
      why = s.why_not;
    }
    if (s.why_not.empty()) names += (names.empty() ? "`" : ", `") + s.name + "`";
  }
  if (why.empty())
    why = names.empty() ? "no index is reduced" : fmt::format("the indices that are reduced are {}", names);
  return diagnose(Code::no_such_index, name, why);
}

// Half of the list by cost, the other half by what is new in it: the order in which alternatives are offered.
std::vector<Alternative> arranged(std::vector<Alternative> list, size_t keep) {
  if (list.size() <= keep) return list;
  std::vector<Alternative> out(std::make_move_iterator(list.begin()),
                               std::make_move_iterator(list.begin() + static_cast<long>(keep - keep / 3)));
  out.insert(out.end(), std::make_move_iterator(list.end() - static_cast<long>(keep / 3)),
             std::make_move_iterator(list.end()));
  return out;
}

// Adds graphs in which contractions stand side by side, at the end of the list.
void merge_contractions(SearchResult& result, const SearchOptions& options) {
  constexpr size_t kMost = 8;
  std::set<std::string> seen;
  for (const Found& f : result.graphs) seen.insert(print(f.graph));
  std::vector<Found> more;
  for (size_t k = 0; k < result.graphs.size() && more.size() < kMost; ++k) {
    const Found& from = result.graphs[k];
    for (SideBySide& s : side_by_side(from.graph, options.record_path)) {
      if (more.size() >= kMost || !seen.insert(print(s.graph)).second) continue;
      Found f{std::move(s.graph), "", from.derivation, from.cost + s.copied, false};
      std::move(s.steps.begin(), s.steps.end(), std::back_inserter(f.derivation));
      f.summary = summarise(f.graph);
      f.copies = s.copied > 0;
      more.push_back(std::move(f));
    }
  }
  const size_t keep = std::max<size_t>(options.keep, 1), room = keep > more.size() ? keep - more.size() : 1;
  if (result.graphs.size() > room)
    result.graphs.erase(result.graphs.begin() + static_cast<long>(room), result.graphs.end());
  for (Found& f : more)
    if (result.graphs.size() < keep) result.graphs.push_back(std::move(f));
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

Result<SearchResult> search(const Graph& given, const SearchOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  // The dimensions that a split index becomes are this search's own.
  const Graph own = options.split.empty() ? Graph() : given.detached();
  const Graph& graph = options.split.empty() ? given : own;
  if (Diagnostics bad = verify(graph); !bad.empty()) return bad;
  SearchResult result;
  ReadOptions reading{48, options.rounding_free, -1};
  Program program = read(graph, reading);
  if (!options.split.empty()) {
    TRY_ASSIGN(reading.split, class_to_split(program, options.split));
    program = read(graph, reading);
  }
  for (const Step& step : program.steps) {
    if (step.barrier.valid() || options.stop()) continue;
    const std::vector<graph::ValueId> cuts = inner_cuts(program, step);
    if (!cuts.empty() && richer_than(program, step, std::min(kRich, options.max_values)))
      reading.cuts.insert(cuts.begin(), cuts.end());
  }
  if (!reading.cuts.empty()) program = read(graph, reading);
  std::vector<std::vector<Alternative>> by_step;
  size_t most = 1;
  for (const Step& step : program.steps) {
    if (step.barrier.valid())
      by_step.emplace_back();
    else {
      ++result.regions;
      by_step.push_back(arranged(search_region(program, step, options, result), std::max<size_t>(options.keep, 3)));
    }
    most = std::max(most, by_step.back().size());
  }
  std::set<std::string> seen;
  for (size_t k = 0; k < most && result.graphs.size() < std::max<size_t>(options.keep, 1); ++k) {
    std::vector<std::vector<Root>> roots, plain;
    Found found{graph, "", {}, 0, program.split && k > 0};
    for (size_t i = 0; i < by_step.size(); ++i) plain.push_back(program.steps[i].roots);
    for (size_t i = 0; i < by_step.size(); ++i) {
      roots.emplace_back();
      if (by_step[i].empty()) continue;
      // The k-th of every region; regions with fewer keep their best.
      const Alternative& a =
          k < by_step[i].size() ? by_step[i][k] : by_step[i][std::min<size_t>(1, by_step[i].size() - 1)];
      roots.back() = a.roots;
      found.cost += a.cost;
      for (const Swap& swap : a.path) {
        found.derivation.push_back(swap.text);
        if (swap.roots.empty()) continue;
        for (size_t r = 0; r < swap.roots.size(); ++r) plain[i][r].term = swap.roots[r];
        found.derivation.back().graph = open_text(emit(program, plain));
      }
    }
    found.graph = emit(program, roots);
    if (!seen.insert(print(found.graph)).second) continue;
    found.summary = summarise(found.graph);
    result.graphs.push_back(std::move(found));
  }
  if (options.merge && !program.split) merge_contractions(result, options);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

std::vector<std::string> splittable_indices(const Graph& graph) {
  std::vector<std::string> out;
  for (const Splittable& s : splittable(read(graph)))
    if (s.why_not.empty()) out.push_back(s.name);
  return out;
}

// Stored constants become inputs: the search never looks at their values, so what holds for these holds for any, and a
// certificate stays small.
constexpr int64_t kInlineElements = 64;
std::string open_text(const graph::Graph& g) {
  const graph::Graph open = graph::rewrite(
      g,
      [&](graph::Builder& b, graph::NodeId id,
          std::span<const graph::ValueId>) -> std::optional<std::vector<graph::ValueId>> {
        const graph::Node& n = g.node(id);
        if (n.op != graph::Op::constant) return std::nullopt;
        const auto& data = n.attributes.get<graph::ConstantData>("data");
        const DType dtype = n.attributes.get<DType>("dtype");
        const bool stored = data.kind == graph::ConstantData::Kind::bytes &&
                            static_cast<int64_t>(data.bytes->size()) > kInlineElements * byte_size(dtype);
        if (!stored) return std::nullopt;
        return std::vector<graph::ValueId>{
            b.input(n.attributes.get<std::string>("name"), dtype, n.attributes.get<std::vector<sym::Expr>>("shape"))};
      });
  return print(open, {kInlineElements});
}

}  // namespace cleave::algebra
