"""torch.compile(model, backend="cleave"): what the graph language can express becomes compiled islands, the rest stays with
eager. Registered by entry point; `import cleave` is not needed.

    torch.compile(model, backend="cleave", mode="max-autotune", options={"budget": "20s", "freeze": True})

Options: `budget` (seconds, "20s" or "500c", for each island; with a mode of max-autotune 20s, else the cost model's choice is
taken without measuring), `freeze` (parameters become constants of the islands: later changes of them are not seen), `quiet`.
Graphs for training are left to eager as a whole."""

from __future__ import annotations

import functools
import math
import operator
import sys
import threading

import torch
# The order in which torch.compile takes these up: a thread that does so at the same time holds one and waits for the other if it is
# another.
import torch._inductor.compiler_bisector
import torch._dynamo.backends.registry
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupport
from torch.utils import _pytree as pytree

from . import _arrays, _native, _options, aten, aten_checks, calls, fx
from ._errors import Error, InvalidError, raise_flag

_NAMES = ("budget", "freeze", "quiet")
_MODES = {None: None, "default": None, "reduce-overhead": None, "max-autotune": "20s", "max-autotune-no-cudagraphs": "20s"}

# Of the process: graphs that came in, islands that were compiled, graphs of code that had come in before with other shapes or
# constants, operators that were left to eager.
stats = {"graphs": 0, "islands": 0, "recompiles": 0, "eager_nodes": 0}
_lock = threading.Lock()


class _Supported(OperatorSupport):
    def __init__(self, refused):
        super().__init__()
        self.refused = refused

    def is_node_supported(self, submodules, node):
        return node.op == "call_function" and not fx.holds_no_tensor(node) and node.name not in self.refused


def _hint(n) -> int:
    if not isinstance(n, torch.SymInt):
        return int(n)
    return n.node.hint if n.node.hint is not None else 1


def _storage_order(val) -> list | None:
    """The axes from the outermost in memory to the innermost; None where that is their own order."""
    strides = [_hint(n) for n in val.stride()]
    order = sorted(range(val.dim()), key=lambda i: (-strides[i], i))
    return None if order == sorted(order) or 0 in strides else order


def _dense(val) -> bool:
    """Whether the elements fill the memory from its start on, in some order of the axes, for all extents."""
    step = 1
    for axis in reversed(_storage_order(val) or range(val.dim())):
        n = val.shape[axis]
        if not statically_known_true(n == 1) and not statically_known_true(val.stride(axis) == step):
            return False
        step = step * n
    return statically_known_true(val.storage_offset() == 0)


def _viewed(node):
    """What a view is a view of; None for what is none. A part of a split is one of what was split."""
    if node.op != "call_function":
        return None
    of_several = node.target is operator.getitem
    view = node.args[0] if of_several else node
    return view.args[0] if getattr(view.target, "is_view", False) else None


def _returned_views(module) -> set:
    """Views that are returned with a place in memory of their own, and the views that these are views of: they stay views of what
    they are taken from. (The caller may make the same views of an argument that has changed.)"""
    found = set()
    outputs = next(n for n in module.graph.nodes if n.op == "output").args[0]
    for node in outputs if isinstance(outputs, (tuple, list)) else (outputs,):
        if not isinstance(node, torch.fx.Node) or not isinstance(node.meta.get("val"), torch.Tensor) or _dense(node.meta["val"]):
            continue
        while (source := _viewed(node)) is not None:
            found.add(node.name)
            if node.target is operator.getitem:  # all parts are made by one call
                found.update([node.args[0].name, *(part.name for part in node.args[0].users)])
            node = source
    return found


_BYTE = torch.zeros(1, dtype=torch.uint8)


