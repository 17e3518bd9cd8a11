#include "leir/type.hpp"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.hpp"

namespace cleave::leir {

namespace {

struct Row {
  const char* text;
  TypeClass kind;
  int64_t bytes;
};
constexpr Row kRows[] = {
#define ELEMENT_TYPE(name, text, kind, bytes, rank) {text, TypeClass::kind, bytes},
#include "leir/language.def"
};
const Row& row(Type t) { return kRows[static_cast<size_t>(t)]; }

}  // namespace

const char* name(Type type) { return row(type).text; }

std::optional<Type> type_from_name(std::string_view text) {
  for (size_t i = 0; i < std::size(kRows); ++i)
    if (text == kRows[i].text) return static_cast<Type>(i);
  return std::nullopt;
}

int64_t byte_size(Type type) { return row(type).bytes; }
TypeClass class_of(Type type) { return row(type).kind; }

std::optional<DType> as_dtype(Type type) {
  static const auto kTable = [] {
    std::array<std::optional<DType>, std::size(kRows)> out;
    for (size_t i = 0; i < out.size(); ++i) out[i] = dtype_from_name(kRows[i].text);
    return out;
  }();
  return kTable[static_cast<size_t>(type)];
}
Type from_dtype(DType dtype) { return *type_from_name(cleave::name(dtype)); }

double round_real(Type type, double value) {
  switch (type) {
    case Type::f64: return value;
    case Type::f32: return static_cast<double>(static_cast<float>(value));
    case Type::f16: return round_to(DType::f16, value);
    case Type::bf16: return round_to(DType::bf16, value);
    default: CHECK(false, "{} is not a real type", name(type));
  }
}

int64_t lowest_integer(Type type) {
  switch (class_of(type)) {
    case TypeClass::signed_integer: return std::numeric_limits<int64_t>::min() >> (64 - 8 * byte_size(type));
    default: return 0;
  }
}

int64_t highest_integer(Type type) {
  switch (class_of(type)) {
    case TypeClass::signed_integer: return std::numeric_limits<int64_t>::max() >> (64 - 8 * byte_size(type));
    case TypeClass::unsigned_integer:
      return static_cast<int64_t>(std::numeric_limits<uint64_t>::max() >> (64 - 8 * byte_size(type)));
    case TypeClass::boolean: return 1;
    case TypeClass::real: break;
  }
  CHECK(false, "{} is no integer type", name(type));
}

double lowest_real(Type) { return -std::numeric_limits<double>::infinity(); }

int64_t real_to_integer(Type type, double value) {
  if (class_of(type) == TypeClass::boolean) return value != 0;
  if (std::isnan(value)) return 0;
  value = std::trunc(value);
  const bool is_unsigned = class_of(type) == TypeClass::unsigned_integer;
  const int64_t bits = 8 * byte_size(type) - (is_unsigned ? 0 : 1);
  const double limit = std::ldexp(1.0, static_cast<int>(bits));
  if (value >= limit) return highest_integer(type);
  if (value <= (is_unsigned ? 0.0 : -limit)) return lowest_integer(type);
  return type == Type::u64 ? static_cast<int64_t>(static_cast<uint64_t>(value)) : static_cast<int64_t>(value);
}

int64_t wrap_integer(Type type, int64_t v) {
  switch (type) {
    case Type::i8: return static_cast<int8_t>(v);
    case Type::i16: return static_cast<int16_t>(v);
    case Type::i32: return static_cast<int32_t>(v);
    case Type::u8: return static_cast<uint8_t>(v);
    case Type::u16: return static_cast<uint16_t>(v);
    case Type::u32: return static_cast<uint32_t>(v);
    case Type::boolean: return v != 0;
    default: return v;
  }
}

namespace {
template <class T>
T read(const void* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <class T>
void write(void* p, T v) {
  std::memcpy(p, &v, sizeof v);
}
}  // namespace

double load_real(Type type, const void* p) { return cleave::load_real(*as_dtype(type), p); }
void store_real(Type type, void* p, double v) { cleave::store_real(*as_dtype(type), p, v); }

int64_t load_integer(Type type, const void* p) {
  switch (byte_size(type)) {
    case 1: return class_of(type) == TypeClass::boolean ? read<uint8_t>(p) != 0 : wrap_integer(type, read<uint8_t>(p));
    case 2: return wrap_integer(type, read<uint16_t>(p));
    case 4: return wrap_integer(type, read<uint32_t>(p));
    default: return read<int64_t>(p);
  }
}

void store_integer(Type type, void* p, int64_t v) {
  v = wrap_integer(type, v);
  switch (byte_size(type)) {
    case 1: return write(p, static_cast<uint8_t>(v));
    case 2: return write(p, static_cast<uint16_t>(v));
    case 4: return write(p, static_cast<uint32_t>(v));
    default: return write(p, v);
  }
}

}  // namespace cleave::leir
