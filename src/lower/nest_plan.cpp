#include "lower/nest_plan.hpp"

#include <algorithm>
#include <cmath>

#include "base/match.hpp"

namespace cleave::lower {

namespace {

using namespace tile;

// Rough cost of a function on a vector, in instructions.
double cost_of(Fn fn, DType d) {
  if (!is_real(d)) return fn == Fn::div || fn == Fn::floordiv || fn == Fn::mod ? 40 : fn == Fn::pow ? 200 : 1;
  switch (info(fn).rule) {
    case FnRule::compare:
    case FnRule::logic:
    case FnRule::select:
    case FnRule::real_test: return 1;
    case FnRule::arith:
      return fn == Fn::div || fn == Fn::floordiv ? 8
             : fn == Fn::pow || fn == Fn::mod    ? 200
             : fn == Fn::max || fn == Fn::min    ? 3
                                                 : 1;
    case FnRule::real: break;
  }
  switch (fn) {
    case Fn::sqrt:
    case Fn::floor:
    case Fn::ceil:
    case Fn::round: return 4;
    case Fn::rsqrt:
    case Fn::reciprocal:
    case Fn::quot0: return 10;
    case Fn::leaky_relu:
    case Fn::hardsigmoid:
    case Fn::hardswish: return 6;
    case Fn::exp:
    case Fn::exp2: return 14;
    default: return 30;
  }
}

struct Planner {
  Kernel& k;
  const Nest& n;
  const std::vector<Axis>& axes;
  NestPlan out = {};
  std::vector<int> store_access = {};
  bool simple = false;  // lexicographic, one point after the other, accumulators in memory

  BufferId root(BufferId id) const { return k.layout(id).root; }

  void access(Access a, std::span<const Index> at) {
    std::vector<Expr> affine;
    const Layout& l = k.layout(a.buffer);
    a.dtype = k.buffer(a.buffer).dtype;
    for (size_t i = 0; i < at.size(); ++i) {
      affine.push_back(k.in(at[i].affine));
      if (!at[i].dynamic.valid()) continue;
      if (l.panel > 0 && i + 1 == at.size()) {
        a.panel_node = at[i].dynamic;
        a.panel_index = affine.back();
        affine.back() = k.pool.constant(0);
      } else {
        a.dynamic.emplace_back(at[i].dynamic, l.strides[i]);
      }
    }
    a.offset = k.offset(a.buffer, affine);
    out.accesses.push_back(std::move(a));
    last_index.push_back(affine.empty() ? k.pool.constant(0) : affine.back());
  }
  std::vector<Expr> last_index = {};  // of each access

  void accesses() {
    for (const Node& x : n.nodes) {
      out.nodes.emplace_back();
      const auto* l = std::get_if<Load>(&x.what);
      if (!l || k.buffer(l->buffer).place == Place::scalar) continue;
      out.nodes.back().access = static_cast<int>(out.accesses.size());
      access({l->buffer}, l->at);
    }
    for (const Write& w : n.stores) {
      out.stores.emplace_back();
      out.stores.back().access = static_cast<int>(out.accesses.size());
      std::vector<Index> at;
      for (const Expr e : w.at) at.push_back({e, {}});
      access({w.buffer}, at);
    }
  }

  // Stores and loads that meet in memory in a way that registers would hide.
  bool conflicts() const {
    for (size_t i = 0; i < n.stores.size(); ++i) {
      if (!n.stores[i].accumulate) continue;
      for (size_t j = 0; j < n.stores.size(); ++j)
        if (i != j && root(n.stores[i].buffer) == root(n.stores[j].buffer)) return true;
      for (const Node& x : n.nodes)
        if (const auto* l = std::get_if<Load>(&x.what); l && root(l->buffer) == root(n.stores[i].buffer)) return true;
    }
    return false;
  }

