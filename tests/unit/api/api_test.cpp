// The library's C++ handles: building, compiling for open dimensions, running on any memory, errors.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "cleave/cleave.hpp"
#include "driver/file_cache.hpp"

namespace cleave {
namespace {

using testing::HasSubstr;

Tensor numbers(std::vector<int64_t> shape, float first = 0, float step = 1) {
  Tensor t = zeros(ElementType::f32, std::move(shape));
  for (int64_t i = 0; i < t.elements(); ++i) t.as<float>()[i] = first + step * static_cast<float>(i);
  return t;
}

// Expects an Error with this code; returns it.
template <class F>
Error error_of(F&& body, const std::string& code) {
  try {
    body();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e;
  }
  ADD_FAILURE() << "no error, expected was " << code;
  return Error(Error::Kind::internal, "", "", "", "");
}

// y[s, t] = x[s, t] + x[s, 0]
Graph shifted() {
  GraphBuilder b("shifted");
  const Value x = b.input("x", ElementType::f32, {"S", 3});
  const Value first = b.add(
      "slice", {x},
      {{"axes", std::vector<int64_t>{1}}, {"starts", std::vector<int64_t>{0}}, {"stops", std::vector<int64_t>{1}}});
  b.output("y", b.add("add", {x, first}));
  return b.build();
}

TEST(Api, BuildsGraphsThatPrintAndParse) {
  const Graph g = shifted();
  EXPECT_EQ(g.inputs().at(0).name, "x");
  EXPECT_EQ(g.outputs().at(0).shape.at(0).text(), "S");
  EXPECT_EQ(g.dims().at(0).name, "S");
  EXPECT_EQ(Graph::parse(g.text()).text(), g.text());
}

void expect_shifted(const Program& p, int64_t rows) {
  const Tensor x = numbers({rows, 3}, 1);
  const auto out = p.run({x});
  ASSERT_EQ(out.at(0).shape, (std::vector<int64_t>{rows, 3}));
  for (int64_t i = 0; i < 3 * rows; ++i)
    EXPECT_EQ(out[0].as<float>()[i], x.as<float>()[i] + x.as<float>()[i / 3 * 3]) << rows;
}

TEST(Api, OneCompilationServesEveryExtent) {
  const Program p = Program::compile(shifted());
  EXPECT_EQ(p.compilations(), 0u);
  for (const int64_t rows : {4, 1, 97, 4, 7, 1000}) expect_shifted(p, rows);
  EXPECT_EQ(p.compilations(), 1u);
  expect_shifted(p, 0);  // as the graph was given: the unfused schedule
  EXPECT_EQ(p.compilations(), 2u);
  expect_shifted(p, 5);
  EXPECT_EQ(p.compilations(), 2u);
  EXPECT_EQ(p.output_shapes({{4, 3}}).at(0), (std::vector<int64_t>{4, 3}));
  error_of([&] { p.output_shapes({{4, 4}, {1}}); }, "CLV6006");
  error_of([&] { p.output_shapes({{4}}); }, "CLV7006");
  error_of([&] { p.run({numbers({4, 4})}); }, "CLV7006");
}

TEST(Api, TypicalExtentsAreCompiledForAtOnce) {
  CompileOptions options;
  options.typical["S"] = 64;
  const Program p = Program::compile(shifted(), options);
  EXPECT_EQ(p.compilations(), 1u);
  for (const int64_t rows : {64, 1, 2000}) expect_shifted(p, rows);
  EXPECT_EQ(p.compilations(), 1u);
  options.typical["Q"] = 3;
  error_of([&] { Program::compile(shifted(), options); }, "CLV2002");
}

// Extents that are functions of a dimension give it its value, and contradict each other when they must.
TEST(Api, DimensionsFollowFromLinearExtents) {
  GraphBuilder b("halves");
  b.dim("S", 1, 50);
  b.dim("One", 1, 1);
  const Value x = b.input("x", ElementType::f32, {"2 * S + 1", "One"});
  const Value y = b.input("y", ElementType::f32, {"S", "One"});
  const auto cut = [&](int64_t start, const char* stop) {
    return b.add("slice", {x},
                 {{"axes", std::vector<int64_t>{0}},
                  {"starts", std::vector<Extent>{start}},
                  {"stops", std::vector<Extent>{stop}}});
  };
  b.output("z", b.add("add", {cut(0, "S"), y}));
  const Program p = Program::compile(b.build());
  for (const int64_t s : {1, 7, 50}) {
    const auto out = p.run({numbers({2 * s + 1, 1}, 1), numbers({s, 1}, 5)});
    ASSERT_EQ(out[0].shape, (std::vector<int64_t>{s, 1}));
    for (int64_t i = 0; i < s; ++i) EXPECT_EQ(out[0].as<float>()[i], 6.0f + 2.0f * static_cast<float>(i));
  }
  EXPECT_EQ(p.compilations(), 1u);
  error_of([&] { p.run({numbers({5, 1}), numbers({3, 1})}); }, "CLV7006");
  error_of([&] { p.run({numbers({103, 1}), numbers({51, 1})}); }, "CLV2014");
  error_of([&] { p.run({numbers({4, 1}), numbers({2, 1})}); }, "CLV7006");
}

TEST(Api, RunsOnStridedAndSharedMemory) {
  CompileOptions options;
  options.dims["S"] = 3;
  const Program p = Program::compile(shifted(), options);
  Tensor x = numbers({3, 3}), want = numbers({3, 3});
  View turned = x;  // the transpose
  turned.strides = {1, 3};
  const View reversed{x.as<float>() + 8, ElementType::f32, {3, 3}, {-3, -1}};
  for (const View& v : {turned, reversed}) {
    const auto out = p.run(std::span<const View>(&v, 1));
    for (int64_t i = 0; i < 9; ++i) {
      const auto at = [&](int64_t row, int64_t column) {
        return static_cast<const float*>(v.data)[row * v.strides[0] + column * v.strides[1]];
      };
      EXPECT_EQ(out[0].as<float>()[i], at(i / 3, i % 3) + at(i / 3, 0));
    }
  }
  // The output is the input: each row's first element is read by the whole row, and is itself overwritten.
  const View same = x;
  p.run(std::span<const View>(&same, 1), std::span<const View>(&same, 1));
  for (int64_t i = 0; i < 9; ++i) EXPECT_EQ(x.as<float>()[i], want.as<float>()[i] + want.as<float>()[i / 3 * 3]);
  // Into a window of a larger tensor; what lies around it stays.
  Tensor large = numbers({5, 5}, -1, 0);
  const View window{large.as<float>() + 6, ElementType::f32, {3, 3}, {5, 1}};
  const View input = want;
  p.run(std::span<const View>(&input, 1), std::span<const View>(&window, 1));
  for (int64_t i = 0; i < 25; ++i) {
    const int64_t row = i / 5 - 1, column = i % 5 - 1;
    const bool inside = row >= 0 && row < 3 && column >= 0 && column < 3;
    EXPECT_EQ(large.as<float>()[i], inside ? float(3 * row + column) + float(3 * row) : -1.0f) << i;
  }
}

TEST(Api, RunsInSeveralThreadsAtOnce) {
  const Program p = Program::compile(shifted());
  const Threads pool(2);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int round = 0; round < 20; ++round) {
        const int64_t rows = 1 + (round + t) % 3;
        const Tensor x = numbers({rows, 3}, static_cast<float>(t));
        const View v = x;
        const auto out = p.run(std::span<const View>(&v, 1), {}, t % 2 ? &pool : nullptr);
        for (int64_t i = 0; i < 3 * rows; ++i)
          wrong[static_cast<size_t>(t)] += out[0].as<float>()[i] != x.as<float>()[i] + x.as<float>()[i / 3 * 3];
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
  EXPECT_EQ(p.compilations(), 1u);
}

TEST(Api, SaysWhatIsWrong) {
  EXPECT_THAT(error_of([] { Graph::parse("graph g { output O = foo(1.0) }"); }, "CLV2001").what(), HasSubstr("foo"));
  error_of([] { Graph::load("/nowhere/model.onnx"); }, "CLV3001");
  error_of([] { Program::load("/nowhere"); }, "CLV3001");
  error_of([] { Graph::from_onnx("not a model"); }, "CLV3004");

  GraphBuilder b;
  const Value x = b.input("x", ElementType::f32, {4});
  error_of([&] { b.input("x", ElementType::f32, {4}); }, "CLV2003");
  error_of([&] { b.input("y", ElementType::f32, {-4}); }, "CLV2005");
  error_of([&] { b.input("z", ElementType::f32, {"S +"}); }, "CLV1001");
  error_of([&] { b.add("nothing", {x}); }, "CLV2001");
  error_of([&] { b.add("input", {}); }, "CLV2001");
  error_of([&] { b.add("sum", {x}, {{"axes", std::string("all")}}); }, "CLV2007");
  error_of([&] { b.add("sum", {x}, {{"axis", int64_t{0}}}); }, "CLV2008");
  error_of([&] { b.add("add", {x, Value{77}}); }, "CLV2017");
  error_of([&] { b.build(); }, "CLV2011");

  const Program p = Program::compile(shifted());
  const Tensor good = numbers({2, 3}), flat = numbers({6}), wide = numbers({2, 4});
  Tensor integers = zeros(ElementType::i32, {2, 3});
  EXPECT_EQ(error_of([&] { p.run({flat}); }, "CLV7006").node(), "x");
  error_of([&] { p.run({wide}); }, "CLV7006");
  error_of([&] { p.run({integers}); }, "CLV7006");
  error_of([&] { p.run({good, good}); }, "CLV6006");
  const View input = good;
  const View folded{good.data, ElementType::f32, {2, 3}, {1, 1}};
  const View narrow{good.data, ElementType::f32, {2, 2}, {}};
  EXPECT_THAT(error_of([&] { p.run(std::span(&input, 1), std::span(&folded, 1)); }, "CLV7012").what(),
              HasSubstr("output `y`: its elements share memory"));
  EXPECT_EQ(error_of([&] { p.run(std::span(&input, 1), std::span(&narrow, 1)); }, "CLV7012").node(), "y");
  EXPECT_THAT(error_of([&] { b.dim("T", 5, 2); }, "CLV2005").what(), HasSubstr("the range 5..2 ends before it begins"));
  CompileOptions options;
  options.dims["T"] = 3;
  error_of([&] { Program::compile(shifted(), options); }, "CLV2002");
  OptimizeOptions cuda;
  cuda.target = "cuda";
  EXPECT_EQ(error_of([&] { optimize(shifted(), cuda); }, "CLV7010").kind(), Error::Kind::unsupported);
}

TEST(Api, OptimizesSavesAndLoads) {
  OptimizeOptions options;
  options.dims["S"] = "5";
  options.budget = "4c";
  size_t calls = 0;
  options.progress = [&](const Progress&) { ++calls; };
  const Optimized best = optimize(shifted(), options);
  EXPECT_EQ(best.status(), "complete");
  EXPECT_GE(best.speedup(), 1);
  EXPECT_GT(calls, 0u);
  EXPECT_THAT(best.json(), HasSubstr("cleave.result/1"));
  for (const char* stage : {"graph", "stabilised", "itgraph", "tile", "vec", "llvm", "asm"})
    EXPECT_FALSE(best.source(stage).empty()) << stage;
  error_of([&] { best.source("soup"); }, "CLV7002");

  const std::string folder = testing::TempDir() + "/cleave_api_artefact";
  best.save(folder);
  const Program again = Program::load(folder);
  const Tensor x = numbers({5, 3}, 2);
  const auto a = best.program().run({x}), b = again.run({x});
  for (int64_t i = 0; i < 15; ++i) {
    EXPECT_EQ(a[0].as<float>()[i], x.as<float>()[i] + x.as<float>()[i / 3 * 3]);
    EXPECT_EQ(b[0].as<float>()[i], a[0].as<float>()[i]);
  }
  std::filesystem::remove_all(folder);
}

TEST(Api, OptimizesSavesAndLoadsRanges) {
  OptimizeOptions options;
  options.dims["S"] = "0..300@40";
  options.deterministic = true;
  const Optimized best = optimize(shifted(), options);
  EXPECT_THAT(best.report(), testing::AllOf(HasSubstr("<html"), HasSubstr("shifted")));
  const std::string folder = testing::TempDir() + "/cleave_api_ranges";
  best.save(folder);
  for (const Program& p : {best.program(), Program::load(folder)}) {
    for (const int64_t rows : {40, 1, 300, 17}) expect_shifted(p, rows);
    EXPECT_EQ(p.compilations(), 1u);
    expect_shifted(p, 0);
    error_of([&] { p.run({numbers({301, 3})}); }, "CLV2014");
  }
  std::filesystem::remove_all(folder);
}

TEST(Api, CompilationIsInterrupted) {
  CompileOptions options;
  options.typical["S"] = 4;
  options.interrupted = [] { return true; };
  try {
    Program::compile(shifted(), options);
    ADD_FAILURE() << "it was compiled";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), Error::Kind::interrupted);
  }
}

