// Arithmetic on subscripts: affine forms and intervals, and from them shapes, bounds, coverage, initialisation and
// dependences. Every question is answered yes, no or unknown; what unknown means is decided by the rule that asks
// (bounds: checked when the program runs; everything else: refused).
#pragma once

#include <set>

#include "leir/program.hpp"
#include "leir/shadow.hpp"

namespace cleave::leir {

class Analysis {
 public:
  // Makes the forms of all extents and subscripts of `program`, whose names are resolved.
  Analysis(Program& program, Diagnostics& messages);

  // Everything that check() asks for, in order; fills in shapes, bounds and the loops' extents.
  void run();

  bool same(ExprId a, ExprId b);  // equal as normal forms

 private:
  const Syntax& s() const { return p_.syntax_; }
  sym::Pool& pool() { return *p_.pool_; }
  void message(Diagnostic d);
  bool failed() const { return failed_; }

  sym::Expr form(ExprId root);
  sym::Expr make_form(ExprId id);
  sym::Interval either(std::span<const ExprId> operands);
  void guards(const EquationInfo& q);
  void constraints_of(ExprId condition, bool negated, std::vector<sym::Expr>& out);
  void below(sym::Expr extent, sym::Expr index, std::vector<sym::Expr>& out);
  std::vector<sym::Expr> constraints(const Access& a);

  void extents();
  void shapes();
  std::optional<int64_t> outside(const EquationInfo& q, sym::Expr subscript, int64_t extent);
  void bounds();
  void bounds_of_writes();
  const Shadow& shadow();
  void initialisation();
  void coverage();
  void idle_loops();
  void kinds();
  void scopes();

  Program& p_;
  Diagnostics& messages_;
  bool failed_ = false;
  std::vector<uint8_t> depth_;
  struct Guard {
    uint32_t outer = kNone;
    ExprId condition = kNone;
    bool negated = false;
  };
  std::vector<Guard> guards_;
  std::unordered_map<uint32_t, uint32_t> guard_of_;  // tensor node -> innermost guard
  std::optional<Shadow> shadow_;                     // once it was asked for
};

// Bounds of a form where all constraints are at least 0. `pool` is only asked, except for sums with constraints.
sym::Interval range_under(sym::Pool& pool, sym::Expr form, std::span<const sym::Expr> constraints);

// What a mention covers while the loops outside `free` stand still: per position a fixed part and a dense interval, up
// to `end` (excluded) where that is no number. A loop over tiles and one over a tile, whose last one is cut short
// (`a*8+c` with c below min(8, n-a*8)), cover what they are tiles of. nullopt when it is no such box, or when some loop
// may not run.
struct Box {
  struct Side {
    sym::Expr fixed;
    int64_t lo, hi;
    std::optional<sym::Expr> end;
  };
  std::vector<Side> sides;
};
std::optional<Box> box_of(const Program& program, const EquationInfo& equation, const std::set<uint32_t>& free);

// Does the index of the loop stand in the expression? As it is written: a form may hide it in what it has no word for.
bool names_index(const Program& program, ExprId root, uint32_t loop);
// The same of a loop's extent; one that is a number depends on nothing.
bool extent_depends(const Program& program, uint32_t loop, uint32_t on);
// What forms below `roots` have no word for (`abs(a)`, `I_{a}`) and which has another value where indices of `loops`
// do, or where memory that is written is read, gets a new symbol each in `other`.
void rename_opaque(const Program& program, std::span<const ExprId> roots, const std::set<uint32_t>& loops,
                   std::unordered_map<sym::Expr, sym::Expr>& other);

// Rule 2.4 sets first values where all reduction indices are 0. What an accumulation touches in other iterations it has
// to touch there too; otherwise: the loop whose index is why this is not known, and how.
struct NoFirstValue {
  uint32_t reduction;
  std::string reason;
};
std::optional<NoFirstValue> no_first_value(const Program& program, const EquationInfo& equation);

// Do the boxes (lo, hi per position) cover [0, shape)? no and yes are certain; unknown when there are too many pieces.
Proof covers(const std::vector<int64_t>& shape, const std::vector<std::vector<std::pair<int64_t, int64_t>>>& boxes);

}  // namespace cleave::leir
