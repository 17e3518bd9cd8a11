// Certificates as a property: those of random graphs are accepted, and a graph that computes something else is refused
// at its step, whatever the step's rule.
//
// CLEAVE_GRAPHS, CLEAVE_MUTATIONS set how many (1000 and 5000 for a night), CLEAVE_SEED where they begin.
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "algebra/certificate.hpp"
#include "algebra/index_form.hpp"
#include "check/check_certificate.hpp"
#include "seal.hpp"
#include "support/random_graph.hpp"
#include "unit/algebra/subgraphs.hpp"

namespace cleave::check {
namespace {

using algebra::test::parsed;
using graph::Category;
using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Op;
using graph::ValueId;

uint64_t number(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

// Graphs whose derivations have the rules that the suite's have not.
const char* const kMore[] = {
    R"(graph lora {
  dim S in 1..64
  input X: f32[S, 5]
  input W: f32[5, 6]
  input A: f32[5, 3]
  input B: f32[3, 6]
  output Y = add(contract("s k, k n -> s n", X, W), contract("s r, r n -> s n", contract("s k, k r -> s r", X, A), B))
})",
    R"(graph attention {
  dim S in 1..64
  dim L in 1..64
  input Q: f32[S, 4]
  input K: f32[L, 4]
  input V: f32[L, 3]
  output O = sdpa(Q, K, V, causal="start")
})",
    R"(graph scaled_norm {
  dim S in 1..64
  input X: f32[S, 6]
  scalar c: f32
  input W: f32[6, 5]
  output Y = contract("s k, k n -> s n", rms_norm(mul(X, c), axes=[1], eps=0.25), W)
})",
    R"(graph gate_and_up {
  dim S in 1..64
  input X: f32[S, 6]
  const A: f32[6, 4] = normal(seed=1, mean=0.0, scale=0.5)
  const B: f32[6, 4] = normal(seed=2, mean=0.0, scale=0.5)
  output Y = mul(silu(contract("s k, k n -> s n", X, A)), contract("s k, k n -> s n", X, B))
})",
    R"(graph cross_entropy {
  dim S in 1..64
  dim V in 1..64
  input H: f32[S, 6]
  input E: f32[V, 6]
  input T: f32[S, V]
  output L = neg(sum(mul(T, log_softmax(contract("s k, v k -> s v", H, E), axis=1)), axes=[1]))
})",
    R"(graph masks {
  dim I in 1..64
  dim K in 1..64
  input A: f32[I, K]
  input B: f32[I, K]
  input M: bool[I, K]
  input W: f32[K, 5]
  E = exp(where(M, mul(A, B), -inf))
  Z = mul(cast(M, dtype=f32), square(add(A, B)))
  output Y = contract("i k, k n -> i n", div(E, add(1.0, sum(E, axes=[1], keepdims=true))), W)
  output Z = sum(Z, axes=[1])
  output G = amax(mul(add(A, B), exp(B)), axes=[0, 1])
})",
    R"(graph distances {
  dim I in 1..64
  dim J in 1..64
  input A: f32[I, 4]
  input B: f32[J, 4]
  d = sub(unsqueeze(A, axes=[1]), unsqueeze(B, axes=[0]))
  output D = sum(square(d), axes=[2])
  output R = rsqrt(add(sum(mul(neg(A), mul(A, 0.5)), axes=[1]), 40.0))
})",
    R"(graph pairs {
  dim S in 1..64
  input X: f32[S, 8]
  input W: f32[8, 6]
  H = contract("s c, c d -> s d", rms_norm(X, axes=[1], eps=0.25), W)
  output Y = contract("s d, t d -> s t", H, H)
})"};

// Another operator of the same kind.
Op other_than(Op op, Rng& rng) {
  static const std::vector<std::vector<Op>> kinds = {{Op::add, Op::sub, Op::mul, Op::div, Op::max, Op::min},
                                                     {Op::exp, Op::square, Op::neg, Op::abs, Op::tanh, Op::sigmoid,
                                                      Op::silu, Op::sqrt, Op::rsqrt, Op::reciprocal, Op::log},
                                                     {Op::lt, Op::le, Op::gt, Op::ge, Op::eq, Op::ne},
                                                     {Op::logical_and, Op::logical_or},
                                                     {Op::sum, Op::mean, Op::amax, Op::amin, Op::prod},
                                                     {Op::unscale, Op::mul, Op::quot0}};
  for (const auto& kind : kinds)
    if (std::find(kind.begin(), kind.end(), op) != kind.end()) return kind[rng.below(kind.size())];
  return op;
}

