#include "support/random_graph.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

#include "eval/graph_eval.hpp"
#include "graph/spec.hpp"

namespace cleave::testing {

using graph::Attributes;
using graph::Builder;
using graph::Category;
using graph::Graph;
using graph::Op;
using graph::Shape;
using graph::ValueId;
using Extents = std::vector<int64_t>;

namespace {

const std::vector<int64_t> kExtents = {3, 1, 2, 5, 7, 13, 17, 31, 33, 0};

struct Generator {
  Choices& c;
  const RandomGraphOptions& options;
  Builder b{"random"};
  std::vector<ValueId> pool = {};  // values that may be read
  int inputs = 0;

  int64_t extent() { return c.chance(4) ? 0 : kExtents[c.below(kExtents.size() - 1)]; }
  Extents extents_of(ValueId v) {
    Extents out;
    for (sym::Expr e : b.type(v).shape) out.push_back(*b.syms().as_constant(e));
    return out;
  }
  // Makes axes 1, from the front, until the elements are few enough.
  void fit(Extents& e) {
    for (size_t i = 0; i < e.size() && oracle::product(e) > options.max_elements; ++i) e[i] = 1;
  }
  Extents random_extents(int max_rank = 4) {
    Extents out;
    const auto rank = c.between(0, max_rank);
    for (int64_t i = 0; i < rank; ++i) {
      out.push_back(extent());
      if (oracle::product(out) > options.max_elements) out.back() = 1;
    }
    return out;
  }
  DType random_real() {
    const std::vector<DType> wide = {DType::f32, DType::f32, DType::f64};
    const std::vector<DType> all = {DType::f32, DType::f32, DType::f64, DType::f16, DType::bf16};
    return c.pick(options.sixteen_bit ? all : wide);
  }
  DType random_dtype() {
    if (c.chance(65)) return random_real();
    return c.pick(std::vector<DType>{DType::i64, DType::i32, DType::u8, DType::boolean});
  }

  ValueId fresh(DType d, const Extents& extents) {
    const Shape s = b.shape(std::span<const int64_t>(extents));
    if (extents.empty() && c.chance(50)) return b.scalar(fmt::format("s{}", inputs++), d);
    if (c.chance(10)) {
      graph::ConstantData data{.kind = graph::ConstantData::Kind::normal,
                               .value = 0,
                               .scale = is_real(d) ? 1.0 : 5.0,
                               .seed = c.below(1000)};
      return b.constant(fmt::format("c{}", inputs++), d, s, std::move(data));
    }
    return b.input(fmt::format("x{}", inputs++), d, s);
  }
  ValueId leaf(DType d, const Extents& extents) {
    const ValueId v = fresh(d, extents);
    pool.push_back(v);
    return v;
  }
  // Any value, or one that satisfies a condition; made if there is none.
  ValueId any() { return c.pick(pool); }
  ValueId choose(const std::function<bool(ValueId)>& wanted, DType d, const Extents& otherwise) {
    std::vector<ValueId> fitting;
    for (ValueId v : pool)
      if (wanted(v)) fitting.push_back(v);
    return fitting.empty() || c.chance(10) ? leaf(d, otherwise) : c.pick(fitting);
  }
  ValueId real_value(size_t min_rank = 0) {
    Extents otherwise = random_extents(3);
    while (otherwise.size() < min_rank) otherwise.push_back(extent());
    fit(otherwise);
    return choose([&](ValueId v) { return is_real(b.type(v).dtype) && b.type(v).shape.size() >= min_rank; },
                  random_real(), otherwise);
  }
  ValueId value_of_rank(size_t min_rank) {
    return choose([&](ValueId v) { return b.type(v).shape.size() >= min_rank; }, random_dtype(),
                  min_rank > 1 ? Extents{3, extent()} : Extents{extent()});
  }
  // Something that broadcasts with a value: the shape with axes dropped in front and some made 1.
  ValueId partner(ValueId v) {
    const DType d = b.type(v).dtype;
    if (c.chance(15)) return b.literal(c.pick(std::vector<double>{0, 1, 2, -1, 0.5, 3}), d);
    if (c.chance(40)) {
      const Shape s = b.type(v).shape;
      return choose([&](ValueId w) { return b.type(w).shape == s; }, d, extents_of(v));
    }
    Extents e = extents_of(v);
    while (!e.empty() && c.chance(25)) e.erase(e.begin());
    for (int64_t& x : e)
      if (c.chance(20)) x = 1;
    return leaf(d, e);
  }

