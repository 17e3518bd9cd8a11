// Rows of requests that are stored where they belong in a packed output.
#include <functional>

#include "base/match.hpp"
#include "schedule/placer.hpp"

namespace cleave::schedule {

Placer::Rows Placer::fresh_rows(Expr rows) {
  const sym::Interval range{0, syms_.bounds(rows).hi};
  const Expr first = syms_.fresh("first", range);
  return {first, syms_.fresh("stop", range)};
}

std::vector<Statement> Placer::with_rows(std::vector<Statement> body, sym::Pool& syms, BufferId pointers, Expr request,
                                         Expr rows, const Rows& bound) {
  tile::Let stop{bound.stop, pointers, {syms.add(request, 1)}, bound.first, rows, std::move(body)};
  tile::Let first{bound.first, pointers, {request}, syms.constant(0), rows, {}};
  first.body.push_back({std::move(stop)});
  std::vector<Statement> out;
  out.push_back({std::move(first)});
  return out;
}

std::optional<Placer::Requests> Placer::requests_of(const itgraph::Block& b) const {
  std::optional<Requests> found;
  bool same = true;
  std::function<void(const itgraph::Block&)> visit = [&](const itgraph::Block& block) {
    for (const itgraph::Item& i : block.items)
      match(
          i.what,
          [&](const Compute& c) {
            for (const itgraph::Target& t : c.results) {
              if (in_scratch(t.value)) continue;
              const itgraph::Value& v = it_.value(t.value);
              if (!v.rows_of.valid()) {
                same = false;
                return;
              }
              const Requests r{v.rows_of, t.axes[0], t.axes[1], v.rows};
              if (!found) found = r;
              same = same && found->rows_of == r.rows_of && found->request == r.request && found->row == r.row &&
                     found->rows == r.rows;
            }
          },
          [&](const itgraph::Block& inner) { visit(inner); });
  };
  visit(b);
  if (!same || !found) return std::nullopt;
  for (const itgraph::Loop& l : b.loops)
    if (l.index == found->request && l.step == 1) return found;
  return std::nullopt;
}

void Placer::packed_compute(const Compute& c, const itgraph::TensorMap& map, std::vector<Statement>& body) {
  const itgraph::Target& t = c.results[0];
  const itgraph::Value& v = it_.value(t.value);
  const BufferId place = memory(t.value);
  clear_other_rows(t.value);
  const Expr request = t.axes[0], row = t.axes[1];
  std::unordered_map<Expr, Expr> by;
  std::optional<tile::For> loop;
  const auto known = bound_rows_.find(v.rows_of);
  if (map.most(request) == 1) {
    by[request] = map.of(request).offset;
  } else {
    const Expr counter = syms_.fresh(syms_.symbol_name(request), {0, std::max<int64_t>(map.most(request) - 1, 0)});
    loop = tile::For{counter, syms_.constant(0), map.size(request), 1, false, {}};
    by[request] = syms_.add(map.of(request).offset, counter);
  }
  const bool bound = !loop && known != bound_rows_.end();
  const Rows rows = bound ? known->second : fresh_rows(v.rows);
  NestBuilder nest(syms_);
  const Expr length = syms_.sub(rows.stop, rows.first);
  const Expr count = syms_.min(map.size(row), syms_.sub(length, map.of(row).offset));
  const std::string stem = syms_.symbol_name(row);
  by[row] = syms_.add(map.of(row).offset, nest.axis(stem, count, map.most(row)));
  add_axes(nest, t.axes, map, by);
  const NodeId value = copy_nodes(nest, c.nodes, {t.node}, by)[0];
  std::vector<Expr> at = {syms_.add(rows.first, by[row])};
  for (size_t a = 2; a < t.axes.size(); ++a) at.push_back(by[t.axes[a]]);
  nest.store(place, at, value);
  std::vector<Statement> inner = {{nest.take()}};
  if (!bound) inner = with_rows(std::move(inner), syms_, memory(v.rows_of), by[request], v.rows, rows);
  if (loop) {
    loop->body = std::move(inner);
    inner.clear();
    inner.push_back({std::move(*loop)});
  }
  for (Statement& s : inner) body.push_back(std::move(s));
}

void Placer::clear_other_rows(ItValue v) {
  const itgraph::Value& value = it_.value(v);
  const BufferId place = memory(v), pointers = memory(value.rows_of);
  const Rows rows = fresh_rows(value.rows);
  std::vector<Statement> body;
  for (const bool before : {true, false}) {
    NestBuilder nest(syms_);
    const Expr count = before ? rows.first : syms_.sub(value.rows, rows.stop);
    const Expr r = nest.axis("row", count, syms_.bounds(value.rows).hi);
    std::vector<Expr> at = {before ? r : syms_.add(rows.stop, r)};
    for (size_t a = 2; a < value.shape.size(); ++a)
      at.push_back(nest.axis("i", value.shape[a], syms_.bounds(value.shape[a]).hi));
    const DType d = compute_type(value.dtype);
    nest.store(place, at, nest.literal(0, d));
    body.push_back({nest.take()});
  }
  // From the first row of the first request to the last one of the last.
  tile::Let stop{rows.stop, pointers, {value.shape[0]}, rows.first, value.rows, std::move(body)};
  tile::Let first{rows.first, pointers, {syms_.constant(0)}, syms_.constant(0), value.rows, {}};
  first.body.push_back({std::move(stop)});
  tile::Kernel kernel{kernel_name("clear_" + value.name), false, {}};
  kernel.body.push_back({std::move(first)});
  packing_.push_back(std::move(kernel));
}

}  // namespace cleave::schedule
