#include "driver/suite.hpp"

#include <malloc.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "algebra/search.hpp"
#include "frontend/file.hpp"
#include "frontend/suite.hpp"

namespace cleave::driver {

namespace {

constexpr int64_t kMaxSuiteBytes = 64 << 20;
constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// A line of /proc/self/status, in MB.
double status_mb(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(key + ":")) return std::strtod(line.c_str() + key.size() + 1, nullptr) / 1024;
  return kUnknown;
}

// From here on the peak counts anew (Linux; elsewhere nothing is known).
double begin_peak() {
  malloc_trim(0);
  std::ofstream reset("/proc/self/clear_refs");
  reset << "5" << std::flush;
  return reset ? status_mb("VmRSS") : kUnknown;
}

}  // namespace

Result<std::vector<SuiteSearch>> search_suite(const std::string& path, const Options& options) {
  TRY_ASSIGN(const std::vector<std::byte> bytes, read_bytes(path, 0, -1, kMaxSuiteBytes));
  TRY_ASSIGN(const std::vector<SuiteRow> suite,
             read_suite({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
  std::vector<SuiteSearch> rows;
  for (const SuiteRow& row : suite) {
    const graph::Graph g = graph::expand(row.graph);
    std::vector<std::string> splits{""};
    for (std::string& name : algebra::splittable_indices(g)) splits.push_back(std::move(name));
    for (const std::string& split : splits) {
      if (options.interrupted()) return rows;
      options.log(fmt::format("searching {}{}", row.name, split.empty() ? "" : ", " + split + " split"));
      const double before = begin_peak();
      algebra::SearchOptions o;
      o.seed = options.seed;
      o.split = split;
      TRY_ASSIGN(const algebra::SearchResult r, algebra::search(g, o));
      rows.push_back({row.name, split, r.values, r.applications, r.graphs.size(), r.saturated, r.seconds,
                      std::isnan(before) ? kUnknown : std::max(0.0, status_mb("VmHWM") - before)});
    }
  }
  return rows;
}

std::string suite_text(const std::vector<SuiteSearch>& rows) {
  std::string out = fmt::format("{:<20} {:<6} {:>7} {:>12} {:>7} {:>9} {:>9} {:>8}\n", "row", "split", "values",
                                "applications", "graphs", "saturated", "seconds", "peak MB");
  for (const SuiteSearch& r : rows)
    out += fmt::format("{:<20} {:<6} {:>7} {:>12} {:>7} {:>9} {:>9.3f} {:>8}\n", r.name,
                       r.split.empty() ? "-" : r.split, r.values, r.applications, r.graphs, r.saturated ? "yes" : "no",
                       r.seconds, std::isnan(r.peak_mb) ? "?" : fmt::format("{:.1f}", r.peak_mb));
  return out;
}

std::string suite_json(const std::vector<SuiteSearch>& rows) {
  using Json = nlohmann::ordered_json;
  Json list = Json::array();
  for (const SuiteSearch& r : rows)
    list.push_back({{"name", r.name},
                    {"split", r.split.empty() ? Json(nullptr) : Json(r.split)},
                    {"values", r.values},
                    {"applications", r.applications},
                    {"graphs", r.graphs},
                    {"saturated", r.saturated},
                    {"seconds", r.seconds},
                    {"peak_mb", std::isnan(r.peak_mb) ? Json(nullptr) : Json(r.peak_mb)}});
  return Json{{"schema", "cleave.suite/1"}, {"rows", list}}.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace cleave::driver
