// The parser of LEIR: every text gives a syntax and messages. Nothing recurses: expressions are read with a stack of
// operators, nests with a stack of open brackets, so depth is bounded by memory only, and time is linear.
#include <charconv>
#include <cmath>
#include <set>

#include "base/codes.hpp"
#include "leir/lex.hpp"
#include "leir/syntax.hpp"

namespace cleave::leir {

bool Parsed::ok() const {
  for (const Diagnostic& d : messages)
    if (info(d.code).severity == Severity::error) return false;
  return true;
}

namespace {

enum class Open : uint8_t { none, parenthesis, call, subscripts };

// What waits on the operator stack: an operator for its right operand, or a bracket for its end.
struct Pending {
  Op op = Op::add;  // of operators; negate for the prefix minus
  Open open = Open::none;
  Function function = Function::exp;
  NameId name = kNone;
  Type type = Type::f32;
  Scope scope = Scope::global;
  bool has_meta = false;
  uint32_t operands = 0;     // on the operand stack when the bracket was opened
  uint32_t comparisons = 0;  // compare: operators collected, on their own stack
  SourceRange range;
};

struct OpenNest {
  uint32_t item;
  bool ends_with_last = false;  // the chain form: it closes with its last item
};

class LeirParser {
 public:
  LeirParser(const SourceText& source, const ParseOptions& options) : options_(options), lexed_(lex(source)) {}

  Parsed run() {
    out_.messages = std::move(lexed_.messages);
    if (!lexed_.too_large) {
      header();
      body();
    }
    if (messages_ > kMaxMessages) out_.messages.push_back(diagnose(Code::leir_too_many, kMaxMessages));
    return std::move(out_);
  }

 private:
  const LeirToken& peek(size_t ahead = 0) const {
    return lexed_.tokens[std::min(at_ + ahead, lexed_.tokens.size() - 1)];
  }
  const LeirToken& take() {
    const LeirToken& t = peek();
    if (at_ + 1 < lexed_.tokens.size()) ++at_;
    return t;
  }
  bool at_end() const { return peek().kind == TokenKind::end; }
  bool at(std::string_view sign) const { return peek().kind == TokenKind::sign && peek().text == sign; }
  bool accept(std::string_view sign) {
    if (!at(sign)) return false;
    take();
    return true;
  }
  static std::string shown(const LeirToken& t) {
    return t.kind == TokenKind::end ? std::string(t.text) : fmt::format("`{}`", t.text.substr(0, 40));
  }
  void message(Diagnostic d) {
    if (++messages_ <= kMaxMessages) out_.messages.push_back(std::move(d));
  }
  bool expected(std::string_view what) {
    message(diagnose_at(peek().range, Code::leir_expected, what, shown(peek())));
    return false;
  }
  // Known variables are written with their type too.
  bool expected_meta(const Pending& p, std::string_view what) {
    Diagnostic d = diagnose_at(peek().range, Code::leir_expected, what, shown(peek()));
    for (const HeaderEntry& h : syntax().header)
      if (h.name == p.name)
        d.hint = fmt::format("write `{}^{{{},g}}{}`", syntax().text(h.name), leir::name(h.type),
                             h.dims.empty() ? "" : "_{..}");
    message(std::move(d));
    return false;
  }
  bool expect(std::string_view sign, std::string_view where) {
    if (accept(sign)) return true;
    return expected(fmt::format("`{}` {}", sign, where));
  }
  bool at_kind() const {
    return peek().kind == TokenKind::name && peek().text.size() == 1 && kind_of(peek().text[0]).has_value();
  }
  static std::optional<Kind> kind_of(char c) {
    switch (c) {
#define LOOP_KIND(letter, name, meaning) \
  case letter: return Kind::name;
#include "leir/language.def"
      default: return std::nullopt;
    }
  }
  Syntax& syntax() { return out_.syntax; }

  // header = { role, name, dtype, "[", [ dim, { ",", dim } ], "]", [ "range", int, "..", int ], ";" }      (D1)
  void header() {
    while (peek().kind == TokenKind::word) {
      if (!entry()) {
        while (!at_end() && !at(";") && !at_kind()) take();
        accept(";");
      }
    }
  }

