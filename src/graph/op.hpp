// The operator table of the tensor graph (ops.def) and its attributes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/check.hpp"
#include "sym/sym.hpp"
#include "types/dtype.hpp"
#include "types/scalar.hpp"

namespace cleave::graph {

enum class Op : uint8_t {
#define OP(id, text, min, max, category, results, attributes) id,
#include "graph/ops.def"
#undef OP
};

enum class Category : uint8_t {
  leaf,
  elementwise,
  cast,
  contract,
  reduce,
  view,
  gather,
  scan,
  select,
  composite,
  dialect
};

enum class AttributeType : uint8_t { integer, real, boolean, text, dtype, ints, extents, data };

struct AttributeInfo {
  std::string name;
  AttributeType type;
  bool required;
};

struct OpInfo {
  Op op;
  const char* name;
  int min_operands;
  int max_operands;  // -1: any number
  Category category;
  int results;  // -1: depends on an attribute
  std::vector<AttributeInfo> attributes;

  const AttributeInfo* attribute(std::string_view name) const;
};

const OpInfo& info(Op op);
std::span<const OpInfo> all_ops();
std::optional<Op> op_from_name(std::string_view name);

// The scalar function of an elementwise operator, and back.
Fn scalar_fn(Op op);
Op op_of(Fn fn);

// The content of a constant. `bytes` is dense row-major in the constant's dtype and is shared, never copied.
struct ConstantData {
  enum class Kind : uint8_t { splat, normal, uniform, bytes } kind = Kind::splat;
  double value = 0;   // splat: the value; normal: the mean; uniform: the low end
  double scale = 1;   // normal: the deviation; uniform: the width
  uint64_t seed = 0;  // normal, uniform: Rng(seed), elements in row-major order, rounded to the dtype
  std::shared_ptr<const std::vector<std::byte>> bytes;
  std::string path;  // where the bytes came from or are to be written, relative; may be empty

  bool operator==(const ConstantData&) const = default;
};

using Attribute =
    std::variant<int64_t, double, bool, std::string, DType, std::vector<int64_t>, std::vector<sym::Expr>, ConstantData>;

// Attributes of one node, sorted by name.
class Attributes {
 public:
  Attributes() = default;
  Attributes(std::initializer_list<std::pair<std::string, Attribute>> list) {
    for (const auto& [n, v] : list) set(n, v);
  }
  void set(std::string_view name, Attribute value);
  const Attribute* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }
  template <class T>
  const T& get(std::string_view name) const {
    const Attribute* a = find(name);
    CHECK(a && std::holds_alternative<T>(*a), "attribute `{}`", name);
    return std::get<T>(*a);
  }
  template <class T>
  T get_or(std::string_view name, T otherwise) const {
    const Attribute* a = find(name);
    return a ? std::get<T>(*a) : otherwise;
  }
  const std::vector<std::pair<std::string, Attribute>>& items() const { return items_; }
  bool operator==(const Attributes& other) const;

 private:
  std::vector<std::pair<std::string, Attribute>> items_;
};

}  // namespace cleave::graph
