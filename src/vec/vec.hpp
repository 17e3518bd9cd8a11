// The vector IR: what a kernel does with vectors, scalars and pointers, independent of the machine.
//
// A module is a list of functions. Each has the signature (ptr call, i64 task, ptr scratch), see docs/abi.md, and one
// body block. Values are in SSA form and are named by ids; constants are values without an instruction. Control is
// structured: for_loop with carried values and if_else with results, nothing else, so dominance is nesting. Memory is
// untyped bytes behind pointers; bounds are the business of whoever builds the code. docs/vec.md is the reference.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.hpp"
#include "base/id.hpp"
#include "types/dtype.hpp"
#include "types/scalar.hpp"

namespace cleave::vec {

// Element types of values. f16 and bf16 exist in memory only: loads widen to f32, stores narrow.
enum class Elem : uint8_t { f64, f32, i64, i32, i16, i8, u32, u16, u8, boolean, ptr };

constexpr int kMaxLanes = 256;

struct Type {
  Elem elem = Elem::i64;
  uint16_t lanes = 1;  // 1 is a scalar; pointers are always scalars
  bool operator==(const Type&) const = default;
  Type with(Elem e) const { return {e, lanes}; }
  Type scalar() const { return {elem, 1}; }
};
inline constexpr Type kI64{Elem::i64, 1};
inline constexpr Type kPtr{Elem::ptr, 1};
inline constexpr Type kBool{Elem::boolean, 1};

Elem elem_of(DType dtype);  // of the compute type: f16 and bf16 give f32
DType dtype_of(Elem elem);  // not for ptr
int bit_width(Elem elem);   // bool counts as 1
inline bool is_float(Elem e) { return e == Elem::f64 || e == Elem::f32; }
inline bool is_int(Elem e) { return e >= Elem::i64 && e <= Elem::u8; }
inline bool is_unsigned(Elem e) { return e >= Elem::u32 && e <= Elem::boolean; }
std::string print(Type type);  // f32x8, i64, ptr, boolx16
inline Type type_of(DType dtype, int lanes) { return {elem_of(dtype), static_cast<uint16_t>(lanes)}; }

enum class Op : uint8_t {
#define VEC_OP(name, operands, results, pure, doc) name,
#include "vec/ops.def"
#undef VEC_OP
};
constexpr int kOps = static_cast<int>(Op::yield) + 1;

struct OpInfo {
  Op op;
  const char* name;
  int operands;
  int results;
  bool pure;
  const char* doc;
};
const OpInfo& info(Op op);

using Value = Id<struct ValueTag>;
using InstId = Id<struct InstTag>;
using BlockId = Id<struct BlockTag>;

enum class ValueKind : uint8_t { constant, argument, result };

struct ValueInfo {
  Type type;
  ValueKind kind = ValueKind::result;
  InstId inst;    // of a result
  BlockId block;  // of an argument (of the function's body: call, task, scratch)
  uint64_t bits =
      0;  // of a constant: the bits of one element (f64 as a double, f32 as a float, integers sign-extended)
};

struct Inst {
  Op op{};
  Fn fn{};                      // apply, reduce
  DType dtype = DType::f32;     // load, store, gather, scatter: the element type in memory
  std::vector<Value> operands;  // load: ptr [count]; store: value ptr [count]; gather: base indices mask;
                                // scatter: value base indices mask; for_loop: lo hi step inits...; if_else: condition
  std::vector<Value> results;
  std::vector<int32_t> indices;  // shuffle: one per result lane; extract, insert: the lane; prefetch: locality 0..3
  std::vector<BlockId> blocks;   // for_loop: one; if_else: two
};

struct Block {
  std::vector<Value> arguments;  // for_loop: i and the carried values
  std::vector<InstId> insts;     // the last one of an inner block is a yield
};

struct Function {
  std::string name;
  Store<ValueInfo, ValueTag> values;
  Store<Inst, InstTag> insts;
  Store<Block, BlockTag> blocks;
  BlockId body;

  explicit Function(std::string function_name = "");
  Value call() const { return blocks[body].arguments[0]; }
  Value task() const { return blocks[body].arguments[1]; }
  Value scratch() const { return blocks[body].arguments[2]; }
  Type type(Value v) const { return values[v].type; }
  bool is_constant(Value v) const { return values[v].kind == ValueKind::constant; }
  const Inst* definition(Value v) const {  // of a result, else null
    return values[v].kind == ValueKind::result ? &insts[values[v].inst] : nullptr;
  }
};

struct Module {
  std::vector<Function> functions;
  const Function* find(std::string_view name) const;
};

// A constant's value: of a real element, of an integer or bool element.
double constant_real(const ValueInfo& v);
int64_t constant_int(const ValueInfo& v);
uint64_t real_bits(Elem elem, double value);  // rounds to the element type

// The operands of matrix_bf16, in this order: C (f32), A (bf16, depth contiguous) and B (bf16, in pairs: elements 2p
// and 2p + 1 of a column lie side by side), each with the bytes from one row (of B: pair of rows) to the next; rows,
// columns and pairs of depth. Its indices: 16-row tiles, 16-column tiles (1 or 2 each), and 1 where C is added to.
enum class MatrixOperand : uint8_t { c, c_stride, a, a_stride, b, b_stride, rows, columns, pairs };
constexpr int kMatrixTile = 16;  // rows, columns and pairs of a tile

// All violations of the rules, empty when there are none. Never trips a CHECK, whatever the module.
Diagnostics verify(const Module& module);

bool uses_matrix_unit(const Module& module);

// The text form; parse(print(m)) prints the same text. Values are numbered in the order of the text.
std::string print(const Module& module);
std::string print(const Function& function);
Result<Module> parse(const SourceText& source);  // verified

}  // namespace cleave::vec
