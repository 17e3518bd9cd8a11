"""optimize() and what it gives."""

from __future__ import annotations

import json
import os
from typing import Any, Callable, Sequence

from . import _arrays, _native
from ._errors import InvalidError, UnsupportedError
from .graph import Graph


class Program:
    """A compiled program. Call it with arrays in the order of `inputs`; scalars go by name. Safe to call from several threads."""

    def __init__(self, native, threads: int = 1):
        self._native = native
        self._pool = _native.Threads(threads) if threads > 1 else None
        self.inputs, self.outputs, self.scalars = native.inputs(), native.outputs(), native.scalars()

    @property
    def compilations(self) -> int:
        """How many sets of extents there is code for."""
        return self._native.compilations()

    def __call__(self, *arrays, out=None, **scalars):
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
        if scalars:
            raise InvalidError(f"`{next(iter(scalars))}` is no scalar of this program")
        ready = [_arrays.given(a) for a in arrays]
        shapes = self._native.output_shapes([_arrays.shape(a) for a in ready])
        torch_like = any(_arrays.is_torch(a) for a in arrays)
        if out is None:
            results = [_arrays.empty(torch_like, dtype, shape) for (_, dtype, _), shape in zip(self.outputs, shapes)]
        else:
            results = list(out) if isinstance(out, (list, tuple)) else [out]
        self._native.run(ready, results, numbers, self._pool)
        return results

    def __repr__(self) -> str:
        text = lambda items: ", ".join(f"{n}: {t}{list(s)}" for n, t, s in items)
        return f"<cleave.Program ({text(self.inputs)}) -> ({text(self.outputs)})>"


class Result:
    """What optimize() found: always a verified program; where nothing was faster, the graph as it was given."""

    def __init__(self, native, graph, threads: int, exported=None, open_dims: dict | None = None):
        self._found = native
        self._graph = graph
        self._exported = exported
        self._threads = threads
        self.program = Program(native.program(), threads)
        self._open = None
        self._open_dims = open_dims or {}
        self._json = json.loads(native.json())

    # -- running ------------------------------------------------------------------------------------------------------
    def __call__(self, *args, out=None, **kwargs):
        """Arrays in the order of the inputs (or the arguments of the function or module that was optimised). Results are torch
        tensors if an input is, else numpy arrays."""
        if self._exported is not None:
            return self._exported.call(self._run, args, kwargs)
        results = self._run(list(args), kwargs, out)
        return results[0] if len(results) == 1 else tuple(results)

    def _run(self, arrays, scalars=None, out=None):
        return self._for(arrays).run(arrays, scalars, out)

    def _for(self, arrays) -> Program:
        # Extents other than those that were tuned: code that the cost model chooses, made once for each set.
        if self._open_dims:
            for array, (_, _, shape) in zip(arrays, self.program.inputs):
                if [int(n) for n in array.shape] != [int(n) for n in shape]:
                    if self._open is None:
                        self._open = Program(_native.Program.compile(self._graph, {}, self._threads), self._threads)
                    return self._open
        return self.program

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
    def notes(self) -> list:
        return self._found.notes()

    @property
    def compilations(self) -> int:
        return self.program.compilations + (self._open.compilations if self._open else 0)

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
    return Program(_native.Program.load(os.fspath(folder)), _arrays.current_threads())


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
    if hasattr(what, "SerializeToString"):  # an onnx.ModelProto
        raise UnsupportedError("an ONNX model in memory", hint="save it and give its path")
    module = type(what).__module__
    if callable(what) or module.startswith("torch."):
        import sys

        if "torch" not in sys.modules:
            raise InvalidError("a function can be optimised when it is made of PyTorch operators", hint="import torch")
        from . import fx

        exported = fx.export(what, args, kwargs, dynamic_shapes)
        return exported.graph, exported
    raise InvalidError(f"a {type(what).__name__} cannot be optimised",
                       hint="a function or module of PyTorch, an ExportedProgram, a cleave.Graph, a .graph or .onnx file")


def _dims(graph, args, given: dict) -> dict:
    """name -> "low..high@value" for each open dimension: the value from the arguments, or as given."""
    import re

    open_dims = {name: (low, high) for name, low, high in graph.dims()}
    values = {}
    for array, (_, _, shape) in zip(args, graph.inputs()):
        for have, want in zip(getattr(array, "shape", ()), shape):
            if isinstance(want, str) and re.fullmatch(r"\w+", want) and want in open_dims:
                values.setdefault(want, int(have))
    out = {}
    for name, (low, high) in open_dims.items():
        if name in given:
            out[name] = str(given[name])
        elif name in values:
            out[name] = f"{low}..{high}@{values[name]}"
    for name in given:
        if name not in open_dims:
            raise InvalidError(f"the graph has no dimension `{name}`", node=name,
                               hint=f"its dimensions are {', '.join(open_dims) or 'none'}")
    return out


def optimize(what, args: Sequence[Any] = (), kwargs: dict | None = None, *, dynamic_shapes=None, dims: dict | None = None,
             target: str = "cpu", budget="60s", threads: int | None = None, seed: int = 1, deterministic: bool = False,
             rtol: float = 0.0, atol: float = 0.0, cache_dir: str | None = None,
             callback: Callable[[dict], None] | None = None) -> Result:
    """Import, search, schedule, compile, verify and measure.

    what: a function or module of PyTorch, an ExportedProgram, a cleave.Graph, the path or the text of a graph, an .onnx path.
    args, kwargs: example arguments: their shapes are what is tuned for. A graph with fixed shapes needs none.
    dynamic_shapes: exactly torch.export's structures. dims: extents of a graph's dimensions, {"S": 128} or {"S": "1..512@128"}.
    budget: seconds, "60s", "5m", "500c" (candidates) or None. Ctrl-C keeps the best so far (status "interrupted").
    threads: default: as many as torch uses now, else OMP_NUM_THREADS, else all cores.
    callback: gets {"tried", "candidates", "best_speedup", "seconds"} as the search goes on.

    Raises cleave.Error: InvalidError, UnsupportedError, VerifyError, ToolchainError; each with code, node and hint."""
    graph, exported = _graph_of(what, args, kwargs, dynamic_shapes)
    tensors = args
    if exported is not None:
        from torch.utils import _pytree as pytree

        flat = pytree.tree_leaves((tuple(args), dict(kwargs or {})))
        tensors = [a for a, index in zip(flat, exported.user_inputs) if index is not None]
    chosen = _dims(graph, tensors, dict(dims or {}))
    threads = threads or _arrays.current_threads()
    report = None
    if callback is not None:
        def report(tried, candidates, best, seconds):
            callback({"tried": tried, "candidates": candidates, "best_speedup": best, "seconds": seconds})
    found = _native.optimize(graph, chosen, target, _budget(budget), threads, seed, deterministic, rtol, atol, cache_dir, report)
    return Result(found, graph, threads, exported, {n: v for n, v in chosen.items() if ".." in v})


def compile(what, args: Sequence[Any] = (), kwargs: dict | None = None, *, dynamic_shapes=None, dims: dict | None = None,
            threads: int | None = None, search: bool = True) -> Program:
    """The schedule that the cost model prefers, compiled and not measured. Dimensions that `dims` leaves open follow from the
    inputs of each run. Functions and modules: use optimize(..., deterministic=True)."""
    graph, exported = _graph_of(what, args, kwargs, dynamic_shapes)
    if exported is not None:
        raise UnsupportedError("compile() of a function or module", hint="cleave.optimize(..., deterministic=True)")
    threads = threads or _arrays.current_threads()
    return Program(_native.Program.compile(graph, dict(dims or {}), threads, search), threads)
