// One compilation serves every value of a run-time extent: graphs with dims are scheduled and compiled once, then run
// at a list of extents (empty, one, below a tile, primes, the ends of the range) by the interpreters of itGraphs and
// tile programs and as machine code, judged by the evaluator on the bound graph. Outputs are guarded and full of NaN,
// and so is the workspace.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "algebra/search.hpp"
#include "differential/judge.hpp"
#include "eval/itgraph_eval.hpp"
#include "eval/tile_eval.hpp"
#include "graph/expand.hpp"

namespace cleave {
namespace {

using oracle::Tensor;
using testing::Output;
using Binding = std::map<std::string, int64_t>;

graph::Graph parsed(const std::string& text) {
  const SourceText source{"test.graph", text};
  auto g = graph::parse(source);
  EXPECT_TRUE(g.ok()) << (g.ok() ? "" : render(g.errors(), &source));
  return std::move(*g);
}

struct Case {
  schedule::Candidate candidate;
  jit::Built built;
};

// Compiled for this machine; small tiles as well, so that extents have several tiles and tails.
std::vector<Case> compiled(const graph::Graph& expanded, size_t keep, int64_t part = 0) {
  std::vector<Case> out;
  for (const int64_t tile : {0, 5}) {
    schedule::Options options;
    options.machine = host_machine();
    options.keep = keep;
    options.tile = tile;
    options.part = part;
    auto all = schedule::candidates(expanded, options);
    EXPECT_TRUE(all.ok()) << (all.ok() ? "" : render(all.errors(), nullptr)) << graph::print(expanded);
    if (!all) return out;
    for (schedule::Candidate& c : *all) {
      // What is printed is what runs.
      const std::string text = tile::print(c.program), nested = itgraph::print(c.it);
      auto again = tile::parse({"printed", text});
      EXPECT_TRUE(again.ok() && tile::print(*again) == text) << text;
      auto it_again = itgraph::parse({"printed", nested});
      EXPECT_TRUE(it_again.ok() && itgraph::print(*it_again) == nested) << nested;
      auto built = jit::build(c.program);
      EXPECT_TRUE(built.ok()) << (built.ok() ? "" : render(built.errors(), nullptr)) << text;
      if (!built) return out;
      out.push_back({std::move(c), std::move(*built)});
    }
  }
  return out;
}

// One call: values of the dims, inputs, and what the bound graph makes of them.
struct Call {
  Binding binding;
  graph::Graph graph;
  std::vector<Tensor> given;
  std::vector<oracle::Bounded> expected;
};
using Fix = std::function<void(const graph::Graph&, std::vector<Tensor>&)>;
Call call_of(const graph::Graph& symbolic, const Binding& binding, uint64_t seed, const Fix& fix = {}) {
  graph::Graph g = graph::expand(graph::bind(symbolic, binding).value());
  auto given = testing::tensors_of(testing::random_inputs(g, seed, static_cast<testing::Magnitude>(seed % 3)));
  if (fix) fix(g, given);
  auto expected = oracle::evaluate_with_bounds(g, given).value();
  return {binding, std::move(g), std::move(given), std::move(expected)};
}

// Empty when the case computes what the bound graph means.
std::string judged(const Case& c, const Call& call, bool interpret) {
  const Binding& binding = call.binding;
  const graph::Graph& g = call.graph;
  const std::vector<Tensor>& given = call.given;
  const std::vector<oracle::Bounded>& expected = call.expected;
  std::vector<int64_t> extents;
  for (const sym::Expr d : c.candidate.program.dims)
    extents.push_back(binding.at(c.candidate.program.syms->symbol_name(d)));

  std::vector<std::vector<std::byte>> memory;
  std::vector<jit::TensorView> inputs, outputs;
  std::vector<double> scalars;
  oracle::TileArguments tile_arguments;
  oracle::ItGraphArguments it_arguments;
  tile_arguments.extents = it_arguments.extents = extents;
  const auto leaves = oracle::given_leaves(g);
  memory.reserve(leaves.size());
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (g.producer(leaves[i]).op == graph::Op::scalar) {
      scalars.push_back(given[i].at(0));
      continue;
    }
    memory.push_back(oracle::to_dense(given[i]));
    inputs.push_back({memory.back().data(), given[i].dtype, given[i].extents, {}});
    tile_arguments.inputs.emplace_back(memory.back());
    it_arguments.inputs.push_back(given[i]);
  }
  tile_arguments.scalars = it_arguments.scalars = scalars;
  std::vector<Output> results, interpreted;
  for (const auto& o : g.outputs()) results.emplace_back(g.type(o.value).dtype, g.extents(o.value));
  interpreted = results;
  for (Output& o : results) outputs.push_back({o.data(), o.dtype, o.extents, {}});
  for (Output& o : interpreted)
    tile_arguments.outputs.emplace_back(o.data(), static_cast<size_t>(oracle::product(o.extents) * byte_size(o.dtype)));

