#include "tune/reference.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "algebra/stabilise.hpp"
#include "base/number.hpp"
#include "base/rng.hpp"
#include "graph/expand.hpp"

namespace cleave::tune {

using graph::Graph;
using graph::Op;
using graph::ValueId;

namespace {

// Of the largest magnitude: what elements without a bound may be off. Storage may be coarser than three digits.
double looseness(DType dtype) { return std::max(1e-3, is_real(dtype) ? 2 * unit_roundoff(dtype) : 0.0); }

int64_t volume(const Box& b) {
  int64_t n = 1;
  for (size_t i = 0; i < b.lo.size(); ++i) n *= b.hi[i] - b.lo[i];
  return n;
}

// Calls f(offset of the row's first element in the array) for each row of the box; a row is along the last axis.
template <class F>
void each_row(const std::vector<int64_t>& extents, const Box& box, F&& f) {
  const size_t rank = extents.size();
  if (rank == 0) return f(0);
  if (volume(box) == 0) return;
  const std::vector<int64_t> strides = oracle::dense_strides(extents);
  std::vector<int64_t> at = box.lo;
  for (;;) {
    int64_t offset = 0;
    for (size_t i = 0; i < rank; ++i) offset += at[i] * strides[i];
    f(offset);
    size_t axis = rank - 1;
    while (axis > 0) {
      if (++at[axis - 1] < box.hi[axis - 1]) break;
      at[axis - 1] = box.lo[axis - 1];
      --axis;
    }
    if (axis == 0) return;
  }
}

oracle::Tensor crop_memory(DType dtype, const std::vector<int64_t>& extents, const void* data, const Box& box) {
  std::vector<int64_t> shape;
  for (size_t i = 0; i < box.lo.size(); ++i) shape.push_back(box.hi[i] - box.lo[i]);
  oracle::Tensor out = oracle::zeros(dtype, shape);
  const int64_t width = byte_size(dtype), row = shape.empty() ? 1 : shape.back();
  size_t to = 0;
  each_row(extents, box, [&](int64_t offset) {
    const auto* at = static_cast<const std::byte*>(data) + offset * width;
    for (int64_t i = 0; i < row; ++i, at += width, ++to) {
      if (out.real())
        out.reals[to] = load_real(dtype, at);
      else
        out.ints[to] = load_integer(dtype, at);
    }
  });
  return out;
}

std::vector<oracle::Tensor> arguments_of(const Problem& p, const Restricted& r) {
  std::vector<oracle::Tensor> out;
  for (size_t i = 0; i < r.of.size(); ++i) {
    const graph::Node& n = p.graph.producer(r.of[i]);
    const auto leaves = p.graph.leaves(n.op);
    const auto index = static_cast<size_t>(std::find(leaves.begin(), leaves.end(), r.of[i]) - leaves.begin());
    if (n.op == Op::scalar)
      out.push_back(oracle::scalar_tensor(p.graph.type(r.of[i]).dtype, p.scalars[index]));
    else
      out.push_back(crop(n.op == Op::input ? p.inputs[index] : p.constants[index], r.boxes[i]));
  }
  return out;
}

// What the problem's integers are.
Positions positions_of(const Problem& p) {
  return [&p](graph::ValueId v, const Box& box) -> std::optional<std::pair<int64_t, int64_t>> {
    if (!is_integer(p.graph.type(v).dtype)) return std::nullopt;
    const Restricted r = restrict_value(p.graph, v, box, positions_of(p));
    const auto values = oracle::evaluate(r.graph, arguments_of(p, r));
    if (!values.ok() || values->at(0).ints.empty()) return std::nullopt;
    const auto [least, largest] = std::minmax_element(values->at(0).ints.begin(), values->at(0).ints.end());
    return std::pair{*least, *largest};
  };
}

// The restricted graph's leaves in the order in which `of` names them: rewrite keeps the order of declaration.
Result<Piece> evaluate_piece(const Problem& p, size_t output, const Box& box) {
  const Restricted r = restrict_to(p.graph, output, box, positions_of(p));
  const std::vector<oracle::Tensor> arguments = arguments_of(p, r);
  TRY_ASSIGN(std::vector<oracle::Bounded> values, oracle::evaluate_with_bounds(r.graph, arguments));
  Piece piece{output, box, std::move(values.at(0)), {}};
  for (graph::NodeId n : r.graph.node_ids())
    piece.sums_products |= graph::info(r.graph.node(n).op).category == graph::Category::contract;
  const std::vector<double>& bound = piece.expected.bound;
  if (std::any_of(bound.begin(), bound.end(), [](double b) { return !std::isfinite(b); })) {
    TRY_ASSIGN(std::vector<oracle::Tensor> stored, oracle::evaluate(r.graph, arguments, {.round_to_storage = true}));
    piece.stored = std::move(stored.at(0));
  }
  // (-inf is a score as others are, and what a mask is made of.)
  const auto holds = [](const oracle::Tensor& t, bool infinite) {
    return t.real() && std::any_of(t.reals.begin(), t.reals.end(), [&](double v) {
             return std::isnan(v) || (infinite && v == std::numeric_limits<double>::infinity());
           });
  };
  if (holds(piece.expected.value, false) ||
      std::any_of(arguments.begin(), arguments.end(), [&](const oracle::Tensor& t) { return holds(t, true); })) {
    TRY_ASSIGN(std::vector<oracle::Bounded> stable,
               oracle::evaluate_with_bounds(algebra::stabilise(graph::expand_to_primitives(r.graph)), arguments));
    piece.stable = std::move(stable.at(0));
  }
  return piece;
}

// Boxes of about `rows` rows: runs of `run` rows along the last axis but one, at seeded places, with the first and
// last.
std::vector<Box> choose_rows(const std::vector<int64_t>& extents, int64_t rows, int64_t run, Rng& rng) {
  Box whole{std::vector<int64_t>(extents.size(), 0), extents};
  const size_t rank = extents.size();
  if (rank < 2) {
    // One long row: pieces of it.
    if (rank == 0 || extents[0] <= rows) return {whole};
    std::vector<Box> out;
    for (int64_t i = 0; i < rows / run; ++i) {
      const int64_t last = extents[0] - run;
      const int64_t lo = i == 0 ? 0 : i == 1 ? last : static_cast<int64_t>(rng.below(static_cast<uint64_t>(last) + 1));
      out.push_back({{lo}, {lo + run}});
    }
    return out;
  }
  int64_t all = 1;
  for (size_t i = 0; i + 1 < rank; ++i) all *= extents[i];
  if (all <= rows || extents[rank - 1] == 0) return {whole};
  run = std::min(run, extents[rank - 2]);
  std::vector<Box> out;
  std::set<std::vector<int64_t>> seen;
  for (int64_t i = 0; i < std::max<int64_t>(2, rows / run); ++i) {
    Box b = whole;
    for (size_t a = 0; a + 1 < rank; ++a) {
      const int64_t size = a + 2 == rank ? run : 1;
      const int64_t last = extents[a] - size;
      b.lo[a] = i == 0 ? 0 : i == 1 ? last : static_cast<int64_t>(rng.below(static_cast<uint64_t>(last) + 1));
      b.hi[a] = b.lo[a] + size;
    }
    if (seen.insert(b.lo).second) out.push_back(std::move(b));
  }
  return out;
}

// An element as memory holds it: infinite where it leaves the range of its type.
double stored(const oracle::Tensor& t, int64_t i) { return t.real() ? round_to(t.dtype, t.at(i)) : t.at(i); }

// Largest finite magnitude.
double scale_of(const oracle::Tensor& t) {
  double most = 0;
  for (int64_t i = 0; i < t.elements(); ++i)
    if (std::isfinite(stored(t, i))) most = std::max(most, std::fabs(t.at(i)));
  return most;
}

std::vector<double> scales(const Reference& reference, size_t outputs) {
  std::vector<double> scale(outputs, 0);
  for (const Piece& p : reference.pieces) scale[p.output] = std::max(scale[p.output], scale_of(p.expected.value));
  return scale;
}

// The graph as given, each value rounded to its type, does not come to the element's value either, because something
// on the way leaves the range of its type: nothing can be asked of the element then.
bool overflows_on_the_way(const Piece& piece, size_t i, double loose) {
  if (!piece.stored || !piece.stored->real()) return false;
  const double stored = piece.stored->reals[i], exact = round_to(piece.stored->dtype, piece.expected.value.reals[i]);
  if (stored == exact || std::isnan(exact)) return false;
  return !std::isfinite(stored) || std::isinf(exact) || std::fabs(stored - exact) > loose;
}

// What most elements without a bound are off when the graph as given is stored value by value.
double amplified(const Piece& piece) {
  if (!piece.stored || !piece.stored->real()) return 0;
  std::vector<double> off;
  for (size_t i = 0; i < piece.expected.bound.size(); ++i) {
    const double e = std::fabs(piece.stored->reals[i] - piece.expected.value.reals[i]);
    if (!std::isfinite(piece.expected.bound[i]) && std::isfinite(e)) off.push_back(e);
  }
  if (off.empty()) return 0;
  const auto most = off.begin() + static_cast<std::ptrdiff_t>(off.size() * 9 / 10);
  std::nth_element(off.begin(), most, off.end());
  return *most;
}
// What elements without a bound may be off, of an output whose largest magnitude is `unit`: three digits, or several
// times what storing value by value costs (twelve layers amplify what the first one rounds); at most a twentieth.
double slack(const Piece& piece, double unit) {
  return std::max(looseness(piece.expected.value.dtype) * unit, std::min(8 * amplified(piece), unit / 20));
}

}  // namespace

oracle::Tensor crop(const Array& array, const Box& box) {
  return crop_memory(array.dtype, array.extents, array.data.data(), box);
}

// where(a comparison of indices, scores, -inf), either way round.
bool masks_by_index(const Graph& g) {
  std::vector<bool> of_indices(g.value_count());
  for (graph::NodeId id : g.node_ids()) {
    const graph::Node& n = g.node(id);
    const graph::Category c = graph::info(n.op).category;
    const bool made = n.op == Op::iota || n.op == Op::literal || n.op == Op::extent ||
                      (c != graph::Category::leaf && std::all_of(n.operands.begin(), n.operands.end(),
                                                                 [&](ValueId v) { return of_indices[v.index]; }));
    for (ValueId r : n.results) of_indices[r.index] = made;
    if (n.op != Op::where || made || !of_indices[n.operands[0].index]) continue;
    for (size_t i : {1, 2}) {
      graph::NodeId branch = g.value(n.operands[i]).node;
      while (graph::info(g.node(branch).op).category == graph::Category::view ||
             graph::info(g.node(branch).op).category == graph::Category::cast)
        branch = g.value(g.node(branch).operands[0]).node;
      const graph::Node& b = g.node(branch);
      if (b.op == Op::literal && b.attributes.get<double>("value") == -INFINITY) return true;
    }
  }
  return false;
}

Result<Reference> make_reference(const Problem& problem, const ReferenceOptions& options) {
  Reference out;
  const Graph& g = problem.graph;
  out.complete = evaluation_steps(g) <= options.complete_steps;
  out.masks_by_index = masks_by_index(g);
  Rng rng(options.seed);
  for (size_t o = 0; o < g.outputs().size(); ++o) {
    const std::vector<int64_t> extents = g.extents(g.outputs()[o].value);
    std::vector<Box> boxes{{std::vector<int64_t>(extents.size(), 0), extents}};
    if (!out.complete) {
      // Short runs spread better; long ones share the work that all rows of a box need. The shortest run whose work is
      // not far above the best is taken.
      double best = std::numeric_limits<double>::infinity();
      std::vector<std::pair<double, std::vector<Box>>> ways;
      for (int64_t run : {4, 16, 64}) {
        std::vector<Box> way = choose_rows(extents, options.rows, run, rng);
        double steps = 0;
        for (const Box& b : way) steps += evaluation_steps(restrict_to(g, o, b, positions_of(problem)).graph);
        best = std::min(best, steps);
        ways.emplace_back(steps, std::move(way));
      }
      for (auto& [steps, way] : ways) {
        if (steps > 3 * best && steps > options.complete_steps) continue;
        const double allowed = options.max_steps / static_cast<double>(g.outputs().size());
        const auto keep =
            static_cast<size_t>(std::max(1.0, std::min(1.0, allowed / steps) * static_cast<double>(way.size())));
        way.resize(std::min(keep, way.size()));
        boxes = std::move(way);
        break;
      }
    }
    for (const Box& b : boxes) {
      TRY_ASSIGN(Piece piece, evaluate_piece(problem, o, b));
      out.elements += piece.expected.value.elements();
      out.pieces.push_back(std::move(piece));
    }
  }
  return out;
}

Results::Results(const Graph& graph) {
  for (const graph::Output& o : graph.outputs()) {
    One one{graph.type(o.value), graph.extents(o.value), 0, {}};
    one.bytes = oracle::product(one.extents) * byte_size(one.type.dtype);
    one.memory = runtime::Buffer(one.bytes + 2 * kGuard);
    arrays_.push_back(std::move(one));
  }
  poison();
}

void Results::poison() {
  for (One& one : arrays_) {
    std::memset(one.memory.data(), 0xa5, static_cast<size_t>(one.memory.size()));
    std::memset(one.memory.bytes() + kGuard, 0xff, static_cast<size_t>(one.bytes));
  }
}

std::vector<void*> Results::addresses() {
  std::vector<void*> out;
  for (One& one : arrays_) out.push_back(one.memory.bytes() + kGuard);
  return out;
}

bool Results::guards_intact() const {
  for (const One& one : arrays_)
    for (int64_t i = 0; i < kGuard; ++i)
      if (one.memory.bytes()[i] != 0xa5 || one.memory.bytes()[kGuard + one.bytes + i] != 0xa5) return false;
  return true;
}

oracle::Tensor Results::tensor(size_t output, const Box& box) const {
  return crop_memory(arrays_[output].type.dtype, arrays_[output].extents, data(output), box);
}

oracle::Tensor Results::tensor(size_t output) const {
  return tensor(output, {std::vector<int64_t>(arrays_[output].extents.size(), 0), arrays_[output].extents});
}

Verdict judge(const Reference& reference, const Results& results, const Verdict* unfused, const Tolerance& tolerance) {
  Verdict out;
  const std::vector<double> scale = scales(reference, results.size());
  for (size_t p = 0; p < reference.pieces.size(); ++p) {
    const Piece& piece = reference.pieces[p];
    const oracle::Tensor got = results.tensor(piece.output, piece.box);
    oracle::Tensor expected = piece.expected.value;
    std::vector<double> allowed = piece.expected.bound, errors(allowed.size());
    if (expected.real() && got.elements() == expected.elements())
      for (size_t i = 0; i < expected.reals.size(); ++i) {
        double& e = expected.reals[i];
        const double g = got.reals[i];
        if (std::isnan(e) == std::isnan(g)) continue;
        // Infinities of both signs meet in one order of the operations and not in another (docs/algebra.md). A row of
        // scores with an infinity is NaN as a whole in the stable form (docs/stabilised.md).
        const bool row = piece.stable && std::isnan(piece.stable->value.reals[i]);
        if (std::isnan(g) ? row || (std::isinf(e) && piece.sums_products) : std::isinf(g)) {
          e = g;
        } else if (std::isnan(e) && piece.stable && std::isfinite(piece.stable->value.reals[i])) {
          e = piece.stable->value.reals[i];
          allowed[i] = piece.stable->bound[i];
        } else if (std::isnan(e) && reference.masks_by_index) {
          e = g;
          ++out.left_out;
        }
      }
    const double unit = scale[piece.output] > 0 ? scale[piece.output] : 1;
    const double loose = slack(piece, unit);
    for (size_t i = 0; i < allowed.size(); ++i) {
      const double e = expected.at(static_cast<int64_t>(i)), g = got.at(static_cast<int64_t>(i));
      if (std::isfinite(allowed[i])) out.bound = std::max(out.bound, allowed[i] / unit);
      if (std::isfinite(e)) allowed[i] = std::max(allowed[i], tolerance.absolute + tolerance.relative * std::fabs(e));
      errors[i] = e == g || (std::isnan(e) && std::isnan(g)) ? 0 : std::fabs(g - e);
      if (unfused && std::isfinite(unfused->errors[p][i])) allowed[i] = std::max(allowed[i], 2 * unfused->errors[p][i]);
      // (An error says nothing beside a value that memory cannot hold.)
      if (std::isfinite(errors[i]) && std::isfinite(stored(expected, static_cast<int64_t>(i)))) {
        out.max_abs = std::max(out.max_abs, errors[i]);
        out.max_rel = std::max(out.max_rel, errors[i] / unit);
        if (allowed[i] > 0) out.worst = std::max(out.worst, errors[i] / allowed[i]);
      }
    }
    int64_t unknown = 0, astray = 0;
    for (size_t i = 0; i < allowed.size(); ++i) {
      if (std::isfinite(allowed[i])) continue;
      ++unknown;
      // A value that memory cannot hold is stored as an infinity or, as terms of a sum overflow with either sign, as
      // NaN.
      const double e = stored(expected, static_cast<int64_t>(i));
      const double g = got.at(static_cast<int64_t>(i));
      const bool overflow =
          std::isinf(e) && (e == g || (std::isnan(g) && std::isfinite(expected.at(static_cast<int64_t>(i)))));
      if (!(errors[i] <= loose) && !overflow && !overflows_on_the_way(piece, i, loose)) {
        if (++astray == 1 && out.text.empty())
          out.text = fmt::format("element {} is {:.6g}, {:.6g} is expected", i, shown(got.at(static_cast<int64_t>(i))),
                                 shown(expected.at(static_cast<int64_t>(i))));
      }
    }
    out.unbounded += unknown;
    if (astray > unknown / 50 + 2) {
      out.ok = false;
      if (const double own = amplified(piece); own > unit / 160)
        out.text += fmt::format(
            "; storing each value of the graph as given is off by {:.1g} of the largest magnitude too: on random data "
            "it "
            "amplifies rounding too much to be judged (scale its weights, as trained ones are)",
            shown(own / unit));
    }
    const oracle::Difference d = oracle::compare(got, expected, allowed);
    out.elements += expected.elements();
    if (!d.ok()) {
      if (out.ok) out.text = d.text.empty() ? "dtype or shape differ" : d.text;
      out.ok = false;
    }
    out.errors.push_back(std::move(errors));
  }
  return out;
}

std::string disagreement(const Reference& reference, const Results& results, const Results& unfused,
                         const Tolerance& tolerance) {
  for (size_t o = 0; o < results.size(); ++o) {
    // Bounds of the rows that are known hold for the others up to their spread.
    const oracle::Tensor got = results.tensor(o), expected = unfused.tensor(o);
    const double scale = scale_of(expected);
    double bound = 0, loose = looseness(expected.dtype) * scale;
    int64_t unknown = 0;
    for (const Piece& p : reference.pieces) {
      if (p.output != o) continue;
      loose = std::max(loose, slack(p, scale));
      for (double b : p.expected.bound) {
        if (std::isfinite(b))
          bound = std::max(bound, b);
        else
          ++unknown;
      }
    }
    if (unknown > 0) bound = std::max(bound, loose / 4);
    const oracle::Difference d = oracle::compare(got, expected, tolerance.relative, 4 * bound + tolerance.absolute);
    const int64_t excused = unknown > 0 ? got.elements() / 50 + 2 : 0;
    if (!d.same_kind || d.mismatches > excused) return "differs from the unfused schedule: " + d.text;
  }
  return "";
}

}  // namespace cleave::tune
