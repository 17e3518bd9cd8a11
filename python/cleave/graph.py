"""Graphs of tensor operators: read from files and texts, or built operator by operator."""

from __future__ import annotations

import numbers

from . import _native, _options
from ._errors import InvalidError, UnsupportedError

_BINARY = {"add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floordiv", "mod": "mod", "pow": "pow"}
_COMPARE = {"lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "eq": "eq", "ne": "ne"}


def _real(value, dtype: str) -> float:
    """A literal's number: a real of 53 bits, whatever its type."""
    if not isinstance(value, numbers.Real):
        raise InvalidError(f"{value!r} is no number")
    if dtype.startswith(("i", "u")) and isinstance(value, numbers.Integral) and abs(value) > 1 << 53 and int(float(value)) != value:
        raise InvalidError(f"error[CLV1004]: the number `{value}` does not fit a literal", code="CLV1004",
                           hint="g.constant(name, np.int64(..)) holds integers of 64 bits")
    return float(value)


class Value:
    """A value of a graph that is being built. Arithmetic and comparisons make further values."""

    __slots__ = ("graph", "id")
    __array_priority__ = 1000  # numpy leaves arithmetic with a Value to it

    def __init__(self, graph: "Graph", id: int):
        self.graph = graph
        self.id = id

    @property
    def dtype(self) -> str:
        return self.graph._builder().dtype(self.id)

    @property
    def shape(self) -> tuple:
        return tuple(self.graph._builder().shape(self.id))

    def __neg__(self):
        return self.graph.op("neg", self)

    def __matmul__(self, other: "Value"):
        """The product over the last axis of self and the last but one of other; leading axes broadcast."""
        if not isinstance(other, Value):
            raise InvalidError(f"an operand of `@` is a {type(other).__name__}, a value of the graph is needed")
        a, b = len(self.shape), len(other.shape)
        if a < 2 or b < 2:
            raise InvalidError("`@` needs two axes at least on both sides", hint='g.op("contract", x, y, spec="i k, k j -> i j")')
        lead = [f"b{i}" for i in range(max(a, b) - 2)]
        x, y = lead[len(lead) - (a - 2):] + ["i", "k"], lead[len(lead) - (b - 2):] + ["k", "j"]
        spec = f"{' '.join(x)}, {' '.join(y)} -> {' '.join(lead + ['i', 'j'])}"
        return self.graph.op("contract", self, other, spec=spec)

    def __bool__(self):
        raise InvalidError("a value of a graph has no truth value while the graph is built",
                           hint="g.where(condition, x, y) chooses between values, g.logical_and(a, b) and its like join conditions")

    __hash__ = object.__hash__  # a key of dictionaries by what it is, though `==` makes a value

    def __repr__(self):
        return f"<cleave.Value {self.dtype}{list(self.shape)}>"


def _arithmetic(op):
    def forward(self, other):
        if op in ("eq", "ne") and not isinstance(other, (Value, numbers.Real)):
            return NotImplemented  # as None: not the same
        return self.graph.op(op, self, other)

    def backward(self, other):
        return self.graph.op(op, other, self)

    return forward, backward


for _name, _op in {**_BINARY, **_COMPARE}.items():
    _forward, _backward = _arithmetic(_op)
    setattr(Value, f"__{_name}__", _forward)
    if _name in _BINARY:
        setattr(Value, f"__r{_name}__", _backward)


class Graph:
    """A graph of tensor operators. `Graph.load` and `Graph.parse` read one; otherwise it is built:

        g = cleave.Graph("norm")
        x = g.input("X", ("S", 4096), "f32")
        g.output(g.op("rms_norm", x, axes=[-1], eps=1e-6), "Y")

    Extents are numbers or texts of dimensions ("S", "S // 2"). `cleave show --operators` lists the operators; each is also a
    method: g.rms_norm(x, axes=[-1])."""

    def __init__(self, name: str = "graph"):
        self._open = _native.GraphBuilder(_options.text("name", name))
        self._done = None
        self._outputs = 0

    @classmethod
    def load(cls, path) -> "Graph":
        """A .graph text or an .onnx model."""
        return cls._of(_native.Graph.load(_options.path("path", path, needed=True)))

    @classmethod
    def from_onnx(cls, model, name: str = "model", folder: str = "") -> "Graph":
        """An ONNX model in memory: an onnx.ModelProto or its bytes. `folder` is where its external data lies, if it has any."""
        try:
            data = model.SerializeToString() if hasattr(model, "SerializeToString") else bytes(model)
        except Exception as error:  # protobuf's own, for more than 2 GB
            raise InvalidError(f"the ONNX model cannot be serialised: {error}",
                               hint="save it with external data and give its path") from error
        return cls._of(_native.Graph.from_onnx(data, name, str(folder)))

    @classmethod
    def parse(cls, text: str, name: str = "graph", folder: str = "") -> "Graph":
        """The graph language (docs/graph.md)."""
        return cls._of(_native.Graph.parse(_options.text("text", text), _options.text("name", name), str(folder)))

    @classmethod
    def _of(cls, native) -> "Graph":
        self = cls.__new__(cls)
        self._open, self._done, self._outputs = None, native, len(native.outputs())
        return self

    def __reduce_ex__(self, protocol):
        raise UnsupportedError("a cleave.Graph cannot be pickled", hint="graph.save(path), then cleave.Graph.load(path)")

    def _builder(self):
        if self._open is None:
            raise InvalidError("this graph is complete: nothing can be added to it")
        return self._open

    def native(self):
        """The finished graph; nothing can be added afterwards."""
        if self._done is None:
            if self._outputs == 0:
                raise InvalidError("the graph has no output", hint="g.output(value)")
            self._done, self._open = self._open.build(), None
        return self._done

    # -- building ---------------------------------------------------------------------------------------------------
    def dim(self, name: str, low: int = 0, high: int = 1 << 31) -> str:
        """Declares a dimension with its range; undeclared names in shapes get the widest."""
        limits = _options.whole("low", low, 0, 1 << 31), _options.whole("high", high, 0, 1 << 31)
        self._builder().dim(_options.text("name", name), *limits)
        return name

    def input(self, name: str, shape, dtype: str = "f32") -> Value:
        return Value(self, self._builder().input(_options.text("name", name), _options.dtype(dtype), _options.shape(shape)))

    def constant(self, name: str, content) -> Value:
        from ._arrays import given

        return Value(self, self._builder().constant(_options.text("name", name), given(content)))

    def scalar(self, name: str, dtype: str = "f32") -> Value:
        return Value(self, self._builder().scalar(_options.text("name", name), _options.dtype(dtype)))

    def literal(self, value: float, dtype: str = "f32") -> Value:
        return Value(self, self._builder().literal(_real(value, dtype), _options.dtype(dtype)))

    def op(self, name: str, *operands, **attributes):
        """The result of an operator: a Value, or a tuple where it has several. Numbers are literals of the first operand's
        type."""
        like = next((v.dtype for v in operands if isinstance(v, Value) and not (name == "where" and v is operands[0])), "f32")
        ids = []
        for v in operands:
            if isinstance(v, Value):
                if v.graph is not self:
                    raise InvalidError(f"an operand of `{name}` belongs to another graph")
                ids.append(v.id)
            elif isinstance(v, numbers.Real):
                ids.append(self._builder().literal(_real(v, like), like))
            else:
                raise InvalidError(f"an operand of `{name}` is a {type(v).__name__}, values and numbers are possible")
        checked = {key: _options.dtype(v) if key == "dtype" else _options.attribute(key, v) for key, v in attributes.items()}
        results = tuple(Value(self, i) for i in self._builder().add(name, ids, checked))
        return results[0] if len(results) == 1 else results

    def __getattr__(self, name: str):
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *operands, **attributes: self.op(name, *operands, **attributes)

    def output(self, value: Value, name: str | None = None) -> None:
        if not isinstance(value, Value) or value.graph is not self:
            raise InvalidError(f"the output is a {type(value).__name__}, a value of this graph is needed",
                               node=name if isinstance(name, str) else "", hint='g.output(value, "name")')
        self._builder().output(_options.text("name", f"Y{self._outputs or ''}" if name is None else name), value.id)
        self._outputs += 1

    # -- looking ----------------------------------------------------------------------------------------------------
    @property
    def inputs(self) -> list:
        """(name, dtype, shape) of each."""
        return self.native().inputs()

    @property
    def outputs(self) -> list:
        return self.native().outputs()

    @property
    def scalars(self) -> list:
        return self.native().scalars()

    @property
    def dims(self) -> list:
        """(name, lowest, highest) of each dimension without a value."""
        return self.native().dims()

    def save(self, path) -> str:
        """Writes the text to a file that Graph.load reads again: NAME.graph, with its larger constants beside it in NAME.constants.
        Folders are made."""
        path = _options.path("path", path, needed=True)
        self.native().save(path)
        return path

    def __str__(self) -> str:
        """The text. Constants of more than 64 elements are named in it, not written: `save` writes them too."""
        return self.native().text()

    def __repr__(self) -> str:
        return f"<cleave.Graph {self.native().name}>" if self._done is not None else "<cleave.Graph, being built>"
