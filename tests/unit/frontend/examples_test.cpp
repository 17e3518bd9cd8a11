// The committed examples are valid input.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "graph/graph.hpp"

namespace cleave {
namespace {

TEST(Examples, EveryGraphTextParsesVerifiesAndPrintsBack) {
  int seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(CLEAVE_SOURCE_DIR) + "/examples")) {
    if (entry.path().extension() != ".graph") continue;
    ++seen;
    std::ifstream in(entry.path());
    const SourceText source{entry.path().filename(), {std::istreambuf_iterator<char>(in), {}}};
    const auto g = graph::parse(source);
    ASSERT_TRUE(g.ok()) << render(g.errors(), &source);
    EXPECT_TRUE(graph::verify(*g).empty()) << source.name;
    const SourceText printed{"printed.graph", graph::print(*g)};
    const auto again = graph::parse(printed);
    ASSERT_TRUE(again.ok()) << render(again.errors(), &printed);
    EXPECT_TRUE(graph::equal(*g, *again)) << source.name;
  }
  EXPECT_GE(seen, 3);
}

}  // namespace
}  // namespace cleave
