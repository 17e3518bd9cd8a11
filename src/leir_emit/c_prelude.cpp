#include "leir_emit/c_prelude.hpp"

namespace cleave::leir {

std::string_view c_prelude() {
  return R"(#include <math.h>
#include <stdint.h>
#include <string.h>

typedef _Float16 f16;
typedef struct { uint16_t bits; } bf16;

static inline float bf16_load(bf16 x) {
  uint32_t u = (uint32_t)x.bits << 16;
  float f;
  memcpy(&f, &u, 4);
  return f;
}
static inline bf16 bf16_store(float x) {
  uint32_t u;
  memcpy(&u, &x, 4);
  bf16 r = {x != x ? (uint16_t)((u >> 16) | 0x40) : (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16)};
  return r;
}
/* Double to bf16 with one rounding: to f32 towards an odd last bit, which keeps what the second rounding needs. */
static inline bf16 bf16_store_double(double x) {
  float f = (float)x;
  if (x == x && fabsf(f) <= 3.4e38f && (double)f != x) {
    uint32_t u;
    memcpy(&u, &f, 4);
    if (fabs((double)f) > fabs(x)) u -= 1;
    u |= 1;
    memcpy(&f, &u, 4);
  }
  return bf16_store(f);
}
static inline int64_t floor_div(int64_t a, int64_t b) {
  if (b == -1) return (int64_t)(0 - (uint64_t)a);
  int64_t q = a / b;
  return q - ((a % b != 0) & ((a < 0) != (b < 0)));
}
static inline int64_t floor_mod(int64_t a, int64_t b) {
  if (b == -1) return 0;
  int64_t r = a % b;
  return r + (((r != 0) & ((r < 0) != (b < 0))) ? b : 0);
}
static inline int64_t int_pow(int64_t base, int64_t e) {
  if (e < 0) return base == 1 ? 1 : base == -1 ? (e % 2 ? -1 : 1) : 0;
  uint64_t r = 1, b = (uint64_t)base;
  for (uint64_t n = (uint64_t)e; n; n >>= 1, b *= b)
    if (n & 1) r *= b;
  return (int64_t)r;
}
static inline int64_t int_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t int_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline uint64_t uint_max(uint64_t a, uint64_t b) { return a > b ? a : b; }
static inline uint64_t uint_min(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline int64_t to_int(double v, double low, double high, int64_t least, int64_t most) {
  if (v != v) return 0;
  v = trunc(v);
  return v >= high ? most : v <= low ? least : (int64_t)v;
}
static inline uint64_t to_u64(double v) {
  if (v != v) return 0;
  v = trunc(v);
  return v >= 0x1p64 ? UINT64_MAX : v <= 0 ? 0 : (uint64_t)v;
}
/* NaN wins; -0 is below +0. */
static inline double max_f64(double a, double b) {
  return a != a ? a : b != b ? b : a == b ? (signbit(a) ? b : a) : a > b ? a : b;
}
static inline double min_f64(double a, double b) {
  return a != a ? a : b != b ? b : a == b ? (signbit(a) ? a : b) : a < b ? a : b;
}
static inline float max_f32(float a, float b) {
  return a != a ? a : b != b ? b : a == b ? (signbit(a) ? b : a) : a > b ? a : b;
}
static inline float min_f32(float a, float b) {
  return a != a ? a : b != b ? b : a == b ? (signbit(a) ? a : b) : a < b ? a : b;
}
static inline double fn_gate(double x, double g) { return g == 0 && isinf(x) ? (x > 0 ? x : -0.0) : x * g; }
static inline double fn_sign(double x) { return x != x ? x : (double)((x > 0) - (x < 0)); }
static inline double fn_square(double x) { return x * x; }
static inline double fn_rsqrt(double x) { return 1 / sqrt(x); }
static inline double fn_reciprocal(double x) { return 1 / x; }
static inline double fn_sigmoid(double x) { return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x)); }
static inline double fn_softplus(double x) { return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)); }
static inline double fn_nmax(double a, double b) { return a != a || b != b ? NAN : a > b ? a : b; }
static inline double fn_nmin(double a, double b) { return a != a || b != b ? NAN : a < b ? a : b; }
static inline double fn_hardsigmoid(double x) { return fn_nmin(fn_nmax(x / 6 + 0.5, 0), 1); }
static inline double fn_silu(double x) { return fn_gate(x, fn_sigmoid(x)); }
static inline double fn_hardswish(double x) { return fn_gate(x, fn_hardsigmoid(x)); }
static inline double fn_gelu_erf(double x) { return fn_gate(x, 0.5 * erfc(-x / 1.4142135623730950488)); }
static inline double fn_gelu_tanh(double x) {
  return fn_gate(x, fn_sigmoid(2 * 0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}
static inline double fn_mish(double x) { return fn_gate(x, tanh(fn_softplus(x))); }
static inline double fn_elu(double x, double a) { return x > 0 || x != x ? x : a * expm1(x); }
static inline double fn_selu(double x) {
  return 1.0507009873554804934193349852946 * (x > 0 || x != x ? x : 1.6732632423543772848170429916717 * expm1(x));
}
static inline double fn_leaky_relu(double x, double a) { return x >= 0 || x != x ? x : x * a; }

)";
}

