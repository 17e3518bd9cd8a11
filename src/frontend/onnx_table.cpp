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

constexpr OperatorRow scalar_row(const char* name, std::string_view types, Fn fn) {
  return {"", name, types.size(), types.size(), types, import_scalar_fn, "", fn};
}

const OperatorRow kRows[] = {
    scalar_row("Abs", "N", Fn::abs),
    {"", "Acos", 1, 1, "F", import_arc},
    {"", "Acosh", 1, 1, "F", import_inverse_hyperbolic},
    scalar_row("Add", "NN", Fn::add),
    {"", "AffineGrid", 2, 2, "FL", import_affine_grid, "align_corners"},
    scalar_row("And", "BB", Fn::logical_and),
    {"", "ArgMax", 1, 1, "N", import_arg_extremum, "axis keepdims select_last_index"},
    {"", "ArgMin", 1, 1, "N", import_arg_extremum, "axis keepdims select_last_index"},
    {"", "Asin", 1, 1, "F", import_arc},
    {"", "Asinh", 1, 1, "F", import_inverse_hyperbolic},
    {"", "Atan", 1, 1, "F", import_arc},
    {"", "Atanh", 1, 1, "F", import_inverse_hyperbolic},
    {"", "Attention", 3, 7, "FFgTFgL", import_attention,
     "is_causal kv_num_heads left_window_size q_num_heads qk_matmul_output_mode right_window_size scale softcap "
     "softmax_precision"},
    {"", "AveragePool", 1, 1, "F", import_average_pool,
     "auto_pad ceil_mode count_include_pad dilations kernel_shape pads strides"},
    {"", "BatchNormalization", 5, 5, "Fgghh", import_batch_norm, "epsilon momentum training_mode"},
    {"", "BitShift", 2, 2, "ZZ", import_bit_shift, "direction"},
    {"", "BitwiseAnd", 2, 2, "ZZ", import_bitwise},
    {"", "BitwiseNot", 1, 1, "Z", import_bitwise},
    {"", "BitwiseOr", 2, 2, "ZZ", import_bitwise},
    {"", "BitwiseXor", 2, 2, "ZZ", import_bitwise},
    {"", "BlackmanWindow", 1, 1, "I", import_signal_window, "output_datatype periodic"},
    {"", "Cast", 1, 1, "T", import_cast, "to saturate round_mode"},
    {"", "CastLike", 2, 2, "Tt", import_cast_like, "saturate round_mode"},
    scalar_row("Ceil", "F", Fn::ceil),
    {"", "Celu", 1, 1, "F", import_celu, "alpha"},
    {"", "CenterCropPad", 2, 2, "TI", import_center_crop_pad, "axes"},
    {"", "Clip", 1, 3, "NNN", import_clip, "min max"},
    {"", "Col2Im", 3, 3, "TLL", import_col2im, "dilations pads strides"},
    {"", "Compress", 2, 2, "TB", import_compress, "axis"},
    {"", "Concat", 1, kAny, "T", import_concat, "axis"},
    {"", "ConstantOfShape", 1, 1, "L", import_constant_of_shape, "value"},
    {"", "Conv", 2, 3, "FFF", import_conv, "auto_pad dilations group kernel_shape pads strides"},
    {"", "ConvInteger", 2, 4, "ZzZz", import_conv_integer, "auto_pad dilations group kernel_shape pads strides"},
    {"", "ConvTranspose", 2, 3, "FFF", import_conv_transpose,
     "auto_pad dilations group kernel_shape output_padding output_shape pads strides"},
    scalar_row("Cos", "F", Fn::cos),
    {"", "Cosh", 1, 1, "F", import_hyperbolic},
    {"", "CumProd", 2, 2, "NI", import_cumsum, "exclusive reverse"},
    {"", "CumSum", 2, 2, "NI", import_cumsum, "exclusive reverse"},
    {"", "DFT", 1, 3, "FIL", import_dft, "axis inverse onesided"},
    {"", "DepthToSpace", 1, 1, "T", import_depth_to_space, "blocksize mode"},
    {"", "DequantizeLinear", 2, 3, "ZFZ", import_dequantize, "axis block_size output_dtype"},
    scalar_row("Div", "NN", Fn::div),
    {"", "Dropout", 1, 3, "FgB", import_dropout, "ratio seed"},
    {"", "DynamicQuantizeLinear", 1, 1, "S", import_dynamic_quantize},
    {"", "Einsum", 1, 64, "N", import_einsum, "equation"},
    {"", "Elu", 1, 1, "F", import_elu, "alpha"},
    scalar_row("Equal", "TT", Fn::eq),
    scalar_row("Erf", "N", Fn::erf),
    scalar_row("Exp", "F", Fn::exp),
    {"", "Expand", 2, 2, "TL", import_expand},
    {"", "EyeLike", 1, 1, "T", import_eye_like, "dtype k"},
    {"", "Flatten", 1, 1, "T", import_flatten, "axis"},
    scalar_row("Floor", "F", Fn::floor),
    {"", "Gather", 2, 2, "TI", import_gather, "axis"},
    {"", "GatherElements", 2, 2, "TI", import_gather_elements, "axis"},
    {"", "GatherND", 2, 2, "TL", import_gather_nd, "batch_dims"},
    {"", "Gelu", 1, 1, "F", import_gelu, "approximate"},
    {"", "Gemm", 2, 3, "NNN", import_gemm, "alpha beta transA transB"},
    {"", "GlobalAveragePool", 1, 1, "F", import_global_pool},
    {"", "GlobalLpPool", 1, 1, "F", import_global_pool, "p"},
    {"", "GlobalMaxPool", 1, 1, "F", import_global_pool},
    scalar_row("Greater", "NN", Fn::gt),
    scalar_row("GreaterOrEqual", "NN", Fn::ge),
    {"", "GridSample", 2, 2, "TF", import_grid_sample, "align_corners mode padding_mode"},
    {"", "GroupNormalization", 3, 3, "FFF", import_group_norm, "epsilon num_groups stash_type"},
    {"", "HammingWindow", 1, 1, "I", import_signal_window, "output_datatype periodic"},
    {"", "HannWindow", 1, 1, "I", import_signal_window, "output_datatype periodic"},
    {"", "HardSigmoid", 1, 1, "F", import_hard_sigmoid, "alpha beta"},
    scalar_row("HardSwish", "F", Fn::hardswish),
    {"", "Hardmax", 1, 1, "F", import_hardmax, "axis"},
    {"", "Identity", 1, 1, "T", import_identity},
    {"", "InstanceNormalization", 3, 3, "FFF", import_instance_norm, "epsilon"},
    {"", "IsInf", 1, 1, "F", import_is_inf, "detect_negative detect_positive"},
    scalar_row("IsNaN", "F", Fn::isnan),
    {"", "LRN", 1, 1, "F", import_lrn, "alpha beta bias size"},
    {"", "LayerNormalization", 2, 3, "FFF", import_layer_norm, "axis epsilon stash_type"},
    {"", "LeakyRelu", 1, 1, "F", import_leaky_relu, "alpha"},
    scalar_row("Less", "NN", Fn::lt),
    scalar_row("LessOrEqual", "NN", Fn::le),
    scalar_row("Log", "F", Fn::log),
    {"", "LogSoftmax", 1, 1, "F", import_softmax, "axis"},
    {"", "LpNormalization", 1, 1, "F", import_lp_norm, "axis p"},
    {"", "LpPool", 1, 1, "F", import_lp_pool, "auto_pad ceil_mode dilations kernel_shape p pads strides"},
    {"", "MatMul", 2, 2, "NN", import_matmul},
    {"", "MatMulInteger", 2, 4, "ZzZz", import_matmul_integer},
    {"", "Max", 1, kAny, "N", import_fold},
    {"", "MaxPool", 1, 1, "N", import_max_pool, "auto_pad ceil_mode dilations kernel_shape pads storage_order strides"},
    {"", "Mean", 1, kAny, "F", import_fold},
    {"", "MeanVarianceNormalization", 1, 1, "F", import_mean_variance_norm, "axes"},
    {"", "Min", 1, kAny, "N", import_fold},
    scalar_row("Mish", "F", Fn::mish),
    {"", "Mod", 2, 2, "NN", import_mod, "fmod"},
    scalar_row("Mul", "NN", Fn::mul),
    scalar_row("Neg", "N", Fn::neg),
    {"", "NegativeLogLikelihoodLoss", 2, 3, "FIF", import_likelihood_loss, "ignore_index reduction"},
    scalar_row("Not", "B", Fn::logical_not),
    {"", "OneHot", 3, 3, "NnT", import_one_hot, "axis"},
    scalar_row("Or", "BB", Fn::logical_or),
    {"", "PRelu", 2, 2, "NN", import_prelu},
    {"", "Pad", 1, 4, "TLTI", import_pad, "mode pads value"},
    {"", "Pow", 2, 2, "Nn", import_pow},
    {"", "QLinearMatMul", 8, 8, "ZFZzFzFy", import_qlinear_matmul},
    {"", "QuantizeLinear", 2, 3, "NnZ", import_quantize, "axis block_size output_dtype precision saturate"},
    {"", "RMSNormalization", 2, 2, "Fg", import_rms_norm, "axis epsilon stash_type"},
    {"", "Range", 3, 3, "NNN", import_range},
    scalar_row("Reciprocal", "F", Fn::reciprocal),
    {"", "ReduceL1", 1, 2, "NL", import_reduce, "axes keepdims noop_with_empty_axes"},
    {"", "ReduceL2", 1, 2, "NL", import_reduce, "axes keepdims noop_with_empty_axes"},
    {"", "ReduceLogSum", 1, 2, "NL", import_reduce, "axes keepdims noop_with_empty_axes"},
    {"", "ReduceLogSumExp", 1, 2, "NL", import_reduce, "axes keepdims noop_with_empty_axes"},
    {"", "ReduceMax", 1, 2, "TL", import_reduce, "axes keepdims noop_with_empty_axes"},
    {"", "ReduceMean", 1, 2, "NL", import_reduce, "axes keepdims noop_with_empty_axes"},
    {"", "ReduceMin", 1, 2, "TL", import_reduce, "axes keepdims noop_with_empty_axes"},
    {"", "ReduceProd", 1, 2, "NL", import_reduce, "axes keepdims noop_with_empty_axes"},
    {"", "ReduceSum", 1, 2, "NL", import_reduce, "axes keepdims noop_with_empty_axes"},
    {"", "ReduceSumSquare", 1, 2, "NL", import_reduce, "axes keepdims noop_with_empty_axes"},
    scalar_row("Relu", "N", Fn::relu),
    {"", "Reshape", 2, 2, "TL", import_reshape, "allowzero"},
    {"", "Resize", 1, 4, "TFSL", import_resize,
     "antialias axes coordinate_transformation_mode cubic_coeff_a exclude_outside extrapolation_value "
     "keep_aspect_ratio_policy mode nearest_mode"},
    {"", "ReverseSequence", 2, 2, "TL", import_reverse_sequence, "batch_axis time_axis"},
    {"", "RotaryEmbedding", 3, 4, "FFFL", import_rotary_embedding, "interleaved num_heads rotary_embedding_dim"},
    scalar_row("Round", "F", Fn::round),
    {"", "STFT", 2, 4, "FIFI", import_stft, "onesided"},
    {"", "Scatter", 3, 3, "TIT", import_scatter_elements, "axis"},
    {"", "ScatterElements", 3, 3, "TIT", import_scatter_elements, "axis reduction"},
    {"", "ScatterND", 3, 3, "TLT", import_scatter_nd, "reduction"},
    {"", "Selu", 1, 1, "F", import_selu, "alpha gamma"},
    {"", "Shape", 1, 1, "T", import_shape, "start end"},
    {"", "Shrink", 1, 1, "N", import_shrink, "bias lambd"},
    scalar_row("Sigmoid", "F", Fn::sigmoid),
    scalar_row("Sign", "N", Fn::sign),
    scalar_row("Sin", "F", Fn::sin),
    {"", "Sinh", 1, 1, "F", import_hyperbolic},
    {"", "SimplifiedLayerNormalization", 2, 2, "Fg", import_rms_norm, "axis epsilon stash_type"},
    {"", "Size", 1, 1, "T", import_size},
    {"", "Slice", 1, 5, "TIIII", import_slice, "axes starts ends"},
    {"", "Softmax", 1, 1, "F", import_softmax, "axis"},
    {"", "SoftmaxCrossEntropyLoss", 2, 3, "FIF", import_softmax_loss, "ignore_index reduction"},
    scalar_row("Softplus", "F", Fn::softplus),
    {"", "Softsign", 1, 1, "F", import_softsign},
    {"", "SpaceToDepth", 1, 1, "T", import_space_to_depth, "blocksize"},
    {"", "Split", 1, 2, "TL", import_split, "axis split num_outputs"},
    scalar_row("Sqrt", "F", Fn::sqrt),
    {"", "Squeeze", 1, 2, "TL", import_squeeze, "axes"},
    scalar_row("Sub", "NN", Fn::sub),
    {"", "Sum", 1, kAny, "F", import_fold},
    {"", "SwiGLU", 2, 2, "FF", import_swiglu, "alpha"},
    {"", "Swish", 1, 1, "F", import_swish, "alpha"},
    scalar_row("Tan", "F", Fn::tan),
    scalar_row("Tanh", "F", Fn::tanh),
    {"", "TensorScatter", 2, 3, "TTL", import_tensor_scatter, "axis mode"},
    {"", "ThresholdedRelu", 1, 1, "F", import_thresholded_relu, "alpha"},
    {"", "Tile", 2, 2, "TL", import_tile},
    {"", "TopK", 1, 2, "NL", import_top_k, "axis k largest sorted"},
    {"", "Transpose", 1, 1, "T", import_transpose, "perm"},
    {"", "Trilu", 1, 2, "TL", import_trilu, "upper"},
    {"", "Unsqueeze", 1, 2, "TL", import_unsqueeze, "axes"},
    {"", "Upsample", 1, 2, "TS", import_resize, "mode scales"},
    scalar_row("Where", "BTT", Fn::where),
    scalar_row("Xor", "BB", Fn::logical_xor),
    // ONNX Runtime's own operators, as its optimiser and exporters write them.
    {"com.microsoft", "BiasGelu", 2, 2, "FF", import_contrib_gelu},
    {"com.microsoft", "FastGelu", 1, 2, "FF", import_contrib_gelu},
    {"com.microsoft", "FusedMatMul", 2, 2, "NN", import_fused_matmul, "alpha transA transB transBatchA transBatchB"},
    {"com.microsoft", "Gelu", 1, 1, "F", import_contrib_gelu},
    {"com.microsoft", "GroupQueryAttention", 1, 16, "", import_group_query_attention,
     "do_rotary kv_num_heads local_window_size num_heads rotary_interleaved scale smooth_softmax softcap"},
    {"com.microsoft", "QuickGelu", 1, 1, "F", import_contrib_gelu, "alpha"},
    {"com.microsoft", "SkipLayerNormalization", 3, 5, "FFFFF", import_skip_norm, "epsilon"},
    {"com.microsoft", "SkipSimplifiedLayerNormalization", 3, 4, "FFFF", import_skip_norm, "epsilon"},
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
