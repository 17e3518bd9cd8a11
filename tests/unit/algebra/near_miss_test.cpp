// Pairs of graphs that differ in one operator, index, constant, predicate or operand. An independent judge, float64 at
// two draws of distinct extents from 5 to 11, says which of them differ; none of those may be called equal. In every
// third pair reductions over an index may go part by part; every fourth is searched with an index split.
//
// CLEAVE_PAIRS sets the number of pairs (100000 for a night), CLEAVE_SEED where they begin; the default takes seconds.
#include <cstdlib>

#include "algebra/index_form.hpp"
#include "algebra/values.hpp"
#include "support.hpp"

namespace cleave::algebra {
namespace {

using graph::Graph;

// A value is a tensor over a subset of i, j, k, with an axis of extent 1 for each index that it lacks.
struct Step {
  int op = 0, a = 0, b = 0, axis = 0, constant = 0, predicate = 0, way = 0;
  bool operator==(const Step&) const = default;
};
constexpr int kLeaves = 4;
const char* const kBinary[] = {"add", "sub", "mul", "div", "max"};
const char* const kUnary[] = {"exp", "square", "tanh", "neg"};
const char* const kReduce[] = {"sum", "amax", "mean"};
const char* const kPredicates[] = {"le(Ii, Ik)", "lt(Ii, Ik)", "le(add(Ii, 1), Ik)", "lt(Ij, Ik)", "le(Ii, Ij)",
                                   "lt(A, B)",   "lt(B, A)"};
const char* const kConstants[] = {"0.5", "0.25", "2.0", "0.125", "1.0"};
constexpr int kBinaries = 5, kUnaries = 4, kReduces = 3;
constexpr int kContract = kBinaries + kUnaries + kReduces, kMaskExp = kContract + 1, kMaskZero = kContract + 2,
              kTimes = kContract + 3, kParts = kContract + 4, kOps = kParts + 1;
// Reductions over k in two steps: what each step does, and which of the two axes goes first.
constexpr int kWays = 8;
const char* const kSteps[kWays][3] = {{"sum", "sum", "3"},   {"sum", "sum", "2"},  {"amax", "amax", "3"},
                                      {"amax", "amax", "2"}, {"sum", "mean", "3"}, {"mean", "sum", "3"},
                                      {"amax", "sum", "3"},  {"sum", "amax", "3"}};

bool special(const Step& s) {  // max, a mask or a split reduction
  return s.op == 4 || s.op == kBinaries + kUnaries + 1 || s.op == kMaskExp || s.op == kMaskZero || s.op == kParts;
}

std::string name(int v, const std::string& prefix) {
  return v < kLeaves ? std::string(1, "ABCD"[v]) : fmt::format("{}{}", prefix, v);
}

std::string text(const std::vector<Step>& steps, const std::string& prefix) {
  std::string out;
  for (size_t n = 0; n < steps.size(); ++n) {
    const Step& s = steps[n];
    const std::string a = name(s.a, prefix), b = name(s.b, prefix);
    std::string value;
    if (s.op < kBinaries)
      value = fmt::format("{}({}, {})", kBinary[s.op], a, b);
    else if (s.op < kBinaries + kUnaries)
      value = fmt::format("{}({})", kUnary[s.op - kBinaries], a);
    else if (s.op < kContract)
      value = fmt::format("{}({}, axes=[{}], keepdims=true)", kReduce[s.op - kBinaries - kUnaries], a, s.axis);
    else if (s.op == kContract)
      value = fmt::format("unsqueeze(contract(\"i j k, i j k -> {}\", {}, {}), axes=[{}])",
                          s.axis == 0   ? "j k"
                          : s.axis == 1 ? "i k"
                                        : "i j",
                          a, b, s.axis);
    else if (s.op == kMaskExp)
      value = fmt::format("exp(where({}, {}, -inf))", kPredicates[s.predicate], a);
    else if (s.op == kMaskZero)
      value = fmt::format("where({}, {}, 0.0)", kPredicates[s.predicate], a);
    else if (s.op == kTimes)
      value = fmt::format("mul({}, {})", a, kConstants[s.constant]);
    else
      value = fmt::format(
          "{}({}(reshape(broadcast({}, shape=[I, J, P*Q]), shape=[I, J, P, Q]), axes=[{}]), axes=[2], keepdims=true)",
          kSteps[s.way][1], kSteps[s.way][0], a, kSteps[s.way][2]);
    out += fmt::format("  {} = {}\n", name(static_cast<int>(n) + kLeaves, prefix), value);
  }
  return out;
}

std::string pair_text(const std::vector<Step>& x, const std::vector<Step>& y, bool parts) {
  const std::string k = parts ? "P*Q" : "K";
  return fmt::format(
             "graph g {{\n  dim I in 1..64\n  dim J in 1..64\n{}  input A: f32[I, 1, {}]\n  input B: f32[1, J, {}]\n"
             "  input C: f32[I, J, 1]\n  input D: f32[I, 1, 1]\n  Ii = iota(shape=[I, 1, 1], axis=0, dtype=i64)\n"
             "  Ij = iota(shape=[1, J, 1], axis=1, dtype=i64)\n  Ik = iota(shape=[1, 1, {}], axis=2, dtype=i64)\n",
             parts ? "  dim P in 1..64\n  dim Q in 1..64\n" : "  dim K in 1..64\n", k, k, k) +
         text(x, "x") + text(y, "y") +
         fmt::format(
             "  output left = broadcast({}, shape=[I, J, {}])\n  output right = broadcast({}, shape=[I, J, {}])\n}}",
             name(static_cast<int>(x.size()) + kLeaves - 1, "x"), k,
             name(static_cast<int>(y.size()) + kLeaves - 1, "y"), k);
}

std::vector<Step> random_steps(Rng& rng, bool parts) {
  std::vector<Step> out;
  const int n = 3 + static_cast<int>(rng.below(4));
  for (int k = 0; k < n; ++k) {
    Step s;
    s.op = parts && rng.below(3) == 0 ? kParts : static_cast<int>(rng.below(kOps - 1));
    // The last steps use the newest values, so that most of the steps matter.
    const int values = kLeaves + k;
    s.a = k > 0 && rng.below(4) != 0 ? values - 1 : static_cast<int>(rng.below(static_cast<uint64_t>(values)));
    s.b = static_cast<int>(rng.below(static_cast<uint64_t>(values)));
    s.axis = static_cast<int>(rng.below(3));
    s.constant = static_cast<int>(rng.below(5));
    s.predicate = static_cast<int>(rng.below(7));
    s.way = static_cast<int>(rng.below(kWays));
    out.push_back(s);
  }
  return out;
}

std::vector<Step> mutated(std::vector<Step> steps, Rng& rng) {
  const size_t at = rng.below(steps.size());
  Step& s = steps[at];
  const auto values = static_cast<uint64_t>(kLeaves + static_cast<int>(at));
  const int op = s.op;
  switch (rng.below(4)) {
    case 0:  // an operator of the same kind
      if (op < kBinaries)
        s.op = (op + 1 + static_cast<int>(rng.below(kBinaries - 1))) % kBinaries;
      else if (op < kBinaries + kUnaries)
        s.op = kBinaries + (op - kBinaries + 1 + static_cast<int>(rng.below(kUnaries - 1))) % kUnaries;
      else if (op < kContract)
        s.op = kBinaries + kUnaries +
               (op - kBinaries - kUnaries + 1 + static_cast<int>(rng.below(kReduces - 1))) % kReduces;
      else if (op == kMaskExp || op == kMaskZero)
        s.predicate = (s.predicate + 1 + static_cast<int>(rng.below(6))) % 7;
      else if (op == kParts)
        s.way = (s.way + 1 + static_cast<int>(rng.below(kWays - 1))) % kWays;
      else
        s.constant = (s.constant + 1 + static_cast<int>(rng.below(4))) % 5;
      break;
    case 1: s.axis = (s.axis + 1 + static_cast<int>(rng.below(2))) % 3; break;
    case 2: s.a = static_cast<int>(rng.below(values)); break;
    default: s.b = static_cast<int>(rng.below(values)); break;
  }
  return steps;
}

enum class Judgement { equal, different, no_say };

Judgement judge(const Graph& g, uint64_t seed) {
  Rng rng(seed);
  bool said = false;
  for (int draw = 0; draw < 2; ++draw) {
    std::vector<int64_t> extents{5, 6, 7, 8, 9, 10, 11};
    std::map<std::string, int64_t> dims;
    for (sym::Expr e : g.dims()) {
      const std::string d = g.syms().symbol_name(e);
      const size_t k = rng.below(extents.size());
      dims[d] = extents[k];
      extents.erase(extents.begin() + static_cast<long>(k));
    }
    const Graph b = test::bound(g, dims);
    const auto out = test::run(b, test::draw(b, rng.next()));
    double largest = 0;
    for (int64_t i = 0; i < out[0].elements(); ++i)
      if (std::isfinite(out[0].at(i))) largest = std::max(largest, std::abs(out[0].at(i)));
    for (int64_t i = 0; i < out[0].elements(); ++i) {
      const double x = out[0].at(i), y = out[1].at(i);
      if (std::isnan(x) || std::isnan(y) || (std::isinf(x) && std::isinf(y))) continue;
      said = true;
      if (!(std::abs(x - y) <= 1e-7 * std::max(std::abs(x), std::abs(y)) + 1e-12 * largest))
        return Judgement::different;
    }
  }
  return said ? Judgement::equal : Judgement::no_say;
}

bool called_equal(const Graph& g, bool split) {
  Program p = read(g);
  std::optional<std::pair<uint32_t, uint32_t>> labels;
  if (split)
    for (const Splittable& s : splittable(p))
      if (s.why_not.empty()) {
        p = read(g, {48, true, s.axis_class});
        labels = {p.split->parts, p.split->part};
        break;
      }
  std::vector<TermId> terms;
  for (const auto& s : p.steps)
    for (const Root& r : s.roots) terms.push_back(r.term);
  if (terms.size() < 2) return true;  // one value to begin with
  Normaliser normal(*p.form);
  Values values(normal, 2000, labels);
  std::vector<ClassId> roots;
  try {
    for (TermId t : terms) roots.push_back(values.add(t));
    values.saturate();
    values.test(1, 2);
  } catch (const TooLarge&) {
    return false;  // left alone
  }
  return !values.disputed() && values.find(roots[0]) == values.find(roots[1]);
}

TEST(NearMiss, NothingThatDiffersIsCalledEqual) {
  const char* wanted = std::getenv("CLEAVE_PAIRS");
  const size_t pairs = wanted ? std::strtoull(wanted, nullptr, 10) : 2000;
  const char* from = std::getenv("CLEAVE_SEED");
  const uint64_t begin = from ? std::strtoull(from, nullptr, 10) : 1;
  size_t different = 0, equal = 0, seen = 0, no_say = 0, with_special = 0, with_split = 0, faults = 0;
  for (uint64_t seed = begin; different < pairs && faults < 5 && seed < begin + 50 * pairs; ++seed) {
    Rng rng(mix(0x6e656172, seed));
    const bool parts = seed % 3 == 0;
    const auto x = random_steps(rng, parts), y = mutated(x, rng);
    if (x == y) continue;
    const std::string source = pair_text(x, y, parts);
    const SourceText text{"pair.graph", source};
    auto g = graph::parse(text);
    if (!g.ok()) {
      ADD_FAILURE() << render(g.errors(), &text) << source;
      break;
    }
    const Judgement j = judge(*g, seed);
    if (j == Judgement::no_say) {
      ++no_say;
      continue;
    }
    const bool called = called_equal(*g, seed % 4 == 0);
    if (j == Judgement::equal) {
      ++equal;
      seen += called;
      continue;
    }
    ++different;
    with_special += std::any_of(x.begin(), x.end(), special);
    with_split += parts;
    if (!called) continue;
    ++faults;
    ADD_FAILURE() << "seed " << seed << "\n" << source;
  }
  fmt::print(
      "{} pairs that differ ({} with max, masks or reductions in two steps, {} over an index in parts); {} equal ones "
      "discarded, {} of which are called equal; {} say nothing\n",
      different, with_special, with_split, equal, seen, no_say);
  EXPECT_GE(different, pairs);
  EXPECT_GE(10 * with_special, 3 * different);
}

}  // namespace
}  // namespace cleave::algebra
