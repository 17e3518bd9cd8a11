// The interpreter of tile programs: what statements mean, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "eval/tensor.hpp"
#include "eval/tile_eval.hpp"

namespace cleave::oracle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kInf = std::numeric_limits<double>::infinity();

// Runs a program on these inputs; outputs start as NaN or ones.
struct Ran {
  std::vector<std::vector<std::byte>> bytes;
  std::vector<Tensor> outputs;
  std::string errors;
};

Ran run_text(const std::string& text, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
             TileOptions options = {}, std::vector<double> scalars = {}) {
  Ran r;
  const SourceText source{"test.tile", text};
  const auto p = tile::parse(source);
  EXPECT_TRUE(p.ok()) << (p.ok() ? "" : render(p.errors(), &source));
  if (!p.ok()) return r;
  for (const Tensor& t : inputs) r.bytes.push_back(to_dense(t));
  for (Tensor t : outputs) {
    std::fill(t.reals.begin(), t.reals.end(), std::nan(""));
    std::fill(t.ints.begin(), t.ints.end(), 1);
    r.bytes.push_back(to_dense(t));
  }
  TileArguments a;
  for (size_t i = 0; i < inputs.size(); ++i) a.inputs.emplace_back(r.bytes[i]);
  for (size_t i = 0; i < outputs.size(); ++i) a.outputs.emplace_back(r.bytes[inputs.size() + i]);
  a.scalars = std::move(scalars);
  const Diagnostics bad = try_run(*p, a, options);
  if (!bad.empty()) r.errors = render(bad, nullptr);
  for (size_t i = 0; i < outputs.size(); ++i)
    r.outputs.push_back(from_dense(outputs[i].dtype, outputs[i].extents, r.bytes[inputs.size() + i].data()));
  return r;
}

Tensor numbers(std::vector<int64_t> extents, std::vector<double> values) {
  return tensor(DType::f32, std::move(extents), std::move(values));
}
Tensor shape(DType d, std::vector<int64_t> extents) { return zeros(d, std::move(extents)); }

TEST(TileEval, NestsAccumulateAndFreshOnesStartFromTheIdentity) {
  const Ran r =
      run_text(R"(tile t { input x: f32[2, 3] argument 0
    output a: f32[2] argument 0  output b: f32[2] argument 1  output c: f32[2] argument 2  output d: bool[2] argument 3
    kernel k { nest (i < 2, j < 3) {
      a[i] fresh += x[i, j]
      b[i] fresh max= x[i, j]
      c[i] fresh *= x[i, j]
      d[i] fresh &= gt(x[i, j], 0.0:f32)
    } nest (i < 2) { a[i] += 100.0:f32 } } })",
               {numbers({2, 3}, {1, 2, 3, -4, 5, 6})},
               {shape(DType::f32, {2}), shape(DType::f32, {2}), shape(DType::f32, {2}), shape(DType::boolean, {2})});
  EXPECT_EQ(r.errors, "");
  EXPECT_THAT(r.outputs[0].reals, ElementsAre(106, 107));
  EXPECT_THAT(r.outputs[1].reals, ElementsAre(3, 6));
  EXPECT_THAT(r.outputs[2].reals, ElementsAre(6, -120));
  EXPECT_THAT(r.outputs[3].ints, ElementsAre(1, 0));
}

TEST(TileEval, AFreshReductionOverNothingIsTheIdentity) {
  const Ran r =
      run_text(R"(tile t { input x: f32[2, 0] argument 0 output a: f32[2] argument 0 output b: f32[2] argument 1
    kernel k { nest (i < 2, j < 0) { a[i] fresh += 1.0:f32  b[i] fresh max= 1.0:f32 } } })",
               {numbers({2, 0}, {})}, {shape(DType::f32, {2}), shape(DType::f32, {2})});
  EXPECT_THAT(r.outputs[0].reals, ElementsAre(0, 0));
  EXPECT_THAT(r.outputs[1].reals, ElementsAre(-kInf, -kInf));
}

TEST(TileEval, StoresOfAPointFollowItsExpressionsInOrder) {
  const Ran r = run_text(
      "tile t { output a: f32[2] argument 0 output b: f32[2] argument 1 kernel k { nest (i < 2) { a[i] = 1.0:f32 b[i] "
      "= 2.0:f32 }"
      " nest (i < 2) { a[i] = b[i] b[i] = a[i] } } }",
      {}, {shape(DType::f32, {2}), shape(DType::f32, {2})});
  EXPECT_THAT(r.outputs[0].reals, ElementsAre(2, 2));
  EXPECT_THAT(r.outputs[1].reals, ElementsAre(1, 1));
}

TEST(TileEval, SequentialNestsRunInRowMajorOrder) {
  const Ran r = run_text(
      "tile t { output a: f32[2, 3] argument 0 scratch n: f32 kernel k { nest () { n[] = 0.0:f32 }"
      " nest sequential (i < 2, j < 3) { a[i, j] = n[] n[] += 1.0:f32 } } }",
      {}, {shape(DType::f32, {2, 3})});
  EXPECT_THAT(r.outputs[0].reals, ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(TileEval, ProductsStartFromNothingFromCOrFromScaledC) {
  const std::string text = R"(tile t { input A: f32[2, 3] argument 0 input B: f32[3, 2] argument 1 scratch s: f32[2]
    output c: f32[2, 2] argument 0 output d: f32[2, 2] argument 1 output e: f32[2, 2] argument 2
    kernel k {
      nest (i < 2) { s[i] = cast(index(i), f32) }
      nest (i < 2, j < 2) { d[i, j] = 1000.0:f32 e[i, j] = 1000.0:f32 }
      matmul c[0, 0] (0, 1) = A[0, 0] (0, 1) * B[0, 0] (0, 1) size 2, 2, 3
      matmul d[0, 0] (0, 1) += A[0, 0] (0, 1) * B[0, 0] (0, 1) size 2, 2, 3
      matmul e[0, 0] (0, 1) += A[0, 0] (0, 1) * B[0, 0] (0, 1) size 2, 2, 3 scale s[0]
    } })";
  const Ran r = run_text(text, {numbers({2, 3}, {1, 2, 3, 4, 5, 6}), numbers({3, 2}, {1, 0, 0, 1, 1, 1})},
                         {shape(DType::f32, {2, 2}), shape(DType::f32, {2, 2}), shape(DType::f32, {2, 2})});
  EXPECT_THAT(r.outputs[0].reals, ElementsAre(4, 5, 10, 11));
  EXPECT_THAT(r.outputs[1].reals, ElementsAre(1004, 1005, 1010, 1011));
  EXPECT_THAT(r.outputs[2].reals, ElementsAre(4, 5, 1010, 1011));
}

