#include "leir_eval/interpret.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.hpp"
#include "base/codes.hpp"
#include "base/number.hpp"
#include "leir_eval/error_bound.hpp"

namespace cleave::leir {

int64_t Array::elements() const {
  int64_t n = 1;
  for (int64_t e : shape) n *= e;
  return n;
}

Array make_array(Type type, std::vector<int64_t> shape) {
  Array a;
  a.type = type;
  a.shape = std::move(shape);
  const auto n = static_cast<size_t>(a.elements());
  if (a.real())
    a.reals.assign(n, std::numeric_limits<double>::quiet_NaN());
  else
    a.integers.assign(n, wrap_integer(type, 0x5a5a5a5a5a5a5a5a));
  return a;
}

double element(const Array& a, int64_t i) {
  const auto k = static_cast<size_t>(i);
  if (a.real()) return a.reals[k];
  return a.type == Type::u64 ? static_cast<double>(static_cast<uint64_t>(a.integers[k]))
                             : static_cast<double>(a.integers[k]);
}

std::string element_text(const Array& a, int64_t i, int digits) {
  const auto k = static_cast<size_t>(i);
  if (a.real())
    return digits ? fmt::format("{:.{}g}", shown(a.reals[k]), digits) : fmt::format("{}", shown(a.reals[k]));
  if (a.type == Type::u64) return fmt::format("{}", static_cast<uint64_t>(a.integers[k]));
  return fmt::format("{}", a.integers[k]);
}

namespace {

// One node to evaluate, or a jump: what a tree with lazy operators becomes.
struct Step {
  enum Kind : uint8_t { evaluate, move, jump, jump_if_false, jump_if_true } kind = evaluate;
  NodeId node = 0;  // evaluated, moved to, or tested
  NodeId from = 0;  // moved from
  uint32_t to = 0;  // jumped to
};

// Without recursion: what is left to emit lies on a stack.
std::vector<Step> linearise(const Typed& code, std::span<const NodeId> roots) {
  std::vector<Step> out;
  std::vector<bool> emitted(code.nodes.size(), false);
  struct Task {
    enum Kind : uint8_t { node, finish, branch, other, join } kind;
    NodeId id;
    uint32_t patch;
  };
  std::vector<Task> work;
  for (size_t i = roots.size(); i-- > 0;) work.push_back({Task::node, roots[i], 0});
  while (!work.empty()) {
    const Task t = work.back();
    work.pop_back();
    const Node& n = code.nodes[t.id];
    const auto o = code.operands_of(t.id);
    const auto here = static_cast<uint32_t>(out.size());
    switch (t.kind) {
      case Task::node:
        if (emitted[t.id]) break;
        emitted[t.id] = true;
        if (n.act == Act::select || n.act == Act::logical_and || n.act == Act::logical_or) {
          work.push_back({Task::branch, t.id, 0});
          work.push_back({Task::node, o[0], 0});
        } else {
          work.push_back({Task::finish, t.id, 0});
          for (size_t i = o.size(); i-- > 0;) work.push_back({Task::node, o[i], 0});
        }
        break;
      case Task::finish: out.push_back({Step::evaluate, t.id, 0, 0}); break;
      case Task::branch:  // the condition is there
        if (n.act == Act::select) {
          out.push_back({Step::jump_if_false, o[0], 0, 0});
          work.push_back({Task::other, t.id, here});
          work.push_back({Task::node, o[1], 0});
        } else {
          out.push_back({Step::move, t.id, o[0], 0});
          out.push_back({n.act == Act::logical_and ? Step::jump_if_false : Step::jump_if_true, o[0], 0, 0});
          work.push_back({Task::join, t.id, here + 1});
          work.push_back({Task::node, o[1], 0});
        }
        break;
      case Task::other:  // behind the first branch
        out.push_back({Step::move, t.id, o[1], 0});
        out.push_back({Step::jump, 0, 0, 0});
        out[t.patch].to = here + 2;
        work.push_back({Task::join, t.id, here + 1});
        work.push_back({Task::node, o[2], 0});
        break;
      case Task::join:
        out.push_back({Step::move, t.id, o.back(), 0});
        out[t.patch].to = here + 1;
        break;
    }
  }
  return out;
}

struct Compiled {
  TypedEquation typed;
  std::vector<Step> steps;
};

class Interpreter {
 public:
  Interpreter(const Program& p, const InterpretOptions& o) : p_(p), s_(p.syntax()), o_(o), index_(s_.loops.size(), 0) {}

