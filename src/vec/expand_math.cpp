#include "vec/expand_math.hpp"

#include <cmath>
#include <initializer_list>
#include <limits>
#include <map>

#include "vec/builder.hpp"

namespace cleave::vec {

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// f32 functions out of primitive operations. Coefficients are tools/fit's, lowest power first.
class Expander {
 public:
  explicit Expander(Builder& builder) : b_(builder) {}

  // The expansion of fn(x...), or an invalid value when it stays a call.
  Value expand(Fn fn, std::span<const Value> x) {
    t_ = b_.type(x[0]);
    switch (fn) {
      case Fn::exp: return exp(x[0]);
      case Fn::exp2: return exp2(x[0]);
      case Fn::expm1: return expm1(x[0]);
      case Fn::log: return log(x[0], false);
      case Fn::log2: return log(x[0], true);
      case Fn::log1p: return log1p(x[0], false);
      case Fn::tanh: return tanh(x[0]);
      case Fn::erf: return erf(x[0]);
      case Fn::sigmoid: return b_.div(c(1), b_.add(c(1), exp(b_.neg(x[0]))));
      case Fn::silu: return shut(x[0], b_.div(x[0], b_.add(c(1), exp(b_.neg(x[0])))));
      case Fn::gelu_erf: return gelu_erf(x[0]);
      case Fn::gelu_tanh: return gelu_tanh(x[0]);
      case Fn::softplus: return softplus(x[0]);
      case Fn::mish: return mish(x[0]);
      case Fn::elu: return b_.select(b_.gt(x[0], c(0)), x[0], b_.mul(x[1], expm1_below(x[0])));
      case Fn::selu: {
        const double scale = 1.0507009873554804934, alpha = 1.6732632423543772848;
        return b_.select(b_.gt(x[0], c(0)), b_.mul(x[0], c(scale)), b_.mul(expm1_below(x[0]), c(scale * alpha)));
      }
      case Fn::sin: return sine(Fn::sin, x[0]);
      case Fn::cos: return sine(Fn::cos, x[0]);
      default: return {};
    }
  }

 private:
  Value c(double v) { return b_.real(t_, v); }
  Value i(int64_t v) { return b_.integer(t_.with(Elem::i32), v); }
  Value to_bits(Value v) { return b_.bitcast(v, Elem::i32); }
  Value to_real(Value v) { return b_.bitcast(v, Elem::f32); }
  Value abs(Value x) { return b_.apply(Fn::abs, {x}); }
  Value poly(Value x, std::initializer_list<float> coefficients) {
    const std::vector<float> k(coefficients);
    Value r = c(static_cast<double>(k.back()));
    for (size_t j = k.size() - 1; j-- > 0;) r = b_.fma(r, x, c(static_cast<double>(k[j])));
    return r;
  }
  // y, but -0 where x is -inf (a gate that has shut).
  Value shut(Value x, Value y) { return b_.select(b_.eq(x, c(-kInf)), c(-0.0), y); }
  Value with_sign_of(Value magnitude, Value x) {
    const Value sign = b_.bit_and(to_bits(x), i(std::numeric_limits<int32_t>::min()));
    return to_real(b_.bit_or(to_bits(magnitude), sign));
  }

  // x = n * step + r with n = round(x / step): adding 1.5 * 2^23 leaves n in the low bits of `shifted`.
  struct Reduced {
    Value r, shifted, n;
  };
  static constexpr double kMagic = 0x1.8p23;
  Reduced reduce(Value x, double inverse_step, std::initializer_list<double> step) {
    Reduced out;
    out.shifted = inverse_step == 1 ? b_.add(x, c(kMagic)) : b_.fma(x, c(inverse_step), c(kMagic));
    out.n = b_.sub(out.shifted, c(kMagic));
    out.r = x;
    for (const double part : step) out.r = part == 1 ? b_.sub(out.r, out.n) : b_.fma(out.n, c(-part), out.r);
    return out;
  }
  Reduced reduce_exp(Value x) { return reduce(x, 0x1.715476p+0, {0x1.62e43p-1, -0x1.05c61p-29}); }
  // p * 2^n for a p whose exponent leaves room: n goes straight into the exponent field.
  Value scale(Value p, Value shifted) { return to_real(b_.add(to_bits(p), b_.shl(to_bits(shifted), i(23)))); }
  // r where low <= x <= high, 0 below, +inf above, NaN for NaN.
  Value in_range(Value x, double low, double high, Value r) {
    r = b_.select(b_.ge(x, c(low)), r, c(0));
    return b_.select(b_.le(x, c(high)), r, b_.add(x, c(kInf)));
  }

