#include "jit/emit.hpp"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/MDBuilder.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>

#include <bit>
#include <map>

#include "jit/matrix_unit.hpp"
#include "vec/abi.hpp"

namespace cleave::jit {

static_assert(offsetof(CleaveCall, tensors) == vec::abi::kTensors &&
              offsetof(CleaveCall, extents) == vec::abi::kExtents &&
              offsetof(CleaveCall, scalars) == vec::abi::kScalars &&
              offsetof(CleaveCall, workspace) == vec::abi::kWorkspace &&
              sizeof(CleaveTensor) == vec::abi::kTensorBytes && offsetof(CleaveTensor, data) == vec::abi::kTensorData &&
              offsetof(CleaveTensor, strides) == vec::abi::kTensorStrides);

namespace {

using namespace llvm;
using vec::Elem;
using vec::Op;
using vec::Type;
using V = llvm::Value*;

class FunctionEmitter {
 public:
  FunctionEmitter(const vec::Function& source, const Target& target, llvm::Function* out)
      : f_(source),
        target_(target),
        out_(out),
        context_(out->getContext()),
        b_(BasicBlock::Create(context_, "entry", out)),
        values_(source.values.size(), nullptr),
        matrix_(b_, out, target) {}

  void run() {
    const auto& arguments = f_.blocks[f_.body].arguments;
    for (unsigned i = 0; i < 3; ++i) values_[arguments[i].index] = out_->getArg(i);
    block(f_.body);
    matrix_.release();
    b_.CreateRetVoid();
  }

 private:
  // ---- types and constants
  llvm::Type* scalar_type(Elem e) {
    switch (e) {
      case Elem::f64: return b_.getDoubleTy();
      case Elem::f32: return b_.getFloatTy();
      case Elem::i64: return b_.getInt64Ty();
      case Elem::i32:
      case Elem::u32: return b_.getInt32Ty();
      case Elem::i16:
      case Elem::u16: return b_.getInt16Ty();
      case Elem::i8:
      case Elem::u8: return b_.getInt8Ty();
      case Elem::boolean: return b_.getInt1Ty();
      case Elem::ptr: return b_.getPtrTy();
    }
    return nullptr;
  }
  llvm::Type* wide(llvm::Type* t, int lanes) {
    return lanes == 1 ? t : FixedVectorType::get(t, static_cast<unsigned>(lanes));
  }
  llvm::Type* type(Type t) { return wide(scalar_type(t.elem), t.lanes); }
  V repeat(V scalar, int lanes) {
    return lanes == 1 ? scalar : b_.CreateVectorSplat(static_cast<unsigned>(lanes), scalar);
  }
  V integer(llvm::Type* t, int64_t v) { return ConstantInt::get(t, static_cast<uint64_t>(v), true); }
  V real(llvm::Type* t, double v) { return ConstantFP::get(t, v); }

  V constant(const vec::ValueInfo& c) {
    V s = nullptr;
    if (c.type.elem == Elem::f64)
      s = ConstantFP::get(context_, APFloat(std::bit_cast<double>(c.bits)));
    else if (c.type.elem == Elem::f32)
      s = ConstantFP::get(context_, APFloat(std::bit_cast<float>(static_cast<uint32_t>(c.bits))));
    else
      s = integer(scalar_type(c.type.elem), static_cast<int64_t>(c.bits));
    return repeat(s, c.type.lanes);
  }
  V get(vec::Value v) {
    const vec::ValueInfo& info = f_.values[v];
    if (info.kind == vec::ValueKind::constant) return constant(info);
    return values_[v.index];
  }
  Type type_of_value(vec::Value v) { return f_.values[v].type; }

  V intrinsic(Intrinsic::ID id, std::initializer_list<llvm::Type*> types, std::initializer_list<V> x) {
    return b_.CreateIntrinsic(id, ArrayRef<llvm::Type*>(types.begin(), types.size()), ArrayRef<V>(x.begin(), x.size()));
  }

  // ---- control
  void block(vec::BlockId id) {
    for (const vec::InstId i : f_.blocks[id].insts) {
      const vec::Inst& inst = f_.insts[i];
      if (inst.op == Op::for_loop)
        for_loop(inst);
      else if (inst.op == Op::if_else)
        if_else(inst);
      else if (inst.op == Op::yield)
        yielded_ = &inst;
      else if (V v = instruction(inst); !inst.results.empty())
        values_[inst.results[0].index] = v;
    }
  }
  std::vector<V> take_yielded() {
    std::vector<V> out;
    for (const vec::Value v : yielded_->operands) out.push_back(get(v));
    return out;
  }

