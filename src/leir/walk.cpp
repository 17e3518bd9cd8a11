#include "leir/walk.hpp"

#include <algorithm>

#include "base/codes.hpp"

namespace cleave::leir {

namespace {
constexpr size_t kMaxLoops = 64;

bool contains(const std::vector<uint32_t>& list, uint32_t x) {
  return std::find(list.begin(), list.end(), x) != list.end();
}
}  // namespace

Diagnostic Walker::refuse(const std::string& why) const { return diagnose(Code::leir_unsupported, language_, why); }

Diagnostics Walker::enter(uint32_t loop) {
  if (++depth_ > kMaxLoops)
    return {refuse(fmt::format("the loop `{}` is nested deeper than {}",
                               p_.syntax().text(p_.syntax().loops[loop].index), kMaxLoops))};
  return begin_loop(loop);
}

Diagnostics Walker::nest(uint32_t root) {
  const Syntax& s = p_.syntax();
  std::vector<uint32_t> open;
  depth_ = 0;
  for (uint32_t i = root; i < s.items[root].end; ++i) {
    const Item& item = s.items[i];
    begin_item(i);
    if (item.nest()) {
      const uint32_t start = gives_first_values(i) ? first_reduction(i) : kNone;
      for (uint32_t l = item.first_loop; l < item.first_loop + item.loops; ++l) {
        if (l == start)
          if (Diagnostics bad = first_values(i, l); !bad.empty()) return bad;
        if (Diagnostics bad = enter(l); !bad.empty()) return bad;
      }
      open.push_back(i);
    } else if (Diagnostics bad = equation(i); !bad.empty()) {
      return bad;
    }
    while (!open.empty() && s.items[open.back()].end == i + 1) {
      const Item& done = s.items[open.back()];
      for (uint32_t l = done.first_loop + done.loops; l-- > done.first_loop; --depth_) end_loop(l);
      open.pop_back();
    }
  }
  return {};
}

// Every reduction is a loop of this nest, and there are no idle loops from the first one on.
uint32_t Walker::first_reduction(uint32_t nest) const {
  const Syntax& s = p_.syntax();
  const Item& item = s.items[nest];
  if (item.end != nest + 2 || s.items[nest + 1].nest()) return kNone;
  const EquationInfo& q = p_.equations()[p_.equation_of(nest + 1)];
  if (!q.initialises || q.reductions.empty()) return kNone;
  const uint32_t last = item.first_loop + item.loops;
  const uint32_t first = *std::min_element(q.reductions.begin(), q.reductions.end());
  for (uint32_t l : q.reductions)
    if (l < item.first_loop || l >= last) return kNone;
  for (uint32_t l = first; l < last; ++l) {
    if (!p_.extent(l)) return kNone;
    const auto& subscripts = p_.accesses()[q.first_access].subscripts;
    if (!contains(q.reductions, l) && std::none_of(subscripts.begin(), subscripts.end(),
                                                   [&](sym::Expr e) { return p_.pool().mentions(e, p_.symbol(l)); }))
      return kNone;
  }
  return first;
}

Diagnostics Walker::first_values(uint32_t nest, uint32_t from) {
  const Item& item = p_.syntax().items[nest];
  const EquationInfo& q = p_.equations()[p_.equation_of(nest + 1)];
  std::vector<uint32_t> open;
  for (uint32_t l = from; l < item.first_loop + item.loops; ++l) {
    if (contains(q.reductions, l)) continue;
    if (Diagnostics bad = enter(l); !bad.empty()) return bad;
    open.push_back(l);
  }
  if (Diagnostics bad = first_value(nest + 1); !bad.empty()) return bad;
  for (size_t k = open.size(); k-- > 0; --depth_) end_loop(open[k]);
  given_.insert(nest + 1);
  return {};
}

void Walker::tree(const Typed& code, NodeId root) {
  enum Stage : uint8_t { begin, operands, first_branch, second_branch };
  struct Task {
    NodeId node;
    Stage stage;
  };
  std::vector<Task> work = {{root, begin}};
  while (!work.empty()) {
    const Task t = work.back();
    work.pop_back();
    if (done(t.node)) continue;
    const auto o = code.operands_of(t.node);
    const Act act = code.nodes[t.node].act;
    const bool lazy = act == Act::select || act == Act::logical_and || act == Act::logical_or;
    switch (t.stage) {
      case begin:
        work.push_back({t.node, operands});
        for (size_t k = lazy ? 1 : o.size(); k-- > 0;) work.push_back({o[k], begin});
        break;
      case operands:
        if (!lazy) {
          operation(t.node);
          break;
        }
        begin_branch(t.node);
        work.push_back({t.node, act == Act::select ? first_branch : second_branch});
        work.push_back({o[1], begin});
        break;
      case first_branch:
        other_branch(t.node);
        work.push_back({t.node, second_branch});
        work.push_back({o[2], begin});
        break;
      case second_branch: end_branch(t.node); break;
    }
  }
}

}  // namespace cleave::leir
