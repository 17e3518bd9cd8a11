// manifest.json, cleave.manifest/1.
#include <nlohmann/json.hpp>

#include "driver/artefact.hpp"
#include "driver/compile.hpp"
#include "driver/report.hpp"

namespace cleave::driver {

using Json = nlohmann::ordered_json;

namespace {

Json arguments(const graph::Graph& g, graph::Op op) {
  Json out = Json::array();
  for (graph::ValueId v : g.leaves(op))
    out.push_back({{"name", g.producer(v).attributes.get<std::string>("name")},
                   {"dtype", name(g.type(v).dtype)},
                   {"shape", g.extents(v)}});
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
                    {"compiled", d.option.representative}};
  j["dims"] = dims;
  j["tuned"] = {{"threads", c.options.threads}, {"seed", c.options.seed}, {"status", status(c)}};
  if (o.seconds > 0)
    j["tuned"].update({{"time_ms", 1e3 * o.seconds}, {"baseline_ms", 1e3 * o.unfused_seconds}, {"speedup", o.speedup}});
  j["arguments"] = {{"inputs", arguments(*c.bound, graph::Op::input)},
                    {"scalars", arguments(*c.bound, graph::Op::scalar)},
                    {"constants", arguments(*c.bound, graph::Op::constant)}};
  Json outputs = Json::array();
  for (const graph::Output& out : c.bound->outputs())
    outputs.push_back(
        {{"name", out.name}, {"dtype", name(c.bound->type(out.value).dtype)}, {"shape", c.bound->extents(out.value)}});
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
  }
  if (j.contains("tuned") && j["tuned"].is_object() && j["tuned"].contains("threads") &&
      j["tuned"]["threads"].is_number_integer())
    m.threads = j["tuned"]["threads"].get<int>();
  for (const std::string& path : {m.program, m.object, m.machine})
    if (path.empty() || path.front() == '/' || path.find("..") != std::string::npos)
      return diagnose(Code::bad_artefact, folder, fmt::format("manifest.json names the file `{}`", path));
  return m;
}

}  // namespace cleave::driver
