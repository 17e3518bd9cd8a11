// What results are judged by: float64 values with an error bound for each element.
//
// When that is cheap the reference has every element of every output. Otherwise it has 64 seeded rows of each output at
// the real shape, first and last rows among them (tune/restrict.hpp computes only what they need); all other elements
// are then compared with the unfused schedule's, which has passed the same judgement.
#pragma once

#include <optional>
#include <vector>

#include "eval/bounds.hpp"
#include "tune/problem.hpp"
#include "tune/restrict.hpp"

namespace cleave::tune {

struct Piece {
  size_t output;
  Box box;
  oracle::Bounded expected;
  // Every value rounded to its type, as storing all of them would; only when some element has no bound.
  std::optional<oracle::Tensor> stored;
  // The stable form of the graph, where a result is NaN or an input NaN or +inf: exponentials that overflow in float64
  // as written have the values there that they stand for.
  std::optional<oracle::Bounded> stable;
  bool sums_products = false;  // on the way to it: inf - inf and an infinity may stand for each other
};

struct Reference {
  std::vector<Piece> pieces;
  bool complete = false;  // the pieces are the whole outputs
  int64_t elements = 0;
  // The graph masks elements with -inf by a comparison of indices: NaN and infinities there may be left out of a result
  // that they reach in the reference (docs/graph.md).
  bool masks_by_index = false;
};

struct ReferenceOptions {
  uint64_t seed = 1;
  int64_t rows = 64;
  double complete_steps = 1e8;  // up to here all elements are evaluated
  double max_steps = 4e9;       // of all pieces together; fewer rows beyond (at least four an output)
};
Result<Reference> make_reference(const Problem& problem, const ReferenceOptions& options = {});

// The tensor of a box of an array.
oracle::Tensor crop(const Array& array, const Box& box);

// Memory for one result of every output: NaN (integers: all ones) inside, guard bytes around.
class Results {
 public:
  explicit Results(const graph::Graph& graph);
  void poison();
  std::vector<void*> addresses();
  bool guards_intact() const;
  size_t size() const { return arrays_.size(); }
  const graph::Type& type(size_t output) const { return arrays_[output].type; }
  const std::vector<int64_t>& extents(size_t output) const { return arrays_[output].extents; }
  const void* data(size_t output) const { return arrays_[output].memory.bytes() + kGuard; }
  oracle::Tensor tensor(size_t output, const Box& box) const;
  oracle::Tensor tensor(size_t output) const;

 private:
  static constexpr int64_t kGuard = 64;
  struct One {
    graph::Type type;
    std::vector<int64_t> extents;
    int64_t bytes;
    runtime::Buffer memory;
  };
  std::vector<One> arrays_;
};

// Errors relative to the largest finite magnitude of the output that they are in (an element near 0 of a tensor whose
// others are near 1 has no meaningful relative error of its own).
struct Verdict {
  bool ok = true;
  int64_t elements = 0;  // judged against float64
  double max_abs = 0;
  double max_rel = 0;     // max |got - expected| / max |expected|
  double bound = 0;       // the largest derived bound, in the same unit, over the elements that have one
  int64_t unbounded = 0;  // elements without one (they hang on a discontinuous function, or on the edge of overflow)
  int64_t left_out = 0;   // NaN in the reference, a number here: of masked elements that are not computed
  double worst = 0;       // largest error in units of what is allowed; above 1 fails
  std::string text;       // the worst element, when it is not ok
  std::vector<std::vector<double>> errors;  // of each piece, element by element
};

struct Tolerance {
  double relative = 0, absolute = 0;  // asked for by the user, on top of the bound
};

// An element may be off by the derived bound, or by twice what the unfused schedule is off there. Elements without a
// bound have to agree to three digits, or to eight times what most of them are off when the graph as given is stored
// value by value (at most a twentieth), but for one in fifty, which may have fallen on the other side of a step, and
// but for those that the graph as given, stored so, does not reach either (an intermediate overflows).
Verdict judge(const Reference& reference, const Results& results, const Verdict* unfused, const Tolerance& tolerance);

// Every element against the unfused schedule's result; a text that says what differs, empty when nothing does.
std::string disagreement(const Reference& reference, const Results& results, const Results& unfused,
                         const Tolerance& tolerance);

}  // namespace cleave::tune
