#include "driver/doctor.hpp"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "driver/compile.hpp"
#include "driver/pipeline.hpp"
#include "frontend/file.hpp"
#include "runtime/calibrate.hpp"

namespace cleave::driver {

namespace fs = std::filesystem;

namespace {

// Compiles a small tile program, runs it and compares each element.
Finding self_test() {
  const SourceText text{"self test", R"(tile self_test {
  input X: f32[37] argument 0
  output Y: f32[37] argument 0
  kernel double {
    nest (i < 37) {
      Y[i] = add(X[i], X[i])
    }
  }
}
)"};
  const auto program = tile::parse(text);
  if (!program)
    return {false, "code generator", "the self test's program is refused: " + render(program.errors(), &text)};
  auto compiled = compile(*program, {}, host_machine());
  if (!compiled) return {false, "code generator", compiled.errors().front().message()};
  tune::Array x = tune::make_array("X", DType::f32, {37}), y = tune::make_array("Y", DType::f32, {37});
  for (int i = 0; i < 37; ++i) x.data.as<float>()[i] = static_cast<float>(i) - 11.5f;
  SerialExecutor serial;
  const tune::Call call{{x.data.data()}, {}, {y.data.data()}};
  if (const Diagnostics bad = (*compiled)->run(call, serial); !bad.empty())
    return {false, "code generator", bad.front().message()};
  for (int i = 0; i < 37; ++i)
    if (y.data.as<float>()[i] != 2 * x.data.as<float>()[i])
      return {false, "code generator", fmt::format("a compiled kernel gives a wrong element {}", i)};
  return {true, "code generator", jit::cache_key(build_options(host_machine()).code)};
}

Finding cache_folder(const Options& options) {
  if (options.cache_dir.empty()) return {true, "cache", "none"};
  std::error_code error;
  fs::create_directories(options.cache_dir, error);
  if (error) return {false, "cache", fmt::format("{}: {}", options.cache_dir, error.message())};
  const std::string path = (fs::path(options.cache_dir) / ".doctor").string();
  const Diagnostics bad = write_bytes(path, {});
  fs::remove(path, error);
  return bad.empty() ? Finding{true, "cache", options.cache_dir} : Finding{false, "cache", bad.front().message()};
}

}  // namespace

std::vector<Finding> examine(const Options& options) {
  std::vector<Finding> out;
  const Machine m = host_machine();
  out.push_back({m.isa != Isa::generic, "processor",
                 fmt::format("{}, {} vectors of {} bytes", m.name, name(m.isa), m.vector_bytes)});
  out.push_back({m.cores >= 1, "cores", fmt::format("{} that this process may use", m.cores)});
  std::ifstream pages("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  std::getline(pages, line);
  out.push_back({true, "huge pages",
                 line.empty()                                ? "not known"
                 : line.find("[never]") != std::string::npos ? "off: large arrays are read more slowly"
                                                             : line});
  out.push_back(self_test());
  out.push_back(cache_folder(options));
  const double first = runtime::measure_peak_gflops(), second = runtime::measure_peak_gflops();
  const double spread = std::fabs(first - second) / std::max(first, second);
  out.push_back(
      {true, "peak",
       fmt::format("{:.1f} GFLOP/s on one core{}", std::max(first, second),
                   spread > 0.1 ? "; it varies by more than 10 %: this machine is busy, times will be noisy" : "")});
  return out;
}

std::string doctor_json(const std::vector<Finding>& findings) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  bool ok = true;
  for (const Finding& f : findings) {
    ok = ok && f.ok;
    list.push_back({{"what", f.what}, {"ok", f.ok}, {"detail", f.detail}});
  }
  return nlohmann::ordered_json{{"schema", "cleave.doctor/1"}, {"ok", ok}, {"findings", list}}.dump(2) + "\n";
}

std::string targets_json(const Machine& m) {
  const auto measured = [](double v) { return v > 0 ? nlohmann::ordered_json(v) : nlohmann::ordered_json(nullptr); };
  const nlohmann::ordered_json host = {{"target", "cpu"},
                                       {"name", m.name},
                                       {"isa", name(m.isa)},
                                       {"vector_bytes", m.vector_bytes},
                                       {"cores", m.cores},
                                       {"l1_bytes", m.l1_bytes},
                                       {"l2_bytes", m.l2_bytes},
                                       {"l3_bytes", m.l3_bytes},
                                       {"peak_gflops", measured(m.peak_gflops)},
                                       {"l2_gbytes", measured(m.l2_gbytes)},
                                       {"l3_gbytes", measured(m.l3_gbytes)},
                                       {"dram_gbytes", measured(m.dram_gbytes)},
                                       {"exp_cycles", measured(m.exp_cycles)},
                                       {"gigahertz", measured(m.gigahertz)}};
  return nlohmann::ordered_json{{"schema", "cleave.targets/1"}, {"targets", {host}}}.dump(2) + "\n";
}

std::string passes_json() {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Pass& p : pipeline())
    list.push_back({{"name", p.name}, {"doc", p.doc}, {"from", p.in}, {"to", p.out}, {"optional", p.optional}});
  return nlohmann::ordered_json{{"schema", "cleave.passes/1"}, {"passes", list}}.dump(2) + "\n";
}

}  // namespace cleave::driver
