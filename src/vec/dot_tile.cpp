#include "vec/dot_tile.hpp"

#include <bit>

namespace cleave::vec {

namespace {

// Adjacent units of `unit` lanes of x are added, then those of y, within blocks of `block` lanes: x0+x1, x2+x3, y0+y1,
// y2+y3. Inside 16 bytes, and with units of 16 bytes, each of the two shuffles is one instruction.
Value add_pairs(Builder& b, Value x, Value y, int unit, int block) {
  const int lanes = b.lanes(x);
  std::vector<int32_t> even, odd;
  for (int base = 0; base < lanes; base += block)
    for (const int source : {0, lanes})
      for (int u = 0; u < block / unit; u += 2)
        for (int i = 0; i < unit; ++i) {
          even.push_back(source + base + u * unit + i);
          odd.push_back(source + base + (u + 1) * unit + i);
        }
  return b.add(b.shuffle(x, y, even), b.shuffle(x, y, odd));
}

}  // namespace

Value lane_sums(Builder& b, std::vector<Value> v) {
  CHECK(!v.empty(), "no vectors");
  const int lanes = b.lanes(v[0]), count = static_cast<int>(v.size());
  if (lanes == 1) return v[0];
  CHECK(std::has_single_bit(static_cast<unsigned>(lanes)) && count <= lanes, "{} vectors of {} lanes", count, lanes);
  while (!std::has_single_bit(v.size())) v.push_back(v.back());
  const int in_block = std::min(lanes, b.type(v[0]).elem == Elem::f64 ? 2 : 4);
  auto level = [&](int unit, int block) {
    std::vector<Value> next;
    for (size_t i = 0; i < v.size(); i += 2)
      next.push_back(add_pairs(b, v[i], v[v.size() > 1 ? i + 1 : i], unit, block));
    v = std::move(next);
  };
  for (int n = 1; n < in_block; n *= 2) level(1, in_block);
  for (int n = in_block; n < lanes; n *= 2) level(in_block, lanes);
  return count == lanes ? v[0] : b.slice(v[0], 0, count);
}

void emit_dot_tile(Builder& b, const DotTile& t) {
  CHECK(t.rows >= 1 && t.columns >= 1 && t.rows * t.columns <= t.lanes, "a dot tile of {} x {}", t.rows, t.columns);
  const bool wide = t.a_dtype == DType::f64 || t.b_dtype == DType::f64;
  const Type type{wide ? Elem::f64 : Elem::f32, static_cast<uint16_t>(t.lanes)};
  const int64_t a_bytes = byte_size(t.a_dtype), b_bytes = byte_size(t.b_dtype), c_bytes = byte_size(t.c_dtype);
  std::vector<Value> a_rows, b_columns;
  for (int r = 0; r < t.rows; ++r) a_rows.push_back(b.ptr_add(t.a, b.mul(t.a_row_stride, b.i64(r * a_bytes))));
  for (int j = 0; j < t.columns; ++j) b_columns.push_back(b.ptr_add(t.b, b.mul(t.b_column_stride, b.i64(j * b_bytes))));

  // One vector of k; with a count, of its first lanes only.
  auto step = [&](std::vector<Value>& sums, Value at, int64_t vector, Value count) {
    const auto operand = [&](Value row, DType dtype, int64_t bytes) {
      const Value p = b.ptr_add(b.ptr_add(row, b.mul(at, b.i64(bytes))), vector * t.lanes * bytes);
      return std::pair(b.cast(b.load(p, dtype, t.lanes, count), type.elem), p);
    };
    std::vector<Value> columns;
    for (int j = 0; j < t.columns; ++j) {
      const auto [x, p] = operand(b_columns[static_cast<size_t>(j)], t.b_dtype, b_bytes);
      columns.push_back(x);
      if (t.prefetch_bytes > 0 && !count.valid() && vector * t.lanes * b_bytes % 64 == 0)
        for (int64_t line = 0; line < t.lanes * b_bytes; line += 64)
          b.prefetch(b.ptr_add(p, t.prefetch_bytes + line), 2);
    }
    for (int r = 0; r < t.rows; ++r) {
      const Value x = operand(a_rows[static_cast<size_t>(r)], t.a_dtype, a_bytes).first;
      for (int j = 0; j < t.columns; ++j) {
        Value& sum = sums[static_cast<size_t>(r * t.columns + j)];
        sum = b.fma(x, columns[static_cast<size_t>(j)], sum);
      }
    }
  };
  std::vector<Value> sums(static_cast<size_t>(t.rows * t.columns), b.real(type, 0));
  const Value lanes = b.i64(t.lanes), zero = b.i64(0), k = b.max(t.k, zero);
  const auto body = [&](int unroll) {
    return [&, unroll](Value at, std::span<const Value> carried) {
      std::vector<Value> next(carried.begin(), carried.end());
      for (int u = 0; u < unroll; ++u) step(next, at, u, {});
      return next;
    };
  };
  const Value chunk = b.i64(int64_t{t.unroll} * t.lanes);
  const Value chunks = b.mul(b.div(k, chunk), chunk), whole = b.mul(b.div(k, lanes), lanes);
  sums = b.for_loop(zero, chunks, chunk, sums, body(t.unroll));
  sums = b.for_loop(chunks, whole, lanes, sums, body(1));
  if (const auto known = b.known(k); !known || *known % t.lanes != 0)
    sums = b.if_else(
        b.lt(whole, k),
        [&] {
          std::vector<Value> next = sums;
          step(next, whole, 0, b.sub(k, whole));
          return next;
        },
        [&] { return sums; });

  const Value all = lane_sums(b, sums);
  const DType sum_dtype = wide ? DType::f64 : DType::f32;
  for (int r = 0; r < t.rows; ++r) {
    Value x = b.lanes(all) == t.columns ? all : b.slice(all, r * t.columns, t.columns);
    if (t.columns == 1 && b.lanes(all) > 1) x = b.extract(all, r);
    const Value p = b.ptr_add(t.c, b.mul(t.c_row_stride, b.i64(r * c_bytes)));
    if (t.init != DotTile::Init::zero) {
      Value before = b.cast(b.load(p, t.c_dtype, t.columns), type.elem);
      if (t.init == DotTile::Init::load_scaled)
        before = b.mul(before, b.load(b.ptr_add(t.scale, r * byte_size(sum_dtype)), sum_dtype));
      x = b.add(before, x);
    }
    b.store(b.cast(x, elem_of(t.c_dtype)), p, t.c_dtype);
  }
}

}  // namespace cleave::vec
