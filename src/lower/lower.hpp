// Tile programs -> vector IR: decides addresses, vector axes, register tiles and loop order inside each statement.
//
// What lower() makes of a program is a module with one function a kernel, and a plan of the memory those functions
// expect. It keeps the meaning of tile programs (eval/tile_eval): sums may be grouped by lanes, everything else is
// element by element the same. Nothing depends on the number of threads.
//
// Tensors of the call, in this order: inputs by argument, constants by argument, outputs by argument, and one more, the
// packed memory, when packed_bytes > 0. All are dense row-major with strides that follow from their extents, so
// CleaveTensor::strides is not read. Scalars are call->scalars[argument]; dims are call->extents in the program's
// order; workspace buffers lie at offsets of call->workspace that the dims decide.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "machine/machine.hpp"
#include "tile/tile.hpp"
#include "vec/vec.hpp"

namespace cleave::lower {

struct Launch {
  std::string function;            // in the module
  bool once = false;               // runs when the constants are bound; reads constants, writes packed memory
  int64_t tasks = 1;               // 0 .. tasks - 1, independent of each other; for the typical values of the dims
  int64_t scratch_bytes = 0;       // of one task; for the typical values of the dims
  sym::Expr tasks_of, scratch_of;  // the same for any values
};

// One tensor of the call.
struct Argument {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;           // for the typical values of the dims
  std::vector<sym::Expr> extents = {};  // for any values
};

struct Lowered {
  vec::Module module;
  std::vector<Argument> inputs, constants, outputs;
  std::vector<bool> constant_read;  // by a kernel that runs at each call; the others are read by `once` kernels only
  int scalars = 0;                  // how many run-time scalars the program has
  int64_t workspace_bytes = 0;      // for the typical values of the dims
  sym::Expr workspace_of;           // for any values
  int64_t packed_bytes = 0;         // dims have no part in it
  std::shared_ptr<const sym::Pool> syms;
  std::vector<sym::Expr> dims;  // of the program, in the order of call->extents

  // The shape of an argument in a call with these values of the dims.
  std::vector<int64_t> shape(const Argument& argument, std::span<const int64_t> extents) const;
  std::vector<Launch> launches;  // in order, `once` kernels first

  int input_tensor(size_t i) const { return static_cast<int>(i); }
  int constant_tensor(size_t i) const { return static_cast<int>(inputs.size() + i); }
  int output_tensor(size_t i) const { return static_cast<int>(inputs.size() + constants.size() + i); }
  int packed_tensor() const { return static_cast<int>(inputs.size() + constants.size() + outputs.size()); }
};

// The machine decides vector widths and register tiles; it must be one that the compiled code will run on. Programs
// that do not verify or need more than the limits of memory give diagnostics; with dims the memory is known at the
// call.
Result<Lowered> lower(const tile::Program& program, const Machine& machine);

}  // namespace cleave::lower
