#include "jit/leir.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "leir_eval/error_bound.hpp"
#include "support/leir_check.hpp"

using namespace cleave;

namespace {

TEST(JitLeir, ComputesBitwiseWhatTheInterpreterDoes) {
  ThreadPool pool(3);
  for (const std::string& text : cleave::testing::leir_samples()) {
    const leir::Program p = cleave::testing::leir_program(text);
    const auto code = jit::compile_leir(p), parts = jit::compile_leir(p, {.divide = true, .quick = true});
    ASSERT_TRUE(code.ok() && parts.ok()) << render(code.errors(), nullptr);
    for (uint64_t seed = 0; seed < 5; ++seed) {
      const auto inputs = cleave::testing::leir_data(p, seed);
      const auto want = leir::interpret(p, inputs);
      ASSERT_TRUE(want.ok()) << render(want.errors(), nullptr);
      cleave::testing::LeirBuffers buffers(p, inputs);
      int64_t at[64];
      ASSERT_EQ(code->run(buffers.pointers.data(), at), 0) << text;
      cleave::testing::expect_same(p, buffers, *want, text);
      cleave::testing::LeirBuffers divided(p, inputs);
      ASSERT_EQ(parts->run(divided.pointers.data(), at, pool), 0) << text;
      cleave::testing::expect_same(p, divided, *want, text);
    }
  }
}

#ifdef __x86_64__
__attribute__((target("xsave,avx"))) bool upper_halves_in_use(bool clear) {
  if (clear) _mm256_zeroupper();
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));  // what an xsave would have to store
  return low & 4;
}

// Code of the C library without AVX encodings takes ten times as long behind registers whose upper halves are in use. A
// conversion that reads 256 bits from memory leaves them so without naming a register of that size.
TEST(JitLeir, LeavesNoUpperHalvesOfVectorsInUse) {
  if (!__builtin_cpu_supports("avx512f") || upper_halves_in_use(true)) GTEST_SKIP() << "not to be seen here";
  const leir::Program p = cleave::testing::leir_program(
      "in A f32[8,4096]; out D f16[8,4096]; B^{8}_{tx=0}L^{4096}_{a=0}[D^{f16,g}_{tx,a}=A^{f32,g}_{tx,a};];");
  const auto code = jit::compile_leir(p);
  ASSERT_TRUE(code.ok()) << render(code.errors(), nullptr);
  cleave::testing::LeirBuffers buffers(p, cleave::testing::leir_data(p, 0));
  int64_t at[64];
  upper_halves_in_use(true);
  ASSERT_EQ(code->run(buffers.pointers.data(), at), 0);
  EXPECT_FALSE(upper_halves_in_use(false));
}
#endif

double error_of(const leir::Node* n, double unit, double value, int64_t k, const double* x, const double* e) {
  return leir::operation_error(*n, unit, value, {x, static_cast<size_t>(k)}, {e, static_cast<size_t>(k)});
}

// In float64, with the interpreter's own bounds.
TEST(JitLeir, KeepsTheRunningBoundsOfTheInterpreter) {
  for (const std::string& text : cleave::testing::leir_samples()) {
    const leir::Program p = cleave::testing::leir_program(text);
    const auto code = jit::compile_leir(p, {.bounds = error_of, .quick = true});
    ASSERT_TRUE(code.ok()) << render(code.errors(), nullptr);
    for (uint64_t seed = 0; seed < 3; ++seed) {
      const auto inputs = cleave::testing::leir_data(p, seed);
      const auto want = leir::interpret(p, inputs, {.error_bounds = true});
      ASSERT_TRUE(want.ok());
      std::vector<std::vector<double>> memory;
      for (const leir::Variable& v : p.variables()) {
        memory.emplace_back(static_cast<size_t>(v.elements()) + 1, NAN);
        const auto it = inputs.find(p.syntax().text(v.name));
        if (it == inputs.end()) continue;
        for (size_t i = 0; i < static_cast<size_t>(v.elements()); ++i)
          if (it->second.real())
            memory.back()[i] = it->second.reals[i];
          else
            leir::store_integer(
                v.type, reinterpret_cast<std::byte*>(memory.back().data()) + i * static_cast<size_t>(byte_size(v.type)),
                it->second.integers[i]);
      }
      const size_t n = memory.size();
      for (size_t v = 0; v < n; ++v) memory.emplace_back(memory[v].size(), NAN);
      std::vector<void*> pointers;
      for (auto& m : memory) pointers.push_back(m.data());
      int64_t at[64];
      ASSERT_EQ(code->run(pointers.data(), at), 0) << text;
      for (const auto& [name, w] : *want) {
        if (!w.real()) continue;
        const size_t v = *p.find(name);
        for (size_t i = 0; i < w.reals.size(); ++i) {
          if (std::isnan(w.reals[i])) {
            ASSERT_TRUE(std::isnan(memory[v][i])) << text;
          } else {
            ASSERT_EQ(memory[v][i], w.reals[i]) << text << name << i;
          }
          const double bound = memory[n + v][i];
          if (std::isfinite(w.errors[i])) {
            ASSERT_NEAR(bound, w.errors[i], 1e-12 * w.errors[i]) << text << name << i;
          } else {
            ASSERT_EQ(bound, w.errors[i]) << text << name << i;
          }
        }
      }
    }
  }
}

