// A source of choices with two backends: a seed, or the bytes of a fuzzer. A generator written over it serves property
// tests, differential tests and fuzzing alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/rng.hpp"

namespace cleave::testing {

class Choices {
 public:
  explicit Choices(uint64_t seed) : rng_(seed) {}
  // Bytes are used up front to back; after the last one every choice is the first.
  explicit Choices(std::span<const uint8_t> bytes) : rng_(0), bytes_(bytes.begin(), bytes.end()), from_bytes_(true) {}

  uint64_t below(uint64_t n) {
    if (n <= 1) return 0;
    if (!from_bytes_) return rng_.below(n);
    uint64_t v = 0;
    for (uint64_t reach = 1; reach < n && next_ < bytes_.size(); reach <<= 8) v = v << 8 | bytes_[next_++];
    return v % n;
  }
  int64_t between(int64_t lo, int64_t hi) {
    return lo + static_cast<int64_t>(below(static_cast<uint64_t>(hi - lo) + 1));
  }
  bool chance(int percent) { return static_cast<int>(below(100)) >= 100 - percent; }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[below(from.size())];
  }
  double uniform() { return from_bytes_ ? static_cast<double>(below(1 << 16)) / (1 << 16) : rng_.uniform(); }
  double normal() {
    if (!from_bytes_) return rng_.normal();
    double sum = -2;
    for (int i = 0; i < 4; ++i) sum += uniform();
    return sum * 1.7;
  }
  bool used_up() const { return from_bytes_ && next_ >= bytes_.size(); }

 private:
  Rng rng_;
  std::vector<uint8_t> bytes_;
  size_t next_ = 0;
  bool from_bytes_ = false;
};

}  // namespace cleave::testing
