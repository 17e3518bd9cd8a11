// The functions of the pipeline's table.
#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/codes.hpp"
#include "driver/compile.hpp"
#include "driver/dims.hpp"
#include "driver/object_cache.hpp"
#include "driver/pipeline.hpp"
#include "driver/tunings.hpp"
#include "frontend/file.hpp"
#include "graph/expand.hpp"
#include "jit/calibrate.hpp"
#include "runtime/timing.hpp"

namespace cleave::driver {

namespace fs = std::filesystem;

Diagnostics import_input(Compilation& c) {
  auto in = read_input(c.path, c.source, onnx_options(c.options));
  if (!in) return in.errors();
  c.input = std::move(*in);
  if (!c.input.graph)
    return {diagnose(Code::unknown_format, c.path,
                     fmt::format("it holds {}, a graph or an ONNX model is needed here", name(c.input.format)))};
  return {};
}

Diagnostics bind_dims(Compilation& c) {
  const graph::Graph g = c.input.graph->detached();
  std::map<std::string, int64_t> values, all;
  for (const auto& [name, option] : c.options.dims) {
    all[name] = option.representative;
    if (!option.is_range()) {
      values[name] = option.representative;
      continue;
    }
    const auto d = g.syms().find_symbol(name);
    if (!d || std::find(g.dims().begin(), g.dims().end(), *d) == g.dims().end())
      return {diagnose(Code::undefined_name, name)};
    const sym::Interval declared = g.syms().symbol_range(*d);
    for (const int64_t end : {option.lo, option.hi})
      if (end < declared.lo || end > declared.hi)
        return {diagnose(Code::dim_out_of_range, name, end, declared.lo, declared.hi)};
    g.syms().set_range(*d, {option.lo, option.hi});
  }
  all = easily_timed(g, c.options.dims, std::move(all));
  std::string lowered;
  for (auto [name, option] : c.options.dims) {
    if (all.at(name) != option.representative) lowered += fmt::format(" {}={}", name, all.at(name));
    option.representative = all.at(name);
    c.dims.push_back({name, option});
    if (!option.is_range()) continue;
    g.syms().set_typical(*g.syms().find_symbol(name), option.representative);
    c.typical[name] = option.representative;
  }
  if (!lowered.empty())
    c.notes.push_back(
        fmt::format("speed is chosen for{}, as the high ends of the ranges take too much memory to be timed: "
                    "`--dim NAME=LO..HI@N` gives other values",
                    lowered));
  for (sym::Expr d : g.dims()) {
    const std::string name = g.syms().symbol_name(d);
    if (!values.count(name) && !c.typical.count(name)) return {diagnose(Code::unbound_dim, name, name)};
  }
  auto bound = graph::bind(g, values);
  if (!bound) return bound.errors();
  c.bound = std::move(*bound);
  auto raised = begin_where_shapes_hold(*c.bound, c.typical);
  if (!raised) return raised.errors();
  for (const RaisedRange& r : *raised) {
    for (auto& dim : c.dims)
      if (dim.name == r.dim) dim.option.lo = r.low;
    c.notes.push_back(fmt::format("the range of {} begins at {}: {}", r.dim, r.low, r.why));
  }
  auto at = graph::bind(*c.bound, c.typical);
  if (!at) return at.errors();
  if (!at->has_constant_shapes())
    return {diagnose(Code::invalid_graph, g.name(), "some extents do not follow from its dimensions")};
  return {};
}

Diagnostics expand_composites(Compilation& c) {
  c.expanded = graph::expand_for_search(*c.bound);
  return graph::verify(*c.expanded);
}

const Equal& equal_graph(const Compilation& c, size_t number) {
  return number < c.equal.size() ? c.equal[number] : c.split.at(number - c.equal.size());
}

// What --split names: an index, or `all` that can be split.
std::vector<std::string> indices_to_split(const Compilation& c) {
  if (c.options.split.empty()) return {};
  if (c.options.split != "all") return {c.options.split};
  return algebra::splittable_indices(*c.expanded);
}

namespace {
// A share of the time of the whole is over, or the user wants no more. What is deterministic does not hang on time.
std::function<bool()> over(const Compilation& c, double share) {
  return [&c, share] {
    if (c.options.interrupted()) return true;
    return !c.options.deterministic && runtime::wall_seconds() - c.started > share * c.options.budget.seconds;
  };
}
constexpr double kSearchShare = 0.5, kScheduleShare = 0.75;  // what is left is for measuring
}  // namespace

Diagnostics search_graphs(Compilation& c) {
  algebra::SearchOptions o;
  o.seed = c.options.seed;
  o.stop = over(c, kSearchShare);
  auto r = algebra::search(*c.expanded, o);
  if (!r) return r.errors();
  c.search = std::move(*r);
  for (algebra::Found& f : c.search.graphs)
    c.equal.push_back({std::move(f.graph), std::move(f.summary), std::move(f.derivation), "", f.cost, f.copies});
  c.search.graphs.clear();
  for (const std::string& name : indices_to_split(c)) {
    o.split = name;
    auto parts = algebra::search(*c.expanded, o);
    if (!parts) return parts.errors();
    for (algebra::Found& f : parts->graphs)
      if (f.split) c.split.push_back({std::move(f.graph), std::move(f.summary), std::move(f.derivation), name, f.cost});
    c.search.saturated = c.search.saturated && parts->saturated;
    c.search.screened_out += parts->screened_out;
    c.search.screened.insert(c.search.screened.end(), parts->screened.begin(), parts->screened.end());
    c.search.seconds += parts->seconds;
  }
  for (const auto* list : {&c.equal, &c.split})
    for (const Equal& e : *list)
      if (Diagnostics bad = graph::verify(e.graph); !bad.empty()) return bad;
  return {};
}

Result<Machine> machine_for(const Options& options, std::string* where) {
  const auto from = [&](const std::string& path) -> Result<Machine> {
    TRY_ASSIGN(const std::vector<std::byte> bytes, read_bytes(path, 0, -1, 1 << 20));
    return parse_machine({path, std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())});
  };
  if (!options.machine_file.empty()) {
    if (where) *where = options.machine_file;
    return from(options.machine_file);
  }
  const Machine host = host_machine();
  std::string cached;
  if (!options.cache_dir.empty()) {
    cached = (fs::path(options.cache_dir) / fmt::format("host-{}-{}c.machine", host.name, host.cores)).string();
    std::error_code error;
    if (fs::exists(cached, error)) {
      auto m = from(cached);
      Machine unmeasured = m ? *m : Machine{};
      unmeasured.peak_gflops = unmeasured.l2_gbytes = unmeasured.l3_gbytes = unmeasured.dram_gbytes =
          unmeasured.exp_cycles = unmeasured.gigahertz = 0;
      if (m && unmeasured == host) {
        if (where) *where = cached;
        return m;
      }
    }
  }
  options.log("measuring this machine");
  TRY_ASSIGN(const Machine measured, jit::measured_host());
  if (where) *where = "measured now";
  if (!cached.empty()) {
    std::error_code error;
    fs::create_directories(options.cache_dir, error);
    const std::string text = print(measured);
    // The cache is a convenience: that it cannot be written is no error.
    if (!error) (void)write_bytes(cached, std::as_bytes(std::span(text)));
  }
  return measured;
}

