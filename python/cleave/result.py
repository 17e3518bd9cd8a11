"""optimize() and what it gives."""

from __future__ import annotations

import json
import os
from typing import Any, Callable, Sequence

from . import _arrays, _native
from ._errors import InvalidError
from .graph import Graph


class Program:
    """A compiled program. Call it with arrays in the order of `inputs`, scalars by name, and by name the values of dimensions
    that do not follow from the shapes (the longest request of a ragged batch); one that was made from a function or a module
    of PyTorch takes the arguments of that. Safe to call from several threads."""

    def __init__(self, native, threads: int | None = None, exported=None):
        self._native = native
        self._threads = threads  # None: as many as are current at each call
        self._exported = exported
        self.inputs, self.outputs, self.scalars = native.inputs(), native.outputs(), native.scalars()

    @property
    def dims(self) -> list:
        """The names of the dimensions that are open."""
        return self._native.dims()

    @property
    def compilations(self) -> int:
        """How much code there is: one compilation serves every extent; 2 once the unfused schedule was needed too."""
        return self._native.compilations()

    def __call__(self, *arrays, out=None, **scalars):
        if self._exported is not None:
            if out is not None:
                raise InvalidError("`out` is for graphs: functions and modules make their results", node="out")
            return self._exported.call(self.run, arrays, scalars)
        results = self.run(list(arrays), scalars, out)
        return results[0] if len(results) == 1 else tuple(results)

    def run(self, arrays: Sequence[Any], scalars: dict | None = None, out=None) -> list:
        """All outputs as a list, in memory of their own or in the arrays of `out`."""
        if len(arrays) != len(self.inputs):
            names = ", ".join(name for name, _, _ in self.inputs)
            raise InvalidError(f"{len(arrays)} arrays are given, the program has {len(self.inputs)} inputs ({names})")
        scalars = dict(scalars or {})
        numbers = []
        for name, _, _ in self.scalars:
            if name not in scalars:
                raise InvalidError(f"the scalar `{name}` is missing", node=name, hint=f"program(..., {name}=1.0)")
            numbers.append(float(scalars.pop(name)))
        dims = {name: int(scalars.pop(name)) for name in self._native.dims() if name in scalars} if scalars else {}
        if scalars:
            raise InvalidError(f"`{next(iter(scalars))}` is no scalar and no open dimension of this program")
        ready = [_arrays.given(a) for a in arrays]
        shapes = self._native.output_shapes([_arrays.shape(a) for a in ready], dims)
        torch_like = self._exported is not None or any(_arrays.is_torch(a) for a in arrays)
        if out is None:
            results = [_arrays.empty(torch_like, dtype, shape) for (_, dtype, _), shape in zip(self.outputs, shapes)]
        else:
            results = list(out) if isinstance(out, (list, tuple)) else [out]
        self._native.run(ready, results, numbers, _arrays.pool(self._threads or _arrays.current_threads()), dims)
        return results

    def __repr__(self) -> str:
        text = lambda items: ", ".join(f"{n}: {t}{list(s)}" for n, t, s in items)
        return f"<cleave.Program ({text(self.inputs)}) -> ({text(self.outputs)})>"


