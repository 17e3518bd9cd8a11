#include "schedule/place.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/match.hpp"
#include "schedule/library.hpp"
#include "schedule/nest_builder.hpp"
#include "schedule/plan.hpp"
#include "schedule/blocks.hpp"

namespace cleave::schedule {

using itgraph::Compute;
using itgraph::Role;
using sym::Expr;
using tile::BufferId;
using tile::Matmul;
using tile::Nest;
using tile::NodeId;
using tile::Place;
using tile::Statement;
using tile::TileRef;
using ItValue = itgraph::ValueId;

std::set<ItValue> visible_values(const itgraph::Program& p) {
  std::set<ItValue> out;
  std::map<ItValue, size_t> maker;
  auto root = [&](ItValue v) { return p.value(v).alias_of.valid() ? p.value(v).alias_of : v; };
  auto reads = [&](ItValue v, size_t kernel) {
    v = root(v);
    auto it = maker.find(v);
    if (it != maker.end() && it->second != kernel) out.insert(v);
  };
  for (size_t k = 0; k < p.kernels.size(); ++k) {
    std::function<void(const itgraph::Block&)> visit = [&](const itgraph::Block& b) {
      for (const itgraph::Item& i : b.items)
        match(
            i.what,
            [&](const Compute& c) {
              for (const tile::Node& n : c.nodes)
                if (const auto* l = std::get_if<tile::Load>(&n.what)) reads(l->buffer, k);
              for (const itgraph::Target& t : c.results) {
                maker[root(t.value)] = k;
                if (p.value(t.value).role == Role::output) out.insert(t.value);
              }
            },
            [&](const itgraph::Block& inner) { visit(inner); });
    };
    match(
        p.kernels[k].what, [&](const itgraph::Block& b) { visit(b); },
        [&](const itgraph::Library& l) {
          reads(l.source, k);
          for (ItValue r : l.results) {
            maker[r] = k;
            out.insert(r);
          }
        });
  }
  return out;
}

namespace {

bool mentions(const sym::Pool& s, const tile::Load& l, Expr symbol) {
  return std::any_of(l.at.begin(), l.at.end(), [&](const tile::Index& i) { return s.mentions(i.affine, symbol); });
}

// Where a value made in the task lies: a scratch buffer that covers a tile of each index.
struct Scratch {
  BufferId buffer;
  std::vector<Expr> origin;  // absolute index of its first element, by axis of the value
  std::vector<int> axis;     // buffer axis of each axis of the value
};

class Placer {
 public:
  Placer(const itgraph::Program& it, const Machine& machine) : it_(it), machine_(machine), syms_(*it.syms), visible_(visible_values(it)) {
    out_.name = it.name;
    out_.syms = it.syms;
  }

  Result<tile::Program> run() {
    for (const auto& [index, extent] : it_.extents)
      if (!syms_.as_constant(extent)) return diagnose(Code::not_schedulable, it_.name, "its shapes are not bound");
    arguments();
    for (const itgraph::Kernel& k : it_.kernels) {
      tile::Kernel kernel{kernel_name(k.name), find_constant(k), {}};
      scratch_.clear();
      made_.clear();
      match(
          k.what,
          [&](const itgraph::Block& b) {
            find_uses(b);
            block(b, itgraph::TensorMap(it_), kernel.body);
          },
          [&](const itgraph::Library& l) { kernel.body = library_kernel(l, it_, out_, [&](ItValue v) { return memory(v); }); });
      for (tile::Kernel& p : packing_) out_.kernels.push_back(std::move(p));
      packing_.clear();
      out_.kernels.push_back(std::move(kernel));
    }
    return std::move(out_);
  }

 private:
  std::string unique(std::string stem) {
    std::string name = stem;
    for (int i = 1; !names_.insert(name).second; ++i) name = fmt::format("{}_{}", stem, i);
    return name;
  }
  std::string kernel_name(const std::string& stem) {
    std::string name = stem;
    for (int i = 1; !kernel_names_.insert(name).second; ++i) name = fmt::format("{}_{}", stem, i);
    return name;
  }

  // All arguments are declared, read or not, so that positions are those of the graph.
  void arguments() {
    for (uint32_t i = 0; i < it_.values.size(); ++i) {
      const itgraph::Value& v = it_.values[ItValue(i)];
      if (v.role == Role::inner || v.alias_of.valid()) continue;
      memory(ItValue(i));
    }
  }

  // The buffer of a value in memory, declared on first use.
  BufferId memory(ItValue v) {
    if (auto found = memory_.find(v); found != memory_.end()) return found->second;
    const itgraph::Value& value = it_.value(v);
    BufferId alias;
    if (value.alias_of.valid()) alias = memory(value.alias_of);
    Place place = Place::workspace;
    switch (value.role) {
      case Role::input: place = Place::input; break;
      case Role::constant: place = Place::constant; break;
      case Role::scalar: place = Place::scalar; break;
      case Role::output: place = Place::output; break;
      case Role::inner: place = constants_.count(value.alias_of.valid() ? value.alias_of : v) ? Place::packed : Place::workspace; break;
    }
    return memory_[v] = out_.buffers.add({unique(value.name), value.dtype, place, value.shape, 0, value.argument, alias});
  }

