#include "check/exact.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <optional>

#include "base/rng.hpp"
#include "eval/graph_eval.hpp"
#include "graph/expand.hpp"
#include "graph/spec.hpp"

namespace cleave::check {

using graph::Category;
using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Op;
using graph::ValueId;

namespace {

constexpr int kLevels = 3, kTop = kLevels - 1;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// An operator, or a value, that has no exact meaning here.
struct NoSay {};

uint64_t mul_mod(uint64_t a, uint64_t b, uint64_t p) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b % p);
}
uint64_t pow_mod(uint64_t a, uint64_t e, uint64_t p) {
  uint64_t out = 1;
  for (a %= p; e; e >>= 1, a = mul_mod(a, a, p))
    if (e & 1) out = mul_mod(out, a, p);
  return out;
}
bool prime(uint64_t n) {
  for (uint64_t p : {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37})
    if (n % p == 0) return n == p;
  uint64_t d = n - 1;
  int s = 0;
  for (; d % 2 == 0; d /= 2) ++s;
  for (uint64_t a : {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37}) {
    uint64_t x = pow_mod(a, d, n);
    bool composite = x != 1 && x != n - 1;
    for (int r = 1; r < s && composite; ++r) {
      x = mul_mod(x, x, n);
      composite = x != n - 1;
    }
    if (composite) return false;
  }
  return true;
}
uint64_t hash(uint64_t a, uint64_t b) { return Rng(a * 0x9e3779b97f4a7c15ULL ^ (b + 0x2545f4914f6cdd1dULL)).next(); }

struct Field {
  std::array<uint64_t, kLevels> p{}, generator{};
  explicit Field(uint64_t seed) {
    Rng rng(seed);
    do p[0] = (uint64_t{1} << 30) + rng.below(uint64_t{1} << 29);
    while (!prime(p[0]));
    for (int l = 1; l < kLevels; ++l)
      for (uint64_t k = 2 + 2 * rng.below(512);; k += 2)
        if (prime(k * p[l - 1] + 1)) {
          p[l] = k * p[l - 1] + 1;
          break;
        }
    for (int l = 1; l < kLevels; ++l) do
        generator[l] = pow_mod(2 + rng.below(p[l] - 3), (p[l] - 1) / p[l - 1], p[l]);
      while (generator[l] == 1);
  }
  uint64_t from(int l, double v) const {
    int e;
    const auto m = static_cast<int64_t>(std::ldexp(std::frexp(v, &e), 53));
    e -= 53;
    const auto q = static_cast<int64_t>(p[l]);
    const int64_t r = m % q;
    const uint64_t scale = pow_mod(2, static_cast<uint64_t>(std::abs(e)), p[l]);
    return mul_mod(static_cast<uint64_t>(r < 0 ? r + q : r), e < 0 ? pow_mod(scale, p[l] - 2, p[l]) : scale, p[l]);
  }
};

struct Array {
  std::vector<int64_t> extents;
  std::vector<int64_t> numbers;  // of integers and bools: the numbers themselves
  std::array<std::vector<uint64_t>, kLevels> levels;
  int low = 0;                 // residues are known from this level up
  std::vector<uint8_t> flags;  // which elements are no numbers; empty: none
  bool random = false;         // it hangs on random functions, so that only equality means something

  enum : uint8_t { number, lowest, undefined };  // lowest: -inf; undefined: NaN, inf, or not known to be a number
  uint8_t flag(size_t i) const { return flags.empty() ? number : flags[i]; }
  bool is_lowest(size_t i) const { return flag(i) == lowest; }
  void mark(size_t i, size_t size, uint8_t f) {
    if (f == number) return;
    if (flags.empty()) flags.resize(size);
    flags[i] = std::max(flags[i], f);
  }
};

class Evaluation {
 public:
  Evaluation(const Graph& g, const Field& field, uint64_t seed, int64_t max_elements)
      : g_(g), field_(field), seed_(seed), left_(max_elements), values_(g.value_count()) {}

