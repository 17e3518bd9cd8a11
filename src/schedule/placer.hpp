// The state and the steps of place(): one Placer turns one itGraph into a tile program. Internal to the room.
//
// place.cpp walks the blocks and places plain computes, place_product.cpp makes products register-blocked statements,
// place_scaled.cpp expands scaled groups.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "schedule/blocks.hpp"
#include "schedule/masks.hpp"
#include "schedule/nest_builder.hpp"
#include "schedule/place.hpp"
#include "schedule/plan.hpp"

namespace cleave::schedule {

using itgraph::Compute;
using itgraph::Role;
using sym::Expr;
using tile::BufferId;
using tile::Matmul;
using tile::Nest;
using tile::NodeId;
using tile::Place;
using tile::Statement;
using tile::TileRef;
using ItValue = itgraph::ValueId;

inline bool mentions(const sym::Pool& s, const tile::Load& l, Expr symbol) {
  return std::any_of(l.at.begin(), l.at.end(), [&](const tile::Index& i) { return s.mentions(i.affine, symbol); });
}

// Where a value made in the task lies: a scratch buffer that covers a tile of each index.
struct Scratch {
  BufferId buffer;
  std::vector<Expr> origin;  // absolute index of its first element, by axis of the value
  std::vector<int> axis;     // buffer axis of each axis of the value
};

class Placer {
 public:
  Placer(const itgraph::Program& it, const Machine& machine, const PlaceOptions& options)
      : it_(it), machine_(machine), options_(options), syms_(*it.syms), visible_(visible_values(it)) {
    out_.name = it.name;
    out_.syms = it.syms;
    out_.dims = it.dims;
  }
  Result<tile::Program> run(std::vector<size_t>* ends);

 private:
  std::string unique(std::string stem);
  std::string kernel_name(const std::string& stem);
  // All arguments are declared, read or not, so that positions are those of the graph.
  void arguments();
  // The buffer of a value in memory, declared on first use.
  BufferId memory(ItValue v);
  // Whether a kernel reads nothing but constants and what was made of them, and writes no output: then it runs once.
  bool find_constant(const itgraph::Kernel& k);
  // Values that are numbers of bf16, as they were rounded to it or scaled by a power of two.
  void find_exact(const itgraph::Block& b);
  // Those of them that products read: kept in bf16, as products of the matrix unit read them.
  void find_narrow(const itgraph::Block& b);
  // How products read inner values, so that their scratch is laid out for it: the index that must come last.
  void find_uses(const itgraph::Block& b);
  struct Orientation {
    const tile::Load* a = nullptr;
    const tile::Load* b = nullptr;
    Expr rows, columns, depth;  // rows may be missing (a vector times a matrix), columns too (then no product)
    std::vector<Expr> any_rows = {};
  };
  int64_t extent(Expr s) const { return syms_.typical(it_.extents.at(s)); }  // for choices of speed
  int64_t most(Expr s) const { return syms_.bounds(it_.extents.at(s)).hi; }
  Expr widest(const std::vector<Expr>& list) const;
  // Which operand gives the columns: that of the result's last index if only one carries it.
  Orientation orient(const Compute& c, const Product& p) const;

  // scratch
  BufferId scratch(std::string stem, DType dtype, std::vector<Expr> shape);
  // A scratch buffer for a tile of the value; a leading axis of 1 gives every product a row axis.
  Scratch make_scratch(const std::string& stem, DType dtype, const std::vector<Expr>& axes,
                       const itgraph::TensorMap& map, Expr last);

  // addresses
  std::vector<Expr> scratch_at(const Scratch& s, const std::vector<Expr>& absolute);
  // A value's buffer and the place of an element in it.
  std::pair<BufferId, std::vector<Expr>> locate(ItValue v, const std::vector<Expr>& absolute);
  tile::Load placed(const tile::Load& l, const std::unordered_map<Expr, Expr>& by, const std::vector<NodeId>& nodes);
  // Copies the nodes that `roots` need into a nest, with symbols replaced and values placed.
  std::vector<NodeId> copy_nodes(NestBuilder& nest, const std::vector<tile::Node>& from, std::vector<NodeId> roots,
                                 const std::unordered_map<Expr, Expr>& by);
  // Adds nest axes for the indices (in this order) and returns the substitution absolute = offset + local.
  void add_axes(NestBuilder& nest, const std::vector<Expr>& indices, const itgraph::TensorMap& map,
                std::unordered_map<Expr, Expr>& by);
  static std::vector<Expr> substituted(sym::Pool& syms, const std::vector<Expr>& list,
                                       const std::unordered_map<Expr, Expr>& by);

