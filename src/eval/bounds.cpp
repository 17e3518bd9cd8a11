#include "eval/bounds.hpp"

#include "eval/error_model.hpp"
#include "eval/graph_driver.hpp"
#include "graph/expand.hpp"

namespace cleave::oracle {

using graph::Category;
using graph::Op;

namespace {

using Bound = std::vector<double>;

struct BoundRules {
  const Site& site;
  std::span<const Bounded* const> in;
  std::vector<Tensor>& values;  // of the results
  bool likely;
  bool may_move;  // a reader of the result may take it before it is rounded to 16 bits

  const Tensor& x(size_t i = 0) const { return in[i]->value; }
  const Bound& e(size_t i = 0) const { return in[i]->bound; }
  static size_t index(int64_t i) { return static_cast<size_t>(i); }
  Bound none(size_t result = 0) const { return Bound(index(values[result].elements()), 0.0); }

  Bound elementwise() const {
    const Fn fn = graph::scalar_fn(site.node.op);
    const Tensor& r = values[0];
    const size_t arity = in.size();
    Extents strides[3];
    for (size_t k = 0; k < 3; ++k)
      strides[k] = k < arity ? broadcast_strides(site.in[k], site.out[0]) : Extents(site.out[0].size(), 0);
    Bound out(index(r.elements()));
    const bool reals = fn == Fn::where ? x(1).real() : x(0).real();
    const Precision precision(reals ? x(fn == Fn::where ? 1 : 0).dtype : DType::f64);
    size_t next = 0;
    for_each_run<3>(site.out[0], {strides[0], strides[1], strides[2]}, [&](auto at, auto by, int64_t count) {
      for (int64_t i = 0; i < count; ++i, ++next) {
        size_t p[3];
        double errors[3];
        for (size_t k = 0; k < arity; ++k) {
          p[k] = index(at[k] + i * by[k]);
          errors[k] = e(k)[p[k]];
        }
        if (fn == Fn::where && reals) {
          const size_t chosen = x(0).ints[p[0]] ? 1 : 2;
          const bool same = errors[1] == 0 && errors[2] == 0 && apart(x(1).reals[p[1]], x(2).reals[p[2]]) == 0;
          out[next] = errors[0] == 0 ? errors[chosen] : same ? 0 : kUnknown;
        } else if (reals) {
          double v[3];
          for (size_t k = 0; k < arity; ++k) v[k] = x(k).reals[p[k]];
          out[next] = bound_of(fn, std::span<const double>(v, arity), std::span<const double>(errors, arity),
                               r.at(static_cast<int64_t>(next)), precision);
        } else {
          int64_t v[3];
          for (size_t k = 0; k < arity; ++k) v[k] = x(k).ints[p[k]];
          out[next] = bound_of(fn, std::span<const int64_t>(v, arity), std::span<const double>(errors, arity));
        }
      }
    });
    return out;
  }

  Bound cast() const {
    const Tensor& r = values[0];
    Bound out = e();
    for (size_t i = 0; i < out.size(); ++i) {
      const double b = out[i];
      if (b == kUnknown) continue;
      if (!x().real()) {
        // Exact, but a 16-bit result may have been rounded twice on the way.
        if (r.real() && r.reals[i] != static_cast<double>(x().ints[i]))
          out[i] = 2 * unit_roundoff(r.dtype) * std::fabs(r.reals[i]);
        continue;
      }
      const double v = x().reals[i];
      if (r.real()) {
        const Precision p(r.dtype);
        if (!std::isfinite(r.reals[i])) {
          out[i] = std::max(apart(round_to(r.dtype, v - b), r.reals[i]), apart(round_to(r.dtype, v + b), r.reals[i]));
          continue;
        }
        double spread =
            std::max(apart(round_to(r.dtype, v - b), r.reals[i]), apart(round_to(r.dtype, v + b), r.reals[i]));
        if (p.storage_unit > 0 && x().dtype == DType::f64 && r.reals[i] != v)
          spread += 2 * p.storage_unit * std::fabs(r.reals[i]) + 2 * p.storage_least;
        if (may_move && p.storage_unit > 0 && (v != r.reals[i] || b > 0))
          spread += p.storage_unit * (std::fabs(v) + b) + p.storage_least;
        if (r.reals[i] != 0 && std::fabs(r.reals[i]) - spread < p.tiny) spread += p.tiny;
        out[i] = spread;
      } else if (b > 0) {
        const bool steady =
            real_to_integer(r.dtype, v - b) == r.ints[i] && real_to_integer(r.dtype, v + b) == r.ints[i];
        out[i] = steady && (r.dtype != DType::boolean || std::fabs(v) > b) ? 0 : kUnknown;
      }
    }
    return out;
  }

