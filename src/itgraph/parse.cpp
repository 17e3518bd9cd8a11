// Parser of itGraphs; the grammar is docs/itgraph.md. The first error ends it.
#include <unordered_map>

#include "base/codes.hpp"
#include "itgraph/itgraph.hpp"
#include "sym/text.hpp"
#include "tile/expression_text.hpp"

namespace cleave::itgraph {

namespace {

constexpr int64_t kMaxExtent = int64_t{1} << 40;
constexpr int64_t kMaxArgument = 1 << 20;

struct Parser {
  TokenCursor c;
  Program p{"", std::make_shared<sym::Pool>(), {}, {}, {}};
  std::unordered_map<std::string, ValueId> values = {};
  std::unordered_map<std::string, Expr> indices = {}, dims = {};
  tile::ExpressionParser expressions{c, *p.syms, [this](const std::string& n) { return find_index(n); },
                                     [this](const std::string& n) -> std::optional<std::pair<ValueId, DType>> {
                                       auto it = values.find(n);
                                       if (it == values.end()) return std::nullopt;
                                       return std::pair(it->second, p.value(it->second).dtype);
                                     }};

  std::optional<Expr> find_index(const std::string& n) const {
    if (auto it = indices.find(n); it != indices.end()) return it->second;
    return find_dim(n);
  }
  std::optional<Expr> find_dim(const std::string& n) const {
    auto it = dims.find(n);
    if (it == dims.end()) return std::nullopt;
    return it->second;
  }
  // extent := an expression of integers and dims
  std::optional<Expr> extent() {
    const Token t = c.peek();
    const auto e = sym::parse_expr(c, *p.syms, [this](const std::string& n) { return find_dim(n); });
    if (!e) return std::nullopt;
    const auto constant = p.syms->as_constant(*e);
    if (p.syms->bounds(*e).lo < 0 || (constant && *constant > kMaxExtent)) {
      c.fail(diagnose_at(t.range, Code::number_out_of_range, p.syms->print(*e), fmt::format("0..{}", kMaxExtent)));
      return std::nullopt;
    }
    return e;
  }
  std::optional<Expr> index() {
    const Token t = c.peek();
    const auto n = c.expect_identifier("an index");
    if (!n) return std::nullopt;
    const auto found = indices.find(*n);
    const auto i = found == indices.end() ? std::nullopt : std::optional(found->second);
    if (!i) c.fail(diagnose_at(t.range, Code::undefined_name, *n));
    return i;
  }
  std::optional<ValueId> value_ref() {
    const auto v = expressions.tensor();
    if (!v) return std::nullopt;
    return v->first;
  }
  std::optional<int64_t> integer(int64_t lo, int64_t hi, std::string_view what) {
    const Token t = c.peek();
    const auto v = c.expect_integer(what);
    if (v && (*v < lo || *v > hi)) {
      c.fail(diagnose_at(t.range, Code::number_out_of_range, *v, fmt::format("{}..{}", lo, hi)));
      return std::nullopt;
    }
    return v;
  }
  // "(" [INDEX {"," INDEX}] ")"
  bool index_list(std::vector<Expr>& out) {
    if (!c.expect("(")) return false;
    while (!c.at(")")) {
      const auto i = index();
      if (!i) return false;
      out.push_back(*i);
      if (!c.accept(",") && !c.at(")")) {
        c.fail_expected("`,` or `)`");
        return false;
      }
    }
    c.take();
    return true;
  }

  // "index" NAME ":" extent {"," NAME ":" extent}
  bool index_line() {
    do {
      const Token t = c.peek();
      const auto n = c.expect_identifier("an index");
      if (!n || !c.expect(":")) return false;
      const auto e = extent();
      if (!e) return false;
      if (indices.count(*n) || dims.count(*n)) {
        c.fail(diagnose_at(t.range, Code::duplicate_name, *n));
        return false;
      }
      const Expr symbol = p.syms->symbol(*n, {0, std::max<int64_t>(p.syms->bounds(*e).hi - 1, 0)});
      indices[*n] = symbol;
      p.extents[symbol] = *e;
    } while (c.accept(","));
    return true;
  }

  // value := ROLE NAME ":" dtype ["[" extent {"," extent} "]"] ["argument" INT]
  //          ["packed" NAME "rows" extent] ["alias" NAME]
  bool value(Role role) {
    c.take();
    const Token t = c.peek();
    const auto n = tile::expect_name(c, "the name of a value");
    if (!n || !c.expect(":")) return false;
    const auto d = expressions.dtype();
    if (!d) return false;
    Value v{*n, *d, role, {}, -1, {}, {}, {}};
    if (c.accept("[")) {
      while (!c.at("]")) {
        const auto e = extent();
        if (!e) return false;
        v.shape.push_back(*e);
        if (!c.accept(",") && !c.at("]")) {
          c.fail_expected("`,` or `]`");
          return false;
        }
      }
      c.take();
    }
    if (c.accept("argument")) {
      const auto a = integer(0, kMaxArgument, "a position");
      if (!a) return false;
      v.argument = static_cast<int>(*a);
    }
    if (c.accept("packed")) {
      const auto rows_of = value_ref();
      if (!rows_of || !c.expect("rows")) return false;
      const auto rows = extent();
      if (!rows) return false;
      v.rows_of = *rows_of;
      v.rows = *rows;
    }
    if (c.accept("alias")) {
      const auto a = value_ref();
      if (!a) return false;
      v.alias_of = *a;
    }
    if (values.count(*n)) {
      c.fail(diagnose_at(t.range, Code::duplicate_name, *n));
      return false;
    }
    values[*n] = p.values.add(std::move(v));
    return true;
  }

