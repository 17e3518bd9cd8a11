#include "cost/estimate.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <span>
#include <unordered_map>

#include "base/match.hpp"
#include "machine/register_tile.hpp"

namespace cleave::cost {

namespace {

using namespace tile;

// Cycles per vector of one element operation, two pipes.
double vector_cycles(Fn fn, const Machine& m) {
  const double exp = m.exp_cycles > 0 ? m.exp_cycles * m.f32_lanes() : 6;
  switch (fn) {
    case Fn::exp:
    case Fn::exp2:
    case Fn::log:
    case Fn::log2: return exp;
    case Fn::tanh:
    case Fn::sigmoid:
    case Fn::silu:
    case Fn::gelu_tanh:
    case Fn::erf:
    case Fn::gelu_erf:
    case Fn::expm1:
    case Fn::log1p:
    case Fn::elu:
    case Fn::selu: return 2 * exp;
    case Fn::softplus:
    case Fn::mish: return 3 * exp;
    case Fn::div:
    case Fn::sqrt:
    case Fn::quot0:
    case Fn::reciprocal:
    case Fn::rsqrt: return 6;
    case Fn::pow:
    case Fn::sin:
    case Fn::cos:
    case Fn::tan: return 40;
    case Fn::floordiv:
    case Fn::mod: return 20;
    default: return 0.5;
  }
}

// Loops may depend on the loops around them (a mask's bounds, a short last tile), so extents are averaged over some
// iterations of these: each sample has one value for each loop around the statement, spread evenly over its range, and
// how often the statement runs as seen from there.
constexpr int kSamples = 8;

struct Sample {
  std::unordered_map<Expr, int64_t> at;
  double times = 1;
};
using Samples = std::array<Sample, kSamples>;

// Levels of memory that data comes from: L2, L3, and what is beyond.
constexpr size_t kLevels = 3;

// What one run of a body touches of a buffer. `from[l]`: bytes that come from level l because the caches before it do
// not hold what was touched since they were last used.
struct Touched {
  double bytes = 0;
  std::array<double, kLevels> from = {};
  std::vector<Expr> symbols;  // that the place depends on: sorted
};
using Footprint = std::map<BufferId, Touched>;

double bytes_of(const Footprint& f) {
  double sum = 0;
  for (const auto& [buffer, t] : f) sum += t.bytes;
  return sum;
}

struct Counter {
  const Program& p;
  const Machine& m;
  const std::vector<double>& sizes;  // bytes of each buffer
  KernelEstimate e = {};
  std::array<double, kLevels> capacity = {};  // of the caches before each level
  std::vector<const Let*> lets = {};          // around the statement at hand

  double value(Expr x, const Sample& s) const {
    if (const auto c = p.syms->as_constant(x)) return static_cast<double>(std::max<int64_t>(*c, 0));
    return static_cast<double>(std::max<int64_t>(p.syms->evaluate(x, s.at), 0));
  }
  // How often the body of a statement with these extents runs, each run counted.
  double points(std::span<const Expr> extents, const Samples& samples) const {
    double sum = 0;
    for (const Sample& s : samples) {
      double n = s.times;
      for (Expr x : extents) n *= value(x, s);
      sum += n;
    }
    return sum / kSamples;
  }
  BufferId root(BufferId id) const { return p.buffer(id).alias_of.valid() ? p.buffer(id).alias_of : id; }
  double size_of(BufferId id) const { return sizes[id.index]; }

  // One run of a statement touches `elements` of a buffer, each level-1 miss `again` times.
  void touch(Footprint& f, BufferId id, double elements, std::span<const Expr> at, double again = 1) const {
    Touched t;
    t.bytes = std::min(elements * static_cast<double>(byte_size(p.buffer(id).dtype)), size_of(root(id)));
    t.from.fill(t.bytes);
    t.from[0] *= again;
    for (Expr x : at)
      for (Expr s : p.syms->symbols_of(x)) t.symbols.push_back(s);
    merge(f, root(id), std::move(t));
  }
  // The next touch of the same buffer finds what is there.
  static void merge(Footprint& f, BufferId id, Touched t) {
    const auto [it, fresh] = f.try_emplace(id, t);
    Touched& have = it->second;
    if (!fresh) {
      have.bytes = std::max(have.bytes, t.bytes);
      for (size_t l = 0; l < kLevels; ++l) have.from[l] = std::max(have.from[l], t.from[l]);
      have.symbols.insert(have.symbols.end(), t.symbols.begin(), t.symbols.end());
    }
    std::sort(have.symbols.begin(), have.symbols.end());
    have.symbols.erase(std::unique(have.symbols.begin(), have.symbols.end()), have.symbols.end());
  }