  bool entry() {
    HeaderEntry e;
    e.range = peek().range;
    const std::string_view role = peek().text;
    bool known = false;
#define ROLE(name, word) \
  if (role == word) {    \
    e.role = Role::name; \
    known = true;        \
  }
#include "leir/language.def"
    if (!known) return expected("`in`, `const`, `param`, `out` or a nest");
    take();
    if (peek().kind != TokenKind::name) return expected("the name of a variable");
    std::string name(peek().text);
    e.range.end = peek().range.end;
    const SourceRange at_name = peek().range;
    take();
    if (!entry_type(name, e.type)) return false;
    if (auto why = refuse_variable(name)) {
      message(diagnose_at(at_name, Code::leir_reserved, name, "a variable", *why));
      return false;
    }
    e.name = syntax().intern(name);
    if (!expect("[", "before the extents")) return false;
    while (!at("]")) {
      Dim d;
      if (peek().kind == TokenKind::number) {
        const auto v = integer(peek());
        if (!v) return false;
        d.extent = *v;
      } else if (peek().kind == TokenKind::name) {
        d.name = syntax().intern(peek().text);
      } else {
        return expected("an extent: digits or a known integer scalar");
      }
      take();
      e.dims.push_back(d);
      if (!accept(",")) break;
      if (at("]")) return expected("an extent after `,`");
    }
    if (!expect("]", "after the extents")) return false;
    if (peek().kind == TokenKind::word && peek().text == "range") {
      take();
      const auto lo = signed_integer();
      if (!lo || !expect("..", "between the ends of a range")) return false;
      const auto hi = signed_integer();
      if (!hi) return false;
      if (*lo > *hi) {
        message(diagnose_at(at_name, Code::leir_header, name, fmt::format("has the empty range {}..{}", *lo, *hi)));
        return false;
      }
      e.values = {{*lo, *hi}};
    }
    if (!expect(";", "at the end of a header entry")) return false;
    if (!declared_.insert(e.name).second) {
      message(diagnose_at(at_name, Code::leir_header, name, "is declared twice"));
      return true;
    }
    syntax().header.push_back(std::move(e));
    return true;
  }

  // The dtype behind a name; without a blank between them the longest dtype at the end of the word is meant.
  bool entry_type(std::string& name, Type& type) {
    std::string word;
    if (peek().kind == TokenKind::word) word = take().text;
    if (peek().kind == TokenKind::number && !peek().blank_before) word += take().text;
    if (const auto t = type_from_name(word)) {
      type = *t;
      return true;
    }
    if (word.empty() || word.find_first_not_of("0123456789") == std::string::npos) {
      const std::string joined = name + word;
      for (size_t i = 1; i < joined.size(); ++i)
        if (const auto t = type_from_name(std::string_view(joined).substr(i))) {
          type = *t;
          name = joined.substr(0, i);
          return true;
        }
    }
    return expected("a dtype (f16 f32 f64 bf16 i8 i16 i32 i64 u8 u16 u32 u64 bool)");
  }

  std::optional<int64_t> signed_integer() {
    const bool negative = accept("-");
    if (peek().kind != TokenKind::number) {
      expected("an integer");
      return std::nullopt;
    }
    const auto v = integer(peek());
    if (v) take();
    return v && negative ? std::optional(-*v) : v;
  }

  std::optional<int64_t> integer(const LeirToken& t) {
    int64_t v = 0;
    const auto [end, error] = std::from_chars(t.text.data(), t.text.data() + t.text.size(), v);
    if (error == std::errc() && end == t.text.data() + t.text.size()) return v;
    message(diagnose_at(t.range, Code::leir_number, t.text.substr(0, 40),
                        error == std::errc::result_out_of_range ? "is beyond 64 bits" : "is no integer"));
    return std::nullopt;
  }

  // program = [ header ], nest, { nest } ; item = equation, ";" | nest
  void body() {
    while (true) {
      if (syntax().nodes() > kMaxNodes) {
        message(diagnose_at(peek().range, Code::leir_too_large, kMaxNodes, "nodes"));
        return;
      }
      if (at_end()) break;
      if (nests_.empty()) {
        if (!at_kind()) {
          expected("a loop (L, P, V, U or B)");
          skip_to_nest();
          continue;
        }
        if (!begin_nest(false)) skip_to_nest();
        continue;
      }
      if (at("]")) {
        close();
        continue;
      }
      if (at_kind()) {
        if (!begin_nest(false)) recover();
        continue;
      }
      if (peek().kind != TokenKind::name) {
        expected("an equation, a nest or `]`");
        recover();
        continue;
      }
      if (!equation()) recover();
    }
    if (!nests_.empty()) {
      expected("`];`");
      while (!nests_.empty()) finish_nest();
    } else if (syntax().items.empty()) {
      expected("a nest");
    }
  }

