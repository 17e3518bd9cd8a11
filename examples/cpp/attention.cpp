// Builds attention as a graph, optimises it, saves the artefact and runs it.
//
// usage: attention FOLDER [BUDGET]
#include <cleave/cleave.hpp>
#include <cmath>
#include <cstdio>

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: attention FOLDER [BUDGET]\n");
    return 2;
  }
  try {
    using cleave::ElementType;
    constexpr int64_t kHeads = 2, kRows = 32, kWidth = 16;
    cleave::GraphBuilder b("attention");
    const auto q = b.input("Q", ElementType::f32, {kHeads, kRows, kWidth});
    const auto k = b.input("K", ElementType::f32, {kHeads, kRows, kWidth});
    const auto v = b.input("V", ElementType::f32, {kHeads, kRows, kWidth});
    const auto scores = b.add("contract", {q, k}, {{"spec", std::string("b s d, b l d -> b s l")}});
    const auto scaled = b.add("mul", {scores, b.literal(0.25, ElementType::f32)});
    const auto weights = b.add("softmax", {scaled}, {{"axis", int64_t{-1}}});
    b.output("O", b.add("contract", {weights, v}, {{"spec", std::string("b s l, b l d -> b s d")}}));

    cleave::OptimizeOptions options;
    options.budget = argc > 2 ? argv[2] : "10s";
    const cleave::Optimized best = cleave::optimize(b.build(), options);
    std::fputs(best.text().c_str(), stdout);
    best.save(argv[1]);

    // Equal keys give equal weights: each row of the result is the mean of V's rows.
    const auto ones = cleave::zeros(ElementType::f32, {kHeads, kRows, kWidth});
    const auto values = cleave::zeros(ElementType::f32, {kHeads, kRows, kWidth});
    for (int64_t i = 0; i < values.elements(); ++i)
      static_cast<float*>(values.data)[i] = static_cast<float>(i / kWidth % kRows);
    const auto out = best.program().run({ones, ones, values});
    const float first = out[0].as<float>()[0], expected = (kRows - 1) / 2.0f;
    std::printf("row 0 is %g, expected %g\n", first, expected);
    return std::fabs(first - expected) < 1e-3f ? 0 : 1;
  } catch (const cleave::Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
