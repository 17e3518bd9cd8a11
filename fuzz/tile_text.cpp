// Any bytes as a tile program's text: errors, or a lawful program that prints and parses back.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tile/tile.hpp"

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
  if (again.ok() && print(*again) == text) return 0;
  std::fprintf(stderr, "%s\n---\n%s\n---\n%s\n", source.text.c_str(), text.c_str(),
               again.ok() ? print(*again).c_str() : render(again.errors(), &printed).c_str());
  std::abort();
}
