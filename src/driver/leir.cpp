#include "driver/leir.hpp"

#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/codes.hpp"
#include "base/number.hpp"
#include "base/rng.hpp"
#include "driver/leir_native.hpp"
#include "frontend/file.hpp"
#include "frontend/npz.hpp"

namespace cleave::driver {

using leir::Array;
using leir::Role;

namespace {

namespace fs = std::filesystem;
constexpr int64_t kMaxText = int64_t{64} << 20;

bool is_folder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// [{"name": "A", "role": "in", "dtype": "f32", "shape": [4, 5]}, ...]
Diagnostics read_known(const std::string& path, leir::Syntax& syntax) {
  auto bytes = read_bytes(path, 0, -1, kMaxText);
  if (!bytes) return bytes.errors();
  const auto json = nlohmann::json::parse(reinterpret_cast<const char*>(bytes->data()),
                                          reinterpret_cast<const char*>(bytes->data()) + bytes->size(), nullptr, false);
  auto bad = [&](const std::string& name, const std::string& why) {
    return Diagnostics{diagnose(Code::leir_header, name, why)};
  };
  if (!json.is_array()) return bad(path, "is no JSON list of known variables");
  for (const auto& e : json) {
    if (!e.is_object() || !e.contains("name") || !e["name"].is_string())
      return bad(path, "has an entry without a name");
    const std::string name = e["name"];
    leir::HeaderEntry h;
    const std::string role = e.value("role", "in"),
                      dtype = e.contains("dtype") && e["dtype"].is_string() ? e["dtype"] : "";
    bool known = false;
    for (Role r : {Role::input, Role::constant, Role::parameter, Role::output})
      if (role == leir::text(r)) {
        h.role = r;
        known = true;
      }
    const auto type = leir::type_from_name(dtype);
    if (!known || !type || leir::refuse_variable(name)) return bad(name, "needs a role, a dtype and a lawful name");
    h.type = *type;
    h.name = syntax.intern(name);
    if (!e.contains("shape") || !e["shape"].is_array()) return bad(name, "has no shape");
    for (const auto& d : e["shape"]) {
      if (!d.is_number_integer() || d.get<int64_t>() < 0) return bad(name, "has an extent that is no number");
      h.dims.push_back({d.get<int64_t>(), leir::kNone});
    }
    syntax.header.push_back(std::move(h));
  }
  return {};
}

Array from_npy(const NpyArray& a) {
  Array out = leir::make_array(a.u64 ? leir::Type::u64 : leir::from_dtype(a.dtype), a.shape);
  const auto width = static_cast<size_t>(byte_size(a.dtype));
  for (size_t i = 0; i < static_cast<size_t>(out.elements()); ++i) {
    if (out.real())
      out.reals[i] = load_real(a.dtype, a.bytes.data() + i * width);
    else
      out.integers[i] = load_integer(a.dtype, a.bytes.data() + i * width);
  }
  return out;
}

// With `wide`, reals become f64.
NpyArray to_npy(const Array& a, bool wide) {
  NpyArray out;
  out.dtype = wide && a.real() ? DType::f64 : leir::as_dtype(a.type).value_or(DType::i64);
  out.u64 = a.type == leir::Type::u64;
  out.shape = a.shape;
  const auto width = static_cast<size_t>(byte_size(out.dtype));
  out.bytes.resize(static_cast<size_t>(a.elements()) * width);
  for (size_t i = 0; i < static_cast<size_t>(a.elements()); ++i) {
    if (a.real())
      store_real(out.dtype, out.bytes.data() + i * width, a.reals[i]);
    else
      store_integer(out.dtype, out.bytes.data() + i * width, a.integers[i]);
  }
  return out;
}

std::map<std::string, Array> arrays_of(const std::map<std::string, NpyArray>& from) {
  std::map<std::string, Array> out;
  for (const auto& [name, a] : from) out.emplace(name, from_npy(a));
  return out;
}

Array random_array(const leir::Variable& v, Rng& rng) {
  Array a = leir::make_array(v.type, v.shape);
  for (int64_t i = 0; i < a.elements(); ++i) {
    const auto k = static_cast<size_t>(i);
    if (a.real())
      a.reals[k] = leir::round_real(v.type, rng.normal());
    else if (v.values)
      a.integers[k] = rng.between(v.values->first, v.values->second);
    else
      a.integers[k] = static_cast<int64_t>(rng.below(2));
  }
  return a;
}

leir::InterpretOptions storage_options(const LeirRequest& request) {
  leir::InterpretOptions o;
  o.max_steps = request.max_steps;
  return o;
}

}  // namespace

std::optional<std::string> leir_differs(const Array& got, const Array& want, std::span<const double> bound, double rtol,
                                        double atol) {
  if (got.shape != want.shape)
    return fmt::format("has the shape [{}], expected is [{}]", fmt::join(got.shape, ","), fmt::join(want.shape, ","));
  double scale = 0;
  for (int64_t i = 0; i < want.elements(); ++i) {
    const double w = std::fabs(leir::element(want, i));
    if (std::isfinite(w)) scale = std::max(scale, w);
  }
  for (int64_t i = 0; i < want.elements(); ++i) {
    const auto k = static_cast<size_t>(i);
    // Integers beyond 2^53 are compared as what they are.
    if (!got.real() && !want.real() && got.integers[k] == want.integers[k]) continue;
    const double g = leir::element(got, i), w = leir::element(want, i);
    const bool reals = got.real() || want.real();
    if ((std::isnan(g) && std::isnan(w)) || (reals && g == w)) continue;
    const double allowed = (bound.empty() ? 0 : bound[k]) + atol + rtol * std::fabs(w);
    if (std::isinf(allowed))
      return fmt::format(
          "the comparison is inconclusive: element {} is {}, in float64 {}, and what its rounding may do to "
          "it has no bound",
          i, shown(g), shown(w));
    if (!std::isfinite(g) || !std::isfinite(w) || std::fabs(g - w) > allowed || (!reals && allowed == 0))
      return fmt::format("element {} is {}, expected is {}, allowed is {:.3g}", i, leir::element_text(got, i),
                         leir::element_text(want, i), shown(allowed));
    if (!bound.empty() && bound[k] > 0.05 * scale)
      return fmt::format(
          "the comparison is inconclusive: the error bound {:.3g} of element {} is over 5 % of the scale {:.3g}",
          bound[k], i, scale);
  }
  return std::nullopt;
}

Result<LeirText> read_leir(const LeirRequest& request) {
  LeirText out;
  std::string path = request.input;
  if (path == "-") {
    out.source = {"<stdin>", std::string(std::istreambuf_iterator<char>(std::cin), {})};
  } else {
    if (is_folder(path)) path += "/prog.leir";
    TRY_ASSIGN(const std::vector<std::byte> bytes, read_bytes(path, 0, -1, kMaxText + 1));
    out.source = {path, std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())};
  }
  leir::Parsed parsed = leir::parse(out.source, {.strict = request.strict, .paper = request.paper});
  out.syntax = std::move(parsed.syntax);
  out.messages = std::move(parsed.messages);
  if (!request.known.empty()) {
    if (!out.syntax.header.empty())
      return diagnose(Code::leir_header, out.syntax.text(out.syntax.header[0].name),
                      "is declared in the text, so --known is not needed");
    if (Diagnostics bad = read_known(request.known, out.syntax); !bad.empty()) return bad;
  }
  if (!request.dims.empty()) {
    TRY_ASSIGN(out.syntax, leir::bind(out.syntax, request.dims));
  }
  return out;
}