  void classify(Access& a, Expr last, Expr v, int lanes) {
    a.linear = false;
    a.stride = 0;
    a.along = Along::general;
    if (const auto s = k.pool.stride(a.offset, v)) {
      if (const auto c = k.pool.as_constant(*s)) {
        a.linear = true;
        a.stride = *c;
        a.along = *c == 0 ? Along::uniform : *c == 1 ? Along::contiguous : Along::strided;
        return;
      }
    }
    // Vectors inside the panels of a panel buffer: each begins at a multiple of its length.
    const Layout& l = k.layout(a.buffer);
    if (l.panel == 0 || l.pairs || l.panel % lanes != 0 || a.panel_node.valid()) return;
    const auto s = k.pool.stride(last, v);
    if (!s || !k.pool.is(*s, 1)) return;
    const Expr first = k.pool.substitute(last, {{v, k.pool.constant(0)}});
    if (k.pool.divides(lanes, first) != sym::Proof::yes) return;
    const Expr within = k.pool.add(k.pool.mul(k.pool.floordiv(last, k.pool.constant(l.panel)), l.panel_stride),
                                   k.pool.mod(last, k.pool.constant(l.panel)));
    if (k.pool.mentions(k.pool.sub(a.offset, within), v)) return;
    a.along = Along::contiguous;
  }

  bool mentions(const Access& a, Expr v) const {
    return k.pool.mentions(a.offset, v) || (a.panel_node.valid() && k.pool.mentions(a.panel_index, v));
  }

  // Which nodes differ along v.
  std::vector<bool> varying(Expr v) const {
    std::vector<bool> out_lanes(n.nodes.size());
    for (size_t i = 0; i < n.nodes.size(); ++i)
      out_lanes[i] = match(
          n.nodes[i].what,
          [&](const Load& l) {
            bool any = l.guard.valid() && out_lanes[l.guard.index];
            for (const Index& x : l.at) any = any || (x.dynamic.valid() && out_lanes[x.dynamic.index]);
            return any ||
                   (out.nodes[i].access >= 0 && mentions(out.accesses[static_cast<size_t>(out.nodes[i].access)], v));
          },
          [](const Literal&) { return false; }, [&](const IndexValue& x) { return k.pool.mentions(k.in(x.value), v); },
          [&](const Apply& a) {
            return std::any_of(a.operands.begin(), a.operands.end(), [&](NodeId o) { return out_lanes[o.index]; });
          },
          [&](const Cast& c) { return bool(out_lanes[c.operand.index]); });
    return out_lanes;
  }

  int lanes_for(const std::vector<bool>& lanes) const {
    bool f64 = false, four = false, i64 = false, two = false;
    auto see = [&](DType d) {
      const DType c = compute_type(d);
      f64 |= c == DType::f64;
      four |= c == DType::f32 || c == DType::i32 || c == DType::u32;
      two |= c == DType::i16 || c == DType::u16;
      i64 |= c == DType::i64;
    };
    for (size_t i = 0; i < n.nodes.size(); ++i)
      if (lanes[i]) see(n.nodes[i].dtype);
    for (const Write& w : n.stores) see(k.buffer(w.buffer).dtype);
    const int bytes = k.machine.vector_bytes;
    return f64 ? bytes / 8 : four ? bytes / 4 : i64 ? bytes / 8 : std::min(two ? bytes / 2 : bytes, 32);
  }

  struct Choice {
    int axis = -1;
    int lanes = 1;
    double cost = 0;         // per point
    double vector_cost = 0;  // instructions of one vector
    bool slow = false;       // gathers or scatters
  };

