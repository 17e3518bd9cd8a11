#include "frontend/onnx_inline.hpp"

#include <deque>
#include <map>
#include <unordered_map>

#include "base/codes.hpp"
#include "frontend/onnx_value.hpp"
#include "onnx/onnx.pb.h"

namespace cleave::onnx_import {

namespace {

constexpr int kMaxDepth = 32;
constexpr size_t kMaxNodes = 200'000;
constexpr size_t kMaxBytes = size_t{1} << 28;

struct Pending {
  onnx::NodeProto node;
  int depth;
};

using Functions = std::map<std::pair<std::string, std::string>, const onnx::FunctionProto*>;

// The default values of a function's attributes: FunctionProto.attribute_proto, field 11, which is newer than the
// message definitions that this may have been built with; protobuf keeps such fields as they came.
std::map<std::string, onnx::AttributeProto> attribute_defaults(const onnx::FunctionProto& function) {
  std::map<std::string, onnx::AttributeProto> out;
  [&]<class Function>(const Function& f) {
    if constexpr (requires { f.attribute_proto(); })
      for (const auto& a : f.attribute_proto()) out[a.name()] = a;
  }(function);
  std::string_view rest = function.unknown_fields();
  const auto varint = [&]() -> std::optional<uint64_t> {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && !rest.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest[0]);
      rest.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  };
  while (!rest.empty()) {
    const auto tag = varint();
    if (!tag) return out;
    size_t length = 0;
    switch (*tag & 7) {
      case 0:
        if (!varint()) return out;
        continue;
      case 1: length = 8; break;
      case 5: length = 4; break;
      case 2: {
        const auto given = varint();
        if (!given) return out;
        length = static_cast<size_t>(std::min<uint64_t>(*given, rest.size()));
        break;
      }
      default: return out;
    }
    if (length > rest.size()) return out;
    onnx::AttributeProto attribute;
    if (*tag == (11 << 3 | 2) && attribute.ParseFromArray(rest.data(), static_cast<int>(length)))
      out[attribute.name()] = std::move(attribute);
    rest.remove_prefix(length);
  }
  return out;
}

// The body of one call with its names made unique by `prefix`, appended to `body`.
std::optional<std::string> expand(const onnx::NodeProto& call, const onnx::FunctionProto& function,
                                  const std::string& prefix, int depth, std::vector<Pending>& body) {
  if (call.input_size() > function.input_size()) {
    return fmt::format("it has {} operands, its function takes {}", call.input_size(), function.input_size());
  }
  if (call.output_size() > function.output_size()) {
    return fmt::format("it has {} results, its function gives {}", call.output_size(), function.output_size());
  }
  std::unordered_map<std::string, std::string> names;
  for (int i = 0; i < function.input_size(); ++i) {
    names[function.input(i)] = i < call.input_size() ? call.input(i) : "";
  }
  for (int i = 0; i < call.output_size(); ++i) {
    if (!call.output(i).empty()) names[function.output(i)] = call.output(i);
  }
  const auto renamed = [&](const std::string& name) -> std::string {
    if (name.empty()) return name;
    const auto known = names.find(name);
    return known != names.end() ? known->second : prefix + name;
  };
  const auto defaults = attribute_defaults(function);
  for (const auto& inner : function.node()) {
    onnx::NodeProto node;
    node.set_op_type(inner.op_type());
    node.set_domain(inner.domain());
    node.set_name(prefix + (inner.name().empty() ? inner.op_type() : inner.name()));
    for (const auto& i : inner.input()) node.add_input(renamed(i));
    for (const auto& o : inner.output()) node.add_output(renamed(o));
    for (const auto& attribute : inner.attribute()) {
      if (attribute.ref_attr_name().empty()) {
        *node.add_attribute() = attribute;
        continue;
      }
      const onnx::AttributeProto* given = nullptr;
      for (const auto& a : call.attribute()) {
        if (a.name() == attribute.ref_attr_name()) given = &a;
      }
      if (const auto known = defaults.find(attribute.ref_attr_name()); !given && known != defaults.end())
        given = &known->second;
      if (given) {
        auto* copy = node.add_attribute();
        *copy = *given;
        copy->set_name(attribute.name());
      }
    }
    body.push_back({std::move(node), depth});
  }
  return std::nullopt;
}

int64_t onnx_opset(const google::protobuf::RepeatedPtrField<onnx::OperatorSetIdProto>& imports) {
  int64_t version = 0;
  for (const auto& o : imports) {
    if (o.domain().empty() || o.domain() == "ai.onnx") version = std::max(version, o.version());
  }
  return version;
}

}  // namespace

Diagnostics inline_functions(onnx::ModelProto& model, const std::string& model_name) {
  if (model.functions_size() == 0) return {};
  Functions functions;
  for (const auto& f : model.functions()) functions[{f.domain(), f.name()}] = &f;
  const int64_t opset = onnx_opset(model.opset_import());

  std::deque<Pending> pending;
  for (auto& node : *model.mutable_graph()->mutable_node()) pending.push_back({std::move(node), 0});
  model.mutable_graph()->clear_node();
  size_t calls = 0, nodes = 0, bytes = 0;
  while (!pending.empty()) {
    Pending next = std::move(pending.front());
    pending.pop_front();
    const auto function = functions.find({next.node.domain(), next.node.op_type()});
    if (function == functions.end()) {
      nodes += 1;
      bytes += next.node.ByteSizeLong();
      if (nodes > kMaxNodes)
        return {diagnose(Code::onnx_limit, nodes, "nodes after its functions are expanded", kMaxNodes)};
      if (bytes > kMaxBytes)
        return {diagnose(Code::onnx_limit, bytes, "bytes after its functions are expanded", kMaxBytes)};
      *model.mutable_graph()->add_node() = std::move(next.node);
      continue;
    }
    const auto bad = [&](const std::string& why) {
      return Diagnostics{diagnose(Code::onnx_node, shown(next.node.name()), shown(next.node.op_type()), why)};
    };
    if (next.depth == kMaxDepth)
      return bad(fmt::format("its function calls functions more than {} levels deep", kMaxDepth));
    // A function without a body would make calls free: count them as nodes.
    if (++calls > kMaxNodes) return {diagnose(Code::onnx_limit, calls, "calls of functions", kMaxNodes)};
    const int64_t own = onnx_opset(function->second->opset_import());
    if (own != 0 && own != opset)
      return bad(fmt::format("its function is written for opset {}, the model for {}", own, opset));
    std::vector<Pending> body;
    if (const auto why = expand(next.node, *function->second, fmt::format("call{}/", calls), next.depth + 1, body))
      return bad(*why);
    if (pending.size() + body.size() > kMaxNodes) {
      return {diagnose(Code::onnx_malformed, model_name, "its functions expand to too many nodes")};
    }
    pending.insert(pending.begin(), std::make_move_iterator(body.begin()), std::make_move_iterator(body.end()));
  }
  return {};
}

}  // namespace cleave::onnx_import
