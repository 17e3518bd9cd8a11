#include "driver/execute.hpp"
#include "base/number.hpp"
#include "driver/input.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "base/codes.hpp"
#include "base/rng.hpp"
#include "check/check_certificate.hpp"
#include "driver/artefact.hpp"
#include "driver/compile.hpp"
#include "driver/dims.hpp"
#include "driver/leir_raise.hpp"
#include "driver/object_cache.hpp"
#include "driver/sha256.hpp"
#include "frontend/file.hpp"
#include "frontend/npy.hpp"
#include "graph/integer_rules.hpp"
#include "runtime/timing.hpp"
#include "schedule/place.hpp"

namespace cleave::driver {

namespace fs = std::filesystem;

namespace {

// Something that can be run, with its data.
struct Loaded {
  std::string name, schedule;
  std::vector<tune::Array> inputs, constants, outputs;
  std::vector<std::string> scalar_names;
  std::vector<double> scalars;
  std::shared_ptr<CompiledProgram> program, unfused;
  std::unique_ptr<tune::Problem> problem;  // when the graph is known; holds inputs and constants then
  bool from_object = false, random_constants = false;
  std::string object_note;
  double flops = 0;  // schedule::KernelEstimate::work
  std::vector<std::string> notes;
  std::vector<graph::IntegerRule> integers;

