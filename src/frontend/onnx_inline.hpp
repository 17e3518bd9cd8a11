// Calls of a model's own functions, replaced by the functions' bodies.
#pragma once

#include <string>

#include "base/diagnostic.hpp"

namespace onnx {
class ModelProto;
}

namespace cleave::onnx_import {

// Rewrites the nodes of the model's graph until none calls a function. Bounded in depth, nodes and bytes, so functions
// that call themselves, or double at every level, are errors. Empty when all went well.
Diagnostics inline_functions(onnx::ModelProto& model, const std::string& model_name);

}  // namespace cleave::onnx_import
