// A running digest of texts (64 bits, FNV-1a): it tells what was changed, left out or cut short from the original. It
// is no signature.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace cleave {

class Digest {
 public:
  void add(std::string_view text) {
    for (const char c : text) step(static_cast<unsigned char>(c));
    step(0x100);  // where one text ends and the next begins
  }
  std::string hex() const { return fmt::format("{:016x}", state_); }

 private:
  void step(uint64_t byte) { state_ = (state_ ^ byte) * 0x100000001b3ULL; }
  uint64_t state_ = 0xcbf29ce484222325ULL;
};

}  // namespace cleave
