#include "schedule/plan.hpp"

#include <algorithm>
#include <numeric>

#include "base/codes.hpp"
#include "base/match.hpp"
#include "graph/expand.hpp"
#include "graph/spec.hpp"
#include "schedule/expression.hpp"

namespace cleave::schedule {

using graph::Category;
using graph::Op;
using itgraph::Compute;
using itgraph::Role;
using sym::Expr;

graph::Graph simplify_reductions(const graph::Graph& g) {
  return graph::rewrite(
      g,
      [&](graph::Builder& b, graph::NodeId id,
          std::span<const graph::ValueId> x) -> std::optional<std::vector<graph::ValueId>> {
        const graph::Node& n = g.node(id);
        if (n.op != Op::mean && n.op != Op::moments) return std::nullopt;
        const graph::Type t = b.type(x[0]);
        const auto axes = graph::reduced_axes(n, t.shape.size());
        const bool keep = n.attributes.get_or("keepdims", false);
        Expr count = g.syms().constant(1);
        for (int64_t a : axes) count = g.syms().mul(count, t.shape[static_cast<size_t>(a)]);
        const DType wide = compute_type(t.dtype);
        const graph::ValueId input = wide == t.dtype ? x[0] : b.make(Op::cast, {x[0]}, {{"dtype", wide}});
        auto sum = [&](graph::ValueId v, bool keepdims) {
          return b.make(Op::sum, {v}, {{"axes", axes}, {"keepdims", keepdims}});
        };
        const graph::ValueId size = b.make(Op::extent, {}, {{"of", std::vector<Expr>{count}}, {"dtype", wide}});
        auto narrow = [&](graph::ValueId v) {
          return wide == t.dtype ? v : b.make(Op::cast, {v}, {{"dtype", t.dtype}});
        };
        if (n.op == Op::mean) return {{narrow(b.make(Op::div, {sum(input, keep), size}))}};
        const graph::ValueId mean = b.make(Op::div, {sum(input, true), size});
        const graph::ValueId spread =
            b.make(Op::div, {sum(b.make(Op::square, {b.make(Op::sub, {input, mean})}), keep), size});
        const graph::ValueId first = keep ? mean : b.make(Op::reshape, {mean}, {{"shape", b.type(spread).shape}});
        return {{narrow(first), narrow(spread)}};
      });
}

int64_t extent_of(const Plan& plan, Expr index) { return plan.it.syms->typical(plan.it.extents.at(index)); }
int64_t most_of(const Plan& plan, Expr index) { return plan.it.syms->bounds(plan.it.extents.at(index)).hi; }

namespace {

// Vector instructions per vector of a function, roughly; a multiply-add of a product is one.
double weight(Fn fn) {
  switch (fn) {
    case Fn::add:
    case Fn::sub:
    case Fn::mul:
    case Fn::max:
    case Fn::min:
    case Fn::clamp:
    case Fn::neg:
    case Fn::abs:
    case Fn::square:
    case Fn::relu:
    case Fn::eq:
    case Fn::ne:
    case Fn::lt:
    case Fn::le:
    case Fn::gt:
    case Fn::ge:
    case Fn::where:
    case Fn::logical_and:
    case Fn::logical_or:
    case Fn::logical_xor:
    case Fn::logical_not:
    case Fn::isnan:
    case Fn::isinf:
    case Fn::floor:
    case Fn::ceil:
    case Fn::round:
    case Fn::sign: return 1;
    case Fn::div:
    case Fn::quot0:
    case Fn::sqrt:
    case Fn::rsqrt:
    case Fn::reciprocal:
    case Fn::floordiv:
    case Fn::mod:
    case Fn::hardsigmoid:
    case Fn::hardswish:
    case Fn::leaky_relu: return 4;
    case Fn::exp:
    case Fn::exp2:
    case Fn::log:
    case Fn::log2: return 12;
    default: return 25;
  }
}

constexpr double kCostly = 4;
constexpr int kLargestExpression = 100;

Fn reduce_fn(Op op) {
  switch (op) {
    case Op::sum: return Fn::add;
    case Op::prod: return Fn::mul;
    case Op::amax: return Fn::max;
    case Op::amin: return Fn::min;
    case Op::any: return Fn::logical_or;
    case Op::all: return Fn::logical_and;
    default: CHECK(false, "{}", graph::info(op).name);
  }
}

class Planner {
 public:
  explicit Planner(const graph::Graph& g) : g_(g), uses_(g.use_counts()) {
    plan_.it.name = g.name();
    plan_.it.syms = g.shared_syms();
    memory_.resize(g.value_count());
    cost_.resize(g.value_count());
    of_indices_.resize(g.value_count());
    size_.resize(g.value_count());
  }

