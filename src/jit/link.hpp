// The linker, lld, in this process.
#pragma once

#include <string>
#include <vector>

#include "base/diagnostic.hpp"

namespace cleave::jit {

// Runs it with these arguments, as `ld.lld` takes them; one call at a time. Of any architecture.
Diagnostics link(const std::vector<std::string>& words);

}  // namespace cleave::jit
