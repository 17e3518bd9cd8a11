// The `cleave` command: verbs, options, exit codes. docs/cli.md is the reference.
#if __has_include(<malloc.h>)
#include <malloc.h>
#endif

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <new>

#include "base/codes.hpp"
#include "cli/leir.hpp"
#include "cli/terminal.hpp"
#include "driver/artefact.hpp"
#include "driver/doctor.hpp"
#include "driver/execute.hpp"
#include "driver/explain.hpp"
#include "driver/export.hpp"
#include "driver/peers.hpp"
#include "driver/pipeline.hpp"
#include "driver/report.hpp"
#include "driver/show.hpp"
#include "driver/suite.hpp"
#include "driver/tunings.hpp"
#include "frontend/file.hpp"
#include "jit/calibrate.hpp"

namespace cleave::cli {
namespace {

// What the options of all verbs are parsed into.
struct Arguments {
  std::string input;
  std::vector<std::string> dims, disabled, inputs, scalars, against, operands, without, export_to;
  std::string target = "cpu", budget, color = "auto", stage, cache_dir, machine, stop_after, dump_after,
              dump_dir = "cleave-dump", output, outputs, split, trace, suite, why_not, database, action;
  uint64_t seed = 1;
  int threads = 0, jobs = 1, graph = -1, candidate = 0, top = 8, step = 0, days = 180;
  double rtol = 0, atol = 0, require_speedup = 0;
  bool json = false, quiet = false, verbose = false, no_cache = false, deterministic = false, list = false,
       check = false, unfused = false, measure = false, operators = false;
};

// Examples come first in every help text.
class HelpFormatter : public CLI::Formatter {
 public:
  std::map<std::string, std::string> examples;
  std::string make_description(const CLI::App* app) const override {
    // Verbs of verbs go by both names: `leir run`.
    const CLI::App* outer = app->get_parent();
    const bool inner = outer && outer->get_parent();
    const auto it = examples.find(inner ? outer->get_name() + " " + app->get_name() : app->get_name());
    const std::string example = it == examples.end() ? "" : "Example:\n" + it->second + "\n";
    return example + CLI::Formatter::make_description(app);
  }
};

// A finite number of at least `least`, with a message that a person can read.
CLI::Validator at_least(double least) {
  return CLI::Validator(
      [least](const std::string& text) {
        double v = 0;
        if (CLI::detail::lexical_cast(text, v) && std::isfinite(v) && v >= least) return std::string();
        return fmt::format("`{}` is not a number of at least {}", text, least);
      },
      "");
}
CLI::Validator a_seed() {
  return CLI::Validator(
      [](const std::string& text) {
        const bool good = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
        return good ? std::string() : fmt::format("`{}` is not a whole number from 0 on", text);
      },
      "");
}
CLI::Validator not_empty() {
  return CLI::Validator([](const std::string& text) { return std::string(text.empty() ? "the path is empty" : ""); },
                        "");
}

class Command {
 public:
  Command(int argc, char** argv) : argc_(argc), argv_(argv) {
    for (int i = 0; i < argc; ++i) command_ += (i ? " " : "") + std::string(i ? argv[i] : "cleave");
  }

  int run() {
    declare();
    if (argc_ < 2) return misused("a verb is missing");
    if (argv_[1][0] != '-' && !verbs_.count(argv_[1])) return misused(fmt::format("`{}` is no verb", argv_[1]));
    try {
      app_.parse(argc_, argv_);
    } catch (const CLI::ParseError& e) {
      if (e.get_exit_code() == 0) return app_.exit(e);  // help, version
      return misused(e.what());
    }
    catch_interrupts();
    try {
      return verbs_.at(app_.get_subcommands().at(0)->get_name())();
    } catch (const InternalError& e) {
      return internal(e.what());
    } catch (const std::bad_alloc&) {
      return internal("out of memory");
    } catch (const std::exception& e) {
      return internal(e.what());
    }
  }

 private:
  std::string verb_name() const {
    const auto chosen = app_.get_subcommands();
    return chosen.empty() ? "" : chosen[0]->get_name() + " ";
  }
  Color color() const {
    return a_.color == "always" ? Color::always : a_.color == "never" ? Color::never : Color::automatic;
  }

