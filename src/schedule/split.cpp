#include "schedule/split.hpp"

#include <algorithm>
#include <limits>

namespace cleave::schedule {

using itgraph::Compute;
using itgraph::Role;
using itgraph::Target;
using sym::Expr;
using tile::NodeId;
using ItValue = itgraph::ValueId;

namespace {

bool contains(const std::vector<Expr>& list, Expr s) { return std::find(list.begin(), list.end(), s) != list.end(); }

// Which units of a group reduce over the index, and which carry it to those.
struct Involved {
  std::vector<size_t> reducers, carriers;
};

std::optional<Involved> involved(const Plan& plan, const Group& group, Expr index) {
  Involved out;
  std::set<size_t> in_group(group.units.begin(), group.units.end());
  for (size_t u : group.units) {
    if (plan.units[u].is_library() || plan.units[u].constant) return std::nullopt;
    if (!contains(reduced_of(plan, group, u), index)) continue;
    const Compute& c = plan.units[u].compute();
    const bool known = c.how == Compute::How::scaled || c.fn == Fn::add || c.fn == Fn::max || c.fn == Fn::min;
    if (!known) return std::nullopt;
    for (const Target& t : c.results)
      if (!is_real(plan.it.value(t.value).dtype)) return std::nullopt;
    out.reducers.push_back(u);
  }
  if (out.reducers.empty()) return std::nullopt;
  // Everything in the group that the reductions read.
  std::vector<size_t> todo = out.reducers;
  std::set<size_t> upstream;
  while (!todo.empty()) {
    const size_t u = todo.back();
    todo.pop_back();
    for (size_t o : plan.units[u].operands)
      if (in_group.count(o) && upstream.insert(o).second) todo.push_back(o);
  }
  for (size_t u : out.reducers)
    if (upstream.count(u)) return std::nullopt;  // one waits for another
  for (size_t u : group.units) {
    if (!upstream.count(u) || !contains(axes_of(plan, group, u), index)) continue;
    for (ItValue r : plan.units[u].results)
      for (const Target& t : plan.units[u].compute().results)
        if (t.value == r && plan.it.value(r).alias_of.valid()) return std::nullopt;
    out.carriers.push_back(u);
  }
  return out;
}

class Splitter {
 public:
  Splitter(const Plan& plan, const Group& group, Expr index, int64_t length, Involved which)
      : plan_(plan), group_(group), index_(index), length_(length), which_(std::move(which)), out_{plan.it, {}} {}

  Plan run() {
    sym::Pool& s = *out_.it.syms;
    n_ = plan_.it.extents.at(index_);
    // At least one, which gives an empty index its identity.
    const Expr parts = s.max(s.constant(1), s.ceildiv(n_, s.constant(length_)));
    uneven_ = s.mul(parts, length_) != n_;
    part_ = s.fresh("part", {0, std::max<int64_t>(s.bounds(parts).hi - 1, 0)});
    inside_ = s.fresh(std::string(s.symbol_name(index_)), {0, length_ - 1});
    out_.it.extents[part_] = parts;
    out_.it.extents[inside_] = s.constant(length_);
    absolute_ = s.add(s.mul(part_, length_), inside_);
    for (uint32_t i = 0; i < out_.it.values.size(); ++i) names_.insert(out_.it.values[ItValue(i)].name);
    for (size_t u = 0; u < plan_.units.size(); ++u) {
      const bool reduces = is_in(which_.reducers, u), carries = is_in(which_.carriers, u);
      if (!reduces) add(plan_.units[u]);
      if (carries) add(carrier(u));
      if (reduces) {
        Unit part = of_parts(u);
        Unit merged = merge(u, part);
        add(std::move(part));
        add(std::move(merged));
      }
    }
    drop_unused();
    out_.part = part_;
    return std::move(out_);
  }

 private:
  static bool is_in(const std::vector<size_t>& list, size_t u) {
    return std::find(list.begin(), list.end(), u) != list.end();
  }

