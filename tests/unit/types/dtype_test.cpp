#include "types/dtype.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

namespace cleave {
namespace {

constexpr DType kIntegers[] = {DType::i64, DType::i32, DType::i16, DType::i8, DType::u32, DType::u16, DType::u8};

TEST(DType, NamesReadBack) {
  for (int d = 0; d < kDTypes; ++d) EXPECT_EQ(dtype_from_name(name(static_cast<DType>(d))), static_cast<DType>(d));
  EXPECT_FALSE(dtype_from_name("u64"));
}

TEST(DType, IntegersWrapAndSaturateAsTheirTypesInC) {
  for (const int64_t v : {int64_t{0}, int64_t{-1}, int64_t{127}, int64_t{128}, int64_t{255}, int64_t{-129},
                          int64_t{40000}, int64_t{70000}, int64_t{3000000000}, int64_t{-3000000000}}) {
    EXPECT_EQ(wrap_to(DType::i8, v), static_cast<int8_t>(v));
    EXPECT_EQ(wrap_to(DType::u8, v), static_cast<uint8_t>(v));
    EXPECT_EQ(wrap_to(DType::i16, v), static_cast<int16_t>(v));
    EXPECT_EQ(wrap_to(DType::u16, v), static_cast<uint16_t>(v));
    EXPECT_EQ(wrap_to(DType::i32, v), static_cast<int32_t>(v));
    EXPECT_EQ(wrap_to(DType::u32, v), static_cast<uint32_t>(v));
    EXPECT_EQ(wrap_to(DType::i64, v), v);
  }
  EXPECT_EQ(least_integer(DType::i16), -32768);
  EXPECT_EQ(greatest_integer(DType::u32), 4294967295);
  EXPECT_EQ(least_integer(DType::i64), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(greatest_integer(DType::i64), std::numeric_limits<int64_t>::max());
  for (const DType d : kIntegers) {
    EXPECT_EQ(real_to_integer(d, 1e30), greatest_integer(d));
    EXPECT_EQ(real_to_integer(d, -1e30), least_integer(d));
    EXPECT_EQ(real_to_integer(d, std::numeric_limits<double>::quiet_NaN()), 0);
    EXPECT_EQ(real_to_integer(d, 7.9), 7);
    for (const int64_t v : {least_integer(d), greatest_integer(d), int64_t{5}}) {
      int64_t memory = 0;
      store_integer(d, &memory, v);
      EXPECT_EQ(load_integer(d, &memory), v) << name(d);
    }
  }
}

// Each 16-bit value and its neighbour: themselves, the middle (to the even one), and a little to each side of it.
TEST(DType, SixteenBitRealsRoundToNearestEven) {
  for (const auto& [d, encode, decode, infinity] :
       {std::tuple{DType::f16, &encode_f16, &decode_f16, 0x7c00}, {DType::bf16, &encode_bf16, &decode_bf16, 0x7f80}}) {
    for (int bits = 0; bits < infinity; ++bits) {
      const double low = decode(static_cast<uint16_t>(bits));
      // The step above the largest is as the one below it, and leads to infinity.
      const bool largest = bits + 1 == infinity;
      const double high =
          largest ? 2 * low - decode(static_cast<uint16_t>(bits - 1)) : decode(static_cast<uint16_t>(bits + 1));
      const double middle = low + (high - low) / 2;
      const int even = bits % 2 ? bits + 1 : bits;
      for (const auto& [v, want] : {std::pair{low, bits},
                                    {middle, even},
                                    {std::nextafter(middle, low), bits},
                                    {std::nextafter(middle, high), bits + 1}}) {
        ASSERT_EQ(encode(v), want) << v;
        ASSERT_EQ(encode(-v), want | 0x8000) << v;
        ASSERT_EQ(round_to(d, v), decode(static_cast<uint16_t>(want))) << v;
        ASSERT_EQ(std::signbit(round_to(d, -v)), true) << v;
      }
    }
    for (const double v : {1e30 * 1e30, 1e300, std::numeric_limits<double>::infinity()}) {
      EXPECT_EQ(encode(v), infinity);
      EXPECT_EQ(encode(-v), infinity | 0x8000);
    }
    for (const double v : {5e-324, 1e-310, 1e-60}) EXPECT_EQ(encode(-v), 0x8000);
    EXPECT_TRUE(std::isnan(round_to(d, std::numeric_limits<double>::quiet_NaN())));
  }
}

TEST(DType, TwoIntegerTypesPromoteToTheNarrowestThatHoldsBoth) {
  EXPECT_EQ(promote(DType::u8, DType::i8), DType::i16);
  EXPECT_EQ(promote(DType::i8, DType::u16), DType::i32);
  EXPECT_EQ(promote(DType::u32, DType::i8), DType::i64);
  EXPECT_EQ(promote(DType::u32, DType::u8), DType::u32);
  EXPECT_EQ(promote(DType::u8, DType::i32), DType::i32);
  EXPECT_EQ(promote(DType::i64, DType::f16), DType::f16);
  EXPECT_EQ(promote(DType::boolean, DType::i8), DType::i8);
  for (const DType a : kIntegers)
    for (const DType b : kIntegers) {
      EXPECT_EQ(promote(a, b), promote(b, a));
      EXPECT_LE(least_integer(promote(a, b)), std::min(least_integer(a), least_integer(b)));
      EXPECT_GE(greatest_integer(promote(a, b)), std::max(greatest_integer(a), greatest_integer(b)));
    }
}

}  // namespace
}  // namespace cleave
