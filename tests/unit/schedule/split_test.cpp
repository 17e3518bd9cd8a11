// Reductions in parts: equal to the graph for every length of a part, and what may not be split is not.
#include <gtest/gtest.h>

#include "schedule/plan.hpp"
#include "schedule/split.hpp"
#include "support.hpp"

namespace cleave::schedule {
namespace {

using namespace test;

// Decode: a few queries of each of two heads over l keys.
std::string decode(int64_t l, const std::string& mask = "T = S") {
  return fmt::format(R"(
graph decode {{
  input Q: f32[2, 3, 8]
  input K: f32[2, {0}, 8]
  input V: f32[2, {0}, 16]
  j = iota(shape=[1, {0}], axis=1, dtype=i64)
  i = iota(shape=[3, 1], axis=0, dtype=i64)
  S = mul(contract("b s d, b l d -> b s l", Q, K), 0.35)
  {1}
  m, u, v = scaled_reduce("b s l -> b s | -> b s | b l e -> b s e", T, V)
  output O = quot0(v, unsqueeze(u, axes=[2]))
  output lse = add(m, log(u))
}})",
                     l, mask);
}

TEST(Split, PartsOfAnyLengthMergeToTheSame) {
  const char* masks[] = {"T = S", "T = where(le(j, mul(i, 40)), S, -inf)",
                         "T = where(logical_and(ge(j, 25), lt(j, 50)), S, -inf)"};
  for (const char* mask : masks)
    for (const int64_t l : {67, 64, 1})
      // 1, 2, 3, 7, 8 parts of 67 keys, parts of one key, and a part longer than all of them
      for (const int64_t part : {67, 34, 23, 10, 9, 1, 100, 32}) {
        Options options = test_options();
        options.part = part;
        options.keep = 3;
        options.tile = part % 2 == 0 ? 16 : 0;
        const graph::Graph g = parsed(decode(l, mask));
        EXPECT_EQ(judged(g, static_cast<uint64_t>(part), testing::Magnitude::unit, options), "")
            << mask << " " << l << " " << part;
        const auto all = candidates(g, options);
        ASSERT_TRUE(all.ok());
        const std::string parts = fmt::format("in {} parts of {}", (l + part - 1) / part, part);
        EXPECT_TRUE(std::any_of(all->begin(), all->end(), [&](const Candidate& c) {
          return c.summary.find(parts) != std::string::npos;
        })) << parts;
      }
}

TEST(Split, SumsAndMaximaAndProductsAreSplit) {
  for (const char* text : {R"(
graph g {
  input X: f32[5, 100]
  output Y = sum(square(X), axes=[1])
})",
                           R"(
graph g {
  input X: f32[5, 100]
  output Y = amax(mul(X, -2.0), axes=[1])
})",
                           R"(
graph g {
  input A: f32[3, 100]
  input B: f32[100, 7]
  output Y = mul(contract("m k, k n -> m n", A, B), 2.0)
})"})
    for (const int64_t part : {100, 50, 33, 7, 1}) {
      Options options = test_options();
      options.part = part;
      EXPECT_EQ(judged(parsed(text), 1, testing::Magnitude::unit, options), "") << text << part;
      EXPECT_EQ(judged(parsed(text), 2, testing::Magnitude::special, options), "") << text << part;
    }
}

TEST(Split, RandomGraphsInPartsKeepTheirMeaning) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    testing::Choices choices(seed);
    testing::RandomGraphOptions random;
    random.max_elements = 512;
    const graph::Graph g = graph::expand(testing::random_graph(choices, random));
    Options options = test_options();
    options.keep = 3;
    options.part = 1 + static_cast<int64_t>(seed % 7);
    options.tile = 1 + static_cast<int64_t>(seed / 2 % 5);
    ASSERT_EQ(judged(g, seed, static_cast<testing::Magnitude>(seed % 4), options), "") << "seed " << seed;
  }
}

