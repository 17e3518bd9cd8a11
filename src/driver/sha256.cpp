#include "driver/sha256.hpp"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace cleave::driver {

namespace {

// The first 32 bits of the fractional part of a root of each of the first primes.
template <size_t N, class Root>
std::array<uint32_t, N> root_constants(Root root) {
  std::array<uint32_t, N> out{};
  size_t n = 0;
  for (uint32_t p = 2; n < N; ++p) {
    bool prime = true;
    for (uint32_t d = 2; d * d <= p; ++d) prime = prime && p % d != 0;
    if (!prime) continue;
    const long double r = root(static_cast<long double>(p));
    out[n++] = static_cast<uint32_t>((r - std::floor(r)) * 4294967296.0L);
  }
  return out;
}

#if defined(__x86_64__)
// The processor's own rounds, a dozen times faster: weights of gigabytes are hashed when they are kept.
bool has_sha_rounds() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 29 & 1);
}

__attribute__((target("sha,sse4.1"))) void sha_rounds(uint32_t* h, const uint32_t* k, const uint8_t* data,
                                                      size_t blocks) {
  const auto load = [](const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); };
  const __m128i big_endian = _mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3);
  const __m128i cdab = _mm_shuffle_epi32(load(h), 0xb1), efgh = _mm_shuffle_epi32(load(h + 4), 0x1b);
  __m128i abef = _mm_alignr_epi8(cdab, efgh, 8), cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);
  for (; blocks > 0; --blocks, data += 64) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];  // the last sixteen words
    for (int i = 0; i < 16; ++i) {
      __m128i& x = w[i % 4];
      const __m128i before = w[(i + 3) % 4];
      if (i < 4)
        x = _mm_shuffle_epi8(load(data + static_cast<ptrdiff_t>(16) * i), big_endian);
      else
        x = _mm_sha256msg2_epu32(
            _mm_add_epi32(_mm_sha256msg1_epu32(x, w[(i + 1) % 4]), _mm_alignr_epi8(before, w[(i + 2) % 4], 4)), before);
      const __m128i sum = _mm_add_epi32(x, load(k + static_cast<ptrdiff_t>(4) * i));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(h), _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(h + 4), _mm_alignr_epi8(dchg, feba, 8));
}
#endif

struct State {
  std::array<uint32_t, 8> h = root_constants<8>([](long double p) { return std::sqrt(p); });
  std::array<uint32_t, 64> k = root_constants<64>([](long double p) { return std::cbrt(p); });

  bool portable = false;

  void blocks(const uint8_t* data, size_t n) {
#if defined(__x86_64__)
    static const bool quick = has_sha_rounds();
    if (quick && !portable) return sha_rounds(h.data(), k.data(), data, n);
#endif
    for (; n > 0; --n, data += 64) block(data);
  }
  void block(const uint8_t* data) {
    std::array<uint32_t, 64> w;
    for (size_t i = 0; i < 16; ++i)
      w[i] = static_cast<uint32_t>(data[4 * i]) << 24 | static_cast<uint32_t>(data[4 * i + 1]) << 16 |
             static_cast<uint32_t>(data[4 * i + 2]) << 8 | data[4 * i + 3];
    for (size_t i = 16; i < 64; ++i) {
      const uint32_t a = w[i - 15], b = w[i - 2];
      w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ (a >> 3)) + w[i - 7] +
             (std::rotr(b, 17) ^ std::rotr(b, 19) ^ (b >> 10));
    }
    std::array<uint32_t, 8> s = h;
    for (size_t i = 0; i < 64; ++i) {
      const uint32_t one = s[7] + (std::rotr(s[4], 6) ^ std::rotr(s[4], 11) ^ std::rotr(s[4], 25)) +
                           ((s[4] & s[5]) ^ (~s[4] & s[6])) + k[i] + w[i];
      const uint32_t two = (std::rotr(s[0], 2) ^ std::rotr(s[0], 13) ^ std::rotr(s[0], 22)) +
                           ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
      s = {one + two, s[0], s[1], s[2], s[3] + one, s[4], s[5], s[6]};
    }
    for (size_t i = 0; i < 8; ++i) h[i] += s[i];
  }
};

}  // namespace

std::string sha256_hex(std::span<const std::byte> bytes, bool portable) {
  State state;
  state.portable = portable;
  const auto* at = reinterpret_cast<const uint8_t*>(bytes.data());
  state.blocks(at, bytes.size() / 64);
  at += bytes.size() / 64 * 64;
  const size_t left = bytes.size() % 64;
  uint8_t last[128] = {};
  if (left > 0) std::memcpy(last, at, left);
  last[left] = 0x80;
  const size_t size = left < 56 ? 64 : 128;
  const uint64_t bits = static_cast<uint64_t>(bytes.size()) * 8;
  for (size_t i = 0; i < 8; ++i) last[size - 1 - i] = static_cast<uint8_t>(bits >> (8 * i));
  state.blocks(last, size / 64);
  std::string out;
  for (uint32_t word : state.h) out += fmt::format("{:08x}", word);
  return out;
}

}  // namespace cleave::driver
