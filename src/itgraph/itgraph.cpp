#include "itgraph/itgraph.hpp"

#include <set>

#include "base/match.hpp"

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

void TensorMap::enter(Expr index, Expr counter, int64_t step) {
  Interval& i = intervals_[index];
  sym::Pool& s = *program_->syms;
  i.offset = i.offset.valid() ? s.add(i.offset, counter) : counter;
  i.tile = step;
}

Interval TensorMap::of(Expr index) const {
  auto it = intervals_.find(index);
  if (it == intervals_.end()) return {program_->syms->constant(0), 0};
  return it->second;
}

int64_t TensorMap::most(Expr index) const {
  const Interval i = of(index);
  const auto extent = program_->syms->as_constant(program_->extents.at(index));
  CHECK(extent, "an unbound extent");
  return i.tile > 0 ? std::min(i.tile, *extent) : *extent;
}

Expr TensorMap::size(Expr index) const {
  const Interval i = of(index);
  sym::Pool& s = *program_->syms;
  const Expr extent = program_->extents.at(index);
  if (i.tile == 0) return extent;
  const Expr rest = s.sub(extent, i.offset);
  // Every tile is full when the steps divide the extent: offset is a multiple of the tile below the extent.
  const auto constant = s.as_constant(extent);
  if (constant && *constant % i.tile == 0) return s.constant(i.tile);
  return s.min(s.constant(i.tile), rest);
}

namespace {

struct Verifier {
  const Program& p;
  Diagnostics out = {};
  std::string where = {};
  std::set<ValueId> ready = {};

  void bad(std::string why) { out.push_back(diagnose(Code::invalid_itgraph, where, why)); }

  bool known(ValueId id) {
    if (id.valid() && id.index < p.values.size()) return true;
    bad("names a value that does not exist");
    return false;
  }
  bool in_memory(ValueId id) const {
    const Role r = p.value(id).role;
    return r == Role::input || r == Role::constant || r == Role::scalar;
  }
  ValueId origin(ValueId id) const { return p.value(id).alias_of.valid() ? origin(p.value(id).alias_of) : id; }

  void compute(const Compute& c, const std::map<Expr, std::pair<Kind, int64_t>>& loops) {
    std::set<Expr> bound(c.reduced.begin(), c.reduced.end());
    for (const Target& t : c.results) {
      if (!known(t.value)) return;
      const Value& v = p.value(t.value);
      if (v.role == Role::input || v.role == Role::constant || v.role == Role::scalar) bad(fmt::format("`{}` is read only", v.name));
      if (t.axes.size() != v.shape.size()) bad(fmt::format("`{}` has {} axes, {} indices", v.name, v.shape.size(), t.axes.size()));
      for (size_t i = 0; i < t.axes.size() && i < v.shape.size(); ++i) {
        auto e = p.extents.find(t.axes[i]);
        if (e == p.extents.end()) bad(fmt::format("`{}` has an unknown index", v.name));
        else if (e->second != v.shape[i]) bad(fmt::format("axis {} of `{}` is not as long as its index", i, v.name));
        if (c.how != Compute::How::map && std::find(c.reduced.begin(), c.reduced.end(), t.axes[i]) != c.reduced.end())
          bad(fmt::format("`{}` keeps an index that is reduced", v.name));
        bound.insert(t.axes[i]);
      }
      if (!t.node.valid() || t.node.index >= c.nodes.size()) return bad("a result has no expression");
    }
    if ((c.how == Compute::How::map) != c.reduced.empty() && c.how == Compute::How::map) bad("a map reduces");
    for (Expr r : c.reduced) {
      auto it = loops.find(r);
      if (!p.extents.count(r)) bad("reduces an unknown index");
      if (it != loops.end() && it->second.first != Kind::reduce) bad(fmt::format("`{}` is reduced but its loop is no reduce", p.syms->print(r)));
    }
    if (c.how == Compute::How::map)
      for (const auto& [index, loop] : loops)
        if (loop.first == Kind::reduce && p.value(c.results[0].value).role == Role::output && !bound.count(index))
          bad(fmt::format("`{}` is written in every iteration of a reduction", p.value(c.results[0].value).name));
    for (const tile::Node& n : c.nodes)
      if (const auto* l = std::get_if<tile::Load>(&n.what)) {
        if (!known(l->buffer)) continue;
        const Value& v = p.value(l->buffer);
        if (l->at.size() != v.shape.size()) bad(fmt::format("`{}` has {} axes, {} indices", v.name, v.shape.size(), l->at.size()));
        if (!in_memory(l->buffer) && !ready.count(origin(l->buffer))) bad(fmt::format("`{}` is read before it is computed", v.name));
        for (const tile::Index& i : l->at)
          for (Expr s : p.syms->symbols_of(i.affine))
            if (!bound.count(s)) bad(fmt::format("`{}` is read at an index that is not bound", v.name));
      }
    for (const Target& t : c.results) ready.insert(origin(t.value));
  }

  void block(const Block& b, std::map<Expr, std::pair<Kind, int64_t>> loops, bool outermost) {
    if ((b.kind == Kind::parallel) != outermost) bad("parallel blocks are outermost, and only they are");
    for (const Loop& l : b.loops) {
      if (!p.extents.count(l.index)) bad("loops over an unknown index");
      if (l.step < 1) bad("a step is below 1");
      auto it = loops.find(l.index);
      if (it != loops.end() && (it->second.second % std::max<int64_t>(l.step, 1)) != 0) bad("an inner step does not divide the outer one");
      loops[l.index] = {b.kind, l.step};
    }
    for (const Item& i : b.items)
      match(
          i.what, [&](const Compute& c) { compute(c, loops); }, [&](const Block& inner) { block(inner, loops, false); });
  }

  Diagnostics run() {
    for (const Kernel& k : p.kernels) {
      where = k.name;
      match(
          k.what, [&](const Block& b) { block(b, {}, true); },
          [&](const Library& l) {
            if (!known(l.source)) return;
            if (!in_memory(l.source) && !ready.count(origin(l.source))) bad("reads a value before it is computed");
            for (ValueId r : l.results)
              if (known(r)) ready.insert(r);
          });
    }
    for (uint32_t i = 0; i < p.values.size(); ++i) {
      where = p.values[ValueId(i)].name;
      if (p.values[ValueId(i)].role == Role::output && !ready.count(origin(ValueId(i)))) bad("is an output that nothing computes");
    }
    return out;
  }
};

}  // namespace

Diagnostics verify(const Program& program) { return Verifier{program}.run(); }

}  // namespace cleave::itgraph
