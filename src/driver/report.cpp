#include "driver/report.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "algebra/index_form.hpp"
#include "base/number.hpp"
#include "driver/compile.hpp"
#include "lower/plan.hpp"
#include "tune/restrict.hpp"

namespace cleave::driver {

namespace {

double peak_flops(const Compilation& c) {
  const double gflops = c.outcome && c.outcome->peak_gflops > 0 ? c.outcome->peak_gflops : c.machine.peak_gflops;
  return gflops * 1e9;
}

// Data that fits a cache is there from the kernel or the run before.
double read_gbytes(const Machine& m, double bytes) {
  return bytes <= static_cast<double>(m.l2_bytes)   ? m.l2_gbytes
         : bytes <= static_cast<double>(m.l3_bytes) ? m.l3_gbytes
                                                    : m.dram_gbytes;
}

// Why the algebra takes an operator as it is (algebra/index_form.hpp).
const char* why_outside(graph::Op op) {
  using graph::Category;
  switch (graph::info(op).category) {
    case Category::view:
      return "cuts, joins or folds axes, which equations over whole axes do not say; scheduled as given";
    case Category::gather: return "reads at positions that data decide; scheduled as given";
    case Category::scan: return "each element needs the ones before it; scheduled as given";
    case Category::select: return "orders elements; scheduled as given";
    default: return "outside of the algebra's language; scheduled as given";
  }
}

}  // namespace

std::vector<KernelReport> kernel_reports(const Compilation& c) {
  std::vector<KernelReport> out;
  if (!c.outcome) return out;
  const tune::Outcome& o = *c.outcome;
  std::map<std::string, const schedule::KernelEstimate*> known;
  for (const schedule::KernelEstimate& e : o.candidate.kernels) known[e.name] = &e;
  size_t run = 0;
  for (const tile::Kernel& k : o.candidate.program.kernels) {
    if (k.once) continue;
    KernelReport r;
    r.name = k.name;
    if (run < o.kernel_seconds.size()) r.seconds = o.kernel_seconds[run];
    ++run;
    if (const auto it = known.find(k.name); it != known.end()) {
      r.flops = it->second->flops;
      r.bytes = it->second->bytes;
      r.predicted_seconds = it->second->seconds;
      const double compute = peak_flops(c) > 0 ? it->second->work / peak_flops(c) : 0;
      const double bandwidth = 1e9 * read_gbytes(c.machine, *r.bytes);
      const double memory = bandwidth > 0 ? *r.bytes / bandwidth : 0;
      if (compute > 0 || memory > 0) r.bound_by = compute >= memory ? "compute" : "memory";
      if (r.seconds && *r.seconds > 0 && !r.bound_by.empty())
        r.roofline_pct = 100 * std::max(compute, memory) / *r.seconds;
    }
    out.push_back(std::move(r));
  }
  return out;
}

Coverage coverage(const Compilation& c) {
  Coverage out;
  if (!c.expanded) return out;
  const graph::Graph g = graph::expand(graph::bind(*c.expanded, c.typical).value());
  const algebra::Program program = algebra::read(g);
  double total = 0, outside = 0;
  std::map<graph::Op, int> operators;
  for (const algebra::Step& s : program.steps)
    if (s.barrier.valid()) {
      const graph::Node& n = g.node(s.barrier);
      if (graph::info(n.op).category == graph::Category::leaf) continue;
      ++operators[n.op];
      for (graph::ValueId v : n.results) outside += static_cast<double>(oracle::product(g.extents(v)));
    }
  total = tune::evaluation_steps(g);
  if (total > 0) out.share = std::max(0.0, 1 - outside / total);
  for (const auto& [op, count] : operators)
    out.left_out.emplace_back(fmt::format("{}{}", graph::info(op).name, count > 1 ? fmt::format(" ({}x)", count) : ""),
                              why_outside(op));
  return out;
}

std::optional<Memory> memory(const Compilation& c) {
  if (!c.outcome) return std::nullopt;
  const auto plan = lower::plan_memory(c.outcome->candidate.program);
  if (!plan.ok()) return std::nullopt;
  return Memory{plan->syms->typical(plan->workspace_bytes), plan->syms->typical(plan->separate_bytes),
                plan->syms->typical(plan->packed_bytes)};
}

std::optional<double> peak_pct(const Compilation& c, const schedule::Candidate& candidate, double seconds) {
  double flops = 0;
  for (const schedule::KernelEstimate& k : candidate.kernels) flops += k.work;
  const double peak = peak_flops(c) * c.options.threads;
  if (!(seconds > 0) || !(peak > 0) || !(flops > 0)) return std::nullopt;
  return 100 * flops / seconds / peak;
}

const char* status(const Compilation& c) {
  if (!c.outcome) return "stopped";
  switch (c.outcome->stop) {
    case tune::Stop::exhausted:
    case tune::Stop::no_gain:
    case tune::Stop::deterministic:
    case tune::Stop::remembered: return "complete";
    case tune::Stop::budget: return "budget";
    case tune::Stop::interrupted: return "interrupted";
  }
  return "";
}

namespace {

std::string milliseconds(double seconds) {
  if (seconds >= 1) return fmt::format("{:.3f} s", seconds);
  return seconds >= 1e-4 ? fmt::format("{:.3f} ms", 1e3 * seconds) : fmt::format("{:.3f} us", 1e6 * seconds);
}

std::string range_text(const RangeEnd& e) {
  std::string at;
  for (const auto& [name, value] : e.values) at += fmt::format("{}{}={}", at.empty() ? "" : " ", name, value);
  if (!e.why.empty()) return fmt::format("  at {}: not measured: {}\n", at, e.why);
  return fmt::format("  at {}: unfused {}, chosen {}, {:.3f}x (95 %: {:.3f} to {:.3f})\n", at,
                     milliseconds(e.unfused_seconds), milliseconds(e.seconds), e.speedup, e.interval.low,
                     e.interval.high);
}

// How the tuning ended, and why where that says more.
std::string ending(const Compilation& c) {
  const tune::Stop stop = c.outcome->stop;
  if (stop == tune::Stop::budget) return "stopped by the budget";
  if (stop == tune::Stop::interrupted) return status(c);
  return fmt::format("{} ({})", status(c), tune::name(stop));
}

std::string percent(std::optional<double> value) { return value ? fmt::format("{:.0f} %", *value) : "-"; }

std::string count(double n) {
  if (n >= 1e9) return fmt::format("{:.2f} G", n / 1e9);
  if (n >= 1e6) return fmt::format("{:.2f} M", n / 1e6);
  if (n >= 1e3) return fmt::format("{:.1f} k", n / 1e3);
  return fmt::format("{:.0f} ", n);
}

}  // namespace

std::string result_text(const Compilation& c) {
  const tune::Outcome& o = *c.outcome;
  size_t tried = 0;
  for (const tune::Trial& t : o.trials) tried += t.state != tune::Trial::State::waiting;
  std::string out =
      fmt::format("{}: {}; {} equal graphs{}, {} of {} candidates tried, {:.1f} s\n", c.input.name(), ending(c),
                  c.equal.size(), c.search.saturated ? "" : " (not all)", tried, o.trials.size(), c.seconds("total"));
  const auto side = [&](const char* what, const schedule::Candidate& candidate, double seconds) {
    out += fmt::format("  {:<9}", what);
    out += seconds > 0
               ? fmt::format("{:>12}  {:>6} of peak", milliseconds(seconds), percent(peak_pct(c, candidate, seconds)))
               : fmt::format("{:>12}  predicted", milliseconds(candidate.seconds));
    out += fmt::format("   {}\n", candidate.summary);
  };
  side("unfused", *c.unfused, o.unfused_seconds);
  side("chosen", o.candidate, o.seconds);
  for (const RangeEnd& e : c.ends) out += range_text(e);
  if (o.chosen >= 0 && !o.elsewhere && o.seconds > 0)
    out += fmt::format("  speedup  {:.3f}x (95 %: {:.3f} to {:.3f})\n", o.speedup, o.speedup_interval.low,
                       o.speedup_interval.high);
  out += "  kernels\n";
  for (const KernelReport& k : kernel_reports(c))
    out += fmt::format("    {:<24} {:>12}  {:>10}flop  {:>10}B  {:>6} of the roofline{}\n", k.name,
                       k.seconds ? milliseconds(*k.seconds) : "-", k.flops ? count(*k.flops) : "-",
                       k.bytes ? count(*k.bytes) : "-", percent(k.roofline_pct),
                       k.bound_by.empty() ? "" : fmt::format(" ({})", k.bound_by));
  if (const auto m = memory(c); m && m->separate + m->packed > 0) {
    out += fmt::format("  memory   {}B of intermediates", count(static_cast<double>(m->workspace)));
    if (m->separate > m->workspace) out += fmt::format(" ({}B without reuse)", count(static_cast<double>(m->separate)));
    if (m->packed > 0) out += fmt::format(", {}B of packed constants", count(static_cast<double>(m->packed)));
    out += "\n";
  }
  const tune::Verdict& v = o.verdict;
  out += fmt::format(
      "  error    {:.2e} of the largest magnitude, unfused {:.2e}, derived bound {} ({} elements{} against float64)\n",
      shown(v.max_rel), shown(o.unfused.verdict->max_rel),
      v.unbounded < v.elements ? fmt::format("{:.2e}", v.bound) : "not known", v.elements,
      o.complete_reference ? ", all," : "");
  if (v.unbounded > 0)
    out += fmt::format("  note: {} of them have no derived bound and have to agree to three digits\n", v.unbounded);
  for (const std::string& n : c.notes) out += fmt::format("  note: {}\n", n);
  if (!c.options.output.empty() && !c.files.empty())
    out += fmt::format("  written: {} ({} files)\n", c.options.output, c.files.size());
  return out;
}

std::string search_text(const Compilation& c, bool derivations) {
  const size_t graphs = c.equal.size() + c.split.size();
  std::string out = fmt::format("{}: {} from {} values ({}), {:.2f} s\n", c.input.name(),
                                graphs == 1 ? "no equal graph but the input" : fmt::format("{} equal graphs", graphs),
                                c.search.values, c.search.saturated ? "saturated" : "not saturated", c.search.seconds);
  for (size_t i = 0; i < c.equal.size() + c.split.size(); ++i) {
    const Equal& e = equal_graph(c, i);
    out += fmt::format("{:>4}  {}{}\n", i, e.split.empty() ? "" : fmt::format("[{} split] ", e.split), e.summary);
    if (!derivations) continue;
    for (const algebra::Derived& d : e.derivation)
      out += fmt::format("        {} [{}]\n          {}\n          -> {}\n", d.value, d.rule, d.before, d.after);
  }
  return out;
}

std::string schedule_text(const Compilation& c) {
  std::string out = fmt::format("{}: {} candidates for {} threads, best predicted first\n", c.input.name(),
                                c.proposals.size(), c.options.threads);
  const auto line = [&](const std::string& id, const std::string& graph, const schedule::Candidate& s) {
    out += fmt::format("{:>8}  {:>6}  {:>12}  {:>3}  {}\n", id, graph, milliseconds(s.seconds), s.kernels.size(),
                       s.summary);
  };
  out += fmt::format("{:>8}  {:>6}  {:>12}  {:>3}  {}\n", "", "graph", "predicted", "kernels", "");
  line("unfused", "-", *c.unfused);
  for (size_t i = 0; i < c.proposals.size(); ++i)
    line(fmt::format("{}", i), fmt::format("{}", c.proposals[i].graph), c.proposals[i].candidate);
  return out;
}

std::string times_text(const Compilation& c) {
  std::string out;
  for (const PassTime& t : c.times) out += fmt::format("{:<12} {:>10.3f} s\n", t.name, t.seconds);
  return out + fmt::format("{:<12} {:>10.3f} s\n", "total", c.seconds("total"));
}

}  // namespace cleave::driver
