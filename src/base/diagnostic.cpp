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
    const size_t first = column > kWindow / 2 ? column - kWindow / 2 : 0;
    std::string shown(p.line_text.substr(std::min(first, p.line_text.size()), kWindow));
    std::replace(shown.begin(), shown.end(), '\t', ' ');
    const size_t width = std::max<size_t>(
        1, std::min<size_t>(d.range->end - d.range->begin, shown.size() - std::min(shown.size(), column - first)));
    out += fmt::format("  {}\n  {}{}\n", shown, std::string(column - first, ' '), std::string(width, '^'));
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