  // sum over |a||b| of the products' errors and of the accumulation. Entries that are not finite are left out of the
  // magnitudes and judged apart.
  Bound contract() const {
    const auto spec = graph::parse_contract_spec(site.node.attributes.get<std::string>("spec")).value();
    const ContractPlan plan(spec, site.in[0], site.in[1], site.out[0]);
    const Tensor& r = values[0];
    auto multiply = [&](const Bound& a, const Bound& b) {
      return plan.run(std::span<const double>(a), std::span<const double>(b));
    };
    // For each result, does any entry of an operand that it reads have the flag?
    auto any = [&](auto flag) {
      Bound a(e(0).size()), b(e(1).size());
      for (size_t i = 0; i < a.size(); ++i) a[i] = flag(0, i);
      for (size_t i = 0; i < b.size(); ++i) b[i] = flag(1, i);
      Bound u = multiply(a, Bound(b.size(), 1.0)), w = multiply(Bound(a.size(), 1.0), b);
      for (size_t i = 0; i < u.size(); ++i) u[i] = u[i] + w[i] > 0;
      return u;
    };
    if (!r.real()) {
      Bound out = any([&](size_t k, size_t i) { return e(k)[i] > 0; });
      for (double& v : out) v = v > 0 ? kUnknown : 0;
      return out;
    }
    bool special = false, inexact = false;
    for (size_t k = 0; k < 2; ++k)
      for (size_t i = 0; i < e(k).size(); ++i) {
        special |= !std::isfinite(x(k).reals[i]) || e(k)[i] == kUnknown;
        inexact |= e(k)[i] > 0;
      }
    Bound low[2], high[2];
    for (size_t k = 0; k < 2; ++k) {
      low[k].resize(e(k).size());
      high[k].resize(e(k).size());
      for (size_t i = 0; i < low[k].size(); ++i) {
        const bool finite = std::isfinite(x(k).reals[i]) && e(k)[i] < kUnknown;
        low[k][i] = finite ? std::fabs(x(k).reals[i]) : 0;
        high[k][i] = finite ? low[k][i] + e(k)[i] : 0;
      }
    }
    const Bound magnitudes = multiply(high[0], high[1]);
    const Bound exact = inexact ? multiply(low[0], low[1]) : Bound();
    const Precision p(r.dtype, likely);
    const double n = plan.terms();
    Bound out(magnitudes.size());
    for (size_t i = 0; i < out.size(); ++i) {
      double spread = p.accumulated(n) * magnitudes[i];
      if (inexact) spread += std::max(0.0, magnitudes[i] - exact[i]) + n * 0x1p-50 * magnitudes[i];
      if (magnitudes[i] > 0) spread += n * p.tiny;  // products may underflow
      out[i] = magnitudes[i] > p.compute_largest
                   ? kUnknown
                   : p.settle(r.reals[i], std::isfinite(r.reals[i]) ? spread : 0, 0, 0, magnitudes[i] == 0);
    }
    if (special) {
      const Bound nan = any([&](size_t k, size_t i) { return std::isnan(x(k).reals[i]) && e(k)[i] == 0; });
      const Bound unknown = any([&](size_t k, size_t i) { return e(k)[i] == kUnknown; });
      const Bound doubtful =
          any([&](size_t k, size_t i) { return e(k)[i] > 0 && !(std::fabs(x(k).reals[i]) > e(k)[i]); });
      for (size_t i = 0; i < out.size(); ++i) {
        if (nan[i] > 0)
          out[i] = 0;
        else if (unknown[i] > 0 || (!std::isfinite(r.reals[i]) && doubtful[i] > 0))
          out[i] = kUnknown;
      }
    }
    return out;
  }