Result<std::map<std::string, Array>> leir_inputs(const LeirRequest& request, const leir::Program& p) {
  std::map<std::string, Array> out;
  std::vector<std::string> files = request.inputs;
  if (files.empty() && is_folder(request.input)) files = {request.input + "/inputs.npz"};
  std::vector<uint32_t> wanted;
  for (uint32_t v = 0; v < p.variables().size(); ++v)
    if (p.variables()[v].known() && p.variables()[v].role != Role::output) wanted.push_back(v);
  // Values of --dim, where files do not say them.
  const auto with_dims = [&](std::map<std::string, Array> given) {
    for (uint32_t v : wanted) {
      const auto it = request.dims.find(p.name(v));
      const leir::Variable& var = p.variables()[v];
      if (it == request.dims.end() || leir::is_real(var.type) || var.elements() != 1) continue;
      Array a = leir::make_array(var.type, var.shape);
      a.integers[0] = it->second;
      if (files.empty()) given.erase(it->first);
      given.emplace(it->first, std::move(a));
    }
    return given;
  };
  if (files.empty()) {
    Rng rng(request.seed);
    for (uint32_t v : wanted) {
      constexpr int64_t kMost = leir::InterpretOptions{}.max_bytes;
      if (p.variables()[v].elements() > kMost / 8) return diagnose(Code::leir_too_large, kMost, "bytes of variables");
      out.emplace(p.name(v), random_array(p.variables()[v], rng));
    }
    return with_dims(std::move(out));
  }
  if (files.size() == 1 && files[0].ends_with(".npz")) {
    TRY_ASSIGN(const auto arrays, read_npz(files[0]));
    return with_dims(arrays_of(arrays));
  }
  if (files.size() != wanted.size())
    return diagnose(Code::leir_input, files[0],
                    fmt::format("{} files are given, the program has {} inputs", files.size(), wanted.size()));
  for (size_t i = 0; i < files.size(); ++i) {
    TRY_ASSIGN(const NpyArray a, read_npy(files[i], true));
    out.emplace(p.name(wanted[i]), from_npy(a));
  }
  return out;
}