  Result<Plan> run() {
    if (auto bad = run_time_extents()) return *bad;
    declare_leaves();
    mark_outputs();
    for (graph::NodeId id : g_.node_ids()) {
      const graph::Node& n = g_.node(id);
      if (n.op == Op::input || n.op == Op::constant || n.op == Op::scalar) continue;
      if (graph::info(n.op).category == Category::composite && !pack_of_.count(n.results[0]))
        return diagnose(Code::not_schedulable, g_.name(), fmt::format("`{}` is not expanded", graph::info(n.op).name));
      node(id, n);
    }
    outputs();
    drop_unused();
    return std::move(plan_);
  }

 private:
  sym::Pool& syms() { return g_.syms(); }

  // Extents are numbers, or follow from the graph's dims; constants have numbers.
  std::optional<Diagnostic> run_time_extents() {
    plan_.it.dims = g_.dims();
    for (uint32_t i = 0; i < g_.value_count(); ++i)
      for (Expr e : g_.type(graph::ValueId(i)).shape)
        for (Expr s : syms().symbols_of(e))
          if (std::find(plan_.it.dims.begin(), plan_.it.dims.end(), s) == plan_.it.dims.end())
            return diagnose(Code::not_schedulable, g_.name(), "its shapes are not bound");
    for (graph::ValueId v : g_.leaves())
      if (g_.producer(v).op == Op::constant && follows_from_dims(g_.type(v).shape))
        return diagnose(Code::not_schedulable, g_.value(v).name,
                        "a constant has an extent that is known at run time only");
    for (graph::NodeId id : g_.node_ids())
      if (auto bad = least_extents(g_.node(id))) return bad;
    return std::nullopt;
  }

  // Of the value, of the output that it is, or of the graph.
  std::string name_of(graph::ValueId v) const {
    if (!g_.value(v).name.empty()) return g_.value(v).name;
    for (const graph::Output& o : g_.outputs())
      if (o.value == v) return o.name;
    return g_.name();
  }

  // An extremum needs an element, the k largest need k: also when the extent is known at run time only.
  std::optional<Diagnostic> least_extents(const graph::Node& n) {
    const bool extreme = n.op == Op::amax || n.op == Op::amin, position = n.op == Op::argmax || n.op == Op::argmin;
    if (!position && n.op != Op::topk && !(extreme && is_integer(g_.type(n.operands[0]).dtype))) return std::nullopt;
    const graph::Shape& shape = g_.type(n.operands[0]).shape;
    std::vector<int64_t> axes;
    if (extreme)
      axes = graph::reduced_axes(n, shape.size());
    else
      axes = {n.attributes.get<int64_t>("axis")};
    const int64_t least = n.op == Op::topk ? n.attributes.get<int64_t>("k") : 1;
    for (int64_t a : axes) {
      const Expr e = shape[static_cast<size_t>(a < 0 ? a + static_cast<int64_t>(shape.size()) : a)];
      if (const int64_t lo = syms().bounds(e).lo; lo < least && !syms().as_constant(e))
        return diagnose(
            Code::not_schedulable, name_of(n.results[0]),
            fmt::format("`{}` needs {} element{}, and the extent `{}` may be {}: give its dimension a range "
                        "that begins higher, with --dim or in its declaration",
                        graph::info(n.op).name, least, least == 1 ? "" : "s", syms().print(e), lo));
    }
    return std::nullopt;
  }
  bool follows_from_dims(std::span<const Expr> list) {
    return std::any_of(list.begin(), list.end(), [&](Expr e) {
      return std::any_of(plan_.it.dims.begin(), plan_.it.dims.end(), [&](Expr d) { return syms().mentions(e, d); });
    });
  }

