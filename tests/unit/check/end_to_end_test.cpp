// Certificates of real searches: all are accepted; a change anywhere in a graph is refused with its step.
#include <nlohmann/json.hpp>

#include "algebra/certificate.hpp"
#include "check/check_certificate.hpp"
#include "seal.hpp"
#include "unit/algebra/subgraphs.hpp"

namespace cleave::check {
namespace {

using algebra::test::subgraphs;

TEST(Check, EveryCertificateOfTheSubgraphsIsAccepted) {
  size_t steps = 0;
  for (const auto& s : subgraphs()) {
    const auto r = algebra::search(s.graph);
    ASSERT_TRUE(r.ok());
    for (size_t k = 0; k < r->graphs.size(); k += 10) {
      const auto text = algebra::certificate(s.graph, k);
      ASSERT_TRUE(text.ok());
      const auto report = check_certificate(*text, {.draws = 2});
      EXPECT_TRUE(report.ok()) << s.name << " " << k << " " << (report.ok() ? "" : render(report.errors(), nullptr));
      if (report.ok()) steps += report->steps + 1;
    }
  }
  EXPECT_GT(steps, 30u);
}

// Changes one occurrence of `from` in the text of step `k`.
bool change(nlohmann::ordered_json& graph, const std::string& from, const std::string& to) {
  std::string text = graph.get<std::string>();
  const size_t at = text.find(from);
  if (at == std::string::npos) return false;
  graph = text.replace(at, from.size(), to);
  return true;
}

const std::vector<std::pair<std::string, std::string>> kChanges{
    {" mul(", " add("}, {" rsqrt(", " sqrt("}, {" add(", " sub("},   {" exp(", " square("},
    {" div(", " mul("}, {"amax", "amin"},      {" square(", " abs("}};

// Each change of each graph is refused with its step; returns how many were tried.
size_t refuse_changes(const nlohmann::ordered_json& sound, const std::string& name, int draws) {
  size_t tried = 0;
  for (const auto& [from, to] : kChanges)
    for (size_t k = 0; k <= sound["steps"].size(); ++k) {
      auto j = sound;
      auto& graph = k < j["steps"].size() ? j["steps"][k]["graph"] : j["result"];
      if (!change(graph, from, to)) continue;
      ++tried;
      const auto report = check_certificate(j.dump(), {.draws = draws});
      EXPECT_FALSE(report.ok()) << name << " step " << k << ": " << from << " became " << to;
      if (report.ok()) continue;
      EXPECT_THAT(report.errors()[0].message(), ::testing::HasSubstr(fmt::format("step {} of the certificate", k + 1)))
          << name << from;
    }
  return tried;
}

// A text that ends early is refused with the step in which it ends.
void refuse_truncations(const std::string& text, const std::string& name) {
  size_t step = 0;
  for (size_t at = text.find("\"rule\":"); at != std::string::npos; at = text.find("\"rule\":", at + 1)) {
    const auto report = check_certificate(text.substr(0, at + 5));
    ASSERT_FALSE(report.ok()) << name;
    EXPECT_THAT(report.errors()[0].message(), ::testing::HasSubstr(fmt::format("in step {} it is no JSON", ++step)))
        << name;
  }
}

// The search rounds 16-bit values elsewhere, and masks are zeros and ones.
TEST(Check, CertificatesOfEveryTypeAreAccepted) {
  for (const char* dtype : {"f16", "bf16", "f32", "f64"})
    for (const char* scores :
         {"S", "where(M, S, -inf)", "cast(S, dtype=f32)", "add(S, mul(sub(cast(M, dtype=f32), 1.0), 1000.0))"})
      for (const char* weights : {"softmax(T, axis=-1)", "T", "sigmoid(T)"}) {
        const std::string text = fmt::format(R"(graph g {{
  input Q: {0}[6, 16]
  input K: {0}[7, 16]
  input V: {0}[7, 5]
  input M: bool[6, 7]
  S = mul(contract("s d, l d -> s l", Q, K), 0.25)
  T = {1}
  P = {2}
  output O = contract("s l, l d -> s d", P, V)
}})",
                                             dtype, scores, weights);
        const auto g = graph::parse({"g", text});
        ASSERT_TRUE(g.ok()) << render(g.errors(), nullptr);
        const auto r = algebra::search(graph::expand(*g));
        ASSERT_TRUE(r.ok());
        for (size_t k = 0; k < r->graphs.size(); ++k) {
          const auto certificate = algebra::certificate(graph::expand(*g), k);
          if (!certificate.ok()) continue;  // the graph as given
          const auto report = check_certificate(*certificate);
          EXPECT_TRUE(report.ok()) << text << "\n" << k << " " << (report.ok() ? "" : render(report.errors(), nullptr));
        }
      }
}

