// Values over the loops around an equation, as tensors of the graph with one axis for each loop that they depend on.
#pragma once

#include <map>
#include <memory>

#include "graph/graph.hpp"

namespace cleave::bridge {

using graph::Op;
using graph::ValueId;

// A subscript: constant + sum of coefficients times loop indices. Loops are numbered from the outermost one.
struct Linear {
  int64_t constant = 0;
  std::map<uint32_t, int64_t> terms;
  bool operator==(const Linear&) const = default;
};

struct Lifted {
  ValueId value;
  std::vector<uint32_t> axes;  // the loops of its axes, ascending; loops of extent 1 have none
  std::shared_ptr<std::pair<Lifted, Lifted>> factors = nullptr;  // of a product
  bool identity = false;  // the accumulator where its accumulation begins: nothing is there yet
};

class Lifter {
 public:
  // `extents`: how often each loop runs.
  Lifter(graph::Builder& b, std::vector<int64_t> extents) : b_(b), extents_(std::move(extents)) {}

  const std::vector<int64_t>& extents() const { return extents_; }
  DType dtype(const Lifted& x) const { return b_.type(x.value).dtype; }

  Lifted literal(double value, DType dtype);
  Result<Lifted> index(uint32_t loop);  // i64
  Result<Lifted> linear(const Linear& form);
  Result<Lifted> apply(Op op, std::vector<Lifted> operands);
  Result<Lifted> cast(Lifted x, DType dtype);
  // The value with exactly these axes, repeated along those that it lacks.
  Result<Lifted> spread(const Lifted& x, std::span<const uint32_t> axes);
  // Reduced over `loops` by sum, prod, amax or amin; a product is contracted.
  Result<Lifted> reduce(Op op, const Lifted& x, std::span<const uint32_t> loops);
  Result<Lifted> scan(Op op, const Lifted& x, uint32_t loop);
  Result<Lifted> last(const Lifted& x, uint32_t loop);  // of the last iteration

  // The element of a tensor at a place that is linear in the loops; `outside` where that leaves the tensor.
  Result<Lifted> element(ValueId tensor, std::vector<Linear> at, double outside);
  // At computed places (i64 each, clamped); those in `linear` are linear too.
  Result<Lifted> gather(ValueId tensor, const std::vector<Lifted>& at,
                        const std::vector<std::optional<Linear>>& linear);

  // The value laid out as the box of a tensor that it is written to: the box with its first element. nullopt: the
  // subscripts name no box (gaps, a diagonal).
  struct Box {
    ValueId value;
    std::vector<int64_t> from, shape;
  };
  Result<std::optional<Box>> place(Lifted x, const std::vector<Linear>& at);

  // Nodes of the graph.
  Result<ValueId> make(Op op, std::vector<ValueId> operands, graph::Attributes attributes = {});
  std::vector<int64_t> shape_of(ValueId value) const;
  graph::Shape symbols(std::span<const int64_t> extents) { return b_.shape(extents); }

 private:
  struct Axis {
    std::optional<uint32_t> loop;  // what it runs over
    Linear at;                     // otherwise: the place in it
  };
  Result<Lifted> resolve(ValueId tensor, std::vector<Axis> axes);
  Result<Lifted> ordered(ValueId tensor, const std::vector<uint32_t>& loops);
  Linear significant(const Linear& form) const;  // without loops of extent 1

  graph::Builder& b_;
  std::vector<int64_t> extents_;
};

}  // namespace cleave::bridge
