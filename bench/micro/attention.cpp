// bench_attention: a hand-scheduled fused attention out of nothing but the vector IR and the matmul tile. What the code
// generator allows, against which schedules found by the search are held. f32, scores scaled by 1/sqrt(d), no mask.
//
// One task is a block of query rows of one head. K is packed in panels [head][panel][d][width] ahead of time, V is
// row-major. Per key block: scores with the row maximum in the tile's epilogue, exp2 and row sums in one pass over a
// scratch block in L1/L2, then O = O * alpha + P V with the rescale in the tile's prologue.
#include <fmt/format.h>

#include <cmath>

#include "base/rng.hpp"
#include "jit/jit.hpp"
#include "runtime/calibrate.hpp"
#include "runtime/executable.hpp"
#include "runtime/timing.hpp"
#include "vec/microkernel.hpp"

namespace cleave {
namespace {

using vec::MatmulTile;
using vec::Value;

struct Shape {
  int64_t heads, length, width;  // b * h, s, d
  int64_t query_block, key_block;
  int rows, score_vectors, out_vectors;
};

vec::Module attention(const Shape& s, int lanes) {
  using vec::Elem;
  const int64_t d = s.width, bm = s.query_block, bn = s.key_block, panel = s.score_vectors * lanes;
  const vec::Type wide{Elem::f32, static_cast<uint16_t>(lanes)};
  vec::Module module;
  module.functions.emplace_back("attention");
  vec::Builder b(module.functions.back());
  const Value blocks = b.i64(s.length / bm);
  const Value head = b.floordiv(b.task(), blocks), first = b.mul(b.mod(b.task(), blocks), b.i64(bm));
  auto at = [&](Value p, Value elements) { return b.element(p, elements, DType::f32); };
  const Value matrix = b.mul(head, b.i64(s.length * d));
  const Value q = at(b.tensor_data(0), b.add(matrix, b.mul(first, b.i64(d))));
  const Value k = at(b.tensor_data(1), matrix), v = at(b.tensor_data(2), matrix);
  const Value o = at(b.tensor_data(3), b.add(matrix, b.mul(first, b.i64(d))));
  // Scratch: scores [bm][bn], running maxima and sums [bm][lanes], alpha [bm].
  const Value scores = b.scratch(), maxima = b.ptr_add(scores, 4 * bm * bn), sums = b.ptr_add(maxima, 4 * bm * lanes),
              tops = b.ptr_add(sums, 4 * bm * lanes), alphas = b.ptr_add(tops, 4 * bm);
  const double scale = 1.4426950408889634 / std::sqrt(static_cast<double>(d));  // of exp2

  b.for_each(b.i64(0), b.i64(bm), b.i64(1), [&](Value r) {
    b.store(b.real(wide, 0), at(sums, b.mul(r, b.i64(lanes))), DType::f32);
    b.store(b.real(wide.scalar(), -INFINITY), at(tops, r), DType::f32);
    b.store(b.real(wide.scalar(), 0), at(alphas, r), DType::f32);
    for (int64_t c = 0; c < d; c += lanes)
      b.store(b.real(wide, 0), at(o, b.add(b.mul(r, b.i64(d)), b.i64(c))), DType::f32);
  });

  b.for_each(b.i64(0), b.i64(s.length), b.i64(bn), [&](Value j) {
    b.for_each(b.i64(0), b.i64(bm), b.i64(1),
               [&](Value r) { b.store(b.real(wide, -INFINITY), at(maxima, b.mul(r, b.i64(lanes))), DType::f32); });
    b.for_each(b.i64(0), b.i64(bn), b.i64(panel), [&](Value c) {
      b.for_each(b.i64(0), b.i64(bm), b.i64(s.rows), [&](Value r) {
        MatmulTile t;
        t.rows = s.rows, t.vectors = s.score_vectors, t.lanes = lanes;
        t.k = b.i64(d);
        t.a = at(q, b.mul(r, b.i64(d))), t.a_row_stride = b.i64(d);
        t.b = at(k, b.mul(b.add(j, c), b.i64(d))), t.b_row_stride = b.i64(panel);
        t.c = at(scores, b.add(b.mul(r, b.i64(bn)), c)), t.c_row_stride = b.i64(bn);
        t.epilogue = [&](int row, std::vector<Value> x) {
          const Value p = at(maxima, b.mul(b.add(r, b.i64(row)), b.i64(lanes)));
          Value m = b.load(p, DType::f32, lanes);
          for (const Value e : x) m = b.max_ordered(e, m);
          b.store(m, p, DType::f32);
          return x;
        };
        vec::emit_matmul_tile(b, t);
      });
    });
    // Rows: the new maximum, alpha, probabilities and their sum.
    b.for_each(b.i64(0), b.i64(bm), b.i64(1), [&](Value r) {
      const Value row_max = b.reduce(Fn::max, b.load(at(maxima, b.mul(r, b.i64(lanes))), DType::f32, lanes));
      const Value old = b.load(at(tops, r), DType::f32);
      const Value top = b.max(old, b.mul(row_max, b.real(wide.scalar(), scale)));
      const Value alpha = b.apply(Fn::exp2, {b.sub(old, top)});
      b.store(top, at(tops, r), DType::f32);
      b.store(alpha, at(alphas, r), DType::f32);
      const Value minus = b.splat(b.neg(top), lanes);
      const Value sum_at = at(sums, b.mul(r, b.i64(lanes)));
      const Value zero = b.real(wide, 0);
      const auto total = b.for_loop(b.i64(0), b.i64(bn), b.i64(4 * lanes),
                                    {b.mul(b.load(sum_at, DType::f32, lanes), alpha), zero, zero, zero},
                                    [&](Value c, std::span<const Value> sum) {
                                      std::vector<Value> next, p;
                                      const Value base = at(scores, b.add(b.mul(r, b.i64(bn)), c));
                                      for (int u = 0; u < 4; ++u) {
                                        const Value x = b.load(b.ptr_add(base, 4 * u * lanes), DType::f32, lanes);
                                        p.push_back(b.apply(Fn::exp2, {b.fma(x, b.real(wide, scale), minus)}));
                                      }
                                      for (int u = 0; u < 4; ++u) {
                                        b.store(p[static_cast<size_t>(u)], b.ptr_add(base, 4 * u * lanes), DType::f32);
                                        next.push_back(b.add(sum[static_cast<size_t>(u)], p[static_cast<size_t>(u)]));
                                      }
                                      return next;
                                    });
      b.store(b.add(b.add(total[0], total[1]), b.add(total[2], total[3])), sum_at, DType::f32);
    });
    for (int64_t c = 0; c < d; c += s.out_vectors * lanes)
      b.for_each(b.i64(0), b.i64(bm), b.i64(s.rows), [&](Value r) {
        MatmulTile t;
        t.rows = s.rows, t.vectors = s.out_vectors, t.lanes = lanes;
        t.k = b.i64(bn);
        t.a = at(scores, b.mul(r, b.i64(bn))), t.a_row_stride = b.i64(bn);
        t.b = at(v, b.add(b.mul(j, b.i64(d)), b.i64(c))), t.b_row_stride = b.i64(d);
        t.c = at(o, b.add(b.mul(r, b.i64(d)), b.i64(c))), t.c_row_stride = b.i64(d);
        t.init = MatmulTile::Init::load_scaled, t.scale = at(alphas, r);
        vec::emit_matmul_tile(b, t);
      });
  });

  b.for_each(b.i64(0), b.i64(bm), b.i64(1), [&](Value r) {
    const Value total = b.reduce(Fn::add, b.load(at(sums, b.mul(r, b.i64(lanes))), DType::f32, lanes));
    const Value inverse = b.splat(b.div(b.real(wide.scalar(), 1), total), lanes);
    for (int64_t c = 0; c < d; c += lanes) {
      const Value p = at(o, b.add(b.mul(r, b.i64(d)), b.i64(c)));
      b.store(b.mul(b.load(p, DType::f32, lanes), inverse), p, DType::f32);
    }
  });
  return module;
}

void run(Isa isa, const Shape& s) {
  auto target = jit::target_for(isa);
  if (!target) return;
  jit::Options options;
  options.target = *target;
  const int lanes = target->vector_bytes / 4;
  const double start = runtime::thread_cpu_seconds();
  auto compiled = jit::compile(attention(s, lanes), options);
  if (!compiled) return fmt::print("{}\n", render(compiled.errors(), nullptr));
  const CleaveKernel kernel = compiled->function("attention").value();
  const double compile_ms = 1e3 * (runtime::thread_cpu_seconds() - start);
  const int64_t scratch = 4 * (s.query_block * (s.key_block + 2 * lanes + 2));
  const runtime::Executable program({{"attention", kernel, s.heads * s.length / s.query_block, nullptr, scratch}}, 0,
                                    nullptr);

  const int64_t n = s.heads * s.length * s.width, panel = s.score_vectors * lanes;
  runtime::Buffer q(4 * n), k(4 * n), packed(4 * n), v(4 * n), o(4 * n);
  Rng rng(1);
  for (runtime::Buffer* x : {&q, &k, &v})
    for (int64_t i = 0; i < n; ++i) x->as<float>()[i] = static_cast<float>(rng.normal());
  for (int64_t h = 0; h < s.heads; ++h)
    for (int64_t j = 0; j < s.length; ++j)
      for (int64_t c = 0; c < s.width; ++c)
        packed.as<float>()[((h * (s.length / panel) + j / panel) * s.width + c) * panel + j % panel] =
            k.as<float>()[(h * s.length + j) * s.width + c];
  const CleaveTensor tensors[] = {
      {q.data(), nullptr}, {packed.data(), nullptr}, {v.data(), nullptr}, {o.data(), nullptr}};
  const CleaveCall call{tensors, nullptr, nullptr, nullptr};
  SerialExecutor serial;
  const double flops = 4.0 * static_cast<double>(s.length) * static_cast<double>(n);
  std::vector<double> shares;
  for (int i = 0; i < 5; ++i) {
    const double before = runtime::measure_peak_gflops(isa);
    const double seconds = runtime::time_best([&] { program.run(call, serial); }, 1e-3, 2);
    shares.push_back(flops / seconds * 1e-9 / std::max(before, runtime::measure_peak_gflops(isa)));
  }
  // A few rows against float64.
  double worst = 0;
  for (int64_t row = 0; row < s.heads * s.length; row += 397) {
    const int64_t h = row / s.length;
    std::vector<double> p(static_cast<size_t>(s.length));
    double top = -INFINITY, sum = 0;
    for (int64_t j = 0; j < s.length; ++j) {
      double x = 0;
      for (int64_t c = 0; c < s.width; ++c)
        x += static_cast<double>(q.as<float>()[row * s.width + c]) *
             static_cast<double>(k.as<float>()[(h * s.length + j) * s.width + c]);
      p[static_cast<size_t>(j)] = x / std::sqrt(static_cast<double>(s.width));
      top = std::max(top, p[static_cast<size_t>(j)]);
    }
    for (double& x : p) sum += x = std::exp(x - top);
    for (int64_t c = 0; c < s.width; ++c) {
      double y = 0;
      for (int64_t j = 0; j < s.length; ++j)
        y += p[static_cast<size_t>(j)] / sum * static_cast<double>(v.as<float>()[(h * s.length + j) * s.width + c]);
      worst = std::max(worst, std::fabs(y - static_cast<double>(o.as<float>()[row * s.width + c])));
    }
  }
  fmt::print(
      "{:7} b*h {:2} s {:4} d {:3} blocks {:3}x{:3} tile {}x{}/{}: {:5.1f} % of peak, error {:.1e}, compiled in {:.0f} "
      "ms\n",
      name(isa), s.heads, s.length, s.width, s.query_block, s.key_block, s.rows, panel, s.out_vectors * lanes,
      100 * runtime::median(shares), worst, compile_ms);
}

}  // namespace
}  // namespace cleave

int main() {
  using namespace cleave;
  const bool wide = host_machine().isa == Isa::avx512;
  for (const int64_t d : {64, 128})
    for (const int64_t s : {256, 1024}) {
      for (const int64_t bn : {128, 256}) run(Isa::avx2, {16, s, d, 64, bn, 4, 2, 2});
      if (!wide) continue;
      for (const int64_t bn : {64, 128, 256}) run(Isa::avx512, {16, s, d, 64, bn, 8, 2, 2});
      run(Isa::avx512, {16, s, d, 128, 128, 8, 2, 2});
      run(Isa::avx512, {16, s, d, 64, 128, 4, 4, 4});
    }
  return 0;
}