  Result<std::map<std::string, Array>> run(const std::map<std::string, Array>& inputs) {
    if (Diagnostics bad = memory(inputs); !bad.empty()) return bad;
    for (uint32_t l = 0; l < s_.loops.size(); ++l) {
      TRY_ASSIGN(Typed t, type_extent(p_, l));
      const NodeId root[] = {t.root};
      std::vector<Step> steps = linearise(t, root);
      extents_.push_back({TypedEquation{std::move(t)}, std::move(steps)});
    }
    for (uint32_t q = 0; q < p_.equations().size(); ++q) {
      TRY_ASSIGN(TypedEquation t, type_equation(p_, q, o_.precision));
      std::vector<NodeId> roots = t.code.subscripts;
      roots.push_back(t.code.root);
      std::vector<Step> steps = linearise(t.code, roots);
      equations_.push_back({std::move(t), std::move(steps)});
    }
    for (uint32_t i = 0; i < s_.items.size() && bad_.empty(); i = s_.items[i].end) nest(i);
    if (!bad_.empty()) return bad_;
    std::map<std::string, Array> out;
    for (uint32_t v = 0; v < p_.variables().size(); ++v)
      if (p_.variables()[v].role == Role::output) out.emplace(p_.name(v), std::move(arrays_[v]));
    return out;
  }

 private:
  Diagnostics memory(const std::map<std::string, Array>& inputs) {
    Diagnostics bad;
    double bytes = 0;
    for (uint32_t v = 0; v < p_.variables().size(); ++v) {
      const Variable& var = p_.variables()[v];
      bytes += 8.0 * static_cast<double>(var.elements());
      if (bytes > static_cast<double>(o_.max_bytes))
        return {diagnose(Code::leir_too_large, o_.max_bytes, "bytes of variables")};
      if (!var.known() || var.role == Role::output) {
        arrays_.push_back(make_array(var.type, var.shape));
      } else {
        const auto it = inputs.find(p_.name(v));
        if (it == inputs.end()) {
          bad.push_back(diagnose(Code::leir_input, p_.name(v), "is not given"));
          arrays_.emplace_back();
          continue;
        }
        if (it->second.shape != var.shape) {
          bad.push_back(diagnose(Code::leir_input, p_.name(v),
                                 fmt::format("has the shape [{}], declared is [{}]", fmt::join(it->second.shape, ","),
                                             fmt::join(var.shape, ","))));
          arrays_.emplace_back();
          continue;
        }
        Array a = make_array(var.type, var.shape);
        for (int64_t i = 0; i < a.elements(); ++i) {
          const auto k = static_cast<size_t>(i);
          if (a.real())
            a.reals[k] = round_real(var.type, element(it->second, i));
          else
            a.integers[k] = it->second.real() ? real_to_integer(var.type, it->second.reals[k])
                                              : wrap_integer(var.type, it->second.integers[k]);
          if (!a.real() && var.values && (a.integers[k] < var.values->first || a.integers[k] > var.values->second)) {
            bad.push_back(diagnose(Code::leir_input, p_.name(v),
                                   fmt::format("has the value {}, declared are {}..{}", a.integers[k],
                                               var.values->first, var.values->second)));
            break;
          }
        }
        arrays_.push_back(std::move(a));
      }
      if (o_.error_bounds && arrays_.back().real())
        arrays_.back().errors.assign(static_cast<size_t>(arrays_.back().elements()), 0.0);
    }
    return bad;
  }

