#include "eval/tile_eval.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <unordered_map>

#include "base/codes.hpp"
#include "base/match.hpp"
#include "eval/expression_eval.hpp"

namespace cleave::oracle {

namespace {

using namespace tile;

// Ends the run; caught in try_run().
struct Stop {
  Diagnostic why;
};
template <class... Args>
[[noreturn]] void stop(Code code, const Args&... args) {
  throw Stop{diagnose(code, args...)};
}

struct Machine {
  const Program& p;
  const TileArguments& arguments;
  const TileOptions& options;
  std::vector<std::vector<std::byte>> owned = {};
  std::vector<std::byte*> memory = {};
  std::vector<int64_t> sizes = {};  // elements
  std::vector<std::vector<int64_t>> shapes = {};
  std::unordered_map<Expr, int64_t> values = {};

  double steps = 0;

  int64_t at(Expr e) const { return p.syms->evaluate(e, values); }
  void step(double n) {
    steps += n;
    if (steps > options.max_steps) stop(Code::graph_too_large, options.max_steps, "steps of evaluation");
  }

  // The elements of a buffer with its padding, or none when that is more than any limit.
  int64_t elements(const Buffer& b) const {
    double n = 1;
    for (size_t a = 0; a < b.shape.size(); ++a) {
      const int64_t e = at(b.shape[a]);
      if (e < 0) stop(Code::invalid_tile, b.name, "has a negative extent");
      n *= static_cast<double>(e) + (a + 1 == b.shape.size() ? static_cast<double>(b.panel) : 0);
    }
    if (n > 0x1p50) stop(Code::extent_too_large, b.name, n, 0x1p50);
    return at(p.size(BufferId(static_cast<uint32_t>(sizes.size()))));
  }
  // The memory of an argument, which must have the size of its buffer.
  template <class Span>
  Span argument(const Buffer& b, const std::vector<Span>& list) const {
    const auto i = static_cast<size_t>(b.argument);
    if (b.argument < 0 || i >= list.size()) stop(Code::bad_call, fmt::format("`{}` is not given", b.name));
    const int64_t bytes = sizes.back() * byte_size(b.dtype);
    if (static_cast<int64_t>(list[i].size()) != bytes)
      stop(Code::bad_call, fmt::format("`{}` has {} bytes, {} were expected", b.name, list[i].size(), bytes));
    return list[i];
  }

  void poison(std::vector<std::byte>& bytes, DType d) const {
    if (!is_real(d)) {
      std::fill(bytes.begin(), bytes.end(), std::byte{0x01});
      return;
    }
    for (size_t i = 0; i < bytes.size(); i += static_cast<size_t>(byte_size(d)))
      store_real(d, bytes.data() + i, std::nan(""));
  }

  void set_up() {
    if (arguments.extents.size() != p.dims.size())
      stop(Code::bad_call,
           fmt::format("{} extents are given, the program has {} dimensions", arguments.extents.size(), p.dims.size()));
    for (size_t i = 0; i < p.dims.size(); ++i) {
      const int64_t v = arguments.extents[i];
      const sym::Interval r = p.syms->symbol_range(p.dims[i]);
      if (v < r.lo || v > r.hi) stop(Code::dim_out_of_range, p.syms->symbol_name(p.dims[i]), v, r.lo, r.hi);
      values[p.dims[i]] = v;
    }
    int64_t bytes = 0;
    for (uint32_t i = 0; i < p.buffers.size(); ++i) {
      const Buffer& b = p.buffers[BufferId(i)];
      sizes.push_back(elements(b));
      shapes.emplace_back();
      for (Expr e : b.shape) shapes.back().push_back(at(e));
      owned.emplace_back();
      std::byte* m = nullptr;
      if (b.alias_of.valid()) {
        m = memory[b.alias_of.index];
        if (sizes[b.alias_of.index] < sizes.back())
          stop(Code::invalid_tile, b.name, "is larger than the buffer that it is an alias of");
      } else {
        switch (b.place) {
          case Place::input: m = const_cast<std::byte*>(argument(b, arguments.inputs).data()); break;
          case Place::constant: m = const_cast<std::byte*>(argument(b, arguments.constants).data()); break;
          case Place::output: m = argument(b, arguments.outputs).data(); break;
          case Place::scalar: {
            owned.back().resize(8);
            m = owned.back().data();
            if (b.argument < 0 || static_cast<size_t>(b.argument) >= arguments.scalars.size())
              stop(Code::bad_call, fmt::format("`{}` is not given", b.name));
            const double v = arguments.scalars[static_cast<size_t>(b.argument)];
            if (is_real(b.dtype))
              store_real(b.dtype, m, v);
            else
              store_integer(b.dtype, m, real_to_integer(b.dtype, v));
            break;
          }
          case Place::workspace:
          case Place::packed:
          case Place::scratch:
            bytes += sizes.back() * byte_size(b.dtype);
            if (bytes > options.max_bytes) stop(Code::extent_too_large, p.name, bytes, options.max_bytes);
            owned.back().resize(static_cast<size_t>(sizes.back() * byte_size(b.dtype)));
            poison(owned.back(), b.dtype);
            m = owned.back().data();
            break;
        }
      }
      memory.push_back(m);
    }
  }

