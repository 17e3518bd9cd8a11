#include "base/lexer.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "base/codes.hpp"

namespace cleave {

namespace {

constexpr std::array<std::string_view, 16> kLongPunctuation = {"->", "..", "==", "!=", "<=", ">=", "&&", "||",
                                                               "+=", "*=", "|=", "&=", "<-", ":=", "::", "//"};
constexpr std::string_view kShortPunctuation = "()[]{}<>,;:=+-*/%|&!?@.^~$";

bool is_name_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool is_name(char c) { return is_name_start(c) || std::isdigit(static_cast<unsigned char>(c)); }
bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)); }

}  // namespace

Result<std::vector<Token>> tokenize(const SourceText& source) {
  const std::string_view s = source.text;
  if (s.size() > kMaxTextBytes) return diagnose(Code::text_too_large, s.size(), kMaxTextBytes);
  std::vector<Token> tokens;
  size_t i = 0;
  bool newline = true;
  auto push = [&](TokenKind kind, size_t begin, size_t end) {
    tokens.push_back({kind, s.substr(begin, end - begin),
                      SourceRange{static_cast<uint32_t>(begin), static_cast<uint32_t>(end)}, newline});
    newline = false;
    i = end;
  };
  while (i < s.size()) {
    const char c = s[i];
    if (c == '\n') {
      newline = true;
      ++i;
    } else if (c == ' ' || c == '\t' || c == '\r') {
      ++i;
    } else if (c == '#') {
      while (i < s.size() && s[i] != '\n') ++i;
    } else if (is_name_start(c)) {
      size_t e = i + 1;
      while (e < s.size() && (is_name(s[e]) || (s[e] == '.' && e + 1 < s.size() && is_name(s[e + 1])))) ++e;
      push(TokenKind::identifier, i, e);
    } else if (is_digit(c)) {
      size_t e = i;
      bool real = false;
      if (c == '0' && e + 1 < s.size() && (s[e + 1] == 'x' || s[e + 1] == 'X')) {
        e += 2;
        while (e < s.size() && std::isxdigit(static_cast<unsigned char>(s[e]))) ++e;
      } else {
        while (e < s.size() && is_digit(s[e])) ++e;
        if (e + 1 < s.size() && s[e] == '.' && is_digit(s[e + 1])) {
          real = true;
          ++e;
          while (e < s.size() && is_digit(s[e])) ++e;
        }
        if (e < s.size() && (s[e] == 'e' || s[e] == 'E')) {
          size_t x = e + 1;
          if (x < s.size() && (s[x] == '+' || s[x] == '-')) ++x;
          if (x < s.size() && is_digit(s[x])) {
            real = true;
            e = x;
            while (e < s.size() && is_digit(s[e])) ++e;
          }
        }
      }
      push(real ? TokenKind::real : TokenKind::integer, i, e);
    } else if (c == '"') {
      size_t e = i + 1;
      while (e < s.size() && s[e] != '"' && s[e] != '\n') e += (s[e] == '\\' && e + 1 < s.size()) ? 2 : 1;
      if (e >= s.size() || s[e] != '"')
        return diagnose_at({static_cast<uint32_t>(i), static_cast<uint32_t>(std::min(e, s.size()))},
                           Code::unterminated_string);
      push(TokenKind::string, i, e + 1);
    } else {
      size_t length = 0;
      for (auto p : kLongPunctuation)
        if (s.substr(i, 2) == p) length = 2;
      if (!length && kShortPunctuation.find(c) != std::string_view::npos) length = 1;
      if (!length) {
        const std::string shown = std::isprint(static_cast<unsigned char>(c))
                                      ? fmt::format("`{}`", c)
                                      : fmt::format("0x{:02x}", static_cast<unsigned char>(c));
        return diagnose_at({static_cast<uint32_t>(i), static_cast<uint32_t>(i + 1)}, Code::bad_character, shown);
      }
      push(TokenKind::punctuation, i, i + length);
    }
  }
  push(TokenKind::end, s.size(), s.size());
  return tokens;
}