  int misused(const std::string& what) {
    const std::string text = fmt::format("error[CLV7002]: {}\n  hint: `cleave {}-h` shows {}\n", what, verb_name(),
                                         verb_name().empty() ? "the verbs" : "the options");
    std::fprintf(stderr, "%s", painted(text, use_color(color())).c_str());
    // The options may not have been read as far as --json.
    if (std::any_of(argv_, argv_ + argc_, [](const char* a) { return std::string_view(a) == "--json"; }))
      std::fputs(driver::errors_json({diagnose(Code::bad_option, command_, what)}, nullptr).c_str(), stdout);
    return 2;
  }

  int internal(const std::string& message) {
    const std::string folder = write_bundle(command_, message, {a_.input});
    std::fprintf(stderr, "%s", fmt::format("cleave: internal error: {}\n", message).c_str());
    if (!folder.empty()) std::fprintf(stderr, "  a reproduction bundle lies in %s\n", folder.c_str());
    return 1;
  }

  int fail(const Diagnostics& errors, const SourceText& source, bool printed = false) {
    const SourceText* where = source.name.empty() ? nullptr : &source;
    std::fprintf(stderr, "%s", painted(render(errors, where), use_color(color())).c_str());
    if (a_.json && !printed) std::fputs(driver::errors_json(errors, where).c_str(), stdout);
    const int code = exit_code(errors);
    if (code == 1) {
      const std::string folder = write_bundle(command_, render(errors, where), {a_.input});
      if (!folder.empty()) std::fprintf(stderr, "  a reproduction bundle lies in %s\n", folder.c_str());
    }
    return code;
  }

  CLI::App* verb(const char* name, const char* doc, const char* example, std::function<int()> run) {
    CLI::App* sub = app_.add_subcommand(name, doc);
    formatter_->examples[name] = fmt::format("  {}\n", example);
    sub->formatter(formatter_);
    sub->add_flag("--json", a_.json, "print one JSON object with a \"schema\"");
    sub->add_flag("-q,--quiet", a_.quiet, "no progress");
    sub->add_flag("-v,--verbose", a_.verbose, "say what goes on, and how long each pass took");
    sub->add_option("--color", a_.color, "colours in messages")
        ->check(CLI::IsMember({"auto", "always", "never"}))
        ->type_name("auto|always|never");
    verbs_[name] = std::move(run);
    return sub;
  }
  void takes_input(CLI::App* sub, const char* what) { sub->add_option("INPUT", a_.input, what)->required(); }
  void takes_machine(CLI::App* sub) {
    sub->add_option("--target", a_.target, "what to make code for (cpu)")->envname("CLEAVE_TARGET");
    sub->add_option("--threads", a_.threads, "threads to run on (default: all that this process may use)")
        ->check(CLI::Range(1, 1024))
        ->envname("CLEAVE_THREADS");
    sub->add_option("--machine", a_.machine, "a machine description to use instead of measuring this one");
    sub->add_option("--cache-dir", a_.cache_dir, "where measurements of this machine are kept")
        ->envname("CLEAVE_CACHE_DIR");
    sub->add_option("--db", a_.database, "the tuning database (default: tunings.db in the cache folder)")
        ->envname("CLEAVE_DB");
    sub->add_flag("--no-cache", a_.no_cache, "keep nothing, use nothing that was kept");
    sub->add_option("--seed", a_.seed, "of random data and of the search")->envname("CLEAVE_SEED")->check(a_seed());
  }
  void takes_pipeline(CLI::App* sub) {
    takes_machine(sub);
    sub->add_option("--dim", a_.dims,
                    "extent of a dimension: S=128, or L=1..8192@4096 (a range and the extent to compile for)")
        ->type_name("NAME=N");
    sub->add_option("--jobs", a_.jobs, "compilations at a time")->check(CLI::Range(1, 1024));
    sub->add_option("--topk", a_.top, "candidates kept of each graph, and tried in a round")
        ->check(CLI::Range(1, 4096));
    sub->add_option("--split", a_.split,
                    "an index whose reductions may stop half way, by its name or its extent's, or `all`")
        ->check(not_empty());
    sub->add_option("--disable", a_.disabled, "a pass to leave out (`cleave passes`)");
    sub->add_option("--without", a_.without, "leave out a part of the optimiser, to see what it brings")
        ->check(CLI::IsMember(std::vector<std::string>(std::begin(driver::kAblations), std::end(driver::kAblations))))
        ->type_name("algebra|tiling|split|packing|layout");
    sub->add_option("--stop-after", a_.stop_after, "the last pass to run");
    sub->add_option("--dump-after", a_.dump_after, "write the stage after this pass (or `all`)");
    sub->add_option("--dump-dir", a_.dump_dir, "where dumps go")->check(not_empty());
    sub->add_option("--trace", a_.trace, "write a Chrome trace of the passes")->check(not_empty());
  }
  void takes_tolerance(CLI::App* sub) {
    sub->add_option("--rtol", a_.rtol, "relative error that is accepted beyond the derived bound")->check(at_least(0));
    sub->add_option("--atol", a_.atol, "absolute error that is accepted beyond the derived bound")->check(at_least(0));
  }

