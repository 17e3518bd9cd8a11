// Tile program -> something that runs: lowering, machine code, memory, checks of the caller's tensors.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "jit/jit.hpp"
#include "lower/lower.hpp"
#include "runtime/executable.hpp"

namespace cleave::jit {

// A tensor of the caller: element (i, j, ..) lies at data + i * strides[0] + j * strides[1] + .., strides in elements
// and of any sign. Without strides it is dense row-major.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
};

struct BuildOptions {
  Options code;                    // target, polynomials
  std::optional<Machine> machine;  // register tiles and vector widths; not given: this machine with the target's ISA
};

// What `once` kernels made of the constants. The constants' own memory is read by later calls too, unless it was
// copied; it has to stay alive.
class Constants;

// The memory of bound constants, for libraries that keep it.
struct ConstantMemory {
  std::vector<const void*> data;  // of each constant, dense row-major
  const void* packed = nullptr;   // lower::Lowered::packed_bytes
};
ConstantMemory memory_of(const Constants& constants);

struct RunOptions {
  Executor* executor = nullptr;  // not given: the calling thread
  void* workspace = nullptr;     // workspace_bytes(), 64-byte aligned; not given: allocated for the call
  // Values of the program's dims in their order; not given: they follow from the shapes of the tensors, or the call is
  // refused.
  std::optional<std::vector<int64_t>> extents;
  runtime::RunOptions machine;
  std::vector<std::string>* copied = nullptr;  // receives the names of tensors that went through a dense copy
};

class Built {
 public:
  const lower::Lowered& lowered() const;
  int64_t workspace_bytes() const;  // of a program without dims
  // The workspace of a call with these values of the dims; errors: out of range, or too much memory.
  Result<int64_t> workspace_bytes(std::span<const int64_t> extents) const;
  // The values of the dims that tensors of these shapes mean; errors: contradictions, values that do not follow.
  Result<std::vector<int64_t>> extents_of(std::span<const TensorView> inputs,
                                          std::span<const TensorView> outputs) const;
  double compile_seconds() const;

  // Runs the `once` kernels. Programs without constants need no call of this.
  Result<std::shared_ptr<const Constants>> bind_constants(std::span<const TensorView> constants,
                                                          const RunOptions& options = {}) const;

  // Inputs, scalars and outputs by argument. Shapes and dtypes must be the program's, with dims replaced by the values
  // of the call, which must be in their ranges. Errors leave the outputs as they were. May be called from several
  // threads at once.
  Diagnostics run(std::span<const TensorView> inputs, std::span<const double> scalars,
                  std::span<const TensorView> outputs, const std::shared_ptr<const Constants>& constants = nullptr,
                  const RunOptions& options = {}) const;

  // The code in three forms.
  std::string vec_text() const;
  Result<std::string> llvm_text() const;
  Result<std::string> asm_text() const;
  // Object code, and a Built from it without compiling (same program, same options).
  const std::vector<uint8_t>& object() const;
  const Target& target() const;

 private:
  friend Result<Built> build(const tile::Program&, const BuildOptions&);
  friend Result<Built> build(const tile::Program&, const BuildOptions&, std::vector<uint8_t>);
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

Result<Built> build(const tile::Program& program, const BuildOptions& options = {});
Result<Built> build(const tile::Program& program, const BuildOptions& options, std::vector<uint8_t> object);

}  // namespace cleave::jit
