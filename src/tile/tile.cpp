#include "tile/tile.hpp"

namespace cleave::tile {

const char* name(Place place) {
  switch (place) {
    case Place::input: return "input";
    case Place::output: return "output";
    case Place::constant: return "const";
    case Place::scalar: return "scalar";
    case Place::workspace: return "workspace";
    case Place::packed: return "packed";
    case Place::scratch: return "scratch";
  }
  return "";
}

std::vector<Expr> Program::strides(BufferId id) const {
  const Buffer& b = buffer(id);
  const size_t rank = b.shape.size();
  std::vector<Expr> out(rank, syms->constant(1));
  Expr step = syms->constant(1);
  size_t i = rank;
  if (b.panel > 0) {
    CHECK(rank >= 2, "a panel buffer has at least two axes");
    const Expr width = syms->constant(b.panel);
    out[rank - 2] = width;
    step = syms->mul(syms->mul(syms->ceildiv(b.shape[rank - 1], width), width), b.shape[rank - 2]);
    i = rank - 2;
  }
  while (i-- > 0) {
    out[i] = step;
    step = syms->mul(step, b.shape[i]);
  }
  return out;
}

Expr Program::offset(BufferId id, std::span<const Expr> at) const {
  const Buffer& b = buffer(id);
  CHECK(at.size() == b.shape.size(), "`{}` has {} axes, {} indices", b.name, b.shape.size(), at.size());
  const std::vector<Expr> s = strides(id);
  Expr sum = syms->constant(0);
  for (size_t i = 0; i < at.size(); ++i) {
    if (b.panel > 0 && i + 1 == at.size()) {
      const Expr width = syms->constant(b.panel);
      const Expr panel_size = syms->mul(width, b.shape[i - 1]);
      sum = syms->add(sum, syms->mul(syms->floordiv(at[i], width), panel_size));
      sum = syms->add(sum, syms->mod(at[i], width));
    } else {
      sum = syms->add(sum, syms->mul(at[i], s[i]));
    }
  }
  return sum;
}

Expr Program::size(BufferId id) const {
  const Buffer& b = buffer(id);
  Expr n = syms->constant(1);
  for (size_t i = 0; i < b.shape.size(); ++i) {
    Expr extent = b.shape[i];
    if (b.panel > 0 && i + 1 == b.shape.size())
      extent = syms->mul(syms->ceildiv(extent, syms->constant(b.panel)), b.panel);
    n = syms->mul(n, extent);
  }
  return n;
}

std::vector<BufferId> Program::buffers_in(Place place) const {
  std::vector<BufferId> out;
  for (uint32_t i = 0; i < buffers.size(); ++i)
    if (buffers[BufferId(i)].place == place) out.push_back(BufferId(i));
  return out;
}

}  // namespace cleave::tile
