// Parser of tile programs; the grammar is docs/tile.md. The first error ends it.
#include <numeric>
#include <unordered_map>

#include "base/codes.hpp"
#include "sym/text.hpp"
#include "tile/expression_text.hpp"

namespace cleave::tile {

namespace {

struct Parser {
  TokenCursor c;
  Program p{"", std::make_shared<sym::Pool>(), {}, {}, {}};
  std::unordered_map<std::string, BufferId> buffers = {};
  std::unordered_map<std::string, Expr> symbols = {};  // in scope

  ExpressionParser expressions{c, *p.syms,
                               [this](const std::string& n) -> std::optional<Expr> {
                                 auto it = symbols.find(n);
                                 if (it == symbols.end()) return std::nullopt;
                                 return it->second;
                               },
                               [this](const std::string& n) -> std::optional<std::pair<BufferId, DType>> {
                                 auto it = buffers.find(n);
                                 if (it == buffers.end()) return std::nullopt;
                                 return std::pair(it->second, p.buffer(it->second).dtype);
                               }};

  std::optional<Expr> expr() { return expressions.expr(); }
  bool exprs(std::vector<Expr>& out) { return expressions.list(out); }
  std::optional<BufferId> buffer_ref() {
    const auto b = expressions.tensor();
    if (!b) return std::nullopt;
    return b->first;
  }
  // A new index symbol in scope; its range comes from its bounds.
  std::optional<Expr> bind_symbol(const std::string& n, const Token& at) {
    if (symbols.count(n)) {
      c.fail(diagnose_at(at.range, Code::duplicate_name, n));
      return std::nullopt;
    }
    return p.syms->symbol(n);
  }
  void set_range(Expr symbol, Expr lo, Expr hi) {
    const auto a = p.syms->bounds(lo), b = p.syms->bounds(hi);
    const auto old = p.syms->symbol_range(symbol);
    sym::Interval r{a.lo, b.hi <= a.lo ? a.lo : b.hi - 1};
    if (old.lo > -sym::kHuge) r.lo = std::min(r.lo, old.lo);
    if (old.hi < sym::kHuge) r.hi = std::max(r.hi, old.hi);
    p.syms->set_range(symbol, r);
  }

  // buffer := PLACE NAME ":" dtype [exprs] ["panel" INT ["pairs"]] ["argument" INT] ["alias" NAME]
  bool buffer(Place place) {
    c.take();
    const Token t = c.peek();
    const auto n = expect_name(c, "the name of a buffer");
    if (!n || !c.expect(":")) return false;
    const auto d = expressions.dtype();
    if (!d) return false;
    Buffer b{*n, *d, place, {}, 0, -1, {}};
    if (c.at("[") && !exprs(b.shape)) return false;
    if (c.accept("panel")) {
      const auto w = c.expect_integer("a width");
      if (!w) return false;
      if (*w < 1 || *w > 4096 || b.shape.size() < 2) {
        c.fail(diagnose_at(t.range, Code::bad_shape, *n, "a panel needs a width of 1..4096 and two axes"));
        return false;
      }
      b.panel = *w;
      b.pairs = c.accept("pairs");
    }
    if (c.accept("argument")) {
      const auto a = c.expect_integer("a position");
      if (!a) return false;
      b.argument = static_cast<int>(*a);
    }
    if (c.accept("alias")) {
      const auto a = buffer_ref();
      if (!a) return false;
      b.alias_of = *a;
    }
    if (buffers.count(*n)) {
      c.fail(diagnose_at(t.range, Code::duplicate_name, *n));
      return false;
    }
    buffers[*n] = p.buffers.add(std::move(b));
    return true;
  }

  std::optional<Fn> accumulation() {
    struct Row {
      const char* mark;
      Fn fn;
    };
    for (const Row& r : {Row{"+=", Fn::add}, Row{"*=", Fn::mul}, Row{"&=", Fn::logical_and}, Row{"|=", Fn::logical_or}})
      if (c.accept(r.mark)) return r.fn;
    for (const Row& r : {Row{"max", Fn::max}, Row{"min", Fn::min}})
      if (c.at(r.mark) && c.peek(1).text == "=") {
        c.take();
        c.take();
        return r.fn;
      }
    return std::nullopt;
  }

