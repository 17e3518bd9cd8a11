// Attention and rotary embeddings in the forms that ONNX has for them.
#include <algorithm>
#include <cmath>
#include <limits>

#include "frontend/onnx_maker.hpp"

namespace cleave::onnx_import {

using graph::Op;
using graph::Shape;
using graph::ValueId;
using Ints = std::vector<int64_t>;

namespace {

// [batch, length, heads * width] -> [batch, heads, length, width]
Result<ValueId> split_heads(NodeContext& c, ValueId x, int64_t heads) {
  const Shape shape = c.builder().type(x).shape;
  if (heads < 1 || c.syms().divides(heads, shape[2]) != sym::Proof::yes) {
    return c.error(fmt::format("{} heads do not divide a width of {}", heads, shown(c.syms().print(shape[2]))));
  }
  const sym::Expr count = c.syms().constant(heads);
  TRY_ASSIGN(const ValueId apart, c.reshape(x, {shape[0], shape[1], count, c.syms().floordiv(shape[2], count)}));
  return c.add(Op::transpose, {apart}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
}

// [batch, heads, length, width] -> [batch, length, heads * width]
Result<ValueId> join_heads(NodeContext& c, ValueId x) {
  TRY_ASSIGN(const ValueId turned, c.add(Op::transpose, {x}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}}));
  const Shape shape = c.builder().type(turned).shape;
  return c.reshape(turned, {shape[0], shape[1], c.syms().mul(shape[2], shape[3])});
}

}  // namespace

