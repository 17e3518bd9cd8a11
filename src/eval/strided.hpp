// Walking several strided tensors of one shape at once.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace cleave::oracle {

// Visits all elements of `extents` in row-major order, an innermost axis at a time: body(offsets, steps, count), where
// offsets are the positions (in elements) of the run's first element under each of the N stride lists.
template <size_t N, class Body>
void for_each_run(std::span<const int64_t> extents, std::array<std::span<const int64_t>, N> strides, Body body) {
  const size_t rank = extents.size();
  for (int64_t e : extents)
    if (e == 0) return;
  std::array<int64_t, N> at{}, step{};
  if (rank == 0) return body(at, step, int64_t{1});
  for (size_t k = 0; k < N; ++k) step[k] = strides[k][rank - 1];
  std::vector<int64_t> index(rank, 0);
  for (;;) {
    body(at, step, extents[rank - 1]);
    size_t axis = rank - 1;
    for (;;) {
      if (axis == 0) return;
      --axis;
      for (size_t k = 0; k < N; ++k) at[k] += strides[k][axis];
      if (++index[axis] < extents[axis]) break;
      for (size_t k = 0; k < N; ++k) at[k] -= strides[k][axis] * extents[axis];
      index[axis] = 0;
    }
  }
}

// Strides under which a dense tensor of extents `from` is read with the shape `to`, aligned at the end: 0 where an axis
// is missing or has extent 1.
inline std::vector<int64_t> broadcast_strides(std::span<const int64_t> from, std::span<const int64_t> to) {
  std::vector<int64_t> out(to.size(), 0);
  const size_t skip = to.size() - from.size();
  int64_t s = 1;
  for (size_t i = from.size(); i-- > 0; s *= from[i]) out[skip + i] = from[i] == 1 ? 0 : s;
  return out;
}

}  // namespace cleave::oracle