  // if (lo < hi) do { body } while ((i += step) < hi): the test is at the bottom, as the code generator wants it.
  void for_loop(const vec::Inst& inst) {
    const V lo = get(inst.operands[0]), hi = get(inst.operands[1]), step = get(inst.operands[2]);
    std::vector<V> inits;
    for (size_t k = 3; k < inst.operands.size(); ++k) inits.push_back(get(inst.operands[k]));
    BasicBlock* before = b_.GetInsertBlock();
    BasicBlock* loop = BasicBlock::Create(context_, "loop", out_);
    BasicBlock* exit = BasicBlock::Create(context_, "exit", out_);
    const V enter = b_.CreateICmpSLT(lo, hi);
    const auto* known = dyn_cast<ConstantInt>(enter);
    const bool always = known && known->isOne();
    if (always)
      b_.CreateBr(loop);
    else
      b_.CreateCondBr(enter, loop, exit);
    b_.SetInsertPoint(loop);
    const auto& arguments = f_.blocks[inst.blocks[0]].arguments;
    std::vector<PHINode*> phis;
    for (size_t k = 0; k < arguments.size(); ++k) {
      phis.push_back(b_.CreatePHI(type(type_of_value(arguments[k])), 2));
      phis.back()->addIncoming(k == 0 ? lo : inits[k - 1], before);
      values_[arguments[k].index] = phis.back();
    }
    block(inst.blocks[0]);
    const std::vector<V> next = take_yielded();
    const V i = b_.CreateNSWAdd(phis[0], step);
    BasicBlock* last = b_.GetInsertBlock();
    b_.CreateCondBr(b_.CreateICmpSLT(i, hi), loop, exit);
    phis[0]->addIncoming(i, last);
    for (size_t k = 0; k < next.size(); ++k) phis[k + 1]->addIncoming(next[k], last);
    exit->moveAfter(last);
    b_.SetInsertPoint(exit);
    for (size_t k = 0; k < inst.results.size(); ++k) {
      PHINode* phi = b_.CreatePHI(next[k]->getType(), 2);
      if (!always) phi->addIncoming(inits[k], before);
      phi->addIncoming(next[k], last);
      values_[inst.results[k].index] = phi;
    }
  }

  void if_else(const vec::Inst& inst) {
    const V condition = get(inst.operands[0]);
    BasicBlock* start = b_.GetInsertBlock();
    BasicBlock* then = BasicBlock::Create(context_, "then", out_);
    BasicBlock* join = BasicBlock::Create(context_, "join", out_);
    const bool empty_else = f_.blocks[inst.blocks[1]].insts.size() == 1;  // its yield only
    BasicBlock* otherwise = empty_else ? join : BasicBlock::Create(context_, "else", out_);
    b_.CreateCondBr(condition, then, otherwise);
    b_.SetInsertPoint(then);
    block(inst.blocks[0]);
    const std::vector<V> x = take_yielded();
    BasicBlock* then_end = b_.GetInsertBlock();
    b_.CreateBr(join);
    BasicBlock* else_end = start;
    if (!empty_else) b_.SetInsertPoint(otherwise);
    block(inst.blocks[1]);
    const std::vector<V> y = take_yielded();
    if (!empty_else) {
      else_end = b_.GetInsertBlock();
      b_.CreateBr(join);
    }
    join->moveAfter(b_.GetInsertBlock() == join || empty_else ? then_end : else_end);
    b_.SetInsertPoint(join);
    for (size_t k = 0; k < inst.results.size(); ++k) {
      PHINode* phi = b_.CreatePHI(x[k]->getType(), 2);
      phi->addIncoming(x[k], then_end);
      phi->addIncoming(y[k], else_end);
      values_[inst.results[k].index] = phi;
    }
  }

  // ---- one instruction
  V instruction(const vec::Inst& inst) {
    auto x = [&](size_t k) { return get(inst.operands[k]); };
    auto in = [&](size_t k) { return type_of_value(inst.operands[k]); };
    const Type t = inst.results.empty() ? Type{} : type_of_value(inst.results[0]);
    switch (inst.op) {
      case Op::apply: {
        std::vector<V> operands;
        for (size_t k = 0; k < inst.operands.size(); ++k) operands.push_back(x(k));
        return apply(inst.fn, in(inst.operands.size() - 1), operands);
      }
      case Op::fma: return intrinsic(Intrinsic::fma, {type(t)}, {x(0), x(1), x(2)});
      case Op::cast: return cast(x(0), in(0), t);
      case Op::bitcast: return b_.CreateBitCast(x(0), type(t));
      case Op::bit_and: return b_.CreateAnd(x(0), x(1));
      case Op::bit_or: return b_.CreateOr(x(0), x(1));
      case Op::bit_xor: return b_.CreateXor(x(0), x(1));
      case Op::shl:
      case Op::lshr:
      case Op::ashr: return shift(inst.op, x(0), x(1), t);
      case Op::splat: return repeat(x(0), t.lanes);
      case Op::iota: {
        if (t.lanes == 1) return integer(type(t), 0);
        std::vector<Constant*> lanes;
        for (int i = 0; i < t.lanes; ++i) lanes.push_back(cast_or_null<Constant>(integer(scalar_type(t.elem), i)));
        return ConstantVector::get(lanes);
      }
      case Op::shuffle: {
        const V a = as_vector(x(0)), b = as_vector(x(1));
        const V v = b_.CreateShuffleVector(a, b, ArrayRef<int>(inst.indices.data(), inst.indices.size()));
        return t.lanes == 1 ? b_.CreateExtractElement(v, uint64_t{0}) : v;
      }
      case Op::extract:
        return in(0).lanes == 1 ? x(0) : b_.CreateExtractElement(x(0), static_cast<uint64_t>(inst.indices[0]));
      case Op::insert:
        return in(0).lanes == 1 ? x(1) : b_.CreateInsertElement(x(0), x(1), static_cast<uint64_t>(inst.indices[0]));
      case Op::reduce: return reduce(inst.fn, x(0), in(0));
      case Op::ptr_add: return b_.CreatePtrAdd(x(0), x(1));
      case Op::load: return load(x(0), inst.dtype, t, inst.operands.size() > 1 ? x(1) : nullptr);
      case Op::store: store(x(0), x(1), inst.dtype, in(0), inst.operands.size() > 2 ? x(2) : nullptr); return nullptr;
      case Op::stream: {
        StoreInst* s = b_.CreateAlignedStore(narrow(x(0), inst.dtype, in(0)), x(1),
                                             Align(static_cast<uint64_t>(in(0).lanes * byte_size(inst.dtype))));
        s->setMetadata(LLVMContext::MD_nontemporal, MDNode::get(context_, ConstantAsMetadata::get(b_.getInt32(1))));
        return nullptr;
      }
      case Op::fence:
        // x86 keeps other stores in order by itself, so that a fence of LLVM's is none there.
        if (target_.isa != Isa::avx2 && target_.isa != Isa::avx512) return b_.CreateFence(AtomicOrdering::Release);
        return intrinsic(Intrinsic::x86_sse_sfence, {}, {});
      case Op::address: return b_.CreatePtrToInt(x(0), b_.getInt64Ty());
      case Op::load_ptr: return b_.CreateAlignedLoad(b_.getPtrTy(), x(0), Align(8));
      case Op::fetch_add:
        return b_.CreateAtomicRMW(AtomicRMWInst::Add, x(0), x(1), Align(8), AtomicOrdering::AcquireRelease);
      case Op::gather: return gather(x(0), x(1), x(2), inst.dtype, t);
      case Op::scatter: scatter(x(0), x(1), x(2), x(3), inst.dtype, in(0)); return nullptr;
      case Op::prefetch:
        return intrinsic(Intrinsic::prefetch, {b_.getPtrTy()},
                         {x(0), b_.getInt32(0), b_.getInt32(static_cast<uint32_t>(inst.indices[0])), b_.getInt32(1)});
      case Op::matrix_bf16: {
        std::vector<V> operands;
        for (size_t k = 0; k < inst.operands.size(); ++k) operands.push_back(x(k));
        matrix_.product(operands, inst.indices);
        return nullptr;
      }
      case Op::for_loop:
      case Op::if_else:
      case Op::yield: break;
    }
    return nullptr;
  }