namespace {

struct AttentionOptions {
  bool causal = false;
  int64_t left = -1, right = -1;  // how far from its own position a query sees; -1: without a bound
  double softcap = 0;
  int64_t scores = -1;  // which scores are a result: 0 the product, 1 capped, 2 masked, 3 the softmax; -1: none
};

// Which keys each query may see, by position: [s, l] or [batch, 1, s, l]; nullopt: all.
std::optional<ValueId> seen(Maker& m, const Shape& q, sym::Expr keys, const AttentionOptions& o,
                            std::optional<sym::Expr> past, std::optional<ValueId> lengths) {
  std::optional<ValueId> out;
  const auto both = [&](ValueId v) { out = out ? m.fn(Fn::logical_and, {*out, v}) : v; };
  const Shape grid{q[2], keys};
  const ValueId column = m.iota(grid, 1, DType::i64);
  ValueId length;
  if (lengths) {
    length = m.unsqueeze(m.cast(*lengths, DType::i64), {1, 2, 3});
    both(m.fn(Fn::lt, {column, length}));
  }
  if (!o.causal && o.left < 0 && o.right < 0) return out;
  // The position of a query among the keys: behind the past, or at the end of what a cache holds.
  ValueId row = m.iota(grid, 0, DType::i64);
  if (past) {
    row = m.add(row, m.extent_value(*past, DType::i64));
  } else if (lengths) {
    row = m.add(row, m.sub(length, m.extent_value(q[2], DType::i64)));
  }
  if (o.causal) both(m.fn(Fn::le, {column, row}));
  if (o.left >= 0) both(m.fn(Fn::le, {m.sub(row, column), m.number(static_cast<double>(o.left), DType::i64)}));
  if (o.right >= 0) both(m.fn(Fn::le, {m.sub(column, row), m.number(static_cast<double>(o.right), DType::i64)}));
  return out;
}

// A mask may end before the keys do: nothing behind it is seen.
ValueId whole_mask(Maker& m, ValueId mask, sym::Expr keys) {
  if (m.ok() && (m.rank(mask) < 2 || m.rank(mask) > 4))
    m.fail(fmt::format("its mask has {} axes, 2 to 4 are needed", m.rank(mask)));
  if (!m.ok()) return {};
  const sym::Expr own = m.shape(mask).back();
  if (own == keys || m.context().syms().is(own, 1)) return mask;
  const int64_t missing = m.constant(m.context().syms().sub(keys, own), "what the mask lacks of the keys");
  if (missing < 0) m.fail("its mask is longer than the keys");
  const size_t rank = m.rank(mask);
  Ints low(rank, 0), high(rank, 0);
  if (rank) high.back() = missing;
  const bool additive = m.dtype(mask) != DType::boolean;
  return m.pad(mask, low, high, additive ? -std::numeric_limits<double>::infinity() : 0);
}

// Written out, where scores are capped or are a result.
std::vector<ValueId> explicit_attention(Maker& m, const std::vector<ValueId>& qkv, std::optional<ValueId> mask,
                                        double scale, const AttentionOptions& o) {
  const Shape q = m.shape(qkv[0]), k = m.shape(qkv[1]), v = m.shape(qkv[2]);
  if (!m.ok()) return {};
  auto& syms = m.context().syms();
  const auto heads = syms.as_constant(q[1]), groups = syms.as_constant(k[1]);
  if (!heads || !groups || *groups < 1 || *heads % *groups != 0) {
    m.fail("its query heads are no multiple of its key heads");
    return {};
  }
  const DType dtype = m.dtype(qkv[0]);
  const sym::Expr each = m.extent(*heads / *groups);
  const ValueId rows = m.reshape(qkv[0], {q[0], k[1], each, q[2], q[3]});
  ValueId scores = m.contract(rows, {"b", "g", "r", "s", "d"}, qkv[1], {"b", "g", "l", "d"}, {"b", "g", "r", "s", "l"});
  scores = m.mul(m.reshape(scores, {q[0], q[1], q[2], k[2]}), scale);
  const ValueId plain = scores;
  if (o.softcap > 0) scores = m.mul(m.fn(Fn::tanh, {m.mul(scores, 1 / o.softcap)}), o.softcap);
  const ValueId capped = scores;
  if (mask) {
    const double least = -std::numeric_limits<double>::infinity();
    scores = m.dtype(*mask) == DType::boolean ? m.where(*mask, scores, m.like(least, scores))
                                              : m.cast(m.add(scores, *mask), dtype);
  }
  const ValueId masked = scores;
  const ValueId weights = m.make(Op::softmax, {scores}, {{"axis", int64_t{-1}}, {"empty", std::string("zero")}});
  const ValueId apart = m.reshape(weights, {q[0], k[1], each, q[2], k[2]});
  const ValueId y =
      m.contract(apart, {"b", "g", "r", "s", "l"}, qkv[2], {"b", "g", "l", "d"}, {"b", "g", "r", "s", "d"});
  const ValueId choice[] = {plain, capped, masked, weights};
  return {m.reshape(y, {q[0], q[1], q[2], v[3]}), choice[std::clamp<int64_t>(o.scores, 0, 3)]};
}

}  // namespace