namespace {
std::string first_line(std::string_view text) { return std::string(text.substr(0, text.find('\n'))); }
}  // namespace

Diagnostics schedule_graphs(Compilation& c) {
  std::string where;
  auto machine = machine_for(c.options, &where);
  if (!machine) return machine.errors();
  c.machine = std::move(*machine);
  c.machine_measured = c.machine.peak_gflops > 0;
  if (where != "measured now") c.options.log(fmt::format("machine description from {}", where));

  schedule::Options o;
  o.machine = c.machine;
  o.threads = c.options.threads;
  o.keep = c.options.top;
  const auto without = [&](std::string_view what) {
    return std::find(c.options.without.begin(), c.options.without.end(), what) != c.options.without.end();
  };
  o.fuse = !without("tiling");
  o.split = !without("split");
  o.pack = !without("packing");
  o.panels = !without("layout");
  o.round_weights = graph::products_in(*c.bound, DType::bf16);
  auto unfused = schedule::unfused(*c.expanded, o);
  if (!unfused) return unfused.errors();
  c.unfused = std::move(*unfused);

  o.finish = false;
  std::set<std::string> seen;
  std::map<std::string, std::vector<size_t>> refused;
  const auto no_time = over(c, kScheduleShare);
  for (size_t i = 0; i < c.equal.size(); ++i) {
    if (c.unscheduled = no_time(); c.unscheduled) break;
    if (c.equal[i].copies) continue;
    auto candidates = [&]() -> Result<std::vector<schedule::Candidate>> {
      try {
        return schedule::candidates(c.equal[i].graph, o);
      } catch (const InternalError& e) {
        // A fault of ours in one graph leaves the others and the unfused schedule.
        return diagnose(Code::not_schedulable, c.equal[i].graph.name(), "internal fault: " + first_line(e.what()));
      }
    }();
    if (!candidates) {
      refused[candidates.errors().front().message()].push_back(i);
      // At least its unfused schedule may do.
      auto apart = schedule::unfused(c.equal[i].graph, o);
      if (!apart) continue;
      candidates = std::vector<schedule::Candidate>{std::move(*apart)};
    }
    for (schedule::Candidate& candidate : *candidates)
      if (seen.insert(tile::print(candidate.program)).second)
        c.proposals.push_back({static_cast<int>(i), std::move(candidate)});
  }
  for (const auto& [why, graphs] : refused)
    c.notes.push_back(fmt::format("not fused: graph {}: {}", fmt::join(graphs, ", "), why));
  std::stable_sort(c.proposals.begin(), c.proposals.end(), [](const tune::Proposal& a, const tune::Proposal& b) {
    return a.candidate.seconds < b.candidate.seconds;
  });
  return {};
}

