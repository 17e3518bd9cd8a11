#include <algorithm>
#include <climits>
#include <cmath>
#include <cstring>
#include <deque>
#include <filesystem>
#include <set>
#include <unordered_map>

#include "base/codes.hpp"
#include "frontend/file.hpp"
#include "frontend/onnx.hpp"
#include "frontend/onnx_handlers.hpp"
#include "frontend/onnx_inline.hpp"
#include "frontend/onnx_scan.hpp"
#include "frontend/onnx_tensor.hpp"

namespace cleave {

namespace onnx_import {
namespace {

// A name as our text can write it: letters, digits and underscores, not starting with a digit.
std::string as_identifier(std::string_view name) {
  std::string out;
  for (const char c : name.substr(0, 80)) out += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  if (out.empty() || std::isdigit(static_cast<unsigned char>(out[0]))) out.insert(out.begin(), '_');
  return out;
}

std::string operator_name(const onnx::NodeProto& node) {
  const bool own = node.domain().empty() || node.domain() == "ai.onnx";
  return own ? shown(node.op_type()) : fmt::format("{}::{}", shown(node.domain()), shown(node.op_type()));
}

class Importer {
 public:
  Importer(const onnx::ModelProto& model, std::string name, std::string folder, const OnnxOptions& options)
      : model_(model),
        graph_(model.graph()),
        name_(std::move(name)),
        options_(options),
        loader_(std::move(folder), options),
        builder_(as_identifier(model.graph().name().empty() ? "model" : model.graph().name())) {}

  Result<graph::Graph> run() {
    for (const auto step :
         {&Importer::read_opset, &Importer::read_names, &Importer::sort_nodes, &Importer::check_support,
          &Importer::declare_inputs, &Importer::translate_nodes, &Importer::declare_outputs}) {
      Diagnostics errors = (this->*step)();
      if (!errors.empty()) return errors;
    }
    return builder_.finish();
  }

 private:
  using Node = const onnx::NodeProto*;

  std::string label(Node node) const {
    if (!node->name().empty()) return shown(node->name());
    return node->output_size() ? "-> " + shown(node->output(0)) : shown(node->op_type());
  }
  Diagnostics malformed(std::string_view why) const { return {diagnose(Code::onnx_malformed, name_, why)}; }

  Diagnostics read_opset() {
    opset_ = 0;
    for (const auto& o : model_.opset_import()) {
      if (o.domain().empty() || o.domain() == "ai.onnx") opset_ = std::max(opset_, o.version());
    }
    // Without one it can only have operators of other domains, which are named as what they are.
    if (opset_ == 0 && model_.opset_import_size() == 0) return malformed("it imports no opset of ONNX");
    return {};
  }

  // Who defines each name: an initialiser, an input or a node.
  Diagnostics read_names() {
    Diagnostics errors;
    const auto duplicate = [&](const std::string& n) {
      errors.push_back(diagnose(Code::onnx_duplicate_value, shown(n)));
    };
    if (graph_.node_size() > static_cast<int>(graph::kMaxNodes)) {
      return {diagnose(Code::onnx_limit, graph_.node_size(), "nodes", graph::kMaxNodes)};
    }
    for (const auto& t : graph_.initializer()) {
      if (!initialisers_.emplace(t.name(), &t).second) duplicate(t.name());
    }
    for (const auto& i : graph_.input()) {
      // An input that is also an initialiser has that as its default: it is a constant here.
      if (initialisers_.count(i.name())) continue;
      if (!inputs_.insert(i.name()).second) duplicate(i.name());
    }
    for (const auto& n : graph_.node()) {
      for (const auto& o : n.output()) {
        if (o.empty()) continue;
        if (initialisers_.count(o) || inputs_.count(o) || !makers_.emplace(o, &n).second) duplicate(o);
      }
    }
    if (errors.size() > 20) errors.resize(20);
    return errors;
  }

