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

Expr Program::size(BufferId id) const {
  const Buffer& b = buffer(id);
  const size_t rank = b.shape.size();
  Expr n = syms->constant(1);
  for (size_t i = 0; i < rank; ++i) {
    const int64_t unit = b.panel > 0 && i + 1 == rank ? b.panel : b.pairs && i + 2 == rank ? 2 : 1;
    n = syms->mul(n, syms->mul(syms->ceildiv(b.shape[i], syms->constant(unit)), unit));
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
