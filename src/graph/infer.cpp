// Types of results from types of operands: every law of every operator's shapes and dtypes is here.
#include <algorithm>
#include <set>

#include "base/codes.hpp"
#include "graph/graph.hpp"
#include "graph/spec.hpp"

namespace cleave::graph {

namespace {

using Types = std::vector<Type>;

struct Inference {
  sym::Pool& syms;
  const OpInfo& op;
  std::span<const Type> in;
  const Attributes& attributes;

  Diagnostic shape_error(std::string why) const { return diagnose(Code::bad_shape, op.name, why); }
  Diagnostic dtype_error(std::string why) const { return diagnose(Code::bad_dtype, op.name, why); }
  Diagnostic attribute_error(std::string_view attribute, std::string why) const {
    return diagnose(Code::bad_attribute, op.name, attribute, why);
  }
  std::string show(sym::Expr e) const { return syms.print(e); }
  std::string show(const Type& t) const { return print(syms, t); }
  bool is_one(sym::Expr e) const { return syms.is(e, 1); }
  bool differ(sym::Expr a, sym::Expr b) const { return a != b; }

  std::optional<Diagnostic> check_extents(const Shape& shape) const {
    for (sym::Expr e : shape)
      if (syms.bounds(e).hi < 0 || (syms.as_constant(e) && *syms.as_constant(e) < 0))
        return shape_error(fmt::format("the extent {} is negative", show(e)));
    return std::nullopt;
  }

  // Composites are replaced by primitives (expand.cpp), whose values must keep the limits too.
  std::optional<Diagnostic> check_inner(const Shape& shape, size_t rank) const {
    const sym::Expr product = syms.product(shape);
    const int64_t elements = std::max(syms.bounds(product).lo, syms.as_constant(product).value_or(0));
    if (elements > kMaxElements) return diagnose(Code::extent_too_large, op.name, elements, kMaxElements);
    if (rank > kMaxRank) return shape_error(fmt::format("needs {} axes inside, more than {}", rank, kMaxRank));
    return std::nullopt;
  }

  // Axis attribute in [-rank, rank).
  Result<int64_t> axis(std::string_view name, size_t rank) const {
    const int64_t a = attributes.get<int64_t>(name), r = static_cast<int64_t>(rank);
    if (a < -r || a >= r) return attribute_error(name, fmt::format("{} is outside -{}..{}", a, r, r - 1));
    return a < 0 ? a + r : a;
  }
  Result<std::vector<int64_t>> axes(std::string_view name, size_t rank) const {
    std::vector<int64_t> out;
    if (!attributes.has(name)) {
      for (size_t i = 0; i < rank; ++i) out.push_back(static_cast<int64_t>(i));
      return out;
    }
    const int64_t r = static_cast<int64_t>(rank);
    for (int64_t a : attributes.get<std::vector<int64_t>>(name)) {
      // A scalar has the axes 0 and -1 in name only: reducing over them changes nothing.
      if (rank == 0 && op.category == Category::reduce && (a == 0 || a == -1)) continue;
      if (a < -r || a >= r) return attribute_error(name, fmt::format("{} is outside -{}..{}", a, r, r - 1));
      out.push_back(a < 0 ? a + r : a);
    }
    std::sort(out.begin(), out.end());
    if (std::adjacent_find(out.begin(), out.end()) != out.end()) return attribute_error(name, "names an axis twice");
    return out;
  }

