#include "lower/plan.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "base/codes.hpp"
#include "base/match.hpp"

namespace cleave::lower {

namespace {

using namespace tile;

constexpr int64_t kMaxBytes = int64_t{1} << 42;    // of one buffer
constexpr int64_t kMaxScratch = int64_t{1} << 30;  // of one task
constexpr int kMaxArguments = 4096;

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// Without `stores`: but for what plain stores write.
void collect(const std::vector<Statement>& body, std::set<BufferId>& used, bool stores = true) {
  for (const Statement& s : body)
    match(
        s.what, [&](const For& f) { collect(f.body, used, stores); },
        [&](const Nest& n) {
          for (const Node& x : n.nodes)
            if (const auto* l = std::get_if<Load>(&x.what)) used.insert(l->buffer);
          for (const Write& w : n.stores)
            if (stores || w.accumulate) used.insert(w.buffer);
        },
        [&](const Matmul& m) {
          used.insert({m.a.buffer, m.b.buffer, m.c.buffer});
          if (m.init == Matmul::Init::scaled) used.insert(m.scale);
        },
        [&](const Let& l) {
          used.insert(l.buffer);
          collect(l.body, used, stores);
        });
}

// What the loops and nests end at.
void loop_ends(const std::vector<Statement>& body, std::set<Expr>& ends) {
  for (const Statement& s : body)
    match(
        s.what,
        [&](const For& f) {
          ends.insert(f.hi);
          loop_ends(f.body, ends);
        },
        [&](const Nest& n) {
          for (const Axis& a : n.axes) ends.insert(a.extent);
        },
        [&](const Matmul& m) { ends.insert({m.m, m.n, m.k}); }, [&](const Let& l) { loop_ends(l.body, ends); });
}

struct Planner {
  const Program& p;
  Plan plan = {};
  Diagnostics bad = {};
  std::set<BufferId> aliased = {};  // roots that other buffers share

  sym::Pool& syms() { return *plan.syms; }
  Expr constant(int64_t n) { return syms().constant(n); }
  Expr rounded_up(Expr n, int64_t to) { return syms().mul(syms().ceildiv(n, constant(to)), to); }
  void fail(const Buffer& b, std::string_view why) { bad.push_back(diagnose(Code::cannot_lower, b.name, why)); }

  // Memory of a task that no task can have. What the kernel writes and the dims that its loops end at are names that
  // the user knows; the buffer's own need not be one.
  void too_large(BufferId id) {
    std::vector<std::string> written;
    std::set<Expr> ends;
    for (const Kernel& k : p.kernels) {
      std::set<BufferId> used;
      collect(k.body, used);
      if (!used.count(id)) continue;
      for (const BufferId u : used)
        if (p.buffer(u).place == Place::output) written.push_back(p.buffer(u).name);
      loop_ends(k.body, ends);
    }
    std::string dims;
    for (const Expr d : p.dims) {
      if (std::none_of(ends.begin(), ends.end(), [&](Expr e) { return p.syms->mentions(e, d); })) continue;
      const sym::Interval range = p.syms->symbol_range(d);
      dims += fmt::format("{}`{}` ({}..{})", dims.empty() ? "" : ", ", p.syms->symbol_name(d), range.lo, range.hi);
    }
    Diagnostic d = diagnose(Code::cannot_lower, written.empty() ? p.name : written[0],
                            fmt::format("`{}` is too large for a task's memory, which is at most {} bytes",
                                        p.buffer(id).name, kMaxScratch));
    d.hint = dims.empty()
                 ? "make its extents smaller, or give it in pieces"
                 : fmt::format("end the range of a dimension lower, with --dim or in its declaration: {}", dims);
    bad.push_back(std::move(d));
  }

