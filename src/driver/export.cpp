#include "driver/export.hpp"

#include <filesystem>

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

}  // namespace cleave::driver