  // nest := "nest" ["sequential"] "(" [ NAME "<" expr {"," ..} ] ")" "{" { "%" INT "=" node | store } "}"
  // store := BUFFER exprs ["fresh"] ("=" | "+=" | "*=" | "max=" | "min=" | "&=" | "|=") node
  std::optional<Nest> nest() {
    Nest nest;
    ExpressionScope scope;
    nest.sequential = c.accept("sequential");
    if (!c.expect("(")) return std::nullopt;
    std::vector<std::string> bound;
    auto unbind = [&] {
      for (const auto& n : bound) symbols.erase(n);
    };
    while (!c.at(")")) {
      const Token t = c.peek();
      const auto n = c.expect_identifier("an index");
      if (!n || !c.expect("<")) return std::nullopt;
      const auto e = expr();
      if (!e) return std::nullopt;
      const auto symbol = bind_symbol(*n, t);
      if (!symbol) return std::nullopt;
      set_range(*symbol, p.syms->constant(0), *e);
      symbols[*n] = *symbol;
      bound.push_back(*n);
      nest.axes.push_back({*symbol, *e});
      if (!c.accept(",") && !c.at(")")) {
        c.fail_expected("`,` or `)`");
        return std::nullopt;
      }
    }
    c.take();
    if (!c.expect("{")) return std::nullopt;
    while (!c.accept("}")) {
      if (c.at("%")) {
        if (!expressions.definitions(scope)) return std::nullopt;
        continue;
      }
      const auto b = buffer_ref();
      if (!b) return std::nullopt;
      Write st{*b, {}, {}, std::nullopt, false};
      if (!exprs(st.at)) return std::nullopt;
      st.fresh = c.accept("fresh");
      if (!c.accept("=")) {
        st.accumulate = accumulation();
        if (!st.accumulate) {
          c.fail_expected("`=` or an accumulation");
          return std::nullopt;
        }
      }
      const auto x = expressions.node(scope);
      if (!x) return std::nullopt;
      st.value = *x;
      nest.stores.push_back(std::move(st));
    }
    unbind();
    nest.nodes = std::move(scope.nodes);
    return nest;
  }

  bool tile(TileRef& r) {
    const auto b = buffer_ref();
    if (!b) return false;
    r.buffer = *b;
    if (!exprs(r.at) || !c.expect("(")) return false;
    const auto rows = c.expect_integer("an axis");
    if (!rows || !c.expect(",")) return false;
    const auto columns = c.expect_integer("an axis");
    if (!columns || !c.expect(")")) return false;
    r.rows = static_cast<int>(*rows);
    r.columns = static_cast<int>(*columns);
    return true;
  }

  // matmul := "matmul" tile ("=" | "+=") tile "*" tile "size" expr "," expr "," expr ["scale" BUFFER exprs]
  std::optional<Matmul> matmul() {
    Matmul m;
    if (!tile(m.c)) return std::nullopt;
    if (c.accept("+="))
      m.init = Matmul::Init::load;
    else if (!c.expect("="))
      return std::nullopt;
    if (!tile(m.a) || !c.expect("*") || !tile(m.b) || !c.expect("size")) return std::nullopt;
    const auto a = expr();
    if (!a || !c.expect(",")) return std::nullopt;
    const auto b = expr();
    if (!b || !c.expect(",")) return std::nullopt;
    const auto k = expr();
    if (!k) return std::nullopt;
    m.m = *a;
    m.n = *b;
    m.k = *k;
    if (c.accept("scale")) {
      const auto s = buffer_ref();
      if (!s || !exprs(m.scale_at)) return std::nullopt;
      m.scale = *s;
      m.init = Matmul::Init::scaled;
    }
    return m;
  }

  // let := "let" NAME "=" BUFFER exprs "in" expr ".." expr "{" statements "}"
  std::optional<Let> let() {
    Let l;
    const Token at = c.peek();
    const auto n = c.expect_identifier("an index");
    if (!n || !c.expect("=")) return std::nullopt;
    const auto b = buffer_ref();
    if (!b || !exprs(l.at) || !c.expect("in")) return std::nullopt;
    l.buffer = *b;
    const auto lo = expr();
    if (!lo || !c.expect("..")) return std::nullopt;
    const auto hi = expr();
    if (!hi) return std::nullopt;
    const auto symbol = bind_symbol(*n, at);
    if (!symbol || !c.expect("{")) return std::nullopt;
    set_range(*symbol, *lo, p.syms->add(p.syms->max(*lo, *hi), 1));
    l.symbol = *symbol;
    l.lo = *lo;
    l.hi = *hi;
    symbols[*n] = *symbol;
    if (!statements(l.body) || !c.expect("}")) return std::nullopt;
    symbols.erase(*n);
    return l;
  }