  // Whether a kernel reads nothing but constants and what was made of them, and writes no output: then it runs once.
  bool find_constant(const itgraph::Kernel& k) {
    bool constant = true;
    std::set<ItValue> made;
    auto reads = [&](ItValue v) {
      if (it_.value(v).alias_of.valid()) v = it_.value(v).alias_of;
      constant = constant && (made.count(v) || constants_.count(v) || it_.value(v).role == Role::constant);
    };
    auto writes = [&](ItValue v) {
      made.insert(v);
      constant = constant && it_.value(v).role == Role::inner;
    };
    std::function<void(const itgraph::Block&)> visit = [&](const itgraph::Block& b) {
      for (const itgraph::Item& i : b.items)
        match(
            i.what,
            [&](const Compute& c) {
              for (const tile::Node& n : c.nodes)
                if (const auto* l = std::get_if<tile::Load>(&n.what)) reads(l->buffer);
              for (const itgraph::Target& t : c.results) writes(t.value);
            },
            [&](const itgraph::Block& inner) { visit(inner); });
    };
    match(
        k.what, [&](const itgraph::Block& b) { visit(b); },
        [&](const itgraph::Library& l) {
          reads(l.source);
          for (ItValue r : l.results) writes(r);
        });
    if (constant) constants_.insert(made.begin(), made.end());
    return constant;
  }

  // How products read inner values, so that their scratch is laid out for it: the index that must come last.
  void find_uses(const itgraph::Block& b) {
    for (const itgraph::Item& i : b.items)
      match(
          i.what,
          [&](const Compute& c) {
            if (c.how != Compute::How::reduce || c.fn != Fn::add) return;
            const auto product = product_of(c, c.results[0].node);
            if (!product) return;
            const Orientation o = orient(c, *product);
            if (!o.columns.valid()) return;
            last_index_[o.b->buffer] = o.columns;
            if (o.depth.valid()) last_index_.emplace(o.a->buffer, o.depth);
          },
          [&](const itgraph::Block& inner) { find_uses(inner); });
  }

  struct Orientation {
    const tile::Load* a = nullptr;
    const tile::Load* b = nullptr;
    Expr rows, columns, depth;  // rows may be missing (a vector times a matrix), columns too (then no product)
  };

  int64_t extent(Expr s) const { return syms_.as_constant(it_.extents.at(s)).value(); }

  Expr widest(const std::vector<Expr>& list) const {
    Expr best;
    for (Expr s : list)
      if (!best.valid() || extent(s) >= extent(best)) best = s;
    return best;
  }

  // Which operand gives the columns: that of the result's last index if only one carries it.
  Orientation orient(const Compute& c, const Product& p) const {
    Orientation o;
    const auto& axes = c.results[0].axes;
    const Roles roles = roles_of(syms_, axes, *p.a, *p.b);
    std::vector<Expr> in_a = roles.rows, in_b = roles.columns;
    const bool outside = visible_.count(c.results[0].value) > 0;
    auto is_in = [](const std::vector<Expr>& list, Expr s) { return std::find(list.begin(), list.end(), s) != list.end(); };
    Expr last = axes.empty() ? Expr() : axes.back();
    if (!outside && !is_in(in_a, last) && !is_in(in_b, last)) last = in_b.empty() ? widest(in_a) : widest(in_b);
    if (auto it = last_index_.find(c.results[0].value); !outside && it != last_index_.end() && (is_in(in_a, it->second) || is_in(in_b, it->second)))
      last = it->second;
    if (!last.valid()) return o;
    if (is_in(in_b, last)) {
      o.a = p.a;
      o.b = p.b;
    } else if (is_in(in_a, last)) {
      o.a = p.b;
      o.b = p.a;
      std::swap(in_a, in_b);
    } else {
      return o;
    }
    o.columns = last;
    o.rows = widest(in_a);
    std::vector<Expr> depth;
    for (Expr s : c.reduced)
      if (mentions(syms_, *o.a, s) && mentions(syms_, *o.b, s)) depth.push_back(s);
    o.depth = widest(depth);
    return o;
  }

  // ---- scratch -----------------------------------------------------------------------------------------------------

  BufferId scratch(std::string stem, DType dtype, std::vector<int64_t> shape) {
    std::vector<Expr> s;
    for (int64_t e : shape) s.push_back(syms_.constant(std::max<int64_t>(e, 1)));
    return out_.buffers.add({unique(std::move(stem)), dtype, Place::scratch, std::move(s), 0, -1, {}});
  }

  // A scratch buffer for a tile of the value; a leading axis of 1 gives every product a row axis.
  Scratch make_scratch(const std::string& stem, DType dtype, const std::vector<Expr>& axes, const itgraph::TensorMap& map, Expr last) {
    Scratch s;
    std::vector<int64_t> shape = {1};
    std::vector<size_t> order;
    for (size_t i = 0; i < axes.size(); ++i)
      if (axes[i] != last) order.push_back(i);
    for (size_t i = 0; i < axes.size(); ++i)
      if (axes[i] == last) order.push_back(i);
    s.axis.resize(axes.size());
    for (size_t i : order) {
      s.axis[i] = static_cast<int>(shape.size());
      shape.push_back(map.most(axes[i]));
    }
    for (Expr e : axes) s.origin.push_back(map.of(e).offset);
    s.buffer = scratch(stem, dtype, shape);
    return s;
  }

  // ---- addresses ---------------------------------------------------------------------------------------------------

  std::vector<Expr> scratch_at(const Scratch& s, const std::vector<Expr>& absolute) {
    std::vector<Expr> at(absolute.size() + 1, syms_.constant(0));
    for (size_t i = 0; i < absolute.size(); ++i) at[static_cast<size_t>(s.axis[i])] = syms_.sub(absolute[i], s.origin[i]);
    return at;
  }

