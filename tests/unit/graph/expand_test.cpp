// Composites: what their expansions compute, against formulas written out directly in double.
#include <gtest/gtest.h>

#include "graph/expand.hpp"
#include "support/graph_text.hpp"

namespace cleave::graph {
namespace {

using namespace cleave::testing;
using oracle::Tensor;

bool has(const Graph& g, Category category) {
  for (NodeId id : g.node_ids())
    if (info(g.node(id).op).category == category) return true;
  return false;
}

// Rows of the last axis, rewritten by f.
template <class F>
Tensor by_rows(Tensor x, F f) {
  const auto n = static_cast<size_t>(x.extents.back());
  for (size_t r = 0; n > 0 && r < x.reals.size() / n; ++r) {
    std::vector<double> row(x.reals.begin() + static_cast<long>(r * n), x.reals.begin() + static_cast<long>(r * n + n));
    f(row, r);
    std::copy(row.begin(), row.end(), x.reals.begin() + static_cast<long>(r * n));
  }
  return x;
}

void softmax_row(std::vector<double>& row) {
  double top = -kInf, sum = 0;
  for (double v : row) top = std::max(top, v);
  for (double& v : row) sum += v = top == -kInf ? 0 : std::exp(v - top);
  for (double& v : row) v = sum == 0 ? 0 : v / sum;
}

TEST(Expand, SoftmaxFamily) {
  Tensor x = normal(DType::f64, {4, 7}, 1, 5);
  x.reals[2] = -kInf;
  const auto out = run(R"(
    input X: f64[4, 7]
    output P = softmax(X, axis=1)
    output Z = softmax(X, axis=-1, empty="zero")
    output L = log_softmax(X, axis=1)
    output S = logsumexp(X, axes=[-1], keepdims=true)
    output T = logsumexp(X))",
                       {x});
  const Tensor p = by_rows(x, [](auto& row, size_t) { softmax_row(row); });
  EXPECT_TENSOR_NEAR(out[0], p, 1e-13, 0);
  EXPECT_TENSOR_NEAR(out[1], p, 1e-13, 0);
  Tensor logs = p, sums = oracle::zeros(DType::f64, {4, 1});
  for (double& v : logs.reals) v = std::log(v);
  double total = 0;
  for (size_t i = 0; i < 28; ++i) {
    sums.reals[i / 7] += std::exp(x.reals[i]);
    total += std::exp(x.reals[i]);
  }
  for (double& v : sums.reals) v = std::log(v);
  EXPECT_TENSOR_NEAR(out[2], logs, 1e-12, 1e-12);
  EXPECT_TENSOR_NEAR(out[3], sums, 1e-13, 0);
  EXPECT_TENSOR_NEAR(out[4], real({}, {std::log(total)}, DType::f64), 1e-13, 0);
}

TEST(Expand, SoftmaxOfInfinitiesAndNothing) {
  const Tensor x = real({4, 2}, {-kInf, -kInf, kInf, 0, kNan, 0, -kInf, 3});
  const auto out = run(R"(
    input X: f32[4, 2]
    input E: f32[2, 0]
    output P = softmax(X, axis=1)
    output Z = softmax(X, axis=1, empty="zero")
    output S = logsumexp(X, axes=[1])
    output E2 = logsumexp(E, axes=[1]))",
                       {x, oracle::zeros(DType::f32, {2, 0})});
  EXPECT_TENSOR_EQ(out[0], real({4, 2}, {kNan, kNan, kNan, kNan, kNan, kNan, 0, 1}));
  EXPECT_TENSOR_EQ(out[1], real({4, 2}, {0, 0, kNan, kNan, kNan, kNan, 0, 1}));
  EXPECT_TENSOR_EQ(out[2], real({4}, {-kInf, kInf, kNan, 3}));
  EXPECT_TENSOR_EQ(out[3], real({2}, {-kInf, -kInf}));
}