  V as_vector(V v) {
    if (v->getType()->isVectorTy()) return v;
    return b_.CreateInsertElement(PoisonValue::get(FixedVectorType::get(v->getType(), 1)), v, uint64_t{0});
  }

  V shift(Op op, V a, V n, Type t) {
    const int width = vec::bit_width(t.elem);
    const V limit = repeat(integer(scalar_type(t.elem), width), t.lanes);
    const V inside = b_.CreateICmpULT(n, limit);
    const V last = repeat(integer(scalar_type(t.elem), width - 1), t.lanes);
    const V safe = b_.CreateSelect(inside, n, last);
    if (op == Op::ashr)
      return vec::is_unsigned(t.elem) ? b_.CreateSelect(inside, b_.CreateLShr(a, safe), zero(t))
                                      : b_.CreateAShr(a, safe);
    return b_.CreateSelect(inside, op == Op::shl ? b_.CreateShl(a, safe) : b_.CreateLShr(a, safe), zero(t));
  }
  V zero(Type t) { return Constant::getNullValue(type(t)); }

  V reduce(Fn fn, V v, Type t) {
    // The order of and / or does not matter: one test of a mask register.
    if (t.elem == Elem::boolean && t.lanes > 1 && (fn == Fn::logical_and || fn == Fn::logical_or))
      return intrinsic(fn == Fn::logical_and ? Intrinsic::vector_reduce_and : Intrinsic::vector_reduce_or,
                       {v->getType()}, {v});
    while (t.lanes > 1) {
      const int half = t.lanes / 2;
      std::vector<int> low, high;
      for (int i = 0; i < half; ++i) low.push_back(i), high.push_back(i + half);
      V a = b_.CreateShuffleVector(v, low), c = b_.CreateShuffleVector(v, high);
      t.lanes = static_cast<uint16_t>(half);
      if (half == 1) a = b_.CreateExtractElement(a, uint64_t{0}), c = b_.CreateExtractElement(c, uint64_t{0});
      v = apply(fn, t, {a, c});
    }
    return v;
  }

  // ---- scalar functions
  V apply(Fn fn, Type t, const std::vector<V>& x) {
    if (fn == Fn::where) return b_.CreateSelect(x[0], x[1], x[2]);
    if (vec::is_float(t.elem)) return apply_real(fn, t, x);
    if (t.elem == Elem::boolean) return apply_bool(fn, t, x);
    if (t.elem != Elem::i64 && t.elem != Elem::i32) {
      // Computed in a signed type that holds the operands, and wrapped.
      const Type wide = t.with(t.elem == Elem::u32 ? Elem::i64 : Elem::i32);
      std::vector<V> y;
      for (const V v : x) y.push_back(b_.CreateIntCast(v, type(wide), !vec::is_unsigned(t.elem)));
      const V r = apply_int(fn, wide, y);
      return result_dtype(fn, DType::i32) == DType::boolean ? r : b_.CreateTrunc(r, type(t));
    }
    return apply_int(fn, t, x);
  }

  V apply_bool(Fn fn, Type t, const std::vector<V>& x) {
    switch (fn) {
      case Fn::logical_and: return b_.CreateAnd(x[0], x[1]);
      case Fn::logical_or: return b_.CreateOr(x[0], x[1]);
      case Fn::logical_xor:
      case Fn::ne: return b_.CreateXor(x[0], x[1]);
      case Fn::logical_not: return b_.CreateNot(x[0]);
      case Fn::eq: return b_.CreateNot(b_.CreateXor(x[0], x[1]));
      case Fn::lt: return b_.CreateICmpULT(x[0], x[1]);
      case Fn::le: return b_.CreateICmpULE(x[0], x[1]);
      case Fn::gt: return b_.CreateICmpUGT(x[0], x[1]);
      case Fn::ge: return b_.CreateICmpUGE(x[0], x[1]);
      default: CHECK(false, "`{}` of {}", info(fn).name, vec::print(t));
    }
  }

