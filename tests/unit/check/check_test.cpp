// A certificate is believed only where every step holds.
#include "check/check_certificate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "check/exact.hpp"
#include "seal.hpp"

namespace cleave::check {
namespace {

using ::testing::HasSubstr;

constexpr const char* kInput = R"(graph g {
  dim S in 0..64
  dim K in 1..64
  dim N in 1..64
  input X: f32[S, K]
  input W: f32[K, N]
  R = rsqrt(add(mean(square(X), axes=[1], keepdims=true), 1e-6))
  output Y = contract("s k, k n -> s n", mul(X, R), W)
})";
constexpr const char* kStep = R"(graph g {
  dim S in 0..64
  dim K in 1..64
  dim N in 1..64
  input X: f32[S, K]
  input W: f32[K, N]
  R = rsqrt(add(mean(square(X), axes=[1], keepdims=true), 1e-6))
  output Y = mul(contract("s k, k n -> s n", X, W), R)
})";

nlohmann::ordered_json sound() {
  nlohmann::ordered_json j;
  j["schema"] = "cleave.certificate/2";
  j["input"] = kInput;
  j["steps"] = nlohmann::json::array();
  j["steps"].push_back({{"rule", "product"}, {"graph", kStep}});
  j["result"] = kStep;
  return j;
}

std::string refusal_of(const std::string& text) {
  const auto r = check_certificate(text);
  return r.ok() ? "" : r.errors()[0].message();
}
std::string refusal(const nlohmann::ordered_json& j) { return refusal_of(sealed(j)); }

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos);
  return text.replace(at, from.size(), to);
}

TEST(Check, ASoundCertificateIsAccepted) {
  const auto r = check_certificate(sealed(sound()));
  ASSERT_TRUE(r.ok()) << render(r.errors(), nullptr);
  EXPECT_EQ(r->steps, 1u);
  EXPECT_GE(r->evaluations, 12u);
}

TEST(Check, AMutatedStepIsRefusedByItsNumberAndRule) {
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"1e-6", "2e-6"}, {"rsqrt", "sqrt"}, {"mean", "sum"}, {"mul(contract", "add(contract"}}) {
    auto j = sound();
    j["steps"][0]["graph"] = replaced(kStep, from, to);
    const std::string why = refusal(j);
    EXPECT_THAT(why, HasSubstr("step 1 of the certificate (`product`)")) << from;
  }
}

TEST(Check, AMutatedResultIsRefusedAsTheLastStep) {
  auto j = sound();
  j["result"] = replaced(kStep, "mul(contract", "sub(contract");
  EXPECT_THAT(refusal(j), HasSubstr("step 2 of the certificate (`stabilise`)"));
}

// Off by less than float64 comparison can tell: exact arithmetic refuses it.
TEST(Check, AConstantThatIsOffByTenDigitsIsRefused) {
  auto text = [](const char* constant, const char* spelled) {
    return fmt::format(
        "graph g {{\n  dim S in 1..64\n  input X: f64[S, S]\n  C = literal(value={}, dtype=f64)\n  output Y = {}\n}}",
        constant, spelled);
  };
  nlohmann::ordered_json j;
  j["schema"] = "cleave.certificate/2";
  j["input"] = text("1.5", "exp(mul(X, C))");
  j["steps"] = nlohmann::json::array();
  j["result"] = text("1.5", "mul(exp(mul(X, 1.0)), exp(mul(X, 0.5)))");
  EXPECT_EQ(refusal(j), "");
  j["result"] = text("1.5000000001", "exp(mul(X, C))");
  EXPECT_THAT(refusal(j), HasSubstr("exact arithmetic modulo random primes gives other outputs"));
}

Exact exactly(const std::string& x, const std::string& y) {
  auto graph = [](const std::string& body) {
    const SourceText source{
        "x.graph", "graph g {\n  input X: f64[5, 7]\n  input V: f64[7]\n  input M: bool[5, 7]\n  input I: i64[7]\n" +
                       body + "\n}"};
    auto g = graph::parse(source);
    EXPECT_TRUE(g.ok()) << (g.ok() ? "" : render(g.errors(), &source));
    return graph::expand(std::move(*g));
  };
  return compare_exactly(graph("  output Y = " + x), graph("  output Y = " + y), 7, 1 << 20);
}

