#include "driver/leir_native.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/codes.hpp"
#include "frontend/file.hpp"
#include "jit/leir.hpp"
#include "leir_emit/c.hpp"
#include "types/reals.hpp"

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

bool is_input(const leir::Variable& v) { return v.known() && v.role != leir::Role::output; }

}  // namespace

leir::Type stored_type(const leir::Variable& v, bool bounds) {
  return bounds && leir::is_real(v.type) ? leir::Type::f64 : v.type;
}

Result<LeirBuffers> leir_buffers(const leir::Program& p, bool bounds, const LeirBuffers* shared) {
  LeirBuffers out;
  out.bounds = bounds;
  auto add = [&](int64_t bytes) {
    out.bytes.emplace_back(bytes + 64);
    out.pointers.push_back(out.bytes.back().data());
  };
  for (uint32_t v = 0; v < p.variables().size(); ++v) {
    const leir::Variable& var = p.variables()[v];
    if (shared && is_input(var)) {
      out.bytes.emplace_back();
      out.pointers.push_back(shared->pointers[v]);
      continue;
    }
    const int64_t width = leir::byte_size(stored_type(var, bounds)), n = var.elements();
    constexpr int64_t kMost = int64_t{8} << 30;
    if (n > kMost / width) return diagnose(Code::leir_too_large, kMost, "bytes of variables");
    add(n * width);
  }
  if (bounds)
    for (const leir::Variable& v : p.variables())
      add(leir::is_real(v.type) && !is_input(v) ? static_cast<int64_t>(sizeof(double)) * v.elements() : 0);
  return out;
}

Diagnostics fill_inputs(const leir::Program& p, const std::map<std::string, Array>& inputs, LeirBuffers& buffers) {
  for (uint32_t v = 0; v < p.variables().size(); ++v) {
    const leir::Variable& var = p.variables()[v];
    if (!is_input(var)) continue;
    const leir::Type type = stored_type(var, buffers.bounds);
    const auto width = static_cast<size_t>(leir::byte_size(type));
    auto* memory = static_cast<std::byte*>(buffers.pointers[v]);
    const auto it = inputs.find(p.name(v));
    if (it == inputs.end()) return {diagnose(Code::leir_input, p.name(v), "is not given")};
    if (it->second.shape != var.shape)
      return {diagnose(Code::leir_input, p.name(v),
                       fmt::format("has the shape [{}], declared is [{}]", fmt::join(it->second.shape, ","),
                                   fmt::join(var.shape, ",")))};
    if (leir::is_real(var.type) && it->second.real()) {
      std::vector<double> values = it->second.reals;
      round_reals(*leir::as_dtype(var.type), values);
      store_reals(*leir::as_dtype(type), values, memory);
      continue;
    }
    for (size_t i = 0; i < static_cast<size_t>(var.elements()); ++i) {
      std::byte* at = memory + i * width;
      if (leir::is_real(var.type)) {
        leir::store_real(type, at, leir::round_real(var.type, leir::element(it->second, static_cast<int64_t>(i))));
      } else {
        const int64_t x =
            it->second.real() ? leir::real_to_integer(var.type, it->second.reals[i]) : it->second.integers[i];
        leir::store_integer(var.type, at, x);
        if (var.values && (x < var.values->first || x > var.values->second))
          return {
              diagnose(Code::leir_input, p.name(v),
                       fmt::format("has the value {}, declared are {}..{}", x, var.values->first, var.values->second))};
      }
    }
  }
  return {};
}

namespace {

Array read_back(const leir::Program& p, const LeirBuffers& b, uint32_t v) {
  const leir::Variable& var = p.variables()[v];
  Array a = leir::make_array(var.type, var.shape);
  const auto* memory = static_cast<const std::byte*>(b.pointers[v]);
  const auto width = static_cast<size_t>(leir::byte_size(var.type));
  if (a.real())
    load_reals(*leir::as_dtype(var.type), memory, a.reals);
  else
    for (size_t i = 0; i < a.integers.size(); ++i) a.integers[i] = leir::load_integer(var.type, memory + i * width);
  return a;
}

Result<LeirBuffers> filled(const leir::Program& p, const std::map<std::string, Array>& inputs) {
  TRY_ASSIGN(LeirBuffers b, leir_buffers(p));
  for (runtime::Buffer& x : b.bytes) std::memset(x.data(), 0x5a, static_cast<size_t>(x.size()));  // easy to see
  if (Diagnostics bad = fill_inputs(p, inputs, b); !bad.empty()) return bad;
  return b;
}

}  // namespace

