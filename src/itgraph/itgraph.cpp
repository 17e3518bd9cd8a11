#include "itgraph/itgraph.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/codes.hpp"
#include "base/match.hpp"
#include "tile/expression.hpp"

namespace cleave::itgraph {

const char* name(Kind kind) {
  switch (kind) {
    case Kind::parallel: return "parallel";
    case Kind::map: return "map";
    case Kind::reduce: return "reduce";
  }
  return "";
}

const char* name(Role role) {
  switch (role) {
    case Role::input: return "input";
    case Role::constant: return "const";
    case Role::scalar: return "scalar";
    case Role::output: return "output";
    case Role::inner: return "inner";
  }
  return "";
}

void TensorMap::enter(Expr index, Expr counter, int64_t step) { enter(index, counter, step, step, {}); }

void TensorMap::enter(Expr index, Expr counter, int64_t step, int64_t aligned, Expr end) {
  Interval& i = intervals_[index];
  sym::Pool& s = *program_->syms;
  i.aligned = i.offset.valid() ? std::gcd(i.aligned, aligned) : aligned;
  i.offset = i.offset.valid() ? s.add(i.offset, counter) : counter;
  i.tile = step;
  if (end.valid()) i.end = end;
}

void TensorMap::limit(Expr index, Expr end) {
  Interval i = of(index);
  i.end = i.end.valid() ? program_->syms->min(i.end, end) : end;
  intervals_[index] = i;
}

Interval TensorMap::of(Expr index) const {
  auto it = intervals_.find(index);
  if (it == intervals_.end()) return {program_->syms->constant(0), 0, {}, 1};
  return it->second;
}

int64_t TensorMap::most(Expr index) const {
  const Interval i = of(index);
  const int64_t extent = program_->syms->bounds(program_->extents.at(index)).hi;
  return i.tile > 0 ? std::min(i.tile, extent) : extent;
}

Expr TensorMap::room(Expr index) const {
  const Interval i = of(index);
  const Expr extent = program_->extents.at(index);
  if (i.tile == 0) return extent;
  sym::Pool& s = *program_->syms;
  // A tile that the index does not fill as a rule is as long as the index: elements that are used lie together, and
  // next to a whole index the room is no larger than what there is.
  return s.typical(extent) < most(index) ? s.min(s.constant(most(index)), extent) : s.constant(most(index));
}

Expr TensorMap::size(Expr index) const {
  const Interval i = of(index);
  sym::Pool& s = *program_->syms;
  const Expr extent = program_->extents.at(index);
  if (i.tile == 0) return i.end.valid() ? s.min(extent, i.end) : extent;
  if (i.end.valid()) {
    const Expr end = s.min(extent, i.end);
    if (s.divides(i.tile, end) == sym::Proof::yes && i.aligned % i.tile == 0) return s.constant(i.tile);
    return s.min(s.constant(i.tile), s.sub(end, i.offset));
  }
  const Expr rest = s.sub(extent, i.offset);
  // Every tile is full when the steps divide the extent: offset is a multiple of the tile below the extent.
  if (s.divides(i.tile, extent) == sym::Proof::yes) return s.constant(i.tile);
  return s.min(s.constant(i.tile), rest);
}

namespace {

struct Verifier {
  const Program& p;
  Diagnostics out = {};
  std::string where = {};
  std::set<ValueId> ready = {};
  std::vector<const Block*> enclosing = {};
  std::map<ValueId, std::set<const Block*>> accumulating = {};  // the reduce blocks in which a value is unfinished

  // Of each index: whether all its loops are reduce loops, and the step of the innermost.
  struct Place {
    bool reduce;
    int64_t step;
  };
  using Places = std::map<Expr, Place>;

  void bad(std::string why) { out.push_back(diagnose(Code::invalid_itgraph, where, why)); }

  bool exists(ValueId id) const { return id.valid() && id.index < p.values.size(); }
  bool known(ValueId id) {
    if (exists(id)) return true;
    bad("names a value that does not exist");
    return false;
  }
  bool in_memory(ValueId id) const {
    const Role r = p.value(origin(id)).role;
    return r == Role::input || r == Role::constant || r == Role::scalar;
  }
  ValueId origin(ValueId id) const { return p.value(id).alias_of.valid() ? origin(p.value(id).alias_of) : id; }

