"""What eager refuses when it sees the data: indices outside their axes, integers divided by 0. The code for an index clamps
it, so nothing outside of memory is read in any case; that eager would have raised is found out here, in the cheapest way:

- what is known when the program is made (a constant, `arange`, `argmax`, a remainder) is settled then;
- an index that is an input is looked at before the program runs;
- for one that the program computes it gets a further output, a bool that says whether any is outside."""

from __future__ import annotations

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ._errors import FLAG, INDEX, ZERO, DivisionError, IndexRangeError, outside, zero

_SAME = ("view", "_unsafe_view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "expand", "permute", "transpose", "t",
         "alias", "detach", "clone", "contiguous", "lift_fresh_copy", "lift_fresh", "slice", "select", "repeat", "flip", "split",
         "unbind", "gather", "index_select", "index", "diagonal", "unfold", "roll", "amax", "amin", "view_as", "expand_as", "narrow")
_WHERE = {"max": 1, "min": 1, "sort": 1, "topk": 2, "kthvalue": 2, "median": 1}  # the second result says where in this argument's axis


def _name(node) -> str:
    packet = getattr(node.target, "_overloadpacket", None)
    return packet.__name__ if packet is not None else getattr(node.target, "__name__", "")


def _least(values, sign=1):
    """The least (sign 1) or greatest bound; None where one is missing, or no order between extents is known."""
    best = None
    for i, v in enumerate(values):
        if v is None:
            return None
        if i == 0 or statically_known_true(v * sign <= best * sign):
            best = v
        elif not statically_known_true(best * sign <= v * sign):
            return None
    return best


def _union(spans):
    return _least([s[0] for s in spans]), _least([s[1] for s in spans], -1)


def _plus(a, b):
    return None if a is None or b is None else a + b


def _of_type(dtype):
    if dtype == torch.bool:
        return 0, 1
    if dtype in (torch.uint8, torch.int8, torch.int16, torch.uint16):
        info = torch.iinfo(dtype)
        return info.min, info.max
    return None, None


