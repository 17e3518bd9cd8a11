// CHECK: an invariant of ours. It is on in every build; a failure is our bug, never the user's.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace cleave {

class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] void check_failed(const char* condition, const char* file, int line, const std::string& message);

}  // namespace cleave

#define CHECK(condition, ...)                                                                              \
  do {                                                                                                     \
    if (!(condition)) ::cleave::check_failed(#condition, __FILE__, __LINE__, fmt::format("" __VA_ARGS__)); \
  } while (false)
