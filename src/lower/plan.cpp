#include "lower/plan.hpp"

#include <set>

#include "base/match.hpp"

namespace cleave::lower {

namespace {

using namespace tile;

constexpr int64_t kMaxBytes = int64_t{1} << 42;    // of one buffer
constexpr int64_t kMaxScratch = int64_t{1} << 30;  // of one task
constexpr int kMaxArguments = 4096;

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

struct Planner {
  const Program& p;
  Plan plan = {};
  Diagnostics bad = {};
  std::set<BufferId> aliased = {};  // roots that other buffers share

  void fail(const Buffer& b, std::string_view why) { bad.push_back(diagnose(Code::cannot_lower, b.name, why)); }

  bool layout(BufferId id) {
    const Buffer& b = p.buffer(id);
    Layout l;
    l.panel = b.panel;
    l.root = id;
    while (p.buffer(l.root).alias_of.valid()) l.root = p.buffer(l.root).alias_of;
    for (const Expr e : b.shape) {
      const auto n = p.syms->as_constant(e);
      if (!n) return fail(b, fmt::format("its extent `{}` has no value yet", p.syms->print(e))), false;
      if (*n < 0 || *n > kMaxBytes) return fail(b, fmt::format("its extent {} is out of range", *n)), false;
      l.shape.push_back(*n);
    }
    // Rows of scratch begin at a cache line, and not all in the same set of the cache.
    const size_t rank = l.shape.size();
    const bool padded = b.place == Place::scratch && !aliased.count(l.root) && b.panel == 0 && rank >= 2;
    l.strides.assign(rank, 1);
    int64_t step = 1;
    for (size_t i = rank; i-- > 0;) {
      int64_t extent = l.shape[i];
      if (b.panel > 0 && i + 1 == rank) {
        // The last two axes at once: [ceil(n / panel)][k][panel].
        const int64_t k = l.shape[i - 1], width = b.panel;
        if (k != 0 && width > kMaxBytes / k) return fail(b, "it is too large"), false;
        l.panel_stride = k * width;
        l.strides[i - 1] = width;
        step = l.panel_stride;
        extent = (extent + width - 1) / width;
        --i;
      } else {
        l.strides[i] = step;
        if (padded && i + 1 == rank && extent * byte_size(b.dtype) >= 64) {
          extent = round_up(extent * byte_size(b.dtype), 64) / byte_size(b.dtype);
          if (extent * byte_size(b.dtype) % 2048 == 0) extent += 64 / byte_size(b.dtype);
        }
      }
      if (extent != 0 && step > kMaxBytes / 8 / extent) return fail(b, "it is too large"), false;
      step *= extent;
    }
    l.bytes = step * byte_size(b.dtype);
    if (l.root != id && plan.layout(l.root).bytes < l.bytes)
      return fail(b, "it is larger than what it is an alias of"), false;
    plan.layouts.push_back(std::move(l));
    return true;
  }

  void argument(const Buffer& b, const Layout& l, std::vector<Argument>& list) {
    if (b.argument < 0 || b.argument >= kMaxArguments) return fail(b, "it has no argument position");
    const auto at = static_cast<size_t>(b.argument);
    if (list.size() <= at) list.resize(at + 1);
    if (!list[at].name.empty() && (list[at].shape != l.shape || list[at].dtype != b.dtype))
      return fail(b, fmt::format("argument {} is `{}` as well, with another shape or dtype", at, list[at].name));
    list[at] = {b.name, b.dtype, l.shape};
  }

  Result<Plan> run() {
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
      auto place = [&](int64_t& total) {
        l.offset = total;
        total += round_up(l.bytes, 64);
        if (total > kMaxBytes) fail(b, "the memory of the program is too large");
      };
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
        case Place::workspace: place(plan.workspace_bytes); break;
        case Place::packed: place(plan.packed_bytes); break;
        case Place::scratch:
          if (l.bytes > kMaxScratch) fail(b, "it is too large for a task's memory");
          break;
      }
    }
    if (!bad.empty()) return bad;
    return std::move(plan);
  }
};

void collect(const std::vector<Statement>& body, std::set<BufferId>& used) {
  for (const Statement& s : body)
    match(
        s.what, [&](const For& f) { collect(f.body, used); },
        [&](const Nest& n) {
          for (const Node& x : n.nodes)
            if (const auto* l = std::get_if<Load>(&x.what)) used.insert(l->buffer);
          for (const Write& w : n.stores) used.insert(w.buffer);
        },
        [&](const Matmul& m) {
          used.insert({m.a.buffer, m.b.buffer, m.c.buffer});
          if (m.init == Matmul::Init::scaled) used.insert(m.scale);
        });
}

}  // namespace

Result<Plan> plan_memory(const tile::Program& program) { return Planner{program}.run(); }

std::set<BufferId> used_roots(const tile::Kernel& kernel, const Plan& plan) {
  std::set<BufferId> used, roots;
  collect(kernel.body, used);
  for (const BufferId id : used) roots.insert(plan.layout(id).root);
  return roots;
}

Scratch plan_scratch(const tile::Program& program, const tile::Kernel& kernel, const Plan& plan) {
  std::set<BufferId> roots = used_roots(kernel, plan);
  std::erase_if(roots, [&](BufferId id) { return program.buffer(id).place != Place::scratch; });
  Scratch out;
  out.offsets.assign(program.buffers.size(), -1);
  for (const BufferId id : roots) {
    out.offsets[id.index] = out.bytes;
    out.bytes += round_up(plan.layout(id).bytes, 64);
    if (plan.layout(id).bytes >= 4096) out.bytes += 64;  // the next big one begins in another set of the cache
  }
  return out;
}

}  // namespace cleave::lower
