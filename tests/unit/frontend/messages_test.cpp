// What the user reads for each fault of a file, word for word.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "frontend/file.hpp"
#include "frontend/npy.hpp"
#include "unit/frontend/onnx_model.hpp"

namespace cleave {
namespace {

template <class T>
std::string message(const Result<T>& r) {
  return r.ok() ? "no error" : render(r.errors(), nullptr);
}

TEST(Messages, FilesThatCannotBeReadOrWritten) {
  EXPECT_EQ(message(read_bytes("/nowhere/x.onnx", 0, -1, 10)),
            "error[CLV3001]: `/nowhere/x.onnx` cannot be read: No such file or directory\n");
  const auto failed = write_bytes("/nowhere/x.npy", {});
  EXPECT_EQ(render(failed, nullptr), "error[CLV3002]: `/nowhere/x.npy` cannot be written: No such file or directory\n");
  const std::string path = std::filesystem::path(::testing::TempDir()) / "messages_test.bin";
  std::ofstream(path) << "0123456789ab";
  EXPECT_EQ(message(read_bytes(path, 0, -1, 10)),
            "error[CLV3003]: `" + path + "`: 12 bytes are more than the limit of 10\n");
  std::filesystem::remove(path);
}

TEST(Messages, ModelsThatAreNone) {
  EXPECT_EQ(message(OnnxModel::import_text("x")),
            "error[CLV3004]: `test.onnx` is not a usable ONNX model: it is cut short, or no protobuf message\n");
}

TEST(Messages, TensorsAndTheirExternalData) {
  OnnxModel m;
  m.tensor("w", {2}, onnx::TensorProto::UINT64);
  m.node("Relu", {"w"}, {"y"}).output("y");
  EXPECT_EQ(message(m.import()), "error[CLV3005]: tensor `w`: the element type UINT64 is not supported\n");
  auto* w = m.graph().mutable_initializer(0);
  w->set_data_type(onnx::TensorProto::FLOAT);
  w->set_data_location(onnx::TensorProto::EXTERNAL);
  auto* entry = w->add_external_data();
  entry->set_key("location");
  entry->set_value("../w.bin");
  EXPECT_EQ(message(m.import("/tmp")),
            "error[CLV3006]: tensor `w`: its external data lies at `../w.bin`, outside the model's folder\n");
}

TEST(Messages, GraphsThatAreNotOne) {
  OnnxModel undefined;
  undefined.node("Relu", {"x"}, {"y"}).output("y");
  EXPECT_EQ(message(undefined.import()), "error[CLV3007]: node `Relu_1` reads `x`, which nothing defines\n");
  OnnxModel twice;
  twice.input("x", {"2"}).node("Relu", {"x"}, {"x"}).output("x");
  EXPECT_EQ(message(twice.import()),
            "error[CLV3008]: `x` is defined twice\n  hint: each name of an ONNX graph is assigned once\n");
  OnnxModel cycle;
  cycle.node("Relu", {"y"}, {"y"}).output("y");
  EXPECT_EQ(message(cycle.import()), "error[CLV3009]: the graph has a cycle through node `Relu_1`\n");
}

TEST(Messages, NodesThatDoNotFit) {
  OnnxModel m;
  m.input("x", {"2", "n"}).input("z", {"3", "n"}).node("Add", {"x", "z"}, {"y"}).output("y");
  EXPECT_EQ(message(m.import()), "error[CLV3010]: node `Add_1` (Add): the shapes [2, n] and [3, n] do not broadcast\n");
}

TEST(Messages, LimitsAndVersions) {
  OnnxModel m(3);
  m.input("x", {"2"}).node("Erf", {"x"}, {"y"}).output("y");
  OnnxOptions options;
  options.max_items = 3;
  EXPECT_EQ(message(m.import("", options)),
            "error[CLV3011]: the model has 4 messages and strings, more than the limit of 3\n");
  EXPECT_EQ(message(m.import()),
            "error[CLV3013]: the model needs opset 3 of ONNX, which is older than the oldest supported, 7\n"
            "  note: `Erf` (node `Erf_1`) means something else there\n"
            "  hint: export it again with a newer opset\n");
}

TEST(Messages, UnsupportedOperators) {
  OnnxModel m;
  m.input("x", {"2"}).node("LSTM", {"x"}, {"a"}).node("GRU", {"a"}, {"y"}).output("y");
  EXPECT_EQ(message(m.import()),
            "error[CLV3012]: 2 of the model's operators are not supported: `GRU`, `LSTM`\n"
            "  note: `GRU`: 1 node (`GRU_2`)\n"
            "  note: `LSTM`: 1 node (`LSTM_1`)\n"
            "  hint: replace them in the exporting program, or cut the model before them\n");
}

TEST(Messages, Arrays) {
  EXPECT_EQ(message(parse_npy({}, "a.npy")),
            "error[CLV3020]: `a.npy` is not a usable .npy file: it does not start with NumPy's signature\n");
  const std::string complex(
      "\x93NUMPY\x01\x00\x3a\x00{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}  \n12345678", 76);
  EXPECT_EQ(message(parse_npy(std::as_bytes(std::span(complex)), "a.npy")),
            "error[CLV3021]: `a.npy` has the dtype <c8, which is not supported\n  hint: f8 f4 f2 V2 (bf16) i8 i4 i2 "
            "i1 u4 u2 u1 and b1 are\n");
}

}  // namespace
}  // namespace cleave
