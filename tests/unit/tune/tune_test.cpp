#include "tune/tune.hpp"
#include "base/codes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "eval/tile_eval.hpp"
#include "tune/placement.hpp"

namespace cleave::tune {
namespace {

constexpr const char* kText = R"(graph g {
  input X: f32[12, 40]
  input Y: f32[40, 9]
  const C: f32[9] = normal(seed=4)
  S = softmax(mul(X, 0.5), axis=-1)
  output Z = add(contract("m k, k n -> m n", S, Y), C)
})";

// Runs tile programs with the interpreter, and burns time as the program's name says ("x_300": 300 microseconds).
class Interpreted : public Runnable {
 public:
  Interpreted(const Problem& problem, tile::Program program) : problem_(problem), program_(std::move(program)) {
    const size_t at = program_.name.rfind('_');
    microseconds_ = at == std::string::npos ? 0 : std::atoi(program_.name.c_str() + at + 1);
  }
  Diagnostics run(const Call& call, Executor&) override {
    if (!done_ || done_to_ != call.outputs) {  // interpreting is slow: once for each memory
      oracle::TileArguments a;
      for (size_t i = 0; i < problem_.inputs.size(); ++i) a.inputs.push_back(bytes(problem_.inputs[i], call.inputs[i]));
      for (const Array& c : problem_.constants) a.constants.push_back(bytes(c, c.data.data()));
      a.scalars = call.scalars;
      for (size_t i = 0; i < call.outputs.size(); ++i) {
        const graph::ValueId v = problem_.graph.outputs()[i].value;
        a.outputs.push_back(
            {static_cast<std::byte*>(call.outputs[i]), static_cast<size_t>(oracle::product(problem_.graph.extents(v)) *
                                                                           byte_size(problem_.graph.type(v).dtype))});
      }
      oracle::run(program_, a);
      done_ = true;
      done_to_ = call.outputs;
    }
    const double end = runtime::thread_cpu_seconds() + 1e-6 * microseconds_;
    while (runtime::thread_cpu_seconds() < end) {
    }
    return {};
  }
  std::vector<double> kernel_seconds(const Call&) override { return {}; }

 private:
  static std::span<const std::byte> bytes(const Array& a, const void* data) {
    return {static_cast<const std::byte*>(data), static_cast<size_t>(a.bytes())};
  }
  const Problem& problem_;
  tile::Program program_;
  int microseconds_;
  bool done_ = false;
  std::vector<void*> done_to_;
};

struct Tune : ::testing::Test {
  graph::Graph graph = graph::expand(graph::parse({"g", kText}).value());
  Problem problem = make_problem();
  schedule::Candidate unfused = named(schedule::unfused(graph, machine()).value(), "base_400");
  Compile compile = [this](const tile::Program& p) -> Result<std::shared_ptr<Runnable>> {
    if (p.name == "broken") return diagnose(Code::codegen_failed, "as the test wants");
    return std::shared_ptr<Runnable>(std::make_shared<Interpreted>(problem, p));
  };

  static schedule::Options machine() {
    schedule::Options o;
    o.machine = host_machine();
    return o;
  }
  Problem make_problem() {
    Data d = random_data(graph, 7).value();
    return {graph, std::move(d.inputs), std::move(d.scalars), std::move(d.constants)};
  }
  static schedule::Candidate named(schedule::Candidate c, const std::string& name) {
    c.program.name = name;
    c.summary = name;
    return c;
  }
  Proposal proposal(const std::string& name) { return {0, named(unfused, name)}; }
  // The same with a piece of its text replaced everywhere (the shift alone may be anything in a softmax).
  Proposal changed(const std::string& name, const std::string& from, const std::string& to) {
    Proposal p = proposal(name);
    std::string text = tile::print(p.candidate.program);
    EXPECT_NE(text.find(from), std::string::npos) << text;
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
      text.replace(at, from.size(), to);
    auto program = tile::parse({"changed", text});
    EXPECT_TRUE(program.ok()) << render(program.errors(), nullptr);
    p.candidate.program = std::move(*program);
    return p;
  }
  Outcome run(std::vector<Proposal> proposals, Options o = {}) {
    o.final_pairs = 7;
    auto r = tune(problem, unfused, proposals, compile, o);
    EXPECT_TRUE(r.ok()) << render(r.errors(), nullptr);
    return std::move(*r);
  }
};