Diagnostics tune_candidates(Compilation& c) {
  tune::best_of_each_kind_first(c.proposals);
  // Dimensions with a range have their representative values here.
  const auto at = graph::bind(*c.bound, c.typical);
  if (!at) return at.errors();
  auto data = tune::random_data(*at, c.options.seed);
  if (!data) return data.errors();
  c.problem = std::make_unique<tune::Problem>(
      tune::Problem{graph::expand(*at), std::move(data->inputs), std::move(data->scalars), std::move(data->constants)});

  const ObjectCache objects(c.options.cache_dir);
  const tune::Compile compiler = [&](const tile::Program& program) -> Result<std::shared_ptr<tune::Runnable>> {
    TRY_ASSIGN(std::shared_ptr<CompiledProgram> p, compile(program, c.problem->constants, c.machine, objects));
    return std::shared_ptr<tune::Runnable>(std::move(p));
  };
  tune::Options o;
  o.threads = c.options.threads;
  o.seed = c.options.seed;
  o.budget = c.options.budget;
  o.budget.seconds -= runtime::wall_seconds() - c.started;  // the budget is for the whole
  o.deterministic = c.options.deterministic;
  o.round = c.options.top;
  o.tolerance = c.options.tolerance;
  o.interrupted = c.options.interrupted;
  o.progress = c.options.progress;
  Recall known = recall(c);
  o.remembered = known.remembered;
  auto outcome = tune::tune(*c.problem, *c.unfused, c.proposals, compiler, o);
  if (!outcome) return outcome.errors();
  c.outcome = std::move(*outcome);
  if (c.outcome->stop == tune::Stop::exhausted && (c.unscheduled || (!c.search.saturated && over(c, kSearchShare)())))
    c.outcome->stop = c.options.interrupted() ? tune::Stop::interrupted : tune::Stop::budget;
  if (c.unscheduled) c.notes.push_back("the budget ended before every equal graph had been scheduled");
  for (const std::string& n : c.outcome->notes) c.notes.push_back(n);
  if (Diagnostics bad = measure_ranges(c); !bad.empty()) return bad;
  remember(c, known);
  return {};
}

}  // namespace cleave::driver
