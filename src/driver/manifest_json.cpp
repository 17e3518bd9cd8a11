// manifest.json, cleave.manifest/1.
#include <nlohmann/json.hpp>

#include "base/codes.hpp"
#include "driver/artefact.hpp"
#include "driver/compile.hpp"
#include "driver/report.hpp"

namespace cleave::driver {

using Json = nlohmann::ordered_json;

namespace {

// Extents as numbers, or as text where they follow from open dimensions.
Json shape_of(const graph::Graph& g, graph::ValueId v) {
  Json out = Json::array();
  for (const sym::Expr e : g.type(v).shape) {
    if (const auto n = g.syms().as_constant(e))
      out.push_back(*n);
    else
      out.push_back(g.syms().print(e));
  }
  return out;
}

Json values_json(const DimValues& values) {
  Json out = Json::object();
  for (const auto& [name, value] : values) out[name] = value;
  return out;
}

Json arguments(const graph::Graph& g, graph::Op op) {
  Json out = Json::array();
  for (graph::ValueId v : g.leaves(op))
    out.push_back({{"name", g.producer(v).attributes.get<std::string>("name")},
                   {"dtype", name(g.type(v).dtype)},
                   {"shape", shape_of(g, v)}});
  return out;
}

}  // namespace

std::string manifest_json(const Compilation& c, const std::vector<std::pair<std::string, std::string>>& hashes) {
  const tune::Outcome& o = *c.outcome;
  Json j;
  j["schema"] = "cleave.manifest/1";
  j["name"] = c.input.name();
  j["command"] = c.options.command;
  j["versions"] = {{"cleave", version()}, {"code", code_key(c.machine)}};
  j["target"] = c.options.target;
  j["isa"] = name(c.machine.isa);
  j["machine"] = "machine.txt";
  Json dims = Json::object();
  for (const DimBinding& d : c.dims)
    dims[d.name] = {{"low", d.option.lo},
                    {"high", d.option.hi},
                    {"representative", d.option.representative},
                    {"open", d.option.is_range()}};
  j["dims"] = dims;
  if (!c.typical.empty()) {
    // Calls of these extents run baseline/unfused.tile.
    Json dispatch = Json::object();
    if (c.dispatch.up_to) dispatch["unfused_up_to"] = values_json(*c.dispatch.up_to);
    if (c.dispatch.from) dispatch["unfused_from"] = values_json(*c.dispatch.from);
    j["dispatch"] = dispatch;
    Json ends = Json::array();
    for (const RangeEnd& e : c.ends) {
      Json end = {{"dims", values_json(e.values)}};
      if (e.why.empty())
        end.update({{"time_ms", 1e3 * e.seconds}, {"baseline_ms", 1e3 * e.unfused_seconds}, {"speedup", e.speedup}});
      else
        end["not_measured"] = e.why;
      ends.push_back(end);
    }
    j["range_ends"] = ends;
  }
  j["tuned"] = {{"threads", c.options.threads}, {"seed", c.options.seed}, {"status", status(c)}};
  if (o.seconds > 0)
    j["tuned"].update({{"time_ms", 1e3 * o.seconds}, {"baseline_ms", 1e3 * o.unfused_seconds}, {"speedup", o.speedup}});
  j["arguments"] = {{"inputs", arguments(*c.bound, graph::Op::input)},
                    {"scalars", arguments(*c.bound, graph::Op::scalar)},
                    {"constants", arguments(*c.bound, graph::Op::constant)}};
  Json outputs = Json::array();
  for (const graph::Output& out : c.bound->outputs())
    outputs.push_back({{"name", out.name},
                       {"dtype", name(c.bound->type(out.value).dtype)},
                       {"shape", shape_of(*c.bound, out.value)}});
  j["arguments"]["outputs"] = outputs;
  j["program"] = "kernels/program.tile";
  j["object"] = "kernels/program.o";
  Json files = Json::object();
  for (const auto& [file, hash] : hashes) files[file] = "sha256:" + hash;
  j["files"] = files;
  return j.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Manifest> parse_manifest(const std::string& folder, const std::string& text) {
  const Json j = Json::parse(text, nullptr, false);
  if (j.is_discarded() || !j.is_object())
    return diagnose(Code::bad_artefact, folder, "manifest.json is no JSON object");
  const auto word = [](const Json& at, const char* key) {
    return at.is_object() && at.contains(key) && at[key].is_string() ? at[key].get<std::string>() : std::string();
  };
  if (word(j, "schema") != "cleave.manifest/1")
    return diagnose(Code::bad_artefact, folder,
                    fmt::format("manifest.json has the schema `{}`, not `cleave.manifest/1`", word(j, "schema")));
  Manifest m;
  m.name = word(j, "name");
  m.program = word(j, "program");
  m.object = word(j, "object");
  m.machine = word(j, "machine");
  if (j.contains("versions")) m.code_key = word(j["versions"], "code");
  if (j.contains("files")) {
    m.object_hash = word(j["files"], m.object.c_str());
    m.program_hash = word(j["files"], m.program.c_str());
    m.graph_hash = word(j["files"], "graph/input.graph");
  }
  if (j.contains("tuned") && j["tuned"].is_object() && j["tuned"].contains("threads") &&
      j["tuned"]["threads"].is_number_integer())
    m.threads = j["tuned"]["threads"].get<int>();
  if (j.contains("dispatch")) {
    const auto values = [&](const char* key) -> std::optional<DimValues> {
      const Json& d = j["dispatch"];
      if (!d.is_object() || !d.contains(key) || !d[key].is_object()) return std::nullopt;
      DimValues out;
      for (const auto& [name, value] : d[key].items())
        if (value.is_number_integer()) out[name] = value.get<int64_t>();
      return out;
    };
    m.dispatch = {values("unfused_up_to"), values("unfused_from")};
  }
  for (const std::string& path : {m.program, m.object, m.machine})
    if (path.empty() || path.front() == '/' || path.find("..") != std::string::npos)
      return diagnose(Code::bad_artefact, folder, fmt::format("manifest.json names the file `{}`", path));
  return m;
}

}  // namespace cleave::driver
