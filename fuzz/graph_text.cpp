// Any bytes as a graph's text: errors, or a graph that verifies and whose print reads back as the same graph.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "graph/graph.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const cleave::SourceText source{"fuzz.graph", std::string(reinterpret_cast<const char*>(data), size)};
  const auto g = cleave::graph::parse(source);
  if (!g.ok()) {
    (void)cleave::render(g.errors(), &source);
    return 0;
  }
  if (!cleave::graph::verify(*g).empty()) std::abort();
  const cleave::SourceText printed{"printed.graph", cleave::graph::print(*g, {.inline_elements = 1 << 20})};
  const auto again = cleave::graph::parse(printed);
  if (!again.ok() || !cleave::graph::equal(*g, *again)) std::abort();
  return 0;
}
