"""ATen operators as operators of the graph language: one row each. Used for torch.export programs and by the torch.compile
backend. A row gets the emitter and the operator's arguments; what it cannot express it refuses by name."""

from __future__ import annotations

import math
import operator

import torch

from ._arrays import given
from .aten_checks import Checks
from .aten_dims import extent, number, real, refuse

DTYPES = {torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64",
          torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint32: "u32", torch.uint16: "u16", torch.uint8: "u8",
          torch.bool: "bool"}

TABLE = {}  # overload packet ("aten.add") -> row


def row(*names):
    def register(function):
        for name in names:
            TABLE[name] = function
        return function

    return register


class _NotMade:
    """A result of an operator that its row does not make, as the statistics of a norm."""


NOT_MADE = _NotMade()
_EXTREMA = ("amax", "amin", "argmax", "argmin")  # which there are none of nothing


def lowest(dtype) -> float:
    """What a maximum starts with: -inf, or the least integer (at most 2^62 away from 0, which a real tells)."""
    return -math.inf if dtype[0] in "fb" else 0.0 if dtype[0] == "u" else -2.0**min(int(dtype[1:]) - 1, 62)


def highest(dtype) -> float:
    return math.inf if dtype[0] in "fb" else 2.0**min(int(dtype[1:]) - (dtype[0] == "i"), 62) - (int(dtype[1:]) < 62)


class Emitter:
    """Adds operators to a native GraphBuilder. `node` is the FX node that is being translated."""

    def __init__(self, builder):
        self.builder = builder
        self.values = {}  # FX node -> value id, a tuple of ids, or None for what has no tensor
        self.node = None
        self.contents = {}  # FX node -> the tensor that it always is
        self.checks = Checks(self)
        self.occupied = {}  # dimension -> the least that it has to be: an extremum is taken over it, or the first k of it
        self.doubtful = False  # of a computed extent

    # -- what FX knows ------------------------------------------------------------------------------------------------
    @staticmethod
    def meta(arg):
        return arg.meta["val"] if isinstance(arg, torch.fx.Node) else arg

    def result(self, index=None):
        """The FakeTensor of the node's result."""
        val = self.node.meta["val"]
        return val[index or 0] if isinstance(val, (tuple, list)) else val

    def wanted(self, index) -> bool:
        """Whether a result of the node is read."""
        return any(u.args[1:] == (index,) and u.users for u in self.node.users)

    def dtype(self, of=None) -> str:
        val = self.result() if of is None else self.meta(of)
        return self.dtype_name(val.dtype)

    @staticmethod
    def dtype_name(dtype) -> str:
        if dtype not in DTYPES:
            raise refuse(f"tensors of {dtype}")
        return DTYPES[dtype]

    def shape(self, of=None) -> list:
        val = self.result() if of is None else self.meta(of)
        return [extent(n) for n in val.shape]

    def rank(self, of) -> int:
        return len(self.meta(of).shape)

    def number(self, arg):
        """An int, a float or an extent's text."""
        arg = self.meta(arg)
        if isinstance(arg, torch.SymInt):
            return number(arg)
        if isinstance(arg, torch.SymFloat):
            raise refuse("a number that depends on dimensions")
        return arg

    def span(self, arg) -> tuple:
        """The lowest and the highest value of an int."""
        arg = self.meta(arg)
        bounds = arg.node.shape_env.bound_sympy(arg.node.expr) if isinstance(arg, torch.SymInt) else None
        return (arg, arg) if bounds is None else (bounds.lower, bounds.upper)

    def ints(self, arg, rank=None) -> list:
        values = [self.number(a) for a in (arg if isinstance(arg, (list, tuple)) else [arg])]
        return values * rank if rank is not None and len(values) == 1 else values

    # -- values -------------------------------------------------------------------------------------------------------
    def add(self, op, *operands, **attributes):
        least = attributes["k"] if op == "topk" else 1 if op in _EXTREMA else 0
        shape = self.builder.shape(operands[0]) if least else []
        for axis in attributes.get("axes", [attributes["axis"]] if "axis" in attributes else range(len(shape))) if least else ():
            self.at_least(shape[axis], least)
        out = self.builder.add(op, list(operands), attributes)
        return out[0] if len(out) == 1 else tuple(out)

    def at_least(self, extent, least, doubt=True):
        """What is made needs an extent of `least` or more; without it nothing can be made, if there is doubt."""
        if isinstance(extent, str) and isinstance(least, int) and least > 0:
            self.doubtful |= doubt and not extent.isidentifier()
            self.occupied |= {extent: max(least, self.occupied.get(extent, 0))} if extent.isidentifier() else {}

    def value(self, arg, dtype=None):
        """The value of a node or of a number, cast to `dtype`."""
        if isinstance(arg, torch.fx.Node):
            id = self.values.get(arg)
            if id is None:  # a dimension used as a number, or computed from some
                return self.value(self.meta(arg), dtype)
            if isinstance(id, tuple):
                id = id[0]
            if id is NOT_MADE:
                source = arg.args[0] if name_of(arg.target) == "operator.getitem" else arg
                raise refuse(f"{name_of(source.target)} for its other results (`{arg.name}`)")
            return self.cast(id, dtype) if dtype and self.builder.dtype(id) != dtype else id
        if isinstance(arg, torch.SymInt):
            return self.add("extent", of=[number(arg)], dtype=dtype or "i64")
        if isinstance(arg, torch.SymFloat):
            return self.cast(real(self, arg.node.expr), dtype or "f64")
        return self.literal(arg, dtype or self.dtype())

    def literal(self, number, dtype):
        if isinstance(number, int) and dtype.startswith(("i", "u")) and int(float(number)) != number:  # more than 53 bits
            return self.builder.constant(f"number_{number}", given(torch.tensor(number)))
        return self.builder.literal(float(number), dtype)

    def fn(self, op, *operands):
        """An operator of values (ints) and numbers (floats, of the last value's type)."""
        dtype = next(self.builder.dtype(x) for x in reversed(operands) if not isinstance(x, float))
        return self.add(op, *[self.literal(x, dtype) if isinstance(x, float) else x for x in operands])

    def cast(self, id, dtype):
        return id if self.builder.dtype(id) == dtype else self.add("cast", id, dtype=dtype)

    def reshape(self, id, shape):
        return self.add("reshape", id, shape=shape)

    def axis(self, axis, rank) -> int:
        axis = self.number(axis)
        return axis + rank if axis < 0 else axis

    def broadcast(self, id, shape):
        return id if list(self.builder.shape(id)) == list(shape) else self.add("broadcast", id, shape=list(shape))


