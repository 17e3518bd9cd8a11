// Where earlier translators, analyses and rewritings of LEIR went wrong (the weaknesses listed for the language, by
// their numbers): each row has its right answer. Rows 1 to 6 and 31 concern PyTorch:
// tests/python/leir_translate_test.py. Row 32 is the search's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/codes.hpp"
#include "driver/leir_native.hpp"
#include "driver/leir_verify.hpp"
#include "leir_eval/interpret.hpp"

namespace cleave::driver {
namespace {

using leir::Array;
using leir::Program;
using V = std::vector<double>;

// `A_{a}` and `A` stand for `A^{f32,g}_{a}` and `A^{f32,g}`; the header is left as it is.
std::string spelt(const std::string& header, const std::string& body) {
  std::string out = header;
  for (size_t i = 0; i < body.size(); ++i) {
    out += body[i];
    const bool name = std::isupper(static_cast<unsigned char>(body[i])) && !std::strchr("BLPTUV", body[i]);
    if (name && body.compare(i + 1, 2, "^{") != 0) out += "^{f32,g}";
  }
  return out;
}

leir::Checked checked(const std::string& text) {
  const leir::Parsed p = leir::parse(SourceText{"row", text});
  EXPECT_TRUE(p.ok()) << text << render(p.messages, nullptr);
  return leir::check(p.syntax);
}
Program program(const std::string& header, const std::string& body) {
  leir::Checked c = checked(spelt(header, body));
  EXPECT_TRUE(c.program) << body << "\n" << render(c.messages, nullptr);
  return std::move(*c.program);
}

struct Refused {
  int row;
  const char *header, *body;
  Code code;
};

TEST(Rows, IllegalProgramsAreRefused) {
  const Refused kRows[] = {
      {9, "in A f32[4];out C f32[4];", "L^{4}_{a=0}[C_{a}=exp(A_{a})+D_{0};];", Code::leir_read_before_write},
      {10, "in A f32[4];out E f32[4];out D f32[4];",
       "B^{4}_{tx=0}[D_{tx}=A_{tx};];B^{4}_{tx=0}[E_{tx}=if_then_else(tx-1<0,0,D_{tx-1});D_{tx}=A_{tx}*3;];",
       Code::leir_dependence},
      {11, "in A f32[4];out C f32[4];", "B^{4}_{tx=0}[D_{tx}=A_{tx};C^{f32,l}_{tx}=D_{tx};];", Code::leir_known},
      {12, "in A f32[48];out C f32[48];",
       "L^{2}_{g=0}L^{2}_{g=0}B^{4}_{tx=0}L^{3}_{a=0}[C_{g*24+tx*6+g*3+a}=A_{g*24+tx*6+g*3+a}*2;];",
       Code::leir_rebound},
      {13, "in A f32[3,5,5];out D f32[3,5,5];",
       "B^{3}_{tx=0}L^{5}_{c=0}L^{5}_{a=0}[D_{tx,a,c}=if_then_else(a-1<0,0,if_then_else(c+1>4,0,D_{tx,a-1,c+1}))+"
       "A_{tx,a,c};];",
       Code::leir_read_before_write},
      {14, "in A f32[2,3,5];out C f32[2,3,5];", "B^{2}_{tya=0}B^{3}_{tyc=0}L^{5}_{d=0}[C_{tya,tyc,d}=A_{tya,tyc,d};];",
       Code::leir_extent},
      {18, "in A f32[3,4];in E f32[4];out C f32[3];out H f32[3];",
       "B^{3}_{tx=0}L^{4}_{a=0}[C_{tx}=C_{tx}+A_{tx,a}*E_{a};];", Code::leir_coverage},
      {19, "in A f32[3,4];in E f32[2,4];out C f32[3,2];",
       "B^{3}_{tx=0}L^{2}_{a=0}L^{4}_{c=0}[C_{tx,a}=C_{tx,a}+A_{tx,c}*E_{c,a};];", Code::leir_bounds},
      {25, "in A f32[4];out C f32[4];", "L^{4}_{a=0}[C_{a}=C_{a-1}+A_{a};];", Code::leir_bounds},
      {29, "in A f32[4,3];out C f32[4,5];", "B^{4}_{tx=0}L^{3}_{a=0}[C_{tx,a*2}=A_{tx,a};];", Code::leir_coverage},
      {31, "in A f32[4];out C f32[4];out D f32[4];", "L^{4}_{a=0}[C_{a}=A_{a};];", Code::leir_coverage},
      {33, "in A f32[4];out C f32[4];",
       "L^{4}_{a=0}[D_{a}=if_then_else(a-1<0,0,E_{a-1})+A_{a};];L^{4}_{a=0}[E_{a}=D_{a}*2;C_{a}=E_{a};];",
       Code::leir_read_before_write},
  };
  for (const Refused& r : kRows) {
    const leir::Checked c = checked(spelt(r.header, r.body));
    EXPECT_FALSE(c.program) << "row " << r.row;
    std::vector<Code> codes;
    for (const Diagnostic& d : c.messages) codes.push_back(d.code);
    EXPECT_THAT(codes, ::testing::Contains(r.code)) << "row " << r.row << render(c.messages, nullptr);
  }
}

struct Right {
  int row;
  const char *header, *body;
  V a, c;  // the input A, the output C
};

// By the interpreter, as machine code and as C.
TEST(Rows, LegalProgramsComputeTheirMeaning) {
  constexpr double kInf = INFINITY;
  const Right kRows[] = {
      {15,
       "in A f32[2,3];out C f32[3];",
       "B^{2}_{tx=0}L^{3}_{a=0}[C_{a}=C_{a}+A_{tx,a};];",
       {1, 2, 3, 10, 20, 30},
       {11, 22, 33}},
      {16,
       "in A f32[3];out C f32[3];",
       "B^{1}_{tx=0}[R=154;];B^{3}_{tx=0}[D_{tx}=A_{tx}*2;];B^{3}_{tx=0}[C_{tx}=D_{tx}+R;];",
       {1, 2, 3},
       {156, 158, 160}},
      {17,
       "in A f32[2];out C f32[2];",
       "L^{2}_{a=0}[D_{a}=A_{a};E_{a}=D_{a}*D_{a};D_{a}=3;C_{a}=D_{a}*D_{a}-E_{a};];",
       {1, 2},
       {8, 5}},
      // A softmax whose first score is masked.
      {20,
       "in A f32[3];out C f32[3];",
       "B^{1}_{tx=0}L^{3}_{a=0}[M_{tx}=max(M_{tx},A_{a});];B^{1}_{tx=0}L^{3}_{a=0}[S_{tx}=S_{tx}+exp(A_{a}-M_{tx});];"
       "B^{3}_{tx=0}[C_{tx}=exp(A_{tx}-M_{0})/S_{0};];",
       {-kInf, 5, 5},
       {0, 0.5, 0.5}},
      {22, "in A f32[2];out C f32[2];", "L^{2}_{a=0}[D_{a}=A_{a}+1;E_{a}=D_{a}*2;C_{a}=E_{a}-D_{a};];", {4, 7}, {5, 8}},
      {24,
       "in A f32[2,2];out C f32[2];",
       "L^{2}_{a=0}[C_{a}=1;L^{2}_{c=0}[L^{2}_{d=0}[C_{a}=C_{a}+A_{c,d};];C_{a}=C_{a}*2;];];",
       {1, 2, 3, 4},
       {30, 30}},
      {26, "in A f32[4];out C f32[1];", "L^{1}_{c=0}L^{4}_{a=0}[C_{c}=A_{a}+C_{c};];", {1, 2, 3, 4}, {10}},
      {27, "in A f32[2];out C f32[2];", "L^{2}_{a=0}[C_{a}=((A_{a}-1)*(A_{a}+1))**2;];", {3, 4}, {64, 225}},
      {28,
       "in A f32[3];out C f32[3,3];",
       "L^{2}_{a=0}L^{3}_{c=0}[D_{a,c}=A_{c};];L^{3}_{a=0}L^{2}_{c=0}[D_{a,c}=7;];L^{3}_{a=0}L^{2}_{c=0}[C_{a,c}=D_{a,"
       "c};];L^{2}_{a=0}[C_{a,2}=D_{a,2};];B^{1}_{tx=0}[C_{2,2}=0;];",
       {1, 2, 3},
       {7, 7, 3, 7, 7, 3, 7, 7, 0}},
  };
  for (const Right& r : kRows) {
    const Program p = program(r.header, r.body);
    Array a = leir::make_array(leir::Type::f32, p.variables()[*p.find("A")].shape);
    a.reals = r.a;
    const std::map<std::string, Array> inputs = {{"A", a}};
    const auto interpreted = leir::interpret(p, inputs);
    ASSERT_TRUE(interpreted.ok()) << "row " << r.row << render(interpreted.errors(), nullptr);
    EXPECT_EQ(interpreted->at("C").reals, r.c) << "row " << r.row;
    for (const char* via : {"jit", "c"}) {
      const auto native = compile_leir(p, via, true);
      ASSERT_TRUE(native.ok()) << render(native.errors(), nullptr);
      const auto out = run_native(p, *native, inputs);
      ASSERT_TRUE(out.ok()) << "row " << r.row;
      EXPECT_EQ(out->at("C").reals, r.c) << "row " << r.row << " through " << via;
    }
  }
}

struct Rewritten {
  int row;
  const char *header, *before, *after;
  Verdict verdict;
};

TEST(Rows, WrongRewritingsAreFoundOut) {
  const char* vectors = "in A f32[4];in E f32[4];out C f32[4];";
  const char* l1_before =
      "B^{3}_{tx=0}L^{400}_{a=0}[D_{tx}=D_{tx}+abs(A_{tx,a});];B^{3}_{tx=0}L^{400}_{a=0}[C_{tx,a}=A_{tx,a}/D_{tx};];";
  const Rewritten kRows[] = {
      {7, "in A f32[4,6];in D f32[4,5];out C f32[4];",
       "B^{4}_{tx=0}L^{5}_{a=0}[C_{tx}=A_{tx,a}*D_{tx,a}+A_{tx,a+1}*D_{tx,a};];",
       "B^{4}_{tx=0}L^{5}_{a=0}[C_{tx}=2*A_{tx,a+1}*D_{tx,a};];", Verdict::different},
      {8, vectors, "B^{4}_{tx=0}[D_{tx}=A_{tx};];B^{4}_{tx=0}[C_{tx}=D_{tx};];B^{4}_{tx=0}[D_{tx}=E_{tx};];",
       "B^{4}_{tx=0}[D_{tx}=A_{tx};];B^{4}_{tx=0}[D_{tx}=E_{tx};];B^{4}_{tx=0}[C_{tx}=D_{tx};];", Verdict::different},
      {10, vectors,
       "L^{4}_{a=0}[D_{a}=A_{a};];L^{4}_{a=0}[C_{a}=if_then_else(a-1<0,0,D_{a-1});];L^{4}_{a=0}[D_{a}=E_{a};];",
       "L^{4}_{a=0}[D_{a}=A_{a};];L^{4}_{a=0}[C_{a}=if_then_else(a-1<0,0,D_{a-1});D_{a}=E_{a};];", Verdict::different},
      {17, vectors, "L^{4}_{a=0}[D_{a}=A_{a};C_{a}=exp(D_{a});D_{a}=E_{a};C_{a}=C_{a}+exp(D_{a});];",
       "L^{4}_{a=0}[D_{a}=A_{a};J_{a}=exp(D_{a});C_{a}=J_{a};D_{a}=E_{a};C_{a}=C_{a}+J_{a};];", Verdict::different},
      {21, "in A f32[64];in E f32[64];out C f32[64];", "L^{64}_{a=0}[C_{a}=A_{a};];",
       "L^{64}_{a=0}[C_{a}=A_{a}/E_{a}*E_{a};];", Verdict::different},
      {30, "in A f32[3,400];out C f32[3,400];", l1_before, "B^{3}_{tx=0}L^{400}_{a=0}[C_{tx,a}=0;];",
       Verdict::different},
      {31, "in A f32[4];out C f32[4];out F f32[4];", "L^{4}_{a=0}[C_{a}=A_{a};F_{a}=A_{a}+1;];",
       "L^{4}_{a=0}[C_{a}=A_{a};F_{a}=A_{a}+2;];", Verdict::different},
      // Right ones.
      {8, vectors, "B^{4}_{tx=0}[D_{tx}=A_{tx};];B^{4}_{tx=0}[C_{tx}=D_{tx}*E_{tx};];",
       "B^{4}_{tx=0}[C_{tx}=E_{tx}*A_{tx};];", Verdict::equal},
      {30, "in A f32[3,400];out C f32[3,400];", l1_before,
       "B^{3}_{tx=0}L^{200}_{a=0}[D_{tx}=D_{tx}+(abs(A_{tx,a})+abs(A_{tx,399-a}));];B^{3}_{tx=0}L^{400}_{a=0}[C_{tx,a}="
       "A_{tx,a}/D_{tx};];",
       Verdict::equal},
  };
  for (const Rewritten& r : kRows) {
    const auto v = verify_leir(program(r.header, r.before), program(r.header, r.after));
    ASSERT_TRUE(v.ok()) << render(v.errors(), nullptr);
    EXPECT_EQ(v->verdict, r.verdict) << "row " << r.row << ": " << v->reason;
    EXPECT_EQ(v->reason.empty(), r.verdict == Verdict::equal);
  }
}

// Row 30 in f16, whose results are all small: a constant is not accepted for them.
TEST(Rows, SmallOutputsOfSixteenBitsAreJudgedBySmallBounds) {
  const std::string h = "in A f16[8];out C f16[8];";
  auto of = [&](const std::string& value) {
    leir::Checked c = checked(h + "L^{8}_{a=0}[C^{f16,g}_{a}=" + value + ";];");
    return std::move(*c.program);
  };
  const Program tanh = of("tanh(A^{f16,g}_{a})/64");
  EXPECT_EQ(verify_leir(tanh, of("0"))->verdict, Verdict::different);
  EXPECT_EQ(verify_leir(tanh, of("tanh(A^{f16,g}_{a})/63"))->verdict, Verdict::different);
  const auto v = verify_leir(tanh, of("(1-2/(exp(2*A^{f16,g}_{a})+1))/64"));
  EXPECT_EQ(v->verdict, Verdict::equal) << v->reason;
}

TEST(Verify, SaysWhatItCannotJudge) {
  const Program big = program("in A f32[4];out C f32[4];", "L^{4}_{a=0}[C_{a}=(A_{a}+1e9)-1e9;];");
  const Program small = program("in A f32[4];out C f32[4];", "L^{4}_{a=0}[C_{a}=A_{a};];");
  EXPECT_EQ(verify_leir(small, big)->verdict, Verdict::inconclusive);
  const Program never = program("in A f32[4];out C f32[4];", "L^{4}_{a=0}[C_{a}=log(-abs(A_{a})-1);];");
  const auto v = verify_leir(never, never);
  EXPECT_EQ(v->verdict, Verdict::inconclusive);
  EXPECT_THAT(v->reason, ::testing::HasSubstr("no finite element"));
  const auto other = verify_leir(small, program("in A f32[4];out D f32[4];", "L^{4}_{a=0}[D_{a}=A_{a};];"));
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.errors()[0].code, Code::leir_header);
}

}  // namespace
}  // namespace cleave::driver
