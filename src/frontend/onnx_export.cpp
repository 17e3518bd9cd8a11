#include "frontend/onnx_export.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "graph/expand.hpp"
#include "graph/spec.hpp"
#include "onnx/onnx.pb.h"

namespace cleave {

using graph::Category;
using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Op;
using graph::ValueId;

namespace {

constexpr int64_t kMaxConstantBytes = int64_t{1} << 30;

struct NotExportable {
  std::string why;
};

int onnx_type(DType d) {
  using T = onnx::TensorProto;
  switch (d) {
    case DType::f64: return T::DOUBLE;
    case DType::f32: return T::FLOAT;
    case DType::f16: return T::FLOAT16;
    case DType::bf16: return T::BFLOAT16;
    case DType::i64: return T::INT64;
    case DType::i32: return T::INT32;
    case DType::i16: return T::INT16;
    case DType::i8: return T::INT8;
    case DType::u32: return T::UINT32;
    case DType::u16: return T::UINT16;
    case DType::u8: return T::UINT8;
    case DType::boolean: return T::BOOL;
  }
  throw NotExportable{"a dtype"};
}

// Elementwise operators that are one of ONNX's.
const char* plain_name(Op op) {
  switch (op) {
    case Op::add: return "Add";
    case Op::sub: return "Sub";
    case Op::mul: return "Mul";
    case Op::div: return "Div";
    case Op::pow: return "Pow";
    case Op::max: return "Max";
    case Op::min: return "Min";
    case Op::neg: return "Neg";
    case Op::abs: return "Abs";
    case Op::sign: return "Sign";
    case Op::relu: return "Relu";
    case Op::exp: return "Exp";
    case Op::log: return "Log";
    case Op::sqrt: return "Sqrt";
    case Op::reciprocal: return "Reciprocal";
    case Op::floor: return "Floor";
    case Op::ceil: return "Ceil";
    case Op::round: return "Round";
    case Op::sin: return "Sin";
    case Op::cos: return "Cos";
    case Op::tan: return "Tan";
    case Op::tanh: return "Tanh";
    case Op::erf: return "Erf";
    case Op::sigmoid: return "Sigmoid";
    case Op::softplus: return "Softplus";
    case Op::mish: return "Mish";
    case Op::hardswish: return "HardSwish";
    case Op::isnan: return "IsNaN";
    case Op::isinf: return "IsInf";
    case Op::eq: return "Equal";
    case Op::lt: return "Less";
    case Op::le: return "LessOrEqual";
    case Op::gt: return "Greater";
    case Op::ge: return "GreaterOrEqual";
    case Op::logical_and: return "And";
    case Op::logical_or: return "Or";
    case Op::logical_xor: return "Xor";
    case Op::logical_not: return "Not";
    case Op::where: return "Where";
    default: return nullptr;
  }
}

class Exporter {
 public:
  explicit Exporter(const Graph& g) : g_(g), names_(g.value_count()) {}

  std::vector<std::byte> run() {
    model_.set_ir_version(9);
    model_.set_producer_name("cleave");
    model_.add_opset_import()->set_version(20);
    out_ = model_.mutable_graph();
    out_->set_name(g_.name());
    for (ValueId v : g_.leaves()) taken_.insert(g_.value(v).name);
    for (const auto& o : g_.outputs()) taken_.insert(o.name);
    for (NodeId id : g_.node_ids()) node(g_.node(id));
    for (const auto& o : g_.outputs()) {
      add("Identity", {names_[o.value.index]}, {}, o.name);
      type(*out_->add_output(), o.name, g_.type(o.value));
    }
    std::string bytes;
    if (!model_.SerializeToString(&bytes)) throw NotExportable{"more bytes than a model may have"};
    std::vector<std::byte> list(bytes.size());
    std::memcpy(list.data(), bytes.data(), bytes.size());
    return list;
  }

 private:
  using Strings = std::vector<std::string>;
  struct Attribute {
    const char* name;
    std::variant<int64_t, std::vector<int64_t>, std::string> value;
  };
  const graph::Shape& shape(ValueId v) const { return g_.type(v).shape; }

