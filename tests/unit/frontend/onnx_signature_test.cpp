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

TEST(OnnxSignature, AnAttributeTwiceIsRefused) {
  OnnxModel m;
  m.input("x", {"2", "3"});
  m.node("Softmax", {"x"}, {"y"}, {{"axis", int64_t{0}}, {"axis", int64_t{1}}}).output("y");
  EXPECT_THAT(render(m.import().errors(), nullptr), HasSubstr("`axis` is given twice"));
}

}  // namespace
}  // namespace cleave
