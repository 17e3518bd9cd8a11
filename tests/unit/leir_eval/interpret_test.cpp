#include "leir_eval/interpret.hpp"
#include "base/codes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.hpp"

using namespace cleave;
using namespace cleave::leir;

namespace {

Program program(const std::string& text) {
  Parsed p = parse(SourceText{"p.leir", text});
  EXPECT_TRUE(p.ok()) << render(p.messages, nullptr);
  Checked c = check(std::move(p.syntax));
  EXPECT_TRUE(c.program) << text << "\n" << render(c.messages, nullptr);
  return std::move(*c.program);
}
Array reals(Type type, std::vector<int64_t> shape, std::vector<double> v) {
  Array a = make_array(type, std::move(shape));
  a.reals = std::move(v);
  return a;
}
Array ints(Type type, std::vector<int64_t> shape, std::vector<int64_t> v) {
  Array a = make_array(type, std::move(shape));
  a.integers = std::move(v);
  return a;
}
// The output C of a program on inputs.
std::vector<double> run(const std::string& text, const std::map<std::string, Array>& in, InterpretOptions o = {}) {
  const auto r = interpret(program(text), in, o);
  EXPECT_TRUE(r.ok()) << render(r.errors(), nullptr);
  std::vector<double> out;
  if (r.ok())
    for (int64_t i = 0; i < r->at("C").elements(); ++i) out.push_back(element(r->at("C"), i));
  return out;
}
const Array kFour = reals(Type::f32, {4}, {1, 2, 3, 4});
using V = std::vector<double>;

TEST(Interpret, NanHasNoSignInTexts) {
  const Array a = reals(Type::f32, {2}, {std::copysign(NAN, -1.0), -1.5});
  EXPECT_EQ(element_text(a, 0), "nan");
  EXPECT_EQ(element_text(a, 0, 3), "nan");
  EXPECT_EQ(element_text(a, 1), "-1.5");
}

TEST(Interpret, RunsPointByPoint) {
  EXPECT_EQ(run("in A f32[4];out C f32[4];L^{4}_{a=0}[C^{f32,g}_{a}=A^{f32,g}_{3-a}*2+a;];", {{"A", kFour}}),
            (V{8, 7, 6, 5}));
  EXPECT_EQ(run("in A f32[4];out C f32[1];B^{1}_{tx=0}L^{4}_{a=0}[C^{f32,g}_{tx}=A^{f32,g}_{a}+C^{f32,g}_{tx};];",
                {{"A", kFour}}),
            (V{10}));
  EXPECT_EQ(run("in A f32[4];out C f32[4];L^{4}_{a=0}L^{a+1}_{c=0}[C^{f32,g}_{a}=C^{f32,g}_{a}*A^{f32,g}_{c};];",
                {{"A", kFour}}),
            (V{1, 2, 6, 24}));
  // The first iteration has an empty inner loop.
  EXPECT_EQ(run("in A f32[4];out C "
                "f32[4];L^{4}_{a=0}[C^{f32,g}_{a}=0;L^{a}_{c=0}[C^{f32,g}_{a}=C^{f32,g}_{a}+A^{f32,g}_{c};];];",
                {{"A", kFour}}),
            (V{0, 1, 3, 6}));
}

TEST(Interpret, StartsAccumulatorsByTheirRule) {
  // 2.4: an idle loop repeats the first value, so the sum is not taken five times.
  EXPECT_EQ(run("in A f32[4];out C f32[4];B^{4}_{tx=0}L^{5}_{d=0}[C^{f32,g}_{tx}=C^{f32,g}_{tx}+A^{f32,g}_{tx}*2;];",
                {{"A", kFour}}),
            (V{2, 4, 6, 8}));
  // A later nest goes on from what is stored.
  EXPECT_EQ(run("in A f32[4];out C "
                "f32[1];L^{1}_{c=0}L^{4}_{a=0}[C^{f32,g}_{c}=C^{f32,g}_{c}+A^{f32,g}_{a};];L^{1}_{c=0}[C^{f32,g}_{c}=C^"
                "{f32,g}_{c}+5;];",
                {{"A", kFour}}),
            (V{15}));
  EXPECT_EQ(
      run("in A f32[4];out C f32[];B^{1}_{tx=0}L^{4}_{a=0}[C^{f32,g}=max(A^{f32,g}_{a},C^{f32,g});];", {{"A", kFour}}),
      (V{4}));
  EXPECT_EQ(run("in I i32[3];out C i32[];B^{1}_{tx=0}L^{3}_{a=0}[C^{i32,g}=max(C^{i32,g},I^{i32,g}_{a});];",
                {{"I", ints(Type::i32, {3}, {-7, -3, -9})}}),
            (V{-3}));
}

TEST(Interpret, TakesBranchesLazily) {
  EXPECT_EQ(run("in A f32[4];out C f32[6];L^{6}_{a=0}[C^{f32,g}_{a}=if_then_else(1<=a<5,A^{f32,g}_{a-1},0);];",
                {{"A", kFour}}),
            (V{0, 1, 2, 3, 4, 0}));
  EXPECT_EQ(run("in A f32[4];out C f32[6];L^{6}_{a=0}[C^{f32,g}_{a}=a>=1&a<5&A^{f32,g}_{a-1}>2;];", {{"A", kFour}}),
            (V{0, 0, 0, 1, 1, 0}));
  EXPECT_EQ(run("in A f32[4];out C f32[6];L^{6}_{a=0}[C^{f32,g}_{a}=a<1|a>=5|A^{f32,g}_{a-1}>2;];", {{"A", kFour}}),
            (V{1, 0, 0, 1, 1, 1}));
}

TEST(Interpret, RoundsAtEveryStore) {
  // 4,096 ones summed in f16 stop at 2,048 (D15).
  const Array ones = reals(Type::f16, {4096}, V(4096, 1.0));
  const std::string text = "in A f16[4096];out C f16[];B^{1}_{tx=0}L^{4096}_{a=0}[C^{f16,g}=C^{f16,g}+A^{f16,g}_{a};];";
  EXPECT_EQ(run(text, {{"A", ones}}), (V{2048}));
  EXPECT_EQ(run(text, {{"A", ones}}, {.precision = Precision::f64}), (V{4096}));
  EXPECT_EQ(run("in A f32[4];out C f32[4];L^{4}_{a=0}[C^{f32,g}_{a}=0.1*A^{f32,g}_{a};];", {{"A", kFour}})[0],
            static_cast<double>(0.1f));
  EXPECT_EQ(run("in A f32[2];out C i8[2];L^{2}_{a=0}[C^{i8,g}_{a}=A^{f32,g}_{a};];",
                {{"A", reals(Type::f32, {2}, {300.7, -1.9})}}),
            (V{127, -1}));
  EXPECT_EQ(run("in A f32[2];out C i64[2];L^{2}_{a=0}[C^{i64,g}_{a}=A^{f32,g}_{a};];",
                {{"A", reals(Type::f32, {2}, {NAN, 2.9})}}),
            (V{0, 2}));
}

TEST(Interpret, ComputesLiteralsAndIntegersExactly) {
  const std::string h = "in A f32[4];out C f64[1];L^{1}_{c=0}[C^{f64,g}_{c}=";
  auto value = [&](const std::string& e) { return run(h + e + ";];", {{"A", kFour}})[0]; };
  EXPECT_EQ(value("1/2"), 0.5);
  EXPECT_EQ(value("(0-7)//2"), -4);
  EXPECT_EQ(value("(0-7)%3"), 2);
  EXPECT_EQ(value("2**(1/2)"), std::sqrt(2.0));
  EXPECT_EQ(value("(c+9)/2"), 4.5);
  EXPECT_EQ(value("A^{f32,g}_{1}**3"), 8);
  EXPECT_EQ(value("A^{f32,g}_{1}**0.5"), static_cast<double>(std::sqrt(2.0f)));
  EXPECT_EQ(value("A^{f32,g}_{1}**(-1)"), 0.5);
  EXPECT_EQ(value("max(A^{f32,g}_{0}*inf,1)"), INFINITY);
  EXPECT_TRUE(std::isnan(value("max(A^{f32,g}_{0}*inf-inf,1)")));
  EXPECT_EQ(value("(inf-inf==inf-inf)+2*(c!=c+1)"), 2);
  EXPECT_TRUE(std::signbit(value("min(-0.0,0*A^{f32,g}_{0})")));
  EXPECT_FALSE(std::signbit(value("max(-0.0,0*A^{f32,g}_{0})")));
}

TEST(Interpret, ReportsWhatTheRunFinds) {
  const auto p = program("in A f32[4];in I i64[2];out C f32[2];L^{2}_{a=0}[C^{f32,g}_{a}=A^{f32,g}_{I^{i64,g}_{a}};];");
  const auto r = interpret(p, {{"A", kFour}, {"I", ints(Type::i64, {2}, {3, 4})}});
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.errors()[0].code, Code::leir_out_of_bounds);
  EXPECT_THAT(r.errors()[0].message(), testing::HasSubstr("subscript 1 is 4, the extent is 4, at a=1"));
  EXPECT_EQ(interpret(p, {{"A", kFour}}).errors()[0].code, Code::leir_input);
  EXPECT_EQ(interpret(p, {{"A", kFour}, {"I", ints(Type::i64, {1}, {3})}}).errors()[0].code, Code::leir_input);
  const auto q = program("in I i64[2];out C i64[2];L^{2}_{a=0}[C^{i64,g}_{a}=7//I^{i64,g}_{a};];");
  EXPECT_EQ(interpret(q, {{"I", ints(Type::i64, {2}, {1, 0})}}).errors()[0].code, Code::leir_divisor);
  EXPECT_EQ(interpret(q, {{"I", ints(Type::i64, {2}, {1, 1})}}, {.max_steps = 3}).errors()[0].code, Code::leir_work);
  EXPECT_EQ(interpret(q, {{"I", ints(Type::i64, {2}, {1, 1})}}, {.max_bytes = 3}).errors()[0].code,
            Code::leir_too_large);
}