  // The cost with the lanes along axis `i`, or without lanes (-1); nullopt: not allowed.
  std::optional<Choice> judge(int i) {
    Choice c;
    c.axis = i;
    if (i < 0) {
      for (const Node& x : n.nodes)
        c.cost += std::holds_alternative<Apply>(x.what)  ? cost_of(std::get<Apply>(x.what).fn, x.dtype)
                  : std::holds_alternative<Load>(x.what) ? 1
                                                         : 0.2;
      c.cost += 2 * static_cast<double>(n.stores.size()) + 1;
      return c;
    }
    const Axis& axis = axes[static_cast<size_t>(i)];
    if (out.triangular && i + 1 != static_cast<int>(axes.size())) return std::nullopt;
    const int64_t extent = std::min<int64_t>(k.pool.bounds(axis.extent).hi, 1 << 20);
    if (extent < 2) return std::nullopt;
    const std::vector<bool> lanes = varying(axis.symbol);
    c.lanes = lanes_for(lanes);
    while (c.lanes > 1 && c.lanes / 2 >= extent) c.lanes /= 2;
    if (c.lanes < 2) return std::nullopt;
    for (size_t a = 0; a < out.accesses.size(); ++a) classify(out.accesses[a], last_index[a], axis.symbol, c.lanes);
    double vector = 0;
    for (size_t x = 0; x < n.nodes.size(); ++x) {
      if (!lanes[x]) {
        vector += 0.1;
        continue;
      }
      if (const auto* apply = std::get_if<Apply>(&n.nodes[x].what)) {
        vector += cost_of(apply->fn, n.nodes[apply->operands.back().index].dtype);
      } else if (out.nodes[x].access >= 0) {
        const Access& a = out.accesses[static_cast<size_t>(out.nodes[x].access)];
        bool gathered = a.along == Along::strided || a.along == Along::general || a.panel_node.valid();
        for (const auto& [node, stride] : a.dynamic) gathered = gathered || lanes[node.index];
        vector += gathered ? 2.0 * c.lanes : std::get<Load>(n.nodes[x].what).guard.valid() ? 3 : 1;
        c.slow |= gathered;
      } else {
        vector += 1;
      }
    }
    for (size_t s = 0; s < n.stores.size(); ++s) {
      const Access& a = out.accesses[static_cast<size_t>(out.stores[s].access)];
      const bool accumulates = n.stores[s].accumulate.has_value();
      if (a.along == Along::uniform && !accumulates) return std::nullopt;
      if (a.along == Along::general && accumulates) return std::nullopt;
      if (a.along == Along::uniform)
        vector += 1;
      else if (a.along == Along::contiguous)
        vector += accumulates ? 2 : 1;
      else
        vector += (accumulates ? 4.0 : 2.0) * c.lanes, c.slow = true;
    }
    const double vectors = std::ceil(static_cast<double>(extent) / c.lanes);
    c.vector_cost = vector;
    c.cost = (vector + 1) * vectors / static_cast<double>(extent);
    return c;
  }

  void order(int v) {
    std::vector<int> others, reductions;
    bool along = false;  // some accumulator lies along the vector axis
    const auto store_mentions = [&](Expr symbol) {
      return std::any_of(out.stores.begin(), out.stores.end(), [&](const StorePlan& s) {
        return mentions(out.accesses[static_cast<size_t>(s.access)], symbol);
      });
    };
    for (int i = 0; i < static_cast<int>(axes.size()); ++i) {
      if (i == v) continue;
      const bool reduction = !simple && !out.triangular && !store_mentions(axes[static_cast<size_t>(i)].symbol);
      (reduction ? reductions : others).push_back(i);
    }
    for (size_t s = 0; s < n.stores.size() && v >= 0; ++s)
      along = along || (n.stores[s].accumulate && mentions(out.accesses[static_cast<size_t>(out.stores[s].access)],
                                                           axes[static_cast<size_t>(v)].symbol));
    std::vector<int> all = others;
    if (v >= 0 && along) all.push_back(v);
    all.insert(all.end(), reductions.begin(), reductions.end());
    if (v >= 0 && !along) all.push_back(v);
    for (size_t l = 0; l < all.size(); ++l) {
      if (all[l] == v) out.vector_level = static_cast<int>(l);
      out.axes.push_back(axes[static_cast<size_t>(all[l])]);
    }
  }

  int level_of(Expr e) const {
    int level = -1;
    for (const Expr s : k.pool.symbols_of(e))
      for (size_t l = 0; l < out.axes.size(); ++l)
        if (out.axes[l].symbol == s) level = std::max(level, static_cast<int>(l));
    return level;
  }

