#include "vec/vec.hpp"

#include <bit>

namespace cleave::vec {

namespace {

constexpr OpInfo kOpInfos[] = {
#define VEC_OP(name, operands, results, pure, doc) {Op::name, #name, operands, results, pure, doc},
#include "vec/ops.def"
#undef VEC_OP
};

}  // namespace

const OpInfo& info(Op op) { return kOpInfos[static_cast<size_t>(op)]; }

Elem elem_of(DType dtype) {
  switch (compute_type(dtype)) {
    case DType::f64: return Elem::f64;
    case DType::f32:
    case DType::f16:
    case DType::bf16: return Elem::f32;
    case DType::i64: return Elem::i64;
    case DType::i32: return Elem::i32;
    case DType::i16: return Elem::i16;
    case DType::i8: return Elem::i8;
    case DType::u32: return Elem::u32;
    case DType::u16: return Elem::u16;
    case DType::u8: return Elem::u8;
    case DType::boolean: return Elem::boolean;
  }
  return Elem::f32;
}

DType dtype_of(Elem elem) {
  switch (elem) {
    case Elem::f64: return DType::f64;
    case Elem::f32: return DType::f32;
    case Elem::i64: return DType::i64;
    case Elem::i32: return DType::i32;
    case Elem::i16: return DType::i16;
    case Elem::i8: return DType::i8;
    case Elem::u32: return DType::u32;
    case Elem::u16: return DType::u16;
    case Elem::u8: return DType::u8;
    case Elem::boolean: return DType::boolean;
    case Elem::ptr: break;
  }
  CHECK(false, "a pointer has no dtype");
}

int bit_width(Elem elem) {
  switch (elem) {
    case Elem::f64:
    case Elem::i64:
    case Elem::ptr: return 64;
    case Elem::f32:
    case Elem::i32:
    case Elem::u32: return 32;
    case Elem::i16:
    case Elem::u16: return 16;
    case Elem::i8:
    case Elem::u8: return 8;
    case Elem::boolean: return 1;
  }
  return 0;
}

std::string print(Type type) {
  const std::string elem = type.elem == Elem::ptr ? "ptr" : name(dtype_of(type.elem));
  return type.lanes == 1 ? elem : fmt::format("{}x{}", elem, type.lanes);
}

Function::Function(std::string function_name) : name(std::move(function_name)) {
  body = blocks.add({});
  for (const Type type : {kPtr, kI64, kPtr})
    blocks[body].arguments.push_back(values.add({type, ValueKind::argument, {}, body, 0}));
}

const Function* Module::find(std::string_view name) const {
  for (const Function& f : functions)
    if (f.name == name) return &f;
  return nullptr;
}

double constant_real(const ValueInfo& v) {
  return v.type.elem == Elem::f64 ? std::bit_cast<double>(v.bits)
                                  : static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(v.bits)));
}

int64_t constant_int(const ValueInfo& v) { return static_cast<int64_t>(v.bits); }

uint64_t real_bits(Elem elem, double value) {
  return elem == Elem::f64 ? std::bit_cast<uint64_t>(value) : std::bit_cast<uint32_t>(static_cast<float>(value));
}

bool uses_matrix_unit(const Module& module) {
  for (const Function& f : module.functions)
    for (uint32_t i = 0; i < f.insts.size(); ++i)
      if (f.insts[InstId(i)].op == Op::matrix_bf16) return true;
  return false;
}

}  // namespace cleave::vec
