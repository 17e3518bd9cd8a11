// Graphs from files, texts, ONNX models and builders; tensors.
#include <cstring>
#include <filesystem>
#include <set>

#include "api/internal.hpp"
#include "base/codes.hpp"
#include "base/lexer.hpp"
#include "driver/constants.hpp"
#include "driver/input.hpp"
#include "frontend/file.hpp"
#include "frontend/npy.hpp"
#include "frontend/onnx.hpp"
#include "runtime/buffer.hpp"
#include "sym/text.hpp"

namespace cleave {

using api::external;
using api::guarded;
using api::internal;
using api::raise;
using api::take;

namespace {

// The bytes of a view, dense in row-major order.
std::vector<std::byte> dense_bytes(const View& v) {
  const size_t width = static_cast<size_t>(size_of(v.type));
  int64_t count = 1;
  for (const int64_t e : v.shape) {
    if (e < 0 || (e > 0 && count > graph::kMaxElements / e))
      raise(diagnose(Code::bad_call, fmt::format("the extent {} is no extent of a tensor", e)));
    count *= e;
  }
  if (count > 0 && !v.data) raise(diagnose(Code::bad_call, "a tensor has no memory"));
  if (!v.strides.empty() && v.strides.size() != v.shape.size())
    raise(diagnose(Code::bad_call, fmt::format("{} strides for {} axes", v.strides.size(), v.shape.size())));
  std::vector<std::byte> out(static_cast<size_t>(count) * width);
  const auto* from = static_cast<const std::byte*>(v.data);
  if (v.strides.empty()) {
    if (count > 0) std::memcpy(out.data(), from, out.size());
    return out;
  }
  std::vector<int64_t> index(v.shape.size());
  int64_t offset = 0;
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(out.data() + static_cast<size_t>(i) * width, from + offset * static_cast<int64_t>(width), width);
    for (size_t axis = v.shape.size(); axis-- > 0;) {
      offset += v.strides[axis];
      if (++index[axis] < v.shape[axis]) break;
      offset -= v.strides[axis] * v.shape[axis];
      index[axis] = 0;
    }
  }
  return out;
}

OnnxOptions onnx_options(const LoadOptions& options) {
  OnnxOptions out;
  for (const auto& [name, tensor] : options.known)
    out.known[name] = {internal(tensor.type), tensor.shape, dense_bytes(tensor)};
  out.ranges = options.ranges;
  out.fold_known = options.fold_known;
  return out;
}

Graph wrap(graph::Graph g) { return Graph(std::make_shared<const Graph::Impl>(std::move(g))); }

}  // namespace

int64_t Tensor::elements() const {
  int64_t n = 1;
  for (const int64_t e : shape) n *= e;
  return n;
}

Tensor zeros(ElementType type, std::vector<int64_t> shape) {
  return guarded([&] {
    Tensor t;
    t.type = type;
    t.shape = std::move(shape);
    int64_t bytes = size_of(type);
    for (const int64_t e : t.shape) {
      if (e < 0 || (e > 0 && bytes > (int64_t{1} << 46) / e))
        raise(diagnose(Code::bad_call, fmt::format("the extent {} is no extent of a tensor", e)));
      bytes *= e;
    }
    auto buffer = std::make_shared<runtime::Buffer>(std::max<int64_t>(64, bytes));
    t.data = buffer->data();
    t.storage = std::shared_ptr<void>(buffer, buffer->data());
    return t;
  });
}

Tensor load_npy(const std::string& path) {
  return guarded([&] {
    const NpyArray array = take(cleave::read_npy(path));
    Tensor t = zeros(external(array.dtype), array.shape);
    if (!array.bytes.empty()) std::memcpy(t.data, array.bytes.data(), array.bytes.size());
    return t;
  });
}

void save_npy(const std::string& path, const View& tensor) {
  guarded([&] {
    const NpyArray array{internal(tensor.type), tensor.shape, dense_bytes(tensor)};
    if (Diagnostics bad = cleave::write_npy(path, array); !bad.empty()) raise(bad);
  });
}

