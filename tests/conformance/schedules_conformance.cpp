// Every graph of a suite at its points: the schedules of all equal graphs, compiled and judged by the float64
// evaluator; small ones are interpreted as well, as itGraphs and as tile programs (tools/conformance schedules).
//
// usage: schedules_conformance --data FILE [--group TEXT] [--only TEXT] [--graphs N] [--candidates N] [--part N]
//                              [--interpret ELEMENTS]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "algebra/search.hpp"
#include "driver/compile.hpp"
#include "eval/itgraph_eval.hpp"
#include "eval/tile_eval.hpp"
#include "frontend/suite.hpp"
#include "runtime/timing.hpp"
#include "schedule/schedule.hpp"
#include "tune/reference.hpp"

namespace cleave {
namespace {

struct Options {
  std::string data, group = "cpu", only;
  size_t graphs = 8, candidates = 4;
  int64_t part = 0;
  double interpret = 3e6;  // steps of a graph that are worth interpreting
};

struct Report {
  int64_t points = 0, compiled = 0, interpreted = 0;
  std::vector<std::string> failed;
};

class Runner {
 public:
  explicit Runner(const Options& options) : options_(options) {}

  void row(const SuiteRow& row, Report& report) {
    for (const SuitePoint& p : row.points) {
      if (p.group.find(options_.group) == std::string::npos) continue;
      std::string name = row.name + " " + p.group;
      for (const auto& [dim, value] : p.dims) name += fmt::format(" {}={}", dim, value);
      ++report.points;
      try {
        const std::string wrong = point(row, p, report);
        if (!wrong.empty()) report.failed.push_back(name + ": " + wrong);
      } catch (const InternalError& e) {
        report.failed.push_back(name + ": internal error: " + e.what());
      }
    }
  }

 private:
  std::string point(const SuiteRow& row, const SuitePoint& p, Report& report) {
    auto bound = graph::bind(row.graph, p.dims);
    if (!bound) return render(bound.errors(), nullptr);
    const graph::Graph g = graph::expand(*bound);
    auto data = tune::random_data(*bound, 1);
    if (!data) return render(data.errors(), nullptr);
    const tune::Problem problem{g, std::move(data->inputs), std::move(data->scalars), std::move(data->constants)};
    tune::ReferenceOptions reference_options;
    reference_options.complete_steps = 4e8;
    auto reference = tune::make_reference(problem, reference_options);
    if (!reference) return render(reference.errors(), nullptr);
    schedule::Options so;
    so.machine = host_machine();
    so.threads = 1;
    so.keep = options_.candidates;
    so.part = options_.part;
    auto apart = schedule::unfused(g, so);
    if (!apart) return render(apart.errors(), nullptr);
    const std::string first = judged(problem, *reference, *apart, nullptr, report);
    if (!first.empty()) return first;
    auto found = algebra::search(g, {});
    if (!found) return render(found.errors(), nullptr);
    for (size_t i = 0; i < std::min(found->graphs.size(), options_.graphs); ++i) {
      auto all = schedule::candidates(found->graphs[i].graph, so);
      if (!all) return fmt::format("graph {}: {}", i, render(all.errors(), nullptr));
      for (const schedule::Candidate& c : *all) {
        const std::string wrong = judged(problem, *reference, c, &unfused_, report);
        if (!wrong.empty()) return fmt::format("graph {}, {}: {}", i, c.summary, wrong);
      }
    }
    return "";
  }