// Query, key and value as [batch, heads, length, width] or [batch, length, heads * width]. A query sees the keys up to
// its own position: counted from the start, behind the past, or at the end of a cache of which `nonpad_kv_seqlen` is
// filled.
Result<Values> import_attention(NodeContext& c) {
  Maker m(c);
  AttentionOptions o;
  o.causal = c.attribute_int("is_causal", 0) != 0;
  o.softcap = c.attribute_real("softcap", 0);
  o.left = c.attribute_int("left_window_size", -1);
  o.right = c.attribute_int("right_window_size", -1);
  if (c.wants(3)) o.scores = c.attribute_int("qk_matmul_output_mode", 0);
  if (o.scores < -1 || o.scores > 3) return c.error(fmt::format("the mode {} of its scores is not known", o.scores));
  if (o.softcap < 0) return c.error("`softcap` is negative");
  const bool past = c.has(4) || c.has(5);
  if (past && (!c.has(4) || !c.has(5))) return c.error("past keys and past values come together");
  if (past && c.has(6)) return c.error("past keys and lengths of keys exclude each other");
  const size_t rank = c.rank(0);
  if ((rank != 3 && rank != 4) || c.rank(1) != rank || c.rank(2) != rank)
    return c.error("query, key and value need three or four axes");
  std::vector<ValueId> qkv;
  std::optional<sym::Expr> before;
  for (size_t i = 0; i < 3; ++i) {
    ValueId x = m.in(i);
    if (rank == 3 && m.ok()) x = m.of(split_heads(c, x, c.attribute_int(i == 0 ? "q_num_heads" : "kv_num_heads", 0)));
    if (i > 0 && past) {
      const ValueId earlier = m.in(i + 3);
      if (m.ok() && m.rank(earlier) != 4) m.fail("past keys and values need four axes");
      if (!m.ok()) return m.done({});
      before = m.shape(earlier)[2];
      x = m.concat({earlier, x}, 2);
    }
    qkv.push_back(x);
  }
  if (!m.ok()) return m.done({});
  const sym::Expr keys = m.shape(qkv[1])[2];
  std::optional<ValueId> mask, lengths;
  if (c.has(3)) mask = whole_mask(m, m.in(3), keys);
  if (c.has(6)) lengths = m.in(6);
  // The plain causal mask is an attribute of the graph's attention; others are masks by position.
  const bool plain = o.causal && !past && !lengths && o.left < 0 && o.right < 0 && o.softcap == 0 && o.scores < 0;
  if (!plain) {
    if (const auto visible = seen(m, m.shape(qkv[0]), keys, o, before, lengths)) {
      const double least = -std::numeric_limits<double>::infinity();
      if (!mask) {
        mask = visible;
      } else if (m.dtype(*mask) == DType::boolean) {
        mask = m.fn(Fn::logical_and, {*mask, *visible});
      } else {
        mask = m.where(*visible, *mask, m.like(least, *mask));
      }
    }
  }
  if (!m.ok()) return m.done({});
  const auto width = c.syms().as_constant(m.shape(qkv[0])[3]);
  std::vector<ValueId> results;
  if (o.softcap > 0 || o.scores >= 0) {
    if (!c.attribute("scale") && !width) return c.error("a symbolic head width needs `scale`");
    const double scale =
        c.attribute("scale") ? c.attribute_real("scale", 1) : 1 / std::sqrt(static_cast<double>(*width));
    results = explicit_attention(m, qkv, mask, scale, o);
    if (!m.ok()) return m.done({});
  } else {
    std::vector<ValueId> operands = qkv;
    if (mask) operands.push_back(*mask);
    // A row that the mask leaves without keys is zero.
    graph::Attributes attributes{{"empty", std::string("zero")}};
    if (plain) attributes.set("causal", std::string("start"));
    if (c.attribute("scale")) attributes.set("scale", c.attribute_real("scale", 1));
    results = {m.make(Op::sdpa, std::move(operands), std::move(attributes))};
  }
  ValueId y = results[0];
  if (rank == 3 && m.ok()) y = m.of(join_heads(c, y));
  std::vector<ValueId> all{y, qkv[1], qkv[2]};
  if (results.size() > 1) all.push_back(results[1]);
  return m.done(all);
}

