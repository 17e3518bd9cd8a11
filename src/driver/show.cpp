#include "driver/show.hpp"

#include <filesystem>

#include "base/codes.hpp"
#include "bridge/tile_leir.hpp"
#include "driver/artefact.hpp"
#include "driver/compile.hpp"
#include "driver/constants.hpp"
#include "driver/leir_raise.hpp"
#include "frontend/file.hpp"
#include "schedule/place.hpp"

namespace cleave::driver {

namespace fs = std::filesystem;

namespace {

Result<std::string> code_text(const vec::Module& module, const Machine& machine, const std::string& stage) {
  const jit::Options options = build_options(machine).code;
  return stage == "llvm" ? jit::llvm_text(module, options) : jit::asm_text(module, options);
}

Result<std::string> code_text(const tile::Program& program, const Machine& machine, const std::string& stage) {
  TRY_ASSIGN(const lower::Lowered lowered, lower::lower(program, machine));
  if (stage == "vec") return vec::print(lowered.module);
  return code_text(lowered.module, machine, stage);
}

Diagnostic no_such_stage(const std::string& stage, Format format) {
  return diagnose(Code::bad_option, "--stage " + stage,
                  fmt::format("cannot be made from an input that is {}", name(format)));
}

// A graph's text refers to its stored constants; with an output they are written.
Result<std::string> graph_text(const graph::Graph& g, const ShowRequest& r) {
  return r.output.empty() ? Result<std::string>(graph::print(g)) : text_with_files(g, r.output);
}

bool is_tile(const std::string& stage) { return stage == "tile" || stage == "leir"; }
bool is_code(const std::string& stage) { return stage == "vec" || stage == "llvm" || stage == "asm"; }

Result<std::string> show_graph(const ShowRequest& r, Input in, const SourceText& source) {
  Compilation c;
  c.options = r.options;
  c.path = r.path;
  c.input = std::move(in);
  c.source = source;
  const bool unbound = c.options.dims.empty() && !c.input.graph->dims().empty();
  if (r.stage.empty() || r.stage == "graph") {
    // Dimensions may stay open here.
    if (c.options.dims.empty()) return graph_text(*c.input.graph, r);
    if (Diagnostics bad = run_passes(c, "bind", "bind"); !bad.empty()) return bad;
    return graph_text(*c.bound, r);
  }
  if (r.stage == "stabilised" && (r.graph >= 0 || unbound || r.candidate == 0)) {
    if (unbound) {  // the algebra works on open dimensions
      c.bound = c.input.graph;
      if (Diagnostics bad = run_passes(c, "search", "expand"); !bad.empty()) return bad;
    } else if (Diagnostics bad = run_passes(c, "search", "bind"); !bad.empty()) {
      return bad;
    }
    const size_t index = r.graph < 0 ? 0 : static_cast<size_t>(r.graph);
    if (index >= c.equal.size() + c.split.size())
      return diagnose(Code::bad_option, fmt::format("--graph {}", index),
                      fmt::format("there are {} equal graphs", c.equal.size() + c.split.size()));
    return graph_text(equal_graph(c, index).graph, r);
  }
  if (Diagnostics bad = run_passes(c, "schedule", "bind"); !bad.empty()) return bad;
  if (!r.unfused && (r.candidate < 0 || static_cast<size_t>(r.candidate) >= std::max<size_t>(1, c.proposals.size())))
    return diagnose(Code::bad_option, fmt::format("--candidate {}", r.candidate),
                    fmt::format("there are {} candidates", c.proposals.size()));
  if (r.stage == "stabilised")
    return graph_text(c.equal.at(static_cast<size_t>(c.proposals.at(static_cast<size_t>(r.candidate)).graph)).graph, r);
  const schedule::Candidate& s = chosen_candidate(c, r.unfused ? -1 : r.candidate);
  if (r.stage == "itgraph") return itgraph::print(s.it);
  if (is_tile(r.stage)) return tile_text(s.program, r.stage);
  return code_text(s.program, c.machine, r.stage);
}

}  // namespace

Result<std::string> tile_text(const tile::Program& program, const std::string& stage) {
  if (stage == "tile") return tile::print(program);
  TRY_ASSIGN(const bridge::TileAsLeir leir, bridge::to_leir(program));
  return leir.comments + print(leir.syntax);
}

std::vector<std::pair<std::string, std::string>> show_stages() {
  return {{"graph", "the tensor graph, dimensions bound where --dim is given"},
          {"stabilised", "an equal graph in the stabilised dialect"},
          {"itgraph", "the schedule as nested loop graphs"},
          {"tile", "the tile program"},
          {"leir", "the tile program in the loop-equation language"},
          {"vec", "the vector IR"},
          {"llvm", "LLVM IR"},
          {"asm", "assembly for this processor, or for arm64 by --machine"}};
}

namespace {

Result<std::string> stage_text(const ShowRequest& r, SourceText& source) {
  if (r.stage == "cuda" || r.stage == "tilelang")
    return diagnose(Code::missing_target, fmt::format("the stage `{}`", r.stage));
  if (!r.stage.empty()) {
    bool known = false;
    std::string names;
    for (const auto& [name, doc] : show_stages()) {
      known = known || name == r.stage;
      names += (names.empty() ? "" : ", ") + name;
    }
    if (!known) return diagnose(Code::bad_option, "--stage " + r.stage, "is none of " + names);
  }
  auto read = read_input(r.path, source, onnx_options(r.options));
  if (!read) {
    // LEIR that has no graph is still LEIR.
    if (r.stage.empty() || r.stage == "leir")
      if (const auto program = written_program(source, read.errors())) return print(program->syntax());
    return read.errors();
  }
  Input in = std::move(*read);
  switch (in.format) {
    case Format::graph:
    case Format::onnx:
    case Format::leir: return show_graph(r, std::move(in), source);
    case Format::itgraph: {
      if (r.stage.empty() || r.stage == "itgraph") return itgraph::print(*in.it);
      if (!is_tile(r.stage) && !is_code(r.stage)) break;
      TRY_ASSIGN(const Machine machine, machine_for(r.options));
      TRY_ASSIGN(const tile::Program program, schedule::place(*in.it, machine));
      if (is_tile(r.stage)) return tile_text(program, r.stage);
      return code_text(program, machine, r.stage);
    }
    case Format::tile: {
      if (r.stage.empty() || is_tile(r.stage)) return tile_text(*in.tile, r.stage.empty() ? "tile" : r.stage);
      if (!is_code(r.stage)) break;
      TRY_ASSIGN(const Machine machine, machine_for(r.options));
      return code_text(*in.tile, machine, r.stage);
    }
    case Format::vec:
      if (r.stage.empty() || r.stage == "vec") return vec::print(*in.vec);
      if (r.stage == "llvm" || r.stage == "asm") {
        // A description decides for which processor; this one needs no measuring.
        Machine machine = host_machine();
        if (!r.options.machine_file.empty()) {
          TRY_ASSIGN(machine, machine_for(r.options));
        }
        return code_text(*in.vec, machine, r.stage);
      }
      break;
    case Format::artefact: {
      TRY_ASSIGN(const Artefact a, load_artefact(r.path, &source));
      if (r.stage.empty() || r.stage == "graph") return graph_text(a.input, r);
      if (r.stage == "stabilised") return graph_text(a.best, r);
      if (r.stage == "itgraph") {
        SourceText text;
        TRY_ASSIGN(const Input it, read_input(r.path + "/schedule.itg", text));
        return itgraph::print(*it.it);
      }
      if (r.unfused && !a.unfused)
        return diagnose(Code::bad_artefact, r.path, "baseline/unfused.tile is missing or unreadable");
      const tile::Program& program = r.unfused ? *a.unfused : a.program;
      if (is_tile(r.stage)) return tile_text(program, r.stage);
      return code_text(program, a.machine, r.stage);
    }
  }
  return no_such_stage(r.stage, in.format);
}

}  // namespace

Result<std::string> show(const ShowRequest& r, SourceText& source) {
  TRY_ASSIGN(std::string text, stage_text(r, source));
  if (r.output.empty()) return text;
  if (Diagnostics bad = write_bytes(r.output, std::as_bytes(std::span(text))); !bad.empty()) return bad;
  return fmt::format("written: {}\n", r.output);
}

std::string operators_text() {
  std::string out;
  for (const graph::OpInfo& op : graph::all_ops()) {
    std::string attributes;
    for (const graph::AttributeInfo& a : op.attributes)
      attributes += (attributes.empty() ? "" : ", ") + a.name + (a.required ? "" : "?");
    const std::string operands = op.max_operands < 0 ? fmt::format("{}+", op.min_operands)
                                 : op.min_operands == op.max_operands
                                     ? fmt::format("{}", op.min_operands)
                                     : fmt::format("{}..{}", op.min_operands, op.max_operands);
    out += fmt::format("{:<14} {:>5} operands  {}\n", op.name, operands, attributes);
  }
  return out;
}

}  // namespace cleave::driver
