// Text form of tile programs; the grammar is docs/tile.md.
#include <map>

#include "base/lexer.hpp"
#include "base/match.hpp"
#include "tile/tile.hpp"

namespace cleave::tile {

namespace {

const char* accumulate_mark(Fn fn) {
  switch (fn) {
    case Fn::add: return "+=";
    case Fn::mul: return "*=";
    case Fn::max: return "max=";
    case Fn::min: return "min=";
    case Fn::logical_and: return "&=";
    case Fn::logical_or: return "|=";
    default: CHECK(false, "`{}` does not accumulate", info(fn).name);
  }
}

struct Printer {
  const Program& p;
  std::string out = {};

  std::string show(Expr e) const { return p.syms->print(e); }
  std::string list(const std::vector<Expr>& es) const {
    std::string s;
    for (Expr e : es) s += (s.empty() ? "" : ", ") + show(e);
    return "[" + s + "]";
  }
  const std::string& name_of(BufferId id) const { return p.buffer(id).name; }
  void line(int depth, const std::string& text) { out += std::string(static_cast<size_t>(depth) * 2, ' ') + text + "\n"; }

  void buffer(BufferId id) {
    const Buffer& b = p.buffer(id);
    std::string text = fmt::format("{} {}: {}", name(b.place), b.name, name(b.dtype));
    if (!b.shape.empty()) text += list(b.shape);
    if (b.panel > 0) text += fmt::format(" panel {}", b.panel);
    if (b.argument >= 0) text += fmt::format(" argument {}", b.argument);
    if (b.alias_of.valid()) text += fmt::format(" alias {}", name_of(b.alias_of));
    line(1, text);
  }

  // A node used once is printed in place, others get a name.
  struct NestText {
    std::vector<int> uses;
    std::vector<std::string> names;
  };

  std::string node(const Nest& n, NestText& t, NodeId id) const {
    const std::string& known = t.names[id.index];
    return known.empty() ? expression(n, t, id) : known;
  }

  std::string expression(const Nest& n, NestText& t, NodeId id) const {
    const Node& x = n.nodes[id.index];
    return match(
        x.what,
        [&](const Load& l) {
          std::string s;
          for (const Index& i : l.at) {
            s += s.empty() ? "" : ", ";
            if (!i.dynamic.valid()) s += show(i.affine);
            else if (p.syms->is(i.affine, 0)) s += "@" + node(n, t, i.dynamic);
            else s += show(i.affine) + " @ " + node(n, t, i.dynamic);
          }
          s = name_of(l.buffer) + "[" + s + "]";
          if (l.guard.valid()) s += " if (" + node(n, t, l.guard) + ")";
          return s;
        },
        [&](const Literal& l) {
          return is_real(x.dtype) ? fmt::format("{}:{}", print_number(l.value), name(x.dtype))
                                  : fmt::format("{}:{}", static_cast<int64_t>(l.value), name(x.dtype));
        },
        [&](const IndexValue& v) { return fmt::format("index({})", show(v.value)); },
        [&](const Apply& a) {
          std::string s;
          for (NodeId o : a.operands) s += (s.empty() ? "" : ", ") + node(n, t, o);
          return fmt::format("{}({})", info(a.fn).name, s);
        },
        [&](const Cast& c) { return fmt::format("cast({}, {})", node(n, t, c.operand), name(x.dtype)); });
  }

  void nest(const Nest& n, int depth) {
    std::string axes;
    for (const Axis& a : n.axes) axes += fmt::format("{}{} < {}", axes.empty() ? "" : ", ", show(a.symbol), show(a.extent));
    line(depth, fmt::format("nest{} ({}) {{", n.sequential ? " sequential" : "", axes));
    NestText t{std::vector<int>(n.nodes.size()), std::vector<std::string>(n.nodes.size())};
    auto use = [&](NodeId id) {
      if (id.valid()) ++t.uses[id.index];
    };
    for (const Node& x : n.nodes)
      match(
          x.what,
          [&](const Load& l) {
            for (const Index& i : l.at) use(i.dynamic);
            use(l.guard);
          },
          [](const Literal&) {}, [](const IndexValue&) {},
          [&](const Apply& a) {
            for (NodeId o : a.operands) use(o);
          },
          [&](const Cast& c) { use(c.operand); });
    for (const Write& s : n.stores) use(s.value);
    int next = 0;
    for (uint32_t i = 0; i < n.nodes.size(); ++i) {
      if (t.uses[i] < 2 || std::holds_alternative<Literal>(n.nodes[i].what)) continue;
      const std::string text = expression(n, t, NodeId(i));
      t.names[i] = fmt::format("%{}", next++);
      line(depth + 1, fmt::format("{} = {}", t.names[i], text));
    }
    for (const Write& s : n.stores)
      line(depth + 1, fmt::format("{}{} {}{} {}", name_of(s.buffer), list(s.at), s.fresh ? "fresh " : "",
                                  s.accumulate ? accumulate_mark(*s.accumulate) : "=", node(n, t, s.value)));
    line(depth, "}");
  }

  std::string tile(const TileRef& r) const { return fmt::format("{}{} ({}, {})", name_of(r.buffer), list(r.at), r.rows, r.columns); }

  void statements(const std::vector<Statement>& body, int depth) {
    for (const Statement& s : body)
      match(
          s.what,
          [&](const For& f) {
            line(depth, fmt::format("{} {} in {}..{}{} {{", f.parallel ? "parallel" : "for", show(f.symbol), show(f.lo), show(f.hi),
                                    f.step != 1 ? fmt::format(" step {}", f.step) : ""));
            statements(f.body, depth + 1);
            line(depth, "}");
          },
          [&](const Nest& n) { nest(n, depth); },
          [&](const Matmul& m) {
            const char* mark = m.init == Matmul::Init::zero ? "=" : "+=";
            std::string text = fmt::format("matmul {} {} {} * {} size {}, {}, {}", tile(m.c), mark, tile(m.a), tile(m.b), show(m.m),
                                           show(m.n), show(m.k));
            if (m.init == Matmul::Init::scaled) text += fmt::format(" scale {}{}", name_of(m.scale), list(m.scale_at));
            line(depth, text);
          });
  }

  std::string run() {
    line(0, fmt::format("tile {} {{", p.name));
    for (uint32_t i = 0; i < p.buffers.size(); ++i) buffer(BufferId(i));
    for (const Kernel& k : p.kernels) {
      line(1, fmt::format("kernel {}{} {{", k.name, k.once ? " once" : ""));
      statements(k.body, 2);
      line(1, "}");
    }
    line(0, "}");
    return out;
  }
};

}  // namespace

std::string print(const Program& program) { return Printer{program}.run(); }

}  // namespace cleave::tile
