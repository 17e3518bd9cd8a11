#include "schedule/library.hpp"

#include <limits>

#include "schedule/nest_builder.hpp"

namespace cleave::schedule {

using itgraph::Library;
using sym::Expr;
using tile::BufferId;
using tile::NodeId;
using tile::Statement;

namespace {

struct Rows {
  const Library& l;
  sym::Pool& syms;
  tile::Program& out;
  BufferId source;
  std::vector<Expr> at = {};  // of the row; the axis' entry is replaced
  Expr n = {};
  DType dtype = {};  // compute type of the source
  std::vector<Statement> body = {};

  BufferId scratch(std::string stem, DType d, Expr extent) {
    std::string name = stem;
    auto taken = [&](const std::string& candidate) {
      for (const tile::Buffer& b : out.buffers)
        if (b.name == candidate) return true;
      return false;
    };
    for (int i = 1; taken(name); ++i) name = fmt::format("{}_{}", stem, i);
    return out.buffers.add({name, d, tile::Place::scratch, {extent}, 0, -1, {}});
  }
  std::vector<Expr> position(Expr i) const {
    std::vector<Expr> p = at;
    p[static_cast<size_t>(l.axis)] = i;
    return p;
  }
  Expr zero() { return syms.constant(0); }
  void push(NestBuilder& nest) { body.push_back({nest.take()}); }

  NodeId extreme(NestBuilder& nest, double value) {
    return is_real(dtype) ? nest.literal(value, dtype) : nest.cast(nest.literal(value, DType::f64), dtype);
  }

  void scan() {
    const Fn fn = l.what == Library::What::cumsum ? Fn::add : l.what == Library::What::cumprod ? Fn::mul : Fn::max;
    const BufferId sum = scratch("running", dtype, syms.constant(1));
    {
      NestBuilder nest(syms);
      const NodeId start =
          fn == Fn::max ? extreme(nest, -std::numeric_limits<double>::infinity()) : nest.literal(fn == Fn::mul, dtype);
      nest.store(sum, {zero()}, start);
      push(nest);
    }
    NestBuilder nest(syms);
    nest.make_sequential();
    const int64_t most = syms.bounds(n).hi;
    const Expr i = nest.axis("i", n, most);
    const auto p = position(l.reverse ? syms.sub(syms.sub(n, syms.constant(1)), i) : i);
    const NodeId before = nest.load(sum, {zero()}, dtype);
    const NodeId after = nest.apply(fn, {before, nest.load(source, p, dtype)});
    nest.store(target(0), p, l.exclusive ? before : after);
    nest.store(sum, {zero()}, after);
    push(nest);
  }

  std::vector<BufferId> targets;
  BufferId target(size_t i) const { return targets[i]; }

  // v beats best: larger (or smaller), NaN above every number.
  NodeId beats(NestBuilder& nest, NodeId v, NodeId best, bool largest, bool nan_wins) {
    NodeId better = nest.apply(largest ? Fn::gt : Fn::lt, {v, best});
    if (!is_real(dtype)) return better;
    const NodeId v_nan = nest.apply(Fn::isnan, {v}), best_nan = nest.apply(Fn::isnan, {best});
    const NodeId by_nan = nan_wins ? nest.apply(Fn::logical_and, {v_nan, nest.apply(Fn::logical_not, {best_nan})})
                                   : nest.apply(Fn::logical_and, {best_nan, nest.apply(Fn::logical_not, {v_nan})});
    return nest.apply(Fn::logical_or, {better, by_nan});
  }

  void arg(const std::vector<Expr>& result_at) {
    const BufferId best = scratch("best", dtype, syms.constant(1)),
                   where = scratch("best_at", DType::i64, syms.constant(1));
    {
      NestBuilder nest(syms);
      nest.store(best, {zero()}, nest.load(source, position(zero()), dtype));
      nest.store(where, {zero()}, nest.literal(0, DType::i64));
      push(nest);
    }
    {
      NestBuilder nest(syms);
      nest.make_sequential();
      const Expr i = nest.axis("i", n, syms.bounds(n).hi);
      const NodeId v = nest.load(source, position(i), dtype), b = nest.load(best, {zero()}, dtype),
                   w = nest.load(where, {zero()}, DType::i64);
      const NodeId better = beats(nest, v, b, l.what == Library::What::argmax, true);
      nest.store(best, {zero()}, nest.apply(Fn::where, {better, v, b}));
      nest.store(where, {zero()}, nest.apply(Fn::where, {better, nest.index(i), w}));
      push(nest);
    }
    NestBuilder nest(syms);
    nest.store(target(0), result_at, nest.load(where, {zero()}, DType::i64));
    push(nest);
  }

