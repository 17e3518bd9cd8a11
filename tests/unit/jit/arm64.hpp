// Code for arm64 run under an emulator of user programs: kernels are linked with arm64_start.c, which knows the other
// end of the protocol here. Needs qemu-aarch64 and clang-19; without them tests that ask can_run_arm64() leave arm64
// out.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "jit/jit.hpp"
#include "jit/link.hpp"

namespace cleave::testing {

struct Arm64Call {
  struct Launch {
    int64_t function, first, tasks;  // function: index in the module
  };
  std::vector<std::span<std::byte>> tensors;
  std::vector<int64_t> extents;
  std::vector<double> scalars;
  std::vector<Launch> launches;
  int64_t workspace_bytes = 0, scratch_bytes = 0;
};

namespace arm64 {

// A folder of this process, removed with it.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "cleave-arm64-XXXXXX").string();
    if (::mkdtemp(name.data())) path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(const char* file) const { return path_ + "/" + file; }

 private:
  std::string path_;
};
inline const Folder& folder() {
  static const Folder f;
  return f;
}

// The compiled arm64_start.c; empty where it cannot be made, or nothing runs it.
inline const std::string& start_object() {
  static const std::string path = [] {
    const std::string out = folder() / "start.o";
    const std::string make =
        "qemu-aarch64 --version >/dev/null 2>&1 && clang-19 --target=aarch64-unknown-linux-gnu -std=c11 -O1 "
        "-ffreestanding -fno-builtin -fno-stack-protector -I" CLEAVE_SOURCE_DIR "/src -c " CLEAVE_SOURCE_DIR
        "/tests/unit/jit/arm64_start.c -o " +
        out;
    return std::system(make.c_str()) == 0 ? out : std::string();
  }();
  return path;
}

inline void write_file(const std::string& path, std::span<const uint8_t> bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

// The emulated process and the socket that is its standard input and output.
class Process {
 public:
  explicit Process(const std::string& program) {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return;
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_CORE, &none);  // no dump of what faults
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    std::string words[] = {"qemu-aarch64", "-cpu", "neoverse-n1", program};
    char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(), nullptr};
    if (::posix_spawnp(&pid_, arguments[0], &actions, nullptr, arguments, environ) != 0) pid_ = -1;
    posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    socket_ = ends[0];
  }
  ~Process() {
    if (socket_ >= 0) ::close(socket_);
    if (pid_ > 0) status();
  }
  template <class T>
  bool write(std::span<const T> data) {
    const auto bytes = std::as_bytes(data);
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t n = ::send(socket_, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
      if (n <= 0) return false;
      done += static_cast<size_t>(n);
    }
    return true;
  }
  bool read(std::span<std::byte> bytes) {
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t n = ::recv(socket_, bytes.data() + done, bytes.size() - done, 0);
      if (n <= 0) return false;
      done += static_cast<size_t>(n);
    }
    return true;
  }
  int status() {
    int out = -1;
    ::waitpid(pid_, &out, 0);
    pid_ = -1;
    return out;
  }

 private:
  int socket_ = -1;
  pid_t pid_ = -1;
};

struct Question {
  int64_t function, integer;
  std::array<uint64_t, 3> operands;
};
inline uint64_t answer(const Question& q) {
  const Fn fn = static_cast<Fn>(q.function);
  const auto arity = static_cast<size_t>(info(fn).arity);
  if (q.integer) {
    const auto x = std::bit_cast<std::array<int64_t, 3>>(q.operands);
    return static_cast<uint64_t>(eval(fn, std::span<const int64_t>(x).first(arity)));
  }
  const auto x = std::bit_cast<std::array<double, 3>>(q.operands);
  return std::bit_cast<uint64_t>(eval(fn, std::span<const double>(x).first(arity)));
}

inline bool converse(Process& process, const Arm64Call& call) {
  std::vector<int64_t> sizes;
  for (const auto& t : call.tensors) sizes.push_back(static_cast<int64_t>(t.size()));
  const auto n = [](const auto& list) { return static_cast<int64_t>(list.size()); };
  const int64_t head[] = {n(call.tensors),  n(call.extents),      n(call.scalars),
                          n(call.launches), call.workspace_bytes, call.scratch_bytes};
  bool good = process.write(std::span<const int64_t>(head)) && process.write(std::span<const int64_t>(sizes)) &&
              process.write(std::span(call.extents)) && process.write(std::span(call.scalars)) &&
              process.write(std::span(call.launches));
  for (const auto& t : call.tensors) good = good && process.write(std::span<const std::byte>(t));
  for (Question q; good;) {
    good = process.read(std::as_writable_bytes(std::span(&q, 1)));
    if (!good || q.function < 0) break;
    const uint64_t a = answer(q);
    good = process.write(std::span(&a, 1));
  }
  for (const auto& t : call.tensors) good = good && process.read(t);
  return good;
}

}  // namespace arm64

inline bool can_run_arm64() { return !arm64::start_object().empty(); }

// Runs kernels on tensors that end where their memory ends; what they write is in call.tensors afterwards.
inline void run_arm64(vec::Module module, const jit::Options& options, const Arm64Call& call) {
  ASSERT_LE(module.functions.size(), 48u);
  for (size_t i = 0; i < module.functions.size(); ++i) module.functions[i].name = fmt::format("k{:o}", i);
  auto object = jit::object_code(module, options);
  ASSERT_TRUE(object.ok()) << render(object.errors(), nullptr);
  const std::string kernels = arm64::folder() / "kernels.o", program = arm64::folder() / "program";
  arm64::write_file(kernels, *object);
  const Diagnostics bad = jit::link({"-static", "--threads=1", "-o", program, arm64::start_object(), kernels});
  ASSERT_TRUE(bad.empty()) << render(bad, nullptr);
  arm64::Process process(program);
  const bool good = arm64::converse(process, call);
  const int status = process.status();
  ASSERT_TRUE(good && WIFEXITED(status) && WEXITSTATUS(status) == 0)
      << "the emulated program ended with "
      << (WIFSIGNALED(status) ? fmt::format("signal {}", WTERMSIG(status))
                              : fmt::format("status {}", WEXITSTATUS(status)));
}

}  // namespace cleave::testing
