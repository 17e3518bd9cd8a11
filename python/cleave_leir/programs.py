"""The 204 program types of the Step-TP release as modules of our own, looked up by name.

`PROGRAMS[name]` builds from its parameters: `build(p)` gives the module and the inputs as (shape, law); `lawful(p)` says
which parameters fit together. The names and operators are those of the data file; the modules are written from them.
"""

import math
import re
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as f

PROGRAMS = {}

NORMAL, POSITIVE, SIGN, BOOL, SIMPLEX = "normal", "positive", "sign", "bool", "simplex"


class Chain(nn.Module):
    """A module of parts (modules, parameters, buffers) and a function of itself and its inputs."""

    def __init__(self, function, **parts):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            if isinstance(part, torch.Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)

    def forward(self, *inputs):
        return self.function(self, *inputs)


def parameter(*shape):
    return nn.Parameter(torch.randn(*shape))


def program(name, lawful=lambda p: True):
    def register(build):
        PROGRAMS[name] = SimpleNamespace(build=build, lawful=lawful)
        return build

    return register


def simple(name, inputs, function, lawful=lambda p: True):
    """A program without parts: `inputs` names the extents of each input, with a law behind a colon."""

    def build(p):
        shapes = []
        for text in inputs.split(";"):
            extents, _, law = text.strip().partition(":")
            shape = [int(w) if w.isdigit() else getattr(p, w) for w in extents.split()]
            shapes.append((shape, law or NORMAL))
        return Chain(lambda m, *x: function(p, *x)), shapes

    PROGRAMS[name] = SimpleNamespace(build=build, lawful=lawful)


# -- level 1: products ------------------------------------------------------------------------------------------------

simple("Matmul3D", "N M K; K L", lambda p, a, b: a @ b)
simple("Matmul4D", "b i j l; l k", lambda p, a, b: torch.einsum("bijl,lk->bijk", a, b))
simple("Matmul_with_diagonal_mat", "N; N M", lambda p, a, b: torch.diag(a) @ b)
simple("Matmul_for_symmetric_matrices", "N N; N N", lambda p, a, b: ((a + a.T) / 2) @ ((b + b.T) / 2))
simple("Matmul_for_upper_triangular_matrices", "N N; N N", lambda p, a, b: torch.triu(torch.triu(a) @ torch.triu(b)))
simple("Matmul_for_lower_triangular_matrices", "N N; N N", lambda p, a, b: torch.tril(torch.tril(a) @ torch.tril(b)))
simple("Matmul_with_transposed_A", "K M; K N", lambda p, a, b: a.T @ b)
simple("Matmul_with_transposed_B", "M K; N K", lambda p, a, b: a @ b.T)
simple("Matmul_with_transposed_both", "K M; N K", lambda p, a, b: a.T @ b.T)
simple("Square_matrix_multiplication", "N N; N N", lambda p, a, b: a @ b)
for _name in ("Standard_matrix_multiplication", "Matmul_with_large_K_dimension", "Matmul_with_small_K_dimension",
              "Matmul_with_irregular_shapes"):  # fmt: skip
    simple(_name, "M K; K N", lambda p, a, b: a @ b)
simple("Tall_skinny_matrix_multiplication", "M N; N M", lambda p, a, b: a @ b)
simple("Matrix_vector_multiplication", "M K; K 1", lambda p, a, b: a @ b)
simple("Batched_matrix_multiplication", "batch_size m k; batch_size k n", lambda p, a, b: torch.bmm(a, b))


@program("Matrix_scalar_multiplication")
def _(p):
    return Chain(lambda m, a, s: a * s), [([p.M, p.N], NORMAL), ([], float(p.s))]


# -- level 1: activations, norms, reductions, scans, losses -----------------------------------------------------------

for _name, _f in {
    "ReLU": lambda p, x: torch.relu(x),
    "LeakyReLU": lambda p, x: f.leaky_relu(x, getattr(p, "negative_slope", 0.01)),
    "Sigmoid": lambda p, x: torch.sigmoid(x),
    "Tanh": lambda p, x: torch.tanh(x),
    "softmax": lambda p, x: torch.softmax(x, dim=1),
    "LogSoftmax": lambda p, x: f.log_softmax(x, dim=1),
    "Swish": lambda p, x: x * torch.sigmoid(x),
    "GELU": lambda p, x: f.gelu(x),
    "SELU": lambda p, x: torch.selu(x),
    "HardSigmoid": lambda p, x: f.hardsigmoid(x),
    "Softplus": lambda p, x: f.softplus(x),
    "Softsign": lambda p, x: x / (1 + torch.abs(x)),
    "ELU": lambda p, x: f.elu(x, alpha=getattr(p, "alpha", 1.0)),
    "HardTanh": lambda p, x: f.hardtanh(x, -1.0, 1.0),
    "L1Norm": lambda p, x: x / torch.sum(torch.abs(x), dim=1, keepdim=True),
    "L2Norm": lambda p, x: x / torch.norm(x, p=2, dim=1, keepdim=True),
    "MinGPTNewGelu": lambda p, x: 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0)))),
}.items():
    simple(_name, "batch_size dim", _f)

IMAGE = "batch_size features dim1 dim2"


def norm_program(name, make, lawful=lambda p: True):
    @program(name, lawful)
    def _(p):
        shape = [p.batch_size, p.features, p.dim1, p.dim2]
        return Chain(lambda m, x: m.norm(x), norm=make(p)), [(shape, NORMAL)]


norm_program("BatchNorm", lambda p: nn.BatchNorm2d(p.features, track_running_stats=False))
norm_program("InstanceNorm", lambda p: nn.InstanceNorm2d(p.features, affine=True))
norm_program("GroupNorm", lambda p: nn.GroupNorm(p.num_groups, p.features), lambda p: p.features % p.num_groups == 0 and p.features > p.num_groups)
norm_program("LayerNorm", lambda p: nn.LayerNorm((p.features, p.dim1, p.dim2)))
simple("RMSNorm", IMAGE, lambda p, x: x / torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + p.eps))
simple("FrobeniusNorm", IMAGE, lambda p, x: x / torch.norm(x, p="fro"))

