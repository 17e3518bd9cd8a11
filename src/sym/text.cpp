#include "sym/text.hpp"

namespace cleave::sym {

namespace {

struct Parser {
  TokenCursor& cursor;
  Pool& pool;
  const std::function<std::optional<Expr>(const std::string&)>& lookup;

  std::optional<Expr> sum() {
    if (!cursor.enter()) return std::nullopt;
    auto left = term();
    while (left && (cursor.at("+") || cursor.at("-"))) {
      const bool plus = cursor.take().text == "+";
      const auto right = term();
      if (!right) return std::nullopt;
      left = plus ? pool.add(*left, *right) : pool.sub(*left, *right);
    }
    cursor.leave();
    return left;
  }

  std::optional<Expr> term() {
    auto left = unary();
    while (left && (cursor.at("*") || cursor.at("//") || cursor.at("%"))) {
      const auto op = cursor.take().text;
      const auto right = unary();
      if (!right) return std::nullopt;
      left = op == "*" ? pool.mul(*left, *right) : op == "//" ? pool.floordiv(*left, *right) : pool.mod(*left, *right);
    }
    return left;
  }

  std::optional<Expr> unary() {
    if (cursor.at("-")) {
      // A literal keeps its sign so that the whole 64-bit range can be written.
      if (cursor.peek(1).kind == TokenKind::integer) return literal();
      cursor.take();
      if (!cursor.enter()) return std::nullopt;
      const auto e = unary();
      cursor.leave();
      if (!e) return std::nullopt;
      return pool.mul(*e, -1);
    }
    if (cursor.peek().kind == TokenKind::integer) return literal();
    if (cursor.accept("(")) {
      const auto e = sum();
      if (!e || !cursor.expect(")")) return std::nullopt;
      return e;
    }
    if ((cursor.at("min") || cursor.at("max")) && cursor.peek(1).text == "(") {
      const bool is_min = cursor.take().text == "min";
      cursor.take();
      const auto a = sum();
      if (!a || !cursor.expect(",")) return std::nullopt;
      const auto b = sum();
      if (!b || !cursor.expect(")")) return std::nullopt;
      return is_min ? pool.min(*a, *b) : pool.max(*a, *b);
    }
    const Token token = cursor.peek();
    const auto name = cursor.expect_identifier("an integer expression");
    if (!name) return std::nullopt;
    const auto symbol = lookup(*name);
    if (!symbol) cursor.fail(diagnose_at(token.range, Code::undefined_name, *name));
    return symbol;
  }

  std::optional<Expr> literal() {
    const auto v = cursor.expect_integer("an integer");
    if (!v) return std::nullopt;
    return pool.constant(*v);
  }
};

}  // namespace

std::optional<Expr> parse_expr(TokenCursor& cursor, Pool& pool,
                               const std::function<std::optional<Expr>(const std::string&)>& lookup) {
  return Parser{cursor, pool, lookup}.sum();
}

}  // namespace cleave::sym
