#include "base/thread_pool.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>

namespace cleave {

namespace {

constexpr auto kSpin = std::chrono::microseconds(50);

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

int usable_cores() {
  int n = 1;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) n = std::max(1, CPU_COUNT(&set));
  double quota = 0, period = 0;
  std::istringstream v2(first_line("/sys/fs/cgroup/cpu.max"));
  if (!(v2 >> quota >> period)) {
    std::istringstream q(first_line("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"));
    std::istringstream p(first_line("/sys/fs/cgroup/cpu/cpu.cfs_period_us"));
    if (!(q >> quota && p >> period)) quota = period = 0;
  }
  if (quota > 0 && period > 0) n = std::min(n, std::max(1, static_cast<int>(std::ceil(quota / period))));
  return n;
}

ThreadPool::ThreadPool(int threads) {
  threads = std::clamp(threads, 1, 1024);
  for (int w = 1; w < threads; ++w) threads_.emplace_back([this, w] { work(w); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& t : threads_) t.join();
}

void ThreadPool::run(int64_t tasks, Task task, void* context) {
  if (tasks <= 0) return;
  if (tasks == 1 || threads_.empty() || busy_.exchange(true)) {
    for (int64_t i = 0; i < tasks; ++i) task(context, i, 0);
    return;
  }
  task_ = task;
  context_ = context;
  tasks_ = tasks;
  next_.store(0, std::memory_order_relaxed);
  // Nobody is inside, so the word may be replaced. seq_cst, as is the load of sleepers_: either we see a sleeper, or
  // the sleeper sees the new region before it sleeps.
  region_.store((region_.load() / kNumber + 1) * kNumber + kOpen);
  if (sleepers_.load() > 0) {
    {
      std::lock_guard lock(mutex_);
    }
    wake_.notify_all();
  }
  take_tasks(0);
  region_.fetch_and(~kOpen);
  while (region_.load(std::memory_order_acquire) & kInside) pause_briefly();
  std::exception_ptr failure;
  {
    std::lock_guard lock(mutex_);
    std::swap(failure, failure_);
  }
  busy_.store(false);
  if (failure) std::rethrow_exception(failure);
}

void ThreadPool::take_tasks(int worker) {
  try {
    for (int64_t i; (i = next_.fetch_add(1, std::memory_order_relaxed)) < tasks_;) task_(context_, i, worker);
  } catch (...) {
    next_.store(tasks_, std::memory_order_relaxed);
    std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
}

void ThreadPool::work(int worker) {
  uint64_t seen = 0;  // the number of the last region joined or missed
  for (;;) {
    // Wait for a region with another number, spinning first.
    const auto start = std::chrono::steady_clock::now();
    uint64_t now = region_.load(std::memory_order_acquire);
    for (int spins = 0; now / kNumber == seen; now = region_.load(std::memory_order_acquire)) {
      if (stop_.load(std::memory_order_relaxed)) return;
      pause_briefly();
      if (++spins % 64 == 0 && std::chrono::steady_clock::now() - start > kSpin)
        if (!sleep_until_change(seen)) return;
    }
    seen = now / kNumber;
    // Enter if it is still open and still the same one.
    while ((now & kOpen) && now / kNumber == seen) {
      if (region_.compare_exchange_weak(now, now + kOne, std::memory_order_acq_rel)) {
        take_tasks(worker);
        region_.fetch_sub(kOne, std::memory_order_acq_rel);
        break;
      }
    }
  }
}

bool ThreadPool::sleep_until_change(uint64_t seen) {
  std::unique_lock lock(mutex_);
  ++sleepers_;
  wake_.wait(lock, [&] { return stop_ || region_.load() / kNumber != seen; });
  --sleepers_;
  return !stop_;
}

}  // namespace cleave