  template <class Collect>
  std::vector<Collect> collect() const {
    std::vector<Collect> all(index(values[0].elements()));
    for_each_reduced(site.in[0], site.reduced(), [&](size_t o, size_t i) { all[o].add(x().reals[i], e()[i]); });
    return all;
  }

  // max of x - e and of x + e: an extremum moves no further than its operands.
  Bound extremum(bool largest) const {
    const Tensor& r = values[0];
    const double start = largest ? -kUnknown : kUnknown;
    Bound low(index(r.elements()), start), high = low, out(low.size());
    std::vector<bool> unknown(low.size());
    for_each_reduced(site.in[0], site.reduced(), [&](size_t o, size_t i) {
      if (e()[i] == kUnknown) unknown[o] = true;
      const double a = x().reals[i] - e()[i], b = x().reals[i] + e()[i];
      low[o] = largest ? std::max(low[o], a) : std::min(low[o], a);
      high[o] = largest ? std::max(high[o], b) : std::min(high[o], b);
    });
    const Precision p(r.dtype);
    for (size_t o = 0; o < out.size(); ++o) {
      if (unknown[o])
        out[o] = kUnknown;
      else if (!std::isnan(r.reals[o]))
        out[o] = p.settle(r.reals[o], std::max(apart(low[o], r.reals[o]), apart(high[o], r.reals[o])), 0, 0, true);
    }
    return out;
  }

  std::vector<Bound> reduce() const {
    const Tensor& r = values[0];
    Bound out = none();
    if (!r.real()) {
      const bool settles = site.node.op == Op::any || site.node.op == Op::all;
      std::vector<bool> settled(out.size());
      for_each_reduced(site.in[0], site.reduced(), [&](size_t o, size_t i) {
        if (e()[i] > 0)
          out[o] = kUnknown;
        else if (settles && (x().ints[i] != 0) == (site.node.op == Op::any))
          settled[o] = true;
      });
      for (size_t o = 0; o < out.size(); ++o)
        if (settled[o]) out[o] = 0;
      return {out};
    }
    const Precision p(r.dtype, likely);
    switch (site.node.op) {
      case Op::sum: {
        const auto sums = collect<SumBound>();
        for (size_t o = 0; o < out.size(); ++o) out[o] = sums[o].settle(r.reals[o], p);
        return {out};
      }
      case Op::prod: {
        const auto products = collect<ProductBound>();
        for (size_t o = 0; o < out.size(); ++o) out[o] = products[o].settle(r.reals[o], p);
        return {out};
      }
      case Op::amax: return {extremum(true)};
      case Op::amin: return {extremum(false)};
      case Op::mean:
      case Op::moments: break;
      default: CHECK(false, "`{}` of reals", info(site.node.op).name);
    }
    // The mean's error in computing precision, before it is stored.
    const auto sums = collect<SumBound>();
    const Precision computed(compute_type(r.dtype), likely);
    Bound mean(out.size());
    for (size_t o = 0; o < out.size(); ++o) {
      const SumBound& s = sums[o];
      const double n = s.terms;
      if (n == 0) continue;
      if (n > 1 && s.magnitudes > 0) {
        const bool unknown = s.unknown || s.magnitudes > p.compute_largest;
        const double spread = (s.errors + p.accumulated(n + 2) * s.magnitudes) / n;
        mean[o] = unknown ? kUnknown : std::isfinite(r.reals[o]) ? computed.settle(r.reals[o], spread, 1, 0, false) : 0;
      } else {
        mean[o] = s.settle(r.reals[o], computed);
      }
      out[o] = mean[o] == kUnknown ? kUnknown : p.settle(r.reals[o], mean[o], 0, 0, mean[o] == 0);
    }
    if (site.node.op == Op::mean) return {out};

    // Variance by any method that subtracts the mean (or a pivot) before it squares.
    const Tensor& variance = values[1];
    Bound high(out.size()), low(out.size()), spread = none(1);
    for_each_reduced(site.in[0], site.reduced(), [&](size_t o, size_t i) {
      const double d = std::fabs(x().reals[i] - r.reals[o]);
      const double with = (d + e()[i] + mean[o]) * (1 + 4 * p.unit);
      low[o] += d * d;
      high[o] += with * with;
    });
    for (size_t o = 0; o < spread.size(); ++o) {
      const double n = sums[o].terms;
      if (n == 0) continue;
      if (sums[o].unknown || mean[o] == kUnknown || high[o] > p.compute_largest)
        spread[o] = kUnknown;
      else if (!std::isfinite(variance.reals[o]))
        spread[o] = 0;
      else if (high[o] > 0)
        spread[o] =
            p.settle(variance.reals[o], (high[o] - low[o] + p.accumulated(2 * n + 4) * high[o]) / n, 2, 0, false);
    }
    return {out, spread};
  }

