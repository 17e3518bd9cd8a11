#include "schedule/placer.hpp"

#include <cmath>
#include <functional>
#include <limits>

#include "base/match.hpp"
#include "schedule/library.hpp"

namespace cleave::schedule {

namespace {
constexpr int kPrepared = 1000;  // buffers of a reduction that are made before its loop
}

std::set<ItValue> visible_values(const itgraph::Program& p) {
  std::set<ItValue> out;
  std::map<ItValue, const void*> maker;  // the kernel, or the parallel block in it whose tasks are joined
  auto root = [&](ItValue v) { return p.value(v).alias_of.valid() ? p.value(v).alias_of : v; };
  auto reads = [&](ItValue v, const void* reader) {
    v = root(v);
    auto it = maker.find(v);
    if (it != maker.end() && it->second != reader) out.insert(v);
  };
  for (const itgraph::Kernel& k : p.kernels) {
    std::function<void(const itgraph::Block&, const void*)> visit = [&](const itgraph::Block& b, const void* tasks) {
      if (b.kind == itgraph::Kind::parallel) tasks = &b;
      for (const itgraph::Item& i : b.items)
        match(
            i.what,
            [&](const Compute& c) {
              for (const tile::Node& n : c.nodes)
                if (const auto* l = std::get_if<tile::Load>(&n.what)) reads(l->buffer, tasks);
              for (const itgraph::Target& t : c.results) {
                maker[root(t.value)] = tasks;
                if (p.value(t.value).role == Role::output) out.insert(t.value);
              }
            },
            [&](const itgraph::Block& inner) { visit(inner, tasks); });
    };
    match(
        k.what, [&](const itgraph::Block& b) { visit(b, &b); },
        [&](const itgraph::Library& l) {
          reads(l.source, &l);
          for (ItValue r : l.results) {
            maker[r] = &l;
            out.insert(r);
          }
        });
  }
  return out;
}

Result<tile::Program> Placer::run(std::vector<size_t>* ends) {
  if (machine_.matrix_products > 0) {
    for (auto find : {&Placer::find_exact, &Placer::find_narrow})
      for (const itgraph::Kernel& k : it_.kernels)
        if (const auto* b = std::get_if<itgraph::Block>(&k.what)) (this->*find)(*b);
    // Library kernels read and write what is declared.
    for (const itgraph::Kernel& k : it_.kernels)
      if (const auto* l = std::get_if<itgraph::Library>(&k.what)) {
        narrow_.erase(l->source);
        for (const ItValue r : l->results) narrow_.erase(r);
      }
  }
  arguments();
  for (const itgraph::Kernel& k : it_.kernels) {
    tile::Kernel kernel{kernel_name(k.name), find_constant(k), {}};
    scratch_.clear();
    scratch_of_.clear();
    made_.clear();
    match(
        k.what,
        [&](const itgraph::Block& b) {
          find_uses(b);
          block(b, itgraph::TensorMap(it_), kernel.body);
        },
        [&](const itgraph::Library& l) {
          kernel.body = library_kernel(l, it_, out_, [&](ItValue v) { return memory(v); });
        });
    for (tile::Kernel& p : packing_) out_.kernels.push_back(std::move(p));
    packing_.clear();
    out_.kernels.push_back(std::move(kernel));
    if (ends) ends->push_back(out_.kernels.size());
  }
  return std::move(out_);
}

std::string Placer::unique(std::string stem) {
  std::string name = stem;
  for (int i = 1; !names_.insert(name).second; ++i) name = fmt::format("{}_{}", stem, i);
  return name;
}

std::string Placer::kernel_name(const std::string& stem) {
  std::string name = stem;
  for (int i = 1; !kernel_names_.insert(name).second; ++i) name = fmt::format("{}_{}", stem, i);
  return name;
}

void Placer::arguments() {
  for (uint32_t i = 0; i < it_.values.size(); ++i) {
    const itgraph::Value& v = it_.values[ItValue(i)];
    if (v.role == Role::inner || v.alias_of.valid()) continue;
    memory(ItValue(i));
  }
}

BufferId Placer::memory(ItValue v) {
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
    case Role::inner:
      place = constants_.count(value.alias_of.valid() ? value.alias_of : v) ? Place::packed : Place::workspace;
      break;
  }
  std::vector<Expr> shape = value.shape;
  if (value.rows_of.valid()) {
    shape.erase(shape.begin());
    shape[0] = value.rows;
  }
  return memory_[v] = out_.buffers.add({unique(value.name), stored(v), place, shape, 0, value.argument, alias});
}

