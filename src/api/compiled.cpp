#include "api/compiled.hpp"

#include <algorithm>

#include "base/codes.hpp"

namespace cleave::api {

namespace {
jit::TensorView view(const View& v) { return {v.data, internal(v.type), v.shape, v.strides}; }
}  // namespace

Compiled::Compiled(const graph::Graph& graph, const tile::Program& program, const Machine& machine,
                   std::vector<uint8_t> object)
    : built_(take(jit::build(program, driver::build_options(machine), std::move(object)))) {
  bind_constants(graph);
}

void Compiled::bind_constants(const graph::Graph& g) {
  const lower::Lowered& l = built_.lowered();
  const std::vector<graph::ValueId> leaves = g.leaves(graph::Op::constant);
  std::vector<jit::TensorView> views;
  // Positions that the program does not read may be missing at the end.
  for (size_t i = 0; i < std::min(leaves.size(), l.constants.size()); ++i) {
    const auto& data = g.producer(leaves[i]).attributes.get<graph::ConstantData>("data");
    const DType dtype = g.type(leaves[i]).dtype;
    const std::vector<int64_t> extents = g.extents(leaves[i]);
    // The bytes of a model's weights are shared with the graph, recipes are written out.
    std::shared_ptr<const std::vector<std::byte>> bytes = data.bytes;
    if (data.kind != graph::ConstantData::Kind::bytes || !bytes)
      bytes = std::make_shared<const std::vector<std::byte>>(graph::materialise(data, dtype, oracle::product(extents)));
    kept_.push_back(bytes);
    views.push_back({const_cast<std::byte*>(bytes->data()), dtype, extents, {}});
  }
  if (!l.constants.empty() || l.packed_bytes > 0) constants_ = take(built_.bind_constants(views));
}

// Workspaces are kept for later calls; calls that overlap have one each.
runtime::Buffer Compiled::take_workspace(int64_t bytes) const {
  {
    const std::lock_guard lock(mutex_);
    while (!free_.empty()) {
      runtime::Buffer out = std::move(free_.back());
      free_.pop_back();
      if (out.size() >= bytes) return out;
    }
  }
  return runtime::Buffer(std::max<int64_t>(64, bytes));
}

void Compiled::run(std::span<const View> in, std::span<const View> out, std::span<const double> numbers,
                   const std::map<std::string, int64_t>& dims, Executor* executor) const {
  const lower::Lowered& l = built_.lowered();
  std::vector<jit::TensorView> reads, writes;
  for (size_t i = 0; i < l.inputs.size(); ++i) reads.push_back(view(in[i]));
  for (size_t i = 0; i < l.outputs.size(); ++i) writes.push_back(view(out[i]));
  std::vector<int64_t> extents;
  for (const sym::Expr d : l.dims) extents.push_back(dims.at(l.syms->symbol_name(d)));
  runtime::Buffer workspace = take_workspace(take(built_.workspace_bytes(extents)));
  jit::RunOptions o;
  o.executor = executor;
  o.workspace = workspace.data();
  o.extents = std::move(extents);
  const Diagnostics bad = built_.run(reads, numbers.first(static_cast<size_t>(l.scalars)), writes, constants_, o);
  {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(workspace));
  }
  if (!bad.empty()) raise(bad);
}

}  // namespace cleave::api
