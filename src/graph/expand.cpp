// Composites as primitives, in their safe forms. Each function here is the definition of its operator: docs/graph.md
// says the same in words. 16-bit inputs are computed in f32 and the result is cast back once.
#include "graph/expand.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "graph/spec.hpp"

namespace cleave::graph {

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Short spellings for the nodes that expansions are made of.
struct Maker {
  Builder& b;

  DType dtype(ValueId x) const { return b.type(x).dtype; }
  const Shape& shape(ValueId x) const { return b.type(x).shape; }
  size_t rank(ValueId x) const { return shape(x).size(); }
  ValueId op(Op o, std::vector<ValueId> x) { return b.make(o, std::move(x)); }
  ValueId cast(ValueId x, DType d) { return dtype(x) == d ? x : b.make(Op::cast, {x}, {{"dtype", d}}); }
  ValueId literal(double v, DType d) { return b.literal(v, d); }
  ValueId like(double v, ValueId x) { return b.literal(v, dtype(x)); }
  ValueId reduce(Op o, ValueId x, std::vector<int64_t> axes, bool keepdims = true) {
    return b.make(o, {x}, {{"axes", std::move(axes)}, {"keepdims", keepdims}});
  }
  ValueId reshape(ValueId x, Shape s) {
    return s == shape(x) ? x : b.make(Op::reshape, {x}, {{"shape", std::move(s)}});
  }
  ValueId gather(ValueId x, ValueId indices) { return b.make(Op::gather, {x, indices}, {{"axis", int64_t{0}}}); }
  ValueId iota(Shape s, int64_t axis) {
    return b.make(Op::iota, {}, {{"shape", std::move(s)}, {"axis", axis}, {"dtype", DType::i64}});
  }
  ValueId contract(std::string spec, ValueId x, ValueId y) {
    return b.make(Op::contract, {x, y}, {{"spec", std::move(spec)}});
  }
  // An extent as a number: a literal where it is known.
  ValueId extent(sym::Expr e, DType d) {
    if (const auto c = b.syms().as_constant(e)) return literal(static_cast<double>(*c), d);
    return b.make(Op::extent, {}, {{"of", std::vector<sym::Expr>{e}}, {"dtype", d}});
  }
  sym::Expr one() { return b.syms().constant(1); }
  ValueId is_lowest(ValueId x) { return op(Op::eq, {x, like(-kInf, x)}); }
};

struct Expander {
  Maker m;
  const Attributes& attributes;
  std::span<const ValueId> in;

  std::vector<int64_t> axes(size_t rank) const {
    const Attribute* a = attributes.find("axes");
    std::vector<int64_t> out;
    if (a) return normalise_axes(std::get<std::vector<int64_t>>(*a), rank);
    for (size_t i = 0; i < rank; ++i) out.push_back(static_cast<int64_t>(i));
    return out;
  }
  bool empty_is_zero() const { return attributes.get_or("empty", std::string("nan")) == "zero"; }

  // exp(x - max), its sum and the quotient, over one axis. Under "zero" a row that is wholly -inf gives zeros: its
  // maximum is replaced by 0, so that every exp is 0, and the quotient by 0 is 0. Under "nan" it is -inf - -inf = NaN.
  struct Softmax {
    ValueId maximum, sum, quotient;
  };
  Softmax softmax_over(ValueId x, int64_t axis, bool zero) {
    const ValueId top = m.reduce(Op::amax, x, {axis});
    const ValueId pivot = zero ? m.op(Op::where, {m.is_lowest(top), m.like(0, x), top}) : top;
    const ValueId e = m.op(Op::exp, {m.op(Op::sub, {x, pivot})});
    const ValueId sum = m.reduce(Op::sum, e, {axis});
    return {top, sum, m.op(zero ? Op::quot0 : Op::div, {e, sum})};
  }

  ValueId softmax() {
    const DType d = m.dtype(in[0]);
    const ValueId x = m.cast(in[0], compute_type(d));
    return m.cast(softmax_over(x, attributes.get<int64_t>("axis"), empty_is_zero()).quotient, d);
  }