class Island(torch.nn.Module):
    """A part of a graph as a compiled program. Its results have the order of axes in memory that eager's have. `extents` are
    dimensions that no tensor says: their values come behind the other arguments."""

    def __init__(self, module: torch.fx.GraphModule, name: str, constants: dict, budget, search: bool = True):
        super().__init__()
        builder = _native.GraphBuilder(name)
        emitter = aten.Emitter(builder)
        places = [n for n in module.graph.nodes if n.op == "placeholder"]
        shapes = [n.meta["val"].shape for n in places if isinstance(n.meta["val"], torch.Tensor)]
        typical = fx.declare_dims(builder, shapes + [[n.meta["val"] for n in places]])
        said = {str(n) for shape in shapes for n in shape}
        self.extents = [dim for dim in typical if dim not in said]
        self.takes = []
        for i, node in enumerate(places):
            if not isinstance(node.meta["val"], torch.Tensor):
                continue
            if node.name in constants:
                emitter.values[node] = fx.constant(emitter, node, constants[node.name])
                continue
            self.takes.append(i)
            emitter.values[node] = builder.input(node.name, emitter.dtype(node), emitter.shape(node))
        for dim in self.extents:  # as the shape of a tensor that is not read
            builder.input(f"extent_{dim}", "u8", [dim])
        results = fx.emit_nodes(emitter, module.graph, module)
        self.single = isinstance(results, torch.fx.Node)
        self.turns = []  # for each result: how to permute what is computed
        for i, node in enumerate([results] if self.single else results):
            value = emitter.values[node]
            value = value[0] if isinstance(value, tuple) else value
            if value is aten.NOT_MADE:
                value = emitter.value(node)  # refuses it by name
            order = _storage_order(emitter.meta(node)) if isinstance(emitter.meta(node), torch.Tensor) else None
            builder.output(f"out{i}", value if order is None else emitter.add("transpose", value, perm=order))
            self.turns.append(order and [order.index(axis) for axis in range(len(order))])
        emitter.checks.declare()
        self.looks = [(places.index(node), low, extent, asks) for (node, low, extent), asks in emitter.checks.inputs.items()]
        self.graph = graph = builder.build()
        threads = torch.get_num_threads()
        if budget:
            dims = {name: f"{low}..{high}@{typical[name]}" for name, low, high in graph.dims()}
            self.program = _native.optimize(graph, dims, "cpu", budget, threads, 1, False, 0.0, 0.0, None, None).program()
        else:
            self.program = _native.Program.compile(graph, {}, typical, threads, search)
        self.types = [dtype for _, dtype, _ in self.program.outputs()]
        self.flags = [name for name, _, _ in self.program.outputs()[len(self.turns):]]

    def forward(self, *args):
        for i, low, extent, node in self.looks:
            aten_checks.look(args[i], low, extent, node)
        inputs = [_arrays.given(args[i]) for i in self.takes]
        if self.extents:
            inputs += [_BYTE.expand(n) for n in args[-len(self.extents):]]
        shapes = self.program.output_shapes([_arrays.shape(x) for x in inputs])
        outputs = [_arrays.empty(True, dtype, shape) for dtype, shape in zip(self.types, shapes)]
        self.program.run(inputs, outputs, [], _arrays.pool(torch.get_num_threads()))
        for name, flag in zip(self.flags, outputs[len(self.turns):]):
            if flag:
                raise_flag(name)
        outputs = [o if turn is None else o.permute(turn) for o, turn in zip(outputs, self.turns)]
        return outputs[0] if self.single else tuple(outputs)