  void nest(uint32_t root) {
    struct Frame {
      uint32_t item, next;
      size_t first;  // of its extents
    };
    std::vector<Frame> stack;
    std::vector<int64_t> extents;
    auto enter = [&](uint32_t item) {
      const Item& it = s_.items[item];
      const size_t first = extents.size();
      bool empty = false;
      for (uint32_t l = it.first_loop; l < it.first_loop + it.loops; ++l) {
        index_[l] = 0;
        const int64_t n = empty ? 0 : extent(l);
        empty = empty || n < 1;
        extents.push_back(n);
      }
      // An empty loop at the first point: nothing to run there, but an outer index may open it later.
      stack.push_back({item, empty ? it.end : item + 1, first});
    };
    enter(root);
    while (!stack.empty() && bad_.empty()) {
      Frame& f = stack.back();
      const Item& it = s_.items[f.item];
      if (f.next < it.end) {
        const uint32_t i = f.next;
        f.next = s_.items[i].end;
        if (s_.items[i].nest())
          enter(i);
        else
          equation(p_.equation_of(i));
        continue;
      }
      // The next point. An extent that depends on an outer index of the same nest is evaluated again.
      f.next = f.item + 1;
      bool more = false;
      for (uint32_t d = it.loops; d-- > 0 && !more;) {
        const uint32_t l = it.first_loop + d;
        if (++index_[l] >= extents[f.first + d]) continue;
        more = true;
        for (uint32_t k = d + 1; k < it.loops; ++k) {
          index_[it.first_loop + k] = 0;
          extents[f.first + k] = f.next == it.end ? 0 : extent(it.first_loop + k);
          if (extents[f.first + k] < 1) f.next = it.end;
        }
      }
      if (!more) {
        extents.resize(f.first);
        stack.pop_back();
      }
    }
  }

  int64_t extent(uint32_t loop) {
    const Compiled& c = extents_[loop];
    if (!execute(c)) return 0;
    return integers_[c.typed.code.root];
  }

  void equation(uint32_t number) {
    const Compiled& c = equations_[number];
    const EquationInfo& q = p_.equations()[number];
    const Access& w = p_.accesses()[q.first_access];
    begins_ = q.initialises;
    for (uint32_t l : q.reductions) begins_ = begins_ && index_[l] == 0;
    if (!execute(c)) return;
    Array& a = arrays_[q.target];
    const auto at = flat(c.typed.code.subscripts, w);
    if (!at) return;
    const NodeId root = c.typed.code.root;
    const Class cls = c.typed.code.nodes[root].cls;
    if (!a.real()) {
      a.integers[*at] = is_real(cls) ? real_to_integer(a.type, reals_[root]) : wrap_integer(a.type, integers_[root]);
      return;
    }
    const double v = reals_[root];
    a.reals[*at] = o_.precision == Precision::f64 ? v : round_real(a.type, v);
    if (o_.error_bounds) a.errors[*at] = stored_error(a.type, v, errors_[root]);
  }

  std::string where() const {
    std::string out;
    for (uint32_t l : p_.equations()[p_.equation_of(item_)].loops)
      out += fmt::format("{}{}={}", out.empty() ? "" : ", ", s_.text(s_.loops[l].index), index_[l]);
    return out.empty() ? "without loops" : "at " + out;
  }

  std::optional<size_t> flat(std::span<const NodeId> subscripts, const Access& access) {
    const Array& a = arrays_[access.variable];
    int64_t at = 0;
    for (size_t d = 0; d < subscripts.size(); ++d) {
      const int64_t i = integers_[subscripts[d]];
      if (i < 0 || i >= a.shape[d]) {
        item_ = access.item;
        bad_.push_back(
            diagnose_at(s_.exprs[access.expr].range, Code::leir_out_of_bounds, print(s_, access.expr),
                        fmt::format("subscript {} is {}, the extent is {}, {}", d + 1, i, a.shape[d], where())));
        return std::nullopt;
      }
      at = at * a.shape[d] + i;
    }
    return static_cast<size_t>(at);
  }

  std::optional<size_t> flat_in_extent(std::span<const NodeId> subscripts, uint32_t variable) {
    const Array& a = arrays_[variable];
    int64_t at = 0;
    for (size_t d = 0; d < subscripts.size(); ++d) {
      const int64_t i = integers_[subscripts[d]];
      if (d >= a.shape.size() || i < 0 || i >= a.shape[d]) {
        bad_.push_back(diagnose(Code::leir_out_of_bounds, p_.name(variable),
                                fmt::format("in the extent of a loop, subscript {} is {}", d + 1, i)));
        return std::nullopt;
      }
      at = at * a.shape[d] + i;
    }
    return static_cast<size_t>(at);
  }

