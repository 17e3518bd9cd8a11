// What the lowering decides: memory, tasks, order of launches, registers; and what it refuses.
#include <gtest/gtest.h>

#include "lower/lower.hpp"

namespace cleave {
namespace {

Machine machine(Isa isa = Isa::avx512) { return with_isa({}, isa); }

Result<lower::Lowered> lowered(const std::string& text, Isa isa = Isa::avx512) {
  const SourceText source{"test", text};
  TRY_ASSIGN(tile::Program program, tile::parse(source));
  return lower::lower(program, machine(isa));
}
std::string refused(const std::string& text) {
  const auto r = lowered(text);
  return r.ok() ? "" : render(r.errors(), nullptr);
}
size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size()) ++n;
  return n;
}
std::string code(const std::string& text, Isa isa = Isa::avx512) {
  const auto r = lowered(text, isa);
  return r.ok() ? vec::print(r->module) : render(r.errors(), nullptr);
}

// Kernel k reads W(k-1) and writes Wk; `also` is what the last one reads besides.
std::string chain(int length, const std::string& extent, const std::string& dims, const std::string& also = "") {
  std::string buffers, kernels;
  for (int k = 0; k < length; ++k) {
    const std::string to = k + 1 == length ? "Y" : fmt::format("W{}", k);
    const std::string from = k == 0 ? "X" : fmt::format("W{}", k - 1);
    if (to != "Y") buffers += fmt::format("workspace {}: f32[{}] ", to, extent);
    const std::string value =
        to == "Y" && !also.empty() ? fmt::format("add({}[i], {}[i])", from, also) : fmt::format("exp({}[i])", from);
    kernels += fmt::format("kernel k{} {{ nest (i < {}) {{ {}[i] = {} }} }} ", k, extent, to, value);
  }
  return fmt::format("tile t {{ {} input X: f32[{}] argument 0 output Y: f32[{}] argument 0 {} {}}}", dims, extent,
                     extent, buffers, kernels);
}

// What does not fit the caches is stored past them where rows begin at lines; not what is read again, or small.
TEST(Lower, StoresPastTheCaches) {
  const auto text = [](int rows, const std::string& more = "") {
    return fmt::format(
        "tile t {{ input X: f32[{0}, 1000] argument 0 output Y: f32[{0}, 1000] argument 0 output Z: f32[1000] argument "
        "1 "
        "kernel a {{ parallel i in 0..{0} {{ nest (j < 1000) {{ Y[i, j] = exp(X[i, j]) }} }} }} {1} }}",
        rows, more);
  };
  const std::string large = code(text(10000));
  EXPECT_EQ(count(large, "stream.f32"), 2u) << large;  // vectors of a step
  EXPECT_EQ(count(large, "store.f32"), 4u);            // the rest of the row; all of rows that begin elsewhere
  EXPECT_EQ(count(large, "fence"), 1u);
  EXPECT_EQ(count(code(text(10000), Isa::avx2), "stream.f32"), 3u);  // and the last vector
  EXPECT_EQ(count(code(text(200)), "stream"), 0u);
  EXPECT_EQ(count(code(text(10000, "kernel b { nest (j < 1000, i < 10000) { Z[j] fresh += Y[i, j] } }")), "stream"),
            0u);
}

// An accumulation that steps over pages takes much of each, and fetches ahead what comes from memory; others do
// neither.
TEST(Lower, ReadsPagesInWidePieces) {
  const auto text = [](int rows, int columns) {
    return code(
        fmt::format("tile t {{ input X: f32[{0}, {1}] argument 0 output Y: f32[{1}] argument 0 "
                    "kernel a {{ nest (j < 512, i < {0}) {{ Y[j] fresh += X[i, j] }} }} }}",
                    rows, columns));
  };
  const std::string far = text(4096, 1024), near = text(64, 1024), dense = text(4096, 512);
  EXPECT_EQ(count(far, "load.f32"), 16u) << far;
  EXPECT_EQ(count(far, "prefetch"), 16u);
  EXPECT_EQ(count(near, "load.f32"), 16u);
  EXPECT_EQ(count(near, "prefetch"), 0u);  // 256 KiB stay in L2
  EXPECT_EQ(count(dense, "load.f32"), 4u);
  EXPECT_EQ(count(dense, "prefetch"), 0u);
}

// Keys from memory are fetched into L2: L1 waits for too few lines.
TEST(Lower, FetchesTheRowsOfADotProductIntoL2) {
  const std::string text = code(
      "tile t { input Q: f32[4, 128] argument 0 input K: f32[65536, 128] argument 1 output S: f32[4, 65536] argument 0 "
      "kernel a { matmul S[0, 0] (0, 1) = Q[0, 0] (0, 1) * K[0, 0] (1, 0) size 4, 65536, 128 } }");
  EXPECT_GT(count(text, "prefetch"), 0u) << text;
  EXPECT_EQ(count(text, "prefetch"), count(text, " [2]\n"));
}

