// Functions that a model brings along are expanded where they are called.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "eval/graph_eval.hpp"
#include "unit/frontend/onnx_model.hpp"

namespace cleave {
namespace {

using ::testing::HasSubstr;

std::string text_of(const Result<graph::Graph>& r) { return r.ok() ? graph::print(*r) : render(r.errors(), nullptr); }

onnx::FunctionProto* add_function(OnnxModel& m, const std::string& name, int64_t opset = 20) {
  auto* f = m.proto().add_functions();
  f->set_domain("mine");
  f->set_name(name);
  f->add_input("a");
  f->add_output("r");
  f->add_opset_import()->set_version(opset);
  return f;
}

onnx::NodeProto* add_node(onnx::FunctionProto* f, const std::string& op, const std::string& domain,
                          std::vector<std::string> in, const std::string& out) {
  auto* n = f->add_node();
  n->set_op_type(op);
  n->set_domain(domain);
  for (const auto& i : in) n->add_input(i);
  n->add_output(out);
  return n;
}

void call(OnnxModel& m, const std::string& function, const std::string& in, const std::string& out,
          const std::vector<std::pair<std::string, OnnxAttribute>>& attributes = {}) {
  m.node(function, {in}, {out}, attributes);
  m.graph().mutable_node(m.graph().node_size() - 1)->set_domain("mine");
}

TEST(OnnxFunctions, BodiesAreExpandedWithTheirAttributes) {
  // shifted(a) = elu(a, alpha = of the call) + a, called twice: inner names must not collide.
  OnnxModel m;
  auto* f = add_function(m, "Shifted");
  auto* attribute = add_node(f, "Elu", "", {"a"}, "t")->add_attribute();
  attribute->set_name("alpha");
  attribute->set_ref_attr_name("slope");
  attribute->set_type(onnx::AttributeProto::FLOAT);
  add_node(f, "Add", "", {"t", "a"}, "r");
  m.input("x", {"2"});
  call(m, "Shifted", "x", "y", {{"slope", 0.0f}});
  call(m, "Shifted", "y", "z", {{"slope", 0.0f}});
  m.output("z");
  const auto r = m.import();
  ASSERT_TRUE(r.ok()) << text_of(r);
  const auto v =
      oracle::evaluate(*r, std::map<std::string, oracle::Tensor>{{"x", oracle::tensor(DType::f32, {2}, {-3, 5})}});
  ASSERT_TRUE(v.ok()) << render(v.errors(), nullptr);
  EXPECT_THAT(v->at(0).reals, ::testing::ElementsAre(-3, 20));
}

TEST(OnnxFunctions, FunctionsCallFunctions) {
  OnnxModel m;
  add_node(add_function(m, "Inner"), "Relu", "", {"a"}, "r");
  add_node(add_function(m, "Outer"), "Inner", "mine", {"a"}, "r");
  m.input("x", {"2"});
  call(m, "Outer", "x", "y");
  m.output("y");
  EXPECT_THAT(text_of(m.import()), HasSubstr("relu(x)"));
}

TEST(OnnxFunctions, RecursionAndExplosionsAreErrors) {
  OnnxModel self;
  add_node(add_function(self, "Loop"), "Loop", "mine", {"a"}, "r");
  self.input("x", {"2"});
  call(self, "Loop", "x", "y");
  self.output("y");
  EXPECT_THAT(text_of(self.import()), HasSubstr("levels deep"));

  // f0 is a relu, f<i> calls f<i-1> twice: 2^30 nodes.
  OnnxModel doubling;
  add_node(add_function(doubling, "f0"), "Relu", "", {"a"}, "r");
  for (int i = 1; i <= 30; ++i) {
    auto* f = add_function(doubling, "f" + std::to_string(i));
    add_node(f, "f" + std::to_string(i - 1), "mine", {"a"}, "t");
    add_node(f, "f" + std::to_string(i - 1), "mine", {"t"}, "r");
  }
  doubling.input("x", {"2"});
  call(doubling, "f30", "x", "y");
  doubling.output("y");
  EXPECT_THAT(text_of(doubling.import()), HasSubstr("CLV3011"));
}

TEST(OnnxFunctions, AttributesHaveDefaultValues) {
  for (const bool given : {false, true}) {
    OnnxModel m;
    auto* f = add_function(m, "F");
    auto* a = add_node(f, "LeakyRelu", "", {"a"}, "r")->add_attribute();
    a->set_name("alpha");
    a->set_ref_attr_name("slope");
    a->set_type(onnx::AttributeProto::FLOAT);
    onnx::AttributeProto value;
    value.set_name("slope");
    value.set_type(onnx::AttributeProto::FLOAT);
    value.set_f(0.25f);
    // Field 11 of FunctionProto, as a newer exporter writes it.
    const std::string content = value.SerializeAsString();
    std::string whole = f->SerializeAsString();
    whole += '\x5a';
    whole += static_cast<char>(content.size());
    whole += content;
    ASSERT_TRUE(f->ParseFromString(whole));
    m.input("x", {"2"}).node("F", {"x"}, {"y"}).output("y");
    m.graph().mutable_node(0)->set_domain("mine");
    if (given) {
      value.set_f(0.5f);
      *m.graph().mutable_node(0)->add_attribute() = value;
    }
    EXPECT_THAT(text_of(m.import()), HasSubstr(given ? "0.5" : "0.25"));
  }
}

TEST(OnnxFunctions, CallsThatDoNotFitAreErrors) {
  OnnxModel wide;
  add_node(add_function(wide, "F"), "Relu", "", {"a"}, "r");
  wide.input("x", {"2"}).node("F", {"x", "x"}, {"y"}).output("y");
  wide.graph().mutable_node(0)->set_domain("mine");
  EXPECT_THAT(text_of(wide.import()), HasSubstr("2 operands, its function takes 1"));
  OnnxModel other;
  add_node(add_function(other, "F", 9), "Relu", "", {"a"}, "r");
  other.input("x", {"2"});
  call(other, "F", "x", "y");
  other.output("y");
  EXPECT_THAT(text_of(other.import()), HasSubstr("written for opset 9"));
}

}  // namespace
}  // namespace cleave
