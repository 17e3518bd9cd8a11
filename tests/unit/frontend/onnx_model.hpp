// Builds small ONNX models for tests, through protobuf.
#pragma once

#include <cstring>
#include <initializer_list>
#include <string>
#include <variant>
#include <vector>

#include "frontend/onnx.hpp"
#include "onnx/onnx.pb.h"

namespace cleave {

using OnnxAttribute = std::variant<int64_t, float, std::string, std::vector<int64_t>>;

class OnnxModel {
 public:
  explicit OnnxModel(int64_t opset = 20) {
    model_.set_ir_version(8);
    model_.add_opset_import()->set_version(opset);
  }
  onnx::ModelProto& proto() { return model_; }
  onnx::GraphProto& graph() { return *model_.mutable_graph(); }

  // Extents are numbers or names.
  OnnxModel& input(const std::string& name, const std::vector<std::string>& extents,
                   int type = onnx::TensorProto::FLOAT) {
    describe(graph().add_input(), name, extents, type);
    return *this;
  }
  OnnxModel& node(const std::string& op, const std::vector<std::string>& inputs,
                  const std::vector<std::string>& outputs,
                  const std::vector<std::pair<std::string, OnnxAttribute>>& attributes = {}) {
    auto* n = graph().add_node();
    n->set_op_type(op);
    n->set_name(op + "_" + std::to_string(graph().node_size()));
    for (const auto& i : inputs) n->add_input(i);
    for (const auto& o : outputs) n->add_output(o);
    for (const auto& [name, value] : attributes) {
      auto* a = n->add_attribute();
      a->set_name(name);
      if (const auto* i = std::get_if<int64_t>(&value)) {
        a->set_type(onnx::AttributeProto::INT);
        a->set_i(*i);
      } else if (const auto* f = std::get_if<float>(&value)) {
        a->set_type(onnx::AttributeProto::FLOAT);
        a->set_f(*f);
      } else if (const auto* s = std::get_if<std::string>(&value)) {
        a->set_type(onnx::AttributeProto::STRING);
        a->set_s(*s);
      } else {
        a->set_type(onnx::AttributeProto::INTS);
        for (const int64_t i : std::get<std::vector<int64_t>>(value)) a->add_ints(i);
      }
    }
    return *this;
  }
  OnnxModel& ints(const std::string& name, const std::vector<int64_t>& values) {
    auto* t = tensor(name, {static_cast<int64_t>(values.size())}, onnx::TensorProto::INT64);
    for (const int64_t v : values) t->add_int64_data(v);
    return *this;
  }
  OnnxModel& scalar_int(const std::string& name, int64_t value) {
    tensor(name, {}, onnx::TensorProto::INT64)->add_int64_data(value);
    return *this;
  }
  OnnxModel& floats(const std::string& name, const std::vector<int64_t>& shape, const std::vector<float>& values) {
    auto* t = tensor(name, shape, onnx::TensorProto::FLOAT);
    t->set_raw_data(values.data(), values.size() * sizeof(float));
    return *this;
  }
  onnx::TensorProto* tensor(const std::string& name, const std::vector<int64_t>& shape, int type) {
    auto* t = graph().add_initializer();
    t->set_name(name);
    t->set_data_type(type);
    for (const int64_t e : shape) t->add_dims(e);
    return t;
  }
  OnnxModel& output(const std::string& name) {
    graph().add_output()->set_name(name);
    return *this;
  }
  OnnxModel& output(const std::string& name, const std::vector<std::string>& extents,
                    int type = onnx::TensorProto::FLOAT) {
    describe(graph().add_output(), name, extents, type);
    return *this;
  }

  std::string bytes() const { return model_.SerializeAsString(); }
  Result<graph::Graph> import(const std::string& folder = "", const OnnxOptions& options = {}) const {
    return import_text(bytes(), folder, options);
  }
  static Result<graph::Graph> import_text(const std::string& text, const std::string& folder = "",
                                          const OnnxOptions& options = {}) {
    return import_onnx(std::as_bytes(std::span(text)), "test.onnx", folder, options);
  }

 private:
  static void describe(onnx::ValueInfoProto* value, const std::string& name, const std::vector<std::string>& extents,
                       int type) {
    value->set_name(name);
    auto* tensor = value->mutable_type()->mutable_tensor_type();
    tensor->set_elem_type(type);
    tensor->mutable_shape();
    for (const auto& e : extents) {
      auto* dim = tensor->mutable_shape()->add_dim();
      if (e.find_first_not_of("-0123456789") == std::string::npos) {
        dim->set_dim_value(std::stoll(e));
      } else {
        dim->set_dim_param(e);
      }
    }
  }

  onnx::ModelProto model_;
};

}  // namespace cleave
