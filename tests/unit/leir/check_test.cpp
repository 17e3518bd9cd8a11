#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/codes.hpp"
#include "leir/program.hpp"

using namespace cleave;
using namespace cleave::leir;

namespace {

// Short programs: `A_{a}` stands for `A^{f32,g}_{a}`.
std::string spelt(const std::string& text) {
  std::string out;
  bool header = true;
  for (size_t i = 0; i < text.size(); ++i) {
    out += text[i];
    if (text[i] == '[' && i > 0 && text[i - 1] == '}') header = false;
    const bool name = text[i] >= 'A' && text[i] <= 'Z' && text[i] != 'L' && text[i] != 'P' && text[i] != 'V' &&
                      text[i] != 'U' && text[i] != 'B';
    const char next = i + 1 < text.size() ? text[i + 1] : ' ';
    if (!header && name && next != '^' && !(next >= 'a' && next <= 'z')) out += "^{f32,g}";
  }
  return out;
}

Checked run(const std::string& text) {
  Parsed p = parse(SourceText{"p.leir", spelt(text)});
  EXPECT_TRUE(p.ok()) << spelt(text) << "\n" << render(p.messages, nullptr);
  return check(std::move(p.syntax));
}
bool has(const Checked& c, Code code) {
  for (const auto& d : c.messages)
    if (d.code == code) return true;
  return false;
}
std::string why(const Checked& c) { return render(c.messages, nullptr); }

#define ACCEPTS(text)                                     \
  do {                                                    \
    const Checked c_ = run(text);                         \
    EXPECT_TRUE(c_.program) << (text) << "\n" << why(c_); \
  } while (false)
#define REFUSES(text, code)                                        \
  do {                                                             \
    const Checked c_ = run(text);                                  \
    EXPECT_FALSE(c_.program) << (text);                            \
    EXPECT_TRUE(has(c_, Code::code)) << (text) << "\n" << why(c_); \
  } while (false)

TEST(Check, ResolvesNamesScopesAndRanks) {
  const std::string h = "in A f32[4];out C f32[4];";
  ACCEPTS(h + "L^{4}_{a=0}[C_{a}=A_{a}*2;];");
  REFUSES(h + "L^{4}_{a=0}[C_{a}=A_{c};];", leir_unbound);
  REFUSES(h + "L^{4}_{a=0}L^{4}_{a=0}[C_{a}=A_{a};];", leir_rebound);                    // A11
  ACCEPTS(h + "L^{4}_{a=0}[D_{a}=A_{a};];L^{4}_{a=0}[C_{a}=D_{a};];");                   // A12
  REFUSES(h + "L^{4}_{a=0}[D^{f32,s}_{a}=A_{a};C_{a}=D^{f32,g}_{a};];", leir_variable);  // A14
  REFUSES(h + "L^{4}_{a=0}[D_{a}=A_{a};C_{a}=D^{f16,g}_{a};];", leir_variable);
  REFUSES(h + "L^{4}_{a=0}[D_{a}=A_{a};C_{a}=D_{a,a};];", leir_variable);
  REFUSES(h + "L^{4}_{a=0}[C_{a}=A^{f32,s}_{a};];", leir_known);
  REFUSES(h + "L^{4}_{a=0}[A_{a}=1;C_{a}=A_{a};];", leir_known);
  REFUSES("in A f32[N];out C f32[4];L^{4}_{a=0}[C_{a}=A_{a};];", leir_unbound_dim);
  REFUSES("L^{4}_{a=0}[C^{f32,g}_{a}=1;];", leir_no_header);
  REFUSES("in A f32[4] range 0..3;out C f32[4];L^{4}_{a=0}[C_{a}=A_{a};];", leir_header);
}

TEST(Check, InfersShapesFromTheUnionOfWrites) {
  const Checked c = run("in A f32[7];out C f32[1];L^{7}_{a=0}[D_{6-a}=A_{a};];B^{1}_{tx=0}[C_{tx}=D_{6};];");
  ASSERT_TRUE(c.program) << why(c);
  EXPECT_EQ(c.program->variables()[*c.program->find("D")].shape, (std::vector<int64_t>{7}));
  // Row 28: 3x8 and 5x2 make 5x8, and the corner that nobody wrote is not read.
  const Checked d =
      run("in A f32[8];out C f32[3,8];L^{3}_{a=0}L^{8}_{c=0}[D_{a,c}=A_{c};];L^{5}_{a=0}L^{2}_{c=0}[D_{a,c}=1;];"
          "L^{3}_{a=0}L^{8}_{c=0}[C_{a,c}=D_{a,c};];");
  ASSERT_TRUE(d.program) << why(d);
  EXPECT_EQ(d.program->variables()[*d.program->find("D")].shape, (std::vector<int64_t>{5, 8}));
  REFUSES("in A f32[4];out C f32[4];L^{4}_{a=0}[D_{a-1}=A_{a};C_{a}=1;];", leir_bounds);
}

TEST(Check, ProvesBoundsUnderGuards) {
  ACCEPTS("in A f32[7];out C f32[9];L^{9}_{c=0}[C_{c}=if_then_else(1<=c<8,A_{c-1},0);];");
  ACCEPTS(
      "in A f32[8];out C "
      "f32[5];L^{5}_{h=0}L^{3}_{k=0}[C_{h}=C_{h}+if_then_else(0<=h*2+k-1&h*2+k-1<8,A_{h*2+k-1},0);];");
  ACCEPTS("in A f32[7];out C f32[9];L^{9}_{c=0}[C_{c}=if_then_else(c<1|c>=8,0,A_{c-1});];");
  ACCEPTS("in A f32[3,4];out C f32[12];L^{12}_{c=0}[C_{c}=A_{c//4,c%4};];");
  REFUSES("in A f32[4];out C f32[4];L^{4}_{a=0}[C_{a}=A_{a+1};];", leir_bounds);
  REFUSES("in A f32[4];out C f32[3];L^{4}_{a=0}[C_{a}=A_{a};];", leir_bounds);
  EXPECT_THAT(
      why(run("in A f32[7];out C f32[7];L^{2}_{a=0}L^{4}_{c=0}[C_{a*4+c}=if_then_else(a*4+c<7,A_{a*4+c},0);];")),
      testing::HasSubstr("a loop over a tile that is cut short has the extent min(size,extent-tile*size)"));
  // The wrong branch proves nothing: the run checks it.
  const Checked c = run("in A f32[7];out C f32[9];L^{9}_{c=0}[C_{c}=if_then_else(1<=c<8,0,A_{c-1});];");
  EXPECT_TRUE(has(c, Code::leir_unchecked)) << why(c);
  // Data-dependent subscripts are checked when the program runs, unless their range is declared.
  EXPECT_TRUE(
      has(run("in A f32[9];in I i64[4];out C f32[4];L^{4}_{a=0}[C_{a}=A_{I^{i64,g}_{a}};];"), Code::leir_unchecked));
  EXPECT_TRUE(
      run("in A f32[9];in I i64[4] range 0..8;out C f32[4];L^{4}_{a=0}[C_{a}=A_{I^{i64,g}_{a}};];").messages.empty());
}

// Only what certainly lies outside is an error; what is open is followed, or left to the run.
TEST(Check, RefusesWritesThatCertainlyLieOutside) {
  const std::string h = "in A f32[3,3];out X f32[5];";
  const std::string all = "L^{5}_{a=0}[X_{a}=0;];";
  const auto has_text = [&](const std::string& text, const std::string& what) {
    EXPECT_THAT(why(run(text)), testing::HasSubstr(what)) << text;
  };
  // The largest is 4: where `a` is 2 nothing runs.
  const Checked c = run(h + "L^{3}_{a=0}L^{min(3,5-a*3)}_{c=0}[X_{c*2+a}=A_{c,a};];" + all);
  ASSERT_TRUE(c.program) << why(c);
  EXPECT_TRUE(c.messages.empty()) << why(c);
  EXPECT_FALSE(c.program->needs_checks());
  has_text(h + "L^{3}_{a=0}L^{min(3,5-a*2)}_{c=0}[X_{c*2+a}=A_{c,a};];" + all, "it reaches (5), the extents are (5)");
  has_text(h + "L^{3}_{a=0}L^{a+1}_{c=0}[X_{a+c+1}=A_{c,a};];" + all, "subscript 1 reaches 5, the extent is 5");
  has_text(h + "L^{3}_{a=0}L^{3-a}_{c=0}[X_{a*3-c}=A_{c,a};];" + all, "subscript 1 reaches -2");
  // Not at the ends of the loops, but followed.
  has_text(h + "L^{3}_{a=0}L^{3}_{c=0}[X_{if_then_else(a==1,5,0)}=A_{c,a};];" + all,
           "it reaches (5), the extents are (5)");
  has_text(h + "L^{3}_{a=0}L^{1+a*(2-a)*3}_{c=0}[X_{c+2}=A_{0,a};];" + all, "it reaches (5), the extents are (5)");
  // What depends on data is left to the run, and said.
  const Checked d = run("in N i64[] range 1..9;" + h + "L^{N^{i64,g}}_{a=0}[X_{a}=0;];" + all);
  ASSERT_TRUE(d.program) << why(d);
  EXPECT_TRUE(d.program->needs_checks());
  EXPECT_TRUE(has(d, Code::leir_unchecked)) << why(d);
  EXPECT_TRUE(has(run("in I i64[3];" + h + all + "L^{3}_{a=0}[X_{I^{i64,g}_{a}}=0;];"), Code::leir_unchecked));
  REFUSES("in N i64[] range 5..9;" + h + "L^{N^{i64,g}}_{a=0}[D_{a-6}=0;];" + all, leir_bounds);
}

TEST(Check, BoundsWhatConditionsChoose) {
  const std::string h = "in A f32[9];in I i64[] range 0..3;out X f32[1];L^{1}_{f=0}[X_{f}=0;];L^{1}_{f=0}L^{3}_{a=0}";
  for (const char* extent : {"if_then_else(a<1,1,2)", "if_then_else(a<1,1,a*4)", "abs(a-4)+1", "sign(a)+2", "(a<1)+1",
                             "(a<1|a>1)+1", "if_then_else(I^{i64,g}<a,if_then_else(a<2,9,3),5)"}) {
    const Checked c = run(h + "L^{" + extent + "}_{c=0}[X_{f}=X_{f}+A_{c};];");
    EXPECT_TRUE(c.program) << extent << why(c);
    EXPECT_TRUE(c.messages.empty()) << extent << why(c);
  }
  EXPECT_TRUE(has(run(h + "L^{if_then_else(a<1,1,a*5)}_{c=0}[X_{f}=X_{f}+A_{c};];"), Code::leir_unchecked));
}

// Forms saturate, 64 bits wrap: neither may pass for the other.
TEST(Check, DoesNotTrustNumbersThatFormsCannotHold) {
  const std::string h = "in A f32[7];out C f32[7];L^{7}_{a=0}[C_{a}=";
  for (const char* at :
       {"a+9223372036854775807-4611686018427387904", "a+4611686018427387904+4611686018427387904-4611686018427387904",
        "a*4611686018427387904*2-a*4611686018427387904",
        "a-4611686018427387904-4611686018427387904+4611686018427387904"})
    EXPECT_TRUE(has(run(h + "A_{" + at + "};];"), Code::leir_unchecked)) << at;
  ACCEPTS(h + "A_{a+2305843009213693952-2305843009213693952};];");
}

TEST(Check, WantsEveryElementOfAnOutputWritten) {
  REFUSES("in A f32[4,3];out C f32[4,5];B^{4}_{tx=0}L^{3}_{a=0}[C_{tx,a*2}=A_{tx,a};];", leir_coverage);  // row 29
  ACCEPTS("in A f32[3];out C f32[6];L^{3}_{a=0}[C_{a*2}=A_{a};C_{a*2+1}=A_{a};];");
  ACCEPTS("in A f32[3];out C f32[6];L^{3}_{a=0}L^{2}_{c=0}[C_{a*2+c}=A_{a};];");
  REFUSES("in A f32[3];out C f32[6];L^{3}_{a=0}[C_{a}=A_{a};];", leir_coverage);
  REFUSES("in A f32[3];out C f32[6];out D f32[3];L^{3}_{a=0}[D_{a}=A_{a};];", leir_coverage);
}

TEST(Check, TilesWhoseLastOneIsCutShortCoverWhatTheyAreTilesOf) {
  // Too large to be followed element by element: the forms have to do it.
  const std::string h = "in A f32[1000001];out C f32[1000001];";
  ACCEPTS(h + "P^{125001}_{a=0}L^{min(8,1000001-a*8)}_{c=0}[C_{a*8+c}=A_{a*8+c};];");
  EXPECT_FALSE(run(h + "P^{125001}_{a=0}L^{min(8,1000001-a*8)}_{c=0}[C_{a*8+c}=A_{a*8+c};];").program->needs_checks());
  REFUSES(h + "L^{125001}_{a=0}L^{min(7,1000001-a*8)}_{c=0}[C_{a*8+c}=A_{a*8+c};];", leir_coverage);
  REFUSES(h + "L^{125000}_{a=0}L^{min(8,1000001-a*8)}_{c=0}[C_{a*8+c}=A_{a*8+c};];", leir_coverage);
  REFUSES(h + "L^{125001}_{a=0}L^{min(8,1000000-a*8)}_{c=0}[C_{a*8+c}=A_{a*8+c};];", leir_coverage);
  REFUSES(h + "L^{125001}_{a=0}L^{min(8,1000002-a*8)}_{c=0}[C_{a*8+c}=A_{a*8+c};];", leir_bounds);
  // A tile in memory of its own, written and read with equal extents; one that is read beyond is refused.
  ACCEPTS(h +
          "P^{125001}_{a=0}[L^{min(8,1000001-a*8)}_{c=0}[D^{f32,s}_{c}=A_{a*8+c};];L^{min(8,1000001-a*8)}_{d=0}[C_{a*8+"
          "d}=D^{f32,s}_{d};];];");
  REFUSES(
      h + "L^{125001}_{a=0}[L^{min(7,1000001-a*8)}_{c=0}[D^{f32,s}_{c}=A_{a*8+c};];L^{min(8,1000001-a*8)}_{d=0}[C_{a*8+"
          "d}=if_then_else(d<7,D^{f32,s}_{d},D^{f32,s}_{d-1});];];",
      leir_read_before_write);
  // A loop that may not run proves nothing.
  const std::string n = "in N i64[] range 0..3;in A f32[1000001];out C f32[1000001];";
  REFUSES(n + "L^{1000001}_{c=0}[L^{N^{i64,g}}_{a=0}[D^{f32,l}=A_{0};];C_{c}=D^{f32,l}+A_{c};];",
          leir_read_before_write);
}

TEST(Check, RecurrencesMayRunBesideSplitAxes) {
  // Too large to be followed element by element.
  const std::string h = "in A f32[1616,3721];out C f32[1616,3721];";
  ACCEPTS(h +
          "L^{61}_{a=0}B^{61}_{tx=0}L^{1616}_{c=0}[C_{c,a*61+tx}=if_then_else(c<1,0,C_{c-1,a*61+tx})+A_{c,a*61+tx};];");
  REFUSES(
      h + "L^{61}_{a=0}L^{61}_{d=0}L^{1616}_{c=0}[C_{c,a*61+d}=if_then_else(c<1,0,C_{c-1,a*61+60-d})+A_{c,a*61+d};];",
      leir_read_before_write);
  REFUSES(
      h + "L^{61}_{a=0}L^{61}_{d=0}L^{1616}_{c=0}[C_{c,a*61+d}=if_then_else(c<1615,C_{c+1,a*61+d},0)+A_{c,a*61+d};];",
      leir_read_before_write);
}

// Too large to be followed element by element: the forms have to show that each iteration writes what it reads.
TEST(Check, RecurrencesMayRunOverPrivateMemory) {
  const std::string h = "in A f32[40000,50];out C f32[40000,51];P^{40000}_{a=0}[";
  const auto own = [](std::string text) {
    for (size_t i = text.find("D_"); i != std::string::npos; i = text.find("D_", i)) text.replace(i, 1, "D^{f32,l}");
    return text;
  };
  const std::string out = "L^{51}_{c=0}[C_{a,c}=D_{c};];];";
  // Guarded, behind a first element, of the second order, and over rows that are read backwards.
  ACCEPTS(own(h + "L^{51}_{c=0}[D_{c}=if_then_else(c<1,0,D_{c-1}*2)+a;];" + out));
  ACCEPTS(own(h + "D_{0}=1;L^{50}_{c=0}[D_{c+1}=D_{c}*2+A_{a,c};];" + out));
  ACCEPTS(own(h + "D_{0}=1;D_{1}=2;L^{49}_{c=0}[D_{c+2}=D_{c+1}+D_{c};];" + out));
  ACCEPTS(
      own("in A f32[40000,50];out C f32[40000,51];P^{40000}_{a=0}[L^{51}_{d=0}[D_{0,d}=d;];L^{9}_{c=0}L^{51}_{d=0}["
          "D_{c+1,d}=D_{c,50-d}*2;];L^{51}_{d=0}[C_{a,d}=D_{9,d};];];"));
  // A number, and parts that several equations write.
  ACCEPTS(
      "in A f32[40000,50];out C f32[40000];P^{40000}_{a=0}[L^{50}_{c=0}[D^{f32,l}=if_then_else(c==0,0,D^{f32,l}*2)+A_{"
      "a,c};];C_{a}=D^{f32,l};];");
  ACCEPTS(own(h + "L^{20}_{c=0}[D_{c}=A_{a,c};];L^{31}_{c=0}[D_{c+20}=a;];" + out));
  // What the iteration before left behind is no private memory, and the message says so.
  for (const std::string& body :
       {"D_{0}=if_then_else(a<1,0,D_{50});L^{50}_{c=0}[D_{c+1}=D_{c}*2;];",
        "L^{50}_{c=0}[D_{c+1}=if_then_else(a<1,0,D_{c+1});];D_{0}=1;",
        "L^{49}_{c=0}[D_{c}=A_{a,c};];L^{51}_{c=0}[D_{c}=if_then_else(c<49|a<1,0,D_{c});];"}) {
    const Checked c = run(own(h + body + out));
    EXPECT_FALSE(c.program) << body;
    EXPECT_TRUE(has(c, Code::leir_read_before_write) ||
                why(c).find("each would have its own, but `D^{f32,l}_{") != std::string::npos)
        << why(c);
  }
  // In global memory the iterations share it: the scope is the way out.
  EXPECT_THAT(why(run(h + "D_{0}=1;L^{50}_{c=0}[D_{c+1}=D_{c}*2+A_{a,c};];" + out)),
              testing::HasSubstr("with the scope l each has its own `D`"));
}

// A loop that runs less often in the iteration before has not written everything there.
TEST(Check, RecurrencesReadWhatEarlierIterationsWrote) {
  const std::string h = "in A f32[900,900];out C f32[900];L^{900}_{a=0}[C_{a}=0;];";
  ACCEPTS(h + "L^{900}_{a=0}L^{900-a}_{c=0}[D_{a,c}=if_then_else(a<1,0,D_{a-1,c})+A_{a,c};];");
  REFUSES(h + "L^{900}_{a=0}L^{a+1}_{c=0}[D_{a,c}=if_then_else(a<1,0,D_{a-1,c})+A_{a,c};];", leir_read_before_write);
}

// What no form says is followed element by element where a program is small.
TEST(Check, FollowsMinimaAndConditionsOfSmallPrograms) {
  const std::string h = "in A f32[7];out C f32[7];";
  ACCEPTS(h + "L^{3}_{a=0}L^{3}_{c=0}[C_{min(a*3+c,6)}=A_{min(a*3+c,6)};];");
  ACCEPTS(h + "L^{2}_{a=0}L^{min(4,max(7-a*4,1))}_{c=0}[C_{a*4+c}=A_{a*4+c};];");
  REFUSES(h + "L^{2}_{a=0}L^{2}_{c=0}[C_{min(a*3+c,6)}=1;];", leir_coverage);
  ACCEPTS(h + "L^{7}_{d=0}[C_{d}=0;];L^{7}_{a=0}L^{3}_{c=0}[D=if_then_else(a<1&c<1,1,D)*A_{a};];");
  ACCEPTS(h + "L^{7}_{d=0}[C_{d}=0;];L^{7}_{a=0}L^{3}_{c=0}[D=if_then_else(a>0|c>0,D,1)*A_{a};];");
  REFUSES(h + "L^{7}_{d=0}[C_{d}=0;];L^{7}_{a=0}L^{3}_{c=0}[D=if_then_else(a>0&c>0,1,D)*A_{a};];",
          leir_read_before_write);
}

TEST(Check, KnowsAccumulatorsByTheirPlaceInTheChain) {
  auto kind = [](const std::string& value) {
    const Checked c = run("in A f32[4];in E f32[4];out C f32[1];L^{1}_{a=0}L^{4}_{c=0}[C_{a}=" + value + ";];");
    return c.program ? c.program->equations()[0].accumulation : Accumulation::none;
  };
  EXPECT_EQ(kind("C_{a}+A_{c}"), Accumulation::sum);
  EXPECT_EQ(kind("A_{c}+C_{a}"), Accumulation::sum);  // row 26
  EXPECT_EQ(kind("A_{c}*E_{c}-E_{c}+C_{a+0}"), Accumulation::sum);
  EXPECT_EQ(kind("C_{a}*A_{c}/E_{c}"), Accumulation::product);
  EXPECT_EQ(kind("max(A_{c},max(C_{a},E_{c}))"), Accumulation::maximum);
  EXPECT_EQ(kind("min(C_{a},A_{c})"), Accumulation::minimum);
  // No accumulators: these read what was never written.
  const std::string h = "in A f32[4];out C f32[1];L^{1}_{a=0}L^{4}_{c=0}[C_{a}=";
  for (const char* value : {"A_{c}-C_{a}", "A_{c}/C_{a}", "C_{a}+C_{a}", "exp(C_{a})+A_{c}", "C_{a}*A_{c}+1"})
    REFUSES(h + value + ";];", leir_read_before_write);
}

TEST(Check, RefusesReadsBeforeWrites) {
  const std::string h = "in A f32[4];out C f32[4];";
  REFUSES(h + "L^{4}_{a=0}[C_{a}=D_{a};];", leir_read_before_write);
  REFUSES(h + "L^{4}_{a=0}[C_{a}=C_{a-1}+A_{a};];", leir_bounds);  // row 25: a negative index
  ACCEPTS(h + "L^{4}_{a=0}[C_{a}=if_then_else(a-1<0,0,C_{a-1})+A_{a};];");
  REFUSES(h + "L^{4}_{a=0}[C_{a}=if_then_else(a+1>3,0,C_{a+1})+A_{a};];", leir_read_before_write);
  // Row 33: what fission made.
  REFUSES(h + "L^{4}_{a=0}[D_{a}=if_then_else(a-1<0,0,E_{a-1})+A_{a};];L^{4}_{a=0}[E_{a}=D_{a}*2;C_{a}=E_{a};];",
          leir_read_before_write);
  ACCEPTS(h + "L^{4}_{a=0}[D_{a}=if_then_else(a-1<0,0,E_{a-1})+A_{a};E_{a}=D_{a}*2;C_{a}=E_{a};];");
  // Row 9: D_{0} is written by the first nest.
  ACCEPTS(h + "L^{4}_{a=0}[D_{a}=exp(A_{a});];L^{4}_{a=0}[C_{a}=D_{a}+D_{0};];");
  // A second accumulation into parts of one variable has no first value (D12).
  REFUSES(
      "in A f32[4];out C "
      "f32[8];L^{4}_{a=0}L^{2}_{c=0}[C_{a}=C_{a}+A_{a}*c;];L^{4}_{a=0}L^{2}_{c=0}[C_{a+4}=C_{a+4}+A_{a}*c;];",
      leir_accumulator);
  ACCEPTS(
      "in A f32[4];out C f32[8];L^{8}_{a=0}[C_{a}=0;];L^{4}_{a=0}L^{2}_{c=0}[C_{a}=C_{a}+A_{a}*c;];"
      "L^{4}_{a=0}L^{2}_{c=0}[C_{a+4}=C_{a+4}+A_{a}*c;];");
}

// A first value is set where all reduction indices are 0: what is touched elsewhere only has none.
TEST(Check, WantsFirstValuesOfAllThatIsAccumulated) {
  const std::string h = "in A f32[700];in N i64[700] range 1..700;out X f32[700];";
  const std::string all = ";L^{700}_{c=0}[X_{c}=0;];";
  for (const char* body :
       {"L^{a+1}_{c=0}[X_{c}=X_{c}+A_{a};]", "L^{a+1}_{c=0}[X_{c}=X_{c}*A_{a};]",
        "L^{a+1}_{c=0}[X_{c}=max(A_{a},X_{c});]", "L^{min(700,a+2)}_{c=0}[X_{c}=min(X_{c},A_{a});]",
        "L^{N^{i64,g}_{a}}_{c=0}[X_{c}=X_{c}+A_{a};]", "L^{min(700,abs(a*2-1)+1)}_{c=0}[X_{c}=X_{c}+A_{a};]",
        "L^{2}_{d=0}L^{a+d+1}_{c=0}[D_{d,c}=D_{d,c}+A_{a};]",
        "[L^{a+1}_{c=0}[D^{f32,l}_{c}=D^{f32,l}_{c}+A_{a};];X_{a}=D^{f32,l}_{a};]"})
    for (const char* n : {"3", "800"}) {
      std::string text = h + "L^{700}_{a=0}" + body + all;
      for (size_t k = text.find("700"); k != std::string::npos; k = text.find("700")) text.replace(k, 3, n);
      REFUSES(text, leir_read_before_write);
    }
  // Loops that run less far later, tiles, first values of their own, and what only small programs show.
  ACCEPTS(h + "L^{700}_{a=0}L^{700-a}_{c=0}[X_{c}=X_{c}+A_{a};]" + all);
  ACCEPTS(
      "in A f32[999999];out X "
      "f32[8];L^{125000}_{a=0}L^{min(8,999999-a*8)}_{c=0}[X_{c}=X_{c}+A_{a*8+c};];L^{8}_{c=0}[X_{c}=0;];");
  ACCEPTS(h + "L^{700}_{c=0}[X_{c}=0;];L^{700}_{a=0}L^{a+1}_{c=0}[X_{c}=X_{c}+A_{a};];");
  ACCEPTS("in A f32[4];out X f32[4];L^{3}_{a=0}L^{4-(a*a)%2}_{c=0}[X_{c}=X_{c}+A_{a};];");
  // Where it is written is data that is another one by then.
  REFUSES(
      "in A f32[4];in I i64[4] range 0..3;out X f32[4];L^{4}_{a=0}[J^{i64,g}=I^{i64,g}_{a};X_{J^{i64,g}}=X_{J^{i64,g}}+"
      "A_{a};];L^{4}_{c=0}[X_{c}=0;];",
      leir_read_before_write);
}

TEST(Check, PlacesOfNestedBodiesAreTheirIterations) {
  ACCEPTS(
      "in A f32[4,5];out C "
      "f32[4,5];B^{4}_{tx=0}[L^{5}_{a=0}[D^{f32,l}_{a}=A_{tx,a};];L^{5}_{a=0}[C_{tx,a}=D^{f32,l}_{4-a};];];");
  REFUSES(
      "in A f32[4,5];out C "
      "f32[4,5];B^{4}_{tx=0}[L^{5}_{a=0}[C_{tx,a}=D^{f32,l}_{4-a};];L^{5}_{a=0}[D^{f32,l}_{a}=A_{tx,a};];];",
      leir_read_before_write);
}

TEST(Check, RefusesLoopsThatCarryDependences) {
  const std::string h = "in A f32[4];out C f32[4];";
  ACCEPTS(h + "P^{4}_{a=0}[C_{a}=A_{a};];");
  REFUSES(h + "P^{4}_{a=0}[C_{a}=if_then_else(a-1<0,0,C_{a-1})+A_{a};];", leir_dependence);
  REFUSES(h + "L^{4}_{a=0}P^{3}_{c=0}[C_{a}=A_{a}+c;];", leir_dependence);
  ACCEPTS("in A f32[4,3];out C f32[4];L^{4}_{a=0}P^{3}_{c=0}[C_{a}=C_{a}+A_{a,c};];");  // a reduction
  ACCEPTS("in A f32[8];out C f32[8];L^{2}_{g=0}B^{4}_{tx=0}[C_{g*4+tx}=A_{g*4+tx};];");
  REFUSES(
      "in A f32[8];out C "
      "f32[7];L^{2}_{g=0}B^{4}_{tx=0}[C_{g*3+tx}=A_{g*4+tx};];L^{7}_{a=0}[C_{a}=1;];P^{2}_{g=0}L^{4}_{a=0}[C_{g*3+a}=1;"
      "];",
      leir_dependence);
  // Row 13 with the loops exchanged, and row 10 as one nest.
  REFUSES(
      "in A f32[4,4];out C "
      "f32[4,4];V^{4}_{c=0}L^{4}_{a=0}[C_{a,c}=if_then_else(a-1<0,0,if_then_else(c+1>3,0,C_{a-1,c+1}))+A_{a,c};];",
      leir_read_before_write);
  REFUSES(
      "in A f32[4];out C f32[4];out E "
      "f32[4];L^{4}_{a=0}[D_{a}=A_{a};];B^{4}_{tx=0}[E_{tx}=if_then_else(tx-1<0,0,D_{tx-1});D_{tx}=A_{tx}*3;C_{tx}=1;]"
      ";",
      leir_dependence);
}

// A loop that its equation does not name repeats it only when the loops inside run as often each time.
TEST(Check, RefusesRacesOfLoopsThatShapeTheLoopsInside) {
  const std::string h = "in A f32[9];in N i64[4] range 0..3;out X f32[];";
  for (const char* kind : {"P^{3}_{a=0}", "V^{3}_{a=0}", "B^{3}_{tx=0}"})
    for (std::string rest :
         {"L^{3-i}_{d=0}[X=A_{d};];", "L^{3-i}_{d=0}[X=X+A_{d};];", "L^{min(4,9-i*4)}_{d=0}[X=max(X,A_{d});];",
          "[L^{2}_{d=0}[L^{2-i//2}_{f=0}[X=A_{d+f};];];];", "L^{N^{i64,g}_{i}+1}_{d=0}[X=A_{d};];",
          "L^{min(3,abs(i-1)+1)}_{d=0}[X=A_{d};];"}) {
      for (size_t k = rest.find('i'); k != std::string::npos; k = rest.find('i', k + 1))
        if (rest[k + 1] != 'n' && rest[k + 1] != '6' && rest[k - 1] != 'm')
          rest.replace(k, 1, *kind == 'B' ? "tx" : "a");
      REFUSES(h + kind + rest, leir_dependence);
    }
  REFUSES("in A f32[5,4];out X f32[3];P^{2}_{c=0}L^{min(4,5-c*4)}_{d=0}L^{3}_{f=0}[X_{f}=A_{d,f};];", leir_dependence);
  // An extent that is one number throughout, one of an outer loop, and a sum over the loop itself.
  ACCEPTS(h + "B^{2}_{tx=0}L^{min(2,4-tx)}_{d=0}[X=A_{d};];");
  ACCEPTS("in A f32[4];out X f32[2];L^{2}_{a=0}P^{2}_{c=0}L^{2-a}_{d=0}[X_{a}=A_{d};];");
  ACCEPTS(h + "P^{3}_{a=0}L^{3-a}_{c=0}[X=X+A_{a+c};];");
}

// Subscripts that no form tells apart may name one element twice; what differs by more than their range does not.
TEST(Check, RefusesWritesThatMayMeet) {
  const std::string h = "in A f32[5];in I i64[5] range 0..4;out C f32[5];L^{5}_{d=0}[C_{d}=0;];";
  for (const char* kind : {"P", "V", "B"})
    for (const char* subscript :
         {"if_then_else(i<3,i,0)", "i*0", "i**0", "abs(i-2)", "clamp(i,0,2)", "sign(i)", "relu(i-2)", "square(i)%5",
          "i**2%5", "(i&1)*2", "(i==2)+0", "if_then_else(i<1,0,i-1)", "min(i,3)", "i//2", "I^{i64,g}_{i}",
          "I^{i64,g}_{4-i}", "I^{i64,g}_{I^{i64,g}_{i}}", "(I^{i64,g}_{i}+i)%5", "(i+I^{i64,g}_{i})//2"}) {
      const std::string index = *kind == 'B' ? "tx" : "a";
      std::string at = subscript;
      for (size_t k = at.find('i'); k != std::string::npos; k = at.find('i', k + 1))
        if ((k == 0 || !std::isalpha(at[k - 1])) && (k + 1 == at.size() || !std::isalnum(at[k + 1])) &&
            at[k + 1] != '6')
          at.replace(k, 1, index);
      const std::string text = h + kind + "^{5}_{" + index + "=0}[C_{" + at + "}=A_{" + index + "};];";
      REFUSES(text, leir_dependence);
    }
  // Data of an outer loop is one value inside.
  ACCEPTS(
      "in A f32[3,4];in I i64[3] range 0..5;out C f32[9];L^{9}_{d=0}[C_{d}=0;];"
      "L^{3}_{c=0}P^{4}_{a=0}[C_{I^{i64,g}_{c}+a}=A_{c,a};];");
  ACCEPTS("in A f32[4];out C f32[4];P^{4}_{a=0}[C_{clamp(a,0,3)}=A_{a};];");
}

TEST(Check, UnequalIsLessOrMoreAtTheEndOfARange) {
  ACCEPTS("in A f32[4];out C f32[4];L^{4}_{a=0}[C_{a}=if_then_else(a==0,0,C_{a-1})+A_{a};];");
  ACCEPTS("in A f32[4];out C f32[4];L^{4}_{a=0}[C_{a}=if_then_else(a!=3,A_{a+1},0);];");
  const Checked c = run("in A f32[9];in I i64[4];out C f32[4];L^{4}_{a=0}[C_{a}=A_{clamp(I^{i64,g}_{a},0,8)};];");
  EXPECT_TRUE(c.messages.empty()) << why(c);
}

TEST(Check, RefusesIdleLoopsInsideReductions) {
  REFUSES("in A f32[4];out C f32[1];L^{1}_{a=0}L^{4}_{c=0}L^{3}_{d=0}[C_{a}=C_{a}+A_{c};];", leir_idle);
  ACCEPTS("in A f32[4];out C f32[1];L^{3}_{d=0}L^{1}_{a=0}L^{4}_{c=0}[C_{a}=C_{a}+A_{c};];");
  EXPECT_THAT(why(run("in A f32[4];out C f32[1];L^{1}_{a=0}L^{4}_{c=0}L^{3}_{d=0}[C_{a}=C_{a}+A_{c};];")),
              testing::HasSubstr("it stands inside `c`, which is reduced over"));
  // With a first value of its own an accumulation runs as it is written: over tiles of what the iteration has.
  ACCEPTS("in A f32[4];out C f32[1];L^{1}_{f=0}[C_{f}=0;];L^{1}_{a=0}L^{4}_{c=0}L^{3}_{d=0}[C_{a}=C_{a}+A_{c};];");
  ACCEPTS(
      "in A f32[9,24];out C "
      "f32[9];B^{9}_{tx=0}[M^{f32,l}=0;L^{3}_{a=0}[L^{8}_{c=0}[D^{f32,s}_{tx,c}=A_{tx,a*8+c};];L^{8}_{c="
      "0}[M^{f32,l}=M^{f32,l}+D^{f32,s}_{tx,c};];];C_{tx}=M^{f32,l};];");
  EXPECT_TRUE(has(run("in A f32[4];out C f32[1];L^{4}_{c=0}[D_{c}=A_{c};L^{1}_{a=0}[C_{a}=C_{a}+D_{c};];];"),
                  Code::leir_outer_reduction));
}

TEST(Check, KeepsToTheLimitsOfADevice) {
  REFUSES("in A f32[2000];out C f32[2000];B^{2000}_{tx=0}[C_{tx}=A_{tx};];", leir_extent);
  REFUSES("in A f32[2,3];out C f32[2,3];B^{2}_{tx=0}B^{3}_{txa=0}[C_{tx,txa}=A_{tx,txa};];", leir_extent);  // row 14
  REFUSES("in A f32[64,64];out C f32[64,64];B^{64}_{tx=0}B^{64}_{ty=0}[C_{tx,ty}=A_{tx,ty};];", leir_extent);
  ACCEPTS("in A f32[2000];out C f32[2000];B^{2000}_{bx=0}B^{1}_{tx=0}[C_{bx}=A_{bx};];");
}

TEST(Check, ReportsWhatIsKeptInGlobalMemory) {
  const Checked c =
      run("in A f32[4];out C f32[4];B^{4}_{tx=0}[M^{f32,l}_{tx}=A_{tx};];B^{4}_{tx=0}[C_{tx}=M^{f32,l}_{tx};];");
  ASSERT_TRUE(c.program) << why(c);
  EXPECT_TRUE(has(c, Code::leir_demoted));
  EXPECT_TRUE(c.program->variables()[*c.program->find("M")].demoted);
  EXPECT_FALSE(
      has(run("in A f32[4];out C f32[4];B^{4}_{tx=0}[M^{f32,l}=A_{tx};C_{tx}=M^{f32,l};];"), Code::leir_demoted));
}

TEST(Check, GivesEveryOperationAType) {
  const std::string h = "in A f32[4];in I i64[4];in H u64[4];out C f32[4];L^{4}_{a=0}[C_{a}=";
  REFUSES(h + "A_{a}%2;];", leir_type);
  REFUSES(h + "A_{a}//2;];", leir_type);
  REFUSES(h + "H^{u64,g}_{a}+I^{i64,g}_{a};];", leir_type);
  REFUSES(h + "A_{a/2};];", leir_type);
  REFUSES(h + "max(I^{i64,g}_{a},-inf);];", leir_type);
  ACCEPTS(h + "I^{i64,g}_{a}%2+a/2+1/2;];");
  REFUSES("in A f32[4];out C i64[4];L^{4}_{a=0}[C^{i64,g}_{a}=inf;];", leir_type);
}

TEST(Check, TakesExtentsThatAreExpressions) {
  REFUSES("in A f32[4];in N i64[];out C f32[4];L^{N^{i64,g}}_{a=0}[C_{a}=A_{a};];", leir_extent);
  ACCEPTS(
      "in A f32[4];in N i64[] range 1..4;out C "
      "f32[1];L^{1}_{c=0}[C_{c}=0;];L^{1}_{c=0}L^{N^{i64,g}}_{a=0}[C_{c}=C_{c}+A_{a};];");
  REFUSES("in A f32[4];in N i64[] range 0..4;out C f32[1];L^{1}_{c=0}L^{N^{i64,g}}_{a=0}[C_{c}=C_{c}+A_{a};];",
          leir_extent);
  ACCEPTS("in A f32[4,4];out C f32[4];L^{4}_{a=0}L^{a+1}_{c=0}[C_{a}=C_{a}+A_{a,c};];");
}

TEST(Bind, PutsValuesIn) {
  Parsed p =
      parse(SourceText{"p", "in A f32[N];in N i64[];out C f32[N];L^{N^{i64,g}}_{a=0}[C^{f32,g}_{a}=A^{f32,g}_{a};];"});
  ASSERT_TRUE(p.ok());
  const auto s = bind(p.syntax, {{"N", 5}});
  ASSERT_TRUE(s.ok());
  EXPECT_TRUE(check(*s).program) << render(check(*s).messages, nullptr);
  EXPECT_EQ(bind(p.syntax, {{"A", 5}}).errors()[0].code, Code::leir_unbound_dim);
}

TEST(Check, BoundsTheNumberOfEquations) {
  std::string text = "in A f32[4];out C f32[4];L^{4}_{a=0}[";
  for (int i = 0; i < 5000; ++i) text += "C_{a}=A_{a};";
  REFUSES(text + "];", leir_too_large);
  EXPECT_FALSE(
      bind(parse(SourceText{"p", "in A f32[N];in N i64[];out C f32[1];L^{1}_{a=0}[C^{f32,g}_{a}=1;];"}).syntax,
           {{"N", -1}})
          .ok() &&
      check(*bind(parse(SourceText{"p", "in A f32[N];in N i64[];out C f32[1];L^{1}_{a=0}[C^{f32,g}_{a}=1;];"}).syntax,
                  {{"N", -1}}))
          .program);
}

TEST(Dependence, GivesDistances) {
  const Checked c =
      run("in A f32[4,4];out C f32[4,4];L^{4}_{a=0}L^{4}_{c=0}[C_{a,c}=if_then_else(a<1|c>2,0,C_{a-1,c+1})+A_{a,c};];");
  ASSERT_TRUE(c.program) << why(c);
  const auto d = dependences(*c.program, 1, 1);
  ASSERT_EQ(d.size(), 1u);
  // The read at (a, c) meets the write at (a - 1, c + 1): one iteration later, one column earlier.
  EXPECT_EQ(d[0].distance, (std::vector<std::optional<int64_t>>{1, -1}));
}

TEST(Key, IsEqualForProgramsThatDifferInNamesOnly) {
  const Checked a = run("in A f32[4];out C f32[4];L^{4}_{a=0}[D_{a}=A_{a};C_{a}=D_{a};];");
  const Checked b = run("in A f32[4];out C f32[4];L^{4}_{h=0}[E_{h}=A_{h};C_{h}=E_{h};];");
  const Checked c = run("in A f32[4];out C f32[4];L^{4}_{h=0}[E_{h}=A_{h}+1;C_{h}=E_{h};];");
  EXPECT_EQ(canonical_key(*a.program), canonical_key(*b.program));
  EXPECT_NE(canonical_key(*a.program), canonical_key(*c.program));
}

}  // namespace