  // Compiled; and interpreted when that is cheap. The first one judged is what the others are compared with.
  std::string judged(const tune::Problem& problem, const tune::Reference& reference, const schedule::Candidate& c,
                     const tune::Verdict* unfused, Report& report) {
    auto compiled = driver::compile(c.program, problem.constants, host_machine());
    if (!compiled) return render(compiled.errors(), nullptr);
    tune::Results results(problem.graph);
    tune::Call call;
    for (const tune::Array& a : problem.inputs) call.inputs.push_back(a.data.data());
    call.scalars = problem.scalars;
    call.outputs = results.addresses();
    SerialExecutor serial;
    if (const Diagnostics bad = (*compiled)->run(call, serial); !bad.empty()) return render(bad, nullptr);
    ++report.compiled;
    tune::Verdict v = judge(reference, results, unfused, {});
    if (!v.ok) return v.text;
    if (!results.guards_intact()) return "it wrote outside its outputs";
    if (!unfused) unfused_ = v;
    if (tune::evaluation_steps(problem.graph) > options_.interpret) return "";
    ++report.interpreted;
    tune::Results again(problem.graph);
    oracle::TileArguments arguments;
    for (const tune::Array& a : problem.inputs)
      arguments.inputs.push_back({a.data.as<const std::byte>(), static_cast<size_t>(a.bytes())});
    for (const tune::Array& a : problem.constants)
      arguments.constants.push_back({a.data.as<const std::byte>(), static_cast<size_t>(a.bytes())});
    arguments.scalars = problem.scalars;
    const std::vector<void*> outputs = again.addresses();
    for (size_t i = 0; i < outputs.size(); ++i)
      arguments.outputs.push_back(
          {static_cast<std::byte*>(outputs[i]),
           static_cast<size_t>(oracle::product(again.extents(i)) * byte_size(again.type(i).dtype))});
    oracle::run(c.program, arguments);
    v = judge(reference, again, unfused, {});
    if (!v.ok) return "interpreted as a tile program: " + v.text;
    oracle::ItGraphArguments given;
    for (const tune::Array& a : problem.inputs) given.inputs.push_back(tune::tensor_of(a));
    for (const tune::Array& a : problem.constants) given.constants.push_back(tune::tensor_of(a));
    given.scalars = problem.scalars;
    oracle::EvalOptions rounded;
    rounded.round_to_storage = true;
    rounded.max_steps = 1e11;
    const auto values = oracle::run(c.it, given, rounded);
    if (!values) return "interpreted as an itGraph: " + render(values.errors(), nullptr);
    for (size_t i = 0; i < values->size(); ++i) {
      const std::vector<std::byte> bytes = oracle::to_dense((*values)[i]);
      std::copy(bytes.begin(), bytes.end(), static_cast<std::byte*>(outputs[i]));
    }
    v = judge(reference, again, unfused, {});
    return v.ok ? "" : "interpreted as an itGraph: " + v.text;
  }

  const Options& options_;
  tune::Verdict unfused_;
};

int run(const Options& options) {
  std::ifstream file(options.data);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) {
    std::fprintf(stderr, "%s cannot be read\n", options.data.c_str());
    return 2;
  }
  auto rows = read_suite(text.str());
  if (!rows) {
    std::fprintf(stderr, "%s", render(rows.errors(), nullptr).c_str());
    return 3;
  }
  nlohmann::json out = {{"rows", nlohmann::json::array()}};
  bool ok = true;
  for (const SuiteRow& row : *rows) {
    if (row.name.find(options.only) == std::string::npos) continue;
    const double begin = runtime::wall_seconds();
    Report report;
    Runner(options).row(row, report);
    const double seconds = runtime::wall_seconds() - begin;
    std::fprintf(stderr, "%-20s %3lld points, %5lld programs compiled, %5lld interpreted, %zu failed, %.1f s\n",
                 row.name.c_str(), static_cast<long long>(report.points), static_cast<long long>(report.compiled),
                 static_cast<long long>(report.interpreted), report.failed.size(), seconds);
    for (const std::string& f : report.failed) std::fprintf(stderr, "  %s\n", f.c_str());
    ok = ok && report.failed.empty();
    out["rows"].push_back({{"name", row.name},
                           {"points", report.points},
                           {"compiled", report.compiled},
                           {"interpreted", report.interpreted},
                           {"failed", report.failed},
                           {"seconds", seconds}});
  }
  std::printf("%s\n", out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace cleave

int main(int argc, char** argv) {
  cleave::Options o;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string key = argv[i], value = argv[i + 1];
    if (key == "--data")
      o.data = value;
    else if (key == "--group")
      o.group = value;
    else if (key == "--only")
      o.only = value;
    else if (key == "--graphs")
      o.graphs = std::strtoul(value.c_str(), nullptr, 10);
    else if (key == "--candidates")
      o.candidates = std::strtoul(value.c_str(), nullptr, 10);
    else if (key == "--part")
      o.part = std::strtol(value.c_str(), nullptr, 10);
    else if (key == "--interpret")
      o.interpret = std::strtod(value.c_str(), nullptr);
    else
      return std::fprintf(stderr, "unknown option %s\n", key.c_str()), 2;
  }
  return cleave::run(o);
}
