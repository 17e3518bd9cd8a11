// Code of one nest, by its plan (nest_plan.hpp): loops around vectors, each node once at its level, accumulators
// carried by the loops that they do not depend on.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/match.hpp"
#include "lower/nest_plan.hpp"

namespace cleave::lower {

namespace {

using namespace tile;
using vec::Elem;
using vec::Type;

double identity(Fn fn, DType d) {
  const double inf = std::numeric_limits<double>::infinity();
  switch (fn) {
    case Fn::mul:
    case Fn::logical_and: return 1;
    case Fn::max: return is_real(d) ? -inf : static_cast<double>(least_integer(d));
    case Fn::min: return is_real(d) ? inf : static_cast<double>(greatest_integer(d));
    default: return 0;
  }
}

// Functions on bool, which are logic.
Fn on_bool(Fn fn) {
  switch (fn) {
    case Fn::add:
    case Fn::max: return Fn::logical_or;
    case Fn::mul:
    case Fn::min: return Fn::logical_and;
    default: return fn;
  }
}

class NestEmitter {
 public:
  NestEmitter(Kernel& kernel, const Nest& nest) : k_(kernel), b_(kernel.b), n_(nest) {}

  void run() {
    std::vector<Axis> axes;
    for (size_t i = 0; i < n_.axes.size();) {
      // Axes that are one axis to all that is touched have one loop: its counter is the last one's index, the others
      // are 0.
      size_t last = i;
      Expr extent = k_.in(n_.axes[i].extent);
      for (; last + 1 < n_.axes.size() && one_axis(n_.axes[last], n_.axes[last + 1]); ++last)
        extent = k_.pool.mul(extent, k_.in(n_.axes[last + 1].extent));
      const Expr t = k_.counter(extent);
      for (; i <= last; ++i) k_.renamed[n_.axes[i].symbol] = i < last ? k_.pool.constant(0) : t;
      axes.push_back({t, extent});
    }
    plan_ = plan_nest(k_, n_, axes);
    for (size_t s = 0; s < n_.stores.size(); ++s)
      if (plan_.stores[s].initialise) fill(n_.stores[s]);
    main_nest();
    for (const Axis& a : n_.axes) k_.renamed.erase(a.symbol);
    for (const Axis& a : axes) k_.values.erase(a.symbol);
  }

 private:
  // What one vector iteration is: `vectors` vectors from index `first` on; lanes beyond `count` do not exist.
  struct Lanes {
    int vectors = 1;
    Value first;
    Value count;  // not given: all exist; only with one vector
    Value mask;
  };
  // The address of vector u: p[u], or p[0] + u * step bytes.
  struct Pointer {
    std::vector<Value> p;
    int64_t step = 0;
  };

  // Whether an index of the outer axis moves every address as many of the inner axis do, as often as that has elements.
  bool one_axis(const Axis& outer, const Axis& inner) const {
    sym::Pool& syms = k_.pool;
    const auto mentioned = [&](Expr e) { return syms.mentions(e, outer.symbol) || syms.mentions(e, inner.symbol); };
    const auto count = syms.as_constant(inner.extent);
    if (!count || *count < 1 || !syms.as_constant(outer.extent)) return false;
    if (std::any_of(n_.axes.begin(), n_.axes.end(), [&](const Axis& a) { return mentioned(a.extent); })) return false;
    const auto fits = [&](BufferId id, std::span<const Expr> at) {
      const Layout& l = k_.layout(id);
      Expr step_out = syms.constant(0), step_in = step_out;
      for (size_t d = 0; d < at.size(); ++d) {
        if (!mentioned(at[d])) continue;
        const auto by_outer = syms.stride(at[d], outer.symbol), by_inner = syms.stride(at[d], inner.symbol);
        if (!by_outer || !by_inner || (l.panel > 0 && d + 1 == at.size())) return false;
        step_out = syms.add(step_out, syms.mul(l.strides[d], *by_outer));
        step_in = syms.add(step_in, syms.mul(l.strides[d], *by_inner));
      }
      return step_out == syms.mul(step_in, *count);
    };
    for (const Node& x : n_.nodes) {
      if (const auto* v = std::get_if<IndexValue>(&x.what); v && mentioned(v->value)) return false;
      const auto* l = std::get_if<Load>(&x.what);
      if (!l || k_.buffer(l->buffer).place == Place::scalar) continue;
      std::vector<Expr> at;
      for (const Index& index : l->at) at.push_back(index.affine);
      if (!fits(l->buffer, at)) return false;
    }
    return std::all_of(n_.stores.begin(), n_.stores.end(), [&](const Write& w) { return fits(w.buffer, w.at); });
  }

