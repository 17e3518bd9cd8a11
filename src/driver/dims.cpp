#include "driver/dims.hpp"

namespace cleave::driver {

std::optional<std::pair<std::string, int64_t>> solve(const sym::Pool& syms, sym::Expr extent, int64_t value) {
  std::optional<sym::Expr> dim;
  int64_t factor = 0, left = value;
  for (const sym::Pool::Term& t : syms.terms(extent)) {
    if (t.atoms.empty()) {
      left -= t.coefficient;
    } else if (t.atoms.size() == 1 && syms.kind(t.atoms[0]) == sym::Kind::symbol && !dim) {
      dim = t.atoms[0];
      factor = t.coefficient;
    } else {
      return std::nullopt;
    }
  }
  if (!dim || factor <= 0 || left < 0 || left % factor != 0) return std::nullopt;
  return std::pair{syms.symbol_name(*dim), left / factor};
}

}  // namespace cleave::driver