  V apply_int(Fn fn, Type t, const std::vector<V>& x) {
    switch (fn) {
      case Fn::add: return b_.CreateAdd(x[0], x[1]);
      case Fn::sub: return b_.CreateSub(x[0], x[1]);
      case Fn::mul: return b_.CreateMul(x[0], x[1]);
      case Fn::square: return b_.CreateMul(x[0], x[0]);
      case Fn::neg: return b_.CreateNeg(x[0]);
      case Fn::div:
      case Fn::floordiv:
      case Fn::mod: return divide(fn, t, x[0], x[1]);
      case Fn::max: return intrinsic(Intrinsic::smax, {type(t)}, {x[0], x[1]});
      case Fn::min: return intrinsic(Intrinsic::smin, {type(t)}, {x[0], x[1]});
      case Fn::clamp:
        return intrinsic(Intrinsic::smin, {type(t)}, {intrinsic(Intrinsic::smax, {type(t)}, {x[0], x[1]}), x[2]});
      case Fn::abs: return intrinsic(Intrinsic::abs, {type(t)}, {x[0], b_.getFalse()});
      case Fn::relu: return intrinsic(Intrinsic::smax, {type(t)}, {x[0], zero(t)});
      case Fn::sign:
        return b_.CreateSub(b_.CreateZExt(b_.CreateICmpSGT(x[0], zero(t)), type(t)),
                            b_.CreateZExt(b_.CreateICmpSLT(x[0], zero(t)), type(t)));
      case Fn::eq: return b_.CreateICmpEQ(x[0], x[1]);
      case Fn::ne: return b_.CreateICmpNE(x[0], x[1]);
      case Fn::lt: return b_.CreateICmpSLT(x[0], x[1]);
      case Fn::le: return b_.CreateICmpSLE(x[0], x[1]);
      case Fn::gt: return b_.CreateICmpSGT(x[0], x[1]);
      case Fn::ge: return b_.CreateICmpSGE(x[0], x[1]);
      default: return call_per_lane(fn, t, x);
    }
  }

  // div truncates, floordiv and mod round down; x / 0 and x mod 0 are 0; the lowest number / -1 wraps.
  V divide(Fn fn, Type t, V a, V b) {
    const auto* c = dyn_cast<Constant>(b);
    const auto* known = c ? dyn_cast_or_null<ConstantInt>(t.lanes == 1 ? c : c->getSplatValue()) : nullptr;
    const bool safe = known && known->getSExtValue() != 0 && known->getSExtValue() != -1;
    auto splat = [&](int64_t v) { return repeat(integer(scalar_type(t.elem), v), t.lanes); };
    V is_zero = nullptr, is_minus = nullptr, d = b;
    if (!safe) {
      is_zero = b_.CreateICmpEQ(b, splat(0));
      is_minus = b_.CreateICmpEQ(b, splat(-1));
      d = b_.CreateSelect(b_.CreateOr(is_zero, is_minus), splat(1), b);
    }
    const V q = b_.CreateSDiv(a, d);
    const V r = b_.CreateSub(a, b_.CreateMul(q, d));
    const V off = b_.CreateAnd(b_.CreateICmpNE(r, splat(0)), b_.CreateICmpSLT(b_.CreateXor(r, d), splat(0)));
    V out = nullptr;
    if (fn == Fn::div) out = q;
    if (fn == Fn::floordiv) out = b_.CreateSub(q, b_.CreateZExt(off, type(t)));
    if (fn == Fn::mod) out = b_.CreateSelect(off, b_.CreateAdd(r, d), r);
    if (safe) return out;
    if (fn != Fn::mod) out = b_.CreateSelect(is_minus, b_.CreateNeg(a), out);
    return b_.CreateSelect(is_zero, splat(0), out);
  }

  bool never_nan(V v) {
    const auto* c = dyn_cast<Constant>(v);
    if (!c) return false;
    const auto* s = dyn_cast_or_null<ConstantFP>(v->getType()->isVectorTy() ? c->getSplatValue() : c);
    return s && !s->isNaN();
  }
  // a > b ? a : b with NaN from either side. The compare-select is one max instruction, which gives b when either is
  // NaN: only a NaN in a has to be put back, and not even that when a is a constant.
  V extreme(bool max, V a, V b) {
    if (never_nan(b)) std::swap(a, b);
    const V m = b_.CreateSelect(max ? b_.CreateFCmpOGT(a, b) : b_.CreateFCmpOLT(a, b), a, b);
    return never_nan(a) ? m : b_.CreateSelect(b_.CreateFCmpUNO(a, a), a, m);
  }

