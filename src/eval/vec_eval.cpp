#include "eval/vec_eval.hpp"

#include <bit>
#include <cmath>
#include <cstring>

namespace cleave::vec {

namespace {

using Lanes =
    std::vector<uint64_t>;  // per lane the bits of the element; signed integers sign-extended, the rest zero-extended

class Interpreter {
 public:
  Interpreter(const vec::Function& f, int64_t budget) : f_(f), budget_(budget), values_(f.values.size()) {}

  bool run(const void* call, int64_t task, void* scratch) {
    const auto& arguments = f_.blocks[f_.body].arguments;
    values_[arguments[0].index] = {reinterpret_cast<uint64_t>(call)};
    values_[arguments[1].index] = {static_cast<uint64_t>(task)};
    values_[arguments[2].index] = {reinterpret_cast<uint64_t>(scratch)};
    for (uint32_t i = 0; i < f_.values.size(); ++i)
      if (const auto& v = f_.values[vec::Value(i)]; v.kind == vec::ValueKind::constant)
        values_[i] = Lanes(v.type.lanes, v.bits);
    block(f_.body);
    return budget_ > 0;
  }

 private:
  const Lanes& get(vec::Value v) const { return values_[v.index]; }
  int64_t integer(vec::Value v) const { return static_cast<int64_t>(get(v)[0]); }
  uint8_t* pointer(vec::Value v) const { return reinterpret_cast<uint8_t*>(get(v)[0]); }
  Type type(vec::Value v) const { return f_.values[v].type; }
  std::vector<Lanes> copy(const std::vector<vec::Value>& values, size_t from = 0) const {
    std::vector<Lanes> out;
    for (size_t i = from; i < values.size(); ++i) out.push_back(get(values[i]));
    return out;
  }

  // Runs a block; returns what it yields. Stops early, with anything, when the budget is spent.
  std::vector<Lanes> block(vec::BlockId id) {
    for (const vec::InstId i : f_.blocks[id].insts) {
      if (--budget_ <= 0) return {};
      const vec::Inst& inst = f_.insts[i];
      switch (inst.op) {
        case Op::yield: return copy(inst.operands);
        case Op::for_loop: for_loop(inst); break;
        case Op::if_else: {
          std::vector<Lanes> results = block(inst.blocks[integer(inst.operands[0]) ? 0 : 1]);
          if (budget_ <= 0) return {};
          for (size_t k = 0; k < results.size(); ++k) values_[inst.results[k].index] = std::move(results[k]);
          break;
        }
        default:
          if (inst.results.empty())
            effect(inst);
          else
            values_[inst.results[0].index] = value(inst, type(inst.results[0]));
      }
      if (budget_ <= 0) return {};
    }
    return {};
  }

  void for_loop(const vec::Inst& inst) {
    const int64_t hi = integer(inst.operands[1]), step = integer(inst.operands[2]);
    CHECK(step > 0, "a loop with step {}", step);
    const auto& arguments = f_.blocks[inst.blocks[0]].arguments;
    std::vector<Lanes> carried = copy(inst.operands, 3);
    for (int64_t i = integer(inst.operands[0]); i < hi;) {
      values_[arguments[0].index] = {static_cast<uint64_t>(i)};
      for (size_t k = 0; k < carried.size(); ++k) values_[arguments[k + 1].index] = std::move(carried[k]);
      carried = block(inst.blocks[0]);
      if (budget_ <= 0) return;
      if (__builtin_add_overflow(i, step, &i)) break;
    }
    for (size_t k = 0; k < carried.size(); ++k) values_[inst.results[k].index] = std::move(carried[k]);
  }

