// Certificates of real searches: all are accepted; a change anywhere in a graph is refused with its step.
#include <nlohmann/json.hpp>

#include "algebra/certificate.hpp"
#include "check/check_certificate.hpp"
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
      if (report.ok()) steps += report->steps;
    }
  }
  EXPECT_GT(steps, 30u);
}

TEST(Check, CertificatesOfSplitGraphsAreAccepted) {
  for (const auto& s : subgraphs()) {
    if (s.name != "mha" && s.name != "rmsnorm_linear" && s.name != "lora") continue;
    algebra::SearchOptions options;
    options.split = algebra::splittable_indices(s.graph).at(0);
    const auto text = algebra::certificate(s.graph, 1, options);
    ASSERT_TRUE(text.ok()) << render(text.errors(), nullptr);
    const auto report = check_certificate(*text, {.draws = 1});
    EXPECT_TRUE(report.ok()) << s.name << (report.ok() ? "" : render(report.errors(), nullptr));
    auto forged = nlohmann::ordered_json::parse(*text);
    std::string result = forged["result"].get<std::string>();
    const size_t at = result.find("= reshape(");
    ASSERT_NE(at, std::string::npos);
    result.replace(result.find(")", at), 1, "))").replace(at, 10, "= neg(reshape(");
    forged["result"] = result;
    EXPECT_FALSE(check_certificate(forged.dump(), {.draws = 1}).ok()) << s.name;
  }
}

// Changes one occurrence of `from` in the text of step `k`.
bool change(nlohmann::ordered_json& graph, const std::string& from, const std::string& to) {
  std::string text = graph.get<std::string>();
  const size_t at = text.find(from);
  if (at == std::string::npos) return false;
  graph = text.replace(at, from.size(), to);
  return true;
}

TEST(Check, MutationsOfRealCertificatesAreRefusedByStep) {
  size_t tried = 0;
  for (const auto& s : subgraphs()) {
    const auto r = algebra::search(s.graph);
    ASSERT_TRUE(r.ok());
    if (r->graphs.size() < 2) continue;
    const auto sound = nlohmann::ordered_json::parse(*algebra::certificate(s.graph, 1));
    for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{{" mul(", " add("},
                                                                                   {" rsqrt(", " sqrt("},
                                                                                   {" add(", " sub("},
                                                                                   {" exp(", " square("},
                                                                                   {" div(", " mul("},
                                                                                   {"amax", "amin"},
                                                                                   {" square(", " abs("}})
      for (size_t k = 0; k <= sound["steps"].size(); ++k) {
        auto j = sound;
        auto& graph = k < j["steps"].size() ? j["steps"][k]["graph"] : j["result"];
        if (!change(graph, from, to)) continue;
        ++tried;
        const auto report = check_certificate(j.dump(), {.draws = 2});
        ASSERT_FALSE(report.ok()) << s.name << " step " << k << ": " << from << " became " << to;
        EXPECT_THAT(report.errors()[0].message(),
                    ::testing::HasSubstr(fmt::format("step {} of the certificate", k + 1)))
            << s.name << from;
      }
  }
  EXPECT_GT(tried, 100u);
}

}  // namespace
}  // namespace cleave::check