  Expr fresh(std::string_view stem, Expr extent) {
    const int64_t n = syms().bounds(extent).hi;
    const Expr s = syms().fresh(stem, {0, std::max<int64_t>(n - 1, 0)});
    plan_.it.extents[s] = extent;
    return s;
  }
  std::vector<Expr> fresh_axes(const graph::Shape& shape) {
    std::vector<Expr> out;
    for (Expr e : shape) out.push_back(fresh("i", e));
    return out;
  }
  static std::vector<Index> indices(const std::vector<Expr>& axes) {
    std::vector<Index> out;
    for (Expr e : axes) out.push_back({e, {}});
    return out;
  }

  itgraph::ValueId declare(std::string name, DType dtype, Role role, graph::Shape shape, int argument = -1,
                           itgraph::ValueId alias = {}) {
    std::string unique = name.empty() ? "t" : name;
    for (char& c : unique)
      if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
    if (std::isdigit(static_cast<unsigned char>(unique[0]))) unique = "t" + unique;
    std::string candidate = unique;
    for (int i = 1; !names_.insert(candidate).second; ++i) candidate = fmt::format("{}_{}", unique, i);
    return plan_.it.values.add({candidate, dtype, role, std::move(shape), argument, alias});
  }

  void declare_leaves() {
    int inputs = 0, constants = 0, scalars = 0;
    for (graph::ValueId v : g_.leaves()) {
      const graph::Node& n = g_.producer(v);
      const Role role = n.op == Op::input ? Role::input : n.op == Op::constant ? Role::constant : Role::scalar;
      int& position = n.op == Op::input ? inputs : n.op == Op::constant ? constants : scalars;
      memory_[v.index] = declare(g_.value(v).name, g_.type(v).dtype, role, g_.type(v).shape, position++);
    }
  }

  // The value that a reshape only shows under another shape, its first `kept` axes as they are.
  graph::ValueId unshaped(graph::ValueId v, size_t kept = 0) {
    while (true) {
      const graph::Node& n = g_.producer(v);
      if (n.op != Op::reshape && n.op != Op::squeeze && n.op != Op::unsqueeze) return v;
      const graph::ValueId x = n.operands[0];
      const graph::Shape &to = g_.type(v).shape, &from = g_.type(x).shape;
      if (uses_[v.index] != 1 || graph::info(g_.producer(x).op).category == Category::leaf ||
          syms().product(from) != syms().product(to) || from.size() < kept ||
          !std::equal(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(kept), to.begin()))
        return v;
      v = x;
    }
  }

  // An output's value is written where the caller wants it, once, under the shape in which it is computed; repeated
  // outputs and leaves are copied at the end. Rows that are packed are stored where they belong.
  void mark_outputs() {
    const std::vector<bool> packs = graph::stored_packs(g_);
    for (size_t i = 0; i < g_.outputs().size(); ++i) {
      const graph::ValueId v = g_.outputs()[i].value;
      graph::ValueId w = unshaped(v);
      const graph::Node& n = g_.producer(w);
      if (packs[g_.value(w).node.index] && n.op == Op::ragged_pack) {
        pack_of_.emplace(w, static_cast<int>(i));
        continue;
      }
      if (output_of_.count(w) || (w != v && output_of_.count(v))) w = v;
      output_of_.emplace(w, static_cast<int>(i));
    }
  }

