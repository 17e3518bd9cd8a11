// How good the cost model is: candidates drawn uniformly from all legal ones, predicted and measured.
//
// usage: bench_cost [--draw N] [--seed N] [--machine FILE] FILE.graph [NAME=EXTENT ..] [FILE.graph ..]
//
// For each graph: the share of pairs whose measured times differ by more than 10 % that the model orders right, and the
// time of the model's choice over that of the best of the drawn ones. One thread, thread CPU time, the best of a few
// runs (differences of 10 % are what matters), all candidates of a graph in turns so that a slow moment hits them
// alike.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "algebra/search.hpp"
#include "base/rng.hpp"
#include "driver/compile.hpp"
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

std::vector<Drawn> measure(const graph::Graph& bound, size_t count, uint64_t seed, const Machine& machine,
                           size_t& legal) {
  const graph::Graph g = graph::expand(bound);
  auto data = tune::random_data(bound, 1).value();
  const tune::Problem problem{g, std::move(data.inputs), std::move(data.scalars), std::move(data.constants)};
  schedule::Options options;
  options.machine = machine;
  options.every = true;
  std::vector<schedule::Candidate> all;
  for (const auto& found : algebra::search(g, {}).value().graphs)
    for (schedule::Candidate& c : schedule::candidates(found.graph, options).value()) all.push_back(std::move(c));
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
  std::vector<std::shared_ptr<driver::CompiledProgram>> programs;
  std::vector<Drawn> out;
  for (const schedule::Candidate& c : all) {
    programs.push_back(driver::compile(c.program, problem.constants, machine).value());
    out.push_back({c.summary, c.seconds, 1e30});
  }
  constexpr int kRounds = 5;
  for (int round = 0; round < kRounds; ++round)
    for (size_t i = 0; i < programs.size(); ++i) {
      const double begin = runtime::thread_cpu_seconds();
      CHECK(programs[i]->run(call, serial).empty(), "a run failed");
      out[i].measured = std::min(out[i].measured, runtime::thread_cpu_seconds() - begin);
    }
  return out;
}

int report(const std::string& name, const std::vector<Drawn>& drawn, size_t legal, bool list) {
  int64_t pairs = 0, right = 0;
  for (size_t i = 0; i < drawn.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      const double a = drawn[i].measured, b = drawn[j].measured;
      if (std::max(a, b) < 1.1 * std::min(a, b)) continue;
      ++pairs;
      right += (a < b) == (drawn[i].predicted < drawn[j].predicted);
    }
  auto by = [](auto member) { return [member](const Drawn& a, const Drawn& b) { return a.*member < b.*member; }; };
  const Drawn& best = *std::min_element(drawn.begin(), drawn.end(), by(&Drawn::measured));
  const Drawn& choice = *std::min_element(drawn.begin(), drawn.end(), by(&Drawn::predicted));
  std::printf(
      "%-40s %3zu of %4zu legal, %4lld pairs, %5.1f %% right, choice %.3fx of the best, predicted %.3fx of measured\n",
      name.c_str(), drawn.size(), legal, static_cast<long long>(pairs),
      pairs > 0 ? 100.0 * static_cast<double>(right) / static_cast<double>(pairs) : 100.0,
      choice.measured / best.measured, choice.predicted / choice.measured);
  if (list) {
    std::vector<Drawn> sorted = drawn;
    std::sort(sorted.begin(), sorted.end(), by(&Drawn::measured));
    for (const Drawn& d : sorted)
      std::printf("    %9.3f ms, predicted %9.3f  %s\n", d.measured * 1e3, d.predicted * 1e3, d.summary.c_str());
  }
  std::fflush(stdout);
  return 0;
}

}  // namespace
}  // namespace cleave

int main(int argc, char** argv) {
  using namespace cleave;
  size_t draw = 30;
  uint64_t seed = 1;
  bool list = false;
  std::optional<Machine> machine;
  auto read = [](const std::string& path) {
    std::ifstream f(path);
    std::stringstream s;
    s << f.rdbuf();
    return SourceText{path, s.str()};
  };
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--draw" && i + 1 < argc) {
      draw = std::strtoul(argv[++i], nullptr, 10);
    } else if (arg == "--seed" && i + 1 < argc) {
      seed = std::strtoul(argv[++i], nullptr, 10);
    } else if (arg == "--list") {
      list = true;
    } else if (arg == "--machine" && i + 1 < argc) {
      machine = parse_machine(read(argv[++i])).value();
    } else {
      std::map<std::string, int64_t> dims;
      while (i + 1 < argc && std::string(argv[i + 1]).find('=') != std::string::npos) {
        const std::string d = argv[++i];
        dims[d.substr(0, d.find('='))] = std::strtol(d.c_str() + d.find('=') + 1, nullptr, 10);
      }
      if (!machine) machine = jit::measured_host().value();
      const SourceText source = read(arg);
      auto g = graph::parse(source);
      if (!g) return std::fprintf(stderr, "%s", render(g.errors(), &source).c_str()), 3;
      const graph::Graph bound = graph::bind(*g, dims).value();
      size_t legal = 0;
      const auto drawn = measure(bound, draw, seed, *machine, legal);
      report(arg.substr(arg.rfind('/') + 1), drawn, legal, list);
    }
  }
}
