#include "driver/file_cache.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <span>

#include "driver/sha256.hpp"
#include "frontend/file.hpp"

namespace cleave::driver {

namespace fs = std::filesystem;

namespace {

constexpr size_t kHash = 64;  // hexadecimal digits, the first line of a file

std::string hash_of(std::span<const std::byte> bytes) { return sha256_hex(bytes); }

// Removes the least recently used files until three quarters of the limit are left.
void make_room(const fs::path& folder) {
  struct File {
    fs::file_time_type used;
    fs::path path;
    int64_t bytes;
  };
  std::vector<File> files;
  int64_t total = 0;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code gone;
    const auto bytes = static_cast<int64_t>(at->file_size(gone));
    const auto used = at->last_write_time(gone);
    if (gone) continue;
    files.push_back({used, at->path(), bytes});
    total += bytes;
  }
  if (total <= kMaxCacheBytes) return;
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) { return a.used < b.used; });
  for (const File& f : files) {
    if (total <= kMaxCacheBytes / 4 * 3) return;
    fs::remove(f.path, error);
    total -= f.bytes;
  }
}

}  // namespace

const std::string& build_stamp() {
  static const std::string stamp = [] {
    Dl_info info;
    std::error_code error;
    if (dladdr(reinterpret_cast<const void*>(&build_stamp), &info) == 0 || !info.dli_fname) return std::string();
    const fs::path file = fs::exists(info.dli_fname, error) ? fs::path(info.dli_fname) : fs::path("/proc/self/exe");
    const auto bytes = fs::file_size(file, error);
    const auto time = fs::last_write_time(file, error);
    return fmt::format("{} {}", bytes, time.time_since_epoch().count());
  }();
  return stamp;
}

std::string FileCache::key(std::string_view text) { return hash_of(std::as_bytes(std::span(text))); }

std::vector<uint8_t> FileCache::find(const std::string& key) const {
  if (folder_.empty()) return {};
  const fs::path path = fs::path(folder_) / (key + suffix_);
  std::error_code error;
  if (!fs::exists(path, error)) return {};
  const auto bytes = read_bytes(path.string(), 0, -1, kMaxCacheBytes);
  if (!bytes || bytes->size() <= kHash + 1) return {};
  const auto content = std::span(*bytes).subspan(kHash + 1);
  if (std::string_view(reinterpret_cast<const char*>(bytes->data()), kHash) != hash_of(content)) {
    fs::remove(path, error);
    return {};
  }
  fs::last_write_time(path, fs::file_time_type::clock::now(), error);
  const auto* first = reinterpret_cast<const uint8_t*>(content.data());
  return {first, first + content.size()};
}

void FileCache::keep(const std::string& key, const std::vector<uint8_t>& content) const {
  if (folder_.empty()) return;
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) return;
  const std::string hash = hash_of(std::as_bytes(std::span(content))) + "\n";
  std::vector<std::byte> bytes;
  bytes.reserve(hash.size() + content.size());
  for (const char c : hash) bytes.push_back(static_cast<std::byte>(c));
  for (const uint8_t b : content) bytes.push_back(static_cast<std::byte>(b));
  if (write_bytes((fs::path(folder_) / (key + suffix_)).string(), bytes).empty()) make_room(folder_);
}

}  // namespace cleave::driver
