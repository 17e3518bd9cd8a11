// Symbolic integers: extents and index expressions.
//
// An Expr is the id of a hash-consed node in a Pool, so two expressions of one canonical form have one id and equality
// is a comparison of ids. Canonical form: a polynomial with integer coefficients over atoms; an atom is a symbol or a
// floordiv, mod, min or max of expressions that does not simplify further. Questions are answered with Proof, never
// with a bool that hides "don't know". Arithmetic saturates at +-2^62 (kHuge); callers bound extents long before that.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/id.hpp"
#include "base/short_vector.hpp"

namespace cleave::sym {

constexpr int64_t kHuge = int64_t{1} << 62;

enum class Proof { yes, no, unknown };

enum class Kind : uint8_t { constant, symbol, polynomial, floordiv, mod, min, max };

using Expr = Id<struct ExprTag>;

// Closed interval; -kHuge and kHuge stand for unbounded.
struct Interval {
  int64_t lo = -kHuge;
  int64_t hi = kHuge;
};

class Pool {
 public:
  // coefficient * product of atoms; atoms sorted by id.
  struct Term {
    int64_t coefficient;
    ShortVector<Expr, 3> atoms;
    auto operator<=>(const Term&) const = default;
    bool operator==(const Term&) const = default;
  };

  Expr constant(int64_t value);
  // The symbol of that name, made on first use. A later range replaces the default one.
  Expr symbol(std::string_view name, Interval range = {});
  // A new symbol whose name starts with `stem` and is not yet taken.
  Expr fresh(std::string_view stem, Interval range = {});
  void set_range(Expr symbol, Interval range);
  // The symbol only takes multiples of this (a loop counter with a step). Expressions made before do not profit.
  void set_multiple(Expr symbol, int64_t multiple);
  // The value that the symbol is thought to have where a choice is a matter of speed only; never used in a proof. Not
  // given: the high end of its range, or the low end of one without a high end.
  void set_typical(Expr symbol, int64_t value);

  Expr add(Expr a, Expr b);
  Expr sub(Expr a, Expr b);
  Expr mul(Expr a, Expr b);
  Expr mul(Expr a, int64_t c) { return mul(a, constant(c)); }
  Expr add(Expr a, int64_t c) { return add(a, constant(c)); }
  Expr floordiv(Expr a, Expr b);  // by zero: 0
  Expr mod(Expr a, Expr b);       // the sign of the divisor; by zero: 0
  Expr ceildiv(Expr a, Expr b);   // for positive b
  Expr min(Expr a, Expr b);
  Expr max(Expr a, Expr b);
  Expr product(std::span<const Expr> factors);

  Kind kind(Expr e) const { return nodes_[e.index].kind; }
  std::optional<int64_t> as_constant(Expr e) const;
  bool is(Expr e, int64_t value) const { return as_constant(e) == value; }
  const std::string& symbol_name(Expr e) const { return nodes_[e.index].name; }
  Interval symbol_range(Expr e) const { return nodes_[e.index].range; }
  int64_t symbol_multiple(Expr e) const { return nodes_[e.index].multiple; }
  // The value of an expression when every symbol has its typical value.
  int64_t typical(Expr e) const;
  std::optional<Expr> find_symbol(std::string_view name) const;
  // The terms of any expression seen as a polynomial (a constant term has no atoms), and the operands of an atom.
  std::vector<Term> terms(Expr e) const;
  std::pair<Expr, Expr> operands(Expr e) const { return {nodes_[e.index].a, nodes_[e.index].b}; }

  std::vector<Expr> symbols_of(Expr e) const;  // sorted, distinct
  bool mentions(Expr e, Expr symbol) const;
  Interval bounds(Expr e) const;
  Proof equal(Expr a, Expr b) const;
  Proof less(Expr a, Expr b) const;
  Proof at_most(Expr a, Expr b) const;
  Proof divides(int64_t divisor, Expr e) const;
  // e(symbol + 1) - e(symbol), when that does not depend on the symbol: the stride of e in it.
  std::optional<Expr> stride(Expr e, Expr symbol);

  Expr substitute(Expr e, const std::unordered_map<Expr, Expr>& by);
  // nullopt when a symbol has no value.
  std::optional<int64_t> evaluate(Expr e, const std::function<std::optional<int64_t>(Expr symbol)>& value) const;
  int64_t evaluate(Expr e, const std::unordered_map<Expr, int64_t>& values) const;  // all symbols have values

  // "i*64 + j//8 - min(n, 3)": parsed back by parse_expr (sym/text.hpp).
  std::string print(Expr e) const;

  size_t size() const { return nodes_.size(); }

 private:
  struct Node {
    Kind kind;
    int64_t value = 0;               // constant
    std::string name;                // symbol
    Interval range;                  // symbol
    int64_t multiple = 1;            // symbol
    std::optional<int64_t> typical;  // symbol
    std::vector<Term> terms;         // polynomial: at least two terms, or one that is not a bare atom
    Expr a, b;                       // atoms
  };
  using Terms = std::vector<Term>;
  // The id of the node with these parts, found by their hash, or a new one.
  Expr intern(Kind kind, int64_t value, Terms terms, Expr a, Expr b);
  Expr atom(Kind kind, Expr a, Expr b) { return intern(kind, 0, {}, a, b); }
  void enter(Expr e, uint64_t hash);
  // The terms without a copy; `one` keeps the term of what is no polynomial.
  std::span<const Term> view(Expr e, Term& one) const;
  // a + factor * b, both sorted by atoms without repetition, as all terms of a node are.
  Terms sum(std::span<const Term> a, std::span<const Term> b, int64_t factor) const;
  Expr from_sorted(Terms terms);
  int64_t multiple_of(const Term& term) const;  // a number that divides the term
  Expr from_terms(std::vector<Term> terms);
  std::string print(Expr e, int level) const;

  std::vector<Node> nodes_;
  // Open addressing: ids of nodes but symbols, by hash; the size is a power of two.
  std::vector<Expr> known_;
  std::vector<uint64_t> hashes_;  // of all nodes
  size_t entered_ = 0;
  std::unordered_map<std::string, Expr> by_name_;
  std::unordered_map<std::string, int> next_fresh_;  // by stem: the last number tried
};

// The expression over the symbols of the same names in another pool, which has them.
Expr copied(Expr e, const Pool& from, Pool& to);

}  // namespace cleave::sym
