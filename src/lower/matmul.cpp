// Register-blocked products: which tiles cover m x n, in which order, with which remainders.
//
// Column blocks are the outer loop and row blocks the inner one, so that the block of B (k x columns) stays in L1 while
// the rows of A pass by; when k is so long that it would not, k is cut into chunks first and C carries the sums from
// chunk to chunk (exact, as C has the type of the sums then). Few rows of A and panels of B from memory: the chunks
// are the inner loop, so that each panel is read from its first byte to its last. Sums always run over ascending k.
#include <algorithm>

#include "lower/kernel.hpp"
#include "machine/register_tile.hpp"
#include "vec/microkernel.hpp"

namespace cleave::lower {

namespace {

using namespace tile;
using vec::MatmulTile;
using vec::TileShape;

class MatmulEmitter {
 public:
  MatmulEmitter(Kernel& kernel, const Matmul& matmul) : k_(kernel), b_(kernel.b), m_(matmul) {}

  void run() {
    const DType a = k_.buffer(m_.a.buffer).dtype, b = k_.buffer(m_.b.buffer).dtype, c = k_.buffer(m_.c.buffer).dtype;
    sum_ = a == DType::f64 || b == DType::f64 ? DType::f64 : DType::f32;
    lanes_ = std::max<int>(1, k_.machine.vector_bytes / static_cast<int>(byte_size(sum_)));
    rows_ = k_.in(m_.m), columns_ = k_.in(m_.n), depth_ = k_.in(m_.k);
    most_rows_ = std::clamp<int64_t>(k_.pool.bounds(rows_).hi, 0, 1 << 20);
    most_columns_ = std::clamp<int64_t>(k_.pool.bounds(columns_).hi, 0, 1 << 20);
    if (most_rows_ == 0 || most_columns_ == 0) return;
    panel_ = k_.layout(m_.b.buffer).panel;
    while (panel_ % lanes_ != 0) lanes_ /= 2;  // vectors do not straddle panels

    tile_.lanes = lanes_;
    tile_.a_dtype = a, tile_.b_dtype = b, tile_.c_dtype = c;
    tile_.a_row_stride = stride(m_.a, m_.a.rows), tile_.a_k_stride = stride(m_.a, m_.a.columns);
    tile_.b_row_stride = stride(m_.b, m_.b.rows);
    tile_.c_row_stride = stride(m_.c, m_.c.rows);
    a_ = first(m_.a), c_ = first(m_.c), b0_ = first(m_.b);
    if (m_.init == Matmul::Init::scaled) {
      std::vector<Expr> at;
      for (const Expr e : m_.scale_at) at.push_back(k_.in(e));
      scale_ = k_.element(m_.scale, k_.offset(m_.scale, at));
    }
    shape_ = choose(columns_per_panel());
    blocks();
  }

 private:
  Value stride(const TileRef& t, int axis) { return k_.emit(k_.layout(t.buffer).strides[static_cast<size_t>(axis)]); }
  Value first(const TileRef& t) {
    std::vector<Expr> at;
    for (const Expr e : t.at) at.push_back(k_.in(e));
    return k_.element(t.buffer, k_.offset(t.buffer, at));
  }
  int64_t columns_per_panel() const { return panel_ > 0 ? std::min(panel_, most_columns_) : most_columns_; }

  bool tails() const {
    const auto n = k_.pool.as_constant(columns_);
    return panel_ == 0 && (!n || *n % lanes_ != 0);
  }
  // The cheapest tile for `columns` columns side by side.
  TileShape choose(int64_t columns) const {
    const auto depth = static_cast<double>(std::clamp<int64_t>(k_.pool.bounds(depth_).hi, 1, 256));
    const RegisterTile t = choose_tile(k_.machine, {most_rows_, columns, depth, lanes_, panel_, tails()});
    return {t.rows, t.vectors};
  }

  // Chunks of k such that a block of B stays in L1 from one row block to the next.
  void blocks() {
    const int64_t row_bytes = int64_t{shape_.vectors} * lanes_ * byte_size(tile_.b_dtype);
    const int64_t fitting = std::max<int64_t>(64, k_.machine.l1_bytes / 2 / row_bytes / 8 * 8);
    const bool few = streams() && most_rows_ <= 32, one_block = most_rows_ <= shape_.rows;
    along_k_ = few && panel_ == int64_t{shape_.vectors} * lanes_;
    // Small pieces of a panel: the fetching of the next one keeps pace evenly.
    chunk_ = along_k_ ? std::max<int64_t>(16, (one_block ? 16384 : 4096) / row_bytes) : few ? 64 : fitting;
    if (k_.pool.bounds(depth_).hi < 2 * chunk_ || (one_block && !along_k_) || tile_.c_dtype != sum_)
      chunk_ = 0, along_k_ = false;
    if (along_k_) return columns();
    chunks([&] { columns(); });
  }