// Between two stable forms an exponential may overflow even in float64.
TEST(Check, CertificatesOfLongSumsOfExponentialsAreAccepted) {
  const auto g = graph::parse({"g", R"(graph g {
  input X: f32[21, 40]
  input A: f32[40, 8]
  input B: f32[40, 8]
  Q = contract("s k, k d -> s d", X, A)
  K = contract("s k, k d -> s d", X, B)
  P = softmax(contract("s d, l d -> s l", Q, K), axis=-1)
  output O = contract("s l, l d -> s d", P, X)
})"});
  ASSERT_TRUE(g.ok());
  const auto r = algebra::search(graph::expand(*g));
  ASSERT_TRUE(r.ok());
  for (size_t k = 0; k < r->graphs.size(); k += 3) {
    const auto certificate = algebra::certificate(graph::expand(*g), k);
    if (!certificate.ok()) continue;
    const auto report = check_certificate(*certificate);
    EXPECT_TRUE(report.ok()) << k << " " << (report.ok() ? "" : render(report.errors(), nullptr));
  }
  // What is infinite on any data is refused.
  EXPECT_NE(
      difference(graph::parse({"g", "graph g {\n  input x: f32[5]\n  output y = mul(x, 1.0)\n}"}).value(),
                 graph::parse({"g", "graph g {\n  input x: f32[5]\n  output y = div(x, 0.0)\n}"}).value(), {}, nullptr),
      "");
}

// .. and what it becomes may be a bool, which does not show that it was infinite.
// A step on the way may overflow whatever the data; exact arithmetic judges it, and the result is judged beside the
// input.
TEST(Check, CertificatesWhoseStepsAlwaysOverflowAreAccepted) {
  for (const char* body : {"sub(logsumexp(add(Z, 1000.0), axes=[1]), 1000.0)", "softmax(sub(Z, 2000.0), axis=1)",
                           "log_softmax(add(Z, 5000.0), axis=1)"}) {
    const auto g =
        graph::parse(SourceText{"g", fmt::format("graph g {{\n  input Z: f32[5, 6]\n  output L = {}\n}}", body)});
    ASSERT_TRUE(g.ok());
    size_t refused = 0, tried = 0;
    for (const char* split : {"", "x_1"}) {
      const auto r = algebra::search(graph::expand(*g), {.split = split});
      ASSERT_TRUE(r.ok()) << render(r.errors(), nullptr);
      for (size_t k = 0; k < r->graphs.size(); ++k) {
        const auto text = algebra::certificate(graph::expand(*g), k, {.split = split});
        ASSERT_TRUE(text.ok());
        const auto report = check_certificate(*text);
        EXPECT_TRUE(report.ok()) << body << " " << k << " " << (report.ok() ? "" : render(report.errors(), nullptr));
        auto j = nlohmann::ordered_json::parse(*text);
        auto& result = j["result"];
        if (!change(result, " log(", " neg(") && !change(result, " div(", " mul(")) continue;
        ++tried;
        refused += !check_certificate(j.dump()).ok();
      }
    }
    EXPECT_EQ(refused, tried) << body;
    EXPECT_GT(tried, 0u) << body;
  }
}

TEST(Check, CertificatesOfPredicatesOnLongExponentialsAreAccepted) {
  const auto g = graph::parse({"g", R"(graph g {
  input x: f32[33, 3, 2]
  input y: f32[3, 1]
  input a: f32[13]
  input b: f32[5, 13]
  input n: i32[17, 2]
  m = mean(div(y, x), axes=[1])
  output c = contract("k, v k -> k v", a, b)
  output p = cast(log_softmax(m, axis=-1), dtype=bool)
  output q = n
})"});
  ASSERT_TRUE(g.ok());
  for (const std::string& split : algebra::splittable_indices(graph::expand(*g))) {
    const auto texts = algebra::certificates(graph::expand(*g), {.keep = 12, .split = split});
    ASSERT_TRUE(texts.ok());
    for (const std::string& text : *texts) {
      const auto report = check_certificate(text);
      EXPECT_TRUE(report.ok()) << split << " " << (report.ok() ? "" : render(report.errors(), nullptr));
    }
  }
}

