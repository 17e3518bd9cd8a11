// A tile program as machine code in this process, with its constants bound.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "jit/build.hpp"
#include "machine/machine.hpp"
#include "tune/problem.hpp"

namespace cleave::driver {

class CompiledProgram : public tune::Runnable {
 public:
  Diagnostics run(const tune::Call& call, Executor& executor) override;
  std::vector<double> kernel_seconds(const tune::Call& call) override;

  const jit::Built& built() const { return built_; }
  const jit::Constants* constants() const { return constants_.get(); }  // null when the program has none
  // Values of the program's dims for the calls that follow (before: their typical values). Errors: out of range, or too
  // much memory.
  Diagnostics set_extents(std::vector<int64_t> extents);
  // The same by name; every dim needs a value.
  Diagnostics set_extents(const std::map<std::string, int64_t>& values);
  const std::vector<std::string>& kernel_names() const { return kernel_names_; }  // of those that run at each call

 private:
  friend Result<std::shared_ptr<CompiledProgram>> compile(const tile::Program&, std::span<const tune::Array>,
                                                          const Machine&, std::vector<uint8_t>);
  Diagnostics run(const tune::Call& call, const jit::RunOptions& options);

  jit::Built built_;
  std::vector<std::string> kernel_names_;
  std::shared_ptr<const jit::Constants> constants_;
  runtime::Buffer workspace_;
  std::vector<int64_t> extents_;
};

// Compiles (or loads `object`, compiled earlier from the same program for the same target), binds the constants, which
// must outlive the result, and packs them.
Result<std::shared_ptr<CompiledProgram>> compile(const tile::Program& program, std::span<const tune::Array> constants,
                                                 const Machine& machine, std::vector<uint8_t> object = {});

// The same through the cache of object code.
class ObjectCache;
Result<std::shared_ptr<CompiledProgram>> compile(const tile::Program& program, std::span<const tune::Array> constants,
                                                 const Machine& machine, const ObjectCache& cache);

// Code for the instruction set of `machine`, with its register tiles and vector widths: on this processor as far as it
// has it, or for another architecture.
jit::BuildOptions build_options(const Machine& machine);
// What object code depends on besides the program: compiler, LLVM, target. Never the number of threads.
std::string code_key(const Machine& machine);

}  // namespace cleave::driver
