// Is everything here that optimising and running need?
#pragma once

#include <string>
#include <vector>

#include "driver/options.hpp"

namespace cleave::driver {

struct Finding {
  bool ok = true;
  std::string what, detail;
};
std::vector<Finding> examine(const Options& options);
std::string doctor_json(const std::vector<Finding>& findings);  // cleave.doctor/1
std::string targets_json(const Machine& machine);               // cleave.targets/1

std::string passes_json();  // cleave.passes/1

}  // namespace cleave::driver
