// Certificates are complete: every step leaves a graph, and their texts are the search's own.
#include "algebra/certificate.hpp"

#include <nlohmann/json.hpp>

#include "subgraphs.hpp"

namespace cleave::algebra {
namespace {

TEST(Certificate, HasAGraphForEveryStepAndEndsInTheFoundGraph) {
  size_t steps = 0;
  for (const auto& s : test::subgraphs()) {
    const auto r = search(s.graph);
    ASSERT_TRUE(r.ok());
    for (size_t k = 0; k < r->graphs.size(); k += 5) {
      const auto text = certificate(s.graph, k);
      ASSERT_TRUE(text.ok());
      const auto j = nlohmann::json::parse(*text);
      EXPECT_EQ(j["result"], print(r->graphs[k].graph));
      graph::Graph before = s.graph;
      for (const auto& step : j["steps"]) {
        ++steps;
        ASSERT_TRUE(step.contains("graph")) << s.name << " " << step["rule"];
        const SourceText source{"step", step["graph"].get<std::string>()};
        auto g = graph::parse(source);
        ASSERT_TRUE(g.ok()) << render(g.errors(), &source);
        std::map<std::string, int64_t> dims;
        for (sym::Expr d : s.graph.dims())
          dims[s.graph.syms().symbol_name(d)] = 3 + static_cast<int64_t>(dims.size()) % 3;
        test::expect_same(before, *g, dims, 1, 1e-8);
        before = *g;
      }
    }
  }
  EXPECT_GT(steps, 20u);
}

TEST(Certificate, ANumberBeyondTheListIsAnError) {
  const auto g = test::parsed("graph g {\n  input X: f32[3]\n  output Y = mul(X, 2)\n}");
  EXPECT_FALSE(certificate(g, 99).ok());
}

}  // namespace
}  // namespace cleave::algebra