bool Placer::find_constant(const itgraph::Kernel& k) {
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
            constant = constant && !depends_on_dims(it_, c);
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

void Placer::find_uses(const itgraph::Block& b) {
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

void Placer::find_exact(const itgraph::Block& b) {
  const auto is_power = [](const tile::Node& n) {  // a power of two, which moves no digit
    const auto* l = std::get_if<tile::Literal>(&n.what);
    int exponent;
    return l && std::fabs(std::frexp(l->value, &exponent)) == 0.5 && std::abs(exponent) < 64;
  };
  std::function<bool(const Compute&, NodeId)> exact = [&](const Compute& c, NodeId id) {
    const tile::Node& n = c.nodes[id.index];
    if (const auto* x = std::get_if<tile::Cast>(&n.what))
      return n.dtype == DType::bf16 || (n.dtype == DType::f32 && exact(c, x->operand));
    if (const auto* l = std::get_if<tile::Load>(&n.what))
      return it_.value(l->buffer).dtype == DType::bf16 || exact_.count(l->buffer) > 0;
    const auto* f = std::get_if<tile::Apply>(&n.what);
    if (!f || f->fn != Fn::mul) return false;
    const NodeId x = f->operands[0], y = f->operands[1];
    return (exact(c, x) && is_power(c.nodes[y.index])) || (exact(c, y) && is_power(c.nodes[x.index]));
  };
  for (const itgraph::Item& i : b.items)
    match(
        i.what,
        [&](const Compute& c) {
          if (c.how == Compute::How::map && exact(c, c.results[0].node)) exact_.insert(c.results[0].value);
        },
        [&](const itgraph::Block& inner) { find_exact(inner); });
}

void Placer::find_narrow(const itgraph::Block& b) {
  const auto root = [&](ItValue v) { return it_.value(v).alias_of.valid() ? it_.value(v).alias_of : v; };
  const auto may_be = [&](const tile::Load& l) {
    const ItValue v = root(l.buffer);
    return it_.value(v).dtype == DType::bf16 || (it_.value(v).role == Role::inner && exact_.count(v));
  };
  const auto keep = [&](const tile::Load& l) {
    if (it_.value(root(l.buffer)).dtype == DType::f32) narrow_.insert(root(l.buffer));
  };
  const auto compute = [&](const Compute& c) {
    if (c.how == Compute::How::scaled) {
      for (const itgraph::Target& t : c.results)
        if (const auto* l = std::get_if<tile::Load>(&c.nodes[t.node.index].what); l && may_be(*l)) keep(*l);
      return;
    }
    if (c.how != Compute::How::reduce || c.fn != Fn::add) return;
    const auto product = product_of(c, c.results[0].node);
    if (!product || !may_be(*product->a) || !may_be(*product->b)) return;
    const Orientation o = orient(c, *product);
    if (o.columns.valid() && o.depth.valid() && o.rows.valid()) keep(*o.a), keep(*o.b);
  };
  for (const itgraph::Item& i : b.items)
    match(i.what, compute, [&](const itgraph::Block& inner) { find_narrow(inner); });
}

Expr Placer::widest(const std::vector<Expr>& list) const {
  Expr best;
  for (Expr s : list)
    if (!best.valid() || extent(s) >= extent(best)) best = s;
  return best;
}

Placer::Orientation Placer::orient(const Compute& c, const Product& p) const {
  Orientation o;
  const auto& axes = c.results[0].axes;
  const Roles roles = roles_of(syms_, axes, *p.a, *p.b);
  std::vector<Expr> in_a = roles.rows, in_b = roles.columns;
  const bool outside = visible_.count(c.results[0].value) > 0;
  auto is_in = [](const std::vector<Expr>& list, Expr s) {
    return std::find(list.begin(), list.end(), s) != list.end();
  };
  Expr last = axes.empty() ? Expr() : axes.back();
  if (!outside && !is_in(in_a, last) && !is_in(in_b, last)) last = in_b.empty() ? widest(in_a) : widest(in_b);
  if (auto it = last_index_.find(c.results[0].value);
      !outside && it != last_index_.end() && (is_in(in_a, it->second) || is_in(in_b, it->second)))
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
  o.any_rows = in_a;
  std::vector<Expr> depth;
  for (Expr s : c.reduced)
    if (mentions(syms_, *o.a, s) && mentions(syms_, *o.b, s)) depth.push_back(s);
  o.depth = widest(depth);
  return o;
}

BufferId Placer::scratch(std::string stem, DType dtype, std::vector<Expr> shape) {
  std::vector<Expr> s;
  for (Expr e : shape) s.push_back(syms_.max(e, syms_.constant(1)));
  return out_.buffers.add({unique(std::move(stem)), dtype, Place::scratch, std::move(s), 0, -1, {}});
}

Scratch Placer::make_scratch(const std::string& stem, DType dtype, const std::vector<Expr>& axes,
                             const itgraph::TensorMap& map, Expr last) {
  Scratch s;
  std::vector<Expr> shape = {syms_.constant(1)};
  std::vector<size_t> order;
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[i] != last) order.push_back(i);
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[i] == last) order.push_back(i);
  s.axis.resize(axes.size());
  for (size_t i : order) {
    s.axis[i] = static_cast<int>(shape.size());
    shape.push_back(map.room(axes[i]));
  }
  // Of what the matrix unit reads, elements lie in pairs.
  if (dtype == DType::bf16) shape.back() = syms_.mul(syms_.ceildiv(shape.back(), syms_.constant(2)), 2);
  for (Expr e : axes) s.origin.push_back(map.of(e).offset);
  BufferId& known = scratch_of_[{current_, asked_++}];
  bool same =
      current_ && known.valid() && out_.buffer(known).dtype == dtype && out_.buffer(known).shape.size() == shape.size();
  for (size_t i = 0; same && i < shape.size(); ++i)
    same = out_.buffer(known).shape[i] == syms_.max(shape[i], syms_.constant(1));
  if (!same) known = scratch(stem, dtype, shape);
  s.buffer = known;
  return s;
}