  V apply_real(Fn fn, Type t, const std::vector<V>& x) {
    llvm::Type* ty = type(t);
    auto c = [&](double v) { return real(ty, v); };
    auto unary = [&](Intrinsic::ID id) { return intrinsic(id, {ty}, {x[0]}); };
    switch (fn) {
      case Fn::add: return b_.CreateFAdd(x[0], x[1]);
      case Fn::sub: return b_.CreateFSub(x[0], x[1]);
      case Fn::mul: return b_.CreateFMul(x[0], x[1]);
      case Fn::div: return b_.CreateFDiv(x[0], x[1]);
      case Fn::square: return b_.CreateFMul(x[0], x[0]);
      case Fn::neg: return b_.CreateFNeg(x[0]);
      case Fn::abs: return unary(Intrinsic::fabs);
      case Fn::sqrt: return unary(Intrinsic::sqrt);
      case Fn::floor: return unary(Intrinsic::floor);
      case Fn::ceil: return unary(Intrinsic::ceil);
      case Fn::round: return unary(Intrinsic::roundeven);
      case Fn::reciprocal: return b_.CreateFDiv(c(1), x[0]);
      case Fn::rsqrt: return b_.CreateFDiv(c(1), unary(Intrinsic::sqrt));
      case Fn::floordiv: {
        // In f64: a quotient rounded to f32 may reach the next whole number.
        llvm::Type* f64 = type(t.with(Elem::f64));
        const V q = b_.CreateFDiv(b_.CreateFPCast(x[0], f64), b_.CreateFPCast(x[1], f64));
        return b_.CreateFPCast(intrinsic(Intrinsic::floor, {f64}, {q}), ty);
      }
      case Fn::quot0: return b_.CreateSelect(b_.CreateFCmpOEQ(x[1], c(0)), c(0), b_.CreateFDiv(x[0], x[1]));
      case Fn::max: return extreme(true, x[0], x[1]);
      case Fn::min: return extreme(false, x[0], x[1]);
      case Fn::clamp: return extreme(false, extreme(true, x[0], x[1]), x[2]);
      case Fn::relu: return extreme(true, x[0], c(0));
      case Fn::hardsigmoid:
      case Fn::hardswish: {
        // (x + 3) / 6 loses nothing near -3, where x / 6 + 1/2 would cancel.
        const V h = extreme(false, extreme(true, b_.CreateFMul(b_.CreateFAdd(x[0], c(3)), c(1.0 / 6)), c(0)), c(1));
        return fn == Fn::hardsigmoid ? h : gate(x[0], h, ty);
      }
      case Fn::leaky_relu:
        return b_.CreateSelect(b_.CreateFCmpULT(x[0], c(0)), keep_nan(x[0], b_.CreateFMul(x[0], x[1])), x[0]);
      case Fn::sign: {
        const V s = b_.CreateSelect(b_.CreateFCmpOGT(x[0], c(0)), c(1),
                                    b_.CreateSelect(b_.CreateFCmpOLT(x[0], c(0)), c(-1), c(0)));
        return keep_nan(x[0], s);
      }
      case Fn::isnan: return b_.CreateFCmpUNO(x[0], x[0]);
      case Fn::isinf: return b_.CreateFCmpOEQ(unary(Intrinsic::fabs), ConstantFP::getInfinity(ty));
      case Fn::eq: return b_.CreateFCmpOEQ(x[0], x[1]);
      case Fn::ne: return b_.CreateFCmpUNE(x[0], x[1]);
      case Fn::lt: return b_.CreateFCmpOLT(x[0], x[1]);
      case Fn::le: return b_.CreateFCmpOLE(x[0], x[1]);
      case Fn::gt: return b_.CreateFCmpOGT(x[0], x[1]);
      case Fn::ge: return b_.CreateFCmpOGE(x[0], x[1]);
      default: return call_per_lane(fn, t, x);
    }
  }
  V keep_nan(V x, V otherwise) { return b_.CreateSelect(b_.CreateFCmpUNO(x, x), x, otherwise); }
  // x * g, but 0 of the sign that the limit has where x is infinite and the gate is shut.
  V gate(V x, V g, llvm::Type* ty) {
    const V shut =
        b_.CreateAnd(b_.CreateFCmpOEQ(g, real(ty, 0)), b_.CreateFCmpOEQ(x, ConstantFP::getInfinity(ty, true)));
    return b_.CreateSelect(shut, real(ty, -0.0), b_.CreateFMul(x, g));
  }

  // The meaning of types/scalar.cpp itself, lane by lane.
  V call_per_lane(Fn fn, Type t, const std::vector<V>& x) {
    const bool integer = !vec::is_float(t.elem);
    llvm::Type* wide_type = integer ? b_.getInt64Ty() : b_.getDoubleTy();
    const bool test = result_dtype(fn, vec::dtype_of(t.elem)) == DType::boolean;
    std::vector<llvm::Type*> parameters(x.size(), wide_type);
    const FunctionCallee callee = out_->getParent()->getOrInsertFunction(
        helper_symbol(fn, integer), FunctionType::get(wide_type, parameters, false));
    V result = test ? PoisonValue::get(type(t.with(Elem::boolean))) : PoisonValue::get(type(t));
    for (int lane = 0; lane < t.lanes; ++lane) {
      std::vector<V> arguments;
      for (const V v : x) {
        const V s = t.lanes == 1 ? v : b_.CreateExtractElement(v, static_cast<uint64_t>(lane));
        arguments.push_back(integer ? b_.CreateSExt(s, wide_type) : b_.CreateFPExt(s, wide_type));
      }
      V r = b_.CreateCall(callee, arguments);
      if (test)
        r = integer ? b_.CreateICmpNE(r, b_.getInt64(0)) : b_.CreateFCmpUNE(r, real(wide_type, 0));
      else
        r = integer ? b_.CreateTrunc(r, scalar_type(t.elem)) : b_.CreateFPTrunc(r, scalar_type(t.elem));
      result = t.lanes == 1 ? r : b_.CreateInsertElement(result, r, static_cast<uint64_t>(lane));
    }
    return result;
  }

  V cast(V v, Type from, Type to) {
    llvm::Type* ty = type(to);
    const bool from_unsigned = vec::is_unsigned(from.elem);
    if (vec::is_float(from.elem)) {
      if (vec::is_float(to.elem)) return b_.CreateFPCast(v, ty);
      if (to.elem == Elem::boolean) return b_.CreateFCmpUNE(v, Constant::getNullValue(type(from)));
      return intrinsic(vec::is_unsigned(to.elem) ? Intrinsic::fptoui_sat : Intrinsic::fptosi_sat, {ty, type(from)},
                       {v});
    }
    if (vec::is_float(to.elem)) return from_unsigned ? b_.CreateUIToFP(v, ty) : b_.CreateSIToFP(v, ty);
    if (to.elem == Elem::boolean) return b_.CreateICmpNE(v, zero(from));
    return b_.CreateIntCast(v, ty, !from_unsigned);
  }