  // The nodes that the outputs need, each after the nodes that it reads.
  Diagnostics sort_nodes() {
    for (const auto& output : graph_.output()) {
      if (output.name().empty()) return malformed("an output has no name");
    }
    enum class State : uint8_t { open, done };
    std::unordered_map<Node, State> states;
    Diagnostics errors;
    struct Frame {
      Node node;
      int next;
    };
    std::vector<Frame> stack;
    const auto visit = [&](const std::string& value, const std::string& reader) {
      if (value.empty() || initialisers_.count(value) || inputs_.count(value)) return;
      const auto maker = makers_.find(value);
      if (maker == makers_.end()) {
        if (errors.size() < 20) errors.push_back(diagnose(Code::onnx_undefined_value, reader, shown(value)));
        return;
      }
      const auto [it, fresh] = states.emplace(maker->second, State::open);
      if (fresh) {
        stack.push_back({maker->second, 0});
      } else if (it->second == State::open && errors.empty()) {
        errors.push_back(diagnose(Code::onnx_cycle, label(maker->second)));
      }
    };
    for (const auto& output : graph_.output()) {
      visit(output.name(), "output");
      while (!stack.empty()) {
        Frame& frame = stack.back();
        if (frame.next == frame.node->input_size()) {
          states[frame.node] = State::done;
          order_.push_back(frame.node);
          stack.pop_back();
        } else {
          const Node node = frame.node;
          visit(node->input(frame.next++), label(node));
        }
      }
    }
    return errors;
  }

  // One error for all operators that cannot be imported.
  Diagnostics check_support() {
    std::map<std::string, std::vector<Node>> missing;
    for (const Node node : order_) {
      const bool constant = operator_name(*node) == "Constant";
      if (!constant && !find_operator(node->domain(), node->op_type())) missing[operator_name(*node)].push_back(node);
    }
    if (missing.empty()) return check_opset();
    size_t count = 0;
    std::string names;
    std::vector<std::string> notes;
    for (const auto& [name, nodes] : missing) {
      count += nodes.size();
      if (notes.size() == 50) {
        notes.push_back(fmt::format("and {} more kinds of operators", missing.size() - 50));
        names += ", ...";
      }
      if (notes.size() > 50) continue;
      names += (names.empty() ? "" : ", ") + fmt::format("`{}`", name);
      std::string which;
      for (size_t i = 0; i < std::min<size_t>(nodes.size(), 5); ++i)
        which += (i ? ", " : "") + fmt::format("`{}`", label(nodes[i]));
      if (nodes.size() > 5) which += ", ...";
      notes.push_back(fmt::format("`{}`: {} {} ({})", name, nodes.size(), nodes.size() == 1 ? "node" : "nodes", which));
    }
    Diagnostic d = diagnose(Code::onnx_unsupported, count, names);
    d.notes = std::move(notes);
    return {d};
  }

  // Before opset 7 only operators whose meaning has not changed since.
  Diagnostics check_opset() {
    if (opset_ >= kOldestOpset || order_.empty()) return {};
    if (opset_ == 0) return malformed("it imports no opset of ONNX");
    for (const Node node : order_) {
      const OperatorRow* row = find_operator(node->domain(), node->op_type());
      if (!row || opset_ >= row->since()) continue;
      Diagnostic d = diagnose(Code::onnx_opset, opset_, kOldestOpset);
      d.notes.push_back(fmt::format("`{}` (node `{}`) means something else there", operator_name(*node), label(node)));
      return {d};
    }
    return {};
  }

  Diagnostics declare_inputs() {
    Diagnostics errors;
    for (const auto& input : graph_.input()) {
      if (initialisers_.count(input.name())) continue;
      if (auto d = declare_input(input)) errors.push_back(std::move(*d));
      if (errors.size() == 20) break;
    }
    return errors;
  }