  int64_t axis_of(ValueId v) {
    const auto rank = static_cast<int64_t>(b.type(v).shape.size());
    return c.between(-rank, rank - 1);
  }
  std::vector<int64_t> some_axes(ValueId v, bool allow_none = true) {
    const auto rank = static_cast<int64_t>(b.type(v).shape.size());
    std::vector<int64_t> out;
    for (int64_t a = 0; a < rank; ++a)
      if (c.chance(50)) out.push_back(c.chance(30) ? a - rank : a);
    if (out.empty() && !allow_none && rank > 0) out.push_back(c.between(0, rank - 1));
    return out;
  }
  std::vector<sym::Expr> exprs(const Extents& e) { return b.shape(std::span<const int64_t>(e)); }

  // Adds a node; results that are too large stay out of the pool.
  bool add(Op op, std::vector<ValueId> operands, Attributes attributes = {}) {
    auto r = b.add(op, std::move(operands), std::move(attributes));
    if (!r.ok()) return false;
    for (ValueId v : *r)
      if (oracle::product(extents_of(v)) <= options.max_elements) pool.push_back(v);
    return true;
  }

  bool leaf_op(Op op) {
    switch (op) {
      case Op::input:
      case Op::constant:
      case Op::scalar: leaf(random_dtype(), random_extents()); return true;
      case Op::literal: return add(op, {}, {{"value", c.normal()}, {"dtype", random_dtype()}});
      case Op::extent: return add(op, {}, {{"of", exprs({extent()})}, {"dtype", random_dtype()}});
      case Op::iota: {
        Extents e = random_extents(3);
        e.push_back(extent());
        return add(op, {},
                   {{"shape", exprs(e)},
                    {"axis", c.between(-static_cast<int64_t>(e.size()), static_cast<int64_t>(e.size()) - 1)},
                    {"dtype", c.chance(50) ? random_real() : DType::i64}});
      }
      default: return false;
    }
  }

  bool elementwise(Op op) {
    const FnInfo& fn = info(graph::scalar_fn(op));
    ValueId x = fn.rule == FnRule::real || fn.rule == FnRule::real_test || c.chance(40) ? real_value() : any();
    if (fn.rule == FnRule::logic && b.type(x).dtype != DType::boolean) x = b.make(Op::gt, {x, partner(x)});
    std::vector<ValueId> operands = {x};
    while (static_cast<int>(operands.size()) < fn.arity) operands.push_back(partner(x));
    if (fn.fn == Fn::where)
      operands[0] = b.make(c.chance(50) ? Op::lt : Op::ge, {x, partner(x)});
    else if (fn.arity == 2 && c.chance(50))
      std::swap(operands[0], operands[1]);
    return add(op, operands);
  }

  bool contract() {
    const ValueId x =
        choose([&](ValueId v) { return b.type(v).dtype != DType::boolean && b.type(v).shape.size() <= 4; },
               random_real(), random_extents(3));
    const Extents e = extents_of(x);
    graph::IndexNames left, right, result;
    Extents other;
    std::map<std::string, bool> kept;
    for (size_t i = 0; i < e.size(); ++i) {
      left.push_back(std::string(1, static_cast<char>('a' + i)));
      if (c.chance(60)) {
        right.push_back(left.back());
        other.push_back(c.chance(8) ? 1 : e[i]);
      }
      kept[left.back()] = c.chance(55);
    }
    for (int64_t i = c.between(0, 2); i > 0; --i) {
      right.push_back(std::string(1, static_cast<char>('u' + i)));
      other.push_back(extent());
      kept[right.back()] = c.chance(80);
    }
    for (size_t i = right.size(); i > 1; --i) {
      const size_t j = c.below(i);
      std::swap(right[i - 1], right[j]);
      std::swap(other[i - 1], other[j]);
    }
    fit(other);
    for (const auto& [n, keep] : kept)
      if (keep) result.push_back(n);
    for (size_t i = result.size(); i > 1; --i) std::swap(result[i - 1], result[c.below(i)]);
    // An index that both sides lost to broadcasting keeps working: extents 1 stretch.
    const ValueId y = leaf(b.type(x).dtype, other);
    return add(Op::contract, {x, y}, {{"spec", print(graph::ContractSpec{{left, right}, result})}});
  }

  bool reduce(Op op) {
    ValueId x = op == Op::mean || op == Op::moments ? real_value() : any();
    if ((op == Op::any || op == Op::all) && b.type(x).dtype != DType::boolean) x = b.make(Op::lt, {x, partner(x)});
    Attributes a;
    if (c.chance(85)) a.set("axes", some_axes(x));
    if (c.chance(50)) a.set("keepdims", c.chance(70));
    return add(op, {x}, a);
  }