  void split(Access& a) {
    a.at_level.assign(out.axes.size() + 1, k.pool.constant(0));
    for (const sym::Pool::Term& t : k.pool.terms(a.offset)) {
      Expr e = k.pool.constant(t.coefficient);
      for (const Expr atom : t.atoms) e = k.pool.mul(e, atom);
      Expr& sum = a.at_level[static_cast<size_t>(level_of(e) + 1)];
      sum = k.pool.add(sum, e);
    }
  }

  void levels() {
    // A load may not be moved before a loop that might not run at all and whose length is only known inside the nest.
    int barrier = -1;
    for (size_t l = 0; l < out.axes.size(); ++l)
      if (level_of(out.axes[l].extent) >= 0 && k.pool.bounds(out.axes[l].extent).lo < 1) barrier = static_cast<int>(l);
    const int last = static_cast<int>(out.axes.size()) - 1;
    for (size_t i = 0; i < n.nodes.size(); ++i) {
      NodePlan& plan = out.nodes[i];
      auto after = [&](NodeId o) {
        if (o.valid()) plan.level = std::max(plan.level, out.nodes[o.index].level);
      };
      match(
          n.nodes[i].what,
          [&](const Load& l) {
            after(l.guard);
            for (const Index& x : l.at) after(x.dynamic), plan.level = std::max(plan.level, level_of(k.in(x.affine)));
            plan.level = std::max(plan.level, barrier);
            if (simple)
              for (const Write& w : n.stores)
                if (root(w.buffer) == root(l.buffer)) plan.level = last;
          },
          [](const Literal&) {}, [&](const IndexValue& x) { plan.level = level_of(k.in(x.value)); },
          [&](const Apply& a) {
            for (const NodeId o : a.operands) after(o);
          },
          [&](const Cast& c) { after(c.operand); });
    }
  }

  void uses() {
    auto need = [&](NodeId o, bool lanes) {
      if (lanes && o.valid() && !out.nodes[o.index].lanes) out.nodes[o.index].splat = true;
    };
    for (size_t i = 0; i < n.nodes.size(); ++i) {
      const bool lanes = out.nodes[i].lanes;
      match(
          n.nodes[i].what,
          [&](const Load& l) {
            for (const Index& x : l.at) need(x.dynamic, lanes);
          },
          [](const Literal&) {}, [](const IndexValue&) {},
          [&](const Apply& a) {
            for (const NodeId o : a.operands) need(o, lanes);
          },
          [&](const Cast& c) { need(c.operand, lanes); });
    }
    for (const Write& w : n.stores) need(w.value, out.vector_level >= 0);
  }

  // No two points of the loops outside `start` reach the same element.
  bool injective(const Access& a, int start) const {
    std::vector<std::pair<int64_t, int64_t>> steps;  // stride, how far the index runs
    for (int l = 0; l < start; ++l) {
      const auto s = k.pool.stride(a.offset, out.axes[static_cast<size_t>(l)].symbol);
      const auto c = s ? k.pool.as_constant(*s) : std::nullopt;
      const int64_t reach = k.pool.bounds(out.axes[static_cast<size_t>(l)].extent).hi - 1;
      if (reach <= 0) continue;
      if (!c || *c == 0 || reach > (int64_t{1} << 31)) return false;
      steps.emplace_back(std::abs(*c), reach);
    }
    std::sort(steps.begin(), steps.end());
    __int128 covered = 0;
    for (const auto& [stride, reach] : steps) {
      if (stride <= covered) return false;
      covered += static_cast<__int128>(stride) * reach;
    }
    return true;
  }

