#include "driver/explain.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "algebra/rules.hpp"
#include "base/codes.hpp"
#include "base/lexer.hpp"
#include "driver/pipeline.hpp"
#include "frontend/file.hpp"

namespace cleave::driver {

namespace fs = std::filesystem;
using graph::Graph;
using graph::Op;
using graph::ValueId;

namespace {

std::string stabilising(const Graph& g) {
  size_t scaled = 0, sums = 0;
  for (graph::NodeId id : g.node_ids())
    if (g.node(id).op == Op::scaled_reduce) ++scaled, sums += g.node(id).results.size() - 1;
  if (scaled == 0) return "The graph has no sums of exponentials, so nothing has to be kept from overflowing.";
  return fmt::format(
      "At last {} of exponentials {} taken below {} running maximum, in {} pass{} over the scores, so that nothing "
      "overflows.",
      sums == 1 ? "the sum" : fmt::format("{} sums", sums), sums == 1 ? "is" : "are", sums == 1 ? "its" : "their",
      scaled, scaled == 1 ? "" : "es");
}

Result<Explanation> of_artefact(const ExplainRequest& r) {
  const fs::path at(r.path);
  Explanation e;
  e.name = at.filename().empty() ? at.parent_path().filename().string() : at.filename().string();
  const fs::path file = at / "certificate.json";
  if (!fs::exists(at / "manifest.json")) return diagnose(Code::bad_artefact, r.path, "it has no manifest.json");
  if (!fs::exists(file)) {
    e.what = "Its program computes the input graph as it was given: nothing else was faster.";
    return e;
  }
  TRY_ASSIGN(const std::vector<std::byte> bytes, read_bytes(file.string(), 0, -1, int64_t{1} << 28));
  const auto j = nlohmann::json::parse(reinterpret_cast<const char*>(bytes.data()),
                                       reinterpret_cast<const char*>(bytes.data()) + bytes.size(), nullptr, false);
  if (j.is_discarded() || !j.is_object() || !j.contains("steps") || !j["steps"].is_array() || !j.contains("result") ||
      !j["result"].is_string())
    return diagnose(Code::certificate_unreadable, "it has no steps or no result");
  auto text = [](const nlohmann::json& o, const char* key) {
    return o.is_object() && o.contains(key) && o[key].is_string() ? o[key].get<std::string>() : std::string("?");
  };
  for (const auto& s : j["steps"])
    e.steps.push_back({text(s, "rule"), text(s, "value"), text(s, "before"), text(s, "after"), ""});
  const auto g = graph::parse({file.string(), j["result"].get<std::string>()});
  if (!g) return diagnose(Code::certificate_unreadable, "result: " + g.errors()[0].message());
  e.what = "This is how its graph follows from the input graph, by its certificate.";
  e.last = stabilising(*g);
  return e;
}

// The value that a user means: by its name, or v12 as printed graphs call the others.
std::optional<ValueId> find_value(const Graph& g, const std::string& name) {
  for (uint32_t v = 0; v < g.value_count(); ++v)
    if (g.value(ValueId(v)).name == name) return ValueId(v);
  for (const auto& o : g.outputs())
    if (o.name == name) return o.value;
  uint32_t number = 0;
  if (name.size() < 2 || name[0] != 'v') return std::nullopt;
  const auto [end, error] = std::from_chars(name.data() + 1, name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size() || number >= g.value_count()) return std::nullopt;
  return ValueId(number);
}

// The graph that ends in one value.
Graph up_to(const Graph& g, ValueId value, const std::string& name) {
  graph::Builder b(g.name(), g.shared_syms());
  for (sym::Expr d : g.dims()) {
    const auto range = b.syms().symbol_range(d);
    b.dim(b.syms().symbol_name(d), range.lo, range.hi);
  }
  std::vector<ValueId> made(g.value_count());
  for (graph::NodeId id : g.node_ids()) {
    const graph::Node& n = g.node(id);
    std::vector<ValueId> operands;
    for (ValueId v : n.operands) operands.push_back(made[v.index]);
    std::vector<ValueId> results;
    if (n.op == Op::input || n.op == Op::constant || n.op == Op::scalar) {
      const auto& leaf = n.attributes.get<std::string>("name");
      const auto& type = g.type(n.results[0]);
      results = {n.op == Op::input ? b.input(leaf, type.dtype, type.shape)
                 : n.op == Op::scalar
                     ? b.scalar(leaf, type.dtype)
                     : b.constant(leaf, type.dtype, type.shape, n.attributes.get<graph::ConstantData>("data"))};
    } else {
      results = b.make_all(n.op, operands, n.attributes);
    }
    for (size_t i = 0; i < results.size(); ++i) made[n.results[i].index] = results[i];
  }
  b.output(name, made[value.index]);
  return b.take();
}

Diagnostics why_not(const ExplainRequest& r, const Compilation& c, Explanation& e) {
  // Names are those of the graph as it is shown; values that expansion adds have none.
  const Graph& g = *c.bound;
  const auto v = find_value(g, r.why_not);
  if (!v || g.producer(*v).operands.empty()) {
    std::vector<std::string> known;
    const auto computed = [&](ValueId value, const std::string& name) {
      if (g.producer(value).operands.empty() || std::find(known.begin(), known.end(), name) != known.end()) return;
      known.push_back(name);
    };
    for (uint32_t k = 0; k < g.value_count(); ++k) {
      const std::string& own = g.value(ValueId(k)).name;
      computed(ValueId(k), own.empty() ? fmt::format("v{}", k) : own);
    }
    for (const graph::Output& o : g.outputs()) computed(o.value, o.name);
    const std::string names = fmt::format("`{}`", fmt::join(known, "`, `"));
    return {diagnose(Code::no_such_value, r.why_not,
                     v ? "it is given, not computed" : "those that are computed are " + names)};
  }
  algebra::SearchOptions o;
  o.seed = r.options.seed;
  const auto s = algebra::search(graph::expand(up_to(g, *v, r.why_not)), o);
  if (!s) return s.errors();
  for (size_t k = 0; k < s->graphs.size(); ++k) {
    std::string way = s->graphs[k].summary;
    for (const auto& d : s->graphs[k].derivation) way += fmt::format("; {}", d.rule);
    e.ways.push_back(way);
  }
  e.refused = s->screened;
  if (s->refused > 0)
    e.refused.push_back(fmt::format("{} operators that exact arithmetic showed to compute something else", s->refused));
  // What the kernel of the value was not made one with, by the names of the input graph.
  const auto named = [&](const std::string& name) { return find_value(g, name).has_value(); };
  if (const auto apart = schedule::refused_fusions(*c.expanded))
    for (const schedule::Refusal& x : *apart) {
      if (std::find(x.values.begin(), x.values.end(), r.why_not) == x.values.end()) continue;
      const std::string inner = fmt::format("what `{}` is made of", r.why_not);
      const auto name = [&](const std::string& n) { return named(n) ? fmt::format("`{}`", n) : inner; };
      e.refused.push_back(fmt::format("{}, in one kernel: {}",
                                      named(x.producer) || named(x.consumer)
                                          ? fmt::format("{} and {}", name(x.producer), name(x.consumer))
                                          : fmt::format("two of the values that `{}` is made of", r.why_not),
                                      x.why));
    }
  if (!s->saturated && s->values == 0)
    e.refused.push_back(
        "every other: exact arithmetic cannot evaluate it (as it cannot a division by 0), so it stays as given");
  else if (!s->saturated)
    e.refused.push_back(fmt::format("whatever comes after the {} values at which the search stopped", s->values));
  return {};
}

}  // namespace

Result<Explanation> explain(const ExplainRequest& r, SourceText& source) {
  Explanation e;
  std::error_code error;
  if (fs::is_directory(r.path, error) && r.why_not.empty()) {
    TRY_ASSIGN(e, of_artefact(r));
  } else {
    Compilation c;
    c.options = r.options;
    c.path = fs::is_directory(r.path, error) ? (fs::path(r.path) / "graph" / "input.graph").string() : r.path;
    Diagnostics bad = run_search(c);
    source = c.source;
    if (!bad.empty()) return bad;
    e.name = c.input.name();
    if (!r.why_not.empty()) {
      e.what = fmt::format("`{}` and the ways to compute it.", r.why_not);
      if (bad = why_not(r, c, e); !bad.empty()) return bad;
      return e;
    }
    const size_t all = c.equal.size() + c.split.size();
    const size_t number = r.graph < 0 ? std::min<size_t>(1, all - 1) : static_cast<size_t>(r.graph);
    if (number >= all) return diagnose(Code::no_such_graph, all, number);
    const Equal& found = equal_graph(c, number);
    e.steps = found.derivation;
    e.what = all == 1      ? "The search found no graph but the input graph; `--why-not NODE` says what was refused."
             : number == 0 ? fmt::format("Graph 0 of {} is the input graph.", all)
                           : fmt::format("Graph {} of {}: {}.", number, all, found.summary);
    e.last = stabilising(found.graph);
    if (!found.split.empty())
      e.last += fmt::format(" Reductions over `{}` stop half way: each part by itself, then the parts.", found.split);
  }
  e.count = e.steps.size();
  if (r.step < 0 || static_cast<size_t>(r.step) > e.count) return diagnose(Code::no_such_step, e.count, r.step);
  if (r.step > 0) {
    e.steps = {e.steps[static_cast<size_t>(r.step) - 1]};
    e.first = static_cast<size_t>(r.step);
    e.last.clear();
  }
  return e;
}

std::string explain_text(const Explanation& e) {
  std::string out = fmt::format("{}: {}\n", e.name, e.what);
  for (size_t k = 0; k < e.steps.size(); ++k) {
    const algebra::Derived& d = e.steps[k];
    const algebra::Rule* rule = algebra::find_rule(d.rule);
    out += fmt::format("\nStep {} of {} ({}): {}.\n", e.first + k, e.count, d.rule,
                       rule ? rule->because : "it is equal by test");
    out += fmt::format("  the value   {}\n", d.value);
    if (!d.before.empty()) out += fmt::format("  was         {}\n", d.before);
    out += fmt::format("  becomes     {}\n", d.after);
  }
  if (!e.last.empty()) out += fmt::format("\n{}\n", e.last);
  for (size_t k = 0; k < e.ways.size(); ++k)
    out += fmt::format("  {} {}\n", k == 0 ? "as given:" : "found:   ", e.ways[k]);
  if (!e.ways.empty() && e.refused.empty()) out += "  nothing was refused\n";
  for (const std::string& why : e.refused) out += fmt::format("  refused:  {}\n", why);
  return out;
}

std::string explain_json(const Explanation& e) {
  using Json = nlohmann::ordered_json;
  Json steps = Json::array();
  for (size_t k = 0; k < e.steps.size(); ++k) {
    const algebra::Derived& d = e.steps[k];
    const algebra::Rule* rule = algebra::find_rule(d.rule);
    steps.push_back({{"step", e.first + k},
                     {"rule", d.rule},
                     {"because", rule ? Json(rule->because) : Json(nullptr)},
                     {"value", d.value},
                     {"before", d.before},
                     {"after", d.after}});
  }
  return Json{{"schema", "cleave.explain/1"}, {"name", e.name}, {"what", e.what},      {"steps", steps},
              {"stabilised", e.last},         {"ways", e.ways}, {"refused", e.refused}}
             .dump(2, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

}  // namespace cleave::driver
