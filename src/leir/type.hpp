// Element types of LEIR: the promotion, rounding and saturation of its stores.
//
// LEIR has a u64, which the rest of the compiler has not; `as_dtype` gives the types that both know. Values are held as
// double (reals) or int64 (the rest; u64 as the same bits).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "types/dtype.hpp"

namespace cleave::leir {

enum class Type : uint8_t {
#define ELEMENT_TYPE(name, text, kind, bytes, rank) name,
#include "leir/language.def"
};
enum class TypeClass : uint8_t { real, signed_integer, unsigned_integer, boolean };

const char* name(Type type);
std::optional<Type> type_from_name(std::string_view text);
int64_t byte_size(Type type);
TypeClass class_of(Type type);
inline bool is_real(Type t) { return class_of(t) == TypeClass::real; }
std::optional<DType> as_dtype(Type type);
Type from_dtype(DType dtype);

// Rounds to nearest even; f64 is the identity.
double round_real(Type type, double value);
// Truncates towards zero and saturates; NaN gives 0; to bool tests for non-zero.
int64_t real_to_integer(Type type, double value);
// Wraps to the type's width; to bool tests for non-zero.
int64_t wrap_integer(Type type, int64_t value);
// Least and greatest value: the identities of max and min. Reals: the infinities.
double lowest_real(Type type);
int64_t lowest_integer(Type type);
int64_t highest_integer(Type type);

double load_real(Type type, const void* address);
int64_t load_integer(Type type, const void* address);
void store_real(Type type, void* address, double value);      // rounds
void store_integer(Type type, void* address, int64_t value);  // wraps

}  // namespace cleave::leir
