// Integers of a call that say something impossible are named: the input, the element, what was possible.
#include "graph/integer_rules.hpp"

#include <gmock/gmock.h>

namespace cleave::graph {
namespace {

constexpr const char* kText = R"(
graph requests {
  input rows: f32[10, 4]
  input cache: f32[24, 4]
  input row_begin: i32[4]
  input page_begin: i32[4]
  input pages: i32[5]
  input lengths: i64[3]
  R = ragged(rows, cast(row_begin, dtype=i64), max=[6])
  P = paged(cache, page_begin, pages, lengths, page=8, max=[16])
  output packed = ragged_pack(R, row_begin, rows=[10])
  output sums = sum(P, axes=[1])
})";

using Integers = std::vector<std::vector<int64_t>>;  // of the inputs; empty for those that are no integers

std::string checked(const Integers& given) {
  const SourceText source{"requests.graph", kText};
  auto parsed = parse(source);
  CHECK(parsed.ok(), "{}", render(parsed.errors(), &source));
  std::vector<int64_t> counts;
  for (const auto& list : given) counts.push_back(static_cast<int64_t>(list.size()));
  const Diagnostics bad = check_integers(*parsed, integer_rules(*parsed), counts, [&](size_t input, int64_t i) {
    return given[input].at(static_cast<size_t>(i));
  });
  return render(bad, nullptr);
}

const Integers kRight = {{}, {}, {0, 4, 4, 10}, {0, 2, 3, 4}, {2, 0, 1, 1, 99}, {16, 8, 0}};

TEST(IntegerRules, RightIntegersAreAccepted) {
  // The last page belongs to no request: nobody reads its number.
  EXPECT_EQ(checked(kRight), "");
}

TEST(IntegerRules, EveryBrokenRuleIsNamed) {
  struct Case {
    size_t input, element;
    int64_t value;
    const char* why;
  };
  const Case cases[] = {
      {2, 1, -1, "`row_begin`: its element 1 is -1, below the one before it (0)"},
      {2, 2, 3, "`row_begin`: its element 2 is 3, below the one before it (4)"},
      {2, 3, 11, "`row_begin`: its element 3 is 11, there are 10 rows"},
      {2, 1, 7, "`row_begin`: request 0 has 7 rows, 6 at most are possible"},
      {3, 3, 6, "`page_begin`: its element 3 is 6, there are 5 rows"},
      {4, 0, 3, "`pages`: its element 0 is 3, outside 0..3"},
      {4, 3, -2, "`pages`: its element 3 is -2, outside 0..3"},
      {5, 2, -1, "`lengths`: its element 2 is -1, a length from 0 to 16 is needed"},
      {5, 0, 17, "`lengths`: its element 0 is 17, a length from 0 to 16 is needed"},
  };
  for (const Case& c : cases) {
    Integers given = kRight;
    given[c.input][c.element] = c.value;
    EXPECT_THAT(checked(given), ::testing::HasSubstr(c.why));
  }
}

}  // namespace
}  // namespace cleave::graph
