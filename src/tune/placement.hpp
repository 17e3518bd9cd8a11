// Programs of microseconds are up to 15 % faster or slower by where their code and data happen to lie in memory, every
// time that they run there: an interval over many runs in one place says nothing of the next process. So two programs
// as short as that are compared in several places, and one is called faster only if it is in all of them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/timing.hpp"
#include "tune/problem.hpp"

namespace cleave::tune {

// Below this time of one run, in seconds, a comparison takes place in kPlaces places.
constexpr double kPlacedBelow = 5e-4;
constexpr int kPlaces = 3;

// Copies of the inputs and memory for the outputs at addresses (multiples of 64 bytes) drawn by the seed.
class Placement {
 public:
  Placement(const Problem& problem, uint64_t seed);
  const Call& call() const { return call_; }

 private:
  std::vector<runtime::Buffer> memory_;
  Call call_;
};

// What comparisons of the same two programs in different places say together: the ratio of the middle one, and an
// interval that holds all of theirs.
runtime::Comparison together(std::vector<runtime::Comparison> places);

}  // namespace cleave::tune