CUBE = "batch_size dim1 dim2"
simple("Sum_reduction_over_a_dimension", CUBE, lambda p, x: torch.sum(x, dim=p.reduce_dim, keepdim=True))
simple("Mean_reduction_over_a_dimension", CUBE, lambda p, x: torch.mean(x, dim=p.reduce_dim))
simple("Max_reduction_over_a_dimension", CUBE, lambda p, x: torch.max(x, dim=p.reduce_dim)[0])
simple("Min_reduction_over_a_dimension", CUBE, lambda p, x: torch.min(x, dim=p.reduce_dim)[0])
simple("Product_reduction_over_a_dimension", CUBE, lambda p, x: torch.prod(x, dim=p.reduction_dim))
simple("Argmax_over_a_dimension", CUBE, lambda p, x: torch.argmax(x, dim=p.reduce_dim))
simple("Argmin_over_a_dimension", CUBE, lambda p, x: torch.argmin(x, dim=p.reduce_dim))

ROWS = "batch_size input_shape"
simple("cumsum", ROWS, lambda p, x: torch.cumsum(x, dim=p.dim))
simple("cumprod", ROWS, lambda p, x: torch.cumprod(x, dim=p.dim))
simple("cumsum_reverse", ROWS, lambda p, x: torch.cumsum(x.flip(p.dim), dim=p.dim).flip(p.dim))
simple("masked_cumsum", f"{ROWS}; {ROWS}:bool", lambda p, x, m: torch.cumsum(x * m, dim=p.dim))


def _exclusive(p, x):
    first = torch.zeros_like(x.select(p.dim, 0).unsqueeze(p.dim))
    return torch.cumsum(torch.cat((first, x), dim=p.dim)[:-1] if p.dim == 0 else torch.cat((first, x), dim=p.dim)[:, :-1], dim=p.dim)


simple("cumsum_exclusive", ROWS, _exclusive)
simple("Hingeloss", f"{ROWS}; batch_size 1:sign", lambda p, x, y: torch.mean(torch.clamp(1 - x * y, min=0)))
simple("MSELoss", f"{ROWS}; {ROWS}", lambda p, x, y: torch.mean((x - y) ** 2))
simple("CrossEntropyLoss", f"{ROWS}; batch_size:class", lambda p, x, y: f.cross_entropy(x, y))
simple("NLLLoss", f"{ROWS}; batch_size:class", lambda p, x, y: f.nll_loss(x, y))
simple("HuberLoss", f"{ROWS}; {ROWS}", lambda p, x, y: f.smooth_l1_loss(x, y))
simple("CosineSimilarityLoss", f"{ROWS}; {ROWS}", lambda p, x, y: torch.mean(1 - f.cosine_similarity(x, y, dim=1)))
simple("KLDivLoss", f"{ROWS}:simplex; {ROWS}:simplex", lambda p, x, y: f.kl_div(torch.log(x), y, reduction="batchmean"))
simple("TripletMarginLoss", f"{ROWS}; {ROWS}; {ROWS}", lambda p, a, b, c: f.triplet_margin_loss(a, b, c, margin=p.margin))

# -- level 1: pools and convolutions ----------------------------------------------------------------------------------


def window(length, kernel, stride=1, padding=0, dilation=1):
    """The extent of a convolution or pool; below 1 when the window does not fit."""
    return (length + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


def pool_lawful(names):
    def lawful(p):
        stride, padding = getattr(p, "stride", p.kernel_size), getattr(p, "padding", 0)
        return padding <= p.kernel_size // 2 and all(
            window(getattr(p, n), p.kernel_size, stride, padding, getattr(p, "dilation", 1)) >= 1 for n in names
        )

    return lawful


def pool_program(name, names, function):
    names = names.split()
    simple(name, " ".join(names), function, pool_lawful(names[2:]))


def _max(n):
    pool = (f.max_pool1d, f.max_pool2d, f.max_pool3d)[n - 1]
    return lambda p, x: pool(x, p.kernel_size, stride=p.stride, padding=p.padding, dilation=p.dilation)


pool_program("Max_Pooling_1D", "batch_size features sequence_length", _max(1))
pool_program("Max_Pooling_2D", "batch_size channels height width", _max(2))
pool_program("Max_Pooling_3D", "batch_size channels dim1 dim2 dim3", _max(3))
pool_program("Average_Pooling_1D", "batch_size in_channels input_length",
             lambda p, x: f.avg_pool1d(x, p.kernel_size, stride=p.stride, padding=p.padding))  # fmt: skip
pool_program("Average_Pooling_2D", "batch_size channels height width", lambda p, x: f.avg_pool2d(x, p.kernel_size))
pool_program("Average_Pooling_3D", "batch_size channels depth height width",
             lambda p, x: f.avg_pool3d(x, p.kernel_size, stride=p.stride, padding=p.padding))  # fmt: skip

AXES = {"depth": "d", "height": "h", "width": "w", "height_in": "h", "width_in": "w", "length": "l"}


def each(p, word, axes):
    """A setting for each axis: one for all of them (`stride`), or one an axis (`stride_h`)."""
    default = {"stride": 1, "padding": 0, "dilation": 1}.get(word)
    return tuple(getattr(p, f"{word}_{AXES.get(a, a)}", getattr(p, word, default)) for a in axes)


def conv_lawful(axes, depthwise=False):
    def lawful(p):
        settings = zip(axes, each(p, "kernel_size", axes), *(each(p, w, axes) for w in ("stride", "padding", "dilation")))
        fits = all(window(getattr(p, a), k, s, b, d) >= 1 for a, k, s, b, d in settings)
        return fits and (not depthwise or not hasattr(p, "out_channels") or p.out_channels % p.in_channels == 0)

    return lawful


