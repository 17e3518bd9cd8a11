// Reads tests/data/subgraphs.json (its format is explained in the file it was taken from: einsum equations over index
// names) into graphs with symbolic extents.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>

#include "support.hpp"

namespace cleave::algebra::test {

struct Subgraph {
  std::string name;
  graph::Graph graph;
  std::vector<std::map<std::string, int64_t>> points;  // values of the graph's dims
};

class SubgraphReader {
 public:
  explicit SubgraphReader(const nlohmann::json& j) : j_(j), b_(j["name"].get<std::string>()) {}

  Subgraph run() {
    const auto& g = j_["graph"];
    for (const auto& [name, extent] : g["extents"].items()) {
      // Quotients become a dimension of their own.
      std::string dim = extent.get<std::string>();
      if (dim.find('/') != std::string::npos) dim = name;
      dims_[name] = dim;
      extent_[name] = b_.dim(dim, 1, 1 << 20);
    }
    for (const auto& [name, indices] : g["inputs"].items()) {
      const auto order = split(indices.get<std::string>());
      graph::Shape s;
      for (const auto& i : order) s.push_back(extent_.at(i));
      values_[name] = {b_.input(name, DType::f32, s), order};
    }
    for (const auto& node : g["nodes"]) values_[node["id"].get<std::string>()] = build(node);
    for (const auto& o : g["outputs"]) b_.output(o.get<std::string>(), values_.at(o.get<std::string>()).value);
    Subgraph out{j_["name"].get<std::string>(), b_.take(), {}};
    for (const auto& p : j_["points"]["cpu_irregular"]) {
      std::map<std::string, int64_t> point;
      for (const auto& [name, extent] : g["extents"].items()) {
        const std::string e = extent.get<std::string>();
        const size_t slash = e.find('/');
        point[dims_[name]] = slash == std::string::npos
                                 ? p[e].get<int64_t>()
                                 : p[e.substr(0, slash)].get<int64_t>() / p[e.substr(slash + 1)].get<int64_t>();
      }
      out.points.push_back(std::move(point));
    }
    return out;
  }

 private:
  struct Value {
    graph::ValueId value;
    std::vector<std::string> order;  // "" for an axis of extent 1
  };
  static std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> out;
    for (char c : text)
      if (c != ' ') out.emplace_back(1, c);
    return out;
  }
  // Aligns a value with the axes of another by index name.
  graph::ValueId along(const Value& v, const std::vector<std::string>& order) {
    if (v.order.size() == order.size()) return v.value;
    std::vector<int64_t> added;
    for (size_t i = 0; i < order.size(); ++i)
      if (std::find(v.order.begin(), v.order.end(), order[i]) == v.order.end())
        added.push_back(static_cast<int64_t>(i));
    return b_.make(graph::Op::unsqueeze, {v.value}, {{"axes", added}});
  }
  graph::ValueId extent_value(const std::string& index) {
    return b_.make(graph::Op::extent, {}, {{"of", std::vector<sym::Expr>{extent_.at(index)}}, {"dtype", DType::f32}});
  }
  std::string named(const std::string& indices) {
    std::string out;
    for (char c : indices) out += c == ',' ? std::string(", ") : std::string(1, c) + " ";
    return out;
  }

