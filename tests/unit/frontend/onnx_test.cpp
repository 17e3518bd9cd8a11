#include "frontend/onnx.hpp"
#include "base/codes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "unit/frontend/onnx_model.hpp"

namespace cleave {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

using Strings = std::vector<std::string>;

// The graph's text, or the errors.
std::string text_of(const Result<graph::Graph>& r) { return r.ok() ? graph::print(*r) : render(r.errors(), nullptr); }

std::string output_type(const Result<graph::Graph>& r, size_t i = 0) {
  return r.ok() ? graph::print(r->syms(), r->type(r->outputs()[i].value)) : render(r.errors(), nullptr);
}

TEST(Onnx, TheDocumentationListsTheOperators) {
  std::ifstream file(std::string(CLEAVE_SOURCE_DIR) + "/docs/onnx.md");
  const std::string doc((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const size_t begin = doc.find("## Operators"), end = doc.find("Notes:", begin);
  ASSERT_NE(end, std::string::npos);
  Strings listed;
  for (size_t i = doc.find('`', begin); i < end; i = doc.find('`', i + 1)) {
    const size_t close = doc.find('`', i + 1);
    listed.push_back(doc.substr(i + 1, close - i - 1));
    i = close;
  }
  EXPECT_EQ(listed, onnx_operators());
}

TEST(Onnx, ImportsAMatrixProductWithABias) {
  OnnxModel m;
  m.input("x", {"batch", "4"}).floats("w", {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8}).floats("b", {2}, {1, 2});
  m.node("Gemm", {"x", "w", "b"}, {"y"}, {{"alpha", 2.0f}}).output("y");
  const auto r = m.import();
  EXPECT_EQ(output_type(r), "f32[batch, 2]");
  EXPECT_THAT(text_of(r), AllOf(HasSubstr("dim batch"), HasSubstr("spec=\"m k, k n -> m n\""), HasSubstr("value=2"),
                                HasSubstr("const w"), HasSubstr("output y")));
  ASSERT_TRUE(r.ok());
  EXPECT_TRUE(graph::verify(*r).empty());
}

TEST(Onnx, AxesWithoutANameAreCalledAfterTheirInput) {
  OnnxModel m;
  m.input("x", {"?", "?", "batch"}).node("Relu", {"x"}, {"y"}).output("y");
  EXPECT_EQ(output_type(m.import()), "f32[x_0, x_1, batch]");
}

TEST(Onnx, TransposedOperandsOfGemmNeedNoTranspose) {
  OnnxModel m;
  m.input("a", {"3", "2"}).input("b", {"5", "3"});
  m.node("Gemm", {"a", "b"}, {"y"}, {{"transA", int64_t{1}}, {"transB", int64_t{1}}}).output("y");
  const auto r = m.import();
  EXPECT_EQ(output_type(r), "f32[2, 5]");
  EXPECT_THAT(text_of(r), AllOf(HasSubstr("\"k m, n k -> m n\""), Not(HasSubstr("transpose"))));
}

TEST(Onnx, MatMulBroadcastsItsLeadingAxesAndTakesVectors) {
  const auto type = [](Strings a, Strings b) {
    OnnxModel m;
    m.input("a", a).input("b", b).node("MatMul", {"a", "b"}, {"y"}).output("y");
    return output_type(m.import());
  };
  EXPECT_EQ(type({"2", "3"}, {"3", "4"}), "f32[2, 4]");
  EXPECT_EQ(type({"7", "1", "2", "3"}, {"5", "3", "4"}), "f32[7, 5, 2, 4]");
  EXPECT_EQ(type({"3"}, {"3", "4"}), "f32[4]");
  EXPECT_EQ(type({"8", "2", "3"}, {"3"}), "f32[8, 2]");
  EXPECT_EQ(type({"3"}, {"3"}), "f32");
  EXPECT_THAT(type({"2", "1"}, {"3", "4"}), HasSubstr("cannot be multiplied"));
  EXPECT_THAT(type({}, {"3", "4"}), HasSubstr("scalar"));
}

TEST(Onnx, ShapeArithmeticIsComputedSymbolically) {
  // reshape(x, concat(shape(x)[0:1], shape(x)[1:2] * 2, -1)), as exporters write it.
  OnnxModel m;
  m.input("x", {"batch", "length", "6"});
  m.node("Shape", {"x"}, {"s"});
  m.scalar_int("zero", 0).scalar_int("one", 1).ints("two", {2}).ints("rest", {-1}).ints("front", {0});
  m.node("Gather", {"s", "zero"}, {"n"}).node("Unsqueeze", {"n", "front"}, {"n1"});
  m.node("Gather", {"s", "one"}, {"l"}).node("Unsqueeze", {"l", "front"}, {"l1"}).node("Mul", {"l1", "two"}, {"l2"});
  m.node("Concat", {"n1", "l2", "rest"}, {"to"}, {{"axis", int64_t{0}}});
  m.node("Reshape", {"x", "to"}, {"y"}).output("y");
  const auto r = m.import();
  EXPECT_EQ(output_type(r), "f32[batch, 2*length, 3]");
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(r->node_count(), 2u) << text_of(r);  // the input and the reshape: no arithmetic on shapes is left
}

TEST(Onnx, ExtentsThatReachTheOutputAreComputedAtRunTime) {
  OnnxModel m;
  m.input("x", {"batch", "3"}).node("Shape", {"x"}, {"y"}).output("y");
  const auto r = m.import();
  EXPECT_EQ(output_type(r), "i64[2]");
  EXPECT_THAT(text_of(r), HasSubstr("extent("));
}

TEST(Onnx, NamedDimensionsCanBeGivenValues) {
  OnnxModel m;
  m.input("x", {"batch", "seq len"}).node("Relu", {"x"}, {"y"}).output("y");
  EXPECT_EQ(output_type(m.import()), "f32[batch, seq_len]");
  OnnxOptions options;
  options.dims = {{"seq_len", 17}};
  EXPECT_EQ(output_type(m.import("", options)), "f32[batch, 17]");
}

TEST(Onnx, SoftmaxBeforeOpset13JoinsTheTrailingAxes) {
  OnnxModel old(11), now(13);
  for (OnnxModel* m : {&old, &now}) m->input("x", {"2", "3", "4"}).node("Softmax", {"x"}, {"y"}).output("y");
  EXPECT_THAT(text_of(old.import()),
              AllOf(HasSubstr("reshape(x, shape=[2, 12])"), HasSubstr("axis=1"), HasSubstr("shape=[2, 3, 4]")));
  EXPECT_THAT(text_of(now.import()), AllOf(HasSubstr("softmax(x, axis=2)"), Not(HasSubstr("reshape"))));
}

TEST(Onnx, AxesComeAsAttributeOrOperand) {
  OnnxModel old(11), now(18);
  old.input("x", {"2", "3", "4"})
      .node("ReduceMean", {"x"}, {"y"}, {{"axes", std::vector<int64_t>{-1}}, {"keepdims", int64_t{0}}});
  now.input("x", {"2", "3", "4"}).ints("a", {-1}).node("ReduceMean", {"x", "a"}, {"y"}, {{"keepdims", int64_t{0}}});
  for (OnnxModel* m : {&old, &now}) {
    m->output("y");
    EXPECT_EQ(output_type(m->import()), "f32[2, 3]");
  }
  OnnxModel all(18);
  all.input("x", {"2", "3"}).node("ReduceMax", {"x"}, {"y"}).output("y");
  EXPECT_EQ(output_type(all.import()), "f32[1, 1]");
}

TEST(Onnx, SlicesClampTheirBoundsAndRunBackwards) {
  const auto type = [](int64_t from, int64_t to, int64_t step) {
    OnnxModel m;
    m.input("x", {"10", "n"}).ints("f", {from}).ints("t", {to}).ints("a", {0}).ints("s", {step});
    m.node("Slice", {"x", "f", "t", "a", "s"}, {"y"}).output("y");
    return output_type(m.import());
  };
  EXPECT_EQ(type(2, 7, 1), "f32[5, n]");
  EXPECT_EQ(type(-3, INT64_MAX, 1), "f32[3, n]");
  EXPECT_EQ(type(0, 100, 3), "f32[4, n]");
  EXPECT_EQ(type(7, 2, 1), "f32[0, n]");
  EXPECT_EQ(type(-1, INT64_MIN, -1), "f32[10, n]");
  EXPECT_EQ(type(8, 2, -2), "f32[3, n]");
  EXPECT_THAT(type(0, 1, 0), HasSubstr("no step"));
}

TEST(Onnx, ViewsKeepToTheirShapes) {
  OnnxModel m;
  m.input("x", {"2", "1", "6"});
  m.ints("one", {1}).ints("parts", {2, 4}).ints("wide", {2, 5, 6}).ints("two", {1, 2, 3});
  m.node("Squeeze", {"x", "one"}, {"squeezed"})
      .node("Transpose", {"x"}, {"turned"})
      .node("Expand", {"x", "wide"}, {"wider"});
  m.node("Split", {"x", "parts"}, {"left", "right"}, {{"axis", int64_t{2}}}).node("Tile", {"x", "two"}, {"tiled"});
  m.node("Flatten", {"x"}, {"flat"}).node("Concat", {"x", "x"}, {"joined"}, {{"axis", int64_t{-2}}});
  for (const char* name : {"squeezed", "turned", "wider", "left", "right", "tiled", "flat", "joined"}) m.output(name);
  const auto r = m.import();
  ASSERT_TRUE(r.ok()) << text_of(r);
  Strings types;
  for (size_t i = 0; i < 8; ++i) types.push_back(output_type(r, i));
  EXPECT_THAT(types, ElementsAre("f32[2, 6]", "f32[6, 1, 2]", "f32[2, 5, 6]", "f32[2, 1, 2]", "f32[2, 1, 4]",
                                 "f32[2, 2, 18]", "f32[2, 6]", "f32[2, 2, 6]"));
}

TEST(Onnx, ACausalMaskBecomesAComparisonOfPositions) {
  OnnxModel m;
  m.input("s", {"4", "4"})
      .floats("ones", {4, 4}, std::vector<float>(16, 1))
      .floats("zero", {}, {0})
      .floats("low", {}, {-1e9f});
  m.node("Trilu", {"ones"}, {"tri"}, {{"upper", int64_t{0}}}).node("Equal", {"tri", "zero"}, {"above"});
  m.node("Where", {"above", "low", "zero"}, {"mask"}).node("Add", {"s", "mask"}, {"y"}).output("y");
  const std::string text = text_of(m.import());
  EXPECT_THAT(text, AllOf(HasSubstr("iota"), HasSubstr("le("), Not(HasSubstr("const")), Not(HasSubstr("eq("))));
}

TEST(Onnx, EinsumContractsFromLeftToRight) {
  OnnxModel m;
  m.input("a", {"2", "3", "4"}).input("b", {"4", "5"}).input("c", {"5", "6"});
  m.node("Einsum", {"a", "b", "c"}, {"y"}, {{"equation", "...k, kj, jn -> ...n"}});
  m.node("Einsum", {"a"}, {"z"}, {{"equation", "abc->ca"}}).node("Einsum", {"b", "c"}, {"w"}, {{"equation", "ij,jk"}});
  m.output("y").output("z").output("w");
  const auto r = m.import();
  EXPECT_EQ(output_type(r), "f32[2, 3, 6]");
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(output_type(r, 1), "f32[4, 2]");
  EXPECT_EQ(output_type(r, 2), "f32[4, 6]");
  OnnxModel diagonal;
  diagonal.input("a", {"3", "3"}).node("Einsum", {"a"}, {"y"}, {{"equation", "ii->i"}}).output("y");
  EXPECT_EQ(output_type(diagonal.import()), "f32[3]");
}

TEST(Onnx, AttentionBecomesOneOperator) {
  OnnxModel m(23);
  m.input("q", {"2", "5", "32"}).input("k", {"2", "7", "16"}).input("v", {"2", "7", "16"});
  m.node("Attention", {"q", "k", "v"}, {"y"},
         {{"q_num_heads", int64_t{4}}, {"kv_num_heads", int64_t{2}}, {"is_causal", int64_t{1}}});
  m.output("y");
  const auto r = m.import();
  EXPECT_EQ(output_type(r), "f32[2, 5, 32]");
  EXPECT_THAT(text_of(r), AllOf(HasSubstr("sdpa("), HasSubstr("causal=\"start\"")));
}

TEST(Onnx, AnUnknownAttributeIsRefusedAndNotIgnored) {
  OnnxModel m(25);
  m.input("q", {"1", "1", "5", "4"});
  m.node("Attention", {"q", "q", "q"}, {"y"}, {{"sinks", int64_t{2}}}).output("y");
  EXPECT_THAT(text_of(m.import()), HasSubstr("attribute `sinks` is not supported"));
}

TEST(Onnx, PastKeysAndValuesAreJoinedAndReturned) {
  OnnxModel m(23);
  m.input("q", {"2", "4", "1", "8"}).input("k", {"2", "2", "1", "8"}).input("past", {"2", "2", "n", "8"});
  m.node("Attention", {"q", "k", "k", "", "past", "past"}, {"y", "keys", "values"}).output("y").output("keys");
  const auto r = m.import();
  EXPECT_EQ(output_type(r), "f32[2, 4, 1, 8]");
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(output_type(r, 1), "f32[2, 2, n + 1, 8]");
}

TEST(Onnx, ImportedGraphsPrintAndReadBackEqual) {
  // Names that are keywords of the text, constants that appear late, integers that become constants.
  OnnxModel m;
  m.input("input", {"2", "n"}).floats("const", {2, 1}, {1, 2}).ints("to", {7, 3, 5});
  m.node("Mul", {"input", "const"}, {"output"}).node("Shape", {"input"}, {"in"}).node("Identity", {"to"}, {"nan"});
  m.output("output").output("in").output("nan");
  const auto r = m.import();
  ASSERT_TRUE(r.ok()) << text_of(r);
  const SourceText printed{"printed.graph", graph::print(*r)};
  const auto again = graph::parse(printed);
  ASSERT_TRUE(again.ok()) << render(again.errors(), &printed);
  EXPECT_TRUE(graph::equal(*r, *again)) << printed.text;
}

TEST(Onnx, AllUnsupportedOperatorsAreReportedAtOnce) {
  OnnxModel m;
  m.input("x", {"2"})
      .node("LSTM", {"x"}, {"a"})
      .node("Relu", {"a"}, {"b"})
      .node("LSTM", {"b"}, {"c"})
      .node("NonZero", {"c"}, {"y"});
  m.node("Unique", {"x"}, {"unused"}).output("y");
  m.graph().mutable_node(3)->set_domain("com.example");
  const auto r = m.import();
  ASSERT_FALSE(r.ok());
  ASSERT_EQ(r.errors().size(), 1u);
  EXPECT_EQ(info(r.errors()[0].code).number, 3012);
  EXPECT_EQ(r.errors()[0].message(), "3 of the model's operators are not supported: `LSTM`, `com.example::NonZero`");
  EXPECT_THAT(r.errors()[0].notes,
              ElementsAre("`LSTM`: 2 nodes (`LSTM_1`, `LSTM_3`)", "`com.example::NonZero`: 1 node (`NonZero_4`)"));
}

TEST(Onnx, TypedAndRawTensorsOfEveryDtypeAreRead) {
  OnnxModel m;
  struct Case {
    int type;
    const char* expected;
  };
  const std::vector<Case> cases = {{onnx::TensorProto::DOUBLE, "f64[2]"},  {onnx::TensorProto::FLOAT, "f32[2]"},
                                   {onnx::TensorProto::FLOAT16, "f16[2]"}, {onnx::TensorProto::BFLOAT16, "bf16[2]"},
                                   {onnx::TensorProto::INT64, "i64[2]"},   {onnx::TensorProto::INT32, "i32[2]"},
                                   {onnx::TensorProto::UINT8, "u8[2]"},    {onnx::TensorProto::BOOL, "bool[2]"}};
  for (const Case& c : cases) {
    const std::string name = "t" + std::to_string(c.type);
    auto* t = m.tensor(name, {2}, c.type);
    switch (c.type) {
      case onnx::TensorProto::DOUBLE: t->add_double_data(1), t->add_double_data(2); break;
      case onnx::TensorProto::FLOAT: t->add_float_data(1), t->add_float_data(2); break;
      case onnx::TensorProto::INT64: t->add_int64_data(1), t->add_int64_data(3); break;
      default: t->add_int32_data(1), t->add_int32_data(0); break;
    }
    m.node("Identity", {name}, {"o" + name}).output("o" + name);
  }
  const auto r = m.import();
  ASSERT_TRUE(r.ok()) << text_of(r);
  for (size_t i = 0; i < cases.size(); ++i) EXPECT_EQ(output_type(r, i), cases[i].expected);
  // f64 1, 2: the bytes themselves.
  const auto& data = r->producer(r->outputs()[0].value).attributes.get<graph::ConstantData>("data");
  double values[2];
  std::memcpy(values, data.bytes->data(), 16);
  EXPECT_EQ(values[0], 1.0);
  EXPECT_EQ(values[1], 2.0);
}

class OnnxFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / ("onnx_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_ / "model");
    std::ofstream(folder_ / "secret.bin") << std::string(64, 'x');
    std::ofstream(folder_ / "model" / "weights.bin") << std::string(64, 'w');
    std::filesystem::create_symlink("../secret.bin", folder_ / "model" / "link.bin");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string import(const std::string& location, const std::string& offset, const std::string& length,
                     int64_t extent = 4) {
    OnnxModel m;
    m.input("x", {"4"});
    auto* t = m.tensor("w", {extent}, onnx::TensorProto::FLOAT);
    t->set_data_location(onnx::TensorProto::EXTERNAL);
    for (const auto& [key, value] : {std::pair{"location", location}, {"offset", offset}, {"length", length}}) {
      if (value.empty()) continue;
      auto* e = t->add_external_data();
      e->set_key(key);
      e->set_value(value);
    }
    m.node("Add", {"x", "w"}, {"y"}).output("y");
    return text_of(m.import(folder_ / "model"));
  }

  std::filesystem::path folder_;
};

TEST_F(OnnxFolder, ExternalDataIsReadFromBesideTheModel) {
  EXPECT_THAT(import("weights.bin", "16", "16"), HasSubstr("add(x"));
  EXPECT_THAT(import("weights.bin", "", ""), HasSubstr("add(x"));
}

TEST_F(OnnxFolder, ExternalDataCannotLeaveTheFolder) {
  for (const char* path : {"../secret.bin", "a/../../secret.bin", "/etc/passwd", "link.bin"}) {
    EXPECT_THAT(import(path, "0", "16"), HasSubstr("CLV3006")) << path;
    EXPECT_THAT(import(path, "0", "16"), Not(HasSubstr("add("))) << path;
  }
  EXPECT_THAT(import("link.bin", "0", "16"), HasSubstr("outside the model's folder"));
}

TEST_F(OnnxFolder, ExternalDataThatDoesNotFitIsAnError) {
  EXPECT_THAT(import("missing.bin", "0", "16"), HasSubstr("cannot be found"));
  EXPECT_THAT(import("weights.bin", "60", "16"), HasSubstr("cannot be read"));
  EXPECT_THAT(import("weights.bin", "0", "20"), HasSubstr("its shape needs 16"));
  EXPECT_THAT(import("weights.bin", "-4", "16"), HasSubstr("no byte count"));
  EXPECT_THAT(import("weights.bin", "99999999999999999999", "16"), HasSubstr("no byte count"));
  EXPECT_THAT(import("weights.bin", "0", "", int64_t{1} << 38), HasSubstr("exceed"));
  EXPECT_THAT(import(".", "0", "16"), HasSubstr("not a regular file"));
}

TEST(Onnx, TheExampleBlockIsFoundReadableWithoutItsWeights) {
  const auto r = import_onnx(std::string(CLEAVE_SOURCE_DIR) + "/tests/data/gpt2_block_dynamic.onnx");
  ASSERT_FALSE(r.ok());  // its weights are not beside it
  EXPECT_EQ(r.errors()[0].code, Code::onnx_external_data);
}

TEST(Onnx, EveryOperatorOfTheTableIsListed) {
  const auto names = onnx_operators();
  EXPECT_GT(names.size(), 90u);
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

}  // namespace
}  // namespace cleave
