// One tokenizer for all of the project's text forms (graph, itgraph, tile, vec).
//
// Tokens: identifiers [A-Za-z_][A-Za-z0-9_.]*, integers, floats (with exponent, hexadecimal floats, `inf`, `nan` are
// identifiers), strings in double quotes with \n \t \" \\, and punctuation, the longest of the list in lexer.cpp first.
// `#` starts a comment that runs to the end of the line. Newlines are not tokens, but each token says whether one
// precedes it. The Parser base class has the cursor and the error helpers; errors never throw, the first one in a
// statement is kept and parsing stops there.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.hpp"

namespace cleave {

enum class TokenKind { identifier, integer, real, string, punctuation, end };

struct Token {
  TokenKind kind;
  std::string_view text;  // a slice of the source; strings include their quotes
  SourceRange range;
  bool after_newline = false;
};

constexpr size_t kMaxTextBytes = size_t{64} << 20;

// Splits a text; at most kMaxTextBytes. The source must outlive the tokens.
Result<std::vector<Token>> tokenize(const SourceText& source);

// A cursor over tokens with one-token lookahead. Methods that `expect` record a diagnostic and return nullopt/false.
class TokenCursor {
 public:
  explicit TokenCursor(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(position_ + ahead, tokens_.size() - 1)]; }
  Token take() {
    Token t = peek();
    if (position_ + 1 < tokens_.size()) ++position_;
    return t;
  }
  bool at_end() const { return peek().kind == TokenKind::end; }
  bool at(std::string_view text) const {
    const Token& t = peek();
    return (t.kind == TokenKind::punctuation || t.kind == TokenKind::identifier) && t.text == text;
  }
  bool accept(std::string_view text) {
    if (!at(text)) return false;
    take();
    return true;
  }
  bool expect(std::string_view text);
  std::optional<std::string> expect_identifier(std::string_view what);
  std::optional<int64_t> expect_integer(std::string_view what);  // an optional '-' is accepted
  std::optional<double> expect_number(std::string_view what);    // integer, real, inf, nan, with an optional '-'
  std::optional<std::string> expect_string(std::string_view what);

  // Records an error at the current token (or the given range); the first one wins.
  void fail_expected(std::string_view what);
  void fail(Diagnostic diagnostic);
  bool failed() const { return !errors_.empty(); }
  const Diagnostics& errors() const { return errors_; }

  // Nesting guard: `if (!cursor.enter()) return ...; ... cursor.leave();`
  bool enter();
  void leave() { --depth_; }

 private:
  std::vector<Token> tokens_;
  size_t position_ = 0;
  int depth_ = 0;
  Diagnostics errors_;
};

// The shortest decimal text that reads back as the same double ("inf", "-inf", "nan" included; always distinguishable
// from an integer when `real` is set).
std::string print_number(double value, bool real = true);

}  // namespace cleave
