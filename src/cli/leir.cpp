#include "cli/leir.hpp"

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/codes.hpp"
#include "bridge/raise.hpp"
#include "cli/terminal.hpp"
#include "driver/leir.hpp"
#include "driver/leir_bench.hpp"
#include "driver/leir_native.hpp"
#include "driver/leir_raise.hpp"
#include "driver/leir_verify.hpp"
#include "driver/report.hpp"
#include "leir_emit/c.hpp"
#include "leir_emit/tir.hpp"

namespace cleave::cli {

namespace {

class LeirCommand {
 public:
  CLI::App* declare(CLI::App& app, std::map<std::string, std::function<int()>>& verbs) {
    CLI::App* top = app.add_subcommand("leir", "LEIR, the loop-equation language: check, run and print programs.");
    top->require_subcommand(1);
    verb(top, "parse", "Print a program in its canonical form.", [this] {
      return parse();
    })->add_flag("--compact", compact_, "without header, blanks and newlines: what models are shown");
    auto* s =
        verb(top, "check", "Names, shapes, bounds, coverage, initialisation, dependences.", [this] { return check(); });
    s->add_flag("--key", key_, "print the canonical key");
    s = verb(top, "run", "Run a program on .npz or .npy files, or on seeded random data.", [this] { return run(); });
    s->add_option("--inputs", r_.inputs, "an .npz file, or .npy files in the order of the header");
    s->add_option("--outputs", r_.outputs, "an .npz file for the outputs");
    s->add_option("--errors", r_.errors, "an .npz file for the bounds of the rounding errors");
    s->add_flag("--f64", r_.f64, "compute in float64, whatever the dtypes");
    s->add_flag("--check", r_.check, "compare with outputs.npz of the folder, or with float64");
    s->add_option("--rtol", r_.rtol, "relative error that is accepted beyond the bound")->check(CLI::NonNegativeNumber);
    s->add_option("--atol", r_.atol, "absolute error that is accepted beyond the bound")->check(CLI::NonNegativeNumber);
    s->add_option("--seed", r_.seed, "of random data");
    s->add_option("--via", r_.via, "how to run it; cuda: that text as C++, one thread after the other")
        ->check(CLI::IsMember({"interpreter", "c", "jit", "cuda"}));
    s->add_option("--threads", r_.threads, "for --via jit: nests over P and B loops are divided among them")
        ->check(CLI::Range(1, 1024));
    s->add_option("--max-steps", r_.max_steps, kMaxSteps);
    s = verb(top, "lower", "Print a program in another language.", [this] { return lower(); });
    s->add_option("--to", to_, "c, cuda, or tir: TVM script")->check(CLI::IsMember({"c", "cuda", "tir"}));
    s->add_option("--target", target_, "of TVM script: cpu (loops that build) or cuda (bindings, scopes, blocks)")
        ->check(CLI::IsMember({"cpu", "cuda"}));
    s->add_option("--tvm", tvm_, "the version of TVM whose spellings are used")
        ->check(CLI::IsMember(leir::tir_versions()));
    s->add_flag("--fast", fast_, "sums may be reassociated, multiply-adds contracted");
    s = verb(top, "raise", "Print a program as a tensor graph, which `cleave optimize` takes.",
             [this] { return raise(); });
    s->add_flag("--check", r_.check, "compare the graph with the interpreter");
    s->add_option("--inputs", r_.inputs, "an .npz file, or .npy files in the order of the header");
    s->add_option("--seed", r_.seed, "of random data");
    s->add_option("--max-steps", r_.max_steps, kMaxSteps);
    s = verb(top, "bench", "Time a program compiled in this process against its C text at -O3.",
             [this] { return bench(); });
    s->add_option("--inputs", r_.inputs, "an .npz file, or .npy files in the order of the header");
    s->add_option("--seed", r_.seed, "of random data");
    s->add_flag("--raised", raised_, "raise and optimise it, against the faster of both");
    s->add_option("--budget", budget_, "for optimising: 60s, 500c (candidates), none");
    s->add_option("--pairs", pairs_, "interleaved pairs")->check(CLI::Range(3, 1000));
    s->add_option("--cache-dir", cache_dir_, "where measurements of this machine are kept");
    s->add_flag("--strict-arithmetic", exact_, "nothing is reassociated or contracted");
    s = verb(top, "verify", "Does another program compute the same? Both compiled, judged by rounding error bounds.",
             [this] { return verify(); });
    s->add_option("CANDIDATE", candidate_, "a .leir file or -; without a header it has that of INPUT")->required();
    s->add_option("--draws", verify_.draws, "draws of data")->check(CLI::Range(1, 1000));
    s->add_option("--seed", verify_.seed, "of the data");
    s->add_option("--max-steps", verify_.max_steps, kMaxSteps);
    CLI::App* g = top->add_subcommand("grammar", "The grammar for constrained decoding, in GBNF.");
    g->add_flag("--paper", r_.paper, "only what the paper's dialect has");
    run_["grammar"] = [this] { return print(leir::gbnf(r_.paper)); };
    verbs["leir"] = [this, top] { return run_.at(top->get_subcommands().at(0)->get_name())(); };
    return top;
  }