TEST(Expand, Norms) {
  const Tensor x = normal(DType::f64, {2, 6, 3}, 1), scale = normal(DType::f64, {3}, 2),
               bias = normal(DType::f64, {3}, 3);
  const Tensor channel = normal(DType::f64, {6}, 4), shift = normal(DType::f64, {6}, 5);
  const auto out = run(R"(
    input X: f64[2, 6, 3]
    input S: f64[3]
    input B: f64[3]
    input C: f64[6]
    input D: f64[6]
    output L = layer_norm(X, S, B, axes=[-1], eps=0.001)
    output R = rms_norm(X, S, axes=[2])
    output G = group_norm(X, C, D, groups=2))",
                       {x, scale, bias, channel, shift});
  auto moments = [](const std::vector<double>& v, double& mean, double& variance) {
    mean = variance = 0;
    for (double a : v) mean += a / static_cast<double>(v.size());
    for (double a : v) variance += (a - mean) * (a - mean) / static_cast<double>(v.size());
  };
  double mean = 0, variance = 0;
  EXPECT_TENSOR_NEAR(out[0],
                     by_rows(x,
                             [&](auto& row, size_t) {
                               moments(row, mean, variance);
                               for (size_t i = 0; i < 3; ++i)
                                 row[i] =
                                     (row[i] - mean) / std::sqrt(variance + 0.001) * scale.reals[i] + bias.reals[i];
                             }),
                     1e-12, 1e-12);
  EXPECT_TENSOR_NEAR(out[1],
                     by_rows(x,
                             [&](auto& row, size_t) {
                               const double power = (row[0] * row[0] + row[1] * row[1] + row[2] * row[2]) / 3;
                               for (size_t i = 0; i < 3; ++i)
                                 row[i] = row[i] / std::sqrt(power + 1e-5) * scale.reals[i];
                             }),
                     1e-12, 1e-12);
  Tensor groups = x;
  groups.extents = {2, 2, 9};
  groups = by_rows(groups, [&](auto& row, size_t r) {
    moments(row, mean, variance);
    for (size_t i = 0; i < 9; ++i) {
      const size_t c = r % 2 * 3 + i / 3;
      row[i] = (row[i] - mean) / std::sqrt(variance + 1e-5) * channel.reals[c] + shift.reals[c];
    }
  });
  groups.extents = {2, 6, 3};
  EXPECT_TENSOR_NEAR(out[2], groups, 1e-12, 1e-12);
}

struct Attention {
  int64_t batch, heads, key_heads, s, l, d, e;
  std::string causal = "none";
};

// Softmax attention with loops; `mask` [heads, s, l] is added.
std::pair<Tensor, Tensor> attention(const Attention& a, const Tensor& q, const Tensor& k, const Tensor& v,
                                    const std::vector<double>& mask) {
  Tensor out = oracle::zeros(q.dtype, {a.batch, a.heads, a.s, a.e}),
         lse = oracle::zeros(q.dtype, {a.batch, a.heads, a.s});
  for (int64_t b = 0; b < a.batch; ++b)
    for (int64_t h = 0; h < a.heads; ++h)
      for (int64_t i = 0; i < a.s; ++i) {
        const int64_t g = h / (a.heads / a.key_heads), row = (b * a.heads + h) * a.s + i;
        std::vector<double> scores;
        double sum = 0;
        for (int64_t j = 0; j < a.l; ++j) {
          double s = 0;
          for (int64_t x = 0; x < a.d; ++x)
            s += q.reals[static_cast<size_t>(row * a.d + x)] *
                 k.reals[static_cast<size_t>(((b * a.key_heads + g) * a.l + j) * a.d + x)];
          const bool hidden = (a.causal == "start" && j > i) || (a.causal == "end" && j > i + a.l - a.s);
          scores.push_back(hidden ? -kInf
                                  : s / std::sqrt(static_cast<double>(a.d)) +
                                        mask[static_cast<size_t>((h * a.s + i) * a.l + j)]);
          sum += std::exp(scores.back());
        }
        lse.reals[static_cast<size_t>(row)] = std::log(sum);
        softmax_row(scores);
        for (int64_t x = 0; x < a.e; ++x)
          for (int64_t j = 0; j < a.l; ++j)
            out.reals[static_cast<size_t>(row * a.e + x)] +=
                scores[static_cast<size_t>(j)] *
                v.reals[static_cast<size_t>(((b * a.key_heads + g) * a.l + j) * a.e + x)];
      }
  return {out, lse};
}

