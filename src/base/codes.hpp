// The names of diagnostics.def. Only sources that report or compare a message include it, never a header: a new
// message then rebuilds those alone.
#pragma once

#include "base/diagnostic.hpp"

namespace cleave {

enum class Code : int {
#define DIAGNOSTIC(name, number, severity, text, hint) name = number,
#include "base/diagnostics.def"
#undef DIAGNOSTIC
};

}  // namespace cleave
