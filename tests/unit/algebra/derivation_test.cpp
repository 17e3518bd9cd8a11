// The forms that experts write by hand, by the steps that lead to them: the step at which each form appears, its rule,
// and what stands there before and after.
#include "algebra/search.hpp"
#include "algebra/stabilise.hpp"
#include "subgraphs.hpp"

namespace cleave::algebra {
namespace {

using graph::Category;
using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Op;
using graph::ValueId;
using test::count;
using test::expect_same;
using test::parsed;

Graph subgraph(const std::string& name) {
  for (auto& s : test::subgraphs())
    if (s.name == name) return std::move(s.graph);
  ADD_FAILURE() << name;
  return parsed("graph g {\n  input X: f32[1]\n  output X\n}");
}

ValueId through_views(const Graph& g, ValueId v) {
  while (info(g.producer(v).op).category == Category::view && g.producer(v).operands.size() == 1)
    v = g.producer(v).operands[0];
  return v;
}
const Node& made_by(const Graph& g, ValueId v) { return g.producer(through_views(g, v)); }
std::string leaf(const Graph& g, ValueId v) {
  v = through_views(g, v);
  return g.producer(v).operands.empty() ? g.value(v).name : "";
}
bool needs(const Graph& g, ValueId v, const std::function<bool(ValueId)>& what) {
  if (what(v)) return true;
  const auto& operands = g.producer(v).operands;
  return std::any_of(operands.begin(), operands.end(), [&](ValueId o) { return needs(g, o, what); });
}
bool needs(const Graph& g, ValueId v, Op op) {
  return needs(g, v, [&](ValueId o) { return g.producer(o).op == op; });
}
bool needs(const Graph& g, ValueId v, const std::string& name) {
  return needs(g, v, [&](ValueId o) { return g.producer(o).operands.empty() && g.value(o).name == name; });
}

using Form = std::function<bool(const Graph&)>;
// Some node of the operator has the property.
Form some(Op op, std::function<bool(const Graph&, const Node&)> property) {
  return [=](const Graph& g) {
    for (NodeId id : g.node_ids())
      if (g.node(id).op == op && property(g, g.node(id))) return true;
    return false;
  };
}
// A contraction of two values with these properties, in either order.
using Value = std::function<bool(const Graph&, ValueId)>;
Form contraction(Value a, Value b) {
  return some(Op::contract, [=](const Graph& g, const Node& n) {
    return (a(g, n.operands[0]) && b(g, n.operands[1])) || (a(g, n.operands[1]) && b(g, n.operands[0]));
  });
}
Value is_leaf(std::string name) {
  return [=](const Graph& g, ValueId v) { return leaf(g, v) == name; };
}
Value made_of(std::vector<std::string> names, std::optional<Op> without = {}) {
  return [=](const Graph& g, ValueId v) {
    return std::all_of(names.begin(), names.end(), [&](const std::string& n) { return needs(g, v, n); }) &&
           !(without && needs(g, v, *without));
  };
}
Form both(Form a, Form b) {
  return [=](const Graph& g) { return a(g) && b(g); };
}
// Results of one scaled reduction, one divided by the other.
bool divides_sums_of_one_reduce(const Graph& g) {
  return some(Op::div, [](const Graph& h, const Node& n) {
    const ValueId a = through_views(h, n.operands[0]), b = through_views(h, n.operands[1]);
    return h.producer(a).op == Op::scaled_reduce && h.value(a).node == h.value(b).node;
  })(g);
}

// The steps that bring a form about which the input graph has not: their rules. Every step on the way computes the
// same.
std::set<std::string> rules_that_make(const Graph& g, const Form& form, SearchOptions options = {},
                                      const Form& found = nullptr) {
  options.record_path = true;
  const auto r = search(g, options);
  EXPECT_TRUE(r.ok()) << (r.ok() ? "" : render(r.errors(), nullptr));
  std::set<std::string> rules;
  if (!r.ok()) return rules;
  EXPECT_FALSE(form(r->graphs[0].graph)) << "the input graph has the form:\n" << print(r->graphs[0].graph);
  EXPECT_FALSE(form(g)) << "the input graph has the form:\n" << print(g);
  for (const Found& f : r->graphs) {
    if (found && !found(f.graph)) continue;
    for (const Derived& d : f.derivation) {
      if (d.graph.empty()) continue;
      const SourceText source{"step", d.graph};
      const auto step = graph::parse(source);
      EXPECT_TRUE(step.ok()) << render(step.errors(), &source);
      if (!step.ok() || !form(*step)) continue;
      std::map<std::string, int64_t> dims;
      int64_t n = 3;
      for (sym::Expr e : g.dims()) dims[g.syms().symbol_name(e)] = std::exchange(n, n + 2);
      if (options.split.empty()) expect_same(g, *step, dims, 1, 1e-7);
      rules.insert(d.rule);
      break;
    }
  }
  return rules;
}

using ::testing::Contains;

TEST(Derivation, FlashAttention) {
  const Form divides_last =
      both(some(Op::div,
                [](const Graph& g, const Node& n) {
                  return made_by(g, n.operands[0]).op == Op::contract && needs(g, n.operands[0], "V");
                }),
           contraction(is_leaf("V"), [](const Graph& g, ValueId v) { return made_by(g, v).op == Op::exp; }));
  for (const char* name : {"mha", "gqa", "mla_prefill", "causal_attention"})
    EXPECT_THAT(rules_that_make(subgraph(name), divides_last, {}, divides_sums_of_one_reduce), Contains("reciprocal"))
        << name;
}

TEST(Derivation, FlashDecodingInParts) {
  // A contraction over a part, and the sum over the parts of such.
  const Form parts = some(Op::sum, [](const Graph& g, const Node& n) {
    return made_by(g, n.operands[0]).op == Op::contract && needs(g, n.operands[0], "V");
  });
  const Form merged = some(Op::scaled_reduce, [](const Graph& g, const Node& n) {
    return made_by(g, n.operands[0]).op == Op::scaled_reduce;
  });
  const Graph g = parsed(R"(graph g {
  dim S in 1..64
  dim L in 1..4096
  input Q: f32[4, S, 8]
  input K: f32[4, L, 8]
  input V: f32[4, L, 8]
  output O = sdpa(Q, K, V)
})");
  EXPECT_THAT(rules_that_make(g, parts, {.split = "L"}, merged), Contains("reciprocal"));
}

TEST(Derivation, RmsNormsScaleAfterTheMatmul) {
  EXPECT_THAT(rules_that_make(subgraph("rmsnorm_linear"), contraction(is_leaf("X"), made_of({"W"}, Op::rsqrt))),
              Contains("product"));
}

TEST(Derivation, BothQkNormFactorsMoved) {
  EXPECT_THAT(
      rules_that_make(subgraph("qknorm_attention"), contraction(made_of({"Q"}, Op::rsqrt), made_of({"K"}, Op::rsqrt))),
      Contains("product"));
}

const std::string kMlaHead =
    "graph mla {\n  dim B in 1..64\n  dim S in 1..64\n  dim L in 1..64\n  input Q: f32[B, S, 3, 4]\n"
    "  input C: f32[B, L, 6]\n  input U: f32[3, 6, 4]\n  input V: f32[B, L, 5]\n";
const std::string kMlaTail =
    "  E = exp(S0)\n  output O = contract(\"b s h l, b l v -> b s h v\", div(E, sum(E, axes=[3], keepdims=true)), "
    "V)\n}";

TEST(Derivation, MlaAbsorbsTheProjectionOfTheKeys) {
  const Graph g = parsed(kMlaHead +
                         "  K = contract(\"b l c, h c d -> b h l d\", C, U)\n"
                         "  S0 = contract(\"b s h d, b h l d -> b s h l\", Q, K)\n" +
                         kMlaTail);
  EXPECT_THAT(rules_that_make(g, contraction(is_leaf("Q"), is_leaf("U"))), Contains("contraction of factors"));
}

TEST(Derivation, MlaProjectsTheKeysAgain) {
  const Graph g = parsed(kMlaHead +
                         "  A = contract(\"b s h d, h c d -> b s h c\", Q, U)\n"
                         "  S0 = contract(\"b s h c, b l c -> b s h l\", A, C)\n" +
                         kMlaTail);
  EXPECT_THAT(rules_that_make(g, contraction(is_leaf("C"), is_leaf("U"))), Contains("contraction of factors"));
}

TEST(Derivation, LoraAsOneWeight) {
  EXPECT_THAT(rules_that_make(subgraph("lora"), contraction(is_leaf("X"), made_of({"W", "A", "B"}))),
              Contains("contractions that share an operand"));
}

TEST(Derivation, LoraAsAConcatenation) {
  const Value joined = [](const Graph& g, ValueId v) { return made_by(g, v).op == Op::concat; };
  EXPECT_THAT(rules_that_make(subgraph("lora"), contraction(joined, joined)), Contains("sum of contractions as one"));
}

Form joins(std::string shared, std::vector<std::string> weights) {
  return contraction(is_leaf(shared), [=](const Graph& g, ValueId v) {
    return made_by(g, v).op == Op::concat && made_of(weights)(g, v);
  });
}

TEST(Derivation, GateAndUpAsOneContraction) {
  EXPECT_THAT(rules_that_make(subgraph("swiglu"), joins("X", {"Wg", "Wu"})), Contains("contractions side by side"));
}

TEST(Derivation, QueriesKeysAndValuesAsOneContraction) {
  const Graph g = parsed(R"(graph g {
  dim S in 1..64
  input X: f32[2, S, 12]
  input Wq: f32[12, 24]
  input Wk: f32[12, 12]
  input Wv: f32[12, 12]
  q = transpose(reshape(contract("b s c, c n -> b s n", X, Wq), shape=[2, S, 4, 6]), perm=[0, 2, 1, 3])
  k = transpose(reshape(contract("b s c, c n -> b s n", X, Wk), shape=[2, S, 2, 6]), perm=[0, 2, 1, 3])
  v = transpose(reshape(contract("b s c, c n -> b s n", X, Wv), shape=[2, S, 2, 6]), perm=[0, 2, 1, 3])
  output O = sdpa(q, k, v)
})");
  EXPECT_THAT(rules_that_make(g, joins("X", {"Wq", "Wk", "Wv"})), Contains("contractions side by side"));
}

