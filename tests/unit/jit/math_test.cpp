// The polynomials of vec/expand_math on the machine, against float64.
#include <cmath>
#include <limits>

#include "base/rng.hpp"
#include "support.hpp"
#include "vec/expand_math.hpp"

namespace cleave {
namespace {

using vec::Value;

double ulp_of(double exact) {
  const double a = std::max(std::fabs(exact), 0x1p-126);
  return std::ldexp(1.0, std::ilogb(a) - 23);
}

// Dense in the exponent over all of f32, dense around 0 and the usual range, and the special values.
std::vector<float> samples() {
  std::vector<float> x = {0.0f,       -0.0f,    INFINITY, -INFINITY,    NAN,        1.0f,        -1.0f,
                          88.72283f,  88.7229f, 88.0f,    -87.33654f,   -87.4f,     -103.0f,     -104.0f,
                          127.99999f, 128.0f,   -126.0f,  -126.1f,      -149.0f,    0x1p-126f,   0x1p-130f,
                          -0x1p-140f, 3.4e38f,  -3.4e38f, -0.99999994f, 9.02f,      9.1f,        0.99f,
                          1.01f,      4.0f,     5.5f,     7.8f,         3.1415927f, 1.5707964f,  30000.0f,
                          30001.0f,   1e10f,    -20.0f,   -20.1f,       20.0f,      0.70710677f, 1.4142135f};
  Rng rng(3);
  for (int e = -126; e < 128; ++e)
    for (int k = 0; k < 12; ++k) {
      const float v = std::ldexp(static_cast<float>(1 + rng.uniform()), e);
      x.push_back(v);
      x.push_back(-v);
    }
  for (int k = 0; k < 60000; ++k) x.push_back(static_cast<float>(20 * (rng.uniform() - 0.5)));
  for (int k = 0; k < 20000; ++k) x.push_back(static_cast<float>(220 * (rng.uniform() - 0.5)));
  for (int k = 0; k < 4000; ++k) x.push_back(static_cast<float>(60000 * (rng.uniform() - 0.5)));
  while (x.size() % 64) x.push_back(0.5f);
  return x;
}

// Runs y = fn(x, 0.7) over all samples. float64 decides.
void check(Fn fn, const jit::Target& target) {
  std::vector<float> x = samples();
  if (!target.runs_here()) {  // emulated, slowly: one of four where they are dense
    size_t kept = 4096;
    for (size_t i = kept; i < x.size(); i += 4) x[kept++] = x[i];
    x.resize(kept / 64 * 64);
  }
  std::vector<float> y(x.size(), -7.0f);
  vec::Module module;
  module.functions.emplace_back("map");
  vec::Builder b(module.functions.back());
  const Value from = b.tensor_data(0), to = b.tensor_data(1);
  const int lanes = target.vector_bytes / 4;
  b.for_each(b.i64(0), b.i64(static_cast<int64_t>(x.size())), b.i64(lanes), [&](Value i) {
    const Value v = b.load(b.element(from, i, DType::f32), DType::f32, lanes);
    std::vector<Value> operands = {v};
    if (info(fn).arity == 2) operands.push_back(b.real(b.type(v), 0.7f));
    b.store(b.apply(fn, operands), b.element(to, i, DType::f32), DType::f32);
  });
  jit::Options options;
  options.target = target;
  testing::run_compiled(module, options, {testing::bytes_of(x), testing::bytes_of(y)});

  const vec::ErrorBound bound = vec::max_error(fn, DType::f32);
  double worst = 0, worst_x = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double operands[] = {static_cast<double>(x[i]), static_cast<double>(0.7f)};
    const double exact = eval(fn, std::span<const double>(operands, static_cast<size_t>(info(fn).arity)));
    const double rounded = static_cast<double>(static_cast<float>(exact));
    const double got = static_cast<double>(y[i]);
    if (std::isnan(exact)) {
      ASSERT_TRUE(std::isnan(got)) << info(fn).name << "(" << x[i] << ") = " << got << ", not NaN";
      continue;
    }
    ASSERT_FALSE(std::isnan(got)) << info(fn).name << "(" << x[i] << ") is NaN, not " << exact;
    if (got == rounded) continue;
    if (std::isinf(rounded) && got > 0 && rounded > 0 && got > 0x1.fffff0p127) continue;  // just below overflow
    if (std::fabs(exact) < 0x1p-126 && got == 0) continue;                                // flushed
    ASSERT_FALSE(std::isinf(x[i])) << info(fn).name << "(" << x[i] << ") = " << got << ", not " << exact;
    const double error =
        std::max(0.0, std::fabs(got - exact) - bound.absolute * std::fabs(operands[0])) / ulp_of(exact);
    if (!(error <= worst)) worst = error, worst_x = operands[0];
  }
  EXPECT_LE(worst, bound.ulp) << info(fn).name << " at " << worst_x << " on " << name(target.isa);
  ::testing::Test::RecordProperty(fmt::format("{}_{}", name(target.isa), info(fn).name),
                                  fmt::format("{:.2f} ulp", worst));
}

TEST(Jit, ScalarFunctionsStayWithinTheirStatedErrors) {
  for (const jit::Target& target : testing::all_targets_and_arm64()) {
    if (target.isa == Isa::generic) continue;  // no fma instruction: the same bits, very slowly
    for (const FnInfo& f : all_fns())
      if (f.rule == FnRule::real && f.arity <= 2 && f.fn != Fn::quot0) {
        check(f.fn, target);
        if (HasFatalFailure()) return;
      }
  }
}

TEST(Vec, ExpansionLeavesNoTranscendentalFunctionOnF32) {
  for (const Fn fn : {Fn::exp, Fn::log, Fn::tanh, Fn::erf, Fn::silu, Fn::gelu_erf, Fn::softplus, Fn::mish, Fn::selu}) {
    vec::Module module;
    module.functions.emplace_back("f");
    vec::Builder b(module.functions.back());
    b.store(b.apply(fn, {b.load(b.scratch(), DType::f32, 8)}), b.scratch(), DType::f32);
    const vec::Module expanded = vec::expand_math(module);
    EXPECT_TRUE(vec::verify(expanded).empty());
    EXPECT_EQ(print(expanded).find(fmt::format("apply.{} ", info(fn).name)), std::string::npos) << info(fn).name;
  }
}

}  // namespace
}  // namespace cleave