  const Access& access_of_store(size_t s) const { return plan_.accesses[static_cast<size_t>(plan_.stores[s].access)]; }
  int depth() const { return static_cast<int>(plan_.axes.size()); }
  bool lanes() const { return plan_.vector_level >= 0; }

  // Everything but what must happen even if the box is empty.
  void main_nest() {
    Value inside = b_.boolean(true);
    for (const Axis& a : plan_.axes) {
      bool free = k_.pool.bounds(a.extent).lo < 1;
      for (const Axis& other : plan_.axes) free = free && !k_.pool.mentions(a.extent, other.symbol);
      if (free) inside = b_.apply(Fn::logical_and, {inside, b_.gt(k_.emit(a.extent), b_.i64(0))});
    }
    auto whole = [&] {
      values_.assign(n_.nodes.size(), {});
      splats_.assign(n_.nodes.size(), {});
      accumulators_.assign(n_.stores.size(), {});
      pointers_.assign(plan_.axes.size() + 1, std::vector<Pointer>(plan_.accesses.size()));
      for (size_t a = 0; a < plan_.accesses.size(); ++a) {
        const Access& x = plan_.accesses[a];
        const Value base = k_.base(x.buffer);
        pointers_[0][a].p = {x.along == Along::general ? base : advance(base, x, x.at_level[0])};
      }
      level(0);
    };
    b_.if_else(
        inside,
        [&] {
          whole();
          return std::vector<Value>{};
        },
        [&] {
          for (size_t s = 0; s < n_.stores.size(); ++s)
            if (plan_.stores[s].from_identity) fill(n_.stores[s]);
          return std::vector<Value>{};
        });
  }

  // The identity in all elements that a fresh accumulation reaches.
  void fill(const Write& w) {
    Nest init;
    for (const Axis& a : n_.axes)
      if (std::any_of(w.at.begin(), w.at.end(), [&](Expr e) { return k_.program.syms->mentions(e, a.symbol); }))
        init.axes.push_back(a);
    const DType d = compute_type(k_.buffer(w.buffer).dtype);
    init.nodes.push_back({d, Literal{identity(*w.accumulate, d)}});
    init.stores.push_back({w.buffer, w.at, NodeId(0), std::nullopt, false});
    const auto renamed = k_.renamed;
    NestEmitter(k_, init).run();
    k_.renamed = renamed;
  }

  // ---- loops
  void level(int l) {
    evaluate(l - 1);
    if (l == depth()) return point();
    std::vector<size_t> opened;
    for (size_t s = 0; s < n_.stores.size(); ++s)
      if (n_.stores[s].accumulate && plan_.stores[s].start == l) open(s), opened.push_back(s);
    const Axis& a = plan_.axes[static_cast<size_t>(l)];
    if (l == plan_.vector_level) {
      vector_loop(l, a);
    } else {
      loop(b_.i64(0), k_.emit(a.extent), b_.i64(1), [&](Value i) {
        k_.values[a.symbol] = i;
        enter(l);
        level(l + 1);
      });
    }
    for (const size_t s : opened) close(s);
  }

  // A loop that carries the open accumulators.
  void loop(Value lo, Value hi, Value step, const std::function<void(Value)>& body) {
    auto gather = [&] {
      std::vector<Value> out;
      for (const auto& a : accumulators_) out.insert(out.end(), a.begin(), a.end());
      return out;
    };
    auto spread = [&](std::span<const Value> from) {
      size_t at = 0;
      for (auto& a : accumulators_)
        for (Value& v : a) v = from[at++];
    };
    const std::vector<Value> inits = gather();
    spread(b_.for_loop(lo, hi, step, inits, [&](Value i, std::span<const Value> carried) {
      spread(carried);
      body(i);
      return gather();
    }));
  }

