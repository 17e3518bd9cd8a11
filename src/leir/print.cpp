#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/check.hpp"
#include "leir/syntax.hpp"

namespace cleave::leir {

namespace {

// Shortest text that reads back to the same number, always with a point or an exponent.
std::string number(double v) {
  char buffer[40];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, v);
  CHECK(error == std::errc(), "{}", v);
  std::string s(buffer, end);
  if (s.find_first_of(".e") == std::string::npos) s += ".0";
  return s;
}

// What the printer has still to do: a text, or an expression with the level below which it needs parentheses.
struct Work {
  ExprId expr = kNone;
  int least = 0;
  std::string_view text = {};
};

class Printer {
 public:
  Printer(const Syntax& s, std::string& out) : s_(s), out_(out) {}

  void expr(ExprId root) {
    work_.push_back({root, 0});
    while (!work_.empty()) {
      const Work w = work_.back();
      work_.pop_back();
      if (w.expr == kNone)
        out_ += w.text;
      else
        node(w.expr, w.least);
    }
  }

  void loop(const Loop& l) {
    out_ += letter(l.kind);
    out_ += "^{";
    expr(l.extent);
    out_ += "}_{";
    out_ += s_.text(l.index);
    out_ += "=0}";
  }

 private:
  void node(ExprId id, int least) {
    const Expr& e = s_.exprs[id];
    if (level(e.op) < least) {
      work_.push_back({.text = ")"});
      work_.push_back({id, 0});
      out_ += '(';
      return;
    }
    switch (e.op) {
      case Op::integer: out_ += std::to_string(e.integer); return;
      case Op::real: out_ += number(e.real); return;
      case Op::infinity: out_ += "inf"; return;
      case Op::index: out_ += s_.text(e.name); return;
      case Op::negate:
        out_ += '-';
        work_.push_back({s_.operands_of(id)[0], 6});
        return;
      case Op::tensor:
        out_ += s_.text(e.name);
        out_ += "^{";
        out_ += name(e.type);
        out_ += ',';
        out_ += letter(e.scope);
        out_ += '}';
        if (e.count > 0) list(id, "_{", "}");
        return;
      case Op::call:
        out_ += info(e.function).name;
        list(id, "(", ")");
        return;
      case Op::compare: {
        const auto operands = s_.operands_of(id);
        const auto by = s_.comparisons_of(id);
        for (size_t i = operands.size(); i-- > 0;) {
          work_.push_back({operands[i], 4});
          if (i > 0) work_.push_back({.text = text(by[i - 1])});
        }
        return;
      }
      case Op::power:
        work_.push_back({s_.operands_of(id)[1], 6});
        work_.push_back({.text = "**"});
        work_.push_back({s_.operands_of(id)[0], 8});
        return;
      default: {
        const int l = level(e.op);
        work_.push_back({s_.operands_of(id)[1], l + 1});
        work_.push_back({.text = text(e.op)});
        work_.push_back({s_.operands_of(id)[0], l});
      }
    }
  }

  void list(ExprId id, std::string_view open, std::string_view close) {
    out_ += open;
    work_.push_back({.text = close});
    const auto operands = s_.operands_of(id);
    for (size_t i = operands.size(); i-- > 0;) {
      work_.push_back({operands[i], 0});
      if (i > 0) work_.push_back({.text = ","});
    }
  }

  const Syntax& s_;
  std::string& out_;
  std::vector<Work> work_;
};

void header(const Syntax& s, std::string& out) {
  for (const HeaderEntry& e : s.header) {
    out += fmt::format("{} {} {}[", text(e.role), s.text(e.name), name(e.type));
    for (size_t i = 0; i < e.dims.size(); ++i) {
      if (i) out += ',';
      out += e.dims[i].name == kNone ? std::to_string(e.dims[i].extent) : s.text(e.dims[i].name);
    }
    out += ']';
    if (e.values) out += fmt::format(" range {}..{}", e.values->first, e.values->second);
    out += ";\n";
  }
}

// Items [first, last), all of one level or deeper.
void items(const Syntax& s, uint32_t first, uint32_t last, std::string_view newline, std::string& out) {
  Printer p(s, out);
  std::vector<uint32_t> open;  // ends of the nests around
  for (uint32_t i = first; i < last; ++i) {
    const Item& item = s.items[i];
    if (item.nest()) {
      for (uint32_t l = 0; l < item.loops; ++l) p.loop(s.loops[item.first_loop + l]);
      out += '[';
      open.push_back(item.end);
    } else {
      p.expr(item.target);
      out += '=';
      p.expr(item.value);
      out += ';';
    }
    while (!open.empty() && open.back() == i + 1) {
      out += "];";
      open.pop_back();
      if (open.empty()) out += newline;
    }
  }
}

}  // namespace

std::string print(const Syntax& s, Style style) {
  std::string out;
  if (style == Style::canonical) header(s, out);
  items(s, 0, static_cast<uint32_t>(s.items.size()), style == Style::canonical ? "\n" : "", out);
  return out;
}

std::string print(const Syntax& s, ExprId e) {
  std::string out;
  Printer(s, out).expr(e);
  return out;
}

std::string print_item(const Syntax& s, uint32_t item) {
  std::string out;
  items(s, item, s.items[item].end, "", out);
  return out;
}

std::string structure(const Syntax& s) {
  std::string out;
  header(s, out);
  struct Todo {
    ExprId expr;
    bool close;
  };
  auto expr = [&](ExprId root) {
    std::vector<Todo> work = {{root, false}};
    while (!work.empty()) {
      const Todo t = work.back();
      work.pop_back();
      if (t.close) {
        out += ')';
        continue;
      }
      const Expr& e = s.exprs[t.expr];
      out += fmt::format("({}", static_cast<int>(e.op));
      if (e.op == Op::integer) out += fmt::format(" {}", e.integer);
      if (e.op == Op::real) out += ' ' + number(e.real);
      if (e.op == Op::index) out += ' ' + s.text(e.name);
      if (e.op == Op::tensor) out += fmt::format(" {} {} {}", s.text(e.name), name(e.type), letter(e.scope));
      if (e.op == Op::call) out += fmt::format(" {}", info(e.function).name);
      if (e.op == Op::compare)
        for (Comparison c : s.comparisons_of(t.expr)) out += fmt::format(" {}", text(c));
      work.push_back({t.expr, true});
      const auto operands = s.operands_of(t.expr);
      for (size_t i = operands.size(); i-- > 0;) work.push_back({operands[i], false});
    }
  };
  std::vector<uint32_t> open;
  for (uint32_t i = 0; i < s.items.size(); ++i) {
    const Item& item = s.items[i];
    if (item.nest()) {
      for (uint32_t l = 0; l < item.loops; ++l) {
        const Loop& loop = s.loops[item.first_loop + l];
        out += fmt::format("<{} {} ", letter(loop.kind), s.text(loop.index));
        expr(loop.extent);
        out += '>';
      }
      out += "[\n";
      open.push_back(item.end);
    } else {
      expr(item.target);
      out += '=';
      expr(item.value);
      out += '\n';
    }
    while (!open.empty() && open.back() == i + 1) {
      out += "]\n";
      open.pop_back();
    }
  }
  return out;
}

}  // namespace cleave::leir