  Value build(const nlohmann::json& n) {
    using graph::Op;
    const std::string op = n["op"];
    std::vector<Value> in;
    for (const auto& i : n["inputs"])
      in.push_back(i == "-inf" ? Value{b_.literal(-INFINITY, DType::f32), {}} : values_.at(i.get<std::string>()));
    if (op == "einsum") {
      const std::string eq = n["eq"];
      const size_t arrow = eq.find("->");
      return {b_.make(Op::contract, {in[0].value, in[1].value},
                      {{"spec", named(eq.substr(0, arrow)) + " -> " + named(eq.substr(arrow + 2))}}),
              split(eq.substr(arrow + 2))};
    }
    if (op == "scale") {
      const auto& by = n["by"];
      graph::ValueId s;
      if (by.contains("scalar_input"))
        s = b_.scalar(by["scalar_input"].get<std::string>(), DType::f32);
      else {
        for (const auto& e : by["of"]) s = s.valid() ? b_.make(Op::add, {s, extent_value(e)}) : extent_value(e);
        s = b_.make(Op::rsqrt, {s});
      }
      return {b_.make(Op::mul, {in[0].value, s}), in[0].order};
    }
    if (op == "reduce_sum" || op == "reduce_mean" || op == "reduce_max") {
      Value out = in[0];
      const auto at = std::find(out.order.begin(), out.order.end(), n["axis"].get<std::string>());
      const std::vector<int64_t> axes{at - out.order.begin()};
      const bool keep = n.value("keepdim", false);
      out.value = b_.make(op == "reduce_sum"    ? Op::sum
                          : op == "reduce_mean" ? Op::mean
                                                : Op::amax,
                          {in[0].value}, {{"axes", axes}, {"keepdims", keep}});
      if (keep)
        out.order[static_cast<size_t>(axes[0])] = "";
      else
        out.order.erase(out.order.begin() + axes[0]);
      return out;
    }
    if (op == "iota_compare") {
      mask_ = n["compare"];
      return {};
    }
    if (op == "where") {
      const auto& order = in[1].order;
      graph::Shape s = b_.type(in[1].value).shape;
      auto side = [&](const nlohmann::json& form) {
        graph::ValueId sum = b_.literal(0, DType::i64);
        for (const auto& [name, factor] : form.items()) {
          graph::ValueId term;
          if (name.starts_with("extent:")) {
            const std::string dim = name.substr(7);
            term = b_.make(Op::extent, {},
                           {{"of", std::vector<sym::Expr>{b_.dim(dim, 1, 1 << 20)}}, {"dtype", DType::i64}});
          } else {
            term = b_.make(Op::iota, {},
                           {{"shape", s},
                            {"axis", std::find(order.begin(), order.end(), name) - order.begin()},
                            {"dtype", DType::i64}});
          }
          sum = b_.make(Op::add, {sum, b_.make(Op::mul, {term, b_.literal(factor.get<double>(), DType::i64)})});
        }
        return sum;
      };
      const auto c = b_.make(Op::le, {side(mask_["left"]), side(mask_["right"])});
      return {b_.make(Op::where, {c, in[1].value, in[2].value}), order};
    }
    if (op == "rsqrt_eps")
      return {b_.make(Op::rsqrt, {b_.make(Op::add, {in[0].value, b_.literal(n["eps"].get<double>(), DType::f32)})}),
              in[0].order};
    const Op o = *graph::op_from_name(op);
    if (in.size() == 1) return {b_.make(o, {in[0].value}), in[0].order};
    const auto& order = in[0].order.size() >= in[1].order.size() ? in[0].order : in[1].order;
    std::vector<std::string> merged = order;
    for (size_t i = 0; i < merged.size(); ++i)
      if (merged[i].empty() && in[1].order.size() == merged.size()) merged[i] = in[1].order[i];
    return {b_.make(o, {along(in[0], order), along(in[1], order)}), merged};
  }

  const nlohmann::json& j_;
  graph::Builder b_;
  std::map<std::string, sym::Expr> extent_;
  std::map<std::string, std::string> dims_;
  std::map<std::string, Value> values_;
  nlohmann::json mask_;
};

inline std::vector<Subgraph> subgraphs() {
  std::ifstream file(CLEAVE_SOURCE_DIR "/tests/data/subgraphs.json");
  const auto j = nlohmann::json::parse(file);
  std::vector<Subgraph> out;
  for (const char* list : {"subgraphs", "alternates"})
    for (const auto& s : j[list]) out.push_back(SubgraphReader(s).run());
  return out;
}

}  // namespace cleave::algebra::test