TEST(TileEval, RoundsToTheComputeTypeUnlessToldOtherwise) {
  const std::string text =
      "tile t { input x: f32[1] argument 0 output y: f64[1] argument 0 kernel k { nest (i < 1) { y[i] = "
      "cast(sub(add(x[i], 1.0:f32), 1.0:f32), f64) } } }";
  TileOptions exact;
  exact.round = false;
  const std::vector<Tensor> in = {numbers({1}, {0x1p-30})}, out = {shape(DType::f64, {1})};
  EXPECT_EQ(run_text(text, in, out).outputs[0].reals[0], 0);
  EXPECT_EQ(run_text(text, in, out, exact).outputs[0].reals[0], 0x1p-30);
}

TEST(TileEval, ATaskFindsItsScratchDirty) {
  const Ran r = run_text(
      "tile t { output y: f32[3] argument 0 scratch s: f32[3] kernel k { parallel i in 0..3 { nest (j < 3) { y[j] = "
      "s[j] } nest () { s[i] = 1.0:f32 } } } }",
      {}, {shape(DType::f32, {3})});
  for (double v : r.outputs[0].reals) EXPECT_TRUE(std::isnan(v));
}

TEST(TileEval, OnceKernelsRunFirst) {
  const Ran r = run_text(
      "tile t { packed p: f32[4] output y: f32[4] argument 0 kernel a once { nest (i < 4) { p[i] = cast(index(3*i), "
      "f32) } } kernel b { nest (i < 4) { y[i] = p[i] } } }",
      {}, {shape(DType::f32, {4})});
  EXPECT_THAT(r.outputs[0].reals, ElementsAre(0, 3, 6, 9));
}

TEST(TileEval, RefusesAccessesThatLeaveTheirBuffers) {
  const std::string text =
      "tile t { input x: f32[3] argument 0 input at: i64[2] argument 1 output y: f32[2] argument 0 kernel k { nest (i "
      "< 2) { y[i] = x[1 @ at[i]] } } }";
  auto with = [&](double index) {
    return run_text(text, {numbers({3}, {1, 2, 3}), tensor(DType::i64, {2}, {1, index})}, {shape(DType::f32, {2})});
  };
  EXPECT_THAT(with(-1).outputs[0].reals, ElementsAre(3, 1));
  EXPECT_THAT(with(2).errors, HasSubstr("`x`: index 3 of axis 0 leaves 0..3"));
  EXPECT_THAT(with(-2).errors, HasSubstr("`x`: index -1 of axis 0 leaves 0..3"));
  EXPECT_THAT(with(9e18).errors, HasSubstr("`x`: index"));
}

TEST(TileEval, RefusesArgumentsThatDoNotFit) {
  const std::string text =
      "tile t { input x: f32[3] argument 0 scalar c: f32 argument 0 output y: f32[3] argument 0 kernel k { nest (i < "
      "3) { y[i] = mul(x[i], c[]) } } }";
  EXPECT_THAT(run_text(text, {}, {}).errors, HasSubstr("`x` is not given"));
  EXPECT_THAT(run_text(text, {numbers({3}, {1, 2, 3})}, {shape(DType::f32, {3})}).errors,
              HasSubstr("`c` is not given"));
  EXPECT_THAT(run_text(text, {numbers({2}, {1, 2})}, {shape(DType::f32, {3})}, {}, {2}).errors,
              HasSubstr("`x` has 8 bytes, 12 were expected"));
  EXPECT_THAT(run_text(text, {numbers({3}, {1, 2, 3})}, {shape(DType::f64, {3})}, {}, {2}).errors,
              HasSubstr("`y` has 24 bytes, 12 were expected"));
  EXPECT_THAT(run_text(text, {numbers({3}, {1, 2, 3})}, {shape(DType::f32, {3})}, {}, {2}).outputs[0].reals,
              ElementsAre(2, 4, 6));
}

TEST(TileEval, EndsWhenThereIsTooMuchToDo) {
  TileOptions few;
  few.max_steps = 1000;
  EXPECT_THAT(
      run_text("tile t { kernel k { for i in 0..1000000000 { for j in 0..1000000000 { } } } }", {}, {}, few).errors,
      HasSubstr("steps of evaluation"));
  EXPECT_THAT(run_text("tile t { scratch s: f32[1000000000000] kernel k { } }", {}, {}).errors,
              HasSubstr("more than the limit"));
  EXPECT_THAT(
      run_text("tile t { scratch s: f32[4611686018427387904, 4611686018427387904] kernel k { } }", {}, {}).errors,
      HasSubstr("more than the limit"));
}

}  // namespace
}  // namespace cleave::oracle