  // ---- memory
  // How a dtype lies in memory.
  llvm::Type* memory_type(DType d) {
    switch (d) {
      case DType::f64: return b_.getDoubleTy();
      case DType::f32: return b_.getFloatTy();
      case DType::f16:
      case DType::bf16: return b_.getInt16Ty();
      case DType::i64: return b_.getInt64Ty();
      case DType::i32:
      case DType::u32: return b_.getInt32Ty();
      case DType::i16:
      case DType::u16: return b_.getInt16Ty();
      case DType::i8:
      case DType::u8:
      case DType::boolean: return b_.getInt8Ty();
    }
    return nullptr;
  }
  Align align_of(DType d) { return Align(static_cast<uint64_t>(byte_size(d))); }

  V widen(V v, DType d, Type t) {
    switch (d) {
      case DType::f16: return b_.CreateFPExt(b_.CreateBitCast(v, wide(b_.getHalfTy(), t.lanes)), type(t));
      case DType::bf16: {
        llvm::Type* i32 = wide(b_.getInt32Ty(), t.lanes);
        return b_.CreateBitCast(b_.CreateShl(b_.CreateZExt(v, i32), ConstantInt::get(i32, 16)), type(t));
      }
      case DType::boolean: return b_.CreateICmpNE(v, Constant::getNullValue(v->getType()));
      default: return v;
    }
  }
  V narrow(V v, DType d, Type t) {
    switch (d) {
      case DType::f16:
        return b_.CreateBitCast(b_.CreateFPTrunc(v, wide(b_.getHalfTy(), t.lanes)), wide(b_.getInt16Ty(), t.lanes));
      case DType::bf16: {
        // To nearest even by integer arithmetic; NaN becomes the quiet NaN of its sign.
        llvm::Type* i32 = wide(b_.getInt32Ty(), t.lanes);
        auto c = [&](uint64_t k) { return ConstantInt::get(i32, k); };
        const V bits = b_.CreateBitCast(v, i32);
        const V high = b_.CreateLShr(bits, c(16));
        const V rounded = b_.CreateLShr(b_.CreateAdd(bits, b_.CreateAdd(b_.CreateAnd(high, c(1)), c(0x7fff))), c(16));
        const V nan = b_.CreateOr(b_.CreateAnd(high, c(0x8000)), c(0x7fc0));
        return b_.CreateTrunc(b_.CreateSelect(b_.CreateFCmpUNO(v, v), nan, rounded), wide(b_.getInt16Ty(), t.lanes));
      }
      case DType::boolean: return b_.CreateZExt(v, wide(b_.getInt8Ty(), t.lanes));
      default: return v;
    }
  }

  // A vector narrower than a register is masked at the register's width: when LLVM 19 widens the mask itself, it takes
  // bits from beyond the mask's byte.
  int masked_width(DType d, int lanes) const {
    const int least = target_.isa == Isa::avx512 ? static_cast<int>(16 / byte_size(d)) : 1;
    return std::max(lanes, least);
  }
  V resized(V v, int from, int to) {
    if (from == to) return v;
    std::vector<int> indices;
    for (int i = 0; i < to; ++i) indices.push_back(i < from ? i : PoisonMaskElem);
    return b_.CreateShuffleVector(v, indices);
  }

  // Lanes below `count` (any i64) of the first n of a vector of `width`. Made once, right after the count, so that no
  // loop makes it again.
  V count_mask(V count, int n, int width) {
    V& mask = masks_[{count, n * 1024 + width}];
    if (mask) return mask;
    const IRBuilderBase::InsertPointGuard guard(b_);
    if (auto* made = dyn_cast<Instruction>(count)) {
      if (const auto after = made->getInsertionPointAfterDef())
        b_.SetInsertPoint(made->getParent(), *after);
      else
        b_.SetInsertPoint(made->getParent());  // it is the last one of a block still open
    } else {
      b_.SetInsertPoint(&out_->getEntryBlock(), out_->getEntryBlock().getFirstInsertionPt());
    }
    return mask = make_count_mask(count, n, width);
  }
  V make_count_mask(V count, int n, int width) {
    const V zero64 = b_.getInt64(0), n64 = b_.getInt64(static_cast<uint64_t>(n));
    const V clamped = intrinsic(Intrinsic::smin, {b_.getInt64Ty()},
                                {intrinsic(Intrinsic::smax, {b_.getInt64Ty()}, {count, zero64}), n64});
    if (target_.isa == Isa::avx512 && width <= 32 && width > 1) {
      const V ones = b_.CreateSub(b_.CreateShl(b_.getInt64(1), clamped), b_.getInt64(1));
      return b_.CreateBitCast(b_.CreateTrunc(ones, b_.getIntNTy(static_cast<unsigned>(width))),
                              wide(b_.getInt1Ty(), width));
    }
    std::vector<Constant*> lanes;
    for (int i = 0; i < width; ++i) lanes.push_back(b_.getInt32(static_cast<uint32_t>(i)));
    return b_.CreateICmpSGT(repeat(b_.CreateTrunc(clamped, b_.getInt32Ty()), width), ConstantVector::get(lanes));
  }

