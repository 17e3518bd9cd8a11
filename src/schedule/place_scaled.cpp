// Scaled groups (m, u_1 .. u_n): the running maximum, the rescaling of earlier sums, and the new terms, tile by tile.
#include "schedule/placer.hpp"

#include <cmath>
#include <functional>
#include <limits>

#include "base/match.hpp"

namespace cleave::schedule {

bool Placer::scaled_compute(const Compute& c, const itgraph::TensorMap& map, bool looped,
                            std::vector<Statement>& body) {
  if (!looped) prepare(c, map, body);
  const itgraph::Target& max = c.results[0];
  const DType d = compute_type(it_.value(max.value).dtype);
  Expr last_row;  // the rows of products with the weights
  for (Expr s : max.axes)
    if (!last_row.valid() || map.most(s) >= map.most(last_row)) last_row = s;
  auto row_scratch = [&](const char* stem) { return make_scratch(stem, d, max.axes, map, last_row); };
  const Scratch tile_max = row_scratch("tile_max"), shift = row_scratch("shift"), decay = row_scratch("decay");
  std::vector<Expr> score_axes = max.axes;
  score_axes.insert(score_axes.end(), c.reduced.begin(), c.reduced.end());
  // Where a product of the matrix unit reads them, weights are rounded like the values that they weigh.
  bool narrow = d == DType::f32 && options_.round_weights;
  bool any = false;
  for (size_t i = 1; i < c.results.size(); ++i) {
    const tile::Node& node = c.nodes[c.results[i].node.index];
    if (std::holds_alternative<tile::Literal>(node.what)) continue;
    const auto* factor = std::get_if<tile::Load>(&node.what);
    any = true;
    narrow = narrow && factor && for_matrix_unit(*factor, last_row);
  }
  const DType kept = narrow && any ? DType::bf16 : d;
  const Scratch weights = make_scratch("weights", kept, score_axes, map, c.reduced.back());
  {  // the maximum of this tile
    NestBuilder nest(syms_);
    std::unordered_map<Expr, Expr> by;
    add_axes(nest, score_axes, map, by);
    const NodeId score = copy_nodes(nest, c.nodes, {max.node}, by)[0];
    nest.accumulate(tile_max.buffer, scratch_at(tile_max, substituted(syms_, max.axes, by)), score, Fn::max, true);
    body.push_back({nest.take()});
  }
  {  // m' = max(m, tile); decay = exp(m - m'), where an empty row (m' = -inf) shifts by 0
    NestBuilder nest(syms_);
    std::unordered_map<Expr, Expr> by;
    add_axes(nest, max.axes, map, by);
    const auto rows = substituted(syms_, max.axes, by);
    auto [buffer, at] = locate(max.value, rows);
    const NodeId before = nest.load(buffer, at, d), tile = nest.load(tile_max.buffer, scratch_at(tile_max, rows), d);
    const NodeId after = nest.apply(Fn::max, {before, tile});
    const NodeId empty = nest.apply(Fn::eq, {after, nest.literal(-std::numeric_limits<double>::infinity(), d)});
    const NodeId safe = nest.apply(Fn::where, {empty, nest.literal(0, d), after});
    nest.store(decay.buffer, scratch_at(decay, rows), nest.apply(Fn::exp, {nest.apply(Fn::sub, {before, safe})}));
    nest.store(shift.buffer, scratch_at(shift, rows), safe);
    nest.store(buffer, at, after);
    body.push_back({nest.take()});
  }
  // Plain sums of the weights are taken while these are made.
  std::vector<size_t> plain, factored;
  for (size_t i = 1; i < c.results.size(); ++i)
    (std::holds_alternative<tile::Literal>(c.nodes[c.results[i].node.index].what) ? plain : factored).push_back(i);
  std::vector<Scratch> partial;
  {
    NestBuilder nest(syms_);
    std::unordered_map<Expr, Expr> by;
    add_axes(nest, score_axes, map, by);
    const auto rows = substituted(syms_, max.axes, by);
    const NodeId score = copy_nodes(nest, c.nodes, {max.node}, by)[0];
    const NodeId weight =
        nest.apply(Fn::exp, {nest.apply(Fn::sub, {score, nest.load(shift.buffer, scratch_at(shift, rows), d)})});
    if (!factored.empty()) nest.store(weights.buffer, scratch_at(weights, substituted(syms_, score_axes, by)), weight);
    for (size_t i : plain) {
      partial.push_back(row_scratch("partial"));
      const double factor = std::get<tile::Literal>(c.nodes[c.results[i].node.index].what).value;
      const NodeId term = factor == 1 ? weight : nest.apply(Fn::mul, {weight, nest.literal(factor, d)});
      nest.accumulate(partial.back().buffer, scratch_at(partial.back(), rows), term, Fn::add, true);
    }
    if (nest.has_stores()) body.push_back({nest.take()});
  }
  if (!plain.empty()) {  // u = u * decay + partial
    NestBuilder nest(syms_);
    std::unordered_map<Expr, Expr> by;
    add_axes(nest, max.axes, map, by);
    const auto rows = substituted(syms_, max.axes, by);
    const NodeId factor = nest.load(decay.buffer, scratch_at(decay, rows), d);
    for (size_t k = 0; k < plain.size(); ++k) {
      auto [buffer, at] = locate(c.results[plain[k]].value, substituted(syms_, c.results[plain[k]].axes, by));
      const NodeId sum = nest.apply(Fn::mul, {nest.load(buffer, at, d), factor});
      nest.store(buffer, at, nest.apply(Fn::add, {sum, nest.load(partial[k].buffer, scratch_at(partial[k], rows), d)}));
    }
    body.push_back({nest.take()});
  }
  for (size_t i : factored) factored_sum(c, i, score_axes, weights, decay, last_row, map, body);
  if (!looped)
    for (const itgraph::Target& t : c.results) flush(t, map, body);
  return true;
}

void Placer::factored_sum(const Compute& c, size_t i, const std::vector<Expr>& score_axes, const Scratch& weights,
                          const Scratch& decay, Expr row, const itgraph::TensorMap& map, std::vector<Statement>& body) {
  const itgraph::Target& t = c.results[i];
  const itgraph::Target& max = c.results[0];
  const DType d = compute_type(it_.value(max.value).dtype);
  // As a product: weights (rows x reduced) times the factor (reduced x columns).
  if (const auto* factor = std::get_if<tile::Load>(&c.nodes[t.node.index].what);
      factor && product_factor(c, t, *factor, score_axes, weights, decay, row, map, body))
    return;
  NestBuilder rescale(syms_);
  std::unordered_map<Expr, Expr> by;
  add_axes(rescale, t.axes, map, by);
  auto [buffer, at] = locate(t.value, substituted(syms_, t.axes, by));
  const NodeId factor = rescale.load(decay.buffer, scratch_at(decay, substituted(syms_, max.axes, by)), d);
  rescale.store(buffer, at, rescale.apply(Fn::mul, {rescale.load(buffer, at, d), factor}));
  body.push_back({rescale.take()});
  NestBuilder nest(syms_);
  by.clear();
  add_axes(nest, t.axes, map, by);
  add_axes(nest, c.reduced, map, by);
  const NodeId term = copy_nodes(nest, c.nodes, {t.node}, by)[0];
  const NodeId weight = nest.load(weights.buffer, scratch_at(weights, substituted(syms_, score_axes, by)), d);
  auto [target, target_at] = locate(t.value, substituted(syms_, t.axes, by));
  nest.accumulate(target, target_at, nest.apply(Fn::mul, {weight, nest.cast(term, d)}), Fn::add, false);
  body.push_back({nest.take()});
}

bool Placer::product_factor(const Compute& c, const itgraph::Target& t, const tile::Load& factor,
                            const std::vector<Expr>& score_axes, const Scratch& weights, const Scratch& decay, Expr row,
                            const itgraph::TensorMap& map, std::vector<Statement>& body) {
  if (factor.guard.valid()) return false;
  for (const tile::Index& i : factor.at)
    if (i.dynamic.valid()) return false;
  Orientation o;
  o.b = &factor;
  std::vector<Expr> rows, columns;
  for (Expr s : t.axes) {
    const bool in_scores = std::find(score_axes.begin(), score_axes.end(), s) != score_axes.end();
    const bool in_factor = mentions(syms_, factor, s);
    if (in_scores && !in_factor) rows.push_back(s);
    if (!in_scores) columns.push_back(s);
  }
  if (columns.empty()) return false;
  o.columns = t.axes.back();
  if (std::find(columns.begin(), columns.end(), o.columns) == columns.end()) return false;
  o.rows = std::find(rows.begin(), rows.end(), row) != rows.end() ? row : widest(rows);
  std::vector<Expr> depth;
  for (Expr s : c.reduced)
    if (mentions(syms_, factor, s)) depth.push_back(s);
  if (depth.size() != c.reduced.size() || depth.size() != 1) return false;
  o.depth = depth[0];
  if (c.reduced.back() != o.depth) return false;
  // The weights stand in scratch under a name of their own for the time of the product.
  const ItValue standing(static_cast<uint32_t>(it_.values.size()));
  scratch_[standing] = weights;
  tile::Load load{standing, {}, {}};
  for (Expr s : score_axes) load.at.push_back({s, {}});
  o.a = &load;
  auto [result, at] = locate(t.value, t.axes);
  std::vector<Expr> scale_at = scratch_at(decay, c.results[0].axes);
  // The scale must run with the rows along its last axis.
  const bool done = (!o.rows.valid() || o.rows == row) &&
                    emit_product(c, o, {result, at}, t.axes, map, Matmul::Init::scaled, decay.buffer, scale_at, body);
  scratch_.erase(standing);
  return done;
}

}  // namespace cleave::schedule