  void declare() {
    app_.name("cleave");
    app_.description(
        "Optimises tensor programs: finds equal graphs, schedules them into fused kernels, compiles, verifies and "
        "measures them.");
    formatter_->examples["cleave"] = "  cleave optimize examples/attention.graph --budget 60s -o out/attention\n";
    app_.formatter(formatter_);
    app_.set_version_flag("--version", fmt::format("cleave {}", driver::version()));
    app_.require_subcommand(1);

    CLI::App* s =
        verb("optimize", "Import, search, schedule, compile, verify, measure and package.",
             "cleave optimize model.onnx --dim S=128 --budget 60s -o out/model", [this] { return optimize(); });
    takes_input(s, "a .graph text, an ONNX model, or - for standard input");
    takes_pipeline(s);
    takes_tolerance(s);
    s->add_option("--budget", a_.budget, "60s, 5m, 500c (candidates) or none (default: 60s)");
    s->add_flag("--deterministic", a_.deterministic, "take the cost model's choice, verified but not timed");
    s->add_option("-o,--output", a_.output, "write the artefact folder")->check(not_empty());
    s->add_option("--require-speedup", a_.require_speedup, "exit with 5 below this speedup")->check(at_least(0));

    s = verb("search", "The algebraic phase alone: equal graphs, with derivations.",
             "cleave search examples/attention.graph --list", [this] { return search(); });
    CLI::Option* one = s->add_option("INPUT", a_.input, "a .graph text, an ONNX model, or -");
    takes_pipeline(s);
    s->add_flag("--list", a_.list, "with the steps that lead to each graph");
    s->add_option("--export", a_.export_to,
                  "write the graphs for other compilers (`onnx DIR`), or what `check` verifies (`certificates DIR`)")
        ->expected(2)
        ->type_name("FORMAT DIR");
    CLI::Option* many =
        s->add_option("--suite", a_.suite, "a file of many graphs (docs/suite.md): a line for each, whole and split")
            ->check(not_empty())
            ->excludes(one);
    for (const char* of_one : {"--list", "--export", "--split"}) many->excludes(s->get_option(of_one));

    s = verb("schedule", "The scheduling phase alone: candidates with predicted times.",
             "cleave schedule examples/attention.graph --graph 0 --topk 16", [this] { return schedule(); });
    takes_input(s, "a .graph text, an ONNX model, or -");
    takes_pipeline(s);
    s->add_option("--graph", a_.graph, "only this equal graph")->check(at_least(0));

    s = verb("show", "Any stage of a program as text; every text is valid input again.",
             "cleave show examples/attention.graph --stage tile", [this] { return show(); });
    s->add_option("INPUT", a_.input, "a .graph, .onnx, .itg, .tile or .vec file, an artefact folder, or -");
    takes_pipeline(s);
    std::string stages;
    for (const auto& [name, doc] : driver::show_stages()) stages += (stages.empty() ? "" : "|") + name;
    s->add_option("--stage", a_.stage,
                  "graph: the graph; stabilised: an equal graph; itgraph: the schedule; tile: the tile program; vec, "
                  "llvm, asm: the code")
        ->type_name(stages);
    s->add_option("--candidate", a_.candidate, "which candidate, best predicted first")->check(at_least(0));
    s->add_option("--graph", a_.graph, "which equal graph (stabilised)")->check(at_least(0));
    s->add_flag("--unfused", a_.unfused, "the unfused schedule");
    s->add_option("-o,--output", a_.output, "write the text to a file, and the constants of a graph beside it")
        ->check(not_empty());
    s->add_flag("--operators", a_.operators, "list the operators of the graph language");

    s = verb("run", "Run an artefact, a tile program or a graph once.",
             "cleave run out/attention --inputs q.npy k.npy v.npy --outputs results", [this] { return run_once(); });
    takes_input(s, "an artefact folder, a .graph, .onnx, .itg or .tile file, or -");
    takes_pipeline(s);
    takes_tolerance(s);
    s->add_option("--inputs", a_.inputs, ".npy files in the order of the inputs (default: seeded random data)")
        ->expected(1, 4096);
    s->add_option("--scalar", a_.scalars, "a run-time scalar (default: a seeded random number)")
        ->type_name("NAME=NUMBER")
        ->expected(1, 4096);
    s->add_option("--outputs", a_.outputs, "a folder for .npy files of the outputs")->check(not_empty());
    s->add_flag("--check", a_.check, "compare with the float64 evaluator");
    s->add_flag("--unfused", a_.unfused, "the unfused schedule");

    s = verb("bench", "Time a program against its unfused schedule, in interleaved pairs.",
             "cleave bench out/attention --threads 1", [this] { return bench(); });
    takes_input(s, "an artefact folder, a .graph or .onnx file, or -");
    takes_pipeline(s);
    s->add_option("--inputs", a_.inputs, ".npy files in the order of the inputs")->expected(1, 4096);
    s->add_option("--against", a_.against,
                  "unfused, or peers of bench/run: eager, torch-compile, onnxruntime, openvino ...")
        ->delimiter(',');

    s = verb("check", "Verify an equivalence certificate again.", "cleave check out/attention/certificate.json",
             [this] { return check(); });
    takes_input(s, "a certificate, or the artefact folder that it lies in");
    s->add_option("--seed", a_.seed, "of the data that the steps are evaluated on")->check(a_seed());

    s = verb("explain", "How a graph follows from the input graph, in sentences.",
             "cleave explain out/attention --step 1", [this] { return explain(); });
    takes_input(s, "an artefact folder, a .graph or .onnx file, or -");
    takes_pipeline(s);
    s->add_option("--graph", a_.graph, "which equal graph (default: the first that is not the input graph)")
        ->check(at_least(0));
    s->add_option("--step", a_.step, "only this step")->check(at_least(1));
    s->add_option("--why-not", a_.why_not, "a value of the input graph: the ways to compute it, and what was refused");

    verb("passes", "The passes of the pipeline, in order.", "cleave passes", [this] { return passes(); });

    s = verb("targets", "What code can be made for.", "cleave targets --measure", [this] { return targets(); });
    takes_machine(s);
    s->add_flag("--measure", a_.measure, "measure this machine and print its description");
    s->add_option("-o,--output", a_.output, "write the description to a file")->check(not_empty());

    s = verb("doctor", "Is everything here that optimising needs?", "cleave doctor", [this] { return doctor(); });
    takes_machine(s);

    formatter_->examples["leir"] = "  cleave leir run prog.leir --inputs x.npz --outputs y.npz\n";
    for (const auto& [name, example] : leir_examples())
      formatter_->examples["leir " + name] = fmt::format("  cleave leir {} {}\n", name, example);
    add_leir(app_, verbs_)->formatter(formatter_);
    s = verb("db", "The tuning database: list, show RECORD, export FILE, import FILE, gc.", "cleave db list",
             [this] { return db(); });
    s->add_option("ACTION", a_.action, "list, show, export, import or gc")->required();
    s->add_option("ARGUMENT", a_.operands,
                  "show: a record's number or the beginning of its key; export, import: a file");
    s->add_option("--db", a_.database, "the database (default: in the cache folder)")->envname("CLEAVE_DB");
    s->add_option("--cache-dir", a_.cache_dir, "where the database lies")->envname("CLEAVE_CACHE_DIR");
    s->add_option("--days", a_.days, "gc: remove what was not used for so long")->check(CLI::Range(0, 36500));
  }

