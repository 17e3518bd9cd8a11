// Products of few rows with a matrix whose columns lie along k: C[rows x columns] (+)= A[rows x k] * B[columns x k]^T.
//
// Both operands run along k, so lanes hold partial sums, which are added crosswise at the end: lane l sums k = l, l +
// lanes,
// ..., then the lanes meet in a fixed tree. Decode kernels take this form, since packing B would cost as much as the
// product.
#pragma once

#include "vec/builder.hpp"

namespace cleave::vec {

struct DotTile {
  int rows = 4, columns = 4;  // rows * columns <= lanes
  int lanes = 16;             // a power of two
  DType a_dtype = DType::f32, b_dtype = DType::f32, c_dtype = DType::f32;
  // Accumulation is in f32, or in f64 when A or B is f64.

  Value k;                // i64, may be <= 0
  Value a;                // element (row 0, k = 0); k is contiguous
  Value a_row_stride;     // i64, in elements
  Value b;                // element (k = 0, column 0); k is contiguous
  Value b_column_stride;  // i64, in elements
  Value c;                // element (0, 0); columns are contiguous
  Value c_row_stride;     // i64, in elements

  enum class Init { zero, load, load_scaled };
  Init init = Init::zero;
  Value scale;  // load_scaled: ptr to `rows` elements of the accumulator's type; C starts as C * scale[row]

  int unroll = 4;              // vectors of k
  int64_t prefetch_bytes = 0;  // how far ahead lines of B are fetched into L2; 0: not
};

void emit_dot_tile(Builder& b, const DotTile& tile);

// Sums of the lanes of each vector (1 .. lanes of them, one type), as one vector: lane i is the sum of vector i.
Value lane_sums(Builder& b, std::vector<Value> vectors);

}  // namespace cleave::vec