  ValueId log_softmax() {
    const DType d = m.dtype(in[0]);
    const ValueId x = m.cast(in[0], compute_type(d));
    const std::vector<int64_t> axis = {attributes.get<int64_t>("axis")};
    const ValueId shifted = m.op(Op::sub, {x, m.reduce(Op::amax, x, axis)});
    const ValueId total = m.op(Op::log, {m.reduce(Op::sum, m.op(Op::exp, {shifted}), axis)});
    return m.cast(m.op(Op::sub, {shifted, total}), d);
  }

  // log of the sum of exps, shifted by the maximum unless that is infinite: -inf for a row that is empty or wholly
  // -inf, +inf for one that holds +inf.
  ValueId logsumexp() {
    const DType d = m.dtype(in[0]);
    const ValueId x = m.cast(in[0], compute_type(d));
    const auto over = axes(m.rank(x));
    const ValueId top = m.reduce(Op::amax, x, over);
    const ValueId pivot = m.op(Op::where, {m.op(Op::isinf, {top}), m.like(0, x), top});
    const ValueId sum = m.reduce(Op::sum, m.op(Op::exp, {m.op(Op::sub, {x, pivot})}), over);
    ValueId out = m.op(Op::add, {m.op(Op::log, {sum}), pivot});
    if (!attributes.get_or("keepdims", false) && !over.empty()) out = m.b.make(Op::squeeze, {out}, {{"axes", over}});
    return m.cast(out, d);
  }

  // The operands in the widest of their computing types.
  std::vector<ValueId> widened() {
    DType d = compute_type(m.dtype(in[0]));
    for (ValueId v : in) d = promote(d, compute_type(m.dtype(v)));
    std::vector<ValueId> out;
    for (ValueId v : in) out.push_back(m.cast(v, d));
    return out;
  }
  ValueId scale_and_shift(ValueId y, std::span<const ValueId> scales) {
    if (scales.size() > 0) y = m.op(Op::mul, {y, scales[0]});
    if (scales.size() > 1) y = m.op(Op::add, {y, scales[1]});
    return y;
  }
  ValueId eps_like(ValueId x) { return m.like(attributes.get_or("eps", 1e-5), x); }

  // (x - mean) / sqrt(variance + eps), from one `moments` reduction: never E[x^2] - E[x]^2.
  ValueId normalised(ValueId x, std::vector<int64_t> over) {
    const auto stats = m.b.make_all(Op::moments, {x}, {{"axes", std::move(over)}, {"keepdims", true}});
    const ValueId scale = m.op(Op::rsqrt, {m.op(Op::add, {stats[1], eps_like(x)})});
    return m.op(Op::mul, {m.op(Op::sub, {x, stats[0]}), scale});
  }

  ValueId layer_norm() {
    const auto x = widened();
    const ValueId y = normalised(x[0], axes(m.rank(x[0])));
    return m.cast(scale_and_shift(y, std::span(x).subspan(1)), m.dtype(in[0]));
  }

  ValueId rms_norm() {
    const auto x = widened();
    const ValueId power = m.reduce(Op::mean, m.op(Op::square, {x[0]}), axes(m.rank(x[0])));
    const ValueId scale = m.op(Op::rsqrt, {m.op(Op::add, {power, eps_like(x[0])})});
    return m.cast(scale_and_shift(m.op(Op::mul, {x[0], scale}), std::span(x).subspan(1)), m.dtype(in[0]));
  }

  // [n, c, ...] -> [n, groups, c / groups, ...], normalised over all but the first two; scale and bias are per channel.
  ValueId group_norm() {
    auto x = widened();
    const Shape whole = m.shape(x[0]);
    const int64_t groups = attributes.get<int64_t>("groups");
    sym::Pool& syms = m.b.syms();
    Shape grouped = {whole[0], syms.constant(groups), syms.floordiv(whole[1], syms.constant(groups))};
    grouped.insert(grouped.end(), whole.begin() + 2, whole.end());
    std::vector<int64_t> over;
    for (size_t i = 2; i < grouped.size(); ++i) over.push_back(static_cast<int64_t>(i));
    const ValueId y = m.reshape(normalised(m.reshape(x[0], grouped), over), whole);
    for (size_t i = 1; i < x.size(); ++i) {
      Shape column(whole.size() - 1, m.one());
      column[0] = whole[1];
      x[i] = m.reshape(x[i], column);
    }
    return m.cast(scale_and_shift(y, std::span(x).subspan(1)), m.dtype(in[0]));
  }

