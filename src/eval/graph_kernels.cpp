#include "eval/graph_kernels.hpp"

#include <cmath>
#include <limits>
#include <numeric>

namespace cleave::oracle {

using graph::Category;
using graph::Op;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

double larger(double a, double b) { return std::isnan(a) || std::isnan(b) ? kNan : (a > b ? a : b); }
double smaller(double a, double b) { return std::isnan(a) || std::isnan(b) ? kNan : (a < b ? a : b); }
int64_t wrapping(uint64_t v) { return static_cast<int64_t>(v); }

}  // namespace

Site::Site(const graph::Graph& g, const graph::Node& n) : graph(g), node(n) {
  for (graph::ValueId v : n.operands) in.push_back(g.extents(v));
  for (graph::ValueId v : n.results) out.push_back(g.extents(v));
}

int64_t Site::axis() const {
  const auto a = node.attributes.get<int64_t>("axis");
  const Extents& shape = in.empty() ? out[0] : in[0];
  return a < 0 ? a + static_cast<int64_t>(shape.size()) : a;
}

std::vector<bool> Site::reduced() const {
  std::vector<bool> r(in[0].size(), false);
  for (int64_t a : graph::reduced_axes(node, in[0].size()))
    if (a >= 0 && a < static_cast<int64_t>(r.size()))
      r[static_cast<size_t>(a)] = true;  // a scalar's axes 0 and -1 are none
  return r;
}

Extents Site::constants(std::string_view attribute) const {
  Extents out_;
  for (sym::Expr e : node.attributes.get<std::vector<sym::Expr>>(attribute)) {
    const auto c = graph.syms().as_constant(e);
    CHECK(c, "`{}` of `{}` is not bound", attribute, info(node.op).name);
    out_.push_back(*c);
  }
  return out_;
}

Extents Site::list(std::string_view attribute, int64_t otherwise, size_t count) const {
  return node.attributes.get_or(attribute, Extents(count, otherwise));
}

namespace {

// out[i] = f(x[i]...) with broadcasting. Each operand is read through `load`.
template <class Out, class A, class F>
void map1(std::vector<Out>& out, const Extents& extents, const std::vector<A>& a, const Extents& ae, F f) {
  const Extents as = broadcast_strides(ae, extents);
  size_t next = 0;
  for_each_run<1>(extents, {as}, [&](auto at, auto by, int64_t count) {
    for (int64_t i = 0; i < count; ++i) out[next++] = f(a[static_cast<size_t>(at[0] + i * by[0])]);
  });
}
template <class Out, class A, class F>
void map2(std::vector<Out>& out, const Extents& extents, const std::vector<A>& a, const Extents& ae,
          const std::vector<A>& b, const Extents& be, F f) {
  const Extents as = broadcast_strides(ae, extents), bs = broadcast_strides(be, extents);
  size_t next = 0;
  for_each_run<2>(extents, {as, bs}, [&](auto at, auto by, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
      out[next++] = f(a[static_cast<size_t>(at[0] + i * by[0])], b[static_cast<size_t>(at[1] + i * by[1])]);
  });
}
template <class Out, class A, class B, class F>
void map3(std::vector<Out>& out, const Extents& extents, const std::vector<A>& a, const Extents& ae,
          const std::vector<B>& b, const Extents& be, const std::vector<B>& c, const Extents& ce, F f) {
  const Extents as = broadcast_strides(ae, extents), bs = broadcast_strides(be, extents),
                cs = broadcast_strides(ce, extents);
  size_t next = 0;
  for_each_run<3>(extents, {as, bs, cs}, [&](auto at, auto by, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
      out[next++] = f(a[static_cast<size_t>(at[0] + i * by[0])], b[static_cast<size_t>(at[1] + i * by[1])],
                      c[static_cast<size_t>(at[2] + i * by[2])]);
  });
}

// The functions worth their own loops; the rest goes through eval().
template <class Out>
void map_reals(Fn fn, std::vector<Out>& out, const Extents& extents, std::span<const Tensor* const> in) {
  const auto& a = *in[0];
  auto one = [&](auto f) { map1(out, extents, a.reals, a.extents, f); };
  auto two = [&](auto f) { map2(out, extents, a.reals, a.extents, in[1]->reals, in[1]->extents, f); };
  switch (fn) {
    case Fn::add: return two([](double x, double y) { return static_cast<Out>(x + y); });
    case Fn::sub: return two([](double x, double y) { return static_cast<Out>(x - y); });
    case Fn::mul: return two([](double x, double y) { return static_cast<Out>(x * y); });
    case Fn::div: return two([](double x, double y) { return static_cast<Out>(x / y); });
    case Fn::max: return two([](double x, double y) { return static_cast<Out>(larger(x, y)); });
    case Fn::exp: return one([](double x) { return static_cast<Out>(std::exp(x)); });
    default: break;
  }
  switch (info(fn).arity) {
    case 1:
      return one([fn](double x) {
        const double v[] = {x};
        return static_cast<Out>(eval(fn, v));
      });
    case 2:
      return two([fn](double x, double y) {
        const double v[] = {x, y};
        return static_cast<Out>(eval(fn, v));
      });
    default:
      return map3(out, extents, a.reals, a.extents, in[1]->reals, in[1]->extents, in[2]->reals, in[2]->extents,
                  [fn](double x, double y, double z) {
                    const double v[] = {x, y, z};
                    return static_cast<Out>(eval(fn, v));
                  });
  }
}

void map_integers(Fn fn, DType to, std::vector<int64_t>& out, const Extents& extents,
                  std::span<const Tensor* const> in) {
  const auto& a = *in[0];
  switch (info(fn).arity) {
    case 1:
      return map1(out, extents, a.ints, a.extents, [=](int64_t x) {
        const int64_t v[] = {x};
        return wrap_to(to, eval(fn, v));
      });
    case 2:
      return map2(out, extents, a.ints, a.extents, in[1]->ints, in[1]->extents, [=](int64_t x, int64_t y) {
        const int64_t v[] = {x, y};
        return wrap_to(to, eval(fn, v));
      });
    default:
      return map3(out, extents, a.ints, a.extents, in[1]->ints, in[1]->extents, in[2]->ints, in[2]->extents,
                  [=](int64_t x, int64_t y, int64_t z) {
                    const int64_t v[] = {x, y, z};
                    return wrap_to(to, eval(fn, v));
                  });
  }
}

}  // namespace

