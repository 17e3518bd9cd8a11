// SHA-256 (FIPS 180-4), for the hashes of artefacts; `sha256sum` prints the same.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace cleave::driver {

// `portable`: without the rounds that the processor has.
std::string sha256_hex(std::span<const std::byte> bytes, bool portable = false);

}  // namespace cleave::driver
