// Builds the body of a vec function.
//
// Every method appends one instruction at the current place and returns its value. Integer scalar arithmetic on
// constants is folded, neutral operands vanish, and equal address computations in scope are shared, so callers need not
// care. A scalar operand beside a vector of the same element type is splat. Wrong types are our bug: CHECK.
#pragma once

#include <array>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "vec/vec.hpp"

namespace cleave::vec {

class Builder {
 public:
  // Appends to the end of the function's body.
  explicit Builder(Function& function);
  Function& function() { return f_; }
  Type type(Value v) const { return f_.type(v); }
  int lanes(Value v) const { return f_.type(v).lanes; }

  // Arguments of the kernel and what hangs off `call`, which is read once, at the start of the function, wherever these
  // are called.
  Value call() const { return f_.call(); }
  Value task() const { return f_.task(); }
  Value scratch() const { return f_.scratch(); }
  Value tensor_data(int tensor);              // ptr
  Value tensor_stride(int tensor, int axis);  // i64, in elements, any sign
  Value extent(int index);                    // i64
  Value scalar_argument(int index);           // f64
  Value workspace();                          // ptr
  // What `make` builds out of these, at the start of the function; made once for each key.
  Value at_start(int key, const std::function<Value()>& make) { return at_entry({5, key, 0}, make); }

  // Constants; a vector type gives the same value in each lane.
  Value i64(int64_t value) { return integer(kI64, value); }
  Value integer(Type type, int64_t value);
  Value real(Type type, double value);
  Value boolean(bool value, int lanes = 1) { return integer({Elem::boolean, static_cast<uint16_t>(lanes)}, value); }
  Value zero(Type type) { return is_float(type.elem) ? real(type, 0) : integer(type, 0); }

  // Elementwise.
  Value apply(Fn fn, std::span<const Value> x);
  Value apply(Fn fn, std::initializer_list<Value> x) { return apply(fn, std::span<const Value>(x.begin(), x.size())); }
  Value add(Value a, Value b) { return apply(Fn::add, {a, b}); }
  Value sub(Value a, Value b) { return apply(Fn::sub, {a, b}); }
  Value mul(Value a, Value b) { return apply(Fn::mul, {a, b}); }
  Value div(Value a, Value b) { return apply(Fn::div, {a, b}); }
  Value floordiv(Value a, Value b) { return apply(Fn::floordiv, {a, b}); }
  Value mod(Value a, Value b) { return apply(Fn::mod, {a, b}); }
  Value max(Value a, Value b) { return apply(Fn::max, {a, b}); }
  Value min(Value a, Value b) { return apply(Fn::min, {a, b}); }
  Value neg(Value a) { return apply(Fn::neg, {a}); }
  Value eq(Value a, Value b) { return apply(Fn::eq, {a, b}); }
  Value ne(Value a, Value b) { return apply(Fn::ne, {a, b}); }
  Value lt(Value a, Value b) { return apply(Fn::lt, {a, b}); }
  Value le(Value a, Value b) { return apply(Fn::le, {a, b}); }
  Value gt(Value a, Value b) { return apply(Fn::gt, {a, b}); }
  Value ge(Value a, Value b) { return apply(Fn::ge, {a, b}); }
  Value select(Value condition, Value a, Value b) { return apply(Fn::where, {condition, a, b}); }
  // a > b ? a : b and a < b ? a : b: one machine instruction; b when either is NaN. See docs/vec.md for when this may
  // stand for max (a softmax row's maximum: put the accumulator second).
  Value max_ordered(Value a, Value b) { return select(gt(a, b), a, b); }
  Value min_ordered(Value a, Value b) { return select(lt(a, b), a, b); }
  Value ceil_div(Value a, int64_t b) { return floordiv(add(a, i64(b - 1)), i64(b)); }  // i64
  Value fma(Value a, Value b, Value c);                                                // a * b + c
  Value cast(Value v, Elem to);                                                        // v itself when it has that type
  Value bitcast(Value v, Elem to);
  Value bit_and(Value a, Value b) { return bits(Op::bit_and, a, b); }
  Value bit_or(Value a, Value b) { return bits(Op::bit_or, a, b); }
  Value bit_xor(Value a, Value b) { return bits(Op::bit_xor, a, b); }
  Value shl(Value a, Value b) { return bits(Op::shl, a, b); }
  Value lshr(Value a, Value b) { return bits(Op::lshr, a, b); }
  Value ashr(Value a, Value b) { return bits(Op::ashr, a, b); }

