// Names, scopes, ranks, accumulators: what can be said without looking at values. The questions that need arithmetic
// on subscripts are in analysis.cpp.
#include <algorithm>

#include "base/check.hpp"
#include "base/codes.hpp"
#include "leir/analysis.hpp"
#include "leir/program.hpp"

namespace cleave::leir {

int64_t Variable::elements() const {
  int64_t n = 1;
  for (int64_t e : shape) n *= e;
  return n;
}

std::optional<uint32_t> Program::find(std::string_view name) const {
  for (uint32_t i = 0; i < variables_.size(); ++i)
    if (syntax_.text(variables_[i].name) == name) return i;
  return std::nullopt;
}

std::optional<int64_t> Program::extent(uint32_t loop) const {
  const auto& e = loop_extent_[loop];
  return e ? pool_->as_constant(*e) : std::nullopt;
}

bool Program::needs_checks() const {
  for (const Access& a : accesses_)
    if (a.bounds != Proof::yes) return true;
  return false;
}

class Checker {
 public:
  explicit Checker(Syntax syntax) { p_.syntax_ = std::move(syntax); }

  Checked run() {
    resolve();
    if (!failed_) {
      Analysis analysis(p_, messages_);
      accumulators(analysis);
      analysis.run();
    }
    Checked out;
    bool error = failed_;
    for (const Diagnostic& d : messages_) error = error || info(d.code).severity == Severity::error;
    out.messages = std::move(messages_);
    if (!error) out.program = std::move(p_);
    return out;
  }

 private:
  const Syntax& s() const { return p_.syntax_; }
  void error(Diagnostic d) {
    failed_ = true;
    if (messages_.size() < kMaxMessages) messages_.push_back(std::move(d));
  }

  void declare() {
    for (const HeaderEntry& h : s().header) {
      Variable v;
      v.name = h.name;
      v.type = h.type;
      v.role = h.role;
      v.values = h.values;
      v.range = h.range;
      for (const Dim& d : h.dims) {
        if (d.name != kNone) {
          error(diagnose_at(h.range, Code::leir_unbound_dim, s().text(d.name)));
          continue;
        }
        if (d.extent < 0)
          error(diagnose_at(h.range, Code::leir_header, s().text(h.name), fmt::format("has the extent {}", d.extent)));
        v.shape.push_back(d.extent);
      }
      if (h.values && is_real(h.type))
        error(diagnose_at(h.range, Code::leir_header, s().text(h.name), "has a range, but no integers"));
      variable_of_[h.name] = static_cast<uint32_t>(p_.variables_.size());
      rank_.push_back(static_cast<int64_t>(h.dims.size()));
      p_.variables_.push_back(std::move(v));
    }
    if (s().header.empty()) error(diagnose(Code::leir_no_header));
  }

  uint32_t variable(ExprId id) {
    const Expr& e = s().exprs[id];
    const auto [it, fresh] = variable_of_.try_emplace(e.name, static_cast<uint32_t>(p_.variables_.size()));
    const auto rank = static_cast<int64_t>(e.count);
    if (fresh) {
      Variable v;
      v.name = e.name;
      v.type = e.type;
      v.scope = e.scope;
      v.range = e.range;
      p_.variables_.push_back(v);
      rank_.push_back(rank);
      return it->second;
    }
    const Variable& v = p_.variables_[it->second];
    const std::string& name = s().text(e.name);
    if (v.known() && e.scope != Scope::global)
      error(diagnose_at(e.range, Code::leir_known, name, "has the scope g"));
    else if (e.scope != v.scope)
      error(diagnose_at(e.range, Code::leir_variable, name,
                        fmt::format("it has the scope {} here and {} before", letter(e.scope), letter(v.scope))));
    if (e.type != v.type)
      error(diagnose_at(e.range, Code::leir_variable, name,
                        fmt::format("it is {} here and {} before", leir::name(e.type), leir::name(v.type))));
    if (rank != rank_[it->second])
      error(diagnose_at(e.range, Code::leir_variable, name,
                        fmt::format("it has {} subscripts here and {} before", rank, rank_[it->second])));
    return it->second;
  }

  // Resolves the nodes below `root`; operands come before what uses them, but nodes of one tree need not be neighbours.
  void names(ExprId root, std::vector<ExprId>& nodes) {
    std::vector<ExprId> work = {root};
    while (!work.empty()) {
      const ExprId id = work.back();
      work.pop_back();
      nodes.push_back(id);
      const Expr& e = s().exprs[id];
      if (e.op == Op::index) {
        const auto it = bound_.find(e.name);
        if (it == bound_.end())
          error(diagnose_at(e.range, Code::leir_unbound, s().text(e.name)));
        else
          p_.meaning_[id] = it->second;
      } else if (e.op == Op::tensor) {
        p_.meaning_[id] = variable(id);
      }
      for (ExprId o : s().operands_of(id)) work.push_back(o);
    }
  }

