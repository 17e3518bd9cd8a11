#include "driver/leir_verify.hpp"

#include <array>
#include <cmath>

#include "base/codes.hpp"
#include "base/rng.hpp"
#include "driver/leir_native.hpp"
#include "jit/leir.hpp"
#include "leir_eval/error_bound.hpp"
#include "runtime/timing.hpp"

namespace cleave::driver {

using leir::Array;
using leir::Program;
using leir::Role;

namespace {

double error_of(const leir::Node* n, double unit, double value, int64_t operands, const double* x, const double* e) {
  const auto k = static_cast<size_t>(operands);
  return leir::operation_error(*n, unit, value, {x, k}, {e, k});
}

bool is_input(const leir::Variable& v) { return v.known() && v.role != Role::output; }

double milliseconds_since(double start) { return (runtime::wall_seconds() - start) * 1e3; }

// A program in its two forms: in storage precision, and in float64 with bounds.
struct Compiled {
  const Program& p;
  jit::LeirCode stored, bounded;
};

Result<Compiled> compiled(const Program& p) {
  jit::LeirOptions o;
  o.quick = true;
  TRY_ASSIGN(jit::LeirCode stored, jit::compile_leir(p, o));
  o.bounds = error_of;
  TRY_ASSIGN(jit::LeirCode bounded, jit::compile_leir(p, o));
  return Compiled{p, std::move(stored), std::move(bounded)};
}

using Inputs = std::map<std::string, Array>;

// Near enough to normal, from one draw of bits: the sum of four uniform numbers.
double bell(Rng& rng) {
  const uint64_t bits = rng.next();
  const auto sum = static_cast<double>((bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48));
  return (sum - 2 * 65535) / 65535 * 1.7320508;
}

Inputs draw(const Program& p, int number, uint64_t seed) {
  Rng rng(seed * 1000 + static_cast<uint64_t>(number));
  Inputs out;
  for (const leir::Variable& v : p.variables()) {
    if (!is_input(v)) continue;
    Array a = leir::make_array(v.type, v.shape);
    for (double& x : a.reals) {
      x = bell(rng);
      if (number % 3 == 1) x = rng.below(8) ? 10 * x : 0;
      if (number % 3 == 2) x = 0.5 + std::fabs(x);
      x = leir::round_real(v.type, x);
    }
    for (int64_t& x : a.integers)
      x = v.values ? rng.between(v.values->first, v.values->second) : static_cast<int64_t>(rng.below(2));
    out.emplace(p.syntax().text(v.name), std::move(a));
  }
  return out;
}

// What a run gave for one output.
struct Output {
  Array stored, exact;
};
using Outputs = std::map<std::string, Output>;

// `given` keeps the memory of both forms for the next program.
Result<Outputs> outputs(const Compiled& c, const Inputs& inputs, std::array<std::optional<LeirBuffers>, 2>& given) {
  Outputs out;
  const auto& variables = c.p.variables();
  for (const bool bounds : {false, true}) {
    std::optional<LeirBuffers>& like = given[bounds];
    TRY_ASSIGN(LeirBuffers memory, leir_buffers(c.p, inputs, bounds, like ? &*like : nullptr));
    int64_t at[64] = {};
    if (const int code = (bounds ? c.bounded : c.stored).run(memory.pointers.data(), at))
      return leir_failure(c.p, code, at);
    for (uint32_t v = 0; v < variables.size(); ++v) {
      if (variables[v].role != Role::output) continue;
      Output& o = out[c.p.name(v)];
      (bounds ? o.exact : o.stored) = read_back(c.p, memory, v);
    }
    like = std::move(memory);
  }
  return out;
}

bool same(double a, double b) { return a == b ? std::signbit(a) == std::signbit(b) : std::isnan(a) && std::isnan(b); }

// Judges one output of one draw; `finite` says whether it has an element that says anything.
class Judge {
 public:
  Judge(Verification& out, bool narrow) : out_(out), float64_(narrow ? 0x1p-20 : 1) {}

