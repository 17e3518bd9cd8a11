// Text form of a graph; the grammar is docs/graph.md.
#include <algorithm>
#include <set>

#include "base/lexer.hpp"
#include "base/match.hpp"
#include "graph/graph.hpp"

namespace cleave::graph {

namespace {

std::string quote(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out + "\"";
}

// A word that can be a name: no keyword of the language, which a parser would take for one.
bool is_identifier(const std::string& s) {
  static constexpr std::string_view kKeywords[] = {"graph", "dim",    "input",   "const", "scalar", "output",
                                                   "in",    "as",     "inf",     "nan",   "true",   "false",
                                                   "file",  "normal", "uniform", "full",  "splat"};
  if (std::find(std::begin(kKeywords), std::end(kKeywords), s) != std::end(kKeywords)) return false;
  if (s.empty() || !(std::isalpha(static_cast<unsigned char>(s[0])) || s[0] == '_')) return false;
  return std::all_of(s.begin(), s.end(),
                     [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; });
}

struct Printer {
  const Graph& graph;
  const PrintOptions& options;
  std::vector<std::string> names = {};

  // Every value gets a distinct identifier: its own name where that is one and is free, else v<N>.
  void name_values() {
    std::set<std::string> taken;
    names.resize(graph.value_count());
    std::vector<ValueId> order = graph.leaves();
    for (NodeId id : graph.node_ids())
      for (ValueId v : graph.node(id).results) order.push_back(v);
    for (ValueId v : order) {
      if (!names[v.index].empty()) continue;
      const std::string& own = graph.value(v).name;
      std::string name = is_identifier(own) ? own : "";
      if (name.empty() || taken.count(name)) {
        name = fmt::format("v{}", v.index);
        while (taken.count(name)) name += "_";
      }
      taken.insert(name);
      names[v.index] = name;
    }
  }

  std::string show(const std::vector<sym::Expr>& extents) const {
    std::string out = "[";
    for (size_t i = 0; i < extents.size(); ++i) out += (i ? ", " : "") + graph.syms().print(extents[i]);
    return out + "]";
  }

  std::string show(const Attribute& a) const {
    return match(
        a, [](int64_t v) { return fmt::format("{}", v); }, [](double v) { return print_number(v); },
        [](bool v) { return std::string(v ? "true" : "false"); }, [](const std::string& v) { return quote(v); },
        [](DType v) { return std::string(name(v)); },
        [](const std::vector<int64_t>& v) { return fmt::format("[{}]", fmt::join(v, ", ")); },
        [&](const std::vector<sym::Expr>& v) { return show(v); }, [](const ConstantData&) { return std::string(); });
  }

  std::string show(const ConstantData& data, const Type& type, const std::string& own_name) const {
    switch (data.kind) {
      case ConstantData::Kind::splat: return fmt::format("splat({})", print_number(data.value));
      case ConstantData::Kind::normal:
      case ConstantData::Kind::uniform:
        return fmt::format("{}(seed={}, {}={}, scale={})",
                           data.kind == ConstantData::Kind::normal ? "normal" : "uniform", data.seed,
                           data.kind == ConstantData::Kind::normal ? "mean" : "low", print_number(data.value),
                           print_number(data.scale));
      case ConstantData::Kind::bytes: break;
    }
    const int64_t width = byte_size(type.dtype);
    const int64_t elements = static_cast<int64_t>(data.bytes->size()) / width;
    if (elements > options.inline_elements)
      return fmt::format("file({})", quote(data.path.empty() ? own_name + ".npy" : data.path));
    std::string out = "[";
    for (int64_t i = 0; i < elements; ++i) {
      const std::byte* at = data.bytes->data() + i * width;
      out += i ? ", " : "";
      out += is_real(type.dtype) ? print_number(load_real(type.dtype, at))
                                 : fmt::format("{}", load_integer(type.dtype, at));
    }
    return out + "]";
  }

  std::string run() {
    name_values();
    std::string out = fmt::format("graph {} {{\n", is_identifier(graph.name()) ? graph.name() : quote(graph.name()));
    for (sym::Expr d : graph.dims()) {
      const auto r = graph.syms().symbol_range(d);
      out += fmt::format("  dim {} in {}..{}\n", graph.syms().symbol_name(d), r.lo, r.hi);
    }
    for (ValueId v : graph.leaves()) {
      const Node& n = graph.producer(v);
      const std::string type = print(graph.syms(), graph.type(v));
      const std::string& own = n.attributes.get<std::string>("name");
      const std::string as = own == names[v.index] ? "" : fmt::format(" as {}", quote(own));
      out += fmt::format("  {} {}: {}{}", info(n.op).name, names[v.index], type, as);
      if (n.op == Op::constant) out += " = " + show(n.attributes.get<ConstantData>("data"), graph.type(v), own);
      out += "\n";
    }
    for (NodeId id : graph.node_ids()) {
      const Node& n = graph.node(id);
      if (n.op == Op::input || n.op == Op::constant || n.op == Op::scalar) continue;
      std::string left, arguments;
      for (ValueId v : n.results) left += (left.empty() ? "" : ", ") + names[v.index];
      for (ValueId v : n.operands) arguments += (arguments.empty() ? "" : ", ") + names[v.index];
      for (const auto& [key, value] : n.attributes.items())
        arguments += (arguments.empty() ? "" : ", ") + fmt::format("{}={}", key, show(value));
      out += fmt::format("  {} = {}({})\n", left, info(n.op).name, arguments);
    }
    for (const Output& o : graph.outputs()) {
      const std::string& v = names[o.value.index];
      const std::string as = is_identifier(o.name) ? o.name : quote(o.name);
      out += o.name == v ? fmt::format("  output {}\n", v) : fmt::format("  output {} = {}\n", as, v);
    }
    return out + "}\n";
  }
};

}  // namespace

std::string print(const Graph& graph, const PrintOptions& options) { return Printer{graph, options}.run(); }

}  // namespace cleave::graph
