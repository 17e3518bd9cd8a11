#include "frontend/suite.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/codes.hpp"

namespace cleave {

using graph::Attributes;
using graph::Builder;
using graph::Op;
using graph::ValueId;
using Json = nlohmann::ordered_json;

namespace {

constexpr size_t kMaxRows = 4096, kMaxNodes = 1024;
constexpr int64_t kMaxExtent = int64_t{1} << 30;

// What is wrong with a row; caught where the row's name is known.
struct Malformed {
  std::string what;
};

const Json& member(const Json& j, const char* key) {
  if (!j.is_object() || !j.contains(key)) throw Malformed{fmt::format("`{}` is missing", key)};
  return j[key];
}
const Json& object(const Json& j, const char* key) {
  const Json& m = member(j, key);
  if (!m.is_object()) throw Malformed{fmt::format("`{}` is no object", key)};
  return m;
}
const Json& array(const Json& j, const char* key) {
  const Json& m = member(j, key);
  if (!m.is_array()) throw Malformed{fmt::format("`{}` is no list", key)};
  return m;
}
std::string text(const Json& j, const std::string& what) {
  if (!j.is_string()) throw Malformed{fmt::format("{} is no text", what)};
  return j.get<std::string>();
}
int64_t integer(const Json& j, const std::string& what) {
  if (!j.is_number_integer() || j > kMaxExtent || j < -kMaxExtent)
    throw Malformed{fmt::format("{} is no whole number of at most 2^30", what)};
  return j.get<int64_t>();
}
double real(const Json& j, const std::string& what) {
  if (!j.is_number()) throw Malformed{fmt::format("{} is no number", what)};
  return j.get<double>();
}

struct Value {
  ValueId value;
  std::vector<std::string> order;  // its indices; "" for an axis of extent 1
};

class Row {
 public:
  Row(const Json& row, std::string name) : row_(row), name_(std::move(name)), b_(name_) {}

  SuiteRow run() {
    const Json& g = object(row_, "graph");
    for (const auto& [index, extent] : object(g, "extents").items()) {
      // A quotient of two numbers is a dimension of its own, which has the index's name.
      const std::string e = text(extent, fmt::format("the extent of `{}`", index));
      const std::string dim = e.find('/') == std::string::npos ? e : index;
      if (dim.empty() || dims_.size() > 64) throw Malformed{"an extent has no name, or there are too many"};
      dims_[index] = dim;
      sources_[dim] = e;
      extents_[index] = b_.dim(dim, 1, 1 << 20);
    }
    for (const auto& [input, indices] : object(g, "inputs").items()) {
      const auto order = letters(text(indices, fmt::format("input `{}`", input)));
      graph::Shape shape;
      for (const std::string& i : order) shape.push_back(extent(i));
      define(input, {b_.input(input, DType::f32, shape), order});
    }
    const Json& nodes = array(g, "nodes");
    if (nodes.size() > kMaxNodes) throw Malformed{fmt::format("it has more than {} nodes", kMaxNodes)};
    for (const Json& n : nodes) {
      const std::string id = text(member(n, "id"), "a node's `id`");
      try {
        define(id, node(n));
      } catch (const Malformed& m) {
        throw Malformed{fmt::format("node `{}`: {}", id, m.what)};
      }
    }
    for (const Json& o : array(g, "outputs")) {
      const std::string id = text(o, "an output");
      const Value& v = known(id);
      if (!v.value.valid()) throw Malformed{fmt::format("the output `{}` is a condition", id)};
      b_.output(id, v.value);
    }
    auto graph = b_.finish();
    if (!graph) throw Malformed{graph.errors()[0].message()};
    SuiteRow out{name_, std::move(*graph), {}, dims_, {}};
    if (g.contains("constants"))
      for (const Json& c : array(g, "constants")) out.constants.push_back(text(c, "a constant"));
    if (row_.contains("points")) points(row_["points"], "", out);
    return out;
  }

 private:
  static std::vector<std::string> letters(const std::string& list) {
    std::vector<std::string> out;
    for (char c : list)
      if (c != ' ') out.emplace_back(1, c);
    return out;
  }
  sym::Expr extent(const std::string& index) const {
    const auto it = extents_.find(index);
    if (it == extents_.end()) throw Malformed{fmt::format("the index `{}` has no extent", index)};
    return it->second;
  }
  void define(const std::string& id, Value v) {
    if (!values_.emplace(id, std::move(v)).second) throw Malformed{fmt::format("`{}` is defined twice", id)};
  }
  const Value& known(const std::string& id) const {
    const auto it = values_.find(id);
    if (it == values_.end()) throw Malformed{fmt::format("`{}` is not defined", id)};
    return it->second;
  }
  ValueId make(Op op, std::vector<ValueId> operands, Attributes attributes = {}) {
    for (ValueId v : operands)
      if (!v.valid()) throw Malformed{"a condition is no number"};
    auto made = b_.add(op, std::move(operands), std::move(attributes));
    if (!made) throw Malformed{made.errors()[0].message()};
    return made->at(0);
  }
  ValueId extent_value(const std::string& index, DType dtype) {
    return make(Op::extent, {}, {{"of", std::vector<sym::Expr>{extent(index)}}, {"dtype", dtype}});
  }

