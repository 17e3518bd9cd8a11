#include "driver/leir_verify.hpp"

#include <array>
#include <cmath>

#include "base/codes.hpp"
#include "base/number.hpp"
#include "base/rng.hpp"
#include "driver/leir_native.hpp"
#include "jit/leir.hpp"
#include "leir_eval/error_bound.hpp"
#include "runtime/timing.hpp"
#include "types/reals.hpp"

namespace cleave::driver {

using leir::Program;
using leir::Role;

namespace {

double error_of(const leir::Node* n, double unit, double value, int64_t operands, const double* x, const double* e) {
  const auto k = static_cast<size_t>(operands);
  return leir::operation_error(*n, unit, value, {x, k}, {e, k});
}

bool is_input(const leir::Variable& v) { return v.known() && v.role != Role::output; }

double milliseconds_since(double start) { return (runtime::wall_seconds() - start) * 1e3; }

// A program in one of its two forms, in storage precision or in float64 with bounds, with memory for a run.
struct Form {
  jit::LeirCode code;
  LeirBuffers memory;
};
struct Compiled {
  const Program& p;
  Form bounded;
  std::optional<Form> own;  // in storage precision, where that is not float64

  const LeirBuffers& stored() const { return own ? own->memory : bounded.memory; }
};

bool has_narrow_reals(const Program& p) {
  return std::any_of(p.variables().begin(), p.variables().end(),
                     [](const leir::Variable& v) { return leir::is_real(v.type) && v.type != leir::Type::f64; });
}

Result<Form> form(const Program& p, const jit::LeirOptions& o, const LeirBuffers* inputs) {
  TRY_ASSIGN(jit::LeirCode code, jit::compile_leir(p, o));
  TRY_ASSIGN(LeirBuffers memory, leir_buffers(p, o.bounds != nullptr, inputs));
  return Form{std::move(code), std::move(memory)};
}

// `original` lends its inputs.
Result<Compiled> compiled(const Program& p, const Compiled* original) {
  jit::LeirOptions o;
  o.quick = true;
  std::optional<Form> own;
  if (has_narrow_reals(p)) {
    TRY_ASSIGN(own, form(p, o, original ? &original->stored() : nullptr));
  }
  o.bounds = error_of;
  TRY_ASSIGN(Form bounded, form(p, o, original ? &original->bounded.memory : nullptr));
  return Compiled{p, std::move(bounded), std::move(own)};
}

Diagnostics run(Compiled& c) {
  for (Form* f : {c.own ? &*c.own : nullptr, &c.bounded}) {
    int64_t at[64] = {};
    if (!f) continue;
    if (const int code = f->code.run(f->memory.pointers.data(), at)) return {leir_failure(c.p, code, at)};
  }
  return {};
}

constexpr size_t kChunk = 1024;
using Chunk = std::array<double, kChunk>;

// Near enough to normal, from one draw of bits: the sum of four uniform numbers.
double bell(Rng& rng) {
  const uint64_t bits = rng.next();
  const auto sum = static_cast<double>((bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48));
  return (sum - 2 * 65535) / 65535 * 1.7320508;
}

// Fills both forms' inputs, alike.
void draw(Compiled& c, int number, uint64_t seed) {
  Rng rng(seed * 1000 + static_cast<uint64_t>(number));
  Chunk chunk;
  for (uint32_t v = 0; v < c.p.variables().size(); ++v) {
    const leir::Variable& var = c.p.variables()[v];
    if (!is_input(var)) continue;
    auto* narrow = static_cast<std::byte*>(c.stored().pointers[v]);
    auto* wide = static_cast<std::byte*>(c.bounded.memory.pointers[v]);
    const auto elements = static_cast<size_t>(var.elements()), width = static_cast<size_t>(leir::byte_size(var.type));
    if (!leir::is_real(var.type)) {
      for (size_t i = 0; i < elements; ++i) {
        const int64_t x =
            var.values ? rng.between(var.values->first, var.values->second) : static_cast<int64_t>(rng.below(2));
        leir::store_integer(var.type, narrow + i * width, x);
        leir::store_integer(var.type, wide + i * width, x);
      }
      continue;
    }
    for (size_t done = 0; done < elements; done += kChunk) {
      const size_t n = std::min(kChunk, elements - done);
      for (size_t i = 0; i < n; ++i) {
        chunk[i] = bell(rng);
        if (number % 3 == 1) chunk[i] = rng.below(8) ? 10 * chunk[i] : 0;
        if (number % 3 == 2) chunk[i] = 0.5 + std::fabs(chunk[i]);
      }
      const DType type = *leir::as_dtype(var.type);
      round_reals(type, {chunk.data(), n});
      if (c.own) store_reals(type, {chunk.data(), n}, narrow + done * width);
      store_reals(DType::f64, {chunk.data(), n}, wide + done * sizeof(double));
    }
  }
}

// What a run gave for one output, read a chunk at a time.
class Output {
 public:
  Output(const Compiled& c, uint32_t v)
      : type_(c.p.variables()[v].type),
        wide_type_(stored_type(c.p.variables()[v], true)),
        narrow_(static_cast<const std::byte*>(c.stored().pointers[v])),
        wide_(static_cast<const std::byte*>(c.bounded.memory.pointers[v])),
        bound_(static_cast<const double*>(c.bounded.memory.pointers[c.p.variables().size() + v])),
        size_(static_cast<size_t>(c.p.variables()[v].elements())) {}

