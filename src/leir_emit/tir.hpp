// LEIR as TVM script: a module with one function `main`, whose parameters are the known variables in order.
#pragma once

#include "leir/typed.hpp"

namespace cleave::leir {

struct TirOptions {
  // false: plain loops that build for a CPU. B and P loops are parallel (the outermost, where nothing is reduced over
  // them or kept by each iteration) or serial, V and U vectorized and unrolled where that is possible; all variables
  // are global. true: thread bindings, scopes, and a block with axes and an init for each equation.
  bool cuda = false;
  std::string version = "0.27";  // of TVM: a name of tir_versions()
};

// The versions whose spellings are known, the newest first.
std::vector<std::string> tir_versions();

// What TVM's own operations mean stands: max and min of NaN, conversions of reals that no integer holds. Subscripts are
// not checked. Refused by name: an unknown version, loops deeper than 64, expressions nested deeper than 100, integer
// powers.
Result<std::string> emit_tir(const Program& program, const TirOptions& options = {});

}  // namespace cleave::leir
