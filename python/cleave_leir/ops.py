"""Values and the handlers of tensor operators: arithmetic, views, reductions, products."""

import math

from .text import Ix, Writer, literal

HANDLERS = {}


def handles(*targets):
    def register(f):
        for target in targets:
            HANDLERS["aten." + target] = f
        return f

    return register


class Value:
    """A tensor: how its element at given indices is read. `name` is set when it is a variable as it stands."""

    def __init__(self, dtype, shape, at, name=None):
        self.dtype, self.shape, self.at, self.name = dtype, [int(n) for n in shape], at, name

    @staticmethod
    def variable(name, dtype, shape):
        return Value(dtype, shape, lambda ix: Writer.tensor(name, dtype, ix), name)

    def view(self, shape, to):
        """The view whose element ix is the element to(ix) of this."""
        return Value(self.dtype, shape, lambda ix: self.at(to(ix)))


def is_value(x):
    return isinstance(x, Value)


def rank_axis(axis, rank):
    return axis + rank if axis < 0 else axis


def axes_of(dims, rank):
    if dims is None or dims == []:
        return list(range(rank))
    if isinstance(dims, int):
        dims = [dims]
    return sorted({rank_axis(d, rank) for d in dims})


def broadcast(values):
    rank = max((len(v.shape) for v in values if is_value(v)), default=0)
    shape = [1] * rank
    for v in values:
        if is_value(v):
            for i, n in enumerate(v.shape):
                k = rank - len(v.shape) + i
                if n != 1:
                    shape[k] = n
    return shape


def element(v, ix):
    """The element of an operand that is broadcast to indices ix: right-aligned, axis by axis."""
    if not is_value(v):
        return literal(v)
    own = ix[len(ix) - len(v.shape) :]
    return v.at([Ix.number(0) if n == 1 else i for n, i in zip(v.shape, own)])


# Values of these dtypes are kept in wider variables while a program is translated (translate.py sets it).
KEPT = {}


def stored_dtype(meta):
    from .translate import DTYPES

    return DTYPES[meta.dtype]


def result(meta):
    """The dtype in which an operator's result is kept, and its shape."""
    dtype = stored_dtype(meta)
    return KEPT.get(dtype, dtype), list(meta.shape)


# -- elementwise ----------------------------------------------------------------------------------------------------


def elementwise(t, meta, operands, form):
    dtype, shape = result(meta)
    return t.map(dtype, shape, lambda ix: form(*[element(v, ix) for v in operands]))


def unary(target, form):
    @handles(target + ".default", target + "_.default")
    def run(t, meta, x, *rest, **named):
        return elementwise(t, meta, [x], lambda a: form(a, *rest, **named))


for _name, _form in {
    "relu": lambda a: f"max({a},0)",
    "sigmoid": lambda a: f"1/(1+exp(-{a}))",
    "tanh": lambda a: f"tanh({a})",
    "exp": lambda a: f"exp({a})",
    "log": lambda a: f"log({a})",
    "log1p": lambda a: f"log1p({a})",
    "expm1": lambda a: f"expm1({a})",
    "sqrt": lambda a: f"sqrt({a})",
    "rsqrt": lambda a: f"rsqrt({a})",
    "abs": lambda a: f"abs({a})",
    "neg": lambda a: f"-{a}",
    "erf": lambda a: f"erf({a})",
    "sin": lambda a: f"sin({a})",
    "cos": lambda a: f"cos({a})",
    "tan": lambda a: f"tan({a})",
    "floor": lambda a: f"floor({a})",
    "ceil": lambda a: f"ceil({a})",
    "round": lambda a: f"round({a})",
    "sign": lambda a: f"sign({a})",
    "reciprocal": lambda a: f"1/{a}",
    "silu": lambda a: f"silu({a})",
    "mish": lambda a: f"mish({a})",
    "selu": lambda a: f"selu({a})",
    "hardsigmoid": lambda a: f"min(max({a}/6+0.5,0),1)",
    "hardswish": lambda a: f"{a}*min(max({a}+3,0),6)/6",
    "isnan": lambda a: f"{a}!={a}",
    "isinf": lambda a: f"abs({a})==inf",
    "bitwise_not": lambda a: f"{a}==0",
    "logical_not": lambda a: f"{a}==0",
    "elu": lambda a, alpha=1, scale=1, input_scale=1: _elu(a, alpha, scale, input_scale),
    "leaky_relu": lambda a, slope=0.01: f"if_then_else({a}<0,{a}*{literal(slope)},{a})",
    "hardtanh": lambda a, low=-1.0, high=1.0: f"min(max({a},{literal(low)}),{literal(high)})",
    "relu6": lambda a: f"min(max({a},0),6)",
    "softplus": lambda a, beta=1, threshold=20: _softplus(a, beta, threshold),
    "gelu": lambda a, approximate="none": f"gelu_erf({a})" if approximate == "none" else f"gelu_tanh({a})",
}.items():
    unary(_name, _form)


