// NumPy's .npy files: the arrays that runs read and write.
//
// Read: format versions 1 to 3, C and Fortran order, either byte order, dtypes f64 f32 f16, the integers, bool. NumPy
// has no bfloat16: it is written as two opaque bytes ("<V2", what ml_dtypes writes too) and "V2" is read back as bf16.
// The memory used is bounded by the file's size: a header that promises more than the file holds is an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.hpp"
#include "types/dtype.hpp"

namespace cleave {

struct NpyArray {
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;  // dense, row-major, little endian
  bool u64 = false;              // of i64: the bits are those of unsigned numbers, which no other stage has

  int64_t elements() const;
};

// `name` is what errors call the array. Unsigned integers of 64 bits are refused without `u64`.
Result<NpyArray> parse_npy(std::span<const std::byte> file, std::string_view name, bool u64 = false);
Result<NpyArray> read_npy(const std::string& path, bool u64 = false);

// The file's content: version 1.0, C order, data at a multiple of 64 bytes. CHECKs that `bytes` has the shape's size.
std::vector<std::byte> format_npy(const NpyArray& array);
// The errors are empty when the file was written.
Diagnostics write_npy(const std::string& path, const NpyArray& array);

}  // namespace cleave