  void target(const Compute& c, const Target& t) {
    const Value& v = p.value(t.value);
    if (in_memory(t.value)) bad(fmt::format("`{}` is read only", v.name));
    if (v.rows_of.valid() && c.how != Compute::How::map) bad(fmt::format("`{}` is packed and accumulated", v.name));
    if (t.axes.size() != v.shape.size())
      bad(fmt::format("`{}` has {} axes, {} indices", v.name, v.shape.size(), t.axes.size()));
    for (size_t i = 0; i < t.axes.size() && i < v.shape.size(); ++i) {
      auto e = p.extents.find(t.axes[i]);
      if (e == p.extents.end())
        bad(fmt::format("`{}` has an unknown index", v.name));
      else if (e->second != v.shape[i])
        bad(fmt::format("axis {} of `{}` is not as long as its index", i, v.name));
      if (std::find(c.reduced.begin(), c.reduced.end(), t.axes[i]) != c.reduced.end())
        bad(fmt::format("`{}` keeps an index that is reduced", v.name));
      if (std::find(t.axes.begin(), t.axes.begin() + static_cast<std::ptrdiff_t>(i), t.axes[i]) !=
          t.axes.begin() + static_cast<std::ptrdiff_t>(i))
        bad(fmt::format("`{}` has one index on two axes", v.name));
    }
  }

  // Whether a loop around this statement accumulates the value, so that it is unfinished here.
  bool unfinished(ValueId id) {
    for (const Block* b : accumulating[origin(id)])
      if (std::find(enclosing.begin(), enclosing.end(), b) != enclosing.end()) return true;
    return false;
  }
  void read(ValueId id) {
    const Value& v = p.value(id);
    if (in_memory(id)) return;
    if (v.rows_of.valid()) bad(fmt::format("`{}` is packed and read", v.name));
    if (!ready.count(origin(id))) bad(fmt::format("`{}` is read before it is computed", v.name));
    if (unfinished(id)) bad(fmt::format("`{}` is read inside the loop that accumulates it", v.name));
  }

  // What a result's expression may use: its own axes and what is reduced.
  void uses(const Compute& c, const Target& t, NodeId root) {
    std::set<Expr> bound(c.reduced.begin(), c.reduced.end());
    bound.insert(t.axes.begin(), t.axes.end());
    bound.insert(p.dims.begin(), p.dims.end());
    const NodeId roots[] = {root};
    const std::vector<bool> live = tile::reachable(c.nodes, roots);
    auto index = [&](Expr e, const std::string& of) {
      for (Expr s : p.syms->symbols_of(e))
        if (!bound.count(s))
          bad(fmt::format("`{}` uses `{}`, which is not bound{}", p.value(t.value).name, p.syms->print(s), of));
    };
    for (size_t i = 0; i < c.nodes.size(); ++i) {
      if (!live[i]) continue;
      if (const auto* v = std::get_if<tile::IndexValue>(&c.nodes[i].what)) index(v->value, "");
      if (const auto* l = std::get_if<tile::Load>(&c.nodes[i].what))
        for (const tile::Index& x : l->at) index(x.affine, fmt::format(", to read `{}`", p.value(l->buffer).name));
    }
  }

