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
    scalar_row("Add", 2, Fn::add),
    scalar_row("And", 2, Fn::logical_and),
    {"", "ArgMax", 1, 1, import_arg_extremum, "axis keepdims select_last_index"},
    {"", "ArgMin", 1, 1, import_arg_extremum, "axis keepdims select_last_index"},
    {"", "Attention", 3, 7, import_attention,
     "is_causal kv_num_heads q_num_heads qk_matmul_output_mode scale softcap softmax_precision"},
    {"", "BatchNormalization", 5, 5, import_batch_norm, "epsilon momentum training_mode"},
    {"", "Cast", 1, 1, import_cast, "to saturate round_mode"},
    {"", "CastLike", 2, 2, import_cast_like, "saturate round_mode"},
    scalar_row("Ceil", 1, Fn::ceil),
    {"", "Clip", 1, 3, import_clip, "min max"},
    {"", "Concat", 1, kAny, import_concat, "axis"},
    {"", "ConstantOfShape", 1, 1, import_constant_of_shape, "value"},
    scalar_row("Cos", 1, Fn::cos),
    {"", "CumSum", 2, 2, import_cumsum, "exclusive reverse"},
    scalar_row("Div", 2, Fn::div),
    {"", "Dropout", 1, 3, import_dropout, "ratio seed"},
    {"", "Einsum", 1, 64, import_einsum, "equation"},
    {"", "Elu", 1, 1, import_elu, "alpha"},
    scalar_row("Equal", 2, Fn::eq),
    scalar_row("Erf", 1, Fn::erf),
    scalar_row("Exp", 1, Fn::exp),
    {"", "Expand", 2, 2, import_expand},
    {"", "Flatten", 1, 1, import_flatten, "axis"},
    scalar_row("Floor", 1, Fn::floor),
    {"", "Gather", 2, 2, import_gather, "axis"},
    {"", "Gelu", 1, 1, import_gelu, "approximate"},
    {"", "Gemm", 2, 3, import_gemm, "alpha beta transA transB"},
    scalar_row("Greater", 2, Fn::gt),
    scalar_row("GreaterOrEqual", 2, Fn::ge),
    {"", "GroupNormalization", 3, 3, import_group_norm, "epsilon num_groups stash_type"},
    {"", "HardSigmoid", 1, 1, import_hard_sigmoid, "alpha beta"},
    scalar_row("HardSwish", 1, Fn::hardswish),
    {"", "Identity", 1, 1, import_identity},
    {"", "IsInf", 1, 1, import_is_inf, "detect_negative detect_positive"},
    scalar_row("IsNaN", 1, Fn::isnan),
    {"", "LayerNormalization", 2, 3, import_layer_norm, "axis epsilon stash_type"},
    {"", "LeakyRelu", 1, 1, import_leaky_relu, "alpha"},
    scalar_row("Less", 2, Fn::lt),
    scalar_row("LessOrEqual", 2, Fn::le),
    scalar_row("Log", 1, Fn::log),
    {"", "LogSoftmax", 1, 1, import_softmax, "axis"},
    {"", "MatMul", 2, 2, import_matmul},
    {"", "Max", 1, kAny, import_fold},
    {"", "Mean", 1, kAny, import_fold},
    {"", "Min", 1, kAny, import_fold},
    scalar_row("Mish", 1, Fn::mish),
    {"", "Mod", 2, 2, import_mod, "fmod"},
    scalar_row("Mul", 2, Fn::mul),
    scalar_row("Neg", 1, Fn::neg),
    scalar_row("Not", 1, Fn::logical_not),
    scalar_row("Or", 2, Fn::logical_or),
    {"", "PRelu", 2, 2, import_prelu},
    {"", "Pad", 1, 4, import_pad, "mode pads value"},
    {"", "Pow", 2, 2, import_pow},
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
    {"", "RotaryEmbedding", 3, 4, import_rotary_embedding, "interleaved num_heads rotary_embedding_dim"},
    scalar_row("Round", 1, Fn::round),
    {"", "Selu", 1, 1, import_selu, "alpha gamma"},
    {"", "Shape", 1, 1, import_shape, "start end"},
    scalar_row("Sigmoid", 1, Fn::sigmoid),
    scalar_row("Sign", 1, Fn::sign),
    scalar_row("Sin", 1, Fn::sin),
    {"", "Size", 1, 1, import_size},
    {"", "Slice", 1, 5, import_slice, "axes starts ends"},
    {"", "Softmax", 1, 1, import_softmax, "axis"},
    scalar_row("Softplus", 1, Fn::softplus),
    {"", "Softsign", 1, 1, import_softsign},
    {"", "Split", 1, 2, import_split, "axis split num_outputs"},
    scalar_row("Sqrt", 1, Fn::sqrt),
    {"", "Squeeze", 1, 2, import_squeeze, "axes"},
    scalar_row("Sub", 2, Fn::sub),
    {"", "Sum", 1, kAny, import_fold},
    {"", "Swish", 1, 1, import_swish, "alpha"},
    scalar_row("Tan", 1, Fn::tan),
    scalar_row("Tanh", 1, Fn::tanh),
    {"", "Tile", 2, 2, import_tile},
    {"", "TopK", 1, 2, import_top_k, "axis k largest sorted"},
    {"", "Transpose", 1, 1, import_transpose, "perm"},
    {"", "Trilu", 1, 2, import_trilu, "upper"},
    {"", "Unsqueeze", 1, 2, import_unsqueeze, "axes"},
    scalar_row("Where", 3, Fn::where),
    scalar_row("Xor", 2, Fn::logical_xor),
};

}  // namespace

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