  std::string fresh() {
    std::string name;
    do name = fmt::format("t{}", ++count_);
    while (!taken_.insert(name).second);
    return name;
  }

  void type(onnx::ValueInfoProto& info, const std::string& name, const graph::Type& t) {
    info.set_name(name);
    auto* tensor = info.mutable_type()->mutable_tensor_type();
    tensor->set_elem_type(onnx_type(t.dtype));
    auto* dims = tensor->mutable_shape();
    for (sym::Expr e : t.shape) {
      auto* d = dims->add_dim();
      if (const auto c = g_.syms().as_constant(e))
        d->set_dim_value(*c);
      else
        d->set_dim_param(g_.syms().print(e));
    }
  }

  std::string add(const char* op, const Strings& inputs, const std::vector<Attribute>& attributes = {},
                  std::string result = "") {
    if (result.empty()) result = fresh();
    auto* n = out_->add_node();
    n->set_op_type(op);
    n->set_name(fmt::format("{}_{}", op, out_->node_size()));
    for (const std::string& i : inputs) n->add_input(i);
    n->add_output(result);
    for (const Attribute& a : attributes) attribute(*n, a);
    return result;
  }
  static void attribute(onnx::NodeProto& n, const Attribute& a) {
    auto* p = n.add_attribute();
    p->set_name(a.name);
    if (const auto* i = std::get_if<int64_t>(&a.value)) {
      p->set_type(onnx::AttributeProto::INT);
      p->set_i(*i);
    } else if (const auto* list = std::get_if<std::vector<int64_t>>(&a.value)) {
      p->set_type(onnx::AttributeProto::INTS);
      for (int64_t i : *list) p->add_ints(i);
    } else {
      p->set_type(onnx::AttributeProto::STRING);
      p->set_s(std::get<std::string>(a.value));
    }
  }

  std::string initialiser(DType dtype, const std::vector<int64_t>& extents, const void* bytes, size_t size,
                          std::string name = "") {
    if (name.empty()) name = fresh();
    auto* t = out_->add_initializer();
    t->set_name(name);
    t->set_data_type(onnx_type(dtype));
    for (int64_t e : extents) t->add_dims(e);
    t->set_raw_data(bytes, size);
    return name;
  }
  std::string integers(const std::vector<int64_t>& list) {
    return initialiser(DType::i64, {static_cast<int64_t>(list.size())}, list.data(), 8 * list.size());
  }
  std::string number(double v, DType dtype) {
    graph::ConstantData data;
    data.value = v;
    const auto bytes = graph::materialise(data, dtype, 1);
    return initialiser(dtype, {}, bytes.data(), bytes.size());
  }

  // An extent as a vector of one, read off an input where it is not a number.
  std::string extent(sym::Expr e) {
    sym::Pool& syms = g_.syms();
    if (const auto c = syms.as_constant(e)) return integers({*c});
    if (syms.kind(e) == sym::Kind::symbol) {
      for (ValueId v : g_.leaves())
        for (size_t a = 0; g_.producer(v).op == Op::input && a < shape(v).size(); ++a)
          if (shape(v)[a] == e)
            return add("Shape", {g_.value(v).name},
                       {{"start", static_cast<int64_t>(a)}, {"end", static_cast<int64_t>(a + 1)}});
      throw NotExportable{fmt::format("the dimension `{}`, which no input has as an axis", syms.symbol_name(e))};
    }
    if (syms.kind(e) != sym::Kind::polynomial) throw NotExportable{fmt::format("the extent {}", syms.print(e))};
    std::string sum;
    for (const auto& term : syms.terms(e)) {
      std::string product = integers({term.coefficient});
      for (sym::Expr a : term.atoms) product = add("Mul", {product, extent(a)});
      sum = sum.empty() ? product : add("Add", {sum, product});
    }
    return sum;
  }
  std::string extents(const graph::Shape& list) {
    if (std::all_of(list.begin(), list.end(), [&](sym::Expr e) { return g_.syms().as_constant(e).has_value(); })) {
      std::vector<int64_t> numbers;
      for (sym::Expr e : list) numbers.push_back(*g_.syms().as_constant(e));
      return integers(numbers);
    }
    Strings parts;
    for (sym::Expr e : list) parts.push_back(extent(e));
    return add("Concat", parts, {{"axis", int64_t{0}}});
  }