  ItValue declare(ItValue like, std::vector<Expr> shape) {
    const itgraph::Value v = out_.it.value(like);
    std::string name = v.name + "_parts";
    for (int i = 1; !names_.insert(name).second; ++i) name = fmt::format("{}_parts_{}", v.name, i);
    itgraph::Value value{name, compute_type(v.dtype), Role::inner, std::move(shape), -1, {}};
    return out_.it.values.add(std::move(value));
  }

  std::vector<Expr> shape_of(const std::vector<Expr>& axes) const {
    std::vector<Expr> out;
    for (Expr a : axes) out.push_back(out_.it.extents.at(a));
    return out;
  }

  tile::Node end_of_index() const {
    if (const auto n = out_.it.syms->as_constant(n_)) return {DType::i64, tile::Literal{static_cast<double>(*n)}};
    return {DType::i64, tile::IndexValue{n_}};
  }

  // The compute over (part, inside) in the place of the index. Loads past the end of the last part are guarded.
  Compute over_parts(size_t u) {
    sym::Pool& s = *out_.it.syms;
    Compute c = renamed(plan_, group_, u);
    NodeId inside;
    if (uneven_) {
      std::vector<tile::Node> nodes = {{DType::i64, tile::IndexValue{absolute_}},
                                       end_of_index(),
                                       {DType::boolean, tile::Apply{Fn::lt, {NodeId(0), NodeId(1)}}}};
      const auto shift = static_cast<uint32_t>(nodes.size());
      auto moved = [&](NodeId& id) {
        if (id.valid()) id = NodeId(id.index + shift);
      };
      for (tile::Node& n : c.nodes) {
        if (auto* l = std::get_if<tile::Load>(&n.what)) {
          moved(l->guard);
          for (tile::Index& i : l->at) moved(i.dynamic);
        }
        if (auto* a = std::get_if<tile::Apply>(&n.what))
          for (NodeId& o : a->operands) moved(o);
        if (auto* x = std::get_if<tile::Cast>(&n.what)) moved(x->operand);
        nodes.push_back(std::move(n));
      }
      for (Target& t : c.results) moved(t.node);
      c.nodes = std::move(nodes);
      inside = NodeId(2);
    }
    inside_node_ = inside;
    for (uint32_t i = 0; i < c.nodes.size(); ++i) {
      if (auto* v = std::get_if<tile::IndexValue>(&c.nodes[i].what))
        v->value = s.substitute(v->value, {{index_, absolute_}});
      auto* l = std::get_if<tile::Load>(&c.nodes[i].what);
      if (!l) continue;
      if (auto it = split_.find(l->buffer); it != split_.end()) {
        l->buffer = it->second;
        std::vector<tile::Index> at;
        for (const tile::Index& x : l->at) {
          if (x.affine == index_) {
            at.push_back({part_, {}});
            at.push_back({inside_, {}});
          } else {
            at.push_back(x);
          }
        }
        l->at = std::move(at);
        continue;
      }
      bool mentions = false;
      for (tile::Index& x : l->at) {
        mentions = mentions || s.mentions(x.affine, index_);
        x.affine = s.substitute(x.affine, {{index_, absolute_}});
      }
      if (!uneven_ || !mentions) continue;
      if (!l->guard.valid()) {
        l->guard = inside;
        continue;
      }
      // Both guards: the conjunction has to come before the load. Such loads are rare; the whole list is shifted.
      both_guards(c, i, inside);
    }
    return c;
  }

