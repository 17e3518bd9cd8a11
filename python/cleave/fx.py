"""FX graphs of ATen operators, and what torch.export gives, as graphs of Cleave."""

from __future__ import annotations

import torch
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument
from torch.utils import _pytree as pytree

from . import _arrays, _native, aten
from ._errors import InvalidError, UnsupportedError

_IGNORED = ("_assert_scalar", "sym_constrain_range", "sym_constrain_range_for_size", "_assert_async")
_INLINED = ("wrap_with_set_grad_enabled", "wrap_with_autocast")


def holds_no_tensor(node) -> bool:
    """A dimension, an assertion on dimensions, or arithmetic on them: metas carry what is needed of these."""
    val = node.meta.get("val")
    return isinstance(val, (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool)) or any(
        aten.name_of(node.target).endswith(n) for n in _IGNORED)


def unsupported(node) -> str:
    """Why a node cannot be translated, as far as its name and types tell; empty if it can."""
    if node.op != "call_function" or holds_no_tensor(node):
        return ""
    name = aten.name_of(node.target)
    if name not in aten.TABLE and name not in _INLINED:
        return name
    reads = [a.meta.get("val") for a in node.all_input_nodes]
    for val in pytree.tree_leaves((node.meta.get("val"), reads)):
        if isinstance(val, torch.Tensor):
            if val.dtype not in aten.DTYPES:
                return f"{name} of {val.dtype}"
            if val.device.type != "cpu":
                return f"{name} on {val.device}"
    return ""


def call_row(emitter, node):
    emitter.node = node
    name = aten.name_of(node.target)
    function = aten.TABLE.get(name)
    if function is None:
        raise UnsupportedError(f"the operator `{name}` is not supported (node `{node.name}`)", node=node.name,
                               hint="torch.compile(model, backend=\"cleave\") leaves such parts to eager")
    try:
        return function(emitter, *node.args, **node.kwargs)
    except UnsupportedError as error:
        raise UnsupportedError(f"{error} (node `{node.name}`)", code=error.code, node=node.name, hint=error.hint) from None
    except (TypeError, IndexError, KeyError) as error:
        raise UnsupportedError(f"arguments of `{name}` that are not supported: {error} (node `{node.name}`)",
                               node=node.name) from error


def emit_nodes(emitter, graph, module):
    """All nodes but placeholders; gives the arguments of the output node."""
    for node in graph.nodes:
        if node.op == "output":
            return node.args[0]
        if node.op == "get_attr" and node not in emitter.values:
            held = module
            for part in node.target.split("."):
                held = getattr(held, part)
            if isinstance(held, torch.Tensor):
                emitter.values[node] = constant(emitter, node.name, held)
                node.meta.setdefault("val", held)
        elif node.op == "call_function" and aten.name_of(node.target) in _INLINED:
            at = next(i for i, a in enumerate(node.args) if isinstance(a, torch.fx.Node) and a.op == "get_attr")
            inner = getattr(module, node.args[at].target)
            places = [n for n in inner.graph.nodes if n.op == "placeholder"]
            for place, given in zip(places, node.args[at + 1:]):
                emitter.values[place] = emitter.values[given]
            results = emit_nodes(emitter, inner.graph, inner)
            emitter.values[node] = tuple(emitter.values[r] for r in results)
        elif node.op == "call_function":
            emitter.values[node] = None if holds_no_tensor(node) else call_row(emitter, node)
    raise InvalidError("the graph has no output")


def constant(emitter, name, tensor) -> int:
    return emitter.builder.constant(name, _arrays.given(tensor))


def _example(env, symbol):
    """The value of a symbol when the program was traced; None for one that depends on data."""
    return (env.backed_var_to_val if hasattr(env, "backed_var_to_val") else env.var_to_val).get(symbol)


def declare_dims(builder, shapes, ranges=None) -> dict:
    """Declares the dimensions that the extents name, with their ranges; gives the value that each has in the example."""
    seen = {}
    for shape in shapes:
        for n in shape:
            if isinstance(n, torch.SymInt):
                for symbol in n.node.expr.free_symbols:
                    if str(symbol) not in seen:
                        seen[str(symbol)] = _example(n.node.shape_env, symbol)
                        bounds = (n.node.shape_env.var_to_range if ranges is None else ranges).get(symbol)
                        low = max(0, int(bounds.lower)) if bounds is not None else 0
                        high = int(bounds.upper) if bounds is not None and bounds.upper < 2**31 else 2**31
                        builder.dim(str(symbol), low, high)
    return {name: int(value) for name, value in seen.items() if value is not None}


