// The C functions that compiled code calls for scalar functions without an instruction sequence.
#include <array>

#include "jit/emit.hpp"

namespace cleave::jit {

namespace {

template <Fn fn, class T>
T call1(T a) {
  return eval(fn, std::span<const T>(std::array<T, 1>{a}));
}
template <Fn fn, class T>
T call2(T a, T b) {
  return eval(fn, std::span<const T>(std::array<T, 2>{a, b}));
}
template <Fn fn, class T>
T call3(T a, T b, T c) {
  return eval(fn, std::span<const T>(std::array<T, 3>{a, b, c}));
}

template <Fn fn, int arity, class T>
void* address() {
  if constexpr (arity == 1) return reinterpret_cast<void*>(&call1<fn, T>);
  if constexpr (arity == 2) return reinterpret_cast<void*>(&call2<fn, T>);
  if constexpr (arity == 3) return reinterpret_cast<void*>(&call3<fn, T>);
  return nullptr;
}

}  // namespace

void* helper_address(Fn fn, bool integer) {
  switch (fn) {
#define SCALAR(name, arity, rule, laws) \
  case Fn::name: return integer ? address<Fn::name, arity, int64_t>() : address<Fn::name, arity, double>();
#include "types/scalar.def"
#undef SCALAR
  }
  return nullptr;
}

}  // namespace cleave::jit
