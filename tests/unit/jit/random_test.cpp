// Random vector programs: compiled code against the interpreter, bit by bit, for every instruction set of the machine.
#include <bit>
#include <cmath>
#include <limits>

#include "base/rng.hpp"
#include "eval/vec_eval.hpp"
#include "support.hpp"
#include "vec/expand_math.hpp"

namespace cleave {
namespace {

using vec::Elem;
using vec::Type;
using vec::Value;

constexpr int64_t kInput = 1 << 12;   // bytes of each input
constexpr int64_t kOutput = 1 << 16;  // bytes of the output

class Generator {
 public:
  Generator(uint64_t seed, bool math) : rng_(seed), math_(math), module_(), b_(start()) {}

  vec::Module make() {
    input_ = b_.tensor_data(0);
    integers_ = b_.tensor_data(1);
    output_ = b_.tensor_data(2);
    for (int i = 0; i < 6; ++i) pool_.push_back(load());
    pool_.push_back(b_.task());
    statements(25 + static_cast<int>(rng_.below(25)), 2);
    for (const Value v : pool_) store(v);
    return std::move(module_);
  }

 private:
  vec::Function& start() {
    module_.functions.emplace_back("f");
    return module_.functions.back();
  }
  template <class T>
  T pick(const std::vector<T>& from) {
    return from[rng_.below(from.size())];
  }
  int some_lanes() { return pick<int>({1, 2, 3, 4, 8, 8, 16, 16, 24, 32}); }
  Value load() {
    const DType d = pick<DType>({DType::f32, DType::f32, DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32,
                                 DType::i64, DType::i16, DType::i8, DType::u32, DType::u16, DType::u8, DType::boolean});
    const int lanes = some_lanes();
    const Value base = is_real(d) ? input_ : integers_;
    const int64_t offset = static_cast<int64_t>(rng_.below(64)) * byte_size(d);
    Value count;
    if (rng_.chance(0.4)) count = rng_.chance(0.5) ? b_.i64(rng_.between(-1, lanes + 1)) : small_integer();
    return b_.load(b_.ptr_add(base, offset), d, lanes, count);
  }
  // An i64 known only at run time, in -2 .. 40.
  Value small_integer() {
    return b_.sub(b_.mod(b_.load_i64(b_.ptr_add(integers_, 8 * rng_.between(0, 63))), b_.i64(43)), b_.i64(2));
  }
  Value some(auto accept) {
    for (int tries = 0; tries < 30; ++tries) {
      const Value v = pick(pool_);
      if (accept(b_.type(v))) return v;
    }
    return {};
  }
  // A value of this type, made of one in the pool if need be.
  Value of_type(Type t) {
    if (const Value v = some([&](Type x) { return x == t; }); v.valid()) return v;
    Value s = b_.load(b_.ptr_add(vec::is_float(t.elem) ? input_ : integers_, 64 * rng_.between(0, 15)),
                      vec::dtype_of(t.elem), 1);
    return b_.splat(s, t.lanes);
  }

  void statements(int n, int depth) {
    for (int i = 0; i < n; ++i) {
      const Value v = one(depth);
      if (v.valid()) pool_.push_back(v);
    }
  }