  bool view(Op op) {
    const ValueId x = op == Op::reshape || op == Op::broadcast || op == Op::unsqueeze || op == Op::transpose
                          ? any()
                          : value_of_rank(1);
    const Extents e = extents_of(x);
    const auto rank = static_cast<int64_t>(e.size());
    switch (op) {
      case Op::reshape: {
        int64_t n = oracle::product(e);
        Extents to;
        while (n > 1 && to.size() < 4) {
          std::vector<int64_t> divisors;
          for (int64_t d = 1; d <= n; ++d)
            if (n % d == 0) divisors.push_back(d);
          to.push_back(c.pick(divisors));
          n /= to.back();
        }
        if (n != 1 || c.chance(20)) to.push_back(n);
        return add(op, {x}, {{"shape", exprs(to)}});
      }
      case Op::transpose: {
        std::vector<int64_t> perm(e.size());
        std::iota(perm.begin(), perm.end(), 0);
        for (size_t i = perm.size(); i > 1; --i) std::swap(perm[i - 1], perm[c.below(i)]);
        return add(op, {x}, {{"perm", perm}});
      }
      case Op::broadcast: {
        Extents to = e;
        for (int64_t& v : to)
          if (v == 1 && c.chance(60)) v = extent();
        for (int64_t i = c.between(0, 2); i > 0; --i) to.insert(to.begin(), c.pick(std::vector<int64_t>{2, 3, 1, 5}));
        return add(op, {x}, {{"shape", exprs(to)}});
      }
      case Op::squeeze: {
        std::vector<int64_t> axes;
        for (int64_t i = 0; i < rank; ++i)
          if (e[static_cast<size_t>(i)] == 1 && c.chance(70)) axes.push_back(c.chance(30) ? i - rank : i);
        return add(op, {x}, {{"axes", axes}});
      }
      case Op::unsqueeze: return add(op, {x}, {{"axes", std::vector<int64_t>{c.between(-rank - 1, rank)}}});
      case Op::slice: {
        const std::vector<int64_t> axes = some_axes(x, false);
        std::vector<int64_t> steps;
        Extents starts, stops;
        for (int64_t a : axes) {
          const int64_t n = e[static_cast<size_t>(a < 0 ? a + rank : a)];
          const int64_t step = c.pick(std::vector<int64_t>{1, 2, -1, -2, 3});
          steps.push_back(step);
          int64_t lo = c.between(0, n), hi = c.between(0, n);
          if (lo > hi) std::swap(lo, hi);
          starts.push_back(step > 0 ? lo : hi - 1);
          stops.push_back(step > 0 ? hi : lo - 1);
        }
        return add(op, {x}, {{"axes", axes}, {"starts", exprs(starts)}, {"stops", exprs(stops)}, {"steps", steps}});
      }
      case Op::pad: {
        Extents low, high;
        for (int64_t n : e) {
          low.push_back(c.between(-std::min<int64_t>(n, 1), 2));
          high.push_back(c.between(-std::min<int64_t>(std::max<int64_t>(n - 1, 0), 2), 2));
        }
        Attributes a{{"low", low}, {"high", high}};
        if (c.chance(50))
          a.set("value", c.pick(std::vector<double>{0, 1, -2, -std::numeric_limits<double>::infinity()}));
        return add(op, {x}, a);
      }
      case Op::concat: {
        const int64_t axis = axis_of(x);
        std::vector<ValueId> parts = {x};
        for (int64_t i = c.between(0, 2); i > 0; --i) {
          Extents other = e;
          other[static_cast<size_t>(axis < 0 ? axis + rank : axis)] = extent();
          if (oracle::product(other) > options.max_elements)
            other[static_cast<size_t>(axis < 0 ? axis + rank : axis)] = 1;
          parts.push_back(c.chance(30) ? x : leaf(b.type(x).dtype, other));
        }
        return add(op, parts, {{"axis", axis}});
      }
      case Op::split: {
        const int64_t axis = axis_of(x), n = e[static_cast<size_t>(axis < 0 ? axis + rank : axis)];
        const int64_t at = c.between(0, n);
        Extents sizes = {at, n - at};
        if (c.chance(30)) sizes = {n};
        return add(op, {x}, {{"axis", axis}, {"sizes", exprs(sizes)}});
      }
      case Op::flip: return add(op, {x}, {{"axes", some_axes(x, false)}});
      case Op::window: {
        const std::vector<int64_t> axes = some_axes(x, false);
        const size_t n = axes.size();
        std::vector<int64_t> sizes, strides, dilations, low, high;
        for (size_t i = 0; i < n; ++i) {
          sizes.push_back(c.between(1, 3));
          strides.push_back(c.between(1, 3));
          dilations.push_back(c.between(1, 2));
          low.push_back(c.between(0, 2));
          high.push_back(c.between(0, 2));
        }
        Attributes a{{"axes", axes}, {"sizes", sizes}};
        if (c.chance(60)) a.set("strides", strides);
        if (c.chance(40)) a.set("dilations", dilations);
        if (c.chance(60)) a.set("low", low);
        if (c.chance(60)) a.set("high", high);
        if (c.chance(40)) a.set("ceil", c.chance(80));
        if (c.chance(40)) a.set("value", c.pick(std::vector<double>{0, 1, -std::numeric_limits<double>::infinity()}));
        return add(op, {x}, a);
      }
      default: return false;
    }
  }

