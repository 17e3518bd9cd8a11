#include "driver/leir_bench.hpp"

#include <cmath>

#include "base/codes.hpp"
#include "base/number.hpp"
#include "bridge/raise.hpp"
#include "driver/leir_native.hpp"
#include "driver/pipeline.hpp"

namespace cleave::driver {

using leir::Array;

namespace {

tune::Array memory_of(const std::string& name, const Array& a, DType dtype) {
  tune::Array out = tune::make_array(name, dtype, a.shape);
  const auto width = byte_size(dtype);
  auto* at = static_cast<std::byte*>(out.data.data());
  for (int64_t i = 0; i < a.elements(); ++i, at += width) {
    if (is_real(dtype))
      store_real(dtype, at, leir::element(a, i));
    else
      store_integer(dtype, at, a.integers[static_cast<size_t>(i)]);
  }
  return out;
}

// The largest difference relative to the largest magnitude; infinite where one is no number and the other is.
double difference(const Array& want, const tune::Array& got) {
  double scale = 0, worst = 0;
  const auto* at = static_cast<const std::byte*>(got.data.data());
  for (int64_t i = 0; i < want.elements(); ++i, at += byte_size(got.dtype)) {
    const double w = leir::element(want, i);
    const double g = is_real(got.dtype) ? load_real(got.dtype, at) : static_cast<double>(load_integer(got.dtype, at));
    if ((std::isnan(w) && std::isnan(g)) || w == g) continue;
    if (!std::isfinite(w) || !std::isfinite(g)) return INFINITY;
    worst = std::max(worst, std::fabs(w - g));
    scale = std::max(scale, std::fabs(w));
  }
  return worst == 0 ? 0 : worst / std::max(scale, 1e-300);
}

// What a graph keeps of a constant or a parameter.
graph::ConstantData data_of(const Array& a, leir::Type type) {
  graph::ConstantData out;
  out.kind = graph::ConstantData::Kind::bytes;
  const tune::Array memory = memory_of("", a, *leir::as_dtype(type));
  const auto* at = static_cast<const std::byte*>(memory.data.data());
  out.bytes = std::make_shared<std::vector<std::byte>>(at, at + memory.bytes());
  return out;
}

}  // namespace

Result<WrittenBench> bench_written(const leir::Program& p, const std::map<std::string, Array>& inputs, bool strict,
                                   int pairs) {
  WrittenBench out;
  for (const char* via : {"jit", "c"}) {
    TRY_ASSIGN(NativeLeir native, compile_leir(p, via, strict));
    out.natives.push_back(std::move(native));
  }
  TRY_ASSIGN(out.calls, call_native(p, out.natives, inputs));
  for (const NativeCall& call : out.calls)
    if (call.run() != 0) return diagnose(Code::leir_input, p.name(0), "leads to a subscript that is out of bounds");
  runtime::CompareOptions o;
  o.pairs = pairs;
  out.comparison = runtime::compare([&] { (void)out.calls[0].run(); }, [&] { (void)out.calls[1].run(); }, o);
  return out;
}

Result<RaisedBench> bench_raised(const LeirRequest& request, const leir::Program& p, const Options& options,
                                 int pairs) {
  RaisedBench out;
  TRY_ASSIGN(const auto inputs, leir_inputs(request, p));
  Compilation c;
  c.options = options;
  c.path = request.input;
  c.input.format = Format::leir;
  c.input.path = request.input;
  std::map<std::string, graph::ConstantData> fixed;
  for (uint32_t v = 0; v < p.variables().size(); ++v) {
    const leir::Variable& var = p.variables()[v];
    if (var.role == leir::Role::constant || var.role == leir::Role::parameter)
      fixed.emplace(p.name(v), data_of(inputs.at(p.name(v)), var.type));
  }
  TRY_ASSIGN(c.input.graph, bridge::raise(p, "leir", fixed));
  const double start = runtime::wall_seconds();
  if (Diagnostics bad = run_passes(c, "tune", "bind"); !bad.empty()) return bad;
  out.optimise_seconds = runtime::wall_seconds() - start;
  out.schedule = c.outcome->candidate.summary;
  out.dram_gbytes = c.machine.dram_gbytes;
  for (const leir::Variable& v : p.variables())
    if (v.known()) out.bytes += static_cast<double>(v.elements() * leir::byte_size(v.type));

  TRY_ASSIGN(const WrittenBench written, bench_written(p, inputs, false, 3));
  out.jit_seconds = written.comparison.seconds_a;
  out.c_seconds = written.comparison.seconds_b;
  const NativeCall& fastest = written.calls[out.jit_seconds <= out.c_seconds ? 0 : 1];
  (void)fastest.run();

  std::vector<tune::Array> given, results;
  const graph::Graph& g = *c.bound;
  for (graph::ValueId leaf : g.leaves(graph::Op::input))
    given.push_back(memory_of(g.value(leaf).name, inputs.at(g.value(leaf).name), g.type(leaf).dtype));
  for (const graph::Output& o : g.outputs())
    results.push_back(tune::make_array(o.name, g.type(o.value).dtype, g.extents(o.value)));
  tune::Call call;
  for (const tune::Array& a : given) call.inputs.push_back(a.data.data());
  for (tune::Array& a : results) call.outputs.push_back(a.data.data());
  SerialExecutor serial;
  if (Diagnostics bad = c.outcome->runnable->run(call, serial); !bad.empty()) return bad;
  for (const tune::Array& a : results) {
    const double error = difference(fastest.output(*p.find(a.name)), a);
    out.error = std::max(out.error, error);
    // Each may be as far from exact arithmetic as the verdict allows; without a bound three digits have to agree.
    const tune::Verdict& verdict = c.outcome->verdict;
    const double allowed = verdict.unbounded > 0 ? std::max(1e-3, 2 * verdict.bound) : 2 * verdict.bound;
    if (error > allowed)
      return diagnose(Code::leir_differs, a.name,
                      fmt::format("of the optimised program is {:.2g} of the largest magnitude away, allowed is {:.2g}",
                                  shown(error), shown(allowed)));
  }
  runtime::CompareOptions o;
  o.pairs = pairs;
  out.comparison =
      runtime::compare([&] { (void)c.outcome->runnable->run(call, serial); }, [&] { (void)fastest.run(); }, o);
  return out;
}

}  // namespace cleave::driver
