// Runs ONNX node tests through the library; tools/conformance starts it.
//
// Reads one folder a line from standard input and prints one line each: outcome, folder, reason, with tabs between.
// passed: every output agrees. refused: the import said what is not supported. failed: anything else. A test that takes
// longer than --seconds ends the process with 124.
#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <string>

#include "cleave/cleave.hpp"
#include "frontend/onnx.hpp"
#include "types/dtype.hpp"

namespace fs = std::filesystem;

namespace {

// As ONNX's own runner compares; those of 16 bits may be one rounding apart.
constexpr double kRelative = 1e-3, kAbsolute = 1e-7;
double relative(cleave::DType dtype) { return std::max(kRelative, 2 * cleave::unit_roundoff(dtype)); }

struct Outcome {
  std::string word, reason;
};

std::string first_line(std::string text) { return text.substr(0, text.find('\n')); }

// "LSTM", "Attention: `softcap` is not supported", "type INT8": what a refusal is about.
std::string subject(const cleave::Error& e) {
  const std::string line = first_line(e.what());
  const size_t node = line.find(" ("), colon = line.find("): ");
  if (e.code() == "CLV3010" && node != std::string::npos && colon != std::string::npos)
    return line.substr(node + 2, colon - node - 2) + ": " + line.substr(colon + 3);
  if (e.code() == "CLV3012") {
    const size_t list = line.rfind(": ");
    std::string names = line.substr(list + 2);
    std::erase(names, '`');
    return names;
  }
  const std::string word = "the element type ";
  const size_t type = line.find(word);
  if (type != std::string::npos) {
    const std::string rest = line.substr(type + word.size());
    return "type " + rest.substr(0, rest.find(' '));
  }
  if (e.code() == "CLV3013") return line.substr(line.find("opset"), line.find(" of ONNX") - line.find("opset"));
  const size_t what = line.find("`: ");
  return what == std::string::npos ? line : line.substr(what + 3);
}

cleave::Tensor tensor_of(const cleave::OnnxKnown& from) {
  cleave::Tensor t = cleave::zeros(*cleave::element_type(cleave::name(from.dtype)), from.shape);
  if (!from.bytes.empty()) std::memcpy(t.data, from.bytes.data(), from.bytes.size());
  return t;
}

// The files word_0.pb, word_1.pb, ...
std::vector<cleave::OnnxKnown> tensors_in(const fs::path& folder, const std::string& word) {
  std::vector<cleave::OnnxKnown> out;
  for (int i = 0;; ++i) {
    const fs::path file = folder / (word + "_" + std::to_string(i) + ".pb");
    if (!fs::exists(file)) return out;
    auto tensor = cleave::read_onnx_tensor(file.string());
    if (!tensor.ok())
      throw cleave::Error(cleave::Error::Kind::unsupported,
                          fmt::format("CLV{}", cleave::info(tensor.errors()[0].code).number), "", "",
                          cleave::render(tensor.errors(), nullptr));
    out.push_back(std::move(*tensor));
  }
}

// What differs; empty when nothing does.
std::string difference(const cleave::Tensor& got, const cleave::OnnxKnown& want, const std::string& name) {
  if (std::string(cleave::name(got.type)) != cleave::name(want.dtype))
    return fmt::format("{} has the type {}, expected is {}", name, cleave::name(got.type), cleave::name(want.dtype));
  if (got.shape != want.shape)
    return fmt::format("{} has the shape [{}], expected is [{}]", name, fmt::join(got.shape, ", "),
                       fmt::join(want.shape, ", "));
  const int64_t width = cleave::byte_size(want.dtype);
  for (int64_t i = 0; i < got.elements(); ++i) {
    const char* a = got.as<char>() + i * width;
    const char* b = reinterpret_cast<const char*>(want.bytes.data()) + i * width;
    if (!cleave::is_real(want.dtype)) {
      const int64_t x = cleave::load_integer(want.dtype, a), y = cleave::load_integer(want.dtype, b);
      if (x != y) return fmt::format("{}[{}] is {}, expected is {}", name, i, x, y);
      continue;
    }
    const double x = cleave::load_real(want.dtype, a), y = cleave::load_real(want.dtype, b);
    const bool same =
        x == y || (std::isnan(x) && std::isnan(y)) || std::abs(x - y) <= kAbsolute + relative(want.dtype) * std::abs(y);
    if (!same) return fmt::format("{}[{}] is {}, expected is {}", name, i, x, y);
  }
  return "";
}

// The model with what its inputs hold: only where an operator needs numbers at import, or, where shapes are computed
// from them, everywhere.
cleave::Graph load(const fs::path& model, const std::vector<cleave::OnnxKnown>& inputs) {
  cleave::OnnxOptions options;
  const auto names = cleave::onnx_inputs(model.string());
  if (!names.ok()) (void)cleave::Graph::load(model.string());  // says what is wrong
  for (size_t i = 0; names.ok() && i < std::min(inputs.size(), names->size()); ++i)
    options.known[(*names)[i]] = inputs[i];
  cleave::LoadOptions plain;
  for (const auto& [name, known] : options.known) plain.known[name] = tensor_of(known);
  try {
    return cleave::Graph::load(model.string(), plain);
  } catch (const cleave::Error& e) {
    if (e.code() != "CLV3010") throw;
    plain.fold_known = true;
    try {
      return cleave::Graph::load(model.string(), plain);
    } catch (const cleave::Error&) {
    }
    throw;
  }
}

Outcome run(const fs::path& folder) {
  try {
    std::vector<fs::path> sets;
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.path().filename().string().starts_with("test_data_set_")) sets.push_back(entry.path());
    std::sort(sets.begin(), sets.end());
    if (sets.empty()) return {"failed", "it has no data"};
    for (const fs::path& set : sets) {
      std::vector<cleave::OnnxKnown> inputs, outputs;
      try {
        inputs = tensors_in(set, "input");
        outputs = tensors_in(set, "output");
      } catch (const cleave::Error& e) {
        // The model says better what is not supported.
        (void)cleave::Graph::load((folder / "model.onnx").string());
        return {"refused", subject(e)};
      }
      const cleave::Graph graph = load(folder / "model.onnx", inputs);
      const cleave::Program program = cleave::Program::compile(graph);
      std::vector<cleave::Tensor> tensors;
      for (const auto& i : inputs) tensors.push_back(tensor_of(i));
      const std::vector<cleave::View> views(tensors.begin(), tensors.end());
      const auto results = program.run(views);
      if (results.size() != outputs.size())
        return {"failed", fmt::format("{} outputs, expected are {}", results.size(), outputs.size())};
      for (size_t i = 0; i < results.size(); ++i)
        if (const std::string bad = difference(results[i], outputs[i], program.outputs()[i].name); !bad.empty())
          return {"failed", bad};
    }
    return {"passed", ""};
  } catch (const cleave::Error& e) {
    // An import that names what it lacks; everything later is a fault.
    for (const char* code : {"CLV3005", "CLV3010", "CLV3012", "CLV3013"})
      if (e.code() == code) return {"refused", subject(e)};
    return {"failed", first_line(e.what())};
  } catch (const std::exception& e) {
    return {"failed", first_line(e.what())};
  }
}

void out_of_time(int) { _exit(124); }

}  // namespace

int main(int argc, char** argv) {
  int seconds = 60;
  for (int i = 1; i + 1 < argc; i += 2)
    if (std::string(argv[i]) == "--seconds") seconds = std::max(1, static_cast<int>(std::atof(argv[i + 1])));
  signal(SIGALRM, out_of_time);
  for (std::string folder; std::getline(std::cin, folder);) {
    alarm(static_cast<unsigned>(seconds));
    Outcome o = run(folder);
    alarm(0);
    for (char& c : o.reason)
      if (c == '\t' || c == '\n') c = ' ';
    std::cout << o.word << '\t' << folder << '\t' << o.reason << std::endl;
  }
  return 0;
}
