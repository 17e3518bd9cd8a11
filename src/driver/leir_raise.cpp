#include "driver/leir_raise.hpp"

#include <cmath>

#include "base/codes.hpp"
#include "bridge/raise.hpp"
#include "eval/graph_eval.hpp"

namespace cleave::driver {

using leir::Array;

namespace {

oracle::Tensor to_tensor(const Array& a, DType dtype) {
  oracle::Tensor out = oracle::zeros(dtype, a.shape);
  for (int64_t i = 0; i < a.elements(); ++i) {
    if (out.real())
      out.reals[static_cast<size_t>(i)] = leir::element(a, i);
    else
      out.ints[static_cast<size_t>(i)] = a.integers[static_cast<size_t>(i)];
  }
  oracle::round_to_storage(out);
  return out;
}

Array from_tensor(const oracle::Tensor& t, leir::Type type) {
  Array out = leir::make_array(type, t.extents);
  out.reals = t.reals;
  out.integers = t.ints;
  return out;
}

// Elements of `want` that are stored as what was got of them take its value: float64 does not overflow where the
// storage type does.
void take_stored(const Array& got, const Array& stored, Array& want) {
  if (!want.real() || got.shape != want.shape) return;
  for (size_t i = 0; i < want.reals.size(); ++i) {
    const double x = leir::round_real(want.type, got.reals[i]);
    if (x == stored.reals[i] || (std::isnan(x) && std::isnan(stored.reals[i]))) want.reals[i] = got.reals[i];
  }
}

}  // namespace

Result<graph::Graph> raise_text(const SourceText& source, std::string_view name, Diagnostics& messages) {
  leir::Parsed parsed = leir::parse(source);
  messages = parsed.messages;
  if (!parsed.ok()) return parsed.messages;
  leir::Checked checked = leir::check(std::move(parsed.syntax));
  messages.insert(messages.end(), checked.messages.begin(), checked.messages.end());
  if (!checked.program) return messages;
  return bridge::raise(*checked.program, name);
}

std::optional<leir::Program> written_program(const SourceText& source, const Diagnostics& errors) {
  if (errors.empty() || errors[0].code != Code::leir_unsupported) return std::nullopt;
  leir::Parsed parsed = leir::parse(source);
  if (!parsed.ok()) return std::nullopt;
  return leir::check(std::move(parsed.syntax)).program;
}

Result<std::string> check_raised(const LeirRequest& request, const leir::Program& p, const graph::Graph& graph) {
  TRY_ASSIGN(const auto inputs, leir_inputs(request, p));
  leir::InterpretOptions o;
  o.max_steps = request.max_steps;
  o.precision = leir::Precision::f64;
  o.error_bounds = true;
  TRY_ASSIGN(auto want, leir::interpret(p, inputs, o));
  std::map<std::string, oracle::Tensor> given;
  for (const auto& [name, a] : inputs) {
    const auto v = p.find(name);
    if (!v) continue;
    const auto dtype = leir::as_dtype(p.variables()[*v].type);
    CHECK(dtype, "an input of a type that graphs have not");
    Array converted = leir::make_array(p.variables()[*v].type, a.shape);
    for (int64_t i = 0; i < a.elements(); ++i) {
      const auto k = static_cast<size_t>(i);
      if (converted.real())
        converted.reals[k] = leir::element(a, i);
      else
        converted.integers[k] = a.real() ? leir::real_to_integer(converted.type, a.reals[k])
                                         : leir::wrap_integer(converted.type, a.integers[k]);
    }
    given.emplace(name, to_tensor(converted, *dtype));
  }
  TRY_ASSIGN(const std::vector<oracle::Tensor> got, oracle::evaluate(graph, given));
  std::map<std::string, Array> stored;
  for (size_t k = 0; k < got.size(); ++k) {
    const std::string& name = graph.outputs()[k].name;
    Array& w = want.at(name);
    const Array g = from_tensor(got[k], w.type);
    std::span<const double> bound;
    if (w.real()) bound = w.errors;
    auto why = leir_differs(g, w, bound, 1e-10, 0);
    if (why && w.real()) {
      o.precision = leir::Precision::storage;
      o.error_bounds = false;
      if (stored.empty()) {
        TRY_ASSIGN(stored, leir::interpret(p, inputs, o));
      }
      take_stored(g, stored.at(name), w);
      why = leir_differs(g, w, bound, 1e-10, 0);
    }
    if (why) return diagnose(Code::leir_differs, name, "of the graph: " + *why);
  }
  return std::string("the graph equals the program");
}

}  // namespace cleave::driver
