// The tokens of LEIR. Blanks carry no meaning: they are deleted first, with a map back to the text, so `1e -05` is one
// number; where that joins two words or digits there is a warning. Only the header (before the first kind letter) is
// split at blanks. `#` starts a comment that runs to the end of its line.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "leir/syntax.hpp"

namespace cleave::leir {

enum class TokenKind : uint8_t { number, word, function, name, sign, end };

struct LeirToken {
  TokenKind kind = TokenKind::end;
  bool blank_before = false;
  std::string_view text;  // of the text without blanks; lives as long as the Tokens
  SourceRange range;      // in the text as given
};

struct Tokens {
  std::unique_ptr<std::string> squeezed = std::make_unique<std::string>();  // without blanks and comments
  std::vector<LeirToken> tokens;
  Diagnostics messages;
  bool too_large = false;
};

// Always ends with an `end` token.
Tokens lex(const SourceText& source);

}  // namespace cleave::leir