  // A value's buffer and the place of an element in it.
  std::pair<BufferId, std::vector<Expr>> locate(ItValue v, const std::vector<Expr>& absolute) {
    if (auto it = scratch_.find(v); it != scratch_.end()) return {it->second.buffer, scratch_at(it->second, absolute)};
    return {memory(v), absolute};
  }

  tile::Load placed(const tile::Load& l, const std::unordered_map<Expr, Expr>& by, const std::vector<NodeId>& nodes) {
    std::vector<Expr> absolute;
    for (const tile::Index& i : l.at) absolute.push_back(syms_.substitute(i.affine, by));
    auto [buffer, at] = locate(l.buffer, absolute);
    tile::Load out{buffer, {}, l.guard.valid() ? nodes[l.guard.index] : NodeId{}};
    const auto s = scratch_.find(l.buffer);
    for (Expr e : at) out.at.push_back({e, {}});
    for (size_t i = 0; i < l.at.size(); ++i)
      if (l.at[i].dynamic.valid()) out.at[s == scratch_.end() ? i : static_cast<size_t>(s->second.axis[i])].dynamic = nodes[l.at[i].dynamic.index];
    return out;
  }

  // Copies the nodes that `roots` need into a nest, with symbols replaced and values placed.
  std::vector<NodeId> copy_nodes(NestBuilder& nest, const std::vector<tile::Node>& from, std::vector<NodeId> roots, const std::unordered_map<Expr, Expr>& by) {
    std::vector<bool> needed(from.size());
    auto mark = [&](NodeId id) {
      if (id.valid()) needed[id.index] = true;
    };
    for (NodeId r : roots) mark(r);
    for (size_t i = from.size(); i-- > 0;) {
      if (!needed[i]) continue;
      match(
          from[i].what,
          [&](const tile::Load& l) {
            mark(l.guard);
            for (const tile::Index& ix : l.at) mark(ix.dynamic);
          },
          [](const tile::Literal&) {}, [](const tile::IndexValue&) {},
          [&](const tile::Apply& a) {
            for (NodeId o : a.operands) mark(o);
          },
          [&](const tile::Cast& c) { mark(c.operand); });
    }
    std::vector<NodeId> to(from.size());
    for (size_t i = 0; i < from.size(); ++i) {
      if (!needed[i]) continue;
      tile::Node n = from[i];
      match(
          n.what, [&](tile::Load& l) { l = placed(l, by, to); }, [](tile::Literal&) {},
          [&](tile::IndexValue& v) { v.value = syms_.substitute(v.value, by); },
          [&](tile::Apply& a) {
            for (NodeId& o : a.operands) o = to[o.index];
          },
          [&](tile::Cast& c) { c.operand = to[c.operand.index]; });
      to[i] = nest.add(std::move(n));
    }
    for (NodeId& r : roots) r = to[r.index];
    return roots;
  }

  // Adds nest axes for the indices (in this order) and returns the substitution absolute = offset + local.
  void add_axes(NestBuilder& nest, const std::vector<Expr>& indices, const itgraph::TensorMap& map, std::unordered_map<Expr, Expr>& by) {
    for (Expr s : indices) {
      if (by.count(s)) continue;
      const std::string name = syms_.symbol_name(s);  // taking the size may add symbols and move the names
      by[s] = syms_.add(map.of(s).offset, nest.axis(name, map.size(s), map.most(s)));
    }
  }

  static std::vector<Expr> substituted(sym::Pool& syms, const std::vector<Expr>& list, const std::unordered_map<Expr, Expr>& by) {
    std::vector<Expr> out;
    for (Expr e : list) out.push_back(syms.substitute(e, by));
    return out;
  }

  // ---- computes ----------------------------------------------------------------------------------------------------

  bool in_scratch(ItValue v) const { return !visible_.count(v); }

  // Accumulation happens where the value lies if that holds the compute type, else in scratch.
  bool needs_accumulator(ItValue v) const { return !in_scratch(v) && compute_type(it_.value(v).dtype) != it_.value(v).dtype; }

  Expr wanted_last(ItValue v, const std::vector<Expr>& axes) const {
    auto it = last_index_.find(v);
    if (it != last_index_.end() && std::find(axes.begin(), axes.end(), it->second) != axes.end()) return it->second;
    return axes.empty() ? Expr() : axes.back();
  }

  // Reserves the place of a result in this tile, if it is not in memory.
  void reserve(const itgraph::Target& t, const itgraph::TensorMap& map, Expr last = {}) {
    if (!in_scratch(t.value) && !needs_accumulator(t.value)) return;
    const itgraph::Value& v = it_.value(t.value);
    scratch_[t.value] = make_scratch(v.name, compute_type(v.dtype), t.axes, map, last.valid() ? last : wanted_last(t.value, t.axes));
  }

  // Writes an accumulator in scratch to the value's place in memory.
  void flush(const itgraph::Target& t, const itgraph::TensorMap& map, std::vector<Statement>& body) {
    if (!needs_accumulator(t.value)) return;
    NestBuilder nest(syms_);
    std::unordered_map<Expr, Expr> by;
    add_axes(nest, t.axes, map, by);
    const auto at = substituted(syms_, t.axes, by);
    const Scratch s = scratch_.at(t.value);
    const NodeId value = nest.load(s.buffer, scratch_at(s, at), compute_type(it_.value(t.value).dtype));
    nest.store(memory(t.value), at, value);
    scratch_.erase(t.value);
    body.push_back({nest.take()});
  }