  std::optional<Diagnostic> declare_input(const onnx::ValueInfoProto& input) {
    const auto bad = [&](const std::string& why) { return diagnose(Code::onnx_tensor, shown(input.name()), why); };
    if (!input.type().has_tensor_type()) {
      const char* kind = input.type().has_sequence_type()   ? "a sequence"
                         : input.type().has_optional_type() ? "an optional value"
                                                            : "no tensor";
      return bad(fmt::format("the input is {}; only tensors are supported", kind));
    }
    const auto& type = input.type().tensor_type();
    const auto dtype = dtype_of(type.elem_type());
    if (!dtype) return bad(fmt::format("the element type {} is not supported", type_name(type.elem_type())));
    if (!type.has_shape())
      return bad("the input has no shape; export the model with one (its extents may be symbolic)");
    if (type.shape().dim_size() > graph::kMaxRank)
      return bad(fmt::format("it has {} axes, more than {}", type.shape().dim_size(), graph::kMaxRank));
    graph::Shape shape;
    int64_t elements = 1;
    for (int i = 0; i < type.shape().dim_size(); ++i) {
      const auto& d = type.shape().dim(i);
      std::optional<int64_t> extent;
      if (d.has_dim_value() && d.dim_value() >= 0) extent = d.dim_value();
      // "?" and its like are no names.
      const bool named = std::any_of(d.dim_param().begin(), d.dim_param().end(),
                                     [](char c) { return std::isalnum(static_cast<unsigned char>(c)); });
      const std::string symbol = as_identifier(named ? d.dim_param() : fmt::format("{}_{}", input.name(), i));
      if (!extent) {
        const auto known = options_.known.find(input.name());
        if (known != options_.known.end() && static_cast<size_t>(i) < known->second.shape.size())
          extent = known->second.shape[static_cast<size_t>(i)];
      }
      if (!extent) {
        const auto given = options_.dims.find(symbol);
        if (given != options_.dims.end()) extent = given->second;
      }
      if (!extent) {
        const auto range = options_.ranges.find(symbol);
        shape.push_back(range == options_.ranges.end()
                            ? builder_.dim(symbol)
                            : builder_.dim(symbol, range->second.first, range->second.second));
        continue;
      }
      if (*extent < 0 || (*extent > 0 && elements > graph::kMaxElements / *extent)) {
        return bad(fmt::format("an extent of {} makes it larger than {} elements", *extent, graph::kMaxElements));
      }
      elements *= std::max<int64_t>(*extent, 1);
      shape.push_back(builder_.syms().constant(*extent));
    }
    OnnxValue value;
    value.dtype = *dtype;
    value.shape = shape;
    value.id = builder_.input(shown(input.name()), *dtype, std::move(shape));
    if (const auto known = options_.known.find(input.name()); known != options_.known.end()) {
      OnnxValue content = from_bytes({known->second.dtype, known->second.shape,
                                      std::make_shared<const std::vector<std::byte>>(known->second.bytes)},
                                     input.name());
      const auto extents = constant_extents(builder_.syms(), value.shape);
      if (known->second.dtype != *dtype || !extents || *extents != known->second.shape)
        return bad("what is known of it has another type or shape");
      if (options_.fold_known) {
        content.name += "_known";  // beside the input, which stays
        value = std::move(content);
      } else {
        value.known = std::make_shared<const OnnxValue>(std::move(content));
      }
    }
    values_[input.name()] = std::move(value);
    return std::nullopt;
  }

  // The value of a name; initialisers are loaded when they are first read.
  Result<OnnxValue*> value_of(const std::string& name) {
    const auto known = values_.find(name);
    if (known != values_.end()) return &known->second;
    const auto initialiser = initialisers_.find(name);
    CHECK(initialiser != initialisers_.end(), "`{}` was not sorted before its reader", shown(name));
    TRY_ASSIGN(OnnxValue value, from_tensor(*initialiser->second, name));
    return &(values_[name] = std::move(value));
  }

