// Buffers whose rows lie in pairs: how they are filled, and the products that read them, which the matrix unit does in
// blocks of 32 x 32.
#include "tile/pairs.hpp"

#include <algorithm>
#include <array>

#include "lower/kernel.hpp"

namespace cleave::lower {

namespace {

using namespace tile;
using vec::Elem;

constexpr int64_t kElement = 2, kPair = 4;  // bytes
constexpr int kLanes = 16;                  // pairs in a vector

// One panel: the last row of an odd number has zeros for a partner, and so have columns that there are not.
struct PairCopier {
  Kernel& k;
  const PairCopy& copy;
  Value target = {};  // the panel's first pair
  int64_t panel = 0;
  Value depth = {}, columns = {};           // how many
  Expr source = {}, row = {}, column = {};  // an element's place, and the symbols it hangs on

  Builder& b() { return k.b; }
  Value from(Value i, Value j) {
    k.values[row] = i;
    k.values[column] = j;
    return k.element(copy.load->buffer, source);
  }
  Value row_of_pairs(Value p) { return b().ptr_add(target, b().mul(p, b().i64(kPair * panel))); }
  Value pairs() { return b().ceil_div(depth, 2); }

  // Rows are contiguous: two of them are interleaved.
  void from_rows() {
    const int lanes = static_cast<int>(panel);
    std::vector<int32_t> interleaved;
    for (int c = 0; c < lanes; ++c) interleaved.push_back(c), interleaved.push_back(c + lanes);
    b().for_each(b().i64(0), pairs(), b().i64(1), [&](Value p) {
      const Value even = b().mul(p, b().i64(2)), odd = b().add(even, b().i64(1));
      const Value there = b().lt(odd, depth);
      const Value x = b().load(from(even, b().i64(0)), DType::u16, lanes, columns);
      // (The row before stands in for one that there is not; none of it is read.)
      const Value y = b().load(from(b().select(there, odd, even), b().i64(0)), DType::u16, lanes,
                               b().select(there, columns, b().i64(0)));
      b().store(b().shuffle(x, y, interleaved), row_of_pairs(p), DType::u16);
    });
  }

  // Columns are contiguous: blocks of 16 x 16 pairs are turned round.
  void from_columns() {
    const Value whole = b().floordiv(depth, b().i64(2)), step = b().i64(kLanes);
    b().for_each(b().i64(0), b().i64(panel), step, [&](Value c) {
      b().for_each(b().i64(0), whole, step, [&](Value p) { turned(c, p, whole); });
      // What has no partner.
      b().if_then(b().lt(b().mul(whole, b().i64(2)), depth), [&] {
        const Value last = b().mul(whole, b().i64(2));
        b().for_each(b().i64(0), b().min(step, b().sub(columns, c)), b().i64(1), [&](Value lane) {
          const Value at = b().add(c, lane);
          const Value x = b().cast(b().load(from(last, at), DType::u16), Elem::u32);
          b().store(x, b().ptr_add(row_of_pairs(whole), b().mul(at, b().i64(kPair))), DType::u32);
        });
      });
    });
  }
  void turned(Value c, Value p, Value whole) {
    const Value left = b().sub(whole, p), zero = b().i64(0);
    std::vector<Value> v;
    for (int lane = 0; lane < kLanes; ++lane) {
      const Value at = b().add(c, b().i64(lane)), there = b().lt(at, columns);
      v.push_back(b().load(from(b().mul(p, b().i64(2)), b().select(there, at, zero)), DType::u32, kLanes,
                           b().select(there, left, zero)));
    }
    exchange(b(), v);
    for (int lane = 0; lane < kLanes; ++lane) {
      const Value row_at = b().add(p, b().i64(lane));
      b().store(v[static_cast<size_t>(lane)], b().ptr_add(row_of_pairs(row_at), b().mul(c, b().i64(kPair))), DType::u32,
                b().select(b().lt(row_at, whole), b().i64(kLanes), zero));
    }
  }

