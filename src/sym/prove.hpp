// Proofs that intervals alone do not give: what a floordiv, mod, min or max has to do with its operands.
#pragma once

#include <vector>

#include "sym/sym.hpp"

namespace cleave::sym {

// Whether the sum of the terms (sorted by their atoms, no atoms twice) is >= 0 for all values of the symbols in their
// ranges; false: not known. A floordiv by c is replaced by the rational ends x/c - (c-1)/c and x/c, a mod by 0 and what
// it is at most, a min or max by its operands; integers then need to be more than -1.
bool proves_natural(const Pool& pool, std::vector<Pool::Term> sum);

}  // namespace cleave::sym
