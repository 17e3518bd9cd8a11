// The register-tiled matrix product: C[rows x vectors*lanes] (+)= A[rows x k] * B[k x vectors*lanes].
//
// An outer product per k: `vectors` loads of B, `rows` broadcasts of A, rows * vectors multiply-adds into accumulators
// that live in registers. A is read row-major or packed (any strides), B as a packed panel or as a row-major matrix:
// only its row stride differs. Sums run over k in ascending order with one accumulator each, so the result does not
// depend on how k is unrolled. cpu.md 2.2 and 2.3 say which tiles are good: see good_tiles().
#pragma once

#include <functional>
#include <vector>

#include "machine/machine.hpp"
#include "vec/builder.hpp"

namespace cleave::vec {

struct MatmulTile {
  int rows = 6;     // MR
  int vectors = 2;  // NV
  int lanes = 8;    // VW, of the accumulators
  DType a_dtype = DType::f32, b_dtype = DType::f32, c_dtype = DType::f32;
  // Accumulation is in f32, or in f64 when A or B is f64.

  Value k;             // i64, the extent of the sum; may be <= 0
  Value a;             // element (row, 0)
  Value a_row_stride;  // i64, in elements
  Value a_k_stride;    // i64, in elements; not given: 1
  Value b;             // element (0, 0)
  Value b_row_stride;  // i64, in elements, from one k to the next; columns are contiguous
  Value c;             // element (0, 0)
  Value c_row_stride;  // i64, in elements

  enum class Init { zero, load, load_scaled };
  Init init = Init::zero;
  Value scale;  // load_scaled: ptr to `rows` elements of the accumulator's type; C starts as C * scale[row]

  // Valid columns when not all are (i64, may be anything): columns beyond are neither read from C nor written, and not
  // read from B unless b_padded says that the panel has them. Without b_padded, AVX2 holds a mask a vector in registers
  // during the loop: take a tile with `vectors` fewer accumulators there (4x2, not 6x2).
  Value columns;
  bool b_padded = false;
  // Of columns that are not all valid, the last vectors lie over those before them, so that each is a whole one:
  // columns twice computed are the same twice. (Fewer columns than lanes take the other way.) For machines without
  // masked loads, whose tails would be branches in the loop. Not with an epilogue, and nothing is returned.
  bool overlap = false;

  int unroll = 4;
  // Rows of B ahead of the current one whose lines are prefetched to L1; 0: none. For streamed B.
  int prefetch_b_rows = 0;
  // A stream that some later phase reads: some lines of it are prefetched (to L2) per k, `prefetch_next_bytes` from one
  // k to the next.
  Value prefetch_next;
  int prefetch_next_bytes = 64;
  int prefetch_next_lines = 1;

  // Called with the accumulators of one row before they are stored; returns what is stored (same count). May be empty.
  std::function<std::vector<Value>(int row, std::vector<Value> sums)> epilogue;
  bool store = true;  // false: only return the accumulators (after the epilogue), C is not written
};

// Emits the tile; returns the accumulators after the epilogue, row by row.
std::vector<Value> emit_matmul_tile(Builder& b, const MatmulTile& tile);

// Register tiles (rows, vectors) that keep the multiply-add units busy without spills, best first.
struct TileShape {
  int rows, vectors;
};
std::vector<TileShape> good_tiles(const Machine& machine);
// rows * vectors accumulators + vectors of B + one broadcast fit the registers, and hide the latency.
bool tile_fits(const Machine& machine, TileShape shape);

}  // namespace cleave::vec
