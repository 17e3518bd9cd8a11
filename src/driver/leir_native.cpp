#include "driver/leir_native.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "base/codes.hpp"
#include "frontend/file.hpp"
#include "jit/leir.hpp"
#include "leir_emit/c.hpp"

namespace cleave::driver {

using leir::Array;

namespace {

namespace fs = std::filesystem;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// A folder that goes away with its owner, and the library that was loaded from it.
struct Loaded {
  fs::path folder;
  void* library = nullptr;
  ~Loaded() {
    if (library) dlclose(library);
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }
};

std::string compiler() {
  for (const char* c : {"clang-19", "clang", "gcc", "cc"})
    if (std::system(fmt::format("command -v {} >/dev/null 2>&1", c).c_str()) == 0) return c;
  return "";
}

struct Buffers {
  std::vector<std::vector<std::byte>> bytes;
  std::vector<void*> pointers;
};

Result<Buffers> buffers_of(const leir::Program& p, const std::map<std::string, Array>& inputs) {
  Buffers out;
  for (uint32_t v = 0; v < p.variables().size(); ++v) {
    const leir::Variable& var = p.variables()[v];
    const auto width = static_cast<size_t>(leir::byte_size(var.type));
    const auto n = static_cast<size_t>(var.elements());
    if (n * width > (size_t{8} << 30)) return diagnose(Code::leir_too_large, int64_t{8} << 30, "bytes of variables");
    out.bytes.emplace_back(n * width + 64, std::byte{0x5a});
    if (!var.known() || var.role == leir::Role::output) continue;
    const auto it = inputs.find(p.name(v));
    if (it == inputs.end()) return diagnose(Code::leir_input, p.name(v), "is not given");
    if (it->second.shape != var.shape)
      return diagnose(Code::leir_input, p.name(v),
                      fmt::format("has the shape [{}], declared is [{}]", fmt::join(it->second.shape, ","),
                                  fmt::join(var.shape, ",")));
    for (size_t i = 0; i < n; ++i) {
      std::byte* at = out.bytes.back().data() + i * width;
      if (leir::is_real(var.type)) {
        leir::store_real(var.type, at, leir::element(it->second, static_cast<int64_t>(i)));
      } else {
        const int64_t x =
            it->second.real() ? leir::real_to_integer(var.type, it->second.reals[i]) : it->second.integers[i];
        leir::store_integer(var.type, at, x);
        if (var.values && (x < var.values->first || x > var.values->second))
          return diagnose(
              Code::leir_input, p.name(v),
              fmt::format("has the value {}, declared are {}..{}", x, var.values->first, var.values->second));
      }
    }
  }
  for (auto& b : out.bytes) out.pointers.push_back(b.data());
  return out;
}

Array read_back(const leir::Program& p, const Buffers& b, uint32_t v) {
  const leir::Variable& var = p.variables()[v];
  Array a = leir::make_array(var.type, var.shape);
  const auto width = static_cast<size_t>(leir::byte_size(var.type));
  for (size_t i = 0; i < static_cast<size_t>(a.elements()); ++i) {
    if (a.real())
      a.reals[i] = leir::load_real(var.type, b.bytes[v].data() + i * width);
    else
      a.integers[i] = leir::load_integer(var.type, b.bytes[v].data() + i * width);
  }
  return a;
}

Diagnostic failed(const leir::Program& p, int code, const int64_t* at) {
  const leir::Access& a = p.accesses()[static_cast<size_t>(code - 1)];
  std::string where;
  size_t k = 0;
  for (uint32_t l : p.equations()[p.equation_of(a.item)].loops)
    where += fmt::format("{}{}={}", where.empty() ? "at " : ", ", p.syntax().text(p.syntax().loops[l].index), at[k++]);
  return diagnose_at(p.syntax().exprs[a.expr].range, Code::leir_out_of_bounds, print(p.syntax(), a.expr), where);
}

}  // namespace

Result<NativeLeir> compile_leir(const leir::Program& p, const std::string& via, bool strict) {
  NativeLeir out;
  const double start = now();
  if (via == "jit") {
    TRY_ASSIGN(jit::LeirCode code, jit::compile_leir(p, {.strict = strict}));
    out.run = [code](void* const* v, int64_t* at) { return code.run(v, at); };
  } else {
    const std::string cc = compiler();
    if (cc.empty())
      return diagnose(Code::leir_unsupported, "C program", "there is no C compiler (clang-19, clang, gcc or cc)");
    TRY_ASSIGN(const std::string text, leir::emit_c(p, {.strict = strict}));
    auto loaded = std::make_shared<Loaded>();
    std::string pattern = (fs::temp_directory_path() / "cleave_leir_XXXXXX").string();
    if (!mkdtemp(pattern.data())) return diagnose(Code::file_unwritable, pattern, "no folder could be made there");
    loaded->folder = pattern;
    const std::string source = (loaded->folder / "p.c").string(), library = (loaded->folder / "p.so").string();
    if (Diagnostics bad = write_bytes(source, std::as_bytes(std::span(text))); !bad.empty()) return bad;
    const std::string command =
        fmt::format("{} {} -w -shared -fPIC -o {} {} -lm", cc, leir::c_flags(strict), library, source);
    if (std::system(command.c_str()) != 0)
      return diagnose(Code::leir_unsupported, "C program", fmt::format("`{}` failed", command));
    loaded->library = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    auto* run = loaded->library ? reinterpret_cast<int (*)(void* const*, int64_t*)>(dlsym(loaded->library, "leir_run"))
                                : nullptr;
    if (!run) return diagnose(Code::leir_unsupported, "C program", "the compiled library cannot be loaded");
    out.run = [loaded, run](void* const* v, int64_t* at) { return run(v, at); };
  }
  out.compile_seconds = now() - start;
  return out;
}

Result<NativeCall> call_native(const leir::Program& p, const NativeLeir& native,
                               const std::map<std::string, Array>& inputs) {
  TRY_ASSIGN(Buffers made, buffers_of(p, inputs));
  const auto b = std::make_shared<Buffers>(std::move(made));
  NativeCall out;
  out.run = [b, run = native.run] {
    int64_t at[64] = {};
    return run(b->pointers.data(), at);
  };
  out.output = [b, &p](uint32_t v) { return read_back(p, *b, v); };
  return out;
}

Result<std::map<std::string, Array>> run_native(const leir::Program& p, const NativeLeir& native,
                                                const std::map<std::string, Array>& inputs) {
  TRY_ASSIGN(Buffers b, buffers_of(p, inputs));
  int64_t at[64] = {};
  if (const int code = native.run(b.pointers.data(), at)) return failed(p, code, at);
  std::map<std::string, Array> out;
  for (uint32_t v = 0; v < p.variables().size(); ++v)
    if (p.variables()[v].role == leir::Role::output) out.emplace(p.name(v), read_back(p, b, v));
  return out;
}

Result<double> time_native(const leir::Program& p, const NativeLeir& native, const std::map<std::string, Array>& inputs,
                           int runs) {
  TRY_ASSIGN(Buffers b, buffers_of(p, inputs));
  int64_t at[64] = {};
  std::vector<double> times;
  double total = 0;
  for (int i = 0; i < runs || (total < 0.1 && i < 10000); ++i) {
    const double start = now();
    if (const int code = native.run(b.pointers.data(), at)) return failed(p, code, at);
    times.push_back(now() - start);
    total += times.back();
  }
  std::nth_element(times.begin(), times.begin() + static_cast<ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

}  // namespace cleave::driver
