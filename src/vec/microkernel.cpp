#include "vec/microkernel.hpp"

namespace cleave::vec {

namespace {

// Pointers to the rows of a strided matrix. With a stride known only at run time, rows share a pointer by threes: x86
// and arm64 address base + stride * {0, 1, 2}, and there are not enough registers for a pointer a row.
struct RowPointers {
  Builder& b;
  Value stride_bytes;
  int rows;
  int group;

  RowPointers(Builder& builder, Value stride, int row_count)
      : b(builder), stride_bytes(stride), rows(row_count), group(b.known(stride) ? row_count : 3) {}
  std::vector<Value> bases(Value first) const {
    std::vector<Value> out;
    for (int r = 0; r < rows; r += group) out.push_back(b.ptr_add(first, b.mul(stride_bytes, b.i64(r))));
    return out;
  }
  Value row(std::span<const Value> bases, int r, int64_t displacement) const {
    const Value base = bases[static_cast<size_t>(r / group)];
    return b.ptr_add(b.ptr_add(base, b.mul(stride_bytes, b.i64(r % group))), displacement);
  }
};

class Emitter {
 public:
  Emitter(Builder& builder, const MatmulTile& tile) : b_(builder), t_(tile) {
    CHECK(t_.rows >= 1 && t_.vectors >= 1 && t_.lanes >= 1 && t_.unroll >= 1, "an empty tile");
    const bool wide = t_.a_dtype == DType::f64 || t_.b_dtype == DType::f64;
    type_ = {wide ? Elem::f64 : Elem::f32, static_cast<uint16_t>(t_.lanes)};
    a_bytes_ = byte_size(t_.a_dtype);
    b_bytes_ = byte_size(t_.b_dtype);
    c_bytes_ = byte_size(t_.c_dtype);
    a_k_stride_ = b_.mul(t_.a_k_stride.valid() ? t_.a_k_stride : b_.i64(1), b_.i64(a_bytes_));
    a_row_stride_ = b_.mul(t_.a_row_stride, b_.i64(a_bytes_));
    b_row_stride_ = b_.mul(t_.b_row_stride, b_.i64(b_bytes_));
    const bool overlap = t_.overlap && t_.columns.valid();
    for (int v = 0; v < t_.vectors; ++v) {
      const Value first = b_.i64(v * t_.lanes);
      firsts_.push_back(overlap ? b_.min(first, b_.sub(t_.columns, b_.i64(t_.lanes))) : first);
      counts_.push_back(t_.columns.valid() && !overlap ? b_.sub(t_.columns, first) : Value{});
    }
  }

  std::vector<Value> emit() {
    std::vector<Value> state = initial();
    const size_t sums = state.size();
    const RowPointers a_rows(b_, a_row_stride_, t_.rows);
    for (const Value p : a_rows.bases(t_.a)) state.push_back(p);
    const size_t a_end = state.size();
    // Vectors at columns that are not known have a pointer each.
    const bool apart = !b_.known(firsts_.back());
    for (int v = 0; v < (apart ? t_.vectors : 1); ++v)
      state.push_back(apart ? b_.ptr_add(t_.b, b_.mul(firsts_[static_cast<size_t>(v)], b_.i64(b_bytes_))) : t_.b);
    const size_t b_end = state.size();
    if (t_.prefetch_next.valid()) state.push_back(t_.prefetch_next);

    auto body = [&](int unroll) {
      return [&, unroll](Value, std::span<const Value> carried) {
        std::vector<Value> next(carried.begin(), carried.end());
        const std::span<const Value> a(carried.data() + sums, a_end - sums), b(carried.data() + a_end, b_end - a_end);
        for (int u = 0; u < unroll; ++u) step(next, a, a_rows, b, u);
        for (size_t i = sums; i < a_end; ++i) next[i] = b_.ptr_add(carried[i], b_.mul(a_k_stride_, b_.i64(unroll)));
        for (size_t i = a_end; i < b_end; ++i) next[i] = b_.ptr_add(carried[i], b_.mul(b_row_stride_, b_.i64(unroll)));
        if (t_.prefetch_next.valid()) {
          for (int u = 0; u < unroll; ++u)
            for (int line = 0; line < t_.prefetch_next_lines; ++line)
              b_.prefetch(b_.ptr_add(carried.back(), u * t_.prefetch_next_bytes + 64 * line), 2);
          next.back() = b_.ptr_add(carried.back(), unroll * t_.prefetch_next_bytes);
        }
        return next;
      };
    };
    const Value unroll = b_.i64(t_.unroll);
    const Value whole = b_.mul(b_.floordiv(b_.max(t_.k, b_.i64(0)), unroll), unroll);
    state = b_.for_loop(b_.i64(0), whole, unroll, state, body(t_.unroll));
    state = b_.for_loop(whole, t_.k, b_.i64(1), state, body(1));
    return finish({state.begin(), state.begin() + static_cast<std::ptrdiff_t>(sums)});
  }

