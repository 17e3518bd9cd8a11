#include "leir/syntax.hpp"

#include <cmath>
#include <limits>

#include "base/check.hpp"

namespace cleave::leir {

namespace {

constexpr char kKindLetters[] = {
#define LOOP_KIND(letter, name, meaning) letter,
#include "leir/language.def"
};
constexpr char kScopeLetters[] = {
#define SCOPE(letter, name) letter,
#include "leir/language.def"
};
constexpr const char* kRoles[] = {
#define ROLE(name, text) text,
#include "leir/language.def"
};
constexpr const char* kComparisons[] = {
#define COMPARISON(name, text) text,
#include "leir/language.def"
};
constexpr FunctionInfo kFunctions[] = {
#define FUNCTION(name, arity, paper) {#name, arity, paper},
#include "leir/language.def"
};

}  // namespace

char letter(Kind kind) { return kKindLetters[static_cast<size_t>(kind)]; }
char letter(Scope scope) { return kScopeLetters[static_cast<size_t>(scope)]; }
const char* text(Role role) { return kRoles[static_cast<size_t>(role)]; }
const char* text(Comparison c) { return kComparisons[static_cast<size_t>(c)]; }
const FunctionInfo& info(Function f) { return kFunctions[static_cast<size_t>(f)]; }
std::span<const FunctionInfo> all_functions() { return kFunctions; }

const char* text(Op op) {
  switch (op) {
#define BINARY(op, text, level) \
  case Op::op: return text;
#include "leir/language.def"
    case Op::power: return "**";
    default: break;
  }
  CHECK(false, "operator {}", static_cast<int>(op));
}

int level(Op op) {
  switch (op) {
#define BINARY(op, text, level) \
  case Op::op: return level;
#include "leir/language.def"
    case Op::compare: return 3;
    case Op::negate: return 6;
    case Op::power: return 7;
    case Op::integer:
    case Op::real:
    case Op::infinity:
    case Op::index:
    case Op::tensor:
    case Op::call: return 8;
  }
  return 8;
}

NameId Syntax::intern(std::string_view name) {
  const auto [it, fresh] = by_name_.try_emplace(std::string(name), static_cast<NameId>(names.size()));
  if (fresh) names.emplace_back(name);
  return it->second;
}

ExprId Syntax::add(Expr e, std::span<const ExprId> from) {
  e.first = static_cast<uint32_t>(operands.size());
  e.count = static_cast<uint32_t>(from.size());
  operands.insert(operands.end(), from.begin(), from.end());
  exprs.push_back(e);
  return static_cast<ExprId>(exprs.size() - 1);
}

ExprId Syntax::integer(int64_t value, SourceRange range) {
  CHECK(value != std::numeric_limits<int64_t>::min(), "the least integer has no literal");
  const ExprId e = add({.op = Op::integer, .integer = value < 0 ? -value : value, .range = range}, {});
  return value < 0 ? unary(e, range) : e;
}

ExprId Syntax::real(double value, SourceRange range) {
  CHECK(!std::isnan(value), "there is no literal of NaN");
  if (std::isinf(value)) return value < 0 ? unary(infinity(range), range) : infinity(range);
  const bool negative = std::signbit(value);
  const ExprId e = add({.op = Op::real, .real = negative ? -value : value, .range = range}, {});
  return negative ? unary(e, range) : e;
}

ExprId Syntax::infinity(SourceRange range) { return add({.op = Op::infinity, .range = range}, {}); }
ExprId Syntax::index(NameId name, SourceRange range) {
  return add({.op = Op::index, .name = name, .range = range}, {});
}
ExprId Syntax::tensor(NameId name, Type type, Scope scope, std::span<const ExprId> subscripts, SourceRange range) {
  return add({.op = Op::tensor, .type = type, .scope = scope, .name = name, .range = range}, subscripts);
}
ExprId Syntax::call(Function function, std::span<const ExprId> arguments, SourceRange range) {
  CHECK(static_cast<int>(arguments.size()) == info(function).arity, "{}", info(function).name);
  return add({.op = Op::call, .function = function, .range = range}, arguments);
}
ExprId Syntax::unary(ExprId a, SourceRange range) { return add({.op = Op::negate, .range = range}, {{a}}); }
ExprId Syntax::binary(Op op, ExprId a, ExprId b, SourceRange range) {
  const ExprId both[] = {a, b};
  return add({.op = op, .range = range}, both);
}
ExprId Syntax::compare(std::span<const ExprId> from, std::span<const Comparison> by, SourceRange range) {
  CHECK(from.size() == by.size() + 1 && !by.empty(), "a comparison of {} operands", from.size());
  const auto first = static_cast<uint32_t>(comparisons.size());
  comparisons.insert(comparisons.end(), by.begin(), by.end());
  return add({.op = Op::compare, .comparisons = first, .range = range}, from);
}

uint32_t Syntax::begin_nest(std::span<const Loop> of, SourceRange range) {
  CHECK(!of.empty(), "a nest without loops");
  Item item;
  item.first_loop = static_cast<uint32_t>(loops.size());
  item.loops = static_cast<uint32_t>(of.size());
  item.range = range;
  loops.insert(loops.end(), of.begin(), of.end());
  items.push_back(item);
  return static_cast<uint32_t>(items.size() - 1);
}

void Syntax::equation(ExprId target, ExprId value, SourceRange range) {
  Item item;
  item.target = target;
  item.value = value;
  item.range = range;
  item.end = static_cast<uint32_t>(items.size() + 1);
  items.push_back(item);
}

bool handed_out(std::string_view index) {
  constexpr std::string_view kPlain = "acdfghijklmnopqrsuw";
  if (is_bound(index)) return true;
  return index.find_first_not_of(kPlain) == std::string_view::npos;
}

std::optional<std::string> refuse_index(std::string_view word) {
  if (word == "inf") return "`inf` is infinity";
  for (const FunctionInfo& f : kFunctions)
    if (word == f.name) return "it is a function";
  if (word.empty() || word.find_first_not_of("abcdefghijklmnopqrstuvwxyz") != std::string_view::npos)
    return "an index is a word of lower-case letters";
  return std::nullopt;
}

std::optional<std::string> refuse_variable(std::string_view word) {
  if (word.empty() || word[0] < 'A' || word[0] > 'Z') return "a variable begins with a capital";
  if (std::string_view("BLPTUV").find(word[0]) != std::string_view::npos)
    return "variables do not begin with B, L, P, T, U or V";
  if (word.substr(1).find_first_not_of("abcdefghijklmnopqrstuvwxyz") != std::string_view::npos)
    return "after its capital a variable has lower-case letters only";
  return std::nullopt;
}

}  // namespace cleave::leir