  // The place of output i, and the same memory under the shape of a value, if that is another one.
  itgraph::ValueId output_value(int i, const graph::Shape& shape) {
    const graph::Output& o = g_.outputs()[static_cast<size_t>(i)];
    const graph::Type& t = g_.type(o.value);
    const itgraph::ValueId whole = declare(o.name, t.dtype, Role::output, t.shape, i);
    written_.insert(i);
    return shape == t.shape ? whole : declare(o.name, t.dtype, Role::output, shape, -1, whole);
  }

  // The rows of a padded value, stored by their requests.
  void pack(const graph::Node& n) {
    const int i = pack_of_.at(n.results[0]);
    const graph::ValueId x = unshaped(n.operands[0], 2);
    const graph::Shape& shape = g_.type(x).shape;
    const graph::Output& o = g_.outputs()[static_cast<size_t>(i)];
    const itgraph::ValueId whole = declare(o.name, g_.type(o.value).dtype, Role::output, g_.type(o.value).shape, i);
    written_.insert(i);
    const itgraph::ValueId r = declare(o.name, g_.type(o.value).dtype, Role::output, shape, -1, whole);
    plan_.it.values[r].rows_of = *memory_[n.operands[1].index];
    plan_.it.values[r].rows = n.attributes.get<std::vector<Expr>>("rows")[0];
    auto b = builder();
    const auto axes = fresh_axes(shape);
    const NodeId node = b.at(x, indices(axes));
    Unit u;
    u.name = plan_.it.value(r).name;
    u.results = {r};
    u.what = Compute{Compute::How::map, Fn::add, {}, b.take(), {{r, axes, node}}};
    add_unit(std::move(u), {});
  }

  ExpressionBuilder builder() {
    return ExpressionBuilder(g_, [this](graph::ValueId v) { return memory_[v.index]; });
  }

  itgraph::ValueId result_value(graph::ValueId v) {
    const graph::Type& t = g_.type(v);
    if (auto it = output_of_.find(v); it != output_of_.end()) {
      if (!written_.count(it->second)) return output_value(it->second, t.shape);
    }
    return declare(g_.value(v).name, compute_type(t.dtype), Role::inner, t.shape);
  }

  void add_unit(Unit u, std::span<const graph::ValueId> values) {
    std::set<size_t> operands;
    u.constant = true;
    auto reads = [&](itgraph::ValueId v) {
      while (plan_.it.value(v).alias_of.valid()) v = plan_.it.value(v).alias_of;
      auto it = unit_of_.find(v);
      if (it != unit_of_.end()) operands.insert(it->second);
      u.constant = u.constant &&
                   (it != unit_of_.end() ? plan_.units[it->second].constant : plan_.it.value(v).role == Role::constant);
    };
    if (u.is_library()) {
      reads(std::get<itgraph::Library>(u.what).source);
    } else {
      for (const tile::Node& n : u.compute().nodes)
        if (const auto* l = std::get_if<tile::Load>(&n.what)) reads(l->buffer);
      u.work = work(u.compute());
    }
    u.operands.assign(operands.begin(), operands.end());
    const size_t id = plan_.units.size();
    for (itgraph::ValueId r : u.results) {
      unit_of_[r] = id;
      if (plan_.it.value(r).alias_of.valid()) unit_of_[plan_.it.value(r).alias_of] = id;
      u.visible = u.visible || plan_.it.value(r).role == Role::output;
    }
    u.constant = u.constant && !u.visible && (u.is_library() || !depends_on_dims(plan_.it, u.compute()));
    for (size_t i = 0; i < values.size(); ++i) memory_[values[i].index] = u.results[i];
    plan_.units.push_back(std::move(u));
  }

  double work(const Compute& c) {
    double per_point = 0;
    for (const tile::Node& n : c.nodes)
      if (const auto* a = std::get_if<tile::Apply>(&n.what)) per_point += weight(a->fn);
    // The addition of a product is part of its multiply-add.
    const bool product = c.how == Compute::How::reduce && product_of(c, c.results[0].node);
    if (c.how != Compute::How::map && !product) per_point += 1;
    if (c.how == Compute::How::scaled) per_point += 14;  // the weight's exponential and the maximum
    double most = 0;
    for (const itgraph::Target& t : c.results) {
      double points = 1;
      for (Expr e : t.axes) points *= static_cast<double>(extent_of(plan_, e));
      for (Expr e : c.reduced) points *= static_cast<double>(extent_of(plan_, e));
      most = std::max(most, points);
    }
    return most * std::max(per_point, 1.0);
  }