Tensor apply_elementwise(Fn fn, std::span<const Tensor* const> in, DType dtype, const Extents& extents) {
  Tensor out = zeros(dtype, extents);
  if (fn == Fn::where && in[1]->real()) {
    map3(out.reals, extents, in[0]->ints, in[0]->extents, in[1]->reals, in[1]->extents, in[2]->reals, in[2]->extents,
         [](int64_t c, double x, double y) { return c ? x : y; });
  } else if (!in[0]->real()) {
    map_integers(fn, dtype, out.ints, extents, in);
  } else if (out.real()) {
    map_reals(fn, out.reals, extents, in);
  } else {
    map_reals(fn, out.ints, extents, in);
  }
  return out;
}

Tensor apply_cast(const Tensor& x, DType to) {
  Tensor out = zeros(to, x.extents);
  for (size_t i = 0; i < static_cast<size_t>(x.elements()); ++i) {
    if (x.real() && out.real())
      out.reals[i] = round_to(to, x.reals[i]);
    else if (x.real())
      out.ints[i] = real_to_integer(to, x.reals[i]);
    else if (out.real())
      out.reals[i] = round_to(to, static_cast<double>(x.ints[i]));
    else
      out.ints[i] = wrap_to(to, x.ints[i]);
  }
  return out;
}