  Result<driver::Options> options() {
    driver::Options o;
    for (const std::string& d : a_.dims)
      if (Diagnostics bad = driver::parse_dim(d, o.dims); !bad.empty()) return bad;
    TRY_ASSIGN(o.budget, driver::parse_budget(a_.budget.empty() ? "none" : a_.budget));
    if (a_.target != "cpu") return diagnose(Code::missing_target, fmt::format("the target `{}`", a_.target));
    for (const std::string& p : a_.disabled) {
      const driver::Pass* pass = driver::find_pass(p);
      if (!pass || !pass->optional)
        return diagnose(Code::bad_option, "--disable " + p,
                        pass ? "cannot be left out" : "is no pass (`cleave passes` lists them)");
    }
    for (const std::string& p : {a_.stop_after, a_.dump_after})
      if (!p.empty() && p != "all" && !driver::find_pass(p))
        return diagnose(Code::bad_option, p, "is no pass (`cleave passes` lists them)");
    o.target = a_.target;
    o.machine_file = a_.machine;
    if (!a_.no_cache) o.cache_dir = a_.cache_dir.empty() ? default_cache() : a_.cache_dir;
    if (!a_.no_cache)
      o.database = !a_.database.empty() ? a_.database : o.cache_dir.empty() ? "" : o.cache_dir + "/tunings.db";
    o.threads = a_.threads > 0 ? a_.threads : usable_cores();
    o.jobs = a_.jobs;
    o.seed = a_.seed;
    o.deterministic = a_.deterministic;
    o.top = static_cast<size_t>(a_.top);
    o.split = a_.split;
    o.tolerance = {a_.rtol, a_.atol};
    o.disabled = a_.disabled;
    o.without = a_.without;
    if (std::find(a_.without.begin(), a_.without.end(), "algebra") != a_.without.end()) o.disabled.push_back("search");
    o.stop_after = a_.stop_after;
    o.dump_after = a_.dump_after;
    o.dump_dir = a_.dump_dir;
    o.output = a_.output;
    o.command = command_;
    o.interrupted = interrupted;
    if (a_.verbose) o.log = [](const std::string& line) { std::fprintf(stderr, "cleave: %s\n", line.c_str()); };
    return o;
  }