  // A value with axes of extent 1 where `order` has indices that it lacks.
  ValueId along(const Value& v, const std::vector<std::string>& order) {
    if (v.order.size() == order.size()) return v.value;
    std::vector<int64_t> added;
    for (size_t i = 0; i < order.size(); ++i)
      if (std::find(v.order.begin(), v.order.end(), order[i]) == v.order.end())
        added.push_back(static_cast<int64_t>(i));
    return make(Op::unsqueeze, {v.value}, {{"axes", added}});
  }

  Value node(const Json& n) {
    const std::string op = text(member(n, "op"), "its operator");
    std::vector<Value> in;
    for (const Json& i : array(n, "inputs")) {
      const std::string id = text(i, "an operand");
      in.push_back(id == "-inf" ? Value{b_.literal(-std::numeric_limits<double>::infinity(), DType::f32), {}}
                                : known(id));
    }
    auto takes = [&](size_t count) {
      if (in.size() != count) throw Malformed{fmt::format("`{}` takes {} operands, it has {}", op, count, in.size())};
    };
    if (op == "einsum") {
      takes(2);
      return einsum(in, text(member(n, "eq"), "`eq`"));
    }
    if (op == "scale") {
      takes(1);
      return {make(Op::mul, {in[0].value, scale(object(n, "by"))}), in[0].order};
    }
    for (const auto& [name, reduce] :
         {std::pair("reduce_sum", Op::sum), {"reduce_mean", Op::mean}, {"reduce_max", Op::amax}})
      if (op == name) {
        takes(1);
        return reduced(in[0], reduce, text(member(n, "axis"), "`axis`"), n.contains("keepdim") && n["keepdim"] == true);
      }
    if (op == "iota_compare") {
      comparisons_[text(member(n, "id"), "`id`")] = &object(n, "compare");
      return {};
    }
    if (op == "where") {
      takes(3);
      const auto it = comparisons_.find(text(n["inputs"][0], "the condition"));
      if (it == comparisons_.end()) throw Malformed{"its first operand is no `iota_compare`"};
      return {make(Op::where, {condition(*it->second, in[1]), in[1].value, in[2].value}), in[1].order};
    }
    if (op == "rsqrt_eps") {
      takes(1);
      const ValueId eps = b_.literal(real(member(n, "eps"), "`eps`"), DType::f32);
      return {make(Op::rsqrt, {make(Op::add, {in[0].value, eps})}), in[0].order};
    }
    const auto o = graph::op_from_name(op);
    if (!o || graph::info(*o).category != graph::Category::elementwise)
      throw Malformed{fmt::format("the operator `{}` is not known", op)};
    if (in.size() == 1) return {make(*o, {in[0].value}), in[0].order};
    takes(2);
    const auto& order = in[0].order.size() >= in[1].order.size() ? in[0].order : in[1].order;
    std::vector<std::string> merged = order;
    for (size_t i = 0; i < merged.size(); ++i)
      if (merged[i].empty() && in[1].order.size() == merged.size()) merged[i] = in[1].order[i];
    return {make(*o, {along(in[0], order), along(in[1], order)}), merged};
  }

  Value einsum(const std::vector<Value>& in, const std::string& eq) {
    auto spaced = [](const std::string& indices) {
      std::string out;
      for (char c : indices) out += c == ',' ? std::string(", ") : std::string(1, c) + " ";
      return out;
    };
    const size_t arrow = eq.find("->");
    if (arrow == std::string::npos) throw Malformed{"`eq` has no ->"};
    return {make(Op::contract, {in[0].value, in[1].value},
                 {{"spec", spaced(eq.substr(0, arrow)) + " -> " + spaced(eq.substr(arrow + 2))}}),
            letters(eq.substr(arrow + 2))};
  }

  ValueId scale(const Json& by) {
    if (by.contains("scalar_input")) {
      const std::string name = text(by["scalar_input"], "`scalar_input`");
      const auto it = scalars_.find(name);
      return it != scalars_.end() ? it->second : scalars_[name] = b_.scalar(name, DType::f32);
    }
    if (text(member(by, "fn"), "`fn`") != "rsqrt") throw Malformed{"`by` is neither a rsqrt nor a scalar_input"};
    ValueId sum;
    for (const Json& e : array(by, "of")) {
      const ValueId x = extent_value(text(e, "an extent"), DType::f32);
      sum = sum.valid() ? make(Op::add, {sum, x}) : x;
    }
    if (!sum.valid()) throw Malformed{"`of` is empty"};
    return make(Op::rsqrt, {sum});
  }

