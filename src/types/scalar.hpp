// Scalar functions: one table (scalar.def), one meaning (eval). Everything that computes elements (the interpreters,
// constant folding, the code generators' tests) is judged by eval().
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "types/dtype.hpp"

namespace cleave {

enum class Fn : uint8_t {
#define SCALAR(name, arity, rule, laws) name,
#include "types/scalar.def"
#undef SCALAR
};

enum class FnRule : uint8_t { arith, real, real_test, compare, logic, select };

enum FnLaw : uint8_t {
  kCommutative = 1,
  kAssociative = 2,
  kIdempotent = 4,
  kMonotone = 8,
  kDiscontinuous = 16,
};

struct FnInfo {
  Fn fn;
  const char* name;
  int arity;
  FnRule rule;
  uint8_t laws;
  bool has(FnLaw law) const { return laws & law; }
};

const FnInfo& info(Fn fn);
std::span<const FnInfo> all_fns();
std::optional<Fn> fn_from_name(std::string_view name);

// Evaluation in float64 (comparisons and logic give 0 or 1; `where` takes its condition as 0 or 1) and in int64 without
// wrapping beyond 64 bits. Only functions whose rule is arith, compare, logic or select have an integer form.
double eval(Fn fn, std::span<const double> x);
int64_t eval(Fn fn, std::span<const int64_t> x);

// The dtype of the result for operands already promoted to `operand` (for `where`: the dtype of the branches).
DType result_dtype(Fn fn, DType operand);

}  // namespace cleave