  static void both_guards(Compute& c, uint32_t at, NodeId inside) {
    auto& load = std::get<tile::Load>(c.nodes[at].what);
    tile::Node both{DType::boolean, tile::Apply{Fn::logical_and, {load.guard, inside}}};
    c.nodes.insert(c.nodes.begin() + at, std::move(both));
    auto moved = [&](NodeId& id) {
      if (id.valid() && id.index >= at) id = NodeId(id.index + 1);
    };
    for (uint32_t i = at + 1; i < c.nodes.size(); ++i) {
      if (auto* l = std::get_if<tile::Load>(&c.nodes[i].what)) {
        if (i == at + 1)
          l->guard = NodeId(at);
        else
          moved(l->guard);
        for (tile::Index& x : l->at) moved(x.dynamic);
      }
      if (auto* a = std::get_if<tile::Apply>(&c.nodes[i].what))
        for (NodeId& o : a->operands) moved(o);
      if (auto* x = std::get_if<tile::Cast>(&c.nodes[i].what)) moved(x->operand);
    }
    for (Target& t : c.results) moved(t.node);
  }

  Unit carrier(size_t u) {
    Unit unit = plan_.units[u];
    Compute c = over_parts(u);
    unit.results.clear();
    for (Target& t : c.results) {
      std::vector<Expr> axes;
      for (Expr a : t.axes) {
        if (a == index_) {
          axes.push_back(part_);
          axes.push_back(inside_);
        } else {
          axes.push_back(a);
        }
      }
      const ItValue v = declare(t.value, shape_of(axes));
      split_[t.value] = v;
      t = {v, std::move(axes), t.node};
      unit.results.push_back(v);
    }
    unit.visible = false;
    unit.name = out_.it.value(unit.results[0]).name;
    unit.what = std::move(c);
    return unit;
  }

  // Does every load read nothing past the end of the last part? Loads of carriers hold what was made of nothing there.
  bool all_guarded(const Compute& c) const {
    return std::all_of(c.nodes.begin(), c.nodes.end(), [](const tile::Node& n) {
      const auto* l = std::get_if<tile::Load>(&n.what);
      return !l || l->guard.valid();
    });
  }

  Unit of_parts(size_t u) {
    Unit unit = plan_.units[u];
    Compute c = over_parts(u);
    std::replace(c.reduced.begin(), c.reduced.end(), index_, inside_);
    if (uneven_) {
      // What is beyond the end of the index is the identity.
      auto masked = [&](Target& t, double identity) {
        const DType d = compute_type(c.nodes[t.node.index].dtype);
        c.nodes.push_back({d, tile::Literal{identity}});
        const NodeId nothing(static_cast<uint32_t>(c.nodes.size() - 1));
        c.nodes.push_back({d, tile::Apply{Fn::where, {inside_node_, t.node, nothing}}});
        t.node = NodeId(static_cast<uint32_t>(c.nodes.size() - 1));
      };
      constexpr double kInf = std::numeric_limits<double>::infinity();
      if (c.how == Compute::How::scaled || c.fn == Fn::max) masked(c.results[0], -kInf);
      if (c.how == Compute::How::reduce && c.fn == Fn::min) masked(c.results[0], kInf);
      // Guarded loads make the terms of a product 0 themselves, when both factors are guarded.
      if (c.how == Compute::How::reduce && c.fn == Fn::add && !(product_of(c, c.results[0].node) && all_guarded(c)))
        masked(c.results[0], 0);
    }
    const std::vector<Expr> rows = c.results[0].axes;
    unit.results.clear();
    for (Target& t : c.results) {
      // Beside the rows; what else a sum carries stays together behind the part.
      std::vector<Expr> axes;
      size_t last_row = 0;
      for (size_t i = 0; i < t.axes.size(); ++i)
        if (contains(rows, t.axes[i])) last_row = i + 1;
      if (c.how == Compute::How::reduce && !t.axes.empty()) last_row = t.axes.size() - 1;
      axes.assign(t.axes.begin(), t.axes.end());
      axes.insert(axes.begin() + static_cast<std::ptrdiff_t>(last_row), part_);
      const ItValue v = declare(t.value, shape_of(axes));
      merged_axes_[v] = t.axes;
      of_[v] = t.value;
      t = {v, std::move(axes), t.node};
      unit.results.push_back(v);
    }
    unit.visible = false;
    unit.name = out_.it.value(unit.results[0]).name;
    unit.what = std::move(c);
    return unit;
  }

