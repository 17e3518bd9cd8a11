// Random nests (axes, strides, functions, guards, panels, accumulations), compiled and judged by the interpreter.
#include "tile_support.hpp"

namespace cleave {
namespace {

using testing::Compared;

// Writes one program with one or two nests. Exact programs have only operations whose results do not depend on how they
// are grouped or approximated, so that every bit must agree.
struct Generator {
  Rng rng;
  bool exact;
  std::string dtype;  // of values
  bool real = true;
  std::vector<int64_t> extents = {};
  std::vector<std::string> axes = {};
  std::vector<std::string> extent_texts = {};
  std::string buffers = {};
  int inputs = 0, outputs = 0, nodes = 0;

  int64_t pick(std::initializer_list<int64_t> from) { return *(from.begin() + rng.below(from.size())); }

  // A buffer whose axes are expressions of the nest's axes; returns the access. `injective`: each point its own
  // element.
  struct Placed {
    std::string access;
  };
  Placed buffer(const std::string& place, const std::string& d, std::vector<size_t> order, bool injective,
                int* argument) {
    std::string shape, at;
    const size_t rank = order.size();
    bool panel = place == "workspace" && rank >= 2 && rng.chance(0.5);
    for (size_t i = 0; i < rank; ++i) {
      const size_t a = order[i];
      int64_t shift = 0;
      std::string index = axes[a];
      int64_t extent = std::max<int64_t>(extents[a], 1);  // an index of an empty axis is seen as 0
      const uint64_t form = rng.below(injective ? 8 : 12);
      if (form == 0) {
        shift = rng.between(0, 3);
        index = fmt::format("2*{} + {}", axes[a], shift);
        extent = 2 * extent + 3;
      } else if (form == 1) {
        index = fmt::format("{} - {}", extent - 1, axes[a]);
      } else if (form == 2) {
        shift = rng.between(1, 17);
        index = fmt::format("{} + {}", axes[a], shift);
        extent += shift;
      } else if (form == 8) {
        index = fmt::format("{}//3", axes[a]);
      } else if (form == 9) {
        index = fmt::format("{}%5", axes[a]);
        extent = 5;
      } else if (form == 10 && rank > 1) {
        const size_t other = order[(i + 1) % rank];
        index = fmt::format("{} + {}", axes[a], axes[other]);
        extent += std::max<int64_t>(extents[other], 1);
      }
      shape += (i ? ", " : "") + std::to_string(extent);
      at += (i ? ", " : "") + index;
    }
    const int id = place == "input" ? inputs : outputs;
    const std::string name = fmt::format("{}{}", place == "input" ? "X" : place == "output" ? "Z" : "W", id);
    buffers += fmt::format("{} {}: {}[{}]{}{}\n", place, name, d, shape,
                           panel ? fmt::format(" panel {}", pick({4, 8, 16, 32, 10})) : "",
                           argument ? fmt::format(" argument {}", *argument) : "");
    if (argument) ++*argument;
    return {fmt::format("{}[{}]", name, at)};
  }

  std::vector<size_t> some_axes(bool all) {
    std::vector<size_t> order;
    for (size_t i = 0; i < axes.size(); ++i)
      if (all || rng.chance(0.7)) order.push_back(i);
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
    return order;
  }

  std::string guard() {
    const std::string& a = axes[rng.below(axes.size())];
    const int64_t n = extents.empty() ? 0 : rng.between(0, 40);
    return rng.chance(0.5) ? fmt::format("lt(index({}), {}:i64)", a, n)
                           : fmt::format("ge(index({} + {}), {}:i64)", a, axes[rng.below(axes.size())], n);
  }
  std::string load() {
    std::string access = buffer("input", dtype, some_axes(false), false, &inputs).access;
    if (!axes.empty() && rng.chance(0.25)) access += fmt::format(" if ({})", guard());
    return access;
  }
  std::string gather() {
    const int64_t n = rng.between(1, 30);
    buffers += fmt::format("input X{}: i32[{}] argument {}\n", inputs, n, inputs);
    const std::string ids = fmt::format("X{}", inputs++);
    buffers += fmt::format("input X{}: {}[40] argument {}\n", inputs, dtype, inputs);
    const std::string table = fmt::format("X{}", inputs++);
    const std::string& a = axes[rng.below(axes.size())];
    return fmt::format("{}[20 @ cast({}[{}%{}], i64)]", table, ids, a, n);
  }

