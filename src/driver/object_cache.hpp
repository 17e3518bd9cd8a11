// Object code of tile programs, kept on disk: what was compiled once is loaded in a millisecond.
//
// A file's name is the hash of the program's text, the compiler's build, LLVM and the target; its first line is the
// hash of the object, so damaged files are not loaded. Files are renamed into place whole, and the least recently used
// ones go when there are more than kMaxCacheBytes. The cache is a convenience: that it cannot be read or written is no
// error.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "machine/machine.hpp"
#include "tile/tile.hpp"

namespace cleave::driver {

constexpr int64_t kMaxCacheBytes = int64_t{256} << 20;

class ObjectCache {
 public:
  // `cache_dir`: the cache folder of the command; empty: nothing is kept.
  explicit ObjectCache(const std::string& cache_dir);

  std::string key(const tile::Program& program, const Machine& machine) const;
  std::vector<uint8_t> find(const std::string& key) const;  // empty: not there
  void keep(const std::string& key, const std::vector<uint8_t>& object) const;

 private:
  std::string folder_;
};

}  // namespace cleave::driver
