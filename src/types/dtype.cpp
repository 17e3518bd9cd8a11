#include "types/dtype.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.hpp"
#include "types/reals.hpp"

namespace cleave {

namespace {

struct Row {
  const char* name;
  int64_t bytes;
  DTypeClass kind;
  DType compute;
  int rank;           // promotion order; of two integer types see promote()
  int mantissa_bits;  // including the hidden one; 0 for integers
  int max_exponent;   // of the largest finite value
  bool is_unsigned;
};

constexpr Row kRows[kDTypes] = {
    {"f64", 8, DTypeClass::real, DType::f64, 5, 53, 1023, false},
    {"f32", 4, DTypeClass::real, DType::f32, 4, 24, 127, false},
    {"f16", 2, DTypeClass::real, DType::f32, 2, 11, 15, false},
    {"bf16", 2, DTypeClass::real, DType::f32, 3, 8, 127, false},
    {"i64", 8, DTypeClass::integer, DType::i64, 1, 0, 0, false},
    {"i32", 4, DTypeClass::integer, DType::i32, 1, 0, 0, false},
    {"i16", 2, DTypeClass::integer, DType::i16, 1, 0, 0, false},
    {"i8", 1, DTypeClass::integer, DType::i8, 1, 0, 0, false},
    {"u32", 4, DTypeClass::integer, DType::u32, 1, 0, 0, true},
    {"u16", 2, DTypeClass::integer, DType::u16, 1, 0, 0, true},
    {"u8", 1, DTypeClass::integer, DType::u8, 1, 0, 0, true},
    {"bool", 1, DTypeClass::boolean, DType::boolean, 0, 0, 0, true},
};

const Row& row(DType d) { return kRows[static_cast<int>(d)]; }

// Of a normal number: floor(log2(|v|)).
int exponent_of(double v) { return static_cast<int>(std::bit_cast<uint64_t>(v) >> 52 & 0x7ff) - 1023; }
double power_of_two(int e) { return std::bit_cast<double>(static_cast<uint64_t>(e + 1023) << 52); }

// Rounds to `bits` significant bits with smallest normal exponent 1 - max_exponent, to nearest even: a number so large
// that its last place is the wanted one is added and taken away again.
double round_bits(double v, int bits, int max_exponent) {
  if (v == 0 || !std::isfinite(v)) return v;
  const double infinite = std::copysign(std::numeric_limits<double>::infinity(), v);
  const int exponent = std::max(exponent_of(v), 1 - max_exponent);
  if (exponent > max_exponent) return infinite;
  const double large = std::copysign(1.5 * power_of_two(exponent + 53 - bits), v);
  const double r = (v + large) - large;
  if (r == 0) return std::copysign(0.0, v);
  return exponent_of(r) > max_exponent ? infinite : r;
}

}  // namespace

const char* name(DType d) { return row(d).name; }

std::optional<DType> dtype_from_name(std::string_view text) {
  for (int i = 0; i < kDTypes; ++i)
    if (text == kRows[i].name) return static_cast<DType>(i);
  return std::nullopt;
}

int64_t byte_size(DType d) { return row(d).bytes; }
DTypeClass class_of(DType d) { return row(d).kind; }
DType compute_type(DType d) { return row(d).compute; }

bool is_unsigned(DType d) { return row(d).is_unsigned; }

int64_t least_integer(DType d) {
  return row(d).is_unsigned ? 0 : std::numeric_limits<int64_t>::min() >> (64 - 8 * row(d).bytes);
}
int64_t greatest_integer(DType d) {
  if (d == DType::boolean) return 1;
  return std::numeric_limits<int64_t>::max() >> (64 - 8 * row(d).bytes - (row(d).is_unsigned ? 1 : 0));
}

DType promote(DType a, DType b) {
  if ((a == DType::f16 && b == DType::bf16) || (a == DType::bf16 && b == DType::f16)) return DType::f32;
  if (is_integer(a) && is_integer(b)) {
    const auto holds = [](DType wide, DType d) {
      return least_integer(wide) <= least_integer(d) && greatest_integer(wide) >= greatest_integer(d);
    };
    for (const DType d : {DType::u8, DType::i8, DType::u16, DType::i16, DType::u32, DType::i32, DType::i64})
      if (holds(d, a) && holds(d, b)) return d;
  }
  return row(a).rank >= row(b).rank ? a : b;
}

double round_to(DType d, double v) {
  switch (d) {
    case DType::f64: return v;
    case DType::f32: return static_cast<double>(static_cast<float>(v));
    default: break;
  }
  CHECK(is_real(d), "{}", name(d));
  return round_bits(v, row(d).mantissa_bits, row(d).max_exponent);
}

int64_t wrap_to(DType d, int64_t v) {
  if (d == DType::boolean) return v != 0;
  const int64_t unused = 64 - 8 * row(d).bytes;
  const uint64_t top = static_cast<uint64_t>(v) << unused;
  return row(d).is_unsigned ? static_cast<int64_t>(top >> unused) : static_cast<int64_t>(top) >> unused;
}

double unit_roundoff(DType d) { return is_real(d) ? std::ldexp(1.0, -row(d).mantissa_bits) : 0.0; }

double largest_finite(DType d) {
  return std::ldexp(2.0 - std::ldexp(1.0, 1 - row(d).mantissa_bits), row(d).max_exponent);
}

uint16_t encode_f16(double value) {
  const double v = round_to(DType::f16, value);
  const uint16_t sign = std::signbit(v) ? 0x8000 : 0;
  if (std::isnan(v)) return sign | 0x7e00;
  if (std::isinf(v)) return sign | 0x7c00;
  const double a = std::fabs(v);
  if (a < 0x1p-14) return sign | static_cast<uint16_t>(a * 0x1p24);
  return sign | static_cast<uint16_t>((exponent_of(a) + 15) << 10 | (std::bit_cast<uint64_t>(a) >> 42 & 0x3ff));
}

double decode_f16(uint16_t bits) {
  const double sign = bits & 0x8000 ? -1.0 : 1.0;
  const int e = (bits >> 10) & 0x1f;
  const int m = bits & 0x3ff;
  if (e == 31) return m ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  return sign * (e == 0 ? m * 0x1p-24 : (m | 0x400) * power_of_two(e - 25));
}

uint16_t encode_bf16(double value) {
  const double v = round_to(DType::bf16, value);
  if (std::isnan(v)) return std::signbit(v) ? 0xffc0 : 0x7fc0;
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(v)) >> 16);
}

