#include "lower/kernel.hpp"

#include <algorithm>
#include <bit>

namespace cleave::lower {

using namespace tile;

Expr Kernel::counter(Expr trips) {
  const sym::Interval r = pool.bounds(trips);
  return pool.symbol(fmt::format("_{}", symbols++),
                     {0, r.hi >= sym::kHuge ? sym::kHuge : std::max<int64_t>(0, r.hi - 1)});
}

bool Kernel::is_fixed(Expr e) const {
  const std::vector<Expr> symbols = pool.symbols_of(e);
  return std::all_of(symbols.begin(), symbols.end(), [&](Expr s) { return dims.count(s) > 0; });
}

Value Kernel::emit(Expr e) {
  if (pool.kind(e) != sym::Kind::constant && pool.kind(e) != sym::Kind::symbol && !dims.empty() && is_fixed(e))
    return b.at_start(static_cast<int>(e.index), [&] { return emit_here(e); });
  return emit_here(e);
}

Value Kernel::emit_here(Expr e) {
  switch (pool.kind(e)) {
    case sym::Kind::constant: return b.i64(*pool.as_constant(e));
    case sym::Kind::symbol: {
      if (const auto d = dims.find(e); d != dims.end()) return b.extent(d->second);
      const auto it = values.find(e);
      CHECK(it != values.end(), "`{}` is not bound", pool.symbol_name(e));
      return it->second;
    }
    case sym::Kind::polynomial: {
      Value sum = b.i64(0);
      for (const sym::Pool::Term& t : pool.terms(e)) {
        Value product = b.i64(t.coefficient);
        for (const Expr atom : t.atoms) {
          const Value x = emit(atom);
          product = b.known(product) == 1 && b.lanes(product) == 1 ? x : b.mul(x, product);
        }
        sum = b.known(sum) == 0 && b.lanes(sum) == 1 ? product : b.add(sum, product);
      }
      return sum;
    }
    default: break;
  }
  const auto [x, y] = pool.operands(e);
  const Value a = emit(x), c = emit(y);
  const auto divisor = pool.as_constant(y);
  const bool natural = divisor && *divisor > 0 && pool.bounds(x).lo >= 0;
  const bool power = natural && std::has_single_bit(static_cast<uint64_t>(*divisor));
  switch (pool.kind(e)) {
    case sym::Kind::floordiv:
      if (power) return b.lshr(a, b.i64(std::countr_zero(static_cast<uint64_t>(*divisor))));
      return natural ? b.div(a, c) : b.floordiv(a, c);
    case sym::Kind::mod:
      if (power) return b.bit_and(a, b.i64(*divisor - 1));
      if (natural) return b.sub(a, b.mul(b.div(a, c), c));
      return b.mod(a, c);
    case sym::Kind::min: return b.min(a, c);
    case sym::Kind::max: return b.max(a, c);
    default: break;
  }
  CHECK(false, "an index expression of kind {}", static_cast<int>(pool.kind(e)));
}

Value Kernel::base(BufferId id) {
  const BufferId root = layout(id).root;
  const Buffer& r = buffer(root);
  const auto argument = r.argument;
  switch (r.place) {
    case Place::input: return b.tensor_data(argument);
    case Place::constant: return b.tensor_data(static_cast<int>(plan.inputs.size()) + argument);
    case Place::output: return b.tensor_data(static_cast<int>(plan.inputs.size() + plan.constants.size()) + argument);
    case Place::workspace: return b.ptr_add(b.workspace(), emit(layout(root).offset));
    case Place::packed:
      return b.ptr_add(
          b.tensor_data(static_cast<int>(plan.inputs.size() + plan.constants.size() + plan.outputs.size())),
          emit(layout(root).offset));
    case Place::scratch: return b.ptr_add(b.scratch(), emit(scratch.offsets[root.index]));
    case Place::scalar: break;
  }
  CHECK(false, "`{}` has no memory", r.name);
}

Expr Kernel::offset(BufferId id, std::span<const Expr> at) {
  const Layout& l = layout(id);
  CHECK(at.size() == l.shape.size(), "`{}` has {} axes, {} indices", buffer(id).name, l.shape.size(), at.size());
  Expr sum = pool.constant(0);
  for (size_t i = 0; i < at.size(); ++i) {
    if (l.panel > 0 && i + 1 == at.size()) {
      const Expr width = pool.constant(l.panel);
      sum = pool.add(sum, pool.mul(pool.floordiv(at[i], width), l.panel_stride));
      sum = pool.add(sum, pool.mul(pool.mod(at[i], width), l.pairs ? 2 : 1));
    } else if (l.pairs && i + 2 == at.size()) {
      const Expr two = pool.constant(2);
      sum = pool.add(sum, pool.mul(pool.floordiv(at[i], two), 2 * l.panel));
      sum = pool.add(sum, pool.mod(at[i], two));
    } else {
      sum = pool.add(sum, pool.mul(at[i], l.strides[i]));
    }
  }
  return sum;
}

}  // namespace cleave::lower