def _elu(a, alpha, scale, input_scale):
    inside = a if input_scale == 1 else f"({a}*{literal(input_scale)})"
    text = f"elu({inside},{literal(alpha)})" if input_scale == 1 else None
    text = text or f"if_then_else({a}>0,{a},{literal(alpha)}*expm1({inside}))"
    return text if scale == 1 else f"{literal(scale)}*{text}"


def _softplus(a, beta, threshold):
    scaled = a if beta == 1 else f"({a}*{literal(beta)})"
    soft = f"softplus({scaled})" if beta == 1 else f"softplus({scaled})/{literal(beta)}"
    return f"if_then_else({scaled}>{literal(threshold)},{a},{soft})"


def clamped(a, low, high):
    if low is not None:
        a = f"max({a},{low})"
    return a if high is None else f"min({a},{high})"


@handles("clamp.default", "clamp.Tensor", "clamp_.default")
def clamp(t, meta, x, low=None, high=None, **named):
    low, high = named.get("min", low), named.get("max", high)
    dtype, shape = result(meta)
    text = lambda v, ix: None if v is None else element(v, ix)  # noqa: E731
    return t.map(dtype, shape, lambda ix: clamped(element(x, ix), text(low, ix), text(high, ix)))


@handles("clamp_min.default", "clamp_min.Tensor")
def clamp_min(t, meta, x, low):
    return elementwise(t, meta, [x, low], lambda a, b: f"max({a},{b})")


@handles("clamp_max.default", "clamp_max.Tensor")
def clamp_max(t, meta, x, high):
    return elementwise(t, meta, [x, high], lambda a, b: f"min({a},{b})")


def scaled(alpha, b):
    return b if alpha == 1 else f"{literal(alpha)}*{b}"


@handles("add.Tensor", "add.Scalar", "add_.Tensor")
def add(t, meta, a, b, alpha=1):
    return elementwise(t, meta, [a, b], lambda x, y: f"{x}+{scaled(alpha, y)}")


@handles("sub.Tensor", "sub.Scalar", "sub_.Tensor")
def sub(t, meta, a, b, alpha=1):
    return elementwise(t, meta, [a, b], lambda x, y: f"{x}-{scaled(alpha, y)}")


@handles("rsub.Scalar", "rsub.Tensor")
def rsub(t, meta, a, b, alpha=1):
    return elementwise(t, meta, [a, b], lambda x, y: f"{y}-{scaled(alpha, x)}")


def binary(targets, form):
    @handles(*targets)
    def run(t, meta, a, b, **named):
        return elementwise(t, meta, [a, b], lambda x, y: form(x, y, **named))


def _divide(x, y, rounding_mode=None):
    if rounding_mode is None:
        return f"{x}/{y}"
    if rounding_mode == "floor":
        return f"floor({x}/{y})"
    return f"if_then_else({x}/{y}<0,ceil({x}/{y}),floor({x}/{y}))"


binary(["mul.Tensor", "mul.Scalar", "mul_.Tensor", "multiply.Tensor", "multiply.Scalar"], lambda x, y: f"{x}*{y}")
binary(["div.Tensor", "div.Scalar", "div_.Tensor", "div.Tensor_mode", "div.Scalar_mode", "true_divide.Tensor", "divide.Tensor", "divide.Scalar"], _divide)
binary(["maximum.default", "max.other"], lambda x, y: f"max({x},{y})")
binary(["minimum.default", "min.other"], lambda x, y: f"min({x},{y})")
binary(["logical_and.default", "bitwise_and.Tensor"], lambda x, y: f"{x}&{y}")
binary(["logical_or.default", "bitwise_or.Tensor"], lambda x, y: f"{x}|{y}")
for _name, _sign in {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}.items():
    binary([f"{_name}.Tensor", f"{_name}.Scalar"], lambda x, y, _sign=_sign: f"{x}{_sign}{y}")


