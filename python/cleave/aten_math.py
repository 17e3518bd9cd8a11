"""Rows of the table in aten.py: functions that are formulas of the graph's own, and distances."""

from __future__ import annotations

import math

from .aten import TABLE, row
from .aten_reductions import norm

LARGE = 2.0**40  # beyond it log(2 |x|) is exact, and squares might overflow


def _wide(dtype):
    return "f32" if dtype in ("f16", "bf16") else dtype


def _negative(e, x):
    """The sign bit, also of -0."""
    if e.builder.dtype(x)[0] not in "fb":
        return e.fn("lt", x, 0.0)
    return e.add("logical_or", e.fn("lt", x, 0.0), e.fn("lt", e.fn("div", 1.0, x), 0.0))


def _signed(e, like, magnitude):
    """A magnitude with the sign of another number."""
    return e.add("where", _negative(e, like), e.add("neg", magnitude), magnitude)


def _formula(function):
    """A row of the function's name for a formula of one number, computed in f32 at least."""
    TABLE[f"aten.{function.__name__[1:]}"] = lambda e, x: e.cast(function(e, e.value(x, _wide(e.dtype()))), e.dtype())
    return function


def _hyperbolic(e, x):
    """|x|, exp(|x|) / 2 and exp(-|x|) / 2; the exponential is a square, which reaches as far as the results."""
    size = e.add("abs", x)
    root = e.add("exp", e.fn("mul", size, 0.5))
    return size, e.add("mul", e.fn("mul", root, 0.5), root), e.fn("mul", e.add("exp", e.add("neg", size)), 0.5)


@_formula
def _cosh(e, x):
    _, half, rest = _hyperbolic(e, x)
    return e.add("add", half, rest)


@_formula
def _sinh(e, x):
    size, half, rest = _hyperbolic(e, x)
    m = e.add("expm1", size)  # keeps the digits near 0
    near = e.fn("mul", e.add("add", m, e.add("div", m, e.fn("add", m, 1.0))), 0.5)
    return _signed(e, x, e.add("where", e.fn("lt", size, 1.0), near, e.add("sub", half, rest)))


@_formula
def _asinh(e, x):
    size, square = e.add("abs", x), e.add("square", x)
    near = e.add("div", square, e.fn("add", e.add("sqrt", e.fn("add", square, 1.0)), 1.0))
    near = e.add("log1p", e.add("add", size, near))
    return _signed(e, x, e.add("where", e.fn("gt", size, LARGE), e.fn("add", e.add("log", size), math.log(2)), near))


@_formula
def _acosh(e, x):
    t = e.fn("sub", x, 1.0)
    root = e.add("mul", e.add("sqrt", t), e.add("sqrt", e.fn("add", t, 2.0)))  # NaN below 1
    near = e.add("log1p", e.add("add", t, root))
    return e.add("where", e.fn("gt", x, LARGE), e.fn("add", e.add("log", x), math.log(2)), near)


@_formula
def _atanh(e, x):
    size = e.add("abs", x)
    return _signed(e, x, e.fn("mul", e.add("sub", e.add("log1p", size), e.add("log1p", e.add("neg", size))), 0.5))


