// The measured fields of a machine description that need compiled code.
#pragma once

#include "jit/jit.hpp"

namespace cleave::jit {

// Cycles per element of `fn` on f32 vectors in L1, at this core clock.
Result<double> measure_cycles(Fn fn, const Target& target, double gigahertz, double low, double high);
// The host with all measured fields filled in; takes about a second.
Result<Machine> measured_host();

}  // namespace cleave::jit
