// docs/graph.md has a row for every operator, with all its attributes, and its example parses.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "graph/graph.hpp"

namespace cleave::graph {
namespace {

std::string page() {
  std::ifstream in(CLEAVE_SOURCE_DIR "/docs/graph.md");
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(GraphDocs, EveryOperatorHasItsRow) {
  std::istringstream lines(page());
  std::vector<std::string> rows;
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("| `")) rows.push_back(line);
  for (const OpInfo& op : all_ops()) {
    const std::string name = fmt::format("`{}`", op.name);
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const std::string& r) {
      return r.substr(0, r.find('|', 1)).find(name) != std::string::npos;
    });
    ASSERT_NE(row, rows.end()) << op.name << " is not in docs/graph.md";
    const size_t begin = row->find('|', 1) + 1;
    const std::string arguments = row->substr(begin, row->find('|', begin) - begin);
    for (const AttributeInfo& a : op.attributes)
      EXPECT_NE(arguments.find(a.required ? a.name : "*" + a.name + "*"), std::string::npos)
          << op.name << " " << a.name;
  }
}

TEST(GraphDocs, ItsExampleParses) {
  const std::string text = page();
  const size_t begin = text.find("    graph attention {"), end = text.find("    }\n", begin);
  ASSERT_NE(begin, std::string::npos);
  const SourceText source{"docs/graph.md", text.substr(begin, end + 6 - begin)};
  const auto g = parse(source);
  ASSERT_TRUE(g.ok()) << render(g.errors(), &source);
  EXPECT_EQ(g->outputs().size(), 1u);
}

}  // namespace
}  // namespace cleave::graph