// The exponential of a reciprocal overflows on small data, however small.
TEST(Check, CertificatesOfExponentialsOfReciprocalsAreAccepted) {
  const auto g = graph::parse({"g", R"(graph g {
  input x: f32[31, 5, 1]
  output y = logsumexp(reciprocal(x), axes=[1, 2], keepdims=true)
})"});
  ASSERT_TRUE(g.ok());
  const auto texts = algebra::certificates(graph::expand(*g), {});
  ASSERT_TRUE(texts.ok());
  for (const std::string& text : *texts)
    for (uint64_t seed = 0; seed < 8; ++seed) {
      const auto report = check_certificate(text, {.seed = seed});
      EXPECT_TRUE(report.ok()) << (report.ok() ? "" : render(report.errors(), nullptr));
    }
}

TEST(Check, WhatCancelsAltogetherIsRounding) {
  const auto of = [](const char* y) {
    return graph::parse({"g", fmt::format("graph g {{\n  input x: f32[9]\n  output y = {}\n}}", y)}).value();
  };
  for (const char* zero : {"mul(x, 0.0)", "sub(mul(sub(x, 1.0), 3.0), sub(mul(x, 3.0), 3.0))"}) {
    EXPECT_EQ(difference(of("sub(mul(add(x, 1.0), 3.0), add(mul(x, 3.0), 3.0))"), of(zero), {}, nullptr), "") << zero;
    EXPECT_EQ(difference(of(zero), of("sub(mul(add(x, 1.0), 3.0), add(mul(x, 3.0), 3.0))"), {}, nullptr), "") << zero;
  }
  EXPECT_NE(difference(of("sub(mul(add(x, 1.0), 3.0), add(mul(x, 3.0), 3.0))"), of("mul(x, 0.00000001)"), {}, nullptr),
            "");
}

TEST(Check, ARoundingThatIsThePointMayNotGo) {
  const auto of = [](const char* y) {
    return graph::parse({"g", fmt::format("graph g {{\n  input x: f32[9]\n  output y = {}\n}}", y)}).value();
  };
  EXPECT_NE(difference(of("sub(x, cast(cast(x, dtype=f16), dtype=f32))"), of("sub(x, x)"), {}, nullptr), "");
  EXPECT_EQ(difference(of("cast(cast(mul(x, 0.5), dtype=f16), dtype=f32)"),
                       of("mul(cast(cast(x, dtype=f16), dtype=f32), 0.5)"), {}, nullptr),
            "");
}

TEST(Check, CertificatesOfSplitGraphsAreAcceptedAndTheirChangesRefused) {
  size_t tried = 0;
  for (const auto& s : subgraphs()) {
    algebra::SearchOptions options;
    options.split = algebra::splittable_indices(s.graph).at(0);
    const auto r = algebra::search(s.graph, options);
    ASSERT_TRUE(r.ok());
    if (r->graphs.size() < 2) continue;
    const auto text = algebra::certificate(s.graph, 1, options);
    ASSERT_TRUE(text.ok()) << render(text.errors(), nullptr);
    const auto report = check_certificate(*text, {.draws = 1});
    EXPECT_TRUE(report.ok()) << s.name << (report.ok() ? "" : render(report.errors(), nullptr));
    refuse_truncations(*text, s.name);
    const auto sound = nlohmann::ordered_json::parse(*text);
    if (sound["steps"].size() <= 2) tried += refuse_changes(sound, s.name, 1);
  }
  EXPECT_GT(tried, 20u);
}

