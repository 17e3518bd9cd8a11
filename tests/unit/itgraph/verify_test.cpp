// The laws of itGraphs, each broken once: a program that keeps them, and one change that breaks one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "itgraph/itgraph.hpp"

namespace cleave::itgraph {
namespace {

using ::testing::HasSubstr;

constexpr const char* kLawful = R"(itgraph t {
  index i: 4, j: 6, k: 4
  input X: f32[4, 6] argument 0
  input at: i64[4] argument 1
  scalar c: f32 argument 0
  inner s: f32[4]
  inner m: f32[4]
  inner u: f32[4, 4]
  inner flat: f32[4] alias s
  inner p: f32[4, 6]
  inner z: i64[4]
  output y: f32[4] argument 0
  output o: bool[4] argument 1
  kernel first parallel (i: 2) {
    reduce (j: 4) {
      reduce (j: 2) {
        s[i] = sum (j) mul(X[i, j], c[])
        m[i], u[i, k] = scaled (j) X[i, j]; c[]
      }
      p[i, j] = exp(X[i, j])
    }
    y[i] = add(flat[i], u[i, 0])
    o[i] = any (j) isnan(X[@at[i], j])
  }
  kernel second library cumsum p -> p2 axis 1
  kernel third library argmax p -> z axis 1
}
)";

std::string lawful() {
  std::string s = kLawful;
  const std::string p = "  inner p: f32[4, 6]\n";
  return s.insert(s.find(p), "  inner p2: f32[4, 6]\n");
}

std::string errors_of(const std::string& text) {
  const SourceText source{"test.itgraph", text};
  const auto p = parse(source);
  return p.ok() ? "" : render(p.errors(), &source);
}

struct Law {
  const char* name;
  std::string from, to;
  std::string message;
};

class ItgraphLaw : public ::testing::TestWithParam<Law> {};

TEST(ItgraphVerify, AcceptsALawfulProgram) { EXPECT_EQ(errors_of(lawful()), ""); }

TEST_P(ItgraphLaw, IsDemanded) {
  std::string text = lawful();
  const size_t at = text.find(GetParam().from);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, GetParam().from.size(), GetParam().to);
  EXPECT_THAT(errors_of(text), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Laws, ItgraphLaw,
    ::testing::Values(
        Law{"ParallelIsOutermost", "reduce (j: 2)", "parallel (j: 2)", "parallel blocks are outermost"},
        Law{"OutermostIsParallel", "first parallel", "first map", "parallel blocks are outermost"},
        Law{"StepsNest", "reduce (j: 2)", "reduce (j: 3)", "an inner step does not divide the outer one"},
        Law{"InputsAreReadOnly", "p[i, j] = exp", "X[i, j] = exp", "`X` is read only"},
        Law{"TargetsHaveAllAxes", "y[i] = add", "y[] = add", "`y` has 1 axes, 0 indices"},
        Law{"TargetsHaveDistinctAxes", "u[i, k] = scaled", "u[i, i] = scaled", "`u` has one index on two axes"},
        Law{"AxesAreAsLongAsTheirIndices", "p[i, j] = exp(X[i, j])", "p[j, i] = exp(X[i, j])",
            "axis 0 of `p` is not as long as its index"},
        Law{"ReducedIndicesAreGone", "s[i] = sum (j)", "s[i] = sum (i)", "`s` keeps an index that is reduced"},
        Law{"IndicesAreReducedOnce", "s[i] = sum (j)", "s[i] = sum (j, j)", "`j` is reduced twice"},
        Law{"ReductionsRunInReduceLoops", "reduce (j: 4)", "map (j: 4)", "`j` is reduced but its loop is no reduce"},
        Law{"LoadsHaveAllAxes", "exp(X[i, j])", "exp(X[i])", "`X` has 2 axes, 1 indices"},
        Law{"IndicesAreBound", "u[i, 0])", "u[i, j])", "`y` uses `j`, which is not bound, to read `u`"},
        Law{"IndexValuesAreBound", "exp(X[i, j])", "add(X[i, j], cast(index(k), f32))",
            "`p` uses `k`, which is not bound"},
        Law{"DtypesFitTheirValues", "= any (j) isnan(X[@at[i], j])", "= amax (j) X[@at[i], j]",
            "`o` is bool, its expression f32"},
        Law{"OperandsHaveOneDtype", "add(flat[i], u[i, 0])", "add(flat[i], at[i])", "`add` mixes f32 and i64"},
        Law{"FunctionsTakeTheirDtypes", "exp(X[i, j])", "cast(exp(at[i]), f32)", "`exp` takes no i64"},
        Law{"DynamicIndicesAreIntegers", "@at[i]", "@flat[i]", "an index of `X` is no i64"},
        Law{"LogicReducesBools", "y[i] = add(flat[i], u[i, 0])", "y[i] = any (j) X[i, j]",
            "`y` is reduced by logic but is no bool"},
        Law{"GroupsCarryTheirMaximum", "m[i], u[i, k] = scaled (j) X[i, j]; c[]",
            "u[i, k], m[i] = scaled (j) X[i, j]; c[]", "`m` lacks an index of the maximum `u`"},
        Law{"ValuesAreComputedBeforeTheyAreRead", "exp(X[i, j])", "exp(y[i])", "`y` is read before it is computed"},
        Law{"AccumulatorsAreReadAfterTheLoop", "exp(X[i, j])", "sub(X[i, j], m[i])",
            "`m` is read inside the loop that accumulates it"},
        Law{"AccumulatorsHaveOneStatement", "m[i], u[i, k] = scaled (j) X[i, j]; c[]", "s[i] = prod (j) c[]",
            "`s` is computed twice in the loop"},
        Law{"StatementsComputeAValueOnce", "m[i], u[i, k] = scaled (j) X[i, j]; c[]",
            "m[i], m[i] = scaled (j) X[i, j]; c[]", "`m` is computed twice by one statement"},
        Law{"OutputsAreNotWrittenAgainAndAgain", "p[i, j] = exp(X[i, j])\n", "p[i, j] = exp(X[i, j])\n y[i] = c[]\n",
            "`y` is written in every iteration of a reduction"},
        Law{"OutputsAreComputed", "o[i] = any (j) isnan(X[@at[i], j])", "", "`o`: is an output that nothing computes"},
        Law{"ValuesHaveDistinctNames", "inner z", "inner s", "`s` is defined twice"},
        Law{"ArgumentsHavePositions", "scalar c: f32 argument 0", "scalar c: f32",
            "`c`: has no argument position of its own"},
        Law{"ArgumentPositionsAreDistinct", "at: i64[4] argument 1", "at: i64[4] argument 0",
            "`at`: has no argument position of its own"},
        Law{"AliasesHaveTheElements", "flat: f32[4] alias", "flat: f32[5] alias",
            "`flat`: has not the elements of `s`"},
        Law{"ScalarsHaveNoAxes", "scalar c: f32", "scalar c: f32[1]", "`c`: is a scalar with axes"},
        Law{"LibraryAxesExist", "p2 axis 1", "p2 axis 2", "`p` has no axis 2"},
        Law{"ScansKeepTheShape", "cumsum p -> p2", "cumsum p -> s", "`s` has the wrong shape"},
        Law{"PositionsAreIntegers", "argmax p -> z", "argmax p -> s", "`s` has the wrong dtype"},
        Law{"OnlyScansAreExclusive", "z axis 1", "z axis 1 exclusive", "`argmax` is no scan"},
        Law{"TopkHasTwoResults", "argmax p -> z", "topk p -> z", "`topk` has the wrong number of results"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace cleave::itgraph
