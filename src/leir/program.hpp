// A checked LEIR program: names resolved, shapes known, every question of legality answered.
//
// check() makes it; whatever reads a Program may rely on what check() refuses: indices are bound once, variables have
// one dtype, scope and rank, writes lie inside their variables, every element that is read was written before, every
// element of an output is written, and loops of kind P, V and B carry no dependence. Reads whose bounds are not proved
// are marked: whoever runs the program checks them (`Access::bounds`).
#pragma once

#include <map>
#include <memory>
#include <set>

#include "leir/syntax.hpp"
#include "sym/sym.hpp"

namespace cleave::leir {

using sym::Proof;

// An answer with its reason; the reason is empty for yes.
struct Answer {
  Proof proof = Proof::yes;
  std::string reason;
};

struct Variable {
  NameId name = kNone;
  Type type = Type::f32;
  Scope scope = Scope::global;
  std::optional<Role> role;  // of known variables
  std::vector<int64_t> shape;
  std::optional<std::pair<int64_t, int64_t>> values;  // declared range
  bool demoted = false;                               // s or l in the text, but global when it runs (D19)
  SourceRange range;
  bool known() const { return role.has_value(); }
  int64_t elements() const;
};

enum class Accumulation : uint8_t { none, sum, product, maximum, minimum };

// One mention of a variable in an equation.
struct Access {
  uint32_t item = 0;
  ExprId expr = kNone;
  uint32_t variable = 0;
  bool write = false;
  bool self = false;          // the accumulator on the right of its own equation
  Proof bounds = Proof::yes;  // no is an error; unknown needs a check when the program runs
  std::vector<sym::Expr> subscripts;
  std::vector<sym::Expr> constraints;  // at least 0 wherever the mention is reached (D17)
};

struct EquationInfo {
  uint32_t item = 0;
  uint32_t target = 0;  // variable
  Accumulation accumulation = Accumulation::none;
  ExprId accumulator = kNone;        // the mention of the target on the right
  bool initialises = false;          // by rule 2.4
  std::vector<uint32_t> loops;       // around it, outermost first
  std::vector<uint32_t> reductions;  // those whose index occurs in the equation but not in the target's subscripts
  uint32_t first_access = 0, accesses = 0;  // the write first, then the reads
};

class Program {
 public:
  const Syntax& syntax() const { return syntax_; }
  const std::vector<Variable>& variables() const { return variables_; }
  const std::vector<EquationInfo>& equations() const { return equations_; }
  const std::vector<Access>& accesses() const { return accesses_; }
  // Of an index node: the loop it is bound by; of a tensor node: its variable.
  uint32_t meaning(ExprId e) const { return meaning_[e]; }
  uint32_t equation_of(uint32_t item) const { return equation_of_[item]; }
  std::optional<uint32_t> find(std::string_view name) const;
  const std::string& name(uint32_t variable) const { return syntax_.text(variables_[variable].name); }
  // The constant extent of a loop, when it has one.
  std::optional<int64_t> extent(uint32_t loop) const;
  // Bounds of what is not proved by the text alone: what a run has to check.
  bool needs_checks() const;

  // Forms: what the analysis computes with. Each loop is a symbol; a symbol whose name begins with `o` depends on data.
  sym::Pool& pool() const { return *pool_; }
  std::optional<sym::Expr> form(ExprId e) const {
    return forms_[e];
  }  // of an integer expression, where it was asked for
  sym::Expr symbol(uint32_t loop) const { return loop_symbol_[loop]; }
  sym::Expr extent_form(uint32_t loop) const { return *loop_extent_[loop]; }
  uint32_t nest_of(uint32_t loop) const { return loop_item_[loop]; }  // the item that the loop belongs to
  uint32_t top_of(uint32_t item) const { return top_[item]; }         // the top-level nest around an item

 private:
  friend class Checker;
  friend class Analysis;
  Syntax syntax_;
  std::vector<Variable> variables_;
  std::vector<EquationInfo> equations_;
  std::vector<Access> accesses_;
  std::vector<uint32_t> meaning_;
  std::vector<uint32_t> equation_of_;
  std::shared_ptr<sym::Pool> pool_;
  std::vector<sym::Expr> loop_symbol_;
  std::vector<std::optional<sym::Expr>> loop_extent_;  // as a form
  std::vector<std::optional<sym::Expr>> forms_;        // of integer expressions
  std::vector<uint32_t> loop_item_;                    // the nest a loop belongs to
  std::vector<uint32_t> top_;
};

struct CheckOptions {
  // Refuse what the paper's form of the language has not.
  bool paper = false;
};

struct Checked {
  std::optional<Program> program;  // when there are no errors
  Diagnostics messages;            // errors, warnings, and notes such as demotions
};
Checked check(Syntax syntax, const CheckOptions& options = {});

// The syntax with the values of known integer scalars put in: extents of the header and of loops, subscripts. The
// scalars stay inputs. An unknown name, or a variable that is no integer scalar, is an error.
Result<Syntax> bind(const Syntax& syntax, const std::map<std::string, int64_t>& values);

// Is what the access reads written before by the equations in `writers` (of its variable, in order)? With `within`, a
// loop around the read: in the same iteration of that loop. One-sided: false means that the forms do not show it.
bool written_before(const Program& program, const Access& read, std::span<const EquationInfo* const> writers,
                    std::optional<uint32_t> within = std::nullopt);
// The box that an equation writes over all its loops, as (lo, hi) a position; nullopt when it is no constant box.
std::optional<std::vector<std::pair<int64_t, int64_t>>> written_box(const Program& program, const EquationInfo& w);
std::vector<uint32_t> common_loops(const EquationInfo& a, const EquationInfo& b);

// D19: is every read of the variable inside an iteration of the loop behind a write in the same iteration, and is it
// never seen from outside? Then each iteration may have a copy of its own. Otherwise: why this is not known.
std::optional<std::string> not_private(const Program& program, uint32_t variable, uint32_t loop);
inline bool private_to(const Program& program, uint32_t variable, uint32_t loop) {
  return !not_private(program, variable, loop);
}

// May the loop run in any order (kinds P, V, B)? A recognised reduction over it counts as yes. Variables that may have
// a copy for each iteration: those of scope s and l, or those that are given.
Answer independent(const Program& program, uint32_t loop, const std::set<uint32_t>* copied = nullptr);
// Dependence distances between two mentions over the loops that both stand in, outermost first: a number where it is
// constant, nothing where it is not. nullopt when the two never meet.
struct Dependence {
  uint32_t from = 0, to = 0;  // accesses
  std::vector<uint32_t> loops;
  std::vector<std::optional<int64_t>> distance;
};
std::vector<Dependence> dependences(const Program& program, uint32_t item_a, uint32_t item_b);

// Where does a variable live when the program runs: what its scope asks for, or g, with the reason.
struct Placement {
  uint32_t variable;
  bool honoured;
  std::string reason;
  std::vector<bool> fixed;  // axes whose place the owning thread (l) or block (s) fixes: its array has them not
};
std::vector<Placement> placements(const Program& program);

// Names of indices and intermediates replaced in the order of appearance: equal exactly for programs that differ in
// such names only. Idle loops that D11 drops are left out.
std::string canonical_key(const Program& program);

}  // namespace cleave::leir