std::vector<Expr> Placer::scratch_at(const Scratch& s, const std::vector<Expr>& absolute) {
  std::vector<Expr> at(absolute.size() + 1, syms_.constant(0));
  for (size_t i = 0; i < absolute.size(); ++i) at[static_cast<size_t>(s.axis[i])] = syms_.sub(absolute[i], s.origin[i]);
  return at;
}

std::pair<BufferId, std::vector<Expr>> Placer::locate(ItValue v, const std::vector<Expr>& absolute) {
  if (auto it = scratch_.find(v); it != scratch_.end()) return {it->second.buffer, scratch_at(it->second, absolute)};
  return {memory(v), absolute};
}

tile::Load Placer::placed(const tile::Load& l, const std::unordered_map<Expr, Expr>& by,
                          const std::vector<NodeId>& nodes) {
  std::vector<Expr> absolute;
  for (const tile::Index& i : l.at) absolute.push_back(syms_.substitute(i.affine, by));
  auto [buffer, at] = locate(l.buffer, absolute);
  tile::Load out{buffer, {}, l.guard.valid() ? nodes[l.guard.index] : NodeId{}};
  const auto s = scratch_.find(l.buffer);
  for (Expr e : at) out.at.push_back({e, {}});
  for (size_t i = 0; i < l.at.size(); ++i)
    if (l.at[i].dynamic.valid())
      out.at[s == scratch_.end() ? i : static_cast<size_t>(s->second.axis[i])].dynamic = nodes[l.at[i].dynamic.index];
  return out;
}