  // What `body` makes of each chunk of k.
  template <class F>
  void chunks(F body) {
    const auto kind = m_.init == Matmul::Init::zero   ? MatmulTile::Init::zero
                      : m_.init == Matmul::Init::load ? MatmulTile::Init::load
                                                      : MatmulTile::Init::load_scaled;
    auto chunk = [&](Value k0, Value depth, MatmulTile::Init init) {
      k0_ = k0, tile_.k = depth, tile_.init = init;
      body();
    };
    const Value all = k_.emit(depth_);
    if (chunk_ == 0) return chunk(b_.i64(0), all, kind);
    const Value step = b_.i64(chunk_);
    chunk(b_.i64(0), b_.min(all, step), kind);
    b_.for_each(step, all, step, [&](Value k0) { chunk(k0, b_.min(b_.sub(all, k0), step), MatmulTile::Init::load); });
  }

  void rows(Value j, TileShape shape, Value count) {
    if (along_k_) return chunks([&] { rows_of_chunk(j, shape, count); });
    rows_of_chunk(j, shape, count);
  }

  void columns() {
    const auto n = k_.pool.as_constant(columns_);
    const int64_t width = int64_t{shape_.vectors} * lanes_;
    if (n) {
      const int64_t full = *n / width * width;
      b_.for_each(b_.i64(0), b_.i64(full), b_.i64(width), [&](Value j) { rows(j, shape_, {}); });
      if (full == *n) return;
      // What is left gets a narrower tile.
      const RegisterTile tail =
          choose_tail(k_.machine, most_rows_, static_cast<int>((*n - full + lanes_ - 1) / lanes_));
      const TileShape rest{tail.rows, tail.vectors};
      const bool exact = *n - full == int64_t{rest.vectors} * lanes_;
      rows(b_.i64(full), rest, exact ? Value{} : b_.i64(*n - full));
      return;
    }
    const Value all = k_.emit(columns_), step = b_.i64(width);
    const Value full = b_.max(b_.mul(b_.div(all, step), step), b_.i64(0));
    b_.for_each(b_.i64(0), full, step, [&](Value j) { rows(j, shape_, {}); });
    b_.if_then(b_.lt(full, all), [&] { rows(full, shape_, b_.sub(all, full)); });
  }

  // B comes from memory or from a cache that others share.
  bool streams() const {
    return k_.pool.typical(k_.layout(m_.b.buffer).bytes) > k_.machine.l2_bytes &&
           k_.buffer(m_.b.buffer).place != Place::scratch;
  }
  // How many bytes behind the first element of B the columns from j on begin, at depth k0.
  Value b_at(Value j, Value k0) {
    const int64_t bytes = byte_size(tile_.b_dtype);
    Value p;
    if (panel_ > 0) {
      const Value panel = b_.div(j, b_.i64(panel_)), in_panel = b_.sub(j, b_.mul(panel, b_.i64(panel_)));
      p = b_.add(b_.mul(panel, k_.emit(k_.pool.mul(k_.layout(m_.b.buffer).panel_stride, bytes))),
                 b_.mul(in_panel, b_.i64(bytes)));
    } else {
      p = b_.mul(j, b_.i64(bytes));
    }
    return b_.add(p, b_.mul(b_.mul(k0, tile_.b_row_stride), b_.i64(bytes)));
  }

