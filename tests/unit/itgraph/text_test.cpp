// The text of itGraphs: what is printed reads back as the same program, and errors say where they are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "itgraph/itgraph.hpp"

namespace cleave::itgraph {
namespace {

using ::testing::HasSubstr;

constexpr const char* kAttention = R"(itgraph attention {
  index h: 16, s: 1024, l: 1024, d: 64, e: 64
  input Q: f32[16, 1024, 64] argument 0
  input K: f32[16, 1024, 64] argument 1
  input V: f32[16, 1024, 64] argument 2
  output O: f32[16, 1024, 64] argument 0
  inner S: f32[16, 1024, 1024]
  inner m: f32[16, 1024]
  inner u: f32[16, 1024]
  inner v: f32[16, 1024, 64]
  kernel attn parallel (h: 1, s: 64) {
    reduce (l: 128) {
      S[h, s, l] = sum (d) mul(Q[h, s, d], K[h, l, d])
      m[h, s], u[h, s], v[h, s, e] = scaled (l) mul(S[h, s, l], 0.125:f32); 1.0:f32; V[h, l, e]
    }
    O[h, s, e] = div(v[h, s, e], u[h, s])
  }
}
)";

Program parsed(const std::string& text) {
  const SourceText source{"test.itgraph", text};
  auto p = parse(source);
  EXPECT_TRUE(p.ok()) << (p.ok() ? "" : render(p.errors(), &source));
  return std::move(p).value();
}

std::string errors_of(const std::string& text) {
  const SourceText source{"test.itgraph", text};
  const auto p = parse(source);
  return p.ok() ? "" : render(p.errors(), &source);
}

TEST(ItgraphText, PrintsAProgramAsItWasWritten) { EXPECT_EQ(print(parsed(kAttention)), kAttention); }

TEST(ItgraphText, KeepsSharedExpressionsGuardsAliasesAndLibraryKernels) {
  const std::string text = R"(itgraph "odd name" {
  index i: 5, j: 7, k: 2, f: 35
  input "x/0": f16[5, 7] argument 0
  input at: i64[5] argument 1
  const c: i32[7] argument 0
  scalar a: f32 argument 0
  inner x.flat: f16[35]
  inner t: f32[5, 7]
  inner t2: f32[35] alias t
  inner w: f32[5, 7]
  output y: f32[5, 7] argument 0
  output z: f32[35] argument 1
  output n: bool[5] argument 2
  output best: f32[5, 2] argument 3
  output which: i64[5, 2] argument 4
  kernel first parallel (i: 2) {
    %0 = where(lt(index(i + 3*j), index((j//2) + min(i, j))), "x/0"[i, j], cast(c[j], f32))
    %1 = mul(%0, %0)
    t[i, j], w[i, j] = add(%1, mul(%1, a[])); "x/0"[4 @ cast(neg(at[i]), i64), j] if (ge(at[i], 0:i64))
    n[i] = any (j) isnan(%0)
  }
  kernel second parallel () {
    map (f: 3) {
      z[f] = max(t2[f], -inf:f32)
    }
  }
  kernel third library cumsum t -> y axis 1 exclusive reverse
  kernel fourth library topk w -> best, which axis 1 smallest
}
)";
  // `%0` belongs to the statement that follows it.
  EXPECT_THAT(errors_of(text), HasSubstr("`%0` is not defined here"));
  std::string fixed = text;
  fixed.replace(fixed.find("isnan(%0)"), 9, "isnan(w[i, j])");
  fixed.replace(fixed.find("x.flat"), 6, "\"x.flat\"");
  EXPECT_EQ(print(parsed(fixed)), fixed);
}

}  // namespace
}  // namespace cleave::itgraph
