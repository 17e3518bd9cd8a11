// Values of named dimensions, from the shapes of the data that is given.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "driver/options.hpp"
#include "graph/graph.hpp"

namespace cleave::driver {

// The dimension that `extent` is linear in, and its value where the extent is `value`: for 2 * N + 1 and 7, N is 3.
// None when the extent is of another form, or no value >= 0 gives it.
std::optional<std::pair<std::string, int64_t>> solve(const sym::Pool& syms, sym::Expr extent, int64_t value);

// The dimension that `extent` is linear in, if it is of that form.
std::optional<std::string> linear_in(const sym::Pool& syms, sym::Expr extent);

using DimValues = std::map<std::string, int64_t>;

// How much it is to time a program at these values: the bytes of its leaves and the elements of its largest value, as
// parts of what is had in a moment (512 MiB, 2^28 elements).
double size_at(const graph::Graph& graph, const DimValues& values);

// Representatives that nobody gave are the high ends of their ranges; where that is more than 1 by size_at, the one
// that counts most is halved until it is not.
DimValues easily_timed(const graph::Graph& graph, const std::map<std::string, DimOption>& options, DimValues values);

// A range that begins higher than it was given, and why.
struct RaisedRange {
  std::string dim;
  int64_t low;
  std::string why;
};
// No call has an extent that is negative, or a slice that begins or ends outside of its axis: the ranges of dimensions
// begin where that holds (set in the graph's symbols). Errors: an extent that no low end makes natural (bad_shape), a
// typical value below one (dim_out_of_range).
Result<std::vector<RaisedRange>> begin_where_shapes_hold(const graph::Graph& graph, const DimValues& typical);

}  // namespace cleave::driver
