#include "cost/estimate.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <span>
#include <unordered_map>

#include "base/match.hpp"

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

struct Counter {
  const Program& p;
  const Machine& m;
  KernelEstimate e = {};
  std::set<BufferId> touched = {};

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
  void traffic(BufferId id, double elements) {
    if (p.buffer(id).place == Place::scratch) return;
    e.cache_bytes += elements * static_cast<double>(byte_size(p.buffer(id).dtype));
    touched.insert(root(id));
  }

  void nest(const Nest& n, const Samples& samples) {
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
    double cycles = 0;
    bool scalar = n.sequential;
    for (const Node& x : n.nodes)
      match(
          x.what,
          [&](const Load& l) {
            double reads = points;
            // What the innermost axis does not move is read once a row.
            bool moves = !inner.valid(), unit = true, dynamic = l.guard.valid();
            for (size_t a = 0; a < l.at.size(); ++a) {
              dynamic = dynamic || l.at[a].dynamic.valid();
              if (inner.valid() && p.syms->mentions(l.at[a].affine, inner)) {
                moves = true;
                unit = unit && a + 1 == l.at.size();
              }
            }
            if (!moves && !dynamic && inner.valid()) reads = std::min(reads, rows);
            cycles += reads / points * (dynamic || !unit ? static_cast<double>(m.f32_lanes()) : 0.5);
            traffic(l.buffer, reads);
          },
          [](const Literal&) {}, [&](const IndexValue&) { cycles += 0.5; },
          [&](const Apply& a) {
            cycles += vector_cycles(a.fn, m);
            e.flops += points;
          },
          [&](const Cast&) { cycles += 1; });
    for (const Write& s : n.stores) {
      // A store that the innermost axis moves by more than one element goes lane by lane.
      bool unit = true;
      for (size_t a = 0; a + 1 < s.at.size(); ++a)
        if (inner.valid() && p.syms->mentions(s.at[a], inner)) unit = false;
      cycles += !unit ? 1.5 * m.f32_lanes() : s.accumulate ? 1 : 0.5;
      if (s.accumulate) e.flops += points;
      traffic(s.buffer, points);
    }
    const double lanes = scalar || n.axes.empty() ? 1 : m.f32_lanes();
    e.compute_cycles += points * cycles / lanes + times * 8;
  }

  void matmul(const Matmul& x, const Samples& samples) {
    const Expr sizes[] = {x.m, x.n, x.k};
    const Expr a_sizes[] = {x.m, x.k}, b_sizes[] = {x.k, x.n}, c_sizes[] = {x.m, x.n};
    const double fma = points(sizes, samples);
    if (fma == 0) return;
    const double b_elements = points(b_sizes, samples);
    const double rows = fma / b_elements, depth = fma / points(c_sizes, samples);
    const bool wide = p.buffer(x.a.buffer).dtype == DType::f64 || p.buffer(x.b.buffer).dtype == DType::f64;
    const double lanes = m.f32_lanes() / (wide ? 2.0 : 1.0);
    e.flops += 2 * fma;
    // A tile pays its start and its stores; few rows leave the units waiting for loads of B.
    const double register_rows = std::min(rows, 8.0);
    const double eta = std::min(1.0, register_rows / 4) * depth / (depth + 8);
    e.compute_cycles += fma / (lanes * m.fma_pipes) / std::max(eta, 0.05);
    // Lanes that run along the depth meet at the end: about 45 operations for as many sums as there are lanes.
    if (x.b.columns + 1 != static_cast<int>(p.buffer(x.b.buffer).shape.size()))
      e.compute_cycles += points(c_sizes, samples) * 45 / 2 / lanes;
    traffic(x.a.buffer, points(a_sizes, samples));
    traffic(x.b.buffer, b_elements);
    traffic(x.c.buffer, points(c_sizes, samples) * (x.init == Matmul::Init::zero ? 1 : 2));
  }

  void statements(const std::vector<Statement>& body, const Samples& samples, int depth) {
    for (const Statement& s : body)
      match(
          s.what,
          [&](const For& f) {
            Samples inside = samples;
            double most = 0;
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
              one.times *= static_cast<double>(trips);
              most = std::max(most, static_cast<double>(trips));
            }
            if (f.parallel) e.tasks = static_cast<int64_t>(static_cast<double>(e.tasks) * most);
            statements(f.body, inside, depth + 1);
          },
          [&](const Nest& n) { nest(n, samples); }, [&](const Matmul& x) { matmul(x, samples); },
          [&](const Let& l) {
            // What memory holds is not known: any value of the range.
            Samples inside = samples;
            for (int k = 0; k < kSamples; ++k) {
              Sample& one = inside[static_cast<size_t>(k)];
              const int64_t lo = p.syms->evaluate(l.lo, one.at), hi = std::max(lo, p.syms->evaluate(l.hi, one.at));
              one.at[l.symbol] = lo + (hi - lo) / kSamples * k;
            }
            statements(l.body, inside, depth + 1);
          });
  }
};

}  // namespace

std::vector<KernelEstimate> estimate(const Program& program, const Machine& machine, int threads) {
  std::vector<KernelEstimate> out;
  const double hertz = (machine.gigahertz > 0 ? machine.gigahertz : 3.0) * 1e9;
  const double dram = (machine.dram_gbytes > 0 ? machine.dram_gbytes : 10) * 1e9;
  const double l3 = (machine.l3_gbytes > 0 ? machine.l3_gbytes : 3 * dram / 1e9) * 1e9;
  for (const Kernel& k : program.kernels) {
    Counter c{program, machine};
    c.e.name = k.name;
    c.e.once = k.once;
    // Dims have their typical values.
    Samples samples;
    for (Sample& one : samples)
      for (const Expr d : program.dims) one.at[d] = program.syms->typical(d);
    c.statements(k.body, samples, 0);
    for (BufferId b : c.touched)
      c.e.memory_bytes +=
          std::min(static_cast<double>(program.elements(b) * byte_size(program.buffer(b).dtype)), c.e.cache_bytes);
    const double compute = c.e.compute_cycles / hertz;
    const double memory = c.e.memory_bytes > static_cast<double>(machine.l3_bytes) / 2
                              ? c.e.memory_bytes / dram + c.e.cache_bytes / l3
                              : c.e.cache_bytes / l3;
    constexpr double kOverlap = 0.5;  // of the smaller term that stays visible
    const double one = std::max(compute, memory) + kOverlap * std::min(compute, memory);
    const double tasks = static_cast<double>(std::max<int64_t>(c.e.tasks, 1));
    const double balance = std::ceil(tasks / threads) / tasks;
    c.e.seconds = one * balance + 1e-6;
    out.push_back(c.e);
  }
  return out;
}

}  // namespace cleave::cost