TEST(Derivation, AMatmulThatIsSummedCollapses) {
  const auto text = [](const char* middle) {
    return parsed(fmt::format(R"(graph g {{
  dim B in 1..64
  input X: f32[B, 6]
  input W: f32[5, 6]
  Y = contract("b k, n k -> b n", X, W)
  output R = mul(sum({}, axes=[1], keepdims=true), 1.5)
}})",
                              middle));
  };
  const Form collapsed = contraction(is_leaf("X"), [](const Graph& g, ValueId v) {
    return made_by(g, v).op == Op::sum && leaf(g, made_by(g, v).operands[0]) == "W";
  });
  EXPECT_THAT(rules_that_make(text("div(Y, 2)"), collapsed), Contains("product"));
  EXPECT_TRUE(rules_that_make(text("sigmoid(Y)"), collapsed).empty());
}

// exp(x + c) = exp(x) exp(c), and c may be added once, to the maximum.
TEST(Derivation, AnExponentialThatAllTermsShareLeavesTheirSum) {
  for (const char* c : {"c", "d", "2.0"}) {
    const Graph g = parsed(fmt::format(R"(graph g {{
  dim S in 1..64
  dim L in 1..64
  input X: f32[S, L]
  input V: f32[L, 5]
  scalar c: f32
  input d: f32[S, 1]
  output O = contract("s l, l d -> s d", exp(add(X, {})), V)
}})",
                                       c));
    const Form outside = contraction(is_leaf("V"), [](const Graph& h, ValueId v) {
      return made_by(h, v).op == Op::exp && leaf(h, made_by(h, v).operands[0]) == "X";
    });
    EXPECT_THAT(rules_that_make(g, outside, {},
                                some(Op::scaled_reduce,
                                     [](const Graph& h, const Node& n) { return leaf(h, n.operands[0]) == "X"; })),
                Contains("product"))
        << c;
  }
}

