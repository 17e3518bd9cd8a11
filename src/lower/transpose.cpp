// Copies that turn a matrix round (packing B of a product from [n, k] memory, for one): square blocks of as many rows
// as a vector has lanes are loaded, transposed in registers and stored, so both sides move in whole vectors.
#include "lower/kernel.hpp"

namespace cleave::lower {

namespace {

using namespace tile;

struct Transpose {
  Kernel& k;
  const Load& load;
  const Write& store;
  std::vector<Axis> axes = {};     // renamed
  Expr from = {}, to = {};         // offsets
  int down = -1, across = -1;      // the axes along which loads and stores are contiguous
  int64_t rows = 0;                // their extents
  std::optional<int64_t> columns;  // not known: as many as `axes` say
  int lanes = 1;

  Builder& b() { return k.b; }
  DType from_dtype() const { return k.buffer(load.buffer).dtype; }
  DType to_dtype() const { return k.buffer(store.buffer).dtype; }

  std::optional<Expr> step(Expr e, int axis) { return k.pool.stride(e, axes[static_cast<size_t>(axis)].symbol); }
  std::optional<int64_t> stride(Expr e, int axis) {
    const auto s = step(e, axis);
    return s ? k.pool.as_constant(*s) : std::nullopt;
  }
  // Not 0 and not 1: a number, or dims make it.
  bool strides(Expr e, int axis) {
    const auto s = step(e, axis);
    if (!s) return false;
    if (const auto c = k.pool.as_constant(*s)) return *c != 0 && *c != 1;
    return k.is_fixed(*s);
  }
  // Whether vectors that begin at multiples of `lanes` along the axis are contiguous, panels included.
  bool contiguous(BufferId id, std::span<const Expr> at, Expr offset, int axis) {
    if (stride(offset, axis) == 1) return true;
    const Layout& l = k.layout(id);
    const Expr v = axes[static_cast<size_t>(axis)].symbol;
    if (l.panel == 0 || l.pairs || l.panel % lanes != 0) return false;
    for (size_t i = 0; i + 1 < at.size(); ++i)
      if (k.pool.mentions(at[i], v)) return false;
    const auto s = k.pool.stride(at.back(), v);
    return s && k.pool.is(*s, 1) &&
           k.pool.divides(lanes, k.pool.substitute(at.back(), {{v, k.pool.constant(0)}})) == sym::Proof::yes;
  }

  bool applies() {
    std::vector<Expr> read, written;
    for (const Index& i : load.at) read.push_back(k.in(i.affine));
    for (const Expr e : store.at) written.push_back(k.in(e));
    from = k.offset(load.buffer, read);
    to = k.offset(store.buffer, written);
    lanes = k.machine.vector_bytes / static_cast<int>(byte_size(compute_type(from_dtype())));
    if (lanes < 4 || lanes > 32) return false;
    for (int a = 0; a < static_cast<int>(axes.size()); ++a) {
      if (stride(from, a) == 1 && strides(to, a)) down = a;
      if (strides(from, a) && contiguous(store.buffer, written, to, a)) across = a;
    }
    if (down < 0 || across < 0 || down == across) return false;
    for (const Axis& a : axes)
      for (const int turned : {down, across})
        if (k.pool.mentions(a.extent, axes[static_cast<size_t>(turned)].symbol)) return false;
    const auto r = k.pool.as_constant(axes[static_cast<size_t>(down)].extent);
    columns = k.pool.as_constant(axes[static_cast<size_t>(across)].extent);
    if (!r || *r < lanes / 2 || (columns && *columns < lanes / 2)) return false;
    rows = *r;
    return true;
  }

  Value address(BufferId id, Expr offset) { return k.element(id, offset); }

