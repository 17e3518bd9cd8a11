#include "algebra/rules.hpp"

namespace cleave::algebra {

namespace {
constexpr Rule kRules[] = {
#define RULE(name, because, before, after, near) {name, because, before, after, near},
#include "algebra/rules.def"
#undef RULE
};
}  // namespace

std::span<const Rule> rules() { return kRules; }

const Rule* find_rule(std::string_view name) {
  for (const Rule& r : kRules)
    if (name == r.name) return &r;
  return nullptr;
}

}  // namespace cleave::algebra
