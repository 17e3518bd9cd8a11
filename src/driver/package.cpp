// Writes the artefact folder.
#include <filesystem>
#include <functional>

#include "algebra/certificate.hpp"
#include "base/codes.hpp"
#include "driver/artefact.hpp"
#include "driver/compile.hpp"
#include "driver/constants.hpp"
#include "driver/report.hpp"
#include "driver/sha256.hpp"
#include "frontend/file.hpp"
#include "jit/library.hpp"

namespace cleave::driver {

namespace fs = std::filesystem;

namespace {

class Writer {
 public:
  explicit Writer(fs::path folder) : folder_(std::move(folder)) {}

  void write(const std::string& name, std::span<const std::byte> bytes, bool hash = true) {
    if (!errors_.empty()) return;
    const fs::path path = folder_ / name;
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    if (error) {
      errors_ = {diagnose(Code::file_unwritable, path.parent_path().string(), error.message())};
      return;
    }
    errors_ = write_bytes(path.string(), bytes);
    if (hash) hashes_.emplace_back(name, sha256_hex(bytes));
  }
  void write(const std::string& name, const std::string& text) { write(name, std::as_bytes(std::span(text))); }

  // Lets somebody else write the file at a path.
  void make(const std::string& name, const std::function<Diagnostics(const std::string&)>& write) {
    if (!errors_.empty()) return;
    const std::string path = (folder_ / name).string();
    errors_ = write(path);
    if (!errors_.empty()) return;
    if (auto bytes = read_bytes(path, 0, -1, int64_t{1} << 40))
      hashes_.emplace_back(name, sha256_hex(*bytes));
    else
      errors_ = bytes.errors();
  }

  const Diagnostics& errors() const { return errors_; }
  const std::vector<std::pair<std::string, std::string>>& hashes() const { return hashes_; }