# -- elementwise ------------------------------------------------------------------------------------------------------

def _unary(op):
    def emit(e, x, *_, **__):
        v = e.value(x, e.dtype())
        return v if e.dtype() == "bool" else e.add(op, v)  # of bools there are the sign and the magnitude

    return emit


for _name, _op in {
    "neg": "neg", "abs": "abs", "square": "square", "relu": "relu", "exp": "exp",
    "exp2": "exp2", "expm1": "expm1", "log": "log", "log2": "log2", "log1p": "log1p", "sqrt": "sqrt", "rsqrt": "rsqrt",
    "reciprocal": "reciprocal", "sin": "sin", "cos": "cos", "tan": "tan", "tanh": "tanh",
    "erf": "erf", "sigmoid": "sigmoid", "silu": "silu", "mish": "mish", "selu": "selu",
    "hardsigmoid": "hardsigmoid", "hardswish": "hardswish",
}.items():
    TABLE[f"aten.{_name}"] = _unary(_op)


@row("aten.sign", "aten.sgn")
def _sign(e, x):
    v = e.value(x)
    if e.dtype() == "bool":
        return v
    return e.fn("where", e.add("isnan", v), 0.0, e.add("sign", v)) if e.dtype()[0] in "fb" else e.add("sign", v)


@row("aten.round", "aten.floor", "aten.ceil", "aten.trunc")
def _whole(e, x, *, decimals=0):
    if decimals:
        raise refuse("aten.round with decimals")
    v, name = e.value(x), e.node.target._overloadpacket.__name__
    if e.dtype()[0] not in "fb":
        return v
    return cut(e, v) if name == "trunc" else e.add(name, v)


