// Any bytes as an itGraph's text: errors, or a lawful program that prints and parses back, and runs or says why not.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "eval/itgraph_eval.hpp"

namespace {

using namespace cleave;

// Zeros for what the program wants, so that most programs run.
void run(const itgraph::Program& p) {
  oracle::ItGraphArguments a;
  int64_t total = 0;
  for (const itgraph::Value& v : p.values) {
    if (v.alias_of.valid() || v.argument < 0) continue;
    std::vector<int64_t> extents;
    int64_t elements = 1;
    for (sym::Expr e : v.shape) {
      extents.push_back(p.syms->as_constant(e).value());
      elements = extents.back() > 10000 || elements > 10000 ? 10001 : elements * extents.back();
    }
    total += elements;
    if (total > 10000 || v.argument > 100) return;
    const auto at = static_cast<size_t>(v.argument);
    auto put = [&](std::vector<oracle::Tensor>& list) {
      if (list.size() <= at) list.resize(at + 1);
      list[at] = oracle::zeros(v.dtype, extents);
    };
    if (v.role == itgraph::Role::input) put(a.inputs);
    if (v.role == itgraph::Role::constant) put(a.constants);
    if (v.role == itgraph::Role::scalar) a.scalars.resize(std::max(a.scalars.size(), at + 1));
  }
  oracle::EvalOptions options;
  options.max_elements = 20000;
  options.max_steps = 20000;
  (void)oracle::run(p, a, options);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const SourceText source{"fuzz.itgraph", std::string(reinterpret_cast<const char*>(data), size)};
  const auto p = itgraph::parse(source);
  if (!p.ok()) {
    (void)render(p.errors(), &source);
    return 0;
  }
  const std::string text = print(*p);
  const SourceText printed{"printed.itgraph", text};
  const auto again = itgraph::parse(printed);
  if (!again.ok() || print(*again) != text) {
    std::fprintf(stderr, "%s\n---\n%s\n---\n%s\n", source.text.c_str(), text.c_str(),
                 again.ok() ? print(*again).c_str() : render(again.errors(), &printed).c_str());
    std::abort();
  }
  run(*p);
  return 0;
}