  void vector_loop(int l, const Axis& a) {
    const int64_t width = plan_.lanes, wide = width * plan_.unroll;
    auto iterate = [&](int vectors, Value first, Value count) {
      lanes_ = {vectors, first, count, {}};
      k_.values[a.symbol] = first;
      if (count.valid()) lanes_.mask = b_.lt(b_.iota(plan_.lanes), count);
      for (size_t i = 0; i < n_.nodes.size(); ++i)
        if (plan_.nodes[i].splat && plan_.nodes[i].level < l) splats_[i] = b_.splat(values_[i][0], plan_.lanes);
      enter(l);
      level(l + 1);
    };
    const auto all = [&] { vectors(a, width, wide, iterate); };
    if (const Value aligned = streams(l, a); aligned.valid()) {
      b_.if_else(
          aligned,
          [&] {
            streamed_ = true;
            all();
            streamed_ = false;
            return std::vector<Value>{};
          },
          [&] {
            all();
            return std::vector<Value>{};
          });
    } else {
      all();
    }
    lanes_ = {};
  }

  // Whether the rows that this loop stores begin at lines, where all of it goes past the caches; not valid: nothing
  // does.
  Value streams(int l, const Axis& a) {
    constexpr int64_t kLine = 64;
    streamed_stores_.assign(n_.stores.size(), false);
    if (l + 1 < depth()) return {};
    for (const auto& sums : accumulators_)
      if (!sums.empty()) return {};
    Value odd;
    for (size_t s = 0; s < n_.stores.size(); ++s) {
      const Access& x = access_of_store(s);
      const int64_t bytes = plan_.lanes * byte_size(x.dtype);
      if (n_.stores[s].accumulate || x.along != Along::contiguous || !k_.past_caches.count(k_.layout(x.buffer).root) ||
          bytes < 16 || bytes > kLine || k_.pool.typical(a.extent) * byte_size(x.dtype) < 4 * kLine)
        continue;
      streamed_stores_[s] = true;
      const Value at = b_.address(pointers_[static_cast<size_t>(l)][static_cast<size_t>(plan_.stores[s].access)].p[0]);
      odd = odd.valid() ? b_.bit_or(odd, at) : at;
    }
    if (!odd.valid()) return {};
    k_.streams = true;
    return b_.eq(b_.bit_and(odd, b_.i64(kLine - 1)), b_.i64(0));
  }

  template <class F>
  void vectors(const Axis& a, int64_t width, int64_t wide, F iterate) {
    if (const auto extent = k_.pool.as_constant(a.extent)) {
      const int64_t full = *extent / width * width, main = *extent / wide * wide;
      loop(b_.i64(0), b_.i64(main), b_.i64(wide), [&](Value i) { iterate(plan_.unroll, i, {}); });
      if (full > main) iterate(static_cast<int>((full - main) / width), b_.i64(main), {});
      if (*extent > full) iterate(1, b_.i64(full), b_.i64(*extent - full));
    } else {
      const Value extent_value = k_.emit(a.extent);
      Value main = b_.i64(0);
      if (k_.pool.bounds(a.extent).hi >= wide) {
        main = b_.mul(b_.div(extent_value, b_.i64(wide)), b_.i64(wide));
        main = b_.max(main, b_.i64(0));
        loop(b_.i64(0), main, b_.i64(wide), [&](Value i) { iterate(plan_.unroll, i, {}); });
      }
      loop(main, extent_value, b_.i64(width), [&](Value i) { iterate(1, i, b_.sub(extent_value, i)); });
    }
  }

  // ---- addresses
  Value advance(Value p, const Access& a, Expr elements) {
    return k_.pool.is(elements, 0) ? p : b_.ptr_add(p, b_.mul(k_.emit(elements), b_.i64(byte_size(a.dtype))));
  }
  // The index of loop l has got its value: moves the pointers.
  void enter(int l) {
    const auto to = static_cast<size_t>(l) + 1;
    const Expr v = lanes() ? plan_.axes[static_cast<size_t>(plan_.vector_level)].symbol : Expr{};
    for (size_t i = 0; i < plan_.accesses.size(); ++i) {
      const Access& a = plan_.accesses[i];
      const Pointer& from = pointers_[to - 1][i];
      Pointer& p = pointers_[to][i];
      p = from;
      if (a.along == Along::general) continue;
      if (l == plan_.vector_level) p.step = a.linear ? a.stride * plan_.lanes * byte_size(a.dtype) : 0;
      if (k_.pool.is(a.at_level[to], 0)) continue;
      if (!a.linear && l >= plan_.vector_level) {
        p.p.clear();
        for (int u = 0; u < lanes_.vectors; ++u) {
          k_.values[v] = b_.add(lanes_.first, b_.i64(static_cast<int64_t>(u) * plan_.lanes));
          p.p.push_back(advance(from.p.size() > 1 ? from.p[static_cast<size_t>(u)] : from.p[0], a, a.at_level[to]));
        }
        k_.values[v] = lanes_.first;
      } else {
        for (Value& x : p.p) x = advance(x, a, a.at_level[to]);
      }
    }
  }
  Value address(int access, int u) {
    const Pointer& p = pointers_[static_cast<size_t>(here_ + 1)][static_cast<size_t>(access)];
    if (p.p.size() > 1) return p.p[static_cast<size_t>(u)];
    return b_.ptr_add(p.p[0], u * p.step);
  }

