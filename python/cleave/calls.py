"""How a program that was made of PyTorch is called: its arguments bind as Python binds them to the function's own signature, lie flat in
the order of its graph's inputs, and what the graph gives becomes what the function gives. All of it is plain data, kept in the artefact
folder as call.json, and tensors that the module holds as call.pt."""

from __future__ import annotations

import inspect
import json
import numbers
import os
import reprlib
import warnings

import torch
from torch.utils import _pytree as pytree

from . import _arrays, aten_checks, aten_guards
from ._errors import InvalidError

_FILE, _TENSORS, _FORMAT = "call.json", "call.pt", "cleave.call/1"
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_CONSTANT = "what is no tensor is part of the compiled program: compile it again for another value"
_KINDS = {"int": int, "float": float, "bool": bool}


class _Unsaved:
    """A default that no text tells: it equals nothing but itself."""

    def __init__(self, text):
        self.text = text

    def __repr__(self):
        return self.text


def _same(value, made) -> bool:
    """Whether a value is the one that a program was made for. Types count: a product with 3.0 has another type than one with 3."""
    if value is made:
        return True
    value, made = (v.item() if type(v).__module__ == "numpy" and not getattr(v, "ndim", 1) else v for v in (value, made))
    if type(value) is not type(made) or isinstance(value, torch.Tensor):
        return False
    try:
        return bool(value == made or value != value and made != made)
    except (ValueError, RuntimeError, TypeError):  # of arrays
        return False


class _Word:
    def __init__(self, text):
        self.text = text

    def __repr__(self):
        return self.text


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80


def _shown(value) -> str:
    """A value in a message: a tensor is only that."""
    if hasattr(value, "shape"):
        return "a tensor"
    tree = pytree.tree_map(lambda v: _Word("tensor") if hasattr(v, "shape") else v, value)
    return repr(tree) if isinstance(value, (tuple, list, dict)) else _SHORT.repr(value)


def _alike(value, made):
    """Dictionaries of a value in the order that those of the example had."""
    if type(value) is not type(made):
        return value
    if type(made) is dict and value.keys() == made.keys():
        return {key: _alike(value[key], made[key]) for key in made}
    if type(made) in (list, tuple) and len(value) == len(made):
        return type(made)(map(_alike, value, made))
    return value


def signature_of(function):
    """The signature of a function or of a module's forward; None where Python knows none."""
    try:
        return inspect.signature(function.forward if isinstance(function, torch.nn.Module) else function)
    except (TypeError, ValueError):
        return None


