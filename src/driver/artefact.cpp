#include "driver/artefact.hpp"

#include <filesystem>

#include "base/codes.hpp"
#include "base/lexer.hpp"
#include "driver/compile.hpp"
#include "driver/sha256.hpp"
#include "frontend/file.hpp"

namespace cleave::driver {

namespace fs = std::filesystem;

namespace {

Result<SourceText> read_text(const fs::path& path) {
  TRY_ASSIGN(const std::vector<std::byte> bytes, read_bytes(path.string(), 0, -1, static_cast<int64_t>(kMaxTextBytes)));
  return SourceText{path.string(), std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())};
}

// Reads text files of a folder one after the other; the last one stays as the source that diagnostics point into.
class Reader {
 public:
  Reader(fs::path folder, SourceText* source) : folder_(std::move(folder)), source_(source ? source : &own_) {}

  Result<const SourceText*> text(const fs::path& file) {
    TRY_ASSIGN(*source_, read_text(folder_ / file));
    return source_;
  }
  // With the hash that its text has to have, where one is known.
  Result<graph::Graph> graph(const fs::path& file, const std::string& hash = "") {
    TRY_ASSIGN(const SourceText* t, text(file));
    TRY_ASSIGN(graph::Graph g, graph::parse(*t, constant_loader((folder_ / file).parent_path().string())));
    if (!hash.empty() && hash != "sha256:" + sha256_hex(std::as_bytes(std::span(t->text))))
      return diagnose(Code::bad_artefact, folder_.string(),
                      fmt::format("{} was changed since it was written (manifest.json has another hash); optimize the "
                                  "changed graph to have a program of it",
                                  file.string()));
    return g;
  }

 private:
  fs::path folder_;
  SourceText own_;
  SourceText* source_;
};

}  // namespace

Result<Artefact> load_artefact(const std::string& folder, SourceText* source) {
  const fs::path at(folder);
  Reader read(at, source);
  TRY_ASSIGN(const SourceText* manifest, read.text("manifest.json"));
  TRY_ASSIGN(const Manifest m, parse_manifest(folder, manifest->text));
  TRY_ASSIGN(graph::Graph input, read.graph("graph/input.graph", m.graph_hash));
  TRY_ASSIGN(graph::Graph best, read.graph("graph/best.graph"));
  TRY_ASSIGN(const SourceText* program_text, read.text(m.program));
  const std::string program_hash = "sha256:" + sha256_hex(std::as_bytes(std::span(program_text->text)));
  TRY_ASSIGN(tile::Program program, tile::parse(*program_text));
  TRY_ASSIGN(const SourceText* machine_text, read.text(m.machine));
  TRY_ASSIGN(Machine machine, parse_machine(*machine_text));
  if (source) *source = {folder, ""};  // what comes now concerns the whole
  Artefact out{m.name, folder, std::move(input),   std::move(best), std::move(program), std::nullopt,
               {},     "",     std::move(machine), m.threads,       m.dispatch};
  std::vector<std::string> open, known;
  for (const sym::Expr d : out.input.dims()) open.push_back(out.input.syms().symbol_name(d));
  for (const sym::Expr d : out.program.dims) known.push_back(out.program.syms->symbol_name(d));
  if (open != known) return diagnose(Code::bad_artefact, folder, "its graph and its program have other dimensions");

  if (auto text = read_text(at / "baseline" / "unfused.tile"))
    if (auto unfused = tile::parse(*text)) out.unfused = std::move(*unfused);

  // Object code is used only for exactly the program it was made from, by this compiler, for this processor.
  const auto bytes = read_bytes((at / m.object).string(), 0, -1, int64_t{1} << 30);
  if (!bytes)
    out.object_note = "there is none";
  else if (m.code_key != code_key(out.machine))
    out.object_note = fmt::format("it was made by `{}`", m.code_key);
  else if (m.object_hash != "sha256:" + sha256_hex(*bytes) || m.program_hash != program_hash)
    out.object_note = "the hashes in manifest.json do not match";
  else
    for (std::byte b : *bytes) out.object.push_back(static_cast<uint8_t>(b));
  return out;
}

}  // namespace cleave::driver
