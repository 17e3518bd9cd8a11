#include "base/codes.hpp"
#include "eval/vec_eval.hpp"
#include "support.hpp"

namespace cleave {
namespace {

using vec::Value;

vec::Module doubling() {
  vec::Module module;
  module.functions.emplace_back("double it");
  vec::Builder b(module.functions.back());
  const Value p = b.tensor_data(0);
  const Value x = b.load(p, DType::f32, 8, b.extent(0));
  b.store(b.apply(Fn::exp, {b.add(b.mul(x, x), x)}), p, DType::f32, b.extent(0));
  b.store(b.cast(b.task(), vec::Elem::f32), b.ptr_add(p, 32), DType::f32);
  return module;
}

TEST(Jit, StoredObjectsRunWithoutCompiling) {
  auto compiled = jit::compile(doubling());
  ASSERT_TRUE(compiled.ok());
  auto loaded = jit::load_object(compiled->object());
  ASSERT_TRUE(loaded.ok());
  float once[9] = {1, 2, 3}, again[9] = {1, 2, 3};
  const int64_t extents[] = {3};
  for (auto [module, data] : {std::pair(&*compiled, once), std::pair(&*loaded, again)}) {
    const CleaveTensor tensors[] = {{data, nullptr}};
    const CleaveCall call{tensors, extents, nullptr, nullptr};
    module->function("double it").value()(&call, 4, nullptr);
  }
  EXPECT_EQ(std::memcmp(once, again, sizeof once), 0);
  EXPECT_NEAR(once[1], 403.4288f, 1e-3);
  EXPECT_EQ(once[3], 0.0f);
  EXPECT_EQ(once[8], 4.0f);
}

TEST(Jit, CodeOutlivesTheModuleItWasAskedFrom) {
  CleaveKernel kernel = nullptr;
  std::optional<jit::CompiledModule> copy;
  {
    auto compiled = jit::compile(doubling());
    copy = *compiled;
    kernel = compiled->function("double it").value();
  }
  float data[9] = {};
  const CleaveTensor tensors[] = {{data, nullptr}};
  const int64_t extents[] = {8};
  const CleaveCall call{tensors, extents, nullptr, nullptr};
  kernel(&call, 0, nullptr);
  EXPECT_EQ(data[7], 1.0f);
}

TEST(Jit, NeverSetsAFastMathFlag) {
  const auto text = jit::llvm_text(doubling());
  ASSERT_TRUE(text.ok());
  for (const char* flag : {" fast ", " nnan", " ninf", " nsz", " arcp", " afn", " reassoc"})
    EXPECT_EQ(text->find(flag), std::string::npos) << flag;
}

TEST(Jit, ReportsWhatCannotBeCompiledOrFound) {
  vec::Module module = doubling();
  module.functions[0].insts[vec::InstId(0)].operands.clear();
  EXPECT_FALSE(jit::compile(module).ok());
  auto compiled = jit::compile(doubling());
  auto missing = compiled->function("triple it");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.errors()[0].code, Code::missing_function);
  EXPECT_FALSE(jit::load_object({1, 2, 3}).ok());
  EXPECT_FALSE(jit::target_for(Isa::neon).ok());
}

TEST(Jit, CodeForAvx2UsesNoWiderRegisters) {
  auto target = jit::target_for(Isa::avx2);
  if (!target) GTEST_SKIP() << "no AVX2 here";
  jit::Options options;
  options.target = *target;
  const auto text = jit::asm_text(doubling(), options);
  EXPECT_EQ(text->find("zmm"), std::string::npos);
  EXPECT_EQ(text->find("%k1"), std::string::npos);
  EXPECT_NE(text->find("ymm"), std::string::npos);
  // Never a masked store: it costs six times a plain one on some machines.
  for (size_t at = text->find("vmaskmovps"); at != std::string::npos; at = text->find("vmaskmovps", at + 1)) {
    const std::string line = text->substr(at, text->find('\n', at) - at);
    EXPECT_NE(line.find('('), std::string::npos);
    EXPECT_LT(line.find('('), line.rfind("%ymm")) << "stores: " << line;
  }
}

TEST(Jit, CountsSpillsOfInnermostLoops) {
  const char* text =
      "f:\n# %bb.0:\n\tmovq %rax, 8(%rsp) # 8-byte Spill\n"
      ".LBB0_1: # =>This Loop Header: Depth=1\n\tmovq 8(%rsp), %rax # 8-byte Reload\n"
      ".LBB0_2: #   Parent Loop BB0_1 Depth=1\n          # =>  This Inner Loop Header: Depth=2\n"
      "\tvmovups %zmm0, 64(%rsp) # 64-byte Spill\n"
      ".LBB0_3: #   in Loop: Header=BB0_2 Depth=2\n\tvaddps 64(%rsp), %zmm1, %zmm0 # 64-byte Folded Reload\n"
      ".LBB0_4: #   in Loop: Header=BB0_1 Depth=1\n\tmovq 8(%rsp), %rax # 8-byte Reload\n";
  const jit::SpillCount n = jit::count_spills(text);
  EXPECT_EQ(n.innermost, 2);
  EXPECT_EQ(n.total, 5);
}

TEST(Jit, CacheKeysTellTargetsApart) {
  jit::Options a, b;
  if (auto t = jit::target_for(Isa::avx2)) b.target = *t;
  if (a.target.isa != b.target.isa) {
    EXPECT_NE(jit::cache_key(a), jit::cache_key(b));
  }
  b = a;
  b.expand_math = false;
  EXPECT_NE(jit::cache_key(a), jit::cache_key(b));
}

}  // namespace
}  // namespace cleave
