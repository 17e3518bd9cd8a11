"""PyTorch to LEIR, through torch.export.

One nest group for each operator of the exported graph. Views (transpose, unsqueeze, expand, slices, reshapes that split
axes) cost nothing: they change the subscripts of what reads them. Of f16 and bf16
programs only inputs, outputs and written casts are 16 bits: what lies between is kept in f32, and rounded once where it is
stored (`intermediates="own"` keeps each result in its own type, with sums in f32 that are stored once; `accumulate="target"`
accumulates in that type too). Every operator follows PyTorch's meaning for equal
extents, groups, bias, ceil mode, ties and large values; one that has no handler is refused by name.
"""

import math
from dataclasses import dataclass, field

import torch

from . import indexing, nn, ops
from .ops import HANDLERS, Value
from .text import Writer

_ = nn, indexing  # register their handlers

DTYPES = {
    torch.float16: "f16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.bfloat16: "bf16",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint8: "u8",
    torch.bool: "bool",
}


class Unsupported(Exception):
    """Operators that have no LEIR form here; `.operators` lists them all."""

    def __init__(self, operators):
        super().__init__("no LEIR form of: " + ", ".join(sorted(operators)))
        self.operators = sorted(operators)


@dataclass
class Program:
    text: str
    header: str
    inputs: dict = field(default_factory=dict)  # name -> tensor: inputs, constants and parameters
    outputs: list = field(default_factory=list)  # names

    @property
    def full(self):
        return self.header + self.text


class Translation:
    """The state of one translation: what handlers get."""

    def __init__(self, accumulate="f32"):
        self.w = Writer()
        self.accumulate = accumulate
        self.header = []  # (role, name, dtype, shape)
        self.reads_only = set()  # names that are inputs

    def accumulator(self, dtype):
        return "f32" if dtype in ("f16", "bf16") and self.accumulate == "f32" else dtype

    # -- making values ------------------------------------------------------------------------------------------

    def new(self, dtype, shape):
        return Value.variable(self.w.variable(), dtype, list(shape))

    def known(self, role, tensor):
        v = self.new(DTYPES[tensor.dtype], tensor.shape)
        self.header.append((role, v.name, v.dtype, v.shape))
        self.reads_only.add(v.name)
        return v

    def map(self, dtype, shape, element, into=None):
        """A new variable whose element at indices ix is the text element(ix)."""
        out = into or self.new(dtype, shape)
        loops, ix, _ = self.w.loops(out.shape)
        self.w.nest(loops, f"{out.at(ix)}={element(ix)}")
        return out

    def reduce(self, dtype, shape, inner, term, kind="+", into=None):
        """out[ix] = reduction over r of term(ix, r); kind is +, *, max or min."""
        out = into or self.new(dtype, shape)
        loops, ix, r = self.w.loops(out.shape, inner)
        target, text = out.at(ix), term(ix, r)
        value = f"{kind}({target},{text})" if kind in ("max", "min") else f"{target}{kind}{text}"
        self.w.nest(loops, f"{target}={value}")
        return out

    def stored(self, value):
        """The value as a variable of its own: a copy of a view or a constant."""
        return value if value.name else self.map(value.dtype, value.shape, value.at)

    def settle(self, value, dtype):
        """A value in another dtype: the store after an accumulation in f32."""
        return value if value.dtype == dtype else self.map(dtype, value.shape, value.at)


def translate(module, inputs, accumulate="f32", intermediates="f32"):
    """The LEIR of `module` on `inputs` (a tuple of tensors). Raises Unsupported."""
    wide = intermediates == "f32" and accumulate == "f32"
    ops.KEPT = {"f16": "f32", "bf16": "f32"} if wide else {}
    try:
        return _translate(module, inputs, accumulate)
    finally:
        ops.KEPT = {}


def _missing(graph):
    """The operators of the graph that have no handler."""
    calls = (str(n.target) for n in graph.nodes if n.op == "call_function")
    return {name for name in calls if name not in HANDLERS and "getitem" not in name}


def _decomposed(exported):
    """Operators without a handler as PyTorch itself takes them apart; all others stay."""
    table = torch.export.default_decompositions()
    for operator in list(table.keys()):
        if str(operator) in HANDLERS:
            del table[operator]
    exported = exported.run_decompositions(table)
    exported.graph.eliminate_dead_code()
    return exported


def _translate(module, inputs, accumulate):
    module = module.eval()
    exported = torch.export.export(module, tuple(inputs))
    exported.graph.eliminate_dead_code()
    if _missing(exported.graph):
        exported = _decomposed(exported)
    graph = exported.graph
    if missing := _missing(graph):
        raise Unsupported(missing)
    t = Translation(accumulate)
    values, tensors = {}, {}
    signature = exported.graph_signature
    roles = {}
    state = dict(exported.state_dict)
    state.update(exported.constants)
    users = iter(inputs)
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    kinds = {s.arg.name: s for s in signature.input_specs if hasattr(s.arg, "name")}
    found = []
    for n in placeholders:
        spec = kinds[n.name]
        kind = spec.kind.name
        if kind == "USER_INPUT":
            found.append((0, n, "in", next(users)))
        elif kind == "PARAMETER":
            found.append((2, n, "param", state[spec.target]))
        else:
            found.append((1, n, "const", state[spec.target]))
    # Inputs first, then constants, then parameters; those that nothing reads are left out, except inputs.
    for order, n, role, tensor in sorted(found, key=lambda f: f[0]):
        if not isinstance(tensor, torch.Tensor):
            values[n] = tensor
            continue
        if order and not n.users:
            continue
        values[n] = t.known(role, tensor)
        tensors[values[n].name] = tensor.detach()
    del roles
    results = None
    for n in graph.nodes:
        if n.op == "call_function":
            args = _values(n.args, values)
            kwargs = _values(n.kwargs, values)
            if "getitem" in str(n.target):
                values[n] = args[0][args[1]]
                values[n] = values[n]() if callable(values[n]) else values[n]
                continue
            meta = n.meta.get("val")
            values[n] = HANDLERS[str(n.target)](t, meta, *args, **kwargs)
        elif n.op == "output":
            results = n.args[0] if isinstance(n.args[0], (list, tuple)) else [n.args[0]]
    outputs, names = [], []
    for node in results:
        value = _values(node, values)
        if not isinstance(value, Value):
            continue
        value = t.settle(value, ops.stored_dtype(node.meta["val"]))
        if not value.name or value.name in t.reads_only or value.name in names:
            value = t.map(value.dtype, value.shape, value.at)
        names.append(value.name)
        outputs.append(value)
    for v in outputs:
        t.header.append(("out", v.name, v.dtype, v.shape))
    header = "".join(f"{r} {n} {d}[{','.join(map(str, s))}];\n" for r, n, d, s in t.header)
    return Program("\n".join(t.w.lines) + "\n", header, tensors, names)


def _values(args, values):
    if isinstance(args, torch.fx.Node):
        return values[args]
    if isinstance(args, (list, tuple)):
        return type(args)(_values(a, values) for a in args)
    if isinstance(args, dict):
        return {k: _values(v, values) for k, v in args.items()}
    if isinstance(args, torch.dtype):
        return DTYPES.get(args, args)
    if isinstance(args, (torch.SymInt, torch.SymFloat)):
        raise Unsupported({"symbolic extents"})
    return args


def size_of(shape):
    return math.prod(shape)
