#include "algebra/certificate.hpp"

#include <nlohmann/json.hpp>

#include "base/codes.hpp"
#include "base/digest.hpp"

namespace cleave::algebra {

namespace {

// Each step, and the result, carries the digest of all that stands before it and of itself, keys sorted: a certificate
// with something changed, left out or in another order is not this one.
void seal(nlohmann::ordered_json& j) {
  Digest digest;
  auto add = [&](const nlohmann::ordered_json& o) { digest.add(nlohmann::json::parse(o.dump()).dump()); };
  nlohmann::ordered_json head = j;
  head.erase("steps");
  head.erase("result");
  add(head);
  for (auto& step : j["steps"]) {
    add(step);
    step["digest"] = digest.hex();
  }
  add(j["result"]);
  j["digest"] = digest.hex();
}

std::string written(const graph::Graph& graph, const SearchResult& result, const Found& found,
                    const SearchOptions& options) {
  nlohmann::ordered_json j;
  j["schema"] = "cleave.certificate/2";
  j["graph"] = graph.name();
  j["seed"] = options.seed;
  j["draws"] = options.draws;
  j["assumptions"] = {{"fields", "a tower of primes between 2^31 and 2^51, drawn by the seed"},
                      {"functions", "functions without algebra and maxima are random functions of their operands"},
                      {"exponents", "exponents and leaves are independent and random"},
                      {"predicates", "comparisons are random functions of the difference of their sides"}};
  j["policies"] = {{"rounding", options.rounding_free ? "free" : "kept"},
                   {"overflow", "equal where the safe form of the input graph is finite"},
                   {"empty_rows", "as the input graph says (quot0: 0)"}};
  // With a split index the input graph is meant for extents that are products, as all graphs of the result are.
  if (!options.split.empty()) j["policies"]["split"] = options.split;
  j["input"] = open_text(options.split.empty() ? graph : result.graphs[0].graph);
  j["steps"] = nlohmann::json::array();
  for (const Derived& d : found.derivation) {
    nlohmann::ordered_json step{{"rule", d.rule}, {"value", d.value}, {"before", d.before}, {"after", d.after}};
    if (!d.graph.empty()) step["graph"] = d.graph;
    j["steps"].push_back(std::move(step));
  }
  j["result"] = open_text(found.graph);
  seal(j);
  return j.dump(1) + "\n";
}

}  // namespace

Result<std::string> certificate(const graph::Graph& graph, size_t which, SearchOptions options) {
  options.record_path = true;
  TRY_ASSIGN(const SearchResult result, search(graph, options));
  if (which >= result.graphs.size()) return diagnose(Code::no_such_graph, result.graphs.size(), which);
  return written(graph, result, result.graphs[which], options);
}

Result<std::vector<std::string>> certificates(const graph::Graph& graph, SearchOptions options) {
  options.record_path = true;
  TRY_ASSIGN(const SearchResult result, search(graph, options));
  std::vector<std::string> out;
  for (const Found& found : result.graphs) out.push_back(written(graph, result, found, options));
  return out;
}

}  // namespace cleave::algebra
