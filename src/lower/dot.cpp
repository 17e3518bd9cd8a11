// Products whose B has its depth along the last axis: no packing, lanes run along the sum (vec/dot_tile.hpp).
#include <algorithm>

#include "lower/kernel.hpp"
#include "vec/dot_tile.hpp"

namespace cleave::lower {

using namespace tile;
using vec::DotTile;

void lower_dot(Kernel& k, const Matmul& m) {
  Builder& b = k.b;
  const DType at = k.buffer(m.a.buffer).dtype, bt = k.buffer(m.b.buffer).dtype, ct = k.buffer(m.c.buffer).dtype;
  const DType sum = at == DType::f64 || bt == DType::f64 ? DType::f64 : DType::f32;
  const auto stride = [&](const TileRef& t, int axis) { return k.layout(t.buffer).strides[static_cast<size_t>(axis)]; };
  const auto first = [&](const TileRef& t) {
    std::vector<Expr> index;
    for (const Expr e : t.at) index.push_back(k.in(e));
    return k.element(t.buffer, k.offset(t.buffer, index));
  };
  const Expr rows = k.in(m.m), columns = k.in(m.n), depth = k.in(m.k);
  const int64_t most_rows = std::max<int64_t>(k.pool.bounds(rows).hi, 0);
  if (most_rows == 0) return;
  DotTile tile;
  tile.lanes = std::max<int>(1, k.machine.vector_bytes / static_cast<int>(byte_size(sum)));
  tile.a_dtype = at, tile.b_dtype = bt, tile.c_dtype = ct;
  tile.k = k.emit(depth);
  tile.a_row_stride = k.emit(stride(m.a, m.a.rows));
  tile.b_column_stride = k.emit(stride(m.b, m.b.columns));
  tile.c_row_stride = k.emit(stride(m.c, m.c.rows));
  tile.init = m.init == Matmul::Init::zero   ? DotTile::Init::zero
              : m.init == Matmul::Init::load ? DotTile::Init::load
                                             : DotTile::Init::load_scaled;
  const Value a = first(m.a), bp = first(m.b), c = first(m.c);
  Value scale;
  if (m.init == Matmul::Init::scaled) {
    std::vector<Expr> index;
    for (const Expr e : m.scale_at) index.push_back(k.in(e));
    scale = k.element(m.scale, k.offset(m.scale, index));
  }
  // Wide memory is read row by row of B; a few rows ahead is what the memory needs (into L2: L1 waits for too few
  // lines).
  const Layout& l = k.layout(m.b.buffer);
  const int64_t row_bytes = k.pool.as_constant(stride(m.b, m.b.columns)).value_or(0) * byte_size(bt);
  if (k.pool.typical(l.bytes) > k.machine.l2_bytes && k.buffer(m.b.buffer).place != Place::scratch && row_bytes > 0)
    tile.prefetch_bytes = std::clamp<int64_t>(8192 / row_bytes, 4, 64) * row_bytes;

  // As many columns at once as the accumulators allow: rows * columns fill the lanes of their sums.
  const auto shape = [&](int64_t r) {
    const int height = static_cast<int>(std::min({r, int64_t{4}, int64_t{tile.lanes}}));
    int width = 1;
    while (2 * width * height <= tile.lanes && 2 * width <= 8) width *= 2;
    return std::pair(height, width);
  };
  const auto block = [&](Value i, Value j, int height, int width) {
    DotTile t = tile;
    t.rows = height, t.columns = width;
    t.a = b.ptr_add(a, b.mul(b.mul(i, t.a_row_stride), b.i64(byte_size(at))));
    t.b = b.ptr_add(bp, b.mul(b.mul(j, t.b_column_stride), b.i64(byte_size(bt))));
    t.c = b.ptr_add(c, b.mul(b.add(b.mul(i, t.c_row_stride), j), b.i64(byte_size(ct))));
    if (scale.valid()) t.scale = b.element(scale, i, sum);
    vec::emit_dot_tile(b, t);
  };
  const Value all_rows = k.emit(rows), all_columns = k.emit(columns), one = b.i64(1);
  const auto [height, width] = shape(most_rows);
  const auto columns_from = [&](Value from, Value to, int w) {
    const Value h = b.i64(height), full = b.mul(b.div(b.max(all_rows, b.i64(0)), h), h);
    b.for_each(from, to, b.i64(w), [&](Value j) {
      b.for_each(b.i64(0), full, h, [&](Value i) { block(i, j, height, w); });
      if (const auto known = b.known(all_rows); known && *known % height > 0)
        block(full, j, static_cast<int>(*known % height), w);
      else if (!known)
        b.for_each(full, all_rows, one, [&](Value i) { block(i, j, 1, w); });
    });
  };
  const Value w = b.i64(width), whole = b.mul(b.div(b.max(all_columns, b.i64(0)), w), w);
  columns_from(b.i64(0), whole, width);
  columns_from(whole, all_columns, 1);
}

}  // namespace cleave::lower