TEST(TrialOrder, TriesTheBestOfEachKindFirst) {
  std::vector<Proposal> proposals;
  for (const auto& [summary, seconds] : std::vector<std::pair<std::string, double>>{
           {"unfused: 6", 1.0}, {"unfused: 5", 1.1}, {"fused: 1", 1.2}, {"fused: 2", 1.3}, {"two passes: 2", 1.6}}) {
    proposals.emplace_back();
    proposals.back().candidate.summary = summary;
    proposals.back().candidate.seconds = seconds;
  }
  best_of_each_kind_first(proposals);
  std::vector<std::string> order;
  for (const Proposal& p : proposals) order.push_back(p.candidate.summary);
  EXPECT_EQ(order, (std::vector<std::string>{"unfused: 6", "fused: 1", "unfused: 5", "fused: 2", "two passes: 2"}));
}

TEST_F(Tune, TakesTheFastestThatIsRight) {
  const Outcome o = run({proposal("a_300"), proposal("b_100"), proposal("c_200")});
  EXPECT_EQ(o.chosen, 1);
  EXPECT_EQ(o.candidate.summary, "b_100");
  EXPECT_GT(o.speedup_interval.low, 1);
  EXPECT_EQ(o.stop, Stop::exhausted);
  for (const Trial& t : o.trials) EXPECT_EQ(t.state, Trial::State::timed);
}

TEST_F(Tune, NeverTakesWhatIsWrongHoweverFast) {
  const Outcome o = run({changed("wrong_1", "0.5:f32", "0.4990234375:f32"), proposal("right_200")});
  EXPECT_EQ(o.trials[0].state, Trial::State::wrong);
  EXPECT_FALSE(o.trials[0].comparison.has_value()) << "timed before it was verified";
  EXPECT_NE(o.trials[0].why, "");
  EXPECT_EQ(o.chosen, 1);
}

TEST_F(Tune, SeesElementsThatNobodyWrites) {
  // The last row is left out: what is there is the NaN from before.
  schedule::Candidate c = unfused;
  bool cut = false;
  const std::function<void(std::vector<tile::Statement>&)> shorten = [&](std::vector<tile::Statement>& body) {
    for (tile::Statement& s : body)
      if (auto* f = std::get_if<tile::For>(&s.what))
        shorten(f->body);
      else if (auto* n = std::get_if<tile::Nest>(&s.what)) {
        for (const tile::Write& w : n->stores)
          if (c.program.buffer(w.buffer).place == tile::Place::output && !n->axes.empty()) {
            n->axes[0].extent = c.program.syms->sub(n->axes[0].extent, c.program.syms->constant(1));
            cut = true;
            break;
          }
      }
  };
  for (tile::Kernel& k : c.program.kernels) shorten(k.body);
  ASSERT_TRUE(cut);
  const Outcome o = run({{0, named(c, "short_1")}});
  EXPECT_EQ(o.trials[0].state, Trial::State::wrong);
  EXPECT_EQ(o.chosen, -1);
}

TEST_F(Tune, KeepsTheUnfusedScheduleUnlessBeaten) {
  const Outcome o = run({proposal("slow_500"), proposal("alike_400")});
  if (o.chosen != -1) {  // equal times may differ by chance, but then with an interval above 1
    EXPECT_GT(o.speedup_interval.low, 1);
  } else {
    EXPECT_EQ(o.candidate.summary, "base_400");
    EXPECT_EQ(o.speedup, 1);
    EXPECT_FALSE(o.notes.empty());
  }
}

TEST_F(Tune, KeepsTheUnfusedScheduleWhenOnePlaceInMemoryAloneIsFaster) {
  // The first machine code of the candidate lies well; any later one (that of the artefact, say) is slower.
  std::map<std::string, int> compiled;
  compile = [&](const tile::Program& p) -> Result<std::shared_ptr<Runnable>> {
    tile::Program here = p;
    if (p.name == "lucky_300" && compiled[p.name]++ > 0) here.name = "moved_450";
    return std::shared_ptr<Runnable>(std::make_shared<Interpreted>(problem, here));
  };
  const Outcome o = run({proposal("lucky_300")});
  EXPECT_GT(compiled["lucky_300"], 1);
  EXPECT_EQ(o.chosen, -1);
  ASSERT_TRUE(o.trials[0].comparison.has_value());
  EXPECT_LT(o.trials[0].comparison->interval.low, 1);
  EXPECT_GT(o.trials[0].comparison->interval.high, 1);
}