// Axes that are one axis to all that is touched run as one loop: rows of 5 become vectors of 16.
TEST(Lower, JoinsAxesThatLieBehindEachOther) {
  const auto vectors = [](const std::string& nest) {
    return count(code("tile t { input X: f32[64, 3, 5] argument 0 input V: f32[3, 5] argument 1 "
                      "output Y: f32[64, 3, 5] argument 0 output Z: f32[3, 64, 5] argument 1 kernel a { nest " +
                      nest + " } }"),
                 "f32x16") > 0;
  };
  EXPECT_TRUE(vectors("(i < 64, j < 3, k < 5) { Y[i, j, k] = exp(X[i, j, k]) }"));
  EXPECT_FALSE(vectors("(i < 64, j < 3, k < 5) { Z[j, i, k] = exp(X[i, j, k]) }"));
  EXPECT_FALSE(vectors("(i < 64, j < 3, k < 4) { Y[i, j, k] = exp(X[i, j, k]) }"));
  EXPECT_FALSE(vectors("(i < 64, j < 3, k < 5) { Y[i, j, k] = mul(X[i, j, k], cast(index(k), f32)) }"));
}

TEST(Lower, SharesWorkspaceOfKernelsThatAreApart) {
  EXPECT_EQ(lowered(chain(2, "16", ""))->workspace_bytes, 64);
  EXPECT_EQ(lowered(chain(3, "16", ""))->workspace_bytes, 128);
  EXPECT_EQ(lowered(chain(9, "16", ""))->workspace_bytes, 128);        // two in turn
  EXPECT_EQ(lowered(chain(9, "16", "", "W0"))->workspace_bytes, 192);  // and one that lives to the end
  const auto open = lowered(chain(9, "S", "dim S in 0..1000 at 32"));
  ASSERT_TRUE(open.ok()) << render(open.errors(), nullptr);
  EXPECT_EQ(open->workspace_bytes, 256);
  EXPECT_EQ(open->syms->evaluate(open->workspace_of, {{open->dims[0], 1000}}), 2 * 4032);
  // A slot grows where the next buffer is larger.
  const auto grown = lowered(
      "tile t { input X: f32[64] argument 0 output Y: f32[64] argument 0 workspace A: f32[16] workspace B: f32[1] "
      "workspace C: f32[64] kernel a { nest (i < 16) { A[i] = X[i] } } kernel b { nest (i < 1) { B[i] = A[i] } } "
      "kernel c { nest (i < 64) { C[i] = mul(X[i], B[0]) } } kernel d { nest (i < 64) { Y[i] = C[i] } } }");
  ASSERT_TRUE(grown.ok()) << render(grown.errors(), nullptr);
  EXPECT_EQ(grown->workspace_bytes, 256 + 64);
}

TEST(Lower, PlansArgumentsMemoryAndLaunches) {
  const auto r = lowered(
      "tile t { input X: f32[8, 5] argument 0 const B: f32[5] argument 0 output Y: f32[8, 5] argument 0 "
      "workspace W: f32[3, 5] workspace V: f32[8] packed P: f32[5] scratch S: f32[5] scratch T: f32[5] scalar s: f32 "
      "argument 1 "
      "kernel c { nest (i < 8) { V[i] = 0:f32 } nest (c < 5) { T[c] = 0:f32 } } "
      "kernel b once { nest (c < 5) { P[c] = B[c] } } "
      "kernel a { parallel i in 0..8 step 3 { parallel j in i..i + 2 { nest (c < 5) { S[c] = mul(P[c], s[]) } "
      "nest (c < 5) { Y[j - j%8, c] += S[c] } } } } }");
  ASSERT_TRUE(r.ok()) << render(r.errors(), nullptr);
  ASSERT_EQ(r->launches.size(), 3u);
  EXPECT_TRUE(r->launches[0].once);  // first, although it comes later in the text
  EXPECT_EQ(r->launches[0].tasks, 1);
  EXPECT_EQ(r->launches[2].tasks, 6);
  EXPECT_EQ(r->launches[2].scratch_bytes, 64);
  EXPECT_EQ(r->launches[1].scratch_bytes, 64);  // another kernel, the same bytes
  EXPECT_EQ(r->workspace_bytes, 64);            // no kernel uses W
  EXPECT_EQ(r->packed_bytes, 64);
  EXPECT_EQ(r->scalars, 2);
  EXPECT_EQ(r->inputs[0].shape, (std::vector<int64_t>{8, 5}));
  EXPECT_EQ(r->constant_tensor(0), 1);
  EXPECT_EQ(r->output_tensor(0), 2);
  EXPECT_EQ(r->packed_tensor(), 3);
  EXPECT_TRUE(vec::verify(r->module).empty());
}

