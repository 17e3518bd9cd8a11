// The register tile of vec/microkernel, compiled, against sums in float64.
#include <cmath>

#include "base/rng.hpp"
#include "support.hpp"
#include "vec/microkernel.hpp"

namespace cleave {
namespace {

using vec::MatmulTile;
using vec::Value;

struct Case {
  int rows, vectors, lanes;
  int64_t k, columns;  // columns < vectors * lanes: a tail
  DType a = DType::f32, b = DType::f32, c = DType::f32;
  MatmulTile::Init init = MatmulTile::Init::zero;
  bool packed_a = false;  // A as [k][rows]
  bool static_strides = false;
  bool epilogue = false;  // relu(x + row)
  bool prefetch = false;
  bool overlap = false;
};

void fill(std::vector<uint8_t>& bytes, DType d, Rng& rng) {
  for (size_t i = 0; i + static_cast<size_t>(byte_size(d)) <= bytes.size(); i += static_cast<size_t>(byte_size(d)))
    store_real(d, bytes.data() + i, rng.normal());
}

void check(const Case& t, const jit::Target& target) {
  const int64_t width = t.vectors * t.lanes;
  const int64_t ldb = width + 3, ldc = width + 5, lda = t.packed_a ? 1 : t.k + 2, ka = t.packed_a ? t.rows : 1;
  const DType sum = t.a == DType::f64 || t.b == DType::f64 ? DType::f64 : DType::f32;
  Rng rng(11);
  std::vector<uint8_t> a(static_cast<size_t>((t.rows * (t.k + 2) + t.rows) * byte_size(t.a)));
  std::vector<uint8_t> b(static_cast<size_t>((t.k * ldb + t.columns) * byte_size(t.b)));
  std::vector<uint8_t> c(static_cast<size_t>(t.rows * ldc * byte_size(t.c)));
  std::vector<uint8_t> scale(static_cast<size_t>(t.rows * byte_size(sum)));
  fill(a, t.a, rng);
  fill(b, t.b, rng);
  fill(c, t.c, rng);
  fill(scale, sum, rng);
  const std::vector<uint8_t> before = c;

  vec::Module module;
  module.functions.emplace_back("tile");
  vec::Builder builder(module.functions.back());
  MatmulTile tile;
  tile.rows = t.rows, tile.vectors = t.vectors, tile.lanes = t.lanes;
  tile.a_dtype = t.a, tile.b_dtype = t.b, tile.c_dtype = t.c;
  auto number = [&](int index, int64_t value) { return t.static_strides ? builder.i64(value) : builder.extent(index); };
  tile.k = number(0, t.k);
  tile.a = builder.tensor_data(0), tile.a_row_stride = number(1, lda), tile.a_k_stride = number(2, ka);
  tile.b = builder.tensor_data(1), tile.b_row_stride = number(3, ldb);
  tile.c = builder.tensor_data(2), tile.c_row_stride = number(4, ldc);
  tile.init = t.init;
  tile.scale = builder.tensor_data(3);
  if (t.columns < width) tile.columns = number(5, t.columns);
  tile.overlap = t.overlap;
  if (t.prefetch) tile.prefetch_b_rows = 4, tile.prefetch_next = tile.c;
  if (t.epilogue)
    tile.epilogue = [&](int row, std::vector<Value> sums) {
      for (Value& v : sums) v = builder.apply(Fn::relu, {builder.add(v, builder.real(builder.type(v), row))});
      return sums;
    };
  vec::emit_matmul_tile(builder, tile);

  jit::Options options;
  options.target = target;
  using testing::bytes_of;
  testing::run_compiled(module, options, {bytes_of(a), bytes_of(b), bytes_of(c), bytes_of(scale)},
                        {t.k, lda, ka, ldb, ldc, t.columns});

  const double eps = unit_roundoff(sum) * static_cast<double>(t.k + 3), store_eps = unit_roundoff(t.c);
  for (int64_t r = 0; r < t.rows; ++r)
    for (int64_t j = 0; j < ldc; ++j) {
      const size_t at = static_cast<size_t>((r * ldc + j) * byte_size(t.c));
      const double got = load_real(t.c, &c[at]), old = load_real(t.c, &before[at]);
      if (j >= t.columns) {
        ASSERT_EQ(got, old) << "column " << j << " lies outside";
        continue;
      }
      double value = 0, size = 0;
      if (t.init == MatmulTile::Init::load) value = old;
      if (t.init == MatmulTile::Init::load_scaled)
        value = old * load_real(sum, &scale[static_cast<size_t>(r * byte_size(sum))]);
      size = std::fabs(value);
      for (int64_t k = 0; k < t.k; ++k) {
        const double product = load_real(t.a, &a[static_cast<size_t>((r * lda + k * ka) * byte_size(t.a))]) *
                               load_real(t.b, &b[static_cast<size_t>((k * ldb + j) * byte_size(t.b))]);
        value += product;
        size += std::fabs(product);
      }
      if (t.epilogue) value = std::max(value + static_cast<double>(r), 0.0), size += static_cast<double>(r);
      ASSERT_NEAR(got, value, eps * size + store_eps * std::fabs(value) + 1e-30)
          << t.rows << "x" << t.vectors << "x" << t.lanes << " k " << t.k << " row " << r << " column " << j << " on "
          << name(target.isa);
    }
}

TEST(Jit, MatmulTilesAreRight) {
  using enum DType;
  const auto load = MatmulTile::Init::load, scaled = MatmulTile::Init::load_scaled;
  const Case cases[] = {
      {6, 2, 8, 37, 16},
      {4, 3, 8, 64, 24, f32, f32, f32, load},
      {6, 2, 8, 5, 11, f32, f32, f32, scaled},
      {1, 1, 8, 3, 5, f32, f32, f32, load},
      {8, 3, 16, 33, 48},
      {12, 2, 16, 16, 19, f32, f32, f32, load},
      {6, 4, 16, 7, 64, f32, bf16, f32, scaled},
      {5, 2, 8, 20, 13, bf16, bf16, bf16, load},
      {5, 2, 16, 20, 32, f16, f16, f16},
      {4, 2, 4, 9, 7, f64, f64, f64, load},
      {4, 2, 8, 9, 16, f64, f32, f32},
      {6, 2, 8, 0, 16, f32, f32, f32, load},
      {6, 2, 8, 18, 16, f32, f32, f32, load, true},
      {8, 3, 16, 18, 40, f32, f32, f32, load, true, true},
      {7, 1, 16, 4, 3, f32, f32, f32, scaled, false, true},
      {6, 2, 8, 21, 15, f32, f32, f32, load, false, false, true, true},
      {8, 3, 4, 21, 7, f32, f32, f32, load, false, false, false, true, true},
      {8, 3, 4, 21, 9, f32, bf16, bf16, scaled, false, true, false, false, true},
      {6, 4, 4, 5, 3, f32, f16, f32, load, false, false, false, false, true},
      {8, 3, 4, 5, 4, f16, f16, f16, load, true, true, false, false, true},
  };
  for (const jit::Target& target : testing::all_targets_and_arm64())
    for (const Case& c : cases) {
      check(c, target);
      if (HasFatalFailure()) return;
    }
}

TEST(Jit, GoodTilesDoNotSpillInTheirInnerLoop) {
  for (const jit::Target& target : testing::all_targets()) {
    if (target.isa != Isa::avx2 && target.isa != Isa::avx512) continue;
    const Machine machine = with_isa(host_machine(), target.isa);
    for (const vec::TileShape shape : vec::good_tiles(machine)) {
      vec::Module module;
      module.functions.emplace_back("tile");
      vec::Builder b(module.functions.back());
      MatmulTile t;
      t.rows = shape.rows, t.vectors = shape.vectors, t.lanes = machine.f32_lanes();
      t.k = b.extent(0);
      t.a = b.tensor_data(0), t.a_row_stride = b.i64(1), t.a_k_stride = b.i64(t.rows);
      t.b = b.tensor_data(1), t.b_row_stride = b.i64(t.vectors * t.lanes);
      t.c = b.tensor_data(2), t.c_row_stride = b.extent(1);
      vec::emit_matmul_tile(b, t);
      jit::Options options;
      options.target = target;
      const auto text = jit::asm_text(module, options);
      ASSERT_TRUE(text.ok());
      EXPECT_EQ(jit::count_spills(*text).innermost, 0)
          << shape.rows << "x" << shape.vectors << " on " << name(target.isa);
    }
  }
}

}  // namespace
}  // namespace cleave
