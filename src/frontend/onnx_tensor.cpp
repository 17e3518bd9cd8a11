#include "frontend/onnx_tensor.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "base/codes.hpp"
#include "frontend/file.hpp"
#include "frontend/onnx_value.hpp"
#include "graph/graph.hpp"
#include "onnx/onnx.pb.h"

namespace cleave::onnx_import {
namespace {

using onnx::TensorProto;

// Element types by number (onnx.proto's TensorProto.DataType, with the newer ones).
constexpr const char* kTypeNames[] = {
    "UNDEFINED", "FLOAT",        "UINT8",          "INT8",       "UINT16",         "INT16",  "INT32",     "INT64",
    "STRING",    "BOOL",         "FLOAT16",        "DOUBLE",     "UINT32",         "UINT64", "COMPLEX64", "COMPLEX128",
    "BFLOAT16",  "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "UINT4",  "INT4",      "FLOAT4E2M1"};

template <class To, class Field>
std::vector<std::byte> pack(const Field& field) {
  std::vector<std::byte> bytes(static_cast<size_t>(field.size()) * sizeof(To));
  for (int i = 0; i < field.size(); ++i) {
    const To value = static_cast<To>(field.Get(i));
    std::memcpy(bytes.data() + static_cast<size_t>(i) * sizeof(To), &value, sizeof(To));
  }
  return bytes;
}

std::vector<std::byte> pack_typed_field(const TensorProto& tensor, DType dtype) {
  switch (dtype) {
    case DType::f64: return pack<double>(tensor.double_data());
    case DType::f32: return pack<float>(tensor.float_data());
    case DType::f16:
    case DType::bf16:
    case DType::i16:
    case DType::u16: return pack<uint16_t>(tensor.int32_data());
    case DType::i64: return pack<int64_t>(tensor.int64_data());
    case DType::i32: return pack<int32_t>(tensor.int32_data());
    case DType::u32: return pack<uint32_t>(tensor.uint64_data());
    case DType::i8:
    case DType::u8:
    case DType::boolean: return pack<uint8_t>(tensor.int32_data());
  }
  return {};
}

}  // namespace

std::optional<DType> dtype_of(int onnx_type) {
  switch (onnx_type) {
    case TensorProto::FLOAT: return DType::f32;
    case TensorProto::UINT8: return DType::u8;
    case TensorProto::INT32: return DType::i32;
    case TensorProto::INT64: return DType::i64;
    case TensorProto::INT16: return DType::i16;
    case TensorProto::INT8: return DType::i8;
    case TensorProto::UINT32: return DType::u32;
    case TensorProto::UINT16: return DType::u16;
    case TensorProto::BOOL: return DType::boolean;
    case TensorProto::FLOAT16: return DType::f16;
    case TensorProto::DOUBLE: return DType::f64;
    case TensorProto::BFLOAT16: return DType::bf16;
    default: return std::nullopt;
  }
}

std::string type_name(int onnx_type) {
  if (onnx_type >= 0 && onnx_type < static_cast<int>(std::size(kTypeNames))) return kTypeNames[onnx_type];
  return fmt::format("number {}", onnx_type);
}

Result<LoadedTensor> TensorLoader::load(const TensorProto& tensor) {
  const auto bad = [&](const std::string& why) { return diagnose(Code::onnx_tensor, shown(tensor.name()), why); };
  const auto dtype = dtype_of(tensor.data_type());
  if (!dtype) return bad(fmt::format("the element type {} is not supported", type_name(tensor.data_type())));
  if (tensor.dims_size() > graph::kMaxRank) {
    return bad(fmt::format("it has {} axes, more than {}", tensor.dims_size(), graph::kMaxRank));
  }
  if (tensor.has_segment()) return bad("segments are not supported");

  LoadedTensor loaded{*dtype, {tensor.dims().begin(), tensor.dims().end()}, nullptr};
  int64_t count = 1;
  for (const int64_t extent : loaded.shape) {
    if (extent < 0) return bad(fmt::format("the extent {} is negative", extent));
    if (extent != 0 && count > graph::kMaxElements / extent) {
      return bad(fmt::format("it would have more than {} elements", graph::kMaxElements));
    }
    count *= extent;
  }
  const int64_t size = count * byte_size(*dtype);

  if (tensor.data_location() == TensorProto::EXTERNAL) {
    TRY_ASSIGN(loaded.bytes, load_external(tensor, size));
    return loaded;
  }
  if (size > budget_) return bad(fmt::format("its {} bytes exceed what is left of the limit for constants", size));
  budget_ -= size;
  std::vector<std::byte> bytes;
  if (tensor.has_raw_data()) {
    const std::string& raw = tensor.raw_data();
    bytes.resize(raw.size());
    if (!raw.empty()) std::memcpy(bytes.data(), raw.data(), raw.size());
  } else {
    bytes = pack_typed_field(tensor, *dtype);
  }
  if (static_cast<int64_t>(bytes.size()) != size) {
    return bad(fmt::format("it holds {} bytes, its shape [{}] of {} needs {}", bytes.size(),
                           fmt::join(loaded.shape, ", "), name(*dtype), size));
  }
  if (*dtype == DType::boolean) {
    for (std::byte& b : bytes) b = b == std::byte{0} ? std::byte{0} : std::byte{1};
  }
  loaded.bytes = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  return loaded;
}

Result<std::shared_ptr<const std::vector<std::byte>>> TensorLoader::load_external(const TensorProto& tensor,
                                                                                  int64_t size) {
  const auto bad = [&](const std::string& why) {
    return diagnose(Code::onnx_external_data, shown(tensor.name()), why);
  };
  std::string location;
  int64_t offset = 0, length = size;
  for (const auto& entry : tensor.external_data()) {
    if (entry.key() == "location") {
      location = entry.value();
    } else if (entry.key() == "offset" || entry.key() == "length") {
      int64_t& number = entry.key() == "offset" ? offset : length;
      const char* end = entry.value().data() + entry.value().size();
      const auto [stop, error] = std::from_chars(entry.value().data(), end, number);
      if (error != std::errc() || stop != end || number < 0) {
        return bad(fmt::format("has the {} `{}`, which is no byte count", entry.key(), shown(entry.value())));
      }
    }
  }
  if (length != size) return bad(fmt::format("has {} bytes, its shape needs {}", length, size));
  if (folder_.empty()) return bad("cannot be looked for: the model was not read from a file");

  // The path must stay inside the model's folder, also after symbolic links are followed.
  namespace fs = std::filesystem;
  const fs::path relative(location);
  if (location.empty() || location.find('\0') != std::string::npos) return bad("names no file");
  if (relative.is_absolute() || std::find(relative.begin(), relative.end(), "..") != relative.end()) {
    return bad(fmt::format("lies at `{}`, outside the model's folder", shown(location)));
  }
  std::error_code error;
  const fs::path root = fs::canonical(folder_, error);
  const fs::path file = error ? fs::path() : fs::canonical(root / relative, error);
  if (error) {
    Diagnostic d = bad(fmt::format("`{}` cannot be found beside the model", shown(location)));
    d.hint = "copy the file beside the model (`make weights` writes that of the examples)";
    return d;
  }
  const auto [mismatch, unused] = std::mismatch(root.begin(), root.end(), file.begin(), file.end());
  if (mismatch != root.end()) return bad(fmt::format("lies at `{}`, outside the model's folder", shown(location)));

  auto& known = external_[{file.string(), offset, length}];
  if (!known) {
    if (size > budget_)
      return bad(fmt::format("has {} bytes, which exceed what is left of the limit for constants", size));
    TRY_ASSIGN(auto bytes, read_bytes(file.string(), offset, length, budget_));
    budget_ -= size;
    if (dtype_of(tensor.data_type()) == DType::boolean) {
      for (std::byte& b : bytes) b = b == std::byte{0} ? std::byte{0} : std::byte{1};
    }
    known = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  }
  return known;
}

}  // namespace cleave::onnx_import