  Result<Types> leaf() {
    Type t{DType::f32, {}};
    if (const Attribute* d = attributes.find("dtype")) t.dtype = std::get<DType>(*d);
    if (op.op != Op::extent)
      if (const Attribute* s = attributes.find("shape")) t.shape = std::get<std::vector<sym::Expr>>(*s);
    if (auto bad = check_extents(t.shape)) return *bad;
    if (op.op == Op::iota) {
      TRY_ASSIGN([[maybe_unused]] const int64_t a, axis("axis", t.shape.size()));
      if (t.dtype == DType::boolean) return dtype_error("counts cannot be bool");
    }
    if (op.op == Op::extent && attributes.get<std::vector<sym::Expr>>("of").size() != 1)
      return attribute_error("of", "takes one extent");
    if (op.op == Op::constant) {
      const auto& data = attributes.get<ConstantData>("data");
      const auto elements = syms.as_constant(syms.product(t.shape));
      if (!elements) return shape_error("a constant needs constant extents");
      if (data.kind == ConstantData::Kind::bytes &&
          (!data.bytes || static_cast<int64_t>(data.bytes->size()) != *elements * byte_size(t.dtype)))
        return attribute_error("data", fmt::format("has {} bytes, {} needs {}", data.bytes ? data.bytes->size() : 0,
                                                   show(t), *elements * byte_size(t.dtype)));
    }
    return Types{t};
  }

  // Common shape of operands aligned at the end; an extent 1 stretches.
  Result<Shape> broadcast_shape(std::span<const Type> types) {
    size_t rank = 0;
    for (const Type& t : types) rank = std::max(rank, t.shape.size());
    Shape out(rank, syms.constant(1));
    for (const Type& t : types) {
      const size_t skip = rank - t.shape.size();
      for (size_t i = 0; i < t.shape.size(); ++i) {
        sym::Expr& o = out[skip + i];
        const sym::Expr e = t.shape[i];
        if (is_one(e) || e == o) continue;
        if (!is_one(o))
          return shape_error(
              fmt::format("{} and {} do not broadcast (axis {} of the result)", show(o), show(e), skip + i));
        o = e;
      }
    }
    return out;
  }

  Result<Types> elementwise() {
    const FnInfo& fn = info(scalar_fn(op.op));
    TRY_ASSIGN(Shape shape, broadcast_shape(in));
    const size_t first = fn.rule == FnRule::select ? 1 : 0;
    const DType d = in[first].dtype;
    if (first && in[0].dtype != DType::boolean) return dtype_error("the condition must be bool");
    for (size_t i = first; i < in.size(); ++i)
      if (in[i].dtype != d) return dtype_error(fmt::format("operands of {} and {}", name(d), name(in[i].dtype)));
    switch (fn.rule) {
      case FnRule::arith:
        if (d == DType::boolean && fn.fn != Fn::max && fn.fn != Fn::min && fn.fn != Fn::mul)
          return dtype_error("bool has no arithmetic");
        break;
      case FnRule::real:
      case FnRule::real_test:
        if (!is_real(d)) return dtype_error(fmt::format("needs a real dtype, not {}", name(d)));
        break;
      case FnRule::logic:
        if (d != DType::boolean) return dtype_error(fmt::format("needs bool, not {}", name(d)));
        break;
      case FnRule::compare:
      case FnRule::select: break;
    }
    return Types{{result_dtype(fn.fn, d), std::move(shape)}};
  }

  Result<Types> contract() {
    TRY_ASSIGN(const ContractSpec spec, parse_contract_spec(attributes.get<std::string>("spec")));
    if (spec.operands.size() != in.size())
      return attribute_error("spec",
                             fmt::format("describes {} operands, {} were given", spec.operands.size(), in.size()));
    if (in[0].dtype != in[1].dtype)
      return dtype_error(fmt::format("operands of {} and {}", name(in[0].dtype), name(in[1].dtype)));
    if (in[0].dtype == DType::boolean) return dtype_error("bool has no arithmetic");
    TRY_ASSIGN(auto extents, index_extents({spec.operands[0], spec.operands[1]}, in));
    Shape shape;
    for (const auto& n : spec.result) shape.push_back(extents.at(n));
    return Types{{in[0].dtype, std::move(shape)}};
  }