  // What `trips` runs of a body touch.
  void repeat(Footprint& f, Expr symbol, double trips) const {
    const double inside = bytes_of(f);
    for (auto& [id, t] : f) {
      const bool moves = std::binary_search(t.symbols.begin(), t.symbols.end(), symbol);
      const double all = size_of(id);
      for (size_t l = 0; l < kLevels; ++l) {
        if (!moves && inside <= capacity[l]) continue;
        const double before = t.from[l];
        t.from[l] *= trips;
        // A cache that holds the whole buffer, and what else the body touches, reads it once.
        if (all + inside <= capacity[l]) t.from[l] = std::max(before, std::min(t.from[l], all));
      }
      if (moves) t.bytes = std::min(t.bytes * trips, all);
    }
  }

  void nest(const Nest& n, const Samples& samples, Footprint& touched) {
    std::vector<Expr> extents;
    for (const Axis& a : n.axes) extents.push_back(a.extent);
    // Axes may depend on earlier ones: these stand at their middle.
    Samples inside = samples;
    for (Sample& s : inside)
      for (const Axis& a : n.axes) s.at[a.symbol] = static_cast<int64_t>(value(a.extent, s) / 2);
    const double points = this->points(extents, inside), times = this->points({}, samples);
    if (points == 0) return;
    const double rows = n.axes.empty() ? points : this->points(std::span(extents).first(extents.size() - 1), inside);
    const Expr inner = n.axes.empty() ? Expr() : n.axes.back().symbol;
    // Elements of a buffer that one run reaches: of the axes that move the place.
    const auto reached = [&](std::span<const Expr> at) {
      std::vector<Expr> moving;
      for (const Axis& a : n.axes)
        if (std::any_of(at.begin(), at.end(), [&](Expr x) { return p.syms->mentions(x, a.symbol); }))
          moving.push_back(a.extent);
      return this->points(moving, inside) / std::max(times, 1e-9);
    };
    double cycles = 0;
    for (const Node& x : n.nodes)
      match(
          x.what,
          [&](const Load& l) {
            double reads = points;
            // What the innermost axis does not move is read once a row.
            bool moves = !inner.valid(), unit = true, dynamic = l.guard.valid(), gathered = false;
            std::vector<Expr> at;
            for (size_t a = 0; a < l.at.size(); ++a) {
              gathered = gathered || l.at[a].dynamic.valid();
              at.push_back(l.at[a].affine);
              if (inner.valid() && p.syms->mentions(l.at[a].affine, inner)) {
                moves = true;
                unit = unit && a + 1 == l.at.size();
              }
            }
            dynamic = dynamic || gathered;
            if (!moves && !dynamic && inner.valid()) reads = std::min(reads, rows);
            cycles += reads / points * (dynamic || !unit ? static_cast<double>(m.f32_lanes()) : 0.5);
            touch(touched, l.buffer, gathered ? points / std::max(times, 1e-9) : reached(at), at);
          },
          [](const Literal&) {}, [&](const IndexValue&) { cycles += 0.5; },
          [&](const Apply& a) {
            cycles += vector_cycles(a.fn, m);
            e.flops += points, e.work += points;
          },
          [&](const Cast&) { cycles += 1; });
    for (const Write& s : n.stores) {
      // A store that the innermost axis moves by more than one element goes lane by lane.
      bool unit = true;
      for (size_t a = 0; a + 1 < s.at.size(); ++a)
        if (inner.valid() && p.syms->mentions(s.at[a], inner)) unit = false;
      cycles += !unit ? 1.5 * m.f32_lanes() : s.accumulate ? 1 : 0.5;
      if (s.accumulate) e.flops += points, e.work += points;
      touch(touched, s.buffer, reached(s.at), s.at);
    }
    const double lanes = n.sequential || n.axes.empty() ? 1 : m.f32_lanes();
    e.compute_cycles += points * cycles / lanes + times * 8;
  }

