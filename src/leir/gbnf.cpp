// The grammar for constrained decoding: the rules of language.def with its rows put in.
#include <map>

#include "leir/syntax.hpp"

namespace cleave::leir {

namespace {

std::string quoted(std::string_view s) { return fmt::format("\"{}\"", s); }

std::string alternatives(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& w : words) out += (out.empty() ? "" : " | ") + quoted(w);
  return "(" + out + ")";
}

std::string call(const FunctionInfo& f) {
  std::string out = quoted(std::string(f.name) + "(");
  for (int i = 0; i < f.arity; ++i) out += i ? " \",\" expr" : " expr";
  return out + " \")\"";
}

}  // namespace

std::string gbnf(bool paper) {
  std::map<std::string, std::string> rows;
  std::vector<std::string> plain, bound, types, scopes, roles, comparisons, sums, terms;
#define LOOP_KIND(letter, name, meaning) (Kind::name == Kind::bind ? bound : plain).push_back(std::string(1, letter));
#define ELEMENT_TYPE(name, text, kind, bytes, rank) types.push_back(text);
#define SCOPE(letter, name) scopes.push_back(std::string(1, letter));
#define ROLE(name, text) roles.push_back(text);
#define COMPARISON(name, text) comparisons.push_back(text);
#define BINARY(op, text, level)         \
  if (level == 4) sums.push_back(text); \
  if (level == 5) terms.push_back(text);
#include "leir/language.def"
  rows["plain-kind"] = alternatives(plain);
  rows["bound-kind"] = alternatives(bound);
  rows["dtype"] = alternatives(types);
  rows["scope"] = alternatives(scopes);
  rows["role"] = alternatives(roles);
  rows["comparison"] = alternatives(comparisons);
  rows["sum-operator"] = alternatives(sums);
  rows["term-operator"] = alternatives(terms);
  for (const FunctionInfo& f : all_functions())
    if (f.paper || !paper) rows["call"] += (rows["call"].empty() ? "" : " | ") + call(f);

  struct Rule {
    std::string_view name, body;
  };
  static constexpr Rule kRules[] = {
#define RULE(name, body) {name, body},
#include "leir/language.def"
  };
  std::string out;
  for (const Rule& rule : kRules) {
    std::string body(rule.body);
    if (paper && (rule.name == "plain-loop" || rule.name == "bound-loop"))
      body.replace(body.find(" expr "), 6, " digits ");
    for (const auto& [word, text] : rows) {
      const std::string placeholder = "<" + word + ">";
      for (size_t i = body.find(placeholder); i != std::string::npos; i = body.find(placeholder, i + text.size()))
        body.replace(i, placeholder.size(), text);
    }
    out += fmt::format("{} ::= {}\n", rule.name, body);
  }
  return out;
}

}  // namespace cleave::leir
