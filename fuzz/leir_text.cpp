// Any bytes as a LEIR text: messages, or a syntax that prints and parses back. What checks is run, in storage precision
// and with error bounds, printed in other languages and raised to a graph, or says why not.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "bridge/raise.hpp"
#include "leir_emit/c.hpp"
#include "leir_emit/tir.hpp"
#include "leir_eval/interpret.hpp"

namespace {

using namespace cleave;

void run(const leir::Program& p) {
  std::map<std::string, leir::Array> inputs;
  double elements = 0;
  for (const leir::Variable& v : p.variables()) elements += static_cast<double>(v.elements());
  if (elements > 10000) return;
  for (uint32_t v = 0; v < p.variables().size(); ++v) {
    const leir::Variable& var = p.variables()[v];
    if (!var.known() || var.role == leir::Role::output) continue;
    leir::Array a = leir::make_array(var.type, var.shape);
    for (double& x : a.reals) x = 0.5;
    for (int64_t& x : a.integers) x = var.values ? var.values->first : 0;
    inputs.emplace(p.name(v), std::move(a));
  }
  leir::InterpretOptions o;
  o.max_steps = 20000;
  (void)leir::interpret(p, inputs, o);
  o.error_bounds = true;
  (void)leir::interpret(p, inputs, o);
  (void)leir::emit_c(p);
  (void)leir::emit_cuda(p);
  (void)leir::emit_tir(p);
  (void)leir::emit_tir(p, {.cuda = true});
  (void)bridge::raise(p);
  (void)leir::canonical_key(p);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const SourceText source{"fuzz.leir", std::string(reinterpret_cast<const char*>(data), size)};
  leir::Parsed p = leir::parse(source);
  if (!p.ok()) {
    (void)render(p.messages, &source);
    return 0;
  }
  const std::string text = print(p.syntax);
  const leir::Parsed again = leir::parse(SourceText{"printed.leir", text});
  if (!again.ok() || print(again.syntax) != text || structure(again.syntax) != structure(p.syntax)) {
    std::fprintf(stderr, "%s\n---\n%s\n---\n%s", source.text.c_str(), text.c_str(),
                 render(again.messages, nullptr).c_str());
    std::abort();
  }
  const leir::Checked c = leir::check(std::move(p.syntax));
  (void)render(c.messages, &source);
  if (c.program) run(*c.program);
  return 0;
}
