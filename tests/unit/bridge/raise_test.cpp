// Raised graphs compute what the program does; what is no graph is refused with the equation and the reason.
#include "bridge/raise.hpp"

#include "eval/graph_eval.hpp"
#include "support/leir_check.hpp"

namespace cleave::bridge {
namespace {

using testing::leir_data;
using testing::leir_program;

// Texts are written short: `A_{a}` stands for `A^{f32,g}_{a}`.
std::string full(const std::string& text) {
  std::string out;
  const size_t body = text.rfind(";\n");
  out = text.substr(0, body + 2);
  for (size_t i = body + 2; i < text.size(); ++i) {
    out += text[i];
    const bool name = std::isupper(static_cast<unsigned char>(text[i])) && !std::strchr("BLPTUV", text[i]);
    if (name && text.compare(i + 1, 2, "^{") != 0) out += "^{f32,g}";
  }
  return out;
}

void expect_equal(const leir::Program& p, const graph::Graph& g, const std::string& what) {
  for (uint64_t seed : {1, 2}) {
    auto inputs = leir_data(p, seed);
    for (auto& [name, a] : inputs)
      for (double& x : a.reals)
        if (!std::isfinite(x)) x = 0.25;  // a graph may multiply what padding holds
    leir::InterpretOptions o;
    o.precision = leir::Precision::f64;
    const auto want = leir::interpret(p, inputs, o);
    ASSERT_TRUE(want.ok()) << what << render(want.errors(), nullptr);
    std::map<std::string, oracle::Tensor> given;
    for (const auto& [name, a] : inputs) {
      oracle::Tensor t = oracle::zeros(*leir::as_dtype(a.type), a.shape);
      t.reals = a.reals;
      for (size_t i = 0; i < a.integers.size(); ++i) t.ints[i] = leir::wrap_integer(a.type, a.integers[i]);
      given.emplace(name, std::move(t));
    }
    const auto got = oracle::evaluate(g, given);
    ASSERT_TRUE(got.ok()) << what << render(got.errors(), nullptr);
    for (size_t k = 0; k < got->size(); ++k) {
      const leir::Array& w = want->at(g.outputs()[k].name);
      ASSERT_EQ((*got)[k].extents, w.shape) << what;
      // Literals of f32 and stores of 16 bits are rounded in the graph, nothing is in the interpreter.
      const double unit = w.type == leir::Type::f64 ? 1e-11 : w.type == leir::Type::f32 ? 1e-5 : 2e-2;
      for (int64_t i = 0; i < w.elements(); ++i) {
        const double x = (*got)[k].at(i), y = leir::element(w, i);
        if ((std::isnan(x) && std::isnan(y)) || x == y) continue;
        ASSERT_LE(std::fabs(x - y), unit * (1 + std::fabs(y))) << what << "\n" << graph::print(g) << "element " << i;
      }
    }
  }
}

struct Case {
  const char* text;
  const char* words;  // of the graph or the message, separated by blanks
};

TEST(Raise, MapsReductionsContractionsWindowsAndGathers) {
  const Case cases[] = {
      {"in A f32[4,5];\nout C f32[4,5];\nB^{4}_{tx=0}L^{5}_{a=0}[C_{tx,a}=exp(A_{tx,a})*2+a;];", "exp iota"},
      {"in A f32[4,5];\nout C f32[5,4];\nL^{5}_{a=0}B^{4}_{tx=0}[C_{a,tx}=A_{tx,a};];", "transpose"},
      {"in A f32[4,5];\nout C f32[4];\nL^{4}_{a=0}L^{5}_{c=0}[C_{a}=C_{a}+A_{a,c};];", "sum("},
      {"in A f32[4,5];\nout C f32[4];\nL^{4}_{a=0}L^{5}_{c=0}[C_{a}=C_{a}-A_{a,c};];", "neg"},
      {"in A f32[4,5];\nout C f32[5];\nL^{4}_{a=0}L^{5}_{c=0}[C_{c}=max(C_{c},A_{a,c});];", "amax"},
      {"in A f32[4,5];\nout C f32[];\nL^{4}_{a=0}L^{5}_{c=0}[C=min(A_{a,c},C);];", "amin"},
      {"in A f32[4,5];\nout C f32[5];\nL^{4}_{a=0}L^{5}_{c=0}[C_{c}=C_{c}*A_{a,c};];", "prod"},
      {"in A f32[4,5];in D f32[5,3];\nout C "
       "f32[4,3];\nL^{4}_{a=0}L^{3}_{c=0}L^{5}_{d=0}[C_{a,c}=C_{a,c}+A_{a,d}*D_{d,c};];",
       "contract"},
      // The sum starts from a stored value, and a bias is added behind it.
      {"in A f32[4,5];in D f32[4];\nout C "
       "f32[4];\nL^{4}_{a=0}[C_{a}=D_{a};];L^{4}_{a=0}L^{5}_{c=0}[C_{a}=C_{a}+A_{a,c};"
       "];L^{4}_{a=0}[C_{a}=C_{a}+D_{a};];",
       "sum( add("},
      // Windows: with stride and dilation, with padding, and three digits of one axis.
      {"in A f32[3,20];in D f32[3,4];\nout C "
       "f32[7];\nL^{7}_{a=0}L^{3}_{c=0}L^{4}_{d=0}[C_{a}=C_{a}+A_{c,a*2+d*2}*D_{c,d};];",
       "window contract"},
      {"in A f32[9];in D f32[3];\nout C "
       "f32[5];\nL^{5}_{a=0}L^{3}_{d=0}[C_{a}=C_{a}+if_then_else(0<=a*2+d-1<9,A_{a*2+d-1}*"
       "D_{d},0);];",
       "pad window contract"},
      {"in A f32[9];\nout C "
       "f32[5];\nL^{5}_{a=0}L^{3}_{d=0}[C_{a}=max(C_{a},if_then_else(0<=a*2+d-1&a*2+d-1<9,A_{a*2+d-1},-"
       "inf));];",
       "pad window amax"},
      {"in A f32[24];\nout C f32[4,3,2];\nL^{2}_{a=0}L^{3}_{c=0}L^{4}_{d=0}[C_{d,c,a}=A_{a*12+c*4+d};];", "reshape"},
      {"in A f32[12];\nout C f32[4,3,2];\nL^{2}_{a=0}L^{3}_{c=0}L^{4}_{d=0}[C_{d,c,a}=A_{a*3+c+d*2};];", "window"},
      {"in A f32[6,4];\nout C f32[3,8];\nL^{3}_{a=0}L^{8}_{c=0}[C_{a,c}=A_{(a*8+c)//4,(a*8+c)%4};];", "reshape"},
      {"in A f32[2,3,4];\nout C f32[24];\nL^{2}_{a=0}L^{3}_{c=0}L^{4}_{d=0}[C_{a*12+c*4+d}=A_{a,c,d};];", "reshape"},
      {"in A f32[7];\nout C f32[7];\nL^{7}_{a=0}[C_{a}=A_{6-a};];", "flip"},
      {"in A f32[7];\nout C f32[7];\nL^{7}_{a=0}[C_{6-a}=A_{a}+a;];", "flip"},
      {"in A f32[7];\nout C f32[3];\nL^{3}_{a=0}[C_{a}=A_{a*2+1};];", "slice"},
      {"in A f32[5,5];\nout C f32[5];\nL^{5}_{a=0}[C_{a}=A_{a,a};];", "reshape"},
      {"in A f32[5,6];\nout C f32[5];\nL^{5}_{a=0}[C_{a}=A_{a,a+1}*A_{4-a,a};];", "reshape"},
      {"in A f32[5];in M f32[4];\nout C f32[9];\nL^{5}_{a=0}[C_{a}=A_{a};];L^{4}_{a=0}[C_{a+5}=M_{a};];", "concat"},
      {"in A f32[5];in M f32[4];\nout C f32[9];\nL^{4}_{a=0}[C_{a+5}=M_{a};];L^{5}_{a=0}[C_{a}=A_{a};];", "concat"},
      {"in A f32[9];in M f32[3];\nout C f32[9];\nL^{9}_{a=0}[C_{a}=A_{a};];L^{3}_{a=0}[C_{a+4}=M_{a};];", "where pad"},
      {"in A f32[9];\nout C f32[9];\nL^{9}_{a=0}[C_{a}=if_then_else(a<4,A_{a+5},A_{a-4}*2);];", "where"},
      {"in A f32[7,4];in I i64[5] range 0..6;\nout C f32[4,5];\nL^{4}_{a=0}L^{5}_{c=0}[C_{a,c}=A_{I^{i64,g}_{c},a};];",
       "gather"},
      {"in A f32[5,4];in I i64[5] range 0..3;\nout C f32[5];\nL^{5}_{a=0}[C_{a}=A_{a,I^{i64,g}_{a}};];", "gather"},
      // Running values.
      {"in A f32[4,6];\nout C f32[4,6];\nB^{4}_{tx=0}L^{6}_{a=0}[C_{tx,a}=if_then_else(a<1,0,C_{tx,a-1})+A_{tx,a};];",
       "cumsum"},
      {"in A f32[6];\nout C f32[6];\nL^{6}_{a=0}[C_{a}=A_{a}*if_then_else(a>=1,C_{a-1},1);];", "cumprod"},
      {"in A f32[6];\nout C f32[6];\nL^{6}_{a=0}[C_{a}=min(if_then_else(a-1<0,inf,C_{a-1}),A_{a});];", "cummax neg"},
      {"in A f32[6];\nout C f32[6];\nL^{6}_{a=0}[C_{a}=if_then_else(a==0,0,C_{a-1})+A_{a};];", "cumsum"},
      {"in A f32[6];\nout C f32[6];\nL^{6}_{a=0}[C_{a}=max(A_{a},if_then_else(a!=0,C_{a-1},-inf));];", "cummax"},
      // One number, handed on from iteration to iteration.
      {"in A f32[4,6];\nout C f32[4,6];\nP^{4}_{c=0}[L^{6}_{a=0}[D^{f32,l}=if_then_else(a==0,0,D^{f32,l})+A_{c,a};"
       "C_{c,a}=D^{f32,l}*2;];];",
       "cumsum mul"},
      // Accumulations that say where they begin, over one loop and over two; and with multiply-adds.
      {"in A f32[4,6];\nout C f32[4];\nL^{4}_{c=0}L^{6}_{a=0}[C_{c}=if_then_else(a==0,0,C_{c})+A_{c,a};];", "sum("},
      {"in A f32[4,6];\nout C f32[];\nL^{4}_{c=0}L^{6}_{a=0}[C=if_then_else(a<1&c<1,1,C)*A_{c,a};];", "prod"},
      {"in A f32[4,6];in D f32[6,3];\nout C "
       "f32[4,3];\nL^{4}_{a=0}L^{3}_{c=0}[C_{a,c}=0;L^{6}_{d=0}[C_{a,c}=fma(A_{a,d},"
       "D_{d,c},C_{a,c});];];",
       "contract"},
      {"in A f32[4,6];in D f32[6,30];\nout C "
       "f32[4,30];\nP^{5}_{f=0}[L^{4}_{a=0}L^{6}_{c=0}[C_{a,f*6+c}=0;L^{6}_{d=0}[C_{"
       "a,f*6+c}=fma(A_{a,d},D_{d,f*6+c},C_{a,f*6+c});];];];",
       "contract"},
      // Tiles whose last one is cut short: over an axis of the result, over what is summed, and with memory of their
      // own.
      {"in A f32[37];\nout C f32[37];\nP^{5}_{a=0}L^{min(8,37-a*8)}_{c=0}[C_{a*8+c}=A_{a*8+c}*2;];", "slice"},
      {"in A f32[9,24];in W f32[24];\nout C "
       "f32[9];\nB^{9}_{tx=0}[M^{f32,l}=0;L^{3}_{a=0}[L^{8}_{c=0}[D^{f32,s}_{tx,c}=A_{tx,a*8+"
       "c};];L^{8}_{c=0}[M^{f32,l}=M^{f32,l}+D^{f32,s}_{tx,c}*W_{a*8+c};];];C_{tx}=M^{f32,l};];",
       "contract"},
      {"in A f32[37];\nout C f32[];\nL^{1}_{f=0}[C=0;];L^{5}_{a=0}L^{min(8,37-a*8)}_{c=0}[C=C+A_{a*8+c};];",
       "where sum("},
      {"in A f32[9,37];in D f32[37,5];\nout C "
       "f32[9,5];\nL^{9}_{a=0}L^{5}_{c=0}[C_{a,c}=0;];L^{5}_{d=0}L^{9}_{a=0}L^{5}_{c="
       "0}L^{min(8,37-d*8)}_{f=0}[C_{a,c}=C_{a,c}+A_{a,d*8+f}*D_{d*8+f,c};];",
       "where contract"},
      {"in A f32[37];\nout C "
       "f32[37];\nP^{5}_{a=0}[L^{min(8,37-a*8)}_{c=0}[D^{f32,s}_{c}=A_{a*8+c};];L^{min(8,37-a*8)}_{c="
       "0}[C_{a*8+c}=D^{f32,s}_{c}+1;];];",
       "add"},
      // Bodies with several items, and variables that each iteration has for itself.
      {"in A f32[4,5];\nout C "
       "f32[4,5];\nB^{4}_{tx=0}[M^{f32,l}=-inf;L^{5}_{a=0}[M^{f32,l}=max(M^{f32,l},A_{tx,a});];Z^{f32,l}="
       "0;L^{5}_{a=0}[Z^{f32,l}=Z^{f32,l}+exp(A_{tx,a}-M^{f32,l});];L^{5}_{a=0}[C_{tx,a}=exp(A_{tx,a}-M^{f32,l})/"
       "Z^{f32,l};];];",
       "amax sum("},
      {"in A f32[4,5];\nout C f32[4];out D "
       "f32[4];\nL^{4}_{a=0}L^{5}_{c=0}[C_{a}=C_{a}+A_{a,c};D_{a}=D_{a}+A_{a,c}*A_{a,c};];",
       "sum( contract"},
      {"in A f32[4];\nout C f32[4];\nL^{4}_{a=0}[D_{a}=A_{a}*2;C_{a}=D_{a}+D_{a}*a;];", "mul"},
      // An old value that is overwritten: the last iteration counts.
      {"in A f32[4,5];\nout C f32[4];\nL^{4}_{a=0}L^{5}_{c=0}[C_{a}=A_{a,c};];", "slice"},
      {"in A f32[6];\nout C f32[6];\nL^{6}_{a=0}[C_{a}=A_{a};];L^{5}_{a=0}[C_{a}=C_{a+1}*2;];", "where"},
      // Loops whose extent varies.
      {"in A f32[5];\nout C f32[5];\nL^{5}_{a=0}L^{a+1}_{c=0}[C_{a}=C_{a}+A_{c};];", "where sum("},
      // Numbers that no axis can hold.
      {"in A f32[4];\nout C f32[4];\nL^{4}_{a=0}[C_{a}=if_then_else(a*1000000000000<4&a<1,A_{a*1000000000000},1);];",
       "where"},
      // Extents of 1 and idle loops.
      {"in A f32[1,5];\nout C f32[1,5];\nL^{1}_{a=0}L^{5}_{c=0}[C_{a,c}=A_{a,c}+A_{0,c};];", "add"},
      {"in A f32[4];\nout C f32[4];\nB^{4}_{tx=0}L^{5}_{a=0}[C_{tx}=C_{tx}+A_{tx};];", ""},
      {"in A f32[4];\nout C f32[4];\nL^{4}_{a=0}[C_{a}=A_{a}**3-A_{a}**(-2)+abs(A_{a})**0.5+A_{a}**0;];", "square"},
  };
  for (const Case& c : cases) {
    const leir::Program p = leir_program(full(c.text));
    const auto g = raise(p);
    ASSERT_TRUE(g.ok()) << c.text << "\n" << render(g.errors(), nullptr);
    const std::string text = graph::print(*g);
    std::string_view words = c.words;
    while (!words.empty()) {
      const std::string_view word = words.substr(0, words.find(' '));
      EXPECT_NE(text.find(std::string(word)), std::string::npos) << c.text << "\nwithout " << word << "\n" << text;
      words.remove_prefix(std::min(words.size(), word.size() + 1));
    }
    expect_equal(p, *g, c.text);
    // The text of the graph is the graph.
    const auto again = graph::parse(SourceText{"g", text});
    ASSERT_TRUE(again.ok()) << text;
    EXPECT_TRUE(graph::equal(*g, *again)) << text;
  }
}

TEST(Raise, KnownValuesBecomeConstants) {
  const leir::Program p = leir_program(
      full("in A f32[2,3];\nparam D f32[3];\nout C f32[2];\nB^{2}_{tx=0}L^{3}_{a=0}[C_{tx}=C_{tx}+A_{tx,a}*D_{a};];"));
  graph::ConstantData d;
  d.kind = graph::ConstantData::Kind::splat;
  d.value = 2;
  const auto g = raise(p, "p", {{"D", d}});
  ASSERT_TRUE(g.ok()) << render(g.errors(), nullptr);
  EXPECT_EQ(g->leaves(graph::Op::input).size(), 1u);
  ASSERT_EQ(g->leaves(graph::Op::constant).size(), 1u);
  oracle::Tensor a = oracle::zeros(DType::f32, {2, 3});
  a.reals = {1, 2, 3, 4, 5, 6};
  const auto c = oracle::evaluate(*g, {{"A", a}});
  ASSERT_TRUE(c.ok());
  EXPECT_EQ((*c)[0].reals, (std::vector<double>{12, 30}));
}

TEST(Raise, RefusesWhatIsNoGraphWithTheEquationAndTheReason) {
  const Case cases[] = {
      {"in A f32[6];\nout C f32[6];\nL^{6}_{a=0}[C_{a}=if_then_else(a<1,0,C_{a-1}*0.5)+A_{a};];",
       "an earlier iteration of `a`"},
      {"in A f32[6];\nout C f32[6];\nL^{6}_{a=0}[C_{a}=if_then_else(a<1,1,C_{a-1})+A_{a};];",
       "an earlier iteration of `a`"},
      {"in A f32[6];\nout C f32[12];\nL^{12}_{a=0}[C_{a}=0;];L^{6}_{a=0}[C_{a*2}=A_{a};];", "gaps"},
      {"in A f32[6];\nout C f32[6,6];\nL^{6}_{a=0}L^{6}_{c=0}[C_{a,c}=0;];L^{6}_{a=0}[C_{a,a}=A_{a};];", "diagonal"},
      {"in A f32[6];\nout C f32[6];\nL^{6}_{a=0}[C_{a}=0;];L^{6}_{a=0}[D_{a}=C_{5-a}+A_{a};C_{a}=D_{a};];",
       "depend on each other across iterations of `a`"},
      {"in A f32[4,5];\nout C "
       "f32[4];\nL^{4}_{a=0}L^{5}_{c=0}[M_{a}=max(M_{a},A_{a,c});C_{a}=C_{a}+exp(A_{a,c}-M_{a});];",
       "depend on each other across iterations of `c`"},
      {"in A f32[4];in I i64[4] range 0..3;\nout C "
       "f32[4];\nL^{4}_{a=0}[C_{a}=0;];L^{4}_{a=0}[C_{I^{i64,g}_{a}}=A_{a};];",
       "computed place"},
      {"in A u64[4];\nout C f32[4];\nL^{4}_{a=0}[C_{a}=A^{u64,g}_{a};];", "is u64, which graphs have not"},
      {"in A i64[4];\nout C i64[4];\nL^{4}_{a=0}[C^{i64,g}_{a}=A^{i64,g}_{a}+9007199254740993;];",
       "an integer literal beyond 2^53"},
      {"in A f32[4];\nout C i32[];\nL^{4}_{a=0}[C^{i32,g}=C^{i32,g}+A_{a};];", "rounds to i32 at every step"},
  };
  for (const Case& c : cases) {
    leir::Parsed parsed = leir::parse(SourceText{"p.leir", full(c.text)});
    ASSERT_TRUE(parsed.ok()) << c.text;
    const leir::Checked checked = leir::check(std::move(parsed.syntax));
    ASSERT_TRUE(checked.program) << c.text << render(checked.messages, nullptr);
    const auto g = raise(*checked.program);
    ASSERT_FALSE(g.ok()) << c.text << graph::print(*g);
    EXPECT_TRUE(g.errors()[0].range.has_value()) << c.text;
    EXPECT_NE(render(g.errors(), nullptr).find(c.words), std::string::npos) << c.text << render(g.errors(), nullptr);
  }
}

TEST(Raise, ComputesWhatEveryOperationDoes) {
  for (std::string text : testing::leir_samples()) {
    // Graphs have no u64.
    for (size_t i = text.find("u64"); i != std::string::npos; i = text.find("u64")) text.replace(i, 3, "i64");
    const leir::Program p = leir_program(text);
    const auto g = raise(p);
    ASSERT_TRUE(g.ok()) << text << render(g.errors(), nullptr);
    expect_equal(p, *g, text);
  }
}

}  // namespace
}  // namespace cleave::bridge
