#include "lower/lower.hpp"

#include <algorithm>

#include "base/codes.hpp"
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
          },
          [&](const Let& l) { statements(l.body); });
  }
};

constexpr int64_t kTicketBytes = 64;

struct KernelLowering {
  Kernel& k;
  Expr ticket_offset;  // of the kernel's next ticket, in the workspace
  Diagnostics bad = {};

  void statements(std::span<const Statement> body) {
    for (const Statement& s : body)
      match(
          s.what, [&](const For& f) { loop(f); }, [&](const Nest& n) { nest(n); },
          [&](const Matmul& m) { lower_matmul(k, m); }, [&](const Let& l) { let(l); });
  }

  void nest(const Nest& n) {
    if (const auto copy = tile::pair_copy(k.program, n)) return lower_pair_copy(k, *copy, n);
    lower_nest(k, n);
  }

  // The integer is read where the statement stands, and again by the next one: other tasks of the call may not write
  // it.
  void let(const Let& l) {
    const Expr lo = k.in(l.lo), hi = k.pool.max(lo, k.in(l.hi));
    std::vector<Expr> at;
    for (const Expr e : l.at) at.push_back(k.in(e));
    const DType d = k.buffer(l.buffer).dtype;
    const Value held = k.b.cast(k.b.load(k.element(l.buffer, k.offset(l.buffer, at)), d), vec::Elem::i64);
    const Expr symbol = k.pool.symbol(fmt::format("_{}", k.symbols++), {k.pool.bounds(lo).lo, k.pool.bounds(hi).hi});
    k.values[symbol] = k.b.max(k.emit(lo), k.b.min(k.emit(hi), held));
    k.renamed[l.symbol] = symbol;
    statements(l.body);
    k.values.erase(symbol);
    k.renamed.erase(l.symbol);
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
  Expr tasks(const std::vector<Statement>& body) {
    levels.clear();
    const Expr zero = k.pool.constant(0);
    Expr all = k.pool.constant(1);
    const std::vector<Statement>* inner = &body;
    while (!inner->empty()) {
      const auto* f = std::get_if<For>(&(*inner)[0].what);
      if (!f || !f->parallel) break;
      const Expr lo = k.in(f->lo), count = trips(*f, lo);
      if (!k.is_fixed(count)) {
        fail(fmt::format("the length of the parallel loop over `{}` varies in a call", k.pool.symbol_name(f->symbol)));
        return zero;
      }
      const int64_t n = k.pool.as_constant(count).value_or(1), total = k.pool.as_constant(all).value_or(1);
      if (n > 0 && total > kMaxTasks / n) {
        fail("it has too many tasks");
        return zero;
      }
      levels.push_back({bind(*f, lo, count), count, all, std::span(*inner).subspan(1)});
      all = k.pool.mul(all, count);
      inner = &f->body;
    }
    if (k.pool.is(all, 0)) return zero;
    Value rest = k.b.task();
    for (size_t i = levels.size(); i-- > 0;) {
      // There is a task only where no loop is empty; the outermost loop takes what is left.
      const bool one = k.pool.is(levels[i].trips, 1);
      const Value n = k.emit(levels[i].trips);
      const Value q = i == 0 || one ? rest : k.b.div(rest, n);
      k.values[levels[i].counter] = i == 0 ? rest : one ? k.b.i64(0) : k.b.sub(rest, k.b.mul(q, n));
      rest = q;
    }
    statements(*inner);
    join(levels.size());
    return all;
  }

  // What stands behind the parallel loops is done by the task that draws the last ticket of its loop: everything that
  // the others have stored is seen then.
  void join(size_t inside) {
    size_t at = inside;
    Expr arrivals = k.pool.constant(1);
    while (at > 0 && levels[at - 1].behind.empty()) arrivals = k.pool.mul(arrivals, levels[--at].trips);
    if (at == 0) return;
    const Level& level = levels[--at];
    arrivals = k.pool.mul(arrivals, level.trips);
    if (k.pool.less(k.pool.constant(0), arrivals) != sym::Proof::yes)
      return fail("a parallel loop whose tasks are joined may be empty");
    // One ticket for each iteration of the loops around, a cache line apart.
    Expr which = k.pool.constant(0);
    for (size_t i = 0; i < at; ++i) which = k.pool.add(k.pool.mul(which, levels[i].trips), levels[i].counter);
    const Expr offset = k.pool.add(ticket_offset, k.pool.mul(which, kTicketBytes));
    const auto behind = [&] {
      // The loops that are joined are over.
      for (size_t i = at; i < levels.size(); ++i) k.values.erase(levels[i].counter);
      statements(level.behind);
      join(at);
    };
    ticket_offset = k.pool.add(ticket_offset, k.pool.mul(level.around, kTicketBytes));
    if (k.pool.is(arrivals, 1)) return behind();
    const Value before = k.b.fetch_add(k.b.ptr_add(k.b.workspace(), k.emit(offset)), k.b.i64(1));
    k.b.if_then(k.b.apply(Fn::eq, {before, k.b.sub(k.emit(arrivals), k.b.i64(1))}), behind);
  }

  struct Level {
    Expr counter, trips, around;        // around: how many iterations the loops around have
    std::span<const Statement> behind;  // what joins its tasks
  };
  std::vector<Level> levels = {};

  void fail(std::string why) { bad.push_back(diagnose(Code::cannot_lower, k.b.function().name, why)); }
};

// Tickets are counted from 0 in each call: a launch of one task, which the calling thread runs before the others.
void zero_tickets(const Program& program, const Plan& plan, const Machine& machine, Expr end, Lowered& out) {
  const Expr one = plan.syms->constant(1), nothing = plan.syms->constant(0);
  out.module.functions.emplace_back("tickets");
  vec::Builder builder(out.module.functions.back());
  sym::Pool pool = *plan.syms;
  Kernel k{program, plan, machine, pool, builder, {}, {}};
  for (size_t d = 0; d < program.dims.size(); ++d) k.dims[program.dims[d]] = static_cast<int>(d);
  builder.for_each(k.emit(plan.workspace_bytes), k.emit(end), builder.i64(kTicketBytes), [&](Value at) {
    builder.store(builder.i64(0), builder.ptr_add(builder.workspace(), at), DType::i64);
  });
  const auto first = std::find_if(out.launches.begin(), out.launches.end(), [](const Launch& l) { return !l.once; });
  out.launches.insert(first, {"tickets", false, 1, 0, one, nothing});
}

}  // namespace

