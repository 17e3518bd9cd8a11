#include "driver/options.hpp"

#include <charconv>
#include <cmath>
#include <cstdlib>

#include "base/codes.hpp"
#include "graph/graph.hpp"
#include "sym/text.hpp"

namespace cleave::driver {

namespace {

std::optional<int64_t> integer(std::string_view text) {
  int64_t v = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return v;
}

}  // namespace

Diagnostics parse_dim(const std::string& text, std::map<std::string, DimOption>& dims) {
  const Diagnostic bad = diagnose(Code::bad_option, "--dim " + text, "is not NAME=N or NAME=LO..HI@N");
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) return {bad};
  const std::string name = text.substr(0, equals);
  std::string_view value = std::string_view(text).substr(equals + 1);
  DimOption d;
  const size_t dots = value.find("..");
  if (dots == std::string_view::npos) {
    const auto v = integer(value);
    if (!v || *v < 0) return {bad};
    d = {*v, *v, *v};
  } else {
    const size_t at = value.find('@');
    const auto lo = integer(value.substr(0, dots));
    const auto hi = integer(value.substr(dots + 2, at == std::string_view::npos ? at : at - dots - 2));
    const auto representative = at == std::string_view::npos ? hi : integer(value.substr(at + 1));
    if (!lo || !hi || !representative) return {bad};
    if (const std::string fault = sym::range_fault(*lo, *hi, graph::kMaxElements, *representative); !fault.empty())
      return {diagnose(Code::bad_option, "--dim " + text, fault)};
    d = {*lo, *hi, *representative, at != std::string_view::npos};
  }
  if (!dims.emplace(name, d).second) return {diagnose(Code::bad_option, "--dim " + text, "gives a dimension twice")};
  return {};
}

Result<tune::Budget> parse_budget(const std::string& text) {
  tune::Budget out;
  if (text == "none") return out;
  const Diagnostic bad = diagnose(Code::bad_option, "--budget " + text,
                                  "is not a time (60s, 5m), a number of candidates (500c) or `none`");
  char* end = nullptr;
  const double v = std::strtod(text.c_str(), &end);
  const std::string unit(end);
  if (end == text.c_str() || !std::isfinite(v) || v < 0) return bad;
  if (unit == "s")
    out.seconds = v;
  else if (unit == "ms")
    out.seconds = v / 1000;
  else if (unit == "m")
    out.seconds = v * 60;
  else if (unit == "h")
    out.seconds = v * 3600;
  else if (unit == "c" && v == std::floor(v) && v < 1e15)
    out.candidates = static_cast<int64_t>(v);
  else
    return bad;
  return out;
}

const char* version() { return "0.1.0"; }

}  // namespace cleave::driver