  Result<OnnxValue> from_tensor(const onnx::TensorProto& tensor, const std::string& name) {
    TRY_ASSIGN(const LoadedTensor loaded, loader_.load(tensor));
    return from_bytes(loaded, name);
  }

  OnnxValue from_bytes(const LoadedTensor& loaded, const std::string& name) {
    OnnxValue value;
    value.dtype = loaded.dtype;
    value.shape = builder_.shape(loaded.shape);
    value.bytes = loaded.bytes;
    value.name = shown(name);
    const size_t width = static_cast<size_t>(byte_size(loaded.dtype));
    const std::byte* data = loaded.bytes->data();
    const size_t count = loaded.bytes->size() / width;
    if (!is_real(loaded.dtype) && count <= kMaxKnownIntegers) {
      value.integers.emplace();
      for (size_t i = 0; i < count; ++i) {
        value.integers->push_back(builder_.syms().constant(load_integer(loaded.dtype, data + i * width)));
      }
      // The symbolic integers saturate at 2^62 (a slice's end "as far as possible"): exact values stay in `bytes`.
    }
    const bool uniform = count > 0 && std::memcmp(data, data + width, loaded.bytes->size() - width) == 0;
    if (uniform) {
      const double v =
          is_real(loaded.dtype) ? load_real(loaded.dtype, data) : static_cast<double>(load_integer(loaded.dtype, data));
      if (std::isnan(v) || std::abs(v) <= 0x1p53 || is_real(loaded.dtype)) value.splat = v;
    }
    return value;
  }

  Result<OnnxValue> constant_node(Node node) {
    for (const auto& a : node->attribute()) {
      onnx::TensorProto tensor;
      if (a.name() == "value" && a.has_t()) return from_tensor(a.t(), node->output(0));
      if (a.name() == "value_float") {
        tensor.set_data_type(onnx::TensorProto::FLOAT);
        tensor.add_float_data(a.f());
      } else if (a.name() == "value_int") {
        tensor.set_data_type(onnx::TensorProto::INT64);
        tensor.add_int64_data(a.i());
      } else if (a.name() == "value_floats") {
        tensor.set_data_type(onnx::TensorProto::FLOAT);
        tensor.add_dims(a.floats_size());
        for (const float f : a.floats()) tensor.add_float_data(f);
      } else if (a.name() == "value_ints") {
        tensor.set_data_type(onnx::TensorProto::INT64);
        tensor.add_dims(a.ints_size());
        for (const int64_t i : a.ints()) tensor.add_int64_data(i);
      } else {
        continue;
      }
      return from_tensor(tensor, node->output(0));
    }
    return diagnose(Code::onnx_node, label(node), "Constant", "it has no value of a supported kind");
  }

  Diagnostics translate_nodes() {
    for (const Node node : order_) {
      auto results = translate(node);
      if (!results.ok()) return results.errors();
      for (int i = 0; i < node->output_size(); ++i) {
        const std::string& name = node->output(i);
        if (name.empty()) continue;
        if (static_cast<size_t>(i) >= results->size()) {
          if (!is_read(name)) continue;
          return {diagnose(Code::onnx_node, label(node), operator_name(*node),
                           fmt::format("its result {} is not supported", i))};
        }
        OnnxValue& value = (*results)[static_cast<size_t>(i)];
        if (value.id) builder_.set_name(*value.id, shown(name));
        values_[name] = std::move(value);
      }
    }
    return {};
  }

  bool is_read(const std::string& name) {
    if (read_.empty()) {
      for (const Node node : order_) read_.insert(node->input().begin(), node->input().end());
      for (const auto& output : graph_.output()) read_.insert(output.name());
    }
    return read_.count(name) > 0;
  }

