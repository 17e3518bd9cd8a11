// Convolution, pooling, gathers, scatters, resampling and losses: what imported models compute, judged by plain loops
// and by properties.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "eval/graph_eval.hpp"
#include "unit/frontend/onnx_model.hpp"

namespace cleave {
namespace {

using oracle::Tensor;
using ::testing::DoubleNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

// Distinct, exact numbers of both signs.
Tensor counted(std::vector<int64_t> extents, int64_t step = 5) {
  std::vector<double> values(static_cast<size_t>(oracle::product(extents)));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<double>(static_cast<int64_t>(i) * step % 17 - 8) / 4;
  return oracle::tensor(DType::f32, std::move(extents), std::move(values));
}

std::vector<Tensor> evaluate(const OnnxModel& m, const std::map<std::string, Tensor>& inputs) {
  const auto g = m.import();
  if (!g.ok()) {
    ADD_FAILURE() << render(g.errors(), nullptr);
    return std::vector<Tensor>(4);
  }
  auto values = oracle::evaluate(*g, inputs);
  if (!values.ok()) {
    ADD_FAILURE() << render(values.errors(), nullptr);
    return std::vector<Tensor>(4);
  }
  return std::move(values).value();
}

void expect_near(const Tensor& got, const std::vector<double>& expected, double tolerance = 1e-5) {
  EXPECT_THAT(got.reals, Pointwise(DoubleNear(tolerance), expected));
}

std::vector<std::string> text(const std::vector<int64_t>& extents) {
  std::vector<std::string> out;
  for (const int64_t e : extents) out.push_back(std::to_string(e));
  return out;
}

struct Conv2d {
  int64_t n = 2, c = 4, h = 7, w = 6, m = 6, groups = 2, kh = 3, kw = 2;
  std::vector<int64_t> strides{2, 1}, dilations{1, 2}, pads{1, 0, 2, 1};  // pads: low h, low w, high h, high w
  int64_t oh() const { return (h + pads[0] + pads[2] - dilations[0] * (kh - 1) - 1) / strides[0] + 1; }
  int64_t ow() const { return (w + pads[1] + pads[3] - dilations[1] * (kw - 1) - 1) / strides[1] + 1; }
};

std::vector<double> convolve(const Conv2d& d, const Tensor& x, const Tensor& w) {
  std::vector<double> out;
  for (int64_t n = 0; n < d.n; ++n)
    for (int64_t m = 0; m < d.m; ++m)
      for (int64_t i = 0; i < d.oh(); ++i)
        for (int64_t j = 0; j < d.ow(); ++j) {
          double sum = 0;
          for (int64_t c = 0; c < d.c / d.groups; ++c)
            for (int64_t a = 0; a < d.kh; ++a)
              for (int64_t b = 0; b < d.kw; ++b) {
                const int64_t y = i * d.strides[0] + a * d.dilations[0] - d.pads[0];
                const int64_t z = j * d.strides[1] + b * d.dilations[1] - d.pads[1];
                if (y < 0 || y >= d.h || z < 0 || z >= d.w) continue;
                const int64_t channel = m / (d.m / d.groups) * (d.c / d.groups) + c;
                sum += x.reals[static_cast<size_t>(((n * d.c + channel) * d.h + y) * d.w + z)] *
                       w.reals[static_cast<size_t>(((m * (d.c / d.groups) + c) * d.kh + a) * d.kw + b)];
              }
          out.push_back(sum);
        }
  return out;
}

std::vector<std::pair<std::string, OnnxAttribute>> attributes(const Conv2d& d) {
  return {{"strides", d.strides}, {"dilations", d.dilations}, {"pads", d.pads}, {"group", d.groups}};
}

TEST(OnnxWindow, ConvolutionsAgreeWithLoops) {
  std::vector<Conv2d> cases(5);
  cases[1].groups = 1;
  cases[2].groups = 4, cases[2].m = 4;  // depthwise
  cases[3].kh = cases[3].kw = 1, cases[3].strides = cases[3].dilations = {1, 1}, cases[3].pads = {0, 0, 0, 0};
  cases[4].h = 1, cases[4].kh = 1, cases[4].strides = {1, 3};
  for (const Conv2d& d : cases) {
    const std::vector<int64_t> xs{d.n, d.c, d.h, d.w}, ws{d.m, d.c / d.groups, d.kh, d.kw};
    OnnxModel m;
    m.input("x", text(xs)).input("w", text(ws)).input("b", text({d.m}));
    m.node("Conv", {"x", "w", "b"}, {"y"}, attributes(d)).output("y");
    const Tensor x = counted(xs), w = counted(ws, 7), b = counted({d.m}, 3);
    std::vector<double> want = convolve(d, x, w);
    for (size_t i = 0; i < want.size(); ++i)
      want[i] += b.reals[i / static_cast<size_t>(d.oh() * d.ow()) % static_cast<size_t>(d.m)];
    expect_near(evaluate(m, {{"x", x}, {"w", w}, {"b", b}})[0], want);
  }
}

// <conv(x), y> = <x, conv_transpose(y)>: the transposed convolution is the adjoint.
TEST(OnnxWindow, TransposedConvolutionsAreAdjoint) {
  std::vector<Conv2d> cases(4);
  cases[1].groups = 1, cases[1].strides = {1, 1};
  cases[2].strides = {3, 2}, cases[2].pads = {2, 2, 0, 0};
  cases[3].pads = {0, 0, 0, 0}, cases[3].dilations = {2, 1};
  for (const Conv2d& d : cases) {
    const std::vector<int64_t> xs{d.n, d.c, d.h, d.w}, ws{d.m, d.c / d.groups, d.kh, d.kw},
        ys{d.n, d.m, d.oh(), d.ow()};
    // What the stride leaves over at the end comes back as output padding.
    const int64_t rest_h = (d.h + d.pads[0] + d.pads[2] - d.dilations[0] * (d.kh - 1) - 1) % d.strides[0];
    const int64_t rest_w = (d.w + d.pads[1] + d.pads[3] - d.dilations[1] * (d.kw - 1) - 1) % d.strides[1];
    auto list = attributes(d);
    list.emplace_back("output_padding", std::vector<int64_t>{rest_h, rest_w});
    OnnxModel m;
    m.input("y", text(ys)).input("w", text(ws)).node("ConvTranspose", {"y", "w"}, {"x"}, list).output("x");
    const Tensor x = counted(xs), w = counted(ws, 7), y = counted(ys, 3);
    const Tensor back = evaluate(m, {{"y", y}, {"w", w}})[0];
    ASSERT_EQ(back.extents, xs);
    const std::vector<double> forth = convolve(d, x, w);
    double left = 0, right = 0;
    for (size_t i = 0; i < forth.size(); ++i) left += forth[i] * y.reals[i];
    for (size_t i = 0; i < x.reals.size(); ++i) right += x.reals[i] * back.reals[i];
    EXPECT_NEAR(left, right, 1e-4);
  }
}

// An axis without elements is stretched to one without elements: no extent on the way is negative.
TEST(OnnxWindow, TransposedConvolutionsOfOpenAxesBeginAtNothing) {
  OnnxModel m;
  m.input("x", {"a", "2", "c", "d"}).input("w", {"2", "3", "2", "2"});
  m.node("ConvTranspose", {"x", "w"}, {"y"}, {{"strides", std::vector<int64_t>{2, 2}}}).output("y");
  const auto g = m.import();
  ASSERT_TRUE(g.ok()) << render(g.errors(), nullptr);
  for (graph::NodeId n : g->node_ids())
    for (graph::ValueId v : g->node(n).results)
      for (sym::Expr e : g->type(v).shape) EXPECT_GE(g->syms().bounds(e).lo, 0) << graph::print(*g);
}

TEST(OnnxWindow, PoolsTakeMaximaWithPositionsAndMeans) {
  OnnxModel m;
  const std::vector<std::pair<std::string, OnnxAttribute>> list{{"kernel_shape", std::vector<int64_t>{2, 2}},
                                                                {"strides", std::vector<int64_t>{2, 2}},
                                                                {"pads", std::vector<int64_t>{0, 0, 1, 1}}};
  auto with = list;
  with.emplace_back("count_include_pad", int64_t{1});
  m.input("x", {"1", "2", "3", "3"});
  m.node("MaxPool", {"x"}, {"y", "i"}, list).node("AveragePool", {"x"}, {"a"}, list);
  m.node("AveragePool", {"x"}, {"b"}, with).output("y").output("i").output("a").output("b");
  Tensor x = counted({1, 2, 3, 3});
  for (size_t i = 0; i < 18; ++i) x.reals[i] = static_cast<double>(i);
  const auto out = evaluate(m, {{"x", x}});
  expect_near(out[0], {4, 5, 7, 8, 13, 14, 16, 17});
  EXPECT_EQ(out[1].ints, (std::vector<int64_t>{4, 5, 7, 8, 13, 14, 16, 17}));
  expect_near(out[2], {2, 3.5, 6.5, 8, 11, 12.5, 15.5, 17});
  expect_near(out[3], {2, 1.75, 3.25, 2, 11, 6.25, 7.75, 4.25});
}

TEST(OnnxWindow, ScattersUndoGathers) {
  OnnxModel m;
  m.input("x", {"3", "4"}).input("i", {"3", "4"}, onnx::TensorProto::INT64);
  m.node("GatherElements", {"x", "i"}, {"g"}, {{"axis", int64_t{1}}});
  m.node("ScatterElements", {"x", "i", "g"}, {"s"}, {{"axis", int64_t{1}}});
  m.node("ScatterElements", {"x", "i", "g"}, {"t"}, {{"axis", int64_t{1}}, {"reduction", std::string("add")}});
  m.output("g").output("s").output("t");
  const Tensor x = counted({3, 4});
  const Tensor i = oracle::tensor(DType::i64, {3, 4}, {3, 2, 1, 0, -1, -2, -3, -4, 0, 1, 2, 3});
  const auto out = evaluate(m, {{"x", x}, {"i", i}});
  std::vector<double> turned, doubled;
  for (size_t k = 0; k < 12; ++k) {
    turned.push_back(k < 8 ? x.reals[k / 4 * 4 + 3 - k % 4] : x.reals[k]);
    doubled.push_back(2 * x.reals[k]);
  }
  expect_near(out[0], turned);
  expect_near(out[1], x.reals);
  expect_near(out[2], doubled);
}

TEST(OnnxWindow, ScatterNdKeepsWhatItDoesNotMean) {
  OnnxModel m;
  m.input("x", {"4", "2"}).input("i", {"2", "1"}, onnx::TensorProto::INT64).input("u", {"2", "2"});
  m.node("ScatterND", {"x", "i", "u"}, {"y"}).node("GatherND", {"y", "i"}, {"g"}).output("y").output("g");
  Tensor x = counted({4, 2});
  x.reals[1] = NAN;
  const Tensor u = counted({2, 2}, 3), i = oracle::tensor(DType::i64, {2, 1}, {-1, 1});
  const auto out = evaluate(m, {{"x", x}, {"i", i}, {"u", u}});
  EXPECT_EQ(out[0].reals[0], x.reals[0]);
  EXPECT_TRUE(std::isnan(out[0].reals[1]));
  for (size_t k = 0; k < 2; ++k) {
    EXPECT_EQ(out[0].reals[6 + k], u.reals[k]);
    EXPECT_EQ(out[0].reals[2 + k], u.reals[2 + k]);
    EXPECT_EQ(out[0].reals[4 + k], x.reals[4 + k]);
  }
  expect_near(out[1], u.reals);
}

TEST(OnnxWindow, ResizingBackAndForth) {
  OnnxModel m;
  m.input("x", {"1", "1", "2", "3"}).floats("up", {4}, {1, 1, 3, 2}).ints("down", {1, 1, 2, 3});
  m.node("Resize", {"x", "", "up"}, {"big"}, {{"mode", std::string("nearest")}});
  m.node("Resize", {"big", "", "", "down"}, {"y"}, {{"mode", std::string("nearest")}});
  m.node("Resize", {"x", "", "up"}, {"z"},
         {{"mode", std::string("linear")}, {"coordinate_transformation_mode", std::string("align_corners")}});
  m.output("big").output("y").output("z");
  const Tensor x = oracle::tensor(DType::f32, {1, 1, 2, 3}, {0, 1, 2, 10, 11, 12});
  const auto out = evaluate(m, {{"x", x}});
  ASSERT_EQ(out[0].extents, (std::vector<int64_t>{1, 1, 6, 6}));
  for (size_t i = 0; i < 36; ++i) EXPECT_EQ(out[0].reals[i], x.reals[i / 18 * 3 + i % 6 / 2]);
  expect_near(out[1], x.reals);
  for (size_t i = 0; i < 36; ++i)
    EXPECT_NEAR(out[2].reals[i], 10.0 * static_cast<double>(i / 6) / 5 + 2.0 * static_cast<double>(i % 6) / 5, 1e-5);
}

// What negative pads leave of an axis goes round, whether its extent is known or not.
TEST(OnnxWindow, WrappingAfterCutting) {
  for (const std::string& extent : {"6", "n"}) {
    OnnxModel m(19);
    m.input("x", {extent}).ints("front", {2, -1}).ints("back", {-1, 2});
    m.node("Pad", {"x", "front"}, {"y"}, {{"mode", std::string("wrap")}}).output("y");
    m.node("Pad", {"x", "back"}, {"z"}, {{"mode", std::string("wrap")}}).output("z");
    const auto g = m.import();
    ASSERT_TRUE(g.ok()) << render(g.errors(), nullptr);
    std::map<std::string, int64_t> dims;
    if (extent == "n") dims["n"] = 6;
    const auto out =
        oracle::evaluate(graph::bind(*g, dims).value(), {{"x", oracle::tensor(DType::f32, {6}, {0, 1, 2, 3, 4, 5})}});
    ASSERT_TRUE(out.ok());
    expect_near((*out)[0], {3, 4, 0, 1, 2, 3, 4});
    expect_near((*out)[1], {1, 2, 3, 4, 5, 1, 2});
  }
}

// Axes whose extent does not change may be open: a batch, and what the sizes take over from the shape.
TEST(OnnxWindow, OpenAxesArePaddedWithTheirOwnElements) {
  for (const char* mode : {"edge", "reflect", "wrap"})
    for (const std::vector<int64_t>& pads :
         {std::vector<int64_t>{2, 1, 3, 0}, {0, 0, 7, 2}, {-1, 1, 2, 0}, {0, 0, -1, 0}}) {
      const auto padded = [&](const std::string& rows) {
        OnnxModel m;
        m.input("x", {rows, "3"}).ints("p", pads);
        m.node("Pad", {"x", "p"}, {"y"}, {{"mode", std::string(mode)}}).output("y");
        return m.import();
      };
      for (const int64_t n : {1, 2, 5}) {
        if (mode == std::string("wrap") && pads[0] < 0 && n + pads[0] < 1) continue;  // nothing is left to go round
        const auto open = padded("n"), fixed = padded(std::to_string(n));
        ASSERT_TRUE(open.ok() && fixed.ok()) << render(open.errors(), nullptr);
        const auto x = counted({n, 3});
        const auto got = oracle::evaluate(graph::bind(*open, {{"n", n}}).value(), {{"x", x}});
        const auto want = oracle::evaluate(*fixed, {{"x", x}});
        ASSERT_TRUE(got.ok() && want.ok());
        EXPECT_EQ((*got)[0].extents, (*want)[0].extents);
        EXPECT_EQ((*got)[0].reals, (*want)[0].reals) << mode << " " << n;
      }
    }
}

TEST(OnnxWindow, PaddingThatKeepsExtentsNeedsNumbersWhereItStrides) {
  const auto pooled = [](int64_t stride, const char* mode) {
    OnnxModel m;
    m.input("x", {"1", "1", "n"});
    m.node("MaxPool", {"x"}, {"y"},
           {{"kernel_shape", std::vector<int64_t>{3}},
            {"strides", std::vector<int64_t>{stride}},
            {"auto_pad", std::string(mode)}});
    m.output("y");
    return m.import();
  };
  for (const char* mode : {"SAME_UPPER", "SAME_LOWER"}) {
    EXPECT_TRUE(pooled(1, mode).ok());
    EXPECT_THAT(render(pooled(2, mode).errors(), nullptr),
                HasSubstr("an axis that is padded to keep its extent has to be a number, it is n"));
  }
}

TEST(OnnxWindow, ResizingLeavesOpenAxesAlone) {
  const Tensor x = counted({2, 1, 2, 3});
  const auto out_of = [&](const std::function<void(OnnxModel&)>& wanted, const std::string& batch = "n") {
    OnnxModel m;
    m.input("x", {batch, "1", "2", "3"});
    wanted(m);
    m.output("y");
    const auto g = m.import();
    if (!g.ok()) ADD_FAILURE() << render(g.errors(), nullptr);
    auto bound = graph::bind(
        g.value(), batch == "n" ? std::map<std::string, int64_t>{{"n", 2}} : std::map<std::string, int64_t>{});
    return oracle::evaluate(bound.value(), {{"x", x}}).value();
  };
  const auto by_scales = [](OnnxModel& m) {
    m.floats("s", {4}, {1, 1, 2, 2}).node("Resize", {"x", "", "s"}, {"y"}, {{"mode", std::string("linear")}});
  };
  const auto by_sizes = [](OnnxModel& m) {
    m.node("Shape", {"x"}, {"of"}, {{"end", int64_t{2}}}).ints("more", {4, 6});
    m.node("Concat", {"of", "more"}, {"s"}, {{"axis", int64_t{0}}});
    m.node("Resize", {"x", "", "", "s"}, {"y"}, {{"mode", std::string("linear")}});
  };
  const auto cropped = [](OnnxModel& m) {  // the whole of the open axis
    m.floats("r", {8}, {0, 0, 0, 0, 1, 1, 1, 1}).floats("s", {4}, {1, 1, 2, 2});
    m.node("Resize", {"x", "r", "s"}, {"y"},
           {{"mode", std::string("linear")}, {"coordinate_transformation_mode", std::string("tf_crop_and_resize")}});
  };
  for (const auto& wanted : {std::function<void(OnnxModel&)>(by_scales), std::function<void(OnnxModel&)>(by_sizes),
                             std::function<void(OnnxModel&)>(cropped)}) {
    const auto open = out_of(wanted), fixed = out_of(wanted, "2");
    ASSERT_EQ(open[0].extents, (std::vector<int64_t>{2, 1, 4, 6}));
    expect_near(open[0], fixed[0].reals);
  }
  OnnxModel grown;
  grown.input("x", {"n", "3"}).floats("s", {2}, {2, 1}).node("Resize", {"x", "", "s"}, {"y"}).output("y");
  EXPECT_THAT(render(grown.import().errors(), nullptr),
              HasSubstr("an axis that is resampled has to be a number, it is n"));
  OnnxOptions options;
  options.ranges["n"] = {2, 2};
  const auto g = grown.import("", options);
  ASSERT_TRUE(g.ok()) << render(g.errors(), nullptr);
  const auto out = oracle::evaluate(graph::bind(*g, {{"n", 2}}).value(), {{"x", counted({2, 3})}});
  ASSERT_TRUE(out.ok());
  EXPECT_EQ((*out)[0].extents, (std::vector<int64_t>{4, 3}));
}

TEST(OnnxWindow, CappedAttentionWithAWindowAgreesWithLoops) {
  OnnxModel m(23);
  m.input("q", {"1", "2", "3", "4"}).input("k", {"1", "1", "5", "4"}).input("v", {"1", "1", "5", "2"});
  m.input("pk", {"1", "1", "2", "4"}).input("pv", {"1", "1", "2", "2"});
  m.node("Attention", {"q", "k", "v", "", "pk", "pv"}, {"y", "pk2", "pv2", "p"},
         {{"is_causal", int64_t{1}},
          {"softcap", 1.5f},
          {"left_window_size", int64_t{1}},
          {"scale", 0.5f},
          {"qk_matmul_output_mode", int64_t{3}}});
  m.output("y").output("p");
  const Tensor q = counted({1, 2, 3, 4}), k = counted({1, 1, 5, 4}, 7), v = counted({1, 1, 5, 2}, 3);
  const Tensor pk = counted({1, 1, 2, 4}, 11), pv = counted({1, 1, 2, 2}, 6);
  const auto out = evaluate(m, {{"q", q}, {"k", k}, {"v", v}, {"pk", pk}, {"pv", pv}});
  std::vector<double> y, p;
  for (size_t h = 0; h < 2; ++h)
    for (size_t s = 0; s < 3; ++s) {
      std::vector<double> weights;
      double total = 0;
      for (size_t l = 0; l < 7; ++l) {
        double score = 0;
        for (size_t d = 0; d < 4; ++d)
          score += q.reals[(h * 3 + s) * 4 + d] * (l < 2 ? pk.reals[l * 4 + d] : k.reals[(l - 2) * 4 + d]) / 2;
        const bool seen = l <= s + 2 && s + 2 - l <= 1;
        weights.push_back(seen ? std::exp(1.5 * std::tanh(score / 1.5)) : 0);
        total += weights.back();
      }
      for (double& w : weights) p.push_back(w /= total);
      for (size_t d = 0; d < 2; ++d) {
        double sum = 0;
        for (size_t l = 0; l < 7; ++l) sum += weights[l] * (l < 2 ? pv.reals[l * 2 + d] : v.reals[(l - 2) * 2 + d]);
        y.push_back(sum);
      }
    }
  expect_near(out[0], y);
  expect_near(out[1], p);
}

TEST(OnnxWindow, LossesLeaveIgnoredTargetsOut) {
  OnnxModel m;
  m.input("x", {"2", "3", "2"}).input("t", {"2", "2"}, onnx::TensorProto::INT64).input("w", {"3"});
  m.node("NegativeLogLikelihoodLoss", {"x", "t", "w"}, {"y"}, {{"ignore_index", int64_t{-1}}}).output("y");
  const Tensor x = counted({2, 3, 2}), w = oracle::tensor(DType::f32, {3}, {1, 2, 4});
  const Tensor t = oracle::tensor(DType::i64, {2, 2}, {0, -1, 2, 1});
  const double total = -x.reals[0] - 4 * x.reals[6 + 4] - 2 * x.reals[6 + 3];
  expect_near(evaluate(m, {{"x", x}, {"t", t}, {"w", w}})[0], {total / 7});
}

// Inputs that are known at import give operators their numbers and stay inputs.
TEST(OnnxWindow, KnownInputsAreUsedWhereNumbersAreNeeded) {
  OnnxModel m;
  m.input("x", {"2", "3"}).input("s", {"1"}, onnx::TensorProto::INT64);
  m.node("Reshape", {"x", "s"}, {"r"}).node("Add", {"s", "s"}, {"d"}).output("r").output("d");
  EXPECT_THAT(render(m.import().errors(), nullptr), HasSubstr("computed at run time"));
  OnnxOptions options;
  OnnxKnown six{DType::i64, {1}, std::vector<std::byte>(8)};
  six.bytes[0] = std::byte{6};
  options.known["s"] = six;
  const auto g = m.import("", options);
  ASSERT_TRUE(g.ok()) << render(g.errors(), nullptr);
  EXPECT_EQ(g->leaves(graph::Op::input).size(), 2u);
  const auto out = oracle::evaluate(*g, {{"x", counted({2, 3})}, {"s", oracle::tensor(DType::i64, {1}, {6})}});
  ASSERT_TRUE(out.ok());
  EXPECT_EQ((*out)[0].extents, (std::vector<int64_t>{6}));
  EXPECT_EQ((*out)[1].ints, (std::vector<int64_t>{12}));
  EXPECT_THAT(graph::print(*g), HasSubstr("add(s, s)"));  // not folded: it is an input still
  options.fold_known = true;
  EXPECT_TRUE(m.import("", options).ok());
  options.known["s"].shape = {2};
  EXPECT_FALSE(m.import("", options).ok());
}

}  // namespace
}  // namespace cleave
