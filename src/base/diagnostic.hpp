// Diagnostics: what a user is told when a text, a model, a shape or an option is wrong.
//
// Each has a code from diagnostics.def (stable number, message template, hint), the parameters of the template, an
// optional place in a source text, and notes. Rendering happens in one place: render().
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/check.hpp"

namespace cleave {

enum class Severity { note, warning, error };

enum class Code : int;  // base/codes.hpp names them: a new message rebuilds only the files that report some

struct CodeInfo {
  Code code;
  const char* name;
  int number;
  Severity severity;
  const char* text;
  const char* hint;
};
const CodeInfo& info(Code code);
const std::vector<CodeInfo>& all_codes();

// A half-open byte range of a source text.
struct SourceRange {
  uint32_t begin = 0;
  uint32_t end = 0;
};

struct Diagnostic {
  Code code;
  std::vector<std::string> parameters;
  std::optional<SourceRange> range;
  std::vector<std::string> notes;
  std::string hint;  // overrides the hint of the code when not empty

  std::string message() const;  // the text with its parameters filled in
};

using Diagnostics = std::vector<Diagnostic>;

template <class... Args>
Diagnostic diagnose(Code code, const Args&... args) {
  return Diagnostic{code, {fmt::format("{}", args)...}, std::nullopt, {}, {}};
}
template <class... Args>
Diagnostic diagnose_at(SourceRange range, Code code, const Args&... args) {
  Diagnostic d = diagnose(code, args...);
  d.range = range;
  return d;
}

// A text with the name it is reported under; finds lines for carets.
struct SourceText {
  std::string name;
  std::string text;

  struct Position {
    int line;    // from 1
    int column;  // from 1, in bytes
    std::string_view line_text;
  };
  Position position(uint32_t offset) const;
};

// "name:line:col: error[CLV1001]: text", the line with a caret, notes and the hint. `source` may be null.
std::string render(const Diagnostic& diagnostic, const SourceText* source);
std::string render(const Diagnostics& diagnostics, const SourceText* source);

// A value, or the diagnostics that say why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Diagnostic d) : state_(std::in_place_index<1>, Diagnostics{std::move(d)}) {}
  Result(Diagnostics ds) : state_(std::in_place_index<1>, std::move(ds)) {
    CHECK(!std::get<1>(state_).empty(), "an empty list of diagnostics is no error");
  }
  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & {
    CHECK(ok(), "{}", render(errors(), nullptr));
    return std::get<0>(state_);
  }
  const T& value() const& {
    CHECK(ok(), "{}", render(errors(), nullptr));
    return std::get<0>(state_);
  }
  T&& value() && {
    CHECK(ok(), "{}", render(errors(), nullptr));
    return std::get<0>(std::move(state_));
  }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  const Diagnostics& errors() const { return std::get<1>(state_); }

 private:
  std::variant<T, Diagnostics> state_;
};

}  // namespace cleave

// Binds the value of a Result, or returns its diagnostics from the enclosing function.
#define CLEAVE_CONCAT_(a, b) a##b
#define CLEAVE_CONCAT(a, b) CLEAVE_CONCAT_(a, b)
#define TRY_ASSIGN(declaration, expression) TRY_ASSIGN_(CLEAVE_CONCAT(try_result_, __LINE__), declaration, expression)
#define TRY_ASSIGN_(temporary, declaration, expression) \
  auto temporary = (expression);                        \
  if (!temporary.ok()) return temporary.errors();       \
  declaration = std::move(temporary).value()