TEST(Interpret, BoundsTheErrorOfItsOwnRounding) {
  // Sums, products and an exponential, in f32 and f16: the run in storage precision is within the bound of the exact
  // one.
  Rng rng(5);
  for (const char* type : {"f32", "f16", "bf16"}) {
    std::string text =
        "in A T[40];in E T[40];out C "
        "T[];B^{1}_{tx=0}L^{40}_{a=0}[D^{f32,g}=D^{f32,g}+exp(A^{T,g}_{a})*E^{T,g}_{a}/"
        "(2+abs(E^{T,g}_{a}));];B^{1}_{tx=0}[C^{T,g}=D^{f32,g};];";
    for (size_t i = text.find("T"); i != std::string::npos; i = text.find("T", i + 1)) text.replace(i, 1, type);
    const Program p = program(text);
    for (int k = 0; k < 20; ++k) {
      Array a = make_array(*type_from_name(type), {40}), e = a;
      for (int i = 0; i < 40; ++i) {
        a.reals[static_cast<size_t>(i)] = round_real(a.type, rng.normal());
        e.reals[static_cast<size_t>(i)] = round_real(a.type, rng.normal());
      }
      const auto got = interpret(p, {{"A", a}, {"E", e}});
      const auto exact = interpret(p, {{"A", a}, {"E", e}}, {.error_bounds = true});
      ASSERT_TRUE(got.ok() && exact.ok());
      const double error = std::fabs(got->at("C").reals[0] - exact->at("C").reals[0]);
      EXPECT_LE(error, exact->at("C").errors[0]);
      EXPECT_LT(exact->at("C").errors[0], 0.05 * 40);
      EXPECT_GT(exact->at("C").errors[0], 0);
    }
  }
}