  // Makes the value readable as memory: an alias for a reshape of memory, else a unit of its own.
  void materialise(graph::ValueId v) {
    if (memory_[v.index]) return;
    const graph::Node& n = g_.producer(v);
    CHECK(is_inline(n), "`{}` was not planned", graph::info(n.op).name);
    if (!output_of_.count(v) && (n.op == Op::reshape || n.op == Op::squeeze || n.op == Op::unsqueeze) &&
        memory_[n.operands[0].index]) {
      const itgraph::ValueId base = *memory_[n.operands[0].index];
      const itgraph::Value& b = plan_.it.value(base);
      const itgraph::ValueId root = b.alias_of.valid() ? b.alias_of : base;
      if (b.role != Role::scalar && syms().product(g_.type(v).shape) == syms().product(plan_.it.value(root).shape)) {
        const Role role = plan_.it.value(root).role;
        const DType dtype = plan_.it.value(root).dtype;
        memory_[v.index] = declare(g_.value(v).name.empty() ? plan_.it.value(root).name : g_.value(v).name, dtype, role,
                                   g_.type(v).shape, -1, root);
        return;
      }
    }
    auto b = builder();
    const auto axes = fresh_axes(g_.type(v).shape);
    const NodeId node = b.body(v, indices(axes));
    const itgraph::ValueId r = result_value(v);
    Unit u;
    u.name = plan_.it.value(r).name;
    u.results = {r};
    u.what = Compute{Compute::How::map, Fn::add, {}, b.take(), {{r, axes, node}}};
    const graph::ValueId values[] = {v};
    add_unit(std::move(u), values);
  }

  int64_t elements(graph::ValueId v) { return syms().typical(syms().product(g_.type(v).shape)); }

  void node(graph::NodeId id, const graph::Node& n) {
    if (is_inline(n)) {
      // An expensive operand that would be computed again for each element of a larger result gets its own value.
      const bool computes = graph::info(n.op).category == Category::elementwise || n.op == Op::unscale;
      for (graph::ValueId x : n.operands)
        if (!memory_[x.index] && cost_[x.index] >= kCostly && elements(n.results[0]) > elements(x)) materialise(x);
      // A chain of reshapes over memory stays an address computation; over expressions it is free too.
      double cost = computes ? (n.op == Op::unscale ? 12 : weight(graph::scalar_fn(n.op))) : 0.5;
      int size = 1;
      bool of_indices = graph::info(n.op).category != Category::gather;
      for (graph::ValueId x : n.operands) {
        of_indices = of_indices && of_indices_[x.index];
        if (!memory_[x.index]) {
          cost += cost_[x.index];
          size += size_[x.index];
        }
      }
      // Masks are comparisons of indices: where they bound loops most of them are never evaluated, and elsewhere they
      // are cheaper than the memory that they would fill.
      of_indices = of_indices && std::all_of(n.results.begin(), n.results.end(), [&](graph::ValueId v) {
                     return g_.type(v).dtype == DType::boolean || is_integer(g_.type(v).dtype);
                   });
      for (graph::ValueId v : n.results) of_indices_[v.index] = of_indices;
      if (of_indices) cost = 0;
      for (graph::ValueId v : n.results) {
        cost_[v.index] = cost;
        size_[v.index] = size;
        const bool shared = uses_[v.index] > 1 && cost >= kCostly;
        if (output_of_.count(v) || shared || size > kLargestExpression) materialise(v);
      }
      return;
    }
    if (n.op == Op::ragged_pack && pack_of_.count(n.results[0])) return pack(n);
    switch (graph::info(n.op).category) {
      case Category::contract: return contract(n);
      case Category::reduce: return reduce(n);
      case Category::dialect: return scaled(n);
      case Category::scan:
      case Category::select: return library(n);
      default: CHECK(false, "node {} `{}`", id.index, graph::info(n.op).name);
    }
  }