  // Lanes.
  Value splat(Value scalar, int lanes);
  Value iota(int lanes, Elem elem = Elem::i64);
  Value shuffle(Value a, Value b, std::vector<int32_t> indices);
  Value shuffle(Value a, std::vector<int32_t> indices) { return shuffle(a, a, std::move(indices)); }
  Value slice(Value v, int first, int count);  // lanes first .. first + count - 1
  Value concat(Value a, Value b);
  Value extract(Value v, int lane);
  Value insert(Value v, Value scalar, int lane);
  // fn is add, mul, max, min, logical_and or logical_or; lanes a power of two.
  Value reduce(Fn fn, Value v);

  // Memory. The value of a load has the compute type of the memory dtype. With a count (i64, any value), lanes >= count
  // read as 0, are not written and their memory is not touched.
  Value ptr_add(Value ptr, Value bytes);
  Value ptr_add(Value ptr, int64_t bytes) { return ptr_add(ptr, i64(bytes)); }
  Value element(Value ptr, Value index, DType dtype);  // ptr + index * byte_size(dtype)
  Value load(Value ptr, DType dtype, int lanes = 1, Value count = {});
  void store(Value value, Value ptr, DType dtype, Value count = {});
  Value load_i64(Value ptr) { return load(ptr, DType::i64); }
  Value load_ptr(Value ptr);
  // Adds to the i64 in memory and gives what it held, atomically: what threads that came before have stored is seen.
  Value fetch_add(Value ptr, Value addend);
  Value gather(Value base, Value indices, DType dtype, Value mask = {});  // indices: i64 vector, in elements
  void scatter(Value value, Value base, Value indices, DType dtype, Value mask = {});
  // A block of a product by the matrix unit: vec.hpp says what stands where.
  void matrix_bf16(std::span<const Value> operands, int row_tiles, int column_tiles, bool add);
  Value address(Value ptr);  // i64
  // A store of all lanes past the caches, to a multiple of the vector's size; a fence before other threads may read it.
  void stream(Value value, Value ptr, DType dtype);
  void fence();
  void prefetch(Value ptr, int locality = 3);  // 3 keeps the line in L1, 2 in L2, 1 in L3, 0 non-temporal

  // for (i = lo; i < hi; i += step): the body gets i and the carried values, and returns the next ones. step > 0.
  // Loops that are statically empty or run once are unfolded. Returns the values after the last iteration.
  using LoopBody = std::function<std::vector<Value>(Value i, std::span<const Value> carried)>;
  std::vector<Value> for_loop(Value lo, Value hi, Value step, std::span<const Value> inits, const LoopBody& body);
  std::vector<Value> for_loop(Value lo, Value hi, Value step, std::initializer_list<Value> inits,
                              const LoopBody& body) {
    return for_loop(lo, hi, step, std::span<const Value>(inits.begin(), inits.size()), body);
  }
  void for_each(Value lo, Value hi, Value step, const std::function<void(Value i)>& body);
  // Both branches return values of the same types.
  using Branch = std::function<std::vector<Value>()>;
  std::vector<Value> if_else(Value condition, const Branch& then, const Branch& otherwise);
  void if_then(Value condition, const std::function<void()>& then);

  // A constant i64 (or bool), if it is one.
  std::optional<int64_t> known(Value v) const;
  // Appends an instruction as it is, with results of these types. For passes that rewrite functions.
  std::vector<Value> append(Inst inst, std::span<const Type> result_types);
  Value constant(Type type, uint64_t bits);

 private:
  Value emit(Inst inst, Type result);
  Value at_entry(std::array<int, 3> key, const std::function<Value()>& make);
  Value bits(Op op, Value a, Value b);
  Value fold(Fn fn, std::span<const Value> x);
  std::vector<Value> matched(std::span<const Value> x);
  BlockId open_block(std::span<const Type> arguments);
  void close_block(const std::vector<Value>& yielded, BlockId outer);

  Function& f_;
  BlockId block_;
  std::map<std::pair<uint32_t, uint64_t>, Value> constants_;    // by (type, bits)
  std::vector<std::map<std::vector<uint64_t>, Value>> shared_;  // one scope a nested block
  std::map<std::array<int, 3>, Value> entry_;  // what has been read from `call`, by (field, tensor or index, axis)
  size_t entry_end_ = 0;                       // where the next such read goes in the body
};

}  // namespace cleave::vec