double decode_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

namespace {
template <class T>
T read(const void* address) {
  T v;
  std::memcpy(&v, address, sizeof v);
  return v;
}
template <class T>
void write(void* address, T v) {
  std::memcpy(address, &v, sizeof v);
}
}  // namespace

void round_reals(DType d, std::span<double> values) {
  if (d == DType::f64) return;
  if (d == DType::f32) {
    for (double& v : values) v = static_cast<float>(v);
    return;
  }
  for (double& v : values) v = round_bits(v, row(d).mantissa_bits, row(d).max_exponent);
}

void load_reals(DType d, const void* from, std::span<double> to) {
  auto each = [&]<class T>(const T* x, auto decode) {
    for (size_t i = 0; i < to.size(); ++i) to[i] = decode(x[i]);
  };
  switch (d) {
    case DType::f64: return each(static_cast<const double*>(from), [](double x) { return x; });
    case DType::f32: return each(static_cast<const float*>(from), [](float x) { return static_cast<double>(x); });
    case DType::f16: return each(static_cast<const uint16_t*>(from), decode_f16);
    case DType::bf16: return each(static_cast<const uint16_t*>(from), decode_bf16);
    default: CHECK(false, "{} is not a real type", name(d));
  }
}

void store_reals(DType d, std::span<const double> from, void* to) {
  auto each = [&]<class T>(T* x, auto encode) {
    for (size_t i = 0; i < from.size(); ++i) x[i] = encode(from[i]);
  };
  switch (d) {
    case DType::f64: return each(static_cast<double*>(to), [](double x) { return x; });
    case DType::f32: return each(static_cast<float*>(to), [](double x) { return static_cast<float>(x); });
    case DType::f16: return each(static_cast<uint16_t*>(to), encode_f16);
    case DType::bf16: return each(static_cast<uint16_t*>(to), encode_bf16);
    default: CHECK(false, "{} is not a real type", name(d));
  }
}

double load_real(DType d, const void* p) {
  switch (d) {
    case DType::f64: return read<double>(p);
    case DType::f32: return read<float>(p);
    case DType::f16: return decode_f16(read<uint16_t>(p));
    case DType::bf16: return decode_bf16(read<uint16_t>(p));
    default: return static_cast<double>(load_integer(d, p));
  }
}

int64_t load_integer(DType d, const void* p) {
  switch (d) {
    case DType::i64: return read<int64_t>(p);
    case DType::i32: return read<int32_t>(p);
    case DType::i16: return read<int16_t>(p);
    case DType::i8: return read<int8_t>(p);
    case DType::u32: return read<uint32_t>(p);
    case DType::u16: return read<uint16_t>(p);
    case DType::u8: return read<uint8_t>(p);
    case DType::boolean: return read<uint8_t>(p) != 0;
    default: CHECK(false, "{} is not an integer type", name(d));
  }
}

void store_real(DType d, void* p, double v) {
  switch (d) {
    case DType::f64: return write(p, v);
    case DType::f32: return write(p, static_cast<float>(v));
    case DType::f16: return write(p, encode_f16(v));
    case DType::bf16: return write(p, encode_bf16(v));
    default: CHECK(false, "{} is not a real type", name(d));
  }
}

void store_integer(DType d, void* p, int64_t v) {
  v = wrap_to(d, v);
  switch (d) {
    case DType::i64: return write(p, v);
    case DType::i32:
    case DType::u32: return write(p, static_cast<uint32_t>(v));
    case DType::i16:
    case DType::u16: return write(p, static_cast<uint16_t>(v));
    case DType::i8:
    case DType::u8:
    case DType::boolean: return write(p, static_cast<uint8_t>(v));
    default: CHECK(false, "{} is not an integer type", name(d));
  }
}

int64_t real_to_integer(DType to, double v) {
  if (to == DType::boolean) return v != 0;  // NaN != 0 is true
  if (std::isnan(v)) return 0;
  CHECK(is_integer(to), "{} is not an integer type", name(to));
  const int64_t lo = least_integer(to), hi = greatest_integer(to);
  v = std::trunc(v);
  if (v <= static_cast<double>(lo)) return lo;
  if (v >= static_cast<double>(hi)) return hi;
  return static_cast<int64_t>(v);
}

}  // namespace cleave