  Value one(int depth) {
    switch (rng_.below(16)) {
      case 0: return load();
      case 1: {
        const Value v = pick(pool_);
        return b_.cast(v, pick<Elem>({Elem::f32, Elem::f64, Elem::i64, Elem::i32, Elem::i16, Elem::i8, Elem::u32,
                                      Elem::u16, Elem::u8, Elem::boolean}));
      }
      case 2: {
        const Value v = pick(pool_);
        std::vector<int32_t> indices;
        for (int i = some_lanes(); i > 0; --i)
          indices.push_back(static_cast<int32_t>(rng_.below(2 * uint64_t(b_.lanes(v)))));
        return b_.shuffle(v, of_type(b_.type(v)), indices);
      }
      case 3: {
        const Value v = pick(pool_);
        const int lane = static_cast<int>(rng_.below(static_cast<uint64_t>(b_.lanes(v))));
        return rng_.chance(0.5) ? b_.extract(v, lane) : b_.insert(v, of_type(b_.type(v).scalar()), lane);
      }
      case 4: {
        const Value v = some([](Type t) { return (t.lanes & (t.lanes - 1)) == 0; });
        if (!v.valid()) return {};
        if (b_.type(v).elem == Elem::boolean) return b_.reduce(pick<Fn>({Fn::logical_and, Fn::logical_or}), v);
        return plus_zero(b_.reduce(pick<Fn>({Fn::add, Fn::mul, Fn::max, Fn::min}), v));
      }
      case 5: {
        const Value v = some([](Type t) { return vec::is_float(t.elem); });
        if (!v.valid()) return {};
        return b_.fma(v, of_type(b_.type(v)), of_type(b_.type(v)));
      }
      case 6: {
        const Value v = some([](Type t) { return vec::is_int(t.elem); });
        if (!v.valid()) return {};
        const Value w = of_type(b_.type(v));
        switch (rng_.below(6)) {
          case 0: return b_.bit_and(v, w);
          case 1: return b_.bit_or(v, w);
          case 2: return b_.bit_xor(v, w);
          case 3: return b_.shl(v, w);
          case 4: return b_.lshr(v, b_.zero(b_.type(v)));
          default: return b_.ashr(v, b_.integer(b_.type(v), rng_.between(0, 9)));
        }
      }
      case 7: {
        const Value v = some([](Type t) { return vec::is_float(t.elem); });
        if (!v.valid()) return {};
        const Value clean = b_.select(b_.apply(Fn::isnan, {v}), b_.zero(b_.type(v)), v);  // NaN bits are not specified
        return b_.bitcast(clean, b_.type(v).elem == Elem::f32 ? Elem::i32 : Elem::i64);
      }
      case 8: {
        const int lanes = some_lanes();
        const DType d =
            pick<DType>({DType::f32, DType::f64, DType::bf16, DType::i32, DType::i8, DType::u16, DType::u8});
        const Value indices = b_.bit_and(of_type({Elem::i64, static_cast<uint16_t>(lanes)}),
                                         b_.integer({Elem::i64, static_cast<uint16_t>(lanes)}, 63));
        return b_.gather(is_real(d) ? input_ : integers_, indices, d,
                         rng_.chance(0.5) ? of_type({Elem::boolean, static_cast<uint16_t>(lanes)}) : Value{});
      }
      case 9: {
        if (depth == 0) return {};
        const Value init = pick(pool_);
        const Type t = b_.type(init);
        const size_t mark = pool_.size();
        const Value hi = rng_.chance(0.5) ? small_integer() : b_.i64(rng_.between(-1, 9));
        const Value result = b_.for_loop(b_.i64(rng_.between(-2, 2)), hi, b_.i64(rng_.between(1, 3)), {init},
                                         [&](Value i, std::span<const Value> carried) {
                                           pool_.push_back(i);
                                           pool_.push_back(carried[0]);
                                           statements(4, depth - 1);
                                           const Value next = of_type(t);
                                           pool_.resize(mark);
                                           return std::vector<Value>{next};
                                         })[0];
        return result;
      }
      case 10: {
        if (depth == 0) return {};
        const Type t = b_.type(pick(pool_));
        const Value condition = rng_.chance(0.5) ? b_.lt(small_integer(), b_.i64(17)) : of_type(vec::kBool);
        const size_t mark = pool_.size();
        auto branch = [&] {
          statements(3, depth - 1);
          const Value v = of_type(t);
          pool_.resize(mark);
          return std::vector<Value>{v};
        };
        return b_.if_else(condition, branch, branch)[0];
      }
      default: return apply();
    }
  }

  // -0 becomes +0: which zero max and min give is not specified.
  Value plus_zero(Value v) { return vec::is_float(b_.type(v).elem) ? b_.add(v, b_.real(b_.type(v), 0)) : v; }

  Value apply() {
    const FnInfo& f = all_fns()[rng_.below(all_fns().size())];
    // Rounded more than once by compiled code; max_error bounds them in math_test.
    if (f.fn == Fn::rsqrt || f.fn == Fn::hardsigmoid || f.fn == Fn::hardswish) return {};
    if (!math_ && vec::max_error(f.fn, DType::f32).ulp > 1) return {};
    const Value v = some([&](Type t) {
      switch (f.rule) {
        case FnRule::arith: return t.elem != Elem::boolean;
        case FnRule::real:
        case FnRule::real_test: return vec::is_float(t.elem);
        case FnRule::logic: return t.elem == Elem::boolean;
        default: return true;
      }
    });
    if (!v.valid()) return {};
    const Type t = b_.type(v);
    std::vector<Value> x = {v};
    if (f.fn == Fn::where) x = {of_type(t.with(Elem::boolean)), v};
    while (static_cast<int>(x.size()) < f.arity) x.push_back(of_type(t));
    const Value r = b_.apply(f.fn, x);
    const bool zero_sign = f.fn == Fn::max || f.fn == Fn::min || f.fn == Fn::clamp || f.fn == Fn::relu;
    return zero_sign ? plus_zero(r) : r;
  }

  void store(Value v) {
    const Elem e = b_.type(v).elem;
    DType d = vec::dtype_of(e);
    if (e == Elem::f32) d = pick<DType>({DType::f32, DType::f32, DType::f16, DType::bf16});
    const int lanes = b_.lanes(v);
    if (offset_ + 8 * lanes + 64 > kOutput) return;
    const Value p = b_.ptr_add(output_, offset_);
    if (rng_.chance(0.25)) {
      const Type it{Elem::i64, static_cast<uint16_t>(lanes)};
      const Value reversed = lanes == 1 ? b_.i64(0) : b_.sub(b_.integer(it, lanes - 1), b_.iota(lanes));
      b_.scatter(v, p, reversed, d, rng_.chance(0.5) ? of_type(it.with(Elem::boolean)) : Value{});
    } else {
      b_.store(v, p, d, rng_.chance(0.5) ? small_integer() : Value{});
    }
    stored_.push_back({offset_, d, lanes});
    offset_ += lanes * byte_size(d);
    offset_ += (8 - offset_ % 8) % 8;
  }