class Layout:
    """The arguments of a call as a flat list."""

    def __init__(self, signature, spec, held):
        """`spec`: of (args, kwargs) as they were given when the program was made. `held`: of each leaf None for a tensor, else the list
        of its value."""
        self.spec, self.held = spec, held
        self.args, self.kwargs = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)  # the numbers of the leaves
        try:
            made = signature.bind(*self.args, **self.kwargs)
        except (AttributeError, TypeError):  # there is none, or a wrapper passes others on
            signature = None
        self.signature = signature
        self.known = {} if signature is None else {name: made.arguments[name] for name in made.arguments}
        names = [p.name for p in self._of(inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)]
        more = [p.name for p in self._of(inspect.Parameter.VAR_POSITIONAL)]
        self.names = names[:len(self.args)]
        self.names += [f"{more[0]}[{i}]" if more else str(i) for i in range(len(self.args) - len(self.names))]

    def _of(self, *kinds) -> list:
        return [] if self.signature is None else [p for p in self.signature.parameters.values() if p.kind in kinds]

    def flat(self, args, kwargs) -> list:
        """The leaves of a call, checked against what the program was made for."""
        if kwargs or self.kwargs or len(args) != len(self.args):
            args, kwargs = self._bound(args, kwargs)
        given = []
        for name, value, made in [*zip(self.names, args, self.args), *((k, kwargs[k], made) for k, made in self.kwargs.items())]:
            if type(made) is int:  # a leaf
                self._leaf(name, value, made)
                given.append(value)
                continue
            leaves, spec = pytree.tree_flatten(_alike(value, made))
            if spec != pytree.tree_structure(made):
                raise self._other(name, value, self._example(made))
            for at, leaf in zip(pytree.tree_leaves(made), leaves):
                self._leaf(name, leaf, at)
            given += leaves
        return given

    def _leaf(self, name, value, at):
        held = self.held[at]
        if held is not None:
            if not _same(value, held[0]):
                raise self._other(name, value, held[0])
        elif not hasattr(value, "shape"):
            if value is None or type(value) in (tuple, list, dict):
                raise self._other(name, value, _Word("a tensor"))
            if not isinstance(value, numbers.Number):
                _arrays.given(value, name)  # says what it is

    def _example(self, made):
        """A part of the arguments as the program was made for it."""
        return pytree.tree_map(lambda at: _Word("tensor") if self.held[at] is None else self.held[at][0], made)

    def _other(self, name, value, made, default="") -> InvalidError:
        tensor = isinstance(made, _Word)
        return InvalidError(f"the argument `{name}` is {_shown(value)}, the program was made for {_shown(made)}{default}", node=name,
                            hint=self._hint() if tensor or isinstance(made, (tuple, list, dict)) else _CONSTANT)

    def _hint(self) -> str:
        """How it is called."""
        if self.signature is None:
            return f"it was made for {self._text(self.args, self.kwargs)}"
        plain = [p.replace(annotation=p.empty, default=p.default if p.default is p.empty else _Word(_shown(p.default)))
                 for p in self.signature.parameters.values()]
        return f"its arguments are {inspect.Signature(plain)}"

    def _text(self, args, kwargs) -> str:
        words = lambda tree: repr(self._example(tree))
        return f"({', '.join([words(a) for a in args] + [f'{name}={words(value)}' for name, value in kwargs.items()])})"

    def _bound(self, args, kwargs) -> tuple:
        """The arguments by position and by name as they were given when the program was made."""
        if self.signature is None:
            if unknown := [name for name in kwargs if name not in self.kwargs]:
                raise self._wrong(unknown[0], "is none that the program was made for")
            if missing := [name for name in self.kwargs if name not in kwargs]:
                raise self._wrong(missing[0], "is missing")
            if len(args) != len(self.args):
                raise InvalidError(f"{len(args)} arguments are given by position, the program was made for {len(self.args)}", hint=self._hint())
            return args, kwargs
        try:
            bound = self.signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise self._misfit(args, kwargs, error) from None
        by_place, by_name = [], {}
        for name, p in self.signature.parameters.items():
            made = self.known.get(name)
            if p.kind == p.VAR_POSITIONAL:
                more = bound.get(name, ())
                if len(more) != len(made or ()):
                    raise InvalidError(f"{len(more)} arguments are given for `*{name}`, the program was made for {len(made or ())}", node=name,
                                       hint=self._hint())
                by_place += more
            elif p.kind == p.VAR_KEYWORD:
                more, made = bound.get(name, {}), made or {}
                if odd := [key for key in [*more, *made] if key not in made or key not in more]:
                    raise self._wrong(odd[0], "is missing" if odd[0] in made else "is none that the program was made for")
                by_name |= more
            elif name in self.known:
                value = bound.get(name, p.default)
                if name not in bound and made.__class__ is int and self.held[made] is None and not hasattr(value, "shape"):
                    raise self._wrong(name, "is missing: the program was made for a tensor")
                if name in self.kwargs:
                    by_name[name] = value
                else:
                    by_place.append(value)
            elif not _same(bound.get(name, p.default), p.default):
                raise self._other(name, bound[name], p.default, ", its default")
        return by_place, by_name

    def _wrong(self, name, text) -> InvalidError:
        return InvalidError(f"the argument `{name}` {text}", node=name, hint=self._hint())

    def _misfit(self, args, kwargs, error) -> InvalidError:
        """What Python has against a call."""
        one, both, word = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
        places, by_name = self._of(one, both), {p.name for p in self._of(both, word)}
        if twice := [p.name for p in places[:len(args)] if p.kind == both and p.name in kwargs]:
            return self._wrong(twice[0], "is given twice, by position and by name")
        if len(args) > len(places) and not self._of(inspect.Parameter.VAR_POSITIONAL):
            return InvalidError(f"{len(args)} arguments are given by position, there are {len(places)}", hint=self._hint())
        if not self._of(inspect.Parameter.VAR_KEYWORD) and (unknown := [name for name in kwargs if name not in by_name]):
            return self._wrong(unknown[0], "is given by name, and has none" if unknown[0] in [p.name for p in places] else "is none of the program")
        given = {p.name for p in places[:len(args)]} | (by_name & kwargs.keys())
        missing = [p.name for p in [*places, *self._of(word)] if p.default is p.empty and p.name not in given]
        return self._wrong(missing[0], "is missing") if missing else InvalidError(f"the arguments: {error}", hint=self._hint())


