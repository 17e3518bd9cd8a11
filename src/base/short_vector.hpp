// A vector of small plain values that is nearly always short: up to N of them need no memory of their own.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <type_traits>
#include <utility>

namespace cleave {

template <class T, uint32_t N>
class ShortVector {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  using value_type = T;
  using iterator = T*;
  using const_iterator = const T*;

  ShortVector() = default;
  ShortVector(std::initializer_list<T> values) { append(values.begin(), values.end()); }
  ShortVector(const ShortVector& other) { append(other.begin(), other.end()); }
  ShortVector(ShortVector&& other) noexcept { swap(other); }
  ShortVector& operator=(ShortVector other) noexcept {
    swap(other);
    return *this;
  }
  ~ShortVector() {
    if (capacity_ > N) delete[] memory_.heap;
  }

  T* data() { return capacity_ > N ? memory_.heap : memory_.own; }
  const T* data() const { return capacity_ > N ? memory_.heap : memory_.own; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return data()[i]; }

  void push_back(T value) {
    reserve(size_ + 1);
    data()[size_++] = value;
  }
  template <class It>
  void append(It first, It last) {
    for (; first != last; ++first) push_back(*first);
  }
  void erase(T* at) {
    std::move(at + 1, end(), at);
    --size_;
  }

  friend bool operator==(const ShortVector& a, const ShortVector& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }
  friend auto operator<=>(const ShortVector& a, const ShortVector& b) {
    return std::lexicographical_compare_three_way(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  void reserve(uint32_t n) {
    if (n <= capacity_) return;
    const uint32_t more = std::max(n, 2 * capacity_);
    T* heap = new T[more];
    std::copy(begin(), end(), heap);
    if (capacity_ > N) delete[] memory_.heap;
    memory_.heap = heap;
    capacity_ = more;
  }
  void swap(ShortVector& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }
  union Memory {
    Memory() : own{} {}
    T own[N];
    T* heap;
  } memory_;
  uint32_t size_ = 0, capacity_ = N;
};

}  // namespace cleave
