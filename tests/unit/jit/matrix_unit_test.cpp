// Products of the matrix unit (or the loops that stand for it): the vector instruction against its interpreter, and
// tile programs whose rows lie in pairs against theirs.
#include <gmock/gmock.h>

#include "eval/vec_eval.hpp"
#include "support.hpp"
#include "tile_support.hpp"

namespace cleave {
namespace {

using vec::Value;

// With the unit, where there is one, and without.
std::vector<jit::Target> with_and_without() {
  std::vector<jit::Target> out = {jit::host_target()};
  if (host_has_matrix_unit() && jit::target_for(Isa::avx2).ok()) out.push_back(*jit::target_for(Isa::avx2));
  return out;
}

struct Block {
  int64_t rows, columns, pairs;
  bool add;
};

vec::Module block(const Block& t, bool known) {
  vec::Module module;
  module.functions.emplace_back("block");
  vec::Builder b(module.functions.back());
  const auto number = [&](int at, int64_t n) { return known ? b.i64(n) : b.extent(at); };
  const Value operands[] = {b.tensor_data(0),  b.i64(37 * 4),        b.tensor_data(1),
                            b.i64(134 * 2),    b.tensor_data(2),     b.i64(33 * 4),
                            number(0, t.rows), number(1, t.columns), number(2, t.pairs)};
  b.matrix_bf16(operands, t.rows > 16 ? 2 : 1, t.columns > 16 ? 2 : 1, t.add);
  return module;
}

TEST(MatrixUnit, TheInstructionEqualsItsInterpreter) {
  Rng rng(3);
  for (const Block t :
       {Block{32, 32, 32, true}, Block{32, 32, 16, false}, Block{1, 1, 1, false}, Block{17, 32, 5, true},
        Block{16, 9, 67, true}, Block{31, 16, 20, false}, Block{4, 30, 0, false}, Block{4, 30, 0, true}}) {
    const auto random = [&](int64_t n, DType d) {
      std::vector<uint8_t> out(static_cast<size_t>(n * byte_size(d)));
      for (int64_t i = 0; i < n; ++i) store_real(d, out.data() + i * byte_size(d), rng.normal());
      return out;
    };
    std::vector<uint8_t> a = random(32 * 134 + 8, DType::bf16), b = random(68 * 66, DType::bf16),
                         c = random(32 * 37, DType::f32);
    for (const bool known : {true, false})
      for (const jit::Target& target : with_and_without()) {
        const vec::Module module = block(t, known);
        ASSERT_TRUE(vec::verify(module).empty());
        std::vector<uint8_t> want = c, got = c;
        const int64_t extents[] = {t.rows, t.columns, t.pairs};
        const auto call_of = [&](std::vector<uint8_t>& to, CleaveTensor* tensors) {
          tensors[0] = {to.data(), nullptr}, tensors[1] = {a.data(), nullptr}, tensors[2] = {b.data(), nullptr};
          return CleaveCall{tensors, extents, nullptr, nullptr};
        };
        CleaveTensor first[3], second[3];
        const CleaveCall to_interpret = call_of(want, first), to_run = call_of(got, second);
        ASSERT_TRUE(vec::interpret(module.functions[0], &to_interpret, 0, nullptr));
        jit::Options options;
        options.target = target;
        testing::run_compiled(module, options, to_run);
        for (int64_t i = 0; i < 32 * 37; ++i) {
          const double x = load_real(DType::f32, want.data() + 4 * i), y = load_real(DType::f32, got.data() + 4 * i);
          const bool inside = i / 37 < t.rows && i % 37 < t.columns;
          ASSERT_NEAR(x, y, inside ? 1e-4 : 0) << i << " of " << t.rows << " x " << t.columns << " x " << t.pairs;
        }
      }
  }
}

TEST(MatrixUnit, TextReadsBack) {
  const std::string text = vec::print(block({20, 9, 3, true}, false));
  const auto again = vec::parse({"block", text});
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(vec::print(*again), text);
  EXPECT_THAT(text, ::testing::HasSubstr("[2, 1, 1]"));
}

// C = A B with rows of B in pairs, made from rows or from columns; depths and widths that leave something over. What
// stands beside a row of A of an odd depth is an infinity, which times 0 would be NaN.
std::string product(int64_t m, int64_t n, int64_t k, int64_t panel, bool turned, const std::string& how) {
  return fmt::format(R"(
tile product {{
  input A: bf16[{m}, {k}] argument 0
  input B: bf16[{b}] argument 1
  input S: f32[{m}] argument 2
  output C: f32[{m}, {n}] argument 0
  workspace P: bf16[{k}, {n}] panel {panel} pairs
  scratch a: bf16[{m}, {even}]
  kernel pack {{
    parallel j in 0..{n} step {panel} {{
      nest (k < {k}, c < min({panel}, -j + {n})) {{
        P[k, c + j] = B[{at}]
      }}
    }}
  }}
  kernel multiply {{
    nest (i < {m}, k < {even}) {{
      a[i, k] = -inf:f32
    }}
    nest (i < {m}, k < {k}) {{
      a[i, k] = A[i, k]
    }}
    matmul C[0, 0](0, 1) {how} a[0, 0](0, 1) * P[0, 0](0, 1) size {m}, {n}, {k}{scale}
  }}
}}
)",
                     fmt::arg("m", m), fmt::arg("n", n), fmt::arg("k", k), fmt::arg("panel", panel),
                     fmt::arg("even", k + k % 2),
                     fmt::arg("b", turned ? fmt::format("{}, {}", n, k) : fmt::format("{}, {}", k, n)),
                     fmt::arg("at", turned ? "c + j, k" : "k, c + j"), fmt::arg("how", how == "scale" ? "+=" : how),
                     fmt::arg("scale", how == "scale" ? " scale S[0]" : ""));
}

TEST(MatrixUnit, ProductsEqualTheInterpreter) {
  testing::Compared how;
  how.absolute = 1e-3;
  uint64_t seed = 1;
  for (const bool turned : {false, true})
    for (const auto& [m, n, k] :
         {std::array<int64_t, 3>{32, 64, 64}, {33, 40, 77}, {1, 16, 2}, {5, 3, 1}, {70, 50, 96}})
      for (const char* init : {"=", "+=", "scale"})
        for (const int64_t panel : {16, 32}) testing::compare(product(m, n, k, panel, turned, init), how, ++seed);
}

// NaN and infinities stay in their rows and columns, also where an odd depth has a partner that is not there.
TEST(MatrixUnit, WhatIsNotThereIsNotRead) {
  testing::Compared how;
  how.absolute = 1e-3;
  how.specials = 0.002;
  for (uint64_t seed = 1; seed <= 6; ++seed) testing::compare(product(21, 37, 45, 32, seed % 2, "="), how, seed);
}

// Extents that each call gives.
TEST(MatrixUnit, ServesOpenDimensions) {
  constexpr const char* kText = R"(
tile open {
  dim M in 0..100 at 40
  dim K in 0..90 at 50
  input A: bf16[M, 2*K] argument 0
  input B: bf16[2*K, 40] argument 1
  output C: f32[M, 40] argument 0
  workspace P: bf16[2*K, 40] panel 32 pairs
  kernel pack {
    parallel j in 0..40 step 32 {
      nest (k < 2*K, c < min(32, -j + 40)) {
        P[k, c + j] = B[k, c + j]
      }
    }
  }
  kernel multiply {
    matmul C[0, 0](0, 1) = A[0, 0](0, 1) * P[0, 0](0, 1) size M, 40, 2*K
  }
}
)";
  testing::Compared how;
  how.absolute = 1e-3;
  for (const auto& [m, k] : {std::pair<int64_t, int64_t>{40, 50}, {0, 3}, {3, 0}, {17, 1}, {100, 90}, {33, 17}}) {
    how.extents = {m, k};
    testing::compare(kText, how, static_cast<uint64_t>(m + k));
  }
}

