// The C functions that compiled code calls, for libraries that stand alone: types/scalar.cpp with C names, compiled
// without exceptions and without anything of ours behind it. Unused ones are dropped when a library is linked.
#include "base/check.hpp"
// Compiled code never asks for a function that there is not.
#undef CHECK
#define CHECK(condition, ...)           \
  do {                                  \
    if (!(condition)) __builtin_trap(); \
  } while (false)
#include "types/scalar.cpp"

namespace {

template <cleave::Fn fn, class T, class... X>
T call(X... x) {
  const T operands[] = {x...};
  return cleave::eval(fn, std::span<const T>(operands));
}

}  // namespace

#define ARITY_1(fn, prefix, T) \
  extern "C" T prefix##fn(T a) { return call<cleave::Fn::fn, T>(a); }
#define ARITY_2(fn, prefix, T) \
  extern "C" T prefix##fn(T a, T b) { return call<cleave::Fn::fn, T>(a, b); }
#define ARITY_3(fn, prefix, T) \
  extern "C" T prefix##fn(T a, T b, T c) { return call<cleave::Fn::fn, T>(a, b, c); }
#define SCALAR(name, arity, rule, laws) \
  ARITY_##arity(name, cleave_real_, double) ARITY_##arity(name, cleave_int_, int64_t)
#include "types/scalar.def"
#undef SCALAR
