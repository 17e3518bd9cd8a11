// Element types, their promotion and their rounding.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace cleave {

enum class DType : uint8_t { f64, f32, f16, bf16, i64, i32, i16, i8, u32, u16, u8, boolean };
constexpr int kDTypes = 12;

enum class DTypeClass : uint8_t { real, integer, boolean };

const char* name(DType dtype);                           // "f32", ..., "bool"
std::optional<DType> dtype_from_name(std::string_view);  // exact names only
int64_t byte_size(DType dtype);
DTypeClass class_of(DType dtype);
inline bool is_real(DType d) { return class_of(d) == DTypeClass::real; }
inline bool is_integer(DType d) { return class_of(d) == DTypeClass::integer; }
bool is_unsigned(DType dtype);       // u32, u16, u8 and bool
int64_t least_integer(DType dtype);  // of an integer type or bool
int64_t greatest_integer(DType dtype);

// The type in which values of this type are computed: f64 -> f64; f32, f16, bf16 -> f32; integers and bool are
// themselves (narrow integers wrap after each operation).
DType compute_type(DType dtype);

// The common type of two operands: bool < integers < f16, bf16 < f32 < f64; f16 with bf16 gives f32, and two integer
// types the narrowest that holds both (u8 with i8: i16; u32 with a signed one: i64).
DType promote(DType a, DType b);

// Rounds a real number to a real dtype, to nearest even, overflow to infinity; NaN stays NaN. f64 is the identity.
double round_to(DType dtype, double value);
// Wraps an integer to the range of an integer dtype (two's complement); bool gives 0 or 1.
int64_t wrap_to(DType dtype, int64_t value);

// Unit roundoff: 2^-53, 2^-24, 2^-11, 2^-8; 0 for integers and bool.
double unit_roundoff(DType dtype);
// Largest finite value of a real dtype.
double largest_finite(DType dtype);

// Storage <-> value. A real element is read as double, an integer or bool as int64.
uint16_t encode_f16(double value);
double decode_f16(uint16_t bits);
uint16_t encode_bf16(double value);
double decode_bf16(uint16_t bits);
double load_real(DType dtype, const void* address);
int64_t load_integer(DType dtype, const void* address);
void store_real(DType dtype, void* address, double value);
void store_integer(DType dtype, void* address, int64_t value);

// Conversion semantics of an explicit cast: real -> integer truncates towards zero and saturates, NaN gives 0;
// real -> bool and integer -> bool test for non-zero (NaN is true); integer -> integer wraps.
int64_t real_to_integer(DType to, double value);

}  // namespace cleave