  // computes
  bool in_scratch(ItValue v) const { return !visible_.count(v); }
  // Accumulation happens where the value lies if that holds the compute type, else in scratch.
  bool needs_accumulator(ItValue v) const { return !in_scratch(v) && compute_type(stored(v)) != stored(v); }
  // The type that a value has where it lies.
  DType stored(ItValue v) const {
    const itgraph::Value& x = it_.value(v);
    return narrow_.count(x.alias_of.valid() ? x.alias_of : v) ? DType::bf16 : x.dtype;
  }
  Expr wanted_last(ItValue v, const std::vector<Expr>& axes) const;
  // Reserves the place of a result in this tile, if it is not in memory.
  void reserve(const itgraph::Target& t, const itgraph::TensorMap& map, Expr last = {});
  // Writes an accumulator in scratch to the value's place in memory.
  void flush(const itgraph::Target& t, const itgraph::TensorMap& map, std::vector<Statement>& body);
  void map_compute(const Compute& c, const itgraph::TensorMap& map, std::vector<Statement>& body);
  // The index along which the loads of a value that is gathered lie side by side, where its scratch is wanted the other
  // way round.
  Expr gathered_along(const Compute& c, const itgraph::TensorMap& map) const;
  // A gathered value whose scratch lies the other way round: a few rows as they come, then turned in registers.
  void turned_compute(const Compute& c, Expr along, const itgraph::TensorMap& map, std::vector<Statement>& body);
  // Rows of requests, stored where they belong; rows of no request are cleared by a kernel of their own
  // (place_packed.cpp).
  void packed_compute(const Compute& c, const itgraph::TensorMap& map, std::vector<Statement>& body);
  void clear_other_rows(ItValue v);
  // Whether all that the block stores outside are rows of the same requests, one request a task: then what the tasks
  // compute ends with the request.
  struct Requests {
    ItValue rows_of;
    Expr request, row;  // indices
    Expr rows;
  };
  std::optional<Requests> requests_of(const itgraph::Block& b) const;
  struct Rows {
    Expr first, stop;
  };
  std::map<ItValue, Rows> bound_rows_;  // in the body at hand: the rows of the request of this task
  // Encloses the body in statements that bind the first row of a request and the one after its last.
  static std::vector<Statement> with_rows(std::vector<Statement> body, sym::Pool& syms, BufferId pointers, Expr request,
                                          Expr rows, const Rows& bound);
  Rows fresh_rows(Expr rows);
  static double identity(Fn fn);
  void fill(ItValue v, const std::vector<Expr>& axes, Fn fn, const itgraph::TensorMap& map,
            std::vector<Statement>& body);
  // Reductions, at any depth, whose outermost loop this block is: they get their places and identities before it.
  std::vector<const Compute*> opened_by(const itgraph::Block& b, const std::set<Expr>& opened) const;
  void prepare(const Compute& c, const itgraph::TensorMap& map, std::vector<Statement>& body);
  Expr product_columns(const Compute& c) const;
  void reduce_compute(const Compute& c, const itgraph::TensorMap& map, bool looped, std::vector<Statement>& body);