TEST(Expand, AttentionWithGroupedHeadsMasksAndEitherAlignment) {
  for (const Attention& a :
       {Attention{2, 4, 4, 5, 7, 4, 3}, Attention{1, 6, 2, 5, 3, 4, 4, "start"}, Attention{2, 4, 1, 3, 7, 9, 2, "end"},
        Attention{1, 4, 4, 7, 3, 4, 2, "end"}, Attention{1, 2, 1, 1, 1, 1, 1, "end"}, Attention{1, 4, 2, 3, 0, 4, 2}})
    for (const std::string mask_kind : {"", "additive", "bool", "bool row"}) {
      const Tensor q = normal(DType::f64, {a.batch, a.heads, a.s, a.d}, 1),
                   k = normal(DType::f64, {a.batch, a.key_heads, a.l, a.d}, 2),
                   v = normal(DType::f64, {a.batch, a.key_heads, a.l, a.e}, 3);
      std::vector<double> added(static_cast<size_t>(a.heads * a.s * a.l), 0.0);
      std::vector<Tensor> inputs = {q, k, v};
      std::string mask_type;
      if (mask_kind == "additive") {
        inputs.push_back(normal(DType::f64, {a.heads, a.s, a.l}, 4));
        if (!inputs[3].reals.empty()) inputs[3].reals[0] = -kInf;
        added = inputs[3].reals;
        mask_type = fmt::format("f64[{}, {}, {}]", a.heads, a.s, a.l);
      } else if (mask_kind == "bool") {
        inputs.push_back(oracle::zeros(DType::boolean, {a.heads, a.s, a.l}));
        Rng rng(5);
        for (size_t i = 0; i < added.size(); ++i) added[i] = (inputs[3].ints[i] = rng.chance(0.7)) ? 0 : -kInf;
        mask_type = fmt::format("bool[{}, {}, {}]", a.heads, a.s, a.l);
      } else if (mask_kind == "bool row") {
        inputs.push_back(oracle::zeros(DType::boolean, {1, 1, a.l}));
        for (size_t i = 0; i < static_cast<size_t>(a.l); ++i) inputs[3].ints[i] = i != 1;
        for (size_t i = 0; i < added.size(); ++i) added[i] = static_cast<int64_t>(i) % a.l != 1 ? 0 : -kInf;
        mask_type = fmt::format("bool[1, 1, {}]", a.l);
      }
      const std::string text = fmt::format(
          "  input Q: f64[{0}, {1}, {3}, {5}]\n  input K: f64[{0}, {2}, {4}, {5}]\n  input V: f64[{0}, {2}, {4}, "
          "{6}]\n{7}"
          "  O, L = sdpa(Q, K, V{8}, causal=\"{9}\", lse=true, empty=\"zero\")\n  output O\n  output L",
          a.batch, a.heads, a.key_heads, a.s, a.l, a.d, a.e, mask_type.empty() ? "" : "  input M: " + mask_type + "\n",
          mask_type.empty() ? "" : ", M", a.causal);
      const auto out = run(text, inputs);
      const auto [expected, lse] = attention(a, q, k, v, added);
      SCOPED_TRACE(text);
      EXPECT_TENSOR_NEAR(out[0], expected, 1e-12, 1e-12);
      EXPECT_TENSOR_NEAR(out[1], lse, 1e-12, 1e-12);
    }
}

