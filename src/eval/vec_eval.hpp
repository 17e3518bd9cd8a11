// Interpreter of the vector IR: the meaning of docs/vec.md, one lane at a time, on real memory.
//
// Real operations are computed in double and rounded to the element type (which is exact rounding for + - * / sqrt on
// f32); fma rounds once. Bounds are the business of whoever built the program, exactly as for compiled code.
#pragma once

#include <cstdint>

#include "vec/vec.hpp"

namespace cleave::vec {

struct InterpretOptions {
  int64_t max_steps = int64_t{1} << 32;  // instructions executed; more is an error, not a hang
};

// Runs function(call, task, scratch). False when the budget of steps ran out. The function must verify.
bool interpret(const Function& function, const void* call, int64_t task, void* scratch,
               const InterpretOptions& options = {});

}  // namespace cleave::vec
