// How good the cost model is: candidates drawn uniformly from all legal ones, predicted and measured.
//
// usage: bench_cost [options] FILE.graph [NAME=EXTENT ..] [FILE.graph ..]
//        bench_cost [options] --suite FILE.json [--group TEXT] [--only TEXT]     points of a suite (docs/suite.md)
// options: --draw N, --seed N, --machine FILE, --threads N, --list, --schedule
//
// For each graph: the share of pairs whose measured times differ by more than 10 % that the model orders right, and the
// time of the model's choice over that of the best of the drawn ones. Thread CPU time of one thread, or wall time of
// several; the best of a few runs (differences of 10 % are what matters), all candidates of a graph in turns so that a
// slow moment hits them alike.
//
// --schedule measures nothing but the scheduling itself: thread CPU seconds for the graphs that the algebra keeps of a
// point, candidates scheduled a second, and predictions a second of the cost model alone.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "algebra/search.hpp"
#include "base/rng.hpp"
#include "cost/estimate.hpp"
#include "driver/compile.hpp"
#include "frontend/suite.hpp"
#include "jit/calibrate.hpp"
#include "runtime/timing.hpp"
#include "schedule/schedule.hpp"
#include "tune/reference.hpp"

namespace cleave {
namespace {

struct Drawn {
  std::string summary;
  double predicted, measured;
};

void take(std::vector<schedule::Candidate> from, std::vector<schedule::Candidate>& to) {
  for (schedule::Candidate& c : from) to.push_back(std::move(c));
}

std::vector<Drawn> measure(const graph::Graph& bound, size_t count, uint64_t seed, const Machine& machine, int threads,
                           size_t& legal) {
  const graph::Graph g = graph::expand(bound);
  auto data = tune::random_data(bound, 1).value();
  const tune::Problem problem{g, std::move(data.inputs), std::move(data.scalars), std::move(data.constants)};
  schedule::Options options;
  options.machine = machine;
  options.threads = threads;
  options.every = true;
  std::vector<schedule::Candidate> all;
  const auto graphs = algebra::search(g, {}).value().graphs;
  for (const auto& found : graphs) take(schedule::candidates(found.graph, options).value(), all);
  legal = all.size();
  Rng rng(seed);
  for (size_t i = 0; i < std::min(count, all.size()); ++i)
    std::swap(all[i], all[i + static_cast<size_t>(rng.between(0, static_cast<int64_t>(all.size() - i) - 1))]);
  all.resize(std::min(count, all.size()));
  tune::Results results(problem.graph);
  tune::Call call;
  for (const tune::Array& a : problem.inputs) call.inputs.push_back(a.data.data());
  call.scalars = problem.scalars;
  call.outputs = results.addresses();
  SerialExecutor serial;
  std::optional<ThreadPool> pool;
  if (threads > 1) pool.emplace(threads);
  Executor& executor = pool ? static_cast<Executor&>(*pool) : serial;
  const auto clock = threads > 1 ? runtime::wall_seconds : runtime::thread_cpu_seconds;
  std::vector<std::shared_ptr<driver::CompiledProgram>> programs;
  std::vector<Drawn> out;
  for (const schedule::Candidate& c : all) {
    programs.push_back(driver::compile(c.program, problem.constants, machine).value());
    out.push_back({c.summary, c.seconds, 1e30});
  }
  constexpr int kRounds = 5;
  for (int round = 0; round < kRounds; ++round)
    for (size_t i = 0; i < programs.size(); ++i) {
      const double begin = clock();
      CHECK(programs[i]->run(call, executor).empty(), "a run failed");
      out[i].measured = std::min(out[i].measured, clock() - begin);
    }
  return out;
}

struct Score {
  int64_t pairs = 0, right = 0;
  double choice = 1, predicted = 1;
};

Score report(const std::string& name, const std::vector<Drawn>& drawn, size_t legal, bool list) {
  Score score;
  for (size_t i = 0; i < drawn.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      const double a = drawn[i].measured, b = drawn[j].measured;
      if (std::max(a, b) < 1.1 * std::min(a, b)) continue;
      ++score.pairs;
      score.right += (a < b) == (drawn[i].predicted < drawn[j].predicted);
    }
  auto by = [](auto member) { return [member](const Drawn& a, const Drawn& b) { return a.*member < b.*member; }; };
  const Drawn& best = *std::min_element(drawn.begin(), drawn.end(), by(&Drawn::measured));
  const Drawn& choice = *std::min_element(drawn.begin(), drawn.end(), by(&Drawn::predicted));
  score.choice = choice.measured / best.measured;
  score.predicted = choice.predicted / choice.measured;
  std::printf(
      "%-56s %3zu of %4zu, %4lld pairs, %5.1f %% right, choice %.3fx of the best, predicted %.3fx of measured\n",
      name.c_str(), drawn.size(), legal, static_cast<long long>(score.pairs),
      score.pairs > 0 ? 100.0 * static_cast<double>(score.right) / static_cast<double>(score.pairs) : 100.0,
      score.choice, score.predicted);
  if (list) {
    std::vector<Drawn> sorted = drawn;
    std::sort(sorted.begin(), sorted.end(), by(&Drawn::measured));
    for (const Drawn& d : sorted)
      std::printf("    %9.3f ms, predicted %9.3f  %s\n", d.measured * 1e3, d.predicted * 1e3, d.summary.c_str());
  }
  std::fflush(stdout);
  return score;
}

// Thread CPU seconds of scheduling all graphs of a point.
double schedule_time(const std::string& name, const graph::Graph& bound, const Machine& machine) {
  const auto graphs = algebra::search(graph::expand(bound), {}).value().graphs;
  schedule::Options options;
  options.machine = machine;
  const auto timed = [](const auto& f) {
    const double begin = runtime::thread_cpu_seconds();
    f();
    return runtime::thread_cpu_seconds() - begin;
  };
  options.finish = false;  // as `optimize`, which finishes those that it compiles
  const double seconds = timed([&] {
    for (const auto& found : graphs) CHECK(schedule::candidates(found.graph, options).ok(), "no schedule");
  });
  options.every = true;
  std::vector<schedule::Candidate> all;
  for (const auto& found : graphs) take(schedule::candidates(found.graph, options).value(), all);
  const double predicting = timed([&] {
    for (const schedule::Candidate& c : all) cost::estimate(c.program, machine, 1);
  });
  std::printf("%-56s %2zu graphs, %5zu candidates, %.3f s: %6.0f candidates a second; %7.0f predictions a second\n",
              name.c_str(), graphs.size(), all.size(), seconds, static_cast<double>(all.size()) / seconds,
              static_cast<double>(all.size()) / predicting);
  std::fflush(stdout);
  return seconds;
}

struct Point {
  std::string name;
  graph::Graph graph;  // bound
};

}  // namespace
}  // namespace cleave