def conv_module(p, axes, groups=1, out=None):
    make = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[len(axes) - 1]
    out = out or getattr(p, "out_channels", p.in_channels)
    settings = {w: each(p, w, axes) for w in ("stride", "padding", "dilation")}
    return make(p.in_channels, out, each(p, "kernel_size", axes), groups=groups, bias=False, **settings)


def conv_program(name, axes, depthwise=False):
    axes = axes.split()

    @program(name, conv_lawful(axes, depthwise))
    def _(p):
        shape = [p.batch_size, p.in_channels] + [getattr(p, a) for a in axes]
        conv = conv_module(p, axes, p.in_channels if depthwise else 1)
        return Chain(lambda m, x: m.conv(x), conv=conv), [(shape, NORMAL)]


conv_program("conv_standard_1D", "length")
conv_program("conv_standard_1D_dilated_strided", "length")
for _name in ("asymmetric_input__square_kernel", "asymmetric_input__asymmetric_kernel", "square_input__asymmetric_kernel",
              "square_input__square_kernel"):  # fmt: skip
    conv_program("conv_standard_2D__" + _name, "height width")
conv_program("conv_standard_2D_square_input_asymmetric_kernel___dilated____padded", "height width")
conv_program("conv_standard_3D__square_input__square_kernel", "depth width height")
conv_program("conv_standard_3D__asymmetric_input__square_kernel", "height width depth")
conv_program("conv_standard_3D__square_input__asymmetric_kernel", "width height depth")
conv_program("conv_standard_3D__asymmetric_input__asymmetric_kernel", "depth height width")
conv_program("conv_depthwise_2D_square_input_square_kernel", "height width", True)
conv_program("conv_depthwise_2D_square_input_asymmetric_kernel", "height width", True)
conv_program("conv_depthwise_2D_asymmetric_input_square_kernel", "height_in width_in", True)
conv_program("conv_depthwise_2D_asymmetric_input_asymmetric_kernel", "height width", True)


@program("conv_pointwise_2D")
def _(p):
    conv = nn.Conv2d(p.in_channels, p.out_channels, 1, bias=False)
    return Chain(lambda m, x: m.conv(x), conv=conv), [([p.batch_size, p.in_channels, p.height, p.width], NORMAL)]


@program("conv_depthwise_separable_2D", conv_lawful(["height", "width"]))
def _(p):
    axes = ["height", "width"]
    parts = {
        "depth": conv_module(p, axes, p.in_channels, p.in_channels),
        "point": nn.Conv2d(p.in_channels, p.out_channels, 1, bias=False),
    }
    shape = [p.batch_size, p.in_channels, p.height, p.width]
    return Chain(lambda m, x: m.point(m.depth(x)), **parts), [(shape, NORMAL)]


# -- level 2: pairs ---------------------------------------------------------------------------------------------------

simple("MatMul_and_Softmax", "N K; K L", lambda p, a, b: torch.softmax(a @ b, dim=1))
simple("add_add", "batch_size m k; batch_size k n; k; n", lambda p, a, b, c, d: torch.bmm(a + c, b + d))
simple("MatMul3D_MatMul3D", "N M K; K L; N M K", lambda p, a, b, c: a @ b + c @ b)
simple("MatMul4D_MatMul4D", "b i j l; l k; b i j l",
       lambda p, a, w, c: torch.einsum("bijl,lk->bijk", a, w) + torch.einsum("bijm,mk->bijk", c, w))  # fmt: skip
simple("Bmm_Bmm", "batch_size m k; batch_size k n; batch_size m k", lambda p, a, b, c: torch.bmm(a, b) + torch.bmm(c, b))
BMM = "batch_size m k; batch_size k n"
simple("exp_exp", BMM, lambda p, a, b: torch.bmm(torch.exp(a), torch.exp(b)))
simple("abs_abs", BMM, lambda p, a, b: torch.bmm(torch.abs(a), torch.abs(b)))
BMM_POSITIVE = "batch_size m k:positive; batch_size k n:positive"
simple("log_log", BMM_POSITIVE, lambda p, a, b: torch.bmm(torch.log(a), torch.log(b)))
simple("sqrt_sqrt", BMM_POSITIVE, lambda p, a, b: torch.bmm(torch.sqrt(a), torch.sqrt(b)))
simple("log_log_add", "batch_size m k:positive; batch_size m k:positive", lambda p, a, b: torch.log(a) + torch.log(b))


@program("Gemm_Gemm")
def _(p):
    gemm = nn.Linear(p.in_features, p.out_features)
    shape = [p.batch_size, p.in_features]
    return Chain(lambda m, a, b: m.gemm(a) + m.gemm(b), gemm=gemm), [(shape, NORMAL), (shape, NORMAL)]


for _n, _axes in ((1, ["length"]), (2, ["height", "width"]), (3, ["depth", "height", "width"])):
    for _tail in ("", "_padding"):

        @program(f"conv{_n}d_conv{_n}d{_tail}", conv_lawful(_axes))
        def _(p, axes=_axes):
            shape = [p.batch_size, p.in_channels] + [getattr(p, a) for a in axes]
            return Chain(lambda m, a, b: m.conv(a) + m.conv(b), conv=conv_module(p, axes)), [(shape, NORMAL)] * 2


# -- level 2: a product and a chain -----------------------------------------------------------------------------------

STEPS = {
    "ReLU": torch.relu, "GELU": f.gelu, "Tanh": torch.tanh, "Sigmoid": torch.sigmoid, "Mish": f.mish,
    "HardSwish": f.hardswish, "Swish": lambda x: torch.sigmoid(x) * x,
}  # fmt: skip


