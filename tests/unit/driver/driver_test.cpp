#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/codes.hpp"
#include "driver/object_cache.hpp"
#include "driver/options.hpp"
#include "driver/pipeline.hpp"
#include "driver/report.hpp"
#include "driver/sha256.hpp"

namespace cleave::driver {
namespace {

TEST(Options, ReadDimensions) {
  std::map<std::string, DimOption> dims;
  EXPECT_TRUE(parse_dim("S=128", dims).empty());
  EXPECT_TRUE(parse_dim("L=1..8192@4096", dims).empty());
  EXPECT_TRUE(parse_dim("M=0..7", dims).empty());
  EXPECT_EQ(dims["S"].representative, 128);
  EXPECT_FALSE(dims["S"].is_range());
  EXPECT_EQ(dims["L"].lo, 1);
  EXPECT_EQ(dims["L"].hi, 8192);
  EXPECT_EQ(dims["L"].representative, 4096);
  EXPECT_EQ(dims["M"].representative, 7);
  for (const char* bad :
       {"", "S", "=4", "T=", "T=x", "T=-1", "T=1..", "T=5..2", "T=1..8@9", "T=1.5", "T=99999999999999999999", "S=4"}) {
    const Diagnostics d = parse_dim(bad, dims);
    ASSERT_EQ(d.size(), 1u) << bad;
    EXPECT_EQ(d[0].code, Code::bad_option);
  }
}

// The high ends of ranges are what speed is chosen for, unless their tensors would not be had in a moment.
TEST(Dims, RepresentativesFitInMemory) {
  const auto bound = [](const std::vector<std::string>& dims) {
    Compilation c;
    c.path = (std::filesystem::temp_directory_path() / fmt::format("dims_{}.graph", getpid())).string();
    std::ofstream(c.path) << "graph g {\n  dim N in 0..100000000\n  dim M in 0..100000000\n  input x: f32[N, 64]\n"
                             "  input w: f32[64, M]\n  y = contract(\"n k, k m -> n m\", x, w)\n  output y\n}\n";
    for (const std::string& d : dims) EXPECT_TRUE(parse_dim(d, c.options.dims).empty());
    const Diagnostics bad = run_passes(c, "bind");
    std::filesystem::remove(c.path);
    EXPECT_TRUE(bad.empty()) << render(bad, nullptr);
    return c;
  };
  Compilation c = bound({"N=1..1000", "M=1..2000"});
  EXPECT_EQ(c.typical, (DimValues{{"N", 1000}, {"M", 2000}}));
  EXPECT_TRUE(c.notes.empty());
  c = bound({"N=1..100000000", "M=1..2000"});
  EXPECT_LT(c.typical["N"], 1 << 18);
  EXPECT_GT(c.typical["N"], 1 << 15);
  EXPECT_LE(size_at(*c.bound, c.typical), 1);
  ASSERT_EQ(c.notes.size(), 1u);
  EXPECT_THAT(c.notes[0], ::testing::HasSubstr(fmt::format("N={}", c.typical["N"])));
  for (const DimBinding& d : c.dims) EXPECT_EQ(d.option.representative, c.typical[d.name]);
  // Never below the range, and never what was given.
  c = bound({"N=50000000..100000000", "M=1..2000@2000"});
  EXPECT_EQ(c.typical, (DimValues{{"N", 50000000}, {"M", 2000}}));
}

TEST(Options, ReadBudgets) {
  EXPECT_EQ(parse_budget("60s")->seconds, 60);
  EXPECT_EQ(parse_budget("1.5m")->seconds, 90);
  EXPECT_EQ(parse_budget("500ms")->seconds, 0.5);
  EXPECT_EQ(parse_budget("500c")->candidates, 500);
  EXPECT_TRUE(std::isinf(parse_budget("500c")->seconds));
  EXPECT_TRUE(std::isinf(parse_budget("none")->seconds));
  for (const char* bad : {"", "s", "60", "-1s", "1.5c", "infs", "nans", "60 s", "60x"})
    EXPECT_FALSE(parse_budget(bad).ok()) << bad;
}

TEST(Sha256, AgreesWithTheStandard) {
  const auto hash = [](std::string_view text) {
    return sha256_hex(std::as_bytes(std::span(text.data(), text.size())));
  };
  EXPECT_EQ(hash(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hash("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hash(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  std::string text;
  for (int i = 0; i < 300; ++i) {
    const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
    ASSERT_EQ(sha256_hex(bytes), sha256_hex(bytes, true)) << i;
    text += static_cast<char>(i * 37);
  }
}

TEST(ObjectCache, KeepsWholeObjectsOnly) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(::testing::TempDir()) / fmt::format("cleave-objects-{}", getpid());
  const ObjectCache cache(folder.string());
  const SourceText source{
      "t",
      "tile t { input X: f32[4] argument 0 output Y: f32[4] argument 0 kernel k { nest (i < 4) { Y[i] = X[i] } } }"};
  const auto program = tile::parse(source);
  ASSERT_TRUE(program.ok());
  const std::string key = cache.key(*program, host_machine());
  EXPECT_TRUE(cache.find(key).empty());
  const std::vector<uint8_t> object = {1, 2, 3, 4, 5};
  cache.keep(key, object);
  EXPECT_EQ(cache.find(key), object);
  // Another target has another key; what was measured does not matter.
  Machine m = host_machine();
  m.dram_gbytes = 17;
  EXPECT_EQ(cache.key(*program, m), key);
  m.vector_registers += 1;
  EXPECT_NE(cache.key(*program, m), key);
  // A damaged file is not loaded, and goes.
  const fs::path file = folder / "objects" / (key + ".o");
  {
    std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
    f.seekp(-1, std::ios::end);
    f.put(9);
  }
  EXPECT_TRUE(cache.find(key).empty());
  EXPECT_FALSE(fs::exists(file));
  // Nowhere to keep: nothing is found, nothing fails.
  const ObjectCache nowhere("/proc/none");
  nowhere.keep("k", object);
  EXPECT_TRUE(nowhere.find("k").empty());
  fs::remove_all(folder);
}

TEST(Report, DrawsEveryKindOfNode) {
  const SourceText source{"g",
                          "graph g {\n  input X: f32[3, 4]\n  scalar s: f32\n  const c: f32[4] = splat(2.0)\n"
                          "  i = iota(shape=[3, 4], axis=1, dtype=f32)\n  a, b = moments(mul(add(X, c), s), axes=[1])\n"
                          "  output \"<y & z>\" = sub(add(i, X), unsqueeze(add(a, b), axes=[1]))\n}\n"};
  const auto g = graph::parse(source);
  ASSERT_TRUE(g.ok()) << render(g.errors(), &source);
  const std::string svg = graph_svg(*g);
  for (const char* text :
       {"input X", "scalar s", "const c", "iota", "moments", "&lt;y &amp; z&gt;", "f32[3, 4]", "</svg>"})
    EXPECT_NE(svg.find(text), std::string::npos) << text << "\n" << svg;
  EXPECT_EQ(svg.find("<y"), std::string::npos);
}

TEST(Pipeline, PassesFitTogether) {
  // What a pass takes is what the one before it gives.
  const auto passes = pipeline();
  for (size_t i = 1; i < passes.size(); ++i) EXPECT_STREQ(passes[i].in, passes[i - 1].out) << passes[i].name;
  EXPECT_EQ(find_pass("schedule"), &passes[4]);
  EXPECT_EQ(find_pass("nothing"), nullptr);
}

struct PipelineRun : ::testing::Test {
  Compilation c;
  PipelineRun() {
    c.path = CLEAVE_SOURCE_DIR "/examples/gqa_decode.graph";
    c.options.dims["L"] = {64, 64, 64};
    c.options.machine_file = CLEAVE_SOURCE_DIR "/src/machine/targets/amd_zen3.machine";
  }
};

TEST_F(PipelineRun, StopsWhereItIsAskedTo) {
  ASSERT_TRUE(run_passes(c, "expand").empty());
  EXPECT_TRUE(c.expanded.has_value());
  EXPECT_TRUE(c.equal.empty());
  EXPECT_THAT(c.times, ::testing::SizeIs(3));
}

TEST_F(PipelineRun, LeavesOutTheSearch) {
  c.options.disabled = {"search"};
  ASSERT_TRUE(run_passes(c, "schedule").empty());
  EXPECT_EQ(c.equal.size(), 1u);
  EXPECT_FALSE(c.proposals.empty());
  for (const tune::Proposal& p : c.proposals) EXPECT_EQ(p.graph, 0);
}

// Few rows a request: a task takes those of all query heads, and gathers the keys that these share once, in rows that
// are turned afterwards.
TEST_F(PipelineRun, GatheredKeysServeAllHeadsOfATask) {
  c.path = CLEAVE_SOURCE_DIR "/examples/dynamic/gqa_paged_prefill.graph";
  c.options.dims = {{"KV", {8, 8, 8}},      {"R", {4, 4, 4}},      {"D", {128, 128, 128}},
                    {"B", {1, 17, 17}},     {"TQ", {1, 204, 204}}, {"PAGES", {1, 2817, 2817}},
                    {"N", {1, 2560, 2560}}, {"S", {1, 71, 12}},    {"L", {1, 792, 600}}};
  ASSERT_TRUE(run_passes(c, "schedule").empty());
  const std::string program = tile::print(c.proposals.front().candidate.program);
  EXPECT_THAT(program, ::testing::HasSubstr("_rows: f32[8, 128]")) << c.proposals.front().candidate.summary;
  // Of three loops over tasks (requests, rows, key heads) none is over the query heads of a key head.
  size_t loops = 0;
  for (size_t at = program.rfind("kernel "); (at = program.find("parallel ", at)) != std::string::npos; ++at) ++loops;
  EXPECT_EQ(loops, 3u) << program;
}

TEST_F(PipelineRun, StopsAtAPassThatIsLeftOut) {
  c.options.disabled = {"search"};
  ASSERT_TRUE(run_passes(c, "search").empty());
  EXPECT_EQ(c.equal.size(), 1u);
  EXPECT_TRUE(c.proposals.empty());
  EXPECT_FALSE(c.outcome.has_value());
}

TEST_F(PipelineRun, SaysWhichPassFailed) {
  c.options.dims.clear();
  const Diagnostics bad = run_passes(c);
  ASSERT_EQ(bad.size(), 2u);
  EXPECT_EQ(bad[0].code, Code::unbound_dim);
  EXPECT_EQ(bad[1].code, Code::pass_failed);
  EXPECT_EQ(bad[1].parameters, std::vector<std::string>{"bind"});
}

TEST_F(PipelineRun, ReportsACompleteResult) {
  c.options.budget = {std::numeric_limits<double>::infinity(), 2};
  ASSERT_TRUE(run_passes(c).empty());
  const std::string json = result_json(c);
  for (const char* key : {"\"schema\": \"cleave.result/1\"", "\"baseline_ms\"", "\"roofline_pct\"", "\"coverage\"",
                          "\"baseline_max_rel\""})
    EXPECT_THAT(json, ::testing::HasSubstr(key));
  EXPECT_THAT(result_text(c), ::testing::HasSubstr("unfused"));
  EXPECT_GT(kernel_reports(c).size(), 0u);
  EXPECT_LE(c.outcome->verdict.worst, 1);
  const auto bytes = memory(c);
  ASSERT_TRUE(bytes.has_value());
  EXPECT_GE(bytes->separate, bytes->workspace);
  EXPECT_THAT(json, ::testing::HasSubstr("\"without_reuse\""));
}

}  // namespace
}  // namespace cleave::driver
