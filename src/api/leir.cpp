// LEIR programs for C++ (include/cleave/leir.hpp).
#include "cleave/leir.hpp"

#include <cstring>

#include "api/internal.hpp"
#include "base/codes.hpp"
#include "bridge/raise.hpp"
#include "driver/leir.hpp"
#include "driver/leir_bench.hpp"
#include "driver/leir_native.hpp"
#include "driver/leir_verify.hpp"
#include "eval/tensor.hpp"
#include "leir_emit/c.hpp"
#include "leir_emit/tir.hpp"

namespace cleave {

using api::guarded;
using api::internal;
using api::take;

struct LeirProgram::Impl {
  SourceText source;
  leir::Syntax syntax;
  Diagnostics messages;
  std::optional<leir::Program> program;
  bool failed = false;
  std::mutex mutex;  // checks and analyses add to the program's pool of symbolic integers

  const leir::Program& checked() {
    if (program) return *program;
    if (!failed) {
      leir::Checked c = leir::check(syntax);
      messages.insert(messages.end(), c.messages.begin(), c.messages.end());
      program = std::move(c.program);
      failed = !program;
    }
    if (failed) api::raise(errors(), &source);
    return *program;
  }
  Diagnostics errors() const {
    Diagnostics out;
    for (const Diagnostic& d : messages)
      if (info(d.code).severity == Severity::error) out.push_back(d);
    return out;
  }
};

namespace {

leir::Array array_of(const View& v) {
  const auto dtype = internal(v.type);
  std::vector<int64_t> strides = v.strides;
  if (strides.empty()) strides = oracle::dense_strides(v.shape);
  if (strides.size() != v.shape.size())
    api::raise(diagnose(Code::bad_call, fmt::format("{} strides for {} axes", strides.size(), v.shape.size())));
  if (!v.data && oracle::product(v.shape) > 0) api::raise(diagnose(Code::bad_call, "a tensor has no memory"));
  oracle::Tensor t = oracle::from_memory(dtype, v.shape, strides, v.data);
  leir::Array a;
  a.type = leir::from_dtype(dtype);
  a.shape = v.shape;
  a.reals = std::move(t.reals);
  a.integers = std::move(t.ints);
  return a;
}

Tensor tensor_of(const leir::Array& a) {
  const auto dtype = leir::as_dtype(a.type).value_or(DType::i64);
  Tensor out = zeros(api::external(dtype), a.shape);
  auto* at = static_cast<std::byte*>(out.data);
  for (int64_t i = 0; i < a.elements(); ++i, at += byte_size(dtype)) {
    if (a.real())
      store_real(dtype, at, a.reals[static_cast<size_t>(i)]);
    else
      store_integer(dtype, at, a.integers[static_cast<size_t>(i)]);
  }
  return out;
}

}  // namespace

LeirProgram LeirProgram::parse(const std::string& text, const LeirOptions& options) {
  return guarded([&] {
    auto impl = std::make_shared<Impl>();
    impl->source = {options.name, text};
    leir::Parsed parsed = leir::parse(impl->source, {.strict = options.strict, .paper = options.paper});
    impl->messages = std::move(parsed.messages);
    impl->syntax = std::move(parsed.syntax);
    if (const Diagnostics bad = impl->errors(); !bad.empty()) api::raise(bad, &impl->source);
    if (!options.dims.empty()) impl->syntax = take(leir::bind(impl->syntax, options.dims), &impl->source);
    return LeirProgram(std::move(impl));
  });
}

std::string LeirProgram::text(bool compact) const {
  return guarded([&] { return print(impl_->syntax, compact ? leir::Style::compact : leir::Style::canonical); });
}

void LeirProgram::check() const {
  guarded([&] {
    const std::lock_guard lock(impl_->mutex);
    impl_->checked();
  });
}

std::string LeirProgram::messages() const {
  return guarded([&] {
    const std::lock_guard lock(impl_->mutex);
    return render(impl_->messages, &impl_->source);
  });
}

std::string LeirProgram::key() const {
  return guarded([&] {
    const std::lock_guard lock(impl_->mutex);
    return leir::canonical_key(impl_->checked());
  });
}

std::vector<LeirVariable> LeirProgram::variables() const {
  return guarded([&] {
    const std::lock_guard lock(impl_->mutex);
    const leir::Program& p = impl_->checked();
    std::vector<LeirVariable> out;
    for (uint32_t v = 0; v < p.variables().size(); ++v) {
      const leir::Variable& var = p.variables()[v];
      out.push_back({p.name(v), var.role ? leir::text(*var.role) : "intermediate", leir::name(var.type), var.shape});
    }
    return out;
  });
}

std::map<std::string, Tensor> LeirProgram::run(const std::map<std::string, View>& inputs,
                                               const std::string& via) const {
  return guarded([&] {
    const std::lock_guard lock(impl_->mutex);
    const leir::Program& p = impl_->checked();
    if (via != "interpreter" && via != "jit" && via != "c" && via != "cuda")
      api::raise(diagnose(Code::bad_option, "via " + via, "is none of interpreter, jit, c, cuda"));
    std::map<std::string, leir::Array> arrays;
    for (const auto& [name, view] : inputs) {
      const auto v = p.find(name);
      if (!v || !p.variables()[*v].known()) api::raise(diagnose(Code::leir_input, name, "is no known variable"));
      arrays.emplace(name, array_of(view));
    }
    std::map<std::string, leir::Array> results;
    if (via == "interpreter") {
      results = take(leir::interpret(p, arrays), &impl_->source);
    } else {
      const driver::NativeLeir native = take(driver::compile_leir(p, via, true), &impl_->source);
      results = take(driver::run_native(p, native, arrays), &impl_->source);
    }
    std::map<std::string, Tensor> out;
    for (const auto& [name, a] : results) out.emplace(name, tensor_of(a));
    return out;
  });
}

std::string LeirProgram::lower(const std::string& to, const std::string& target, bool fast) const {
  return guarded([&] {
    const std::lock_guard lock(impl_->mutex);
    const leir::Program& p = impl_->checked();
    if (target != "cpu" && target != "cuda")
      api::raise(diagnose(Code::bad_option, "target " + target, "is none of cpu, cuda"));
    if (to == "c") return take(leir::emit_c(p, {.strict = !fast}), &impl_->source);
    if (to == "cuda") return take(leir::emit_cuda(p), &impl_->source);
    if (to == "tir") return take(leir::emit_tir(p, {.cuda = target == "cuda"}), &impl_->source);
    api::raise(diagnose(Code::bad_option, "to " + to, "is none of c, cuda, tir"));
  });
}

Graph LeirProgram::raise(const std::string& name) const {
  return guarded([&] {
    const std::lock_guard lock(impl_->mutex);
    return Graph(std::make_shared<const Graph::Impl>(take(bridge::raise(impl_->checked(), name), &impl_->source)));
  });
}

LeirTimes LeirProgram::bench(int pairs, uint64_t seed) const {
  return guarded([&] {
    const std::lock_guard lock(impl_->mutex);
    const leir::Program& p = impl_->checked();
    driver::LeirRequest request;
    request.seed = seed;
    const auto inputs = take(driver::leir_inputs(request, p), &impl_->source);
    const auto b = take(driver::bench_written(p, inputs, false, std::max(3, pairs)), &impl_->source);
    return LeirTimes{b.comparison.seconds_a, b.comparison.seconds_b, b.natives[0].compile_seconds,
                     b.natives[1].compile_seconds};
  });
}

LeirVerdict LeirProgram::verify(const LeirProgram& candidate, int draws, uint64_t seed) const {
  return guarded([&] {
    const std::lock_guard lock(impl_->mutex);
    const leir::Program& original = impl_->checked();
    leir::Checked c = leir::check(driver::with_header_of(impl_->syntax, candidate.impl_->syntax));
    if (!c.program) api::raise(c.messages, &candidate.impl_->source);
    const auto v =
        take(driver::verify_leir(original, *c.program, {.draws = std::max(1, draws), .seed = seed}), &impl_->source);
    return LeirVerdict{driver::name(v.verdict), v.bitwise, v.reason, v.compile_ms + v.run_ms};
  });
}

}  // namespace cleave