// A row that is masked wholly is NaN in the input graph, and -inf times numbers of both signs; on the way it may be
// what the step makes of it, in the end it may be no number. 2^x is exp(x ln 2), with as many digits as there are.
TEST(Check, CertificatesOfGraphsWithNanAreAccepted) {
  for (const char* text :
       {"graph g {\n  input q: f32[7, 3]\n  input k: f32[5, 3]\n  input v: f32[5, 4]\n"
        "  output O = sdpa(q, k, v, causal=\"end\")\n}",
        "graph g {\n  input q: f32[17, 8]\n  input k: f32[13, 8]\n  input v: f32[13, 4]\n  input m: f32[17, 13]\n"
        "  output O = sdpa(q, k, v, m, causal=\"end\")\n}",
        "graph g {\n  input x: f16[31]\n  input y: f16[5, 31]\n"
        "  output Z = contract(cummax(x, axis=0, exclusive=true, reverse=true), y, spec=\"a, v a -> a\")\n}",
        "graph g {\n  input x: f32[13, 3]\n  input w: f32[7, 3]\n"
        "  output Y = contract(exp2(x), w, spec=\"a b, v b -> a v\")\n}",
        "graph g {\n  input x: f32[33, 5]\n  output Y = log_softmax(rsqrt(x), axis=1)\n}",
        "graph g {\n  input x: f64[5]\n  l = log_softmax(x, axis=0)\n"
        "  output Y = floordiv(log_softmax(l, axis=0), l)\n}",
        "graph g {\n  input x: bf16[3, 3, 5, 5]\n  output Y = ceil(x)\n}",
        "graph g {\n  input x: f16[2, 2, 17]\n  output Y = prod(x)\n}",
        "graph g {\n  input q: f64[6, 3, 8]\n  input k: f64[6, 7, 8]\n  input v: f64[6, 7, 4]\n"
        "  O, l = sdpa(q, k, v, causal=\"start\", lse=true, empty=\"zero\")\n  output O\n  output l\n"
        "  output A = argmax(O, axis=0)\n}"}) {
    const graph::Graph g = algebra::test::parsed(text);
    const auto r = algebra::search(g);
    ASSERT_TRUE(r.ok());
    for (size_t k = 0; k < r->graphs.size(); ++k) {
      const auto report = check_certificate(*algebra::certificate(g, k));
      EXPECT_TRUE(report.ok()) << text << k << (report.ok() ? "" : render(report.errors(), nullptr));
    }
  }
  // A number in place of a NaN is refused, by whichever steps it came.
  const auto refused = [](const char* before, const char* step, const char* after) {
    const auto of = [](const char* y) { return fmt::format("graph g {{\n  input x: f32[5]\n  output y = {}\n}}", y); };
    nlohmann::json j{{"schema", "cleave.certificate/2"}, {"input", of(before)}, {"result", of(after)}};
    j["steps"] = nlohmann::json::array({{{"rule", "product"}, {"graph", of(step)}}});
    const auto report = check_certificate(sealed(j));
    return report.ok() ? "" : report.errors()[0].message();
  };
  const char* const nan = "div(sub(x, x), sub(x, x))";
  EXPECT_EQ(refused(nan, "x", nan), "");
  EXPECT_THAT(refused(nan, "x", "x"), ::testing::HasSubstr("step 2 of the certificate (`stabilise`)"));
  EXPECT_THAT(refused("x", nan, "x"), ::testing::HasSubstr("step 1 of the certificate (`product`)"));
  // NaN only where numbers are large, and no exponential overflows.
  EXPECT_THAT(refused("x", "where(lt(x, 0.75), x, sqrt(sub(x, x))))", "x"), ::testing::HasSubstr("step 1"));
  EXPECT_THAT(refused("x", "add(x, sqrt(sub(0.001, mul(x, x))))", "x"), ::testing::HasSubstr("step 1"));
  EXPECT_THAT(refused("x", "add(x, mul(0.0, log(sub(0.75, x))))", "x"), ::testing::HasSubstr("step 1"));
}

