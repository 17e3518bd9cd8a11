#include "frontend/npy.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

#include "base/codes.hpp"
#include "frontend/file.hpp"

namespace cleave {
namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr int64_t kMaxFileBytes = int64_t{1} << 36;
constexpr size_t kMaxRank = 32;

struct Header {
  std::string descr;
  bool fortran = false;
  std::vector<int64_t> shape;
};

// The header is a Python dictionary with three known keys; this reads exactly that.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  // nullopt when the text is not such a dictionary.
  std::optional<Header> parse() {
    Header header;
    bool has_descr = false, has_order = false, has_shape = false;
    if (!eat('{')) return std::nullopt;
    while (!eat('}')) {
      const auto key = quoted();
      if (!key || !eat(':')) return std::nullopt;
      if (*key == "descr" && !has_descr) {
        const auto value = quoted();
        if (!value) return std::nullopt;
        header.descr = *value;
        has_descr = true;
      } else if (*key == "fortran_order" && !has_order) {
        if (eat_word("True")) {
          header.fortran = true;
        } else if (!eat_word("False")) {
          return std::nullopt;
        }
        has_order = true;
      } else if (*key == "shape" && !has_shape) {
        if (!shape(header.shape)) return std::nullopt;
        has_shape = true;
      } else {
        return std::nullopt;
      }
      if (!eat(',') && !peek('}')) return std::nullopt;
    }
    skip_space();
    if (!text_.empty() || !has_descr || !has_order || !has_shape) return std::nullopt;
    return header;
  }

 private:
  void skip_space() {
    while (!text_.empty() && (text_[0] == ' ' || text_[0] == '\n' || text_[0] == '\t')) text_.remove_prefix(1);
  }
  bool peek(char c) {
    skip_space();
    return !text_.empty() && text_[0] == c;
  }
  bool eat(char c) {
    if (!peek(c)) return false;
    text_.remove_prefix(1);
    return true;
  }
  bool eat_word(std::string_view word) {
    skip_space();
    if (!text_.starts_with(word)) return false;
    text_.remove_prefix(word.size());
    return true;
  }
  std::optional<std::string> quoted() {
    skip_space();
    if (text_.empty() || (text_[0] != '\'' && text_[0] != '"')) return std::nullopt;
    const size_t end = text_.find(text_[0], 1);
    if (end == std::string_view::npos) return std::nullopt;
    std::string value(text_.substr(1, end - 1));
    text_.remove_prefix(end + 1);
    return value;
  }
  bool shape(std::vector<int64_t>& extents) {
    if (!eat('(')) return false;
    while (!eat(')')) {
      skip_space();
      int64_t extent = 0;
      const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), extent);
      if (error != std::errc() || extent < 0 || extents.size() == kMaxRank) return false;
      text_.remove_prefix(static_cast<size_t>(end - text_.data()));
      extents.push_back(extent);
      if (!eat(',') && !peek(')')) return false;
    }
    return true;
  }

  std::string_view text_;
};

struct DescrRow {
  const char* type;
  DType dtype;
  bool u64 = false;
};
constexpr DescrRow kDescrs[] = {{"f8", DType::f64},      {"f4", DType::f32}, {"f2", DType::f16}, {"V2", DType::bf16},
                                {"i8", DType::i64},      {"i4", DType::i32}, {"i2", DType::i16}, {"i1", DType::i8},
                                {"u4", DType::u32},      {"u2", DType::u16}, {"u1", DType::u8},  {"b1", DType::boolean},
                                {"u8", DType::i64, true}};

// The number of elements, or nullopt beyond `limit`.
std::optional<int64_t> count_elements(const std::vector<int64_t>& shape, int64_t limit) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  int64_t count = 1;
  for (const int64_t extent : shape) {
    if (extent > limit / count) return std::nullopt;
    count *= extent;
  }
  return count;
}

void swap_bytes(std::vector<std::byte>& bytes, size_t width) {
  for (size_t i = 0; i + width <= bytes.size(); i += width) std::reverse(bytes.begin() + i, bytes.begin() + i + width);
}

// Column-major to row-major, by counting through the row-major positions.
std::vector<std::byte> to_row_major(const std::vector<std::byte>& from, const std::vector<int64_t>& shape,
                                    size_t width) {
  std::vector<std::byte> to(from.size());
  const size_t rank = shape.size();
  std::vector<int64_t> stride(rank, 1), index(rank, 0);
  for (size_t d = 1; d < rank; ++d) stride[d] = stride[d - 1] * shape[d - 1];
  int64_t source = 0;
  for (size_t target = 0; target < to.size(); target += width) {
    std::memcpy(to.data() + target, from.data() + static_cast<size_t>(source) * width, width);
    for (size_t d = rank; d-- > 0;) {
      source += stride[d];
      if (++index[d] < shape[d]) break;
      source -= stride[d] * shape[d];
      index[d] = 0;
    }
  }
  return to;
}

}  // namespace