// The graph with one node that computes something else, perhaps; nullopt where the change does not fit.
std::optional<Graph> mutated(const Graph& g, Rng& rng) {
  std::vector<NodeId> nodes;
  for (NodeId id : g.node_ids())
    if (!g.node(id).operands.empty() || g.node(id).op == Op::literal) nodes.push_back(id);
  if (nodes.empty()) return std::nullopt;
  const NodeId target = nodes[rng.below(nodes.size())];
  const uint64_t way = rng.below(5), pick = rng.next();
  bool done = false;
  Rng own(pick);
  Graph out = graph::rewrite(
      g, [&](graph::Builder& b, NodeId id, std::span<const ValueId> mapped) -> std::optional<std::vector<ValueId>> {
        if (id != target) return std::nullopt;
        const Node& n = g.node(id);
        std::vector<ValueId> operands(mapped.begin(), mapped.end());
        graph::Attributes attributes = n.attributes;
        Op op = n.op;
        auto made = [&]() -> std::optional<std::vector<ValueId>> {
          auto r = b.add(op, operands, attributes);
          if (!r.ok() || r->size() != n.results.size()) return std::nullopt;
          for (size_t i = 0; i < r->size(); ++i)
            if (!(b.type((*r)[i]) == g.type(n.results[i]))) return std::nullopt;
          done = true;
          return *r;
        };
        if (op == Op::literal) {
          const double v = attributes.get<double>("value");
          const DType dtype = attributes.get<DType>("dtype");
          done = true;
          return std::vector<ValueId>{b.literal(is_real(dtype) && std::isfinite(v) ? v * 1.25 + 0.125 : v + 1, dtype)};
        }
        switch (way) {
          case 0: op = other_than(op, own); break;
          case 1:
            if (operands.size() > 1) std::swap(operands[operands.size() - 2], operands.back());
            break;
          case 2: {  // another value of the same type
            const size_t k = own.below(operands.size());
            std::vector<ValueId> same;
            for (uint32_t v = 0; v < b.graph().value_count(); ++v)
              if (ValueId(v) != operands[k] && b.type(ValueId(v)) == b.type(operands[k])) same.push_back(ValueId(v));
            if (same.empty()) return std::nullopt;
            operands[k] = same[own.below(same.size())];
            break;
          }
          case 3:
            if (attributes.has("axes")) {
              auto axes = attributes.get<std::vector<int64_t>>("axes");
              if (axes.size() != 1) return std::nullopt;
              axes[0] = axes[0] == 0 ? 1 : axes[0] - 1;
              graph::Attributes changed = attributes;
              changed.set("axes", axes);
              attributes = changed;
              break;
            }
            [[fallthrough]];
          default: {  // what it gives is changed
            const size_t k = own.below(n.results.size());
            auto r = made();
            if (!r || !is_real(b.type((*r)[k]).dtype)) return std::nullopt;
            const DType dtype = b.type((*r)[k]).dtype;
            (*r)[k] = own.below(2) ? b.make(Op::mul, {(*r)[k], b.literal(1.001, dtype)})
                                   : b.make(Op::add, {(*r)[k], b.literal(0.01, dtype)});
            return *r;
          }
        }
        return made();
      });
  if (!done || print(out) == print(g)) return std::nullopt;
  return out;
}

// Whether float64 tells the two apart on data of the test's own: by more than rounding, or as numbers from none.
bool differ(const Graph& a, const Graph& b, uint64_t seed) {
  for (int64_t first : {5, 7}) {
    std::map<std::string, int64_t> dims;
    int64_t next = first;
    for (sym::Expr d : a.dims()) {
      const auto range = a.syms().symbol_range(d);
      dims[a.syms().symbol_name(d)] = std::clamp(next++, range.lo, range.hi);
    }
    const auto x = graph::bind(a, dims), y = graph::bind(b, dims);
    if (!x.ok() || !y.ok()) return !y.ok();
    const auto inputs = algebra::test::draw(*x, seed + static_cast<uint64_t>(first));
    const auto want = oracle::evaluate(*x, inputs), got = oracle::evaluate(*y, inputs);
    if (!want.ok() || !got.ok()) return want.ok();
    for (size_t o = 0; o < want->size(); ++o) {
      double largest = 0;
      for (int64_t i = 0; i < (*want)[o].elements(); ++i)
        if (std::isfinite((*want)[o].at(i))) largest = std::max(largest, std::abs((*want)[o].at(i)));
      for (int64_t i = 0; i < (*want)[o].elements(); ++i) {
        const double w = (*want)[o].at(i), v = (*got)[o].at(i);
        if (std::isfinite(w) != std::isfinite(v)) return true;
        if (std::isfinite(w) && std::abs(w - v) > 1e-5 * largest) return true;
      }
    }
  }
  return false;
}