Result<LeirRun> run_leir(const LeirRequest& request, const leir::Program& p) {
  LeirRun run;
  for (const leir::Variable& v : p.variables())
    if (v.role == Role::output) run.order.push_back(p.syntax().text(v.name));
  TRY_ASSIGN(const auto inputs, leir_inputs(request, p));
  leir::InterpretOptions o = storage_options(request);
  o.precision = request.f64 ? leir::Precision::f64 : leir::Precision::storage;
  const auto start = std::chrono::steady_clock::now();
  if (request.via == "interpreter") {
    TRY_ASSIGN(run.outputs, leir::interpret(p, inputs, o));
  } else {
    if (Diagnostics bad = leir::too_long(p, request.max_steps); !bad.empty()) return bad;
    TRY_ASSIGN(const NativeLeir native, compile_leir(p, request.via, true, request.threads));
    TRY_ASSIGN(run.outputs, run_native(p, native, inputs));
  }
  run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::map<std::string, Array> exact;
  const bool stored = request.check && is_folder(request.input);
  const bool reals = std::any_of(p.variables().begin(), p.variables().end(),
                                 [](const leir::Variable& v) { return leir::is_real(v.type); });
  if (!request.errors.empty() || (request.check && reals && !request.f64)) {
    o.error_bounds = true;
    TRY_ASSIGN(exact, leir::interpret(p, inputs, o));
  }
  if (!request.errors.empty()) {
    std::map<std::string, NpyArray> bounds;
    for (const auto& [name, a] : exact) {
      Array e = leir::make_array(leir::Type::f64, a.shape);
      if (a.real()) e.reals = a.errors;
      bounds.emplace(name, to_npy(e, false));
    }
    if (Diagnostics bad = write_npz(request.errors, bounds); !bad.empty()) return bad;
  }
  if (request.check) {
    std::map<std::string, Array> want = exact;
    if (stored) {
      TRY_ASSIGN(const auto arrays, read_npz(request.input + "/outputs.npz"));
      want = arrays_of(arrays);
    }
    for (const std::string& name : run.order) {
      const auto w = want.find(name);
      if (w == want.end()) {
        if (stored) return diagnose(Code::leir_differs, name, "is not among the stored outputs");
        continue;
      }
      std::vector<double> bound;
      if (const auto e = exact.find(name); e != exact.end() && e->second.real()) bound = e->second.errors;
      // Stored outputs are rounded themselves.
      const double rtol = request.rtol > 0 ? request.rtol : request.f64 ? 1e-10 : 0;
      if (auto why = leir_differs(run.outputs.at(name), w->second, bound, rtol, request.atol))
        return diagnose(Code::leir_differs, name, *why);
    }
    if (request.via != "interpreter") {
      // D22: bit by bit, one NaN as good as another.
      TRY_ASSIGN(const auto interpreted, leir::interpret(p, inputs, storage_options(request)));
      for (const std::string& name : run.order) {
        const Array &got = run.outputs.at(name), &ours = interpreted.at(name);
        for (int64_t i = 0; i < ours.elements(); ++i) {
          const auto k = static_cast<size_t>(i);
          const bool same = ours.real() ? (std::isnan(got.reals[k]) && std::isnan(ours.reals[k])) ||
                                              std::memcmp(&got.reals[k], &ours.reals[k], sizeof(double)) == 0
                                        : got.integers[k] == ours.integers[k];
          if (!same)
            return diagnose(Code::leir_differs, name,
                            fmt::format("element {} is {} through {}, the interpreter gives {}", i,
                                        leir::element_text(got, i), request.via, leir::element_text(ours, i)));
        }
      }
    }
    run.verdict = stored ? "equal to the stored outputs" : "within the error bound of float64";
  }
  if (!request.outputs.empty()) {
    std::map<std::string, NpyArray> arrays;
    for (const auto& [name, a] : run.outputs) arrays.emplace(name, to_npy(a, request.f64));
    if (Diagnostics bad = write_npz(request.outputs, arrays); !bad.empty()) return bad;
  }
  return run;
}

}  // namespace cleave::driver