  // Runs the pipeline up to `last` and hands the compilation over.
  int compiled(const std::string& last, const std::function<int(driver::Compilation&)>& then) {
    auto o = options();
    if (!o) return fail(o.errors(), {});
    driver::Compilation c;
    c.options = std::move(*o);
    c.path = a_.input;
    Diagnostics bad;
    {
      ProgressLines lines(a_.quiet || a_.json);
      c.options.progress = [&](const tune::Progress& p) { lines.show(p); };
      bad = last == "search" ? driver::run_search(c) : driver::run_passes(c, last);
    }
    if (!bad.empty()) return fail(bad, c.source);
    if (a_.verbose) std::fprintf(stderr, "%s", driver::times_text(c).c_str());
    const int code = then(c);
    if (!a_.trace.empty()) {
      const std::string text = driver::trace_json(c);
      if (bad = write_bytes(a_.trace, std::as_bytes(std::span(text))); !bad.empty()) {
        // The result is on stdout already; one JSON object is enough.
        std::fprintf(stderr, "%s", painted(render(bad, nullptr), use_color(color())).c_str());
        return exit_code(bad);
      }
    }
    return code;
  }

  int print(const std::string& text) {
    std::fputs(text.c_str(), stdout);
    return std::fflush(stdout) == 0 ? 0 : 3;
  }

