// Products as Matmul statements: which operand gives the columns, which are packed into panels, and the loops around.
#include "schedule/placer.hpp"

#include <numeric>

#include "base/match.hpp"

namespace cleave::schedule {

std::optional<int> Placer::unit_axis(std::span<const Expr> at, Expr symbol) {
  std::optional<int> axis;
  for (size_t i = 0; i < at.size(); ++i) {
    if (!syms_.mentions(at[i], symbol)) continue;
    const auto stride = syms_.stride(at[i], symbol);
    if (axis || !stride || !syms_.is(*stride, 1)) return std::nullopt;
    axis = static_cast<int>(i);
  }
  return axis;
}

std::optional<int> Placer::other_axis(size_t rank, int not_this) {
  for (int i = static_cast<int>(rank) - 1; i >= 0; --i)
    if (i != not_this) return i;
  return std::nullopt;
}

Placer::Operand Placer::operand(const tile::Load& l) {
  std::vector<Expr> absolute;
  for (const tile::Index& i : l.at) absolute.push_back(i.affine);
  auto [buffer, at] = locate(l.buffer, absolute);
  return {buffer, at};
}

int64_t Placer::panel_width(Expr index, DType dtype, int64_t rows) const {
  const int64_t lanes = machine_.vector_bytes / (dtype == DType::f64 ? 8 : 4);
  // Many rows take register tiles of two vectors, and a panel as wide as the tile is read as one stream. Few rows need
  // more vectors to have enough sums.
  const bool wide = machine_.vector_registers >= 32 && rows <= 4;
  const std::vector<int64_t> vectors = wide ? std::vector<int64_t>{4, 3, 2, 1} : std::vector<int64_t>{2, 3, 1};
  for (int64_t v : vectors)
    if (syms_.divides(v * lanes, it_.extents.at(index)) == sym::Proof::yes) return v * lanes;
  const int64_t widest = vectors[0] * lanes;
  return std::min(widest, (most(index) + lanes - 1) / lanes * lanes);
}

bool Placer::within(Expr affine, Expr end) const {
  const auto extent = it_.extents.find(affine);
  return (extent != it_.extents.end() && extent->second == end) || syms_.less(affine, end) == sym::Proof::yes;
}

bool Placer::for_matrix_unit(const tile::Load& b, Expr rows) {
  const ItValue v = b.buffer;
  if (machine_.matrix_products == 0 || !options_.pack || !options_.panels || !rows.valid()) return false;
  const bool inner = it_.value(v).role == Role::inner && in_scratch(v);
  if (stored(v) != DType::bf16 || inner || made_.count(v)) return false;
  for (size_t a = 0; a < b.at.size(); ++a)
    if (b.at[a].dynamic.valid() || !within(b.at[a].affine, it_.value(v).shape[a])) return false;
  // Few rows: constants are read as fast without it, and packing others takes longer than the product.
  const bool constant = it_.value(v).role == Role::constant || constants_.count(v) > 0;
  return extent(rows) > (constant ? 4 : 32);
}

std::optional<Placer::Operand> Placer::packed(const tile::Load& l, const std::vector<Expr>& batch, Expr depth,
                                              Expr columns, int64_t tile, int64_t rows, bool pairs) {
  const Role role = it_.value(l.buffer).role;
  std::vector<Expr> axes = batch;
  axes.push_back(depth);
  axes.push_back(columns);
  std::string key = fmt::format("{}:", l.buffer.index);
  std::unordered_map<Expr, Expr> roles;
  for (size_t i = 0; i < axes.size(); ++i) {
    roles[axes[i]] = syms_.symbol(fmt::format("axis{}", i));
    key += fmt::format("{},", syms_.print(it_.extents.at(axes[i])));
  }
  for (const tile::Index& i : l.at) key += syms_.print(syms_.substitute(i.affine, roles)) + ";";
  const DType dtype = stored(l.buffer);
  // Tiles start at panels.
  int64_t width = pairs ? (most(columns) > 16 ? 32 : 16) : options_.panels ? panel_width(columns, dtype, rows) : 0;
  while (tile > 0 && width > 1 && tile % width != 0 && width % 2 == 0) width /= 2;
  if (pairs && width < 16) return std::nullopt;
  key += fmt::format("{}{}", width, pairs ? " pairs" : "");
  auto found = packed_.find(key);
  if (found == packed_.end()) {
    std::vector<Expr> shape;
    for (Expr s : axes) shape.push_back(it_.extents.at(s));
    const ItValue root = it_.value(l.buffer).alias_of.valid() ? it_.value(l.buffer).alias_of : l.buffer;
    const bool once = role == Role::constant || constants_.count(root) > 0;
    const BufferId buffer = out_.buffers.add({unique(it_.value(l.buffer).name + "_packed"),
                                              dtype,
                                              once ? Place::packed : Place::workspace,
                                              shape,
                                              width,
                                              -1,
                                              {},
                                              pairs});
    packing_.push_back(pack_kernel(l, axes, buffer, once));
    found = packed_.emplace(key, buffer).first;
  }
  return Operand{found->second, axes};
}

tile::Kernel Placer::pack_kernel(const tile::Load& l, const std::vector<Expr>& axes, BufferId buffer, bool once) {
  const int64_t panel = out_.buffer(buffer).panel;
  const int64_t width = panel > 0 ? panel : std::min<int64_t>(extent(axes.back()), 64);
  std::unordered_map<Expr, Expr> by;
  std::vector<tile::For> loops;
  auto loop = [&](Expr s, int64_t step) {
    const Expr counter = syms_.fresh(syms_.symbol_name(s), {0, std::max<int64_t>(most(s) - 1, 0)});
    syms_.set_multiple(counter, step);
    loops.push_back({counter, syms_.constant(0), it_.extents.at(s), step, true, {}});
    return counter;
  };
  for (size_t i = 0; i + 2 < axes.size(); ++i) by[axes[i]] = loop(axes[i], 1);
  const Expr first = loop(axes.back(), width);
  NestBuilder nest(syms_);
  const Expr depth = axes[axes.size() - 2], columns = axes.back();
  by[depth] = nest.axis(syms_.symbol_name(depth), it_.extents.at(depth), most(depth));
  const Expr rest = syms_.min(syms_.constant(width), syms_.sub(it_.extents.at(columns), first));
  const bool full = syms_.divides(width, it_.extents.at(columns)) == sym::Proof::yes;
  const Expr size = full ? syms_.constant(width) : rest;
  by[columns] = syms_.add(first, nest.axis(syms_.symbol_name(columns), size, width));
  std::vector<Expr> source;
  for (const tile::Index& i : l.at) source.push_back(syms_.substitute(i.affine, by));
  const DType dtype = compute_type(it_.value(l.buffer).dtype);
  // The last part of a split index ends before its tile does.
  NodeId guard;
  for (size_t a = 0; a < source.size(); ++a) {
    const Expr end = it_.value(l.buffer).shape[a];
    if (within(l.at[a].affine, end)) continue;
    const NodeId inside = nest.apply(Fn::lt, {nest.index(source[a]), nest.index(end)});
    guard = guard.valid() ? nest.apply(Fn::logical_and, {guard, inside}) : inside;
  }
  const NodeId value =
      guard.valid() ? nest.load_if(guard, memory(l.buffer), source, dtype) : nest.load(memory(l.buffer), source, dtype);
  nest.store(buffer, substituted(syms_, axes, by), value);
  std::vector<Statement> body = {{nest.take()}};
  for (size_t i = loops.size(); i-- > 0;) {
    loops[i].body = std::move(body);
    body.clear();
    body.push_back({std::move(loops[i])});
  }
  return {kernel_name("pack_" + it_.value(l.buffer).name), once, std::move(body)};
}

bool Placer::matmul_compute(const Compute& c, const itgraph::TensorMap& map, bool looped,
                            std::vector<Statement>& body) {
  const auto product = product_of(c, c.results[0].node);
  if (!product || !is_real(c.nodes[c.results[0].node.index].dtype)) return false;
  for (const tile::Load* l : {product->a, product->b}) {
    if (l->guard.valid()) return false;
    for (const tile::Index& i : l->at)
      if (i.dynamic.valid()) return false;
  }
  Orientation o = orient(c, *product);
  if (!o.columns.valid() || !o.depth.valid()) return false;
  for (Expr s : o.any_rows)
    if (map.most(s) > map.most(o.rows)) o.rows = s;
  const itgraph::Target& t = c.results[0];
  auto [result, result_at] = locate(t.value, t.axes);
  const auto init = looped ? Matmul::Init::load : Matmul::Init::zero;
  return emit_product(c, o, {result, result_at}, t.axes, map, init, {}, {}, body);
}

bool Placer::emit_product(const Compute& c, const Orientation& o, Operand result, const std::vector<Expr>& axes,
                          const itgraph::TensorMap& map, Matmul::Init init, BufferId scale, std::vector<Expr> scale_at,
                          std::vector<Statement>& body) {
  Operand a = operand(*o.a), b = operand(*o.b);
  // B must run with step 1 along its last axis in the columns.
  const auto b_columns = unit_axis(b.at, o.columns), b_depth = unit_axis(b.at, o.depth);
  const bool in_memory = !scratch_.count(o.b->buffer);
  // (Depth and columns may share an axis: a window's element is a position plus a tap.)
  const bool direct = b_columns && b_depth && *b_columns == static_cast<int>(b.at.size()) - 1 && *b_depth != *b_columns;
  const bool constant = it_.value(o.b->buffer).role == Role::constant || constants_.count(o.b->buffer) > 0;
  // A matrix no wider than a panel is one already.
  const int64_t all_rows = o.rows.valid() ? extent(o.rows) : 1;
  const bool reused = o.rows.valid() && most(o.columns) > panel_width(o.columns, stored(o.b->buffer), all_rows) &&
                      extent(o.rows) > 2 * map.most(o.rows) && extent(o.depth) > 512;
  // B with contiguous depth and few rows to use it: lanes run along the depth, since packing costs as much as the
  // product.
  constexpr int64_t kDotRows = 32;
  const auto a_unit = unit_axis(a.at, o.depth);
  const bool dot = b_columns && b_depth && *b_depth != *b_columns && !direct &&
                   *b_depth == static_cast<int>(b.at.size()) - 1 && a_unit &&
                   *a_unit == static_cast<int>(a.at.size()) - 1 && out_.buffer(b.buffer).panel == 0 && !constant &&
                   all_rows <= kDotRows;
  const auto own_depth = unit_axis(a.at, o.depth);
  const tile::Buffer& left = out_.buffer(a.buffer);
  const bool even = syms_.divides(2, map.size(o.depth)) == sym::Proof::yes;
  const bool by_pairs =
      for_matrix_unit(*o.b, o.rows) && left.dtype == DType::bf16 && own_depth &&
      *own_depth == static_cast<int>(a.at.size()) - 1 && out_.buffer(result.buffer).dtype == DType::f32 &&
      (even || (left.place == Place::scratch && syms_.divides(2, left.shape.back()) == sym::Proof::yes));
  std::vector<Expr> batch;
  for (Expr s : index_symbols(*o.b))
    if (s != o.depth && s != o.columns) batch.push_back(s);
  const itgraph::Interval tiled = map.of(o.columns);
  const int64_t tile = tiled.tile > 0 ? std::gcd(tiled.tile, tiled.aligned) : 0;
  const auto paired = by_pairs && b_columns && b_depth && *b_columns != *b_depth
                          ? packed(*o.b, batch, o.depth, o.columns, tile, all_rows, true)
                          : std::nullopt;
  if (paired) {
    b = *paired;
  } else if (!dot && (!direct || (in_memory && (constant || reused) && options_.pack && !made_.count(o.b->buffer)))) {
    if (!options_.pack || !in_memory || made_.count(o.b->buffer)) return false;
    const auto p = packed(*o.b, batch, o.depth, o.columns, tile, all_rows, false);
    if (!p) return false;
    b = *p;
  }
  const int b_last = dot && !paired ? *b_columns : static_cast<int>(b.at.size()) - 1;
  const auto b_rows = unit_axis(b.at, o.depth);
  const auto a_depth = unit_axis(a.at, o.depth);
  const auto a_rows = o.rows.valid() ? unit_axis(a.at, o.rows)
                      : a_depth      ? other_axis(a.at.size(), *a_depth)
                                     : std::nullopt;
  const auto c_columns = unit_axis(result.at, o.columns);
  if (!b_rows || !a_depth || !a_rows || *a_rows == *a_depth || !c_columns ||
      *c_columns != static_cast<int>(result.at.size()) - 1)
    return false;
  const auto c_rows = o.rows.valid() ? unit_axis(result.at, o.rows) : other_axis(result.at.size(), *c_columns);
  if (!c_rows) return false;
  const itgraph::Interval columns = map.of(o.columns);
  if (const int64_t panel = out_.buffer(b.buffer).panel;
      panel > 0 && columns.tile > 0 && std::gcd(columns.tile, columns.aligned) % panel != 0)
    return false;

  std::unordered_map<Expr, Expr> by;
  for (Expr s : {o.rows, o.columns, o.depth})
    if (s.valid()) by[s] = map.of(s).offset;
  std::vector<tile::For> loops;
  auto loop_over = [&](const std::vector<Expr>& list) {
    for (Expr s : list) {
      if (by.count(s)) continue;
      if (map.most(s) == 1) {
        by[s] = map.of(s).offset;
        continue;
      }
      const Expr counter = syms_.fresh(syms_.symbol_name(s), {0, map.most(s) - 1});
      loops.push_back({counter, syms_.constant(0), map.size(s), 1, false, {}});
      by[s] = syms_.add(map.of(s).offset, counter);
    }
  };
  loop_over(axes);
  const size_t outside_reduction = loops.size();
  loop_over(c.reduced);
  const bool inner_reduction = loops.size() > outside_reduction;
  auto ref = [&](const Operand& x, int rows, int columns) {
    return TileRef{x.buffer, substituted(syms_, x.at, by), rows, columns};
  };
  Matmul m;
  m.c = ref(result, *c_rows, *c_columns);
  m.a = ref(a, *a_rows, *a_depth);
  m.b = ref(b, *b_rows, b_last);
  m.m = o.rows.valid() ? map.size(o.rows) : syms_.constant(1);
  m.n = map.size(o.columns);
  m.k = map.size(o.depth);
  m.init = init;
  if (init == Matmul::Init::scaled) {
    if (inner_reduction) return false;
    m.scale = scale;
    m.scale_at = substituted(syms_, scale_at, by);
  }
  if (inner_reduction && init == Matmul::Init::zero) {
    // Several reduced indices: the sum starts from zero before their loops.
    m.init = Matmul::Init::load;
    fill_at(result, axes, map, body);
  }
  std::vector<Statement> inner = {{std::move(m)}};
  for (size_t i = loops.size(); i-- > 0;) {
    loops[i].body = std::move(inner);
    inner.clear();
    inner.push_back({std::move(loops[i])});
  }
  for (Statement& s : inner) body.push_back(std::move(s));
  return true;
}

void Placer::fill_at(const Operand& place, const std::vector<Expr>& axes, const itgraph::TensorMap& map,
                     std::vector<Statement>& body) {
  NestBuilder nest(syms_);
  std::unordered_map<Expr, Expr> by;
  add_axes(nest, axes, map, by);
  nest.store(place.buffer, substituted(syms_, place.at, by),
             nest.literal(0, compute_type(out_.buffer(place.buffer).dtype)));
  body.push_back({nest.take()});
}

std::vector<Expr> Placer::index_symbols(const tile::Load& l) const {
  std::vector<Expr> out;
  for (const tile::Index& i : l.at)
    for (Expr s : syms_.symbols_of(i.affine))
      if (std::find(out.begin(), out.end(), s) == out.end()) out.push_back(s);
  return out;
}

}  // namespace cleave::schedule
