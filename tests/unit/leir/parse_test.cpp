#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/codes.hpp"
#include "leir/syntax.hpp"

using namespace cleave;
using namespace cleave::leir;

namespace {

Parsed read(const std::string& text, ParseOptions o = {}) { return parse(SourceText{"p.leir", text}, o); }
std::string why(const Parsed& p) { return render(p.messages, nullptr); }
bool has(const Parsed& p, Code c) {
  for (const auto& d : p.messages)
    if (d.code == c) return true;
  return false;
}
// The expression behind `C=` in a small nest.
std::string expr(const std::string& text) {
  const Parsed p = read("L^{4}_{a=0}L^{4}_{c=0}[C^{f32,g}_{a}=" + text + ";];");
  EXPECT_TRUE(p.ok()) << text << "\n" << why(p);
  return p.ok() ? print(p.syntax, p.syntax.items[1].value) : "";
}

TEST(Parse, PrintsTheCanonicalForm) {
  const std::string text =
      "in A f32[4,5];\nout C f32[4] range "
      "0..3;\nB^{4}_{tx=0}L^{5}_{a=0}[C^{f32,g}_{tx}=C^{f32,g}_{tx}+A^{f32,g}_{tx,a};"
      "];\n";
  const Parsed p = read(text);
  ASSERT_TRUE(p.ok()) << why(p);
  EXPECT_EQ(print(p.syntax), text);
  EXPECT_EQ(print(p.syntax, Style::compact),
            "B^{4}_{tx=0}L^{5}_{a=0}[C^{f32,g}_{tx}=C^{f32,g}_{tx}+A^{f32,g}_{tx,a};];");
}

TEST(Parse, ReadsEitherOrderOfSuperscriptAndSubscript) {
  const Parsed p = read("L_{a=0}^{4}[C_{a}^{f32,g}=A_{a}^{f32,g};]");
  ASSERT_TRUE(p.ok()) << why(p);
  EXPECT_EQ(print(p.syntax), "L^{4}_{a=0}[C^{f32,g}_{a}=A^{f32,g}_{a};];\n");
}

TEST(Parse, KeepsParenthesesExactlyWhereTheyMatter) {
  EXPECT_EQ(expr("((a+c)+1)"), "a+c+1");
  EXPECT_EQ(expr("a+(c+1)"), "a+(c+1)");
  EXPECT_EQ(expr("a-(c-1)"), "a-(c-1)");
  EXPECT_EQ(expr("(a*c)//2%3"), "a*c//2%3");
  EXPECT_EQ(expr("a*(c//2)"), "a*(c//2)");
  EXPECT_EQ(expr("-a**2"), "-a**2");
  EXPECT_EQ(expr("(-a)**2"), "(-a)**2");
  EXPECT_EQ(expr("a**-c**2"), "a**-c**2");
  EXPECT_EQ(expr("(a**c)**2"), "(a**c)**2");
  EXPECT_EQ(expr("a+-c"), "a+-c");
  EXPECT_EQ(expr("--a"), "--a");
  EXPECT_EQ(expr("+a*+c"), "a*c");
  EXPECT_EQ(expr("-1"), "-1");
  EXPECT_EQ(expr("1e-05+2.50+1e5+3."[0] == '1' ? "1e-05+2.50" : ""), "1e-05+2.5");
  EXPECT_EQ(expr("2.0"), "2.0");
  EXPECT_EQ(expr("-inf"), "-inf");
}

TEST(Parse, ReadsChainsOfComparisonsAsOne) {
  EXPECT_EQ(expr("if_then_else(2<=c<9&(a==1|c!=2),a,c)"), "if_then_else(2<=c<9&(a==1|c!=2),a,c)");
  EXPECT_EQ(expr("(a<c)<1"), "(a<c)<1");
  EXPECT_EQ(expr("a<(c<1)"), "a<(c<1)");
  EXPECT_NE(structure(read("L^{4}_{a=0}[C^{f32,g}=a<2<3;];").syntax),
            structure(read("L^{4}_{a=0}[C^{f32,g}=(a<2)<3;];").syntax));
}

TEST(Parse, ReadsNestedBodiesAndBothChainForms) {
  const std::string nested = "L^{2}_{a=0}[C^{f32,g}_{a}=1;L^{3}_{c=0}[D^{f32,g}_{a,c}=2;];];";
  const Parsed p = read(nested);
  ASSERT_TRUE(p.ok()) << why(p);
  const Parsed q = read("L^{2}_{a=0}[C^{f32,g}_{a}=1;]L^{3}_{c=0}[D^{f32,g}_{a,c}=2;];");
  ASSERT_TRUE(q.ok()) << why(q);
  EXPECT_TRUE(has(q, Code::leir_chain));
  EXPECT_EQ(structure(p.syntax), structure(q.syntax));
  EXPECT_EQ(print(q.syntax, Style::compact), nested);
  const Parsed three = read("L^{2}_{a=0}[C^{f32,g}_{a}=1;]L^{3}_{c=0}[D^{f32,g}_{a,c}=2;]L^{2}_{d=0}[E^{f32,g}=1;]");
  ASSERT_TRUE(three.ok()) << why(three);
  EXPECT_EQ(print(three.syntax, Style::compact),
            "L^{2}_{a=0}[C^{f32,g}_{a}=1;L^{3}_{c=0}[D^{f32,g}_{a,c}=2;L^{2}_{d=0}[E^{f32,g}=1;];];];");
  EXPECT_FALSE(read("L^{2}_{a=0}[C^{f32,g}_{a}=1;]L^{3}_{a=0}[D^{f32,g}_{a}=2;];").ok());
  EXPECT_TRUE(has(read("L^{2}_{a=0}[C^{f32,g}_{a}=1;]L^{3}_{c=0}[D^{f32,g}_{c}=2;];", {.strict = true}),
                  Code::leir_missing_semicolon));
}

TEST(Parse, WarnsWhereABlankJoinsWords) {
  const Parsed p = read("L^{4}_{a=0}[C^{f 32, g}_{a} = 1e -05 * * 2 ;];");
  EXPECT_TRUE(p.ok()) << why(p);
  EXPECT_TRUE(has(p, Code::leir_blank));
  const Parsed fine = read("in A f32[4];\nL^{4}_{a=0} [ C^{f32,g}_{a} = A^{f32,g}_{a} * 2 ; ];");
  EXPECT_TRUE(fine.ok());
  EXPECT_TRUE(fine.messages.empty()) << why(fine);
  EXPECT_EQ(expr("1e -05"), "1e-05");
}

TEST(Parse, ReadsHeadersWithAndWithoutBlanks) {
  const Parsed p = read("inAbf16[2,N];paramNi64[]range1..8;outCf32[N];L^{2}_{a=0}[C^{f32,g}_{a}=1;];");
  ASSERT_TRUE(p.ok()) << why(p);
  ASSERT_EQ(p.syntax.header.size(), 3u);
  EXPECT_EQ(p.syntax.text(p.syntax.header[0].name), "A");
  EXPECT_EQ(p.syntax.header[0].type, Type::bf16);
  EXPECT_EQ(print(read(print(p.syntax)).syntax), print(p.syntax));
  EXPECT_TRUE(has(read("in A f32[2];in A f32[2];L^{2}_{a=0}[C^{f32,g}_{a}=1;];"), Code::leir_header));
  EXPECT_FALSE(read("foo A f32[2];L^{2}_{a=0}[C^{f32,g}_{a}=1;];").ok());
}

TEST(Parse, SaysWhatIsWrongAndGoesOn) {
  const SourceText source{"p.leir", "L^{4}_{a=0}[C^{f32,g}_{a}=1+;D^{f32,g}_{a}=(2;E^{f32}=1;];"};
  const Parsed p = parse(source);
  EXPECT_FALSE(p.ok());
  EXPECT_GE(p.messages.size(), 3u) << why(p);
  EXPECT_THAT(render(p.messages, &source), testing::HasSubstr("p.leir:1:29: error[CLV8001]"));
  EXPECT_TRUE(has(read("L^{4}_{a=0}[C^{f32,g}_{}=1;];"), Code::leir_expected));  // A16
  EXPECT_TRUE(has(read("L^{0}_{a=0}[C^{f32,g}_{a}=1;];"), Code::leir_number));   // A17
  EXPECT_TRUE(has(read("L^{4}_{a=1}[C^{f32,g}_{a}=1;];"), Code::leir_expected));
  EXPECT_TRUE(has(read("L^{4}_{tx=0}[C^{f32,g}_{tx}=1;];"), Code::leir_reserved));
  EXPECT_TRUE(has(read("B^{4}_{a=0}[C^{f32,g}_{a}=1;];"), Code::leir_reserved));
  EXPECT_TRUE(has(read("L^{4}_{e=0}[C^{f32,g}_{e}=1;];"), Code::leir_letters));
  EXPECT_TRUE(has(read("L^{4}_{a=0}[Ta^{f32,g}_{a}=1;];"), Code::leir_reserved));
  EXPECT_TRUE(has(read("L^{4}_{a=0}[C^{f32,g}_{a}=$;];"), Code::leir_character));
  EXPECT_TRUE(has(read("L^{4}_{a=0}[C^{f32,g}_{a}=99999999999999999999;];"), Code::leir_number));
  EXPECT_TRUE(has(read("L^{4}_{a=0}[C^{f32,g}_{a}=1e999;];"), Code::leir_number));
  EXPECT_TRUE(has(read("L^{4}_{a=0}[C^{f32,g}_{a}=tanh(1);];", {.paper = true}), Code::leir_dialect));
  EXPECT_FALSE(read("L^{4}_{a=0}[C^{f32,g}_{a}=1;").ok());
  EXPECT_FALSE(read("").ok());
  EXPECT_FALSE(read("L^{4}_{a=0}[];").ok());
  EXPECT_FALSE(read("L^{4}_{a=0}[C^{f32,g}_{a}=max(1);];").ok());
  EXPECT_FALSE(read("L^{4}_{a=0}[C^{f32,g}_{a}=max(1,2,3);];").ok());
  EXPECT_FALSE(read("L^{4}_{a=0}[1+C^{f32,g}_{a}=1;];").ok());
}

TEST(Parse, BoundsTheNumberOfMessages) {
  std::string text = "L^{4}_{a=0}[";
  for (int i = 0; i < 500; ++i) text += "C^{f32,g}=*;";
  const Parsed p = read(text + "];");
  EXPECT_LE(p.messages.size(), kMaxMessages + 1);
  EXPECT_TRUE(has(p, Code::leir_too_many));
}

TEST(Parse, HasNoLimitOnNesting) {
  const int n = 200000;
  const std::string text = "L^{4}_{a=0}[C^{f32,g}_{a}=" + std::string(n, '(') + "-a" + std::string(n, ')') + ";];";
  const Parsed p = read(text);
  ASSERT_TRUE(p.ok());
  EXPECT_EQ(print(p.syntax, Style::compact), "L^{4}_{a=0}[C^{f32,g}_{a}=-a;];");
  std::string nested = "L^{4}_{a=0}[C^{f32,g}_{a}=";
  for (int i = 0; i < n; ++i) nested += "exp(";
  nested += "a" + std::string(n, ')') + ";];";
  EXPECT_EQ(print(read(nested).syntax, Style::compact), nested);
  std::string nests;
  for (int i = 0; i < n; ++i) nests += "L^{4}_{a=0}[";
  nests += "C^{f32,g}_{a}=1;";
  for (int i = 0; i < n; ++i) nests += "];";
  EXPECT_EQ(print(read(nests).syntax, Style::compact), nests);
  EXPECT_EQ(structure(read(nests).syntax).size() > nests.size(), true);
}

TEST(Parse, RefusesTextsBeyondTheLimit) {
  EXPECT_TRUE(has(read(std::string(kMaxBytes + 1, ' ')), Code::leir_too_large));
}

TEST(Grammar, HasEveryRowOfTheTable) {
  const std::string g = gbnf();
  for (const FunctionInfo& f : all_functions()) EXPECT_THAT(g, testing::HasSubstr(std::string("\"") + f.name + "(\""));
  for (const char* word : {"\"bf16\"", "\"L\"", "\"//\"", "\"<=\"", "\"param\""})
    EXPECT_THAT(g, testing::HasSubstr(word));
  EXPECT_THAT(g, testing::Not(testing::HasSubstr("<dtype>")));
  EXPECT_THAT(gbnf(true), testing::Not(testing::HasSubstr("tanh")));
}

}  // namespace
