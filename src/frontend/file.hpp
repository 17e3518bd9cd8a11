// Whole files, read with a bound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/diagnostic.hpp"

namespace cleave {

// The bytes [offset, offset + length) of a regular file; length -1 means up to its end. Devices, pipes and folders are
// refused, so reading always ends.
Result<std::vector<std::byte>> read_bytes(const std::string& path, int64_t offset, int64_t length, int64_t limit);
// Writes beside `path` and renames into place, so that a reader never sees half a file.
Diagnostics write_bytes(const std::string& path, std::span<const std::byte> bytes);

}  // namespace cleave