TEST(Check, ExactArithmeticTellsEqualFromDifferent) {
  const std::string same[][2] = {
      {"mul(exp(X), exp(V))", "exp(add(X, V))"},
      {"softmax(X, axis=1)", "div(exp(X), sum(exp(X), axes=[1], keepdims=true))"},
      {"contract(\"i k, k -> i\", X, V)", "sum(mul(X, V), axes=[1])"},
      {"square(sub(X, V))", "add(sub(square(X), mul(2.0, mul(X, V))), square(V))"},
      {"exp(where(M, X, -inf))", "where(M, exp(X), 0.0)"},
      {"transpose(exp(X), perm=[1, 0])", "exp(transpose(X, perm=[1, 0]))"},
      {"mean(X, axes=[1])", "div(sum(X, axes=[1]), 7.0)"},
      {"mul(X, literal(value=0.3, dtype=bf16))", "mul(X, cast(0.3, dtype=bf16))"},
      {"max(X, V)", "max(V, X)"},
      {"mul(X, cast(mod(I, sub(I, I)), dtype=f64))", "mul(X, 0.0)"},
      {"mul(X, cast(div(I, 2), dtype=f64))", "mul(X, cast(div(mul(I, 3), 6), dtype=f64))"},
      {"mul(X, cast(cast(add(I, 300), dtype=u8), dtype=f64))", "mul(X, cast(cast(add(I, 44), dtype=u8), dtype=f64))"},
      {"quot0(mul(X, V), V)", "mul(V, quot0(X, V))"},
      {"quot0(X, sub(X, X))", "mul(X, 0.0)"},
      {"slice(concat(X, X, axis=0), axes=[0], starts=[5], stops=[10])", "X"},
      {"softmax(where(M, X, -inf), axis=1, empty=\"zero\")",
       "quot0(where(M, exp(X), 0.0), sum(where(M, exp(X), 0.0), axes=[1], keepdims=true))"},
      {"contract(\"i k, k -> i\", softmax(X, axis=1), V)",
       "div(contract(\"i k, k -> i\", exp(X), V), sum(exp(X), axes=[1]))"},
      {"amin(add(X, V), axes=[1])", "amin(add(V, X), axes=[1])"},
      {"cumsum(mul(X, V), axis=1)", "cumsum(mul(V, X), axis=1)"},
      {"gather(mul(X, 2.0), I, axis=1)", "mul(gather(X, I, axis=1), 2.0)"},
      {"mul(V, cast(cumsum(I, axis=0), dtype=f64))", "mul(cast(cumsum(add(I, sub(I, I)), axis=0), dtype=f64), V)"},
      {"where(M, div(X, 0.0), V)", "where(M, div(X, 0.0), mul(V, 1.0))"}};
  for (const auto& [x, y] : same) EXPECT_EQ(exactly(x, y), Exact::equal) << x;
  const std::string other[][2] = {{"mul(exp(X), exp(V))", "exp(mul(X, V))"},
                                  {"sum(square(X), axes=[1])", "square(sum(X, axes=[1]))"},
                                  {"add(X, 0.25)", "add(X, 0.2500000000001)"},
                                  {"div(X, add(V, 1.0))", "add(div(X, V), X)"},
                                  {"exp(where(M, X, -inf))", "exp(where(M, X, 0.0))"},
                                  {"reshape(X, shape=[7, 5])", "transpose(X, perm=[1, 0])"},
                                  {"mean(X, axes=[1])", "sum(X, axes=[1])"},
                                  {"gather(X, I, axis=1)", "gather(X, add(I, 1), axis=1)"},
                                  {"where(M, div(X, 0.0), V)", "where(M, div(X, 0.0), X)"}};
  for (const auto& [x, y] : other) EXPECT_EQ(exactly(x, y), Exact::different) << x;
  // Random functions, roots and maxima that come apart say nothing.
  EXPECT_EQ(exactly("tanh(X)", "sin(X)"), Exact::no_say);
  EXPECT_EQ(exactly("square(sqrt(X))", "X"), Exact::no_say);
  EXPECT_EQ(exactly("amax(X, axes=[1])", "amin(X, axes=[1])"), Exact::no_say);
  EXPECT_EQ(exactly("cumsum(X, axis=1)", "cumsum(X, axis=0)"), Exact::no_say);
  EXPECT_EQ(exactly("cast(lt(amin(X, axes=[0, 1]), V), dtype=f64)",
                    "cast(lt(amin(amin(X, axes=[1]), axes=[0]), V), dtype=f64)"),
            Exact::no_say);
  EXPECT_EQ(exactly("div(X, 0.0)", "X"), Exact::no_say);
  EXPECT_EQ(exactly("log(sub(X, X))", "cumprod(sub(X, X), axis=0)"), Exact::no_say);
  // The dialect is what it stands for.
  EXPECT_EQ(exactly("X\n  m, Y2 = scaled_reduce(X, V, spec=\"i k -> i | k -> i\")\n  output Z = unscale(Y2, m)",
                    "X\n  output Z = contract(\"i k, k -> i\", exp(X), V)"),
            Exact::equal);
}

TEST(Check, OtherLeavesOrOutputsAreRefused) {
  auto j = sound();
  j["steps"][0]["graph"] = replaced(kStep, "output Y", "output Z");
  EXPECT_THAT(refusal(j), HasSubstr("output Z"));
}