def cut(e, v):
    """Towards zero."""
    return e.add("where", e.fn("lt", v, 0.0), e.add("ceil", v), e.add("floor", v))


@row("aten.gelu")
def _gelu(e, x, approximate="none"):
    return e.add("gelu_tanh" if approximate == "tanh" else "gelu_erf", e.value(x))


@row("aten.softplus")
def _softplus(e, x, beta=1, threshold=20):
    v, dtype = e.value(x), e.dtype()
    scaled = e.add("mul", v, e.literal(beta, dtype)) if beta != 1 else v
    soft = e.add("softplus", scaled)
    soft = e.add("div", soft, e.literal(beta, dtype)) if beta != 1 else soft
    return e.add("where", e.add("gt", scaled, e.literal(threshold, dtype)), v, soft)


@row("aten.elu")
def _elu(e, x, alpha=1, scale=1, input_scale=1):
    if scale != 1 or input_scale != 1:
        raise refuse("aten.elu with scales")
    return e.add("elu", e.value(x), e.literal(alpha, e.dtype()))


@row("aten.leaky_relu")
def _leaky(e, x, slope=0.01):
    return e.add("leaky_relu", e.value(x), e.literal(slope, e.dtype()))


@row("aten.clamp", "aten.hardtanh")
def _clamp(e, x, low=None, high=None):
    if e.node.target._overloadpacket.__name__.startswith("hardtanh"):
        low, high = -1 if low is None else low, 1 if high is None else high
    v = e.value(x, e.dtype())
    if low is not None:
        v = e.add("max", v, e.value(low, e.dtype()))
    return e.add("min", v, e.value(high, e.dtype())) if high is not None else v


@row("aten.clamp_min", "aten.maximum")
def _maximum(e, x, y):
    return e.add("max", e.value(x, e.dtype()), e.value(y, e.dtype()))


@row("aten.clamp_max", "aten.minimum")
def _minimum(e, x, y):
    return e.add("min", e.value(x, e.dtype()), e.value(y, e.dtype()))


def _arithmetic(op):
    def emit(e, x, y, *, alpha=1):
        dtype = e.dtype()
        if dtype == "bool":
            if op not in ("add", "mul"):
                raise refuse(f"{e.node.target} of bools")
            return e.add("logical_or" if op == "add" else "logical_and", e.value(x, dtype), e.value(y, dtype))
        second = e.value(y, dtype)
        if alpha != 1:
            second = e.add("mul", second, e.value(alpha, dtype))
        return e.add(op, e.value(x, dtype), second)

    return emit


for _name in ("add", "sub", "mul"):
    TABLE[f"aten.{_name}"] = _arithmetic(_name)


@row("aten.rsub")
def _rsub(e, x, y, alpha=1):
    dtype = e.dtype()
    v = e.value(x, dtype)
    return e.add("sub", e.value(y, dtype), e.add("mul", v, e.value(alpha, dtype)) if alpha != 1 else v)


@row("aten.div", "aten.true_divide")
def _div(e, x, y, rounding_mode=None):
    dtype = e.dtype()
    if rounding_mode == "floor":
        return _floor_divide(e, x, y)
    if dtype[0] in "iu":
        e.checks.divisor(y)
    a, b = e.value(x, dtype), e.value(y, dtype)
    q = e.add("div", a, b)  # of integers: towards zero
    if rounding_mode == "trunc" and dtype[0] in "fb":
        return cut(e, q)
    return q


@row("aten.floor_divide")
def _floor_divide(e, x, y):
    """Of infinities as eager has it: what is left over of one is NaN, and beside one a number is a little below or above 0."""
    dtype = e.dtype()
    a, b = e.value(x, dtype), e.value(y, dtype)
    q = e.add("floordiv", a, b)
    if dtype[0] in "iu":
        e.checks.divisor(y)
        return q
    if not isinstance(y, (int, float)) or math.isinf(y):
        q = e.fn("where", e.add("logical_and", e.add("isinf", b), e.fn("lt", e.add("mul", a, b), 0.0)), -1.0, q)
    endless = e.add("isinf", a)
    if not isinstance(y, (int, float)):
        endless = e.add("logical_and", endless, e.fn("ne", b, 0.0))
    return q if y == 0 else e.fn("where", endless, math.nan, q)


