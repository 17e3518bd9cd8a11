// Object code of tile programs, kept on disk: what was compiled once is loaded in a millisecond.
//
// The key is the hash of the program's text, the compiler's build, LLVM and the target.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "driver/file_cache.hpp"
#include "machine/machine.hpp"
#include "tile/tile.hpp"

namespace cleave::driver {

// The files of one kind in the cache folder of the command; without one nothing is kept.
FileCache folder_of_cache(const std::string& cache_dir, const char* name, const char* suffix);

class ObjectCache {
 public:
  // `cache_dir`: the cache folder of the command; empty: nothing is kept.
  explicit ObjectCache(const std::string& cache_dir);

  std::string key(const tile::Program& program, const Machine& machine) const;
  std::string key(std::string_view program, const Machine& machine) const;              // of the text of a program
  std::vector<uint8_t> find(const std::string& key) const { return files_.find(key); }  // empty: not there
  void keep(const std::string& key, const std::vector<uint8_t>& object) const { files_.keep(key, object); }

 private:
  FileCache files_;
};

}  // namespace cleave::driver
