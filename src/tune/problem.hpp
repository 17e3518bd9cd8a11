// What is tuned: a graph with the data that its candidates are verified and timed on.
//
// Memory is dense and row-major everywhere here. The order of inputs, scalars, constants and outputs is the graph's:
// leaves(Op::input), leaves(Op::scalar), leaves(Op::constant), outputs().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/diagnostic.hpp"
#include "base/thread_pool.hpp"
#include "eval/tensor.hpp"
#include "graph/graph.hpp"
#include "runtime/buffer.hpp"
#include "tile/tile.hpp"

namespace cleave::tune {

// A dense tensor in memory.
struct Array {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> extents;
  runtime::Buffer data;

  int64_t elements() const { return oracle::product(extents); }
  int64_t bytes() const { return elements() * byte_size(dtype); }
};

Array make_array(std::string name, DType dtype, std::vector<int64_t> extents);  // zeros
oracle::Tensor tensor_of(const Array& array);

// What all data together may take: half of this machine's memory, 32 GiB at most.
int64_t max_data_bytes();

struct Problem {
  graph::Graph graph;  // expanded, constant shapes
  std::vector<Array> inputs;
  std::vector<double> scalars;
  std::vector<Array> constants;
};

// Seeded random data: reals are normal with deviation 1, but those of matrices that multiply computed values (weights)
// have the deviation (terms of the sum)^-1/2, as trained and freshly initialised ones do: deep graphs with larger ones
// amplify rounding until no result can be judged. Integers that are used as positions (indices of a gather, row
// pointers and lengths of ragged and paged inputs) are valid ones, others small. Errors: dims without a value, or more
// data than the limit. `graph` is not yet expanded, so that ragged and paged inputs are recognised.
struct Data {
  std::vector<Array> inputs;
  std::vector<double> scalars;
  std::vector<Array> constants;
};
Result<Data> random_data(const graph::Graph& graph, uint64_t seed);

// One call of a compiled program, for functions that measure or verify it.
struct Call {
  std::vector<const void*> inputs;
  std::vector<double> scalars;
  std::vector<void*> outputs;
};

// A compiled program with its constants bound and its weights packed. run() is not thread-safe.
class Runnable {
 public:
  virtual ~Runnable() = default;
  virtual Diagnostics run(const Call& call, Executor& executor) = 0;
  // Thread CPU seconds of each kernel that runs at a call, in order (the fastest of a few runs); empty: not known.
  virtual std::vector<double> kernel_seconds(const Call& call) = 0;
};

using Compile = std::function<Result<std::shared_ptr<Runnable>>(const tile::Program&)>;

}  // namespace cleave::tune
