#include "jit/leir_bounds.hpp"

#include <limits>
#include <vector>

namespace cleave::jit {

using leir::Act;
using leir::Function;
using llvm::Value;

Value* LeirBoundEmitter::below_infinity(Value* v) {  // false for NaN
  return b_.CreateFCmpOLT(v, number(std::numeric_limits<double>::infinity()));
}

// What came in, and one rounding of the result.
Value* LeirBoundEmitter::rounded(Value* value, Value* in) {
  Value* e = b_.CreateFAdd(in, b_.CreateFMul(number(unit_), b_.CreateFAdd(magnitude(value), in)));
  return e;
}

Value* LeirBoundEmitter::largest(std::span<Value* const> e) {
  Value* worst = e[0];
  for (Value* other : e.subspan(1)) worst = b_.CreateSelect(b_.CreateFCmpOGT(other, worst), other, worst);
  return worst;
}

Value* LeirBoundEmitter::operation(const leir::Node& n, Value* value, std::span<Value* const> x,
                                   std::span<Value* const> e, Value* scratch) {
  Value* out = nullptr;
  const bool extreme = n.act == Act::call && (n.function == Function::max || n.function == Function::min);
  if (n.act == Act::add || n.act == Act::sub) {
    out = rounded(value, b_.CreateFAdd(e[0], e[1]));
  } else if (n.act == Act::mul) {
    Value* in = b_.CreateFAdd(b_.CreateFMul(magnitude(x[0]), e[1]), b_.CreateFMul(magnitude(x[1]), e[0]));
    out = rounded(value, b_.CreateFAdd(in, b_.CreateFMul(e[0], e[1])));
    if (unit_ > 0x1p-50) out = b_.CreateFAdd(out, number(0x1p-149));
  } else if (extreme) {
    const bool maximum = n.function == Function::max;
    std::vector<Value*> out_of, into;  // how far a part may lead out of the extremum, and what keeps it there
    for (size_t k = 0; k < 2; ++k) {
      Value *up = b_.CreateFSub(x[k], value), *down = b_.CreateFSub(value, x[k]);
      out_of.push_back(b_.CreateFAdd(maximum ? up : down, e[k]));
      into.push_back(b_.CreateFAdd(maximum ? down : up, e[k]));
    }
    out_of.push_back(b_.CreateSelect(b_.CreateFCmpOLT(into[1], into[0]), into[1], into[0]));
    out = largest(out_of);
  } else if (n.act == Act::negate) {
    return largest(e);
  } else {
    return call(n, value, x, e, scratch);
  }
  // An error without a bound stays so; values that are not finite are off by nothing when nothing came in.
  Value* infinite = number(std::numeric_limits<double>::infinity());
  out = b_.CreateSelect(below_infinity(out), out, infinite);
  Value* worst = largest(e);
  Value* exact = b_.CreateSelect(b_.CreateFCmpUNO(value, value), infinite, worst);
  exact = b_.CreateSelect(b_.CreateFCmpOEQ(worst, zero()), zero(), exact);
  return b_.CreateSelect(below_infinity(magnitude(value)), out, exact);
}

Value* LeirBoundEmitter::call(const leir::Node& n, Value* value, std::span<Value* const> x, std::span<Value* const> e,
                              Value* scratch) {
  nodes_->push_back(n);
  auto element = [&](size_t k) { return b_.CreateConstGEP1_64(b_.getDoubleTy(), scratch, k); };
  for (size_t k = 0; k < x.size(); ++k) {
    b_.CreateStore(x[k], element(k));
    b_.CreateStore(e[k], element(3 + k));
  }
  llvm::Type* pointer = b_.getPtrTy();
  auto* type = llvm::FunctionType::get(
      b_.getDoubleTy(), {pointer, b_.getDoubleTy(), b_.getDoubleTy(), b_.getInt64Ty(), pointer, pointer}, false);
  auto address = [&](const void* p) { return b_.CreateIntToPtr(b_.getInt64(reinterpret_cast<uint64_t>(p)), pointer); };
  return b_.CreateCall(type, address(reinterpret_cast<const void*>(call_)),
                       {address(&nodes_->back()), number(unit_), value, b_.getInt64(x.size()), element(0), element(3)});
}

Value* LeirBoundEmitter::stored(leir::Type type, Value* value, Value* error) {
  using leir::Type;
  const double unit = type == Type::f64 ? 0x1p-53 : type == Type::f32 ? 0x1p-24 : type == Type::f16 ? 0x1p-11 : 0x1p-8;
  const double least = type == Type::f64 ? 0 : type == Type::f16 ? 0x1p-25 : 0x1p-150;
  const double most = type == Type::f16 ? 65504 : std::numeric_limits<double>::max();
  Value* infinite = number(std::numeric_limits<double>::infinity());
  Value* reach = b_.CreateFAdd(magnitude(value), error);
  Value* out = b_.CreateFAdd(b_.CreateFAdd(error, b_.CreateFMul(number(unit), reach)), number(least));
  out = b_.CreateSelect(b_.CreateFCmpOLE(reach, number(most)), out, infinite);
  return b_.CreateSelect(below_infinity(magnitude(value)), out, error);
}

}  // namespace cleave::jit
