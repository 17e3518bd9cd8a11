// Typed 32-bit ids and the append-only stores they index.
//
// Representations refer to each other by id, never by pointer: an id stays valid while its store lives, is cheap to
// copy and hash, and two stores cannot be mixed up because the tag is part of the type.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>

namespace cleave {

template <class Tag>
struct Id {
  static constexpr uint32_t kNone = ~uint32_t{0};
  uint32_t index = kNone;

  constexpr Id() = default;
  constexpr explicit Id(uint32_t i) : index(i) {}
  constexpr bool valid() const { return index != kNone; }
  constexpr auto operator<=>(const Id&) const = default;
};

// Append-only and chunked: references to elements survive growth.
template <class T, class Tag>
class Store {
 public:
  Store() = default;
  Store(const Store&) = default;
  Store& operator=(const Store&) = default;
  // A deque allocates when it is moved, so its move may throw, and vectors would copy what has one.
  Store(Store&&) noexcept = default;
  Store& operator=(Store&&) noexcept = default;

  Id<Tag> add(T value) {
    items_.push_back(std::move(value));
    return Id<Tag>(static_cast<uint32_t>(items_.size() - 1));
  }
  const T& operator[](Id<Tag> id) const { return items_.at(id.index); }
  T& operator[](Id<Tag> id) { return items_.at(id.index); }
  size_t size() const { return items_.size(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

 private:
  std::deque<T> items_;
};

}  // namespace cleave

template <class Tag>
struct std::hash<cleave::Id<Tag>> {
  size_t operator()(cleave::Id<Tag> id) const noexcept { return std::hash<uint32_t>{}(id.index); }
};
