// Any bytes as a vector program's text: errors, or a module that verifies, prints and parses back, and expands.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "vec/expand_math.hpp"
#include "vec/vec.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const cleave::SourceText source{"fuzz.vec", std::string(reinterpret_cast<const char*>(data), size)};
  const auto m = cleave::vec::parse(source);
  if (!m.ok()) {
    (void)cleave::render(m.errors(), &source);
    return 0;
  }
  const std::string text = print(*m);
  const auto again = cleave::vec::parse({"printed.vec", text});
  if (!again.ok() || print(*again) != text) std::abort();
  if (!verify(cleave::vec::expand_math(*m)).empty()) std::abort();
  return 0;
}