  void skip_to_nest() {
    do take();
    while (!at_end() && !at_kind());
  }
  // Behind the next `;` of this body, or at its `]`.
  void recover() {
    int depth = 0;
    bool moved = false;
    while (!at_end()) {
      if (at("[")) ++depth;
      if (at("]")) {
        if (depth == 0) {
          if (moved || nests_.empty()) return;
          return;
        }
        --depth;
      } else if (at(";") && depth == 0) {
        take();
        return;
      }
      take();
      moved = true;
    }
  }

  // nest = loop, { loop }, "[" ... ; loop = kind, ( "^{" extent "}" "_{" index "=0}" in either order )      (D3)
  bool begin_nest(bool chained) {
    loops_.clear();
    const SourceRange start = peek().range;
    while (at_kind()) {
      Loop loop;
      if (!one_loop(loop)) return false;
      loops_.push_back(loop);
    }
    if (!at("[")) return expected("`[` or another loop");
    if (chained) chain(start);
    take();
    if (at("]")) expected("an equation or a nest: a body is not empty");
    nests_.push_back({syntax().begin_nest(loops_, start)});
    return true;
  }

  void chain(SourceRange where) {
    const Item& before = syntax().items[nests_.back().item];
    std::set<NameId> names;
    for (uint32_t i = 0; i < before.loops; ++i) names.insert(syntax().loops[before.first_loop + i].index);
    bool shared = false;
    for (const Loop& a : loops_) shared = shared || names.contains(a.index);
    if (shared)
      message(diagnose_at(where, Code::leir_missing_semicolon, "the next nest has loops of the same names"));
    else if (options_.strict)
      message(diagnose_at(where, Code::leir_missing_semicolon, "a nest right behind `]`"));
    else
      message(diagnose_at(where, Code::leir_chain));
  }

  bool one_loop(Loop& loop) {
    const LeirToken& k = take();
    loop.kind = *kind_of(k.text[0]);
    loop.range = k.range;
    bool extent = false, index = false;
    for (int part = 0; part < 2; ++part) {
      if (!extent && at("^")) {
        take();
        if (!expect("{", "before the extent")) return false;
        const SourceRange where = peek().range;
        const auto e = expression();
        if (!e) return false;
        if (!expect("}", "after the extent")) return false;
        const Expr& node = syntax().exprs[*e];
        if (node.op == Op::integer && node.integer == 0) {
          message(diagnose_at(where, Code::leir_number, "0", "is no extent: a loop has at least one iteration"));
        } else if (options_.paper && node.op != Op::integer) {
          message(diagnose_at(where, Code::leir_dialect, "an extent that is no number"));
        }
        loop.extent = *e;
        extent = true;
      } else if (!index && at("_")) {
        take();
        if (!expect("{", "before the index")) return false;
        if (peek().kind != TokenKind::word) return expected("an index");
        const LeirToken& name = take();
        loop.range = name.range;
        if (auto why = refuse_index(name.text)) {
          message(diagnose_at(name.range, Code::leir_reserved, name.text, "an index", *why));
        } else if (is_bound(name.text) != (loop.kind == Kind::bind)) {
          message(diagnose_at(name.range, Code::leir_reserved, name.text, fmt::format("a loop of kind {}", k.text),
                              loop.kind == Kind::bind ? "it wants bx by bz tx ty or tz and letters behind that"
                                                      : "words that begin with bx by bz tx ty tz are for kind B"));
        } else if (!handed_out(name.text)) {
          message(diagnose_at(name.range, Code::leir_letters, name.text));
        }
        loop.index = syntax().intern(name.text);
        if (!expect("=", "after the index")) return false;
        if (peek().kind != TokenKind::number || peek().text != "0") return expected("`0`: loops start at 0");
        take();
        if (!expect("}", "after the index")) return false;
        index = true;
      } else {
        return expected(extent ? "`_{index=0}`" : "`^{extent}`");
      }
    }
    return true;
  }

