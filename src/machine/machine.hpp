// Machine descriptions: what the cost model and the code generators need to know of a target.
//
// A description is a small text file (`key = value` lines, docs in machine.cpp's table), so targets can be written by
// hand, measured once (`runtime/calibrate.hpp` fills in the measured fields) and kept in version control.
#pragma once

#include <cstdint>
#include <string>

#include "base/diagnostic.hpp"

namespace cleave {

enum class Isa : uint8_t { generic, avx2, avx512, neon };
const char* name(Isa isa);

struct Machine {
  std::string name = "generic";
  Isa isa = Isa::generic;
  int vector_bytes = 16;
  int vector_registers = 16;
  int fma_latency = 4;      // cycles
  int fma_pipes = 2;        // vector multiply-adds started per cycle
  int matrix_products = 0;  // of bf16 numbers, summed in f32, that a matrix unit (AMX) does per cycle; 0: there is none
  int cores = 1;            // that this process may use
  int64_t l1_bytes = 32 << 10, l2_bytes = 512 << 10;  // per core
  int64_t l3_bytes = 8 << 20;                         // shared
  // Measured, per core; 0: not measured.
  double peak_gflops = 0;  // f32 multiply-adds, two operations each
  double l2_gbytes = 0;    // read bandwidths, GB/s
  double l3_gbytes = 0;
  double dram_gbytes = 0;
  double exp_cycles = 0;  // cycles per element of exp on f32 vectors
  double gigahertz = 0;   // core clock under vector load

  int f32_lanes() const { return vector_bytes / 4; }
  bool operator==(const Machine&) const = default;
};

Isa host_isa();  // by cpuid only: cheap
// Whether this processor multiplies matrices of bf16 and the system lets this process do it, which it is asked once.
bool host_has_matrix_unit();
// What this process runs on: cpuid, sysfs, the affinity mask and the cgroup's quota. Measured fields stay 0.
Machine host_machine();
// The same machine restricted to an instruction set it also has (AVX2 code on an AVX-512 machine).
Machine with_isa(Machine machine, Isa isa);

std::string print(const Machine& machine);
Result<Machine> parse_machine(const SourceText& source);

}  // namespace cleave