  // Scaled dot-product attention. Where query has r times the heads of key, its heads are split into (h, r) and the
  // scores carry both indices, so that no key is copied.
  std::vector<ValueId> sdpa() {
    const DType d = m.dtype(in[0]), compute = compute_type(d);
    const Shape q = m.shape(in[0]), k = m.shape(in[1]), v = m.shape(in[2]);
    const size_t rank = q.size();
    const bool grouped = rank >= 3 && q[rank - 3] != k[rank - 3];
    sym::Pool& syms = m.b.syms();

    std::string batch, group;
    for (size_t i = 0; i + 2 < rank; ++i) batch += fmt::format("b{} ", i);
    ValueId query = m.cast(in[0], compute);
    Shape rows(q.begin(), q.end() - 1);  // of the scores, with heads split
    if (grouped) {
      group = "r ";
      const sym::Expr r = syms.floordiv(q[rank - 3], k[rank - 3]);
      rows = Shape(q.begin(), q.end() - 3);
      rows.insert(rows.end(), {k[rank - 3], r, q[rank - 2]});
      Shape split = rows;
      split.push_back(q[rank - 1]);
      query = m.reshape(query, split);
    }
    const ValueId key = m.cast(in[1], compute), value = m.cast(in[2], compute);
    ValueId scores = m.contract(fmt::format("{0}{1}s d, {0}l d -> {0}{1}s l", batch, group), query, key);

    ValueId scale;
    if (const Attribute* a = attributes.find("scale")) {
      scale = m.literal(std::get<double>(*a), compute);
    } else if (const auto width = syms.as_constant(q[rank - 1])) {
      scale = m.literal(1 / std::sqrt(static_cast<double>(*width)), compute);
    } else {
      scale = m.op(Op::rsqrt, {m.extent(q[rank - 1], compute)});
    }
    scores = m.op(Op::mul, {scores, scale});

    // Key j is seen by row i if j <= i (+ the difference of the lengths when the ends are aligned).
    const std::string causal = attributes.get_or("causal", std::string("none"));
    if (causal != "none") {
      ValueId i = m.iota({q[rank - 2], m.one()}, 0);
      const ValueId j = m.iota({m.one(), k[rank - 2]}, 1);
      if (causal == "end") i = m.op(Op::add, {i, m.extent(syms.sub(k[rank - 2], q[rank - 2]), DType::i64)});
      scores = m.op(Op::where, {m.op(Op::le, {j, i}), scores, m.like(-kInf, scores)});
    }
    if (in.size() == 4) {
      ValueId mask = in[3];
      if (grouped && m.rank(mask) >= 3) {
        const Shape s = m.shape(mask);
        const size_t head = s.size() - 3;
        Shape split(s.begin(), s.begin() + static_cast<long>(head));
        if (syms.is(s[head], 1))
          split.insert(split.end(), {m.one(), m.one()});
        else
          split.insert(split.end(), {rows[rows.size() - 3], rows[rows.size() - 2]});
        split.insert(split.end(), s.end() - 2, s.end());
        mask = m.reshape(mask, split);
      }
      if (m.dtype(mask) == DType::boolean)
        scores = m.op(Op::where, {mask, scores, m.like(-kInf, scores)});
      else
        scores = m.op(Op::add, {scores, m.cast(mask, compute)});
    }

    const int64_t last = static_cast<int64_t>(rows.size());
    const Softmax soft = softmax_over(scores, last, empty_is_zero());
    // Of 16 bits, both operands of the second product are, as those of the first one.
    const ValueId weights = d == compute ? soft.quotient : m.cast(m.cast(soft.quotient, d), compute);
    const ValueId out = m.contract(fmt::format("{0}{1}s l, {0}l e -> {0}{1}s e", batch, group), weights, value);
    Shape whole(q.begin(), q.end() - 1);
    const Shape whole_rows = whole;
    whole.push_back(v[rank - 1]);
    std::vector<ValueId> results = {m.cast(m.reshape(out, whole), d)};
    if (attributes.get_or("lse", false)) {
      // log sum + max; -inf, not NaN, for a row without keys, and +inf for a row with such a score.
      const ValueId lse = m.op(Op::where, {m.op(Op::isinf, {soft.maximum}), soft.maximum,
                                           m.op(Op::add, {m.op(Op::log, {soft.sum}), soft.maximum})});
      results.push_back(m.reshape(lse, whole_rows));
    }
    return results;
  }

