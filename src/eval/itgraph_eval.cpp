#include "eval/itgraph_eval.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "base/codes.hpp"
#include "base/match.hpp"
#include "eval/expression_eval.hpp"
#include "eval/graph_kernels.hpp"
#include "tile/expression.hpp"

namespace cleave::oracle {

namespace {

using namespace itgraph;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Ends the run; caught in run().
struct Stop {
  Diagnostic why;
};
template <class... Args>
[[noreturn]] void stop(Code code, const Args&... args) {
  throw Stop{diagnose(code, args...)};
}

struct Range {
  int64_t lo, hi;
};

struct Array {
  Tensor data;
  std::vector<uint64_t> stamps;        // when each element was computed; 0: never
  std::vector<double> running;         // of a scaled sum: the maximum that its element is scaled by
  std::vector<const Block*> computed;  // the blocks around the statement that computed it last
};

struct ActiveLoop {
  Expr index;
  bool first;
};

struct Machine {
  const Program& p;
  const ItGraphArguments& arguments;
  const EvalOptions& options;
  std::vector<Array> arrays = {};  // by value; those of aliases stay empty
  std::vector<Extents> shapes = {};
  std::unordered_map<Expr, int64_t> indices = {};
  std::unordered_map<Expr, Range> tiles = {};
  std::vector<ActiveLoop> loops = {};
  std::vector<const Block*> blocks = {};  // with the time at which the current iteration of each began
  std::vector<uint64_t> began = {};
  std::unordered_map<const Compute*, std::vector<std::vector<bool>>> live = {};
  uint64_t clock = 1;
  double steps = 0;
  ExpressionEvaluator evaluator{*p.syms, [this](ValueId id, std::span<const int64_t> at) { return load(id, at); },
                                options.round_to_storage};

  void step(double n = 1) {
    steps += n;
    if (steps > options.max_steps) stop(Code::graph_too_large, options.max_steps, "steps of evaluation");
  }
  int64_t constant(Expr e) const {
    const auto v = p.syms->evaluate(e, [this](Expr s) -> std::optional<int64_t> {
      auto it = indices.find(s);
      if (it == indices.end()) return std::nullopt;
      return it->second;
    });
    if (!v) stop(Code::invalid_itgraph, p.name, "has an extent without a value");
    return *v;
  }
  ValueId origin(ValueId id) const {
    while (p.value(id).alias_of.valid() && !p.value(id).rows_of.valid()) id = p.value(id).alias_of;
    return id;
  }
  Array& array(ValueId id) { return arrays[origin(id).index]; }

  // -------------------------------------------------------------------------------------------- values

  const Tensor& argument(const Value& v, const std::vector<Tensor>& list, const Extents& extents) const {
    const auto i = static_cast<size_t>(v.argument);
    if (i >= list.size()) stop(Code::bad_call, fmt::format("`{}` is not given", v.name));
    if (list[i].dtype != v.dtype || list[i].extents != extents)
      stop(Code::bad_call, fmt::format("`{}` should be {}[{}]", v.name, name(v.dtype), fmt::join(extents, ", ")));
    return list[i];
  }

  void set_up() {
    if (arguments.extents.size() != p.dims.size())
      stop(Code::bad_call,
           fmt::format("{} extents are given, the program has {} dimensions", arguments.extents.size(), p.dims.size()));
    for (size_t i = 0; i < p.dims.size(); ++i) {
      const int64_t v = arguments.extents[i];
      const sym::Interval r = p.syms->symbol_range(p.dims[i]);
      if (v < r.lo || v > r.hi) stop(Code::dim_out_of_range, p.syms->symbol_name(p.dims[i]), v, r.lo, r.hi);
      indices[p.dims[i]] = v;
    }
    double elements = 0;
    for (const Value& v : p.values) {
      shapes.emplace_back();
      double n = 1;
      for (Expr e : v.shape) {
        shapes.back().push_back(constant(e));
        n *= static_cast<double>(shapes.back().back());
      }
      if (!v.alias_of.valid() || v.rows_of.valid()) elements += n;
    }
    if (elements > static_cast<double>(options.max_elements))
      stop(Code::extent_too_large, p.name, elements, options.max_elements);
    for (uint32_t i = 0; i < p.values.size(); ++i) {
      const Value& v = p.values[ValueId(i)];
      Array& a = arrays.emplace_back();
      if (v.alias_of.valid() && !v.rows_of.valid()) continue;
      switch (v.role) {
        case Role::input: a.data = argument(v, arguments.inputs, shapes[i]); break;
        case Role::constant: a.data = argument(v, arguments.constants, shapes[i]); break;
        case Role::scalar:
          if (static_cast<size_t>(v.argument) >= arguments.scalars.size())
            stop(Code::bad_call, fmt::format("`{}` is not given", v.name));
          a.data = scalar_tensor(v.dtype, arguments.scalars[static_cast<size_t>(v.argument)]);
          break;
        case Role::output:
        case Role::inner:
          a.data = zeros(v.dtype, shapes[i]);
          std::fill(a.data.reals.begin(), a.data.reals.end(), std::nan(""));
          break;
      }
      const bool given = v.role != Role::output && v.role != Role::inner;
      if (given && options.round_to_storage) round_to_storage(a.data);
      a.stamps.assign(static_cast<size_t>(a.data.elements()), given ? clock : 0);
    }
  }

