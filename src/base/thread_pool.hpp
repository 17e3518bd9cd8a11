// Runs independent tasks on a few threads.
//
// An executor runs tasks 0 .. n - 1 in any order, each once. ThreadPool is ours: tasks come from one atomic counter,
// the caller takes part, workers spin for a moment after a region and then sleep, and a region never waits for a worker
// that has not joined it. A call made while the pool is busy (nested, or from another thread) runs on the caller alone.
// What tasks compute must not depend on the worker; then results do not depend on the number of threads.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace cleave {

// The processors this process may use: the affinity mask, no more than the cgroup's CPU quota rounded up.
int usable_cores();

class Executor {
 public:
  using Task = void (*)(void* context, int64_t task, int worker);

  virtual ~Executor() = default;
  virtual int workers() const = 0;
  // worker is in [0, workers()); tasks that run at the same time in one call have different workers. The first
  // exception of a task is thrown again here; the remaining tasks may then not have run.
  virtual void run(int64_t tasks, Task task, void* context) = 0;

  template <class F>
  void for_each(int64_t tasks, F&& body) {  // body(task, worker)
    run(
        tasks, [](void* f, int64_t task, int worker) { (*static_cast<std::remove_reference_t<F>*>(f))(task, worker); },
        const_cast<void*>(static_cast<const void*>(&body)));
  }
};

// The calling thread only.
class SerialExecutor final : public Executor {
 public:
  int workers() const override { return 1; }
  void run(int64_t tasks, Task task, void* context) override {
    for (int64_t i = 0; i < tasks; ++i) task(context, i, 0);
  }
};

class ThreadPool final : public Executor {
 public:
  explicit ThreadPool(int threads = usable_cores());  // counting the caller
  ~ThreadPool() override;
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int workers() const override { return static_cast<int>(threads_.size()) + 1; }
  void run(int64_t tasks, Task task, void* context) override;

 private:
  // The region's state in one word: bit 0 open, bits 1..15 how many workers are inside, bits 16.. the region's number.
  static constexpr uint64_t kOpen = 1, kOne = 2, kInside = 0xfffe, kNumber = 1 << 16;

  void work(int worker);
  void take_tasks(int worker);
  bool sleep_until_change(uint64_t seen);

  std::vector<std::thread> threads_;
  std::atomic<bool> busy_ = false;
  Task task_ = nullptr;
  void* context_ = nullptr;
  int64_t tasks_ = 0;
  alignas(64) std::atomic<int64_t> next_ = 0;
  alignas(64) std::atomic<uint64_t> region_ = 0;
  alignas(64) std::atomic<int> sleepers_ = 0;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::exception_ptr failure_;  // guarded by mutex_
};

}  // namespace cleave