  void map_compute(const Compute& c, const itgraph::TensorMap& map, std::vector<Statement>& body) {
    const itgraph::Target& t = c.results[0];
    if (in_scratch(t.value)) reserve(t, map);
    NestBuilder nest(syms_);
    std::unordered_map<Expr, Expr> by;
    add_axes(nest, t.axes, map, by);
    const NodeId value = copy_nodes(nest, c.nodes, {t.node}, by)[0];
    auto [buffer, at] = locate(t.value, substituted(syms_, t.axes, by));
    nest.store(buffer, at, value);
    body.push_back({nest.take()});
  }

  static double identity(Fn fn) {
    switch (fn) {
      case Fn::mul:
      case Fn::logical_and: return 1;
      case Fn::max: return -std::numeric_limits<double>::infinity();
      case Fn::min: return std::numeric_limits<double>::infinity();
      default: return 0;
    }
  }

  void fill(ItValue v, const std::vector<Expr>& axes, Fn fn, const itgraph::TensorMap& map, std::vector<Statement>& body) {
    NestBuilder nest(syms_);
    std::unordered_map<Expr, Expr> by;
    add_axes(nest, axes, map, by);
    const DType d = compute_type(it_.value(v).dtype);
    double value = identity(fn);
    auto [buffer, at] = locate(v, substituted(syms_, axes, by));
    NodeId literal = nest.literal(value, d);
    if (!is_real(d) && std::isinf(value)) {
      // Integers: the extreme value, reached by saturation.
      literal = nest.cast(nest.literal(value, DType::f64), d);
    }
    nest.store(buffer, at, literal);
    body.push_back({nest.take()});
  }

  // Reductions whose loop opens here get their places and their identities before it.
  void open_reductions(const itgraph::Block& b, const itgraph::TensorMap& map, const std::set<Expr>& opened, std::vector<Statement>& body) {
    for (const itgraph::Item& i : b.items)
      match(
          i.what,
          [&](const Compute& c) {
            if (c.how == Compute::How::map) return;
            bool here = false, before = false;
            for (Expr s : c.reduced) {
              for (const itgraph::Loop& l : b.loops) here = here || l.index == s;
              before = before || opened.count(s) > 0;
            }
            if (!here || before) return;
            prepare(c, map, body);
          },
          [](const itgraph::Block&) {});
  }

  void prepare(const Compute& c, const itgraph::TensorMap& map, std::vector<Statement>& body) {
    if (c.how == Compute::How::scaled) {
      for (size_t i = 0; i < c.results.size(); ++i) {
        reserve(c.results[i], map);
        fill(c.results[i].value, c.results[i].axes, i == 0 ? Fn::max : Fn::add, map, body);
      }
      return;
    }
    const itgraph::Target& t = c.results[0];
    reserve(t, map, product_columns(c));
    fill(t.value, t.axes, c.fn, map, body);
  }

  Expr product_columns(const Compute& c) const {
    if (c.how != Compute::How::reduce || c.fn != Fn::add) return {};
    const auto product = product_of(c, c.results[0].node);
    return product ? orient(c, *product).columns : Expr();
  }

  void reduce_compute(const Compute& c, const itgraph::TensorMap& map, bool looped, std::vector<Statement>& body) {
    const itgraph::Target& t = c.results[0];
    if (!looped) reserve(t, map, product_columns(c));
    if (c.fn == Fn::add && matmul_compute(c, map, looped, body)) {
      if (!looped) flush(t, map, body);
      return;
    }
    NestBuilder nest(syms_);
    std::unordered_map<Expr, Expr> by;
    add_axes(nest, t.axes, map, by);
    add_axes(nest, c.reduced, map, by);
    const NodeId value = copy_nodes(nest, c.nodes, {t.node}, by)[0];
    auto [buffer, at] = locate(t.value, substituted(syms_, t.axes, by));
    nest.accumulate(buffer, at, value, c.fn, !looped);
    body.push_back({nest.take()});
    if (!looped) flush(t, map, body);
  }

  // ---- products ----------------------------------------------------------------------------------------------------

  // The buffer axis along which an index runs with step 1, none of the others moving with it.
  std::optional<int> unit_axis(std::span<const Expr> at, Expr symbol) {
    std::optional<int> axis;
    for (size_t i = 0; i < at.size(); ++i) {
      if (!syms_.mentions(at[i], symbol)) continue;
      const auto stride = syms_.stride(at[i], symbol);
      if (axis || !stride || !syms_.is(*stride, 1)) return std::nullopt;
      axis = static_cast<int>(i);
    }
    return axis;
  }

  // Another axis of the buffer than `not_this`, for a tile of one row.
  static std::optional<int> other_axis(size_t rank, int not_this) {
    for (int i = static_cast<int>(rank) - 1; i >= 0; --i)
      if (i != not_this) return i;
    return std::nullopt;
  }

  struct Operand {
    BufferId buffer;
    std::vector<Expr> at;  // in terms of the index symbols
  };

  Operand operand(const tile::Load& l) {
    std::vector<Expr> absolute;
    for (const tile::Index& i : l.at) absolute.push_back(i.affine);
    auto [buffer, at] = locate(l.buffer, absolute);
    return {buffer, at};
  }

  int64_t panel_width(int64_t columns, DType dtype) const {
    const int64_t lanes = machine_.vector_bytes / (dtype == DType::f64 ? 8 : 4);
    const bool wide = machine_.vector_registers >= 32;
    const std::vector<int64_t> vectors = wide ? std::vector<int64_t>{4, 3, 2, 1} : std::vector<int64_t>{2, 3, 1};
    for (int64_t v : vectors)
      if (columns % (v * lanes) == 0) return v * lanes;
    const int64_t widest = vectors[0] * lanes;
    return std::min(widest, (columns + lanes - 1) / lanes * lanes);
  }