@row("aten.remainder")
def _remainder(e, x, y):
    if e.dtype()[0] in "iu":
        e.checks.divisor(y)
    return e.add("mod", e.value(x, e.dtype()), e.value(y, e.dtype()))


@row("aten.pow")
def _pow(e, x, y):
    dtype = e.dtype()
    if y == 2:
        return e.add("square", e.value(x, dtype))
    if y == 0.5:
        return e.add("sqrt", e.value(x, dtype))
    if y == -0.5:
        return e.add("rsqrt", e.value(x, dtype))
    if y == 1:
        return e.value(x, dtype)
    return e.add("pow", e.value(x, dtype), e.value(y, dtype))


def _compare(op):
    def emit(e, x, y):
        kind = torch.result_type(e.meta(x), e.meta(y))
        dtype = e.dtype_name(kind)
        if dtype == "bool":
            dtype = "i32"
        return e.add(op, e.value(x, dtype), e.value(y, dtype))

    return emit


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    TABLE[f"aten.{_name}"] = _compare(_name)


def _logical(op):
    def emit(e, *operands):
        if e.dtype() != "bool":
            v, second = e.value(operands[0]), operands[-1]
            if op == "logical_not":  # -1 - x, which wraps where there is no sign
                return e.fn("sub", e.add("neg", v), 1.0)
            if op == "logical_and" and isinstance(second, int) and 0 <= second < 2**62 and not second & (second + 1):
                return e.cast(e.fn("mod", e.cast(v, "i64"), float(second + 1)), e.dtype())  # the lowest bits
            raise refuse(f"{e.node.target} of integers")
        return e.add(op, *[e.value(x, "bool") for x in operands])

    return emit


for _name, _op in {"logical_and": "logical_and", "logical_or": "logical_or", "logical_xor": "logical_xor",
                   "logical_not": "logical_not", "bitwise_and": "logical_and", "bitwise_or": "logical_or",
                   "bitwise_xor": "logical_xor", "bitwise_not": "logical_not", "__and__": "logical_and",
                   "__or__": "logical_or"}.items():
    TABLE[f"aten.{_name}"] = _logical(_op)


def _shift(op):
    def emit(e, x, by):
        bits = 8 * e.result().element_size()
        if not isinstance(by, int) or not 0 <= by < min(bits, 63) or e.dtype()[0] == "f":
            raise refuse(f"{e.node.target} by a tensor")
        return e.cast(e.fn(op, e.cast(e.value(x), "i64"), 2.0**by), e.dtype())

    return emit


for _name, _op in {"bitwise_left_shift": "mul", "__lshift__": "mul", "bitwise_right_shift": "floordiv", "__rshift__": "floordiv"}.items():
    TABLE[f"aten.{_name}"] = _shift(_op)


@row("aten.isnan")
def _isnan(e, x):
    return e.add("isnan", e.value(x))


@row("aten.isinf")
def _isinf(e, x):
    return e.add("isinf", e.value(x))


@row("aten.where")
def _where(e, c, x, y):
    return e.add("where", e.value(c, "bool"), e.value(x, e.dtype()), e.value(y, e.dtype()))


@row("aten.masked_fill")
def _masked_fill(e, x, mask, value):
    return e.add("where", e.value(mask, "bool"), e.value(value, e.dtype()), e.value(x))


@row("aten._to_copy", "aten.to", "aten.type_as", "prims.convert_element_type")
def _to(e, x, *_, **__):
    return e.value(x, e.dtype())


@row("aten.clone", "aten.contiguous", "aten.alias", "aten.detach", "aten.lift_fresh_copy", "aten.lift_fresh", "aten.dropout",
     "aten.native_dropout", "aten.feature_dropout", "aten.copy", "aten._assert_tensor_metadata")
def _identity(e, x, *rest, **_):
    name = e.node.target._overloadpacket.__name__
    if name == "_assert_tensor_metadata":
        return None
    if "dropout" in name and len(rest) > 1 and rest[1] and rest[0] > 0:
        raise refuse(f"{e.node.target} in training")
    if name == "copy":
        return e.broadcast(e.value(rest[0], e.dtype()), e.shape())
    return e.value(x)


