#include "leir_emit/threads.hpp"

#include <algorithm>

#include "base/codes.hpp"
#include "leir/typed.hpp"

namespace cleave::leir {

std::string axis_of(const Program& p, uint32_t loop) {
  return p.syntax().text(p.syntax().loops[loop].index).substr(0, 2);
}

namespace {

using Accesses = std::vector<uint32_t>;

class Planner {
 public:
  Planner(const Program& p, uint32_t root, const std::vector<Placement>& placements)
      : p_(p), s_(p.syntax()), root_(root), end_(s_.items[root].end) {
    for (const Placement& place : placements)
      if (place.honoured) (p.variables()[place.variable].scope == Scope::local ? own_ : shared_).insert(place.variable);
  }

  Result<ThreadPlan> run() {
    for (uint32_t l : loops_below(root_)) {
      if (!bound(l)) continue;
      // As many as there may be; those beyond a smaller extent have nothing to do.
      int64_t& extent = out_.axes[axis_of(p_, l)];
      extent = std::max({extent, p_.pool().bounds(p_.extent_form(l)).hi, int64_t{1}});
    }
    for (uint32_t i = root_; i < end_; ++i)
      if (!s_.items[i].nest())
        if (Diagnostics bad = equation(i); !bad.empty()) return bad;
    if (Diagnostics bad = copies(); !bad.empty()) return bad;
    if (Diagnostics bad = blocks(); !bad.empty()) return bad;
    for (uint32_t i = root_; i < end_; ++i)
      if (s_.items[i].nest()) siblings(i);
    for (uint32_t l : loops_below(root_))
      if (!bound(l)) iterations(l);
    if (Diagnostics bad = divergence(); !bad.empty()) return bad;
    return std::move(out_);
  }

 private:
  Diagnostic refuse(const std::string& why) const { return diagnose(Code::leir_unsupported, "CUDA", why); }
  const std::string& name(uint32_t loop) const { return s_.text(s_.loops[loop].index); }
  bool bound(uint32_t loop) const { return s_.loops[loop].kind == Kind::bind; }
  bool thread(uint32_t loop) const { return bound(loop) && name(loop)[0] == 't'; }
  const EquationInfo& info(uint32_t item) const { return p_.equations()[p_.equation_of(item)]; }

  std::vector<uint32_t> loops_below(uint32_t item) const {
    std::vector<uint32_t> out;
    for (uint32_t i = item; i < s_.items[item].end; ++i)
      for (uint32_t k = 0; k < s_.items[i].loops; ++k) out.push_back(s_.items[i].first_loop + k);
    return out;
  }
  Accesses accesses_below(uint32_t item) const {
    Accesses out;
    for (uint32_t i = item; i < s_.items[item].end; ++i) {
      if (s_.items[i].nest()) continue;
      for (uint32_t k = 0; k < info(i).accesses; ++k) out.push_back(info(i).first_access + k);
    }
    return out;
  }
  // The loop that binds an axis around an item, or kNone.
  uint32_t binding(uint32_t item, const std::string& axis) const {
    for (uint32_t l : info(item).loops)
      if (bound(l) && axis_of(p_, l) == axis) return l;
    return kNone;
  }

  Diagnostics equation(uint32_t i) {
    const EquationInfo& q = info(i);
    for (uint32_t l : q.reductions) {
      if (!bound(l) || q.accumulation == Accumulation::none || own_.contains(q.target)) continue;
      if (!thread(l) && shared_.contains(q.target)) continue;  // each block has one of its own
      if (!thread(l)) return {refuse(fmt::format("`{}` is reduced over across blocks", name(l)))};
      if (!p_.extent(l))
        return {refuse(fmt::format("`{}` is reduced over across threads, and its extent is no number", name(l)))};
      out_.turns.insert(l);
    }
    if (own_.contains(q.target)) return {};
    for (const auto& [axis, extent] : out_.axes)
      if (binding(i, axis) == kNone && (axis[0] == 't' || !shared_.contains(q.target))) out_.alone[i].push_back(axis);
    return {};
  }

  // Is each place of the axis alone with what it touches of a variable? Its index is a subscript of every access, or
  // none but place 0 has any.
  bool apart(const Accesses& of_one, const std::string& axis) const {
    if (out_.axes.at(axis) < 2) return true;
    const size_t rank = p_.accesses()[of_one[0]].subscripts.size();
    for (size_t d = 0; d < rank; ++d)
      if (std::all_of(of_one.begin(), of_one.end(), [&](uint32_t a) {
            const uint32_t l = binding(p_.accesses()[a].item, axis);
            return l != kNone && p_.accesses()[a].subscripts[d] == p_.symbol(l);
          }))
        return true;
    return std::all_of(of_one.begin(), of_one.end(), [&](uint32_t a) {
      const auto it = out_.alone.find(p_.accesses()[a].item);
      return it != out_.alone.end() && std::find(it->second.begin(), it->second.end(), axis) != it->second.end();
    });
  }
  bool threads_apart(const Accesses& of_one) const {
    return std::all_of(out_.axes.begin(), out_.axes.end(),
                       [&](const auto& axis) { return axis.first[0] != 't' || apart(of_one, axis.first); });
  }
  bool written(uint32_t access) const { return p_.accesses()[access].write; }
  // By variable, without those that each thread has for itself.
  std::map<uint32_t, Accesses> by_variable(const Accesses& accesses) const {
    std::map<uint32_t, Accesses> out;
    for (uint32_t a : accesses)
      if (!own_.contains(p_.accesses()[a].variable)) out[p_.accesses()[a].variable].push_back(a);
    return out;
  }