TEST(Split, ReductionsThatWaitForEachOtherStayRight) {
  // The sum of squares needs the mean over the same index.
  for (const int64_t part : {100, 33, 7, 1}) {
    Options options = test_options();
    options.part = part;
    EXPECT_EQ(judged(parsed(R"(
graph g {
  input X: f32[5, 100]
  m = mean(X, axes=[1], keepdims=true)
  output Y = sum(square(sub(X, m)), axes=[1])
})"),
                     1, testing::Magnitude::unit, options),
              "")
        << part;
  }
}

// Attention of one query row: b requests, h heads of which g have keys, l keys.
std::string decode_point(int64_t b, int64_t h, int64_t g, int64_t l, int64_t d) {
  return fmt::format(R"(
graph decode {{
  input Q: f32[{0}, {2}, {1}, {4}]
  input K: f32[{0}, {2}, {3}, {4}]
  input V: f32[{0}, {2}, {3}, {4}]
  S = contract("b g r d, b g l d -> b g r l", Q, K)
  m, u, v = scaled_reduce("b g r l -> b g r | -> b g r | b g l e -> b g r e", S, V)
  output O = div(v, unsqueeze(u, axes=[3]))
}})",
                     b, h / g, g, l, d);
}

std::string mla_decode_point(int64_t b, int64_t l) {
  return fmt::format(R"(
graph mla_decode {{
  input Q: f32[{0}, 16, 512]
  input P: f32[{0}, 16, 64]
  input KV: f32[{0}, {1}, 512]
  input KP: f32[{0}, {1}, 64]
  S = add(contract("b h c, b l c -> b h l", Q, KV), contract("b h e, b l e -> b h l", P, KP))
  m, u, v = scaled_reduce("b h l -> b h | -> b h | b l c -> b h c", S, KV)
  output O = div(v, unsqueeze(u, axes=[2]))
}})",
                     b, l);
}

TEST(Split, ManyCoresTakePartsAtEveryDecodePoint) {
  Options options = test_options();
  options.machine = host_machine();
  options.machine.cores = options.threads = 132;
  std::vector<std::string> points;
  for (const int64_t b : {1, 4})
    for (const int64_t l : {1024, 4096}) {
      points.push_back(decode_point(b, 32, 8, l, 128));
      points.push_back(decode_point(b, 32, 1, l, 128));
      points.push_back(mla_decode_point(b, l));
    }
  for (const std::string& text : points) {
    const auto all = candidates(parsed(text), options);
    ASSERT_TRUE(all.ok());
    EXPECT_NE(all->front().summary.find("parts of"), std::string::npos) << text << all->front().summary;
  }
}

TEST(Split, PartsAreMergedInTheLaunchThatComputesThem) {
  Options options = test_options();
  options.machine = host_machine();
  options.machine.cores = options.threads = 2;
  options.keep = 200;
  const auto count = [&](const std::string& cut) {
    const auto all = candidates(parsed(mla_decode_point(1, 4096)), options);
    return std::count_if(all->begin(), all->end(), [&](const Candidate& c) {
      return c.summary.find(cut) != std::string::npos && c.it.kernels.size() == 1;
    });
  };
  EXPECT_GT(count("parts of"), 0);
  EXPECT_EQ(count("merged apart"), 0);
  options.join = false;
  EXPECT_EQ(count("parts of"), 0);
}

TEST(Split, PartsAreCandidatesWhereTasksAreFew) {
  Options options = test_options();
  options.machine = host_machine();
  options.keep = 200;
  const auto in_parts = [&](int cores) {
    options.machine.cores = options.threads = cores;
    const auto all = candidates(parsed(R"(
graph mla_decode {
  input Q: f32[1, 16, 128]
  input KV: f32[1, 4096, 128]
  S = contract("b h c, b l c -> b h l", Q, KV)
  m, u, v = scaled_reduce("b h l -> b h | -> b h | b l c -> b h c", S, KV)
  output O = div(v, unsqueeze(u, axes=[2]))
})"),
                                options);
    return std::count_if(all->begin(), all->end(),
                         [](const Candidate& c) { return c.summary.find("parts of") != std::string::npos; });
  };
  EXPECT_GT(in_parts(2), 0);
  EXPECT_EQ(in_parts(1), 0);  // one core gains nothing
}

}  // namespace
}  // namespace cleave::schedule