  // After --stop-after: the text of the last stage that was reached.
  int stopped(const driver::Compilation& c) {
    const driver::Pass* pass = driver::find_pass(c.options.stop_after);
    if (!a_.json) {
      std::fprintf(stderr, "cleave: stopped after `%s`\n", pass->name);
      for (const auto& [name, text] : pass->dump(c)) print(fmt::format("# {}\n{}", name, text));
      return 0;
    }
    return print(std::string(pass->name) == "search"     ? driver::search_json(c)
                 : std::string(pass->name) == "schedule" ? driver::schedule_json(c)
                                                         : "{\"schema\": \"cleave.stopped/1\"}\n");
  }

  int optimize() {
    if (Diagnostics bad = driver::check_output(a_.output); !bad.empty()) return fail(bad, {});
    if (a_.budget.empty()) a_.budget = "60s";
    return compiled("", [this](driver::Compilation& c) {
      if (!c.outcome) return stopped(c);
      print(a_.json ? driver::result_json(c) : driver::result_text(c));
      if (c.outcome->stop == tune::Stop::interrupted) return 130;
      if (a_.require_speedup > 0 && !(c.outcome->speedup >= a_.require_speedup))
        return fail({diagnose(Code::no_speedup, fmt::format("{:.3f}", c.outcome->speedup), a_.require_speedup)}, {},
                    true);
      return 0;
    });
  }
  int search() {
    if (!a_.export_to.empty() && a_.export_to[0] != "onnx" && a_.export_to[0] != "certificates")
      return fail(
          {diagnose(Code::bad_option, "--export " + a_.export_to[0], "only `onnx` and `certificates` are written")},
          {});
    if (!a_.suite.empty()) {
      auto o = options();
      if (!o) return fail(o.errors(), {});
      const auto rows = driver::search_suite(a_.suite, *o);
      if (!rows) return fail(rows.errors(), {});
      print(a_.json ? driver::suite_json(*rows) : driver::suite_text(*rows));
      return interrupted() ? 130 : 0;
    }
    if (a_.input.empty()) return fail({diagnose(Code::bad_option, "INPUT", "is missing")}, {});
    return compiled("search", [this](driver::Compilation& c) {
      Diagnostics bad;
      if (!a_.export_to.empty())
        bad = a_.export_to[0] == "onnx" ? driver::export_onnx_graphs(c, a_.export_to[1])
                                        : driver::export_certificates(c, a_.export_to[1]);
      print(a_.json ? driver::search_json(c) : driver::search_text(c, a_.list));
      return bad.empty() ? 0 : fail(bad, {});
    });
  }
  int schedule() {
    return compiled("schedule", [this](driver::Compilation& c) {
      if (a_.graph >= 0) {
        if (static_cast<size_t>(a_.graph) >= c.equal.size())
          return fail({diagnose(Code::bad_option, fmt::format("--graph {}", a_.graph),
                                fmt::format("there are {} equal graphs", c.equal.size()))},
                      {});
        std::erase_if(c.proposals, [&](const tune::Proposal& p) { return p.graph != a_.graph; });
      }
      return print(a_.json ? driver::schedule_json(c) : driver::schedule_text(c));
    });
  }
  int show() {
    if (a_.operators) {
      const std::string text = driver::operators_text();
      return print(a_.json ? driver::show_json("operators", text) : text);
    }
    if (a_.input.empty()) return fail({diagnose(Code::bad_option, "INPUT", "is missing")}, {});
    auto o = options();
    if (!o) return fail(o.errors(), {});
    SourceText source;
    auto text =
        driver::show({std::move(*o), a_.input, a_.stage, a_.candidate, a_.graph, a_.unfused, a_.output}, source);
    if (!text) return fail(text.errors(), source);
    return print(a_.json ? driver::show_json(a_.stage, *text) : *text);
  }
  int run_once() {
    auto o = options();
    if (!o) return fail(o.errors(), {});
    SourceText source;
    const auto r =
        driver::run_program({std::move(*o), a_.input, a_.inputs, a_.outputs, a_.scalars, a_.check, a_.unfused}, source);
    if (!r) return fail(r.errors(), source);
    return print(a_.json ? driver::run_json(*r) : driver::run_text(*r));
  }
  int bench() {
    auto o = options();
    if (!o) return fail(o.errors(), {});
    if (!a_.against.empty() && a_.against != std::vector<std::string>{"unfused"}) {
      const auto status = driver::bench_against({a_.input, a_.against, o->threads, a_.json});
      return status ? *status : fail(status.errors(), {});
    }
    SourceText source;
    const auto r = driver::bench_program({std::move(*o), a_.input, a_.inputs, "", {}, false, false}, source);
    if (!r) return fail(r.errors(), source);
    return print(a_.json ? driver::bench_json(*r) : driver::bench_text(*r));
  }
  int check() {
    const auto r = driver::check_file(a_.input, a_.seed);
    if (!r) return fail(r.errors(), {});
    return print(a_.json ? driver::check_json(*r)
                         : fmt::format("accepted: {} step{} and the stabilised result, {} evaluations\n", r->steps,
                                       r->steps == 1 ? "" : "s", r->evaluations));
  }
  int db() {
    const std::string cache = a_.cache_dir.empty() ? default_cache() : a_.cache_dir;
    const std::string path = !a_.database.empty() ? a_.database : cache.empty() ? "" : cache + "/tunings.db";
    const auto text = driver::run_db({a_.action, a_.operands, path, a_.days, a_.json});
    if (!text) return fail(text.errors(), {});
    return print(*text);
  }
  int explain() {
    auto o = options();
    if (!o) return fail(o.errors(), {});
    SourceText source;
    const auto e = driver::explain({std::move(*o), a_.input, a_.graph, a_.step, a_.why_not}, source);
    if (!e) return fail(e.errors(), source);
    return print(a_.json ? driver::explain_json(*e) : driver::explain_text(*e));
  }
  int passes() {
    std::string out;
    if (a_.json) return print(driver::passes_json());
    for (const driver::Pass& p : driver::pipeline())
      out += fmt::format("{:<10} {} -> {}{}\n           {}\n", p.name, p.in, p.out,
                         p.optional ? "   (can be left out)" : "", p.doc);
    return print(out);
  }
  int targets() {
    auto o = options();
    if (!o) return fail(o.errors(), {});
    Machine m = host_machine();
    if (a_.measure) {
      auto measured = jit::measured_host();
      if (!measured) return fail(measured.errors(), {});
      m = std::move(*measured);
    }
    if (!a_.output.empty()) {
      const std::string text = cleave::print(m);
      if (Diagnostics bad = write_bytes(a_.output, std::as_bytes(std::span(text))); !bad.empty()) return fail(bad, {});
    }
    if (a_.json) return print(driver::targets_json(m));
    return print(a_.measure
                     ? cleave::print(m)
                     : fmt::format("cpu   {} ({}, {} cores)\ncuda  not available yet\n", m.name, name(m.isa), m.cores));
  }
  int doctor() {
    auto o = options();
    if (!o) return fail(o.errors(), {});
    const std::vector<driver::Finding> findings = driver::examine(*o);
    bool ok = true;
    std::string out;
    for (const driver::Finding& f : findings) {
      ok = ok && f.ok;
      out += fmt::format("{} {:<15} {}\n", f.ok ? "ok  " : "FAIL", f.what, f.detail);
    }
    print(a_.json ? driver::doctor_json(findings) : out);
    return ok ? 0 : 6;
  }

  int argc_;
  char** argv_;
  std::string command_;
  CLI::App app_;
  std::shared_ptr<HelpFormatter> formatter_ = std::make_shared<HelpFormatter>();
  std::map<std::string, std::function<int()>> verbs_;
  Arguments a_;
};

}  // namespace
}  // namespace cleave::cli

namespace {
// Large temporaries come and go while results are judged. What is freed stays with the process, so that the next one
// does not fault its pages in again: that took 15 to 40 % of a short run. The library leaves malloc alone.
void keep_freed_memory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  mallopt(M_TOP_PAD, 64 << 20);
#endif
}
}  // namespace

int main(int argc, char** argv) {
  keep_freed_memory();
  return cleave::cli::Command(argc, argv).run();
}
