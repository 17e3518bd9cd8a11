// The C functions: every fault is a status with a text, whatever is handed in.
#include <gtest/gtest.h>

#include <fstream>

#include "cleave/cleave.h"

namespace {

class CApi : public testing::Test {
 protected:
  void SetUp() override {
    const std::string path = testing::TempDir() + "/c_api.graph";
    std::ofstream(path) << "graph g {\n  dim S in 1..100\n  input x: f32[S, 2]\n  input m: bool[S, 2]\n"
                           "  output y = where(m, x, 0.5)\n}\n";
    ASSERT_EQ(cleave_program_load(path.c_str(), &program), CLEAVE_OK) << cleave_last_error();
    x = {values, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, nullptr, 0};
    m = {mask, {kDLCPU, 0}, 2, {6, 8, 1}, shape, nullptr, 0};
    y = {results, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, nullptr, 0};
  }
  void TearDown() override { cleave_program_free(program); }
  CleaveStatus run() {
    const DLTensor* in[] = {&x, &m};
    DLTensor* out[] = {&y};
    return cleave_program_run(program, in, 2, nullptr, 0, out, 1, nullptr);
  }

  CleaveProgram* program = nullptr;
  float values[6] = {1, 2, 3, 4, 5, 6}, results[6] = {};
  uint8_t mask[6] = {1, 0, 1, 0, 1, 0};
  int64_t shape[2] = {3, 2};
  DLTensor x, m, y;
};

TEST_F(CApi, Runs) {
  EXPECT_EQ(cleave_program_inputs(program), 2);
  EXPECT_EQ(cleave_program_outputs(program), 1);
  EXPECT_EQ(cleave_program_scalars(program), 0);
  EXPECT_STREQ(cleave_program_input_name(program, 1), "m");
  EXPECT_EQ(cleave_program_input_name(program, 2), nullptr);
  EXPECT_EQ(cleave_program_output_type(program, 0).bits, 32);
  EXPECT_EQ(cleave_program_output_type(program, -1).bits, 0);
  ASSERT_EQ(run(), CLEAVE_OK) << cleave_last_error();
  for (int i = 0; i < 6; ++i) EXPECT_EQ(results[i], mask[i] ? values[i] : 0.5f);
  // A byte offset, strides, bools as u8, and threads.
  x.byte_offset = 8;
  int64_t two[2] = {2, 2}, turned[2] = {1, 2};
  x.shape = m.shape = y.shape = two;
  y.strides = turned;
  m.dtype.code = kDLUInt;
  CleaveThreads* threads = nullptr;
  ASSERT_EQ(cleave_threads_create(2, &threads), CLEAVE_OK);
  const DLTensor* in[] = {&x, &m};
  DLTensor* out[] = {&y};
  ASSERT_EQ(cleave_program_run(program, in, 2, nullptr, 0, out, 1, threads), CLEAVE_OK) << cleave_last_error();
  cleave_threads_free(threads);
  EXPECT_EQ(results[0], 3);
  EXPECT_EQ(results[1], 5);
  EXPECT_EQ(results[2], 0.5f);
  int64_t found[2];
  int32_t rank = 2;
  ASSERT_EQ(cleave_program_output_shape(program, in, 2, 0, found, &rank), CLEAVE_OK);
  EXPECT_EQ(found[0], 2);
}

TEST_F(CApi, RefusesWhatIsWrong) {
  CleaveProgram* none = nullptr;
  EXPECT_EQ(cleave_program_load(nullptr, &none), CLEAVE_INVALID);
  EXPECT_EQ(cleave_program_load("/nowhere", nullptr), CLEAVE_INVALID);
  EXPECT_EQ(cleave_program_load("/nowhere", &none), CLEAVE_INVALID);
  EXPECT_STREQ(cleave_last_error_code(), "CLV3001");
  EXPECT_EQ(cleave_program_run(nullptr, nullptr, 0, nullptr, 0, nullptr, 0, nullptr), CLEAVE_INVALID);
  EXPECT_EQ(cleave_program_run(program, nullptr, 2, nullptr, 0, nullptr, 1, nullptr), CLEAVE_INVALID);
  EXPECT_EQ(cleave_program_run(program, nullptr, -1, nullptr, 0, nullptr, 0, nullptr), CLEAVE_INVALID);
  EXPECT_EQ(cleave_threads_create(-1, nullptr), CLEAVE_INVALID);
  CleaveThreads* threads = nullptr;
  EXPECT_EQ(cleave_threads_create(-1, &threads), CLEAVE_INVALID);
  cleave_program_free(nullptr);
  cleave_threads_free(nullptr);

  x.device.device_type = kDLCUDA;
  EXPECT_EQ(run(), CLEAVE_UNSUPPORTED);
  x.device.device_type = kDLCPU;
  x.dtype.lanes = 4;
  EXPECT_EQ(run(), CLEAVE_UNSUPPORTED);
  x.dtype.lanes = 1;
  x.dtype.bits = 64;
  EXPECT_EQ(run(), CLEAVE_INVALID);
  x.dtype.bits = 32;
  x.ndim = -1;
  EXPECT_EQ(run(), CLEAVE_INVALID);
  x.ndim = 2;
  x.shape = nullptr;
  EXPECT_EQ(run(), CLEAVE_INVALID);
  x.shape = shape;
  x.data = nullptr;
  EXPECT_EQ(run(), CLEAVE_INVALID);
  x.data = values;
  int64_t huge[2] = {1000, 2};  // outside the dimension's range
  x.shape = m.shape = y.shape = huge;
  EXPECT_EQ(run(), CLEAVE_INVALID);
  EXPECT_STREQ(cleave_last_error_code(), "CLV2014");
  int64_t other[2] = {2, 2};
  x.shape = other;
  m.shape = y.shape = shape;
  EXPECT_EQ(run(), CLEAVE_INVALID);
  x.shape = shape;
  int32_t rank = 1;
  int64_t room[1];
  const DLTensor* in[] = {&x, &m};
  EXPECT_EQ(cleave_program_output_shape(program, in, 2, 0, room, &rank), CLEAVE_INVALID);
  EXPECT_EQ(rank, 2);
  EXPECT_EQ(cleave_program_output_shape(program, in, 2, 1, room, &rank), CLEAVE_INVALID);
  EXPECT_EQ(run(), CLEAVE_OK) << cleave_last_error();
}

}  // namespace
