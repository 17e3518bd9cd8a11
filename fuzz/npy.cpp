// Any bytes as a .npy file: an error, or an array that is written and read back as it is.
#include <cstdint>
#include <cstdlib>

#include "frontend/npy.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto array = cleave::parse_npy(std::as_bytes(std::span(data, size)), "fuzz.npy");
  if (!array.ok()) return 0;
  const auto again = cleave::parse_npy(cleave::format_npy(*array), "again.npy");
  if (!again.ok() || again->bytes != array->bytes || again->shape != array->shape || again->dtype != array->dtype)
    std::abort();
  return 0;
}