 private:
  static constexpr const char* kMaxSteps = "give up beyond this many steps (default: 2^40)";

  CLI::App* verb(CLI::App* top, const char* name, const char* doc, std::function<int()> run) {
    CLI::App* s = top->add_subcommand(name, doc);
    s->add_option("INPUT", r_.input, "a .leir file, a folder with prog.leir, or -")->required();
    s->add_flag("--json", json_, "print one JSON object with a \"schema\"");
    s->add_flag("-q,--quiet", quiet_, "no warnings and notes");
    s->add_option("--color", color_, "colours in messages")->check(CLI::IsMember({"auto", "always", "never"}));
    s->add_option("--known", r_.known, "a JSON file of known variables, for texts without a header");
    s->add_flag("--strict", r_.strict, "for answers of models: the chain form is an error");
    s->add_option("--dialect", dialect_, "paper: only what the paper's language has")->check(CLI::IsMember({"paper"}));
    s->add_option("--dim", dims_, "value of a known integer scalar: N=128")->type_name("NAME=N");
    run_[name] = std::move(run);
    return s;
  }

  int print(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return std::fflush(stdout) == 0 ? 0 : 1;
  }
  void show(const Diagnostics& messages, const SourceText* source) {
    const Color c = color_ == "always" ? Color::always : color_ == "never" ? Color::never : Color::automatic;
    for (const Diagnostic& d : messages) {
      if (quiet_ && info(d.code).severity != Severity::error) continue;
      std::fputs(painted(render(d, source), use_color(c)).c_str(), stderr);
    }
  }
  static bool failed(const Diagnostics& messages) {
    for (const Diagnostic& d : messages)
      if (info(d.code).severity == Severity::error) return true;
    return false;
  }
  int fail(const Diagnostics& messages, const SourceText* source) {
    show(messages, source);
    if (json_) std::fputs(driver::errors_json(messages, source).c_str(), stdout);
    for (const Diagnostic& d : messages) {
      if (d.code == Code::leir_differs) return 4;
      if (d.code == Code::bad_option) return 2;
    }
    return 3;
  }