def _flops(node) -> float:
    """Work of a node: two for each product of a contraction, else one an element of the result."""
    def size(val):
        return math.prod(_hint(n) for n in val.shape)

    val = node.meta.get("val")
    val = val[0] if isinstance(val, (tuple, list)) and val else val
    if not isinstance(val, torch.Tensor):
        return 0.0
    name = aten.name_of(node.target)
    tensors = [a.meta["val"] for a in node.args if isinstance(a, torch.fx.Node) and isinstance(a.meta.get("val"), torch.Tensor)]
    if name in ("aten.mm", "aten.bmm", "aten.matmul", "aten.linear", "aten.addmm", "aten.baddbmm") and tensors:
        first = tensors[-2] if name in ("aten.addmm", "aten.baddbmm") else tensors[0]
        return 2.0 * size(val) * _hint(first.shape[-1])
    if "attention" in name and len(tensors) >= 3:
        return 2.0 * size(tensors[0]) * _hint(tensors[1].shape[-2]) * 2
    if "conv" in name and len(tensors) >= 2:
        return 2.0 * size(val) * size(tensors[1]) / max(1, _hint(tensors[1].shape[0]))
    return float(size(val))


def _elements(node) -> int:
    return sum(math.prod(_hint(n) for n in val.shape) for val in pytree.tree_leaves(node.meta.get("val")) if isinstance(val, torch.Tensor))


def _compile(module: torch.fx.GraphModule, inputs, frozen: dict, budget, quiet: bool):
    nodes = [n for n in module.graph.nodes if n.op == "call_function" and not fx.holds_no_tensor(n)]
    work = {n.name: _flops(n) for n in nodes}
    with unset_fake_temporarily():
        refused = fx.refusals(module)
    views = _returned_views(module)
    left = {n.name: refused.get(n.name, aten.name_of(n.target)) for n in nodes if n.name not in views}
    work.update({name: 0.0 for name in views})
    partitioner = CapabilityBasedPartitioner(module, _Supported({*refused, *views}), allows_single_node_partition=True)
    fused = partitioner.fuse_partitions(partitioner.propose_partitions())
    # The dimensions that come in as numbers.
    dims = {str(n.meta["val"]): n for n in fused.graph.nodes if n.op == "placeholder" and isinstance(n.meta.get("val"), torch.SymInt)}
    islands = 0
    for node in list(fused.graph.nodes):
        if node.op != "call_module":
            continue
        part = fused.get_submodule(node.target)
        inner = [n for n in part.graph.nodes if n.op == "call_function"]
        # What computes no element is not worth a call.
        if not any(_elements(n) for n in inner):
            left.update((n.name, f"{left[n.name]} (no elements)") for n in inner if n.name in left)
            continue
        places = [n for n in part.graph.nodes if n.op == "placeholder"]
        constants = {p.name: frozen[a.name] for p, a in zip(places, node.args) if isinstance(a, torch.fx.Node) and a.name in frozen}
        try:
            with unset_fake_temporarily():  # constants are real tensors
                island = Island(part, f"island{islands}", constants, budget)
            node.args += tuple(dims[dim] for dim in island.extents)
        except (Error, TypeError, KeyError) as error:
            reason = getattr(error, "node", "") or str(error).splitlines()[0]
            for n in inner:
                left[n.name] = f"{aten.name_of(n.target)} (with `{reason}`)"
            continue
        for n in inner:
            left.pop(n.name, None)
        setattr(fused, node.target, island)
        islands += 1
    total = sum(work.values())
    eager = sum(work[n] for n in left)
    compiling = torch._guards.CompileContext.current_compile_id()
    with _lock:
        stats["graphs"] += 1
        stats["recompiles"] += compiling is not None and (compiling.frame_compile_id or 0) > 0
        stats["islands"] += islands
        stats["eager_nodes"] += len(left)
    if not quiet:
        counts = {}
        for reason in left.values():
            counts[reason] = counts.get(reason, 0) + 1
        rest = ", ".join(f"{r}{f' x{c}' if c > 1 else ''}" for r, c in sorted(counts.items(), key=lambda i: -i[1])[:6])
        share = f"{100.0 * (1 - eager / total):.1f} % of the flops" if total else "nothing to compute"
        print(f"cleave: {islands} island{'s' * (islands != 1)}, {share}"
              + (f"; left to eager: {rest}" if rest else ""), file=sys.stderr)
    fused.recompile()
    return fused