def divides(a, b):
    """Groups divide channels, with two channels each at least: the variance of equal values says nothing."""
    return lambda p: getattr(p, b) % getattr(p, a) == 0 and getattr(p, b) >= 2 * getattr(p, a)


def enough(p):
    """Batch statistics over a handful of values at least."""
    return p.batch_size >= 4


def gemm(name, function, lawful=lambda p: True, parts=lambda p: {}, size=("in_features", "out_features"), bias=True,
         extra=()):  # fmt: skip
    """Linear, then function(m, y, p, x, *other inputs)."""

    @program(name, lawful)
    def _(p):
        i, o = getattr(p, size[0]), getattr(p, size[1])
        more = [([getattr(p, w) if isinstance(w, str) else w for w in shape], NORMAL) for shape in extra]
        module = Chain(lambda m, x, *rest: function(m, m.gemm(x), p, x, *rest), gemm=nn.Linear(i, o, bias=bias), **parts(p))
        return module, [([p.batch_size, i], NORMAL), *more]


HIDDEN = ("input_size", "hidden_size")
gemm("Gemm_Multiply_LeakyReLU", lambda m, y, p, x: f.leaky_relu(y * p.multiplier, p.negative_slope))


@program("Gemm_Divide_Sum_Scaling")
def _(p):
    function = lambda m, x: torch.sum((x @ m.weight.T) / 2, dim=1, keepdim=True) * p.scaling_factor  # noqa: E731
    return Chain(function, weight=parameter(p.hidden_size, p.input_size)), [([p.batch_size, p.input_size], NORMAL)]


def _sums(m, y, p, x):
    y = torch.sum(y, dim=1, keepdim=True)
    y = torch.max(y, dim=1, keepdim=True)[0]
    y = torch.mean(y, dim=1, keepdim=True)
    y = torch.logsumexp(y, dim=1, keepdim=True)
    return torch.logsumexp(y, dim=1, keepdim=True)


gemm("Matmul_Sum_Max_AvgPool_LogSumExp_LogSumExp", _sums)


def _residual_mish(m, y, p, x):
    y = y * p.scale_factor
    y = torch.clamp(y + y, p.clamp_min, p.clamp_max)
    y = torch.logsumexp(y, dim=1, keepdim=True)
    return y * f.mish(y)


gemm("Matmul_Scale_ResidualAdd_Clamp_LogSumExp_Mish", _residual_mish, size=HIDDEN)


def _pair(y):
    """Two equal columns behind each feature, so that a norm has more than one value an element."""
    y = y.unsqueeze(2).unsqueeze(3)
    return torch.cat((y, y), dim=-1)


def _bmm_instance(m, y, p, x, z):
    y = y.unsqueeze(2).unsqueeze(3)
    y = m.norm(torch.cat((y, y), dim=-1)).squeeze(2)
    return (y + z) * z


gemm("BMM_InstanceNorm_Sum_ResidualAdd_Multiply", _bmm_instance,
     parts=lambda p: {"norm": nn.InstanceNorm2d(p.out_features, eps=p.eps, affine=True)},
     extra=[("batch_size", "out_features", 2)])  # fmt: skip
gemm("Matmul_Mish_Mish", lambda m, y, p, x: f.mish(f.mish(y)))


def grouped(p, features="out_features"):
    return {"norm": nn.GroupNorm(p.num_groups, getattr(p, features))}


gemm("Gemm_GroupNorm_Hardtanh", lambda m, y, p, x: f.hardtanh(m.norm(_pair(y)), p.hardtanh_min, p.hardtanh_max),
     divides("num_groups", "out_features"), grouped)  # fmt: skip
gemm("Gemm_Scale_BatchNorm", lambda m, y, p, x: m.norm(y * m.scale), enough,
     parts=lambda p: {"scale": parameter(p.out_features),
                      "norm": nn.BatchNorm1d(p.out_features, eps=p.eps, track_running_stats=False)})  # fmt: skip
gemm("Matmul_Swish_Sum_GroupNorm", lambda m, y, p, x: m.norm(STEPS["Swish"](y) + m.bias),
     divides("num_groups", "out_features"), lambda p: {**grouped(p), "bias": parameter(p.out_features)})  # fmt: skip
gemm("Matmul_Scaling_ResidualAdd", lambda m, y, p, x, z: y * m.scale + z, parts=lambda p: {"scale": parameter(p.out_features)},
     extra=[("batch_size", "out_features")])  # fmt: skip
gemm("Gemm_BatchNorm_GELU_GroupNorm_Mean_ReLU",
     lambda m, y, p, x: torch.relu(torch.mean(m.norm(f.gelu(m.batch(y))), dim=1, keepdim=True)),
     lambda p: divides("num_groups", "out_features")(p) and enough(p),
     lambda p: {**grouped(p), "batch": nn.BatchNorm1d(p.out_features, track_running_stats=False)})  # fmt: skip


@program("Gemm_Sigmoid_Sum_LogSumExp")
def _(p):
    function = lambda m, x: torch.logsumexp(torch.sum(torch.sigmoid(m.gemm(x)), dim=1), dim=0)  # noqa: E731
    return Chain(function, gemm=nn.Linear(p.input_size, p.hidden_size)), [([p.batch_size, p.input_size], NORMAL)]


def _subtract_pool(m, y, p, x):
    y = torch.mean(y - m.subtract, dim=1, keepdim=True)
    return f.gelu(torch.logsumexp(y, dim=1, keepdim=True)) + x


gemm("Gemm_Subtract_GlobalAvgPool_LogSumExp_GELU_ResidualAdd", _subtract_pool,
     parts=lambda p: {"subtract": parameter(p.out_features)})  # fmt: skip