  // B as panels of columns, made by a kernel before this one (once if B is constant), shared by all who want the same.
  std::optional<Operand> packed(const tile::Load& l, const std::vector<Expr>& batch, Expr depth, Expr columns) {
    const Role role = it_.value(l.buffer).role;
    std::vector<Expr> axes = batch;
    axes.push_back(depth);
    axes.push_back(columns);
    std::string key = fmt::format("{}:", l.buffer.index);
    std::unordered_map<Expr, Expr> roles;
    for (size_t i = 0; i < axes.size(); ++i) {
      roles[axes[i]] = syms_.symbol(fmt::format("axis{}", i));
      key += fmt::format("{},", extent(axes[i]));
    }
    for (const tile::Index& i : l.at) key += syms_.print(syms_.substitute(i.affine, roles)) + ";";
    const DType dtype = it_.value(l.buffer).dtype;
    const int64_t width = panel_width(extent(columns), dtype);
    auto found = packed_.find(key);
    if (found == packed_.end()) {
      std::vector<Expr> shape;
      for (Expr s : axes) shape.push_back(it_.extents.at(s));
      const ItValue root = it_.value(l.buffer).alias_of.valid() ? it_.value(l.buffer).alias_of : l.buffer;
      const bool once = role == Role::constant || constants_.count(root) > 0;
      const BufferId buffer = out_.buffers.add({unique(it_.value(l.buffer).name + "_packed"), dtype, once ? Place::packed : Place::workspace, shape, width, -1, {}});
      packing_.push_back(pack_kernel(l, axes, buffer, once));
      found = packed_.emplace(key, buffer).first;
    }
    return Operand{found->second, axes};
  }

  tile::Kernel pack_kernel(const tile::Load& l, const std::vector<Expr>& axes, BufferId buffer, bool once) {
    const int64_t width = out_.buffer(buffer).panel;
    std::unordered_map<Expr, Expr> by;
    std::vector<tile::For> loops;
    auto loop = [&](Expr s, int64_t step) {
      const int64_t n = extent(s);
      const Expr counter = syms_.fresh(syms_.symbol_name(s), {0, std::max<int64_t>(n - 1, 0)});
      syms_.set_multiple(counter, step);
      loops.push_back({counter, syms_.constant(0), syms_.constant(n), step, true, {}});
      return counter;
    };
    for (size_t i = 0; i + 2 < axes.size(); ++i) by[axes[i]] = loop(axes[i], 1);
    const Expr first = loop(axes.back(), width);
    NestBuilder nest(syms_);
    const Expr depth = axes[axes.size() - 2], columns = axes.back();
    by[depth] = nest.axis(syms_.symbol_name(depth), it_.extents.at(depth), extent(depth));
    const Expr rest = syms_.min(syms_.constant(width), syms_.sub(it_.extents.at(columns), first));
    const Expr size = extent(columns) % width == 0 ? syms_.constant(width) : rest;
    by[columns] = syms_.add(first, nest.axis(syms_.symbol_name(columns), size, width));
    std::vector<Expr> source;
    for (const tile::Index& i : l.at) source.push_back(syms_.substitute(i.affine, by));
    const NodeId value = nest.load(memory(l.buffer), source, compute_type(it_.value(l.buffer).dtype));
    nest.store(buffer, substituted(syms_, axes, by), value);
    std::vector<Statement> body = {{nest.take()}};
    for (size_t i = loops.size(); i-- > 0;) {
      loops[i].body = std::move(body);
      body.clear();
      body.push_back({std::move(loops[i])});
    }
    return {kernel_name("pack_" + it_.value(l.buffer).name), once, std::move(body)};
  }

  // A product as a Matmul statement, with loops around it for the indices that are neither rows, columns nor depth.
  bool matmul_compute(const Compute& c, const itgraph::TensorMap& map, bool looped, std::vector<Statement>& body) {
    const auto product = product_of(c, c.results[0].node);
    if (!product || !is_real(c.nodes[c.results[0].node.index].dtype)) return false;
    for (const tile::Load* l : {product->a, product->b}) {
      if (l->guard.valid()) return false;
      for (const tile::Index& i : l->at)
        if (i.dynamic.valid()) return false;
    }
    const Orientation o = orient(c, *product);
    if (!o.columns.valid() || !o.depth.valid()) return false;
    const itgraph::Target& t = c.results[0];
    auto [result, result_at] = locate(t.value, t.axes);
    const auto init = looped ? Matmul::Init::load : Matmul::Init::zero;
    return emit_product(c, o, {result, result_at}, t.axes, map, init, {}, {}, body);
  }