  // where(valid, rows of `data` at `index`, 0) for valid and index of shape [b, max] or [rows]; invalid positions read
  // row 0, whose value is dropped.
  ValueId masked_rows(ValueId data, ValueId valid, ValueId index) {
    const ValueId safe = m.op(Op::where, {valid, index, m.literal(0, DType::i64)});
    const ValueId rows = m.gather(data, safe);
    Shape s = m.shape(valid);
    while (s.size() < m.rank(rows)) s.push_back(m.one());
    return m.op(Op::where, {m.reshape(valid, s), rows, m.like(0, data)});
  }
  ValueId column(ValueId x) { return m.b.make(Op::unsqueeze, {x}, {{"axes", std::vector<int64_t>{-1}}}); }
  // indptr[i] and indptr[i + 1] for i < count, [count].
  std::pair<ValueId, ValueId> limits(ValueId indptr, sym::Expr count) {
    const ValueId p = m.cast(indptr, DType::i64), i = m.iota({count}, 0);
    return {m.gather(p, i), m.gather(p, m.op(Op::add, {i, m.literal(1, DType::i64)}))};
  }

  ValueId ragged() {
    const sym::Expr requests = m.b.syms().sub(m.shape(in[1])[0], m.one());
    const sym::Expr max = attributes.get<std::vector<sym::Expr>>("max")[0];
    const auto [start, stop] = limits(in[1], requests);
    const ValueId index = m.op(Op::add, {column(start), m.iota({m.one(), max}, 1)});
    return masked_rows(in[0], m.op(Op::lt, {index, column(stop)}), index);
  }

  // Row t belongs to request i = how many requests end at or before t; requests without rows are passed over.
  ValueId ragged_pack() {
    const Shape s = m.shape(in[0]);
    const sym::Expr rows = attributes.get<std::vector<sym::Expr>>("rows")[0];
    const auto [start, stop] = limits(in[1], s[0]);
    const ValueId t = m.iota({rows}, 0);
    const ValueId ended = m.cast(
        m.op(Op::le, {m.b.make(Op::unsqueeze, {stop}, {{"axes", std::vector<int64_t>{0}}}), column(t)}), DType::i64);
    const ValueId request = m.reduce(Op::sum, ended, {1}, false);
    const ValueId position = m.op(Op::sub, {t, m.gather(m.cast(in[1], DType::i64), request)});
    const ValueId max = m.extent(s[1], DType::i64);
    const ValueId known = m.op(Op::lt, {request, m.extent(s[0], DType::i64)});
    const ValueId within =
        m.op(Op::logical_and, {m.op(Op::ge, {position, m.literal(0, DType::i64)}), m.op(Op::lt, {position, max})});
    Shape flat = {m.b.syms().mul(s[0], s[1])};
    flat.insert(flat.end(), s.begin() + 2, s.end());
    const ValueId index = m.op(Op::add, {m.op(Op::mul, {request, max}), position});
    return masked_rows(m.reshape(in[0], flat), m.op(Op::logical_and, {known, within}), index);
  }