  std::byte* address(BufferId id, std::span<const int64_t> index) const {
    const Buffer& b = p.buffer(id);
    const auto& shape = shapes[id.index];
    int64_t offset = 0;
    for (size_t a = 0; a < index.size(); ++a)
      if (index[a] < 0 || index[a] >= shape[a])
        stop(Code::invalid_tile, b.name, fmt::format("index {} of axis {} leaves 0..{}", index[a], a, shape[a]));
    const size_t rank = shape.size();
    if (b.panel > 0) {
      const int64_t k = shape[rank - 2], panels = (shape[rank - 1] + b.panel - 1) / b.panel;
      for (size_t a = 0; a + 2 < rank; ++a) offset = offset * shape[a] + index[a];
      offset =
          ((offset * panels + index[rank - 1] / b.panel) * k + index[rank - 2]) * b.panel + index[rank - 1] % b.panel;
    } else {
      for (size_t a = 0; a < rank; ++a) offset = offset * shape[a] + index[a];
    }
    return memory[id.index] + offset * byte_size(b.dtype);
  }

  Scalar load(BufferId id, std::span<const int64_t> index) const {
    const DType d = p.buffer(id).dtype;
    const std::byte* m = address(id, index);
    return is_real(d) ? Scalar{load_real(d, m), 0} : Scalar{0, load_integer(d, m)};
  }
  void store(BufferId id, std::span<const int64_t> index, Scalar v) const {
    const DType d = p.buffer(id).dtype;
    if (is_real(d))
      store_real(d, address(id, index), v.real);
    else
      store_integer(d, address(id, index), v.integer);
  }
  double rounded(DType d, double v) const { return options.round ? round_to(compute_type(d), v) : v; }

  ExpressionEvaluator evaluator{
      *p.syms, [this](BufferId id, std::span<const int64_t> index) { return load(id, index); }, options.round};

  // Fresh accumulators get their identity before the loop, for every element the box reaches.
  void points(const Nest& n, size_t axis, const std::function<void()>& visit) {
    if (axis == n.axes.size()) return visit();
    const int64_t extent = at(n.axes[axis].extent);
    for (int64_t i = 0; i < extent; ++i) {
      step(1);
      values[n.axes[axis].symbol] = i;
      points(n, axis + 1, visit);
    }
    values.erase(n.axes[axis].symbol);
  }
  std::vector<int64_t> indices(const std::vector<Expr>& es) const {
    std::vector<int64_t> out;
    for (Expr e : es) out.push_back(at(e));
    return out;
  }

  // The axes that a fresh store's address depends on run over their whole extents even if another axis is empty.
  void nest(const Nest& n) {
    for (const Write& s : n.stores) {
      if (!s.fresh) continue;
      Nest kept;
      for (const Axis& a : n.axes) {
        bool used = false;
        for (Expr e : s.at) used = used || p.syms->mentions(e, a.symbol);
        if (used) kept.axes.push_back(a);
      }
      const DType d = compute_type(p.buffer(s.buffer).dtype);
      points(kept, 0, [&] { store(s.buffer, indices(s.at), identity(*s.accumulate, d)); });
    }
    std::vector<Scalar> x;
    points(n, 0, [&] {
      step(static_cast<double>(n.nodes.size() + n.stores.size()));
      evaluator.run(n.nodes, {}, values, x);
      for (const Write& s : n.stores) {
        const auto index = indices(s.at);
        const DType d = compute_type(p.buffer(s.buffer).dtype);
        store(s.buffer, index,
              s.accumulate ? combine(*s.accumulate, d, load(s.buffer, index), x[s.value.index], options.round)
                           : x[s.value.index]);
      }
    });
  }

