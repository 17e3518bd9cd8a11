#include "driver/input.hpp"

#include <cstdio>
#include <filesystem>

#include "base/codes.hpp"
#include "base/lexer.hpp"
#include "driver/leir_raise.hpp"
#include "frontend/file.hpp"
#include "frontend/npy.hpp"

namespace cleave::driver {

namespace fs = std::filesystem;

const char* name(Format format) {
  switch (format) {
    case Format::graph: return "graph";
    case Format::onnx: return "onnx";
    case Format::itgraph: return "itgraph";
    case Format::tile: return "tile";
    case Format::vec: return "vec";
    case Format::leir: return "leir";
    case Format::artefact: return "artefact";
  }
  return "";
}

std::string Input::name() const {
  if (path != "-") return fs::path(path).stem().string();
  if (graph) return graph->name();
  if (it) return it->name;
  if (tile) return tile->name;
  return "stdin";
}

Result<std::string> read_stdin() {
  std::string out;
  char block[1 << 16];
  for (size_t n; (n = std::fread(block, 1, sizeof block, stdin)) > 0;) {
    out.append(block, n);
    if (out.size() > kMaxTextBytes) return diagnose(Code::text_too_large, out.size(), kMaxTextBytes);
  }
  return out;
}

namespace {

// The first word of a text that is no comment: every format begins with its own.
std::string first_word(const std::string& text) {
  size_t i = 0;
  while (i < text.size()) {
    if (text[i] == '#') {
      while (i < text.size() && text[i] != '\n') ++i;
    } else if (std::isspace(static_cast<unsigned char>(text[i]))) {
      ++i;
    } else {
      break;
    }
  }
  const size_t begin = i;
  while (i < text.size() && std::isalnum(static_cast<unsigned char>(text[i]))) ++i;
  return text.substr(begin, std::min<size_t>(i - begin, 32));
}

std::optional<Format> format_of_extension(const std::string& extension) {
  if (extension == ".graph") return Format::graph;
  if (extension == ".onnx") return Format::onnx;
  if (extension == ".itg") return Format::itgraph;
  if (extension == ".tile") return Format::tile;
  if (extension == ".vec") return Format::vec;
  if (extension == ".leir") return Format::leir;
  return std::nullopt;
}

std::optional<Format> format_of_word(const std::string& word) {
  if (word == "graph") return Format::graph;
  if (word == "itgraph") return Format::itgraph;
  if (word == "tile") return Format::tile;
  if (word == "func") return Format::vec;
  if (word == "in" || word == "const" || word == "param" || word == "out") return Format::leir;
  return std::nullopt;
}

}  // namespace

graph::LoadConstant constant_loader(const std::string& folder) {
  return [folder](const std::string& path, DType dtype,
                  std::span<const int64_t> extents) -> Result<std::shared_ptr<const std::vector<std::byte>>> {
    const fs::path relative(path);
    if (relative.is_absolute())
      return diagnose(Code::file_unreadable, path, "constants are named relative to the graph's folder");
    for (const fs::path& part : relative)
      if (part == "..") return diagnose(Code::file_unreadable, path, "constants lie within the graph's folder");
    TRY_ASSIGN(NpyArray array, read_npy((fs::path(folder) / relative).string()));
    if (array.dtype != dtype)
      return diagnose(Code::bad_dtype, path,
                      fmt::format("has dtype {}, {} is declared", cleave::name(array.dtype), cleave::name(dtype)));
    if (!std::equal(extents.begin(), extents.end(), array.shape.begin(), array.shape.end()))
      return diagnose(
          Code::bad_shape, path,
          fmt::format("has the shape [{}], [{}] is declared", fmt::join(array.shape, ", "), fmt::join(extents, ", ")));
    return std::make_shared<const std::vector<std::byte>>(std::move(array.bytes));
  };
}

OnnxOptions onnx_options(const Options& options) {
  OnnxOptions out;
  for (const auto& [name, dim] : options.dims) out.ranges[name] = {dim.lo, dim.hi};
  return out;
}

Result<Input> read_input(const std::string& path, SourceText& source, const OnnxOptions& onnx) {
  Input in;
  in.path = path;
  source = {path == "-" ? "<stdin>" : path, ""};
  std::string folder = ".";
  std::optional<Format> format;
  if (path == "-") {
    TRY_ASSIGN(source.text, read_stdin());
  } else {
    std::error_code error;
    if (fs::is_directory(path, error)) {
      if (!fs::exists(fs::path(path) / "manifest.json", error))
        return diagnose(Code::bad_artefact, path, "it has no manifest.json");
      in.format = Format::artefact;
      return in;
    }
    folder = fs::path(path).parent_path().string();
    if (folder.empty()) folder = ".";
    format = format_of_extension(fs::path(path).extension().string());
    if (format == Format::onnx) {
      in.format = Format::onnx;
      TRY_ASSIGN(graph::Graph g, import_onnx(path, onnx));
      in.graph = std::move(g);
      return in;
    }
    TRY_ASSIGN(const std::vector<std::byte> bytes, read_bytes(path, 0, -1, static_cast<int64_t>(kMaxTextBytes)));
    source.text.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  const std::string word = first_word(source.text);
  if (!format) format = format_of_word(word);
  if (!format)
    return diagnose(Code::unknown_format, source.name,
                    word.empty() ? "it does not begin with a word" : fmt::format("it begins with `{}`", word));
  in.format = *format;
  switch (*format) {
    case Format::graph: {
      TRY_ASSIGN(graph::Graph g, graph::parse(source, constant_loader(folder)));
      in.graph = std::move(g);
      break;
    }
    case Format::leir: {
      Diagnostics ignored;
      TRY_ASSIGN(in.graph, raise_text(source, fs::path(path == "-" ? "leir" : path).stem().string(), ignored));
      break;
    }
    case Format::itgraph: {
      TRY_ASSIGN(itgraph::Program p, itgraph::parse(source));
      in.it = std::move(p);
      break;
    }
    case Format::tile: {
      TRY_ASSIGN(tile::Program p, tile::parse(source));
      in.tile = std::move(p);
      break;
    }
    case Format::vec: {
      TRY_ASSIGN(vec::Module m, vec::parse(source));
      in.vec = std::move(m);
      break;
    }
    case Format::onnx:
    case Format::artefact: break;
  }
  in.source = source;
  return in;
}

}  // namespace cleave::driver