  std::vector<Bound> moving() const {
    std::vector<const Bound*> arrays;
    if (site.node.op == Op::gather) {
      Bound out = apply_gather(site, e(0), x(1).ints);
      const Bound index_bound = e(1);
      if (std::any_of(index_bound.begin(), index_bound.end(), [](double v) { return v > 0; })) {
        // An index that is not known makes its whole row unknown.
        const Lanes lanes(site.in[0], site.axis());
        size_t next = 0;
        for (int64_t o = 0; o < lanes.outer; ++o)
          for (double b : index_bound)
            for (int64_t i = 0; i < lanes.inner; ++i, ++next)
              if (b > 0) out[next] = kUnknown;
      }
      return {out};
    }
    for (const Bounded* b : in) arrays.push_back(&b->bound);
    return apply_view<double>(site, arrays, 0.0);
  }

  Bound scan() const {
    const Tensor& r = values[0];
    Bound out = none();
    const Lanes lanes(site.in[0], site.axis());
    const bool exclusive = site.node.attributes.get_or("exclusive", false),
               reverse = site.node.attributes.get_or("reverse", false);
    const Precision p(r.real() ? r.dtype : DType::f64, likely);
    for (int64_t o = 0; o < lanes.outer; ++o)
      for (int64_t i = 0; i < lanes.inner; ++i) {
        SumBound sum;
        ProductBound product;
        double low = -kUnknown, high = -kUnknown;
        bool unknown = false;
        for (int64_t s = 0; s < lanes.n; ++s) {
          const size_t at = index(lanes.at(o, reverse ? lanes.n - 1 - s : s, i));
          auto take = [&] {
            if (e()[at] == kUnknown) unknown = true;
            if (!r.real()) return;
            sum.add(x().reals[at], e()[at]);
            product.add(x().reals[at], e()[at]);
            low = std::max(low, x().reals[at] - e()[at]);
            high = std::max(high, x().reals[at] + e()[at]);
          };
          if (!exclusive) take();
          if (!r.real())
            out[at] = unknown ? kUnknown : 0;
          else if (site.node.op == Op::cumsum)
            out[at] = sum.settle(r.reals[at], p);
          else if (site.node.op == Op::cumprod)
            out[at] = product.settle(r.reals[at], p);
          else if (unknown)
            out[at] = kUnknown;
          else if (!std::isnan(r.reals[at]))
            out[at] = p.settle(r.reals[at], std::max(apart(low, r.reals[at]), apart(high, r.reals[at])), 0, 0, true);
          if (exclusive) take();
        }
      }
    return out;
  }