  std::vector<Array> run() {
    for (NodeId id : g_.node_ids()) node(g_.node(id));
    std::vector<Array> out;
    for (const auto& o : g_.outputs()) out.push_back(values_[o.value.index]);
    return out;
  }

 private:
  static size_t count(const std::vector<int64_t>& extents) { return static_cast<size_t>(oracle::product(extents)); }
  const Array& in(const Node& n, size_t k) const { return values_[n.operands[k].index]; }
  bool real(ValueId v) const { return is_real(g_.type(v).dtype); }

  Array make(ValueId v) {
    Array a;
    a.extents = g_.extents(v);
    left_ -= oracle::product(a.extents);
    if (left_ < 0) throw NoSay{};
    return a;
  }
  // Positions of an operand's elements along those of a result whose axes it aligns with at the end.
  static std::vector<size_t> along(const std::vector<int64_t>& result, const std::vector<int64_t>& operand) {
    const auto strides = oracle::dense_strides(operand);
    std::vector<size_t> out(count(result));
    std::vector<int64_t> at(result.size(), 0);
    for (size_t& o : out) {
      int64_t offset = 0;
      for (size_t k = 0; k < operand.size(); ++k)
        if (operand[k] != 1) offset += at[result.size() - operand.size() + k] * strides[k];
      o = static_cast<size_t>(offset);
      for (size_t k = result.size(); k-- > 0;) {
        if (++at[k] < result[k]) break;
        at[k] = 0;
      }
    }
    return out;
  }

  void node(const Node& n) {
    const ValueId v = n.results[0];
    switch (info(n.op).category) {
      case Category::leaf: values_[v.index] = leaf(n, v); return;
      case Category::elementwise: values_[v.index] = elementwise(n, v); return;
      case Category::cast: values_[v.index] = cast(n, v); return;
      case Category::contract: values_[v.index] = contract(n, v); return;
      case Category::reduce: reduce(n); return;
      case Category::view:
        if (n.op == Op::pad || n.op == Op::window)
          other(n);
        else
          view(n);
        return;
      case Category::gather: view(n); return;
      default: other(n); return;
    }
  }

  // Operators without algebra: what they make of integers the interpreter says; of reals, a random function of all
  // their operands.
  void other(const Node& n) {
    const auto integer = [&](ValueId v) { return !real(v); };
    if (std::all_of(n.operands.begin(), n.operands.end(), integer) &&
        std::all_of(n.results.begin(), n.results.end(), integer)) {
      std::vector<oracle::Tensor> inputs;
      for (size_t k = 0; k < n.operands.size(); ++k) {
        inputs.push_back(oracle::zeros(g_.type(n.operands[k]).dtype, in(n, k).extents));
        inputs.back().ints = in(n, k).numbers;
      }
      const auto results = alone(n, inputs);
      for (size_t i = 0; i < n.results.size(); ++i) {
        Array out = make(n.results[i]);
        out.numbers = results[i].ints;
        for (size_t k = 0; k < n.operands.size(); ++k) out.random = out.random || in(n, k).random;
        values_[n.results[i].index] = std::move(out);
      }
      return;
    }
    uint64_t h = hash(seed_, static_cast<uint64_t>(n.op) + 0x1000);
    for (const auto& [name, value] : n.attributes.items())
      std::visit([&](const auto& a) { h = hash(h, attribute(a)); }, value);
    for (size_t k = 0; k < n.operands.size(); ++k) {
      const Array& x = in(n, k);
      for (uint64_t v : x.levels[kTop]) h = hash(h, v);
      for (int64_t v : x.numbers) h = hash(h, static_cast<uint64_t>(v));
      for (uint8_t f : x.flags) {
        if (f == Array::undefined) throw NoSay{};
        h = hash(h, f);
      }
    }
    for (size_t i = 0; i < n.results.size(); ++i) {
      if (!real(n.results[i])) throw NoSay{};  // positions, which something may read by
      Array out = make(n.results[i]);
      out.random = true;
      const size_t size = count(out.extents);
      for (size_t e = 0; e < size; ++e)
        for (int l = 0; l < kLevels; ++l)
          out.levels[l].push_back(hash(hash(h, 16 * e + i), static_cast<uint64_t>(l)) % field_.p[l]);
      values_[n.results[i].index] = std::move(out);
    }
  }