  // An operand of a contraction must be an address: one load, each index in at most one axis, nothing guarded.
  bool is_address(graph::ValueId v) {
    if (memory_[v.index]) return true;
    auto b = builder();
    const auto axes = fresh_axes(g_.type(v).shape);
    const NodeId node = b.at(v, indices(axes));
    if (b.nodes().size() != 1) return false;
    const auto* l = std::get_if<tile::Load>(&b.nodes()[node.index].what);
    if (!l || l->guard.valid()) return false;
    for (Expr s : axes) {
      int found = 0;
      for (const Index& i : l->at) {
        if (i.dynamic.valid()) return false;
        if (!syms().mentions(i.affine, s)) continue;
        ++found;
        const auto stride = syms().stride(i.affine, s);
        if (!stride || !syms().as_constant(*stride)) return false;
      }
      if (found > 1) return false;
    }
    return true;
  }

  void contract(const graph::Node& n) {
    for (graph::ValueId x : n.operands)
      if (!is_address(x)) materialise(x);
    const auto spec = graph::parse_contract_spec(n.attributes.get<std::string>("spec")).value();
    std::map<std::string, Expr> index;
    // Extents: the larger one where an operand broadcasts.
    std::map<std::string, Expr> extents;
    for (size_t o = 0; o < 2; ++o)
      for (size_t a = 0; a < spec.operands[o].size(); ++a) {
        Expr& e = extents[spec.operands[o][a]];
        const Expr own = g_.type(n.operands[o]).shape[a];
        if (!e.valid() || syms().is(e, 1)) e = own;
      }
    for (auto& [name, extent] : extents) index[name] = fresh(name, extent);
    std::vector<Expr> axes, reduced;
    for (const auto& name : spec.result) axes.push_back(index.at(name));
    for (const auto& name : spec.reduced()) reduced.push_back(index.at(name));
    auto b = builder();
    std::vector<NodeId> loads;
    for (size_t o = 0; o < 2; ++o) {
      std::vector<Index> at;
      for (size_t a = 0; a < spec.operands[o].size(); ++a) {
        const bool one = syms().is(g_.type(n.operands[o]).shape[a], 1);
        at.push_back({one ? syms().constant(0) : index.at(spec.operands[o][a]), {}});
      }
      loads.push_back(b.at(n.operands[o], at));
    }
    const NodeId product = b.apply(Fn::mul, {loads[0], loads[1]});
    const itgraph::ValueId r = result_value(n.results[0]);
    Unit u;
    u.name = plan_.it.value(r).name;
    u.heavy = true;
    u.results = {r};
    u.what = Compute{
        reduced.empty() ? Compute::How::map : Compute::How::reduce, Fn::add, reduced, b.take(), {{r, axes, product}}};
    add_unit(std::move(u), n.results);
  }

  void reduce(const graph::Node& n) {
    const graph::Shape& shape = g_.type(n.operands[0]).shape;
    const auto which = graph::reduced_axes(n, shape.size());
    const bool keep = n.attributes.get_or("keepdims", false);
    std::vector<Expr> axes, reduced;
    std::vector<Index> at;
    for (size_t a = 0; a < shape.size(); ++a) {
      const bool is_reduced = std::binary_search(which.begin(), which.end(), static_cast<int64_t>(a));
      const Expr s = fresh(is_reduced ? "k" : "i", shape[a]);
      at.push_back({s, {}});
      if (!is_reduced) axes.push_back(s);
      if (is_reduced) reduced.push_back(s);
      if (is_reduced && keep) axes.push_back(fresh("i", syms().constant(1)));
    }
    auto b = builder();
    const NodeId node = b.at(n.operands[0], at);
    const itgraph::ValueId r = result_value(n.results[0]);
    Unit u;
    u.name = plan_.it.value(r).name;
    u.results = {r};
    u.what = Compute{reduced.empty() ? Compute::How::map : Compute::How::reduce,
                     reduce_fn(n.op),
                     reduced,
                     b.take(),
                     {{r, axes, node}}};
    add_unit(std::move(u), n.results);
  }