// x + w * 3, row by row, with `w` of more elements than a graph's text has.
Graph weighted(float first) {
  GraphBuilder b;
  const Value x = b.input("x", ElementType::f32, {2, 80});
  const Tensor weights = numbers({80}, first);
  const Value w = b.constant("w", weights);
  b.output("y", b.add("add", {x, b.add("mul", {w, b.literal(3, ElementType::f32)})}));
  return b.build();
}

TEST(Api, DimensionsThatNoShapeTellsAreGiven) {
  const Graph g = Graph::parse(
      "graph g {\n dim L in 1..100\n dim S in 1..9\n input x: f32[S]\n i = iota(shape=[L, 1], axis=0, dtype=f32)\n"
      " output y = add(i, x)\n}\n");
  const Program p = Program::compile(g);
  const Tensor x = numbers({2}, 0.5);
  const View v = x;
  const auto run = [&](const std::map<std::string, int64_t>& dims) {
    return p.run(std::span(&v, 1), {}, nullptr, dims);
  };
  for (const int64_t length : {7, 1, 100}) {
    const auto out = run({{"L", length}});
    ASSERT_EQ(out[0].shape, (std::vector<int64_t>{length, 2}));
    EXPECT_EQ(out[0].as<float>()[2 * length - 1], static_cast<float>(length - 1) + 1.5F);
  }
  EXPECT_THAT(p.dims(), testing::UnorderedElementsAre("L", "S"));
  EXPECT_EQ(p.output_shapes({{2}}, {{"L", 3}, {"S", 2}})[0], (std::vector<int64_t>{3, 2}));
  error_of([&] { run({}); }, "CLV2013");
  error_of([&] { run({{"L", 101}}); }, "CLV2014");
  error_of([&] { run({{"L", 3}, {"S", 3}}); }, "CLV7006");
  error_of([&] { run({{"L", 3}, {"Q", 3}}); }, "CLV2002");
}