  uint64_t attribute(const std::vector<int64_t>& list) const {
    uint64_t h = list.size();
    for (int64_t x : list) h = hash(h, static_cast<uint64_t>(x));
    return h;
  }
  uint64_t attribute(const std::vector<sym::Expr>& list) const {
    uint64_t h = list.size();
    for (sym::Expr e : list) h = hash(h, static_cast<uint64_t>(g_.syms().as_constant(e).value_or(-1)));
    return h;
  }
  uint64_t attribute(const std::string& text) const { return std::hash<std::string>()(text); }
  uint64_t attribute(const graph::ConstantData&) const { throw NoSay{}; }
  uint64_t attribute(double x) const { return std::bit_cast<uint64_t>(x); }
  template <class T>
    requires std::is_integral_v<T> || std::is_enum_v<T>
  uint64_t attribute(T x) const {
    return static_cast<uint64_t>(x);
  }

  // The results of one node, by the interpreter.
  std::vector<oracle::Tensor> alone(const Node& n, const std::vector<oracle::Tensor>& inputs) {
    graph::Builder b("alone", g_.shared_syms());
    std::vector<ValueId> operands;
    for (size_t k = 0; k < n.operands.size(); ++k)
      operands.push_back(b.input(fmt::format("x{}", k), inputs[k].dtype, g_.type(n.operands[k]).shape));
    const auto results = b.make_all(n.op, operands, n.attributes);
    for (size_t i = 0; i < results.size(); ++i) b.output(fmt::format("y{}", i), results[i]);
    auto out = oracle::evaluate(b.take(), inputs);
    if (!out.ok()) throw NoSay{};
    return std::move(*out);
  }

  Array leaf(const Node& n, ValueId v) {
    Array a = make(v);
    const size_t size = count(a.extents);
    // As a rounding is no part of the value, a number is what is written, in any real type.
    if (n.op == Op::literal && real(v)) {
      const double value = n.attributes.get<double>("value");
      const DType dtype = g_.type(v).dtype;
      const bool half = dtype == DType::f16 || dtype == DType::bf16;
      return from_reals(std::move(a), {half ? round_to(dtype, value) : value});
    }
    if (n.op == Op::literal || n.op == Op::extent || n.op == Op::iota) {
      // What these are is the interpreter's business.
      graph::Builder b("leaf", g_.shared_syms());
      b.output("x", b.make(n.op, {}, n.attributes));
      const auto x = oracle::evaluate(b.take(), std::span<const oracle::Tensor>{});
      if (!x.ok()) throw NoSay{};
      return from_tensor(v, std::move(a), (*x)[0]);
    }
    if (n.op == Op::constant) {
      const auto& data = n.attributes.get<graph::ConstantData>("data");
      const auto bytes = graph::materialise(data, g_.type(v).dtype, static_cast<int64_t>(size));
      const oracle::Tensor t = oracle::from_dense(g_.type(v).dtype, a.extents, bytes.data());
      return from_tensor(v, std::move(a), t);
    }
    uint64_t key = seed_;
    for (char c : g_.value(v).name) key = hash(key, static_cast<unsigned char>(c));
    Rng rng(key);
    if (!real(v)) {
      const DType dtype = g_.type(v).dtype;
      for (size_t i = 0; i < size; ++i)
        a.numbers.push_back(dtype == DType::boolean ? static_cast<int64_t>(rng.below(2))
                                                    : wrap_to(dtype, static_cast<int64_t>(rng.below(7)) - 3));
      return a;
    }
    for (int l = 0; l < kLevels; ++l)
      for (size_t i = 0; i < size; ++i) a.levels[l].push_back(rng.below(field_.p[l]));
    return a;
  }