  // products
  // The buffer axis along which an index runs with step 1, none of the others moving with it.
  std::optional<int> unit_axis(std::span<const Expr> at, Expr symbol);
  // Another axis of the buffer than `not_this`, for a tile of one row.
  static std::optional<int> other_axis(size_t rank, int not_this);
  struct Operand {
    BufferId buffer;
    std::vector<Expr> at;  // in terms of the index symbols
  };
  Operand operand(const tile::Load& l);
  int64_t panel_width(Expr index, DType dtype, int64_t rows) const;
  // Whether a place, a term in indices, lies before this end whatever the indices are.
  bool within(Expr affine, Expr end) const;
  // Whether a product of so many rows with this operand is worth packing it for the matrix unit.
  bool for_matrix_unit(const tile::Load& b, Expr rows);
  // B as panels of columns, made by a kernel before this one (once if B is constant), shared by all who want the same.
  // Panels divide `tile`, the tiles of columns (0: they are whole).
  std::optional<Operand> packed(const tile::Load& l, const std::vector<Expr>& batch, Expr depth, Expr columns,
                                int64_t tile, int64_t rows, bool pairs);
  tile::Kernel pack_kernel(const tile::Load& l, const std::vector<Expr>& axes, BufferId buffer, bool once);
  // A product as a Matmul statement, with loops around it for the indices that are neither rows, columns nor depth.
  bool matmul_compute(const Compute& c, const itgraph::TensorMap& map, bool looped, std::vector<Statement>& body);
  bool emit_product(const Compute& c, const Orientation& o, Operand result, const std::vector<Expr>& axes,
                    const itgraph::TensorMap& map, Matmul::Init init, BufferId scale, std::vector<Expr> scale_at,
                    std::vector<Statement>& body);
  void fill_at(const Operand& place, const std::vector<Expr>& axes, const itgraph::TensorMap& map,
               std::vector<Statement>& body);
  std::vector<Expr> index_symbols(const tile::Load& l) const;

  // scaled groups
  // One step of (m, u_1 .. u_n) over the current tile of the reduced indices: the running maximum, the factor that
  // rescales what was summed before, the weights exp(score - m), and the sums (algebra.md section 5).
  bool scaled_compute(const Compute& c, const itgraph::TensorMap& map, bool looped, std::vector<Statement>& body);
  // u = u * decay + sum of weights * factor.
  void factored_sum(const Compute& c, size_t i, const std::vector<Expr>& score_axes, const Scratch& weights,
                    const Scratch& decay, Expr row, const itgraph::TensorMap& map, std::vector<Statement>& body);
  bool product_factor(const Compute& c, const itgraph::Target& t, const tile::Load& factor,
                      const std::vector<Expr>& score_axes, const Scratch& weights, const Scratch& decay, Expr row,
                      const itgraph::TensorMap& map, std::vector<Statement>& body);

  // blocks
  std::set<Expr> opened_;  // reduce loops around the current block
  void block(const itgraph::Block& b, itgraph::TensorMap map, std::vector<Statement>& body);
  void items(const itgraph::Block& b, const itgraph::TensorMap& map, std::vector<Statement>& body);
  // The loop of a reduce block in up to three parts, as its masks say: partly masked, unmasked, partly masked tiles.
  // False: nothing masks it.
  bool masked_loop(const itgraph::Block& b, const itgraph::TensorMap& map, std::vector<Statement>& body);
  Assumptions known_;  // comparisons that hold in the current part
  Lengths lengths_{[this](ItValue v) { return it_.value(v).role == Role::input; }};
  std::set<Expr> bound_lengths_;  // whose values the statements around have read
  // Whether the task at hand knows all integers in memory that an expression is made of.
  bool knows_lengths(Expr e, const itgraph::TensorMap& map) const;
  // The statements, after reading the integers that these expressions need.
  std::vector<Statement> with_lengths(std::vector<Statement> body, const std::set<Expr>& lengths,
                                      const itgraph::TensorMap& map);
  // The parts of a masked loop use the same scratch: the n-th buffer that a compute asks for is always the same one.
  const Compute* current_ = nullptr;
  int asked_ = 0;
  std::map<std::pair<const Compute*, int>, BufferId> scratch_of_;
  const itgraph::Program& it_;
  const Machine& machine_;
  const PlaceOptions options_;
  sym::Pool& syms_;
  std::set<ItValue> visible_;
  tile::Program out_;
  std::map<ItValue, BufferId> memory_;
  std::map<ItValue, Scratch> scratch_;
  std::set<ItValue> constants_;  // values made by kernels that run once
  std::set<ItValue> made_;       // by the current kernel
  std::map<ItValue, Expr> last_index_;
  std::set<ItValue> exact_, narrow_;
  std::map<std::string, BufferId> packed_;
  std::vector<tile::Kernel> packing_;
  std::set<std::string> names_, kernel_names_;
};

}  // namespace cleave::schedule