  void topk(Expr k) {
    const Expr one = syms.constant(1);
    const BufferId best = scratch("best", dtype, one), where = scratch("best_at", DType::i64, one),
                   found = scratch("found", DType::boolean, one);
    const BufferId taken = scratch("taken", DType::boolean, syms.max(n, one));
    const int64_t most = syms.bounds(n).hi;
    {
      NestBuilder nest(syms);
      const Expr i = nest.axis("i", n, most);
      nest.store(taken, {i}, nest.literal(0, DType::boolean));
      push(nest);
    }
    tile::For rounds;
    rounds.symbol = syms.fresh("r", {0, std::max<int64_t>(syms.bounds(k).hi - 1, 0)});
    rounds.lo = zero();
    rounds.hi = k;
    {
      NestBuilder nest(syms);
      nest.store(found, {zero()}, nest.literal(0, DType::boolean));
      nest.store(where, {zero()}, nest.literal(0, DType::i64));
      nest.store(best, {zero()}, nest.literal(0, dtype));
      rounds.body.push_back({nest.take()});
    }
    {
      NestBuilder nest(syms);
      nest.make_sequential();
      const Expr i = nest.axis("i", n, most);
      const NodeId v = nest.load(source, position(i), dtype), b = nest.load(best, {zero()}, dtype),
                   w = nest.load(where, {zero()}, DType::i64);
      const NodeId have = nest.load(found, {zero()}, DType::boolean);
      const NodeId free = nest.apply(Fn::logical_not, {nest.load(taken, {i}, DType::boolean)});
      // NaN is above every number: it comes first among the largest, last among the smallest.
      NodeId better = beats(nest, v, b, l.largest, l.largest);
      better = nest.apply(Fn::logical_or, {nest.apply(Fn::logical_not, {have}), better});
      better = nest.apply(Fn::logical_and, {free, better});
      nest.store(best, {zero()}, nest.apply(Fn::where, {better, v, b}));
      nest.store(where, {zero()}, nest.apply(Fn::where, {better, nest.index(i), w}));
      nest.store(found, {zero()}, nest.apply(Fn::logical_or, {have, better}));
      rounds.body.push_back({nest.take()});
    }
    {
      NestBuilder nest(syms);
      nest.store(target(0), position(rounds.symbol), nest.load(best, {zero()}, dtype));
      nest.store(target(1), position(rounds.symbol), nest.load(where, {zero()}, DType::i64));
      rounds.body.push_back({nest.take()});
    }
    {
      NestBuilder nest(syms);
      const Expr i = nest.axis("i", n, most);
      const NodeId here = nest.apply(Fn::eq, {nest.index(i), nest.load(where, {zero()}, DType::i64)});
      nest.store(taken, {i}, nest.apply(Fn::logical_or, {nest.load(taken, {i}, DType::boolean), here}));
      rounds.body.push_back({nest.take()});
    }
    body.push_back({std::move(rounds)});
  }
};

}  // namespace

std::vector<Statement> library_kernel(const Library& library, const itgraph::Program& it, tile::Program& out,
                                      const std::function<BufferId(itgraph::ValueId)>& memory) {
  sym::Pool& syms = *it.syms;
  const itgraph::Value& source = it.value(library.source);
  Rows rows{library, syms, out, memory(library.source)};
  rows.n = source.shape[static_cast<size_t>(library.axis)];
  rows.dtype = compute_type(source.dtype);
  for (itgraph::ValueId r : library.results) rows.targets.push_back(memory(r));
  std::vector<tile::For> loops;
  for (size_t a = 0; a < source.shape.size(); ++a) {
    if (static_cast<int>(a) == library.axis) {
      rows.at.push_back(syms.constant(0));
      continue;
    }
    const int64_t n = syms.bounds(source.shape[a]).hi;
    const Expr counter = syms.fresh("i", {0, std::max<int64_t>(n - 1, 0)});
    loops.push_back({counter, syms.constant(0), source.shape[a], 1, true, {}});
    rows.at.push_back(counter);
  }
  switch (library.what) {
    case Library::What::cumsum:
    case Library::What::cumprod:
    case Library::What::cummax: rows.scan(); break;
    case Library::What::argmax:
    case Library::What::argmin: {
      // The result has the row's axes, and perhaps an axis of 1.
      std::vector<Expr> at = rows.at;
      if (it.value(library.results[0]).shape.size() < at.size()) at.erase(at.begin() + library.axis);
      rows.arg(at);
      break;
    }
    case Library::What::topk: rows.topk(it.value(library.results[0]).shape[static_cast<size_t>(library.axis)]); break;
  }
  std::vector<Statement> body = std::move(rows.body);
  for (size_t i = loops.size(); i-- > 0;) {
    loops[i].body = std::move(body);
    body.clear();
    body.push_back({std::move(loops[i])});
  }
  return body;
}

}  // namespace cleave::schedule