  void resolve() {
    p_.meaning_.assign(s().exprs.size(), kNone);
    p_.equation_of_.assign(s().items.size(), kNone);
    p_.loop_item_.assign(s().loops.size(), kNone);
    p_.top_.resize(s().items.size());
    for (uint32_t i = 0; i < s().items.size(); i = s().items[i].end)
      for (uint32_t j = i; j < s().items[i].end; ++j) p_.top_[j] = i;
    declare();
    struct Around {
      uint32_t end, loops;
    };
    std::vector<Around> around;
    std::vector<uint32_t> path;  // loops
    for (uint32_t i = 0; i < s().items.size(); ++i) {
      while (!around.empty() && around.back().end <= i) {
        for (uint32_t l = 0; l < around.back().loops; ++l) {
          bound_.erase(s().loops[path.back()].index);
          path.pop_back();
        }
        around.pop_back();
      }
      const Item& item = s().items[i];
      if (item.nest()) {
        uint32_t bound = 0;
        for (uint32_t l = item.first_loop; l < item.first_loop + item.loops; ++l) {
          const Loop& loop = s().loops[l];
          std::vector<ExprId> nodes;
          names(loop.extent, nodes);
          for (ExprId e : nodes)
            if (s().exprs[e].op == Op::tensor && p_.meaning_[e] != kNone) {
              const Variable& v = p_.variables_[p_.meaning_[e]];
              if (!v.known() || v.role == Role::output || leir::is_real(v.type))
                error(diagnose_at(s().exprs[e].range, Code::leir_extent, s().text(loop.index),
                                  fmt::format("`{}` is no known integer", s().text(v.name))));
            }
          p_.loop_item_[l] = i;
          if (!bound_.try_emplace(loop.index, l).second) {
            error(diagnose_at(loop.range, Code::leir_rebound, s().text(loop.index)));
            return;
          }
          path.push_back(l);
          ++bound;
        }
        around.push_back({item.end, bound});
        continue;
      }
      equation(i, path);
    }
    for (uint32_t v = 0; v < p_.variables_.size(); ++v) {
      const Variable& var = p_.variables_[v];
      // What is wrong may have kept an equation from being read.
      if (!failed_ && var.role == Role::output && !written_.contains(v) && var.elements() != 0)
        error(diagnose_at(var.range, Code::leir_coverage, s().text(var.name), "is never written"));
    }
  }

  void equation(uint32_t i, const std::vector<uint32_t>& path) {
    // The questions below compare equations with each other, so their number is bounded.
    nested_ += path.size();
    if (p_.equations_.size() >= kMaxEquations || nested_ > 100 * kMaxEquations)
      return error(
          diagnose_at(s().items[i].range, Code::leir_too_large, kMaxEquations, "equations, or too deep loops"));
    const Item& item = s().items[i];
    EquationInfo q;
    q.item = i;
    q.loops = path;
    std::vector<ExprId> target, value;
    names(item.target, target);
    names(item.value, value);
    if (failed_) return;
    q.target = p_.meaning_[item.target];
    const Variable& v = p_.variables_[q.target];
    if (v.known() && v.role != Role::output)
      error(diagnose_at(item.range, Code::leir_known, s().text(v.name), "is an input and cannot be written"));
    written_.insert(q.target);
    std::set<uint32_t> subscripts, used;
    for (ExprId e : target)
      if (s().exprs[e].op == Op::index) subscripts.insert(p_.meaning_[e]);
    for (ExprId e : value)
      if (s().exprs[e].op == Op::index) used.insert(p_.meaning_[e]);
    for (uint32_t l : path)
      if (used.contains(l) && !subscripts.contains(l)) q.reductions.push_back(l);
    q.first_access = static_cast<uint32_t>(p_.accesses_.size());
    Access w;
    w.item = i;
    w.expr = item.target;
    w.variable = q.target;
    w.write = true;
    p_.accesses_.push_back(w);
    for (const auto* list : {&target, &value})
      for (ExprId e : *list)
        if (s().exprs[e].op == Op::tensor && e != item.target) {
          Access r;
          r.item = i;
          r.expr = e;
          r.variable = p_.meaning_[e];
          p_.accesses_.push_back(r);
        }
    q.accesses = static_cast<uint32_t>(p_.accesses_.size()) - q.first_access;
    p_.equation_of_[i] = static_cast<uint32_t>(p_.equations_.size());
    p_.equations_.push_back(std::move(q));
  }