  void finish_nest() {
    syntax().end_nest(nests_.back().item);
    nests_.pop_back();
  }

  // Does closing this nest close everything?
  bool outermost() const {
    for (size_t i = nests_.size() - 1; i > 0; --i)
      if (!nests_[i - 1].ends_with_last) return false;
    return true;
  }

  // ( ";" | chain | end of text )
  void close() {
    take();  // ]
    if (at_kind()) {
      nests_.back().ends_with_last = true;
      if (!begin_nest(true)) {
        nests_.back().ends_with_last = false;
        finish_nest();
        recover();
      }
      return;
    }
    if (!accept(";") && !(at_end() && outermost()))
      message(diagnose_at(peek().range, Code::leir_missing_semicolon,
                          fmt::format("{} stands there", at_end() ? "the end of the text" : shown(peek()))));
    finish_nest();
    while (!nests_.empty() && nests_.back().ends_with_last) finish_nest();
  }

  // equation = tensor, "=", expr
  bool equation() {
    const SourceRange start = peek().range;
    const auto target = expression();
    if (!target) return false;
    if (syntax().exprs[*target].op != Op::tensor) {
      message(diagnose_at(start, Code::leir_expected, "a variable on the left of `=`", "an expression"));
      return false;
    }
    if (!expect("=", "after the target")) return false;
    const auto value = expression();
    if (!value) return false;
    syntax().equation(*target, *value, {start.begin, syntax().exprs[*value].range.end});
    if (at("(")) {
      std::string names;
      for (const FunctionInfo& f : all_functions()) names += (names.empty() ? "" : ", ") + std::string(f.name);
      message(diagnose_at(peek().range, Code::leir_expected, "`;` after the equation",
                          "`(` behind what is no function; functions are " + names));
      return false;
    }
    return expect(";", "after the equation");
  }

  // ---- expressions: or, and, cmp, sum, term, unary, power, primary as one operator stack -------------------------

  void reduce() {
    const Pending p = pending_.back();
    pending_.pop_back();
    auto pop = [&] {
      const ExprId e = operands_.back();
      operands_.pop_back();
      return e;
    };
    auto span_of = [&](ExprId a, ExprId b) {
      return SourceRange{syntax().exprs[a].range.begin, syntax().exprs[b].range.end};
    };
    if (p.op == Op::negate) {
      const ExprId a = pop();
      operands_.push_back(syntax().unary(a, {p.range.begin, syntax().exprs[a].range.end}));
    } else if (p.op == Op::compare) {
      const size_t n = p.comparisons + 1;
      const std::vector<ExprId> from(operands_.end() - static_cast<ptrdiff_t>(n), operands_.end());
      const std::vector<Comparison> by(comparisons_.end() - static_cast<ptrdiff_t>(p.comparisons), comparisons_.end());
      operands_.resize(operands_.size() - n);
      comparisons_.resize(comparisons_.size() - p.comparisons);
      operands_.push_back(syntax().compare(from, by, span_of(from.front(), from.back())));
    } else {
      const ExprId b = pop();
      const ExprId a = pop();
      operands_.push_back(syntax().binary(p.op, a, b, span_of(a, b)));
    }
  }
  // All operators above the innermost bracket that bind at least as tightly.
  void reduce_to(int least) {
    while (pending_.size() > base_ && pending_.back().open == Open::none && level(pending_.back().op) >= least)
      reduce();
  }

  std::optional<Op> binary_sign() const {
    if (peek().kind != TokenKind::sign) return std::nullopt;
#define BINARY(op, text_, level) \
  if (peek().text == text_) return Op::op;
#include "leir/language.def"
    if (peek().text == "**") return Op::power;
    return std::nullopt;
  }
  std::optional<Comparison> comparison_sign() const {
    if (peek().kind != TokenKind::sign) return std::nullopt;
#define COMPARISON(name, text_) \
  if (peek().text == text_) return Comparison::name;
#include "leir/language.def"
    return std::nullopt;
  }