  // ---- nodes
  void evaluate(int l) {
    here_ = l;
    for (uint32_t i = 0; i < n_.nodes.size(); ++i) {
      const NodePlan& plan = plan_.nodes[i];
      if (plan.level != l) continue;
      values_[i].clear();
      for (int u = 0; u < (plan.lanes ? lanes_.vectors : 1); ++u) values_[i].push_back(node(i, u));
      if (plan.splat && l >= plan_.vector_level) splats_[i] = b_.splat(values_[i][0], plan_.lanes);
    }
  }

  // The operand of a node that has lanes, or not.
  Value operand(NodeId id, int u, bool wide) {
    const NodePlan& plan = plan_.nodes[id.index];
    if (plan.lanes) return values_[id.index][static_cast<size_t>(u)];
    return wide ? splats_[id.index] : values_[id.index][0];
  }
  Type type(DType d, bool wide) const { return vec::type_of(compute_type(d), wide ? plan_.lanes : 1); }

  // An index expression in the lanes of vector u.
  Value lane_index(Expr e, int u) {
    const Expr v = plan_.axes[static_cast<size_t>(plan_.vector_level)].symbol;
    const Value first = b_.add(lanes_.first, b_.i64(static_cast<int64_t>(u) * plan_.lanes));
    const auto stride = k_.pool.stride(e, v);
    const auto constant = stride ? k_.pool.as_constant(*stride) : std::nullopt;
    Value out;
    if (constant) {
      k_.values[v] = first;
      out = b_.splat(k_.emit(e), plan_.lanes);
      if (*constant != 0) out = b_.add(out, b_.mul(b_.iota(plan_.lanes), b_.i64(*constant)));
    } else {
      k_.values[v] = b_.add(b_.splat(first, plan_.lanes), b_.iota(plan_.lanes));
      out = k_.emit(e);
    }
    k_.values[v] = lanes_.first;
    return out;
  }

  Value node(uint32_t i, int u) {
    const Node& x = n_.nodes[i];
    const bool wide = plan_.nodes[i].lanes;
    return match(
        x.what, [&](const Load& l) { return load(i, l, u); },
        [&](const Literal& l) {
          const Type t = type(x.dtype, false);
          if (!is_real(x.dtype)) return b_.integer(t, real_to_integer(x.dtype, l.value));
          return b_.real(t, round_to(x.dtype, l.value));
        },
        [&](const IndexValue& v) { return wide ? lane_index(k_.in(v.value), u) : k_.emit(k_.in(v.value)); },
        [&](const Apply& a) {
          std::vector<Value> operands;
          for (const NodeId o : a.operands) operands.push_back(operand(o, u, wide));
          return b_.apply(b_.type(operands.back()).elem == Elem::boolean ? on_bool(a.fn) : a.fn, operands);
        },
        [&](const Cast& c) {
          const Value v = b_.cast(operand(c.operand, u, wide), vec::elem_of(x.dtype));
          return x.dtype == DType::f16 ? to_f16(v) : x.dtype == DType::bf16 ? to_bf16(v) : v;
        });
  }

