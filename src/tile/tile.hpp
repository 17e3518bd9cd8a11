// Tile programs: what a scheduled kernel does, tile by tile, independent of the backend.
//
// A Program has buffers (each with a place, a shape and a layout) and kernels that run one after another. A kernel is a
// nest of statements; its outermost loops may be parallel, and each iteration of those is a task with scratch buffers
// of its own. Statements behind a parallel loop join its tasks: the one that ends last does them, with scratch as dirty
// as any task's. There are four statements:
//   For     a loop over an index symbol;
//   Let     an index symbol that is an integer in memory: a length, the begin of a row;
//   Nest    an elementwise or reducing loop nest over a box: expressions over loads, stored or accumulated;
//   Matmul  C (+)= A * B on tiles, the register-blocked product.
// Index expressions are sym::Expr over loop symbols, so every address is known symbolically. docs/tile.md has the text
// form; eval/tile_eval.* is the meaning.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/diagnostic.hpp"
#include "base/id.hpp"
#include "sym/sym.hpp"
#include "types/dtype.hpp"
#include "types/scalar.hpp"

namespace cleave::tile {

using sym::Expr;
using BufferId = Id<struct BufferTag>;
using NodeId = Id<struct NestNodeTag>;  // an expression node of one Nest

enum class Place : uint8_t {
  input,      // a tensor of the call, read only
  output,     // a tensor of the call, written; may be read back by later kernels
  constant,   // like an input, but equal in every call: what is computed from it alone is computed once
  scalar,     // a run-time scalar (no axes)
  workspace,  // memory of the call, shared by all kernels
  packed,     // written by `once` kernels when the program is loaded, read only afterwards
  scratch,    // memory of the task
};
const char* name(Place place);

// Where element (i_0, .., i_r-1) lies. Row-major over the shape; with `panel` > 0 the last two axes [k, n] are stored
// as panels of `panel` columns: [ceil(n / panel)][k][panel], columns beyond n padded with zeros when it is packed. With
// `pairs` (of bf16) rows lie in pairs, as matrix units read them: [ceil(n / panel)][ceil(k / 2)][panel][2].
struct Buffer {
  std::string name;
  DType dtype;
  Place place;
  std::vector<Expr> shape;
  int64_t panel = 0;
  int argument = -1;  // input, output, constant, scalar: position in the program's list of that place
  BufferId alias_of;  // the same memory under another shape (dense only)
  bool pairs = false;
};

// Loads, constants, index values and scalar functions; operands precede their users.
struct Index {
  Expr affine;
  NodeId dynamic;  // added to it when valid: an i64 node (gather)
};
struct Load {
  BufferId buffer;
  std::vector<Index> at;
  NodeId guard;  // bool; when valid and false the load gives 0 and does not touch memory
};
struct Literal {
  double value;
};
struct IndexValue {
  Expr value;
};
struct Apply {
  Fn fn;
  std::vector<NodeId> operands;
};
struct Cast {
  NodeId operand;  // to the node's dtype, with dtype.hpp's semantics; to f16 or bf16 it rounds
};
struct Node {
  // A compute type (f64 f32 i64 i32 u8 bool), or f16/bf16 for a Cast that rounds (its value is handled as f32).
  DType dtype;
  std::variant<Load, Literal, IndexValue, Apply, Cast> what;
};

struct Write {
  BufferId buffer;
  std::vector<Expr> at;
  NodeId value;
  // Accumulates: buffer = fn(buffer, value) for add, mul, max, min, logical_and, logical_or.
  std::optional<Fn> accumulate;
  // An accumulation that starts from the function's identity instead of what the buffer holds.
  bool fresh = false;
};

struct Axis {
  Expr symbol;
  Expr extent;  // runs from 0; <= 0 is empty
};

// All nodes are evaluated for each point of the box in lexicographic order, then the stores are done in order.
// Without `sequential` the order of points is free (accumulations may be regrouped), so no point may read what another
// point stores.
struct Nest {
  std::vector<Axis> axes;
  std::vector<Node> nodes;
  std::vector<Write> stores;
  bool sequential = false;
};

// A tile of a buffer: the element at `at`, with two axes of the buffer running.
struct TileRef {
  BufferId buffer;
  std::vector<Expr> at;
  int rows = 0;     // axis that runs with the tile's first index
  int columns = 0;  // axis that runs with its second index
};

// c[m x n] = init + a[m x k] * b[k x n]; sums in f32 (f64 for f64 operands), in ascending k.
struct Matmul {
  enum class Init : uint8_t { zero, load, scaled };  // 0, C, or C * scale[row]
  TileRef c, a, b;
  Expr m, n, k;
  Init init = Init::zero;
  BufferId scale;              // of the accumulator's type
  std::vector<Expr> scale_at;  // its element of row 0; its last axis runs with the rows
};

struct Statement;
struct For {
  Expr symbol;
  Expr lo, hi;
  int64_t step = 1;
  bool parallel = false;
  std::vector<Statement> body;
};

// In its body the symbol is buffer[at], moved into lo..hi (lo when that is empty): whatever memory holds, what follows
// from the symbol is in range.
struct Let {
  Expr symbol;
  BufferId buffer;  // of integers
  std::vector<Expr> at;
  Expr lo, hi;
  std::vector<Statement> body;
};

struct Statement {
  std::variant<For, Nest, Matmul, Let> what;
};

struct Kernel {
  std::string name;
  bool once = false;  // runs when the program is loaded: reads constants and packed buffers, writes packed buffers
  std::vector<Statement> body;
};

struct Program {
  std::string name;
  std::shared_ptr<sym::Pool> syms;
  cleave::Store<Buffer, BufferTag> buffers;
  std::vector<Kernel> kernels;
  std::vector<Expr> dims = {};  // symbols that each call gives a value in their range: the executable's extents

  const Buffer& buffer(BufferId id) const { return buffers[id]; }
  // Elements that the buffer occupies, padding included.
  Expr size(BufferId id) const;
  // The same when dims have their typical values.
  int64_t elements(BufferId id) const { return syms->typical(size(id)); }
  std::vector<BufferId> buffers_in(Place place) const;
};

// All violations: undefined symbols and buffers, ranks, dtypes, stores into read-only places, reads of `packed` before
// it is written, parallel loops inside sequential ones, accesses that are provably out of range.
Diagnostics verify(const Program& program);

std::string print(const Program& program);
Result<Program> parse(const SourceText& source);  // verified

}  // namespace cleave::tile
