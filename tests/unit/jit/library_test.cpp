// Shared libraries of programs: names, headers, faults of writing, and a call through dlopen.
#include <dlfcn.h>
#include <unistd.h>

#include <filesystem>

#include "base/codes.hpp"
#include "jit/library.hpp"
#include "tile_support.hpp"

namespace cleave {
namespace {

namespace fs = std::filesystem;

jit::Built program(const std::string& text) {
  const SourceText source{"test", text};
  auto parsed = tile::parse(source);
  CHECK(parsed.ok(), "{}", render(parsed.errors(), &source));
  auto built = jit::build(*parsed);
  CHECK(built.ok(), "{}", render(built.errors(), nullptr));
  return *built;
}

const char* const kDouble =
    "tile t { input X: f32[100] argument 0 output Y: f32[100] argument 0 kernel k { parallel i in 0..10 { nest (j < "
    "10) { "
    "Y[10*i + j] = add(X[10*i + j], X[10*i + j]) } } } }";

struct Folder {
  fs::path path = fs::path(::testing::TempDir()) / fmt::format("cleave-library-{}", getpid());
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
};

TEST(Library, NamesBecomeIdentifiers) {
  EXPECT_EQ(jit::c_identifier("gpt2_block"), "gpt2_block");
  EXPECT_EQ(jit::c_identifier("a/b.c-d"), "a_b_c_d");
  EXPECT_EQ(jit::c_identifier("9x"), "p_9x");
  EXPECT_EQ(jit::c_identifier(""), "p_");
  EXPECT_EQ(jit::c_identifier("float"), "float_");
}

TEST(Library, HeadersCannotBeBrokenByNames) {
  jit::Interface x{
      "n", {{"a */ int evil;", DType::f32, {2}}, {"n", DType::bf16, {}}}, {{"a", DType::f64, {3}}}, {"s"}, "*/ \n"};
  const std::string text = jit::library_header(x);
  EXPECT_NE(text.find("int n(const float* a____int_evil_, const uint16_t* n_2, double s, double* a);"),
            std::string::npos)
      << text;
  size_t comments = 0;
  for (size_t at = 0; (at = text.find("/*", at)) != std::string::npos; ++at) ++comments;
  size_t ends = 0;
  for (size_t at = 0; (at = text.find("*/", at)) != std::string::npos; ++at) ++ends;
  EXPECT_EQ(comments, ends);
}

TEST(Library, RunsThroughDlopen) {
  const Folder folder;
  const std::string path = (folder.path / "libdouble.so").string();
  const jit::Built built = program(kDouble);
  const jit::Interface x{"twice", built.lowered().inputs, built.lowered().outputs, {}, "test"};
  const Diagnostics bad = jit::write_library(built, nullptr, x, path);
  ASSERT_TRUE(bad.empty()) << render(bad, nullptr);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path), fs::directory_iterator()), 1);  // nothing is left over
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_TRUE(library) << dlerror();
  const auto call = reinterpret_cast<int (*)(const float*, float*)>(dlsym(library, "twice"));
  ASSERT_TRUE(call);
  EXPECT_FALSE(dlsym(library, "cleave_aot_run"));
  std::vector<float> in(100), out(100, NAN);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i);
  EXPECT_EQ(call(in.data(), out.data()), 0);
  for (size_t i = 0; i < in.size(); ++i) ASSERT_EQ(out[i], 2 * in[i]);
  EXPECT_EQ(call(nullptr, out.data()), 1);
  EXPECT_EQ(dlclose(library), 0);
}

TEST(Library, FaultsOfTheFileSystem) {
  const Folder folder;
  const jit::Built built = program(kDouble);
  const jit::Interface x{"twice", built.lowered().inputs, built.lowered().outputs, {}, "test"};
  const Diagnostics missing = jit::write_library(built, nullptr, x, (folder.path / "no/such/libx.so").string());
  ASSERT_EQ(missing.size(), 1u);
  EXPECT_EQ(missing[0].code, Code::file_unwritable);
  fs::create_directories(folder.path / "libx.so");  // a folder where the library should be
  const Diagnostics taken = jit::write_library(built, nullptr, x, (folder.path / "libx.so").string());
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].code, Code::link_failed);
  EXPECT_NE(taken[0].message().find("libx.so"), std::string::npos);
  // The linker can be used again.
  EXPECT_TRUE(jit::write_library(built, nullptr, x, (folder.path / "liby.so").string()).empty());
}

}  // namespace
}  // namespace cleave
