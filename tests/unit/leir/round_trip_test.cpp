#include <gtest/gtest.h>

#include "support/leir_programs.hpp"

using namespace cleave;
using namespace cleave::leir;

namespace {

TEST(RoundTrip, HoldsForManyGeneratedPrograms) {
  for (uint64_t seed = 0; seed < 100'000; ++seed) {
    cleave::testing::Choices c(seed);
    const Syntax s = cleave::testing::LeirSyntaxGenerator(c).make();
    const std::string text = print(s);
    const Parsed p = parse(SourceText{"p.leir", text});
    ASSERT_TRUE(p.ok()) << "seed " << seed << "\n" << text << render(p.messages, nullptr);
    ASSERT_EQ(structure(p.syntax), structure(s)) << "seed " << seed << "\n" << text;
    ASSERT_EQ(print(p.syntax), text) << "seed " << seed;
  }
}

}  // namespace
