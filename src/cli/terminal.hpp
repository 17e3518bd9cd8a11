// What the command shows beside its result: progress, colours, interruption, reproduction bundles.
#pragma once

#include <string>
#include <vector>

#include "base/diagnostic.hpp"
#include "tune/tune.hpp"

namespace cleave::cli {

enum class Color { automatic, always, never };

// Ctrl-C sets a flag once; a second one ends the process at once with 130.
void catch_interrupts();
bool interrupted();

// On a terminal at most ten updates a second of four lines; otherwise a line for each new best and one each 30 seconds.
class ProgressLines {
 public:
  explicit ProgressLines(bool quiet);
  ~ProgressLines();
  void show(const tune::Progress& progress);
  void log(const std::string& line);  // a line that stays

 private:
  void erase();
  bool quiet_, terminal_, drawn_ = false;
  double last_ = -1e9;
};

bool use_color(Color choice);
// The rendered diagnostics, their labels coloured.
std::string painted(const std::string& text, bool color);

// Where measurements are kept unless an option says otherwise; empty: nowhere.
std::string default_cache();

// 2 usage, 3 input, 4 certificates, 5 speed, 6 toolchain, 1 our own fault.
int exit_code(const Diagnostics& errors);

// Writes what is needed to see an internal error again; the folder, or an empty text.
std::string write_bundle(const std::string& command, const std::string& message, const std::vector<std::string>& files);

}  // namespace cleave::cli
