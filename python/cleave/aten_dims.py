"""Dimensions in the graph language: extents, which are expressions of dimensions, and real numbers that are computed from them."""

from __future__ import annotations

import contextlib
import contextvars

import torch
from torch.utils._sympy.printers import PythonPrinter

from ._errors import UnsupportedError

# What tracing calls a dimension (s77) -> what the user calls it; of the program that is being translated.
_names = contextvars.ContextVar("names", default={})

_FUNCTIONS = {"sqrt": "sqrt", "exp": "exp", "log": "log", "log2": "log2", "sin": "sin", "cos": "cos", "tan": "tan", "tanh": "tanh",
              "Abs": "abs"}


def refuse(what: str) -> UnsupportedError:
    return UnsupportedError(what, node=what.split(" ")[0])


@contextlib.contextmanager
def called(names: dict):
    """Dimensions have these names within."""
    token = _names.set(names)
    try:
        yield
    finally:
        _names.reset(token)


def symbol_name(symbol) -> str:
    return _names.get().get(str(symbol), str(symbol))


def number(value):
    """A whole number, or the text of an expression of dimensions."""
    if isinstance(value, torch.SymInt):
        expr = value.node.expr
        return int(expr) if expr.is_number else text_of(expr)
    return int(value)


def extent(value):
    """The same as an extent. Tracing knows that it is not negative; where the ranges of the dimensions do not say so, the text
    does: the second half of n is n - (n + 1) // 2."""
    text = number(value)
    if isinstance(text, int) or value.node.expr.is_Symbol:
        return text
    return text if value.node.shape_env.bound_sympy(value.node.expr).lower >= 0 else f"max({text}, 0)"


def text_of(expr) -> str:
    """A sympy expression of dimensions in the graph language's spelling."""
    kind = type(expr).__name__
    if expr.is_Symbol:
        return symbol_name(expr)
    if expr.is_number and float(expr).is_integer():  # also 2.0
        return f"({int(expr)})" if int(expr) < 0 else str(int(expr))
    parts = [text_of(a) for a in expr.args]
    if kind == "Add":
        return "(" + " + ".join(parts) + ")"
    if kind == "Mul":
        return "(" + " * ".join(parts) + ")"
    if kind in ("FloorDiv", "CleanDiv"):
        return f"({parts[0]} // {parts[1]})"
    if kind in ("Mod", "PythonMod"):
        return f"({parts[0]} % {parts[1]})"
    if kind in ("Max", "Min"):
        text = parts[0]
        for p in parts[1:]:
            text = f"{kind.lower()}({text}, {p})"
        return text
    if kind == "Pow" and expr.args[1].is_Integer and int(expr.args[1]) > 0:
        return "(" + " * ".join([parts[0]] * int(expr.args[1])) + ")"
    if kind in ("ToFloat", "TruncToInt", "Identity"):
        return parts[0]
    raise refuse(f"the extent {expr} (`{kind}` of dimensions)")


def real(e, expr) -> int:
    """A number that is computed from dimensions, as a value of f64."""
    kind = type(expr).__name__
    name = kind.removeprefix("OpaqueUnaryFn_")
    if expr.is_number:
        return e.literal(float(expr), "f64")
    if expr.is_integer and kind not in ("ToFloat", "Pow"):
        return e.add("extent", of=[text_of(expr)], dtype="f64")
    if kind in ("ToFloat", "Identity"):
        return real(e, expr.args[0])
    if kind in ("Add", "Mul", "Max", "Min"):
        result = real(e, expr.args[0])
        for more in expr.args[1:]:
            result = e.add(kind.lower(), result, real(e, more))
        return result
    if kind in ("IntTrueDiv", "FloatTrueDiv"):
        return e.add("div", real(e, expr.args[0]), real(e, expr.args[1]))
    if kind in ("Pow", "FloatPow", "PowByNatural"):
        return _power(e, *expr.args)
    if name in _FUNCTIONS:
        return e.add(_FUNCTIONS[name], real(e, expr.args[0]))
    raise refuse(f"the number {expr} (`{kind}` of dimensions)")


def _power(e, base, exponent):
    value, known = real(e, base), float(exponent) if exponent.is_number else None
    if known == 1:
        return value
    if known in (0.5, -0.5):
        return e.add("sqrt" if known > 0 else "rsqrt", value)
    if known == -1:
        return e.add("reciprocal", value)
    return e.add("pow", value, real(e, exponent))


def written(expr, words: dict) -> str:
    """A sympy expression in Python's spelling, its symbols as `words` has them."""
    return PythonPrinter().doprint(expr.xreplace({symbol: type(symbol)(text, integer=True) for symbol, text in words.items()}))


class Sizes:
    """Numbers that follow from the sizes of tensors, at each call: from (which argument, what tracing has for it) of the inputs."""

    def __init__(self, tensors):
        self._found = {}  # symbol -> (argument, axis, factor, rest): the axis is factor * symbol + rest
        for argument, val in tensors:
            for axis, n in enumerate(val.shape if isinstance(argument, int) else ()):
                if not isinstance(n, torch.SymInt) or len(symbols := n.node.expr.free_symbols) != 1:
                    continue
                (symbol,), expr = symbols, n.node.expr
                rest = expr.subs(symbol, 0)
                factor = expr.subs(symbol, 1) - rest
                if factor != 0 and expr == factor * symbol + rest:
                    self._found.setdefault(symbol, (argument, axis, int(factor), int(rest)))

    def tell(self, val) -> bool:
        """Whether a SymInt, SymFloat or SymBool follows from them."""
        return all(symbol in self._found for symbol in val.node.expr.free_symbols)

    def of(self, val, name: str) -> tuple:
        """The code that gives a SymInt, SymFloat or SymBool from the arguments, `given`, and its type."""
        if not self.tell(val):
            raise UnsupportedError(f"the output `{name}` is a number that does not follow from the sizes of the inputs", node=name,
                                   hint="give back what it is computed from")
        return self.code(val.node.expr), {torch.SymInt: "int", torch.SymFloat: "float", torch.SymBool: "bool"}[type(val)]

    def code(self, expr) -> str:
        """An expression of dimensions as code for the arguments of a call."""
        return written(expr, {symbol: self._code(*self._found[symbol]) for symbol in expr.free_symbols})

    @staticmethod
    def _code(argument, axis, factor, rest) -> str:
        size = f"given[{argument}].shape[{axis}]"
        size = f"({size} - {rest})" if rest else size
        return f"({size} // {factor})" if factor != 1 else size
