#include "sym/transfer.hpp"

namespace cleave::sym {

Expr Transfer::operator()(Expr e) {
  if (!e.valid()) return e;
  if (const auto known = done_.find(e); known != done_.end()) return known->second;
  const auto both = [&](Expr (Pool::*make)(Expr, Expr)) {
    const auto [a, b] = from_.operands(e);
    const Expr x = (*this)(a), y = (*this)(b);
    return (to_.*make)(x, y);
  };
  Expr out;
  switch (from_.kind(e)) {
    case Kind::constant: out = to_.constant(*from_.as_constant(e)); break;
    case Kind::symbol:
      out = to_.symbol(from_.symbol_name(e), from_.symbol_range(e));
      if (from_.symbol_multiple(e) != 1) to_.set_multiple(out, from_.symbol_multiple(e));
      to_.set_typical(out, from_.typical(e));
      break;
    case Kind::polynomial:
      out = to_.constant(0);
      for (const Pool::Term& t : from_.terms(e)) {
        Expr product = to_.constant(t.coefficient);
        for (const Expr atom : t.atoms) product = to_.mul(product, (*this)(atom));
        out = to_.add(out, product);
      }
      break;
    case Kind::floordiv: out = both(&Pool::floordiv); break;
    case Kind::mod: out = both(&Pool::mod); break;
    case Kind::min: out = both(&Pool::min); break;
    case Kind::max: out = both(&Pool::max); break;
  }
  done_.emplace(e, out);
  return out;
}

}  // namespace cleave::sym
