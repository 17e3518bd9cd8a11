#include "base/thread_pool.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>

namespace cleave {
namespace {

TEST(ThreadPool, RunsEachTaskOnce) {
  for (const int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.workers(), threads);
    for (const int64_t n : {0, 1, 2, 5, 1000}) {
      std::vector<std::atomic<int>> hits(static_cast<size_t>(n));
      std::atomic<bool> bad_worker = false;
      pool.for_each(n, [&](int64_t i, int worker) {
        ++hits[static_cast<size_t>(i)];
        if (worker < 0 || worker >= threads) bad_worker = true;
      });
      for (const auto& h : hits) ASSERT_EQ(h, 1);
      EXPECT_FALSE(bad_worker);
    }
  }
}

TEST(ThreadPool, SurvivesManyShortRegionsAndPauses) {
  ThreadPool pool(3);
  std::atomic<int64_t> sum = 0;
  for (int round = 0; round < 3000; ++round) {
    pool.for_each(4, [&](int64_t i, int) { sum += i; });
    if (round % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));  // the workers fall asleep
  }
  EXPECT_EQ(sum, 3000 * 6);
}

TEST(ThreadPool, WorkersTakePart) {
  ThreadPool pool(2);
  std::atomic<int> seen[2] = {0, 0};
  // Each task waits until both workers have one, or gives up after ten seconds.
  pool.for_each(2, [&](int64_t, int worker) {
    ++seen[worker];
    const auto start = std::chrono::steady_clock::now();
    while ((seen[0] == 0 || seen[1] == 0) && std::chrono::steady_clock::now() - start < std::chrono::seconds(10))
      std::this_thread::yield();
  });
  EXPECT_EQ(seen[0], 1);
  EXPECT_EQ(seen[1], 1);
}

TEST(ThreadPool, NestedAndConcurrentCallsRunSerially) {
  ThreadPool pool(2);
  std::atomic<int> inner = 0, foreign = 0;
  pool.for_each(4, [&](int64_t, int) {
    const auto me = std::this_thread::get_id();
    pool.for_each(8, [&](int64_t, int worker) {
      ++inner;
      if (std::this_thread::get_id() != me || worker != 0) ++foreign;
    });
  });
  EXPECT_EQ(inner, 32);
  EXPECT_EQ(foreign, 0);

  std::atomic<int> total = 0;
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t)
    callers.emplace_back([&] {
      for (int k = 0; k < 200; ++k) pool.for_each(5, [&](int64_t, int) { ++total; });
    });
  for (std::thread& t : callers) t.join();
  EXPECT_EQ(total, 4 * 200 * 5);
}

TEST(ThreadPool, HandsExceptionsToTheCallerAndGoesOn) {
  ThreadPool pool(2);
  EXPECT_THROW(pool.for_each(10,
                             [](int64_t i, int) {
                               if (i == 3) throw std::runtime_error("three");
                             }),
               std::runtime_error);
  std::atomic<int> n = 0;
  pool.for_each(10, [&](int64_t, int) { ++n; });
  EXPECT_EQ(n, 10);
}

TEST(ThreadPool, UsableCoresIsPositive) { EXPECT_GE(usable_cores(), 1); }

}  // namespace
}  // namespace cleave
