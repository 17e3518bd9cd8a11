// What a node has to be like before its translation looks at it: element types of operands by the signature of its
// operator's row, kinds of attributes by their names.
#include <algorithm>
#include <map>

#include "frontend/onnx_handlers.hpp"

namespace cleave::onnx_import {

namespace {

// A letter of a signature: a small one is another type of the same class.
struct TypeClass {
  std::string_view letters;
  bool (*holds)(DType);
  const char* wanted;
};
constexpr TypeClass kClasses[] = {
    {"Ttu", [](DType) { return true; }, "any type"},
    {"Nn", [](DType d) { return d != DType::boolean; }, "a number"},
    {"Fgh", [](DType d) { return is_real(d); }, "a real number"},
    {"Zzy", [](DType d) { return is_integer(d); }, "an integer"},
    {"I", [](DType d) { return d == DType::i32 || d == DType::i64; }, "i32 or i64"},
    {"L", [](DType d) { return d == DType::i64; }, "i64"},
    {"S", [](DType d) { return d == DType::f32; }, "f32"},
    {"B", [](DType d) { return d == DType::boolean; }, "bool"},
};

using Kind = onnx::AttributeProto;
struct AttributeKind {
  Kind::AttributeType type;
  const char* wanted;
  std::string_view names;
};
constexpr AttributeKind kKinds[] = {
    {Kind::INT, "an integer",
     " align_corners allowzero antialias axis batch_axis batch_dims block_size blocksize ceil_mode count_include_pad "
     "detect_negative detect_positive do_rotary dtype end exclude_outside exclusive fmod group ignore_index "
     "interleaved "
     "inverse is_causal k keepdims kv_num_heads largest left_window_size local_window_size noop_with_empty_axes "
     "num_groups num_heads num_outputs onesided output_datatype output_dtype p periodic precision q_num_heads "
     "qk_matmul_output_mode reverse right_window_size rotary_embedding_dim rotary_interleaved saturate seed "
     "select_last_index size smooth_softmax softmax_precision sorted start stash_type storage_order time_axis to "
     "training_mode transA transB transBatchA transBatchB upper "},
    {Kind::FLOAT, "a number",
     " alpha beta bias cubic_coeff_a epsilon extrapolation_value gamma lambd max min momentum ratio scale softcap "},
    {Kind::STRING, "a text",
     " approximate auto_pad coordinate_transformation_mode direction equation keep_aspect_ratio_policy mode "
     "nearest_mode padding_mode reduction round_mode "},
    {Kind::INTS, "a list of integers",
     " axes dilations ends kernel_shape output_padding output_shape pads perm split starts strides "},
    {Kind::FLOATS, "a list of numbers", " scales "},
};

const TypeClass& class_of(char letter) {
  const auto* found = std::find_if(std::begin(kClasses), std::end(kClasses), [&](const TypeClass& k) {
    return k.letters.find(letter) != std::string_view::npos;
  });
  CHECK(found != std::end(kClasses), "{}", letter);
  return *found;
}

const AttributeKind* kind_of(std::string_view attribute) {
  const std::string word = fmt::format(" {} ", attribute);
  const auto* found = std::find_if(std::begin(kKinds), std::end(kKinds), [&](const AttributeKind& k) {
    return k.names.find(word) != std::string_view::npos;
  });
  return found == std::end(kKinds) ? nullptr : found;
}

// Old models do not say the type.
bool has_type(const Kind& attribute, Kind::AttributeType type) {
  if (attribute.type() != Kind::UNDEFINED) return attribute.type() == type;
  switch (type) {
    case Kind::INT: return attribute.has_i();
    case Kind::FLOAT: return attribute.has_f();
    case Kind::STRING: return attribute.has_s();
    default: return !attribute.has_i() && !attribute.has_f() && !attribute.has_s() && !attribute.has_t();
  }
}

}  // namespace

bool type_fits(char letter, DType dtype) { return class_of(letter).holds(dtype); }

onnx::AttributeProto::AttributeType attribute_type(std::string_view name) {
  const AttributeKind* kind = kind_of(name);
  return kind ? kind->type : Kind::UNDEFINED;
}

std::optional<Diagnostic> check_types(NodeContext& c, std::string_view signature) {
  std::map<char, size_t> first;  // the operand that a letter was met at
  for (size_t i = 0; i < c.size() && !signature.empty(); ++i) {
    if (!c.has(i)) continue;
    const char letter = signature[std::min(i, signature.size() - 1)];
    const DType dtype = c.in(i).dtype;
    std::optional<Diagnostic> bad;
    if (!type_fits(letter, dtype)) {
      bad = c.error(fmt::format("operand {} is {}, {} is needed", i, name(dtype), class_of(letter).wanted));
      bad->hint = "put a Cast before it";
    } else if (const auto [it, fresh] = first.emplace(letter, i); !fresh && c.in(it->second).dtype != dtype) {
      bad = c.error(fmt::format("operand {} is {} and operand {} is {}; ONNX wants one type for both", it->second,
                                name(c.in(it->second).dtype), i, name(dtype)));
      bad->hint = "put a Cast before one of them";
    }
    if (bad) return bad;
  }
  return std::nullopt;
}

std::optional<Diagnostic> check_attributes(const NodeContext& c) {
  for (const Kind& a : c.node().attribute()) {
    const auto twice = std::count_if(c.node().attribute().begin(), c.node().attribute().end(),
                                     [&](const Kind& other) { return other.name() == a.name(); });
    if (twice > 1) return c.error(fmt::format("its attribute `{}` is given twice", shown(a.name())));
    if (const AttributeKind* kind = kind_of(a.name()); kind && !has_type(a, kind->type))
      return c.error(fmt::format("its attribute `{}` is not {}", shown(a.name()), kind->wanted));
  }
  return std::nullopt;
}

}  // namespace cleave::onnx_import