  ValueId indptr(int64_t requests, int64_t most) {
    if (c.chance(25)) return leaf(DType::i32, {requests + 1});
    auto bytes = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(requests + 1) * 8);
    int64_t at = 0;
    for (int64_t i = 0; i <= requests; ++i) {
      store_integer(DType::i64, bytes->data() + i * 8, at);
      at += c.between(0, most);
    }
    graph::ConstantData data{.kind = graph::ConstantData::Kind::bytes, .bytes = bytes};
    return b.constant(fmt::format("c{}", inputs++), DType::i64, b.shape({requests + 1}), std::move(data));
  }

  bool composite(Op op) {
    const std::string empty = c.chance(50) ? "zero" : "nan";
    switch (op) {
      case Op::softmax: {
        const ValueId x = real_value(1);
        return add(op, {x}, {{"axis", axis_of(x)}, {"empty", empty}});
      }
      case Op::log_softmax: {
        const ValueId x = real_value(1);
        return add(op, {x}, {{"axis", axis_of(x)}});
      }
      case Op::logsumexp: {
        const ValueId x = real_value();
        return add(op, {x}, {{"axes", some_axes(x)}, {"keepdims", c.chance(50)}});
      }
      case Op::layer_norm:
      case Op::rms_norm: {
        const ValueId x = real_value(1);
        std::vector<ValueId> operands = {x};
        for (int64_t i = c.between(0, op == Op::layer_norm ? 2 : 1); i > 0; --i) {
          Extents e = extents_of(x);
          while (!e.empty() && c.chance(40)) e.erase(e.begin());
          operands.push_back(leaf(c.chance(70) ? b.type(x).dtype : random_real(), e));
        }
        return add(op, operands, {{"axes", some_axes(x, false)}, {"eps", c.pick(std::vector<double>{1e-5, 1e-3})}});
      }
      case Op::group_norm: {
        const ValueId x = real_value(2);
        const int64_t channels = extents_of(x)[1];
        std::vector<int64_t> groups;
        for (int64_t g = 1; g <= std::max<int64_t>(channels, 1); ++g)
          if (channels % g == 0) groups.push_back(g);
        std::vector<ValueId> operands = {x};
        for (int64_t i = c.between(0, 2); i > 0; --i) operands.push_back(leaf(b.type(x).dtype, {channels}));
        return add(op, operands, {{"groups", c.pick(groups)}});
      }
      case Op::sdpa: {
        const DType d = random_real();
        const int64_t hk = c.between(1, 2), r = c.between(1, 3), s = c.pick(std::vector<int64_t>{3, 1, 7, 17}),
                      l = c.pick(std::vector<int64_t>{5, 1, 7, 0, 13});
        const int64_t width = c.pick(std::vector<int64_t>{4, 3, 8}), out = c.pick(std::vector<int64_t>{4, 5});
        Extents q = {s, width}, k = {l, width}, v = {l, out}, mask = {s, l};
        if (c.chance(70)) {
          q.insert(q.begin(), hk * r);
          k.insert(k.begin(), hk);
          v.insert(v.begin(), hk);
          if (c.chance(50)) mask.insert(mask.begin(), c.chance(50) ? 1 : hk * r);
          if (c.chance(30))
            for (Extents* e : {&q, &k, &v}) e->insert(e->begin(), 2);
        }
        std::vector<ValueId> operands = {leaf(d, q), leaf(d, k), leaf(d, v)};
        if (c.chance(40)) operands.push_back(leaf(c.chance(50) ? DType::boolean : d, mask));
        Attributes a{{"causal", c.pick(std::vector<std::string>{"none", "start", "end"})},
                     {"lse", c.chance(40)},
                     {"empty", empty}};
        if (c.chance(30)) a.set("scale", 0.25);
        return add(op, operands, a);
      }
      case Op::ragged: {
        const ValueId x = value_of_rank(1);
        return add(op, {x, indptr(c.between(0, 3), 4)}, {{"max", exprs({c.pick(std::vector<int64_t>{3, 0, 5})})}});
      }
      case Op::ragged_pack: {
        const int64_t requests = c.between(0, 3);
        const ValueId x = leaf(random_dtype(), {requests, c.between(1, 5), c.between(1, 3)});
        return add(op, {x, indptr(requests, 4)}, {{"rows", exprs({c.between(0, 9)})}});
      }
      case Op::paged: {
        const int64_t requests = c.between(1, 3), page = c.between(1, 4);
        const ValueId cache = leaf(random_dtype(), {page * c.between(1, 5), 3});
        return add(op, {cache, indptr(requests, 2), leaf(DType::i32, {c.between(1, 5)}), leaf(DType::i64, {requests})},
                   {{"page", page}, {"max", exprs({c.between(0, 7)})}});
      }
      default: return false;
    }
  }

