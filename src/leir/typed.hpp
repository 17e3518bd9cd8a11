// An equation with its types: what is computed in which type, literals folded, conversions written out. The interpreter
// and every emitter work from this one form, so that they agree on D13 to D17.
//
// Values are of five classes: bool, i64 (all integers but u64, and indices), u64, f32 (f16, bf16 and f32 are computed
// in it) and f64. Nodes come after their operands; select, and, or evaluate only what they need.
#pragma once

#include "leir/program.hpp"

namespace cleave::leir {

enum class Class : uint8_t { boolean, integer, unsigned_integer, f32, f64 };
inline bool is_real(Class c) { return c == Class::f32 || c == Class::f64; }
Class class_of_values(Type type);
const char* name(Class c);

enum class Act : uint8_t {
  integer,  // literal
  real,     // literal, infinities too
  index,    // value of a loop
  load,     // element of a variable; operands are subscripts
  convert,  // to `cls`; to boolean tests for non-zero
  add,
  sub,
  mul,
  div,       // reals
  floordiv,  // integers; a divisor of 0 is an error of the run
  mod,
  negate,
  power,        // to the constant `integer`, by squaring
  call,         // `function`, operands of one class
  raise,        // pow of two reals, or of two integers
  compare,      // operands of one class, result boolean
  logical_and,  // lazy
  logical_or,
  select,  // lazy
};

using NodeId = uint32_t;

struct Node {
  Act act = Act::integer;
  Class cls = Class::integer;
  Function function = Function::exp;
  Comparison comparison = Comparison::lt;
  uint32_t first = 0, count = 0;  // operands
  int64_t integer = 0;            // literal, exponent
  double real = 0;
  uint32_t meaning = 0;   // loop of an index; access of a load, none in extents
  uint32_t variable = 0;  // of a load
};

// A tree of nodes: the value of an equation, one of its target's subscripts, or the extent of a loop.
struct Typed {
  std::vector<Node> nodes;
  std::vector<NodeId> operands;
  NodeId root = 0;
  std::vector<NodeId> subscripts;  // of the target
  std::span<const NodeId> operands_of(NodeId n) const { return {operands.data() + nodes[n].first, nodes[n].count}; }
};

struct TypedEquation {
  Typed code;  // root: the value, converted to the class of the target
  uint32_t item = 0;
  NodeId accumulator = kNone;  // the load that is the identity where the accumulation begins
  double identity = 0;         // of reals
  int64_t identity_integer = 0;
};

// Reals in f64 whatever their storage, or as D13 says.
enum class Precision : uint8_t { storage, f64 };

// Errors are those of D13 and D14: an operator that its operands' types have not.
Result<TypedEquation> type_equation(const Program& program, uint32_t equation,
                                    Precision precision = Precision::storage);
Result<Typed> type_extent(const Program& program, uint32_t loop);

// Operations on reals, comparisons and functions that a run executes at most (every branch counts). Errors as above.
Result<double> operations(const Program& program);
// An error when a run may take more steps (points times the nodes of their equations) than that: for code that does not
// count its steps itself.
Diagnostics too_long(const Program& program, int64_t max_steps);

// The functions that a program calls, evaluated in double; the result is rounded to the class by the caller. max, min
// propagate NaN and order -0 below +0.
double evaluate(Function function, std::span<const double> x);
int64_t evaluate(Function function, std::span<const int64_t> x, bool is_unsigned = false);
double power(double base, int64_t exponent, bool single);
int64_t power(int64_t base, int64_t exponent);

}  // namespace cleave::leir