# -- made from nothing ------------------------------------------------------------------------------------------------

def _filled(e, number):
    return e.broadcast(e.value(number, e.dtype()), e.shape())


@row("aten.full", "aten.full_like", "aten.new_full")
def _full(e, _, *rest, **__):
    return _filled(e, rest[-1] if e.node.target._overloadpacket.__name__ != "new_full" else rest[1])


@row("aten.zeros", "aten.zeros_like", "aten.new_zeros", "aten.empty", "aten.empty_like", "aten.new_empty")
def _zeros(e, *_, **__):
    return _filled(e, 0)


@row("aten.ones", "aten.ones_like", "aten.new_ones")
def _ones(e, *_, **__):
    return _filled(e, 1)


@row("aten.scalar_tensor")
def _scalar_tensor(e, number, **_):
    return e.value(number, e.dtype())


@row("aten.arange")
def _arange(e, *ends, **_):
    ends = [e.number(a) for a in ends]
    start, step = (ends[0] if len(ends) > 1 else 0), (ends[2] if len(ends) > 2 else 1)
    dtype = e.dtype()
    index = e.add("iota", shape=e.shape(), axis=0, dtype=dtype if dtype != "bool" else "i64")
    if step != 1:
        index = e.add("mul", index, e.value(step, dtype))
    if start != 0:
        index = e.add("add", index, e.literal(start, dtype) if not isinstance(start, str) else
                      e.add("extent", of=[start], dtype=dtype))
    return index


@row("aten.tril", "aten.triu")
def _triangle(e, x, diagonal=0):
    shape, rank = e.shape(), e.rank(x)
    i = e.add("iota", shape=shape[-2:], axis=0, dtype="i64")
    j = e.add("iota", shape=shape[-2:], axis=1, dtype="i64")
    limit = e.add("add", i, e.value(e.number(diagonal), "i64"))
    keep = e.add("le" if e.node.target._overloadpacket.__name__ == "tril" else "ge", j, limit)
    v = e.value(x)
    if e.dtype() == "bool":
        return e.add("logical_and", v, keep)
    return e.add("where", keep, v, e.literal(0, e.dtype())) if rank >= 2 else v


# -- views ------------------------------------------------------------------------------------------------------------

@row("aten.view", "aten._unsafe_view", "aten.reshape", "aten.flatten", "aten.unflatten", "aten.squeeze", "aten.unsqueeze",
     "aten.view_as", "aten.view_copy")
def _view(e, x, *_, **__):
    if e.dtype() != e.dtype(x):
        raise refuse(f"{e.node.target} to another type")
    return e.reshape(e.value(x), e.shape())


@row("aten.expand", "aten.expand_as", "aten.broadcast_to")
def _expand(e, x, *_, **__):
    return e.broadcast(e.value(x), e.shape())


@row("aten.permute", "aten.permute_copy")
def _permute(e, x, axes):
    return e.add("transpose", e.value(x), perm=[e.axis(a, e.rank(x)) for a in axes])


@row("aten.transpose")
def _transpose(e, x, a, b):
    perm = list(range(e.rank(x)))
    if perm:
        a, b = e.axis(a, len(perm)), e.axis(b, len(perm))
        perm[a], perm[b] = perm[b], perm[a]
    return e.add("transpose", e.value(x), perm=perm)


@row("aten.t", "aten.numpy_T", "aten.mT")
def _t(e, x):
    perm = list(range(e.rank(x)))
    if len(perm) < 2:
        return e.value(x)
    perm[-1], perm[-2] = perm[-2], perm[-1]
    return e.add("transpose", e.value(x), perm=perm)


def bounds(e, x, axis, start, stop) -> tuple:
    """A slice's start and stop within an axis, as numbers or texts."""
    size = e.shape(x)[axis]

    def clipped(at, default):
        if at is None:
            return default
        if isinstance(at, str) or isinstance(size, str):
            if isinstance(at, int):
                if at >= 2**62:
                    return size
                if at < 0:
                    return f"max({size} - {-at}, 0)"
                return at if at == 0 else f"min({at}, {size})"
            return f"min({at}, {size})"
        return min(max(at + size if at < 0 else at, 0), size)

    return clipped(e.number(start), 0), clipped(e.number(stop), size)