std::vector<Tensor> apply_reduce(const Site& site, const Tensor& x) {
  const std::vector<bool> reduced = site.reduced();
  Tensor out = zeros(site.dtype(), site.out[0]);
  double count = 1;
  for (size_t i = 0; i < reduced.size(); ++i)
    if (reduced[i]) count *= static_cast<double>(x.extents[i]);
  const Op op = site.node.op;

  if (!x.real()) {
    const int64_t least = std::numeric_limits<int64_t>::min(), most = std::numeric_limits<int64_t>::max();
    auto fold = [&](int64_t start, auto f) {
      std::fill(out.ints.begin(), out.ints.end(), start);
      for_each_reduced(x.extents, reduced, [&](size_t o, size_t i) { out.ints[o] = f(out.ints[o], x.ints[i]); });
      for (int64_t& v : out.ints) v = wrap_to(out.dtype, v);
    };
    switch (op) {
      case Op::sum:
        fold(0, [](int64_t a, int64_t b) { return wrapping(static_cast<uint64_t>(a) + static_cast<uint64_t>(b)); });
        break;
      case Op::prod:
        fold(1, [](int64_t a, int64_t b) { return wrapping(static_cast<uint64_t>(a) * static_cast<uint64_t>(b)); });
        break;
      case Op::amax:
        fold(x.dtype == DType::boolean ? 0 : least, [](int64_t a, int64_t b) { return std::max(a, b); });
        break;
      case Op::amin:
        fold(x.dtype == DType::boolean ? 1 : most, [](int64_t a, int64_t b) { return std::min(a, b); });
        break;
      case Op::any: fold(0, [](int64_t a, int64_t b) { return int64_t{a || b}; }); break;
      case Op::all: fold(1, [](int64_t a, int64_t b) { return int64_t{a && b}; }); break;
      default: CHECK(false, "`{}` of integers", info(op).name);
    }
    return {std::move(out)};
  }

  auto fold = [&](std::vector<double>& into, double start, auto f) {
    std::fill(into.begin(), into.end(), start);
    for_each_reduced(x.extents, reduced, [&](size_t o, size_t i) { into[o] = f(into[o], x.reals[i], o); });
  };
  auto add = [](double a, double b, size_t) { return a + b; };
  switch (op) {
    case Op::sum: fold(out.reals, 0, add); break;
    case Op::prod: fold(out.reals, 1, [](double a, double b, size_t) { return a * b; }); break;
    case Op::amax: fold(out.reals, -kInf, [](double a, double b, size_t) { return larger(a, b); }); break;
    case Op::amin: fold(out.reals, kInf, [](double a, double b, size_t) { return smaller(a, b); }); break;
    case Op::mean:
    case Op::moments: {
      fold(out.reals, 0, add);
      for (double& v : out.reals) v /= count;
      if (op == Op::mean) break;
      // Two passes: the variance is the mean square distance from the mean.
      Tensor variance = out;
      fold(variance.reals, 0,
           [&](double a, double b, size_t o) { return a + (b - out.reals[o]) * (b - out.reals[o]); });
      for (double& v : variance.reals) v /= count;
      return {std::move(out), std::move(variance)};
    }
    default: CHECK(false, "`{}` of reals", info(op).name);
  }
  return {std::move(out)};
}

Tensor apply_scan(const Site& site, const Tensor& x) {
  Tensor out = zeros(x.dtype, x.extents);
  const Lanes lanes(x.extents, site.axis());
  const bool exclusive = site.node.attributes.get_or("exclusive", false),
             reverse = site.node.attributes.get_or("reverse", false);
  auto scan = [&](const auto& from, auto& to, auto start, auto f) {
    for (int64_t o = 0; o < lanes.outer; ++o)
      for (int64_t i = 0; i < lanes.inner; ++i) {
        auto total = start;
        for (int64_t s = 0; s < lanes.n; ++s) {
          const auto at = static_cast<size_t>(lanes.at(o, reverse ? lanes.n - 1 - s : s, i));
          const auto next = f(total, from[at]);
          to[at] = exclusive ? total : next;
          total = next;
        }
      }
  };
  if (x.real()) {
    if (site.node.op == Op::cumsum)
      scan(x.reals, out.reals, 0.0, [](double a, double b) { return a + b; });
    else if (site.node.op == Op::cumprod)
      scan(x.reals, out.reals, 1.0, [](double a, double b) { return a * b; });
    else
      scan(x.reals, out.reals, -kInf, larger);
    return out;
  }
  auto wrapped = [&](auto f) { return [&, f](int64_t a, int64_t b) { return wrap_to(x.dtype, f(a, b)); }; };
  if (site.node.op == Op::cumsum)
    scan(x.ints, out.ints, int64_t{0},
         wrapped([](int64_t a, int64_t b) { return wrapping(static_cast<uint64_t>(a) + static_cast<uint64_t>(b)); }));
  else if (site.node.op == Op::cumprod)
    scan(x.ints, out.ints, int64_t{1},
         wrapped([](int64_t a, int64_t b) { return wrapping(static_cast<uint64_t>(a) * static_cast<uint64_t>(b)); }));
  else
    scan(x.ints, out.ints, least_integer(x.dtype), [](int64_t a, int64_t b) { return std::max(a, b); });
  return out;
}