TEST(Check, TruncatedTextsAreRefusedWithTheStepWhereTheyEnd) {
  const std::string text = sealed(sound());  // keys are sorted: the steps stand last
  const size_t first = text.find("\"steps\":[{") + 9;
  for (size_t n = 0; n < text.size(); n += 7) {
    const std::string why = refusal_of(text.substr(0, n));
    EXPECT_THAT(why, HasSubstr(n > first && n < text.size() - 2 ? "in step 1 it is no JSON" : "it is no JSON")) << n;
  }
  EXPECT_THAT(refusal_of(text.substr(0, text.size() - 1)), HasSubstr("after step 1 it is no JSON"));
  for (const char* key : {"schema", "input", "steps", "result"}) {
    auto j = sound();
    j.erase(key);
    EXPECT_NE(refusal(j), "") << key;
    j[key] = 7;
    EXPECT_NE(refusal(j), "") << key;
  }
}

// What the graphs do not show: words, numbers, and whether all steps are there.
TEST(Check, WhateverIsChangedLeftOutOrMovedIsRefusedAtItsStep) {
  auto j = sound();
  j["seed"] = 1;
  j["steps"][0]["value"] = "X W";
  auto second = j["steps"][0];
  second["rule"] = "spelling";
  second["graph"] = replaced(kStep, "square(X)", "mul(X, X)");
  j["steps"].push_back(second);
  const nlohmann::json whole = nlohmann::json::parse(sealed(j));
  EXPECT_EQ(refusal_of(whole.dump()), "");
  auto refused = [&](const std::function<void(nlohmann::json&)>& change) {
    nlohmann::json c = whole;
    change(c);
    return refusal_of(c.dump());
  };
  EXPECT_THAT(refused([](auto& c) { c["seed"] = 2; }), HasSubstr("step 1 of the certificate"));
  EXPECT_THAT(refused([](auto& c) { c["steps"][0]["value"] = "W X"; }), HasSubstr("step 1 of the certificate"));
  EXPECT_THAT(refused([](auto& c) { c["steps"][1]["rule"] = "product"; }), HasSubstr("step 2 of the certificate"));
  EXPECT_THAT(refused([](auto& c) { c["steps"][1].erase("digest"); }), HasSubstr("step 2 of the certificate"));
  EXPECT_THAT(refused([](auto& c) { c["digest"] = 5; }), HasSubstr("step 3 of the certificate"));
  EXPECT_THAT(refused([](auto& c) { c["steps"].erase(0); }), HasSubstr("step 1 of the certificate"));
  EXPECT_THAT(refused([](auto& c) { c["steps"].erase(1); }), HasSubstr("step 2 of the certificate (`stabilise`)"));
  EXPECT_THAT(refused([](auto& c) { c["steps"].push_back(c["steps"][1]); }), HasSubstr("step 3 of the certificate"));
  EXPECT_THAT(refused([](auto& c) { std::swap(c["steps"][0], c["steps"][1]); }),
              HasSubstr("step 1 of the certificate"));
  EXPECT_THAT(refused([](auto& c) { c["steps"][0] = nullptr; }), HasSubstr("step 1 of the certificate"));
}

// Inputs go by their places.
TEST(Check, InputsInAnotherOrderAreRefused) {
  auto j = sound();
  const std::string x = "  input X: f32[S, K]\n", w = "  input W: f32[K, N]\n";
  j["result"] = replaced(kStep, x + w, w + x);
  EXPECT_THAT(refusal(j), HasSubstr("step 2 of the certificate (`stabilise`)"));
}

// Members that have no meaning, cannot be what they are, or stand twice are no part of what was judged.
TEST(Check, WhatHasNoMeaningIsRefused) {
  EXPECT_THAT(refusal([] {
                auto j = sound();
                j["proved"] = true;
                return j;
              }()),
              HasSubstr("`proved` that has no meaning"));
  EXPECT_THAT(refusal([] {
                auto j = sound();
                j["draws"] = "many";
                return j;
              }()),
              HasSubstr("`draws` is \"many\""));
  EXPECT_THAT(refusal([] {
                auto j = sound();
                j["policies"] = {{"rounding", 5}};
                return j;
              }()),
              HasSubstr("`policies`"));
  EXPECT_THAT(refusal([] {
                auto j = sound();
                j["steps"] = 5;
                return j;
              }()),
              HasSubstr("`steps` is 5, which it cannot be"));
  EXPECT_THAT(refusal([] {
                auto j = sound();
                j["steps"][0]["rule"] = 5;
                return j;
              }()),
              HasSubstr("step 1"));
  EXPECT_THAT(refusal([] {
                auto j = sound();
                j["steps"][0]["why"] = "so";
                return j;
              }()),
              HasSubstr("step 1"));
  const std::string whole = sealed(sound());
  EXPECT_THAT(refusal_of(replaced(whole, "\"result\"", "\"schema\": \"cleave.certificate/2\", \"result\"")),
              HasSubstr("`schema` stands twice"));
}

}  // namespace
}  // namespace cleave::check
