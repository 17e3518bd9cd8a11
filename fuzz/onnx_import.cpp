// Any bytes as an ONNX model: an error or a graph without violations, never a crash, within bounded memory.
#include <cstdint>
#include <cstdlib>

#include "frontend/onnx.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  cleave::OnnxOptions options;
  options.max_constant_bytes = 1 << 24;
  options.max_items = 100'000;
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto result = cleave::import_onnx(bytes, "fuzz.onnx", "", options);
  if (result.ok() && !cleave::graph::verify(*result).empty()) std::abort();
  return 0;
}
