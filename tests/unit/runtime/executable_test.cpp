#include "runtime/executable.hpp"
#include "base/codes.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace cleave::runtime {
namespace {

// Sums row `task` of a 64 x 1000 matrix through scratch, and adds what the workspace's first launch left.
void sum_row(const CleaveCall* call, int64_t task, void* scratch) {
  const CleaveTensor& in = call->tensors[0];
  auto* partial = static_cast<float*>(scratch);
  std::memset(partial, 0, 16 * sizeof(float));
  for (int64_t j = 0; j < call->extents[1]; ++j)
    partial[j % 16] += static_cast<const float*>(in.data)[task * in.strides[0] + j * in.strides[1]];
  float sum = 0;
  for (int k = 0; k < 16; ++k) sum += partial[k];
  static_cast<float*>(call->tensors[1].data)[task] = sum + static_cast<float*>(call->workspace)[task];
}
void fill_workspace(const CleaveCall* call, int64_t task, void*) {
  static_cast<float*>(call->workspace)[task] += static_cast<float>(call->scalars[0]);
}

struct Fixture {
  std::vector<float> in = std::vector<float>(64 * 1000), out = std::vector<float>(64, NAN);
  int64_t in_strides[2] = {1000, 1}, out_strides[1] = {1}, extents[2] = {64, 1000};
  double scalars[1] = {0.25};
  CleaveTensor tensors[2];
  Buffer workspace;
  CleaveCall call;
  Fixture() : workspace(256) {
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(std::sin(static_cast<double>(i))) * 1000;
    tensors[0] = {in.data(), in_strides};
    tensors[1] = {out.data(), out_strides};
    std::memset(workspace.data(), 0x7f, 256);
    call = {tensors, extents, scalars, workspace.data()};
  }
};

Executable make() {
  std::vector<Launch> launches(2);
  launches[0] = {"fill", fill_workspace, 64, nullptr, 0};
  launches[1] = {"sum", sum_row, 0, [](const int64_t* extents) { return extents[0]; }, 64};
  Executable e(launches, 256, nullptr);
  e.set_zeroed_bytes(256);
  return e;
}

TEST(Executable, GivesTheSameBitsOnAnyNumberOfThreads) {
  const Executable e = make();
  Fixture reference;
  SerialExecutor serial;
  ASSERT_TRUE(e.run(reference.call, serial).empty());
  EXPECT_FALSE(std::isnan(reference.out[63]));
  for (const int threads : {2, 3, 7}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 3; ++round) {
      Fixture f;
      ASSERT_TRUE(e.run(f.call, pool).empty());
      EXPECT_EQ(std::memcmp(f.out.data(), reference.out.data(), 64 * sizeof(float)), 0) << threads << " threads";
    }
  }
}

TEST(Executable, ReportsAMissingOrMisalignedWorkspace) {
  const Executable e = make();
  Fixture f;
  SerialExecutor serial;
  f.call.workspace = nullptr;
  ASSERT_EQ(e.run(f.call, serial).size(), 1u);
  f.call.workspace = static_cast<uint8_t*>(f.workspace.data()) + 4;
  ASSERT_EQ(e.run(f.call, serial)[0].code, Code::bad_call);
  EXPECT_TRUE(std::isnan(f.out[0]));
}

void denormal(const CleaveCall* call, int64_t, void*) {
  auto* x = static_cast<volatile float*>(call->tensors[0].data);
  x[1] = x[0] * 0.25f;
}

TEST(Executable, FlushesDenormalsInsideARunOnlyAndOnlyIfAsked) {
#if defined(__x86_64__)
  const Executable e({{"denormal", denormal, 1, nullptr, 0}}, 0, nullptr);
  float x[2] = {0x1p-126f, -1};
  const CleaveTensor tensors[] = {{x, nullptr}};
  const CleaveCall call{tensors, nullptr, nullptr, nullptr};
  SerialExecutor serial;
  const unsigned before = _mm_getcsr();
  ASSERT_TRUE(e.run(call, serial).empty());
  EXPECT_EQ(x[1], 0.0f);
  EXPECT_EQ(_mm_getcsr() & 0x8040, before & 0x8040);
  ASSERT_TRUE(e.run(call, serial, {.flush_denormals = false}).empty());
  EXPECT_EQ(x[1], 0x1p-128f);
#endif
}

TEST(Buffer, IsAlignedZeroedAndMovable) {
  for (const int64_t bytes : {int64_t{1}, int64_t{100}, int64_t{3} << 20, (int64_t{4} << 20) + 5}) {
    Buffer b(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(b.data()) % (bytes >= (2 << 20) ? 2 << 20 : 64), 0u);
    EXPECT_EQ(b.bytes()[0], 0);
    EXPECT_EQ(b.bytes()[bytes - 1], 0);
    b.bytes()[bytes - 1] = 9;
    Buffer c = std::move(b);
    EXPECT_EQ(c.size(), bytes);
    EXPECT_EQ(c.bytes()[bytes - 1], 9);
    c = Buffer(8);
    EXPECT_EQ(c.size(), 8);
  }
  EXPECT_EQ(Buffer(0).data(), nullptr);
}

}  // namespace
}  // namespace cleave::runtime
