// JSON of `run`, `bench` and `show`.
#include <cmath>
#include <nlohmann/json.hpp>

#include "driver/execute.hpp"
#include "driver/show.hpp"

namespace cleave::driver {

using Json = nlohmann::ordered_json;

namespace {
Json number(double v) { return std::isfinite(v) ? Json(v) : Json(nullptr); }
}  // namespace

std::string run_json(const RunReport& r) {
  Json outputs = Json::array();
  for (const OutputSummary& s : r.outputs)
    outputs.push_back({{"name", s.name},
                       {"dtype", s.dtype},
                       {"shape", s.shape},
                       {"lowest", number(s.lowest)},
                       {"highest", number(s.highest)},
                       {"mean", number(s.mean)},
                       {"not_finite", s.not_finite},
                       {"sha256", s.sha256}});
  Json j = {{"schema", "cleave.run/1"},
            {"name", r.name},
            {"schedule", r.schedule},
            {"random_inputs", r.random_inputs},
            {"random_constants", r.random_constants},
            {"from_object", r.from_object},
            {"time_ms", number(1e3 * r.seconds)},
            {"outputs", outputs}};
  j["error"] = nullptr;
  if (r.verdict)
    j["error"] = {{"elements", r.verdict->elements},
                  {"left_out", r.verdict->left_out},
                  {"max_abs", number(r.verdict->max_abs)},
                  {"max_rel", number(r.verdict->max_rel)},
                  {"bound", number(r.verdict->bound)}};
  j["files"] = r.files;
  j["notes"] = r.notes;
  return j.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string show_json(const std::string& stage, const std::string& text) {
  const Json j = {{"schema", "cleave.show/1"}, {"stage", stage.empty() ? Json(nullptr) : Json(stage)}, {"text", text}};
  return j.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string bench_json(const BenchReport& r) {
  const runtime::Comparison& c = r.comparison;
  Json kernels = Json::array();
  for (const auto& [name, seconds] : r.kernels) kernels.push_back({{"name", name}, {"time_ms", number(1e3 * seconds)}});
  Json j = {{"schema", "cleave.bench/1"},
            {"name", r.name},
            {"threads", r.threads},
            {"pairs", c.pairs},
            {"time_ms", number(1e3 * c.seconds_a)},
            {"baseline_ms", number(1e3 * c.seconds_b)},
            {"speedup", number(c.ratio)},
            {"speedup_interval", {number(c.interval.low), number(c.interval.high)}},
            {"control_interval", {number(c.control.low), number(c.control.high)}},
            {"peak_gflops", c.peak_gflops > 0 ? number(c.peak_gflops) : Json(nullptr)},
            {"flops", r.flops > 0 ? number(r.flops) : Json(nullptr)},
            {"kernels", kernels}};
  return j.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string check_json(const CheckedCertificate& c) {
  return Json{{"schema", "cleave.check/1"}, {"accepted", true}, {"steps", c.steps}, {"evaluations", c.evaluations}}
             .dump(2) +
         "\n";
}

}  // namespace cleave::driver