def _of_size(parts, spec):
    """The tree of a result from an iterator of leaves. (PyTorch makes a plain tuple of a torch.Size.)"""
    if spec.is_leaf():
        return next(parts)
    inner = [_of_size(parts, child) for child in spec.children_specs]
    return torch.Size(inner) if spec.type is torch.Size else pytree.SUPPORTED_NODES[spec.type].unflatten_fn(inner, spec.context)


class Calls:
    """A program's way from arguments to results. Made by fx.Exported, or read from an artefact folder.

    layout: Layout. reads: for each of the graph's inputs, the number of the argument, or the buffer's tensor. looks: what is looked at
    before a run: (argument or tensor, lowest index, extent, the node that asks). outputs: (source, written, name): a source is ("value",
    number of the graph's output) | ("place", argument or tensor) | ("size", code, type) | ("constant", value); written: None for a
    result, else the argument or tensor that becomes it, which has the name."""

    def call(self, run, args, kwargs):
        """`run` maps the tensors that the graph reads to its outputs; what comes in as numpy arrays goes out as these."""
        given = self.layout.flat(args, kwargs)
        self._check_written(given)
        for source, low, extent, node in self.looks:
            aten_checks.look(given[source] if isinstance(source, int) else source, low, extent, node)
        arrays = [a for a, held in zip(given, self.layout.held) if held is None]
        results = run([given[source] if isinstance(source, int) else source for source in self.reads], like=arrays,
                      fit=lambda: self.guards.check(given))

        def value(kind, what, kind_of=None):
            if kind == "value":
                return results[what]
            if kind == "size":
                return _KINDS[kind_of](aten_guards.value(what, given))
            return given[what] if kind == "place" and isinstance(what, int) else what

        changes = [(source, self._target(written, given)) for source, written, _ in self.outputs if written is not None]
        # All that is written is known before anything is: an input may become what another one was.
        new = [value(*source) if source[0] == "value" else torch.as_tensor(value(*source)).clone() for source, _ in changes]
        for (_, array), content in zip(changes, new):
            _assign(array, content)
        became = {source[1]: array for source, array in changes if source[0] == "value"}
        numpy = arrays and not any(isinstance(a, torch.Tensor) for a in arrays)
        out = [became[source[1]] if source[0] == "value" and source[1] in became else value(*source)
               for source, written, _ in self.outputs if written is None]
        if numpy:
            out = [v.detach().numpy() if isinstance(v, torch.Tensor) and v.dtype != torch.bfloat16 else v for v in out]
        return _of_size(iter(out), self.out_spec)

    @staticmethod
    def _target(written, given):
        """What an output is written to."""
        return given[written] if isinstance(written, int) else written

    def _check_written(self, given):
        """What the program changes can be written, and no other argument shares its memory: the graph reads all before anything is changed."""
        for _, written, target in self.outputs:
            if written is None:
                continue
            mine = self._target(written, given)
            if why := _unwritable(mine):
                raise InvalidError(f"the program changes `{target}`, {why}", node=target, hint=f"give a copy as `{target}`")
            for at, (name, other) in enumerate(zip(self.input_names, given)):
                if hasattr(other, "shape") and not (isinstance(written, int) and at == written) and _share_memory(mine, other):
                    raise InvalidError(f"`{target}` and the argument `{name}` share memory, and the program changes `{target}`",
                                       node=target, hint=f"give a clone as `{name}`")

    # -- the artefact folder --------------------------------------------------------------------------------------------
    def save(self, folder):
        """Leaves call.json in the folder; warns where an argument or result has a type that has no text."""
        tensors = []

        def plain(source):
            if not isinstance(source, torch.Tensor):
                return source
            at = next((i for i, t in enumerate(tensors) if t is source), len(tensors))
            if at == len(tensors):
                tensors.append(source)
            return {"tensor": at}

        signature = None if self.layout.signature is None else [
            [p.name, int(p.kind), p.default is not p.empty] + ([p.default] if _is_plain(p.default) else [None, _shown(p.default)])
            for p in self.layout.signature.parameters.values()]
        try:
            text = json.dumps({"schema": _FORMAT, "in": pytree.treespec_dumps(self.layout.spec), "out": pytree.treespec_dumps(self.out_spec),
                               "signature": signature, "held": self.layout.held, "names": self.input_names, "reads": [plain(s) for s in self.reads],
                               "looks": [[plain(s), *rest] for s, *rest in self.looks], "guards": self.guards.asked,
                               "outputs": [[[kind, plain(what), *more], plain(written), target]
                                           for (kind, what, *more), written, target in self.outputs]}, indent=1)
        except (TypeError, NotImplementedError) as error:
            warnings.warn(f"{folder}: cleave.load will give a program that takes the inputs of the graph and gives its outputs, as the "
                          f"arguments and results of the function cannot be written: {error}", stacklevel=3)
            return
        try:
            with open(os.path.join(folder, _FILE), "w", encoding="utf-8") as file:
                file.write(text)
            if tensors:
                torch.save([t.detach() for t in tensors], os.path.join(folder, _TENSORS))
        except (OSError, RuntimeError) as error:
            raise InvalidError(f"the call cannot be written: {error}", node=folder, hint="is the disk full?") from error

    @staticmethod
    def load(folder) -> Calls | None:
        """What `save` left; None where there is nothing."""
        path = os.path.join(folder, _FILE)
        if not os.path.exists(path):
            return None
        try:
            with open(path, encoding="utf-8") as file:
                read = json.load(file)
            if read["schema"] != _FORMAT:
                raise ValueError(f"it has the schema {read['schema']}")
            tensors = os.path.join(folder, _TENSORS)
            held = torch.load(tensors, weights_only=True) if os.path.exists(tensors) else []
            real = lambda source: held[source["tensor"]] if isinstance(source, dict) and "tensor" in source else source
            self = Calls()
            parameter, no = inspect.Parameter, inspect.Parameter.empty
            signature = read["signature"] and inspect.Signature([
                parameter(name, inspect._ParameterKind(kind), default=(_Unsaved(*more) if more else default) if has else no)
                for name, kind, has, default, *more in read["signature"]])
            self.layout = Layout(signature, pytree.treespec_loads(read["in"]), read["held"])
            self.out_spec, self.input_names = pytree.treespec_loads(read["out"]), read["names"]
            self.reads, self.looks = [real(s) for s in read["reads"]], [(real(s), *rest) for s, *rest in read["looks"]]
            self.outputs = [((kind, real(what), *more), real(written), target) for (kind, what, *more), written, target in read["outputs"]]
            self.guards = aten_guards.Guards(read["guards"])
            return self
        except Exception as error:  # torch's own are of many kinds
            raise InvalidError(f"`{path}` cannot be read: {error}", node=path,
                               hint="import what registers the types of the arguments; without the file, the program takes arrays") from error


