#include "jit/leir.hpp"

#include <gmock/gmock.h>

#include "support/leir_check.hpp"

using namespace cleave;

namespace {

TEST(JitLeir, ComputesBitwiseWhatTheInterpreterDoes) {
  for (const std::string& text : cleave::testing::leir_samples()) {
    const leir::Program p = cleave::testing::leir_program(text);
    const auto code = jit::compile_leir(p);
    ASSERT_TRUE(code.ok()) << render(code.errors(), nullptr);
    for (uint64_t seed = 0; seed < 5; ++seed) {
      const auto inputs = cleave::testing::leir_data(p, seed);
      const auto want = leir::interpret(p, inputs);
      ASSERT_TRUE(want.ok()) << render(want.errors(), nullptr);
      cleave::testing::LeirBuffers buffers(p, inputs);
      int64_t at[64];
      ASSERT_EQ(code->run(buffers.pointers.data(), at), 0) << text;
      cleave::testing::expect_same(p, buffers, *want, text);
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
}

}  // namespace
