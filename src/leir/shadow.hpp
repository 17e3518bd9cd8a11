// A run without values: which elements each equation writes and reads, followed exactly for small programs. It answers
// questions on initialisation and coverage that the forms leave open.
#pragma once

#include "leir/program.hpp"

namespace cleave::leir {

struct Shadow {
  bool done = false;                          // false: too large, or the subscripts depend on data
  std::map<uint32_t, std::string> unwritten;  // access -> the first element it reads unwritten
  std::map<uint32_t, std::string> holes;      // output -> an element that is never written
  // A write that certainly lies outside of its variable, and the place; the run ends there.
  std::optional<std::pair<uint32_t, std::string>> outside;
};
Shadow run_shadow(const Program& program);

}  // namespace cleave::leir