  Value exp(Value x) {
    const Reduced k = reduce_exp(x);
    const Value q = poly(k.r, {0x1.fffdf8p-2f, 0x1.5557bp-3f, 0x1.572beap-5f, 0x1.1063ap-7f});
    const Value p = b_.fma(b_.fma(q, k.r, c(1)), k.r, c(1));
    return in_range(x, -0x1.5d589ep6, 0x1.62e42ep6, scale(p, k.shifted));
  }

  Value exp2(Value x) {
    const Reduced k = reduce(x, 1, {1});
    const Value q = poly(k.r, {0x1.62e42ap-1f, 0x1.ebf9bep-3f, 0x1.c6b6d8p-5f, 0x1.3cea5cp-7f, 0x1.5bdcbcp-10f});
    return in_range(x, -126, 0x1.fffffep6, scale(b_.fma(q, k.r, c(1)), k.shifted));
  }

  // 2^n * expm1(r) + (2^n - 1), computed at half the scale so that n = 128 is in range. x must not be below -40 or so
  // (further down the result is -1 anyway) nor above 88.72.
  Value expm1_core(Value x) {
    const Reduced k = reduce_exp(x);
    const Value q = poly(k.r, {0x1.fffffep-2f, 0x1.5554b2p-3f, 0x1.555702p-5f, 0x1.1226a6p-7f, 0x1.6b8cb2p-10f});
    const Value m = b_.fma(b_.mul(k.r, k.r), q, k.r);
    const Value half = to_real(b_.add(b_.shl(to_bits(k.shifted), i(23)), i(126 << 23)));
    const Value y = b_.fma(half, m, b_.sub(half, c(0.5)));
    return b_.add(y, y);
  }
  Value expm1(Value x) {
    const Value y = expm1_core(b_.max_ordered(c(-20), x));
    return b_.select(b_.le(x, c(0x1.62e42ep6)), b_.select(b_.eq(x, c(0)), x, y), b_.add(x, c(kInf)));
  }
  // expm1 for x <= 0; anything above (its value is not used), NaN for NaN.
  Value expm1_below(Value x) { return expm1_core(b_.min_ordered(c(1), b_.max_ordered(c(-20), x))); }

  // log(2^e * (1 + f)) as e * ln 2 + log1p(f), f in [sqrt(1/2) - 1, sqrt(2) - 1].
  Value log_of(Value e, Value f, bool base2) {
    const Value q = poly(f, {0x1.5556dap-2f, -0x1.000382p-2f, 0x1.98d79p-3f, -0x1.5381cep-3f, 0x1.31781ap-3f,
                             -0x1.2438b6p-3f, 0x1.6458fcp-4f});
    const Value f2 = b_.mul(f, f);
    const Value tail = b_.mul(f2, b_.fma(q, f, c(-0.5)));  // log1p(f) - f
    if (base2) {
      const Value low = b_.fma(tail, c(0x1.715476p+0), b_.mul(f, c(0x1.4ae0bep-26)));
      return b_.add(e, b_.fma(f, c(0x1.715476p+0), low));
    }
    return b_.fma(e, c(0x1.62e43p-1), b_.add(f, b_.fma(e, c(-0x1.05c61p-29), tail)));
  }
  // The exponent of x, such that x * 2^-e lies in [sqrt(1/2), sqrt(2)), in the exponent field's place.
  Value exponent_field(Value x) {
    return b_.bit_and(b_.sub(to_bits(x), i(0x3f3504f3)), i(static_cast<int32_t>(0xff800000)));
  }
  Value field_to_real(Value field) { return b_.cast(b_.ashr(field, i(23)), Elem::f32); }
  // -inf at `pole`, NaN below, x where it is +inf or NaN.
  Value log_specials(Value x, double pole, Value y) {
    const Value below = b_.select(b_.lt(x, c(pole)), c(std::nan("")), c(-kInf));
    return b_.select(b_.le(x, c(pole)), below, b_.select(b_.lt(x, c(kInf)), y, x));
  }

  Value log(Value x, bool base2) {
    const Value tiny = b_.lt(x, c(0x1p-126));
    const Value y = b_.select(tiny, b_.mul(x, c(0x1p23)), x);
    const Value field = exponent_field(y);
    const Value f = b_.sub(to_real(b_.sub(to_bits(y), field)), c(1));
    const Value e = b_.add(field_to_real(field), b_.select(tiny, c(-23), c(0)));
    return log_specials(x, 0, log_of(e, f, base2));
  }