def plus(a, b):
    """The sum of two extents."""
    return a + b if isinstance(a, int) and isinstance(b, int) else f"({a}) + ({b})"


@row("aten.slice", "aten.slice_copy")
def _slice(e, x, axis=0, start=None, stop=None, step=1):
    axis = e.axis(axis, e.rank(x))
    start, stop = bounds(e, x, axis, start, stop)
    step = e.number(step)
    if step == 1:  # what tracing knows of the result: that a length is below a bound, for one
        stop = plus(start, e.shape()[axis])
    elif isinstance(start, int) and isinstance(stop, int):
        stop = max(start, stop)
    return e.add("slice", e.value(x), axes=[axis], starts=[start], stops=[stop], steps=[step])


@row("aten.narrow", "aten.narrow_copy")
def _narrow(e, x, axis, start, length):
    start = e.number(start)
    return e.add("slice", e.value(x), axes=[e.axis(axis, e.rank(x))], starts=[start], stops=[plus(start, e.number(length))])


@row("aten.select")
def _select(e, x, axis, index):
    axis = e.axis(axis, e.rank(x))
    size, (low, high) = e.shape(x)[axis], e.span(index)
    if low < 0 <= high:
        raise refuse("aten.select at a place that is counted from the front or from the end, as dimensions have it")
    index = e.number(index)
    start = plus(size, index) if high < 0 else index
    cut = e.add("slice", e.value(x), axes=[axis], starts=[start], stops=[plus(start, 1)])
    return e.add("squeeze", cut, axes=[axis])


@row("aten.split", "aten.split_with_sizes", "aten.chunk", "aten.unbind", "aten.unbind_copy", "aten.unsafe_split", "aten.tensor_split")
def _split(e, x, *args, **named):
    name = e.node.target._overloadpacket.__name__
    unbind = name.startswith("unbind")
    at = 0 if unbind else 1
    axis = e.axis(args[at] if len(args) > at else named.get("dim", 0), e.rank(x))
    results = e.node.meta["val"]
    sizes = [1] * len(results) if unbind else [extent(r.shape[axis]) for r in results]
    if len(sizes) == 1:
        parts = (e.value(x),)
    elif any(isinstance(n, str) for n in sizes):  # that they fill the axis is known to the tracing alone
        parts, start = [], 0
        for n in sizes:
            parts.append(e.add("slice", e.value(x), axes=[axis], starts=[start], stops=[plus(start, n)]))
            start = plus(start, n)
    else:
        parts = e.add("split", e.value(x), axis=axis, sizes=sizes)
    if unbind:
        parts = tuple(e.add("squeeze", p, axes=[axis]) for p in parts)
    return tuple(parts)


@row("aten.cat", "aten.concat", "aten.concatenate")
def _cat(e, tensors, axis=0):
    dtype = e.dtype()
    kept = [t for t in tensors if not (e.rank(t) == 1 and e.shape(t) == [0] and len(tensors) > 1 and len(e.shape()) > 1)]
    return e.add("concat", *[e.value(t, dtype) for t in kept], axis=e.axis(axis, len(e.shape())))


@row("aten.stack")
def _stack(e, tensors, axis=0):
    axis = e.axis(axis, len(e.shape()))
    return e.add("concat", *[e.add("unsqueeze", e.value(t, e.dtype()), axes=[axis]) for t in tensors], axis=axis)


@row("aten.repeat")
def _repeat(e, x, repeats):
    v, shape = e.value(x), e.shape(x)
    shape = [1] * (len(repeats) - len(shape)) + shape
    inner = [n for s in shape for n in (1, s)]
    outer = [n for r, s in zip(e.ints(repeats), shape) for n in (r, s)]
    return e.reshape(e.add("broadcast", e.reshape(v, inner), shape=outer), e.shape())