bool TokenCursor::expect(std::string_view text) {
  if (accept(text)) return true;
  fail_expected(fmt::format("`{}`", text));
  return false;
}

void TokenCursor::fail_expected(std::string_view what) {
  const Token& t = peek();
  constexpr size_t kShown = 40;
  const std::string found =
      t.kind == TokenKind::end ? std::string("end of text") : fmt::format("`{}`", t.text.substr(0, kShown));
  fail(diagnose_at(t.range, Code::unexpected_token, found, what));
}

void TokenCursor::fail(Diagnostic diagnostic) {
  if (!errors_.empty()) return;
  if (!diagnostic.range) diagnostic.range = peek().range;
  errors_.push_back(std::move(diagnostic));
}

std::optional<std::string> TokenCursor::expect_identifier(std::string_view what) {
  if (peek().kind != TokenKind::identifier) {
    fail_expected(what);
    return std::nullopt;
  }
  return std::string(take().text);
}

std::optional<int64_t> TokenCursor::expect_integer(std::string_view what) {
  const bool negative = accept("-");
  if (peek().kind != TokenKind::integer) {
    fail_expected(what);
    return std::nullopt;
  }
  const Token t = take();
  std::string_view digits = t.text;
  int base = 10;
  if (digits.size() > 2 && (digits[1] == 'x' || digits[1] == 'X')) {
    digits.remove_prefix(2);
    base = 16;
  }
  uint64_t magnitude = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), magnitude, base);
  const uint64_t limit = uint64_t{1} << 63;
  if (error != std::errc() || end != digits.data() + digits.size() || magnitude > (negative ? limit : limit - 1)) {
    fail(diagnose_at(t.range, Code::number_out_of_range, t.text.substr(0, 40), "64 bits"));
    return std::nullopt;
  }
  return negative ? static_cast<int64_t>(~magnitude + 1) : static_cast<int64_t>(magnitude);
}

std::optional<double> TokenCursor::expect_number(std::string_view what) {
  const bool negative = accept("-");
  const Token& t = peek();
  double value = 0;
  if (t.kind == TokenKind::identifier && (t.text == "inf" || t.text == "nan")) {
    value = t.text == "inf" ? HUGE_VAL : std::nan("");
  } else if (t.kind == TokenKind::integer || t.kind == TokenKind::real) {
    value = std::strtod(std::string(t.text).c_str(), nullptr);
    // A whole number that would silently become its neighbour.
    uint64_t whole = 0;
    const auto [end, error] = std::from_chars(t.text.data(), t.text.data() + t.text.size(), whole);
    if (t.kind == TokenKind::integer && error == std::errc() && end == t.text.data() + t.text.size() &&
        (value >= 0x1p64 || static_cast<uint64_t>(value) != whole)) {
      fail(diagnose_at(t.range, Code::number_out_of_range, t.text,
                       "the 53 bits of a number here (an integer constant holds all 64)"));
      return std::nullopt;
    }
  } else {
    fail_expected(what);
    return std::nullopt;
  }
  take();
  return negative ? -value : value;
}

std::optional<std::string> TokenCursor::expect_string(std::string_view what) {
  if (peek().kind != TokenKind::string) {
    fail_expected(what);
    return std::nullopt;
  }
  const std::string_view raw = take().text;
  std::string out;
  for (size_t i = 1; i + 1 < raw.size(); ++i) {
    if (raw[i] != '\\') {
      out += raw[i];
      continue;
    }
    ++i;
    out += raw[i] == 'n' ? '\n' : raw[i] == 't' ? '\t' : raw[i];
  }
  return out;
}

bool TokenCursor::enter() {
  constexpr int kMaxDepth = 200;
  if (++depth_ <= kMaxDepth) return true;
  fail(diagnose(Code::nesting_too_deep, kMaxDepth));
  return false;
}

std::string print_number(double value, bool real) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  std::string out(buffer, end);
  if (real && out.find_first_of(".e") == std::string::npos) out += ".0";
  return out;
}

}  // namespace cleave