  void node(const Node& n) {
    Strings in;
    for (ValueId v : n.operands) in.push_back(names_[v.index]);
    const ValueId result = n.results[0];
    auto ints = [&](const char* name) { return n.attributes.get<std::vector<int64_t>>(name); };
    auto say = [&](std::string name) { names_[result.index] = std::move(name); };
    switch (info(n.op).category) {
      case Category::leaf: return leaf(n, result);
      case Category::elementwise: return say(elementwise(n, in));
      case Category::cast: return say(add("Cast", in, {{"to", int64_t{onnx_type(g_.type(result).dtype)}}}));
      case Category::contract: return say(einsum(n, in));
      case Category::reduce: return reduce(n, in[0]);
      case Category::gather: return say(add("Gather", in, {{"axis", n.attributes.get<int64_t>("axis")}}));
      case Category::select: return select(n, in[0]);
      case Category::scan:
        if (n.op != Op::cumsum) throw NotExportable{fmt::format("the operator `{}`", info(n.op).name)};
        return say(add("CumSum", {in[0], number(static_cast<double>(n.attributes.get<int64_t>("axis")), DType::i64)},
                       {{"exclusive", int64_t{n.attributes.get_or("exclusive", false)}},
                        {"reverse", int64_t{n.attributes.get_or("reverse", false)}}}));
      case Category::view: break;
      default: throw NotExportable{fmt::format("the operator `{}`", info(n.op).name)};
    }
    switch (n.op) {
      case Op::reshape: return say(add("Reshape", {in[0], extents(shape(result))}, {{"allowzero", int64_t{1}}}));
      case Op::broadcast: return say(add("Expand", {in[0], extents(shape(result))}));
      case Op::transpose: return say(add("Transpose", in, {{"perm", ints("perm")}}));
      case Op::squeeze: return say(add("Squeeze", {in[0], integers(ints("axes"))}));
      case Op::unsqueeze: return say(add("Unsqueeze", {in[0], integers(ints("axes"))}));
      case Op::concat: return say(add("Concat", in, {{"axis", n.attributes.get<int64_t>("axis")}}));
      case Op::slice: {
        const auto* steps = n.attributes.find("steps");
        if (steps)
          for (int64_t s : std::get<std::vector<int64_t>>(*steps))
            if (s < 1) throw NotExportable{"a slice that runs backwards"};
        Strings operands{in[0], extents(n.attributes.get<std::vector<sym::Expr>>("starts")),
                         extents(n.attributes.get<std::vector<sym::Expr>>("stops")), integers(ints("axes"))};
        if (steps) operands.push_back(integers(std::get<std::vector<int64_t>>(*steps)));
        return say(add("Slice", operands));
      }
      case Op::pad: {
        std::vector<int64_t> amounts = ints("low");
        for (int64_t high : ints("high")) amounts.push_back(high);
        const double value = n.attributes.get_or("value", 0.0);
        return say(add("Pad", {in[0], integers(amounts), number(value, g_.type(result).dtype)}));
      }
      case Op::flip: {
        // From the last element down to the first: the end is one before it, which only a number below any axis says.
        const std::vector<int64_t> axes = ints("axes");
        const std::vector<int64_t> starts(axes.size(), -1), steps(axes.size(), -1),
            stops(axes.size(), std::numeric_limits<int64_t>::min() + 1);
        return say(add("Slice", {in[0], integers(starts), integers(stops), integers(axes), integers(steps)}));
      }
      case Op::split: {
        const std::string sizes = extents(n.attributes.get<std::vector<sym::Expr>>("sizes"));
        auto* s = out_->add_node();
        s->set_op_type("Split");
        s->add_input(in[0]);
        s->add_input(sizes);
        attribute(*s, {"axis", n.attributes.get<int64_t>("axis")});
        for (ValueId v : n.results) s->add_output(names_[v.index] = fresh());
        return;
      }
      default: throw NotExportable{fmt::format("the operator `{}`", info(n.op).name)};
    }
  }

