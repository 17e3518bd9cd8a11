// Matmuls whose depth is contiguous in A and B, beside the interpreter.
#include "support.hpp"
#include "tile_support.hpp"
#include "vec/dot_tile.hpp"

namespace cleave {
namespace {

using testing::compare;
using testing::compare_with_arm64;

// C[m, n] with B[n, k]; `init` is "=", "+=" or "scale".
std::string dot(int64_t m, int64_t n, int64_t k, std::string_view init, std::string_view a = "f32",
                std::string_view b = "f32", std::string_view c = "f32") {
  const bool scaled = init == "scale";
  return fmt::format(
      "tile t {{ input A: {3}[2, {0}, {2}] argument 0 input B: {4}[2, {1}, {2}] argument 1 input S: f32[{0}] argument "
      "2 "
      "output C: {5}[2, {0}, {1}] argument 0 kernel k {{ parallel p in 0..2 {{ "
      "matmul C[p, 0, 0] (1, 2) {6} A[p, 0, 0] (1, 2) * B[p, 0, 0] (2, 1) size {0}, {1}, {2}{7} }} }} }}",
      m, n, k, a, b, c, init == "=" ? "=" : "+=", scaled ? " scale S[0]" : "");
}

TEST(Dot, AllShapesAgreeWithTheInterpreter) {
  for (const int64_t m : {1, 2, 3, 4, 5, 9})
    for (const int64_t n : {1, 4, 7, 17})
      for (const int64_t k : {0, 1, 16, 31, 131}) {
        compare(dot(m, n, k, "="), {.ulps = 8, .absolute = 4e-5});
        if (HasFatalFailure()) return;
      }
  for (const char* init : {"+=", "scale"}) compare(dot(5, 9, 70, init), {.ulps = 8, .absolute = 4e-5});
  for (const int64_t n : {0, 3}) compare(dot(n, 3 - n, 20, "="), {});
}

TEST(Dot, StorageOfOtherTypes) {
  for (const char* d : {"f16", "bf16"}) {
    compare_with_arm64(dot(4, 6, 75, "=", "f32", d), {.ulps = 8, .absolute = 4e-5});
    compare_with_arm64(dot(3, 5, 40, "+=", d, d, d), {.ulps = 1, .absolute = 4e-5});
  }
  compare_with_arm64(dot(3, 5, 21, "=", "f64", "f64", "f64"), {.ulps = 64, .absolute = 1e-13});
}

// Vectors of two elements hold the sums of two rows at most.
TEST(Dot, RowsThatVectorsDoNotHold) {
  if (jit::target_for(Isa::generic).ok())
    for (const int64_t m : {2, 3, 9})
      compare(dot(m, 5, 21, "=", "f64", "f64", "f64"), {.ulps = 64, .absolute = 1e-13}, 1, Isa::generic);
}

TEST(Dot, NaNAndInfinityArrive) {
  compare_with_arm64(dot(4, 4, 33, "="), {.ulps = 8, .absolute = 4e-5, .specials = 0.01}, 3);
}

TEST(Dot, VaryingSizes) {
  // Rows, columns and depth that depend on the loop around.
  compare_with_arm64(
      "tile t { input A: f32[9, 40] argument 0 input B: f32[13, 40] argument 1 output C: f32[5, 9, 13] argument 0 "
      "kernel k { parallel p in 0..5 { matmul C[p, 0, 0] (1, 2) += A[0, 0] (0, 1) * B[0, 0] (1, 0) "
      "size 2*p + 1, min(13, 4*p), 9*p } } }",
      {.ulps = 8, .absolute = 4e-5});
}

TEST(Dot, TilesDoNotSpillInTheirInnerLoop) {
  for (const jit::Target& target : testing::all_targets()) {
    if (target.isa != Isa::avx2 && target.isa != Isa::avx512) continue;
    const int lanes = with_isa(host_machine(), target.isa).f32_lanes();
    for (const int rows : {1, 2, 3, 4}) {
      vec::Module module;
      module.functions.emplace_back("tile");
      vec::Builder b(module.functions.back());
      vec::DotTile t;
      t.lanes = lanes, t.rows = rows, t.columns = std::min(8, lanes / (rows == 3 ? 4 : rows));
      t.k = b.extent(0);
      t.a = b.tensor_data(0), t.a_row_stride = b.i64(128);
      t.b = b.tensor_data(1), t.b_column_stride = b.i64(128);
      t.c = b.tensor_data(2), t.c_row_stride = b.extent(1);
      vec::emit_dot_tile(b, t);
      jit::Options options;
      options.target = target;
      const auto text = jit::asm_text(module, options);
      ASSERT_TRUE(text.ok());
      EXPECT_EQ(jit::count_spills(*text).innermost, 0) << rows << "x" << t.columns << " on " << name(target.isa);
    }
  }
}

}  // namespace
}  // namespace cleave
