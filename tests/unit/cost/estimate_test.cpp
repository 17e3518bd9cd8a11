// What the cost model counts: arithmetic, and for each level of memory the bytes that come from it.
#include "cost/estimate.hpp"

#include <gtest/gtest.h>

namespace cleave::cost {
namespace {

Machine machine() {
  Machine m;
  m.isa = Isa::avx512;
  m.vector_bytes = 64;
  m.vector_registers = 32;
  m.cores = 4;
  m.l1_bytes = 32 << 10;
  m.l2_bytes = 1 << 20;
  m.l3_bytes = 16 << 20;
  m.gigahertz = 4;
  m.peak_gflops = 256;
  m.l2_gbytes = 200;
  m.l3_gbytes = 100;
  m.dram_gbytes = 20;
  m.exp_cycles = 0.35;
  return m;
}

KernelEstimate estimated(const std::string& text, int threads = 1) {
  const SourceText source{"t", text};
  auto p = tile::parse(source);
  CHECK(p.ok(), "{}", render(p.errors(), &source));
  return estimate(*p, machine(), threads).back();
}

std::string sum_of(int64_t rows, int64_t columns) {
  return fmt::format(R"(
tile t {{
  input X: f32[{0}, {1}] argument 0
  output Y: f32[{0}] argument 0
  kernel k {{
    parallel i in 0..{0} {{
      nest (j < {1}) {{
        Y[i] fresh += X[i, j]
      }}
    }}
  }}
}})",
                     rows, columns);
}

TEST(Estimate, WhatFitsStaysWhereItIs) {
  // 64 KiB: in L2 from the run before. 4 MiB: in L3. 64 MiB: in memory.
  const KernelEstimate small = estimated(sum_of(16, 1024)), middle = estimated(sum_of(1024, 1024)),
                       large = estimated(sum_of(16384, 1024));
  EXPECT_NEAR(small.from[0], 64 << 10, 1 << 10);
  EXPECT_EQ(small.from[1], 0);
  EXPECT_EQ(small.from[2], 0);
  EXPECT_NEAR(middle.from[1], 4 << 20, 1 << 16);
  EXPECT_EQ(middle.from[2], 0);
  EXPECT_NEAR(large.from[2], 64 << 20, 1 << 18);
  EXPECT_GT(large.seconds, 64e6 / 20e9);
}

// B [k, n] is used by each of the tasks.
std::string product(int64_t m, int64_t n, int64_t k, int64_t rows) {
  return fmt::format(R"(
tile t {{
  input A: f32[{0}, {2}] argument 0
  input B: f32[{2}, {1}] argument 1
  output C: f32[{0}, {1}] argument 0
  kernel k {{
    parallel i in 0..{0} step {3} {{
      matmul C[i, 0] (0, 1) = A[i, 0] (0, 1) * B[0, 0] (0, 1) size {3}, {1}, {2}
    }}
  }}
}})",
                     m, n, k, rows);
}

TEST(Estimate, AnOperandThatDoesNotFitIsReadAgainByEveryTask) {
  // B has 512 KiB: L2 holds it beside the rows of a task.
  const KernelEstimate fits = estimated(product(1024, 512, 256, 64));
  // B has 4 MiB: each of 16 tasks reads it from L3.
  const KernelEstimate again = estimated(product(1024, 1024, 1024, 64));
  EXPECT_LT(fits.from[1], 2 * (1 << 20) + 3 * (1 << 20));
  EXPECT_GE(again.from[1], 16.0 * (4 << 20));
  EXPECT_LT(again.from[1], 20.0 * (4 << 20));
}

TEST(Estimate, ProductsRunNearThePeakAndFewRowsDoNot) {
  const KernelEstimate square = estimated(product(512, 512, 512, 64));
  const double ideal = 512.0 * 512 * 512 / 32;  // cycles: two pipes of 16 lanes
  EXPECT_GT(square.compute_cycles, ideal);
  EXPECT_LT(square.compute_cycles, 1.15 * ideal);
  const KernelEstimate one = estimated(product(1, 512, 512, 1));
  EXPECT_GT(one.compute_cycles, 1.1 * 512.0 * 512 / 32);  // one row waits for the loads of B
  EXPECT_EQ(square.flops, 2.0 * 512 * 512 * 512);
}

TEST(Estimate, TasksAreDividedAmongThreads) {
  const double one = estimated(product(1024, 512, 256, 64), 1).seconds,
               four = estimated(product(1024, 512, 256, 64), 4).seconds;
  EXPECT_NEAR(one / four, 4, 0.2);
  // Five tasks on four threads take two rounds.
  const double five = estimated(product(320, 512, 256, 64), 4).seconds,
               five_alone = estimated(product(320, 512, 256, 64), 1).seconds;
  EXPECT_NEAR(five_alone / five, 2.5, 0.2);
}

// Requests are as long as all are on average, whichever end is read first; they are not empty.
TEST(Estimate, RowPointersAreARequestApart) {
  const auto text = [](const char* first, const char* second) {
    return fmt::format(R"(
tile t {{
  dim B in 1..64 at 8
  dim T in 1..4096 at 800
  dim L in 1..4096 at 300
  input p: i32[B + 1] argument 0
  input X: f32[T, 128] argument 1
  output Y: f32[B, 128] argument 0
  kernel k {{
    parallel b in 0..B {{
      {}
        {}
          for l in 0..min(L, stop - first) {{
            nest (d < 128) {{
              Y[b, d] += X[first + l, d]
            }}
          }}
        }}
      }}
    }}
  }}
}})",
                       first, second);
  };
  for (const auto& [lo, hi] : {std::pair{"0", "T"}, {"-2147483647", "2147483647"}}) {
    const std::string first = fmt::format("let first = p[b] in {}..{} {{", lo, hi),
                      stop = fmt::format("let stop = p[b + 1] in {}..{} {{", lo, hi);
    // 100 rows each, or as many as any request has, where the pointers say nothing.
    const double rows = hi[0] == 'T' ? 100 : 300;
    EXPECT_NEAR(estimated(text(first.c_str(), stop.c_str())).flops, 8 * rows * 128, 8 * 128 * rows / 5);
    EXPECT_NEAR(estimated(text(stop.c_str(), first.c_str())).flops, 8 * rows * 128, 8 * 128 * rows / 5);
  }
}

}  // namespace
}  // namespace cleave::cost
