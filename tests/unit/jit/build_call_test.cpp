// Calls of built programs: strided tensors, constants, workspaces, and calls that are wrong.
#include "tile_support.hpp"

namespace cleave {
namespace {

using jit::TensorView;

const char* kProgram =
    "tile t { input X: f32[3, 4] argument 0 const B: f32[4] argument 0 packed P: f32[4] workspace W: f32[3, 4] output "
    "Y: f32[3, 4] argument 0 scalar a: f32 argument 0 "
    "kernel p once { nest (j < 4) { P[j] = mul(B[j], 2:f32) } } "
    "kernel k { parallel i in 0..3 { nest (j < 4) { W[i, j] = mul(X[i, j], a[]) } } } kernel l { nest (i < 3, j < 4) { "
    "Y[i, j] = add(W[i, j], P[j]) } } }";

jit::Built built() {
  const SourceText source{"test", kProgram};
  return jit::build(tile::parse(source).value()).value();
}

TEST(BuildCall, StridedTensorsAreCopiedAndNamed) {
  const jit::Built program = built();
  float b[8] = {1, 0, 2, 0, 3, 0, 4, 0}, x[12], y[24];
  for (int i = 0; i < 12; ++i) x[i] = static_cast<float>(i);
  for (float& v : y) v = -1;
  std::vector<std::string> copied;
  jit::RunOptions options;
  options.copied = &copied;
  const std::vector<TensorView> constants = {{b, DType::f32, {4}, {2}}};
  const auto bound = program.bind_constants(constants, options);
  ASSERT_TRUE(bound.ok());
  // X transposed and backwards along its rows, Y with gaps.
  const std::vector<TensorView> inputs = {{x + 2, DType::f32, {3, 4}, {-1, 3}}},
                                outputs = {{y, DType::f32, {3, 4}, {8, 2}}};
  const double scalars[] = {10};
  ASSERT_TRUE(program.run(inputs, scalars, outputs, *bound, options).empty());
  EXPECT_EQ(copied, (std::vector<std::string>{"B", "X", "Y"}));
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 4; ++j) {
      EXPECT_EQ(y[8 * i + 2 * j], 10 * x[2 - i + 3 * j] + static_cast<float>(2 * (j + 1)));
      EXPECT_EQ(y[8 * i + 2 * j + 1], -1);
    }
}

TEST(BuildCall, SaysWhatIsWrongWithACall) {
  const jit::Built program = built();
  float b[4] = {}, x[13] = {}, y[12] = {7};
  const std::vector<TensorView> constants = {{b, DType::f32, {4}, {}}};
  const auto bound = program.bind_constants(constants).value();
  const TensorView good{x, DType::f32, {3, 4}, {}};
  const std::vector<TensorView> outputs = {{y, DType::f32, {3, 4}, {}}};
  const double scalars[] = {1};
  auto message = [&](TensorView t) {
    return render(program.run(std::vector<TensorView>{t}, scalars, outputs, bound), nullptr);
  };
  EXPECT_NE(message({x, DType::f32, {4, 3}, {}}).find("`X` has the shape [4, 3], [3, 4] is expected"),
            std::string::npos);
  EXPECT_NE(message({x, DType::f64, {3, 4}, {}}).find("dtype"), std::string::npos);
  EXPECT_NE(message({nullptr, DType::f32, {3, 4}, {}}).find("no memory"), std::string::npos);
  EXPECT_NE(message({x, DType::f32, {3, 4}, {1}}).find("1 strides for 2 axes"), std::string::npos);
  const std::vector<TensorView> inputs = {good};
  EXPECT_FALSE(program.run({}, scalars, outputs, bound).empty());
  EXPECT_FALSE(program.run(inputs, {}, outputs, bound).empty());
  EXPECT_FALSE(program.run(inputs, scalars, {}, bound).empty());
  EXPECT_FALSE(program.run(inputs, scalars, outputs).empty());
  EXPECT_FALSE(program.run(inputs, scalars, outputs, built().bind_constants(constants).value()).empty());
  jit::RunOptions crooked;
  crooked.workspace = reinterpret_cast<char*>(x) + 4;
  if (reinterpret_cast<uintptr_t>(crooked.workspace) % 64 == 0) crooked.workspace = x + 2;
  EXPECT_FALSE(program.run(inputs, scalars, outputs, bound, crooked).empty());
  EXPECT_FALSE(program.bind_constants({}).ok());
  EXPECT_EQ(y[0], 7);
  EXPECT_TRUE(program.run(inputs, scalars, outputs, bound).empty());
}

TEST(BuildCall, TensorsThatAreNotAlignedGoThroughACopy) {
  const jit::Built program = built();
  const float b[4] = {1, 2, 3, 4};
  std::vector<float> x(12), y(12);
  for (size_t i = 0; i < 12; ++i) x[i] = static_cast<float>(i);
  char memory[3][49] = {};
  std::memcpy(memory[0] + 1, b, sizeof b);
  std::memcpy(memory[1] + 1, x.data(), 48);
  const auto at = [&](int i, std::vector<int64_t> shape) {
    return std::vector<TensorView>{{memory[i] + 1, DType::f32, std::move(shape), {}}};
  };
  const auto run = [&](const std::vector<TensorView>& constants, const std::vector<TensorView>& inputs,
                       const std::vector<TensorView>& outputs) {
    const double scalars[] = {10};
    return program.run(inputs, scalars, outputs, program.bind_constants(constants).value()).empty();
  };
  float dense_b[4] = {1, 2, 3, 4};
  ASSERT_TRUE(run({{dense_b, DType::f32, {4}, {}}}, {{x.data(), DType::f32, {3, 4}, {}}},
                  {{y.data(), DType::f32, {3, 4}, {}}}));
  ASSERT_TRUE(run(at(0, {4}), at(1, {3, 4}), at(2, {3, 4})));
  EXPECT_EQ(std::memcmp(memory[2] + 1, y.data(), 48), 0);
}

TEST(BuildCall, CodeShowsInThreeFormsAndLoadsFromItsObject) {
  const jit::Built program = built();
  EXPECT_NE(program.vec_text().find("func \"k1_k\""), std::string::npos);
  EXPECT_NE(program.llvm_text().value().find("define void @cleave_kernel_k1_k"), std::string::npos);
  EXPECT_NE(program.asm_text().value().find("cleave_kernel_k2_l"), std::string::npos);
  const SourceText source{"test", kProgram};
  const auto again = jit::build(tile::parse(source).value(), {}, program.object());
  ASSERT_TRUE(again.ok());
  float b[4] = {1, 2, 3, 4}, x[12] = {5}, y[12] = {};
  const std::vector<TensorView> constants = {{b, DType::f32, {4}, {}}}, inputs = {{x, DType::f32, {3, 4}, {}}},
                                outputs = {{y, DType::f32, {3, 4}, {}}};
  const double scalars[] = {2};
  ASSERT_TRUE(again->run(inputs, scalars, outputs, again->bind_constants(constants).value()).empty());
  EXPECT_EQ(y[0], 12);
  EXPECT_FALSE(jit::build(tile::parse(source).value(), {}, {1, 2, 3}).ok());
}

}  // namespace
}  // namespace cleave
