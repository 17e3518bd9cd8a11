#include "cli/terminal.hpp"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/codes.hpp"
#include "driver/options.hpp"
#include "runtime/timing.hpp"

namespace cleave::cli {

namespace {

// A signal handler can reach nothing but a global.
std::atomic<int> interrupts{0};
static_assert(std::atomic<int>::is_always_lock_free);

// Seconds from the first signal in which what there is should be finished.
constexpr unsigned kGrace = 20;

void on_interrupt(int) {
  if (interrupts.fetch_add(1) >= 1) _exit(130);
  alarm(kGrace);
}

void on_alarm(int) {
  constexpr char kText[] = "\ncleave: interrupted; nothing could be finished in time\n";
  (void)!write(2, kText, sizeof kText - 1);
  _exit(130);
}

}  // namespace

void catch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  action.sa_handler = on_alarm;
  sigaction(SIGALRM, &action, nullptr);
}

bool interrupted() { return interrupts.load() > 0; }

ProgressLines::ProgressLines(bool quiet) : quiet_(quiet), terminal_(isatty(2) == 1) {}
ProgressLines::~ProgressLines() { erase(); }

void ProgressLines::erase() {
  if (drawn_) std::fputs("\x1b[4A\x1b[J", stderr);
  drawn_ = false;
}

void ProgressLines::log(const std::string& line) {
  if (quiet_) return;
  erase();
  fmt::print(stderr, "cleave: {}\n", line);
}

void ProgressLines::show(const tune::Progress& p) {
  if (quiet_) return;
  const double now = runtime::wall_seconds();
  const std::string budget = std::isfinite(p.budget_seconds) ? fmt::format(" of {:.0f} s", p.budget_seconds) : " s";
  if (!terminal_) {
    if (!p.new_best && now - last_ < 30) return;
    last_ = now;
    fmt::print(stderr, "cleave: {}/{} candidates, best {:.3f}x, {:.1f}{}\n", p.tried, p.proposals, p.best_speedup,
               p.seconds, budget);
    return;
  }
  if (now - last_ < 0.1) return;
  last_ = now;
  erase();
  fmt::print(
      stderr,
      "candidates  {} of {}\nbest        {:.3f}x the unfused schedule\ntime        {:.1f}{}\n(Ctrl-C keeps the best)\n",
      p.tried, p.proposals, p.best_speedup, p.seconds, budget);
  drawn_ = true;
}

std::string default_cache() {
  const char* xdg = std::getenv("XDG_CACHE_HOME");
  if (xdg && *xdg) return std::string(xdg) + "/cleave";
  const char* home = std::getenv("HOME");
  return home && *home ? std::string(home) + "/.cache/cleave" : "";
}

bool use_color(Color choice) {
  if (choice == Color::always) return true;
  if (choice == Color::never) return false;
  const char* no_color = std::getenv("NO_COLOR");
  return isatty(2) == 1 && !(no_color && *no_color);
}

std::string painted(const std::string& text, bool color) {
  if (!color) return text;
  std::string out;
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    std::string line = text.substr(at, end - at);
    for (const auto& [word, code] : {std::pair{"error[CLV", "\x1b[1;31m"}, std::pair{"warning[CLV", "\x1b[1;33m"},
                                     std::pair{"note[CLV", "\x1b[1;36m"}}) {
      const size_t label = line.find(word);
      if (label == std::string::npos) continue;
      const size_t close = line.find(']', label);
      if (close == std::string::npos) continue;
      line = line.substr(0, label) + code + line.substr(label, close + 1 - label) + "\x1b[0m" + line.substr(close + 1);
      break;
    }
    out += line;
    at = end;
  }
  return out;
}

int exit_code(const Diagnostics& errors) {
  for (const Diagnostic& d : errors) {
    switch (d.code) {
      case Code::bad_option:
      case Code::not_available:
      case Code::unbound_dim:
      case Code::no_such_graph:
      case Code::no_such_index:
      case Code::no_such_value:
      case Code::no_such_step:
      case Code::dim_out_of_range: return 2;
      case Code::suite_malformed:
      case Code::not_exportable: return 3;
      case Code::missing_target: return 6;
      case Code::wrong_result: return 1;
      case Code::no_speedup: return 5;
      case Code::database_locked:
      case Code::database_newer: return 8;
      default: break;
    }
    const CodeInfo& i = info(d.code);
    if (i.severity == Severity::note) continue;
    switch (i.number / 1000) {
      case 4: return 4;
      case 6: return 6;
      default: return 3;
    }
  }
  return 3;
}

std::string write_bundle(const std::string& command, const std::string& message,
                         const std::vector<std::string>& files) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::string folder = (fs::temp_directory_path(error) / "cleave-bundle-XXXXXX").string();
  if (error || !mkdtemp(folder.data())) return "";
  std::ofstream(fs::path(folder) / "error.txt") << "cleave " << driver::version() << "\ncommand: " << command << "\n\n"
                                                << message << "\n";
  for (const std::string& f : files) {
    if (!fs::is_regular_file(f, error) || fs::file_size(f, error) > (uintmax_t{64} << 20)) continue;
    fs::copy_file(f, fs::path(folder) / fs::path(f).filename(), fs::copy_options::skip_existing, error);
  }
  return folder;
}

}  // namespace cleave::cli
