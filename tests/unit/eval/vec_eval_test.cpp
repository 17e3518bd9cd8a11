#include "eval/vec_eval.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "vec/builder.hpp"

namespace cleave::vec {
namespace {

// Builds a body over scratch memory and runs it.
template <class Body>
bool run(void* memory, Body body, InterpretOptions options = {}, int64_t task = 0) {
  Module m;
  m.functions.emplace_back("f");
  Builder b(m.functions[0]);
  body(b);
  EXPECT_TRUE(verify(m).empty()) << render(verify(m), nullptr);
  return interpret(m.functions[0], nullptr, task, memory, options);
}

TEST(VecEval, TailsAreReadAsZeroAndNotWritten) {
  float x[8] = {1, 2, 3, NAN, NAN, NAN, NAN, NAN}, y[8] = {9, 9, 9, 9, 9, 9, 9, 9};
  float* memory[] = {x, y};
  ASSERT_TRUE(run(memory, [](Builder& b) {
    const Value p = b.load_ptr(b.scratch()), q = b.load_ptr(b.ptr_add(b.scratch(), 8));
    const Value v = b.load(p, DType::f32, 8, b.i64(3));
    b.store(b.add(v, v), q, DType::f32, b.i64(5));
    b.store(v, q, DType::f32, b.task());  // 0 lanes
  }));
  const float expected[] = {2, 4, 6, 0, 0, 9, 9, 9};
  for (int i = 0; i < 8; ++i) EXPECT_EQ(y[i], expected[i]) << i;
}

TEST(VecEval, ReducesByHalves) {
  float x[4] = {1e8f, 1, -1e8f, 1}, sum = 0;
  float* memory[] = {x, &sum};
  ASSERT_TRUE(run(memory, [](Builder& b) {
    const Value v = b.load(b.load_ptr(b.scratch()), DType::f32, 4);
    b.store(b.reduce(Fn::add, v), b.load_ptr(b.ptr_add(b.scratch(), 8)), DType::f32);
  }));
  EXPECT_EQ(sum, 2.0f);  // (1e8 - 1e8) + (1 + 1); from left to right it would be 1
}

TEST(VecEval, CastsSaturateAndWrap) {
  struct {
    double x[4] = {NAN, 1e30, -2.7, 300.2};
    int32_t i[4];
    uint8_t u[4], wrapped[4];
  } m;
  ASSERT_TRUE(run(&m, [](Builder& b) {
    const Value v = b.load(b.scratch(), DType::f64, 4);
    const Value i = b.cast(v, Elem::i32);
    b.store(i, b.ptr_add(b.scratch(), 32), DType::i32);
    b.store(b.cast(v, Elem::u8), b.ptr_add(b.scratch(), 48), DType::u8);
    b.store(b.cast(i, Elem::u8), b.ptr_add(b.scratch(), 52), DType::u8);
  }));
  const int32_t i[] = {0, 2147483647, -2, 300};
  const uint8_t u[] = {0, 255, 0, 255}, w[] = {0, 255, 254, 44};
  for (int k = 0; k < 4; ++k) {
    EXPECT_EQ(m.i[k], i[k]);
    EXPECT_EQ(m.u[k], u[k]);
    EXPECT_EQ(m.wrapped[k], w[k]);
  }
}

TEST(VecEval, LoopsCarryValuesAndBranchesChoose) {
  int64_t out[2] = {};
  ASSERT_TRUE(run(out, [](Builder& b) {
    const auto r = b.for_loop(
        b.i64(0), b.add(b.task(), b.i64(10)), b.i64(3), {b.i64(0), b.i64(1)},
        [&](Value i, std::span<const Value> c) { return std::vector<Value>{b.add(c[0], i), b.mul(c[1], b.i64(2))}; });
    b.store(r[0], b.scratch(), DType::i64);
    const Value which = b.if_else(
        b.gt(r[1], b.i64(8)), [&] { return std::vector<Value>{r[1]}; },
        [&] { return std::vector<Value>{b.i64(-1)}; })[0];
    b.store(which, b.ptr_add(b.scratch(), 8), DType::i64);
  }));
  EXPECT_EQ(out[0], 0 + 3 + 6 + 9);
  EXPECT_EQ(out[1], 16);
}

TEST(VecEval, ScattersInLaneOrder) {
  float out[4] = {};
  ASSERT_TRUE(run(out, [](Builder& b) {
    const Value i = b.bit_and(b.iota(8), b.integer({Elem::i64, 8}, 1));
    const Value mask = b.lt(b.iota(8), b.integer({Elem::i64, 8}, 7));
    b.scatter(b.cast(b.iota(8), Elem::f32), b.scratch(), i, DType::f32, mask);
  }));
  EXPECT_EQ(out[0], 6.0f);
  EXPECT_EQ(out[1], 5.0f);
  EXPECT_EQ(out[2], 0.0f);
}

TEST(VecEval, MaxOrderedIsTheSecondOperandForNan) {
  float x[4] = {NAN, 2, -0.0f, 5};
  ASSERT_TRUE(run(x, [](Builder& b) {
    const Value v = b.load(b.scratch(), DType::f32, 4), three = b.real(b.type(v), 3);
    b.store(b.max_ordered(v, three), b.scratch(), DType::f32);
  }));
  EXPECT_EQ(x[0], 3.0f);
  EXPECT_EQ(x[1], 3.0f);
  EXPECT_EQ(x[3], 5.0f);
}

TEST(VecEval, EndlessWorkStopsAtTheBudget) {
  EXPECT_FALSE(run(nullptr, [](Builder& b) { b.for_each(b.task(), b.i64(int64_t{1} << 62), b.i64(1), [](Value) {}); },
                   {.max_steps = 1000}));
}

}  // namespace
}  // namespace cleave::vec