  void select(const Node& n, const std::string& x) {
    const int64_t axis = n.attributes.get<int64_t>("axis");
    if (n.op != Op::topk) {
      names_[n.results[0].index] = add(n.op == Op::argmax ? "ArgMax" : "ArgMin", {x},
                                       {{"axis", axis}, {"keepdims", int64_t{n.attributes.get_or("keepdims", false)}}});
      return;
    }
    auto* node = out_->add_node();
    node->set_op_type("TopK");
    node->add_input(x);
    node->add_input(integers({n.attributes.get<int64_t>("k")}));
    attribute(*node, {"axis", axis});
    attribute(*node, {"largest", int64_t{n.attributes.get_or("largest", true)}});
    for (ValueId v : n.results) node->add_output(names_[v.index] = fresh());
  }

  void leaf(const Node& n, ValueId v) {
    const graph::Type& t = g_.type(v);
    std::string& name = names_[v.index];
    switch (n.op) {
      case Op::input:
      case Op::scalar: name = g_.value(v).name; return type(*out_->add_input(), name, t);
      case Op::literal: name = number(n.attributes.get<double>("value"), t.dtype); return;
      case Op::constant: {
        std::vector<int64_t> dims;
        int64_t elements = 1;
        for (sym::Expr e : t.shape) {
          const auto c = g_.syms().as_constant(e);
          if (!c) throw NotExportable{"a constant of open extents"};
          dims.push_back(*c);
          elements *= *c;
        }
        if (elements * static_cast<int64_t>(byte_size(t.dtype)) > kMaxConstantBytes)
          throw NotExportable{"a constant of more than 1 GiB"};
        const auto bytes = graph::materialise(n.attributes.get<graph::ConstantData>("data"), t.dtype, elements);
        name = initialiser(t.dtype, dims, bytes.data(), bytes.size(), g_.value(v).name);
        return;
      }
      case Op::extent: {
        const std::string e = extent(n.attributes.get<std::vector<sym::Expr>>("of")[0]);
        name = add("Cast", {add("Squeeze", {e, integers({0})})}, {{"to", int64_t{onnx_type(t.dtype)}}});
        return;
      }
      case Op::iota: {
        int64_t axis = n.attributes.get<int64_t>("axis");
        if (axis < 0) axis += static_cast<int64_t>(t.shape.size());
        const std::string end = add("Squeeze", {extent(t.shape[static_cast<size_t>(axis)]), integers({0})});
        std::string x = add("Range", {number(0, DType::i64), end, number(1, DType::i64)});
        std::vector<int64_t> others;
        for (int64_t a = 0; a < static_cast<int64_t>(t.shape.size()); ++a)
          if (a != axis) others.push_back(a);
        if (!others.empty()) x = add("Expand", {add("Unsqueeze", {x, integers(others)}), extents(t.shape)});
        name = add("Cast", {x}, {{"to", int64_t{onnx_type(t.dtype)}}});
        return;
      }
      default: throw NotExportable{fmt::format("the operator `{}`", info(n.op).name)};
    }
  }

  std::string elementwise(const Node& n, const Strings& in) {
    const DType d = g_.type(n.operands[0]).dtype;
    auto constant = [&](double v) { return number(v, d); };
    if (const char* name = plain_name(n.op)) return add(name, in);
    switch (n.op) {
      case Op::square: return add("Mul", {in[0], in[0]});
      case Op::mod: {
        if (is_real(d)) break;  // ONNX takes the sign of the other side there
        const std::string zero = add("Equal", {in[1], constant(0)});
        return add("Where", {zero, constant(0), add("Mod", {in[0], add("Where", {zero, constant(1), in[1]})})});
      }
      case Op::rsqrt: return add("Reciprocal", {add("Sqrt", in)});
      case Op::ne: return add("Not", {add("Equal", in)});
      case Op::exp2: return add("Pow", {constant(2), in[0]});
      case Op::log2: return add("Div", {add("Log", in), constant(std::log(2.0))});
      case Op::clamp: return add("Min", {add("Max", {in[0], in[1]}), in[2]});
      case Op::silu: return add("Mul", {in[0], add("Sigmoid", in)});
      case Op::gelu_erf: return add("Gelu", in);
      case Op::gelu_tanh: return add("Gelu", in, {{"approximate", std::string("tanh")}});
      case Op::quot0: return add("Where", {add("Equal", {in[1], constant(0)}), constant(0), add("Div", in)});
      default: break;
    }
    throw NotExportable{fmt::format("the operator `{}`", info(n.op).name)};
  }