// (x1, x2) -> (x1 cos - x2 sin, x1 sin + x2 cos) for x [batch, heads, length, width] and angles [batch, length, half]:
// x1 and x2 are the halves, or the alternate elements, of the first 2 half elements; the rest stays.
ValueId rotate(Maker& m, ValueId x, ValueId cos, ValueId sin, bool interleaved) {
  if (!m.ok()) return {};
  if (m.rank(x) != 4 || m.rank(cos) != 3 || m.rank(sin) != 3) m.fail("its operands cannot be rotated");
  if (!m.ok()) return {};
  const Shape shape = m.shape(x);
  const int64_t half = m.constant(m.shape(cos)[2], "the number of angles");
  const int64_t width = m.constant(shape[3], "the width of a head"), rotated = 2 * half;
  if (m.ok() && (half < 1 || rotated > width))
    m.fail(fmt::format("{} of {} elements cannot be rotated", rotated, width));
  if (!m.ok()) return {};
  cos = m.unsqueeze(cos, {1});
  sin = m.unsqueeze(sin, {1});
  const ValueId first = interleaved ? m.slice(x, 3, m.extent(0), m.extent(rotated), 2) : m.slice(x, 3, 0, half);
  const ValueId second = interleaved ? m.slice(x, 3, m.extent(1), m.extent(rotated), 2) : m.slice(x, 3, half, rotated);
  ValueId left = m.sub(m.mul(first, cos), m.mul(second, sin));
  ValueId right = m.add(m.mul(first, sin), m.mul(second, cos));
  ValueId y;
  if (interleaved) {
    y = m.concat({m.unsqueeze(left, {4}), m.unsqueeze(right, {4})}, 4);
    y = m.reshape(y, {shape[0], shape[1], shape[2], m.extent(rotated)});
  } else {
    y = m.concat({left, right}, 3);
  }
  return rotated < width ? m.concat({y, m.slice(x, 3, rotated, width)}, 3) : y;
}

Result<Values> import_rotary_embedding(NodeContext& c) {
  Maker m(c);
  ValueId x = m.in(0), angles[2] = {m.in(1), m.in(2)};
  if (!m.ok()) return m.done({});
  const size_t rank = m.rank(x);
  if (rank != 3 && rank != 4) return c.error("its operand needs three or four axes");
  if (rank == 3) x = m.of(split_heads(c, x, c.attribute_int("num_heads", 0)));
  if (!m.ok()) return m.done({});
  for (ValueId& a : angles)
    if (c.has(3)) a = m.gather(a, m.in(3), 0);  // picked from a table by position
  const int64_t given = c.attribute_int("rotary_embedding_dim", 0);
  const int64_t half = m.ok() && m.rank(angles[0]) == 3 ? m.constant(m.shape(angles[0])[2], "the number of angles") : 0;
  if (m.ok() && given != 0 && given != 2 * half)
    m.fail(fmt::format("{} elements cannot be rotated by {} angles", given, half));
  ValueId y = rotate(m, x, angles[0], angles[1], c.attribute_int("interleaved", 0) != 0);
  if (rank == 3 && m.ok()) y = m.of(join_heads(c, y));
  return m.done({y});
}

