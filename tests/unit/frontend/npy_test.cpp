#include "frontend/npy.hpp"
#include "base/codes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

namespace cleave {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::byte> as_bytes(std::string_view text) {
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

// A version 1.0 file with this header and data.
std::vector<std::byte> file(std::string header, std::string_view data) {
  header += '\n';
  std::string text("\x93NUMPY\x01\x00", 8);
  text += static_cast<char>(header.size() & 255);
  text += static_cast<char>(header.size() >> 8);
  return as_bytes(text + header + std::string(data));
}

template <class T>
std::vector<T> values(const NpyArray& array) {
  std::vector<T> v(array.bytes.size() / sizeof(T));
  std::memcpy(v.data(), array.bytes.data(), array.bytes.size());
  return v;
}

std::string error_of(const Result<NpyArray>& r) { return r.ok() ? "" : render(r.errors(), nullptr); }

TEST(Npy, ReadsAFileThatNumpyWrote) {
  // numpy.save of numpy.array([[1, -2, 3]], dtype="<i4")
  const auto r = parse_npy(file("{'descr': '<i4', 'fortran_order': False, 'shape': (1, 3), }             ",
                                std::string_view("\1\0\0\0\xfe\xff\xff\xff\3\0\0\0", 12)),
                           "a");
  ASSERT_TRUE(r.ok()) << error_of(r);
  EXPECT_EQ(r->dtype, DType::i32);
  EXPECT_THAT(r->shape, ElementsAre(1, 3));
  EXPECT_THAT(values<int32_t>(*r), ElementsAre(1, -2, 3));
}

TEST(Npy, TurnsFortranOrderIntoRows) {
  // The matrix {{1, 2, 3}, {4, 5, 6}} stored by columns.
  const auto r = parse_npy(file("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3)}", "\1\4\2\5\3\6"), "a");
  ASSERT_TRUE(r.ok()) << error_of(r);
  EXPECT_THAT(values<uint8_t>(*r), ElementsAre(1, 2, 3, 4, 5, 6));

  const auto cube = parse_npy(
      file("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 1, 3)}", std::string_view("\0\1\2\3\4\5", 6)), "a");
  ASSERT_TRUE(cube.ok());
  EXPECT_THAT(values<uint8_t>(*cube), ElementsAre(0, 2, 4, 1, 3, 5));
}

TEST(Npy, ReadsBigEndianAndNormalisesBooleans) {
  const auto r = parse_npy(
      file("{'shape': (2,), 'descr': '>f4', 'fortran_order': False}", std::string_view("\x3f\x80\0\0\xc0\0\0\0", 8)),
      "a");
  ASSERT_TRUE(r.ok()) << error_of(r);
  EXPECT_THAT(values<float>(*r), ElementsAre(1.0f, -2.0f));
  const auto b =
      parse_npy(file("{'descr': '|b1', 'fortran_order': False, 'shape': (3,)}", std::string_view("\0\1\7", 3)), "b");
  ASSERT_TRUE(b.ok());
  EXPECT_THAT(values<uint8_t>(*b), ElementsAre(0, 1, 1));
}

TEST(Npy, WritesWhatItReadsForEveryDtypeAndShape) {
  const std::vector<std::vector<int64_t>> shapes = {{}, {0}, {1}, {7}, {2, 3}, {5, 0, 2}, {2, 1, 3, 2}};
  for (int d = 0; d < kDTypes; ++d) {
    for (const auto& shape : shapes) {
      NpyArray array;
      array.dtype = static_cast<DType>(d);
      array.shape = shape;
      int64_t count = 1;
      for (const int64_t extent : shape) count *= extent;
      array.bytes.resize(static_cast<size_t>(count * byte_size(array.dtype)));
      for (size_t i = 0; i < array.bytes.size(); ++i) {
        array.bytes[i] = static_cast<std::byte>(array.dtype == DType::boolean ? i % 2 : 37 * i + 1);
      }
      const auto bytes = format_npy(array);
      EXPECT_EQ((bytes.size() - array.bytes.size()) % 64, 0u);
      const auto back = parse_npy(bytes, "round trip");
      ASSERT_TRUE(back.ok()) << error_of(back);
      EXPECT_EQ(back->dtype, array.dtype);
      EXPECT_EQ(back->shape, array.shape);
      EXPECT_EQ(back->bytes, array.bytes);
    }
  }
}

TEST(Npy, RefusesFilesThatAreNotWhatTheySay) {
  EXPECT_THAT(error_of(parse_npy(as_bytes("hello, world"), "x")), HasSubstr("signature"));
  EXPECT_THAT(error_of(parse_npy({}, "x")), HasSubstr("signature"));
  EXPECT_THAT(error_of(parse_npy(file("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", "1234567"), "x")),
              HasSubstr("7 bytes"));
  EXPECT_THAT(error_of(parse_npy(file("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", "123456789"), "x")),
              HasSubstr("9 bytes"));
  EXPECT_THAT(error_of(parse_npy(file("{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}", "12345678"), "x")),
              HasSubstr("dtype <c8"));
  for (const char* header : {"", "{", "{}", "{'descr': '<f4'}", "{'descr': '<f4', 'fortran_order': 1, 'shape': (1,)}",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'x': 'y'}",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': (1 2)}",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}"}) {
    EXPECT_THAT(error_of(parse_npy(file(header, "1234"), "x")), HasSubstr("header")) << header;
  }
}

TEST(Npy, RefusesHugeShapesWithoutAllocating) {
  // 2^62 * 2^62 elements overflow; 2^40 elements are more than the file holds; an extent of 0 needs no bytes.
  const std::string huge = "4611686018427387904";
  EXPECT_THAT(error_of(parse_npy(
                  file("{'descr': '<f8', 'fortran_order': False, 'shape': (" + huge + ", " + huge + ")}", ""), "x")),
              HasSubstr("0 bytes"));
  EXPECT_THAT(error_of(parse_npy(file("{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776,)}", ""), "x")),
              HasSubstr("0 bytes"));
  EXPECT_TRUE(
      parse_npy(file("{'descr': '<f8', 'fortran_order': False, 'shape': (" + huge + ", " + huge + ", 0)}", ""), "x")
          .ok());
}

TEST(Npy, EveryTruncationIsAnError) {
  NpyArray array;
  array.shape = {3};
  array.bytes.resize(12);
  const auto bytes = format_npy(array);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(parse_npy(std::span(bytes).first(size), "x").ok()) << size;
  }
}

TEST(Npy, FilesAreWrittenAndReadBack) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "npy_test";
  std::filesystem::create_directories(folder);
  NpyArray array;
  array.dtype = DType::bf16;
  array.shape = {2};
  array.bytes = as_bytes("abcd");
  const std::string path = folder / "a.npy";
  EXPECT_TRUE(write_npy(path, array).empty());
  const auto back = read_npy(path);
  ASSERT_TRUE(back.ok()) << error_of(back);
  EXPECT_EQ(back->bytes, array.bytes);

  EXPECT_THAT(error_of(read_npy(folder / "missing.npy")), HasSubstr("missing.npy` cannot be read"));
  EXPECT_THAT(error_of(read_npy(folder)), HasSubstr("not a regular file"));
  EXPECT_THAT(error_of(read_npy("/dev/zero")), HasSubstr("not a regular file"));
  const auto failed = write_npy(folder / "missing" / "a.npy", array);
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].code, Code::file_unwritable);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace cleave