  void matmul(const Matmul& x, const Samples& samples, Footprint& touched) {
    const Expr sizes[] = {x.m, x.n, x.k}, b_sizes[] = {x.k, x.n}, c_sizes[] = {x.m, x.n};
    const double fma = points(sizes, samples), times = points({}, samples);
    if (fma == 0) return;
    const double b_elements = points(b_sizes, samples), sums = points(c_sizes, samples);
    const double rows = fma / b_elements, depth = fma / sums, columns = sums / times / rows;
    const bool wide = p.buffer(x.a.buffer).dtype == DType::f64 || p.buffer(x.b.buffer).dtype == DType::f64;
    const int lanes = std::max(1, m.f32_lanes() / (wide ? 2 : 1));
    e.flops += 2 * fma;
    const bool unit = p.buffer(x.b.buffer).pairs && m.matrix_products > 0;
    e.work += 2 * fma / (unit ? std::max(1.0, double(m.matrix_products) / (m.fma_pipes * m.f32_lanes())) : 1);
    double again_a = 1, again_b = 1;
    if (p.buffer(x.b.buffer).pairs) {
      // Blocks of 32 x 32, 32 deep a step: four tiles of C stay, two of A and two of B are loaded.
      const double blocks = std::ceil(rows / 32) * std::ceil(columns / 32), steps = std::ceil(depth / 32);
      const double rate = m.matrix_products > 0 ? m.matrix_products : 512;
      const double step = 32.0 * 32 * 32 / rate * std::clamp(std::ceil(rows / 16) / 2, 0.5, 1.0);
      e.compute_cycles += times * blocks * (steps * std::max(step, 40.0) + 120);
      const double a_bytes = 2 * rows * depth;
      if (a_bytes > static_cast<double>(m.l1_bytes) / 2) again_a = std::ceil(columns / 32);
    } else if (x.b.columns + 1 != static_cast<int>(p.buffer(x.b.buffer).shape.size())) {
      // Lanes that run along the depth meet at the end: about 45 operations for as many sums as there are lanes.
      const double eta = std::min(1.0, std::min(rows, 8.0) / 4) * depth / (depth + 8);
      e.compute_cycles += fma / (lanes * m.fma_pipes) / std::max(eta, 0.05) + sums * 45 / 2 / lanes;
    } else {
      const auto whole_rows = static_cast<int64_t>(std::max(1.0, std::round(rows)));
      const auto whole_columns = static_cast<int64_t>(std::max(1.0, std::round(columns)));
      const int64_t panel = p.buffer(x.b.buffer).panel;
      const ProductShape shape{whole_rows,
                               panel > 0 ? std::min(panel, whole_columns) : whole_columns,
                               std::clamp(depth, 1.0, 256.0),
                               lanes,
                               panel,
                               panel == 0 && whole_columns % lanes != 0};
      const RegisterTile t = choose_tile(m, shape);
      const double vectors = std::ceil(columns / lanes), blocks = vectors / t.vectors;
      const double full = std::floor(rows / t.rows), rest = rows - full * t.rows;
      double block = full * tile_cycles(m, t, depth);
      if (rest > 0.5) block += tile_cycles(m, {std::max(1, static_cast<int>(rest)), t.vectors}, depth) + 4;
      e.compute_cycles += times * std::ceil(blocks) * block;
      // A passes by once for each block of columns, and each block of B stays in L1 while it does.
      const double a_bytes = rows * depth * static_cast<double>(byte_size(p.buffer(x.a.buffer).dtype));
      if (a_bytes > static_cast<double>(m.l1_bytes) / 2) again_a = std::ceil(blocks);
    }
    touch(touched, x.a.buffer, rows * depth, x.a.at, again_a);
    touch(touched, x.b.buffer, b_elements / times, x.b.at, again_b);
    touch(touched, x.c.buffer, sums / times, x.c.at);
  }

  // An enclosing read of the element before this one (the way is 1), or after it (-1).
  std::pair<const Let*, int> neighbour_of(const Let& l) const {
    for (const Let* o : lets)
      if (o->buffer == l.buffer && l.at.size() == 1)
        for (const int way : {1, -1})
          if (p.syms->is(p.syms->sub(l.at[0], o->at[0]), way)) return {o, way};
    return {nullptr, 0};
  }