  // f32 rounded to the numbers of bf16 and f16, by integer arithmetic to nearest even.
  Value round_bits(Value v, int dropped) {
    const Type t = b_.type(v).with(Elem::i32);
    const Value bits = b_.bitcast(v, Elem::i32);
    const Value odd = b_.bit_and(b_.lshr(bits, b_.integer(t, dropped)), b_.integer(t, 1));
    const Value up = b_.add(b_.add(bits, b_.integer(t, (1 << (dropped - 1)) - 1)), odd);
    return b_.bitcast(b_.bit_and(up, b_.integer(t, -(int64_t{1} << dropped))), Elem::f32);
  }
  Value to_bf16(Value v) { return b_.select(b_.eq(v, v), round_bits(v, 16), v); }
  Value to_f16(Value v) {
    const Type t = b_.type(v);
    const Value size = b_.apply(Fn::abs, {v});
    // Below 2^-14 the spacing is 2^-24, the spacing of f32 at 3/4.
    const Value small = b_.sub(b_.add(size, b_.real(t, 0.75)), b_.real(t, 0.75));
    Value r = b_.select(b_.lt(size, b_.real(t, 0x1p-14)), small, round_bits(size, 13));
    r = b_.select(b_.gt(r, b_.real(t, 65504)), b_.real(t, std::numeric_limits<double>::infinity()), r);
    const Value sign =
        b_.bit_and(b_.bitcast(v, Elem::i32), b_.integer(t.with(Elem::i32), std::numeric_limits<int32_t>::min()));
    r = b_.bitcast(b_.bit_or(b_.bitcast(r, Elem::i32), sign), Elem::f32);
    return b_.select(b_.eq(v, v), r, v);
  }

  Value scalar_argument(BufferId id) {
    const Buffer& s = k_.buffer(id);
    const Value v = b_.scalar_argument(s.argument);
    if (s.dtype == DType::f16) return to_f16(b_.cast(v, Elem::f32));
    if (s.dtype == DType::bf16) return to_bf16(b_.cast(v, Elem::f32));
    if (is_real(s.dtype)) return b_.cast(v, vec::elem_of(s.dtype));
    return b_.cast(b_.cast(v, Elem::i64), vec::elem_of(s.dtype));
  }

  // ---- loads
  Value load(uint32_t i, const Load& l, int u) {
    const int id = plan_.nodes[i].access;
    const bool wide = plan_.nodes[i].lanes;
    if (id < 0) {
      const Value v = scalar_argument(l.buffer);
      return l.guard.valid() ? b_.select(operand(l.guard, u, false), v, b_.zero(b_.type(v))) : v;
    }
    const Access& a = plan_.accesses[static_cast<size_t>(id)];
    if (!wide) {
      Value p = address(id, u);
      for (const auto& [node, stride] : a.dynamic)
        p = b_.element(p, b_.mul(operand(node, u, false), k_.emit(stride)), a.dtype);
      if (a.panel_node.valid())
        p = b_.element(p, in_panels(b_.add(k_.emit(a.panel_index), operand(a.panel_node, u, false)), a), a.dtype);
      if (!l.guard.valid()) return b_.load(p, a.dtype);
      return b_.gather(p, b_.i64(0), a.dtype, operand(l.guard, u, false));
    }
    bool dynamic = a.panel_node.valid();
    for (const auto& [node, stride] : a.dynamic) dynamic = dynamic || plan_.nodes[node.index].lanes;
    const bool guard_lanes = l.guard.valid() && plan_.nodes[l.guard.index].lanes;
    const Value one_guard = l.guard.valid() && !guard_lanes ? operand(l.guard, u, false) : Value{};
    Value mask = lanes_.mask;
    if (guard_lanes) {
      const Value g = operand(l.guard, u, true);
      mask = mask.valid() ? b_.apply(Fn::logical_and, {mask, g}) : g;
    }
    auto read = [&]() -> Value {
      Value p = address(id, u);
      for (const auto& [node, stride] : a.dynamic)
        if (!plan_.nodes[node.index].lanes)
          p = b_.element(p, b_.mul(operand(node, u, false), k_.emit(stride)), a.dtype);
      if (!dynamic && a.along == Along::contiguous) {
        constexpr int64_t kLine = 64;
        if (a.ahead > 0 && u * plan_.lanes * byte_size(a.dtype) % kLine == 0) b_.prefetch(b_.ptr_add(p, a.ahead), 2);
        return contiguous(p, a, mask, guard_lanes);
      }
      if (!dynamic && a.along == Along::uniform) return shared(p, a, mask);
      Value indices =
          a.along == Along::general ? lane_index(a.offset, u) : b_.mul(b_.iota(plan_.lanes), b_.i64(a.stride));
      if (a.along != Along::general && a.stride == 0)
        indices = b_.zero({Elem::i64, static_cast<uint16_t>(plan_.lanes)});
      if (a.along == Along::contiguous) indices = b_.iota(plan_.lanes);
      for (const auto& [node, stride] : a.dynamic)
        if (plan_.nodes[node.index].lanes) indices = b_.add(indices, b_.mul(operand(node, u, true), k_.emit(stride)));
      if (a.panel_node.valid())
        indices = b_.add(indices, in_panels(b_.add(lane_index(a.panel_index, u), operand(a.panel_node, u, true)), a));
      return b_.gather(p, indices, a.dtype, mask);
    };
    if (!one_guard.valid()) return read();
    return b_.if_else(
        one_guard, [&] { return std::vector<Value>{read()}; },
        [&] { return std::vector<Value>{b_.zero(type(a.dtype, true))}; })[0];
  }
  Value in_panels(Value index, const Access& a) {
    const Layout& l = k_.layout(a.buffer);
    return b_.add(b_.mul(b_.floordiv(index, b_.i64(l.panel)), k_.emit(l.panel_stride)), b_.mod(index, b_.i64(l.panel)));
  }
  // Neighbouring elements; with a guard in the lanes, in one piece when it holds in all of them.
  Value contiguous(Value p, const Access& a, Value mask, bool guarded) {
    if (!guarded) return b_.load(p, a.dtype, plan_.lanes, lanes_.count);
    return b_.if_else(
        b_.reduce(Fn::logical_and, mask), [&] { return std::vector<Value>{b_.load(p, a.dtype, plan_.lanes)}; },
        [&] { return std::vector<Value>{b_.gather(p, b_.iota(plan_.lanes), a.dtype, mask)}; })[0];
  }
  // One element for all lanes whose guard holds.
  Value shared(Value p, const Access& a, Value mask) {
    const Value x = b_.gather(p, b_.i64(0), a.dtype, b_.reduce(Fn::logical_or, mask));
    return b_.select(mask, b_.splat(x, plan_.lanes), b_.zero(type(a.dtype, true)));
  }