gemm("Gemm_Scaling_Hardtanh_GELU", lambda m, y, p, x: f.gelu(f.hardtanh(y * p.scaling_factor, p.hardtanh_min, p.hardtanh_max)))
gemm("Matmul_MaxPool_Sum_Scale",
     lambda m, y, p, x: torch.sum(f.max_pool1d(y.unsqueeze(1), p.kernel_size).squeeze(1), dim=1) * p.scale_factor,
     lambda p: p.out_features >= p.kernel_size)  # fmt: skip
gemm("Matmul_Sigmoid_Sum", lambda m, y, p, x: torch.sum(torch.sigmoid(y), dim=1, keepdim=True), size=HIDDEN)
gemm("Matmul_Swish_Scaling", lambda m, y, p, x: STEPS["Swish"](y) * p.scaling_factor)


def _twice_leaky(m, y, p, x):
    y = f.leaky_relu(m.norm(y))
    return y + y


gemm("Matmul_GroupNorm_LeakyReLU_Sum", _twice_leaky, divides("num_groups", "hidden_size"),
     lambda p: grouped(p, "hidden_size"), HIDDEN)  # fmt: skip
gemm("Gemm_ReLU_Divide", lambda m, y, p, x: torch.relu(y) / p.divisor)


def _logsumexp_chain(m, y, p, x):
    y = torch.logsumexp(y, dim=1, keepdim=True)
    y = f.leaky_relu(f.leaky_relu(y, 0.01), 0.01)
    return f.gelu(f.gelu(y))


gemm("Gemm_LogSumExp_LeakyReLU_LeakyReLU_GELU_GELU", _logsumexp_chain)
gemm("Matmul_Mean_Softmax", lambda m, y, p, x: torch.softmax(torch.mean(y, dim=1, keepdim=True), dim=1))
gemm("Matmul_Min_Subtract", lambda m, y, p, x: torch.min(y, m.constant) - m.constant,
     parts=lambda p: {"constant": nn.Parameter(torch.tensor(float(p.constant)))})  # fmt: skip
@program("Gemm_Sigmoid_Scaling_ResidualAdd")
def _(p):
    hidden = getattr(p, "hidden_size", p.input_size)

    def function(m, x):
        y = m.gemm(x)
        return torch.sigmoid(y) * p.scaling_factor + y

    return Chain(function, gemm=nn.Linear(p.input_size, hidden)), [([p.batch_size, p.input_size], NORMAL)]


gemm("Gemm_GroupNorm_Min_BiasAdd",
     lambda m, y, p, x: torch.min(m.norm(_pair(y)), dim=1, keepdim=True)[0] + m.bias,
     divides("num_groups", "out_features"), lambda p: {**grouped(p), "bias": parameter(1, p.out_features, 1, 1)})  # fmt: skip
gemm("Gemm_Add_ReLU", lambda m, y, p, x: torch.relu(y + m.bias), bias=False,
     parts=lambda p: {"bias": parameter(p.out_features)})  # fmt: skip


def _max_subtract(m, y, p, x):
    y = torch.max(y, dim=1, keepdim=True)[0]
    return f.gelu(y - y.mean(dim=1, keepdim=True))


gemm("Gemm_Max_Subtract_GELU", _max_subtract)
gemm("Gemm_Swish_Divide_Clamp_Tanh_Clamp",
     lambda m, y, p, x: torch.clamp(torch.tanh(torch.clamp(STEPS["Swish"](y) / 2.0, -1.0, 1.0)), -1.0, 1.0))  # fmt: skip
gemm("Gemm_BatchNorm_Scaling_Softmax", lambda m, y, p, x: torch.softmax(m.scale * m.norm(y), dim=1), enough,
     parts=lambda p: {"norm": nn.BatchNorm1d(p.out_features, eps=p.bn_eps, track_running_stats=False),
                      "scale": parameter(1)})  # fmt: skip
gemm("Matmul_Divide_GELU", lambda m, y, p, x: f.gelu(y / p.divisor), size=("input_size", "output_size"))


def _swish_multiply(m, y, p, x):
    y = STEPS["Swish"](m.norm(y))
    return STEPS["Swish"](y * m.weight)


gemm("Gemm_GroupNorm_Swish_Multiply_Swish", _swish_multiply, divides("num_groups", "out_features"),
     lambda p: {**grouped(p), "weight": parameter(p.out_features)})  # fmt: skip
gemm("Gemm_BiasAdd_Hardtanh_Mish_GroupNorm", lambda m, y, p, x: m.norm(f.mish(f.hardtanh(y + m.bias))),
     divides("num_groups", "out_features"), lambda p: {**grouped(p), "bias": parameter(p.out_features)})  # fmt: skip
gemm("Matmul_Add_Swish_Tanh_GELU_Hardtanh",
     lambda m, y, p, x: f.hardtanh(f.gelu(torch.tanh(STEPS["Swish"](y + m.add))), -1, 1),
     parts=lambda p: {"add": parameter(p.out_features)})  # fmt: skip
gemm("Matmul_BatchNorm_BiasAdd_Divide_Swish", lambda m, y, p, x: STEPS["Swish"]((m.norm(y) + m.bias) / p.divide_value), enough,
     parts=lambda p: {"norm": nn.BatchNorm1d(p.out_features, eps=p.bn_eps, track_running_stats=False),
                      "bias": parameter(1)})  # fmt: skip
gemm("Matmul_AvgPool_GELU_Scale_Max",
     lambda m, y, p, x: torch.max(f.gelu(f.avg_pool1d(y.unsqueeze(1), p.pool_kernel_size).squeeze(1)) * p.scale_factor, dim=1)[0],
     lambda p: p.out_features >= p.pool_kernel_size)  # fmt: skip
gemm("Matmul_GELU_Softmax", lambda m, y, p, x: torch.softmax(f.gelu(y), dim=1))
gemm("Matmul_Subtract_Multiply_ReLU", lambda m, y, p, x: torch.relu((y - p.subtract_value) * p.multiply_value))

