#include "tile/expression_text.hpp"

#include <algorithm>

#include "base/codes.hpp"
#include "base/match.hpp"
#include "sym/text.hpp"

namespace cleave::tile {

std::string print_name(const std::string& name) {
  const bool plain = !name.empty() && name != "inf" && name != "nan" && !(name[0] >= '0' && name[0] <= '9') &&
                     std::all_of(name.begin(), name.end(),
                                 [](char c) { return c == '_' || std::isalnum(static_cast<unsigned char>(c)); });
  if (plain) return name;
  std::string out = "\"";
  for (char c : name) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out + "\"";
}

std::optional<std::string> expect_name(TokenCursor& cursor, std::string_view what) {
  if (cursor.peek().kind == TokenKind::string) return cursor.expect_string(what);
  return cursor.expect_identifier(what);
}

std::string print_list(const sym::Pool& syms, std::span<const Expr> list) {
  std::string s;
  for (Expr e : list) s += (s.empty() ? "" : ", ") + syms.print(e);
  return "[" + s + "]";
}

ExpressionPrinter::ExpressionPrinter(const sym::Pool& syms, std::span<const Node> nodes, std::span<const NodeId> roots,
                                     TensorName name_of)
    : syms_(syms), nodes_(nodes), name_of_(std::move(name_of)), names_(nodes.size()) {
  const std::vector<bool> live = reachable(nodes, roots);
  std::vector<int> uses(nodes.size());
  for (NodeId r : roots) ++uses[r.index];
  for (size_t i = 0; i < nodes.size(); ++i)
    if (live[i]) for_each_operand(nodes[i], [&](NodeId o) { ++uses[o.index]; });
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (uses[i] < 2 || std::holds_alternative<Literal>(nodes[i].what)) continue;
    const std::string text = expression(nodes[i]);
    names_[i] = fmt::format("%{}", definitions_.size());
    definitions_.push_back(fmt::format("{} = {}", names_[i], text));
  }
}

std::string ExpressionPrinter::show(NodeId id) const {
  return names_[id.index].empty() ? expression(nodes_[id.index]) : names_[id.index];
}

std::string ExpressionPrinter::expression(const Node& x) const {
  return match(
      x.what,
      [&](const Load& l) {
        std::string s;
        for (const Index& i : l.at) {
          s += s.empty() ? "" : ", ";
          if (!i.dynamic.valid())
            s += syms_.print(i.affine);
          else if (syms_.is(i.affine, 0))
            s += "@" + show(i.dynamic);
          else
            s += syms_.print(i.affine) + " @ " + show(i.dynamic);
        }
        s = print_name(name_of_(l.buffer)) + "[" + s + "]";
        if (l.guard.valid()) s += " if (" + show(l.guard) + ")";
        return s;
      },
      [&](const Literal& l) {
        return is_real(x.dtype) ? fmt::format("{}:{}", print_number(l.value), name(x.dtype))
                                : fmt::format("{}:{}", real_to_integer(x.dtype, l.value), name(x.dtype));
      },
      [&](const IndexValue& v) { return fmt::format("index({})", syms_.print(v.value)); },
      [&](const Apply& a) {
        std::string s;
        for (NodeId o : a.operands) s += (s.empty() ? "" : ", ") + show(o);
        return fmt::format("{}({})", info(a.fn).name, s);
      },
      [&](const Cast& c) { return fmt::format("cast({}, {})", show(c.operand), name(x.dtype)); });
}

std::optional<Expr> ExpressionParser::expr() { return sym::parse_expr(c_, syms_, find_symbol_); }

bool ExpressionParser::list(std::vector<Expr>& out) {
  if (!c_.expect("[")) return false;
  if (c_.accept("]")) return true;
  do {
    const auto e = expr();
    if (!e) return false;
    out.push_back(*e);
  } while (c_.accept(","));
  return c_.expect("]");
}

std::optional<DType> ExpressionParser::dtype() {
  const Token t = c_.peek();
  const auto word = c_.expect_identifier("a dtype");
  if (!word) return std::nullopt;
  const auto d = dtype_from_name(*word);
  if (!d) c_.fail(diagnose_at(t.range, Code::unknown_dtype, *word));
  return d;
}

std::optional<std::pair<BufferId, DType>> ExpressionParser::tensor() {
  const Token t = c_.peek();
  const auto n = expect_name(c_, "a tensor");
  if (!n) return std::nullopt;
  const auto found = find_tensor_(*n);
  if (!found) c_.fail(diagnose_at(t.range, Code::undefined_name, *n));
  return found;
}