  size_t offset(ValueId id, std::span<const int64_t> at) const {
    const Extents& shape = shapes[id.index];
    int64_t o = 0;
    for (size_t i = 0; i < at.size(); ++i) {
      if (at[i] < 0 || at[i] >= shape[i])
        stop(Code::invalid_itgraph, p.value(id).name,
             fmt::format("index {} of axis {} leaves 0..{}", at[i], i, shape[i]));
      o = o * shape[i] + at[i];
    }
    return static_cast<size_t>(o);
  }

  // The element must have been computed in the current iteration of every block around both its statement and this one.
  void check_computed(ValueId id, const Array& a, size_t at) const {
    uint64_t since = 1;
    for (size_t b = 0; b < blocks.size() && b < a.computed.size() && blocks[b] == a.computed[b]; ++b) since = began[b];
    if (a.stamps[at] < since)
      stop(Code::invalid_itgraph, p.value(id).name,
           fmt::format("its element {} is read {}", at,
                       a.stamps[at] == 0 ? "but never computed" : "outside the iteration that computed it"));
  }

  Scalar load(ValueId id, std::span<const int64_t> at) {
    const Array& a = array(id);
    const size_t o = offset(id, at);
    check_computed(id, a, o);
    if (!a.data.real()) return {0, a.data.ints[o]};
    return {options.round_to_storage ? round_to(a.data.dtype, a.data.reals[o]) : a.data.reals[o], 0};
  }
  static Scalar get(const Array& a, size_t at) {
    return a.data.real() ? Scalar{a.data.reals[at], 0} : Scalar{0, a.data.ints[at]};
  }
  static void set(Array& a, size_t at, Scalar v) {
    if (a.data.real())
      a.data.reals[at] = v.real;
    else
      a.data.ints[at] = v.integer;
  }

  // -------------------------------------------------------------------------------------------- statements

  Range tile_of(Expr index) const {
    auto it = tiles.find(index);
    return it == tiles.end() ? Range{0, constant(p.extents.at(index))} : it->second;
  }
  void points(std::span<const Expr> over, const std::function<void()>& visit) {
    if (over.empty()) return visit();
    const Range r = tile_of(over[0]);
    for (int64_t i = r.lo; i < r.hi; ++i) {
      indices[over[0]] = i;
      points(over.subspan(1), visit);
    }
    indices.erase(over[0]);
  }
  void elements(const Target& t, const std::function<void(size_t)>& visit) {
    Extents at(t.axes.size());
    points(t.axes, [&] {
      for (size_t i = 0; i < at.size(); ++i) at[i] = indices.at(t.axes[i]);
      visit(offset(t.value, at));
    });
  }

  void compute(const Compute& c) {
    auto [known, fresh] = live.try_emplace(&c);
    if (fresh)
      for (const Target& t : c.results) {
        std::vector<NodeId> roots = {t.node};
        if (c.how == Compute::How::scaled) roots.push_back(c.results[0].node);
        known->second.push_back(tile::reachable(c.nodes, roots));
      }
    for (size_t i = 0; i < c.results.size(); ++i) result(c, i, known->second[i]);
  }

