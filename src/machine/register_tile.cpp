#include "machine/register_tile.hpp"

#include <algorithm>
#include <cmath>

namespace cleave {

namespace {
constexpr int kMostRows = 16, kMostVectors = 8;

// All rows of one block of columns.
double block_cycles(const Machine& m, int64_t rows, RegisterTile t, double k, double rest_cost) {
  const auto full = static_cast<double>(rows / t.rows);
  const int rest = static_cast<int>(rows % t.rows);
  return full * tile_cycles(m, t, k) + (rest > 0 ? tile_cycles(m, {rest, t.vectors}, k) + rest_cost : 0);
}
}  // namespace

double tile_cycles(const Machine& m, RegisterTile t, double k) {
  const double sums = t.rows * t.vectors, pipes = m.fma_pipes;
  // Barely enough accumulators for the latency do not quite hide it.
  const double step = std::max({sums / pipes, (t.rows + t.vectors) / 2.0, 1.15 * m.fma_latency});
  return step * k + 2.0 * sums + 12;
}

bool tile_fits(const Machine& m, RegisterTile t, bool masks) {
  // On arm64 the scheduler loads elements of A in pairs, and the next pair early.
  const int held = m.isa == Isa::neon ? 2 : masks && m.isa == Isa::avx2 ? t.vectors : 0;
  return t.rows * t.vectors + t.vectors + 1 + held <= m.vector_registers;
}

RegisterTile choose_tile(const Machine& m, const ProductShape& s) {
  const auto vectors = static_cast<int>(std::min<int64_t>((s.columns + s.lanes - 1) / s.lanes, 1 << 20));
  RegisterTile best;
  double best_cost = INFINITY;
  for (int v = 1; v <= std::min(kMostVectors, vectors); ++v) {
    if (s.panel % (v * s.lanes) != 0) continue;
    for (int r = 1; r <= kMostRows && r <= s.rows; ++r) {
      if (!tile_fits(m, {r, v}, s.tails)) continue;
      const double cost = std::ceil(double(vectors) / v) * block_cycles(m, s.rows, {r, v}, s.depth, 4);
      // Less code is worth a little: a tile that leaves no remainder, or a smaller one.
      if (cost < best_cost * 0.99) best = {r, v}, best_cost = cost;
    }
  }
  return best;
}

RegisterTile choose_tail(const Machine& m, int64_t rows, int vectors) {
  RegisterTile best{1, vectors};
  double cost = INFINITY;
  for (int r = 1; r <= kMostRows && r <= rows; ++r) {
    const double c = block_cycles(m, rows, {r, vectors}, 64, 0);
    if (tile_fits(m, {r, vectors}, true) && c < cost) cost = c, best.rows = r;
  }
  return best;
}

}  // namespace cleave
