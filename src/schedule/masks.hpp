// Masks that bound loops (scheduling.md section 4).
//
// A comparison of index values inside a reduction, such as l <= s of causal attention, says where the reduced elements
// matter: when every element on one side of it is the identity of what accumulates them (-inf below a maximum or an
// exponential, 0 below a sum), a loop over that index need not go there, and where it holds for the whole tile it need
// not be evaluated. Only what folds to the identity exactly counts; a large negative number is ordinary data. Elements
// that an added -inf masks count as masked whatever they are.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "itgraph/itgraph.hpp"

namespace cleave::schedule {

using sym::Expr;

// A comparison of index values in canonical form: `value` >= 0, or `value` == 0.
struct Atom {
  Expr value;
  bool equal = false;
  auto operator<=>(const Atom&) const = default;
};
using Assumptions = std::map<Atom, bool>;

// Integers in memory that comparisons use, the length of a request for one: each element is a symbol, like an index.
class Lengths {
 public:
  // `in_memory`: whether a value is there before the kernel begins.
  explicit Lengths(std::function<bool(itgraph::ValueId)> in_memory) : in_memory_(std::move(in_memory)) {}
  struct Element {
    itgraph::ValueId value;
    std::vector<Expr> at;
    auto operator<=>(const Element&) const = default;
  };
  // The symbol of a plain load of an integer; its range is that of the dtype, or +-2^40.
  std::optional<Expr> symbol(sym::Pool& syms, const tile::Load& load, DType dtype);
  const Element* element(Expr symbol) const;

 private:
  std::function<bool(itgraph::ValueId)> in_memory_;
  std::map<Element, Expr> symbols_;
  std::map<Expr, Element> elements_;
};

// The compute that makes a value where it is read, tile by tile; null when it is in memory or accumulated.
using MadeBy = std::function<const itgraph::Compute*(itgraph::ValueId)>;

// What must hold where an element of the reduction over `index` is not the identity: atoms that mention the index.
Assumptions needed_for(sym::Pool& syms, const itgraph::Compute& compute, Expr index, const MadeBy& made_by,
                       Lengths& lengths);

// The compute with the comparisons decided.
itgraph::Compute assume(sym::Pool& syms, const itgraph::Compute& compute, const Assumptions& known, Lengths& lengths);

// Where a loop over `index` goes: nothing outside [lo, hi) matters, and in [full_lo, full_hi) everything is known to
// hold. Either may be empty, with its end before its begin. lo, full_lo and full_hi are multiples of `quantum`, but a
// full_hi that is `extent`.
struct LoopBounds {
  Expr lo, full_lo, full_hi, hi;
  Assumptions everywhere = {};  // what holds all over [lo, hi)
};
// `range` gives the first and the last value of another index inside the loop.
struct Range {
  Expr first, last;
};
LoopBounds bounds_of(sym::Pool& syms, const Assumptions& needed, Expr index, Expr extent, int64_t quantum,
                     const std::function<Range(Expr)>& range);

// The hull of several reductions that share a loop: all of it is visited, and full is what is so for each.
LoopBounds hull(sym::Pool& syms, const LoopBounds& a, const LoopBounds& b);

// The values of an expression at some points of the ranges of its symbols, for preferences that need no proof.
std::vector<int64_t> sampled(const sym::Pool& syms, Expr expression);

}  // namespace cleave::schedule