@functools.cache
def decompositions() -> dict:
    return fx.decompositions(torch._decomp.core_aten_decompositions())


def _checked(options) -> tuple:
    """budget, freeze and quiet; every value that makes no sense is refused by name."""
    if not isinstance(options, dict):
        raise InvalidError(f"options are a dictionary, not a {type(options).__name__}", node="options", hint='options={"freeze": True}')
    for name in options:
        if name not in _NAMES:
            raise InvalidError(f"the cleave backend has no option `{name}`", node=str(name), hint=f"its options are {', '.join(_NAMES)}")
    given = options.get("budget")
    return (None if given is None else _options.budget(given), _options.flag("freeze", options.get("freeze", False)),
            _options.flag("quiet", options.get("quiet", False)))


def _overlap(inputs, changed) -> bool:
    """Whether an argument that is changed shares memory with another one."""
    spans = [calls.span(t) if isinstance(t, torch.Tensor) else None for t in inputs]
    for i in changed:
        if spans[i] is None:
            continue
        low, high = spans[i]
        if any(j != i and s is not None and s[0] < high and low < s[1] for j, s in enumerate(spans)):
            return True
    return False


def _apart(inputs) -> bool:
    """Whether no two of the arguments that were traced lie in one storage. If two do, the tracing has seen it, and its guards hold."""
    tensors = [t for t in inputs if isinstance(t, torch.Tensor)]
    return len({t.untyped_storage()._cdata for t in tensors}) == len(tensors)


def _aware_of_aliases(module, compiled, changed):
    """Dynamo's guards do not see that views of one tensor come in where separate tensors came before. Where such a view is changed,
    the call is the module's own, operator by operator."""
    def call(*inputs):
        return module(*inputs) if _overlap(inputs, changed) else compiled(*inputs)

    return call


def backend(module: torch.fx.GraphModule, inputs, *, mode=None, options=None):
    budget, freeze, quiet = _checked({} if options is None else options)
    if mode not in _MODES:
        raise InvalidError(f"the mode `{mode}` is not known", node="mode", hint=f"{', '.join(m for m in _MODES if m)}")
    budget = budget or _MODES[mode]

    from torch._dynamo.backends.common import aot_autograd
    from functorch.compile import make_boxed_func

    parameters = [t for t in inputs if isinstance(t, torch.nn.Parameter) or getattr(t, "_dynamo_static_input_type", None)]
    changed = []  # the arguments that the module changes

    def note_changes():
        context = torch._guards.TracingContext.try_get()
        if context is not None and context.fw_metadata is not None:
            changed[:] = context.fw_metadata.mutated_inp_runtime_indices

    def inference(graph, example):
        note_changes()
        frozen = {}
        if freeze:
            places = [n for n in graph.graph.nodes if n.op == "placeholder"]
            if len(places) == len(inputs):
                frozen = {p.name: t for p, t in zip(places, inputs) if any(t is q for q in parameters)}
        return make_boxed_func(_compile(graph, example, frozen, budget, quiet).forward)

    def training(graph, example):
        note_changes()
        if not quiet:
            print("cleave: a graph for training is left to eager (use torch.no_grad() or inference_mode())", file=sys.stderr)
        return make_boxed_func(graph.forward)

    apart = _apart(inputs)
    compiled = aot_autograd(fw_compiler=training, bw_compiler=training, inference_compiler=inference,
                            decompositions=decompositions())(module, inputs)
    return _aware_of_aliases(module, compiled, changed) if changed and apart else compiled


# The registry of torch is not safe for threads that look the backend up for the first time at once: it asks for the entry point,
# and a second registration of the name fails. An import happens once, so the name is registered here, and the entry point is None,
# for which the registry does nothing.
if "cleave" not in torch._dynamo.backends.registry._COMPILER_FNS:
    torch._dynamo.backends.registry.register_backend(compiler_fn=backend, name="cleave")
entry_point = None
