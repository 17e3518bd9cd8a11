// Tile programs as LEIR: the interpreter of LEIR computes bit by bit what the interpreter of tile programs does.
#include "bridge/tile_leir.hpp"

#include "eval/tile_eval.hpp"
#include "schedule/schedule.hpp"
#include "support/leir_check.hpp"
#include "support/random_graph.hpp"

namespace cleave::bridge {
namespace {

std::vector<tile::BufferId> arguments_in(const tile::Program& p, tile::Place place) {
  std::vector<tile::BufferId> out;
  for (tile::BufferId id : p.buffers_in(place))
    if (!p.buffer(id).alias_of.valid()) out.push_back(id);
  std::sort(out.begin(), out.end(),
            [&](tile::BufferId a, tile::BufferId b) { return p.buffer(a).argument < p.buffer(b).argument; });
  return out;
}

// Empty, or what differs. Zeros of either sign are the same: max and min choose between them in their own ways.
std::string compared(const tile::Program& p, const TileAsLeir& as, uint64_t seed) {
  const leir::Checked checked = leir::check(as.syntax);
  if (!checked.program) return render(checked.messages, nullptr);
  const leir::Program& q = *checked.program;
  Rng rng(seed);
  std::map<std::string, leir::Array> given;
  std::vector<std::vector<std::byte>> memory;
  memory.reserve(p.buffers.size());
  oracle::TileArguments arguments;
  for (const auto& [place, list] : {std::pair(tile::Place::input, &arguments.inputs),
                                    {tile::Place::constant, &arguments.constants},
                                    {tile::Place::scalar, nullptr}})
    for (tile::BufferId id : arguments_in(p, place)) {
      const tile::Buffer& b = p.buffer(id);
      const auto v = q.find(as.names.at(b.name));
      if (!v) return b.name + " is no variable";
      leir::Array a = leir::make_array(leir::from_dtype(b.dtype), q.variables()[*v].shape);
      for (double& x : a.reals) x = round_to(b.dtype, rng.below(40) ? rng.normal() : rng.below(2) ? INFINITY : -0.0);
      for (int64_t& x : a.integers) x = b.dtype == DType::boolean ? rng.between(0, 1) : rng.between(0, 3);
      if (list) {
        const auto width = static_cast<size_t>(byte_size(b.dtype));
        memory.emplace_back(static_cast<size_t>(a.elements()) * width);
        for (size_t i = 0; i < static_cast<size_t>(a.elements()); ++i)
          if (a.real())
            store_real(b.dtype, memory.back().data() + i * width, a.reals[i]);
          else
            store_integer(b.dtype, memory.back().data() + i * width, a.integers[i]);
        list->emplace_back(memory.back());
      } else {
        arguments.scalars.push_back(leir::element(a, 0));
      }
      given.emplace(as.names.at(b.name), std::move(a));
    }
  for (tile::BufferId id : arguments_in(p, tile::Place::output)) {
    memory.emplace_back(static_cast<size_t>(p.elements(id) * byte_size(p.buffer(id).dtype)));
    arguments.outputs.emplace_back(memory.back());
  }
  const auto got = leir::interpret(q, given);
  if (!got.ok()) return render(got.errors(), nullptr);
  if (const Diagnostics bad = oracle::try_run(p, arguments); !bad.empty()) return render(bad, nullptr);
  size_t k = 0;
  for (tile::BufferId id : arguments_in(p, tile::Place::output)) {
    const tile::Buffer& b = p.buffer(id);
    const leir::Array& a = got->at(as.names.at(b.name));
    const auto width = static_cast<size_t>(byte_size(b.dtype));
    for (size_t i = 0; i < static_cast<size_t>(a.elements()); ++i) {
      const std::byte* at = arguments.outputs[k].data() + i * width;
      if (a.real()) {
        const double want = load_real(b.dtype, at), x = a.reals[i];
        if (x != want && !(std::isnan(x) && std::isnan(want)))
          return fmt::format("{}[{}] is {}, the tile program gives {}", b.name, i, x, want);
      } else if (a.integers[i] != load_integer(b.dtype, at)) {
        return fmt::format("{}[{}] is {}, the tile program gives {}", b.name, i, a.integers[i],
                           load_integer(b.dtype, at));
      }
    }
    ++k;
  }
  return "";
}

void expect_same(const tile::Program& p, uint64_t seed, const std::string& what) {
  const auto as = to_leir(p);
  ASSERT_TRUE(as.ok()) << what << render(as.errors(), nullptr) << tile::print(p);
  // What is printed reads back as the same program.
  leir::Parsed again = leir::parse(SourceText{"p", as->comments + print(as->syntax)});
  ASSERT_TRUE(again.ok()) << render(again.messages, nullptr) << print(as->syntax);
  EXPECT_EQ(structure(again.syntax), structure(as->syntax));
  ASSERT_EQ(compared(p, *as, seed), "") << what << tile::print(p) << as->comments << print(as->syntax);
}

std::string file(const std::string& path) {
  std::string out;
  std::FILE* f = std::fopen(path.c_str(), "rb");
  for (int c; f && (c = std::fgetc(f)) != EOF;) out += static_cast<char>(c);
  if (f) std::fclose(f);
  return out;
}

TEST(TileAsLeir, GoldenTilePrograms) {
  const std::string folder = std::string(CLEAVE_SOURCE_DIR) + "/tests/golden/tile/";
  for (const char* name : {"attention", "causal", "gqa_decode", "rmsnorm_linear", "swiglu"}) {
    const SourceText source{name, file(folder + name + ".txt")};
    const auto p = tile::parse(source);
    ASSERT_TRUE(p.ok()) << render(p.errors(), &source);
    expect_same(*p, 1, name);
    // The same in f64, where nothing is rounded but once.
    std::string wide = source.text;
    for (size_t i = wide.find("f32"); i != std::string::npos; i = wide.find("f32")) wide.replace(i, 3, "f64");
    const auto q = tile::parse(SourceText{name, wide});
    ASSERT_TRUE(q.ok()) << name;
    expect_same(*q, 2, name);
  }
}

TEST(TileAsLeir, RandomSchedules) {
  size_t printed = 0, refused = 0;
  std::string reasons;  // of the refusals
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    testing::Choices choices(seed);
    testing::RandomGraphOptions options;
    options.max_elements = 200;
    const graph::Graph g = graph::expand(testing::random_graph(choices, options));
    schedule::Options o;
    o.machine.vector_bytes = 64;
    o.machine.vector_registers = 32;
    const auto all = schedule::candidates(g, o);
    if (!all.ok()) continue;
    for (size_t c = 0; c < std::min<size_t>(all->size(), 2); ++c) {
      const tile::Program& p = (*all)[c].program;
      const auto as = to_leir(p);
      if (!as.ok()) {
        ++refused;
        reasons += as.errors()[0].message() + "\n";
        ASSERT_NE(render(as.errors(), nullptr).find("no LEIR can be made: of `"), std::string::npos);
        continue;
      }
      ++printed;
      expect_same(p, seed, fmt::format("seed {} candidate {}\n", seed, c));
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(printed, 4 * refused) << printed << " printed, " << refused << " refused\n" << reasons;
}

// Towards zero, by 0 gives 0, and narrow ones wrap; arguments that LEIR may name so keep their names.
TEST(TileAsLeir, DividesIntegers) {
  for (const char* type : {"i8", "i32", "i64", "u8"}) {
    const std::string text = fmt::format(
        "tile t {{\n  input X: {0}[16] argument 0\n  output Y: {0}[16, 7] argument 0\n  kernel k {{\n    nest (i < 16, "
        "j "
        "< 7) {{\n      Y[i, j] = div(mul(sub(X[i], 2:{0}), 60:{0}), sub(cast(index(j), {0}), 3:{0}))\n    }}\n  "
        "}}\n}}\n",
        type);
    const SourceText source{"t", text};
    const auto p = tile::parse(source);
    ASSERT_TRUE(p.ok()) << render(p.errors(), &source);
    expect_same(*p, 3, type);
    const auto as = to_leir(*p);
    EXPECT_EQ(as->names.at("X"), "X");
    EXPECT_EQ(as->names.at("Y"), "Y");
  }
}

TEST(TileAsLeir, RefusesByName) {
  const std::pair<const char*, const char*> cases[] = {
      {"tile t {\n  dim N in 0..9\n  input X: f32[N] argument 0\n  output Y: f32[N] argument 0\n  kernel k {\n    nest "
       "(i < N) "
       "{\n      Y[i] = X[i]\n    }\n  }\n}\n",
       "of `t`: the dimension `N` is open"},
  };
  for (const auto& [text, why] : cases) {
    const SourceText source{"t", text};
    const auto p = tile::parse(source);
    ASSERT_TRUE(p.ok()) << render(p.errors(), &source);
    const auto as = to_leir(*p);
    ASSERT_FALSE(as.ok()) << text;
    EXPECT_NE(render(as.errors(), nullptr).find(why), std::string::npos) << render(as.errors(), nullptr);
  }
}

}  // namespace
}  // namespace cleave::bridge