  // tensor = name, ( meta, [ subs ] | subs, meta ); meta = "^{" dtype "," scope "}"
  bool meta(Pending& p) {
    take();  // ^
    if (!expect("{", "before the dtype")) return false;
    std::string word;
    if (peek().kind == TokenKind::word) word = take().text;
    if (peek().kind == TokenKind::number) word += take().text;
    const auto type = type_from_name(word);
    if (!type) {
      message(diagnose_at(peek().range, Code::leir_expected, "a dtype (f16 f32 f64 bf16 i8 ... u64 bool)",
                          fmt::format("`{}`", word.substr(0, 40))));
      return false;
    }
    p.type = *type;
    if (!expect(",", "between dtype and scope")) return false;
    bool known = false;
    if (peek().kind == TokenKind::word && peek().text.size() == 1) {
      switch (peek().text[0]) {
#define SCOPE(letter, name) \
  case letter:              \
    p.scope = Scope::name;  \
    known = true;           \
    break;
#include "leir/language.def"
        default: break;
      }
    }
    if (!known) return expected("a scope: g, s or l");
    take();
    p.has_meta = true;
    return expect("}", "after the scope");
  }

  bool begin_tensor() {
    const LeirToken& name = take();
    Pending p;
    p.open = Open::subscripts;
    p.range = name.range;
    if (auto why = refuse_variable(name.text))
      message(diagnose_at(name.range, Code::leir_reserved, name.text, "a variable", *why));
    p.name = syntax().intern(name.text);
    if (at("^") && !meta(p)) return false;
    if (at("_")) {
      take();
      if (!expect("{", "before the subscripts")) return false;
      if (at("}")) return expected("a subscript");
      p.operands = static_cast<uint32_t>(operands_.size());
      pending_.push_back(p);
      operand_next_ = true;
      return true;
    }
    if (!p.has_meta) return expected_meta(p, "`^{dtype,scope}` behind the name of a variable");
    finish_tensor(p, {});
    return true;
  }
  void finish_tensor(const Pending& p, std::span<const ExprId> subscripts) {
    operands_.push_back(syntax().tensor(p.name, p.type, p.scope, subscripts,
                                        {p.range.begin, lexed_.tokens[at_ ? at_ - 1 : 0].range.end}));
    operand_next_ = false;
  }

  bool begin_operand() {
    const LeirToken& t = peek();
    switch (t.kind) {
      case TokenKind::number: {
        const bool real = t.text.find_first_of(".eE") != std::string_view::npos;
        if (real) {
          double v = 0;
          const auto [end, error] = std::from_chars(t.text.data(), t.text.data() + t.text.size(), v);
          // A number too small for a double is 0 or the least one; one too large is refused.
          if (error == std::errc::result_out_of_range) v = std::strtod(std::string(t.text).c_str(), nullptr);
          if (std::isinf(v)) {
            message(diagnose_at(t.range, Code::leir_number, t.text.substr(0, 40), "is beyond the range of f64"));
            v = 0;
          }
          operands_.push_back(syntax().real(v, t.range));
        } else {
          const auto v = integer(t);
          operands_.push_back(syntax().integer(v.value_or(0), t.range));
        }
        take();
        operand_next_ = false;
        return true;
      }
      case TokenKind::word: {
        if (t.text == "inf") {
          operands_.push_back(syntax().infinity(t.range));
        } else {
          if (auto why = refuse_index(t.text))
            message(diagnose_at(t.range, Code::leir_reserved, t.text, "an index", *why));
          operands_.push_back(syntax().index(syntax().intern(t.text), t.range));
        }
        take();
        operand_next_ = false;
        return true;
      }
      case TokenKind::function: {
        Pending p;
        p.open = Open::call;
        p.range = t.range;
        for (size_t i = 0; i < all_functions().size(); ++i)
          if (t.text == all_functions()[i].name) p.function = static_cast<Function>(i);
        if (options_.paper && !info(p.function).paper)
          message(diagnose_at(t.range, Code::leir_dialect, fmt::format("the function `{}`", t.text)));
        take();
        take();  // (
        p.operands = static_cast<uint32_t>(operands_.size());
        pending_.push_back(p);
        return true;
      }
      case TokenKind::name: return begin_tensor();
      case TokenKind::sign:
        if (t.text == "-" || t.text == "+") {
          if (t.text == "-") {
            Pending p;
            p.op = Op::negate;
            p.range = t.range;
            pending_.push_back(p);
          }
          take();
          return true;
        }
        if (t.text == "(") {
          Pending p;
          p.open = Open::parenthesis;
          p.range = t.range;
          p.operands = static_cast<uint32_t>(operands_.size());
          pending_.push_back(p);
          take();
          return true;
        }
        break;
      case TokenKind::end: break;
    }
    return expected("an expression");
  }