@handles("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "pow_.Scalar")
def power(t, meta, a, b):
    if not is_value(b) and b == 1:
        return elementwise(t, meta, [a], lambda x: x)
    return elementwise(t, meta, [a, b], lambda x, y: f"{x}**{y}")


@handles("where.self", "where.ScalarSelf", "where.ScalarOther", "where.Scalar")
def where(t, meta, c, a, b):
    return elementwise(t, meta, [c, a, b], lambda m, x, y: f"if_then_else({m},{x},{y})")


@handles("masked_fill.Scalar", "masked_fill.Tensor", "masked_fill_.Scalar")
def masked_fill(t, meta, x, mask, value):
    return elementwise(t, meta, [mask, value, x], lambda m, v, a: f"if_then_else({m},{v},{a})")


@handles("addcmul.default")
def addcmul(t, meta, x, a, b, value=1):
    return elementwise(t, meta, [x, a, b], lambda x, a, b: f"{x}+{scaled(value, a)}*{b}")


# -- copies and dtypes ------------------------------------------------------------------------------------------------


@handles("clone.default", "contiguous.default", "detach.default", "detach_.default", "alias.default", "lift_fresh_copy.default",
         "dropout.default", "feature_dropout.default", "positive.default")  # fmt: skip
def same(t, meta, x, *rest, **named):
    return x


@handles("to.dtype", "_to_copy.default", "to.dtype_layout", "to.device", "to.other", "type_as.default", "float.default")
def convert(t, meta, x, *rest, **named):
    dtype, shape = stored_dtype(meta), list(meta.shape)  # a cast that is written rounds
    if dtype == x.dtype:
        return x
    return t.map(dtype, shape, lambda ix: f"{x.at(ix)}!=0" if dtype == "bool" else x.at(ix))


@handles("_assert_tensor_metadata.default")
def asserted(t, meta, *rest, **named):
    return None  # what an export knows of its own shapes and dtypes


def filled(meta, value):
    dtype, shape = result(meta)
    return Value(dtype, shape, lambda ix: literal(value))


@handles("zeros.default", "zeros_like.default", "new_zeros.default")
def zeros(t, meta, *rest, **named):
    return filled(meta, 0)


@handles("ones.default", "ones_like.default", "new_ones.default")
def ones(t, meta, *rest, **named):
    return filled(meta, 1)


@handles("full.default", "full_like.default", "new_full.default", "scalar_tensor.default")
def full(t, meta, *rest, **named):
    numbers = [r for r in rest if isinstance(r, (int, float, bool))]
    return filled(meta, numbers[-1] if numbers else named["fill_value"])


@handles("arange.default", "arange.start", "arange.start_step")
def arange(t, meta, *rest, **named):
    start, step = (0, 1) if len(rest) == 1 else (rest[0], rest[2] if len(rest) > 2 else 1)
    dtype, shape = result(meta)
    if isinstance(start, float) or isinstance(step, float):
        return Value(dtype, shape, lambda ix: f"({literal(start)}+{ix[0]}*{literal(step)})")
    return Value(dtype, shape, lambda ix: f"({ix[0] * step + start})")


# -- views ----------------------------------------------------------------------------------------------------------


@handles("transpose.int", "swapaxes.default")
def transpose(t, meta, x, a, b):
    order = list(range(len(x.shape)))
    a, b = rank_axis(a, len(order)), rank_axis(b, len(order))
    order[a], order[b] = order[b], order[a]
    return permute(t, meta, x, order)


@handles("permute.default")
def permute(t, meta, x, order):
    order = [rank_axis(o, len(x.shape)) for o in order]
    inverse = [order.index(i) for i in range(len(order))]
    return x.view([x.shape[o] for o in order], lambda ix: [ix[i] for i in inverse])


@handles("t.default", "numpy_T.default", "mT.default", "adjoint.default", "matrix_H.default")
def t_(t, meta, x):
    if len(x.shape) < 2:
        return x
    return transpose(t, meta, x, -1, -2)


@handles("unsqueeze.default")
def unsqueeze(t, meta, x, axis):
    axis = rank_axis(axis, len(x.shape) + 1)
    return x.view(x.shape[:axis] + [1] + x.shape[axis:], lambda ix: ix[:axis] + ix[axis + 1 :])


@handles("squeeze.dim", "squeeze.default", "squeeze.dims")
def squeeze(t, meta, x, dims=None):
    axes = [a for a in axes_of(dims, len(x.shape)) if x.shape[a] == 1]
    kept = [a for a in range(len(x.shape)) if a not in axes]

    def to(ix):
        full = [Ix.number(0)] * len(x.shape)
        for i, a in enumerate(kept):
            full[a] = ix[i]
        return full

    return x.view([x.shape[a] for a in kept], to)


@handles("expand.default", "broadcast_to.default", "expand_as.default")
def expand(t, meta, x, *rest, **named):
    shape = list(meta.shape)
    lead = len(shape) - len(x.shape)
    return x.view(
        shape, lambda ix: [Ix.number(0) if n == 1 and shape[lead + i] != 1 else ix[lead + i] for i, n in enumerate(x.shape)]
    )


@handles("broadcast_tensors.default")
def broadcast_tensors(t, meta, tensors):
    return [expand(t, meta[i], x) for i, x in enumerate(tensors)]


@handles("select.int")
def select(t, meta, x, axis, index):
    axis = rank_axis(axis, len(x.shape))
    index = index + x.shape[axis] if index < 0 else index
    return x.view(x.shape[:axis] + x.shape[axis + 1 :], lambda ix: ix[:axis] + [Ix.number(index)] + ix[axis:])


@handles("slice.Tensor")
def slice_(t, meta, x, axis=0, start=None, end=None, step=1):
    axis = rank_axis(axis, len(x.shape))
    n = x.shape[axis]
    start, end, step = slice(start, end, step).indices(n)
    count = len(range(start, end, step))
    shape = x.shape[:axis] + [count] + x.shape[axis + 1 :]
    return x.view(shape, lambda ix: ix[:axis] + [ix[axis] * step + start] + ix[axis + 1 :])


@handles("narrow.default")
def narrow(t, meta, x, axis, start, length):
    return slice_(t, meta, x, axis, start, start + length)


def parts(t, meta, x, sizes, axis):
    out, start = [], 0
    for n in sizes:
        out.append(slice_(t, meta, x, axis, start, start + n))
        start += n
    return out


@handles("split.Tensor", "split_with_sizes.default", "split.sizes")
def split(t, meta, x, size, axis=0):
    n = x.shape[rank_axis(axis, len(x.shape))]
    sizes = [min(size, n - i) for i in range(0, n, size)] if isinstance(size, int) else size
    return parts(t, meta, x, sizes, axis)


@handles("chunk.default")
def chunk(t, meta, x, count, axis=0):
    n = x.shape[rank_axis(axis, len(x.shape))]
    return split(t, meta, x, -(-n // count), axis)


@handles("unbind.int")
def unbind(t, meta, x, axis=0):
    return [select(t, meta, x, axis, i) for i in range(x.shape[rank_axis(axis, len(x.shape))])]


@handles("flip.default")
def flip(t, meta, x, dims):
    axes = axes_of(dims, len(x.shape))
    return x.view(x.shape, lambda ix: [i * -1 + (x.shape[a] - 1) if a in axes else i for a, i in enumerate(ix)])


def linear_index(ix, shape):
    out = Ix.number(0)
    for i, n in zip(ix, shape):
        out = out * n + i
    return out


def from_linear(flat, shape):
    """The indices of element `flat` of a tensor of this shape."""
    out, below = [], 1
    for n in reversed(shape):
        q = flat.quotient(below)
        out.append(Ix.number(0) if n == 1 else q.remainder(n))
        below *= n
    return out[::-1]


@handles("view.default", "reshape.default", "flatten.using_ints", "unflatten.int", "_unsafe_view.default",
         "view_as.default", "reshape_as.default")  # fmt: skip
def reshape(t, meta, x, *rest, **named):
    shape = list(meta.shape)
    if shape == x.shape:
        return x
    probe = [Ix.index(f"probe{'abcdefghijklmnop'[i]}", n) for i, n in enumerate(shape)]
    to = lambda ix: from_linear(linear_index(ix, shape), x.shape)  # noqa: E731
    if all(i.affine() for i in to(probe)):
        return x.view(shape, to)
    # Axes are merged: run over the axes of the operand and write at the merged index, when that is affine.
    probe = [Ix.index(f"probe{'abcdefghijklmnop'[i]}", n) for i, n in enumerate(x.shape)]
    if all(i.affine() for i in from_linear(linear_index(probe, x.shape), shape)):
        out = t.new(x.dtype, shape)
        loops, ix, _ = t.w.loops(x.shape)
        t.w.nest(loops, f"{out.at(from_linear(linear_index(ix, x.shape), shape))}={x.at(ix)}")
        return out
    return t.map(x.dtype, shape, lambda ix: x.at(to(ix)))


@handles("cat.default", "concat.default")
def cat(t, meta, tensors, axis=0):
    dtype, shape = result(meta)
    axis = rank_axis(axis, len(shape))
    out, start = t.new(dtype, shape), 0
    for x in tensors:
        if x.shape == [0]:
            continue
        loops, ix, _ = t.w.loops(x.shape)
        at = ix[:axis] + [ix[axis] + start] + ix[axis + 1 :]
        t.w.nest(loops, f"{out.at(at)}={x.at(ix)}")
        start += x.shape[axis]
    return out


@handles("stack.default")
def stack(t, meta, tensors, axis=0):
    axis = rank_axis(axis, len(tensors[0].shape) + 1)
    return cat(t, meta, [unsqueeze(t, meta, x, axis) for x in tensors], axis)


@handles("triu.default")
def triu(t, meta, x, diagonal=0):
    return t.map(x.dtype, x.shape, lambda ix: f"if_then_else({ix[-1]}>={ix[-2] + diagonal},{x.at(ix)},0)")


@handles("tril.default")
def tril(t, meta, x, diagonal=0):
    return t.map(x.dtype, x.shape, lambda ix: f"if_then_else({ix[-1]}<={ix[-2] + diagonal},{x.at(ix)},0)")


@handles("diag.default", "diag_embed.default")
def diag(t, meta, x, offset=0, *rest):
    dtype, shape = result(meta)
    if len(x.shape) == 1:
        row = (lambda ix: ix[0]) if offset >= 0 else (lambda ix: ix[1])
        return t.map(
            dtype, shape, lambda ix: f"if_then_else({ix[1]}=={ix[0] + offset},{x.at([row(ix)])},0)"
        )
    return x.view(shape, lambda ix: [ix[0] + max(-offset, 0), ix[0] + max(offset, 0)])


# -- reductions -----------------------------------------------------------------------------------------------------


def spread(rank, axes, ix, r):
    """The indices of the operand, from those that are kept and those that are reduced."""
    kept, reduced = iter(ix), iter(r)
    return [next(reduced) if a in axes else next(kept) for a in range(rank)]


def reduce_axes(t, x, axes, keep, kind, dtype, term=None):
    """The reduction of x over axes in `dtype`: a variable of the kept shape, seen with the reduced axes if `keep`."""
    rank = len(x.shape)
    shape = [n for a, n in enumerate(x.shape) if a not in axes]
    inner = [x.shape[a] for a in axes]
    probe = [Ix.index(f"probe{'abcdefghijklmnop'[i]}", n) for i, n in enumerate(x.shape)]
    text = x.at(probe)
    if any(f"probe{'abcdefghijklmnop'[a]}" not in text for a in axes):
        x = t.map(x.dtype, x.shape, x.at)  # every reduced index must occur
    term = term or (lambda a, ix: a)
    out = t.reduce(dtype, shape, inner, lambda ix, r: term(x.at(spread(rank, axes, ix, r)), spread(rank, axes, ix, r)), kind)
    return with_axes(out, x.shape, axes) if keep else out


def with_axes(value, shape, axes):
    kept = [a for a in range(len(shape)) if a not in axes]
    if not axes:
        return value
    return value.view([1 if a in axes else n for a, n in enumerate(shape)], lambda ix: [ix[a] for a in kept])


def finish(t, value, dtype, form=None):
    """The last nest of a reduction: a form of the accumulated value, or its store in the wanted dtype."""
    if form is None and value.dtype == dtype:
        return value
    return t.map(dtype, value.shape, lambda ix: (form or (lambda a: a))(value.at(ix)))


def count(x, axes):
    return math.prod(x.shape[a] for a in axes)


@handles("sum.default", "sum.dim_IntList")
def sum_(t, meta, x, dims=None, keep=False, dtype=None):
    dtype = result(meta)[0]
    axes = axes_of(dims, len(x.shape))
    return finish(t, reduce_axes(t, x, axes, keep, "+", t.accumulator(dtype)), dtype)


@handles("prod.default", "prod.dim_int")
def prod(t, meta, x, dims=None, keep=False, dtype=None):
    dtype = result(meta)[0]
    return finish(t, reduce_axes(t, x, axes_of(dims, len(x.shape)), keep, "*", t.accumulator(dtype)), dtype)


@handles("mean.default", "mean.dim")
def mean(t, meta, x, dims=None, keep=False, dtype=None):
    dtype = result(meta)[0]
    axes = axes_of(dims, len(x.shape))
    total = reduce_axes(t, x, axes, keep, "+", t.accumulator(dtype))
    return finish(t, total, dtype, lambda a: f"{a}/{count(x, axes)}")


@handles("var.correction", "var.dim", "std.correction", "std.dim", "var.default", "std.default")
def var(t, meta, x, dims=None, unbiased=None, keepdim=False, correction=None, root=False):
    dtype = result(meta)[0]
    axes = axes_of(dims, len(x.shape))
    n, work = count(x, axes), t.accumulator(dtype)
    correction = 1 if correction is None else correction
    if unbiased is False:
        correction = 0
    total = reduce_axes(t, x, axes, True, "+", work)
    squares = reduce_axes(t, x, axes, keepdim, "+", work, lambda a, ix: f"({a}-{element(total, ix)}/{n})**2")
    form = lambda a: f"{a}/{n - correction}"  # noqa: E731
    return finish(t, squares, dtype, (lambda a: f"sqrt({form(a)})") if root else form)


for _name in ("std.correction", "std.dim", "std.default"):
    HANDLERS["aten." + _name] = lambda *a, **k: var(*a, **k, root=True)


@handles("amax.default")
def amax(t, meta, x, dims=None, keep=False):
    return reduce_axes(t, x, axes_of(dims, len(x.shape)), keep, "max", x.dtype)


@handles("amin.default")
def amin(t, meta, x, dims=None, keep=False):
    return reduce_axes(t, x, axes_of(dims, len(x.shape)), keep, "min", x.dtype)


def first_index(t, x, axis, keep, kind, best=None):
    """The first place of the extremum: NaN counts as it, and the first NaN is the first."""
    axes = [axis]
    best = best or reduce_axes(t, x, axes, False, kind, x.dtype)
    n = x.shape[axis]

    def term(a, ix):
        b = best.at([i for k, i in enumerate(ix) if k != axis])
        nan = f"|{a}!={a}" if x.dtype[0] in "fb" and x.dtype != "bool" else ""
        return f"if_then_else({a}=={b}{nan},{ix[axis]},{n})"

    return reduce_axes(t, x, axes, keep, "min", "i64", term)


def extremum(kind):
    def along(t, meta, x, axis, keep=False):
        axis = rank_axis(axis, len(x.shape))
        best = reduce_axes(t, x, [axis], False, kind, x.dtype)
        values = with_axes(best, x.shape, [axis]) if keep else best
        return [values, lambda: first_index(t, x, axis, keep, kind, best)]

    def whole(t, meta, x):
        return reduce_axes(t, x, list(range(len(x.shape))), False, kind, x.dtype)

    def index(t, meta, x, axis=None, keep=False):
        if axis is None:
            flat = reshape(t, meta=_Shape([math.prod(x.shape)]), x=t.stored(x))
            return first_index(t, flat, 0, False, kind)
        return first_index(t, x, rank_axis(axis, len(x.shape)), keep, kind)

    HANDLERS[f"aten.{kind}.dim"] = along
    HANDLERS[f"aten.{kind}.default"] = whole
    HANDLERS[f"aten.arg{kind}.default"] = index


class _Shape:
    def __init__(self, shape):
        self.shape = shape


extremum("max")
extremum("min")


@handles("linalg_vector_norm.default", "norm.ScalarOpt_dim", "norm.Scalar", "norm.ScalarOpt_dtype", "norm.ScalarOpt_dim_dtype",
         "frobenius_norm.dim")  # fmt: skip
def vector_norm(t, meta, x, order=2, dims=None, keep=False, dtype=None):
    dtype = result(meta)[0]
    axes = axes_of(dims, len(x.shape))
    work = t.accumulator(dtype)
    order = 2 if order is None else order
    if order in (float("inf"), float("-inf")):
        return finish(t, reduce_axes(t, x, axes, keep, "max" if order > 0 else "min", work, lambda a, ix: f"abs({a})"), dtype)
    if order == 0:
        return finish(t, reduce_axes(t, x, axes, keep, "+", work, lambda a, ix: f"if_then_else({a}!=0,1,0)"), dtype)
    if order == 1:
        return finish(t, reduce_axes(t, x, axes, keep, "+", work, lambda a, ix: f"abs({a})"), dtype)
    if order == 2:
        return finish(t, reduce_axes(t, x, axes, keep, "+", work, lambda a, ix: f"{a}*{a}"), dtype, lambda a: f"sqrt({a})")
    p = literal(order)
    total = reduce_axes(t, x, axes, keep, "+", work, lambda a, ix: f"abs({a})**{p}")
    return finish(t, total, dtype, lambda a: f"{a}**(1/{p})")


@handles("logsumexp.default")
def logsumexp(t, meta, x, dims, keep=False):
    dtype = result(meta)[0]
    axes = axes_of(dims, len(x.shape))
    top = reduce_axes(t, x, axes, True, "max", x.dtype)
    # An infinite maximum is not subtracted: the result is that infinity.
    shift = t.map(x.dtype, top.shape, lambda ix: f"if_then_else(abs({top.at(ix)})==inf,0,{top.at(ix)})")
    total = reduce_axes(t, x, axes, keep, "+", t.accumulator(dtype), lambda a, ix: f"exp({a}-{element(shift, ix)})")
    back = shift if keep else squeeze(t, meta, shift, axes)
    return t.map(dtype, total.shape, lambda ix: f"{back.at(ix)}+log({total.at(ix)})")


@handles("softmax.int", "_softmax.default")
def softmax(t, meta, x, axis, *rest):
    dtype, axes = result(meta)[0], [rank_axis(axis, len(x.shape))]
    top = reduce_axes(t, x, axes, True, "max", x.dtype)
    total = reduce_axes(t, x, axes, True, "+", t.accumulator(dtype), lambda a, ix: f"exp({a}-{element(top, ix)})")
    return t.map(dtype, x.shape, lambda ix: f"exp({x.at(ix)}-{element(top, ix)})/{element(total, ix)}")


@handles("log_softmax.int", "_log_softmax.default")
def log_softmax(t, meta, x, axis, *rest):
    dtype, axes = result(meta)[0], [rank_axis(axis, len(x.shape))]
    top = reduce_axes(t, x, axes, True, "max", x.dtype)
    total = reduce_axes(t, x, axes, True, "+", t.accumulator(dtype), lambda a, ix: f"exp({a}-{element(top, ix)})")
    return t.map(dtype, x.shape, lambda ix: f"{x.at(ix)}-{element(top, ix)}-log({element(total, ix)})")


def scan(sign, identity):
    def run(t, meta, x, axis, dtype=None, **named):
        dtype, shape = result(meta)
        axis = rank_axis(axis, len(shape)) if shape else 0
        if not shape:
            return x
        work = t.accumulator(dtype)
        out = t.new(work, shape)
        # The scanned axis is the innermost loop and never bound.
        others = shape[:axis] + shape[axis + 1 :]
        loops, ix, r = t.w.loops(others, [shape[axis]])
        at = ix[:axis] + r + ix[axis:]
        before = ix[:axis] + [r[0] - 1] + ix[axis:]
        t.w.nest(loops, f"{out.at(at)}=if_then_else({r[0]}<1,{identity},{out.at(before)}){sign}{x.at(at)}")
        return finish(t, out, dtype)

    return run


HANDLERS["aten.cumsum.default"] = scan("+", 0)
HANDLERS["aten.cumprod.default"] = scan("*", 1)


# -- products -------------------------------------------------------------------------------------------------------


@handles("matmul.default", "mm.default", "bmm.default", "mv.default", "dot.default", "linalg_matmul.default")
def matmul(t, meta, a, b):
    dtype, shape = result(meta)
    if len(a.shape) == 1:
        a1, a = a, a.view([1] + a.shape, lambda ix, a=a: ix[1:])
        del a1
        row = False
    else:
        row = True
    if len(b.shape) == 1:
        b = b.view(b.shape + [1], lambda ix: ix[:1])
        column = False
    else:
        column = True

    def term(ix, r):
        rest = list(ix)
        j = rest.pop() if column else Ix.number(0)
        i = rest.pop() if row else Ix.number(0)
        left = [Ix.number(0) if n == 1 else x for n, x in zip(a.shape[:-2], rest[len(rest) - len(a.shape) + 2 :])]
        right = [Ix.number(0) if n == 1 else x for n, x in zip(b.shape[:-2], rest[len(rest) - len(b.shape) + 2 :])]
        return f"{a.at(left + [i, r[0]])}*{b.at(right + [r[0], j])}"

    return finish(t, t.reduce(t.accumulator(dtype), shape, [a.shape[-1]], term), dtype)


@handles("linear.default")
def linear(t, meta, x, weight, bias=None):
    dtype, shape = result(meta)
    out = t.reduce(
        t.accumulator(dtype), shape, [x.shape[-1]], lambda ix, r: f"{x.at(ix[:-1] + r)}*{weight.at([ix[-1], r[0]])}"
    )
    return with_bias(t, out, dtype, bias, -1)


@handles("addmm.default", "baddbmm.default")
def addmm(t, meta, c, a, b, beta=1, alpha=1):
    product = matmul(t, meta, a, b)
    return elementwise(t, meta, [c, product], lambda x, y: f"{scaled(beta, x)}+{scaled(alpha, y)}")


def with_bias(t, out, dtype, bias, axis):
    """The accumulated product with its bias: on the same variable, or in the store that follows an f32 sum."""
    if bias is None:
        return finish(t, out, dtype)
    if out.dtype == dtype:
        return t.map(dtype, out.shape, lambda ix: f"{out.at(ix)}+{bias.at([ix[axis]])}", into=out)
    return t.map(dtype, out.shape, lambda ix: f"{out.at(ix)}+{bias.at([ix[axis]])}")


@handles("einsum.default")
def einsum(t, meta, equation, operands, path=None):
    dtype, shape = result(meta)
    sides = equation.replace(" ", "").split("->")
    inputs = sides[0].split(",")
    output = sides[1] if len(sides) > 1 else "".join(sorted(c for c in set(sides[0]) - {","} if sides[0].count(c) == 1))
    if "." in equation:
        from .translate import Unsupported

        raise Unsupported({"einsum with an ellipsis"})
    extent = {c: n for letters, v in zip(inputs, operands) for c, n in zip(letters, v.shape) if n != 1}
    summed = [c for c in dict.fromkeys("".join(inputs)) if c not in output]

    def factors(ix, r):
        where = {**dict(zip(output, ix)), **dict(zip(summed, r))}
        at = lambda v, letters: v.at([Ix.number(0) if n == 1 else where[c] for c, n in zip(letters, v.shape)])  # noqa: E731
        return "*".join(at(v, letters) for v, letters in zip(operands, inputs))

    if not summed:
        return t.map(dtype, shape, lambda ix: factors(ix, []))
    return finish(t, t.reduce(t.accumulator(dtype), shape, [extent.get(c, 1) for c in summed], factors), dtype)
