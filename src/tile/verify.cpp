// The laws of tile programs.
#include <set>

#include "base/codes.hpp"
#include "base/match.hpp"
#include "tile/expression.hpp"
#include "tile/pairs.hpp"

namespace cleave::tile {

namespace {

struct Verifier {
  const Program& p;
  Diagnostics out = {};
  std::set<Expr> scope = {};       // symbols of the enclosing loops
  std::set<BufferId> filled = {};  // packed buffers written so far
  std::string where = {};
  int unreached = 0;  // enclosing loops that never run: what they contain touches nothing

  void bad(std::string why) { out.push_back(diagnose(Code::invalid_tile, where, why)); }

  bool known(BufferId id) {
    if (id.valid() && id.index < p.buffers.size()) return true;
    bad("names a buffer that does not exist");
    return false;
  }
  void index(Expr e, std::string_view what) {
    for (Expr s : p.syms->symbols_of(e))
      if (!scope.count(s)) bad(fmt::format("{} uses `{}` outside its loop", what, p.syms->symbol_name(s)));
  }
  // `span`: how far the access reaches beyond `at`.
  void in_range(const Buffer& b, size_t axis, Expr at, Expr span) {
    if (unreached > 0) return;
    sym::Pool& s = *p.syms;
    const Expr last = s.add(at, s.sub(span, s.constant(1)));
    if (s.bounds(at).hi < 0 || s.less(last, b.shape[axis]) == sym::Proof::no)
      bad(fmt::format("`{}`: index {} of axis {} leaves 0..{}", b.name, s.print(at), axis, s.print(b.shape[axis])));
  }
  BufferId root(BufferId id) const { return p.buffer(id).alias_of.valid() ? root(p.buffer(id).alias_of) : id; }
  void written(BufferId id, bool once) {
    const Buffer& b = p.buffer(id);
    if (b.place == Place::input || b.place == Place::constant || b.place == Place::scalar)
      bad(fmt::format("`{}` is read only", b.name));
    if ((b.place == Place::packed) != once && b.place != Place::scratch)
      bad(fmt::format("`{}` is written by {} kernel", b.name, once ? "a `once`" : "an ordinary"));
    filled.insert(root(id));
  }
  void read(BufferId id, bool once) {
    const Buffer& b = p.buffer(id);
    if (b.place == Place::packed && !filled.count(root(id)))
      bad(fmt::format("`{}` is read before it is packed", b.name));
    if (once && b.place != Place::constant && b.place != Place::packed && b.place != Place::scratch)
      bad(fmt::format("a `once` kernel reads `{}`", b.name));
  }

  void nest(const Nest& n, bool once) {
    std::vector<Expr> bound;
    const int outside = unreached;
    for (const Axis& a : n.axes) {
      if (p.syms->bounds(a.extent).hi <= 0) ++unreached;
      index(a.extent, "an extent");
      if (p.syms->kind(a.symbol) != sym::Kind::symbol || !scope.insert(a.symbol).second) bad("binds an index twice");
      bound.push_back(a.symbol);
    }
    check_expression(
        n.nodes,
        [&](BufferId id) -> std::optional<TensorType> {
          if (!known(id)) return std::nullopt;
          return TensorType{p.buffer(id).name, p.buffer(id).dtype, p.buffer(id).shape.size()};
        },
        [&](std::string why) { bad(std::move(why)); });
    for (const Node& node : n.nodes) {
      if (const auto* v = std::get_if<IndexValue>(&node.what)) index(v->value, "an index");
      const auto* l = std::get_if<Load>(&node.what);
      if (!l || !l->buffer.valid() || l->buffer.index >= p.buffers.size()) continue;
      const Buffer& b = p.buffer(l->buffer);
      read(l->buffer, once);
      if (b.pairs) bad(fmt::format("`{}`, whose rows lie in pairs, is read by a nest", b.name));
      for (size_t a = 0; a < l->at.size() && a < b.shape.size(); ++a) {
        index(l->at[a].affine, "an index");
        if (!l->at[a].dynamic.valid() && !l->guard.valid()) in_range(b, a, l->at[a].affine, p.syms->constant(1));
      }
    }
    for (const Write& s : n.stores) {
      if (!known(s.buffer)) continue;
      const Buffer& b = p.buffer(s.buffer);
      written(s.buffer, once);
      if (!s.value.valid() || s.value.index >= n.nodes.size()) {
        bad("a store has no value");
        continue;
      }
      if (compute_type(n.nodes[s.value.index].dtype) != compute_type(b.dtype))
        bad(fmt::format("`{}` is stored as the wrong dtype", b.name));
      if (s.at.size() != b.shape.size()) {
        bad(fmt::format("`{}` has {} axes, {} indices", b.name, b.shape.size(), s.at.size()));
        continue;
      }
      for (size_t a = 0; a < s.at.size(); ++a) {
        index(s.at[a], "an index");
        in_range(b, a, s.at[a], p.syms->constant(1));
      }
      if (b.pairs && !pair_copy(p, n))
        bad(fmt::format("`{}`, whose rows lie in pairs, is written by something else than a copy of whole columns",
                        b.name));
      const bool logic = s.accumulate == Fn::logical_and || s.accumulate == Fn::logical_or;
      if (logic && b.dtype != DType::boolean) bad(fmt::format("`{}` is accumulated by logic but is no bool", b.name));
      if (s.fresh && !s.accumulate) bad("`fresh` belongs to accumulations");
    }
    for (Expr e : bound) scope.erase(e);
    unreached = outside;
  }

