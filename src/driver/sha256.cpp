#include "driver/sha256.hpp"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

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

struct State {
  std::array<uint32_t, 8> h = root_constants<8>([](long double p) { return std::sqrt(p); });
  std::array<uint32_t, 64> k = root_constants<64>([](long double p) { return std::cbrt(p); });

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

std::string sha256_hex(std::span<const std::byte> bytes) {
  State state;
  const auto* at = reinterpret_cast<const uint8_t*>(bytes.data());
  size_t left = bytes.size();
  for (; left >= 64; left -= 64, at += 64) state.block(at);
  uint8_t last[128] = {};
  if (left > 0) std::memcpy(last, at, left);
  last[left] = 0x80;
  const size_t size = left < 56 ? 64 : 128;
  const uint64_t bits = static_cast<uint64_t>(bytes.size()) * 8;
  for (size_t i = 0; i < 8; ++i) last[size - 1 - i] = static_cast<uint8_t>(bits >> (8 * i));
  for (size_t i = 0; i < size; i += 64) state.block(last + i);
  std::string out;
  for (uint32_t word : state.h) out += fmt::format("{:08x}", word);
  return out;
}

}  // namespace cleave::driver
