"""FX graphs of ATen operators, and what torch.export gives, as graphs of Cleave."""

from __future__ import annotations

import inspect
import operator
import os
import re
import threading

import torch
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument
from torch.utils import _pytree as pytree

from . import _arrays, _native, aten, aten_dims, aten_guards
from ._errors import FLAG, NEVER, Error, InvalidError, UnsupportedError
from .calls import Calls, Layout, signature_of

_IGNORED = ("_assert_scalar", "sym_constrain_range", "sym_constrain_range_for_size", "_assert_async")
_HINT = "torch.compile(model, backend=\"cleave\") leaves such parts to eager"
_EXTENTS = ('make the dimension static, or let its extents be multiples of what they are divided by (2 * torch.export.Dim("n")); '
            + _HINT)
_INLINED = ("wrap_with_set_grad_enabled", "wrap_with_autocast")


# Taken apart by PyTorch's formulas for them, which are not among those that export uses.
_TAKEN_APART = ("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d",
                "_upsample_nearest_exact2d", "_upsample_nearest_exact3d", "upsample_linear1d", "upsample_bilinear2d",
                "upsample_trilinear3d", "upsample_bicubic2d", "grid_sampler_2d", "ldexp")


def decompositions(table) -> dict:
    """What is taken apart before it is looked at: everything that has no row of its own."""
    def of_reals(how):
        return lambda x, *args, **named: how(x, *args, **named) if x.is_floating_point() else NotImplemented

    def line(how):
        def between(start, end, steps, *, dtype=None, **named):
            if dtype is None or dtype.is_floating_point or dtype.is_complex:
                return how(start, end, steps, dtype=dtype, **named)
            # Whole numbers are what eager computes from, in float64.
            start, end = (v.to(dtype).to(torch.float64) if isinstance(v, torch.Tensor) else int(v) for v in (start, end))
            return how(start, end, steps, dtype=torch.float64, **named).to(dtype)

        return between

    table = dict(table.items())
    more = torch._decomp.get_decompositions([getattr(torch.ops.aten, name) for name in _TAKEN_APART])
    out = {}
    for op, how in (more | table).items():
        name = aten.name_of(op)
        if "upsample" in name and "nearest" not in name:  # images of integers are resized in other integers than the formulas have
            how = of_reals(how)
        if name not in aten.TABLE:
            out[op] = line(how) if name == "aten.linspace" else how
    return out


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


def attribute(module, path):
    """What a get_attr node names."""
    for part in path.split("."):
        module = getattr(module, part)
    return module


def refusals(module) -> dict:
    """Name of a node -> why it cannot be translated. Every row is tried; what a refused node would give is a new input."""
    builder = _native.GraphBuilder("trial")
    emitter = aten.Emitter(builder)
    why, unreadable = {}, {}
    tensors = [v for n in module.graph.nodes for v in pytree.tree_leaves(n.meta.get("val"))
               if isinstance(v, (torch.Tensor, torch.SymInt))]
    declare_dims(builder, [v.shape if isinstance(v, torch.Tensor) else [v] for v in tensors])

    def given(node):
        made = []
        for i, val in enumerate(pytree.tree_leaves(node.meta.get("val"))):
            known = isinstance(val, torch.Tensor) and val.dtype in aten.DTYPES
            try:
                made.append(builder.input(f"{node.name}_{i}", aten.DTYPES[val.dtype], [aten.extent(n) for n in val.shape]) if known else None)
            except Error as error:  # nothing can read it
                unreadable[node.name] = plain(error)
                made.append(None)
        emitter.values[node] = tuple(made) if isinstance(node.meta.get("val"), (tuple, list)) else made[0] if made else None

    for node in module.graph.nodes:
        if node.op == "get_attr" and isinstance(held := attribute(module, node.target), torch.Tensor):
            node.meta.setdefault("val", held)
            emitter.contents[node] = held
        if node.op != "call_function":
            given(node)
        elif holds_no_tensor(node):
            emitter.values[node] = None
        elif reason := unsupported(node):
            why[node.name] = reason
            given(node)
        elif node.target is operator.getitem:
            source = node.args[0]
            emitter.values[node] = emitter.values[source][node.args[1]]
            if emitter.values[node] is aten.NOT_MADE and node.users:  # the operator stays with eager, and all its results
                why[source.name] = f"{aten.name_of(source.target)} for its other results"
            if source.name in why:
                why |= {user.name: why[source.name] for user in source.users}
                given(node)
        elif any(may_be_negative(n.meta.get("val")) for n in node.all_input_nodes):
            why[node.name] = f"{aten.name_of(node.target)} (with an integer that may be negative)"
            given(node)
        elif bad := next((unreadable[n.name] for n in node.all_input_nodes if n.name in unreadable), ""):
            why[node.name] = f"{aten.name_of(node.target)} ({bad})"
            given(node)
        elif aten.name_of(node.target) not in _INLINED:
            try:
                emitter.values[node] = call_row(emitter, node)
            except Error as error:
                why[node.name] = plain(error).replace(f" (node `{node.name}`)", "")
                given(node)
        else:
            given(node)
    return why