  bool emit_product(const Compute& c, const Orientation& o, Operand result, const std::vector<Expr>& axes, const itgraph::TensorMap& map, Matmul::Init init,
                    BufferId scale, std::vector<Expr> scale_at, std::vector<Statement>& body) {
    Operand a = operand(*o.a), b = operand(*o.b);
    // B must run with step 1 along its last axis in the columns.
    const auto b_columns = unit_axis(b.at, o.columns), b_depth = unit_axis(b.at, o.depth);
    const bool in_memory = !scratch_.count(o.b->buffer);
    const bool direct = b_columns && b_depth && *b_columns == static_cast<int>(b.at.size()) - 1;
    const bool constant = it_.value(o.b->buffer).role == Role::constant || constants_.count(o.b->buffer) > 0;
    // A matrix no wider than a panel is one already.
    const bool reused = o.rows.valid() && extent(o.columns) > panel_width(extent(o.columns), it_.value(o.b->buffer).dtype) && extent(o.rows) > 2 * map.most(o.rows) && extent(o.depth) > 512;
    if (!direct || (in_memory && (constant || reused) && !made_.count(o.b->buffer))) {
      if (!in_memory || made_.count(o.b->buffer)) return false;
      std::vector<Expr> batch;
      for (Expr s : index_symbols(*o.b))
        if (s != o.depth && s != o.columns) batch.push_back(s);
      const auto p = packed(*o.b, batch, o.depth, o.columns);
      if (!p) return false;
      b = *p;
    }
    const int b_last = static_cast<int>(b.at.size()) - 1;
    const auto b_rows = unit_axis(b.at, o.depth);
    const auto a_depth = unit_axis(a.at, o.depth);
    const auto a_rows = o.rows.valid() ? unit_axis(a.at, o.rows) : a_depth ? other_axis(a.at.size(), *a_depth) : std::nullopt;
    const auto c_columns = unit_axis(result.at, o.columns);
    if (!b_rows || !a_depth || !a_rows || !c_columns || *c_columns != static_cast<int>(result.at.size()) - 1) return false;
    const auto c_rows = o.rows.valid() ? unit_axis(result.at, o.rows) : other_axis(result.at.size(), *c_columns);
    if (!c_rows) return false;
    if (out_.buffer(b.buffer).panel > 0 && map.of(o.columns).tile % out_.buffer(b.buffer).panel != 0) return false;

    std::unordered_map<Expr, Expr> by;
    for (Expr s : {o.rows, o.columns, o.depth})
      if (s.valid()) by[s] = map.of(s).offset;
    std::vector<tile::For> loops;
    auto loop_over = [&](const std::vector<Expr>& list) {
      for (Expr s : list) {
        if (by.count(s)) continue;
        if (map.most(s) == 1) {
          by[s] = map.of(s).offset;
          continue;
        }
        const Expr counter = syms_.fresh(syms_.symbol_name(s), {0, map.most(s) - 1});
        loops.push_back({counter, syms_.constant(0), map.size(s), 1, false, {}});
        by[s] = syms_.add(map.of(s).offset, counter);
      }
    };
    loop_over(axes);
    const size_t outside_reduction = loops.size();
    loop_over(c.reduced);
    const bool inner_reduction = loops.size() > outside_reduction;
    auto ref = [&](const Operand& x, int rows, int columns) { return TileRef{x.buffer, substituted(syms_, x.at, by), rows, columns}; };
    Matmul m;
    m.c = ref(result, *c_rows, *c_columns);
    m.a = ref(a, *a_rows, *a_depth);
    m.b = ref(b, *b_rows, b_last);
    m.m = o.rows.valid() ? map.size(o.rows) : syms_.constant(1);
    m.n = map.size(o.columns);
    m.k = map.size(o.depth);
    m.init = init;
    if (init == Matmul::Init::scaled) {
      if (inner_reduction) return false;
      m.scale = scale;
      m.scale_at = substituted(syms_, scale_at, by);
    }
    if (inner_reduction && init == Matmul::Init::zero) {
      // Several reduced indices: the sum starts from zero before their loops.
      m.init = Matmul::Init::load;
      fill_at(result, axes, map, body);
    }
    std::vector<Statement> inner = {{std::move(m)}};
    for (size_t i = loops.size(); i-- > 0;) {
      loops[i].body = std::move(inner);
      inner.clear();
      inner.push_back({std::move(loops[i])});
    }
    for (Statement& s : inner) body.push_back(std::move(s));
    return true;
  }

  void fill_at(const Operand& place, const std::vector<Expr>& axes, const itgraph::TensorMap& map, std::vector<Statement>& body) {
    NestBuilder nest(syms_);
    std::unordered_map<Expr, Expr> by;
    add_axes(nest, axes, map, by);
    nest.store(place.buffer, substituted(syms_, place.at, by), nest.literal(0, compute_type(out_.buffer(place.buffer).dtype)));
    body.push_back({nest.take()});
  }

  std::vector<Expr> index_symbols(const tile::Load& l) const {
    std::vector<Expr> out;
    for (const tile::Index& i : l.at)
      for (Expr s : syms_.symbols_of(i.affine))
        if (std::find(out.begin(), out.end(), s) == out.end()) out.push_back(s);
    return out;
  }

  // ---- scaled groups -----------------------------------------------------------------------------------------------

