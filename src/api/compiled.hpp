// A tile program as code with its constants bound. It serves every value of the dimensions that the program leaves
// open.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "api/internal.hpp"
#include "driver/compile.hpp"
#include "runtime/buffer.hpp"

namespace cleave::api {

class Compiled {
 public:
  // `graph` has the constants. `object`: code that was made earlier of the same program; empty: it is made now.
  Compiled(const graph::Graph& graph, const tile::Program& program, const Machine& machine,
           std::vector<uint8_t> object = {});

  // Views and scalars in the order of the graph; `dims` has a value for each open dimension. Calls may overlap.
  void run(std::span<const View> inputs, std::span<const View> outputs, std::span<const double> scalars,
           const std::map<std::string, int64_t>& dims, Executor* executor) const;
  const std::vector<uint8_t>& object() const { return built_.object(); }

 private:
  void bind_constants(const graph::Graph& graph);
  runtime::Buffer take_workspace(int64_t bytes) const;

  jit::Built built_;
  std::vector<std::shared_ptr<const std::vector<std::byte>>> kept_;
  std::shared_ptr<const jit::Constants> constants_;
  mutable std::mutex mutex_;
  mutable std::vector<runtime::Buffer> free_;  // workspaces of calls that have ended
};

}  // namespace cleave::api
