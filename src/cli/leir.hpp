// The verbs of `cleave leir`.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <map>
#include <string>

namespace cleave::cli {

// What follows `cleave leir VERB` in the example that its help leads with.
const std::map<std::string, std::string>& leir_examples();

// Adds `leir` with its own verbs; running it gives the exit code.
CLI::App* add_leir(CLI::App& app, std::map<std::string, std::function<int()>>& verbs);

}  // namespace cleave::cli