 private:
  // One k: loads of B, then row by row a broadcast of A and its multiply-adds.
  void step(std::vector<Value>& sums, std::span<const Value> a, const RowPointers& rows, std::span<const Value> b,
            int u) {
    std::vector<Value> columns;
    for (size_t v = 0; v < firsts_.size(); ++v) {
      const Value row = b_.ptr_add(b[std::min(v, b.size() - 1)], b_.mul(b_row_stride_, b_.i64(u)));
      const Value p = b.size() > 1 ? row : b_.ptr_add(row, b_.mul(firsts_[v], b_.i64(b_bytes_)));
      const Value x = b_.load(p, t_.b_dtype, t_.lanes, t_.b_padded ? Value{} : counts_[v]);
      columns.push_back(b_.cast(x, type_.elem));
    }
    if (t_.prefetch_b_rows > 0) {
      const Value ahead = b_.ptr_add(b[0], b_.mul(b_row_stride_, b_.i64(u + t_.prefetch_b_rows)));
      for (int64_t byte = 0; byte < t_.vectors * t_.lanes * b_bytes_; byte += 64) b_.prefetch(b_.ptr_add(ahead, byte));
    }
    const Value k = b_.mul(a_k_stride_, b_.i64(u));
    for (int r = 0; r < t_.rows; ++r) {
      const auto displacement = b_.known(k);
      const Value p = displacement ? rows.row(a, r, *displacement) : b_.ptr_add(rows.row(a, r, 0), k);
      const Value x = b_.splat(b_.cast(b_.load(p, t_.a_dtype), type_.elem), t_.lanes);
      for (int v = 0; v < t_.vectors; ++v) {
        Value& sum = sums[index(r, v)];
        sum = b_.fma(x, columns[static_cast<size_t>(v)], sum);
      }
    }
  }

  size_t index(int r, int v) const { return static_cast<size_t>(r * t_.vectors + v); }
  Value c_pointer(int r, int v) {
    const Value row = b_.mul(b_.mul(t_.c_row_stride, b_.i64(c_bytes_)), b_.i64(r));
    return b_.ptr_add(b_.ptr_add(t_.c, row), b_.mul(firsts_[static_cast<size_t>(v)], b_.i64(c_bytes_)));
  }

  std::vector<Value> initial() {
    std::vector<Value> sums;
    for (int r = 0; r < t_.rows; ++r) {
      Value scale;
      if (t_.init == MatmulTile::Init::load_scaled) {
        const DType dtype = dtype_of(type_.elem);
        scale = b_.splat(b_.load(b_.ptr_add(t_.scale, r * byte_size(dtype)), dtype), t_.lanes);
      }
      for (int v = 0; v < t_.vectors; ++v) {
        Value sum = b_.real(type_, 0);
        if (t_.init != MatmulTile::Init::zero)
          sum = b_.cast(b_.load(c_pointer(r, v), t_.c_dtype, t_.lanes, counts_[static_cast<size_t>(v)]), type_.elem);
        if (scale.valid()) sum = b_.mul(sum, scale);
        sums.push_back(sum);
      }
    }
    return sums;
  }

  std::vector<Value> finish(std::vector<Value> sums) {
    for (int r = 0; r < t_.rows; ++r) {
      const auto first = sums.begin() + static_cast<std::ptrdiff_t>(index(r, 0));
      if (t_.epilogue) {
        const std::vector<Value> row = t_.epilogue(r, {first, first + t_.vectors});
        CHECK(row.size() == static_cast<size_t>(t_.vectors), "the epilogue returns {} vectors", row.size());
        std::copy(row.begin(), row.end(), first);
      }
      if (!t_.store) continue;
      for (int v = 0; v < t_.vectors; ++v)
        b_.store(b_.cast(sums[index(r, v)], elem_of(t_.c_dtype)), c_pointer(r, v), t_.c_dtype,
                 counts_[static_cast<size_t>(v)]);
    }
    return sums;
  }

  Builder& b_;
  const MatmulTile& t_;
  Type type_;
  int64_t a_bytes_, b_bytes_, c_bytes_;
  Value a_k_stride_, a_row_stride_, b_row_stride_;  // in bytes
  std::vector<Value> firsts_;                       // the first column of each vector
  std::vector<Value> counts_;                       // and its valid lanes, when not all are
};

std::vector<Value> emit_overlapping(Builder& b, const MatmulTile& tile) {
  CHECK(tile.store && !tile.epilogue, "a tile whose vectors overlap only stores");
  b.if_else(
      b.le(b.i64(tile.lanes), tile.columns),
      [&] {
        Emitter(b, tile).emit();
        return std::vector<Value>{};
      },
      [&] {
        MatmulTile narrow = tile;
        narrow.vectors = 1, narrow.overlap = false;
        narrow.unroll = 1;  // the loads of B branch: more of them would keep elements of A waiting in registers
        Emitter(b, narrow).emit();
        return std::vector<Value>{};
      });
  return {};
}

}  // namespace

std::vector<Value> emit_matmul_tile(Builder& b, const MatmulTile& tile) {
  return tile.overlap && tile.columns.valid() ? emit_overlapping(b, tile) : Emitter(b, tile).emit();
}

bool tile_fits(const Machine& m, TileShape s) {
  return s.rows * s.vectors + s.vectors + 1 <= m.vector_registers && s.rows * s.vectors >= m.fma_latency * m.fma_pipes;
}

std::vector<TileShape> good_tiles(const Machine& m) {
  std::vector<TileShape> out;
  for (const TileShape s : {TileShape{8, 3}, {12, 2}, {6, 4}, {6, 2}, {4, 3}, {5, 2}, {4, 2}})
    if (tile_fits(m, s)) out.push_back(s);
  return out;
}

}  // namespace cleave::vec