  void scaled(const graph::Node& n) {
    const auto spec = graph::parse_scaled_reduce_spec(n.attributes.get<std::string>("spec")).value();
    if (cost_[n.operands[0].index] >= kCostly) materialise(n.operands[0]);
    for (size_t o = 1; o < n.operands.size(); ++o)
      if (!is_address(n.operands[o])) materialise(n.operands[o]);
    std::map<std::string, Expr> extents;
    size_t operand = 0;
    auto gather = [&](const graph::IndexNames& names) {
      const graph::Shape& shape = g_.type(n.operands[operand]).shape;
      for (size_t a = 0; a < names.size(); ++a) {
        Expr& e = extents[names[a]];
        if (!e.valid() || syms().is(e, 1)) e = shape[a];
      }
      ++operand;
    };
    gather(spec.scores);
    for (const auto& s : spec.sums)
      if (s.has_factor) gather(s.factor);
    std::map<std::string, Expr> index;
    for (auto& [name, extent] : extents) index[name] = fresh(name, extent);
    auto b = builder();
    auto load = [&](graph::ValueId v, const graph::IndexNames& names) {
      std::vector<Index> at;
      for (size_t a = 0; a < names.size(); ++a)
        at.push_back({syms().is(g_.type(v).shape[a], 1) ? syms().constant(0) : index.at(names[a]), {}});
      return b.at(v, at);
    };
    auto symbols = [&](const graph::IndexNames& names) {
      std::vector<Expr> out;
      for (const auto& name : names) out.push_back(index.at(name));
      return out;
    };
    const DType dtype = g_.type(n.results[0]).dtype;
    Compute c{Compute::How::scaled, Fn::add, symbols(spec.reduced()), {}, {}};
    Unit u;
    for (graph::ValueId v : n.results) u.results.push_back(result_value(v));
    c.results.push_back({u.results[0], symbols(spec.maximum), b.cast(load(n.operands[0], spec.scores), dtype)});
    operand = 1;
    for (size_t i = 0; i < spec.sums.size(); ++i) {
      const auto& s = spec.sums[i];
      const NodeId node = s.has_factor ? load(n.operands[operand++], s.factor) : b.literal(1, dtype);
      u.heavy = u.heavy || s.has_factor;
      c.results.push_back({u.results[i + 1], symbols(s.result), node});
    }
    c.nodes = b.take();
    u.name = plan_.it.value(u.results[0]).name;
    u.what = std::move(c);
    add_unit(std::move(u), n.results);
  }

  void library(const graph::Node& n) {
    using What = itgraph::Library::What;
    materialise(n.operands[0]);
    itgraph::Library l;
    switch (n.op) {
      case Op::cumsum: l.what = What::cumsum; break;
      case Op::cumprod: l.what = What::cumprod; break;
      case Op::cummax: l.what = What::cummax; break;
      case Op::argmax: l.what = What::argmax; break;
      case Op::argmin: l.what = What::argmin; break;
      case Op::topk: l.what = What::topk; break;
      default: CHECK(false, "{}", graph::info(n.op).name);
    }
    l.source = *memory_[n.operands[0].index];
    const int64_t axis = n.attributes.get<int64_t>("axis");
    const int64_t rank = static_cast<int64_t>(g_.type(n.operands[0]).shape.size());
    l.axis = static_cast<int>(axis < 0 ? axis + rank : axis);
    l.exclusive = n.attributes.get_or("exclusive", false);
    l.reverse = n.attributes.get_or("reverse", false);
    l.largest = n.attributes.get_or("largest", true);
    Unit u;
    for (graph::ValueId v : n.results) u.results.push_back(result_value(v));
    l.results = u.results;
    u.name = plan_.it.value(u.results[0]).name;
    u.what = std::move(l);
    add_unit(std::move(u), n.results);
  }