void order_lane(const Tensor& x, const Lanes& lanes, int64_t o, int64_t i, bool largest,
                std::vector<int64_t>& positions) {
  positions.resize(static_cast<size_t>(lanes.n));
  std::iota(positions.begin(), positions.end(), 0);
  auto before = [&](int64_t p, int64_t q) {
    const auto a = static_cast<size_t>(lanes.at(o, p, i)), b = static_cast<size_t>(lanes.at(o, q, i));
    if (!x.real()) return largest ? x.ints[a] > x.ints[b] : x.ints[a] < x.ints[b];
    const double u = x.reals[a], v = x.reals[b];
    if (std::isnan(u) || std::isnan(v))
      return largest ? std::isnan(u) && !std::isnan(v) : !std::isnan(u) && std::isnan(v);
    return largest ? u > v : u < v;
  };
  std::stable_sort(positions.begin(), positions.end(), before);
}

std::vector<Tensor> apply_select(const Site& site, const Tensor& x) {
  const Lanes lanes(x.extents, site.axis());
  if (site.node.op == Op::topk) {
    Tensor values = zeros(x.dtype, site.out[0]), indices = zeros(DType::i64, site.out[0]);
    const Lanes to(site.out[0], site.axis());
    std::vector<int64_t> positions;
    for (int64_t o = 0; o < lanes.outer; ++o)
      for (int64_t i = 0; i < lanes.inner; ++i) {
        order_lane(x, lanes, o, i, site.node.attributes.get_or("largest", true), positions);
        for (int64_t k = 0; k < to.n; ++k) {
          const int64_t p = positions[static_cast<size_t>(k)];
          const auto at = static_cast<size_t>(to.at(o, k, i)), from = static_cast<size_t>(lanes.at(o, p, i));
          if (x.real())
            values.reals[at] = x.reals[from];
          else
            values.ints[at] = x.ints[from];
          indices.ints[at] = p;
        }
      }
    return {std::move(values), std::move(indices)};
  }
  // The first extremum; a NaN is one, and the first NaN stays.
  Tensor out = zeros(DType::i64, site.out[0]);
  const bool most = site.node.op == Op::argmax;
  for (int64_t o = 0; o < lanes.outer; ++o)
    for (int64_t i = 0; i < lanes.inner; ++i) {
      int64_t best = 0;
      for (int64_t k = 1; k < lanes.n; ++k) {
        const auto a = static_cast<size_t>(lanes.at(o, k, i)), b = static_cast<size_t>(lanes.at(o, best, i));
        bool better = false;
        if (!x.real())
          better = most ? x.ints[a] > x.ints[b] : x.ints[a] < x.ints[b];
        else if (std::isnan(x.reals[b]))
          break;
        else
          better = std::isnan(x.reals[a]) || (most ? x.reals[a] > x.reals[b] : x.reals[a] < x.reals[b]);
        if (better) best = k;
      }
      out.ints[static_cast<size_t>(o * lanes.inner + i)] = best;
    }
  return {std::move(out)};
}

Tensor apply_leaf(const Site& site) {
  const DType d = site.dtype();
  Tensor out = zeros(d, site.out[0]);
  auto number = [&](double v) {
    if (is_real(d))
      out.reals[0] = round_to(d, v);
    else
      out.ints[0] = wrap_to(d, real_to_integer(d == DType::boolean ? d : DType::i64, v));
  };
  switch (site.node.op) {
    case Op::literal: number(site.node.attributes.get<double>("value")); break;
    case Op::extent: number(static_cast<double>(site.constants("of")[0])); break;
    case Op::iota: {
      const Lanes lanes(site.out[0], site.axis());
      for (int64_t i = 0; i < out.elements(); ++i) {
        const int64_t k = i / lanes.inner % lanes.n;
        if (out.real())
          out.reals[static_cast<size_t>(i)] = round_to(d, static_cast<double>(k));
        else
          out.ints[static_cast<size_t>(i)] = wrap_to(d, k);
      }
      break;
    }
    case Op::constant: {
      const auto& data = site.node.attributes.get<graph::ConstantData>("data");
      return from_dense(d, site.out[0], graph::materialise(data, d, product(site.out[0])).data());
    }
    default: CHECK(false, "`{}` is given from outside", info(site.node.op).name);
  }
  return out;
}