  void compute(const Compute& c, const Places& loops) {
    if (c.results.empty()) return bad("a statement computes nothing");
    const size_t before = out.size();
    std::set<ValueId> results;
    for (const Target& t : c.results) {
      if (!known(t.value)) return;
      target(c, t);
      if (!results.insert(origin(t.value)).second)
        bad(fmt::format("`{}` is computed twice by one statement", p.value(t.value).name));
      if (unfinished(t.value))
        bad(fmt::format("`{}` is computed twice in the loop that accumulates it", p.value(t.value).name));
      if (!t.node.valid() || t.node.index >= c.nodes.size()) return bad("a result has no expression");
    }
    tile::check_expression(
        c.nodes,
        [&](ValueId id) -> std::optional<tile::TensorType> {
          if (!known(id)) return std::nullopt;
          return tile::TensorType{p.value(id).name, p.value(id).dtype, p.value(id).shape.size()};
        },
        [&](std::string why) { bad(std::move(why)); });
    for (Expr r : c.reduced) {
      if (!p.extents.count(r)) {
        bad("reduces an unknown index");
        continue;
      }
      auto it = loops.find(r);
      if (it != loops.end() && !it->second.reduce)
        bad(fmt::format("`{}` is reduced but its loop is no reduce", p.syms->print(r)));
      if (std::count(c.reduced.begin(), c.reduced.end(), r) > 1)
        bad(fmt::format("`{}` is reduced twice", p.syms->print(r)));
    }
    if (out.size() > before) return;
    const std::string& first = p.value(c.results[0].value).name;
    const std::vector<Expr>& axes = c.results[0].axes;
    if (c.how == Compute::How::map && !c.reduced.empty()) bad("a map reduces");
    if (c.how == Compute::How::reduce && !reduction_name(c.fn))
      bad(fmt::format("`{}` does not reduce", info(c.fn).name));
    for (const Target& t : c.results) {
      const Value& v = p.value(t.value);
      const DType d = compute_type(c.nodes[t.node.index].dtype);
      if (d != compute_type(v.dtype)) bad(fmt::format("`{}` is {}, its expression {}", v.name, name(v.dtype), name(d)));
      uses(c, t, t.node);
      if (c.how == Compute::How::reduce && (c.fn == Fn::logical_and || c.fn == Fn::logical_or) &&
          v.dtype != DType::boolean)
        bad(fmt::format("`{}` is reduced by logic but is no bool", v.name));
      if (c.how != Compute::How::scaled) continue;
      if (!is_real(v.dtype) || compute_type(v.dtype) != compute_type(p.value(c.results[0].value).dtype))
        bad(fmt::format("`{}` has no real dtype of its group", v.name));
      for (Expr a : axes)
        if (std::find(t.axes.begin(), t.axes.end(), a) == t.axes.end())
          bad(fmt::format("`{}` lacks an index of the maximum `{}`", v.name, first));
    }
    if (c.how == Compute::How::map)
      for (const auto& [index, place] : loops)
        if (place.reduce && p.value(c.results[0].value).role == Role::output &&
            std::find(axes.begin(), axes.end(), index) == axes.end())
          bad(fmt::format("`{}` is written in every iteration of a reduction", first));
    for (const tile::Node& n : c.nodes)
      if (const auto* l = std::get_if<tile::Load>(&n.what)) read(l->buffer);
    for (const Target& t : c.results) {
      ready.insert(origin(t.value));
      for (const Block* b : enclosing)
        for (const Loop& l : b->loops)
          if (b->kind == Kind::reduce && std::find(c.reduced.begin(), c.reduced.end(), l.index) != c.reduced.end())
            accumulating[origin(t.value)].insert(b);
    }
  }

  bool first_of_parallel(const Block& b) const {
    const Block& around = *enclosing.back();
    return around.kind == Kind::parallel && std::get_if<Block>(&around.items[0].what) == &b;
  }

  void block(const Block& b, Places loops) {
    if (enclosing.empty() ? b.kind != Kind::parallel : b.kind == Kind::parallel && !first_of_parallel(b))
      bad("parallel blocks are outermost or the first of what one contains, and only they are outermost");
    for (const Loop& l : b.loops) {
      if (!p.extents.count(l.index)) {
        bad("loops over an unknown index");
        continue;
      }
      if (l.step < 1) bad("a step is below 1");
      auto it = loops.find(l.index);
      if (it != loops.end() && (it->second.step % std::max<int64_t>(l.step, 1)) != 0)
        bad("an inner step does not divide the outer one");
      loops[l.index] = {b.kind == Kind::reduce && (it == loops.end() || it->second.reduce), l.step};
    }
    enclosing.push_back(&b);
    for (const Item& i : b.items)
      match(i.what, [&](const Compute& c) { compute(c, loops); }, [&](const Block& inner) { block(inner, loops); });
    enclosing.pop_back();
  }