  bool layout(BufferId id) {
    const Buffer& b = p.buffer(id);
    Layout l;
    l.panel = b.panel;
    l.pairs = b.pairs;
    l.root = id;
    while (p.buffer(l.root).alias_of.valid()) l.root = p.buffer(l.root).alias_of;
    for (const Expr e : b.shape) {
      const auto n = syms().as_constant(e);
      if (n && (*n < 0 || *n > kMaxBytes)) return fail(b, fmt::format("its extent {} is out of range", *n)), false;
      l.shape.push_back(e);
    }
    // Rows of scratch begin at a cache line, and not all in the same set of the cache.
    const size_t rank = l.shape.size();
    const int64_t size = byte_size(b.dtype);
    const bool padded = b.place == Place::scratch && !aliased.count(l.root) && b.panel == 0 && rank >= 2;
    l.strides.assign(rank, constant(1));
    l.panel_stride = constant(0);
    Expr step = constant(1);
    for (size_t i = rank; i-- > 0;) {
      Expr extent = l.shape[i];
      if (b.panel > 0 && i + 1 == rank) {
        // The last two axes at once: [ceil(n / panel)][k][panel].
        const int64_t width = b.panel;
        const auto k = syms().as_constant(l.shape[i - 1]);
        if (k && *k != 0 && width > kMaxBytes / *k) return fail(b, "it is too large"), false;
        l.panel_stride = syms().mul(b.pairs ? rounded_up(l.shape[i - 1], 2) : l.shape[i - 1], width);
        l.strides[i - 1] = constant(width);
        step = l.panel_stride;
        extent = syms().ceildiv(extent, constant(width));
        --i;
      } else {
        l.strides[i] = step;
        if (padded && i + 1 == rank) {
          if (const auto n = syms().as_constant(extent); !n) {
            extent = rounded_up(extent, 64 / size);
          } else if (*n * size >= 64) {
            int64_t wide = round_up(*n * size, 64) / size;
            if (wide * size % 2048 == 0) wide += 64 / size;
            extent = constant(wide);
          }
        }
      }
      const auto n = syms().as_constant(extent), s = syms().as_constant(step);
      if (n && s && *n != 0 && *s > kMaxBytes / 8 / *n)
        return b.place == Place::scratch ? too_large(id) : fail(b, "it is too large"), false;
      step = syms().mul(step, extent);
    }
    l.bytes = syms().mul(step, size);
    if (l.root != id && syms().at_most(l.bytes, plan.layout(l.root).bytes) != sym::Proof::yes)
      return fail(b, "it is larger than what it is an alias of"), false;
    plan.layouts.push_back(std::move(l));
    return true;
  }

  void argument(const Buffer& b, const Layout& l, std::vector<Argument>& list) {
    if (b.argument < 0 || b.argument >= kMaxArguments) return fail(b, "it has no argument position");
    const auto at = static_cast<size_t>(b.argument);
    if (list.size() <= at) list.resize(at + 1);
    if (!list[at].name.empty() && (list[at].extents != l.shape || list[at].dtype != b.dtype))
      return fail(b, fmt::format("argument {} is `{}` as well, with another shape or dtype", at, list[at].name));
    list[at] = {b.name, b.dtype, {}, l.shape};
    for (const Expr e : l.shape) list[at].shape.push_back(syms().typical(e));
  }

  // Workspace is shared by buffers that no kernel uses at the same time: each gets a slot that is free before its first
  // kernel, the smallest that is large enough, or else the largest, which then grows.
  void place_workspace() {
    struct Life {
      size_t first = 0, last = 0, slot = 0;
    };
    std::map<BufferId, Life> lives;
    for (size_t k = 0; k < p.kernels.size(); ++k)
      for (const BufferId id : used_roots(p.kernels[k], plan))
        if (p.buffer(id).place == Place::workspace) lives.emplace(id, Life{k, k, 0}).first->second.last = k;
    std::vector<std::pair<size_t, BufferId>> order;
    for (const auto& [id, life] : lives) order.emplace_back(life.first, id);
    std::sort(order.begin(), order.end());
    struct Slot {
      Expr bytes;
      size_t last;
    };
    std::vector<Slot> slots;
    for (const auto& [first, id] : order) {
      const Expr bytes = rounded_up(plan.layout(id).bytes, 64);
      plan.separate_bytes = syms().add(plan.separate_bytes, bytes);
      std::optional<size_t> best;
      bool fits = false;
      for (size_t i = 0; i < slots.size(); ++i) {
        if (slots[i].last >= first) continue;
        const bool enough = syms().at_most(bytes, slots[i].bytes) == sym::Proof::yes;
        const bool smaller = best && syms().typical(slots[i].bytes) < syms().typical(slots[*best].bytes);
        if (!best || (enough != fits ? enough : enough == smaller)) {
          best = i;
          fits = enough;
        }
      }
      if (!best) {
        best = slots.size();
        slots.push_back({bytes, 0});
      }
      if (!fits) slots[*best].bytes = syms().max(slots[*best].bytes, bytes);
      slots[*best].last = lives[id].last;
      lives[id].slot = *best;
    }
    std::vector<Expr> offsets;
    for (const Slot& slot : slots) {
      offsets.push_back(plan.workspace_bytes);
      plan.workspace_bytes = syms().add(plan.workspace_bytes, slot.bytes);
      // With dims the call is checked.
      if (syms().as_constant(plan.workspace_bytes).value_or(0) > kMaxBytes) {
        bad.push_back(diagnose(Code::cannot_lower, p.name, "the memory of the program is too large"));
        return;
      }
    }
    for (const auto& [id, life] : lives) plan.layouts[id.index].offset = offsets[life.slot];
  }

