#include "runtime/calibrate.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/buffer.hpp"
#include "runtime/timing.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace cleave::runtime {

namespace {

// Each loop runs 12 independent chains of multiply-adds, more than latency * pipes of any core; returns the operations.
// The chains are named variables, and the empty asm keeps each in a register and the loop as written.
#define CLEAVE_CHAINS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#if defined(__x86_64__)
__attribute__((target("avx512f"))) double fma_avx512(int64_t n, float* sink) {
  const __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.001f);
#define CLEAVE_START(k) __m512 x##k = a;
  CLEAVE_CHAINS(CLEAVE_START)
  for (int64_t i = 0; i < n; ++i) {
#define CLEAVE_STEP(k)                \
  x##k = _mm512_fmadd_ps(x##k, a, b); \
  asm volatile("" : "+v"(x##k));
    CLEAVE_CHAINS(CLEAVE_STEP)
  }
#define CLEAVE_SUM(k) *sink += _mm512_cvtss_f32(x##k);
  CLEAVE_CHAINS(CLEAVE_SUM)
#undef CLEAVE_START
#undef CLEAVE_STEP
#undef CLEAVE_SUM
  return static_cast<double>(n) * 12 * 16 * 2;
}
__attribute__((target("avx2,fma"))) double fma_avx2(int64_t n, float* sink) {
  const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.001f);
#define CLEAVE_START(k) __m256 x##k = a;
  CLEAVE_CHAINS(CLEAVE_START)
  for (int64_t i = 0; i < n; ++i) {
#define CLEAVE_STEP(k)                \
  x##k = _mm256_fmadd_ps(x##k, a, b); \
  asm volatile("" : "+x"(x##k));
    CLEAVE_CHAINS(CLEAVE_STEP)
  }
#define CLEAVE_SUM(k) *sink += _mm256_cvtss_f32(x##k);
  CLEAVE_CHAINS(CLEAVE_SUM)
#undef CLEAVE_START
#undef CLEAVE_STEP
#undef CLEAVE_SUM
  return static_cast<double>(n) * 12 * 8 * 2;
}
#endif
#undef CLEAVE_CHAINS
double fma_generic(int64_t n, float* sink) {
  float x[12 * 4];
  std::fill(std::begin(x), std::end(x), 1.0f);
  for (int64_t i = 0; i < n; ++i)
    for (float& v : x) v = v * 0.999f + 0.001f;
  for (const float v : x) *sink += v;
  return static_cast<double>(n) * 12 * 4 * 2;
}

// Sums 64-bit words with four independent accumulators of four lanes each.
#if defined(__x86_64__)
__attribute__((target("avx2"))) uint64_t read_avx2(const uint8_t* p, int64_t bytes) {
  __m256i s[4] = {};
  for (int64_t i = 0; i + 128 <= bytes; i += 128)
    for (int k = 0; k < 4; ++k)
      s[k] = _mm256_add_epi64(s[k], _mm256_load_si256(reinterpret_cast<const __m256i*>(p + i + 32 * k)));
  const __m256i t = _mm256_add_epi64(_mm256_add_epi64(s[0], s[1]), _mm256_add_epi64(s[2], s[3]));
  uint64_t w[4];
  std::memcpy(w, &t, sizeof w);
  return w[0] + w[1] + w[2] + w[3];
}
#endif
uint64_t read_generic(const uint8_t* p, int64_t bytes) {
  uint64_t s[8] = {};
  for (int64_t i = 0; i + 64 <= bytes; i += 64)
    for (int k = 0; k < 8; ++k) {
      uint64_t w;
      std::memcpy(&w, p + i + 8 * k, 8);
      s[k] += w;
    }
  return s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7];
}

using FmaLoop = double (*)(int64_t, float*);
FmaLoop fma_loop(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::avx512 && __builtin_cpu_supports("avx512f")) return fma_avx512;
  if ((isa == Isa::avx2 || isa == Isa::avx512) && __builtin_cpu_supports("avx2")) return fma_avx2;
#endif
  (void)isa;
  return fma_generic;
}

uint64_t read_all(const uint8_t* p, int64_t bytes) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return read_avx2(p, bytes);
#endif
  return read_generic(p, bytes);
}

}  // namespace

double measure_peak_gflops(Isa isa, int shortness) {
  const FmaLoop loop = fma_loop(isa);
  float sink = 0;
  loop(1000, &sink);
  double best = 0;
  for (int i = 0; i < 4; ++i) {
    const double start = thread_cpu_seconds();
    double flops = 0;
    while (thread_cpu_seconds() - start < 0.5e-3 / shortness) flops += loop(40000, &sink);
    best = std::max(best, flops / (thread_cpu_seconds() - start) * 1e-9);
  }
  asm volatile("" : : "g"(&sink) : "memory");
  return best;
}

double measure_peak_gflops(int shortness) { return measure_peak_gflops(host_isa(), shortness); }

double measure_read_gbytes(int64_t bytes) {
  bytes = std::max<int64_t>(bytes / 128 * 128, 128);
  Buffer buffer(bytes);
  std::memset(buffer.data(), 1, static_cast<size_t>(bytes));
  uint64_t sum = read_all(buffer.bytes(), bytes);
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    double done = 0;
    const double start = thread_cpu_seconds();
    do {
      sum += read_all(buffer.bytes(), bytes);
      done += static_cast<double>(bytes);
    } while (thread_cpu_seconds() - start < 5e-3);
    best = std::max(best, done / (thread_cpu_seconds() - start) * 1e-9);
  }
  asm volatile("" : : "g"(sum));
  return best;
}

Machine measured(Machine m) {
  m.peak_gflops = 0;
  for (int i = 0; i < 5; ++i) m.peak_gflops = std::max(m.peak_gflops, measure_peak_gflops(m.isa));
  m.gigahertz = m.peak_gflops / (2.0 * m.fma_pipes * m.f32_lanes());
  m.l2_gbytes = measure_read_gbytes(m.l2_bytes / 2);
  m.l3_gbytes = measure_read_gbytes(std::min(m.l3_bytes / 4, std::max(m.l2_bytes * 4, m.l3_bytes / 8)));
  // (A virtual machine shows a cache that it shares with others: what it gets of it is less than this.)
  constexpr int64_t kMost = 512 << 20;
  m.dram_gbytes = measure_read_gbytes(std::clamp<int64_t>(4 * m.l3_bytes, 64 << 20, kMost));
  return m;
}

}  // namespace cleave::runtime
