#include "driver/constants.hpp"

#include "frontend/npy.hpp"

namespace cleave::driver {

graph::Graph with_constant_files(const graph::Graph& g, const WriteFile& write) {
  int next = 0;
  const auto replace = [&](graph::Builder& b, graph::NodeId id,
                           std::span<const graph::ValueId>) -> std::optional<std::vector<graph::ValueId>> {
    const graph::Node& n = g.node(id);
    if (n.op != graph::Op::constant) return std::nullopt;
    auto data = n.attributes.get<graph::ConstantData>("data");
    const graph::Type& type = g.type(n.results[0]);
    const int number = next++;
    if (data.kind == graph::ConstantData::Kind::bytes) {
      data.path = fmt::format("constants/{}.npy", number);
      const int64_t elements = static_cast<int64_t>(data.bytes->size()) / byte_size(type.dtype);
      if (write && elements > graph::PrintOptions{}.inline_elements)
        write(data.path, format_npy({type.dtype, g.extents(n.results[0]), *data.bytes}));
    }
    return std::vector<graph::ValueId>{
        b.constant(n.attributes.get<std::string>("name"), type.dtype, type.shape, std::move(data))};
  };
  return graph::rewrite(g, replace);
}

}  // namespace cleave::driver
