#include "graph/integer_rules.hpp"

#include <algorithm>

#include "base/codes.hpp"

namespace cleave::graph {

namespace {

constexpr int64_t kAny = int64_t{1} << 62;

// The input of integers that a value is, perhaps cast; -1: it is computed.
int input_of(const Graph& g, std::span<const ValueId> inputs, ValueId v) {
  while (g.producer(v).op == Op::cast) v = g.producer(v).operands[0];
  const auto it = std::find(inputs.begin(), inputs.end(), v);
  return it == inputs.end() || !is_integer(g.type(v).dtype) ? -1 : static_cast<int>(it - inputs.begin());
}

std::string broken(const IntegerRule& r, int64_t i, int64_t value, int64_t before) {
  switch (r.what) {
    case IntegerRule::What::begins:
      if (value < before) return fmt::format("its element {} is {}, below the one before it ({})", i, value, before);
      if (value > r.limit) return fmt::format("its element {} is {}, there are {} rows", i, value, r.limit);
      if (i > 0 && value - before > r.most)
        return fmt::format("request {} has {} rows, {} at most are possible", i - 1, value - before, r.most);
      return "";
    case IntegerRule::What::numbers:
      if (value < 0 || value >= r.limit) return fmt::format("its element {} is {}, outside 0..{}", i, value, r.limit);
      return "";
    case IntegerRule::What::lengths:
      if (value < 0 || value > r.limit)
        return fmt::format("its element {} is {}, a length from 0 to {} is needed", i, value, r.limit);
      return "";
  }
  return "";
}

}  // namespace

std::vector<IntegerRule> integer_rules(const Graph& g) {
  using What = IntegerRule::What;
  std::vector<IntegerRule> out;
  const std::vector<ValueId> inputs = g.leaves(Op::input);
  const auto number = [&](sym::Expr e) { return g.syms().as_constant(e).value_or(kAny); };
  const auto add = [&](What what, ValueId v, int64_t limit, int64_t most, int begins) {
    const int input = input_of(g, inputs, v);
    if (input < 0) return input;
    for (const IntegerRule& r : out)
      if (r.what == what && r.input == static_cast<size_t>(input) && r.limit == limit && r.most == most) return input;
    out.push_back({what, static_cast<size_t>(input), limit, most, begins});
    return input;
  };
  for (NodeId id : g.node_ids()) {
    const Node& n = g.node(id);
    if (n.op != Op::ragged && n.op != Op::ragged_pack && n.op != Op::paged) continue;
    const auto rows = [&](size_t operand) { return number(g.type(n.operands[operand]).shape[0]); };
    const auto listed = [&](const char* key) { return number(n.attributes.get<std::vector<sym::Expr>>(key)[0]); };
    if (n.op == Op::ragged) add(What::begins, n.operands[1], rows(0), listed("max"), -1);
    if (n.op == Op::ragged_pack)
      add(What::begins, n.operands[1], listed("rows"), number(g.type(n.operands[0]).shape[1]), -1);
    if (n.op == Op::paged) {
      const int begins = add(What::begins, n.operands[1], rows(2), kAny, -1);
      add(What::numbers, n.operands[2], rows(0) / n.attributes.get<int64_t>("page"), 0, begins);
      add(What::lengths, n.operands[3], listed("max"), 0, -1);
    }
  }
  return out;
}

Diagnostics check_integers(const Graph& g, std::span<const IntegerRule> rules, std::span<const int64_t> counts,
                           const IntegerAt& at) {
  Diagnostics bad;
  const std::vector<ValueId> inputs = g.leaves(Op::input);
  for (const IntegerRule& r : rules) {
    int64_t first = 0, end = counts[r.input];
    if (r.begins >= 0) {
      if (!bad.empty()) break;  // which elements are read is not known
      const auto begins = static_cast<size_t>(r.begins);
      if (counts[begins] == 0) continue;
      first = at(begins, 0);
      end = std::min(end, at(begins, counts[begins] - 1));
    }
    for (int64_t i = first, before = 0; i < end; ++i) {
      const int64_t value = at(r.input, i);
      if (const std::string why = broken(r, i, value, before); !why.empty()) {
        bad.push_back(diagnose(Code::wrong_input, g.value(inputs[r.input]).name, why));
        break;
      }
      before = value;
    }
  }
  return bad;
}

}  // namespace cleave::graph