  void tile(const TileRef& t, Expr rows, Expr columns) {
    if (!known(t.buffer)) return;
    const Buffer& b = p.buffer(t.buffer);
    const int rank = static_cast<int>(b.shape.size());
    if (static_cast<int>(t.at.size()) != rank || t.rows < 0 || t.columns < 0 || t.rows >= rank || t.columns >= rank ||
        t.rows == t.columns)
      return bad(fmt::format("the tile of `{}` has the wrong axes", b.name));
    for (int a = 0; a < rank; ++a) {
      index(t.at[static_cast<size_t>(a)], "an index");
      in_range(b, static_cast<size_t>(a), t.at[static_cast<size_t>(a)],
               a == t.rows      ? rows
               : a == t.columns ? columns
                                : p.syms->constant(1));
    }
  }

  // What the matrix unit multiplies: A as B, both along the depth, into f32.
  void pairs(const Matmul& m, const Buffer& a, const Buffer& c) {
    if (a.dtype != DType::bf16 || c.dtype != DType::f32)
      bad("a product with pairs of rows is one of bf16, summed in f32");
    if (m.a.columns != static_cast<int>(a.shape.size()) - 1) bad("the depth of A is not contiguous");
    const bool even = p.syms->divides(2, m.k) == sym::Proof::yes;
    const bool room = a.place == Place::scratch && p.syms->divides(2, a.shape.back()) == sym::Proof::yes;
    if (!even && (!room || !p.syms->is(m.a.at.back(), 0)))
      bad("a product with pairs of rows has an odd depth, and a row of A no room for one more");
  }

  void matmul(const Matmul& m, bool once) {
    for (Expr e : {m.m, m.n, m.k}) index(e, "a size");
    tile(m.c, m.m, m.n);
    tile(m.a, m.m, m.k);
    tile(m.b, m.k, m.n);
    for (const TileRef* t : {&m.c, &m.a, &m.b}) {
      if (!t->buffer.valid() || t->buffer.index >= p.buffers.size()) return;
      if (!is_real(p.buffer(t->buffer).dtype)) return bad("a product of integers is a nest");
    }
    const Buffer &a = p.buffer(m.a.buffer), &b = p.buffer(m.b.buffer), &c = p.buffer(m.c.buffer);
    const int last = static_cast<int>(b.shape.size()) - 1;
    // Either the columns of B are contiguous, or its depth is, and that of A as well.
    const bool dot = b.panel == 0 && m.b.rows == last;
    if (dot ? m.a.columns != static_cast<int>(a.shape.size()) - 1
            : m.b.columns != last || (b.panel > 0 && m.b.rows != last - 1))
      bad("the columns of B are not contiguous");
    if (m.c.columns != static_cast<int>(c.shape.size()) - 1 || c.panel > 0) bad("the columns of C are not contiguous");
    if (b.panel > 0 && p.syms->divides(b.panel, m.b.at.back()) != sym::Proof::yes)
      bad("a tile of panels starts inside one");
    if (a.panel > 0) bad("A is not dense");
    if (b.pairs) pairs(m, a, c);
    read(m.a.buffer, once);
    read(m.b.buffer, once);
    written(m.c.buffer, once);
    if (m.init == Matmul::Init::scaled && known(m.scale)) {
      for (Expr e : m.scale_at) index(e, "an index");
      const Buffer& s = p.buffer(m.scale);
      if (m.scale_at.size() != s.shape.size() || s.shape.empty()) bad("the scale has the wrong axes");
      const bool wide = a.dtype == DType::f64 || b.dtype == DType::f64;
      if (s.dtype != (wide ? DType::f64 : DType::f32)) bad("the scale has the wrong dtype");
    }
  }