  Array from_tensor(ValueId v, Array a, const oracle::Tensor& t) {
    if (real(v)) return from_reals(std::move(a), t.reals);
    a.numbers = t.ints;
    return a;
  }

  Array from_reals(Array a, const std::vector<double>& numbers) {
    for (size_t i = 0; i < numbers.size(); ++i) {
      const bool number = std::isfinite(numbers[i]);
      if (!number) a.mark(i, numbers.size(), numbers[i] == -kInfinity ? Array::lowest : Array::undefined);
      for (int l = 0; l < kLevels; ++l) a.levels[l].push_back(number ? field_.from(l, numbers[i]) : 0);
    }
    return a;
  }

  Array elementwise(const Node& n, ValueId v) {
    Array out = make(v);
    const size_t size = count(out.extents);
    std::vector<std::vector<size_t>> at;
    bool reals = false;
    for (size_t k = 0; k < n.operands.size(); ++k) {
      at.push_back(along(out.extents, in(n, k).extents));
      reals = reals || real(n.operands[k]);
      out.random = out.random || in(n, k).random;
    }
    if (!reals) {  // integers and conditions are what they are
      std::vector<int64_t> args(at.size());
      for (size_t i = 0; i < size; ++i) {
        for (size_t k = 0; k < at.size(); ++k) args[k] = in(n, k).numbers[at[k][i]];
        out.numbers.push_back(wrap_to(g_.type(v).dtype, eval(graph::scalar_fn(n.op), args)));
      }
      return out;
    }
    if (n.op == Op::where) return select(n, std::move(out), at);
    if (!real(v)) return test(n, std::move(out), at);
    const Array& x = in(n, 0);
    const Array* y = n.operands.size() > 1 ? &in(n, 1) : nullptr;
    auto each = [&](auto&& f) {
      out.low = std::max(x.low, y ? y->low : 0);
      for (int l = out.low; l < kLevels; ++l)
        for (size_t i = 0; i < size; ++i)
          out.levels[l].push_back(f(l, x.levels[l][at[0][i]], y ? y->levels[l][at[1][i]] : 0));
    };
    // What comes of anything but numbers is not known.
    auto finite = [&] {
      for (size_t k = 0; k < at.size(); ++k)
        for (size_t i = 0; i < size && !in(n, k).flags.empty(); ++i)
          if (in(n, k).flag(at[k][i])) out.mark(i, size, Array::undefined);
    };
    auto no_zero = [&](size_t k) {
      for (int l = in(n, k).low; l < kLevels; ++l)
        for (size_t i = 0; i < size; ++i)
          if (in(n, k).levels[l][at[k][i]] == 0) out.mark(i, size, Array::undefined);
    };
    auto inverse = [&](int l, uint64_t a) { return pow_mod(a, field_.p[l] - 2, field_.p[l]); };
    switch (n.op) {
      case Op::add:
      case Op::sub:
        each([&](int l, uint64_t a, uint64_t b) {
          const uint64_t p = field_.p[l];
          return n.op == Op::add ? (a + b) % p : (a + p - b) % p;
        });
        for (size_t i = 0; i < size; ++i) {
          const uint8_t f = x.flag(at[0][i]), g = y->flag(at[1][i]);
          out.mark(i, size, n.op == Op::sub && g ? Array::undefined : std::max(f, g));
        }
        return out;
      case Op::neg:
        finite();
        each([&](int l, uint64_t a, uint64_t) { return (field_.p[l] - a) % field_.p[l]; });
        return out;
      case Op::mul:
        finite();
        each([&](int l, uint64_t a, uint64_t b) { return mul_mod(a, b, field_.p[l]); });
        return out;
      case Op::square:
        finite();
        each([&](int l, uint64_t a, uint64_t) { return mul_mod(a, a, field_.p[l]); });
        return out;
      case Op::div:
        finite();
        no_zero(1);
        each([&](int l, uint64_t a, uint64_t b) { return mul_mod(a, inverse(l, b), field_.p[l]); });
        return out;
      case Op::quot0:
        finite();
        each([&](int l, uint64_t a, uint64_t b) { return b == 0 ? 0 : mul_mod(a, inverse(l, b), field_.p[l]); });
        return out;
      case Op::reciprocal:
        finite();
        no_zero(0);
        each([&](int l, uint64_t a, uint64_t) { return inverse(l, a); });
        return out;
      case Op::exp: {
        out.low = x.low + 1;
        if (out.low >= kLevels) throw NoSay{};
        for (int l = out.low; l < kLevels; ++l)
          for (size_t i = 0; i < size; ++i)
            out.levels[l].push_back(
                x.is_lowest(at[0][i]) ? 0 : pow_mod(field_.generator[l], x.levels[l - 1][at[0][i]], field_.p[l]));
        for (size_t i = 0; i < size; ++i)
          if (!x.is_lowest(at[0][i])) out.mark(i, size, x.flag(at[0][i]));
        return out;
      }
      case Op::max: {
        std::vector<std::vector<uint64_t>> sets(size);
        for (size_t i = 0; i < size; ++i)
          for (size_t k : {0, 1}) {
            if (in(n, k).flag(at[k][i]) == Array::undefined) out.mark(i, size, Array::undefined);
            if (!in(n, k).is_lowest(at[k][i])) sets[i].push_back(in(n, k).levels[kTop][at[k][i]]);
          }
        return extremum(std::move(out), sets);
      }
      default: {
        finite();
        out.random = true;
        for (size_t i = 0; i < size; ++i) {
          uint64_t h = hash(seed_, static_cast<uint64_t>(n.op) + 0x100);
          for (size_t k = 0; k < at.size(); ++k)
            h = hash(h, real(n.operands[k]) ? in(n, k).levels[kTop][at[k][i]]
                                            : static_cast<uint64_t>(in(n, k).numbers[at[k][i]]));
          for (int l = 0; l < kLevels; ++l) out.levels[l].push_back(hash(h, static_cast<uint64_t>(l)) % field_.p[l]);
        }
        return out;
      }
    }
  }

