// match(variant, cases...): visits a small closed sum. A missing case does not compile.
#pragma once

#include <utility>
#include <variant>

namespace cleave {

template <class... Cases>
struct Overload : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overload(Cases...) -> Overload<Cases...>;

template <class Variant, class... Cases>
decltype(auto) match(Variant&& value, Cases&&... cases) {
  return std::visit(Overload{std::forward<Cases>(cases)...}, std::forward<Variant>(value));
}

}  // namespace cleave
