#include "machine/machine.hpp"
#include "base/codes.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace cleave {
namespace {

TEST(Machine, PrintsAndParsesBack) {
  Machine m = host_machine();
  m.peak_gflops = 123.456;
  m.dram_gbytes = 1e-3;
  const std::string text = print(m);
  auto parsed = parse_machine({"host", text});
  ASSERT_TRUE(parsed.ok()) << render(parsed.errors(), nullptr) << text;
  EXPECT_EQ(*parsed, m);
}

TEST(Machine, DetectsTheHost) {
  const Machine m = host_machine();
  EXPECT_GE(m.cores, 1);
  EXPECT_GE(m.l2_bytes, m.l1_bytes);
  EXPECT_FALSE(m.name.empty());
#if defined(__x86_64__)
  EXPECT_EQ(m.isa == Isa::avx512, m.vector_bytes == 64);
  EXPECT_NE(m.isa, Isa::neon);
#endif
}

TEST(Machine, NarrowsToAnInstructionSet) {
  const Machine m = with_isa(host_machine(), Isa::avx2);
  EXPECT_EQ(m.vector_bytes, 32);
  EXPECT_EQ(m.vector_registers, 16);
  EXPECT_EQ(m.f32_lanes(), 8);
  EXPECT_EQ(m.cores, host_machine().cores);
}

TEST(Machine, TheTargetsInTheRepositoryAreReadable) {
  int n = 0;
  for (const auto& file : std::filesystem::directory_iterator(CLEAVE_SOURCE_DIR "/src/machine/targets")) {
    std::ifstream in(file.path());
    const std::string text((std::istreambuf_iterator<char>(in)), {});
    auto m = parse_machine({file.path().string(), text});
    ASSERT_TRUE(m.ok()) << render(m.errors(), nullptr);
    EXPECT_GT(m->peak_gflops, 0) << file.path();
    EXPECT_NEAR(m->peak_gflops, 2 * m->fma_pipes * m->f32_lanes() * m->gigahertz, 0.02 * m->peak_gflops) << file.path();
    ++n;
  }
  EXPECT_GE(n, 2);
}

TEST(Machine, RefusesWrongDescriptions) {
  const std::pair<const char*, Code> cases[] = {
      {"machine \"x\"\nwings = 2\n", Code::unknown_attribute},
      {"machine \"x\"\nisa = sse\n", Code::unexpected_token},
      {"machine \"x\"\ncores = 0\n", Code::number_out_of_range},
      {"machine \"x\"\ncores = 1.5\n", Code::number_out_of_range},
      {"machine \"x\"\npeak_gflops = nan\n", Code::number_out_of_range},
      {"machine \"x\"\nvector_bytes = 99999999999999999999\n", Code::number_out_of_range},
      {"engine \"x\"\n", Code::unexpected_token},
  };
  for (const auto& [text, code] : cases) {
    auto m = parse_machine({"t", text});
    ASSERT_FALSE(m.ok()) << text;
    EXPECT_EQ(m.errors()[0].code, code) << text;
  }
}

}  // namespace
}  // namespace cleave