TEST(Api, WhatWasCompiledIsKept) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(testing::TempDir()) / fmt::format("cleave-programs-{}", getpid());
  CompileOptions options;
  options.cache_directory = folder.string();
  const Tensor x = numbers({2, 80}, 0.5);
  const auto last = [&](float first) {
    return Program::compile(weighted(first), options).run({x})[0].as<float>()[159];
  };
  const auto count = [&](const char* kind) {
    return std::distance(fs::directory_iterator(folder / kind), fs::directory_iterator());
  };
  const float own = x.as<float>()[159];
  EXPECT_EQ(last(1), own + 3 * 80);
  ASSERT_EQ(count("programs"), 1);
  EXPECT_EQ(count("objects"), 1);
  // The values of stored constants take no part in the choice; they are read when the program is made.
  EXPECT_EQ(last(2), own + 3 * 81);
  EXPECT_EQ(count("programs"), 1);

  // What is kept is what runs: a changed file of a right hash shows.
  const fs::path file = *fs::directory_iterator(folder / "programs");
  const driver::FileCache files((folder / "programs").string(), file.extension().string());
  const std::string key = file.stem().string();
  const std::vector<uint8_t> kept = files.find(key);
  std::string text(kept.begin(), kept.end());
  const size_t at = text.find("3.0:f32");
  ASSERT_NE(at, std::string::npos) << text;
  text.replace(at, 1, "5");
  files.keep(key, {text.begin(), text.end()});
  EXPECT_EQ(last(1), own + 5 * 80);
  EXPECT_EQ(count("objects"), 1);  // that of the right program, which was not used

  // Damaged files and texts that are no programs are made again.
  for (const std::string& wrong : {std::string("no program"), std::string("no program\n---\n")}) {
    files.keep(key, {wrong.begin(), wrong.end()});
    EXPECT_EQ(last(1), own + 3 * 80);
    EXPECT_EQ(files.find(key), kept);
  }
  std::fstream(file, std::ios::in | std::ios::out).put('?');
  EXPECT_EQ(last(1), own + 3 * 80);
  // Another number of threads is another choice.
  options.threads = 2;
  EXPECT_EQ(last(1), own + 3 * 80);
  EXPECT_EQ(count("programs"), 2);
  fs::remove_all(folder);
}