# -- level 2: a convolution and a chain -------------------------------------------------------------------------------


def conv_chain(name, function, parts=lambda p, c: {}, lawful=lambda p: True, axes="height width", extra=()):
    """A convolution without bias, then function(m, y, p, *other inputs); parts(p, c) are its parts, c the channels."""
    axes = axes.split()
    fits = conv_lawful(axes)

    @program(name, lambda p: fits(p) and lawful(p))
    def _(p):
        shape = [p.batch_size, p.in_channels] + [getattr(p, a) for a in axes]
        more = [([], float(getattr(p, w))) for w in extra]
        module = Chain(lambda m, x, *rest: function(m, m.conv(x), p, *rest), conv=conv_module(p, axes), **parts(p, p.out_channels))
        return module, [(shape, NORMAL), *more]


def fits_pool(kernel, axes="height width"):
    def lawful(p):
        settings = zip(*(each(p, w, axes.split()) for w in ("kernel_size", "stride", "padding")))
        outs = [window(getattr(p, a), k, s, b) for a, (k, s, b) in zip(axes.split(), settings)]
        return all(o >= getattr(p, kernel) for o in outs) if isinstance(kernel, str) else all(o >= kernel for o in outs)

    return lawful


def both(*laws):
    return lambda p: all(law(p) for law in laws)


VOLUME = "D H W"
SPACE = "depth height width"
conv_chain("Conv2d_InstanceNorm_Divide", lambda m, y, p: m.norm(y) / p.divide_by,
           lambda p, c: {"norm": nn.InstanceNorm2d(c, affine=True)},
           lambda p: (p.height - p.kernel_size + 1) * (p.width - p.kernel_size + 1) > 1)  # fmt: skip
conv_chain("Conv2D_ReLU_BiasAdd", lambda m, y, p: torch.relu(y) + m.bias, lambda p, c: {"bias": parameter(c, 1, 1)})
conv_chain("Conv2d_Add_Scale_Sigmoid_GroupNorm", lambda m, y, p: m.norm(torch.sigmoid((y + m.bias) * m.scale)),
           lambda p, c: {"bias": parameter(c, 1, 1), "scale": parameter(c, 1, 1), "norm": nn.GroupNorm(p.num_groups, c)},
           divides("num_groups", "out_channels"))  # fmt: skip
conv_chain("Conv3d_GroupNorm_Mean", lambda m, y, p: m.norm(y).mean(dim=[1, 2, 3, 4]),
           lambda p, c: {"norm": nn.GroupNorm(p.num_groups, c)}, divides("num_groups", "out_channels"), VOLUME)  # fmt: skip
conv_chain("Conv3d_Min_Softmax", lambda m, y, p: torch.softmax(torch.min(y, dim=p.dim)[0], dim=1), axes=VOLUME)
conv_chain("Conv2d_Min_Tanh_Tanh", lambda m, y, p: torch.tanh(torch.tanh(torch.min(y, dim=1, keepdim=True)[0])))
conv_chain("Conv3d_HardSwish_ReLU_Softmax_Mean",
           lambda m, y, p: torch.mean(torch.softmax(torch.relu(f.hardswish(y)), dim=1), dim=[2, 3, 4]), axes=SPACE)  # fmt: skip
conv_chain("Conv2d_Min_Add_Multiply", lambda m, y, p: (torch.min(y, m.constant) + m.bias) * p.scaling_factor,
           lambda p, c: {"constant": torch.tensor(float(p.constant_value)), "bias": parameter(c, 1, 1)})  # fmt: skip
conv_chain("Conv2d_Scaling_Min", lambda m, y, p: torch.min(y * p.scale_factor, dim=1, keepdim=True)[0])
conv_chain("Conv2d_Subtract_HardSwish_MaxPool_Mish",
           lambda m, y, p: f.mish(f.max_pool2d(f.hardswish(y - p.subtract_value), p.pool_kernel_size)),
           lawful=fits_pool("pool_kernel_size"))  # fmt: skip
conv_chain("Conv3d_Max_LogSumExp_ReLU",
           lambda m, y, p: torch.relu(torch.logsumexp(f.max_pool3d(y, 2, stride=2), dim=1, keepdim=True)),
           lawful=fits_pool(2, SPACE), axes=SPACE)  # fmt: skip
conv_chain("Conv2d_Subtract_Tanh_Subtract_AvgPool",
           lambda m, y, p: f.avg_pool2d(torch.tanh(y - p.subtract1_value) - p.subtract2_value, p.kernel_size_pool),
           lawful=fits_pool("kernel_size_pool"))  # fmt: skip
conv_chain("Conv3d_Mish_Tanh", lambda m, y, p: torch.tanh(f.mish(y)), axes=VOLUME)
conv_chain("Conv3d_Scaling_Tanh_Multiply_Sigmoid", lambda m, y, p: torch.sigmoid(torch.tanh(y * m.scale) * m.bias),
           lambda p, c: {"scale": parameter(c, 1, 1, 1), "bias": parameter(c, 1, 1, 1)}, axes=SPACE)  # fmt: skip
conv_chain("Conv2d_Mish_Mish", lambda m, y, p: f.mish(f.mish(y)))
conv_chain("Conv2d_Activation_BatchNorm", lambda m, y, p: m.norm(torch.multiply(torch.tanh(f.softplus(y)), y)),
           lambda p, c: {"norm": nn.BatchNorm2d(c, track_running_stats=False)})  # fmt: skip
conv_chain("Conv2d_Multiply_LeakyReLU_GELU", lambda m, y, p: f.gelu(f.leaky_relu(y * m.multiplier)),
           lambda p, c: {"multiplier": parameter(c, 1, 1)})  # fmt: skip


def _six(y):
    return y * torch.clamp((y + 3) / 6, 0, 1)