class Result:
    """What optimize() found: always a verified program; where nothing was faster, the graph as it was given."""

    def __init__(self, native, threads: int | None, exported=None):
        self._found = native
        self.program = Program(native.program(), threads, exported)
        self._json = json.loads(native.json())

    # -- running ------------------------------------------------------------------------------------------------------
    def __call__(self, *args, out=None, **kwargs):
        """Arrays in the order of the inputs (or the arguments of the function or module that was optimised). Results are torch
        tensors if an input is, else numpy arrays."""
        return self.program(*args, out=out, **kwargs)

    # -- what was found -------------------------------------------------------------------------------------------------
    @property
    def speedup(self) -> float:
        """Over our unfused schedule of the graph as given; 1.0 when that was kept."""
        return self._found.speedup()

    @property
    def status(self) -> str:
        """"complete", "budget" or "interrupted"."""
        return self._found.status()

    @property
    def error(self) -> dict:
        """max_abs, max_rel, baseline_max_rel, bound, ..: against float64."""
        return self._json["error"]

    @property
    def details(self) -> dict:
        """The whole report (schema cleave.result/1)."""
        return self._json

    @property
    def certificate(self):
        """The steps that prove the chosen graph equal to the given one; None when it is the given one."""
        text = self._found.certificate()
        return json.loads(text) if text else None

    @property
    def candidates(self) -> list:
        return [json.loads(line) for line in self._found.candidates_jsonl().splitlines() if line]

    @property
    def coverage(self) -> float:
        """The share of the arithmetic that the algebra could work on, 0 to 1."""
        return self._found.coverage()

    @property
    def left_out(self) -> dict:
        """The operators that the algebra took as they are ("gather (2x)"), each with the reason."""
        return {entry["operator"]: entry["why"] for entry in self._json["coverage"]["left_out"]}

    @property
    def memory(self) -> dict:
        """Bytes of intermediates in a call ("workspace"), the same if none shared memory ("without_reuse"), of constants in
        another layout ("packed")."""
        return self._json["memory"]

    @property
    def notes(self) -> list:
        return self._found.notes()

    @property
    def compilations(self) -> int:
        """How much code there is: 1, or 2 once calls were served by the unfused schedule (docs/dynamic.md)."""
        return self.program.compilations

    def source(self, stage: str = "tile") -> str:
        """A stage as text: graph, stabilised, itgraph, tile, vec, llvm, asm."""
        return self._found.source(stage)

    def explain(self) -> str:
        """The table of the command, and the steps from the given graph to the chosen one."""
        steps = json.loads(self._found.path_json())
        lines = [self._found.text().rstrip()]
        for i, step in enumerate(steps.get("steps", steps) if isinstance(steps, dict) else steps):
            lines.append(f"  {i + 1}. " + (step if isinstance(step, str) else json.dumps(step)))
        return "\n".join(lines)

    def report(self, path=None) -> str:
        """One HTML page about all of it, without network: its text, which is also written to `path` if that is given."""
        text = self._found.report()
        if path is not None:
            try:
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
            except OSError as error:
                raise InvalidError(f"the report cannot be written: {error}", node=os.fspath(path)) from error
        return text

    def export(self, folder) -> str:
        """The artefact folder (docs/cli.md); `cleave run`, `bench` and `check` take it, and cleave.load."""
        self._found.save(os.fspath(folder))
        return os.fspath(folder)

    def __repr__(self) -> str:
        return f"<cleave.Result {self.speedup:.3f}x, {self.status}>"

    def __str__(self) -> str:
        return self._found.text()


def load(folder) -> Program:
    """The program of an artefact folder."""
    return Program(_native.Program.load(os.fspath(folder)))


def _budget(budget) -> str:
    if budget is None:
        return "none"
    return f"{budget}s" if isinstance(budget, (int, float)) else str(budget)


def _graph_of(what, args, kwargs, dynamic_shapes):
    """(native graph, Exported or None)"""
    if isinstance(what, Graph):
        return what.native(), None
    if isinstance(what, (str, os.PathLike)):
        text = os.fspath(what)
        return (_native.Graph.parse(text) if "\n" in text else _native.Graph.load(text)), None
    if isinstance(what, (bytes, bytearray, memoryview)) or hasattr(what, "SerializeToString"):  # an onnx.ModelProto
        return Graph.from_onnx(what).native(), None
    module = type(what).__module__
    if callable(what) or module.startswith("torch."):
        import sys

        if "torch" not in sys.modules:
            raise InvalidError("a function can be optimised when it is made of PyTorch operators", hint="import torch")
        from . import fx

        exported = fx.export(what, args, kwargs, dynamic_shapes)
        return exported.graph, exported
    raise InvalidError(f"a {type(what).__name__} cannot be optimised",
                       hint="a function or module of PyTorch, an ExportedProgram, a cleave.Graph, a .graph or .onnx file, "
                            "an ONNX model in memory")


