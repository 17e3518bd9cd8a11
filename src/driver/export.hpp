// Found graphs as files: for other compilers, and the certificates that they are equal.
#pragma once

#include <string>

#include "driver/pipeline.hpp"

namespace cleave::driver {

// Writes FOLDER/graph_N.onnx for every graph that the search found. Errors: file_unwritable, and not_exportable for
// each graph that cannot be written (the others are).
Diagnostics export_onnx_graphs(const Compilation& compilation, const std::string& folder);

// Writes FOLDER/graph_N.json, the certificate of every graph that the search found. Errors: file_unwritable.
Diagnostics export_certificates(const Compilation& compilation, const std::string& folder);

}  // namespace cleave::driver