  // Position j of request i lies in slot j mod page of page indices[indptr[i] + j floordiv page].
  ValueId paged() {
    const bool single = attributes.get<int64_t>("page") == 1;
    const ValueId page = m.literal(static_cast<double>(attributes.get<int64_t>("page")), DType::i64);
    const sym::Expr max = attributes.get<std::vector<sym::Expr>>("max")[0];
    const auto [start, stop] = limits(in[1], m.shape(in[3])[0]);
    const ValueId j = m.iota({m.one(), max}, 1);
    const ValueId entry = m.op(Op::add, {column(start), single ? j : m.op(Op::floordiv, {j, page})});
    const ValueId valid = m.op(
        Op::logical_and, {m.op(Op::lt, {j, column(m.cast(in[3], DType::i64))}), m.op(Op::lt, {entry, column(stop)})});
    const ValueId number =
        m.gather(m.cast(in[2], DType::i64), m.op(Op::where, {valid, entry, m.literal(0, DType::i64)}));
    if (single) return masked_rows(in[0], valid, number);
    return masked_rows(in[0], valid, m.op(Op::add, {m.op(Op::mul, {number, page}), m.op(Op::mod, {j, page})}));
  }

  // m = max over K of S; u_i = sum over K of exp(S - m) f_i, where a row with m = -inf has no exps but zeros.
  std::vector<ValueId> scaled_reduce() {
    const ScaledReduceSpec spec = parse_scaled_reduce_spec(attributes.get<std::string>("spec")).value();
    const DType d = compute_type(m.dtype(in[0]));
    // The full extents: an axis of extent 1 of the scores may be longer in a factor.
    Shape full = m.shape(in[0]);
    size_t next = 1;
    for (const auto& sum : spec.sums) {
      if (!sum.has_factor) continue;
      const Shape& f = m.shape(in[next++]);
      for (size_t a = 0; a < f.size(); ++a)
        for (size_t i = 0; i < full.size(); ++i)
          if (spec.scores[i] == sum.factor[a] && m.b.syms().is(full[i], 1)) full[i] = f[a];
    }
    ValueId s = m.cast(in[0], d);
    if (full != m.shape(s)) s = m.b.make(Op::broadcast, {s}, {{"shape", full}});
    std::vector<int64_t> over;
    IndexNames kept;
    for (size_t i = 0; i < spec.scores.size(); ++i) {
      const bool keep = std::find(spec.maximum.begin(), spec.maximum.end(), spec.scores[i]) != spec.maximum.end();
      if (keep)
        kept.push_back(spec.scores[i]);
      else
        over.push_back(static_cast<int64_t>(i));
    }
    const ValueId top = m.reduce(Op::amax, s, over);
    const ValueId e = m.op(Op::where, {m.is_lowest(top), m.like(0, s), m.op(Op::exp, {m.op(Op::sub, {s, top})})});
    std::vector<ValueId> results = {arranged(m.reduce(Op::amax, s, over, false), kept, spec.maximum)};
    next = 1;
    for (const auto& sum : spec.sums) {
      if (!sum.has_factor) {
        results.push_back(arranged(m.reduce(Op::sum, e, over, false), kept, sum.result));
        continue;
      }
      const std::string text = fmt::format("{}, {} -> {}", join(spec.scores), join(sum.factor), join(sum.result));
      results.push_back(m.contract(text, e, m.cast(in[next++], d)));
    }
    return results;
  }
  // A value with axes `from`, with its axes in the order `to`.
  ValueId arranged(ValueId x, const IndexNames& from, const IndexNames& to) {
    if (from == to) return x;
    std::vector<int64_t> perm;
    for (const auto& n : to) perm.push_back(std::find(from.begin(), from.end(), n) - from.begin());
    return m.b.make(Op::transpose, {x}, {{"perm", perm}});
  }

  // u * exp(m) in two halves, so that exp does not overflow before a small u brings the product back.
  ValueId unscale() {
    const ValueId half = m.op(Op::exp, {m.op(Op::mul, {in[1], m.like(0.5, in[1])})});
    return m.op(Op::mul, {m.op(Op::mul, {in[0], half}), half});
  }