TEST(Lower, SaysWhatItCannotLower) {
  EXPECT_NE(refused("tile t { output Y: f32[4] argument 0 kernel a { for n in 1..3 { nest (i < 4) { Y[i] &= lt(1:f32, "
                    "2:f32) } } } }"),
            "");
  EXPECT_NE(refused("tile t { output Y: bool[4] argument 0 input X: bool[4] argument 0 kernel a { nest (i < 4) { Y[i] "
                    "= abs(X[i]) } } }")
                .find("no meaning for bool"),
            std::string::npos);
  EXPECT_NE(refused("tile t { output Y: i32[4] argument 0 input X: i32[4] argument 0 kernel a { nest (i < 4) { Y[i] = "
                    "exp(X[i]) } } }")
                .find("i32"),
            std::string::npos);
  EXPECT_NE(refused("tile t { output Y: f32[4] argument 0 kernel a { parallel i in 0..4 { parallel j in 0..i { nest () "
                    "{ Y[j] = 0:f32 } } } } }")
                .find("varies in a call"),
            std::string::npos);
  EXPECT_NE(
      refused("tile t { output Y: f32[4] kernel a { nest (i < 4) { Y[i] = 0:f32 } } }").find("no argument position"),
      std::string::npos);
  EXPECT_NE(refused("tile t { scratch S: f32[4, 4] scratch T: f32[17] alias S output Y: f32[4] argument 0 kernel a { "
                    "nest (i < 4) { Y[i] = 0:f32 } } }")
                .find("larger than"),
            std::string::npos);
  EXPECT_NE(
      refused(
          "tile t { scratch S: f32[4000000000] output Y: f32[4] argument 0 kernel a { nest (i < 4) { Y[i] = S[i] } } }")
          .find("too large"),
      std::string::npos);
  // What to change is said with names that the user gave.
  for (const char* shape : {"65536, 8192", "65536000, 8192000"}) {
    const std::string why = refused(fmt::format(
        "tile t {{ dim A in 0..2147483648 at 2 dim B in 0..9 at 3 input X: f32[A, B] argument 0 output Y: f32[A, B] "
        "argument 0 scratch S: f32[{}] kernel a {{ parallel i in 0..A step 65536 {{ nest (k < min(65536, A - i)) {{ "
        "S[k, 0] = X[i + k, 0] }} nest (k < min(65536, A - i)) {{ Y[i + k, 0] = S[k, 0] }} }} }} }}",
        shape));
    EXPECT_NE(why.find("no code can be made for `Y`"), std::string::npos) << why;
    EXPECT_NE(why.find("`A` (0..2147483648)"), std::string::npos) << why;
    EXPECT_EQ(why.find("`B`"), std::string::npos) << why;
  }
  EXPECT_NE(refused("tile t { workspace S: f32[4000000000, 4000000000, 4000000000] output Y: f32[4] argument 0 kernel "
                    "a { nest (i < 4) { Y[i] = S[i, i, i] } } }")
                .find("too large"),
            std::string::npos);
  EXPECT_NE(refused("tile t { output Y: f32[4, 4] argument 0 output R: f32[4] argument 1 kernel a { nest (i < 4, j < i "
                    "+ 1) { R[j] fresh += Y[i, j] } } }")
                .find("fresh"),
            std::string::npos);
}

TEST(Lower, HoldsAccumulatorsInRegisters) {
  // One pass stores the exponentials and keeps their sum: two stores, one of them a vector.
  const std::string row = code(
      "tile t { input X: f32[8, 128] argument 0 output P: f32[8, 128] argument 0 output R: f32[8] argument 1 kernel a "
      "{ "
      "nest (i < 8, j < 128) { %0 = exp(X[i, j]) P[i, j] = %0 R[i] fresh += %0 } } }");
  EXPECT_EQ(count(row, "reduce.add"), 1u) << row;
  EXPECT_EQ(count(row, "store.f32"), 5u) << row;  // four vectors unrolled and one sum
  EXPECT_EQ(count(row, "iter("), 1u) << row;
  // Sums of columns: the rows are the inner loop, nothing is stored in it.
  const std::string column = code(
      "tile t { input X: f32[9, 64] argument 0 output C: f32[64] argument 0 kernel a { nest (i < 9, j < 64) { C[j] "
      "fresh += X[i, j] } } }");
  EXPECT_EQ(count(column, "store.f32"), 4u) << column;
  EXPECT_EQ(count(column, "gather"), 0u) << column;
}

TEST(Lower, ChoosesTheAxisOfContiguousAccesses) {
  for (const Isa isa : {Isa::avx512, Isa::avx2}) {
    const std::string t = code(
        "tile t { input X: f32[40, 64] argument 0 output Y: f32[40, 64] argument 0 kernel a { nest (j < 64, i < 40) { "
        "Y[i, j] = neg(X[i, j]) } } }",
        isa);
    EXPECT_EQ(count(t, "gather") + count(t, "scatter"), 0u) << t;
    EXPECT_NE(t.find(isa == Isa::avx512 ? "f32x16" : "f32x8"), std::string::npos);
  }
}

TEST(Lower, FindsRunsInsidePanels) {
  const std::string t = code(
      "tile t { input X: f32[20, 128] argument 0 workspace P: f32[20, 128] panel 32 output Y: f32[20, 128] argument 0 "
      "kernel a { nest (k < 20, n < 128) { P[k, n] = X[k, n] } } "
      "kernel b { nest (k < 20, n < 128) { Y[k, n] = P[k, n] } } }");
  EXPECT_EQ(count(t, "gather") + count(t, "scatter"), 0u) << t;
}

}  // namespace
}  // namespace cleave