  // The extent of every named index; an operand's axis of extent 1 broadcasts.
  Result<std::map<std::string, sym::Expr>> index_extents(const std::vector<IndexNames>& names,
                                                         std::span<const Type> types) {
    std::map<std::string, sym::Expr> extents;
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i].size() != types[i].shape.size())
        return shape_error(fmt::format("operand {} has {} axes, its spec `{}` names {}", i, types[i].shape.size(),
                                       join(names[i]), names[i].size()));
      for (size_t a = 0; a < names[i].size(); ++a) {
        const sym::Expr e = types[i].shape[a];
        auto [it, fresh] = extents.emplace(names[i][a], e);
        if (fresh || it->second == e || is_one(e)) continue;
        if (!is_one(it->second))
          return shape_error(fmt::format("the index `{}` is {} in one operand and {} in another", names[i][a],
                                         show(it->second), show(e)));
        it->second = e;
      }
    }
    return extents;
  }

  Result<Types> reduce() {
    const size_t rank = in[0].shape.size();
    TRY_ASSIGN(const auto which, axes("axes", rank));
    const bool keep = attributes.get_or("keepdims", false);
    DType d = in[0].dtype;
    if (op.op == Op::any || op.op == Op::all) {
      if (d != DType::boolean) return dtype_error("needs bool");
    } else if (d == DType::boolean && (op.op == Op::sum || op.op == Op::prod)) {
      return dtype_error("bool has no arithmetic (cast it first)");
    } else if ((op.op == Op::mean || op.op == Op::moments) && !is_real(d)) {
      return dtype_error(fmt::format("needs a real dtype, not {}", name(d)));
    }
    Shape shape;
    for (size_t i = 0; i < rank; ++i) {
      const bool reduced = std::binary_search(which.begin(), which.end(), static_cast<int64_t>(i));
      if (!reduced)
        shape.push_back(in[0].shape[i]);
      else if (keep)
        shape.push_back(syms.constant(1));
      if (reduced && (op.op == Op::amax || op.op == Op::amin) && !is_real(d) && syms.is(in[0].shape[i], 0))
        return shape_error("an integer extremum over an empty axis has no value");
    }
    Types out{{d, shape}};
    if (op.op == Op::moments) out.push_back(out[0]);
    return out;
  }

  Result<Types> view() {
    const Type& x = in[0];
    const size_t rank = x.shape.size();
    auto one = [&](Shape s) -> Result<Types> {
      if (auto bad = check_extents(s)) return *bad;
      return Types{{x.dtype, std::move(s)}};
    };
    switch (op.op) {
      case Op::reshape: {
        const Shape& s = attributes.get<std::vector<sym::Expr>>("shape");
        if (auto bad = check_extents(s)) return *bad;
        if (syms.product(s) != syms.product(x.shape))
          return shape_error(
              fmt::format("{} elements cannot become {}", show(syms.product(x.shape)), show(syms.product(s))));
        return one(s);
      }
      case Op::transpose: {
        const auto& perm = attributes.get<std::vector<int64_t>>("perm");
        std::vector<bool> seen(rank);
        if (perm.size() != rank)
          return attribute_error("perm", fmt::format("has {} entries for {} axes", perm.size(), rank));
        Shape s;
        for (int64_t p : perm) {
          if (p < 0 || p >= static_cast<int64_t>(rank) || seen[p]) return attribute_error("perm", "is no permutation");
          seen[p] = true;
          s.push_back(x.shape[p]);
        }
        return one(s);
      }
      case Op::broadcast: {
        const Shape& s = attributes.get<std::vector<sym::Expr>>("shape");
        if (s.size() < rank) return shape_error("a broadcast cannot drop axes");
        for (size_t i = 0; i < rank; ++i) {
          const sym::Expr from = x.shape[i], to = s[s.size() - rank + i];
          if (!is_one(from) && from != to)
            return shape_error(fmt::format("the extent {} cannot become {}", show(from), show(to)));
        }
        return one(s);
      }
      case Op::squeeze: {
        TRY_ASSIGN(const auto which, axes("axes", rank));
        Shape s;
        for (size_t i = 0; i < rank; ++i) {
          if (!std::binary_search(which.begin(), which.end(), static_cast<int64_t>(i)))
            s.push_back(x.shape[i]);
          else if (!is_one(x.shape[i]))
            return shape_error(fmt::format("axis {} has extent {}, not 1", i, show(x.shape[i])));
        }
        return one(s);
      }
      case Op::unsqueeze: {
        const size_t added = attributes.get<std::vector<int64_t>>("axes").size();
        if (added > kMaxRank) return attribute_error("axes", "has too many entries");
        TRY_ASSIGN(const auto which, axes("axes", rank + added));
        Shape s;
        size_t next = 0;
        for (size_t i = 0; i < rank + added; ++i)
          s.push_back(std::binary_search(which.begin(), which.end(), static_cast<int64_t>(i)) ? syms.constant(1)
                                                                                              : x.shape[next++]);
        return one(s);
      }
      case Op::slice: return slice();
      case Op::pad: {
        const auto& low = attributes.get<std::vector<int64_t>>("low");
        const auto& high = attributes.get<std::vector<int64_t>>("high");
        if (low.size() != rank || high.size() != rank)
          return attribute_error("low", "and `high` need one entry an axis");
        Shape s;
        for (size_t i = 0; i < rank; ++i) {
          if (std::abs(low[i]) > kMaxElements || std::abs(high[i]) > kMaxElements)
            return attribute_error("low", "is too large");
          s.push_back(syms.add(x.shape[i], low[i] + high[i]));
        }
        return one(s);
      }
      case Op::concat: {
        TRY_ASSIGN(const int64_t a, axis("axis", rank));
        Shape s = x.shape;
        for (size_t i = 1; i < in.size(); ++i) {
          if (in[i].shape.size() != rank) return shape_error("the operands differ in rank");
          if (in[i].dtype != x.dtype) return dtype_error("the operands differ in dtype");
          for (size_t k = 0; k < rank; ++k) {
            if (static_cast<int64_t>(k) == a)
              s[k] = syms.add(s[k], in[i].shape[k]);
            else if (in[i].shape[k] != s[k])
              return shape_error(fmt::format("axis {} is {} and {}", k, show(s[k]), show(in[i].shape[k])));
          }
        }
        return one(s);
      }
      case Op::split: {
        TRY_ASSIGN(const int64_t a, axis("axis", rank));
        const auto& sizes = attributes.get<std::vector<sym::Expr>>("sizes");
        if (sizes.empty()) return attribute_error("sizes", "is empty");
        sym::Expr sum = syms.constant(0);
        Types out;
        for (sym::Expr e : sizes) {
          sum = syms.add(sum, e);
          Shape s = x.shape;
          s[a] = e;
          if (auto bad = check_extents(s)) return *bad;
          out.push_back({x.dtype, std::move(s)});
        }
        if (sum != x.shape[a])
          return attribute_error("sizes", fmt::format("sum to {}, the axis has {}", show(sum), show(x.shape[a])));
        return out;
      }
      case Op::flip: {
        TRY_ASSIGN([[maybe_unused]] const auto which, axes("axes", rank));
        return one(x.shape);
      }
      case Op::window: return window();
      default: CHECK(false, "{}", op.name);
    }
  }

  // Half-open [start, stop) with a step; bounds are already clamped to the axis (negative steps run from start down to
  // stop + 1, and stop may be -1).
  Result<Types> slice() {
    const Type& x = in[0];
    TRY_ASSIGN(const auto sorted, axes("axes", x.shape.size()));
    const auto& which = attributes.get<std::vector<int64_t>>("axes");
    const auto& starts = attributes.get<std::vector<sym::Expr>>("starts");
    const auto& stops = attributes.get<std::vector<sym::Expr>>("stops");
    const auto steps = attributes.get_or("steps", std::vector<int64_t>(which.size(), 1));
    if (starts.size() != which.size() || stops.size() != which.size() || steps.size() != which.size())
      return attribute_error("axes", "`starts`, `stops` and `steps` differ in length");
    Shape s = x.shape;
    for (size_t i = 0; i < which.size(); ++i) {
      const size_t a = static_cast<size_t>(which[i] < 0 ? which[i] + static_cast<int64_t>(x.shape.size()) : which[i]);
      const int64_t step = steps[i];
      if (step == 0 || step == INT64_MIN) return attribute_error("steps", fmt::format("{} is no step", step));
      const sym::Expr n = x.shape[a];
      const bool up = step > 0;
      // Up: 0 <= start <= n and stop <= n. Down: start <= n - 1 and stop >= -1.
      const sym::Expr low = syms.constant(up ? 0 : -1), high = up ? n : syms.sub(n, syms.constant(1));
      for (sym::Expr e : {starts[i], stops[i]})
        if (syms.less(e, low) == sym::Proof::yes || syms.less(high, e) == sym::Proof::yes)
          return shape_error(
              fmt::format("the bound {} is outside {}..{} of axis {}", show(e), show(low), show(high), a));
      const sym::Expr span = up ? syms.sub(stops[i], starts[i]) : syms.sub(starts[i], stops[i]);
      const sym::Expr count = syms.ceildiv(span, syms.constant(up ? step : -step));
      s[a] = syms.max(count, syms.constant(0));
    }
    return Types{{x.dtype, std::move(s)}};
  }

  // [.., n, ..] -> [.., positions, .., size]: the window axes come last, in the order of `axes`.
  Result<Types> window() {
    const Type& x = in[0];
    TRY_ASSIGN(const auto sorted, axes("axes", x.shape.size()));
    const auto& which = attributes.get<std::vector<int64_t>>("axes");
    const size_t n = which.size();
    const auto& sizes = attributes.get<std::vector<int64_t>>("sizes");
    const auto ones = std::vector<int64_t>(n, 1), zeros = std::vector<int64_t>(n, 0);
    const auto strides = attributes.get_or("strides", ones), dilations = attributes.get_or("dilations", ones);
    const auto low = attributes.get_or("low", zeros), high = attributes.get_or("high", zeros);
    const bool ceil = attributes.get_or("ceil", false);
    for (const auto* list : {&sizes, &strides, &dilations, &low, &high})
      if (list->size() != n) return attribute_error("axes", "the window's attributes differ in length");
    Shape s = x.shape;
    for (size_t i = 0; i < n; ++i) {
      const size_t a = static_cast<size_t>(which[i] < 0 ? which[i] + static_cast<int64_t>(x.shape.size()) : which[i]);
      constexpr int64_t kMost = int64_t{1} << 31;
      if (sizes[i] < 1 || strides[i] < 1 || dilations[i] < 1 || low[i] < 0 || high[i] < 0 || sizes[i] > kMost ||
          strides[i] > kMost || dilations[i] > kMost || low[i] > kMost || high[i] > kMost)
        return attribute_error("sizes", "and the other attributes must be positive and below 2^31 (padding may be 0)");
      const int64_t reach = dilations[i] * (sizes[i] - 1) + 1;
      const sym::Expr span = syms.add(x.shape[a], low[i] + high[i] - reach);
      if (syms.bounds(span).hi < 0)
        return shape_error(fmt::format("the window of {} is larger than the padded axis {}", reach, a));
      const sym::Expr stride = syms.constant(strides[i]);
      sym::Expr count = syms.add(ceil ? syms.ceildiv(span, stride) : syms.floordiv(span, stride), 1);
      if (ceil) {
        // The last window must start inside the input or its low padding.
        const sym::Expr inside = syms.add(syms.floordiv(syms.add(x.shape[a], low[i] - 1), stride), 1);
        count = syms.min(count, inside);
      }
      s[a] = syms.max(count, syms.constant(0));
    }
    for (int64_t size : sizes) s.push_back(syms.constant(size));
    return Types{{x.dtype, std::move(s)}};
  }

  Result<Types> gather() {
    const Type& x = in[0];
    if (!is_integer(in[1].dtype)) return dtype_error("the indices must be integers");
    TRY_ASSIGN(const int64_t a, axis("axis", x.shape.size()));
    Shape s(x.shape.begin(), x.shape.begin() + a);
    s.insert(s.end(), in[1].shape.begin(), in[1].shape.end());
    s.insert(s.end(), x.shape.begin() + a + 1, x.shape.end());
    return Types{{x.dtype, std::move(s)}};
  }

  Result<Types> scan() {
    TRY_ASSIGN([[maybe_unused]] const int64_t a, axis("axis", in[0].shape.size()));
    if (in[0].dtype == DType::boolean) return dtype_error("bool has no arithmetic (cast it first)");
    return Types{in[0]};
  }

  Result<Types> select() {
    TRY_ASSIGN(const int64_t a, axis("axis", in[0].shape.size()));
    Shape s = in[0].shape;
    if (op.op == Op::topk) {
      const int64_t k = attributes.get<int64_t>("k");
      if (k < 0 || syms.less(s[a], syms.constant(k)) == sym::Proof::yes)
        return attribute_error("k", fmt::format("{} is outside 0..{}", k, show(s[a])));
      s[a] = syms.constant(k);
      return Types{{in[0].dtype, s}, {DType::i64, s}};
    }
    if (syms.is(s[a], 0)) return shape_error("an empty axis has no extremum");
    if (attributes.get_or("keepdims", false))
      s[a] = syms.constant(1);
    else
      s.erase(s.begin() + a);
    return Types{{DType::i64, s}};
  }

  std::optional<Diagnostic> check_policy() const {
    const std::string empty = attributes.get_or("empty", std::string("nan"));
    if (empty != "nan" && empty != "zero") return attribute_error("empty", "is \"nan\" or \"zero\"");
    return std::nullopt;
  }

  Result<Types> composite() {
    const Type& x = in[0];
    const size_t rank = x.shape.size();
    for (size_t i = 0; i < in.size(); ++i) {
      const bool integers = (op.op == Op::ragged || op.op == Op::ragged_pack || op.op == Op::paged) && i > 0;
      const bool mask = op.op == Op::sdpa && i == 3;
      if (integers ? !is_integer(in[i].dtype)
          : mask   ? is_integer(in[i].dtype)
                   : op.op != Op::ragged && op.op != Op::paged && op.op != Op::ragged_pack && !is_real(in[i].dtype))
        return dtype_error(fmt::format("operand {} cannot be {}", i, name(in[i].dtype)));
    }
    switch (op.op) {
      case Op::softmax:
      case Op::log_softmax: {
        if (auto bad = check_policy()) return *bad;
        TRY_ASSIGN([[maybe_unused]] const int64_t a, axis("axis", rank));
        return Types{x};
      }
      case Op::logsumexp: {
        TRY_ASSIGN(const auto which, axes("axes", rank));
        Shape s;
        for (size_t i = 0; i < rank; ++i) {
          if (!std::binary_search(which.begin(), which.end(), static_cast<int64_t>(i)))
            s.push_back(x.shape[i]);
          else if (attributes.get_or("keepdims", false))
            s.push_back(syms.constant(1));
        }
        return Types{{x.dtype, std::move(s)}};
      }
      case Op::layer_norm:
      case Op::rms_norm: {
        TRY_ASSIGN([[maybe_unused]] const auto which, axes("axes", rank));
        return scaled_like_input();
      }
      case Op::group_norm: {
        const int64_t groups = attributes.get<int64_t>("groups");
        if (rank < 2) return shape_error("needs a batch and a channel axis");
        if (auto bad = check_inner({}, rank + 1)) return *bad;
        if (groups < 1 || syms.divides(groups, x.shape[1]) != sym::Proof::yes)
          return attribute_error("groups", fmt::format("{} does not divide the {} channels", groups, show(x.shape[1])));
        for (size_t i = 1; i < in.size(); ++i)
          if (in[i].shape != Shape{x.shape[1]}) return shape_error("scale and bias need one entry a channel");
        return Types{x};
      }
      case Op::sdpa: return sdpa();
      case Op::ragged: {
        // data [rows, ...], indptr [b + 1] -> [b, max, ...]
        if (rank < 1 || in[1].shape.size() != 1) return shape_error("needs data [rows, ...] and indptr [b + 1]");
        const auto& max = attributes.get<std::vector<sym::Expr>>("max");
        if (max.size() != 1) return attribute_error("max", "takes one extent");
        Shape s{syms.sub(in[1].shape[0], syms.constant(1)), max[0]};
        if (auto bad = check_inner(s, 2)) return *bad;
        s.insert(s.end(), x.shape.begin() + 1, x.shape.end());
        if (auto bad = check_extents(s)) return *bad;
        return Types{{x.dtype, std::move(s)}};
      }
      case Op::ragged_pack: {
        // padded [b, max, ...], indptr [b + 1] -> [rows, ...]
        if (rank < 2 || in[1].shape.size() != 1) return shape_error("needs data [b, max, ...] and indptr [b + 1]");
        if (syms.add(x.shape[0], 1) != in[1].shape[0])
          return shape_error("indptr needs one entry more than there are requests");
        const auto& rows = attributes.get<std::vector<sym::Expr>>("rows");
        if (rows.size() != 1) return attribute_error("rows", "takes one extent");
        if (auto bad = check_inner({rows[0], x.shape[0]}, 2)) return *bad;
        Shape s{rows[0]};
        s.insert(s.end(), x.shape.begin() + 2, x.shape.end());
        if (auto bad = check_extents(s)) return *bad;
        return Types{{x.dtype, std::move(s)}};
      }
      case Op::paged: {
        // cache [slots, ...], indptr [b + 1], indices [pages], lengths [b] -> [b, max, ...]
        if (rank < 1 || in[1].shape.size() != 1 || in[2].shape.size() != 1 || in[3].shape.size() != 1)
          return shape_error("needs cache [slots, ...], indptr [b + 1], indices [pages], lengths [b]");
        if (syms.add(in[3].shape[0], 1) != in[1].shape[0])
          return shape_error("indptr needs one entry more than lengths");
        if (attributes.get<int64_t>("page") < 1) return attribute_error("page", "is not positive");
        const auto& max = attributes.get<std::vector<sym::Expr>>("max");
        if (max.size() != 1) return attribute_error("max", "takes one extent");
        Shape s{in[3].shape[0], max[0]};
        if (auto bad = check_inner(s, 2)) return *bad;
        s.insert(s.end(), x.shape.begin() + 1, x.shape.end());
        if (auto bad = check_extents(s)) return *bad;
        return Types{{x.dtype, std::move(s)}};
      }
      default: CHECK(false, "{}", op.name);
    }
  }

  // Scale and bias that broadcast to the input without enlarging it.
  Result<Types> scaled_like_input() {
    TRY_ASSIGN(const Shape s, broadcast_shape(in));
    if (s != in[0].shape) return shape_error("scale or bias is larger than the input");
    return Types{in[0]};
  }

  // q [.., hq, s, d], k [.., hk, l, d], v [.., hk, l, e]; hk divides hq; mask broadcasts to [.., hq, s, l].
  Result<Types> sdpa() {
    if (auto bad = check_policy()) return *bad;
    const std::string causal = attributes.get_or("causal", std::string("none"));
    if (causal != "none" && causal != "start" && causal != "end")
      return attribute_error("causal", "is \"none\", \"start\" or \"end\"");
    const size_t rank = in[0].shape.size();
    if (rank < 2 || in[1].shape.size() != rank || in[2].shape.size() != rank)
      return shape_error("query, key and value need the same rank, at least 2");
    const Shape &q = in[0].shape, &k = in[1].shape, &v = in[2].shape;
    if (in[0].dtype != in[1].dtype || in[0].dtype != in[2].dtype)
      return dtype_error("query, key and value differ in dtype");
    if (q[rank - 1] != k[rank - 1])
      return shape_error(fmt::format("query width {} and key width {}", show(q[rank - 1]), show(k[rank - 1])));
    if (k[rank - 2] != v[rank - 2])
      return shape_error(fmt::format("{} keys and {} values", show(k[rank - 2]), show(v[rank - 2])));
    for (size_t i = 0; i + 2 < rank; ++i) {
      if (k[i] != v[i]) return shape_error("key and value differ in a batch axis");
      if (q[i] == k[i]) continue;
      const auto hq = syms.as_constant(q[i]), hk = syms.as_constant(k[i]);
      if (i + 3 != rank || !hq || !hk || *hk < 1 || *hq % *hk != 0)
        return shape_error(fmt::format("axis {} of query and key: {} and {}", i, show(q[i]), show(k[i])));
    }
    Shape scores(q.begin(), q.end() - 1);
    scores.push_back(k[rank - 2]);
    if (auto bad = check_inner(scores, rank + 1)) return *bad;
    if (in.size() == 4) {
      const std::vector<Type> pair = {{in[3].dtype, scores}, in[3]};
      TRY_ASSIGN(const Shape s, broadcast_shape(pair));
      if (s != scores) return shape_error("the mask is larger than the scores");
    }
    Shape out(q.begin(), q.end() - 1);
    const Shape rows = out;
    out.push_back(v[rank - 1]);
    Types types{{in[0].dtype, std::move(out)}};
    if (attributes.get_or("lse", false)) types.push_back({compute_type(in[0].dtype), rows});
    return types;
  }

  Result<Types> dialect() {
    if (op.op == Op::unscale) {
      if (!is_real(in[0].dtype) || in[0].dtype != in[1].dtype)
        return dtype_error("needs two operands of one real dtype");
      TRY_ASSIGN(Shape s, broadcast_shape(in));
      return Types{{in[0].dtype, std::move(s)}};
    }
    TRY_ASSIGN(const ScaledReduceSpec spec, parse_scaled_reduce_spec(attributes.get<std::string>("spec")));
    std::vector<IndexNames> names = {spec.scores};
    for (const auto& s : spec.sums)
      if (s.has_factor) names.push_back(s.factor);
    if (names.size() != in.size())
      return attribute_error("spec", fmt::format("describes {} operands, {} were given", names.size(), in.size()));
    for (const Type& t : in)
      if (!is_real(t.dtype)) return dtype_error("needs real dtypes");
    TRY_ASSIGN(const auto extents, index_extents(names, in));
    auto shape_of = [&](const IndexNames& indices) {
      Shape s;
      for (const auto& n : indices) s.push_back(extents.at(n));
      return s;
    };
    if (auto bad = check_inner(shape_of(spec.scores), spec.scores.size())) return *bad;
    const DType d = compute_type(in[0].dtype);
    Types out{{d, shape_of(spec.maximum)}};
    for (const auto& s : spec.sums) out.push_back({d, shape_of(s.result)});
    return out;
  }

  Result<Types> run() {
    switch (op.category) {
      case Category::leaf: return leaf();
      case Category::elementwise: return elementwise();
      case Category::cast: return Types{{attributes.get<DType>("dtype"), in[0].shape}};
      case Category::contract: return contract();
      case Category::reduce: return reduce();
      case Category::view: return view();
      case Category::gather: return gather();
      case Category::scan: return scan();
      case Category::select: return select();
      case Category::composite: return composite();
      case Category::dialect: return dialect();
    }
    CHECK(false, "{}", op.name);
  }
};

}  // namespace

Result<std::vector<Type>> infer(sym::Pool& syms, Op op, std::span<const Type> operands, const Attributes& attributes) {
  return Inference{syms, info(op), operands, attributes}.run();
}

}  // namespace cleave::graph
