#include "check/exact.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>

#include "base/rng.hpp"
#include "eval/graph_eval.hpp"
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
  int low = 0;                  // residues are known from this level up
  std::vector<uint8_t> lowest;  // the elements that are -inf; empty: none
  bool random = false;          // it hangs on random functions, so that only equality means something

  bool is_lowest(size_t i) const { return !lowest.empty() && lowest[i]; }
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
      case Category::view: view(n); return;
      default: throw NoSay{};
    }
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
      const bool low = numbers[i] == -kInfinity;
      if (!std::isfinite(numbers[i]) && !low) throw NoSay{};
      if (low && a.lowest.empty()) a.lowest.resize(numbers.size());
      if (low) a.lowest[i] = 1;
      for (int l = 0; l < kLevels; ++l) a.levels[l].push_back(low ? 0 : field_.from(l, numbers[i]));
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
    auto finite = [&] {
      for (size_t k = 0; k < at.size(); ++k)
        if (!in(n, k).lowest.empty()) throw NoSay{};
    };
    auto inverse = [&](int l, uint64_t a) {
      if (a == 0) throw NoSay{};
      return pow_mod(a, field_.p[l] - 2, field_.p[l]);
    };
    switch (n.op) {
      case Op::add:
      case Op::sub:
        if (y && !y->lowest.empty() && n.op == Op::sub) throw NoSay{};
        each([&](int l, uint64_t a, uint64_t b) {
          const uint64_t p = field_.p[l];
          return n.op == Op::add ? (a + b) % p : (a + p - b) % p;
        });
        for (size_t i = 0; i < size; ++i)
          if (x.is_lowest(at[0][i]) || y->is_lowest(at[1][i])) {
            out.lowest.resize(size);
            out.lowest[i] = 1;
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
        each([&](int l, uint64_t a, uint64_t b) { return mul_mod(a, inverse(l, b), field_.p[l]); });
        return out;
      case Op::quot0:
        finite();
        each([&](int l, uint64_t a, uint64_t b) { return b == 0 ? 0 : mul_mod(a, inverse(l, b), field_.p[l]); });
        return out;
      case Op::reciprocal:
        finite();
        each([&](int l, uint64_t a, uint64_t) { return inverse(l, a); });
        return out;
      case Op::exp: {
        out.low = x.low + 1;
        if (out.low >= kLevels) throw NoSay{};
        for (int l = out.low; l < kLevels; ++l)
          for (size_t i = 0; i < size; ++i)
            out.levels[l].push_back(
                x.is_lowest(at[0][i]) ? 0 : pow_mod(field_.generator[l], x.levels[l - 1][at[0][i]], field_.p[l]));
        return out;
      }
      case Op::max: {
        std::vector<std::vector<uint64_t>> sets(size);
        std::vector<uint8_t> any(size);
        for (size_t i = 0; i < size; ++i)
          for (size_t k : {0, 1})
            if (!in(n, k).is_lowest(at[k][i])) sets[i].push_back(in(n, k).levels[kTop][at[k][i]]);
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
      if (s.empty()) {
        out.lowest.resize(sets.size());
        out.lowest[i] = 1;
      }
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
      if (yes ? x.is_lowest(at[1][i]) : y.is_lowest(at[2][i])) {
        out.lowest.resize(size);
        out.lowest[i] = 1;
      }
    }
    return out;
  }

  // A comparison of reals is a random bit of the difference of its sides; a < b or b < a where they differ.
  Array test(const Node& n, Array out, const std::vector<std::vector<size_t>>& at) const {
    out.random = true;
    const uint64_t p = field_.p[kTop];
    for (size_t i = 0; i < count(out.extents); ++i) {
      const bool low = in(n, 0).is_lowest(at[0][i]);
      if (n.op == Op::isinf || n.op == Op::isnan) {
        out.numbers.push_back(n.op == Op::isinf && low);
        continue;
      }
      if (n.operands.size() != 2 || low || in(n, 1).is_lowest(at[1][i])) throw NoSay{};
      const uint64_t a = in(n, 0).levels[kTop][at[0][i]], b = in(n, 1).levels[kTop][at[1][i]];
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
      return from_reals(make(v), {a.numbers.begin(), a.numbers.end()});
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
    if (!x.lowest.empty() || !y.lowest.empty()) throw NoSay{};
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
    if (!real(n.operands[0])) throw NoSay{};
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
        if (!x.lowest.empty() || reduced == 0) throw NoSay{};
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
          variance.levels = summed(squares, static_cast<double>(reduced));
          values_[n.results[1].index] = std::move(variance);
        }
        break;
      }
      case Op::amax: {
        std::vector<std::vector<uint64_t>> sets(size);
        for (size_t i = 0; i < to.size(); ++i)
          if (!x.is_lowest(i)) sets[to[i]].push_back(x.levels[kTop][i]);
        out.low = 0;
        out = extremum(std::move(out), sets);
        break;
      }
      default: throw NoSay{};
    }
    values_[v.index] = std::move(out);
  }

  // A view moves elements; where to, the interpreter says, on a tensor of element numbers.
  void view(const Node& n) {
    if (n.op == Op::pad || n.op == Op::window) throw NoSay{};
    graph::Builder b("view", g_.shared_syms());
    std::vector<ValueId> operands;
    std::vector<oracle::Tensor> inputs;
    int64_t next = 0;
    for (size_t k = 0; k < n.operands.size(); ++k) {
      operands.push_back(b.input(fmt::format("x{}", k), DType::i64, g_.type(n.operands[k]).shape));
      oracle::Tensor t = oracle::zeros(DType::i64, in(n, k).extents);
      for (int64_t& e : t.ints) e = next++;
      inputs.push_back(std::move(t));
    }
    const auto results = b.make_all(n.op, operands, n.attributes);
    for (size_t i = 0; i < results.size(); ++i) b.output(fmt::format("y{}", i), results[i]);
    const auto moved = oracle::evaluate(b.take(), inputs);
    if (!moved.ok()) throw NoSay{};
    for (size_t i = 0; i < n.results.size(); ++i) {
      Array out = make(n.results[i]);
      for (size_t k = 0; k < n.operands.size(); ++k) {
        out.low = std::max(out.low, in(n, k).low);
        out.random = out.random || in(n, k).random;
      }
      const size_t size = count(out.extents);
      for (size_t e = 0; e < size; ++e) {
        int64_t from = (*moved)[i].ints[e];
        size_t k = 0;
        while (from >= oracle::product(in(n, k).extents)) from -= oracle::product(in(n, k++).extents);
        const Array& x = in(n, k);
        const auto at = static_cast<size_t>(from);
        if (!real(n.results[i])) {
          out.numbers.push_back(x.numbers[at]);
          continue;
        }
        for (int l = out.low; l < kLevels; ++l) out.levels[l].push_back(x.levels[l][at]);
        if (x.is_lowest(at)) {
          out.lowest.resize(size);
          out.lowest[e] = 1;
        }
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
  for (size_t i = 0; i < size; ++i) {
    if (a.is_lowest(i) != b.is_lowest(i)) return no;
    if (a.is_lowest(i)) continue;
    for (int l = std::max(a.low, b.low); l < kLevels; ++l)
      if (a.levels[l][i] != b.levels[l][i]) return no;
  }
  return Exact::equal;
}

}  // namespace

Exact compare_exactly(const Graph& a, const Graph& b, uint64_t seed, int64_t max_elements) {
  try {
    const Field field(seed);
    const auto x = Evaluation(a, field, seed, max_elements).run(), y = Evaluation(b, field, seed, max_elements).run();
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
