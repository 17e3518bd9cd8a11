// JSON of the algebraic phase and of the scheduling phase alone.
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "driver/report.hpp"

namespace cleave::driver {

using Json = nlohmann::ordered_json;

namespace {

Json number(double v) { return std::isfinite(v) ? Json(v) : Json(nullptr); }
std::string text(const Json& j) { return j.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"; }

Json operators(const graph::Graph& g) {
  std::map<std::string, int> count;
  for (graph::NodeId id : g.node_ids()) {
    const graph::Node& n = g.node(id);
    if (graph::info(n.op).category != graph::Category::leaf) ++count[graph::info(n.op).name];
  }
  return count;
}

Json kernels(const schedule::Candidate& s) {
  Json out = Json::array();
  for (const schedule::KernelEstimate& k : s.kernels)
    out.push_back({{"name", k.name},
                   {"flops", number(k.flops)},
                   {"bytes", number(k.bytes)},
                   {"predicted_ms", number(1e3 * k.seconds)}});
  return out;
}

}  // namespace

std::string search_json(const Compilation& c) {
  Json graphs = Json::array();
  for (size_t i = 0; i < c.equal.size() + c.split.size(); ++i) {
    const Equal& e = equal_graph(c, i);
    Json derivation = Json::array();
    for (const algebra::Derived& d : e.derivation)
      derivation.push_back({{"rule", d.rule}, {"value", d.value}, {"before", d.before}, {"after", d.after}});
    // A lower bound of the time and the number of kernels need a schedule; the algebra alone has neither.
    graphs.push_back({{"id", i},
                      {"ops", operators(e.graph)},
                      {"kernels", nullptr},
                      {"split", e.split.empty() ? Json(nullptr) : Json(e.split)},
                      {"lower_bound_ms", nullptr},
                      {"cost", number(e.cost)},
                      {"summary", e.summary},
                      {"derivation", derivation},
                      {"text", graph::print(e.graph)}});
  }
  return text({{"schema", "cleave.search/1"},
               {"name", c.input.name()},
               {"values", c.search.values},
               {"producers", c.search.producers},
               {"refused", c.search.refused},
               {"screened_out", c.search.screened_out},
               {"screened", c.search.screened},
               {"saturated", c.search.saturated},
               {"seconds", number(c.search.seconds)},
               {"graphs", graphs}});
}

std::string schedule_json(const Compilation& c) {
  Json list = Json::array();
  for (size_t i = 0; i < c.proposals.size(); ++i) {
    const schedule::Candidate& s = c.proposals[i].candidate;
    list.push_back({{"candidate", i},
                    {"graph", c.proposals[i].graph},
                    {"summary", s.summary},
                    {"predicted_ms", number(1e3 * s.seconds)},
                    {"kernels", kernels(s)}});
  }
  return text({{"schema", "cleave.schedule/1"},
               {"name", c.input.name()},
               {"threads", c.options.threads},
               {"unfused",
                {{"summary", c.unfused->summary},
                 {"predicted_ms", number(1e3 * c.unfused->seconds)},
                 {"kernels", kernels(*c.unfused)}}},
               {"candidates", list}});
}

}  // namespace cleave::driver