@_formula
def _atan(e, x):
    """Reductions of the argument, 2 atan(x / (1 + sqrt(1 + x^2))), and the odd series; beyond 1 of the reciprocal."""
    size = e.add("abs", x)
    far = e.fn("gt", size, 1.0)
    y = e.add("where", far, e.fn("div", 1.0, size), size)
    halvings = 4 if e.builder.dtype(x) == "f64" else 2
    for _ in range(halvings):
        y = e.add("div", y, e.fn("add", e.add("sqrt", e.fn("add", e.add("square", y), 1.0)), 1.0))
    square, series = e.add("square", y), e.literal(1 / 13, e.builder.dtype(x))
    for n in range(11, 0, -2):
        series = e.fn("add", e.add("mul", series, square), (-1.0) ** (n // 2) / n)
    angle = e.fn("mul", e.add("mul", series, y), 2.0**halvings)
    return _signed(e, x, e.add("where", far, e.fn("sub", math.pi / 2, angle), angle))


@_formula
def _asin(e, x):
    return _atan(e, e.add("div", x, e.add("sqrt", e.add("mul", e.fn("sub", 1.0, x), e.fn("add", x, 1.0)))))


@_formula
def _acos(e, x):
    return e.fn("mul", _atan(e, e.add("sqrt", e.add("div", e.fn("sub", 1.0, x), e.fn("add", x, 1.0)))), 2.0)


@_formula
def _log10(e, x):
    return e.fn("mul", e.add("log", x), 1 / math.log(10))


@row("aten.atan2")
def _atan2(e, y, x):
    wide = _wide(e.dtype())
    y, x = e.value(y, wide), e.value(x, wide)
    a, b = e.add("abs", y), e.add("abs", x)
    least, most = e.add("min", a, b), e.add("max", a, b)
    ratio = e.fn("where", e.fn("eq", most, 0.0), 0.0, e.add("div", least, most))
    angle = _atan(e, e.fn("where", e.fn("eq", least, math.inf), 1.0, ratio))
    angle = e.add("where", e.add("gt", a, b), e.fn("sub", math.pi / 2, angle), angle)
    angle = e.add("where", _negative(e, x), e.fn("sub", math.pi, angle), angle)
    return e.cast(_signed(e, y, angle), e.dtype())


@row("aten.hypot")
def _hypot(e, x, y):
    wide = _wide(e.dtype())
    a, b = e.add("abs", e.value(x, wide)), e.add("abs", e.value(y, wide))
    least, most = e.add("min", a, b), e.add("max", a, b)
    ratio = e.add("div", least, e.fn("where", e.fn("eq", most, 0.0), 1.0, most))
    length = e.add("mul", most, e.add("sqrt", e.fn("add", e.add("square", ratio), 1.0)))
    infinite = e.add("logical_or", e.fn("eq", a, math.inf), e.fn("eq", b, math.inf))
    return e.cast(e.fn("where", infinite, math.inf, length), e.dtype())


@row("aten.signbit")
def _signbit(e, x):
    return _negative(e, e.value(x, "u8" if e.dtype(x) == "bool" else None))


@row("aten.copysign")
def _copysign(e, x, y):
    return _signed(e, e.value(y, e.dtype()), e.add("abs", e.value(x, e.dtype())))


@row("aten.fmax", "aten.fmin")
def _fmax(e, x, y):
    dtype = e.dtype()
    x, y = e.value(x, dtype), e.value(y, dtype)
    best = e.add(e.node.target._overloadpacket.__name__[1:], x, y)
    if dtype[0] not in "fb" or dtype == "bool":
        return best
    return e.add("where", e.add("isnan", x), y, e.add("where", e.add("isnan", y), x, best))


@row("aten.fmod")
def _fmod(e, x, y):
    dtype = e.dtype()
    if dtype[0] not in "fb":
        e.checks.divisor(y)
    x, y = e.value(x, dtype), e.value(y, dtype)
    if dtype[0] not in "fb":  # the quotient of integers is cut towards zero
        return e.add("sub", x, e.add("mul", e.add("div", x, y), y))
    return _signed(e, x, e.add("mod", e.add("abs", x), e.add("abs", y)))


# -- distances and products of three ----------------------------------------------------------------------------------

@row("aten._cdist_forward")
def _cdist(e, x, y, order, *_):
    a, b = e.value(x), e.value(y)
    v = e.add("sub", e.add("unsqueeze", a, axes=[e.rank(x) - 1]), e.add("unsqueeze", b, axes=[e.rank(y) - 2]))
    return norm(e, v, order, [len(e.shape())], False, e.dtype())


@row("aten.dist")
def _dist(e, x, y, order=2):
    v = e.add("sub", e.value(x, e.dtype()), e.value(y, e.dtype()))
    return norm(e, v, order, list(range(len(e.builder.shape(v)))), False, e.dtype())


@row("aten._trilinear")
def _trilinear(e, a, b, c, expand_a, expand_b, expand_c, sum_axes, unroll=1):
    operands = [e.add("unsqueeze", e.value(x), axes=sorted(axes)) if axes else e.value(x)
                for x, axes in ((a, expand_a), (b, expand_b), (c, expand_c))]
    names = [f"a{i}" for i in range(len(e.builder.shape(operands[0])))]
    kept = [n for i, n in enumerate(names) if i not in sum_axes]
    spec = f"{' '.join(names)}, {' '.join(names)} -> "
    return e.add("contract", e.add("contract", operands[0], operands[1], spec=spec + " ".join(names)), operands[2],
                 spec=spec + " ".join(kept))