  Value reduced(const Value& x, Op op, const std::string& axis, bool keep) {
    const auto at = std::find(x.order.begin(), x.order.end(), axis);
    if (at == x.order.end()) throw Malformed{fmt::format("its operand has no index `{}`", axis)};
    const std::vector<int64_t> axes{at - x.order.begin()};
    Value out{make(op, {x.value}, {{"axes", axes}, {"keepdims", keep}}), x.order};
    if (keep)
      out.order[static_cast<size_t>(axes[0])] = "";
    else
      out.order.erase(out.order.begin() + axes[0]);
    return out;
  }

  // left <= right, each a sum of multiples of indices of `like` and of extents (`extent:L`).
  ValueId condition(const Json& compare, const Value& like) {
    if (text(member(compare, "op"), "`op`") != "<=") throw Malformed{"`compare` knows <= only"};
    auto side = [&](const char* key) {
      ValueId sum = b_.literal(0, DType::i64);
      for (const auto& [name, factor] : object(compare, key).items()) {
        ValueId term;
        if (name.starts_with("extent:")) {
          // The name of an extent, or of an index that has it.
          const std::string of = name.substr(7);
          const auto named = std::find_if(dims_.begin(), dims_.end(), [&](const auto& d) { return d.second == of; });
          term = extent_value(named == dims_.end() ? of : named->first, DType::i64);
        } else {
          const auto at = std::find(like.order.begin(), like.order.end(), name);
          if (at == like.order.end()) throw Malformed{fmt::format("the masked value has no index `{}`", name)};
          term = make(Op::iota, {},
                      {{"shape", b_.type(like.value).shape},
                       {"axis", int64_t{at - like.order.begin()}},
                       {"dtype", DType::i64}});
        }
        const auto times = static_cast<double>(integer(factor, "a coefficient"));
        sum = make(Op::add, {sum, make(Op::mul, {term, b_.literal(times, DType::i64)})});
      }
      return sum;
    };
    const ValueId left = side("left");
    return make(Op::le, {left, side("right")});
  }

  // Lists of points lie in objects of groups, which may be nested.
  void points(const Json& j, const std::string& group, SuiteRow& out) const {
    if (j.is_object()) {
      for (const auto& [name, inner] : j.items()) points(inner, group.empty() ? name : group + "/" + name, out);
      return;
    }
    if (!j.is_array() || group.size() > 256) throw Malformed{fmt::format("the points of `{}` are no list", group)};
    for (const Json& p : j) {
      auto number = [&](const std::string& name) {
        return integer(member(p, name.c_str()), fmt::format("`{}` of a point of `{}`", name, group));
      };
      SuitePoint point{group, {}};
      for (const auto& [dim, source] : sources_) {
        const size_t slash = source.find('/');
        const int64_t n = number(source.substr(0, slash)),
                      d = slash == std::string::npos ? 1 : number(source.substr(slash + 1));
        if (d == 0 || n % d != 0)
          throw Malformed{fmt::format("`{}` of a point of `{}` is no whole number", source, group)};
        point.dims[dim] = n / d;
      }
      out.points.push_back(std::move(point));
    }
  }

  const Json& row_;
  std::string name_;
  Builder b_;
  std::map<std::string, std::string> dims_, sources_;  // index -> dimension -> its text in the file
  std::map<std::string, sym::Expr> extents_;           // by index
  std::map<std::string, Value> values_;
  std::map<std::string, ValueId> scalars_;
  std::map<std::string, const Json*> comparisons_;
};

}  // namespace

Result<std::vector<SuiteRow>> read_suite(std::string_view source) {
  // Nesting is bounded before anything recursive looks at it.
  int depth = 0;
  bool deep = false;
  const auto limit = [&](int, Json::parse_event_t event, Json&) {
    using E = Json::parse_event_t;
    if (event == E::object_start || event == E::array_start) deep = deep || ++depth > 32;
    if (event == E::object_end || event == E::array_end) --depth;
    return !deep;
  };
  const Json j = Json::parse(source, limit, false);
  if (j.is_discarded() || deep)
    return diagnose(Code::suite_malformed, deep ? "it is nested too deeply" : "it is no JSON (perhaps cut short)");
  std::vector<SuiteRow> out;
  std::set<std::string> names;
  bool some = false;
  for (const char* list : {"subgraphs", "alternates"}) {
    if (!j.is_object() || !j.contains(list)) continue;
    some = true;
    if (!j[list].is_array()) return diagnose(Code::suite_malformed, fmt::format("`{}` is no list", list));
    for (const Json& row : j[list]) {
      if (!row.is_object() || !row.contains("name") || !row["name"].is_string())
        return diagnose(Code::suite_malformed, fmt::format("a row of `{}` has no name", list));
      const std::string name = row["name"].get<std::string>();
      if (!names.insert(name).second || out.size() >= kMaxRows)
        return diagnose(Code::suite_malformed,
                        fmt::format("row `{}` is there twice, or there are too many rows", name));
      try {
        out.push_back(Row(row, name).run());
      } catch (const Malformed& m) {
        return diagnose(Code::suite_malformed, fmt::format("row `{}`: {}", name, m.what));
      }
    }
  }
  if (!some) return diagnose(Code::suite_malformed, "it has neither `subgraphs` nor `alternates`");
  return out;
}

}  // namespace cleave