  // Behind an operand: false when the expression ends here.
  enum class Step { go, stop, error };
  Step after_operand() {
    if (const auto c = comparison_sign()) {
      reduce_to(4);
      if (pending_.size() > base_ && pending_.back().open == Open::none && pending_.back().op == Op::compare) {
        ++pending_.back().comparisons;
      } else {
        Pending p;
        p.op = Op::compare;
        p.comparisons = 1;
        pending_.push_back(p);
      }
      comparisons_.push_back(*c);
      take();
      operand_next_ = true;
      return Step::go;
    }
    if (const auto op = binary_sign()) {
      // ** is right-associative and takes a unary on its right, so nothing is reduced before it.
      if (*op != Op::power) reduce_to(level(*op));
      Pending p;
      p.op = *op;
      pending_.push_back(p);
      take();
      operand_next_ = true;
      return Step::go;
    }
    reduce_to(0);
    if (pending_.size() == base_) return Step::stop;
    Pending& open = pending_.back();
    const size_t given = operands_.size() - open.operands;
    switch (open.open) {
      case Open::parenthesis:
        if (!at(")")) {
          expected("`)` or an operator");
          return Step::error;
        }
        take();
        pending_.pop_back();
        return Step::go;
      case Open::call: {
        const auto arity = static_cast<size_t>(info(open.function).arity);
        if (at(",") && given < arity) {
          take();
          operand_next_ = true;
          return Step::go;
        }
        if (!at(")") || given < arity) {
          expected(given < arity ? fmt::format("`,`: {} takes {} arguments", info(open.function).name, arity)
                                 : fmt::format("`)`: {} takes {} arguments", info(open.function).name, arity));
          return Step::error;
        }
        const SourceRange range{open.range.begin, take().range.end};
        const std::vector<ExprId> from(operands_.end() - static_cast<ptrdiff_t>(given), operands_.end());
        operands_.resize(open.operands);
        operands_.push_back(syntax().call(open.function, from, range));
        pending_.pop_back();
        return Step::go;
      }
      case Open::subscripts: {
        if (accept(",")) {
          operand_next_ = true;
          return Step::go;
        }
        if (!at("}")) {
          expected("`,` or `}`");
          return Step::error;
        }
        take();
        Pending p = open;
        pending_.pop_back();
        const std::vector<ExprId> from(operands_.begin() + p.operands, operands_.end());
        operands_.resize(p.operands);
        if (!p.has_meta) {
          if (!at("^")) {
            expected_meta(p, "`^{dtype,scope}` behind the subscripts");
            return Step::error;
          }
          if (!meta(p)) return Step::error;
        }
        finish_tensor(p, from);
        return Step::go;
      }
      case Open::none: break;
    }
    return Step::error;
  }

  std::optional<ExprId> expression() {
    operands_.clear();
    pending_.clear();
    comparisons_.clear();
    base_ = 0;
    operand_next_ = true;
    while (true) {
      if (syntax().exprs.size() > kMaxNodes) {
        message(diagnose_at(peek().range, Code::leir_too_large, kMaxNodes, "nodes"));
        at_ = lexed_.tokens.size() - 1;
        return std::nullopt;
      }
      if (operand_next_) {
        if (!begin_operand()) return std::nullopt;
        continue;
      }
      const Step s = after_operand();
      if (s == Step::error) return std::nullopt;
      if (s == Step::stop) return operands_.back();
    }
  }

  ParseOptions options_;
  Tokens lexed_;
  size_t at_ = 0;
  Parsed out_;
  size_t messages_ = 0;
  std::set<NameId> declared_;
  std::vector<OpenNest> nests_;
  std::vector<Loop> loops_;
  std::vector<ExprId> operands_;
  std::vector<Pending> pending_;
  std::vector<Comparison> comparisons_;
  size_t base_ = 0;
  bool operand_next_ = true;
};

}  // namespace

Parsed parse(const SourceText& source, const ParseOptions& options) { return LeirParser(source, options).run(); }

}  // namespace cleave::leir