  Result<std::vector<OnnxValue>> translate(Node node) {
    if (operator_name(*node) == "Constant") {
      if (node->output_size() != 1) return diagnose(Code::onnx_node, label(node), "Constant", "it needs one result");
      TRY_ASSIGN(OnnxValue value, constant_node(node));
      return std::vector<OnnxValue>{std::move(value)};
    }
    const OperatorRow* row = find_operator(node->domain(), node->op_type());
    size_t given = static_cast<size_t>(node->input_size());
    while (given > 0 && node->input(static_cast<int>(given) - 1).empty()) --given;
    const auto bad = [&](const std::string& why) {
      return diagnose(Code::onnx_node, label(node), operator_name(*node), why);
    };
    if (given < row->min_inputs || given > row->max_inputs) {
      return bad(row->min_inputs == row->max_inputs
                     ? fmt::format("it has {} operands, {} are needed", given, row->min_inputs)
                     : fmt::format("it has {} operands, {} to {} are needed", given, row->min_inputs, row->max_inputs));
    }
    if (node->output_size() == 0) return bad("it has no result");
    for (const auto& a : node->attribute()) {
      if (!row->has_attribute(a.name()))
        return bad(fmt::format("its attribute `{}` is not supported", shown(a.name())));
    }
    std::vector<OnnxValue*> operands;
    for (size_t i = 0; i < given; ++i) {
      const std::string& name = node->input(static_cast<int>(i));
      if (name.empty()) {
        if (i < row->min_inputs) return bad(fmt::format("operand {} is missing", i));
        operands.push_back(nullptr);
        continue;
      }
      TRY_ASSIGN(OnnxValue* const value, value_of(name));
      operands.push_back(value);
    }
    NodeContext context(builder_, *node, opset_, std::move(operands));
    if (auto wrong = check_attributes(context)) return *wrong;
    if (auto wrong = check_types(context, row->types)) return *wrong;
    return row->handler(context);
  }

  Diagnostics declare_outputs() {
    if (graph_.output_size() == 0) return malformed("its graph has no output");
    for (const auto& output : graph_.output()) {
      auto value = value_of(output.name());
      if (!value.ok()) return value.errors();
      onnx::NodeProto none;
      none.set_name(output.name());
      none.set_op_type("output");
      NodeContext context(builder_, none, opset_, {*value});
      const auto id = context.id(0);
      if (!id.ok()) return id.errors();
      if (auto wrong = contradiction(output, builder_.type(*id))) return {std::move(*wrong)};
      builder_.output(shown(output.name()), *id);
    }
    return {};
  }

  // A model that declares an output as what it is not was changed by hand, or exported wrongly: either may be meant.
  std::optional<Diagnostic> contradiction(const onnx::ValueInfoProto& output, const graph::Type& computed) {
    if (!output.type().has_tensor_type()) return std::nullopt;
    const auto& type = output.type().tensor_type();
    const sym::Pool& syms = builder_.syms();
    bool wrong = type.elem_type() != onnx::TensorProto::UNDEFINED && dtype_of(type.elem_type()) != computed.dtype;
    std::string declared = type_name(type.elem_type()), found(name(computed.dtype));
    if (const auto same = dtype_of(type.elem_type())) declared = name(*same);
    if (type.has_shape()) {
      const auto& dims = type.shape().dim();
      wrong = wrong || static_cast<size_t>(dims.size()) != computed.shape.size();
      std::vector<std::string> names;
      for (int i = 0; i < dims.size(); ++i) {
        // Extents of 0 and less are what exporters write for those that they do not know.
        const bool known = dims[i].has_dim_value() && dims[i].dim_value() > 0;
        names.push_back(known ? std::to_string(dims[i].dim_value()) : shown(dims[i].dim_param()));
        if (known && !wrong)
          wrong = syms.equal(builder_.syms().constant(dims[i].dim_value()), computed.shape[static_cast<size_t>(i)]) ==
                  sym::Proof::no;
      }
      declared += fmt::format("[{}]", fmt::join(names, ", "));
    }
    if (!wrong) return std::nullopt;
    std::vector<std::string> extents;
    for (const sym::Expr e : computed.shape) extents.push_back(syms.print(e));
    return diagnose(Code::onnx_tensor, shown(output.name()),
                    fmt::format("the model declares this output as {}, its nodes compute {}[{}]; correct the "
                                "declaration, or leave its shape out",
                                declared, found, fmt::join(extents, ", ")));
  }

