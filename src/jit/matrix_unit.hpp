// Products of bf16 matrices by the matrix unit of x86-64 (AMX). Internal to the emission of a function.
//
// The unit has eight tiles of up to 16 rows of 64 bytes, whose sizes one instruction sets for all. That takes longer
// than a small product, so the sizes that are set are remembered in the function and set again only where others are
// needed. Code for a processor without the unit has loops in its place, slow, so that what is made for the unit runs
// anywhere.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <cstdint>
#include <functional>
#include <span>

#include "jit/jit.hpp"

namespace cleave::jit {

class MatrixUnit {
 public:
  MatrixUnit(llvm::IRBuilder<>& builder, llvm::Function* function, const Target& target)
      : b_(builder), f_(function), there_(target.features.find("+amx-bf16") != std::string::npos) {}
  // An instruction vec::Op::matrix_bf16 with these operands and indices.
  void product(std::span<llvm::Value* const> operands, std::span<const int32_t> indices);
  // Before the function returns: threads without tiles are switched faster.
  void release();

 private:
  llvm::Value* call(llvm::Intrinsic::ID id, std::initializer_list<llvm::Value*> operands);
  llvm::BasicBlock* fresh(const char* name);
  // Sizes for blocks of rows x columns (of 16-row tiles and 16-column tiles) and pairs of depth.
  void configure(llvm::Value* rows, llvm::Value* columns, llvm::Value* pairs, int row_tiles, int column_tiles);
  void reserve();
  void unit(std::span<llvm::Value* const> operands, std::span<const int32_t> indices);
  void loops(std::span<llvm::Value* const> operands, std::span<const int32_t> indices);
  void loop(llvm::Value* count, const std::function<void(llvm::Value*)>& body);

  llvm::IRBuilder<>& b_;
  llvm::Function* f_;
  bool there_;
  llvm::AllocaInst *sizes_ = nullptr, *set_ = nullptr;  // the sizes as the instruction reads them; which are set
};

}  // namespace cleave::jit