std::string refusal(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  const auto r = tile::parse({"test", text});
  return r.ok() ? "" : r.errors()[0].message();
}

TEST(MatrixUnit, LawsOfPairs) {
  using ::testing::HasSubstr;
  const std::string whole = product(32, 64, 77, 32, false, "=");
  EXPECT_THAT(refusal(whole, "panel 32", "panel 48"), HasSubstr("panels of 16 or 32"));
  EXPECT_THAT(refusal(whole, "bf16[77, 64] panel", "f32[77, 64] panel"), HasSubstr("panels of 16 or 32"));
  EXPECT_THAT(refusal(whole, "= B[k, c + j]", "= relu(B[k, c + j])"), HasSubstr("something else than a copy"));
  EXPECT_THAT(refusal(whole, "nest (k < 77, c", "nest (k < 76, c"), HasSubstr("something else than a copy"));
  EXPECT_THAT(refusal(whole, "scratch a: bf16[32, 78]", "scratch a: bf16[32, 77]"), HasSubstr("odd depth"));
  EXPECT_THAT(refusal(whole, "scratch a: bf16", "scratch a: f32"), HasSubstr("summed in f32"));
  EXPECT_THAT(refusal(whole, "C[0, 0](0, 1) = a", "C[0, 0](0, 1) = A"), HasSubstr("odd depth"));
}

}  // namespace
}  // namespace cleave