  V load(V p, DType d, Type t, V count) {
    if (!count) return widen(b_.CreateAlignedLoad(wide(memory_type(d), t.lanes), p, align_of(d)), d, t);
    const bool masked = t.lanes > 1 && (target_.isa == Isa::avx512 || (target_.isa == Isa::avx2 && byte_size(d) >= 4));
    if (masked) {
      const int width = masked_width(d, t.lanes);
      llvm::Type* whole = wide(memory_type(d), width);
      const V read =
          b_.CreateMaskedLoad(whole, p, align_of(d), count_mask(count, t.lanes, width), Constant::getNullValue(whole));
      return widen(resized(read, width, t.lanes), d, t);
    }
    return widen(load_by_halves(p, d, t.lanes, count), d, t);
  }

  // Without masked loads: all at once when the count allows it; else by the bits of the count, single elements first,
  // then what a half, a quarter, ... of the vector holds before them. (Elements in a loop would go through the stack.)
  V load_by_halves(V p, DType d, int lanes, V count) {
    llvm::Type* memory = wide(memory_type(d), lanes);
    BasicBlock* full = BasicBlock::Create(context_, "load.full", out_);
    BasicBlock* tail = BasicBlock::Create(context_, "load.tail", out_);
    BasicBlock* done = BasicBlock::Create(context_, "load.done", out_);
    b_.CreateCondBr(b_.CreateICmpSGE(count, b_.getInt64(static_cast<uint64_t>(lanes))), full, tail);
    b_.SetInsertPoint(full);
    const V all = b_.CreateAlignedLoad(memory, p, align_of(d));
    b_.CreateBr(done);
    b_.SetInsertPoint(tail);
    V rest = Constant::getNullValue(memory);
    if (lanes > 1) {
      const V n = intrinsic(Intrinsic::smax, {b_.getInt64Ty()}, {count, b_.getInt64(0)});
      rest = Constant::getNullValue(FixedVectorType::get(memory_type(d), 1));  // the n mod 1 elements at the end
      int width = 1;
      for (; width < lanes; width *= 2) rest = load_part(p, d, n, width, rest);
      rest = resized(rest, width, lanes);
    }
    BasicBlock* tail_end = b_.GetInsertBlock();
    b_.CreateBr(done);
    done->moveAfter(tail_end);
    b_.SetInsertPoint(done);
    PHINode* result = b_.CreatePHI(memory, 2);
    result->addIncoming(all, full);
    result->addIncoming(rest, tail_end);
    return result;
  }
  // From the last n mod `width` elements of n at p, and zeros, to the last n mod 2 `width`.
  V load_part(V p, DType d, V n, int width, V rest) {
    auto* type = FixedVectorType::get(memory_type(d), static_cast<unsigned>(width));
    BasicBlock* here = b_.GetInsertBlock();
    BasicBlock* part = BasicBlock::Create(context_, "load.part", out_);
    BasicBlock* next = BasicBlock::Create(context_, "load.next", out_);
    std::vector<int> both;
    for (int i = 0; i < 2 * width; ++i) both.push_back(i);
    const V bit = b_.CreateAnd(n, b_.getInt64(static_cast<uint64_t>(width)));
    const V alone = b_.CreateShuffleVector(rest, Constant::getNullValue(type), both);
    b_.CreateCondBr(b_.CreateICmpNE(bit, b_.getInt64(0)), part, next);
    b_.SetInsertPoint(part);
    const V before = b_.CreateAnd(n, b_.getInt64(static_cast<uint64_t>(-2 * width)));
    const V first = b_.CreateAlignedLoad(type, b_.CreateGEP(memory_type(d), p, before), align_of(d));
    const V joined = b_.CreateShuffleVector(first, rest, both);
    b_.CreateBr(next);
    b_.SetInsertPoint(next);
    PHINode* phi = b_.CreatePHI(joined->getType(), 2);
    phi->addIncoming(alone, here);
    phi->addIncoming(joined, part);
    return phi;
  }

  void store(V v, V p, DType d, Type t, V count) {
    const V memory = narrow(v, d, t);
    if (!count) {
      b_.CreateAlignedStore(memory, p, align_of(d));
    } else if (target_.isa == Isa::avx512 && t.lanes > 1) {
      const int width = masked_width(d, t.lanes);
      b_.CreateMaskedStore(resized(memory, t.lanes, width), p, align_of(d), count_mask(count, t.lanes, width));
    } else {
      store_by_halves(memory, p, d, t.lanes, count);
    }
  }