Graph Graph::load(const std::string& path, const LoadOptions& options) {
  return guarded([&] {
    SourceText source;
    auto in = driver::read_input(path, source, onnx_options(options));
    if (!in.ok()) raise(in.errors(), &source);
    if (!in->graph)
      raise(diagnose(Code::unknown_format, path,
                     fmt::format("it holds {}, a graph or an ONNX model is needed here", driver::name(in->format))));
    return wrap(std::move(*in->graph));
  });
}

Graph Graph::parse(const std::string& text, const std::string& name, const std::string& folder) {
  return guarded([&] {
    const SourceText source{name, text};
    const graph::LoadConstant loader = folder.empty() ? graph::LoadConstant() : driver::constant_loader(folder);
    return wrap(take(graph::parse(source, loader), &source));
  });
}

Graph Graph::from_onnx(std::string_view model, const std::string& name, const std::string& folder,
                       const LoadOptions& options) {
  return guarded(
      [&] { return wrap(take(import_onnx(std::as_bytes(std::span(model)), name, folder, onnx_options(options)))); });
}

std::string Graph::name() const { return impl_->graph.name(); }
std::string Graph::text() const {
  const std::lock_guard lock(impl_->mutex);
  return guarded([&] { return graph::print(impl_->graph); });
}
void Graph::save(const std::string& path) const {
  const std::lock_guard lock(impl_->mutex);
  guarded([&] {
    std::error_code error;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
    const std::string text = take(driver::text_with_files(impl_->graph, path));
    if (Diagnostics bad = write_bytes(path, std::as_bytes(std::span(text))); !bad.empty()) raise(bad);
  });
}
std::vector<Argument> Graph::inputs() const {
  const std::lock_guard lock(impl_->mutex);
  return api::leaf_arguments(impl_->graph, graph::Op::input);
}
std::vector<Argument> Graph::scalars() const {
  const std::lock_guard lock(impl_->mutex);
  return api::leaf_arguments(impl_->graph, graph::Op::scalar);
}
std::vector<Argument> Graph::outputs() const {
  const std::lock_guard lock(impl_->mutex);
  return api::output_arguments(impl_->graph);
}
std::vector<Graph::Dim> Graph::dims() const {
  const std::lock_guard lock(impl_->mutex);
  std::vector<Dim> out;
  const graph::Graph& g = impl_->graph;
  for (const sym::Expr d : g.dims()) {
    const sym::Interval range = g.syms().bounds(d);
    out.push_back({g.syms().symbol_name(d), range.lo, range.hi});
  }
  return out;
}

namespace api {

std::vector<Extent> extents(const sym::Pool& syms, std::span<const sym::Expr> shape) {
  std::vector<Extent> out;
  for (const sym::Expr e : shape) {
    const auto n = syms.as_constant(e);
    out.push_back(n ? Extent(*n) : Extent(syms.print(e)));
  }
  return out;
}

Argument leaf_argument(const graph::Graph& g, graph::ValueId leaf) {
  const graph::Type& type = g.type(leaf);
  return {g.producer(leaf).attributes.get<std::string>("name"), external(type.dtype), extents(g.syms(), type.shape)};
}
std::vector<Argument> leaf_arguments(const graph::Graph& g, graph::Op op) {
  std::vector<Argument> out;
  for (const graph::ValueId v : g.leaves(op)) out.push_back(leaf_argument(g, v));
  return out;
}
std::vector<Argument> output_arguments(const graph::Graph& g) {
  std::vector<Argument> out;
  for (const graph::Output& o : g.outputs()) {
    const graph::Type& type = g.type(o.value);
    out.push_back({o.name, external(type.dtype), extents(g.syms(), type.shape)});
  }
  return out;
}

}  // namespace api

// ---- the builder ----------------------------------------------------------------------------------------------------

struct GraphBuilder::Impl {
  explicit Impl(const std::string& name) : builder(name) {}
  graph::Builder builder;
  std::map<std::string, sym::Expr> dims;
  std::set<std::string> leaves, outputs;

  // Equal leaves of one name would be one leaf.
  void claim(std::set<std::string>& names, const std::string& name) {
    if (name.empty()) raise(diagnose(Code::invalid_graph, builder.graph().name(), "an argument has no name"));
    if (!names.insert(name).second) raise(diagnose(Code::duplicate_name, name));
  }