def may_be_negative(val) -> bool:
    """Whether it is a number that comes in and is no extent."""
    if not isinstance(val, torch.SymInt):
        return False
    ranges = val.node.shape_env.var_to_range
    return any(symbol in ranges and bool(ranges[symbol].lower < 0) for symbol in val.node.expr.free_symbols)


def plain(error) -> str:
    """The first line of a message, without the code."""
    return re.sub(r"^error\[CLV\d+\]: ", "", str(error).splitlines()[0])


def call_row(emitter, node):
    emitter.node = node
    name = aten.name_of(node.target)
    function = aten.TABLE.get(name)
    if function is None:
        raise UnsupportedError(f"the operator `{name}` is not supported (node `{node.name}`)", node=node.name, hint=_HINT)
    try:
        return function(emitter, *node.args, **node.kwargs)
    except UnsupportedError as error:
        raise UnsupportedError(f"{error} (node `{node.name}`)", code=error.code, node=node.name, hint=error.hint or _HINT) from None
    except Error as error:
        if isinstance(error, UnsupportedError) or error.node == node.name:
            raise
        raise type(error)(f"`{name}`: {plain(error)} (node `{node.name}`)", code=error.code, node=node.name,
                          hint=error.hint or (_EXTENTS if error.code == "CLV2005" else _HINT)) from None
    except (TypeError, IndexError, KeyError) as error:
        raise UnsupportedError(f"arguments of `{name}` that are not supported: {error} (node `{node.name}`)",
                               node=node.name, hint=_HINT) from error


def emit_nodes(emitter, graph, module):
    """All nodes but placeholders; gives the arguments of the output node."""
    for node in graph.nodes:
        if node.op == "output":
            return node.args[0]
        if node.op == "get_attr" and node not in emitter.values:
            held = attribute(module, node.target)
            if isinstance(held, torch.Tensor):
                emitter.values[node] = constant(emitter, node, held)
                node.meta.setdefault("val", held)
        elif node.op == "call_function" and aten.name_of(node.target) in _INLINED:
            at = next(i for i, a in enumerate(node.args) if isinstance(a, torch.fx.Node) and a.op == "get_attr")
            inner = getattr(module, node.args[at].target)
            places = [n for n in inner.graph.nodes if n.op == "placeholder"]
            for place, given in zip(places, node.args[at + 1:]):
                emitter.values[place] = emitter.values[given]
                emitter.checks.same[place] = given
            results = emit_nodes(emitter, inner.graph, inner)
            emitter.values[node] = tuple(emitter.values[r] for r in results)
        elif node.op == "call_function":
            emitter.values[node] = None if holds_no_tensor(node) else call_row(emitter, node)
    raise InvalidError("the graph has no output")


def constant(emitter, node, tensor, name="") -> int:
    emitter.contents[node] = tensor
    return emitter.builder.constant(name or node.name, _arrays.given(tensor))


def _example(env, symbol):
    """The value of a symbol when the program was traced; None for one that depends on data."""
    return (env.backed_var_to_val if hasattr(env, "backed_var_to_val") else env.var_to_val).get(symbol)