  size_t size() const { return size_; }
  // `n` elements from `first` on: in storage precision, in float64, and how far they may be from what is exact.
  void stored(size_t first, size_t n, Chunk& out) const { load(type_, narrow_, first, n, out); }
  void exact(size_t first, size_t n, Chunk& out) const { load(wide_type_, wide_, first, n, out); }
  double bound(size_t i) const { return leir::is_real(type_) ? bound_[i] : 0; }

 private:
  static void load(leir::Type type, const std::byte* memory, size_t first, size_t n, Chunk& out) {
    const auto width = static_cast<size_t>(leir::byte_size(type));
    memory += first * width;
    if (leir::is_real(type)) return load_reals(*leir::as_dtype(type), memory, {out.data(), n});
    for (size_t i = 0; i < n; ++i) out[i] = static_cast<double>(leir::load_integer(type, memory + i * width));
  }
  leir::Type type_, wide_type_;
  const std::byte *narrow_, *wide_;
  const double* bound_;
  size_t size_;
};

bool same(double a, double b) { return a == b ? std::signbit(a) == std::signbit(b) : std::isnan(a) && std::isnan(b); }

// Judges one output of one draw; `finite` says whether it has an element that says anything.
class Judge {
 public:
  Judge(Verification& out, bool narrow) : out_(out), float64_(narrow ? 0x1p-20 : 1) {}

  void compare(const std::string& what, const Output& a, const Output& b, bool& finite) {
    Chunk want, exact, original, got;
    double scale = 0;
    for (size_t first = 0; first < a.size(); first += kChunk) {
      const size_t n = std::min(kChunk, a.size() - first);
      a.exact(first, n, want);
      for (size_t i = 0; i < n; ++i)
        if (const double x = std::fabs(want[i]); std::isfinite(x)) scale = std::max(scale, x), finite = true;
    }
    for (size_t first = 0; first < a.size(); first += kChunk) {
      const size_t n = std::min(kChunk, a.size() - first);
      a.exact(first, n, want);
      b.exact(first, n, exact);
      a.stored(first, n, original);
      b.stored(first, n, got);
      for (size_t i = 0; i < n; ++i) {
        const double allowed = a.bound(first + i) + b.bound(first + i);
        const bool identical = same(original[i], got[i]);
        out_.bitwise = out_.bitwise && identical;
        // Narrow types round far more than float64 does; the bounds hold for them.
        if (!agree(want[i], exact[i], allowed * float64_)) {
          const bool known = allowed <= 0.05 * scale || !std::isfinite(want[i]) || !std::isfinite(exact[i]);
          say(known ? Verdict::different : Verdict::inconclusive, [&] {
            return fmt::format("{}[{}] is {} in float64, that of the original is {}", what, first + i, shown(exact[i]),
                               shown(want[i]));
          });
        } else if (!identical && std::isfinite(want[i])) {
          const double error = std::fabs(got[i] - want[i]);
          if (!(allowed <= 0.05 * scale))
            say(Verdict::inconclusive, [&] {
              return fmt::format("{}[{}] may be off by {:.3g}, which is over 5 % of the scale {:.3g}", what, first + i,
                                 shown(allowed), shown(scale));
            });
          else if (!(error <= allowed))
            say(Verdict::different, [&] {
              return fmt::format("{}[{}] is {}, expected is {}, allowed is {:.3g}", what, first + i, shown(got[i]),
                                 shown(want[i]), shown(allowed));
            });
          else if (allowed > 0)
            out_.tightness = std::max(out_.tightness, error / allowed);
        }
      }
    }
  }
  // The first reason of the worse verdict counts; `why` makes it.
  template <class Why>
  void say(Verdict v, Why&& why) {
    if (out_.verdict == Verdict::different || out_.verdict == v) return;
    out_.verdict = v;
    out_.reason = why();
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
  for (const Program* p : {&original, &candidate})
    if (Diagnostics bad = leir::too_long(*p, options.max_steps); !bad.empty()) return bad;
  Verification out;
  double start = runtime::wall_seconds();
  TRY_ASSIGN(Compiled a, compiled(original, nullptr));
  TRY_ASSIGN(Compiled b, compiled(candidate, &a));
  out.compile_ms = milliseconds_since(start);
  start = runtime::wall_seconds();
  bool narrow = true;
  for (const leir::Variable& v : original.variables()) narrow = narrow && v.type != leir::Type::f64;
  Judge judge(out, narrow);
  std::map<std::string, uint32_t> place;  // of the candidate's outputs
  for (uint32_t v = 0; v < candidate.variables().size(); ++v) place[candidate.name(v)] = v;
  std::map<std::string, bool> finite;
  for (int i = 0; i < options.draws && out.verdict != Verdict::different; ++i) {
    draw(a, i, options.seed);
    for (Compiled* c : {&a, &b})
      if (Diagnostics bad = run(*c); !bad.empty()) return bad;
    for (uint32_t v = 0; v < original.variables().size(); ++v) {
      if (original.variables()[v].role != Role::output) continue;
      const std::string name = original.name(v);
      judge.compare(name, Output(a, v), Output(b, place.at(name)), finite[name]);
    }
  }
  for (const auto& [name, any] : finite)
    if (!any)
      judge.say(Verdict::inconclusive, [&] { return fmt::format("`{}` has no finite element in any draw", name); });
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
