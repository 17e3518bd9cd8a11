// What is computed as a value of its own, and which values are computed together in one kernel.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "graph/graph.hpp"
#include "itgraph/itgraph.hpp"
#include "schedule/schedule.hpp"

namespace cleave::schedule {

// One value (or group of values) to be computed, over index symbols of its own.
struct Unit {
  std::variant<itgraph::Compute, itgraph::Library> what;
  std::string name;
  std::vector<itgraph::ValueId> results;
  std::vector<size_t> operands;  // units whose results it reads
  bool heavy = false;            // a contraction: two loads multiplied, or the factor of a scaled sum
  bool visible = false;          // an output of the program
  bool constant = false;         // depends on constants only: computed when the program is loaded
  bool apart = false;            // never in one kernel with what it reads: it merges parts that run in parallel
  double work = 0;               // arithmetic operations

  bool is_library() const { return std::holds_alternative<itgraph::Library>(what); }
  const itgraph::Compute& compute() const { return std::get<itgraph::Compute>(what); }
};

struct Plan {
  itgraph::Program it;      // values and index extents; no kernels yet
  std::vector<Unit> units;  // operands first
  sym::Expr part = {};      // the index that counts the parts of a reduction (split.hpp): each is a task of its own
};

// Rewrites what has no unit of its own: mean and moments become sums.
graph::Graph simplify_reductions(const graph::Graph& graph);

// Divisions by what is known per row or column, with one reciprocal each (reciprocal.cpp).
graph::Graph hoist_reciprocals(const graph::Graph& graph);

// The graph must have passed simplify_reductions.
Result<Plan> make_plan(const graph::Graph& graph);

// Units of one kernel, with the substitution that makes their index symbols one set.
struct Group {
  std::vector<size_t> units;  // in order
  std::unordered_map<sym::Expr, sym::Expr> rename;
};

// The symbols of the units made one: a value computed in the group is read at exactly its own indices. nullopt when two
// readings of one value differ, or an index would stand for two axes.
std::optional<Group> unify(const Plan& plan, std::vector<size_t> units);

// The unit's compute over the symbols of the group.
itgraph::Compute renamed(const Plan& plan, const Group& group, size_t unit);

// How units are gathered into kernels. Unfused: each contraction alone, chains of the others together.
std::vector<Group> group_units(const Plan& plan, bool fuse);

// What group_units(plan, true) leaves in different kernels although one reads the other.
std::vector<Refusal> refusals(const Plan& plan);

// The index symbols of a unit: its results' axes and what it reduces, renamed.
std::vector<sym::Expr> axes_of(const Plan& plan, const Group& group, size_t unit);
std::vector<sym::Expr> reduced_of(const Plan& plan, const Group& group, size_t unit);
// The extent of an index: for the typical values of the dims (choices of speed), and at most (choices that must hold).
int64_t extent_of(const Plan& plan, sym::Expr index);
int64_t most_of(const Plan& plan, sym::Expr index);

// Whether what a unit computes is a function of the dims as well as of what it reads.
bool depends_on_dims(const itgraph::Program& it, const itgraph::Compute& compute);

// The two loads and the product of a contraction: sum of Load * Load over `reduced`.
struct Product {
  const tile::Load* a;
  const tile::Load* b;
};
std::optional<Product> product_of(const itgraph::Compute& compute, const tile::NodeId& node);

}  // namespace cleave::schedule
