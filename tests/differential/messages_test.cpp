// The messages of every stage, provoked by the input that a person would have written, with number and place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "algebra/certificate.hpp"
#include "base/codes.hpp"
#include "base/lexer.hpp"
#include "check/check_certificate.hpp"
#include "eval/graph_eval.hpp"
#include "itgraph/itgraph.hpp"
#include "jit/build.hpp"
#include "schedule/schedule.hpp"

namespace cleave {
namespace {

using ::testing::HasSubstr;

std::string graph_error(const std::string& body) {
  const SourceText source{"m.graph", "graph g {\n" + body + "\n}"};
  const auto g = graph::parse(source);
  return g.ok() ? "no error" : render(g.errors(), &source);
}

template <class T>
std::string error_of(const Result<T>& r) {
  return r.ok() ? "no error" : render(r.errors(), nullptr);
}

TEST(Messages, OfGraphTexts) {
  EXPECT_THAT(graph_error("  input X: f32 `"),
              HasSubstr("m.graph:2:16: error[CLV1002]: the character ``` has no meaning here"));
  EXPECT_THAT(graph_error("  input X: f32 as \"abc"),
              HasSubstr("m.graph:2:19: error[CLV1003]: the string is not closed"));
  EXPECT_THAT(graph_error("  input X: f32\n  input X: f32\n  output X"),
              HasSubstr("m.graph:3:9: error[CLV2003]: `X` is defined twice"));
  EXPECT_THAT(graph_error("  input B: bool[3]\n  output Y = sum(B)"),
              HasSubstr("error[CLV2006]: `sum`: bool has no arithmetic"));
  EXPECT_THAT(graph_error("  input X: f32[3]\n  output Y = softmax(X)"),
              HasSubstr("error[CLV2009]: `softmax` needs the attribute `axis`"));
  EXPECT_THAT(graph_error(std::string(kMaxTextBytes + 1, ' ')), HasSubstr("error[CLV1006]: the text has"));
}

TEST(Messages, OfTheStages) {
  const SourceText source{"m.graph", "graph g {\n  dim S in 1..9\n  input X: f32[S]\n  output Y = exp(X)\n}"};
  const graph::Graph g = graph::parse(source).value();
  const SourceText composite{"m.graph", "graph g {\n  input X: f32[3]\n  output Y = softmax(X, axis=0)\n}"};
  EXPECT_THAT(error_of(schedule::unfused(graph::parse(composite).value(), {})),
              HasSubstr("error[CLV5003]: `g` cannot be scheduled: `softmax` is not expanded"));
  EXPECT_THAT(error_of(algebra::certificate(g, 99)), HasSubstr("error[CLV4103]"));
  const graph::Graph bound = graph::bind(g, {{"S", 4}}).value();
  const oracle::Tensor x = oracle::tensor(DType::f32, {4}, {1, 2, 3, 4});
  oracle::EvalOptions tight;
  tight.max_steps = 1;
  EXPECT_THAT(error_of(oracle::evaluate(bound, std::span(&x, 1), tight)), HasSubstr("error[CLV2016]"));
  const std::string certificate = algebra::certificate(bound, 0).value();
  std::string forged = certificate;
  forged.replace(forged.rfind("exp("), 4, "neg(");
  EXPECT_THAT(error_of(check::check_certificate(forged)), HasSubstr("error[CLV4102]"));
}

TEST(Messages, OfProgramTexts) {
  EXPECT_THAT(error_of(itgraph::parse({"m.itg", "itgraph g {\n  output Y: f32[2] argument 0\n}"})),
              HasSubstr("error[CLV5002]: `Y`"));
  EXPECT_THAT(error_of(tile::parse({"m.tile",
                                    "tile g {\n  input X: f32[2] argument 0\n  kernel k {\n    nest () {\n      X[0] = "
                                    "1.0:f32\n    }\n  }\n}"})),
              HasSubstr("error[CLV5001]: `k`: `X` is read only"));
  // Tasks are numbered: how many there are in a row cannot depend on the row.
  const char* ragged =
      "tile g {\n  output Y: f32[8] argument 0\n  kernel k {\n    parallel i in 0..8 {\n      parallel j in 0..i {\n"
      "        nest () {\n          Y[j] = 1.0:f32\n        }\n      }\n    }\n  }\n}";
  EXPECT_THAT(error_of(jit::build(tile::parse({"m.tile", ragged}).value())), HasSubstr("error[CLV6020]"));
  EXPECT_THAT(error_of(vec::parse({"m.vec", "func \"f\"(v0, v1, v2) {\n  v3 = apply.add v0, v1 : i64\n}"})),
              HasSubstr("error[CLV6001]"));
}

TEST(Messages, OfTheCodeGenerator) {
  EXPECT_THAT(error_of(jit::target_for(Isa::neon)), HasSubstr("error[CLV6003]"));
  EXPECT_THAT(error_of(jit::load_object({1, 2, 3})), HasSubstr("error[CLV6005]"));
}

// The words of a message whose cause only a pass that is wrong can produce.
TEST(Messages, OfBrokenGraphs) {
  EXPECT_EQ(render(diagnose(Code::invalid_graph, "add", "an operand is defined later"), nullptr),
            "error[CLV2017]: `add`: an operand is defined later\n");
}

}  // namespace
}  // namespace cleave
