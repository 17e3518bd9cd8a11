#include "lower/lower.hpp"

#include <algorithm>

#include "base/match.hpp"
#include "lower/kernel.hpp"

namespace cleave::lower {

namespace {

using namespace tile;

constexpr int64_t kMaxTasks = int64_t{1} << 40;

// Functions that a dtype does not have: the verifier of tile programs leaves them to the code generator.
struct NodeCheck {
  const Program& p;
  const std::string& kernel;
  Diagnostics bad = {};

  void fail(std::string why) { bad.push_back(diagnose(Code::cannot_lower, kernel, why)); }
  void nest(const Nest& n) {
    for (const Node& x : n.nodes)
      if (const auto* a = std::get_if<Apply>(&x.what)) apply(n, *a);
    for (const Write& w : n.stores) {
      if (!w.accumulate) continue;
      if (w.fresh) fresh(n, w);
      const DType d = compute_type(p.buffer(w.buffer).dtype);
      const Fn fn = *w.accumulate;
      const bool logic = fn == Fn::logical_and || fn == Fn::logical_or;
      const bool known = logic || fn == Fn::add || fn == Fn::mul || fn == Fn::max || fn == Fn::min;
      if (!known || (logic && d != DType::boolean))
        fail(fmt::format("`{}` does not accumulate {}", info(fn).name, name(d)));
    }
  }
  // What a fresh accumulation reaches must be known without the axes that it runs over.
  void fresh(const Nest& n, const Write& w) {
    auto reached = [&](Expr symbol) {
      return std::any_of(w.at.begin(), w.at.end(), [&](Expr e) { return p.syms->mentions(e, symbol); });
    };
    for (const Axis& a : n.axes)
      for (const Axis& other : n.axes)
        if (reached(a.symbol) && !reached(other.symbol) && p.syms->mentions(a.extent, other.symbol))
          fail(fmt::format("the extent of `{}` depends on an axis that a fresh accumulation runs over",
                           p.syms->symbol_name(a.symbol)));
  }
  void apply(const Nest& n, const Apply& a) {
    const FnInfo& f = info(a.fn);
    const DType d = compute_type(n.nodes[a.operands.back().index].dtype);
    const bool boolean = d == DType::boolean;
    const bool bad_rule = ((f.rule == FnRule::real || f.rule == FnRule::real_test) && !is_real(d)) ||
                          (f.rule == FnRule::logic && !boolean) ||
                          (f.rule == FnRule::arith && boolean && a.fn != Fn::add && a.fn != Fn::mul &&
                           a.fn != Fn::max && a.fn != Fn::min);
    if (bad_rule) fail(fmt::format("`{}` has no meaning for {}", f.name, name(d)));
  }
  void statements(const std::vector<Statement>& body) {
    for (const Statement& s : body)
      match(
          s.what, [&](const For& f) { statements(f.body); }, [&](const Nest& n) { nest(n); },
          [&](const Matmul& m) {
            if (m.init == Matmul::Init::scaled && p.buffer(m.scale).panel > 0) fail("the scale of a product is dense");
          });
  }
};

struct KernelLowering {
  Kernel& k;
  Diagnostics bad = {};

  void statements(const std::vector<Statement>& body) {
    for (const Statement& s : body)
      match(
          s.what, [&](const For& f) { loop(f); }, [&](const Nest& n) { lower_nest(k, n); },
          [&](const Matmul& m) { lower_matmul(k, m); });
  }

  Expr trips(const For& f, Expr lo) {
    return k.pool.max(k.pool.constant(0), k.pool.ceildiv(k.pool.sub(k.in(f.hi), lo), k.pool.constant(f.step)));
  }
  // symbol = lo + step * counter.
  Expr bind(const For& f, Expr lo, Expr count) {
    const Expr t = k.counter(count);
    k.renamed[f.symbol] = k.pool.add(lo, k.pool.mul(t, f.step));
    return t;
  }

