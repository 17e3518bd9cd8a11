#include "leir_emit/c.hpp"
#include "base/codes.hpp"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "support/leir_check.hpp"

using namespace cleave;
using namespace cleave::leir;

namespace {

// All samples as one C file, compiled once.
TEST(EmitC, ComputesBitwiseWhatTheInterpreterDoes) {
  if (std::system("clang-19 --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "clang-19 is not installed";
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / fmt::format("leir_c_{}", getpid());
  std::filesystem::create_directories(folder);
  const auto samples = cleave::testing::leir_samples();
  std::vector<Program> programs;
  std::ofstream file(folder / "all.c");
  for (size_t i = 0; i < samples.size(); ++i) {
    programs.push_back(cleave::testing::leir_program(samples[i]));
    const auto c = emit_c(programs.back(), {.prelude = i == 0, .name = fmt::format("run_{}", i)});
    ASSERT_TRUE(c.ok()) << render(c.errors(), nullptr);
    file << *c;
  }
  file.close();
  const std::string command = fmt::format("clang-19 {} -w -O1 -shared -fPIC -o {}/all.so {}/all.c -lm", c_flags(true),
                                          folder.string(), folder.string());
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  void* library = dlopen((folder / "all.so").c_str(), RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  for (size_t i = 0; i < samples.size(); ++i) {
    auto run = reinterpret_cast<int (*)(void* const*, int64_t*)>(dlsym(library, fmt::format("run_{}", i).c_str()));
    for (uint64_t seed = 0; seed < 5; ++seed) {
      const auto inputs = cleave::testing::leir_data(programs[i], seed);
      const auto want = interpret(programs[i], inputs);
      ASSERT_TRUE(want.ok()) << render(want.errors(), nullptr);
      cleave::testing::LeirBuffers buffers(programs[i], inputs);
      int64_t at[64];
      ASSERT_EQ(run(buffers.pointers.data(), at), 0) << samples[i];
      cleave::testing::expect_same(programs[i], buffers, *want, samples[i]);
    }
  }
  dlclose(library);
  std::filesystem::remove_all(folder);
}

// Kernels as C++, each thread in turn, compared with the interpreter bit by bit.
TEST(EmitCuda, RunsEqualOneThreadAfterTheOther) {
  if (std::system("clang++-19 --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "clang-19 is not installed";
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / fmt::format("leir_cuda_{}", getpid());
  std::filesystem::create_directories(folder);
  int ran = 0;
  const auto samples = cleave::testing::leir_samples();
  for (size_t i = 0; i < samples.size(); i += 3) {
    const Program p = cleave::testing::leir_program(samples[i]);
    const auto text = emit_cuda(p);
    if (!text.ok()) {  // sums across threads need barriers, which are refused by name
      ASSERT_NE(render(text.errors(), nullptr).find("across threads"), std::string::npos)
          << samples[i] << render(text.errors(), nullptr);
      continue;
    }
    std::ofstream(folder / "p.cpp") << *text;
    const std::string library = (folder / fmt::format("p{}.so", i)).string();
    const std::string command =
        fmt::format("clang++-19 -std=c++17 -O0 -ffp-contract=off -fwrapv -w -shared -fPIC -o {} {}/p.cpp -lm", library,
                    folder.string());
    ASSERT_EQ(std::system(command.c_str()), 0) << *text;
    void* loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(loaded, nullptr) << dlerror();
    auto run = reinterpret_cast<void (*)(void* const*, int*)>(dlsym(loaded, "leir_run"));
    const auto inputs = cleave::testing::leir_data(p, i);
    const auto want = interpret(p, inputs);
    ASSERT_TRUE(want.ok());
    cleave::testing::LeirBuffers buffers(p, inputs);
    int error = 0;
    run(buffers.pointers.data(), &error);
    EXPECT_EQ(error, 0);
    cleave::testing::expect_same(p, buffers, *want, samples[i]);
    dlclose(loaded);
    ++ran;
  }
  std::filesystem::remove_all(folder);
  EXPECT_GT(ran, 10);
}

TEST(EmitCuda, RefusesWhatNeedsBarriers) {
  for (const char* text :
       {"in A f32[4];out C f32[1];L^{1}_{a=0}B^{4}_{tx=0}[C^{f32,g}_{a}=C^{f32,g}_{a}+A^{f32,g}_{tx};];",
        "in A f32[4];out C "
        "f32[4];B^{1}_{bx=0}[B^{4}_{tx=0}[S^{f32,s}_{tx}=A^{f32,g}_{tx};];B^{4}_{tx=0}[C^{f32,g}_{tx}=S^{f32,s}_{3-tx};"
        "];];"}) {
    const auto r = emit_cuda(cleave::testing::leir_program(text));
    ASSERT_FALSE(r.ok()) << text;
    EXPECT_EQ(r.errors()[0].code, Code::leir_unsupported);
  }
}

TEST(EmitC, RefusesWhatCompilersDoNotTake) {
  std::string e = "A^{f32,g}";
  for (int i = 0; i < 300; ++i) e = "if_then_else(A^{f32,g}>" + std::to_string(i) + "," + e + ",0)";
  const auto r = emit_c(cleave::testing::leir_program("in A f32[];out C f32[];B^{1}_{tx=0}[C^{f32,g}=" + e + ";];"));
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.errors()[0].code, Code::leir_unsupported);
}

}  // namespace
