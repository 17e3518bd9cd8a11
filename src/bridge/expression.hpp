// The value of one LEIR equation, lifted over the loops around it.
#pragma once

#include <functional>

#include "bridge/lift.hpp"
#include "leir/typed.hpp"

namespace cleave::bridge {

// What the nest around an equation is to its expression.
struct Surroundings {
  const leir::Program& program;
  const std::vector<uint32_t>& loops;                       // of the program, outermost first
  std::function<Result<ValueId>(uint32_t variable)> value;  // a variable as it is now, whole
  // Loops that a variable has a copy for each iteration of: axes before its own.
  std::function<const std::vector<uint32_t>&(uint32_t variable)> copies;
  // Of a mention that reads the copy of the iteration before: which loop's.
  std::function<std::optional<uint32_t>(const leir::Access&)> carried;
};

class Expression {
 public:
  Expression(const Surroundings& around, Lifter& lifter, const leir::Typed& code);

  Result<Lifted> lift(leir::NodeId root);

  // A subscript as a linear form over the numbered loops, when it is one.
  std::optional<Linear> linear(sym::Expr form) const;
  std::optional<Linear> linear(leir::NodeId node) const { return forms_[node]; }
  std::optional<uint32_t> position(uint32_t loop) const;
  // Forms that are at least 0 exactly when the condition holds; nullopt when it is no conjunction of such comparisons.
  std::optional<std::vector<Linear>> constraints(leir::NodeId condition) const;
  // The least and the largest value of a form over all loops.
  std::pair<int64_t, int64_t> reach(const Linear& form) const;
  // The places of a load (of its target, for an equation's first access): copies first.
  std::vector<std::optional<Linear>> places(const leir::Access& access) const;

 private:
  // A branch that needs no test: its load leaves its variable exactly where the other branch is taken.
  struct Guard {
    leir::NodeId load = leir::kNone;
    double outside = 0;
  };
  std::optional<Guard> guard(leir::NodeId select) const;
  Result<Lifted> node(leir::NodeId n);
  Result<Lifted> load(leir::NodeId n);
  Result<Lifted> power(Lifted base, int64_t exponent);
  bool is_gather(leir::NodeId load) const;
  const leir::Access* access(const leir::Node& load) const;

  const Surroundings& around_;
  Lifter& lifter_;
  const leir::Typed& code_;
  std::map<sym::Expr, uint32_t> position_of_symbol_;
  std::vector<std::optional<Linear>> forms_;
  std::vector<std::optional<Lifted>> lifted_;
  std::map<leir::NodeId, double> outside_;  // of loads whose guard was left out
  std::map<leir::NodeId, Guard> guards_;    // selects that became their first branch
};

// The dtype of a class; nullopt for u64.
std::optional<DType> dtype_of(leir::Class cls);
// nodes that are refused
Diagnostic refusal(const leir::Program& program, uint32_t item, const std::string& why);

}  // namespace cleave::bridge