  // D9: the root chain of + and -, of * and /, of max, or of min has exactly one leaf that is the target.
  void accumulators(Analysis& forms) {
    for (EquationInfo& q : p_.equations_) {
      const Item& item = s().items[q.item];
      const Expr& root = s().exprs[item.value];
      const Accumulation kind = root.op == Op::add || root.op == Op::sub                ? Accumulation::sum
                                : root.op == Op::mul || root.op == Op::div              ? Accumulation::product
                                : root.op == Op::call && root.function == Function::max ? Accumulation::maximum
                                : root.op == Op::call && root.function == Function::min ? Accumulation::minimum
                                                                                        : Accumulation::none;
      if (kind == Accumulation::none) continue;
      struct Leaf {
        ExprId expr;
        bool inverse;
      };
      std::vector<Leaf> work = {{item.value, false}}, leaves;
      while (!work.empty()) {
        const Leaf l = work.back();
        work.pop_back();
        const Expr& e = s().exprs[l.expr];
        const auto operands = s().operands_of(l.expr);
        const bool chain = kind == Accumulation::sum       ? e.op == Op::add || e.op == Op::sub
                           : kind == Accumulation::product ? e.op == Op::mul || e.op == Op::div
                                                           : e.op == Op::call && e.function == root.function;
        if (!chain) {
          leaves.push_back(l);
          continue;
        }
        const bool second_inverse = e.op == Op::sub || e.op == Op::div;
        work.push_back({operands[0], l.inverse});
        work.push_back({operands[1], l.inverse != second_inverse});
      }
      uint32_t found = 0, mentions = 0;
      for (const Leaf& l : leaves) {
        const Expr& e = s().exprs[l.expr];
        if (e.op == Op::tensor && p_.meaning_[l.expr] == q.target && !l.inverse &&
            same_subscripts(forms, item.target, l.expr)) {
          ++found;
          q.accumulator = l.expr;
        }
      }
      for (uint32_t a = q.first_access; a < q.first_access + q.accesses; ++a)
        if (!p_.accesses_[a].write && p_.accesses_[a].variable == q.target) ++mentions;
      if (found == 1 && mentions == 1) {
        q.accumulation = kind;
        for (uint32_t a = q.first_access; a < q.first_access + q.accesses; ++a)
          if (p_.accesses_[a].expr == q.accumulator) p_.accesses_[a].self = true;
      } else {
        q.accumulator = kNone;
      }
    }
  }

  // Equal texts, or equal normal forms.
  bool same_subscripts(Analysis& forms, ExprId a, ExprId b) {
    const auto x = s().operands_of(a), y = s().operands_of(b);
    if (x.size() != y.size()) return false;
    for (size_t i = 0; i < x.size(); ++i)
      if (print(s(), x[i]) != print(s(), y[i]) && !forms.same(x[i], y[i])) return false;
    return true;
  }

  static constexpr size_t kMaxEquations = 4096;

  Program p_;
  Diagnostics messages_;
  bool failed_ = false;
  size_t nested_ = 0;
  std::unordered_map<NameId, uint32_t> variable_of_;
  std::unordered_map<NameId, uint32_t> bound_;
  std::vector<int64_t> rank_;
  std::set<uint32_t> written_;
};

Checked check(Syntax syntax, const CheckOptions&) { return Checker(std::move(syntax)).run(); }

namespace {

// What of the declaration a value is against.
std::optional<std::string> not_a_value(const HeaderEntry& h, int64_t value) {
  if (h.values && (value < h.values->first || value > h.values->second))
    return fmt::format("has the value {}, declared are {}..{}", value, h.values->first, h.values->second);
  if (value < lowest_integer(h.type) || wrap_integer(h.type, value) != value)
    return fmt::format("has the value {}, which no {} has", value, leir::name(h.type));
  return std::nullopt;
}

}  // namespace

Result<Syntax> bind(const Syntax& syntax, const std::map<std::string, int64_t>& values) {
  Syntax out = syntax;
  Diagnostics bad;
  std::map<NameId, int64_t> of;
  for (const auto& [name, value] : values) {
    const auto it = std::find_if(out.header.begin(), out.header.end(),
                                 [&](const HeaderEntry& h) { return out.text(h.name) == name; });
    if (it == out.header.end() || it->role == Role::output || !it->dims.empty() || is_real(it->type))
      bad.push_back(diagnose(Code::leir_unbound_dim, name));
    else if (auto why = not_a_value(*it, value))
      bad.push_back(diagnose(Code::leir_input, name, *why));
    else
      of[it->name] = value;
  }
  if (!bad.empty()) return bad;
  for (HeaderEntry& h : out.header) {
    for (Dim& d : h.dims)
      if (const auto it = of.find(d.name); d.name != kNone && it != of.end()) d = {it->second, kNone};
    if (const auto it = of.find(h.name); it != of.end()) h.values = {{it->second, it->second}};
  }
  // Only literals that are not negative can be put in place; a negative scalar stays a read, with its range known.
  for (Loop& l : out.loops) {
    std::vector<ExprId> work = {l.extent};
    while (!work.empty()) {
      const ExprId id = work.back();
      work.pop_back();
      Expr& e = out.exprs[id];
      if (e.op == Op::tensor && e.count == 0)
        if (const auto it = of.find(e.name); it != of.end() && it->second >= 0) {
          e.op = Op::integer;
          e.integer = it->second;
        }
      for (ExprId o : out.operands_of(id)) work.push_back(o);
    }
  }
  return out;
}

}  // namespace cleave::leir
