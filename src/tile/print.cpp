// Text form of tile programs; the grammar is docs/tile.md.
#include "base/match.hpp"
#include "sym/text.hpp"
#include "tile/expression_text.hpp"

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
  std::string list(const std::vector<Expr>& es) const { return print_list(*p.syms, es); }
  std::string name_of(BufferId id) const { return print_name(p.buffer(id).name); }
  void line(int depth, const std::string& text) {
    out += std::string(static_cast<size_t>(depth) * 2, ' ') + text + "\n";
  }

  void buffer(BufferId id) {
    const Buffer& b = p.buffer(id);
    std::string text = fmt::format("{} {}: {}", name(b.place), print_name(b.name), name(b.dtype));
    if (!b.shape.empty()) text += list(b.shape);
    if (b.panel > 0) text += fmt::format(" panel {}{}", b.panel, b.pairs ? " pairs" : "");
    if (b.argument >= 0) text += fmt::format(" argument {}", b.argument);
    if (b.alias_of.valid()) text += fmt::format(" alias {}", name_of(b.alias_of));
    line(1, text);
  }

  void nest(const Nest& n, int depth) {
    std::string axes;
    for (const Axis& a : n.axes)
      axes += fmt::format("{}{} < {}", axes.empty() ? "" : ", ", show(a.symbol), show(a.extent));
    line(depth, fmt::format("nest{} ({}) {{", n.sequential ? " sequential" : "", axes));
    std::vector<NodeId> roots;
    for (const Write& s : n.stores) roots.push_back(s.value);
    const ExpressionPrinter text(*p.syms, n.nodes, roots,
                                 [&](BufferId id) -> const std::string& { return p.buffer(id).name; });
    for (const std::string& d : text.definitions()) line(depth + 1, d);
    for (const Write& s : n.stores)
      line(depth + 1, fmt::format("{}{} {}{} {}", name_of(s.buffer), list(s.at), s.fresh ? "fresh " : "",
                                  s.accumulate ? accumulate_mark(*s.accumulate) : "=", text.show(s.value)));
    line(depth, "}");
  }

  std::string tile(const TileRef& r) const {
    return fmt::format("{}{} ({}, {})", name_of(r.buffer), list(r.at), r.rows, r.columns);
  }

  void statements(const std::vector<Statement>& body, int depth) {
    for (const Statement& s : body)
      match(
          s.what,
          [&](const For& f) {
            line(depth, fmt::format("{} {} in {}..{}{} {{", f.parallel ? "parallel" : "for", show(f.symbol), show(f.lo),
                                    show(f.hi), f.step != 1 ? fmt::format(" step {}", f.step) : ""));
            statements(f.body, depth + 1);
            line(depth, "}");
          },
          [&](const Nest& n) { nest(n, depth); },
          [&](const Matmul& m) {
            const char* mark = m.init == Matmul::Init::zero ? "=" : "+=";
            std::string text = fmt::format("matmul {} {} {} * {} size {}, {}, {}", tile(m.c), mark, tile(m.a),
                                           tile(m.b), show(m.m), show(m.n), show(m.k));
            if (m.init == Matmul::Init::scaled) text += fmt::format(" scale {}{}", name_of(m.scale), list(m.scale_at));
            line(depth, text);
          },
          [&](const Let& l) {
            line(depth, fmt::format("let {} = {}{} in {}..{} {{", show(l.symbol), name_of(l.buffer), list(l.at),
                                    show(l.lo), show(l.hi)));
            statements(l.body, depth + 1);
            line(depth, "}");
          });
  }

  std::string run() {
    line(0, fmt::format("tile {} {{", print_name(p.name)));
    for (const Expr d : p.dims) line(1, sym::print_dim(*p.syms, d));
    for (uint32_t i = 0; i < p.buffers.size(); ++i) buffer(BufferId(i));
    for (const Kernel& k : p.kernels) {
      line(1, fmt::format("kernel {}{} {{", print_name(k.name), k.once ? " once" : ""));
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
