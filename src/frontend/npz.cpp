#include "frontend/npz.hpp"

#include <zlib.h>

#include <cstring>

#include "base/codes.hpp"
#include "frontend/file.hpp"

namespace cleave {

namespace {

constexpr int64_t kMaxFileBytes = int64_t{1} << 36;
constexpr uint64_t kMaxMemberBytes = uint64_t{1} << 34;
constexpr size_t kMaxMembers = 100000;

class Reader {
 public:
  explicit Reader(std::span<const std::byte> b) : b_(b) {}
  // Little-endian; 0 behind the end, which the callers' checks of offsets catch.
  uint64_t at(uint64_t offset, int bytes) const {
    uint64_t v = 0;
    for (int i = 0; i < bytes; ++i)
      if (offset + static_cast<uint64_t>(i) < b_.size())
        v |= static_cast<uint64_t>(std::to_integer<uint8_t>(b_[offset + static_cast<uint64_t>(i)])) << (8 * i);
    return v;
  }

 private:
  std::span<const std::byte> b_;
};

void put(std::vector<std::byte>& out, uint64_t v, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<std::byte>(v >> (8 * i)));
}

bool inflate_raw(std::span<const std::byte> from, std::vector<std::byte>& to) {
  z_stream z{};
  if (inflateInit2(&z, -MAX_WBITS) != Z_OK) return false;
  z.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(from.data()));
  z.next_out = reinterpret_cast<Bytef*>(to.data());
  uint64_t in = from.size(), out = to.size();
  int state = Z_OK;
  while (state == Z_OK) {
    z.avail_in = static_cast<uInt>(std::min<uint64_t>(in, 1u << 30));
    z.avail_out = static_cast<uInt>(std::min<uint64_t>(out, 1u << 30));
    in -= z.avail_in;
    out -= z.avail_out;
    state = inflate(&z, Z_NO_FLUSH);
    in += z.avail_in;
    out += z.avail_out;
    if (state == Z_BUF_ERROR || (state == Z_OK && (in == 0 || out == 0))) break;
  }
  inflateEnd(&z);
  return state == Z_STREAM_END && out == 0;
}

}  // namespace

Result<std::map<std::string, NpyArray>> parse_npz(std::span<const std::byte> file, std::string_view name) {
  auto bad = [&](std::string why) { return diagnose(Code::npy_malformed, name, why); };
  const Reader r(file);
  const uint64_t size = file.size();
  if (size < 22) return bad("it is no zip archive");
  // The end record is the last thing but a comment.
  uint64_t end = size;
  for (uint64_t back = 22; back <= std::min<uint64_t>(size, 22 + 65535); ++back)
    if (r.at(size - back, 4) == 0x06054b50) {
      end = size - back;
      break;
    }
  if (end == size) return bad("it is no zip archive");
  uint64_t count = r.at(end + 10, 2), at = r.at(end + 16, 4);
  if ((count == 0xffff || at == 0xffffffff) && end >= 20 && r.at(end - 20, 4) == 0x07064b50) {
    const uint64_t wide = r.at(end - 12, 8);
    if (wide < size && r.at(wide, 4) == 0x06064b50) {
      count = r.at(wide + 32, 8);
      at = r.at(wide + 48, 8);
    }
  }
  if (count > kMaxMembers) return bad("it has too many members");
  std::map<std::string, NpyArray> out;
  for (uint64_t i = 0; i < count; ++i) {
    if (at > size || size - at < 46 || r.at(at, 4) != 0x02014b50) return bad("its directory is damaged");
    const uint64_t method = r.at(at + 10, 2), names = r.at(at + 28, 2), extra = r.at(at + 30, 2);
    uint64_t packed = r.at(at + 20, 4), plain = r.at(at + 24, 4), local = r.at(at + 42, 4);
    if (size - at < 46 + names + extra) return bad("its directory is damaged");
    std::string member(reinterpret_cast<const char*>(file.data() + at + 46), names);
    // Sizes beyond 32 bits are in an extra field, in a fixed order.
    for (uint64_t e = at + 46 + names; e + 4 <= at + 46 + names + extra;) {
      const uint64_t length = r.at(e + 2, 2);
      if (r.at(e, 2) == 1) {
        uint64_t f = e + 4;
        for (uint64_t* v : {&plain, &packed, &local})
          if (*v == 0xffffffff) {
            *v = r.at(f, 8);
            f += 8;
          }
      }
      e += 4 + length;
    }
    at += 46 + names + extra + r.at(at + 32, 2);
    if (member.size() < 4 || member.substr(member.size() - 4) != ".npy") continue;
    member.resize(member.size() - 4);
    if (local > size || size - local < 30 || r.at(local, 4) != 0x04034b50) return bad("a member is damaged");
    const uint64_t data = local + 30 + r.at(local + 26, 2) + r.at(local + 28, 2);
    if (data > size || packed > size - data) return bad("a member is cut off");
    if (plain > kMaxMemberBytes || plain > packed * 1100 + 1024) return bad("a member declares too many bytes");
    const auto stored = file.subspan(data, packed);
    std::vector<std::byte> bytes;
    if (method == 0) {
      bytes.assign(stored.begin(), stored.end());
    } else if (method == 8) {
      bytes.resize(plain);
      if (!inflate_raw(stored, bytes)) return bad("a member cannot be inflated");
    } else {
      return bad(fmt::format("the compression method {} is not supported", method));
    }
    TRY_ASSIGN(NpyArray array, parse_npy(bytes, member, true));
    out.insert_or_assign(std::move(member), std::move(array));
  }
  return out;
}