  bool operate(Op op) {
    switch (info(op).category) {
      case Category::leaf: return leaf_op(op);
      case Category::elementwise: return elementwise(op);
      case Category::cast: return add(op, {any()}, {{"dtype", random_dtype()}});
      case Category::contract: return contract();
      case Category::reduce: return reduce(op);
      case Category::view: return view(op);
      case Category::gather: {
        const ValueId x = value_of_rank(1);
        return add(op, {x, leaf(c.chance(50) ? DType::i64 : DType::i32, random_extents(2))}, {{"axis", axis_of(x)}});
      }
      case Category::scan: {
        const ValueId x = value_of_rank(1);
        return add(op, {x}, {{"axis", axis_of(x)}, {"exclusive", c.chance(50)}, {"reverse", c.chance(50)}});
      }
      case Category::select: {
        const ValueId x = value_of_rank(1);
        const int64_t axis = axis_of(x);
        if (op != Op::topk) return add(op, {x}, {{"axis", axis}, {"keepdims", c.chance(50)}});
        const Extents e = extents_of(x);
        return add(
            op, {x},
            {{"axis", axis},
             {"k", c.between(0, e[static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(e.size()) : axis)])},
             {"largest", c.chance(60)}});
      }
      case Category::composite: return composite(op);
      case Category::dialect: {
        if (op == Op::unscale) {
          const ValueId x = real_value();
          return add(op, {x, leaf(b.type(x).dtype, extents_of(x))});
        }
        const DType d = random_real();
        const int64_t s = c.between(1, 3), n = c.pick(std::vector<int64_t>{5, 1, 0, 17});
        return add(op, {leaf(d, {2, s, n}), leaf(d, {2, n, 3})},
                   {{"spec", std::string("b s l -> b s | b l d -> b s d | -> b s")}});
      }
    }
    return false;
  }

  Graph run() {
    leaf(random_real(), random_extents());
    std::vector<std::vector<Op>> by_category(static_cast<size_t>(Category::dialect) + 1);
    for (const graph::OpInfo& o : graph::all_ops()) by_category[static_cast<size_t>(o.category)].push_back(o.op);
    const std::vector<Category> weights = {
        Category::elementwise, Category::elementwise, Category::elementwise, Category::reduce,
        Category::reduce,      Category::view,        Category::view,        Category::view,
        Category::contract,    Category::composite,   Category::scan,        Category::select,
        Category::gather,      Category::cast,        Category::leaf,        Category::dialect};
    if (options.must_have)
      for (int i = 0; i < 20 && !operate(*options.must_have); ++i) {
      }
    const ValueId wanted = pool.back();
    const auto operators = c.between(1, options.max_operators);
    for (int64_t i = 0; i < operators; ++i) {
      const Category category = c.pick(weights);
      if (category == Category::dialect && !options.dialect) continue;
      for (int attempt = 0; attempt < 4 && !operate(c.pick(by_category[static_cast<size_t>(category)])); ++attempt) {
      }
    }
    // Outputs: what nobody reads, and now and then an inner value.
    std::vector<int> uses = b.graph().use_counts();
    int outputs = 0;
    for (ValueId v : pool)
      if ((uses[v.index] == 0 && (b.graph().producer(v).op != Op::input || c.chance(5))) || v == wanted || c.chance(5))
        b.output(fmt::format("y{}", outputs++), v);
    if (outputs == 0) b.output("y0", pool.back());
    return b.take();
  }
};

}  // namespace

Graph random_graph(Choices& choices, const RandomGraphOptions& options) { return Generator{choices, options}.run(); }

}  // namespace cleave::testing