TEST(Interpret, BoundsExtremaByWhatCanBeOne) {
  // A masked score is far away and far off, which is nothing to the maximum.
  const Program p = program(
      "in A f32[4];out C f32[4];L^{4}_{a=0}[D^{f32,g}_{a}=if_then_else(a>2,-1e9/3,A^{f32,g}_{a});];"
      "L^{1}_{c=0}L^{4}_{a=0}[E^{f32,g}_{c}=max(E^{f32,g}_{c},D^{f32,g}_{a});];"
      "L^{4}_{a=0}[C^{f32,g}_{a}=exp(D^{f32,g}_{a}-E^{f32,g}_{0});];");
  const auto exact = interpret(p, {{"A", kFour}}, {.error_bounds = true});
  ASSERT_TRUE(exact.ok());
  for (double e : exact->at("C").errors) EXPECT_LT(e, 1e-5);
  // Both may be the maximum.
  const Program q = program(
      "in A f32[4];out C f32[1];L^{1}_{a=0}[D^{f32,g}=A^{f32,g}_{3}/3;E^{f32,g}=D^{f32,g}*1.00000001;"
      "C^{f32,g}_{a}=max(D^{f32,g},E^{f32,g});];");
  const auto near = interpret(q, {{"A", kFour}}, {.error_bounds = true});
  ASSERT_TRUE(near.ok());
  EXPECT_GT(near->at("C").errors[0], 1e-7);
}

TEST(Interpret, HasNoLimitOnNesting) {
  std::string e = "A^{f32,g}_{a}";
  for (int i = 0; i < 20000; ++i) e = "-(" + e + ")";
  std::string text = "in A f32[4];out C f32[4];L^{4}_{a=0}[C^{f32,g}_{a}=" + e + ";];";
  EXPECT_EQ(run(text, {{"A", kFour}}), (V{1, 2, 3, 4}));
}

}  // namespace