  static double real(Elem e, uint64_t bits) {
    return e == Elem::f64 ? std::bit_cast<double>(bits)
                          : static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  static uint64_t wrap(Elem e, int64_t v) { return static_cast<uint64_t>(wrap_to(vec::dtype_of(e), v)); }

  // One lane of a scalar function.
  static uint64_t apply(Fn fn, Elem e, const uint64_t* x, int n) {
    const bool test = result_dtype(fn, vec::dtype_of(e)) == DType::boolean;
    if (fn == Fn::where) return x[0] ? x[1] : x[2];
    if (vec::is_float(e)) {
      double y[3] = {};
      for (int k = 0; k < n; ++k) y[k] = real(e, x[k]);
      const double r = cleave::eval(fn, std::span<const double>(y, static_cast<size_t>(n)));
      return test ? r != 0 : vec::real_bits(e, r);
    }
    int64_t y[3] = {};
    for (int k = 0; k < n; ++k) y[k] = static_cast<int64_t>(x[k]);
    const int64_t r = cleave::eval(fn, std::span<const int64_t>(y, static_cast<size_t>(n)));
    return test ? r != 0 : wrap(e, r);
  }

  static uint64_t cast(Elem from, Elem to, uint64_t bits) {
    if (vec::is_float(from)) {
      if (vec::is_float(to)) return vec::real_bits(to, real(from, bits));
      return static_cast<uint64_t>(real_to_integer(vec::dtype_of(to), real(from, bits)));
    }
    const auto v = static_cast<int64_t>(bits);
    if (to == Elem::f64) return std::bit_cast<uint64_t>(static_cast<double>(v));
    if (to == Elem::f32) return std::bit_cast<uint32_t>(static_cast<float>(v));
    return wrap(to, v);
  }

  static uint64_t shift(Op op, Elem e, uint64_t a, uint64_t n) {
    const auto width = static_cast<uint64_t>(vec::bit_width(e));
    const uint64_t mask = width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1;
    const bool inside = (n & mask) < width;
    const uint64_t count = inside ? (n & mask) : width - 1;
    uint64_t r = 0;
    if (op == Op::ashr && !vec::is_unsigned(e))
      r = static_cast<uint64_t>(static_cast<int64_t>(a) >> count);
    else if (inside)
      r = op == Op::shl ? a << count : (a & mask) >> count;
    return wrap(e, static_cast<int64_t>(r));
  }

  static uint64_t read(DType d, const uint8_t* p) {
    if (is_real(d)) return vec::real_bits(vec::elem_of(d), load_real(d, p));
    return static_cast<uint64_t>(load_integer(d, p));
  }
  static void write(DType d, uint8_t* p, uint64_t bits) {
    if (is_real(d))
      store_real(d, p, real(vec::elem_of(d), bits));
    else
      store_integer(d, p, static_cast<int64_t>(bits));
  }

  // Rows and columns are those of its tiles, whatever is given; numbers below 2^-126 are 0 going in and coming out.
  void matrix_bf16(const vec::Inst& inst) {
    using vec::MatrixOperand;
    const auto at = [&](MatrixOperand o) { return inst.operands[static_cast<size_t>(o)]; };
    const auto tiles = [&](size_t k, MatrixOperand o) {
      const int64_t most = vec::kMatrixTile * inst.indices[k];
      return std::clamp(integer(at(o)), most - vec::kMatrixTile + 1, most);
    };
    const auto number = [](const uint8_t* p) {
      const auto x = std::bit_cast<float>(static_cast<uint32_t>(read(DType::bf16, p)));
      return std::fabs(x) < 0x1p-126f ? 0.0f : x;
    };
    const int64_t rows = tiles(0, MatrixOperand::rows), columns = tiles(1, MatrixOperand::columns);
    const int64_t depth = 2 * std::max<int64_t>(integer(at(MatrixOperand::pairs)), 0);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c) {
        uint8_t* to = pointer(at(MatrixOperand::c)) + r * integer(at(MatrixOperand::c_stride)) + 4 * c;
        float sum = 0;
        if (inst.indices[2]) std::memcpy(&sum, to, 4);
        for (int64_t k = 0; k < depth; ++k)
          sum = std::fmaf(
              number(pointer(at(MatrixOperand::a)) + r * integer(at(MatrixOperand::a_stride)) + 2 * k),
              number(pointer(at(MatrixOperand::b)) + k / 2 * integer(at(MatrixOperand::b_stride)) + 4 * c + k % 2 * 2),
              sum);
        if (std::fabs(sum) < 0x1p-126f) sum = 0;
        std::memcpy(to, &sum, 4);
      }
  }

  void effect(const vec::Inst& inst) {
    if (inst.op == Op::prefetch || inst.op == Op::fence) return;
    if (inst.op == Op::matrix_bf16) return matrix_bf16(inst);
    const int64_t bytes = byte_size(inst.dtype);
    const Lanes& v = get(inst.operands[0]);
    uint8_t* base = pointer(inst.operands[1]);
    if (inst.op == Op::store || inst.op == Op::stream) {
      const int64_t count = inst.operands.size() > 2 ? integer(inst.operands[2]) : vec::kMaxLanes;
      for (int64_t i = 0; i < std::min<int64_t>(count, static_cast<int64_t>(v.size())); ++i)
        write(inst.dtype, base + i * bytes, v[static_cast<size_t>(i)]);
      return;
    }
    const Lanes& indices = get(inst.operands[2]);
    const Lanes& mask = get(inst.operands[3]);
    for (size_t i = 0; i < v.size(); ++i)
      if (mask[i]) write(inst.dtype, base + static_cast<int64_t>(indices[i]) * bytes, v[i]);
  }

