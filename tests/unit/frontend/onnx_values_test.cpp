// What imported models compute, judged by the interpreter of graphs against values worked out by hand, by plain loops,
// or by PyTorch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "eval/graph_eval.hpp"
#include "frontend/npy.hpp"
#include "unit/frontend/onnx_model.hpp"

namespace cleave {
namespace {

using oracle::Tensor;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::Pointwise;

Tensor f32(std::vector<int64_t> extents, std::vector<double> values) {
  return oracle::tensor(DType::f32, std::move(extents), std::move(values));
}

// 0, 1/8, 2/8, ... shifted: distinct, exact, of both signs.
Tensor counted(std::vector<int64_t> extents, double first = -1) {
  std::vector<double> values(static_cast<size_t>(oracle::product(extents)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<double>(i) / 8;
  return f32(std::move(extents), std::move(values));
}

std::vector<Tensor> evaluate(const Result<graph::Graph>& imported, const std::map<std::string, Tensor>& inputs) {
  if (!imported.ok()) {
    ADD_FAILURE() << render(imported.errors(), nullptr);
    return std::vector<Tensor>(4);
  }
  auto values = oracle::evaluate(*imported, inputs);
  if (!values.ok()) {
    ADD_FAILURE() << render(values.errors(), nullptr) << graph::print(*imported);
    return std::vector<Tensor>(4);
  }
  return std::move(values).value();
}

Tensor only(const OnnxModel& model, const std::map<std::string, Tensor>& inputs) {
  return evaluate(model.import(), inputs).at(0);
}

void expect_near(const Tensor& got, const std::vector<double>& expected, double tolerance = 1e-6) {
  EXPECT_THAT(got.reals, Pointwise(DoubleNear(tolerance), expected));
}

TEST(OnnxValues, GemmScalesTransposesAndAddsItsBias) {
  OnnxModel m;
  m.input("a", {"2", "3"}).input("b", {"2", "2"}).floats("c", {1}, {10});
  m.node("Gemm", {"b", "a", "c"}, {"y"}, {{"alpha", 2.0f}, {"beta", 0.5f}, {"transA", int64_t{1}}}).output("y");
  // b' a = {{1, 3}, {2, 4}} {{1, 2, 3}, {4, 5, 6}} = {{13, 17, 21}, {18, 24, 30}}
  expect_near(only(m, {{"a", f32({2, 3}, {1, 2, 3, 4, 5, 6})}, {"b", f32({2, 2}, {1, 2, 3, 4})}}),
              {31, 39, 47, 41, 53, 65});
}

TEST(OnnxValues, MatMulOfStacksAgreesWithLoops) {
  OnnxModel m;
  m.input("a", {"2", "1", "3", "4"}).input("b", {"5", "4", "2"}).node("MatMul", {"a", "b"}, {"y"}).output("y");
  const Tensor a = counted({2, 1, 3, 4}), b = counted({5, 4, 2}, 0.5);
  std::vector<double> expected;
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 5; ++j) {
      for (int r = 0; r < 3; ++r) {
        for (int c = 0; c < 2; ++c) {
          double sum = 0;
          for (int k = 0; k < 4; ++k)
            sum += a.reals[static_cast<size_t>(12 * i + 4 * r + k)] * b.reals[static_cast<size_t>(8 * j + 2 * k + c)];
          expected.push_back(sum);
        }
      }
    }
  }
  expect_near(only(m, {{"a", a}, {"b", b}}), expected);
}

TEST(OnnxValues, SoftmaxBeforeOpset13RunsOverAllTrailingAxes) {
  OnnxModel m(11);
  m.input("x", {"1", "2", "2"}).node("Softmax", {"x"}, {"y"}).output("y");
  const double e = std::exp(1.0), sum = 2 + 2 * e;
  expect_near(only(m, {{"x", f32({1, 2, 2}, {0, 1, 1, 0})}}), {1 / sum, e / sum, e / sum, 1 / sum});
}

TEST(OnnxValues, SlicesRunBackwardsInStrides) {
  OnnxModel m;
  m.input("x", {"7"}).ints("f", {-2}).ints("t", {INT64_MIN}).ints("a", {0}).ints("s", {-2});
  m.node("Slice", {"x", "f", "t", "a", "s"}, {"y"}).output("y");
  expect_near(only(m, {{"x", f32({7}, {0, 1, 2, 3, 4, 5, 6})}}), {5, 3, 1});
}

TEST(OnnxValues, SlicesOfADynamicAxisClampAtRunTime) {
  OnnxModel m;
  m.input("x", {"n"}).ints("f", {-3}).ints("t", {5}).node("Slice", {"x", "f", "t"}, {"y"}).output("y");
  for (const int64_t n : {1, 4, 9}) {
    const auto bound = graph::bind(m.import().value(), {{"n", n}});
    ASSERT_TRUE(bound.ok()) << render(bound.errors(), nullptr);
    std::vector<double> all, expected;
    for (int64_t i = 0; i < n; ++i) all.push_back(static_cast<double>(i));
    for (int64_t i = std::max<int64_t>(n - 3, 0); i < std::min<int64_t>(n, 5); ++i)
      expected.push_back(static_cast<double>(i));
    expect_near(evaluate(bound, {{"x", f32({n}, all)}}).at(0), expected);
  }
}

// The halves of an axis, joined again, are as long as the axis.
TEST(OnnxValues, HalvesOfADynamicAxisAreAsLongAsIt) {
  OnnxModel m;
  m.input("x", {"n"}).ints("two", {2}).ints("zero", {0}).node("Shape", {"x"}, {"s"}).node("Div", {"s", "two"}, {"h"});
  m.node("Slice", {"x", "zero", "h"}, {"a"}).node("Slice", {"x", "h", "s"}, {"b"});
  m.node("Concat", {"b", "a"}, {"c"}, {{"axis", 0}}).node("Add", {"c", "x"}, {"y"}).output("y");
  const auto model = m.import();
  ASSERT_TRUE(model.ok()) << render(model.errors(), nullptr);
  const auto bound = graph::bind(*model, {{"n", 5}});
  ASSERT_TRUE(bound.ok()) << render(bound.errors(), nullptr);
  expect_near(evaluate(bound, {{"x", f32({5}, {1, 2, 3, 4, 5})}}).at(0), {4, 6, 8, 5, 7});
}

TEST(OnnxValues, GatherCountsNegativeIndicesFromTheEnd) {
  OnnxModel m;
  m.input("x", {"3", "2"}).input("i", {"4"}, onnx::TensorProto::INT64).node("Gather", {"x", "i"}, {"y"}).output("y");
  const Tensor i = oracle::tensor(DType::i64, {4}, {-1, 0, 2, -3});
  expect_near(only(m, {{"x", f32({3, 2}, {0, 1, 10, 11, 20, 21})}, {"i", i}}), {20, 21, 0, 1, 20, 21, 0, 1});
}

TEST(OnnxValues, TilesRepeatWholeAxes) {
  OnnxModel m;
  m.input("x", {"2", "2"}).ints("r", {2, 2}).node("Tile", {"x", "r"}, {"y"}).output("y");
  expect_near(only(m, {{"x", f32({2, 2}, {1, 2, 3, 4})}}), {1, 2, 1, 2, 3, 4, 3, 4, 1, 2, 1, 2, 3, 4, 3, 4});
}

TEST(OnnxValues, TriluKeepsOneSideOfADiagonal) {
  const auto run = [](int64_t k, int64_t upper) {
    OnnxModel m;
    m.input("x", {"2", "3"}).scalar_int("k", k).node("Trilu", {"x", "k"}, {"y"}, {{"upper", upper}}).output("y");
    return only(m, {{"x", f32({2, 3}, {1, 2, 3, 4, 5, 6})}}).reals;
  };
  EXPECT_THAT(run(0, 1), ElementsAre(1, 2, 3, 0, 5, 6));
  EXPECT_THAT(run(1, 1), ElementsAre(0, 2, 3, 0, 0, 6));
  EXPECT_THAT(run(0, 0), ElementsAre(1, 0, 0, 4, 5, 0));
  EXPECT_THAT(run(-1, 0), ElementsAre(0, 0, 0, 4, 0, 0));
}

TEST(OnnxValues, EinsumSumsWhatItsResultLacks) {
  OnnxModel m;
  m.input("a", {"2", "3"}).input("b", {"3", "2"}).node("Einsum", {"a", "b"}, {"y"}, {{"equation", "ij,jk->ki"}});
  m.node("Einsum", {"a"}, {"z"}, {{"equation", "ij->j"}}).output("y").output("z");
  const auto values =
      evaluate(m.import(), {{"a", f32({2, 3}, {1, 2, 3, 4, 5, 6})}, {"b", f32({3, 2}, {1, 0, 0, 1, 1, 1})}});
  expect_near(values.at(0), {4, 10, 5, 11});
  expect_near(values.at(1), {5, 7, 9});
}

TEST(OnnxValues, ElementwiseOperatorsFollowOnnxWhereItDiffersFromOurs) {
  OnnxModel m;
  m.input("x", {"4"}).input("i", {"4"}, onnx::TensorProto::INT64).ints("d", {3, -3, 3, -3});
  m.node("HardSigmoid", {"x"}, {"hard"}).node("Pow", {"x", "two"}, {"pow"}).node("Div", {"i", "d"}, {"div"});
  m.node("Mod", {"i", "d"}, {"mod"}).node("Mod", {"i", "d"}, {"fmod"}, {{"fmod", int64_t{1}}}).scalar_int("two", 2);
  m.node("Clip", {"x", "", "one"}, {"clip"}).floats("one", {}, {1}).node("Mean", {"x", "x", "one"}, {"mean"});
  for (const char* name : {"hard", "pow", "div", "mod", "fmod", "clip", "mean"}) m.output(name);
  const auto v =
      evaluate(m.import(), {{"x", f32({4}, {-5, -1, 0.5, 4})}, {"i", oracle::tensor(DType::i64, {4}, {7, 7, -7, -7})}});
  expect_near(v.at(0), {0, 0.3, 0.6, 1});
  expect_near(v.at(1), {25, 1, 0.25, 16});
  EXPECT_THAT(v.at(2).ints, ElementsAre(2, -2, -2, 2));
  EXPECT_THAT(v.at(3).ints, ElementsAre(1, -2, 2, -1));
  EXPECT_THAT(v.at(4).ints, ElementsAre(1, 1, -1, -1));
  expect_near(v.at(5), {-5, -1, 0.5, 1});
  expect_near(v.at(6), {-3, -1.0 / 3, 2.0 / 3, 3});
}

TEST(OnnxValues, LayerNormalizationAlsoGivesMeanAndInverseDeviation) {
  OnnxModel m;
  m.input("x", {"1", "2"}).floats("g", {2}, {1, 3}).floats("b", {2}, {0, 1});
  m.node("LayerNormalization", {"x", "g", "b"}, {"y", "mean", "inverse"}, {{"epsilon", 0.0f}});
  m.output("y").output("mean").output("inverse");
  const auto v = evaluate(m.import(), {{"x", f32({1, 2}, {1, 5})}});
  expect_near(v.at(0), {-1, 4});
  expect_near(v.at(1), {3});
  expect_near(v.at(2), {0.5});
}

TEST(OnnxValues, AttentionEqualsItsDecomposition) {
  // Four query heads over two key heads, causal from the start; the keys are repeated by hand.
  OnnxModel fused(23), plain(23);
  for (OnnxModel* m : {&fused, &plain})
    m->input("q", {"1", "4", "3", "2"}).input("k", {"1", "2", "3", "2"}).input("v", {"1", "2", "3", "2"});
  fused.node("Attention", {"q", "k", "v"}, {"y"}, {{"is_causal", int64_t{1}}}).output("y");
  plain.ints("heads", {0, 0, 1, 1}).node("Gather", {"k", "heads"}, {"kk"}, {{"axis", int64_t{1}}});
  plain.node("Gather", {"v", "heads"}, {"vv"}, {{"axis", int64_t{1}}});
  plain.node("Transpose", {"kk"}, {"kt"}, {{"perm", std::vector<int64_t>{0, 1, 3, 2}}})
      .node("MatMul", {"q", "kt"}, {"s"});
  plain.floats("scale", {}, {std::sqrt(0.5f)}).node("Mul", {"s", "scale"}, {"scaled"});
  const float low = -std::numeric_limits<float>::infinity();
  plain.floats("mask", {3, 3}, {0, low, low, 0, 0, low, 0, 0, 0}).node("Add", {"scaled", "mask"}, {"masked"});
  plain.node("Softmax", {"masked"}, {"p"}).node("MatMul", {"p", "vv"}, {"y"}).output("y");
  const std::map<std::string, Tensor> inputs = {
      {"q", counted({1, 4, 3, 2})}, {"k", counted({1, 2, 3, 2}, -0.5)}, {"v", counted({1, 2, 3, 2}, 2)}};
  expect_near(only(fused, inputs), only(plain, inputs).reals, 1e-6);
}

TEST(OnnxValues, RotaryEmbeddingTurnsPairs) {
  // One head of width four at one position, turned by a quarter: (x1, x2) -> (-x2, x1).
  for (const int64_t interleaved : {0, 1}) {
    OnnxModel m(23);
    m.input("x", {"1", "1", "1", "4"}).floats("cos", {1, 1, 2}, {0, 0}).floats("sin", {1, 1, 2}, {1, 1});
    m.node("RotaryEmbedding", {"x", "cos", "sin"}, {"y"}, {{"interleaved", interleaved}}).output("y");
    const Tensor y = only(m, {{"x", f32({1, 1, 1, 4}, {1, 2, 3, 4})}});
    expect_near(y, interleaved ? std::vector<double>{-2, 1, -4, 3} : std::vector<double>{-3, -4, 1, 2});
  }
}

TEST(OnnxValues, ConstantsOfEveryFormAreTheSameNumbers) {
  OnnxModel m;
  m.input("x", {"2"}).floats("raw", {2}, {1.5f, -2});
  auto* typed = m.tensor("half", {2}, onnx::TensorProto::FLOAT16);
  typed->add_int32_data(0x3e00), typed->add_int32_data(0xc000);  // 1.5, -2
  m.node("Cast", {"half"}, {"wide"}, {{"to", int64_t{onnx::TensorProto::FLOAT}}});
  m.node("Add", {"x", "raw"}, {"a"}).node("Add", {"x", "wide"}, {"b"}).output("a").output("b");
  const auto v = evaluate(m.import(), {{"x", f32({2}, {1, 1})}});
  expect_near(v.at(0), {2.5, -1});
  expect_near(v.at(1), {2.5, -1});
}

// The committed block with generated weights, statically and with dynamic extents, against PyTorch's float64 result.
TEST(OnnxValues, TheExampleBlockComputesWhatPyTorchComputed) {
  const std::filesystem::path root = CLEAVE_SOURCE_DIR;
  const auto expected = read_npy(root / "tests/data/gpt2_block_rows.npy");
  ASSERT_TRUE(expected.ok()) << render(expected.errors(), nullptr);
  const auto imported = import_onnx(root / "examples/gpt2_block.onnx");
  ASSERT_TRUE(imported.ok()) << render(imported.errors(), nullptr);

  Tensor x = oracle::zeros(DType::f32, {1, 128, 768});
  for (size_t i = 0; i < x.reals.size(); ++i) {
    x.reals[i] = static_cast<double>(static_cast<float>(static_cast<double>(i * 7919 % 2003) / 1001.5 - 1));
  }
  const Tensor y = evaluate(imported, {{"x", x}}).at(0);
  ASSERT_EQ(y.elements(), 128 * 768);
  const auto* values = reinterpret_cast<const double*>(expected->bytes.data());
  std::vector<double> got, wanted;
  for (const size_t row : {0, 1, 63, 127}) {
    for (size_t c = 0; c < 768; ++c) got.push_back(y.reals[row * 768 + c]);
  }
  wanted.assign(values, values + 4 * 768);
  // The model stores epsilon and the scale of the scores in float32; nothing else differs.
  const auto difference =
      oracle::compare(oracle::tensor(DType::f64, {4, 768}, got), oracle::tensor(DType::f64, {4, 768}, wanted), 0, 1e-7);
  EXPECT_TRUE(difference.ok()) << difference.text;
}

}  // namespace
}  // namespace cleave