  bool execute(const Compiled& c) {
    const Typed& code = c.typed.code;
    if (reals_.size() < code.nodes.size()) {
      reals_.resize(code.nodes.size());
      integers_.resize(code.nodes.size());
      errors_.resize(code.nodes.size());
    }
    if ((steps_ += static_cast<int64_t>(c.steps.size())) > o_.max_steps) {
      bad_.push_back(diagnose(Code::leir_work, fmt::format("more than {}", o_.max_steps), o_.max_steps));
      return false;
    }
    for (uint32_t i = 0; i < c.steps.size(); ++i) {
      const Step& s = c.steps[i];
      switch (s.kind) {
        case Step::evaluate:
          if (!node(c, s.node)) return false;
          break;
        case Step::move:
          reals_[s.node] = reals_[s.from];
          integers_[s.node] = integers_[s.from];
          errors_[s.node] = errors_[s.from];
          break;
        case Step::jump: i = s.to - 1; break;
        case Step::jump_if_false:
          if (!integers_[s.node]) i = s.to - 1;
          break;
        case Step::jump_if_true:
          if (integers_[s.node]) i = s.to - 1;
          break;
      }
    }
    return true;
  }

  double rounded(Class c, double v) const { return c == Class::f32 ? static_cast<double>(static_cast<float>(v)) : v; }