NodeId ExpressionParser::add(ExpressionScope& scope, Node node) {
  scope.nodes.push_back(std::move(node));
  return NodeId(static_cast<uint32_t>(scope.nodes.size() - 1));
}

bool ExpressionParser::definitions(ExpressionScope& scope) {
  while (c_.accept("%")) {
    const auto i = c_.expect_integer("a node");
    if (!i || !c_.expect("=")) return false;
    const auto x = node(scope);
    if (!x) return false;
    scope.names[*i] = *x;
  }
  return true;
}

std::optional<NodeId> ExpressionParser::node(ExpressionScope& scope) {
  if (!c_.enter()) return std::nullopt;
  auto r = node_body(scope);
  c_.leave();
  return r;
}

std::optional<NodeId> ExpressionParser::node_body(ExpressionScope& scope) {
  const Token t = c_.peek();
  if (c_.accept("%")) {
    const auto i = c_.expect_integer("a node");
    if (!i) return std::nullopt;
    auto it = scope.names.find(*i);
    if (it == scope.names.end()) {
      c_.fail(diagnose_at(t.range, Code::undefined_name, fmt::format("%{}", *i)));
      return std::nullopt;
    }
    return it->second;
  }
  if (c_.peek(1).text == "[" && (t.kind == TokenKind::identifier || t.kind == TokenKind::string)) return load(scope);
  if (t.kind != TokenKind::identifier || t.text == "inf" || t.text == "nan") {
    const auto v = c_.expect_number("an expression");
    if (!v || !c_.expect(":")) return std::nullopt;
    const auto d = dtype();
    if (!d) return std::nullopt;
    return add(scope, {*d, Literal{*v}});
  }
  return call(scope);
}

std::optional<NodeId> ExpressionParser::load(ExpressionScope& scope) {
  const auto b = tensor();
  if (!b) return std::nullopt;
  Load l{b->first, {}, {}};
  c_.take();
  while (!c_.at("]")) {
    Index i{syms_.constant(0), {}};
    if (!c_.at("@")) {
      const auto e = expr();
      if (!e) return std::nullopt;
      i.affine = *e;
    }
    if (c_.accept("@")) {
      const auto d = node(scope);
      if (!d) return std::nullopt;
      i.dynamic = *d;
    }
    l.at.push_back(i);
    if (!c_.accept(",") && !c_.at("]")) {
      c_.fail_expected("`,` or `]`");
      return std::nullopt;
    }
  }
  c_.take();
  if (c_.at("if") && c_.peek(1).text == "(") {
    c_.take();
    c_.take();
    const auto g = node(scope);
    if (!g || !c_.expect(")")) return std::nullopt;
    l.guard = *g;
  }
  return add(scope, {compute_type(b->second), std::move(l)});
}

std::optional<NodeId> ExpressionParser::call(ExpressionScope& scope) {
  const Token t = c_.take();
  const std::string fn(t.text);
  if (!c_.expect("(")) return std::nullopt;
  if (fn == "index") {
    const auto e = expr();
    if (!e || !c_.expect(")")) return std::nullopt;
    return add(scope, {DType::i64, IndexValue{*e}});
  }
  if (fn == "cast") {
    const auto x = node(scope);
    if (!x || !c_.expect(",")) return std::nullopt;
    const auto d = dtype();
    if (!d || !c_.expect(")")) return std::nullopt;
    return add(scope, {*d, Cast{*x}});
  }
  const auto f = fn_from_name(fn);
  if (!f) {
    c_.fail(diagnose_at(t.range, Code::unknown_operator, fn));
    return std::nullopt;
  }
  Apply a{*f, {}};
  do {
    const auto x = node(scope);
    if (!x) return std::nullopt;
    a.operands.push_back(*x);
  } while (c_.accept(","));
  if (!c_.expect(")")) return std::nullopt;
  if (static_cast<int>(a.operands.size()) != info(*f).arity) {
    c_.fail(diagnose_at(t.range, Code::wrong_arity, fn, info(*f).arity, a.operands.size()));
    return std::nullopt;
  }
  const DType first = compute_type(scope.nodes[a.operands[*f == Fn::where ? 1 : 0].index].dtype);
  return add(scope, {result_dtype(*f, first), std::move(a)});
}

}  // namespace cleave::tile