  void library(const Library& l) {
    using What = Library::What;
    if (!known(l.source)) return;
    read(l.source);
    const Value& x = p.value(l.source);
    if (l.axis < 0 || static_cast<size_t>(l.axis) >= x.shape.size())
      return bad(fmt::format("`{}` has no axis {}", x.name, l.axis));
    if (l.results.size() != (l.what == What::topk ? 2u : 1u))
      return bad(fmt::format("`{}` has the wrong number of results", name(l.what)));
    const bool scan = l.what == What::cumsum || l.what == What::cumprod || l.what == What::cummax;
    if (!scan && (l.exclusive || l.reverse)) bad(fmt::format("`{}` is no scan", name(l.what)));
    for (size_t i = 0; i < l.results.size(); ++i) {
      if (!known(l.results[i])) return;
      const Value& r = p.value(l.results[i]);
      if (in_memory(l.results[i])) bad(fmt::format("`{}` is read only", r.name));
      const bool position = !scan && (l.what != What::topk || i == 1);
      if (position ? !is_integer(r.dtype) : compute_type(r.dtype) != compute_type(x.dtype))
        bad(fmt::format("`{}` has the wrong dtype", r.name));
      // The axis: kept by scans, k long for topk, 1 long or left out for the others.
      const auto axis = static_cast<size_t>(l.axis);
      std::vector<Expr> kept = x.shape;
      if (l.what == What::topk && r.shape.size() == kept.size()) {
        const auto n = p.syms->as_constant(x.shape[axis]), k = p.syms->as_constant(r.shape[axis]);
        if (n && k && *k > *n) bad(fmt::format("`{}` takes more elements than `{}` has", r.name, x.name));
        kept[axis] = r.shape[axis];
      } else if (!scan && l.what != What::topk) {
        if (p.syms->is(x.shape[axis], 0)) bad(fmt::format("`{}` of an empty axis", name(l.what)));
        if (r.shape.size() == kept.size())
          kept[axis] = p.syms->constant(1);
        else
          kept.erase(kept.begin() + l.axis);
      }
      if (r.shape != kept) bad(fmt::format("`{}` has the wrong shape", r.name));
      ready.insert(origin(l.results[i]));
    }
  }

  void packed(const Value& v, uint32_t i) {
    if (!exists(v.rows_of) || v.rows_of.index >= i) return bad("is packed by a later value");
    const Value& by = p.value(v.rows_of);
    if (v.role != Role::output || !v.alias_of.valid() || p.value(v.alias_of).rows_of.valid() || v.shape.size() < 2)
      return bad("is packed but no alias of an output, or has no two axes");
    if (by.role != Role::input || !is_integer(by.dtype) || by.shape.size() != 1 ||
        by.shape[0] != p.syms->add(v.shape[0], 1))
      bad(fmt::format("is packed by `{}`, which is no input of integers, one more than it has requests", by.name));
  }

  // Returns false where the rest cannot be looked at.
  bool values() {
    std::set<std::string> names;
    std::set<std::pair<Role, int>> arguments;
    const size_t before = out.size();
    for (uint32_t i = 0; i < p.values.size(); ++i) {
      const Value& v = p.values[ValueId(i)];
      where = v.name;
      if (!names.insert(v.name).second) bad("is the name of two values");
      if (v.alias_of.valid()) {
        if (v.alias_of.index >= i) {
          bad("is an alias of a later value");
          continue;
        }
        const Value& of = p.value(v.alias_of);
        std::vector<Expr> stored = v.shape;
        if (v.rows_of.valid() && stored.size() >= 2) {
          stored.erase(stored.begin());
          stored[0] = v.rows;
        }
        if (of.dtype != v.dtype || p.syms->product(of.shape) != p.syms->product(stored))
          bad(fmt::format("has not the elements of `{}`", of.name));
      } else if (v.role != Role::inner && (v.argument < 0 || !arguments.insert({v.role, v.argument}).second)) {
        bad("has no argument position of its own");
      }
      if (v.role == Role::scalar && !v.shape.empty()) bad("is a scalar with axes");
      if (v.rows_of.valid()) packed(v, i);
    }
    return out.size() == before;
  }

  Diagnostics run() {
    where = p.name;
    for (const Expr d : p.dims)
      if (p.syms->kind(d) != sym::Kind::symbol || p.syms->symbol_range(d).lo < 0 || p.extents.count(d))
        bad("has a dim that is no symbol of its own from 0 on");
    if (!values()) return out;
    for (const Kernel& k : p.kernels) {
      where = k.name;
      match(k.what, [&](const Block& b) { block(b, {}); }, [&](const Library& l) { library(l); });
    }
    for (uint32_t i = 0; i < p.values.size(); ++i) {
      where = p.values[ValueId(i)].name;
      if (p.values[ValueId(i)].role == Role::output && !ready.count(origin(ValueId(i))))
        bad("is an output that nothing computes");
    }
    return out;
  }
};

}  // namespace

Diagnostics verify(const Program& program) { return Verifier{program}.run(); }

}  // namespace cleave::itgraph