TEST(Api, OpenDimensionsAreKeptWithTheirOtherSchedule) {
  const std::string folder = testing::TempDir() + fmt::format("/cleave-open-{}", getpid());
  CompileOptions options;
  options.cache_directory = folder;
  options.typical["S"] = 40;
  for (int round = 0; round < 2; ++round) {
    const Program p = Program::compile(shifted(), options);
    for (const int64_t rows : {40, 0, 1, 300}) expect_shifted(p, rows);
    EXPECT_EQ(p.compilations(), 2u);  // the call without rows needed the unfused one
  }
  std::filesystem::remove_all(folder);
}

TEST(Api, ConstantsAndScalarsReachTheProgram) {
  GraphBuilder b;
  const Value x = b.input("x", ElementType::f32, {2, 2});
  const Tensor weights = numbers({2, 2}, 1);
  View turned = weights;
  turned.strides = {1, 2};
  const Value w = b.constant("w", turned);
  const Value s = b.scalar("s", ElementType::f32);
  b.output("y", b.add("mul", {b.add("contract", {x, w}, {{"spec", std::string("i k, k j -> i j")}}), s}));
  const Program p = Program::compile(b.build());
  const Tensor identity = zeros(ElementType::f32, {2, 2});
  static_cast<float*>(identity.data)[0] = static_cast<float*>(identity.data)[3] = 1;
  const View v = identity;
  const double two = 2;
  const auto out = p.run(std::span(&v, 1), std::span(&two, 1));
  EXPECT_THAT(std::vector<float>(out[0].as<float>(), out[0].as<float>() + 4), testing::ElementsAre(2, 6, 4, 8));
  error_of([&] { p.run({identity}); }, "CLV6006");
}

}  // namespace
}  // namespace cleave