TEST(Placement, KeepsTheDataAndMovesTheAddresses) {
  const graph::Graph g = graph::expand(graph::parse({"g", kText}).value());
  Data d = random_data(g, 7).value();
  const Problem problem{g, std::move(d.inputs), std::move(d.scalars), std::move(d.constants)};
  const Placement a(problem, 1), b(problem, 2);
  ASSERT_EQ(a.call().inputs.size(), 2u);
  ASSERT_EQ(a.call().outputs.size(), 1u);
  bool moved = false;
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(
        std::memcmp(a.call().inputs[i], problem.inputs[i].data.data(), static_cast<size_t>(problem.inputs[i].bytes())),
        0);
    const auto at = [&](const Placement& p) { return reinterpret_cast<uintptr_t>(p.call().inputs[i]) % 4096; };
    EXPECT_EQ(at(a) % 64, 0u);
    moved |= at(a) != at(b);
  }
  EXPECT_TRUE(moved);
}

TEST(Placement, PutsComparisonsTogether) {
  const auto comparison = [](double ratio, double low, double high) {
    runtime::Comparison c;
    c.ratio = ratio;
    c.interval = {low, high};
    c.seconds_a = 1 / ratio;
    c.pairs = 7;
    return c;
  };
  const runtime::Comparison c =
      together({comparison(1.2, 1.1, 1.3), comparison(0.9, 0.85, 0.95), comparison(1.1, 1, 1.2)});
  EXPECT_EQ(c.ratio, 1.1);
  EXPECT_EQ(c.seconds_a, 1 / 1.1);
  EXPECT_EQ(c.interval.low, 0.85);
  EXPECT_EQ(c.interval.high, 1.3);
  EXPECT_EQ(c.pairs, 21);
}

TEST_F(Tune, SurvivesCandidatesThatDoNotCompile) {
  const Outcome o = run({proposal("broken"), proposal("a_100")});
  EXPECT_EQ(o.trials[0].state, Trial::State::refused);
  EXPECT_EQ(o.chosen, 1);
}

TEST_F(Tune, StopsAtTheBudgetAndWhenInterrupted) {
  Options o;
  o.budget.candidates = 1;
  Outcome r = run({proposal("a_100"), proposal("b_50")}, o);
  EXPECT_EQ(r.stop, Stop::budget);
  EXPECT_EQ(r.trials[1].state, Trial::State::waiting);
  EXPECT_EQ(r.chosen, 0);

  o = {};  // the comparison at the end would take all of the time
  o.budget.seconds = 0.5;
  o.final_pairs = 10'000'000;
  std::vector<Proposal> two{proposal("a_100"), proposal("b_50")};
  r = tune(problem, unfused, two, compile, o).value();
  EXPECT_EQ(r.stop, Stop::budget);
  EXPECT_EQ(r.trials[1].state, Trial::State::waiting);
  ASSERT_FALSE(r.notes.empty());
  EXPECT_NE(r.notes[0].find("s of the budget were kept for comparing"), std::string::npos) << r.notes[0];

  o = {};
  int asked = 0;
  o.interrupted = [&] { return ++asked > 1; };
  r = run({proposal("a_100"), proposal("b_50")}, o);
  EXPECT_EQ(r.stop, Stop::interrupted);
  EXPECT_EQ(r.chosen, 0) << "the best so far is kept";

  o = {};
  o.budget.seconds = 0;
  r = run({proposal("a_100")}, o);
  EXPECT_EQ(r.stop, Stop::budget);
  EXPECT_EQ(r.chosen, -1);
  EXPECT_TRUE(r.runnable != nullptr);

  o.budget.seconds = 1e-6;  // over before anything was tried: the best by the model is
  r = run({proposal("a_100"), proposal("b_50")}, o);
  EXPECT_EQ(r.stop, Stop::budget);
  EXPECT_EQ(r.trials[1].state, Trial::State::waiting);
  EXPECT_EQ(r.chosen, 0);
}

TEST_F(Tune, SkipsWhatTheModelPutsFarBehind) {
  Proposal good = proposal("a_100"), hopeless = proposal("b_100");
  hopeless.candidate.seconds = 10 * unfused.seconds;
  const Outcome o = run({good, hopeless});
  EXPECT_EQ(o.stop, Stop::no_gain);
  EXPECT_EQ(o.trials[1].state, Trial::State::waiting);
}