  Array extremum(Array out, std::vector<std::vector<uint64_t>>& sets) const {
    out.random = true;
    for (size_t i = 0; i < sets.size(); ++i) {
      auto& s = sets[i];
      std::sort(s.begin(), s.end());
      s.erase(std::unique(s.begin(), s.end()), s.end());
      if (s.empty()) out.mark(i, sets.size(), Array::lowest);
      uint64_t h = hash(seed_, 0x6d6178);
      for (uint64_t x : s) h = hash(h, x);
      for (int l = 0; l < kLevels; ++l)
        out.levels[l].push_back(s.empty() ? 0 : hash(h, static_cast<uint64_t>(l)) % field_.p[l]);
    }
    return out;
  }

  Array select(const Node& n, Array out, const std::vector<std::vector<size_t>>& at) const {
    const size_t size = count(out.extents);
    const Array &c = in(n, 0), &x = in(n, 1), &y = in(n, 2);
    out.low = std::max(x.low, y.low);
    for (size_t i = 0; i < size; ++i) {
      const bool yes = c.numbers[at[0][i]] != 0;
      for (int l = out.low; l < kLevels; ++l)
        out.levels[l].push_back(yes ? x.levels[l][at[1][i]] : y.levels[l][at[2][i]]);
      out.mark(i, size, yes ? x.flag(at[1][i]) : y.flag(at[2][i]));
    }
    return out;
  }

