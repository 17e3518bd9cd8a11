#include "sym/text.hpp"

#include "base/codes.hpp"

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

std::string range_fault(int64_t low, int64_t high, int64_t most, std::optional<int64_t> typical) {
  if (low > high) return fmt::format("the range {}..{} ends before it begins", low, high);
  if (low < 0 || high > most) return fmt::format("the range {}..{} is not within 0..{}", low, high, most);
  if (typical && (*typical < low || *typical > high))
    return fmt::format("the typical value {} lies outside {}..{}", *typical, low, high);
  return "";
}

std::optional<Expr> parse_dim(TokenCursor& c, Pool& pool) {
  const Token at = c.peek();
  const auto n = c.expect_identifier("the name of a dimension");
  if (!n || !c.expect("in")) return std::nullopt;
  const auto lo = c.expect_integer("a number");
  if (!lo || !c.expect("..")) return std::nullopt;
  const auto hi = c.expect_integer("a number");
  if (!hi) return std::nullopt;
  std::optional<int64_t> typical;
  if (c.accept("at")) {
    typical = c.expect_integer("a number");
    if (!typical) return std::nullopt;
  }
  if (const std::string fault = range_fault(*lo, *hi, int64_t{1} << 31, typical); !fault.empty()) {
    c.fail(diagnose_at(at.range, Code::bad_shape, *n, fault));
    return std::nullopt;
  }
  if (pool.find_symbol(*n)) {
    c.fail(diagnose_at(at.range, Code::duplicate_name, *n));
    return std::nullopt;
  }
  const Expr symbol = pool.symbol(*n, {*lo, *hi});
  if (typical) pool.set_typical(symbol, *typical);
  return symbol;
}

std::string print_dim(const Pool& pool, Expr dim) {
  const Interval r = pool.symbol_range(dim);
  std::string out = fmt::format("dim {} in {}..{}", pool.symbol_name(dim), r.lo, r.hi);
  if (const int64_t typical = pool.typical(dim); typical != r.hi) out += fmt::format(" at {}", typical);
  return out;
}

}  // namespace cleave::sym
