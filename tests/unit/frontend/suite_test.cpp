#include "frontend/suite.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace cleave {
namespace {

using ::testing::HasSubstr;

std::string shipped() {
  std::ifstream file(CLEAVE_SOURCE_DIR "/tests/data/subgraphs.json");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string error_of(const std::string& text) {
  const auto r = read_suite(text);
  return r.ok() ? "no error" : render(r.errors(), nullptr);
}

TEST(Suite, EveryShippedRowIsAGraphWithPointsThatBind) {
  const auto rows = read_suite(shipped());
  ASSERT_TRUE(rows.ok()) << render(rows.errors(), nullptr);
  EXPECT_EQ(rows->size(), 16u);
  for (const SuiteRow& row : *rows) {
    EXPECT_TRUE(verify(row.graph).empty()) << row.name;
    EXPECT_GE(row.points.size(), 1u) << row.name;
    for (const SuitePoint& p : row.points) {
      const auto b = graph::bind(row.graph, p.dims);
      ASSERT_TRUE(b.ok()) << row.name << render(b.errors(), nullptr);
      EXPECT_TRUE(b->has_constant_shapes());
    }
  }
}

std::string one_row(const std::string& nodes, const std::string& outputs = "[\"Y\"]",
                    const std::string& points = "[]") {
  return R"({"subgraphs": [{"name": "row", "graph": {"extents": {"s": "s", "k": "k", "r": "h/g"}, "inputs": {"X": "s k",
    "G": "k"}, "nodes": [)" +
         nodes + R"(], "outputs": )" + outputs + R"(}, "points": )" + points + "}]}";
}

TEST(Suite, AQuotientIsADimensionOfItsOwn) {
  const auto rows = read_suite(one_row(R"({"id": "Y", "op": "mul", "inputs": ["X", "G"]})", "[\"Y\"]",
                                       R"({"a": {"b": [{"s": 3, "k": 4, "h": 12, "g": 4}]}})"));
  ASSERT_TRUE(rows.ok()) << render(rows.errors(), nullptr);
  ASSERT_EQ(rows->at(0).points.size(), 1u);
  EXPECT_EQ(rows->at(0).points[0].group, "a/b");
  EXPECT_EQ(rows->at(0).points[0].dims, (std::map<std::string, int64_t>{{"s", 3}, {"k", 4}, {"r", 3}}));
}

TEST(Suite, WhatIsWrongIsSaidWithTheRowAndTheNode) {
  EXPECT_THAT(error_of("{"), HasSubstr("error[CLV4104]: the suite cannot be used: it is no JSON"));
  EXPECT_THAT(error_of("[]"), HasSubstr("it has neither `subgraphs` nor `alternates`"));
  EXPECT_THAT(error_of(std::string(100, '[') + std::string(100, ']')), HasSubstr("nested too deeply"));
  EXPECT_THAT(error_of(R"({"subgraphs": [3]})"), HasSubstr("a row of `subgraphs` has no name"));
  EXPECT_THAT(error_of(R"({"subgraphs": [{"name": "a"}]})"), HasSubstr("row `a`: `graph` is missing"));
  auto node = [](const std::string& n) { return error_of(one_row(n)); };
  EXPECT_THAT(node(R"({"id": "Y", "op": "lstm", "inputs": ["X"]})"),
              HasSubstr("row `row`: node `Y`: the operator `lstm` is not known"));
  EXPECT_THAT(node(R"({"id": "Y", "op": "einsum", "eq": "sk,k", "inputs": ["X", "G"]})"), HasSubstr("has no ->"));
  EXPECT_THAT(node(R"({"id": "Y", "op": "einsum", "eq": "sk,sq->k", "inputs": ["X", "G"]})"), HasSubstr("node `Y`"));
  EXPECT_THAT(node(R"({"id": "Y", "op": "exp", "inputs": ["Z"]})"), HasSubstr("`Z` is not defined"));
  EXPECT_THAT(node(R"({"id": "X", "op": "exp", "inputs": ["X"]})"), HasSubstr("`X` is defined twice"));
  EXPECT_THAT(node(R"({"id": "Y", "op": "reduce_sum", "axis": "q", "inputs": ["X"]})"), HasSubstr("no index `q`"));
  EXPECT_THAT(node(R"({"id": "Y", "op": "add", "inputs": ["X"]})"), HasSubstr("node `Y`"));
  EXPECT_THAT(node(R"({"id": "Y", "op": "scale", "by": {"fn": "rsqrt", "of": ["z"]}, "inputs": ["X"]})"),
              HasSubstr("the index `z` has no extent"));
  EXPECT_THAT(node(R"({"id": "Y", "op": "where", "inputs": ["X", "X", "-inf"]})"), HasSubstr("no `iota_compare`"));
  EXPECT_THAT(error_of(one_row(R"({"id": "C", "op": "iota_compare", "inputs": [], "compare": {}})", "[\"C\"]")),
              HasSubstr("the output `C` is a condition"));
  EXPECT_THAT(error_of(one_row(R"({"id": "Y", "op": "exp", "inputs": ["X"]})", "[\"Y\"]", R"([{"s": 3}])")),
              HasSubstr("is missing"));
  EXPECT_THAT(error_of(one_row(R"({"id": "Y", "op": "exp", "inputs": ["X"]})", "[\"Y\"]",
                               R"([{"s": 3, "k": 1, "h": 3, "g": 2}])")),
              HasSubstr("`h/g` of a point of `` is no whole number"));
}

// Every shipped text with one byte lost or changed is either a suite or an error, never a crash.
TEST(Suite, DamagedTextsAreHarmless) {
  const std::string text = shipped();
  for (size_t at = 0; at < text.size(); at += 97) {
    (void)read_suite(text.substr(0, at));
    std::string changed = text;
    changed[at] = static_cast<char>("\"[]{}0,:ax"[at % 10]);
    (void)read_suite(changed);
  }
}

}  // namespace
}  // namespace cleave
