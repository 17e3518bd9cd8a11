// Any bytes as a tile program's text: errors, or a lawful program that prints and parses back, and runs or says why
// not.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "eval/tile_eval.hpp"

namespace {

using namespace cleave;

// Zeros for what the program wants, so that most programs run.
void run(const tile::Program& p) {
  std::vector<std::vector<std::byte>> memory;
  oracle::TileArguments a;
  double total = 0;
  for (const tile::Buffer& b : p.buffers) {
    if (b.alias_of.valid() || b.argument < 0) continue;
    double elements = 1;
    for (sym::Expr e : b.shape) elements *= static_cast<double>(p.syms->as_constant(e).value_or(0));
    total += elements;
    if (total > 10000 || b.argument > 100) return;
    const auto at = static_cast<size_t>(b.argument);
    auto put = [&](auto& list) {
      if (list.size() <= at) list.resize(at + 1);
      list[at] = memory.emplace_back(static_cast<size_t>(elements) * static_cast<size_t>(byte_size(b.dtype)));
    };
    if (b.place == tile::Place::input) put(a.inputs);
    if (b.place == tile::Place::constant) put(a.constants);
    if (b.place == tile::Place::output) put(a.outputs);
    if (b.place == tile::Place::scalar) a.scalars.resize(std::max(a.scalars.size(), at + 1));
  }
  oracle::TileOptions options;
  options.max_bytes = 100000;
  options.max_steps = 20000;
  (void)try_run(p, a, options);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const cleave::SourceText source{"fuzz.tile", std::string(reinterpret_cast<const char*>(data), size)};
  const auto p = cleave::tile::parse(source);
  if (!p.ok()) {
    (void)cleave::render(p.errors(), &source);
    return 0;
  }
  const std::string text = print(*p);
  const cleave::SourceText printed{"printed.tile", text};
  const auto again = cleave::tile::parse(printed);
  if (again.ok() && print(*again) == text) {
    run(*p);
    return 0;
  }
  std::fprintf(stderr, "%s\n---\n%s\n---\n%s\n", source.text.c_str(), text.c_str(),
               again.ok() ? print(*again).c_str() : render(again.errors(), &printed).c_str());
  std::abort();
}
