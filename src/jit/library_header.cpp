// The C header of a library.
#include <algorithm>
#include <array>
#include <set>

#include "jit/library.hpp"

namespace cleave::jit {

namespace {

constexpr std::array kReserved = {
    "alignas",  "alignof",  "asm",      "auto",   "bool",   "break",   "case",      "char",     "class",    "const",
    "continue", "default",  "delete",   "do",     "double", "else",    "enum",      "extern",   "false",    "float",
    "for",      "goto",     "if",       "inline", "int",    "long",    "namespace", "new",      "operator", "private",
    "public",   "register", "restrict", "return", "short",  "signed",  "sizeof",    "static",   "struct",   "switch",
    "template", "this",     "throw",    "true",   "try",    "typedef", "union",     "unsigned", "using",    "virtual",
    "void",     "volatile", "while",    "main",   "errno",  "NULL",    "linux",     "unix"};

const char* c_type(DType d) {
  switch (d) {
    case DType::f64: return "double";
    case DType::f32: return "float";
    case DType::f16:
    case DType::bf16:
    case DType::u16: return "uint16_t";
    case DType::i64: return "int64_t";
    case DType::i32: return "int32_t";
    case DType::i16: return "int16_t";
    case DType::i8: return "int8_t";
    case DType::u32: return "uint32_t";
    case DType::u8:
    case DType::boolean: return "uint8_t";
  }
  return "void";
}

std::string upper(std::string s) {
  std::transform(s.begin(), s.end(), s.begin(), [](char c) { return c >= 'a' && c <= 'z' ? char(c - 'a' + 'A') : c; });
  return s;
}

// Names that differ from each other and from the function.
class Names {
 public:
  explicit Names(std::string function) { taken_.insert(std::move(function)); }
  std::string operator()(std::string_view name) {
    const std::string base = c_identifier(name);
    std::string out = base;
    for (int i = 2; !taken_.insert(out).second; ++i) out = fmt::format("{}_{}", base, i);
    return out;
  }

 private:
  std::set<std::string> taken_;
};

// Text inside a comment must not end it.
std::string comment(std::string text) {
  for (size_t at; (at = text.find("*/")) != std::string::npos;) text.replace(at, 2, "* /");
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

std::string c_identifier(std::string_view name) {
  std::string out;
  for (const char c : name) out += (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ? c : '_';
  if (out.empty() || (out[0] >= '0' && out[0] <= '9')) out = "_" + out;
  if (out[0] == '_') out = "p" + out;  // names that begin with _ belong to the C library
  if (std::find(kReserved.begin(), kReserved.end(), out) != kReserved.end()) out += "_";
  return out;
}

std::string library_header(const Interface& x) {
  const std::string name = c_identifier(x.name), big = upper(name);
  Names names(name);
  std::string parameters, what;
  const auto parameter = [&](std::string text) { parameters += (parameters.empty() ? "" : ", ") + text; };
  const auto tensor = [&](const lower::Argument& a, bool input) {
    const std::string c = names(a.name);
    parameter(fmt::format("{}{}* {}", input ? "const " : "", c_type(a.dtype), c));
    what += comment(fmt::format("     {:<8} {}[{}] {}{}", c, cleave::name(a.dtype), fmt::join(a.shape, ", "),
                                input ? "input" : "output", c == a.name ? "" : fmt::format(" `{}`", a.name))) +
            "\n";
  };
  for (const lower::Argument& a : x.inputs) tensor(a, true);
  for (const std::string& s : x.scalars) {
    const std::string c = names(s);
    parameter("double " + c);
    what += comment(fmt::format("     {:<8} scalar", c)) + "\n";
  }
  for (const lower::Argument& a : x.outputs) tensor(a, false);

  std::string out =
      fmt::format("/* {} */\n#ifndef {}_H_\n#define {}_H_\n\n#include <stdint.h>\n\n", comment(x.note), big, big);
  out += "#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n";
  out += fmt::format(
      "/* What the functions return. {0}_error() says it in words. */\n"
      "enum {{ {1}_OK = 0, {1}_BAD_ARGUMENT = 1, {1}_NO_MEMORY = 2, {1}_UNSUPPORTED_CPU = 3 }};\n\n",
      name, big);
  out += fmt::format(
      "/* Computes the outputs. Tensors are dense and row-major, aligned to their elements, and do not overlap; f16 "
      "and\n"
      "   bf16 are their bits, bool is 0 or 1. Any number of calls may run at once, from any threads; the result has "
      "the\n"
      "   same bits for any number of threads.\n{}*/\nint {}({});\n\n",
      what, name, parameters.empty() ? "void" : parameters);
  out += fmt::format(
      "typedef struct {0}_options {{\n"
      "  int threads;        /* 0: as {0}_set_threads() says */\n"
      "  int keep_denormals; /* 0: denormal numbers are taken as zero while kernels run; the caller's mode comes back "
      "*/\n"
      "  /* If given, tasks run here instead of on the library's threads: task(context, i, w) once for each i in\n"
      "     0 .. tasks - 1, in any order, w in 0 .. workers - 1 and no two at the same time with one w; it returns "
      "when\n"
      "     all have. */\n"
      "  void (*parallel_for)(void* host, int64_t tasks, void (*task)(void* context, int64_t index, int worker),\n"
      "                       void* context);\n"
      "  void* host;\n"
      "  int workers;\n"
      "}} {0}_options;\n\n",
      name);
  out += fmt::format(
      "enum {{ {1}_INPUTS = {2}, {1}_SCALARS = {3}, {1}_OUTPUTS = {4} }};\n\n"
      "/* The same with arrays of arguments; options may be null. */\n"
      "int {0}_run(const void* const* inputs, const double* scalars, void* const* outputs,\n"
      "    const {0}_options* options);\n\n"
      "/* How many threads calls use: 0 is every core that the process may use (the default), a negative number only "
      "asks.\n"
      "   Returns the number. */\n"
      "int {0}_set_threads(int threads);\n\n"
      "/* Ends the library's threads and frees its memory; the next call makes new ones. No call may be running. */\n"
      "void {0}_release(void);\n\n"
      "const char* {0}_error(int status);\n\n"
      "#ifdef __cplusplus\n}}\n#endif\n\n#endif /* {1}_H_ */\n",
      name, big, x.inputs.size(), x.scalars.size(), x.outputs.size());
  return out;
}

}  // namespace cleave::jit