  // The block whose first element is (i, j): `height` of its rows and `width` of its columns exist, or as many as
  // `some` says, one at least.
  void block(Value i, Value j, int height, int width, Value some = {}) {
    k.values[axes[static_cast<size_t>(down)].symbol] = i;
    k.values[axes[static_cast<size_t>(across)].symbol] = j;
    const Value source = address(load.buffer, from), target = address(store.buffer, to);
    const Value source_step = b().mul(k.emit(*step(from, across)), b().i64(byte_size(from_dtype())));
    const Value target_step = b().mul(k.emit(*step(to, down)), b().i64(byte_size(to_dtype())));
    std::vector<Value> v;
    for (int c = 0; c < lanes; ++c) {
      if (c >= width) {
        v.push_back(b().zero(vec::type_of(from_dtype(), lanes)));
        continue;
      }
      // Of what does not exist, something that does.
      const Value column = some.valid() && c > 0 ? b().min(b().i64(c), b().sub(some, b().i64(1))) : b().i64(c);
      v.push_back(b().load(b().ptr_add(source, b().mul(column, source_step)), from_dtype(), lanes, b().i64(height)));
    }
    exchange(b(), v);
    for (int r = 0; r < height; ++r)
      b().store(v[static_cast<size_t>(r)], b().ptr_add(target, b().mul(b().i64(r), target_step)), to_dtype(),
                some.valid() ? some : b().i64(width));
  }

  void blocks() {
    const int64_t full_rows = rows / lanes * lanes;
    const Value step = b().i64(lanes);
    auto across_of = [&](Value i, int height) {
      if (columns) {
        const int64_t full = *columns / lanes * lanes;
        b().for_each(b().i64(0), b().i64(full), step, [&](Value j) { block(i, j, height, lanes); });
        if (*columns > full) block(i, b().i64(full), height, static_cast<int>(*columns - full));
        return;
      }
      const Value all = k.emit(axes[static_cast<size_t>(across)].extent);
      const Value full = b().mul(b().div(all, step), step);
      b().for_each(b().i64(0), full, step, [&](Value j) { block(i, j, height, lanes); });
      b().for_each(full, all, step, [&](Value j) { block(i, j, height, lanes, b().sub(all, j)); });
    };
    b().for_each(b().i64(0), b().i64(full_rows), step, [&](Value i) { across_of(i, lanes); });
    if (rows > full_rows) across_of(b().i64(full_rows), static_cast<int>(rows - full_rows));
  }

  void loops(size_t axis) {
    while (axis < axes.size() && (static_cast<int>(axis) == down || static_cast<int>(axis) == across)) ++axis;
    if (axis == axes.size()) return blocks();
    b().for_each(b().i64(0), k.emit(axes[axis].extent), b().i64(1), [&](Value i) {
      k.values[axes[axis].symbol] = i;
      loops(axis + 1);
    });
  }
};

}  // namespace

void exchange(Builder& b, std::vector<Value>& v) {
  const int lanes = static_cast<int>(v.size());
  // Blocks of `size` lanes change places between vectors that are `size` apart, for size = 1, 2, 4, ...
  for (int size = 1; size < lanes; size *= 2) {
    std::vector<int32_t> low, high;
    for (int lane = 0; lane < lanes; ++lane) {
      const int within = lane % size, pair = lane / (2 * size) * 2 * size;
      const bool second = lane / size % 2;
      low.push_back(pair + within + (second ? lanes : 0));
      high.push_back(pair + size + within + (second ? lanes : 0));
    }
    for (int c = 0; c < lanes; ++c) {
      if (c / size % 2) continue;
      const Value x = v[static_cast<size_t>(c)], y = v[static_cast<size_t>(c + size)];
      v[static_cast<size_t>(c)] = b.shuffle(x, y, low);
      v[static_cast<size_t>(c + size)] = b.shuffle(x, y, high);
    }
  }
}

bool lower_transpose(Kernel& k, const Nest& nest) {
  if (nest.sequential || nest.nodes.size() != 1 || nest.stores.size() != 1 || nest.stores[0].accumulate) return false;
  const auto* load = std::get_if<Load>(&nest.nodes[0].what);
  if (!load || load->guard.valid() || k.buffer(load->buffer).place == Place::scalar) return false;
  if (k.layout(load->buffer).root == k.layout(nest.stores[0].buffer).root || nest.nodes[0].dtype == DType::boolean)
    return false;
  for (const Index& i : load->at)
    if (i.dynamic.valid()) return false;
  Transpose t{k, *load, nest.stores[0]};
  const auto renamed = k.renamed;
  for (const Axis& a : nest.axes) {
    const Expr extent = k.in(a.extent), counter = k.counter(extent);
    k.renamed[a.symbol] = counter;
    t.axes.push_back({counter, extent});
  }
  const bool applies = t.applies();
  if (applies) t.loops(0);
  for (const Axis& a : t.axes) k.values.erase(a.symbol);
  k.renamed = renamed;
  return applies;
}

}  // namespace cleave::lower
