// A compiled program as a shared library with a C header (docs/standalone.md): kernels, packed constants and a small
// runtime (runtime/aot.h) in one file that needs libc and libm, and neither this compiler nor LLVM.
#pragma once

#include <string>
#include <vector>

#include "jit/build.hpp"

namespace cleave::jit {

// What callers of the library see. Arguments in the order of the program's.
struct Interface {
  std::string name;                              // any text; the C names are made of it
  std::vector<lower::Argument> inputs, outputs;  // those that the program does not use included
  std::vector<std::string> scalars;
  std::string note;  // one line on where the library comes from
};

// The C identifier that stands for a name: letters, digits and `_`, never a keyword.
std::string c_identifier(std::string_view name);

// The header that declares NAME(), NAME_run() and the rest.
std::string library_header(const Interface& interface);

// Bytes of constants that a library of this program keeps.
int64_t library_constant_bytes(const Built& program);
constexpr int64_t kMaxLibraryConstants = int64_t{3} << 29;

// Links the library at `path`; files beside it are used and removed. `constants` as bound to `program`; may be null
// when it has none.
Diagnostics write_library(const Built& program, const Constants* constants, const Interface& interface,
                          const std::string& path);

}  // namespace cleave::jit
