#include <cstdlib>

#include "api/internal.hpp"
#include "base/codes.hpp"
#include "driver/options.hpp"

namespace cleave {

const char* library_version() { return driver::version(); }

Error::Error(Kind kind, std::string code, std::string node, std::string hint, const std::string& message)
    : std::runtime_error(message),
      kind_(kind),
      code_(std::move(code)),
      node_(std::move(node)),
      hint_(std::move(hint)) {}
Error::~Error() = default;

static_assert(static_cast<int>(ElementType::boolean) == static_cast<int>(DType::boolean) && kDTypes == 12);

const char* name(ElementType type) { return name(api::internal(type)); }
std::optional<ElementType> element_type(std::string_view text) {
  const auto known = dtype_from_name(text);
  if (!known) return std::nullopt;
  return api::external(*known);
}
int64_t size_of(ElementType type) { return byte_size(api::internal(type)); }

namespace api {

DType internal(ElementType type) {
  const auto number = static_cast<uint8_t>(type);
  if (number >= kDTypes) raise(diagnose(Code::unknown_dtype, number));
  return static_cast<DType>(number);
}
ElementType external(DType type) { return static_cast<ElementType>(type); }

namespace {

Error::Kind kind_of(Code code) {
  switch (code) {
    case Code::onnx_unsupported:
    case Code::onnx_node:
    case Code::onnx_opset:
    case Code::not_schedulable:
    case Code::cannot_lower:
    case Code::not_available:
    case Code::missing_target: return Error::Kind::unsupported;
    case Code::certificate_refused:
    case Code::wrong_result: return Error::Kind::wrong_result;
    case Code::unsupported_target:
    case Code::bad_object: return Error::Kind::toolchain;
    case Code::codegen_failed:
    case Code::missing_function:
    case Code::invalid_vector_program: return Error::Kind::internal;
    default: return Error::Kind::invalid;
  }
}

// The first parameter of these says what is meant.
bool names_a_node(Code code) {
  const std::string_view text = info(code).text;
  return text.starts_with("`{}`") || text.starts_with("node `{}`") || text.starts_with("tensor `{}`") ||
         text.starts_with("input `{}`") || text.starts_with("output `{}`") || text.starts_with("the dimension `{}`");
}

}  // namespace

void raise(const Diagnostics& errors, const SourceText* source) {
  const Diagnostic* first = &errors.front();
  for (const Diagnostic& d : errors) {
    if (info(d.code).severity != Severity::error) continue;
    first = &d;
    break;
  }
  const std::string hint = first->hint.empty() ? info(first->code).hint : first->hint;
  std::string node = names_a_node(first->code) && !first->parameters.empty() ? first->parameters[0] : "";
  if (source && source->name.empty()) source = nullptr;
  std::string message = render(errors, source);
  while (!message.empty() && message.back() == '\n') message.pop_back();
  throw Error(kind_of(first->code), fmt::format("CLV{}", info(first->code).number), std::move(node), hint, message);
}
void raise(Diagnostic error) { raise(Diagnostics{std::move(error)}); }

std::string cache_folder(const std::optional<std::string>& given) {
  if (given) return *given;
  for (const auto& [variable, below] :
       {std::pair{"CLEAVE_CACHE_DIR", ""}, {"XDG_CACHE_HOME", "/cleave"}, {"HOME", "/.cache/cleave"}}) {
    const char* value = std::getenv(variable);
    if (value && *value) return std::string(value) + below;
  }
  return "";
}

}  // namespace api
}  // namespace cleave
