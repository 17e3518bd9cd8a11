// bench_micro: register tiles of the matrix product in per cent of the multiply-add peak measured beside them, and
// cycles per element of the scalar functions. Prints a table; asserts nothing.
#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "base/rng.hpp"
#include "jit/calibrate.hpp"
#include "runtime/buffer.hpp"
#include "runtime/calibrate.hpp"
#include "runtime/executable.hpp"
#include "runtime/timing.hpp"
#include "vec/microkernel.hpp"

namespace cleave {
namespace {

constexpr int64_t kRows = 48;  // of A, walked by the tile
constexpr int64_t kDepth = 256;

struct TileCase {
  Isa isa;
  int rows, vectors, lanes;
  bool packed_a = false;
  DType b = DType::f32;
  bool optimize = false;
  int missing_columns = 0;  // of the last vector
};

// A 48 x 256 row-major (or packed), B one panel, C written once per pass over k.
void run_tile(const TileCase& c) {
  const int64_t panels = kRows / c.rows;
  vec::Module module;
  module.functions.emplace_back("tile");
  vec::Builder b(module.functions.back());
  const int64_t columns = c.vectors * c.lanes;
  const vec::Value A = b.tensor_data(0), B = b.tensor_data(1), C = b.tensor_data(2);
  const vec::Value a_stride = c.packed_a ? b.i64(1) : b.tensor_stride(0, 0);
  const vec::Value k = b.extent(0);
  b.for_each(b.i64(0), b.i64(panels), b.i64(1), [&](vec::Value p) {
    vec::MatmulTile t;
    t.rows = c.rows, t.vectors = c.vectors, t.lanes = c.lanes;
    t.b_dtype = c.b;
    t.k = k;
    const vec::Value row = b.mul(p, b.i64(c.rows));
    t.a = b.element(A, c.packed_a ? b.mul(row, k) : b.mul(row, a_stride), DType::f32);
    t.a_row_stride = a_stride;
    if (c.packed_a) t.a_k_stride = b.i64(c.rows);
    t.b = B, t.b_row_stride = b.i64(columns);
    t.c = b.element(C, b.mul(row, b.i64(columns)), DType::f32);
    t.c_row_stride = b.i64(columns);
    if (c.missing_columns > 0) t.columns = b.extent(1);
    vec::emit_matmul_tile(b, t);
  });
  auto target = jit::target_for(c.isa);
  if (!target) return;
  jit::Options options;
  options.target = *target;
  options.optimize = c.optimize;
  const double start = runtime::thread_cpu_seconds();
  auto compiled = jit::compile(module, options);
  if (!compiled) return fmt::print("{}\n", render(compiled.errors(), nullptr));
  const CleaveKernel kernel = compiled->function("tile").value();
  const double compile_ms = 1e3 * (runtime::thread_cpu_seconds() - start);
  const auto spills = jit::count_spills(jit::asm_text(module, options).value());

  runtime::Buffer a(kRows * kDepth * 4), w(kDepth * columns * 4), out(kRows * columns * 4);
  Rng rng(3);
  for (int64_t i = 0; i < kRows * kDepth; ++i) a.as<float>()[i] = static_cast<float>(rng.normal());
  for (int64_t i = 0; i < kDepth * columns; ++i) store_real(c.b, w.bytes() + i * byte_size(c.b), rng.normal());
  const int64_t a_strides[] = {kDepth, 1};
  const CleaveTensor tensors[] = {{a.data(), a_strides}, {w.data(), a_strides}, {out.data(), a_strides}};
  const int64_t extents[] = {kDepth, columns - c.missing_columns};
  const CleaveCall call{tensors, extents, nullptr, nullptr};
  const double flops = 2.0 * static_cast<double>(panels * c.rows * columns * kDepth);
  std::vector<double> shares;
  for (int i = 0; i < 9; ++i) {
    const double before = runtime::measure_peak_gflops(c.isa);
    const double seconds = runtime::time_best([&] { kernel(&call, 0, nullptr); }, 1e-3, 3);
    const double after = runtime::measure_peak_gflops(c.isa);
    shares.push_back(flops / seconds * 1e-9 / std::max(before, after));
  }
  fmt::print("{:7} {:>2}x{:<2} {:8} B {:5}{} {} {:5.1f} % of peak (best {:5.1f})  {:4.1f} ms  spills {}/{}\n",
             name(c.isa), c.rows, columns, c.packed_a ? "packed A" : "A rows", name(c.b), c.optimize ? " opt" : "    ",
             c.missing_columns ? "tail" : "    ", 100 * runtime::median(shares), 100 * runtime::quantile(shares, 1.0),
             compile_ms, spills.innermost, spills.total);
}

void run_function(Isa isa, Fn fn, double lo, double hi, double gigahertz) {
  auto target = jit::target_for(isa);
  if (!target) return;
  auto cycles = jit::measure_cycles(fn, *target, gigahertz, lo, hi);
  if (!cycles) return fmt::print("{}\n", render(cycles.errors(), nullptr));
  fmt::print("{:7} {:12} {:6.2f} cycles/element\n", name(isa), info(fn).name, *cycles);
}

// The row maximum over 8192 floats in L1, four accumulators: propagating NaN and not.
void run_max(Isa isa, bool ordered, double gigahertz) {
  auto target = jit::target_for(isa);
  if (!target) return;
  jit::Options options;
  options.target = *target;
  constexpr int64_t n = 8192;
  const int lanes = target->vector_bytes / 4;
  vec::Module module;
  module.functions.emplace_back("max");
  vec::Builder b(module.functions.back());
  const vec::Value x = b.tensor_data(0);
  const vec::Value least = b.real({vec::Elem::f32, static_cast<uint16_t>(lanes)}, -INFINITY);
  auto m = b.for_loop(
      b.i64(0), b.i64(n), b.i64(4 * lanes), {least, least, least, least},
      [&](vec::Value i, std::span<const vec::Value> c) {
        std::vector<vec::Value> next;
        for (int u = 0; u < 4; ++u) {
          const vec::Value v = b.load(b.ptr_add(b.element(x, i, DType::f32), 4 * u * lanes), DType::f32, lanes);
          next.push_back(ordered ? b.max_ordered(v, c[static_cast<size_t>(u)]) : b.max(v, c[static_cast<size_t>(u)]));
        }
        return next;
      });
  b.store(b.reduce(Fn::max, b.max(b.max(m[0], m[1]), b.max(m[2], m[3]))), b.tensor_data(1), DType::f32);
  auto compiled = jit::compile(module, options);
  if (!compiled) return fmt::print("{}\n", render(compiled.errors(), nullptr));
  const CleaveKernel kernel = compiled->function("max").value();
  runtime::Buffer in(n * 4), out(64);
  const CleaveTensor tensors[] = {{in.data(), nullptr}, {out.data(), nullptr}};
  const CleaveCall call{tensors, nullptr, nullptr, nullptr};
  const double seconds = runtime::time_best([&] { kernel(&call, 0, nullptr); }, 1e-3, 5);
  fmt::print("{:7} {:12} {:6.3f} cycles/element\n", name(isa), ordered ? "max_ordered" : "max",
             seconds * gigahertz * 1e9 / n);
}

// C = A * B with the tile: A row-major, B packed in panels ahead of time, one task a block of rows. What a schedule
// made of nothing but the tile reaches, on one thread and on all.
void run_matmul(int64_t n, int rows, int vectors, int64_t depth_block, int64_t row_block) {
  const jit::Target target = jit::host_target();
  const int lanes = target.vector_bytes / 4;
  const int64_t width = vectors * lanes, panels = (n + width - 1) / width;
  vec::Module module;
  module.functions.emplace_back("matmul");
  vec::Builder b(module.functions.back());
  const vec::Value A = b.tensor_data(0), B = b.tensor_data(1), C = b.tensor_data(2);
  const vec::Value first = b.mul(b.task(), b.i64(row_block));
  auto pass = [&](vec::Value k0, vec::MatmulTile::Init init) {
    const vec::Value depth = b.min(b.sub(b.i64(n), k0), b.i64(depth_block));
    b.for_each(b.i64(0), b.i64(panels), b.i64(1), [&](vec::Value j) {
      const vec::Value panel = b.ptr_add(B, b.mul(b.add(b.mul(j, b.i64(n)), k0), b.i64(4 * width)));
      auto tiles = [&](vec::Value columns) {
        b.for_each(first, b.add(first, b.i64(row_block)), b.i64(rows), [&](vec::Value i) {
          vec::MatmulTile t;
          t.rows = rows, t.vectors = vectors, t.lanes = lanes;
          t.k = depth, t.init = init;
          t.a = b.element(A, b.add(b.mul(i, b.i64(n)), k0), DType::f32), t.a_row_stride = b.i64(n);
          t.b = panel, t.b_row_stride = b.i64(width), t.b_padded = true;
          t.c = b.element(C, b.add(b.mul(i, b.i64(n)), b.mul(j, b.i64(width))), DType::f32), t.c_row_stride = b.i64(n);
          t.columns = columns;
          vec::emit_matmul_tile(b, t);
        });
      };
      if (n % width == 0) return tiles({});
      b.if_else(
          b.lt(j, b.i64(panels - 1)),
          [&] {
            tiles({});
            return std::vector<vec::Value>{};
          },
          [&] {
            tiles(b.i64(n % width));
            return std::vector<vec::Value>{};
          });
    });
  };
  pass(b.i64(0), vec::MatmulTile::Init::zero);
  b.for_each(b.i64(depth_block), b.i64(n), b.i64(depth_block),
             [&](vec::Value k0) { pass(k0, vec::MatmulTile::Init::load); });
  auto compiled = jit::compile(module);
  if (!compiled) return fmt::print("{}\n", render(compiled.errors(), nullptr));
  const int64_t tasks = n / row_block;
  const runtime::Executable program({{"matmul", compiled->function("matmul").value(), tasks, nullptr, 0}}, 0, nullptr);
  runtime::Buffer a(n * n * 4), packed(panels * width * n * 4), c(n * n * 4);
  Rng rng(5);
  for (int64_t i = 0; i < a.size() / 4; ++i) a.as<float>()[i] = static_cast<float>(rng.normal());
  for (int64_t i = 0; i < packed.size() / 4; ++i) packed.as<float>()[i] = static_cast<float>(rng.normal());
  const CleaveTensor tensors[] = {{a.data(), nullptr}, {packed.data(), nullptr}, {c.data(), nullptr}};
  const CleaveCall call{tensors, nullptr, nullptr, nullptr};
  SerialExecutor serial;
  const double flops = 2.0 * static_cast<double>(n * n) * static_cast<double>(tasks * row_block);
  std::vector<double> shares;
  for (int i = 0; i < 5; ++i) {
    const double before = runtime::measure_peak_gflops();
    const double seconds = runtime::time_best([&] { program.run(call, serial); }, 1e-3, 2);
    shares.push_back(flops / seconds * 1e-9 / std::max(before, runtime::measure_peak_gflops()));
  }
  ThreadPool pool;
  double wall = INFINITY;
  for (int i = 0; i < 10; ++i) {
    const double start = runtime::wall_seconds();
    program.run(call, pool);
    wall = std::min(wall, runtime::wall_seconds() - start);
  }
  fmt::print(
      "matmul {:4}^3  {:>2}x{:<2} depth {:4} rows {:3}: {:5.1f} % of peak on one thread, {:6.1f} GFLOP/s on {}\n", n,
      rows, width, depth_block, row_block, 100 * runtime::median(shares), flops / wall * 1e-9, pool.workers());
}

// A linear layer with few rows: 64 MiB and more of packed weights are streamed once. GB/s of weights beside the read
// bandwidth, with B prefetched so many rows ahead.
void run_stream(int rows, int vectors, int prefetch_rows, DType dtype, double dram) {
  const jit::Target target = jit::host_target();
  const int lanes = target.vector_bytes / 4;
  constexpr int64_t depth = 4096, n = 6144;
  const int64_t width = vectors * lanes, panels = n / width;
  vec::Module module;
  module.functions.emplace_back("linear");
  vec::Builder b(module.functions.back());
  vec::MatmulTile t;
  t.rows = rows, t.vectors = vectors, t.lanes = lanes, t.b_dtype = dtype;
  t.k = b.i64(depth);
  t.a = b.tensor_data(0), t.a_row_stride = b.i64(depth);
  t.b = b.element(b.tensor_data(1), b.mul(b.task(), b.i64(depth * width)), dtype), t.b_row_stride = b.i64(width);
  t.c = b.element(b.tensor_data(2), b.mul(b.task(), b.i64(width)), DType::f32), t.c_row_stride = b.i64(n);
  t.prefetch_b_rows = prefetch_rows;
  vec::emit_matmul_tile(b, t);
  auto compiled = jit::compile(module);
  if (!compiled) return fmt::print("{}\n", render(compiled.errors(), nullptr));
  const runtime::Executable program({{"linear", compiled->function("linear").value(), panels, nullptr, 0}}, 0, nullptr);
  runtime::Buffer a(rows * depth * 4), w(panels * width * depth * byte_size(dtype)), c(rows * n * 4);
  std::memset(w.data(), 0, static_cast<size_t>(w.size()));  // every page is there
  const CleaveTensor tensors[] = {{a.data(), nullptr}, {w.data(), nullptr}, {c.data(), nullptr}};
  const CleaveCall call{tensors, nullptr, nullptr, nullptr};
  SerialExecutor serial;
  const double seconds = runtime::time_best([&] { program.run(call, serial); }, 1e-3, 7);
  fmt::print("linear M {:2} {}x{:<2} B {:4} prefetch {:2} rows: {:5.1f} GB/s of weights ({:4.1f} read by one thread)\n",
             rows, rows, width, name(dtype), prefetch_rows, static_cast<double>(w.size()) / seconds * 1e-9, dram);
}

// A copy with full vectors, as packing makes it where both sides are contiguous: bytes read and written per second
// beside the bandwidth of reading alone over as many bytes.
void run_copy(int64_t bytes) {
  const jit::Target target = jit::host_target();
  const int lanes = target.vector_bytes / 4;
  vec::Module module;
  module.functions.emplace_back("copy");
  vec::Builder b(module.functions.back());
  const vec::Value from = b.tensor_data(0), to = b.tensor_data(1);
  b.for_each(b.i64(0), b.i64(bytes / 4), b.i64(4 * lanes), [&](vec::Value i) {
    const vec::Value source = b.element(from, i, DType::f32), sink = b.element(to, i, DType::f32);
    for (int u = 0; u < 4; ++u)
      b.store(b.load(b.ptr_add(source, 4 * u * lanes), DType::f32, lanes), b.ptr_add(sink, 4 * u * lanes), DType::f32);
  });
  auto compiled = jit::compile(module);
  if (!compiled) return fmt::print("{}\n", render(compiled.errors(), nullptr));
  const CleaveKernel kernel = compiled->function("copy").value();
  runtime::Buffer in(bytes), out(bytes);
  std::memset(in.data(), 0, static_cast<size_t>(bytes));
  std::memset(out.data(), 0, static_cast<size_t>(bytes));
  const CleaveTensor tensors[] = {{in.data(), nullptr}, {out.data(), nullptr}};
  const CleaveCall call{tensors, nullptr, nullptr, nullptr};
  const double read = runtime::measure_read_gbytes(2 * bytes);
  const double seconds = runtime::time_best([&] { kernel(&call, 0, nullptr); }, 2e-3, 7);
  const double copied = 2 * static_cast<double>(bytes) / seconds * 1e-9;
  fmt::print("copy {:>6} KiB: {:6.1f} GB/s read and written, {:5.1f} % of reading as much ({:.1f} GB/s)\n",
             bytes / 1024, copied, 100 * copied / read, read);
}

}  // namespace
}  // namespace cleave