@row("aten.repeat_interleave")
def _repeat_interleave(e, x, repeats, axis=None, **_):
    if isinstance(repeats, torch.fx.Node) and e.values.get(repeats) is not None or axis is None:
        raise refuse("aten.repeat_interleave with a tensor of repeats or without an axis")
    axis, shape = e.axis(axis, e.rank(x)), e.shape(x)
    split = shape[:axis + 1] + [1] + shape[axis + 1:]
    wide = shape[:axis + 1] + [e.number(repeats)] + shape[axis + 1:]
    return e.reshape(e.add("broadcast", e.reshape(e.value(x), split), shape=wide), e.shape())


@row("aten.flip")
def _flip(e, x, axes):
    return e.add("flip", e.value(x), axes=[e.axis(a, e.rank(x)) for a in axes])


def _mirrored(e, x, amounts, mode):
    """Padding with what is there, or by amounts that depend on dimensions: for each padded axis, where each place of the result comes
    from. `mode`: PyTorch's, or the number that is around."""
    v, rank = e.value(x), e.rank(x)
    for i in range(len(amounts) // 2):
        axis, around = rank - 1 - i, amounts[2 * i:2 * i + 2]
        if not any(e.ints(around)):
            continue
        if isinstance(mode, str):
            tight = {"reflect": 1, "circular": 0}.get(mode)
            known = [n for n in e.ints(around) if isinstance(n, int) and tight is not None]
            e.at_least(e.shape(x)[axis], max([1, *(n + tight for n in known)]), doubt=False)
        size = e.value(e.meta(x).shape[axis], "i64")
        if mode == "circular" and any(isinstance(n, int) and n < 0 for n in e.ints(around)):  # what is left goes round
            cut = [min(n, 0) if isinstance(n, int) else 0 for n in e.ints(around)]
            none = [0] * rank
            v = e.add("pad", v, low=none[:axis] + cut[:1] + none[axis + 1:], high=none[:axis] + cut[1:] + none[axis + 1:], value=0.0)
            size = e.add("add", size, e.literal(sum(cut), "i64"))
            around = [max(n, 0) if isinstance(n, int) else n for n in around]
        at = e.add("sub", e.add("iota", shape=[e.shape()[axis]], axis=0, dtype="i64"), e.value(around[0], "i64"))
        if not isinstance(mode, str):  # the place behind the last element holds the number
            none = [0] * rank
            v = e.add("pad", v, low=none, high=none[:axis] + [1] + none[axis + 1:], value=mode)
            at = e.add("where", e.add("logical_or", e.fn("lt", at, 0.0), e.add("ge", at, size)), size, at)
        elif mode == "circular":
            at = e.add("mod", at, size)
        elif mode == "replicate":
            at = e.add("min", e.fn("max", at, 0.0), e.fn("sub", size, 1.0))
        elif mode == "reflect":
            last = e.fn("sub", size, 1.0)
            at = e.add("sub", last, e.add("abs", e.add("sub", last, e.add("abs", at))))
        else:
            raise refuse(f"aten.pad in mode {mode}")
        v = e.add("gather", v, at, axis=axis)
    return v


@row("aten.constant_pad_nd", "aten.pad")
def _pad(e, x, amounts, *rest):
    if rest and isinstance(rest[0], str) and rest[0] != "constant":
        return _mirrored(e, x, amounts, rest[0])
    value = next((float(r) for r in rest if isinstance(r, (int, float))), 0.0)
    if any(isinstance(n, str) for n in e.ints(amounts)):
        return _mirrored(e, x, amounts, value)
    rank, amounts = e.rank(x), e.ints(amounts)
    low, high = [0] * rank, [0] * rank
    for i in range(len(amounts) // 2):
        low[rank - 1 - i], high[rank - 1 - i] = amounts[2 * i], amounts[2 * i + 1]
    return e.add("pad", e.value(x), low=low, high=high, value=value)


# ---------------------------------------------------------------------------------------------------------------------

@row("operator.getitem")
def _getitem(e, x, i):
    return e.values[x][i]


def name_of(target) -> str:
    """The key of the table: "aten.add", "operator.getitem"."""
    if target is operator.getitem:
        return "operator.getitem"
    packet = getattr(target, "_overloadpacket", None)
    if packet is not None:
        return f"{packet._qualified_op_name.replace('::', '.')}"
    return getattr(target, "__name__", str(target))


from . import aten_math, aten_picks, aten_reductions, aten_windows  # noqa: E402, F401  (their rows join the table)
