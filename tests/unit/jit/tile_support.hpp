// Compiled tile programs against their interpreter: random inputs, guard bytes around outputs, tolerances.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_map>

#include "arm64.hpp"
#include "base/rng.hpp"
#include "eval/tile_eval.hpp"
#include "jit/build.hpp"

namespace cleave::testing {

struct Compared {
  double ulps = 0;       // allowed difference of real outputs, in units of the dtype's rounding, relative ..
  double absolute = 0;   // .. or absolute
  double specials = 0;   // share of inputs that are NaN, infinite or signed zeros
  int64_t integers = 8;  // integer inputs lie in [-integers, integers]
  std::vector<double> scalars;
  std::vector<int64_t> extents = {};  // of the program's dims
};

inline std::vector<Isa> isas() {
  std::vector<Isa> out = {host_isa()};
  if (out[0] == Isa::avx512) out.push_back(Isa::avx2);
  return out;
}

constexpr size_t kGuard = 128;

template <class T>
struct InLines {  // allocates at multiples of 64 bytes
  using value_type = T;
  static constexpr std::align_val_t kLine{64};
  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), kLine)); }
  void deallocate(T* p, size_t) { ::operator delete(p, kLine); }
  bool operator==(const InLines&) const { return true; }
};

// Bytes of random elements with guards on both sides; they begin a line, or `shift` bytes behind.
struct Memory {
  std::vector<std::byte, InLines<std::byte>> bytes;
  size_t shift = 0;
  int64_t count = 0;
  DType dtype = DType::f32;
  std::byte* data() { return bytes.data() + kGuard + shift; }
  size_t size() const { return bytes.size() - 2 * kGuard - shift; }
  bool guarded() const {
    for (size_t i = 0; i < kGuard; ++i)
      if (bytes[i] != std::byte{0xa5} || bytes[bytes.size() - 1 - i] != std::byte{0xa5}) return false;
    return true;
  }
};
inline Memory random_memory(const lower::Argument& a, const lower::Lowered& l, const Compared& how, Rng& rng) {
  Memory m;
  m.dtype = a.dtype;
  m.count = 1;
  for (const int64_t e : l.shape(a, how.extents)) m.count *= e;
  m.shift = rng.chance(0.5) ? 0 : 16;
  m.bytes.assign(static_cast<size_t>(m.count * byte_size(a.dtype)) + 2 * kGuard + m.shift, std::byte{0xa5});
  for (int64_t i = 0; i < m.count; ++i) {
    void* p = m.data() + i * byte_size(a.dtype);
    if (a.dtype == DType::boolean)
      store_integer(a.dtype, p, static_cast<int64_t>(rng.below(2)));
    else if (!is_real(a.dtype))
      store_integer(a.dtype, p, rng.between(is_unsigned(a.dtype) ? 0 : -how.integers, how.integers));
    else if (rng.chance(how.specials)) {
      const double odd[] = {NAN, INFINITY, -INFINITY, -0.0};
      store_real(a.dtype, p, odd[rng.below(4)]);
    } else
      store_real(a.dtype, p, rng.normal());
  }
  return m;
}

inline bool close(double got, double want, DType d, const Compared& how) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got);
  if (got == want) return true;
  return std::fabs(got - want) <= how.ulps * 2 * unit_roundoff(d) * std::fabs(want) + how.absolute;
}

// What a program reads and writes, and what the interpreter leaves in its outputs.
struct TileCase {
  const tile::Program& program;
  const lower::Lowered& lowered;
  const Compared& how;
  std::string where;  // for failures
  std::vector<Memory> inputs, constants, outputs, expected;

  TileCase(const tile::Program& p, const lower::Lowered& l, const Compared& h, uint64_t seed, std::string w)
      : program(p), lowered(l), how(h), where(std::move(w)) {
    Rng rng(seed);
    for (const auto& a : l.inputs) inputs.push_back(random_memory(a, l, how, rng));
    for (const auto& a : l.constants) constants.push_back(random_memory(a, l, how, rng));
    for (const auto& a : l.outputs) outputs.push_back(random_memory(a, l, how, rng));
    expected = outputs;
    oracle::TileArguments arguments;
    for (Memory& m : inputs) arguments.inputs.emplace_back(m.data(), m.size());
    for (Memory& m : constants) arguments.constants.emplace_back(m.data(), m.size());
    for (Memory& m : expected) arguments.outputs.emplace_back(m.data(), m.size());
    arguments.scalars = how.scalars;
    arguments.extents = how.extents;
    oracle::run(program, arguments);
  }

  void check_outputs() {
    for (size_t o = 0; o < outputs.size(); ++o) {
      ASSERT_TRUE(outputs[o].guarded()) << "output " << o << " was overrun\n" << where;
      const DType d = outputs[o].dtype;
      for (int64_t i = 0; i < outputs[o].count; ++i) {
        const void* got = outputs[o].data() + i * byte_size(d);
        const void* want = expected[o].data() + i * byte_size(d);
        if (is_real(d))
          ASSERT_TRUE(close(load_real(d, got), load_real(d, want), d, how))
              << "output " << o << " element " << i << ": " << load_real(d, got) << ", not " << load_real(d, want)
              << where;
        else
          ASSERT_EQ(load_integer(d, got), load_integer(d, want)) << "output " << o << " element " << i << where;
      }
    }
    for (const Memory& m : inputs) ASSERT_TRUE(m.guarded());
  }

