// Files of a cache folder, by key: written whole, checked when they are read, and the least recently used ones go when
// there are more than kMaxCacheBytes. The cache is a convenience: that it cannot be read or written is no error.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cleave::driver {

constexpr int64_t kMaxCacheBytes = int64_t{256} << 20;

// Which build of this compiler: the file it runs from, by size and time. Two builds of one version may differ.
const std::string& build_stamp();

class FileCache {
 public:
  // The files `KEY SUFFIX` of `folder`; empty: nothing is kept.
  explicit FileCache(std::string folder = "", std::string suffix = "")
      : folder_(std::move(folder)), suffix_(std::move(suffix)) {}

  bool keeps() const { return !folder_.empty(); }
  // A key of everything that the text says.
  static std::string key(std::string_view text);
  std::vector<uint8_t> find(const std::string& key) const;  // empty: not there, or damaged
  void keep(const std::string& key, const std::vector<uint8_t>& content) const;

 private:
  std::string folder_, suffix_;
};

}  // namespace cleave::driver