  // Reads, and with `checked` checks; the exit code when that fails.
  std::optional<int> load(bool checked) {
    r_.paper = r_.paper || dialect_ == "paper";
    for (const std::string& d : dims_) {
      const size_t eq = d.find('=');
      char* end = nullptr;
      const long long v = eq == std::string::npos ? 0 : std::strtoll(d.c_str() + eq + 1, &end, 10);
      if (eq == std::string::npos || eq == 0 || !end || *end || end == d.c_str() + eq + 1)
        return fail({diagnose(Code::bad_option, "--dim " + d, "NAME=N is wanted")}, nullptr);
      r_.dims[d.substr(0, eq)] = v;
    }
    auto text = driver::read_leir(r_);
    if (!text) return fail(text.errors(), nullptr);
    text_ = std::move(*text);
    if (failed(text_.messages)) return fail(text_.messages, &text_.source);
    if (!checked) return std::nullopt;
    leir::Checked c = leir::check(text_.syntax, {});
    text_.messages.insert(text_.messages.end(), c.messages.begin(), c.messages.end());
    if (!c.program) return fail(text_.messages, &text_.source);
    show(text_.messages, &text_.source);
    program_ = std::move(c.program);
    return std::nullopt;
  }

  int parse() {
    if (auto code = load(false)) return *code;
    show(text_.messages, &text_.source);
    const std::string out = leir::print(text_.syntax, compact_ ? leir::Style::compact : leir::Style::canonical);
    if (json_) return print(nlohmann::json{{"schema", "cleave.leir.text/1"}, {"text", out}}.dump() + "\n");
    return print(compact_ ? out + "\n" : out);
  }

  int check() {
    if (auto code = load(true)) return *code;
    const leir::Program& p = *program_;
    if (key_) return print(leir::canonical_key(p));
    const auto work = leir::operations(p);
    if (!work) return fail(work.errors(), &text_.source);
    nlohmann::json variables = nlohmann::json::array();
    std::string text;
    for (const leir::Variable& v : p.variables()) {
      const std::string name = p.syntax().text(v.name);
      const char* role = v.role ? leir::text(*v.role) : "intermediate";
      variables.push_back({{"name", name},
                           {"role", role},
                           {"dtype", leir::name(v.type)},
                           {"shape", v.shape},
                           {"scope", std::string(1, letter(v.demoted ? leir::Scope::global : v.scope))}});
      text += fmt::format("{:<13} {} {}[{}]\n", role, name, leir::name(v.type), fmt::join(v.shape, ","));
    }
    if (json_)
      return print(nlohmann::json{{"schema", "cleave.leir.check/1"},
                                  {"variables", variables},
                                  {"equations", p.equations().size()},
                                  {"operations", *work},
                                  {"needs_checks", p.needs_checks()}}
                       .dump() +
                   "\n");
    return print(text + fmt::format("{} equations, {:.3g} operations{}\n", p.equations().size(), *work,
                                    p.needs_checks() ? "; some bounds are checked when it runs" : ""));
  }

  int run() {
    if (auto code = load(true)) return *code;
    const auto run = driver::run_leir(r_, *program_);
    if (!run) return fail(run.errors(), &text_.source);
    nlohmann::json outputs = nlohmann::json::array();
    std::string text;
    for (const std::string& name : run->order) {
      const leir::Array& a = run->outputs.at(name);
      std::string head;
      for (int64_t i = 0; i < std::min<int64_t>(a.elements(), 6); ++i)
        head += (i ? " " : "") + leir::element_text(a, i, 6);
      outputs.push_back({{"name", name}, {"dtype", leir::name(a.type)}, {"shape", a.shape}});
      text += fmt::format("{} {}[{}]: {}{}\n", name, leir::name(a.type), fmt::join(a.shape, ","), head,
                          a.elements() > 6 ? " ..." : "");
    }
    if (!run->verdict.empty()) text += run->verdict + "\n";
    if (json_)
      return print(nlohmann::json{{"schema", "cleave.leir.run/1"},
                                  {"outputs", outputs},
                                  {"seconds", run->seconds},
                                  {"verdict", run->verdict}}
                       .dump() +
                   "\n");
    return print(text);
  }