conv_chain("Conv2d_ReLU_HardSwish", lambda m, y, p: _six(torch.relu(y)))
conv_chain("Conv2d_AvgPool_Sigmoid_Sum",
           lambda m, y, p: torch.sum(torch.sigmoid(f.avg_pool2d(y, p.pool_kernel_size)), dim=[1, 2, 3]),
           lawful=fits_pool("pool_kernel_size"))  # fmt: skip
conv_chain("Conv2d_GELU_GlobalAvgPool", lambda m, y, p: f.gelu(y).mean(dim=(-1, -2), keepdim=True).squeeze(-1).squeeze(-1))
conv_chain("Conv2d_HardSwish_ReLU", lambda m, y, p: torch.relu(f.hardswish(y)))


def _two_pools(p):
    outs = [window(getattr(p, a), p.kernel_size) for a in SPACE.split()]
    return all(o >= 1 and o // p.pool_kernel_size // p.pool_kernel_size >= 1 for o in outs)


conv_chain("Conv3d_Softmax_MaxPool_MaxPool",
           lambda m, y, p: f.max_pool3d(f.max_pool3d(torch.softmax(y, dim=1), p.pool_kernel_size), p.pool_kernel_size),
           lawful=_two_pools, axes=SPACE)  # fmt: skip
conv_chain("Conv2d_Divide_LeakyReLU", lambda m, y, p: f.leaky_relu(y / p.divisor, 0.01))
conv_chain("Conv2d_BatchNorm_Scaling", lambda m, y, p: m.norm(y) * p.scaling_factor,
           lambda p, c: {"norm": nn.BatchNorm2d(c, track_running_stats=False)})  # fmt: skip


def _clamped(m, y, p, low, high):
    y = torch.clamp(m.norm(y * m.multiplier), low, high)
    return torch.max(y * m.multiplier, dim=1)[0]


conv_chain("Conv3d_Multiply_InstanceNorm_Clamp_Multiply_Max", _clamped,
           lambda p, c: {"multiplier": parameter(c, 1, 1, 1), "norm": nn.InstanceNorm3d(c, affine=True)},
           lambda p: math.prod(getattr(p, a) - p.kernel_size + 1 for a in SPACE.split()) > 1,
           SPACE, ("clamp_min", "clamp_max"))  # fmt: skip
conv_chain("Conv3d_ReLU_LeakyReLU_GELU_Sigmoid_BiasAdd",
           lambda m, y, p: torch.sigmoid(f.gelu(f.leaky_relu(torch.relu(y), 0.01))) + m.bias,
           lambda p, c: {"bias": parameter(c, 1, 1, 1)}, axes=SPACE)  # fmt: skip
conv_chain("Conv2d_Tanh_Scaling_BiasAdd_Max",
           lambda m, y, p: f.max_pool2d(torch.tanh(y) * p.scaling_factor + m.bias, p.pool_kernel_size),
           lambda p, c: {"bias": parameter(c, 1, 1)}, fits_pool("pool_kernel_size"))  # fmt: skip
conv_chain("Conv3d_GroupNorm_Min_Clamp",
           lambda m, y, p: torch.clamp(torch.min(m.norm(y), m.least), p.min_value, p.max_value),
           lambda p, c: {"norm": nn.GroupNorm(p.groups, c), "least": torch.tensor(float(p.min_value))},
           divides("groups", "out_channels"), SPACE)  # fmt: skip
conv_chain("Conv2d_GroupNorm_Scale_MaxPool_Clamp",
           lambda m, y, p: torch.clamp(f.max_pool2d(m.norm(y) * m.scale, p.maxpool_kernel_size), p.clamp_min, p.clamp_max),
           lambda p, c: {"norm": nn.GroupNorm(p.num_groups, c), "scale": parameter(c, 1, 1)},
           both(divides("num_groups", "out_channels"), fits_pool("maxpool_kernel_size"), lambda p: p.clamp_min < p.clamp_max))  # fmt: skip
conv_chain("Conv2d_Subtract_Subtract_Mish", lambda m, y, p: f.mish(y - p.subtract_value_1 - p.subtract_value_2))
conv_chain("Conv3d_Divide_Max_GlobalAvgPool_BiasAdd_Sum",
           lambda m, y, p: torch.sum(f.max_pool3d(y / p.divisor, p.pool_size).mean(dim=(-1, -2, -3), keepdim=True) + m.bias, dim=1),
           lambda p, c: {"bias": parameter(c, 1, 1, 1)}, fits_pool("pool_size", SPACE), SPACE)  # fmt: skip
conv_chain("Conv3d_LeakyReLU_Sum_Clamp_GELU",
           lambda m, y, p: f.gelu(torch.clamp(f.leaky_relu(y, 0.2) + m.sum, -1.0, 1.0)),
           lambda p, c: {"sum": parameter(c, 1, 1, 1)}, axes=SPACE)  # fmt: skip


def _residual(m, y, p):
    z = f.hardswish(torch.tanh(m.norm(y)))
    return torch.logsumexp(y + z, dim=1, keepdim=True)


conv_chain("Conv2d_GroupNorm_Tanh_HardSwish_ResidualAdd_LogSumExp", _residual,
           lambda p, c: {"norm": nn.GroupNorm(p.groups, c, eps=p.eps)}, divides("groups", "out_channels"))  # fmt: skip

# -- level 2: attention -----------------------------------------------------------------------------------------------


class Attention(nn.Module):
    """Causal self-attention with n_head query heads and n_group key and value heads."""

    def __init__(self, p, kind):
        super().__init__()
        self.heads, self.width, self.kind = p.n_head, p.n_embd // p.n_head, kind
        self.groups = {"MHA": p.n_head, "MQA": 1}.get(kind) or p.n_group
        if kind == "MHA":
            self.qkv = nn.Linear(p.n_embd, 3 * p.n_embd)
        else:
            self.q = nn.Linear(p.n_embd, p.n_embd)
            self.k = nn.Linear(p.n_embd, self.groups * self.width)
            self.v = nn.Linear(p.n_embd, self.groups * self.width)
        self.project = nn.Linear(p.n_embd, p.n_embd)
        # The mask of the longest sequence, cut to this one.
        self.register_buffer("mask", torch.tril(torch.ones(p.seq_len, p.seq_len)).view(1, 1, p.seq_len, p.seq_len) == 0)

    def spread(self, x):
        """Keys or values of the groups, for all query heads: (batch, heads, length, width)."""
        b, s = x.shape[:2]
        if self.kind == "MQA":
            return x.unsqueeze(1).expand(b, self.heads, s, self.width)
        each = self.heads // self.groups
        x = x.view(b, s, self.groups, self.width).unsqueeze(3).expand(b, s, self.groups, each, self.width)
        return x.contiguous().view(b, s, self.heads, self.width).transpose(1, 2)

    def forward(self, x):
        b, s, e = x.shape
        if self.kind == "MHA":
            q, k, v = (y.view(b, s, self.heads, self.width).transpose(1, 2) for y in self.qkv(x).split(e, dim=2))
        else:
            q = self.q(x).view(b, s, self.heads, self.width).transpose(1, 2)
            k, v = self.spread(self.k(x)), self.spread(self.v(x))
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(self.width))
        weights = torch.softmax(scores.masked_fill(self.mask, float("-inf")), dim=-1)
        return self.project((weights @ v).transpose(1, 2).contiguous().view(b, s, e))