  graph::ValueId id(Value v) const {
    if (v.id >= builder.graph().value_count())
      raise(diagnose(Code::invalid_graph, builder.graph().name(), "an operand is no value of this builder"));
    return graph::ValueId(v.id);
  }

  sym::Expr extent(const Extent& e, bool declare) {
    if (e.is_number()) {
      if (e.number() < -sym::kHuge || e.number() > sym::kHuge)
        raise(diagnose(Code::number_out_of_range, e.number(), "an extent"));
      return builder.syms().constant(e.number());
    }
    const SourceText source{"extent", e.text()};
    TokenCursor cursor(take(tokenize(source), &source));
    const auto lookup = [&](const std::string& name) -> std::optional<sym::Expr> {
      const auto known = dims.find(name);
      if (known != dims.end()) return known->second;
      if (!declare) {
        cursor.fail(diagnose_at(cursor.peek().range, Code::undefined_name, name));
        return std::nullopt;
      }
      return dims[name] = builder.dim(name);
    };
    const auto value = sym::parse_expr(cursor, builder.syms(), lookup);
    if (value && !cursor.at_end()) cursor.fail_expected("the end of the extent");
    if (!value || cursor.failed()) raise(cursor.errors(), &source);
    return *value;
  }
  graph::Shape shape(const std::vector<Extent>& extents, bool declare) {
    if (extents.size() > static_cast<size_t>(graph::kMaxRank))
      raise(
          diagnose(Code::bad_shape, "shape", fmt::format("{} axes are more than {}", extents.size(), graph::kMaxRank)));
    graph::Shape out;
    for (const Extent& e : extents) out.push_back(extent(e, declare));
    return out;
  }

  // In the form that the operator's table asks for: a 2 is also a real, a list of numbers also a list of extents.
  graph::Attribute attribute(const std::string& op, const graph::AttributeInfo& info, const Attribute& given) {
    using Type = graph::AttributeType;
    const auto* integer = std::get_if<int64_t>(&given);
    const auto* numbers = std::get_if<std::vector<int64_t>>(&given);
    const auto* list = std::get_if<std::vector<Extent>>(&given);
    switch (info.type) {
      case Type::integer:
        if (integer) return *integer;
        break;
      case Type::real:
        if (integer) return static_cast<double>(*integer);
        if (const auto* v = std::get_if<double>(&given)) return *v;
        break;
      case Type::boolean:
        if (const auto* v = std::get_if<bool>(&given)) return *v;
        break;
      case Type::text:
        if (const auto* v = std::get_if<std::string>(&given)) return *v;
        break;
      case Type::dtype:
        if (const auto* v = std::get_if<ElementType>(&given)) return internal(*v);
        if (const auto* v = std::get_if<std::string>(&given))
          if (const auto known = dtype_from_name(*v)) return *known;
        break;
      case Type::ints:
        if (numbers) return *numbers;
        if (list && std::all_of(list->begin(), list->end(), [](const Extent& e) { return e.is_number(); })) {
          std::vector<int64_t> out;
          for (const Extent& e : *list) out.push_back(e.number());
          return out;
        }
        break;
      case Type::extents:
        if (list) return shape(*list, false);
        if (numbers) return shape(std::vector<Extent>(numbers->begin(), numbers->end()), false);
        break;
      case Type::data: break;
    }
    raise(diagnose(Code::bad_attribute, op, info.name, "has a value of another type"));
  }
};

GraphBuilder::GraphBuilder(const std::string& name) : impl_(std::make_unique<Impl>(name)) {}
GraphBuilder::~GraphBuilder() = default;
GraphBuilder::GraphBuilder(GraphBuilder&&) noexcept = default;
GraphBuilder& GraphBuilder::operator=(GraphBuilder&&) noexcept = default;

void GraphBuilder::dim(const std::string& name, int64_t low, int64_t high) {
  guarded([&] {
    if (const std::string fault = sym::range_fault(low, high, graph::kMaxElements); !fault.empty())
      raise(diagnose(Code::bad_shape, name, fault));
    if (impl_->dims.count(name)) raise(diagnose(Code::duplicate_name, name));
    impl_->dims[name] = impl_->builder.dim(name, low, high);
  });
}

