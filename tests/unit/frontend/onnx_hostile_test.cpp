// Models that are wrong on purpose: each gets an error, quickly, and nothing large is allocated.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.hpp"
#include "unit/frontend/onnx_model.hpp"

namespace cleave {
namespace {

using ::testing::HasSubstr;

std::string errors_of(const Result<graph::Graph>& r) { return r.ok() ? "no error" : render(r.errors(), nullptr); }

// A small model with most kinds of messages.
OnnxModel valid_model() {
  OnnxModel m;
  m.input("x", {"batch", "8"})
      .floats("w", {8, 4}, std::vector<float>(32, 0.5f))
      .floats("b", {4}, {1, 2, 3, 4})
      .ints("to", {-1, 2, 2});
  m.node("MatMul", {"x", "w"}, {"p"})
      .node("Add", {"p", "b"}, {"q"})
      .node("Softmax", {"q"}, {"r"}, {{"axis", int64_t{-1}}});
  m.node("Reshape", {"r", "to"}, {"y"}).output("y");
  return m;
}

TEST(OnnxHostile, EveryTruncationIsAnErrorAndNotACrash) {
  const std::string bytes = valid_model().bytes();
  ASSERT_TRUE(OnnxModel::import_text(bytes).ok()) << errors_of(OnnxModel::import_text(bytes));
  for (size_t size = 0; size < bytes.size(); ++size) {
    const auto r = OnnxModel::import_text(bytes.substr(0, size));
    // The opset is written last: a cut between whole fields is malformed in meaning.
    EXPECT_FALSE(r.ok()) << size;
  }
}

TEST(OnnxHostile, RandomChangesNeverCrash) {
  const std::string bytes = valid_model().bytes();
  Rng rng(7);
  int fine = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string changed = bytes;
    for (uint64_t k = 0; k <= rng.below(3); ++k) changed[rng.below(changed.size())] = static_cast<char>(rng.below(256));
    const auto r = OnnxModel::import_text(changed);
    if (r.ok()) {
      EXPECT_TRUE(graph::verify(*r).empty());
      ++fine;
    }
  }
  EXPECT_GT(fine, 100);  // names and weights may change without harm: the changes reach past the first check
}

TEST(OnnxHostile, TextIsNoModel) {
  EXPECT_THAT(errors_of(OnnxModel::import_text("")), HasSubstr("empty"));
  EXPECT_THAT(errors_of(OnnxModel::import_text("this is not a model at all")), HasSubstr("CLV3004"));
  EXPECT_THAT(errors_of(OnnxModel::import_text(std::string(1'000'000, '{'))), HasSubstr("CLV3004"));
}

TEST(OnnxHostile, CyclesAreNamed) {
  OnnxModel m;
  m.input("x", {"2"}).node("Add", {"x", "c"}, {"a"}).node("Relu", {"a"}, {"b"}).node("Neg", {"b"}, {"c"}).output("c");
  EXPECT_THAT(errors_of(m.import()), HasSubstr("cycle through node `"));
  OnnxModel self;
  self.node("Relu", {"y"}, {"y"}).output("y");
  EXPECT_THAT(errors_of(self.import()), HasSubstr("cycle"));
}

TEST(OnnxHostile, NodesOutOfOrderAreSorted) {
  OnnxModel m;
  m.input("x", {"2"}).node("Neg", {"a"}, {"y"}).node("Relu", {"x"}, {"a"}).output("y");
  EXPECT_EQ(errors_of(m.import()), "no error");
}

TEST(OnnxHostile, UndefinedAndDoubleNamesAreErrors) {
  OnnxModel m;
  m.input("x", {"2"}).node("Add", {"x", "nowhere"}, {"y"}).output("y");
  EXPECT_THAT(errors_of(m.import()), HasSubstr("reads `nowhere`, which nothing defines"));
  OnnxModel twice;
  twice.input("x", {"2"}).node("Relu", {"x"}, {"y"}).node("Neg", {"x"}, {"y"}).output("y");
  EXPECT_THAT(errors_of(twice.import()), HasSubstr("`y` is defined twice"));
  OnnxModel none;
  none.input("x", {"2"}).node("Relu", {"x"}, {"y"});
  EXPECT_THAT(errors_of(none.import()), HasSubstr("no output"));
}

TEST(OnnxHostile, HugeShapesAreRefused) {
  OnnxModel input;
  input.input("x", {"1099511627776", "1099511627776"}).node("Relu", {"x"}, {"y"}).output("y");
  EXPECT_THAT(errors_of(input.import()), HasSubstr("larger than"));

  OnnxModel filled;
  filled.ints("shape", {int64_t{1} << 40, int64_t{1} << 40}).node("ConstantOfShape", {"shape"}, {"y"}).output("y");
  EXPECT_THAT(errors_of(filled.import()), HasSubstr("error"));

  OnnxModel range;
  range.scalar_int("a", 0)
      .scalar_int("b", INT64_MAX)
      .scalar_int("c", 1)
      .node("Range", {"a", "b", "c"}, {"y"})
      .output("y");
  EXPECT_THAT(errors_of(range.import()), HasSubstr("error"));

  OnnxModel tensor;
  tensor.tensor("w", {int64_t{1} << 62, int64_t{1} << 62}, onnx::TensorProto::FLOAT);
  tensor.node("Relu", {"w"}, {"y"}).output("y");
  EXPECT_THAT(errors_of(tensor.import()), HasSubstr("more than"));

  OnnxModel promised;
  promised.tensor("w", {1'000'000'000}, onnx::TensorProto::FLOAT)->set_raw_data("abcd");
  promised.node("Relu", {"w"}, {"y"}).output("y");
  EXPECT_THAT(errors_of(promised.import()), HasSubstr("holds 4 bytes"));

  OnnxModel tiled;
  tiled.input("x", {"1000000"}).ints("n", {int64_t{1} << 50}).node("Tile", {"x", "n"}, {"y"}).output("y");
  EXPECT_THAT(errors_of(tiled.import()), HasSubstr("error"));
}

TEST(OnnxHostile, NegativeAndWrongSizesAreErrors) {
  OnnxModel negative;
  negative.tensor("w", {-4}, onnx::TensorProto::FLOAT);
  negative.node("Relu", {"w"}, {"y"}).output("y");
  EXPECT_THAT(errors_of(negative.import()), HasSubstr("negative"));

  const auto reshape = [](std::vector<int64_t> to) {
    OnnxModel m;
    m.input("x", {"4", "6"}).ints("to", to).node("Reshape", {"x", "to"}, {"y"}).output("y");
    return errors_of(m.import());
  };
  EXPECT_EQ(reshape({-1, 8}), "no error");
  EXPECT_THAT(reshape({-1, -1}), HasSubstr("two extents are -1"));
  EXPECT_THAT(reshape({-1, 5}), HasSubstr("cannot become"));
  EXPECT_THAT(reshape({-7, 2}), HasSubstr("negative"));
  EXPECT_THAT(reshape({0, 0, 0}), HasSubstr("copied"));
  EXPECT_THAT(reshape({INT64_MIN, INT64_MAX}), HasSubstr("error"));
  EXPECT_THAT(reshape(std::vector<int64_t>(100, 1)), HasSubstr("error"));

  const auto gather = [](int64_t index) {
    OnnxModel m;
    m.input("x", {"4", "6"}).scalar_int("i", index).node("Gather", {"x", "i"}, {"y"}).output("y");
    return errors_of(m.import());
  };
  EXPECT_EQ(gather(-4), "no error");
  EXPECT_THAT(gather(4), HasSubstr("outside an extent of 4"));
  EXPECT_THAT(gather(INT64_MIN), HasSubstr("outside an extent of 4"));
}

TEST(OnnxHostile, WrongRanksTypesAndCountsAreErrors) {
  const auto one = [](const char* op, std::vector<std::string> operands,
                      std::vector<std::pair<std::string, OnnxAttribute>> attributes = {}) {
    OnnxModel m;
    m.input("x", {"2", "3"})
        .input("v", {"5"})
        .input("b", {"2", "3"}, onnx::TensorProto::BOOL)
        .input("i", {"2"}, onnx::TensorProto::INT64);
    m.node(op, operands, {"y"}, attributes).output("y");
    return errors_of(m.import());
  };
  EXPECT_THAT(one("Add", {"x"}), HasSubstr("1 operands, 2 are needed"));
  EXPECT_THAT(one("Add", {"x", ""}), HasSubstr("operands"));
  EXPECT_THAT(one("Add", {"x", "v"}), HasSubstr("do not broadcast"));
  EXPECT_THAT(one("MatMul", {"x", "x"}), HasSubstr("cannot be multiplied"));
  EXPECT_THAT(one("Softmax", {"x"}, {{"axis", int64_t{2}}}), HasSubstr("axis 2"));
  EXPECT_THAT(one("Softmax", {"i"}), HasSubstr("error"));
  EXPECT_THAT(one("Transpose", {"x"}, {{"perm", std::vector<int64_t>{0, 0}}}), HasSubstr("perm"));
  EXPECT_THAT(one("Transpose", {"x"}, {{"perm", std::vector<int64_t>{-1, INT64_MAX}}}), HasSubstr("perm"));
  EXPECT_THAT(one("Concat", {"x", "v"}), HasSubstr("error"));
  EXPECT_THAT(one("Cast", {"x"}, {{"to", int64_t{17}}}), HasSubstr("FLOAT8E4M3FN"));
  EXPECT_THAT(one("Cast", {"x"}, {{"to", INT64_MAX}}), HasSubstr("not supported"));
  EXPECT_THAT(one("Reshape", {"x", "i"}), HasSubstr("computed at run time"));
  EXPECT_THAT(one("LayerNormalization", {"x", "v"}), HasSubstr("error"));
  EXPECT_THAT(one("Einsum", {"x"}, {{"equation", "->->"}}), HasSubstr("error"));
  EXPECT_THAT(one("Einsum", {"x"}, {{"equation", "ab->c"}}), HasSubstr("in no operand"));
  EXPECT_THAT(one("Attention", {"x", "x", "x"}), HasSubstr("error"));
  EXPECT_THAT(one("Split", {"x"}, {{"axis", INT64_MIN}}), HasSubstr("axis"));
}

TEST(OnnxHostile, ManySmallMessagesAreCountedBeforeTheyAreAllocated) {
  // Three million empty nodes in six megabytes.
  OnnxModel m = valid_model();
  std::string graph_field;
  for (int i = 0; i < 3'000'000; ++i) graph_field += std::string("\x0a\x00", 2);
  std::string bytes("\x3a", 1);
  for (uint64_t n = graph_field.size();; n >>= 7) {
    bytes += static_cast<char>((n & 127) | (n > 127 ? 128 : 0));
    if (n < 128) break;
  }
  bytes += graph_field;
  OnnxOptions options;
  options.max_items = 1'000'000;
  EXPECT_THAT(errors_of(OnnxModel::import_text(bytes, "", options)), HasSubstr("more than the limit"));
}

TEST(OnnxHostile, DeepNestingIsRefused) {
  // Graphs within attributes within graphs: model.graph.node.attribute.g.node ...
  std::string inner;
  const auto wrap = [](char tag, const std::string& content) {
    std::string out(1, tag);
    for (uint64_t n = content.size();; n >>= 7) {
      out += static_cast<char>((n & 127) | (n > 127 ? 128 : 0));
      if (n < 128) break;
    }
    return out + content;
  };
  for (int i = 0; i < 2000; ++i) inner = wrap('\x0a', wrap('\x2a', wrap('\x32', inner)));
  EXPECT_THAT(errors_of(OnnxModel::import_text(wrap('\x3a', inner))), HasSubstr("CLV3004"));
}

TEST(OnnxHostile, LongAndOddNamesAreShownSafely) {
  OnnxModel m;
  m.input("x", {"2"}).node("Add", {"x", std::string(10'000'000, 'n') + "\x1b[2J"}, {"y"}).output("y");
  const std::string text = errors_of(m.import());
  EXPECT_LT(text.size(), 500u);
  OnnxModel escape;
  escape.input("x", {"2"}).node("Add", {"x", "\x1b[2J\n"}, {"y"}).output("y");
  EXPECT_EQ(errors_of(escape.import()).find('\x1b'), std::string::npos);
}

TEST(OnnxHostile, OldOpsetsAndMissingOnesAreErrors) {
  OnnxModel old(6);
  old.input("x", {"2"}).node("Add", {"x", "x"}, {"y"}).output("y");
  EXPECT_THAT(errors_of(old.import()), HasSubstr("opset 6"));
  OnnxModel same(6);  // means the same since its first opset
  same.input("x", {"2"}).node("Relu", {"x"}, {"y"}).output("y");
  EXPECT_TRUE(same.import().ok());
  OnnxModel none;
  none.proto().clear_opset_import();
  none.input("x", {"2"}).node("Relu", {"x"}, {"y"}).output("y");
  EXPECT_THAT(errors_of(none.import()), HasSubstr("no opset"));
}

}  // namespace
}  // namespace cleave