TEST_F(Tune, DeterministicTakesTheModelsChoiceWithoutTiming) {
  Options o;
  o.deterministic = true;
  Proposal wrong = changed("wrong_1", "0.5:f32", "0.625:f32"), right = proposal("b_500");
  wrong.candidate.seconds = unfused.seconds / 4;
  right.candidate.seconds = unfused.seconds / 2;
  const Outcome r = run({wrong, right}, o);
  EXPECT_EQ(r.chosen, 1);
  EXPECT_EQ(r.seconds, 0);
  EXPECT_EQ(r.trials[0].state, Trial::State::wrong);
}

TEST_F(Tune, RefusesAWrongUnfusedSchedule) {
  const Proposal wrong = changed("base_1", "0.5:f32", "0.625:f32");
  std::vector<Proposal> none;
  const auto r = tune(problem, wrong.candidate, none, compile, {});
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.errors()[0].code, Code::wrong_result);
}

TEST_F(Tune, JudgesRowsAtLargeShapesAndTheRestAgainstTheUnfusedResult) {
  Options o;
  o.reference.complete_steps = 0;  // as if the graph were large
  o.reference.rows = 4;
  const Outcome r = run({changed("wrong_1", "0.5:f32", "0.4990234375:f32"), proposal("right_100")}, o);
  EXPECT_FALSE(r.complete_reference);
  EXPECT_LT(r.verdict.elements, 12 * 9);
  EXPECT_EQ(r.trials[0].state, Trial::State::wrong);
  EXPECT_EQ(r.chosen, 1);
}

TEST(Reference, FindsOneWrongElementOutsideOfItsRows) {
  const graph::Graph g = graph::parse({"g", "graph g {\n input X: f32[1000, 8]\n output Y = exp(X)\n}"}).value();
  Data d = random_data(g, 1).value();
  const Problem problem{g, std::move(d.inputs), {}, {}};
  ReferenceOptions ro;
  ro.complete_steps = 0;
  const Reference reference = make_reference(problem, ro).value();
  Results good(g), bad(g);
  for (Results* r : {&good, &bad})
    for (int i = 0; i < 8000; ++i)
      static_cast<float*>(r->addresses()[0])[i] = std::exp(problem.inputs[0].data.as<float>()[i]);
  EXPECT_TRUE(judge(reference, good, nullptr, {}).ok);
  EXPECT_EQ(disagreement(reference, bad, good, {}), "");
  // A row that no piece holds.
  int64_t row = 0;
  const auto inside = [&](int64_t r) {
    for (const Piece& p : reference.pieces)
      if (r >= p.box.lo[0] && r < p.box.hi[0]) return true;
    return false;
  };
  while (inside(row)) ++row;
  static_cast<float*>(bad.addresses()[0])[row * 8 + 3] *= 1.5f;
  EXPECT_TRUE(judge(reference, bad, nullptr, {}).ok);
  EXPECT_NE(disagreement(reference, bad, good, {}), "");
  static_cast<float*>(bad.addresses()[0])[reference.pieces[0].box.lo[0] * 8] = NAN;
  EXPECT_FALSE(judge(reference, bad, nullptr, {}).ok);
}

// Results that hold `value` in every element of the only output, judged.
Verdict judged(const Problem& problem, double value) {
  const Reference reference = make_reference(problem).value();
  Results results(problem.graph);
  const DType dtype = problem.graph.type(problem.graph.outputs()[0].value).dtype;
  for (int64_t i = 0; i < oracle::product(results.extents(0)); ++i)
    store_real(dtype, static_cast<std::byte*>(results.addresses()[0]) + i * byte_size(dtype), value);
  return judge(reference, results, nullptr, {});
}

Problem problem_of(const std::string& body) {
  const graph::Graph g = graph::expand(graph::parse({"g", "graph g {\n" + body + "\n}"}).value());
  Data d = random_data(g, 3).value();
  return {g, std::move(d.inputs), std::move(d.scalars), std::move(d.constants)};
}

