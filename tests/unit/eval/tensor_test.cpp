#include "eval/tensor.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace cleave::oracle {
namespace {

TEST(Tensor, ReadsAndWritesAnyStrides) {
  const float memory[] = {0, 1, 2, 3, 4, 5};
  const int64_t extents[] = {2, 3};
  const int64_t transposed[] = {1, 2}, reversed[] = {-3, -1}, repeated[] = {0, 2};
  EXPECT_EQ(from_memory(DType::f32, extents, transposed, memory).reals, (std::vector<double>{0, 2, 4, 1, 3, 5}));
  EXPECT_EQ(from_memory(DType::f32, extents, reversed, memory + 5).reals, (std::vector<double>{5, 4, 3, 2, 1, 0}));
  EXPECT_EQ(from_memory(DType::f32, extents, repeated, memory + 1).reals, (std::vector<double>{1, 3, 5, 1, 3, 5}));
  float back[6] = {};
  to_memory(from_memory(DType::f32, extents, reversed, memory + 5), reversed, back + 5);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(back[i], memory[i]);
}

TEST(Tensor, RoundTripsEveryDtypeThroughMemory) {
  for (int d = 0; d < kDTypes; ++d) {
    const auto dtype = static_cast<DType>(d);
    const Tensor t = tensor(dtype, {3}, {0, 1, dtype == DType::boolean ? 1.0 : 7.0});
    const auto bytes = to_dense(t);
    EXPECT_TRUE(compare(from_dense(dtype, t.extents, bytes.data()), t, 0, 0).ok()) << name(dtype);
  }
}

TEST(Tensor, NanHasNoSignInMessages) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor one = tensor(DType::f32, {1}, {1}), not_one = tensor(DType::f32, {1}, {std::copysign(nan, -1.0)});
  EXPECT_NE(compare(not_one, one, 1e-6, 0).text.find("is nan, expected 1"), std::string::npos);
  EXPECT_NE(compare(one, not_one, 1e-6, 0).text.find("is 1, expected nan"), std::string::npos);
}

TEST(Tensor, ComparisonFailsOnOnePercent) {
  Tensor a = tensor(DType::f32, {2, 2}, {1, 2, 3, 4}), b = a;
  EXPECT_TRUE(compare(b, a, 1e-6, 0).ok());
  b.reals[3] *= 1.01;
  const Difference d = compare(b, a, 1e-3, 1e-6);
  EXPECT_FALSE(d.ok());
  EXPECT_EQ(d.worst, 3);
  EXPECT_NEAR(d.max_rel, 0.01, 1e-9);
  EXPECT_NE(d.text.find("[1, 1]"), std::string::npos) << d.text;
}

TEST(Tensor, ComparisonHoldsNanAndInfinitiesToThemselves) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  const Tensor expected = tensor(DType::f32, {4}, {nan, inf, -inf, 1});
  EXPECT_TRUE(compare(expected, expected, 0, 0).ok());
  for (size_t i = 0; i < 4; ++i)
    for (const double wrong : {nan, inf, -inf, 1.0, 3e38}) {
      Tensor got = expected;
      if (std::isnan(wrong) ? std::isnan(got.reals[i]) : got.reals[i] == wrong) continue;
      got.reals[i] = wrong;
      EXPECT_FALSE(compare(got, expected, 0.1, 0.1).ok()) << i << " " << wrong;
      const std::vector<double> some(4, 1e30), any(4, inf);
      EXPECT_FALSE(compare(got, expected, some).ok() && wrong != 1.0) << i << " " << wrong;
      EXPECT_TRUE(compare(got, expected, any).ok());
    }
}

TEST(Tensor, ComparisonIsExactForIntegersAndKinds) {
  const Tensor a = tensor(DType::i64, {2}, {1000000, 2});
  Tensor b = a;
  b.ints[0] += 1;
  EXPECT_FALSE(compare(b, a, 0.1, 100).ok());
  EXPECT_FALSE(compare(tensor(DType::i32, {2}, {1000000, 2}), a, 1, 1).ok());
  EXPECT_FALSE(compare(tensor(DType::i64, {2, 1}, {1000000, 2}), a, 1, 1).ok());
}

}  // namespace
}  // namespace cleave::oracle
