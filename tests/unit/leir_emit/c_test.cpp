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
void runs_equal(const std::vector<std::string>& samples) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / fmt::format("leir_cuda_{}", getpid());
  std::filesystem::create_directories(folder);
  for (size_t i = 0; i < samples.size(); ++i) {
    const Program p = cleave::testing::leir_program(samples[i]);
    const auto text = emit_cuda(p);
    ASSERT_TRUE(text.ok()) << samples[i] << render(text.errors(), nullptr);
    std::ofstream(folder / "p.cpp") << *text;
    const std::string library = (folder / fmt::format("p{}.so", i)).string();
    ASSERT_EQ(std::system(fmt::format("clang-19 {} -O0 -w -shared -fPIC -o {} {}/p.cpp -lm", cuda_flags(), library,
                                      folder.string())
                              .c_str()),
              0)
        << *text;
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
  }
  std::filesystem::remove_all(folder);
}

TEST(EmitCuda, RunsEqualOneThreadAfterTheOther) {
  if (std::system("clang-19 --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "clang-19 is not installed";
  std::vector<std::string> chosen;
  const auto samples = cleave::testing::leir_samples();
  for (size_t i = 0; i < samples.size(); i += 3) chosen.push_back(samples[i]);
  runs_equal(chosen);
}

// Threads that use what others wrote: in shared memory, in sums, from one iteration of a serial loop to the next, with
// axes that some equations do not have, and places without work.
const std::vector<std::string> kWaiting = {
    "in A f32[3,8];out C f32[3,8];B^{3}_{bx=0}[B^{8}_{tx=0}[S^{f32,s}_{tx}=A^{f32,g}_{bx,tx};];"
    "B^{8}_{tx=0}[C^{f32,g}_{bx,tx}=S^{f32,s}_{7-tx};];];",
    "in A f32[4,6];out C f32[4];B^{4}_{bx=0}B^{6}_{tx=0}[C^{f32,g}_{bx}=C^{f32,g}_{bx}+A^{f32,g}_{bx,tx};];",
    "in A f32[4];out C f32[1];L^{1}_{a=0}B^{4}_{tx=0}[C^{f32,g}_{a}=C^{f32,g}_{a}+A^{f32,g}_{tx};];",
    "in A f32[5,16];out C f32[5,16];B^{5}_{bx=0}["
    "B^{16}_{tx=0}[M^{f32,s}_{bx}=max(M^{f32,s}_{bx},A^{f32,g}_{bx,tx});];"
    "B^{16}_{tx=0}[E^{f32,s}_{bx,tx}=exp(A^{f32,g}_{bx,tx}-M^{f32,s}_{bx});];"
    "B^{16}_{tx=0}[S^{f32,s}_{bx}=S^{f32,s}_{bx}+E^{f32,s}_{bx,tx};];"
    "B^{16}_{tx=0}[C^{f32,g}_{bx,tx}=E^{f32,s}_{bx,tx}/S^{f32,s}_{bx};];];",
    "in A f32[7,9];out C f32[7,9];L^{7}_{a=0}B^{9}_{tx=0}[C^{f32,g}_{a,tx}=A^{f32,g}_{a,tx}+"
    "if_then_else(a<1,0,if_then_else(tx<1,C^{f32,g}_{a-1,8},C^{f32,g}_{a-1,tx-1}));];",
    "in A f32[16,24];in W f32[24,8];out C f32[16,8];B^{4}_{bx=0}["
    "B^{4}_{ty=0}B^{8}_{tx=0}[C^{f32,g}_{bx*4+ty,tx}=0;];L^{3}_{c=0}["
    "B^{4}_{ty=0}B^{8}_{tx=0}[S^{f32,s}_{ty,tx}=A^{f32,g}_{bx*4+ty,c*8+tx};];"
    "B^{8}_{ty=0}B^{8}_{tx=0}[D^{f32,s}_{ty,tx}=W^{f32,g}_{c*8+ty,tx};];"
    "B^{4}_{ty=0}B^{8}_{tx=0}L^{8}_{d=0}[C^{f32,g}_{bx*4+ty,tx}=C^{f32,g}_{bx*4+ty,tx}+S^{f32,s}_{ty,d}*D^{f32,s}_{d,"
    "tx};];"
    "];];",
    "in A f32[6];out C f32[10];B^{1}_{bx=0}[B^{6}_{tx=0}[S^{f32,s}_{tx}=A^{f32,g}_{tx}*2;];"
    "D^{f32,s}=S^{f32,s}_{0}+S^{f32,s}_{5};B^{10}_{tx=0}[C^{f32,g}_{tx}=D^{f32,s}+tx;];];",
    "in A f32[5,7];out C f32[5,7];B^{5}_{ty=0}[B^{7}_{tx=0}[S^{f32,g}_{ty,tx}=A^{f32,g}_{ty,tx};];"
    "B^{7}_{tx=0}[C^{f32,g}_{ty,tx}=S^{f32,g}_{ty,6-tx};];];",
    // Tiles whose last one is cut short, with barriers between their threads, and sums that a thread keeps.
    "in A f32[37];out C f32[37];B^{5}_{bx=0}[B^{min(8,37-bx*8)}_{tx=0}[S^{f32,s}_{tx}=A^{f32,g}_{bx*8+tx};];"
    "B^{min(8,37-bx*8)}_{tx=0}[C^{f32,g}_{bx*8+tx}=S^{f32,s}_{min(8,37-bx*8)-1-tx};];];",
    "in A f32[19,20];in W f32[20,13];out C f32[19,13];B^{5}_{by=0}B^{2}_{bx=0}["
    "B^{min(4,19-by*4)}_{ty=0}B^{min(8,13-bx*8)}_{tx=0}[C^{f32,g}_{by*4+ty,bx*8+tx}=0;];L^{3}_{a=0}["
    "B^{min(4,19-by*4)}_{ty=0}B^{min(8,20-a*8)}_{tx=0}[S^{f32,s}_{ty,tx}=A^{f32,g}_{by*4+ty,a*8+tx};];"
    "B^{min(4,19-by*4)}_{ty=0}B^{min(8,13-bx*8)}_{tx=0}L^{min(8,20-a*8)}_{c=0}[C^{f32,g}_{by*4+ty,bx*8+tx}="
    "C^{f32,g}_{by*4+ty,bx*8+tx}+S^{f32,s}_{ty,c}*W^{f32,g}_{a*8+c,bx*8+tx};];];];",
};

TEST(EmitCuda, ThreadsWaitForWhatTheyUse) {
  if (std::system("clang-19 --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "clang-19 is not installed";
  for (const std::string& text : kWaiting) {
    const auto cuda = emit_cuda(cleave::testing::leir_program(text));
    ASSERT_TRUE(cuda.ok()) << text;
    EXPECT_NE(cuda->find("LAUNCH_WAITING(leir"), std::string::npos) << text;
  }
  runs_equal(kWaiting);
}

TEST(EmitCuda, ThreadsThatKeepApartDoNotWait) {
  for (const char* text :
       {"in A f32[3,8];out C "
        "f32[3,8];B^{3}_{bx=0}B^{8}_{tx=0}[S^{f32,l}=A^{f32,g}_{bx,tx};C^{f32,g}_{bx,tx}=S^{f32,l};];",
        "in A f32[3,8];out C f32[3,8];B^{3}_{bx=0}[B^{8}_{tx=0}[S^{f32,s}_{tx}=A^{f32,g}_{bx,tx};];"
        "B^{8}_{tx=0}[C^{f32,g}_{bx,tx}=S^{f32,s}_{tx};];];",
        "in A f32[3,8];out C f32[8];L^{3}_{a=0}B^{8}_{tx=0}[C^{f32,g}_{tx}=C^{f32,g}_{tx}+A^{f32,g}_{a,tx};];"}) {
    const auto cuda = emit_cuda(cleave::testing::leir_program(text));
    ASSERT_TRUE(cuda.ok()) << text << render(cuda.errors(), nullptr);
    EXPECT_EQ(cuda->find("LAUNCH_WAITING(leir"), std::string::npos) << *cuda;
  }
}

TEST(EmitCuda, RefusesWhatBlocksWouldHaveToWaitFor) {
  for (const auto& [text, reason] : {
           std::pair{
               "in A f32[4,6];out C f32[6];B^{4}_{bx=0}B^{6}_{tx=0}[C^{f32,g}_{tx}=C^{f32,g}_{tx}+A^{f32,g}_{bx,tx};];",
               "`bx` is reduced over across blocks"},
           {"in A f32[4];out C f32[4];L^{1}_{a=0}[B^{4}_{bx=0}[S^{f32,g}_{bx}=A^{f32,g}_{bx};];"
            "B^{4}_{bx=0}[C^{f32,g}_{bx}=S^{f32,g}_{3-bx};];];",
            "blocks on `bx` would have to wait for each other, as they share `S`"},
           {"in A f32[5,8];out C "
            "f32[5];L^{5}_{c=0}[C^{f32,g}_{c}=0;];B^{5}_{bx=0}B^{bx+1}_{tx=0}[C^{f32,g}_{bx}=C^{f32,g}_{"
            "bx}+A^{f32,g}_{bx,tx};];",
            "`tx` is reduced over across threads, and its extent is no number"},
           // Memory that each iteration would have for itself, which threads of a block share, or all of a kernel.
           {"in A f32[4,8];out C "
            "f32[4,8];B^{4}_{tx=0}[L^{8}_{a=0}[S^{f32,s}_{a}=A^{f32,g}_{tx,a};];L^{8}_{a=0}[C^{f32,g}_{tx,"
            "a}=S^{f32,s}_{7-a};];];",
            "threads on `tx` would share memory"},
           {"in A f32[4,2000];out C "
            "f32[4,2000];B^{4}_{bx=0}[L^{2000}_{a=0}[S^{f32,l}_{a}=A^{f32,g}_{bx,a};];L^{2000}_{a=0}["
            "C^{f32,g}_{bx,a}=S^{f32,l}_{1999-a};];];",
            "blocks on `bx` would share memory"},
       }) {
    const auto r = emit_cuda(cleave::testing::leir_program(text));
    ASSERT_FALSE(r.ok()) << text;
    EXPECT_EQ(r.errors()[0].code, Code::leir_unsupported);
    EXPECT_NE(render(r.errors(), nullptr).find(reason), std::string::npos) << render(r.errors(), nullptr);
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
