#include "driver/peers.hpp"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/codes.hpp"

extern char** environ;

namespace cleave::driver {

namespace fs = std::filesystem;

namespace {

// Beside the command in the build folder (build/bin/cleave, bench/run), or where it is installed.
fs::path script_of(const fs::path& command) {
  const fs::path up = command.parent_path().parent_path();
  std::error_code error;
  for (const fs::path& p : {up.parent_path() / "bench" / "run", up / "share" / "cleave" / "bench" / "run"})
    if (fs::exists(p, error)) return p;
  return {};
}

}  // namespace

Result<int> bench_against(const PeerRequest& request) {
  std::error_code error;
  if (!fs::exists(fs::path(request.folder) / "manifest.json", error))
    return diagnose(Code::bad_artefact, request.folder,
                    "it holds no manifest.json; other compilers are compared with artefacts");
  const fs::path command = fs::read_symlink("/proc/self/exe", error);
  const fs::path script = error ? fs::path() : script_of(command);
  if (script.empty())
    return diagnose(Code::not_available,
                    "comparing with other compilers where bench/run does not lie beside the command");
  std::vector<std::string> words = {"python3",
                                    script.string(),
                                    "artefact",
                                    "--folder",
                                    request.folder,
                                    "--against",
                                    fmt::format("{}", fmt::join(request.peers, ",")),
                                    "--threads",
                                    fmt::format("{}", request.threads),
                                    "--cleave",
                                    command.string(),
                                    "--build",
                                    command.parent_path().parent_path().string()};
  if (request.json) words.push_back("--json");
  std::vector<char*> arguments;
  for (std::string& w : words) arguments.push_back(w.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  if (const int failed = posix_spawnp(&child, "python3", nullptr, nullptr, arguments.data(), environ); failed != 0)
    return diagnose(Code::not_available,
                    fmt::format("python3 ({}), which compares with other compilers,", std::strerror(failed)));
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return 1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace cleave::driver
