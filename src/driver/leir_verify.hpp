// Is a LEIR program what another one computes? Both compiled, run on a few draws of data, judged by running error
// bounds.
#pragma once

#include "leir/program.hpp"

namespace cleave::driver {

struct VerifyOptions {
  int draws = 3;  // normal; larger, with zeros; positive; and so on in turn
  uint64_t seed = 1;
  int64_t max_steps = int64_t{1} << 40;  // of one run of one program, estimated
};

enum class Verdict : uint8_t { equal, different, inconclusive };
const char* name(Verdict v);

struct Verification {
  Verdict verdict = Verdict::equal;
  bool bitwise = true;   // in storage precision too, bit for bit (one NaN is as good as another)
  std::string reason;    // the first element that differs, or whose bound says nothing
  double tightness = 0;  // the largest error in storage precision as a part of what is allowed
  double compile_ms = 0, run_ms = 0;
};

// In float64 both have to agree to what float64 can round, and the candidate in storage precision has to be within the
// bounds of both. A bound of over 5 % of an output's scale is inconclusive, and so is an output that is finite in no
// draw. Errors: the known variables differ, or a run leaves a variable.
Result<Verification> verify_leir(const leir::Program& original, const leir::Program& candidate,
                                 const VerifyOptions& options = {});

// The text with the header of `original` where it has none: what models answer.
leir::Syntax with_header_of(const leir::Syntax& original, leir::Syntax candidate);

}  // namespace cleave::driver