  int lower() {
    if (auto code = load(true)) return *code;
    const auto text = to_ == "tir"    ? leir::emit_tir(*program_, {.cuda = target_ == "cuda", .version = tvm_})
                      : to_ == "cuda" ? leir::emit_cuda(*program_)
                                      : leir::emit_c(*program_, {.strict = !fast_});
    return text ? print(*text) : fail(text.errors(), &text_.source);
  }

  int raise() {
    if (auto code = load(true)) return *code;
    const auto graph = bridge::raise(*program_, "leir");
    if (!graph) return fail(graph.errors(), &text_.source);
    std::string verdict;
    if (r_.check) {
      const auto checked = driver::check_raised(r_, *program_, *graph);
      if (!checked) return fail(checked.errors(), &text_.source);
      verdict = *checked;
    }
    const std::string text = graph::print(*graph);
    if (json_)
      return print(nlohmann::json{{"schema", "cleave.leir.raise/1"}, {"graph", text}, {"verdict", verdict}}.dump() +
                   "\n");
    return print(text + (verdict.empty() ? "" : "# " + verdict + "\n"));
  }

  int bench_raised() {
    driver::Options o;
    const auto budget = driver::parse_budget(budget_);
    if (!budget) return fail(budget.errors(), nullptr);
    o.budget = *budget;
    o.cache_dir = cache_dir_.empty() ? default_cache() : cache_dir_;
    const auto b = driver::bench_raised(r_, *program_, o, pairs_);
    if (!b) return fail(b.errors(), &text_.source);
    const runtime::Comparison& c = b->comparison;
    // The part of the measured bandwidth that reading and writing the known variables once would take.
    const double of_bandwidth = b->dram_gbytes > 0 ? b->bytes / c.seconds_a / (b->dram_gbytes * 1e9) : 0;
    if (json_)
      return print(nlohmann::json{{"schema", "cleave.leir.raised/1"},
                                  {"jit_ms", b->jit_seconds * 1e3},
                                  {"c_ms", b->c_seconds * 1e3},
                                  {"raised_ms", c.seconds_a * 1e3},
                                  {"speedup", c.ratio},
                                  {"low", c.interval.low},
                                  {"high", c.interval.high},
                                  {"pairs", c.pairs},
                                  {"error", b->error},
                                  {"bytes", b->bytes},
                                  {"of_bandwidth", of_bandwidth},
                                  {"optimise_seconds", b->optimise_seconds},
                                  {"schedule", b->schedule}}
                       .dump() +
                   "\n");
    return print(fmt::format(
        "jit     {:9.4f} ms   as written\nc       {:9.4f} ms   as written\nraised  {:9.4f} ms   {}; {:.1f} s to "
        "optimise\n"
        "speedup {:.2f}x (95 %: {:.2f} to {:.2f}, {} pairs)   outputs differ by {:.1e} of the largest magnitude\n"
        "memory  {:9.2f} MB read and written at least: {:.0f} % of the measured bandwidth\n",
        b->jit_seconds * 1e3, b->c_seconds * 1e3, c.seconds_a * 1e3, b->schedule, b->optimise_seconds, c.ratio,
        c.interval.low, c.interval.high, c.pairs, b->error, b->bytes / 1e6, of_bandwidth * 100));
  }

  int bench() {
    if (auto code = load(true)) return *code;
    if (raised_) return bench_raised();
    const auto inputs = driver::leir_inputs(r_, *program_);
    if (!inputs) return fail(inputs.errors(), &text_.source);
    const auto b = driver::bench_written(*program_, *inputs, exact_, pairs_);
    if (!b) return fail(b.errors(), &text_.source);
    const runtime::Comparison& c = b->comparison;
    const double jit = c.seconds_a * 1e3, other = c.seconds_b * 1e3;
    const double compile[] = {b->natives[0].compile_seconds * 1e3, b->natives[1].compile_seconds * 1e3};
    if (json_)
      return print(nlohmann::json{{"schema", "cleave.leir.bench/2"},
                                  {"jit_ms", jit},
                                  {"c_ms", other},
                                  {"ratio", 1 / c.ratio},
                                  {"low", 1 / c.interval.high},
                                  {"high", 1 / c.interval.low},
                                  {"pairs", c.pairs},
                                  {"jit_compile_ms", compile[0]},
                                  {"c_compile_ms", compile[1]}}
                       .dump() +
                   "\n");
    return print(
        fmt::format("jit {:9.4f} ms   compiled in {:.1f} ms\nc   {:9.4f} ms   compiled in {:.1f} ms\n"
                    "ratio {:.3f} (95 %: {:.3f} to {:.3f}, {} pairs)\n",
                    jit, compile[0], other, compile[1], 1 / c.ratio, 1 / c.interval.high, 1 / c.interval.low, c.pairs));
  }

