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

//   dim := "dim" NAME "in" INT ".." INT ["at" INT]      a run-time extent: its range and its typical value
//
// After the word `dim`. The range is within 0..2^31; the typical value within the range.
std::optional<Expr> parse_dim(TokenCursor& cursor, Pool& pool);
// Why low..high is no range of extents up to `most`, or `typical` no value of it; empty if they are.
std::string range_fault(int64_t low, int64_t high, int64_t most, std::optional<int64_t> typical = std::nullopt);
std::string print_dim(const Pool& pool, Expr dim);

}  // namespace cleave::sym
