#include "base/diagnostic.hpp"

#include <fmt/args.h>

#include <algorithm>

#include "base/codes.hpp"

namespace cleave {

const std::vector<CodeInfo>& all_codes() {
  static const std::vector<CodeInfo> codes = {
#define DIAGNOSTIC(name, number, severity, text, hint) {Code::name, #name, number, Severity::severity, text, hint},
#include "base/diagnostics.def"
#undef DIAGNOSTIC
  };
  return codes;
}

const CodeInfo& info(Code code) {
  const auto& codes = all_codes();
  auto it = std::find_if(codes.begin(), codes.end(), [&](const CodeInfo& c) { return c.code == code; });
  CHECK(it != codes.end(), "code {}", static_cast<int>(code));
  return *it;
}

namespace {

std::string fill(const char* text, const std::vector<std::string>& parameters) {
  fmt::dynamic_format_arg_store<fmt::format_context> store;
  for (const auto& p : parameters) store.push_back(p);
  return fmt::vformat(text, store);
}

const char* word(Severity severity) {
  switch (severity) {
    case Severity::note: return "note";
    case Severity::warning: return "warning";
    case Severity::error: return "error";
  }
  return "error";
}

bool continues(char c) { return (static_cast<uint8_t>(c) & 0xc0) == 0x80; }

// Bytes of the UTF-8 character that the text begins with; 0 when they are none.
size_t character(std::string_view text) {
  const auto lead = static_cast<uint8_t>(text[0]);
  const size_t n = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
  if (n > text.size()) return 0;
  for (size_t i = 1; i < n; ++i)
    if (!continues(text[i])) return 0;
  return n;
}

// A part of a line as a terminal may show it, and how many columns it takes: what is no character is escaped.
struct Shown {
  std::string text;
  size_t width = 0;
};
Shown shown(std::string_view line) {
  Shown out;
  for (size_t i = 0; i < line.size();) {
    const size_t n = character(line.substr(i));
    const auto byte = static_cast<uint8_t>(line[i]);
    if (line[i] == '\t') {
      out.text += ' ';
      ++out.width;
    } else if (n == 0 || byte < 0x20 || byte == 0x7f) {
      out.text += fmt::format("\\x{:02x}", byte);
      out.width += 4;
    } else {
      out.text += line.substr(i, n);
      ++out.width;
    }
    i += std::max<size_t>(1, n);
  }
  return out;
}

}  // namespace

std::string Diagnostic::message() const { return fill(info(code).text, parameters); }

SourceText::Position SourceText::position(uint32_t offset) const {
  offset = std::min<uint32_t>(offset, static_cast<uint32_t>(text.size()));
  const auto before = std::string_view(text).substr(0, offset);
  const int line = 1 + static_cast<int>(std::count(before.begin(), before.end(), '\n'));
  const size_t last = before.rfind('\n');
  const size_t start = last == std::string_view::npos ? 0 : last + 1;
  size_t stop = text.find('\n', start);
  if (stop == std::string::npos) stop = text.size();
  return {line, static_cast<int>(offset - start) + 1, std::string_view(text).substr(start, stop - start)};
}

std::string render(const Diagnostic& d, const SourceText* source) {
  const CodeInfo& code = info(d.code);
  std::string out;
  if (source && d.range) {
    const auto p = source->position(d.range->begin);
    out += fmt::format("{}:{}:{}: ", source->name, p.line, p.column);
  } else if (source && !source->name.empty()) {
    out += fmt::format("{}: ", source->name);
  }
  out += fmt::format("{}[CLV{:04}]: {}\n", word(code.severity), code.number, d.message());
  if (source && d.range) {
    const auto p = source->position(d.range->begin);
    // A long line is shown around the place only.
    constexpr size_t kWindow = 100;
    const size_t column = static_cast<size_t>(p.column) - 1;
    std::string_view line = p.line_text;
    size_t first = std::min(column > kWindow / 2 ? column - kWindow / 2 : 0, line.size());
    while (first < column && first < line.size() && continues(line[first])) ++first;
    line = line.substr(first);
    if (line.size() > kWindow) {
      size_t end = kWindow;
      while (end > column - first && continues(line[end])) --end;
      line = line.substr(0, end);
    }
    const size_t from = std::min(column - first, line.size());
    const Shown before = shown(line.substr(0, from)), at = shown(line.substr(from, d.range->end - d.range->begin));
    out += fmt::format("  {}\n  {}{}\n", shown(line).text, std::string(before.width, ' '),
                       std::string(std::max<size_t>(1, at.width), '^'));
  }
  for (const auto& note : d.notes) out += fmt::format("  note: {}\n", note);
  const std::string hint = d.hint.empty() ? fill(code.hint, d.parameters) : d.hint;
  if (!hint.empty()) out += fmt::format("  hint: {}\n", hint);
  return out;
}

std::string render(const Diagnostics& diagnostics, const SourceText* source) {
  std::string out;
  for (const auto& d : diagnostics) out += render(d, source);
  return out;
}

}  // namespace cleave