  void matmul(const Matmul& m) {
    const int64_t rows = at(m.m), columns = at(m.n), depth = at(m.k);
    const bool wide = p.buffer(m.a.buffer).dtype == DType::f64 || p.buffer(m.b.buffer).dtype == DType::f64;
    const DType d = wide ? DType::f64 : DType::f32;
    auto element = [&](const TileRef& t, int64_t r, int64_t c) {
      auto index = indices(t.at);
      index[static_cast<size_t>(t.rows)] += r;
      index[static_cast<size_t>(t.columns)] += c;
      return index;
    };
    for (int64_t i = 0; i < rows; ++i) {
      step(1);
      for (int64_t j = 0; j < columns; ++j) {
        double sum = 0;
        step(static_cast<double>(std::max<int64_t>(depth, 0)) + 1);
        if (m.init != Matmul::Init::zero) sum = load(m.c.buffer, element(m.c, i, j)).real;
        if (m.init == Matmul::Init::scaled) {
          auto index = indices(m.scale_at);
          index.back() += i;
          sum = rounded(d, sum * load(m.scale, index).real);
        }
        // A fused multiply-add rounds once.
        for (int64_t k = 0; k < depth; ++k)
          sum = rounded(
              d, std::fma(load(m.a.buffer, element(m.a, i, k)).real, load(m.b.buffer, element(m.b, k, j)).real, sum));
        store(m.c.buffer, element(m.c, i, j), {sum, 0});
      }
    }
  }

  void statements(const std::vector<Statement>& body) {
    for (const Statement& s : body)
      match(
          s.what,
          [&](const For& f) {
            const int64_t lo = at(f.lo), hi = at(f.hi);
            // Counted, so that the last step cannot overflow.
            const uint64_t width = lo < hi ? static_cast<uint64_t>(hi) - static_cast<uint64_t>(lo) : 0,
                           by = static_cast<uint64_t>(f.step);
            const uint64_t trips = width / by + (width % by != 0);
            for (uint64_t trip = 0; trip < trips; ++trip) {
              step(1);
              values[f.symbol] = lo + static_cast<int64_t>(trip * by);
              if (f.parallel) poison_scratch();
              statements(f.body);
            }
            // What joins the tasks has scratch of its own.
            if (f.parallel && body.size() > 1) poison_scratch();
            values.erase(f.symbol);
          },
          [&](const Nest& n) { nest(n); }, [&](const Matmul& m) { matmul(m); },
          [&](const Let& l) {
            step(1);
            const int64_t lo = at(l.lo), hi = at(l.hi), value = load(l.buffer, indices(l.at)).integer;
            values[l.symbol] = std::max(lo, std::min(hi, value));
            statements(l.body);
            values.erase(l.symbol);
          });
  }

  // A task finds its scratch dirty.
  void poison_scratch() {
    for (uint32_t i = 0; i < p.buffers.size(); ++i)
      if (p.buffers[BufferId(i)].place == Place::scratch && !owned[i].empty()) {
        step(static_cast<double>(owned[i].size()) / 64);
        poison(owned[i], p.buffers[BufferId(i)].dtype);
      }
  }

  // Columns of a panel beyond the last one are zero after packing.
  void clear_padding() {
    for (uint32_t i = 0; i < p.buffers.size(); ++i)
      if (p.buffers[BufferId(i)].panel > 0 && !owned[i].empty())
        std::fill(owned[i].begin(), owned[i].end(), std::byte{0});
  }

  void go() {
    set_up();
    clear_padding();
    for (const bool once : {true, false})
      for (const Kernel& k : p.kernels)
        if (k.once == once) statements(k.body);
  }
};

}  // namespace

Diagnostics try_run(const Program& program, const TileArguments& arguments, const TileOptions& options) {
  if (Diagnostics bad = verify(program); !bad.empty()) return bad;
  try {
    Machine{program, arguments, options}.go();
  } catch (const Stop& s) {
    return {s.why};
  }
  return {};
}

void run(const Program& program, const TileArguments& arguments, const TileOptions& options) {
  const Diagnostics bad = try_run(program, arguments, options);
  CHECK(bad.empty(), "{}", render(bad, nullptr));
}

}  // namespace cleave::oracle