  void run_natively(const jit::Built& built) {
    const lower::Lowered& l = lowered;
    auto views = [&](std::vector<Memory>& memory, const std::vector<lower::Argument>& list) {
      std::vector<jit::TensorView> out;
      for (size_t i = 0; i < memory.size(); ++i)
        out.push_back({memory[i].data(), list[i].dtype, l.shape(list[i], how.extents), {}});
      return out;
    };
    auto bound = built.bind_constants(views(constants, l.constants));
    ASSERT_TRUE(bound.ok()) << render(bound.errors(), nullptr);
    const auto workspace_bytes = built.workspace_bytes(how.extents);
    ASSERT_TRUE(workspace_bytes.ok()) << render(workspace_bytes.errors(), nullptr);
    runtime::Buffer workspace(*workspace_bytes);
    if (*workspace_bytes > 0) std::memset(workspace.data(), 0xff, static_cast<size_t>(*workspace_bytes));
    jit::RunOptions run;
    run.workspace = workspace.data();
    run.extents = how.extents;
    run.machine.flush_denormals = false;
    std::vector<Memory> again = outputs;
    const Diagnostics bad = built.run(views(inputs, l.inputs), how.scalars, views(outputs, l.outputs), *bound, run);
    ASSERT_TRUE(bad.empty()) << render(bad, nullptr);
    check_outputs();
    if (::testing::Test::HasFatalFailure()) return;
    // The same bits with another number of threads.
    ThreadPool pool(3);
    run.executor = &pool;
    ASSERT_TRUE(built.run(views(inputs, l.inputs), how.scalars, views(again, l.outputs), *bound, run).empty());
    for (size_t o = 0; o < outputs.size(); ++o)
      ASSERT_EQ(std::memcmp(again[o].bytes.data(), outputs[o].bytes.data(), again[o].bytes.size()), 0)
          << "threads change the result\n"
          << where;
  }

  void run_emulated(const jit::Target& target) {
    const lower::Lowered& l = lowered;
    std::unordered_map<sym::Expr, int64_t> values;
    for (size_t i = 0; i < l.dims.size(); ++i) values[l.dims[i]] = how.extents[i];
    const auto value = [&](sym::Expr e, int64_t fixed) { return l.dims.empty() ? fixed : l.syms->evaluate(e, values); };
    Arm64Call call;
    for (auto* list : {&inputs, &constants, &outputs})
      for (Memory& m : *list) call.tensors.emplace_back(m.data(), m.size());
    std::vector<std::byte> packed(static_cast<size_t>((l.packed_bytes + 63) / 64 * 64));
    call.tensors.emplace_back(packed);
    call.extents = how.extents;
    call.scalars = how.scalars;
    call.workspace_bytes = value(l.workspace_of, l.workspace_bytes);
    for (const lower::Launch& x : l.launches) {
      const auto& functions = l.module.functions;
      const auto f =
          std::find_if(functions.begin(), functions.end(), [&](const auto& g) { return g.name == x.function; });
      const bool open = !x.once;  // dims have no part in what runs once
      call.launches.push_back({f - functions.begin(), 0, open ? value(x.tasks_of, x.tasks) : x.tasks});
      const int64_t scratch = open ? value(x.scratch_of, x.scratch_bytes) : x.scratch_bytes;
      call.scratch_bytes = std::max(call.scratch_bytes, scratch);
    }
    jit::Options options;
    options.target = target;
    run_arm64(l.module, options, call);
    if (!::testing::Test::HasFatalFailure()) check_outputs();
  }
};

// Every other program is made for a machine without caches: what it stores goes past them.
inline Machine machine_for(Isa isa, uint64_t seed) {
  Machine m = with_isa(host_machine(), isa);
  if (seed % 2 == 1) m.l2_bytes = m.l3_bytes = 0;
  return m;
}

// Compiles, runs and compares; a failure names the text. Code for another architecture runs under an emulator.
inline void compare(const std::string& text, const Compared& how, uint64_t seed, Isa isa) {
  const SourceText source{"test", text};
  auto program = tile::parse(source);
  ASSERT_TRUE(program.ok()) << render(program.errors(), &source) << text;
  auto target = jit::cross_target(isa);
  ASSERT_TRUE(target.ok());
  const std::string where = fmt::format(" on {}, seed {}\n{}", name(isa), seed, text);
  if (!target->runs_here()) {
    const auto lowered = lower::lower(*program, machine_for(isa, seed));
    ASSERT_TRUE(lowered.ok()) << render(lowered.errors(), nullptr) << text;
    TileCase(*program, *lowered, how, seed, where).run_emulated(*target);
    return;
  }
  jit::BuildOptions options;
  options.code.target = *target;
  options.machine = machine_for(isa, seed);
  auto built = jit::build(*program, options);
  ASSERT_TRUE(built.ok()) << render(built.errors(), nullptr) << text;
  TileCase(*program, built->lowered(), how, seed, where).run_natively(*built);
}

inline void compare(const std::string& text, const Compared& how = {}, uint64_t seed = 1) {
  for (const Isa isa : isas()) {
    compare(text, how, seed, isa);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// Also on arm64, where it can be emulated.
inline void compare_with_arm64(const std::string& text, const Compared& how = {}, uint64_t seed = 1) {
  compare(text, how, seed);
  if (host_isa() == Isa::neon || !can_run_arm64() || ::testing::Test::HasFatalFailure()) return;
  compare(text, how, seed, Isa::neon);
}

}  // namespace cleave::testing