  void loop(const For& f) {
    const Expr lo = k.in(f.lo), count = trips(f, lo);
    const Expr t = bind(f, lo, count);
    k.b.for_each(k.b.i64(0), k.emit(count), k.b.i64(1), [&](Value i) {
      k.values[t] = i;
      statements(f.body);
    });
    k.values.erase(t);
    k.renamed.erase(f.symbol);
  }

  // The parallel loops around everything become tasks, the first loop slowest. Returns their number.
  int64_t tasks(const std::vector<Statement>& body) {
    struct Level {
      Expr counter;
      int64_t trips;
    };
    std::vector<Level> levels;
    int64_t total = 1;
    const std::vector<Statement>* inner = &body;
    while (inner->size() == 1) {
      const auto* f = std::get_if<For>(&(*inner)[0].what);
      if (!f || !f->parallel) break;
      const Expr lo = k.in(f->lo), count = trips(*f, lo);
      const auto n = k.pool.as_constant(count);
      if (!n) {
        bad.push_back(
            diagnose(Code::cannot_lower, k.b.function().name,
                     fmt::format("the parallel loop over `{}` has no constant length", k.pool.symbol_name(f->symbol))));
        return 0;
      }
      if (*n > kMaxTasks || (*n > 0 && total > kMaxTasks / *n)) {
        bad.push_back(diagnose(Code::cannot_lower, k.b.function().name, "it has too many tasks"));
        return 0;
      }
      total *= *n;
      levels.push_back({bind(*f, lo, count), *n});
      inner = &f->body;
    }
    if (total == 0) return 0;
    Value rest = k.b.task();
    for (size_t i = levels.size(); i-- > 0;) {
      const Value n = k.b.i64(levels[i].trips);
      const Value q = levels[i].trips == 1 ? rest : k.b.div(rest, n);
      k.values[levels[i].counter] = i == 0 ? rest : k.b.sub(rest, k.b.mul(q, n));
      rest = q;
    }
    statements(*inner);
    return total;
  }
};

}  // namespace

Result<Lowered> lower(const tile::Program& program, const Machine& machine) {
  if (Diagnostics bad = tile::verify(program); !bad.empty()) return bad;
  TRY_ASSIGN(const Plan plan, plan_memory(program));
  Lowered out;
  out.inputs = plan.inputs;
  out.constants = plan.constants;
  out.outputs = plan.outputs;
  out.scalars = plan.scalars;
  out.workspace_bytes = plan.workspace_bytes;
  out.packed_bytes = plan.packed_bytes;
  out.constant_read.assign(plan.constants.size(), false);
  for (const tile::Kernel& kernel : program.kernels)
    if (!kernel.once)
      for (const BufferId id : used_roots(kernel, plan))
        if (const Buffer& b = program.buffer(id); b.place == Place::constant)
          out.constant_read[static_cast<size_t>(b.argument)] = true;
  for (const bool once : {true, false})
    for (size_t i = 0; i < program.kernels.size(); ++i) {
      const tile::Kernel& kernel = program.kernels[i];
      if (kernel.once != once) continue;
      NodeCheck check{program, kernel.name};
      check.statements(kernel.body);
      if (!check.bad.empty()) return check.bad;
      const Scratch scratch = plan_scratch(program, kernel, plan);
      if (scratch.bytes > (int64_t{1} << 31))
        return diagnose(Code::cannot_lower, kernel.name, "its scratch memory is too large");
      const std::string function = fmt::format("k{}_{}", i, kernel.name);
      out.module.functions.emplace_back(function);
      vec::Builder builder(out.module.functions.back());
      sym::Pool pool = *program.syms;
      Kernel k{program, plan, machine, pool, builder, scratch};
      KernelLowering lowering{k};
      const int64_t tasks = lowering.tasks(kernel.body);
      if (!lowering.bad.empty()) return lowering.bad;
      out.launches.push_back({function, once, tasks, scratch.bytes});
    }
  return out;
}

}  // namespace cleave::lower
