// LEIR as it is written: the tree of a text, unchecked.
//
// A program is a header (the known variables) and a list of nests; a nest is some loops and a body of equations and
// nests. Everything lies in flat arrays: expressions refer to operands by number, and operands come before what uses
// them; items are in the order of the text, and a nest says where its body ends. So no walk and no destructor recurses,
// however deep a program is. check() turns a Syntax into a Program (leir/program.hpp).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/diagnostic.hpp"
#include "leir/type.hpp"

namespace cleave::leir {

using ExprId = uint32_t;
using NameId = uint32_t;
constexpr uint32_t kNone = ~uint32_t{0};

enum class Kind : uint8_t {
#define LOOP_KIND(letter, name, meaning) name,
#include "leir/language.def"
};
enum class Scope : uint8_t {
#define SCOPE(letter, name) name,
#include "leir/language.def"
};
enum class Role : uint8_t {
#define ROLE(name, text) name,
#include "leir/language.def"
};
enum class Comparison : uint8_t {
#define COMPARISON(name, text) name,
#include "leir/language.def"
};
enum class Function : uint8_t {
#define FUNCTION(name, arity, paper) name,
#include "leir/language.def"
};
enum class Op : uint8_t {
  integer,
  real,
  infinity,
  index,
  tensor,
  call,
  negate,
  power,
  compare,
#define BINARY(op, text, level) op,
#include "leir/language.def"
};

char letter(Kind kind);
char letter(Scope scope);
const char* text(Role role);
const char* text(Comparison comparison);
const char* text(Op binary);  // of a binary operator
int level(Op op);             // how tightly an operator binds: 1 for `|` to 8 for primaries
struct FunctionInfo {
  const char* name;
  int arity;
  bool paper;  // in the paper's dialect
};
const FunctionInfo& info(Function function);
std::span<const FunctionInfo> all_functions();

struct Expr {
  Op op = Op::integer;
  Function function = Function::exp;  // call
  Type type = Type::f32;              // tensor: as written
  Scope scope = Scope::global;        // tensor
  uint32_t first = 0, count = 0;      // operands: arguments, subscripts
  uint32_t comparisons = 0;           // compare: count - 1 of them in Syntax::comparisons
  NameId name = kNone;                // index, tensor
  int64_t integer = 0;
  double real = 0;  // not negative
  SourceRange range;
};

struct Loop {
  Kind kind = Kind::serial;
  ExprId extent = kNone;
  NameId index = kNone;
  SourceRange range;
};

// A nest (loops and the items up to `end`) or an equation.
struct Item {
  uint32_t first_loop = 0, loops = 0;    // nests have at least one
  uint32_t end = 0;                      // one past the last item of the nest; for an equation its number + 1
  ExprId target = kNone, value = kNone;  // equations
  SourceRange range;
  bool nest() const { return loops > 0; }
};

struct Dim {
  int64_t extent = 0;   // when name is none
  NameId name = kNone;  // a known integer scalar
};
struct HeaderEntry {
  Role role = Role::input;
  NameId name = kNone;
  Type type = Type::f32;
  std::vector<Dim> dims;
  std::optional<std::pair<int64_t, int64_t>> values;  // `range lo..hi`, both included
  SourceRange range;
};

struct Syntax {
  std::vector<std::string> names;
  std::vector<HeaderEntry> header;
  std::vector<Item> items;
  std::vector<Loop> loops;
  std::vector<Expr> exprs;
  std::vector<ExprId> operands;
  std::vector<Comparison> comparisons;

  NameId intern(std::string_view name);
  const std::string& text(NameId name) const { return names[name]; }
  std::span<const ExprId> operands_of(ExprId e) const { return {operands.data() + exprs[e].first, exprs[e].count}; }
  std::span<const Comparison> comparisons_of(ExprId e) const {
    return {comparisons.data() + exprs[e].comparisons, exprs[e].count - 1};
  }

  // Building. Operands exist already; a negative literal becomes a negation, unary plus is not there.
  ExprId integer(int64_t value, SourceRange range = {});
  ExprId real(double value, SourceRange range = {});
  ExprId infinity(SourceRange range = {});
  ExprId index(NameId name, SourceRange range = {});
  ExprId tensor(NameId name, Type type, Scope scope, std::span<const ExprId> subscripts, SourceRange range = {});
  ExprId call(Function function, std::span<const ExprId> arguments, SourceRange range = {});
  ExprId unary(ExprId a, SourceRange range = {});
  ExprId binary(Op op, ExprId a, ExprId b, SourceRange range = {});
  ExprId compare(std::span<const ExprId> operands, std::span<const Comparison> by, SourceRange range = {});
  uint32_t begin_nest(std::span<const Loop> loops, SourceRange range = {});
  void end_nest(uint32_t nest) { items[nest].end = static_cast<uint32_t>(items.size()); }
  void equation(ExprId target, ExprId value, SourceRange range = {});

  size_t nodes() const { return exprs.size() + items.size() + loops.size(); }

 private:
  ExprId add(Expr e, std::span<const ExprId> operands);
  std::unordered_map<std::string, NameId> by_name_;
};

struct ParseOptions {
  bool strict = false;  // model answers: the chain form is an error
  bool paper = false;   // the paper's dialect: its functions, digits as extents
};

constexpr size_t kMaxBytes = size_t{64} << 20;
constexpr size_t kMaxNodes = 10'000'000;
constexpr size_t kMaxMessages = 50;

// What a text holds, with everything that is wrong or odd about it. The syntax is complete only without errors.
struct Parsed {
  Syntax syntax;
  Diagnostics messages;
  bool ok() const;
};
Parsed parse(const SourceText& source, const ParseOptions& options = {});

enum class Style {
  canonical,  // the header, then a line for each top-level nest
  compact,    // no header, no blank, no newline: what models see and tokens are counted of
};
// parse(print(x)) is x again; print(parse(t)) is the canonical form of t.
std::string print(const Syntax& syntax, Style style = Style::canonical);
std::string print(const Syntax& syntax, ExprId expr);
std::string print_item(const Syntax& syntax, uint32_t item);

// The tree as fully bracketed text: equal exactly when the programs are the same, positions apart.
std::string structure(const Syntax& syntax);

// The grammar for constrained decoding, in GBNF; `paper` leaves out what the paper's dialect has not.
std::string gbnf(bool paper = false);

// Can this word name a plain or bound index, or a variable? nullopt, or the reason why not.
std::optional<std::string> refuse_index(std::string_view word);
std::optional<std::string> refuse_variable(std::string_view word);
inline bool is_bound(std::string_view word) {
  return word.size() >= 2 && (word[0] == 'b' || word[0] == 't') && word[1] >= 'x' && word[1] <= 'z';
}
bool handed_out(std::string_view index);  // made of the letters that printers use

}  // namespace cleave::leir