REDUCTIONS = {
    "sum": lambda y: torch.sum(y, dim=1, keepdim=True),
    "max": lambda y: torch.max(y, dim=1, keepdim=True)[0],
    "mean": lambda y: torch.mean(y, dim=1, keepdim=True),
}
AFTER = {"ReLU": torch.relu, "GeLU": f.gelu, "Tanh": torch.tanh, **REDUCTIONS}


def attention_program(name):
    kind = "MHA" if name.startswith(("MHA", "MinGPT")) else name[:3]
    steps = [] if name.startswith("MinGPT") else name.split("_")[1:]

    def lawful(p):
        divisor = getattr(p, "n_group", 1) if kind == "GQA" else 1
        return p.n_embd % p.n_head == 0 and p.n_head % divisor == 0

    @program(name, lawful)
    def _(p):
        def function(m, x):
            y = m.attention(x)
            for s in steps:
                y = m.gemm(y) if s == "Gemm" else AFTER[s](y)
            return y

        parts = {"attention": Attention(p, kind)}
        if "Gemm" in steps:
            parts["gemm"] = nn.Linear(p.n_embd, p.out_features, bias=False)
        return Chain(function, **parts), [([p.batch_size, p.seq_len, p.n_embd], NORMAL)]


ATTENTION = """MinGPTCausalAttention MQA GQA MHA_sum MHA_max MHA_mean MQA_sum MQA_max MQA_mean GQA_sum GQA_max GQA_mean
    MHA_Gemm MQA_Gemm GQA_Gemm MHA_Gemm_ReLU MQA_Gemm_ReLU GQA_Gemm_ReLU MHA_Gemm_GeLU MQA_Gemm_GeLU GQA_Gemm_GeLU
    MHA_Gemm_Tanh MQA_Gemm_Tanh GQA_Gemm_Tanh MHA_Gemm_ReLU_sum MQA_Gemm_ReLU_max GQA_Gemm_ReLU_mean MHA_Gemm_Tanh_max
    MQA_Gemm_Tanh_mean GQA_Gemm_Tanh_sum MHA_Gemm_GeLU_mean MQA_Gemm_GeLU_sum GQA_Gemm_GeLU_max"""
for _name in re.findall(r"\S+", ATTENTION):
    attention_program(_name)


@program("Mamba2ReturnY", lambda p: p.seq_length % p.block_len == 0)
def _(p):
    """The part of a Mamba-2 block inside its chunks: Y = (C B^T * L) X with the decays L."""
    b, c, length, h = p.batch_size, p.seq_length // p.block_len, p.block_len, p.n_heads

    def function(m, x):
        x = x.view(b, c, length, h, p.d_head)
        decay = m.A.view(b, c, length, h).permute(0, 3, 1, 2)
        bs, cs = m.B.view(b, c, length, h, p.d_state), m.C.view(b, c, length, h, p.d_state)
        total = torch.cumsum(decay, dim=-1)
        segment = total.unsqueeze(-1) - total.unsqueeze(-2)
        weights = torch.exp(segment.masked_fill(~m.mask, float("-inf")))  # b h c l s
        state = torch.einsum("bclhn,bcshn->bhcls", cs, bs) * weights
        return torch.einsum("bhcls,bcshp->bclhp", state, x)

    parts = {
        "A": parameter(b, p.seq_length, h),
        "B": parameter(b, p.seq_length, h, p.d_state),
        "C": parameter(b, p.seq_length, h, p.d_state),
        "mask": torch.tril(torch.ones(length, length)) == 1,
    }
    return Chain(function, **parts), [([b, p.seq_length, h, p.d_head], NORMAL)]


def reinitialise(module, seed):
    """Seeded weights small enough that rounding to f16 stays far below the results; norms scale by about 1, all else adds
    or multiplies by numbers that differ from element to element."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in module.named_parameters():
            if value.dim() == 0:
                continue
            noise = torch.randn(value.shape, generator=generator, dtype=torch.float64)
            if value.dim() == 1:
                value.copy_(noise * 0.1 + 1)
            else:
                # A positive mean: sums do not cancel, so results stay large beside what rounding does to them.
                fan = math.prod(value.shape[1:])
                value.copy_(0.5 / fan + noise * (0.5 / math.sqrt(fan)) if fan > 1 else 1 + 0.1 * noise)
    return module
