// Drawings of graphs: nodes in layers, operands above their users.
#include <algorithm>
#include <map>

#include "base/number.hpp"
#include "driver/report.hpp"

namespace cleave::driver {

namespace {

constexpr int kWidth = 172, kHeight = 40, kGapX = 18, kGapY = 44, kMargin = 12;
constexpr size_t kMaxDrawn = 2000;

std::string escaped(std::string_view text, size_t most) {
  std::string out;
  for (const char c : text.substr(0, most)) switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      default: out += static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e ? '?' : c;
    }
  return out + (text.size() > most ? ".." : "");
}

struct Box {
  int layer = 0, column = 0;
  std::string title, below;
  const char* fill = "#eef3f7";
  int x() const { return kMargin + column * (kWidth + kGapX); }
  int y() const { return kMargin + layer * (kHeight + kGapY); }
};

}  // namespace

std::string graph_svg(const graph::Graph& g) {
  std::map<uint32_t, Box> boxes;  // by node
  std::vector<int> columns;
  const auto place = [&](Box box) {
    if (columns.size() <= static_cast<size_t>(box.layer)) columns.resize(static_cast<size_t>(box.layer) + 1);
    box.column = columns[static_cast<size_t>(box.layer)]++;
    return box;
  };
  const auto drawn = [&](graph::NodeId id) { return boxes.count(id.index) > 0; };
  std::string lines;
  const auto line = [&](const Box& from, const Box& to) {
    const int x1 = from.x() + kWidth / 2, y1 = from.y() + kHeight, x2 = to.x() + kWidth / 2, y2 = to.y();
    lines += fmt::format("<path d=\"M{} {}C{} {} {} {} {} {}\"/>", x1, y1, x1, y1 + 22, x2, y2 - 22, x2, y2);
  };
  for (const graph::NodeId id : g.node_ids()) {
    if (boxes.size() >= kMaxDrawn) break;
    const graph::Node& n = g.node(id);
    if (n.op == graph::Op::literal) continue;  // shown in the title of their users
    Box box;
    for (const graph::ValueId v : n.operands)
      if (const graph::NodeId from = g.value(v).node; drawn(from))
        box.layer = std::max(box.layer, boxes.at(from.index).layer + 1);
    const graph::Type& t = g.type(n.results[0]);
    std::string extents;
    for (const sym::Expr e : t.shape) extents += (extents.empty() ? "" : ", ") + g.syms().print(e);
    box.title = graph::info(n.op).name;
    if (n.op == graph::Op::input || n.op == graph::Op::constant || n.op == graph::Op::scalar) {
      box.title += " " + n.attributes.get<std::string>("name");
      box.fill = "#f5efdf";
    }
    for (const graph::ValueId v : n.operands)
      if (const graph::Node& from = g.producer(v); from.op == graph::Op::literal)
        box.title += fmt::format(" {:.6g}", shown(from.attributes.get<double>("value")));
    box.below = fmt::format("{}[{}]", name(t.dtype), extents);
    boxes[id.index] = place(box);
    for (const graph::ValueId v : n.operands)
      if (const graph::NodeId from = g.value(v).node; drawn(from)) line(boxes.at(from.index), boxes.at(id.index));
  }
  std::vector<Box> outputs;
  for (const graph::Output& o : g.outputs()) {
    const graph::NodeId from = g.value(o.value).node;
    if (!drawn(from)) continue;
    Box box;
    box.layer = boxes.at(from.index).layer + 1;
    box.title = "output " + o.name;
    box.fill = "#e3efe2";
    outputs.push_back(place(box));
    line(boxes.at(from.index), outputs.back());
  }
  const int wide = columns.empty() ? 1 : *std::max_element(columns.begin(), columns.end());
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" font-family=\"system-ui,sans-serif\" "
      "font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n<g fill=\"none\" "
      "stroke=\"#888\">{}</g>\n",
      2 * kMargin + wide * (kWidth + kGapX), 2 * kMargin + static_cast<int>(columns.size()) * (kHeight + kGapY), lines);
  const auto draw = [&](const Box& b) {
    out += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"4\" fill=\"{}\" stroke=\"#789\"/>",
                       b.x(), b.y(), kWidth, kHeight, b.fill);
    out += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>", b.x() + kWidth / 2, b.y() + 17,
                       escaped(b.title, 26));
    out += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"#567\">{}</text>\n", b.x() + kWidth / 2,
                       b.y() + 33, escaped(b.below, 26));
  };
  for (const auto& [id, b] : boxes) draw(b);
  for (const Box& b : outputs) draw(b);
  return out + "</svg>\n";
}

}  // namespace cleave::driver