  // With the exponent e of 1 + x, f = x * 2^-e + (2^-e - 1) is rounded once, whatever 1 + x lost. It is computed four
  // times as large, so that 2^-e is a normal number for all e. `inside`: x is known to lie in [0, 1] or to be NaN.
  Value log1p(Value x, bool inside) {
    const Value field = exponent_field(b_.add(x, c(1)));
    const double k = inside ? 1 : 4;
    const Value s = to_real(b_.sub(i(inside ? 0x3f800000 : 0x40800000), field));
    Value f = b_.fma(x, s, b_.sub(s, c(k)));
    if (!inside) f = b_.mul(f, c(0.25));
    const Value y = log_of(field_to_real(field), f, false);
    return inside ? y : log_specials(x, -1, b_.select(b_.eq(x, c(0)), x, y));
  }

  // expm1(2|x|) / (expm1(2|x|) + 2); 1 from 9.02 on.
  Value tanh(Value x) {
    const Value a = b_.min_ordered(c(9.02), abs(x));
    const Value m = expm1_core(b_.add(a, a));
    return with_sign_of(b_.div(m, b_.add(m, c(2))), x);
  }

  // a * p(a^2) for a <= 1, for small a.
  Value erf_inner(Value a) {
    const Value s = b_.mul(a, a);
    return b_.mul(a, poly(s, {0x1.20dd74p+0f, -0x1.81262cp-2f, 0x1.cdfc88p-4f, -0x1.b4d11p-6f, 0x1.3c1aa2p-8f,
                              -0x1.f89becp-12f, -0x1.c1a15p-16f}));
  }
  Value erf(Value x) {
    const Value a = b_.min_ordered(c(4), abs(x));
    const Value g =
        poly(a, {0x1.4ba8bp-9f, 0x1.1e302p+0f, 0x1.4ec45p-1f, 0x1.6cc86cp-4f, -0x1.e8b296p-7f, 0x1.3205f8p-10f});
    const Value outer = b_.sub(c(1), exp(b_.neg(g)));
    return with_sign_of(b_.select(b_.gt(a, c(1)), outer, erf_inner(a)), x);
  }

  // x/2 * erfc(-x / sqrt 2): the complement keeps the negative side from cancelling.
  Value gelu_erf(Value x) {
    const Value z = b_.mul(x, c(0.70710678118654752440));
    const Value a = abs(z);
    const Value g = poly(a, {0x1.19b4c6p-13f, 0x1.20ddbap+0f, 0x1.451bbap-1f, 0x1.b6e3f6p-4f, -0x1.963fa6p-6f,
                             0x1.13b4cp-8f, -0x1.fb9aa2p-12f, 0x1.18311ep-15f, -0x1.1609fap-20f});
    const Value tail = b_.select(b_.lt(a, c(5.5)), exp(b_.neg(g)), c(0));
    const Value complement = b_.select(b_.gt(a, c(1)), tail, b_.sub(c(1), erf_inner(a)));
    const Value half = b_.mul(x, c(0.5));
    const Value y = b_.select(b_.lt(x, c(0)), b_.mul(half, complement), b_.sub(x, b_.mul(half, complement)));
    return b_.select(b_.lt(abs(x), c(kInf)), y, b_.select(b_.lt(x, c(0)), c(-0.0), x));
  }

  Value gelu_tanh(Value x) {
    const double k = 2 * 0.79788456080286535588;
    const Value inner = b_.mul(x, b_.fma(b_.mul(x, x), c(-k * 0.044715), c(-k)));
    return shut(x, b_.div(x, b_.add(c(1), exp(inner))));
  }

  Value softplus(Value x) {
    const Value e = exp(b_.neg(abs(x)));
    return b_.add(b_.max_ordered(c(0), x), log1p(e, true));
  }

  // tanh(log(1 + e)) = w / (w + 2) with w = e (e + 2); 1 from 20 on.
  Value mish(Value x) {
    const Value e = exp(b_.min_ordered(c(20), x));
    const Value w = b_.mul(e, b_.add(e, c(2)));
    return shut(x, b_.mul(x, b_.div(w, b_.add(w, c(2)))));
  }

