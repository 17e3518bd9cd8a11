// LEIR -> machine code: loops as they are written, each equation from its typed form.
//
// Strict code computes bitwise what the interpreter of LEIR does. Otherwise sums may be reassociated and multiply-adds
// contracted. Subscripts whose bounds are not proved are checked where they are evaluated.
#pragma once

#include "jit/jit.hpp"
#include "leir/typed.hpp"

namespace cleave::jit {

struct LeirOptions {
  bool strict = true;
  Target target = host_target();
};

class LeirCode {
 public:
  // `v` has a dense buffer for each variable of the program, in order. 0, or 1 + the access that left its variable;
  // `at` (64 numbers) has the values of the loops around it then.
  int run(void* const* v, int64_t* at) const { return function_(v, at); }

 private:
  friend Result<LeirCode> compile_leir(const leir::Program&, const LeirOptions&);
  using Function = int (*)(void* const*, int64_t*);
  CompiledModule module_;
  Function function_ = nullptr;
};

Result<LeirCode> compile_leir(const leir::Program& program, const LeirOptions& options = {});

}  // namespace cleave::jit
