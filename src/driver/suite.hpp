// The algebraic phase over a suite (frontend/suite.hpp): every row, whole and with each of its indices split.
#pragma once

#include <string>
#include <vector>

#include "driver/options.hpp"

namespace cleave::driver {

struct SuiteSearch {
  std::string name;
  std::string split;  // empty: none
  size_t values = 0, applications = 0, graphs = 0;
  bool saturated = false;
  double seconds = 0;
  double peak_mb = 0;  // the most memory that the search held beyond what the process had; NaN where it is not known
};

// Errors: the file's, or suite_malformed.
Result<std::vector<SuiteSearch>> search_suite(const std::string& path, const Options& options);

std::string suite_text(const std::vector<SuiteSearch>& rows);
std::string suite_json(const std::vector<SuiteSearch>& rows);  // schema cleave.suite/1

}  // namespace cleave::driver