  // Quadrants of pi/2 with three-part reduction; far out, and for NaN and infinities, the C library.
  Value sine(Fn fn, Value x) {
    const Value near = b_.le(abs(x), c(30000));
    const Value all = t_.lanes == 1 ? near : all_lanes(near);
    return b_.if_else(
        all,
        [&] {
          const Reduced k = reduce(x, 0x1.45f306p-1, {0x1.921fb6p+0, -0x1.777a5cp-25, -0x1.ee59dap-50});
          const Value z = b_.mul(k.r, k.r);
          const Value s = b_.fma(b_.mul(k.r, z), poly(z, {-0x1.555544p-3f, 0x1.1106c6p-7f, -0x1.991c1ap-13f}), k.r);
          const Value o = b_.fma(b_.mul(z, z), poly(z, {0x1.55554ap-5f, -0x1.6c0c26p-10f, 0x1.99e714p-16f}),
                                 b_.fma(z, c(-0.5), c(1)));
          Value q = to_bits(k.shifted);
          if (fn == Fn::cos) q = b_.add(q, i(1));
          const Value odd = b_.ne(b_.bit_and(q, i(1)), i(0));
          const Value y = b_.select(odd, o, s);
          const Value sign = b_.shl(b_.bit_and(q, i(2)), i(30));
          return std::vector<Value>{to_real(b_.bit_xor(to_bits(y), sign))};
        },
        [&] { return std::vector<Value>{b_.apply(fn, {x})}; })[0];
  }
  Value all_lanes(Value bools) {
    int width = 1;
    while (width < t_.lanes) width *= 2;
    if (width != t_.lanes) {
      std::vector<int32_t> lanes;
      for (int k = 0; k < width; ++k) lanes.push_back(std::min<int32_t>(k, t_.lanes - 1));
      bools = b_.shuffle(bools, lanes);
    }
    return b_.reduce(Fn::logical_and, bools);
  }

  Builder& b_;
  Type t_;
};

// Copies a function through a builder, with the expansions in place of the calls.
class Rewriter {
 public:
  explicit Rewriter(const Function& from) : from_(from), to_(from.name), b_(to_), expander_(b_) {
    for (size_t k = 0; k < 3; ++k) map_[from.blocks[from.body].arguments[k].index] = to_.blocks[to_.body].arguments[k];
  }
  Function run() {
    block(from_.body);
    return std::move(to_);
  }

 private:
  Value get(Value v) {
    const ValueInfo& info = from_.values[v];
    return info.kind == ValueKind::constant ? b_.constant(info.type, info.bits) : map_.at(v.index);
  }
  std::vector<Value> get(std::span<const Value> values) {
    std::vector<Value> out;
    for (const Value v : values) out.push_back(get(v));
    return out;
  }
  // Copies a block; returns what it yields.
  std::vector<Value> block(BlockId id) {
    for (const InstId inst_id : from_.blocks[id].insts) {
      const Inst& inst = from_.insts[inst_id];
      if (inst.op == Op::yield) return get(inst.operands);
      const std::vector<Value> results = copy(inst);
      for (size_t k = 0; k < results.size(); ++k) map_[inst.results[k].index] = results[k];
    }
    return {};
  }
  std::vector<Value> copy(const Inst& inst) {
    const std::vector<Value> x = get(inst.operands);
    if (inst.op == Op::for_loop) {
      const auto& arguments = from_.blocks[inst.blocks[0]].arguments;
      return b_.for_loop(x[0], x[1], x[2], std::span<const Value>(x).subspan(3),
                         [&](Value i, std::span<const Value> carried) {
                           map_[arguments[0].index] = i;
                           for (size_t k = 0; k < carried.size(); ++k) map_[arguments[k + 1].index] = carried[k];
                           return block(inst.blocks[0]);
                         });
    }
    if (inst.op == Op::if_else)
      return b_.if_else(x[0], [&] { return block(inst.blocks[0]); }, [&] { return block(inst.blocks[1]); });
    if (inst.op == Op::apply && b_.type(x[0]).elem == Elem::f32)
      if (const Value v = expander_.expand(inst.fn, x); v.valid()) return {v};
    Inst same = inst;
    same.operands = x;
    std::vector<Type> types;
    for (const Value v : inst.results) types.push_back(from_.values[v].type);
    return b_.append(std::move(same), types);
  }

  const Function& from_;
  Function to_;
  Builder b_;
  Expander expander_;
  std::map<uint32_t, Value> map_;
};

}  // namespace

Module expand_math(const Module& module) {
  Module out;
  for (const Function& f : module.functions) out.functions.push_back(Rewriter(f).run());
  return out;
}

ErrorBound max_error(Fn fn, DType dtype) {
  if (compute_type(dtype) == DType::f64) return {1, 0};  // the C library
  switch (fn) {
    case Fn::exp:
    case Fn::exp2:
    case Fn::expm1:
    case Fn::log:
    case Fn::log2:
    case Fn::log1p:
    case Fn::sin:
    case Fn::cos:
    case Fn::erf:
    case Fn::hardswish: return {2.5, 0};
    case Fn::rsqrt:
    case Fn::hardsigmoid: return {2, 0};
    case Fn::elu:
    case Fn::selu:
    case Fn::tanh: return {3, 0};
    case Fn::sigmoid:
    case Fn::softplus: return {4, 0};
    case Fn::silu: return {4, 0x1p-126};  // the gate underflows before the product does
    case Fn::mish: return {5, 0x1p-126};
    case Fn::gelu_erf:
    case Fn::gelu_tanh: return {4, 4e-8};
    default: return {1, 0};
  }
}

}  // namespace cleave::vec