// Every function of one operand, where it is emitted in place: ordinary values to a few units in the last place of what
// goes into it, and the same infinities and NaN.
TEST(JitLeir, FunctionsInPlaceAreWhatTheInterpreterHas) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  std::vector<double> values = {0,   -0.0, 1,   -1,   0.3,  -0.3,  2.5,   -2.5,   5.9,  -5.9,  6,           -6,  8,
                                -8,  12,   -12, 19,   -19,  21,    -21,   40,     -40,  90,    -90,         200, -200,
                                1e4, -1e4, 1e9, -1e9, 3e37, -3e37, 1e-30, -1e-30, kInf, -kInf, std::nan("")};
  for (const char* type : {"f32", "f64"})
    for (const char* f :
         {"exp",     "log",   "sqrt",     "abs",       "erf",      "tanh",       "sign",  "square",      "relu",
          "exp2",    "expm1", "log2",     "log1p",     "rsqrt",    "reciprocal", "floor", "ceil",        "round",
          "sigmoid", "silu",  "gelu_erf", "gelu_tanh", "softplus", "mish",       "selu",  "hardsigmoid", "hardswish"}) {
      const leir::Program p = cleave::testing::leir_program(
          fmt::format("in A {0}[{2}];out C {0}[{2}];L^{{{2}}}_{{a=0}}[C^{{{0},g}}_{{a}}={1}(A^{{{0},g}}_{{a}});];",
                      type, f, values.size()));
      const auto code = jit::compile_leir(p, {.strict = false});
      ASSERT_TRUE(code.ok());
      auto inputs = cleave::testing::leir_data(p, 1);
      inputs.at("A").reals = values;
      const auto want = leir::interpret(p, inputs);
      ASSERT_TRUE(want.ok());
      cleave::testing::LeirBuffers buffers(p, inputs);
      int64_t at[64] = {};
      ASSERT_EQ(code->run(buffers.pointers.data(), at), 0);
      const bool single = type == std::string("f32");
      for (size_t i = 0; i < values.size(); ++i) {
        const double w = want->at("C").reals[i];
        const double g = single ? static_cast<double>(reinterpret_cast<const float*>(buffers.pointers[1])[i])
                                : reinterpret_cast<const double*>(buffers.pointers[1])[i];
        const std::string what = fmt::format("{}({}) in {}", f, values[i], type);
        if (!std::isfinite(w)) {
          EXPECT_TRUE(std::isnan(w) ? std::isnan(g) : g == w) << what << " is " << g << ", expected " << w;
          continue;
        }
        const double unit = single ? 0x1p-23 : 0x1p-52, least = single ? 1e-37 : 1e-305;
        // Tails have the condition of what goes into the exponential, up to a cube; what is below `least` may be 0.
        const double x = std::min(std::fabs(values[i]), 100.0), condition = std::max({1.0, x, x * x * x / 8});
        EXPECT_LE(std::fabs(g - w), 8 * unit * condition * std::fabs(w) + least)
            << what << " is " << g << ", expected " << w;
      }
    }
}

TEST(JitLeir, ChecksWhatIsNotProved) {
  const leir::Program p = cleave::testing::leir_program(
      "in A f32[4];in I i64[2];out C f32[2];L^{2}_{a=0}[C^{f32,g}_{a}=A^{f32,g}_{I^{i64,g}_{a}};];");
  const auto code = jit::compile_leir(p);
  ASSERT_TRUE(code.ok());
  auto inputs = cleave::testing::leir_data(p, 1);
  inputs.at("I").integers = {3, 4};
  cleave::testing::LeirBuffers buffers(p, inputs);
  int64_t at[64] = {};
  EXPECT_GT(code->run(buffers.pointers.data(), at), 0);
  EXPECT_EQ(at[0], 1);
  // Of several that fail at the same time, the first one in written order is reported.
  const leir::Program q = cleave::testing::leir_program(
      "in A f32[4];in I i64[40];out C f32[40];P^{40}_{a=0}[C^{f32,g}_{a}=A^{f32,g}_{I^{i64,g}_{a}};];");
  const auto divided = jit::compile_leir(q, {.divide = true});
  ASSERT_TRUE(divided.ok());
  inputs = cleave::testing::leir_data(q, 1);
  for (size_t k = 7; k < 40; ++k) inputs.at("I").integers[k] = 9;
  cleave::testing::LeirBuffers many(q, inputs);
  ThreadPool pool(4);
  EXPECT_GT(divided->run(many.pointers.data(), at, pool), 0);
  EXPECT_EQ(at[0], 7);
}

}  // namespace