  const auto where = [&](const char* what) {
    std::string s = std::string(what) + " at";
    for (const auto& [name, value] : binding) s += fmt::format(" {}={}", name, value);
    return s + ", " + c.candidate.summary;
  };
  const auto compared = [&](std::vector<Output>& got, const char* what) -> std::string {
    for (size_t i = 0; i < got.size(); ++i) {
      const auto d = oracle::compare(oracle::from_dense(got[i].dtype, got[i].extents, got[i].data()), expected[i]);
      if (!d.ok())
        return where(what) + ", output " + std::to_string(i) + ": " + d.text + "\n" + tile::print(c.candidate.program);
      if (!got[i].guards_intact()) return where(what) + ": an output was overrun\n" + tile::print(c.candidate.program);
    }
    return "";
  };
  if (interpret) {
    if (const Diagnostics bad = oracle::try_run(c.candidate.program, tile_arguments); !bad.empty())
      return where("interpreter") + render(bad, nullptr) + tile::print(c.candidate.program);
    if (const std::string wrong = compared(interpreted, "interpreter"); !wrong.empty()) return wrong;
    auto tensors = oracle::run(c.candidate.it, it_arguments);
    if (!tensors) return where("itgraph") + render(tensors.errors(), nullptr) + itgraph::print(c.candidate.it);
    for (size_t i = 0; i < tensors->size(); ++i)
      if (const auto d = oracle::compare((*tensors)[i], expected[i]); !d.ok())
        return where("itgraph") + ", output " + std::to_string(i) + ": " + d.text + itgraph::print(c.candidate.it);
  }
  jit::RunOptions run;
  run.machine.flush_denormals = false;
  run.extents = extents;
  auto bytes = c.built.workspace_bytes(extents);
  if (!bytes) return where("code") + render(bytes.errors(), nullptr);
  // The workspace is dirty, and guarded.
  runtime::Buffer workspace(*bytes + 64);
  std::memset(workspace.data(), 0xff, static_cast<size_t>(workspace.size()));
  run.workspace = workspace.data();
  if (const Diagnostics bad = c.built.run(inputs, scalars, outputs, nullptr, run); !bad.empty())
    return where("code") + render(bad, nullptr);
  for (int64_t i = 0; i < 64; ++i)
    if (workspace.bytes()[*bytes + i] != 0xff) return where("code") + ": the workspace was overrun";
  if (const std::string wrong = compared(results, "code"); !wrong.empty()) return wrong;
  // Any number of threads gives the same bits.
  std::vector<Output> again;
  for (const auto& o : g.outputs()) again.emplace_back(g.type(o.value).dtype, g.extents(o.value));
  for (size_t i = 0; i < again.size(); ++i) outputs[i].data = again[i].data();
  ThreadPool pool(3);
  run.executor = &pool;
  if (const Diagnostics bad = c.built.run(inputs, scalars, outputs, nullptr, run); !bad.empty())
    return where("threads") + render(bad, nullptr);
  for (size_t i = 0; i < again.size(); ++i)
    if (again[i].memory != results[i].memory) return where("threads") + ": other bits";
  return "";
}

// The schedules of a graph (and of what the algebra finds for it) at all bindings.
void serve(const std::string& text, const std::vector<Binding>& bindings, bool search = true,
           bool divides_by_extent = false, const Binding& typical = {}) {
  const graph::Graph symbolic = parsed(text);
  for (const sym::Expr d : symbolic.dims())
    if (const auto it = typical.find(symbolic.syms().symbol_name(d)); it != typical.end())
      symbolic.syms().set_typical(d, it->second);
  const graph::Graph expanded = graph::expand(symbolic);
  std::vector<graph::Graph> graphs = {expanded};
  if (search) {
    auto found = algebra::search(expanded, {});
    ASSERT_TRUE(found.ok()) << render(found.errors(), nullptr);
    for (algebra::Found& f : found->graphs) graphs.push_back(std::move(f.graph));
  }
  std::vector<Call> calls;
  for (size_t i = 0; i < bindings.size(); ++i) calls.push_back(call_of(symbolic, bindings[i], i + 1));
  for (size_t k = 0; k < graphs.size(); ++k) {
    const std::vector<Case> cases = compiled(graphs[k], k == 0 ? 2 : 1);
    ASSERT_FALSE(cases.empty());
    for (const Case& c : cases)
      for (const Call& call : calls) {
        int64_t product = 1;
        for (const auto& [name, value] : call.binding) product *= std::max<int64_t>(value, 1);
        // The algebra moves divisions by an extent past sums, which differs where the extent is 0.
        const bool empty =
            std::any_of(call.binding.begin(), call.binding.end(), [](const auto& b) { return b.second == 0; });
        if (k > 0 && empty && divides_by_extent) continue;
        const std::string wrong = judged(c, call, product <= 64);
        ASSERT_EQ(wrong, "") << graph::print(graphs[k]);
      }
  }
}

// Requests with these lengths, through the graph of an example: the integer inputs by their names.
struct Requests {
  std::vector<int64_t> q, kv;
};
void serve_requests(const std::string& example, const Binding& sizes, const std::vector<Requests>& batches,
                    int64_t page = 1) {
  std::ifstream file(std::string(CLEAVE_SOURCE_DIR) + "/examples/dynamic/" + example + ".graph");
  std::stringstream text;
  text << file.rdbuf();
  const graph::Graph symbolic = graph::bind(parsed(text.str()), sizes).value();
  for (const sym::Expr d : symbolic.dims()) symbolic.syms().set_typical(d, 40);
  std::vector<Call> calls;
  for (size_t n = 0; n < batches.size(); ++n) {
    const Requests& r = batches[n];
    std::vector<double> qo = {0}, kv = {0}, last;
    int64_t pages = 0;
    for (size_t b = 0; b < r.kv.size(); ++b) {
      qo.push_back(qo.back() + static_cast<double>(r.q[b]));
      const int64_t own = (r.kv[b] + page - 1) / page;
      kv.push_back(kv.back() + static_cast<double>(example.find("paged") != std::string::npos ? own : r.kv[b]));
      last.push_back(r.kv[b] == 0 ? 1 : static_cast<double>((r.kv[b] - 1) % page + 1));
      pages += own;
    }
    const int64_t longest_q = r.q.empty() ? 0 : *std::max_element(r.q.begin(), r.q.end());
    const int64_t longest_kv = r.kv.empty() ? 0 : *std::max_element(r.kv.begin(), r.kv.end());
    const Binding all = {{"B", static_cast<int64_t>(r.kv.size())}, {"L", longest_kv},    {"S", longest_q},
                         {"TQ", static_cast<int64_t>(qo.back())},  {"PAGES", pages + 2}, {"N", pages},
                         {"TK", static_cast<int64_t>(kv.back())}};
    Binding binding;
    for (const sym::Expr d : symbolic.dims())
      binding[symbolic.syms().symbol_name(d)] = all.at(symbolic.syms().symbol_name(d));
    calls.push_back(call_of(symbolic, binding, 3 * n, [&](const graph::Graph& g, std::vector<Tensor>& given) {
      const auto leaves = oracle::given_leaves(g);
      for (size_t i = 0; i < leaves.size(); ++i) {
        const std::string& name = g.value(leaves[i]).name;
        const auto put = [&](const std::vector<double>& values) {
          for (size_t k = 0; k < values.size(); ++k) given[i].set(static_cast<int64_t>(k), values[k]);
        };
        if (name == "qo_indptr") put(qo);
        if (name == "kv_indptr") put(kv);
        if (name == "kv_last_page_len") put(last);
        if (name == "kv_indices")
          for (int64_t k = 0; k < pages; ++k) given[i].set(k, static_cast<double>((7 * k + 3) % (pages + 2)));
        if (name == "sm_scale") given[i].set(0, 0.3);
      }
    }));
  }
  std::vector<graph::Graph> graphs = {graph::expand_for_search(symbolic)};
  auto found = algebra::search(graphs[0], {});
  ASSERT_TRUE(found.ok()) << render(found.errors(), nullptr);
  for (size_t i = 0; i < std::min<size_t>(found->graphs.size(), 3); ++i) graphs.push_back(found->graphs[i].graph);
  for (const graph::Graph& g : graphs) {
    const std::vector<Case> cases = compiled(g, 1);
    ASSERT_FALSE(cases.empty());
    for (const Case& c : cases)
      for (const Call& call : calls) {
        const std::string wrong = judged(c, call, call.given[0].elements() < 200);
        ASSERT_EQ(wrong, "") << graph::print(g);
      }
  }
}

const std::vector<Requests> kDecode = {
    {{1, 1, 1}, {3, 0, 5}}, {{}, {}}, {{1}, {1}}, {{1, 1, 1, 1}, {0, 0, 0, 0}}, {{1, 1}, {200, 33}}};
const std::vector<Requests> kPrefill = {{{3, 0, 2}, {5, 4, 0}},     {{}, {}},          {{4}, {1}}, {{1, 1}, {1, 1}},
                                        {{70, 5, 1}, {90, 5, 130}}, {{34, 2}, {1, 40}}};

TEST(Dynamic, ServesPagedDecode) {
  serve_requests("gqa_paged_decode", {{"KV", 2}, {"R", 3}, {"D", 8}}, kDecode);
  serve_requests("mla_paged_decode", {{"H", 3}, {"C", 16}, {"E", 8}}, kDecode);
}
TEST(Dynamic, ServesPagedDecodeWithPartialPages) {
  serve_requests("gqa_paged_decode_page64", {{"KV", 1}, {"R", 5}, {"D", 8}}, kDecode, 64);
}
TEST(Dynamic, ServesPagedPrefill) {
  serve_requests("gqa_paged_prefill", {{"KV", 2}, {"R", 3}, {"D", 8}}, kPrefill);
  serve_requests("mla_paged_prefill", {{"H", 2}, {"C", 16}, {"E", 8}}, kPrefill);
}
TEST(Dynamic, ServesPagedPrefillWithPartialPages) {
  serve_requests("gqa_paged_prefill_page64", {{"KV", 1}, {"R", 4}, {"D", 8}}, kPrefill, 64);
}
TEST(Dynamic, ServesRaggedPrefill) {
  serve_requests("gqa_ragged_prefill", {{"KV", 1}, {"R", 4}, {"D", 8}}, kPrefill);
  serve_requests("mla_ragged_prefill", {{"H", 2}, {"D", 12}, {"E", 8}}, kPrefill);
}

std::vector<Binding> lengths(const std::string& dim, const std::vector<int64_t>& values) {
  std::vector<Binding> out;
  for (const int64_t v : values) out.push_back({{dim, v}});
  return out;
}

TEST(Dynamic, ServesReductionsOfAnyLength) {
  serve(R"(graph g {
  dim L in 0..3000
  input X: f32[3, L]
  input Y: f32[L, 5]
  output S = sum(X, axes=[1])
  output M = amax(X, axes=[1])
  output C = sum(Y, axes=[0])
  output P = prod(add(Y, 1.5), axes=[1])
  output E = mean(X, axes=[1])
})",
        lengths("L", {0, 1, 2, 5, 16, 17, 63, 255, 1024, 2999, 3000}), true, true);
}

