#include "leir/shadow.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace cleave::leir {

namespace {

constexpr int64_t kMaxSteps = 300'000;

std::string place(std::span<const int64_t> at) {
  std::string out = "(";
  for (size_t i = 0; i < at.size(); ++i) out += (i ? "," : "") + std::to_string(at[i]);
  return out + ")";
}

}  // namespace

// Friend access goes through the public view only: subscripts are evaluated from the syntax.
class ShadowRun {
 public:
  explicit ShadowRun(const Program& p) : p_(p), s_(p.syntax()), value_(s_.loops.size(), 0) {}

  Shadow run() {
    for (const Variable& v : p_.variables()) {
      if (v.elements() > kMaxSteps) return {};
      written_.emplace_back(static_cast<size_t>(v.elements()), v.known() && v.role != Role::output);
    }
    for (uint32_t i = 0; i < s_.items.size() && ok_;) {
      nest(i);
      i = s_.items[i].end;
    }
    out_.done = ok_;
    if (!ok_) return {.outside = out_.outside};
    for (uint32_t v = 0; v < p_.variables().size(); ++v) {
      if (p_.variables()[v].role != Role::output) continue;
      for (size_t i = 0; i < written_[v].size(); ++i)
        if (!written_[v][i]) {
          std::vector<int64_t> at(p_.variables()[v].shape.size());
          auto rest = static_cast<int64_t>(i);
          for (size_t d = at.size(); d-- > 0;) {
            at[d] = rest % p_.variables()[v].shape[d];
            rest /= p_.variables()[v].shape[d];
          }
          out_.holes[v] = place(at);
          break;
        }
    }
    return std::move(out_);
  }

 private:
  // One top-level nest, all its loops as one odometer over items (an explicit stack of positions).
  void nest(uint32_t root) {
    struct Frame {
      uint32_t item;
      std::vector<int64_t> at, extent;
      uint32_t next;
    };
    std::vector<Frame> stack;
    auto enter = [&](uint32_t item) {
      Frame f{item, {}, {}, item + 1};
      const Item& it = s_.items[item];
      for (uint32_t l = it.first_loop; l < it.first_loop + it.loops; ++l) {
        const auto n = evaluate(s_.loops[l].extent);
        if (!n) ok_ = false;
        f.extent.push_back(n.value_or(0));
        f.at.push_back(0);
        value_[l] = 0;
      }
      for (int64_t n : f.extent)
        if (n < 1) f.next = it.end;
      if (ok_) stack.push_back(std::move(f));
    };
    enter(root);
    while (!stack.empty() && ok_) {
      Frame& f = stack.back();
      const Item& it = s_.items[f.item];
      if (f.next < it.end) {
        const uint32_t i = f.next;
        f.next = s_.items[i].end;
        if (s_.items[i].nest())
          enter(i);
        else
          equation(i);
        continue;
      }
      // The next point of the loops; extents inside may depend on it.
      f.next = f.item + 1;
      bool more = false;
      for (size_t d = f.at.size(); d-- > 0 && !more;) {
        const auto l = static_cast<uint32_t>(it.first_loop + d);
        if (++value_[l] >= f.extent[d]) continue;
        more = true;
        for (size_t k = d + 1; k < f.at.size(); ++k) {
          value_[it.first_loop + k] = 0;
          const auto n = evaluate(s_.loops[it.first_loop + k].extent);
          ok_ = ok_ && n.has_value();
          f.extent[k] = n.value_or(0);
          if (f.extent[k] < 1) f.next = it.end;
        }
      }
      if (!more) stack.pop_back();
      if (++steps_ > kMaxSteps) ok_ = false;
    }
  }