  // Each result of a group is reduced on its own: a scaled sum keeps the maximum that it is scaled by for each element.
  void result(const Compute& c, size_t which, const std::vector<bool>& needed) {
    const Target& t = c.results[which];
    bool start = true, inside = false;
    for (const ActiveLoop& l : loops) {
      if (std::find(c.reduced.begin(), c.reduced.end(), l.index) != c.reduced.end()) {
        inside = true;
        start = start && l.first;
      } else if (inside && !l.first && std::find(t.axes.begin(), t.axes.end(), l.index) == t.axes.end()) {
        return;  // this tile of the reduction has been taken
      }
    }
    ++clock;
    Array& a = array(t.value);
    a.computed = blocks;
    const DType d = compute_type(p.value(t.value).dtype);
    const bool rescales = c.how == Compute::How::scaled && which > 0;
    const Fn fn = c.how == Compute::How::scaled && which == 0 ? Fn::max : c.fn;
    if (rescales) a.running.resize(a.stamps.size());
    std::vector<Scalar> x;
    auto evaluate = [&] {
      step(static_cast<double>(c.nodes.size()) + 1);
      evaluator.run(c.nodes, needed, indices, x);
      return x[t.node.index];
    };
    elements(t, [&](size_t at) {
      step();
      a.stamps[at] = clock;
      if (c.how == Compute::How::map) return set(a, at, evaluate());
      if (start) {
        set(a, at, rescales ? Scalar{} : identity(fn, d));
        if (rescales) a.running[at] = -kInfinity;
      }
      points(c.reduced, [&] {
        const Scalar v = evaluate();
        if (!rescales) return set(a, at, combine(fn, d, get(a, at), v, options.round_to_storage));
        a.data.reals[at] = rescaled(a.data.reals[at], a.running[at], x[c.results[0].node.index].real, v.real, d);
      });
    });
  }

  // sum exp(s - m) v, where m, the maximum so far, becomes max(m, s).
  double rescaled(double sum, double& m, double s, double v, DType d) const {
    auto rounded = [&](double y) { return options.round_to_storage ? round_to(d, y) : y; };
    const double pair[] = {m, s};
    const double larger = eval(Fn::max, std::span<const double>(pair));
    // Nothing has been summed while m is -inf; exp(-inf - anything) is 0.
    const double keep = m == -kInfinity ? 0 : larger == m ? 1 : rounded(std::exp(rounded(m - larger)));
    const double weight = s == -kInfinity ? 0 : rounded(std::exp(rounded(s - larger)));
    m = larger;
    return rounded(rounded(sum * keep) + rounded(weight * v));
  }

  void block(const Block& b, size_t loop) {
    if (loop == b.loops.size()) {
      step();
      began.back() = ++clock;
      for (const Item& i : b.items)
        match(i.what, [&](const Compute& c) { compute(c); }, [&](const Block& inner) { enter(inner); });
      return;
    }
    const Loop& l = b.loops[loop];
    const Range whole = tile_of(l.index);
    const bool tiled = tiles.count(l.index) > 0;
    loops.push_back({l.index, true});
    const size_t mine = loops.size() - 1;
    int64_t lo = whole.lo;
    do {  // an empty index has one empty tile
      tiles[l.index] = {lo, std::min(whole.hi, whole.hi - lo > l.step ? lo + l.step : whole.hi)};
      block(b, loop + 1);
      loops[mine].first = false;
      lo = tiles[l.index].hi;
      step();
    } while (lo < whole.hi);
    loops.pop_back();
    if (tiled)
      tiles[l.index] = whole;
    else
      tiles.erase(l.index);
  }
  void enter(const Block& b) {
    blocks.push_back(&b);
    began.push_back(clock);
    block(b, 0);
    blocks.pop_back();
    began.pop_back();
  }