TEST(Dynamic, ServesSoftmaxOfAnyWidthAndHeight) {
  std::vector<Binding> all;
  for (const int64_t s : {0, 1, 3, 64, 65})
    for (const int64_t l : {0, 1, 3, 17, 300}) all.push_back({{"S", s}, {"L", l}});
  serve(R"(graph g {
  dim S in 0..128
  dim L in 0..512
  input X: f32[S, L]
  output P = softmax(X, axis=1)
  output Q = log_softmax(X, axis=1)
})",
        all);
}

// Dimensions without an upper end to speak of, thought to be short. The statements are written in one line; most have a
// value that a kernel keeps, because several things read it.
std::string wide_open(const std::string& dims, const char* body, int64_t end = int64_t{1} << 31) {
  std::string text = "graph g {\n";
  for (const char d : dims) text += fmt::format("  dim {} in 2..{}\n", d, end);
  for (const char* c = body; *c; ++c) text += *c == ';' ? '\n' : *c;
  return text + "\n}";
}
struct WideOpen {
  const char* dims;
  const char* body;
};
const WideOpen kTiled[] = {
    {"ABC", "input X: f32[A, B, C]; T = exp(X); output Y = mul(T, sigmoid(T))"},
    {"ABCD", "input X: f32[A, B, C, D]; T = erf(X); output Y = div(T, add(abs(T), 1.0))"},
    {"ABCDE", "input X: f32[A, B, C, D, E]; T = erf(X); output Y = div(T, add(abs(T), 1.0))"},
    {"ABC", "input X: f32[A, B, C]; Z = transpose(erf(X), perm=[2, 0, 1]); output Y = div(Z, add(abs(Z), 1.0))"},
    {"ABC", "input X: f32[A, B, C]; W = window(X, axes=[1], sizes=[2], strides=[2]); output Y = mean(W, axes=[3])"},
    {"ABCD",
     "input X: f32[A, B, C, D]; W = window(transpose(X, perm=[0, 3, 1, 2]), axes=[2, 3], sizes=[2, 2], strides=[2, "
     "2]); output Y = amax(W, axes=[4, 5])"},
    {"ABC", "input X: f32[A, B, C]; T = exp(X); output U = neg(T); output Y = mul(T, sigmoid(T))"},
    {"ABC",
     "input X: f32[A, B, C]; input S: f32[A]; F = erf(S); output G = div(F, add(abs(F), 1.0)); T = erf(add(X, "
     "unsqueeze(F, axes=[1, 2]))); output Y = div(T, add(abs(T), 1.0))"},
    {"ABC", "input X: f32[A, B, C]; T = erf(X); output S = sum(div(T, add(abs(T), 1.0)), axes=[0, 1, 2])"},
    {"ABC", "input X: f32[A, B, C]; T = erf(X); output Y = div(T, add(abs(T), 1.0)); output S = sum(T, axes=[1, 2])"},
    {"ABCD",
     "input X: f32[A, B, C, D]; T = erf(X); output Y = div(T, add(abs(T), 1.0)); output S = sum(T, axes=[1, 3])"},
    {"ABC", "input X: f32[A, B, C]; T = erf(X); output S = sum(div(T, add(abs(T), 1.0)), axes=[1])"},
    {"ABCD",
     "input X: f32[A, B, C]; input W: f32[C, D]; P = erf(contract(X, W, spec=\"a b c, c d -> a b d\")); output Y = "
     "div(P, add(abs(P), 1.0))"},
    {"ABCDE",
     "input X: f32[A, B]; input W: f32[B, C, D, E]; P = erf(contract(X, W, spec=\"a b, b c d e -> a c d e\")); output "
     "Y = div(P, add(abs(P), 1.0))"},
    {"ABCD",
     "input X: f32[A, B, C]; input W: f32[A, B, C, D]; T = erf(X); output Y = contract(div(T, add(abs(T), 1.0)), W, "
     "spec=\"a b c, a b c d -> d\")"},
};
// Each row is needed at once: as long as the call says.
const WideOpen kRows[] = {
    {"ABC", "input X: f32[A, B, C]; output Y = softmax(X, axis=2)"},
    {"ABC", "input X: f32[A, B, C]; output Y = softmax(X, axis=0)"},
    {"ABCD", "input X: f32[A, B, C, D]; output Y = softmax(X, axis=1)"},
    {"ABC",
     "input X: f32[A, B, C]; N = layer_norm(X, axes=[-1], eps=0.001); T = erf(N); output Y = div(T, add(abs(T), 1.0))"},
    {"ABCD",
     "input Q: f32[A, B, C]; input K: f32[A, D, C]; input V: f32[A, D, C]; S = contract(Q, K, spec=\"b s d, b l d -> b "
     "s l\"); output O = contract(softmax(S, axis=-1), V, spec=\"b s l, b l d -> b s d\")"},
};
const Binding kShort = {{"A", 2}, {"B", 9}, {"C", 8}, {"D", 3}, {"E", 5}};

