// How one nest is run: which axis becomes the lanes of vectors, in which order its loops stand, where each node is
// evaluated and which accumulators stay in registers across which loops. Decided before any code is made.
#pragma once

#include "lower/kernel.hpp"

namespace cleave::lower {

using tile::Nest;
using tile::NodeId;

// How an address moves along the vector axis.
enum class Along : uint8_t { uniform, contiguous, strided, general };

// A load or a store of a nest.
struct Access {
  BufferId buffer;
  DType dtype = DType::f32;
  Expr offset;                                   // in elements, without the dynamic parts
  std::vector<std::pair<NodeId, Expr>> dynamic;  // node * stride is added
  NodeId panel_node;                             // a dynamic index of the last axis of a panel buffer, ..
  Expr panel_index;                              // .. added to this, which `offset` then leaves out
  Along along = Along::uniform;
  int64_t stride = 0;          // along the vector axis, when `linear`
  bool linear = true;          // the stride is a constant
  int64_t ahead = 0;           // what lies so many bytes behind is fetched into L2 with a load; 0: nothing
  std::vector<Expr> at_level;  // what the symbol of loop l adds to the offset, at [l + 1]; [0]: what surrounds the nest
};

struct NodePlan {
  int level = -1;      // the loop after whose entry it is evaluated; -1: before all loops
  bool lanes = false;  // differs from lane to lane
  bool splat = false;  // one value, needed in all lanes
  int access = -1;     // of a load
};

struct StorePlan {
  int access = -1;
  int start = 0;               // an accumulator lives in registers across the loops start .. end; all loops: none does
  bool partial = false;        // a vector of partial results along the vector axis, reduced at the end
  bool from_identity = false;  // begins with the function's identity, memory is not read
  bool initialise = false;     // fresh, but memory has to be filled before the loops
};

struct NestPlan {
  std::vector<tile::Axis> axes;  // in loop order, renamed
  std::vector<Expr> stretch;     // the extents, renamed
  int vector_level = -1;         // the loop whose index becomes lanes
  int lanes = 1;
  int unroll = 1;
  bool triangular = false;  // an extent depends on another axis
  std::vector<Access> accesses;
  std::vector<NodePlan> nodes;
  std::vector<StorePlan> stores;
};

// The symbols of the nest must already be renamed in `k`; `axes` are its axes in the nest's order.
NestPlan plan_nest(Kernel& k, const Nest& nest, const std::vector<tile::Axis>& axes);

}  // namespace cleave::lower