  bool node(const Compiled& c, NodeId id) {
    const Typed& code = c.typed.code;
    const Node& n = code.nodes[id];
    const auto o = code.operands_of(id);
    double& d = reals_[id];
    int64_t& i = integers_[id];
    const bool real = is_real(n.cls);
    errors_[id] = 0;
    auto x = [&](size_t k) { return reals_[o[k]]; };
    auto j = [&](size_t k) { return integers_[o[k]]; };
    auto u = [&](size_t k) { return static_cast<uint64_t>(integers_[o[k]]); };
    const bool big = !real && n.cls == Class::unsigned_integer;
    switch (n.act) {
      case Act::integer: i = n.integer; return true;
      case Act::real: d = n.real; return true;
      case Act::index: i = index_[n.meaning]; return true;
      case Act::load: {
        if (id == c.typed.accumulator && begins_) {
          d = c.typed.identity;
          i = c.typed.identity_integer;
          return true;
        }
        const auto at = n.meaning == kNone ? flat_in_extent(o, n.variable) : flat(o, p_.accesses()[n.meaning]);
        if (!at) return false;
        const Array& from = arrays_[n.variable];
        if (from.real()) {
          d = from.reals[*at];
          if (o_.error_bounds) errors_[id] = from.errors[*at];
        } else {
          i = from.integers[*at];
        }
        return true;
      }
      case Act::convert: {
        const Class from = code.nodes[o[0]].cls;
        if (real) {
          d = rounded(n.cls, is_real(from)                     ? x(0)
                             : from == Class::unsigned_integer ? static_cast<double>(u(0))
                                                               : static_cast<double>(j(0)));
          if (o_.error_bounds && is_real(from)) errors_[id] = errors_[o[0]];
        } else if (n.cls == Class::boolean) {
          i = is_real(from) ? x(0) != 0 : j(0) != 0;
        } else {
          i = is_real(from) ? real_to_integer(Type::i64, x(0)) : j(0);
        }
        return true;
      }
      case Act::add:
        if (real)
          d = rounded(n.cls, x(0) + x(1));
        else
          i = static_cast<int64_t>(u(0) + u(1));
        break;
      case Act::sub:
        if (real)
          d = rounded(n.cls, x(0) - x(1));
        else
          i = static_cast<int64_t>(u(0) - u(1));
        break;
      case Act::mul:
        if (real)
          d = rounded(n.cls, x(0) * x(1));
        else
          i = static_cast<int64_t>(u(0) * u(1));
        break;
      case Act::div: d = rounded(n.cls, x(0) / x(1)); break;
      case Act::negate:
        if (real)
          d = -x(0);
        else
          i = static_cast<int64_t>(-u(0));
        break;
      case Act::floordiv:
      case Act::mod: {
        if (j(1) == 0) {
          item_ = c.typed.item;
          bad_.push_back(
              diagnose_at(s_.items[item_].range, Code::leir_divisor, print(s_, s_.items[item_].target), where()));
          return false;
        }
        if (big) {
          i = static_cast<int64_t>(n.act == Act::mod ? u(0) % u(1) : u(0) / u(1));
        } else {
          const bool least = j(1) == -1;  // the one quotient that overflows wraps
          const int64_t q = least ? static_cast<int64_t>(-u(0)) : j(0) / j(1);
          const int64_t r = least ? 0 : j(0) % j(1);
          const bool down = r != 0 && ((r < 0) != (j(1) < 0));
          i = n.act == Act::mod ? (down ? r + j(1) : r) : q - down;
        }
        break;
      }
      case Act::power:
        if (real)
          d = power(x(0), n.integer, n.cls == Class::f32);
        else
          i = power(j(0), n.integer);
        break;
      case Act::raise:
        if (real)
          d = rounded(n.cls, std::pow(x(0), x(1)));
        else
          i = power(j(0), j(1));
        break;
      case Act::call: {
        const bool arguments_real = is_real(code.nodes[o[0]].cls);
        double xs[3];
        int64_t is[3];
        for (size_t k = 0; k < o.size(); ++k) {
          xs[k] = x(k);
          is[k] = j(k);
        }
        if (!arguments_real) {
          i = evaluate(n.function, std::span<const int64_t>(is, o.size()),
                       code.nodes[o[0]].cls == Class::unsigned_integer);
        } else if (real) {
          d = rounded(n.cls, evaluate(n.function, std::span<const double>(xs, o.size())));
        } else {
          i = evaluate(n.function, std::span<const double>(xs, o.size())) != 0;
        }
        break;
      }
      case Act::compare: {
        const Class from = code.nodes[o[0]].cls;
        auto holds = [&](auto a, auto b) {
          switch (n.comparison) {
            case Comparison::lt: return a < b;
            case Comparison::le: return a <= b;
            case Comparison::gt: return a > b;
            case Comparison::ge: return a >= b;
            case Comparison::eq: return a == b;
            case Comparison::ne: return a != b;
          }
          return false;
        };
        i = is_real(from) ? holds(x(0), x(1)) : from == Class::unsigned_integer ? holds(u(0), u(1)) : holds(j(0), j(1));
        return true;
      }
      case Act::logical_and:
      case Act::logical_or:
      case Act::select: CHECK(false, "lazy operators are jumps");
    }
    if (o_.error_bounds && real) {
      double values[3] = {0, 0, 0}, errors[3] = {0, 0, 0};
      for (size_t k = 0; k < o.size(); ++k) {
        values[k] = x(k);
        errors[k] = errors_[o[k]];
      }
      errors_[id] = operation_error(n, unit(code, id), d, {values, o.size()}, {errors, o.size()});
    }
    return true;
  }

  // The unit roundoff of the class that a node has in storage precision: that of what it reads, at most f64's.
  double unit(const Typed& code, NodeId id) {
    (void)code;
    (void)id;
    return storage_unit_;
  }

 public:
  double storage_unit_ = 0x1p-53;

 private:
  const Program& p_;
  const Syntax& s_;
  InterpretOptions o_;
  std::vector<int64_t> index_;
  std::vector<Array> arrays_;
  std::vector<Compiled> extents_, equations_;
  std::vector<double> reals_, errors_;
  std::vector<int64_t> integers_;
  Diagnostics bad_;
  uint32_t item_ = 0;
  bool begins_ = false;
  int64_t steps_ = 0;
};

}  // namespace

Result<std::map<std::string, Array>> interpret(const Program& p, const std::map<std::string, Array>& inputs,
                                               const InterpretOptions& options) {
  InterpretOptions o = options;
  if (o.error_bounds) o.precision = Precision::f64;
  Interpreter run(p, o);
  // The coarsest class that anything is computed in.
  for (const Variable& v : p.variables())
    if (is_real(v.type) && v.type != Type::f64) run.storage_unit_ = 0x1p-24;
  return run.run(inputs);
}

}  // namespace cleave::leir