  int verify() {
    const double start = runtime::wall_seconds();
    if (auto code = load(true)) return *code;
    const leir::Program original = std::move(*program_);
    driver::LeirRequest other = r_;
    other.input = candidate_;
    other.known.clear();
    auto text = driver::read_leir(other);
    if (!text) return fail(text.errors(), nullptr);
    if (failed(text->messages)) return fail(text->messages, &text->source);
    const leir::Checked c = leir::check(driver::with_header_of(original.syntax(), text->syntax));
    if (!c.program) return fail(c.messages, &text->source);
    const auto v = driver::verify_leir(original, *c.program, verify_);
    if (!v) return fail(v.errors(), nullptr);
    const double ms = (runtime::wall_seconds() - start) * 1e3;
    const bool equal = v->verdict == driver::Verdict::equal;
    if (json_)
      print(nlohmann::json{{"schema", "cleave.leir.verify/1"},
                           {"verdict", driver::name(v->verdict)},
                           {"bitwise", v->bitwise},
                           {"reason", v->reason},
                           {"tightness", v->tightness},
                           {"draws", verify_.draws},
                           {"ms", ms},
                           {"compile_ms", v->compile_ms},
                           {"run_ms", v->run_ms}}
                .dump() +
            "\n");
    else
      print(fmt::format("{}{}{} ({} draws, {:.0f} ms)\n", driver::name(v->verdict),
                        equal ? (v->bitwise ? ", bit for bit" : ", within the bounds of rounding") : ": ", v->reason,
                        verify_.draws, ms));
    return equal ? 0 : 4;
  }

  driver::LeirRequest r_;
  std::string to_ = "c", target_ = "cpu", tvm_ = leir::tir_versions().front();
  int pairs_ = 21;
  std::string candidate_;
  driver::VerifyOptions verify_;
  std::string budget_ = "60s", cache_dir_;
  bool raised_ = false;
  bool fast_ = false, exact_ = false;
  driver::LeirText text_;
  std::optional<leir::Program> program_;
  std::map<std::string, std::function<int()>> run_;
  std::string color_ = "auto", dialect_;
  std::vector<std::string> dims_;
  bool json_ = false, quiet_ = false, compact_ = false, key_ = false;
};

}  // namespace

const std::map<std::string, std::string>& leir_examples() {
  static const std::map<std::string, std::string> kExamples = {
      {"parse", "prog.leir --compact"},
      {"check", "prog.leir"},
      {"run", "prog.leir --inputs x.npz --outputs y.npz"},
      {"lower", "prog.leir --to c"},
      {"raise", "prog.leir --check"},
      {"bench", "prog.leir --raised"},
      {"verify", "prog.leir other.leir"},
      {"grammar", "--paper"},
  };
  return kExamples;
}

CLI::App* add_leir(CLI::App& app, std::map<std::string, std::function<int()>>& verbs) {
  auto command = std::make_shared<LeirCommand>();
  CLI::App* top = command->declare(app, verbs);
  // The verbs keep the command alive.
  verbs["leir"] = [command, run = verbs["leir"]] { return run(); };
  return top;
}

}  // namespace cleave::cli