  Unit merge(size_t u, const Unit& part) {
    const Unit& original = plan_.units[u];
    const Compute& p = part.compute();
    Compute c{p.how, p.fn, {part_}, {}, {}};
    double work = 0;
    for (const Target& t : p.results) {
      tile::Load load{t.value, {}, {}};
      for (Expr a : t.axes) load.at.push_back({a, {}});
      const DType d = compute_type(out_.it.value(t.value).dtype);
      c.nodes.push_back({d, std::move(load)});
      c.results.push_back(
          {of_.at(t.value), merged_axes_.at(t.value), NodeId(static_cast<uint32_t>(c.nodes.size() - 1))});
      double points = 1;
      for (Expr a : t.axes) points *= static_cast<double>(out_.it.syms->bounds(out_.it.extents.at(a)).hi);
      work += points;
    }
    Unit unit = original;
    unit.what = std::move(c);
    unit.heavy = false;
    unit.work = work;
    unit.apart = true;
    return unit;
  }

  void add(Unit unit) {
    std::set<size_t> operands;
    auto reads = [&](ItValue v) {
      while (out_.it.value(v).alias_of.valid()) v = out_.it.value(v).alias_of;
      if (auto it = unit_of_.find(v); it != unit_of_.end()) operands.insert(it->second);
    };
    if (unit.is_library()) {
      reads(std::get<itgraph::Library>(unit.what).source);
    } else {
      for (const tile::Node& n : unit.compute().nodes)
        if (const auto* l = std::get_if<tile::Load>(&n.what)) reads(l->buffer);
    }
    unit.operands.assign(operands.begin(), operands.end());
    for (ItValue r : unit.results) unit_of_[r] = out_.units.size();
    out_.units.push_back(std::move(unit));
  }

  void drop_unused() {
    std::vector<bool> used(out_.units.size());
    for (size_t i = out_.units.size(); i-- > 0;) {
      used[i] = used[i] || out_.units[i].visible;
      if (used[i])
        for (size_t o : out_.units[i].operands) used[o] = true;
    }
    std::vector<size_t> to(out_.units.size());
    std::vector<Unit> kept;
    for (size_t i = 0; i < out_.units.size(); ++i) {
      if (!used[i]) continue;
      to[i] = kept.size();
      for (size_t& o : out_.units[i].operands) o = to[o];
      kept.push_back(std::move(out_.units[i]));
    }
    out_.units = std::move(kept);
  }

  const Plan& plan_;
  const Group& group_;
  const Expr index_;
  const int64_t length_;
  const Involved which_;
  Plan out_;
  Expr n_;  // its extent
  bool uneven_ = false;
  Expr part_, inside_, absolute_;
  NodeId inside_node_;
  std::set<std::string> names_;
  std::map<ItValue, ItValue> split_;  // values that carry the index -> over parts
  std::map<ItValue, ItValue> of_;     // results of parts -> what they are parts of
  std::map<ItValue, std::vector<Expr>> merged_axes_;
  std::map<ItValue, size_t> unit_of_;
};

}  // namespace

std::vector<Expr> splittable(const Plan& plan, const Group& group) {
  std::vector<Expr> seen, out;
  for (size_t i = group.units.size(); i-- > 0;) {
    const size_t u = group.units[i];
    if (plan.units[u].is_library()) continue;
    for (Expr s : reduced_of(plan, group, u)) {
      if (contains(seen, s)) continue;
      seen.push_back(s);
      if (involved(plan, group, s)) out.push_back(s);
    }
  }
  return out;
}

std::optional<Plan> split(const Plan& plan, const Group& group, Expr index, int64_t length) {
  CHECK(length >= 1, "parts of {}", length);
  auto which = involved(plan, group, index);
  if (!which) return std::nullopt;
  const int64_t whole = std::max<int64_t>(1, most_of(plan, index));
  return Splitter(plan, group, index, std::min(length, whole), std::move(*which)).run();
}

}  // namespace cleave::schedule
