#include "vec/builder.hpp"

#include <gtest/gtest.h>

#include "vec/microkernel.hpp"

namespace cleave::vec {
namespace {

TEST(VecBuilder, FoldsIntegerArithmetic) {
  Function f("f");
  Builder b(f);
  EXPECT_EQ(b.known(b.add(b.i64(3), b.mul(b.i64(4), b.i64(5)))), 23);
  EXPECT_EQ(b.known(b.floordiv(b.i64(-7), b.i64(2))), -4);
  EXPECT_EQ(b.known(b.mod(b.i64(-7), b.i64(4))), 1);
  EXPECT_EQ(b.known(b.div(b.i64(5), b.i64(0))), 0);
  EXPECT_EQ(b.known(b.lt(b.i64(1), b.i64(2))), 1);
  const Value t = b.task();
  EXPECT_EQ(b.add(t, b.i64(0)), t);
  EXPECT_EQ(b.mul(b.i64(1), t), t);
  EXPECT_EQ(b.known(b.mul(t, b.i64(0))), 0);
  EXPECT_EQ(b.known(b.sub(t, t)), 0);
  EXPECT_EQ(b.add(b.add(t, b.i64(3)), b.i64(-3)), t);
  EXPECT_EQ(b.known(b.integer({Elem::u8, 1}, 300)), 44);
  EXPECT_EQ(b.ptr_add(b.ptr_add(b.call(), 8), -8), b.call());
  EXPECT_EQ(b.select(b.boolean(false), t, b.call() == t ? t : b.i64(9)), b.i64(9));
}

TEST(VecBuilder, SharesEqualAddressesInScopeOnly) {
  Function f("f");
  Builder b(f);
  const Value x = b.mul(b.task(), b.i64(12));
  EXPECT_EQ(b.mul(b.task(), b.i64(12)), x);
  Value inner;
  b.for_each(b.i64(0), b.task(), b.i64(1), [&](Value) {
    EXPECT_EQ(b.mul(b.i64(12), b.task()), x);
    inner = b.mul(b.task(), b.i64(13));
  });
  EXPECT_NE(b.mul(b.task(), b.i64(13)), inner);
  Module m;
  m.functions.push_back(std::move(f));
  EXPECT_TRUE(verify(m).empty());
}

TEST(VecBuilder, ReadsTheCallOnceAtTheStart) {
  Module m;
  m.functions.emplace_back("f");
  Builder b(m.functions[0]);
  const Value x = b.mul(b.task(), b.i64(3));
  Value first, second;
  b.for_each(b.i64(0), x, b.i64(1), [&](Value) {
    b.for_each(b.i64(0), b.extent(2), b.i64(1), [&](Value) { first = b.tensor_data(1); });
    second = b.tensor_data(1);
  });
  EXPECT_EQ(first, second);
  EXPECT_EQ(b.extent(2), b.extent(2));
  b.store(b.tensor_stride(0, 1), b.tensor_data(1), DType::i64);
  EXPECT_TRUE(verify(m).empty()) << render(verify(m), nullptr);
}

TEST(VecBuilder, UnfoldsLoopsThatRunOnceOrNever) {
  Function f("f");
  Builder b(f);
  int runs = 0;
  auto body = [&](Value i, std::span<const Value> c) {
    ++runs;
    return std::vector<Value>{b.add(c[0], i)};
  };
  EXPECT_EQ(b.known(b.for_loop(b.i64(5), b.i64(5), b.i64(1), {b.i64(7)}, body)[0]), 7);
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(b.known(b.for_loop(b.i64(5), b.i64(8), b.i64(4), {b.i64(7)}, body)[0]), 12);
  EXPECT_EQ(runs, 1);
  EXPECT_TRUE(f.blocks[f.body].insts.empty());
}

TEST(VecBuilder, SplatsScalarsBesideVectors) {
  Function f("f");
  Builder b(f);
  const Value v = b.load(b.scratch(), DType::bf16, 8), s = b.load(b.scratch(), DType::f32);
  EXPECT_EQ(b.type(v), (Type{Elem::f32, 8}));
  EXPECT_EQ(b.type(b.fma(v, s, b.real(b.type(s), 1))), b.type(v));
  EXPECT_EQ(b.type(b.lt(s, v)), (Type{Elem::boolean, 8}));
  EXPECT_THROW(b.add(v, b.load(b.scratch(), DType::f32, 4)), InternalError);
  EXPECT_THROW(b.add(v, b.load(b.scratch(), DType::f64, 8)), InternalError);
  EXPECT_THROW(b.apply(Fn::exp, {b.task()}), InternalError);
}

TEST(VecBuilder, DropsCountsThatCoverAllLanes) {
  Function f("f");
  Builder b(f);
  EXPECT_EQ(f.definition(b.load(b.scratch(), DType::f32, 8, b.i64(8)))->operands.size(), 1u);
  EXPECT_EQ(f.definition(b.load(b.scratch(), DType::f32, 8, b.i64(7)))->operands.size(), 2u);
  EXPECT_TRUE(f.is_constant(b.load(b.scratch(), DType::f32, 8, b.i64(0))));
}

TEST(Microkernel, GoodTilesFillButDoNotOverflowTheRegisters) {
  Machine m = with_isa({}, Isa::avx2);
  EXPECT_TRUE(tile_fits(m, {6, 2}));
  EXPECT_FALSE(tile_fits(m, {3, 4}));
  EXPECT_FALSE(tile_fits(m, {2, 2}));
  EXPECT_EQ(good_tiles(m)[0].rows, 6);
  m = with_isa({}, Isa::avx512);
  EXPECT_EQ(good_tiles(m)[0].rows, 8);
  EXPECT_EQ(good_tiles(m)[0].vectors, 3);
  EXPECT_FALSE(tile_fits(m, {14, 2}) && !tile_fits(m, {12, 2}));
}

}  // namespace
}  // namespace cleave::vec