  std::string leaf(const std::vector<std::string>& known) {
    const uint64_t form = rng.below(10);
    if (form < 4 && !known.empty()) return known[rng.below(known.size())];
    // Values of f16 and bf16 are f32 unless a cast has rounded them.
    const std::string value = name(compute_type(*dtype_from_name(dtype)));
    if (form == 4) return fmt::format("{}:{}", rng.between(0, 3), value);
    if (form == 5 && !axes.empty()) return fmt::format("cast(index({} + 1), {})", axes[rng.below(axes.size())], dtype);
    if (form == 7) return fmt::format("cast({}, {})", load(), dtype);
    if (form == 6 && !axes.empty()) return gather();
    return load();
  }
  std::string expression(const std::vector<std::string>& known, int depth) {
    if (depth == 0 || rng.chance(0.2)) return leaf(known);
    auto sub = [&] { return expression(known, depth - 1); };
    static const char* kBoth[] = {"add", "sub", "mul", "max", "min"};
    static const char* kReal[] = {"exp", "tanh", "sigmoid", "relu", "abs", "square", "neg", "sqrt"};
    static const char* kExactReal[] = {"relu", "abs", "neg", "floor", "sign", "square"};
    static const char* kInteger[] = {"relu", "abs", "neg", "sign", "square"};
    switch (rng.below(5)) {
      case 0:
        return fmt::format("where({}({}, {}), {}, {})", rng.chance(0.5) ? "lt" : "eq", sub(), sub(), sub(), sub());
      case 1:
        if (!real) return fmt::format("{}({})", kInteger[rng.below(5)], sub());
        return fmt::format("{}({})", exact ? kExactReal[rng.below(6)] : kReal[rng.below(8)], sub());
      case 2:
        if (!axes.empty() && rng.chance(0.5)) return fmt::format("where({}, {}, {})", guard(), sub(), sub());
        [[fallthrough]];
      default: return fmt::format("{}({}, {})", kBoth[rng.below(5)], sub(), sub());
    }
  }

  std::string program() {
    const auto rank = static_cast<size_t>(rng.between(1, 3));
    for (size_t i = 0; i < rank; ++i) {
      extents.push_back(pick({0, 1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 32, 33, 47, 64, 70, 129}));
      if (rank == 3 && extents.back() > 20) extents.back() = extents.back() % 11;
      axes.push_back(fmt::format("{}", static_cast<char>('i' + static_cast<int>(i))));
    }
    std::string nest_axes;
    const bool task = rng.chance(0.5);
    for (size_t i = 0; i < rank; ++i) {
      // Extents that only the task knows.
      const bool varies = task && rng.chance(0.3);
      nest_axes +=
          fmt::format("{}{} < {}", i ? ", " : "", axes[i],
                      varies ? fmt::format("min({0}, {0} + 3 - 3*t)", extents[i]) : std::to_string(extents[i]));
    }
    std::string body;
    std::vector<std::string> known;
    const int64_t count = rng.between(1, 3);
    for (int64_t v = 0; v < count; ++v) {
      body += fmt::format("  %{} = {}\n", v, expression(known, static_cast<int>(rng.between(1, 3))));
      known.push_back(fmt::format("%{}", v));
    }
    const std::string sequential = rng.chance(0.1) ? "sequential " : "";
    std::string second;
    const int64_t stores = rng.between(1, 3);
    for (int64_t s = 0; s < stores; ++s) {
      const std::string value = known[rng.below(known.size())];
      std::vector<std::string> marks = {"max=", "min="};
      if (!exact || !real) marks.insert(marks.end(), {"+=", "+="});
      const bool plain = rng.chance(0.5);
      const std::string mark = plain ? "=" : (rng.chance(0.5) ? "fresh " : "") + marks[rng.below(marks.size())];
      const bool through = plain && rng.chance(0.2) && !task;
      if (through) {
        // By way of a workspace buffer, panels perhaps: another nest copies it out.
        const std::vector<size_t> order = some_axes(true);
        std::string source = buffer("workspace", dtype, order, true, nullptr).access;
        body += fmt::format("  {} = {}\n", source, value);
        second += fmt::format("nest ({}) {{ {} = {} }}\n", nest_axes,
                              buffer("output", dtype, some_axes(true), true, &outputs).access, source);
      } else {
        body +=
            fmt::format("  {} {} {}\n", buffer("output", dtype, some_axes(plain), plain, &outputs).access, mark, value);
      }
    }
    const std::string nest = fmt::format("nest {}({}) {{\n{}}}\n{}", sequential, nest_axes, body, second);
    return fmt::format("tile t {{\n{}kernel k {{\n{}\n{}{} }} }}\n", buffers, task ? "for t in 0..2 {" : "", nest,
                       task ? "}" : "");
  }
};

void run(uint64_t from, uint64_t to, Isa isa) {
  for (uint64_t seed = from; seed < to; ++seed) {
    static const char* kTypes[] = {"f32",  "f32", "f32", "f64", "i32", "i64", "u8",
                                   "bf16", "f16", "i16", "i8",  "u32", "u16"};
    const char* type = kTypes[seed % 13];
    const bool real = is_real(*dtype_from_name(type));
    Generator g{Rng(seed), seed % 2 == 0 || !real, type, real};
    const std::string text = g.program();
    Compared how{.specials = seed % 4 == 0 ? 0.05 : 0.0, .integers = 19};
    if (!g.exact) how.ulps = 1e3, how.absolute = 1e-3;
    testing::compare(text, how, seed, isa);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(RandomNests, AgreeWithTheInterpreterOnTheWidestVectors) { run(0, 300, host_isa()); }
TEST(RandomNests, AgreeWithTheInterpreterOnAvx2) {
  if (host_isa() == Isa::avx512 || host_isa() == Isa::avx2) run(1000, 1300, Isa::avx2);
}

TEST(RandomNests, AgreeWithTheInterpreterOnArm64) {
  if (host_isa() == Isa::neon || !testing::can_run_arm64()) GTEST_SKIP() << "needs qemu-aarch64 and clang-19";
  run(2000, 2052, Isa::neon);
}

}  // namespace
}  // namespace cleave