namespace {
void check_size(const sym::Pool& syms, const std::string& name, const graph::Shape& shape) {
  int64_t count = 1;
  for (const sym::Expr e : shape) {
    const auto n = syms.as_constant(e);
    if (!n) continue;
    if (*n < 0) raise(diagnose(Code::bad_shape, name, fmt::format("the extent {} is negative", *n)));
    if (*n > 0 && count > graph::kMaxElements / *n)
      raise(diagnose(Code::extent_too_large, name, "too many", graph::kMaxElements));
    count *= std::max<int64_t>(1, *n);
  }
}
}  // namespace

Value GraphBuilder::input(const std::string& name, ElementType type, const std::vector<Extent>& shape) {
  return guarded([&] {
    graph::Shape s = impl_->shape(shape, true);
    check_size(impl_->builder.syms(), name, s);
    impl_->claim(impl_->leaves, name);
    return Value{impl_->builder.input(name, internal(type), std::move(s)).index};
  });
}

Value GraphBuilder::constant(const std::string& name, const View& content) {
  return guarded([&] {
    graph::ConstantData data;
    data.kind = graph::ConstantData::Kind::bytes;
    data.bytes = std::make_shared<const std::vector<std::byte>>(dense_bytes(content));
    graph::Shape shape = impl_->builder.shape(content.shape);
    impl_->claim(impl_->leaves, name);
    return Value{impl_->builder.constant(name, internal(content.type), std::move(shape), std::move(data)).index};
  });
}

Value GraphBuilder::scalar(const std::string& name, ElementType type) {
  return guarded([&] {
    impl_->claim(impl_->leaves, name);
    return Value{impl_->builder.scalar(name, internal(type)).index};
  });
}
Value GraphBuilder::literal(double value, ElementType type) {
  return guarded([&] {
    const DType d = internal(type);
    if (!is_real(d) && !(value >= -0x1p63 && value < 0x1p63))
      raise(diagnose(Code::number_out_of_range, fmt::format("{}", value), "64 bits"));
    return Value{impl_->builder.literal(value, d).index};
  });
}

std::vector<Value> GraphBuilder::add_all(const std::string& op, const std::vector<Value>& operands,
                                         const AttributeMap& attributes) {
  return guarded([&] {
    const auto known = graph::op_from_name(op);
    if (!known || graph::info(*known).category == graph::Category::leaf) {
      // Leaves without data of their own are ordinary here.
      if (!known || (*known != graph::Op::iota && *known != graph::Op::extent))
        raise(diagnose(Code::unknown_operator, op));
    }
    std::vector<graph::ValueId> ids;
    for (const Value v : operands) ids.push_back(impl_->id(v));
    graph::Attributes given;
    for (const auto& [name, value] : attributes) {
      const graph::AttributeInfo* info = graph::info(*known).attribute(name);
      if (!info) raise(diagnose(Code::unknown_attribute, op, name));
      given.set(name, impl_->attribute(op, *info, value));
    }
    std::vector<Value> out;
    for (const graph::ValueId v : take(impl_->builder.add(*known, std::move(ids), std::move(given))))
      out.push_back({v.index});
    return out;
  });
}

Value GraphBuilder::add(const std::string& op, const std::vector<Value>& operands, const AttributeMap& attributes) {
  const std::vector<Value> all = add_all(op, operands, attributes);
  if (all.size() != 1) raise(diagnose(Code::invalid_graph, op, fmt::format("it has {} results", all.size())));
  return all[0];
}

ElementType GraphBuilder::type(Value value) const {
  return guarded([&] { return external(impl_->builder.type(impl_->id(value)).dtype); });
}
std::vector<Extent> GraphBuilder::shape(Value value) const {
  return guarded([&] { return api::extents(impl_->builder.syms(), impl_->builder.type(impl_->id(value)).shape); });
}
void GraphBuilder::output(const std::string& name, Value value) {
  guarded([&] {
    const graph::ValueId id = impl_->id(value);
    impl_->claim(impl_->outputs, name);
    impl_->builder.output(name, id);
  });
}
Graph GraphBuilder::build() {
  return guarded([&] {
    graph::Graph g = take(impl_->builder.finish());
    *this = GraphBuilder(g.name());
    return wrap(std::move(g));
  });
}

}  // namespace cleave
