// Expressions of one pool made again in another.
#pragma once

#include <unordered_map>

#include "sym/sym.hpp"

namespace cleave::sym {

// Symbols keep their names, ranges, multiples and typical values. The pools must outlive it.
class Transfer {
 public:
  Transfer(const Pool& from, Pool& to) : from_(from), to_(to) {}
  Expr operator()(Expr e);

 private:
  const Pool& from_;
  Pool& to_;
  std::unordered_map<Expr, Expr> done_;
};

}  // namespace cleave::sym