  void stores() {
    const int depth = static_cast<int>(out.axes.size());
    for (size_t i = 0; i < n.stores.size(); ++i) {
      StorePlan& s = out.stores[i];
      const Write& w = n.stores[i];
      const Access& a = out.accesses[static_cast<size_t>(s.access)];
      s.start = depth;
      if (!w.accumulate) continue;
      while (!simple && s.start > 0 && !mentions(a, out.axes[static_cast<size_t>(s.start - 1)].symbol)) --s.start;
      s.partial = out.vector_level >= 0 && s.start <= out.vector_level;
      CHECK(out.vector_level < 0 || s.partial || a.along != Along::uniform,
            "an accumulator that lanes share inside their loop");
      if (!w.fresh) continue;
      s.from_identity = !simple && s.start < depth && injective(a, s.start);
      s.initialise = !s.from_identity;
    }
  }

  // How many bytes apart the steps of an accumulation inside of the vector loop read, if each reads another page: as
  // much as possible of each is read then, and what comes from memory is fetched some steps ahead. 0: they do not.
  int64_t page_step(const Access& a) const {
    constexpr int64_t kPage = 4096;
    if (static_cast<size_t>(out.vector_level) + 1 >= out.axes.size()) return 0;
    const auto s = k.pool.stride(a.offset, out.axes.back().symbol);
    const int64_t bytes = s ? k.pool.as_constant(*s).value_or(0) * byte_size(a.dtype) : 0;
    return bytes >= kPage ? bytes : 0;
  }
  bool steps_over_pages() const {
    return std::any_of(out.accesses.begin(), out.accesses.end(), [&](const Access& a) { return page_step(a) > 0; });
  }
  int64_t ahead(const Access& a) const {
    constexpr int64_t kSteps = 8;
    const bool far = k.pool.typical(k.layout(a.buffer).bytes) > k.machine.l2_bytes && a.along == Along::contiguous;
    return far && k.buffer(a.buffer).place != Place::scratch ? kSteps * page_step(a) : 0;
  }

  int unroll(const Choice& c) const {
    if (c.slow) return 1;
    const bool many = k.machine.vector_registers >= 32;
    int most = c.vector_cost <= (many ? 24 : 6) ? 4 : c.vector_cost <= (many ? 60 : 24) ? 2 : 1;
    if (most == 4 && c.vector_cost <= 6 && steps_over_pages()) most = many ? 16 : 8;
    const Expr extent = out.axes[static_cast<size_t>(out.vector_level)].extent;
    const int64_t vectors = k.pool.bounds(extent).hi / c.lanes;
    if (vectors < 1) return 1;
    if (vectors <= most) return static_cast<int>(vectors);
    if (k.pool.as_constant(extent))
      for (int u = most; 2 * u >= most && u > 1; --u)
        if (vectors % u == 0) return u;
    return most;
  }

  NestPlan run() {
    accesses();
    simple = n.sequential || conflicts();
    for (const Axis& a : axes)
      for (const Axis& other : axes) out.triangular |= k.pool.mentions(a.extent, other.symbol);
    Choice best = *judge(-1);
    for (int i = static_cast<int>(axes.size()); !simple && i-- > 0;)
      if (const auto c = judge(i); c && (best.axis < 0 ? c->cost < best.cost : c->cost < 0.95 * best.cost)) best = *c;
    order(best.axis);
    out.lanes = best.lanes;
    if (best.axis >= 0) {
      const Expr v = axes[static_cast<size_t>(best.axis)].symbol;
      const std::vector<bool> lanes = varying(v);
      for (size_t i = 0; i < lanes.size(); ++i) out.nodes[i].lanes = lanes[i];
      for (size_t a = 0; a < out.accesses.size(); ++a) classify(out.accesses[a], last_index[a], v, best.lanes);
      out.unroll = unroll(best);
      for (Access& a : out.accesses) a.ahead = ahead(a);
    } else {
      for (Access& a : out.accesses) a.along = Along::uniform, a.linear = true, a.stride = 0;
    }
    for (Access& a : out.accesses) split(a);
    levels();
    uses();
    stores();
    return std::move(out);
  }
};

}  // namespace

NestPlan plan_nest(Kernel& k, const Nest& nest, const std::vector<tile::Axis>& axes) {
  return Planner{k, nest, axes}.run();
}

}  // namespace cleave::lower
