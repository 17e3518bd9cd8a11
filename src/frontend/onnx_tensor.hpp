// TensorProto -> dense bytes: raw data, typed fields and external data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/diagnostic.hpp"
#include "frontend/onnx.hpp"
#include "types/dtype.hpp"

namespace onnx {
class TensorProto;
}

namespace cleave::onnx_import {

// The dtype of an ONNX element type; nullopt for those that we lack.
std::optional<DType> dtype_of(int onnx_type);
// "FLOAT8E4M3FN (17)", for messages.
std::string type_name(int onnx_type);

struct LoadedTensor {
  DType dtype;
  std::vector<int64_t> shape;
  std::shared_ptr<const std::vector<std::byte>> bytes;
};

// Loads tensors within a budget. Tensors that name one range of one file share its bytes.
class TensorLoader {
 public:
  TensorLoader(std::string folder, const OnnxOptions& options)
      : folder_(std::move(folder)), budget_(options.max_constant_bytes) {}
  Result<LoadedTensor> load(const onnx::TensorProto& tensor);

 private:
  Result<std::shared_ptr<const std::vector<std::byte>>> load_external(const onnx::TensorProto& tensor, int64_t size);

  std::string folder_;
  int64_t budget_;
  std::map<std::tuple<std::string, int64_t, int64_t>, std::shared_ptr<const std::vector<std::byte>>> external_;
};

}  // namespace cleave::onnx_import
