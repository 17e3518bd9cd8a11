// The pipeline for the library's users.
#include <algorithm>

#include "algebra/certificate.hpp"
#include "api/internal.hpp"
#include "base/codes.hpp"
#include "driver/compile.hpp"
#include "driver/report.hpp"
#include "driver/show.hpp"

namespace cleave {

using api::guarded;
using api::raise;
using api::take;

struct Optimized::Impl {
  std::shared_ptr<const Graph::Impl> graph;
  driver::Compilation c;
  std::shared_ptr<const Program::Impl> program;
  std::string certificate;

  int chosen_graph() const {
    return c.outcome->chosen < 0 ? -1 : c.outcome->trials[static_cast<size_t>(c.outcome->chosen)].graph;
  }
  const graph::Graph& best() const {
    return chosen_graph() < 0 ? *c.expanded : c.equal.at(static_cast<size_t>(chosen_graph())).graph;
  }
};

Optimized optimize(const Graph& graph, const OptimizeOptions& options) {
  return guarded([&] {
    auto impl = std::make_shared<Optimized::Impl>();
    impl->graph = graph.shared();
    const std::lock_guard lock(impl->graph->mutex);
    driver::Compilation& c = impl->c;
    driver::Options& o = c.options;
    for (const auto& [name, text] : options.dims)
      if (Diagnostics bad = driver::parse_dim(name + "=" + text, o.dims); !bad.empty()) raise(bad);
    o.budget = take(driver::parse_budget(options.budget));
    o.target = options.target;
    if (o.target != "cpu") raise(diagnose(Code::missing_target, fmt::format("the target `{}`", o.target)));
    if (options.threads < 1 || options.threads > 1024)
      raise(diagnose(Code::bad_option, "threads", fmt::format("{} is not within 1 to 1024", options.threads)));
    for (const std::string& name : options.disabled) {
      const driver::Pass* pass = driver::find_pass(name);
      if (!pass || !pass->optional)
        raise(diagnose(Code::bad_option, "disabled", fmt::format("`{}` is no pass that can be left out", name)));
    }
    o.threads = options.threads;
    o.seed = options.seed;
    o.deterministic = options.deterministic;
    o.top = std::max<size_t>(1, options.top);
    o.tolerance.relative = options.rtol;
    o.tolerance.absolute = options.atol;
    o.disabled = options.disabled;
    o.cache_dir = api::cache_folder(options.cache_directory);
    o.command = options.command.empty() ? "the library" : options.command;
    if (options.interrupted) o.interrupted = options.interrupted;
    if (options.log) o.log = options.log;
    if (options.progress)
      o.progress = [&](const tune::Progress& p) {
        options.progress({p.tried, p.proposals, p.best_speedup, p.seconds, p.budget_seconds, p.new_best});
      };
    c.path = impl->graph->graph.name();
    c.input.format = driver::Format::graph;
    c.input.path = impl->graph->graph.name();
    c.input.graph = impl->graph->graph;
    if (Diagnostics bad = driver::run_passes(c, "tune", "bind"); !bad.empty()) raise(bad);
    // What was handed in belongs to the caller.
    o.interrupted = [] { return false; };
    o.progress = [](const tune::Progress&) {};
    o.log = [](const std::string&) {};
    std::vector<uint8_t> object;
    if (const auto* compiled = dynamic_cast<const driver::CompiledProgram*>(c.outcome->runnable.get()))
      object = compiled->built().object();
    impl->program = api::program_of(*c.bound, c.outcome->candidate.program, c.machine, std::move(object),
                                    &c.unfused->program, c.dispatch);
    if (impl->chosen_graph() >= 0 && !c.search_skipped) {
      algebra::SearchOptions so;
      so.seed = o.seed;
      if (auto text = algebra::certificate(*c.expanded, static_cast<size_t>(impl->chosen_graph()), so))
        impl->certificate = *text;
    }
    return Optimized(std::move(impl));
  });
}

Program Optimized::program() const { return Program(impl_->program); }
double Optimized::speedup() const { return impl_->c.outcome->chosen < 0 ? 1 : impl_->c.outcome->speedup; }
std::string Optimized::status() const { return driver::status(impl_->c); }
std::string Optimized::certificate() const { return impl_->certificate; }
std::vector<std::string> Optimized::notes() const { return impl_->c.notes; }

std::string Optimized::text() const {
  const std::lock_guard lock(impl_->graph->mutex);
  return guarded([&] { return driver::result_text(impl_->c); });
}
std::string Optimized::json() const {
  const std::lock_guard lock(impl_->graph->mutex);
  return guarded([&] { return driver::result_json(impl_->c); });
}
std::string Optimized::path_json() const {
  const std::lock_guard lock(impl_->graph->mutex);
  return guarded([&] { return driver::path_json(impl_->c); });
}
std::string Optimized::candidates_jsonl() const {
  const std::lock_guard lock(impl_->graph->mutex);
  return guarded([&] { return driver::candidates_jsonl(impl_->c); });
}
std::string Optimized::report() const {
  const std::lock_guard lock(impl_->graph->mutex);
  return guarded([&] { return driver::report_html(impl_->c); });
}
double Optimized::coverage() const {
  const std::lock_guard lock(impl_->graph->mutex);
  return guarded([&] { return driver::coverage(impl_->c).share; });
}

std::string Optimized::source(const std::string& stage) const {
  const std::lock_guard lock(impl_->graph->mutex);
  return guarded([&]() -> std::string {
    const driver::Compilation& c = impl_->c;
    if (stage == "graph") return graph::print(*c.bound);
    if (stage == "stabilised") return graph::print(impl_->best());
    if (stage == "itgraph") return itgraph::print(c.outcome->candidate.it);
    if (stage == "tile" || stage == "leir") return take(driver::tile_text(c.outcome->candidate.program, stage));
    if (stage != "vec" && stage != "llvm" && stage != "asm") {
      std::string names;
      for (const auto& [name, doc] : driver::show_stages()) names += (names.empty() ? "" : ", ") + name;
      raise(diagnose(Code::bad_option, "stage " + stage, "is none of " + names));
    }
    const jit::Built built = take(jit::build(c.outcome->candidate.program, driver::build_options(c.machine)));
    if (stage == "vec") return built.vec_text();
    return take(stage == "llvm" ? built.llvm_text() : built.asm_text());
  });
}

void Optimized::save(const std::string& folder) const {
  const std::lock_guard lock(impl_->graph->mutex);
  guarded([&] {
    if (folder.empty()) raise(diagnose(Code::bad_option, "folder", "is empty"));
    if (Diagnostics bad = driver::check_output(folder); !bad.empty()) raise(bad);
    impl_->c.options.output = folder;
    impl_->c.files.clear();
    const Diagnostics bad = driver::package_result(impl_->c);
    impl_->c.options.output.clear();
    if (!bad.empty()) raise(bad);
  });
}

}  // namespace cleave
