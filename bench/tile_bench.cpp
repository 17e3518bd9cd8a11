// bench_tile FILE.tile [gflop] [isa]: runs a tile program on random data, one thread, and prints its time and its share
// of the multiply-add peak measured beside it. Multiply-adds are counted from the matmul statements.
#include <fmt/format.h>

#include <fstream>
#include <sstream>

#include "base/match.hpp"
#include "base/rng.hpp"
#include "jit/build.hpp"
#include "runtime/calibrate.hpp"
#include "runtime/timing.hpp"

namespace cleave {
namespace {

// Operations of the products in a body; loops with constant lengths.
double operations(const tile::Program& p, const std::vector<tile::Statement>& body,
                  std::unordered_map<sym::Expr, int64_t>& at) {
  double sum = 0;
  for (const tile::Statement& s : body)
    match(
        s.what,
        [&](const tile::For& f) {
          const int64_t lo = p.syms->evaluate(f.lo, at), hi = p.syms->evaluate(f.hi, at);
          for (int64_t i = lo; i < hi; i += f.step) {
            at[f.symbol] = i;
            sum += operations(p, f.body, at);
          }
        },
        [](const tile::Nest&) {},
        [&](const tile::Matmul& m) {
          sum += 2.0 * double(p.syms->evaluate(m.m, at)) * double(p.syms->evaluate(m.n, at)) *
                 double(p.syms->evaluate(m.k, at));
        },
        [](const tile::Let&) {});
  return sum;
}

struct Tensors {
  std::vector<runtime::Buffer> memory;
  std::vector<jit::TensorView> views;
};
Tensors random(const std::vector<lower::Argument>& arguments, Rng& rng) {
  Tensors out;
  for (const lower::Argument& a : arguments) {
    int64_t n = 1;
    for (const int64_t e : a.shape) n *= e;
    out.memory.emplace_back(n * byte_size(a.dtype));
    for (int64_t i = 0; i < n; ++i) {
      void* p = out.memory.back().bytes() + i * byte_size(a.dtype);
      if (is_real(a.dtype))
        store_real(a.dtype, p, rng.normal());
      else
        store_integer(a.dtype, p, static_cast<int64_t>(rng.below(2)));
    }
    out.views.push_back({out.memory.back().data(), a.dtype, a.shape, {}});
  }
  return out;
}

int run(const char* path, Isa isa) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  const SourceText source{path, text.str()};
  auto program = tile::parse(source);
  if (!program) return fmt::print("{}\n", render(program.errors(), &source)), 1;
  jit::BuildOptions options;
  auto target = jit::target_for(isa);
  if (!target) return 1;
  options.code.target = *target;
  auto built = jit::build(*program, options);
  if (!built) return fmt::print("{}\n", render(built.errors(), nullptr)), 1;
  const lower::Lowered& l = built->lowered();
  Rng rng(1);
  Tensors inputs = random(l.inputs, rng), constants = random(l.constants, rng), outputs = random(l.outputs, rng);
  const std::vector<double> scalars(static_cast<size_t>(l.scalars), 1.0);
  auto bound = built->bind_constants(constants.views);
  if (!bound) return fmt::print("{}\n", render(bound.errors(), nullptr)), 1;
  runtime::Buffer workspace(l.workspace_bytes);
  jit::RunOptions run;
  run.workspace = workspace.data();
  double flops = 0;
  std::unordered_map<sym::Expr, int64_t> at;
  for (const tile::Kernel& k : program->kernels)
    if (!k.once) flops += operations(*program, k.body, at);
  std::vector<double> shares, times, peaks;
  for (int i = 0; i < 5; ++i) {
    const double before = runtime::measure_peak_gflops(isa);
    const double seconds = runtime::time_best(
        [&] {
          if (const Diagnostics bad = built->run(inputs.views, scalars, outputs.views, *bound, run); !bad.empty())
            fmt::print("{}\n", render(bad, nullptr));
        },
        1e-3, 2);
    peaks.push_back(std::max(before, runtime::measure_peak_gflops(isa)));
    times.push_back(seconds);
    shares.push_back(flops / seconds * 1e-9 / peaks.back());
  }
  fmt::print("{} {}: {:.3f} ms, {:.1f} GFLOP/s, {:.1f} % of {:.0f}; compiled in {:.0f} ms\n", path, name(isa),
             1e3 * runtime::median(times), flops / runtime::median(times) * 1e-9, 100 * runtime::median(shares),
             runtime::median(peaks), 1e3 * built->compile_seconds());
  return 0;
}

}  // namespace
}  // namespace cleave

int main(int argc, char** argv) {
  using namespace cleave;
  if (argc < 2) return fmt::print("bench_tile FILE.tile [avx2|avx512]\n"), 1;
  Isa isa = host_isa();
  if (argc > 2 && std::string_view(argv[2]) == "avx2") isa = Isa::avx2;
  return run(argv[1], isa);
}
