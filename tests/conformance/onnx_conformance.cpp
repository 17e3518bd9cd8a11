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
#include <set>
#include <string>

#include "api/internal.hpp"
#include "eval/bounds.hpp"
#include "frontend/onnx.hpp"
#include "graph/expand.hpp"
#include "types/dtype.hpp"

namespace fs = std::filesystem;

namespace cleave {
namespace {

// As ONNX's own runner compares; those of 16 bits may be one rounding apart, and where that is not enough (sums that
// cancel, intermediates of 16 bits) what rounding allows is derived from the graph and its inputs.
constexpr double kRelative = 1e-3, kAbsolute = 1e-7;
double relative(DType dtype) { return std::max(kRelative, 2 * unit_roundoff(dtype)); }

struct Outcome {
  std::string word, reason;
};

std::string first_line(std::string text) { return text.substr(0, text.find('\n')); }

// "LSTM", "Attention: `softcap` is not supported", "type INT8": what a refusal is about.
std::string subject(const Error& e) {
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

Tensor tensor_of(const OnnxKnown& from) {
  Tensor t = zeros(*element_type(name(from.dtype)), from.shape);
  if (!from.bytes.empty()) std::memcpy(t.data, from.bytes.data(), from.bytes.size());
  return t;
}

// The files word_0.pb, word_1.pb, ...
std::vector<OnnxKnown> tensors_in(const fs::path& folder, const std::string& word) {
  std::vector<OnnxKnown> out;
  for (int i = 0;; ++i) {
    const fs::path file = folder / (word + "_" + std::to_string(i) + ".pb");
    if (!fs::exists(file)) return out;
    auto tensor = read_onnx_tensor(file.string());
    if (!tensor.ok())
      throw Error(Error::Kind::unsupported, fmt::format("CLV{}", info(tensor.errors()[0].code).number), "", "",
                  render(tensor.errors(), nullptr));
    out.push_back(std::move(*tensor));
  }
}

// The graph as an implementation computes it that keeps what it stores in the 16 bits of its inputs.
graph::Graph narrowed(const graph::Graph& g, DType dtype) {
  return graph::rewrite(
      g,
      [&](graph::Builder& b, graph::NodeId id,
          std::span<const graph::ValueId> operands) -> std::optional<std::vector<graph::ValueId>> {
        const graph::Node& n = g.node(id);
        if (n.op == graph::Op::cast && is_real(b.type(operands[0]).dtype) && is_real(n.attributes.get<DType>("dtype")))
          return std::vector{operands[0]};
        if (n.op == graph::Op::literal && n.attributes.get<DType>("dtype") == DType::f32)
          return std::vector{b.literal(n.attributes.get<double>("value"), dtype)};
        return std::nullopt;
      });
}

// A linear map by a constant may be a product of sparse ones (a fast Fourier transform): its error is one of the whole
// result, and grows with the number of factors.
double of_the_whole(const graph::Graph& g, graph::ValueId output, const oracle::Tensor& value) {
  const graph::Node& n = g.producer(output);
  if (n.op != graph::Op::contract || g.producer(n.operands[1]).op != graph::Op::constant) return 0;
  double largest = 0;
  for (int64_t i = 0; i < value.elements(); ++i) largest = std::max(largest, std::abs(value.at(i)));
  const auto factors = std::log2(static_cast<double>(oracle::product(g.extents(n.operands[1]))));
  return largest * unit_roundoff(value.dtype) * factors;
}

// How far two ways to compute the same may be apart, for each element of each output: each may be as far from the exact
// value as rounding analysis allows. Empty where that is not known.
std::vector<std::vector<double>> derived(const Graph& given, const std::vector<OnnxKnown>& inputs) {
  const graph::Graph g = graph::expand(given.shared()->graph);
  if (!g.dims().empty()) return {};
  std::vector<oracle::Tensor> tensors;
  std::set<DType> types;
  for (const OnnxKnown& i : inputs) {
    tune::Array array = tune::make_array("", i.dtype, i.shape);
    if (!i.bytes.empty()) std::memcpy(array.data.data(), i.bytes.data(), i.bytes.size());
    tensors.push_back(tune::tensor_of(array));
    if (is_real(i.dtype)) types.insert(i.dtype);
  }
  std::vector<graph::Graph> ways = {g};
  if (types.size() == 1 && byte_size(*types.begin()) == 2) ways.push_back(narrowed(g, *types.begin()));
  std::vector<std::vector<double>> out(g.outputs().size());
  for (const graph::Graph& way : ways) {
    const auto bounded = oracle::evaluate_with_bounds(way, tensors);
    if (!bounded) continue;
    for (size_t o = 0; o < bounded->size(); ++o) {
      const oracle::Bounded& b = (*bounded)[o];
      const double whole = of_the_whole(way, way.outputs()[o].value, b.value);
      out[o].resize(b.bound.size());
      for (size_t i = 0; i < b.bound.size(); ++i)
        if (std::isfinite(b.bound[i])) out[o][i] = std::max(out[o][i], 2 * (b.bound[i] + whole));
    }
  }
  return out;
}

// What differs; empty when nothing does. `allowed`: more than ONNX's tolerance, for each element; may be empty.
std::string difference(const Tensor& got, const OnnxKnown& want, const std::string& name,
                       const std::vector<double>& allowed = {}) {
  if (std::string(cleave::name(got.type)) != cleave::name(want.dtype))
    return fmt::format("{} has the type {}, expected is {}", name, cleave::name(got.type), cleave::name(want.dtype));
  if (got.shape != want.shape)
    return fmt::format("{} has the shape [{}], expected is [{}]", name, fmt::join(got.shape, ", "),
                       fmt::join(want.shape, ", "));
  const int64_t width = byte_size(want.dtype);
  for (int64_t i = 0; i < got.elements(); ++i) {
    const char* a = got.as<char>() + i * width;
    const char* b = reinterpret_cast<const char*>(want.bytes.data()) + i * width;
    if (!is_real(want.dtype)) {
      const int64_t x = load_integer(want.dtype, a), y = load_integer(want.dtype, b);
      if (x != y) return fmt::format("{}[{}] is {}, expected is {}", name, i, x, y);
      continue;
    }
    const double x = load_real(want.dtype, a), y = load_real(want.dtype, b);
    const double most = std::max(kAbsolute + relative(want.dtype) * std::abs(y),
                                 allowed.empty() ? 0.0 : allowed[static_cast<size_t>(i)]);
    const bool same = x == y || (std::isnan(x) && std::isnan(y)) || std::abs(x - y) <= most;
    if (!same) return fmt::format("{}[{}] is {}, expected is {}", name, i, x, y);
  }
  return "";
}

// The model with what its inputs hold: only where an operator needs numbers at import, or, where shapes are computed
// from them, everywhere.
Graph load(const fs::path& model, const std::vector<OnnxKnown>& inputs) {
  OnnxOptions options;
  const auto names = onnx_inputs(model.string());
  if (!names.ok()) (void)Graph::load(model.string());  // says what is wrong
  for (size_t i = 0; names.ok() && i < std::min(inputs.size(), names->size()); ++i)
    options.known[(*names)[i]] = inputs[i];
  LoadOptions plain;
  for (const auto& [name, known] : options.known) plain.known[name] = tensor_of(known);
  try {
    return Graph::load(model.string(), plain);
  } catch (const Error& e) {
    if (e.code() != "CLV3010") throw;
    plain.fold_known = true;
    try {
      return Graph::load(model.string(), plain);
    } catch (const Error&) {
    }
    throw;
  }
}

// NumPy has no bf16: the data of some tests is its bits, as UINT16. Says whether there are such.
bool as_bf16(std::vector<OnnxKnown>& tensors) {
  bool any = false;
  for (OnnxKnown& t : tensors)
    if (t.dtype == DType::u16) {
      t.dtype = DType::bf16;
      any = true;
    }
  return any;
}

Graph load_any(const fs::path& model, std::vector<OnnxKnown>& inputs) {
  try {
    return load(model, inputs);
  } catch (const Error& e) {
    if (e.code() != "CLV3005" || !as_bf16(inputs)) throw;
    return load(model, inputs);
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
      std::vector<OnnxKnown> inputs, outputs;
      try {
        inputs = tensors_in(set, "input");
        outputs = tensors_in(set, "output");
      } catch (const Error& e) {
        // The model says better what is not supported.
        (void)Graph::load((folder / "model.onnx").string());
        return {"refused", subject(e)};
      }
      const Graph graph = load_any(folder / "model.onnx", inputs);
      const Program program = Program::compile(graph);
      std::vector<Tensor> tensors;
      for (const auto& i : inputs) tensors.push_back(tensor_of(i));
      const std::vector<View> views(tensors.begin(), tensors.end());
      const auto results = program.run(views);
      if (results.size() != outputs.size())
        return {"failed", fmt::format("{} outputs, expected are {}", results.size(), outputs.size())};
      for (size_t i = 0; i < results.size(); ++i) {
        const std::string name = program.outputs()[i].name;
        if (results[i].type == ElementType::bf16 && outputs[i].dtype == DType::u16) outputs[i].dtype = DType::bf16;
        if (difference(results[i], outputs[i], name).empty()) continue;
        const auto allowed = derived(graph, inputs);
        const std::string bad =
            difference(results[i], outputs[i], name, allowed.empty() ? std::vector<double>() : allowed[i]);
        if (!bad.empty()) return {"failed", bad};
      }
    }
    return {"passed", ""};
  } catch (const Error& e) {
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
}  // namespace cleave

int main(int argc, char** argv) {
  int seconds = 60;
  for (int i = 1; i + 1 < argc; i += 2)
    if (std::string(argv[i]) == "--seconds") seconds = std::max(1, static_cast<int>(std::atof(argv[i + 1])));
  signal(SIGALRM, cleave::out_of_time);
  for (std::string folder; std::getline(std::cin, folder);) {
    alarm(static_cast<unsigned>(seconds));
    cleave::Outcome o = cleave::run(folder);
    alarm(0);
    for (char& c : o.reason)
      if (c == '\t' || c == '\n') c = ' ';
    std::cout << o.word << '\t' << folder << '\t' << o.reason << std::endl;
  }
  return 0;
}
