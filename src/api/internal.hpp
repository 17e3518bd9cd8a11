// What the files of the library share: the inside of its handles, and diagnostics as exceptions.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/diagnostic.hpp"
#include "base/thread_pool.hpp"
#include "cleave/cleave.hpp"
#include "driver/pipeline.hpp"
#include "graph/graph.hpp"

namespace cleave {

struct Graph::Impl {
  explicit Impl(graph::Graph g) : graph(std::move(g)) {}
  graph::Graph graph;
  mutable std::mutex mutex;  // what is made of the graph adds to its pool of symbolic integers
};

struct Threads::Impl {
  explicit Impl(int count) : pool(count) {}
  ThreadPool pool;
};

namespace api {

DType internal(ElementType type);
ElementType external(DType type);

[[noreturn]] void raise(const Diagnostics& errors, const SourceText* source = nullptr);
[[noreturn]] void raise(Diagnostic error);
template <class T>
T take(Result<T> result, const SourceText* source = nullptr) {
  if (!result.ok()) raise(result.errors(), source);
  return std::move(result).value();
}
// Runs `body`; faults of ours and of the standard library become Error.
template <class F>
auto guarded(F&& body) {
  try {
    return body();
  } catch (const InternalError& e) {
    throw Error(Error::Kind::internal, "", "", "", std::string("internal error: ") + e.what());
  } catch (const std::bad_alloc&) {
    throw Error(Error::Kind::invalid, "", "", "", "out of memory");
  }
}

// The command's cache folder, by the environment.
std::string cache_folder(const std::optional<std::string>& given);

std::vector<Extent> extents(const sym::Pool& syms, std::span<const sym::Expr> shape);
Argument leaf_argument(const graph::Graph& g, graph::ValueId leaf);
std::vector<Argument> leaf_arguments(const graph::Graph& g, graph::Op op);
std::vector<Argument> output_arguments(const graph::Graph& g);

// A program whose schedule is already chosen. `unfused` serves the calls that `dispatch` names.
std::shared_ptr<const Program::Impl> program_of(const graph::Graph& graph, const tile::Program& program,
                                                const Machine& machine, std::vector<uint8_t> object,
                                                const tile::Program* unfused, const driver::Dispatch& dispatch);

}  // namespace api
}  // namespace cleave
