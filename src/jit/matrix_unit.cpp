#include "jit/matrix_unit.hpp"

#include <llvm/IR/IntrinsicsX86.h>

#include <algorithm>
#include <functional>

#include "vec/vec.hpp"

namespace cleave::jit {

using namespace llvm;
using V = llvm::Value*;
using vec::MatrixOperand;

namespace {
// Tiles 0 to 3 hold C, row by row, then come two of A and two of B.
constexpr int kC = 0, kA = 4, kB = 6;
constexpr int64_t kRowBytes = 64;

V clamped(IRBuilder<>& b, V n, int64_t lo, int64_t hi) {
  if (const auto* known = dyn_cast<ConstantInt>(n))
    return b.getInt64(static_cast<uint64_t>(std::clamp(known->getSExtValue(), lo, hi)));
  const V least = b.getInt64(static_cast<uint64_t>(lo)), most = b.getInt64(static_cast<uint64_t>(hi));
  return b.CreateBinaryIntrinsic(Intrinsic::smin, b.CreateBinaryIntrinsic(Intrinsic::smax, n, least), most);
}
}  // namespace

V MatrixUnit::call(Intrinsic::ID id, std::initializer_list<V> operands) {
  return b_.CreateIntrinsic(id, {}, ArrayRef<V>(operands.begin(), operands.size()));
}

BasicBlock* MatrixUnit::fresh(const char* name) { return BasicBlock::Create(b_.getContext(), name, f_); }

void MatrixUnit::reserve() {
  if (sizes_) return;
  IRBuilder<> entry(&f_->getEntryBlock(), f_->getEntryBlock().begin());
  sizes_ = entry.CreateAlloca(ArrayType::get(entry.getInt8Ty(), 64));
  sizes_->setAlignment(Align(64));
  set_ = entry.CreateAlloca(entry.getInt64Ty());
  entry.CreateStore(entry.getInt64(0), set_);
}

void MatrixUnit::configure(V rows, V columns, V pairs, int row_tiles, int column_tiles) {
  reserve();
  const V key = b_.CreateOr(b_.CreateOr(rows, b_.CreateShl(columns, 8)), b_.CreateShl(pairs, 16));
  BasicBlock *other = fresh("sizes"), *ready = fresh("sized");
  b_.CreateCondBr(b_.CreateICmpEQ(b_.CreateLoad(b_.getInt64Ty(), set_), key), ready, other);
  b_.SetInsertPoint(other);
  for (int64_t at = 0; at < 64; at += 8)
    b_.CreateAlignedStore(b_.getInt64(at == 0 ? 1 : 0), b_.CreateConstGEP1_64(b_.getInt8Ty(), sizes_, at), Align(8));
  const auto size = [&](int tile, V tile_rows, V bytes) {
    b_.CreateStore(b_.CreateTrunc(bytes, b_.getInt16Ty()),
                   b_.CreateConstGEP1_64(b_.getInt8Ty(), sizes_, 16 + 2 * tile));
    b_.CreateStore(b_.CreateTrunc(tile_rows, b_.getInt8Ty()), b_.CreateConstGEP1_64(b_.getInt8Ty(), sizes_, 48 + tile));
  };
  const auto part = [&](V all, int tiles, int tile) -> V {
    if (tile + 1 < tiles) return b_.getInt64(vec::kMatrixTile);
    return b_.CreateSub(all, b_.getInt64(vec::kMatrixTile * (tiles - 1)));
  };
  for (int i = 0; i < row_tiles; ++i) {
    size(kA + i, part(rows, row_tiles, i), b_.CreateShl(pairs, 2));
    for (int j = 0; j < column_tiles; ++j)
      size(kC + 2 * i + j, part(rows, row_tiles, i), b_.CreateShl(part(columns, column_tiles, j), 2));
  }
  for (int j = 0; j < column_tiles; ++j) size(kB + j, pairs, b_.CreateShl(part(columns, column_tiles, j), 2));
  call(Intrinsic::x86_ldtilecfg, {sizes_});
  b_.CreateStore(key, set_);
  b_.CreateBr(ready);
  b_.SetInsertPoint(ready);
}

void MatrixUnit::product(std::span<V const> operands, std::span<const int32_t> indices) {
  there_ ? unit(operands, indices) : loops(operands, indices);
}

void MatrixUnit::loop(V count, const std::function<void(V)>& body) {
  BasicBlock *before = b_.GetInsertBlock(), *inside = fresh("element"), *after = fresh("elements");
  b_.CreateCondBr(b_.CreateICmpSGT(count, b_.getInt64(0)), inside, after);
  b_.SetInsertPoint(inside);
  PHINode* i = b_.CreatePHI(b_.getInt64Ty(), 2);
  body(i);
  const V next = b_.CreateAdd(i, b_.getInt64(1));
  i->addIncoming(b_.getInt64(0), before), i->addIncoming(next, b_.GetInsertBlock());
  b_.CreateCondBr(b_.CreateICmpSLT(next, count), inside, after);
  b_.SetInsertPoint(after);
}

void MatrixUnit::loops(std::span<V const> operands, std::span<const int32_t> indices) {
  const auto operand = [&](MatrixOperand o) { return operands[static_cast<size_t>(o)]; };
  const auto count = [&](MatrixOperand o, int tiles) {
    return clamped(b_, operand(o), vec::kMatrixTile * (tiles - 1) + 1, vec::kMatrixTile * tiles);
  };
  const auto at = [&](V base, V row, V stride, V bytes) {
    return b_.CreatePtrAdd(b_.CreatePtrAdd(base, b_.CreateMul(row, stride)), bytes);
  };
  const auto number = [&](V p) {
    const V bits = b_.CreateZExt(b_.CreateAlignedLoad(b_.getInt16Ty(), p, Align(2)), b_.getInt32Ty());
    return b_.CreateBitCast(b_.CreateShl(bits, 16), b_.getFloatTy());
  };
  const V two = b_.getInt64(2), four = b_.getInt64(4);
  loop(count(MatrixOperand::rows, indices[0]), [&](V r) {
    loop(count(MatrixOperand::columns, indices[1]), [&](V c) {
      const V to = at(operand(MatrixOperand::c), r, operand(MatrixOperand::c_stride), b_.CreateMul(c, four));
      if (!indices[2]) b_.CreateAlignedStore(ConstantFP::get(b_.getFloatTy(), 0), to, Align(4));
      loop(b_.CreateMul(operand(MatrixOperand::pairs), two), [&](V k) {
        const V x = number(at(operand(MatrixOperand::a), r, operand(MatrixOperand::a_stride), b_.CreateMul(k, two)));
        const V half = b_.CreateMul(b_.CreateAnd(k, b_.getInt64(1)), two);
        const V y = number(at(operand(MatrixOperand::b), b_.CreateAShr(k, 1), operand(MatrixOperand::b_stride),
                              b_.CreateAdd(b_.CreateMul(c, four), half)));
        const V sum = b_.CreateAlignedLoad(b_.getFloatTy(), to, Align(4));
        b_.CreateAlignedStore(b_.CreateIntrinsic(Intrinsic::fma, {b_.getFloatTy()}, {x, y, sum}), to, Align(4));
      });
    });
  });
}

void MatrixUnit::unit(std::span<V const> operands, std::span<const int32_t> indices) {
  const auto operand = [&](MatrixOperand o) { return operands[static_cast<size_t>(o)]; };
  const int row_tiles = indices[0], column_tiles = indices[1];
  const auto within = [&](V n, int tiles) {
    return clamped(b_, n, vec::kMatrixTile * (tiles - 1) + 1, vec::kMatrixTile * tiles);
  };
  const V rows = within(operand(MatrixOperand::rows), row_tiles);
  const V columns = within(operand(MatrixOperand::columns), column_tiles);
  const V pairs = clamped(b_, operand(MatrixOperand::pairs), 0, int64_t{1} << 40);
  const V a_stride = operand(MatrixOperand::a_stride), b_stride = operand(MatrixOperand::b_stride),
          c_stride = operand(MatrixOperand::c_stride);
  const auto tile = [&](int n) { return b_.getInt8(static_cast<uint8_t>(n)); };
  const auto beside = [&](V base, V row_stride, int i, int j) {
    const V down = i == 0 ? base : b_.CreatePtrAdd(base, b_.CreateMul(row_stride, b_.getInt64(vec::kMatrixTile * i)));
    return j == 0 ? down : b_.CreatePtrAdd(down, b_.getInt64(kRowBytes * j));
  };
  const auto for_c = [&](const std::function<void(int, V)>& body) {
    for (int i = 0; i < row_tiles; ++i)
      for (int j = 0; j < column_tiles; ++j) body(kC + 2 * i + j, beside(operand(MatrixOperand::c), c_stride, i, j));
  };
  // One step along the depth: at most 16 pairs, from these places on.
  const auto step = [&](V a, V b) {
    for (int i = 0; i < row_tiles; ++i)
      call(Intrinsic::x86_tileloadd64, {tile(kA + i), beside(a, a_stride, i, 0), a_stride});
    for (int j = 0; j < column_tiles; ++j)
      call(Intrinsic::x86_tileloadd64, {tile(kB + j), beside(b, b_stride, 0, j), b_stride});
    for (int i = 0; i < row_tiles; ++i)
      for (int j = 0; j < column_tiles; ++j)
        call(Intrinsic::x86_tdpbf16ps, {tile(kC + 2 * i + j), tile(kA + i), tile(kB + j)});
  };
  // Setting sizes clears the tiles, so the last steps, of fewer pairs, are a product of their own that adds to C.
  const auto piece = [&](bool load, const std::function<void()>& steps) {
    for_c([&](int t, V at) {
      if (load)
        call(Intrinsic::x86_tileloadd64, {tile(t), at, c_stride});
      else
        call(Intrinsic::x86_tilezero, {tile(t)});
    });
    steps();
    for_c([&](int t, V at) { call(Intrinsic::x86_tilestored64, {tile(t), at, c_stride}); });
  };
  const V sixteen = b_.getInt64(vec::kMatrixTile), zero = b_.getInt64(0);
  const V whole = b_.CreateAShr(pairs, 4), rest = b_.CreateSub(pairs, b_.CreateShl(whole, 4));
  configure(rows, columns, sixteen, row_tiles, column_tiles);
  piece(indices[2] != 0, [&] {
    BasicBlock *before = b_.GetInsertBlock(), *loop = fresh("depth"), *after = fresh("summed");
    b_.CreateCondBr(b_.CreateICmpSGT(whole, zero), loop, after);
    b_.SetInsertPoint(loop);
    PHINode* s = b_.CreatePHI(b_.getInt64Ty(), 2);
    PHINode* a = b_.CreatePHI(b_.getPtrTy(), 2);
    PHINode* b = b_.CreatePHI(b_.getPtrTy(), 2);
    step(a, b);
    const V next = b_.CreateAdd(s, b_.getInt64(1));
    s->addIncoming(zero, before), s->addIncoming(next, loop);
    a->addIncoming(operand(MatrixOperand::a), before);
    a->addIncoming(b_.CreatePtrAdd(a, b_.getInt64(kRowBytes)), loop);
    b->addIncoming(operand(MatrixOperand::b), before);
    b->addIncoming(b_.CreatePtrAdd(b, b_.CreateMul(b_stride, sixteen)), loop);
    b_.CreateCondBr(b_.CreateICmpSLT(next, whole), loop, after);
    b_.SetInsertPoint(after);
  });
  if (const auto* known = dyn_cast<ConstantInt>(rest); known && known->isZero()) return;
  BasicBlock *some = fresh("rest"), *done = fresh("done");
  b_.CreateCondBr(b_.CreateICmpSGT(rest, zero), some, done);
  b_.SetInsertPoint(some);
  configure(rows, columns, rest, row_tiles, column_tiles);
  piece(true, [&] {
    step(b_.CreatePtrAdd(operand(MatrixOperand::a), b_.CreateMul(whole, b_.getInt64(kRowBytes))),
         b_.CreatePtrAdd(operand(MatrixOperand::b), b_.CreateMul(b_.CreateMul(b_stride, sixteen), whole)));
  });
  b_.CreateBr(done);
  b_.SetInsertPoint(done);
}

void MatrixUnit::release() {
  if (sizes_) call(Intrinsic::x86_tilerelease, {});
}

}  // namespace cleave::jit
