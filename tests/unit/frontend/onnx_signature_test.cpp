// What ONNX forbids is refused with the node and a way out, over all operators: mixed and wrong element types,
// attributes of another kind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/codes.hpp"
#include "frontend/onnx_context.hpp"
#include "frontend/onnx_tensor.hpp"
#include "unit/frontend/onnx_model.hpp"

namespace cleave {
namespace {

using onnx_import::OperatorRow;
using onnx_import::type_fits;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kTypes[] = {onnx::TensorProto::FLOAT, onnx::TensorProto::DOUBLE, onnx::TensorProto::INT64,
                          onnx::TensorProto::INT32, onnx::TensorProto::UINT8,  onnx::TensorProto::BOOL};

char letter_of(const OperatorRow& row, size_t operand) { return row.types[std::min(operand, row.types.size() - 1)]; }

// Types of the operands that the signature allows.
std::vector<int> allowed_types(const OperatorRow& row, size_t count) {
  std::vector<int> out;
  for (size_t i = 0; i < count; ++i)
    for (const int type : kTypes)
      if (type_fits(letter_of(row, i), *onnx_import::dtype_of(type))) {
        out.push_back(type);
        break;
      }
  return out;
}

std::string errors_of(const OperatorRow& row, const std::vector<int>& types,
                      const std::vector<std::pair<std::string, OnnxAttribute>>& attributes = {}) {
  OnnxModel m(23);
  m.proto().add_opset_import()->set_domain(row.domain);
  std::vector<std::string> names;
  for (size_t i = 0; i < types.size(); ++i) {
    names.push_back("x" + std::to_string(i));
    m.input(names.back(), {"2", "3"}, types[i]);
  }
  m.node(row.name, names, {"y"}, attributes).output("y");
  m.graph().mutable_node(0)->set_domain(row.domain);
  const auto g = m.import();
  return g.ok() ? "" : render(g.errors(), nullptr);
}

TEST(OnnxSignature, OperandsOfWrongAndOfMixedTypesAreRefusedOverAllOperators) {
  size_t wrong = 0, mixed = 0;
  for (const OperatorRow& row : onnx_import::operator_rows()) {
    if (row.types.empty()) continue;
    ASSERT_TRUE(row.types.size() <= row.max_inputs && row.types.size() >= row.min_inputs) << row.name;
    const size_t count = std::max<size_t>(row.min_inputs, row.max_inputs > 10 ? 2 : row.max_inputs);
    const std::vector<int> allowed = allowed_types(row, count);
    for (size_t i = 0; i < count; ++i) {
      const char letter = letter_of(row, i);
      const std::string said = fmt::format("node `{}_1`", row.name), operand = fmt::format("operand {} is", i);
      for (const int type : kTypes) {
        auto types = allowed;
        types[i] = type;
        if (!type_fits(letter, *onnx_import::dtype_of(type))) {
          ++wrong;
          EXPECT_THAT(errors_of(row, types), AllOf(HasSubstr(said), HasSubstr(operand), HasSubstr("Cast"))) << row.name;
        } else if (type != allowed[i] && i > 0 && letter_of(row, 0) == letter) {
          ++mixed;
          EXPECT_THAT(errors_of(row, types), AllOf(HasSubstr(said), HasSubstr("one type for both"), HasSubstr("Cast")))
              << row.name;
        }
      }
    }
  }
  EXPECT_GT(wrong, 400u);
  EXPECT_GT(mixed, 100u);
}

TEST(OnnxSignature, AttributesOfAnotherKindAreRefusedOverAllOperators) {
  using Kind = onnx::AttributeProto;
  size_t tried = 0;
  for (const OperatorRow& row : onnx_import::operator_rows()) {
    const std::vector<int> types = row.types.empty() ? std::vector<int>(row.min_inputs, onnx::TensorProto::FLOAT)
                                                     : allowed_types(row, row.min_inputs);
    for (std::string_view names = row.attributes; !names.empty();) {
      const size_t end = names.find(' ');
      const std::string name(names.substr(0, end));
      names.remove_prefix(end == std::string_view::npos ? names.size() : end + 1);
      const auto kind = onnx_import::attribute_type(name);
      if (name != "value") EXPECT_NE(kind, Kind::UNDEFINED) << row.name << " " << name;
      const std::vector<std::pair<int, OnnxAttribute>> values = {
          {Kind::INT, int64_t{1}}, {Kind::FLOAT, 1.0f}, {Kind::STRING, "x"}, {Kind::INTS, std::vector<int64_t>{1}}};
      for (const auto& [type, value] : values) {
        if (type == kind || name == "value") continue;
        ++tried;
        EXPECT_THAT(errors_of(row, types, {{name, value}}),
                    AllOf(HasSubstr("node `"), HasSubstr(fmt::format("its attribute `{}` is not a", name))));
      }
    }
  }
  EXPECT_GT(tried, 500u);
}

std::string said(const OnnxModel& m) {
  const auto g = m.import();
  return g.ok() ? "" : render(g.errors(), nullptr);
}

// Extents of 1 would be stretched, and picks would read elsewhere, where ONNX wants equal extents.
TEST(OnnxSignature, ExtentsThatOnlyBroadcastAreRefused) {
  OnnxModel norm(15);
  norm.input("x", {"2", "3", "4"}).input("s", {"3"}).input("m", {"1"});
  norm.node("BatchNormalization", {"x", "s", "s", "m", "s"}, {"y"}, {{"training_mode", int64_t{1}}}).output("y");
  EXPECT_THAT(said(norm), HasSubstr("the channel axis has the extents 1 and 3"));
  OnnxModel grid(20);
  grid.input("x", {"1", "1", "4", "4"})
      .input("g", {"7", "2", "2", "2"})
      .node("GridSample", {"x", "g"}, {"y"})
      .output("y");
  EXPECT_THAT(said(grid), HasSubstr("the batch axis has the extents 1 and 7"));
  OnnxModel loss(13);
  loss.input("x", {"3", "5"}).input("t", {"1"}, onnx::TensorProto::INT64);
  loss.node("NegativeLogLikelihoodLoss", {"x", "t"}, {"y"}).output("y");
  EXPECT_THAT(said(loss), HasSubstr("scores and targets has the extents 3 and 1"));
  OnnxModel cache(24);
  cache.input("c", {"2", "1", "4", "5"}).input("u", {"2", "1", "1", "1"});
  cache.node("TensorScatter", {"c", "u"}, {"y"}).output("y");
  EXPECT_THAT(said(cache), HasSubstr("cache and update has the extents 5 and 1"));
  OnnxModel turned(10);
  turned.input("x", {"4", "4"}).input("n", {}, onnx::TensorProto::INT64);
  turned.node("ReverseSequence", {"x", "n"}, {"y"}).output("y");
  EXPECT_THAT(said(turned), HasSubstr("its lengths are no list"));
}

TEST(OnnxSignature, AttributesOutOfRangeAreRefused) {
  const auto refused = [](const std::string& op, const std::vector<std::string>& extents,
                          const std::vector<std::pair<std::string, OnnxAttribute>>& attributes, const char* why,
                          std::vector<std::string> results = {"y"}) {
    OnnxModel m(17);
    m.input("x", extents).node(op, {"x"}, results, attributes);
    for (const std::string& r : results) m.output(r);
    EXPECT_THAT(said(m), AllOf(HasSubstr(fmt::format("node `{}_1`", op)), HasSubstr(why)));
  };
  using Ints = std::vector<int64_t>;
  refused("Transpose", {"3"}, {{"perm", Ints{3}}}, "`perm` [3] is no order of 1 axes");
  refused("Transpose", {"3", "4"}, {{"perm", Ints{0}}}, "no order of 2 axes");
  refused("Transpose", {"3", "4"}, {{"perm", Ints{1, 1}}}, "no order of 2 axes");
  refused("Transpose", {"3", "4"}, {{"perm", Ints{1, -2}}}, "no order of 2 axes");
  refused("Concat", {"3"}, {}, "`axis` is missing");
  refused("Split", {"7"}, {}, "an axis of 7 has no 2 equal parts", {"y", "z"});
  refused("DFT", {"1", "8", "2"}, {{"onesided", int64_t{1}}}, "half a spectrum is that of real numbers");
  OnnxModel conv(11);
  conv.input("x", {"1", "1", "5", "5"}).input("w", {"1", "1", "3", "3"});
  conv.node("ConvTranspose", {"x", "w"}, {"y"}, {{"kernel_shape", Ints{3}}}).output("y");
  EXPECT_THAT(said(conv), HasSubstr("`kernel_shape` is not the shape of its weights"));
  OnnxModel masked(23);
  masked.input("q", {"1", "2", "3", "4"}).input("m", {}).node("Attention", {"q", "q", "q", "m"}, {"y"}).output("y");
  EXPECT_THAT(said(masked), HasSubstr("its mask has 0 axes"));
}

TEST(OnnxSignature, AnAttributeTwiceIsRefused) {
  OnnxModel m;
  m.input("x", {"2", "3"});
  m.node("Softmax", {"x"}, {"y"}, {{"axis", int64_t{0}}, {"axis", int64_t{1}}}).output("y");
  EXPECT_THAT(render(m.import().errors(), nullptr), HasSubstr("`axis` is given twice"));
}

TEST(OnnxSignature, OutputsAreWhatTheModelSaysTheyAre) {
  const auto import = [](const std::vector<std::string>& extents, int type = onnx::TensorProto::FLOAT) {
    return OnnxModel()
        .input("x", {"N", "3"})
        .input("w", {"3", "4"})
        .node("MatMul", {"x", "w"}, {"y"})
        .output("y", extents, type)
        .import();
  };
  EXPECT_TRUE(import({"N", "4"}).ok());
  EXPECT_TRUE(import({"batch", "columns"}).ok()) << "names say nothing";
  EXPECT_TRUE(import({"8", "4"}).ok()) << "N may be 8";
  EXPECT_TRUE(import({"0", "-1"}).ok()) << "not known to the exporter";
  EXPECT_TRUE(import({"N", "4"}, onnx::TensorProto::UNDEFINED).ok());
  const auto refusal = [&](const std::vector<std::string>& extents, int type = onnx::TensorProto::FLOAT) {
    const auto made = import(extents, type);
    return made.ok() ? std::string() : made.errors().at(0).message();
  };
  EXPECT_THAT(refusal({"N", "5"}), AllOf(HasSubstr("`y`"), HasSubstr("as f32[N, 5]"), HasSubstr("compute f32[N, 4]")));
  EXPECT_THAT(refusal({"4"}), HasSubstr("as f32[4], its nodes compute f32[N, 4]"));
  EXPECT_THAT(refusal({}), HasSubstr("as f32[], its nodes compute f32[N, 4]"));
  EXPECT_THAT(refusal({"N", "4"}, onnx::TensorProto::DOUBLE), HasSubstr("as f64[N, 4], its nodes compute f32[N, 4]"));
  EXPECT_THAT(refusal({"N", "4"}, onnx::TensorProto::STRING), HasSubstr("its nodes compute f32[N, 4]"));
}

}  // namespace
}  // namespace cleave