  // One step of (m, u_1 .. u_n) over the current tile of the reduced indices: the running maximum, the factor that
  // rescales what was summed before, the weights exp(score - m), and the sums (algebra.md section 5).
  bool scaled_compute(const Compute& c, const itgraph::TensorMap& map, bool looped, std::vector<Statement>& body) {
    if (!looped) prepare(c, map, body);
    const itgraph::Target& max = c.results[0];
    const DType d = compute_type(it_.value(max.value).dtype);
    Expr last_row;  // the rows of products with the weights
    for (Expr s : max.axes)
      if (!last_row.valid() || map.most(s) >= map.most(last_row)) last_row = s;
    auto row_scratch = [&](const char* stem) { return make_scratch(stem, d, max.axes, map, last_row); };
    const Scratch tile_max = row_scratch("tile_max"), shift = row_scratch("shift"), decay = row_scratch("decay");
    std::vector<Expr> score_axes = max.axes;
    score_axes.insert(score_axes.end(), c.reduced.begin(), c.reduced.end());
    const Scratch weights = make_scratch("weights", d, score_axes, map, c.reduced.back());
    {  // the maximum of this tile
      NestBuilder nest(syms_);
      std::unordered_map<Expr, Expr> by;
      add_axes(nest, score_axes, map, by);
      const NodeId score = copy_nodes(nest, c.nodes, {max.node}, by)[0];
      nest.accumulate(tile_max.buffer, scratch_at(tile_max, substituted(syms_, max.axes, by)), score, Fn::max, true);
      body.push_back({nest.take()});
    }
    {  // m' = max(m, tile); decay = exp(m - m'), where an empty row (m' = -inf) shifts by 0
      NestBuilder nest(syms_);
      std::unordered_map<Expr, Expr> by;
      add_axes(nest, max.axes, map, by);
      const auto rows = substituted(syms_, max.axes, by);
      auto [buffer, at] = locate(max.value, rows);
      const NodeId before = nest.load(buffer, at, d), tile = nest.load(tile_max.buffer, scratch_at(tile_max, rows), d);
      const NodeId after = nest.apply(Fn::max, {before, tile});
      const NodeId empty = nest.apply(Fn::eq, {after, nest.literal(-std::numeric_limits<double>::infinity(), d)});
      const NodeId safe = nest.apply(Fn::where, {empty, nest.literal(0, d), after});
      nest.store(decay.buffer, scratch_at(decay, rows), nest.apply(Fn::exp, {nest.apply(Fn::sub, {before, safe})}));
      nest.store(shift.buffer, scratch_at(shift, rows), safe);
      nest.store(buffer, at, after);
      body.push_back({nest.take()});
    }
    // Plain sums of the weights are taken while these are made.
    std::vector<size_t> plain, factored;
    for (size_t i = 1; i < c.results.size(); ++i)
      (std::holds_alternative<tile::Literal>(c.nodes[c.results[i].node.index].what) ? plain : factored).push_back(i);
    std::vector<Scratch> partial;
    {
      NestBuilder nest(syms_);
      std::unordered_map<Expr, Expr> by;
      add_axes(nest, score_axes, map, by);
      const auto rows = substituted(syms_, max.axes, by);
      const NodeId score = copy_nodes(nest, c.nodes, {max.node}, by)[0];
      const NodeId weight = nest.apply(Fn::exp, {nest.apply(Fn::sub, {score, nest.load(shift.buffer, scratch_at(shift, rows), d)})});
      if (!factored.empty()) nest.store(weights.buffer, scratch_at(weights, substituted(syms_, score_axes, by)), weight);
      for (size_t i : plain) {
        partial.push_back(row_scratch("partial"));
        const double factor = std::get<tile::Literal>(c.nodes[c.results[i].node.index].what).value;
        const NodeId term = factor == 1 ? weight : nest.apply(Fn::mul, {weight, nest.literal(factor, d)});
        nest.accumulate(partial.back().buffer, scratch_at(partial.back(), rows), term, Fn::add, true);
      }
      if (nest.has_stores()) body.push_back({nest.take()});
    }
    if (!plain.empty()) {  // u = u * decay + partial
      NestBuilder nest(syms_);
      std::unordered_map<Expr, Expr> by;
      add_axes(nest, max.axes, map, by);
      const auto rows = substituted(syms_, max.axes, by);
      const NodeId factor = nest.load(decay.buffer, scratch_at(decay, rows), d);
      for (size_t k = 0; k < plain.size(); ++k) {
        auto [buffer, at] = locate(c.results[plain[k]].value, substituted(syms_, c.results[plain[k]].axes, by));
        const NodeId sum = nest.apply(Fn::mul, {nest.load(buffer, at, d), factor});
        nest.store(buffer, at, nest.apply(Fn::add, {sum, nest.load(partial[k].buffer, scratch_at(partial[k], rows), d)}));
      }
      body.push_back({nest.take()});
    }
    for (size_t i : factored) factored_sum(c, i, score_axes, weights, decay, last_row, map, body);
    if (!looped)
      for (const itgraph::Target& t : c.results) flush(t, map, body);
    return true;
  }

  // u = u * decay + sum of weights * factor.
  void factored_sum(const Compute& c, size_t i, const std::vector<Expr>& score_axes, const Scratch& weights, const Scratch& decay, Expr row,
                    const itgraph::TensorMap& map, std::vector<Statement>& body) {
    const itgraph::Target& t = c.results[i];
    const itgraph::Target& max = c.results[0];
    const DType d = compute_type(it_.value(max.value).dtype);
    // As a product: weights (rows x reduced) times the factor (reduced x columns).
    if (const auto* factor = std::get_if<tile::Load>(&c.nodes[t.node.index].what); factor && product_factor(c, t, *factor, score_axes, weights, decay, row, map, body)) return;
    NestBuilder rescale(syms_);
    std::unordered_map<Expr, Expr> by;
    add_axes(rescale, t.axes, map, by);
    auto [buffer, at] = locate(t.value, substituted(syms_, t.axes, by));
    const NodeId factor = rescale.load(decay.buffer, scratch_at(decay, substituted(syms_, max.axes, by)), d);
    rescale.store(buffer, at, rescale.apply(Fn::mul, {rescale.load(buffer, at, d), factor}));
    body.push_back({rescale.take()});
    NestBuilder nest(syms_);
    by.clear();
    add_axes(nest, t.axes, map, by);
    add_axes(nest, c.reduced, map, by);
    const NodeId term = copy_nodes(nest, c.nodes, {t.node}, by)[0];
    const NodeId weight = nest.load(weights.buffer, scratch_at(weights, substituted(syms_, score_axes, by)), d);
    auto [target, target_at] = locate(t.value, substituted(syms_, t.axes, by));
    nest.accumulate(target, target_at, nest.apply(Fn::mul, {weight, nest.cast(term, d)}), Fn::add, false);
    body.push_back({nest.take()});
  }

