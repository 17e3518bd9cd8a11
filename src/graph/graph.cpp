#include "graph/graph.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <set>

#include "base/codes.hpp"
#include "base/match.hpp"
#include "base/rng.hpp"

namespace cleave::graph {

std::vector<ValueId> Graph::leaves(Op op) const {
  std::vector<ValueId> out;
  for (ValueId v : leaves_)
    if (producer(v).op == op) out.push_back(v);
  return out;
}

std::vector<NodeId> Graph::node_ids() const {
  std::vector<NodeId> ids;
  for (uint32_t i = 0; i < nodes_.size(); ++i) ids.push_back(NodeId(i));
  return ids;
}

Graph Graph::detached() const {
  Graph out = *this;
  out.syms_ = std::make_shared<sym::Pool>(*syms_);
  return out;
}

std::vector<int64_t> Graph::extents(ValueId id) const {
  std::vector<int64_t> out;
  for (sym::Expr e : type(id).shape) {
    const auto c = syms_->as_constant(e);
    CHECK(c, "`{}` has an unbound extent {}", values_[id].name, syms_->print(e));
    out.push_back(*c);
  }
  return out;
}

bool Graph::has_constant_shapes() const {
  for (const Value& v : values_)
    for (sym::Expr e : v.type.shape)
      if (!syms_->as_constant(e)) return false;
  return true;
}

std::vector<int> Graph::use_counts() const {
  std::vector<int> uses(values_.size());
  for (const Node& n : nodes_)
    for (ValueId v : n.operands) ++uses[v.index];
  for (const Output& o : outputs_) ++uses[o.value.index];
  return uses;
}

Builder::Builder(std::string name, std::shared_ptr<sym::Pool> syms) {
  graph_.name_ = std::move(name);
  if (syms) graph_.syms_ = std::move(syms);
}

sym::Expr Builder::dim(std::string_view name, int64_t lo, int64_t hi) {
  const sym::Expr e = syms().symbol(name, {lo, hi});
  if (std::find(graph_.dims_.begin(), graph_.dims_.end(), e) == graph_.dims_.end()) graph_.dims_.push_back(e);
  return e;
}

Shape Builder::shape(std::span<const int64_t> extents) {
  Shape s;
  for (int64_t e : extents) s.push_back(syms().constant(e));
  return s;
}
Shape Builder::shape(std::initializer_list<int64_t> extents) {
  return shape(std::span(extents.begin(), extents.size()));
}

size_t Builder::hash(Op op, std::span<const ValueId> operands, const Attributes& attributes) {
  size_t h = static_cast<size_t>(op) * 0x9e3779b97f4a7c15ULL;
  auto mix = [&](size_t x) { h = (h ^ x) * 0x100000001b3ULL + (h >> 29); };
  for (ValueId v : operands) mix(v.index + 1);
  for (const auto& [name, value] : attributes.items()) {
    mix(std::hash<std::string>{}(name));
    match(
        value, [&](int64_t v) { mix(static_cast<size_t>(v)); },
        [&](double v) {
          uint64_t bits;
          std::memcpy(&bits, &v, sizeof bits);
          mix(bits);
        },
        [&](bool v) { mix(v); }, [&](const std::string& v) { mix(std::hash<std::string>{}(v)); },
        [&](DType v) { mix(static_cast<size_t>(v)); },
        [&](const std::vector<int64_t>& v) {
          for (int64_t x : v) mix(static_cast<size_t>(x));
        },
        [&](const std::vector<sym::Expr>& v) {
          for (sym::Expr x : v) mix(x.index);
        },
        [&](const ConstantData& v) { mix(v.seed); });
  }
  return h;
}

namespace {
// More elements or axes than a value may have.
Diagnostics too_large(sym::Pool& syms, Op op, std::span<const Type> types) {
  for (const Type& t : types) {
    const sym::Expr product = syms.product(t.shape);
    const int64_t elements = std::max(syms.bounds(product).lo, syms.as_constant(product).value_or(0));
    if (elements > kMaxElements) return {diagnose(Code::extent_too_large, info(op).name, elements, kMaxElements)};
    if (t.shape.size() > kMaxRank)
      return {diagnose(Code::bad_shape, info(op).name,
                       fmt::format("the result would have {} axes, more than {}", t.shape.size(), kMaxRank))};
  }
  return {};
}
}  // namespace

Result<std::vector<ValueId>> Builder::insert(Op op, std::vector<ValueId> operands, Attributes attributes) {
  const size_t h = hash(op, operands, attributes);
  for (auto [it, end] = known_.equal_range(h); it != end; ++it) {
    const Node& n = graph_.nodes_[it->second];
    if (n.op == op && n.operands == operands && n.attributes == attributes) return n.results;
  }
  // A composite counts as the primitives that it may become, so that expand() keeps the limit too.
  const Category category = info(op).category;
  const size_t weight = category == Category::composite || category == Category::dialect ? 40 : 1;
  if (weight_ + weight > kMaxNodes) return diagnose(Code::graph_too_large, kMaxNodes, "nodes");
  std::vector<Type> types;
  for (ValueId v : operands) types.push_back(graph_.type(v));
  TRY_ASSIGN(std::vector<Type> results, infer(syms(), op, types, attributes));
  if (Diagnostics bad = too_large(syms(), op, results); !bad.empty()) return bad;
  weight_ += weight;
  const NodeId id = graph_.nodes_.add({op, std::move(operands), std::move(attributes), {}});
  std::vector<ValueId> values;
  for (size_t i = 0; i < results.size(); ++i)
    values.push_back(graph_.values_.add({id, static_cast<int>(i), std::move(results[i]), {}}));
  graph_.nodes_[id].results = values;
  known_.emplace(h, id);
  return values;
}

ValueId Builder::leaf(Op op, Attributes attributes) {
  const std::string name = attributes.get<std::string>("name");
  auto r = insert(op, {}, std::move(attributes));
  const ValueId v = r.value().at(0);
  if (std::find(graph_.leaves_.begin(), graph_.leaves_.end(), v) == graph_.leaves_.end()) graph_.leaves_.push_back(v);
  set_name(v, name);
  return v;
}

ValueId Builder::input(std::string_view name, DType dtype, Shape shape) {
  return leaf(Op::input, {{"name", std::string(name)}, {"dtype", dtype}, {"shape", std::move(shape)}});
}
ValueId Builder::constant(std::string_view name, DType dtype, Shape shape, ConstantData data) {
  return leaf(Op::constant,
              {{"name", std::string(name)}, {"dtype", dtype}, {"shape", std::move(shape)}, {"data", std::move(data)}});
}
ValueId Builder::scalar(std::string_view name, DType dtype) {
  return leaf(Op::scalar, {{"name", std::string(name)}, {"dtype", dtype}});
}
ValueId Builder::literal(double value, DType dtype) {
  return make(Op::literal, {}, {{"value", value}, {"dtype", dtype}});
}

Result<std::vector<ValueId>> Builder::add(Op op, std::vector<ValueId> operands, Attributes attributes) {
  const OpInfo& o = info(op);
  if (static_cast<int>(operands.size()) < o.min_operands ||
      (o.max_operands >= 0 && static_cast<int>(operands.size()) > o.max_operands)) {
    const std::string wanted = o.max_operands < 0 ? fmt::format("at least {}", o.min_operands)
                               : o.min_operands == o.max_operands
                                   ? fmt::format("{}", o.min_operands)
                                   : fmt::format("{} to {}", o.min_operands, o.max_operands);
    return diagnose(Code::wrong_arity, o.name, wanted, operands.size());
  }
  for (const auto& [name, value] : attributes.items()) {
    const AttributeInfo* a = o.attribute(name);
    if (!a) return diagnose(Code::unknown_attribute, o.name, name);
    static_assert(std::variant_size_v<Attribute> == 8);
    constexpr size_t kIndex[] = {0, 1, 2, 3, 4, 5, 6, 7};
    if (value.index() != kIndex[static_cast<size_t>(a->type)])
      return diagnose(Code::bad_attribute, o.name, name, "has the wrong type");
  }
  for (const AttributeInfo& a : o.attributes)
    if (a.required && !attributes.has(a.name)) return diagnose(Code::missing_attribute, o.name, a.name);

  if (o.category == Category::elementwise || op == Op::concat || op == Op::contract) {
    // Promotion: the strong operands decide; literals follow unless that would lose their class.
    const size_t first = op == Op::where ? 1 : 0;
    std::optional<DType> common, weak;
    for (size_t i = first; i < operands.size(); ++i) {
      const DType d = type(operands[i]).dtype;
      std::optional<DType>& slot = graph_.producer(operands[i]).op == Op::literal ? weak : common;
      slot = slot ? promote(*slot, d) : d;
    }
    if (!common)
      common = weak;
    else if (weak && class_of(*weak) == DTypeClass::real && class_of(*common) != DTypeClass::real)
      common = DType::f32;
    else if (weak && class_of(*common) == DTypeClass::boolean)
      common = promote(*common, *weak);
    if (common && o.category == Category::elementwise) {
      const FnRule rule = info(scalar_fn(op)).rule;
      if ((rule == FnRule::real || rule == FnRule::real_test) && !is_real(*common)) common = DType::f32;
      if (rule == FnRule::logic) common = DType::boolean;
      if (rule == FnRule::arith && *common == DType::boolean && op != Op::max && op != Op::min && op != Op::mul)
        common = DType::i64;
    }
    for (size_t i = 0; i < operands.size(); ++i) {
      const DType wanted = i < first ? DType::boolean : *common;
      if (type(operands[i]).dtype == wanted) continue;
      const Node& n = graph_.producer(operands[i]);
      if (n.op == Op::literal && class_of(wanted) == DTypeClass::real) {
        operands[i] = literal(n.attributes.get<double>("value"), wanted);
      } else {
        operands[i] = make(Op::cast, {operands[i]}, {{"dtype", wanted}});
      }
    }
  }
  if (op == Op::transpose) {  // as everywhere, axes may be counted from the end
    auto perm = attributes.get<std::vector<int64_t>>("perm");
    for (int64_t& p : perm) p += p < 0 ? static_cast<int64_t>(type(operands[0]).shape.size()) : 0;
    attributes.set("perm", std::move(perm));
  }
  return insert(op, std::move(operands), std::move(attributes));
}

std::vector<ValueId> Builder::make_all(Op op, std::vector<ValueId> operands, Attributes attributes) {
  return add(op, std::move(operands), std::move(attributes)).value();
}
ValueId Builder::make(Op op, std::vector<ValueId> operands, Attributes attributes) {
  const auto r = make_all(op, std::move(operands), std::move(attributes));
  CHECK(r.size() == 1, "`{}` has {} results", info(op).name, r.size());
  return r[0];
}

void Builder::set_name(ValueId value, std::string_view name) {
  Value& v = graph_.values_[value];
  if (v.name.empty()) v.name = std::string(name);
}

void Builder::output(std::string_view name, ValueId value) { graph_.outputs_.push_back({std::string(name), value}); }

namespace {

// Marks what the outputs need; leaves are always kept.
std::vector<bool> needed_nodes(const Graph& g) {
  std::vector<bool> needed(g.node_count());
  for (const Output& o : g.outputs()) needed[g.value(o.value).node.index] = true;
  for (ValueId v : g.leaves()) needed[g.value(v).node.index] = true;
  for (size_t i = g.node_count(); i-- > 0;) {
    if (!needed[i]) continue;
    for (ValueId v : g.node(NodeId(static_cast<uint32_t>(i))).operands) needed[g.value(v).node.index] = true;
  }
  return needed;
}

}  // namespace

Result<Graph> Builder::finish() {
  if (graph_.outputs_.empty()) return diagnose(Code::no_output);
  return take();
}

Graph Builder::take() {
  const std::vector<bool> needed = needed_nodes(graph_);
  Graph out;
  out.name_ = graph_.name_;
  out.syms_ = graph_.syms_;
  out.dims_ = graph_.dims_;
  std::vector<ValueId> map(graph_.values_.size());
  // Leaves come first, in order of declaration, as the text has them.
  std::vector<NodeId> order;
  for (ValueId v : graph_.leaves_) order.push_back(graph_.values_[v].node);
  const std::set<NodeId> leaves(order.begin(), order.end());
  for (uint32_t i = 0; i < graph_.nodes_.size(); ++i) {
    if (needed[i] && !leaves.contains(NodeId(i))) order.push_back(NodeId(i));
  }
  for (const NodeId source : order) {
    Node n = graph_.nodes_[source];
    for (ValueId& v : n.operands) v = map[v.index];
    const std::vector<ValueId> old = n.results;
    const NodeId id = out.nodes_.add(std::move(n));
    for (size_t r = 0; r < old.size(); ++r) {
      Value v = graph_.values_[old[r]];
      v.node = id;
      map[old[r].index] = out.nodes_[id].results[r] = out.values_.add(std::move(v));
    }
  }
  for (ValueId v : graph_.leaves_) out.leaves_.push_back(map[v.index]);
  for (const Output& o : graph_.outputs_) out.outputs_.push_back({o.name, map[o.value.index]});
  return out;
}

Graph rewrite(const Graph& graph, const Replace& replace) {
  Builder b(graph.name(), graph.shared_syms());
  for (sym::Expr d : graph.dims()) {
    const auto r = graph.syms().symbol_range(d);
    b.dim(graph.syms().symbol_name(d), r.lo, r.hi);
  }
  std::vector<ValueId> map(graph.value_count());
  for (NodeId id : graph.node_ids()) {
    const Node& n = graph.node(id);
    std::vector<ValueId> operands;
    for (ValueId v : n.operands) operands.push_back(map[v.index]);
    std::optional<std::vector<ValueId>> results = replace(b, id, operands);
    if (!results) {
      switch (n.op) {
        case Op::input:
          results = {{b.input(n.attributes.get<std::string>("name"), n.attributes.get<DType>("dtype"),
                              n.attributes.get<std::vector<sym::Expr>>("shape"))}};
          break;
        case Op::constant:
          results = {
              {b.constant(n.attributes.get<std::string>("name"), n.attributes.get<DType>("dtype"),
                          n.attributes.get<std::vector<sym::Expr>>("shape"), n.attributes.get<ConstantData>("data"))}};
          break;
        case Op::scalar:
          results = {{b.scalar(n.attributes.get<std::string>("name"), n.attributes.get<DType>("dtype"))}};
          break;
        default: results = b.make_all(n.op, operands, n.attributes);
      }
    }
    CHECK(results->size() == n.results.size(), "`{}` was replaced by {} values", info(n.op).name, results->size());
    for (size_t i = 0; i < n.results.size(); ++i) {
      map[n.results[i].index] = (*results)[i];
      if (!graph.value(n.results[i]).name.empty()) b.set_name((*results)[i], graph.value(n.results[i]).name);
    }
  }
  for (const Output& o : graph.outputs()) b.output(o.name, map[o.value.index]);
  return b.take();
}

Result<Graph> bind(const Graph& graph, const std::map<std::string, int64_t>& dims) {
  sym::Pool& syms = graph.syms();
  std::unordered_map<sym::Expr, sym::Expr> by;
  for (const auto& [name, value] : dims) {
    const auto s = syms.find_symbol(name);
    if (!s || std::find(graph.dims().begin(), graph.dims().end(), *s) == graph.dims().end())
      return diagnose(Code::undefined_name, name);
    const auto range = syms.symbol_range(*s);
    if (value < range.lo || value > range.hi) return diagnose(Code::dim_out_of_range, name, value, range.lo, range.hi);
    by[*s] = syms.constant(value);
  }
  Builder b(graph.name(), graph.shared_syms());
  for (sym::Expr d : graph.dims()) {
    if (by.count(d)) continue;
    const auto r = syms.symbol_range(d);
    b.dim(syms.symbol_name(d), r.lo, r.hi);
  }
  std::vector<ValueId> map(graph.value_count());
  for (NodeId id : graph.node_ids()) {
    const Node& n = graph.node(id);
    std::vector<ValueId> operands;
    for (ValueId v : n.operands) operands.push_back(map[v.index]);
    Attributes attributes;
    for (const auto& [name, value] : n.attributes.items()) {
      Attribute a = value;
      if (auto* extents = std::get_if<std::vector<sym::Expr>>(&a))
        for (sym::Expr& e : *extents) e = syms.substitute(e, by);
      attributes.set(name, std::move(a));
    }
    std::vector<ValueId> results;
    if (info(n.op).category == Category::leaf) {
      // What a leaf of the text may not be, it may not become.
      auto types = infer(b.syms(), n.op, std::span<const Type>{}, attributes);
      Diagnostics bad = types ? too_large(b.syms(), n.op, *types) : types.errors();
      for (Diagnostic& d : bad)
        d.notes.push_back(
            fmt::format("in `{}`, with the dimensions as they are given", graph.value(n.results[0]).name));
      if (!bad.empty()) return bad;
    }
    switch (n.op) {
      case Op::input:
        results = {b.input(attributes.get<std::string>("name"), attributes.get<DType>("dtype"),
                           attributes.get<std::vector<sym::Expr>>("shape"))};
        break;
      case Op::constant:
        results = {b.constant(attributes.get<std::string>("name"), attributes.get<DType>("dtype"),
                              attributes.get<std::vector<sym::Expr>>("shape"), attributes.get<ConstantData>("data"))};
        break;
      case Op::scalar: results = {b.scalar(attributes.get<std::string>("name"), attributes.get<DType>("dtype"))}; break;
      default: {
        TRY_ASSIGN(results, b.add(n.op, operands, attributes));
      }
    }
    for (size_t i = 0; i < n.results.size(); ++i) {
      map[n.results[i].index] = results[i];
      if (!graph.value(n.results[i]).name.empty()) b.set_name(results[i], graph.value(n.results[i]).name);
    }
  }
  for (const Output& o : graph.outputs()) b.output(o.name, map[o.value.index]);
  return b.finish();
}

Diagnostics verify(const Graph& graph) {
  Diagnostics out;
  auto bad = [&](std::string_view what, std::string why) { out.push_back(diagnose(Code::invalid_graph, what, why)); };
  if (graph.outputs().empty()) out.push_back(diagnose(Code::no_output));
  for (NodeId id : graph.node_ids()) {
    const Node& n = graph.node(id);
    std::vector<Type> types;
    bool sound = true;
    for (ValueId v : n.operands) {
      if (!v.valid() || v.index >= graph.value_count()) {
        bad(info(n.op).name, "an operand does not exist");
        sound = false;
      } else if (!(graph.value(v).node < id)) {
        bad(info(n.op).name, "an operand is defined later");
        sound = false;
      } else {
        types.push_back(graph.type(v));
      }
    }
    if (!sound) continue;
    auto results = infer(graph.syms(), n.op, types, n.attributes);
    if (!results) {
      for (const Diagnostic& d : results.errors()) out.push_back(d);
      continue;
    }
    if (results->size() != n.results.size()) {
      bad(info(n.op).name, "has the wrong number of results");
      continue;
    }
    for (size_t i = 0; i < n.results.size(); ++i)
      if (!((*results)[i] == graph.type(n.results[i]))) bad(info(n.op).name, "a result has the wrong type");
  }
  std::map<std::string, int> names;
  for (ValueId v : graph.leaves())
    if (++names[graph.value(v).name] == 2) out.push_back(diagnose(Code::duplicate_name, graph.value(v).name));
  return out;
}

bool equal(const Graph& a, const Graph& b) { return print(a, {kMaxElements}) == print(b, {kMaxElements}); }

std::vector<std::byte> materialise(const ConstantData& data, DType dtype, int64_t elements) {
  if (data.kind == ConstantData::Kind::bytes) {
    CHECK(data.bytes && static_cast<int64_t>(data.bytes->size()) == elements * byte_size(dtype));
    return *data.bytes;
  }
  const int64_t width = byte_size(dtype);
  std::vector<std::byte> out(static_cast<size_t>(elements * width));
  Rng rng(data.seed);
  for (int64_t i = 0; i < elements; ++i) {
    double v = data.value;
    if (data.kind == ConstantData::Kind::normal) v += data.scale * rng.normal();
    if (data.kind == ConstantData::Kind::uniform) v += data.scale * rng.uniform();
    std::byte* at = out.data() + i * width;
    if (is_real(dtype))
      store_real(dtype, at, v);
    else
      store_integer(dtype, at, real_to_integer(dtype == DType::boolean ? DType::boolean : DType::i64, v));
  }
  return out;
}

std::vector<int64_t> normalise_axes(std::span<const int64_t> axes, size_t rank) {
  std::vector<int64_t> out;
  for (int64_t a : axes) out.push_back(a < 0 ? a + static_cast<int64_t>(rank) : a);
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<int64_t> reduced_axes(const Node& node, size_t rank) {
  if (const Attribute* a = node.attributes.find("axes"))
    return normalise_axes(std::get<std::vector<int64_t>>(*a), rank);
  std::vector<int64_t> all(rank);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::string print(const sym::Pool& syms, const Type& type) {
  std::string out = name(type.dtype);
  if (type.shape.empty()) return out;
  out += "[";
  for (size_t i = 0; i < type.shape.size(); ++i) out += (i ? ", " : "") + syms.print(type.shape[i]);
  return out + "]";
}

}  // namespace cleave::graph