  void statements(const std::vector<Statement>& body, const Samples& samples, int depth, Footprint& touched) {
    for (const Statement& s : body)
      match(
          s.what,
          [&](const For& f) {
            Samples inside = samples;
            double most = 0, trips_in_all = 0, outside = 0;
            for (int k = 0; k < kSamples; ++k) {
              Sample& one = inside[static_cast<size_t>(k)];
              const auto bound = [&](Expr x) {
                const auto c = p.syms->as_constant(x);
                return c ? *c : p.syms->evaluate(x, one.at);
              };
              const int64_t lo = bound(f.lo), span = std::max<int64_t>(bound(f.hi) - lo, 0);
              const int64_t trips = (span + f.step - 1) / f.step;
              // Neighbouring loops take different places: the k-th sample in the order of a stride that is odd.
              const double place = ((k * (2 * depth + 1) + depth) % kSamples + 0.5) / kSamples;
              one.at[f.symbol] = lo + f.step * static_cast<int64_t>(place * static_cast<double>(trips));
              outside += one.times;
              one.times *= static_cast<double>(trips);
              trips_in_all += one.times;
              most = std::max(most, static_cast<double>(trips));
            }
            if (f.parallel) e.tasks = static_cast<int64_t>(static_cast<double>(e.tasks) * most);
            Footprint own;
            statements(f.body, inside, depth + 1, own);
            repeat(own, f.symbol, outside > 0 ? trips_in_all / outside : 0);
            for (auto& [id, t] : own) merge(touched, id, std::move(t));
          },
          [&](const Nest& n) { nest(n, samples, touched); }, [&](const Matmul& x) { matmul(x, samples, touched); },
          [&](const Let& l) {
            // What memory holds is not known: any value of the range; but neighbours of row pointers are a request
            // apart, as long as all are on average.
            const auto [neighbour, way] = neighbour_of(l);
            Samples inside = samples;
            for (int k = 0; k < kSamples; ++k) {
              Sample& one = inside[static_cast<size_t>(k)];
              const int64_t lo = p.syms->evaluate(l.lo, one.at), hi = std::max(lo, p.syms->evaluate(l.hi, one.at));
              if (neighbour) {
                const int64_t all = p.syms->evaluate(neighbour->hi, one.at) - p.syms->evaluate(neighbour->lo, one.at),
                              requests = p.syms->evaluate(p.buffer(l.buffer).shape.back(), one.at) - 1;
                const int64_t length = std::max<int64_t>(all / std::max<int64_t>(requests, 1), 1);
                one.at[l.symbol] = std::clamp(one.at.at(neighbour->symbol) + way * length, lo, hi);
              } else {
                one.at[l.symbol] = lo + (hi - lo) / kSamples * k;
              }
            }
            lets.push_back(&l);
            statements(l.body, inside, depth + 1, touched);
            lets.pop_back();
          });
  }
};

}  // namespace

std::vector<KernelEstimate> estimate(const Program& program, const Machine& machine, int threads) {
  std::vector<KernelEstimate> out;
  std::vector<Footprint> touched;
  const double hertz = (machine.gigahertz > 0 ? machine.gigahertz : 3.0) * 1e9;
  const double dram = (machine.dram_gbytes > 0 ? machine.dram_gbytes : 10) * 1e9;
  const double l3 = (machine.l3_gbytes > 0 ? machine.l3_gbytes : 3 * dram / 1e9) * 1e9;
  const double l2 = (machine.l2_gbytes > 0 ? machine.l2_gbytes : 2 * l3 / 1e9) * 1e9;
  const std::array<double, kLevels> rate = {l2, l3, dram};
  // Half of a cache is taken to be lost to what else is in it.
  const std::array<double, kLevels> capacity = {0.75 * static_cast<double>(machine.l1_bytes),
                                                0.75 * static_cast<double>(machine.l2_bytes),
                                                0.75 * static_cast<double>(machine.l3_bytes)};
  std::vector<double> sizes;
  for (uint32_t i = 0; i < program.buffers.size(); ++i)
    sizes.push_back(static_cast<double>(program.elements(BufferId(i))) *
                    static_cast<double>(byte_size(program.buffers[BufferId(i)].dtype)));
  Footprint whole;
  for (const Kernel& k : program.kernels) {
    Counter c{program, machine, sizes};
    c.capacity = capacity;
    c.e.name = k.name;
    c.e.once = k.once;
    // Dims have their typical values.
    Samples samples;
    for (Sample& one : samples)
      for (const Expr d : program.dims) one.at[d] = program.syms->typical(d);
    touched.emplace_back();
    c.statements(k.body, samples, 0, touched.back());
    for (const auto& [id, t] : touched.back()) {
      if (program.buffer(id).place == Place::scratch) continue;
      c.e.memory_bytes += t.bytes;
      if (!k.once) Counter::merge(whole, id, t);
    }
    out.push_back(c.e);
  }
  const double in_all = bytes_of(whole);
  for (size_t i = 0; i < out.size(); ++i) {
    KernelEstimate& e = out[i];
    double memory = 0;
    for (size_t l = 0; l < kLevels; ++l) {
      double bytes = 0;
      for (const auto& [id, t] : touched[i]) {
        // What the whole program touches is still there from the run before, or from the kernel before; scratch too.
        const bool there = in_all <= capacity[l] || program.buffer(id).place == Place::scratch;
        bytes += there ? std::max(0.0, t.from[l] - t.bytes) : t.from[l];
      }
      e.from[l] = bytes;
      memory += bytes / rate[l];
    }
    const double compute = e.compute_cycles / hertz;
    constexpr double kOverlap = 0.5;  // of the smaller term that stays visible
    const double one = std::max(compute, memory) + kOverlap * std::min(compute, memory);
    const double tasks = static_cast<double>(std::max<int64_t>(e.tasks, 1));
    const double balance = std::ceil(tasks / threads) / tasks;
    e.seconds = one * balance + 1e-6;
  }
  return out;
}

}  // namespace cleave::cost