TEST(Derivation, TheOutputAndItsLogSumExpShareOneScaledReduce) {
  const Graph g = parsed(R"(graph g {
  dim S in 1..64
  dim L in 1..64
  input Q: f32[2, S, 3]
  input K: f32[2, L, 3]
  input V: f32[2, L, 5]
  O, lse = sdpa(Q, K, V, lse=true)
  output O
  output lse
})");
  const Form one = [](const Graph& h) { return count(h, Op::scaled_reduce) == 1; };
  // Before stabilising: both outputs read one sum of exponentials.
  const Form divides_last = some(Op::div, [](const Graph& h, const Node& n) {
    return made_by(h, n.operands[0]).op == Op::contract && made_by(h, n.operands[1]).op == Op::sum;
  });
  EXPECT_THAT(rules_that_make(g, divides_last, {}, one), Contains("reciprocal"));
}

// The mean of a layer norm moved behind the product, X W - mean(X) sum(W), cancels where the mean is far above the
// spread.
TEST(Derivation, LayerNormsUnpivotedFormIsFoundAndRefusedOnCancellingData) {
  const Graph g = subgraph("layernorm_linear");
  const Form unpivoted = contraction(is_leaf("X"), [](const Graph& h, ValueId v) { return needs(h, v, "W"); });
  EXPECT_FALSE(rules_that_make(g, unpivoted, {.screen = false}).empty());
  EXPECT_TRUE(rules_that_make(g, unpivoted).empty());
  const auto all = search(g, {.screen = false}), kept = search(g);
  ASSERT_TRUE(all.ok() && kept.ok());
  EXPECT_THAT(kept->screened, Contains(::testing::HasSubstr("a mean of ")));
  std::map<std::string, int64_t> dims;
  for (sym::Expr e : g.dims()) dims[g.syms().symbol_name(e)] = 16;
  const Graph given = test::bound(g, dims);
  auto inputs = test::draw(given, 3);
  for (int64_t i = 0; i < inputs.at("X").elements(); ++i) inputs.at("X").set(i, 3000 + inputs.at("X").at(i));
  const auto want = test::run(given, inputs)[0];
  const auto off = [&](const Graph& h) {
    const auto got = oracle::evaluate(test::bound(h, dims), inputs, {.round_to_storage = true});
    double worst = 0;
    for (int64_t i = 0; i < want.elements(); ++i) worst = std::max(worst, std::abs((*got)[0].at(i) - want.at(i)));
    return worst;
  };
  const double own = off(g);
  for (const Found& f : kept->graphs) EXPECT_LE(off(f.graph), 4 * own) << print(f.graph);
  size_t cancelling = 0;
  for (const Found& f : all->graphs) cancelling += unpivoted(f.graph) && off(f.graph) > 4 * own;
  EXPECT_GE(cancelling, 1u);
}

}  // namespace
}  // namespace cleave::algebra