TEST(Dynamic, ServesManyOpenDimensions) {
  const std::vector<Binding> calls = {
      kShort,
      {{"A", 5}, {"B", 2}, {"C", 3}, {"D", 17}, {"E", 2}},
      {{"A", 2}, {"B", 40}, {"C", 67}, {"D", 3}, {"E", 2}},
      {{"A", 130}, {"B", 3}, {"C", 2}, {"D", 2}, {"E", 4}},
      {{"A", 2}, {"B", 3}, {"C", 4200}, {"D", 2}, {"E", 3}},
  };
  const auto serve_all = [&](std::span<const WideOpen> graphs) {
    for (const WideOpen& g : graphs) {
      std::vector<Binding> own = calls;
      for (Binding& b : own) std::erase_if(b, [&](const auto& x) { return !std::strchr(g.dims, x.first[0]); });
      serve(wide_open(g.dims, g.body), own, false, false, kShort);
    }
  };
  serve_all(kTiled);
  serve_all(kRows);
}

// What a task keeps is tiles, whatever the call: every candidate at dimensions that are all long.
TEST(Dynamic, TilesBoundTheMemoryOfTasks) {
  const auto bounded = [](const WideOpen& g, const Binding& typical, int64_t end) {
    const graph::Graph symbolic = parsed(wide_open(g.dims, g.body, end));
    for (const sym::Expr d : symbolic.dims())
      symbolic.syms().set_typical(d, typical.at(symbolic.syms().symbol_name(d)));
    schedule::Options options;
    options.machine = host_machine();
    options.every = true;
    const auto all = schedule::candidates(graph::expand(symbolic), options);
    ASSERT_TRUE(all.ok()) << render(all.errors(), nullptr);
    for (const schedule::Candidate& c : *all)
      for (const tile::BufferId b : c.program.buffers_in(tile::Place::scratch)) {
        const auto elements =
            c.program.syms->evaluate(c.program.size(b), [](sym::Expr) { return std::optional<int64_t>(100000); });
        EXPECT_LE(*elements, 1 << 21) << c.program.buffer(b).name << "\n" << tile::print(c.program);
      }
  };
  for (const Binding& typical : {kShort, Binding{{"A", 64}, {"B", 1000}, {"C", 128}, {"D", 300}, {"E", 33}}})
    for (const int64_t end : {int64_t{1} << 31, int64_t{100000}})
      for (const WideOpen& g : kTiled) bounded(g, typical, end);
}