  std::vector<Bound> select() const {
    const Lanes lanes(site.in[0], site.axis());
    if (site.node.op == Op::topk) {
      Bound value = none(0), position = none(1);
      const Lanes to(site.out[0], site.axis());
      std::vector<int64_t> order;
      for (int64_t o = 0; o < lanes.outer; ++o)
        for (int64_t i = 0; i < lanes.inner; ++i) {
          double worst = 0;
          for (int64_t k = 0; k < lanes.n; ++k) worst = std::max(worst, e()[index(lanes.at(o, k, i))]);
          if (worst == 0) continue;
          order_lane(x(), lanes, o, i, site.node.attributes.get_or("largest", true), order);
          auto sorted = [&](int64_t k) { return x().at(lanes.at(o, order[index(k)], i)); };
          // An order statistic moves no further than the elements; a place in the order is known across wide gaps only.
          auto known_gap = [&](int64_t k) {
            const double a = sorted(k), b = sorted(k + 1);
            if (std::isnan(a) || std::isnan(b)) return std::isnan(a) != std::isnan(b);
            return std::fabs(a - b) > 2 * worst;
          };
          for (int64_t k = 0; k < to.n; ++k) {
            const size_t at = index(to.at(o, k, i));
            const double v = sorted(k);
            value[at] = worst == kUnknown || !x().real() ? kUnknown : std::isfinite(v) ? worst : 0;
            const bool known = (k == 0 || known_gap(k - 1)) && (k + 1 == lanes.n || known_gap(k));
            position[at] = worst < kUnknown && known ? 0 : kUnknown;
          }
        }
      return {value, position};
    }
    Bound out = none();
    const double sign = site.node.op == Op::argmax ? 1 : -1;
    for (int64_t o = 0; o < lanes.outer; ++o)
      for (int64_t i = 0; i < lanes.inner; ++i) {
        const size_t to = index(o * lanes.inner + i);
        const size_t best = index(lanes.at(o, values[0].ints[to], i));
        for (int64_t k = 0; k < lanes.n; ++k) {
          const size_t at = index(lanes.at(o, k, i));
          if (e()[at] == kUnknown) out[to] = kUnknown;
          if (at == best || (e()[at] == 0 && e()[best] == 0) || std::isnan(x().at(static_cast<int64_t>(best))))
            continue;
          if (!(sign * (x().at(static_cast<int64_t>(best)) - x().at(static_cast<int64_t>(at))) > e()[at] + e()[best]))
            out[to] = kUnknown;
        }
      }
    return {out};
  }

  std::vector<Bound> run() const {
    switch (info(site.node.op).category) {
      case Category::leaf: return {none()};
      case Category::elementwise: return {elementwise()};
      case Category::cast: return {cast()};
      case Category::contract: return {contract()};
      case Category::reduce: return reduce();
      case Category::view:
      case Category::gather: return moving();
      case Category::scan: return {scan()};
      case Category::select: return select();
      case Category::composite:
      case Category::dialect: break;
    }
    CHECK(false, "`{}` is no primitive", info(site.node.op).name);
  }
};

}  // namespace

Result<std::vector<Bounded>> evaluate_with_bounds(const graph::Graph& original, std::span<const Tensor> inputs,
                                                  const BoundOptions& options) {
  const graph::Graph graph = graph::expand_to_primitives(original);
  if (auto bad = check_request(graph, inputs, {.max_elements = options.max_elements, .max_steps = options.max_steps});
      !bad.empty())
    return bad;
  // What is in memory is rounded; a denormal may be read as 0.
  auto leaf = [](const Tensor& t) {
    Bounded b{t, Bound(static_cast<size_t>(t.elements()), 0.0)};
    round_to_storage(b.value);
    if (t.real()) {
      const Precision p(t.dtype);
      for (size_t i = 0; i < b.bound.size(); ++i) {
        const double v = std::fabs(b.value.reals[i]);
        if (v > 0 && v < p.tiny) b.bound[i] = v;
      }
    }
    return b;
  };
  // With 16-bit inputs, roundings between reals may move: a schedule may sum in f32 and round last.
  bool reduced_inputs = false;
  for (graph::ValueId v : graph.leaves())
    reduced_inputs |= graph.type(v).dtype == DType::f16 || graph.type(v).dtype == DType::bf16;
  std::vector<bool> read(graph.value_count());
  for (graph::NodeId id : graph.node_ids())
    for (graph::ValueId v : graph.node(id).operands) read[v.index] = reduced_inputs;
  auto node = [&](const Site& site, std::span<const Bounded* const> in) {
    std::vector<const Tensor*> operands;
    for (const Bounded* b : in) operands.push_back(&b->value);
    std::vector<Tensor> values = apply_primitive(site, operands);
    std::vector<Bound> bounds = BoundRules{site, in, values, options.likely, read[site.node.results[0].index]}.run();
    std::vector<Bounded> out;
    for (size_t i = 0; i < values.size(); ++i) {
      CHECK(static_cast<int64_t>(bounds[i].size()) == values[i].elements(), "{}", info(site.node.op).name);
      out.push_back({std::move(values[i]), std::move(bounds[i])});
    }
    return out;
  };
  return drive<Bounded>(graph, inputs, leaf, node, [](graph::ValueId, const Bounded&) {});
}

Difference compare(const Tensor& got, const Bounded& expected) { return compare(got, expected.value, expected.bound); }

}  // namespace cleave::oracle