  // Element by element.
  void from_anywhere() {
    b().for_each(b().i64(0), pairs(), b().i64(1), [&](Value p) {
      b().for_each(b().i64(0), columns, b().i64(1), [&](Value c) {
        const Value even = b().mul(p, b().i64(2)), odd = b().add(even, b().i64(1));
        const Value there = b().lt(odd, depth);
        const Value to = b().ptr_add(row_of_pairs(p), b().mul(c, b().i64(kPair)));
        b().store(b().load(from(even, c), DType::u16), to, DType::u16);
        const Value x = b().load(from(b().select(there, odd, even), c), DType::u16);
        b().store(b().select(there, x, b().integer({Elem::u16, 1}, 0)), b().ptr_add(to, kElement), DType::u16);
      });
    });
  }
};

class PairProduct {
 public:
  PairProduct(Kernel& kernel, const Matmul& matmul) : k_(kernel), b_(kernel.b), m_(matmul) {}

  void run() {
    rows_ = k_.in(m_.m), columns_ = k_.in(m_.n), depth_ = k_.in(m_.k);
    if (k_.pool.bounds(rows_).hi <= 0 || k_.pool.bounds(columns_).hi <= 0) return;
    panel_ = k_.layout(m_.b.buffer).panel;
    a_stride_ = stride(m_.a), c_stride_ = stride(m_.c);
    a_ = first(m_.a), b0_ = first(m_.b), c_ = first(m_.c);
    if (m_.init == Matmul::Init::scaled) rescale();
    if (k_.pool.divides(2, depth_) != sym::Proof::yes) complete();
    pieces(columns_, panel_, [&](Value j, Value count, int tiles) {
      pieces(rows_, 2 * vec::kMatrixTile,
             [&](Value i, Value height, int row_tiles) { block(i, j, height, count, row_tiles, tiles); });
    });
  }

 private:
  Value stride(const TileRef& t) {
    return b_.mul(k_.emit(k_.layout(t.buffer).strides[static_cast<size_t>(t.rows)]),
                  b_.i64(byte_size(k_.buffer(t.buffer).dtype)));
  }
  Value first(const TileRef& t) {
    std::vector<Expr> at;
    for (const Expr e : t.at) at.push_back(k_.in(e));
    return k_.element(t.buffer, k_.offset(t.buffer, at));
  }

  // C[r, :] * scale[r].
  void rescale() {
    std::vector<Expr> at;
    for (const Expr e : m_.scale_at) at.push_back(k_.in(e));
    const Value scale = k_.element(m_.scale, k_.offset(m_.scale, at));
    const int lanes = std::max(1, k_.machine.f32_lanes());
    const Value all = k_.emit(columns_);
    b_.for_each(b_.i64(0), k_.emit(rows_), b_.i64(1), [&](Value r) {
      const Value by = b_.splat(b_.load(b_.element(scale, r, DType::f32), DType::f32), lanes);
      b_.for_each(b_.i64(0), all, b_.i64(lanes), [&](Value j) {
        const Value place = b_.ptr_add(b_.ptr_add(c_, b_.mul(r, c_stride_)), b_.mul(j, b_.i64(4)));
        const Value left = b_.sub(all, j);
        b_.store(b_.mul(b_.load(place, DType::f32, lanes, left), by), place, DType::f32, left);
      });
    });
  }

  // An odd depth: what stands beside the last element of a row of A, in scratch, is made 0.
  void complete() {
    const Value depth = k_.emit(depth_);
    b_.if_then(b_.eq(b_.mod(depth, b_.i64(2)), b_.i64(1)), [&] {
      b_.for_each(b_.i64(0), k_.emit(rows_), b_.i64(1), [&](Value r) {
        const Value row = b_.ptr_add(a_, b_.mul(r, a_stride_));
        b_.store(b_.real({Elem::f32, 1}, 0), b_.ptr_add(row, b_.mul(depth, b_.i64(kElement))), DType::bf16);
      });
    });
  }

