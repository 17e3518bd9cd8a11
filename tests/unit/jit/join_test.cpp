// Statements behind a parallel loop: the task that ends last does them, once, and sees what all others stored.
#include <gmock/gmock.h>

#include "base/thread_pool.hpp"
#include "tile_support.hpp"

namespace cleave {
namespace {

// Rows are summed in parts; the last task of a row adds the parts up, the last of all rows adds up the rows.
constexpr const char* kSums = R"(
tile sums {
  dim N in 1..64 at 7
  input X: f32[N, 6, 50] argument 0
  output rows: f32[N] argument 0
  output total: f32[1] argument 1
  workspace parts: f32[N, 6]
  scratch s: f32[1]
  kernel sums {
    parallel i in 0..N {
      parallel p in 0..6 {
        nest (k < 50) {
          s[0] fresh += X[i, p, k]
        }
        nest () {
          parts[i, p] = s[0]
        }
      }
      nest (p < 6) {
        s[0] fresh += parts[i, p]
      }
      nest () {
        rows[i] = mul(s[0], 2.0:f32)
      }
    }
    nest (i < N) {
      total[0] fresh += rows[i]
    }
  }
}
)";

TEST(Join, EqualsTheInterpreter) {
  for (const Isa isa : testing::isas())
    for (const int64_t n : {1, 2, 7, 64}) {
      testing::Compared how;
      how.ulps = 200;
      how.absolute = 1e-4;
      how.extents = {n};
      testing::compare(kSums, how, static_cast<uint64_t>(n), isa);
    }
}

TEST(Join, BitsDoNotDependOnThreads) {
  const auto built = jit::build(tile::parse({"sums", kSums}).value()).value();
  constexpr int64_t kRows = 64;
  std::vector<float> x(kRows * 300);
  Rng rng(5);
  for (float& f : x) f = static_cast<float>(rng.normal());
  std::vector<float> first;
  for (const int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    for (int repeat = 0; repeat < 50; ++repeat) {
      std::vector<float> out(kRows + 1, NAN);
      runtime::Buffer workspace(built.workspace_bytes(std::vector<int64_t>{kRows}).value());
      std::memset(workspace.data(), 0xff, static_cast<size_t>(workspace.size()));
      jit::RunOptions options;
      options.executor = &pool;
      options.workspace = workspace.data();
      options.extents = {kRows};
      const jit::TensorView in[] = {{x.data(), DType::f32, {kRows, 6, 50}, {}}};
      const jit::TensorView outputs[] = {{out.data(), DType::f32, {kRows}, {}}, {&out[kRows], DType::f32, {1}, {}}};
      ASSERT_TRUE(built.run(in, {}, outputs, nullptr, options).empty());
      if (first.empty()) first = out;
      ASSERT_EQ(std::memcmp(first.data(), out.data(), out.size() * sizeof(float)), 0) << threads << " " << repeat;
    }
  }
}

std::string refusal(std::string text, const std::string& from, const std::string& to) {
  text.replace(text.find(from), from.size(), to);
  const SourceText source{"t", text};
  const auto p = tile::parse(source);
  if (!p) return render(p.errors(), &source);
  const auto built = jit::build(*p);
  return built ? "" : render(built.errors(), nullptr);
}

TEST(Join, RefusesLoopsThatMayBeEmpty) {
  EXPECT_THAT(refusal(kSums, "dim N in 1..64", "dim N in 0..64"),
              ::testing::HasSubstr("a parallel loop whose tasks are joined may be empty"));
}

TEST(Join, TasksThatRunOnceAreNotJoined) {
  EXPECT_THAT(refusal(kSums, "kernel sums", "kernel sums once"),
              ::testing::HasSubstr("a `once` kernel joins its tasks"));
}

}  // namespace
}  // namespace cleave