 private:
  fs::path folder_;
  Diagnostics errors_;
  std::vector<std::pair<std::string, std::string>> hashes_;
};

// The shared library and its C header.
void write_c_library(Writer& w, Compilation& c, const CompiledProgram& program, const std::string& name) {
  if (!c.typical.empty()) {
    c.notes.push_back("no shared library: that takes extents which are all bound");
    return;
  }
  const auto arguments = [](const graph::Graph& g, graph::Op op) {
    std::vector<lower::Argument> out;
    for (graph::ValueId v : g.leaves(op))
      out.push_back({g.producer(v).attributes.get<std::string>("name"), g.type(v).dtype, g.extents(v), {}});
    return out;
  };
  jit::Interface x{name, arguments(*c.bound, graph::Op::input), {}, {}, ""};
  for (const lower::Argument& a : arguments(*c.bound, graph::Op::scalar)) x.scalars.push_back(a.name);
  for (const graph::Output& o : c.bound->outputs())
    x.outputs.push_back({o.name, c.bound->type(o.value).dtype, c.bound->extents(o.value), {}});
  x.note = fmt::format("{}: made by cleave {} for {}; link with -l{}", name, version(), c.machine.name,
                       jit::c_identifier(name));
  if (const int64_t bytes = jit::library_constant_bytes(program.built()); bytes > jit::kMaxLibraryConstants) {
    c.notes.push_back(fmt::format("no shared library: its constants take {} bytes, more than the limit of {}", bytes,
                                  jit::kMaxLibraryConstants));
    return;
  }
  const std::string file = jit::c_identifier(name);
  w.write(file + ".h", jit::library_header(x));
  w.make(fmt::format("lib{}.so", file),
         [&](const std::string& path) { return jit::write_library(program.built(), program.constants(), x, path); });
}

std::string quoted(const std::string& word) {
  std::string out = "'";
  for (char ch : word) out += ch == '\'' ? std::string("'\\''") : std::string(1, ch);
  return out + "'";
}

std::string repro_script(const Compilation& c) {
  std::string budget = "none";
  if (c.options.budget.candidates < std::numeric_limits<int64_t>::max())
    budget = fmt::format("{}c", c.options.budget.candidates);
  else if (std::isfinite(c.options.budget.seconds))
    budget = fmt::format("{}s", c.options.budget.seconds);
  std::string dims;  // those that are not bound in graph/input.graph
  for (const DimBinding& d : c.dims)
    if (d.option.is_range())
      dims += fmt::format(" --dim {}={}..{}@{}", d.name, d.option.lo, d.option.hi, d.option.representative);
  return fmt::format(
      "#!/bin/sh\n"
      "# Runs this optimisation again, from the graph that lies here. It was called as:\n"
      "#   {}\n"
      "cd \"$(dirname \"$0\")\" && exec \"${{CLEAVE:-cleave}}\" optimize graph/input.graph --target {} --threads {} "
      "--seed {} --budget {}{}{}{} \"$@\"\n",
      c.options.command, c.options.target, c.options.threads, c.options.seed, budget,
      c.options.deterministic ? " --deterministic" : "",
      c.options.split.empty() ? "" : " --split " + quoted(c.options.split), dims);
}

// An earlier artefact is replaced as a whole; anything else that is in the way stays.
Diagnostics in_the_way(const fs::path& target) {
  std::error_code error;
  if (!fs::exists(target, error)) return {};
  if (fs::is_directory(target, error) && (fs::is_empty(target, error) || fs::exists(target / "manifest.json", error)))
    return {};
  return {diagnose(Code::file_unwritable, target.string(), "it is there and is no artefact folder")};
}

// The folder that -o names, and where it is written before it takes its place.
fs::path target_of(const std::string& output) {
  const fs::path target = fs::path(output).lexically_normal();
  return target.has_filename() ? target : target.parent_path();
}
fs::path partial_of(const fs::path& target) { return target.string() + ".partial"; }

Diagnostics move_into_place(const fs::path& from, const fs::path& to) {
  std::error_code error;
  if (fs::exists(to, error)) {
    if (Diagnostics bad = in_the_way(to); !bad.empty()) return bad;
    fs::remove_all(to, error);
    if (error) return {diagnose(Code::file_unwritable, to.string(), error.message())};
  }
  fs::rename(from, to, error);
  if (error) return {diagnose(Code::file_unwritable, to.string(), error.message())};
  return {};
}

}  // namespace

Diagnostics check_output(const std::string& output) {
  if (output.empty()) return {};
  const fs::path target = target_of(output), partial = partial_of(target);
  if (Diagnostics bad = in_the_way(target); !bad.empty()) return bad;
  std::error_code error, ignored;
  fs::create_directories(partial, error);
  if (error) return {diagnose(Code::file_unwritable, output, error.message())};
  fs::remove_all(partial, ignored);
  return {};
}

Diagnostics package_result(Compilation& c) {
  if (c.options.output.empty()) return {};
  const tune::Outcome& o = *c.outcome;
  const fs::path target = target_of(c.options.output), partial = partial_of(target);
  std::error_code error;
  fs::remove_all(partial, error);
  Writer w(partial);

  const std::string name = c.input.name();
  w.write("graph/input.graph",
          graph::print(with_constant_files(*c.bound, [&](const std::string& path, const std::vector<std::byte>& bytes) {
            w.write("graph/" + path, bytes);
          })));
  const graph::Graph& best =
      o.chosen < 0 ? *c.expanded : c.equal.at(static_cast<size_t>(o.trials[static_cast<size_t>(o.chosen)].graph)).graph;
  // Equal graphs have the leaves of the input graph, so its constants are those that lie there already.
  w.write("graph/best.graph", graph::print(with_constant_files(best)));
  w.write("graph/input.svg", graph_svg(*c.bound));
  w.write("graph/best.svg", graph_svg(best));
  w.write("schedule.itg", itgraph::print(o.candidate.it));
  w.write("kernels/program.tile", tile::print(o.candidate.program));
  w.write("baseline/unfused.tile", tile::print(c.unfused->program));
  if (const auto* compiled = dynamic_cast<const CompiledProgram*>(o.runnable.get())) {
    w.write("kernels/program.o", std::as_bytes(std::span(compiled->built().object())));
    write_c_library(w, c, *compiled, name);
  }
  if (o.chosen >= 0 && !c.search_skipped) {
    algebra::SearchOptions so;
    so.seed = c.options.seed;
    if (auto text =
            algebra::certificate(*c.expanded, static_cast<size_t>(o.trials[static_cast<size_t>(o.chosen)].graph), so)) {
      w.write("certificate.json", *text);
      c.certificate = true;
    } else {
      c.notes.push_back("no certificate: " + text.errors().front().message());
    }
  }
  w.write("machine.txt", print(c.machine));
  w.write("candidates.jsonl", candidates_jsonl(c));
  w.write("path.json", path_json(c));
  w.write("trace.json", trace_json(c));
  w.write("report.html", report_html(c));
  w.write("repro.sh", repro_script(c));
  const std::string manifest = manifest_json(c, w.hashes());
  w.write("manifest.json", manifest);
  if (!w.errors().empty()) {
    fs::remove_all(partial, error);
    return w.errors();
  }
  fs::permissions(partial / "repro.sh", fs::perms::owner_exec | fs::perms::group_exec | fs::perms::others_exec,
                  fs::perm_options::add, error);
  if (target.has_parent_path()) fs::create_directories(target.parent_path(), error);
  if (Diagnostics bad = move_into_place(partial, target); !bad.empty()) {
    fs::remove_all(partial, error);
    return bad;
  }
  for (const auto& [file, hash] : w.hashes()) c.files.push_back(file);
  return {};
}

}  // namespace cleave::driver