TEST(Reference, AsksNothingOfElementsWhoseWayOverflowsInTheGraphAsGiven) {
  // The squares leave the range of f32: stored value by value, the norm is 0 or NaN and not the finite one of float64.
  const Problem norm = problem_of(" input X: f32[4, 3]\n output Y = rms_norm(mul(X, 1e30), axes=[1])");
  EXPECT_TRUE(judged(norm, 0).ok);
  EXPECT_TRUE(judged(norm, NAN).ok);
  const Problem half = problem_of(
      " input X: f16[4, 3]\n input V: f16[3, 2]\n output Y = mul(contract(\"i j, j k -> i k\", mul(add(abs(X), 2), "
      "60000), V), 0.001)");
  EXPECT_TRUE(judged(half, INFINITY).ok);
}

TEST(Reference, TakesResultsThatMemoryCannotHoldAsInfinities) {
  const Problem p = problem_of(" input X: f16[6]\n output Y = mul(add(abs(X), 2), 60000)");
  EXPECT_TRUE(judged(p, INFINITY).ok);
  EXPECT_FALSE(judged(p, -INFINITY).ok);
  EXPECT_TRUE(judged(p, std::numeric_limits<float>::quiet_NaN()).ok) << "terms may overflow with either sign";
  EXPECT_FALSE(judged(p, 1).ok);
}

// exp(800) is no float64, and softmax has a value all the same.
TEST(Reference, TakesTheStableFormWhereExponentialsOverflowAsWritten) {
  const Problem p = problem_of(
      " input X: f32[4]\n e = exp(add(mul(X, 0), 800))\n output Y = div(e, sum(e, axes=[0], keepdims=true))");
  EXPECT_TRUE(judged(p, 0.25).ok);
  EXPECT_FALSE(judged(p, 0.251).ok);
  EXPECT_TRUE(judged(p, NAN).ok);
}

// exp(x) / sum(exp(x)) of a row that holds +inf: zeros beside one NaN as written, NaN as a whole in the stable form.
TEST(Reference, TakesARowOfSoftmaxThatHoldsAnInfinity) {
  for (const bool infinite : {true, false}) {
    Problem p = problem_of(" input X: f32[3]\n e = exp(X)\n output Y = div(e, sum(e, axes=[0], keepdims=true))");
    p.inputs[0].data.as<float>()[1] = infinite ? INFINITY : 1.5f;
    EXPECT_EQ(judged(p, NAN).ok, infinite);
    EXPECT_FALSE(judged(p, 0.9).ok);
  }
}

// Reassociated, a sum of products may be inf - inf where it was an infinity; nothing else may.
TEST(Reference, TakesNanForAnInfinityOfASumOfProducts) {
  const auto of = [](const std::string& y) {
    return problem_of(" input X: f32[2, 3]\n Z = add(mul(X, 0), inf)\n W = add(mul(X, 0), 1)\n output Y = " + y);
  };
  EXPECT_TRUE(judged(of("contract(\"i j, k j -> i k\", Z, W)"), NAN).ok);
  EXPECT_FALSE(judged(of("contract(\"i j, k j -> i k\", Z, W)"), 1).ok);
  EXPECT_FALSE(judged(of("add(Z, 1.0)"), NAN).ok);
  EXPECT_FALSE(judged(of("logsumexp(Z, axes=[1])"), NAN).ok);
}

TEST(Reference, JudgesIntegersToo) {
  // Known ones exactly; those that hang on a comparison of sums may be on its other side.
  const Problem p = problem_of(
      " input X: i64[6]\n input Z: f32[6, 9]\n output Y = add(mul(X, 0), 7)\n"
      " output C = cast(gt(sum(Z, axes=[1]), 0), dtype=i32)");
  const Reference reference = make_reference(p).value();
  Results results(p.graph);
  for (int i = 0; i < 6; ++i) {
    static_cast<int64_t*>(results.addresses()[0])[i] = 7;
    double sum = 0;
    for (int k = 0; k < 9; ++k) sum += static_cast<double>(p.inputs[1].data.as<float>()[i * 9 + k]);
    static_cast<int32_t*>(results.addresses()[1])[i] = sum > 0;
  }
  EXPECT_TRUE(judge(reference, results, nullptr, {}).ok);
  static_cast<int64_t*>(results.addresses()[0])[2] = 8;
  EXPECT_FALSE(judge(reference, results, nullptr, {}).ok);
}