  // The graph's own operators.
  void library(const Library& l) {
    using What = Library::What;
    const Extents& extents = shapes[l.source.index];
    const Array& source = array(l.source);
    for (size_t i = 0; i < source.stamps.size(); ++i) check_computed(l.source, source, i);
    Tensor x = source.data;
    x.extents = extents;
    if (options.round_to_storage) round_to_storage(x);
    step(32 * static_cast<double>(x.elements()));

    graph::Attributes attributes{{"axis", int64_t{l.axis}}};
    graph::Op op = graph::Op::cumsum;
    switch (l.what) {
      case What::cumsum: op = graph::Op::cumsum; break;
      case What::cumprod: op = graph::Op::cumprod; break;
      case What::cummax: op = graph::Op::cummax; break;
      case What::argmax: op = graph::Op::argmax; break;
      case What::argmin: op = graph::Op::argmin; break;
      case What::topk:
        op = graph::Op::topk;
        attributes.set("k", shapes[l.results[0].index][static_cast<size_t>(l.axis)]);
        attributes.set("largest", l.largest);
        break;
    }
    if (l.what == What::cumsum || l.what == What::cumprod || l.what == What::cummax) {
      attributes.set("exclusive", l.exclusive);
      attributes.set("reverse", l.reverse);
    }
    graph::Builder b;
    const auto made = b.add(op, {b.input("x", x.dtype, b.shape(extents))}, attributes);
    if (!made.ok()) throw Stop{made.errors()[0]};
    const Site site(b.graph(), b.graph().producer(made.value()[0]));
    const Tensor* operand = &x;
    const std::vector<Tensor> out = apply_primitive(site, std::span(&operand, 1));
    ++clock;
    for (size_t i = 0; i < out.size(); ++i) {
      Array& a = array(l.results[i]);
      a.computed.clear();
      std::fill(a.stamps.begin(), a.stamps.end(), clock);
      a.data.reals = out[i].reals;
      a.data.ints = out[i].ints;
      for (int64_t& v : a.data.ints) v = wrap_to(a.data.dtype, v);
    }
  }

  // The rows of all requests, one after the other as the integers say; the others are 0.
  void pack(ValueId id) {
    const Value& v = p.value(id);
    const Extents& shape = shapes[id.index];
    const Array& from = arrays[id.index];
    const Array& by = array(v.rows_of);
    Array& to = array(v.alias_of);
    const int64_t rows = constant(v.rows), requests = shape[0];
    int64_t width = 1;
    for (size_t a = 2; a < shape.size(); ++a) width *= shape[a];
    ++clock;
    for (size_t e = 0; e < to.stamps.size(); ++e) {
      to.stamps[e] = clock;
      set(to, e, Scalar{});
    }
    for (int64_t b = 0; b < requests; ++b) {
      const int64_t first = by.data.ints[static_cast<size_t>(b)], stop = by.data.ints[static_cast<size_t>(b + 1)];
      for (int64_t i = 0; i < std::min(stop - first, shape[1]); ++i) {
        if (first + i < 0 || first + i >= rows) continue;
        for (int64_t k = 0; k < width; ++k) {
          const auto at = static_cast<size_t>((b * shape[1] + i) * width + k);
          if (from.stamps[at] == 0) stop_at(v, at);
          set(to, static_cast<size_t>((first + i) * width + k), get(from, at));
        }
      }
    }
  }
  [[noreturn]] void stop_at(const Value& v, size_t element) const {
    stop(Code::invalid_itgraph, v.name, fmt::format("its element {} is never computed", element));
  }

  std::vector<Tensor> go() {
    set_up();
    for (const Kernel& k : p.kernels)
      match(k.what, [&](const Block& b) { enter(b); }, [&](const Library& l) { library(l); });
    for (uint32_t i = 0; i < p.values.size(); ++i)
      if (p.values[ValueId(i)].rows_of.valid()) pack(ValueId(i));
    std::map<int, Tensor> outputs;
    for (uint32_t i = 0; i < p.values.size(); ++i) {
      const Value& v = p.values[ValueId(i)];
      if (v.role != Role::output || v.argument < 0) continue;
      Array& a = array(ValueId(i));
      for (size_t e = 0; e < a.stamps.size(); ++e)
        if (a.stamps[e] == 0) stop(Code::invalid_itgraph, v.name, fmt::format("its element {} is never computed", e));
      Tensor out = a.data;
      out.extents = shapes[i];
      if (options.round_to_storage) round_to_storage(out);
      outputs.emplace(v.argument, std::move(out));
    }
    std::vector<Tensor> list;
    for (auto& [argument, tensor] : outputs) list.push_back(std::move(tensor));
    return list;
  }
};

}  // namespace

Result<std::vector<Tensor>> run(const Program& program, const ItGraphArguments& arguments, const EvalOptions& options) {
  if (Diagnostics bad = verify(program); !bad.empty()) return bad;
  try {
    return Machine{program, arguments, options}.go();
  } catch (const Stop& s) {
    return s.why;
  }
}

}  // namespace cleave::oracle