// GroupQueryAttention of ONNX Runtime (com.microsoft, docs/ContribOperators.md there): causal attention over a cache of
// which the first seqlens_k[b] + 1 - s positions hold the past of request b; the new keys follow them. A prompt, where
// the total length is that of the queries, starts at position 0.
Result<Values> import_group_query_attention(NodeContext& c) {
  Maker m(c);
  const int64_t heads = c.attribute_int("num_heads", 0), groups = c.attribute_int("kv_num_heads", 0);
  if (heads < 1 || groups < 1 || heads % groups != 0 || heads > 100000)
    return c.error(fmt::format("{} heads and {} key heads do not fit", heads, groups));
  for (size_t i = 9; i < c.size(); ++i)
    if (c.has(i)) return c.error(fmt::format("its operand {} is not supported", i));
  for (const char* name : {"smooth_softmax", "qk_output", "do_packed"})
    if (c.attribute_int(name, 0) != 0) return c.error(fmt::format("`{}` is not supported", name));
  ValueId q = m.in(0), k, v;
  if (m.ok() && m.rank(q) != 3) m.fail("its query needs three axes");
  if (!m.ok()) return m.done({});
  if (c.has(1) != c.has(2)) return c.error("key and value come together");
  if (c.has(1)) {
    k = m.of(split_heads(c, m.in(1), groups));
    v = m.of(split_heads(c, m.in(2), groups));
    q = m.of(split_heads(c, q, heads));
  } else {  // all heads in one operand: queries, keys, values
    const ValueId all = m.of(split_heads(c, q, heads + 2 * groups));
    q = m.slice(all, 1, 0, heads);
    k = m.slice(all, 1, heads, heads + groups);
    v = m.slice(all, 1, heads + groups, heads + 2 * groups);
  }
  if (!m.ok()) return m.done({});
  const Shape shape = m.shape(q);
  const sym::Expr s = shape[2];
  const auto total = c.extents(6, "total length");
  if (!total.ok()) return total.errors();
  if (total->size() != 1) return c.error("its total length is no scalar");
  const bool prompt = c.syms().equal((*total)[0], s) == sym::Proof::yes;
  // Where the new tokens of each request begin.
  ValueId start = m.broadcast(m.number(0, DType::i64), {shape[0]});
  if (!prompt) {
    const ValueId last = m.reshape(m.cast(m.in(5), DType::i64), {shape[0]});
    start = m.sub(m.add(last, 1), m.extent_value(s, DType::i64));
  }
  if (c.attribute_int("do_rotary", 0) != 0) {
    const ValueId position = m.add(m.unsqueeze(start, {1}), m.iota({shape[0], s}, 1, DType::i64));
    const ValueId cos = m.gather(m.in(7), position, 0), sin = m.gather(m.in(8), position, 0);
    const bool interleaved = c.attribute_int("rotary_interleaved", 0) != 0;
    q = rotate(m, q, cos, sin, interleaved);
    k = rotate(m, k, cos, sin, interleaved);
  }
  if (c.has(3) != c.has(4)) return c.error("past keys and past values come together");
  ValueId first = m.unsqueeze(start, {1, 2, 3});
  if (c.has(3)) {
    // Position p of the cache: the past below the start, behind it the new tokens.
    const auto joined = [&](ValueId past, ValueId fresh) {
      if (!m.ok()) return ValueId();
      const Shape old = m.shape(past);
      if (old.size() != 4) m.fail("past keys and values need four axes");
      if (!m.ok()) return ValueId();
      const Shape all{old[0], old[1], prompt ? c.syms().max(old[2], s) : c.syms().max(old[2], (*total)[0]), old[3]};
      const ValueId p = m.iota({all[0], m.extent(1), all[2], m.extent(1)}, 2, DType::i64);
      const auto picked = [&](ValueId from, ValueId at) {
        // Rows of [b, h, n, d] at positions [b, 1, n', 1], as one gather from rows in a line.
        const Shape f = m.shape(from);
        if (!m.ok()) return ValueId();
        const ValueId limit = m.extent_value(c.syms().sub(f[2], m.extent(1)), DType::i64);
        ValueId row = m.fn(Fn::max, {m.fn(Fn::min, {at, limit}), m.number(0, DType::i64)});
        row = m.squeeze(row, {3});
        const Shape grid{f[0], f[1], all[2]};
        const ValueId lane =
            m.add(m.mul(m.iota(grid, 0, DType::i64), m.extent_value(f[1], DType::i64)), m.iota(grid, 1, DType::i64));
        const ValueId flat = m.add(m.mul(lane, m.extent_value(f[2], DType::i64)), row);
        return m.gather(m.reshape(from, {c.syms().product(std::span(f).first(3)), f[3]}), flat, 0);
      };
      const ValueId behind = m.sub(p, first);
      const ValueId in_new = m.fn(Fn::logical_and, {m.fn(Fn::ge, {behind, m.number(0, DType::i64)}),
                                                    m.fn(Fn::lt, {behind, m.extent_value(s, DType::i64)})});
      const ValueId kept = c.syms().is(old[2], 0) ? m.like(0, fresh) : picked(past, p);
      return m.where(in_new, picked(fresh, behind), kept);
    };
    k = joined(m.in(3), k);
    v = joined(m.in(4), v);
  }
  if (!m.ok()) return m.done({});
  const Shape grid{s, m.shape(k)[2]};
  const ValueId row = m.add(first, m.iota(grid, 0, DType::i64)), column = m.iota(grid, 1, DType::i64);
  ValueId seen = m.fn(Fn::le, {column, row});
  if (const int64_t window = c.attribute_int("local_window_size", -1); window > 0)
    seen = m.fn(Fn::logical_and,
                {seen, m.fn(Fn::lt, {m.sub(row, column), m.number(static_cast<double>(window), DType::i64)})});
  AttentionOptions o;
  o.softcap = c.attribute_real("softcap", 0);
  const double given = c.attribute_real("scale", 0);
  ValueId y;
  if (o.softcap > 0) {
    const int64_t width = m.constant(shape[3], "the width of a head");
    const double scale = given != 0 ? given : 1 / std::sqrt(static_cast<double>(width));
    const auto results = explicit_attention(m, {q, k, v}, seen, scale, o);
    if (!m.ok()) return m.done({});
    y = results[0];
  } else {
    graph::Attributes attributes{{"empty", std::string("zero")}};
    if (given != 0) attributes.set("scale", given);
    y = m.make(Op::sdpa, {q, k, v, seen}, std::move(attributes));
  }
  if (m.ok()) y = m.of(join_heads(c, y));
  return m.done({y, k, v});
}

