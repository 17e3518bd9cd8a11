// The names of steps, why they hold, and examples of each: rules.def.
#pragma once

#include <span>
#include <string_view>

namespace cleave::algebra {

struct Rule {
  const char* name;
  const char* because;                // a clause, for people
  const char *before, *after, *near;  // bodies of graphs, see rules.def
};

std::span<const Rule> rules();
const Rule* find_rule(std::string_view name);

}  // namespace cleave::algebra