class Exported:
    """A graph made from an ExportedProgram, and how to call it with the arguments of the original."""

    def __init__(self, program: torch.export.ExportedProgram, name: str = "module"):
        table = torch.export.default_decompositions()
        for op in list(table):
            if aten.name_of(op) in aten.TABLE:
                table.pop(op)
        program = program.run_decompositions(table)
        self.module_call = program.module_call_graph[0].signature
        signature = program.graph_signature
        builder = _native.GraphBuilder(name)
        emitter = aten.Emitter(builder)
        self.user_inputs = []  # for each user input in order: its index among the graph's inputs, or None
        self.places = {}  # name of a placeholder -> its user input, or the tensor that the module holds
        nodes = [n for n in program.graph.nodes if n.op == "placeholder"]
        self.typical = declare_dims(
            builder, [n.meta["val"].shape for n in nodes if isinstance(n.meta.get("val"), torch.Tensor)], program.range_constraints)
        tensors = 0
        self.held = {}
        for node, spec in zip(nodes, signature.input_specs):
            if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
                held = program.constants.get(spec.target)
                held = program.state_dict.get(spec.target) if held is None else held
                self.held[spec.target] = held
                self.places[node.name] = held
                if node.users:
                    emitter.values[node] = constant(emitter, node.name, held)
            elif isinstance(spec.arg, TensorArgument) and spec.kind == InputKind.USER_INPUT:
                self.places[node.name] = len(self.user_inputs)
                val = node.meta["val"]
                emitter.values[node] = builder.input(node.name, emitter.dtype_name(val.dtype), [aten.extent(n) for n in val.shape])
                self.user_inputs.append(tensors)
                tensors += 1
            elif spec.kind == InputKind.USER_INPUT:
                self.user_inputs.append(None)
            else:
                raise UnsupportedError(f"inputs of the kind {spec.kind.name.lower()} (`{node.name}`)", node=node.name)
        results = emit_nodes(emitter, program.graph, program.graph_module)
        # For each output: ("value", index among the graph's outputs) | ("input", user input) | ("constant", value) and what
        # to do with it.
        self.outputs = []
        count = 0
        for node, spec in zip(results, signature.output_specs):
            if isinstance(spec.arg, ConstantArgument) or not isinstance(node, torch.fx.Node):
                source = ("constant", spec.arg.value if isinstance(spec.arg, ConstantArgument) else node)
            elif node.op == "placeholder" and isinstance(self.places[node.name], (int, torch.Tensor)):
                source = ("place", self.places[node.name])
            elif emitter.values.get(node) is None:
                raise UnsupportedError(f"the output `{node.name}` is no tensor of the graph", node=node.name)
            else:
                value = emitter.values[node]
                builder.output(f"out{count}", value[0] if isinstance(value, tuple) else value)
                source = ("value", count)
                count += 1
            if spec.kind not in (OutputKind.USER_OUTPUT, OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION):
                raise UnsupportedError(f"outputs of the kind {spec.kind.name.lower()}")
            self.outputs.append((source, spec.kind, spec.target))
        if count == 0:
            raise InvalidError("nothing is computed: every output is an input or a constant")
        self.graph = builder.build()
        self.input_names = [n.name for n, s in zip(nodes, signature.input_specs) if s.kind == InputKind.USER_INPUT]

    def call(self, run, args, kwargs):
        """`run` maps the tensors that the graph reads to its outputs."""
        given, spec = pytree.tree_flatten((args, kwargs))
        if len(given) != len(self.user_inputs):
            raise InvalidError(f"{len(given)} arguments are given, the program has {len(self.user_inputs)}")
        tensors = [g for g, index in zip(given, self.user_inputs) if index is not None]
        results = run(tensors)
        out = []
        for (kind, what), use, target in self.outputs:
            value = results[what] if kind == "value" else what if kind == "constant" else (
                given[what] if isinstance(what, int) else what)
            if use == OutputKind.USER_OUTPUT:
                out.append(value)
            elif use == OutputKind.BUFFER_MUTATION:
                self.held[target].copy_(value)
            else:
                given[self.input_names.index(target)].copy_(value)
        return pytree.tree_unflatten(out, self.module_call.out_spec)


class _Call(torch.nn.Module):
    """A function as a module, as torch.export wants it."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args, **kwargs):
        return self.function(*args, **kwargs)


def export(what, args, kwargs=None, dynamic_shapes=None) -> Exported:
    """A function, a module or an ExportedProgram. `dynamic_shapes` is torch.export's."""
    if isinstance(what, torch.export.ExportedProgram):
        return Exported(what)
    name = getattr(what, "__name__", type(what).__name__)
    if isinstance(what, torch.nn.Module):
        if any(m.training and isinstance(m, (torch.nn.Dropout, torch.nn.modules.batchnorm._BatchNorm)) for m in what.modules()):
            raise UnsupportedError("the module is in training mode", hint="module.eval()")
        module = what
    else:
        module = _Call(what)
        if isinstance(dynamic_shapes, dict):  # by the names of the function's parameters
            import inspect

            names = [p for p in inspect.signature(what).parameters][:len(args)]
            dynamic_shapes = ([dynamic_shapes.get(n) for n in names],) if names else None
            dynamic_shapes = (tuple(dynamic_shapes[0]),)
        elif dynamic_shapes is not None:
            dynamic_shapes = (tuple(dynamic_shapes),)
    try:
        with torch.no_grad():
            program = torch.export.export(module, tuple(args), dict(kwargs or {}), dynamic_shapes=dynamic_shapes, strict=False)
    except Exception as error:  # torch.export raises many kinds
        raise InvalidError(f"torch.export: {error}", hint="torch.export.draft_export(...) explains what it could not trace") from error
    return Exported(program, "".join(c if c.isalnum() else "_" for c in name) or "module")