std::vector<NodeId> Placer::copy_nodes(NestBuilder& nest, const std::vector<tile::Node>& from,
                                       std::vector<NodeId> roots, const std::unordered_map<Expr, Expr>& by) {
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

void Placer::add_axes(NestBuilder& nest, const std::vector<Expr>& indices, const itgraph::TensorMap& map,
                      std::unordered_map<Expr, Expr>& by) {
  for (Expr s : indices) {
    if (by.count(s)) continue;
    const std::string name = syms_.symbol_name(s);  // taking the size may add symbols and move the names
    by[s] = syms_.add(map.of(s).offset, nest.axis(name, map.size(s), map.most(s)));
  }
}

std::vector<Expr> Placer::substituted(sym::Pool& syms, const std::vector<Expr>& list,
                                      const std::unordered_map<Expr, Expr>& by) {
  std::vector<Expr> out;
  for (Expr e : list) out.push_back(syms.substitute(e, by));
  return out;
}

Expr Placer::wanted_last(ItValue v, const std::vector<Expr>& axes) const {
  auto it = last_index_.find(v);
  if (it != last_index_.end() && std::find(axes.begin(), axes.end(), it->second) != axes.end()) return it->second;
  return axes.empty() ? Expr() : axes.back();
}

void Placer::reserve(const itgraph::Target& t, const itgraph::TensorMap& map, Expr last) {
  if (!in_scratch(t.value) && !needs_accumulator(t.value)) return;
  const itgraph::Value& v = it_.value(t.value);
  scratch_[t.value] =
      make_scratch(v.name, compute_type(v.dtype), t.axes, map, last.valid() ? last : wanted_last(t.value, t.axes));
}

void Placer::flush(const itgraph::Target& t, const itgraph::TensorMap& map, std::vector<Statement>& body) {
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

void Placer::map_compute(const Compute& c, const itgraph::TensorMap& map, std::vector<Statement>& body) {
  const itgraph::Target& t = c.results[0];
  if (it_.value(t.value).rows_of.valid()) return packed_compute(c, map, body);
  if (in_scratch(t.value)) {
    const itgraph::Value& v = it_.value(t.value);
    const DType d = narrow_.count(t.value) ? DType::bf16 : compute_type(v.dtype);
    scratch_[t.value] = make_scratch(v.name, d, t.axes, map, wanted_last(t.value, t.axes));
    if (const Expr along = gathered_along(c, map); along.valid()) return turned_compute(c, along, map, body);
  }
  NestBuilder nest(syms_);
  std::unordered_map<Expr, Expr> by;
  add_axes(nest, t.axes, map, by);
  const NodeId value = copy_nodes(nest, c.nodes, {t.node}, by)[0];
  auto [buffer, at] = locate(t.value, substituted(syms_, t.axes, by));
  nest.store(buffer, at, value);
  body.push_back({nest.take()});
}

Expr Placer::gathered_along(const Compute& c, const itgraph::TensorMap& map) const {
  const itgraph::Target& t = c.results[0];
  const Expr last = wanted_last(t.value, t.axes);
  if (t.axes.empty() || last == t.axes.back() || narrow_.count(t.value) || it_.value(t.value).dtype != DType::f32)
    return {};
  for (Expr s : t.axes)
    if (map.most(s) > 1 && s != last && s != t.axes.back()) return {};
  const Expr along = t.axes.back();
  const int lanes = machine_.vector_bytes / byte_size(DType::f32);
  if (map.most(along) < lanes || map.most(last) < lanes) return {};
  const bool gathers = std::any_of(c.nodes.begin(), c.nodes.end(), [&](const tile::Node& n) {
    const auto* l = std::get_if<tile::Load>(&n.what);
    if (!l || l->at.empty() || l->at.back().dynamic.valid()) return false;
    const auto step = syms_.stride(l->at.back().affine, along);
    return step && syms_.is(*step, 1) &&
           std::any_of(l->at.begin(), l->at.end(), [](const tile::Index& i) { return i.dynamic.valid(); });
  });
  return gathers ? along : Expr();
}

void Placer::turned_compute(const Compute& c, Expr along, const itgraph::TensorMap& map, std::vector<Statement>& body) {
  const itgraph::Target& t = c.results[0];
  const Expr last = wanted_last(t.value, t.axes);
  const int64_t lanes = machine_.vector_bytes / byte_size(DType::f32);
  const BufferId rows =
      scratch(it_.value(t.value).name + "_rows", DType::f32, {syms_.constant(lanes), map.room(along)});
  const Expr first = syms_.fresh(syms_.symbol_name(last), {0, map.most(last) - 1});
  syms_.set_multiple(first, lanes);
  tile::For loop{first, syms_.constant(0), map.size(last), lanes, false, {}};
  const Expr count = syms_.min(syms_.constant(lanes), syms_.sub(map.size(last), first));
  for (const bool turn : {false, true}) {
    NestBuilder nest(syms_);
    std::unordered_map<Expr, Expr> by;
    const Expr row = nest.axis(syms_.symbol_name(last), count, lanes);
    by[last] = syms_.add(syms_.add(map.of(last).offset, first), row);
    add_axes(nest, t.axes, map, by);
    const std::vector<Expr> place = {row, syms_.sub(by.at(along), map.of(along).offset)};
    if (turn) {
      auto [buffer, at] = locate(t.value, substituted(syms_, t.axes, by));
      nest.store(buffer, at, nest.load(rows, place, DType::f32));
    } else {
      nest.store(rows, place, copy_nodes(nest, c.nodes, {t.node}, by)[0]);
    }
    loop.body.push_back({nest.take()});
  }
  body.push_back({std::move(loop)});
}

double Placer::identity(Fn fn) {
  switch (fn) {
    case Fn::mul:
    case Fn::logical_and: return 1;
    case Fn::max: return -std::numeric_limits<double>::infinity();
    case Fn::min: return std::numeric_limits<double>::infinity();
    default: return 0;
  }
}

void Placer::fill(ItValue v, const std::vector<Expr>& axes, Fn fn, const itgraph::TensorMap& map,
                  std::vector<Statement>& body) {
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

std::vector<const Compute*> Placer::opened_by(const itgraph::Block& b, const std::set<Expr>& opened) const {
  std::vector<const Compute*> out;
  std::function<void(const itgraph::Block&)> visit = [&](const itgraph::Block& inside) {
    for (const itgraph::Item& i : inside.items)
      match(
          i.what,
          [&](const Compute& c) {
            if (c.how == Compute::How::map) return;
            bool here = false, before = false;
            for (Expr s : c.reduced) {
              for (const itgraph::Loop& l : b.loops) here = here || l.index == s;
              before = before || opened.count(s) > 0;
            }
            if (here && !before) out.push_back(&c);
          },
          [&](const itgraph::Block& deeper) { visit(deeper); });
  };
  if (b.kind == itgraph::Kind::reduce) visit(b);
  return out;
}

void Placer::prepare(const Compute& c, const itgraph::TensorMap& map, std::vector<Statement>& body) {
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

Expr Placer::product_columns(const Compute& c) const {
  if (c.how != Compute::How::reduce || c.fn != Fn::add) return {};
  const auto product = product_of(c, c.results[0].node);
  return product ? orient(c, *product).columns : Expr();
}

void Placer::reduce_compute(const Compute& c, const itgraph::TensorMap& map, bool looped,
                            std::vector<Statement>& body) {
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

void Placer::items(const itgraph::Block& b, const itgraph::TensorMap& map, std::vector<Statement>& body) {
  for (const itgraph::Item& i : b.items)
    match(
        i.what,
        [&](const Compute& as_written) {
          const Compute c = assume(syms_, as_written, known_, lengths_);
          current_ = &as_written;
          asked_ = 0;
          for (const itgraph::Target& t : c.results) made_.insert(t.value);
          const bool looped =
              std::any_of(c.reduced.begin(), c.reduced.end(), [&](Expr s) { return opened_.count(s) > 0; });
          switch (c.how) {
            case Compute::How::map: return map_compute(c, map, body);
            case Compute::How::reduce: return reduce_compute(c, map, looped, body);
            case Compute::How::scaled: scaled_compute(c, map, looped, body); return;
          }
        },
        [&](const itgraph::Block& deeper) { block(deeper, map, body); });
}

void Placer::block(const itgraph::Block& b, itgraph::TensorMap map, std::vector<Statement>& body) {
  const std::vector<const Compute*> reductions = opened_by(b, opened_);
  for (const Compute* c : reductions) {
    current_ = c;
    asked_ = kPrepared;
    prepare(*c, map, body);
  }
  const itgraph::TensorMap outside = map;
  std::vector<Expr> added;
  if (b.kind == itgraph::Kind::reduce)
    for (const itgraph::Loop& l : b.loops)
      if (opened_.insert(l.index).second) added.push_back(l.index);
  if (!masked_loop(b, map, body)) {
    std::vector<tile::For> loops;
    for (const itgraph::Loop& l : b.loops) {
      const int64_t n = most(l.index);
      const itgraph::Interval around = map.of(l.index);
      const Expr limit = around.tile > 0 ? map.size(l.index) : it_.extents.at(l.index);
      const Expr counter =
          syms_.fresh(syms_.symbol_name(l.index), {0, std::max<int64_t>((around.tile > 0 ? around.tile : n) - 1, 0)});
      syms_.set_multiple(counter, l.step);
      loops.push_back({counter, syms_.constant(0), limit, l.step, b.kind == itgraph::Kind::parallel, {}});
      map.enter(l.index, counter, l.step);
    }
    // Tasks beyond the last row of their request have nothing to do.
    const auto requests = b.kind == itgraph::Kind::parallel ? requests_of(b) : std::nullopt;
    Rows rows;
    Expr left;
    if (requests) {
      rows = fresh_rows(requests->rows);
      const Expr length = syms_.sub(rows.stop, rows.first);
      left = syms_.sub(length, map.of(requests->row).offset);
      map.limit(requests->row, length);
      bound_rows_[requests->rows_of] = rows;
    }
    std::vector<Statement> inner;
    items(b, map, inner);
    if (requests) {
      bound_rows_.erase(requests->rows_of);
      tile::For some{syms_.fresh("some", {0, 0}), syms_.constant(0), syms_.min(syms_.constant(1), left), 1, false, {}};
      some.body = std::move(inner);
      inner.clear();
      inner.push_back({std::move(some)});
      inner = with_rows(std::move(inner), syms_, memory(requests->rows_of), map.of(requests->request).offset,
                        requests->rows, rows);
    }
    for (size_t i = loops.size(); i-- > 0;) {
      loops[i].body = std::move(inner);
      inner.clear();
      inner.push_back({std::move(loops[i])});
    }
    for (Statement& s : inner) body.push_back(std::move(s));
  }
  for (Expr s : added) opened_.erase(s);
  for (const Compute* c : reductions)
    for (const itgraph::Target& t : c->results) flush(t, outside, body);
}

Result<tile::Program> place(const itgraph::Program& program, const Machine& machine, const PlaceOptions& options,
                            std::vector<size_t>* ends) {
  return Placer(program, machine, options).run(ends);
}

}  // namespace cleave::schedule