  Lanes value(const vec::Inst& inst, Type t) {
    auto x = [&](size_t k) -> const Lanes& { return get(inst.operands[k]); };
    Lanes out(t.lanes, 0);
    switch (inst.op) {
      case Op::apply: {
        const Elem e = type(inst.operands.back()).elem;
        const int n = static_cast<int>(inst.operands.size());
        for (size_t i = 0; i < out.size(); ++i) {
          uint64_t lane[3] = {};
          for (int k = 0; k < n; ++k) lane[k] = x(static_cast<size_t>(k))[i];
          out[i] = apply(inst.fn, e, lane, n);
        }
        return out;
      }
      case Op::fma:
        for (size_t i = 0; i < out.size(); ++i) {
          if (t.elem == Elem::f64) {
            out[i] =
                std::bit_cast<uint64_t>(std::fma(real(t.elem, x(0)[i]), real(t.elem, x(1)[i]), real(t.elem, x(2)[i])));
          } else {
            auto f = [&](size_t k) { return std::bit_cast<float>(static_cast<uint32_t>(x(k)[i])); };
            out[i] = std::bit_cast<uint32_t>(std::fmaf(f(0), f(1), f(2)));
          }
        }
        return out;
      case Op::cast:
        for (size_t i = 0; i < out.size(); ++i) out[i] = cast(type(inst.operands[0]).elem, t.elem, x(0)[i]);
        return out;
      case Op::bitcast:
        for (size_t i = 0; i < out.size(); ++i)
          out[i] = vec::is_int(t.elem)            ? wrap(t.elem, static_cast<int64_t>(x(0)[i]))
                   : vec::bit_width(t.elem) == 32 ? x(0)[i] & 0xffffffffu
                                                  : x(0)[i];
        return out;
      case Op::bit_and:
        for (size_t i = 0; i < out.size(); ++i) out[i] = x(0)[i] & x(1)[i];
        return out;
      case Op::bit_or:
        for (size_t i = 0; i < out.size(); ++i) out[i] = x(0)[i] | x(1)[i];
        return out;
      case Op::bit_xor:
        for (size_t i = 0; i < out.size(); ++i) out[i] = x(0)[i] ^ x(1)[i];
        return out;
      case Op::shl:
      case Op::lshr:
      case Op::ashr:
        for (size_t i = 0; i < out.size(); ++i) out[i] = shift(inst.op, t.elem, x(0)[i], x(1)[i]);
        return out;
      case Op::splat: return Lanes(t.lanes, x(0)[0]);
      case Op::iota:
        for (size_t i = 0; i < out.size(); ++i) out[i] = wrap(t.elem, static_cast<int64_t>(i));
        return out;
      case Op::shuffle:
        for (size_t i = 0; i < out.size(); ++i) {
          const auto k = static_cast<size_t>(inst.indices[i]), n = x(0).size();
          out[i] = k < n ? x(0)[k] : x(1)[k - n];
        }
        return out;
      case Op::extract: return {x(0)[static_cast<size_t>(inst.indices[0])]};
      case Op::insert:
        out = x(0);
        out[static_cast<size_t>(inst.indices[0])] = x(1)[0];
        return out;
      case Op::reduce: {
        Lanes v = x(0);
        while (v.size() > 1) {
          const size_t half = v.size() / 2;
          for (size_t i = 0; i < half; ++i) {
            const uint64_t pair[3] = {v[i], v[i + half]};
            v[i] = apply(inst.fn, t.elem, pair, 2);
          }
          v.resize(half);
        }
        return v;
      }
      case Op::ptr_add: return {x(0)[0] + x(1)[0]};
      case Op::load: {
        const int64_t count = inst.operands.size() > 1 ? integer(inst.operands[1]) : t.lanes;
        const uint8_t* p = pointer(inst.operands[0]);
        for (int64_t i = 0; i < std::min<int64_t>(count, t.lanes); ++i)
          out[static_cast<size_t>(i)] = read(inst.dtype, p + i * byte_size(inst.dtype));
        return out;
      }
      case Op::address: out[0] = x(0)[0]; return out;
      case Op::load_ptr: std::memcpy(out.data(), pointer(inst.operands[0]), sizeof(void*)); return out;
      case Op::fetch_add: {
        uint8_t* p = pointer(inst.operands[0]);
        out[0] = read(DType::i64, p);
        write(DType::i64, p, out[0] + x(1)[0]);
        return out;
      }
      case Op::gather:
        for (size_t i = 0; i < out.size(); ++i)
          if (x(2)[i])
            out[i] =
                read(inst.dtype, pointer(inst.operands[0]) + static_cast<int64_t>(x(1)[i]) * byte_size(inst.dtype));
        return out;
      case Op::store:
      case Op::stream:
      case Op::fence:
      case Op::scatter:
      case Op::prefetch:
      case Op::matrix_bf16:
      case Op::for_loop:
      case Op::if_else:
      case Op::yield: break;
    }
    CHECK(false, "{} gives no value", vec::info(inst.op).name);
  }

  const vec::Function& f_;
  int64_t budget_;
  std::vector<Lanes> values_;
};

}  // namespace

bool interpret(const Function& function, const void* call, int64_t task, void* scratch,
               const InterpretOptions& options) {
  return Interpreter(function, options.max_steps).run(call, task, scratch);
}

}  // namespace cleave::vec
