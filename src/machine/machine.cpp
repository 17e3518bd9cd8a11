#include "machine/machine.hpp"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <cmath>
#include <fstream>
#include <variant>

#include "base/codes.hpp"
#include "base/lexer.hpp"
#include "base/thread_pool.hpp"

namespace cleave {

namespace {

constexpr const char* kIsaNames[] = {"generic", "avx2", "avx512", "neon"};

// The fields of the text form, in the order in which they are printed.
struct Field {
  const char* key;
  std::variant<int Machine::*, int64_t Machine::*, double Machine::*> member;
  double lowest, highest;
};
const Field kFields[] = {
    {"vector_bytes", &Machine::vector_bytes, 4, 1024},
    {"vector_registers", &Machine::vector_registers, 1, 1024},
    {"fma_latency", &Machine::fma_latency, 1, 100},
    {"fma_pipes", &Machine::fma_pipes, 1, 16},
    {"matrix_products", &Machine::matrix_products, 0, 65536},
    {"cores", &Machine::cores, 1, 65536},
    {"l1_bytes", &Machine::l1_bytes, 1024, 0x1p40},
    {"l2_bytes", &Machine::l2_bytes, 1024, 0x1p40},
    {"l3_bytes", &Machine::l3_bytes, 0, 0x1p40},
    {"peak_gflops", &Machine::peak_gflops, 0, 1e9},
    {"l2_gbytes", &Machine::l2_gbytes, 0, 1e9},
    {"l3_gbytes", &Machine::l3_gbytes, 0, 1e9},
    {"dram_gbytes", &Machine::dram_gbytes, 0, 1e9},
    {"exp_cycles", &Machine::exp_cycles, 0, 1e9},
    {"gigahertz", &Machine::gigahertz, 0, 1000},
};

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// "48K", "1024K", "32M" as sysfs writes cache sizes; 0 when it is something else.
int64_t parse_size(const std::string& text) {
  size_t i = 0;
  int64_t n = 0;
  while (i < text.size() && text[i] >= '0' && text[i] <= '9' && n < (int64_t{1} << 40)) n = 10 * n + (text[i++] - '0');
  if (i < text.size() && text[i] == 'K') n <<= 10;
  if (i < text.size() && text[i] == 'M') n <<= 20;
  return n;
}

void detect_caches(Machine& m) {
  for (int i = 0; i < 8; ++i) {
    const std::string dir = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", i);
    const std::string level = first_line(dir + "level");
    if (level.empty()) break;
    const int64_t bytes = parse_size(first_line(dir + "size"));
    if (bytes < 1024 || first_line(dir + "type") == "Instruction") continue;
    if (level == "1") m.l1_bytes = bytes;
    if (level == "2") m.l2_bytes = bytes;
    if (level == "3") m.l3_bytes = bytes;
  }
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name"))
      if (const size_t colon = line.find(':'); colon != std::string::npos && colon + 2 < line.size())
        return line.substr(colon + 2);
  return "host";
}

}  // namespace

const char* name(Isa isa) { return kIsaNames[static_cast<size_t>(isa)]; }

Machine with_isa(Machine m, Isa isa) {
  m.isa = isa;
  switch (isa) {
    case Isa::generic: m.vector_bytes = 16, m.vector_registers = 16; break;
    case Isa::avx2: m.vector_bytes = 32, m.vector_registers = 16; break;
    case Isa::avx512: m.vector_bytes = 64, m.vector_registers = 32; break;
    case Isa::neon: m.vector_bytes = 16, m.vector_registers = 32, m.fma_pipes = 4; break;
  }
  if (isa != Isa::avx512) m.matrix_products = 0;
  return m;
}

Isa host_isa() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq"))
    return Isa::avx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Isa::avx2;
  return Isa::generic;
#elif defined(__aarch64__)
  return Isa::neon;
#else
  return Isa::generic;
#endif
}

bool host_has_matrix_unit() {
#if defined(__x86_64__) && defined(__linux__)
  static const bool has = [] {
    constexpr unsigned kTile = 1u << 24, kBf16 = 1u << 22;  // of cpuid leaf 7, edx
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & (kTile | kBf16)) != (kTile | kBf16)) return false;
    // Linux keeps the tiles of a process that has asked for them: arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA).
    return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
  }();
  return has && host_isa() == Isa::avx512;
#else
  return false;
#endif
}

Machine host_machine() {
  Machine m;
  if (host_has_matrix_unit()) m.matrix_products = 512;  // 16 x 16 x 32 in 16 cycles
  m.name = cpu_name();
  m.cores = usable_cores();
  detect_caches(m);
  return with_isa(m, host_isa());
}

std::string print(const Machine& m) {
  std::string quoted;
  for (const char c : m.name) quoted += c == '"' || c == '\\' || c == '\n' ? ' ' : c;
  std::string out = fmt::format("machine \"{}\"\nisa = {}\n", quoted, name(m.isa));
  for (const Field& f : kFields)
    out += std::visit(
        [&](auto member) {
          if constexpr (std::is_same_v<decltype(member), double Machine::*>)
            return fmt::format("{} = {}\n", f.key, print_number(m.*member));
          else
            return fmt::format("{} = {}\n", f.key, m.*member);
        },
        f.member);
  return out;
}

Result<Machine> parse_machine(const SourceText& source) {
  TRY_ASSIGN(std::vector<Token> tokens, tokenize(source));
  TokenCursor cursor(std::move(tokens));
  Machine m;
  if (!cursor.expect("machine")) return cursor.errors();
  auto title = cursor.expect_string("the machine's name");
  if (!title) return cursor.errors();
  m.name = *title;
  while (!cursor.at_end()) {
    const Token key = cursor.peek();
    if (!cursor.expect_identifier("a property of the machine") || !cursor.expect("=")) return cursor.errors();
    if (key.text == "isa") {
      const Token value = cursor.peek();
      const auto text = cursor.expect_identifier("an instruction set");
      if (!text) return cursor.errors();
      const auto* found = std::find(std::begin(kIsaNames), std::end(kIsaNames), *text);
      if (found == std::end(kIsaNames))
        return diagnose_at(value.range, Code::unexpected_token, fmt::format("`{}`", *text),
                           "generic, avx2, avx512 or neon");
      m.isa = static_cast<Isa>(found - std::begin(kIsaNames));
      continue;
    }
    const auto* field =
        std::find_if(std::begin(kFields), std::end(kFields), [&](const Field& f) { return key.text == f.key; });
    if (field == std::end(kFields)) return diagnose_at(key.range, Code::unknown_attribute, "machine", key.text);
    const Token value = cursor.peek();
    const auto number = cursor.expect_number("a number");
    if (!number) return cursor.errors();
    const bool whole = !std::holds_alternative<double Machine::*>(field->member);
    if (!(*number >= field->lowest && *number <= field->highest) || (whole && *number != std::floor(*number)))
      return diagnose_at(value.range, Code::number_out_of_range, value.text,
                         fmt::format("{}..{}{}", field->lowest, field->highest, whole ? " (whole)" : ""));
    std::visit([&](auto member) { m.*member = static_cast<std::decay_t<decltype(m.*member)>>(*number); },
               field->member);
  }
  return m;
}

}  // namespace cleave