std::vector<int64_t> Lowered::shape(const Argument& argument, std::span<const int64_t> extents) const {
  if (dims.empty() || argument.extents.empty()) return argument.shape;
  std::unordered_map<sym::Expr, int64_t> values;
  for (size_t i = 0; i < dims.size(); ++i) values[dims[i]] = extents[i];
  std::vector<int64_t> out;
  for (const sym::Expr e : argument.extents) out.push_back(syms->evaluate(e, values));
  return out;
}

Result<Lowered> lower(const tile::Program& program, const Machine& machine) {
  if (Diagnostics bad = tile::verify(program); !bad.empty()) return bad;
  TRY_ASSIGN(const Plan plan, plan_memory(program));
  Lowered out;
  out.inputs = plan.inputs;
  out.constants = plan.constants;
  out.outputs = plan.outputs;
  out.scalars = plan.scalars;
  out.packed_bytes = plan.syms->typical(plan.packed_bytes);
  out.dims = program.dims;
  out.constant_read.assign(plan.constants.size(), false);
  for (const tile::Kernel& kernel : program.kernels)
    if (!kernel.once)
      for (const BufferId id : used_roots(kernel, plan))
        if (const Buffer& b = program.buffer(id); b.place == Place::constant)
          out.constant_read[static_cast<size_t>(b.argument)] = true;
  const std::set<BufferId> past_caches = outputs_past_caches(program, plan, machine);
  Expr tickets_end = plan.workspace_bytes;
  for (const bool once : {true, false})
    for (size_t i = 0; i < program.kernels.size(); ++i) {
      const tile::Kernel& kernel = program.kernels[i];
      if (kernel.once != once) continue;
      NodeCheck check{program, kernel.name};
      check.statements(kernel.body);
      if (!check.bad.empty()) return check.bad;
      const Scratch scratch = plan_scratch(program, kernel, plan);
      if (plan.syms->as_constant(scratch.bytes).value_or(0) > (int64_t{1} << 31))
        return diagnose(Code::cannot_lower, kernel.name, "its scratch memory is too large");
      const std::string function = fmt::format("k{}_{}", i, kernel.name);
      out.module.functions.emplace_back(function);
      vec::Builder builder(out.module.functions.back());
      sym::Pool pool = *plan.syms;
      Kernel k{program, plan, machine, pool, builder, scratch, past_caches};
      for (size_t d = 0; d < program.dims.size(); ++d) k.dims[program.dims[d]] = static_cast<int>(d);
      KernelLowering lowering{k, tickets_end};
      const Expr tasks = lowering.tasks(kernel.body);
      if (!lowering.bad.empty()) return lowering.bad;
      if (k.streams) builder.fence();
      if (once && !pool.as_constant(tasks))
        return diagnose(Code::cannot_lower, kernel.name, "it runs once, but its tasks depend on run-time extents");
      // Over the plan's symbols: the kernel's own are gone after it.
      const Expr count = sym::copied(tasks, pool, *plan.syms);
      out.launches.push_back(
          {function, once, plan.syms->typical(count), plan.syms->typical(scratch.bytes), count, scratch.bytes});
      tickets_end = sym::copied(lowering.ticket_offset, pool, *plan.syms);
    }
  if (!plan.syms->is(plan.syms->sub(tickets_end, plan.workspace_bytes), 0))
    zero_tickets(program, plan, machine, tickets_end, out);
  out.workspace_of = tickets_end;
  out.workspace_bytes = plan.syms->typical(tickets_end);
  out.syms = plan.syms;
  return out;
}

}  // namespace cleave::lower