  void let(const Let& l, bool once) {
    index(l.lo, "a bound");
    index(l.hi, "a bound");
    if (known(l.buffer)) {
      const Buffer& b = p.buffer(l.buffer);
      if (!is_integer(b.dtype) || b.place == Place::scalar)
        bad(fmt::format("`{}` holds no integers of a tensor", b.name));
      read(l.buffer, once);
      if (l.at.size() != b.shape.size()) {
        bad(fmt::format("`{}` has {} axes, {} indices", b.name, b.shape.size(), l.at.size()));
      } else {
        for (size_t a = 0; a < l.at.size(); ++a) {
          index(l.at[a], "an index");
          in_range(b, a, l.at[a], p.syms->constant(1));
        }
      }
    }
    if (p.syms->kind(l.symbol) != sym::Kind::symbol || !scope.insert(l.symbol).second)
      return bad("binds an index twice");
    statements(l.body, false, once);
    scope.erase(l.symbol);
  }

  void statements(const std::vector<Statement>& body, bool outermost, bool once) {
    for (const Statement& s : body)
      match(
          s.what,
          [&](const For& f) {
            if (f.parallel && (!outermost || &s != &body[0])) bad("a parallel loop is not outermost or not the first");
            if (f.parallel && once && body.size() > 1) bad("a `once` kernel joins its tasks");
            if (f.step < 1) bad("a step is below 1");
            index(f.lo, "a bound");
            index(f.hi, "a bound");
            if (!scope.insert(f.symbol).second) bad("binds an index twice");
            const bool never = p.syms->at_most(f.hi, f.lo) == sym::Proof::yes;
            unreached += never;
            statements(f.body, outermost && f.parallel, once);
            unreached -= never;
            scope.erase(f.symbol);
          },
          [&](const Nest& n) { nest(n, once); }, [&](const Matmul& m) { matmul(m, once); },
          [&](const Let& l) { let(l, once); });
  }

  Diagnostics run() {
    std::set<std::string> names;
    where = p.name;
    for (const Expr d : p.dims)
      if (p.syms->kind(d) != sym::Kind::symbol || p.syms->symbol_range(d).lo < 0 || !scope.insert(d).second)
        bad("has a dim that is no symbol of its own from 0 on");
    for (uint32_t i = 0; i < p.buffers.size(); ++i) {
      const Buffer& b = p.buffers[BufferId(i)];
      where = b.name;
      if (!names.insert(b.name).second) bad("is the name of two buffers");
      if (b.alias_of.valid() && (b.alias_of.index >= i || p.buffer(b.alias_of).panel > 0 || b.panel > 0 ||
                                 p.buffer(b.alias_of).place != b.place || p.buffer(b.alias_of).dtype != b.dtype))
        bad("is no alias of an earlier dense buffer of its place and dtype");
      if (b.pairs && (b.dtype != DType::bf16 || (b.panel != 16 && b.panel != 32)))
        bad("has rows in pairs, but no bf16 in panels of 16 or 32 columns");
      for (Expr e : b.shape) {
        index(e, "its shape");
        if (p.syms->bounds(e).lo < 0) bad("has an extent that may be negative");
      }
    }
    for (const Kernel& k : p.kernels) {
      where = k.name;
      statements(k.body, true, k.once);
    }
    return out;
  }
};

}  // namespace

Diagnostics verify(const Program& program) { return Verifier{program}.run(); }

}  // namespace cleave::tile
