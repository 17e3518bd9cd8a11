// itGraphs: nested loop graphs, the form in which a graph is scheduled (Cleave paper, section 5).
//
// A Program computes values (tensors) kernel by kernel. Every value has named indices; a Compute gives one value (or a
// scaled group of values) as an expression over its indices, possibly reduced over more indices. A Block runs its items
// once per tile of its loops; an index that is tiled by enclosing loops covers, inside them, only the interval
// [o, o + t) of the tile (the tensor map: o is the sum of the loop counters over that index). Expressions use absolute
// index values, so a Compute reads the same in every nesting.
//   parallel  outermost; iterations write distinct tiles, in any order. One that is the first item of another is
//             joined: the items behind it follow when all its iterations are done
//   map       sequential; iterations write distinct tiles
//   reduce    iterations accumulate into the same tiles
// Expressions are the nodes of tile programs, with values in the place of buffers. docs/itgraph.md has the text form.
#pragma once

#include <map>

#include "tile/tile.hpp"

namespace cleave::itgraph {

using sym::Expr;
using ValueId = tile::BufferId;
using tile::NodeId;

enum class Kind : uint8_t { parallel, map, reduce };
const char* name(Kind kind);

enum class Role : uint8_t { input, constant, scalar, output, inner };
const char* name(Role role);

struct Value {
  std::string name;
  DType dtype;
  Role role;
  std::vector<Expr> shape;
  int argument = -1;  // input, constant, scalar, output: position in the list of that role
  ValueId alias_of;   // the same elements under another shape (a reshape of something in memory)
  // A packed value [b, i, ..]: given integers p [b + 1], request b has the elements i < p[b + 1] - p[b], which lie in
  // the rows p[b] + i of what it is an alias of; the other elements do not exist. Rows of no request are 0. Only
  // outputs.
  ValueId rows_of = {};  // p
  Expr rows = {};        // how many there are
};

// result[axes] = reduce over `reduced` of nodes[value]; axes are index symbols, one per axis of the result.
struct Target {
  ValueId value;
  std::vector<Expr> axes;
  NodeId node;
};

struct Compute {
  enum class How : uint8_t {
    map,     // nothing is reduced
    reduce,  // with `fn`: add, mul, max, min, logical_and, logical_or
    scaled,  // results[0] = m = max of its node; results[i] = sum of exp(score - m) * its node, score = results[0]'s
             // node
  };
  How how = How::map;
  Fn fn = Fn::add;
  std::vector<Expr> reduced;
  std::vector<tile::Node> nodes;
  std::vector<Target> results;
};

struct Loop {
  Expr index;
  int64_t step;
};

struct Block;
struct Item;

struct Block {
  Kind kind = Kind::parallel;
  std::vector<Loop> loops;
  std::vector<Item> items;
};

struct Item {
  std::variant<Compute, Block> what;
};

// Scans, arg-reductions and top-k along one axis: library code, always a kernel of its own.
struct Library {
  enum class What : uint8_t { cumsum, cumprod, cummax, argmax, argmin, topk };
  What what = What::cumsum;
  ValueId source;
  std::vector<ValueId> results;  // topk: values, indices
  int axis = 0;
  bool exclusive = false, reverse = false;  // scans
  bool largest = true;                      // topk
};

const char* name(Library::What what);

// The word for a reduction with `fn` (sum, prod, amax, amin, all, any); null for a function that does not reduce.
const char* reduction_name(Fn fn);

struct Kernel {
  std::string name;
  std::variant<Block, Library> what;  // a parallel block, perhaps without loops
};

struct Program {
  std::string name;
  std::shared_ptr<sym::Pool> syms;
  cleave::Store<Value, tile::BufferTag> values;
  std::map<Expr, Expr> extents;  // of the index symbols
  std::vector<Kernel> kernels;
  std::vector<Expr> dims = {};  // symbols that each call gives a value in their range

  const Value& value(ValueId id) const { return values[id]; }
};

// Where an index stands inside nested blocks: it covers [offset, min(offset + tile, extent)).
struct Interval {
  Expr offset;
  int64_t tile = 0;     // 0: the index is whole
  Expr end;             // given: the interval ends there at the latest, not only at the extent
  int64_t aligned = 1;  // the offset is a multiple of it
};

// The tensor map of an access: an interval for each index. Nested tiles compose by addition.
class TensorMap {
 public:
  explicit TensorMap(const Program& program) : program_(&program) {}
  // Enters a loop: `counter` runs over multiples of the step inside the current interval.
  void enter(Expr index, Expr counter, int64_t step);
  // The same for a loop that starts and ends where a mask says: counters are multiples of `aligned`, tiles end at
  // `end`.
  void enter(Expr index, Expr counter, int64_t step, int64_t aligned, Expr end);
  // Elements from `end` on do not exist in this iteration.
  void limit(Expr index, Expr end);
  Interval of(Expr index) const;
  // Elements of the interval in this iteration: min(tile, extent - offset).
  Expr size(Expr index) const;
  // Elements that a tile of the index has at most; sym::kHuge when nothing bounds them.
  int64_t most(Expr index) const;
  // The room that a tile of the index needs: a constant, or a function of the dims for an index that is whole, or
  // shorter than a tile as a rule.
  Expr room(Expr index) const;

 private:
  const Program* program_;
  std::map<Expr, Interval> intervals_;
};

// All violations: ranks, undefined values or indices, an index tiled twice with steps that do not nest, a value read
// before it is computed, a reduction whose loop is not a reduce block, an output not written.
Diagnostics verify(const Program& program);
std::string print(const Program& program);
Result<Program> parse(const SourceText& source);  // verified

}  // namespace cleave::itgraph
