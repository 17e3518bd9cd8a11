// The rows of tests/data/subgraphs.json.
#pragma once

#include <fstream>
#include <sstream>

#include "frontend/suite.hpp"
#include "support.hpp"

namespace cleave::algebra::test {

inline std::vector<SuiteRow> subgraphs() {
  std::ifstream file(CLEAVE_SOURCE_DIR "/tests/data/subgraphs.json");
  std::stringstream text;
  text << file.rdbuf();
  auto rows = read_suite(text.str());
  EXPECT_TRUE(rows.ok()) << (rows.ok() ? "" : render(rows.errors(), nullptr));
  return rows.ok() ? std::move(*rows) : std::vector<SuiteRow>{};
}

}  // namespace cleave::algebra::test