class Spans:
    """What the elements of a value may be: (lowest, highest), numbers or dimensions, None where nothing is known."""

    def __init__(self, contents: dict):
        self.contents = contents  # node -> the tensor that it always is
        self.known = {}

    def of(self, arg):
        if isinstance(arg, torch.fx.Node) and arg not in self.known:
            self.known[arg] = self._node(arg)
        if isinstance(arg, torch.fx.Node):
            return self.known[arg]
        return (arg, arg) if isinstance(arg, (int, torch.SymInt)) and not isinstance(arg, bool) else (None, None)

    def _node(self, node):
        val = node.meta.get("val")
        if node in self.contents:
            held = self.contents[node]
            if held.is_floating_point() or held.is_complex() or held.numel() == 0 or held.dtype == torch.bool:
                return None, None
            low, high = torch.aminmax(held)
            return int(low), int(high)
        if isinstance(val, torch.SymInt):
            return val, val
        if not isinstance(val, torch.Tensor) and not isinstance(val, (tuple, list)):
            return None, None
        if isinstance(val, torch.Tensor) and (val.is_floating_point() or val.is_complex()):
            return None, None
        try:
            low, high = self._computed(node) if node.op == "call_function" else (None, None)
        except (TypeError, IndexError, ValueError):  # arguments in a form that is not looked at
            low = high = None
        wide = _of_type(val.dtype) if isinstance(val, torch.Tensor) else (None, None)
        limit = torch.iinfo(val.dtype).max if isinstance(val, torch.Tensor) and val.dtype != torch.bool else 1
        narrow = limit < 2**63 - 1
        if any(isinstance(v, int) and abs(v) > limit or v is None and narrow for v in (low, high)):  # it may have wrapped
            return wide
        return wide[0] if low is None else low, wide[1] if high is None else high

    def _computed(self, node):
        name, args = _name(node), node.args
        if name == "getitem":
            source = args[0]
            if _name(source) in _WHERE and args[1] == 1:
                at = _WHERE[_name(source)]
                axis = source.args[at] if len(source.args) > at else source.kwargs.get("dim", -1)
                return 0, _extent(source.args[0], axis) - 1
            return self.of(source) if _name(source) in ("split", "unbind") else (None, None)
        if name in _SAME:
            return self.of(args[0])
        if name in ("_to_copy", "convert_element_type", "to"):
            return (None, None) if args[0].meta["val"].is_floating_point() else self.of(args[0])
        if name in ("cat", "stack"):
            return _union([self.of(a) for a in args[0]])
        if name == "where" and len(args) == 3:
            return _union([self.of(args[1]), self.of(args[2])])
        if name in ("full", "full_like", "new_full", "scalar_tensor"):
            return self.of(args[-1] if name != "scalar_tensor" else args[0])
        if name == "arange":
            start, end, step = ([0, args[0], 1] if len(args) == 1 else [*args, 1])[:3]
            start, end = self.of(start), self.of(end)
            return (start[0], _plus(end[1], -1)) if step > 0 else (None, None)
        if name in ("argmax", "argmin") and len(args) > 1 and args[1] is not None:
            return 0, _extent(args[0], args[1]) - 1
        if name in ("remainder", "__mod__") and isinstance(args[1], int) and args[1] > 0:
            return 0, args[1] - 1
        if name in ("bitwise_and", "__and__") and isinstance(args[1], int) and args[1] >= 0:
            return 0, args[1]
        return self._arithmetic(name, node)

    def _arithmetic(self, name, node):
        a = self.of(node.args[0])
        b = self.of(node.args[1]) if len(node.args) > 1 else (None, None)
        if name == "clamp":
            low, high = ([*node.args[1:], None, None])[:2]
            low = node.kwargs.get("min", low)
            high = node.kwargs.get("max", high)
            a = a if low is None else self._cut(a, self.of(low), 0)
            return a if high is None else self._cut(a, self.of(high), 1)
        if name in ("maximum", "clamp_min"):
            return self._cut(a, b, 0)
        if name in ("minimum", "clamp_max"):
            return self._cut(a, b, 1)
        if name == "add" and node.kwargs.get("alpha", 1) == 1:
            return _plus(a[0], b[0]), _plus(a[1], b[1])
        if name == "sub" and node.kwargs.get("alpha", 1) == 1:
            return (None if b[1] is None else _plus(a[0], -b[1])), (None if b[0] is None else _plus(a[1], -b[0]))
        if name == "neg":
            return tuple(None if v is None else -v for v in (a[1], a[0]))
        by = node.args[1] if len(node.args) > 1 else None
        if name == "mul" and isinstance(by, int) and by >= 0:
            return tuple(None if v is None else v * by for v in a)
        if name in ("floor_divide", "div") and isinstance(by, int) and by > 0:
            if name == "div" and (node.kwargs.get("rounding_mode") != "floor"):
                return None, None
            return tuple(None if v is None else v // by for v in a)
        return None, None

    @staticmethod
    def _cut(a, b, side):
        """Of the greater (side 0) or the lesser (side 1) of two: one bound is that of either, the other needs both."""
        sign = -1 if side == 0 else 1
        both = _least([a[1 - side], b[1 - side]], sign)
        either = [v for v in (a[side], b[side]) if v is not None]
        one = either[0] if len(either) == 1 else _least(either, sign) if either else None
        one = either[0] if one is None and either else one  # each of the two is a bound
        return (one, both) if side == 0 else (both, one)


def _source(node, same):
    """The value whose elements these are, in another shape or another integer type that holds them."""
    while node.op == "call_function" or node in same:
        if node in same:
            node = same[node]
            continue
        name = _name(node)
        first = node.args[0] if node.args and isinstance(node.args[0], torch.fx.Node) else None
        if first is None or not isinstance(first.meta.get("val"), torch.Tensor):
            break
        was, is_now = first.meta["val"].dtype, node.meta["val"].dtype
        widened = name in ("_to_copy", "convert_element_type", "to") and is_now == torch.int64 and not was.is_floating_point and (
            was != torch.bool and not was.is_complex)
        if not widened and name not in ("view", "_unsafe_view", "reshape", "squeeze", "unsqueeze", "expand", "permute", "transpose", "t",
                                        "alias", "detach", "clone", "contiguous"):
            break
        if 0 in node.meta["val"].shape:  # nothing is read
            break
        node = first
    return node


class Checks:
    """The checks of one program, collected while it is translated."""

    def __init__(self, emitter):
        self.emitter = emitter
        self.spans = Spans(emitter.contents)
        self.same = {}  # placeholder of an inner graph -> what it is given
        self.inputs = {}  # (placeholder, lowest, extent or None) -> the node that asks; None: it must not be 0
        self.flags = {}  # (kind, name of a node) -> bool of the graph that must not hold

    def index(self, index, x, axis=None, wraps=False):
        """`index` picks from an axis of x, or from all its elements; `wraps`: negative ones count from the end."""
        if not isinstance(index, torch.fx.Node):
            return
        e, extent = self.emitter, _extent(x, axis)
        low, high = self.spans.of(index)
        least = -extent if wraps else 0
        if low is not None and high is not None and statically_known_true(low >= least) and statically_known_true(high < extent):
            return
        source = _source(index, self.same)
        if source in e.contents and isinstance(extent, int):
            found = self.spans.of(source)
            if found[0] is not None and (found[0] < least or found[1] >= extent):
                raise IndexRangeError(outside(e.node.name, found[0] if found[0] < least else found[1], extent), node=e.node.name)
            return
        if source.op == "placeholder" and source not in e.contents and isinstance(extent, int):
            self.inputs.setdefault((source, least, extent), e.node.name)
            return
        at = e.value(index, "i64")
        size = e.value(extent, "i64")
        bottom = e.add("neg", size) if wraps else e.literal(0, "i64")
        self._flag(INDEX, e.add("logical_or", e.add("lt", at, bottom), e.add("ge", at, size)))

    def divisor(self, y):
        """Integers are divided by `y`."""
        e = self.emitter
        if not isinstance(y, torch.fx.Node):
            if isinstance(y, (int, float)) and y == 0:
                raise DivisionError(zero(e.node.name), node=e.node.name)
            return
        if not isinstance(y.meta.get("val"), torch.Tensor):
            return
        low, high = self.spans.of(y)
        if (low is not None and statically_known_true(low > 0)) or (high is not None and statically_known_true(high < 0)):
            return
        source = _source(y, self.same)
        if source in e.contents:
            if not bool(e.contents[source].all()):
                raise DivisionError(zero(e.node.name), node=e.node.name)
        elif source.op == "placeholder":
            self.inputs.setdefault((source, 0, None), e.node.name)
        else:
            v = e.value(y)
            self._flag(ZERO, e.add("logical_not", v) if e.builder.dtype(v) == "bool" else e.fn("eq", v, 0.0))

    def _flag(self, kind, bad):
        e = self.emitter
        rank = len(e.builder.shape(bad))
        bad = e.add("any", bad, axes=list(range(rank))) if rank else bad
        name = kind, e.node.name
        self.flags[name] = e.add("logical_or", self.flags[name], bad) if name in self.flags else bad

    def declare(self):
        """The flags as outputs of the graph."""
        for (kind, name), value in self.flags.items():
            self.emitter.builder.output(f"{FLAG}{kind}_{name}", value)


def _extent(x, axis):
    """The extent of an axis, or of all: a number where it is one."""
    val = x.meta["val"]
    n = val.numel() if axis is None else val.shape[axis] if val.dim() else 1
    return int(n.node.expr) if isinstance(n, torch.SymInt) and n.node.expr.is_number else n


def look(tensor, least, extent, node):
    """Before a run: an input that is an index (or, without an extent, a divisor)."""
    tensor = torch.as_tensor(tensor)
    if tensor.numel() == 0:
        return
    if extent is None:
        if not bool(tensor.all()):
            raise DivisionError(zero(node), node=node)
        return
    low, high = (int(v) for v in torch.aminmax(tensor))
    if low < least or high >= extent:
        raise IndexRangeError(outside(node, low if low < least else high, extent), node=node)
