// Code for arm64, made on any processor: no register spills, no calls but of the scalar helpers; and run under an
// emulator where there is one (matmul_test, math_test and random_test run theirs there too).
#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest-spi.h>

#include <fstream>
#include <set>

#include "base/codes.hpp"
#include "machine/register_tile.hpp"
#include "support.hpp"
#include "tile_support.hpp"
#include "vec/dot_tile.hpp"
#include "vec/microkernel.hpp"

namespace cleave {
namespace {

using ::testing::HasSubstr;
using vec::Value;

jit::Options arm64() {
  jit::Options o;
  o.target = jit::cross_target(Isa::neon).value();
  return o;
}
Machine arm64_machine() { return with_isa(Machine{}, Isa::neon); }

// Symbols that an ELF object of 64 bits takes from elsewhere.
std::set<std::string> undefined_symbols(const std::vector<uint8_t>& object) {
  const auto read = [&]<class T>(T, uint64_t at) {
    T value{};
    CHECK(at + sizeof(T) <= object.size(), "an object that ends early");
    std::memcpy(&value, object.data() + at, sizeof(T));
    return value;
  };
  std::set<std::string> out;
  const auto header = read(Elf64_Ehdr{}, 0);
  for (uint64_t i = 0; i < header.e_shnum; ++i) {
    const auto section = read(Elf64_Shdr{}, header.e_shoff + i * sizeof(Elf64_Shdr));
    if (section.sh_type != SHT_SYMTAB) continue;
    const auto strings = read(Elf64_Shdr{}, header.e_shoff + section.sh_link * sizeof(Elf64_Shdr));
    for (uint64_t at = sizeof(Elf64_Sym); at < section.sh_size; at += sizeof(Elf64_Sym))
      if (const auto symbol = read(Elf64_Sym{}, section.sh_offset + at); symbol.st_shndx == SHN_UNDEF)
        out.insert(reinterpret_cast<const char*>(object.data() + strings.sh_offset + symbol.st_name));
  }
  return out;
}
struct Operands {
  DType a, b, c;
};
const Operands kOperands[] = {{DType::f32, DType::f32, DType::f32},
                              {DType::f32, DType::bf16, DType::f32},
                              {DType::f32, DType::f16, DType::f32},
                              {DType::bf16, DType::bf16, DType::bf16},
                              {DType::f16, DType::f16, DType::f16}};

// Neither spills in the innermost loops nor calls.
void check_code(const vec::Module& module, const std::string& what) {
  const auto text = jit::asm_text(module, arm64());
  ASSERT_TRUE(text.ok()) << render(text.errors(), nullptr);
  EXPECT_EQ(jit::count_spills(*text).innermost, 0) << what << "\n" << *text;
  const auto object = jit::object_code(module, arm64());
  ASSERT_TRUE(object.ok());
  EXPECT_THAT(undefined_symbols(*object), ::testing::IsEmpty()) << what;
}

enum Columns { all, padded, tail };
void check_matmul_tile(vec::TileShape shape, const Operands& o, Columns columns) {
  vec::Module module;
  module.functions.emplace_back("tile");
  vec::Builder b(module.functions.back());
  vec::MatmulTile t;
  t.rows = shape.rows, t.vectors = shape.vectors, t.lanes = arm64_machine().f32_lanes();
  t.a_dtype = o.a, t.b_dtype = o.b, t.c_dtype = o.c;
  t.k = b.extent(0);
  t.a = b.tensor_data(0), t.a_row_stride = b.i64(1), t.a_k_stride = b.i64(t.rows);
  t.b = b.tensor_data(1), t.b_row_stride = b.i64(t.vectors * t.lanes);
  t.c = b.tensor_data(2), t.c_row_stride = b.extent(1);
  if (columns != all) t.columns = b.extent(2);
  t.b_padded = columns == padded, t.overlap = true;
  t.init = vec::MatmulTile::Init::load;
  vec::emit_matmul_tile(b, t);
  check_code(module, fmt::format("{}x{}, {} {} {}, columns {}", t.rows, t.vectors, name(o.a), name(o.b), name(o.c),
                                 static_cast<int>(columns)));
}

TEST(Arm64, MatmulTilesNeitherSpillNorCall) {
  const auto shapes = vec::good_tiles(arm64_machine());
  ASSERT_GE(shapes.size(), 2u);
  for (const vec::TileShape shape : shapes)
    for (const Operands& o : kOperands)
      for (const Columns columns : {all, padded, tail}) check_matmul_tile(shape, o, columns);
}

// Those of remainders, and what the cost model may choose.
TEST(Arm64, AllOtherMatmulTilesNeitherSpillNorCall) {
  for (int vectors = 1; vectors <= 8; ++vectors)
    for (int rows = 1; rows <= 16; ++rows)
      if (tile_fits(arm64_machine(), RegisterTile{rows, vectors}, false))
        check_matmul_tile({rows, vectors}, kOperands[0], all);
}

TEST(Arm64, DotTilesNeitherSpillNorCall) {
  const int lanes = arm64_machine().f32_lanes();
  for (const int rows : {1, 2, 3, 4})
    for (const Operands& o : kOperands) {
      vec::Module module;
      module.functions.emplace_back("tile");
      vec::Builder b(module.functions.back());
      vec::DotTile t;
      t.lanes = lanes, t.rows = rows, t.columns = std::max(1, std::min(8, lanes / (rows == 3 ? 4 : rows)));
      t.a_dtype = o.a, t.b_dtype = o.b, t.c_dtype = o.c;
      t.k = b.extent(0);
      t.a = b.tensor_data(0), t.a_row_stride = b.i64(128);
      t.b = b.tensor_data(1), t.b_column_stride = b.i64(128);
      t.c = b.tensor_data(2), t.c_row_stride = b.extent(1);
      vec::emit_dot_tile(b, t);
      check_code(module, fmt::format("{}x{}, {} {} {}", rows, t.columns, name(o.a), name(o.b), name(o.c)));
      if (HasFailure()) return;
    }
}

// Every number of 16 bits, and f32 numbers near all that half precision can hold and cannot.
TEST(Arm64, HalfPrecisionIsConvertedAsElsewhere) {
  std::vector<float> reals;
  for (uint32_t high = 0; high < 0x10000; high += 5)
    for (const uint32_t low : {0x0000u, 0x0fffu, 0x1000u, 0x7fffu, 0x8000u, 0x8001u, 0x9000u})
      reals.push_back(std::bit_cast<float>(high << 16 | low));
  while (reals.size() % 8) reals.push_back(1);
  std::vector<uint16_t> halves(0x10000);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  for (const DType d : {DType::f16, DType::bf16}) {
    vec::Module module;
    module.functions.emplace_back("convert");
    vec::Builder b(module.functions.back());
    const auto map = [&](int from, DType from_type, int to, DType to_type, size_t n) {
      const Value x = b.tensor_data(from), y = b.tensor_data(to);
      for (const int lanes : {8, 1})  // the last element alone
        b.for_each(b.i64(lanes == 8 ? 0 : static_cast<int64_t>(n) - 1), b.i64(static_cast<int64_t>(n)), b.i64(lanes),
                   [&](Value i) {
                     b.store(b.load(b.element(x, i, from_type), from_type, lanes), b.element(y, i, to_type), to_type);
                   });
    };
    map(0, DType::f32, 1, d, reals.size());
    map(2, d, 3, DType::f32, halves.size());
    std::vector<uint16_t> narrowed(reals.size());
    std::vector<float> widened(halves.size());
    for (const jit::Target& target : testing::all_targets_and_arm64()) {
      jit::Options options;
      options.target = target;
      using testing::bytes_of;
      testing::run_compiled(module, options,
                            {bytes_of(reals), bytes_of(narrowed), bytes_of(halves), bytes_of(widened)});
      const auto same = [&](DType type, const void* got, double want) {
        uint64_t a = 0, e = 0;
        std::memcpy(&a, got, static_cast<size_t>(byte_size(type)));
        store_real(type, &e, want);
        return a == e || (std::isnan(want) && std::isnan(load_real(type, got)));
      };
      for (size_t i = 0; i < reals.size(); ++i)
        ASSERT_TRUE(same(d, &narrowed[i], static_cast<double>(reals[i])))
            << reals[i] << " to " << name(d) << " on " << name(target.isa);
      for (size_t i = 0; i < halves.size(); ++i)
        ASSERT_TRUE(same(DType::f32, &widened[i], load_real(d, &halves[i])))
            << name(d) << " " << halves[i] << " on " << name(target.isa);
    }
  }
}

// Whole programs: nothing is called but the scalar functions that have no instructions.
TEST(Arm64, ProgramsCallScalarFunctionsOnly) {
  const auto check = [](const std::string& text, const std::set<std::string>& called) {
    auto program = tile::parse({"test", text});
    ASSERT_TRUE(program.ok()) << render(program.errors(), nullptr);
    auto lowered = lower::lower(*program, arm64_machine());
    ASSERT_TRUE(lowered.ok());
    auto object = jit::object_code(lowered->module, arm64());
    ASSERT_TRUE(object.ok());
    EXPECT_EQ(undefined_symbols(*object), called) << text;
  };
  std::ifstream file(std::string(CLEAVE_SOURCE_DIR) + "/tests/data/attention.tile");
  check({std::istreambuf_iterator<char>(file), {}}, {});
  const auto map = [](const char* from, const char* to, const char* expression) {
    return fmt::format(
        "tile t {{ input X: {}[3, 41] argument 0 output Z: {}[3, 41] argument 0 kernel k {{ nest (i < 3, "
        "j < 41) {{ %0 = X[i, j] Z[i, j] = {} }} }} }}",
        from, to, expression);
  };
  const char* types[] = {"f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u32", "u16", "u8", "bool"};
  for (const char* from : types)
    for (const char* to : types) check(map(from, to, fmt::format("cast(%0, {})", to).c_str()), {});
  for (const char* d : {"f32", "f16", "bf16"})
    for (const char* f : {"exp", "log", "tanh", "erf", "sigmoid", "gelu_erf", "floor", "round", "sqrt"})
      check(map(d, d, fmt::format("{}(%0)", f).c_str()), {});
  for (const char* f : {"floordiv", "mod"}) check(map("i32", "i32", fmt::format("{}(%0, add(%0, %0))", f).c_str()), {});
  check(map("f64", "f64", "exp(%0)"), {"cleave_real_exp"});
}

TEST(Arm64, CodeIsMadeAndNotRun) {
  if (host_isa() == Isa::neon) GTEST_SKIP() << "arm64 is what runs here";
  const jit::Options options = arm64();
  EXPECT_FALSE(options.target.runs_here());
  EXPECT_FALSE(jit::target_for(Isa::neon).ok());
  EXPECT_EQ(jit::cross_target(host_isa()).value().key(), jit::host_target().key());
  EXPECT_NE(options.target.key(), jit::host_target().key());
  vec::Module module;
  module.functions.emplace_back("f");
  vec::Builder b(module.functions.back());
  b.store(b.load(b.scratch(), DType::f32, 4), b.ptr_add(b.scratch(), 16), DType::f32);
  EXPECT_THAT(jit::llvm_text(module, options).value(), HasSubstr("target triple = \"aarch64-"));
  EXPECT_THAT(jit::asm_text(module, options).value(), HasSubstr("q0, ["));
  auto compiled = jit::compile(module, options);
  ASSERT_FALSE(compiled.ok());
  EXPECT_EQ(compiled.errors()[0].code, Code::unsupported_target);
  auto loaded = jit::load_object(jit::object_code(module, options).value());
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.errors()[0].code, Code::bad_object);
  EXPECT_THAT(render(loaded.errors(), nullptr), HasSubstr("it is code for aarch64"));
}

TEST(Arm64, CountsSpillsInItsAssembly) {
  const char* text =
      "f:\n// %bb.0:\n\tstp d9, d8, [sp, #-64]! // 16-byte Folded Spill\n"
      ".LBB0_1: // %loop\n // =>This Inner Loop Header: Depth=1\n\tldp q2, q1, [sp, #32] // 32-byte Folded Reload\n"
      "// %bb.2: // %part\n //   in Loop: Header=BB0_1 Depth=1\n\tstr x0, [sp] // 8-byte Folded Spill\n"
      "// %bb.3: // %exit\n\tldp d9, d8, [sp], #64 // 16-byte Folded Reload\n";
  const jit::SpillCount n = jit::count_spills(text);
  EXPECT_EQ(n.innermost, 2);
  EXPECT_EQ(n.total, 4);
}

std::vector<float> g_tensor(5);  // EXPECT_FATAL_FAILURE sees no locals
void store_sevens(int64_t first, int64_t count) {
  vec::Module module;
  module.functions.emplace_back("f");
  vec::Builder b(module.functions.back());
  b.store(b.real({vec::Elem::f32, 4}, 7), b.element(b.tensor_data(0), b.extent(0), DType::f32), DType::f32,
          b.extent(1));
  testing::run_compiled(module, arm64(), {testing::bytes_of(g_tensor)}, {first, count});
}

TEST(Arm64, AccessesOutsideOfTensorsAreSeen) {
  if (host_isa() == Isa::neon || !testing::can_run_arm64()) GTEST_SKIP() << "needs qemu-aarch64 and clang-19";
  store_sevens(0, 2);
  EXPECT_THAT(g_tensor, ::testing::ElementsAre(7, 7, 0, 0, 0));
  store_sevens(1, 4);
  EXPECT_THAT(g_tensor, ::testing::ElementsAre(7, 7, 7, 7, 7));
  EXPECT_FATAL_FAILURE(store_sevens(2, 4), "the emulated program ended with signal");
  EXPECT_FATAL_FAILURE(store_sevens(-1, 2), "the emulated program ended with status 4");
}

}  // namespace
}  // namespace cleave
