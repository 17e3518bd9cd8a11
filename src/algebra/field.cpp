#include "algebra/field.hpp"

#include <cmath>

#include "base/check.hpp"
#include "base/rng.hpp"

namespace cleave::algebra {

namespace {

uint64_t mul_mod(uint64_t a, uint64_t b, uint64_t p) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b % p);
}
uint64_t pow_mod(uint64_t a, uint64_t e, uint64_t p) {
  uint64_t out = 1 % p;
  for (a %= p; e; e >>= 1, a = mul_mod(a, a, p))
    if (e & 1) out = mul_mod(out, a, p);
  return out;
}

}  // namespace

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t z = a * 0x9e3779b97f4a7c15ULL + b + 0x632be59bd9b4e019ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  z ^= z >> 31;
  z = (z + b) * 0xd6e8feb86659fd93ULL;
  return z ^ (z >> 32);
}

// Miller-Rabin with bases that are exact for 64 bits.
bool is_prime(uint64_t n) {
  if (n < 2) return false;
  for (uint64_t p : {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37})
    if (n % p == 0) return n == p;
  uint64_t d = n - 1;
  int s = 0;
  for (; d % 2 == 0; d /= 2) ++s;
  for (uint64_t a : {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37}) {
    uint64_t x = pow_mod(a, d, n);
    if (x == 1 || x == n - 1) continue;
    bool composite = true;
    for (int r = 1; r < s && composite; ++r) {
      x = mul_mod(x, x, n);
      composite = x != n - 1;
    }
    if (composite) return false;
  }
  return true;
}

namespace {

// Whether the root of n^2 is n rather than -n, for numbers n of small prime factors: these are residues. (Numbers in
// programs are mostly such, and positive.) By quadratic reciprocity, for a prime that is 3 modulo 4.
bool roots_are_positive(uint64_t p) {
  if (p % 8 != 7) return false;
  for (const uint64_t q : {3, 5, 7, 11, 13})
    if (pow_mod(p % q, (q - 1) / 2, q) != (q % 4 == 1 ? 1 : q - 1)) return false;
  return true;
}

}  // namespace

Tower::Tower(int height, uint64_t seed) {
  CHECK(height >= 1 && height <= 6, "a tower of {} primes", height);
  Rng rng(seed ^ 0x746f776572ULL);
  for (;;) {
    primes_.clear();
    uint64_t p;
    do p = (uint64_t{1} << 31) + (rng.below(uint64_t{1} << 29) * 4 + 3);
    while (!roots_are_positive(p) || !is_prime(p));
    primes_.push_back(p);
    while (static_cast<int>(primes_.size()) < height) {
      // p' = k p + 1 with k = 2 modulo 4, from a random start upwards within a small window.
      const uint64_t start = rng.below(8);
      uint64_t next = 0;
      for (uint64_t j = start; j < start + 400 && !next; ++j) {
        const uint64_t candidate = (4 * j + 2) * primes_.back() + 1;
        if (candidate >= uint64_t{1} << 51) break;
        if (candidate % 4 == 3 && is_prime(candidate)) next = candidate;
      }
      if (!next) break;
      primes_.push_back(next);
    }
    if (static_cast<int>(primes_.size()) == height) break;
  }
  generator_.assign(primes_.size(), 0);
  for (size_t l = 1; l < primes_.size(); ++l) {
    uint64_t w = 1;
    while (w == 1) w = pow_mod(2 + rng.below(primes_[l] - 3), (primes_[l] - 1) / primes_[l - 1], primes_[l]);
    generator_[l] = w;
  }
}

uint64_t Tower::pow(int l, uint64_t a, uint64_t e) const { return pow_mod(a, e, prime(l)); }

uint64_t Tower::from(int l, int64_t v) const {
  const auto p = static_cast<int64_t>(prime(l));
  const int64_t r = v % p;
  return static_cast<uint64_t>(r < 0 ? r + p : r);
}

uint64_t Tower::from(int l, double v) const {
  CHECK(std::isfinite(v), "a residue of {}", v);
  int e;
  const double m = std::frexp(v, &e);
  const auto mantissa = static_cast<int64_t>(std::ldexp(m, 53));
  e -= 53;
  const uint64_t scale = pow(l, 2, static_cast<uint64_t>(e < 0 ? -e : e));
  return mul(l, from(l, mantissa), e < 0 ? inverse(l, scale) : scale);
}

}  // namespace cleave::algebra
