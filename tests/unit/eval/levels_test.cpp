// The same five programs, written by hand at every level (tests/golden/{graph,stabilised,itgraph,tile}): their texts
// are canonical, and the interpreters of all levels agree on random data.
//
// With CLEAVE_UPDATE_GOLDEN set the files are rewritten in canonical form; their leading comments stay.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "base/rng.hpp"
#include "eval/graph_eval.hpp"
#include "eval/itgraph_eval.hpp"
#include "eval/tile_eval.hpp"

namespace cleave::oracle {
namespace {

std::string path_of(const std::string& level, const std::string& name) {
  return std::string(CLEAVE_SOURCE_DIR) + "/tests/golden/" + level + "/" + name + ".txt";
}

SourceText read(const std::string& level, const std::string& name) {
  const std::string path = path_of(level, name);
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  EXPECT_FALSE(text.str().empty()) << path;
  return {path, text.str()};
}

template <class T>
T unwrap(Result<T> r, const SourceText& source) {
  EXPECT_TRUE(r.ok()) << (r.ok() ? "" : render(r.errors(), &source));
  return std::move(r).value();
}

// The comments at the head of a file.
std::string head(const std::string& text) {
  size_t at = 0;
  while (at < text.size() && text[at] == '#') at = text.find('\n', at) + 1;
  return text.substr(0, at);
}

void expect_canonical(const SourceText& source, const std::string& printed) {
  const std::string expected = head(source.text) + printed;
  if (std::getenv("CLEAVE_UPDATE_GOLDEN") && expected != source.text)
    std::ofstream(source.name) << expected;
  else
    EXPECT_EQ(source.text, expected);
}

class Levels : public ::testing::TestWithParam<const char*> {};

TEST_P(Levels, AreWrittenCanonically) {
  for (const char* level : {"graph", "stabilised"}) {
    const SourceText source = read(level, GetParam());
    const graph::Graph g = unwrap(graph::parse(source), source);
    expect_canonical(source, print(g));
    EXPECT_TRUE(equal(unwrap(graph::parse({"again", print(g)}), source), g));
  }
  const SourceText it = read("itgraph", GetParam()), tile = read("tile", GetParam());
  expect_canonical(it, print(unwrap(itgraph::parse(it), it)));
  expect_canonical(tile, print(unwrap(tile::parse(tile), tile)));
}

struct Data {
  std::vector<Tensor> given;  // by leaf of the graph
  ItGraphArguments arguments;
};

Tensor random_tensor(Rng& rng, const graph::Type& type, const std::vector<int64_t>& extents) {
  Tensor t = zeros(type.dtype, extents);
  for (double& v : t.reals) v = round_to(type.dtype, rng.normal());
  return t;
}

Data random_data(const graph::Graph& g, uint64_t seed) {
  Rng rng(seed);
  Data d;
  for (graph::ValueId v : g.leaves()) {
    const graph::Node& n = g.producer(v);
    if (n.op == graph::Op::constant) {
      const Tensor shape = zeros(g.type(v).dtype, g.extents(v));
      const auto bytes =
          graph::materialise(n.attributes.get<graph::ConstantData>("data"), shape.dtype, shape.elements());
      d.arguments.constants.push_back(from_dense(shape.dtype, shape.extents, bytes.data()));
      continue;
    }
    const Tensor t = random_tensor(rng, g.type(v), g.extents(v));
    d.given.push_back(t);
    if (n.op == graph::Op::scalar)
      d.arguments.scalars.push_back(t.reals[0]);
    else
      d.arguments.inputs.push_back(t);
  }
  return d;
}

Tensor run_tile(const tile::Program& p, const Data& d, const Tensor& like, bool round) {
  std::vector<std::vector<std::byte>> inputs, constants;
  TileArguments a;
  for (const Tensor& t : d.arguments.inputs) inputs.push_back(to_dense(t));
  for (const Tensor& t : d.arguments.constants) constants.push_back(to_dense(t));
  for (const auto& bytes : inputs) a.inputs.emplace_back(bytes);
  for (const auto& bytes : constants) a.constants.emplace_back(bytes);
  a.scalars = d.arguments.scalars;
  Tensor out = like;
  std::fill(out.reals.begin(), out.reals.end(), std::nan(""));
  std::vector<std::byte> bytes = to_dense(out);
  a.outputs.emplace_back(bytes);
  run(p, a, {round});
  return from_dense(like.dtype, like.extents, bytes.data());
}

TEST_P(Levels, AgreeOnRandomData) {
  const SourceText gs = read("graph", GetParam()), ss = read("stabilised", GetParam()),
                   is = read("itgraph", GetParam()), ts = read("tile", GetParam());
  const graph::Graph g = unwrap(graph::parse(gs), gs), stabilised = unwrap(graph::parse(ss), ss);
  const itgraph::Program it = unwrap(itgraph::parse(is), is);
  const tile::Program tile = unwrap(tile::parse(ts), ts);
  for (const uint64_t seed : {1u, 2u, 3u}) {
    const Data d = random_data(g, seed);
    const Tensor expected = unwrap(evaluate(g, d.given), gs).at(0);
    auto judge = [&](const char* level, const Tensor& got, double tolerance) {
      const Difference diff = compare(got, expected, tolerance, tolerance);
      EXPECT_TRUE(diff.ok()) << level << ", seed " << seed << ": " << diff.text;
    };
    judge("stabilised", unwrap(evaluate(stabilised, d.given), ss).at(0), 1e-12);
    judge("itgraph", unwrap(run(it, d.arguments), is).at(0), 1e-12);
    EvalOptions rounded;
    rounded.round_to_storage = true;
    judge("itgraph, rounded", unwrap(run(it, d.arguments, rounded), is).at(0), 1e-5);
    judge("tile", run_tile(tile, d, expected, false), 1e-5);
    judge("tile, rounded", run_tile(tile, d, expected, true), 1e-5);
  }
}

// Other steps at every loop, nested ones kept divisible.
void change_steps(itgraph::Block& b, std::map<sym::Expr, int64_t> outer, Rng& rng) {
  for (itgraph::Loop& l : b.loops) {
    l.step = 1 + static_cast<int64_t>(rng.below(9));
    if (auto it = outer.find(l.index); it != outer.end())
      while (it->second % l.step != 0) --l.step;
    outer[l.index] = l.step;
  }
  for (itgraph::Item& i : b.items)
    if (auto* inner = std::get_if<itgraph::Block>(&i.what)) change_steps(*inner, outer, rng);
}

TEST_P(Levels, DoNotDependOnTheSteps) {
  const SourceText gs = read("graph", GetParam()), is = read("itgraph", GetParam());
  const graph::Graph g = unwrap(graph::parse(gs), gs);
  const Data d = random_data(g, 7);
  const Tensor expected = unwrap(evaluate(g, d.given), gs).at(0);
  Rng rng(11);
  for (int i = 0; i < 40; ++i) {
    itgraph::Program it = unwrap(itgraph::parse(is), is);
    for (itgraph::Kernel& k : it.kernels) change_steps(std::get<itgraph::Block>(k.what), {}, rng);
    const Difference diff = compare(unwrap(run(it, d.arguments), is).at(0), expected, 1e-12, 1e-12);
    ASSERT_TRUE(diff.ok()) << diff.text << "\n" << print(it);
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Levels,
                         ::testing::Values("attention", "causal", "gqa_decode", "rmsnorm_linear", "swiglu"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace cleave::oracle
