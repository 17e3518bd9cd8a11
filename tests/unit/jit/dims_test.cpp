// Run-time extents and integers in memory: the same tile program, compiled once for each value list by compare(),
// against the interpreter.
#include <gmock/gmock.h>

#include "tile_support.hpp"

namespace cleave {
namespace {

using testing::compare;
using testing::compare_with_arm64;
using testing::Compared;

Compared at(std::vector<int64_t> extents) {
  Compared how;
  how.ulps = 64;
  how.absolute = 1e-5;
  how.extents = std::move(extents);
  return how;
}

const char* kRows = R"(tile rows {
  dim M in 0..100
  dim N in 0..300 at 64
  input X: f32[M, N] argument 0
  output S: f32[M] argument 0
  output Y: f32[M, N] argument 1
  workspace W: f32[N + 3, M]
  scratch row: f32[2, max(N, 1)]
  kernel first {
    parallel i in 0..M step 2 {
      nest (a < min(2, M - i), b < N) {
        row[a, b] = exp(X[i + a, b])
      }
      nest (a < min(2, M - i), b < N) {
        S[i + a] fresh += row[a, b]
      }
      nest (a < min(2, M - i), b < N) {
        W[b + 3, i + a] = row[a, b]
      }
    }
  }
  kernel second {
    parallel j in 0..N step 7 {
      parallel k in 0..M {
        nest (b < min(7, N - j)) {
          Y[k, j + b] = add(W[j + b + 3, k], cast(index(N - M), f32))
        }
      }
    }
  }
})";

TEST(Dims, StridesTasksAndMemoryFollowFromTheCall) {
  for (const auto& extents :
       std::vector<std::vector<int64_t>>{{0, 0}, {0, 5}, {5, 0}, {1, 1}, {3, 17}, {7, 64}, {100, 300}})
    extents[0] < 100 ? compare_with_arm64(kRows, at(extents)) : compare(kRows, at(extents));
}

TEST(Dims, ProductsAndPanelsOfAnyShape) {
  const std::string text = R"(tile product {
  dim M in 0..64
  dim N in 0..128
  dim K in 0..600
  input A: f32[M, K] argument 0
  input B: f32[K, N] argument 1
  output C: f32[M, N] argument 0
  workspace P: f32[K, N] panel 32
  kernel pack {
    parallel j in 0..N step 32 {
      nest (k < K, n < min(32, N - j)) {
        P[k, j + n] = B[k, j + n]
      }
    }
  }
  kernel multiply {
    parallel i in 0..M step 16 {
      matmul C[i, 0] (0, 1) = A[i, 0] (0, 1) * P[0, 0] (0, 1) size min(16, M - i), N, K
    }
  }
})";
  for (const auto& extents :
       std::vector<std::vector<int64_t>>{{0, 3, 3}, {3, 0, 3}, {3, 3, 0}, {1, 1, 1}, {17, 33, 70}})
    compare_with_arm64(text, at(extents));
  compare(text, at({64, 128, 600}));
}

// Columns that do not fill the last vectors, of B as it lies.
TEST(Dims, ProductsWithTails) {
  for (const char* b : {"f32", "bf16"}) {
    const std::string text = fmt::format(R"(tile product {{
  dim M in 0..64
  dim N in 0..128
  dim K in 0..600
  input A: f32[M, K] argument 0
  input B: {0}[K, N] argument 1
  output C: f32[M, N] argument 0
  kernel multiply {{
    parallel i in 0..M step 16 {{
      matmul C[i, 0] (0, 1) += A[i, 0] (0, 1) * B[0, 0] (0, 1) size min(16, M - i), N, K
    }}
  }}
}})",
                                         b);
    for (const auto& extents : std::vector<std::vector<int64_t>>{{17, 3, 70}, {9, 14, 9}, {20, 37, 65}})
      compare_with_arm64(text, at(extents));
  }
}

// Lengths in memory end the loops; whatever they are, nothing outside is touched.
TEST(Dims, LoopsEndAtLengthsInMemory) {
  const std::string text = R"(tile ragged {
  dim B in 0..9
  dim L in 0..40
  input X: f32[B, L] argument 0
  input lens: i32[B] argument 1
  output S: f32[B] argument 0
  output Y: f32[B, L] argument 1
  kernel sums {
    parallel b in 0..B {
      nest () {
        S[b] = 0.0:f32
      }
      let n = lens[b] in 0..L {
        for l in 0..n step 4 {
          nest (k < min(4, n - l)) {
            S[b] += X[b, l + k]
          }
        }
        nest (k < L) {
          Y[b, k] = where(lt(index(k), index(n)), X[b, k], -1.0:f32)
        }
      }
    }
  }
})";
  for (const int64_t integers : {0, 10, 1000000})
    for (const auto& extents : std::vector<std::vector<int64_t>>{{0, 3}, {4, 0}, {1, 1}, {9, 40}}) {
      Compared how = at(extents);
      how.integers = integers;
      compare(text, how, 3);
    }
}

TEST(Dims, RefusesWhatCannotBeServed) {
  const auto refusal = [](const std::string& text) {
    const SourceText source{"t", text};
    auto p = tile::parse(source);
    if (!p) return render(p.errors(), &source);
    auto built = jit::build(*p);
    return built ? std::string() : render(built.errors(), nullptr);
  };
  EXPECT_THAT(refusal("tile t {\n  dim N in 0..5 at 7\n}"),
              ::testing::HasSubstr("the typical value 7 lies outside 0..5"));
  EXPECT_THAT(refusal("tile t {\n  dim N in 0..5\n  dim N in 0..5\n}"), ::testing::HasSubstr("`N` is defined twice"));
  EXPECT_THAT(
      refusal("tile t {\n  dim N in 0..5\n  packed P: f32[N]\n  output Y: f32[N] argument 0\n  kernel k {\n  }\n}"),
      ::testing::HasSubstr("memory that is packed once has a run-time extent"));
  EXPECT_THAT(
      refusal("tile t {\n  input n: f32[1] argument 0\n  output Y: f32[1] argument 0\n  kernel k {\n    let m = n[0] "
              "in 0..1 {\n    }\n  }\n}"),
      ::testing::HasSubstr("`n` holds no integers"));
  EXPECT_THAT(
      refusal("tile t {\n  input n: i32[1] argument 0\n  output Y: f32[9] argument 0\n  kernel k {\n    let m = n[3] "
              "in 0..1 {\n    }\n  }\n}"),
      ::testing::HasSubstr("leaves 0..1"));
  EXPECT_THAT(
      refusal("tile t {\n  input n: i32[4] argument 0\n  output Y: f32[4] argument 0\n  kernel k {\n    parallel i in "
              "0..4 {\n      let m = n[i] in 0..4 {\n        parallel j in 0..m {\n          nest () {\n            "
              "Y[i] = 0.0:f32\n          }\n        }\n      }\n    }\n  }\n}"),
      ::testing::HasSubstr("a parallel loop is not outermost or not the first"));
}

}  // namespace
}  // namespace cleave
