#include "graph/spec.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include "base/codes.hpp"

namespace cleave::graph {

namespace {

std::vector<std::string_view> split_by(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> out;
  for (;;) {
    const size_t at = text.find(separator);
    out.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return out;
    text.remove_prefix(at + separator.size());
  }
}

Diagnostic bad_spec(std::string_view op, std::string why) { return diagnose(Code::bad_attribute, op, "spec", why); }

// Distinct names of letters, digits and underscores.
std::optional<IndexNames> names_of(std::string_view text) {
  IndexNames out;
  std::string current;
  auto flush = [&] {
    if (!current.empty()) out.push_back(std::move(current));
    current.clear();
  };
  for (char c : text) {
    if (c == ' ' || c == '\t')
      flush();
    else if (std::isalnum(static_cast<unsigned char>(c)) || c == '_')
      current += c;
    else
      return std::nullopt;
  }
  flush();
  return out;
}

bool distinct(const IndexNames& names) {
  return std::set<std::string>(names.begin(), names.end()).size() == names.size();
}

bool contains(const IndexNames& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

IndexNames ContractSpec::reduced() const {
  IndexNames out;
  for (const auto& operand : operands)
    for (const auto& n : operand)
      if (!contains(result, n) && !contains(out, n)) out.push_back(n);
  return out;
}

IndexNames ScaledReduceSpec::reduced() const {
  IndexNames out;
  for (const auto& n : scores)
    if (!contains(maximum, n)) out.push_back(n);
  return out;
}

Result<ContractSpec> parse_contract_spec(std::string_view text) {
  const auto sides = split_by(text, "->");
  if (sides.size() != 2) return bad_spec("contract", "needs one `->`");
  ContractSpec spec;
  for (auto part : split_by(sides[0], ",")) {
    auto names = names_of(part);
    if (!names) return bad_spec("contract", "has a character that is no index name");
    spec.operands.push_back(std::move(*names));
  }
  auto result = names_of(sides[1]);
  if (!result) return bad_spec("contract", "has a character that is no index name");
  spec.result = std::move(*result);
  if (!distinct(spec.result)) return bad_spec("contract", "repeats an index in its result");
  for (const auto& n : spec.result)
    if (std::none_of(spec.operands.begin(), spec.operands.end(), [&](const IndexNames& o) { return contains(o, n); }))
      return bad_spec("contract", fmt::format("has the index `{}` in its result only", n));
  return spec;
}

Result<ScaledReduceSpec> parse_scaled_reduce_spec(std::string_view text) {
  ScaledReduceSpec spec;
  bool first = true;
  for (auto part : split_by(text, "|")) {
    const auto sides = split_by(part, "->");
    if (sides.size() != 2) return bad_spec("scaled_reduce", "needs one `->` in each part");
    auto left = names_of(sides[0]), right = names_of(sides[1]);
    if (!left || !right) return bad_spec("scaled_reduce", "has a character that is no index name");
    if (!distinct(*left) || !distinct(*right)) return bad_spec("scaled_reduce", "repeats an index");
    if (first) {
      spec.scores = std::move(*left);
      spec.maximum = std::move(*right);
      for (const auto& n : spec.maximum)
        if (!contains(spec.scores, n)) return bad_spec("scaled_reduce", fmt::format("has `{}` in the maximum only", n));
    } else {
      spec.sums.push_back({!left->empty(), std::move(*left), std::move(*right)});
    }
    first = false;
  }
  const auto reduced = spec.reduced();
  for (const auto& sum : spec.sums) {
    for (const auto& n : sum.result) {
      if (!contains(spec.scores, n) && !contains(sum.factor, n))
        return bad_spec("scaled_reduce", fmt::format("has the index `{}` in a result only", n));
      if (contains(reduced, n)) return bad_spec("scaled_reduce", fmt::format("keeps the reduced index `{}`", n));
    }
    // A sum reduces what the maximum reduces and nothing else.
    for (const auto& n : spec.maximum)
      if (!contains(sum.result, n))
        return bad_spec("scaled_reduce", fmt::format("drops the index `{}` of the maximum", n));
    for (const auto& n : sum.factor)
      if (!contains(sum.result, n) && !contains(reduced, n))
        return bad_spec("scaled_reduce", fmt::format("drops the index `{}` of a factor", n));
  }
  return spec;
}

std::string join(const IndexNames& names) { return fmt::format("{}", fmt::join(names, " ")); }

std::string print(const ContractSpec& spec) {
  std::string left;
  for (size_t i = 0; i < spec.operands.size(); ++i) left += (i ? ", " : "") + join(spec.operands[i]);
  return fmt::format("{} -> {}", left, join(spec.result));
}

std::string print(const ScaledReduceSpec& spec) {
  std::string out = fmt::format("{} -> {}", join(spec.scores), join(spec.maximum));
  for (const auto& s : spec.sums)
    out += fmt::format(" | {}{}-> {}", join(s.factor), s.has_factor ? " " : "", join(s.result));
  return out;
}

}  // namespace cleave::graph
