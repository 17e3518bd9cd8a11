// The table of ONNX operators: domain, name, how many operands, and the translation.
#include <algorithm>

#include "frontend/onnx.hpp"
#include "frontend/onnx_handlers.hpp"

namespace cleave::onnx_import {

namespace {

// An operator that is one scalar function of its operands.
Result<Values> import_scalar_fn(NodeContext& c) {
  const OperatorRow* row = find_operator(c.node().domain(), c.node().op_type());
  CHECK(row && row->fn);
  std::vector<OnnxValue*> operands;
  for (size_t i = 0; i < c.size(); ++i) {
    if (!c.has(i)) return c.error(fmt::format("operand {} is missing", i));
    operands.push_back(&c.in(i));
  }
  TRY_ASSIGN(OnnxValue value, c.elementwise(*row->fn, operands));
  return c.one(std::move(value));
}

constexpr size_t kAny = 1'000'000;

constexpr OperatorRow scalar_row(const char* name, size_t arity, Fn fn) {
  return {"", name, arity, arity, import_scalar_fn, "", fn};
}

const OperatorRow kRows[] = {
    scalar_row("Abs", 1, Fn::abs),
    {"", "Acos", 1, 1, import_arc},
    {"", "Acosh", 1, 1, import_inverse_hyperbolic},
    scalar_row("Add", 2, Fn::add),
    {"", "AffineGrid", 2, 2, import_affine_grid, "align_corners"},
    scalar_row("And", 2, Fn::logical_and),
    {"", "ArgMax", 1, 1, import_arg_extremum, "axis keepdims select_last_index"},
    {"", "ArgMin", 1, 1, import_arg_extremum, "axis keepdims select_last_index"},
    {"", "Asin", 1, 1, import_arc},
    {"", "Asinh", 1, 1, import_inverse_hyperbolic},
    {"", "Atan", 1, 1, import_arc},
    {"", "Atanh", 1, 1, import_inverse_hyperbolic},
    {"", "Attention", 3, 7, import_attention,
     "is_causal kv_num_heads left_window_size q_num_heads qk_matmul_output_mode right_window_size scale softcap "
     "softmax_precision"},
    {"", "AveragePool", 1, 1, import_average_pool,
     "auto_pad ceil_mode count_include_pad dilations kernel_shape pads strides"},
    {"", "BatchNormalization", 5, 5, import_batch_norm, "epsilon momentum training_mode"},
    {"", "BitShift", 2, 2, import_bit_shift, "direction"},
    {"", "BitwiseAnd", 2, 2, import_bitwise},
    {"", "BitwiseNot", 1, 1, import_bitwise},
    {"", "BitwiseOr", 2, 2, import_bitwise},
    {"", "BitwiseXor", 2, 2, import_bitwise},
    {"", "BlackmanWindow", 1, 1, import_signal_window, "output_datatype periodic"},
    {"", "Cast", 1, 1, import_cast, "to saturate round_mode"},
    {"", "CastLike", 2, 2, import_cast_like, "saturate round_mode"},
    scalar_row("Ceil", 1, Fn::ceil),
    {"", "Celu", 1, 1, import_celu, "alpha"},
    {"", "CenterCropPad", 2, 2, import_center_crop_pad, "axes"},
    {"", "Clip", 1, 3, import_clip, "min max"},
    {"", "Col2Im", 3, 3, import_col2im, "dilations pads strides"},
    {"", "Compress", 2, 2, import_compress, "axis"},
    {"", "Concat", 1, kAny, import_concat, "axis"},
    {"", "ConstantOfShape", 1, 1, import_constant_of_shape, "value"},
    {"", "Conv", 2, 3, import_conv, "auto_pad dilations group kernel_shape pads strides"},
    {"", "ConvInteger", 2, 4, import_conv_integer, "auto_pad dilations group kernel_shape pads strides"},
    {"", "ConvTranspose", 2, 3, import_conv_transpose,
     "auto_pad dilations group kernel_shape output_padding output_shape pads strides"},
    scalar_row("Cos", 1, Fn::cos),
    {"", "Cosh", 1, 1, import_hyperbolic},
    {"", "CumProd", 2, 2, import_cumsum, "exclusive reverse"},
    {"", "CumSum", 2, 2, import_cumsum, "exclusive reverse"},
    {"", "DFT", 1, 3, import_dft, "axis inverse onesided"},
    {"", "DepthToSpace", 1, 1, import_depth_to_space, "blocksize mode"},
    {"", "DequantizeLinear", 2, 3, import_dequantize, "axis block_size output_dtype"},
    scalar_row("Div", 2, Fn::div),
    {"", "Dropout", 1, 3, import_dropout, "ratio seed"},
    {"", "DynamicQuantizeLinear", 1, 1, import_dynamic_quantize},
    {"", "Einsum", 1, 64, import_einsum, "equation"},
    {"", "Elu", 1, 1, import_elu, "alpha"},
    scalar_row("Equal", 2, Fn::eq),
    scalar_row("Erf", 1, Fn::erf),
    scalar_row("Exp", 1, Fn::exp),
    {"", "Expand", 2, 2, import_expand},
    {"", "EyeLike", 1, 1, import_eye_like, "dtype k"},
    {"", "Flatten", 1, 1, import_flatten, "axis"},
    scalar_row("Floor", 1, Fn::floor),
    {"", "Gather", 2, 2, import_gather, "axis"},
    {"", "GatherElements", 2, 2, import_gather_elements, "axis"},
    {"", "GatherND", 2, 2, import_gather_nd, "batch_dims"},
    {"", "Gelu", 1, 1, import_gelu, "approximate"},
    {"", "Gemm", 2, 3, import_gemm, "alpha beta transA transB"},
    {"", "GlobalAveragePool", 1, 1, import_global_pool},
    {"", "GlobalLpPool", 1, 1, import_global_pool, "p"},
    {"", "GlobalMaxPool", 1, 1, import_global_pool},
    scalar_row("Greater", 2, Fn::gt),
    scalar_row("GreaterOrEqual", 2, Fn::ge),
    {"", "GridSample", 2, 2, import_grid_sample, "align_corners mode padding_mode"},
    {"", "GroupNormalization", 3, 3, import_group_norm, "epsilon num_groups stash_type"},
    {"", "HammingWindow", 1, 1, import_signal_window, "output_datatype periodic"},
    {"", "HannWindow", 1, 1, import_signal_window, "output_datatype periodic"},
    {"", "HardSigmoid", 1, 1, import_hard_sigmoid, "alpha beta"},
    scalar_row("HardSwish", 1, Fn::hardswish),
    {"", "Hardmax", 1, 1, import_hardmax, "axis"},
    {"", "Identity", 1, 1, import_identity},
    {"", "InstanceNormalization", 3, 3, import_instance_norm, "epsilon"},
    {"", "IsInf", 1, 1, import_is_inf, "detect_negative detect_positive"},
    scalar_row("IsNaN", 1, Fn::isnan),
    {"", "LRN", 1, 1, import_lrn, "alpha beta bias size"},
    {"", "LayerNormalization", 2, 3, import_layer_norm, "axis epsilon stash_type"},
    {"", "LeakyRelu", 1, 1, import_leaky_relu, "alpha"},
    scalar_row("Less", 2, Fn::lt),
    scalar_row("LessOrEqual", 2, Fn::le),
    scalar_row("Log", 1, Fn::log),
    {"", "LogSoftmax", 1, 1, import_softmax, "axis"},
    {"", "LpNormalization", 1, 1, import_lp_norm, "axis p"},
    {"", "LpPool", 1, 1, import_lp_pool, "auto_pad ceil_mode dilations kernel_shape p pads strides"},
    {"", "MatMul", 2, 2, import_matmul},
    {"", "MatMulInteger", 2, 4, import_matmul_integer},
    {"", "Max", 1, kAny, import_fold},
    {"", "MaxPool", 1, 1, import_max_pool, "auto_pad ceil_mode dilations kernel_shape pads storage_order strides"},
    {"", "Mean", 1, kAny, import_fold},
    {"", "MeanVarianceNormalization", 1, 1, import_mean_variance_norm, "axes"},
    {"", "Min", 1, kAny, import_fold},
    scalar_row("Mish", 1, Fn::mish),
    {"", "Mod", 2, 2, import_mod, "fmod"},
    scalar_row("Mul", 2, Fn::mul),
    scalar_row("Neg", 1, Fn::neg),
    {"", "NegativeLogLikelihoodLoss", 2, 3, import_likelihood_loss, "ignore_index reduction"},
    scalar_row("Not", 1, Fn::logical_not),
    {"", "OneHot", 3, 3, import_one_hot, "axis"},
    scalar_row("Or", 2, Fn::logical_or),
    {"", "PRelu", 2, 2, import_prelu},
    {"", "Pad", 1, 4, import_pad, "mode pads value"},
    {"", "Pow", 2, 2, import_pow},
    {"", "QLinearMatMul", 8, 8, import_qlinear_matmul},
    {"", "QuantizeLinear", 2, 3, import_quantize, "axis block_size output_dtype precision saturate"},
    {"", "RMSNormalization", 2, 2, import_rms_norm, "axis epsilon stash_type"},
    {"", "Range", 3, 3, import_range},
    scalar_row("Reciprocal", 1, Fn::reciprocal),
    {"", "ReduceL1", 1, 2, import_reduce, "axes keepdims noop_with_empty_axes"},
    {"", "ReduceL2", 1, 2, import_reduce, "axes keepdims noop_with_empty_axes"},
    {"", "ReduceLogSum", 1, 2, import_reduce, "axes keepdims noop_with_empty_axes"},
    {"", "ReduceLogSumExp", 1, 2, import_reduce, "axes keepdims noop_with_empty_axes"},
    {"", "ReduceMax", 1, 2, import_reduce, "axes keepdims noop_with_empty_axes"},
    {"", "ReduceMean", 1, 2, import_reduce, "axes keepdims noop_with_empty_axes"},
    {"", "ReduceMin", 1, 2, import_reduce, "axes keepdims noop_with_empty_axes"},
    {"", "ReduceProd", 1, 2, import_reduce, "axes keepdims noop_with_empty_axes"},
    {"", "ReduceSum", 1, 2, import_reduce, "axes keepdims noop_with_empty_axes"},
    {"", "ReduceSumSquare", 1, 2, import_reduce, "axes keepdims noop_with_empty_axes"},
    scalar_row("Relu", 1, Fn::relu),
    {"", "Reshape", 2, 2, import_reshape, "allowzero"},
    {"", "Resize", 1, 4, import_resize,
     "antialias axes coordinate_transformation_mode cubic_coeff_a exclude_outside extrapolation_value "
     "keep_aspect_ratio_policy mode nearest_mode"},
    {"", "ReverseSequence", 2, 2, import_reverse_sequence, "batch_axis time_axis"},
    {"", "RotaryEmbedding", 3, 4, import_rotary_embedding, "interleaved num_heads rotary_embedding_dim"},
    scalar_row("Round", 1, Fn::round),
    {"", "STFT", 2, 4, import_stft, "onesided"},
    {"", "Scatter", 3, 3, import_scatter_elements, "axis"},
    {"", "ScatterElements", 3, 3, import_scatter_elements, "axis reduction"},
    {"", "ScatterND", 3, 3, import_scatter_nd, "reduction"},
    {"", "Selu", 1, 1, import_selu, "alpha gamma"},
    {"", "Shape", 1, 1, import_shape, "start end"},
    {"", "Shrink", 1, 1, import_shrink, "bias lambd"},
    scalar_row("Sigmoid", 1, Fn::sigmoid),
    scalar_row("Sign", 1, Fn::sign),
    scalar_row("Sin", 1, Fn::sin),
    {"", "Sinh", 1, 1, import_hyperbolic},
    {"", "SimplifiedLayerNormalization", 2, 2, import_rms_norm, "axis epsilon stash_type"},
    {"", "Size", 1, 1, import_size},
    {"", "Slice", 1, 5, import_slice, "axes starts ends"},
    {"", "Softmax", 1, 1, import_softmax, "axis"},
    {"", "SoftmaxCrossEntropyLoss", 2, 3, import_softmax_loss, "ignore_index reduction"},
    scalar_row("Softplus", 1, Fn::softplus),
    {"", "Softsign", 1, 1, import_softsign},
    {"", "SpaceToDepth", 1, 1, import_space_to_depth, "blocksize"},
    {"", "Split", 1, 2, import_split, "axis split num_outputs"},
    scalar_row("Sqrt", 1, Fn::sqrt),
    {"", "Squeeze", 1, 2, import_squeeze, "axes"},
    scalar_row("Sub", 2, Fn::sub),
    {"", "Sum", 1, kAny, import_fold},
    {"", "SwiGLU", 2, 2, import_swiglu, "alpha"},
    {"", "Swish", 1, 1, import_swish, "alpha"},
    scalar_row("Tan", 1, Fn::tan),
    scalar_row("Tanh", 1, Fn::tanh),
    {"", "TensorScatter", 2, 3, import_tensor_scatter, "axis mode"},
    {"", "ThresholdedRelu", 1, 1, import_thresholded_relu, "alpha"},
    {"", "Tile", 2, 2, import_tile},
    {"", "TopK", 1, 2, import_top_k, "axis k largest sorted"},
    {"", "Transpose", 1, 1, import_transpose, "perm"},
    {"", "Trilu", 1, 2, import_trilu, "upper"},
    {"", "Unsqueeze", 1, 2, import_unsqueeze, "axes"},
    {"", "Upsample", 1, 2, import_resize, "mode scales"},
    scalar_row("Where", 3, Fn::where),
    scalar_row("Xor", 2, Fn::logical_xor),
    // ONNX Runtime's own operators, as its optimiser and exporters write them.
    {"com.microsoft", "BiasGelu", 2, 2, import_contrib_gelu},
    {"com.microsoft", "FastGelu", 1, 2, import_contrib_gelu},
    {"com.microsoft", "FusedMatMul", 2, 2, import_fused_matmul, "alpha transA transB transBatchA transBatchB"},
    {"com.microsoft", "Gelu", 1, 1, import_contrib_gelu},
    {"com.microsoft", "GroupQueryAttention", 1, 16, import_group_query_attention,
     "do_rotary kv_num_heads local_window_size num_heads rotary_interleaved scale smooth_softmax softcap"},
    {"com.microsoft", "QuickGelu", 1, 1, import_contrib_gelu, "alpha"},
    {"com.microsoft", "SkipLayerNormalization", 3, 5, import_skip_norm, "epsilon"},
    {"com.microsoft", "SkipSimplifiedLayerNormalization", 3, 4, import_skip_norm, "epsilon"},
};

// Operators that meant the same before opset 7, with the opset since when.
struct Since {
  std::string_view name;
  int64_t opset;
};
constexpr Since kSince[] = {
    {"Abs", 1},
    {"ArgMax", 1},
    {"ArgMin", 1},
    {"AveragePool", 1},
    {"Cast", 6},
    {"Ceil", 1},
    {"Clip", 6},
    {"Concat", 4},
    {"Conv", 1},
    {"ConvTranspose", 1},
    {"Cos", 1},
    {"DepthToSpace", 1},
    {"Elu", 1},
    {"Exp", 1},
    {"Flatten", 1},
    {"Floor", 1},
    {"GlobalAveragePool", 1},
    {"GlobalLpPool", 2},
    {"GlobalMaxPool", 1},
    {"HardSigmoid", 1},
    {"Hardmax", 1},
    {"Identity", 1},
    {"InstanceNormalization", 1},
    {"LRN", 1},
    {"LeakyRelu", 1},
    {"Log", 1},
    {"LogSoftmax", 1},
    {"LpNormalization", 1},
    {"LpPool", 2},
    {"MaxPool", 1},
    {"Neg", 1},
    {"Not", 1},
    {"Pad", 2},
    {"Reciprocal", 1},
    {"ReduceL1", 1},
    {"ReduceL2", 1},
    {"ReduceLogSum", 1},
    {"ReduceLogSumExp", 1},
    {"ReduceMax", 1},
    {"ReduceMean", 1},
    {"ReduceMin", 1},
    {"ReduceProd", 1},
    {"ReduceSum", 1},
    {"ReduceSumSquare", 1},
    {"Relu", 1},
    {"Reshape", 5},
    {"Selu", 1},
    {"Shape", 1},
    {"Sigmoid", 1},
    {"Size", 1},
    {"Slice", 1},
    {"Softmax", 1},
    {"Softplus", 1},
    {"Softsign", 1},
    {"SpaceToDepth", 1},
    {"Split", 2},
    {"Sqrt", 1},
    {"Squeeze", 1},
    {"Tanh", 1},
    {"Tile", 6},
    {"Transpose", 1},
    {"Unsqueeze", 1},
};

}  // namespace

int64_t OperatorRow::since() const {
  for (const Since& s : kSince)
    if (!*domain && s.name == name) return s.opset;
  return kOldestOpset;
}

bool OperatorRow::has_attribute(std::string_view attribute) const {
  for (std::string_view rest = attributes; !rest.empty();) {
    const size_t end = rest.find(' ');
    if (rest.substr(0, end) == attribute) return true;
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  return false;
}

std::span<const OperatorRow> operator_rows() { return kRows; }

const OperatorRow* find_operator(std::string_view domain, std::string_view name) {
  if (domain == "ai.onnx") domain = "";
  for (const OperatorRow& row : kRows) {
    if (domain == row.domain && name == row.name) return &row;
  }
  return nullptr;
}

}  // namespace cleave::onnx_import

namespace cleave {

std::vector<std::string> onnx_operators() {
  std::vector<std::string> names{"Constant"};
  for (const auto& row : onnx_import::operator_rows()) {
    names.push_back(*row.domain ? fmt::format("{}::{}", row.domain, row.name) : row.name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace cleave
