#include "runtime/buffer.hpp"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "base/check.hpp"

namespace cleave::runtime {

namespace {
constexpr int64_t kHuge = 2 << 20;
}

Buffer::Buffer(int64_t bytes) : size_(bytes) {
  CHECK(bytes >= 0 && bytes < (int64_t{1} << 46), "a buffer of {} bytes", bytes);
  if (bytes == 0) return;
  if (bytes < kHuge) {
    const size_t rounded = (static_cast<size_t>(bytes) + 63) / 64 * 64;
    data_ = std::aligned_alloc(64, rounded);
    if (!data_) throw std::bad_alloc();
    std::memset(data_, 0, rounded);
    return;
  }
  // Map one huge page more than needed and give back what lies outside the aligned part.
  const int64_t rounded = (bytes + kHuge - 1) / kHuge * kHuge;
  auto* base = static_cast<uint8_t*>(
      mmap(nullptr, static_cast<size_t>(rounded + kHuge), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (base == MAP_FAILED) throw std::bad_alloc();
  const int64_t skip = (kHuge - static_cast<int64_t>(reinterpret_cast<uintptr_t>(base) % kHuge)) % kHuge;
  if (skip > 0) munmap(base, static_cast<size_t>(skip));
  if (skip < kHuge) munmap(base + skip + rounded, static_cast<size_t>(kHuge - skip));
  data_ = base + skip;
  mapped_ = rounded;
  madvise(data_, static_cast<size_t>(rounded), MADV_HUGEPAGE);
}

Buffer::~Buffer() {
  if (mapped_ > 0)
    munmap(data_, static_cast<size_t>(mapped_));
  else
    std::free(data_);
}

}  // namespace cleave::runtime
