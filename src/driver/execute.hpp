// Running and timing what is already made: artefacts, tile programs, and graphs by the model's choice.
#pragma once

#include <string>
#include <vector>

#include "driver/options.hpp"
#include "driver/pipeline.hpp"

namespace cleave::driver {

struct RunRequest {
  Options options;
  std::string path;
  std::vector<std::string> inputs;   // .npy files in the order of the inputs; empty: seeded random data
  std::string outputs;               // folder for .npy files of the outputs; empty: none are written
  std::vector<std::string> scalars;  // "NAME=VALUE" of run-time scalars; the others are seeded random numbers
  bool check = false;                // also compare with the float64 evaluator
  bool unfused = false;              // of a graph or an artefact: its unfused schedule
};

struct OutputSummary {
  std::string name, dtype;
  std::vector<int64_t> shape;
  double lowest = 0, highest = 0, mean = 0;  // of finite elements
  int64_t not_finite = 0;
  std::string sha256;  // of its bytes
};

struct RunReport {
  std::string name, schedule;
  bool random_inputs = false, random_constants = false;
  bool from_object = false;
  std::string object_note;
  double seconds = 0;  // wall seconds of the one run
  std::vector<OutputSummary> outputs;
  std::optional<tune::Verdict> verdict;
  std::vector<std::string> files;
  std::vector<std::string> notes;
};
Result<RunReport> run_program(const RunRequest& request, SourceText& source);
std::string run_json(const RunReport& report);  // cleave.run/1
std::string run_text(const RunReport& report);

struct BenchReport {
  std::string name;
  runtime::Comparison comparison;  // of the program (a) with the unfused schedule (b)
  double flops = 0;                // of the unfused schedule; 0: not known
  int threads = 1;
  std::vector<std::pair<std::string, double>> kernels;  // seconds on one thread
};
Result<BenchReport> bench_program(const RunRequest& request, SourceText& source);
std::string bench_json(const BenchReport& report);  // cleave.bench/1
std::string bench_text(const BenchReport& report);

// A certificate, or the one in an artefact folder, verified again by the checker.
struct CheckedCertificate {
  size_t steps = 0, evaluations = 0;
};
Result<CheckedCertificate> check_file(const std::string& path, uint64_t seed);
std::string check_json(const CheckedCertificate& checked);  // cleave.check/1

}  // namespace cleave::driver
