#include "leir/lex.hpp"

#include <algorithm>
#include <array>

#include "base/codes.hpp"

namespace cleave::leir {

namespace {

bool lower(char c) { return c >= 'a' && c <= 'z'; }
bool upper(char c) { return c >= 'A' && c <= 'Z'; }
bool digit(char c) { return c >= '0' && c <= '9'; }
bool blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v'; }
bool joins(char a, char b) {
  const bool word = (lower(a) || upper(a) || digit(a) || a == '.') && (lower(b) || upper(b) || digit(b) || b == '.');
  const bool sign =
      (a == '*' && b == '*') || (a == '/' && b == '/') || ((a == '<' || a == '>' || a == '=' || a == '!') && b == '=');
  // "1e -05": the sign of an exponent
  return word || sign;
}

// Signs of more than one character; the longest first.
constexpr std::string_view kSigns[] = {"**", "//", "<=", ">=", "==", "!=", ".."};
constexpr std::string_view kSingle = "^_{}[](),;=+-*/%<>&|";

std::string shown(char c) {
  const auto u = static_cast<unsigned char>(c);
  return u >= 0x20 && u < 0x7f ? fmt::format("`{}`", c) : fmt::format("0x{:02x}", u);
}

class Lexer {
 public:
  explicit Lexer(const SourceText& source) : source_(source) {}

  Tokens run() {
    if (source_.text.size() > kMaxBytes) {
      out_.too_large = true;
      out_.messages.push_back(diagnose(Code::leir_too_large, kMaxBytes, "bytes"));
    } else {
      squeeze();
      split();
    }
    LeirToken end;
    end.text = "the end of the text";
    end.range = {static_cast<uint32_t>(source_.text.size()), static_cast<uint32_t>(source_.text.size())};
    out_.tokens.push_back(end);
    return std::move(out_);
  }

 private:
  void message(Diagnostic d) {
    if (out_.messages.size() < kMaxMessages) out_.messages.push_back(std::move(d));
  }

  void squeeze() {
    const std::string& in = source_.text;
    std::string& s = *out_.squeezed;
    s.reserve(in.size());
    where_.reserve(in.size());
    bool gap = false, body = false;
    for (size_t i = 0; i < in.size(); ++i) {
      if (blank(in[i])) {
        gap = true;
        continue;
      }
      if (in[i] == '#') {
        while (i < in.size() && in[i] != '\n') ++i;
        gap = true;
        continue;
      }
      // A kind letter before `^` or `_` ends the header.
      if (!body && (in[i] == '^' || in[i] == '_') && !s.empty() && upper(s.back())) body = true;
      if (gap && !s.empty() && body && joins(s.back(), in[i]) && (in[i] != '.' || s.back() != '.'))
        message(diagnose_at({static_cast<uint32_t>(i), static_cast<uint32_t>(i + 1)}, Code::leir_blank,
                            std::string(1, s.back()), std::string(1, in[i])));
      if (gap && !s.empty() && body && (in[i] == '-' || in[i] == '+') && s.size() > 1 && s.back() == 'e' &&
          digit(s[s.size() - 2]))
        message(diagnose_at({static_cast<uint32_t>(i), static_cast<uint32_t>(i + 1)}, Code::leir_blank, "e",
                            std::string(1, in[i])));
      gap_.push_back(gap);
      gap = false;
      s += in[i];
      where_.push_back(static_cast<uint32_t>(i));
    }
  }

  // In the header a token ends at a blank.
  size_t extend(size_t i, bool (*belongs)(char)) const {
    const std::string& s = *out_.squeezed;
    size_t j = i + 1;
    while (j < s.size() && belongs(s[j]) && !(header_ && gap_[j])) ++j;
    return j;
  }

  size_t number(size_t i) const {
    const std::string& s = *out_.squeezed;
    size_t j = extend(i, digit);
    if (j + 1 < s.size() && s[j] == '.' && digit(s[j + 1])) j = extend(j + 1, digit);
    if (j < s.size() && (s[j] == 'e' || s[j] == 'E') && !header_) {
      size_t k = j + 1;
      if (k < s.size() && (s[k] == '+' || s[k] == '-')) ++k;
      if (k < s.size() && digit(s[k])) j = extend(k, digit);
    }
    return j;
  }

  // The longest of the functions that stands here before `(`.
  size_t function(size_t i) const {
    const std::string& s = *out_.squeezed;
    size_t best = 0;
    size_t j = i;
    while (j < s.size() && j - i < 16 && (lower(s[j]) || digit(s[j]) || s[j] == '_')) ++j;
    if (j < s.size() && s[j] == '(') {
      const std::string_view word(s.data() + i, j - i);
      for (const FunctionInfo& f : all_functions())
        if (word == f.name) best = j;
    }
    return best;
  }

  void split() {
    const std::string& s = *out_.squeezed;
    size_t i = 0;
    while (i < s.size()) {
      LeirToken t;
      size_t j = i + 1;
      if (digit(s[i])) {
        t.kind = TokenKind::number;
        j = number(i);
      } else if (lower(s[i])) {
        const size_t f = function(i);
        t.kind = f ? TokenKind::function : TokenKind::word;
        j = f ? f : extend(i, lower);
      } else if (upper(s[i])) {
        t.kind = TokenKind::name;
        j = extend(i, lower);
        if (header_ && j < s.size() && (s[j] == '^' || s[j] == '_')) header_ = false;
      } else {
        t.kind = TokenKind::sign;
        bool found = false;
        for (std::string_view sign : kSigns)
          if (!found && s.compare(i, sign.size(), sign) == 0) {
            j = i + sign.size();
            found = true;
          }
        if (!found && kSingle.find(s[i]) == std::string_view::npos) {
          message(diagnose_at({where_[i], where_[i] + 1}, Code::leir_character, shown(s[i])));
          ++i;
          continue;
        }
      }
      t.blank_before = gap_[i];
      t.text = std::string_view(s).substr(i, j - i);
      t.range = {where_[i], where_[j - 1] + 1};
      out_.tokens.push_back(t);
      i = j;
    }
  }

  const SourceText& source_;
  Tokens out_;
  std::vector<uint32_t> where_;
  std::vector<bool> gap_;
  bool header_ = true;
};

}  // namespace

Tokens lex(const SourceText& source) { return Lexer(source).run(); }

}  // namespace cleave::leir
