#include "tile/pairs.hpp"

#include <algorithm>

namespace cleave::tile {

std::optional<PairCopy> pair_copy(const Program& p, const Nest& n) {
  if (n.sequential || n.axes.size() != 2 || n.nodes.size() != 1 || n.stores.size() != 1) return std::nullopt;
  const Write& s = n.stores[0];
  const auto* load = std::get_if<Load>(&n.nodes[0].what);
  if (s.accumulate || !load || load->guard.valid()) return std::nullopt;
  const Buffer &to = p.buffer(s.buffer), &from = p.buffer(load->buffer);
  const size_t rank = to.shape.size();
  if (!to.pairs || s.at.size() != rank || from.pairs || from.dtype != to.dtype || from.place == Place::scalar)
    return std::nullopt;
  if (std::any_of(load->at.begin(), load->at.end(), [](const Index& i) { return i.dynamic.valid(); }))
    return std::nullopt;
  sym::Pool& syms = *p.syms;
  const bool first_is_depth = s.at[rank - 2] == n.axes[0].symbol;
  const PairCopy out{load, n.axes[first_is_depth ? 0 : 1], n.axes[first_is_depth ? 1 : 0]};
  if (s.at[rank - 2] != out.depth.symbol || out.depth.extent != to.shape[rank - 2]) return std::nullopt;
  const auto step = syms.stride(s.at.back(), out.columns.symbol);
  if (!step || !syms.is(*step, 1) || syms.mentions(s.at.back(), out.depth.symbol)) return std::nullopt;
  for (size_t a = 0; a + 2 < rank; ++a)
    for (const Axis& axis : n.axes)
      if (syms.mentions(s.at[a], axis.symbol)) return std::nullopt;
  for (const Axis& axis : n.axes)
    if (syms.mentions(axis.extent, n.axes[0].symbol) || syms.mentions(axis.extent, n.axes[1].symbol))
      return std::nullopt;
  const Expr first = syms.substitute(s.at.back(), {{out.columns.symbol, syms.constant(0)}});
  if (syms.divides(to.panel, first) != sym::Proof::yes || syms.bounds(out.columns.extent).hi > to.panel)
    return std::nullopt;
  return out;
}

}  // namespace cleave::tile