TEST(Expand, SixteenBitCompositesRoundOnce) {
  const Tensor x = normal(DType::f16, {3, 33}, 1, 4);
  const auto half = run("  input X: f16[3, 33]\n  output P = softmax(X, axis=1)", {x}, true);
  Tensor wide = x;
  wide.dtype = DType::f64;
  auto exact = run("  input X: f64[3, 33]\n  output P = softmax(X, axis=1)", {wide});
  EXPECT_EQ(half[0].dtype, DType::f16);
  for (size_t i = 0; i < 99; ++i)
    EXPECT_LE(std::fabs(half[0].reals[i] - exact[0].reals[i]), 0x1p-11 * exact[0].reals[i] * 1.01 + 0x1p-25);
  const Graph g = graph_of("  input X: bf16[2, 1, 3, 8]\n  O, L = sdpa(X, X, X, lse=true)\n  output O\n  output L");
  EXPECT_EQ(g.type(g.outputs()[1].value).dtype, DType::f32);
  EXPECT_TRUE(verify(expand(g)).empty());
}

TEST(Expand, RaggedRowsPaddedAndPackedAgain) {
  const Tensor data = normal(DType::f32, {6, 2}, 1);
  const auto out = run(R"(
    input X: f32[6, 2]
    input P: i32[5]
    R = ragged(X, P, max=[4])
    output R
    output B = ragged_pack(R, P, rows=[6])
    output E = ragged(slice(X, axes=[0], starts=[0], stops=[0]), P, max=[2]))",
                       {data, integers({5}, {0, 2, 2, 3, 6}, DType::i32)});
  ASSERT_EQ(out[0].extents, (std::vector<int64_t>{4, 4, 2}));
  const int start[] = {0, 2, 2, 3}, length[] = {2, 0, 1, 3};
  for (size_t b = 0; b < 4; ++b)
    for (size_t j = 0; j < 4; ++j)
      for (size_t c = 0; c < 2; ++c)
        EXPECT_EQ(out[0].reals[(b * 4 + j) * 2 + c],
                  static_cast<int>(j) < length[b] ? data.reals[(static_cast<size_t>(start[b]) + j) * 2 + c] : 0.0);
  EXPECT_TENSOR_EQ(out[1], data);
  EXPECT_TENSOR_EQ(out[2], oracle::zeros(DType::f32, {4, 2, 2}));
}

TEST(Expand, RaggedPositionsPastTheLengthAreZeroEvenBesideNan) {
  const auto out =
      run("  input X: f32[2]\n  input P: i64[3]\n  output R = ragged(X, P, max=[3])\n  output B = "
          "ragged_pack(ragged(X, P, max=[1]), P, rows=[4])",
          {real({2}, {kNan, 1}), integers({3}, {0, 0, 2})});
  EXPECT_TENSOR_EQ(out[0], real({2, 3}, {0, 0, 0, kNan, 1, 0}));
  EXPECT_TENSOR_EQ(out[1], real({4}, {kNan, 0, 0, 0}));  // only one row fits, and rows 2 and 3 belong to no request
}

// Also fault kind BR-05: sequences shorter than one page.
TEST(Expand, PagedReadsFollowTheTable) {
  const Tensor cache = real({8}, {0, 1, 2, 3, 4, 5, 6, 7});
  const auto out =
      run("  input C: f32[8]\n  input P: i64[4]\n  input I: i32[4]\n  input N: i64[3]\n  output R = paged(C, P, I, N, "
          "page=2, max=[5])",
          {cache, integers({4}, {0, 2, 3, 4}), integers({4}, {3, 0, 2, 99}, DType::i32), integers({3}, {3, 1, 4})});
  // The third request has one page only, and its number is out of range: clamped.
  EXPECT_TENSOR_EQ(out[0], real({3, 5}, {6, 7, 0, 0, 0, 4, 0, 0, 0, 0, 7, 7, 0, 0, 0}));
}

