#include "frontend/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "base/codes.hpp"

namespace cleave {

Result<std::vector<std::byte>> read_bytes(const std::string& path, int64_t offset, int64_t length, int64_t limit) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return diagnose(Code::file_unreadable, path, std::strerror(errno));
  struct Closer {
    int descriptor;
    ~Closer() { ::close(descriptor); }
  } closer{descriptor};

  struct stat status{};
  if (::fstat(descriptor, &status) != 0) return diagnose(Code::file_unreadable, path, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) return diagnose(Code::file_unreadable, path, "it is not a regular file");
  const int64_t size = status.st_size;
  if (offset < 0 || offset > size) {
    return diagnose(Code::file_unreadable, path, fmt::format("offset {} lies outside its {} bytes", offset, size));
  }
  if (length < 0) length = size - offset;
  if (length > size - offset) {
    return diagnose(Code::file_unreadable, path,
                    fmt::format("it has {} bytes, {} at offset {} are needed", size, length, offset));
  }
  if (length > limit) return diagnose(Code::file_too_large, path, length, limit);

  std::vector<std::byte> bytes(static_cast<size_t>(length));
  int64_t done = 0;
  while (done < length) {
    const ssize_t got = ::pread(descriptor, bytes.data() + done, static_cast<size_t>(length - done), offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return diagnose(Code::file_unreadable, path, std::strerror(errno));
    if (got == 0) return diagnose(Code::file_unreadable, path, "it became shorter while it was read");
    done += got;
  }
  return bytes;
}

Diagnostics write_bytes(const std::string& path, std::span<const std::byte> bytes) {
  const std::string temporary = fmt::format("{}.{}.part", path, ::getpid());
  std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  out.close();
  std::error_code error;
  if (!out) {
    error = std::error_code(errno, std::generic_category());
  } else {
    std::filesystem::rename(temporary, path, error);
    if (!error) return {};
  }
  std::error_code ignored;
  std::filesystem::remove(temporary, ignored);
  return {diagnose(Code::file_unwritable, path, error.message())};
}

}  // namespace cleave
