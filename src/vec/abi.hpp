// Where the fields of the kernel ABI lie (runtime/abi.h, docs/abi.md); the code generator checks that both agree.
#pragma once

#include <cstdint>

namespace cleave::vec::abi {

inline constexpr int64_t kTensors = 0;     // const CleaveTensor*
inline constexpr int64_t kExtents = 8;     // const int64_t*
inline constexpr int64_t kScalars = 16;    // const double*
inline constexpr int64_t kWorkspace = 24;  // void*

inline constexpr int64_t kTensorBytes = 16;
inline constexpr int64_t kTensorData = 0;     // void*
inline constexpr int64_t kTensorStrides = 8;  // const int64_t*, in elements

}  // namespace cleave::vec::abi
