#include "runtime/executable.hpp"

#include <algorithm>
#include <cstring>

#include "base/codes.hpp"
#include "runtime/timing.hpp"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace cleave::runtime {

namespace {

// Sets flush-to-zero and denormals-are-zero for its lifetime.
class FlushDenormals {
 public:
#if defined(__x86_64__)
  explicit FlushDenormals(bool on) : before_(_mm_getcsr()) {
    if (on) _mm_setcsr(before_ | 0x8040);
  }
  ~FlushDenormals() { _mm_setcsr(before_); }

 private:
  unsigned before_;
#elif defined(__aarch64__)
  explicit FlushDenormals(bool on) {
    asm volatile("mrs %0, fpcr" : "=r"(before_));
    if (on) asm volatile("msr fpcr, %0" : : "r"(before_ | (uint64_t{1} << 24)));
  }
  ~FlushDenormals() { asm volatile("msr fpcr, %0" : : "r"(before_)); }

 private:
  uint64_t before_;
#else
  explicit FlushDenormals(bool) {}
#endif
};

}  // namespace

Executable::Executable(std::vector<Launch> launches, int64_t workspace_bytes, std::shared_ptr<const void> code)
    : launches_(std::move(launches)),
      workspace_bytes_(workspace_bytes),
      code_(std::move(code)),
      scratch_(std::make_shared<ScratchPool>()) {
  for (const Launch& l : launches_) CHECK(l.kernel && l.tasks >= 0 && l.scratch_bytes >= 0, "launch `{}`", l.name);
}

void Executable::set_zeroed_bytes(int64_t bytes) {
  CHECK(bytes >= 0 && bytes <= workspace_bytes_, "{} of {} bytes", bytes, workspace_bytes_);
  zeroed_bytes_ = bytes;
}

Diagnostics Executable::run(const CleaveCall& call, Executor& executor, const RunOptions& options) const {
  if (const int64_t bytes = workspace_bytes(call.extents); bytes > 0) {
    if (!call.workspace) return {diagnose(Code::bad_call, fmt::format("a workspace of {} bytes is missing", bytes))};
    if (reinterpret_cast<uintptr_t>(call.workspace) % 64 != 0)
      return {diagnose(Code::bad_call, "the workspace is not aligned to 64 bytes")};
    std::memset(call.workspace, 0, static_cast<size_t>(zeroed_bytes_));
  }
  // Workers take their scratch with their first task and keep it to the end of the call.
  int64_t scratch_bytes = 0;  // the most any launch needs
  for (const Launch& l : launches_)
    scratch_bytes = std::max(scratch_bytes, l.scratch ? l.scratch(call.extents) : l.scratch_bytes);
  std::vector<Buffer> scratch(scratch_bytes > 0 ? static_cast<size_t>(executor.workers()) : 0);
  for (const Launch& launch : launches_) {
    const int64_t tasks = launch.count ? launch.count(call.extents) : launch.tasks;
    const double begin = options.launch_seconds ? thread_cpu_seconds() : 0;
    executor.for_each(tasks, [&](int64_t task, int worker) {
      void* mine = nullptr;
      if (scratch_bytes > 0) {
        Buffer& buffer = scratch[static_cast<size_t>(worker)];
        if (buffer.size() == 0) {
          std::unique_lock lock(scratch_->mutex);
          if (!scratch_->free.empty()) {
            buffer = std::move(scratch_->free.back());
            scratch_->free.pop_back();
          }
          lock.unlock();
          // A call with larger extents needs more than the last one left.
          if (buffer.size() < scratch_bytes) buffer = Buffer(scratch_bytes);
        }
        mine = buffer.data();
      }
      const FlushDenormals mode(options.flush_denormals);
      launch.kernel(&call, task, mine);
    });
    if (options.launch_seconds) options.launch_seconds->push_back(thread_cpu_seconds() - begin);
  }
  std::lock_guard lock(scratch_->mutex);
  for (Buffer& buffer : scratch)
    if (buffer.size() > 0) scratch_->free.push_back(std::move(buffer));
  return {};
}

}  // namespace cleave::runtime