TEST(Expand, SymbolicGraphsExpandToPrimitivesAndBindLater) {
  const Graph g = graph_of(R"(
    dim S in 1..100
    dim L in 1..100
    dim D in 1..64
    dim N in 1..9
    input Q: f32[2, S, D]
    input K: f32[2, L, D]
    input P: i64[N]
    input X: f32[L, 3]
    O, lse = sdpa(Q, K, K, causal="end", lse=true)
    output O
    output lse
    output R = ragged(X, P, max=[S])
    output B = ragged_pack(ragged(X, P, max=[S]), P, rows=[L])
    output G = group_norm(broadcast(X, shape=[2, L, 3]), groups=1)
    output H = group_norm(reshape(broadcast(X, shape=[4, L, 3]), shape=[1, 4 * L, 3]), groups=4))");
  const Graph e = expand(g);
  EXPECT_FALSE(has(e, Category::composite));
  EXPECT_TRUE(verify(e).empty());
  for (size_t i = 0; i < g.outputs().size(); ++i) {
    EXPECT_EQ(g.outputs()[i].name, e.outputs()[i].name);
    EXPECT_EQ(g.type(g.outputs()[i].value), e.type(e.outputs()[i].value)) << i;
  }
  const std::map<std::string, int64_t> dims = {{"S", 3}, {"L", 5}, {"D", 4}, {"N", 3}};
  const std::vector<Tensor> inputs = {normal(DType::f32, {2, 3, 4}, 1), normal(DType::f32, {2, 5, 4}, 2),
                                      integers({3}, {0, 2, 5}), normal(DType::f32, {5, 3}, 3)};
  const auto late = run(bind(e, dims).value(), inputs), early = run(bind(g, dims).value(), inputs);
  for (size_t i = 0; i < late.size(); ++i)
    EXPECT_TENSOR_NEAR(late[i], early[i], 1e-6, 1e-7);  // 1/sqrt(D): f32 literal or rsqrt
}

// What a composite would need inside counts against the limits when it is added, so that expanding cannot fail.
TEST(Expand, CompositesThatWouldBeTooLargeInsideAreRefused) {
  for (const char* body :
       {"  input Q: f32[1073741824, 1]\n  output O = sdpa(Q, Q, Q)",
        "  input X: f32[4, 0]\n  input P: i64[1073741824]\n  output R = ragged(X, P, max=[1073741824])",
        "  input X: f32[1073741823, 1, 0]\n  input P: i64[1073741824]\n  output R = ragged_pack(X, P, "
        "rows=[1073741824])",
        "  input C: f32[4, 0]\n  input P: i64[1073741825]\n  input N: i64[1073741824]\n  output R = paged(C, P, P, N, "
        "page=4, max=[1073741824])",
        "  input Q: f32[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n  output O = sdpa(Q, Q, Q)",
        "  input Q: f32[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n  output O = group_norm(Q, groups=1)",
        "  input S: f32[1, 1]\n  input A: f32[1073741824]\n  input B: f32[1073741824]\n  m, u, v = scaled_reduce(S, A, "
        "B, \"a b -> | a -> | b ->\")\n  output u"}) {
    const SourceText source{"test.graph", fmt::format("graph g {{\n{}\n}}", body)};
    EXPECT_FALSE(parse(source).ok()) << body;
  }
  // As many composites as a graph may have still expand.
  Builder b;
  ValueId x = b.input("x", DType::f16, b.shape({2, 2}));
  for (;;) {
    auto r = b.add(Op::softmax, {x}, {{"axis", int64_t{1}}, {"empty", std::string("zero")}});
    if (!r.ok()) break;
    x = (*r)[0];
  }
  b.output("y", x);
  const Graph e = expand(b.take());
  EXPECT_GT(e.node_count(), 100000u);
}

TEST(Expand, TheDialectStaysUnlessAsked) {
  const Graph g =
      graph_of("  input S: f32[2, 5]\n  m, r = scaled_reduce(S, \"s l -> s | -> s\")\n  output R = unscale(r, m)");
  EXPECT_TRUE(has(expand(g), Category::dialect));
  EXPECT_FALSE(has(expand_to_primitives(g), Category::dialect));
}

}  // namespace
}  // namespace cleave::graph
