// Arithmetic of this room: saturating at +-kHuge, and intervals whose ends may be unbounded. Internal.
#pragma once

#include <algorithm>

#include "sym/sym.hpp"

namespace cleave::sym {

inline int64_t clip(__int128 v) {
  if (v > kHuge) return kHuge;
  if (v < -kHuge) return -kHuge;
  return static_cast<int64_t>(v);
}
inline int64_t plus(int64_t a, int64_t b) { return clip(static_cast<__int128>(a) + b); }
inline int64_t times(int64_t a, int64_t b) { return clip(static_cast<__int128>(a) * b); }
inline bool unbounded(int64_t v) { return v <= -kHuge || v >= kHuge; }

inline Interval add(Interval a, Interval b) {
  return {unbounded(a.lo) || unbounded(b.lo) ? -kHuge : plus(a.lo, b.lo),
          unbounded(a.hi) || unbounded(b.hi) ? kHuge : plus(a.hi, b.hi)};
}
inline Interval mul(Interval a, Interval b) {
  const int64_t c[] = {times(a.lo, b.lo), times(a.lo, b.hi), times(a.hi, b.lo), times(a.hi, b.hi)};
  return {*std::min_element(c, c + 4), *std::max_element(c, c + 4)};
}

inline int64_t floor_div(int64_t a, int64_t b) {
  if (b == 0) return 0;
  const int64_t q = a / b;
  return q - ((a % b != 0) && ((a < 0) != (b < 0)));
}

// Of a floordiv, mod, min or max of what lies in the intervals.
inline Interval combined(Kind kind, Interval a, Interval b) {
  switch (kind) {
    case Kind::floordiv: {
      if (b.lo <= 0) return {};
      const int64_t c[] = {floor_div(a.lo, b.lo), floor_div(a.lo, b.hi), floor_div(a.hi, b.lo), floor_div(a.hi, b.hi)};
      return {unbounded(a.lo) ? -kHuge : *std::min_element(c, c + 4),
              unbounded(a.hi) ? kHuge : *std::max_element(c, c + 4)};
    }
    case Kind::mod:
      if (b.lo <= 0) return {};
      return {0, a.lo >= 0 ? std::min(a.hi, b.hi - 1) : b.hi - 1};
    case Kind::min: return {std::min(a.lo, b.lo), std::min(a.hi, b.hi)};
    case Kind::max: return {std::max(a.lo, b.lo), std::max(a.hi, b.hi)};
    default: return {};
  }
}

}  // namespace cleave::sym
