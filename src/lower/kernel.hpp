// What the lowering of every statement of one kernel shares: the builder, values of index symbols, addresses.
#pragma once

#include <span>
#include <unordered_map>

#include "lower/plan.hpp"
#include "tile/pairs.hpp"
#include "vec/builder.hpp"

namespace cleave::lower {

using sym::Expr;
using vec::Builder;
using vec::Value;

struct Kernel {
  const tile::Program& program;
  const Plan& plan;
  const Machine& machine;
  sym::Pool& pool;  // a copy of the program's, with more symbols
  Builder& b;
  Scratch scratch;
  const std::set<BufferId>& past_caches;    // roots
  bool streams = false;                     // something is stored past the caches
  std::unordered_map<Expr, int> dims = {};  // position in call->extents
  // Each loop has a symbol of its own, with its exact range, counted from 0 in steps of 1; the program's symbols are
  // expressions of those, so what the pool can prove does not depend on how often a name is used.
  std::unordered_map<Expr, Expr> renamed = {};
  std::unordered_map<Expr, Value> values = {};  // i64 of the bound symbols; a vector while lanes are asked for
  int symbols = 0;

  const tile::Buffer& buffer(BufferId id) const { return program.buffer(id); }
  const Layout& layout(BufferId id) const { return plan.layout(id); }
  Expr in(Expr e) { return pool.substitute(e, renamed); }
  // Whether the dims alone decide the value.
  bool is_fixed(Expr e) const;

  // A new symbol with the range 0 .. trips - 1.
  Expr counter(Expr trips);
  // Code of an index expression (already in()), at the current place.
  Value emit(Expr e);
  Value emit_here(Expr e);
  // The first byte of a buffer.
  Value base(BufferId id);
  // The element offset of an index tuple (already in()).
  Expr offset(BufferId id, std::span<const Expr> at);
  Value element(BufferId id, Expr offset) {
    return b.ptr_add(base(id), b.mul(emit(offset), b.i64(byte_size(buffer(id).dtype))));
  }
};

void lower_nest(Kernel& k, const tile::Nest& nest);
// Emits the nest when it is a copy that transposes; false: it is not, nothing was emitted.
bool lower_transpose(Kernel& k, const tile::Nest& nest);
// Turns a square of lanes round: as many vectors as each has lanes, a power of two.
void exchange(Builder& b, std::vector<Value>& vectors);
// Rows that are stored in pairs, for the matrix unit: a copy into such a buffer, and a product that reads one.
void lower_pair_copy(Kernel& k, const tile::PairCopy& copy, const tile::Nest& nest);
void lower_pair_product(Kernel& k, const tile::Matmul& matmul);
void lower_matmul(Kernel& k, const tile::Matmul& matmul);
void lower_dot(Kernel& k, const tile::Matmul& matmul);  // of a B whose depth is contiguous

}  // namespace cleave::lower