  std::vector<tune::Array>& data_inputs() { return problem ? problem->inputs : inputs; }
};

tune::Array array_of(const tile::Program& p, tile::BufferId id) {
  std::vector<int64_t> extents;
  for (sym::Expr e : p.buffer(id).shape) extents.push_back(p.syms->typical(e));
  return tune::make_array(p.buffer(id).name, p.buffer(id).dtype, extents);
}

// Products of bf16 in pairs are loops on processors without a matrix unit, far behind what is chosen for those.
void note_matrix_unit(const tile::Program& p, Loaded& out) {
  for (const tile::Buffer& b : p.buffers)
    if (b.pairs && !host_has_matrix_unit()) {
      out.notes.push_back(
          "the program was made for a matrix unit, which this processor does not have: optimise it here");
      return;
    }
}

// The buffers of one place by argument; positions that the program does not use stay empty.
Result<std::vector<tune::Array>> arguments_of(const tile::Program& p, tile::Place place) {
  std::vector<tune::Array> out;
  double bytes = 0;
  for (tile::BufferId id : p.buffers_in(place)) {
    const tile::Buffer& b = p.buffer(id);
    if (b.argument < 0 || b.alias_of.valid()) continue;
    if (b.argument > 4096) return diagnose(Code::invalid_tile, b.name, "its argument number is too large");
    double n = static_cast<double>(byte_size(b.dtype));
    for (sym::Expr e : b.shape) n *= static_cast<double>(p.syms->typical(e));
    bytes += n;
    if (!(bytes <= static_cast<double>(tune::max_data_bytes())))
      return diagnose(Code::data_too_large, static_cast<int64_t>(std::min(bytes, 9e18)), tune::max_data_bytes());
    const auto at = static_cast<size_t>(b.argument);
    while (at >= out.size()) out.push_back(tune::make_array("", DType::f32, {0}));
    out[at] = array_of(p, id);
  }
  return out;
}

void fill_random(std::vector<tune::Array>& arrays, Rng& rng) {
  for (tune::Array& a : arrays) {
    auto* at = a.data.bytes();
    for (int64_t i = 0; i < a.elements(); ++i, at += byte_size(a.dtype)) {
      if (is_real(a.dtype))
        store_real(a.dtype, at, round_to(a.dtype, rng.normal()));
      else  // small ones are positions more often than not; whatever they are, programs stay inside their tensors
        store_integer(a.dtype, at, rng.between(0, a.dtype == DType::boolean ? 1 : 3));
    }
  }
}

Diagnostics read_inputs(const std::vector<std::string>& files, std::vector<tune::Array>& inputs) {
  if (files.size() != inputs.size())
    return {diagnose(Code::wrong_input, fmt::format("{}", fmt::join(files, " ")),
                     fmt::format("{} files are given, the program has {} inputs", files.size(), inputs.size()))};
  for (size_t i = 0; i < files.size(); ++i) {
    auto array = read_npy(files[i]);
    if (!array) return array.errors();
    tune::Array& to = inputs[i];
    if (array->dtype != to.dtype)
      return {
          diagnose(Code::wrong_input, to.name,
                   fmt::format("`{}` has the dtype {}, {} is needed{}", files[i], name(array->dtype), name(to.dtype),
                               to.dtype == DType::bf16 ? " (in a .npy file: two bytes an element, dtype V2)" : ""))};
    if (array->shape != to.extents)
      return {diagnose(Code::wrong_input, to.name,
                       fmt::format("`{}` has the shape [{}], [{}] is needed", files[i], fmt::join(array->shape, ", "),
                                   fmt::join(to.extents, ", ")))};
    std::copy(array->bytes.begin(), array->bytes.end(), to.data.as<std::byte>());
  }
  return {};
}

// "NAME=VALUE" for run-time scalars of these names, in the program's order.
Diagnostics set_scalars(const std::vector<std::string>& given, std::span<const std::string> names,
                        std::vector<double>& scalars) {
  for (const std::string& text : given) {
    const size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    const auto it = std::find(names.begin(), names.end(), name);
    if (it == names.end())
      return {diagnose(Code::bad_option, "--scalar " + text,
                       names.empty() ? std::string("the program has no run-time scalars")
                                     : fmt::format("the run-time scalars are {}", fmt::join(names, ", ")))};
    const char* begin = equals == std::string::npos ? "" : text.c_str() + equals + 1;
    char* end = nullptr;
    const double value = std::strtod(begin, &end);
    if (*begin == 0 || *end != 0) return {diagnose(Code::bad_option, "--scalar " + text, "should be NAME=NUMBER")};
    scalars.at(static_cast<size_t>(it - names.begin())) = value;
  }
  return {};
}

// A file name of its own for each output: letters, digits and `_-.` stay.
std::vector<std::string> file_names(const std::vector<tune::Array>& outputs) {
  std::vector<std::string> out;
  std::set<std::string> taken;
  for (const tune::Array& a : outputs) {
    std::string file = a.name;
    std::replace_if(
        file.begin(), file.end(),
        [](char c) { return !std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '-' && c != '.'; }, '_');
    if (file.find_first_not_of('.') == std::string::npos) file = "output" + file;
    std::string unique = file;
    for (int n = 2; !taken.insert(unique).second; ++n) unique = fmt::format("{}-{}", file, n);
    out.push_back(std::move(unique));
  }
  return out;
}

// Inputs that were given; random ones are made to fit.
Diagnostics check_integers(Loaded& l) {
  std::vector<int64_t> counts;
  for (const tune::Array& a : l.data_inputs()) counts.push_back(a.elements());
  if (l.integers.empty()) return {};
  return graph::check_integers(l.problem->graph, l.integers, counts, [&](size_t input, int64_t i) {
    const tune::Array& a = l.data_inputs()[input];
    return load_integer(a.dtype, a.data.as<std::byte>() + i * byte_size(a.dtype));
  });
}

Diagnostics set_problem(Loaded& out, const graph::Graph& data_graph, const graph::Graph& expanded, uint64_t seed) {
  auto data = tune::random_data(data_graph, seed);
  if (!data) return data.errors();
  out.problem = std::make_unique<tune::Problem>(
      tune::Problem{expanded, std::move(data->inputs), std::move(data->scalars), std::move(data->constants)});
  out.integers = graph::integer_rules(data_graph);
  for (const graph::Output& o : expanded.outputs())
    out.outputs.push_back(tune::make_array(o.name, expanded.type(o.value).dtype, expanded.extents(o.value)));
  return {};
}

// Dimensions that the shapes of input files give; the first file that says something about one decides.
Result<DimValues> given_by(const std::vector<std::string>& files, const graph::Graph& g) {
  DimValues out;
  const auto leaves = g.leaves(graph::Op::input);
  if (files.size() != leaves.size()) return out;  // refused when they are read
  for (size_t i = 0; i < files.size(); ++i) {
    TRY_ASSIGN(const NpyArray array, read_npy(files[i]));
    const graph::Shape& shape = g.type(leaves[i]).shape;
    for (size_t axis = 0; axis < std::min(shape.size(), array.shape.size()); ++axis)
      if (auto solved = solve(g.syms(), shape[axis], array.shape[axis])) out.insert(*solved);
  }
  return out;
}

// Values for the open dimensions of an artefact: from the shapes of the inputs that are given, else from --dim, else
// what it was tuned for.
Result<DimValues> values_for(const Artefact& a, const RunRequest& request) {
  DimValues out;
  for (const sym::Expr d : a.program.dims) out[a.program.syms->symbol_name(d)] = a.program.syms->typical(d);
  TRY_ASSIGN(const DimValues given, given_by(request.inputs, a.input));
  for (const auto& [name, value] : given)
    if (out.count(name)) out[name] = value;
  for (const auto& [name, option] : request.options.dims) {
    if (!out.count(name)) return diagnose(Code::undefined_name, name);
    if (option.is_range())
      return diagnose(Code::bad_option, "--dim " + name, "an artefact runs with one value of a dimension");
    out[name] = option.representative;
  }
  return out;
}

Result<Loaded> load(const RunRequest& request, SourceText& source, bool with_unfused) {
  Loaded out;
  TRY_ASSIGN(Input in, read_input(request.path, source, onnx_options(request.options)));
  out.name = in.name();
  switch (in.format) {
    case Format::artefact: {
      TRY_ASSIGN(Artefact a, load_artefact(request.path, &source));
      out.name = a.name;
      TRY_ASSIGN(const DimValues values, values_for(a, request));
      TRY_ASSIGN(const graph::Graph at, graph::bind(a.input, values));
      if (Diagnostics bad = set_problem(out, at, graph::expand(at), request.options.seed); !bad.empty()) return bad;
      const bool fallback = !values.empty() && a.dispatch.unfused(values);
      if (request.unfused || with_unfused || fallback) {
        if (!a.unfused)
          return diagnose(Code::bad_artefact, request.path, "baseline/unfused.tile is missing or unreadable");
        TRY_ASSIGN(out.unfused, compile(*a.unfused, out.problem->constants, a.machine));
        if (Diagnostics bad = out.unfused->set_extents(values); !bad.empty()) return bad;
      }
      out.object_note = a.object_note;
      if (fallback) {
        out.program = out.unfused;
        out.object_note.clear();
        out.notes.push_back("the unfused schedule serves these extents");
        out.schedule = fmt::format("{} kernels", out.program->kernel_names().size());
        break;
      }
      TRY_ASSIGN(out.program, compile(a.program, out.problem->constants, a.machine, a.object));
      if (Diagnostics bad = out.program->set_extents(values); !bad.empty()) return bad;
      note_matrix_unit(a.program, out);
      out.from_object = !a.object.empty();
      out.schedule = fmt::format("{} kernels", out.program->kernel_names().size());
      break;
    }
    case Format::itgraph:
    case Format::tile: {
      TRY_ASSIGN(const Machine machine, machine_for(request.options));
      if (in.it) {
        TRY_ASSIGN(in.tile, schedule::place(*in.it, machine));
      }
      TRY_ASSIGN(out.inputs, arguments_of(*in.tile, tile::Place::input));
      TRY_ASSIGN(out.constants, arguments_of(*in.tile, tile::Place::constant));
      TRY_ASSIGN(out.outputs, arguments_of(*in.tile, tile::Place::output));
      Rng rng(request.options.seed);
      fill_random(out.inputs, rng);
      fill_random(out.constants, rng);
      TRY_ASSIGN(const std::vector<tune::Array> scalars, arguments_of(*in.tile, tile::Place::scalar));
      for (const tune::Array& a : scalars) {
        out.scalar_names.push_back(a.name);
        out.scalars.push_back(rng.normal());
      }
      out.random_constants = !out.constants.empty();
      note_matrix_unit(*in.tile, out);
      TRY_ASSIGN(out.program, compile(*in.tile, out.constants, machine));
      out.schedule = fmt::format("{} kernels", out.program->kernel_names().size());
      break;
    }
    case Format::vec:
      return diagnose(Code::not_available, "running vector IR (it does not say what its arguments are)");
    case Format::graph:
    case Format::onnx:
    case Format::leir: {
      Compilation c;
      c.options = request.options;
      c.path = request.path;
      // Standard input was read above and cannot be read again.
      c.input = std::move(in);
      c.source = source;
      if (c.input.graph) {
        TRY_ASSIGN(const DimValues given, given_by(request.inputs, *c.input.graph));
        for (const auto& [name, value] : given) {
          const auto it = c.options.dims.emplace(name, DimOption{value, value, value}).first;
          if (it->second.lo <= value && value <= it->second.hi) it->second.representative = value;
        }
      }
      if (Diagnostics bad = run_passes(c, "schedule", "bind"); !bad.empty()) return bad;
      TRY_ASSIGN(const graph::Graph at, graph::bind(*c.bound, c.typical));
      if (Diagnostics bad = set_problem(out, at, graph::expand(at), request.options.seed); !bad.empty()) return bad;
      const ObjectCache objects(c.options.cache_dir);
      const schedule::Candidate& chosen = chosen_candidate(c, request.unfused ? -1 : 0);
      TRY_ASSIGN(out.program, compile(chosen.program, out.problem->constants, c.machine, objects));
      if (with_unfused) {
        TRY_ASSIGN(out.unfused, compile(c.unfused->program, out.problem->constants, c.machine, objects));
      }
      for (const schedule::KernelEstimate& k : c.unfused->kernels) out.flops += k.work;
      out.schedule = chosen.summary;
      out.notes = c.notes;
      if (!request.unfused) out.notes.push_back("the schedule is the cost model's choice; `cleave optimize` measures");
      break;
    }
  }
  if (request.unfused && out.unfused) out.program = out.unfused;
  if (out.problem) {
    for (graph::ValueId v : out.problem->graph.leaves(graph::Op::scalar))
      out.scalar_names.push_back(out.problem->graph.value(v).name);
    out.scalars = out.problem->scalars;
  }
  if (Diagnostics bad = set_scalars(request.scalars, out.scalar_names, out.scalars); !bad.empty()) return bad;
  if (out.problem) out.problem->scalars = out.scalars;
  if (!request.inputs.empty()) {
    if (Diagnostics bad = read_inputs(request.inputs, out.data_inputs()); !bad.empty()) return bad;
    if (Diagnostics bad = check_integers(out); !bad.empty()) return bad;
  }
  return out;
}

std::unique_ptr<Executor> executor_for(int threads) {
  if (threads > 1) return std::make_unique<ThreadPool>(threads);
  return std::make_unique<SerialExecutor>();
}

tune::Call call_of(Loaded& loaded, std::vector<tune::Array>& outputs) {
  tune::Call c;
  for (const tune::Array& a : loaded.data_inputs()) c.inputs.push_back(a.data.data());
  c.scalars = loaded.scalars;
  for (tune::Array& a : outputs) c.outputs.push_back(a.data.data());
  return c;
}

OutputSummary summarise(const tune::Array& a) {
  OutputSummary s{a.name, name(a.dtype), a.extents, INFINITY, -INFINITY, 0, 0, ""};
  int64_t finite = 0;
  const auto* at = a.data.as<std::byte>();
  for (int64_t i = 0; i < a.elements(); ++i, at += byte_size(a.dtype)) {
    const double v = is_real(a.dtype) ? load_real(a.dtype, at) : static_cast<double>(load_integer(a.dtype, at));
    if (!std::isfinite(v)) {
      ++s.not_finite;
      continue;
    }
    ++finite;
    s.lowest = std::min(s.lowest, v);
    s.highest = std::max(s.highest, v);
    s.mean += v;
  }
  if (finite > 0)
    s.mean /= static_cast<double>(finite);
  else
    s.lowest = s.highest = NAN;
  s.sha256 = sha256_hex(std::span(a.data.as<std::byte>(), static_cast<size_t>(a.bytes())));
  return s;
}

// One .npy file for each output in the folder; nothing without one.
Result<std::vector<std::string>> write_outputs(const std::string& folder, const std::vector<tune::Array>& outputs) {
  std::vector<std::string> out;
  if (folder.empty()) return out;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return diagnose(Code::file_unwritable, folder, error.message());
  const std::vector<std::string> files = file_names(outputs);
  for (size_t i = 0; i < files.size(); ++i) {
    const tune::Array& a = outputs[i];
    out.push_back((fs::path(folder) / (files[i] + ".npy")).string());
    NpyArray array;
    array.dtype = a.dtype;
    array.shape = a.extents;
    array.bytes.assign(a.data.as<std::byte>(), a.data.as<std::byte>() + a.bytes());
    if (Diagnostics bad = write_npy(out.back(), array); !bad.empty()) return bad;
  }
  return out;
}

// Unsigned integers of 64 bits, which arrays here have not, keep their bits as i64.
tune::Array stored(const std::string& name, const leir::Array& a) {
  const DType dtype = leir::as_dtype(a.type).value_or(DType::i64);
  tune::Array out = tune::make_array(name, dtype, a.shape);
  auto* at = out.data.bytes();
  for (size_t i = 0; i < static_cast<size_t>(a.elements()); ++i, at += byte_size(dtype)) {
    if (a.real())
      store_real(dtype, at, a.reals[i]);
    else
      store_integer(dtype, at, a.integers[i]);
  }
  return out;
}

// LEIR that has no graph, as it is written: machine code of its loops, bit by bit what the interpreter computes.
Result<RunReport> run_written(const RunRequest& request, const leir::Program& program, const Diagnostics& why) {
  LeirRequest r;
  r.input = request.path;
  r.inputs = request.inputs;
  r.check = request.check;
  r.via = "jit";
  r.threads = request.options.threads;
  r.seed = request.options.seed;
  r.rtol = request.options.tolerance.relative;
  r.atol = request.options.tolerance.absolute;
  if (!request.scalars.empty())
    return diagnose(Code::bad_option, "--scalar " + request.scalars[0], "a LEIR program takes its scalars as inputs");
  TRY_ASSIGN(const LeirRun run, run_leir(r, program));
  RunReport out;
  out.name = request.path == "-" ? "leir" : fs::path(request.path).stem().string();
  out.schedule = "as written";
  out.random_inputs = request.inputs.empty();
  out.seconds = run.seconds;
  out.notes.push_back(fmt::format("run as it is written, since {}", why[0].message()));
  if (!run.verdict.empty()) out.notes.push_back("checked: " + run.verdict);
  std::vector<tune::Array> outputs;
  for (const std::string& name : run.order) outputs.push_back(stored(name, run.outputs.at(name)));
  for (const tune::Array& a : outputs) out.outputs.push_back(summarise(a));
  TRY_ASSIGN(out.files, write_outputs(request.outputs, outputs));
  return out;
}

}  // namespace

Result<RunReport> run_program(const RunRequest& request, SourceText& source) {
  auto read = load(request, source, false);
  if (!read) {
    if (const auto program = written_program(source, read.errors()))
      return run_written(request, *program, read.errors());
    return read.errors();
  }
  Loaded loaded = std::move(*read);
  if (request.check && !loaded.problem)
    return diagnose(Code::bad_option, "--check",
                    "needs the graph: a schedule or a tile program alone does not say what it should compute");
  RunReport out;
  out.name = loaded.name;
  out.schedule = loaded.schedule;
  out.random_inputs = request.inputs.empty() && !loaded.data_inputs().empty();
  out.random_constants = loaded.random_constants;
  out.from_object = loaded.from_object;
  out.object_note = loaded.object_note;
  out.notes = loaded.notes;
  const auto executor = executor_for(request.options.threads);
  const double begin = runtime::wall_seconds();
  if (Diagnostics bad = loaded.program->run(call_of(loaded, loaded.outputs), *executor); !bad.empty()) return bad;
  out.seconds = runtime::wall_seconds() - begin;
  for (const tune::Array& a : loaded.outputs) out.outputs.push_back(summarise(a));

  if (request.check) {
    tune::ReferenceOptions ro;
    ro.seed = request.options.seed;
    TRY_ASSIGN(const tune::Reference reference, tune::make_reference(*loaded.problem, ro));
    tune::Results results(loaded.problem->graph);
    tune::Call call = call_of(loaded, loaded.outputs);
    call.outputs = results.addresses();
    if (Diagnostics bad = loaded.program->run(call, *executor); !bad.empty()) return bad;
    out.verdict = tune::judge(reference, results, nullptr, request.options.tolerance);
    if (!out.verdict->ok)
      return diagnose(Code::wrong_result, request.unfused ? "unfused" : "chosen", out.verdict->text);
  }
  TRY_ASSIGN(out.files, write_outputs(request.outputs, loaded.outputs));
  return out;
}

Result<BenchReport> bench_program(const RunRequest& request, SourceText& source) {
  TRY_ASSIGN(Loaded loaded, load(request, source, true));
  if (!loaded.unfused) return diagnose(Code::not_available, "benchmarking a tile program without its graph");
  BenchReport out;
  out.name = loaded.name;
  out.threads = request.options.threads;
  out.flops = loaded.flops;
  const auto executor = executor_for(request.options.threads);
  const tune::Call call = call_of(loaded, loaded.outputs);
  if (Diagnostics bad = loaded.program->run(call, *executor); !bad.empty()) return bad;
  if (Diagnostics bad = loaded.unfused->run(call, *executor); !bad.empty()) return bad;
  runtime::CompareOptions o;
  o.wall = request.options.threads > 1;
  out.comparison = runtime::compare([&] { (void)loaded.program->run(call, *executor); },
                                    [&] { (void)loaded.unfused->run(call, *executor); }, o);
  const std::vector<std::string> names = loaded.program->kernel_names();
  const std::vector<double> seconds = loaded.program->kernel_seconds(call);
  for (size_t i = 0; i < std::min(names.size(), seconds.size()); ++i) out.kernels.emplace_back(names[i], seconds[i]);
  return out;
}

std::string run_text(const RunReport& r) {
  std::string out = fmt::format("{}: {}, {:.3f} ms\n", r.name, r.schedule, 1e3 * r.seconds);
  for (const OutputSummary& s : r.outputs)
    out += fmt::format("  {}: {}[{}]  lowest {:.6g}  highest {:.6g}  mean {:.6g}  not finite {}  sha256 {}\n", s.name,
                       s.dtype, fmt::join(s.shape, ", "), shown(s.lowest), shown(s.highest), shown(s.mean),
                       s.not_finite, s.sha256.substr(0, 16));
  if (r.verdict)
    out += fmt::format(
        "  checked against float64: {} elements, error {:.2e} of the largest magnitude, {}\n", r.verdict->elements,
        shown(r.verdict->max_rel),
        r.verdict->bound > 0 ? fmt::format("bound {:.2e}", r.verdict->bound) : std::string("derived bound not known"));
  if (r.verdict && r.verdict->left_out > 0)
    out += fmt::format("  note: {} elements are NaN in float64 and numbers here: masked elements are not computed\n",
                       r.verdict->left_out);
  for (const std::string& f : r.files) out += fmt::format("  written: {}\n", f);
  if (r.random_inputs) out += "  note: inputs are seeded random numbers (give some with --inputs)\n";
  if (r.random_constants)
    out += "  note: constants are seeded random numbers: a tile program does not have their values\n";
  if (r.from_object) out += "  note: object code was loaded, nothing was compiled\n";
  if (!r.object_note.empty())
    out += fmt::format("  note: compiled again, the object code was not used: {}\n", r.object_note);
  for (const std::string& n : r.notes) out += fmt::format("  note: {}\n", n);
  return out;
}

std::string bench_text(const BenchReport& r) {
  const runtime::Comparison& c = r.comparison;
  const auto peak = [&](double seconds) {
    return r.flops > 0 && c.peak_gflops > 0
               ? fmt::format("  {:.0f} % of peak", 100 * r.flops / seconds / (1e9 * c.peak_gflops * r.threads))
               : std::string();
  };
  std::string out = fmt::format("{}: {} threads, {} pairs\n", r.name, r.threads, c.pairs);
  out += fmt::format("  unfused  {:>10.3f} ms{}\n  program  {:>10.3f} ms{}\n", 1e3 * c.seconds_b, peak(c.seconds_b),
                     1e3 * c.seconds_a, peak(c.seconds_a));
  out += fmt::format("  speedup  {:.3f}x (95 %: {:.3f} to {:.3f}; the same against itself: {:.3f} to {:.3f})\n",
                     c.ratio, c.interval.low, c.interval.high, c.control.low, c.control.high);
  for (const auto& [name, seconds] : r.kernels) out += fmt::format("    {:<24} {:>10.3f} ms\n", name, 1e3 * seconds);
  if (c.disturbed)
    out += "  note: other programs ran beside the measurement, so the interval is that of single pairs\n";
  return out;
}

Result<CheckedCertificate> check_file(const std::string& path, uint64_t seed) {
  std::string text;
  if (path == "-") {
    TRY_ASSIGN(text, read_stdin());
  } else {
    std::error_code error;
    const std::string file = fs::is_directory(path, error) ? (fs::path(path) / "certificate.json").string() : path;
    if (file != path && fs::exists(fs::path(path) / "manifest.json", error) && !fs::exists(file, error))
      return diagnose(Code::no_certificate, path);
    TRY_ASSIGN(const std::vector<std::byte> bytes, read_bytes(file, 0, -1, int64_t{64} << 20));
    text.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  check::CheckOptions o;
  o.seed ^= seed;
  o.max_elements = int64_t{1} << 27;  // graphs with their real extents
  TRY_ASSIGN(const check::CheckReport r, check::check_certificate(text, o));
  return CheckedCertificate{r.steps, r.evaluations};
}

}  // namespace cleave::driver