def _is_plain(value) -> bool:
    """Whether JSON gives it back as it is."""
    if type(value) is list:
        return all(map(_is_plain, value))
    return value is None or type(value) in (bool, int, float, str)


def _assign(array, value):
    with torch.no_grad():
        if isinstance(array, torch.Tensor):
            array.copy_(torch.as_tensor(value))
        else:
            array[...] = value.detach().numpy() if isinstance(value, torch.Tensor) else value


def _unwritable(array) -> str:
    """Why nothing can be written to an argument."""
    if isinstance(array, torch.Tensor):
        if array.is_inference() and not torch.is_inference_mode_enabled():
            return "a tensor that was made in inference mode, which nothing changes outside of it"
        strides = array.stride() if array.layout == torch.strided else ()
    elif type(array).__module__ != "numpy" or not hasattr(array, "flags"):
        return f"and a {type(array).__name__} is neither a tensor nor an array of numpy"
    elif not array.flags.writeable:
        return "a read-only array"
    else:
        strides = array.strides
    return "whose elements share memory" if any(n > 1 and s == 0 for n, s in zip(array.shape, strides)) else ""


def span(array):
    """The memory that an array covers, (first byte, behind the last); None for what has none."""
    array = array if isinstance(array, torch.Tensor) else torch.as_tensor(array)
    if array.layout != torch.strided or array.numel() == 0:
        return None
    start = array.data_ptr()
    return start, start + array.element_size() * (1 + sum((n - 1) * s for n, s in zip(array.shape, array.stride())))


def _share_memory(a, b) -> bool:
    a, b = span(a), span(b)
    return a is not None and b is not None and a[0] < b[1] and b[0] < a[1]
