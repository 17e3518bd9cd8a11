#include "driver/dims.hpp"

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

}  // namespace cleave::driver
