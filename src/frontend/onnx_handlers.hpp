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

// onnx_contract.cpp
Result<Values> import_einsum(NodeContext& c);
Result<Values> import_gemm(NodeContext& c);
Result<Values> import_matmul(NodeContext& c);

// onnx_attention.cpp
Result<Values> import_attention(NodeContext& c);
Result<Values> import_contrib_gelu(NodeContext& c);
Result<Values> import_fused_matmul(NodeContext& c);
Result<Values> import_group_query_attention(NodeContext& c);
Result<Values> import_rotary_embedding(NodeContext& c);
Result<Values> import_skip_norm(NodeContext& c);

// onnx_window.cpp: convolution and pooling
Result<Values> import_average_pool(NodeContext& c);
Result<Values> import_conv(NodeContext& c);
Result<Values> import_conv_integer(NodeContext& c);
Result<Values> import_conv_transpose(NodeContext& c);
Result<Values> import_global_pool(NodeContext& c);
Result<Values> import_lp_pool(NodeContext& c);
Result<Values> import_lrn(NodeContext& c);
Result<Values> import_matmul_integer(NodeContext& c);
Result<Values> import_max_pool(NodeContext& c);

// onnx_pick.cpp: gathers and scatters
Result<Values> import_compress(NodeContext& c);
Result<Values> import_depth_to_space(NodeContext& c);
Result<Values> import_eye_like(NodeContext& c);
Result<Values> import_gather_elements(NodeContext& c);
Result<Values> import_gather_nd(NodeContext& c);
Result<Values> import_hardmax(NodeContext& c);
Result<Values> import_one_hot(NodeContext& c);
Result<Values> import_reverse_sequence(NodeContext& c);
Result<Values> import_scatter_elements(NodeContext& c);
Result<Values> import_scatter_nd(NodeContext& c);
Result<Values> import_space_to_depth(NodeContext& c);
Result<Values> import_tensor_scatter(NodeContext& c);

// onnx_norms.cpp: norms without a composite of their own, losses
Result<Values> import_batch_norm_training(NodeContext& c);
Result<Values> import_instance_norm(NodeContext& c);
Result<Values> import_likelihood_loss(NodeContext& c);
Result<Values> import_lp_norm(NodeContext& c);
Result<Values> import_mean_variance_norm(NodeContext& c);
Result<Values> import_softmax_loss(NodeContext& c);

// onnx_math.cpp: formulas, bits, quantisation
Result<Values> import_arc(NodeContext& c);
Result<Values> import_bit_shift(NodeContext& c);
Result<Values> import_bitwise(NodeContext& c);
Result<Values> import_celu(NodeContext& c);
Result<Values> import_dequantize(NodeContext& c);
Result<Values> import_dynamic_quantize(NodeContext& c);
Result<Values> import_hyperbolic(NodeContext& c);
Result<Values> import_inverse_hyperbolic(NodeContext& c);
Result<Values> import_qlinear_matmul(NodeContext& c);
Result<Values> import_quantize(NodeContext& c);
Result<Values> import_real_mod(NodeContext& c);
Result<Values> import_shrink(NodeContext& c);
Result<Values> import_swiglu(NodeContext& c);
Result<Values> import_thresholded_relu(NodeContext& c);

// onnx_image.cpp: resampling, padding
Result<Values> import_affine_grid(NodeContext& c);
Result<Values> import_center_crop_pad(NodeContext& c);
Result<Values> import_col2im(NodeContext& c);
Result<Values> import_grid_sample(NodeContext& c);
Result<Values> import_pad(NodeContext& c);
Result<Values> import_resize(NodeContext& c);  // and Upsample

// onnx_signal.cpp
Result<Values> import_dft(NodeContext& c);
Result<Values> import_signal_window(NodeContext& c);
Result<Values> import_stft(NodeContext& c);

}  // namespace cleave::onnx_import
