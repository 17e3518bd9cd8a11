// Running bounds of rounding errors as machine code: beside each real value stands how far storage precision may be
// from it, as leir_eval/error_bound.hpp says. Common operations are written out, all others call what the options name.
// Internal to the room.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <deque>
#include <memory>
#include <span>

#include "jit/leir.hpp"

namespace cleave::jit {

class LeirBoundEmitter {
 public:
  // `unit`: the roundoff of one operation in storage precision. `place` gives memory of the function for one value.
  LeirBoundEmitter(llvm::IRBuilder<>& b, LeirErrorOf operation, double unit) : b_(b), call_(operation), unit_(unit) {}

  llvm::Value* zero() { return number(0); }
  // Of a value (a double) of an operation on operands with their errors; `scratch` is memory for six doubles.
  llvm::Value* operation(const leir::Node& n, llvm::Value* value, std::span<llvm::Value* const> x,
                         std::span<llvm::Value* const> e, llvm::Value* scratch);
  // Of a value that is stored in a variable of this type.
  llvm::Value* stored(leir::Type type, llvm::Value* value, llvm::Value* error);
  // The nodes that compiled code points to: they have to live as long as it.
  std::shared_ptr<std::deque<leir::Node>> nodes() const { return nodes_; }

 private:
  llvm::Value* number(double v) { return llvm::ConstantFP::get(b_.getDoubleTy(), v); }
  llvm::Value* magnitude(llvm::Value* v) { return b_.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, v); }
  llvm::Value* below_infinity(llvm::Value* v);
  llvm::Value* rounded(llvm::Value* value, llvm::Value* in);
  llvm::Value* largest(std::span<llvm::Value* const> e);
  llvm::Value* call(const leir::Node& n, llvm::Value* value, std::span<llvm::Value* const> x,
                    std::span<llvm::Value* const> e, llvm::Value* scratch);

  llvm::IRBuilder<>& b_;
  LeirErrorOf call_;
  double unit_;
  std::shared_ptr<std::deque<leir::Node>> nodes_ = std::make_shared<std::deque<leir::Node>>();
};

}  // namespace cleave::jit