  std::optional<std::vector<ValueId>> run(Op op, bool dialect) {
    const auto one = [](ValueId v) { return std::vector<ValueId>{v}; };
    switch (op) {
      case Op::softmax: return one(softmax());
      case Op::log_softmax: return one(log_softmax());
      case Op::logsumexp: return one(logsumexp());
      case Op::layer_norm: return one(layer_norm());
      case Op::rms_norm: return one(rms_norm());
      case Op::group_norm: return one(group_norm());
      case Op::sdpa: return sdpa();
      case Op::ragged: return one(ragged());
      case Op::ragged_pack: return one(ragged_pack());
      case Op::paged: return one(paged());
      default: break;
    }
    CHECK(info(op).category != Category::composite, "`{}` has no expansion", info(op).name);
    if (dialect && op == Op::scaled_reduce) return scaled_reduce();
    if (dialect && op == Op::unscale) return one(unscale());
    return std::nullopt;
  }
};

Graph expand_all(const Graph& graph, bool dialect, const std::vector<bool>& keep = {}) {
  return rewrite(graph, [&](Builder& b, NodeId id, std::span<const ValueId> operands) {
    const Node& n = graph.node(id);
    if (!keep.empty() && keep[id.index]) return std::optional<std::vector<ValueId>>();
    return Expander{Maker{b}, n.attributes, operands}.run(n.op, dialect);
  });
}

}  // namespace

std::vector<bool> stored_packs(const Graph& graph) {
  // Read by reshapes whose results are outputs only, or an output itself.
  std::vector<bool> only_output(graph.value_count(), true), out(graph.node_count());
  const std::vector<NodeId> nodes = graph.node_ids();
  std::vector<int> outputs(graph.value_count());
  for (const Output& o : graph.outputs()) ++outputs[o.value.index];
  for (size_t i = nodes.size(); i-- > 0;) {
    const Node& n = graph.node(nodes[i]);
    const bool passes = (n.op == Op::reshape || n.op == Op::squeeze || n.op == Op::unsqueeze) &&
                        only_output[n.results[0].index] && outputs[n.results[0].index] == 1;
    for (ValueId v : n.operands) only_output[v.index] = only_output[v.index] && passes && outputs[v.index] == 0;
    if (n.op != Op::ragged_pack) continue;
    const Op pointers = graph.producer(n.operands[1]).op;
    out[nodes[i].index] = only_output[n.results[0].index] && pointers == Op::input;
  }
  // One place to store to.
  const std::vector<int> uses = graph.use_counts();
  for (NodeId id : nodes)
    if (out[id.index]) out[id.index] = uses[graph.node(id).results[0].index] == 1;
  return out;
}

Graph expand_for_search(const Graph& graph) {
  std::vector<bool> keep = stored_packs(graph);
  for (NodeId id : graph.node_ids())
    if (graph.node(id).op == Op::ragged || graph.node(id).op == Op::paged) keep[id.index] = true;
  return expand_all(graph, false, keep);
}

bool products_in(const Graph& g, DType dtype) {
  bool any = false;
  for (const NodeId id : g.node_ids()) {
    const Node& n = g.node(id);
    if (n.op != Op::contract && n.op != Op::sdpa) continue;
    any = true;
    // (What follows queries, keys and values is a mask.)
    for (size_t k = 0; k < std::min<size_t>(n.operands.size(), 3); ++k)
      if (g.type(n.operands[k]).dtype != dtype) return false;
  }
  return any;
}

Graph expand_views(const Graph& graph) {
  std::vector<bool> keep(graph.node_count(), true);
  for (NodeId id : graph.node_ids()) keep[id.index] = graph.node(id).op != Op::ragged && graph.node(id).op != Op::paged;
  return expand_all(graph, false, keep);
}

Graph expand(const Graph& graph) { return expand_all(graph, false); }
Graph expand_to_primitives(const Graph& graph) { return expand_all(graph, true); }

}  // namespace cleave::graph