 public:
  struct Stored {
    int64_t offset;
    DType dtype;
    int lanes;
  };
  std::vector<Stored> stored_;

 private:
  Rng rng_;
  bool math_;
  vec::Module module_;
  vec::Builder b_;
  Value input_, integers_, output_;
  std::vector<Value> pool_;
  int64_t offset_ = 0;
};

struct Data {
  std::vector<double> reals;  // read as f64, f32, f16 and bf16: any bits
  std::vector<int64_t> integers;
  alignas(64) uint8_t output[kOutput];

  explicit Data(uint64_t seed) : reals(kInput / 8), integers(kInput / 8) {
    Rng rng(seed);
    auto* f = reinterpret_cast<uint8_t*>(reals.data());
    const float specials[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1e-40f, 3e38f, 1.0f, -1.0f, 0.5f};
    for (int64_t i = 0; i < kInput / 4; ++i) {
      float v = static_cast<float>(rng.normal() * 3);
      if (rng.chance(0.1)) v = specials[rng.below(10)];
      std::memcpy(f + 4 * i, &v, 4);
    }
    for (int64_t& v : integers)
      v = rng.chance(0.3) ? rng.between(-3, 40) : static_cast<int64_t>(rng.next() >> rng.below(64));
    std::memset(output, 0x5a, sizeof output);
  }
};

void check(uint64_t seed, bool math) {
  Generator generator(seed, math);
  const vec::Module module = generator.make();
  const Diagnostics problems = vec::verify(module);
  ASSERT_TRUE(problems.empty()) << render(problems, nullptr) << print(module);

  const std::string text = print(module);
  auto parsed = vec::parse({"random", text});
  ASSERT_TRUE(parsed.ok()) << render(parsed.errors(), nullptr) << text;
  ASSERT_EQ(print(*parsed), text);

  auto call_of = [](Data& d, CleaveTensor(&tensors)[3]) {
    tensors[0] = {d.reals.data(), nullptr};
    tensors[1] = {d.integers.data(), nullptr};
    tensors[2] = {d.output, nullptr};
    return CleaveCall{tensors, nullptr, nullptr, nullptr};
  };
  const vec::Module expanded = math ? vec::expand_math(module) : module;
  Data expected(seed);
  CleaveTensor tensors[3];
  const CleaveCall call = call_of(expected, tensors);
  ASSERT_TRUE(vec::interpret(expanded.functions[0], &call, 5, nullptr));

  for (const jit::Target& target : seed % 3 == 0 ? testing::all_targets_and_arm64() : testing::all_targets()) {
    jit::Options options;
    options.target = target;
    options.expand_math = math;
    options.optimize = seed % 2;
    Data actual(seed);
    using testing::bytes_of;
    testing::run_compiled(module, options, {bytes_of(actual.reals), bytes_of(actual.integers), bytes_of(actual.output)},
                          {}, 5);
    for (const auto& s : generator.stored_)
      for (int i = 0; i < s.lanes; ++i) {
        const uint8_t* a = expected.output + s.offset + i * byte_size(s.dtype);
        const uint8_t* b = actual.output + s.offset + i * byte_size(s.dtype);
        const bool both_nan =
            is_real(s.dtype) && std::isnan(load_real(s.dtype, a)) && std::isnan(load_real(s.dtype, b));
        ASSERT_TRUE(both_nan || std::memcmp(a, b, static_cast<size_t>(byte_size(s.dtype))) == 0)
            << "seed " << seed << " on " << name(target.isa) << ": " << name(s.dtype) << " at " << s.offset << " lane "
            << i << ": interpreter " << load_real(s.dtype, a) << ", compiled " << load_real(s.dtype, b) << "\n"
            << text;
      }
    // Nothing else was written.
    for (int64_t i = 0; i < kOutput; ++i) {
      bool inside = false;
      for (const auto& s : generator.stored_)
        inside = inside || (i >= s.offset && i < s.offset + s.lanes * byte_size(s.dtype));
      if (!inside) {
        ASSERT_EQ(actual.output[i], 0x5a) << "seed " << seed << " wrote outside, at " << i;
      }
    }
  }
}

TEST(Jit, RandomProgramsGiveTheInterpretersBits) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    check(seed, false);
    if (HasFatalFailure()) return;
  }
}

TEST(Jit, RandomProgramsWithPolynomialsGiveTheInterpretersBits) {
  for (uint64_t seed = 1001; seed <= 1015; ++seed) {
    check(seed, true);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace cleave
