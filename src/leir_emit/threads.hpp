// How a top-level nest runs as a CUDA kernel: which thread runs what, and where the threads of a block wait for each
// other. A bound loop is the place of a thread or of a block on its axis; what no loop binds on an axis of the kernel
// is run by place 0 of it, unless every thread keeps the result for itself.
#pragma once

#include <map>
#include <set>

#include "leir/program.hpp"

namespace cleave::leir {

struct ThreadPlan {
  std::map<std::string, int64_t> axes;  // bx by bz tx ty tz -> extent
  std::set<uint32_t> barrier_before;    // items
  std::set<uint32_t> barrier_in;        // serial loops that end each iteration with a barrier
  // Thread loops that something is reduced over: one thread after the other adds its part, in written order.
  std::set<uint32_t> turns;
  // Bound loops with a barrier inside: all threads go through them, and their condition is asked at each equation.
  std::set<uint32_t> open;
  std::map<uint32_t, std::vector<std::string>> alone;  // of an equation: axes of which only place 0 runs it

  bool waits() const { return !barrier_before.empty() || !barrier_in.empty() || !turns.empty(); }
};

std::string axis_of(const Program& program, uint32_t loop);  // of a bound loop

// Refused, with the reason: what would need blocks to wait for each other, barriers that not every thread of a block
// would reach, and sums over as many threads as something else says.
Result<ThreadPlan> thread_plan(const Program& program, uint32_t nest, const std::vector<Placement>& placements);

}  // namespace cleave::leir
