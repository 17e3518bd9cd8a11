// Counts what a serialised ONNX model would make protobuf allocate, without allocating.
//
// Two bytes of input can become a message of more than a hundred bytes, so a small hostile file could ask for
// gigabytes. This walks the wire format first and refuses models with too many messages and strings.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

namespace cleave::onnx_import {

struct ScanResult {
  size_t items = 0;        // messages and strings
  bool malformed = false;  // not the wire format, or nested too deeply
};

ScanResult scan_model(std::span<const std::byte> model, size_t max_items);

}  // namespace cleave::onnx_import