TEST(Dynamic, ServesAttentionOfAnyLength) {
  std::vector<Binding> all;
  for (const auto& [s, l] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 3}, {1, 0}, {1, 1}, {2, 7}, {1, 300}, {64, 64}, {67, 131}, {200, 513}, {7, 1024}})
    all.push_back({{"S", s}, {"L", l}});
  serve(R"(graph attention {
  dim S in 0..512
  dim L in 0..1024
  input Q: f32[2, S, 16]
  input K: f32[2, L, 16]
  input V: f32[2, L, 24]
  T = mul(contract("b s d, b l d -> b s l", Q, K), 0.25)
  output O = contract("b s l, b l e -> b s e", softmax(T, axis=-1, empty="zero"), V)
})",
        all);
}

// Keys at or past the length of a request do not count, so that its last parts are empty; a call has as many parts as
// its longest length needs, more than a request has keys among them.
TEST(Dynamic, ServesAttentionInPartsOfAnyLength) {
  const graph::Graph symbolic = parsed(R"(graph decode {
  dim L in 0..300
  input Q: f32[2, 3, 8]
  input K: f32[2, L, 8]
  input V: f32[2, L, 16]
  input lens: i32[2]
  j = iota(shape=[1, 1, L], axis=2, dtype=i64)
  S = mul(contract("b s d, b l d -> b s l", Q, K), 0.35)
  T = where(lt(j, reshape(cast(lens, dtype=i64), shape=[2, 1, 1])), S, -inf)
  m, u, v = scaled_reduce("b s l -> b s | -> b s | b l e -> b s e", T, V)
  output O = quot0(v, unsqueeze(u, axes=[2]))
  output M = m
})");
  std::vector<Call> calls;
  for (const int64_t l : {0, 1, 3, 7, 64, 65, 300})
    calls.push_back(call_of(symbolic, {{"L", l}}, static_cast<uint64_t>(l), [&](const graph::Graph& g, auto& given) {
      const auto leaves = oracle::given_leaves(g);
      for (size_t i = 0; i < leaves.size(); ++i)
        if (g.value(leaves[i]).name == "lens") given[i].set(0, static_cast<double>(l)), given[i].set(1, l / 3);
    }));
  for (const int64_t part : {1, 7, 64, 300}) {
    const std::vector<Case> cases = compiled(graph::expand(symbolic), 3, part);
    bool in_parts = false;
    for (const Case& c : cases) {
      in_parts = in_parts || c.candidate.summary.find(fmt::format("parts of {}", part)) != std::string::npos;
      for (const Call& call : calls) ASSERT_EQ(judged(c, call, call.binding.at("L") <= 7), "") << part;
    }
    EXPECT_TRUE(in_parts) << part;
  }
}

