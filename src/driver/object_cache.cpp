#include "driver/object_cache.hpp"

#include <filesystem>

#include "driver/compile.hpp"

namespace cleave::driver {

namespace {
Machine unmeasured(Machine m) {
  m.peak_gflops = m.l2_gbytes = m.l3_gbytes = m.dram_gbytes = m.exp_cycles = m.gigahertz = 0;
  return m;
}
}  // namespace

FileCache folder_of_cache(const std::string& cache_dir, const char* name, const char* suffix) {
  return cache_dir.empty() ? FileCache() : FileCache((std::filesystem::path(cache_dir) / name).string(), suffix);
}

ObjectCache::ObjectCache(const std::string& cache_dir) : files_(folder_of_cache(cache_dir, "objects", ".o")) {}

std::string ObjectCache::key(const tile::Program& program, const Machine& machine) const {
  return key(tile::print(program), machine);
}

std::string ObjectCache::key(std::string_view program, const Machine& machine) const {
  if (!files_.keeps()) return "";
  // Code does not depend on what was measured.
  return FileCache::key(
      fmt::format("{}\n{}\n{}\n{}", code_key(machine), build_stamp(), print(unmeasured(machine)), program));
}

}  // namespace cleave::driver
