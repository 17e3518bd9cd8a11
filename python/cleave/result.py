"""optimize() and what it gives."""

from __future__ import annotations

import json
import operator
import os
import re
import reprlib
from typing import Any, Callable, Sequence

from . import _arrays, _native, _options
from ._errors import FLAG, InvalidError, UnsupportedError, in_python, raise_flag
from .graph import Graph


def _number(name: str, value, kind):
    try:
        if isinstance(value, (str, bytes, bytearray)):  # what float() reads
            raise TypeError
        return kind(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise InvalidError(f"`{name}` is {reprlib.repr(value)}, a {'whole ' * (kind is not float)}number is needed", node=name,
                           hint=f"program(.., {name}={'1.0' if kind is float else '128'})") from None


def _inputs_text(names) -> str:
    return f"{len(names)} input{'s' * (len(names) != 1)} ({', '.join(names)})"


_ORDER = "arrays come in the order of the inputs, or by their names"


class _NotPickled:
    """Compiled code and what was measured belong to this process and machine: they go elsewhere as an artefact folder."""

    def __reduce_ex__(self, protocol):
        raise UnsupportedError(f"a cleave.{type(self).__name__} cannot be pickled", hint="result.export(folder), then cleave.load(folder)")

    def __copy__(self):
        return self  # nothing about it changes

    def __deepcopy__(self, memo):
        return self


class Program(_NotPickled):
    """A compiled program. Call it with arrays in the order of `inputs` or by their names, scalars by name, and by name the values of dimensions
    that do not follow from the shapes (the longest request of a ragged batch); one that was made from a function or a module
    of PyTorch takes the arguments of that, as Python binds them to its signature. Safe to call from several threads.

    Raises InvalidError for an argument that is missing, unknown or given twice, and for shapes, types and numbers that are not those of
    the program; its `.node` is the argument."""

    def __init__(self, native, threads: int | None = None, exported=None):
        self._native = native
        self._threads = threads  # None: as many as are current at each call
        self._exported = exported
        self.inputs, self.outputs, self.scalars = native.inputs(), native.outputs(), native.scalars()
        # Further outputs that say whether an index was outside its axis (aten_checks.py), behind the others.
        self._flags = [name for name, dtype, shape in self.outputs if name.startswith(FLAG) and dtype == "bool" and not shape]
        self.outputs = self.outputs[:len(self.outputs) - len(self._flags)]

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
        results = self.run(*self._in_order(arrays, scalars), out)
        return results[0] if len(results) == 1 else tuple(results)

    def _in_order(self, arrays, named: dict) -> tuple:
        """The arrays of all inputs, those behind the ones given by position by their names, and what else has a name."""
        names = [name for name, _, _ in self.inputs]
        own = {*(name for name, _, _ in self.scalars), *self._native.dims()}
        if twice := [name for name in names[:len(arrays)] if name in named and name not in own]:
            raise InvalidError(f"the input `{twice[0]}` is given twice, by position and by name", node=twice[0], hint=_ORDER)
        behind = names[len(arrays):]
        if any(name in named for name in behind):
            if missing := [name for name in behind if name not in named]:
                raise InvalidError(f"the input `{missing[0]}` is missing; the program has {_inputs_text(names)}", node=missing[0], hint=_ORDER)
            arrays = [*arrays, *(named[name] for name in behind)]
            named = {name: value for name, value in named.items() if name not in behind}
        elif behind and not self._unknown_of(named):
            raise InvalidError(f"the input `{behind[0]}` is missing: {len(arrays)} arrays are given, the program has {_inputs_text(names)}",
                               node=behind[0], hint=_ORDER)
        return list(arrays), named

    def _unknown_of(self, named) -> list:
        return [name for name in named or {} if not any(name in names for names in self._names().values())]

    def run(self, arrays: Sequence[Any], scalars: dict | None = None, out=None, like=None, fit=None) -> list:
        """All outputs as a list, in memory of their own or in the arrays of `out`. They are of the kind of `like`, else of the arrays.
        `fit` is called when the shapes of the arrays are known to be those of the inputs."""
        if len(arrays) != len(self.inputs):
            if unknown := self._unknown_of(scalars):
                raise self._unknown(unknown[0])
            raise InvalidError(f"{len(arrays)} arrays are given, the program has {_inputs_text([name for name, _, _ in self.inputs])}", hint=_ORDER)
        scalars = dict(scalars or {})
        numbers = []
        for name, _, _ in self.scalars:
            if name not in scalars:
                raise InvalidError(f"the scalar `{name}` is missing", node=name, hint=f"program(..., {name}=1.0)")
            numbers.append(_number(name, scalars.pop(name), float))
        given = [name for name in self._native.dims() if name in scalars] if scalars else []
        dims = {name: _number(name, scalars.pop(name), operator.index) for name in given}
        if scalars:
            raise self._unknown(next(iter(scalars)))
        ready = [_arrays.given(a, name) for a, (name, _, _) in zip(arrays, self.inputs)]
        shapes = self._shapes([_arrays.shape(a) for a in ready], dims, fit or (lambda: None))
        like = arrays if like is None else like
        torch_like = any(_arrays.is_torch(a) for a in like) or self._exported is not None and not like
        if out is None:
            results = written = [_arrays.empty(torch_like, dtype, shape) for (_, dtype, _), shape in zip(self.outputs, shapes)]
        else:
            results = list(out) if isinstance(out, (list, tuple)) else [out]
            written = [_arrays.target(a) for a in results]
            if len(results) != len(self.outputs):
                names = ", ".join(name for name, _, _ in self.outputs)
                raise InvalidError(f"`out` has {len(results)} arrays, the program has {len(self.outputs)} outputs ({names})", node="out")
        flags = [_arrays.empty(torch_like, "bool", []) for _ in self._flags]
        self._native.run(ready, written + flags, numbers, _arrays.pool(self._threads or _arrays.current_threads()), dims)
        for name, flag in zip(self._flags, flags):
            if flag:
                raise_flag(name)
        return results

    def _shapes(self, inputs, dims, fit) -> list:
        """The shapes of the outputs. What `fit` says comes before a bound or an extent inside of the graph that is impossible."""
        try:
            shapes = self._native.output_shapes(inputs, dims)
        except InvalidError as error:
            if error.code == "CLV2005":
                fit()
            raise
        fit()
        return shapes

    def _names(self) -> dict:
        """What a call may give by name."""
        return {"inputs": [name for name, _, _ in self.inputs], "scalars": [name for name, _, _ in self.scalars],
                "open dimensions": self._native.dims()}

    def _unknown(self, name: str) -> InvalidError:
        known = "; ".join(f"its {what} are {', '.join(names)}" for what, names in self._names().items() if names)
        return InvalidError(f"`{name}` is no input, scalar or open dimension of this program", node=name, hint=known)

    def __repr__(self) -> str:
        text = lambda items: ", ".join(f"{n}: {t}{list(s)}" for n, t, s in items)
        return f"<cleave.Program ({text(self.inputs)}) -> ({text(self.outputs)})>"


class Result(_NotPickled):
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
        return [in_python(note) for note in self._found.notes()]

    @property
    def compilations(self) -> int:
        """How much code there is: 1, or 2 once calls were served by the unfused schedule (docs/dynamic.md)."""
        return self.program.compilations

    def source(self, stage: str = "tile") -> str:
        """A stage as text: graph, stabilised, itgraph, tile, leir, vec, llvm, asm."""
        return self._found.source(_options.text("stage", stage))

    def explain(self) -> str:
        """The table of the command, and the steps from the given graph to the chosen one."""
        steps = json.loads(self._found.path_json())
        lines = [str(self).rstrip()]
        for i, step in enumerate(steps.get("steps", steps) if isinstance(steps, dict) else steps):
            lines.append(f"  {i + 1}. " + (step if isinstance(step, str) else json.dumps(step)))
        return "\n".join(lines)

    def report(self, path=None) -> str:
        """One HTML page about all of it, without network: its text, which is also written to `path` if that is given."""
        text = self._found.report()
        path = _options.path("path", path)
        if path is not None:
            try:
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
            except OSError as error:
                raise InvalidError(f"the report cannot be written: {error}", node=os.fspath(path)) from error
        return text

    def export(self, folder) -> str:
        """The artefact folder (docs/cli.md); `cleave run`, `bench` and `check` take it, and cleave.load, which needs call.json in it for
        the arguments and results of a function or module. Warns where these have a type that cannot be written."""
        folder = _options.path("folder", folder, needed=True)
        self._found.save(folder)
        if self.program._exported is not None:
            self.program._exported.save(folder)
        return folder

    def __repr__(self) -> str:
        return f"<cleave.Result {self.speedup:.3f}x, {self.status}>"

    def __str__(self) -> str:
        return in_python(self._found.text())


def load(folder) -> Program:
    """The program of an artefact folder. One that was made of a function or module of PyTorch is called as that, with tensors of its own
    for what the module held, where PyTorch is installed; else it takes the arrays that its graph reads and gives those that it makes.

    Raises InvalidError where the folder is no artefact, or types of the arguments are not registered in this process."""
    folder = _options.path("folder", folder, needed=True)
    native = _native.Program.load(folder)
    if not os.path.exists(os.path.join(folder, "call.json")):
        return Program(native)
    try:
        from .calls import Calls
    except ImportError:  # without torch
        return Program(native)
    return Program(native, exported=Calls.load(folder))


def _is_text(what: str) -> bool:
    """Whether it is a graph itself and not the path of a file."""
    return "\n" in what or ("{" in what or re.match(r"\s*graph\s+\S", what) is not None) and not os.path.exists(what)


def _graph_of(what, args, kwargs, dynamic_shapes):
    """(native graph, Exported or None)"""
    _options.arguments(args, kwargs)
    graph = None
    if isinstance(what, Graph):
        graph = what.native()
    elif isinstance(what, (str, os.PathLike)):
        text = os.fspath(what)
        graph = _native.Graph.parse(text) if isinstance(what, str) and _is_text(text) else _native.Graph.load(text)
    elif isinstance(what, (bytes, bytearray, memoryview)) or hasattr(what, "SerializeToString"):  # an onnx.ModelProto
        graph = Graph.from_onnx(what).native()
    if graph is not None:
        for name, value, instead in (("kwargs", kwargs, "arguments in the order of its inputs"),
                                     ("dynamic_shapes", dynamic_shapes, 'dims={"S": "1..512@128"}')):
            if value:
                raise InvalidError(f"`{name}` is for functions and modules of PyTorch, this is a graph", node=name, hint=instead)
        _options.examples(args, graph.inputs())
        return graph, None
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


def _typical(graph, exported, args, given: dict) -> dict:
    """The extents that are tuned for: of `dims`, else of the example arguments."""
    values = _values(graph, args) if exported is None else dict(exported.typical)
    for name, (low, high, typical) in given.items():
        if typical is not None:
            values[name] = typical
        elif name in values and not low <= values[name] <= high:
            raise InvalidError(f"`dims[{name!r}]` is {low}..{high}, in the example arguments it is {values[name]}", node=name)
    return values


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
    threads = _options.threads(threads)
    checked = (str(target), _options.budget(budget), threads or _arrays.current_threads(), _options.whole("seed", seed, 0, 2**64 - 1),
               _options.flag("deterministic", deterministic), _options.tolerance("rtol", rtol), _options.tolerance("atol", atol),
               _options.path("cache_dir", cache_dir))
    if callback is not None and not callable(callback):
        raise InvalidError(f"`callback` is a {type(callback).__name__}, a function is needed", node="callback")
    graph, exported = _graph_of(what, args, kwargs, dynamic_shapes)
    given = _options.extents(dims, graph.dims())
    typical = _typical(graph, exported, args, given)
    chosen = {}
    for name, low, high in graph.dims():
        low, high = given.get(name, (low, high))[:2]
        if name in given or name in typical:
            chosen[name] = f"{low}..{high}@{typical[name]}" if name in typical else f"{low}..{high}"
    report = None
    if callback is not None:
        def report(tried, candidates, best, seconds):
            callback({"tried": tried, "candidates": candidates, "best_speedup": best, "seconds": seconds})
    return Result(_native.optimize(graph, chosen, *checked, report), threads, exported)


def compile(what, args: Sequence[Any] = (), kwargs: dict | None = None, *, dynamic_shapes=None, dims: dict | None = None,
            threads: int | None = None, search: bool = True) -> Program:
    """The schedule that the cost model prefers, compiled and neither verified nor measured; takes what optimize() takes.
    Dimensions that `dims` leaves open follow from the inputs of each run; one compilation serves them all. It happens now when
    example arguments or `dims` say their typical values, else at the first run. Ctrl-C raises KeyboardInterrupt."""
    threads, search = _options.threads(threads), _options.flag("search", search)
    graph, exported = _graph_of(what, args, kwargs, dynamic_shapes)
    given = _options.extents(dims, graph.dims())
    fixed = {name: low for name, (low, high, _) in given.items() if low == high}
    ranges = {name: (low, high) for name, (low, high, _) in given.items() if low != high}
    typical = {name: value for name, value in _typical(graph, exported, args, given).items() if name not in fixed}
    native = _native.Program.compile(graph, fixed, typical, threads or _arrays.current_threads(), search, ranges)
    return Program(native, threads, exported)
