// A certificate is believed only where every step holds.
#include "check/check_certificate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

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
  j["schema"] = "cleave.certificate/1";
  j["input"] = kInput;
  j["steps"] = nlohmann::json::array();
  j["steps"].push_back({{"rule", "product"}, {"graph", kStep}});
  j["result"] = kStep;
  return j;
}

std::string refusal(const nlohmann::ordered_json& j) {
  const auto r = check_certificate(j.dump());
  return r.ok() ? "" : r.errors()[0].message();
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos);
  return text.replace(at, from.size(), to);
}

TEST(Check, ASoundCertificateIsAccepted) {
  const auto r = check_certificate(sound().dump());
  ASSERT_TRUE(r.ok()) << render(r.errors(), nullptr);
  EXPECT_EQ(r->steps, 2u);
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

TEST(Check, OtherLeavesOrOutputsAreRefused) {
  auto j = sound();
  j["steps"][0]["graph"] = replaced(kStep, "output Y", "output Z");
  EXPECT_THAT(refusal(j), HasSubstr("output Z"));
}

TEST(Check, TruncatedTextsAreRefusedWithoutHarm) {
  const std::string text = sound().dump();
  for (size_t n = 0; n < text.size(); n += 7) EXPECT_FALSE(check_certificate(text.substr(0, n)).ok()) << n;
  for (const char* key : {"schema", "input", "steps", "result"}) {
    auto j = sound();
    j.erase(key);
    EXPECT_NE(refusal(j), "") << key;
    j[key] = 7;
    EXPECT_NE(refusal(j), "") << key;
  }
}

}  // namespace
}  // namespace cleave::check
