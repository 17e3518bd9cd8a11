// NumPy's .npz files: zip archives of .npy arrays. Read: stored and deflated members. Written: stored members, with
// fixed times, so that equal arrays give equal files. Memory is bounded by what the members declare and the file can
// hold.
#pragma once

#include <map>

#include "frontend/npy.hpp"

namespace cleave {

Result<std::map<std::string, NpyArray>> read_npz(const std::string& path);
Result<std::map<std::string, NpyArray>> parse_npz(std::span<const std::byte> file, std::string_view name);
std::vector<std::byte> format_npz(const std::map<std::string, NpyArray>& arrays);
Diagnostics write_npz(const std::string& path, const std::map<std::string, NpyArray>& arrays);

}  // namespace cleave
