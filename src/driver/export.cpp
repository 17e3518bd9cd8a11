#include "driver/export.hpp"

#include <filesystem>

#include "algebra/certificate.hpp"
#include "base/codes.hpp"
#include "frontend/file.hpp"
#include "frontend/onnx_export.hpp"

namespace cleave::driver {

namespace fs = std::filesystem;

Diagnostics export_onnx_graphs(const Compilation& c, const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return {diagnose(Code::file_unwritable, folder, error.message())};
  Diagnostics out;
  for (size_t k = 0; k < c.equal.size() + c.split.size(); ++k) {
    const OnnxExport e = export_onnx(equal_graph(c, k).graph);
    if (!e.why_not.empty()) {
      out.push_back(diagnose(Code::not_exportable, k, e.why_not));
      continue;
    }
    if (Diagnostics bad = write_bytes((fs::path(folder) / fmt::format("graph_{}.onnx", k)).string(), e.model);
        !bad.empty())
      return bad;
  }
  return out;
}

Diagnostics export_certificates(const Compilation& c, const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return {diagnose(Code::file_unwritable, folder, error.message())};
  // Each search once more, with its steps: whole, then those that split an index, whose first graph is the input again.
  std::vector<std::string> splits{""};
  for (const Equal& e : c.split)
    if (splits.back() != e.split) splits.push_back(e.split);
  size_t number = 0;
  for (const std::string& split : splits) {
    algebra::SearchOptions o;
    o.seed = c.options.seed;
    o.split = split;
    const auto texts = algebra::certificates(*c.expanded, o);
    if (!texts) return texts.errors();
    for (size_t k = split.empty() ? 0 : 1; k < texts->size(); ++k, ++number)
      if (Diagnostics bad = write_bytes((fs::path(folder) / fmt::format("graph_{}.json", number)).string(),
                                        std::as_bytes(std::span((*texts)[k])));
          !bad.empty())
        return bad;
  }
  return {};
}

}  // namespace cleave::driver
