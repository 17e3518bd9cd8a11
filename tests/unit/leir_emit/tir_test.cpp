// TVM script: what is printed, in both forms and spellings. That it builds and computes the same is tested where TVM is
// installed (tests/tools/tvm_test.py).
#include "leir_emit/tir.hpp"

#include <gmock/gmock.h>

#include "support/leir_check.hpp"

namespace cleave::leir {
namespace {

using cleave::testing::leir_program;
using ::testing::HasSubstr;

const char* kRows =
    "in A f16[4,5];in I i64[4];out C f32[4];B^{4}_{tx=0}L^{5}_{a=0}[D^{f32,l}_{tx}=D^{f32,l}_{tx}+A^{f16,g}_{tx,a}*a;];"
    "B^{4}_{tx=0}[C^{f32,g}_{tx}=if_then_else(tx<1,D^{f32,l}_{tx},D^{f32,l}_{I^{i64,g}_{tx}})-inf;];";

TEST(Tir, LoopsForACpu) {
  const auto text = emit_tir(leir_program(kRows));
  ASSERT_TRUE(text.ok()) << render(text.errors(), nullptr);
  EXPECT_EQ(*text, R"(# TVM script, as TVM 0.27 reads it
@I.ir_module
class Module:
    @T.prim_func
    def main(A: T.Buffer((4, 5), "float16"), I_: T.Buffer((4,), "int64"), C: T.Buffer((4,), "float32")):
        T.func_attr({"tir.noalias": True})
        D = T.alloc_buffer((4,), "float32")
        for tx in range(4):
            for a in range(5):
                if a == 0:
                    D[tx] = T.Cast("float32", T.float64(0))
                D[tx] = (D[tx] + (T.Cast("float32", A[tx, a]) * T.Cast("float32", T.Cast("int64", a))))
        for tx in T.parallel(4):
            C[tx] = (T.if_then_else((T.Cast("int64", tx) < T.int64(1)), D[tx], D[I_[tx]]) - T.infinity("float32"))
)");
}

TEST(Tir, BlocksAndBindingsForCuda) {
  const auto text = emit_tir(leir_program(kRows), {.cuda = true});
  ASSERT_TRUE(text.ok()) << render(text.errors(), nullptr);
  EXPECT_THAT(*text, HasSubstr("    @T.prim_func(s_tir=True)\n"));
  EXPECT_THAT(*text, HasSubstr("D = T.sblock_alloc_buffer((4,), \"float32\", scope=\"local\")\n"));
  EXPECT_THAT(*text, HasSubstr(R"(        for tx in T.thread_binding(4, thread="threadIdx.x"):
            for a in range(5):
                with T.sblock("D"):
                    vtx, va = T.axis.remap("SR", [tx, a])
                    with T.init():
                        D[vtx] = T.Cast("float32", T.float64(0))
                    D[vtx] = )"));
  const auto old = emit_tir(leir_program(kRows), {.cuda = true, .version = "0.20"});
  ASSERT_TRUE(old.ok());
  EXPECT_THAT(*old, HasSubstr("with T.block(\"D\"):"));
  EXPECT_THAT(*old, HasSubstr("    @T.prim_func\n"));
}

TEST(Tir, EveryOperationHasAText) {
  for (const std::string& text : cleave::testing::leir_samples())
    for (const bool cuda : {false, true}) {
      const auto tir = emit_tir(leir_program(text), {.cuda = cuda});
      EXPECT_TRUE(tir.ok()) << text << render(tir.errors(), nullptr);
    }
}

TEST(Tir, RefusesByName) {
  const auto version = emit_tir(leir_program(kRows), {.version = "0.1"});
  ASSERT_FALSE(version.ok());
  EXPECT_THAT(render(version.errors(), nullptr), HasSubstr("`0.1` are not known (known are 0.27, 0.20)"));
  std::string deep = "A^{f32,g}_{a}";
  for (int i = 0; i < 101; ++i) deep = "exp(" + deep + ")";
  const auto nested = emit_tir(leir_program("in A f32[4];out C f32[4];L^{4}_{a=0}[C^{f32,g}_{a}=" + deep + ";];"));
  ASSERT_FALSE(nested.ok());
  EXPECT_THAT(render(nested.errors(), nullptr), HasSubstr("nested deeper than 100"));
  const auto power = emit_tir(leir_program("in A i64[4];out C i64[4];L^{4}_{a=0}[C^{i64,g}_{a}=A^{i64,g}_{a}**3;];"));
  ASSERT_FALSE(power.ok());
  EXPECT_THAT(render(power.errors(), nullptr), HasSubstr("the integer power 3"));
}

}  // namespace
}  // namespace cleave::leir
