// Memory for tensors, packed weights, workspaces and scratch: 64-byte aligned, on huge pages when it is big.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace cleave::runtime {

class Buffer {
 public:
  Buffer() = default;
  // Zero-filled. From 2 MiB on it is aligned to huge pages and asks for them (MADV_HUGEPAGE: +40 % DRAM read
  // bandwidth).
  explicit Buffer(int64_t bytes);
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Buffer();

  void* data() { return data_; }
  const void* data() const { return data_; }
  uint8_t* bytes() { return static_cast<uint8_t*>(data_); }
  const uint8_t* bytes() const { return static_cast<const uint8_t*>(data_); }
  int64_t size() const { return size_; }
  template <class T>
  T* as() {
    return static_cast<T*>(data_);
  }
  template <class T>
  const T* as() const {
    return static_cast<const T*>(data_);
  }

 private:
  void swap(Buffer& other) {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(mapped_, other.mapped_);
  }
  void* data_ = nullptr;
  int64_t size_ = 0;
  int64_t mapped_ = 0;  // bytes of the mapping, 0: from the heap
};

}  // namespace cleave::runtime