namespace {

std::vector<Tensor> apply_contract(const Site& site, std::span<const Tensor* const> in) {
  const auto spec = graph::parse_contract_spec(site.node.attributes.get<std::string>("spec")).value();
  const ContractPlan plan(spec, site.in[0], site.in[1], site.out[0]);
  Tensor out{site.dtype(), site.out[0], {}, {}};
  if (out.real())
    out.reals = plan.run(std::span<const double>(in[0]->reals), std::span<const double>(in[1]->reals));
  else
    out.ints = plan.run(std::span<const int64_t>(in[0]->ints), std::span<const int64_t>(in[1]->ints));
  if (!out.real())
    for (int64_t& v : out.ints) v = wrap_to(out.dtype, v);
  return {std::move(out)};
}

std::vector<Tensor> apply_moving(const Site& site, std::span<const Tensor* const> in) {
  const double fill = site.node.attributes.get_or("value", 0.0);
  std::vector<Tensor> out;
  auto wrap = [&](auto arrays, auto member) {
    for (size_t i = 0; i < arrays.size(); ++i) {
      Tensor t{site.dtype(i), site.out[i], {}, {}};
      t.*member = std::move(arrays[i]);
      out.push_back(std::move(t));
    }
  };
  const DType d = in[0]->dtype;
  if (site.node.op == Op::gather) {
    if (in[0]->real())
      wrap(std::vector<std::vector<double>>(1, apply_gather(site, in[0]->reals, in[1]->ints)), &Tensor::reals);
    else
      wrap(std::vector<std::vector<int64_t>>(1, apply_gather(site, in[0]->ints, in[1]->ints)), &Tensor::ints);
  } else if (in[0]->real()) {
    std::vector<const std::vector<double>*> arrays;
    for (const Tensor* t : in) arrays.push_back(&t->reals);
    wrap(apply_view<double>(site, arrays, round_to(d, fill)), &Tensor::reals);
  } else {
    std::vector<const std::vector<int64_t>*> arrays;
    for (const Tensor* t : in) arrays.push_back(&t->ints);
    wrap(apply_view<int64_t>(site, arrays, wrap_to(d, real_to_integer(d == DType::boolean ? d : DType::i64, fill))),
         &Tensor::ints);
  }
  return out;
}

}  // namespace

std::vector<Tensor> apply_primitive(const Site& site, std::span<const Tensor* const> in) {
  const auto one = [](Tensor t) {
    std::vector<Tensor> v;
    v.push_back(std::move(t));
    return v;
  };
  switch (info(site.node.op).category) {
    case Category::leaf: return one(apply_leaf(site));
    case Category::elementwise:
      return one(apply_elementwise(graph::scalar_fn(site.node.op), in, site.dtype(), site.out[0]));
    case Category::cast: return one(apply_cast(*in[0], site.dtype()));
    case Category::contract: return apply_contract(site, in);
    case Category::reduce: return apply_reduce(site, *in[0]);
    case Category::view:
    case Category::gather: return apply_moving(site, in);
    case Category::scan: return one(apply_scan(site, *in[0]));
    case Category::select: return apply_select(site, *in[0]);
    case Category::composite:
    case Category::dialect: break;
  }
  CHECK(false, "`{}` is no primitive", info(site.node.op).name);
}

double work_of(const Site& site) {
  double n = 0;
  for (const Extents& e : site.in) n += static_cast<double>(product(e));
  for (const Extents& e : site.out) n += static_cast<double>(product(e));
  if (site.node.op == Op::contract) {
    const auto spec = graph::parse_contract_spec(site.node.attributes.get<std::string>("spec")).value();
    n += ContractPlan(spec, site.in[0], site.in[1], site.out[0]).multiplications();
  }
  if (site.node.op == Op::topk) n *= 16;
  return n;
}

}  // namespace cleave::oracle