  void compare(const std::string& what, const Output& a, const Output& b, bool& finite) {
    double scale = 0;
    const int64_t n = a.exact.elements();
    for (int64_t i = 0; i < n; ++i)
      if (const double x = std::fabs(element(a.exact, i)); std::isfinite(x)) scale = std::max(scale, x);
    for (int64_t i = 0; i < n; ++i) {
      const double want = element(a.exact, i), exact = element(b.exact, i), got = element(b.stored, i);
      const auto k = static_cast<size_t>(i);
      const double allowed = a.exact.errors[k] + b.exact.errors[k];
      finite = finite || std::isfinite(want);
      const bool identical = same(element(a.stored, i), got);
      out_.bitwise = out_.bitwise && identical;
      // Narrow types round far more than float64 does; the bounds hold for them.
      if (!agree(want, exact, allowed * float64_)) {
        const bool known = allowed <= 0.05 * scale || !std::isfinite(want) || !std::isfinite(exact);
        say(known ? Verdict::different : Verdict::inconclusive,
            fmt::format("{}[{}] is {} in float64, that of the original is {}", what, i, exact, want));
      } else if (!identical && std::isfinite(want)) {
        const double error = std::fabs(got - want);
        if (!(allowed <= 0.05 * scale))
          say(Verdict::inconclusive, fmt::format("{}[{}] may be off by {:.3g}, which is over 5 % of the scale {:.3g}",
                                                 what, i, allowed, scale));
        else if (!(error <= allowed))
          say(Verdict::different,
              fmt::format("{}[{}] is {}, expected is {}, allowed is {:.3g}", what, i, got, want, allowed));
        else if (allowed > 0)
          out_.tightness = std::max(out_.tightness, error / allowed);
      }
    }
  }
  void say(Verdict v, std::string why) {
    if (out_.verdict == Verdict::different || (out_.verdict == v && v == Verdict::inconclusive)) return;
    out_.verdict = v;
    out_.reason = std::move(why);
  }

 private:
  static bool agree(double a, double b, double allowed) {
    return a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) <= allowed;
  }
  Verification& out_;
  double float64_;
};

Diagnostics differing(const Program& a, const Program& b) {
  auto describe = [](const Program& p, const leir::Variable& v) {
    return fmt::format("{} {} {}[{}]", leir::text(*v.role), p.syntax().text(v.name), leir::name(v.type),
                       fmt::join(v.shape, ","));
  };
  std::vector<std::string> left, right;
  for (const leir::Variable& v : a.variables())
    if (v.known()) left.push_back(describe(a, v));
  for (const leir::Variable& v : b.variables())
    if (v.known()) right.push_back(describe(b, v));
  if (left == right) return {};
  return {diagnose(Code::leir_header, "candidate",
                   fmt::format("has the known variables {}; those of the original are {}", fmt::join(right, ", "),
                               fmt::join(left, ", ")))};
}

}  // namespace

const char* name(Verdict v) {
  constexpr const char* kNames[] = {"equal", "different", "inconclusive"};
  return kNames[static_cast<size_t>(v)];
}

Result<Verification> verify_leir(const Program& original, const Program& candidate, const VerifyOptions& options) {
  if (Diagnostics bad = differing(original, candidate); !bad.empty()) return bad;
  Verification out;
  double start = runtime::wall_seconds();
  TRY_ASSIGN(const Compiled a, compiled(original));
  TRY_ASSIGN(const Compiled b, compiled(candidate));
  out.compile_ms = milliseconds_since(start);
  start = runtime::wall_seconds();
  bool narrow = true;
  for (const leir::Variable& v : original.variables()) narrow = narrow && v.type != leir::Type::f64;
  Judge judge(out, narrow);
  std::map<std::string, bool> finite;
  for (int i = 0; i < options.draws && out.verdict != Verdict::different; ++i) {
    const Inputs inputs = draw(original, i, options.seed);
    std::array<std::optional<LeirBuffers>, 2> given;
    TRY_ASSIGN(const Outputs want, outputs(a, inputs, given));
    TRY_ASSIGN(const Outputs got, outputs(b, inputs, given));
    for (const auto& [name, o] : want) judge.compare(name, o, got.at(name), finite[name]);
  }
  for (const auto& [name, any] : finite)
    if (!any) judge.say(Verdict::inconclusive, fmt::format("`{}` has no finite element in any draw", name));
  out.run_ms = milliseconds_since(start);
  return out;
}

leir::Syntax with_header_of(const leir::Syntax& original, leir::Syntax candidate) {
  if (!candidate.header.empty()) return candidate;
  for (leir::HeaderEntry h : original.header) {
    h.name = candidate.intern(original.text(h.name));
    for (leir::Dim& d : h.dims)
      if (d.name != leir::kNone) d.name = candidate.intern(original.text(d.name));
    candidate.header.push_back(std::move(h));
  }
  return candidate;
}

}  // namespace cleave::driver