def declare_dims(builder, shapes, ranges=None, least=None, occupied=None, firm=()) -> dict:
    """Declares the dimensions that the extents name, with their ranges; gives the value that each has in the example. Where
    tracing has left out 0 and 1, which it does without asking (but for those that the user began so, `firm`), the range starts at
    `least`, and that of an occupied one at what it needs."""
    seen = {}
    for shape in shapes:
        for n in shape:
            if isinstance(n, torch.SymInt):
                for symbol in n.node.expr.free_symbols:
                    name = aten_dims.symbol_name(symbol)
                    if name not in seen:
                        seen[name] = _example(n.node.shape_env, symbol)
                        bounds = (n.node.shape_env.var_to_range if ranges is None else ranges).get(symbol)
                        low = 0 if bounds is None or bounds.lower < 0 else int(bounds.lower)
                        low = least if least is not None and low == 2 and name not in firm else low
                        low = max(low, (occupied or {}).get(name, 0))
                        high = int(bounds.upper) if bounds is not None and bounds.upper < 2**31 else 2**31
                        builder.dim(name, low, high)
    return {name: int(value) for name, value in seen.items() if value is not None}


class Exported(Calls):
    """A graph made from an ExportedProgram, and how to call it with the arguments of the original."""

    def __init__(self, program: torch.export.ExportedProgram, name: str = "module", axes=None, signature=None):
        """`axes`: of each user input, the name (or None) and the lowest extent of each axis that was declared. `signature`: of the
        function."""
        original = program
        program = program.run_decompositions(decompositions(torch.export.default_decompositions()))
        call = program.module_call_graph[0].signature
        self._spec, self.out_spec = call.in_spec, call.out_spec
        names, self._firm = _dim_names(program, axes)
        with aten_dims.called(names):
            try:
                occupied, doubtful = self._make(program, name, 0)
                if occupied and not doubtful:
                    self._make(program, name, 0, occupied)
            except Error:  # perhaps for the extents 0 and 1, which torch.export itself lets pass unseen
                doubtful = True
            if doubtful:
                occupied, _ = self._make(program, name, None)
                if occupied:
                    self._make(program, name, None, occupied)
            self.guards = aten_guards.of_program(original, program, self.input_names, self.sizes)
        self.layout = Layout(signature or _signature(call), self._spec, self.held)

    def _make(self, program, name, least, occupied=None) -> tuple:
        """Gives the dimensions that have to begin higher than they have been declared, by `occupied`, with their low ends, and whether
        there are extents that have to as well."""
        signature = program.graph_signature
        builder = _native.GraphBuilder(name)
        emitter = aten.Emitter(builder)
        self.held = []  # for each user input in order: None for a tensor, else the list of the value that it had
        self.reads = []
        self.places = {}  # name of a placeholder -> its user input, or the tensor that the module holds
        nodes = [n for n in program.graph.nodes if n.op == "placeholder"]
        self.typical = declare_dims(
            builder, [n.meta["val"].shape for n in nodes if isinstance(n.meta.get("val"), torch.Tensor)], program.range_constraints, least,
            occupied, self._firm)
        tensors = {}  # name in the module -> what it holds
        taken = {n.name for n in nodes}
        changed = {s.target for s in signature.output_specs if s.kind == OutputKind.BUFFER_MUTATION}
        for node, spec in zip(nodes, signature.input_specs):
            if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
                held = program.constants.get(spec.target)
                held = program.state_dict.get(spec.target) if held is None else held
                tensors[spec.target] = held
                self.places[node.name] = held
                known = spec.target.replace(".", "_")  # as the module has it
                known = known if known.isidentifier() and known not in taken else node.name
                taken.add(known)
                if node.users and spec.target in changed:  # read again at each call
                    emitter.values[node] = self.declare(builder, node, held, known)
                elif node.users:
                    emitter.values[node] = constant(emitter, node, held, known)
            elif isinstance(spec.arg, TensorArgument) and spec.kind == InputKind.USER_INPUT:
                self.places[node.name] = len(self.held)
                emitter.values[node] = self.declare(builder, node, len(self.held))
                self.held.append(None)
            elif spec.kind == InputKind.USER_INPUT and isinstance(spec.arg, ConstantArgument):
                self.held.append([spec.arg.value])
            elif spec.kind == InputKind.USER_INPUT:
                raise UnsupportedError(f"the argument `{node.name}` is a number that is open", node=node.name,
                                       hint="only extents of tensors can be: leave it out of dynamic_shapes, or give it as a tensor")
            else:
                raise UnsupportedError(f"inputs of the kind {spec.kind.name.lower()} (`{node.name}`)", node=node.name)
        results = emit_nodes(emitter, program.graph, program.graph_module)
        self.outputs = []
        self.input_names = [n.name for n, s in zip(nodes, signature.input_specs) if s.kind == InputKind.USER_INPUT]
        made = {}
        self.sizes = sizes = aten_dims.Sizes((self.places[n.name], n.meta["val"]) for n in nodes if isinstance(n.meta.get("val"), torch.Tensor))
        for node, spec in zip(results, signature.output_specs):
            if isinstance(spec.arg, ConstantArgument) or not isinstance(node, torch.fx.Node):
                source = ("constant", spec.arg.value if isinstance(spec.arg, ConstantArgument) else node)
            elif node.op == "placeholder" and isinstance(self.places[node.name], (int, torch.Tensor)):
                source = ("place", self.places[node.name])
            elif emitter.values.get(node) is None:
                source = self._number(node, sizes)
            else:
                if node not in made:  # an output that comes twice is one tensor
                    made[node] = len(made)
                    builder.output(f"out{made[node]}", emitter.value(node))
                source = ("value", made[node])
            if spec.kind not in (OutputKind.USER_OUTPUT, OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION):
                raise UnsupportedError(f"outputs of the kind {spec.kind.name.lower()}", node=str(spec.target), hint=_HINT)
            written = None if spec.kind == OutputKind.USER_OUTPUT else (
                tensors[spec.target] if spec.kind == OutputKind.BUFFER_MUTATION else self.input_names.index(spec.target))
            self.outputs.append((source, written, spec.target))
        if not made:  # every output is an input, a size or a constant; a graph has an output, here one that says nothing
            builder.output(f"{FLAG}{NEVER}", emitter.add("ne", *[builder.literal(0.0, "f32")] * 2))
        emitter.checks.declare()
        self.looks = [(self.places[node.name], low, extent, asks) for (node, low, extent), asks in emitter.checks.inputs.items()]
        self.graph = builder.build()
        lows = {name: low for name, low, _ in self.graph.dims()}
        return {name: least for name, least in emitter.occupied.items() if lows.get(name, least) < least}, emitter.doubtful

    @staticmethod
    def _number(node, sizes) -> tuple:
        """An output that is a number: computed from the sizes of the inputs at each call."""
        val = node.meta.get("val")
        if isinstance(val, (bool, int, float)):
            return "constant", val
        if not isinstance(val, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            raise UnsupportedError(f"the output `{node.name}` is neither a tensor nor a number", node=node.name, hint=_HINT)
        return "size", *sizes.of(val, node.name)

    def declare(self, builder, node, source, name="") -> int:
        val = node.meta["val"]
        self.reads.append(source)
        return builder.input(name or node.name, aten.Emitter.dtype_name(val.dtype), [aten.extent(n) for n in val.shape])


def _signature(call):
    """What an ExportedProgram tells of the function's signature."""
    names, count = getattr(call, "forward_arg_names", None), call.in_spec.child(0).num_children
    if not names or not all(name.isidentifier() for name in names):
        return None
    kinds = [inspect.Parameter.POSITIONAL_OR_KEYWORD] * count + [inspect.Parameter.KEYWORD_ONLY] * (len(names) - count)
    return inspect.Signature([inspect.Parameter(name, kind) for name, kind in zip(names, kinds)])


def _dim_names(program, given) -> tuple:
    """What each dimension of a program is called: as the user did, else after the first axis that has it (x_0); and those whose range
    the user began at 2 or more."""
    names, firm, taken = {}, set(), {"max", "min"}  # words of the graph language
    specs = program.graph_signature.input_specs
    places = [n for n, s in zip([n for n in program.graph.nodes if n.op == "placeholder"], specs) if s.kind == InputKind.USER_INPUT]
    given = given if given is not None and len(given) == len(places) else [{}] * len(places)
    for place, axes in zip(places, given):
        val = place.meta.get("val")
        for axis, n in enumerate(val.shape if isinstance(val, torch.Tensor) else ()):
            symbols = n.node.expr.free_symbols if isinstance(n, torch.SymInt) else ()
            if len(symbols) != 1 or str(next(iter(symbols))) in names:
                continue
            name, low = axes.get(axis, (None, 0))
            name = name or f"{place.name}_{axis}"
            while name in taken:
                name += "_"
            taken.add(name)
            firm |= {name} if low > 1 else set()
            names[str(next(iter(symbols)))] = name
    return names, firm


def _declared_axes(module, args, kwargs, dynamic_shapes):
    """Of each tensor among the arguments, {axis: (name or None, lowest extent)}; None where the structure is not understood."""
    from torch.export import dynamic_shapes as shapes

    if dynamic_shapes is None:
        return None
    try:
        if isinstance(dynamic_shapes, shapes.ShapesCollection):
            dynamic_shapes = dynamic_shapes.dynamic_shapes(module, args, kwargs)
        combined = shapes._combine_args(module, args, kwargs)
        if isinstance(dynamic_shapes, (tuple, list)):
            dynamic_shapes = combined.__class__(zip(combined, dynamic_shapes))
        found = []

        def note(path, array, axes):
            axes = dict(enumerate(axes)) if isinstance(axes, (tuple, list)) else axes if isinstance(axes, dict) else {}
            roots = {axis: getattr(dim, "root", dim) for axis, dim in axes.items()}
            low = lambda dim: least if isinstance(least := getattr(dim, "min", None), int) else 0
            found.append({axis: (name if isinstance(name := getattr(dim, "__name__", None), str) else None, low(dim))
                          for axis, dim in roots.items() if dim is not None})

        shapes._tree_map_with_path(note, combined, dynamic_shapes, tree_name="inputs")
        return found
    except Exception:  # torch's own, which may be others in another version: names only read better
        return None


def _module_of(function):
    """A function as a module, as torch.export wants it: with the function's own parameters, which dynamic_shapes names."""
    module = torch.nn.Module()
    # Compiled ones have no signature.
    module.forward = function if signature_of(function) is not None else lambda *args, **kwargs: function(*args, **kwargs)
    return module


# torch.export keeps what it is tracing in the process: one thread at a time.
_tracing = threading.RLock()


def _after_fork():
    global _tracing
    _tracing = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


def export(what, args, kwargs=None, dynamic_shapes=None) -> Exported:
    """A function, a module or an ExportedProgram. `dynamic_shapes` is torch.export's. Threads take turns."""
    with _tracing:
        return _export(what, args, kwargs, dynamic_shapes)


def _export(what, args, kwargs, dynamic_shapes) -> Exported:
    if isinstance(what, torch.export.ExportedProgram):
        return Exported(what)
    name = getattr(what, "__name__", type(what).__name__)
    if isinstance(what, torch.nn.Module):
        if any(m.training and isinstance(m, (torch.nn.Dropout, torch.nn.modules.batchnorm._BatchNorm)) for m in what.modules()):
            raise UnsupportedError("the module is in training mode", hint="module.eval()")
        module = what
    else:
        module = _module_of(what)
    try:
        with torch.no_grad():
            program = torch.export.export(module, tuple(args), dict(kwargs or {}), dynamic_shapes=dynamic_shapes, strict=False)
    except Exception as error:  # torch.export raises many kinds
        hint = ("torch.export.Dim.AUTO instead of the Dim: a condition on sizes is then asked at each call" if "Constraints violated" in str(error) else
                "torch.export.draft_export(...) explains what it could not trace" if args or kwargs else
                "PyTorch traces it on example arguments, a tuple behind it: (module, (x,))")
        raise InvalidError(f"torch.export: {error}", hint=hint) from error
    axes = _declared_axes(module, tuple(args), dict(kwargs or {}), dynamic_shapes)
    return Exported(program, "".join(c if c.isalnum() else "_" for c in name) or "module", axes, signature_of(what))