  // All at once when the count allows it; else by the bits of the count: halves, quarters, ... single elements. Masked
  // stores cost six times a plain one on some AVX2 machines (cpu.md 1.4).
  void store_by_halves(V v, V p, DType d, int lanes, V count) {
    BasicBlock* full = BasicBlock::Create(context_, "store.full", out_);
    BasicBlock* tail = BasicBlock::Create(context_, "store.tail", out_);
    BasicBlock* done = BasicBlock::Create(context_, "store.done", out_);
    const V n = b_.getInt64(static_cast<uint64_t>(lanes));
    b_.CreateCondBr(b_.CreateICmpSGE(count, n), full, tail);
    b_.SetInsertPoint(full);
    b_.CreateAlignedStore(v, p, align_of(d));
    b_.CreateBr(done);
    b_.SetInsertPoint(tail);
    if (lanes > 1) {
      const V left = intrinsic(Intrinsic::smax, {b_.getInt64Ty()}, {count, b_.getInt64(0)});
      int width = 1;
      while (2 * width < lanes) width *= 2;
      std::vector<int> padding;
      for (int i = 0; i < 2 * width; ++i) padding.push_back(std::min(i, lanes - 1));
      V rest = b_.CreateShuffleVector(v, padding);
      for (; width >= 1; width /= 2) {
        BasicBlock* here = b_.GetInsertBlock();
        BasicBlock* part = BasicBlock::Create(context_, "store.part", out_);
        BasicBlock* next = BasicBlock::Create(context_, "store.next", out_);
        const V bit = b_.CreateAnd(left, b_.getInt64(static_cast<uint64_t>(width)));
        std::vector<int> low, high;
        for (int i = 0; i < width; ++i) low.push_back(i), high.push_back(i + width);
        V first = b_.CreateShuffleVector(rest, low), second = b_.CreateShuffleVector(rest, high);
        b_.CreateCondBr(b_.CreateICmpNE(bit, b_.getInt64(0)), part, next);
        b_.SetInsertPoint(part);
        b_.CreateAlignedStore(first, p, align_of(d));
        const V moved = b_.CreatePtrAdd(p, b_.getInt64(static_cast<uint64_t>(width * byte_size(d))));
        b_.CreateBr(next);
        b_.SetInsertPoint(next);
        PHINode* at = b_.CreatePHI(b_.getPtrTy(), 2);
        at->addIncoming(p, here);
        at->addIncoming(moved, part);
        PHINode* remaining = b_.CreatePHI(first->getType(), 2);
        remaining->addIncoming(first, here);
        remaining->addIncoming(second, part);
        p = at;
        rest = remaining;
      }
    }
    b_.CreateBr(done);
    done->moveAfter(b_.GetInsertBlock());
    b_.SetInsertPoint(done);
  }

  V gather(V base, V indices, V mask, DType d, Type t) {
    if (t.lanes == 1) {
      BasicBlock* before = b_.GetInsertBlock();
      BasicBlock* read = BasicBlock::Create(context_, "gather.read", out_);
      BasicBlock* done = BasicBlock::Create(context_, "gather.done", out_);
      b_.CreateCondBr(mask, read, done);
      b_.SetInsertPoint(read);
      const V v = b_.CreateAlignedLoad(memory_type(d), b_.CreateGEP(memory_type(d), base, indices), align_of(d));
      b_.CreateBr(done);
      b_.SetInsertPoint(done);
      PHINode* phi = b_.CreatePHI(memory_type(d), 2);
      phi->addIncoming(Constant::getNullValue(memory_type(d)), before);
      phi->addIncoming(v, read);
      return widen(phi, d, t);
    }
    llvm::Type* memory = wide(memory_type(d), t.lanes);
    const V pointers = b_.CreateGEP(memory_type(d), base, indices);
    return widen(b_.CreateMaskedGather(memory, pointers, align_of(d), mask, Constant::getNullValue(memory)), d, t);
  }

  void scatter(V v, V base, V indices, V mask, DType d, Type t) {
    const V memory = narrow(v, d, t);
    const V pointers = b_.CreateGEP(memory_type(d), base, indices);
    if (t.lanes > 1) {
      b_.CreateMaskedScatter(memory, pointers, align_of(d), mask);
      return;
    }
    BasicBlock* write = BasicBlock::Create(context_, "scatter.write", out_);
    BasicBlock* done = BasicBlock::Create(context_, "scatter.done", out_);
    b_.CreateCondBr(mask, write, done);
    b_.SetInsertPoint(write);
    b_.CreateAlignedStore(memory, pointers, align_of(d));
    b_.CreateBr(done);
    b_.SetInsertPoint(done);
  }

  const vec::Function& f_;
  const Target& target_;
  llvm::Function* out_;
  LLVMContext& context_;
  IRBuilder<> b_;
  std::vector<V> values_;
  MatrixUnit matrix_;
  std::map<std::pair<V, int>, V> masks_;
  const vec::Inst* yielded_ = nullptr;
};

}  // namespace

std::string kernel_symbol(std::string_view name) { return fmt::format("cleave_kernel_{}", name); }
std::string helper_symbol(Fn fn, bool integer) {
  return fmt::format("cleave_{}_{}", integer ? "int" : "real", info(fn).name);
}

std::unique_ptr<llvm::Module> emit_llvm(const vec::Module& module, const Target& target, LLVMContext& context) {
  auto out = std::make_unique<llvm::Module>("cleave", context);
  llvm::Type* ptr = PointerType::get(context, 0);
  FunctionType* signature =
      FunctionType::get(llvm::Type::getVoidTy(context), {ptr, llvm::Type::getInt64Ty(context), ptr}, false);
  for (const vec::Function& f : module.functions) {
    auto* function = llvm::Function::Create(signature, llvm::Function::ExternalLinkage, kernel_symbol(f.name), *out);
    function->addFnAttr("target-cpu", target.cpu);
    if (!target.tune.empty()) function->addFnAttr("tune-cpu", target.tune);
    if (!target.features.empty()) function->addFnAttr("target-features", target.features);
    if (target.isa == Isa::avx512) {
      function->addFnAttr("prefer-vector-width", "512");
      function->addFnAttr("min-legal-vector-width", "512");
    }
    function->addFnAttr(Attribute::NoUnwind);
    function->addParamAttr(0, Attribute::ReadOnly);
    function->addParamAttr(2, Attribute::NoAlias);
    function->addParamAttr(2, Attribute::getWithAlignment(context, Align(64)));
    FunctionEmitter(f, target, function).run();
  }
  std::string problem;
  raw_string_ostream stream(problem);
  CHECK(!verifyModule(*out, &stream), "emitted LLVM IR is wrong: {}", stream.str());
  return out;
}

}  // namespace cleave::jit
