#include "driver/dims.hpp"

#include <algorithm>
#include <span>

#include "base/codes.hpp"

namespace cleave::driver {

namespace {

struct Linear {
  sym::Expr dim;
  int64_t factor, rest;
};
std::optional<Linear> linear(const sym::Pool& syms, sym::Expr extent) {
  std::optional<sym::Expr> dim;
  int64_t factor = 0, rest = 0;
  for (const sym::Pool::Term& t : syms.terms(extent)) {
    if (t.atoms.empty()) {
      rest += t.coefficient;
    } else if (t.atoms.size() == 1 && syms.kind(t.atoms[0]) == sym::Kind::symbol && !dim) {
      dim = t.atoms[0];
      factor = t.coefficient;
    } else {
      return std::nullopt;
    }
  }
  if (!dim || factor <= 0) return std::nullopt;
  return Linear{*dim, factor, rest};
}

// The low ends from which an extent is not negative: of its only dimension whatever it takes, of several 1 or 2, of one
// of them if that is enough.
DimValues least_dims(const sym::Pool& syms, sym::Expr extent) {
  const std::vector<sym::Expr> dims = syms.symbols_of(extent);
  const auto natural_from = [&](std::span<const sym::Expr> which, int64_t low) -> DimValues {
    sym::Pool raised = syms;
    DimValues out;
    for (const sym::Expr d : which) {
      const sym::Interval range = raised.symbol_range(d);
      if (low > range.hi) return {};
      if (low <= range.lo) continue;
      raised.set_range(d, {low, range.hi});
      out[raised.symbol_name(d)] = low;
    }
    if (raised.bounds(extent).lo < 0) return {};
    return out;
  };
  if (dims.size() == 1) {
    int64_t low = syms.symbol_range(dims[0]).lo, enough = syms.symbol_range(dims[0]).hi;
    while (low + 1 < enough) {
      const int64_t middle = low + (enough - low) / 2;
      (natural_from(dims, middle).empty() ? low : enough) = middle;
    }
    return natural_from(dims, enough);
  }
  for (const int64_t low : {1, 2}) {
    for (const sym::Expr d : dims)
      if (auto found = natural_from(std::span(&d, 1), low); !found.empty()) return found;
    if (auto found = natural_from(dims, low); !found.empty()) return found;
  }
  return {};
}

// Where a slice begins and ends, and how far inside of its axis that is.
std::vector<std::pair<sym::Expr, sym::Expr>> slice_bounds(const graph::Graph& g, const graph::Node& n) {
  sym::Pool& syms = g.syms();
  const graph::Shape& shape = g.type(n.operands[0]).shape;
  const auto& axes = n.attributes.get<std::vector<int64_t>>("axes");
  const auto steps = n.attributes.get_or("steps", std::vector<int64_t>(axes.size(), 1));
  std::vector<std::pair<sym::Expr, sym::Expr>> out;
  for (const char* which : {"starts", "stops"}) {
    const auto& bounds = n.attributes.get<std::vector<sym::Expr>>(which);
    for (size_t i = 0; i < axes.size(); ++i) {
      const auto axis = static_cast<size_t>(axes[i] < 0 ? axes[i] + static_cast<int64_t>(shape.size()) : axes[i]);
      const int64_t down = steps[i] < 0 ? 1 : 0;  // from the last element to one before the first
      out.emplace_back(bounds[i], syms.add(bounds[i], down));
      out.emplace_back(bounds[i], syms.sub(syms.add(shape[axis], -down), bounds[i]));
    }
  }
  return out;
}

// Whether an extent is not negative for these values of dimensions.
bool holds_at(const sym::Pool& syms, sym::Expr extent, const DimValues& values) {
  sym::Pool fixed = syms;
  for (const sym::Expr d : syms.symbols_of(extent))
    if (const auto at = values.find(syms.symbol_name(d)); at != values.end())
      fixed.set_range(d, {at->second, at->second});
  return fixed.bounds(extent).lo >= 0;
}

// The ranges of dimensions begin there. An error where one is tuned for less.
Diagnostics begin_at(sym::Pool& syms, const DimValues& typical, const DimValues& lows, const std::string& why,
                     std::vector<RaisedRange>& raised) {
  for (const auto& [name, low] : lows) {
    const sym::Expr d = *syms.find_symbol(name);
    const sym::Interval range = syms.symbol_range(d);
    if (typical.at(name) < low) return {diagnose(Code::dim_out_of_range, name, typical.at(name), low, range.hi)};
    syms.set_range(d, {low, range.hi});
    raised.push_back({name, low, why});
  }
  return {};
}

}  // namespace

std::optional<std::string> linear_in(const sym::Pool& syms, sym::Expr extent) {
  const auto form = linear(syms, extent);
  return form ? std::optional(syms.symbol_name(form->dim)) : std::nullopt;
}

std::optional<std::pair<std::string, int64_t>> solve(const sym::Pool& syms, sym::Expr extent, int64_t value) {
  const auto form = linear(syms, extent);
  if (!form) return std::nullopt;
  const int64_t left = value - form->rest;
  if (left < 0 || left % form->factor != 0) return std::nullopt;
  return std::pair{syms.symbol_name(form->dim), left / form->factor};
}

double size_at(const graph::Graph& g, const DimValues& values) {
  constexpr double kManyBytes = 512 << 20, kManyElements = 1 << 28;
  const auto value = [&](sym::Expr s) -> std::optional<int64_t> {
    const auto it = values.find(g.syms().symbol_name(s));
    return it == values.end() ? std::nullopt : std::optional(it->second);
  };
  double bytes = 0, largest = 0;
  const auto elements = [&](graph::ValueId v) {
    double n = 1;
    for (sym::Expr e : g.type(v).shape) n *= static_cast<double>(g.syms().evaluate(e, value).value_or(1));
    return n;
  };
  for (graph::ValueId v : g.leaves()) bytes += elements(v) * static_cast<double>(byte_size(g.type(v).dtype));
  for (graph::NodeId n : g.node_ids())
    for (graph::ValueId v : g.node(n).results) largest = std::max(largest, elements(v));
  return std::max(bytes / kManyBytes, largest / kManyElements);
}

DimValues easily_timed(const graph::Graph& g, const std::map<std::string, DimOption>& options, DimValues values) {
  for (double size = size_at(g, values); size > 1;) {
    DimValues best = values;
    double least = size;
    int64_t halved = 0;
    for (const auto& [name, option] : options) {
      if (option.given) continue;
      DimValues half = values;
      half[name] = std::max(option.lo, values[name] / 2);
      const double there = size_at(g, half);
      // Among those that count the same, the largest.
      if (there < least || (there == least && there < size && values[name] > halved))
        best = half, least = there, halved = values[name];
    }
    if (best == values) break;
    values = std::move(best);
    size = least;
  }
  return values;
}

Result<std::vector<RaisedRange>> begin_where_shapes_hold(const graph::Graph& g, const DimValues& typical) {
  std::vector<RaisedRange> raised;
  sym::Pool& syms = g.syms();
  for (size_t i = 0; i < g.value_count(); ++i) {
    const graph::ValueId v(static_cast<uint32_t>(i));
    for (const sym::Expr e : g.type(v).shape) {
      if (syms.bounds(e).lo >= 0) continue;
      const auto lows = least_dims(syms, e);
      if (lows.empty())
        return diagnose(Code::bad_shape, g.value(v).name,
                        fmt::format("the extent {} may be negative in the ranges of its dimensions", syms.print(e)));
      const auto why = fmt::format("`{}` has the extent {}", g.value(v).name, syms.print(e));
      if (Diagnostics bad = begin_at(syms, typical, lows, why, raised); !bad.empty()) return bad;
    }
    const graph::Node& n = g.producer(v);
    if (n.op != graph::Op::slice) continue;
    for (const auto& [bound, room] : slice_bounds(g, n)) {
      if (syms.bounds(room).lo >= 0 || syms.symbols_of(room).size() != 1) continue;  // others are known at a call
      // Where it stays inside for the typical value but not from there on, as far as bounds tell, a call knows.
      const auto lows = least_dims(syms, room);
      const bool higher =
          std::any_of(lows.begin(), lows.end(), [&](const auto& l) { return l.second > typical.at(l.first); });
      if (higher && holds_at(syms, room, typical)) continue;
      const auto why = fmt::format("a slice begins or ends at {}", syms.print(bound));
      if (Diagnostics bad = begin_at(syms, typical, lows, why, raised); !bad.empty()) return bad;
    }
  }
  return raised;
}

}  // namespace cleave::driver