int main(int argc, char** argv) {
  using namespace cleave;
  const std::string which = argc > 1 ? argv[1] : "all";
  const Machine host = host_machine();
  std::vector<Isa> isas = {Isa::avx2};
  if (host.isa == Isa::avx512) isas.push_back(Isa::avx512);
  if (which == "machine") {
    auto m = jit::measured_host();
    fmt::print("{}", m ? print(*m) : render(m.errors(), nullptr));
  }
  if (which == "tiles" || which == "all") {
    for (const Isa isa : isas) fmt::print("{} peak {:.1f} GFLOP/s\n", name(isa), runtime::measure_peak_gflops(isa));
    for (const TileCase& c : {TileCase{Isa::avx2, 6, 2, 8},
                              {Isa::avx2, 4, 3, 8},
                              {Isa::avx2, 4, 2, 8},
                              {Isa::avx2, 6, 2, 8, true},
                              {Isa::avx2, 6, 2, 8, false, DType::bf16},
                              {Isa::avx2, 6, 2, 8, false, DType::f32, true},
                              {Isa::avx2, 6, 2, 8, false, DType::f32, false, 3},
                              {Isa::avx512, 8, 3, 16, false, DType::f32, false, 5},
                              {Isa::avx512, 8, 3, 16},
                              {Isa::avx512, 12, 2, 16},
                              {Isa::avx512, 6, 4, 16},
                              {Isa::avx512, 4, 4, 16},
                              {Isa::avx512, 8, 2, 16},
                              {Isa::avx512, 8, 3, 16, true},
                              {Isa::avx512, 12, 2, 16, true},
                              {Isa::avx512, 8, 3, 16, false, DType::bf16},
                              {Isa::avx512, 8, 3, 16, false, DType::f16},
                              {Isa::avx512, 8, 3, 16, false, DType::f32, true}})
      run_tile(c);
  }
  if (which == "matmul" || which == "all") {
    const bool wide = host.isa == Isa::avx512;
    for (const int64_t n : {480, 960, 1920})
      for (const int64_t depth : {128, 256, 512}) {
        if (wide) run_matmul(n, 8, 3, depth, 96);
        if (wide) run_matmul(n, 12, 2, depth, 96);
        if (!wide) run_matmul(n, 6, 2, depth, 96);
      }
    if (wide) run_matmul(1024, 8, 3, 256, 128);
    if (wide) run_matmul(2048, 8, 3, 256, 128);
  }
  if (which == "pool" || which == "all") {
    ThreadPool pool;
    std::vector<double> microseconds;
    for (int i = 0; i < 20001; ++i) {
      const double start = runtime::wall_seconds();
      pool.for_each(pool.workers(), [](int64_t, int) {});
      microseconds.push_back(1e6 * (runtime::wall_seconds() - start));
    }
    fmt::print("fork-join on {} threads: median {:.2f} us, p90 {:.2f} us\n", pool.workers(),
               runtime::median(microseconds), runtime::quantile(microseconds, 0.9));
  }
  if (which == "copies" || which == "all")
    for (const int64_t kib : {16, 256, 8192, 131072}) run_copy(kib << 10);
  if (which == "stream" || which == "all") {
    const double dram = runtime::measure_read_gbytes(128 << 20);
    for (const int rows : {1, 4})
      for (const int vectors : {2, 4})
        for (const int ahead : {0, 4, 8, 16, 32}) run_stream(rows, vectors, ahead, DType::f32, dram);
    for (const int ahead : {0, 8, 16, 32}) run_stream(4, 4, ahead, DType::bf16, dram);
    for (const int ahead : {0, 8, 16, 32}) run_stream(8, 3, ahead, DType::f32, dram);
  }
  if (which == "functions" || which == "all") {
    const double gigahertz = runtime::measured(host).gigahertz;
    for (const Isa isa : isas)
      for (const bool ordered : {false, true}) run_max(isa, ordered, gigahertz);
    for (const Isa isa : isas)
      for (const FnInfo& f : all_fns())
        if (f.rule == FnRule::real && f.arity == 1)
          run_function(isa, f.fn,
                       f.fn == Fn::log || f.fn == Fn::sqrt || f.fn == Fn::log2 || f.fn == Fn::rsqrt ? 0.1 : -8, 8,
                       gigahertz);
  }
  return 0;
}