  // A comparison of reals is a random bit of the difference of its sides; a < b or b < a where they differ.
  Array test(const Node& n, Array out, const std::vector<std::vector<size_t>>& at) const {
    out.random = true;
    const uint64_t p = field_.p[kTop];
    for (size_t i = 0; i < count(out.extents); ++i) {
      const uint8_t f = in(n, 0).flag(at[0][i]), g = n.operands.size() > 1 ? in(n, 1).flag(at[1][i]) : Array::number;
      if (f == Array::undefined || g == Array::undefined) throw NoSay{};
      if (n.op == Op::isinf || n.op == Op::isnan) {
        out.numbers.push_back(n.op == Op::isinf && f);
        continue;
      }
      if (n.operands.size() != 2) throw NoSay{};
      // -inf is equal to itself and less than any number.
      const uint64_t a = f ? 0 : in(n, 0).levels[kTop][at[0][i]], b = g ? 0 : in(n, 1).levels[kTop][at[1][i]];
      if (f || g) {
        const int order = static_cast<int>(g) - static_cast<int>(f);
        out.numbers.push_back(n.op == Op::eq   ? order == 0
                              : n.op == Op::ne ? order != 0
                              : n.op == Op::lt ? order < 0
                              : n.op == Op::le ? order <= 0
                              : n.op == Op::gt ? order > 0
                                               : order >= 0);
        continue;
      }
      const uint64_t d = (a + p - b) % p, least = std::min(d, (p - d) % p);
      const bool less = d != 0 && ((hash(seed_ ^ 0x6c74, least) & 1) != 0) == (d == least);
      switch (n.op) {
        case Op::lt: out.numbers.push_back(less); break;
        case Op::ge: out.numbers.push_back(!less); break;
        case Op::gt: out.numbers.push_back(d != 0 && !less); break;
        case Op::le: out.numbers.push_back(d == 0 || less); break;
        case Op::eq: out.numbers.push_back(d == 0); break;
        case Op::ne: out.numbers.push_back(d != 0); break;
        default: throw NoSay{};
      }
    }
    return out;
  }

  Array cast(const Node& n, ValueId v) {
    const DType from = g_.type(n.operands[0]).dtype, to = g_.type(v).dtype;
    Array a = in(n, 0);
    if (is_real(from) != is_real(to)) {
      if (!is_real(to)) throw NoSay{};
      Array out = from_reals(make(v), {a.numbers.begin(), a.numbers.end()});
      out.random = a.random;
      return out;
    }
    for (int64_t& x : a.numbers) x = wrap_to(to, x);
    // Roundings between reals are no part of the value.
    return a;
  }

  Array contract(const Node& n, ValueId v) {
    if (!real(v)) throw NoSay{};
    const auto spec = graph::parse_contract_spec(n.attributes.get<std::string>("spec")).value();
    std::map<std::string, int64_t> extent;
    for (size_t o : {0, 1})
      for (size_t a = 0; a < spec.operands[o].size(); ++a) {
        int64_t& e = extent.emplace(spec.operands[o][a], 1).first->second;
        if (const int64_t mine = in(n, o).extents[a]; mine != 1) e = mine;
      }
    graph::IndexNames all = spec.result;
    for (const std::string& name : spec.reduced()) all.push_back(name);
    std::vector<int64_t> loop;
    for (const std::string& name : all) loop.push_back(extent.at(name));
    left_ -= oracle::product(loop);
    if (left_ < 0) throw NoSay{};
    Array out = make(v);
    const Array &x = in(n, 0), &y = in(n, 1);
    out.random = x.random || y.random;
    out.low = std::max(x.low, y.low);
    for (int l = out.low; l < kLevels; ++l) out.levels[l].assign(count(out.extents), 0);
    const auto strides_x = oracle::dense_strides(x.extents), strides_y = oracle::dense_strides(y.extents),
               strides_out = oracle::dense_strides(out.extents);
    auto offset = [&](const graph::IndexNames& names, const std::vector<int64_t>& extents,
                      const std::vector<int64_t>& strides, const std::vector<int64_t>& at) {
      int64_t o = 0;
      for (size_t a = 0; a < names.size(); ++a)
        if (extents[a] != 1)
          o += at[static_cast<size_t>(std::find(all.begin(), all.end(), names[a]) - all.begin())] * strides[a];
      return static_cast<size_t>(o);
    };
    std::vector<int64_t> at(all.size(), 0);
    for (int64_t step = oracle::product(loop); step > 0; --step) {
      const size_t i = offset(spec.operands[0], x.extents, strides_x, at),
                   j = offset(spec.operands[1], y.extents, strides_y, at),
                   o = offset(spec.result, out.extents, strides_out, at);
      if (x.flag(i) || y.flag(j)) out.mark(o, out.levels[kTop].size(), Array::undefined);
      for (int l = out.low; l < kLevels; ++l) {
        uint64_t& sum = out.levels[l][o];
        sum = (sum + mul_mod(x.levels[l][i], y.levels[l][j], field_.p[l])) % field_.p[l];
      }
      for (size_t k = all.size(); k-- > 0;) {
        if (++at[k] < loop[k]) break;
        at[k] = 0;
      }
    }
    return out;
  }

