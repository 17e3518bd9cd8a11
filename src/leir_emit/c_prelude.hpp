// The helpers that emitted C stands on: storage types, integer division, and functions that repeat those of types/.
#pragma once

#include <string>
#include <string_view>

namespace cleave::leir {

std::string_view c_prelude();
std::string cuda_prelude();

}  // namespace cleave::leir