  std::string einsum(const Node& n, Strings in) {
    const auto spec = graph::parse_contract_spec(n.attributes.get<std::string>("spec")).value();
    std::map<std::string, char> letters;
    auto letter = [&](const std::string& name) {
      const auto [it, made] = letters.emplace(name, static_cast<char>('a' + letters.size()));
      if (letters.size() > 26) throw NotExportable{"a contraction of more than 26 indices"};
      (void)made;
      return it->second;
    };
    // An axis of extent 1 that stretches is dropped; one that is the index's own extent stays.
    std::map<std::string, bool> wide;
    for (size_t o : {0, 1})
      for (size_t a = 0; a < spec.operands[o].size(); ++a)
        wide[spec.operands[o][a]] |= !g_.syms().is(shape(n.operands[o])[a], 1);
    std::string equation;
    for (size_t o : {0, 1}) {
      std::vector<int64_t> dropped;
      if (o) equation += ",";
      for (size_t a = 0; a < spec.operands[o].size(); ++a) {
        if (wide[spec.operands[o][a]] && g_.syms().is(shape(n.operands[o])[a], 1))
          dropped.push_back(static_cast<int64_t>(a));
        else
          equation += letter(spec.operands[o][a]);
      }
      if (!dropped.empty()) in[o] = add("Squeeze", {in[o], integers(dropped)});
    }
    equation += "->";
    for (const std::string& name : spec.result) equation += letter(name);
    return add("Einsum", in, {{"equation", equation}});
  }

  void reduce(const Node& n, const std::string& x) {
    const size_t rank = shape(n.operands[0]).size();
    std::vector<int64_t> axes;
    for (int64_t a : graph::reduced_axes(n, rank)) axes.push_back(a);
    const int64_t keep = n.attributes.get_or("keepdims", false);
    auto over = [&](const char* op, const std::string& of, int64_t keepdims) {
      return add(op, {of, integers(axes)}, {{"keepdims", keepdims}, {"noop_with_empty_axes", int64_t{1}}});
    };
    auto say = [&](std::string name) { names_[n.results[0].index] = std::move(name); };
    switch (n.op) {
      case Op::sum: return say(over("ReduceSum", x, keep));
      case Op::mean: return say(over("ReduceMean", x, keep));
      case Op::prod: return say(over("ReduceProd", x, keep));
      case Op::amax: return say(over("ReduceMax", x, keep));
      case Op::amin: return say(over("ReduceMin", x, keep));
      case Op::any:
      case Op::all: {
        const std::string wide = add("Cast", {x}, {{"to", int64_t{onnx::TensorProto::INT32}}});
        return say(add("Cast", {over(n.op == Op::any ? "ReduceMax" : "ReduceMin", wide, keep)},
                       {{"to", int64_t{onnx::TensorProto::BOOL}}}));
      }
      case Op::moments: {
        const std::string d = add("Sub", {x, over("ReduceMean", x, 1)});
        say(over("ReduceMean", x, keep));
        names_[n.results[1].index] = over("ReduceMean", add("Mul", {d, d}), keep);
        return;
      }
      default: throw NotExportable{fmt::format("the operator `{}`", info(n.op).name)};
    }
  }

  const Graph& g_;
  onnx::ModelProto model_;
  onnx::GraphProto* out_ = nullptr;
  std::vector<std::string> names_;
  std::set<std::string> taken_;
  size_t count_ = 0;
};

}  // namespace

OnnxExport export_onnx(const Graph& graph) {
  try {
    const Graph primitive = graph::expand_to_primitives(graph::expand(graph));
    return {Exporter(primitive).run(), ""};
  } catch (const NotExportable& e) {
    return {{}, e.why};
  }
}

}  // namespace cleave