// Results of another function, on graphs that are numbers on some data only: where all are positive, where a mask is
// zeros and ones, where scores are tiny.
TEST(Check, WhatIsNanOnOrdinaryDataIsJudgedOnOther) {
  const auto text = [](const char* body) {
    return fmt::format("graph g {{\n  input A: f32[5, 8]\n  input B: f32[7, 8]\n  input M: f32[5, 7]\n{}\n}}", body);
  };
  const auto judged = [&](const std::string& before, const std::string& after) {
    nlohmann::json j{{"schema", "cleave.certificate/2"},
                     {"input", text(before.c_str())},
                     {"steps", nlohmann::json::array()},
                     {"result", text(after.c_str())}};
    return check_certificate(sealed(j)).ok();
  };
  const auto output = [](const char* y) { return fmt::format("  output Y = {}", y); };
  for (const char* f : {"log(A)", "sqrt(A)", "pow(A, 0.5)", "rsqrt(A)"}) {
    const std::string sum = output(fmt::format("sum({}, axes=[1])", f).c_str());
    EXPECT_TRUE(judged(sum, sum)) << f;
    EXPECT_FALSE(judged(sum, output(fmt::format("mean({}, axes=[1])", f).c_str()))) << f;
  }
  EXPECT_FALSE(judged(output("exp(mean(log(A), axes=[1]))"), output("expm1(mean(log(A), axes=[1]))")));
  EXPECT_FALSE(judged(output("div(sum(log(A), axes=[1]), 8.0)"), output("div(sum(log(A), axes=[1]), 8.001)")));
  const auto attention = [](const char* scores, const char* quotient) {
    return fmt::format(
        "  S = contract(\"s d, l d -> s l\", A, B)\n  T = {}\n  E = exp(T)\n"
        "  u = contract(\"s l, l d -> s d\", E, B)\n  l = sum(E, axes=[1], keepdims=true)\n"
        "  output Y = {}",
        scores, quotient);
  };
  for (const char* scores : {"mul(S, 1e30)", "add(mul(S, 0.5), mul(sub(1.0, M), -1e9))"}) {
    EXPECT_TRUE(judged(attention(scores, "div(u, l)"), attention(scores, "div(u, l)"))) << scores;
    EXPECT_FALSE(judged(attention(scores, "div(u, l)"), attention(scores, "div(l, u)"))) << scores;
  }
  const char* const masked = "add(mul(S, 0.5), mul(sub(1.0, M), -1e9))";
  EXPECT_FALSE(
      judged(attention(masked, "div(u, l)"), attention("sub(mul(S, 0.5), mul(sub(1.0, M), -1e9))", "div(u, l)")));
  EXPECT_FALSE(
      judged(attention(masked, "div(u, l)"), attention("add(mul(S, 0.5), mul(sub(M, 1.0), -1e9))", "div(u, l)")));
}

// Exponentials that are 0 whatever the data: the quotient is NaN in float64 as written, and a number in stable form.
TEST(Check, CertificatesOfExponentialsThatUnderflowAreAccepted) {
  const graph::Graph g = algebra::test::parsed(R"(graph g {
  input Q: f32[5, 4]
  input K: f32[7, 4]
  input V: f32[7, 3]
  E = exp(sub(contract("s d, l d -> s l", Q, K), 1000.0))
  output O = contract("s l, l d -> s d", div(E, sum(E, axes=[1], keepdims=true)), V)
})");
  const auto texts = algebra::certificates(g, {});
  ASSERT_TRUE(texts.ok());
  for (const std::string& text : *texts) {
    const auto report = check_certificate(text);
    EXPECT_TRUE(report.ok()) << (report.ok() ? "" : render(report.errors(), nullptr));
  }
}

// Two pairs of contractions become one each, in one graph: each is a step with a graph of its own.
TEST(Check, ACertificateOfSeveralMergesHasAGraphForEach) {
  const graph::Graph g = algebra::test::parsed(R"(graph g {
  dim S in 1..64
  input X: f32[S, 6]
  input A: f32[6, 4]
  input B: f32[6, 4]
  input C: f32[4, 5]
  input D: f32[4, 5]
  H = mul(silu(contract("s k, k n -> s n", X, A)), contract("s k, k n -> s n", X, B))
  output Y = mul(silu(contract("s k, k n -> s n", H, C)), contract("s k, k n -> s n", H, D))
})");
  const auto r = algebra::search(g);
  ASSERT_TRUE(r.ok());
  size_t both = 0;
  for (size_t k = 0; k < r->graphs.size(); ++k) {
    const auto& steps = r->graphs[k].derivation;
    if (std::count_if(steps.begin(), steps.end(), [](const auto& d) { return d.rule == "contractions side by side"; }) <
        2)
      continue;
    ++both;
    const std::string text = *algebra::certificate(g, k);
    const auto report = check_certificate(text, {.draws = 1});
    EXPECT_TRUE(report.ok()) << (report.ok() ? "" : render(report.errors(), nullptr));
    auto j = nlohmann::ordered_json::parse(text);
    ASSERT_TRUE(j["steps"].back().contains("graph"));
    ASSERT_TRUE(change(j["steps"].back()["graph"], "silu", "sigmoid"));
    EXPECT_FALSE(check_certificate(j.dump(), {.draws = 1}).ok());
  }
  EXPECT_GE(both, 1u);
}

