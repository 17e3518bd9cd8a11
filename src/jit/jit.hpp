// Vector IR -> machine code in this process, with LLVM.
//
// Code is emitted one to one from clean SSA (phis, no stack slots) and goes straight to the code generator; the -O2
// pipeline brings nothing for it (cpu.md 1.3). No fast-math flag is ever set. Compiled objects are plain bytes, so they
// can be kept on disk and loaded again without compiling.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "machine/machine.hpp"
#include "runtime/abi.h"
#include "vec/vec.hpp"

namespace cleave::jit {

// What code is made for.
struct Target {
  Isa isa = Isa::generic;
  std::string cpu;       // LLVM's name: instruction set
  std::string tune;      // LLVM's name: scheduling; empty: as cpu
  std::string features;  // "+avx2,+fma,..."; empty: those of cpu
  int vector_bytes = 16;
  std::string triple;  // LLVM's name of another architecture, whose code does not run here; empty: this one's
  bool runs_here() const { return triple.empty(); }
  std::string key() const;  // for caches
};
Target host_target();
// Code for this instruction set as far as this processor has it: AVX2 code on an AVX-512 machine.
Result<Target> target_for(Isa isa);
// Code for this instruction set also where it is another architecture's (NEON on x86-64, for Linux): to be read or
// stored, not run.
Result<Target> cross_target(Isa isa);

struct Options {
  Target target = host_target();
  bool expand_math = true;  // exp and friends as polynomials (vec/expand_math.hpp), else calls of the C library
  bool optimize = false;    // a short mid-level pipeline first: common subexpressions and loop invariants
};

class CompiledModule {
 public:
  // The code stays alive as long as a copy of the module.
  Result<CleaveKernel> function(std::string_view name) const;
  const std::vector<uint8_t>& object() const;

 private:
  friend Result<CompiledModule> load_object(std::vector<uint8_t>);
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

// The module must verify; otherwise its diagnostics come back. Only for targets that run here.
Result<CompiledModule> compile(const vec::Module& module, const Options& options = {});
// Object bytes of compile(), from this LLVM version and for a target that this processor has.
Result<CompiledModule> load_object(std::vector<uint8_t> object);

// What compile() loads, for any target.
Result<std::vector<uint8_t>> object_code(const vec::Module& module, const Options& options = {});
Result<std::string> llvm_text(const vec::Module& module, const Options& options = {});
Result<std::string> asm_text(const vec::Module& module, const Options& options = {});

// Stack spills and reloads in an assembly text of asm_text(), for x86-64 or arm64.
struct SpillCount {
  int innermost = 0;  // in loops that contain no other loop
  int total = 0;
};
SpillCount count_spills(std::string_view assembly);

// For keys of caches: LLVM's version and the target.
std::string cache_key(const Options& options);

}  // namespace cleave::jit