  const onnx::ModelProto& model_;
  const onnx::GraphProto& graph_;
  std::string name_;
  const OnnxOptions& options_;
  TensorLoader loader_;
  graph::Builder builder_;
  int64_t opset_ = 0;
  std::unordered_map<std::string, const onnx::TensorProto*> initialisers_;
  std::set<std::string> inputs_;
  std::unordered_map<std::string, Node> makers_;
  std::set<std::string> read_;
  std::vector<Node> order_;
  std::unordered_map<std::string, OnnxValue> values_;
};

}  // namespace
}  // namespace onnx_import

Result<graph::Graph> import_onnx(std::span<const std::byte> model, const std::string& name, const std::string& folder,
                                 const OnnxOptions& options) {
  const int64_t size = static_cast<int64_t>(model.size());
  const int64_t limit = std::min<int64_t>(options.max_file_bytes, INT_MAX);
  if (size > limit) return diagnose(Code::file_too_large, name, size, limit);
  if (model.empty()) return diagnose(Code::onnx_malformed, name, "it is empty");
  const auto scan = onnx_import::scan_model(model, options.max_items);
  if (scan.malformed) return diagnose(Code::onnx_malformed, name, "it is cut short, or no protobuf message");
  if (scan.items > options.max_items)
    return diagnose(Code::onnx_limit, scan.items, "messages and strings", options.max_items);
  onnx::ModelProto proto;
  if (!proto.ParseFromArray(model.data(), static_cast<int>(size))) {
    return diagnose(Code::onnx_malformed, name, "it is cut short, or no protobuf message");
  }
  if (!proto.has_graph()) return diagnose(Code::onnx_malformed, name, "it has no graph");
  if (Diagnostics errors = onnx_import::inline_functions(proto, name); !errors.empty()) return errors;
  return onnx_import::Importer(proto, name, folder, options).run();
}

Result<std::vector<std::string>> onnx_inputs(const std::string& path) {
  const OnnxOptions limits;
  TRY_ASSIGN(const std::vector<std::byte> bytes, read_bytes(path, 0, -1, limits.max_file_bytes));
  onnx::ModelProto model;
  if (onnx_import::scan_model(bytes, limits.max_items).malformed ||
      !model.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return diagnose(Code::onnx_malformed, path, "it is cut short, or no protobuf message");
  std::set<std::string> initialisers;
  for (const auto& t : model.graph().initializer()) initialisers.insert(t.name());
  std::vector<std::string> out;
  for (const auto& i : model.graph().input())
    if (!initialisers.count(i.name())) out.push_back(i.name());
  return out;
}

Result<OnnxKnown> read_onnx_tensor(const std::string& path) {
  const OnnxOptions limits;
  TRY_ASSIGN(const std::vector<std::byte> bytes, read_bytes(path, 0, -1, limits.max_file_bytes));
  onnx::TensorProto tensor;
  if (!tensor.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return diagnose(Code::onnx_malformed, path, "it is no tensor");
  TRY_ASSIGN(const onnx_import::LoadedTensor loaded, onnx_import::TensorLoader("", limits).load(tensor));
  return OnnxKnown{loaded.dtype, loaded.shape, *loaded.bytes};
}

Result<graph::Graph> import_onnx(const std::string& path, const OnnxOptions& options) {
  TRY_ASSIGN(const std::vector<std::byte> bytes, read_bytes(path, 0, -1, options.max_file_bytes));
  const auto folder = std::filesystem::path(path).parent_path();
  return import_onnx(bytes, path, folder.empty() ? "." : folder.string(), options);
}

}  // namespace cleave
