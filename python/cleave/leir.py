"""LEIR, the loop-equation language: programs as text, checked, run, printed in other languages, raised to graphs.

    from cleave import leir
    p = leir.parse(text)                    # errors of the text have their place, with a caret
    p.check()                               # shapes, bounds, coverage, dependences
    out = p.run({"A": a, "D": d})           # numpy arrays by name; inputs are anything with __dlpack__
    print(p.lower("c"), p.lower("tir"))
    res = cleave.optimize(p.raise_(), ...)  # as a graph

docs/leir.md has the language."""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple

from . import _options
from ._arrays import given, is_torch
from ._errors import InvalidError
from ._leir import LeirProgram as _Program
from .graph import Graph

__all__ = ["Program", "Variable", "parse"]


_NUMPY = {"bf16": "u2", "bool": "?"}


def _input(array: Any, dtype: str):
    """The array of a variable of that type, as the library takes it: bits of bf16 as f32, those of u64 as i64."""
    import numpy

    array = given(array)
    if is_torch(array):
        import torch

        if array.dtype == torch.uint16 and dtype == "bf16":
            return array.view(torch.bfloat16)
        if array.dtype != torch.uint64:
            return array
        array = array.numpy()
    if not isinstance(array, numpy.ndarray):
        return array
    # numpy has no bf16: it is what run() gives, what .npy files have (V2), or the type of ml_dtypes.
    bits = array.dtype.itemsize == 2 and (array.dtype.kind == "V" or array.dtype == "uint16" and dtype == "bf16")
    if bits:
        return (array.view("uint16").astype("uint32") << 16).view("float32")
    if array.dtype == "uint64":
        return array.view("int64") if dtype[0] in "iu" or dtype == "bool" else array.astype("float64")
    return array


class Variable(NamedTuple):
    name: str
    role: str  # in, const, param, out, intermediate
    dtype: str  # "f32", "i16", ..
    shape: tuple[int, ...]


class Verdict(NamedTuple):
    verdict: str  # equal, different or inconclusive
    bitwise: bool  # in storage precision too
    reason: str
    milliseconds: float


class Program:
    """A program that was read. What needs it checked checks it once, and raises cleave.InvalidError with the place."""

    def __init__(self, native: _Program):
        self._native = native

    def __str__(self) -> str:
        return self.text()

    def text(self, compact: bool = False) -> str:
        """The canonical form; `compact` leaves out header, blanks and newlines."""
        return self._native.text(compact)

    def check(self) -> Program:
        self._native.check()
        return self

    @property
    def messages(self) -> str:
        """Warnings and notes so far, as the command prints them."""
        return self._native.messages()

    @property
    def key(self) -> str:
        """Equal for programs that differ in the names of indices and intermediates only."""
        return self._native.key()

    @property
    def variables(self) -> list[Variable]:
        return [Variable(n, r, d, tuple(s)) for n, r, d, s in self._native.variables()]

    def run(self, inputs: Mapping[str, Any], via: str = "jit") -> dict[str, Any]:
        """The outputs as numpy arrays by name; `via` is interpreter, jit, c or cuda (that text as C++). bfloat16 comes as uint16 bits,
        and is taken so, as V2 and as the bfloat16 of torch and ml_dtypes."""
        import numpy

        out = {}
        if not isinstance(inputs, Mapping):
            raise InvalidError(f"`inputs` is a {type(inputs).__name__}, arrays by name are needed", node="inputs")
        types = {v.name: v.dtype for v in self.variables}
        arrays = {_options.text("name", name): _input(array, types.get(name, "")) for name, array in inputs.items()}
        for name, (dtype, shape, data) in self._native.run(arrays, _options.text("via", via)).items():
            dtype = "u64" if types[name] == "u64" else dtype  # whose bits come as i64
            kind = _NUMPY.get(dtype) or f"{dtype[0]}{int(dtype[1:]) // 8}"
            out[name] = numpy.frombuffer(data, dtype=kind).reshape(shape).copy()
        return out

    def lower(self, to: str, target: str = "cpu", fast: bool = False) -> str:
        """The program as "c", "cuda" or "tir" (TVM script for `target` cpu or cuda)."""
        return self._native.lower(to, target, fast)

    def raise_(self, name: str = "leir") -> Graph:
        """The program as a graph; an equation that is none is refused by name."""
        return Graph.parse(self._native.raise_text(name))

    def bench(self, pairs: int = 21, seed: int = 1) -> dict[str, float]:
        """Median seconds on random data: compiled in this process ("jit") and as C at -O3 ("c"), and to compile."""
        return self._native.bench(pairs, seed)

    def verify(self, candidate: Program | str, draws: int = 3, seed: int = 1) -> Verdict:
        """Does the candidate compute what this program does? A text without a header has that of this program."""
        if isinstance(candidate, str):
            candidate = parse(candidate, name="candidate")
        if not isinstance(candidate, Program):
            raise InvalidError(f"the candidate is a {type(candidate).__name__}, a program or its text is needed", node="candidate")
        return Verdict(*self._native.verify(candidate._native, draws, seed))


def parse(text: str, *, name: str = "leir", strict: bool = False, dialect: str = "", dims: Mapping[str, int] | None = None) -> Program:
    """Reads a program. `dialect="paper"` takes only what the paper's language has; `dims` gives integer scalars values."""
    if dialect not in ("", "paper"):
        raise InvalidError(f"`dialect` is {dialect!r}, only 'paper' is another one", node="dialect")
    values = {_options.text("dims", n): _options.whole(f"dims[{n!r}]", v, -2**62, 2**62) for n, v in dict(dims or {}).items()}
    return Program(_Program.parse(_options.text("text", text), name, _options.flag("strict", strict), dialect == "paper", values))
