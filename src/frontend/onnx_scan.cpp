#include "frontend/onnx_scan.hpp"

#include <cstdint>
#include <vector>

namespace cleave::onnx_import {

namespace {

enum class Message : uint8_t {
  model,
  graph,
  node,
  attribute,
  tensor,
  sparse_tensor,
  value_info,
  type,
  tensor_type,
  element_type,
  shape,
  function,
  training,
  annotation,
  leaf,
};

struct FieldRow {
  Message in;
  uint64_t field;
  Message is;
};
// The fields of onnx.proto that hold messages; everything else of variable length counts as one item.
constexpr FieldRow kFields[] = {
    {Message::model, 7, Message::graph},
    {Message::model, 8, Message::leaf},
    {Message::model, 14, Message::leaf},
    {Message::model, 20, Message::training},
    {Message::model, 25, Message::function},
    {Message::graph, 1, Message::node},
    {Message::graph, 5, Message::tensor},
    {Message::graph, 11, Message::value_info},
    {Message::graph, 12, Message::value_info},
    {Message::graph, 13, Message::value_info},
    {Message::graph, 14, Message::annotation},
    {Message::graph, 15, Message::sparse_tensor},
    {Message::node, 5, Message::attribute},
    {Message::attribute, 5, Message::tensor},
    {Message::attribute, 6, Message::graph},
    {Message::attribute, 10, Message::tensor},
    {Message::attribute, 11, Message::graph},
    {Message::attribute, 14, Message::type},
    {Message::attribute, 15, Message::type},
    {Message::attribute, 22, Message::sparse_tensor},
    {Message::attribute, 23, Message::sparse_tensor},
    {Message::tensor, 13, Message::leaf},
    {Message::sparse_tensor, 1, Message::tensor},
    {Message::sparse_tensor, 2, Message::tensor},
    {Message::value_info, 2, Message::type},
    {Message::type, 1, Message::tensor_type},
    {Message::type, 4, Message::element_type},
    {Message::type, 5, Message::element_type},
    {Message::type, 8, Message::tensor_type},
    {Message::type, 9, Message::element_type},
    {Message::tensor_type, 2, Message::shape},
    {Message::element_type, 1, Message::type},
    {Message::element_type, 2, Message::type},
    {Message::shape, 1, Message::leaf},
    {Message::function, 7, Message::node},
    {Message::function, 9, Message::leaf},
    {Message::function, 11, Message::attribute},
    {Message::training, 1, Message::graph},
    {Message::training, 2, Message::graph},
    {Message::training, 3, Message::leaf},
    {Message::training, 4, Message::leaf},
    {Message::annotation, 2, Message::leaf},
};

constexpr size_t kMaxDepth = 64;

bool read_varint(std::span<const std::byte> bytes, size_t& at, size_t end, uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (at >= end) return false;
    const auto b = static_cast<uint64_t>(bytes[at++]);
    value |= (b & 127) << shift;
    if (b < 128) return true;
  }
  return false;
}

}  // namespace

ScanResult scan_model(std::span<const std::byte> model, size_t max_items) {
  struct Level {
    Message message;
    size_t end;
  };
  ScanResult result;
  std::vector<Level> levels{{Message::model, model.size()}};
  size_t at = 0;
  const auto malformed = [&] {
    result.malformed = true;
    return result;
  };
  while (!levels.empty()) {
    const Level level = levels.back();
    if (at == level.end) {
      levels.pop_back();
      continue;
    }
    uint64_t tag = 0, length = 0;
    if (!read_varint(model, at, level.end, tag)) return malformed();
    const uint64_t field = tag >> 3;
    switch (tag & 7) {
      case 0:
        if (!read_varint(model, at, level.end, length)) return malformed();
        continue;
      case 1:
      case 5: {
        const size_t width = (tag & 7) == 1 ? 8 : 4;
        if (level.end - at < width) return malformed();
        at += width;
        continue;
      }
      case 2: break;
      default: return malformed();  // groups are not used by ONNX
    }
    if (!read_varint(model, at, level.end, length) || length > level.end - at) return malformed();
    if (++result.items > max_items) return result;
    const FieldRow* known = nullptr;
    for (const FieldRow& row : kFields) {
      if (row.in == level.message && row.field == field) known = &row;
    }
    if (known) {
      if (levels.size() == kMaxDepth) return malformed();
      levels.push_back({known->is, at + static_cast<size_t>(length)});
    } else {
      at += static_cast<size_t>(length);
    }
  }
  return result;
}

}  // namespace cleave::onnx_import