Result<std::map<std::string, NpyArray>> read_npz(const std::string& path) {
  TRY_ASSIGN(const std::vector<std::byte> file, read_bytes(path, 0, -1, kMaxFileBytes));
  return parse_npz(file, path);
}

std::vector<std::byte> format_npz(const std::map<std::string, NpyArray>& arrays) {
  std::vector<std::byte> out, directory;
  for (const auto& [name, array] : arrays) {
    const std::vector<std::byte> bytes = format_npy(array);
    const std::string member = name + ".npy";
    const auto crc = static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
    const uint64_t local = out.size();
    CHECK(local + bytes.size() < 0xffffffff, "an archive beyond 4 GiB");
    auto common = [&](std::vector<std::byte>& to) {
      put(to, 20, 2);    // version
      put(to, 0, 2);     // flags
      put(to, 0, 2);     // stored
      put(to, 0, 2);     // time
      put(to, 0x21, 2);  // 1980-01-01
      put(to, crc, 4);
      put(to, bytes.size(), 4);
      put(to, bytes.size(), 4);
      put(to, member.size(), 2);
      put(to, 0, 2);  // extra
    };
    auto text = [&](std::vector<std::byte>& to) {
      for (char c : member) to.push_back(static_cast<std::byte>(c));
    };
    put(out, 0x04034b50, 4);
    common(out);
    text(out);
    out.insert(out.end(), bytes.begin(), bytes.end());
    put(directory, 0x02014b50, 4);
    put(directory, 20, 2);
    common(directory);
    put(directory, 0, 2);  // comment
    put(directory, 0, 2);  // disk
    put(directory, 0, 2);  // attributes
    put(directory, 0, 4);
    put(directory, local, 4);
    text(directory);
  }
  const uint64_t first = out.size();
  out.insert(out.end(), directory.begin(), directory.end());
  put(out, 0x06054b50, 4);
  put(out, 0, 4);
  put(out, arrays.size(), 2);
  put(out, arrays.size(), 2);
  put(out, directory.size(), 4);
  put(out, first, 4);
  put(out, 0, 2);
  return out;
}

Diagnostics write_npz(const std::string& path, const std::map<std::string, NpyArray>& arrays) {
  return write_bytes(path, format_npz(arrays));
}

}  // namespace cleave
