#include "driver/pipeline.hpp"

#include <algorithm>
#include <filesystem>

#include "base/codes.hpp"
#include "driver/compile.hpp"
#include "frontend/file.hpp"
#include "runtime/timing.hpp"

namespace cleave::driver {

namespace {

std::vector<DumpFile> nothing(const Compilation&) { return {}; }

std::vector<DumpFile> imported(const Compilation& c) {
  if (!c.input.graph) return {};
  return {{"import.graph", graph::print(*c.input.graph)}};
}
std::vector<DumpFile> bound(const Compilation& c) { return {{"bind.graph", graph::print(*c.bound)}}; }
std::vector<DumpFile> expanded(const Compilation& c) { return {{"expand.graph", graph::print(*c.expanded)}}; }
std::vector<DumpFile> equal(const Compilation& c) {
  std::vector<DumpFile> out;
  for (size_t i = 0; i < c.equal.size(); ++i)
    out.emplace_back(fmt::format("search.{}.graph", i), graph::print(c.equal[i].graph));
  return out;
}
std::vector<DumpFile> scheduled(const Compilation& c) {
  std::vector<DumpFile> out = {{"schedule.unfused.itg", itgraph::print(c.unfused->it)},
                               {"schedule.unfused.tile", tile::print(c.unfused->program)}};
  for (size_t i = 0; i < c.proposals.size(); ++i) {
    out.emplace_back(fmt::format("schedule.{}.itg", i), itgraph::print(c.proposals[i].candidate.it));
    out.emplace_back(fmt::format("schedule.{}.tile", i), tile::print(c.proposals[i].candidate.program));
  }
  return out;
}
std::vector<DumpFile> tuned(const Compilation& c) {
  return {{"tune.itg", itgraph::print(c.outcome->candidate.it)},
          {"tune.tile", tile::print(c.outcome->candidate.program)}};
}

constexpr Pass kPasses[] = {
    {"import", "read a .graph text or an ONNX model", "file", "graph", false, import_input, imported},
    {"bind", "give every named dimension its extent (--dim)", "graph", "graph", false, bind_dims, bound},
    {"expand", "replace softmax, norms, attention and other composites by primitive operators in safe forms", "graph",
     "expanded graph", false, expand_composites, expanded},
    {"search", "find equal graphs and stabilise them", "expanded graph", "stabilised", true, search_graphs, equal},
    {"schedule", "cut, tile and fuse each graph; predict times; keep the best candidates", "stabilised",
     "itgraph, tile", false, schedule_graphs, scheduled},
    {"tune", "compile, verify and time candidates in rounds; keep the fastest that is right", "itgraph, tile",
     "measured program", false, tune_candidates, tuned},
    {"package", "write the artefact folder (-o)", "measured program", "artefact", false, package_result, nothing},
};

}  // namespace

std::span<const Pass> pipeline() { return kPasses; }

const Pass* find_pass(std::string_view name) {
  const auto it = std::find_if(std::begin(kPasses), std::end(kPasses), [&](const Pass& p) { return name == p.name; });
  return it == std::end(kPasses) ? nullptr : it;
}

double Compilation::seconds(std::string_view pass) const {
  double sum = 0;
  for (const PassTime& t : times) {
    if (t.name == pass) return t.seconds;
    sum += t.seconds;
  }
  return pass == "total" ? sum : 0;
}

namespace {

// The dump of a stage; returns the folder it lies in.
Diagnostics dump(const Pass& pass, const Compilation& c, std::vector<std::string>& written) {
  for (const auto& [name, content] : pass.dump(c)) {
    std::error_code error;
    std::filesystem::create_directories(c.options.dump_dir, error);
    if (error) return {diagnose(Code::file_unwritable, c.options.dump_dir, error.message())};
    const std::string path = (std::filesystem::path(c.options.dump_dir) / name).string();
    if (Diagnostics bad = write_bytes(path, std::as_bytes(std::span(content))); !bad.empty()) return bad;
    written.push_back(path);
  }
  return {};
}

// A machine of another architecture is refused before the search, not after it.
Diagnostics check_machine(const Compilation& c, std::string_view last) {
  if (c.options.machine_file.empty()) return {};
  const Pass* tune = find_pass("tune");
  for (const std::string_view end : {last, std::string_view(c.options.stop_after)})
    if (const Pass* pass = find_pass(end); pass && pass < tune) return {};
  const auto machine = machine_for(c.options);
  if (!machine) return machine.errors();
  if (build_options(*machine).code.target.runs_here()) return {};
  return {diagnose(Code::unsupported_target, name(machine->isa))};
}

}  // namespace

Diagnostics run_passes(Compilation& c, std::string_view last, std::string_view first) {
  if (Diagnostics bad = check_machine(c, last); !bad.empty()) return bad;
  if (c.started == 0) c.started = runtime::wall_seconds();
  std::vector<std::string> written;
  bool started = first.empty();
  for (const Pass& pass : kPasses) {
    started = started || first == pass.name;
    if (!started) continue;
    const auto& off = c.options.disabled;
    if (pass.optional && std::find(off.begin(), off.end(), pass.name) != off.end()) {
      // The only pass that can be left out is the search; what follows needs its result.
      c.equal.clear();
      c.search_skipped = true;
      c.equal.push_back({*c.expanded, "as given", {}, "", 0});
      c.notes.push_back(fmt::format("pass `{}` was left out (--disable)", pass.name));
      if (last == pass.name || c.options.stop_after == pass.name) break;
      continue;
    }
    const double begin = runtime::wall_seconds();
    Diagnostics bad;
    try {
      bad = pass.run(c);
    } catch (const InternalError& e) {
      throw InternalError(
          fmt::format("pass `{}` (from {} to {}): {}{}", pass.name, pass.in, pass.out, e.what(),
                      written.empty() ? "" : fmt::format("; the dump before it is {}", written.back())));
    }
    c.times.push_back({pass.name, runtime::wall_seconds() - begin});
    if (!bad.empty()) {
      if (std::string_view(pass.name) != "import") {
        Diagnostic note = diagnose(Code::pass_failed, pass.name);
        if (!written.empty()) note.notes.push_back(fmt::format("the dump before it is {}", written.back()));
        bad.push_back(std::move(note));
      }
      return bad;
    }
    if (c.options.dump_after == "all" || c.options.dump_after == pass.name)
      if (Diagnostics failed = dump(pass, c, written); !failed.empty()) return failed;
    if (last == pass.name || c.options.stop_after == pass.name) break;
  }
  return {};
}

Diagnostics run_search(Compilation& c) {
  if (Diagnostics bad = run_passes(c, "import"); !bad.empty() || c.options.stop_after == "import") return bad;
  if (!c.options.dims.empty() || c.input.graph->dims().empty()) return run_passes(c, "search", "bind");
  c.bound = c.input.graph;
  return run_passes(c, "search", "expand");
}

const schedule::Candidate& chosen_candidate(const Compilation& c, int index) {
  if (c.outcome) return c.outcome->candidate;
  if (index < 0 || c.proposals.empty()) return *c.unfused;
  return c.proposals.at(std::min(static_cast<size_t>(index), c.proposals.size() - 1)).candidate;
}

}  // namespace cleave::driver