TEST(Dynamic, ServesCausalAttentionWithLogSums) {
  std::vector<Binding> all;
  for (const auto& [s, l] :
       std::vector<std::pair<int64_t, int64_t>>{{34, 1}, {0, 0}, {1, 1}, {5, 9}, {64, 64}, {100, 164}, {90, 20}})
    all.push_back({{"S", s}, {"L", l}});
  serve(R"(graph causal {
  dim S in 0..256
  dim L in 0..256
  input Q: f32[1, 4, S, 8]
  input K: f32[1, 2, L, 8]
  input V: f32[1, 2, L, 8]
  O, lse = sdpa(Q, K, V, causal="end", empty="zero", lse=true)
  output O
  output lse
})",
        all);
}

TEST(Dynamic, ServesNormAndProductOfAnyBatch) {
  serve(R"(graph rms_linear {
  dim M in 0..4096
  input X: f32[M, 48]
  input W: f32[48, 40]
  input g: f32[48]
  output Y = contract("m k, k n -> m n", rms_norm(X, g, axes=[1]), W)
})",
        lengths("M", {0, 1, 2, 16, 64, 65, 150}));
}

TEST(Dynamic, ServesProductsOfAnyShape) {
  std::vector<Binding> all;
  for (const auto& [m, n, k] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
           {0, 4, 4}, {4, 0, 4}, {4, 4, 0}, {1, 1, 1}, {17, 9, 13}, {65, 130, 600}, {3, 257, 70}})
    all.push_back({{"M", m}, {"N", n}, {"K", k}});
  serve(R"(graph product {
  dim M in 0..256
  dim N in 0..512
  dim K in 0..1024
  input A: f32[M, K]
  input B: f32[K, N]
  input C: f32[N, K]
  output D = contract("m k, k n -> m n", A, B)
  output E = relu(contract("m k, n k -> m n", A, C))
})",
        all, false);
}

