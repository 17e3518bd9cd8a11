"""What callers hand to optimize() and compile() beside the program: each option is checked by name before the library sees it."""

from __future__ import annotations

import math
import numbers
import operator
import os
import re

from ._arrays import DTYPES
from ._errors import InvalidError

_BUDGET = re.compile(r"none|[0-9]+c|[0-9]*\.?[0-9]+(e[0-9]+)?(ms|s|m|h)")
_RANGE = re.compile(r"\s*([0-9]+)\s*(?:\.\.\s*([0-9]+)\s*(?:@\s*([0-9]+)\s*)?)?")


def _wrong(name: str, value, wanted: str) -> InvalidError:
    return InvalidError(f"`{name}` is {value!r}, {wanted} is needed", node=name)


def whole(name: str, value, low: int, high: int) -> int:
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or not low <= number <= high:
        raise _wrong(name, value, f"a whole number from {low} to {high}")
    return number


def tolerance(name: str, value) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(value) or value < 0:
        raise _wrong(name, value, "a finite number that is not negative")
    return float(value)


def text(name: str, value) -> str:
    if not isinstance(value, str):
        raise _wrong(name, value, "a text")
    return value


def dtype(value) -> str:
    """An element type: "f32", or numpy's or torch's for it."""
    name = value if isinstance(value, str) else getattr(value, "__name__", None) or str(value).rsplit(".", 1)[-1]
    known = {long: short for short, long in DTYPES.items()}
    if name not in DTYPES and name not in known:
        raise InvalidError(f"`{name}` is no element type", node=str(name), hint=" ".join(DTYPES))
    return known.get(name, name)


def shape(value) -> list:
    """Extents: numbers, or texts of dimensions."""
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        raise _wrong("shape", value, 'a tuple of extents, as (4, "S"),')
    return [n if isinstance(n, str) else whole("shape", n, 0, 2**62) for n in value]


def attribute(name: str, value):
    """A number, a text, a truth value, or a list of whole numbers and extents."""
    if isinstance(value, (bool, str, float)):
        return value
    if hasattr(value, "__index__"):
        return whole(name, value, -2**62, 2**62)
    if hasattr(value, "__float__") and not hasattr(value, "__len__"):
        return float(value)
    if isinstance(value, (list, tuple)):
        return [n if isinstance(n, str) else whole(name, n, -2**62, 2**62) for n in value]
    raise _wrong(name, value, "a number, a text, or a list of whole numbers and extents")


def flag(name: str, value) -> bool:
    if not isinstance(value, bool):
        raise _wrong(name, value, "True or False")
    return value


def threads(value):
    return None if value is None else whole("threads", value, 1, 1024)


def budget(value) -> str:
    """As the command has it: "20s", "500c", "none"."""
    if value is None:
        return "none"
    if isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value) and value >= 0:
        return f"{float(value)!r}s"
    if isinstance(value, str) and _BUDGET.fullmatch(value):
        return value
    raise _wrong("budget", value, 'a number of seconds, a text ("20s", "5m", "500c") or None')


def path(name: str, value, needed: bool = False):
    if value is None and not needed:
        return None
    try:
        return os.fsdecode(os.fspath(value))
    except TypeError:
        raise _wrong(name, value, "a path") from None


def extents(dims, known: list) -> dict:
    """What `dims=` says of the dimensions (name, lowest, highest) of a graph: name -> (lowest, highest, typical or None)."""
    if dims is None:
        return {}
    if not hasattr(dims, "items"):
        raise _wrong("dims", dims, 'a dictionary, as {"S": 128} or {"S": "1..512@128"},')
    ranges = {name: (low, high) for name, low, high in known}
    out = {}
    for name, value in dims.items():
        if name not in ranges:
            raise InvalidError(f"the graph has no dimension `{name}`", node=str(name),
                               hint=f"its dimensions are {', '.join(ranges) or 'none'}")
        read = _RANGE.fullmatch(value) if isinstance(value, str) else None
        if read is None and (isinstance(value, (str, bool)) or not hasattr(value, "__index__")):
            raise _wrong(f"dims[{name!r}]", value, 'an extent (128) or a range ("1..512@128")')
        low = int(read[1]) if read else operator.index(value)
        high = int(read[2]) if read and read[2] else low
        typical = int(read[3]) if read and read[3] else low if low == high else None
        widest = ranges[name]
        fault = ("its range ends before it begins" if low > high else
                 f"that is not within {widest[0]}..{widest[1]}" if low < widest[0] or high > widest[1] else
                 f"its typical value lies outside {low}..{high}" if typical is not None and not low <= typical <= high else "")
        if fault:
            raise InvalidError(f"`dims[{name!r}]` is {value!r}: {fault}", node=name)
        out[name] = (low, high, typical)
    return out


def arguments(args, kwargs) -> None:
    """Example arguments are given as a call has them."""
    if not isinstance(args, (tuple, list)):
        raise InvalidError(f"`args` is a {type(args).__name__}, a tuple of arguments is needed", node="args", hint="(x,) for one argument")
    if kwargs is not None and not isinstance(kwargs, dict):
        raise _wrong("kwargs", kwargs, "a dictionary of arguments")


def examples(args, inputs: list) -> None:
    """Example arguments of a graph: one for each input, or none; with axes and extents that it can have."""
    if len(args) == 0:
        return
    if len(args) != len(inputs):
        names = ", ".join(name for name, _, _ in inputs)
        raise InvalidError(f"{len(args)} example arguments are given, the graph has {len(inputs)} inputs ({names})", node="args")
    for array, (name, _, shape) in zip(args, inputs):
        have = getattr(array, "shape", None)
        if have is None:
            raise InvalidError(f"the example of `{name}` is a {type(array).__name__}, an array is needed", node=name)
        if len(have) != len(shape) or any(isinstance(want, int) and want != n for n, want in zip(have, shape)):
            raise InvalidError(f"the example of `{name}` has the shape {list(have)}, the graph has {list(shape)}", node=name)
