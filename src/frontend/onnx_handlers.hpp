// The translations of ONNX's operators that are more than one scalar function, by file.
#pragma once

#include "frontend/onnx_context.hpp"

namespace cleave::onnx_import {

using Values = std::vector<OnnxValue>;

// onnx_elementwise.cpp
Result<Values> import_identity(NodeContext& c);
Result<Values> import_dropout(NodeContext& c);
Result<Values> import_cast(NodeContext& c);
Result<Values> import_cast_like(NodeContext& c);
Result<Values> import_clip(NodeContext& c);
Result<Values> import_elu(NodeContext& c);
Result<Values> import_fold(NodeContext& c);  // Min, Max, Sum, Mean of any number of operands
Result<Values> import_gelu(NodeContext& c);
Result<Values> import_hard_sigmoid(NodeContext& c);
Result<Values> import_is_inf(NodeContext& c);
Result<Values> import_leaky_relu(NodeContext& c);
Result<Values> import_mod(NodeContext& c);
Result<Values> import_pow(NodeContext& c);
Result<Values> import_prelu(NodeContext& c);
Result<Values> import_softsign(NodeContext& c);
Result<Values> import_selu(NodeContext& c);
Result<Values> import_swish(NodeContext& c);

// onnx_shapes.cpp: where shapes come from and values without computation
Result<Values> import_constant_of_shape(NodeContext& c);
Result<Values> import_range(NodeContext& c);
Result<Values> import_shape(NodeContext& c);
Result<Values> import_size(NodeContext& c);
Result<Values> import_trilu(NodeContext& c);
Result<Values> import_concat(NodeContext& c);
Result<Values> import_gather(NodeContext& c);
Result<Values> import_slice(NodeContext& c);
Result<Values> import_split(NodeContext& c);
Result<Values> import_pad(NodeContext& c);

// onnx_views.cpp
Result<Values> import_expand(NodeContext& c);
Result<Values> import_flatten(NodeContext& c);
Result<Values> import_reshape(NodeContext& c);
Result<Values> import_squeeze(NodeContext& c);
Result<Values> import_tile(NodeContext& c);
Result<Values> import_transpose(NodeContext& c);
Result<Values> import_unsqueeze(NodeContext& c);

// onnx_reduce.cpp: reductions, normalisations, scans
Result<Values> import_arg_extremum(NodeContext& c);
Result<Values> import_cumsum(NodeContext& c);
Result<Values> import_reduce(NodeContext& c);
Result<Values> import_softmax(NodeContext& c);  // and LogSoftmax
Result<Values> import_top_k(NodeContext& c);
Result<Values> import_batch_norm(NodeContext& c);
Result<Values> import_group_norm(NodeContext& c);
Result<Values> import_layer_norm(NodeContext& c);
Result<Values> import_rms_norm(NodeContext& c);

// onnx_contract.cpp: contractions and attention
Result<Values> import_attention(NodeContext& c);
Result<Values> import_einsum(NodeContext& c);
Result<Values> import_gemm(NodeContext& c);
Result<Values> import_matmul(NodeContext& c);
Result<Values> import_rotary_embedding(NodeContext& c);

}  // namespace cleave::onnx_import