  void outputs() {
    for (size_t i = 0; i < g_.outputs().size(); ++i) {
      const graph::ValueId v = g_.outputs()[i].value;
      if (written_.count(static_cast<int>(i))) continue;
      // A leaf, an alias, or a second output of one value.
      auto b = builder();
      const auto axes = fresh_axes(g_.type(v).shape);
      const NodeId node = b.at(v, indices(axes));
      const itgraph::ValueId r =
          declare(g_.outputs()[i].name, g_.type(v).dtype, Role::output, g_.type(v).shape, static_cast<int>(i));
      Unit u;
      u.name = plan_.it.value(r).name;
      u.results = {r};
      u.what = Compute{Compute::How::map, Fn::add, {}, b.take(), {{r, axes, node}}};
      add_unit(std::move(u), {});
    }
  }

  // Units whose results nobody reads (an intermediate that was inlined everywhere after all).
  void drop_unused() {
    std::vector<bool> used(plan_.units.size());
    for (size_t i = plan_.units.size(); i-- > 0;) {
      if (plan_.units[i].visible) used[i] = true;
      if (!used[i]) continue;
      for (size_t o : plan_.units[i].operands) used[o] = true;
    }
    std::vector<size_t> to(plan_.units.size());
    std::vector<Unit> kept;
    for (size_t i = 0; i < plan_.units.size(); ++i) {
      if (!used[i]) continue;
      to[i] = kept.size();
      for (size_t& o : plan_.units[i].operands) o = to[o];
      kept.push_back(std::move(plan_.units[i]));
    }
    plan_.units = std::move(kept);
  }

  const graph::Graph& g_;
  std::vector<int> uses_;
  Plan plan_;
  std::vector<std::optional<itgraph::ValueId>> memory_;
  std::vector<double> cost_;
  std::vector<bool> of_indices_;  // integers and bools that follow from index values alone
  std::vector<int> size_;
  std::map<graph::ValueId, int> output_of_;  // the output that a value is
  std::map<graph::ValueId, int> pack_of_;    // the output that the rows of a ragged_pack are
  std::set<int> written_;                    // outputs that have a place
  std::map<itgraph::ValueId, size_t> unit_of_;
  std::set<std::string> names_;
};

}  // namespace

bool depends_on_dims(const itgraph::Program& it, const Compute& c) {
  const auto mentioned = [&](Expr e) {
    return std::any_of(it.dims.begin(), it.dims.end(), [&](Expr d) { return it.syms->mentions(e, d); });
  };
  for (const itgraph::Target& t : c.results)
    for (Expr s : t.axes)
      if (mentioned(it.extents.at(s))) return true;
  for (Expr s : c.reduced)
    if (mentioned(it.extents.at(s))) return true;
  for (const tile::Node& n : c.nodes) {
    if (const auto* v = std::get_if<tile::IndexValue>(&n.what))
      if (mentioned(v->value)) return true;
    if (const auto* l = std::get_if<tile::Load>(&n.what))
      for (const tile::Index& i : l->at)
        if (mentioned(i.affine)) return true;
  }
  return false;
}

Result<Plan> make_plan(const graph::Graph& graph) { return Planner(graph).run(); }

std::optional<Product> product_of(const Compute& c, const NodeId& node) {
  const auto* a = std::get_if<tile::Apply>(&c.nodes[node.index].what);
  if (!a || a->fn != Fn::mul) return std::nullopt;
  const auto* x = std::get_if<tile::Load>(&c.nodes[a->operands[0].index].what);
  const auto* y = std::get_if<tile::Load>(&c.nodes[a->operands[1].index].what);
  if (!x || !y) return std::nullopt;
  return Product{x, y};
}

}  // namespace cleave::schedule