std::string cuda_prelude() {
  std::string text(c_prelude());
  const auto replace = [&](std::string_view from, std::string_view to) {
    for (size_t i = text.find(from); i != std::string::npos; i = text.find(from, i + to.size()))
      text.replace(i, from.size(), to);
  };
  replace("static inline ", "FN ");
  replace("typedef _Float16 f16;", "");
  replace("(bf16){", "bf16{");
  return R"(#ifdef __CUDACC__
#include <cuda_fp16.h>
typedef __half f16;
#define FN static inline __host__ __device__
#define LAUNCH(kernel, grid, block, ...) kernel<<<grid, block>>>(__VA_ARGS__)
#define LAUNCH_WAITING LAUNCH
#else
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>
typedef _Float16 f16;
#define FN static inline
#define __global__ static
#define __shared__ static
struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  unsigned size() const { return x * y * z; }
  dim3 at(unsigned n) const { return dim3(n % x, n / x % y, n / x / y); }
};
static dim3 blockIdx, threadIdx;
/* Each thread in turn, blocks from the last to the first: an order that no correct kernel depends on. */
#define LAUNCH(kernel, grid, block, ...)                          \
  do {                                                            \
    const dim3 g = grid, b = block;                               \
    for (unsigned n = g.size(); n-- > 0;)                         \
      for (unsigned m = b.size(); m-- > 0;) {                     \
        blockIdx = g.at(n), threadIdx = b.at(m);                  \
        kernel(__VA_ARGS__);                                      \
      }                                                           \
  } while (0)
/* Threads that wait for each other: each has a stack of its own and runs on to the next barrier. */
static struct {
  ucontext_t host, threads[1024];
  int line[1024]; /* of the barrier that a thread waits at; 0: none yet, -1: it has ended */
  void (*run)(void *);
  void *body;
  unsigned current;
} waiting;
static void wait_at(int line) {
  waiting.line[waiting.current] = line;
  swapcontext(&waiting.threads[waiting.current], &waiting.host);
}
#define __syncthreads() wait_at(__LINE__)
static void run_thread() {
  waiting.run(waiting.body);
  waiting.line[waiting.current] = -1;
}
template <class Body>
static void run_block(dim3 block, Body body) {
  const size_t stack = 1 << 16;
  auto &w = waiting;
  const unsigned n = block.size();
  char *stacks = (char *)malloc(n * stack);
  w.run = [](void *f) { (*(Body *)f)(); }, w.body = &body;
  for (unsigned m = 0; m < n; ++m) {
    w.line[m] = 0;
    getcontext(&w.threads[m]);
    w.threads[m].uc_stack.ss_sp = stacks + m * stack;
    w.threads[m].uc_stack.ss_size = stack;
    w.threads[m].uc_link = &w.host;
    makecontext(&w.threads[m], run_thread, 0);
  }
  for (bool running = true; running;) {
    int line = 0;
    running = false;
    for (unsigned m = n; m-- > 0;) {
      if (w.line[m] < 0) continue;
      w.current = m, threadIdx = block.at(m);
      swapcontext(&w.host, &w.threads[m]);
      if (w.line[m] < 0) continue;
      if (line && line != w.line[m]) {
        fprintf(stderr, "threads of a block wait at different barriers\n");
        abort();
      }
      line = w.line[m], running = true;
    }
  }
  free(stacks);
}
#define LAUNCH_WAITING(kernel, grid, block, ...)                  \
  do {                                                            \
    const dim3 g = grid, b = block;                               \
    for (unsigned n = g.size(); n-- > 0;) {                       \
      blockIdx = g.at(n);                                         \
      run_block(b, [&] { kernel(__VA_ARGS__); });                 \
    }                                                             \
  } while (0)
#endif
)" + text;
}

}  // namespace cleave::leir
