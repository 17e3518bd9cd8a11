// Text form of itGraphs; the grammar is docs/itgraph.md.
#include "base/match.hpp"
#include "itgraph/itgraph.hpp"
#include "sym/text.hpp"
#include "tile/expression_text.hpp"

namespace cleave::itgraph {

const char* name(Library::What what) {
  switch (what) {
    case Library::What::cumsum: return "cumsum";
    case Library::What::cumprod: return "cumprod";
    case Library::What::cummax: return "cummax";
    case Library::What::argmax: return "argmax";
    case Library::What::argmin: return "argmin";
    case Library::What::topk: return "topk";
  }
  return "";
}

const char* reduction_name(Fn fn) {
  switch (fn) {
    case Fn::add: return "sum";
    case Fn::mul: return "prod";
    case Fn::max: return "amax";
    case Fn::min: return "amin";
    case Fn::logical_and: return "all";
    case Fn::logical_or: return "any";
    default: return nullptr;
  }
}

namespace {

struct Printer {
  const Program& p;
  std::string out = {};

  std::string show(Expr e) const { return p.syms->print(e); }
  std::string name_of(ValueId id) const { return tile::print_name(p.value(id).name); }
  void line(int depth, const std::string& text) {
    out += std::string(static_cast<size_t>(depth) * 2, ' ') + text + "\n";
  }
  std::string in_parentheses(const std::vector<Expr>& es) const {
    std::string s;
    for (Expr e : es) s += (s.empty() ? "" : ", ") + show(e);
    return "(" + s + ")";
  }

  void value(const Value& v) {
    std::string text = fmt::format("{} {}: {}", name(v.role), tile::print_name(v.name), name(v.dtype));
    if (!v.shape.empty()) text += tile::print_list(*p.syms, v.shape);
    if (v.argument >= 0) text += fmt::format(" argument {}", v.argument);
    if (v.rows_of.valid()) text += fmt::format(" packed {} rows {}", name_of(v.rows_of), show(v.rows));
    if (v.alias_of.valid()) text += fmt::format(" alias {}", name_of(v.alias_of));
    line(1, text);
  }

  void compute(const Compute& c, int depth) {
    std::vector<NodeId> roots;
    std::string left, right;
    for (const Target& t : c.results) roots.push_back(t.node);
    const tile::ExpressionPrinter text(*p.syms, c.nodes, roots,
                                       [&](ValueId id) -> const std::string& { return p.value(id).name; });
    for (const std::string& d : text.definitions()) line(depth, d);
    for (const Target& t : c.results) {
      left += (left.empty() ? "" : ", ") + name_of(t.value) + tile::print_list(*p.syms, t.axes);
      right += (right.empty() ? "" : "; ") + text.show(t.node);
    }
    std::string how;
    if (c.how == Compute::How::scaled) how = "scaled " + in_parentheses(c.reduced) + " ";
    if (c.how == Compute::How::reduce) {
      const char* fn = reduction_name(c.fn);
      CHECK(fn, "`{}` does not reduce", info(c.fn).name);
      how = fmt::format("{} {} ", fn, in_parentheses(c.reduced));
    }
    line(depth, fmt::format("{} = {}{}", left, how, right));
  }

  void block(const Block& b, const std::string& before, int depth) {
    std::string loops;
    for (const Loop& l : b.loops) loops += fmt::format("{}{}: {}", loops.empty() ? "" : ", ", show(l.index), l.step);
    line(depth, fmt::format("{}{} ({}) {{", before, name(b.kind), loops));
    for (const Item& i : b.items)
      match(
          i.what, [&](const Compute& c) { compute(c, depth + 1); },
          [&](const Block& inner) { block(inner, "", depth + 1); });
    line(depth, "}");
  }

  void library(const Library& l, const std::string& before) {
    std::string results;
    for (ValueId r : l.results) results += (results.empty() ? "" : ", ") + name_of(r);
    std::string text =
        fmt::format("{}library {} {} -> {} axis {}", before, name(l.what), name_of(l.source), results, l.axis);
    if (l.exclusive) text += " exclusive";
    if (l.reverse) text += " reverse";
    if (!l.largest) text += " smallest";
    line(1, text);
  }

  std::string run() {
    line(0, fmt::format("itgraph {} {{", tile::print_name(p.name)));
    for (const Expr d : p.dims) line(1, sym::print_dim(*p.syms, d));
    std::string indices;
    for (const auto& [index, extent] : p.extents)
      indices += fmt::format("{}{}: {}", indices.empty() ? "" : ", ", show(index), show(extent));
    if (!indices.empty()) line(1, "index " + indices);
    for (const Value& v : p.values) value(v);
    for (const Kernel& k : p.kernels) {
      const std::string before = fmt::format("kernel {} ", tile::print_name(k.name));
      match(k.what, [&](const Block& b) { block(b, before, 1); }, [&](const Library& l) { library(l, before); });
    }
    line(0, "}");
    return out;
  }
};

}  // namespace

std::string print(const Program& program) { return Printer{program}.run(); }

}  // namespace cleave::itgraph