  // statement := let | ("for" | "parallel") NAME "in" expr ".." expr ["step" INT] "{" statements "}" | nest | matmul
  bool statements(std::vector<Statement>& out) {
    if (!c.enter()) return false;
    while (!c.at("}")) {
      if (c.at("for") || c.at("parallel")) {
        For f;
        f.parallel = c.take().text == "parallel";
        const Token at = c.peek();
        const auto n = c.expect_identifier("an index");
        if (!n || !c.expect("in")) return false;
        const auto lo = expr();
        if (!lo || !c.expect("..")) return false;
        const auto hi = expr();
        if (!hi) return false;
        if (c.accept("step")) {
          const auto s = c.expect_integer("a step");
          if (!s) return false;
          if (*s < 1) {
            c.fail(diagnose_at(at.range, Code::bad_shape, *n, "a step is at least 1"));
            return false;
          }
          f.step = *s;
        }
        const auto symbol = bind_symbol(*n, at);
        if (!symbol || !c.expect("{")) return false;
        const bool first = p.syms->symbol_range(*symbol).hi >= sym::kHuge;
        int64_t multiple = f.step;
        if (p.syms->divides(multiple, *lo) != sym::Proof::yes) {
          multiple &= -multiple;  // powers of two are what layouts ask for
          while (p.syms->divides(multiple, *lo) != sym::Proof::yes) multiple /= 2;
        }
        p.syms->set_multiple(*symbol, first ? multiple : std::gcd(multiple, p.syms->symbol_multiple(*symbol)));
        set_range(*symbol, *lo, *hi);
        f.symbol = *symbol;
        f.lo = *lo;
        f.hi = *hi;
        symbols[*n] = *symbol;
        if (!statements(f.body) || !c.expect("}")) return false;
        symbols.erase(*n);
        out.push_back({std::move(f)});
      } else if (c.accept("let")) {
        auto l = let();
        if (!l) return false;
        out.push_back({std::move(*l)});
      } else if (c.accept("nest")) {
        auto n = nest();
        if (!n) return false;
        out.push_back({std::move(*n)});
      } else if (c.accept("matmul")) {
        auto m = matmul();
        if (!m) return false;
        out.push_back({std::move(*m)});
      } else {
        c.fail_expected("`for`, `parallel`, `let`, `nest`, `matmul` or `}`");
        return false;
      }
    }
    c.leave();
    return true;
  }

  // program := "tile" NAME "{" { dim } { buffer } { "kernel" NAME ["once"] "{" statements "}" } "}"
  bool program() {
    if (!c.expect("tile")) return false;
    const auto n = expect_name(c, "the name of the program");
    if (!n || !c.expect("{")) return false;
    p.name = *n;
    while (c.accept("dim")) {
      const auto d = sym::parse_dim(c, *p.syms);
      if (!d) return false;
      symbols[p.syms->symbol_name(*d)] = *d;
      p.dims.push_back(*d);
    }
    while (!c.at("kernel") && !c.at("}")) {
      std::optional<Place> place;
      for (Place candidate : {Place::input, Place::output, Place::constant, Place::scalar, Place::workspace,
                              Place::packed, Place::scratch})
        if (c.at(name(candidate))) place = candidate;
      if (!place) {
        c.fail_expected("a buffer or a kernel");
        return false;
      }
      if (!buffer(*place)) return false;
    }
    while (c.accept("kernel")) {
      Kernel k;
      const auto kn = expect_name(c, "the name of the kernel");
      if (!kn) return false;
      k.name = *kn;
      k.once = c.accept("once");
      if (!c.expect("{") || !statements(k.body) || !c.expect("}")) return false;
      p.kernels.push_back(std::move(k));
    }
    if (!c.expect("}")) return false;
    if (!c.at_end()) {
      c.fail_expected("the end of the text");
      return false;
    }
    return true;
  }
};

}  // namespace

Result<Program> parse(const SourceText& source) {
  TRY_ASSIGN(auto tokens, tokenize(source));
  Parser parser{TokenCursor(std::move(tokens))};
  if (!parser.program()) return parser.c.errors();
  if (Diagnostics bad = verify(parser.p); !bad.empty()) return bad;
  return std::move(parser.p);
}

}  // namespace cleave::tile
