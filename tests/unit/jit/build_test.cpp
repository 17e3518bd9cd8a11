// Each construct of tile programs, compiled and run beside its interpreter.
#include <fstream>
#include <sstream>

#include "tile_support.hpp"

namespace cleave {
namespace {

using testing::compare;
using testing::compare_with_arm64;
using testing::Compared;

std::string elementwise(int64_t rows, int64_t columns, const std::string& expression,
                        const std::string& dtype = "f32") {
  return fmt::format(
      "tile t {{ input X: {2}[{0}, {1}] argument 0 input Y: {2}[{0}, {1}] argument 1 input B: {2}[{1}] argument 2 "
      "output Z: {2}[{0}, {1}] argument 0 kernel k {{ parallel i in 0..{0} {{ nest (j < {1}) {{ %0 = X[i, j] %1 = Y[i, "
      "j] %2 = B[j] "
      "Z[i, j] = {3} }} }} }} }}",
      rows, columns, dtype, expression);
}

TEST(Build, ElementwiseNestsAreExact) {
  for (const int64_t columns : {1, 3, 16, 31, 64, 67, 200})
    for (const char* e : {"add(mul(%0, %1), %2)", "max(%0, sub(%1, %2))", "where(lt(%0, %1), %2, neg(%0))",
                          "relu(min(%0, %1))", "div(%0, %1)"}) {
      compare(elementwise(3, columns, e), {.specials = 0.2});
      if (HasFatalFailure()) return;
    }
  for (const char* d : {"f64", "i64", "i32", "i16", "i8", "u32", "u16", "u8"})
    for (const int64_t columns : {1, 7, 33, 130})
      compare(elementwise(2, columns, "add(mul(%0, %1), max(%2, %0))", d), {.integers = 20});
}

TEST(Build, FunctionsAreWithinTheirBounds) {
  for (const char* e : {"exp(%0)", "tanh(%0)", "sigmoid(%1)", "log(abs(%0))", "silu(%0)", "sqrt(abs(%1))", "erf(%0)"})
    compare(elementwise(3, 37, e), {.ulps = 6, .absolute = 1e-37, .specials = 0.1});
}

TEST(Build, HalfPrecisionIsWidenedAndRounded) {
  for (const char* d : {"f16", "bf16"})
    for (const int64_t columns : {5, 16, 50})
      compare_with_arm64(elementwise(2, columns, "add(mul(%0, %1), %2)", d), {.specials = 0.1});
  for (const char* d : {"f16", "bf16"})
    compare_with_arm64(
        fmt::format("tile t {{ input X: f32[3, 41] argument 0 output Z: f32[3, 41] argument 0 kernel k {{ nest (i "
                    "< 3, j < 41) {{ "
                    "%0 = mul(X[i, j], exp(mul(X[i, j], 5:f32))) Z[i, j] = cast(X[i, j], {}) }} }} }}",
                    d),
        {.specials = 0.1});
}

TEST(Build, CastsKeepTheirMeaning) {
  for (const char* from : {"f32", "f64", "i64", "i32", "i16", "i8", "u32", "u16", "u8", "bool", "f16"})
    for (const char* to : {"f32", "f64", "i64", "i32", "i16", "i8", "u32", "u16", "u8", "bool"})
      compare(fmt::format("tile t {{ input X: {0}[41] argument 0 output Z: {1}[41] argument 0 kernel k {{ nest (i < "
                          "41) {{ Z[i] = cast(X[i], {1}) }} }} }}",
                          from, to),
              {.specials = 0.2, .integers = 1000});
}

TEST(Build, RowAndColumnReductions) {
  for (const int64_t n : {1, 2, 15, 16, 64, 100, 131}) {
    for (const char* mark : {"max=", "min="})
      for (const double specials : {0.0, 0.02})
        compare(
            fmt::format(
                "tile t {{ input X: f32[7, {0}] argument 0 output R: f32[7] argument 0 output C: f32[{0}] argument 1 "
                "kernel k {{ "
                "nest (i < 7, j < {0}) {{ R[i] fresh {1} X[i, j] }} nest (i < 7, j < {0}) {{ C[j] {1} X[i, j] }} }} }}",
                n, mark),
            {.specials = specials});
    compare(fmt::format("tile t {{ input X: f32[7, {0}] argument 0 output R: f32[7] argument 0 output C: f32[{0}] "
                        "argument 1 output P: f32[7, {0}] argument 2 "
                        "kernel k {{ nest (i < 7, j < {0}) {{ %0 = exp(X[i, j]) P[i, j] = %0 R[i] += %0 }} nest (i < "
                        "7, j < {0}) {{ C[j] fresh += X[i, j] }} }} }}",
                        n),
            {.ulps = 40, .absolute = 1e-5});
    compare(
        fmt::format("tile t {{ input X: i32[7, {0}] argument 0 input M: bool[7, {0}] argument 1 output R: i32[7] "
                    "argument 0 output A: bool[7] argument 1 output O: bool[{0}] argument 2 "
                    "kernel k {{ nest (i < 7, j < {0}) {{ R[i] fresh += X[i, j] A[i] fresh &= M[i, j] }} nest (i < 7, "
                    "j < {0}) {{ O[j] |= M[i, j] }} }} }}",
                    n));
    if (HasFatalFailure()) return;
  }
}

TEST(Build, EmptyBoxesStillFillFreshAccumulators) {
  compare_with_arm64(
      "tile t { input X: f32[3, 5] argument 0 output R: f32[3] argument 0 output S: f32[3] argument 1 kernel k { for t "
      "in 0..2 { "
      "nest (i < 3, j < 5*t) { R[i] fresh += X[i, j] } nest (i < 3, j < 5*t) { S[i] += X[i, j] } } for t in 0..1 { "
      "nest (i < 3, j < 3*t) { R[i] fresh max= X[i, j] } } } }",
      {.ulps = 8});
}

TEST(Build, GuardsKeepMemoryUntouched) {
  // A shifted read beyond both ends, per lane and per row.
  for (const int64_t n : {5, 16, 47, 80})
    compare_with_arm64(fmt::format(
        "tile t {{ input X: f32[4, {0}] argument 0 output Z: f32[4, {0}] argument 0 output U: f32[4, {0}] argument 1 "
        "kernel k {{ "
        "nest (i < 4, j < {0}) {{ %0 = index(j - 3) %1 = logical_and(ge(%0, 0:i64), lt(%0, {0}:i64)) Z[i, j] = X[i, j "
        "- 3] if (%1) }} "
        "nest (i < 4, j < {0}) {{ %0 = lt(index(i + 2), 4:i64) U[i, j] = add(X[i + 2, j] if (%0), 1:f32) }} }} }}",
        n));
}

TEST(Build, DynamicIndicesGather) {
  compare_with_arm64(
      "tile t { input T: f32[17, 33] argument 0 input I: i64[21] argument 1 output Z: f32[21, 33] argument 0 output D: "
      "f32[21] argument 1 kernel k { "
      "nest (i < 21, j < 33) { Z[i, j] = T[@ I[i], j] } nest (i < 21) { D[i] = T[1 @ I[i], 2 @ I[i]] } } }",
      {.integers = 0});
  compare_with_arm64(
      "tile t { input T: f32[40] argument 0 input I: i64[21] argument 1 output Z: f32[21] argument 0 kernel k { nest "
      "(i < 21) { "
      "%0 = I[i] Z[i] = T[20 @ %0] if (lt(%0, 4:i64)) } } }",
      {.integers = 15});
}

TEST(Build, StridesTransposesAndPanels) {
  for (const int64_t n : {1, 7, 16, 40, 64, 65, 130}) {
    compare_with_arm64(
        fmt::format("tile t {{ input X: f32[{0}, 19] argument 0 output Z: f32[19, {0}] argument 0 kernel k {{ nest (i "
                    "< 19, j < {0}) {{ Z[i, j] = X[j, i] }} }} }}",
                    n));
    compare_with_arm64(
        fmt::format("tile t {{ input X: f32[{0}, 19] argument 0 output Z: f32[{0}, 19] argument 0 workspace P: f32[19, "
                    "{0}] panel 32 kernel k {{ nest (i < 19, j < {0}) {{ P[i, j] = X[j, i] }} }} "
                    "kernel l {{ nest (j < {0}, i < 19) {{ Z[j, i] = neg(P[i, j]) }} }} }}",
                    n));
    if (HasFatalFailure()) return;
  }
  compare_with_arm64(
      "tile t { input X: f32[90] argument 0 output Z: f32[30] argument 0 output W: f32[90] argument 1 kernel k { nest "
      "(i < 30) { Z[i] = X[3*i + 1] } nest (i < 30) { W[3*i] = X[89 - i] } "
      "nest (i < 30) { W[3*i + 1] = X[i//4] } nest (i < 30) { W[(3*i + 2) % 90] += X[i % 7] } } }");
}

TEST(Build, TransposingCopiesOfAllTypes) {
  for (const char* d : {"f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u32", "u16", "u8", "bool"})
    for (const int64_t n : {8, 16, 33, 64}) {
      compare(fmt::format(
                  "tile t {{ input X: {0}[2, {1}, 37] argument 0 output Z: {0}[2, 37, {1}] argument 0 "
                  "workspace P: {0}[2, 37, {1}] panel 32 kernel k {{ parallel h in 0..2 {{ nest (i < 37, j < {1}) {{ "
                  "P[h, i, j] = X[h, j, i] }} }} }} kernel l {{ nest (h < 2, i < 37, j < {1}) {{ Z[h, i, j] = P[h, i, "
                  "j] }} }} }}",
                  d, n),
              {.specials = 0.1});
      compare(
          fmt::format("tile t {{ input X: {0}[{1}, 3, 37] argument 0 output Z: {0}[37, {1}, 3] argument 0 "
                      "output R: {0}[37, 5, {1}] argument 1 kernel k {{ nest (i < 37, c < 3, j < {1}) {{ Z[i, j, c] = "
                      "X[j, c, i] }} "
                      "nest (c < 2, j < {1}, i < 37) {{ R[36 - i, 2*c + 1, j] = X[j, c + 1, i] }} }} }}",
                      d, n));
      if (HasFatalFailure()) return;
    }
}

// As many columns as a step has, some at a time.
TEST(Build, TransposingCopiesOfStepsThatEndEarly) {
  for (const int64_t n : {1, 5, 16, 17, 40, 63}) {
    compare_with_arm64(
        fmt::format("tile t {{ input X: f32[{0}, 37] argument 0 output Z: f32[37, {0}] argument 0 kernel k {{ "
                    "for c in 0..{0} step 16 {{ nest (j < min(16, {0} - c), i < 37) {{ Z[i, c + j] = X[c + j, i] }} }} "
                    "}} }}",
                    n),
        {.specials = 0.1});
    compare_with_arm64(
        fmt::format("tile t {{ input X: f32[{0}, 37] argument 0 output Z: f32[37, {0}] argument 0 kernel k {{ "
                    "for c in 0..{0} step 40 {{ nest (i < 37, j < min(40, {0} - c)) {{ Z[i, c + j] = X[c + j, i] }} }} "
                    "}} }}",
                    n));
    if (HasFatalFailure()) return;
  }
}

TEST(Build, SequentialNestsRunInOrder) {
  compare_with_arm64(
      "tile t { input X: f32[50] argument 0 output Z: f32[51] argument 0 output R: f32[1] argument 1 kernel k { nest "
      "(i < 1) { Z[i] = 0:f32 } "
      "nest sequential (i < 50) { Z[i + 1] = add(Z[i], X[i]) } nest sequential (i < 50) { R[0] fresh max= Z[i] Z[i] = "
      "R[0] } } }");
}

TEST(Build, TriangularNests) {
  compare_with_arm64(
      "tile t { input X: f32[20, 20] argument 0 output R: f32[20] argument 0 output Z: f32[20, 20] argument 1 kernel k "
      "{ "
      "nest (i < 20, j < i) { Z[i, j] = X[i, j] R[i] += X[i, j] } nest (i < 20, j < 20 - i) { R[i] max= X[i, j] } } }",
      {.ulps = 30, .absolute = 1e-6});
}

TEST(Build, ScalarsIndicesAndAliases) {
  compare_with_arm64(
      "tile t { input X: f32[6, 10] argument 0 scalar a: f32 argument 0 scalar n: i64 argument 1 output Z: f32[6, 10] "
      "argument 0 output V: f32[60] argument 0 alias Z output I: i64[6, 10] argument 1 kernel k { "
      "nest (i < 6, j < 10) { Z[i, j] = mul(X[i, j], a[]) I[i, j] = add(mul(index(i), n[]), index(j*j)) } nest (i < "
      "60) { V[i] = add(V[i], 1:f32) } } }",
      {.scalars = {0.1, 7}});
}

std::string product(int64_t m, int64_t n, int64_t k, const std::string& rest, const std::string& a = "f32",
                    const std::string& b = "f32", const std::string& c = "f32", int64_t panel = 0) {
  const std::string sum = a == "f64" || b == "f64" ? "f64" : "f32";
  return fmt::format(
      "tile t {{ input A: {3}[{0}, {2}] argument 0 const B: {4}[{2}, {1}] argument 0 input S: {8}[{0}] argument 1 "
      "output C: {5}[{0}, {1}] argument 0 {7} "
      "kernel p once {{ {9} }} kernel k {{ matmul C[0, 0] (0, 1) {6} }} }}",
      m, n, k, a, b, c,
      fmt::format(fmt::runtime(rest), fmt::arg("B", panel ? "P" : "B"), fmt::arg("m", m), fmt::arg("n", n),
                  fmt::arg("k", k)),
      panel ? fmt::format("packed P: {}[{}, {}] panel {}", b, k, n, panel) : "", sum,
      panel ? fmt::format("nest (k < {}, n < {}) {{ P[k, n] = B[k, n] }}", k, n) : "");
}

TEST(Build, MatmulsOfAllShapes) {
  const Compared how{.ulps = 4, .absolute = 2e-6};
  for (const int64_t m : {1, 3, 7, 8, 13})
    for (const int64_t n : {1, 15, 16, 33, 64, 70})
      for (const int64_t k : {0, 1, 19}) {
        compare(product(m, n, k, "= A[0, 0] (0, 1) * {B}[0, 0] (0, 1) size {m}, {n}, {k}"), how);
        if (HasFatalFailure()) return;
      }
  for (const char* form : {"= A[0, 0] (0, 1) * {B}[0, 0] (0, 1) size {m}, {n}, {k}",
                           "+= A[0, 0] (0, 1) * {B}[0, 0] (0, 1) size {m}, {n}, {k}",
                           "+= A[0, 0] (0, 1) * {B}[0, 0] (0, 1) size {m}, {n}, {k} scale S[0]"})
    for (const int64_t panel : {0, 16, 32, 64, 10}) {
      compare(product(11, 90, 23, form, "f32", "f32", "f32", panel), how);
      compare(product(5, 40, 3, form, "f64", "f32", "f64", panel), how);
      compare(product(9, 50, 17, form, "bf16", "f16", "f32", panel), how);
      compare(product(9, 50, 17, form, "f32", "bf16", "bf16", panel), {.ulps = 2, .absolute = 0.02});
      if (HasFatalFailure()) return;
    }
  // A long sum is cut into chunks.
  compare(product(30, 64, 3000, "+= A[0, 0] (0, 1) * {B}[0, 0] (0, 1) size {m}, {n}, {k} scale S[0]", "f32", "f32",
                  "f32", 64),
          {.ulps = 8, .absolute = 2e-4});
}

TEST(Build, MatmulsOfVaryingTiles) {
  compare_with_arm64(
      "tile t { input A: f32[50, 45] argument 0 input B: f32[45, 83] argument 1 output C: f32[50, 83] argument 0 "
      "output T: f32[45, 83] argument 1 kernel k { "
      "parallel i in 0..50 step 13 { for j in 0..83 step 48 { for l in 0..45 step 20 { matmul C[i, j] (0, 1) += A[i, "
      "l] (0, 1) * B[l, j] (0, 1) size min(13, 50 - i), min(48, 83 - j), min(20, 45 - l) } } } } "
      "kernel l { matmul T[0, 0] (0, 1) = A[0, 0] (1, 0) * C[0, 0] (0, 1) size 45, 83, 50 } }",
      {.ulps = 8, .absolute = 2e-4});
}

std::string file(const std::string& name) {
  std::ifstream in(std::string(CLEAVE_SOURCE_DIR) + "/tests/data/" + name);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

std::string attention(int heads, int blocks) {
  std::string text = file("attention.tile");
  text = replaced(text, "[16, 1024, 64]", fmt::format("[{}, {}, 64]", heads, 128 * blocks));
  text = replaced(text, "[16, 64, 1024]", fmt::format("[{}, 64, {}]", heads, 128 * blocks));
  text = replaced(text, "h in 0..16", fmt::format("h in 0..{}", heads));
  text = replaced(text, "t in 0..16", fmt::format("t in 0..{}", 2 * blocks));
  return replaced(text, "b in 0..8", fmt::format("b in 0..{}", blocks));
}

TEST(Build, AttentionIsAttention) {
  ASSERT_FALSE(file("attention.tile").empty());
  // The file's program on two heads with 256 keys.
  compare(attention(2, 2), {.ulps = 200, .absolute = 1e-6});
  compare_with_arm64(attention(1, 1), {.ulps = 200, .absolute = 1e-6});
}

}  // namespace
}  // namespace cleave