  // Pieces of `width` elements, of one or two tiles, and what is left.
  template <class F>
  void pieces(Expr all_of, int64_t width, F body) {
    const int tiles = static_cast<int>(width / vec::kMatrixTile);
    const Value all = k_.emit(all_of), step = b_.i64(width);
    const Value full = b_.mul(b_.floordiv(b_.max(all, b_.i64(0)), step), step);
    b_.for_each(b_.i64(0), full, step, [&](Value i) { body(i, step, tiles); });
    const Value rest = b_.sub(all, full);
    if (tiles > 1) b_.if_then(b_.gt(rest, b_.i64(vec::kMatrixTile)), [&] { body(full, rest, 2); });
    const Value few = b_.le(rest, b_.i64(vec::kMatrixTile));
    b_.if_then(b_.apply(Fn::logical_and, {b_.gt(rest, b_.i64(0)), few}), [&] { body(full, rest, 1); });
  }

  void block(Value i, Value j, Value height, Value width, int row_tiles, int column_tiles) {
    const Value panel = b_.floordiv(j, b_.i64(panel_)), within = b_.sub(j, b_.mul(panel, b_.i64(panel_)));
    const Value pairs = b_.ceil_div(k_.emit(depth_), 2);
    const Value panel_bytes = k_.emit(k_.pool.mul(k_.layout(m_.b.buffer).panel_stride, kElement));
    using vec::MatrixOperand;
    std::array<Value, 9> x;
    const auto set = [&](MatrixOperand o, Value v) { x[static_cast<size_t>(o)] = v; };
    set(MatrixOperand::c, b_.ptr_add(b_.ptr_add(c_, b_.mul(i, c_stride_)), b_.mul(j, b_.i64(4))));
    set(MatrixOperand::c_stride, c_stride_);
    set(MatrixOperand::a, b_.ptr_add(a_, b_.mul(i, a_stride_)));
    set(MatrixOperand::a_stride, a_stride_);
    set(MatrixOperand::b, b_.ptr_add(b_.ptr_add(b0_, b_.mul(panel, panel_bytes)), b_.mul(within, b_.i64(kPair))));
    set(MatrixOperand::b_stride, b_.i64(kPair * panel_));
    set(MatrixOperand::rows, height);
    set(MatrixOperand::columns, width);
    set(MatrixOperand::pairs, pairs);
    b_.matrix_bf16(x, row_tiles, column_tiles, m_.init != Matmul::Init::zero);
  }

  Kernel& k_;
  Builder& b_;
  const Matmul& m_;
  Expr rows_, columns_, depth_;
  int64_t panel_ = 0;
  Value a_, b0_, c_, a_stride_, c_stride_;
};

}  // namespace

void lower_pair_copy(Kernel& k, const PairCopy& copy, const Nest& nest) {
  const auto renamed = k.renamed;
  PairCopier c{k, copy};
  const Expr depth = k.in(copy.depth.extent), columns = k.in(copy.columns.extent);
  c.row = k.counter(depth), c.column = k.counter(columns);
  k.renamed[copy.depth.symbol] = c.row;
  k.renamed[copy.columns.symbol] = c.column;
  const Write& store = nest.stores[0];
  c.panel = k.layout(store.buffer).panel;
  std::vector<Expr> at, to;
  for (const Index& i : copy.load->at) at.push_back(k.in(i.affine));
  c.source = k.offset(copy.load->buffer, at);
  const std::unordered_map<Expr, Expr> origin = {{c.row, k.pool.constant(0)}, {c.column, k.pool.constant(0)}};
  for (const Expr e : store.at) to.push_back(k.pool.substitute(k.in(e), origin));
  c.target = k.element(store.buffer, k.offset(store.buffer, to));
  c.depth = k.emit(depth), c.columns = k.emit(columns);
  const auto steps_by_one = [&](Expr symbol) {
    const auto s = k.pool.stride(c.source, symbol);
    return s && k.pool.is(*s, 1);
  };
  if (steps_by_one(c.column))
    c.from_rows();
  else if (steps_by_one(c.row) && c.panel % kLanes == 0)
    c.from_columns();
  else
    c.from_anywhere();
  k.values.erase(c.row);
  k.values.erase(c.column);
  k.renamed = renamed;
}

void lower_pair_product(Kernel& k, const Matmul& matmul) { PairProduct(k, matmul).run(); }

}  // namespace cleave::lower