  Result<Plan> run() {
    plan.syms = std::make_shared<sym::Pool>(*p.syms);
    plan.workspace_bytes = plan.separate_bytes = plan.packed_bytes = constant(0);
    for (const Buffer& b : p.buffers)
      if (b.alias_of.valid()) {
        BufferId root = b.alias_of;
        while (p.buffer(root).alias_of.valid()) root = p.buffer(root).alias_of;
        aliased.insert(root);
      }
    for (uint32_t i = 0; i < p.buffers.size(); ++i) {
      const Buffer& b = p.buffers[BufferId(i)];
      if (!layout(BufferId(i))) return bad;
      Layout& l = plan.layouts.back();
      if (l.root != BufferId(i)) continue;
      switch (b.place) {
        case Place::input: argument(b, l, plan.inputs); break;
        case Place::constant: argument(b, l, plan.constants); break;
        case Place::output: argument(b, l, plan.outputs); break;
        case Place::scalar:
          if (b.argument < 0 || b.argument >= kMaxArguments)
            fail(b, "it has no argument position");
          else
            plan.scalars = std::max(plan.scalars, b.argument + 1);
          if (!b.shape.empty()) fail(b, "a scalar has no axes");
          break;
        case Place::workspace: l.offset = constant(0); break;
        case Place::packed:
          l.offset = plan.packed_bytes;
          plan.packed_bytes = syms().add(plan.packed_bytes, rounded_up(l.bytes, 64));
          if (syms().as_constant(plan.packed_bytes).value_or(0) > kMaxBytes)
            fail(b, "the memory of the program is too large");
          if (!syms().as_constant(plan.packed_bytes)) fail(b, "memory that is packed once has a run-time extent");
          break;
        case Place::scratch:
          if (const auto bytes = syms().as_constant(l.bytes); bytes && *bytes > kMaxScratch) too_large(BufferId(i));
          break;
      }
    }
    if (bad.empty()) place_workspace();
    if (!bad.empty()) return bad;
    return std::move(plan);
  }
};

}  // namespace

Result<Plan> plan_memory(const tile::Program& program) { return Planner{program}.run(); }

std::set<BufferId> used_roots(const tile::Kernel& kernel, const Plan& plan) {
  std::set<BufferId> used, roots;
  collect(kernel.body, used);
  for (const BufferId id : used) roots.insert(plan.layout(id).root);
  return roots;
}

std::set<BufferId> outputs_past_caches(const tile::Program& program, const Plan& plan, const Machine& machine) {
  int64_t all = 0;
  std::set<BufferId> read, out;
  for (uint32_t i = 0; i < program.buffers.size(); ++i) {
    const BufferId id(i);
    const Place place = program.buffer(id).place;
    if (plan.layout(id).root != id || place == Place::scratch || place == Place::scalar) continue;
    const int64_t bytes = plan.syms->typical(plan.layout(id).bytes);
    all += bytes;
    if (place == Place::output && bytes >= machine.l2_bytes) out.insert(id);
  }
  if (all <= machine.l3_bytes / 4 * 3) return {};  // what a program gets of a cache that others share
  for (const tile::Kernel& k : program.kernels) collect(k.body, read, false);
  for (const BufferId id : read) out.erase(plan.layout(id).root);
  return out;
}

Scratch plan_scratch(const tile::Program& program, const tile::Kernel& kernel, const Plan& plan) {
  std::set<BufferId> roots = used_roots(kernel, plan);
  std::erase_if(roots, [&](BufferId id) { return program.buffer(id).place != Place::scratch; });
  sym::Pool& syms = *plan.syms;
  Scratch out{std::vector<Expr>(program.buffers.size()), syms.constant(0)};
  for (const BufferId id : roots) {
    out.offsets[id.index] = out.bytes;
    const Expr bytes = plan.layout(id).bytes;
    out.bytes = syms.add(out.bytes, syms.mul(syms.ceildiv(bytes, syms.constant(64)), 64));
    // The next big one begins in another set of the cache.
    if (syms.typical(bytes) >= 4096) out.bytes = syms.add(out.bytes, 64);
  }
  return out;
}

}  // namespace cleave::lower