// ---- norms and activations of ONNX Runtime's optimised models
// --------------------------------------------------------

// x + skip (+ bias), normalised; the last result is that sum.
Result<Values> import_skip_norm(NodeContext& c) {
  Maker m(c);
  const bool rms = c.node().op_type() == "SkipSimplifiedLayerNormalization";
  ValueId x = m.add(m.in(0), m.in(1));
  const size_t bias = rms ? 3 : 4;
  if (c.has(bias)) x = m.add(x, m.in(bias));
  const double eps = c.attribute_real("epsilon", static_cast<double>(rms ? 1e-5f : 1e-12f));
  std::vector<ValueId> operands{x, m.in(2)};
  if (!rms && c.has(3)) operands.push_back(m.in(3));
  const ValueId y = m.make(rms ? Op::rms_norm : Op::layer_norm, operands, {{"axes", Ints{-1}}, {"eps", eps}});
  for (size_t i = 1; i < 3; ++i)
    if (c.wants(i)) return c.error("its statistics are not supported");
  return m.done({y, x, x, x});
}

// The activations with a bias: BiasGelu, FastGelu (the tanh form) and QuickGelu (x sigmoid(alpha x)).
Result<Values> import_contrib_gelu(NodeContext& c) {
  Maker m(c);
  ValueId x = m.in(0);
  if (c.has(1)) x = m.add(x, m.in(1));
  const std::string& name = c.node().op_type();
  if (name == "QuickGelu")
    return m.done({m.mul(x, m.fn(Fn::sigmoid, {m.mul(x, c.attribute_real("alpha", static_cast<double>(1.702f)))}))});
  return m.done({m.fn(name == "FastGelu" ? Fn::gelu_tanh : Fn::gelu_erf, {x})});
}

// alpha A' B' over stacks of matrices.
Result<Values> import_fused_matmul(NodeContext& c) {
  Maker m(c);
  for (const char* name : {"transBatchA", "transBatchB"})
    if (c.attribute_int(name, 0) != 0) return c.error(fmt::format("`{}` is not supported", name));
  ValueId a = m.in(0), b = m.in(1);
  const auto turned = [&](ValueId v, const char* name) {
    if (c.attribute_int(name, 0) == 0 || !m.ok() || m.rank(v) < 2) return v;
    Ints perm = count_from(0, static_cast<int64_t>(m.rank(v)));
    std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
    return m.transpose(v, perm);
  };
  a = turned(a, "transA");
  b = turned(b, "transB");
  if (!m.ok()) return m.done({});
  OnnxValue left = c.wrap(a), right = c.wrap(b);
  NodeContext product(c.builder(), c.node(), c.opset(), {&left, &right});
  const Values y = m.of(import_matmul(product));
  const double alpha = c.attribute_real("alpha", 1);
  if (!m.ok() || alpha == 1) return m.done({m.ok() ? *y[0].id : ValueId()});
  return m.done({m.mul(*y[0].id, alpha)});
}

}  // namespace cleave::onnx_import