  // compute := {"%" INT "=" node} target {"," target} "=" [how "(" indices ")"] node {";" node}
  // target := NAME "[" [INDEX {"," INDEX}] "]"        how := sum | prod | amax | amin | all | any | scaled
  std::optional<Compute> compute() {
    Compute out;
    tile::ExpressionScope scope;
    if (!expressions.definitions(scope)) return std::nullopt;
    do {
      const auto v = value_ref();
      if (!v || !c.expect("[")) return std::nullopt;
      Target t{*v, {}, {}};
      while (!c.at("]")) {
        const auto i = index();
        if (!i) return std::nullopt;
        t.axes.push_back(*i);
        if (!c.accept(",") && !c.at("]")) {
          c.fail_expected("`,` or `]`");
          return std::nullopt;
        }
      }
      c.take();
      out.results.push_back(std::move(t));
    } while (c.accept(","));
    if (!c.expect("=")) return std::nullopt;
    if (c.accept("scaled")) {
      out.how = Compute::How::scaled;
    } else {
      for (Fn fn : {Fn::add, Fn::mul, Fn::max, Fn::min, Fn::logical_and, Fn::logical_or})
        if (c.at(reduction_name(fn)) && c.peek(1).text == "(") {
          c.take();
          out.how = Compute::How::reduce;
          out.fn = fn;
          break;
        }
    }
    if (out.how != Compute::How::map && !index_list(out.reduced)) return std::nullopt;
    for (size_t i = 0; i < out.results.size(); ++i) {
      if (i > 0 && !c.expect(";")) return std::nullopt;
      const auto x = expressions.node(scope);
      if (!x) return std::nullopt;
      out.results[i].node = *x;
    }
    out.nodes = std::move(scope.nodes);
    return out;
  }

  // block := ("parallel" | "map" | "reduce") "(" [INDEX ":" INT {"," INDEX ":" INT}] ")" "{" {block | compute} "}"
  bool at_block() const { return (c.at("parallel") || c.at("map") || c.at("reduce")) && c.peek(1).text == "("; }
  std::optional<Block> block() {
    if (!c.enter()) return std::nullopt;
    Block b;
    const auto word = c.take().text;
    for (Kind k : {Kind::parallel, Kind::map, Kind::reduce})
      if (word == name(k)) b.kind = k;
    c.take();
    while (!c.at(")")) {
      const auto i = index();
      if (!i || !c.expect(":")) return std::nullopt;
      const auto step = integer(1, kMaxExtent, "a step");
      if (!step) return std::nullopt;
      b.loops.push_back({*i, *step});
      if (!c.accept(",") && !c.at(")")) {
        c.fail_expected("`,` or `)`");
        return std::nullopt;
      }
    }
    c.take();
    if (!c.expect("{")) return std::nullopt;
    while (!c.accept("}")) {
      if (at_block()) {
        auto inner = block();
        if (!inner) return std::nullopt;
        b.items.push_back({std::move(*inner)});
      } else {
        auto x = compute();
        if (!x) return std::nullopt;
        b.items.push_back({std::move(*x)});
      }
    }
    c.leave();
    return b;
  }

  // library := "library" WHAT NAME "->" NAME {"," NAME} "axis" INT ["exclusive"] ["reverse"] ["smallest"]
  std::optional<Library> library() {
    using What = Library::What;
    Library l;
    const Token t = c.peek();
    const auto word = c.expect_identifier("a library function");
    if (!word) return std::nullopt;
    bool found = false;
    for (What w : {What::cumsum, What::cumprod, What::cummax, What::argmax, What::argmin, What::topk})
      if (*word == name(w)) {
        l.what = w;
        found = true;
      }
    if (!found) {
      c.fail(diagnose_at(t.range, Code::unknown_operator, *word));
      return std::nullopt;
    }
    const auto source = value_ref();
    if (!source || !c.expect("->")) return std::nullopt;
    l.source = *source;
    do {
      const auto r = value_ref();
      if (!r) return std::nullopt;
      l.results.push_back(*r);
    } while (c.accept(","));
    if (!c.expect("axis")) return std::nullopt;
    const auto axis = integer(0, kMaxArgument, "an axis");
    if (!axis) return std::nullopt;
    l.axis = static_cast<int>(*axis);
    l.exclusive = c.accept("exclusive");
    l.reverse = c.accept("reverse");
    l.largest = !c.accept("smallest");
    return l;
  }

  // program := "itgraph" NAME "{" {dim} {index-line} {value} {"kernel" NAME (block | library)} "}"
  bool program() {
    if (!c.expect("itgraph")) return false;
    const auto n = tile::expect_name(c, "the name of the program");
    if (!n || !c.expect("{")) return false;
    p.name = *n;
    while (c.accept("dim")) {
      const auto d = sym::parse_dim(c, *p.syms);
      if (!d) return false;
      dims[p.syms->symbol_name(*d)] = *d;
      p.dims.push_back(*d);
    }
    while (c.accept("index"))
      if (!index_line()) return false;
    while (!c.at("kernel") && !c.at("}")) {
      std::optional<Role> role;
      for (Role r : {Role::input, Role::constant, Role::scalar, Role::output, Role::inner})
        if (c.at(name(r))) role = r;
      if (!role) {
        c.fail_expected("a value or a kernel");
        return false;
      }
      if (!value(*role)) return false;
    }
    while (c.accept("kernel")) {
      const auto kn = tile::expect_name(c, "the name of the kernel");
      if (!kn) return false;
      if (c.accept("library")) {
        auto l = library();
        if (!l) return false;
        p.kernels.push_back({*kn, std::move(*l)});
      } else if (at_block()) {
        auto b = block();
        if (!b) return false;
        p.kernels.push_back({*kn, std::move(*b)});
      } else {
        c.fail_expected("`parallel (` or `library`");
        return false;
      }
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

}  // namespace cleave::itgraph