  void reduce(const Node& n) {
    const Array& x = in(n, 0);
    const bool known =
        n.op == Op::sum || n.op == Op::mean || n.op == Op::moments || n.op == Op::amax || n.op == Op::amin;
    if (!real(n.operands[0]) || !known) return other(n);
    const auto axes = graph::reduced_axes(n, x.extents.size());
    std::vector<int64_t> kept = x.extents;
    int64_t reduced = 1;
    for (int64_t a : axes) {
      reduced *= kept[static_cast<size_t>(a)];
      kept[static_cast<size_t>(a)] = 1;
    }
    const auto to = along(x.extents, kept);
    const size_t size = count(kept);
    const ValueId v = n.results[0];
    Array out = make(v);
    out.random = x.random;
    out.low = x.low;
    auto summed = [&](const std::array<std::vector<uint64_t>, kLevels>& levels, double scale) {
      std::array<std::vector<uint64_t>, kLevels> sums;
      for (int l = x.low; l < kLevels; ++l) {
        sums[l].assign(size, 0);
        for (size_t i = 0; i < to.size(); ++i) sums[l][to[i]] = (sums[l][to[i]] + levels[l][i]) % field_.p[l];
        if (scale != 1) {
          const uint64_t factor = pow_mod(field_.from(l, scale), field_.p[l] - 2, field_.p[l]);
          for (uint64_t& s : sums[l]) s = mul_mod(s, factor, field_.p[l]);
        }
      }
      return sums;
    };
    switch (n.op) {
      case Op::sum:
      case Op::mean:
      case Op::moments: {
        if (reduced == 0) throw NoSay{};
        for (size_t i = 0; i < to.size(); ++i)
          out.mark(to[i], size, n.op == Op::moments && x.flag(i) ? Array::undefined : x.flag(i));
        out.levels = summed(x.levels, n.op == Op::sum ? 1 : static_cast<double>(reduced));
        if (n.op == Op::moments) {
          std::array<std::vector<uint64_t>, kLevels> squares;
          for (int l = x.low; l < kLevels; ++l)
            for (size_t i = 0; i < to.size(); ++i) {
              const uint64_t p = field_.p[l], d = (x.levels[l][i] + p - out.levels[l][to[i]]) % p;
              squares[l].push_back(mul_mod(d, d, p));
            }
          Array variance = make(n.results[1]);
          variance.random = x.random;
          variance.low = x.low;
          variance.flags = out.flags;
          variance.levels = summed(squares, static_cast<double>(reduced));
          values_[n.results[1].index] = std::move(variance);
        }
        break;
      }
      case Op::amin:
        for (size_t i = 0; i < to.size(); ++i)
          if (x.is_lowest(i)) out.mark(to[i], size, Array::lowest);
        [[fallthrough]];
      case Op::amax: {
        if (reduced == 0 && n.op == Op::amin) throw NoSay{};
        std::vector<std::vector<uint64_t>> sets(size);
        for (size_t i = 0; i < to.size(); ++i) {
          if (x.flag(i) == Array::undefined) out.mark(to[i], size, Array::undefined);
          if (!x.is_lowest(i)) sets[to[i]].push_back(x.levels[kTop][i]);
        }
        // The least is another random function than the greatest.
        if (n.op == Op::amin)
          for (auto& set : sets)
            if (!set.empty()) set.push_back(field_.p[kTop]);
        out.low = 0;
        out = extremum(std::move(out), sets);
        break;
      }
      default: throw NoSay{};
    }
    values_[v.index] = std::move(out);
  }

