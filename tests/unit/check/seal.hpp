// The digests of a certificate (docs/algebra.md), for tests that write their own.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/digest.hpp"

namespace cleave::check {

// The text of `c` with digests as whoever writes a certificate gives it.
inline std::string sealed(nlohmann::json c) {
  nlohmann::json head = c;
  Digest digest;
  for (const char* key : {"steps", "result", "digest"}) head.erase(key);
  digest.add(head.dump());
  if (c.contains("steps") && c["steps"].is_array())
    for (auto& step : c["steps"]) {
      step.erase("digest");
      digest.add(step.dump());
      step["digest"] = digest.hex();
    }
  if (c.contains("result")) digest.add(c["result"].dump());
  c["digest"] = digest.hex();
  return c.dump();
}

}  // namespace cleave::check
