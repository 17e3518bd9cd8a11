// Parses symbolic integers: the inverse of Pool::print.
#pragma once

#include <functional>
#include <optional>

#include "base/lexer.hpp"
#include "sym/sym.hpp"

namespace cleave::sym {

//   expr   := term { ("+" | "-") term }
//   term   := unary { ("*" | "//" | "%") unary }
//   unary  := "-" unary | integer | name | "(" expr ")" | ("min" | "max") "(" expr "," expr ")"
//
// `lookup` gives the symbol of a name, or nullopt (an undefined_name error is recorded). On failure the cursor holds
// the diagnostic and nullopt is returned.
std::optional<Expr> parse_expr(TokenCursor& cursor, Pool& pool,
                               const std::function<std::optional<Expr>(const std::string&)>& lookup);

}  // namespace cleave::sym