TEST(Reference, StillRefusesNaNBehindAFiniteMask) {
  // Exporters mask with the lowest number of f32; what is behind such a mask has a bound like everything else.
  const Problem p = problem_of(
      " input S: f32[4, 9]\n input M: f32[4, 9]\n"
      " output Y = softmax(add(S, where(gt(M, 0), 0, -3.4028234663852886e38)), axis=1)");
  const Reference reference = make_reference(p).value();
  for (double b : reference.pieces[0].expected.bound) EXPECT_LT(b, 1e-4);
  EXPECT_FALSE(judged(p, NAN).ok);
  EXPECT_FALSE(judged(p, 0.5).ok);
}

TEST(Reference, SeesWritesAroundTheOutputs) {
  const graph::Graph g = graph::parse({"g", "graph g {\n input X: f32[5]\n output Y = exp(X)\n}"}).value();
  for (int64_t at : {-1, 5}) {
    Results r(g);
    EXPECT_TRUE(r.guards_intact());
    static_cast<float*>(r.addresses()[0])[at] = 1;
    EXPECT_FALSE(r.guards_intact());
  }
}

TEST(RandomData, GivesValidPositionsPointersAndLengths) {
  const graph::Graph g = graph::parse({"g", R"(graph g {
    input T: f32[50, 4]
    input I: i64[33]
    input R: f32[40, 3]
    input P: i32[6]
    input C: f32[64, 2]
    input CP: i32[4]
    input CI: i32[8]
    input L: i32[3]
    output A = gather(T, I, axis=0)
    output B = ragged(R, P, max=[20])
    output D = paged(C, CP, CI, L, page=8, max=[16])
  })"})
                             .value();
  const Data d = random_data(g, 3).value();
  const auto ints = [&](size_t i) {
    const oracle::Tensor t = tensor_of(d.inputs[i]);
    return t.ints;
  };
  EXPECT_THAT(ints(1), ::testing::Each(::testing::AllOf(::testing::Ge(0), ::testing::Lt(50))));
  const auto pointers = ints(3);
  EXPECT_EQ(pointers.front(), 0);
  EXPECT_EQ(pointers.back(), 40);
  EXPECT_TRUE(std::is_sorted(pointers.begin(), pointers.end()));
  EXPECT_THAT(ints(6), ::testing::Each(::testing::AllOf(::testing::Ge(0), ::testing::Lt(8))));
  EXPECT_THAT(ints(7), ::testing::Each(::testing::AllOf(::testing::Ge(1), ::testing::Le(16))));
  EXPECT_EQ(tensor_of(random_data(g, 3).value().inputs[0]).reals, tensor_of(d.inputs[0]).reals);
  EXPECT_NE(tensor_of(random_data(g, 4).value().inputs[0]).reals, tensor_of(d.inputs[0]).reals);
}

TEST(RandomData, GivesWeightsTheDeviationOfWeights) {
  const graph::Graph g = graph::parse({"g", R"(graph g {
    input X: f32[40, 64]
    input W: f32[64, 100]
    input V: f32[50, 100]
    input K: f32[2, 70, 50]
    H = relu(contract("s k, k n -> s n", X, W))
    J = contract("s n, o n -> s o", H, cast(V, dtype=f32))
    output S = contract("s o, b l o -> b s l", J, K)
  })"})
                             .value();
  const Data d = random_data(g, 3).value();
  const auto deviation = [&](size_t i) {
    const oracle::Tensor t = tensor_of(d.inputs[i]);
    double squares = 0;
    for (double x : t.reals) squares += x * x;
    return std::sqrt(squares / static_cast<double>(t.reals.size()));
  };
  EXPECT_NEAR(deviation(0), 1, 0.1);
  EXPECT_NEAR(deviation(1), 1, 0.1) << "what multiplies an input may be either side";
  EXPECT_NEAR(deviation(2), 0.1, 0.01);
  EXPECT_NEAR(deviation(3), 1, 0.1) << "keys and values are data";
}

TEST(RandomData, RefusesWhatDoesNotFit) {
  const graph::Graph g = graph::parse({"g", "graph g {\n input X: f32[1048576, 65536]\n output Y = exp(X)\n}"}).value();
  const auto d = random_data(g, 1);
  ASSERT_FALSE(d.ok());
  EXPECT_EQ(d.errors()[0].code, Code::data_too_large);
}

}  // namespace
}  // namespace cleave::tune
