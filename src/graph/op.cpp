#include "graph/op.hpp"

#include <algorithm>
#include <cstring>
#include <unordered_map>

namespace cleave::graph {

namespace {

AttributeType attribute_type(std::string_view text) {
  struct Row {
    std::string_view name;
    AttributeType type;
  };
  constexpr Row kRows[] = {{"int", AttributeType::integer},     {"real", AttributeType::real},
                           {"bool", AttributeType::boolean},    {"text", AttributeType::text},
                           {"dtype", AttributeType::dtype},     {"ints", AttributeType::ints},
                           {"extents", AttributeType::extents}, {"data", AttributeType::data}};
  for (const Row& r : kRows)
    if (r.name == text) return r.type;
  CHECK(false, "attribute type {}", text);
}

std::vector<AttributeInfo> parse_attributes(std::string_view text) {
  std::vector<AttributeInfo> out;
  while (!text.empty()) {
    const size_t space = text.find(' ');
    const std::string_view item = text.substr(0, space);
    text.remove_prefix(space == std::string_view::npos ? text.size() : space + 1);
    const size_t colon = item.find(':');
    std::string_view name = item.substr(0, colon);
    const bool optional = name.back() == '?';
    if (optional) name.remove_suffix(1);
    out.push_back({std::string(name), attribute_type(item.substr(colon + 1)), !optional});
  }
  return out;
}

const std::vector<OpInfo>& table() {
  static const std::vector<OpInfo> ops = {
#define OP(id, text, min, max, category, results, attributes) \
  {Op::id, text, min, max, Category::category, results, parse_attributes(attributes)},
#include "graph/ops.def"
#undef OP
  };
  return ops;
}

}  // namespace

const AttributeInfo* OpInfo::attribute(std::string_view wanted) const {
  for (const auto& a : attributes)
    if (a.name == wanted) return &a;
  return nullptr;
}

const OpInfo& info(Op op) { return table()[static_cast<size_t>(op)]; }
std::span<const OpInfo> all_ops() { return table(); }

std::optional<Op> op_from_name(std::string_view name) {
  static const auto names = [] {
    std::unordered_map<std::string_view, Op> m;
    for (const OpInfo& o : table()) m.emplace(o.name, o.op);
    return m;
  }();
  auto it = names.find(name);
  if (it == names.end()) return std::nullopt;
  return it->second;
}

namespace {
constexpr int kFirstFn = static_cast<int>(Op::add);
}

Fn scalar_fn(Op op) {
  CHECK(info(op).category == Category::elementwise, "{}", info(op).name);
  return static_cast<Fn>(static_cast<int>(op) - kFirstFn);
}
Op op_of(Fn fn) { return static_cast<Op>(static_cast<int>(fn) + kFirstFn); }

void Attributes::set(std::string_view name, Attribute value) {
  auto it = std::lower_bound(items_.begin(), items_.end(), name,
                             [](const auto& a, std::string_view n) { return a.first < n; });
  if (it != items_.end() && it->first == name)
    it->second = std::move(value);
  else
    items_.insert(it, {std::string(name), std::move(value)});
}

const Attribute* Attributes::find(std::string_view name) const {
  for (const auto& [n, v] : items_)
    if (n == name) return &v;
  return nullptr;
}

namespace {
// Bit equality of numbers, so that NaN equals itself and 0.0 differs from -0.0.
bool same(const Attribute& a, const Attribute& b) {
  if (a.index() != b.index()) return false;
  if (const double* x = std::get_if<double>(&a)) return std::memcmp(x, &std::get<double>(b), sizeof *x) == 0;
  return a == b;
}
}  // namespace

bool Attributes::operator==(const Attributes& other) const {
  return std::equal(items_.begin(), items_.end(), other.items_.begin(), other.items_.end(),
                    [](const auto& x, const auto& y) { return x.first == y.first && same(x.second, y.second); });
}

}  // namespace cleave::graph