  // ---- stores
  Value combine(const Write& w, Value value, Value sum) {
    const Fn fn = b_.type(sum).elem == Elem::boolean ? on_bool(*w.accumulate) : *w.accumulate;
    return b_.apply(fn, {value, sum});
  }
  Value identity_of(const Write& w, bool wide) {
    const DType d = compute_type(k_.buffer(w.buffer).dtype);
    const Type t = type(d, wide);
    const double v = identity(*w.accumulate, d);
    return is_real(d) ? b_.real(t, v) : b_.integer(t, real_to_integer(d, v));
  }
  Value read_back(size_t s, int u) {
    const Access& a = access_of_store(s);
    const Value p = address(plan_.stores[s].access, u);
    if (a.along == Along::uniform) return b_.load(p, a.dtype);
    if (a.along == Along::contiguous) return b_.load(p, a.dtype, plan_.lanes, lanes_.count);
    return b_.gather(p, b_.mul(b_.iota(plan_.lanes), b_.i64(a.stride)), a.dtype, lanes_.mask);
  }
  void write(size_t s, int u, Value v) {
    const Access& a = access_of_store(s);
    const Value p = address(plan_.stores[s].access, u);
    if (b_.lanes(v) == 1) return b_.store(v, p, a.dtype);
    if (streamed_ && streamed_stores_[s] && !lanes_.count.valid()) return b_.stream(v, p, a.dtype);
    if (a.along == Along::contiguous) return b_.store(v, p, a.dtype, lanes_.count);
    b_.scatter(v, p,
               a.along == Along::general ? lane_index(a.offset, u) : b_.mul(b_.iota(plan_.lanes), b_.i64(a.stride)),
               a.dtype, lanes_.mask);
  }