int main(int argc, char** argv) {
  using namespace cleave;
  size_t draw = 30;
  uint64_t seed = 1;
  int threads = 1;
  bool list = false, schedule_only = false;
  std::string suite, group, only;
  std::optional<Machine> machine;
  std::vector<Point> points;
  auto read = [](const std::string& path) {
    std::ifstream f(path);
    std::stringstream s;
    s << f.rdbuf();
    return SourceText{path, s.str()};
  };
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const auto value = [&] { return i + 1 < argc ? argv[++i] : ""; };
    if (arg == "--draw")
      draw = std::strtoul(value(), nullptr, 10);
    else if (arg == "--seed")
      seed = std::strtoul(value(), nullptr, 10);
    else if (arg == "--threads")
      threads = std::max(1, std::atoi(value()));
    else if (arg == "--list")
      list = true;
    else if (arg == "--schedule")
      schedule_only = true;
    else if (arg == "--suite")
      suite = value();
    else if (arg == "--group")
      group = value();
    else if (arg == "--only")
      only = value();
    else if (arg == "--machine")
      machine = parse_machine(read(value())).value();
    else {
      std::map<std::string, int64_t> dims;
      while (i + 1 < argc && std::string(argv[i + 1]).find('=') != std::string::npos) {
        const std::string d = argv[++i];
        dims[d.substr(0, d.find('='))] = std::strtol(d.c_str() + d.find('=') + 1, nullptr, 10);
      }
      const SourceText source = read(arg);
      auto g = graph::parse(source);
      if (!g) return std::fprintf(stderr, "%s", render(g.errors(), &source).c_str()), 3;
      points.push_back({arg.substr(arg.rfind('/') + 1), graph::bind(*g, dims).value()});
    }
  }
  if (!suite.empty()) {
    auto rows = read_suite(read(suite).text);
    if (!rows) return std::fprintf(stderr, "%s", render(rows.errors(), nullptr).c_str()), 3;
    for (const SuiteRow& row : *rows)
      for (const SuitePoint& p : row.points) {
        if (p.group.find(group) == std::string::npos) continue;
        std::string name = row.name + " " + p.group;
        for (const auto& [dim, n] : p.dims) name += fmt::format(" {}{}", dim, n);
        if (name.find(only) != std::string::npos) points.push_back({name, graph::bind(row.graph, p.dims).value()});
      }
  }
  if (!machine) machine = jit::measured_host().value();
  Score all;
  size_t close = 0;
  double slowest = 0;
  for (const Point& p : points) {
    if (schedule_only) {
      slowest = std::max(slowest, schedule_time(p.name, p.graph, *machine));
      continue;
    }
    size_t legal = 0;
    const auto drawn = measure(p.graph, draw, seed, *machine, threads, legal);
    const Score one = report(p.name, drawn, legal, list);
    all.pairs += one.pairs;
    all.right += one.right;
    close += one.choice <= 1.15;
  }
  if (schedule_only)
    std::printf("%zu points, the slowest took %.3f s\n", points.size(), slowest);
  else
    std::printf("%zu points: %lld of %lld pairs right (%.1f %%), choice within 1.15x in %zu\n", points.size(),
                static_cast<long long>(all.right), static_cast<long long>(all.pairs),
                all.pairs > 0 ? 100.0 * static_cast<double>(all.right) / static_cast<double>(all.pairs) : 100.0, close);
}
