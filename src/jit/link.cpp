#include "jit/link.hpp"

#include <lld/Common/Driver.h>
#include <llvm/Support/raw_ostream.h>

#include <mutex>

#include "base/codes.hpp"

LLD_HAS_DRIVER(elf)

namespace cleave::jit {

Diagnostics link(const std::vector<std::string>& words) {
  static std::mutex mutex;
  static bool usable = true;
  const std::lock_guard lock(mutex);
  if (!usable) return {diagnose(Code::link_failed, "the linker failed before and cannot run again")};
  std::vector<const char*> arguments = {"ld.lld"};
  for (const std::string& w : words) arguments.push_back(w.c_str());
  std::string output, errors;
  llvm::raw_string_ostream out(output), err(errors);
  const lld::Result r = lld::lldMain(arguments, out, err, {{lld::Gnu, &lld::elf::link}});
  usable = r.canRunAgain;
  if (r.retCode == 0) return {};
  while (!errors.empty() && errors.back() == '\n') errors.pop_back();
  return {diagnose(Code::link_failed, errors)};
}

}  // namespace cleave::jit