TEST(Mutation, AGraphThatComputesSomethingElseIsRefusedAtItsStepWhateverTheRule) {
  const uint64_t wanted = number("CLEAVE_MUTATIONS", 120);
  const bool all = wanted > 1000;  // the suite's larger graphs too
  std::vector<Graph> graphs;
  for (const auto& s : algebra::test::subgraphs())
    if (all || s.graph.dims().size() <= 4) graphs.push_back(s.graph);
  for (const char* text : kMore) graphs.push_back(parsed(text));
  // For every rule the certificates that have a step of it, and the step; one of every rule is enough of a graph.
  struct Place {
    size_t certificate, step;
  };
  std::vector<nlohmann::ordered_json> sound;
  std::vector<std::string> names;
  std::map<std::string, std::vector<Place>> places;
  for (const Graph& g : graphs)
    for (const bool split : {false, true}) {
      algebra::SearchOptions options;
      options.screen = false;
      if (const auto indices = algebra::splittable_indices(g); split) {
        if (indices.empty()) continue;
        options.split = indices[0];
      }
      const auto r = algebra::search(g, options);
      ASSERT_TRUE(r.ok());
      std::set<std::string> seen;
      for (size_t k = 1; k < r->graphs.size(); ++k) {
        bool fresh = k == 1;
        for (const auto& d : r->graphs[k].derivation) fresh = seen.insert(d.rule).second || fresh;
        if (!fresh) continue;
        const auto text = algebra::certificate(g, k, options);
        ASSERT_TRUE(text.ok());
        const auto report = check_certificate(*text, {.draws = 1});
        names.push_back(fmt::format("{} graph {} {}", g.name(), k, options.split));
        EXPECT_TRUE(report.ok()) << names.back() << " " << (report.ok() ? "" : render(report.errors(), nullptr));
        const auto& j = sound.emplace_back(nlohmann::ordered_json::parse(*text));
        for (size_t n = 0; n < j["steps"].size(); ++n)
          if (j["steps"][n].contains("graph")) places[j["steps"][n]["rule"]].push_back({sound.size() - 1, n});
        places["stabilise"].push_back({sound.size() - 1, j["steps"].size()});
      }
    }
  Rng rng(number("CLEAVE_SEED", 1));
  std::map<std::string, size_t> rules;
  size_t refused = 0, equal = 0;
  for (uint64_t tries = 0; refused < wanted && tries < 40 * wanted; ++tries) {
    const auto& [rule, list] = *std::next(places.begin(), static_cast<long>(tries % places.size()));
    const auto [certificate, at] = list[rng.below(list.size())];
    auto j = sound[certificate];
    auto& place = at == j["steps"].size() ? j["result"] : j["steps"][at]["graph"];
    const Graph right = graph::parse({"right", place.get<std::string>()}).value();
    const auto wrong = mutated(right, rng);
    if (!wrong) continue;
    if (!differ(right, *wrong, rng.next())) {
      ++equal;
      continue;
    }
    place = print(*wrong);
    const auto report = check_certificate(sealed(j), {.draws = 2});
    ASSERT_FALSE(report.ok()) << names[certificate] << " step " << at + 1 << " (" << rule << ")\n"
                              << print(right) << "became\n"
                              << print(*wrong);
    EXPECT_THAT(report.errors()[0].message(),
                ::testing::HasSubstr(fmt::format("step {} of the certificate (`{}`)", at + 1, rule)))
        << names[certificate];
    ++rules[rule];
    ++refused;
  }
  fmt::print("{} certificates, {} changed graphs refused at their step; {} compute the same and were discarded\n",
             sound.size(), refused, equal);
  for (const auto& [rule, list] : places) {
    fmt::print("{:6} {}\n", rules[rule], rule);
    EXPECT_GT(rules[rule], 0u) << "no step was changed whose rule is " << rule;
  }
  EXPECT_GE(places.size(), 14u);
  EXPECT_GE(refused, wanted);
}

TEST(Mutation, CertificatesOfRandomGraphsAreAccepted) {
  using namespace cleave::testing;
  const uint64_t graphs = number("CLEAVE_GRAPHS", 150), begin = number("CLEAVE_SEED", 0);
  const auto ops = graph::all_ops();
  size_t accepted = 0, faults = 0;
  const auto fault = [&](const Graph& g, uint64_t seed) -> std::string {
    const Graph x = graph::expand(g);
    std::vector<std::string> splits{""};  // whole, and with an index in parts
    if (const auto names = algebra::splittable_indices(x); !names.empty()) splits.push_back(names[seed % names.size()]);
    for (const std::string& split : splits) {
      const auto texts = algebra::certificates(x, {.keep = 4, .split = split});
      if (!texts.ok()) return render(texts.errors(), nullptr);
      for (size_t k = split.empty() ? 0 : 1; k < texts->size(); ++k) {
        const auto report = check_certificate((*texts)[k], {.draws = 2});
        if (!report.ok()) return fmt::format("graph {} {}: {}", k, split, render(report.errors(), nullptr));
        ++accepted;
      }
    }
    return "";
  };
  for (uint64_t seed = begin; seed < begin + graphs && faults < 5; ++seed) {
    Choices choices(seed);
    RandomGraphOptions options;
    options.sixteen_bit = seed % 4 == 0;
    options.dialect = false;
    options.max_operators = 4 + static_cast<int>(seed % 9);
    options.max_elements = 256;
    options.must_have = ops[seed % ops.size()].op;
    const Graph g = random_graph(choices, options);
    if (fault(g, seed).empty()) continue;
    ++faults;
    const Graph small = shrink(g, [&](const Graph& s) { return !fault(s, seed).empty(); });
    ADD_FAILURE() << "seed " << seed << "\n" << print(small) << fault(small, seed);
  }
  fmt::print("{} certificates accepted\n", accepted);
  EXPECT_GT(accepted, graphs);
}

}  // namespace
}  // namespace cleave::check
