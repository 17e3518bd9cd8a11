#include "driver/constants.hpp"

#include <filesystem>

#include "frontend/file.hpp"
#include "frontend/npy.hpp"

namespace cleave::driver {

namespace fs = std::filesystem;

graph::Graph with_constant_files(const graph::Graph& g, const WriteFile& write, const std::string& folder) {
  int next = 0;
  const auto replace = [&](graph::Builder& b, graph::NodeId id,
                           std::span<const graph::ValueId>) -> std::optional<std::vector<graph::ValueId>> {
    const graph::Node& n = g.node(id);
    if (n.op != graph::Op::constant) return std::nullopt;
    auto data = n.attributes.get<graph::ConstantData>("data");
    const graph::Type& type = g.type(n.results[0]);
    const int number = next++;
    if (data.kind == graph::ConstantData::Kind::bytes) {
      data.path = fmt::format("{}/{}.npy", folder, number);
      const int64_t elements = static_cast<int64_t>(data.bytes->size()) / byte_size(type.dtype);
      if (write && elements > graph::PrintOptions{}.inline_elements)
        write(data.path, format_npy({type.dtype, g.extents(n.results[0]), *data.bytes}));
    }
    return std::vector<graph::ValueId>{
        b.constant(n.attributes.get<std::string>("name"), type.dtype, type.shape, std::move(data))};
  };
  return graph::rewrite(g, replace);
}

Result<std::string> text_with_files(const graph::Graph& g, const std::string& path) {
  const fs::path beside = fs::path(path).parent_path();
  Diagnostics bad;
  const auto write = [&](const std::string& name, const std::vector<std::byte>& bytes) {
    std::error_code error;
    fs::create_directories((beside / name).parent_path(), error);
    if (bad.empty()) bad = write_bytes((beside / name).string(), bytes);
  };
  const graph::Graph named = with_constant_files(g, write, fs::path(path).stem().string() + ".constants");
  if (!bad.empty()) return bad;
  return graph::print(named);
}

}  // namespace cleave::driver
