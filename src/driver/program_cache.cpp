#include "driver/program_cache.hpp"

#include "driver/compile.hpp"

namespace cleave::driver {

namespace {

constexpr std::string_view kNext = "\n---\n";  // between the texts of a file; no line of a tile program

std::vector<uint8_t> bytes_of(std::string_view text) { return {text.begin(), text.end()}; }

std::optional<tile::Program> parsed(std::string_view text) {
  auto program = tile::parse(SourceText{"cache", std::string(text)});
  return program ? std::optional(std::move(*program)) : std::nullopt;
}

}  // namespace

ProgramCache::ProgramCache(const std::string& cache_dir)
    : files_(folder_of_cache(cache_dir, "programs", ".tile")), objects_(cache_dir) {}

std::string ProgramCache::key(const Compilation& c) const {
  if (!files_.keeps()) return "";
  std::string typical;
  for (const auto& [name, value] : c.typical) typical += fmt::format("{}={} ", name, value);
  const Options& o = c.options;
  return FileCache::key(fmt::format("{}\n{}\n{}\nthreads {} keep {} typical {}seed {} split {}\noff {} without {}\n{}",
                                    code_key(c.machine), build_stamp(), print(c.machine), o.threads, o.top, typical,
                                    o.seed, o.split, fmt::join(o.disabled, " "), fmt::join(o.without, " "),
                                    graph::print(*c.bound)));
}

std::optional<ChosenProgram> ProgramCache::find(const std::string& key, const Machine& machine) const {
  if (key.empty()) return std::nullopt;
  const std::vector<uint8_t> bytes = files_.find(key);
  if (bytes.empty()) return std::nullopt;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const size_t end = text.find(kNext);
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view first = text.substr(0, end), second = text.substr(end + kNext.size());
  auto program = parsed(first);
  if (!program) return std::nullopt;
  ChosenProgram out{std::move(*program), objects_.find(objects_.key(first, machine)), std::nullopt};
  if (!second.empty() && !(out.unfused = parsed(second))) return std::nullopt;
  return out;
}

void ProgramCache::keep(const std::string& key, const ChosenProgram& chosen, const Machine& machine) const {
  if (key.empty()) return;
  const std::string text = tile::print(chosen.program);
  objects_.keep(objects_.key(text, machine), chosen.object);
  files_.keep(key, bytes_of(fmt::format("{}{}{}", text, kNext, chosen.unfused ? tile::print(*chosen.unfused) : "")));
}

}  // namespace cleave::driver
