#include <gtest/gtest.h>

#include "base/rng.hpp"
#include "vec/builder.hpp"

namespace cleave::vec {
namespace {

const char* kText = R"(func "axpy"(v0, v1, v2) {
  v3 = const 0 : i64
  v4 = const 8 : i64
  v5 = const 0.5 : f32x8
  v6 = const 4 : i64
  v7 = load_ptr v0 : ptr
  v8 = load.i64 v7 : i64
  v9 = for v10 = v3 to v8 step v4 iter(v11 = v5) {
    v12 = apply.sub v8, v10 : i64
    v13 = apply.mul v10, v6 : i64
    v14 = ptr_add v2, v13 : ptr
    v15 = load.bf16 v14 count v12 : f32x8
    v16 = fma v15, v5, v11 : f32x8
    store.f32 v16, v14 count v12
    yield v16
  }
  v17 = reduce.add v9 : f32
  v18 = shuffle v9, v9 [0, 15, 3] : f32x3
  v19 = apply.lt v8, v4 : bool
  v20 = if v19 : f32 {
    yield v17
  } else {
    v21 = extract v18 [2] : f32
    yield v21
  }
  store.f32 v20, v2
  prefetch v2 [3]
}
)";

TEST(VecText, PrintsWhatItParsed) {
  auto m = parse({"axpy", kText});
  ASSERT_TRUE(m.ok()) << render(m.errors(), nullptr);
  EXPECT_EQ(print(*m), kText);
}

TEST(VecText, NamesAreFreeAndPrintingIsCanonical) {
  auto m = parse(
      {"t", "func \"f\"(call, task, s) { one = const 1 : i64 next = apply.add task, one : i64 store.i64 next, s }"});
  ASSERT_TRUE(m.ok()) << render(m.errors(), nullptr);
  EXPECT_EQ(print(*m),
            "func \"f\"(v0, v1, v2) {\n  v3 = const 1 : i64\n  v4 = apply.add v1, v3 : i64\n  store.i64 v4, v2\n}\n");
}

TEST(VecText, ConstantsKeepTheirBits) {
  auto m =
      parse({"t",
             "func \"f\"(a, b, c) {\n k = const -inf : f32x4\n store.f32 k, c\n n = const nan : f64\n store.f64 n, c\n"
             " i = const -9223372036854775807 : i64\n store.i64 i, c\n t = const 0.1 : f32\n store.f32 t, c\n}"});
  ASSERT_TRUE(m.ok()) << render(m.errors(), nullptr);
  auto again = parse({"t", print(*m)});
  ASSERT_TRUE(again.ok());
  for (uint32_t i = 3; i < m->functions[0].values.size(); ++i)
    EXPECT_EQ(m->functions[0].values[Value(i)].bits, again->functions[0].values[Value(i)].bits);
}

TEST(VecText, ReportsWrongPrograms) {
  const char* cases[] = {
      "store.f32 v9, v2",                                         // undefined
      "v3 = const 1 : i64 v3 = const 2 : i64",                    // twice
      "v3 = frobnicate v1 : i64",                                 // unknown
      "v3 = apply.frob v1 : i64",                                 // unknown function
      "v3 = apply.add v1, v2 : i64",                              // i64 + ptr
      "v3 = apply.exp v1 : i64",                                  // exp of an integer
      "v3 = apply.add v1 : i64",                                  // arity
      "v3 = load.f32 v1 : f32",                                   // address is no ptr
      "v3 = load.f32 v2 : f64",                                   // wrong result
      "v3 = load.f32 v2 : f32x999",                               // too wide
      "v3 = load.f32 v2 : f16",                                   // memory only
      "v3 = load.f32 v2 : f32x8 v4 = extract v3 [8] : f32",       // lane
      "v3 = load.f32 v2 : f32x8 v4 = shuffle v3, v3 [16] : f32",  // index
      "v3 = load.f32 v2 : f32x3 v4 = reduce.add v3 : f32",        // no power of two
      "v3 = load.f32 v2 : f32x4 v4 = reduce.sub v3 : f32",        // no such reduction
      "for v3 = v1 to v1 step v1 { }",                            // no yield
      "v4 = for v3 = v1 to v1 step v1 { yield v3 }",              // nothing carried
      "v3 = const 0 : i64 for v4 = v1 to v1 step v3 { yield }",   // step 0
      "for v3 = v1 to v1 step v1 { yield yield }",                // after the yield
      "for v3 = v1 to v1 step v1 { yield } store.i64 v3, v2",     // out of scope
      "if v1 { yield } else { yield }",                           // condition
      "yield",                                                    // outside
      "v3 = apply.eq v1, v1 : bool v4 = if v3 : i64 { yield v1 } else { yield v2 }",
      "v3 = bitcast v1 : f32",  // sizes
      "prefetch v2 [7]",
      "v3 = const 1.5 : i64",
  };
  for (const char* body : cases) {
    auto m = parse({"t", fmt::format("func \"f\"(v0, v1, v2) {{ {} }}", body)});
    EXPECT_FALSE(m.ok()) << body;
  }
  EXPECT_FALSE(parse({"t", "func \"f\"(v0, v1, v2) {"}).ok());
  EXPECT_FALSE(parse({"t", "func \"f\"(v0, v1, v2) { } func \"f\"(v0, v1, v2) { }"}).ok());
}

TEST(VecText, DeepNestingIsAnErrorNotACrash) {
  std::string text = "func \"f\"(v0, v1, v2) { ";
  for (int i = 0; i < 100000; ++i) text += fmt::format("for i{} = v1 to v1 step v1 {{ ", i);
  EXPECT_FALSE(parse({"t", text}).ok());
}

TEST(VecText, MutilatedTextsNeverCrash) {
  Rng rng(5);
  const std::string original = kText;
  int parsed = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string s = original;
    for (uint64_t edits = 1 + rng.below(4); edits > 0; --edits) {
      const size_t at = rng.below(s.size());
      switch (rng.below(3)) {
        case 0: s.erase(at, 1 + rng.below(6)); break;
        case 1: s[at] = static_cast<char>(original[rng.below(original.size())]); break;
        default: s.insert(at, original.substr(rng.below(original.size()), rng.below(12)));
      }
    }
    auto m = parse({"t", s});
    if (m.ok()) {
      ++parsed;
      auto again = parse({"t", print(*m)});
      ASSERT_TRUE(again.ok()) << s;
      ASSERT_EQ(print(*again), print(*m));
    }
  }
  EXPECT_GT(parsed, 10);
}

TEST(VecVerify, ListsAllViolations) {
  Module m;
  m.functions.emplace_back("f");
  Builder b(m.functions[0]);
  const Value x = b.load(b.scratch(), DType::f32, 8);
  const Value y = b.add(x, x), z = b.apply(Fn::lt, {x, y});
  (void)z;
  m.functions[0].insts[InstId(1)].operands[0] = b.task();  // f32x8 + i64
  m.functions[0].insts[InstId(2)].operands.pop_back();
  EXPECT_EQ(verify(m).size(), 2u);
  m.functions[0].insts[InstId(0)].op = static_cast<Op>(200);
  EXPECT_FALSE(verify(m).empty());
}

}  // namespace
}  // namespace cleave::vec