  void open(size_t s) {
    const StorePlan& plan = plan_.stores[s];
    const bool across = lanes() && plan.start > plan_.vector_level;
    auto& sums = accumulators_[s];
    sums.clear();
    for (int u = 0; u < (plan.partial ? plan_.unroll : across ? lanes_.vectors : 1); ++u)
      sums.push_back(plan.partial || plan.from_identity ? identity_of(n_.stores[s], plan.partial || across)
                                                        : read_back(s, u));
    if (passes_nan_over(s)) sums.push_back(b_.zero(b_.type(sums[0])));
  }
  void close(size_t s) {
    const StorePlan& plan = plan_.stores[s];
    const Write& w = n_.stores[s];
    std::vector<Value> sums = std::move(accumulators_[s]);
    accumulators_[s].clear();
    here_ = plan.start - 1;
    if (plan.partial) {
      const bool ordered = passes_nan_over(s);
      const Value unordered = ordered ? sums.back() : Value{};
      if (ordered) sums.pop_back();
      auto join = [&](Value x, Value y) { return ordered ? extreme(w, x, y) : combine(w, x, y); };
      while (sums.size() > 1) {
        std::vector<Value> half;
        for (size_t i = 0; i + 1 < sums.size(); i += 2) half.push_back(join(sums[i], sums[i + 1]));
        if (sums.size() % 2) half.push_back(sums.back());
        sums = half;
      }
      Value r = sums[0];
      if (ordered) {
        while (b_.lanes(r) > 1)
          r = extreme(w, b_.slice(r, 0, b_.lanes(r) / 2), b_.slice(r, b_.lanes(r) / 2, b_.lanes(r) / 2));
        const Value any = b_.reduce(Fn::logical_or, b_.apply(Fn::isnan, {unordered}));
        r = b_.select(any, b_.real(b_.type(r), std::nan("")), r);
      } else {
        r = b_.reduce(b_.type(r).elem == Elem::boolean ? on_bool(*w.accumulate) : *w.accumulate, r);
      }
      if (!plan.from_identity) r = combine(w, r, read_back(s, 0));
      return write(s, 0, r);
    }
    for (size_t u = 0; u < sums.size(); ++u) write(s, static_cast<int>(u), sums[u]);
  }

  void point() {
    here_ = depth() - 1;
    for (size_t s = 0; s < n_.stores.size(); ++s) {
      const Write& w = n_.stores[s];
      const StorePlan& plan = plan_.stores[s];
      if (plan.start < depth() && w.accumulate) {
        accumulate(s);
        continue;
      }
      for (int u = 0; u < lanes_.vectors; ++u) {
        Value v = operand(w.value, u, lanes());
        if (!w.accumulate) {
          write(s, u, v);
        } else {
          write(s, u, combine(w, v, read_back(s, u)));
        }
      }
    }
  }

  // The largest (smallest) of many numbers: one instruction a vector that passes NaN over, and beside it a vector that
  // becomes NaN where two values do not compare.
  bool passes_nan_over(size_t s) const {
    const Fn fn = *n_.stores[s].accumulate;
    return plan_.stores[s].partial && (fn == Fn::max || fn == Fn::min) && is_real(k_.buffer(n_.stores[s].buffer).dtype);
  }
  Value extreme(const Write& w, Value x, Value sum) {
    return *w.accumulate == Fn::max ? b_.max_ordered(x, sum) : b_.min_ordered(x, sum);
  }

  void accumulate(size_t s) {
    const Write& w = n_.stores[s];
    auto& sums = accumulators_[s];
    std::vector<Value> values;
    for (int u = 0; u < lanes_.vectors; ++u) {
      values.push_back(operand(w.value, u, lanes()));
      if (plan_.stores[s].partial && lanes_.mask.valid())
        values.back() = b_.select(lanes_.mask, values.back(), identity_of(w, true));
    }
    const bool ordered = passes_nan_over(s);
    for (size_t u = 0; u < values.size(); ++u)
      sums[u] = ordered ? extreme(w, values[u], sums[u]) : combine(w, values[u], sums[u]);
    for (size_t u = 0; ordered && u < values.size(); u += 2) {
      const Value x = values[u], y = u + 1 < values.size() ? values[u + 1] : x;
      const Value comparable = b_.apply(Fn::logical_or, {b_.lt(x, y), b_.ge(x, y)});  // one instruction
      sums.back() = b_.select(comparable, sums.back(), b_.real(b_.type(x), std::nan("")));
    }
  }

  Kernel& k_;
  Builder& b_;
  const Nest& n_;
  NestPlan plan_;
  Lanes lanes_ = {};
  std::vector<bool> streamed_stores_;
  bool streamed_ = false;  // they go past the caches here
  int here_ = -1;          // pointers_[here_ + 1] are those of the innermost loop entered
  std::vector<std::vector<Pointer>> pointers_;
  std::vector<std::vector<Value>> values_;  // of each node: one a vector, or one
  std::vector<Value> splats_;
  std::vector<std::vector<Value>> accumulators_;  // of each store
};

}  // namespace

void lower_nest(Kernel& k, const tile::Nest& nest) {
  if (!lower_transpose(k, nest)) NestEmitter(k, nest).run();
}

}  // namespace cleave::lower