def _values(graph, args) -> dict:
    """The values of dimensions that the shapes of arrays mean."""
    names = {name for name, _, _ in graph.dims()}
    out = {}
    for array, (_, _, shape) in zip(args, graph.inputs()):
        for have, want in zip(getattr(array, "shape", ()), shape):
            if want in names:
                out.setdefault(want, int(have))
    return out


def _dims(graph, values: dict, given: dict) -> dict:
    """name -> "low..high@value" for each open dimension: the value of the example, or what is given."""
    out = {}
    for name, low, high in graph.dims():
        if name in given:
            out[name] = str(given.pop(name))
        elif name in values:
            out[name] = f"{low}..{high}@{values[name]}"
    for name in given:
        names = ", ".join(n for n, _, _ in graph.dims())
        raise InvalidError(f"the graph has no dimension `{name}`", node=name, hint=f"its dimensions are {names or 'none'}")
    return out


def optimize(what, args: Sequence[Any] = (), kwargs: dict | None = None, *, dynamic_shapes=None, dims: dict | None = None,
             target: str = "cpu", budget="60s", threads: int | None = None, seed: int = 1, deterministic: bool = False,
             rtol: float = 0.0, atol: float = 0.0, cache_dir: str | None = None,
             callback: Callable[[dict], None] | None = None) -> Result:
    """Import, search, schedule, compile, verify and measure.

    what: a function or module of PyTorch, an ExportedProgram, a cleave.Graph, the path or the text of a graph, an .onnx path,
        an onnx.ModelProto or its bytes.
    args, kwargs: example arguments: their shapes are what is tuned for. A graph with fixed shapes needs none.
    dynamic_shapes: exactly torch.export's structures. dims: extents of a graph's dimensions, {"S": 128} or {"S": "1..512@128"}.
    budget: seconds, "60s", "5m", "500c" (candidates) or None. Ctrl-C keeps the best so far (status "interrupted").
    threads: default: as many as torch uses now, else OMP_NUM_THREADS, else all cores.
    callback: gets {"tried", "candidates", "best_speedup", "seconds"} as the search goes on.

    Raises cleave.Error: InvalidError, UnsupportedError, VerifyError, ToolchainError; each with code, node and hint."""
    graph, exported = _graph_of(what, args, kwargs, dynamic_shapes)
    chosen = _dims(graph, _values(graph, args) if exported is None else exported.typical, dict(dims or {}))
    report = None
    if callback is not None:
        def report(tried, candidates, best, seconds):
            callback({"tried": tried, "candidates": candidates, "best_speedup": best, "seconds": seconds})
    found = _native.optimize(graph, chosen, target, _budget(budget), threads or _arrays.current_threads(), seed,
                             deterministic, rtol, atol, cache_dir, report)
    return Result(found, threads, exported)


def compile(what, args: Sequence[Any] = (), kwargs: dict | None = None, *, dynamic_shapes=None, dims: dict | None = None,
            threads: int | None = None, search: bool = True) -> Program:
    """The schedule that the cost model prefers, compiled and neither verified nor measured; takes what optimize() takes.
    Dimensions that `dims` leaves open follow from the inputs of each run; one compilation serves them all. It happens now when
    example arguments say their typical values, else at the first run. Ctrl-C raises KeyboardInterrupt."""
    graph, exported = _graph_of(what, args, kwargs, dynamic_shapes)
    typical = _values(graph, args) if exported is None else exported.typical
    fixed = dict(dims or {})
    typical = {name: value for name, value in typical.items() if name not in fixed}
    native = _native.Program.compile(graph, fixed, typical, threads or _arrays.current_threads(), search)
    return Program(native, threads, exported)
