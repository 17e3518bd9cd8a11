// The text of tile programs: what is printed reads back as the same program, errors say where they are, and each law is
// broken once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tile/tile.hpp"

namespace cleave::tile {
namespace {

using ::testing::HasSubstr;

Program parsed(const std::string& text) {
  const SourceText source{"test.tile", text};
  auto p = parse(source);
  EXPECT_TRUE(p.ok()) << (p.ok() ? "" : render(p.errors(), &source));
  return std::move(p).value();
}

std::string errors_of(const std::string& text) {
  const SourceText source{"test.tile", text};
  const auto p = parse(source);
  return p.ok() ? "" : render(p.errors(), &source);
}

constexpr const char* kProgram = R"(tile "a program" {
  input x: f32[8, 4] argument 0
  input at: i64[3] argument 1
  const W: bf16[4, 6] argument 0
  scalar c: f32 argument 0
  packed P: bf16[4, 6] panel 4
  workspace w: f16[3, 4]
  workspace flat: f16[12] alias w
  scratch n: i32[4]
  scratch s: f32[8]
  scratch acc: f32[8, 6]
  output y: f32[3, 4] argument 0
  output any: bool[3] argument 1
  output z: f32[8, 6] argument 2
  kernel pack once {
    nest (k < 4, j < 6) {
      P[k, j] = W[k, j]
    }
  }
  kernel first {
    parallel i in 0..3 {
      nest (j < 4) {
        %0 = x[@at[i], j] if (logical_and(ge(at[i], 0:i64), lt(at[i], 8:i64)))
        w[i, j] = cast(mul(%0, c[]), f16)
        n[j] fresh += cast(floor(%0), i32)
        any[i] fresh |= isnan(%0)
      }
    }
  }
  kernel second {
    nest sequential (f < 12) {
      y[f//4, f%4] = flat[f]
    }
    nest (r < 8) {
      s[r] = -inf:f32
    }
    for r in 0..8 step 3 {
      for p in 0..2 {
        matmul acc[r, 4*p] (0, 1) = x[r, 0] (0, 1) * P[0, 4*p] (0, 1) size min(3, -r + 8), min(4, -4*p + 6), 4
        matmul acc[r, 4*p] (0, 1) += x[r, 0] (0, 1) * P[0, 4*p] (0, 1) size min(3, -r + 8), min(4, -4*p + 6), 4 scale s[r]
      }
    }
    nest (i < 8, j < 6) {
      z[i, j] = where(lt(index(i), index(j + 1)), acc[i, j], s[i])
    }
  }
}
)";

TEST(TileText, PrintsAProgramAsItWasWritten) { EXPECT_EQ(print(parsed(kProgram)), kProgram); }

TEST(TileText, TheExampleOfItsDocumentationIsAProgram) {
  std::ifstream in(CLEAVE_SOURCE_DIR "/docs/tile.md");
  std::stringstream text;
  text << in.rdbuf();
  const std::string page = text.str();
  const size_t begin = page.find("    tile row_norms"), end = page.find("## Grammar");
  ASSERT_LT(begin, end);
  parsed(page.substr(begin, end - begin));
}

TEST(TileText, ErrorsSayWhereTheyAre) {
  EXPECT_THAT(errors_of("tile t {\n  scratch a: f33[4]\n}"),
              HasSubstr("test.tile:2:14: error[CLV2010]: the dtype `f33` is not known"));
  EXPECT_THAT(errors_of("tile t { kernel k { nest () { a[] = 1.0:f32 } } }"), HasSubstr("`a` is not defined here"));
  EXPECT_THAT(errors_of("tile t { scratch a: f32 kernel k { nest () { a[] = sine(1.0:f32) } } }"),
              HasSubstr("the operator `sine` is not known"));
  EXPECT_THAT(errors_of("tile t { scratch a: f32 kernel k { nest () { a[] = add(1.0:f32) } } }"),
              HasSubstr("`add` takes 2 operands, 1 were given"));
  EXPECT_THAT(errors_of("tile t { kernel k { for i in 0..4 step 0 { } } }"), HasSubstr("a step is at least 1"));
  EXPECT_THAT(errors_of("tile t { } more"), HasSubstr("where the end of the text was expected"));
}

TEST(TileText, DeepNestingIsAnErrorAndNoCrash) {
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "neg(";
  EXPECT_THAT(errors_of("tile t { scratch a: f32 kernel k { nest () { a[] = " + deep), HasSubstr("levels of nesting"));
}

struct Law {
  const char* name;
  std::string from, to, message;
};

class TileLaw : public ::testing::TestWithParam<Law> {};

TEST_P(TileLaw, IsDemanded) {
  std::string text = kProgram;
  const size_t at = text.find(GetParam().from);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, GetParam().from.size(), GetParam().to);
  EXPECT_THAT(errors_of(text), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Laws, TileLaw,
    ::testing::Values(
        Law{"InputsAreReadOnly", "w[i, j] = cast", "x[i, j] = cast", "`x` is read only"},
        Law{"PackedIsWrittenOnce", "w[i, j] = cast(mul(%0, c[]), f16)", "P[i, j] = cast(%0, bf16)",
            "`P` is written by an ordinary kernel"},
        Law{"OnceWritesPackedOnly", "P[k, j] = W[k, j]", "z[k, j] = W[k, j]", "`z` is written by a `once` kernel"},
        Law{"OnceReadsConstants", "P[k, j] = W[k, j]", "P[k, j] = x[k, 0]", "a `once` kernel reads `x`"},
        Law{"PackedIsWrittenBeforeItIsRead", "P[k, j] = W[k, j]", "n[k] = 0:i32", "`P` is read before it is packed"},
        Law{"IndicesStayInside", "flat[f]", "flat[f + 12]", "`flat`: index f + 12 of axis 0 leaves 0..12"},
        Law{"LoadsHaveAllAxes", "flat[f]", "flat[f, 0]", "`flat` has 1 axes, 2 indices"},
        Law{"StoresHaveAllAxes", "s[r] = -inf:f32", "s[] = -inf:f32", "`s` has 1 axes, 0 indices"},
        Law{"StoresHaveTheDtype", "s[r] = -inf:f32", "s[r] = 1:i64", "`s` is stored as the wrong dtype"},
        Law{"OperandsHaveOneDtype", "mul(%0, c[])", "mul(%0, at[i])", "`mul` mixes f32 and i64"},
        Law{"FunctionsTakeTheirDtypes", "cast(floor(%0), i32)", "cast(floor(at[i]), i32)", "`floor` takes no i64"},
        Law{"GuardsAreBool", "if (logical_and(ge(at[i], 0:i64), lt(at[i], 8:i64)))", "if (at[i])",
            "a guard is no bool"},
        Law{"ConditionsAreBool", "where(lt(index(i), index(j + 1))", "where(index(i)",
            "`where` needs a bool condition"},
        Law{"OnlyCastsGiveHalves", "-inf:f32", "-inf:f16", "nothing but a cast gives f16"},
        Law{"DynamicIndicesAreWide", "@at[i]", "@n[i]", "an index of `x` is no i64"},
        Law{"LogicAccumulatesBools", "n[j] fresh += cast(floor(%0), i32)", "n[j] fresh |= cast(floor(%0), i32)",
            "`n` is accumulated by logic but is no bool"},
        Law{"FreshBelongsToAccumulations", "n[j] fresh +=", "n[j] fresh =", "`fresh` belongs to accumulations"},
        Law{"ParallelIsOutermost", "for p in 0..2", "parallel p in 0..2",
            "a parallel loop is not outermost or not the first"},
        Law{"ProductsAreReal", "scratch acc: f32[8, 6]", "scratch acc: i32[8, 6]", "a product of integers is a nest"},
        Law{"TilesHaveTheirAxes", "x[r, 0] (0, 1)", "x[r, 0] (0, 2)", "the tile of `x` has the wrong axes"},
        Law{"ColumnsAreContiguous", "P[0, 4*p] (0, 1)", "P[0, 4*p] (1, 0)", "the columns of B are not contiguous"},
        Law{"PanelsAreTakenFromTheirStart", "P[0, 4*p]", "P[0, 2*p]", "a tile of panels starts inside one"},
        Law{"ScalesAreWide", "scratch s: f32[8]", "scratch s: f16[8]", "the scale has the wrong dtype"},
        Law{"AliasesKeepPlaceAndDtype", "flat: f16[12] alias w", "flat: f32[12] alias w",
            "is no alias of an earlier dense buffer"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace cleave::tile