  // Weights that come from memory, past few rows: while the row blocks pass over this block of B, they fetch the next
  // one into L2, each its share of the lines of a row. The next block is that of the next columns, or after the last
  // columns the first one of the next chunk of k; along k the other way round.
  void stream(MatmulTile& t, Value i, Value j, Value width) {
    const Layout& l = k_.layout(m_.b.buffer);
    const int64_t row_bytes =
        k_.pool.as_constant(l.strides[static_cast<size_t>(m_.b.rows)]).value_or(0) * byte_size(t.b_dtype);
    if (most_rows_ < 2 || most_rows_ > 256 || !streams() || row_bytes <= 0) return;
    const int64_t lines = std::max<int64_t>(1, int64_t{t.vectors} * lanes_ * byte_size(t.b_dtype) / 64);
    const int64_t blocks = std::max<int64_t>(1, (most_rows_ + shape_.rows - 1) / shape_.rows);
    const int64_t share = std::max<int64_t>(1, (lines + blocks - 1) / blocks);
    const Value after = b_.add(j, width), all = k_.emit(columns_);
    const Value below = b_.add(k0_, t.k);
    Value next = b_.select(b_.lt(after, all), b_at(after, along_k_ ? b_.i64(0) : k0_), b_at(b_.i64(0), below));
    if (along_k_) next = b_.select(b_.lt(below, k_.emit(depth_)), b_at(j, below), next);
    const Value q =
        b_.min(b_.mul(b_.div(i, b_.i64(shape_.rows)), b_.i64(share)), b_.i64(std::max<int64_t>(0, lines - share)));
    // Of a block without gaps, a piece without gaps.
    const bool dense = row_bytes == 64 * lines;
    const Value before = dense ? b_.mul(q, b_.mul(t.k, b_.i64(64))) : b_.mul(q, b_.i64(64));
    t.prefetch_next = b_.ptr_add(b_.ptr_add(b0_, next), before);
    t.prefetch_next_bytes = static_cast<int>(dense ? 64 * share : std::max<int64_t>(64, row_bytes));
    t.prefetch_next_lines = static_cast<int>(share);
  }

  // All row blocks of the columns from j on, for one chunk; `count`: how many columns there are, if not all.
  void rows_of_chunk(Value j, TileShape shape, Value count) {
    MatmulTile t = tile_;
    t.vectors = shape.vectors;
    t.columns = count;
    t.b_padded = panel_ > 0;
    t.overlap = k_.machine.isa == Isa::neon || k_.machine.isa == Isa::generic;
    t.b = b_.ptr_add(b0_, b_at(j, k0_));
    const Value a = b_.ptr_add(a_, b_.mul(b_.mul(k0_, t.a_k_stride), b_.i64(byte_size(t.a_dtype))));
    const Value c = b_.ptr_add(c_, b_.mul(j, b_.i64(byte_size(t.c_dtype))));
    auto block = [&](Value i, int height) {
      MatmulTile one = t;
      one.rows = height;
      one.a = b_.ptr_add(a, b_.mul(b_.mul(i, t.a_row_stride), b_.i64(byte_size(t.a_dtype))));
      one.c = b_.ptr_add(c, b_.mul(b_.mul(i, t.c_row_stride), b_.i64(byte_size(t.c_dtype))));
      if (scale_.valid()) one.scale = b_.element(scale_, i, sum_);
      stream(one, i, j, b_.i64(int64_t{shape.vectors} * lanes_));
      vec::emit_matmul_tile(b_, one);
    };
    const auto m = k_.pool.as_constant(rows_);
    const Value height = b_.i64(shape.rows);
    if (m) {
      const int64_t full = *m / shape.rows * shape.rows;
      b_.for_each(b_.i64(0), b_.i64(full), height, [&](Value i) { block(i, shape.rows); });
      if (full < *m) block(b_.i64(full), static_cast<int>(*m - full));
      return;
    }
    const Value all = k_.emit(rows_);
    Value done = b_.max(b_.mul(b_.div(all, height), height), b_.i64(0));
    b_.for_each(b_.i64(0), done, height, [&](Value i) { block(i, shape.rows); });
    int part = 1;
    while (2 * part < shape.rows) part *= 2;
    for (; part >= 1 && shape.rows > 1; part /= 2) {
      const Value fits_one = b_.le(b_.add(done, b_.i64(part)), all);
      const Value from = done;
      done = b_.if_else(
          fits_one,
          [&] {
            block(from, part);
            return std::vector<Value>{b_.add(from, b_.i64(part))};
          },
          [&] { return std::vector<Value>{from}; })[0];
    }
  }

  Kernel& k_;
  Builder& b_;
  const Matmul& m_;
  DType sum_ = DType::f32;
  int lanes_ = 1;
  Expr rows_, columns_, depth_;
  int64_t most_rows_ = 0, most_columns_ = 0, panel_ = 0;
  int64_t chunk_ = 0;     // rows of B in a chunk; 0: all
  bool along_k_ = false;  // chunks of k are the inner loop, columns the outer one
  Value a_, b0_, c_, scale_, k0_;
  MatmulTile tile_;
  TileShape shape_{1, 1};
};

}  // namespace

void lower_matmul(Kernel& k, const tile::Matmul& matmul) {
  if (k.buffer(matmul.b.buffer).pairs) return lower_pair_product(k, matmul);
  const size_t rank = k.buffer(matmul.b.buffer).shape.size();
  if (matmul.b.columns + 1 != static_cast<int>(rank)) return lower_dot(k, matmul);
  MatmulEmitter(k, matmul).run();
}

}  // namespace cleave::lower
