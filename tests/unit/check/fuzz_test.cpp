// A certificate in which any single byte is another one is refused, and the message says where.
#include <gmock/gmock.h>

#include <set>

#include "algebra/certificate.hpp"
#include "base/rng.hpp"
#include "check/check_certificate.hpp"
#include "unit/algebra/support.hpp"

namespace cleave::check {
namespace {

using ::testing::HasSubstr;

struct Certified {
  std::string name, graph, split;
};
const Certified kCertified[] = {
    {"norm",
     "graph g {\n  dim S in 1..9\n  input X: f32[S, 3]\n  input W: f32[3, 2]\n"
     "  output Y = contract(\"s k, k n -> s n\", rms_norm(X, axes=[1], eps=0.25), W)\n}",
     ""},
    {"attention",
     "graph g {\n  dim L in 1..9\n  input Q: f32[2, 3]\n  input K: f32[L, 3]\n  input V: f32[L, 2]\n"
     "  E = exp(mul(contract(\"s d, l d -> s l\", Q, K), 0.5))\n"
     "  output O = contract(\"s l, l d -> s d\", div(E, sum(E, axes=[1], keepdims=true)), V)\n}",
     ""},
    {"parts", "graph g {\n  dim K in 1..9\n  input X: f32[2, K]\n  output Y = sum(mul(X, 0.5), axes=[1])\n}", "x"}};

// The step that a position lies in: 0 before the steps, one more than there are in what follows them.
size_t step_at(const std::string& text, size_t position) {
  size_t step = 0;
  for (size_t at = text.find("\"rule\":"); at != std::string::npos && at <= position;
       at = text.find("\"rule\":", at + 1))
    ++step;
  return position >= text.find("\"result\":") ? step + 1 : step;
}

TEST(Check, EveryByteOfACertificateMatters) {
  Rng rng(7);
  for (const Certified& c : kCertified) {
    algebra::SearchOptions options;
    const graph::Graph g = algebra::test::parsed(c.graph);
    if (!c.split.empty()) options.split = algebra::splittable_indices(g).at(0);
    const auto text = algebra::certificate(g, 1, options);
    ASSERT_TRUE(text.ok()) << c.name;
    ASSERT_TRUE(check_certificate(*text, {.draws = 1}).ok()) << c.name;
    size_t named = 0, inside = 0;
    for (size_t at = 0; at < text->size(); ++at) {
      std::string bad = *text;
      bad[at] = static_cast<char>(bad[at] ^ (1 << rng.below(8)));
      const auto report = check_certificate(bad, {.draws = 1});
      // White space around members is the one thing that means nothing.
      if (report.ok()) {
        EXPECT_TRUE(std::isspace(static_cast<unsigned char>(text->at(at)))) << c.name << " byte " << at;
        continue;
      }
      const size_t step = step_at(*text, at);
      const bool ours = step > 0 && at < text->find("\"result\":");
      inside += ours;
      named += ours && report.errors()[0].message().find(fmt::format("step {}", step)) != std::string::npos;
      EXPECT_FALSE(report.errors()[0].message().empty());
    }
    EXPECT_GT(inside, 100u) << c.name;
    EXPECT_GE(named, inside - inside / 50) << c.name;
    fmt::print("{}: {} bytes, {} of {} within steps named\n", c.name, text->size(), named, inside);
  }
}

// The same for what is missing: a text that ends anywhere is refused.
TEST(Check, ATextThatEndsAnywhereIsRefused) {
  const std::string text = *algebra::certificate(algebra::test::parsed(kCertified[1].graph), 1);
  for (size_t length = 0; length + 2 < text.size(); ++length) {
    const auto report = check_certificate(text.substr(0, length), {.draws = 1});
    ASSERT_FALSE(report.ok()) << length;
    EXPECT_THAT(report.errors()[0].message(), HasSubstr("cut short")) << length;
  }
}

}  // namespace
}  // namespace cleave::check
