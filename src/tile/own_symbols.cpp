#include "base/match.hpp"
#include "sym/transfer.hpp"
#include "tile/tile.hpp"

namespace cleave::tile {

namespace {

struct Mover {
  sym::Transfer move;

  void all(std::vector<Expr>& list) {
    for (Expr& e : list) e = move(e);
  }
  void load(Load& l) {
    for (Index& i : l.at) i.affine = move(i.affine);
  }
  void nest(Nest& n) {
    for (Axis& a : n.axes) a = {move(a.symbol), move(a.extent)};
    for (Node& node : n.nodes)
      match(
          node.what, [&](Load& l) { load(l); }, [](Literal&) {}, [&](IndexValue& v) { v.value = move(v.value); },
          [](Apply&) {}, [](Cast&) {});
    for (Write& w : n.stores) all(w.at);
  }
  void matmul(Matmul& m) {
    for (TileRef* t : {&m.c, &m.a, &m.b}) all(t->at);
    m.m = move(m.m), m.n = move(m.n), m.k = move(m.k);
    all(m.scale_at);
  }
  void statements(std::vector<Statement>& body) {
    for (Statement& s : body)
      match(
          s.what,
          [&](For& f) {
            f.symbol = move(f.symbol), f.lo = move(f.lo), f.hi = move(f.hi);
            statements(f.body);
          },
          [&](Nest& n) { nest(n); }, [&](Matmul& m) { matmul(m); },
          [&](Let& l) {
            l.symbol = move(l.symbol), l.lo = move(l.lo), l.hi = move(l.hi);
            all(l.at);
            statements(l.body);
          });
  }
};

}  // namespace

Program with_own_symbols(const Program& program) {
  Program out = program;
  out.syms = std::make_shared<sym::Pool>();
  Mover m{sym::Transfer(*program.syms, *out.syms)};
  m.all(out.dims);
  for (uint32_t i = 0; i < out.buffers.size(); ++i) m.all(out.buffers[BufferId(i)].shape);
  for (Kernel& k : out.kernels) m.statements(k.body);
  return out;
}

}  // namespace cleave::tile