  // A view moves elements; where to, the interpreter says, on a tensor of element numbers. So does a gather, by
  // positions that are what they are.
  void view(const Node& n) {
    const size_t moving = n.op == Op::gather ? 1 : n.operands.size();
    std::vector<oracle::Tensor> inputs;
    int64_t next = 0;
    for (size_t k = 0; k < n.operands.size(); ++k) {
      oracle::Tensor t = oracle::zeros(k < moving ? DType::i64 : g_.type(n.operands[k]).dtype, in(n, k).extents);
      if (k < moving)
        for (int64_t& e : t.ints) e = next++;
      else
        t.ints = in(n, k).numbers;
      inputs.push_back(std::move(t));
    }
    if (n.op == Op::gather && next == 0) throw NoSay{};  // of nothing: 0
    const std::vector<oracle::Tensor> moved = alone(n, inputs);
    for (size_t i = 0; i < n.results.size(); ++i) {
      Array out = make(n.results[i]);
      for (size_t k = 0; k < n.operands.size(); ++k) {
        out.low = std::max(out.low, in(n, k).low);
        out.random = out.random || in(n, k).random;
      }
      const size_t size = count(out.extents);
      for (size_t e = 0; e < size; ++e) {
        int64_t from = moved[i].ints[e];
        size_t k = 0;
        while (from >= oracle::product(in(n, k).extents)) from -= oracle::product(in(n, k++).extents);
        const Array& x = in(n, k);
        const auto at = static_cast<size_t>(from);
        if (!real(n.results[i])) {
          out.numbers.push_back(x.numbers[at]);
          continue;
        }
        for (int l = out.low; l < kLevels; ++l) out.levels[l].push_back(x.levels[l][at]);
        out.mark(e, size, x.flag(at));
      }
      values_[n.results[i].index] = std::move(out);
    }
  }

  const Graph& g_;
  const Field& field_;
  uint64_t seed_;
  int64_t left_;
  std::vector<Array> values_;
};

Exact compare_arrays(const Array& a, const Array& b) {
  const Exact no = a.random || b.random ? Exact::no_say : Exact::different;
  if (a.extents != b.extents) return Exact::different;
  if (a.numbers != b.numbers) return no;
  const size_t size = a.levels[kTop].size();
  size_t said = a.numbers.size();
  for (size_t i = 0; i < size; ++i) {
    if (a.flag(i) == Array::undefined || b.flag(i) == Array::undefined) continue;
    ++said;
    if (a.is_lowest(i) != b.is_lowest(i)) return no;
    if (a.is_lowest(i)) continue;
    for (int l = std::max(a.low, b.low); l < kLevels; ++l)
      if (a.levels[l][i] != b.levels[l][i]) return no;
  }
  return said > 0 || size == 0 ? Exact::equal : Exact::no_say;
}

}  // namespace

Exact compare_exactly(const Graph& a, const Graph& b, uint64_t seed, int64_t max_elements) {
  try {
    const Field field(seed);
    const Graph p = graph::expand_to_primitives(a), q = graph::expand_to_primitives(b);
    const auto x = Evaluation(p, field, seed, max_elements).run(), y = Evaluation(q, field, seed, max_elements).run();
    Exact out = Exact::equal;
    for (size_t i = 0; i < x.size(); ++i) {
      const Exact e = compare_arrays(x[i], y[i]);
      if (e == Exact::different) return e;
      if (e == Exact::no_say) out = e;
    }
    return out;
  } catch (const NoSay&) {
    return Exact::no_say;
  }
}

}  // namespace cleave::check