  // Integer expressions over indices; nothing when data is needed.
  std::optional<int64_t> evaluate(ExprId root, int depth = 0) {
    const Expr& e = s_.exprs[root];
    if (depth > 64 || ++steps_ > kMaxSteps * 8) return std::nullopt;
    const auto o = s_.operands_of(root);
    auto f = [&](size_t i) { return evaluate(o[i], depth + 1); };
    switch (e.op) {
      case Op::integer: return e.integer;
      case Op::index: return value_[p_.meaning(root)];
      case Op::negate: {
        const auto a = f(0);
        return a ? std::optional(-*a) : a;
      }
      case Op::add:
      case Op::sub:
      case Op::mul:
      case Op::floordiv:
      case Op::mod: {
        const auto a = f(0), b = f(1);
        if (!a || !b || *a > (1LL << 31) || *b > (1LL << 31) || *a < -(1LL << 31) || *b < -(1LL << 31))
          return std::nullopt;
        if (e.op == Op::add) return *a + *b;
        if (e.op == Op::sub) return *a - *b;
        if (e.op == Op::mul) return *a * *b;
        if (*b <= 0) return std::nullopt;
        const int64_t q = *a / *b - (*a % *b < 0);
        return e.op == Op::floordiv ? q : *a - q * *b;
      }
      case Op::compare: {
        const auto by = s_.comparisons_of(root);
        for (size_t i = 0; i < by.size(); ++i) {
          const auto a = f(i), b = f(i + 1);
          if (!a || !b) return std::nullopt;
          const bool yes = by[i] == Comparison::lt   ? *a < *b
                           : by[i] == Comparison::le ? *a <= *b
                           : by[i] == Comparison::gt ? *a > *b
                           : by[i] == Comparison::ge ? *a >= *b
                           : by[i] == Comparison::eq ? *a == *b
                                                     : *a != *b;
          if (!yes) return 0;
        }
        return 1;
      }
      case Op::logical_and:
      case Op::logical_or: {
        // The right side counts only when the left one leaves it open.
        const auto a = f(0);
        if (!a || (*a != 0) == (e.op == Op::logical_or)) return a ? std::optional<int64_t>(*a != 0) : a;
        const auto b = f(1);
        return b ? std::optional<int64_t>(*b != 0) : b;
      }
      case Op::call: return call(e.function, f);
      default: return std::nullopt;
    }
  }
  template <class Operand>
  std::optional<int64_t> call(Function function, const Operand& f) {
    const auto both = [&](auto make) -> std::optional<int64_t> {
      const auto a = f(0), b = f(1);
      return a && b ? std::optional<int64_t>(make(*a, *b)) : std::nullopt;
    };
    switch (function) {
      case Function::min: return both([](int64_t a, int64_t b) { return std::min(a, b); });
      case Function::max: return both([](int64_t a, int64_t b) { return std::max(a, b); });
      case Function::clamp: {
        const auto x = f(0), low = f(1), high = f(2);
        return x && low && high ? std::optional(std::min(std::max(*x, *low), *high)) : std::nullopt;
      }
      case Function::abs: {
        const auto a = f(0);
        return a ? std::optional(*a < 0 ? -*a : *a) : a;
      }
      case Function::relu: {
        const auto a = f(0);
        return a ? std::optional(std::max<int64_t>(*a, 0)) : a;
      }
      case Function::if_then_else: {
        const auto c = f(0);
        return c ? f(*c ? 1 : 2) : c;
      }
      default: return std::nullopt;
    }
  }

  // Element of a mention; nothing when it depends on data or lies outside. `at`: its subscripts, all of them only when
  // none depends on data.
  std::optional<size_t> element(ExprId tensor, std::vector<int64_t>& at) {
    const Variable& v = p_.variables()[p_.meaning(tensor)];
    if (v.shape.size() != s_.exprs[tensor].count) return std::nullopt;  // never written, and no input
    int64_t flat = 0;
    bool inside = true;
    for (ExprId o : s_.operands_of(tensor)) {
      const auto i = evaluate(o);
      if (!i) return std::nullopt;
      const int64_t extent = v.shape[at.size()];
      inside = inside && *i >= 0 && *i < extent;
      if (inside) flat = flat * extent + *i;
      at.push_back(*i);
    }
    return inside ? std::optional(static_cast<size_t>(flat)) : std::nullopt;
  }

  void equation(uint32_t item) {
    const EquationInfo& q = p_.equations()[p_.equation_of(item)];
    bool first = q.initialises;
    for (uint32_t l : q.reductions) first = first && value_[l] == 0;
    // Reads that are reached: branches whose condition is decided by indices are followed, others on both sides.
    std::vector<ExprId> work = {s_.items[item].value};
    for (ExprId o : s_.operands_of(s_.items[item].target)) work.push_back(o);
    while (!work.empty() && ok_) {
      const ExprId id = work.back();
      work.pop_back();
      const Expr& e = s_.exprs[id];
      const auto o = s_.operands_of(id);
      if (++steps_ > kMaxSteps * 8) ok_ = false;
      if (e.op == Op::call && e.function == Function::if_then_else) {
        const auto c = evaluate(o[0]);
        work.push_back(o[0]);
        if (!c || *c) work.push_back(o[1]);
        if (!c || !*c) work.push_back(o[2]);
        continue;
      }
      if (e.op == Op::logical_and || e.op == Op::logical_or) {
        const auto c = evaluate(o[0]);
        work.push_back(o[0]);
        if (!c || (*c != 0) == (e.op == Op::logical_and)) work.push_back(o[1]);
        continue;
      }
      for (ExprId x : o) work.push_back(x);
      if (e.op != Op::tensor) continue;
      const uint32_t v = p_.meaning(id);
      if (p_.variables()[v].known() && p_.variables()[v].role != Role::output) continue;
      if (id == q.accumulator && first) continue;
      std::vector<int64_t> at;
      const auto i = element(id, at);
      if (!i) {
        ok_ = false;
        return;
      }
      if (!written_[v][*i])
        for (uint32_t a = q.first_access; a < q.first_access + q.accesses; ++a)
          if (p_.accesses()[a].expr == id) out_.unwritten.try_emplace(a, place(at));
    }
    std::vector<int64_t> at;
    const auto i = element(s_.items[item].target, at);
    if (!i) {
      ok_ = false;
      if (at.size() == p_.variables()[q.target].shape.size()) out_.outside = {q.first_access, place(at)};
    } else {
      written_[q.target][*i] = true;
    }
  }

  const Program& p_;
  const Syntax& s_;
  std::vector<int64_t> value_;
  std::vector<std::vector<bool>> written_;
  Shadow out_;
  int64_t steps_ = 0;
  bool ok_ = true;
};

Shadow run_shadow(const Program& program) { return ShadowRun(program).run(); }

}  // namespace cleave::leir