TEST(Dynamic, ServesViewsOfAnyShape) {
  std::vector<Binding> all;
  for (const auto& [b, l] : std::vector<std::pair<int64_t, int64_t>>{{0, 3}, {3, 0}, {1, 1}, {2, 7}, {5, 33}})
    all.push_back({{"B", b}, {"L", l}});
  serve(R"(graph views {
  dim B in 0..16
  dim L in 0..64
  input X: f32[B, L, 12]
  input I: i64[L]
  flat = reshape(X, shape=[B*L, 12])
  heads = reshape(X, shape=[B, L, 3, 4])
  output A = transpose(heads, perm=[0, 2, 1, 3])
  output F = add(flat, 1.0)
  output G = sum(flat, axes=[0])
  output T = concat(X, mul(X, 2.0), axis=1)
  output W = pad(X, low=[0, 2, 0], high=[0, 1, 0])
  output J = gather(X, I, axis=1)
  output N = add(iota(shape=[L], axis=0, dtype=i64), extent(of=[L], dtype=i64))
})",
        all, false);
}

TEST(Dynamic, FollowsFromShapesAndIsCheckedAtTheCall) {
  const graph::Graph g = graph::expand(parsed(R"(graph g {
  dim L in 1..40
  input X: f32[2, L]
  output S = sum(X, axes=[1])
})"));
  const auto cases = compiled(g, 1);
  ASSERT_FALSE(cases.empty());
  std::vector<float> x(200, 1.0f), s(2);
  const auto run = [&](std::vector<int64_t> shape, std::optional<std::vector<int64_t>> extents = {}) {
    jit::RunOptions o;
    o.extents = std::move(extents);
    const std::vector<jit::TensorView> in = {{x.data(), DType::f32, std::move(shape), {}}};
    const std::vector<jit::TensorView> out = {{s.data(), DType::f32, {2}, {}}};
    const Diagnostics bad = cases[0].built.run(in, {}, out, nullptr, o);
    return bad.empty() ? "" : render(bad, nullptr);
  };
  EXPECT_EQ(run({2, 40}), "");
  EXPECT_EQ(s[1], 40);
  EXPECT_EQ(run({2, 1}), "");
  EXPECT_EQ(s[0], 1);
  EXPECT_THAT(run({2, 41}), ::testing::HasSubstr("the dimension `L` is 41, outside its range 1..40"));
  EXPECT_THAT(run({2, 0}), ::testing::HasSubstr("CLV2014"));
  EXPECT_THAT(run({2, 7}, std::vector<int64_t>{8}),
              ::testing::HasSubstr("`X` has the shape [2, 7], [2, 8] is expected"));
  EXPECT_THAT(run({2, 7}, std::vector<int64_t>{7, 7}), ::testing::HasSubstr("2 extents are given, the program has 1"));
}

}  // namespace
}  // namespace cleave