Diagnostic leir_failure(const leir::Program& p, int code, const int64_t* at) {
  const leir::Access& a = p.accesses()[static_cast<size_t>(std::abs(code) - 1)];
  std::string where = at ? "" : "in some thread";
  if (at)
    for (size_t k = 0; uint32_t l : p.equations()[p.equation_of(a.item)].loops)
      where += fmt::format("{}{}={}", k == 0 ? "at " : ", ", p.syntax().text(p.syntax().loops[l].index), at[k]), ++k;
  return diagnose_at(p.syntax().exprs[a.expr].range, code < 0 ? Code::leir_divisor : Code::leir_out_of_bounds,
                     print(p.syntax(), a.expr), where.empty() ? "without loops" : where);
}

Result<NativeLeir> compile_leir(const leir::Program& p, const std::string& via, bool strict, int threads) {
  NativeLeir out;
  const double start = now();
  if (via == "jit") {
    TRY_ASSIGN(jit::LeirCode code, jit::compile_leir(p, {.strict = strict, .divide = threads > 1}));
    out.run = [code](void* const* v, int64_t* at) { return code.run(v, at); };
    if (threads > 1)
      out.run = [code, pool = std::make_shared<ThreadPool>(threads)](void* const* v, int64_t* at) {
        return code.run(v, at, *pool);
      };
  } else {
    const std::string cc = compiler();
    if (cc.empty())
      return diagnose(Code::leir_unsupported, "C program", "there is no C compiler (clang-19, clang, gcc or cc)");
    const bool cuda = via == "cuda";
    TRY_ASSIGN(const std::string text, cuda ? leir::emit_cuda(p) : leir::emit_c(p, {.strict = strict}));
    auto loaded = std::make_shared<Loaded>();
    std::string pattern = (fs::temp_directory_path() / "cleave_leir_XXXXXX").string();
    if (!mkdtemp(pattern.data())) return diagnose(Code::file_unwritable, pattern, "no folder could be made there");
    loaded->folder = pattern;
    const std::string source = (loaded->folder / (cuda ? "p.cpp" : "p.c")).string(),
                      library = (loaded->folder / "p.so").string();
    if (Diagnostics bad = write_bytes(source, std::as_bytes(std::span(text))); !bad.empty()) return bad;
    const std::string command = fmt::format("{} {} -w -shared -fPIC -o {} {} -lm", cc,
                                            cuda ? leir::cuda_flags() : leir::c_flags(strict), library, source);
    if (std::system(command.c_str()) != 0)
      return diagnose(Code::leir_unsupported, "C program", fmt::format("`{}` failed", command));
    loaded->library = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    void* run = loaded->library ? dlsym(loaded->library, "leir_run") : nullptr;
    if (!run) return diagnose(Code::leir_unsupported, "C program", "the compiled library cannot be loaded");
    if (cuda)
      out.run = [loaded, run = reinterpret_cast<void (*)(void* const*, int*)>(run)](void* const* v, int64_t*) {
        int code = 0;
        run(v, &code);
        return code;
      };
    else
      out.run = [loaded, run = reinterpret_cast<int (*)(void* const*, int64_t*)>(run)](void* const* v, int64_t* at) {
        return run(v, at);
      };
    out.says_where = !cuda;
  }
  out.compile_seconds = now() - start;
  return out;
}

Result<std::vector<NativeCall>> call_native(const leir::Program& p, std::span<const NativeLeir> natives,
                                            const std::map<std::string, Array>& inputs) {
  TRY_ASSIGN(LeirBuffers made, filled(p, inputs));
  const auto b = std::make_shared<LeirBuffers>(std::move(made));
  std::vector<NativeCall> out;
  for (const NativeLeir& native : natives)
    out.push_back({[b, run = native.run] {
                     int64_t at[64] = {};
                     return run(b->pointers.data(), at);
                   },
                   [b, &p](uint32_t v) { return read_back(p, *b, v); }});
  return out;
}

Result<std::map<std::string, Array>> run_native(const leir::Program& p, const NativeLeir& native,
                                                const std::map<std::string, Array>& inputs) {
  TRY_ASSIGN(LeirBuffers b, filled(p, inputs));
  int64_t at[64] = {};
  if (const int code = native.run(b.pointers.data(), at))
    return leir_failure(p, code, native.says_where ? at : nullptr);
  std::map<std::string, Array> out;
  for (uint32_t v = 0; v < p.variables().size(); ++v)
    if (p.variables()[v].role == leir::Role::output) out.emplace(p.name(v), read_back(p, b, v));
  return out;
}

}  // namespace cleave::driver