TEST(Check, MutationsOfRealCertificatesAreRefusedByStep) {
  size_t tried = 0;
  for (const auto& s : subgraphs()) {
    const auto r = algebra::search(s.graph);
    ASSERT_TRUE(r.ok());
    if (r->graphs.size() < 2) continue;
    const std::string text = *algebra::certificate(s.graph, 1);
    refuse_truncations(text, s.name);
    tried += refuse_changes(nlohmann::ordered_json::parse(text), s.name, 1);
  }
  EXPECT_GT(tried, 100u);
}

// Integers wrap where they are computed, and not where their values are numbers of a wider type.
TEST(Check, IntegersWrapBeforeTheyAreCast) {
  const auto of = [](const std::string& dtype, const std::string& e) {
    return graph::parse(
               {"g", fmt::format("graph g {{\n  input A: {0}[5, 6]\n  input B: {0}[5, 6]\n  input C: {0}[6, 3]\n"
                                 "  output y = {1}\n  output z = max(A, max(B, sum(C)))\n}}",
                                 dtype, e)})
        .value();
  };
  struct Pair {
    const char *dtype, *a, *b;
  };
  for (const Pair& p : {
           Pair{"i8", "cast(sum(A, axes=[1]), dtype=f32)", "sum(cast(A, dtype=f32), axes=[1])"},
           {"i16", "cast(sum(A, axes=[1]), dtype=f32)", "sum(cast(A, dtype=f32), axes=[1])"},
           {"i32", "cast(sum(A, axes=[1]), dtype=f64)", "sum(cast(A, dtype=f64), axes=[1])"},
           {"i8", "cast(add(A, B), dtype=f32)", "add(cast(A, dtype=f32), cast(B, dtype=f32))"},
           {"i8", "cast(mul(A, B), dtype=i32)", "mul(cast(A, dtype=i32), cast(B, dtype=i32))"},
           {"i8", "cast(contract(\"a k, k b -> a b\", A, C), dtype=f32)",
            "contract(\"a k, k b -> a b\", cast(A, dtype=f32), cast(C, dtype=f32))"},
           {"i32", "cast(mul(A, A), dtype=f64)", "square(cast(A, dtype=f64))"},
           {"u32", "cast(sub(A, B), dtype=f64)", "sub(cast(A, dtype=f64), cast(B, dtype=f64))"},
           {"i32", "A", "cast(cast(A, dtype=i8), dtype=i32)"},
       }) {
    const auto a = of(p.dtype, p.a), b = of(p.dtype, p.b);
    EXPECT_NE(difference(a, b, {}, nullptr), "") << p.dtype << " " << p.a;
    EXPECT_EQ(difference(a, a, {}, nullptr), "") << p.dtype << " " << p.a;
    EXPECT_EQ(difference(b, b, {}, nullptr), "") << p.dtype << " " << p.b;
    // Both spellings in one graph stay two values.
    const auto both = graph::parse({"g", fmt::format("graph g {{\n  input A: {0}[5, 6]\n  input B: {0}[5, 6]\n"
                                                     "  input C: {0}[6, 3]\n  output x = max(A, max(B, sum(C)))\n"
                                                     "  output y = {1}\n  output z = {2}\n}}",
                                                     p.dtype, p.a, p.b)});
    ASSERT_TRUE(both.ok());
    const auto found = algebra::search(*both);
    ASSERT_TRUE(found.ok());
    for (const auto& g : found->graphs)
      EXPECT_EQ(difference(*both, g.graph, {}, nullptr), "") << p.dtype << " " << p.a << "\n" << graph::print(g.graph);
  }
}

}  // namespace
}  // namespace cleave::check
