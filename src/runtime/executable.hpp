// A compiled program: an ordered list of kernel launches over one call structure.
//
// Each launch runs its tasks on an executor and ends before the next begins. Tasks of a launch write disjoint memory
// and nothing depends on the number of threads, so results are the same bits for any executor. Calls are thread-safe as
// long as their workspaces differ.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/diagnostic.hpp"
#include "base/thread_pool.hpp"
#include "runtime/abi.h"
#include "runtime/buffer.hpp"

namespace cleave::runtime {

struct Launch {
  std::string name;
  CleaveKernel kernel = nullptr;
  int64_t tasks = 0;
  std::function<int64_t(const int64_t* extents)> count;    // given: the number of tasks of a call with dynamic extents
  int64_t scratch_bytes = 0;                               // per worker
  std::function<int64_t(const int64_t* extents)> scratch;  // given: the scratch of a call with dynamic extents
};

struct RunOptions {
  // Flush denormal results to zero and read denormal operands as zero while kernels run (the caller's mode comes back
  // afterwards). Off: as IEEE 754 says, several times slower where denormals occur.
  bool flush_denormals = true;
  // Receives the calling thread's CPU seconds in each launch.
  std::vector<double>* launch_seconds = nullptr;
};

class Executable {
 public:
  // `code` keeps the kernels alive.
  Executable(std::vector<Launch> launches, int64_t workspace_bytes, std::shared_ptr<const void> code);

  int64_t workspace_bytes() const { return workspace_bytes_; }
  Buffer make_workspace() const { return Buffer(workspace_bytes_); }
  // With dynamic extents the workspace of a call is a function of them.
  void set_workspace(std::function<int64_t(const int64_t* extents)> bytes) { workspace_ = std::move(bytes); }
  int64_t workspace_bytes(const int64_t* extents) const { return workspace_ ? workspace_(extents) : workspace_bytes_; }
  std::span<const Launch> launches() const { return launches_; }
  // The first bytes of the workspace that are zeroed before each launch list starts (counters).
  void set_zeroed_bytes(int64_t bytes);

  // An error when a workspace is needed and missing or misaligned; otherwise runs to the end.
  Diagnostics run(const CleaveCall& call, Executor& executor, const RunOptions& options = {}) const;

 private:
  struct ScratchPool {
    std::mutex mutex;
    std::vector<Buffer> free;
  };
  std::vector<Launch> launches_;
  int64_t workspace_bytes_;
  int64_t zeroed_bytes_ = 0;
  std::function<int64_t(const int64_t* extents)> workspace_;
  std::shared_ptr<const void> code_;
  std::shared_ptr<ScratchPool> scratch_;
};

}  // namespace cleave::runtime