int64_t NpyArray::elements() const { return static_cast<int64_t>(bytes.size()) / byte_size(dtype); }

Result<NpyArray> parse_npy(std::span<const std::byte> file, std::string_view name, bool u64) {
  const auto malformed = [&](std::string_view why) { return diagnose(Code::npy_malformed, name, why); };
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (text.size() < 10 || !text.starts_with(kMagic)) return malformed("it does not start with NumPy's signature");
  const int version = static_cast<unsigned char>(text[6]);
  if (version < 1 || version > 3) return malformed(fmt::format("its format version {} is not known", version));
  const size_t length_bytes = version == 1 ? 2 : 4;
  if (text.size() < 8 + length_bytes) return malformed("it ends within the header");
  size_t length = 0;
  for (size_t i = 0; i < length_bytes; ++i)
    length |= static_cast<size_t>(static_cast<unsigned char>(text[8 + i])) << 8 * i;
  const size_t start = 8 + length_bytes;
  if (length > text.size() - start) return malformed("it ends within the header");
  const auto header = HeaderParser(text.substr(start, length)).parse();
  if (!header) return malformed("its header is not a dictionary of descr, fortran_order and shape");

  const std::string_view descr = header->descr;
  const DescrRow* row = nullptr;
  if (descr.size() == 3 && std::string_view("<>=|").find(descr[0]) != std::string_view::npos) {
    for (const DescrRow& r : kDescrs) {
      if (descr.substr(1) == r.type && (!r.u64 || u64)) row = &r;
    }
  }
  if (!row) return diagnose(Code::npy_dtype, name, descr);

  NpyArray array;
  array.dtype = row->dtype;
  array.u64 = row->u64;
  array.shape = header->shape;
  const int64_t width = byte_size(array.dtype);
  const int64_t available = static_cast<int64_t>(text.size() - start - length);
  const auto count = count_elements(array.shape, available / width);
  if (!count || *count * width != available) {
    return malformed(fmt::format("it holds {} bytes of data, which is not what its shape ({}) of {} needs", available,
                                 fmt::join(array.shape, ", "), cleave::name(array.dtype)));
  }
  const auto data = file.subspan(start + length);
  array.bytes.assign(data.begin(), data.end());
  if (descr[0] == '>') swap_bytes(array.bytes, static_cast<size_t>(width));
  if (array.dtype == DType::boolean) {
    for (std::byte& b : array.bytes) b = b == std::byte{0} ? std::byte{0} : std::byte{1};
  }
  if (header->fortran && array.shape.size() > 1) {
    array.bytes = to_row_major(array.bytes, array.shape, static_cast<size_t>(width));
  }
  return array;
}

Result<NpyArray> read_npy(const std::string& path, bool u64) {
  TRY_ASSIGN(const std::vector<std::byte> bytes, read_bytes(path, 0, -1, kMaxFileBytes));
  return parse_npy(bytes, path, u64);
}

std::vector<std::byte> format_npy(const NpyArray& array) {
  const auto count = count_elements(array.shape, int64_t{1} << 60);
  CHECK(count && static_cast<size_t>(*count * byte_size(array.dtype)) == array.bytes.size());
  const DescrRow* row = nullptr;
  for (const DescrRow& r : kDescrs) {
    if (r.dtype == array.dtype && r.u64 == array.u64) row = &r;
  }
  CHECK(row);
  std::string shape = fmt::format("{}", fmt::join(array.shape, ", "));
  if (array.shape.size() == 1) shape += ",";
  std::string header = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}), }}",
                                   byte_size(array.dtype) == 1 ? '|' : '<', row->type, shape);
  // Signature, version, length and header end with a newline at a multiple of 64 bytes.
  const size_t total = (10 + header.size() + 1 + 63) / 64 * 64;
  header.resize(total - 10 - 1, ' ');
  header += '\n';

  std::vector<std::byte> file(total + array.bytes.size());
  std::memcpy(file.data(), kMagic.data(), kMagic.size());
  file[6] = std::byte{1};
  file[8] = static_cast<std::byte>(header.size() & 255);
  file[9] = static_cast<std::byte>(header.size() >> 8);
  std::memcpy(file.data() + 10, header.data(), header.size());
  if (!array.bytes.empty()) std::memcpy(file.data() + total, array.bytes.data(), array.bytes.size());
  return file;
}

Diagnostics write_npy(const std::string& path, const NpyArray& array) { return write_bytes(path, format_npy(array)); }

}  // namespace cleave
