// JSON of results, errors, candidates, paths and traces. Numbers that were not measured are null.
#include <cmath>
#include <nlohmann/json.hpp>

#include "driver/report.hpp"

namespace cleave::driver {

using Json = nlohmann::ordered_json;

namespace {

Json number(double v) { return std::isfinite(v) ? Json(v) : Json(nullptr); }
Json number(std::optional<double> v) { return v ? number(*v) : Json(nullptr); }
Json ms(double seconds) { return seconds > 0 ? number(1e3 * seconds) : Json(nullptr); }

std::string text(const Json& j, int indent = 2) { return j.dump(indent, ' ', false, Json::error_handler_t::replace); }

Json dims_of(const Compilation& c) {
  Json out = Json::object();
  for (const DimBinding& d : c.dims) {
    if (d.option.is_range())
      out[d.name] = {{"low", d.option.lo}, {"high", d.option.hi}, {"representative", d.option.representative}};
    else
      out[d.name] = d.option.representative;
  }
  return out;
}

Json kernels_of(const Compilation& c) {
  Json out = Json::array();
  for (const KernelReport& k : kernel_reports(c))
    out.push_back({{"name", k.name},
                   {"time_ms", k.seconds ? ms(*k.seconds) : Json(nullptr)},
                   {"predicted_ms", k.predicted_seconds ? ms(*k.predicted_seconds) : Json(nullptr)},
                   {"flops", number(k.flops)},
                   {"bytes", number(k.bytes)},
                   {"roofline_pct", number(k.roofline_pct)},
                   {"bound_by", k.bound_by.empty() ? Json(nullptr) : Json(k.bound_by)}});
  return out;
}

Json verdict_json(const tune::Verdict& v) {
  return {{"ok", v.ok},
          {"elements", v.elements},
          {"max_abs", number(v.max_abs)},
          {"max_rel", number(v.max_rel)},
          {"bound", number(v.bound)}};
}

Json trial_json(const tune::Trial& t) {
  Json j = {{"graph", t.graph},
            {"summary", t.summary},
            {"state", tune::name(t.state)},
            {"predicted_ms", ms(t.predicted_seconds)},
            {"time_ms", ms(t.seconds)},
            {"codegen_s", number(t.codegen_seconds)}};
  if (t.comparison) {
    j["speedup"] = number(t.comparison->ratio);
    j["speedup_interval"] = {number(t.comparison->interval.low), number(t.comparison->interval.high)};
    j["pairs"] = t.comparison->pairs;
  }
  if (t.verdict) j["error"] = verdict_json(*t.verdict);
  if (!t.why.empty()) j["why"] = t.why;
  return j;
}

int chosen_graph(const Compilation& c) {
  return c.outcome->chosen < 0 ? 0 : c.outcome->trials[static_cast<size_t>(c.outcome->chosen)].graph;
}

}  // namespace

std::string result_json(const Compilation& c) {
  const tune::Outcome& o = *c.outcome;
  const bool timed = o.seconds > 0;
  Json j;
  j["schema"] = "cleave.result/1";
  j["name"] = c.input.name();
  j["status"] = status(c);
  j["stop"] = tune::name(o.stop);
  j["target"] = c.options.target;
  j["dims"] = dims_of(c);
  j["threads"] = c.options.threads;
  j["seed"] = c.options.seed;
  j["graphs"] = {{"values", c.search.values}, {"equivalent", c.equal.size()}, {"saturated", c.search.saturated}};
  const std::string& split = c.equal.at(static_cast<size_t>(chosen_graph(c))).split;
  j["chosen"] = {{"graph", o.chosen < 0 ? Json(nullptr) : Json(chosen_graph(c))},
                 {"split", split.empty() ? Json(nullptr) : Json(split)},
                 {"unfused", o.chosen < 0},
                 {"summary", o.candidate.summary},
                 {"predicted_ms", ms(o.candidate.seconds)},
                 {"peak_pct", number(peak_pct(c, o.candidate, o.seconds))},
                 {"kernels", kernels_of(c)}};
  j["baseline"] = {{"summary", c.unfused->summary},
                   {"predicted_ms", ms(c.unfused->seconds)},
                   {"peak_pct", number(peak_pct(c, *c.unfused, o.unfused_seconds))},
                   {"kernels", c.unfused->kernels.size()}};
  j["baseline_ms"] = ms(o.unfused_seconds);
  j["time_ms"] = ms(o.seconds);
  j["speedup"] = timed ? number(o.speedup) : Json(nullptr);
  j["speedup_interval"] =
      timed && o.chosen >= 0 ? Json{number(o.speedup_interval.low), number(o.speedup_interval.high)} : Json(nullptr);
  j["peak_gflops"] = o.peak_gflops > 0           ? number(o.peak_gflops)
                     : c.machine.peak_gflops > 0 ? number(c.machine.peak_gflops)
                                                 : Json(nullptr);
  j["error"] = {{"max_abs", number(o.verdict.max_abs)},
                {"max_rel", number(o.verdict.max_rel)},
                {"baseline_max_rel", number(o.unfused.verdict->max_rel)},
                {"bound", o.verdict.unbounded < o.verdict.elements ? number(o.verdict.bound) : Json(nullptr)},
                {"unbounded", o.verdict.unbounded},
                {"elements", o.verdict.elements},
                {"all_elements", o.complete_reference}};
  j["seconds"] = {{"import", number(c.seconds("import") + c.seconds("bind") + c.seconds("expand"))},
                  {"algebra", number(c.seconds("search"))},
                  {"schedule", number(c.seconds("schedule"))},
                  {"codegen", number(o.codegen_seconds)},
                  {"verify", number(o.verify_seconds)},
                  {"measure", number(o.measure_seconds)},
                  {"total", number(c.seconds("total"))}};
  size_t tried = 0;
  for (const tune::Trial& t : o.trials) tried += t.state != tune::Trial::State::waiting;
  j["candidates"] = {{"proposed", o.trials.size()}, {"tried", tried}};
  j["certificate"] = c.certificate ? Json(c.options.output + "/certificate.json") : Json(nullptr);
  const auto m = memory(c);
  j["memory"] =
      m ? Json{{"workspace", m->workspace}, {"without_reuse", m->separate}, {"packed", m->packed}} : Json(nullptr);
  const Coverage cover = coverage(c);
  Json left = Json::array();
  for (const auto& [op, why] : cover.left_out) left.push_back({{"operator", op}, {"why", why}});
  j["coverage"] = {{"work", number(cover.share)}, {"left_out", left}};
  j["artefact"] = c.files.empty() ? Json(nullptr) : Json(c.options.output);
  j["notes"] = c.notes;
  return text(j) + "\n";
}

std::string errors_json(const Diagnostics& errors, const SourceText* source) {
  Json list = Json::array();
  for (const Diagnostic& d : errors) {
    if (info(d.code).severity == Severity::note) continue;
    Json e = {
        {"code", fmt::format("CLV{:04}", info(d.code).number)}, {"name", info(d.code).name}, {"message", d.message()}};
    if (source && d.range) {
      const auto p = source->position(d.range->begin);
      e["file"] = source->name;
      e["line"] = p.line;
      e["column"] = p.column;
    }
    if (!d.hint.empty()) e["hint"] = d.hint;
    if (!d.notes.empty()) e["notes"] = d.notes;
    list.push_back(std::move(e));
  }
  return text({{"schema", "cleave.error/1"}, {"errors", list}}) + "\n";
}

std::string candidates_jsonl(const Compilation& c) {
  std::string out;
  Json unfused = trial_json(c.outcome->unfused);
  unfused["graph"] = nullptr;
  unfused["unfused"] = true;
  out += text(unfused, -1) + "\n";
  for (size_t i = 0; i < c.outcome->trials.size(); ++i) {
    Json j = trial_json(c.outcome->trials[i]);
    j["candidate"] = i;
    j["chosen"] = static_cast<int>(i) == c.outcome->chosen;
    out += text(j, -1) + "\n";
  }
  return out;
}

std::string path_json(const Compilation& c) {
  Json steps = Json::array();
  for (const PassTime& t : c.times)
    if (const Pass* p = find_pass(t.name))
      steps.push_back({{"pass", t.name}, {"doc", p->doc}, {"from", p->in}, {"to", p->out}, {"seconds", t.seconds}});
  Json derivation = Json::array();
  if (c.outcome->chosen >= 0)
    for (const algebra::Derived& d : c.equal.at(static_cast<size_t>(chosen_graph(c))).derivation)
      derivation.push_back({{"rule", d.rule}, {"value", d.value}, {"before", d.before}, {"after", d.after}});
  return text({{"schema", "cleave.path/1"},
               {"passes", steps},
               {"graph", c.outcome->chosen < 0 ? Json(nullptr) : Json(chosen_graph(c))},
               {"derivation", derivation},
               {"schedule", c.outcome->candidate.summary}}) +
         "\n";
}

std::string trace_json(const Compilation& c) {
  Json events = Json::array();
  double at = 0;
  for (const PassTime& t : c.times) {
    events.push_back(
        {{"name", t.name}, {"ph", "X"}, {"ts", at * 1e6}, {"dur", t.seconds * 1e6}, {"pid", 1}, {"tid", 1}});
    at += t.seconds;
  }
  return text({{"traceEvents", events}}) + "\n";
}

}  // namespace cleave::driver
