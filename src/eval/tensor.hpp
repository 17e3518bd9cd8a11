// Dense host tensors: what the interpreters compute with, and what every result is judged against.
//
// Elements are in row-major order, whatever memory they came from. Reals are kept as double, integers and bools as
// int64, so that a value and its storage type are separate: a Tensor of dtype f16 may hold more digits than f16 has.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "types/dtype.hpp"

namespace cleave::oracle {

struct Tensor {
  DType dtype = DType::f32;
  std::vector<int64_t> extents;
  std::vector<double> reals;  // when is_real(dtype)
  std::vector<int64_t> ints;  // otherwise

  bool real() const { return is_real(dtype); }
  int64_t elements() const { return static_cast<int64_t>(real() ? reals.size() : ints.size()); }
  // Any element as a double.
  double at(int64_t i) const {
    return real() ? reals[static_cast<size_t>(i)] : static_cast<double>(ints[static_cast<size_t>(i)]);
  }
  void set(int64_t i, double v) {
    if (real())
      reals[static_cast<size_t>(i)] = v;
    else
      ints[static_cast<size_t>(i)] = static_cast<int64_t>(v);
  }
};

int64_t product(std::span<const int64_t> extents);
std::vector<int64_t> dense_strides(std::span<const int64_t> extents);  // in elements, row-major

Tensor zeros(DType dtype, std::vector<int64_t> extents);
Tensor tensor(DType dtype, std::vector<int64_t> extents, std::vector<double> values);
Tensor scalar_tensor(DType dtype, double value);

// Strided memory: strides are in elements and may be negative or 0; `first` is the address of element (0, ..., 0).
Tensor from_memory(DType dtype, std::span<const int64_t> extents, std::span<const int64_t> strides, const void* first);
Tensor from_dense(DType dtype, std::span<const int64_t> extents, const void* bytes);
void to_memory(const Tensor& tensor, std::span<const int64_t> strides, void* first);
std::vector<std::byte> to_dense(const Tensor& tensor);

// Rounds reals to their dtype and wraps integers, as storing and loading would.
void round_to_storage(Tensor& tensor);

// How far `got` is from `expected`. NaN matches NaN and an infinity the same infinity only; anything else there, and a
// different dtype, shape, integer or bool, is a mismatch. `allowed` is the greatest error of element i.
struct Difference {
  bool same_kind = true;   // dtype and extents agree
  int64_t mismatches = 0;  // elements beyond what is allowed
  int64_t worst = -1;      // the element with the largest error in units of what is allowed
  double max_abs = 0;      // over elements that are finite in both
  double max_rel = 0;      // |got - expected| / |expected|, over elements with expected != 0
  std::string text;        // one line on the worst element; empty when there are no mismatches
  bool ok() const { return same_kind && mismatches == 0; }
};
// |got - expected| <= absolute + relative |expected|.
Difference compare(const Tensor& got, const Tensor& expected, double relative, double absolute);
// |got - expected| <= allowed[i]; an infinite allowance accepts everything.
Difference compare(const Tensor& got, const Tensor& expected, std::span<const double> allowed);

}  // namespace cleave::oracle