  bool product_factor(const Compute& c, const itgraph::Target& t, const tile::Load& factor, const std::vector<Expr>& score_axes, const Scratch& weights,
                      const Scratch& decay, Expr row, const itgraph::TensorMap& map, std::vector<Statement>& body) {
    if (factor.guard.valid()) return false;
    for (const tile::Index& i : factor.at)
      if (i.dynamic.valid()) return false;
    Orientation o;
    o.b = &factor;
    std::vector<Expr> rows, columns;
    for (Expr s : t.axes) {
      const bool in_scores = std::find(score_axes.begin(), score_axes.end(), s) != score_axes.end();
      const bool in_factor = mentions(syms_, factor, s);
      if (in_scores && !in_factor) rows.push_back(s);
      if (!in_scores) columns.push_back(s);
    }
    if (columns.empty()) return false;
    o.columns = t.axes.back();
    if (std::find(columns.begin(), columns.end(), o.columns) == columns.end()) return false;
    o.rows = std::find(rows.begin(), rows.end(), row) != rows.end() ? row : widest(rows);
    std::vector<Expr> depth;
    for (Expr s : c.reduced)
      if (mentions(syms_, factor, s)) depth.push_back(s);
    if (depth.size() != c.reduced.size() || depth.size() != 1) return false;
    o.depth = depth[0];
    if (c.reduced.back() != o.depth) return false;
    // The weights stand in scratch under a name of their own for the time of the product.
    const ItValue standing(static_cast<uint32_t>(it_.values.size()));
    scratch_[standing] = weights;
    tile::Load load{standing, {}, {}};
    for (Expr s : score_axes) load.at.push_back({s, {}});
    o.a = &load;
    auto [result, at] = locate(t.value, t.axes);
    std::vector<Expr> scale_at = scratch_at(decay, c.results[0].axes);
    // The scale must run with the rows along its last axis.
    const bool done = (!o.rows.valid() || o.rows == row) && emit_product(c, o, {result, at}, t.axes, map, Matmul::Init::scaled, decay.buffer, scale_at, body);
    scratch_.erase(standing);
    return done;
  }

  // ---- blocks ------------------------------------------------------------------------------------------------------

  std::set<Expr> opened_;  // reduce loops around the current block

  void block(const itgraph::Block& b, itgraph::TensorMap map, std::vector<Statement>& body) {
    if (b.kind == itgraph::Kind::reduce) open_reductions(b, map, opened_, body);
    const itgraph::TensorMap outside = map;
    std::vector<tile::For> loops;
    for (const itgraph::Loop& l : b.loops) {
      const int64_t n = extent(l.index);
      const itgraph::Interval around = map.of(l.index);
      const Expr limit = around.tile > 0 ? map.size(l.index) : syms_.constant(n);
      const Expr counter = syms_.fresh(syms_.symbol_name(l.index), {0, std::max<int64_t>((around.tile > 0 ? around.tile : n) - 1, 0)});
      syms_.set_multiple(counter, l.step);
      loops.push_back({counter, syms_.constant(0), limit, l.step, b.kind == itgraph::Kind::parallel, {}});
      map.enter(l.index, counter, l.step);
    }
    std::vector<Expr> added;
    if (b.kind == itgraph::Kind::reduce)
      for (const itgraph::Loop& l : b.loops)
        if (opened_.insert(l.index).second) added.push_back(l.index);
    std::vector<Statement> inner;
    for (const itgraph::Item& i : b.items)
      match(
          i.what,
          [&](const Compute& c) {
            for (const itgraph::Target& t : c.results) made_.insert(t.value);
            const bool looped = std::any_of(c.reduced.begin(), c.reduced.end(), [&](Expr s) { return opened_.count(s) > 0; });
            switch (c.how) {
              case Compute::How::map: return map_compute(c, map, inner);
              case Compute::How::reduce: return reduce_compute(c, map, looped, inner);
              case Compute::How::scaled: scaled_compute(c, map, looped, inner); return;
            }
          },
          [&](const itgraph::Block& deeper) { block(deeper, map, inner); });
    for (Expr s : added) opened_.erase(s);
    for (size_t i = loops.size(); i-- > 0;) {
      loops[i].body = std::move(inner);
      inner.clear();
      inner.push_back({std::move(loops[i])});
    }
    for (Statement& s : inner) body.push_back(std::move(s));
    if (b.kind == itgraph::Kind::reduce)
      for (const itgraph::Item& i : b.items)
        if (const auto* c = std::get_if<Compute>(&i.what); c && c->how != Compute::How::map) {
          const bool still = std::any_of(c->reduced.begin(), c->reduced.end(), [&](Expr s) { return opened_.count(s) > 0; });
          if (!still)
            for (const itgraph::Target& t : c->results) flush(t, outside, body);
        }
  }

  const itgraph::Program& it_;
  const Machine& machine_;
  sym::Pool& syms_;
  std::set<ItValue> visible_;
  tile::Program out_;
  std::map<ItValue, BufferId> memory_;
  std::map<ItValue, Scratch> scratch_;
  std::set<ItValue> constants_;  // values made by kernels that run once
  std::set<ItValue> made_;       // by the current kernel
  std::map<ItValue, Expr> last_index_;
  std::map<std::string, BufferId> packed_;
  std::vector<tile::Kernel> packing_;
  std::set<std::string> names_, kernel_names_;
};

}  // namespace

Result<tile::Program> place(const itgraph::Program& program, const Machine& machine) { return Placer(program, machine).run(); }

}  // namespace cleave::schedule