  // The checker lets each iteration have its own copy of a variable of scope s or l. A thread has its own of what it
  // keeps for itself, a block of what its threads share; nothing else has copies.
  Diagnostics copies() const {
    std::set<uint32_t> of_block = own_;
    of_block.insert(shared_.begin(), shared_.end());
    for (uint32_t l : loops_below(root_)) {
      if (!bound(l)) continue;
      const Answer a = independent(p_, l, thread(l) ? &own_ : &of_block);
      if (a.proof == Proof::yes) continue;
      return {
          refuse(fmt::format("{} on `{}` would share memory: {}; the scope l (at most 4 KiB a thread), or `{}` as a "
                             "subscript, keeps them apart",
                             thread(l) ? "threads" : "blocks", name(l), a.reason, name(l)))};
    }
    return {};
  }

  // The checker has found the iterations of one bound loop independent; two loops, serial loops around one, and what
  // stands outside may make blocks wait for each other.
  Diagnostics blocks() const {
    for (const auto& [v, of_one] : by_variable(accesses_below(root_))) {
      if (shared_.contains(v) || std::none_of(of_one.begin(), of_one.end(), [&](uint32_t a) { return written(a); }))
        continue;
      for (const auto& [axis, extent] : out_.axes) {
        if (axis[0] != 'b' || apart(of_one, axis)) continue;
        std::set<uint32_t> loops;
        bool repeated = false;
        for (uint32_t a : of_one) {
          const uint32_t l = binding(p_.accesses()[a].item, axis);
          loops.insert(l);
          for (uint32_t outer : info(p_.accesses()[a].item).loops) {
            if (outer == l) break;
            repeated = repeated || !bound(outer);
          }
        }
        if (loops.size() == 1 && *loops.begin() != kNone && !repeated) continue;
        return {
            refuse(fmt::format("blocks on `{}` would have to wait for each other, as they share `{}`: write a "
                               "top-level nest for each step",
                               axis, p_.name(v)))};
      }
    }
    return {};
  }

  // Do loops around the body of a nest, up to `last` of its own, bind all axes of threads?
  bool one_thread(uint32_t nest, uint32_t last) const {
    std::set<std::string> axes;
    for (uint32_t i = root_; i <= nest; ++i) {
      if (!s_.items[i].nest() || s_.items[i].end < s_.items[nest].end) continue;  // not around it
      for (uint32_t k = 0; k < s_.items[i].loops && s_.items[i].first_loop + k < last; ++k)
        if (thread(s_.items[i].first_loop + k)) axes.insert(axis_of(p_, s_.items[i].first_loop + k));
    }
    return std::all_of(out_.axes.begin(), out_.axes.end(),
                       [&](const auto& a) { return a.first[0] != 't' || a.second < 2 || axes.contains(a.first); });
  }

  void siblings(uint32_t nest) {
    if (one_thread(nest, s_.items[nest].first_loop + s_.items[nest].loops)) return;
    Accesses before;
    for (uint32_t child = nest + 1; child < s_.items[nest].end; child = s_.items[child].end) {
      const Accesses mine = accesses_below(child);
      Accesses both = before;
      both.insert(both.end(), mine.begin(), mine.end());
      bool waits = false;
      for (const auto& [v, of_one] : by_variable(both)) {
        auto uses = [&](const Accesses& in, bool writes) {
          return std::any_of(in.begin(), in.end(),
                             [&](uint32_t a) { return p_.accesses()[a].variable == v && (!writes || written(a)); });
        };
        const bool meet = (uses(before, true) && uses(mine, false)) || (uses(before, false) && uses(mine, true));
        waits = waits || (meet && !threads_apart(of_one));
      }
      if (waits) {
        out_.barrier_before.insert(child);
        before.clear();
      }
      before.insert(before.end(), mine.begin(), mine.end());
    }
  }

  void iterations(uint32_t loop) {
    const uint32_t nest = p_.nest_of(loop);
    if (one_thread(nest, loop)) return;
    for (const auto& [v, of_one] : by_variable(accesses_below(nest)))
      if (std::any_of(of_one.begin(), of_one.end(), [&](uint32_t a) { return written(a); }) && !threads_apart(of_one))
        out_.barrier_in.insert(loop);
  }

  // All threads of a block have to come to every barrier.
  Diagnostics divergence() {
    std::vector<uint32_t> around;
    for (uint32_t i = root_; i < end_; ++i) {
      const Item& item = s_.items[i];
      for (uint32_t l = item.first_loop; l < item.first_loop + item.loops; ++l) {
        bool inside = !bound(l) && out_.barrier_in.contains(l);
        for (uint32_t j = i; j < item.end; ++j) {
          inside = inside || (j > i && out_.barrier_before.contains(j));
          for (uint32_t m = std::max(l + 1, s_.items[j].first_loop); m < s_.items[j].first_loop + s_.items[j].loops;
               ++m)
            inside = inside || out_.barrier_in.contains(m) || out_.turns.contains(m);
        }
        if (!inside) continue;
        if (thread(l)) out_.open.insert(l);
        if (bound(l) || p_.extent(l)) continue;
        TRY_ASSIGN(const Typed extent, type_extent(p_, l));
        for (const Node& n : extent.nodes)
          if (n.act == Act::index && thread(n.meaning))
            return {refuse(
                fmt::format("`{}` runs a number of times that depends on the thread, with a barrier inside", name(l)))};
      }
    }
    return {};
  }

  const Program& p_;
  const Syntax& s_;
  uint32_t root_, end_;
  std::set<uint32_t> own_, shared_;  // variables that a thread, or a block, has for itself
  ThreadPlan out_;
};

}  // namespace

Result<ThreadPlan> thread_plan(const Program& p, uint32_t nest, const std::vector<Placement>& placements) {
  return Planner(p, nest, placements).run();
}

}  // namespace cleave::leir
