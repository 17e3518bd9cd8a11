// Every graph that is found, whole or with the keys in parts, at logits of magnitude 1e4, where exponentials overflow:
// the safe form of the input graph says what is right.
#include "algebra/search.hpp"
#include "eval/bounds.hpp"
#include "subgraphs.hpp"

namespace cleave::algebra {
namespace {

using graph::Graph;
using test::parsed;

// Attention over 12 keys with a mask over queries s and keys l; without a running maximum, or in its safe form.
Graph attention(const std::string& mask, bool safe, const char* empty = "nan") {
  const std::string scores = "where(" + mask + ", contract(\"s d, l d -> s l\", Q, K), -inf)";
  std::string text =
      "graph g {\n  input Q: f32[9, 4]\n  input K: f32[12, 4]\n  input V: f32[12, 3]\n"
      "  s = iota(shape=[9, 12], axis=0, dtype=i64)\n  l = iota(shape=[9, 12], axis=1, dtype=i64)\n";
  text += safe ? "  P = softmax(" + scores + ", axis=1, empty=\"" + empty + "\")\n"
               : "  E = exp(" + scores + ")\n  P = div(E, sum(E, axes=[1], keepdims=true))\n";
  return parsed(text + "  output O = contract(\"s l, l d -> s d\", P, V)\n}");
}

// A graph in float64 and in f32, against the safe form in float64: in f32 an element may be off by the derived bound,
// or by four times what the safe form is off in f32.
class Judge {
 public:
  Judge(const Graph& safe, std::map<std::string, oracle::Tensor> inputs)
      : inputs_(std::move(inputs)), want_(test::run(safe, inputs_)[0]) {
    const auto ordered = oracle::in_leaf_order(safe, inputs_);
    const auto bounded = oracle::evaluate_with_bounds(safe, *ordered);
    const auto own = oracle::evaluate(safe, inputs_, kStored);
    double largest = 0;
    for (int64_t i = 0; i < want_.elements(); ++i) {
      EXPECT_TRUE(std::isfinite(want_.at(i))) << print(safe);
      largest = std::max(largest, std::abs((*own)[0].at(i) - want_.at(i)));
    }
    allowed_ = (*bounded)[0].bound;
    for (double& a : allowed_) a = std::max(std::isfinite(a) ? a : 0, 4 * largest);
  }
  void operator()(const Graph& g) const {
    const auto d = oracle::compare(test::run(g, inputs_)[0], want_, 1e-9, 1e-9);
    EXPECT_TRUE(d.ok()) << d.text << print(g);
    const auto stored = oracle::evaluate(g, inputs_, kStored);
    ASSERT_TRUE(stored.ok());
    const auto e = oracle::compare((*stored)[0], want_, allowed_);
    EXPECT_TRUE(e.ok()) << "in f32: " << e.text << print(g);
  }

 private:
  static constexpr oracle::EvalOptions kStored{.round_to_storage = true};
  std::map<std::string, oracle::Tensor> inputs_;
  oracle::Tensor want_;
  std::vector<double> allowed_;
};

// Returns how many graphs there are with the keys in parts.
size_t expect_stable(const Graph& input, const Graph& safe) {
  const Judge judge(safe, test::draw(safe, 3, 100));
  const auto whole = search(input), split = search(input, {.split = "l"});
  if (!whole.ok() || !split.ok()) return 0;
  for (const Found& f : whole->graphs) judge(f.graph);
  for (const Found& f : split->graphs)
    for (int64_t parts : {1, 3, 12}) judge(test::bound(f.graph, {{"l_parts", parts}, {"l_part", 12 / parts}}));
  return split->graphs.size() - 1;
}

TEST(Stability, LargeLogits) {
  for (bool safe : {false, true})
    EXPECT_GE(expect_stable(attention("le(s, 100)", safe), attention("le(s, 100)", true)), 1u);
}

TEST(Stability, AFirstTileOfKeysThatIsMasked) {
  for (const char* mask : {"ge(l, 4)", "ge(l, 11)", "logical_or(ge(l, 8), lt(s, 3))"})
    for (bool safe : {false, true}) EXPECT_GE(expect_stable(attention(mask, safe), attention(mask, true)), 1u) << mask;
}

TEST(Stability, RowsThatAreMaskedWholly) {
  for (const char* mask : {"ge(s, 3)", "logical_and(ge(l, 4), le(l, s))"})
    EXPECT_GE(expect_stable(attention(mask, true, "zero"), attention(mask, true, "zero")), 1u) << mask;
}

// The cases without attention: pairs (u, m) meet in sums, products, quotients and logarithms.
TEST(Stability, SumsProductsAndQuotientsOfExponentials) {
  const std::string head =
      "graph g {\n  input X: f32[5, 12]\n  input Y: f32[5, 12]\n"
      "  s = iota(shape=[5, 12], axis=0, dtype=i64)\n  l = iota(shape=[5, 12], axis=1, dtype=i64)\n"
      "  M = cast(le(l, s), dtype=f32)\n";
  const std::pair<const char*, const char*> cases[] = {
      {"log(add(1.0, sum(exp(X), axes=[1])))",
       "logsumexp(concat(X, mul(slice(X, axes=[1], starts=[0], stops=[1]), 0.0), axis=1), axes=[1])"},
      {"div(exp(X), sum(exp(X), axes=[1], keepdims=true))", "softmax(X, axis=1)"},
      {"div(exp(X), sum(exp(X), axes=[0], keepdims=true))", "softmax(X, axis=0)"},
      {"div(mul(exp(X), exp(Y)), sum(mul(exp(X), exp(Y)), axes=[1], keepdims=true))", "softmax(add(X, Y), axis=1)"},
      {"div(div(exp(X), exp(Y)), sum(div(exp(X), exp(Y)), axes=[1], keepdims=true))", "softmax(sub(X, Y), axis=1)"},
      {"mul(div(exp(X), sum(exp(X), axes=[1], keepdims=true)), div(exp(X), sum(exp(X), axes=[0], keepdims=true)))",
       "mul(softmax(X, axis=1), softmax(X, axis=0))"},
      {"sum(div(mul(exp(X), M), sum(mul(exp(X), M), axes=[1], keepdims=true)), axes=[0])",
       "sum(softmax(where(le(l, s), X, -inf), axis=1), axes=[0])"},
      {"div(sum(mul(exp(X), exp(Y)), axes=[1]), mul(sum(exp(X), axes=[1]), sum(exp(Y), axes=[1])))",
       "exp(sub(logsumexp(add(X, Y), axes=[1]), add(logsumexp(X, axes=[1]), logsumexp(Y, axes=[1]))))"},
      {"log(div(sum(exp(X), axes=[1]), sum(exp(Y), axes=[1])))",
       "sub(logsumexp(X, axes=[1]), logsumexp(Y, axes=[1]))"}};
  for (const auto& [spelled, safe] : cases) {
    const Graph g = parsed(head + "  output O = " + spelled + "\n}"),
                reference = parsed(head + "  output O = " + safe + "\n}");
    const Judge judge(reference, test::draw(reference, 5, 1e4));
    const auto r = search(g);
    ASSERT_TRUE(r.ok());
    for (const Found& f : r->graphs) judge(f.graph);
  }
}

}  // namespace
}  // namespace cleave::algebra
