// Exact arithmetic modulo a tower of primes, each dividing the next minus one, so that exp can take a residue modulo
// one prime to the next: w^x with w of that order, and exp(a + b) = exp(a) exp(b) holds exactly.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace cleave::algebra {

class Tower {
 public:
  // `height` primes, all 3 modulo 4 (so that a power is a multiplicative square root) and at most 2^51. Modulo the
  // first the root of n^2 is n for numbers n of small prime factors.
  Tower(int height, uint64_t seed);

  int height() const { return static_cast<int>(primes_.size()); }
  uint64_t prime(int level) const { return primes_[static_cast<size_t>(level)]; }

  uint64_t add(int l, uint64_t a, uint64_t b) const {
    const uint64_t p = prime(l), s = a + b;
    return s >= p ? s - p : s;
  }
  uint64_t sub(int l, uint64_t a, uint64_t b) const { return a >= b ? a - b : a + prime(l) - b; }
  uint64_t mul(int l, uint64_t a, uint64_t b) const {
    return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b % prime(l));
  }
  uint64_t pow(int l, uint64_t a, uint64_t e) const;
  uint64_t inverse(int l, uint64_t a) const { return pow(l, a, prime(l) - 2); }
  uint64_t root(int l, uint64_t a) const { return pow(l, a, (prime(l) + 1) / 4); }
  uint64_t from(int l, int64_t v) const;
  uint64_t from(int l, int64_t n, int64_t d) const { return mul(l, from(l, n), inverse(l, from(l, d))); }
  uint64_t from(int l, double v) const;  // the exact dyadic number; finite values only
  // Residue at `level` of exp of a number with residue x at level - 1.
  uint64_t exp(int level, uint64_t x) const { return pow(level, generator_[static_cast<size_t>(level)], x); }

 private:
  std::vector<uint64_t> primes_, generator_;
};

uint64_t mix(uint64_t a, uint64_t b);  // keyed hashing
bool is_prime(uint64_t n);

}  // namespace cleave::algebra
